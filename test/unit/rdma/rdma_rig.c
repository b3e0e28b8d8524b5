/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "eal/end.h"
#include "rdma_rig.h"

struct rig rig;

static bool
open_end(struct rig_end *end, const char *name, struct rdma_dev *same)
{
	const uint32_t all = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
		RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC;
	struct rdma_mr_attr attr = {.length = RIG_BYTES, .access = all, .gpu = -1};

	end->dev = same ? same : rdma_dev_open(name);
	if (!end->dev)
		return false;
	rdma_dev_info_get(end->dev, &end->info);
	end->memory = mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (end->memory == MAP_FAILED)
		return false;
	end->pd = rdma_pd_alloc(end->dev);
	end->cq = rdma_cq_create(end->dev, 512, 0);
	attr.addr = end->memory;
	end->mr = end->pd ? rdma_mr_reg(end->pd, &attr) : NULL;
	return end->cq && end->mr;
}

/** Replaces % in an argument by the process ID, for names that must differ between tests. */
static char *
with_pid(char *argument)
{
	static char text[8][160];
	static unsigned int used;
	const char *percent = strchr(argument, '%');

	if (!percent || used == RTE_DIM(text))
		return argument;
	snprintf(text[used], sizeof(text[used]), "%.*s%d%s", (int)(percent - argument), argument,
		getpid(), percent + 1);
	return text[used++];
}

int
rig_open(int argc, char **argv)
{
	static char program[] = "rdma", no_huge[] = "--no-huge", memory[] = "-m", amount[] = "64",
		    no_pci[] = "--no-pci", no_conf[] = "--no-shconf",
		    no_telemetry[] = "--no-telemetry";
	char *eal[32] = {program, no_huge, memory, amount, no_pci, no_conf, no_telemetry};
	const char *second = argc > 2 ? argv[2] : argv[1];
	int i, n = 7;

	if (argc < 2) {
		printf("skipped: no RDMA device named\n");
		return 77;
	}
	for (i = 3; i < argc && n < 31; i++)
		eal[n++] = with_pid(argv[i]);
	if (rte_eal_init(n, eal) < 0) {
		printf("EAL: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	if (!open_end(&rig.end[0], argv[1], NULL) ||
		!open_end(&rig.end[1], second,
			strcmp(argv[1], second) == 0 ? rig.end[0].dev : NULL)) {
		printf("device %s%s%s: %s\n", argv[1], argc > 2 ? " or " : "",
			argc > 2 ? argv[2] : "", rte_strerror(rte_errno));
		return 1;
	}
	return 0;
}

int
rig_close(int failed)
{
	unsigned int i;

	/* both ends of a memif are closed at the same time */
	eal_block_interrupts();
	for (i = 0; i < 2; i++) {
		struct rig_end *end = &rig.end[i];

		assert_int_equal(rdma_mr_dereg(end->mr), 0);
		assert_int_equal(rdma_cq_destroy(end->cq), 0);
		assert_int_equal(rdma_pd_free(end->pd), 0);
		munmap(end->memory, RIG_BYTES);
	}
	if (rig.end[1].dev != rig.end[0].dev)
		assert_int_equal(rdma_dev_close(rig.end[1].dev), 0);
	assert_int_equal(rdma_dev_close(rig.end[0].dev), 0);
	eal_end();
	return failed;
}

/* ---- owners of queue pairs ------------------------------------------------------------------- */

/* A ring of queue pairs and their ends: if both ends have one device, it has the events of both. */
static struct {
	const struct rdma_qp *qp;
	unsigned int end;
} owner[1024];
static unsigned int nb_owners;

static unsigned int
owner_of(const struct rdma_qp *qp)
{
	unsigned int i;

	/* newest first, as addresses are reused */
	for (i = nb_owners; i-- > 0 && nb_owners - i <= RTE_DIM(owner);)
		if (owner[i % RTE_DIM(owner)].qp == qp)
			return owner[i % RTE_DIM(owner)].end;
	fail_msg("event of an unknown queue pair");
	return 0;
}

/* ---- polling -------------------------------------------------------------------------------- */

void
rig_poll(void)
{
	unsigned int i, pg, to;

	for (i = 0; i < 2; i++) {
		struct rig_end *end = &rig.end[i];
		struct rdma_event event;

		for (pg = 0; pg < end->info.nb_poll_groups; pg++)
			rdma_progress(end->dev, pg);
		if (rdma_poll_cm(end->dev, &event, 1) == 0)
			continue;
		to = i;
		if (rig.end[0].dev == rig.end[1].dev)
			to = event.qp ? owner_of(event.qp) : 1; /* requests: end 1 listens */
		assert_true(rig.end[to].nb_events < RTE_DIM(end->event));
		rig.end[to].event[rig.end[to].nb_events++] = event;
	}
}

static uint64_t
after(double seconds)
{
	return rte_get_tsc_cycles() + (uint64_t)(seconds * rte_get_tsc_hz());
}

struct rdma_wc
rig_wc(struct rig_end *end)
{
	const uint64_t limit = after(RIG_SECONDS);
	struct rdma_wc wc;

	while (rdma_poll_cq(end->cq, &wc, 1) == 0) {
		rig_poll();
		if (rte_get_tsc_cycles() > limit)
			fail_msg("no completion in %d s", RIG_SECONDS);
	}
	return wc;
}

void
rig_no_wc(struct rig_end *end)
{
	const uint64_t limit = after(0.1);
	struct rdma_wc wc;

	do {
		rig_poll();
		if (rdma_poll_cq(end->cq, &wc, 1))
			fail_msg("unexpected completion, %s", rdma_wc_status_name(wc.status));
	} while (rte_get_tsc_cycles() < limit);
}

struct rdma_event
rig_event(struct rig_end *end, enum rdma_event_type type)
{
	const uint64_t limit = after(RIG_SECONDS);
	struct rdma_event event;
	bool found = false;

	for (;;) {
		while (end->nb_events && !found) {
			event = end->event[0];
			found = event.type == type;
			end->nb_events--;
			memmove(end->event, end->event + 1, end->nb_events * sizeof(event));
		}
		if (found)
			return event;
		if (rte_get_tsc_cycles() > limit)
			fail_msg("no event '%s' in %d s", rdma_event_name(type), RIG_SECONDS);
		rig_poll();
	}
}

/* ---- queue pairs ---------------------------------------------------------------------------- */

struct rdma_qp *
rig_qp(struct rig_end *end, enum rdma_qp_type type, const struct rdma_qp_attr *given)
{
	/* 0.54 s: an emulated guest may pause for longer than the default of 67 ms */
	struct rdma_qp_attr attr = {.ack_timeout = 17, .retry_count = 7, .rnr_retry = 7};
	struct rdma_qp *qp;

	if (given)
		attr = *given;
	attr.type = type;
	if (!attr.send_cq)
		attr.send_cq = end->cq;
	if (!attr.recv_cq)
		attr.recv_cq = end->cq;
	qp = rdma_qp_create(end->pd, &attr);
	assert_non_null(qp);
	owner[nb_owners % RTE_DIM(owner)].qp = qp;
	owner[nb_owners++ % RTE_DIM(owner)].end = end - rig.end;
	return qp;
}

void
rig_pair(enum rdma_qp_type type, const struct rdma_qp_attr *attr, struct rdma_qp *qp[2])
{
	struct rdma_qp_info info[2];
	unsigned int i;
	int ret;

	for (i = 0; i < 2; i++) {
		qp[i] = rig_qp(&rig.end[i], type, attr);
		rdma_qp_info_get(qp[i], &info[i]);
	}
	for (i = 0; i < 2; i++) {
		const struct rig_end *other = &rig.end[!i];
		const uint64_t limit = after(RIG_SECONDS);
		struct rdma_qp_peer peer = {
			.addr = other->info.addr,
			.qpn = info[!i].qpn,
			.psn = 1000 + !i,
			.local_psn = 1000 + i,
			.mtu = RTE_MIN(rig.end[i].info.mtu, other->info.mtu),
			.rd_atom = 4,
			.responder_rd_atom = 4,
		};

		do {
			ret = rdma_qp_connect(qp[i], type == RDMA_QP_UD ? NULL : &peer);
			rig_poll();
		} while (ret == -EAGAIN && rte_get_tsc_cycles() < limit);
		assert_int_equal(ret, 0);
	}
}

void
rig_unpair(struct rdma_qp *qp[2])
{
	struct rdma_wc wc;
	unsigned int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(rdma_qp_destroy(qp[i]), 0);
	for (i = 0; i < 2; i++) {
		while (rdma_poll_cq(rig.end[i].cq, &wc, 1))
			;
		rig.end[i].nb_events = 0;
	}
}

struct rdma_sge
rig_sge(const struct rig_end *end, uint32_t offset, uint32_t length)
{
	struct rdma_sge sge = {(uintptr_t)end->memory + offset, length, rdma_mr_lkey(end->mr)};

	assert_true((uint64_t)offset + length <= RIG_BYTES);
	return sge;
}

void
rig_recv(struct rdma_qp *qp, uint64_t wr_id, struct rdma_sge sge)
{
	struct rdma_recv_wr wr = {.wr_id = wr_id, .sg = &sge, .nb_sge = 1};

	assert_int_equal(rdma_post_recv(qp, &wr, 1), 1);
}

struct rdma_send_wr
rig_wr(enum rdma_op op, uint64_t wr_id, const struct rdma_sge *sge)
{
	struct rdma_send_wr wr = {
		.wr_id = wr_id, .sg = sge, .nb_sge = 1, .op = op, .flags = RDMA_SEND_SIGNALED};

	return wr;
}

void
rig_send(struct rdma_qp *qp, const struct rdma_send_wr *wr)
{
	rte_errno = 0;
	if (rdma_post_send(qp, wr, 1) != 1)
		fail_msg("post: %s", rte_strerror(rte_errno));
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static uint8_t
byte_at(uint32_t at, uint32_t seed)
{
	return (at * 2654435761u + seed * 40503u) >> 13;
}

void
rig_fill(uint8_t *at, uint32_t length, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < length; i++)
		at[i] = byte_at(i, seed);
}

bool
rig_holds(const uint8_t *at, uint32_t length, uint32_t seed)
{
	uint32_t i;

	for (i = 0; i < length; i++)
		if (at[i] != byte_at(i, seed))
			return false;
	return true;
}
