/* SPDX-License-Identifier: BSD-3-Clause */
#include "rdma_bench_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "bench_median.h"
#include "rdma_roce.h"

#define MESSAGE	 8256u /* a packet of a JUNGFRAU with its trailer: three packets */
#define SEGMENTS ((MESSAGE + RIG_MTU - 1) / RIG_MTU)
#define SOURCES	 64 /* in the sender's cache: the responder is what is measured */
#define DEPTH	 60 /* messages in flight; a multiple of BATCH */
#define BATCH	 4
#define BURST	 32
#define MANY	 100000
#define SHORT	 0.1 /* s, a round of a test */
#define FEW	 2000
/* us; an iteration of 32 packets takes below 30 us. The host has interrupted a longer one. */
#define ITERATION 100

/* Parameters and results of a round. */
static struct {
	double seconds;
	enum rdma_op op;
	bool by_reference;
	unsigned int places;
	uint32_t rkey;
	uint8_t *memory; /* of all places */
	uint32_t lkey;
	uint64_t next;			/* receives posted */
	uint64_t received, cycles;	/* messages, and the cycles of their iterations */
	uint64_t longest;		/* cycles of an iteration that is counted */
	const void *(*table)[SEGMENTS]; /* by reference: payload of each place */
	unsigned int at;		/* SEND: place of the next message */
} job;

static unsigned int
post(struct rig *rig, uint64_t number)
{
	struct rdma_send_wr wr[BATCH];
	struct rdma_sge sge[BATCH];
	unsigned int i;

	for (i = 0; i < BATCH; i++) {
		sge[i] = (struct rdma_sge){
			(uintptr_t)rig->a.memory + (number + i) % SOURCES * MESSAGE, MESSAGE,
			rdma_mr_lkey(rig->a.mr)};
		wr[i] = (struct rdma_send_wr){.wr_id = number + i + 1,
			.sg = &sge[i],
			.nb_sge = 1,
			.op = (uint8_t)job.op,
			.flags = i == BATCH - 1 ? RDMA_SEND_SIGNALED : 0,
			.remote_addr = (uintptr_t)job.memory + (number + i) % job.places * MESSAGE,
			.rkey = job.rkey};
	}
	return rdma_post_send(rig->a.qp, wr, BATCH);
}

static void
stream(struct rig *rig)
{
	const uint64_t end = rte_rdtsc() + (uint64_t)(job.seconds * (double)rte_get_tsc_hz());
	uint64_t posted = 0, completed = 0;
	struct rdma_wc wc;

	while (rte_rdtsc() < end || completed < posted) {
		if (posted - completed <= DEPTH - BATCH && rte_rdtsc() < end)
			posted += post(rig, posted);
		rig_turn(rig);
		while (rdma_poll_cq(rig->a.send_cq, &wc, 1)) {
			if (wc.status != RDMA_WC_SUCCESS)
				rig_die("message: %s", rdma_wc_status_name(wc.status));
			completed = wc.wr_id;
		}
	}
}

static void
post_receives(struct rig *rig, unsigned int n)
{
	struct rdma_recv_wr wr[DEPTH + BATCH];
	struct rdma_sge sge[DEPTH + BATCH];
	unsigned int i;

	for (i = 0; i < n; i++) {
		sge[i] =
			(struct rdma_sge){(uintptr_t)job.memory + job.next++ % job.places * MESSAGE,
				MESSAGE, job.lkey};
		/* a WRITE has its address in the message */
		wr[i] = (struct rdma_recv_wr){.sg = &sge[i], .nb_sge = job.op == RDMA_OP_SEND_IMM};
	}
	if (rdma_post_recv(rig->b.qp, wr, (uint16_t)n) != n)
		rig_die("no room for receives");
}

static unsigned int
receive_copied(struct rig *rig)
{
	struct rdma_wc wc[BURST];
	unsigned int n = rdma_poll_cq(rig->b.recv_cq, wc, BURST);

	if (n)
		post_receives(rig, n);
	return n;
}

/* Enter the payload's addresses into the table, as a receiver of detector data does. */
static unsigned int
receive_by_reference(struct rig *rig)
{
	struct rdma_roce_message message[BURST];
	struct rte_mbuf *m[BURST], *segment;
	unsigned int i, place, part, n = rdma_roce_poll_messages(rig->b.dev, 0, message, BURST);

	for (i = 0; i < n; i++) {
		m[i] = message[i].m;
		if (message[i].length != MESSAGE || m[i]->nb_segs != SEGMENTS)
			rig_die("message of %u bytes, expected %u", message[i].length, MESSAGE);
		if (message[i].op == RDMA_WC_RECV)
			place = job.at++ % job.places;
		else
			place = (unsigned int)((message[i].addr - (uintptr_t)job.memory) / MESSAGE);
		for (segment = m[i], part = 0; segment; segment = segment->next)
			job.table[place][part++] = rte_pktmbuf_mtod(segment, const void *);
	}
	rte_pktmbuf_free_bulk(m, n);
	return n;
}

static void
receive(struct rig *rig)
{
	const uint64_t before = rte_rdtsc();
	const unsigned int n = job.by_reference ? receive_by_reference(rig) : receive_copied(rig);
	const uint64_t cycles = rig->b.busy + (n ? rte_rdtsc() - before : 0);

	/* busy: of the poll before this call */
	rig->b.busy = 0;
	if (cycles > job.longest)
		return;
	job.cycles += cycles;
	job.received += n;
}

/* @return the responder's cycles of a message */
static double
measure(struct rig *rig, bool by_reference, bool trust)
{
	const struct rdma_roce_reference reference = {.base = (uintptr_t)job.memory,
		.length = (uint64_t)job.places * MESSAGE,
		.rkey = job.rkey,
		.max_bytes = MESSAGE};
	const struct rdma_qp_attr of_a = {
		.type = RDMA_QP_UC, .max_send_wr = DEPTH + BATCH, .max_recv_wr = 1};
	struct rdma_qp_attr of_b = {
		.type = RDMA_QP_UC, .max_recv_wr = DEPTH + BATCH, .trust_icrc = trust};
	struct rdma_roce_uc_info info;
	double result;

	if (by_reference)
		of_b.reference = &reference;
	job.by_reference = by_reference;
	job.next = job.received = job.cycles = job.at = 0;
	rig_connect_two(rig, &of_a, &of_b);
	if (!by_reference)
		post_receives(rig, DEPTH + BATCH);
	rig->b.busy = 0;
	rig_run(rig, stream, receive);
	/* messages that are on the wire at the end; not measured */
	result = (double)job.cycles / (double)job.received;
	while (rdma_progress(rig->b.dev, 0) != 0)
		receive(rig);
	rdma_roce_uc_info_get(rig->b.qp, &info);
	if (info.lost || info.dropped || info.refused)
		rig_die("%lu packets lost, %lu dropped, %lu messages refused", info.lost,
			info.dropped, info.refused);
	rig_disconnect(rig);
	return result;
}

void
reference_bench(struct rig *rig, unsigned int rounds, double seconds)
{
	static const struct {
		const char *name;
		enum rdma_op op;
		bool trust;
	} kinds[] = {
		{"UC SEND with immediate", RDMA_OP_SEND_IMM, false},
		{"UC WRITE with immediate", RDMA_OP_WRITE_IMM, false},
		{"UC WRITE, ICRC not checked", RDMA_OP_WRITE_IMM, true},
	};
	const unsigned int many = seconds < SHORT ? FEW : MANY;
	const unsigned int places[] = {1, many};
	struct rdma_mr_attr attr = {.length = (uint64_t)many * MESSAGE,
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1};
	double copied[BENCH_ROUNDS_MAX], referred[BENCH_ROUNDS_MAX];
	struct rdma_mr *mr;
	unsigned int i, k, r;

	job.seconds = seconds;
	job.longest = rte_get_tsc_hz() / 1000000 * ITERATION;
	job.memory = malloc(attr.length);
	job.table = calloc(many, sizeof(job.table[0]));
	if (!job.memory || !job.table)
		rig_die("no memory for %u messages of %u bytes", many, MESSAGE);
	/* touch every page before the measurement */
	memset(job.memory, 0x5a, attr.length);
	attr.addr = job.memory;
	mr = rdma_mr_reg(rig->b.pd, &attr);
	if (!mr)
		rig_die("no region for %u messages of %u bytes", many, MESSAGE);
	job.rkey = rdma_mr_rkey(mr);
	job.lkey = rdma_mr_lkey(mr);
	printf("Messages of %u bytes in three packets, cycles of a message at the responder\n",
		MESSAGE);
	printf("%-34s %8s %9s %9s %6s\n", "what", "places", "this", "by copy", "ratio");
	for (k = 0; k < RTE_DIM(kinds); k++)
		for (i = 0; i < RTE_DIM(places); i++) {
			job.op = kinds[k].op;
			job.places = places[i];
			for (r = 0; r < rounds; r++) {
				copied[r] = measure(rig, false, kinds[k].trust);
				referred[r] = measure(rig, true, kinds[k].trust);
			}
			printf("%-34s %8u %9.0f %9.0f %6.2f\n", kinds[k].name, places[i],
				bench_median(referred, rounds), bench_median(copied, rounds),
				bench_median_ratio(copied, referred, rounds));
			fflush(stdout);
		}
	rdma_mr_dereg(mr);
	free(job.table);
	free(job.memory);
}
