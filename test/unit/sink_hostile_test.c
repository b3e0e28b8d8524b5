/* SPDX-License-Identifier: BSD-3-Clause */
/* A store whose other peer means it no good: what that one does is refused or shows by its CRC, is
 * counted by its cause, and the batches of a receiver beside it are all there once. Each attack is
 * made over a connection of its own, by whoever has the key where the key is needed. */

#include <arpa/inet.h>
#include <errno.h>

#include "sink_store_rig.h"

#include <rte_debug.h>

#include "arrow_read.h"
#include "arrow_tables.h"
#include "sink_message.h"

#define STORE	 1 /* stations; the receiver is 0 */
#define HOSTILE	 2
#define PEERS	 24
#define PRODUCER 666
#define RUN	 13
#define ENTRIES	 4 /* that a peer may have on their way, */
#define ALIVE_MS 200
#define ROOM	 (1u << 20) /* and bytes of its bodies, good ones and others */

struct peer {
	struct sink_link link;
	bool link_is_open;
	struct rdma_conn *conn;
	struct sink_handshake handshake;
	bool mute;	  /* says nothing but what the test says */
	bool withholds;	  /* says what a receiver does, but not MOVED */
	bool established; /* by the CM */
	bool gone;
	bool granted;
	enum sink_reason refused; /* by REJ or REFUSE */
	uint64_t sent;
	uint64_t durable; /* results */
	uint64_t doubles;
	bool ended;
	unsigned int written; /* entries: where the next one is staged */
	struct sink_grant grant;
	struct sink_region region[3];
	struct sink_place place[STORE_PLACES];
	uint32_t nb_places;
	struct sink_stream stream[SINK_TABLES];
};

static struct peer peer[PEERS];
static struct rdma_pd *pd; /* of the hostile station */
static uint8_t *schema[SINK_TABLES];
static uint32_t schema_bytes[SINK_TABLES];
static uint64_t body_max[SINK_TABLES];
static unsigned int kept; /* batches of the receiver beside it */
static unsigned int turns;
static uint64_t passed_ms;

uint64_t __real_sink_link_clock(void);
uint64_t __wrap_sink_link_clock(void);

/* Time can be made to pass: for all but the network. */
uint64_t
__wrap_sink_link_clock(void)
{
	return __real_sink_link_clock() + passed_ms;
}

/* ---- the peer -------------------------------------------------------------------------------- */

/* Send what was made in the last room of the link. */
static void
say(struct peer *p, const void *message, size_t size)
{
	void *room = sink_link_room(&p->link);

	RTE_VERIFY(room != NULL);
	memmove(room, message, size);
	(void)sink_link_send(&p->link, size);
}

/* As a receiver says while a store waits for its disk. @return true */
static bool
alive(struct peer *p)
{
	static uint64_t said;
	struct sink_status status = {0};

	if (sink_link_clock() < said + ALIVE_MS || p->link.nb_free_sends == 0)
		return true;
	said = sink_link_clock();
	sink_message_begin(&status, SINK_STATUS, sizeof(status), p->sent++);
	say(p, &status, sizeof(status));
	return true;
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	const struct sink_message *m = message;
	const struct sink_results *results = message;
	struct peer *p = arg;
	uint32_t i;

	switch ((enum sink_type)m->type) {
	case SINK_REFUSE:
		p->refused = ((const struct sink_refuse *)message)->reason;
		return;
	case SINK_GRANT:
		memcpy(&p->grant, message, sizeof(p->grant));
		memcpy(p->region, ((const struct sink_grant *)message)->region, sizeof(p->region));
		assert_int_equal(sink_grant_places(message, body_max, p->place, &p->nb_places), 0);
		for (i = 0; i < SINK_TABLES; i++) {
			p->stream[i].epoch = p->grant.epoch;
			p->stream[i].body_max = UINT64_MAX;
		}
		p->granted = true;
		return;
	case SINK_RESULTS:
		for (i = 0; i < results->nb; i++) {
			p->durable += results->result[i].status == SINK_DURABLE;
			p->doubles += results->result[i].status == SINK_DOUBLE;
		}
		return;
	case SINK_ENDED:
		p->ended = true;
		return;
	default:
		if (p->handshake.state < SINK_HANDSHAKE_DONE)
			(void)sink_handshake_receive(&p->handshake, message, size);
	}
}

static const struct sink_link_ops link_ops = {.message = on_message};

static void
on_event(struct peer *p, const struct rdma_event *event)
{
	struct sink_endpoint self = {.qpn = p->link.qpn}, store = {.qpn = event->remote_qpn};
	struct rdma_dev_info info;
	struct sink_reject reject;

	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		p->established = true;
		rdma_dev_info_get(rig.dev[HOSTILE], &info);
		sink_link_address(&info.addr, self.addr);
		rdma_dev_info_get(rig.dev[STORE], &info);
		sink_link_address(&info.addr, store.addr);
		assert_int_equal(sink_handshake_open(&p->handshake, event->private_data,
					 event->private_len, &self, &store),
			SINK_REASON_NONE);
		break;
	case RDMA_EVENT_REJECTED:
		memcpy(&reject, event->private_data, sizeof(reject));
		p->refused = reject.reason;
		p->gone = true;
		break;
	case RDMA_EVENT_UNREACHABLE:
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		p->gone = true;
		break;
	default:
		break;
	}
}

/* What a decent receiver says, up to its places. */
static void
go_on(struct peer *p)
{
	struct sink_intervals moved;
	void *room;
	size_t size;

	while (p->handshake.state != SINK_HANDSHAKE_DONE &&
		(room = sink_link_room(&p->link)) != NULL) {
		size = sink_handshake_send(&p->handshake, room);
		if (size == 0)
			return;
		(void)sink_link_send(&p->link, size);
		if (p->handshake.state == SINK_HANDSHAKE_DONE) {
			p->sent = p->handshake.sent;
			if (p->withholds)
				return;
			sink_message_begin(&moved, SINK_MOVED, sizeof(moved), p->sent++);
			say(p, &moved, sizeof(moved));
		}
	}
}

/* Both the hostile station and the receiver beside it, which keeps a batch now and then. */
static void
beside(void)
{
	struct rdma_event event[4];
	unsigned int i, n;

	(void)rdma_progress(rig.dev[HOSTILE], 0);
	n = rdma_poll_cm(rig.dev[HOSTILE], event, 4);
	for (i = 0; i < n; i++) {
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			on_event(rdma_conn_context(event[i].conn), &event[i]);
	}
	for (i = 0; i < PEERS; i++) {
		if (!peer[i].link_is_open)
			continue;
		(void)sink_link_poll(&peer[i].link);
		if (peer[i].established && !peer[i].mute && !peer[i].link.broken)
			go_on(&peer[i]);
	}
	if (++turns % 64 == 0 && kept < rig_fewest()) {
		(void)rig_keep(0, kept, 0);
		(void)rig_keep(1, kept++, 0);
	}
}

/* Ask for a connection; what is asked is the test's to change before the next turn. */
static struct peer *
call(unsigned int i, const struct sink_private *req)
{
	const struct sink_link_config config = {
		.dev = rig.dev[HOSTILE],
		.pd = pd,
		.writes = 64,
		.extra = 2 * ROOM + ENTRIES * SINK_ENTRY_BYTES,
		.ops = &link_ops,
		.arg = &peer[i],
	};
	const struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(SINK_PORT),
		.sin_addr.s_addr = htonl(0x0a000002),
	};
	struct sink_offer offer = {.role = SINK_ROLE_RECEIVER,
		.producer = PRODUCER,
		.run = RUN,
		.incarnation = i,
		.name = "hostile"};
	struct peer *p = &peer[i];
	struct rdma_conn_attr attr = {
		.private_data = &p->handshake.receiver,
		.private_len = sizeof(p->handshake.receiver),
		.context = p,
		.timeout_ms = 3000,
	};
	struct arrow_identity id = {PRODUCER, RUN, i, NULL};
	unsigned int k;

	memset(p, 0, sizeof(*p));
	for (k = 0; k < SINK_TABLES; k++) {
		offer.table[k].schema = schema[k];
		offer.table[k].schema_bytes = schema_bytes[k];
		offer.table[k].body_max = body_max[k];
		id.table = arrow_table_name(k);
		assert_int_equal(sink_stream_init(&p->stream[k], k, &rig.sample.tables.schema[k],
					 &id, 0, UINT64_MAX),
			0);
	}
	assert_int_equal(sink_link_open(&p->link, &config), 0);
	p->link_is_open = true;
	assert_int_equal(sink_handshake_call(&p->handshake, &rig.key, &offer, UINT64_MAX), 0);
	if (req != NULL)
		p->handshake.receiver = *req;
	p->conn = rdma_conn_connect(p->link.qp, (const struct sockaddr *)&to, &attr);
	assert_non_null(p->conn);
	return p;
}

/* One that has proved itself and was granted places. */
static struct peer *
stand(unsigned int i)
{
	struct peer *p = call(i, NULL);

	UNTIL(p->granted);
	return p;
}

static void
hang_up(struct peer *p)
{
	unsigned int i;

	if (p->conn != NULL)
		(void)rdma_conn_destroy(p->conn);
	p->conn = NULL;
	if (p->link_is_open) {
		sink_link_break(&p->link);
		UNTIL(sink_link_close(&p->link) == 0);
	}
	p->link_is_open = false;
	sink_handshake_end(&p->handshake);
	for (i = 0; i < SINK_TABLES; i++)
		sink_stream_free(&p->stream[i]);
}

/* Batch k of the sample under the peer's own identity, as a decent receiver would announce it. */
static struct sink_entry *
entry_of(struct peer *p, unsigned int table, unsigned int k, uint32_t place)
{
	const struct sink_sample_batch *from = &rig.sample.batch[table][k];
	struct sink_entry *entry = (struct sink_entry *)(p->link.extra + 2 * ROOM +
		p->written % ENTRIES * SINK_ENTRY_BYTES);
	const struct arrow_template *t = &p->stream[table].template;
	struct arrow_node nodes[ARROW_NODES_MAX];
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX];
	const struct arrow_batch batch = {(int64_t)from->batch.rows, nodes, buffers,
		(int64_t)from->batch.body_bytes, from->batch.sequence, from->batch.body_crc32c};
	struct sink_batch b = from->batch;
	uint8_t metadata[SINK_BLOCK];

	memcpy(nodes, from->metadata + t->nodes, t->nb_nodes * sizeof(nodes[0]));
	memcpy(buffers, from->metadata + t->buffers, t->nb_buffers * sizeof(buffers[0]));
	memcpy(metadata, t->bytes, SINK_BLOCK);
	arrow_template_patch(t, metadata, &batch);
	b.entry = place;
	assert_int_equal(sink_entry_make(&p->stream[table], &b, metadata, entry), 0);
	memcpy(p->link.extra, from->body, from->batch.body_bytes);
	return entry;
}

static void
write_at(struct peer *p, const void *from, uint64_t bytes, uint64_t addr, uint32_t rkey)
{
	const struct rdma_sge sg = {(uintptr_t)from, (uint32_t)bytes, rdma_mr_lkey(p->link.mr)};

	(void)sink_link_write(&p->link, 0, &sg, addr, rkey, NULL);
}

static void
write_body(struct peer *p, uint32_t place, uint64_t bytes)
{
	write_at(p, p->link.extra, bytes, p->place[place].body, p->place[place].body_rkey);
}

/* `imm` need not be the place that is written. */
static void
write_entry(struct peer *p, uint32_t place, uint32_t imm, const struct sink_entry *entry)
{
	const struct rdma_sge sg = {(uintptr_t)entry, SINK_ENTRY_BYTES, rdma_mr_lkey(p->link.mr)};

	(void)sink_link_write(
		&p->link, 0, &sg, p->place[place].metadata, p->place[place].metadata_rkey, &imm);
	p->written++;
}

static void
write_nothing(struct peer *p, uint32_t imm)
{
	const struct rdma_sge sg = {(uintptr_t)p->link.extra, 0, rdma_mr_lkey(p->link.mr)};

	(void)sink_link_write(&p->link, 0, &sg, 0, 0, &imm);
}

/* ---- the store ------------------------------------------------------------------------------- */

static const struct store_counters *
counters(void)
{
	return &store_look(rig.store[0])->counters;
}

static uint64_t
device_counter(unsigned int station, const char *name)
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

/* Connections that the store has, beside the receiver's. */
static unsigned int
connections(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < STORE_CONNECTIONS; i++)
		n += store_look_connection(rig.store[0], i)->state != STORE_FREE;
	return n - 1;
}

/* A store, and a receiver that is connected and sends all the time. */
static void
begin(void)
{
	unsigned int i, k;
	size_t size;

	kept = 0;
	memset(peer, 0, sizeof(peer));
	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	pd = rdma_pd_alloc(rig.dev[HOSTILE]);
	for (i = 0; i < SINK_TABLES; i++) {
		assert_int_equal(
			arrow_header_build(&rig.sample.tables.schema[i], &schema[i], &size), 0);
		schema_bytes[i] = size;
		body_max[i] = 0;
		for (k = 0; k < rig.sample.nb[i]; k++)
			body_max[i] = RTE_MAX(body_max[i], rig.sample.batch[i][k].batch.body_bytes);
		RTE_VERIFY(body_max[i] <= ROOM);
	}
	UNTIL(rig_stats_of(0).state == SINK_SENDER_UP);
	rig.also = beside;
}

/* Nothing of it is left, and the receiver has noticed nothing. */
static void
end(void)
{
	unsigned int i;

	for (i = 0; i < PEERS; i++)
		hang_up(&peer[i]);
	UNTIL(kept == rig_fewest() && rig_held() == 0);
	UNTIL(connections() == 0);
	assert_int_equal(rig_stats_of(0).connections, 1);
	assert_int_equal(rig_stats_of(0).broken + rig_stats_of(0).again, 0);
	rig_end_run(0);
	rig.also = NULL;
	rig_close_receiver();
	rig_close_store(0);
	for (i = 0; i < 1000 && rdma_pd_free(pd) < 0; i++)
		rig_turn();
	for (i = 0; i < SINK_TABLES; i++)
		free(schema[i]);
}

static void
honest_is_there_once(void)
{
	char path[PATH_MAX];
	const struct arrow_identity id = sink_sample_identity(0);
	unsigned int table, k;

	snprintf(path, sizeof(path), "%s/store0/sample-%016lx-%016lx", rig.root, id.producer,
		id.run);
	memset(rig.found, 0, sizeof(rig.found));
	rig_look_below(path);
	for (table = 0; table < SINK_TABLES; table++) {
		for (k = 0; k < rig.sample.nb[table]; k++)
			assert_int_equal(rig.found[table][k], k < rig_fewest());
	}
}

/* The store has refused the peer for this, and has let go of it. */
static void
is_refused(struct peer *p, enum sink_reason reason)
{
	UNTIL(p->refused != SINK_REASON_NONE || p->gone || p->link.broken);
	if (p->refused != SINK_REASON_NONE)
		assert_int_equal(p->refused, reason);
	hang_up(p);
	UNTIL(connections() == 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* All that an earlier connection said, said again. */
static void
test_replayed(void **state)
{
	struct sink_private req;
	struct sink_proof proof;
	struct peer *p;
	uint64_t stood;

	begin();
	p = stand(0);
	req = p->handshake.receiver;
	proof = p->handshake.proof;
	hang_up(p);
	UNTIL(connections() == 0);
	stood = counters()->stood;
	p = call(1, &req);
	p->mute = true;
	UNTIL(p->established);
	say(p, &proof, sizeof(proof));
	is_refused(p, SINK_REASON_KEY);
	assert_int_equal(counters()->refused[SINK_REASON_KEY], 1);
	/* with the ends that it now has, and the old MAC */
	p = call(2, &req);
	p->mute = true;
	UNTIL(p->established);
	proof.receiver = p->handshake.proof.receiver;
	proof.store = p->handshake.proof.store;
	say(p, &proof, sizeof(proof));
	is_refused(p, SINK_REASON_KEY);
	assert_int_equal(counters()->refused[SINK_REASON_KEY], 2);
	assert_int_equal(counters()->stood, stood);
	end();
	honest_is_there_once();
}

/* A good CRC, and somebody else's name in it. */
static void
test_forged(void **state)
{
	static const enum sink_entry_fault fault[] = {SINK_ENTRY_IDENTITY, SINK_ENTRY_IDENTITY,
		SINK_ENTRY_IDENTITY, SINK_ENTRY_IDENTITY, SINK_ENTRY_PLACE, SINK_ENTRY_SEQUENCE,
		SINK_ENTRY_METADATA};
	const struct store_counters *n;
	struct sink_descriptor *d;
	struct sink_entry *entry;
	unsigned int i;
	uint64_t before;
	struct peer *p;

	begin();
	n = counters();
	for (i = 0; i < RTE_DIM(fault); i++) {
		p = stand(i);
		entry = entry_of(p, 0, 0, 0);
		d = &entry->descriptor;
		switch (i) {
		case 0:
			d->producer = sink_sample_identity(0).producer;
			break;
		case 1:
			d->run++;
			break;
		case 2:
			d->incarnation++;
			break;
		case 3:
			/* all of it is the receiver's own batch */
			*entry = rig.sample.batch[0][0].entry;
			d->entry = 0;
			d->epoch = p->grant.epoch;
			break;
		case 4:
			d->epoch++;
			break;
		case 5:
			d->sequence = UINT64_MAX;
			break;
		default:
			/* the metadata say another one */
			d->sequence++;
		}
		sink_sample_sign(entry);
		before = n->fault[fault[i]];
		write_body(p, 0, d->body_bytes);
		write_entry(p, 0, 0, entry);
		is_refused(p, SINK_REASON_ENTRY);
		assert_int_equal(n->fault[fault[i]], before + 1);
		assert_int_equal(n->refused[SINK_REASON_ENTRY], i + 1);
	}
	end();
	honest_is_there_once();
}

/* Lengths that are more than there is. */
static void
test_oversize(void **state)
{
	const struct store_counters *n;
	struct sink_descriptor *d;
	struct sink_entry *entry;
	struct sink_status status;
	unsigned int i;
	struct peer *p;

	begin();
	n = counters();
	for (i = 0; i < 5; i++) {
		p = stand(i);
		entry = entry_of(p, 0, 0, 0);
		d = &entry->descriptor;
		if (i == 0)
			d->body_bytes = body_max[0] + SINK_BLOCK;
		else if (i == 1)
			d->body_bytes = UINT64_MAX - SINK_BLOCK + 1;
		else if (i == 2)
			d->metadata_bytes = sizeof(entry->metadata) + 1;
		else if (i == 3)
			d->metadata_bytes = UINT32_MAX;
		else
			d->rows = UINT64_MAX;
		sink_sample_sign(entry);
		write_entry(p, 0, 0, entry);
		is_refused(p, SINK_REASON_ENTRY);
		assert_int_equal(n->fault[SINK_ENTRY_LENGTH], i + 1);
	}
	/* messages: more bytes said than sent, fewer, and an interval too many */
	for (i = 0; i < 3; i++) {
		p = stand(8 + i);
		sink_message_begin(
			&status, i < 2 ? SINK_STATUS : SINK_MOVED, sizeof(status), p->sent++);
		status.head.length += i == 0 ? 4096 : i == 1 ? -8 : 0;
		/* where MOVED has its number of intervals */
		status.reserved = i == 2 ? UINT32_MAX : 0;
		say(p, &status, sizeof(status));
		is_refused(p, SINK_REASON_MALFORMED);
		assert_int_equal(n->refused[SINK_REASON_MALFORMED], i + 1);
	}
	end();
	honest_is_there_once();
}

/* A number that is somebody's, or nobody's. */
static void
test_places(void **state)
{
	const struct store_counters *n;
	const uint32_t imm[] = {UINT32_MAX, STORE_PLACES, 1};
	struct sink_entry *entry;
	unsigned int i;
	struct sink_end m;
	struct peer *p;
	uint64_t good;

	begin();
	n = counters();
	for (i = 0; i < RTE_DIM(imm); i++) {
		p = stand(i);
		/* the last one is a place that has no entry */
		write_entry(p, 0, imm[i], entry_of(p, 0, 0, 0));
		is_refused(p, SINK_REASON_ENTRY);
		assert_int_equal(n->fault[SINK_ENTRY_PLACE], i < 2 ? i + 1 : 2);
		assert_int_equal(n->fault[SINK_ENTRY_GARBAGE], i < 2 ? 0 : 1);
	}
	/* before there are any, and when all was said: without a byte to write no key is needed */
	for (i = 4; i < 6; i++) {
		p = call(i, NULL);
		p->mute = i == 4;
		UNTIL(i == 4 ? p->established : p->granted);
		sink_message_begin(&m, SINK_END, sizeof(m), p->sent++);
		if (i == 5)
			say(p, &m, sizeof(m));
		write_nothing(p, 0);
		is_refused(p, SINK_REASON_ORDER);
		assert_int_equal(n->refused[SINK_REASON_ORDER], i - 3);
	}
	/* one that is taken: before its result has come */
	p = stand(i);
	good = n->durable;
	entry = entry_of(p, 0, 0, 0);
	write_body(p, 0, entry->descriptor.body_bytes);
	write_entry(p, 0, 0, entry);
	write_entry(p, 0, 0, entry);
	is_refused(p, SINK_REASON_ENTRY);
	assert_int_equal(n->fault[SINK_ENTRY_PLACE], 3);
	/* what was taken before that is written */
	UNTIL(n->durable > good);
	end();
	honest_is_there_once();
}

/* Addresses and keys of memory that was not granted, or is not any more: refused by the device. */
static void
test_outside(void **state)
{
	const struct store_connection *theirs;
	const struct store_counters *n;
	struct sink_region stale;
	struct sink_place to;
	struct sink_entry before;
	uint64_t refused;
	unsigned int i;
	struct peer *p;

	begin();
	n = counters();
	for (i = 0; store_look_connection(rig.store[0], i)->state != STORE_UP; i++)
		;
	theirs = store_look_connection(rig.store[0], i);
	before = theirs->entries[theirs->nb_places - 1];
	p = stand(0);
	stale = p->region[0];
	hang_up(p);
	UNTIL(connections() == 0);
	for (i = 0; i < 6; i++) {
		p = stand(1 + i);
		to = p->place[0];
		switch (i) {
		case 0: /* the end of the entries goes on into their copies */
			to.metadata += p->nb_places * SINK_ENTRY_BYTES - 8;
			break;
		case 1:
			to.metadata -= SINK_ENTRY_BYTES;
			break;
		case 2: /* its end is at the beginning */
			to.metadata = UINT64_MAX - 100;
			break;
		case 3:
			to.metadata_rkey ^= 1;
			break;
		case 4:
			to.metadata = stale.addr;
			to.metadata_rkey = stale.rkey;
			break;
		default: /* the receiver's own, which a spy has seen */
			to.metadata = (uintptr_t)&theirs->entries[theirs->nb_places - 1];
			to.metadata_rkey = rdma_mr_rkey(theirs->entries_mr);
		}
		refused = device_counter(STORE, "rx_access_refused");
		p->place[0] = to;
		write_entry(p, 0, 0, entry_of(p, 0, 0, 0));
		UNTIL(p->link.broken);
		assert_int_equal(p->link.why, RDMA_WC_REM_ACCESS_ERR);
		assert_int_equal(device_counter(STORE, "rx_access_refused"), refused + 1);
		hang_up(p);
		UNTIL(connections() == 0);
		assert_int_equal(n->broken, 2 + i);
	}
	assert_memory_equal(&before, &theirs->entries[theirs->nb_places - 1], sizeof(before));
	end();
	honest_is_there_once();
}

/* The store's own view of a peer's connection. */
static const struct store_connection *
seen(const struct peer *p)
{
	const struct store_connection *c;
	unsigned int i;

	for (i = 0; i < STORE_CONNECTIONS; i++) {
		c = store_look_connection(rig.store[0], i);
		if (c->state != STORE_FREE && c->peer.qpn == p->link.qpn)
			return c;
	}
	fail_msg("the store does not know this peer");
	return NULL;
}

/* The only complete file of a table that the hostile peer has. */
static void
open_hostile_file(struct arrow_reader *r, unsigned int incarnation, unsigned int table)
{
	char path[PATH_MAX];
	const char *problem;

	snprintf(path, sizeof(path), "%s/store0/hostile-%016x-%016x/hostile_%016x_000001_%s.arrow",
		rig.root, PRODUCER, RUN, incarnation, arrow_table_name(table));
	assert_int_equal(arrow_reader_open(r, path, &problem), 0);
	assert_true(r->complete);
}

/* What is written into a place that is taken: a body shows it by its CRC, as `braggline-store
 * verify` says, and of an entry the copy counts. */
static void
test_rewritten(void **state)
{
	struct arrow_reader r;
	struct sink_entry *entry;
	struct sink_end m;
	struct peer *p;

	begin();
	p = stand(0);
	/* right after the immediate, so before the store has looked */
	entry = entry_of(p, 0, 0, 0);
	write_body(p, 0, entry->descriptor.body_bytes);
	write_entry(p, 0, 0, entry);
	memset(p->link.extra + ROOM, 0x5a, SINK_BLOCK);
	write_at(p, p->link.extra + ROOM, SINK_BLOCK, p->place[0].body, p->place[0].body_rkey);
	UNTIL(alive(p) && p->durable == 1);
	/* after it has looked: another entry, as good as the one before */
	entry = entry_of(p, 0, 1, 1);
	write_body(p, 1, entry->descriptor.body_bytes);
	write_entry(p, 1, 1, entry);
	UNTIL(alive(p) && (seen(p)->place[1].taken || p->durable == 2));
	entry = entry_of(p, 0, 2, 1);
	write_at(p, entry, SINK_ENTRY_BYTES, p->place[1].metadata, p->place[1].metadata_rkey);
	UNTIL(alive(p) && p->durable == 2);
	assert_memory_equal(&seen(p)->entries[1], entry, SINK_ENTRY_BYTES);
	sink_message_begin(&m, SINK_END, sizeof(m), p->sent++);
	say(p, &m, sizeof(m));
	UNTIL(alive(p) && p->ended);
	open_hostile_file(&r, 0, 0);
	assert_int_equal(r.nb_batches, 2);
	assert_int_equal(arrow_reader_crc(&r, 0), -EBADMSG);
	assert_int_equal(arrow_reader_crc(&r, 1), 1);
	assert_int_equal(
		strtoull(r.batches[1].sequence, NULL, 16), rig.sample.batch[0][1].batch.sequence);
	arrow_reader_close(&r);
	end();
	honest_is_there_once();
}

/* Messages that do not belong where they come, or are none at all. */
static void
test_messages(void **state)
{
	static const struct {
		uint16_t type;
		uint32_t size;
		bool again; /* with the number of the one before */
		enum sink_reason reason;
	} wrong[] = {
		{0, 16, false, SINK_REASON_MALFORMED},
		{SINK_TYPES, 16, false, SINK_REASON_MALFORMED},
		{UINT16_MAX, 16, false, SINK_REASON_MALFORMED},
		{SINK_STATUS, 15, false, SINK_REASON_MALFORMED},
		{SINK_STATUS, 1, false, SINK_REASON_MALFORMED},
		{SINK_STATUS, sizeof(struct sink_status), true, SINK_REASON_ORDER},
		{SINK_ANSWER, sizeof(struct sink_answer), false, SINK_REASON_ORDER},
		{SINK_HAVE, sizeof(struct sink_intervals), false, SINK_REASON_ORDER},
		{SINK_MOVED, sizeof(struct sink_intervals), false, SINK_REASON_ORDER},
		{SINK_ENDED, sizeof(struct sink_end), false, SINK_REASON_ORDER},
		{SINK_PROOF, sizeof(struct sink_proof), false, SINK_REASON_ORDER},
	};
	union {
		struct sink_message head;
		struct sink_proof proof;
		uint8_t bytes[SINK_MESSAGE_MAX];
	} m;
	uint64_t before;
	unsigned int i, up;
	struct peer *p;

	begin();
	for (i = 0; i < 2 * RTE_DIM(wrong); i++) {
		/* when it stands, and when it has not proved itself */
		up = i % 2;
		p = call(i % PEERS, NULL);
		p->mute = !up;
		UNTIL(up ? p->granted : p->established);
		memset(&m, 0, sizeof(m));
		if (wrong[i / 2].type == SINK_PROOF)
			m.proof = p->handshake.proof;
		m.head.type = wrong[i / 2].type;
		m.head.length = wrong[i / 2].size;
		m.head.number = p->sent - (up && wrong[i / 2].again);
		/* a first message has no other before it, and one that is a proof is not wrong */
		if (!up && (wrong[i / 2].again || wrong[i / 2].type == SINK_PROOF))
			m.head.number++;
		before = counters()->refused[wrong[i / 2].reason];
		say(p, &m, wrong[i / 2].size);
		is_refused(p, wrong[i / 2].reason);
		assert_int_equal(counters()->refused[wrong[i / 2].reason], before + 1);
	}
	end();
	honest_is_there_once();
}

/* What a peer says of itself, unproved, is not counted as the store's own reasons. */
static void
test_abandoned(void **state)
{
	struct sink_refuse m;
	struct rdma_sge sg;
	const struct rdma_send_wr wr = {.sg = &sg, .nb_sge = 1, .op = RDMA_OP_SEND};
	struct peer *p;

	begin();
	p = call(0, NULL);
	p->mute = true;
	UNTIL(p->established);
	sink_message_begin(&m, SINK_REFUSE, sizeof(m), 0);
	m.reason = SINK_REASON_QUOTA;
	say(p, &m, sizeof(m));
	UNTIL(counters()->abandoned == 1);
	assert_int_equal(counters()->refused[SINK_REASON_QUOTA], 0);
	hang_up(p);
	UNTIL(connections() == 0);
	/* more than the store has a receive for: the queue pair ends */
	p = call(1, NULL);
	p->mute = true;
	UNTIL(p->established);
	sg = (struct rdma_sge){
		(uintptr_t)p->link.extra, SINK_MESSAGE_MAX + 1, rdma_mr_lkey(p->link.mr)};
	assert_int_equal(rdma_post_send(p->link.qp, &wr, 1), 1);
	UNTIL(p->link.broken);
	assert_int_equal(p->link.why, RDMA_WC_REM_INV_REQ_ERR);
	hang_up(p);
	UNTIL(connections() == 0);
	assert_int_equal(counters()->abandoned, 2);
	end();
	honest_is_there_once();
}

static void
say_proof(struct peer *p)
{
	uint8_t proof[SINK_MESSAGE_MAX] __attribute__((aligned(8)));

	say(p, proof, sink_handshake_send(&p->handshake, proof));
}

/* A little of the schema, and more will follow. */
static void
say_some_schema(struct peer *p)
{
	uint64_t room[8] = {0};
	struct sink_schema *m = (struct sink_schema *)room;

	sink_message_begin(m, SINK_SCHEMA, sizeof(*m) + 1, p->handshake.sent++);
	m->head.flags = SINK_MORE;
	m->offset = p->handshake.offset++;
	m->bytes[0] = schema[0][m->offset];
	say(p, m, sizeof(*m) + 1);
}

/* Half-open ones and slow ones: few at a time, and not for long. */
static void
test_half_open(void **state)
{
	const struct store_counters *n;
	struct peer *p;
	unsigned int i;

	begin();
	n = counters();
	/* one that does not hear the answer */
	p = call(0, NULL);
	UNTIL(connections() == 1);
	rig.station[HOSTILE].out = true;
	passed_ms += SINK_GATE_MS;
	UNTIL(connections() == 0);
	assert_int_equal(n->refused[SINK_REASON_LATE], 1);
	hang_up(p);
	rig.station[HOSTILE].out = false;
	/* silent, silent after the proof, schemas byte by byte, silent */
	for (i = 1; i <= SINK_GATE_PER_ADDRESS; i++) {
		p = call(i, NULL);
		p->mute = true;
		UNTIL(p->established);
		if (i == 2 || i == 3)
			say_proof(p);
	}
	UNTIL(peer[3].handshake.state == SINK_HANDSHAKE_SCHEMAS);
	p = call(i, NULL);
	UNTIL(p->gone);
	assert_int_equal(p->refused, SINK_REASON_BUSY);
	hang_up(p);
	assert_int_equal(connections(), SINK_GATE_PER_ADDRESS);
	assert_int_equal(n->refused[SINK_REASON_BUSY], 1);
	for (i = 0; i < 4; i++) {
		say_some_schema(&peer[3]);
		passed_ms += SINK_GATE_MS / 5;
		UNTIL(seen(&peer[3])->handshake.offset == i + 1);
	}
	assert_int_equal(connections(), SINK_GATE_PER_ADDRESS);
	passed_ms += SINK_GATE_MS / 5;
	for (i = 1; i <= SINK_GATE_PER_ADDRESS; i++) {
		UNTIL(peer[i].refused == SINK_REASON_LATE);
		hang_up(&peer[i]);
	}
	assert_int_equal(n->refused[SINK_REASON_LATE], 1 + SINK_GATE_PER_ADDRESS);
	UNTIL(connections() == 0);
	(void)stand(8);
	end();
	honest_is_there_once();
}

/* With the key, and never at the end of what it has to say. */
static void
test_moved_for_ever(void **state)
{
	struct {
		struct sink_intervals m;
		struct sink_interval at[SINK_INTERVALS_MAX];
	} m;
	struct sink_status status;
	uint64_t next = 1;
	struct peer *p;
	unsigned int i;

	begin();
	/* alive, that is all */
	p = call(0, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == SINK_HANDSHAKE_DONE);
	for (i = 0; i < 6 && p->refused == SINK_REASON_NONE; i++) {
		sink_message_begin(&status, SINK_STATUS, sizeof(status), p->sent++);
		say(p, &status, sizeof(status));
		passed_ms += SINK_GATE_MS / 5;
		UNTIL(p->link.nb_free_sends == SINK_LINK_SENDS);
	}
	is_refused(p, SINK_REASON_LATE);
	assert_int_equal(counters()->refused[SINK_REASON_LATE], 1);
	/* downwards, each before all that there are */
	p = call(1, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == SINK_HANDSHAKE_DONE);
	for (i = 0; i < 2; i++) {
		sink_message_begin(&m, SINK_MOVED, sizeof(m.m) + 16, p->sent++);
		m.m.head.flags = SINK_MORE;
		m.m.nb = 1;
		m.at[0].first = m.at[0].last = 100 - 10 * i;
		say(p, &m, sizeof(m.m) + 16);
	}
	is_refused(p, SINK_REASON_MALFORMED);
	/* and upwards without an end */
	p = call(2, NULL);
	p->withholds = true;
	UNTIL(p->handshake.state == SINK_HANDSHAKE_DONE);
	while (p->refused == SINK_REASON_NONE && next < 4ull * SINK_MOVED_MAX) {
		sink_message_begin(&m, SINK_MOVED, sizeof(m), p->sent++);
		m.m.head.flags = SINK_MORE;
		m.m.nb = SINK_INTERVALS_MAX;
		for (i = 0; i < SINK_INTERVALS_MAX; i++, next += 2)
			m.at[i].first = m.at[i].last = next;
		say(p, &m, m.m.head.length);
		UNTIL(p->link.nb_free_sends > 0 || p->refused != SINK_REASON_NONE);
	}
	is_refused(p, SINK_REASON_MALFORMED);
	assert_int_equal(counters()->refused[SINK_REASON_MALFORMED], 2);
	end();
	honest_is_there_once();
}

/* As many requests as there can be, each in another's name: a receiver elsewhere still gets in. */
static void
test_flood(void **state)
{
	struct sink_private req = {SINK_MAGIC, SINK_VERSION, SINK_ROLE_RECEIVER, 0, 0, {0}};
	const struct store_counters *n;
	unsigned int i, away = 0;

	begin();
	n = counters();
	for (i = 0; i < PEERS; i++) {
		req.node = sample_random(&rig.sample.sample);
		call(i, &req)->mute = true;
	}
	UNTIL(n->requests == 1 + PEERS);
	rig_close_sender(0);
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == SINK_SENDER_UP);
	for (i = 0; i < PEERS; i++)
		away += peer[i].refused == SINK_REASON_BUSY;
	assert_int_equal(away, PEERS - SINK_GATE_PER_ADDRESS);
	assert_int_equal(n->refused[SINK_REASON_BUSY], PEERS - SINK_GATE_PER_ADDRESS);
	passed_ms += SINK_GATE_MS;
	end();
	assert_true(kept == rig_fewest());
	honest_is_there_once();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_replayed, rig_begin_test),
		cmocka_unit_test_setup(test_forged, rig_begin_test),
		cmocka_unit_test_setup(test_oversize, rig_begin_test),
		cmocka_unit_test_setup(test_places, rig_begin_test),
		cmocka_unit_test_setup(test_outside, rig_begin_test),
		cmocka_unit_test_setup(test_rewritten, rig_begin_test),
		cmocka_unit_test_setup(test_messages, rig_begin_test),
		cmocka_unit_test_setup(test_abandoned, rig_begin_test),
		cmocka_unit_test_setup(test_half_open, rig_begin_test),
		cmocka_unit_test_setup(test_moved_for_ever, rig_begin_test),
		cmocka_unit_test_setup(test_flood, rig_begin_test),
	};

	return rig_main(tests);
}
