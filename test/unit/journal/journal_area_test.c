/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests bodies that are not contiguous in a journal: the slots of its area, batches that refer to
 * them, batches in pieces, adoption of such batches, kill -9 between any two stores to the file,
 * and damage. XFER_SEED repeats a run.
 */

#include <errno.h>
#include <fcntl.h>
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "journal/journal_private.h"

#define RECEIVER_ID 77
#define RING_BYTES  (40 * XFER_BLOCK)
#define RECORDS	    12
#define SLOTS	    10
#define SLOT_BYTES  (2 * XFER_BLOCK)
#define SEQUENCES   400
#define PIECES_MAX  300 /* of a batch */
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

static struct journal_config
config_of(uint64_t slot_bytes, uint32_t slots)
{
	return (struct journal_config){
		.path = path,
		.receiver_id = RECEIVER_ID,
		.bytes = RING_BYTES,
		.batches = RECORDS,
		.slot_bytes = slot_bytes,
		.slots = slots,
	};
}

static struct journal *
open_ring(int wanted, void (*on_step)(void *arg), void *arg)
{
	struct journal_config c = config_of(SLOT_BYTES, SLOTS);
	struct journal *r = NULL;

	c.step = on_step;
	c.step_arg = arg;
	assert_int_equal(journal_open(&r, &c, message), wanted);
	return r;
}

static unsigned int
add_run(struct journal *r)
{
	const struct journal_run run = {
		.run = 1,
		.incarnation = 5,
		.name = "run",
		.schema = {schema, schema},
		.schema_bytes = {XFER_BLOCK, XFER_BLOCK},
		.body_max = {XFER_BLOCK, 40 * XFER_BLOCK},
	};
	const int index = journal_run_add(r, &run);

	assert_true(index >= 0);
	return index;
}

/* ---- batches: all of their numbers and bytes follow from the sequence number ----------------- */

static uint32_t
references_of(uint64_t sequence)
{
	return sequence * 11 % 4; /* every fourth batch has none */
}

static uint64_t
bytes_of(uint64_t sequence, uint32_t i)
{
	return i == 0 && sequence % 5 == 0 ? SLOT_BYTES : 1 + (sequence * 977 + i * 4001) % 5000;
}

static uint64_t
offset_of(uint64_t sequence, uint32_t i)
{
	return (SLOT_BYTES - bytes_of(sequence, i)) / (1 + sequence % 3);
}

/* Size of what follows the parts in slots: it fills blocks, and may be nothing. */
static uint64_t
rest_of(uint64_t sequence)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < references_of(sequence); i++)
		bytes += bytes_of(sequence, i);
	return round_up(bytes, XFER_BLOCK) - bytes +
		(sequence % 3 + (references_of(sequence) == 0)) * XFER_BLOCK;
}

/*
 * Pieces that a batch without references has; of some, the body is in order instead. Some tables
 * fill a block, or are larger.
 */
static uint32_t
pieces_of(uint64_t sequence)
{
	static const uint32_t of[] = {0, 1, PIECES_MAX, 3, 0, 256, 257, 2};

	return references_of(sequence) == 0 ? of[sequence / 4 % NB_OF(of)] : 0;
}

/* A piece of the body: the last one is the first in the room. */
static struct journal_piece
piece_of(uint64_t sequence, uint32_t i)
{
	const uint64_t n = pieces_of(sequence), bytes = rest_of(sequence);
	const uint64_t from = bytes * i / n + i % 3,
		       to = i + 1 < n ? bytes * (i + 1) / n + (i + 1) % 3 : bytes;

	return (struct journal_piece){bytes - to, to - from};
}

static uint8_t
byte_of(uint64_t sequence, uint64_t at)
{
	return (sequence + 1) * 31 + at * 7 + (at >> 8);
}

static void
fill_bytes(uint8_t *to, uint64_t n, uint64_t sequence, uint64_t *at, uint32_t *crc)
{
	uint64_t k;

	for (k = 0; k < n; k++)
		to[k] = byte_of(sequence, (*at)++);
	*crc = arrow_crc32c(*crc, to, n);
}

/* Write a batch into slots and a room. @return false: there is no space */
static bool
fill(struct journal *r, struct journal_batch *b, uint64_t sequence, unsigned int run)
{
	const uint32_t n = references_of(sequence), nb_pieces = pieces_of(sequence);
	const bool has_table = n > 0 || nb_pieces > 0;
	struct journal_reference reference[JOURNAL_REFERENCES];
	struct journal_piece piece[PIECES_MAX];
	uint64_t slot_bytes, at = 0;
	uint32_t slots, i, k, crc = 0;
	uint8_t *area = journal_area(r, &slot_bytes, &slots), *to;

	*b = (struct journal_batch){
		.sequence = sequence,
		.rows = 10,
		.first = sequence * 10,
		.last = sequence * 10 + 9,
		.received = 1000 + sequence,
		.rest_bytes = rest_of(sequence),
		.run = run,
		.table = sequence % XFER_TABLES,
	};
	for (i = 0; i < n; i++) {
		reference[i] = (struct journal_reference){.slot = journal_slot_take(r),
			.offset = offset_of(sequence, i),
			.bytes = bytes_of(sequence, i)};
		if (reference[i].slot == JOURNAL_NO_SLOT)
			break;
	}
	to = i == n ? journal_reserve(
			      r, has_table * XFER_BLOCK + b->rest_bytes + table_after(nb_pieces))
		    : NULL;
	if (to == NULL) {
		while (i-- > 0)
			journal_slot_return(r, reference[i].slot);
		return false;
	}
	memset(to, (int)sequence, XFER_BLOCK);
	for (i = 0; i < n; i++) {
		for (k = 0; k < i; k++)
			assert_int_not_equal(reference[i].slot, reference[k].slot);
		assert_true(reference[i].slot < slots);
		fill_bytes(area + reference[i].slot * slot_bytes + reference[i].offset,
			reference[i].bytes, sequence, &at, &crc);
	}
	to += (1 + has_table) * XFER_BLOCK;
	for (i = 0; i < nb_pieces; i++) {
		piece[i] = piece_of(sequence, i);
		fill_bytes(to + piece[i].at, piece[i].bytes, sequence, &at, &crc);
	}
	fill_bytes(to, nb_pieces > 0 ? 0 : b->rest_bytes, sequence, &at, &crc);
	b->body_bytes = at;
	b->body_crc32c = crc;
	if (n > 0)
		journal_refer(r, b, reference, n);
	else if (nb_pieces > 0)
		journal_scatter(r, b, piece, nb_pieces);
	else
		journal_fill(r, b);
	return true;
}

static uint32_t
put(struct journal *r, unsigned int run, uint64_t sequence)
{
	struct journal_batch b;

	return fill(r, &b, sequence, run) ? journal_commit(r, &b) : UINT32_MAX;
}

/* The batch is as it was written. */
static void
check_batch(const struct journal *r, const struct journal_batch *b)
{
	struct iovec part[JOURNAL_PARTS];
	uint64_t at = 0, k;
	uint32_t n, i;

	assert_int_equal(b->first, b->sequence * 10);
	assert_int_equal(b->received, 1000 + b->sequence);
	assert_int_equal(b->nb_references, references_of(b->sequence));
	if (!b->held) {
		assert_null(b->metadata);
		assert_int_equal(b->nb_parts, 0);
		return;
	}
	assert_int_equal(b->rest_bytes, rest_of(b->sequence));
	assert_int_equal(b->metadata[17], b->sequence & 0xff);
	n = journal_parts(b, part);
	assert_int_equal(b->nb_pieces, pieces_of(b->sequence));
	if (b->nb_pieces > 0)
		assert_int_equal(n, b->nb_pieces);
	else
		assert_int_equal(
			n, b->nb_references + (b->rest_bytes > 0 || b->nb_references == 0));
	for (i = 0; i < n; i++) {
		const uint8_t *bytes = part[i].iov_base;

		if (i < b->nb_references) {
			assert_int_equal(part[i].iov_len, bytes_of(b->sequence, i));
			assert_true(bytes >= r->area &&
				bytes + part[i].iov_len <= r->area + r->nb_slots * r->slot_bytes);
		}
		for (k = 0; k < part[i].iov_len; k++)
			assert_int_equal(bytes[k], byte_of(b->sequence, at++));
	}
	assert_int_equal(at, b->body_bytes);
	assert_int_equal(at % XFER_BLOCK, 0);
	assert_int_equal(journal_body_crc32c(b), b->body_crc32c);
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

/* All held batches are as they were written. @return number of slots that they refer to */
static uint32_t
check_held(struct journal *r)
{
	struct journal_batch b;
	struct journal_stats stats;
	uint32_t list[RECORDS], n = list_held(r, list), i, slots = 0;

	for (i = 0; i < n; i++) {
		assert_true(journal_get(r, list[i], &b));
		check_batch(r, &b);
		assert_true(journal_check(r, list[i]) && journal_is_sound(r, list[i]));
		slots += b.nb_references;
	}
	journal_stats_get(r, &stats);
	assert_int_equal(stats.slots_held, slots);
	return slots;
}

/* Take all free slots and give them back. @return how many */
static uint32_t
count_free(struct journal *r)
{
	bool seen[SLOTS] = {false};
	uint32_t slot[SLOTS + 1], n = 0, i;

	while ((slot[n] = journal_slot_take(r)) != JOURNAL_NO_SLOT) {
		assert_true(slot[n] < SLOTS && !seen[slot[n]]);
		seen[slot[n++]] = true;
	}
	for (i = 0; i < n; i++)
		journal_slot_return(r, slot[i]);
	return n;
}

static void
test_round(void **state)
{
	struct journal_stats stats;
	struct journal *r;
	uint32_t list[RECORDS], n, batch;
	uint64_t sequence = 0, slot_bytes;
	unsigned int run;
	int turn;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	assert_non_null(strstr(message, "10 output slots of 8192 bytes"));
	assert_ptr_equal(journal_area(r, &slot_bytes, &n), r->data + r->data_size);
	assert_int_equal(slot_bytes, SLOT_BYTES);
	assert_int_equal(n, SLOTS);
	run = add_run(r);
	for (turn = 0; turn < 3000; turn++) {
		n = list_held(r, list);
		if (random_number() % 64 == 0) {
			assert_int_equal(check_held(r) + count_free(r), SLOTS);
			journal_close(r);
			r = open_ring(1, NULL, NULL);
			assert_int_equal(check_held(r) + count_free(r), SLOTS);
		} else if (random_number() % 2 && n > 0) {
			/* release in any order */
			batch = list[random_number() % n];
			journal_release(r, batch);
			journal_release(r, batch); /* releasing twice has no effect */
		} else if (put(r, run, sequence) != UINT32_MAX) {
			sequence++;
		} else {
			assert_true(n > 0);
		}
	}
	journal_stats_get(r, &stats);
	assert_int_equal(stats.slots, SLOTS);
	assert_int_equal(stats.corrected, 0);
	n = list_held(r, list);
	while (n > 0)
		journal_release(r, list[--n]);
	assert_int_equal(check_held(r), 0);
	assert_int_equal(count_free(r), SLOTS);
	journal_close(r);
	unlink(path);
}

/* ---- two threads ----------------------------------------------------------------------------- */

/* Batches that the producer has filled, and the owner has not committed. */
#define HAND_OVER 4
#define BATCHES	  10000

static struct {
	struct journal *journal;
	struct journal_batch batch[HAND_OVER];
	uint64_t filled;    /* atomic; the producer */
	uint64_t committed; /* atomic; the owner */
	unsigned int run;
} hand;

static void *
produce(void *arg)
{
	struct journal_batch b;
	uint64_t sequence;

	for (sequence = 0; sequence < BATCHES; sequence++) {
		while (!fill(hand.journal, &b, sequence, hand.run))
			sched_yield();
		while (sequence - __atomic_load_n(&hand.committed, __ATOMIC_ACQUIRE) >= HAND_OVER)
			sched_yield();
		hand.batch[sequence % HAND_OVER] = b;
		__atomic_store_n(&hand.filled, sequence + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* The producer writes to no slot that a held batch refers to. */
static void
test_two_threads(void **state)
{
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t list[RECORDS], n;
	uint64_t done = 0;
	pthread_t producer;
	struct journal *r;

	unlink(path);
	memset(&hand, 0, sizeof(hand));
	hand.journal = r = open_ring(0, NULL, NULL);
	hand.run = add_run(r);
	assert_int_equal(pthread_create(&producer, NULL, produce, NULL), 0);
	while (done < BATCHES) {
		for (; done < __atomic_load_n(&hand.filled, __ATOMIC_ACQUIRE); done++) {
			b = hand.batch[done % HAND_OVER];
			(void)journal_commit(r, &b);
			__atomic_store_n(&hand.committed, done + 1, __ATOMIC_RELEASE);
		}
		n = list_held(r, list);
		if (n == 0) {
			sched_yield();
			continue;
		}
		n = list[random_number() % n];
		assert_true(journal_get(r, n, &b));
		assert_int_equal(b.nb_references, references_of(b.sequence));
		assert_int_equal(journal_body_crc32c(&b), b.body_crc32c);
		journal_release(r, n);
	}
	pthread_join(producer, NULL);
	journal_stats_get(r, &stats);
	assert_int_equal(stats.put, BATCHES);
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
	journal_close(r);
	unlink(path);
}

/* ---- kill ------------------------------------------------------------------------------------ */

/* The state of the batches before and after the current operation. Shared with the child. */
struct model {
	bool now[SEQUENCES]; /* held */
	bool next[SEQUENCES];
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

/* One operation of a receiver. */
static void
act(struct journal *r, struct model *m, unsigned int run)
{
	uint32_t list[RECORDS], n = list_held(r, list);
	const unsigned int what = random_number() % 8;
	struct journal_batch b;

	memcpy(m->next, m->now, sizeof(m->now));
	if (what < 4 || n == 0) {
		m->next[m->sequence] = true;
		if (put(r, run, m->sequence) == UINT32_MAX)
			m->next[m->sequence] = false;
		m->sequence++;
	} else {
		n = list[random_number() % n];
		assert_true(journal_get(r, n, &b));
		m->next[b.sequence] = false;
		if (what == 4) {
			journal_assign(r, n, JOURNAL_SPILL);
			journal_release_spilled(r, n);
		} else if (what == 5) {
			/* in doubt until the other store has confirmed */
			journal_assign(r, n, 0);
			journal_give(r, n);
			journal_assign(r, n, 1);
			journal_release(r, n);
			journal_confirm(r, run, 0);
		} else {
			journal_release(r, n);
		}
	}
	memcpy(m->now, m->next, sizeof(m->now));
}

static void
live(struct model *m)
{
	struct journal *r = open_ring(0, count_step, m);
	const unsigned int run = add_run(r);
	unsigned int i;

	assert_int_equal(journal_store_add(r, "10.0.0.1:1", 1), 0);
	assert_int_equal(journal_store_add(r, "10.0.0.2:1", 2), 1);
	for (i = 0; i < 60; i++)
		act(r, m, run);
	journal_close(r);
}

/* Each batch is there or is not, as before or after the operation that was interrupted. */
static void
look(const struct model *m, struct journal *r)
{
	bool found[SEQUENCES] = {false};
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t i;

	for (i = journal_next(r, 0); i != UINT32_MAX; i = journal_next(r, i + 1)) {
		assert_true(journal_get(r, i, &b));
		assert_true(b.sequence < SEQUENCES && !found[b.sequence]);
		found[b.sequence] = b.held;
		check_batch(r, &b);
	}
	for (i = 0; i < SEQUENCES; i++)
		assert_true(found[i] == m->now[i] || found[i] == m->next[i]);
	journal_stats_get(r, &stats);
	assert_int_equal(stats.damaged, 0);
	assert_int_equal(stats.corrected, 0);
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
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
	live(m);
	steps = m->steps;
	assert_true(steps > 100);
	for (kill_at = 1; kill_at <= steps; kill_at++) {
		unlink(path);
		memset(m, 0, sizeof(*m));
		m->kill_at = kill_at;
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			seed = start;
			live(m);
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
			assert_int_equal(add_run(r), 0);
		while (n > 0)
			journal_release(r, list[--n]);
		assert_int_equal(count_free(r), SLOTS);
		for (sequence = 0; put(r, 0, sequence) != UINT32_MAX; sequence++)
			;
		assert_true(sequence > 4);
		(void)check_held(r);
		journal_close(r);
	}
	assert_true(adopted > 50);
	printf("killed at %llu stores, %u batches adopted\n", (unsigned long long)steps, adopted);
	munmap(m, sizeof(*m));
	unlink(path);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void
write_at(off_t at, const void *bytes, size_t size)
{
	const int fd = open(path, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, size, at), size);
	close(fd);
}

static void
read_at(off_t at, void *bytes, size_t size)
{
	const int fd = open(path, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, bytes, size, at), size);
	close(fd);
}

static void
flip(uint64_t at, uint8_t bits)
{
	uint8_t byte;

	read_at(at, &byte, 1);
	byte ^= bits;
	write_at(at, &byte, 1);
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

/* A journal of three batches in records 0 to 2, for damage of the second. */
struct three {
	struct ring_header header;
	struct ring_batch record;
	union { /* as in the file */
		struct journal_reference table[JOURNAL_REFERENCES];
		struct journal_piece piece[JOURNAL_PARTS];
	};
	uint64_t record_at;
	uint64_t table_at;
	uint64_t body_at; /* of pieces */
	uint64_t area_at;
	uint32_t sum;
};
#define SECOND 5  /* its sequence number: three references, then a rest */
#define PIECES 12 /* another one: three pieces */
#define MANY   8  /* PIECES_MAX pieces: their table is after the body */

/* @param second  sequence number of the second batch; the others have references */
static struct three
make_three(uint64_t second)
{
	const uint64_t sequences[] = {1, second, 2};
	struct journal *r;
	struct three f;
	unsigned int i, run;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	run = add_run(r);
	for (i = 0; i < 3; i++)
		assert_int_equal(put(r, run, sequences[i]), i);
	journal_close(r);
	read_at(0, &f.header, sizeof(f.header));
	f.record_at = f.header.batches_at + sizeof(f.record);
	read_at(f.record_at, &f.record, sizeof(f.record));
	assert_int_equal(f.record.nb_references, second == SECOND ? 3 : 0);
	assert_int_equal(f.record.nb_pieces, second == SECOND ? 0 : pieces_of(second));
	assert_true(f.record.rest_bytes > 0 || second != SECOND);
	f.table_at = f.header.data_at + f.record.position + XFER_BLOCK;
	f.body_at = f.table_at + XFER_BLOCK;
	if (second == MANY)
		f.table_at = f.body_at + f.record.body_bytes;
	read_at(f.table_at, f.table,
		second == SECOND ? sizeof(f.table) : pieces_of(second) * sizeof(f.piece[0]));
	f.area_at = f.header.data_at + f.header.data_size;
	f.sum = checksum();
	return f;
}

/* Write the second batch's record and table with right checksums. */
static void
write_second(struct three *f)
{
	const size_t size = f->record.nb_references % 128 * sizeof(f->table[0]) +
		f->record.nb_pieces % JOURNAL_PARTS * sizeof(f->piece[0]);

	f->record.table_crc = arrow_crc32c(0, f->table, size);
	f->record.crc = batch_crc(&f->record);
	write_at(f->table_at, f->table, size);
	write_at(f->record_at, &f->record, sizeof(f->record));
}

/* One bit was wrong: opening corrects it, and repairs the file. */
static void
expect_corrected(const struct three *f)
{
	struct journal_stats stats;
	struct journal *r;
	const uint32_t before = checksum();

	assert_int_equal(journal_open_existing(&r, path, message), 0);
	journal_stats_get(r, &stats);
	assert_int_equal(stats.corrected, 1);
	assert_int_equal(stats.damaged, 0);
	assert_int_equal(stats.batches, 3);
	journal_close(r);
	assert_int_equal(checksum(), before);
	r = open_ring(1, NULL, NULL);
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
	journal_close(r);
	assert_int_equal(checksum(), f->sum);
}

/* Whether a part of the space outside of sound batches has these bytes. */
static bool
is_in_space(const struct journal *r, const struct iovec *bytes)
{
	const uint8_t *part;
	uint64_t size;
	uint32_t at = 0;

	while ((part = journal_damage_space(r, &at, &size)) != NULL) {
		assert_true(size > 0 && size % XFER_BLOCK == 0);
		assert_true(part >= r->data && part + size <= r->map + r->size);
		if ((uint8_t *)bytes->iov_base >= part &&
			(uint8_t *)bytes->iov_base + bytes->iov_len <= part + size)
			return true;
	}
	return false;
}

/*
 * The second batch is damaged: the others are sound, and no slot is granted before it was dropped.
 * @param placed  its bytes are known
 */
static void
expect_damaged(const char *text, bool placed)
{
	const uint32_t before = checksum();
	struct iovec part[JOURNAL_PARTS];
	struct journal_damage d;
	struct journal_stats stats;
	struct journal_batch b;
	struct journal *r;
	uint32_t list[RECORDS], i, k, n;
	char line[256];

	for (i = 0; i < 2; i++) {
		if (i == 0)
			assert_int_equal(journal_open_existing(&r, path, message), 0);
		else
			r = open_ring(1, NULL, NULL);
		journal_stats_get(r, &stats);
		assert_int_equal(stats.damaged, 1);
		assert_int_equal(list_held(r, list), 2);
		assert_int_equal(journal_damage_next(r, 0), 1);
		assert_true(journal_damage_get(r, 1, &d));
		journal_damage_text(r, 1, line, sizeof(line));
		if (strstr(line, text) == NULL)
			fail_msg("%s, expected %s", line, text);
		assert_int_equal(d.batch.metadata != NULL, placed);
		n = journal_parts(&d.batch, part);
		if (d.known)
			assert_int_equal(n,
				!placed				? 0
					: d.batch.nb_pieces > 0 ? d.batch.nb_pieces
								: 4);
		else
			assert_int_equal(n, 0);
		for (k = 0; k < n; k++) {
			assert_true((uint8_t *)part[k].iov_base >= r->data &&
				(uint8_t *)part[k].iov_base + part[k].iov_len <= r->map + r->size);
			assert_true(is_in_space(r, &part[k]));
		}
		for (k = 0; k < 2; k++) {
			assert_true(journal_get(r, list[k], &b));
			check_batch(r, &b);
			for (n = journal_parts(&b, part); n-- > 0;)
				assert_false(is_in_space(r, &part[n]));
		}
		assert_int_equal(count_free(r), 0);
		if (i == 0)
			journal_close(r);
		assert_int_equal(checksum(), before);
	}
	journal_release(r, 0);
	assert_int_equal(count_free(r), 0);
	journal_damage_drop(r, 1);
	journal_damage_drop(r, 1);
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
	assert_int_equal(put(r, 0, 50), 1);
	journal_release(r, 2);
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
	journal_close(r);
	r = open_ring(1, NULL, NULL);
	assert_non_null(strstr(message, "1 batches"));
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
	journal_close(r);
}

/* Wrong bits in the table, in the numbers of the record, and in the slots. */
static void
test_bits(void **state)
{
	struct three f;
	size_t i;

	f = make_three(SECOND);
	for (i = 0; i < 3 * sizeof(f.table[0]); i++) {
		flip(f.table_at + i, 1u << i % 8);
		expect_corrected(&f);
	}
	for (i = offsetof(struct ring_batch, nb_references);
		i < offsetof(struct ring_batch, reserved2); i++) {
		flip(f.record_at + i, 1u << i % 8);
		expect_corrected(&f);
	}
	for (i = 0; i < 3 * sizeof(f.table[0]); i += 5) {
		f = make_three(SECOND);
		flip(f.table_at + i, 5);
		expect_damaged("its table of references is damaged; run run", false);
	}
	for (i = offsetof(struct ring_batch, nb_references);
		i < offsetof(struct ring_batch, reserved2); i += 3) {
		f = make_three(SECOND);
		flip(f.record_at + i, 5);
		expect_damaged("its record is damaged; its frames are unknown", false);
	}
	for (i = 0; i < 3; i++) {
		f = make_three(SECOND);
		flip(f.area_at + f.table[i].slot * SLOT_BYTES + f.table[i].offset, 1);
		expect_damaged("its body is damaged; run run", true);
		f = make_three(SECOND);
		flip(f.area_at + f.table[i].slot * SLOT_BYTES + f.table[i].offset +
				f.table[i].bytes - 1,
			1);
		expect_damaged("its body is damaged; run run", true);
	}
	f = make_three(SECOND);
	flip(f.table_at + XFER_BLOCK + f.record.rest_bytes - 1, 1);
	expect_damaged("its body is damaged; run run", true);
	f = make_three(SECOND);
	flip(f.table_at - 1, 1);
	expect_damaged("its metadata is damaged; run run", true);
	/* the status of its record: its slots are still known */
	f = make_three(SECOND);
	flip(f.record_at, 3);
	flip(f.record_at + 5, 3);
	expect_damaged("its record is damaged; run run", true);
	/* what follows the table is not used */
	f = make_three(SECOND);
	flip(f.table_at + 3 * sizeof(f.table[0]), 1);
	journal_close(open_ring(1, NULL, NULL));
	assert_non_null(strstr(message, "0 damaged, 0 corrected"));
	unlink(path);
}

/* Numbers out of range are refused, even with right checksums. */
static void
test_forged(void **state)
{
	struct three f;
	uint64_t size;
	unsigned int i;

	for (i = 0; i < 14; i++) {
		f = make_three(SECOND);
		size = f.table[1].bytes;
		switch (i) {
		case 0:
			f.table[1].slot = SLOTS;
			break;
		case 1:
			f.table[2].slot = UINT32_MAX;
			break;
		case 2:
			f.table[1].slot = f.table[0].slot;
			break;
		case 3:
			f.table[1].offset = SLOT_BYTES - size + 1;
			break;
		case 4:
			f.table[1].offset = UINT64_MAX - size + 1;
			break;
		case 5:
			f.table[1].offset = UINT64_MAX;
			break;
		case 6:
			f.table[1].bytes = UINT64_MAX;
			break;
		case 7:
			f.table[0].bytes += size;
			f.table[1].bytes = 0;
			break;
		case 8:
			f.table[1].bytes--;
			break;
		case 9:
			f.table[1].bytes++;
			break;
		case 10:
			f.table[1].reserved = 1;
			break;
		case 11:
			f.record.nb_references = 2;
			break;
		case 12:
			f.record.nb_references = 4;
			break;
		default:
			f.record.rest_bytes += XFER_BLOCK;
			break;
		}
		write_second(&f);
		expect_damaged("its table of references is damaged; run run", false);
	}
	for (i = 0; i < 6; i++) {
		f = make_three(SECOND);
		switch (i) {
		case 0:
			f.record.nb_references = 0;
			break;
		case 1:
			f.record.nb_references = SLOTS + 1;
			break;
		case 2:
			f.record.nb_references = UINT32_MAX;
			break;
		case 3:
			f.record.rest_bytes = f.record.body_bytes + 1;
			break;
		case 4:
			f.record.rest_bytes = UINT64_MAX;
			break;
		default:
			f.record.rest_bytes = f.record.body_bytes = RING_BYTES;
			break;
		}
		write_second(&f);
		expect_damaged("its record is damaged; its frames are unknown", false);
	}
	unlink(path);
}

/* Damage of a batch in pieces. Its table is as the metadata: no wrong bit of it is corrected. */
static void
damage_pieces(uint64_t second)
{
	const size_t n = pieces_of(second);
	struct three f;
	size_t i;

	for (i = 0; i < n * sizeof(f.piece[0]); i += n) {
		f = make_three(second);
		flip(f.table_at + i, 1u << i % 8);
		expect_damaged("its table of pieces is damaged; run run", false);
	}
	for (i = 0; i < n; i += n / 3) {
		f = make_three(second);
		flip(f.body_at + f.piece[i].at, 1);
		expect_damaged("its body is damaged; run run", true);
		f = make_three(second);
		flip(f.body_at + f.piece[i].at + f.piece[i].bytes - 1, 1);
		expect_damaged("its body is damaged; run run", true);
	}
	f = make_three(second);
	flip(f.body_at - XFER_BLOCK - 1, 1);
	expect_damaged("its metadata is damaged; run run", true);
	/* the status of its record: the pieces are still known, unless the table is damaged, too */
	f = make_three(second);
	flip(f.record_at, 3);
	flip(f.record_at + 5, 3);
	expect_damaged("its record is damaged; run run", true);
	f = make_three(second);
	flip(f.record_at, 3);
	flip(f.record_at + 5, 3);
	flip(f.table_at, 1);
	expect_damaged("its record is damaged; run run", false);
	/* what follows the table is not used, nor the block of a table that is after the body */
	f = make_three(second);
	flip(f.table_at + n * sizeof(f.piece[0]), 1);
	flip(f.body_at - 1, 1);
	journal_close(open_ring(1, NULL, NULL));
	assert_non_null(strstr(message, "0 damaged, 0 corrected"));
	unlink(path);
}

static void
test_pieces(void **state)
{
	damage_pieces(PIECES);
	damage_pieces(MANY);
}

/* Pieces out of range are refused, even with right checksums. */
static void
test_forged_pieces(void **state)
{
	struct three f;
	uint64_t size;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		f = make_three(PIECES);
		size = f.piece[1].bytes;
		switch (i) {
		case 0:
			f.piece[1].at = f.record.body_bytes - size + 1;
			break;
		case 1:
			f.piece[1].at = UINT64_MAX - size + 1;
			break;
		case 2:
			f.piece[1].at = UINT64_MAX;
			break;
		case 3:
			f.piece[1].bytes = UINT64_MAX;
			break;
		case 4:
			f.piece[1].bytes++;
			break;
		case 5:
			f.piece[1].bytes--;
			break;
		case 6:
			f.record.nb_pieces = 2;
			break;
		default:
			f.piece[3] = (struct journal_piece){0, 1};
			f.record.nb_pieces = 4;
			break;
		}
		write_second(&f);
		expect_damaged("its table of pieces is damaged; run run", false);
	}
	for (i = 0; i < 4; i++) {
		f = make_three(PIECES);
		switch (i) {
		case 0:
			f.record.nb_pieces = JOURNAL_PARTS + 1;
			break;
		case 1:
			f.record.nb_pieces = UINT32_MAX;
			break;
		case 2:
			f.record.nb_references = 1;
			break;
		default:
			/* the room crosses the end of the space */
			f.record.body_bytes = RING_BYTES - XFER_BLOCK;
			break;
		}
		write_second(&f);
		expect_damaged("its record is damaged; its frames are unknown", false);
	}
	/* a piece twice, and another one never: the sum of the body is wrong */
	f = make_three(PIECES);
	f.piece[0].at = f.piece[1].at;
	write_second(&f);
	expect_damaged("its body is damaged; run run", true);
	unlink(path);
}

/*
 * The table of pieces changes while the journal is open: no part is outside the room or longer than
 * the body, and the batch is damaged when it is checked.
 */
static void
test_changed_pieces(void **state)
{
	struct three f = make_three(PIECES);
	struct iovec part[JOURNAL_PARTS];
	struct journal_damage d;
	struct journal_batch b;
	struct journal *r = open_ring(1, NULL, NULL);
	uint8_t *table = r->data + f.record.position + XFER_BLOCK;
	uint64_t bytes;
	unsigned int i, k, n;

	for (i = 0; i < 8 * 3 * sizeof(f.piece[0]); i++) {
		table[i / 8] ^= 1u << i % 8;
		table[random_number() % (3 * sizeof(f.piece[0]))] ^= random_number();
		assert_true(journal_get(r, 1, &b));
		n = journal_parts(&b, part);
		assert_int_equal(n, 3);
		for (k = 0, bytes = 0; k < n; bytes += part[k++].iov_len)
			assert_true((uint8_t *)part[k].iov_base >= b.body &&
				(uint8_t *)part[k].iov_base + part[k].iov_len <=
					b.body + b.body_bytes);
		assert_true(bytes <= b.body_bytes);
		memcpy(table, f.piece, 3 * sizeof(f.piece[0]));
		assert_true(journal_check(r, 1));
	}
	table[0] ^= 1;
	assert_false(journal_is_sound(r, 1));
	assert_false(journal_check(r, 1));
	assert_false(journal_get(r, 1, &b));
	assert_true(journal_damage_get(r, 1, &d));
	assert_string_equal(d.what, "table of pieces");
	assert_null(d.batch.metadata);
	journal_damage_drop(r, 1);
	journal_release(r, 0);
	journal_release(r, 2);
	assert_int_equal(count_free(r), SLOTS);
	journal_close(r);
	unlink(path);
}

/* Sum of the second batch's body, as it is in the file. */
static uint32_t
sum_second(const struct three *f)
{
	uint8_t bytes[SLOT_BYTES + XFER_BLOCK];
	uint32_t i, crc = 0;

	for (i = 0; i < 3; i++) {
		read_at(f->area_at + f->table[i].slot * SLOT_BYTES + f->table[i].offset, bytes,
			f->table[i].bytes);
		crc = arrow_crc32c(crc, bytes, f->table[i].bytes);
	}
	assert_true(f->record.rest_bytes <= sizeof(bytes));
	read_at(f->table_at + XFER_BLOCK, bytes, f->record.rest_bytes);
	return arrow_crc32c(crc, bytes, f->record.rest_bytes);
}

/*
 * The second batch refers to a slot of the first one: one of them is damaged, whether the bytes
 * there match its checksum or not. The slot becomes free once.
 */
static void
test_same_slot(void **state)
{
	struct journal_reference other;
	struct journal_damage d;
	struct ring_batch first;
	struct three f;
	struct journal *r;
	uint32_t list[RECORDS], i;

	for (i = 0; i < 2; i++) {
		f = make_three(SECOND);
		read_at(f.header.batches_at, &first, sizeof(first));
		read_at(f.header.data_at + first.position + XFER_BLOCK, &other, sizeof(other));
		f.table[1].slot = other.slot;
		if (i == 1)
			f.record.body_crc32c = sum_second(&f);
		write_second(&f);
		r = open_ring(1, NULL, NULL);
		assert_int_equal(list_held(r, list), 2);
		assert_true(journal_damage_get(r, journal_damage_next(r, 0), &d));
		assert_string_equal(d.what, i == 0 ? "body" : "table of references");
		assert_null(d.batch.metadata);
		assert_int_equal(count_free(r), 0);
		journal_damage_drop(r, journal_damage_next(r, 0));
		journal_release(r, list[0]);
		journal_release(r, list[1]);
		assert_int_equal(check_held(r), 0);
		assert_int_equal(count_free(r), SLOTS);
		journal_close(r);
	}
	unlink(path);
}

/* Two damaged batches that refer to the same slot: one of them has it, and it becomes free once. */
static void
test_same_slot_damaged(void **state)
{
	struct journal_damage d[2];
	struct ring_batch record;
	struct three f = make_three(SECOND);
	struct journal *r;
	uint64_t sequence = 0;
	unsigned int i;

	/* the third record is the second, with another room and the same table */
	read_at(f.header.batches_at + 2 * sizeof(record), &record, sizeof(record));
	record.nb_references = f.record.nb_references;
	record.rest_bytes = 0;
	record.body_bytes = f.record.body_bytes - f.record.rest_bytes;
	record.table_crc = f.record.table_crc;
	while (record.body_bytes % XFER_BLOCK != 0) {
		record.rest_bytes++;
		record.body_bytes++;
	}
	record.crc = batch_crc(&record);
	write_at(f.header.batches_at + 2 * sizeof(record), &record, sizeof(record));
	write_at(f.header.data_at + record.position + XFER_BLOCK, f.table, 3 * sizeof(f.table[0]));
	flip(f.area_at + f.table[0].slot * SLOT_BYTES + f.table[0].offset, 1);
	r = open_ring(1, NULL, NULL);
	for (i = 0; i < 2; i++)
		assert_true(journal_damage_get(r, 1 + i, &d[i]));
	assert_true((d[0].batch.metadata == NULL) != (d[1].batch.metadata == NULL));
	assert_int_equal(count_free(r), 0);
	journal_damage_drop(r, 2);
	assert_int_equal(count_free(r), 0);
	journal_damage_drop(r, 1);
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
	while (put(r, 0, 50 + sequence) != UINT32_MAX)
		sequence++;
	assert_true(sequence > 1);
	(void)check_held(r);
	journal_close(r);
	unlink(path);
}

/*
 * The table changes while the journal is open: this process does not use it, and writes it again
 * when it checks the batch.
 */
static void
test_changed_table(void **state)
{
	struct journal_stats stats;
	struct journal_batch b;
	struct three f = make_three(SECOND);
	struct journal *r = open_ring(1, NULL, NULL);
	uint8_t *table = r->data + f.record.position + XFER_BLOCK;
	unsigned int i;

	for (i = 0; i < 3 * sizeof(f.table[0]); i++) {
		table[i] ^= 0xff;
		assert_true(journal_get(r, 1, &b));
		check_batch(r, &b);
		assert_true(journal_check(r, 1));
		assert_memory_equal(table, f.table, 3 * sizeof(f.table[0]));
		journal_stats_get(r, &stats);
		assert_int_equal(stats.corrected, i + 1);
	}
	/* all numbers of its slots are wrong when it is released */
	memset(table, 0xff, 3 * sizeof(f.table[0]));
	journal_release(r, 1);
	assert_int_equal(check_held(r) + count_free(r), SLOTS);
	/* damaged metadata: the batch keeps its slots until it is dropped */
	assert_true(journal_get(r, 2, &b));
	b.metadata[0] ^= 1;
	assert_false(journal_check(r, 2));
	i = count_free(r);
	assert_true(i > 0);
	journal_release(r, 0);
	assert_int_equal(count_free(r), i);
	journal_damage_drop(r, 2);
	assert_int_equal(count_free(r), SLOTS);
	journal_close(r);
	unlink(path);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void
expect_config(int wanted, uint64_t slot_bytes, uint32_t slots)
{
	const struct journal_config c = config_of(slot_bytes, slots);
	struct journal_probe p;
	struct journal *r = NULL;
	struct stat st;
	const int probed = journal_probe(&c, &p, message);

	assert_int_equal(journal_open(&r, &c, message), wanted);
	assert_int_equal(probed, wanted < 0 ? wanted : 0);
	if (wanted < 0)
		return;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(p.file, st.st_size);
	assert_int_equal(p.room, RING_BYTES);
	assert_int_equal(p.adopts, wanted);
	journal_close(r);
}

/* A probe counts the slots of held batches. */
static void
test_probe(void **state)
{
	const struct journal_config c = config_of(SLOT_BYTES, SLOTS);
	uint32_t sequence, held = 0, expected;
	struct journal_stats stats;
	struct journal_probe p;
	struct journal *r;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	(void)add_run(r);
	for (sequence = 0; sequence < 6; sequence++)
		assert_int_not_equal(put(r, 0, sequence), UINT32_MAX);
	journal_release(r, 1);
	journal_stats_get(r, &stats);
	expected = stats.slots_held;
	for (sequence = 0; sequence < 6; sequence++)
		held += sequence != 1 ? references_of(sequence) : 0;
	assert_int_equal(held, expected);
	journal_close(r);
	assert_int_equal(journal_probe(&c, &p, message), 0);
	assert_int_equal(p.slots, SLOTS);
	assert_int_equal(p.slots_held, expected);
	unlink(path);
	assert_int_equal(journal_probe(&c, &p, message), 0);
	assert_int_equal(p.slots_held, 0);
}

/* A file keeps its area, or has none. */
static void
test_versions(void **state)
{
	struct ring_header h;
	struct journal_stats stats;
	struct journal *r;
	uint64_t slot_bytes;
	uint32_t slots;

	unlink(path);
	expect_config(0, 0, 0);
	assert_null(strstr(message, "slots"));
	read_at(0, &h, sizeof(h));
	assert_int_equal(h.version, RING_VERSION);
	assert_int_equal(h.size, h.data_at + h.data_size);
	expect_config(1, 0, 0);
	assert_null(strstr(message, "slots"));
	expect_config(1, SLOT_BYTES, SLOTS);
	assert_non_null(strstr(
		message, "it has no output slots, configured 10 output slots of 8192 bytes"));
	r = open_ring(1, NULL, NULL);
	assert_null(journal_area(r, &slot_bytes, &slots));
	assert_int_equal(slots, 0);
	assert_int_equal(journal_slot_take(r), JOURNAL_NO_SLOT);
	(void)add_run(r);
	assert_int_equal(put(r, 0, 0), 0);
	journal_stats_get(r, &stats);
	assert_int_equal(stats.slots, 0);
	journal_close(r);
	r = open_ring(1, NULL, NULL);
	assert_int_equal(check_held(r), 0);
	journal_close(r);

	unlink(path);
	expect_config(0, SLOT_BYTES, SLOTS);
	read_at(0, &h, sizeof(h));
	assert_int_equal(h.version, RING_VERSION);
	assert_int_equal(h.size, h.data_at + h.data_size + SLOTS * SLOT_BYTES);
	expect_config(1, SLOT_BYTES, SLOTS);
	assert_null(strstr(message, "slots"));
	expect_config(1, 0, 0);
	assert_non_null(strstr(
		message, "it has 10 output slots of 8192 bytes, configured no output slots"));
	expect_config(1, SLOT_BYTES, SLOTS + 1);
	assert_non_null(strstr(message, "configured 11 output slots of 8192"));
	unlink(path);
	/* sizes that cannot be */
	expect_config(-EINVAL, SLOT_BYTES, 0);
	expect_config(-EINVAL, 0, SLOTS);
	expect_config(-EINVAL, SLOT_BYTES + 1, SLOTS);
	expect_config(-EINVAL, XFER_BLOCK, JOURNAL_SLOTS + 1);
	expect_config(-EINVAL, UINT64_MAX - XFER_BLOCK + 1, 1);
	assert_non_null(strstr(message, "expected at most"));
	unlink(path);
}

static void
set_version(uint32_t version)
{
	write_at(offsetof(struct ring_header, version), &version, sizeof(version));
}

static uint32_t
get_version(void)
{
	struct ring_header h;

	read_at(0, &h, sizeof(h));
	return h.version;
}

/*
 * A journal of an older version is adopted. With the batches that this version had, such a file
 * differs from a new one by the version only. It gets the new version before it gets any batch, but
 * not from a reader.
 */
static void
test_older_versions(void **state)
{
	/* without an area, its slot size, which was a reserved member, is 0 */
	static const struct {
		uint32_t version, slots, batches;
	} of[] = {{10, 0, 1}, {11, SLOTS, 4}, {12, SLOTS, 5}, {13, 0, 1}};
	struct journal *r;
	uint32_t list[RECORDS], k;
	unsigned int i, run;

	for (i = 0; i < NB_OF(of); i++) {
		unlink(path);
		expect_config(0, of[i].slots > 0 ? SLOT_BYTES : 0, of[i].slots);
		r = open_ring(1, NULL, NULL);
		run = add_run(r);
		for (k = 0; k < of[i].batches; k++)
			assert_int_equal(put(r, run, k), k);
		journal_close(r);
		set_version(of[i].version);

		assert_int_equal(journal_open_existing(&r, path, message), 0);
		assert_int_equal(list_held(r, list), of[i].batches);
		journal_repair(r);
		journal_release(r, list[0]);
		journal_close(r);
		assert_int_equal(get_version(), of[i].version);

		r = open_ring(1, NULL, NULL);
		assert_int_equal(get_version(), RING_VERSION);
		assert_int_equal(list_held(r, list), of[i].batches - 1);
		(void)check_held(r);
		/* a batch of pieces with a large table */
		assert_int_not_equal(put(r, run, MANY), UINT32_MAX);
		journal_close(r);
		r = open_ring(1, NULL, NULL);
		assert_int_equal(list_held(r, list), of[i].batches);
		(void)check_held(r);
		journal_close(r);
	}
	unlink(path);
}

/* The message about a file that is too large names the settings that make it smaller. */
static void
test_no_space(void **state)
{
	struct journal_config c = config_of(SLOT_BYTES, SLOTS);
	struct rlimit limit, small;
	struct journal *r = NULL;
	unsigned int i;

	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = limit;
	small.rlim_cur = RING_BYTES;
	for (i = 0; i < 2; i++) {
		unlink(path);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		assert_int_equal(journal_open(&r, &c, message), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_non_null(strstr(message, "cannot allocate"));
		assert_true((strstr(message, "journal_slots") != NULL) == (i == 0));
		c.slots = c.slot_bytes = 0;
	}
	unlink(path);
}

/* Wrong numbers in the header are refused, even with a right checksum. */
static void
test_header_fields(void **state)
{
	static const uint32_t blocks[] = {0, SLOTS * 2 + 1, 1 << 20, UINT32_MAX};
	struct ring_header good, h;
	unsigned int i, version;

	unlink(path);
	expect_config(0, SLOT_BYTES, SLOTS);
	read_at(0, &good, sizeof(good));
	for (i = 0; i < NB_OF(blocks) + 2; i++) {
		h = good;
		if (i < NB_OF(blocks))
			h.slot_blocks = blocks[i];
		else if (i == NB_OF(blocks))
			h.data_size += SLOTS * SLOT_BYTES;
		else
			h.data_size = UINT64_MAX - XFER_BLOCK + 1;
		h.crc = arrow_crc32c(0, &h.size,
			offsetof(struct ring_header, store) - offsetof(struct ring_header, size));
		write_at(0, &h, sizeof(h));
		open_ring(-EBADMSG, NULL, NULL);
		assert_non_null(strstr(message, "do not match its size"));
	}
	write_at(0, &good, sizeof(good));
	set_version(RING_VERSION + 1);
	open_ring(-EINVAL, NULL, NULL);
	assert_non_null(strstr(message, "version 14, expected version 10 to 13. Send or import"));
	set_version(RING_OLDEST - 1);
	open_ring(-EINVAL, NULL, NULL);
	assert_non_null(strstr(message, "version 9, expected"));
	/* its creator, of any version, was killed at any moment of writing the header */
	for (version = RING_OLDEST; version <= RING_VERSION; version++) {
		good.version = version;
		for (i = 0; i <= offsetof(struct ring_header, store); i += 4) {
			memset(&h, 0, sizeof(h));
			memcpy((uint8_t *)&h + 8, (uint8_t *)&good + 8, i > 8 ? i - 8 : 0);
			write_at(0, &h, sizeof(h));
			journal_close(open_ring(0, NULL, NULL));
		}
	}
	unlink(path);
}

int
main(void)
{
	const char *text = getenv("XFER_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_forged_pieces),
		cmocka_unit_test(test_changed_pieces),
		cmocka_unit_test(test_same_slot),
		cmocka_unit_test(test_same_slot_damaged),
		cmocka_unit_test(test_changed_table),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_older_versions),
		cmocka_unit_test(test_no_space),
		cmocka_unit_test(test_header_fields),
	};

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	memset(schema, 's', sizeof(schema));
	snprintf(path, sizeof(path), "/dev/shm/braggline-journal-area-%d", getpid());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
