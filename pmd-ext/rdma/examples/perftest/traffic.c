/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>

#define BURST 16
/* A UC or UD sender that has sent no message for this time is assumed to have finished. */
#define SILENCE_MS 2000
/* limit for the search of the peak, which compares all pairs of messages */
#define PEAK_MESSAGES 20000
#define MESSAGE_SPACE 64 /* alignment of small messages to cache lines */

/* Measured interval. In a run of fixed duration only the middle half is measured. */
struct stopwatch {
	uint64_t from, to;    /* TSC: count messages completed between these times */
	uint64_t first, last; /* TSC: start and end of the measurement */
	uint64_t messages;
};

int
perftest_traffic_create(struct perftest_traffic *t, struct session *s,
	const struct perftest_options *o, uint16_t mtu)
{
	struct rdma_qp_attr attr = {
		.type = o->type,
		.max_send_wr = o->tx_depth,
		.max_recv_wr = o->rx_depth,
		.max_send_sge = 1,
		.max_inline = o->inline_size,
		.max_mtu = mtu,
		.max_rd_atom = perftest_out_reads(o, s),
		.ack_timeout = o->timeout,
		.retry_count = o->retries,
		.rnr_retry = UINT8_MAX,
		.traffic_class = o->tos,
		.trust_icrc = o->trust_icrc,
	};
	uint64_t messages = o->iterations * o->qps;
	unsigned int i;
	int ret;

	memset(t, 0, sizeof(*t));
	t->session = s;
	t->options = o;
	t->half = RTE_ALIGN(RTE_MAX(perftest_size_max(o), (uint64_t)PERFTEST_CYCLE_BUFFER) +
			(o->type == RDMA_QP_UD ? RDMA_GRH_BYTES : 0),
		PERFTEST_CYCLE_BUFFER);
	ret = buffer_create(s, &t->buffer, 2 * t->half * o->qps, BUFFER_ACCESS_ALL);
	if (ret < 0)
		return ret;
	t->flows = calloc(o->qps, sizeof(*t->flows));
	if (!o->no_peak && messages <= PEAK_MESSAGES) {
		t->posted_at = calloc(messages, sizeof(*t->posted_at));
		t->completed_at = calloc(messages, sizeof(*t->completed_at));
	}
	if (!t->posted_at || !t->completed_at) {
		/* both arrays or none */
		free(t->posted_at);
		free(t->completed_at);
		t->posted_at = t->completed_at = NULL;
	}
	ret = t->flows ? 0 : -ENOMEM;
	for (i = 0; i < o->qps && ret == 0; i++) {
		ret = endpoint_create(s, &t->flows[i].e, &attr);
		t->flows[i].offset = 2 * t->half * i;
	}
	if (ret < 0)
		perftest_traffic_destroy(t);
	return ret;
}

void
perftest_traffic_destroy(struct perftest_traffic *t)
{
	unsigned int i;

	if (!t->session)
		return;
	for (i = 0; t->flows && i < t->options->qps; i++)
		endpoint_destroy(&t->flows[i].e);
	buffer_destroy(t->session, &t->buffer);
	free(t->flows);
	free(t->posted_at);
	free(t->completed_at);
	memset(t, 0, sizeof(*t));
}

void
perftest_traffic_dest(const struct perftest_traffic *t, struct perftest_flow *f)
{
	f->ours.qpn = f->e.qpn;
	f->ours.vaddr = (uintptr_t)t->buffer.addr + f->offset + t->half;
	f->ours.rkey = t->options->verb == PERFTEST_SEND ? 0 : rdma_mr_rkey(t->buffer.mr);
	f->ours.gid_index = 1;
}

/* Small messages cycle through a small buffer, as in perftest, so that they do not all use the same
 * address. */
static size_t
cycle_offset(uint64_t i, uint64_t size)
{
	uint64_t step = RTE_ALIGN(size, (uint64_t)MESSAGE_SPACE);

	return step && step <= PERFTEST_CYCLE_BUFFER / 2 ? i % (PERFTEST_CYCLE_BUFFER / step) * step
							 : 0;
}

void
perftest_traffic_wr(struct perftest_traffic *t, struct perftest_flow *f, uint64_t i, uint64_t size,
	struct rdma_send_wr *wr, struct rdma_sge *sge)
{
	static const uint8_t ops[] = {
		[PERFTEST_WRITE] = RDMA_OP_WRITE,
		[PERFTEST_READ] = RDMA_OP_READ,
		[PERFTEST_SEND] = RDMA_OP_SEND,
		[PERFTEST_ATOMIC] = RDMA_OP_FETCH_ADD,
	};
	const struct perftest_options *o = t->options;
	size_t offset = cycle_offset(i, size);

	*sge = buffer_sge(&t->buffer, f->offset + offset, (uint32_t)size);
	*wr = (struct rdma_send_wr){
		.wr_id = i + 1, .sg = sge, .nb_sge = 1, .op = ops[o->verb], .imm = 0};
	if (o->verb == PERFTEST_ATOMIC && !o->fetch_add)
		wr->op = RDMA_OP_CMP_SWAP;
	if (size <= o->inline_size && (o->verb == PERFTEST_WRITE || o->verb == PERFTEST_SEND))
		wr->flags |= RDMA_SEND_INLINE;
	if (o->type == RDMA_QP_UD) {
		wr->ud.ah = f->e.ah;
		wr->ud.remote_qpn = f->e.remote_qpn;
		wr->ud.remote_qkey = f->e.remote_qkey;
		return;
	}
	wr->remote_addr = f->theirs.vaddr + offset;
	wr->rkey = f->theirs.rkey;
	if (o->verb == PERFTEST_ATOMIC)
		wr->swap_add = 1;
}

static void
start(struct stopwatch *w, uint32_t duration)
{
	uint64_t now = rte_get_tsc_cycles(), length = duration * rte_get_tsc_hz();

	*w = (struct stopwatch){.from = now, .to = UINT64_MAX, .first = now, .last = now};
	if (duration) {
		w->from = now + length / 4;
		w->first = w->from;
		w->to = now + length - length / 4;
	}
}

static void
count(struct stopwatch *w, uint64_t now, uint64_t messages)
{
	if (now < w->from || now > w->to)
		return;
	w->messages += messages;
	w->last = now;
}

/* The best rate between the posting of any message and the completion of any later one. */
static double
find_peak(const struct perftest_traffic *t, uint64_t messages, uint64_t size)
{
	double best = 0;
	uint64_t i, j;

	if (!t->posted_at)
		return 0;
	for (i = 0; i < messages; i++)
		for (j = i; j < messages; j++) {
			uint64_t took = t->completed_at[j] - t->posted_at[i];
			double rate;

			if (t->completed_at[j] <= t->posted_at[i])
				continue;
			rate = (double)(j - i + 1) / (double)took;
			best = RTE_MAX(best, rate);
		}
	return best * (double)size * (double)rte_get_tsc_hz();
}

static void
report_of(const struct perftest_traffic *t, const struct stopwatch *w, uint64_t size,
	struct perftest_report *report)
{
	double seconds = (double)(w->last - w->first) / (double)rte_get_tsc_hz();

	*report = (struct perftest_report){.size = size, .iterations = w->messages};
	if (seconds > 0) {
		report->rate = (double)w->messages / seconds;
		report->average = report->rate * (double)size;
	}
	if (!t->options->no_peak)
		report->peak = RTE_MAX(find_peak(t, w->messages, size), report->average);
}

/* Post as many requests as there is room for. @return number posted; negative errno */
static int
post_sends(struct perftest_traffic *t, struct perftest_flow *f, uint64_t size, uint64_t limit)
{
	const struct perftest_options *o = t->options;
	struct rdma_send_wr wr[BURST];
	struct rdma_sge sge[BURST];
	uint64_t now, room = RTE_MIN(o->tx_depth - (f->posted - f->completed), limit - f->posted);
	unsigned int n = (unsigned int)RTE_MIN(room, (uint64_t)BURST), i, done;

	for (i = 0; i < n; i++) {
		uint64_t number = f->posted + i;

		perftest_traffic_wr(t, f, number, size, &wr[i], &sge[i]);
		/* The last one ends the run. A queue full of unsignalled requests would never
		 * complete. */
		if ((number + 1) % o->cq_mod == 0 || number + 1 == limit)
			wr[i].flags |= RDMA_SEND_SIGNALED;
	}
	if (!n)
		return 0;
	now = t->posted_at ? rte_get_tsc_cycles() : 0;
	done = rdma_post_send(f->e.qp, wr, (uint16_t)n);
	if (done < n && rte_errno != ENOMEM) {
		if (!f->e.down)
			fprintf(stderr, "braggline-rdma: queue pair 0x%06x refuses a send: %s\n",
				f->e.qpn, rte_strerror(rte_errno));
		return f->e.down ? -ECONNRESET : -EIO;
	}
	for (i = 0; t->posted_at && i < done; i++)
		t->posted_at[t->nb_posted++] = now;
	f->posted += done;
	return (int)done;
}

/* Poll completions: each one also completes all earlier requests. */
static int
take_sends(struct perftest_traffic *t, struct perftest_flow *f, struct stopwatch *w)
{
	struct rdma_wc wc[BURST];
	unsigned int i, n = rdma_poll_cq(f->e.send_cq, wc, BURST);
	uint64_t now = n ? rte_get_tsc_cycles() : 0;
	int ret;

	for (i = 0; i < n; i++) {
		ret = endpoint_check(&f->e, &wc[i]);
		if (ret < 0)
			return ret;
		count(w, now, wc[i].wr_id - f->completed);
		for (; f->completed < wc[i].wr_id; f->completed++)
			if (t->completed_at)
				t->completed_at[t->nb_completed++] = now;
	}
	return 0;
}

int
perftest_traffic_run(struct perftest_traffic *t, uint64_t size, struct perftest_report *report)
{
	const struct perftest_options *o = t->options;
	uint64_t limit = o->duration ? UINT64_MAX : o->iterations;
	uint64_t end = session_deadline(o->duration * 1000);
	unsigned int i, left;
	struct stopwatch watch;
	int ret = 0;

	for (i = 0; i < o->qps; i++)
		t->flows[i].posted = t->flows[i].completed = 0;
	t->nb_posted = t->nb_completed = 0;
	start(&watch, o->duration);
	do {
		left = 0;
		for (i = 0; i < o->qps && ret >= 0; i++) {
			struct perftest_flow *f = &t->flows[i];
			ret = post_sends(t, f, size, limit);
			if (ret >= 0)
				ret = take_sends(t, f, &watch);
			left += f->completed < limit;
		}
		if (ret >= 0)
			ret = session_poll(t->session, end);
	} while (left && ret == 0);
	if (ret == -ETIMEDOUT && o->duration)
		ret = 0;
	report_of(t, &watch, size, report);
	return ret;
}

int
perftest_traffic_receive(struct perftest_traffic *t, struct perftest_flow *f, uint64_t slot)
{
	/* all receives may share one buffer, as in perftest: the data is not read */
	struct rdma_sge sge = buffer_sge(&t->buffer, f->offset + t->half, (uint32_t)t->half);

	return endpoint_recv(&f->e, slot, &sge);
}

int
perftest_traffic_receives(struct perftest_traffic *t)
{
	unsigned int i;
	int ret;

	for (i = 0; i < t->options->qps; i++) {
		struct perftest_flow *f = &t->flows[i];

		for (; f->posted < t->options->rx_depth; f->posted++) {
			ret = perftest_traffic_receive(t, f, f->posted);
			if (ret < 0)
				return ret;
		}
	}
	return 0;
}

/* @return number of messages received; negative errno */
static int
take_receives(
	struct perftest_traffic *t, struct perftest_flow *f, uint64_t size, struct stopwatch *w)
{
	uint32_t wanted = (uint32_t)size + (t->options->type == RDMA_QP_UD ? RDMA_GRH_BYTES : 0);
	struct rdma_wc wc[BURST];
	unsigned int i, n = rdma_poll_cq(f->e.recv_cq, wc, BURST);
	uint64_t now = n ? rte_get_tsc_cycles() : 0;
	int ret;

	for (i = 0; i < n; i++) {
		ret = endpoint_check(&f->e, &wc[i]);
		if (ret < 0)
			return ret;
		if (wc[i].byte_len != wanted) {
			fprintf(stderr,
				"braggline-rdma: received a message of %u bytes, expected %u: use "
				"the same -s at both ends\n",
				wc[i].byte_len, wanted);
			return -EPROTO;
		}
		f->completed++;
		ret = perftest_traffic_receive(t, f, wc[i].wr_id);
		if (ret < 0)
			return ret;
	}
	if (n && w->first == 0)
		w->first = now;
	if (n)
		count(w, now, n);
	return (int)n;
}

int
perftest_traffic_sink(struct perftest_traffic *t, uint64_t size, struct perftest_report *report)
{
	const struct perftest_options *o = t->options;
	uint64_t total = o->duration ? UINT64_MAX : o->iterations * o->qps, got = 0;
	uint64_t deadline = session_deadline(0);
	bool silence = o->type != RDMA_QP_RC;
	struct stopwatch watch;
	unsigned int i;
	int ret = 0, n;

	for (i = 0; i < o->qps; i++)
		t->flows[i].completed = 0;
	start(&watch, 0);
	watch.first = 0;
	while (got < total) {
		for (n = 0, i = 0; i < o->qps && ret >= 0; i++) {
			ret = take_receives(t, &t->flows[i], size, &watch);
			n += RTE_MAX(ret, 0);
		}
		if (ret < 0)
			break;
		/* the time of a run of fixed duration starts with its first message */
		if (n && got == 0 && o->duration) {
			uint64_t first = watch.first;

			start(&watch, o->duration);
			watch.messages = 0;
			deadline = first + o->duration * rte_get_tsc_hz();
		}
		got += (uint64_t)n;
		if (n && silence && !o->duration)
			deadline = session_deadline(SILENCE_MS);
		ret = session_poll(t->session, deadline);
		if (ret < 0)
			break;
	}
	if (ret == -ETIMEDOUT && (o->duration || silence))
		ret = 0;
	report_of(t, &watch, size, report);
	/* as in perftest: a receiver has no posting times */
	report->peak = 0;
	return ret < 0 ? ret : 0;
}
