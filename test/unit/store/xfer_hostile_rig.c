/* SPDX-License-Identifier: BSD-3-Clause */
/* A store with a receiver and hostile peers, and the clock that tests can advance. */

#include "xfer_hostile_rig.h"

static_assert(PEER_SLOTS >= STORE_SLOTS, "room for a grant");

uint64_t hostile_passed_ms;
unsigned int hostile_kept;
static uint64_t stopped_at; /* real time, or 0 */
static uint64_t stopped_ms; /* for which the clock was stopped before */
static unsigned int turns;

uint64_t __real_xfer_qp_clock(void);
uint64_t __wrap_xfer_qp_clock(void);

/* The clock of everything but the network, which tests can advance. */
uint64_t
__wrap_xfer_qp_clock(void)
{
	const uint64_t now = stopped_at != 0 ? stopped_at : __real_xfer_qp_clock();

	return now - stopped_ms + hostile_passed_ms;
}

void
hostile_stop_clock(void)
{
	stopped_at = __real_xfer_qp_clock();
}

void
hostile_start_clock(void)
{
	stopped_ms += __real_xfer_qp_clock() - stopped_at;
	stopped_at = 0;
}

/* Poll the hostile peers and the receiver, which keeps a batch now and then. */
static void
beside(void)
{
	peers_turn();
	if (++turns % 64 == 0 && hostile_kept < rig_fewest()) {
		(void)rig_keep(0, hostile_kept, 0);
		(void)rig_keep(1, hostile_kept++, 0);
	}
}

struct peer *
hostile_stand(unsigned int i)
{
	struct peer *p = peer_call(i, NULL);

	UNTIL(p->granted);
	return p;
}

const struct store_counters *
hostile_counters(void)
{
	return &store_get_shared(rig.store[0])->counters;
}

uint64_t
hostile_device_counter(unsigned int station, const char *name)
{
	struct rdma_xstat x[256];
	int i, n = rdma_xstats_get(rig.dev[station], x, 256);

	for (i = 0; i < n; i++) {
		if (strcmp(x[i].name, name) == 0)
			return x[i].value;
	}
	fail_msg("no counter %s", name);
	return 0;
}

unsigned int
hostile_connections(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < STORE_CONNECTIONS; i++)
		n += store_get_connection(rig.store[0], i)->state != STORE_FREE;
	return n - 1;
}

const struct store_connection *
hostile_seen(const struct peer *p)
{
	const struct store_connection *c;
	unsigned int i;

	for (i = 0; i < STORE_CONNECTIONS; i++) {
		c = store_get_connection(rig.store[0], i);
		if (c->state != STORE_FREE && c->peer.qpn == p->link.qpn)
			return c;
	}
	fail_msg("the store does not know this peer");
	return NULL;
}

void
hostile_hang_up(struct peer *p)
{
	UNTIL(peer_hang_up(p));
}

void
hostile_begin(void)
{
	hostile_kept = 0;
	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	rig.also = beside;
}

void
hostile_end(void)
{
	unsigned int i;

	for (i = 0; i < PEERS; i++)
		hostile_hang_up(&peer[i]);
	UNTIL(hostile_kept == rig_fewest() && rig_held() == 0);
	UNTIL(hostile_connections() == 0);
	assert_int_equal(rig_stats_of(0).connections, 1);
	assert_int_equal(rig_stats_of(0).broken + rig_stats_of(0).returned, 0);
	rig_end_run(0);
	rig.also = NULL;
	rig_close_receiver();
	rig_close_store(0);
	UNTIL(peers_close());
}

void
hostile_beside_is_there_once(void)
{
	char path[PATH_MAX];
	const struct arrow_identity id = xfer_sample_identity(0);
	unsigned int table, k;

	snprintf(path, sizeof(path), "%s/store0/sample-%016lx-%016lx", rig.root, id.receiver_id,
		id.run);
	memset(rig.found, 0, sizeof(rig.found));
	rig_look_below(path);
	for (table = 0; table < XFER_TABLES; table++) {
		for (k = 0; k < rig.sample.nb[table]; k++)
			assert_int_equal(rig.found[table][k], k < rig_fewest());
	}
}

void
hostile_is_refused(struct peer *p, enum xfer_reason reason)
{
	UNTIL(p->refused != XFER_REASON_NONE || p->gone || p->link.broken);
	if (p->refused != XFER_REASON_NONE)
		assert_int_equal(p->refused, reason);
	hostile_hang_up(p);
	UNTIL(hostile_connections() == 0);
}
