/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Record batches from a receiver's journal into a store's memory, over software RoCE between two
 * lcores, compared with
 * - the same bytes sent by the engine alone: WRITE of the body, WRITE_WITH_IMM of the descriptor,
 * - the same, where the other end copies descriptors and checks their CRC, as a store must: the
 *   ceiling,
 * - the same columns copied into one buffer (serialised) and sent over TCP,
 * - large bodies in 65 parts, which are gathered ("in parts", and its ratio to "this").
 * All use the same two cores in the same run. The store writes to a disk that completes every write
 * immediately, so only the path before the disk is measured.
 *
 * Batches are sent in sequences that fill the journal. They are made before their row is timed,
 * because that is the builder's work on another core of a receiver. The time covers the work of its
 * egress lcore, from free room in the journal to the results, until the store has taken the last
 * batch; then only results of the last group commit are outstanding. The engine sends sequences of
 * the same length. Their start and end, some 10 us, are less than 0.1 % of the time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "bench_alone.h"
#include "bench_median.h"
#include "xfer_bench.h"

#define ROUNDS	    5
#define SECONDS	    0.4 /* of a round */
#define SINGLES	    400 /* batches sent one at a time, */
#define SINGLES_BIG 40	/* or this number if they are large */
#define BIG	    (4 * MIB)

static const char usage[] =
	"Usage: xfer_bench [EAL options] [-- quick]\n"
	"Record batches of several sizes to a store over software RoCE, as a table.\n";

struct rig rig;
struct bench_job job = {.seconds = SECONDS};
static unsigned int rounds = ROUNDS, singles = SINGLES;

static double
gbit(double bytes)
{
	return bytes * 8 / 1e9;
}

static double
raw_stream(void)
{
	return peers_raw(false);
}

static double
checked_stream(void)
{
	return peers_raw(true);
}

static double
this_stream(void)
{
	return ends_stream(false);
}

static double
parts_stream(void)
{
	return ends_stream(true);
}

/* Measure while no other program uses these CPUs, if permitted. */
static double
alone(double (*stream)(void))
{
	double rate;

	if (rounds > 1) {
		bench_alone_rest();
		(void)bench_alone_process(true);
	}
	rate = stream();
	if (rounds > 1)
		(void)bench_alone_process(false);
	return rate;
}

static void
row(const char *name)
{
	const unsigned int nb = batch.body >= BIG ? SINGLES_BIG : singles;
	double raw[ROUNDS], checked[ROUNDS], this[ROUNDS], ratio[ROUNDS], ceiling[ROUNDS];
	double serial[ROUNDS], parts[ROUNDS], gathered[ROUNDS], share, one, one_tcp;
	const bool in_parts = batch.body >= IN_PARTS_MIN;
	unsigned int i;

	ends_begin();
	for (i = 0; i < rounds; i++) {
		raw[i] = alone(raw_stream);
		this[i] = alone(this_stream);
		parts[i] = in_parts ? alone(parts_stream) : NAN;
		gathered[i] = parts[i] / this[i];
		checked[i] = alone(checked_stream);
		ratio[i] = this[i] / raw[i];
		ceiling[i] = this[i] / checked[i];
		serial[i] = alone(peers_serialised);
	}
	share = (double)job.copying / (double)job.cycles;
	job.nb_times = nb;
	job.times = calloc(nb, sizeof(*job.times));
	ends_singles();
	one = bench_sort(job.times, nb);
	peers_serialised_singles();
	one_tcp = bench_sort(job.times, nb);
	free(job.times);
	ends_end();
	printf("%-22s %9.2f %9.2f %6.2f %9.2f %6.2f %9.2f %6.2f %8.0f%% %9.4f %9.4f %6.2f", name,
		gbit(bench_median(this, rounds)), gbit(bench_median(raw, rounds)),
		bench_median(ratio, rounds), gbit(bench_median(checked, rounds)),
		bench_median(ceiling, rounds), gbit(bench_median(serial, rounds)),
		bench_median(this, rounds) / bench_median(serial, rounds), 100 * share, one,
		one_tcp, one_tcp / one);
	if (in_parts)
		printf(" %9.2f %6.2f", gbit(bench_median(parts, rounds)),
			bench_median(gathered, rounds));
	puts("");
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	static const struct {
		const char *name;
		enum arrow_table table;
		uint32_t n; /* rows of frames, or pixels of an image */
	} rows[] = {
		{"frames, 16 rows", ARROW_FRAMES, 16},
		{"frames, 1,024 rows", ARROW_FRAMES, 1024},
		{"image, 64 k pixels", ARROW_IMAGES, 65536},
		{"image, 0.5 M pixels", ARROW_IMAGES, 524288},
		{"image, 4 M pixels", ARROW_IMAGES, 4194304},
	};
	char directory[] = "/tmp/braggline-bench-XXXXXX";
	int words = rte_eal_init(argc, argv);
	unsigned int i;

	if (words < 0)
		rig_die("EAL: %s", rte_strerror(rte_errno));
	if (argc - words > 2 || (argc - words == 2 && strcmp(argv[words + 1], "quick") != 0)) {
		fputs(usage, stderr);
		return 2;
	}
	if (argc - words == 2) {
		rounds = 1;
		job.seconds = 0.05;
		singles = SINGLES_BIG;
	}
	rig_open(&rig, MEMORY, false);
	ends_open(directory);
	puts("Record batches to a store, Gbit/s; ms of one at a time until the other end has it");
	printf("%-22s %9s %9s %6s %9s %6s %9s %6s %9s %9s %9s %6s %9s %6s\n", "batch", "this",
		"engine", "ratio", "+ CRC", "ratio", "TCP", "ratio", "copying", "one, ms",
		"TCP, ms", "ratio", "in parts", "ratio");
	for (i = 0; i < RTE_DIM(rows); i++) {
		batch_make(rows[i].table, rows[i].n);
		row(rows[i].name);
		batch_free();
	}
	ends_close(directory);
	rig_close(&rig);
	rte_eal_cleanup();
	return 0;
}
