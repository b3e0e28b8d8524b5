/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "arrow/format.h"
#include "rdma_bench_peers.h"
#include "scan_bench.h"
#include "sql/ipc_reader.h"
#include "sql/ipc_stream.h"
#include "sql/result_reader.h"
#include "sql/result_stream.h"
#include "xfer/seal.h"

#define SOCKET_BUFFER (256 * KIB)

/* Begin a query of the engine. */
static void
execute(struct bench_engine *e, const char *sql, struct ArrowArrayStream *stream)
{
	if (sql_session_execute(&e->session, sql, SQL_NATIVE) < 0 ||
		sql_result_stream(&e->session, stream) < 0)
		rig_die("%s: %s", sql, e->session.error);
}

static void
next(struct bench_engine *e, struct ArrowArrayStream *stream, struct ArrowArray *array)
{
	if (stream->get_next(stream, array) != 0)
		rig_die("%s", e->session.error);
}

static int
drop(void *arg, const void *metadata, size_t size, const struct ipc_buffer *buffer, size_t nb,
	uint64_t body)
{
	return 0;
}

double
peers_engine(struct bench_engine *e, const char *sql)
{
	const struct ipc_sink sink = {drop, NULL};
	const double start = now();
	struct sql_reader *reader;
	struct sql_batch batch;
	struct ipc_stream ipc;

	if (sql_session_execute(&e->session, sql, SQL_NATIVE) < 0 ||
		sql_reader_open(&reader, &e->session) < 0)
		rig_die("%s: %s", sql, e->session.error);
	sql_reader_batch_bytes(reader, SLOT_BYTES);
	if (ipc_stream_begin_messages(&ipc, &sink, sql_reader_schema(reader)) < 0)
		rig_die("%s: no schema", sql);
	do {
		if (sql_reader_next(reader, &batch) < 0 ||
			(batch.array != NULL &&
				ipc_stream_batch_values(&ipc, batch.array, batch.values) < 0))
			rig_die("%s: no batch", sql);
	} while (batch.array != NULL);
	sql_reader_close(reader);
	return now() - start;
}

/* ---- conversion, serialisation, one socket --------------------------------------------------- */

static struct {
	int socket[2]; /* server, client */
	struct bench_engine *engine;
	const char *sql;
	struct outcome *outcome;
	unsigned int nb;
} tcp;

/* Execute what the client sends, until it closes its socket. */
static void
tcp_server(void *arg, const atomic_bool *done)
{
	FILE *in = fdopen(dup(tcp.socket[0]), "r"), *out = fdopen(tcp.socket[0], "w");
	char *sql = NULL;
	size_t room = 0;
	ssize_t length;

	if (in == NULL || out == NULL)
		rig_die("TCP: %s", strerror(errno));
	ends_take_cpus(ENDS_ENGINE);
	setvbuf(out, NULL, _IOFBF, SOCKET_BUFFER);
	while ((length = getdelim(&sql, &room, '\0', in)) > 0) {
		struct ArrowArrayStream stream;
		struct ArrowSchema schema;
		struct ArrowArray array;
		struct ipc_stream ipc;

		execute(tcp.engine, sql, &stream);
		if (stream.get_schema(&stream, &schema) != 0 ||
			ipc_stream_begin(&ipc, out, &schema) < 0)
			rig_die("%s: no schema", sql);
		for (next(tcp.engine, &stream, &array); array.release != NULL;
			next(tcp.engine, &stream, &array)) {
			if (ipc_stream_batch(&ipc, &array) < 0)
				rig_die("%s: no batch", sql);
			array.release(&array);
		}
		/* a small result is one write */
		if (ipc_stream_end(&ipc) < 0 || fflush(out) != 0)
			rig_die("TCP: %s", strerror(errno));
		schema.release(&schema);
		stream.release(&stream);
	}
	ends_take_cpus(ENDS_LCORE);
	free(sql);
	fclose(in);
	fclose(out);
}

static void
tcp_read(FILE *in, void *to, size_t size)
{
	if (size > 0 && fread(to, size, 1, in) != 1)
		rig_die("TCP: the stream ends too early");
}

/* Read a message. @param array  out: if it is a batch @return false: the end */
static bool
tcp_message(FILE *in, struct ipc_reader *reader, struct outcome *o, struct ArrowArray *array)
{
	struct ipc_body body = {.release = free};
	uint32_t prefix[2];
	uint8_t *metadata;
	int what, ret = 0;

	array->release = NULL;
	tcp_read(in, prefix, sizeof(prefix));
	if (prefix[1] == 0)
		return false;
	metadata = malloc(prefix[1]);
	if (metadata == NULL)
		rig_die("TCP: no memory");
	tcp_read(in, metadata, prefix[1]);
	what = ipc_reader_head(metadata, prefix[1], &body.size);
	if (what == IPC_SCHEMA) {
		ret = ipc_reader_schema(reader, metadata, prefix[1]);
	} else if (what >= 0) {
		body.arg = aligned_alloc(64, RTE_ALIGN_CEIL(body.size + 1, 64));
		if (body.arg == NULL)
			rig_die("TCP: no memory");
		body.bytes = body.arg;
		tcp_read(in, body.arg, body.size);
		o->bytes += body.size;
		ret = ipc_reader_batch(reader, metadata, prefix[1], &body, array);
	}
	free(metadata);
	if (what < 0 || ret < 0)
		rig_die("TCP: not an Arrow IPC stream");
	return true;
}

static void
tcp_ask(FILE *in, const char *sql, struct outcome *o)
{
	const size_t size = strlen(sql) + 1;
	struct ipc_reader *reader = ipc_reader_create();
	struct ArrowArray array;
	double start;
	bool more;

	memset(o, 0, sizeof(*o));
	start = now();
	if (write(tcp.socket[1], sql, size) != (ssize_t)size)
		rig_die("TCP: %s", strerror(errno));
	do {
		more = tcp_message(in, reader, o, &array);
		if (o->first == 0 && (!more || array.release != NULL))
			o->first = now() - start;
		if (array.release == NULL)
			continue;
		o->batches++;
		o->rows += array.length;
		array.release(&array);
	} while (more);
	o->seconds = now() - start;
	ipc_reader_destroy(reader);
}

static void
tcp_client(void *arg)
{
	FILE *in = fdopen(tcp.socket[1], "r");
	char sql[STATEMENT_MAX];
	unsigned int i;

	if (in == NULL)
		rig_die("TCP: %s", strerror(errno));
	setvbuf(in, NULL, _IOFBF, SOCKET_BUFFER);
	statement_text(sql, tcp.sql, tcp.nb);
	tcp_ask(in, sql, &tcp.outcome[0]);
	for (i = 0; i < tcp.nb; i++) {
		statement_text(sql, tcp.sql, i);
		tcp_ask(in, sql, &tcp.outcome[i]);
	}
	fclose(in);
}

void
peers_tcp_query(struct bench_engine *e, const char *sql, struct outcome *o, unsigned int nb)
{
	peers_connect_stream(tcp.socket);
	tcp.engine = e;
	tcp.sql = sql;
	tcp.outcome = o;
	tcp.nb = nb;
	pair_run(tcp_client, NULL, tcp_server, NULL);
}

static struct rdma_mr *
reg(struct rig_side *s, void *addr, uint64_t length, uint32_t access)
{
	const struct rdma_mr_attr attr = {addr, length, access, -1};
	struct rdma_mr *mr = rdma_mr_reg(s->pd, &attr);

	if (mr == NULL)
		rig_die("no registration");
	return mr;
}

static void
dereg(struct rig_side *s, struct rdma_mr *mr)
{
	while (rdma_mr_dereg(mr) == -EBUSY)
		rig_poll_side(s);
}

/* ---- WRITEs alone ---------------------------------------------------------------------------- */

static const struct rdma_qp_attr reliable = {
	.type = RDMA_QP_RC,
	.max_send_wr = 256,
	.max_recv_wr = 2 * SLOTS,
	.retry_count = 7,
	.rnr_retry = 7,
	/* 1.1 s: other programs may have the CPUs */
	.ack_timeout = 18,
};

static struct {
	uint64_t bytes;
	double seconds;
	/* what is written, once or repeatedly */
	const uint8_t *from;
	uint64_t size;
	struct rdma_mr *mr;
} raw;

/* The file of images, as the server maps it. */
static struct {
	uint8_t *bytes;
	uint64_t size;
	struct rdma_mr *mr;
} map;

/* The worker lcore is the server here: the way has no direction. */
static void
write_all(struct rig *r)
{
	const double start = now();
	uint64_t posted = 0, done = 0, at;
	unsigned int flying = 0, n, i;
	struct rdma_wc wc[SLOTS];

	while (done < raw.bytes) {
		while (posted < raw.bytes && flying < SLOTS) {
			const uint32_t length = RTE_MIN(raw.bytes - posted, SLOT_BYTES);
			struct rdma_sge sg;
			struct rdma_send_wr wr = {.wr_id = length,
				.sg = &sg,
				.nb_sge = 1,
				.op = RDMA_OP_WRITE_IMM,
				.flags = RDMA_SEND_SIGNALED,
				.rkey = rdma_mr_rkey(r->b.mr)};

			at = posted % raw.size;
			at = at + length <= raw.size ? at : 0;
			sg = (struct rdma_sge){
				(uintptr_t)raw.from + at, length, rdma_mr_lkey(raw.mr)};
			wr.remote_addr =
				(uintptr_t)r->b.memory + posted / SLOT_BYTES % SLOTS * SLOT_BYTES;
			if (rdma_post_send(r->a.qp, &wr, 1) != 1)
				rig_die("no room for a WRITE");
			posted += length;
			flying++;
		}
		rig_turn(r);
		n = rdma_poll_cq(r->a.send_cq, wc, SLOTS);
		for (i = 0; i < n; i++) {
			if (wc[i].status != RDMA_WC_SUCCESS)
				rig_die("WRITE: %s", rdma_wc_status_name(wc[i].status));
			done += wc[i].wr_id;
			flying--;
		}
	}
	raw.seconds = now() - start;
}

static void
post_receives(struct rig *r, unsigned int n)
{
	const struct rdma_recv_wr wr[2 * SLOTS] = {0};

	if (rdma_post_recv(r->b.qp, wr, n) != n)
		rig_die("no room for receives");
}

static void
receive_writes(struct rig *r)
{
	struct rdma_wc wc[SLOTS];
	const unsigned int n = rdma_poll_cq(r->b.recv_cq, wc, SLOTS);

	if (n > 0)
		post_receives(r, n);
}

void
peers_open(const char *dir)
{
	char path[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/run_images.arrow", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)SLOT_BYTES)
		rig_die("%s: no file with images", path);
	map.size = st.st_size;
	map.bytes = mmap(NULL, map.size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	close(fd);
	if (map.bytes == MAP_FAILED)
		rig_die("%s: %s", path, strerror(errno));
	map.mr = reg(&rig.a, map.bytes, map.size, 0);
}

void
peers_close(void)
{
	dereg(&rig.a, map.mr);
	munmap(map.bytes, map.size);
}

double
peers_write(uint64_t bytes, bool of_file)
{
	raw.bytes = bytes;
	raw.from = of_file ? map.bytes : rig.a.memory;
	raw.size = of_file ? map.size : MEMORY;
	raw.mr = of_file ? map.mr : rig.a.mr;
	rig_rest(&rig, false);
	rig_connect(&rig, &reliable);
	post_receives(&rig, 2 * SLOTS);
	rig_run(&rig, write_all, receive_writes);
	rig_disconnect(&rig);
	rig_rest(&rig, true);
	return raw.seconds;
}

/* ---- Thallus' way ---------------------------------------------------------------------------- */

#define SEGMENTS 512

/* What the server's RPC for a batch tells the client. nb is 0: no more batches. */
struct description {
	uint64_t rows;
	uint64_t nb;
	struct {
		uint64_t addr;
		uint64_t length;
		uint64_t rkey;
	} segment[SEGMENTS];
};

/* Places in the memory of both ends: what is sent, what is received. */
#define SENT	 0
#define RECEIVED MIB

static struct {
	struct bench_engine *engine;
	const char *sql;
	struct outcome *outcome;
	struct rdma_mr *mr[SEGMENTS];
	unsigned int nb;
	struct ArrowArray array;
} thallus;

static void
listen_again(struct rig_side *s)
{
	const struct rdma_sge sg = {
		(uintptr_t)s->memory + RECEIVED, sizeof(struct description), rdma_mr_lkey(s->mr)};
	const struct rdma_recv_wr wr = {.sg = &sg, .nb_sge = 1};

	if (rdma_post_recv(s->qp, &wr, 1) != 1)
		rig_die("no room for a receive");
}

static void
say(struct rig_side *s, uint32_t size)
{
	const struct rdma_sge sg = {(uintptr_t)s->memory + SENT, size, rdma_mr_lkey(s->mr)};
	const struct rdma_send_wr wr = {
		.sg = &sg, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};

	if (rdma_post_send(s->qp, &wr, 1) != 1)
		rig_die("no room for a message");
}

/* Wait for `n` completions; only the end of this lcore is polled. */
static void
complete(struct rig_side *s, struct rdma_cq *cq, unsigned int n)
{
	struct rdma_wc wc[16];
	unsigned int got, i;

	while (n > 0) {
		rig_poll_side(s);
		got = rdma_poll_cq(cq, wc, RTE_MIN(n, 16u));
		for (i = 0; i < got; i++)
			if (wc[i].status != RDMA_WC_SUCCESS)
				rig_die("Thallus' way: %s", rdma_wc_status_name(wc[i].status));
		n -= got;
	}
}

static void
add_segment(struct description *d, const void *bytes, uint64_t length)
{
	if (bytes == NULL || length == 0)
		return;
	if (d->nb == SEGMENTS)
		rig_die("Thallus' way: more than %u buffers", SEGMENTS);
	thallus.mr[d->nb] = reg(&rig.b, (void *)(uintptr_t)bytes, length, RDMA_ACCESS_REMOTE_READ);
	d->segment[d->nb].addr = (uintptr_t)bytes;
	d->segment[d->nb].length = length;
	d->segment[d->nb].rkey = rdma_mr_rkey(thallus.mr[d->nb]);
	d->nb++;
}

/* Takes the buffers of a batch from the writer of IPC, which knows their sizes. */
static int
take_buffers(void *arg, const void *metadata, size_t size, const struct ipc_buffer *buffer,
	size_t nb, uint64_t body)
{
	struct description *d = arg;
	size_t i;

	for (i = 0; i < nb; i++)
		add_segment(d, buffer[i].bytes, buffer[i].size);
	return 0;
}

/* The server, on the main lcore. */
static void
thallus_serve(void)
{
	struct description *d = (struct description *)(rig.b.memory + SENT);
	const struct ipc_sink sink = {take_buffers, d};
	struct ArrowArrayStream stream;
	struct ArrowSchema schema;
	struct ipc_stream ipc;
	unsigned int i;

	complete(&rig.b, rig.b.recv_cq, 1);
	execute(thallus.engine, thallus.sql, &stream);
	if (stream.get_schema(&stream, &schema) != 0 ||
		ipc_stream_begin_messages(&ipc, &sink, &schema) < 0)
		rig_die("%s: no schema", thallus.sql);
	do {
		struct ArrowArray array;

		next(thallus.engine, &stream, &array);
		d->nb = d->rows = 0;
		if (array.release != NULL) {
			d->rows = array.length;
			if (ipc_stream_batch(&ipc, &array) < 0)
				rig_die("%s: no batch", thallus.sql);
		}
		listen_again(&rig.b);
		say(&rig.b,
			offsetof(struct description, segment) +
				(uint32_t)d->nb * sizeof(d->segment[0]));
		complete(&rig.b, rig.b.send_cq, 1);
		if (array.release == NULL)
			break;
		/* the client has read it */
		complete(&rig.b, rig.b.recv_cq, 1);
		for (i = 0; i < d->nb; i++)
			dereg(&rig.b, thallus.mr[i]);
		array.release(&array);
	} while (true);
	schema.release(&schema);
	stream.release(&stream);
}

/* Fetch a batch: allocate, register, read. */
static void
thallus_fetch(struct rig *r, const struct description *d)
{
	uint64_t size = 0, at = 0;
	unsigned int i, flying = 0;
	struct rdma_mr *mr;
	uint8_t *memory;

	for (i = 0; i < d->nb; i++)
		size += RTE_ALIGN_CEIL(d->segment[i].length, 64);
	memory = aligned_alloc(64, size > 0 ? size : 64);
	if (memory == NULL)
		rig_die("Thallus' way: no memory");
	mr = reg(&r->a, memory, size > 0 ? size : 64, RDMA_ACCESS_LOCAL_WRITE);
	for (i = 0; i < d->nb; i++) {
		const struct rdma_sge sg = {
			(uintptr_t)memory + at, d->segment[i].length, rdma_mr_lkey(mr)};
		const struct rdma_send_wr wr = {.sg = &sg,
			.nb_sge = 1,
			.op = RDMA_OP_READ,
			.flags = RDMA_SEND_SIGNALED,
			.remote_addr = d->segment[i].addr,
			.rkey = d->segment[i].rkey};

		if (rdma_post_send(r->a.qp, &wr, 1) != 1)
			rig_die("no room for a READ");
		at += RTE_ALIGN_CEIL(d->segment[i].length, 64);
		if (++flying == 64) {
			complete(&r->a, r->a.send_cq, 1);
			flying--;
		}
	}
	complete(&r->a, r->a.send_cq, flying);
	dereg(&r->a, mr);
	free(memory);
	thallus.outcome->bytes += at;
}

/* The client, on the worker lcore. */
static void
thallus_ask(struct rig *r)
{
	struct description *d = (struct description *)(r->a.memory + RECEIVED);
	struct outcome *o = thallus.outcome;
	double start;

	memset(o, 0, sizeof(*o));
	start = now();
	do {
		listen_again(&r->a);
		say(&r->a, 8);
		complete(&r->a, r->a.send_cq, 1);
		complete(&r->a, r->a.recv_cq, 1);
		if (d->rows > 0)
			thallus_fetch(r, d);
		if (o->first == 0)
			o->first = now() - start;
		o->rows += d->rows;
		o->batches += d->rows > 0;
	} while (d->rows > 0);
	o->seconds = now() - start;
}

void
peers_thallus_query(struct bench_engine *e, const char *sql, struct outcome *o)
{
	thallus.engine = e;
	thallus.sql = sql;
	thallus.outcome = o;
	rig_rest(&rig, false);
	rig_connect(&rig, &reliable);
	listen_again(&rig.b);
	atomic_store_explicit(&rig.job, thallus_ask, memory_order_release);
	thallus_serve();
	while (atomic_load_explicit(&rig.job, memory_order_acquire))
		rig_poll_side(&rig.b);
	rig_disconnect(&rig);
	rig_rest(&rig, true);
}

/* ---- messages alone -------------------------------------------------------------------------- */

static struct {
	uint32_t query, result; /* bytes */
	double *seconds;
	unsigned int nb;
} trip;

static void
trip_seal(struct xfer_seal *seal)
{
	static const uint8_t key[XFER_MAC_BYTES] = "messages";

	if (xfer_seal_open(seal, key) < 0)
		rig_die("messages: no MAC");
}

/* @return number of SENDs of a message */
static unsigned int
trip_sends(uint32_t size)
{
	return (size + XFER_MSG_MAX - 1) / XFER_MSG_MAX;
}

static void
trip_send(struct rig_side *s, struct xfer_seal *seal, uint32_t size)
{
	uint8_t *message = s->memory + SENT;
	uint32_t part;

	for (; size > 0; size -= part) {
		part = RTE_MIN(size, (uint32_t)XFER_MSG_MAX);
		if (xfer_seal_make(
			    seal, XFER_SEALED_MESSAGE, message, part, NULL, 0, message + part) < 0)
			rig_die("messages: no MAC");
		say(s, part + XFER_TAG_BYTES);
	}
}

static void
trip_receive(struct rig_side *s, struct xfer_seal *seal, uint32_t size)
{
	const uint8_t *message = s->memory + RECEIVED;
	uint32_t part;

	for (; size > 0; size -= part) {
		part = RTE_MIN(size, (uint32_t)XFER_MSG_MAX);
		complete(s, s->recv_cq, 1);
		if (!xfer_seal_check(
			    seal, XFER_SEALED_MESSAGE, message, part, NULL, 0, message + part))
			rig_die("messages: a wrong MAC");
		listen_again(s);
	}
}

/* The client, on the worker lcore. */
static void
trip_ask(struct rig *r)
{
	struct xfer_seal seal = {NULL};
	unsigned int i;
	double start;

	trip_seal(&seal);
	for (i = 0; i < trip.nb; i++) {
		start = now();
		trip_send(&r->a, &seal, trip.query);
		trip_receive(&r->a, &seal, trip.result);
		trip.seconds[i] = now() - start;
		complete(&r->a, r->a.send_cq, trip_sends(trip.query));
	}
	xfer_seal_close(&seal);
}

void
peers_messages(uint32_t query, uint32_t result, double *seconds, unsigned int nb)
{
	struct xfer_seal seal = {NULL};
	unsigned int i;

	trip.query = query;
	trip.result = result;
	trip.seconds = seconds;
	trip.nb = nb;
	rig_rest(&rig, false);
	rig_connect(&rig, &reliable);
	for (i = 0; i < SLOTS; i++) {
		listen_again(&rig.a);
		listen_again(&rig.b);
	}
	trip_seal(&seal);
	atomic_store_explicit(&rig.job, trip_ask, memory_order_release);
	for (i = 0; i < nb; i++) {
		trip_receive(&rig.b, &seal, query);
		trip_send(&rig.b, &seal, result);
		complete(&rig.b, rig.b.send_cq, trip_sends(result));
	}
	while (atomic_load_explicit(&rig.job, memory_order_acquire))
		rig_poll_side(&rig.b);
	xfer_seal_close(&seal);
	rig_disconnect(&rig);
	rig_rest(&rig, true);
}
