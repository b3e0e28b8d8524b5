/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>

#include "bench_alone.h"
#include "ingest_bench.h"

#define STEPS 6 /* of the bisection: 1.6 % of the first rate that lost something */

struct transport {
	void (*send)(struct ingest_host *h, const struct ingest_trial *t);
	void (*receive)(
		struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out);
};

static const struct transport udp = {ingest_udp_send, ingest_udp_receive};
static const struct transport raw = {ingest_raw_send, ingest_raw_receive};
static const struct transport rdma = {ingest_rdma_send, ingest_rdma_receive};

static const struct transport *
transport(uint32_t method)
{
	if (method >= INGEST_METHODS)
		ingest_fail("the receiver asks for method %u: another version?", method);
	return ingest_is_rdma(method) ? &rdma : method == INGEST_RAW ? &raw : &udp;
}

uint64_t
ingest_due(const struct ingest_trial *t, uint64_t begin)
{
	if (t->rate == 0)
		return UINT64_MAX;
	return (uint64_t)((double)(rte_rdtsc() - begin) * t->rate / (double)rte_get_tsc_hz()) + 1;
}

bool
ingest_is_lossless(const struct ingest_outcome *out)
{
	return out->sent > 0 && out->received >= out->sent;
}

void
ingest_serve(struct ingest_host *h)
{
	struct ingest_trial t;

	while (ingest_get(h->channel, &t, sizeof(t), NULL, NULL)) {
		if (t.size != sizeof(t))
			ingest_fail("a trial of %u bytes, expected %zu: another version?", t.size,
				sizeof(t));
		if (t.payload > INGEST_PAYLOAD_MAX || t.payload == 0 || t.addresses == 0 ||
			t.depth > INGEST_DEPTH_MAX || t.depth == 0)
			ingest_fail("payload %u, %u addresses, depth %u: not possible", t.payload,
				t.addresses, t.depth);
		transport(t.method)->send(h, &t);
		bench_alone_end();
	}
}

static void
try(struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out)
{
	/* both ends give up their real-time priority for this time */
	const struct timespec rest = {.tv_nsec = (long)(t->seconds * 0.2e9)};

	memset(out, 0, sizeof(*out));
	nanosleep(&rest, NULL);
	ingest_put(h->channel, t, sizeof(*t));
	h->alone = bench_alone_begin();
	transport(t->method)->receive(h, t, out);
	bench_alone_end();
}

void
ingest_lossless(struct ingest_host *h, const struct ingest_trial *asked, struct ingest_outcome *out)
{
	struct ingest_trial t = *asked;
	struct ingest_outcome now;
	double low = 0, high;
	unsigned int i;

	t.size = sizeof(t);
	t.rate = 0;
	try(h, &t, out);
	if (ingest_is_lossless(out))
		return;
	/* what arrived is no more than the receiver can take */
	high = out->sent == 0 ? 0 : 1.1 * out->rate;
	memset(out, 0, sizeof(*out));
	for (i = 0; i < STEPS && high > 0; i++) {
		t.rate = (low + high) / 2;
		try(h, &t, &now);
		if (ingest_is_lossless(&now)) {
			low = t.rate;
			if (now.rate > out->rate)
				*out = now;
		} else {
			high = t.rate;
		}
	}
}
