/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software RoCE engine with itself, over rings between two lcores, compared with the mandatory
 * passes over the bytes (ceiling) and with TCP over loopback. Both use the same two cores in the
 * same run. Rows that are compared are measured one directly after the other.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "bench_median.h"
#include "rdma_bench_peers.h"
#include "rdma_bench_reference.h"
#include "rdma_bench_rig.h"

#define KIB	  1024
#define MIB	  (1024 * KIB)
#define ROUNDS	  7
#define SECONDS	  0.25	      /* of a round */
#define MEMORY	  (192 * MIB) /* at each end: several times the last-level cache */
#define DEPTH	  64
#define IN_FLIGHT (512 * KIB) /* bytes of posted messages; at least 8 messages */
#define PINGS	  20000
#define STORM	  200

static const char usage[] =
	"Usage: rdma_bench [EAL options] [-- [quick] [PART]...]\n"
	"The software RoCE engine between two lcores of one process, as tables.\n"
	"Parts, all by default: streams, alone, cycles, small, loss, storm, idle, reference.\n";

static struct rig rig;
static double seconds = SECONDS;
static unsigned int rounds = ROUNDS;

/* Parameters and results of the worker's job. */
static struct {
	enum rdma_op op;
	uint32_t size;
	bool solicited; /* post receives at the responder */
	uint64_t messages, cycles;
	uint64_t frames_a, frames_b; /* frames on the wire */
	double *pings;
	unsigned int nb_pings;
} job;

static double
gbit(double bytes)
{
	return bytes * 8 / 1e9;
}

/* ---- the worker's jobs ---------------------------------------------------------------------- */

static unsigned int
post(uint64_t number, unsigned int n)
{
	struct rdma_send_wr wr[DEPTH];
	struct rdma_sge sge[DEPTH];
	uint64_t places = rig.memory_size / RTE_MAX(job.size, 4096u);
	unsigned int i;

	for (i = 0; i < n; i++) {
		uint64_t at = (number + i) % places * RTE_MAX(job.size, 4096u);

		sge[i] = (struct rdma_sge){
			(uintptr_t)rig.a.memory + at, job.size, rdma_mr_lkey(rig.a.mr)};
		wr[i] = (struct rdma_send_wr){.wr_id = number + i + 1,
			.sg = &sge[i],
			.nb_sge = 1,
			.op = (uint8_t)job.op,
			.flags = (number + i) % 4 == 3 ? RDMA_SEND_SIGNALED : 0,
			.remote_addr = (uintptr_t)rig.b.memory + at,
			.rkey = rdma_mr_rkey(rig.b.mr)};
	}
	return rdma_post_send(rig.a.qp, wr, (uint16_t)n);
}

static uint64_t
take(uint64_t completed)
{
	struct rdma_wc wc[16];
	unsigned int i, n = rdma_poll_cq(rig.a.send_cq, wc, 16);

	for (i = 0; i < n; i++) {
		if (wc[i].status != RDMA_WC_SUCCESS)
			rig_die("request %" PRIu64 ": %s", wc[i].wr_id,
				rdma_wc_status_name(wc[i].status));
		completed = wc[i].wr_id;
	}
	return completed;
}

/* Post messages as fast as possible until the time is over. */
static void
stream(struct rig *r)
{
	unsigned int depth = (unsigned int)RTE_MIN(
		RTE_MAX(IN_FLIGHT / RTE_MAX(job.size, 1u), 8u), (uint32_t)DEPTH);
	uint64_t length = (uint64_t)(seconds * (double)rte_get_tsc_hz());
	uint64_t begin = rte_rdtsc(), posted = 0, completed = 0;

	while (rte_rdtsc() - begin < length) {
		if (posted - completed <= depth - 4)
			posted += post(posted, 4);
		rig_turn(r);
		completed = take(completed);
	}
	job.cycles = rte_rdtsc() - begin;
	job.messages = completed;
	/* complete the rest, so that nothing refers to the queue pair; not measured */
	while (completed < posted - posted % 4) {
		rig_turn(r);
		completed = take(completed);
	}
}

static void
post_receives(struct rig_side *side, unsigned int n)
{
	struct rdma_recv_wr wr[DEPTH];
	struct rdma_sge sge[DEPTH];
	uint64_t step = RTE_MAX(job.size, 4096u), places = rig.memory_size / step;
	unsigned int i;

	for (i = 0; i < n; i++) {
		sge[i] =
			(struct rdma_sge){(uintptr_t)side->memory + side->recv_at++ % places * step,
				RTE_MAX(job.size, 1u), rdma_mr_lkey(side->mr)};
		wr[i] = (struct rdma_recv_wr){.sg = &sge[i], .nb_sge = 1};
	}
	if (rdma_post_recv(side->qp, wr, (uint16_t)n) != n)
		rig_die("no room for receives");
}

/* The responder's part of SENDs: post receives. */
static void
receive(struct rig *r)
{
	struct rdma_wc wc[DEPTH];
	unsigned int n = rdma_poll_cq(r->b.recv_cq, wc, DEPTH);

	if (n)
		post_receives(&r->b, n);
}

/* SENDs back and forth; the result is half of a round trip. */
static void
ping(struct rig *r)
{
	uint64_t before = rte_rdtsc(), now;
	double tick = 1e6 / (double)rte_get_tsc_hz() / 2;
	struct rdma_wc wc;
	unsigned int i;

	post_receives(&r->a, 4);
	for (i = 0; i < job.nb_pings; i++) {
		if (post(4ULL * i + 3, 1) != 1)
			rig_die("no room for a ping");
		while (!rdma_poll_cq(r->a.recv_cq, &wc, 1))
			rig_turn(r);
		post_receives(&r->a, 1);
		take(0);
		now = rte_rdtsc();
		job.pings[i] = (double)(now - before) * tick;
		before = now;
	}
}

static void
pong(struct rig *r)
{
	struct rdma_wc wc;

	if (rdma_poll_cq(r->b.recv_cq, &wc, 1)) {
		struct rdma_sge sge = {(uintptr_t)r->b.memory, job.size, rdma_mr_lkey(r->b.mr)};
		struct rdma_send_wr wr = {
			.sg = &sge, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};

		post_receives(&r->b, 1);
		if (rdma_post_send(r->b.qp, &wr, 1) != 1)
			rig_die("no room for a pong");
	}
	while (rdma_poll_cq(r->b.send_cq, &wc, 1))
		;
}

/* A receiver that keeps two receives posted and polls from time to time. */
static void
storm(struct rig *r)
{
	uint64_t posted = 0, completed = 0;

	while (completed < STORM) {
		if (posted < STORM && posted - completed <= DEPTH - 4)
			posted += post(posted, 4);
		rig_turn(r);
		completed = take(completed);
	}
	job.messages = completed;
}

static void
slow_receive(struct rig *r)
{
	static uint64_t next;

	if (rte_rdtsc() < next)
		return;
	next = rte_rdtsc() + rte_get_tsc_hz() / 1000;
	receive(r);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static const struct rdma_qp_attr reliable = {
	.type = RDMA_QP_RC,
	.max_send_wr = DEPTH,
	.max_recv_wr = DEPTH,
	.retry_count = 7,
	.rnr_retry = 7,
	.ack_timeout = 14, /* 67 ms, as in perftest */
};

struct result {
	double bytes;			 /* bytes/s of messages, median of the rounds */
	double messages;		 /* messages/s */
	double frames;			 /* frames on the wire that the requests need */
	double send_cycles, recv_cycles; /* busy cycles per data packet */
};

/* Rounds of a stream over its own pair of queue pairs. */
static struct result
measure(const struct rdma_qp_attr *attr, enum rdma_op op, uint32_t size, unsigned int nb_rounds)
{
	bool receives = op == RDMA_OP_SEND;
	uint64_t useful = 0, frames = 0, busy_a = 0, busy_b = 0;
	double rate[ROUNDS];
	struct result result;
	unsigned int i;

	job.op = op;
	job.size = size;
	rig_connect(&rig, attr);
	if (receives)
		post_receives(&rig.b, DEPTH);
	for (i = 0; i < nb_rounds; i++) {
		const struct rig_side *data = op == RDMA_OP_READ ? &rig.b : &rig.a;
		const struct rig_side *sink = op == RDMA_OP_READ ? &rig.a : &rig.b;
		uint64_t before = rig_stat(data, "tx_packets");
		uint64_t placed = rig_stat(sink, "rx_message_bytes"), begin = rte_rdtsc();

		rig.a.busy = rig.b.busy = 0;
		rig_run(&rig, stream, receives ? receive : NULL);
		frames += rig_stat(data, "tx_packets") - before;
		placed = rig_stat(sink, "rx_message_bytes") - placed;
		useful += placed;
		busy_a += rig.a.busy;
		busy_b += rig.b.busy;
		/* UC completes a message when it is sent, so count the placed bytes */
		rate[i] = attr->type == RDMA_QP_UC
			? (double)placed * (double)rte_get_tsc_hz() / (double)(rte_rdtsc() - begin)
			: (double)job.messages * size * (double)rte_get_tsc_hz() /
				(double)job.cycles;
	}
	rig_disconnect(&rig);
	result.bytes = bench_median(rate, nb_rounds);
	result.messages = result.bytes / size;
	result.frames = (double)frames / ((double)useful / RTE_MIN(size, (uint32_t)RIG_MTU));
	result.send_cycles = (double)busy_a / (double)frames;
	result.recv_cycles = (double)busy_b / (double)frames;
	return result;
}

/*
 * Compare with a peer. The ratio is the median over neighbouring rounds, which the machine affects
 * in the same way.
 */
static void
beside(const double *rate, const double *peer)
{
	printf(" %9.2f %6.2f", gbit(bench_median(peer, rounds)),
		bench_median_ratio(rate, peer, rounds));
}

/* Rates of the rounds. @param tcp NULL: not compared */
static void
row(const char *what, uint32_t size, const double *rate, const double *ceiling, const double *tcp)
{
	char text[16];

	snprintf(text, sizeof(text), size % MIB ? "%u KiB" : "%u MiB",
		size % MIB ? size / KIB : size / MIB);
	printf("%-34s %8s %9.2f", what, text, gbit(bench_median(rate, rounds)));
	beside(rate, ceiling);
	if (tcp)
		beside(rate, tcp);
	printf("\n");
	fflush(stdout);
}

static void
bench_streams(void)
{
	static const uint32_t sizes[] = {64 * KIB, MIB};
	static const struct {
		const char *name;
		enum rdma_qp_type type;
		enum rdma_op op;
	} kinds[] = {
		{"RC WRITE", RDMA_QP_RC, RDMA_OP_WRITE},
		{"RC SEND", RDMA_QP_RC, RDMA_OP_SEND},
		{"RC READ", RDMA_QP_RC, RDMA_OP_READ},
		{"UC WRITE", RDMA_QP_UC, RDMA_OP_WRITE},
	};
	unsigned int i, k;

	printf("Streams, MTU 4096, ICRC made and checked, Gbit/s\n");
	printf("%-34s %8s %9s %9s %6s %9s %6s\n", "what", "message", "this", "ceiling", "ratio",
		"TCP", "ratio");
	for (i = 0; i < RTE_DIM(sizes); i++) {
		double ceiling[ROUNDS], tcp[ROUNDS], rate[RTE_DIM(kinds)][ROUNDS];
		unsigned int r;

		/* alternating, so that other load on the machine is the same for all */
		for (r = 0; r < rounds; r++) {
			ceiling[r] = peers_ceiling(&rig, seconds);
			for (k = 0; k < RTE_DIM(kinds); k++) {
				struct rdma_qp_attr attr = reliable;

				attr.type = kinds[k].type;
				rate[k][r] = measure(&attr, kinds[k].op, sizes[i], 1).bytes;
			}
			tcp[r] = peers_tcp(&rig, sizes[i], seconds);
		}
		for (k = 0; k < RTE_DIM(kinds); k++)
			row(kinds[k].name, sizes[i], rate[k], ceiling, tcp);
	}
}

/* Both ends on one lcore, which does all the passes. */
static void
bench_alone(void)
{
	static const uint32_t sizes[] = {64 * KIB, MIB};
	double loop[ROUNDS], rate[ROUNDS];
	unsigned int i, r;

	rig_close(&rig);
	rig_open(&rig, MEMORY, true);
	printf("Both ends on one lcore, Gbit/s\n");
	printf("%-34s %8s %9s %9s %6s\n", "what", "message", "this", "loop", "ratio");
	for (i = 0; i < RTE_DIM(sizes); i++) {
		for (r = 0; r < rounds; r++) {
			loop[r] = peers_loop(&rig, seconds);
			rate[r] = measure(&reliable, RDMA_OP_WRITE, sizes[i], 1).bytes;
		}
		row("RC WRITE", sizes[i], rate, loop, NULL);
	}
	rig_close(&rig);
	rig_open(&rig, MEMORY, false);
}

static void
bench_cycles(void)
{
	struct peers_passes passes;
	struct rdma_qp_attr trusting = reliable;
	struct result checked, trusted, small;

	peers_passes(&rig, &passes);
	trusting.trust_icrc = true;
	checked = measure(&reliable, RDMA_OP_WRITE, MIB, rounds);
	trusted = measure(&trusting, RDMA_OP_WRITE, MIB, rounds);
	small = measure(&reliable, RDMA_OP_WRITE, 64, rounds);
	printf("Cycles of a packet, RC WRITE of 1 MiB (TSC, %.2f GHz)\n",
		(double)rte_get_tsc_hz() / 1e9);
	printf("%-58s %8s\n", "stage", "cycles");
	printf("%-58s %8.0f\n", "requester, all", checked.send_cycles);
	printf("%-58s %8.0f\n", "  of it the ICRC pass (loop alone)", passes.crc);
	printf("%-58s %8.0f\n", "responder, all", checked.recv_cycles);
	printf("%-58s %8.0f\n", "  ICRC check (all, less all with trust_icrc)",
		checked.recv_cycles - trusted.recv_cycles);
	printf("%-58s %8.0f\n", "  placing copy (loop alone, source just read)", passes.copy);
	printf("%-58s %8.0f\n", "  parse, look-up, ACK: packets of 64 B, all", small.recv_cycles);
}

static void
bench_small(void)
{
	struct result write = measure(&reliable, RDMA_OP_WRITE, 64, rounds);
	struct result send = measure(&reliable, RDMA_OP_SEND, 64, rounds);

	printf("Small messages, 64 B\n%-34s %12s\n", "what", "this");
	printf("%-34s %9.3f M/s\n", "RC WRITE", write.messages / 1e6);
	printf("%-34s %9.3f M/s\n", "RC SEND", send.messages / 1e6);

	job.op = RDMA_OP_SEND;
	job.size = 64;
	job.nb_pings = PINGS;
	job.pings = calloc(PINGS, sizeof(*job.pings));
	rig_connect(&rig, &reliable);
	post_receives(&rig.b, 4);
	rig_run(&rig, ping, pong);
	rig_disconnect(&rig);
	qsort(job.pings, PINGS, sizeof(*job.pings), bench_by_value);
	printf("%-34s %9.2f us\n", "RC SEND latency, p50", job.pings[PINGS / 2]);
	printf("%-34s %9.2f us\n", "RC SEND latency, p99", job.pings[PINGS * 99 / 100]);
	free(job.pings);
	fflush(stdout);
}

static void
bench_loss(void)
{
	static const struct {
		const char *name;
		enum rdma_op op;
	} kinds[] = {{"RC WRITE", RDMA_OP_WRITE}, {"RC READ", RDMA_OP_READ}};
	static const double chances[] = {0, 0.001, 0.01, 0.04};
	struct result clean = {0}, result;
	unsigned int i, k;

	printf("Random loss both ways, messages of 64 KiB (seed %" PRIu64 ")\n", rig.seed);
	printf("%-34s %9s %9s %12s\n", "loss", "Gbit/s", "ratio", "frames/useful");
	for (k = 0; k < RTE_DIM(kinds); k++) {
		for (i = 0; i < RTE_DIM(chances); i++) {
			char text[32];

			rig.loss = (uint32_t)(chances[i] * 4294967296.0);
			result = measure(&reliable, kinds[k].op, 64 * KIB, rounds);
			rig.loss = 0;
			if (!i)
				clean = result;
			snprintf(
				text, sizeof(text), "%s, %.1f %%", kinds[k].name, chances[i] * 100);
			printf("%-34s %9.2f %9.3f %12.3f\n", text, gbit(result.bytes),
				result.bytes / clean.bytes, result.frames);
			fflush(stdout);
		}
	}
}

static void
bench_storm(void)
{
	struct rdma_qp_attr attr = reliable;
	uint64_t before;

	attr.max_recv_wr = 2;
	attr.min_rnr_timer = 12;
	job.op = RDMA_OP_SEND;
	job.size = 4 * KIB;
	rig_connect(&rig, &attr);
	post_receives(&rig.b, 2);
	before = rig_stat(&rig.a, "tx_packets");
	rig_run(&rig, storm, slow_receive);
	printf("Receiver not ready: %u SENDs of 4 KiB, two receives, polled every 1 ms\n", STORM);
	printf("%-34s %9s %9s\n", "what", "this", "rdma_rxe");
	printf("%-34s %9.2f %9.1f\n", "frames of a message",
		(double)(rig_stat(&rig.a, "tx_packets") - before) / STORM, 8819.0 / 200);
	rig_disconnect(&rig);
	fflush(stdout);
}

static void
bench_idle(void)
{
	static const unsigned int counts[] = {1, 10, 100, 1000};
	struct result first = {0};
	unsigned int i;

	printf("Idle queue pairs beside one busy one, RC WRITE of 64 KiB and of 64 B\n");
	printf("%-34s %9s %9s %9s %9s\n", "idle", "Gbit/s", "ratio", "M/s", "ratio");
	for (i = 0; i < RTE_DIM(counts); i++) {
		struct rdma_qp **idle = rig_idle(&rig, counts[i]);
		struct result wide = measure(&reliable, RDMA_OP_WRITE, 64 * KIB, rounds);
		struct result small = measure(&reliable, RDMA_OP_WRITE, 64, rounds);

		rig_idle_close(&rig, idle, counts[i]);
		if (!i)
			first = (struct result){.bytes = wide.bytes, .messages = small.messages};
		printf("%-34u %9.2f %9.3f %9.3f %9.3f\n", counts[i], gbit(wide.bytes),
			wide.bytes / first.bytes, small.messages / 1e6,
			small.messages / first.messages);
		fflush(stdout);
	}
}

static void
bench_reference(void)
{
	rig_close(&rig);
	rig_open_whole(&rig, MIB);
	reference_bench(&rig, rounds, seconds);
	rig_close(&rig);
	rig_open(&rig, MEMORY, false);
}

static const struct part {
	const char *name;
	void (*run)(void);
} parts[] = {
	{"streams", bench_streams},
	{"alone", bench_alone},
	{"cycles", bench_cycles},
	{"small", bench_small},
	{"loss", bench_loss},
	{"storm", bench_storm},
	{"idle", bench_idle},
	{"reference", bench_reference},
};

/* @return bit mask of the parts to run */
static unsigned int
parse(int argc, char **argv)
{
	unsigned int chosen = 0, i;

	for (; argc > 1; argc--, argv++) {
		if (strcmp(argv[1], "quick") == 0) {
			rounds = 1;
			seconds = 0.05;
			continue;
		}
		for (i = 0; i < RTE_DIM(parts) && strcmp(argv[1], parts[i].name) != 0; i++)
			;
		if (i == RTE_DIM(parts)) {
			fputs(usage, stderr);
			exit(2);
		}
		chosen |= 1u << i;
	}
	return chosen ? chosen : UINT_MAX;
}

int
main(int argc, char **argv)
{
	int words = rte_eal_init(argc, argv);
	unsigned int chosen, i;

	if (words < 0)
		rig_die("EAL: %s", rte_strerror(rte_errno));
	chosen = parse(argc - words, argv + words);
	rig_open(&rig, MEMORY, false);
	for (i = 0; i < RTE_DIM(parts); i++)
		if (chosen & 1u << i) {
			parts[i].run();
			printf("\n");
			fflush(stdout);
		}
	rig_close(&rig);
	rte_eal_cleanup();
	return 0;
}
