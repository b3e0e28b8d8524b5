/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the area of a journal: slots, batches that refer to them, adoption of such batches, kill -9
 * between any two stores to the file, and damage. XFER_SEED repeats a run.
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

/* ---- batches: all of their numbers and bytes follow from the sequence number ------------------ */

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

/* Size of what is behind the parts in slots: it fills blocks, and may be nothing. */
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
	struct journal_reference reference[JOURNAL_REFERENCES];
	const uint32_t n = references_of(sequence);
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
	to = i == n ? journal_reserve(r, (n > 0) * XFER_BLOCK + b->rest_bytes) : NULL;
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
	fill_bytes(to + (n > 0 ? 2 : 1) * XFER_BLOCK, b->rest_bytes, sequence, &at, &crc);
	b->body_bytes = at;
	b->body_crc32c = crc;
	if (n > 0)
		journal_refer(r, b, reference, n);
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
	assert_int_equal(n, b->nb_references + (b->rest_bytes > 0 || b->nb_references == 0));
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
	assert_non_null(strstr(message, "10 slots of 8192 bytes"));
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

int
main(void)
{
	const char *text = getenv("XFER_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round),
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
