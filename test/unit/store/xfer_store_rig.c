/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores and a receiver over software RoCE, and the switch between them. */

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/names.h"
#include "xfer_store_rig.h"

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "arrow/reader.h"
#include "../roce/ring_port.h"

struct rig rig;

/* ---- the switch ------------------------------------------------------------------------------ */

static void
forward(struct rte_mbuf *m, unsigned int from)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	struct rte_mbuf *copy;
	unsigned int i;

	rig.station[from].mac = eth->src_addr;
	rig.station[from].known = true;
	if (rig.station[from].out || sample_random(&rig.sample.sample) % 1000 < rig.lose)
		goto drop;
	for (i = 0; i < RIG_STATIONS; i++) {
		if (i == from || rig.station[i].out)
			continue;
		if (rte_is_multicast_ether_addr(&eth->dst_addr)) {
			copy = rte_pktmbuf_copy(m, m->pool, 0, UINT32_MAX);
			if (copy != NULL && rte_ring_enqueue(rig.station[i].rx, copy) < 0)
				rte_pktmbuf_free(copy);
		} else if (rig.station[i].known &&
			rte_is_same_ether_addr(&rig.station[i].mac, &eth->dst_addr)) {
			if (rte_ring_enqueue(rig.station[i].rx, m) == 0)
				return;
		}
	}
drop:
	rte_pktmbuf_free(m);
}

static void
turn_switch(void)
{
	struct rte_mbuf *m;
	unsigned int i;

	for (i = 0; i < RIG_STATIONS; i++) {
		while (rte_ring_dequeue(rig.station[i].tx, (void **)&m) == 0)
			forward(m, i);
	}
}

static void
open_station(unsigned int i)
{
	char name[32], device[RDMA_NAME_MAX];

	snprintf(name, sizeof(name), "st%u", i);
	ring_port_make(name, 4096, 1, &rig.station[i].rx, &rig.station[i].tx);
	snprintf(device, sizeof(device), "roce:port=net_ring_st%u,ip=10.0.0.%u/24", i, i + 1);
	rig.dev[i] = rdma_dev_open(device);
	assert_non_null(rig.dev[i]);
	(void)rdma_progress(rig.dev[i], 0);
}

/* ---- receiver and store ---------------------------------------------------------------------- */

static void
on_result(void *arg, uint32_t batch, enum xfer_result_status status)
{
	const unsigned int i = (uintptr_t)arg;

	if (status != XFER_RETRY)
		return;
	rig.again++;
	assert_int_equal(store_client_offer(rig.sender[i], batch), 0);
}

void
rig_turn(void)
{
	struct rdma_event event[4];
	unsigned int i, n;

	turn_switch();
	/* also between receivers: a store waits for the DREQ of a connection that was closed */
	(void)rdma_progress(rig.dev[0], 0);
	n = rdma_poll_cm(rig.dev[0], event, 4);
	for (i = 0; i < n; i++) {
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			store_client_event(rdma_conn_context(event[i].conn), &event[i]);
	}
	for (i = 0; i < RIG_STORES; i++) {
		if (rig.sender[i] != NULL)
			(void)store_client_poll(rig.sender[i]);
		if (rig.store[i] != NULL)
			(void)store_poll(rig.store[i]);
	}
	if (rig.also != NULL)
		rig.also();
}

static void
print_counters(const struct rdma_dev *d, const char *name)
{
	struct rdma_xstat x[256];
	int i, n = d != NULL ? rdma_xstats_get(d, x, 256) : 0;

	for (i = 0; i < n; i++) {
		if (x[i].value != 0)
			printf("%s %s %lu\n", name, x[i].name, x[i].value);
	}
}

void
rig_give_up(const char *what)
{
	unsigned int i;

	print_counters(rig.dev[0], "receiver");
	for (i = 0; i < RIG_STORES; i++)
		print_counters(rig.dev[1 + i], "store");
	fail_msg("not in %d s: %s", RIG_SECONDS, what);
}

void
rig_write_keys(const char *more)
{
	FILE *f = fopen(rig.keys_path, "w");

	fprintf(f,
		"[receiver " RIG_IDENTITY "]\nkey = %s\nreceiver_ids = 81985529216486895\n%s\n"
		"[receiver hostile]\nkey = hex:",
		rig.key_path, more);
	for (unsigned int i = 0; i < rig.hostile_key.size; i++)
		fprintf(f, "%02x", rig.hostile_key.bytes[i]);
	fprintf(f, "\nreceiver_ids = 666\n");
	fclose(f);
	(void)chmod(rig.keys_path, 0600);
}

void
rig_open_store_in(unsigned int i, unsigned int directory)
{
	static char dir[RIG_STORES][96];
	const struct store_config c = {
		.dev = rig.dev[1 + i],
		.keys = rig.keys_path,
		.memory = 4 << 20,
		.region = rig.region,
		.heartbeat_ms = RIG_HEARTBEAT_MS,
		.silence_ms = RIG_SILENCE_MS,
		.files = {.root = dir[i],
			.quota = rig.quota,
			.runs_max = rig.runs_max,
			.idle_ms = rig.idle_ms,
			.slices = {.io = rig.io, .sync_ms = 20, .slice = 65536, .ahead = 1 << 20}},
	};

	snprintf(dir[i], sizeof(dir[i]), "%s/store%u", rig.root, directory);
	(void)mkdir(dir[i], 0755);
	if (store_open(&rig.store[i], &c, rig.message) < 0)
		fail_msg("%s", rig.message);
}

void
rig_open_store(unsigned int i)
{
	rig_open_store_in(i, i);
}

void
rig_close_store(unsigned int i)
{
	/* the switch must forward until the last frame has released its memory */
	store_stop(rig.store[i]);
	UNTIL(store_is_idle(rig.store[i]));
	assert_int_equal(store_close(rig.store[i]), 0);
	rig.store[i] = NULL;
}

void
rig_open_sender_to(unsigned int i, unsigned int to_store)
{
	const struct store_client_config c = {
		.dev = rig.dev[0],
		.pd = rig.pd,
		.stores = &rig.stores,
		.at = to_store,
		.journal = rig.journal,
		.memory = &rig.memory,
		.message_max = rig.message_max > 0 ? rig.message_max : UINT64_MAX,
		.max_sge = rig.max_sge > 0 ? rig.max_sge : RDMA_SGE_MAX,
		.run = rig.run,
		.receiver_id = 0x0123456789abcdefull,
		.identity = RIG_IDENTITY,
		.key = &rig.key,
		.role = XFER_ROLE_RECEIVER,
		.failover_ms = rig.failover_ms,
		.result = on_result,
		.arg = (void *)(uintptr_t)i,
	};

	assert_int_equal(store_client_open(&rig.sender[i], &c), 0);
}

void
rig_open_sender(unsigned int i)
{
	rig_open_sender_to(i, i);
}

void
rig_close_sender(unsigned int i)
{
	if (rig.sender[i] == NULL)
		return;
	while (store_client_close(rig.sender[i]) < 0)
		rig_turn();
	rig.sender[i] = NULL;
}

struct store_client_stats
rig_stats_of(unsigned int i)
{
	struct store_client_stats stats;

	store_client_stats_get(rig.sender[i], &stats);
	return stats;
}

static void
on_step(void *arg)
{
	if (rig.step != NULL)
		rig.step();
}

static void
add_run(void)
{
	const struct arrow_identity id = xfer_sample_identity(0);
	struct journal_run r = {.run = id.run, .incarnation = id.incarnation, .name = "sample"};
	uint8_t *header[ARROW_TABLES];
	size_t size;
	unsigned int i, k;

	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(
			arrow_header_build(&rig.sample.tables.schema[i], &header[i], &size), 0);
		r.schema[i] = header[i];
		r.schema_bytes[i] = size;
		for (k = 0; k < rig.sample.nb[i]; k++) {
			if (rig.sample.batch[i][k].batch.body_bytes > r.body_max[i])
				r.body_max[i] = rig.sample.batch[i][k].batch.body_bytes;
		}
	}
	rig.run = journal_run_add(rig.journal, &r);
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
}

static void
open_journal(int wanted)
{
	const struct journal_config c = {.path = rig.journal_path,
		.receiver_id = 0x0123456789abcdefull,
		.bytes = RIG_RING,
		.slot_bytes = rig.slots > 0 ? RIG_SLOT_BYTES : 0,
		.slots = rig.slots,
		.step = on_step};
	unsigned int i;

	if (journal_open(&rig.journal, &c, rig.message) != wanted)
		fail_msg("%s", rig.message);
	if (wanted == 0)
		add_run();
	rig.stores = (struct store_set){.journal = rig.journal, .nb = RIG_STORES};
	for (i = 0; i < RIG_STORES; i++) {
		struct xfer_store *s = &rig.stores.at[i];
		struct sockaddr_in *to = (struct sockaddr_in *)&s->to;

		to->sin_family = AF_INET;
		to->sin_port = htons(XFER_PORT);
		to->sin_addr.s_addr = htonl(0x0a000002 + i);
		snprintf(s->name, sizeof(s->name), "%u", i);
		snprintf(s->address, sizeof(s->address), "10.0.0.%u:%u", 2 + i, XFER_PORT);
	}
	assert_int_equal(store_set_find(&rig.stores), 0);
	for (i = 0; i < RIG_STORES; i++)
		assert_int_equal(rig.stores.at[i].number, i);
}

void
rig_open_journal(void)
{
	unlink(rig.journal_path);
	open_journal(0);
}

static void
register_journal(void)
{
	struct rdma_mr_attr attr = {.gpu = -1};

	rig.pd = rdma_pd_alloc(rig.dev[0]);
	journal_memory(rig.journal, &attr.addr, &attr.length);
	assert_int_equal(xfer_mr_open(&rig.memory, rig.pd, &attr,
				 rig.region > 0 ? rig.region : UINT64_MAX, XFER_BLOCK),
		0);
	rig.again = 0;
}

void
rig_open_receiver(void)
{
	rig_open_journal();
	register_journal();
}

void
rig_adopt_journal(void)
{
	struct journal_run run;

	open_journal(1);
	rig.run = 0;
	assert_true(journal_run_get(rig.journal, rig.run, &run));
	register_journal();
}

void
rig_close_receiver(void)
{
	unsigned int i;

	for (i = 0; i < RIG_STORES; i++)
		rig_close_sender(i);
	for (i = 0; i < 1000 && xfer_mr_close(&rig.memory) < 0; i++)
		rig_turn();
	assert_int_equal(rdma_pd_free(rig.pd), 0);
	rig.pd = NULL;
	journal_close(rig.journal);
	unlink(rig.journal_path);
}

static struct journal_batch
batch_of(const struct xfer_batch *from, unsigned int table)
{
	return (struct journal_batch){
		.sequence = from->sequence,
		.rows = from->rows,
		.first = from->first,
		.last = from->last,
		.received = from->received,
		.body_bytes = from->body_bytes,
		.body_crc32c = from->body_crc32c,
		.run = rig.run,
		.table = table,
	};
}

uint32_t
rig_hold(unsigned int table, unsigned int k)
{
	const struct xfer_sample_batch *from = &rig.sample.batch[table][k];
	struct journal_batch b = batch_of(&from->batch, table);
	uint8_t *bytes = journal_reserve(rig.journal, from->batch.body_bytes);

	assert_non_null(bytes);
	memcpy(bytes, from->metadata, XFER_BLOCK);
	memcpy(bytes + XFER_BLOCK, from->body, from->batch.body_bytes);
	journal_fill(rig.journal, &b);
	return journal_commit(rig.journal, &b);
}

uint32_t
rig_hold_pieces(unsigned int table, unsigned int k)
{
	const struct xfer_sample_batch *from = &rig.sample.batch[table][k];
	const uint64_t bytes = from->batch.body_bytes;
	struct journal_batch b = batch_of(&from->batch, table);
	struct journal_piece piece[JOURNAL_PARTS];
	uint8_t *room = journal_reserve(rig.journal, JOURNAL_TABLE_MAX + bytes);
	uint64_t at = 0;
	uint32_t i;

	assert_non_null(room);
	memcpy(room, from->metadata, XFER_BLOCK);
	for (i = 0; i < JOURNAL_PARTS; i++) {
		const uint64_t end = bytes * (i + 1) / JOURNAL_PARTS;

		/* the last piece of the body is the first one in the room */
		piece[i] = (struct journal_piece){bytes - end, end - at};
		memcpy(room + 2 * XFER_BLOCK + piece[i].at, (uint8_t *)from->body + at, end - at);
		at = end;
	}
	journal_scatter(rig.journal, &b, piece, JOURNAL_PARTS);
	return journal_commit(rig.journal, &b);
}

/*
 * @return offset of a part of `bytes` in a slot: across the boundary of two registrations if there
 * is one at a distance of `bytes` from both ends of the slot, else anywhere
 */
static uint32_t
offset_in(const uint8_t *slot, uint64_t slot_bytes, uint32_t bytes)
{
	uint64_t to_next, journal_bytes;
	void *journal;

	journal_memory(rig.journal, &journal, &journal_bytes);
	to_next = rig.region - (uint64_t)(slot - (uint8_t *)journal) % rig.region;
	if (to_next >= bytes && to_next + bytes <= slot_bytes)
		return to_next - bytes / 2;
	return sample_random(&rig.sample.sample) % (slot_bytes / 2);
}

uint32_t
rig_hold_parts(unsigned int table, unsigned int k, unsigned int nb)
{
	const struct xfer_sample_batch *from = &rig.sample.batch[table][k];
	const uint64_t most = from->batch.body_bytes / nb;
	struct journal_batch b = batch_of(&from->batch, table);
	struct journal_reference reference[JOURNAL_REFERENCES];
	const uint8_t *body = from->body;
	uint64_t slot_bytes;
	uint32_t slots, i;
	uint8_t *area = journal_area(rig.journal, &slot_bytes, &slots), *slot, *room;

	assert_true(most > 2 && most < slot_bytes / 2);
	for (i = 0; i < nb; i++) {
		struct journal_reference *to = &reference[i];

		*to = (struct journal_reference){
			.slot = journal_slot_take(rig.journal),
			.bytes = (1 + sample_random(&rig.sample.sample) % (most - 1)) | 1,
		};
		assert_int_not_equal(to->slot, JOURNAL_NO_SLOT);
		slot = area + to->slot * slot_bytes;
		to->offset = offset_in(slot, slot_bytes, to->bytes);
		memcpy(slot + to->offset, body, to->bytes);
		body += to->bytes;
	}
	b.rest_bytes = from->body + b.body_bytes - body;
	room = journal_reserve(rig.journal, XFER_BLOCK + b.rest_bytes);
	assert_non_null(room);
	memcpy(room, from->metadata, XFER_BLOCK);
	memcpy(room + 2 * XFER_BLOCK, body, b.rest_bytes);
	journal_refer(rig.journal, &b, reference, nb);
	return journal_commit(rig.journal, &b);
}

uint32_t
rig_keep(unsigned int table, unsigned int k, unsigned int to)
{
	const uint32_t batch = rig_hold(table, k);

	journal_assign(rig.journal, batch, to);
	if (rig.sender[to] != NULL)
		assert_int_equal(store_client_offer(rig.sender[to], batch), 0);
	return batch;
}

uint64_t
rig_held(void)
{
	struct journal_stats stats;

	journal_stats_get(rig.journal, &stats);
	return stats.batches;
}

unsigned int
rig_fewest(void)
{
	return rig.sample.nb[0] < rig.sample.nb[1] ? rig.sample.nb[0] : rig.sample.nb[1];
}

void
rig_end_run(unsigned int i)
{
	store_client_finish(rig.sender[i]);
	UNTIL(rig_stats_of(i).state == STORE_CLIENT_ENDED);
}

/* ---- the contents of the files --------------------------------------------------------------- */

static void
look_into(const char *path)
{
	const char *problem;
	struct arrow_reader r;
	unsigned int table, k;
	size_t i;

	assert_int_equal(arrow_reader_open(&r, path, &problem), 0);
	assert_true(r.complete);
	for (i = 0; i < r.nb_batches; i++) {
		table = strcmp(r.batches[i].table, "images") == 0;
		assert_int_equal(arrow_reader_crc(&r, i), 1);
		for (k = 0; k < rig.sample.nb[table]; k++) {
			if (strtoull(r.batches[i].sequence, NULL, 16) !=
				rig.sample.batch[table][k].batch.sequence)
				continue;
			rig.found[table][k]++;
			assert_memory_equal(r.batches[i].body, rig.sample.batch[table][k].body,
				rig.sample.batch[table][k].batch.body_bytes);
		}
	}
	arrow_reader_close(&r);
}

void
rig_look_below(const char *dir)
{
	struct dirent *entry;
	char path[PATH_MAX];
	struct stat st;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((entry = readdir(d)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		assert_int_equal(stat(path, &st), 0);
		if (S_ISDIR(st.st_mode))
			rig_look_below(path);
		else if (!arrow_name_is_quarantine(path))
			look_into(path);
	}
	closedir(d);
}

void
rig_each_is_there_once(unsigned int nb)
{
	unsigned int table, k;

	memset(rig.found, 0, sizeof(rig.found));
	rig_look_below(rig.root);
	for (table = 0; table < ARROW_TABLES; table++) {
		for (k = 0; k < rig.sample.nb[table]; k++)
			assert_int_equal(rig.found[table][k], k < nb);
	}
}

static void
remove_all(const char *dir)
{
	struct dirent *entry;
	char path[PATH_MAX];
	struct stat st;
	DIR *d = opendir(dir);

	while (d != NULL && (entry = readdir(d)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
			remove_all(path);
		else
			unlink(path);
	}
	if (d != NULL)
		closedir(d);
	rmdir(dir);
}

int
rig_begin_test(void **state)
{
	char path[96];
	unsigned int i;

	for (i = 0; i < RIG_STORES; i++) {
		snprintf(path, sizeof(path), "%s/store%u", rig.root, i);
		remove_all(path);
	}
	for (i = 0; i < RIG_STATIONS; i++)
		rig.station[i].out = false;
	rig.lose = 0;
	rig.region = 0;
	rig.message_max = 0;
	rig.max_sge = 0;
	rig.slots = 0;
	rig.idle_ms = 0;
	rig.io = NULL;
	return 0;
}

/* ---- all tests ------------------------------------------------------------------------------- */

int
rig_run_tests(const struct CMUnitTest *tests, size_t nb)
{
	const char *eal[] = {"xfer", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "-l", "0",
		"--no-telemetry", "--log-level", "lib.eal:warning"};
	const char *text = getenv("XFER_SEED"), *debug = getenv("XFER_LOG");
	unsigned int i;
	FILE *f;
	int ret;

	rig.seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("XFER_SEED=%llu\n", (unsigned long long)rig.seed);
	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	if (debug != NULL)
		rte_log_set_level_pattern("braggline.*", RTE_LOG_DEBUG);
	snprintf(rig.root, sizeof(rig.root), "/tmp/braggline-xfer-XXXXXX");
	if (mkdtemp(rig.root) == NULL)
		return 1;
	snprintf(rig.key_path, sizeof(rig.key_path), "/dev/shm/braggline-key-%d", getpid());
	snprintf(rig.journal_path, sizeof(rig.journal_path), "/dev/shm/braggline-journal-%d",
		getpid());
	f = fopen(rig.key_path, "w");
	fprintf(f, "0123456789abcdef0123456789abcdef");
	fclose(f);
	chmod(rig.key_path, 0600);
	snprintf(rig.keys_path, sizeof(rig.keys_path), "/dev/shm/braggline-keys-%d", getpid());
	if (xfer_key_read(&rig.key, rig.key_path, rig.message) < 0)
		return 1;
	rig.hostile_key = rig.key;
	rig.hostile_key.bytes[0] ^= 1;
	rig_write_keys("");
	xfer_sample_init(&rig.sample, rig.seed, 250);
	for (i = 0; i < RIG_STATIONS; i++)
		open_station(i);
	ret = _cmocka_run_group_tests("xfer", tests, nb, NULL, NULL);
	xfer_sample_free(&rig.sample);
	/* frames in the rings belong to the devices' pools */
	for (i = 0; i < RIG_STATIONS; i++)
		rig.station[i].out = true;
	turn_switch();
	for (i = 0; i < RIG_STATIONS; i++) {
		(void)rdma_progress(rig.dev[i], 0);
		(void)rdma_dev_close(rig.dev[i]);
	}
	unlink(rig.key_path);
	unlink(rig.keys_path);
	remove_all(rig.root);
	rte_eal_cleanup();
	return ret;
}
