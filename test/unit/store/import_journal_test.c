/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Imports batches of a journal into a store's directory: a batch whose body is in slots of the
 * journal becomes the same file as one whose body is in the room.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "journal/journal_private.h"
#include "tools/import.h"
#include "../xfer/xfer_sample.h"

#define RECEIVER_ID 0x0123456789abcdefull
#define BATCHES	    12
#define SLOTS	    80
#define SLOT_BYTES  (2 * XFER_BLOCK)
#define PARTS	    5 /* maximum number of parts in slots */

static struct xfer_sample s;
static char folder[64], path[80], message[PATH_MAX];
static struct journal_run run;

/* Cut a body into parts of odd sizes, and put it into slots as far as they go. */
static void
put(struct journal *r, unsigned int index, const struct xfer_sample_batch *from, bool in_slots)
{
	struct journal_reference reference[PARTS];
	struct journal_batch b = {
		.sequence = from->batch.sequence,
		.rows = from->batch.rows,
		.first = from->batch.first,
		.last = from->batch.last,
		.received = from->batch.received,
		.body_bytes = from->batch.body_bytes,
		.body_crc32c = from->batch.body_crc32c,
		.run = index,
		.table = ARROW_IMAGES,
	};
	uint64_t at = 0, slot_bytes;
	uint32_t n = 0, slots;
	uint8_t *area = journal_area(r, &slot_bytes, &slots), *to;

	for (; in_slots && n < PARTS && at < b.body_bytes; at += reference[n++].bytes) {
		reference[n] = (struct journal_reference){
			.slot = journal_slot_take(r), .offset = 64 * n, .bytes = 3001 + 1024 * n};
		assert_int_not_equal(reference[n].slot, JOURNAL_NO_SLOT);
		if (reference[n].bytes > b.body_bytes - at)
			reference[n].bytes = b.body_bytes - at;
		memcpy(area + reference[n].slot * slot_bytes + reference[n].offset, from->body + at,
			reference[n].bytes);
	}
	b.rest_bytes = b.body_bytes - at;
	to = journal_reserve(r, (n > 0) * XFER_BLOCK + b.rest_bytes);
	assert_non_null(to);
	memcpy(to, from->metadata, XFER_BLOCK);
	memcpy(to + (n > 0 ? 2 : 1) * XFER_BLOCK, from->body + at, b.rest_bytes);
	if (n > 0)
		journal_refer(r, &b, reference, n);
	else
		journal_fill(r, &b);
	(void)journal_commit(r, &b);
}

static void
make_journal(bool in_slots)
{
	const struct journal_config c = {.path = path,
		.receiver_id = RECEIVER_ID,
		.bytes = 8 << 20,
		.batches = 64,
		.slot_bytes = in_slots ? SLOT_BYTES : 0,
		.slots = in_slots ? SLOTS : 0};
	struct journal *r;
	unsigned int i;
	int index;

	unlink(path);
	if (journal_open(&r, &c, message) < 0)
		fail_msg("%s", message);
	index = journal_run_add(r, &run);
	assert_true(index >= 0);
	for (i = 0; i < BATCHES; i++)
		put(r, index, &s.batch[ARROW_IMAGES][i], in_slots);
	journal_close(r);
}

static void
say(void *arg, bool error, const char *text)
{
	if (error)
		fprintf(stderr, "%s\n", text);
}

/*
 * Import the journal as braggline-store import does.
 * @param damaged  a bit in a slot changes after the journal was opened
 */
static void
import(const char *root, bool damaged)
{
	struct import import = {.root = root, .say = say};
	struct journal_stats stats;
	struct journal *r;

	assert_int_equal(mkdir(root, 0700), 0);
	if (journal_open_existing(&r, path, message) < 0)
		fail_msg("%s", message);
	if (damaged)
		r->area[0] ^= 1;
	assert_int_equal(import_compare_sources(&import), 0);
	assert_int_equal(import_compare_journal(&import, r), 0);
	import_compare_end(&import);
	journal_repair(r);
	assert_int_equal(import_journal(&import, r), damaged ? -EIO : 0);
	assert_int_equal(import.counts.stored, BATCHES - damaged);
	assert_int_equal(import.counts.failed, damaged);
	import_free(&import);
	/* the damaged batch stays in the journal */
	journal_stats_get(r, &stats);
	assert_int_equal(stats.batches, damaged);
	assert_int_equal(stats.slots_held > 0, damaged);
	journal_close(r);
}

static void
test_import(void **state)
{
	char root[2][96], command[400];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		snprintf(root[i], sizeof(root[i]), "%s/store-%u", folder, i);
		make_journal(i);
		import(root[i], false);
	}
	snprintf(command, sizeof(command), "diff -r %s %s && find %s -name '*.arrow' | grep -q .",
		root[0], root[1], root[0]);
	assert_int_equal(system(command), 0);
}

static void
test_damaged(void **state)
{
	char root[96];

	snprintf(root, sizeof(root), "%s/damaged", folder);
	make_journal(true);
	import(root, true);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_import),
		cmocka_unit_test(test_damaged),
	};
	const struct arrow_identity id = xfer_sample_identity(ARROW_IMAGES);
	uint8_t *header[ARROW_TABLES];
	char command[128];
	unsigned int i;
	size_t size;
	int ret;

	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	snprintf(folder, sizeof(folder), "/dev/shm/braggline-import.XXXXXX");
	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/journal", folder);
	xfer_sample_init(&s, 1, 4 * BATCHES);
	run = (struct journal_run){.run = id.run, .incarnation = id.incarnation, .name = "sample"};
	for (i = 0; i < ARROW_TABLES; i++) {
		if (arrow_header_build(&s.tables.schema[i], &header[i], &size) < 0)
			return 1;
		run.schema[i] = header[i];
		run.schema_bytes[i] = size;
		run.body_max[i] = 1 << 20;
	}
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	xfer_sample_free(&s);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command) == 0 ? ret : 1;
}
