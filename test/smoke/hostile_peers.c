/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hostile peers of a running store, one after the other, for hostile_test.py. For each attack it
 * prints a line with its name and the store's counters that must increase by one.
 *
 * Usage: hostile_peers [EAL arguments] -- DEVICE STORE KEY-FILE [flood]
 *
 * `flood`: keeps as many half-open connections as an address may have, until it is killed.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_debug.h>
#include <rte_eal.h>
#include <rte_random.h>

#include "xfer/admission.h"
#include "../unit/store/xfer_hostile_peer.h"

#define SECONDS	 30
#define SLEEP_US 50
#define GRANTED	 "connections_established connections_broken"
#define FRAMES	 100
#define FLOOD_MS 20 /* between two attempts of one connection */

/* Poll until the condition is true. */
#define UNTIL(condition)                                                      \
	do {                                                                  \
		const uint64_t limit = xfer_qp_clock() + SECONDS * 1000;      \
		while (!(condition)) {                                        \
			turn();                                               \
			if (xfer_qp_clock() > limit)                          \
				rte_exit(1, "not in time: %s\n", #condition); \
		}                                                             \
	} while (0)

static struct xfer_sample sample;
static unsigned int next;

static void
turn(void)
{
	const struct timespec pause = {.tv_nsec = SLEEP_US * 1000};

	peers_turn();
	nanosleep(&pause, NULL);
}

static void
tried(const char *what, const char *counters)
{
	printf("%s: %s\n", what, counters);
	fflush(stdout);
}

static struct peer *
call(const struct xfer_private *req)
{
	return peer_call(next++ % PEERS, req);
}

/* Connect a peer that authenticates and is granted slots. */
static struct peer *
connect_granted(void)
{
	struct peer *p = call(NULL);

	UNTIL(p->granted);
	return p;
}

static void
hang_up(struct peer *p)
{
	UNTIL(peer_hang_up(p));
}

static void
is_refused(struct peer *p, const char *what, const char *counters)
{
	UNTIL(p->refused != XFER_REASON_NONE || p->gone || p->link.broken);
	hang_up(p);
	tried(what, counters);
}

/* ---- without the key ------------------------------------------------------------------------- */

static void
try_another_key(void)
{
	const struct xfer_key *key = peers.key;
	struct xfer_key wrong = *key;

	wrong.bytes[wrong.size - 1] ^= 1;
	peers.key = &wrong;
	is_refused(call(NULL), "another key", "refused_key");
	peers.key = key;
}

/* Its own key with the receiver's runs and with the receiver's name, and an unknown name. */
static void
try_others(void)
{
	peers.receiver_id = 1;
	is_refused(call(NULL), "the receiver's runs", "refused_rights");
	peers.receiver_id = PEER_RECEIVER_ID;
	peers.identity = "recv0";
	is_refused(call(NULL), "the receiver's name", "refused_key");
	peers.identity = "nobody";
	is_refused(call(NULL), "no name", "refused_key");
	peers.identity = "hostile";
}

/* Repeat the messages of an earlier connection. */
static void
try_replay(void)
{
	struct peer *p = connect_granted();
	const struct xfer_private req = p->handshake.receiver;
	const struct xfer_auth_request proof = p->handshake.request;

	hang_up(p);
	tried("a good one", GRANTED);
	p = call(&req);
	p->mute = true;
	UNTIL(p->established);
	peer_say(p, &proof, sizeof(proof));
	is_refused(p, "an old proof", "refused_key");
}

/* Unknown peers that send nothing: the store allows few at a time, and closes them soon. */
static void
try_half_open(void)
{
	const struct xfer_private req = {XFER_MAGIC, XFER_VERSION, XFER_ROLE_RECEIVER, 0, 1, {0},
		xfer_identity_id("nobody")};
	struct peer *p[ADMISSION_PER_ADDRESS + 1];
	unsigned int i;

	for (i = 0; i < ADMISSION_PER_ADDRESS; i++) {
		p[i] = call(&req);
		p[i]->mute = true;
		UNTIL(p[i]->established);
	}
	is_refused(call(&req), "one too many", "refused_busy");
	for (i = 0; i < ADMISSION_PER_ADDRESS; i++)
		is_refused(p[i], "silent", "refused_late");
}

/* ---- with the key ---------------------------------------------------------------------------- */

enum forgery {
	FORGED_RECEIVER_ID,
	FORGED_RUN,
	FORGED_SESSION,
	FORGED_SEQUENCE,
	FORGED_METADATA,
	FORGED_LENGTH,
	FORGED_BYTES,
	FORGERIES,
};

static void
try_forgery(enum forgery kind)
{
	static const struct {
		const char *what, *counters;
	} texts[FORGERIES] = {
		[FORGED_RECEIVER_ID] = {"the receiver's receiver_id", "descriptors_identity"},
		[FORGED_RUN] = {"another run", "descriptors_identity"},
		[FORGED_SESSION] = {"another connection's entry", "descriptors_slot"},
		[FORGED_SEQUENCE] = {"the last sequence", "descriptors_sequence"},
		[FORGED_METADATA] = {"metadata of another batch", "descriptors_metadata"},
		[FORGED_LENGTH] = {"a body larger than its place", "descriptors_length"},
		[FORGED_BYTES] = {"garbage", "descriptors_garbage"},
	};
	struct peer *p = connect_granted();
	struct xfer_desc *entry = peer_entry(p, 0, 0, 0);
	struct xfer_descriptor *d = &entry->descriptor;
	char counters[128];
	size_t i;

	peer_write_body(p, 0, d->body_bytes);
	switch (kind) {
	case FORGED_RECEIVER_ID:
		d->receiver_id = 1; /* the other receiver's */
		break;
	case FORGED_RUN:
		d->run++;
		break;
	case FORGED_SESSION:
		d->session_id++;
		break;
	case FORGED_SEQUENCE:
		d->sequence = UINT64_MAX;
		break;
	case FORGED_METADATA:
		d->sequence++;
		break;
	case FORGED_LENGTH:
		d->body_bytes = peers.body_max[0] + XFER_BLOCK;
		break;
	default:
		for (i = 0; i < sizeof(*entry); i++)
			((uint8_t *)entry)[i] = sample_random(&sample.sample);
	}
	if (kind != FORGED_BYTES)
		xfer_sample_sign(&p->link.send, entry);
	peer_write_entry(p, 0, 0, entry);
	snprintf(
		counters, sizeof(counters), GRANTED " refused_descriptor %s", texts[kind].counters);
	is_refused(p, texts[kind].what, counters);
}

static void
try_places(void)
{
	struct peer *p = connect_granted();

	peer_write_entry(p, 0, UINT32_MAX, peer_entry(p, 0, 0, 0));
	is_refused(p, "an invalid place", GRANTED " refused_descriptor descriptors_slot");
}

static void
try_messages(void)
{
	struct xfer_status m;
	struct peer *p = connect_granted();

	xfer_msg_begin(&m, XFER_TYPES, sizeof(m), p->sent++);
	peer_say(p, &m, sizeof(m));
	is_refused(p, "no message", GRANTED " refused_malformed");
	p = connect_granted();
	xfer_msg_begin(&m, XFER_STATUS, sizeof(m), p->sent++);
	m.head.length += XFER_BLOCK;
	peer_say(p, &m, sizeof(m));
	is_refused(p, "more bytes announced than sent", GRANTED " refused_malformed");
	p = connect_granted();
	xfer_msg_begin(&m, XFER_STATUS, sizeof(m), p->sent - 1);
	peer_say(p, &m, sizeof(m));
	is_refused(p, "a message again", GRANTED " refused_order");
}

/* Addresses and keys of memory that was not granted: the device refuses them. */
static void
try_outside(void)
{
	static const char *const what[] = {"before the entries", "after the entries",
		"another rkey", "a place granted before"};
	struct xfer_region stale = {0};
	struct peer *p;
	unsigned int i;

	for (i = 0; i < RTE_DIM(what); i++) {
		p = connect_granted();
		if (i == 0)
			p->slot[0].metadata -= XFER_DESC_BYTES;
		else if (i == 1)
			p->slot[0].metadata += p->nb_slots * XFER_DESC_BYTES - 8;
		else if (i == 2)
			p->slot[0].metadata_rkey ^= 1;
		else
			p->slot[0].metadata_rkey = stale.rkey;
		stale = p->region[0];
		peer_write_entry(p, 0, 0, peer_entry(p, 0, 0, 0));
		UNTIL(p->link.broken);
		if (p->link.why != RDMA_WC_REM_ACCESS_ERR)
			rte_exit(1, "%s: completed with status %d\n", what[i], (int)p->link.why);
		hang_up(p);
		tried(what[i], GRANTED);
	}
}

/* ---- half-open connections ------------------------------------------------------------------- */

struct half {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct xfer_qp link;
	struct rdma_conn *conn;
	uint64_t again; /* ms: earliest time of the next attempt, as the host has few cores */
	bool gone;
};

static void
ignore(void *arg, const void *message, uint32_t size)
{
}

static void
call_half(struct half *h)
{
	static const struct xfer_qp_ops ops = {.message = ignore};
	const struct xfer_qp_config config = {.dev = h->dev, .pd = h->pd, .ops = &ops, .arg = h};
	const struct xfer_private req = {
		XFER_MAGIC, XFER_VERSION, XFER_ROLE_RECEIVER, 0, 1, {0}, rte_rand()};
	const struct rdma_conn_attr attr = {
		.private_data = &req,
		.private_len = sizeof(req),
		.context = h,
		.timeout_ms = 3000,
	};

	RTE_VERIFY(xfer_qp_open(&h->link, &config) == 0);
	h->gone = false;
	h->again = xfer_qp_clock() + FLOOD_MS;
	h->conn = rdma_conn_connect(h->link.qp, (const struct sockaddr *)&peers.store, &attr);
	RTE_VERIFY(h->conn != NULL);
}

static void
turn_half(struct half *h)
{
	(void)xfer_qp_poll(&h->link);
	if (!h->gone && !h->link.broken)
		return;
	if (h->conn != NULL)
		(void)rdma_conn_destroy(h->conn);
	h->conn = NULL;
	xfer_qp_break(&h->link);
	if (xfer_qp_clock() >= h->again && xfer_qp_close(&h->link) == 0)
		call_half(h);
}

/* As many connections as one address may have; each is opened again after the store closed it. */
static void
try_flood(void)
{
	struct half half[ADMISSION_PER_ADDRESS] = {0};
	const struct timespec pause = {.tv_nsec = SLEEP_US * 1000};
	struct rdma_event event[8];
	unsigned int i, n;

	for (i = 0; i < RTE_DIM(half); i++) {
		half[i].dev = peers.dev;
		half[i].pd = rdma_pd_alloc(peers.dev);
		call_half(&half[i]);
	}
	for (;;) {
		(void)rdma_progress(peers.dev, 0);
		n = rdma_poll_cm(peers.dev, event, RTE_DIM(event));
		for (i = 0; i < n; i++) {
			struct half *h =
				event[i].conn != NULL ? rdma_conn_context(event[i].conn) : NULL;

			if (h != NULL && event[i].conn == h->conn)
				h->gone |= event[i].type != RDMA_EVENT_ESTABLISHED;
		}
		for (i = 0; i < RTE_DIM(half); i++)
			turn_half(&half[i]);
		nanosleep(&pause, NULL);
	}
}

int
main(int argc, char **argv)
{
	char message[PATH_MAX];
	struct in_addr store;
	struct rdma_dev *dev;
	struct xfer_key key;
	enum forgery kind;
	int n = rte_eal_init(argc, argv);

	if (n < 0 || argc - n < 4 || inet_pton(AF_INET, argv[n + 2], &store) != 1)
		rte_exit(2,
			"usage: hostile_peers [EAL arguments] -- DEVICE STORE KEY-FILE [flood]\n");
	if (xfer_key_read(&key, argv[n + 3], message) < 0)
		rte_exit(1, "%s\n", message);
	dev = rdma_dev_open(argv[n + 1]);
	if (dev == NULL)
		rte_exit(1, "no device %s\n", argv[n + 1]);
	xfer_sample_init(&sample, 1, FRAMES);
	peers_open(dev, ntohl(store.s_addr), &key, &sample);
	if (argc - n > 4)
		try_flood();
	try_another_key();
	try_others();
	try_replay();
	for (kind = 0; kind < FORGERIES; kind++)
		try_forgery(kind);
	try_places();
	try_messages();
	try_outside();
	try_half_open();
	UNTIL(peers_close());
	(void)rdma_dev_close(dev);
	xfer_sample_free(&sample);
	rte_eal_cleanup();
	return 0;
}
