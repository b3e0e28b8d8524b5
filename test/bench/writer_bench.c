/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file writer (record batches from output slots, CRC, slices, group commit) compared with loops
 * that write the same number of bytes to the same disk with O_DIRECT and the same sync policy, and
 * with fio if it is installed, with its best slice and depth of a few that are tried first. Rounds
 * of all rows are measured one after the other, down and up the table, so that a disk that is slow
 * for a while affects all of them. Each row starts on an idle disk with a new file after the
 * previous one was removed. Removing files is not timed.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "output/run_files.h"
#include "bench_disk.h"
#include "bench_fio.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "io/direct_io.h"

#define ROUNDS_MAX  32
#define SLOTS	    16
#define TILES	    128 /* packets of a JUNGFRAU module, 4 rows each */
#define NNZ	    30720
#define READY_BYTES (128u << 20)
#define HUGE_PAGE   (2u << 20)
#define PAGES_BYTES (512u << 20) /* after which all columns have touched their pages */

static const char usage[] =
	"Usage: writer_bench [--dir DIR] [--mib N] [--rounds N] [--slice KIB] [--depth N]\n"
	"                    [--ways N] [--rows FILE]\n"
	"Throughput to a durable file, as a table; the median of the rounds counts.\n"
	"  --dir DIR    where to write (default: here); files are removed\n"
	"  --mib N      bytes of a row, in MiB (default 1024)\n"
	"  --rounds N   default 3\n"
	"  --slice KIB  bytes of a write (default 4096)\n"
	"  --depth N    writes at a time (default 8); the plain loop has one\n"
	"  --ways N     slices and depths that are tried before (default 6, all)\n"
	"  --rows FILE  rows for bench.py\n"
	"Before, fio and the writer are tried with some slices and depths: fio keeps its best.\n"
	"All sync 256 MiB at a time and at the end, and write from 128 MiB or more; but fio\n"
	"writes from as much as its depth holds. Memory is in huge pages; fio's is where\n"
	"vm.nr_hugepages allows it.\n";

enum row {
	LOOP,
	RING,
	FIO,
	READY,
	IMAGES,
	CSR,
	ROWS
};

static const char *const names[ROWS] = {
	[LOOP] = "loop: pwrite, O_DIRECT",
	[RING] = "loop: io_uring, O_DIRECT",
	[FIO] = "fio --direct=1, io_uring",
	[READY] = "file: batches that are ready",
	[IMAGES] = "writer: full images, float32",
	[CSR] = "writer: CSR, 6 % of pixels",
};

/* Slices and depths to try. */
static const struct way {
	uint32_t slice;
	unsigned int depth;
} ways[] = {
	{1u << 20, 8},
	{1u << 20, 32},
	{4u << 20, 4},
	{4u << 20, 8},
	{4u << 20, 16},
	{8u << 20, 8},
};
#define WAYS	     (sizeof(ways) / sizeof(ways[0]))
#define SWEEP_ROUNDS 2 /* at most, down and up; the better one counts */

struct bench {
	const char *dir;
	uint64_t bytes;
	unsigned int rounds;
	unsigned int ways; /* number of combinations to try */
	struct async_writer_config config;
	struct way fio; /* best combination of fio */
	struct way own; /* best combination of the writer, and its rate, bytes/s */
	double own_rate;
	double default_rate;	       /* with the default configuration, in the same sweep */
	double rate[ROWS][ROUNDS_MAX]; /* bytes/s */
	double cpu[ROWS][ROUNDS_MAX];  /* CPU seconds per byte */
	struct gk_geometry geometry;
	struct gk_layout layout;
	uint8_t *outputs;
	uint8_t *ready; /* body of a batch */
	struct arrow_tables tables;
	/*
	 * one for each kind: columns touch their pages in the first batches of a run of that kind
	 */
	struct batch_builder *images;
	struct batch_builder *csr;
	struct run_files *run; /* the current one */
	char mode[200];
};

static void
die(const char *what, int error)
{
	fprintf(stderr, "writer_bench: %s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(1);
}

static void
path_of(const struct bench *b, const char *name, char path[PATH_MAX])
{
	if (snprintf(path, PATH_MAX, "%s/%s", b->dir, name) >= PATH_MAX)
		die(b->dir, ENAMETOOLONG);
}

/* CPU seconds of this process, including the kernel. */
static double
cpu_time(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_utime.tv_sec + u.ru_stime.tv_sec +
		(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/*
 * Buffer that the loops write from: as many bytes as batches have, so that the data come from
 * memory instead of a cache. A virtual disk, whose host copies the data, is up to 20 % faster with
 * a small buffer.
 */
static uint8_t *
source(const struct bench *b, uint64_t at)
{
	return b->ready + at % (READY_BYTES / b->config.slice * b->config.slice);
}

/* One write after the other. */
static uint64_t
write_loop(struct bench *b)
{
	const uint64_t slice = b->config.slice;
	char path[PATH_MAX];
	uint64_t at;
	int fd;

	path_of(b, "writer_bench.loop", path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		die(path, errno);
	/* a file system without O_DIRECT is measured as it is */
	(void)fcntl(fd, F_SETFL, O_DIRECT);
	(void)fallocate(fd, 0, 0, (off_t)b->bytes);
	for (at = 0; at < b->bytes; at += slice) {
		if (pwrite(fd, source(b, at), slice, (off_t)at) != (ssize_t)slice)
			die(path, errno);
		if ((at + slice) % ARROW_SLICE_SYNC_BYTES == 0 && fdatasync(fd) < 0)
			die(path, errno);
	}
	if (fdatasync(fd) < 0)
		die(path, errno);
	close(fd);
	return b->bytes;
}

/* The same through io_uring with parallel syncs: the cost of slices alone. */
static uint64_t
write_ring(struct bench *b)
{
	const struct arrow_io_info *info;
	struct async_writer out;
	char path[PATH_MAX];
	struct iovec iov;
	uint64_t at;
	int ret;

	path_of(b, "writer_bench.ring", path);
	iov.iov_len = b->config.slice;
	ret = async_writer_open(&out, &b->config, path);
	if (ret < 0)
		die(path, ret);
	info = direct_io.info(out.handle);
	snprintf(b->mode, sizeof(b->mode), "%s%s%s", arrow_io_mode_name(info->mode),
		info->why[0] != '\0' ? ": " : "", info->why);
	for (at = 0; at < b->bytes && ret == 0; at += iov.iov_len) {
		iov.iov_base = source(b, at);
		ret = async_writer_put(&out, &iov, 1, true);
	}
	if (ret == 0)
		ret = async_writer_end(&out);
	if (ret < 0)
		die(path, ret);
	async_writer_close(&out);
	return b->bytes;
}

static double
write_fio(const struct bench *b)
{
	char path[PATH_MAX];
	const struct bench_fio f = {
		.path = path,
		.writing = true,
		.depth = b->fio.depth,
		.slice = b->fio.slice,
		.bytes = b->bytes,
		.sync_bytes = ARROW_SLICE_SYNC_BYTES,
	};

	path_of(b, "writer_bench.fio", path);
	return bench_fio(&f);
}

static void
remove_files(const struct bench *b)
{
	char path[PATH_MAX], name[64];
	unsigned int i;

	path_of(b, "writer_bench.loop", path);
	unlink(path);
	path_of(b, "writer_bench.ring", path);
	unlink(path);
	for (i = 0; i < ARROW_TABLES; i++) {
		snprintf(name, sizeof(name), "writer_bench_%s.arrow", arrow_table_name(i));
		path_of(b, name, path);
		unlink(path);
	}
}

static void
emit(void *arg, const struct batch *batch)
{
	struct bench *b = arg;

	run_files_append(b->run, batch);
}

static void
reclaim(void *arg, enum arrow_table table, unsigned int set)
{
	struct bench *b = arg;

	run_files_reclaim(b->run, table, set);
}

static void
open_run(struct bench *b)
{
	const struct run_files_config config = {
		.dir = b->dir,
		.run = "writer_bench",
		.tables = &b->tables,
		.slices = b->config,
	};
	char message[PATH_MAX];
	int ret;

	ret = run_files_open(&b->run, &config, message);
	if (ret < 0)
		die(message, ret);
}

static uint64_t
close_run(struct bench *b)
{
	struct run_files_stats s;
	uint64_t bytes = 0;
	unsigned int i;
	int ret;

	ret = run_files_close(b->run);
	if (ret < 0)
		die("writer", ret);
	for (i = 0; i < ARROW_TABLES; i++) {
		run_files_stats_get(b->run, i, &s);
		bytes += s.bytes;
	}
	run_files_free(b->run);
	return bytes;
}

/* The work of the writer thread, without rings. */
static uint64_t
write_records(struct bench *b, enum gk_kind kind)
{
	const uint64_t row = kind == GK_KIND_CSR ? NNZ * 6 : gk_pixels(&b->geometry) * 4;
	struct batch_builder *builder = kind == GK_KIND_CSR ? b->csr : b->images;
	struct frame_record record = {.verdict = FRAME_HIT, .kind = kind};
	uint64_t done;

	open_run(b);
	for (done = 0; done < b->bytes; done += row) {
		record.frame++;
		record.out = record.frame % SLOTS;
		if (run_files_wants_roll(b->run, record.frame) ||
			batch_builder_add(builder, &record) < 0)
			die("record", EINVAL);
		run_files_poll(b->run);
	}
	batch_builder_flush(builder);
	return close_run(b);
}

/* Batches of 64 frames, as received from a network: no copies, no checksums. */
static uint64_t
write_batches(struct bench *b)
{
	struct arrow_identity id = {0, 0, 0, arrow_table_name(ARROW_IMAGES)};
	struct iovec body = {b->ready, READY_BYTES};
	struct arrow_template t;
	struct batch batch = {
		.table = ARROW_IMAGES,
		.body = &body,
		.nb_body = 1,
		.body_length = READY_BYTES,
		.rows = 64,
		.lasting = true,
	};
	uint64_t done;
	int ret;

	ret = arrow_template_init(&t, &b->tables.schema[ARROW_IMAGES], &id);
	if (ret < 0)
		die("batch", ret);
	batch.metadata = t.bytes;
	batch.metadata_size = t.size;
	open_run(b);
	for (done = 0; done < b->bytes; done += READY_BYTES)
		run_files_append(b->run, &batch);
	run_files_reclaim(b->run, ARROW_IMAGES, 0);
	done = close_run(b);
	arrow_template_free(&t);
	return done;
}

static uint64_t
write_row(struct bench *b, enum row row)
{
	switch (row) {
	case LOOP:
		return write_loop(b);
	case RING:
		return write_ring(b);
	case READY:
		return write_batches(b);
	case IMAGES:
		return write_records(b, GK_KIND_IMAGE);
	default:
		return write_records(b, GK_KIND_CSR);
	}
}

static void
measure(struct bench *b, enum row row, unsigned int round)
{
	uint64_t begin, bytes;
	double cpu;

	bench_disk_settle(b->dir);
	if (row == FIO) {
		b->rate[row][round] = write_fio(b);
		return;
	}
	cpu = cpu_time();
	begin = monotonic_ns();
	bytes = write_row(b, row);
	b->rate[row][round] = bytes / ((monotonic_ns() - begin) * 1e-9);
	b->cpu[row][round] = (cpu_time() - cpu) / bytes;
	remove_files(b);
}

/* Full images through the writer with this slice and depth. */
static double
try_writer(struct bench *b, const struct way *way)
{
	const struct async_writer_config config = b->config;
	uint64_t begin, bytes;
	double rate;

	bench_disk_settle(b->dir);
	b->config.slice = way->slice;
	b->config.depth = way->depth;
	begin = monotonic_ns();
	bytes = write_records(b, GK_KIND_IMAGE);
	rate = bytes / ((monotonic_ns() - begin) * 1e-9);
	remove_files(b);
	b->config = config;
	return rate;
}

static double
try_fio(struct bench *b, const struct way *way)
{
	bench_disk_settle(b->dir);
	b->fio = *way;
	return write_fio(b);
}

/* Find the best slice and depth for fio and for the writer. */
static void
sweep(struct bench *b)
{
	const struct way configured = {b->config.slice, b->config.depth};
	const uint64_t bytes = b->bytes;
	double fio[WAYS] = {0}, own[WAYS] = {0}, rate;
	unsigned int i, k, best_fio = 0, best_own = 0;

	b->bytes /= 2;
	for (i = 0; i < SWEEP_ROUNDS && i < b->rounds; i++) {
		for (k = 0; k < b->ways; k++) {
			const unsigned int way = i % 2 ? b->ways - 1 - k : k;

			rate = try_fio(b, &ways[way]);
			fio[way] = rate > fio[way] ? rate : fio[way];
			rate = try_writer(b, &ways[way]);
			own[way] = rate > own[way] ? rate : own[way];
		}
		rate = try_writer(b, &configured);
		b->default_rate = rate > b->default_rate ? rate : b->default_rate;
	}
	b->bytes = bytes;
	printf("%-30s  %8s  %8s\n", "sweep: slice, at a time", "fio", "writer");
	for (k = 0; k < b->ways; k++) {
		printf("%6u KiB, %-18u  %8.3f  %8.3f\n", ways[k].slice >> 10, ways[k].depth,
			fio[k] * 1e-9, own[k] * 1e-9);
		best_fio = fio[k] > fio[best_fio] ? k : best_fio;
		best_own = own[k] > own[best_own] ? k : best_own;
	}
	b->fio = ways[best_fio];
	b->own = ways[best_own];
	b->own_rate = own[best_own];
}

static void
print_ratio(double rate, double of)
{
	if (of > 0)
		printf("  %6.1f %%", 100 * rate / of);
	else
		printf("  %8s", "-");
}

/*
 * Row for bench.py, compared with fio, or with the io_uring loop if there is no fio. That loop is
 * our own code, and fio with small pages is slow: neither is compared with the goal.
 */
static void
emit_row(const struct bench *b, enum row row, const double *rate)
{
	const bool fio = rate[FIO] > 0;
	const enum row peer = fio ? FIO : RING;
	char against[128], notes[96];

	snprintf(against, sizeof(against), "%s%s%s", names[peer], fio ? ", " : "",
		fio ? bench_fio_memory() : "");
	snprintf(notes, sizeof(notes), "slices of %u KiB, %u at a time; fio: %u KiB, %u",
		b->config.slice >> 10, b->config.depth, b->fio.slice >> 10, b->fio.depth);
	bench_row(&(struct bench_row){.stage = "writer",
		.what = names[row],
		.value = rate[row] * 1e-9,
		.unit = "GB/s",
		.against = against,
		.other = rate[peer] * 1e-9,
		.ratio = bench_median_ratio(b->rate[row], b->rate[peer], b->rounds),
		.goal = fio && bench_fio_huge() ? "ratio >= 0.95" : NULL,
		.notes = fio ? notes : NULL});
}

static void
emit_sweep(const struct bench *b)
{
	char against[64];

	snprintf(against, sizeof(against), "its best: slices of %u KiB, %u at a time",
		b->own.slice >> 10, b->own.depth);
	bench_row(&(struct bench_row){.stage = "writer",
		.what = "full images, slice and depth as configured",
		.value = b->default_rate * 1e-9,
		.unit = "GB/s",
		.against = against,
		.other = b->own_rate * 1e-9,
		.notes = "the best of a few runs each"});
}

static void
print_table(const struct bench *b)
{
	double rate[ROWS];
	unsigned int row;

	printf("\n%s, slices of %u KiB, %u at a time, %" PRIu64 " MiB a row, median of %u rounds\n",
		b->mode, b->config.slice >> 10, b->config.depth, b->bytes >> 20, b->rounds);
	printf("fio: slices of %u KiB, %u at a time, memory in %s\n", b->fio.slice >> 10,
		b->fio.depth, bench_fio_memory());
	printf("%-30s  %8s  %10s  %8s  %8s\n", "what", "GB/s", "CPU ms/GB", "of loop", "of fio");
	for (row = 0; row < ROWS; row++)
		rate[row] = bench_median(b->rate[row], b->rounds);
	for (row = 0; row < ROWS; row++) {
		if (rate[row] == 0) {
			printf("%-30s  not installed\n", names[row]);
			continue;
		}
		printf("%-30s  %8.3f", names[row], rate[row] * 1e-9);
		if (row == FIO)
			printf("  %10s", "-");
		else
			printf("  %10.0f", bench_median(b->cpu[row], b->rounds) * 1e12);
		/* round by round, as the disk is in the same state then */
		print_ratio(bench_median_ratio(b->rate[row], b->rate[LOOP], b->rounds), 1);
		print_ratio(
			bench_median_ratio(b->rate[row], b->rate[FIO], b->rounds), rate[FIO] > 0);
		printf("\n");
		if (row >= READY)
			emit_row(b, row, rate);
	}
	if (rate[FIO] == 0)
		bench_row_missing("writer", "beside fio", "no fio, or it cannot write here");
	emit_sweep(b);
}

static void
prepare(struct bench *b)
{
	const struct arrow_tables_config tables = {
		.modules = 1,
		.rows = 512,
		.cols = 1024,
		.packets = TILES,
		.value = GK_VALUE_F32,
	};
	const struct batch_builder_config builder = {
		.geometry = {.tiles = TILES, .tile_rows = 4, .cols = 1024},
		.value = GK_VALUE_F32,
		.tables = &b->tables,
		.nb_outputs = SLOTS,
		.emit = emit,
		.reclaim = reclaim,
		.sets = BATCH_SETS_MAX,
		.arg = b,
	};
	struct batch_builder_config c = builder;
	uint64_t bytes = b->bytes;
	uint32_t *row_ptr;
	unsigned int i, k;
	int ret;

	b->geometry = builder.geometry;
	gk_layout_init(&b->layout, &b->geometry, GK_VALUE_F32, NNZ);
	b->outputs = aligned_alloc(HUGE_PAGE, SLOTS * b->layout.stride);
	b->ready = aligned_alloc(HUGE_PAGE, READY_BYTES);
	if (b->outputs == NULL || b->ready == NULL || arrow_tables_init(&b->tables, &tables) < 0)
		die("memory", ENOMEM);
	/* like memory that a NIC writes to */
	(void)madvise(b->ready, READY_BYTES, MADV_HUGEPAGE);
	(void)madvise(b->outputs, SLOTS * b->layout.stride, MADV_HUGEPAGE);
	memset(b->ready, 1, READY_BYTES);
	memset(b->outputs, 1, SLOTS * b->layout.stride);
	for (i = 0; i < SLOTS; i++) {
		row_ptr = (uint32_t *)(b->outputs + i * b->layout.stride + b->layout.row_ptr);
		for (k = 0; k <= 512; k++)
			row_ptr[k] = k * (NNZ / 512);
	}
	c.layout = b->layout;
	c.outputs = b->outputs;
	ret = batch_builder_create(&b->images, &c);
	if (ret == 0)
		ret = batch_builder_create(&b->csr, &c);
	if (ret < 0)
		die("batch builder", ret);
	/* the columns touch their pages */
	b->bytes = bytes < PAGES_BYTES ? bytes : PAGES_BYTES;
	write_records(b, GK_KIND_IMAGE);
	remove_files(b);
	write_records(b, GK_KIND_CSR);
	remove_files(b);
	b->bytes = bytes;
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"dir", required_argument, NULL, 'd'},
		{"mib", required_argument, NULL, 'm'},
		{"rounds", required_argument, NULL, 'r'},
		{"slice", required_argument, NULL, 's'},
		{"depth", required_argument, NULL, 'q'},
		{"ways", required_argument, NULL, 'w'},
		{"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static struct bench b = {
		.dir = ".",
		.bytes = 1ull << 30,
		.rounds = 3,
		.ways = WAYS,
		.config = {.slice = ARROW_SLICE_SIZE, .depth = ARROW_SLICE_DEPTH},
	};
	unsigned int round, i;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'd':
			b.dir = optarg;
			break;
		case 'm':
			b.bytes = strtoull(optarg, NULL, 0) << 20;
			break;
		case 'r':
			b.rounds = strtoul(optarg, NULL, 0);
			break;
		case 's':
			b.config.slice = strtoul(optarg, NULL, 0) << 10;
			break;
		case 'q':
			b.config.depth = strtoul(optarg, NULL, 0);
			break;
		case 'w':
			b.ways = strtoul(optarg, NULL, 0);
			break;
		case 'o':
			bench_rows_to(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			return 2;
		}
	}
	if (optind < argc || b.rounds < 1 || b.rounds > ROUNDS_MAX || b.ways < 1 || b.ways > WAYS ||
		b.bytes == 0 || b.config.slice == 0 || b.config.slice % ARROW_BLOCK != 0 ||
		b.config.slice > READY_BYTES) {
		fputs(usage, stderr);
		return 2;
	}
	/* a multiple of the slice for all */
	b.bytes = (b.bytes + b.config.slice - 1) / b.config.slice * b.config.slice;
	remove_files(&b);
	prepare(&b);
	sweep(&b);
	for (round = 0; round < b.rounds; round++) {
		for (i = 0; i < ROWS; i++)
			measure(&b, round % 2 ? ROWS - 1 - i : i, round);
	}
	print_table(&b);
	batch_builder_destroy(b.images);
	batch_builder_destroy(b.csr);
	arrow_tables_free(&b.tables);
	free(b.outputs);
	free(b.ready);
	return 0;
}
