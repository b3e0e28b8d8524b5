/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ingest_bench.h"

#define PATIENCE 10 /* s that the receiver waits for the sender */

void
ingest_channel_pair(int channel[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0)
		ingest_fail("channel: %s", strerror(errno));
}

int
ingest_channel_listen(uint16_t port)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int one = 1, listener = socket(AF_INET6, SOCK_STREAM, 0), channel;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&any, sizeof(any)) != 0 || listen(listener, 1) != 0)
		ingest_fail("TCP port %u: %s", port, strerror(errno));
	printf("waiting for the receiver at TCP port %u\n", port);
	fflush(stdout);
	channel = accept(listener, NULL, NULL);
	if (channel < 0)
		ingest_fail("TCP port %u: %s", port, strerror(errno));
	close(listener);
	setsockopt(channel, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return channel;
}

/* @return -1: nobody listens */
static int
try_addresses(const struct addrinfo *a)
{
	int channel;

	for (; a != NULL; a = a->ai_next) {
		channel = socket(a->ai_family, SOCK_STREAM, 0);
		if (channel >= 0 && connect(channel, a->ai_addr, a->ai_addrlen) == 0)
			return channel;
		close(channel);
	}
	return -1;
}

int
ingest_channel_connect(const char *host, uint16_t port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	int one = 1, channel, error, tries = PATIENCE * 10;
	struct addrinfo *found = NULL;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	error = getaddrinfo(host, service, &hints, &found);
	if (error != 0)
		ingest_fail("%s: %s", host, gai_strerror(error));
	while ((channel = try_addresses(found)) < 0 && --tries > 0)
		usleep(100000);
	freeaddrinfo(found);
	if (channel < 0)
		ingest_fail("%s, TCP port %u: %s; start the sender", host, port, strerror(errno));
	setsockopt(channel, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return channel;
}

void
ingest_put(int channel, const void *object, size_t size)
{
	if (send(channel, object, size, MSG_NOSIGNAL) != (ssize_t)size)
		ingest_fail("the other end has gone: %s", strerror(errno));
}

bool
ingest_is_ready(int channel)
{
	struct pollfd p = {.fd = channel, .events = POLLIN};

	return poll(&p, 1, 0) != 0;
}

bool
ingest_get(int channel, void *object, size_t size, void (*idle)(void *arg), void *arg)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = recv(channel, (char *)object + done, size - done,
			idle != NULL ? MSG_DONTWAIT : 0);
		if (n > 0) {
			done += (size_t)n;
		} else if (n == 0) {
			if (done != 0)
				ingest_fail("the other end has gone");
			return false;
		} else if (errno == EAGAIN && idle != NULL) {
			idle(arg);
		} else if (errno != EINTR) {
			ingest_fail("the other end has gone: %s", strerror(errno));
		}
	}
	return true;
}
