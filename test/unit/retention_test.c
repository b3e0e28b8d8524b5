/* SPDX-License-Identifier: BSD-3-Clause */
/* The retention ring: room, release in any order, adoption; kill -9 between any two stores to it.
 * SINK_SEED repeats a run. */

#include <errno.h>
#include <fcntl.h>
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

#include "arrow_crc.h"
#include "retention.h"

#define PRODUCER    77
#define RING_BYTES  (40 * SINK_BLOCK)
#define INCARNATION 5 /* of run 0 */
#define RECORDS	    12
#define SEQUENCES   400
#define STORES	    3

static uint64_t seed;
static char path[64];
static char message[PATH_MAX];
static uint8_t schema[SINK_BLOCK];

static uint32_t
random_number(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return seed >> 33;
}

static struct retention *
open_ring(int wanted, void (*step)(void *arg), void *arg)
{
	const struct retention_config c = {
		.path = path,
		.producer = PRODUCER,
		.bytes = RING_BYTES,
		.batches = RECORDS,
		.step = step,
		.step_arg = arg,
	};
	struct retention *r = NULL;

	assert_int_equal(retention_open(&r, &c, message), wanted);
	return r;
}

static unsigned int
add_run(struct retention *r, uint64_t number)
{
	const struct retention_run run = {
		.run = number,
		.incarnation = number + INCARNATION,
		.name = "run",
		.schema = {schema, schema},
		.schema_bytes = {SINK_BLOCK, SINK_BLOCK},
		.body_max = {SINK_BLOCK, 8 * SINK_BLOCK},
	};
	const int index = retention_run_add(r, &run);

	assert_true(index >= 0);
	return index;
}

/* Bytes of a batch follow from its sequence number. */
static uint64_t
body_of(uint64_t sequence)
{
	return (1 + sequence * 7 % 5) * SINK_BLOCK;
}

static uint32_t
put(struct retention *r, unsigned int run, uint64_t sequence)
{
	const uint64_t body = body_of(sequence);
	struct retention_batch b = {
		.sequence = sequence,
		.rows = 10,
		.first = sequence * 10,
		.last = sequence * 10 + 9,
		.received = 1000 + sequence,
		.run = run,
		.table = sequence % SINK_TABLES,
	};
	uint8_t *to = retention_reserve(r, body);

	if (to == NULL)
		return UINT32_MAX;
	memset(to, (int)sequence, SINK_BLOCK);
	memset(to + SINK_BLOCK, (int)~sequence, body);
	b.body_crc32c = arrow_crc32c(0, to + SINK_BLOCK, body);
	return retention_commit(r, &b);
}

static void
check_batch(const struct retention_batch *b)
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

/* Held batches, the oldest first. @return how many */
static uint32_t
list_held(const struct retention *r, uint32_t list[RECORDS])
{
	uint32_t at = 0, n = 0, batch;

	while ((batch = retention_walk(r, &at)) != UINT32_MAX)
		list[n++] = batch;
	return n;
}

static void
test_round(void **state)
{
	struct retention_batch b;
	struct retention_stats stats;
	struct retention *r;
	uint32_t list[RECORDS], n, i, batch;
	uint64_t sequence = 0, released = 0;
	unsigned int run;
	int step;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	run = add_run(r, 1);
	for (step = 0; step < 3000; step++) {
		n = list_held(r, list);
		for (i = 0; i < n; i++) {
			assert_true(retention_get(r, list[i], &b));
			check_batch(&b);
		}
		if (random_number() % 2 && n > 0) {
			/* in any order */
			batch = list[random_number() % n];
			retention_release(r, batch);
			retention_release(r, batch); /* twice is once */
			released++;
			continue;
		}
		batch = put(r, run, sequence);
		if (batch != UINT32_MAX)
			sequence++;
		else
			assert_true(n > 0);
	}
	retention_stats_get(r, &stats);
	assert_int_equal(stats.put, sequence);
	assert_int_equal(stats.released, released);
	assert_int_equal(stats.batches, sequence - released);
	assert_true(stats.full > 0);
	n = list_held(r, list);
	for (i = 0; i < n; i++)
		retention_release(r, list[i]);
	/* all of it in one piece, wherever the ring had got to */
	assert_null(retention_reserve(r, RING_BYTES));
	assert_non_null(retention_reserve(r, RING_BYTES - SINK_BLOCK));
	retention_give_up(r);
	assert_int_equal(retention_run_drop(r, run), 0);
	retention_close(r);
}

/* One that stays holds the list of what came after it, however little room that takes. */
static void
test_oldest_stays(void **state)
{
	struct retention_batch b;
	struct retention *r;
	uint32_t oldest, batch;
	uint64_t sequence;
	unsigned int run;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	run = add_run(r, 1);
	oldest = put(r, run, 0);
	/* of one block each: more of them than there are numbers would go into the ring */
	for (sequence = 5; (batch = put(r, run, sequence)) != UINT32_MAX; sequence += 5)
		retention_release(r, batch);
	assert_int_equal(sequence / 5, RECORDS);
	assert_true(retention_get(r, oldest, &b));
	check_batch(&b);
	assert_int_equal(b.sequence, 0);
	retention_release(r, oldest);
	assert_true(put(r, run, sequence) != UINT32_MAX);
	retention_close(r);
}

static void
test_adopt(void **state)
{
	struct retention_batch b;
	struct retention_run run;
	struct retention *r;
	uint64_t batches[SINK_TABLES] = {3, 4};
	uint32_t list[RECORDS], one, two, three;
	char ledger[RETENTION_LEDGER];
	unsigned int index, i;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	/* another process */
	assert_null(open_ring(-EBUSY, NULL, NULL));
	index = add_run(r, 9);
	one = put(r, index, 1);
	two = put(r, index, 2);
	three = put(r, index, 3);
	assert_int_equal(retention_store_add(r, "10.0.0.1:18516", 0), 0);
	assert_int_equal(retention_store_add(r, "10.0.0.2:18516", 22), 1);
	assert_int_equal(retention_store_at(r, "10.0.0.1:18516"), 0);
	assert_int_equal(retention_store_of(r, 22), 1);
	retention_assign(r, one, 0);
	retention_assign(r, two, 0);
	retention_give(r, two);
	retention_assign(r, two, 1);
	retention_release(r, two);
	assert_int_equal(retention_run_drop(r, index), -EBUSY);
	assert_int_equal(retention_ledger_get(r, ledger, sizeof(ledger)), 0);
	retention_ledger_put(r, "first", 5);
	retention_ledger_put(r, "second", 6);
	/* reserved and not committed is nothing */
	assert_non_null(retention_reserve(r, SINK_BLOCK));
	retention_run_end(r, index, batches);
	retention_close(r);

	r = open_ring(1, NULL, NULL);
	assert_non_null(strstr(message, "2 batches"));
	assert_true(retention_run_get(r, index, &run));
	assert_int_equal(run.run, 9);
	assert_true(run.ended);
	assert_int_equal(run.batches[1], 4);
	assert_int_equal(run.references, 3);
	assert_memory_equal(run.schema[1], schema, SINK_BLOCK);
	assert_string_equal(run.name, "run");
	assert_int_equal(list_held(r, list), 2);
	assert_int_equal(list[0], one);
	assert_int_equal(list[1], three);
	assert_true(retention_get(r, one, &b));
	assert_int_equal(b.owner, 0);
	assert_true(retention_get(r, two, &b));
	assert_false(b.held);
	assert_int_equal(b.given, 1);
	assert_true(retention_get(r, three, &b));
	assert_int_equal(b.owner, RETENTION_NOBODY);
	check_batch(&b);
	assert_int_equal(retention_ledger_get(r, ledger, sizeof(ledger)), 6);
	assert_memory_equal(ledger, "second", 6);
	assert_int_equal(retention_store_at(r, "10.0.0.2:18516"), 1);
	assert_int_equal(retention_store_of(r, 22), 1);
	assert_int_equal(retention_store_drop(r, 0), -EBUSY);
	assert_int_equal(retention_store_given(r, 0), 1);
	retention_confirm(r, index, 1);
	assert_true(retention_get(r, two, &b));
	retention_confirm(r, index + 1, 0);
	assert_true(retention_get(r, two, &b));
	retention_confirm(r, index, 0);
	assert_false(retention_get(r, two, &b));
	assert_int_equal(retention_store_drop(r, 0), 0);
	assert_int_equal(retention_store_at(r, "10.0.0.1:18516"), -ENOENT);
	retention_release(r, one);
	retention_release(r, three);
	assert_int_equal(retention_next(r, 0), UINT32_MAX);
	assert_int_equal(retention_run_drop(r, index), 0);
	/* whose runs they were it remembers */
	assert_true(retention_run_get(r, index, &run) == false);
	for (i = 0; i < RETENTION_INCARNATIONS - 1; i++) {
		assert_true(retention_had(r, 9 + INCARNATION));
		assert_false(retention_had(r, 1000 + i + INCARNATION));
		assert_int_equal(retention_run_drop(r, add_run(r, 1000 + i)), 0);
		assert_true(retention_had(r, 1000 + i + INCARNATION));
	}
	(void)add_run(r, 1);
	assert_false(retention_had(r, 9 + INCARNATION));
	retention_close(r);
}

static void
test_forget_doubts(void **state)
{
	struct retention_batch b;
	struct retention *r;
	unsigned int i, index, other;
	uint32_t batch[4];

	unlink(path);
	r = open_ring(0, NULL, NULL);
	index = add_run(r, 1);
	other = add_run(r, 2);
	for (i = 0; i < 4; i++) {
		batch[i] = put(r, i < 3 ? index : other, i);
		retention_assign(r, batch[i], 3);
		retention_give(r, batch[i]);
		/* 0 is held by another store, 1 and 3 are another's for good, 2 is spilled */
		retention_assign(r, batch[i], i == 2 ? RETENTION_SPILL : 4);
		if (i != 0)
			retention_release(r, batch[i]);
	}
	retention_forget_doubts(r, index);
	assert_true(retention_get(r, batch[0], &b));
	assert_true(b.held);
	assert_int_equal(b.given, 0);
	assert_false(retention_get(r, batch[1], &b));
	assert_false(retention_get(r, batch[2], &b));
	/* another run's is told */
	assert_true(retention_get(r, batch[3], &b));
	assert_int_equal(b.given, 1 << 3);
	retention_close(r);
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
	struct retention_config c = {.path = path, .producer = PRODUCER + 1, .bytes = RING_BYTES};
	struct retention *r = NULL;

	unlink(path);
	retention_close(open_ring(0, NULL, NULL));
	assert_int_equal(retention_open(&r, &c, message), -EINVAL);
	assert_non_null(strstr(message, "of producer"));
	write_at(40, "x", 1);
	open_ring(-EBADMSG, NULL, NULL);
	/* somebody else's file stays as it is */
	write_at(0, "something", 9);
	open_ring(-EINVAL, NULL, NULL);
	assert_non_null(strstr(message, "not overwritten"));
	unlink(path);
	c.bytes = 4096;
	assert_int_equal(retention_open(&r, &c, message), -EINVAL);
	unlink(path);
	c.path = "/proc/self/braggline";
	assert_true(retention_open(&r, &c, message) < 0);
	/* damaged behind the header */
	r = open_ring(0, NULL, NULL);
	(void)put(r, add_run(r, 1), 1);
	retention_close(r);
	write_at(SINK_BLOCK * 3 + 16, "x", 1);
	open_ring(-EBADMSG, NULL, NULL);
	unlink(path);
}

/* ---- kill -9 between any two stores ---------------------------------------------------------- */

struct known {
	bool held;
	uint8_t owner;
	uint16_t given;
};

/* What the ring should hold: before and after what is being done. Shared with the child. */
struct model {
	struct known now[SEQUENCES];
	struct known next[SEQUENCES];
	uint64_t ledger_now;
	uint64_t ledger_next;
	uint64_t sequence;
	uint64_t steps; /* stores */
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

/* One thing that a receiver does. */
static void
act(struct retention *r, struct model *m, unsigned int run)
{
	uint32_t list[RECORDS], n = list_held(r, list), pick;
	const unsigned int store = random_number() % STORES, what = random_number() % 8;
	struct retention_batch b;
	unsigned int i;

	begin(m);
	if (what < 3 && m->sequence < SEQUENCES) {
		m->next[m->sequence] = (struct known){true, RETENTION_NOBODY, 0};
		if (put(r, run, m->sequence) == UINT32_MAX)
			begin(m);
		m->sequence++;
	} else if (what == 6) {
		for (i = 0; i < SEQUENCES; i++) {
			if (m->next[i].owner != store)
				m->next[i].given &= ~(1u << store);
		}
		retention_confirm(r, run, store);
	} else if (what == 7) {
		m->ledger_next++;
		retention_ledger_put(r, &m->ledger_next, sizeof(m->ledger_next));
	} else if (n > 0) {
		pick = list[random_number() % n];
		assert_true(retention_get(r, pick, &b));
		if (what == 3) {
			m->next[b.sequence].owner = store;
			retention_assign(r, pick, store);
		} else if (what == 4 && b.owner < RETENTION_STORES) {
			m->next[b.sequence].given |= 1u << b.owner;
			retention_give(r, pick);
		} else if (what == 5 && random_number() % 4 == 0) {
			m->next[b.sequence].owner = RETENTION_SPILL;
			retention_assign(r, pick, RETENTION_SPILL);
		} else {
			m->next[b.sequence].held = false;
			retention_release(r, pick);
		}
	}
	end(m);
}

static void
live(struct model *m, unsigned int acts)
{
	struct retention *r = open_ring(0, count_step, m);
	const unsigned int run = add_run(r, 1);

	while (acts-- > 0)
		act(r, m, run);
	retention_close(r);
}

/* Held, or in doubt: others than its owner were given it. */
static bool
is_of_interest(const struct known *k)
{
	return k->held ||
		(k->owner < RETENTION_STORES ? k->given & ~(1u << k->owner) : k->given) != 0;
}

/* What is found is what was there before or after the store at which it ended. */
static void
look(const struct model *m, struct retention *r)
{
	bool found[SEQUENCES] = {false};
	const struct known *now, *next;
	struct retention_batch b;
	uint64_t ledger = 0;
	uint32_t i;

	for (i = retention_next(r, 0); i != UINT32_MAX; i = retention_next(r, i + 1)) {
		assert_true(retention_get(r, i, &b));
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
	if (retention_ledger_get(r, &ledger, sizeof(ledger)) == 0)
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
	struct retention_run run;
	struct retention *r;
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
		/* and it goes on */
		n = list_held(r, list);
		adopted += n;
		if (!retention_run_get(r, 0, &run))
			assert_int_equal(add_run(r, 1), 0);
		while (n > 0)
			retention_release(r, list[--n]);
		for (sequence = 0; sequence < STORES; sequence++)
			retention_confirm(r, 0, sequence);
		assert_int_equal(retention_next(r, 0), UINT32_MAX);
		for (sequence = 0; put(r, 0, sequence) != UINT32_MAX; sequence++)
			;
		assert_true(sequence > 5);
		retention_close(r);
	}
	assert_true(adopted > steps);
	printf("killed at %llu stores, %u batches adopted\n", (unsigned long long)steps, adopted);
	munmap(m, sizeof(*m));
	unlink(path);
}

/* A ledger that is half written is not taken for the last one: the other copy stays. */
static void
test_killed_ledgers(void **state)
{
	struct model m = {0};
	char ledger[RETENTION_LEDGER];
	struct retention *r;
	unsigned int i;
	pid_t pid;

	unlink(path);
	r = open_ring(0, NULL, NULL);
	retention_ledger_put(r, "first", 5);
	retention_ledger_put(r, "second", 6);
	retention_close(r);
	for (i = 0; i < 6; i++) {
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			r = open_ring(1, count_step, &m);
			m.kill_at = m.steps + 1 + i % 2;
			retention_ledger_put(r, "another", 7);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		r = open_ring(1, NULL, NULL);
		assert_int_equal(retention_ledger_get(r, ledger, sizeof(ledger)), 6);
		assert_memory_equal(ledger, "second", 6);
		retention_close(r);
	}
	unlink(path);
}

static void
test_need(void **state)
{
	const struct retention_need need = {
		.rate = 2000000000,
		.commit_ms = 100,
		.round_ms = 1,
		.detection_ms = 1500,
		.hold_ms = 10000,
		.body_max = 16777216,
	};
	char text[256];

	assert_int_equal(retention_need(&need, text, sizeof(text)),
		2000000ull * 11601 + 2 * (16777216 + SINK_BLOCK));
	assert_string_equal(text,
		"22160 MiB: 2000 MB/s x (100 ms commit + 1 ms round trip + 1500 ms "
		"detection + 10000 ms hold) + 2 x 16 MiB");
}

/* What a probe says is what opening does; the probe changes nothing. */
static void
test_probe(void **state)
{
	struct retention_config c = {
		.path = path,
		.producer = PRODUCER,
		.bytes = RING_BYTES,
		.batches = RECORDS,
	};
	struct retention_probe p;
	struct retention *r;
	struct stat st;

	(void)state;
	assert_int_equal(retention_probe(&c, &p, message), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_false(p.adopts);
	assert_true(p.file > p.room && p.room >= RING_BYTES && p.free > 0);
	r = open_ring(0, NULL, NULL);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, p.file);
	/* it runs */
	assert_int_equal(retention_probe(&c, &p, message), -EBUSY);
	(void)put(r, add_run(r, 1), 1);
	retention_close(r);
	c.bytes *= 2;
	assert_int_equal(retention_probe(&c, &p, message), 0);
	assert_true(p.adopts);
	assert_int_equal(p.room, RING_BYTES);
	c.producer++;
	assert_int_equal(retention_probe(&c, &p, message), -EINVAL);
	assert_non_null(strstr(message, "of producer"));
	write_at(0, "something", 9);
	assert_int_equal(retention_probe(&c, &p, message), -EINVAL);
	assert_non_null(strstr(message, "not overwritten"));
	unlink(path);
	c.bytes = 4096;
	assert_int_equal(retention_probe(&c, &p, message), -EINVAL);
	c.path = "/proc/self/braggline";
	assert_true(retention_probe(&c, &p, message) < 0);
	c.path = "/dev/shm/none/of/these";
	assert_int_equal(retention_probe(&c, &p, message), -ENOENT);
}

int
main(void)
{
	const char *text = getenv("SINK_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round),
		cmocka_unit_test(test_oldest_stays),
		cmocka_unit_test(test_adopt),
		cmocka_unit_test(test_forget_doubts),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_killed_ledgers),
		cmocka_unit_test(test_need),
	};

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("SINK_SEED=%llu\n", (unsigned long long)seed);
	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	memset(schema, 's', sizeof(schema));
	snprintf(path, sizeof(path), "/dev/shm/braggline-retention-%d", getpid());
	return cmocka_run_group_tests(tests, NULL, NULL);
}
