/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time of the writer for one batch of images with stores: from the first row until the batch is
 * handed over to the egress lcore, and of this the call of egress_put(). Each kind is built in
 * rooms of the journal, in the writer's own memory with a copy to the journal, and without a copy:
 * the output slots are in the journal. These ways take turns. No store is connected, so each round
 * fills a new journal. The CRC of a raw frame's chunk is known, as if a gang had computed it.
 * "copies": copied bytes of images / their bytes.
 *
 * usage: egress_bench [EAL options] [quick]
 */

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>

#include "arrow/batch.h"
#include "arrow/crc32c.h"
#include "bench_median.h"
#include "egress/egress.h"
#include "../unit/arrow/arrow_sample.h"

#define JOURNAL_BYTES (192u << 20)
#define BYTE_LIMIT    (16u << 20)
#define BODY_MAX      (20u << 20)
#define INTERVAL      64
#define ROUNDS	      9
#define CHUNK_BYTES   800000
#define STRONG	      20 /* one pixel of so many is kept in CSR frames */

enum way {
	OWN,  /* built in the writer's memory, copied to the journal */
	ROOM, /* built in the journal */
	SLOT, /* refers to output slots in the journal */
	WAYS
};

static const char *const way_name[WAYS] = {
	"own memory, copied", "room of the journal", "output slots"};

static struct bench {
	struct egress *egress;
	unsigned int frames;
	enum way way;
	uint64_t batches;
	uint64_t put_cycles;
	uint64_t cycles;
	uint64_t kept; /* bytes of images */
	uint64_t copied;
	bool done; /* atomic */
} b;

static struct sample s;
static struct arrow_tables tables;
static char key[64], journal[64];

static void
die(const char *what)
{
	fprintf(stderr, "egress_bench: %s\n", what);
	exit(1);
}

static uint8_t *
place(void *arg, uint64_t size)
{
	uint8_t *to = b.way == ROOM ? egress_room(b.egress, ARROW_IMAGES, size) : NULL;

	if (b.way == ROOM && to == NULL)
		die("the journal has no room for a batch");
	return to;
}

static void
emit(void *arg, const struct batch *batch)
{
	const uint64_t at = rte_rdtsc();

	if (egress_put(b.egress, batch) < 0)
		die("the journal refused a batch");
	if (batch->table != ARROW_IMAGES)
		return;
	b.put_cycles += rte_rdtsc() - at;
	b.kept += batch->kept_bytes;
	b.copied += batch->copied_bytes;
	b.batches++;
}

/* Add the frame as it is in a slot of the journal. */
static int
refer(struct batch_builder *builder)
{
	s.record.out = egress_slot_take(b.egress);
	if (s.record.out == JOURNAL_NO_SLOT)
		die("the journal has no free slot");
	return batch_builder_refer(builder, &s.record);
}

static void *
write_frames(void *arg)
{
	struct batch_builder_config c = sample_builder_config(&s, &tables);
	struct batch_builder *builder;
	unsigned int i, pass;
	uint64_t at = 0, slot_bytes;
	uint32_t slots;

	if (b.way == SLOT) {
		uint8_t *area = egress_area(b.egress, &slot_bytes, &slots);

		/* as a gang has left them; values of zero do */
		for (i = 0; s.record.kind == GK_KIND_CSR && i < slots; i++)
			memcpy(area + i * slot_bytes + s.layout.row_ptr,
				s.outputs + s.layout.row_ptr,
				(gk_rows(&s.geometry) + 1) * sizeof(uint32_t));
		c.outputs = area;
		c.nb_outputs = slots;
		c.references = JOURNAL_REFERENCES;
	}
	c.images_interval = INTERVAL;
	c.byte_limit = BYTE_LIMIT;
	c.emit = emit;
	c.place = place;
	if (batch_builder_create(&builder, &c) < 0)
		die("cannot create a builder");
	/* the first batches fault the builder's pages in */
	for (pass = 0; pass < 2; pass++) {
		b.put_cycles = b.batches = 0;
		at = rte_rdtsc();
		for (i = 0; i < b.frames; i++) {
			s.record.frame++;
			if (b.way == SLOT ? refer(builder) != 1
					  : batch_builder_add(builder, &s.record) < 0)
				die("cannot add a frame");
		}
		batch_builder_flush(builder);
		at = rte_rdtsc() - at;
	}
	b.cycles = at;
	batch_builder_destroy(builder);
	__atomic_store_n(&b.done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* One round: this thread is the egress lcore. */
static void
measure(enum way way, double *us, double *put_us, double *copies)
{
	const struct egress_settings settings = {
		.device = "roce:port=net_null0,ip=10.0.0.1/24",
		.stores = "10.0.0.2",
		.identity = "bench",
		.key = key,
		.journal = journal,
		.journal_bytes = JOURNAL_BYTES,
		.batch_bytes = BODY_MAX,
		.rate = 1000000,
		.failover_ms = 100,
		.hold_ms = 100,
		.spill_at = 90,
		.end_ms = 1,
	};
	const struct egress_begin run = {
		.tables = &tables,
		.run = 42,
		.incarnation = 0xfedcba9876543210ull,
		.name = "bench",
		.body_max = {1 << 20, BODY_MAX},
	};
	const struct egress_slots slots = {s.layout.stride, 2 * b.frames};
	char message[PATH_MAX];
	pthread_t writer;

	unlink(journal);
	s.record.out = 0;
	b = (struct bench){.frames = b.frames, .way = way};
	if (egress_create(&b.egress, &settings, 1,
		    way == SLOT ? &slots : &(struct egress_slots){0}) < 0 ||
		egress_begin(b.egress, &run, message) < 0)
		die("cannot open the journal");
	(void)egress_poll(b.egress);
	if (pthread_create(&writer, NULL, write_frames, NULL) != 0)
		die("cannot start the writer");
	while (!__atomic_load_n(&b.done, __ATOMIC_ACQUIRE))
		(void)egress_poll(b.egress);
	pthread_join(writer, NULL);
	egress_destroy(b.egress);
	*us = b.cycles * 1e6 / rte_get_tsc_hz() / b.batches;
	*copies = (double)b.copied / (double)b.kept;
	*put_us = b.put_cycles * 1e6 / rte_get_tsc_hz() / b.batches;
}

static void
prepare(enum gk_kind kind)
{
	const uint32_t rows = gk_rows(&s.geometry), cols = s.geometry.cols;
	uint32_t *row_ptr = (uint32_t *)(s.outputs + s.layout.row_ptr), i;

	memset(&s.record, 0, sizeof(s.record));
	s.record.frame = INTERVAL - 1;
	s.record.verdict = FRAME_HIT;
	s.record.kind = kind;
	if (kind == GK_KIND_RAW) {
		s.record.chunk_bytes = CHUNK_BYTES;
		s.record.chunk_crc32c = arrow_crc32c(0, s.outputs + s.layout.raw, CHUNK_BYTES);
	}
	if (kind != GK_KIND_CSR)
		return;
	for (i = 0; i <= rows; i++)
		row_ptr[i] = i * (cols / STRONG);
	s.record.nnz = row_ptr[rows];
	if (s.record.nnz > s.layout.nnz_cap)
		die("too many strong pixels for an output slot");
}

static void
bench_kind(const char *name, enum gk_kind kind, unsigned int frames, unsigned int rounds)
{
	double us[WAYS][ROUNDS], put[WAYS][ROUNDS], copies[WAYS];
	unsigned int i, way;

	prepare(kind);
	b.frames = frames;
	for (i = 0; i < rounds; i++) {
		for (way = 0; way < WAYS; way++)
			measure(way, &us[way][i], &put[way][i], &copies[way]);
	}
	for (way = 0; way < WAYS; way++)
		printf("%-6s %-20s %10.0f %10.0f %8.2f %8.2f\n", name, way_name[way],
			bench_median(us[way], rounds), bench_median(put[way], rounds),
			bench_median_ratio(us[way], us[OWN], rounds), copies[way]);
}

int
main(int argc, char **argv)
{
	int nb = rte_eal_init(argc, argv);
	unsigned int rounds;
	FILE *f;

	if (nb < 0)
		return 1;
	rounds = nb + 1 < argc && strcmp(argv[argc - 1], "quick") == 0 ? 1 : ROUNDS;
	snprintf(key, sizeof(key), "/dev/shm/braggline-bench-key-%d", getpid());
	snprintf(journal, sizeof(journal), "/dev/shm/braggline-bench-journal-%d", getpid());
	umask(0077);
	f = fopen(key, "w");
	if (f == NULL || fprintf(f, "%064d", 1) < 0 || fclose(f) != 0)
		die("cannot write a key");
	/* one JUNGFRAU module */
	s.value = GK_VALUE_F32;
	s.modules = 1;
	s.geometry = (struct gk_geometry){.tiles = 128, .tile_rows = 4, .cols = 1024};
	gk_layout_init(&s.layout, &s.geometry, s.value, 1 << 16);
	s.outputs = aligned_alloc(4096, s.layout.stride);
	if (s.outputs == NULL)
		die("no memory");
	memset(s.outputs, 0, s.layout.stride);
	if (sample_tables(&s, &tables) < 0)
		die("cannot make the tables");
	printf("%-6s %-20s %10s %10s %8s %8s\n", "batch", "built in", "us/batch", "us/put", "ratio",
		"copies");
	bench_kind("image", GK_KIND_IMAGE, 28, rounds);
	bench_kind("raw", GK_KIND_RAW, 48, rounds);
	bench_kind("csr", GK_KIND_CSR, 2 * INTERVAL, rounds);
	arrow_tables_free(&tables);
	sample_free(&s);
	unlink(key);
	unlink(journal);
	rte_eal_cleanup();
	return 0;
}
