/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-recv: receive a detector, keep the hits. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_log.h>
#include <rte_version.h>

#include "check.h"
#include "eal_end.h"
#include "eal_start.h"
#include "ledger.h"
#include "pipeline.h"
#include "run.h"
#include "telemetry.h"

RTE_LOG_REGISTER(main_logtype, braggline.main, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, main_logtype, "recv: " __VA_ARGS__)

#define EXIT_CONFIG 2 /* as for a wrong command line */

#define PROGRESS_SECONDS 2

struct arguments {
	struct config_source settings;
	bool dump_config;
	bool check;
	bool quiet;
};

/** The thread that carries runs on while lcores poll. */
struct service {
	struct run run;
	struct pipeline *pipeline;
	const struct settings *settings;
	uint64_t next_progress;
	bool quiet;
	int failed; /**< the run was given up: negative errno */
};

/** By the main thread, in a handler; the service thread looks. */
static int signalled;

static void
on_signal(int number)
{
	__atomic_store_n(&signalled, number, __ATOMIC_RELAXED);
}

static void
usage(FILE *out)
{
	fprintf(out,
		"Usage: braggline-recv [EAL options] -- --config FILE [options]\n"
		"\n"
		"Receives a pixel detector, corrects and vetoes every frame, writes the kept ones\n"
		"to Arrow files. Runs until the configured end of the run or SIGTERM; with\n"
		"[run] control = telemetry it stays, and runs come and go by /braggline/run/...\n"
		"\n"
		"  -c, --config FILE            settings; conf/ has examples, README.rst all keys\n"
		"  -s, --set SECTION.KEY=VALUE  override one setting; may be given again\n"
		"      --dump-config            print all settings in force and exit\n"
		"      --check                  tell what is wrong with the host and exit\n"
		"      --list-telemetry         print the commands of /braggline/... and exit\n"
		"  -q, --quiet                  no progress on standard error\n"
		"  -h, --help                   this text\n"
		"  -V, --version                print the version\n"
		"\n"
		"Replay a capture without special hardware:\n"
		"  braggline-recv --no-huge -m 1024 --no-pci -l 0,1 --vdev gpu_host0 \\\n"
		"      --vdev net_replay0,file=capture.pcap -- --config conf/demo.ini\n"
		"\n"
		"Exit status: 0 all well; 1 something failed; 2 command line or settings are "
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
		{"check", no_argument, NULL, 'C'},
		{"list-telemetry", no_argument, NULL, 'T'},
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
			a->settings.file = optarg;
			break;
		case 's':
			if (config_source_set(&a->settings, optarg) < 0)
				return -EINVAL;
			break;
		case 'D':
			a->dump_config = true;
			break;
		case 'C':
			a->check = true;
			break;
		case 'T':
			telemetry_document(stdout);
			return 1;
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
			fprintf(stderr, "Try 'braggline-recv --help'.\n");
			return -EINVAL;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "braggline-recv: '%s' is not an option\n", argv[optind]);
		return -EINVAL;
	}
	if (a->settings.file == NULL && a->settings.nb_sets == 0 && !a->dump_config) {
		fprintf(stderr, "braggline-recv: --config FILE is needed; see --help\n");
		return -EINVAL;
	}
	return 0;
}

static void
print_progress(struct service *s)
{
	const uint64_t now = rte_rdtsc();
	struct run_status status;

	if (s->quiet || now < s->next_progress)
		return;
	run_get_status(&s->run, &status);
	if (s->next_progress != 0 && status.state == RUN_RUNNING && status.ledger.frames != 0)
		fprintf(stderr,
			"frame %" PRIu64 ": %" PRIu64 " frames, %" PRIu64 " hits, %" PRIu64
			" packets, %.1f GB\n",
			status.last_frame, status.ledger.frames, status.ledger.hits,
			status.ledger.packets[RX_PACKETS], status.ledger.packets[RX_BYTES] / 1e9);
	s->next_progress = now + PROGRESS_SECONDS * rte_get_tsc_hz();
}

static bool
gang_failed(struct service *s)
{
	int error = 0;
	const uint32_t gang = builder_failed_gang(s->pipeline->builder, &error);
	char why[256];

	if (gang == 0)
		return false;
	pipeline_why_gang(s->pipeline, gang - 1, error, why, sizeof(why));
	LOG(ERR, "gang %u gave up: %s; what it had is lost\n", gang - 1, why);
	s->failed = error;
	return true;
}

static bool
lcores_stopped(const struct service *s)
{
	return __atomic_load_n(&s->pipeline->lcores->stop, __ATOMIC_ACQUIRE);
}

static void *
serve(void *arg)
{
	const struct timespec tick = {.tv_nsec = 4000 * 1000};
	struct service *s = arg;
	bool stopping = false;

	/* lcores that could not be launched have stopped before anybody told them to */
	while (!gang_failed(s) && !lcores_stopped(s)) {
		const int number = __atomic_load_n(&signalled, __ATOMIC_RELAXED);

		run_tick(&s->run);
		print_progress(s);
		sources_log(s->pipeline->sources, &s->pipeline->source_watch, false);
		if (number != 0 && !stopping) {
			/* first: a client may ask for the next run just now */
			run_close(&s->run);
			LOG(INFO, "stopping: %s\n", strsignal(number));
			/* one that could not be stopped in time is asked again */
			stopping = run_get_state(&s->run) == RUN_IDLE || run_stop(&s->run) == 0;
			if (!stopping)
				sleep(1);
		}
		if ((stopping || !s->settings->service) && run_close_if_idle(&s->run))
			break;
		nanosleep(&tick, NULL);
	}
	run_close(&s->run); /* whatever has ended this: nor is there another run */
	for (uint32_t i = 0; i < s->settings->rx_lcores; i++)
		__atomic_store_n(&s->pipeline->rx[i]->stop, true, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < s->settings->rx_lcores; i++)
		while (!__atomic_load_n(&s->pipeline->rx[i]->stopped, __ATOMIC_ACQUIRE) &&
			!lcores_stopped(s))
			nanosleep(&tick, NULL);
	sources_log(s->pipeline->sources, &s->pipeline->source_watch, true);
	__atomic_store_n(&s->pipeline->lcores->stop, true, __ATOMIC_RELEASE);
	return NULL;
}

static void
print_lcores(const struct pipeline *p)
{
	unsigned int id;

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
}

static void
print_result(const struct service *s, const struct run_status *status)
{
	const struct builder_stats stats = builder_stats(s->pipeline->builder), *b = &stats;
	const struct ledger *l = &status->ledger;
	const double seconds = status->seconds;

	ledger_print(l, stdout);
	if (seconds > 0)
		printf("rate\n  %.0f frames/s, %.3f Mpackets/s, %.2f GB/s, %.1f Gb/s over %.2f s\n",
			l->frames / seconds, l->packets[RX_PACKETS] / seconds / 1e6,
			l->packets[RX_BYTES] / seconds / 1e9,
			l->packets[RX_BYTES] * 8 / seconds / 1e9, seconds);
	if (b->batches != 0)
		printf("  %.2f frames a batch, %" PRIu64 " batches\n",
			(double)b->batched_frames / b->batches, b->batches);
	print_lcores(s->pipeline);
	printf("files\n");
	for (int t = 0; t < ARROW_TABLES; t++)
		printf("  %s\n", s->run.paths[t]);
	printf("  %s\n", status->ledger_path);
}

/** Poll until the service says it is enough. Everything is at rest when this returns. */
static int
receive(struct service *s)
{
	struct run_status status;
	pthread_t thread;
	struct ledger all;
	int ret;

	/* a replay delivers with the first poll: the run has to be there before */
	if (!s->settings->service) {
		ret = run_start(&s->run);
		if (ret != 0)
			return ret;
	}
	run_polled(&s->run);
	ret = pthread_create(&thread, NULL, serve, s);
	if (ret != 0) {
		LOG(ERR, "cannot start the service thread: %s\n", strerror(ret));
		return -ret;
	}
	pthread_setname_np(thread, "service");
	pthread_setaffinity_np(thread, sizeof(s->pipeline->writer_cpus), &s->pipeline->writer_cpus);
	ret = lcores_run(s->pipeline->lcores);
	pthread_join(thread, NULL);
	/* a role that stopped early may have been handed packets since */
	for (uint32_t i = 0; i < s->settings->rx_lcores; i++)
		rx_poll(s->pipeline->rx[i]);
	if (s->pipeline->stores != NULL)
		egress_rest(s->pipeline->stores);
	if (ret != 0)
		s->failed = ret;
	if (s->failed != 0)
		run_give_up(&s->run, ret != 0 ? "lcores cannot be launched" : "a gang gave up");
	ret = s->failed;
	run_get_status(&s->run, &status);
	if (!s->settings->service)
		print_result(s, &status);
	if (status.failed) {
		LOG(ERR, "run %s failed: %s\n", status.name,
			status.message[0] != '\0' ? status.message : "its files or its ledger");
		ret = -EIO;
	}
	ledger_read(&all, s->pipeline, NULL);
	if (!all.packets_balance) {
		LOG(ERR, "received packets are not all accounted for: this is a bug\n");
		ret = -EIO;
	}
	return ret;
}

/** Needs no EAL. */
static int
dump(const struct arguments *a)
{
	static struct settings settings;
	struct config *config = config_open(&a->settings);
	int status = EXIT_CONFIG;

	if (config != NULL && settings_read(&settings, config) == 0) {
		config_dump(config, stdout);
		status = EXIT_SUCCESS;
	}
	config_close(config);
	return status;
}

static int
run(const struct arguments *a, const cpu_set_t *process_cpus)
{
	static struct pipeline pipeline;
	static struct settings settings;
	static struct service service;
	struct way way;
	struct config *config = config_open(&a->settings);
	int status = EXIT_CONFIG, ret;
	uint32_t leaked;

	if (config == NULL)
		return EXIT_CONFIG;
	if (settings_read(&settings, config) != 0)
		goto out;
	status = EXIT_FAILURE;
	ret = way_choose(&way, &settings);
	if (a->check) {
		if (check_run(&settings, &way, stdout) == 0)
			status = EXIT_SUCCESS;
		goto out;
	}
	if (ret != 0) {
		LOG(ERR, "%s\n", way.why);
		goto out;
	}
	service.pipeline = &pipeline;
	service.settings = &settings;
	service.quiet = a->quiet;
	run_init(&service.run, &pipeline, &settings, &a->settings);
	/* commands may come before its lcores run: they wait */
	service.run.lcores_poll = settings.service;
	ret = pipeline_create(&pipeline, &settings, &way, process_cpus);
	if (ret != 0)
		LOG(ERR, "memory, ports and threads cannot be set up: %s\n", strerror(-ret));
	else if ((ret = telemetry_register(&service.run)) == 0)
		ret = receive(&service);
	if (ret == 0)
		status = EXIT_SUCCESS;
	else
		LOG(ERR, "ends with status %d: %s\n", status, strerror(-ret));
	telemetry_retire();
	run_free(&service.run);
	eal_hold();
	leaked = pipeline_destroy(&pipeline);
	if (leaked != 0 && service.failed != 0)
		LOG(ERR, "%u mbufs did not come back: of frames of the run that was given up\n",
			leaked);
	else if (leaked != 0)
		LOG(ERR, "%u mbufs did not come back: this is a bug\n", leaked);
	if (leaked != 0)
		status = EXIT_FAILURE;
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
	int own, ret, status;

	/* EAL pins this thread; the writer wants to know what the process may use */
	if (sched_getaffinity(0, sizeof(process_cpus), &process_cpus) != 0)
		CPU_ZERO(&process_cpus);
	own = eal_own_words(argc, argv);
	ret = parse_arguments(&arguments, argc - own, argv + own);
	if (ret < 0 && own == 0)
		eal_hint(stderr, "braggline-recv");
	if (ret != 0)
		return ret > 0 ? EXIT_SUCCESS : EXIT_CONFIG;
	if (arguments.dump_config)
		return dump(&arguments);
	/* before EAL, which takes a while: a signal then ends the run that has not begun */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	eal_hangup_ends(&action);
	if (eal_start("braggline-recv", argc, argv, own) < 0)
		return EXIT_FAILURE;
	status = run(&arguments, &process_cpus);
	eal_end();
	return status;
}
