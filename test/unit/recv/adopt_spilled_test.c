/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests receivers that are killed while they adopt a journal with spilled batches, while files of
 * the batches are imported into a store. No store may be asked to cut off the only copy of a batch.
 * A receiver is killed between any two stores to the journal. XFER_SEED repeats a run.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "arrow/names.h"
#include "arrow/reader.h"
#include "egress/adopt_spilled.h"
#include "journal/journal_private.h"
#include "xfer/qp.h"
#include "../xfer/xfer_sample.h"

#define RECEIVER_ID 0x0123456789abcdefull
#define BATCHES	    6
#define WORLDS	    40
#define SECONDS	    20
#define IMPORTER    0 /* number of the store whose directory the files are imported into */
#define OTHERS	    7 /* batches of another run, so that records are reused in random order */

static struct xfer_sample s;
static char root[64], ring_path[64];
static struct journal_run run;
static uint8_t *header[ARROW_TABLES];
static uint64_t seed;
/* the batches in imported files: the importing store may have the only copy */
static bool imported[BATCHES];
static uint16_t doubts[BATCHES]; /* before any adoption */

/* Stores to the journal before this process kills itself. */
static unsigned int steps_left;

static uint32_t
below(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % n;
}

static void
die_in_time(void *arg)
{
	if (steps_left > 0 && --steps_left == 0)
		raise(SIGKILL);
}

static struct journal *
ring_open(void)
{
	const struct journal_config c = {.path = ring_path,
		.receiver_id = RECEIVER_ID,
		.bytes = 8 << 20,
		.batches = 64,
		.step = die_in_time};
	struct journal *r;
	char message[PATH_MAX];

	if (journal_open(&r, &c, message) < 0)
		fail_msg("%s", message);
	return r;
}

static struct spill *
spill_open(void)
{
	const struct spill_config c = {.dir = root, .receiver_id = RECEIVER_ID};
	char message[PATH_MAX];
	struct spill *spill;

	if (spill_create(&spill, &c, message) < 0)
		fail_msg("%s", message);
	return spill;
}

static uint32_t
put(struct journal *r, unsigned int index, const struct xfer_sample_batch *from)
{
	struct journal_batch b = {
		.sequence = from->batch.sequence,
		.rows = from->batch.rows,
		.first = from->batch.first,
		.last = from->batch.last,
		.received = from->batch.received,
		.body_bytes = from->batch.body_bytes,
		.body_crc32c = from->batch.body_crc32c,
		.run = index,
	};
	uint8_t *to = journal_reserve(r, from->batch.body_bytes);

	assert_non_null(to);
	memcpy(to, from->metadata, XFER_BLOCK);
	memcpy(to + XFER_BLOCK, from->body, from->batch.body_bytes);
	journal_fill(r, &b);
	return journal_commit(r, &b);
}

/* Results come in the order of the files. The receiver handles some of them before it is killed. */
static void
take(struct journal *r, unsigned int index, struct spill *spill, unsigned int nb,
	unsigned int *alive)
{
	const uint64_t limit = xfer_qp_clock() + SECONDS * 1000;
	struct spill_result result[BATCHES];
	unsigned int i, n, got = 0;

	while (got < nb && xfer_qp_clock() < limit) {
		n = spill_results(spill, result, BATCHES);
		for (i = 0; i < n; i++) {
			assert_true(result[i].durable);
			if (*alive == 0)
				continue;
			(*alive)--;
			journal_release_spilled(r, result[i].batch);
		}
		got += n;
	}
	assert_int_equal(got, nb);
}

/* Spill some batches in several passes, as when a slow store returns its batches in parts. */
static void
spill_some(struct journal *r, unsigned int index, const uint32_t *batch)
{
	struct spill *spill = spill_open();
	unsigned int alive = below(BATCHES + 1), pass, i, nb;
	struct journal_batch b;
	struct journal_run of;
	cpu_set_t cpus;

	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	assert_int_equal(spill_start(spill, &cpus), 0);
	assert_true(journal_run_get(r, index, &of));
	for (pass = 0; pass < 3; pass++) {
		for (i = nb = 0; i < BATCHES; i++) {
			if (!journal_get(r, batch[i], &b) || !b.held || b.run != index ||
				b.owner == JOURNAL_SPILL || below(2) != 0)
				continue;
			journal_assign(r, batch[i], JOURNAL_SPILL);
			spill_put(spill, batch[i], &b, &of);
			nb++;
		}
		take(r, index, spill, nb, &alive);
		spill_pause(spill);
	}
	spill_destroy(spill);
}

/* A receiver that is killed while batches are held, given, spilled and in doubt. */
static void
first_life(void)
{
	struct journal *r = ring_open();
	struct journal_run other = run;
	uint32_t batch[BATCHES], others[OTHERS];
	unsigned int i, k, index, another;

	other.run++;
	other.incarnation++;
	another = journal_run_add(r, &other);
	index = journal_run_add(r, &run);
	assert_true((int)journal_store_add(r, "127.0.0.1:1", 1) >= 0);
	assert_true((int)journal_store_add(r, "127.0.0.1:2", 2) >= 0);
	for (i = 0; i < OTHERS; i++)
		others[i] = put(r, another, &s.batch[0][i]);
	for (i = 0; i < OTHERS; i++) {
		k = i + below(OTHERS - i);
		journal_release(r, others[k]);
		others[k] = others[i];
	}
	for (i = 0; i < BATCHES; i++)
		batch[i] = put(r, index, &s.batch[0][i]);
	for (i = 0; i < BATCHES; i++) {
		for (k = 0; k < 2; k++) {
			if (below(2) != 0)
				continue;
			journal_assign(r, batch[i], k);
			journal_give(r, batch[i]);
		}
	}
	spill_some(r, index, batch);
	journal_close(r);
}

static void
next_life(void)
{
	struct journal *journal = ring_open();
	struct spill *spill = spill_open();
	uint64_t in_files;

	assert_int_equal(adopt_spilled(journal, spill, &in_files), 0);
	spill_destroy(spill);
	journal_close(journal);
}

/* @param steps  store to the journal at which the process is killed; 0: it ends normally */
static void
live(void (*life)(void), unsigned int steps)
{
	const uint64_t own = seed;
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		seed = own;
		steps_left = steps;
		life();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	(void)below(2);
	if (steps == 0 || WIFEXITED(status))
		assert_int_equal(status, 0);
	else
		assert_int_equal(WTERMSIG(status), SIGKILL);
}

static unsigned int
index_of(const char *sequence)
{
	const uint64_t n = strtoull(sequence, NULL, 16);
	unsigned int i;

	for (i = 0; i < BATCHES && s.batch[0][i].batch.sequence != n; i++)
		;
	assert_true(i < BATCHES);
	return i;
}

/*
 * Check which batches the files have. @param remove  import and remove some of the files. @return
 * whether any were removed
 */
static bool
check_files(bool here[BATCHES], bool remove)
{
	char dir[128], path[512];
	struct arrow_reader reader;
	const char *problem;
	struct dirent *entry;
	bool goes, any = false;
	DIR *d;
	size_t i;

	snprintf(dir, sizeof(dir), "%s/sample-%016llx-%016llx", root, RECEIVER_ID,
		(unsigned long long)run.run);
	d = opendir(dir);
	while (d != NULL && (entry = readdir(d)) != NULL) {
		if (entry->d_name[0] == '.' || !arrow_name_is_complete(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		goes = remove && below(2) == 0;
		assert_int_equal(arrow_reader_open(&reader, path, &problem), 0);
		for (i = 0; i < reader.nb_batches; i++) {
			here[index_of(reader.batches[i].sequence)] |= !goes;
			imported[index_of(reader.batches[i].sequence)] |= goes;
		}
		arrow_reader_close(&reader);
		any |= goes;
		if (goes)
			assert_int_equal(unlink(path), 0);
	}
	if (d != NULL)
		closedir(d);
	return any;
}

/* Every batch that the importing store is asked to cut off exists elsewhere. */
static void
check(bool any_imported, bool adopted)
{
	bool here[BATCHES] = {false}, told = false;
	uint16_t now[BATCHES] = {0};
	struct journal *r = ring_open();
	struct journal_batch b;
	unsigned int i;
	uint32_t n;

	(void)check_files(here, false);
	for (n = journal_next(r, 0); n != UINT32_MAX; n = journal_next(r, n + 1)) {
		assert_true(journal_get(r, n, &b));
		for (i = 0; s.batch[0][i].batch.sequence != b.sequence; i++)
			;
		here[i] |= b.held;
		now[i] = b.owner < JOURNAL_STORES ? b.given & ~(1u << b.owner) : b.given;
	}
	for (i = 0; i < BATCHES; i++) {
		told |= (now[i] & 1u << IMPORTER) != 0;
		if (adopted && imported[i] && told && !here[i])
			fail_msg("batch %u is imported, and the store is to cut it off", i);
		/* without an import every store is asked as before */
		if (adopted && !any_imported)
			assert_int_equal(now[i], doubts[i]);
		if (!adopted)
			doubts[i] = now[i];
	}
	journal_close(r);
}

/* A receiver that is killed between counting and releasing a batch has not counted it. */
static void
check_count(void)
{
	bool here[BATCHES] = {false};
	struct journal *r = ring_open();
	struct journal_run of = {0};
	struct journal_batch b;
	uint64_t released = 0;
	unsigned int i;
	uint32_t n;

	(void)check_files(here, false);
	for (n = journal_next(r, 0); n != UINT32_MAX; n = journal_next(r, n + 1)) {
		assert_true(journal_get(r, n, &b));
		for (i = 0; s.batch[0][i].batch.sequence != b.sequence; i++)
			;
		here[i] &= !b.held;
	}
	for (i = 0; i < BATCHES; i++)
		released += here[i];
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (journal_run_get(r, i, &of) && of.run == run.run)
			break;
	}
	journal_close(r);
	assert_true(of.spilled <= released);
}

static void
test_worlds(void **state)
{
	const unsigned int deaths = 2;
	char command[256];
	bool here[BATCHES] = {false}, any;
	unsigned int world, i;

	snprintf(command, sizeof(command), "rm -rf %s/* %s", root, ring_path);
	for (world = 0; world < WORLDS; world++) {
		assert_int_equal(system(command), 0);
		memset(imported, 0, sizeof(imported));
		live(first_life, 0);
		check(false, false);
		any = below(3) == 0 && check_files(here, true);
		for (i = 0; i < deaths; i++) {
			live(next_life, 1 + below(12));
			if (!any)
				check_count();
			if (below(3) != 0)
				any |= check_files(here, true);
		}
		live(next_life, 0);
		check(any, true);
		any |= check_files(here, true);
		live(next_life, 1 + below(12));
		if (!any)
			check_count();
		live(next_life, 0);
		check(any, true);
	}
	assert_int_equal(system(command), 0);
}

/* A receiver that is killed after all batches were spilled, and before any was released. */
static void
spill_and_die(void)
{
	struct journal *r = ring_open();
	struct spill *spill = spill_open();
	unsigned int i, index, alive = 0;
	struct journal_run of;
	struct journal_batch b;
	uint32_t batch;
	cpu_set_t cpus;

	index = journal_run_add(r, &run);
	assert_true(journal_run_get(r, index, &of));
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	assert_int_equal(spill_start(spill, &cpus), 0);
	for (i = 0; i < BATCHES; i++) {
		batch = put(r, index, &s.batch[0][i]);
		journal_assign(r, batch, JOURNAL_SPILL);
		assert_true(journal_get(r, batch, &b));
		spill_put(spill, batch, &b, &of);
	}
	take(r, index, spill, BATCHES, &alive);
	spill_destroy(spill);
	journal_close(r);
}

/* Flip a bit of a body in a file. */
static void
rot(const char *path, unsigned int batch)
{
	struct arrow_reader reader;
	const char *problem;
	uint8_t byte;
	off_t at;
	int fd;

	assert_int_equal(arrow_reader_open(&reader, path, &problem), 0);
	assert_int_equal(reader.nb_batches, BATCHES);
	byte = reader.batches[batch].body[9] ^ 2;
	at = reader.batches[batch].body + 9 - reader.data;
	arrow_reader_close(&reader);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/*
 * Spilled batches are damaged while the journal still holds them: adoption keeps these, and
 * releases the others.
 */
static void
test_rot(void **state)
{
	const unsigned int bad[] = {0, 2, BATCHES - 1};
	char command[256], path[256];
	unsigned int i, nb = 0;
	bool here[BATCHES] = {false};
	struct journal_batch b;
	struct journal *r;
	uint32_t n;

	live(spill_and_die, 0);
	snprintf(path, sizeof(path), "%s/sample-%016llx-%016llx/sample_%016llx_000001_frames.arrow",
		root, RECEIVER_ID, (unsigned long long)run.run,
		(unsigned long long)run.incarnation);
	for (i = 0; i < 3; i++)
		rot(path, bad[i]);
	live(next_life, 0);
	r = ring_open();
	for (n = journal_next(r, 0); n != UINT32_MAX; n = journal_next(r, n + 1), nb++) {
		assert_true(journal_get(r, n, &b));
		assert_true(b.held);
		assert_int_equal(b.owner, JOURNAL_NOBODY);
		assert_int_equal(b.sequence, s.batch[0][bad[nb]].batch.sequence);
	}
	assert_int_equal(nb, 3);
	journal_close(r);
	/* the file no longer has them: they can be spilled again */
	(void)check_files(here, false);
	for (i = 0; i < BATCHES; i++)
		assert_int_equal(here[i], i != bad[0] && i != bad[1] && i != bad[2]);
	snprintf(command, sizeof(command), "rm -rf %s/* %s", root, ring_path);
	assert_int_equal(system(command), 0);
}

/*
 * A store has the only copy of an imported batch, and the number of spilled batches that says so is
 * damaged: with one wrong bit it is corrected, with two no store is asked to cut off anything.
 */
static void
test_damaged_count(void **state)
{
	const uint64_t bits[] = {0, 64, 64 | 32};
	struct journal *r;
	struct journal_run of;
	struct journal_batch b;
	struct ring_header h;
	unsigned int i, index;
	uint32_t batch;
	uint64_t word;
	off_t at;
	int fd;

	for (i = 0; i < 3; i++) {
		unlink(ring_path);
		r = ring_open();
		index = journal_run_add(r, &run);
		assert_true(journal_store_add(r, "127.0.0.1:1", 1) >= 0);
		batch = put(r, index, &s.batch[0][0]);
		journal_assign(r, batch, 0);
		journal_give(r, batch);
		journal_assign(r, batch, JOURNAL_SPILL);
		journal_run_spilled(r, index, 63);
		journal_release_spilled(r, batch);
		assert_true(journal_get(r, batch, &b) && !b.held);
		journal_close(r);
		fd = open(ring_path, O_RDWR);
		assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
		at = h.runs_at + index * sizeof(struct ring_run) +
			offsetof(struct ring_run, spilled);
		assert_int_equal(pread(fd, &word, sizeof(word), at), sizeof(word));
		word ^= bits[i];
		assert_int_equal(pwrite(fd, &word, sizeof(word), at), sizeof(word));
		close(fd);
		r = ring_open();
		assert_true(journal_run_get(r, index, &of));
		assert_int_equal(of.spilled, i < 2 ? 64 : JOURNAL_UNCOUNTED);
		assert_int_equal(of.spilled_lost, i == 2);
		journal_close(r);
		/* no file has the batches now, so each receiver forgets the doubts */
		live(next_life, 0);
		r = ring_open();
		assert_false(journal_get(r, batch, &b));
		assert_true(journal_run_get(r, index, &of));
		assert_int_equal(of.spilled, 0);
		journal_close(r);
	}
	unlink(ring_path);
}

int
main(void)
{
	const char *eal[] = {"spilled", "--no-huge", "-m", "64", "--no-pci", "--no-shconf", "-l",
		"0", "--no-telemetry", "--log-level", "lib.eal:warning", "--log-level",
		"braggline.*:error"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worlds),
		cmocka_unit_test(test_rot),
		cmocka_unit_test(test_damaged_count),
	};
	const char *text = getenv("XFER_SEED");
	const struct arrow_identity id = xfer_sample_identity(0);
	char command[256];
	unsigned int i;
	size_t size;
	int ret;

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	snprintf(root, sizeof(root), "/dev/shm/braggline-spilled.XXXXXX");
	snprintf(ring_path, sizeof(ring_path), "/dev/shm/braggline-spilled-%d", getpid());
	if (mkdtemp(root) == NULL)
		return 1;
	xfer_sample_init(&s, seed, 250);
	run = (struct journal_run){.run = id.run, .incarnation = id.incarnation, .name = "sample"};
	for (i = 0; i < ARROW_TABLES; i++) {
		if (arrow_header_build(&s.tables.schema[i], &header[i], &size) < 0)
			return 1;
		run.schema[i] = header[i];
		run.schema_bytes[i] = size;
	}
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	xfer_sample_free(&s);
	snprintf(command, sizeof(command), "rm -rf %s %s", root, ring_path);
	if (system(command) != 0)
		ret = 1;
	rte_eal_cleanup();
	return ret;
}
