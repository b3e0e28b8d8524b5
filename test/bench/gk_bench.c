/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host gang kernels on one core, by instruction set, compared with a floor: a pass that only reads
 * what they must read (the raw data of every frame, and the G0 coefficients once a batch) and
 * writes as many bytes. All instruction sets and variants of the floor alternate in each round, so
 * that they see the same state of the machine. It needs only libc, so it can be copied to other
 * machines.
 */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "bench_host.h"
#include "bench_rows.h"
#include "gk_bench.h"

static const char usage[] =
	"Usage: gk_bench [--modules N] [--frames N] [--repeats N] [--seconds S] [--isa NAME]\n"
	"                [--row NAME] [--numpy SCRIPT] [--rows FILE]\n"
	"Throughput of the host gang kernels on one core, as tables.\n"
	"  --modules N     JUNGFRAU modules of a frame, 1 to 32 (default 8: 4M, 8.4 MB raw)\n"
	"  --frames N      frames of the working set, a multiple of 8 up to 64; default: twice\n"
	"                  the L3 cache\n"
	"  --repeats N     rounds of all sets over the working set; medians (default 9)\n"
	"  --seconds S     limit of a row, which has at least three rounds (default 5)\n"
	"  --isa NAME      only this instruction set: plain, avx2, avx512; auto: the widest\n"
	"  --row NAME      only the row that gk_bench_numpy.py calls count, csr, f32 or i16;\n"
	"                  dark: dark frames; bright, bright-csr: frames with spots;\n"
	"                  peaks: the search alone; search: gangs with it; profile\n"
	"  --numpy SCRIPT  path of gk_bench_numpy.py, to compare with numpy\n"
	"  --rows FILE     write rows for bench.py, for the widest instruction set\n"
	"Columns: GB/s of raw data; GB/s of the least memory traffic of the row; GB/s of the\n"
	"fastest variant of its floor; their ratio, median of the rounds; frames/s; speed-up\n"
	"over plain C; `x none`: speed compared with the same frames without trailers; name of\n"
	"that variant. If the ratio is above 1, the floor is no ceiling,\n"
	"and the table has `beaten`. Of 1,000 pixels, 10 have at least 2 photons, 1 of these at\n"
	"least 10 (the thresholds), and 1 other is dead.\n"
	"`count` rejects all frames, other rows keep all. `as chunks`: compressed, beside a floor\n"
	"that writes nothing. `after the verdict`: the verdict is not known while a frame is\n"
	"counted, and gangs predict it from the last batch. `spots`: 100 spots of 4 x 4 pixels\n"
	"in each module, in G1 and G2. Their floor also reads the cache lines of G1 and G2\n"
	"coefficients that the frame's pixels need.\n";

enum wanted {
	REJECTED, /* all frames, by their count; each has an output slot, as from the builder */
	SURE,	  /* all are hits, which is known beforehand */
	COUNTED,  /* all are hits, by their count */
};

struct row {
	const char *name;
	const char *id; /* for --row, and its row in gk_bench_numpy.py if it has one; NULL: none */
	uint32_t kind;
	enum gk_value value;
	enum wanted wanted;
	bool one_by_one; /* also in batches of 1 */
	bool beside_c;	 /* has another row for the speed-up over C */
	bool bright;
	bool dark;
	bool chunks;	  /* outputs are compressed */
	bool trailers;	  /* beside the same frames without trailers */
	const char *goal; /* for batches of 8 */
	double best;	  /* frames/s of the best instruction set */
};

static struct row rows[] = {
	{"conversion + count", "count", GK_KIND_CSR, GK_VALUE_F32, REJECTED, true, true,
		.goal = "ratio >= 0.7"},
	{"conversion + CSR 1 %", "csr", GK_KIND_CSR, GK_VALUE_F32, SURE, true, true,
		.goal = "ratio >= 0.6"},
	{"conversion + CSR 1 % i16", NULL, GK_KIND_CSR, GK_VALUE_I16, SURE, .goal = "ratio >= 0.6"},
	{"conversion + f32 image", "f32", GK_KIND_IMAGE, GK_VALUE_F32, SURE, true, true,
		.goal = "ratio >= 0.6"},
	{"conversion + i16 image", "i16", GK_KIND_IMAGE, GK_VALUE_I16, SURE, false, true,
		.goal = "ratio >= 0.6"},
	{"f32 image after the verdict", NULL, GK_KIND_IMAGE, GK_VALUE_F32, COUNTED,
		.goal = "ratio >= 0.6"},
	{"i16 image after the verdict", NULL, GK_KIND_IMAGE, GK_VALUE_I16, COUNTED,
		.goal = "ratio >= 0.6"},
	{"count + raw", NULL, GK_KIND_RAW, GK_VALUE_F32, SURE, .goal = "ratio >= 0.6"},
	{"count + raw as chunks", NULL, GK_KIND_RAW, GK_VALUE_F32, SURE, .chunks = true},
	{"i16 image as chunks", NULL, GK_KIND_IMAGE, GK_VALUE_I16, SURE, .chunks = true},
	{"count, dark frames", "dark", GK_KIND_CSR, GK_VALUE_F32, REJECTED, .dark = true,
		.goal = "ratio >= 0.6"},
	{"count, trailers", NULL, GK_KIND_CSR, GK_VALUE_F32, REJECTED, .trailers = true},
	{"CSR 1 %, trailers", NULL, GK_KIND_CSR, GK_VALUE_F32, SURE, .trailers = true},
	{"f32 image, trailers", NULL, GK_KIND_IMAGE, GK_VALUE_F32, SURE, .trailers = true},
	{"count, bright spots", "bright", GK_KIND_CSR, GK_VALUE_F32, REJECTED, .bright = true,
		.goal = "ratio >= 0.6"},
	{"CSR 1 %, bright spots", "bright-csr", GK_KIND_CSR, GK_VALUE_F32, SURE, .bright = true,
		.goal = "ratio >= 0.6"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

#define ROUNDS_MIN 3 /* of each row, regardless of its time: a median needs as many */

/* State of a row, in batches of one size. */
struct run {
	struct bench *b;
	struct row *row;
	uint32_t batch;
	uint32_t rounds;
	struct floor_writes writes;
	unsigned int way;		       /* fastest variant of the floor */
	double floor[FLOOR_WAYS][REPEATS_MAX]; /* GB/s of raw data */
	double plain;			       /* GB/s of plain C; 0: not measured */
	const double *plain_speed;	       /* in each round */
};

/* Frames have trailers, or the same frames have none. */
static void
set_trailers(const struct bench *b, bool trailers)
{
	for (uint32_t f = 0; f < b->frames; f++) {
		struct gk_frame *frame = frame_of(b, f);

		frame->flags &= ~GK_FRAME_TRAILER;
		frame->flags |= trailers ? GK_FRAME_TRAILER : 0;
	}
}

double
bench_play(const struct bench *b, struct bench_set *s, uint32_t batch)
{
	const double start = seconds();

	for (uint32_t f = 0; f < b->frames; f += batch) {
		struct gk_work *work = gk_ring_next(&s->ring);
		uint32_t number;

		*work = (struct gk_work){.nb_frames = batch};
		for (uint32_t i = 0; i < batch; i++)
			work->slot[i] = f + i;
		number = gk_ring_submit(&s->ring);
		while (!gk_ring_is_done(&s->ring, number)) {
			if (!gk_host_ops.poll(s->gk, 0, 0)) {
				fprintf(stderr, "gk_bench: the gang has stopped: error %d\n",
					gk_ring_error(&s->ring));
				exit(1);
			}
		}
		gk_ring_collect(&s->ring);
	}
	return seconds() - start;
}

static int
open_set(const struct bench *b, struct bench_set *s, const struct row *row)
{
	struct gk_channel *channel = s->config.channel;
	int ret;

	s->config = b->config;
	s->config.channel = channel;
	s->config.isa = s->isa;
	s->config.value = row->value;
	s->config.trailers = row->trailers;
	s->config.chunks = row->chunks;
	channel->params[0] = (struct gk_params){.kind = row->kind,
		.strong_threshold = STRONG_THRESHOLD,
		.csr_threshold = CSR_THRESHOLD,
		.strong_min = row->wanted == REJECTED ? UINT32_MAX : row->wanted == COUNTED,
		.strong_max = UINT32_MAX,
		.nnz_max = b->config.layout.nnz_cap,
		.chunks = row->chunks ? 1u << row->kind : 0};
	ret = gk_host_ops.create(&s->config, &s->gk);
	if (ret == 0)
		ret = gk_host_ops.start(s->gk);
	if (ret != 0)
		fprintf(stderr, "gk_bench: the host gangs cannot be made: %s\n", gk_host_ops.why());
	return ret;
}

static int
open_sets(struct run *r)
{
	struct bench *b = r->b;

	gk_layout_init(&b->config.layout, &b->config.geometry, r->row->value,
		(uint32_t)gk_pixels(&b->config.geometry) / 16);
	if (r->row->bright != b->bright)
		bench_bright(b, r->row->bright);
	for (uint32_t f = 0; f < b->frames; f++)
		frame_of(b, f)->flags = r->row->dark ? GK_FRAME_DARK : 0;
	set_trailers(b, r->row->trailers);
	for (uint32_t i = 0; i < b->nb_sets; i++) {
		int ret = open_set(b, &b->set[i], r->row);

		if (ret != 0)
			return ret;
		/*
		 * warm-up: gangs predict the output from the previous batch, and allocate their
		 * memory
		 */
		bench_play(b, &b->set[i], r->batch);
	}
	return 0;
}

static int
close_sets(struct run *r)
{
	int ret = 0;

	for (uint32_t i = 0; i < r->b->nb_sets && ret == 0; i++) {
		ret = gk_host_ops.stop(r->b->set[i].gk);
		gk_host_ops.destroy(r->b->set[i].gk);
	}
	return ret;
}

static struct floor_writes
writes_of(const struct bench *b, const struct row *row)
{
	struct floor_writes w = {.cells = row->dark};

	if (row->bright) {
		const uint64_t strips = b->frames * gk_pixels(&b->config.geometry) / STRIP;

		w.lines = b->strip_lines[strips] / b->frames;
	}

	if (row->wanted == REJECTED)
		return w;
	if (row->kind == GK_KIND_CSR)
		w.nnz = b->config.results[0].nnz;
	else if (row->chunks)
		return w; /* a fifth to a half of the bytes read, which are left out */
	else
		w.pixel_bytes = row->kind == GK_KIND_RAW ? 2 : b->config.layout.value_size;
	return w;
}

/* Minimum memory traffic of a frame in bytes: see floor_run(). */
static double
bytes_of(const struct run *r)
{
	const double pixels = (double)gk_pixels(&r->b->config.geometry);

	return pixels * (2 + (r->writes.cells ? 24.0 : 8.0) / r->batch + r->writes.pixel_bytes) +
		(double)r->writes.nnz * (2 + r->b->config.layout.value_size) +
		64.0 * r->writes.lines;
}

static double
raw_bytes(const struct run *r)
{
	return 2 * (double)gk_pixels(&r->b->config.geometry);
}

/* The variant with the highest median; a single fast round does not count. */
static void
choose_way(struct run *r)
{
	double most = 0;

	for (unsigned int way = 0; way < FLOOR_WAYS; way++) {
		double speed;

		if (floor_name(way, &r->writes) == NULL)
			continue;
		speed = bench_median(r->floor[way], r->rounds);
		if (speed > most) {
			most = speed;
			r->way = way;
		}
	}
}

/* Row for bench.py: frames with trailers beside the same frames without. */
static void
emit_without(const struct run *r, const struct bench_set *s, double speed)
{
	const double frame = 1e-9 * raw_bytes(r);
	char what[80];

	snprintf(what, sizeof(what), "%s, beside none", r->row->name);
	bench_row(&(struct bench_row){.stage = "gang",
		.what = what,
		.value = speed / frame,
		.unit = "frames/s",
		.against = "the same frames without trailers",
		.other = bench_median(s->without, r->rounds) / frame,
		.ratio = bench_median_ratio(s->speed, s->without, r->rounds),
		.notes = gk_isa_name(s->isa)});
}

/* Rows for bench.py. */
static void
emit_row(struct run *r, const struct bench_set *s, double speed, double least, double ratio)
{
	const double frame = 1e-9 * raw_bytes(r);
	const double l3 = (double)bench_host_cache(3);
	char what[80], notes[160], set[32] = "";

	if (l3 > 0)
		snprintf(set, sizeof(set), ", %.1f x L3", raw_bytes(r) * r->b->frames / l3);
	snprintf(what, sizeof(what), "%s%s", r->row->name, r->batch == 1 ? ", batches of 1" : "");
	snprintf(notes, sizeof(notes), "%s, batches of %u%s; floor: %s%s", gk_isa_name(s->isa),
		r->batch, set, floor_name(r->way, &r->writes),
		ratio > 1 ? ", beaten: no ceiling" : "");
	bench_row(&(struct bench_row){.stage = "gang",
		.what = what,
		.value = speed / frame,
		.unit = "frames/s",
		.against = "a pass that moves as many bytes",
		.other = least / frame,
		.ratio = ratio,
		.goal = r->batch == BATCH_MAX ? r->row->goal : "ratio >= 0.8",
		.bytes = bytes_of(r),
		.role = BENCH_FLOOR,
		.notes = notes});
	if (r->batch != BATCH_MAX)
		return;
	r->row->best = speed / frame;
	if (r->row->trailers)
		emit_without(r, s, speed);
	if (!r->row->beside_c || r->plain == 0)
		return;
	snprintf(what, sizeof(what), "%s, beside C", r->row->name);
	bench_row(&(struct bench_row){.stage = "gang",
		.what = what,
		.value = speed / frame,
		.unit = "frames/s",
		.against = "plain C",
		.other = r->plain / frame,
		.ratio = bench_median_ratio(s->speed, r->plain_speed, r->rounds),
		.notes = gk_isa_name(s->isa)});
}

static void
report_set(struct run *r, const struct bench_set *s)
{
	const double raw = 1e-9 * raw_bytes(r), all = bytes_of(r) / raw_bytes(r);
	const double *floor = r->floor[r->way];
	const double speed = bench_median(s->speed, r->rounds),
		     least = bench_median(floor, r->rounds),
		     ratio = bench_median_ratio(s->speed, floor, r->rounds);

	if (s->isa == GK_ISA_PLAIN) {
		r->plain = speed;
		r->plain_speed = s->speed;
	}
	printf("%-28s %-7s %5u %8.2f %8.2f %8.2f %7.2f %10.1f", r->row->name, gk_isa_name(s->isa),
		r->batch, speed, speed * all, least * all, ratio, speed / raw);
	if (r->plain > 0)
		printf(" %8.1f", bench_median_ratio(s->speed, r->plain_speed, r->rounds));
	else
		printf(" %8s", "-");
	if (r->row->trailers)
		printf(" %8.2f", bench_median_ratio(s->speed, s->without, r->rounds));
	else
		printf(" %8s", "-");
	printf("  %s%s\n", floor_name(r->way, &r->writes), ratio > 1 ? ", beaten" : "");
	if (s->isa == (enum gk_isa)gk_isa_choose(GK_ISA_AUTO))
		emit_row(r, s, speed, least, ratio);
}

static int
run_row(struct bench *b, struct row *row, uint32_t batch)
{
	struct run r = {.b = b, .row = row, .batch = batch};
	const double raw = 1e-9 * raw_bytes(&r) * b->frames, end = seconds() + b->seconds;
	int ret;

	ret = open_sets(&r);
	if (ret != 0)
		return ret;
	r.writes = writes_of(b, row);
	/* frames that exceed very large caches take long */
	while (r.rounds < b->repeats && (r.rounds < ROUNDS_MIN || seconds() < end)) {
		const uint32_t i = r.rounds++;

		for (uint32_t k = 0; k < b->nb_sets; k++)
			b->set[k].speed[i] = raw / bench_play(b, &b->set[k], batch);
		for (uint32_t k = 0; k < b->nb_sets && row->trailers; k++) {
			set_trailers(b, false);
			b->set[k].without[i] = raw / bench_play(b, &b->set[k], batch);
			set_trailers(b, true);
		}
		for (unsigned int way = 0; way < FLOOR_WAYS; way++)
			if (floor_name(way, &r.writes) != NULL)
				r.floor[way][i] = raw / floor_run(b, way, batch, &r.writes);
	}
	choose_way(&r);
	for (uint32_t i = 0; i < b->nb_sets; i++)
		report_set(&r, &b->set[i]);
	return close_sets(&r);
}

static void
print_numpy(const struct row *row, double raw, double frame_seconds)
{
	char what[80];

	printf("%-28s %-7s %5u %8.2f %8s %8s %7s %10.1f\n", row->name, "numpy", 1,
		raw / frame_seconds, "-", "-", "-", 1 / frame_seconds);
	snprintf(what, sizeof(what), "%s, beside numpy", row->name);
	bench_row(&(struct bench_row){.stage = "gang",
		.what = what,
		.value = row->best,
		.unit = "frames/s",
		.against = "numpy",
		.other = 1 / frame_seconds,
		.notes = "batches of 8 beside frame by frame, each with its own working set"});
}

/* Rows of gk_bench_numpy.py, which is also single-threaded and has its own working set. */
static int
run_numpy(const struct bench *b)
{
	const double raw = 2e-9 * (double)gk_pixels(&b->config.geometry);
	char line[256], name[16], why[256] = "";
	double frame_seconds;
	int status;
	FILE *f;

	snprintf(line, sizeof(line), "OMP_NUM_THREADS=1 '%s' %u %u", b->script, b->modules,
		b->repeats < 3 ? b->repeats : 3);
	fflush(stdout);
	f = popen(line, "r");
	if (f == NULL)
		return -errno;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%15s %lf", name, &frame_seconds) != 2) {
			snprintf(why, sizeof(why), "%.*s", (int)strcspn(line, "\n"), line);
			puts(why);
			continue;
		}
		for (size_t i = 0; i < ROWS; i++)
			if (rows[i].id != NULL && strcmp(rows[i].id, name) == 0)
				print_numpy(&rows[i], raw, frame_seconds);
	}
	status = pclose(f);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		bench_row_missing("gang", "gangs beside numpy", why);
	else if (status != 0) {
		fprintf(stderr, "gk_bench: %s: wait status %d\n", b->script, status);
		return -EIO;
	}
	return 0;
}

/* Use only this instruction set. @return false: unknown, or not supported by the CPU */
static bool
keep_set(struct bench *b, const char *isa)
{
	if (strcmp(isa, gk_isa_name(GK_ISA_AUTO)) == 0)
		isa = gk_isa_name(b->set[b->nb_sets - 1].isa);
	for (uint32_t i = 0; i < b->nb_sets; i++) {
		if (strcmp(gk_isa_name(b->set[i].isa), isa) != 0)
			continue;
		b->set[0] = b->set[i];
		b->nb_sets = 1;
		return true;
	}
	fprintf(stderr,
		"gk_bench: --isa %s: no such instruction set, or not supported by this CPU\n", isa);
	return false;
}

static int
parse(int argc, char **argv, struct bench *b, const char **isa)
{
	static const struct option options[] = {{"modules", required_argument, NULL, 'm'},
		{"frames", required_argument, NULL, 'f'}, {"repeats", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 's'}, {"isa", required_argument, NULL, 'i'},
		{"numpy", required_argument, NULL, 'n'}, {"row", required_argument, NULL, 'w'},
		{"rows", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {0}};
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		const uint32_t n = optarg != NULL ? (uint32_t)strtoul(optarg, NULL, 0) : 0;

		switch (option) {
		case 'm':
			b->modules = n;
			break;
		case 'f':
			b->frames = n;
			break;
		case 'r':
			b->repeats = n;
			break;
		case 's':
			b->seconds = strtod(optarg, NULL);
			break;
		case 'i':
			*isa = optarg;
			break;
		case 'n':
			b->script = optarg;
			break;
		case 'w':
			b->only = optarg;
			break;
		case 'o':
			bench_rows_to(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			fputs(usage, stderr);
			return -EINVAL;
		}
	}
	if (b->modules < 1 || b->modules > 32 || b->frames > 64 || b->frames % BATCH_MAX != 0 ||
		b->repeats < 1 || b->repeats > REPEATS_MAX || optind < argc) {
		fprintf(stderr,
			"gk_bench: modules %u, frames %u, repeats %u; expected 1 to 32, a multiple "
			"of 8 up to 64, 1 to %d\n",
			b->modules, b->frames, b->repeats, REPEATS_MAX);
		return -EINVAL;
	}
	return 0;
}

static void
print_head(const struct bench *b)
{
	const double raw = 2e-6 * (double)gk_pixels(&b->config.geometry) * b->frames;
	const uint64_t l3 = bench_host_cache(3);

	bench_host_print(stdout);
	printf("host gangs, 1 core; %u frames of %u modules: %.1f MB raw, ", b->frames, b->modules,
		raw);
	if (l3 != 0)
		printf("%.1f times the L3 cache, ", 1e6 * raw / (double)l3);
	printf("%.1f MB G0 coefficients; median of up to %u\n",
		8e-6 * (double)gk_pixels(&b->config.geometry), b->repeats);
	printf("%-28s %-7s %5s %8s %8s %8s %7s %10s %8s %8s  %s\n", "what", "isa", "batch",
		"raw GB/s", "all GB/s", "floor's", "ratio", "frames/s", "x plain", "x none",
		"floor");
}

static bool
is_wanted(const struct bench *b, const struct row *row)
{
	return b->only == NULL || (row->id != NULL && strcmp(row->id, b->only) == 0);
}

int
main(int argc, char **argv)
{
	struct bench b = {.modules = 8, .repeats = 9, .seconds = 5};
	const char *isa = NULL;
	int ret = 0;

	if (parse(argc, argv, &b, &isa) != 0)
		return 1;
	bench_open(&b);
	if (isa != NULL && !keep_set(&b, isa))
		return 1;
	print_head(&b);
	for (size_t i = 0; i < ROWS && ret == 0; i++) {
		if (!is_wanted(&b, &rows[i]))
			continue;
		if (rows[i].one_by_one && b.only == NULL)
			ret = run_row(&b, &rows[i], 1);
		if (ret == 0)
			ret = run_row(&b, &rows[i], BATCH_MAX);
	}
	if (ret == 0 && b.only == NULL)
		near_rows(&b);
	if (ret == 0 && (b.only == NULL || strcmp(b.only, "peaks") == 0))
		peak_rows(&b);
	if (ret == 0 && (b.only == NULL || strcmp(b.only, "search") == 0))
		ret = search_rows(&b);
	if (ret == 0 && (b.only == NULL || strcmp(b.only, "profile") == 0))
		ret = radial_rows(&b);
	if (ret == 0 && b.script != NULL)
		ret = run_numpy(&b);
	bench_close(&b);
	return ret != 0;
}
