/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One stream to N receivers over software RoCE: repair by READ, by NACK with sending to the group
 * again, and none. The sender has a worker lcore; all receivers are queue pairs of one device of
 * the main lcore, so that rates fall as 1/N. With `hosts` each receiver has its own device and
 * lcore, as on hosts of their own, behind a switch on one more lcore. Ratios are those of
 * neighbouring rounds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_random.h>

#include "bench_median.h"
#include "rdma_bench_rig.h"
#include "rdma_stream.h"
#include "rdma_stream_wire.h"

#define SLOTS	      2048
#define PAYLOAD	      (RIG_MTU - RDMA_STREAM_HEADER_BYTES)
#define RECEIVERS_MAX 4
#define ROUNDS	      7
#define WARM_MS	      20
#define PATIENCE      20 /* s */
#define BURST	      32

static const char usage[] =
	"Usage: stream_bench [EAL options] [-- [quick] [alone | hosts] [RECEIVERS]...]\n"
	"A stream to a multicast group with repair, as tables.\n"
	"alone: one lcore does all, rates are those of its CPU time.\n"
	"hosts: each receiver has its own device and lcore; two more lcores are needed.\n";

enum mode {
	MODE_PLAIN, /* UD queue pairs alone, without the library: nothing is repaired */
	MODE_NONE,  /* the library, without repair */
	MODE_READ,
	MODE_NACK,
};

static const double losses[] = {0, 0.0001, 0.001, 0.01, 0.04};
#define LOSSES RTE_DIM(losses)

struct result {
	double rate;	  /* packets/s of each receiver */
	double cycles;	  /* of the sender, for each packet */
	double extra;	  /* packets READ or sent again, per packet lost */
	double lost_good; /* packets lost permanently */
};

static struct rig rig;
static double seconds = 0.15;
static unsigned int rounds = ROUNDS;

static struct sockaddr_storage group, service;
static _Atomic uint32_t lose_all, lose_one; /* chance of 2^32: of a frame, at each receiver */
static _Atomic uint64_t lost;		    /* packets of the group */
static bool hosts;

static struct {
	enum mode mode;
	unsigned int nb;
	struct rdma_stream_sender *s;
	struct rdma_stream_receiver *r[RECEIVERS_MAX];
	_Atomic bool stop;   /* the sender ends the stream */
	_Atomic bool finish; /* the worker's job ends */
	uint64_t cycles, packets, number;
} run;

/* A receiver's lcore and the main lcore; member 0 is the main lcore's. */
static struct member {
	_Atomic uint64_t got;
	_Atomic bool wanted; /* main lcore: receive */
	_Atomic bool works;
} __rte_cache_aligned member[RECEIVERS_MAX];

/* The device of a receiver. */
static struct rig_side *
side_of(unsigned int i)
{
	return hosts && i > 0 ? &rig.more[i - 1] : &rig.b;
}

/* Plain UD: the receivers' counts bound the sender, as tails do. */
static struct {
	struct rdma_cq *send_cq, *cq[RECEIVERS_MAX];
	struct rdma_qp *send, *qp[RECEIVERS_MAX];
	struct rdma_conn *member[RECEIVERS_MAX];
	struct rdma_ah *ah;
	_Atomic uint64_t tail;
	uint64_t sent;
	uint32_t posted[RECEIVERS_MAX];
} plain;

/* ---- losses ---------------------------------------------------------------------------------- */

/* Frames to the group are lost for all receivers, or by `rdma_poll_cq` for each alone. */
static uint16_t
lose_frames(uint16_t port, uint16_t queue, struct rte_mbuf **m, uint16_t n, uint16_t max, void *arg)
{
	/* frames to the group that all lose are lost in the switch, if there is one */
	const uint32_t all = lose_all, one = lose_one, of_group = hosts ? 0 : all;
	uint16_t kept = 0;

	if (!all && !one)
		return n;
	for (uint16_t i = 0; i < n; i++) {
		const bool to_group = rte_pktmbuf_mtod(m[i], const uint8_t *)[0] & 1;
		const uint32_t chance = to_group ? of_group : RTE_MAX(all, one);

		if ((uint32_t)rte_rand() < chance) {
			lost += to_group;
			rte_pktmbuf_free(m[i]);
		} else {
			m[kept++] = m[i];
		}
	}
	return kept;
}

/* In the switch: a frame to the group. */
static bool
lose_for_all(void)
{
	const bool lose = lose_all && (uint32_t)rte_rand() < lose_all;

	lost += lose;
	return lose;
}

uint16_t __real_rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);
uint16_t __wrap_rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);

uint16_t
__wrap_rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n)
{
	const uint32_t one = lose_one;

	n = __real_rdma_poll_cq(cq, wc, n);
	for (uint16_t i = 0; one && i < n; i++)
		if (wc[i].status == RDMA_WC_SUCCESS && wc[i].op == RDMA_WC_RECV &&
			wc[i].flags & RDMA_WC_GRH && (uint32_t)rte_rand() < one) {
			/* the buffer is free again, as if the packet had not come */
			wc[i].status = RDMA_WC_GENERAL_ERR;
			lost++;
		}
	return n;
}

static void
lose_begin(double loss, bool common)
{
	const uint32_t chance = (uint32_t)(loss * 4294967296.0);

	lose_all = common ? chance : 0;
	lose_one = common ? 0 : chance;
}

/* ---- the sender's lcore ---------------------------------------------------------------------- */

static void
stream_turn(void)
{
	const uint64_t began = rte_rdtsc();
	unsigned int n, sent;

	for (n = 0; n < BURST && !run.stop; n++) {
		uint64_t *at = rdma_stream_next(run.s);

		if (!at)
			break;
		*at = run.number++;
		rdma_stream_commit(run.s, PAYLOAD);
	}
	sent = rdma_stream_sender_poll(run.s);
	if (n || sent)
		run.cycles += rte_rdtsc() - began;
	run.packets += n;
	if (run.stop && n == 0)
		rdma_stream_end(run.s);
}

static void
plain_turn(void)
{
	const uint64_t began = rte_rdtsc();
	struct rdma_send_wr wr[BURST];
	struct rdma_sge sge[BURST];
	struct rdma_wc wc[BURST];
	unsigned int n, i;

	n = __real_rdma_poll_cq(plain.send_cq, wc, BURST);
	for (i = 0; i < n; i++)
		plain.sent = wc[i].wr_id;
	for (n = 0;
		n < BURST && !run.stop && run.number + n - RTE_MIN(plain.tail, plain.sent) < SLOTS;
		n++) {
		const uint64_t number = run.number + n, at = number % SLOTS * RIG_MTU;

		*(uint64_t *)(rig.a.memory + at) = number;
		sge[n] = (struct rdma_sge){
			(uintptr_t)rig.a.memory + at, RIG_MTU, rdma_mr_lkey(rig.a.mr)};
		wr[n] = (struct rdma_send_wr){.wr_id = number + 1,
			.sg = &sge[n],
			.nb_sge = 1,
			.op = RDMA_OP_SEND_IMM,
			.flags = number % 8 == 7 ? RDMA_SEND_SIGNALED : 0,
			.imm = (uint32_t)number,
			.ud = {plain.ah, 0xffffff, 0x01234567}};
	}
	if (n)
		n = rdma_post_send(plain.send, wr, n);
	run.number += n;
	run.packets += n;
	if (n)
		run.cycles += rte_rdtsc() - began;
}

static void
sender_turn(void)
{
	if (run.mode == MODE_PLAIN)
		plain_turn();
	else if (run.s)
		stream_turn();
}

static void
sender_job(struct rig *r)
{
	while (!run.finish) {
		rig_turn(r);
		sender_turn();
	}
}

/* ---- the main lcore -------------------------------------------------------------------------- */

static void
receiver_take(unsigned int i)
{
	struct rdma_stream_packet packet[BURST];
	uint16_t n = rdma_stream_receive(run.r[i], packet, BURST);

	member[i].got += n;
	rdma_stream_release(run.r[i], packet, n);
}

static void
plain_repost(unsigned int i, const struct rdma_wc *wc, uint16_t n)
{
	struct rdma_recv_wr wr[BURST];
	struct rdma_sge sge[BURST];
	const uint64_t stride = RIG_MTU + 64;

	for (uint16_t k = 0; k < n; k++) {
		sge[k] = (struct rdma_sge){
			(uintptr_t)side_of(i)->memory + (i * SLOTS * 2 + wc[k].wr_id) * stride,
			RIG_MTU + RDMA_GRH_BYTES, rdma_mr_lkey(side_of(i)->mr)};
		wr[k] = (struct rdma_recv_wr){.wr_id = wc[k].wr_id, .sg = &sge[k], .nb_sge = 1};
	}
	if (rdma_post_recv(plain.qp[i], wr, n) != n)
		rig_die("plain: no room for receives");
}

static void
plain_take(unsigned int i)
{
	struct rdma_wc wc[BURST];
	uint16_t n = __real_rdma_poll_cq(plain.cq[i], wc, BURST);

	for (; plain.posted[i] < 2 * SLOTS; plain.posted[i] += BURST) {
		struct rdma_wc first[BURST];

		for (unsigned int k = 0; k < BURST; k++)
			first[k].wr_id = plain.posted[i] + k;
		plain_repost(i, first, BURST);
	}
	if (!n)
		return;
	member[i].got += n;
	plain_repost(i, wc, n);
}

static void
plain_report(void)
{
	uint64_t tail = UINT64_MAX;

	for (unsigned int k = 0; k < run.nb; k++)
		tail = RTE_MIN(tail, member[k].got);
	plain.tail = tail;
}

static void
take(unsigned int i)
{
	if (run.mode == MODE_PLAIN)
		plain_take(i);
	else if (run.r[i])
		receiver_take(i);
}

/* A receiver's lcore. */
static int
member_main(void *arg)
{
	const unsigned int i = (unsigned int)(uintptr_t)arg;
	struct member *m = &member[i];

	while (!rig.quit) {
		rig_poll_side(side_of(i));
		m->works = m->wanted;
		if (m->works)
			take(i);
	}
	return 0;
}

/* Let the receivers' lcores receive, or wait until they do not. */
static void
members_turn(bool on)
{
	for (unsigned int i = 1; hosts && i < run.nb; i++) {
		member[i].wanted = on;
		while (member[i].works != on)
			;
	}
}

static void
main_turn(void)
{
	static unsigned int turns;
	struct rdma_event event;

	if (rig.alone) {
		rig_turn(&rig);
		if (!run.finish)
			sender_turn();
	} else {
		rdma_progress(rig.b.dev, 0);
	}
	for (unsigned int i = 0; i < (hosts ? 1 : run.nb); i++)
		take(i);
	if (run.mode == MODE_PLAIN)
		plain_report();
	if (turns++ % 256)
		return;
	while (rdma_poll_cm(rig.a.dev, &event, 1))
		if (run.s)
			rdma_stream_sender_event(run.s, &event);
	for (unsigned int d = 0; d < 1 + rig.nb_more; d++)
		while (rdma_poll_cm(side_of(d)->dev, &event, 1))
			for (unsigned int i = 0; i < run.nb; i++)
				if (run.r[i] && rdma_stream_receiver_event(run.r[i], &event))
					break;
	if (run.s)
		rdma_stream_sender_control(run.s);
	for (unsigned int i = 0; i < run.nb; i++)
		if (run.r[i])
			rdma_stream_receiver_control(run.r[i]);
}

/*
 * Seconds. If one lcore does all, its CPU time: other load of the machine then has no effect. Else
 * the wall's.
 */
static double
clock_now(void)
{
	struct timespec now;

	clock_gettime(rig.alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void
main_run(double time)
{
	const double end = clock_now() + time;

	do
		for (unsigned int i = 0; i < 64; i++)
			main_turn();
	while (clock_now() < end);
}

/* Stop the sender's work, and empty the wire. */
static void
sender_stop(void)
{
	run.finish = true;
	while (rig.job)
		main_turn();
	for (unsigned int idle = 0; idle < 1000;) {
		idle++;
		if (rdma_progress(rig.b.dev, 0))
			idle = 0;
		if (rig.alone && rdma_progress(rig.a.dev, 0))
			idle = 0;
	}
}

/* ---- a measurement --------------------------------------------------------------------------- */

static void
stream_open(enum rdma_stream_repair repair)
{
	const struct rdma_stream_sender_attr sender = {.dev = rig.a.dev,
		.pd = rig.a.pd,
		.group = (const struct sockaddr *)&group,
		.slots = SLOTS,
		.silence_ms = 10000};
	struct rdma_stream_receiver_attr receiver = {.group = (const struct sockaddr *)&group,
		.sender = (const struct sockaddr *)&service,
		.buffers = 2 * SLOTS,
		.nack_again_us = 5000,
		.repair = repair};

	run.s = rdma_stream_sender_create(&sender);
	if (!run.s)
		rig_die("no sender: %s", rte_strerror(rte_errno));
	for (unsigned int i = 0; i < run.nb; i++) {
		receiver.dev = side_of(i)->dev;
		receiver.pd = side_of(i)->pd;
		run.r[i] = rdma_stream_receiver_create(&receiver);
		if (!run.r[i])
			rig_die("no receiver: %s", rte_strerror(rte_errno));
	}
	members_turn(true);
}

static void
stream_join(void)
{
	struct rdma_stream_receiver_info info;
	const uint64_t end = rte_rdtsc() + PATIENCE * rte_get_tsc_hz();

	for (unsigned int i = 0; i < run.nb; i++)
		do {
			main_turn();
			rdma_stream_receiver_info_get(run.r[i], &info);
			if (rte_rdtsc() > end)
				rig_die("receiver %u does not join: state %d, error %d", i,
					info.state, info.error);
		} while (info.state != RDMA_STREAM_JOINED);
}

static void
plain_open(void)
{
	struct rdma_qp_attr attr = {.type = RDMA_QP_UD, .max_send_wr = 1024, .max_recv_wr = 1};

	plain.tail = plain.sent = 0;
	plain.send_cq = rdma_cq_create(rig.a.dev, 1024, 0);
	attr.send_cq = attr.recv_cq = plain.send_cq;
	plain.send = rdma_qp_create(rig.a.pd, &attr);
	plain.ah = rdma_ah_create(rig.a.pd, (const struct sockaddr *)&group, 0, 0);
	if (!plain.send || !plain.ah || rdma_qp_connect(plain.send, NULL) < 0)
		rig_die("plain: no queue pair");
	attr.max_recv_wr = 2 * SLOTS;
	for (unsigned int i = 0; i < run.nb; i++) {
		plain.cq[i] = rdma_cq_create(side_of(i)->dev, 2 * SLOTS + 1, 0);
		attr.send_cq = attr.recv_cq = plain.cq[i];
		plain.qp[i] = rdma_qp_create(side_of(i)->pd, &attr);
		plain.member[i] =
			rdma_multicast_join(plain.qp[i], (const struct sockaddr *)&group, NULL);
		if (!plain.member[i])
			rig_die("plain: no member");
		plain.posted[i] = 0;
	}
	members_turn(true);
}

#define UNTIL_FREE(call, what)                                                    \
	do {                                                                      \
		const uint64_t until = rte_rdtsc() + PATIENCE * rte_get_tsc_hz(); \
		while ((call) == -EBUSY) {                                        \
			rdma_progress(rig.b.dev, 0);                              \
			if (rte_rdtsc() > until)                                  \
				rig_die("%s stays busy", what);                   \
		}                                                                 \
	} while (0)

static void
plain_close(void)
{
	members_turn(false);
	for (unsigned int i = 0; i < run.nb; i++) {
		rdma_conn_destroy(plain.member[i]);
		UNTIL_FREE(rdma_qp_destroy(plain.qp[i]), "plain: queue pair");
		rdma_cq_destroy(plain.cq[i]);
	}
	UNTIL_FREE(rdma_qp_destroy(plain.send), "plain: queue pair");
	UNTIL_FREE(rdma_ah_destroy(plain.ah), "plain: address");
	rdma_cq_destroy(plain.send_cq);
}

static void
stream_close(struct result *result)
{
	struct rdma_stream_receiver_info info;
	struct rdma_stream_sender_info sender;
	const uint64_t end = rte_rdtsc() + PATIENCE * rte_get_tsc_hz();
	uint64_t packets = 0;

	for (unsigned int i = 0; i < run.nb; i++) {
		do {
			main_turn();
			rdma_stream_receiver_info_get(run.r[i], &info);
			if (rte_rdtsc() > end)
				rig_die("receiver %u: packet %" PRIu64 " does not come", i,
					info.next);
		} while (info.state != RDMA_STREAM_ENDED);
		result->lost_good += (double)info.lost;
		packets += info.repaired;
	}
	sender_stop();
	rdma_stream_sender_info_get(run.s, &sender);
	packets += sender.resent;
	members_turn(false);
	result->extra = lost ? (double)packets / (double)lost : 0;
	for (unsigned int i = 0; i < run.nb; i++) {
		struct rdma_stream_receiver *r = run.r[i];

		run.r[i] = NULL;
		UNTIL_FREE(rdma_stream_receiver_destroy(r), "receiver");
	}
	UNTIL_FREE(rdma_stream_sender_destroy(run.s), "sender");
	run.s = NULL;
}

static struct result
measure(enum mode mode, unsigned int nb, double loss, bool common)
{
	struct result result = {0};
	uint64_t before = 0, after = 0, packets, cycles;
	double began;
	struct rdma_event event;

	memset(&run, 0, sizeof(run));
	for (unsigned int i = 0; i < RECEIVERS_MAX; i++)
		member[i].got = 0;
	run.mode = mode;
	run.nb = nb;
	lost = 0;
	if (mode == MODE_PLAIN)
		plain_open();
	else
		stream_open(mode == MODE_READ	    ? RDMA_STREAM_READ
				: mode == MODE_NACK ? RDMA_STREAM_NACK
						    : RDMA_STREAM_NO_REPAIR);
	if (!rig.alone)
		rig.job = sender_job;
	if (mode != MODE_PLAIN)
		stream_join();
	lose_begin(loss, common);
	main_run(WARM_MS / 1e3);
	for (unsigned int i = 0; i < nb; i++)
		before += member[i].got;
	packets = run.packets;
	cycles = run.cycles + rig.a.busy;
	began = clock_now();
	main_run(seconds);
	for (unsigned int i = 0; i < nb; i++)
		after += member[i].got;
	result.rate = (double)(after - before) / nb / (clock_now() - began);
	result.cycles = (double)(run.cycles + rig.a.busy - cycles) / (run.packets - packets);
	run.stop = true;
	if (mode == MODE_PLAIN) {
		sender_stop();
		plain_close();
	} else {
		stream_close(&result);
	}
	lose_begin(0, false);
	for (unsigned int i = 0; i < 1000; i++) {
		rdma_progress(rig.b.dev, 0);
		if (rig.alone)
			rdma_progress(rig.a.dev, 0);
		rdma_poll_cm(rig.a.dev, &event, 1);
		for (unsigned int d = 0; d < 1 + rig.nb_more; d++)
			rdma_poll_cm(side_of(d)->dev, &event, 1);
	}
	return result;
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct column {
	double rate[BENCH_ROUNDS_MAX], cycles[BENCH_ROUNDS_MAX], extra[BENCH_ROUNDS_MAX];
	double lost_good;
};

static void
keep(struct column *c, unsigned int round, struct result result)
{
	c->rate[round] = result.rate;
	c->cycles[round] = result.cycles;
	c->extra[round] = result.extra;
	c->lost_good += result.lost_good;
}

/* Other programs take the lcore away in most rounds. */
static double
lowest(const double *cycles)
{
	double low = cycles[0];

	for (unsigned int r = 1; r < rounds; r++)
		low = RTE_MIN(low, cycles[r]);
	return low;
}

static void
row(const char *what, double loss, const struct column *c, const struct column *none,
	const struct column *bare)
{
	char text[16];

	snprintf(text, sizeof(text), "%g %%", loss * 100);
	printf("%-18s %7s %8.1f %7.3f %7.3f %8.0f %7.2f %6.0f\n", what, text,
		bench_median(c->rate, rounds) * RIG_MTU * 8 / 1e9,
		bench_median_ratio(c->rate, none->rate, rounds),
		bench_median_ratio(c->rate, bare->rate, rounds), lowest(c->cycles),
		bench_median(c->extra, rounds), c->lost_good);
	fflush(stdout);
}

static void
table(unsigned int nb)
{
	static struct column bare, none, read[2][LOSSES], nack[2][LOSSES];
	static const char *const where[] = {"apart", "together"};
	const unsigned int patterns = nb > 1 ? 2 : 1;
	char what[32];

	memset(&bare, 0, sizeof(bare));
	memset(&none, 0, sizeof(none));
	memset(read, 0, sizeof(read));
	memset(nack, 0, sizeof(nack));
	for (unsigned int r = 0; r < rounds; r++) {
		keep(&bare, r, measure(MODE_PLAIN, nb, 0, false));
		keep(&none, r, measure(MODE_NONE, nb, 0, false));
		for (unsigned int l = 0; l < LOSSES; l++)
			for (unsigned int p = 0; p < (l ? patterns : 1); p++) {
				keep(&read[p][l], r, measure(MODE_READ, nb, losses[l], p == 1));
				keep(&nack[p][l], r, measure(MODE_NACK, nb, losses[l], p == 1));
			}
	}
	printf("%u receiver%s, packets of %u bytes, ring of %u slots\n", nb, nb > 1 ? "s" : "",
		RIG_MTU, SLOTS);
	printf("%-18s %7s %8s %7s %7s %8s %7s %6s\n", "repair, loss", "chance", "Gbit/s", "/none",
		"/plain", "cycles", "again", "lost");
	row("plain UD", 0, &bare, &none, &bare);
	row("none", 0, &none, &none, &bare);
	for (unsigned int l = 0; l < LOSSES; l++)
		for (unsigned int p = 0; p < (l ? patterns : 1); p++) {
			snprintf(what, sizeof(what), "READ%s%s", l ? ", " : "", l ? where[p] : "");
			row(what, losses[l], &read[p][l], &none, &bare);
			snprintf(what, sizeof(what), "NACK%s%s", l ? ", " : "", l ? where[p] : "");
			row(what, losses[l], &nack[p][l], &none, &bare);
		}
}

/* The pass that plain UD does not have, over a ring that is larger than the L2 cache. */
static void
crc_cycles(void)
{
	double cycles[BENCH_ROUNDS_MAX] = {0};
	struct stream_header *slot = NULL;
	uint32_t sum = 0;

	for (unsigned int r = 0; r < rounds; r++) {
		const uint64_t began = rte_rdtsc();

		for (unsigned int i = 0; i < SLOTS; i++) {
			slot = (struct stream_header *)(rig.a.memory + (size_t)i * RIG_MTU);
			slot->length = PAYLOAD;
			sum += stream_crc(slot, slot + 1);
		}
		cycles[r] = (double)(rte_rdtsc() - began) / SLOTS;
	}
	printf("CRC-32C of a slot: %.0f cycles (%08x)\n", lowest(cycles), sum);
}

static void
address(struct sockaddr_storage *to, const char *ip, uint16_t port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)to;

	in->sin_family = AF_INET;
	in->sin_port = htons(port);
	inet_pton(AF_INET, ip, &in->sin_addr);
}

int
main(int argc, char **argv)
{
	unsigned int counts[8], nb_counts = 0, most = 2, i;
	bool alone = false;
	size_t memory;
	int words = rte_eal_init(argc, argv);
	uint16_t port;

	if (words < 0)
		rig_die("EAL: %s", rte_strerror(rte_errno));
	for (argc -= words, argv += words; argc > 1; argc--, argv++) {
		if (strcmp(argv[1], "quick") == 0) {
			rounds = 1;
			seconds = 0.03;
		} else if (strcmp(argv[1], "alone") == 0) {
			alone = true;
		} else if (strcmp(argv[1], "hosts") == 0) {
			hosts = true;
		} else if (strspn(argv[1], "1234") == 1 && !argv[1][1] &&
			nb_counts < RTE_DIM(counts)) {
			counts[nb_counts++] = (unsigned int)(argv[1][0] - '0');
		} else {
			fputs(usage, stderr);
			return 2;
		}
	}
	if (!nb_counts) {
		counts[0] = 1;
		counts[1] = 2;
		counts[2] = 4;
		nb_counts = 3;
	}
	for (i = 0; i < nb_counts; i++)
		most = RTE_MAX(most, counts[i]);
	memory = (size_t)RECEIVERS_MAX * SLOTS * 2 * (RIG_MTU + 64);
	if (hosts)
		rig_open_group(&rig, memory, most - 1, lose_for_all);
	else
		rig_open(&rig, memory, alone);
	for (i = 0; i < rig.nb_more; i++)
		rte_eal_remote_launch(member_main, (void *)(uintptr_t)(i + 1), rig.more[i].lcore);
	RTE_ETH_FOREACH_DEV(port)
		rte_eth_add_rx_callback(port, 0, lose_frames, NULL);
	address(&group, "239.1.2.3", 0);
	address(&service, "10.0.0.1", RDMA_STREAM_PORT);
	for (i = 0; i < nb_counts; i++) {
		table(counts[i]);
		printf("\n");
	}
	crc_cycles();
	rig_close(&rig);
	rte_eal_cleanup();
	return 0;
}
