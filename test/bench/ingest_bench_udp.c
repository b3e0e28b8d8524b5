/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel's UDP: over loopback if both ends are in one process. */

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "bench_alone.h"
#include "ingest_bench.h"

#define BURST_TX 16
#define BURST_RX 64
#define BUFFER	 (256 << 20) /* bytes of the tuned socket */
#define SILENCE	 20	     /* ms without a packet: the rest is lost */

/* Address of the other end, which the channel is connected to. */
static socklen_t
other_end(const struct ingest_host *h, uint16_t port, struct sockaddr_storage *addr)
{
	socklen_t length = sizeof(*addr);

	memset(addr, 0, sizeof(*addr));
	if (getpeername(h->channel, (struct sockaddr *)addr, &length) == 0 &&
		addr->ss_family == AF_INET6) {
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
		return sizeof(struct sockaddr_in6);
	}
	if (addr->ss_family != AF_INET) {
		addr->ss_family = AF_INET;
		((struct sockaddr_in *)addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	((struct sockaddr_in *)addr)->sin_port = htons(port);
	return sizeof(struct sockaddr_in);
}

void
ingest_udp_send(struct ingest_host *h, const struct ingest_trial *t)
{
	struct mmsghdr message[BURST_TX] = {0};
	struct iovec part[BURST_TX];
	struct sockaddr_storage to;
	struct ingest_sent sent = {0};
	struct ingest_end end;
	uint64_t begin, length, due;
	socklen_t size;
	int fd, n;

	if (!ingest_get(h->channel, &end, sizeof(end), NULL, NULL))
		ingest_fail("the receiver has gone");
	size = other_end(h, end.udp_port, &to);
	fd = socket(to.ss_family, SOCK_DGRAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, size) != 0)
		ingest_fail("UDP port %u: %s", end.udp_port, strerror(errno));
	for (unsigned int i = 0; i < BURST_TX; i++) {
		part[i] = (struct iovec){
			h->source.memory + i * ingest_stride(t->payload), t->payload};
		message[i].msg_hdr.msg_iov = &part[i];
		message[i].msg_hdr.msg_iovlen = 1;
	}
	bench_alone_begin();
	length = (uint64_t)(t->seconds * (double)rte_get_tsc_hz());
	begin = rte_rdtsc();
	while (rte_rdtsc() - begin < length) {
		due = ingest_due(t, begin);
		if (due <= sent.messages)
			continue;
		n = sendmmsg(fd, message, (unsigned int)RTE_MIN(due - sent.messages, BURST_TX), 0);
		if (n > 0)
			sent.messages += (uint64_t)n;
	}
	sent.seconds = (double)(rte_rdtsc() - begin) / (double)rte_get_tsc_hz();
	bench_alone_end();
	close(fd);
	ingest_put(h->channel, &sent, sizeof(sent));
}

static int
open_socket(const struct ingest_host *h, bool tuned, uint16_t *port)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6};
	const struct timeval silence = {.tv_usec = SILENCE * 1000};
	const int bytes = BUFFER;
	socklen_t length = sizeof(any);
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);

	/* without the right to force it, the system's limit applies */
	if (tuned && setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence)) != 0 ||
		bind(fd, (struct sockaddr *)&any, sizeof(any)) != 0 ||
		getsockname(fd, (struct sockaddr *)&any, &length) != 0)
		ingest_fail("UDP socket: %s", strerror(errno));
	*port = ntohs(any.sin6_port);
	return fd;
}

/* Destinations, used in turn. */
struct turn {
	uint8_t *base;
	uint32_t stride, addresses, next;
};

static uint8_t *
next_address(struct turn *turn)
{
	uint8_t *address = turn->base + (size_t)turn->next * turn->stride;

	turn->next = turn->next + 1 < turn->addresses ? turn->next + 1 : 0;
	return address;
}

/* @return messages received; 0: silence */
static int
receive_burst(int fd, struct turn *turn, uint32_t payload)
{
	struct mmsghdr message[BURST_RX];
	struct iovec part[BURST_RX];
	struct turn before = *turn;
	int n;

	for (unsigned int i = 0; i < BURST_RX; i++) {
		part[i] = (struct iovec){next_address(turn), payload};
		message[i].msg_hdr = (struct msghdr){.msg_iov = &part[i], .msg_iovlen = 1};
	}
	*turn = before;
	n = recvmmsg(fd, message, BURST_RX, MSG_WAITFORONE, NULL);
	for (int i = 0; i < n; i++)
		next_address(turn);
	return RTE_MAX(n, 0);
}

static int
receive_one(int fd, struct turn *turn, uint32_t payload)
{
	if (recv(fd, turn->base + (size_t)turn->next * turn->stride, payload, 0) < 0)
		return 0;
	next_address(turn);
	return 1;
}

static uint64_t
cpu_cycles(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)(((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) * (double)rte_get_tsc_hz());
}

void
ingest_udp_receive(struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out)
{
	struct turn turn = {h->ring[t->pages].memory, ingest_stride(t->payload), t->addresses, 0};
	uint64_t first = 0, last = 0, cycles = 0;
	const bool tuned = t->method == INGEST_UDP_TUNED;
	struct ingest_sent sent = {0};
	struct ingest_end end = {0};
	int fd = open_socket(h, tuned, &end.udp_port), n;

	ingest_put(h->channel, &end, sizeof(end));
	for (;;) {
		n = tuned ? receive_burst(fd, &turn, t->payload)
			  : receive_one(fd, &turn, t->payload);
		if (n > 0) {
			last = rte_rdtsc();
			if (first == 0) {
				first = last;
				cycles = cpu_cycles();
				/* these messages were not timed */
				out->received -= (uint64_t)n;
				out->sent -= (uint64_t)n;
			}
			out->received += (uint64_t)n;
		} else if (ingest_is_ready(h->channel)) {
			break;
		}
	}
	cycles = cpu_cycles() - cycles;
	close(fd);
	ingest_get(h->channel, &sent, sizeof(sent), NULL, NULL);
	out->sent += sent.messages;
	if (last == first || out->received == 0)
		return;
	out->rate = (double)out->received * (double)rte_get_tsc_hz() / (double)(last - first);
	out->cycles = (double)cycles / (double)out->received;
	out->busy = RTE_MIN(1.0, (double)cycles / (double)(last - first));
}
