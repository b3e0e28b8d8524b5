/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A receiver adopts a journal with damaged batches: their bytes go to a quarantine file, and their
 * frames to the ledger, also if the receiver is killed between any two stores to the journal.
 */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/tables.h"
#include "egress/damaged_batches.h"
#include "egress/kept_ledger.h"
#include "journal/journal_private.h"

#define RECEIVER_ID 0x77
#define RETAINED    100 /* last frame whose row was put */
#define HELD	    50	/* images of earlier receivers, in their ledgers */
#define BODY	    (2 * XFER_BLOCK)
#define STATUS_CRC  4 /* byte of a record */

/* Runs in the journal. */
enum {
	DEAD,
	EARLIER,
	OTHER,
	RUNS
};

static char path[64], directory[64];
static char message[PATH_MAX];
static uint8_t schema[XFER_BLOCK];
static unsigned int steps, kill_at;
static bool in_slots;	 /* the first half of each body is in two slots */
#define IN_FIRST    1000 /* bytes in the first of these slots */
#define FIRST_BEGIN 96	 /* where they begin */

/* The batches, all with 10 rows. */
static const struct one {
	unsigned int run;
	unsigned int table;
	uint64_t last;
	int at; /* byte to change: in the record from 0 to 127, after it in metadata and body */
	const char *text;
} batches[] = {
	{DEAD, ARROW_IMAGES, 9, 128 + XFER_BLOCK, "its body is damaged; run run, images 0"},
	{DEAD, ARROW_FRAMES, 9, 128 + 5, "its metadata is damaged; run run, frames 1"},
	{DEAD, ARROW_IMAGES, 19, -1, ""},
	{DEAD, ARROW_IMAGES, RETAINED, 16, "its record is damaged; run run, images 3"},
	/* its rows were not put: its frames are lost at the restart */
	{DEAD, ARROW_IMAGES, RETAINED + 1, 128 + 1, "images 4"},
	{EARLIER, ARROW_IMAGES, 200, 128 + 2, "run run, images 5"},
	{OTHER, ARROW_IMAGES, 9, 128 + 3, "run other, images 6"},
	{OTHER, ARROW_IMAGES, 9, -1, ""},
};
#define NB (sizeof(batches) / sizeof(batches[0]))

static uint32_t
column(const char *name)
{
	uint32_t i;

	for (i = 0; i < LEDGER_COLUMNS; i++) {
		if (strcmp(ledger_column_name(i), name) == 0)
			return i;
	}
	fail();
	return 0;
}

static void
on_step(void *arg)
{
	if (++steps == kill_at)
		raise(SIGKILL);
}

static struct journal *
open_journal(int wanted)
{
	const struct journal_config c = {.path = path,
		.receiver_id = RECEIVER_ID,
		.bytes = 40 * XFER_BLOCK,
		.batches = 20,
		.slot_bytes = in_slots ? XFER_BLOCK : 0,
		.slots = in_slots ? 2 * NB + 4 : 0,
		.step = on_step};
	struct journal *r;

	assert_int_equal(journal_open(&r, &c, message), wanted);
	return r;
}

static void
add_run(struct journal *r, unsigned int index)
{
	struct journal_run run = {.run = index == OTHER ? 2 : 1,
		.incarnation = 10 + index,
		.schema = {schema, schema},
		.schema_bytes = {XFER_BLOCK, XFER_BLOCK},
		.body_max = {BODY, BODY}};

	strcpy(run.name, index == OTHER ? "other" : "run");
	assert_int_equal(journal_run_add(r, &run), index);
}

/* Refer to the two slots that the first half of a body is in. */
static void
refer(struct journal *r, struct journal_batch *b, unsigned int i)
{
	struct journal_reference reference[2] = {
		{.offset = FIRST_BEGIN, .bytes = IN_FIRST}, {.bytes = XFER_BLOCK - IN_FIRST}};
	uint64_t slot_bytes;
	uint32_t slots, k;
	uint8_t *area = journal_area(r, &slot_bytes, &slots);

	for (k = 0; k < 2; k++) {
		reference[k].slot = journal_slot_take(r);
		assert_int_equal(reference[k].slot, 2 * i + k);
		memset(area + reference[k].slot * slot_bytes + reference[k].offset, 100 + i,
			reference[k].bytes);
	}
	b->rest_bytes = BODY - XFER_BLOCK;
	journal_refer(r, b, reference, 2);
}

static void
put(struct journal *r, unsigned int i)
{
	struct journal_batch b = {.sequence = i,
		.rows = 10,
		.first = batches[i].last - 9,
		.last = batches[i].last,
		.body_bytes = BODY,
		.run = batches[i].run,
		.table = batches[i].table};
	uint8_t *to = journal_reserve(r, BODY);

	assert_non_null(to);
	memset(to, 100 + i, XFER_BLOCK + BODY);
	b.body_crc32c = arrow_crc32c(0, to + XFER_BLOCK, BODY);
	if (in_slots)
		refer(r, &b, i);
	else
		journal_fill(r, &b);
	assert_int_equal(journal_commit(r, &b), i);
}

static void
change(uint64_t at, uint8_t bits)
{
	const int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= bits;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* Where the room of a batch is in the file: of the same size with and without references. */
static uint64_t
room_at(const struct ring_header *h, unsigned int i)
{
	return h->data_at + i * (XFER_BLOCK + BODY);
}

static uint64_t
area_at(const struct ring_header *h)
{
	return h->data_at + h->data_size;
}

/*
 * A journal whose receiver was killed, with damage.
 * @param known  of the record, only the status is damaged
 */
static void
make_journal(bool known)
{
	struct ledger_kept kept = {.version = LEDGER_KEPT_VERSION,
		.running = 1,
		.run = 1,
		.incarnation = 10 + DEAD,
		.stride = 1,
		.retained_frame = RETAINED,
		.next_sequence = LEDGER_NONE,
		.name = "run"};
	struct ring_header h;
	struct journal *r;
	unsigned int i;
	int fd;

	unlink(path);
	kept.retained[column("hits")] = 90;
	kept.retained[column("unwritten")] = 1;
	kept.earlier[column("held")] = HELD;
	kill_at = 0;
	r = open_journal(0);
	for (i = 0; i < RUNS; i++)
		add_run(r, i);
	for (i = 0; i < NB; i++)
		put(r, i);
	journal_ledger_put(r, &kept, sizeof(kept));
	journal_close(r);
	fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	close(fd);
	for (i = 0; i < NB; i++) {
		if (in_slots && batches[i].at >= 128 + XFER_BLOCK)
			change(area_at(&h) + 2 * i * XFER_BLOCK + FIRST_BEGIN + batches[i].at -
					(128 + XFER_BLOCK),
				1);
		else if (batches[i].at >= 128)
			change(room_at(&h, i) + batches[i].at - 128, 1);
		else if (batches[i].at >= 0)
			/* one wrong bit would be corrected */
			change(h.batches_at + i * sizeof(struct ring_batch) +
					(known ? STATUS_CRC : batches[i].at),
				3);
	}
}

static int
take_out(struct damaged_batches *found)
{
	struct ledger_kept before = {0};
	struct journal *r = open_journal(1);
	int ret;

	kept_ledger_before(&before, r);
	ret = damaged_batches_remove(r, directory, &before, found);
	journal_close(r);
	return ret;
}

static void
check_ledger(const struct journal *r, bool known)
{
	struct ledger_kept kept = {0};

	kept_ledger_before(&kept, r);
	assert_int_equal(kept.damaged_batch, 0);
	assert_int_equal(kept.retained[column("hits")], 90);
	assert_int_equal(kept.retained[column("unwritten")], 1 + (known ? 20 : 10));
	assert_int_equal(kept.retained[column("unwritten_rows")], 10);
	assert_int_equal(kept.earlier[column("held")], HELD - 10);
	assert_int_equal(kept.earlier[column("unwritten")], 10);
	assert_int_equal(kept.earlier[column("unwritten_rows")], 0);
}

/* The sound batches are held, and the rest is free. */
static void
check_journal(bool known)
{
	struct journal *r = open_journal(1);
	struct iovec part[JOURNAL_PARTS];
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t at = 0, batch, n = 0;

	assert_int_equal(journal_damage_next(r, 0), UINT32_MAX);
	while ((batch = journal_walk(r, &at)) != UINT32_MAX) {
		assert_true(journal_get(r, batch, &b));
		assert_int_equal(batches[b.sequence].at, -1);
		assert_int_equal(journal_parts(&b, part), in_slots ? 3 : 1);
		assert_int_equal(*(uint8_t *)part[0].iov_base, 100 + b.sequence);
		n++;
	}
	assert_int_equal(n, 2);
	check_ledger(r, known);
	journal_stats_get(r, &stats);
	assert_int_equal(stats.damaged, 0);
	assert_non_null(journal_reserve(r, XFER_BLOCK));
	journal_close(r);
}

/* Read a quarantine file. @return its size; 0: there is none */
static size_t
read_file(unsigned int number, char **content)
{
	char name[128], end[16] = "";
	struct stat st;
	int fd;

	if (number > 1)
		snprintf(end, sizeof(end), ".%u", number);
	snprintf(name, sizeof(name), "%s/journal-%016x.quarantine%s", directory, RECEIVER_ID, end);
	fd = open(name, O_RDONLY);
	if (fd < 0)
		return 0;
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
	*content = calloc(1, st.st_size + 1);
	assert_int_equal(read(fd, *content, st.st_size), st.st_size);
	close(fd);
	return st.st_size;
}

/* The file has the damaged batches, and no others unless one of their positions is unknown. */
static void
check_file(unsigned int number, bool known)
{
	char *content, *head, *at;
	unsigned int bytes, i, n = 0, seen[NB] = {0};
	const size_t size = read_file(number, &content);

	assert_true(size > 0);
	for (at = content; at < content + size; at += bytes) {
		head = at;
		assert_int_equal(sscanf(head, "bytes = %u\n", &bytes), 1);
		at += 512;
		assert_true(bytes % XFER_BLOCK == 0 && at + bytes <= content + size);
		for (i = 0; i < bytes; i++) {
			if ((uint8_t)at[i] >= 100 && (uint8_t)at[i] < 100 + NB)
				seen[(uint8_t)at[i] - 100]++;
		}
		if (strstr(head, "free space") != NULL) {
			assert_false(known);
			continue;
		}
		while (batches[n].at < 0)
			n++;
		if (known || batches[n].at >= 128)
			assert_non_null(strstr(head, batches[n].text));
		else
			assert_non_null(strstr(head, "its frames are unknown"));
		/* the record, as it is in the journal */
		assert_int_equal(head[512 - 128], BATCH_HELD);
		n++;
	}
	for (i = 0; i < NB; i++) {
		if (batches[i].at < 0)
			assert_true(seen[i] < 10); /* changed bytes of other batches */
		else
			assert_true(seen[i] >= XFER_BLOCK + BODY - 1);
	}
	free(content);
}

static void
clean(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	assert_int_equal(system(command), 0);
}

static void
test_take_out(void **state)
{
	struct damaged_batches found;
	char *content;
	unsigned int known, i;

	/* with two wrong bits in a record, nothing is known about the batch */
	for (i = 0; i < 4; i++) {
		known = i % 2;
		in_slots = i / 2;
		clean();
		make_journal(known);
		assert_int_equal(take_out(&found), 0);
		assert_int_equal(found.batches, NB - 2);
		assert_int_equal(found.frames, known ? 50 : 40);
		check_file(1, known);
		check_journal(known);
		/* nothing is left to be done */
		assert_int_equal(take_out(&found), 0);
		assert_int_equal(found.batches, 0);
		assert_int_equal(read_file(2, &content), 0);
		/* an earlier file stays */
		make_journal(known);
		assert_int_equal(take_out(&found), 0);
		check_file(1, known);
		check_file(2, known);
	}
	in_slots = false;
	clean();
}

/* A batch whose references are lost: its bytes are in the free space and in the free slots. */
static void
test_lost_references(void **state)
{
	struct damaged_batches found;
	struct ring_header h;
	struct journal *r;
	char *content;
	size_t size, k;
	unsigned int i, seen[NB] = {0};
	int fd;

	clean();
	unlink(path);
	in_slots = true;
	r = open_journal(0);
	for (i = 0; i < RUNS; i++)
		add_run(r, i);
	for (i = 0; i < NB; i++)
		put(r, i);
	journal_close(r);
	fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	close(fd);
	change(room_at(&h, 2) + XFER_BLOCK, 3);
	assert_int_equal(take_out(&found), 0);
	assert_int_equal(found.batches, 1);
	assert_int_equal(found.frames, 10);
	size = read_file(1, &content);
	assert_non_null(strstr(content, "its table of references is damaged; run run, images 2"));
	for (k = 0; k < size; k++) {
		if ((uint8_t)content[k] >= 100 && (uint8_t)content[k] < 100 + NB)
			seen[(uint8_t)content[k] - 100]++;
	}
	/* letters in the heads are also counted */
	assert_true(seen[2] >= XFER_BLOCK + BODY);
	for (i = 0; i < NB; i++)
		assert_true(i == 2 || seen[i] < IN_FIRST);
	free(content);
	/* the slots are free again */
	r = open_journal(1);
	for (i = 0; journal_slot_take(r) != JOURNAL_NO_SLOT; i++)
		;
	assert_int_equal(i, 2 + 4);
	journal_close(r);
	in_slots = false;
	clean();
}

static void
test_kill(void **state)
{
	struct damaged_batches found;
	unsigned int i, killed = 0;
	int status;
	pid_t pid;

	for (i = 1; i < 1000; i++) {
		clean();
		make_journal(true);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			steps = 0;
			kill_at = i;
			_exit(take_out(&found) != 0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			break;
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		killed++;
		kill_at = 0;
		assert_int_equal(take_out(&found), 0);
		check_journal(true);
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	/* a ledger of three steps and a record for each of them */
	assert_true(killed >= 4 * (NB - 2));
	clean();
}

/* If the bytes cannot be saved, the journal is not changed. */
static void
test_no_room(void **state)
{
	struct damaged_batches found;
	struct journal *r;
	unsigned int n = 0;
	uint32_t i;
	FILE *f;

	clean();
	make_journal(true);
	f = fopen(directory, "w");
	assert_non_null(f);
	fclose(f);
	assert_true(take_out(&found) < 0);
	r = open_journal(1);
	for (i = journal_damage_next(r, 0); i != UINT32_MAX; i = journal_damage_next(r, i + 1))
		n++;
	assert_int_equal(n, NB - 2);
	journal_close(r);
	clean();
	assert_int_equal(take_out(&found), 0);
	check_journal(true);
	clean();
}

/* Make a journal in which one record is changed. Two stores may have its batch. */
static void
make_doubt(unsigned int i, bool held, size_t at, uint8_t bits)
{
	struct ring_header h;
	struct journal *r;
	unsigned int k;
	int fd;

	unlink(path);
	kill_at = 0;
	r = open_journal(0);
	for (k = 0; k < RUNS; k++)
		add_run(r, k);
	for (k = 0; k < NB; k++)
		put(r, k);
	for (k = 0; k < 3; k++)
		assert_int_equal(journal_store_add(r, "10.0.0.1:1", 60 + k), k);
	for (k = 0; k < 2; k++) {
		journal_assign(r, i, k);
		journal_give(r, i);
	}
	if (!held)
		journal_release(r, i);
	journal_close(r);
	fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	close(fd);
	change(h.batches_at + i * sizeof(struct ring_batch) + at, bits);
}

/* A record of which two stores may have the batch is lost: both are named. */
static void
test_doubt(void **state)
{
	struct damaged_batches found;
	unsigned int held;

	for (held = 0; held < 2; held++) {
		clean();
		make_doubt(2, held, offsetof(struct ring_batch, sequence), 10);
		assert_int_equal(take_out(&found), 0);
		assert_int_equal(found.batches, 1);
		assert_int_equal(found.doubts, 1);
		assert_int_equal(found.stores, 3);
		/* its status is lost: any store may have it */
		make_doubt(2, held, STATUS_CRC, 3);
		assert_int_equal(take_out(&found), 0);
		assert_int_equal(found.doubts, 1);
		assert_int_equal(found.stores, 7);
		/* one bit is corrected */
		make_doubt(2, held, offsetof(struct ring_batch, sequence), 8);
		assert_int_equal(take_out(&found), 0);
		assert_int_equal(found.batches, 0);
		assert_int_equal(found.doubts, 0);
	}
	clean();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_take_out),
		cmocka_unit_test(test_lost_references),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_doubt),
	};
	int ret;

	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	snprintf(path, sizeof(path), "/dev/shm/braggline-damaged-%d", getpid());
	snprintf(directory, sizeof(directory), "/dev/shm/braggline-damaged-%d.d", getpid());
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return ret;
}
