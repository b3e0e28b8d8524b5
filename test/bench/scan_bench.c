/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries of a run by a client over software RoCE, whose bodies the server writes, compared in one
 * process with
 * - the same query by a client that reads the bodies,
 * - WRITEs of as many bytes, with nothing else: of a memory that may fit into the last-level cache,
 *   and of the same mapped file ("file"),
 * - the same query where the server converts the result to Arrow, serialises it as an IPC stream,
 *   and sends that over one TCP connection,
 * - the same query in Thallus' way: the buffers of a batch are registered at both ends for this
 *   batch alone, the client reads them, and one batch is on its way at a time. With `roce`,
 *   registration pins nothing; results/rdma_mr.rst has what it takes with an adapter.
 * All ways have the same engine with one thread, files in the page cache, and checked batches.
 * ends_take_cpus() says which CPUs the threads have: two for all of them, or one for each.
 *
 * Then small results one at a time, and many clients at a time.
 *
 * usage: scan_bench [EAL options] [-- quick|FRAMES [PART]]; PART: large, small or clients
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "bench_median.h"
#include "scan_bench.h"
#include "sql/heap.h"

#define ROUNDS_MAX  7
#define SINGLES	    300 /* queries with small results in a round */
#define SINGLES_MIN 10

struct rig rig;
struct duckdb_api api;

static unsigned int rounds = ROUNDS_MAX, singles = SINGLES, frames = 12000;
static uint64_t computed = 5000000; /* rows */
static struct bench_engine engine;
static struct bench_engine server_engine; /* with the plans of the server */

static const char usage[] =
	"Usage: scan_bench [EAL options] [-- quick|FRAMES [PART]]\n"
	"Queries over RDMA, compared with WRITEs, with TCP and with registration for each batch.\n";

/* M: a frame in the middle; L: frames after it, a hundredth of all; N: rows that are computed. */
static const struct {
	const char *what;
	const char *sql;
	bool quick; /* also in the quick mode */
} large[] = {
	{"images, all columns", "SELECT * FROM run.images", true},
	{"images, 5 columns", "SELECT frame, kind, row_ptr, col, value FROM run.images"},
	{"images, 1 column", "SELECT value FROM run.images"},
	{"images of hits",
		"SELECT frame, col, value FROM run.images JOIN run.frames USING (frame) "
		"WHERE strong_count % 2 = 0"},
	{"images, 1 %", "SELECT * FROM run.images WHERE frame BETWEEN M AND M + L"},
	{"images, 0.01 %", "SELECT * FROM run.images WHERE frame = M"},
	{"frames, all", "SELECT * FROM run.frames"},
	{"5 computed columns",
		"SELECT i, i + 1 AS a, i * 2 AS b, i / 3 AS c, i % 7 AS d FROM range(N) t(i)",
		true},
};

static const struct {
	const char *what;
	const char *sql;
	bool quick;
} small[] = {
	{"SELECT 42", "SELECT 42 AS x"},
	{"empty result", "SELECT * FROM run.frames WHERE frame = 0"},
	{"one row of frames", "SELECT * FROM run.frames WHERE frame = M"},
	{"another row", "SELECT * FROM run.frames WHERE frame = #", true},
	{"100 rows, 3 columns",
		"SELECT frame, nnz, strong_count FROM run.frames WHERE frame BETWEEN M AND M + 99"},
};

static void
fill_in(char *sql, size_t size, const char *text)
{
	FILE *out = fmemopen(sql, size, "w");

	if (out == NULL)
		rig_die("no memory for a query");
	for (; *text != '\0'; text++) {
		/* single letters */
		if (*text == 'M' && strchr(" )", text[1]) != NULL && text[-1] == ' ')
			fprintf(out, "%u", frames / 2);
		else if (*text == 'L' && text[1] == '\0')
			fprintf(out, "%u", frames / 100);
		else if (*text == 'N' && text[-1] == '(')
			fprintf(out, "%" PRIu64, computed);
		else
			putc(*text, out);
	}
	if (fclose(out) != 0)
		rig_die("a query is too long");
}

void
statement_text(char text[STATEMENT_MAX], const char *sql, unsigned int i)
{
	const int before = (int)strcspn(sql, "#");

	if (sql[before] == '\0')
		snprintf(text, STATEMENT_MAX, "%s", sql);
	else
		snprintf(text, STATEMENT_MAX, "%.*s%u%s", before, sql, i * 7919 % frames + 1,
			sql + before + 1);
}

static double
mb(double bytes)
{
	return bytes / 1e6;
}

static void
row(const char *what, const char *text)
{
	double this[ROUNDS_MAX], first[ROUNDS_MAX], raw[ROUNDS_MAX], tcp[ROUNDS_MAX];
	double file[ROUNDS_MAX];
	double tcp_first[ROUNDS_MAX], thallus[ROUNDS_MAX], pull[ROUNDS_MAX];
	double alone[ROUNDS_MAX], least[ROUNDS_MAX]; /* engine; with WRITEs on the same CPU */
	struct outcome o = {0}, other;
	uint64_t bytes = 0, rows = 0;
	char sql[512];
	unsigned int i;

	fill_in(sql, sizeof(sql), text);
	/* it checks the CRC of each batch */
	(void)peers_engine(&server_engine, sql);
	for (i = 0; i < rounds; i++) {
		ends_query(sql, &o, 1);
		this[i] = o.seconds;
		first[i] = o.first;
		bytes = o.bytes;
		rows = o.rows;
		ends_query_pull(sql, &other);
		pull[i] = other.seconds;
		if (other.rows != rows || other.bytes != bytes)
			rig_die("%s: %" PRIu64 " rows, read by the client %" PRIu64, what, rows,
				other.rows);
		raw[i] = peers_write(bytes > 0 ? bytes : 1, false);
		file[i] = peers_write(bytes > 0 ? bytes : 1, true);
		ends_take_cpus(ENDS_ENGINE);
		alone[i] = peers_engine(&server_engine, sql);
		ends_take_cpus(ENDS_LCORE);
		least[i] = alone[i] + raw[i];
		peers_tcp_query(&engine, sql, &other, 1);
		tcp[i] = other.seconds;
		tcp_first[i] = other.first;
		if (other.rows != rows)
			rig_die("%s: %" PRIu64 " rows, by TCP %" PRIu64, what, rows, other.rows);
		peers_thallus_query(&engine, sql, &other);
		thallus[i] = other.seconds;
		if (other.rows != rows)
			rig_die("%s: %" PRIu64 " rows, Thallus' way %" PRIu64, what, rows,
				other.rows);
	}
	printf("%-20s %8.2f %8" PRIu64 " %8.0f %8.0f %6.2f %8.0f %6.2f %8.0f %6.2f %8.0f %6.2f "
	       "%8.0f %6.2f "
	       "%8.2f %8.2f %6.2f %10.2f %6.2f\n",
		what, mb((double)bytes), o.batches, mb((double)bytes / bench_median(this, rounds)),
		mb((double)bytes / bench_median(pull, rounds)),
		bench_median_ratio(pull, this, rounds),
		mb((double)bytes / bench_median(raw, rounds)),
		bench_median_ratio(raw, this, rounds),
		mb((double)bytes / bench_median(file, rounds)),
		bench_median_ratio(file, this, rounds),
		mb((double)bytes / bench_median(tcp, rounds)),
		bench_median_ratio(tcp, this, rounds),
		mb((double)bytes / bench_median(thallus, rounds)),
		bench_median_ratio(thallus, this, rounds), 1e3 * bench_median(first, rounds),
		1e3 * bench_median(tcp_first, rounds),
		bytes > 0 ? (double)o.copied / (double)bytes : 0, 1e3 * bench_median(alone, rounds),
		bench_median_ratio(tcp, least, rounds));
	fflush(stdout);
}

static void
large_rows(bool quick)
{
	size_t i;

	printf("%-20s %8s %8s %8s %8s %6s %8s %6s %8s %6s %8s %6s %8s %6s %8s %8s %6s %10s %6s\n",
		"query", "MB", "batches", "this", "READ", "ratio", "WRITE", "ratio", "file",
		"ratio", "TCP", "ratio", "Thallus", "ratio", "1st, ms", "TCP, ms", "copies",
		"engine, ms", "bound");
	for (i = 0; i < RTE_DIM(large); i++)
		if (!quick || large[i].quick)
			row(large[i].what, large[i].sql);
}

static double
percentile(const double *sorted, unsigned int nb, unsigned int percent)
{
	return sorted[(uint64_t)nb * percent / 100 < nb ? (uint64_t)nb * percent / 100 : nb - 1];
}

static void
sort_times(const struct outcome *o, double *times)
{
	unsigned int i;

	for (i = 0; i < singles; i++)
		times[i] = 1e6 * o[i].seconds;
	(void)bench_sort(times, singles);
}

/* Context switches of the process so far. */
static double
switches(void)
{
	struct rusage used;

	(void)getrusage(RUSAGE_SELF, &used);
	return (double)(used.ru_nvcsw + used.ru_nivcsw);
}

static void
small_row(const char *what, const char *text)
{
	double this[ROUNDS_MAX], this99[ROUNDS_MAX], tcp[ROUNDS_MAX], tcp99[ROUNDS_MAX];
	double alone[ROUNDS_MAX], wire[ROUNDS_MAX], switched[ROUNDS_MAX], tcp_switched[ROUNDS_MAX];
	char sql[256], text_of[STATEMENT_MAX];
	struct outcome *o = calloc(singles, sizeof(*o));
	double *times = calloc(singles, sizeof(*times)), before;
	uint64_t messages;
	unsigned int i, k;

	if (o == NULL || times == NULL)
		rig_die("no memory for times");
	fill_in(sql, sizeof(sql), text);
	for (k = 0; k < rounds; k++) {
		before = switches();
		ends_query(sql, o, singles);
		switched[k] = (switches() - before) / singles;
		messages = o[0].messages;
		sort_times(o, times);
		this[k] = percentile(times, singles, 50);
		this99[k] = percentile(times, singles, 99);
		before = switches();
		peers_tcp_query(&engine, sql, o, singles);
		tcp_switched[k] = (switches() - before) / singles;
		sort_times(o, times);
		tcp[k] = percentile(times, singles, 50);
		tcp99[k] = percentile(times, singles, 99);
		ends_take_cpus(ENDS_ENGINE);
		for (i = 0; i < singles; i++) {
			statement_text(text_of, sql, i);
			times[i] = 1e6 * peers_engine(&server_engine, text_of);
		}
		ends_take_cpus(ENDS_LCORE);
		(void)bench_sort(times, singles);
		alone[k] = percentile(times, singles, 50);
		peers_messages(sizeof(struct scan_query) + (uint32_t)strlen(text_of),
			(uint32_t)messages, times, singles);
		(void)bench_sort(times, singles);
		wire[k] = 1e6 * percentile(times, singles, 50);
	}
	printf("%-20s %9.0f %9.0f %9.0f %9.0f %9.0f %9.1f %6.2f %6.2f %8.0f%% %5.0f%% %8.1f "
	       "%8.1f\n",
		what, bench_median(this, rounds), bench_median(this99, rounds),
		bench_median(tcp, rounds), bench_median(tcp99, rounds), bench_median(alone, rounds),
		bench_median(wire, rounds), bench_median_ratio(tcp, this, rounds),
		bench_median_ratio(tcp99, this99, rounds),
		100 * (bench_median_ratio(this, alone, rounds) - 1),
		100 * bench_median_ratio(wire, alone, rounds), bench_median(switched, rounds),
		bench_median(tcp_switched, rounds));
	fflush(stdout);
	free(o);
	free(times);
}

static void
small_rows(bool quick)
{
	size_t i;

	printf("\n%u queries one after another, microseconds, median of %u. Engine: the same plan\n"
	       "and Arrow without a server. Messages: with MACs, between lcores that poll; their\n"
	       "part of the engine's time. Context switches of a query, with those of idle loops\n"
	       "and those that other programs cause\n",
		singles, rounds);
	printf("%-20s %9s %9s %9s %9s %9s %9s %6s %6s %9s %6s %8s %8s\n", "query", "p50", "p99",
		"TCP p50", "TCP p99", "engine", "messages", "r. 50", "r. 99", "transport", "part",
		"switches", "TCP");
	for (i = 0; i < RTE_DIM(small); i++)
		if (!quick || small[i].quick)
			small_row(small[i].what, small[i].sql);
}

static void
crowd_rows(bool quick)
{
	static const struct {
		unsigned int clients;
		bool disturbed;
	} of[] = {{1, false}, {4, false}, {16, false}, {64, false}, {4, true}, {61, true}},
	  quick_of[] = {{2, true}};
	struct crowd c;
	double one = 0;
	unsigned int i;

	printf("\n%7s %-9s %8s %8s %8s %8s\n", "clients", "", "MB/s", "of one", "worst", "lost");
	for (i = 0; i < (quick ? RTE_DIM(quick_of) : RTE_DIM(of)); i++) {
		c = (struct crowd){.clients = quick ? quick_of[i].clients : of[i].clients,
			.disturbed = quick ? quick_of[i].disturbed : of[i].disturbed,
			.seconds = quick ? 0.1 : 4,
			.sql = "SELECT * FROM run.images WHERE frame <= 400"};
		crowd_run(&c);
		one = i == 0 ? c.rate : one;
		printf("%7u %-9s %8.0f %8.2f %8.2f %8u\n", c.clients,
			c.disturbed ? "disturbed" : "", mb(c.rate), c.rate / one, c.worst, c.lost);
		fflush(stdout);
		if (c.lost > 0)
			rig_die("%u clients have lost their connection or their query", c.lost);
	}
}

int
main(int argc, char **argv)
{
	char dir[] = "/tmp/scan_bench.XXXXXX", problem[1024], command[64];
	const char *part;
	int words;
	bool quick;

	if (duckdb_api_load(&api, problem, sizeof(problem)) < 0) {
		printf("SKIPPED: %s (make deps)\n", problem);
		return 77;
	}
	sql_heap_prepare();
	words = rte_eal_init(argc, argv);
	if (words < 0)
		rig_die("EAL: %s", rte_strerror(rte_errno));
	quick = argc - words >= 2 && strcmp(argv[words + 1], "quick") == 0;
	if (argc - words >= 2 && !quick)
		frames = strtoul(argv[words + 1], NULL, 10);
	part = argc - words == 3 ? argv[words + 2] : NULL;
	if (argc - words > 3 || frames < 400) {
		fputs(usage, stderr);
		return 2;
	}
	if (quick) {
		rounds = 1;
		singles = SINGLES_MIN;
		frames = 80;
		computed = 50000;
	}
	if (mkdtemp(dir) == NULL || bench_run_write(dir, frames) < 0)
		rig_die("cannot write a run to %s", dir);
	rig_open(&rig, MEMORY, false);
	rig_rest(&rig, true);
	peers_open(dir);
	ends_create(dir);
	bench_engine_open(&engine, &api, dir, SQL_ZERO_COPY, false);
	bench_engine_open(&server_engine, &api, dir, SQL_ZERO_COPY, true);
	ends_print_cpus();
	printf("%u frames, DuckDB %s, 1 thread; MB/s, median of %u; bound: TCP's time divided by\n"
	       "that of the engine and WRITE one after the other, as on one CPU\n",
		frames, api.library_version(), rounds);
	if (part == NULL || strcmp(part, "large") == 0)
		large_rows(quick);
	if (part == NULL || strcmp(part, "small") == 0)
		small_rows(quick);
	bench_engine_close(&engine);
	bench_engine_close(&server_engine);
	if (part == NULL || strcmp(part, "clients") == 0)
		crowd_rows(quick);
	rig_rest(&rig, false);
	peers_close();
	rig_close(&rig);
	rte_eal_cleanup();
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command) != 0;
}
