/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-recv: receive a detector, keep the hits. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_version.h>

#include "ledger.h"
#include "pipeline.h"

RTE_LOG_REGISTER(main_logtype, braggline.main, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, main_logtype, "recv: " __VA_ARGS__)

#define EXIT_CONFIG 2 /* as for a wrong command line */

#define PROGRESS_SECONDS 2

struct arguments {
	const char *config;
	const char *assignments[64];
	unsigned int nb_assignments;
	bool dump_config;
	bool quiet;
};

/** Steps to the end; the control lcore alone goes through them. */
enum phase {
	RECEIVING,
	STOPPING_RX, /**< RX roles give up what waits */
	FINISHING,   /**< the builder closes all frames, egress returns all records */
	FINISHED
};

struct control {
	struct pipeline *pipeline;
	enum phase phase;
	uint64_t activity;	 /**< packets and frames so far, */
	uint64_t active_at;	 /**< and TSC when that last changed */
	uint64_t first_activity; /**< TSC */
	uint64_t last_activity;
	uint64_t next_progress;
	bool quiet;
	int failed;
};

static volatile sig_atomic_t signalled;

static void
on_signal(int number)
{
	signalled = number;
}

static void
usage(FILE *out)
{
	fprintf(out,
		"Usage: braggline-recv [EAL options] -- --config FILE [options]\n"
		"\n"
		"Receives a pixel detector, corrects and vetoes every frame, writes the kept ones\n"
		"to Arrow files. Runs until the configured end of the run, SIGINT or SIGTERM.\n"
		"\n"
		"  -c, --config FILE            settings; conf/demo.ini shows all sections\n"
		"  -s, --set SECTION.KEY=VALUE  override one setting; may be given again\n"
		"      --dump-config            print all settings in force and exit\n"
		"  -q, --quiet                  no progress on standard error\n"
		"  -h, --help                   this text\n"
		"  -V, --version                print the version\n"
		"\n"
		"Replay a capture without special hardware:\n"
		"  braggline-recv --no-huge -m 1024 --no-pci -l 0,1 --vdev gpu_host0 \\\n"
		"      --vdev net_replay0,file=capture.pcap -- --config conf/demo.ini\n"
		"\n"
		"Exit status: 0 all well; 1 something failed; 2 the command line or the settings are "
		"wrong.\n");
}

/** @return 0 to go on, > 0 to exit with success, < 0 on a mistake */
static int
parse_arguments(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"set", required_argument, NULL, 's'},
		{"dump-config", no_argument, NULL, 'D'},
		{"quiet", no_argument, NULL, 'q'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int option;

	*a = (struct arguments){0};
	optind = 1;
	while ((option = getopt_long(argc, argv, "c:s:qhV", options, NULL)) != -1) {
		switch (option) {
		case 'c':
			a->config = optarg;
			break;
		case 's':
			if (a->nb_assignments == RTE_DIM(a->assignments)) {
				fprintf(stderr, "braggline-recv: at most %zu times --set\n",
					RTE_DIM(a->assignments));
				return -EINVAL;
			}
			a->assignments[a->nb_assignments++] = optarg;
			break;
		case 'D':
			a->dump_config = true;
			break;
		case 'q':
			a->quiet = true;
			break;
		case 'h':
			usage(stdout);
			return 1;
		case 'V':
			printf("braggline-recv %s, %s\n", BRAGGLINE_VERSION, rte_version());
			return 1;
		default:
			fprintf(stderr, "Try 'braggline-recv -- --help'.\n");
			return -EINVAL;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "braggline-recv: '%s' is not an option\n", argv[optind]);
		return -EINVAL;
	}
	if (a->config == NULL && a->nb_assignments == 0 && !a->dump_config) {
		fprintf(stderr, "braggline-recv: --config FILE is needed; see --help\n");
		return -EINVAL;
	}
	return 0;
}

static uint64_t
seconds_to_cycles(double seconds)
{
	return (uint64_t)(seconds * rte_get_tsc_hz());
}

static void
print_progress(struct control *c, uint64_t now)
{
	const struct builder_stats *b = builder_stats(c->pipeline->builder);
	struct ledger l;

	if (c->quiet || c->activity == 0 || now < c->next_progress)
		return;
	if (c->next_progress != 0) {
		ledger_read(&l, c->pipeline);
		fprintf(stderr,
			"frame %" PRIu64 ": %" PRIu64 " frames, %" PRIu64 " hits, %" PRIu64
			" packets, %.1f GB\n",
			b->last_frame, b->closed, l.hits, l.packets[RX_PACKETS],
			l.packets[RX_BYTES] / 1e9);
	}
	c->next_progress = now + seconds_to_cycles(PROGRESS_SECONDS);
}

/** Packets and frames move, or the line is idle; remembers when. */
static void
watch_activity(struct control *c, uint64_t now)
{
	const struct builder_stats *b = builder_stats(c->pipeline->builder);
	uint64_t activity = b->closed;

	for (uint32_t v = 0; v < FRAME_VERDICTS; v++)
		activity += b->verdicts[v];
	for (uint32_t i = 0; i < c->pipeline->settings->rx_lcores; i++)
		activity += c->pipeline->rx[i]->counters[RX_PACKETS];
	if (activity == c->activity && activity != 0)
		return;
	c->activity = activity;
	c->active_at = now;
	if (activity != 0 && c->first_activity == 0)
		c->first_activity = now;
	if (activity != 0)
		c->last_activity = now;
}

static bool
run_is_over(const struct control *c, uint64_t now)
{
	const struct settings *s = c->pipeline->settings;
	uint64_t patience = s->idle_timeout_ms;

	if (builder_ended(c->pipeline->builder))
		return true;
	if (s->idle_timeout_ms == 0 || c->activity == 0)
		return false;
	/* a packet that waits for a stalled stream is not idleness */
	for (uint32_t i = 0; i < s->rx_lcores; i++)
		if (c->pipeline->rx[i]->nb_pending > 0)
			patience = s->idle_timeout_ms + 2 * (uint64_t)s->stall_ms;
	return now - c->active_at > seconds_to_cycles(patience / 1e3);
}

static bool
rx_stopped(const struct pipeline *p)
{
	for (uint32_t i = 0; i < p->settings->rx_lcores; i++)
		if (!__atomic_load_n(&p->rx[i]->stopped, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

static void
look_at_gangs(struct control *c)
{
	int error = 0;
	const uint32_t gang = builder_failed_gang(c->pipeline->builder, &error);

	if (gang == 0 || c->failed != 0)
		return;
	LOG(ERR, "gang %u gave up: %s; what it had is lost\n", gang - 1, strerror(-error));
	c->failed = error;
	c->phase = FINISHED;
}

static void
control(void *arg)
{
	struct control *c = arg;
	struct pipeline *p = c->pipeline;
	const uint64_t now = rte_rdtsc();

	watch_activity(c, now);
	print_progress(c, now);
	look_at_gangs(c);
	switch (c->phase) {
	case RECEIVING:
		if (!signalled && !run_is_over(c, now))
			break;
		LOG(DEBUG, "stopping: %s\n", signalled ? strsignal(signalled) : "end of run");
		for (uint32_t i = 0; i < p->settings->rx_lcores; i++)
			__atomic_store_n(&p->rx[i]->stop, true, __ATOMIC_RELEASE);
		c->phase = STOPPING_RX;
		break;
	case STOPPING_RX:
		if (!rx_stopped(p))
			break;
		builder_stop(p->builder);
		c->phase = FINISHING;
		break;
	case FINISHING:
		if (builder_finished(p->builder))
			c->phase = FINISHED;
		break;
	case FINISHED:
		__atomic_store_n(&p->lcores->stop, true, __ATOMIC_RELEASE);
		break;
	}
}

static void
print_result(const struct control *c, const struct ledger *l)
{
	const struct pipeline *p = c->pipeline;
	const double seconds = (double)(c->last_activity - c->first_activity) / rte_get_tsc_hz();
	const struct builder_stats *b = builder_stats(p->builder);
	struct file_writer_stats w;
	unsigned int id;

	ledger_print(l, stdout);
	if (c->activity != 0 && seconds > 0)
		printf("rate\n  %.0f frames/s, %.3f Mpackets/s, %.2f GB/s, %.1f Gb/s over %.2f s\n",
			b->closed / seconds, l->packets[RX_PACKETS] / seconds / 1e6,
			l->packets[RX_BYTES] / seconds / 1e9,
			l->packets[RX_BYTES] * 8 / seconds / 1e9, seconds);
	if (b->batches != 0)
		printf("  %.2f frames a batch, %" PRIu64 " batches\n",
			(double)b->batched_frames / b->batches, b->batches);
	printf("lcores\n");
	RTE_LCORE_FOREACH(id) {
		const struct lcore *lc = &p->lcores->lcore[id];
		const uint64_t cycles = lc->busy_cycles + lc->idle_cycles;

		if (lc->nb_roles == 0)
			continue;
		printf("  %3u  %5.1f %% busy ", id,
			cycles != 0 ? 100.0 * lc->busy_cycles / cycles : 0);
		for (uint32_t i = 0; i < lc->nb_roles; i++)
			printf("%s %s", i == 0 ? "" : ",", lc->roles[i].name);
		printf("\n");
	}
	file_writer_stats_get(p->writer, &w);
	printf("files\n");
	for (int t = 0; t < ARROW_TABLES; t++)
		printf("  %s  %" PRIu64 " rows, %.2f MB\n", file_writer_path(p->writer, t),
			w.table[t].rows, w.table[t].bytes / 1e6);
}

/** Receive until the end; everything is at rest when this returns. */
static int
receive(struct pipeline *p, const struct arguments *a)
{
	struct control c = {.pipeline = p, .quiet = a->quiet};
	char path[4096];
	struct ledger l;
	int ret;

	p->lcores->control = control;
	p->lcores->control_arg = &c;
	ret = lcores_run(p->lcores);
	/* a role that stopped early may have been handed packets since */
	for (uint32_t i = 0; i < p->settings->rx_lcores; i++)
		rx_poll(p->rx[i]);
	if (file_writer_stop(p->writer, true) != 0)
		ret = -EIO;
	for (int t = 0; t < ARROW_TABLES; t++)
		if (file_writer_error(p->writer, t)[0] != '\0')
			LOG(ERR, "%s\n", file_writer_error(p->writer, t));
	ledger_read(&l, p);
	print_result(&c, &l);
	snprintf(path, sizeof(path), "%s/%s_ledger.ini", p->settings->directory, p->settings->run);
	if (ledger_write(&l, path) != 0)
		ret = -EIO;
	printf("  %s\n", path);
	if (c.failed == 0 && (!l.frames_balance || !l.packets_balance)) {
		LOG(ERR, "the ledger does not balance: this is a bug\n");
		ret = -EIO;
	}
	return c.failed != 0 ? c.failed : ret;
}

static int
run(const struct arguments *a, const cpu_set_t *process_cpus)
{
	static struct pipeline pipeline;
	static struct settings settings;
	struct config *config = config_open(a->config);
	int status = EXIT_CONFIG;
	uint32_t leaked;

	if (config == NULL)
		return EXIT_CONFIG;
	for (unsigned int i = 0; i < a->nb_assignments; i++)
		if (config_set(config, a->assignments[i]) != 0)
			goto out;
	if (settings_read(&settings, config) != 0)
		goto out;
	if (a->dump_config) {
		config_dump(config, stdout);
		status = EXIT_SUCCESS;
		goto out;
	}
	status = EXIT_FAILURE;
	if (pipeline_create(&pipeline, &settings, process_cpus) == 0 && receive(&pipeline, a) == 0)
		status = EXIT_SUCCESS;
	leaked = pipeline_destroy(&pipeline);
	if (leaked != 0) {
		LOG(ERR, "%u mbufs did not come back: this is a bug\n", leaked);
		status = EXIT_FAILURE;
	}
out:
	config_close(config);
	return status;
}

int
main(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = on_signal};
	struct arguments arguments;
	cpu_set_t process_cpus;
	int ret, status;

	/* EAL pins this thread; the writer wants to know what the process may use */
	if (sched_getaffinity(0, sizeof(process_cpus), &process_cpus) != 0)
		CPU_ZERO(&process_cpus);
	/* help must not need huge pages */
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0 && i + 1 < argc)
			ret = parse_arguments(&arguments, argc - i, argv + i);
		else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			ret = (usage(stdout), 1);
		else if (strcmp(argv[i], "--version") == 0)
			ret = (printf("braggline-recv %s\n", BRAGGLINE_VERSION), 1);
		else
			continue;
		if (ret != 0)
			return ret > 0 ? EXIT_SUCCESS : EXIT_CONFIG;
		break;
	}
	ret = rte_eal_init(argc, argv);
	if (ret < 0) {
		fprintf(stderr, "braggline-recv: EAL does not start: %s\n",
			rte_strerror(rte_errno));
		return EXIT_FAILURE;
	}
	status = EXIT_CONFIG;
	if (parse_arguments(&arguments, argc - ret, argv + ret) == 0) {
		sigaction(SIGINT, &action, NULL);
		sigaction(SIGTERM, &action, NULL);
		status = run(&arguments, &process_cpus);
	}
	rte_eal_cleanup();
	return status;
}
