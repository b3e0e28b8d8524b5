/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the journal: room, release in any order, adoption, and kill -9 between any two stores to
 * it. XFER_SEED repeats a run.
 */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/own_file.h"
#include "journal/journal_private.h"

#define RECEIVER_ID 77
#define RING_BYTES  (40 * XFER_BLOCK)
#define INCARNATION 5 /* incarnation of run 0 */
#define RECORDS	    12
#define SEQUENCES   400
#define STORES	    3
#define NB_OF(a)    (sizeof(a) / sizeof((a)[0]))

static uint64_t seed;
static char path[PATH_MAX];
static char message[PATH_MAX];
static uint8_t schema[XFER_BLOCK];

static uint32_t
random_number(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return seed >> 33;
}

static struct journal *
open_ring(int wanted, void (*on_step)(void *arg), void *arg)
{
	const struct journal_config c = {
		.path = path,
		.receiver_id = RECEIVER_ID,
		.bytes = RING_BYTES,
		.batches = RECORDS,
		.step = on_step,
		.step_arg = arg,
	};
	struct journal *r = NULL;

	assert_int_equal(journal_open(&r, &c, message), wanted);
	return r;
}

static unsigned int
add_run(struct journal *r, uint64_t number)
{
	const struct journal_run run = {
		.run = number,
		.incarnation = number + INCARNATION,
		.name = "run",
		.schema = {schema, schema},
		.schema_bytes = {XFER_BLOCK, XFER_BLOCK},
		.body_max = {XFER_BLOCK, 8 * XFER_BLOCK},
	};
	const int index = journal_run_add(r, &run);

	assert_true(index >= 0);
	return index;
}

/* Add the stores that are given batches: a batch can only belong to a known store. */
static void
add_stores(struct journal *r, unsigned int nb)
{
	char address[16];
	unsigned int i;

	for (i = 0; i < nb; i++) {
		snprintf(address, sizeof(address), "10.0.0.%u:1", i);
		assert_int_equal(journal_store_add(r, address, i + 1), i);
	}
}

/* The size of a batch's body follows from its sequence number. */
static uint64_t
body_of(uint64_t sequence)
{
	return (1 + sequence * 7 % 5) * XFER_BLOCK;
}

static uint32_t
put(struct journal *r, unsigned int run, uint64_t sequence)
{
	const uint64_t body = body_of(sequence);
	struct journal_batch b = {
		.sequence = sequence,
		.rows = 10,
		.first = sequence * 10,
		.last = sequence * 10 + 9,
		.received = 1000 + sequence,
		.body_bytes = body,
		.run = run,
		.table = sequence % XFER_TABLES,
	};
	uint8_t *to = journal_reserve(r, body);

	if (to == NULL)
		return UINT32_MAX;
	memset(to, (int)sequence, XFER_BLOCK);
	memset(to + XFER_BLOCK, (int)~sequence, body);
	b.body_crc32c = arrow_crc32c(0, to + XFER_BLOCK, body);
	journal_fill(r, &b);
	return journal_commit(r, &b);
}

static void
check_batch(const struct journal_batch *b)
{
	assert_int_equal(b->body_bytes, body_of(b->sequence));
	assert_int_equal(b->first, b->sequence * 10);
	assert_int_equal(b->received, 1000 + b->sequence);
	if (!b->held) {
		assert_null(b->metadata);
		return;
	}
	assert_int_equal(b->metadata[17], b->sequence & 0xff);
	assert_int_equal(arrow_crc32c(0, b->body, b->body_bytes), b->body_crc32c);
	assert_int_equal(b->body[0], ~b->sequence & 0xff);
}

/* List the batches held, the oldest first. @return how many */
static uint32_t
list_held(const struct journal *r, uint32_t list[RECORDS])
{
	uint32_t at = 0, n = 0, batch;

	while ((batch = journal_walk(r, &at)) != UINT32_MAX)
		list[n++] = batch;
	return n;
}

static void
test_round(void **state)
{
	struct journal_batch b;
	struct journal_stats stats;
	struct journal *r;
	uint32_t list[RECORDS], n, i, batch;
	uint64_t sequence = 0, released = 0;
	unsigned int run;
	int turn;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	run = add_run(r, 1);
	for (turn = 0; turn < 3000; turn++) {
		n = list_held(r, list);
		for (i = 0; i < n; i++) {
			assert_true(journal_get(r, list[i], &b));
			check_batch(&b);
		}
		if (random_number() % 2 && n > 0) {
			/* release in any order */
			batch = list[random_number() % n];
			journal_release(r, batch);
			journal_release(r, batch); /* releasing twice has no effect */
			released++;
			continue;
		}
		batch = put(r, run, sequence);
		if (batch != UINT32_MAX)
			sequence++;
		else
			assert_true(n > 0);
	}
	journal_stats_get(r, &stats);
	assert_int_equal(stats.put, sequence);
	assert_int_equal(stats.released, released);
	assert_int_equal(stats.batches, sequence - released);
	assert_true(stats.full > 0);
	n = list_held(r, list);
	for (i = 0; i < n; i++)
		journal_release(r, list[i]);
	/* all of the room is free in one piece, at any position of the ring buffer */
	assert_null(journal_reserve(r, RING_BYTES));
	if (journal_reserve(r, RING_BYTES - XFER_BLOCK) == NULL)
		journal_skip(r, journal_skipped(r));
	assert_non_null(journal_reserve(r, RING_BYTES - XFER_BLOCK));
	assert_int_equal(journal_run_drop(r, run), 0);
	journal_close(r);
}

/* Batches that the producer has filled, and the owner has not committed. */
#define HAND_OVER 4
#define BATCHES	  20000

static struct {
	struct journal *journal;
	struct journal_batch batch[HAND_OVER];
	uint64_t filled;    /* atomic; the producer */
	uint64_t committed; /* atomic; the owner */
	unsigned int run;
} hand;

/* Bodies of up to the whole space. */
static uint64_t
any_body_of(uint64_t sequence)
{
	const uint64_t n = sequence * 2654435761u >> 7;

	return (n % 50 == 0 ? RING_BYTES / XFER_BLOCK - 1 - n % 7 : n % 9) * XFER_BLOCK;
}

static void *
produce(void *arg)
{
	uint64_t sequence, words, k;
	struct journal_batch b;
	uint8_t *to;

	for (sequence = 0; sequence < BATCHES; sequence++) {
		b = (struct journal_batch){
			.sequence = sequence,
			.rows = 1,
			.body_bytes = any_body_of(sequence),
			.run = hand.run,
		};
		/* a larger room than the batch needs, and one that is not used */
		(void)journal_reserve(hand.journal, 2 * XFER_BLOCK);
		to = journal_reserve(hand.journal, b.body_bytes + 3 * XFER_BLOCK);
		while (to == NULL) {
			to = journal_reserve(hand.journal, b.body_bytes);
			sched_yield();
		}
		words = (XFER_BLOCK + b.body_bytes) / sizeof(uint64_t);
		for (k = 0; k < words; k++)
			((uint64_t *)to)[k] = sequence + k;
		b.body_crc32c = arrow_crc32c(0, to + XFER_BLOCK, b.body_bytes);
		journal_fill(hand.journal, &b);
		while (sequence - __atomic_load_n(&hand.committed, __ATOMIC_ACQUIRE) >= HAND_OVER)
			sched_yield();
		hand.batch[sequence % HAND_OVER] = b;
		__atomic_store_n(&hand.filled, sequence + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* The producer writes to no batch that is held. */
static void
check_held(struct journal *r, uint32_t batch)
{
	struct journal_batch b;

	assert_true(journal_get(r, batch, &b));
	assert_int_equal(b.body_bytes, any_body_of(b.sequence));
	assert_int_equal(*(uint64_t *)b.metadata, b.sequence);
	assert_int_equal(arrow_crc32c(0, b.body, b.body_bytes), b.body_crc32c);
}

static void
test_two_threads(void **state)
{
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t list[RECORDS], n;
	uint64_t skipped, done = 0;
	pthread_t producer;
	struct journal *r;

	unlink(path);
	memset(&hand, 0, sizeof(hand));
	hand.journal = r = open_ring(0, NULL, NULL);
	hand.run = add_run(r, 1);
	assert_int_equal(pthread_create(&producer, NULL, produce, NULL), 0);
	while (done < BATCHES) {
		skipped = journal_skipped(r);
		for (; done < __atomic_load_n(&hand.filled, __ATOMIC_ACQUIRE); done++) {
			b = hand.batch[done % HAND_OVER];
			(void)journal_commit(r, &b);
			__atomic_store_n(&hand.committed, done + 1, __ATOMIC_RELEASE);
		}
		journal_skip(r, skipped);
		n = list_held(r, list);
		if (n == 0) {
			sched_yield();
			continue;
		}
		/* any of them, so that the space of others is not free yet */
		n = list[random_number() % n];
		check_held(r, n);
		journal_release(r, n);
	}
	pthread_join(producer, NULL);
	journal_stats_get(r, &stats);
	assert_int_equal(stats.put, BATCHES);
	assert_true(r->head > 10 * RING_BYTES);
	journal_close(r);
}

/*
 * The oldest batch stays, and with it the list of all later ones: the list is full before the room
 * is.
 */
static void
test_oldest_stays(void **state)
{
	struct journal_batch b;
	struct journal *r;
	uint32_t oldest, batch;
	uint64_t sequence;
	unsigned int run;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	run = add_run(r, 1);
	oldest = put(r, run, 0);
	/* one block each: there is room for more batches than the list has records */
	for (sequence = 5; (batch = put(r, run, sequence)) != UINT32_MAX; sequence += 5)
		journal_release(r, batch);
	assert_int_equal(sequence / 5, RECORDS);
	assert_true(journal_get(r, oldest, &b));
	check_batch(&b);
	assert_int_equal(b.sequence, 0);
	journal_release(r, oldest);
	assert_true(put(r, run, sequence) != UINT32_MAX);
	journal_close(r);
}

static void
test_adopt(void **state)
{
	struct journal_batch b;
	struct journal_run run;
	struct journal *r;
	uint64_t batches[XFER_TABLES] = {3, 4};
	uint32_t list[RECORDS], one, two, three;
	char ledger[JOURNAL_LEDGER];
	unsigned int index, i;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	/* as another process would */
	assert_null(open_ring(-EBUSY, NULL, NULL));
	index = add_run(r, 9);
	one = put(r, index, 1);
	two = put(r, index, 2);
	three = put(r, index, 3);
	assert_int_equal(journal_store_add(r, "10.0.0.1:18516", 0), 0);
	assert_int_equal(journal_store_add(r, "10.0.0.2:18516", 22), 1);
	assert_int_equal(journal_store_at(r, "10.0.0.1:18516"), 0);
	assert_int_equal(journal_store_of(r, 22), 1);
	journal_assign(r, one, 0);
	journal_assign(r, two, 0);
	journal_give(r, two);
	journal_assign(r, two, 1);
	journal_release(r, two);
	assert_int_equal(journal_run_drop(r, index), -EBUSY);
	assert_int_equal(journal_ledger_get(r, ledger, sizeof(ledger)), 0);
	journal_ledger_put(r, "first", 5);
	journal_ledger_put(r, "second", 6);
	/* a room that is not committed is free after adoption: filled, or only reserved */
	b = (struct journal_batch){.sequence = 4, .body_bytes = XFER_BLOCK, .run = index};
	memset(journal_reserve(r, 2 * XFER_BLOCK), 0xff, 3 * XFER_BLOCK);
	journal_fill(r, &b);
	memset(journal_reserve(r, XFER_BLOCK), 0xff, 2 * XFER_BLOCK);
	journal_run_end(r, index, batches);
	journal_close(r);

	r = open_ring(1, NULL, NULL);
	assert_non_null(strstr(message, "2 batches"));
	assert_true(journal_run_get(r, index, &run));
	assert_int_equal(run.run, 9);
	assert_true(run.ended);
	assert_int_equal(run.batches[1], 4);
	assert_int_equal(run.references, 3);
	assert_memory_equal(run.schema[1], schema, XFER_BLOCK);
	assert_string_equal(run.name, "run");
	assert_int_equal(list_held(r, list), 2);
	assert_int_equal(list[0], one);
	assert_int_equal(list[1], three);
	assert_true(journal_get(r, one, &b));
	assert_int_equal(b.owner, 0);
	assert_true(journal_get(r, two, &b));
	assert_false(b.held);
	assert_int_equal(b.given, 1);
	assert_true(journal_get(r, three, &b));
	assert_int_equal(b.owner, JOURNAL_NOBODY);
	check_batch(&b);
	assert_ptr_equal(journal_reserve(r, XFER_BLOCK), b.body + b.body_bytes);
	assert_int_equal(journal_ledger_get(r, ledger, sizeof(ledger)), 6);
	assert_memory_equal(ledger, "second", 6);
	assert_int_equal(journal_store_at(r, "10.0.0.2:18516"), 1);
	assert_int_equal(journal_store_of(r, 22), 1);
	assert_int_equal(journal_store_drop(r, 0), -EBUSY);
	assert_int_equal(journal_store_given(r, 0), 1);
	journal_confirm(r, index, 1);
	assert_true(journal_get(r, two, &b));
	journal_confirm(r, index + 1, 0);
	assert_true(journal_get(r, two, &b));
	journal_confirm(r, index, 0);
	assert_false(journal_get(r, two, &b));
	assert_int_equal(journal_store_drop(r, 0), 0);
	assert_int_equal(journal_store_at(r, "10.0.0.1:18516"), -ENOENT);
	journal_release(r, one);
	journal_release(r, three);
	assert_int_equal(journal_next(r, 0), UINT32_MAX);
	assert_int_equal(journal_run_drop(r, index), 0);
	/* the journal remembers the incarnations of runs that were dropped */
	assert_true(journal_run_get(r, index, &run) == false);
	for (i = 0; i < JOURNAL_INCARNATIONS - 1; i++) {
		assert_true(journal_had(r, 9 + INCARNATION));
		assert_false(journal_had(r, 1000 + i + INCARNATION));
		assert_int_equal(journal_run_drop(r, add_run(r, 1000 + i)), 0);
		assert_true(journal_had(r, 1000 + i + INCARNATION));
	}
	(void)add_run(r, 1);
	assert_false(journal_had(r, 9 + INCARNATION));
	journal_close(r);
}

static void
test_forget_doubts(void **state)
{
	struct journal_batch b;
	struct journal *r;
	unsigned int i, index, other;
	uint32_t batch[4];

	unlink(path);
	r = open_ring(0, NULL, NULL);
	index = add_run(r, 1);
	other = add_run(r, 2);
	for (i = 0; i < 4; i++) {
		batch[i] = put(r, i < 3 ? index : other, i);
		journal_assign(r, batch[i], 3);
		journal_give(r, batch[i]);
		/*
		 * 0 is held by another store, 1 and 3 were released by another store, 2 is spilled
		 */
		journal_assign(r, batch[i], i == 2 ? JOURNAL_SPILL : 4);
		if (i != 0)
			journal_release(r, batch[i]);
	}
	journal_forget_doubts(r, index);
	assert_true(journal_get(r, batch[0], &b));
	assert_true(b.held);
	assert_int_equal(b.given, 0);
	assert_false(journal_get(r, batch[1], &b));
	assert_false(journal_get(r, batch[2], &b));
	/* the batch of the other run stays in doubt */
	assert_true(journal_get(r, batch[3], &b));
	assert_int_equal(b.given, 1 << 3);
	journal_close(r);
}

static void
write_at(off_t at, const void *bytes, size_t size)
{
	const int fd = open(path, O_RDWR | O_CREAT, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, size, at), size);
	close(fd);
}

static void
test_refused(void **state)
{
	struct journal_config c = {
		.path = path, .receiver_id = RECEIVER_ID + 1, .bytes = RING_BYTES};
	struct journal *r = NULL;

	unlink(path);
	journal_close(open_ring(0, NULL, NULL));
	assert_int_equal(journal_open(&r, &c, message), -EINVAL);
	assert_non_null(strstr(message, "belongs to receiver"));
	write_at(40, "x", 1);
	open_ring(-EBADMSG, NULL, NULL);
	/* a file that is no journal is not overwritten */
	write_at(0, "something", 9);
	open_ring(-EINVAL, NULL, NULL);
	assert_non_null(strstr(message, "not overwritten"));
	unlink(path);
	c.bytes = 4096;
	assert_int_equal(journal_open(&r, &c, message), -EINVAL);
	unlink(path);
	c.path = "/proc/self/braggline";
	assert_true(journal_open(&r, &c, message) < 0);
	/* a journal with damage after its header */
	r = open_ring(0, NULL, NULL);
	(void)put(r, add_run(r, 1), 1);
	journal_close(r);
	write_at(XFER_BLOCK * (HEADER_BLOCKS + 2) + 16, "xyz", 3);
	write_at(XFER_BLOCK * (HEADER_BLOCKS + 2) + RUN_COPY_AT + 16, "xyz", 3);
	open_ring(-EBADMSG, NULL, NULL);
	unlink(path);
}

/* ---- files of other users, and damage -------------------------------------------------------- */

static void
expect_refused(int wanted, const char *text)
{
	const struct journal_config c = {
		.path = path, .receiver_id = RECEIVER_ID, .bytes = RING_BYTES, .batches = RECORDS};
	struct journal_probe probe;
	struct journal *r = NULL;

	assert_int_equal(journal_open(&r, &c, message), wanted);
	assert_non_null(strstr(message, text));
	assert_int_equal(journal_open_existing(&r, path, message), wanted);
	assert_non_null(strstr(message, text));
	assert_int_equal(journal_probe(&c, &probe, message), wanted);
	assert_non_null(strstr(message, text));
}

static void
test_not_ours(void **state)
{
	char folder[PATH_MAX], other[PATH_MAX];

	snprintf(folder, sizeof(folder), "%.100s.d", path);
	snprintf(other, sizeof(other), "%.100s.other", path);
	unlink(path);
	journal_close(open_ring(0, NULL, NULL));
	assert_int_equal(chmod(path, 0666), 0);
	expect_refused(-EPERM, "mode is 0666");
	assert_int_equal(chmod(path, 0640), 0);
	expect_refused(-EPERM, "chmod go-rwx");
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(link(path, other), 0);
	expect_refused(-EPERM, "2 hard links");
	unlink(path);
	assert_int_equal(symlink(other, path), 0);
	expect_refused(-ELOOP, "symbolic link");
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	expect_refused(-EMEDIUMTYPE, "not a regular file");
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_refused(-EISDIR, "Is a directory");
	rmdir(path);
	/* in a folder that others can write to, the file could be replaced at any moment */
	assert_int_equal(mkdir(folder, 0700), 0);
	strcpy(folder + strlen(folder), "/ring");
	assert_int_equal(rename(other, folder), 0);
	strcpy(other, path);
	strcpy(path, folder);
	*strrchr(folder, '/') = '\0';
	assert_int_equal(chmod(folder, 0770), 0);
	expect_refused(-EPERM, "other users may write");
	assert_int_equal(chmod(folder, 01777), 0);
	journal_close(open_ring(1, NULL, NULL));
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		expect_refused(-EPERM, "owner is user 65534");
		assert_int_equal(chown(path, 0, 0), 0);
		assert_int_equal(chown(folder, 65534, 65534), 0);
		assert_int_equal(chmod(folder, 0700), 0);
		expect_refused(-EPERM, "owner is user 65534");
	}
	unlink(path);
	rmdir(folder);
	strcpy(path, other);
}

/* Run as a user id that is not in use, whose folder does not exist yet. */
static void
use_default(void)
{
	struct journal_config c = {
		.receiver_id = RECEIVER_ID, .bytes = RING_BYTES, .batches = RECORDS};
	const char *folder = own_memory_folder();
	struct journal_probe probe;
	struct journal *r;
	struct stat st;

	c.path = journal_default_path();
	assert_int_equal(journal_probe(&c, &probe, message), 0);
	assert_int_equal(access(folder, F_OK), -1);
	umask(0);
	assert_int_equal(journal_open(&r, &c, message), 0);
	journal_close(r);
	assert_int_equal(stat(folder, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	assert_int_equal(stat(c.path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	assert_int_equal(journal_open(&r, &c, message), 1);
	journal_close(r);
	assert_int_equal(chmod(folder, 0701), 0);
	assert_int_equal(journal_open(&r, &c, message), -EPERM);
	assert_non_null(strstr(message, "list its content"));
	unlink(c.path);
	rmdir(folder);
	/* a link to a suitable folder */
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(symlink(path, folder), 0);
	assert_true(journal_open(&r, &c, message) < 0);
	unlink(folder);
	rmdir(path);
}

static void
test_default_path(void **state)
{
	const uid_t before = geteuid();

	unlink(path);
	assert_string_equal(strrchr(journal_default_path(), '/'), "/journal");
	if (before != 0)
		return;
	assert_int_equal(seteuid(100000 + getpid()), 0);
	use_default();
	assert_int_equal(seteuid(before), 0);
}

static void
read_at(off_t at, void *bytes, size_t size)
{
	const int fd = open(path, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, bytes, size, at), size);
	close(fd);
}

/* Checksum of the whole file. */
static uint32_t
checksum(void)
{
	const int fd = open(path, O_RDONLY);
	struct stat st;
	uint32_t crc;
	void *bytes;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	bytes = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	assert_true(bytes != MAP_FAILED);
	crc = arrow_crc32c(0, bytes, st.st_size);
	munmap(bytes, st.st_size);
	close(fd);
	return crc;
}

static void
sign_header(struct ring_header *h)
{
	h->crc = arrow_crc32c(0, &h->size,
		offsetof(struct ring_header, store) - offsetof(struct ring_header, size));
}

/* A receiver refuses the address of a store; it is shown to nobody. */
static void
expect_invalid_address(void)
{
	const struct journal_config c = {
		.path = path, .receiver_id = RECEIVER_ID, .bytes = RING_BYTES, .batches = RECORDS};
	struct journal_probe probe;
	struct journal_store s;
	struct journal *r = NULL;

	assert_int_equal(journal_open(&r, &c, message), -EBADMSG);
	assert_non_null(strstr(message, "store 3: invalid address"));
	assert_int_equal(journal_probe(&c, &probe, message), -EBADMSG);
	assert_non_null(strstr(message, "store 3: invalid address"));
	assert_int_equal(journal_open_existing(&r, path, message), 0);
	assert_true(journal_store_get(r, 3, &s));
	assert_string_equal(s.problem, "invalid address");
	assert_string_equal(s.address, "an unknown address");
	journal_close(r);
}

/* Wrong numbers in the header are refused, even with a right checksum. */
static void
test_header_fields(void **state)
{
	static const uint64_t values[] = {
		0, 1, 4095, 4096, 1 << 20, 1ull << 40, 1ull << 63, UINT64_MAX, UINT64_MAX - 4095};
	struct ring_header good, h;
	uint64_t *const number[] = {
		&h.size, &h.ledger_at, &h.runs_at, &h.batches_at, &h.data_at, &h.data_size};
	unsigned int i, k;

	unlink(path);
	journal_close(open_ring(0, NULL, NULL));
	read_at(0, &good, sizeof(good));
	for (i = 0; i < NB_OF(number); i++) {
		for (k = 0; k < NB_OF(values) + 2; k++) {
			h = good;
			if (k < NB_OF(values) && values[k] == *number[i])
				continue;
			if (k < NB_OF(values))
				*number[i] = values[k];
			else
				*number[i] += k % 2 ? XFER_BLOCK : -XFER_BLOCK;
			sign_header(&h);
			write_at(0, &h, sizeof(h));
			expect_refused(-EBADMSG, "do not match its size");
		}
	}
	for (k = 0; k < NB_OF(values); k++) {
		h = good;
		h.nb_batches = values[k];
		/* a list of 1 batch ends in the same page, and is valid */
		if (h.nb_batches == 1)
			continue;
		sign_header(&h);
		write_at(0, &h, sizeof(h));
		expect_refused(-EBADMSG, "do not match its size");
	}
	/* addresses of stores are shown to users */
	h = good;
	h.store[3].status = status_seal(STORE_USED | STORE_HERE);
	strcpy(h.store[3].address, "\033[2J");
	h.store[3].address_crc = address_crc(&h.store[3]);
	write_at(0, &h, sizeof(h));
	expect_invalid_address();
	memset(h.store[3].address, 'a', sizeof(h.store[3].address));
	h.store[3].address_crc = address_crc(&h.store[3]);
	write_at(0, &h, sizeof(h));
	expect_invalid_address();
	/* a header with a wrong checksum is refused */
	for (i = offsetof(struct ring_header, crc); i < offsetof(struct ring_header, store); i++) {
		h = good;
		((uint8_t *)&h)[i] ^= 1;
		write_at(0, &h, sizeof(h));
		expect_refused(-EBADMSG, "checksum of its header");
	}
	/* the file is shorter than its header says */
	write_at(0, &good, sizeof(good));
	assert_int_equal(truncate(path, good.size - XFER_BLOCK), 0);
	expect_refused(-EBADMSG, "do not match its size");
	unlink(path);
}

/* The receiver refuses a damaged run. Other programs see the batches of the other run. */
static void
expect_run_refused(const char *text)
{
	struct journal_damage d;
	struct journal_batch b;
	struct journal_run of;
	uint32_t list[RECORDS];
	struct journal *r;
	uint32_t before;
	char line[256];

	before = checksum();
	open_ring(-EBADMSG, NULL, NULL);
	assert_non_null(strstr(message, text));
	assert_int_equal(journal_open_existing(&r, path, message), 0);
	assert_non_null(strstr(journal_run_damage(r, 0), text));
	assert_null(journal_run_damage(r, 1));
	assert_false(journal_run_get(r, 0, &of));
	assert_true(journal_run_get(r, 1, &of) && of.held == 1);
	assert_int_equal(list_held(r, list), 1);
	assert_true(journal_get(r, list[0], &b) && b.run == 1);
	check_batch(&b);
	assert_int_equal(journal_damage_next(r, 0), 0);
	assert_true(journal_damage_get(r, 0, &d));
	assert_true(d.known && !d.run_known && d.batch.sequence == 1);
	journal_damage_text(r, 0, line, sizeof(line));
	assert_non_null(strstr(line, "its run is damaged; damaged run 0, images 1"));
	journal_close(r);
	assert_int_equal(checksum(), before);
}

/* Both copies of the constants have these wrong values, with right checksums. */
static void
expect_damaged_run(const struct ring_run *run, size_t at, const char *text)
{
	struct ring_run signed_run = *run;

	signed_run.constants.crc = constants_crc(&run->constants);
	signed_run.copy = signed_run.constants;
	write_at(at, &signed_run, sizeof(signed_run));
	expect_run_refused(text);
}

/* Make a journal of two runs with a batch each. @return the header */
static struct ring_header
make_runs(struct ring_run *first)
{
	const uint64_t batches[XFER_TABLES] = {3, 4};
	struct ring_header h;
	struct journal *r;
	unsigned int i;

	unlink(path);
	for (i = 0; i < sizeof(schema); i++)
		schema[i] = i * 7;
	r = open_ring(0, NULL, NULL);
	assert_int_equal(add_run(r, 1), 0);
	assert_int_equal(add_run(r, 2), 1);
	assert_int_equal(put(r, 0, 1), 0);
	assert_int_equal(put(r, 1, 2), 1);
	journal_run_end(r, 0, batches);
	journal_run_spilled(r, 0, 64);
	journal_close(r);
	read_at(0, &h, sizeof(h));
	read_at(h.runs_at, first, sizeof(*first));
	return h;
}

static void
test_run_fields(void **state)
{
	static struct ring_run good, run;
	struct ring_header h;
	struct journal_run bad = {.name = "../run"};
	struct journal *r;
	unsigned int i;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	assert_int_equal(journal_run_add(r, &bad), -EINVAL);
	journal_close(r);
	h = make_runs(&good);
	run = good;
	run.constants.schema_bytes[1] = JOURNAL_SCHEMA + 1;
	expect_damaged_run(&run, h.runs_at, "size is out of range");
	run = good;
	run.constants.body_max[0] = XFER_BODY_MAX + 1;
	expect_damaged_run(&run, h.runs_at, "size is out of range");
	run = good;
	memcpy(run.constants.name, "a/b", 4);
	expect_damaged_run(&run, h.runs_at, "its name");
	memset(run.constants.name, 'a', sizeof(run.constants.name));
	expect_damaged_run(&run, h.runs_at, "its name");
	run = good;
	run.status = run_status_seal((struct run_status){.state = RUN_LIVE, .ended = 2});
	expect_damaged_run(&run, h.runs_at, "state is out of range");
	run.status = run_status_seal((struct run_status){.state = RUN_LIVE + 1});
	expect_damaged_run(&run, h.runs_at, "state is out of range");
	/* more than one wrong bit in both copies */
	run = good;
	run.constants.name[1] ^= 3;
	run.copy.incarnation ^= 3;
	write_at(h.runs_at, &run, sizeof(run));
	expect_run_refused("wrong checksums of its constants");
	run.status ^= 3;
	write_at(h.runs_at, &run, sizeof(run));
	expect_run_refused("its state is out of range");
	run = good;
	for (i = 0; i < SCHEMA_COPIES; i++)
		run.schema[1][i][XFER_BLOCK - 1 - i] ^= 3;
	write_at(h.runs_at, &run, sizeof(run));
	expect_run_refused("wrong checksums of a schema");
	unlink(path);
}

/* The first run of make_runs() is there, and its record was corrected. */
static void
expect_run(bool ended, uint64_t spilled, bool lost)
{
	struct journal_stats stats;
	struct journal_run run;
	struct journal *r;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		if (i == 0)
			assert_int_equal(journal_open_existing(&r, path, message), 0);
		else
			r = open_ring(1, NULL, NULL);
		journal_stats_get(r, &stats);
		assert_true(i == 2 ? stats.corrected == 0 : stats.corrected > 0 || lost);
		assert_int_equal(stats.damaged, 0);
		assert_true(journal_run_get(r, 0, &run));
		assert_string_equal(run.name, "run");
		assert_int_equal(run.run, 1);
		assert_int_equal(run.incarnation, 1 + INCARNATION);
		assert_int_equal(run.held, 1);
		assert_int_equal(run.schema_bytes[1], XFER_BLOCK);
		assert_memory_equal(run.schema[0], schema, XFER_BLOCK);
		assert_memory_equal(run.schema[1], schema, XFER_BLOCK);
		assert_int_equal(run.body_max[1], 8 * XFER_BLOCK);
		assert_int_equal(run.ended, ended);
		assert_int_equal(run.batches[1], ended ? 4 : 0);
		assert_int_equal(run.spilled, spilled);
		assert_int_equal(run.spilled_lost, lost && i < 2);
		journal_close(r);
	}
}

/* Any wrong bit of a run is corrected, and more in one of two copies. */
static void
test_damaged_run(void **state)
{
	static const size_t once[] = {offsetof(struct ring_run, status),
		offsetof(struct ring_run, batches), offsetof(struct ring_run, spilled),
		offsetof(struct ring_run, spilling)};
	static struct ring_run good;
	const struct ring_header h = make_runs(&good);
	const uint32_t before = checksum();
	const uint64_t end = offsetof(struct ring_run, reserved3);
	uint64_t at, word;
	unsigned int i;
	uint8_t byte;

	for (at = 0; at < end + 2 * sizeof(good.schema[0]); at += at < end ? 1 : 1021) {
		if (at >= offsetof(struct ring_run, reserved2) && at < RUN_COPY_AT)
			continue;
		if (at >= offsetof(struct ring_run, reserved) &&
			at < offsetof(struct ring_run, spilled))
			continue;
		if (at >= end && at < XFER_BLOCK)
			continue;
		/* after the schema */
		if (at >= XFER_BLOCK && (at - XFER_BLOCK) % JOURNAL_SCHEMA >= XFER_BLOCK)
			continue;
		byte = ((uint8_t *)&good)[at] ^ 1 << at % 8;
		write_at(h.runs_at + at, &byte, 1);
		expect_run(true, 64, false);
		assert_int_equal(checksum(), before);
	}
	/* a whole copy of the constants, and of a schema */
	for (i = 0; i < 2; i++) {
		struct ring_constants c;
		uint8_t bytes[XFER_BLOCK];

		memset(&c, 0x55, sizeof(c));
		memset(bytes, 0x55, sizeof(bytes));
		write_at(h.runs_at + (i == 0 ? offsetof(struct ring_run, constants) : RUN_COPY_AT),
			&c, sizeof(c));
		write_at(h.runs_at + XFER_BLOCK + (1 + 2 * i) * JOURNAL_SCHEMA, bytes,
			sizeof(bytes));
		expect_run(true, 64, false);
		assert_int_equal(checksum(), before);
	}
	/* values without a copy */
	for (i = 0; i < NB_OF(once); i++) {
		make_runs(&good);
		memcpy(&word, (uint8_t *)&good + once[i], sizeof(word));
		word ^= 5;
		write_at(h.runs_at + once[i], &word, sizeof(word));
		/* not ended: as if its receiver was killed; not counted: doubts are forgotten */
		expect_run(i >= 2, i < 2 ? 64 : JOURNAL_UNCOUNTED, i >= 2);
	}
	/* a batch number that cannot be is not used */
	make_runs(&good);
	word = status_seal(65 << SPILLING_BITS | (RECORDS + 1));
	write_at(h.runs_at + offsetof(struct ring_run, spilling), &word, sizeof(word));
	expect_run(true, JOURNAL_UNCOUNTED, true);
	unlink(path);
}

/*
 * A damaged status of a record that was never used, and of a run that was dropped: the run is back,
 * without batches.
 */
static void
test_damaged_free_run(void **state)
{
	static struct ring_run good;
	struct ring_header h = make_runs(&good);
	const uint64_t word = 0x30;
	const uint32_t before = checksum();
	struct journal_run run;
	struct journal *r;

	write_at(h.runs_at + 2 * sizeof(good), &word, sizeof(word));
	expect_run(true, 64, false);
	assert_int_equal(checksum(), before);
	r = open_ring(1, NULL, NULL);
	journal_release(r, 0);
	assert_int_equal(journal_run_drop(r, 0), 0);
	assert_false(journal_run_get(r, 0, &run));
	journal_close(r);
	write_at(h.runs_at, &word, sizeof(word));
	r = open_ring(1, NULL, NULL);
	assert_true(journal_run_get(r, 0, &run));
	assert_int_equal(run.references, 0);
	assert_int_equal(run.incarnation, 1 + INCARNATION);
	assert_int_equal(journal_run_drop(r, 0), 0);
	journal_close(r);
	unlink(path);
}

/* A process uses its own copy of a run, whatever happens to the file. */
static void
test_run_in_memory(void **state)
{
	static struct ring_run good;
	struct journal_run run;
	struct journal_batch b;
	struct journal *r;
	uint32_t batch;

	(void)make_runs(&good);
	r = open_ring(1, NULL, NULL);
	/* the batch numbers are those of make_runs() */
	memset(&r->ring_run[0].constants, 0x55, XFER_BLOCK - 8);
	memset(r->ring_run[0].schema, 0x55, sizeof(r->ring_run[0].schema));
	assert_true(journal_run_get(r, 0, &run));
	assert_string_equal(run.name, "run");
	assert_int_equal(run.incarnation, 1 + INCARNATION);
	assert_memory_equal(run.schema[1], schema, XFER_BLOCK);
	assert_int_equal(run.spilled, 64);
	assert_true(journal_had(r, 1 + INCARNATION));
	assert_true(journal_get(r, 0, &b));
	journal_release_spilled(r, 0);
	assert_true(journal_run_get(r, 0, &run) && run.spilled == 65);
	/* a run is not dropped as long as a damaged batch of it is not saved */
	batch = put(r, 0, 5);
	assert_true(journal_get(r, batch, &b));
	b.metadata[9] ^= 1;
	assert_false(journal_check(r, batch));
	assert_true(journal_run_get(r, 0, &run) && run.references == 0);
	assert_int_equal(journal_run_drop(r, 0), -EBUSY);
	assert_int_equal(journal_run_drop(r, 1), -EBUSY);
	journal_release(r, 1);
	assert_int_equal(journal_run_drop(r, 1), 0);
	journal_damage_drop(r, batch);
	assert_int_equal(journal_run_drop(r, 0), 0);
	journal_close(r);
	unlink(path);
}

/* A damaged batch that may be in a file of the receiver makes their number unknown. */
static void
test_damaged_spilling(void **state)
{
	static struct ring_run good;
	struct journal_run run;
	struct journal_batch b;
	struct journal *r;

	(void)make_runs(&good);
	r = open_ring(1, NULL, NULL);
	journal_assign(r, 0, JOURNAL_SPILL);
	assert_true(journal_get(r, 0, &b));
	b.metadata[9] ^= 1;
	journal_close(r);
	r = open_ring(1, NULL, NULL);
	assert_int_equal(journal_damage_next(r, 0), 0);
	assert_true(journal_run_get(r, 0, &run) && run.spilled == 64);
	journal_damage_drop(r, 0);
	assert_true(journal_run_get(r, 0, &run) && run.spilled == JOURNAL_UNCOUNTED);
	assert_true(journal_run_get(r, 1, &run) && run.spilled == 0);
	journal_close(r);
	unlink(path);
}

/* One wrong bit in a ledger is corrected. Two damaged copies are noticed. */
static void
test_damaged_ledger(void **state)
{
	struct journal_stats stats;
	char ledger[JOURNAL_LEDGER];
	struct ring_ledger good[2], l;
	struct ring_header h;
	struct journal *r;
	size_t at, i;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	journal_ledger_put(r, "first, longer", 13);
	journal_ledger_put(r, "another", 7);
	journal_ledger_put(r, "last", 4);
	journal_close(r);
	read_at(0, &h, sizeof(h));
	read_at(h.ledger_at, good, sizeof(good));
	for (at = 0; at < sizeof(l); at += at < 64 ? 1 : 61) {
		l = good[1];
		((uint8_t *)&l)[at] ^= 1 << at % 8;
		write_at(h.ledger_at + sizeof(l), &l, sizeof(l));
		/* there need not be another copy */
		for (i = 0; i < 2; i++) {
			l = good[0];
			l.bytes[0] ^= i == 0 ? 0 : 3;
			write_at(h.ledger_at, &l, sizeof(l));
			assert_int_equal(journal_open_existing(&r, path, message), 0);
			journal_stats_get(r, &stats);
			assert_int_equal(stats.corrected, 1);
			assert_false(journal_ledger_is_lost(r));
			assert_int_equal(journal_ledger_get(r, ledger, sizeof(ledger)), 4);
			assert_memory_equal(ledger, "last", 4);
			journal_close(r);
		}
	}
	l.bytes[1] ^= 3;
	write_at(h.ledger_at, &l, sizeof(l));
	l = good[1];
	l.bytes[3] ^= 3;
	write_at(h.ledger_at + sizeof(l), &l, sizeof(l));
	r = open_ring(1, NULL, NULL);
	assert_true(journal_ledger_is_lost(r));
	assert_int_equal(journal_ledger_get(r, ledger, sizeof(ledger)), 0);
	journal_ledger_put(r, "new", 3);
	journal_close(r);
	r = open_ring(1, NULL, NULL);
	assert_false(journal_ledger_is_lost(r));
	assert_int_equal(journal_ledger_get(r, ledger, sizeof(ledger)), 3);
	journal_close(r);
	unlink(path);
}

/*
 * A file that begins with zeros is created again only if nothing is in it: its creator was killed.
 */
static void
test_unfinished(void **state)
{
	static const uint8_t zeros[4 * XFER_BLOCK];
	struct ring_header good, h;
	struct journal *r;
	uint32_t before;
	unsigned int i;

	unlink(path);
	journal_close(open_ring(0, NULL, NULL));
	read_at(0, &good, sizeof(good));
	/* its creator was killed at any moment of writing the header */
	for (i = 0; i <= offsetof(struct ring_header, store); i += 4) {
		memset(&h, 0, sizeof(h));
		memcpy((uint8_t *)&h + 8, (uint8_t *)&good + 8, i > 8 ? i - 8 : 0);
		write_at(0, &h, sizeof(h));
		journal_close(open_ring(0, NULL, NULL));
	}
	/* eight zeros in front of runs and batches, or of a ledger */
	for (i = 0; i < 3; i++) {
		unlink(path);
		r = open_ring(0, NULL, NULL);
		if (i == 0)
			journal_ledger_put(r, "ledger", 6);
		if (i > 0)
			(void)add_run(r, 1);
		if (i == 2)
			(void)put(r, 0, 1);
		journal_close(r);
		if (i == 2)
			write_at(good.runs_at, zeros, 8);
		/* a zeroed sector, and a whole block */
		write_at(0, zeros, i == 0 ? 8 : i == 1 ? 512 : XFER_BLOCK);
		before = checksum();
		expect_refused(-EBADMSG, "begins with zeros");
		assert_int_equal(checksum(), before);
	}
	/* a store in the header */
	unlink(path);
	r = open_ring(0, NULL, NULL);
	add_stores(r, 1);
	journal_close(r);
	write_at(0, zeros, 8);
	expect_refused(-EBADMSG, "begins with zeros");
	/* files that were never a journal */
	for (i = 8; i < sizeof(zeros) - 20; i += 500) {
		unlink(path);
		close(open(path, O_WRONLY | O_CREAT, 0600));
		write_at(0, zeros, sizeof(zeros));
		write_at(i, "something else", 14);
		/* without an owner, this place of a header may have anything */
		if (i >= offsetof(struct ring_header, size))
			expect_refused(-EBADMSG, "begins with zeros");
	}
	unlink(path);
}

/* Make a journal of three batches, for damage of the second. @return the header */
static struct ring_header
make_three(uint32_t batch[3], struct ring_batch *middle)
{
	struct ring_header h;
	struct journal *r;
	unsigned int i, run;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	add_stores(r, 1);
	run = add_run(r, 1);
	for (i = 0; i < 3; i++)
		batch[i] = put(r, run, i + 1);
	journal_close(r);
	read_at(0, &h, sizeof(h));
	read_at(h.batches_at + batch[1] * sizeof(*middle), middle, sizeof(*middle));
	return h;
}

/* Whether a part of the space outside of sound batches has these bytes. */
static bool
is_in_space(const struct journal *r, const uint8_t *bytes)
{
	const uint8_t *part;
	uint64_t size;
	uint32_t at = 0;

	while ((part = journal_damage_space(r, &at, &size)) != NULL) {
		assert_true(size > 0 && size % XFER_BLOCK == 0);
		assert_true(part >= r->data && part + size <= r->data + r->data_size);
		if (bytes >= part && bytes < part + size)
			return true;
	}
	return false;
}

/* The second batch is damaged: opening keeps and describes it, and the other batches are sound. */
static void
look_at_one_damaged(struct journal *r, const uint32_t batch[3], const char *text)
{
	struct journal_stats stats;
	struct journal_damage d;
	struct journal_batch b;
	uint32_t list[RECORDS], n, at = 0;
	char line[256];

	assert_non_null(strstr(message, "1 damaged"));
	journal_stats_get(r, &stats);
	assert_int_equal(stats.damaged, 1);
	assert_int_equal(list_held(r, list), 2);
	assert_int_equal(list[0], batch[0]);
	assert_int_equal(list[1], batch[2]);
	assert_false(journal_get(r, batch[1], &b));
	for (n = journal_next(r, 0); n != UINT32_MAX; n = journal_next(r, n + 1))
		assert_int_not_equal(n, batch[1]);
	assert_int_equal(journal_damage_next(r, 0), batch[1]);
	assert_int_equal(journal_damage_next(r, batch[1] + 1), UINT32_MAX);
	assert_false(journal_damage_get(r, batch[0], &d));
	assert_true(journal_damage_get(r, batch[1], &d));
	journal_damage_text(r, batch[1], line, sizeof(line));
	if (strstr(line, text) == NULL)
		fail_msg("%s, expected %s", line, text);
	if (d.known) {
		assert_int_equal(d.batch.sequence, 2);
		assert_int_equal(d.batch.rows, 10);
		assert_int_equal(d.batch.first, 20);
		assert_true(d.run_known && strcmp(d.run.name, "run") == 0);
		if (d.held)
			assert_true(is_in_space(r, d.batch.metadata));
	}
	/* no sound batch is in the free space */
	while ((n = journal_walk(r, &at)) != UINT32_MAX) {
		assert_true(journal_get(r, n, &b));
		assert_false(is_in_space(r, b.metadata));
	}
}

static void
expect_one_damaged(const uint32_t batch[3], const char *text)
{
	struct journal *r;
	uint32_t before;

	before = checksum();
	assert_int_equal(journal_open_existing(&r, path, message), 0);
	look_at_one_damaged(r, batch, text);
	journal_close(r);
	r = open_ring(1, NULL, NULL);
	look_at_one_damaged(r, batch, text);
	/* its bytes may be anywhere, so that nothing is written until it was dropped */
	assert_null(journal_reserve(r, XFER_BLOCK));
	journal_close(r);
	assert_int_equal(checksum(), before);
	r = open_ring(1, NULL, NULL);
	journal_release(r, batch[0]);
	assert_null(journal_reserve(r, XFER_BLOCK));
	journal_damage_drop(r, batch[1]);
	journal_damage_drop(r, batch[1]);
	journal_damage_drop(r, batch[2]); /* it is sound */
	assert_int_equal(journal_damage_next(r, 0), UINT32_MAX);
	/* record and room are used again */
	assert_int_equal(put(r, 0, 50), batch[1]);
	assert_int_equal(put(r, 0, 51), batch[0]);
	journal_close(r);
	r = open_ring(1, NULL, NULL);
	assert_non_null(strstr(message, "3 batches"));
	assert_non_null(strstr(message, "0 damaged"));
	journal_close(r);
}

/* The metadata of a batch is damaged while the journal is open: it is found when it is checked. */
static void
test_check(void **state)
{
	uint32_t batch[3];
	struct journal_batch b;
	struct journal_run run;
	struct ring_batch x;
	struct journal *r;
	unsigned int i;

	make_three(batch, &x);
	r = open_ring(1, NULL, NULL);
	for (i = 0; i < 3; i++)
		assert_true(journal_check(r, batch[i]) && journal_is_sound(r, batch[i]));
	assert_false(journal_is_damaged(r));
	assert_true(journal_get(r, batch[1], &b));
	b.body[0] ^= 1;
	assert_false(journal_is_sound(r, batch[1]));
	b.body[0] ^= 1;
	b.metadata[XFER_BLOCK - 1] ^= 1;
	assert_false(journal_is_sound(r, batch[1]));
	assert_false(journal_is_damaged(r));
	assert_false(journal_check(r, batch[1]));
	assert_true(journal_is_damaged(r));
	snprintf(message, sizeof(message), "1 damaged");
	look_at_one_damaged(
		r, batch, "its metadata is damaged; run run, frames 2, frames 20 to 29");
	assert_true(journal_run_get(r, 0, &run));
	assert_int_equal(run.held, 2);
	assert_int_equal(run.references, 2);
	journal_damage_drop(r, batch[1]);
	assert_false(journal_is_damaged(r));
	assert_int_equal(put(r, 0, 50), batch[1]);
	journal_release(r, batch[0]);
	journal_release(r, batch[2]);
	assert_true(journal_check(r, batch[1]));
	journal_release(r, batch[1]);
	assert_int_equal(journal_run_drop(r, 0), 0);
	assert_non_null(journal_reserve(r, XFER_BLOCK));
	journal_close(r);
}

/* Change the record of a batch in a running journal, which uses it in all ways. */
static void
use_changed(size_t at, uint8_t bits, bool check)
{
	struct ring_batch x, sound;
	struct journal_stats stats;
	struct journal_batch b;
	struct journal_run run;
	uint32_t batch[3], list[RECORDS];
	struct journal *r;
	unsigned int i;

	make_three(batch, &x);
	r = open_ring(1, NULL, NULL);
	assert_int_equal(journal_store_add(r, "10.0.0.9:1", 99), 1);
	for (i = 0; i < 2; i++) {
		journal_assign(r, batch[1], i);
		journal_give(r, batch[1]);
	}
	sound = r->batch[batch[1]];
	((uint8_t *)&r->batch[batch[1]])[at] ^= bits;
	if (check) {
		assert_true(journal_check(r, batch[1]));
		assert_memory_equal(&r->batch[batch[1]], &sound, sizeof(sound));
	}
	/* the room of a held batch is not granted again */
	journal_release(r, batch[0]);
	assert_int_equal(list_held(r, list), 2);
	assert_int_equal(list[0], batch[1]);
	assert_true(journal_get(r, batch[1], &b));
	check_batch(&b);
	assert_ptr_equal(r->data + r->tail % r->data_size, b.metadata);
	journal_release(r, batch[1]);
	assert_true(journal_get(r, batch[1], &b) && !b.held && b.sequence == 2);
	/* a record in doubt is compared, too */
	((uint8_t *)&r->batch[batch[1]])[at] ^= bits;
	assert_true(journal_check(r, batch[1]));
	journal_stats_get(r, &stats);
	assert_int_equal(stats.corrected, check ? 2 : at < offsetof(struct ring_batch, position));
	assert_false(journal_is_damaged(r));
	assert_true(journal_run_get(r, 0, &run));
	assert_int_equal(run.held, 1);
	assert_int_equal(run.references, 2);
	journal_confirm(r, 0, 0);
	journal_release(r, batch[2]);
	assert_int_equal(journal_run_drop(r, 0), 0);
	journal_close(r);
}

/*
 * A record that changes while the journal is open has no effect on this process, and is written
 * again when it is checked.
 */
static void
test_changed_record(void **state)
{
	size_t at;

	for (at = 0; at < sizeof(struct ring_batch); at++) {
		use_changed(at, 1u << at % 8, true);
		use_changed(at, 0xff, at % 2 == 0);
	}
}

/* The room of a batch whose record has changed is found without it, after any number of batches. */
static void
test_changed_position(void **state)
{
	struct journal_batch b;
	struct ring_batch x;
	uint32_t batch[3], next;
	struct journal *r;
	unsigned int i;

	make_three(batch, &x);
	r = open_ring(1, NULL, NULL);
	journal_release(r, batch[0]);
	r->batch[batch[1]].position ^= 1u << 13;
	for (i = 0; i < 2 * RECORDS && (next = put(r, 0, 60 + i)) != UINT32_MAX; i++)
		journal_release(r, next);
	/* it ends, because the batch keeps its room */
	assert_true(i > 0 && i < 2 * RECORDS);
	assert_true(journal_get(r, batch[1], &b));
	b.metadata[0] ^= 1;
	assert_false(journal_check(r, batch[1]));
	journal_damage_drop(r, batch[1]);
	journal_release(r, batch[2]);
	assert_non_null(journal_reserve(r, XFER_BLOCK));
	journal_close(r);
}

/* Make a batch that two stores may have, and that store 1 owns. */
static struct journal *
make_given(uint32_t batch[3])
{
	struct ring_batch x;
	struct journal *r;
	unsigned int i;

	make_three(batch, &x);
	r = open_ring(1, NULL, NULL);
	assert_int_equal(journal_store_add(r, "10.0.0.1:1", 2), 1);
	for (i = 0; i < 2; i++) {
		journal_assign(r, batch[0], i);
		journal_give(r, batch[0]);
	}
	return r;
}

/*
 * Another store keeps its copy of a batch that is damaged here, so that nothing is in doubt. If a
 * store has proved a sound copy, the other one is in doubt as usual.
 */
static void
test_keep_copies(void **state)
{
	struct journal_batch b;
	uint32_t batch[3];
	struct journal *r;

	r = make_given(batch);
	journal_keep_copies(r, batch[0]);
	assert_true(journal_get(r, batch[0], &b));
	assert_int_equal(b.given, 3);
	/* that store was not told anything about it */
	journal_confirm(r, 0, 0);
	assert_true(journal_get(r, batch[0], &b));
	assert_int_equal(b.given, 3);
	journal_release(r, batch[0]);
	assert_false(journal_get(r, batch[0], &b));
	/* the next batch of this number is another one */
	assert_int_equal(put(r, 0, 50), batch[0]);
	journal_assign(r, batch[0], 0);
	journal_give(r, batch[0]);
	journal_assign(r, batch[0], 1);
	journal_release(r, batch[0]);
	assert_true(journal_get(r, batch[0], &b) && !b.held && b.given == 1);
	journal_close(r);
	r = make_given(batch);
	journal_keep_copies(r, batch[0]);
	journal_prove(r, batch[0]);
	journal_release(r, batch[0]);
	assert_true(journal_get(r, batch[0], &b) && !b.held && b.given == 3);
	journal_confirm(r, 0, 0);
	assert_false(journal_get(r, batch[0], &b));
	journal_close(r);
}

static void
test_damaged_batch(void **state)
{
	struct ring_batch good, b;
	struct ring_header h;
	uint32_t batch[3];
	uint64_t at;
	unsigned int i;
	uint8_t byte;

	/* the checksum covers each byte of the constant part; two bits are too many */
	for (i = offsetof(struct ring_batch, position); i < sizeof(b); i += 7) {
		h = make_three(batch, &b);
		((uint8_t *)&b)[i] ^= 5;
		write_at(h.batches_at + batch[1] * sizeof(b), &b, sizeof(b));
		expect_one_damaged(batch, "record is damaged; its frames are unknown");
	}
	/* numbers out of range are refused even with a right checksum */
	for (i = 0; i < 8; i++) {
		h = make_three(batch, &good);
		b = good;
		if (i == 0)
			b.position++;
		else if (i == 1)
			b.position = UINT64_MAX - XFER_BLOCK + 1;
		else if (i == 2)
			b.body_bytes = UINT64_MAX - XFER_BLOCK + 1;
		else if (i == 3)
			b.body_bytes = h.data_size;
		else if (i == 4)
			b.run = 1;
		else if (i == 5)
			b.run = JOURNAL_RUNS;
		else if (i == 6)
			b.table = XFER_TABLES;
		else
			b.sequence = UINT64_MAX;
		b.crc = batch_crc(&b);
		write_at(h.batches_at + batch[1] * sizeof(b), &b, sizeof(b));
		expect_one_damaged(batch, "record is damaged; its frames are unknown");
	}
	h = make_three(batch, &b);
	b.status = batch_status_seal((struct batch_status){.state = BATCH_IN_DOUBT + 1});
	write_at(h.batches_at + batch[1] * sizeof(b), &b, sizeof(b));
	expect_one_damaged(batch, "its record is damaged; run run, frames 2, frames 20 to 29");
	/* a changed bit in metadata or body */
	for (i = 0; i < 4; i++) {
		h = make_three(batch, &b);
		at = h.data_at + b.position +
			(i == 0			 ? 0
					: i == 1 ? XFER_BLOCK - 1
					: i == 2 ? XFER_BLOCK
						 : XFER_BLOCK + b.body_bytes - 1);
		read_at(at, &byte, 1);
		byte ^= 1;
		write_at(at, &byte, 1);
		expect_one_damaged(batch,
			i < 2 ? "its metadata is damaged; run run, frames 2, frames 20 to 29"
			      : "its body is damaged; run run, frames 2, frames 20 to 29");
	}
	/* two batches at the same place */
	h = make_three(batch, &b);
	read_at(h.batches_at + batch[0] * sizeof(good), &good, sizeof(good));
	good.sequence = 2;
	good.crc = batch_crc(&good);
	write_at(h.batches_at + batch[1] * sizeof(good), &good, sizeof(good));
	open_ring(-EBADMSG, NULL, NULL);
	assert_non_null(strstr(message, "overlap"));
	unlink(path);
}

/* Change bits of a record or of a run. */
static void
flip(uint64_t at, uint64_t word)
{
	uint64_t was;

	read_at(at, &was, sizeof(was));
	was ^= word;
	write_at(at, &was, sizeof(was));
}

/* All batches of make_three() are there, and the status of some records was corrected. */
static void
expect_corrected(const uint32_t batch[3], bool held, unsigned int corrected)
{
	const uint32_t before = checksum();
	struct journal_stats stats;
	struct journal_batch b;
	struct journal_run run;
	struct journal *r;
	unsigned int i, k;

	for (i = 0; i < 3; i++) {
		if (i == 0)
			assert_int_equal(journal_open_existing(&r, path, message), 0);
		else
			r = open_ring(1, NULL, NULL);
		journal_stats_get(r, &stats);
		/* opening for good has repaired it */
		assert_int_equal(stats.corrected, i < 2 ? corrected : 0);
		assert_int_equal(stats.damaged, 0);
		assert_true(journal_run_get(r, 0, &run));
		assert_int_equal(run.held, held ? 3 : 2);
		assert_false(run.ended);
		for (k = 0; k < 3; k++) {
			assert_true(journal_get(r, batch[k], &b));
			assert_int_equal(b.sequence, k + 1);
			assert_int_equal(b.held, k != 1 || held);
			assert_int_equal(b.owner, k == 1 ? 0 : JOURNAL_NOBODY);
			assert_int_equal(b.given, k != 1 ? 0 : held ? 1 : 3);
		}
		assert_int_equal(journal_next(r, batch[2] + 1), UINT32_MAX);
		journal_close(r);
		if (i == 0)
			assert_int_equal(checksum(), before);
	}
}

/* Make a journal whose second batch store 0 has, or also store 1, which is in doubt. */
static struct ring_header
make_second(uint32_t batch[3], bool in_doubt)
{
	struct ring_batch record;
	const struct ring_header h = make_three(batch, &record);
	struct journal *r = open_ring(1, NULL, NULL);

	assert_int_equal(journal_store_add(r, "10.0.0.9:1", 99), 1);
	if (in_doubt) {
		journal_assign(r, batch[1], 1);
		journal_give(r, batch[1]);
	}
	journal_assign(r, batch[1], 0);
	journal_give(r, batch[1]);
	if (in_doubt)
		journal_release(r, batch[1]);
	journal_close(r);
	return h;
}

/* One wrong bit of a record is corrected. With more, nothing is known but the stores. */
static void
test_damaged_record(void **state)
{
	struct journal_damage d;
	struct journal_batch b;
	struct ring_header h;
	struct journal *r;
	uint32_t batch[3];
	unsigned int in_doubt, bit;
	uint64_t at;

	for (in_doubt = 0; in_doubt < 2; in_doubt++) {
		h = make_second(batch, in_doubt);
		at = h.batches_at + batch[1] * sizeof(struct ring_batch);
		for (bit = 64; bit < 8 * sizeof(struct ring_batch); bit += 5) {
			flip(at + bit / 64 * 8, 1ull << bit % 64);
			expect_corrected(batch, !in_doubt, 1);
		}
		flip(at + offsetof(struct ring_batch, sequence), 10);
		r = open_ring(1, NULL, NULL);
		assert_false(journal_get(r, batch[1], &b));
		assert_true(journal_damage_get(r, batch[1], &d));
		assert_true(!d.known && d.stores_known && d.held == !in_doubt);
		assert_int_equal(d.batch.owner, 0);
		assert_int_equal(d.batch.given, in_doubt ? 3 : 1);
		journal_close(r);
	}
	unlink(path);
}

/*
 * A batch is not lost, and does not appear, because of wrong bits in its status: one is corrected,
 * and with more the batch is damaged.
 */
static void
test_damaged_status(void **state)
{
	const size_t size = sizeof(struct ring_batch);
	struct ring_batch record;
	struct ring_header h;
	uint32_t batch[3], nb;
	unsigned int bit, other, in_doubt;
	uint64_t at;

	for (in_doubt = 0; in_doubt < 2; in_doubt++) {
		h = make_second(batch, in_doubt);
		at = h.batches_at + batch[1] * size;
		nb = h.nb_batches - 1;
		expect_corrected(batch, !in_doubt, 0);
		for (bit = 0; bit < 64; bit++) {
			flip(at, 1ull << bit);
			/* a record that was never used, and the run */
			flip(h.batches_at + nb * size, 1ull << bit);
			flip(h.runs_at, 1ull << bit);
			expect_corrected(batch, !in_doubt, 3);
		}
	}
	for (bit = 0; bit < 64; bit++) {
		for (other = bit + 1; other < 64; other += 5) {
			h = make_three(batch, &record);
			flip(h.batches_at + batch[1] * size, 1ull << bit | 1ull << other);
			expect_one_damaged(batch, "its record is damaged; run run, frames 2");
		}
	}
	unlink(path);
}

/* An unknown store owns no batch. */
static void
test_damaged_owner(void **state)
{
	struct journal_batch b;
	struct journal *r;
	struct ring_header h;
	struct ring_batch record;
	uint32_t batch[3];
	unsigned int i;
	uint32_t before;

	h = make_three(batch, &record);
	record.status = batch_status_seal(
		(struct batch_status){.state = BATCH_HELD, .owner = 100, .given = 1});
	write_at(h.batches_at + batch[1] * sizeof(record), &record, sizeof(record));
	before = checksum();
	for (i = 0; i < 4; i++) {
		if (i < 2)
			assert_int_equal(journal_open_existing(&r, path, message), 0);
		else
			r = open_ring(1, NULL, NULL);
		if (i == 1)
			journal_repair(r);
		assert_true(journal_get(r, batch[1], &b));
		assert_int_equal(b.owner, JOURNAL_NOBODY);
		/* the bit of a known store stays: that store will be informed */
		assert_int_equal(b.given, 1);
		journal_close(r);
		if (i == 0)
			assert_int_equal(checksum(), before);
	}
	unlink(path);
}

/* ---- stores and incarnations ----------------------------------------------------------------- */

#define STORE_AT(n) (offsetof(struct ring_header, store) + (n) * sizeof(struct ring_store))

/* Make a journal whose second batch is in doubt: store 0 may have it, store 1 has it. */
static struct ring_header
make_doubt(uint32_t batch[3])
{
	struct ring_batch record;
	struct ring_header h;
	struct journal *r;

	(void)make_three(batch, &record);
	r = open_ring(1, NULL, NULL);
	assert_int_equal(journal_store_add(r, "10.0.0.9:1", 99), 1);
	journal_assign(r, batch[1], 0);
	journal_give(r, batch[1]);
	journal_assign(r, batch[1], 1);
	journal_give(r, batch[1]);
	journal_release(r, batch[1]);
	journal_close(r);
	read_at(0, &h, sizeof(h));
	return h;
}

/* All stores and doubts of make_doubt() are there. */
static void
look_at_doubt(const struct journal *r, const uint32_t batch[3], unsigned int corrected)
{
	struct journal_stats stats;
	struct journal_store s;
	struct journal_batch b;

	journal_stats_get(r, &stats);
	assert_int_equal(stats.corrected, corrected);
	assert_int_equal(stats.damaged, 0);
	assert_int_equal(stats.in_doubt, 1);
	assert_true(journal_get(r, batch[1], &b));
	assert_false(b.held);
	assert_int_equal(b.owner, 1);
	assert_int_equal(b.given, 3);
	assert_int_equal(journal_store_of(r, 1), 0);
	assert_int_equal(journal_store_of(r, 99), 1);
	assert_int_equal(journal_store_at(r, "10.0.0.0:1"), 0);
	assert_int_equal(journal_store_at(r, "10.0.0.9:1"), 1);
	assert_true(journal_store_get(r, 0, &s) && s.identity == 1 && s.here);
	assert_string_equal(s.address, "10.0.0.0:1");
	assert_null(s.problem);
	assert_false(journal_store_get(r, 2, &s));
	assert_true(journal_had(r, 1 + INCARNATION));
	assert_false(journal_had(r, 2 + INCARNATION));
	assert_int_equal(journal_lost_incarnations(r), 0);
}

/* Opening corrects the file; without journal_repair(), it changes nothing. */
static void
expect_doubt(const uint32_t batch[3], unsigned int corrected)
{
	const uint32_t before = checksum();
	struct journal *r;
	unsigned int i;

	assert_int_equal(journal_open_existing(&r, path, message), 0);
	look_at_doubt(r, batch, corrected);
	journal_close(r);
	assert_int_equal(checksum(), before);
	for (i = 0; i < 2; i++) {
		r = open_ring(1, NULL, NULL);
		look_at_doubt(r, batch, i == 0 ? corrected : 0);
		journal_close(r);
	}
}

static void
flip_bit(uint64_t at, unsigned int bit)
{
	uint8_t byte;

	read_at(at + bit / 8, &byte, 1);
	byte ^= 1u << bit % 8;
	write_at(at + bit / 8, &byte, 1);
}

/* A receiver refuses the journal. Other programs see the store and what it may have. */
static void
expect_store_refused(const uint32_t batch[3], unsigned int n, const char *text)
{
	const uint32_t before = checksum();
	struct journal_config c = {
		.path = path, .receiver_id = RECEIVER_ID, .bytes = RING_BYTES, .batches = RECORDS};
	struct journal_store s;
	struct journal_batch b;
	struct journal *r = NULL;
	char start[32];

	snprintf(start, sizeof(start), "store %u: ", n);
	assert_int_equal(journal_open(&r, &c, message), -EBADMSG);
	if (strstr(message, start) == NULL || strstr(message, text) == NULL ||
		strstr(message, path) == NULL || strstr(message, "reconcile") == NULL)
		fail_msg("%s, expected %s%s", message, start, text);
	assert_int_equal(journal_open_existing(&r, path, message), 0);
	assert_true(journal_store_get(r, n, &s));
	assert_non_null(strstr(s.problem, text));
	assert_int_equal(s.identity, 0);
	assert_false(s.here);
	assert_true(journal_get(r, batch[1], &b));
	assert_int_equal(b.owner, 1);
	assert_int_equal(b.given, 3);
	assert_int_equal(journal_store_given(r, 0), 1);
	/* it stays as it is, also if what was found otherwise is written down */
	journal_repair(r);
	journal_close(r);
	assert_int_equal(checksum(), before);
}

/*
 * Which store may have a batch is not lost because of wrong bits: one is corrected in each member
 * of a store. With more, or without the record, the journal is refused.
 */
static void
test_damaged_store(void **state)
{
	static const struct {
		size_t at, bytes;
		const char *text;
	} members[] = {
		{offsetof(struct ring_store, status), 8, "its state is out of range"},
		{offsetof(struct ring_store, identity), 8, "wrong checksum of its identity"},
		{offsetof(struct ring_store, identity_crc), 4, "wrong checksum of its identity"},
		{offsetof(struct ring_store, address), JOURNAL_ADDRESS,
			"wrong checksum of its address"},
		{offsetof(struct ring_store, address_crc), 4, "wrong checksum of its address"},
	};
	static const struct ring_store none;
	struct ring_header h;
	struct ring_store s;
	uint32_t batch[3];
	unsigned int i, n, bit, bits;

	h = make_doubt(batch);
	expect_doubt(batch, 0);
	for (i = 0; i < NB_OF(members); i++) {
		bits = members[i].bytes * 8;
		for (bit = i; bit < bits; bit += 1 + bits / 24) {
			for (n = 0; n < 2; n++)
				flip_bit(STORE_AT(n) + members[i].at, bit);
			expect_doubt(batch, 2);
			n = bit % 2;
			flip_bit(STORE_AT(n) + members[i].at, bit);
			flip_bit(STORE_AT(n) + members[i].at, (bit + 1 + bit % 13) % bits);
			expect_store_refused(batch, n, members[i].text);
			write_at(0, &h, sizeof(h));
		}
	}
	/* a status that no receiver writes */
	for (i = 0; i < 3; i++) {
		s = h.store[0];
		s.status = status_seal(i == 0 ? STORE_HERE
				: i == 1      ? STORE_ALL + 1
					      : STORE_KNOWN | 256);
		write_at(STORE_AT(0), &s, sizeof(s));
		expect_store_refused(batch, 0, "its state is out of range");
	}
	write_at(0, &h, sizeof(h));
	/* a store that batches were sent to has no record */
	for (n = 0; n < 2; n++) {
		write_at(STORE_AT(n), &none, sizeof(none));
		expect_store_refused(batch, n, "batches were sent to it, but its record is free");
		write_at(0, &h, sizeof(h));
	}
	expect_doubt(batch, 0);
	/* a wrong bit in a record that was never used */
	for (bit = 0; bit < 64; bit += 3) {
		flip_bit(STORE_AT(7), bit);
		expect_doubt(batch, 1);
	}
	unlink(path);
}

/* A member that is half written is not used: the status says so. */
static void
test_unfinished_store(void **state)
{
	struct ring_header h;
	struct ring_store s;
	struct journal_store to;
	uint32_t batch[3];
	struct journal *r;
	unsigned int i;

	h = make_doubt(batch);
	for (i = 0; i < 4; i++) {
		s = h.store[0];
		memset(s.address, 0xfe, 7);
		if (i == 0)
			s.status = status_seal(STORE_USED | STORE_KNOWN);
		if (i == 1)
			s.identity += 1234567;
		if (i == 1)
			s.status = status_seal(STORE_USED);
		if (i >= 2)
			memset(&s, 0xa5, sizeof(s));
		if (i == 2)
			s.status = 0;
		if (i == 3)
			s.status = status_seal(STORE_USED);
		write_at(i == 2 ? STORE_AT(5) : STORE_AT(0), &s, sizeof(s));
		r = open_ring(1, NULL, NULL);
		assert_int_equal(journal_store_get(r, 5, &to), false);
		assert_true(journal_store_get(r, 0, &to));
		assert_int_equal(to.identity, i == 0 || i == 2);
		assert_int_equal(to.here, i == 2);
		assert_string_equal(to.address, i == 2 ? "10.0.0.0:1" : "an unknown address");
		assert_int_equal(journal_store_given(r, 0), 1);
		/* it is completed when the store answers */
		journal_store_move(r, 0, "10.0.0.0:1");
		journal_store_identify(r, 0, 1);
		if (i == 2)
			assert_int_equal(journal_store_add(r, "10.0.0.5:1", 0), 2);
		if (i == 2)
			assert_int_equal(journal_store_drop(r, 2), 0);
		journal_close(r);
		expect_doubt(batch, 0);
	}
	unlink(path);
}

#define INCARNATION_AT(n) \
	(offsetof(struct ring_header, incarnation) + (n) * sizeof(struct ring_incarnation))

static void
test_damaged_incarnation(void **state)
{
	struct ring_incarnation k;
	struct journal_stats stats;
	struct ring_header h;
	struct journal *r;
	unsigned int bit, i;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	for (i = 0; i < 5; i++)
		assert_int_equal(journal_run_drop(r, add_run(r, 100 + i)), 0);
	journal_close(r);
	read_at(0, &h, sizeof(h));
	for (bit = 0; bit < 8 * sizeof(k); bit += 5) {
		flip_bit(INCARNATION_AT(2), bit);
		/* a record that was never used */
		flip_bit(INCARNATION_AT(77), bit);
		for (i = 0; i < 2; i++) {
			r = open_ring(1, NULL, NULL);
			journal_stats_get(r, &stats);
			assert_int_equal(stats.corrected, i == 0);
			assert_true(journal_had(r, 102 + INCARNATION));
			assert_int_equal(journal_lost_incarnations(r), 1);
			journal_close(r);
		}
		/* with more wrong bits, it is not used */
		flip_bit(INCARNATION_AT(2), bit);
		flip_bit(INCARNATION_AT(2), (bit + 9) % (8 * sizeof(k)));
		r = open_ring(1, NULL, NULL);
		assert_false(journal_had(r, 102 + INCARNATION));
		assert_true(journal_had(r, 101 + INCARNATION));
		assert_true(journal_had(r, 104 + INCARNATION));
		assert_int_equal(journal_lost_incarnations(r), 2);
		journal_close(r);
		write_at(0, &h, sizeof(h));
	}
	/* the next one is half written; the incarnation of a run that is there is always known */
	memset(&k, 0x5a, sizeof(k));
	write_at(INCARNATION_AT(5), &k, sizeof(k));
	r = open_ring(1, NULL, NULL);
	assert_int_equal(journal_lost_incarnations(r), 0);
	(void)add_run(r, 105);
	journal_close(r);
	for (i = 0; i < 2; i++) {
		r = open_ring(1, NULL, NULL);
		assert_int_equal(journal_lost_incarnations(r), 0);
		assert_true(journal_had(r, 105 + INCARNATION));
		journal_close(r);
		write_at(INCARNATION_AT(5), &k, sizeof(k));
	}
	/* a number that is not of this place */
	k = (struct ring_incarnation){.incarnation = 999, .number = UINT32_MAX};
	k.crc = incarnation_crc(&k);
	write_at(INCARNATION_AT(0), &k, sizeof(k));
	r = open_ring(1, NULL, NULL);
	assert_false(journal_had(r, 999));
	assert_int_equal(journal_lost_incarnations(r), 1);
	journal_close(r);
	unlink(path);
}

/* ---- kill -9 between any two stores ---------------------------------------------------------- */

struct known {
	bool held;
	uint8_t owner;
	uint16_t given;
};

/*
 * The expected contents of the journal before and after the current operation. Shared with the
 * child.
 */
struct model {
	struct known now[SEQUENCES];
	struct known next[SEQUENCES];
	uint64_t ledger_now;
	uint64_t ledger_next;
	uint64_t sequence;
	uint64_t steps; /* stores to the journal */
	uint64_t kill_at;
};

static void
count_step(void *arg)
{
	struct model *m = arg;

	if (++m->steps == m->kill_at)
		raise(SIGKILL);
}

static void
begin(struct model *m)
{
	memcpy(m->next, m->now, sizeof(m->now));
	m->ledger_next = m->ledger_now;
}

static void
end(struct model *m)
{
	memcpy(m->now, m->next, sizeof(m->now));
	m->ledger_now = m->ledger_next;
}

/* One operation of a receiver. */
static void
act(struct journal *r, struct model *m, unsigned int run)
{
	uint32_t list[RECORDS], n = list_held(r, list), pick;
	const unsigned int store = random_number() % STORES, what = random_number() % 8;
	struct journal_batch b;
	unsigned int i;

	begin(m);
	if (what < 3 && m->sequence < SEQUENCES) {
		m->next[m->sequence] = (struct known){true, JOURNAL_NOBODY, 0};
		if (put(r, run, m->sequence) == UINT32_MAX)
			begin(m);
		m->sequence++;
	} else if (what == 6) {
		for (i = 0; i < SEQUENCES; i++) {
			if (m->next[i].owner != store)
				m->next[i].given &= ~(1u << store);
		}
		journal_confirm(r, run, store);
	} else if (what == 7) {
		m->ledger_next++;
		journal_ledger_put(r, &m->ledger_next, sizeof(m->ledger_next));
	} else if (n > 0) {
		pick = list[random_number() % n];
		assert_true(journal_get(r, pick, &b));
		if (what == 3) {
			m->next[b.sequence].owner = store;
			journal_assign(r, pick, store);
		} else if (what == 4 && b.owner < JOURNAL_STORES) {
			m->next[b.sequence].given |= 1u << b.owner;
			journal_give(r, pick);
		} else if (what == 5 && random_number() % 4 == 0) {
			m->next[b.sequence].owner = JOURNAL_SPILL;
			journal_assign(r, pick, JOURNAL_SPILL);
		} else {
			m->next[b.sequence].held = false;
			journal_release(r, pick);
		}
	}
	end(m);
}

static void
live(struct model *m, unsigned int acts)
{
	struct journal *r = open_ring(0, count_step, m);
	const unsigned int run = add_run(r, 1);

	add_stores(r, STORES);
	while (acts-- > 0)
		act(r, m, run);
	journal_close(r);
}

/* Held, or in doubt: other stores than its owner were given it. */
static bool
is_of_interest(const struct known *k)
{
	return k->held ||
		(k->owner < JOURNAL_STORES ? k->given & ~(1u << k->owner) : k->given) != 0;
}

/* The journal has the contents from before or after the operation that was interrupted. */
static void
look(const struct model *m, struct journal *r)
{
	bool found[SEQUENCES] = {false};
	const struct known *now, *next;
	struct journal_batch b;
	uint64_t ledger = 0;
	uint32_t i;

	for (i = journal_next(r, 0); i != UINT32_MAX; i = journal_next(r, i + 1)) {
		assert_true(journal_get(r, i, &b));
		assert_true(b.sequence < SEQUENCES);
		assert_false(found[b.sequence]);
		found[b.sequence] = true;
		check_batch(&b);
		now = &m->now[b.sequence];
		next = &m->next[b.sequence];
		assert_true(b.held == now->held || b.held == next->held);
		assert_true(b.given == now->given || b.given == next->given);
		assert_true(b.owner == now->owner || b.owner == next->owner);
	}
	for (i = 0; i < SEQUENCES; i++) {
		if (is_of_interest(&m->now[i]) && is_of_interest(&m->next[i]))
			assert_true(found[i]);
		if (!is_of_interest(&m->now[i]) && !is_of_interest(&m->next[i]))
			assert_false(found[i]);
	}
	if (journal_ledger_get(r, &ledger, sizeof(ledger)) == 0)
		ledger = 0;
	assert_true(ledger == m->ledger_now || ledger == m->ledger_next);
}

static void
test_kill(void **state)
{
	struct model *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const uint64_t start = seed;
	uint64_t steps, kill_at, sequence;
	uint32_t list[RECORDS], n, adopted = 0;
	struct journal_run run;
	struct journal *r;
	int status;
	pid_t pid;

	assert_true(m != MAP_FAILED);
	unlink(path);
	memset(m, 0, sizeof(*m));
	live(m, 250);
	steps = m->steps;
	assert_true(steps > 200);
	for (kill_at = 1; kill_at <= steps; kill_at++) {
		unlink(path);
		memset(m, 0, sizeof(*m));
		m->kill_at = kill_at;
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			seed = start;
			live(m, 250);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		/* before the header is valid there is nothing to adopt */
		r = open_ring(kill_at == 1 ? 0 : 1, NULL, NULL);
		look(m, r);
		/* the journal can be used again */
		n = list_held(r, list);
		adopted += n;
		if (!journal_run_get(r, 0, &run))
			assert_int_equal(add_run(r, 1), 0);
		while (n > 0)
			journal_release(r, list[--n]);
		for (sequence = 0; sequence < STORES; sequence++)
			journal_confirm(r, 0, sequence);
		assert_int_equal(journal_next(r, 0), UINT32_MAX);
		for (sequence = 0; put(r, 0, sequence) != UINT32_MAX; sequence++)
			;
		assert_true(sequence > 5);
		journal_close(r);
	}
	assert_true(adopted > steps);
	printf("killed at %llu stores, %u batches adopted\n", (unsigned long long)steps, adopted);
	munmap(m, sizeof(*m));
	unlink(path);
}

/* A partially written ledger is ignored: the previous copy is used. */
static void
test_killed_ledgers(void **state)
{
	struct model m = {0};
	char ledger[JOURNAL_LEDGER];
	struct journal *r;
	unsigned int i;
	pid_t pid;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	journal_ledger_put(r, "first", 5);
	journal_ledger_put(r, "second", 6);
	journal_close(r);
	for (i = 0; i < 6; i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			r = open_ring(1, count_step, &m);
			m.kill_at = m.steps + 1 + i % 2;
			journal_ledger_put(r, "another", 7);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		r = open_ring(1, NULL, NULL);
		assert_int_equal(journal_ledger_get(r, ledger, sizeof(ledger)), 6);
		assert_memory_equal(ledger, "second", 6);
		journal_close(r);
	}
	unlink(path);
}

/* Killed at any moment, a receiver has counted a batch if it is not held, and only then. */
static void
test_killed_spilling(void **state)
{
	const unsigned int laps = 3;
	struct journal_run run;
	struct journal_batch b;
	struct model *m;
	struct journal *r;
	unsigned int i, released;
	int status;
	pid_t pid;

	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(m != MAP_FAILED);
	for (m->kill_at = 1;; m->kill_at++) {
		unlink(path);
		r = open_ring(0, NULL, NULL);
		(void)add_run(r, 1);
		for (i = 0; i < laps; i++)
			(void)put(r, 0, i);
		journal_close(r);
		m->steps = 0;
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			r = open_ring(1, count_step, m);
			for (i = 0; i < laps; i++)
				journal_release_spilled(r, i);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		r = open_ring(1, NULL, NULL);
		for (i = released = 0; i < laps; i++)
			released += !journal_get(r, i, &b);
		assert_true(journal_run_get(r, 0, &run));
		assert_int_equal(run.spilled, released);
		journal_close(r);
		if (WIFEXITED(status))
			break;
	}
	assert_int_equal(run.spilled, laps);
	munmap(m, sizeof(*m));
	unlink(path);
}

/* The changes of stores, one after the other. @return false: there are no more */
static bool
change_stores(struct journal *r, unsigned int n)
{
	switch (n) {
	case 0:
		assert_int_equal(journal_store_add(r, "10.0.0.1:1", 0), 0);
		return true;
	case 1:
		assert_int_equal(journal_store_add(r, "10.0.0.2:1", 22), 1);
		return true;
	case 2:
		journal_store_identify(r, 0, 11);
		return true;
	case 3:
		journal_store_move(r, 0, "10.0.0.2:1");
		return true;
	case 4:
		journal_store_move(r, 1, "a-long-name.of-a-store.example.org:18516");
		return true;
	case 5:
		journal_store_move(r, 1, NULL);
		return true;
	case 6:
		journal_store_identify(r, 1, 23);
		return true;
	case 7:
		return journal_store_drop(r, 0) == 0;
	case 8:
		assert_int_equal(journal_store_add(r, "10.0.0.7:1", 77), 0);
		return true;
	default:
		return false;
	}
}

/* Killed at any moment, a store has its identity and address from before or after, or none. */
static void
test_killed_stores(void **state)
{
	static const uint64_t identity[2][11] = {{0, 0, 0, 11, 11, 11, 11, 11, 0, 77, 77},
		{0, 0, 22, 22, 22, 22, 22, 23, 23, 23, 23}};
	static const char *const address[2][11] = {
		{"", "10.0.0.1:1", "10.0.0.1:1", "10.0.0.1:1", "10.0.0.2:1", "10.0.0.2:1",
			"10.0.0.2:1", "10.0.0.2:1", "", "10.0.0.7:1", "10.0.0.7:1"},
		{"", "", "10.0.0.2:1", "10.0.0.2:1", "", "a-long-name.of-a-store.example.org:18516",
			"", "", "", "", ""}};
	struct model *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct journal_stats stats;
	struct journal_store s;
	struct journal *r;
	unsigned int i, n;
	int status;
	pid_t pid;

	assert_true(m != MAP_FAILED);
	for (m->kill_at = 3;; m->kill_at++) {
		unlink(path);
		m->steps = 0;
		m->sequence = 0;
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			r = open_ring(0, count_step, m);
			while (change_stores(r, m->sequence))
				m->sequence++;
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		n = m->sequence; /* number of completed changes */
		r = open_ring(1, NULL, NULL);
		journal_stats_get(r, &stats);
		assert_int_equal(stats.corrected, 0);
		for (i = 0; i < 2; i++) {
			if (!journal_store_get(r, i, &s)) {
				assert_true(identity[i][n] == 0 || identity[i][n + 1] == 0);
				continue;
			}
			assert_null(s.problem);
			/* an identity is only changed if no batch was sent to the store */
			assert_true(s.identity == 0 || s.identity == identity[i][n] ||
				s.identity == identity[i][n + 1]);
			if (n != 2 && n != 6 && n != 7 && identity[i][n] != 0)
				assert_int_equal(s.identity, identity[i][n]);
			if (s.here)
				assert_true(strcmp(s.address, address[i][n]) == 0 ||
					strcmp(s.address, address[i][n + 1]) == 0);
		}
		journal_close(r);
		if (WIFEXITED(status))
			break;
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	assert_int_equal(m->sequence, 9);
	assert_true(m->steps > 30);
	munmap(m, sizeof(*m));
	unlink(path);
}

static void
test_need(void **state)
{
	const struct journal_need need = {
		.rate = 2000000000,
		.commit_ms = 100,
		.round_ms = 1,
		.detection_ms = 1500,
		.hold_ms = 10000,
		.body_max = 16777216,
	};
	char text[256];

	assert_int_equal(journal_need(&need, text, sizeof(text)),
		2000000ull * 11601 + 2 * (16777216 + XFER_BLOCK));
	assert_string_equal(text,
		"22160 MiB: 2000 MB/s x (100 ms commit + 1 ms round trip + 1500 ms "
		"detection + 10000 ms hold) + 2 x 16 MiB");
}

#define SMALL_BYTES (4 << 20)

/* A full tmpfs on the folder, with a sparse journal. @return the step that failed; 0: none */
static int
adopt_sparse(const char *folder)
{
	char file[PATH_MAX / 2], filler[PATH_MAX / 2];
	const struct journal_config c = {
		.path = file, .receiver_id = RECEIVER_ID, .bytes = SMALL_BYTES};
	struct journal_probe p;
	struct journal *r;
	int fd;

	(void)snprintf(file, sizeof(file), "%s/journal", folder);
	(void)snprintf(filler, sizeof(filler), "%s/filler", folder);
	/* not in the mounts of other processes */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", folder, "tmpfs", 0, "size=64m,mode=0700") < 0)
		return errno == EPERM || errno == EACCES ? 77 : 1;
	if (journal_open(&r, &c, message) != 0)
		return 2;
	(void)put(r, add_run(r, 1), 1);
	/* as in a copy of the file without its zeros */
	if (fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		    (off_t)(r->header->data_at + SMALL_BYTES / 2), SMALL_BYTES / 2) < 0)
		return 3;
	journal_close(r);
	fd = open(filler, O_RDWR | O_CREAT, 0600);
	while (fd >= 0 && write(fd, schema, sizeof(schema)) > 0)
		;
	close(fd);
	if (journal_probe(&c, &p, message) != 0 || !p.adopts || p.file <= p.free)
		return 4;
	if (journal_open(&r, &c, message) != -ENOSPC || strstr(message, file) == NULL ||
		strstr(message, "Enlarge its file system") == NULL)
		return 5;
	if (journal_open_existing(&r, file, message) != -ENOSPC ||
		strstr(message, "copy the journal to a larger file system") == NULL)
		return 7;
	if (unlink(filler) < 0 || journal_open(&r, &c, message) != 1)
		return 6;
	memset(r->data + SMALL_BYTES / 2, 1, SMALL_BYTES / 2);
	journal_close(r);
	return 0;
}

/* A sparse file on a full file system is refused: later, a page fault would raise SIGBUS. */
static void
test_sparse(void **state)
{
	char copy[PATH_MAX], folder[PATH_MAX / 4];
	int status;
	pid_t pid;

	(void)snprintf(copy, sizeof(copy), "%s", path);
	(void)snprintf(
		folder, sizeof(folder), "%.900s/braggline-sparse-%d", dirname(copy), getpid());
	assert_int_equal(mkdir(folder, 0700), 0);
	pid = fork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWNS) < 0 ? 77 : adopt_sparse(folder));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(rmdir(folder), 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("skipped: a mount of a tmpfs needs CAP_SYS_ADMIN\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A probe reports the same result as opening, and changes nothing. */
static void
test_probe(void **state)
{
	struct journal_config c = {
		.path = path,
		.receiver_id = RECEIVER_ID,
		.bytes = RING_BYTES,
		.batches = RECORDS,
	};
	struct journal_probe p;
	struct journal *r;
	struct stat st;

	(void)state;
	assert_int_equal(journal_probe(&c, &p, message), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_false(p.adopts);
	assert_true(p.file > p.room && p.room >= RING_BYTES && p.free > 0);
	r = open_ring(0, NULL, NULL);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, p.file);
	/* another process has it open */
	assert_int_equal(journal_probe(&c, &p, message), -EBUSY);
	(void)put(r, add_run(r, 1), 1);
	journal_close(r);
	c.bytes *= 2;
	assert_int_equal(journal_probe(&c, &p, message), 0);
	assert_true(p.adopts);
	assert_int_equal(p.room, RING_BYTES);
	c.receiver_id++;
	assert_int_equal(journal_probe(&c, &p, message), -EINVAL);
	assert_non_null(strstr(message, "belongs to receiver"));
	write_at(0, "something", 9);
	assert_int_equal(journal_probe(&c, &p, message), -EINVAL);
	assert_non_null(strstr(message, "not overwritten"));
	unlink(path);
	c.bytes = 4096;
	assert_int_equal(journal_probe(&c, &p, message), -EINVAL);
	c.path = "/proc/self/braggline";
	assert_true(journal_probe(&c, &p, message) < 0);
	c.path = "/dev/shm/none/of/these";
	assert_int_equal(journal_probe(&c, &p, message), -ENOENT);
}

int
main(void)
{
	const char *text = getenv("XFER_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_oldest_stays),
		cmocka_unit_test(test_adopt),
		cmocka_unit_test(test_forget_doubts),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_not_ours),
		cmocka_unit_test(test_default_path),
		cmocka_unit_test(test_header_fields),
		cmocka_unit_test(test_run_fields),
		cmocka_unit_test(test_damaged_run),
		cmocka_unit_test(test_damaged_free_run),
		cmocka_unit_test(test_run_in_memory),
		cmocka_unit_test(test_damaged_spilling),
		cmocka_unit_test(test_killed_spilling),
		cmocka_unit_test(test_damaged_ledger),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_changed_record),
		cmocka_unit_test(test_changed_position),
		cmocka_unit_test(test_keep_copies),
		cmocka_unit_test(test_damaged_batch),
		cmocka_unit_test(test_damaged_record),
		cmocka_unit_test(test_damaged_status),
		cmocka_unit_test(test_damaged_owner),
		cmocka_unit_test(test_damaged_store),
		cmocka_unit_test(test_unfinished_store),
		cmocka_unit_test(test_damaged_incarnation),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_killed_ledgers),
		cmocka_unit_test(test_killed_stores),
		cmocka_unit_test(test_need),
	};

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	memset(schema, 's', sizeof(schema));
	snprintf(path, sizeof(path), "/dev/shm/braggline-journal-%d", getpid());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
