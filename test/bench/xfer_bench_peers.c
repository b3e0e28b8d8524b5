/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "arrow/crc32c.h"
#include "rdma_bench_peers.h"
#include "xfer_bench.h"

#define DEPTH 64

static volatile uint32_t peers_sum; /* CRC of a descriptor; volatile, so that it is computed */

/* ---- the engine alone ------------------------------------------------------------------------ */

static const struct rdma_qp_attr reliable = {
	.type = RDMA_QP_RC,
	.max_send_wr = 2 * DEPTH,
	.max_recv_wr = 2 * DEPTH,
	.retry_count = 7,
	.rnr_retry = 7,
	.ack_timeout = 14,
};

static void
post_receives(struct rig *r, unsigned int n)
{
	const struct rdma_recv_wr wr[2 * DEPTH] = {0};

	if (rdma_post_recv(r->b.qp, wr, n) != n)
		rig_die("no room for receives");
}

static void
receive(struct rig *r)
{
	struct rdma_wc wc[DEPTH];
	const unsigned int n = rdma_poll_cq(r->b.recv_cq, wc, DEPTH);

	if (n > 0)
		post_receives(r, n);
}

/* Offset of a batch in the memory of both ends. */
static uint64_t
batch_at(uint64_t number)
{
	const uint64_t step = batch.body + XFER_BLOCK;

	return number % (MEMORY / step) * step;
}

/*
 * Mandatory work of a store in the protocol: copy a descriptor before reading it, and check its
 * CRC.
 */
static void
receive_checked(struct rig *r)
{
	static uint8_t copy[XFER_BLOCK] __attribute__((aligned(XFER_BLOCK)));
	struct rdma_wc wc[DEPTH];
	const unsigned int n = rdma_poll_cq(r->b.recv_cq, wc, DEPTH);
	unsigned int i;

	for (i = 0; i < n; i++) {
		memcpy(copy, r->b.memory + batch_at(wc[i].imm), batch.entry);
		peers_sum = arrow_crc32c(0, copy, batch.entry);
	}
	if (n > 0)
		post_receives(r, n);
}

static void
post_batch(struct rig *r, uint64_t number)
{
	const uint64_t at = batch_at(number);
	const uint64_t from = (uintptr_t)r->a.memory + at, to = (uintptr_t)r->b.memory + at;
	struct rdma_sge sge[2] = {
		{from + XFER_BLOCK, batch.body, rdma_mr_lkey(r->a.mr)},
		{from, batch.entry, rdma_mr_lkey(r->a.mr)},
	};
	const struct rdma_send_wr wr[2] = {
		{.sg = &sge[0],
			.nb_sge = 1,
			.op = RDMA_OP_WRITE,
			.remote_addr = to + XFER_BLOCK,
			.rkey = rdma_mr_rkey(r->b.mr)},
		{.wr_id = number + 1,
			.sg = &sge[1],
			.nb_sge = 1,
			.op = RDMA_OP_WRITE_IMM,
			.flags = RDMA_SEND_SIGNALED,
			.remote_addr = to,
			.rkey = rdma_mr_rkey(r->b.mr),
			.imm = number},
	};

	if (rdma_post_send(r->a.qp, wr, 2) != 2)
		rig_die("no room for a batch");
}

/*
 * Sequences of the same length as in the other measurement; each ends before the next one begins.
 */
static void
stream_raw(struct rig *r)
{
	const uint64_t length = (uint64_t)(job.seconds * (double)rte_get_tsc_hz());
	const unsigned int depth = RTE_MIN(batch_depth(), (unsigned int)DEPTH);
	const uint64_t begin = rte_rdtsc();
	uint64_t posted = 0, done = 0, end = 0;
	struct rdma_wc wc[DEPTH];
	unsigned int n;

	while (done < end || rte_rdtsc() - begin < length) {
		if (done == end)
			end += batch_segment();
		while (posted < end && posted - done < depth)
			post_batch(r, posted++);
		rig_turn(r);
		n = rdma_poll_cq(r->a.send_cq, wc, DEPTH);
		if (n > 0 && wc[n - 1].status != RDMA_WC_SUCCESS)
			rig_die("%s", rdma_wc_status_name(wc[n - 1].status));
		done += n;
	}
	job.cycles = rte_rdtsc() - begin;
	job.bytes = done * (batch.body + batch.entry);
}

double
peers_raw(bool checked)
{
	rig_connect(&rig, &reliable);
	post_receives(&rig, 2 * DEPTH);
	rig_run(&rig, stream_raw, checked ? receive_checked : receive);
	rig_disconnect(&rig);
	return (double)job.bytes * (double)rte_get_tsc_hz() / (double)job.cycles;
}

/* ---- serialised, over TCP -------------------------------------------------------------------- */

static struct {
	int socket[2];
	uint8_t *buffer;
	_Atomic uint64_t received;
	_Atomic bool end;
} tcp;

/* Copy all columns into one buffer after their metadata, as a record batch is serialised. */
static void
serialise(struct rig *r, uint64_t number)
{
	const uint8_t *from = r->a.memory + batch_at(number);
	const uint64_t begin = rte_rdtsc();
	uint8_t *to = tcp.buffer;
	unsigned int i;

	memcpy(to, batch.metadata, batch.entry);
	to += batch.entry;
	for (i = 0; i < batch.nb_columns; i++) {
		memcpy(to, from, batch.column[i]);
		to += batch.column[i];
		from += batch.column[i];
	}
	job.copying += rte_rdtsc() - begin;
}

static void
send_one(struct rig *r, uint64_t number)
{
	const uint64_t size = batch.body + batch.entry;
	uint64_t sent = 0;
	ssize_t n;

	serialise(r, number);
	for (; sent < size; sent += n) {
		n = send(tcp.socket[0], tcp.buffer + sent, size - sent, 0);
		if (n <= 0)
			rig_die("TCP: %s", strerror(errno));
	}
}

static void
stream_tcp(struct rig *r)
{
	const uint64_t length = (uint64_t)(job.seconds * (double)rte_get_tsc_hz());
	const uint64_t begin = rte_rdtsc();
	uint64_t number = 0;

	job.copying = 0;
	while (rte_rdtsc() - begin < length)
		send_one(r, number++);
	job.bytes = number * (batch.body + batch.entry);
	while (atomic_load(&tcp.received) < job.bytes)
		;
	job.cycles = rte_rdtsc() - begin;
	atomic_store(&tcp.end, true);
}

static void
single_tcp(struct rig *r)
{
	const double tick = 1e3 / (double)rte_get_tsc_hz();
	const uint64_t size = batch.body + batch.entry;
	unsigned int i;

	job.copying = 0;
	for (i = 0; i < job.nb_times; i++) {
		const uint64_t begin = rte_rdtsc();

		send_one(r, i);
		while (atomic_load(&tcp.received) < (i + 1) * size)
			;
		job.times[i] = (double)(rte_rdtsc() - begin) * tick;
	}
	atomic_store(&tcp.end, true);
}

/* The receiver polls its socket, which is the fastest method. */
static void
run_tcp(void (*what)(struct rig *))
{
	size_t at = 0;
	ssize_t n;

	tcp.buffer = malloc(batch.body + XFER_BLOCK);
	if (tcp.buffer == NULL)
		rig_die("no memory to serialise to");
	memset(tcp.buffer, 0, batch.body + XFER_BLOCK);
	peers_connect_stream(tcp.socket);
	atomic_store(&tcp.received, 0);
	atomic_store(&tcp.end, false);
	atomic_store_explicit(&rig.job, what, memory_order_release);
	while (!atomic_load(&tcp.end)) {
		n = recv(tcp.socket[1], rig.b.memory + at, RTE_MIN(MEMORY - at, 4u * MIB),
			MSG_DONTWAIT);
		if (n < 0 && errno != EAGAIN)
			rig_die("TCP: %s", strerror(errno));
		if (n <= 0)
			continue;
		at = at + n < MEMORY ? at + n : 0;
		atomic_fetch_add(&tcp.received, n);
	}
	while (atomic_load_explicit(&rig.job, memory_order_acquire))
		;
	close(tcp.socket[0]);
	close(tcp.socket[1]);
	free(tcp.buffer);
}

double
peers_serialised(void)
{
	run_tcp(stream_tcp);
	return (double)job.bytes * (double)rte_get_tsc_hz() / (double)job.cycles;
}

void
peers_serialised_singles(void)
{
	run_tcp(single_tcp);
}
