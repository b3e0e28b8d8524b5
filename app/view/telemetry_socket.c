/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bounds.h"
#include "clock.h"
#include "telemetry_socket.h"

#define GREETING_SIZE 1024
#define RETRY_MS      10 /* between attempts to connect while the queue of the socket is full */

/** Wait until the socket is ready. @return 0; -ETIMEDOUT; -ECANCELED; -errno */
static int
wait_ready(const struct telemetry_socket *s, short events, int64_t deadline)
{
	struct pollfd fds[] = {
		{.fd = s->fd, .events = events}, {.fd = s->cancel, .events = POLLIN}};
	int64_t left;
	int n;

	do {
		left = deadline - monotonic_ms();
		n = poll(fds, 2, left > 0 ? (int)left : 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (fds[1].revents != 0)
		return -ECANCELED;
	return n > 0 ? 0 : -ETIMEDOUT;
}

/** @return bytes of the message, which are more than `size` if it was cut; -errno */
static ssize_t
receive(const struct telemetry_socket *s, char *text, size_t size, int64_t deadline)
{
	const int ret = wait_ready(s, POLLIN, deadline);
	/* MSG_TRUNC: the size of the message, even if it is larger */
	const ssize_t n = ret == 0 ? recv(s->fd, text, size, MSG_TRUNC) : 0;

	return ret != 0 ? ret : n < 0 ? -errno : n;
}

/** Read {"version": ..., "pid": ..., "max_output_len": ...}. */
static int
read_greeting(struct telemetry_socket *s, int64_t deadline)
{
	char text[GREETING_SIZE];
	const ssize_t n = receive(s, text, sizeof(text), deadline);
	json_t *greeting;
	json_int_t size;

	if (n < 0)
		return (int)n;
	greeting = (size_t)n <= sizeof(text) ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
	size = json_integer_value(json_object_get(greeting, "max_output_len"));
	s->pid = json_integer_value(json_object_get(greeting, "pid"));
	json_decref(greeting);
	if (size < 1 || size > LIMIT_REPLY)
		return -EPROTO;
	s->size = (size_t)size;
	return 0;
}

int
telemetry_socket_connect(
	struct telemetry_socket *s, const char *path, int cancel, int timeout_ms, const char **why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int64_t deadline = monotonic_ms() + timeout_ms;
	int ret;

	*s = (struct telemetry_socket){.fd = -1, .cancel = cancel};
	*why = "the path of the socket is too long";
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
		(int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	*why = "cannot connect";
	/* without blocking: a process that does not accept connections has a full queue of them */
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return -errno;
	while ((ret = connect(s->fd, (struct sockaddr *)&address, sizeof(address))) < 0) {
		ret = -errno;
		/* poll() also ends when `cancel` is readable */
		if (ret != -EAGAIN || monotonic_ms() >= deadline ||
			poll(&(struct pollfd){.fd = cancel, .events = POLLIN}, 1, RETRY_MS) != 0)
			goto fail;
	}
	*why = "it is not a DPDK telemetry socket";
	ret = read_greeting(s, deadline);
	if (ret == 0)
		return 0;
fail:
	telemetry_socket_close(s);
	return ret;
}

void
telemetry_socket_close(struct telemetry_socket *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

/** A reply with another key answers another command: it is late, or was sent twice. */
static int
check_reply(const char *text, size_t size, const char *command)
{
	json_t *reply = json_loadb(text, size, 0, NULL);
	const size_t length = strcspn(command, ",");
	int ret = -EPROTO;
	const char *key;

	if (json_object_size(reply) == 1) {
		key = json_object_iter_key(json_object_iter(reply));
		ret = strlen(key) == length && memcmp(key, command, length) == 0 ? 0 : -EPROTO;
	}
	json_decref(reply);
	return ret;
}

int
telemetry_socket_query(
	struct telemetry_socket *s, const char *command, int timeout_ms, char **reply)
{
	const int64_t deadline = monotonic_ms() + timeout_ms;
	ssize_t n;
	char *text;
	int ret;

	*reply = NULL;
	ret = wait_ready(s, POLLOUT, deadline);
	if (ret != 0)
		return ret;
	if (send(s->fd, command, strlen(command), MSG_NOSIGNAL) < 0)
		return -errno;
	text = malloc(s->size + 1);
	if (text == NULL)
		return -ENOMEM;
	n = receive(s, text, s->size, deadline);
	if (n < 0)
		ret = (int)n;
	else if (n == 0)
		ret = -ECONNRESET;
	else if ((size_t)n > s->size)
		ret = -EPROTO;
	else
		ret = check_reply(text, (size_t)n, command);
	if (ret != 0) {
		free(text);
		return ret;
	}
	text[n] = '\0';
	/* line ends in JSON are blanks between tokens; an event is one line */
	for (char *c = text; *c != '\0'; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	*reply = text;
	return 0;
}
