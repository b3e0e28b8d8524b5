/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A query server, and clients of this test that follow the protocol or do not, over software
 * RoCE and a pair of rings. Skipped without DuckDB's library (BRAGGLINE_DUCKDB). SERVE_SEED repeats
 * the random messages.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "../roce/ring_port.h"
#include "eal/poll_pause.h"
#include "eal/process_cpus.h"
#include "remote/proof.h"
#include "remote/server.h"
#include "xfer/qp.h"

#define PEERS	4
#define SECONDS 90 /* the engine does not notice interrupts for seconds of CPU time */
#define SLOTS	4
#define SLOT	65536
#define AREA	(SCAN_PARTS * SLOT) /* of a peer: its slots, or the parts that it reads */
#define ENDLESS "SELECT sum(i) FROM range(1000000000000000) t(i)"

struct peer {
	struct xfer_qp link;
	bool link_is_open;
	struct rdma_conn *conn;
	struct scan_proof proof;
	bool up, gone, forged;
	enum scan_reason refused;
	uint64_t sent, received;
	uint32_t cursor;
	bool lazy; /* gives no credit, and frees nothing */
	bool deaf; /* takes no messages */
	bool pull; /* reads bodies */
	struct {
		uint64_t addr;
		uint32_t rkey, length;
	} part[SCAN_PARTS]; /* the last ones that were announced */
	unsigned int announced, read;
	uint32_t slot[SLOTS]; /* the last ones that were written */
	/* of the last query */
	unsigned int messages, records, pushed, written;
	enum scan_kind schema; /* SCAN_SCHEMA: it was sent before */
	uint32_t schema_number;
	uint64_t bytes; /* of bodies */
	uint64_t sum;	/* of their bytes, without those that were written to slots */
	bool ended;
	uint32_t error;
	char sqlstate[SCAN_SQLSTATE + 1];
	char text[SCAN_ERROR_TEXT + 1];
};

static struct duckdb_api api;
static struct rte_ring *rx[2], *tx[2];
static struct rdma_dev *dev;
static struct rdma_pd *pd;
static struct rdma_mr *mr;
static uint8_t *slots;
static struct scan_server *server;
static bool stopped;	       /* the server is not polled */
static uint32_t receives = 64; /* of a client, besides XFER_RECEIVES */
static struct peer peer[PEERS];
static struct xfer_key key[2];
static char dir[] = "/tmp/serve_test.XXXXXX";
static const char *path[] = {dir};

/* ---- a client -------------------------------------------------------------------------------- */

static void
say(struct peer *p, const void *message, size_t size)
{
	void *room = xfer_qp_room(&p->link);

	if (room == NULL || p->link.broken)
		return;
	memcpy(room, message, size);
	((struct scan_msg *)room)->number = p->sent++;
	(void)xfer_qp_send(&p->link, size);
}

static void
give_credit(struct peer *p, uint32_t messages, int slot)
{
	struct {
		struct scan_credit m;
		uint32_t slot[1];
	} m;

	scan_msg_begin(&m, SCAN_CREDIT, sizeof(m.m) + (slot >= 0 ? 4 : 0), 0);
	m.m.messages = messages;
	m.m.nb = slot >= 0;
	if (slot >= 0)
		m.slot[0] = slot;
	say(p, &m, m.m.head.length);
}

static void
add_bytes(struct peer *p, const uint8_t *bytes, uint32_t length)
{
	uint32_t i;

	for (i = 0; i < length; i++)
		p->sum += bytes[i];
}

static void
free_part(struct peer *p, uint64_t addr)
{
	struct {
		struct scan_free m;
		uint64_t addr[1];
	} m;

	scan_msg_begin(&m, SCAN_FREE, sizeof(m.m) + 8, 0);
	m.m.nb = 1;
	m.addr[0] = addr;
	say(p, &m, m.m.head.length);
}

static void
read_part(struct peer *p, uint64_t addr, uint32_t rkey, uint32_t length)
{
	const struct rdma_sge sg = {
		(uintptr_t)slots + (p - peer) * AREA + p->announced % SCAN_PARTS * SLOT, length,
		rdma_mr_lkey(mr)};

	assert_int_equal(xfer_qp_read(&p->link, p->announced, &sg, addr, rkey), 0);
}

static void
take_pulled(struct peer *p, const struct scan_record *r, const uint8_t *bytes)
{
	struct scan_pulled at;

	assert_true(p->pull && r->length <= SLOT);
	memcpy(&at, bytes, sizeof(at));
	p->part[p->announced % SCAN_PARTS].addr = at.addr;
	p->part[p->announced % SCAN_PARTS].rkey = at.rkey;
	p->part[p->announced % SCAN_PARTS].length = r->length;
	if (!p->lazy)
		read_part(p, at.addr, at.rkey, r->length);
	p->announced++;
}

static void
take_data(struct peer *p, const struct scan_data *m)
{
	size_t at = sizeof(*m);
	const uint8_t *bytes;
	struct scan_record r;
	struct scan_error e;

	assert_int_equal(m->cursor, p->cursor);
	p->messages++;
	while ((bytes = scan_record_next(m, &at, &r)) != NULL) {
		p->records++;
		if (r.kind == SCAN_SCHEMA || (r.kind == SCAN_METADATA && r.sequence == 0)) {
			p->schema = r.kind;
			p->schema_number = r.slot;
		}
		if (r.kind == SCAN_BODY || r.kind == SCAN_PUSHED || r.kind == SCAN_PULLED)
			p->bytes += r.length;
		if (r.kind == SCAN_PULLED)
			take_pulled(p, &r, bytes);
		if (r.kind == SCAN_BODY)
			add_bytes(p, bytes, r.length);
		if (r.kind == SCAN_PUSHED) {
			assert_true(r.slot < SLOTS);
			p->slot[p->pushed++ % SLOTS] = r.slot;
			if (!p->lazy)
				give_credit(p, 0, (int)r.slot);
		}
		p->ended |= r.kind == SCAN_END || r.kind == SCAN_ERROR;
		if (r.kind != SCAN_ERROR)
			continue;
		memcpy(&e, bytes, sizeof(e));
		p->error = e.error;
		memcpy(p->sqlstate, e.sqlstate, SCAN_SQLSTATE);
		memcpy(p->text, bytes + sizeof(e), r.length - sizeof(e));
	}
	if (!p->lazy)
		give_credit(p, 1, -1);
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	const struct scan_msg *m = message;
	struct peer *p = arg;

	assert_int_equal(
		scan_msg_check(message, size, SCAN_SERVER, p->received++), SCAN_REASON_NONE);
	if (m->type == SCAN_REFUSE)
		p->refused = ((const struct scan_refuse *)message)->reason;
	else if (m->type == SCAN_ANSWER)
		p->up = scan_proof_accept(&p->proof, message) == SCAN_REASON_NONE;
	else if (m->type == SCAN_DATA)
		take_data(p, message);
}

static void
on_forged(void *arg)
{
	((struct peer *)arg)->forged = true;
}

static void
on_written(void *arg, uint32_t imm)
{
	((struct peer *)arg)->written++;
}

static void
on_read(void *arg, uint64_t number)
{
	struct peer *p = arg;

	add_bytes(p, slots + (p - peer) * AREA + number % SCAN_PARTS * SLOT,
		p->part[number % SCAN_PARTS].length);
	p->read++;
	free_part(p, p->part[number % SCAN_PARTS].addr);
}

static const struct xfer_qp_ops ops = {
	.message = on_message, .forged = on_forged, .written = on_written, .done = on_read};

static void
on_event(struct peer *p, const struct rdma_event *event)
{
	struct xfer_endpoint client = {.qpn = p->link.qpn}, end = {.qpn = event->remote_qpn};
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_storage addr = {0};
	uint8_t keys[2][XFER_MAC_BYTES];
	struct scan_reject reject;

	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		inet_pton(AF_INET, "10.0.0.1", &in.sin_addr);
		memcpy(&addr, &in, sizeof(in));
		xfer_qp_address(&addr, client.addr);
		inet_pton(AF_INET, "10.0.0.2", &in.sin_addr);
		memcpy(&addr, &in, sizeof(in));
		xfer_qp_address(&addr, end.addr);
		assert_int_equal(scan_proof_claim(&p->proof, event->private_data,
					 event->private_len, &client, &end),
			SCAN_REASON_NONE);
		assert_int_equal(scan_proof_session(&p->proof, keys), 0);
		assert_int_equal(xfer_qp_seal_keys(&p->link, keys[0], keys[1]), 0);
		say(p, &p->proof.request, sizeof(p->proof.request));
		break;
	case RDMA_EVENT_REJECTED:
		memcpy(&reject, event->private_data, sizeof(reject));
		p->refused = reject.reason;
		p->gone = true;
		break;
	case RDMA_EVENT_UNREACHABLE:
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		(void)xfer_qp_poll(&p->link);
		p->gone = true;
		break;
	default:
		break;
	}
}

static void
turn(void)
{
	struct rdma_event event[4];
	struct rte_mbuf *m;
	unsigned int i, n;

	for (i = 0; i < 2; i++) {
		while (rte_ring_dequeue(tx[i], (void **)&m) == 0) {
			if (rte_ring_enqueue(rx[!i], m) < 0)
				rte_pktmbuf_free(m);
		}
	}
	if (server != NULL && !stopped && !scan_server_poll(server))
		usleep(20);
	(void)rdma_progress(dev, 0);
	n = rdma_poll_cm(dev, event, 4);
	for (i = 0; i < n; i++) {
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			on_event(rdma_conn_context(event[i].conn), &event[i]);
	}
	for (i = 0; i < PEERS; i++) {
		if (peer[i].link_is_open && !peer[i].deaf)
			(void)xfer_qp_poll(&peer[i].link);
	}
}

#define wait_for(what)                                                       \
	do {                                                                 \
		const uint64_t until_ = xfer_qp_clock() + SECONDS * 1000;    \
		while (!(what)) {                                            \
			turn();                                              \
			if (xfer_qp_clock() > until_)                        \
				fail_msg("not in %d s: %s", SECONDS, #what); \
		}                                                            \
	} while (0)

static struct peer *
call_version(unsigned int i, const char *name, const struct xfer_key *k, uint16_t version)
{
	const struct xfer_qp_config config = {.dev = dev,
		.pd = pd,
		.receives = receives,
		.writes = SCAN_PARTS,
		.ops = &ops,
		.arg = &peer[i]};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(SCAN_PORT)};
	struct peer *p = &peer[i];
	struct rdma_conn_attr attr = {.private_data = &p->proof.call,
		.private_len = sizeof(p->proof.call),
		.context = p,
		.timeout_ms = SECONDS * 1000};

	memset(p, 0, sizeof(*p));
	assert_int_equal(xfer_qp_open(&p->link, &config), 0);
	p->link_is_open = true;
	assert_int_equal(xfer_qp_extend(&p->link), 0);
	assert_int_equal(scan_proof_call(&p->proof, name, k), SCAN_REASON_NONE);
	p->proof.call.version = version;
	inet_pton(AF_INET, "10.0.0.2", &to.sin_addr);
	p->conn = rdma_conn_connect(p->link.qp, (const struct sockaddr *)&to, &attr);
	assert_non_null(p->conn);
	return p;
}

static struct peer *
call(unsigned int i, const char *name, const struct xfer_key *k)
{
	return call_version(i, name, k, SCAN_VERSION);
}

static void
hang_up(struct peer *p)
{
	if (p->conn != NULL)
		(void)rdma_conn_destroy(p->conn);
	p->conn = NULL;
	while (p->link_is_open && xfer_qp_close(&p->link) < 0)
		turn();
	p->link_is_open = false;
}

/* Until the engines of all sessions but `nb` have ended: an identity may have few. */
static void
wait_for_sessions(uint64_t nb)
{
	wait_for(scan_server_get_counters(server)->sessions_current <= nb);
}

static void
grant(struct peer *p)
{
	struct scan_grant m;

	scan_msg_begin(&m, SCAN_GRANT, sizeof(m), 0);
	m.addr = (uintptr_t)slots + (p - peer) * AREA;
	m.slot_bytes = SLOT;
	m.nb = SLOTS;
	m.rkey = rdma_mr_rkey(mr);
	say(p, &m, sizeof(m));
}

/* Call until the server has room: engines of clients before may not have ended yet. */
static struct peer *
call_until_up(unsigned int i)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;
	struct peer *p;

	for (;;) {
		p = call(i, "ana", &key[0]);
		wait_for(p->up || p->gone || p->refused);
		if (p->up)
			return p;
		assert_int_equal(p->refused, SCAN_REASON_SESSIONS);
		assert_true(xfer_qp_clock() < until);
		hang_up(p);
	}
}

static struct peer *
connect_peer(unsigned int i)
{
	struct peer *p = call_until_up(i);

	grant(p);
	return p;
}

/* Connect a client that reads bodies. */
static struct peer *
connect_puller(unsigned int i)
{
	struct peer *p = call_until_up(i);
	struct scan_grant m;

	p->pull = true;
	scan_msg_begin(&m, SCAN_GRANT, sizeof(m), 0);
	m.head.flags = SCAN_PULL;
	m.slot_bytes = SLOT;
	say(p, &m, sizeof(m));
	return p;
}

static void
ask(struct peer *p, const char *sql)
{
	static union {
		struct scan_query m;
		uint8_t bytes[SCAN_MSG_MAX];
	} m;
	const size_t length = strlen(sql);

	assert_true(length <= SCAN_QUERY_PART);
	p->messages = p->records = p->pushed = p->written = 0;
	p->bytes = p->sum = 0;
	p->announced = p->read = 0;
	p->schema_number = UINT32_MAX;
	p->ended = false;
	p->error = 0;
	memset(p->text, 0, sizeof(p->text));
	scan_msg_begin(&m, SCAN_QUERY, sizeof(m.m) + length, 0);
	m.m.cursor = ++p->cursor;
	m.m.total = length;
	memcpy(m.m.bytes, sql, length);
	say(p, &m, m.m.head.length);
}

static void
cancel(struct peer *p)
{
	struct scan_cancel m;

	scan_msg_begin(&m, SCAN_CANCEL, sizeof(m), 0);
	m.cursor = p->cursor;
	say(p, &m, sizeof(m));
}

/* ---- a server -------------------------------------------------------------------------------- */

static void
open_server(const struct scan_server_config *more)
{
	struct scan_server_config config = *more;
	char message[PATH_MAX], keys[64];

	snprintf(keys, sizeof(keys), "%s/keys.ini", dir);
	config.device = "roce:port=net_ring_serve1,ip=10.0.0.2/24";
	config.keys = keys;
	config.worker.api = &api;
	config.worker.path = path;
	config.worker.nb_paths = 1;
	config.worker.threads = 1;
	config.worker.memory = "100MB";
	if (scan_server_open(&server, &config, message) < 0)
		fail_msg("%s", message);
}

static void
close_server(void)
{
	unsigned int i;

	for (i = 0; i < PEERS; i++)
		hang_up(&peer[i]);
	scan_server_stop(server);
	wait_for(scan_server_is_idle(server));
	scan_server_close(server);
	server = NULL;
}

static int
no_server(void **state)
{
	stopped = false;
	receives = 64;
	if (server != NULL)
		close_server();
	return 0;
}

static const struct scan_server_config plain;

static void
write_run(void)
{
	char command[256];

	snprintf(command, sizeof(command), "rm -f %s/lyso_1_*; '%s' %s lyso_1 float32 2 200 1", dir,
		getenv("ARROW_WRITE"), dir);
	assert_int_equal(system(command), 0);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* A small result is one message: columns, schema, batch, body, end. */
static void
inline_result(void **state)
{
	struct peer *p;

	open_server(&plain);
	p = connect_peer(0);
	ask(p, "SELECT 42 AS x");
	wait_for(p->ended);
	assert_int_equal(p->error, 0);
	assert_int_equal(p->messages, 1);
	assert_int_equal(p->records, 5);
	assert_int_equal(p->pushed, 0);
	ask(p, "SELECT 1 WHERE false");
	wait_for(p->ended);
	assert_int_equal(p->messages, 1);
	assert_int_equal(p->records, 3);
}

/* Get a result, and check how its schema came. */
static void
expect_schema(struct peer *p, const char *sql, enum scan_kind kind, uint32_t number)
{
	ask(p, sql);
	wait_for(p->ended);
	assert_int_equal(p->error, 0);
	assert_int_equal(p->schema, kind);
	assert_int_equal(p->schema_number, number);
}

/* A schema is sent once, until SCAN_SCHEMAS others have replaced it. */
static void
kept_schemas(void **state)
{
	struct peer *p, *other;
	char sql[64];
	uint32_t i;

	open_server(&plain);
	p = connect_peer(0);
	expect_schema(p, "SELECT 42 AS x", SCAN_METADATA, 1);
	expect_schema(p, "SELECT 43 AS x", SCAN_SCHEMA, 1);
	assert_int_equal(p->messages, 1);
	assert_int_equal(p->records, 5);
	/* another name, another type */
	expect_schema(p, "SELECT 42 AS y", SCAN_METADATA, 2);
	expect_schema(p, "SELECT 42::BIGINT AS x", SCAN_METADATA, 3);
	for (i = 4; i <= SCAN_SCHEMAS; i++) {
		snprintf(sql, sizeof(sql), "SELECT 42 AS x%u", i);
		expect_schema(p, sql, SCAN_METADATA, i);
	}
	expect_schema(p, "SELECT 44 AS x", SCAN_SCHEMA, 1);
	expect_schema(p, "SELECT 42 AS z", SCAN_METADATA, 1);
	expect_schema(p, "SELECT 43 AS y", SCAN_SCHEMA, 2);
	expect_schema(p, "SELECT 45 AS x", SCAN_METADATA, 2);
	/* each session has its own */
	other = connect_peer(1);
	expect_schema(other, "SELECT 42 AS z", SCAN_METADATA, 1);
}

/* A schema that may not have reached the client is sent again. One of several records always is. */
static void
schemas_that_are_not_kept(void **state)
{
	static const char sql[] =
		"SELECT CASE WHEN i = %u THEN error('x') ELSE i END AS z FROM range(50000) t(i)";
	char text[SCAN_QUERY_PART];
	struct peer *p;
	size_t length;
	unsigned int i;

	open_server(&plain);
	p = connect_peer(0);
	/* the first one fails when the schema was sent, the second one before */
	for (i = 40000; i < 100000; i += 20000) {
		snprintf(text, sizeof(text), sql, i == 60000 ? 1 : i);
		ask(p, text);
		wait_for(p->ended);
		assert_int_equal(p->error != 0, i <= 60000);
		assert_int_equal(p->schema_number, i == 60000 ? UINT32_MAX : 1);
		assert_int_equal(p->schema, SCAN_METADATA);
	}
	expect_schema(p, "SELECT i AS z FROM range(2) t(i)", SCAN_SCHEMA, 1);
	length = snprintf(text, sizeof(text), "SELECT 1");
	while (length < 400)
		length += snprintf(text + length, sizeof(text) - length, ",1");
	for (i = 0; i < 2; i++)
		expect_schema(p, text, SCAN_METADATA, 0);
}

/* A large one is written to slots; each body is larger than a slot here. */
static void
pushed_result(void **state)
{
	struct peer *p;

	open_server(&plain);
	p = connect_peer(0);
	ask(p, "SELECT i, list_value(i, i, i, i, i, i, i, i) l FROM range(20000) t(i)");
	wait_for(p->ended && p->written == p->pushed);
	assert_int_equal(p->error, 0);
	assert_true(p->bytes >= 20000 * 9 * 8);
	assert_true(p->pushed >= 20000 * 9 * 8 / SLOT);
	assert_int_equal(scan_server_get_counters(server)->pushed_bytes, p->bytes);
}

/* Bodies are read by the client, with one READ for each part, and the same bytes come. */
static void
pulled_result(void **state)
{
	const struct scan_server_counters *n;
	uint64_t sum = 0, i;
	struct peer *p;

	open_server(&plain);
	n = scan_server_get_counters(server);
	p = connect_puller(0);
	ask(p, "SELECT i FROM range(100000) t(i)");
	wait_for(p->ended && p->read == p->announced);
	assert_int_equal(p->error, 0);
	for (i = 0; i < 100000; i++)
		sum += (i & 0xff) + (i >> 8 & 0xff) + (i >> 16);
	assert_int_equal(p->sum, sum);
	assert_true(p->bytes >= 800000 && p->announced >= 800000 / SLOT);
	assert_int_equal(n->pulled_bytes, p->bytes);
	assert_int_equal(n->pushed_bytes, 0);
	wait_for(n->held_bytes == 0);
	/* a body is larger than all of the memory for parts */
	ask(p, "SELECT list(i) FROM range(200000) t(i)");
	wait_for(p->ended && p->read == p->announced);
	assert_int_equal(p->error, 0);
	assert_true(p->announced > 2 * SCAN_PARTS);
	/* small bodies still come in the message */
	ask(p, "SELECT 42 AS x");
	wait_for(p->ended);
	assert_int_equal(p->records, 5);
	assert_int_equal(p->announced, 0);
}

/* Parts of deferred lists are bytes that do not change, also if the file does. */
static void
pulled_lists(void **state)
{
	static const char sql[] = "SELECT value FROM lyso_1.images WHERE frame < 60";
	const struct scan_work *n;
	unsigned int i, parts;
	struct peer *p;
	uint64_t sum;
	char file[64];

	write_run();
	open_server(&plain);
	n = &scan_server_get_counters(server)->work;
	p = connect_puller(0);
	ask(p, sql);
	wait_for(p->ended && p->read == p->announced);
	assert_int_equal(p->error, 0);
	sum = p->sum;
	parts = p->announced;
	assert_in_range(parts, 2, SCAN_PARTS);
	assert_true(n->deferred_bytes > 0 && n->gathered_bytes == 0);
	/* besides these, offsets are made */
	assert_true(n->copied_bytes >= n->result_bytes);
	assert_true(n->copied_bytes - n->result_bytes <= n->result_bytes - n->deferred_bytes);
	p->lazy = true;
	ask(p, sql);
	wait_for(p->ended);
	assert_int_equal(p->announced, parts);
	snprintf(file, sizeof(file), "%s/lyso_1_images.arrow", dir);
	assert_int_equal(truncate(file, 8192), 0);
	for (i = 0; i < parts; i++) {
		p->announced = i;
		read_part(p, p->part[i].addr, p->part[i].rkey, p->part[i].length);
	}
	wait_for(p->read == parts);
	assert_int_equal(p->sum, sum);
}

/* A client that frees nothing stops its own query, and its session ends after a time. */
static void
never_frees(void **state)
{
	const struct scan_server_counters *n;
	struct peer *lazy, *p;

	open_server(&(struct scan_server_config){.hold_ms = 1000});
	n = scan_server_get_counters(server);
	p = connect_peer(1);
	lazy = connect_puller(0);
	lazy->lazy = true;
	ask(lazy, "SELECT * FROM range(10000000)");
	wait_for(lazy->announced == SCAN_PARTS);
	wait_for(n->held_bytes >= SCAN_PARTS * SLOT / 2);
	assert_true(n->held_bytes <= SCAN_PARTS * SLOT);
	ask(p, "SELECT * FROM range(50000)");
	wait_for(p->ended);
	assert_int_equal(p->error, 0);
	assert_int_equal(lazy->announced, SCAN_PARTS);
	wait_for(lazy->refused);
	assert_int_equal(lazy->refused, SCAN_REASON_HELD);
	assert_int_equal(n->refused[SCAN_REASON_HELD], 1);
	wait_for(n->held_bytes == 0 && n->sessions_current == 1);
	/* also parts of a result that has ended */
	lazy = connect_puller(2);
	lazy->lazy = true;
	ask(lazy, "SELECT * FROM range(5000)");
	wait_for(lazy->ended);
	wait_for(lazy->refused);
	assert_int_equal(lazy->refused, SCAN_REASON_HELD);
	ask(p, "SELECT 1");
	wait_for(p->ended);
	assert_int_equal(p->error, 0);
}

/* A query is cancelled whose parts are not freed; they can still be read and freed. */
static void
cancelled_pull(void **state)
{
	struct peer *p;
	unsigned int i;

	open_server(&plain);
	p = connect_puller(0);
	p->lazy = true;
	ask(p, "SELECT * FROM range(10000000)");
	wait_for(p->announced == SCAN_PARTS);
	cancel(p);
	wait_for(p->ended);
	assert_string_equal(p->sqlstate, "57014");
	for (i = 0; i < SCAN_PARTS - 1; i++)
		free_part(p, p->part[i].addr);
	/* only one part is still held: the next result comes through the others */
	give_credit(p, p->messages, -1);
	p->lazy = false;
	ask(p, "SELECT * FROM range(200000)");
	wait_for(p->ended && p->read == p->announced);
	assert_int_equal(p->error, 0);
	assert_true(p->announced > SCAN_PARTS);
	assert_int_equal(p->refused, 0);
}

/* Only parts that the session holds can be freed. */
static void
wrong_frees(void **state)
{
	struct peer *p, *other;
	uint64_t addr;
	unsigned int i;

	open_server(&plain);
	other = connect_puller(1);
	other->lazy = true;
	ask(other, "SELECT * FROM range(10000000)");
	wait_for(other->announced == SCAN_PARTS);
	for (i = 0; i < 6; i++) {
		/* a client with slots has no parts */
		p = i == 5 ? connect_peer(0) : connect_puller(0);
		p->lazy = true;
		ask(p, "SELECT * FROM range(10000000)");
		wait_for(p->announced == SCAN_PARTS || p->written == SLOTS);
		addr = p->part[0].addr;
		if (i == 0)
			addr += 64; /* within a part */
		else if (i == 1)
			addr = 64;
		else if (i == 2)
			addr = UINT64_MAX - 63;
		else if (i == 3)
			addr = other->part[0].addr;
		else if (i == 4)
			free_part(p, addr); /* and once more */
		else
			addr = other->part[0].addr;
		free_part(p, addr);
		wait_for(p->refused);
		assert_int_equal(p->refused, SCAN_REASON_ORDER);
		hang_up(p);
	}
	assert_int_equal(other->refused, 0);
	for (i = 0; i < SCAN_PARTS; i++)
		free_part(other, other->part[i].addr);
	give_credit(other, other->messages, -1);
	other->lazy = false;
	cancel(other);
	wait_for(other->ended);
	assert_string_equal(other->sqlstate, "57014");
}

/* A key is of no use to another session, and for nothing but reading. */
static void
foreign_keys(void **state)
{
	const uint32_t imm = 0;
	struct rdma_sge sg;
	struct peer *p, *other;
	unsigned int i;

	open_server(&plain);
	other = connect_puller(1);
	other->lazy = true;
	ask(other, "SELECT * FROM range(10000000)");
	wait_for(other->announced == SCAN_PARTS);
	for (i = 0; i < 3; i++) {
		p = i == 2 ? connect_puller(0) : connect_peer(0);
		p->lazy = true;
		ask(p, "SELECT * FROM range(10000000)");
		wait_for(p->announced == SCAN_PARTS || p->written == SLOTS);
		sg = (struct rdma_sge){(uintptr_t)slots, 64, rdma_mr_lkey(mr)};
		if (i == 0)
			read_part(p, other->part[0].addr, other->part[0].rkey, 64);
		else if (i == 1)
			(void)xfer_qp_write(&p->link, 0, &sg, 1, other->part[0].addr,
				other->part[0].rkey, &imm);
		else
			(void)xfer_qp_write(
				&p->link, 0, &sg, 1, p->part[0].addr, p->part[0].rkey, &imm);
		wait_for(p->link.broken || p->gone);
		assert_int_equal(p->read, 0);
		hang_up(p);
	}
	assert_false(other->link.broken || other->gone);
	other->lazy = false;
	for (i = 0; i < SCAN_PARTS; i++)
		free_part(other, other->part[i].addr);
	give_credit(other, other->messages, -1);
	cancel(other);
	wait_for(other->ended);
}

/* A client that takes nothing has all its slots filled, and stops only its own query. */
static void
stopped_client(void **state)
{
	struct peer *lazy, *p;
	unsigned int i;

	open_server(&plain);
	lazy = connect_peer(0);
	p = connect_peer(1);
	lazy->lazy = true;
	ask(lazy, "SELECT * FROM range(10000000)");
	wait_for(lazy->written == SLOTS);
	for (i = 0; i < 5; i++) {
		ask(p, "SELECT * FROM range(50000)");
		wait_for(p->ended);
		assert_int_equal(p->error, 0);
	}
	assert_int_equal(lazy->pushed, SLOTS);
	assert_false(lazy->ended);
	cancel(lazy);
	wait_for(lazy->ended);
	assert_string_equal(lazy->sqlstate, "57014");
	assert_int_equal(lazy->error, ECANCELED);
	/* the session goes on, with another engine */
	for (i = 0; i < SLOTS; i++)
		give_credit(lazy, 0, i);
	give_credit(lazy, lazy->messages, -1);
	lazy->lazy = false;
	ask(lazy, "SELECT * FROM range(100000)");
	wait_for(lazy->ended);
	assert_int_equal(lazy->error, 0);
	assert_int_equal(scan_server_get_counters(server)->cancelled, 1);
}

static void
cancelled(void **state)
{
	struct peer *p;
	unsigned int i;

	open_server(&plain);
	p = connect_peer(0);
	for (i = 0; i < 3; i++) {
		ask(p, ENDLESS);
		cancel(p);
		cancel(p);
		wait_for(p->ended);
		assert_string_equal(p->sqlstate, "57014");
	}
	/* a query that has ended is not cancelled */
	ask(p, "SELECT 1");
	wait_for(p->ended);
	cancel(p);
	ask(p, "SELECT 2");
	wait_for(p->ended);
	assert_int_equal(p->error, 0);
	/* each query counts once, and one that has ended does not */
	assert_int_equal(scan_server_get_counters(server)->cancelled, 3);
}

/*
 * Ask for a result that is not sent, because the server is not polled from then on.
 * @param batches  out: number of batches before
 */
static struct peer *
ask_in_vain(uint64_t until, uint64_t *batches)
{
	const struct scan_server_counters *n = scan_server_get_counters(server);
	uint64_t queries, bytes;
	struct peer *p;

	for (;;) {
		p = connect_peer(0);
		p->lazy = true;
		queries = n->queries;
		bytes = n->inline_bytes;
		*batches = __atomic_load_n(&n->work.batches, __ATOMIC_RELAXED);
		ask(p, "SELECT * FROM range(100000)");
		wait_for(n->queries > queries);
		stopped = true;
		if (n->inline_bytes == bytes)
			return p;
		/* the engine was so fast that the server sent the schema in the same turn */
		assert_true(xfer_qp_clock() < until);
		stopped = false;
		hang_up(p);
		wait_for_sessions(0);
	}
}

/* Have the engine queue a result that is not sent, and the client send something. */
static struct peer *
queue_result(void)
{
	const struct scan_server_counters *n = scan_server_get_counters(server);
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;
	uint64_t batches;
	struct peer *p = ask_in_vain(until, &batches);

	while (__atomic_load_n(&n->work.batches, __ATOMIC_RELAXED) < batches + 2) {
		assert_true(xfer_qp_clock() < until);
		usleep(100);
	}
	return p;
}

/* Messages and slots are not returned before the server has used them. */
static void
early_credit(void **state)
{
	struct peer *p;
	unsigned int i;

	open_server(&plain);
	for (i = 0; i < 2; i++) {
		p = queue_result();
		give_credit(p, i == 0, i == 0 ? -1 : 0);
		turn();
		stopped = false;
		wait_for(p->refused || p->ended);
		assert_int_equal(p->refused, SCAN_REASON_ORDER);
		assert_int_equal(p->messages, 0);
		hang_up(p);
		wait_for_sessions(0);
	}
}

/* A client hears why it is refused, also if it is so slow that no more messages can be sent. */
static void
reason_reaches_a_slow_client(void **state)
{
	static char sql[SCAN_QUERY_PART];
	struct peer *p;
	size_t length;
	uint64_t until;

	length = snprintf(sql, sizeof(sql), "SELECT 1");
	while (length < 3000)
		length += snprintf(sql + length, sizeof(sql) - length, ",1");
	receives = 1;
	open_server(&plain);
	p = connect_peer(0);
	p->deaf = true;
	/* the schema has more bytes than the receives and the messages in flight */
	ask(p, sql);
	wait_for(scan_server_get_counters(server)->inline_bytes > 40 * SCAN_RECORD_PART);
	for (until = xfer_qp_clock() + 100; xfer_qp_clock() < until;)
		turn();
	scan_server_stop(server);
	for (until = xfer_qp_clock() + 100; xfer_qp_clock() < until;)
		turn();
	p->deaf = false;
	wait_for(p->refused || p->gone);
	assert_int_equal(p->refused, SCAN_REASON_STOPPING);
}

static void
deadline(void **state)
{
	struct peer *p;

	open_server(&(struct scan_server_config){.deadline_ms = 50});
	p = connect_peer(0);
	ask(p, ENDLESS);
	wait_for(p->ended);
	assert_string_equal(p->sqlstate, "57014");
	assert_int_equal(p->error, ETIMEDOUT);
	assert_non_null(strstr(p->text, "longer than 0.05 s, the server's --deadline:"));
	assert_int_equal(scan_server_get_counters(server)->deadlines, 1);
}

static void
idle(void **state)
{
	struct peer *p;

	open_server(&(struct scan_server_config){.idle_ms = 50});
	p = connect_peer(0);
	wait_for(p->refused);
	assert_int_equal(p->refused, SCAN_REASON_IDLE);
	wait_for(scan_server_is_idle(server));
}

/* A client that is gone in the middle of a result frees everything. */
static void
killed(void **state)
{
	struct peer *p;
	unsigned int i;

	open_server(&plain);
	for (i = 0; i < 3; i++) {
		p = connect_peer(i);
		p->lazy = i == 1;
		ask(p, i == 2 ? ENDLESS : "SELECT * FROM range(100000000)");
		wait_for(i == 2 || p->written > 2);
	}
	for (i = 0; i < 3; i++)
		hang_up(&peer[i]);
	wait_for(scan_server_is_idle(server));
	/* also in the middle of READs, and with parts that are not freed */
	for (i = 0; i < 3; i++) {
		p = connect_puller(i);
		p->lazy = i == 1;
		ask(p, "SELECT * FROM range(100000000)");
		wait_for(p->read > 2 || (i == 1 && p->announced == SCAN_PARTS));
	}
	for (i = 0; i < 3; i++)
		hang_up(&peer[i]);
	wait_for(scan_server_is_idle(server));
	wait_for(scan_server_get_counters(server)->held_bytes == 0);
	p = connect_peer(0);
	ask(p, "SELECT 1");
	wait_for(p->ended);
}

static void
rights(void **state)
{
	static const struct {
		const char *name;
		unsigned int key;
		enum scan_reason reason;
	} wrong[] = {
		{"ana", 1, SCAN_REASON_KEY},
		{"writer", 0, SCAN_REASON_KEY},
		{"writer", 1, SCAN_REASON_RIGHTS},
		{"nobody", 0, SCAN_REASON_KEY},
	};
	struct peer *p;
	unsigned int i;

	open_server(&plain);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		p = call(i % PEERS, wrong[i].name, &key[wrong[i].key]);
		wait_for(p->refused);
		assert_int_equal(p->refused, wrong[i].reason);
		assert_false(p->up);
		hang_up(p);
	}
}

static void
limits(void **state)
{
	struct peer *p;
	uint64_t lost, until;
	unsigned int length;
	char sql[128];

	open_server(&(struct scan_server_config){.sessions = 2});
	(void)connect_peer(0);
	(void)connect_peer(1);
	p = call(2, "ana", &key[0]);
	wait_for(p->refused);
	assert_int_equal(p->refused, SCAN_REASON_BUSY);
	close_server();
	/* `connections` of the identity is 3 */
	open_server(&plain);
	(void)connect_peer(0);
	(void)connect_peer(1);
	(void)connect_peer(2);
	p = call(3, "ana", &key[0]);
	wait_for(p->refused);
	assert_int_equal(p->refused, SCAN_REASON_SESSIONS);
	/*
	 * Also of a client that is gone, while its engine does not notice the interrupt. On a busy
	 * machine the engine may end before the server notices that the client is gone: it then
	 * gets more to do.
	 */
	for (length = 36000;; length = length * 3 / 2) {
		lost = scan_server_get_counters(server)->lost;
		snprintf(sql, sizeof(sql), "SELECT levenshtein(repeat('a', %u), repeat('b', %u))",
			length, length);
		ask(&peer[2], sql);
		for (until = xfer_qp_clock() + 300; xfer_qp_clock() < until;)
			turn();
		hang_up(&peer[2]);
		wait_for(scan_server_get_counters(server)->lost > lost);
		hang_up(p);
		p = call(3, "ana", &key[0]);
		wait_for(p->refused || p->up);
		if (p->refused || length > 150000)
			break;
		hang_up(p);
		wait_for_sessions(2);
		(void)connect_peer(2);
	}
	assert_int_equal(p->refused, SCAN_REASON_SESSIONS);
	/* an engine has no more memory than it may have */
	ask(&peer[0], "SELECT list(i) FROM range(100000000) t(i)");
	wait_for(peer[0].ended);
	assert_non_null(strstr(peer[0].text, "memory"));
}

static void
statements(void **state)
{
	static const char *const wrong[] = {"SELEC 1", "SELECT 1; SELECT 2",
		"CREATE TABLE t (i INT)", "COPY (SELECT 1) TO '/tmp/x'", "SET threads = 4",
		"ATTACH '/tmp/x'", "SELECT * FROM read_csv('/etc/passwd')",
		"SELECT * FROM '/etc/passwd'", "SELECT * FROM secret.frames", "PRAGMA version",
		"SELECT getenv('HOME')", "SELECT $1", "FROM pg_settings",
		"FROM system.pg_catalog.pg_settings"};
	struct peer *p;
	size_t i;

	open_server(&plain);
	p = connect_peer(0);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ask(p, wrong[i]);
		wait_for(p->ended);
		if (p->error == 0)
			fail_msg("accepted: %s", wrong[i]);
		assert_true(p->text[0] != '\0');
	}
	/* an error in mid-stream, after batches */
	ask(p, "SELECT CASE i WHEN 1900000 THEN error('mid') ELSE i END FROM range(2000000) t(i)");
	wait_for(p->ended);
	assert_true(p->bytes > 0);
	assert_non_null(strstr(p->text, "mid"));
	assert_string_equal(p->sqlstate, "58000");
	/* a text that is too long ends after a character */
	for (i = 0; i < 2; i++) {
		ask(p,
			i == 0 ? "SELECT error(repeat('ä', 3000))"
			       : "SELECT error('x' || repeat('ä', 3000))");
		wait_for(p->ended);
		assert_int_equal(strlen(p->text), SCAN_ERROR_TEXT - (i == 0));
		assert_string_equal(p->text + strlen(p->text) - 2, "ä");
	}
}

/* Long lists of files are written to slots from the files, and all else is copied once before. */
static void
deferred_lists(void **state)
{
	const struct scan_work *n;
	struct scan_work before;
	struct peer *p;

	write_run();
	open_server(&plain);
	n = &scan_server_get_counters(server)->work;
	p = connect_peer(0);
	ask(p, "SELECT value FROM lyso_1.images");
	wait_for(p->ended && p->written == p->pushed);
	assert_int_equal(p->error, 0);
	assert_int_equal(n->deferred, 1);
	assert_int_equal(n->result_bytes, p->bytes);
	assert_true(n->batches > 0);
	assert_true(n->deferred_bytes > 100000);
	assert_true(n->gathered_bytes > n->deferred_bytes / 2);
	assert_true(n->gathered_bytes <= n->deferred_bytes);
	/* besides these, offsets are made */
	assert_true(n->copied_bytes + n->gathered_bytes >= n->result_bytes);
	assert_true(n->copied_bytes + n->gathered_bytes - n->result_bytes <=
		n->result_bytes - n->deferred_bytes);
	/* numbers, too; what the engine must convert is copied twice */
	before = *n;
	ask(p, "SELECT i FROM range(100000) t(i)");
	wait_for(p->ended && p->written == p->pushed);
	assert_int_equal(n->deferred, 1);
	assert_true(n->result_bytes - before.result_bytes >= 800000);
	assert_in_range(n->copied_bytes - before.copied_bytes, 800000, 801000 + 49 * 64);
	before = *n;
	ask(p, "SELECT len(value) l, value v FROM lyso_1.images ORDER BY len(v), frame");
	wait_for(p->ended && p->written == p->pushed);
	assert_int_equal(p->error, 0);
	assert_int_equal(n->deferred, 1);
	assert_int_equal(n->gathered_bytes, before.gathered_bytes);
	assert_true(n->copied_bytes - before.copied_bytes >
		(n->result_bytes - before.result_bytes) * 19 / 10);
	assert_int_equal(n->failed, 0);
}

static void
reg_none(void *arg, struct scan_mapping *file)
{
}

static bool
dereg_none(void *arg, struct scan_mapping *file)
{
	return true;
}

static void
wait_for_activity(const struct scan_worker *w, enum scan_activity activity)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;

	while (scan_worker_activity(w) != activity) {
		assert_true(xfer_qp_clock() < until);
		usleep(100);
	}
}

/* A query begins while the engine of the one before waits for the lcore: it still waits. */
static void
query_while_files_are_left(void **state)
{
	static const struct xfer_identity identity = {
		.name = "ana", .run = {"*"}, .nb_runs = 1, .rights = XFER_RIGHT_READ};
	static uint8_t stage[SCAN_STAGES * SLOT];
	static struct scan_work work;
	const struct scan_worker_config config = {.api = &api,
		.path = path,
		.nb_paths = 1,
		.threads = 1,
		.memory = "100MB",
		.identity = &identity,
		.work = &work,
		.gather = true};
	const struct scan_worker_memory memory = {
		.slots = SLOTS, .part_bytes = SLOT, .stage = stage};
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;
	struct scan_worker *w;
	struct scan_output out;
	unsigned int ended = 0;

	write_run();
	w = scan_worker_create(&config);
	assert_non_null(w);
	scan_worker_grant(w, &memory);
	assert_true(
		scan_worker_query(w, 1, SCAN_NATIVE, strdup("SELECT value FROM lyso_1.images")));
	/* for the registration of its file */
	wait_for_activity(w, SCAN_WAITS);
	assert_true(scan_worker_cancel(w, 1, SCAN_END_CANCELLED));
	wait_for_activity(w, SCAN_IDLE);
	/* the engine closes, and waits for the end of the registration */
	usleep(100000);
	assert_true(scan_worker_query(w, 2, SCAN_NATIVE, strdup("SELECT 1")));
	wait_for_activity(w, SCAN_WAITS);
	while (ended < 2) {
		assert_true(xfer_qp_clock() < until);
		scan_worker_files(w, reg_none, dereg_none, NULL);
		if (!scan_worker_peek(w, 0, &out)) {
			usleep(100);
			continue;
		}
		ended += out.last;
		scan_worker_taken(w);
	}
	scan_worker_stop(w);
	while (!scan_worker_destroy(w)) {
		scan_worker_files(w, reg_none, dereg_none, NULL);
		usleep(100);
	}
}

static bool one_cpu;		/* engines have one CPU, and poll for long; atomic */
static unsigned int nb_polling; /* engines; atomic */

void __real_process_cpus_others(cpu_set_t *others);
void __wrap_process_cpus_others(cpu_set_t *others);
bool __real_poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg);
bool __wrap_poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg);

void
__wrap_process_cpus_others(cpu_set_t *others)
{
	__real_process_cpus_others(others);
	if (!__atomic_load_n(&one_cpu, __ATOMIC_RELAXED))
		return;
	CPU_ZERO(others);
	CPU_SET(0, others);
}

bool
__wrap_poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;

	if (!__atomic_load_n(&one_cpu, __ATOMIC_RELAXED))
		return __real_poll_spin(s, us, happened, arg);
	__atomic_add_fetch(&nb_polling, 1, __ATOMIC_RELAXED);
	while (!happened(arg) && xfer_qp_clock() < until &&
		__atomic_load_n(&one_cpu, __ATOMIC_RELAXED))
		usleep(100);
	__atomic_sub_fetch(&nb_polling, 1, __ATOMIC_RELAXED);
	return happened(arg);
}

static void
wait_for_polling(unsigned int nb)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000 / 2;

	while (__atomic_load_n(&nb_polling, __ATOMIC_RELAXED) != nb) {
		assert_true(xfer_qp_clock() < until);
		usleep(100);
	}
}

/* Take the outputs of a query to its end. */
static void
take_outputs(struct scan_worker *w)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;
	struct scan_output out = {.last = false};

	while (!out.last) {
		assert_true(xfer_qp_clock() < until);
		if (scan_worker_peek(w, 0, &out))
			scan_worker_taken(w);
		else
			usleep(100);
	}
}

/* An engine that polls for its next query ends that when another engine needs its CPU. */
static void
polling_ends_for_another_engine(void **state)
{
	static const struct xfer_identity identity = {.name = "ana", .rights = XFER_RIGHT_READ};
	static struct scan_work work;
	const struct scan_worker_config config = {
		.api = &api, .threads = 1, .memory = "100MB", .identity = &identity, .work = &work};
	struct scan_worker *w[2];
	unsigned int i;

	__atomic_store_n(&one_cpu, true, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++) {
		w[i] = scan_worker_create(&config);
		assert_non_null(w[i]);
	}
	assert_true(scan_worker_query(w[0], 1, SCAN_NATIVE, strdup("SELECT 1")));
	take_outputs(w[0]);
	wait_for_polling(1);
	assert_true(scan_worker_query(w[1], 1, SCAN_NATIVE, strdup(ENDLESS)));
	wait_for_polling(0);
	__atomic_store_n(&one_cpu, false, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++) {
		scan_worker_stop(w[i]);
		while (!scan_worker_destroy(w[i]))
			usleep(100);
	}
}

/* The error names the file, without the directory of the server. */
static void
expect_cut(const struct peer *p)
{
	static const char expected[] = "lyso_1_images.arrow: it was truncated";

	assert_memory_equal(p->text, expected, strlen(expected));
}

/* A file is cut when its lists are queued, and not written yet: none of their bytes are sent. */
static void
cut_file_behind_the_engine(void **state)
{
	static const char sql[] = "SELECT value FROM lyso_1.images";
	const struct scan_server_counters *n;
	uint64_t queries, batches, until;
	struct peer *p, *other;
	char file[64];

	write_run();
	open_server(&plain);
	n = scan_server_get_counters(server);
	p = connect_peer(0);
	other = connect_peer(1);
	ask(p, sql);
	wait_for(p->ended && p->written == p->pushed);
	assert_int_equal(p->error, 0);
	queries = n->queries;
	batches = __atomic_load_n(&n->work.batches, __ATOMIC_RELAXED);
	ask(p, sql);
	wait_for(n->queries > queries);
	/* the lcore does nothing until a batch is made */
	until = xfer_qp_clock() + SECONDS * 1000;
	while (__atomic_load_n(&n->work.batches, __ATOMIC_RELAXED) == batches) {
		assert_true(xfer_qp_clock() < until);
		usleep(100);
	}
	snprintf(file, sizeof(file), "%s/lyso_1_images.arrow", dir);
	assert_int_equal(truncate(file, 8192), 0);
	wait_for(p->ended);
	assert_int_equal(p->error, EIO);
	expect_cut(p);
	assert_int_equal(p->bytes, 0);
	/* the session is usable */
	ask(p, "SELECT count(*) FROM lyso_1.frames");
	wait_for(p->ended);
	assert_int_equal(p->error, 0);
	ask(other, "SELECT count(*) FROM lyso_1.frames");
	wait_for(other->ended);
	assert_int_equal(other->error, 0);
}

/*
 * A file that is cut while it is used is an error of this query only: while its lists are sent, and
 * while the engine reads all rows before the first one is fetched.
 */
static void
cut_file(void **state)
{
	static const char *const sql[] = {"SELECT frame, col, value FROM lyso_1.images",
		"SELECT max(len(col)) FROM lyso_1.images"};
	struct peer *p[2], *other;
	char file[64];
	unsigned int i;

	write_run();
	open_server(&plain);
	other = connect_peer(2);
	/* the CRC of all batches is checked */
	for (i = 0; i < 2; i++) {
		p[i] = connect_peer(i);
		ask(p[i], sql[i]);
		wait_for(p[i]->ended && p[i]->written == p[i]->pushed);
		assert_int_equal(p[i]->error, 0);
		p[i]->bytes = 0;
	}
	snprintf(file, sizeof(file), "%s/lyso_1_images.arrow", dir);
	assert_int_equal(truncate(file, 8192), 0);
	for (i = 0; i < 2; i++) {
		ask(p[i], sql[i]);
		wait_for(p[i]->ended);
		assert_int_equal(p[i]->error, EIO);
		expect_cut(p[i]);
		/* no body of zeros: what came before the error is of the file */
		assert_int_equal(p[i]->bytes, 0);
	}
	assert_int_equal(scan_server_get_counters(server)->work.failed, 2);
	ask(other, "SELECT count(*) FROM lyso_1.frames");
	wait_for(other->ended);
	assert_int_equal(other->error, 0);
}

/* A client of another version is told so, and takes no session. */
static void
versions(void **state)
{
	static const uint16_t version[] = {0, SCAN_VERSION - 1, SCAN_VERSION + 1, UINT16_MAX};
	struct peer *p;
	unsigned int i;

	open_server(&plain);
	for (i = 0; i < sizeof(version) / sizeof(version[0]); i++) {
		p = call_version(0, "ana", &key[0], version[i]);
		wait_for(p->refused);
		assert_int_equal(p->refused, SCAN_REASON_VERSION);
		hang_up(p);
	}
	assert_int_equal(scan_server_get_counters(server)->refused[SCAN_REASON_VERSION], i);
	p = connect_peer(0);
	ask(p, "SELECT 1");
	wait_for(p->ended);
}

/* Each message that breaks a rule ends the session of its client, with the reason. */
static void
hostile(void **state)
{
	struct scan_grant again = {
		.head = {SCAN_GRANT, 0, sizeof(again), 0}, .addr = 64, .slot_bytes = SLOT, .nb = 1};
	struct scan_auth_request auth;
	struct {
		struct scan_credit m;
		uint32_t slot[1];
	} credit = {{{SCAN_CREDIT, 0, sizeof(credit.m) + 4, 0}, 0, 1}, {2}};
	struct scan_credit messages = {{SCAN_CREDIT, 0, sizeof(messages), 0}, 1, 0};
	struct {
		struct scan_query m;
		char sql[8];
	} query = {{{SCAN_QUERY, 0, sizeof(query), 0}, 9, 0, 8, 0}, "SELECT 1"};
	struct scan_data data = {{SCAN_DATA, 0, sizeof(data), 0}, 0, 1};
	const struct {
		const void *message;
		size_t size;
		enum scan_reason reason;
	} wrong[] = {
		{&again, sizeof(again), SCAN_REASON_ORDER},
		{&auth, sizeof(auth), SCAN_REASON_ORDER},
		{&credit, sizeof(credit.m) + 4, SCAN_REASON_ORDER},
		{&messages, sizeof(messages), SCAN_REASON_ORDER},
		{&query, sizeof(query), SCAN_REASON_ORDER},
		{&data, sizeof(data), SCAN_REASON_ORDER},
		{&again, sizeof(again) - 8, SCAN_REASON_MALFORMED},
	};
	struct peer *p;
	unsigned int i;

	open_server(&plain);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		p = connect_peer(0);
		auth = p->proof.request;
		say(p, wrong[i].message, wrong[i].size);
		wait_for(p->refused);
		assert_int_equal(p->refused, wrong[i].reason);
		hang_up(p);
		wait_for_sessions(0);
	}
	/* a message with a wrong code */
	p = connect_peer(0);
	xfer_seal_close(&p->link.send);
	assert_int_equal(xfer_seal_open(&p->link.send, key[1].bytes), 0);
	say(p, &again, sizeof(again));
	wait_for(p->refused);
	assert_int_equal(p->refused, SCAN_REASON_FORGED);
	hang_up(p);
	wait_for_sessions(0);
	/* a second query before the first one has ended */
	p = connect_peer(0);
	ask(p, ENDLESS);
	ask(p, "SELECT 1");
	wait_for(p->refused);
	assert_int_equal(p->refused, SCAN_REASON_ORDER);
}

/* Random messages with right codes and numbers: the server stays, and serves others. */
static void
random_messages(void **state)
{
	const char *text = getenv("SERVE_SEED");
	unsigned int seed = text != NULL ? strtoul(text, NULL, 0) : (unsigned int)getpid(), i, k;
	uint8_t message[256] __attribute__((aligned(8)));
	struct scan_msg *m = (struct scan_msg *)message;
	struct peer *p, *good;

	printf("SERVE_SEED=%u\n", seed);
	open_server(&plain);
	good = connect_peer(1);
	for (i = 0; i < 40; i++) {
		p = i % 2 == 0 ? connect_peer(0) : connect_puller(0);
		for (k = 0; k < sizeof(message); k++)
			message[k] = rand_r(&seed) % 3 ? 0 : rand_r(&seed);
		m->type = rand_r(&seed) % (SCAN_TYPES + 1);
		m->flags = rand_r(&seed) % 4 == 0;
		m->length = sizeof(*m) + rand_r(&seed) % 20 * 8;
		say(p, message, m->length);
		ask(good, "SELECT 1");
		wait_for(good->ended);
		assert_int_equal(good->error, 0);
		hang_up(p);
		wait_for_sessions(1);
	}
}

/* Return what a lazy client has kept back, and read on. */
static void
wake_up(struct peer *p)
{
	const unsigned int announced = p->announced;
	unsigned int i;

	p->lazy = false;
	if (p->messages > 0)
		give_credit(p, p->messages, -1);
	for (i = 0; i < announced; i++) {
		p->announced = i;
		read_part(p, p->part[i].addr, p->part[i].rkey, p->part[i].length);
	}
	p->announced = announced;
	for (i = 0; i < p->pushed; i++)
		give_credit(p, 0, (int)p->slot[i]);
}

/* Bring a client to a random state, from which it goes on, cancels, or vanishes. */
static void
random_state(struct peer *p, unsigned int *seed)
{
	static const char *const sql[] = {"SELECT 42", ENDLESS, "SELECT * FROM range(10000000)",
		"SELECT value FROM lyso_1.images", "SELECT frame, col, value FROM lyso_1.images",
		"SELECT list(i) FROM range(200000) t(i)",
		"SELECT CASE WHEN i = 300000 THEN error('mid') ELSE i END FROM range(400000) t(i)",
		"SELEC"};
	uint64_t until;

	p->lazy = rand_r(seed) % 2;
	ask(p, sql[rand_r(seed) % 8]);
	stopped = rand_r(seed) % 4 == 0;
	for (until = xfer_qp_clock() + rand_r(seed) % 60; xfer_qp_clock() < until && !p->ended;)
		turn();
	stopped = false;
	if (rand_r(seed) % 3 == 0)
		cancel(p);
	if (p->lazy && rand_r(seed) % 2)
		wake_up(p);
}

/* Clients end their queries in random states and ways: others, and the next, do not notice. */
static void
random_orders(void **state)
{
	const char *text = getenv("SERVE_SEED"), *rounds = getenv("SERVE_ROUNDS");
	unsigned int seed = text != NULL ? strtoul(text, NULL, 0) : (unsigned int)getpid();
	unsigned int i, n = rounds != NULL ? strtoul(rounds, NULL, 0) : 20;
	struct peer *p, *good;

	printf("SERVE_SEED=%u\n", seed);
	write_run();
	open_server(&plain);
	good = connect_peer(1);
	p = NULL;
	for (i = 0; i < n; i++) {
		if (p == NULL)
			p = rand_r(&seed) % 2 ? connect_peer(0) : connect_puller(0);
		random_state(p, &seed);
		ask(good, "SELECT value FROM lyso_1.images");
		wait_for(good->ended && good->written == good->pushed);
		assert_int_equal(good->error, 0);
		assert_int_equal(p->refused, SCAN_REASON_NONE);
		if (rand_r(&seed) % 3 == 0) {
			hang_up(p);
			p = NULL;
			continue;
		}
		if (p->lazy)
			wake_up(p);
		if (!p->ended)
			cancel(p);
		wait_for(p->refused ||
			(p->ended && p->read == p->announced && p->written == p->pushed));
		assert_int_equal(p->refused, SCAN_REASON_NONE);
	}
	assert_int_equal(scan_server_get_counters(server)->refused[SCAN_REASON_ORDER], 0);
}

/* A server whose port was removed says so, and can be closed. The port is gone: the last test. */
static void
device_removed(void **state)
{
	uint16_t port;

	open_server(&plain);
	(void)connect_peer(0);
	assert_false(scan_server_lost_device(server));
	assert_int_equal(rte_eth_dev_get_port_by_name("net_ring_serve1", &port), 0);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(rte_eth_dev_close(port), 0);
	wait_for(scan_server_lost_device(server));
	wait_for(scan_server_is_idle(server));
	assert_int_equal(scan_server_get_counters(server)->lost, 1);
}

/* ---- main ------------------------------------------------------------------------------------ */

static void
write_file(const char *name, const void *bytes, size_t size)
{
	char file[128];
	FILE *f;

	snprintf(file, sizeof(file), "%s/%s", dir, name);
	f = fopen(file, "w");
	assert_true(f != NULL && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
	assert_int_equal(chmod(file, 0600), 0);
}

static int
begin(void **state)
{
	static const char keys[] =
		"[receiver ana]\nkey = a\nrights = read\nruns = lyso_*\nconnections = 3\n"
		"[receiver writer]\nkey = b\nreceiver_ids = 1\nrights = write\n";
	struct rdma_mr_attr attr = {.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1,
		.length = PEERS * AREA};
	unsigned int i;

	assert_non_null(mkdtemp(dir));
	for (i = 0; i < 2; i++) {
		key[i].size = 32;
		memset(key[i].bytes, 'a' + i, 32);
		write_file(i == 0 ? "a" : "b", key[i].bytes, 32);
	}
	write_file("keys.ini", keys, sizeof(keys) - 1);
	ring_port_make("serve0", 4096, 1, &rx[0], &tx[0]);
	ring_port_make("serve1", 4096, 1, &rx[1], &tx[1]);
	dev = rdma_dev_open("roce:port=net_ring_serve0,ip=10.0.0.1/24");
	assert_non_null(dev);
	(void)rdma_progress(dev, 0);
	pd = rdma_pd_alloc(dev);
	slots = mmap(NULL, attr.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(slots != MAP_FAILED);
	attr.addr = slots;
	mr = rdma_mr_reg(pd, &attr);
	assert_non_null(mr);
	return 0;
}

static int
end(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
	(void)rdma_mr_dereg(mr);
	(void)rdma_pd_free(pd);
	(void)rdma_dev_close(dev);
	return 0;
}

int
main(void)
{
	const char *eal[] = {"serve_test", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"-m", "256", "-l", "0", "--log-level=lib.eal:error",
		"--log-level=braggline.*:error"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(inline_result, no_server),
		cmocka_unit_test_teardown(kept_schemas, no_server),
		cmocka_unit_test_teardown(schemas_that_are_not_kept, no_server),
		cmocka_unit_test_teardown(pushed_result, no_server),
		cmocka_unit_test_teardown(pulled_result, no_server),
		cmocka_unit_test_teardown(pulled_lists, no_server),
		cmocka_unit_test_teardown(never_frees, no_server),
		cmocka_unit_test_teardown(cancelled_pull, no_server),
		cmocka_unit_test_teardown(wrong_frees, no_server),
		cmocka_unit_test_teardown(foreign_keys, no_server),
		cmocka_unit_test_teardown(stopped_client, no_server),
		cmocka_unit_test_teardown(cancelled, no_server),
		cmocka_unit_test_teardown(early_credit, no_server),
		cmocka_unit_test_teardown(reason_reaches_a_slow_client, no_server),
		cmocka_unit_test_teardown(deadline, no_server),
		cmocka_unit_test_teardown(idle, no_server),
		cmocka_unit_test_teardown(killed, no_server),
		cmocka_unit_test_teardown(rights, no_server),
		cmocka_unit_test_teardown(limits, no_server),
		cmocka_unit_test_teardown(statements, no_server),
		cmocka_unit_test_teardown(deferred_lists, no_server),
		cmocka_unit_test_teardown(query_while_files_are_left, no_server),
		cmocka_unit_test_teardown(polling_ends_for_another_engine, no_server),
		cmocka_unit_test_teardown(cut_file, no_server),
		cmocka_unit_test_teardown(cut_file_behind_the_engine, no_server),
		cmocka_unit_test_teardown(versions, no_server),
		cmocka_unit_test_teardown(hostile, no_server),
		cmocka_unit_test_teardown(random_messages, no_server),
		cmocka_unit_test_teardown(random_orders, no_server),
		cmocka_unit_test_teardown(device_removed, no_server),
	};
	char problem[1024];

	if (getenv("ARROW_WRITE") == NULL) {
		printf("skipped: ARROW_WRITE is not set\n");
		return 77;
	}
	if (duckdb_api_load(&api, problem, sizeof(problem)) < 0) {
		printf("skipped: %s\n", problem);
		return 77;
	}
	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	return cmocka_run_group_tests(tests, begin, end);
}
