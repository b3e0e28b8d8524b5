/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the hand-over of batches from the writer to the egress lcore: batches are built in rooms of
 * the journal, in many rounds of it; the journal is full; the receiver is killed at any moment. The
 * tests run a second time with output slots in the journal, which batches of images refer to. No
 * store answers at the configured address. XFER_SEED repeats a run.
 */

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "arrow/batch.h"
#include "arrow/names.h"
#include "arrow/reader.h"
#include "egress/egress.h"
#include "xfer/qp.h"
#include "../arrow/arrow_sample.h"

#define RECEIVER_ID   0x0123456789abcdefull
#define JOURNAL_BYTES (16u << 20)
#define BYTE_LIMIT    (1500u << 10)
#define BODY_MAX      (3u << 20)
#define ROUNDS	      3 /* of the journal */
#define KILLS	      12
#define SLOTS	      40
#define PATIENCE      120 /* s */

/* Counts of the writer. The test and the killed process share them. */
static struct writer {
	struct egress *egress;
	struct batch_builder *builder;
	uint64_t put[ARROW_TABLES]; /* atomic: put without an error */
	uint64_t committed;	    /* atomic: batches in the journal */
	uint64_t rooms;
	uint64_t emitted; /* of the rooms, those of batches that were emitted */
	uint64_t references;
	uint64_t no_slot; /* images that found no free slot */
	uint64_t refused;
	uint64_t refused_max; /* limit */
	uint64_t frames;      /* limit */
	uint32_t kept;	      /* of 8 frames, those with an image */
	bool copies;	      /* it does not use the output slots of the journal */
	uint64_t bytes;	      /* limit */
	bool done;	      /* atomic */
} * w;

static struct sample s;
static struct arrow_tables tables;
static char key[64], journal[64], spill[64];
static uint64_t seed;
static uint32_t nb_slots;	  /* output slots in the journal */
static struct journal_stats left; /* of the journal that look() has opened */

static struct egress *
open_egress(const char *spill_dir, uint32_t hold_ms)
{
	const struct egress_settings settings = {
		.device = "roce:port=net_null0,ip=10.0.0.1/24",
		.stores = "10.0.0.2",
		.identity = "room",
		.key = key,
		.journal = journal,
		.journal_bytes = JOURNAL_BYTES,
		.batch_bytes = BODY_MAX,
		.rate = 1000000,
		.failover_ms = 100,
		.hold_ms = hold_ms,
		.spill = spill_dir,
		.spill_at = 30,
		.end_ms = 100,
	};
	struct egress *e;
	cpu_set_t cpus;

	assert_int_equal(
		egress_create(&e, &settings, RECEIVER_ID,
			&(struct egress_slots){nb_slots > 0 ? s.layout.stride : 0, nb_slots}),
		0);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	assert_int_equal(egress_start(e, &cpus), 0);
	return e;
}

static uint8_t *
place(void *arg, uint64_t size)
{
	uint8_t *to = egress_room(w->egress, ARROW_IMAGES, size);

	w->rooms += to != NULL;
	return to;
}

static void
emit(void *arg, const struct batch *b)
{
	const uint64_t rooms = w->rooms;
	int ret;

	if (b->table == ARROW_IMAGES && rooms > w->emitted) {
		w->emitted = rooms;
		/* each byte is copied once, to the room; raw frames are compressed to it */
		if (b->copied_bytes > b->kept_bytes)
			abort();
	}
	w->references += b->nb_references;
	ret = egress_put(w->egress, b);
	if (ret == 0) {
		w->bytes += b->body_length;
		__atomic_store_n(&w->put[b->table], w->put[b->table] + 1, __ATOMIC_RELEASE);
		return;
	}
	if (ret != -ENOSPC)
		abort();
	w->refused++;
	if (b->table == ARROW_IMAGES)
		batch_builder_disown(w->builder, b->first, b->last);
}

/* Add a frame that a gang has written to an output slot of the journal. @param slot  of the gang */
static int
add_in_journal(uint8_t *area, uint32_t *slot)
{
	const uint32_t next = egress_slot_take(w->egress);
	int ret;

	memcpy(area + *slot * s.layout.stride, s.outputs, s.layout.stride);
	s.record.out = *slot;
	ret = next != JOURNAL_NO_SLOT ? batch_builder_refer(w->builder, &s.record)
				      : batch_builder_add(w->builder, &s.record);
	w->no_slot += next == JOURNAL_NO_SLOT;
	if (ret == 1)
		*slot = next;
	else if (next != JOURNAL_NO_SLOT)
		egress_slot_return(w->egress, next);
	return ret;
}

/* Add frames up to a limit of frames or bytes. */
static void *
write_frames(void *arg)
{
	struct batch_builder_config c = sample_builder_config(&s, &tables);
	uint64_t i, slot_bytes;
	uint32_t slots, slot = JOURNAL_NO_SLOT;
	uint8_t *area = egress_area(w->egress, &slot_bytes, &slots);

	if (w->copies)
		area = NULL;
	if (area != NULL) {
		if (slot_bytes != s.layout.stride || slots < nb_slots)
			abort();
		slot = egress_slot_take(w->egress);
		c.outputs = area;
		c.nb_outputs = slots;
		c.references = JOURNAL_REFERENCES;
	}
	c.frames_interval = 8;
	c.images_interval = 4;
	c.byte_limit = BYTE_LIMIT;
	c.emit = emit;
	c.place = place;
	if (batch_builder_create(&w->builder, &c) < 0)
		abort();
	for (i = 0;
		i < w->frames && w->bytes < ROUNDS * JOURNAL_BYTES && w->refused < w->refused_max;
		i++) {
		sample_next(&s, 1, w->kept);
		if ((area != NULL && frame_verdict_is_kept(s.record.verdict)
				    ? add_in_journal(area, &slot)
				    : batch_builder_add(w->builder, &s.record)) < 0)
			abort();
	}
	batch_builder_flush(w->builder);
	if (area != NULL)
		egress_slot_return(w->egress, slot);
	batch_builder_destroy(w->builder);
	__atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void
begin(struct egress *e)
{
	const struct egress_begin run = {
		.tables = &tables,
		.run = 42,
		.incarnation = 0xfedcba9876543210ull,
		.name = "room",
		.body_max = {1 << 20, BODY_MAX},
	};
	char message[PATH_MAX];

	memset(w, 0, sizeof(*w));
	w->frames = UINT64_MAX;
	w->kept = 6;
	w->refused_max = 3;
	w->egress = e;
	if (egress_begin(e, &run, message) < 0)
		fail_msg("%s", message);
}

/* This thread is the lcore until the writer has ended. */
static void
poll_writer(struct egress *e)
{
	struct egress_view view;
	pthread_t writer;

	(void)egress_poll(e);
	assert_int_equal(pthread_create(&writer, NULL, write_frames, NULL), 0);
	while (!__atomic_load_n(&w->done, __ATOMIC_ACQUIRE)) {
		(void)egress_poll(e);
		egress_view_get(e, &view);
		__atomic_store_n(&w->committed, view.journal.put, __ATOMIC_RELEASE);
	}
	pthread_join(writer, NULL);
	egress_rest(e);
}

/*
 * Check the batches that a receiver has left behind. journal_open_existing() checks their bytes.
 * @param put  out: of each table, 1 + the last sequence number
 * @return how many
 */
static uint64_t
look(bool all, uint64_t put[ARROW_TABLES])
{
	uint64_t held[ARROW_TABLES] = {0}, rows = 0;
	struct journal_batch b;
	char message[PATH_MAX];
	struct journal *r;
	uint32_t batch, at = 0;
	uint8_t *room;

	if (journal_open_existing(&r, journal, message) < 0)
		fail_msg("%s", message);
	journal_stats_get(r, &left);
	if (left.damaged > 0)
		fail_msg("%s", message);
	memset(put, 0, ARROW_TABLES * sizeof(put[0]));
	while ((batch = journal_walk(r, &at)) != UINT32_MAX) {
		assert_true(journal_get(r, batch, &b));
		/*
		 * in the order in which they were put; the oldest may have been released, and
		 * others refused
		 */
		assert_true(b.sequence >= put[b.table]);
		assert_true(b.sequence == put[b.table] || w->refused > 0 ||
			(!all && held[b.table] == 0));
		put[b.table] = b.sequence + 1;
		held[b.table]++;
		/* images come before the rows of their frames */
		assert_true(b.first > rows);
		if (b.table == ARROW_FRAMES)
			rows = b.last;
	}
	/* the space after the last batch is free, whatever an uncommitted room has left there */
	room = journal_reserve(r, XFER_BLOCK);
	if (room != NULL) {
		b = (struct journal_batch){.sequence = put[0], .body_bytes = XFER_BLOCK};
		memset(room, 0, 2 * XFER_BLOCK);
		b.body_crc32c = arrow_crc32c(0, room + XFER_BLOCK, XFER_BLOCK);
		journal_fill(r, &b);
		journal_release(r, journal_commit(r, &b));
	}
	journal_close(r);
	return held[0] + held[1];
}

/* Batches that files of the receiver have. The reader checks their bytes. */
static uint64_t
count_spilled(void)
{
	char dir[160], path[512];
	struct arrow_reader reader;
	const char *problem;
	struct dirent *entry;
	uint64_t n = 0, i;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/room-%016llx-%016x", spill, RECEIVER_ID, 42);
	d = opendir(dir);
	while (d != NULL && (entry = readdir(d)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (arrow_name_is_complete(entry->d_name)) {
			assert_int_equal(arrow_reader_open(&reader, path, &problem), 0);
			for (i = 0; i < reader.nb_batches; i++)
				assert_int_equal(arrow_crc32c(0, reader.batches[i].body,
							 reader.batches[i].body_length),
					strtoul(reader.batches[i].crc32c, NULL, 16));
			n += reader.nb_batches;
			arrow_reader_close(&reader);
		}
		unlink(path);
	}
	if (d != NULL)
		closedir(d);
	rmdir(dir);
	return n;
}

/*
 * Three times the size of the journal passes through it to local files, and the last batches stay.
 * All are intact, and none is missing.
 */
static void
test_rounds(void **state)
{
	struct egress_stats images, rows;
	struct egress_view view;
	struct egress *e;
	uint64_t put[ARROW_TABLES], held, spilled;

	alarm(PATIENCE);
	unlink(journal);
	/* spilling begins after half of that time */
	e = open_egress(spill, 2000);
	begin(e);
	/* none, unless the disk makes no progress for that time */
	w->refused_max = UINT64_MAX;
	poll_writer(e);
	assert_int_equal(egress_end(e), -ETIMEDOUT);
	egress_stats_get(e, ARROW_IMAGES, &images);
	egress_stats_get(e, ARROW_FRAMES, &rows);
	assert_int_equal(images.put.batches, w->put[ARROW_IMAGES]);
	assert_int_equal(rows.put.batches, w->put[ARROW_FRAMES]);
	assert_true(images.outcome.spilled + rows.outcome.spilled > 0);
	egress_view_get(e, &view);
	egress_destroy(e);
	held = look(false, put);
	spilled = count_spilled();
	printf("%llu batches put, %llu rooms, %llu spilled, %llu held\n",
		(unsigned long long)(images.put.batches + rows.put.batches),
		(unsigned long long)w->rooms, (unsigned long long)spilled,
		(unsigned long long)held);
	/* most batches were built in the journal; others while it had no room for the largest */
	assert_true(w->rooms > ROUNDS);
	assert_true(nb_slots == 0 || w->references > nb_slots);
	assert_true(held + spilled >= images.put.batches + rows.put.batches);
	alarm(0);
}

/* A full journal refuses batches after hold_ms, those of images before their rows. */
static void
test_full(void **state)
{
	const uint64_t limit = xfer_qp_clock() + PATIENCE * 1000 / 2;
	struct egress_stats images, rows;
	struct egress_view view;
	uint64_t put[ARROW_TABLES];
	struct egress *e;
	uint32_t nb_free;

	alarm(PATIENCE);
	unlink(journal);
	e = open_egress(NULL, 300);
	begin(e);
	poll_writer(e);
	assert_true(w->refused >= 3);
	do {
		(void)egress_poll(e);
		egress_view_get(e, &view);
	} while (view.steps[EGRESS_REFUSE] == 0 && xfer_qp_clock() < limit);
	assert_int_equal(view.steps[EGRESS_REFUSE], 1);
	assert_true(view.journal.full > 0);
	egress_rest(e);
	assert_int_equal(egress_end(e), -ETIMEDOUT);
	egress_stats_get(e, ARROW_IMAGES, &images);
	egress_stats_get(e, ARROW_FRAMES, &rows);
	assert_int_equal(images.put.refused + rows.put.refused, w->refused);
	/* slots ran short; those that no batch in the journal has are free */
	assert_true(nb_slots == 0 || w->no_slot > 0);
	for (nb_free = 0; egress_slot_take(e) != JOURNAL_NO_SLOT; nb_free++)
		;
	egress_destroy(e);
	assert_int_equal(look(true, put), images.put.batches + rows.put.batches);
	assert_int_equal(left.slots_held + nb_free, left.slots);
	assert_true(put[ARROW_IMAGES] >= images.put.batches);
	alarm(0);
}

/* A room that was opened and not used at the end of a run belongs to the next run. */
static void
test_next_run(void **state)
{
	uint64_t put[ARROW_TABLES], handed;
	uint8_t *first, *second;
	struct egress *e;

	alarm(PATIENCE);
	unlink(journal);
	e = open_egress(NULL, 300);
	begin(e);
	first = egress_room(e, ARROW_IMAGES, XFER_BLOCK);
	assert_non_null(first);
	assert_null(egress_room(e, ARROW_IMAGES, BODY_MAX + XFER_BLOCK));
	memset(first, 0xff, BODY_MAX);
	(void)egress_end(e);
	begin(e);
	second = egress_room(e, ARROW_IMAGES, XFER_BLOCK);
	assert_ptr_equal(second, first);
	/* what is handed over is committed, even if the run does not end */
	(void)egress_poll(e);
	w->frames = 20;
	/* the open room is for images, so a batch of them that is copied must come first */
	w->kept = 8;
	w->copies = true;
	write_frames(NULL);
	handed = w->put[ARROW_IMAGES] + w->put[ARROW_FRAMES];
	assert_true(handed > 2);
	egress_destroy(e);
	assert_int_equal(look(true, put), handed);
	alarm(0);
}

static int
init_eal(void)
{
	const char *eal[] = {"room", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "-l", "0",
		"--no-telemetry", "--vdev=net_null0,no-rx=1", "--log-level", "lib.eal:warning"};

	return rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal);
}

/* A receiver with a writer that puts batches until it is killed. */
static void
live(void)
{
	struct egress *e;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	assert_true(init_eal() >= 0);
	e = open_egress(NULL, 300);
	begin(e);
	poll_writer(e);
	for (;;)
		(void)egress_poll(e);
}

/*
 * The receiver is killed at random moments: while a room is filled, after it was handed over, and
 * while it is committed. What it leaves behind are the first batches of each table, and each is
 * intact. None that was committed is missing.
 */
static void
test_kill(void **state)
{
	uint64_t put[ARROW_TABLES], shared[ARROW_TABLES], adopted = 0, found, until;
	const uint64_t *count;
	unsigned int turn, i;
	int status;
	pid_t pid;

	alarm(PATIENCE);
	for (turn = 0; turn < KILLS; turn++) {
		unlink(journal);
		memset(w, 0, sizeof(*w));
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		until = (seed >> 33) % 12;
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			live();
			_exit(1);
		}
		/* every other kill waits for the lcore, which may lag behind the writer */
		count = turn % 2 ? &w->committed : &w->put[ARROW_IMAGES];
		while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < until + (turn % 2 ? 3 : 0) &&
			!__atomic_load_n(&w->done, __ATOMIC_ACQUIRE))
			sched_yield();
		usleep((seed >> 40) % 3000);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		for (i = 0; i < ARROW_TABLES; i++)
			shared[i] = w->put[i];
		if (until == 0 && access(journal, F_OK) < 0)
			continue;
		found = look(true, put);
		assert_true(found >= w->committed);
		adopted += found;
		/* one more may have been committed than was counted */
		for (i = 0; i < ARROW_TABLES; i++)
			assert_true(w->refused > 0 || put[i] <= shared[i] + 1);
	}
	printf("%u kills, %llu batches adopted\n", KILLS, (unsigned long long)adopted);
	assert_true(adopted > KILLS);
	alarm(0);
}

int
main(void)
{
	/* processes do not share the memory of EAL: it starts after the fork */
	const struct CMUnitTest kill_tests[] = {
		cmocka_unit_test(test_kill),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_next_run),
	};
	FILE *f;
	int ret;

	seed = getenv("XFER_SEED") != NULL ? strtoull(getenv("XFER_SEED"), NULL, 10)
					   : (uint64_t)time(NULL);
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	snprintf(key, sizeof(key), "/dev/shm/braggline-room-key-%d", getpid());
	snprintf(journal, sizeof(journal), "/dev/shm/braggline-room-journal-%d", getpid());
	snprintf(spill, sizeof(spill), "/dev/shm/braggline-room-spill-%d", getpid());
	umask(0077);
	f = fopen(key, "w");
	w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f == NULL || fprintf(f, "%064d", 1) < 0 || fclose(f) != 0 || w == MAP_FAILED ||
		mkdir(spill, 0700) < 0)
		return 1;
	sample_init(&s, seed, GK_VALUE_F32, 1);
	if (sample_tables(&s, &tables) < 0)
		return 1;
	ret = cmocka_run_group_tests(kill_tests, NULL, NULL);
	nb_slots = SLOTS;
	ret |= cmocka_run_group_tests(kill_tests, NULL, NULL);
	if (init_eal() < 0)
		return 1;
	ret |= cmocka_run_group_tests(tests, NULL, NULL);
	nb_slots = 0;
	ret |= cmocka_run_group_tests(tests, NULL, NULL);
	arrow_tables_free(&tables);
	sample_free(&s);
	unlink(key);
	unlink(journal);
	if (rmdir(spill) < 0) {
		perror(spill);
		ret = 1;
	}
	rte_eal_cleanup();
	return ret;
}
