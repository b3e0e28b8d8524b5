/* SPDX-License-Identifier: BSD-3-Clause */
/* Receivers' senders and whole stores over software RoCE, in one thread, with a switch between them
 * whose ports can be pulled out and which loses frames. SINK_SEED repeats a run. */

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "arrow_read.h"
#include "sink_link.h"
#include "sink_sample.h"
#include "sink_sender.h"
#include "store.h"

#define STATIONS 3 /* a receiver, two stores */
#define STORES	 2
#define SECONDS	 30
#define RING	 (32u << 20)

struct station {
	struct rte_ring *rx; /* of its port */
	struct rte_ring *tx;
	struct rte_ether_addr mac;
	bool known;
	bool out; /* pulled out */
};

static struct station station[STATIONS];
static unsigned int lose; /* of 1000 frames */
static uint64_t seed;
static struct sink_sample s;
static char root[64];
static char key_path[80];
static char ring_path[80];
static char message[PATH_MAX];

static struct store *store[STORES];
static struct rdma_dev *dev[STATIONS];
static struct rdma_pd *pd;
static struct rdma_mr *mr;
static struct retention *ring;
static struct sink_key key;
static struct sink_sender *sender[STORES];
static unsigned int run;
static unsigned int again;

/* ---- the switch ------------------------------------------------------------------------------ */

static void
forward(struct rte_mbuf *m, unsigned int from)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	struct rte_mbuf *copy;
	unsigned int i;

	station[from].mac = eth->src_addr;
	station[from].known = true;
	if (station[from].out || sample_random(&s.sample) % 1000 < lose)
		goto drop;
	for (i = 0; i < STATIONS; i++) {
		if (i == from || station[i].out)
			continue;
		if (rte_is_multicast_ether_addr(&eth->dst_addr)) {
			copy = rte_pktmbuf_copy(m, m->pool, 0, UINT32_MAX);
			if (copy != NULL && rte_ring_enqueue(station[i].rx, copy) < 0)
				rte_pktmbuf_free(copy);
		} else if (station[i].known &&
			rte_is_same_ether_addr(&station[i].mac, &eth->dst_addr)) {
			if (rte_ring_enqueue(station[i].rx, m) == 0)
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

	for (i = 0; i < STATIONS; i++) {
		while (rte_ring_dequeue(station[i].tx, (void **)&m) == 0)
			forward(m, i);
	}
}

static void
open_station(unsigned int i)
{
	char name[32], device[RDMA_NAME_MAX];

	snprintf(name, sizeof(name), "rx%u", i);
	station[i].rx = rte_ring_create(name, 4096, 0, 0);
	snprintf(name, sizeof(name), "tx%u", i);
	station[i].tx = rte_ring_create(name, 4096, 0, 0);
	assert_non_null(station[i].rx);
	assert_non_null(station[i].tx);
	snprintf(name, sizeof(name), "st%u", i);
	assert_true(rte_eth_from_rings(name, &station[i].rx, 1, &station[i].tx, 1, 0) >= 0);
	snprintf(device, sizeof(device), "roce:port=net_ring_st%u,ip=10.0.0.%u/24", i, i + 1);
	dev[i] = rdma_dev_open(device);
	assert_non_null(dev[i]);
	(void)rdma_progress(dev[i], 0);
}

/* ---- both ends ------------------------------------------------------------------------------- */

static void
on_result(void *arg, uint32_t batch, enum sink_result_status status)
{
	const unsigned int i = (uintptr_t)arg;

	if (status != SINK_AGAIN)
		return;
	again++;
	assert_int_equal(sink_sender_offer(sender[i], batch), 0);
}

static void
turn(void)
{
	struct rdma_event event[4];
	unsigned int i, n;

	turn_switch();
	if (pd != NULL) {
		(void)rdma_progress(dev[0], 0);
		n = rdma_poll_cm(dev[0], event, 4);
		for (i = 0; i < n; i++) {
			if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
				sink_sender_event(rdma_conn_context(event[i].conn), &event[i]);
		}
	}
	for (i = 0; i < STORES; i++) {
		if (sender[i] != NULL)
			(void)sink_sender_poll(sender[i]);
		if (store[i] != NULL)
			(void)store_poll(store[i]);
	}
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

/* Go on until something is so. */

static void
give_up(const char *what)
{
	unsigned int i;

	print_counters(dev[0], "receiver");
	for (i = 0; i < STORES; i++)
		print_counters(dev[1 + i], "store");
	fail_msg("not in %d s: %s", SECONDS, what);
}

/* Go on until something is so. */
#define UNTIL(condition)                                                   \
	do {                                                               \
		const uint64_t limit = sink_link_clock() + SECONDS * 1000; \
		while (!(condition)) {                                     \
			turn();                                            \
			if (sink_link_clock() > limit)                     \
				give_up(#condition);                       \
		}                                                          \
	} while (0)

static void
open_store(unsigned int i)
{
	static char dir[STORES][96];
	const struct store_config c = {
		.dev = dev[1 + i],
		.key = key_path,
		.node = 100 + i,
		.memory = 4 << 20,
		.heartbeat_ms = 100,
		.silence_ms = 1000,
		.files = {.root = dir[i],
			.slices = {.sync_ms = 20, .slice = 65536, .ahead = 1 << 20}},
	};

	snprintf(dir[i], sizeof(dir[i]), "%s/store%u", root, i);
	(void)mkdir(dir[i], 0755);
	if (store_open(&store[i], &c, message) < 0)
		fail_msg("%s", message);
}

static void
close_store(unsigned int i)
{
	/* frames go through the switch until the last one has let go of its memory */
	store_stop(store[i]);
	UNTIL(store_is_idle(store[i]));
	assert_int_equal(store_close(store[i]), 0);
	store[i] = NULL;
}

static void
open_sender_to(unsigned int i, unsigned int to_store)
{
	static const char *const names[] = {"one", "two"};
	struct sink_sender_config c = {
		.dev = dev[0],
		.pd = pd,
		.retention = ring,
		.mr = mr,
		.run = run,
		.producer = 0x0123456789abcdefull,
		.key = &key,
		.role = SINK_ROLE_RECEIVER,
		.name = names[to_store],
		.result = on_result,
		.arg = (void *)(uintptr_t)i,
	};
	struct sockaddr_in *to = (struct sockaddr_in *)&c.address;

	to->sin_family = AF_INET;
	to->sin_port = htons(SINK_PORT);
	to->sin_addr.s_addr = htonl(0x0a000002 + to_store);
	c.store = retention_store(ring, names[to_store]);
	assert_int_equal(c.store, to_store);
	assert_int_equal(sink_sender_open(&sender[i], &c), 0);
}

static void
open_sender(unsigned int i)
{
	open_sender_to(i, i);
}

static void
close_sender(unsigned int i)
{
	if (sender[i] == NULL)
		return;
	while (sink_sender_close(sender[i]) < 0)
		turn();
	sender[i] = NULL;
}

static struct sink_sender_stats
stats_of(unsigned int i)
{
	struct sink_sender_stats stats;

	sink_sender_stats_get(sender[i], &stats);
	return stats;
}

/* A receiver with a new ring, and what it has to send. */
static void
open_receiver(void)
{
	const struct retention_config c = {
		.path = ring_path, .producer = 0x0123456789abcdefull, .bytes = RING};
	const struct arrow_identity id = sink_sample_identity(0);
	struct rdma_mr_attr attr = {.gpu = -1};
	struct retention_run r = {.run = id.run, .incarnation = id.incarnation, .name = "sample"};
	uint8_t *header[ARROW_TABLES];
	size_t size;
	unsigned int i, k;

	unlink(ring_path);
	if (retention_open(&ring, &c, message) != 0)
		fail_msg("%s", message);
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(arrow_header_build(&s.tables.schema[i], &header[i], &size), 0);
		r.schema[i] = header[i];
		r.schema_bytes[i] = size;
		for (k = 0; k < s.nb[i]; k++) {
			if (s.batch[i][k].batch.body_bytes > r.body_max[i])
				r.body_max[i] = s.batch[i][k].batch.body_bytes;
		}
	}
	run = retention_run_add(ring, &r);
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	pd = rdma_pd_alloc(dev[0]);
	retention_memory(ring, &attr.addr, &attr.length);
	mr = rdma_mr_reg(pd, &attr);
	assert_non_null(mr);
	again = 0;
}

static void
close_receiver(void)
{
	unsigned int i;

	for (i = 0; i < STORES; i++)
		close_sender(i);
	for (i = 0; i < 1000 && rdma_mr_dereg(mr) < 0; i++)
		turn();
	assert_int_equal(rdma_pd_free(pd), 0);
	pd = NULL;
	retention_close(ring);
	unlink(ring_path);
}

/* A batch is kept, and no store's. */
static uint32_t
hold(unsigned int table, unsigned int k)
{
	const struct sink_sample_batch *from = &s.batch[table][k];
	const struct retention_batch b = {
		.sequence = from->batch.sequence,
		.rows = from->batch.rows,
		.first = from->batch.first,
		.last = from->batch.last,
		.received = from->batch.received,
		.body_crc32c = from->batch.body_crc32c,
		.run = run,
		.table = table,
	};
	uint8_t *bytes = retention_reserve(ring, from->batch.body_bytes);

	assert_non_null(bytes);
	memcpy(bytes, from->metadata, SINK_BLOCK);
	memcpy(bytes + SINK_BLOCK, from->body, from->batch.body_bytes);
	return retention_commit(ring, &b);
}

/* A batch is kept, and this store's. */
static uint32_t
keep(unsigned int table, unsigned int k, unsigned int to)
{
	const uint32_t batch = hold(table, k);

	retention_assign(ring, batch, to);
	if (sender[to] != NULL)
		assert_int_equal(sink_sender_offer(sender[to], batch), 0);
	return batch;
}

static uint64_t
held(void)
{
	struct retention_stats stats;

	retention_stats_get(ring, &stats);
	return stats.batches;
}

/* ---- what is in the files -------------------------------------------------------------------- */

static unsigned int found[ARROW_TABLES][SINK_SAMPLE_BATCHES];

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
		for (k = 0; k < s.nb[table]; k++) {
			if (strtoull(r.batches[i].sequence, NULL, 16) !=
				s.batch[table][k].batch.sequence)
				continue;
			found[table][k]++;
			assert_memory_equal(r.batches[i].body, s.batch[table][k].body,
				s.batch[table][k].batch.body_bytes);
		}
	}
	arrow_reader_close(&r);
}

static void
look_below(const char *dir)
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
			look_below(path);
		else
			look_into(path);
	}
	closedir(d);
}

static void
each_is_there_once(unsigned int nb)
{
	unsigned int table, k;

	memset(found, 0, sizeof(found));
	look_below(root);
	for (table = 0; table < ARROW_TABLES; table++) {
		for (k = 0; k < s.nb[table]; k++)
			assert_int_equal(found[table][k], k < nb);
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

static int
begin_test(void **state)
{
	char path[96];
	unsigned int i;

	for (i = 0; i < STORES; i++) {
		snprintf(path, sizeof(path), "%s/store%u", root, i);
		remove_all(path);
	}
	for (i = 0; i < STATIONS; i++)
		station[i].out = false;
	lose = 0;
	return 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static unsigned int
fewest(void)
{
	return s.nb[0] < s.nb[1] ? s.nb[0] : s.nb[1];
}

static void
end_run(unsigned int i)
{
	sink_sender_finish(sender[i]);
	UNTIL(stats_of(i).state == SINK_SENDER_ENDED);
}

/* The thin line: batches in, files out, in order. */
static void
test_line(void **state)
{
	struct store_stream_view view;
	const unsigned int nb = fewest();
	unsigned int k;

	open_store(0);
	open_receiver();
	open_sender(0);
	for (k = 0; k < nb; k++) {
		(void)keep(0, k, 0);
		(void)keep(1, k, 0);
		turn();
	}
	UNTIL(held() == 0);
	for (k = 0; k < SINK_TABLES; k++) {
		assert_true(store_runs_view(&store_look(store[0])->runs, 0, k, &view));
		assert_int_equal(view.stats.batches, nb);
		assert_int_equal(view.producer, sink_sample_identity(k).producer);
		assert_true(view.connected);
	}
	end_run(0);
	UNTIL(!store_runs_view(&store_look(store[0])->runs, 0, 0, &view));
	if (stats_of(0).connections != 1)
		give_up("one connection");
	assert_int_equal(stats_of(0).durable, 2 * nb);
	assert_int_equal(stats_of(0).sent, 2 * nb);
	assert_int_equal(stats_of(0).malformed + stats_of(0).again + stats_of(0).refused, 0);
	assert_int_equal(stats_of(0).node, 100);
	assert_int_equal(store_look(store[0])->counters.fault[SINK_ENTRY_GOOD], 2 * nb);
	assert_int_equal(store_look(store[0])->counters.ended, 1);
	assert_int_equal(retention_run_drop(ring, run), 0);
	close_receiver();
	close_store(0);
	each_is_there_once(nb);
}

/* Frames are lost, the link is pulled out again and again. */
static void
test_broken(void **state)
{
	const unsigned int nb = fewest();
	unsigned int k, cuts = 0;
	uint64_t until;

	open_store(0);
	open_receiver();
	open_sender(0);
	lose = 10;
	for (k = 0; k < nb; k++) {
		(void)keep(0, k, 0);
		(void)keep(1, k, 0);
		if (k % 12 == 6) {
			UNTIL(stats_of(0).state == SINK_SENDER_UP);
			for (unsigned int i = sample_random(&s.sample) % 64; i > 0; i--)
				turn();
			station[1].out = true;
			until = sink_link_clock() + 1500 + sample_random(&s.sample) % 500;
			while (sink_link_clock() < until)
				turn();
			station[1].out = false;
			cuts++;
		}
		turn();
	}
	UNTIL(held() == 0);
	end_run(0);
	printf("%u cuts, %lu connections, %lu sent, %lu found\n", cuts, stats_of(0).connections,
		stats_of(0).sent, stats_of(0).found);
	assert_true(stats_of(0).connections > 1);
	assert_int_equal(stats_of(0).durable + stats_of(0).found + stats_of(0).doubles, 2 * nb);
	close_receiver();
	close_store(0);
	each_is_there_once(nb);
}

/* Who was away itself, for a disk or a CPU, has no reason to call the other end silent. */
static void
test_away(void **state)
{
	open_store(0);
	open_receiver();
	open_sender(0);
	UNTIL(stats_of(0).state == SINK_SENDER_UP);
	(void)keep(0, 0, 0);
	/* longer than silence_ms; what the other end had said lies there */
	usleep(1300 * 1000);
	UNTIL(held() == 0);
	assert_int_equal(stats_of(0).connections, 1);
	assert_int_equal(stats_of(0).broken, 0);
	assert_int_equal(store_look(store[0])->counters.broken, 0);
	close_receiver();
	close_store(0);
}

/* A batch that is offered twice, as it was another's for a while, goes once: the second copy would
 * be read out of memory that is somebody else's by then. */
static void
test_offered_twice(void **state)
{
	const unsigned int nb = fewest();
	unsigned int k;
	uint32_t batch;

	open_store(0);
	open_receiver();
	open_sender(0);
	UNTIL(stats_of(0).state == SINK_SENDER_UP);
	for (k = 0; k < nb; k++) {
		batch = keep(0, k, 0);
		assert_int_equal(sink_sender_offer(sender[0], batch), 0);
		batch = keep(1, k, 0);
		retention_assign(ring, batch, RETENTION_SPILL);
		retention_assign(ring, batch, 0);
		assert_int_equal(sink_sender_offer(sender[0], batch), 0);
	}
	UNTIL(held() == 0);
	end_run(0);
	assert_int_equal(stats_of(0).sent, 2 * nb);
	assert_int_equal(stats_of(0).connections, 1);
	close_receiver();
	close_store(0);
	each_is_there_once(nb);
}

/* A store goes and comes back, and its batches stay its own. */
static void
test_store_returns(void **state)
{
	const unsigned int nb = fewest();
	unsigned int k;

	open_store(0);
	open_receiver();
	open_sender(0);
	for (k = 0; k < nb; k++) {
		(void)keep(0, k, 0);
		(void)keep(1, k, 0);
		turn();
		if (k == nb / 2) {
			UNTIL(stats_of(0).durable > 2);
			close_store(0);
			UNTIL(stats_of(0).state == SINK_SENDER_DOWN);
			open_store(0);
		}
	}
	UNTIL(held() == 0);
	end_run(0);
	assert_int_equal(stats_of(0).connections, 2);
	close_receiver();
	close_store(0);
	each_is_there_once(nb);
}

static void
move_all(unsigned int from, unsigned int to)
{
	struct retention_batch b;
	uint32_t i;

	for (i = retention_next(ring, 0); i != UINT32_MAX; i = retention_next(ring, i + 1)) {
		assert_true(retention_get(ring, i, &b));
		if (!b.held || b.owner != from)
			continue;
		assert_true(sink_sender_is_down(sender[from]));
		retention_assign(ring, i, to);
		assert_int_equal(sink_sender_offer(sender[to], i), 0);
	}
}

/* One of two stores is gone for a while; its batches go to the other one, what it had of them is
 * cut off when it is back. */
static void
test_moved(void **state)
{
	const unsigned int nb = fewest();
	struct retention_stats stats;
	unsigned int k, i;

	for (i = 0; i < STORES; i++)
		open_store(i);
	open_receiver();
	for (i = 0; i < STORES; i++)
		open_sender(i);
	for (k = 0; k < nb; k++) {
		(void)keep(0, k, k % 2);
		(void)keep(1, k, k % 2);
		turn();
		if (k == nb / 2) {
			/* what is durable there is not heard of here */
			UNTIL(stats_of(0).sent > 4);
			station[1].out = true;
			for (i = 0; i < 200; i++)
				turn();
			UNTIL(sink_sender_is_down(sender[0]));
		}
	}
	move_all(0, 1);
	retention_stats_get(ring, &stats);
	assert_true(stats.moved > 0);
	UNTIL(held() == 0);
	retention_stats_get(ring, &stats);
	assert_true(stats.in_doubt > 0);
	assert_int_equal(retention_run_drop(ring, run), -EBUSY);
	station[1].out = false;
	UNTIL(stats_of(0).state == SINK_SENDER_UP);
	retention_stats_get(ring, &stats);
	assert_int_equal(stats.in_doubt, 0);
	for (i = 0; i < STORES; i++)
		end_run(i);
	close_receiver();
	for (i = 0; i < STORES; i++)
		close_store(i);
	each_is_there_once(nb);
}

/* Who has not the key gets nothing, and is counted. */
static void
test_wrong_key(void **state)
{
	const struct store_counters *n;

	open_store(0);
	open_receiver();
	key.bytes[0] ^= 1;
	open_sender(0);
	(void)keep(0, 0, 0);
	UNTIL(stats_of(0).refused >= 2);
	n = &store_look(store[0])->counters;
	assert_true(n->refused[SINK_REASON_KEY] >= 2);
	assert_int_equal(n->stood, 0);
	assert_int_equal(held(), 1);
	close_sender(0);
	key.bytes[0] ^= 1;
	open_sender(0);
	UNTIL(held() == 0);
	assert_int_equal(n->stood, 1);
	close_receiver();
	close_store(0);
}

/* Who has the key, and announces what is none: refused and counted each time, nothing is written,
 * and whoever comes next is served. */
static void
test_garbage(void **state)
{
	const unsigned int place = s.stream[0].template.nodes;
	const struct store_counters *n;
	struct retention_batch b;
	uint32_t batch;

	open_store(0);
	open_receiver();
	batch = keep(0, 0, 0);
	assert_true(retention_get(ring, batch, &b));
	/* rows of a column that the descriptor does not know of */
	b.metadata[place] ^= 1;
	open_sender(0);
	n = &store_look(store[0])->counters;
	UNTIL(n->refused[SINK_REASON_ENTRY] >= 2);
	assert_true(n->fault[SINK_ENTRY_METADATA] >= 2);
	assert_int_equal(n->fault[SINK_ENTRY_GOOD] + n->durable + n->bytes, 0);
	close_sender(0);
	b.metadata[place] ^= 1;
	open_sender(0);
	UNTIL(held() == 0);
	assert_int_equal(n->durable, 1);
	end_run(0);
	close_receiver();
	close_store(0);
	memset(found, 0, sizeof(found));
	look_below(root);
	assert_int_equal(found[0][0], 1);
}

/* A second process with the same stream: the older connection ends, nothing is there twice. */
static void
test_superseded(void **state)
{
	const unsigned int nb = fewest();
	unsigned int k;

	open_store(0);
	open_receiver();
	open_sender(0);
	for (k = 0; k < nb; k++) {
		(void)keep(0, k, 0);
		(void)keep(1, k, 0);
	}
	UNTIL(stats_of(0).sent > 6);
	/* another process has adopted the ring, as far as the store can tell */
	open_sender_to(1, 0);
	UNTIL(store_look(store[0])->counters.superseded == 1);
	close_sender(0);
	sender[0] = sender[1];
	sender[1] = NULL;
	UNTIL(held() == 0);
	end_run(0);
	assert_int_equal(store_look(store[0])->counters.superseded, 1);
	close_receiver();
	close_store(0);
	each_is_there_once(nb);
}

/* No store is told the end while a batch of the run is held: it may be given it yet. */
static void
test_end_waits(void **state)
{
	uint64_t until;
	uint32_t batch;

	open_store(0);
	open_store(1);
	open_receiver();
	open_sender(0);
	open_sender(1);
	/* nobody's, as when a receiver was killed before it had chosen a store */
	batch = hold(0, 0);
	(void)keep(1, 0, 0);
	sink_sender_finish(sender[0]);
	sink_sender_finish(sender[1]);
	UNTIL(held() == 1);
	for (until = sink_link_clock() + 300; sink_link_clock() < until;)
		turn();
	assert_int_equal(stats_of(0).state, SINK_SENDER_UP);
	assert_int_equal(stats_of(1).state, SINK_SENDER_UP);
	retention_assign(ring, batch, 1);
	assert_int_equal(sink_sender_offer(sender[1], batch), 0);
	UNTIL(held() == 0);
	end_run(0);
	end_run(1);
	close_receiver();
	close_store(0);
	close_store(1);
	each_is_there_once(1);
}

/* A store that was killed a moment ago may still hold its files: what they have is not known. */
static void
test_file_is_held(void **state)
{
	const struct arrow_identity id = sink_sample_identity(0);
	char path[PATH_MAX];
	int fd;

	open_store(0);
	snprintf(path, sizeof(path), "%s/store0/sample-0123456789abcdef-%016lx", root, id.run);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path + strlen(path), sizeof(path) - strlen(path),
		"/sample_%016lx_000001_frames.arrow.part", id.incarnation);
	fd = open(path, O_CREAT | O_RDWR, 0644);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	open_receiver();
	open_sender(0);
	(void)keep(0, 0, 0);
	(void)keep(1, 0, 0);
	UNTIL(stats_of(0).reason == SINK_REASON_BUSY);
	assert_int_equal(held(), 2);
	close(fd);
	UNTIL(held() == 0);
	end_run(0);
	close_receiver();
	close_store(0);
	each_is_there_once(1);
}

int
main(int argc, char **argv)
{
	const char *eal[] = {"sink", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "-l", "0",
		"--no-telemetry", "--log-level", "lib.eal:warning"};
	const char *text = getenv("SINK_SEED"), *debug = getenv("SINK_LOG");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_line, begin_test),
		cmocka_unit_test_setup(test_broken, begin_test),
		cmocka_unit_test_setup(test_away, begin_test),
		cmocka_unit_test_setup(test_offered_twice, begin_test),
		cmocka_unit_test_setup(test_store_returns, begin_test),
		cmocka_unit_test_setup(test_moved, begin_test),
		cmocka_unit_test_setup(test_wrong_key, begin_test),
		cmocka_unit_test_setup(test_garbage, begin_test),
		cmocka_unit_test_setup(test_superseded, begin_test),
		cmocka_unit_test_setup(test_end_waits, begin_test),
		cmocka_unit_test_setup(test_file_is_held, begin_test),
	};
	unsigned int i;
	FILE *f;
	int rc;

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("SINK_SEED=%llu\n", (unsigned long long)seed);
	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	if (debug != NULL)
		rte_log_set_level_pattern("braggline.*", RTE_LOG_DEBUG);
	snprintf(root, sizeof(root), "/tmp/braggline-sink-XXXXXX");
	if (mkdtemp(root) == NULL)
		return 1;
	snprintf(key_path, sizeof(key_path), "/dev/shm/braggline-key-%d", getpid());
	snprintf(ring_path, sizeof(ring_path), "/dev/shm/braggline-ring-%d", getpid());
	f = fopen(key_path, "w");
	fprintf(f, "0123456789abcdef0123456789abcdef");
	fclose(f);
	chmod(key_path, 0600);
	if (sink_key_read(&key, key_path, message) < 0)
		return 1;
	sink_sample_init(&s, seed, 250);
	for (i = 0; i < STATIONS; i++)
		open_station(i);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	sink_sample_free(&s);
	/* what is in the rings holds their pools */
	for (i = 0; i < STATIONS; i++)
		station[i].out = true;
	turn_switch();
	for (i = 0; i < STATIONS; i++) {
		(void)rdma_progress(dev[i], 0);
		(void)rdma_dev_close(dev[i]);
	}
	unlink(key_path);
	remove_all(root);
	rte_eal_cleanup();
	return rc;
}
