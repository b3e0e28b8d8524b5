/* SPDX-License-Identifier: BSD-3-Clause */
#include "rdma_bench_peers.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ring.h>

#include "isal_crc.h"

#define BURST 32
#define SLOTS 128 /* 512 KiB in flight, as in the engine */

/* The worker's side of the job; one at a time. */
static struct {
	struct rte_ring *ring;
	uint64_t end; /* TSC */
	size_t size;
	int socket;
	_Atomic bool done;
	/* written by the main lcore, on a cache line that the worker does not use */
	uint64_t bytes __rte_cache_aligned;
	uint32_t sink; /* of CRCs, so that they are not optimised away */
} work;

static void
send_pointers(struct rig *rig)
{
	size_t packets = rig->memory_size / RIG_MTU, at = 0;
	uint32_t crc = 0;

	while (rte_rdtsc() < work.end) {
		void *burst[BURST];
		unsigned int i, sent = 0;

		for (i = 0; i < BURST; i++) {
			burst[i] = rig->a.memory + at * RIG_MTU;
			crc ^= isal_crc32(0, burst[i], RIG_MTU);
			at = at + 1 < packets ? at + 1 : 0;
		}
		while (sent < BURST && rte_rdtsc() < work.end)
			sent += rte_ring_sp_enqueue_burst(
				work.ring, burst + sent, BURST - sent, NULL);
	}
	work.sink = crc;
	atomic_store(&work.done, true);
}

static void
take_pointers(struct rig *rig)
{
	static size_t at;
	size_t packets = rig->memory_size / RIG_MTU;
	void *burst[BURST];
	unsigned int i, n = rte_ring_sc_dequeue_burst(work.ring, burst, BURST, NULL);

	for (i = 0; i < n; i++) {
		work.sink ^= isal_crc32(0, burst[i], RIG_MTU);
		memcpy(rig->b.memory + at * RIG_MTU, burst[i], RIG_MTU);
		at = at + 1 < packets ? at + 1 : 0;
	}
	work.bytes += (uint64_t)n * RIG_MTU;
}

void
peers_passes(struct rig *rig, struct peers_passes *passes)
{
	size_t packets = rig->memory_size / RIG_MTU, i;
	uint64_t before = rte_rdtsc(), between;
	uint32_t crc = 0;

	for (i = 0; i < packets; i++)
		crc ^= isal_crc32(0, rig->a.memory + i * RIG_MTU, RIG_MTU);
	between = rte_rdtsc();
	passes->crc = (double)(between - before) / (double)packets;
	/* the copy reads from the cache what the CRC has just read, as in the engine */
	for (i = 0; i < packets; i++) {
		crc ^= isal_crc32(0, rig->a.memory + i * RIG_MTU, RIG_MTU);
		memcpy(rig->b.memory + i * RIG_MTU, rig->a.memory + i * RIG_MTU, RIG_MTU);
	}
	passes->copy = (double)(rte_rdtsc() - between) / (double)packets - passes->crc;
	work.sink = crc;
}

double
peers_loop(struct rig *rig, double seconds)
{
	uint64_t begin = rte_rdtsc(), end, done = 0, now;
	size_t packets = rig->memory_size / RIG_MTU;
	uint32_t crc = 0;

	end = begin + (uint64_t)(seconds * (double)rte_get_tsc_hz());
	while ((now = rte_rdtsc()) < end) {
		size_t i, at = done % packets * RIG_MTU;

		for (i = 0; i < BURST; i++)
			crc ^= isal_crc32(0, rig->a.memory + at + i * RIG_MTU, RIG_MTU);
		for (i = 0; i < BURST; i++) {
			crc ^= isal_crc32(0, rig->a.memory + at + i * RIG_MTU, RIG_MTU);
			memcpy(rig->b.memory + at + i * RIG_MTU, rig->a.memory + at + i * RIG_MTU,
				RIG_MTU);
		}
		done += BURST;
	}
	work.sink = crc;
	return (double)done * RIG_MTU * (double)rte_get_tsc_hz() / (double)(now - begin);
}

double
peers_ceiling(struct rig *rig, double seconds)
{
	uint64_t begin;

	work.ring = rte_ring_create("ceiling", SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (!work.ring)
		rig_die("no ring for the ceiling");
	work.bytes = 0;
	work.done = false;
	begin = rte_rdtsc();
	work.end = begin + (uint64_t)(seconds * (double)rte_get_tsc_hz());
	rig_run(rig, send_pointers, take_pointers);
	seconds = (double)(rte_rdtsc() - begin) / (double)rte_get_tsc_hz();
	rte_ring_free(work.ring);
	return (double)work.bytes / seconds;
}

static void
send_stream(struct rig *rig)
{
	size_t at = 0;

	while (rte_rdtsc() < work.end) {
		size_t sent = 0;

		if (at + work.size > rig->memory_size)
			at = 0;
		while (sent < work.size) {
			ssize_t n = write(work.socket, rig->a.memory + at + sent, work.size - sent);

			if (n <= 0)
				rig_die("TCP: write failed");
			sent += (size_t)n;
		}
		at += work.size;
	}
	shutdown(work.socket, SHUT_WR);
}

void
peers_connect_stream(int stream[2])
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof(in);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	stream[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&in, sizeof(in)) < 0 || listen(listener, 1) < 0 ||
		getsockname(listener, (struct sockaddr *)&in, &length) < 0 ||
		connect(stream[0], (struct sockaddr *)&in, sizeof(in)) < 0 ||
		(stream[1] = accept(listener, NULL, NULL)) < 0)
		rig_die("no TCP over loopback");
	setsockopt(stream[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listener);
}

double
peers_tcp(struct rig *rig, size_t size, double seconds)
{
	uint64_t bytes = 0, begin;
	size_t at = 0;
	int stream[2];
	ssize_t n;

	peers_connect_stream(stream);
	work.size = size;
	work.socket = stream[0];
	begin = rte_rdtsc();
	work.end = begin + (uint64_t)(seconds * (double)rte_get_tsc_hz());
	atomic_store_explicit(&rig->job, send_stream, memory_order_release);
	while ((n = read(stream[1], rig->b.memory + at, size)) > 0) {
		bytes += (uint64_t)n;
		at = at + 2 * size <= rig->memory_size ? at + (size_t)n : 0;
	}
	seconds = (double)(rte_rdtsc() - begin) / (double)rte_get_tsc_hz();
	while (atomic_load_explicit(&rig->job, memory_order_acquire))
		;
	close(stream[0]);
	close(stream[1]);
	return (double)bytes / seconds;
}
