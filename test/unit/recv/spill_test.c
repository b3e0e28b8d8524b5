/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests batches that no store takes and that are spilled to files: each is there once, the limit
 * holds, and files of a killed process are adopted. Also tests the columns of a ledger after a
 * restart. XFER_SEED repeats a run.
 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "io/dir_lock.h"
#include "io/file_lock.h"
#include "arrow/reader.h"
#include "../io/dir_syncs.h"
#include "ledger.h"
#include "../stream/left_lock.h"
#include "xfer/qp.h"
#include "../xfer/xfer_sample.h"
#include "egress/spill.h"

#define SECONDS 20
#define LEFT_MS 300
#define DIR_OF	"%s/sample-0123456789abcdef-000000000000002a"

static struct xfer_sample s;
static char root[64];
static struct journal_run run;
static uint8_t *header[ARROW_TABLES];
static bool durable[2 * XFER_SAMPLE_BATCHES];
static unsigned int nb_damaged;

/* The batches in parts: all but the last are in slots. 0: each is in one part. */
#define PARTS_MAX 9
static unsigned int nb_parts;
static uint8_t *slots[ARROW_TABLES][XFER_SAMPLE_BATCHES];
static struct iovec in_slot[ARROW_TABLES][XFER_SAMPLE_BATCHES][PARTS_MAX - 1];

static struct spill *
open_spill(uint64_t limit)
{
	const struct spill_config c = {root, limit, 0x0123456789abcdefull};
	char message[PATH_MAX];
	struct spill *spill;

	if (spill_create(&spill, &c, message) < 0)
		fail_msg("%s", message);
	return spill;
}

static void
start(struct spill *spill)
{
	cpu_set_t cpus;

	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	assert_int_equal(spill_start(spill, &cpus), 0);
}

/* Let a batch begin in slots: parts of odd sizes at addresses that are not aligned. */
static void
use_slots(struct journal_batch *b, unsigned int table, unsigned int k)
{
	struct iovec *part = in_slot[table][k];
	const uint8_t *from = b->body;
	unsigned int i;

	if (slots[table][k] == NULL)
		slots[table][k] = malloc(b->body_bytes + 2 * nb_parts);
	assert_non_null(slots[table][k]);
	b->in_slot = part;
	b->nb_references = nb_parts - 1;
	b->nb_parts = nb_parts;
	for (i = 0; i < nb_parts - 1; from += part[i++].iov_len) {
		part[i].iov_base = i == 0
			? slots[table][k] + 1
			: (uint8_t *)part[i - 1].iov_base + part[i - 1].iov_len + 2;
		part[i].iov_len = (b->body_bytes / nb_parts - 2 * i) | 1;
		memcpy(part[i].iov_base, from, part[i].iov_len);
	}
	b->rest_bytes = b->body + b->body_bytes - from;
	b->body += b->body_bytes - b->rest_bytes;
}

/*
 * Spill a batch. In this test the batches of `images` have higher numbers than those of `frames`.
 */
static void
put_into(struct spill *spill, unsigned int index, const struct journal_run *of, unsigned int table,
	unsigned int k)
{
	struct xfer_sample_batch *from = &s.batch[table][k];
	struct journal_batch b = {
		.sequence = from->batch.sequence,
		.rows = from->batch.rows,
		.first = from->batch.first,
		.last = from->batch.last,
		.received = from->batch.received,
		.body_bytes = from->batch.body_bytes,
		.body_crc32c = from->batch.body_crc32c,
		.run = index,
		.table = table,
		.metadata = from->metadata,
		.body = from->body,
		.rest_bytes = from->batch.body_bytes,
		.nb_parts = 1,
	};

	if (nb_parts > 0)
		use_slots(&b, table, k);
	spill_put(spill, table * XFER_SAMPLE_BATCHES + k, &b, of);
}

static void
put(struct spill *spill, unsigned int table, unsigned int k)
{
	put_into(spill, 3, &run, table, k);
}

static unsigned int
take(struct spill *spill)
{
	struct spill_result result[SPILL_BATCHES];
	unsigned int i, n = spill_results(spill, result, SPILL_BATCHES);

	for (i = 0; i < n; i++) {
		durable[result[i].batch] = result[i].durable;
		nb_damaged += result[i].damaged;
	}
	return n;
}

/* Spill `nb` batches of each table, and wait for all results. @return how many are durable */
static unsigned int
put_all(struct spill *spill, unsigned int nb)
{
	const uint64_t limit = xfer_qp_clock() + SECONDS * 1000;
	unsigned int k, table, results = 0, good = 0;

	memset(durable, 0, sizeof(durable));
	for (k = 0; k < nb; k++) {
		for (table = 0; table < ARROW_TABLES; table++) {
			while (!spill_has_room(spill) && xfer_qp_clock() < limit)
				results += take(spill);
			put(spill, table, k);
		}
	}
	while (results < 2 * nb && xfer_qp_clock() < limit)
		results += take(spill);
	assert_int_equal(results, 2 * nb);
	for (k = 0; k < 2 * XFER_SAMPLE_BATCHES; k++)
		good += durable[k];
	return good;
}

static void
close_run(struct spill *spill)
{
	const uint64_t limit = xfer_qp_clock() + SECONDS * 1000;

	while (!spill_close_run(spill, 3))
		assert_true(xfer_qp_clock() < limit);
}

/* Whether the files are locked, so that they cannot be imported. */
static bool
is_locked(void)
{
	char path[128];
	bool locked;
	int fd;

	snprintf(path, sizeof(path), DIR_OF "/" DIR_LOCK_NAME, root);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	locked = file_lock(fd, 0) < 0;
	close(fd);
	return locked;
}

/* Number of batches in a file, which is named as a store would name it. */
static size_t
look(unsigned int table)
{
	const char *problem;
	struct arrow_reader r;
	char path[192];
	size_t i, n;

	snprintf(path, sizeof(path), DIR_OF "/sample_fedcba9876543210_000001_%s.arrow", root,
		arrow_table_name(table));
	assert_int_equal(arrow_reader_open(&r, path, &problem), 0);
	assert_true(r.complete);
	for (i = 0; i < r.nb_batches; i++) {
		assert_int_equal(arrow_reader_crc(&r, i), 1);
		assert_int_equal(strtoull(r.batches[i].sequence, NULL, 16),
			s.batch[table][i].batch.sequence);
	}
	n = r.nb_batches;
	arrow_reader_close(&r);
	return n;
}

static int
clean(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s/*", root);
	return system(command);
}

static void
test_all(void **state)
{
	const unsigned int nb = s.nb[0] < s.nb[1] ? s.nb[0] : s.nb[1];
	struct spill *spill = open_spill(0);

	dir_syncs_begin(root);
	start(spill);
	assert_int_equal(put_all(spill, nb), 2 * nb);
	/* batches are durable only once their run's directory is */
	assert_true(dir_syncs() > 0);
	spill_pause(spill);
	assert_true(is_locked());
	close_run(spill);
	assert_false(is_locked());
	assert_int_equal(look(0), nb);
	assert_int_equal(look(1), nb);
	spill_destroy(spill);
}

/* Read the file of a table. @param size  out, bytes */
static uint8_t *
read_file(unsigned int table, size_t *size)
{
	uint8_t *bytes;
	char path[192];
	FILE *f;

	snprintf(path, sizeof(path), DIR_OF "/sample_fedcba9876543210_000001_%s.arrow", root,
		arrow_table_name(table));
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	*size = ftell(f);
	rewind(f);
	bytes = malloc(*size);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, *size, f), *size);
	fclose(f);
	return bytes;
}

/* A file of batches whose bodies are in slots is the same as one of contiguous batches. */
static void
test_parts(void **state)
{
	const unsigned int nb = s.nb[0] < s.nb[1] ? s.nb[0] : s.nb[1];
	uint8_t *bytes[2][ARROW_TABLES];
	size_t size[2][ARROW_TABLES];
	struct spill *spill;
	unsigned int i, k;

	for (k = 0; k < 2; k++) {
		assert_int_equal(clean(state), 0);
		nb_parts = k == 0 ? 0 : PARTS_MAX;
		spill = open_spill(0);
		start(spill);
		assert_int_equal(put_all(spill, nb), 2 * nb);
		close_run(spill);
		spill_destroy(spill);
		for (i = 0; i < ARROW_TABLES; i++)
			bytes[k][i] = read_file(i, &size[k][i]);
	}
	nb_parts = 0;
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(look(i), nb);
		assert_int_equal(size[0][i], size[1][i]);
		assert_memory_equal(bytes[0][i], bytes[1][i], size[0][i]);
		free(bytes[0][i]);
		free(bytes[1][i]);
		for (k = 0; k < nb; k++)
			free(slots[i][k]);
	}
}

/* A body that is damaged in the journal is spilled unchanged, and reported. */
static void
test_damaged(void **state)
{
	struct spill *spill = open_spill(0);

	nb_damaged = 0;
	s.batch[1][0].body[0] ^= 1;
	start(spill);
	assert_int_equal(put_all(spill, 1), 2);
	assert_int_equal(nb_damaged, 1);
	s.batch[1][0].body[0] ^= 1;
	close_run(spill);
	spill_destroy(spill);
}

static void
test_limit(void **state)
{
	const unsigned int nb = s.nb[0] < s.nb[1] ? s.nb[0] : s.nb[1];
	struct spill *spill = open_spill(XFER_BLOCK + s.batch[0][0].batch.body_bytes);
	struct spill_stats stats;

	start(spill);
	/* at most one of each table: preallocated room counts */
	assert_in_range(put_all(spill, nb), 1, 2);
	spill_stats_get(spill, &stats);
	assert_int_equal(stats.error, -EDQUOT);
	assert_true(stats.again >= 2 * nb - 2);
	spill_destroy(spill);
}

/*
 * The directory of one run cannot be created, while another run is spilled: each batch of the
 * former is given back, also between the attempts.
 */
static void
test_no_directory(void **state)
{
	const uint64_t limit = xfer_qp_clock() + SECONDS * 1000;
	struct journal_run other = run;
	struct spill *spill = open_spill(0);
	unsigned int k, results = 0;
	char path[128];
	int fd;

	other.run++;
	snprintf(path, sizeof(path), "%s/sample-0123456789abcdef-%016llx", root,
		(unsigned long long)other.run);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
	start(spill);
	assert_int_equal(put_all(spill, 1), 2);
	memset(durable, 1, sizeof(durable));
	for (k = 0; k < 4; k++) {
		put_into(spill, 4, &other, 0, k);
		while (results == k && xfer_qp_clock() < limit)
			results += take(spill);
		assert_int_equal(results, k + 1);
		assert_false(durable[k]);
	}
	spill_destroy(spill);
}

static bool
has(const struct spill *spill, uint8_t table, const struct xfer_sample_batch *b, uint32_t change)
{
	const struct journal_batch held = {
		.sequence = b->batch.sequence,
		.body_crc32c = b->batch.body_crc32c ^ change,
		.metadata_crc32c = arrow_crc32c(0, b->metadata, XFER_BLOCK),
		.table = table,
		.run = 3,
	};

	assert_int_equal(spill_has(spill, &held), spill_has_same(spill, &held) || change != 0);
	return spill_has_same(spill, &held);
}

/* Batches that a killed process has spilled are not spilled again. */
static void
test_adopt(void **state)
{
	struct spill *spill = open_spill(0);
	struct interval_set held = {0};
	unsigned int i;

	start(spill);
	assert_int_equal(put_all(spill, 3), 6);
	spill_destroy(spill);
	spill = open_spill(0);
	assert_int_equal(spill_adopt_run(spill, 3, &run), 0);
	assert_true(is_locked());
	assert_true(has(spill, 0, &s.batch[0][2], 0));
	assert_true(has(spill, 1, &s.batch[1][0], 0));
	assert_false(has(spill, 0, &s.batch[0][3], 0));
	/* another batch of that number */
	assert_false(has(spill, 0, &s.batch[0][2], 1));
	for (i = 0; i < ARROW_TABLES; i++) {
		assert_int_equal(interval_set_add(&held, 0, 1000), 0);
		assert_int_equal(spill_check(spill, 3, i, &held), 0);
		interval_set_free(&held);
	}
	start(spill);
	assert_int_equal(put_all(spill, 3), 6);
	close_run(spill);
	assert_int_equal(look(0), 3);
	spill_destroy(spill);
}

/* The lock of the directory, and the files of both tables. */
static void
name_files(char path[3][192])
{
	unsigned int i;

	snprintf(path[0], sizeof(path[0]), DIR_OF "/" DIR_LOCK_NAME, root);
	for (i = 0; i < 2; i++)
		snprintf(path[1 + i], sizeof(path[0]),
			DIR_OF "/sample_fedcba9876543210_000001_%s.arrow", root,
			arrow_table_name(i));
}

/*
 * Users who may read files lock them for reading: the lock file of an older version, a file and an
 * incomplete file. A receiver that adopts the run still spills to it.
 */
static void
test_adopt_read_locked(void **state)
{
	const struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	char path[3][192], part[200];
	struct spill *spill = open_spill(0);
	unsigned int i;
	int fd[3];

	start(spill);
	assert_int_equal(put_all(spill, 3), 6);
	spill_destroy(spill);
	name_files(path);
	for (i = 0; i < 3; i++) {
		fd[i] = open(path[i], O_RDONLY);
		assert_int_equal(fcntl(fd[i], F_OFD_SETLK, &whole), 0);
	}
	snprintf(part, sizeof(part), "%s.part", path[2]);
	assert_int_equal(rename(path[2], part), 0);
	spill = open_spill(0);
	assert_int_equal(spill_adopt_run(spill, 3, &run), 0);
	assert_true(is_locked());
	assert_true(has(spill, 0, &s.batch[0][2], 0));
	assert_true(has(spill, 1, &s.batch[1][2], 0));
	spill_destroy(spill);
	for (i = 0; i < 3; i++)
		close(fd[i]);
}

/*
 * The same with a lock that outlives the process: of the directory, of a file, of an incomplete
 * file.
 */
static void
test_adopt_locked(void **state)
{
	char path[3][192], part[200];
	struct spill *spill = open_spill(0);
	unsigned int i;

	start(spill);
	assert_int_equal(put_all(spill, 3), 6);
	spill_destroy(spill);
	name_files(path);
	for (i = 0; i < 3; i++) {
		(void)left_lock(path[i], LEFT_MS);
		if (i == 2) {
			snprintf(part, sizeof(part), "%s.part", path[i]);
			assert_int_equal(rename(path[i], part), 0);
		}
		spill = open_spill(0);
		assert_int_equal(spill_adopt_run(spill, 3, &run), 0);
		assert_true(has(spill, 0, &s.batch[0][2], 0));
		assert_true(has(spill, 1, &s.batch[1][2], 0));
		spill_destroy(spill);
	}
}

/* Frames 100, 102 ... 178 were seen; rows of those up to 162 are in the journal. */
static void
test_resumed(void **state)
{
	const struct ledger_kept before = {
		.version = LEDGER_KEPT_VERSION,
		.running = 1,
		.stride = 2,
		.first_frame = 100,
		.last_frame = 178,
		.retained_frame = 162,
	};
	struct ledger_kept none = before, kept;
	struct ledger l = {.frames = 10, .stored = 10, .hits = 10, .records = 10};

	/* our first frame has not arrived */
	ledger_resume(&l, &before, 0);
	assert_int_equal(l.frames, 10);
	ledger_resume(&l, &before, 200);
	assert_int_equal(l.lost_at_restart, 8);
	assert_int_equal(l.lost_while_down, 10);
	assert_int_equal(l.frames, 28);
	assert_int_equal(l.in_flight, 0);
	assert_true(l.frames_balance);
	ledger_keep(&l, &kept);
	assert_int_equal(kept.columns[0], 28);
	assert_int_equal(kept.columns[1], 10);
	/* the detector has restarted */
	l = (struct ledger){.frames = 10, .stored = 10, .hits = 10, .records = 10};
	ledger_resume(&l, &before, 2);
	assert_int_equal(l.lost_at_restart, 8);
	assert_int_equal(l.lost_while_down, 0);
	assert_true(l.frames_balance);
	/* no rows were in the journal */
	none.retained_frame = 0;
	l = (struct ledger){0};
	ledger_resume(&l, &none, 180);
	assert_int_equal(l.lost_at_restart, 40);
	/* a receiver in between was killed before its first frame: it has no effect */
	kept = (struct ledger_kept){.version = LEDGER_KEPT_VERSION, .stride = 2};
	ledger_pass_on(&kept, &before);
	l = (struct ledger){0};
	ledger_resume(&l, &kept, 200);
	assert_int_equal(l.lost_at_restart, 8);
	assert_int_equal(l.lost_while_down, 10);
	kept.first_frame = 0;
	ledger_pass_on(&kept, &none);
	l = (struct ledger){0};
	ledger_resume(&l, &kept, 180);
	assert_int_equal(l.lost_at_restart, 40);
	/* nor had the first receiver any frame */
	kept = (struct ledger_kept){.version = LEDGER_KEPT_VERSION};
	l = (struct ledger){0};
	ledger_resume(&l, &kept, 180);
	assert_int_equal(l.lost_at_restart + l.lost_while_down, 0);
}

int
main(void)
{
	const char *eal[] = {"spill", "--no-huge", "-m", "64", "--no-pci", "--no-shconf", "-l", "0",
		"--no-telemetry", "--log-level", "lib.eal:warning"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_all, clean),
		cmocka_unit_test_setup(test_parts, clean),
		cmocka_unit_test_setup(test_damaged, clean),
		cmocka_unit_test_setup(test_limit, clean),
		cmocka_unit_test_setup(test_no_directory, clean),
		cmocka_unit_test_setup(test_adopt, clean),
		cmocka_unit_test_setup(test_adopt_read_locked, clean),
		cmocka_unit_test_setup(test_adopt_locked, clean),
		cmocka_unit_test(test_resumed),
	};
	const char *text = getenv("XFER_SEED");
	const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	const struct arrow_identity id = xfer_sample_identity(0);
	unsigned int i;
	size_t size;
	int ret;

	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	snprintf(root, sizeof(root), "/tmp/braggline-spill-XXXXXX");
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
	(void)clean(NULL);
	rmdir(root);
	rte_eal_cleanup();
	return ret;
}
