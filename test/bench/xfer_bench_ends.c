/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "journal/journal.h"
#include "xfer/qp.h"
#include "egress/store_client.h"
#include "xfer_bench.h"
#include "server/store.h"

#define PATIENCE_MS 10000
#define PARTS	    65 /* of a body in slots: 64, and its end in the room */
#define SLOT	    (256 * KIB)

/* The receiver's end. */
static struct {
	struct journal *journal;
	struct store_set stores;
	struct rdma_pd *pd;
	struct xfer_mr memory;
	struct store_client *sender;
	struct xfer_key key;
	unsigned int run;
	uint64_t sequence; /* batches that were kept */
	uint64_t durable;
	uint8_t *next;		      /* position of the next one to be made */
	uint8_t *end;		      /* of the journal's memory */
	uint8_t metadata[XFER_BLOCK]; /* of the batch being made */
	uint8_t *area;		      /* of the journal: slots after its memory */
	bool in_parts;		      /* bodies begin in slots of the area */
} sender;

static struct store *store;

/* ---- a disk that completes every write immediately ------------------------------------------- */

struct null_file {
	struct arrow_io_info info;
	uint64_t tag[ARROW_IO_DEPTH_MAX + 1];
	unsigned int nb;
};

static int
null_open(void **handle, const struct arrow_io_open *how)
{
	struct null_file *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return -ENOMEM;
	f->info = (struct arrow_io_info){.mode = ARROW_IO_DIRECT_URING, .memory_align = 512};
	*handle = f;
	return 0;
}

static const struct arrow_io_info *
null_info(void *handle)
{
	return &((struct null_file *)handle)->info;
}

static int
null_sync(void *handle, uint64_t tag)
{
	struct null_file *f = handle;

	f->tag[f->nb++] = tag;
	return 0;
}

static int
null_write(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset, uint64_t tag)
{
	return null_sync(handle, tag);
}

static int
null_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	struct null_file *f = handle;

	if (f->nb == 0)
		return 0;
	*done = (struct arrow_io_done){.tag = f->tag[--f->nb]};
	return 1;
}

static int
null_size(void *handle, uint64_t size)
{
	return 0;
}

static int
null_map(void *handle, const uint8_t **data, uint64_t *size)
{
	return -ENOTSUP;
}

static int
null_close(void *handle)
{
	free(handle);
	return 0;
}

static int
null_rename(const char *from, const char *to)
{
	return 0;
}

static int
null_path(const char *path)
{
	return 0;
}

static const struct arrow_io_ops null_io = {
	.open = null_open,
	.info = null_info,
	.write = null_write,
	.sync = null_sync,
	.reap = null_reap,
	.allocate = null_size,
	.truncate = null_size,
	.map = null_map,
	.close = null_close,
	.rename = null_rename,
	.remove = null_path,
	.sync_dir = null_path,
};

/* ---- the receiver's end ---------------------------------------------------------------------- */

/* Position in the journal of the batch after one at `at`; a batch is contiguous. */
static uint8_t *
behind(uint8_t *at)
{
	const uint64_t step = XFER_BLOCK + batch.body;

	return at + 2 * step > sender.end ? sender.end - MEMORY : at + step;
}

/*
 * Make n batches where the journal will have room for them, as the builder does in another thread
 * of a receiver. The journal is empty. Bodies keep the present content of the memory, which is not
 * read.
 */
static void
make_batches(unsigned int n)
{
	const struct arrow_template *t = &batch.template;
	struct arrow_batch numbers = {
		.rows = batch.rows,
		.nodes = (const struct arrow_node *)(batch.metadata + t->nodes),
		.buffers = (const struct arrow_buffer *)(batch.metadata + t->buffers),
		.body_length = batch.body,
		.sequence = sender.sequence,
	};
	uint8_t *at;

	sender.next = at = journal_reserve(sender.journal, batch.body);
	for (; n > 0; n--, numbers.sequence++, at = behind(at)) {
		arrow_template_patch(t, sender.metadata, &numbers);
		memcpy(at, sender.metadata, XFER_BLOCK);
	}
}

/* Assign and offer a batch that was filled. */
static void
offer(const struct journal_batch *b)
{
	const uint32_t number = journal_commit(sender.journal, b);

	journal_assign(sender.journal, number, 0);
	if (store_client_offer(sender.sender, number) < 0)
		rig_die("no memory for a batch's number");
	sender.sequence++;
}

/*
 * Fill the next room with a batch whose body is in slots, but its end: of odd lengths, as chunks
 * are, at addresses of whole cache lines, as gangs write them.
 */
static void
refer(struct journal_batch *b)
{
	const struct arrow_template *t = &batch.template;
	const struct arrow_batch numbers = {
		.rows = batch.rows,
		.nodes = (const struct arrow_node *)(batch.metadata + t->nodes),
		.buffers = (const struct arrow_buffer *)(batch.metadata + t->buffers),
		.body_length = batch.body,
		.sequence = sender.sequence,
	};
	struct journal_reference reference[PARTS - 1];
	const uint64_t bytes = (batch.body / PARTS - 1) | 1;
	uint8_t *room;
	uint32_t i;

	for (i = 0; i < PARTS - 1; i++) {
		reference[i] = (struct journal_reference){
			.slot = journal_slot_take(sender.journal), .bytes = bytes};
		if (reference[i].slot == JOURNAL_NO_SLOT)
			rig_die("the journal has no slot for a part");
	}
	b->rest_bytes = batch.body - i * bytes;
	room = journal_reserve(sender.journal, XFER_BLOCK + RTE_ALIGN(b->rest_bytes, XFER_BLOCK));
	if (room == NULL)
		rig_die("the journal has no room for a batch in parts");
	arrow_template_patch(t, sender.metadata, &numbers);
	memcpy(room, sender.metadata, XFER_BLOCK);
	journal_refer(sender.journal, b, reference, i);
}

/* Keep, assign and offer a batch that was made; the rest is the work of the egress lcore. */
static void
keep(void)
{
	struct journal_batch b = {
		.sequence = sender.sequence,
		.rows = batch.rows,
		.last = batch.rows - 1,
		.received = 1,
		.body_bytes = batch.body,
		.run = sender.run,
		.table = batch.table,
	};

	if (sender.in_parts) {
		refer(&b);
		offer(&b);
		return;
	}
	if (journal_reserve(sender.journal, batch.body) != sender.next)
		rig_die("the journal has no room for a batch where it was made");
	journal_fill(sender.journal, &b);
	offer(&b);
	sender.next = behind(sender.next);
}

static void
on_result(void *arg, uint32_t number, enum xfer_result_status status)
{
	if (status != XFER_DURABLE)
		rig_die("a batch was not stored: %d", status);
	sender.durable++;
}

/* One iteration of the receiver's egress lcore. */
static void
turn(void)
{
	static unsigned int turns;
	struct rdma_event event[4];
	unsigned int i, n;

	(void)rdma_progress(rig.a.dev, 0);
	(void)store_client_poll(sender.sender);
	if (turns++ % 64 != 0)
		return;
	n = rdma_poll_cm(rig.a.dev, event, 4);
	for (i = 0; i < n; i++) {
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			store_client_event(rdma_conn_context(event[i].conn), &event[i]);
	}
}

static struct store_client_stats
stats(void)
{
	struct store_client_stats s;

	store_client_stats_get(sender.sender, &s);
	return s;
}

/* Poll until the condition is true. */
#define UNTIL(condition)                                                \
	do {                                                            \
		const uint64_t limit = xfer_qp_clock() + PATIENCE_MS;   \
		while (!(condition)) {                                  \
			turn();                                         \
			if (xfer_qp_clock() > limit)                    \
				rig_die("not in time: %s", #condition); \
		}                                                       \
	} while (0)

/* Run a job on the worker while the main lcore runs the store. */
static void
run(void (*what)(struct rig *))
{
	atomic_store_explicit(&rig.job, what, memory_order_release);
	while (atomic_load_explicit(&rig.job, memory_order_acquire))
		(void)store_poll(store);
}

static void
open_sender(struct rig *r)
{
	struct journal_run run_of = {.run = 1, .incarnation = batch.incarnation, .name = "bench"};
	struct store_client_config c = {
		.dev = r->a.dev,
		.pd = sender.pd,
		.stores = &sender.stores,
		.journal = sender.journal,
		.memory = &sender.memory,
		.message_max = MEMORY,
		.max_sge = RDMA_SGE_MAX,
		.receiver_id = 1,
		.identity = "bench",
		.key = &sender.key,
		.role = XFER_ROLE_RECEIVER,
		.result = on_result,
	};
	struct sockaddr_in *to = (struct sockaddr_in *)&sender.stores.at[0].to;
	uint8_t *header[ARROW_TABLES];
	size_t size;
	unsigned int i;
	int index;

	for (i = 0; i < ARROW_TABLES; i++) {
		if (arrow_header_build(&batch.tables.schema[i], &header[i], &size) < 0)
			rig_die("no memory for a schema");
		run_of.schema[i] = header[i];
		run_of.schema_bytes[i] = size;
		run_of.body_max[i] = i == batch.table ? batch.body : XFER_BLOCK;
	}
	index = journal_run_add(sender.journal, &run_of);
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	if (index < 0)
		rig_die("the journal takes no run: %s", strerror(-index));
	sender.run = c.run = index;
	sender.sequence = sender.durable = 0;
	memcpy(sender.metadata, batch.template.bytes, XFER_BLOCK);
	sender.stores.journal = sender.journal;
	sender.stores.nb = 1;
	snprintf(sender.stores.at[0].name, sizeof(sender.stores.at[0].name), "bench");
	snprintf(sender.stores.at[0].address, sizeof(sender.stores.at[0].address), "bench");
	to->sin_family = AF_INET;
	to->sin_port = htons(XFER_PORT);
	to->sin_addr.s_addr = htonl(0x0a000002);
	if (store_set_find(&sender.stores) < 0 || store_client_open(&sender.sender, &c) < 0)
		rig_die("no sender");
	UNTIL(stats().state == STORE_CLIENT_UP);
}

static void
close_sender(struct rig *r)
{
	const uint64_t batches[XFER_TABLES] = {0};

	journal_run_end(sender.journal, sender.run, batches);
	store_client_finish(sender.sender);
	UNTIL(stats().state == STORE_CLIENT_ENDED);
	UNTIL(store_client_close(sender.sender) == 0);
	sender.sender = NULL;
	if (journal_run_drop(sender.journal, sender.run) < 0)
		rig_die("batches are left");
}

/* Number of batches that the store has taken. */
static uint64_t
taken(void)
{
	return __atomic_load_n(
		&store_get_shared(store)->counters.fault[XFER_DESC_GOOD], __ATOMIC_RELAXED);
}

/* Send batches that were made. @return cycles until the store has taken the last one */
static uint64_t
send_batches(unsigned int n)
{
	const uint64_t end = sender.sequence + n, all = taken() + n;
	const unsigned int depth = batch_depth();
	const uint64_t begin = rte_rdtsc();
	uint64_t cycles;

	while (sender.sequence < end) {
		while (sender.sequence < end && sender.sequence - sender.durable < depth)
			keep();
		turn();
	}
	/* the store's cache line is not read before */
	UNTIL(taken() == all);
	cycles = rte_rdtsc() - begin;
	UNTIL(sender.durable == sender.sequence);
	return cycles;
}

static void
stream_batches(struct rig *r)
{
	const uint64_t length = (uint64_t)(job.seconds * (double)rte_get_tsc_hz());
	const unsigned int n = batch_segment();

	job.cycles = 0;
	job.bytes = 0;
	while (job.cycles < length) {
		if (!sender.in_parts)
			make_batches(n);
		job.cycles += send_batches(n);
		job.bytes += n * (batch.body + batch.entry);
	}
}

static void
single_batches(struct rig *r)
{
	const double tick = 1e3 / (double)rte_get_tsc_hz();
	unsigned int i;

	for (i = 0; i < job.nb_times; i++) {
		make_batches(1);
		job.times[i] = (double)send_batches(1) * tick;
	}
}

void
ends_begin(void)
{
	run(open_sender);
}

void
ends_end(void)
{
	run(close_sender);
}

double
ends_stream(bool in_parts)
{
	sender.in_parts = in_parts;
	run(stream_batches);
	sender.in_parts = false;
	return (double)job.bytes * (double)rte_get_tsc_hz() / (double)job.cycles;
}

void
ends_singles(void)
{
	run(single_batches);
}

void
ends_open(char *directory)
{
	char path[64], keys[72], message[PATH_MAX];
	const struct journal_config c = {.path = path,
		.receiver_id = 1,
		.bytes = MEMORY,
		.slot_bytes = SLOT,
		.slots = MEMORY / SLOT};
	struct rdma_mr_attr attr = {.gpu = -1};
	uint64_t slot_bytes;
	uint32_t slots;
	struct store_config config = {
		.dev = rig.b.dev,
		.keys = keys,
		.memory = MEMORY,
		.heartbeat_ms = 1000,
		/* the connection is idle while the others are measured */
		.silence_ms = 60000,
		/* no pass over bodies, as in the peers; store_bench measures it */
		.check = STORE_CHECK_OFF,
		.files = {.root = directory,
			.slices = {.io = &null_io, .sync_ms = 1, .sync_bytes = MIB}},
	};
	FILE *f;
	int ret;

	if (mkdtemp(directory) == NULL)
		rig_die("%s: %s", directory, strerror(errno));
	snprintf(path, sizeof(path), "/dev/shm/braggline-bench-%d", getpid());
	f = fopen(path, "w");
	if (f == NULL || fprintf(f, "%032d", 1) < 0 || fclose(f) != 0 || chmod(path, 0600) < 0)
		rig_die("%s: %s", path, strerror(errno));
	snprintf(keys, sizeof(keys), "%s-keys", path);
	f = fopen(keys, "w");
	if (f == NULL ||
		fprintf(f, "[receiver bench]\nkey = %s\nreceiver_ids = 0-100\n", path) < 0 ||
		fclose(f) != 0 || chmod(keys, 0600) < 0)
		rig_die("%s: %s", keys, strerror(errno));
	if (xfer_key_read(&sender.key, path, message) < 0 ||
		store_open(&store, &config, message) < 0)
		rig_die("%s", message);
	unlink(keys);
	unlink(path);
	if (journal_open(&sender.journal, &c, message) != 0)
		rig_die("%s", message);
	unlink(path);
	sender.pd = rdma_pd_alloc(rig.a.dev);
	journal_memory(sender.journal, &attr.addr, &attr.length);
	sender.area = journal_area(sender.journal, &slot_bytes, &slots);
	sender.end = sender.area;
	/* touch every page before the measurement */
	memset(sender.end - MEMORY, 0x5a, MEMORY);
	memset(sender.area, 0x5a, slots * slot_bytes);
	ret = xfer_mr_open(&sender.memory, sender.pd, &attr, UINT64_MAX, XFER_BLOCK);
	if (ret < 0)
		rig_die("no memory region: %s", rte_strerror(-ret));
}

static void
deregister(struct rig *r)
{
	const uint64_t limit = xfer_qp_clock() + PATIENCE_MS;

	while (xfer_mr_close(&sender.memory) == -EBUSY && xfer_qp_clock() < limit)
		(void)rdma_progress(r->a.dev, 0);
}

void
ends_close(const char *directory)
{
	char command[128];

	run(deregister);
	store_stop(store);
	while (!store_is_idle(store))
		(void)store_poll(store);
	(void)store_close(store);
	rdma_pd_free(sender.pd);
	journal_close(sender.journal);
	snprintf(command, sizeof(command), "rm -r %s", directory);
	if (system(command) != 0)
		rig_die("%s: cannot be removed", directory);
}
