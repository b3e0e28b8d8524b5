/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store's handling of bodies that have arrived (writing durable files, and reading them back)
 * compared with fio on the same disk with the same sync policy. With --gpu also from GPU memory
 * with cuFile, whose mode is verified first, compared with pinned bounce buffers. The rows of a
 * round are measured one after the other, down and up the table, so that a disk that is slow for a
 * while affects neighbours equally; ratios are between neighbours. Each row starts on an idle disk,
 * with a new file after the previous one was removed: on a virtual disk the location of a file, and
 * whether the host has allocated it already, change the result by a factor of up to two.
 */

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "arrow/tables.h"
#include "arrow/batch.h"
#include "bench_disk.h"
#include "bench_fio.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "clock.h"
#include "io/body_memory.h"
#include "run_load.h"
#include "store_bench.h"
#include "io/bodies.h"
#include "io/body_check.h"
#include "stream/writer.h"

#define ROUNDS_MAX 32
#define BODY	   (64ull << 20)
#define SYNC_BYTES (256ull << 20)

static const char usage[] =
	"Usage: store_bench [--dir DIR] [--mib N] [--rounds N] [--threads N] [--slice KIB]\n"
	"                   [--gpu DEVICE] [--rows FILE]\n"
	"A store's disk side beside fio, as a table; the median of the rounds counts.\n"
	"  --dir DIR     where to write (default: here); files are removed\n"
	"  --mib N       bytes of a row, in MiB (default 1024)\n"
	"  --rounds N    default 3\n"
	"  --threads N   of load and cuFile; writes at a time of direct I/O (default 16)\n"
	"  --slice KIB   bytes of a write or read (default 4096)\n"
	"  --gpu DEVICE  a GPU's memory, too: gpu_cuda0,device=0\n"
	"  --rows FILE   rows for bench.py\n"
	"All sync 256 MiB at a time and at the end, and that counts.\n";

enum row {
	WRITE,
	WRITE_UNCHECKED,
	FIO_WRITE,
	LOAD,
	FIO_READ,
	GPU_WRITE,
	GPU_BOUNCE,
	GPU_LOAD,
	ROWS
};

static const struct {
	const char *what;
	enum row peer;
	const char *goal;
} rows[ROWS] = {
	[WRITE] = {"bodies in host memory, checked, to durable file", FIO_WRITE, "ratio >= 0.95"},
	[WRITE_UNCHECKED] = {"the same, [files] check = off", FIO_WRITE, ""},
	[FIO_WRITE] = {"fio --direct=1, writing", FIO_WRITE, ""},
	[LOAD] = {"load into host memory, with CRC", FIO_READ, "ratio >= 0.95"},
	[FIO_READ] = {"fio --direct=1, reading", FIO_READ, ""},
	[GPU_WRITE] = {"bodies in GPU memory to durable file", GPU_BOUNCE, ""},
	[GPU_BOUNCE] = {"the same by pinned bounce buffers", FIO_WRITE, ""},
	[GPU_LOAD] = {"load into GPU memory", FIO_READ, ""},
};

struct bench {
	struct store_bench_io io;
	unsigned int rounds;
	struct async_writer_config slices;
	struct arrow_tables tables;
	struct arrow_template template;
	uint8_t *metadata; /* of each slot */
	unsigned int nb_places;
	unsigned int free_place[64];
	unsigned int nb_free;
	struct store_bodies host;
	struct store_bodies gpu;
	struct store_check check;
	struct store_check_job job[64]; /* of each slot */
	struct async_writer_config gpu_slices;
	uint64_t copied; /* by the CPU in the last run */
	uint64_t bodies;
	double rate[ROWS][ROUNDS_MAX]; /* bytes/s; 0: not measured */
};

void
store_bench_die(const char *what, int error)
{
	fprintf(stderr, "store_bench: %s: %s\n", what, strerror(error < 0 ? -error : error));
	exit(1);
}

static void
remove_run(const struct bench *b)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(b->io.dir);

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strncmp(entry->d_name, "bench_", 6) == 0 &&
			snprintf(path, sizeof(path), "%s/%s", b->io.dir, entry->d_name) <
				(int)sizeof(path))
			unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
}

static void
on_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	struct bench *b = arg;

	if (status != XFER_DURABLE)
		store_bench_die("a batch was not stored", EIO);
	b->free_place[b->nb_free++] = tag;
}

static void
on_log(void *arg, bool error, const char *text)
{
	if (error)
		fprintf(stderr, "store_bench: %s\n", text);
}

/* Descriptor of a body; the same for all. */
static void
patch(struct bench *b, uint8_t *metadata, uint64_t sequence, uint32_t crc)
{
	struct arrow_node nodes[ARROW_BUFFERS_MAX] = {{0}};
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX] = {{0}};
	const struct arrow_batch batch = {0, nodes, buffers, BODY, sequence, crc};

	memcpy(metadata, b->template.bytes, b->template.size);
	arrow_template_patch(&b->template, metadata, &batch);
}

static void
append(struct bench *b, struct stream_writer *w, uint64_t sequence, unsigned int place,
	uint8_t *memory)
{
	patch(b, b->metadata + place * XFER_BLOCK, sequence, b->io.crc);
	stream_writer_append(w,
		&(struct stream_batch){
			.xfer = {.sequence = sequence,
				.body_bytes = BODY,
				.body_crc32c = b->io.crc},
			.metadata = b->metadata + place * XFER_BLOCK,
			.body = memory + place * BODY,
			.tag = place,
		});
}

/*
 * Like the batches of a connection: bodies go into slots that are free when their result is known,
 * and to the file in order after their check.
 */
static double
write_run(struct bench *b, struct store_bodies *bodies, const struct async_writer_config *slices,
	bool checked)
{
	const struct stream_writer_config config = {
		.dir = b->io.dir,
		.run = "bench",
		.identity = {1, 2, 3, arrow_table_name(ARROW_IMAGES)},
		.schema = &b->tables.schema[ARROW_IMAGES],
		.slices = *slices,
		.result = on_result,
		.log = on_log,
		.arg = b,
	};
	const uint64_t size = b->nb_places * BODY, nb = b->io.bytes / BODY;
	struct stream_writer *w;
	struct stream_stats stats;
	unsigned int place, order[64];
	uint8_t *memory;
	uint64_t i, begun, begin;
	double seconds;
	int ret;

	ret = store_bodies_take(bodies, size, &memory);
	for (i = 0; ret == 0 && i < b->nb_places; i++)
		ret = body_memory_copy(bodies->gpu, memory + i * BODY, b->io.pattern, BODY);
	if (ret < 0)
		store_bench_die("memory of bodies", ret);
	b->nb_free = 0;
	while (b->nb_free < b->nb_places) {
		b->free_place[b->nb_free] = b->nb_free;
		b->nb_free++;
	}
	begin = monotonic_ns();
	ret = stream_writer_open(&w, &config);
	if (ret < 0)
		store_bench_die("writer", ret);
	for (i = begun = 0; i < nb;) {
		while (begun < nb && b->nb_free > 0) {
			place = b->free_place[--b->nb_free];
			order[begun++ % b->nb_places] = place;
			b->job[place] = (struct store_check_job){
				.body = memory + place * BODY, .bytes = BODY, .done = !checked};
			if (checked)
				store_check_begin(&b->check, &b->job[place]);
		}
		place = order[i % b->nb_places];
		if (i == begun || !store_check_is_done(&b->job[place])) {
			stream_writer_poll(w);
			continue;
		}
		if (checked && b->job[place].crc != b->io.crc)
			store_bench_die("a body is not what it was", EIO);
		append(b, w, i++, place, memory);
	}
	ret = stream_writer_finish(w);
	seconds = (monotonic_ns() - begin) * 1e-9;
	if (ret < 0)
		store_bench_die("writer", ret);
	stream_writer_stats_get(w, &stats);
	b->copied = stats.copied;
	b->bodies = nb * BODY;
	stream_writer_close(w);
	store_bodies_give(bodies, memory, size);
	return nb * BODY / seconds;
}

static double
load_run(struct bench *b, struct store_bodies *bodies)
{
	const struct run_load_config config = {
		.threads = b->io.threads,
		.slice = b->slices.slice,
		.gpu = bodies->gpu,
		.cufile = bodies->cufile,
		/* a load does not include copying data back for the check */
		.unchecked = bodies->gpu >= 0,
	};
	char message[PATH_MAX];
	struct run_load l;
	double rate;

	if (run_load(&l, &config, b->io.dir, message) < 0)
		store_bench_die(message, EIO);
	if (l.damaged > 0 || l.batches != b->io.bytes / BODY)
		store_bench_die("what was loaded is not what was written", EIO);
	rate = l.bytes / l.seconds;
	run_load_free(&l);
	return rate;
}

static double
run_fio(const struct bench *b, bool writing)
{
	char path[PATH_MAX];
	const struct bench_fio f = {
		.path = path,
		.writing = writing,
		.depth = b->io.threads,
		.slice = b->io.slice,
		.bytes = b->io.bytes,
		.sync_bytes = b->io.sync_bytes,
	};

	if (snprintf(path, sizeof(path), "%s/bench_fio", b->io.dir) >= (int)sizeof(path))
		store_bench_die(b->io.dir, ENAMETOOLONG);
	return bench_fio(&f);
}

/* Make a run to be loaded; not timed. */
static double
load_new_run(struct bench *b, struct store_bodies *bodies)
{
	(void)write_run(b, &b->host, &b->slices, false);
	bench_disk_settle(b->io.dir);
	return load_run(b, bodies);
}

static double
measure_row(struct bench *b, enum row row)
{
	const bool gpu = b->gpu.cufile != NULL;

	switch (row) {
	case WRITE:
		return write_run(b, &b->host, &b->slices, true);
	case WRITE_UNCHECKED:
		return write_run(b, &b->host, &b->slices, false);
	case FIO_WRITE:
		return run_fio(b, true);
	case LOAD:
		return load_new_run(b, &b->host);
	case FIO_READ:
		return run_fio(b, false);
	case GPU_WRITE:
		return gpu ? write_run(b, &b->gpu, &b->gpu_slices, false) : 0;
	case GPU_BOUNCE:
		return gpu ? store_bench_bounce(&b->io, b->gpu.gpu) : 0;
	default:
		return gpu ? load_new_run(b, &b->gpu) : 0;
	}
}

static double
measure(struct bench *b, enum row row)
{
	double rate;

	bench_disk_settle(b->io.dir);
	rate = measure_row(b, row);
	remove_run(b);
	return rate;
}

/* Compare with the peer round by round, as the disk is in the same state then. */
static double
ratio_of(const struct bench *b, enum row row)
{
	return bench_median_ratio(b->rate[row], b->rate[rows[row].peer], b->rounds);
}

/* Row for bench.py. @param peer  0: none. fio with small pages must not be compared with a goal. */
static void
emit_row(const struct bench *b, enum row row, double rate, double peer)
{
	const bool fio = rows[row].peer == FIO_WRITE || rows[row].peer == FIO_READ;
	char against[128];

	snprintf(against, sizeof(against), "%s%s%s", rows[rows[row].peer].what, fio ? ", " : "",
		fio ? bench_fio_memory() : "");
	bench_row(&(struct bench_row){.stage = "store",
		.what = rows[row].what,
		.value = rate * 1e-9,
		.unit = "GB/s",
		.against = peer > 0 ? against : NULL,
		.other = peer * 1e-9,
		.ratio = peer > 0 ? ratio_of(b, row) : 0,
		.goal = peer > 0 && bench_fio_huge() ? rows[row].goal : NULL});
}

static void
print_row(const struct bench *b, enum row row)
{
	const double rate = bench_median(b->rate[row], b->rounds),
		     peer = bench_median(b->rate[rows[row].peer], b->rounds);
	double sorted[ROUNDS_MAX];

	if (rate == 0) {
		printf("%-40s  not there\n", rows[row].what);
		return;
	}
	memcpy(sorted, b->rate[row], b->rounds * sizeof(sorted[0]));
	qsort(sorted, b->rounds, sizeof(sorted[0]), bench_by_value);
	printf("%-40s  %7.3f  %7.3f  %7.3f", rows[row].what, rate * 1e-9, sorted[0] * 1e-9,
		sorted[b->rounds - 1] * 1e-9);
	if (rows[row].peer != row) {
		if (peer > 0)
			printf("  %7.1f %%", 100 * ratio_of(b, row));
		emit_row(b, row, rate, peer);
	}
	printf("\n");
}

static void
print_table(const struct bench *b)
{
	unsigned int row;

	printf("\n%s\n", b->host.why);
	if (b->gpu.cufile != NULL)
		printf("%s\n", b->gpu.why);
	printf("slices of %u KiB, %u at a time, %" PRIu64 " MiB a row, median of %u rounds\n",
		b->slices.slice >> 10, b->slices.depth, b->io.bytes >> 20, b->rounds);
	printf("fio has its memory in %s\n", bench_fio_memory());
	printf("%-40s  %7s  %7s  %7s  %9s\n", "what", "GB/s", "least", "most", "of peer");
	for (row = 0; row < ROWS; row++)
		print_row(b, row);
	if (bench_median(b->rate[FIO_WRITE], b->rounds) == 0)
		bench_row_missing("store", "beside fio", "no fio, or it cannot write here");
	printf("CPU copies of a byte of a body after it has arrived: %.6f\n",
		(double)b->copied / b->bodies);
	bench_row(&(struct bench_row){.stage = "store",
		.what = "CPU copies of a byte of a body",
		.value = (double)b->copied / b->bodies,
		.unit = "copies",
		.goal = "value <= 0.001"});
}

static void
prepare(struct bench *b, const char *device)
{
	const struct arrow_tables_config tables = {
		.modules = 1,
		.rows = 512,
		.cols = 1024,
		.packets = 128,
		.value = GK_VALUE_F32,
	};
	const struct arrow_identity identity = {1, 2, 3, arrow_table_name(ARROW_IMAGES)};
	struct store_bodies_config config = {
		.where = STORE_BODIES_HOST,
		.threads = b->io.threads,
		.directory = b->io.dir,
		.rdma = true,
	};
	char message[PATH_MAX];
	int16_t gpu;
	uint64_t i;
	int ret;

	/* room for all data that is in flight until it is durable, two sync intervals */
	b->nb_places = 8;
	b->metadata = aligned_alloc(XFER_BLOCK, b->nb_places * XFER_BLOCK);
	b->io.pattern = aligned_alloc(XFER_BLOCK, BODY);
	if (b->metadata == NULL || b->io.pattern == NULL ||
		arrow_tables_init(&b->tables, &tables) < 0 ||
		arrow_template_init(&b->template, &b->tables.schema[ARROW_IMAGES], &identity) < 0)
		store_bench_die("memory", ENOMEM);
	for (i = 0; i < BODY / 8; i++)
		((uint64_t *)b->io.pattern)[i] = i * 6364136223846793005ull;
	b->io.crc = arrow_crc32c(0, b->io.pattern, BODY);
	ret = store_bodies_open(&b->host, &config, &b->slices, message);
	if (ret == 0)
		ret = store_check_open(&b->check, STORE_CHECK_ALL, &b->host, message);
	if (ret < 0)
		store_bench_die(message, ret);
	if (device == NULL)
		return;
	ret = run_load_gpu(device, &gpu);
	if (ret < 0)
		store_bench_die(device, ret);
	config.where = STORE_BODIES_GPU + gpu;
	b->gpu_slices = b->slices;
	ret = store_bodies_open(&b->gpu, &config, &b->gpu_slices, message);
	if (ret < 0)
		store_bench_die(message, ret);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{"dir", required_argument, NULL, 'd'},
		{"mib", required_argument, NULL, 'm'},
		{"rounds", required_argument, NULL, 'r'},
		{"threads", required_argument, NULL, 't'},
		{"slice", required_argument, NULL, 's'},
		{"gpu", required_argument, NULL, 'g'},
		{"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static struct bench b = {
		.io = {.dir = ".", .bytes = 1ull << 30, .threads = 16},
		.rounds = 3,
		.slices = {.slice = ARROW_SLICE_SIZE, .sync_ms = 60000, .sync_bytes = SYNC_BYTES},
	};
	const char *device = NULL;
	unsigned int round, row, i;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'd':
			b.io.dir = optarg;
			break;
		case 'm':
			b.io.bytes = strtoull(optarg, NULL, 0) << 20;
			break;
		case 'r':
			b.rounds = strtoul(optarg, NULL, 0);
			break;
		case 't':
			b.io.threads = strtoul(optarg, NULL, 0);
			break;
		case 's':
			b.slices.slice = strtoul(optarg, NULL, 0) << 10;
			break;
		case 'g':
			device = optarg;
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
	if (optind < argc || b.rounds < 1 || b.rounds > ROUNDS_MAX || b.io.bytes < BODY ||
		b.io.threads < 1 || b.io.threads > ARROW_IO_DEPTH_MAX || b.slices.slice == 0 ||
		b.slices.slice % ARROW_BLOCK != 0) {
		fputs(usage, stderr);
		return 2;
	}
	b.io.bytes = b.io.bytes / BODY * BODY;
	b.io.slice = b.slices.slice;
	b.io.sync_bytes = SYNC_BYTES;
	b.slices.depth = b.io.threads;
	prepare(&b, device);
	remove_run(&b);
	for (round = 0; round < b.rounds; round++) {
		for (i = 0; i < ROWS; i++) {
			row = round % 2 ? ROWS - 1 - i : i;
			b.rate[row][round] = measure(&b, row);
		}
	}
	print_table(&b);
	store_check_close(&b.check);
	store_bodies_close(&b.gpu);
	store_bodies_close(&b.host);
	return 0;
}
