/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client of queries against servers of this test, which break the protocol or end, over
 * software RoCE and a pair of rings. The main lcore is the server; the client's calls are on a
 * thread of their own.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include "../roce/ring_port.h"
#include "adbc/pipe.h"
#include "eal/poll_pause.h"
#include "query.h"
#include "remote/client.h"
#include "remote/proof.h"
#include "sql/ipc_reader.h"
#include "sql/ipc_stream.h"
#include "statements.h"
#include "xfer/qp.h"

#define SECONDS 30
#define SLOT	4096u
#define SLOTS	4

/* What the server does with a query. */
enum deed {
	DEED_TOO_MANY,	/* it announces more parts than it may */
	DEED_TOO_LONG,	/* a part that is longer than a slot */
	DEED_WRONG_WAY, /* parts in another way than granted */
	DEED_WRONG_KEY, /* a part that cannot be read */
	DEED_WRITTEN,	/* it writes to a client that reads: no bytes, with an immediate */
	DEED_VANISH,	/* it closes the connection */
	DEED_IDLE,	/* it ends the connection, as there was no query for long */
	/* the same at the second query, when it is cancelled if the job is interrupted; other
	 * queries are errors */
	DEED_IDLE_ONCE,
	/* it sends the beginning of a result. The next query is answered by an error */
	DEED_UNREAD,
	DEED_NEW_REASON, /* it ends the connection for a reason of a later version */
	DEED_ENDLESS,	 /* a type that the client does not support; a cancel has no effect */
	DEED_DEAF,	 /* the same; then it sends, and takes no message any more */
	/* a schema with a type that the client does not support, and parts. When the client cancels
	 * the query, it ends. The next query is answered by an error */
	DEED_UNSUPPORTED,
	/* a schema to be kept, without rows. The second result refers to it */
	DEED_KEPT,
	DEED_NOT_KEPT, /* the same, and the second result refers to another one */
};

struct server {
	struct xfer_qp link;
	bool link_is_open, established, answer_due, lost;
	struct rdma_conn *conn;
	struct scan_proof proof;
	struct xfer_endpoint end[2];
	struct scan_answer answer;
	uint64_t sent, received;
	uint16_t granted; /* flags of the grant */
	unsigned int queries;
	unsigned int freed; /* parts; atomic */
	unsigned int slots; /* that were returned */
	enum scan_reason refused;
	bool deaf;
	unsigned int alive;   /* messages of the client that it is alive */
	unsigned int unheard; /* messages that were sent meanwhile */
	uint64_t sent_at;     /* ms */
};

/* One life of a client. */
struct job {
	enum deed deed;
	bool pull;
	bool interrupt; /* the user does, when the query has been sent */
	bool skip;	/* nothing of the first result is read */
	bool done;	/* atomic */
	int open, query, schema, again, schema_again;
	unsigned int freed;  /* parts, before the stream was released */
	unsigned int sleeps; /* of the service thread, in about a second */
	bool migrating;	     /* the caller has another CPU each time that it asks: 1, 0, 1 */
	int service_cpu;     /* on which the service thread polls; -1: it sleeps */
	unsigned int waits, wakes, cpus, spins; /* of the caller's thread; wakes: after waits */
	bool idle;
	char state[SCAN_SQLSTATE + 1];
	char text[SCAN_ERROR_TEXT], text_again[SCAN_ERROR_TEXT];
	char name[8], name_again[8]; /* of the first column */
	/* of a process of the ADBC driver, with two statements */
	int status;
	struct pipe_end answer[2];
};

static struct rte_ring *rx[2], *tx[2];
static struct rdma_dev *dev;
static struct rdma_pd *pd;
static struct rdma_mr *mr;
static struct rdma_conn *listener;
static uint8_t *memory;
static struct server server;
static unsigned int nb_connections, nb_queries; /* of a job */
static struct job job;
static struct xfer_identity identity;
static char dir[] = "/tmp/client_test.XXXXXX";
static char key_path[64];

/* ---- server ---------------------------------------------------------------------------------- */

static void
say(const void *message, size_t size)
{
	void *room = xfer_qp_room(&server.link);

	if (room == NULL || server.link.broken)
		return;
	memcpy(room, message, size);
	((struct scan_msg *)room)->number = server.sent++;
	(void)xfer_qp_send(&server.link, size);
}

static void
put_part(struct scan_data *m, enum scan_kind kind, uint32_t length, uint64_t addr, uint32_t rkey)
{
	const struct scan_record r = {.kind = kind, .length = length, .total = 1 << 20};
	const struct scan_pulled at = {addr, rkey, 0};

	assert_true(scan_record_put(m, &r, kind == SCAN_PULLED ? &at : NULL));
}

static void
put_error(struct scan_data *m, const char *text)
{
	struct {
		struct scan_error error;
		char text[32];
	} e = {.error = {.error = EINVAL, .sqlstate = "42000"}};
	struct scan_record r = {.kind = SCAN_ERROR};

	r.length = r.total = offsetof(struct scan_error, text) + strlen(text);
	memcpy((char *)&e + offsetof(struct scan_error, text), text, strlen(text));
	assert_true(scan_record_put(m, &r, &e));
}

static void
refuse(enum scan_reason reason)
{
	struct scan_refuse m;

	scan_msg_begin(&m, SCAN_REFUSE, sizeof(m), 0);
	m.reason = reason;
	say(&m, sizeof(m));
}

static union {
	struct scan_data m;
	uint8_t bytes[SCAN_MSG_MAX];
} data;

/* Answer two queries, of which the first one has a schema that is not supported. */
static void
answer_unsupported(uint32_t cursor, bool cancelled)
{
	const struct scan_record schema = {.kind = SCAN_METADATA, .length = 8, .total = 8};
	unsigned int i;

	scan_msg_begin(&data, SCAN_DATA, sizeof(data.m), 0);
	data.m.cursor = cursor;
	if (cursor == 2 || cancelled)
		put_error(&data.m, cursor == 2 ? "second" : "cancelled");
	else
		assert_true(scan_record_put(&data.m, &schema, "a schema"));
	say(&data, data.m.head.length);
	if (cursor == 2 || cancelled)
		return;
	scan_msg_begin(&data, SCAN_DATA, sizeof(data.m), 0);
	data.m.cursor = cursor;
	for (i = 0; i < (job.pull ? SCAN_PARTS : 1); i++)
		put_part(&data.m, job.pull ? SCAN_PULLED : SCAN_PUSHED, 64,
			(uintptr_t)memory + i * SLOT, rdma_mr_rkey(mr));
	say(&data, data.m.head.length);
	if (!job.pull)
		assert_int_equal(xfer_qp_write(&server.link, 0, NULL, 0, 0, 0, &(uint32_t){0}), 0);
}

static uint8_t schema_bytes[1024];
static uint32_t schema_size;

static int
take_schema(void *arg, const void *metadata, size_t size, const struct ipc_buffer *buffer,
	size_t nb, uint64_t body)
{
	assert_true(size <= sizeof(schema_bytes));
	memcpy(schema_bytes, metadata, size);
	schema_size = size;
	return 0;
}

static void
make_schema(void)
{
	struct ArrowSchema column = {.format = "l", .name = "x"}, *columns = &column;
	const struct ArrowSchema schema = {
		.format = "+s", .name = "", .n_children = 1, .children = &columns};
	const struct ipc_sink sink = {take_schema, NULL};
	struct ipc_stream s;

	assert_int_equal(ipc_stream_begin_messages(&s, &sink, &schema), 0);
}

/* Answer two queries, of which the second one has the schema of the first one, or none. */
static void
answer_kept(struct scan_data *m, uint32_t cursor)
{
	const struct scan_record end = {.kind = SCAN_END, .sequence = 1};
	struct scan_record r = {.kind = SCAN_SCHEMA, .slot = SCAN_SCHEMAS};

	if (cursor == 1) {
		r.kind = SCAN_METADATA;
		r.length = r.total = schema_size;
	} else if (job.deed == DEED_NOT_KEPT) {
		r.slot = 1;
	}
	assert_true(scan_record_put(m, &r, schema_bytes));
	assert_true(scan_record_put(m, &end, NULL));
}

static void
answer_query(uint32_t cursor)
{
	const uint32_t rkey = rdma_mr_rkey(mr);
	const uint64_t addr = (uintptr_t)memory;
	const struct scan_record first = {.kind = SCAN_METADATA, .length = 8, .total = 16};
	unsigned int i;

	scan_msg_begin(&data, SCAN_DATA, sizeof(data.m), 0);
	data.m.cursor = cursor;
	switch (job.deed) {
	case DEED_TOO_MANY:
		for (i = 0; i <= SCAN_PARTS; i++)
			put_part(&data.m, SCAN_PULLED, SLOT, addr + i * SLOT, rkey);
		break;
	case DEED_TOO_LONG:
		put_part(&data.m, SCAN_PULLED, SLOT + 1, addr, rkey);
		break;
	case DEED_WRONG_WAY:
		put_part(&data.m, job.pull ? SCAN_PUSHED : SCAN_PULLED, 64, addr, rkey);
		break;
	case DEED_WRONG_KEY:
		put_part(&data.m, SCAN_PULLED, 64, addr, rkey ^ 0x5a5a5a);
		break;
	case DEED_UNREAD:
		if (cursor == 2)
			put_error(&data.m, "second");
		else
			assert_true(scan_record_put(&data.m, &first, "a schema"));
		break;
	case DEED_WRITTEN:
		assert_int_equal(xfer_qp_write(&server.link, 0, NULL, 0, 0, 0, &cursor), 0);
		return;
	case DEED_VANISH:
		server.lost = true;
		return;
	case DEED_IDLE:
		refuse(SCAN_REASON_IDLE);
		return;
	case DEED_IDLE_ONCE:
		if (nb_queries != 2) {
			put_error(&data.m, "another one");
			break;
		}
		if (job.interrupt)
			assert_int_equal(kill(getpid(), SIGINT), 0);
		else
			refuse(SCAN_REASON_IDLE);
		return;
	case DEED_NEW_REASON:
		refuse(SCAN_REASONS + 7);
		return;
	case DEED_KEPT:
	case DEED_NOT_KEPT:
		answer_kept(&data.m, cursor);
		break;
	case DEED_UNSUPPORTED:
	case DEED_ENDLESS:
	case DEED_DEAF:
		answer_unsupported(cursor, false);
		server.deaf = job.deed == DEED_DEAF;
		return;
	}
	say(&data, data.m.head.length);
}

static void
take_auth(const void *message)
{
	uint8_t keys[2][XFER_MAC_BYTES];

	assert_int_equal(scan_proof_check(&server.proof, message, &identity, &server.end[0],
				 &server.end[1], &server.answer),
		SCAN_REASON_NONE);
	assert_int_equal(scan_proof_session(&server.proof, keys), 0);
	assert_int_equal(xfer_qp_seal_keys(&server.link, keys[1], keys[0]), 0);
	server.answer_due = true;
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	const struct scan_msg *m = message;

	assert_int_equal(
		scan_msg_check(message, size, SCAN_CLIENT, server.received++), SCAN_REASON_NONE);
	if (m->type == SCAN_AUTH) {
		take_auth(message);
	} else if (m->type == SCAN_GRANT) {
		server.granted = m->flags;
		assert_int_equal(((const struct scan_grant *)message)->slot_bytes, SLOT);
	} else if (m->type == SCAN_QUERY) {
		server.queries++;
		nb_queries++;
		answer_query(((const struct scan_query *)message)->cursor);
	} else if (m->type == SCAN_CANCEL &&
		(job.deed == DEED_UNSUPPORTED || job.deed == DEED_UNREAD)) {
		answer_unsupported(((const struct scan_cancel *)message)->cursor, true);
	} else if (m->type == SCAN_CANCEL && job.deed == DEED_IDLE_ONCE) {
		refuse(SCAN_REASON_IDLE);
	} else if (m->type == SCAN_ALIVE) {
		__atomic_add_fetch(&server.alive, 1, __ATOMIC_RELAXED);
	} else if (m->type == SCAN_CREDIT) {
		server.slots += ((const struct scan_credit *)message)->nb;
	} else if (m->type == SCAN_REFUSE) {
		server.refused = ((const struct scan_refuse *)message)->reason;
	} else if (m->type == SCAN_FREE) {
		__atomic_add_fetch(
			&server.freed, ((const struct scan_free *)message)->nb, __ATOMIC_RELAXED);
	}
}

static void
on_forged(void *arg)
{
	fail_msg("a message with a wrong code");
}

static const struct xfer_qp_ops ops = {.message = on_message, .forged = on_forged};

static void
set_end(struct xfer_endpoint *end, const char *address, uint32_t qpn)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_storage addr = {0};

	inet_pton(AF_INET, address, &in.sin_addr);
	memcpy(&addr, &in, sizeof(in));
	xfer_qp_address(&addr, end->addr);
	end->qpn = qpn;
}

static void
hang_up(void)
{
	if (server.conn != NULL)
		(void)rdma_conn_destroy(server.conn);
	server.conn = NULL;
	while (server.link_is_open && xfer_qp_close(&server.link) < 0)
		(void)rdma_progress(dev, 0);
	server.link_is_open = false;
}

static void
take_request(const struct rdma_event *event)
{
	const struct xfer_qp_config config = {.dev = dev, .pd = pd, .receives = 64, .ops = &ops};
	struct rdma_conn_attr attr = {
		.private_data = &server.proof.answer, .private_len = sizeof(server.proof.answer)};

	hang_up();
	memset(&server, 0, sizeof(server));
	nb_connections++;
	assert_int_equal(
		scan_proof_hear(&server.proof, event->private_data, event->private_len), 0);
	assert_int_equal(xfer_qp_open(&server.link, &config), 0);
	server.link_is_open = true;
	set_end(&server.end[0], "10.0.0.1", event->remote_qpn);
	set_end(&server.end[1], "10.0.0.2", server.link.qpn);
	assert_int_equal(rdma_conn_accept(event->conn, server.link.qp, &attr), 0);
	server.conn = event->conn;
}

/*
 * Send without taking messages: first as much as the client must return, one at a time, until its
 * messages fill the receives here and the sends there; then that this end is alive.
 */
static void
be_deaf(void)
{
	const uint64_t now = xfer_qp_clock();
	const bool more = server.unheard < SCAN_WINDOW - 4;
	const struct scan_record part = {.kind = SCAN_METADATA, .length = 8, .total = 8};
	struct rdma_wc wc;
	struct scan_msg m;

	while (rdma_poll_cq(server.link.cq, &wc, 1) == 1) {
		if (wc.op == RDMA_WC_SEND)
			server.link.free_send[server.link.nb_free_sends++] = (uint32_t)wc.wr_id;
	}
	if (now < server.sent_at + (more ? 10 : SCAN_ALIVE_MS))
		return;
	server.sent_at = now;
	server.unheard++;
	scan_msg_begin(&m, SCAN_ALIVE, sizeof(m), 0);
	scan_msg_begin(&data, SCAN_DATA, sizeof(data.m), 0);
	data.m.cursor = 1;
	assert_true(scan_record_put(&data.m, &part, "nothing"));
	if (more)
		say(&data, data.m.head.length);
	else
		say(&m, sizeof(m));
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
	(void)rdma_progress(dev, 0);
	n = rdma_poll_cm(dev, event, 4);
	for (i = 0; i < n; i++) {
		if (event[i].type == RDMA_EVENT_CONNECT_REQUEST)
			take_request(&event[i]);
		else if (event[i].type == RDMA_EVENT_ESTABLISHED)
			server.established = true;
	}
	if (server.deaf)
		be_deaf();
	else if (server.link_is_open)
		(void)xfer_qp_poll(&server.link);
	if (server.established && server.answer_due) {
		server.answer_due = false;
		say(&server.answer, sizeof(server.answer));
	}
	if (server.lost)
		hang_up();
	usleep(20);
}

/* ---- client ---------------------------------------------------------------------------------- */

/* Make a pipe, one end of which takes the place of a descriptor. @return the other end */
static int
replace(int fd, int *old)
{
	const int here = fd == STDIN_FILENO;
	int ends[2];

	*old = dup(fd);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(dup2(ends[!here], fd), fd);
	close(ends[!here]);
	return ends[here];
}

/* Execute two statements as the process of the ADBC driver does. */
static void
run_session(const struct scan_client_config *config)
{
	const struct query_options options = {.format = QUERY_ARROW};
	const struct pipe_statement head = {PIPE_STATEMENT, 8};
	int in, out, old[2];
	unsigned int i;

	fflush(stdout);
	in = replace(STDIN_FILENO, &old[0]);
	out = replace(STDOUT_FILENO, &old[1]);
	for (i = 0; i < 2; i++) {
		assert_int_equal(write(in, &head, sizeof(head)), sizeof(head));
		assert_int_equal(write(in, "SELECT 1", 8), 8);
	}
	close(in);
	clearerr(stdin);
	job.status = statements_remote(config, &options);
	fflush(stdout);
	assert_int_equal(read(out, job.answer, sizeof(job.answer)), sizeof(job.answer));
	close(out);
	assert_int_equal(dup2(old[0], STDIN_FILENO), STDIN_FILENO);
	assert_int_equal(dup2(old[1], STDOUT_FILENO), STDOUT_FILENO);
	close(old[0]);
	close(old[1]);
}

/* Calls that are linked in place of others. */
static unsigned int nb_sleeps; /* of service threads; atomic */
static __thread bool is_caller;
static __thread unsigned int nb_waits, nb_wakes, nb_cpus, nb_spins; /* of this thread */
/* It has asked for its CPU after a wait, and has not taken the lock since. */
static __thread bool has_waited;

int __real_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *t);
int __wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *t);
int __real_sem_wait(sem_t *sem);
int __wrap_sem_wait(sem_t *sem);
int __wrap_sched_getcpu(void);
int __wrap_poll_cpu(const struct poll_pause *p);
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
void __real_poll_wake(struct poll_pause *p);
void __wrap_poll_wake(struct poll_pause *p);
bool __real_poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg);
bool __wrap_poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg);

int
__wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *t)
{
	__atomic_add_fetch(&nb_sleeps, 1, __ATOMIC_RELAXED);
	return __real_sem_clockwait(sem, clock, t);
}

int
__wrap_sem_wait(sem_t *sem)
{
	nb_waits++;
	return __real_sem_wait(sem);
}

int
__wrap_sched_getcpu(void)
{
	nb_cpus++;
	has_waited = nb_cpus % 2 == 0;
	return is_caller && job.migrating ? (int)(nb_cpus % 2) : 0;
}

int
__wrap_poll_cpu(const struct poll_pause *p)
{
	return job.service_cpu;
}

int
__wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
	has_waited = false;
	return __real_pthread_mutex_lock(lock);
}

void
__wrap_poll_wake(struct poll_pause *p)
{
	nb_wakes += has_waited;
	__real_poll_wake(p);
}

bool
__wrap_poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg)
{
	nb_spins++;
	return __real_poll_spin(s, us, happened, arg);
}

/* Read nothing of a result until the client has said that it is alive. */
static void
leave_unread(void)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;
	const unsigned int before = __atomic_load_n(&nb_sleeps, __ATOMIC_RELAXED);

	while (__atomic_load_n(&server.alive, __ATOMIC_RELAXED) == 0 && xfer_qp_clock() < until)
		usleep(1000);
	job.sleeps = __atomic_load_n(&nb_sleeps, __ATOMIC_RELAXED) - before;
}

/* Get the schema of a stream. @param name  out: of the first column @return as get_schema() */
static int
read_schema(struct ArrowArrayStream *stream, char name[8])
{
	struct ArrowSchema schema;
	int ret = stream->get_schema(stream, &schema);

	if (ret == 0) {
		snprintf(name, 8, "%s", schema.children[0]->name);
		schema.release(&schema);
	}
	return ret;
}

static void
run_client(const struct scan_client_config *config)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;
	struct scan_client_error error;
	struct ArrowArrayStream stream;
	struct scan_client *c;
	const char *text;

	job.open = scan_client_open(&c, config, &error);
	if (job.open == 0) {
		job.query = scan_client_query(c, "SELECT 1", SCAN_NATIVE, &stream);
		if (job.deed == DEED_UNREAD)
			leave_unread();
		else if (!job.skip)
			job.schema = read_schema(&stream, job.name);
		text = stream.get_last_error(&stream);
		snprintf(job.text, sizeof(job.text), "%s", text != NULL ? text : "");
		snprintf(job.state, sizeof(job.state), "%s", scan_client_sqlstate(c));
		while (job.deed == DEED_UNSUPPORTED && job.pull && job.freed < SLOTS &&
			xfer_qp_clock() < until) {
			usleep(100);
			job.freed = __atomic_load_n(&server.freed, __ATOMIC_RELAXED);
		}
		stream.release(&stream);
		job.idle = scan_client_was_idle(c);
		/* a connection that has ended executes nothing */
		job.again = scan_client_query(c, "SELECT 2", SCAN_NATIVE, &stream);
		if (job.again == 0) {
			job.schema_again = read_schema(&stream, job.name_again);
			text = stream.get_last_error(&stream);
			snprintf(job.text_again, sizeof(job.text_again), "%s",
				text != NULL ? text : "");
			stream.release(&stream);
		}
		scan_client_close(c);
	} else {
		snprintf(job.text, sizeof(job.text), "%s", error.text);
	}
}

static void *
client_main(void *arg)
{
	const struct scan_client_config config = {
		.device = "roce:port=net_ring_client0,ip=10.0.0.1/24",
		.server = "10.0.0.2",
		.identity = "ana",
		.key = key_path,
		.slots = SLOTS,
		.slot_bytes = SLOT,
		.timeout_ms = job.deed == DEED_ENDLESS || job.deed == DEED_DEAF ? 1000 : 0,
		.pull = job.pull,
	};

	is_caller = true;
	if (job.deed == DEED_IDLE_ONCE)
		run_session(&config);
	else
		run_client(&config);
	job.waits = nb_waits;
	job.wakes = nb_wakes;
	job.cpus = nb_cpus;
	job.spins = nb_spins;
	__atomic_store_n(&job.done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Have a client execute a query with a server that does something wrong. */
static void
run_job(void)
{
	const uint64_t until = xfer_qp_clock() + SECONDS * 1000;
	pthread_t thread;

	nb_connections = nb_queries = 0;
	assert_int_equal(pthread_create(&thread, NULL, client_main, NULL), 0);
	while (!__atomic_load_n(&job.done, __ATOMIC_ACQUIRE)) {
		turn();
		if (xfer_qp_clock() > until)
			fail_msg("the client has not ended in %d s", SECONDS);
	}
	pthread_join(thread, NULL);
	if (job.open < 0)
		fail_msg("no connection: %s", job.text);
	assert_int_equal(job.query, 0);
	assert_int_equal(server.granted, job.pull ? SCAN_PULL : 0);
}

static void
run(enum deed deed, bool pull)
{
	job = (struct job){.deed = deed, .pull = pull};
	run_job();
}

/* Most of the Arrow of this server is no Arrow: bytes of some deeds look like a schema. */
int __real_ipc_reader_head(const void *metadata, size_t size, uint64_t *body);
int __wrap_ipc_reader_head(const void *metadata, size_t size, uint64_t *body);
int __real_ipc_reader_schema(struct ipc_reader *r, const void *metadata, size_t size);
int __wrap_ipc_reader_schema(struct ipc_reader *r, const void *metadata, size_t size);
static unsigned int nb_schemas_read; /* of a job */

int
__wrap_ipc_reader_head(const void *metadata, size_t size, uint64_t *body)
{
	if (job.deed != DEED_UNSUPPORTED && job.deed != DEED_ENDLESS && job.deed != DEED_DEAF)
		return __real_ipc_reader_head(metadata, size, body);
	*body = 0;
	return IPC_SCHEMA;
}

int
__wrap_ipc_reader_schema(struct ipc_reader *r, const void *metadata, size_t size)
{
	if (job.deed != DEED_KEPT && job.deed != DEED_NOT_KEPT)
		return -ENOTSUP;
	nb_schemas_read++;
	return __real_ipc_reader_schema(r, metadata, size);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* A connection that the server uses in a wrong way ends, with an error of the protocol. */
static void
wrong_parts(void **state)
{
	run(DEED_TOO_MANY, true);
	assert_int_equal(job.schema, EPIPE);
	assert_string_equal(job.state, "08P01");
	assert_int_equal(job.again, -EPIPE);
	assert_int_equal(server.queries, 1);
	assert_int_equal(server.freed, 0);
	run(DEED_TOO_LONG, true);
	assert_int_equal(job.schema, EPIPE);
	assert_string_equal(job.state, "08P01");
	assert_int_equal(job.again, -EPIPE);
}

/* No immediate may come to a client that reads: it counts the parts that it has read. */
static void
immediates_to_a_reader_are_errors(void **state)
{
	run(DEED_WRITTEN, true);
	assert_int_equal(job.schema, EPIPE);
	assert_string_equal(job.state, "08P01");
	assert_int_equal(job.again, -EPIPE);
	assert_int_equal(server.freed, 0);
}

/* A body comes in the way that the client has granted. */
static void
wrong_way(void **state)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		run(DEED_WRONG_WAY, i == 1);
		assert_int_equal(job.schema, EBADMSG);
		assert_string_equal(job.state, "08P01");
		assert_non_null(strstr(job.text, "in another way than granted"));
		assert_int_equal(job.again, -EPIPE);
		assert_int_equal(server.refused, SCAN_REASON_ORDER);
	}
}

/* A READ that the server refuses ends the connection. */
static void
wrong_key(void **state)
{
	run(DEED_WRONG_KEY, true);
	assert_int_equal(job.schema, EPIPE);
	assert_string_equal(job.state, "08006");
	assert_int_equal(job.again, -EPIPE);
}

/*
 * A server that is gone ends the statement and the connection: the client repeats nothing. A new
 * connection is a new session.
 */
static void
lost(void **state)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		run(DEED_VANISH, i == 1);
		assert_int_equal(job.schema, EPIPE);
		assert_string_equal(job.state, "08006");
		assert_non_null(strstr(job.text, "the connection to the server is lost"));
		assert_int_equal(job.again, -EPIPE);
		assert_int_equal(server.queries, 1);
		/* it may have begun the statement */
		assert_false(job.idle);
	}
}

/* A server that ends an idle connection has not begun the query that it receives meanwhile. */
static void
idle(void **state)
{
	run(DEED_IDLE, false);
	assert_int_equal(job.schema, EPIPE);
	assert_string_equal(job.state, "08006");
	assert_true(job.idle);
	assert_int_equal(job.again, -EPIPE);
}

/*
 * The process of the ADBC driver repeats a statement on a new connection if the server has ended
 * the one before without beginning it, but not a statement that is cancelled meanwhile.
 */
static void
idle_session(void **state)
{
	run(DEED_IDLE_ONCE, false);
	assert_int_equal(nb_connections, 2);
	assert_int_equal(nb_queries, 3);
	assert_int_equal(job.answer[1].magic, PIPE_END);
	assert_int_equal(job.answer[1].status, 1);
	assert_int_equal(job.status, 0);
	job = (struct job){.deed = DEED_IDLE_ONCE, .interrupt = true};
	run_job();
	assert_int_equal(nb_connections, 1);
	assert_int_equal(nb_queries, 2);
	assert_int_equal(job.answer[1].magic, PIPE_END);
	assert_int_equal(job.answer[1].status, QUERY_CANCELLED);
	assert_int_equal(job.status, QUERY_CANCELLED);
}

/*
 * A result that the client cannot use is read to its end, and the connection is used on. The parts
 * that nobody waits for are read to free slots and freed at once.
 */
static void
unsupported(void **state)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		run(DEED_UNSUPPORTED, i == 1);
		assert_int_equal(job.schema, ENOTSUP);
		assert_string_equal(job.state, "0A000");
		assert_int_equal(job.again, 0);
		assert_int_equal(job.schema_again, EINVAL);
		assert_string_equal(job.text_again, "second");
		assert_int_equal(server.queries, 2);
		assert_int_equal(server.slots, i == 1 ? 0 : 1);
		assert_int_equal(server.freed, i == 1 ? SCAN_PARTS : 0);
		assert_int_equal(job.freed, i == 1 ? SLOTS : 0);
		assert_false(job.idle);
	}
}

/* A schema that is kept is read once, also if the result with which it came was dropped. */
static void
kept_schema(void **state)
{
	unsigned int i;

	make_schema();
	for (i = 0; i < 2; i++) {
		nb_schemas_read = 0;
		job = (struct job){.deed = DEED_KEPT, .skip = i == 1};
		run_job();
		assert_int_equal(job.schema, 0);
		assert_string_equal(job.name, i == 0 ? "x" : "");
		assert_int_equal(job.again, 0);
		assert_int_equal(job.schema_again, 0);
		assert_string_equal(job.name_again, "x");
		assert_int_equal(nb_schemas_read, 1);
	}
}

/* A schema that the server has not sent ends the connection. */
static void
unknown_schema(void **state)
{
	make_schema();
	run(DEED_NOT_KEPT, false);
	assert_int_equal(job.schema, 0);
	assert_int_equal(job.schema_again, EBADMSG);
	assert_string_equal(job.text_again, "a schema is missing");
	assert_int_equal(server.refused, SCAN_REASON_ORDER);
}

/* A reason that the client does not know ends the connection, too. */
static void
new_reason(void **state)
{
	run(DEED_NEW_REASON, false);
	assert_int_equal(job.schema, EPIPE);
	assert_string_equal(job.state, "08006");
	assert_non_null(strstr(job.text, "does not know"));
	assert_false(job.idle);
	assert_int_equal(job.again, -EPIPE);
}

/* The client does not wait for ever for the end of a query. */
static void
endless(void **state)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		run(DEED_ENDLESS, i == 1);
		assert_int_equal(job.schema, ENOTSUP);
		assert_int_equal(job.again, -EPIPE);
		assert_int_equal(server.queries, 1);
		assert_int_equal(server.refused, SCAN_REASON_OVERDUE);
	}
}

/* While all messages of the client are in flight, it does not wait until it can send one more. */
static void
full_queue_stops_messages(void **state)
{
	run(DEED_DEAF, false);
	assert_int_equal(job.schema, ENOTSUP);
	assert_int_equal(job.again, -EPIPE);
}

/* A query that nobody reads leaves the CPU to others: the service thread wakes up rarely. */
static void
unread_query_uses_little_cpu(void **state)
{
	run(DEED_UNREAD, false);
	assert_int_equal(server.alive, 1);
	assert_in_range(job.sleeps, 1, 250);
	assert_int_equal(job.again, 0);
	assert_int_equal(job.schema_again, EINVAL);
}

/*
 * The service thread gives its CPU to a caller that it wakes on the same CPU. A caller that wakes
 * up on another one wakes it again, which has nothing to wait for. A caller polls if the service
 * thread polls on another CPU.
 */
static void
migrated(void **state)
{
	static const struct {
		bool migrating;
		int service_cpu;
		bool polls;
	} cases[] = {
		/* to poll would keep the service thread from its CPU */
		{false, 0, false},
		{false, -1, false},
		{false, 1, true},
		{true, 0, true},
		{true, -1, false},
	};
	unsigned int waits;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		job = (struct job){.deed = DEED_UNSUPPORTED,
			.migrating = cases[i].migrating,
			.service_cpu = cases[i].service_cpu};
		run_job();
		assert_int_equal(job.schema_again, EINVAL);
		/* it asks for its CPU before each wait and after it */
		assert_true(job.cpus > 4);
		waits = job.cpus / 2;
		assert_int_equal(job.wakes, cases[i].migrating ? waits : 0);
		assert_int_equal(job.spins, cases[i].polls ? waits : 0);
		if (!cases[i].polls)
			assert_int_equal(job.waits, waits);
	}
}

/* ---- main ------------------------------------------------------------------------------------ */

static int
begin(void **state)
{
	struct rdma_mr_attr attr = {.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_READ,
		.gpu = -1,
		.length = (SCAN_PARTS + 1) * SLOT};
	FILE *f;

	identity = (struct xfer_identity){
		.name = "ana", .id = xfer_identity_id("ana"), .rights = XFER_RIGHT_READ};
	identity.key[0].size = 32;
	memset(identity.key[0].bytes, 'k', 32);
	assert_non_null(mkdtemp(dir));
	snprintf(key_path, sizeof(key_path), "%s/key", dir);
	f = fopen(key_path, "w");
	assert_true(f != NULL && fwrite(identity.key[0].bytes, 1, 32, f) == 32 && fclose(f) == 0);
	assert_int_equal(chmod(key_path, 0600), 0);
	ring_port_make("client0", 4096, 1, &rx[0], &tx[0]);
	ring_port_make("client1", 4096, 1, &rx[1], &tx[1]);
	dev = rdma_dev_open("roce:port=net_ring_client1,ip=10.0.0.2/24");
	assert_non_null(dev);
	(void)rdma_progress(dev, 0);
	pd = rdma_pd_alloc(dev);
	memory =
		mmap(NULL, attr.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	attr.addr = memory;
	mr = rdma_mr_reg(pd, &attr);
	assert_non_null(mr);
	listener = rdma_conn_listen(dev, RDMA_QP_RC, SCAN_PORT, 4, NULL);
	assert_non_null(listener);
	return 0;
}

static int
end(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
	hang_up();
	(void)rdma_conn_destroy(listener);
	(void)rdma_mr_dereg(mr);
	(void)rdma_pd_free(pd);
	(void)rdma_dev_close(dev);
	return 0;
}

int
main(void)
{
	const char *eal[] = {"client_test", "--no-huge", "--no-shconf", "--no-pci",
		"--no-telemetry", "-m", "256", "-l", "0", "--log-level=lib.eal:error",
		"--log-level=braggline.*:error"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_parts),
		cmocka_unit_test(immediates_to_a_reader_are_errors),
		cmocka_unit_test(wrong_way),
		cmocka_unit_test(wrong_key),
		cmocka_unit_test(lost),
		cmocka_unit_test(idle),
		cmocka_unit_test(idle_session),
		cmocka_unit_test(unsupported),
		cmocka_unit_test(kept_schema),
		cmocka_unit_test(unknown_schema),
		cmocka_unit_test(new_reason),
		cmocka_unit_test(endless),
		cmocka_unit_test(full_queue_stops_messages),
		cmocka_unit_test(unread_query_uses_little_cpu),
		cmocka_unit_test(migrated),
	};

	/* SIGINT is for the threads that wait for it */
	query_prepare();
	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	return cmocka_run_group_tests(tests, begin, end);
}
