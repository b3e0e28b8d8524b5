/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-recv: receives the frames of a detector and keeps the hits. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_version.h>

#include "arrow/async_writer.h"
#include "builder/builder.h"
#include "check/check.h"
#include "config/config.h"
#include "eal/end.h"
#include "eal/nexus.h"
#include "eal/start.h"
#include "eal/watchdog.h"
#include "egress/egress.h"
#include "io/durable_file.h"
#include "lcores.h"
#include "ledger.h"
#include "ledger_read.h"
#include "log.h"
#include "option_refuse.h"
#include "pipeline.h"
#include "plural.h"
#include "port/placement.h"
#include "report.h"
#include "run.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "settings.h"
#include "telemetry/telemetry.h"

LOG_REGISTER("main", "recv");

#define NEXUS_TICKS 250 /* one second of the service thread */
#define EXIT_CONFIG 2	/* also for a wrong command line */

/** Result of receive(): a failure whose cause was logged and has no errno. */
#define REPORTED 1

/** Seconds between two progress lines, on a terminal and in a log. */
#define PROGRESS_TERMINAL 2
#define PROGRESS_LOG	  60
#define PROGRESS_MAX	  86400

struct arguments {
	struct config_source settings;
	bool dump_config;
	bool check;
	double progress; /**< s; 0: none */
};

/** The service thread, which advances runs while lcores poll. */
struct service {
	struct run *run;	  /**< NULL: destroyed */
	pthread_mutex_t run_lock; /**< of `run`, which the watchdog reads while the process ends */
	struct pipeline *pipeline;
	const struct settings *settings;
	struct nexus *nexus;
	bool exports; /**< atomic: nexus_stop() waits */
	struct report report;
	int failed;		      /**< negative errno, if the run failed */
	bool lost_device;	      /**< a device was removed or has failed */
	struct watchdog *watchdog;    /**< NULL: no service manager */
	uint64_t seen[RTE_MAX_LCORE]; /**< by lcores_work() */
	int told;      /**< last state of the run that was sent to the service manager; -1: none */
	char *summary; /**< of a run that has ended, to be printed; NULL: none */
	const char *rest; /**< the part of `summary` that is not printed yet */
};

/** Signal number. Set by the signal handler, read by the service thread. */
static int signalled;

static void
on_signal(int number)
{
	__atomic_store_n(&signalled, number, __ATOMIC_RELAXED);
	run_interrupt();
	egress_signal();
}

static void
usage(FILE *out)
{
	fprintf(out,
		"Usage: braggline-recv [EAL options] -- --config FILE [options]\n"
		"\n"
		"Receives the packets of a pixel detector, corrects and vetoes every frame, and\n"
		"writes the kept frames to Arrow files. Runs until the configured end of the run\n"
		"or a signal; with [run] control = telemetry it keeps running, and runs are\n"
		"controlled by the commands /braggline/run/...\n"
		"\n"
		"  -c, --config FILE            settings; conf/ has examples, README.rst all keys\n"
		"  -s, --set SECTION.KEY=VALUE  override one setting; may be repeated\n"
		"      --dump-config            print all effective settings and exit\n"
		"      --check                  check the configuration of the host and exit\n"
		"      --list-telemetry         print the commands of /braggline/... and exit\n"
		"  -p, --progress SECONDS       interval of progress lines, 0: none; default 2 on\n"
		"                               a terminal, 60 otherwise\n"
		"  -q, --quiet                  --progress 0\n"
		"  -h, --help                   print this help and exit\n"
		"  -V, --version                print the version and exit\n"
		"\n"
		"Replay the capture of make demo, in the build directory:\n"
		"  app/recv/braggline-recv --no-huge -m 1024 --no-pci -l 0,1 --vdev gpu_host0 \\\n"
		"      --vdev net_replay0,file=demo/capture.pcap -- --config ../conf/demo.ini\n"
		"\n"
		"Exit status: 0: success; 1: failure; 2: invalid command line or settings.\n");
}

static bool
parse_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	if (end != text && *end == '\0' && *seconds >= 0 && *seconds <= PROGRESS_MAX)
		return true;
	fprintf(stderr, "braggline-recv: --progress %s: expected seconds, 0 to %u\n", text,
		PROGRESS_MAX);
	return false;
}

/** @return 0: continue; > 0: exit with success; < 0: wrong arguments */
static int
parse_arguments(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"set", required_argument, NULL, 's'},
		{"dump-config", no_argument, NULL, 'D'},
		{"check", no_argument, NULL, 'C'},
		{"list-telemetry", no_argument, NULL, 'T'},
		{"progress", required_argument, NULL, 'p'},
		{"quiet", no_argument, NULL, 'q'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	int option;

	*a = (struct arguments){
		.progress = isatty(STDERR_FILENO) ? PROGRESS_TERMINAL : PROGRESS_LOG};
	optind = 1;
	while ((option = getopt_long(argc, argv, "c:s:p:qhV", options, NULL)) != -1) {
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
		case 'p':
			if (!parse_seconds(optarg, &a->progress))
				return -EINVAL;
			break;
		case 'q':
			a->progress = 0;
			break;
		case 'h':
			usage(stdout);
			return 1;
		case 'V':
			printf("braggline-recv %s, %s\n", BRAGGLINE_VERSION, rte_version());
			return 1;
		default:
			option_try_help("braggline-recv");
			return -EINVAL;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "braggline-recv: '%s': not an option of braggline-recv\n",
			argv[optind]);
		return -EINVAL;
	}
	if (a->check && a->dump_config) {
		fprintf(stderr,
			"braggline-recv: --check and --dump-config: expected only one of them\n");
		return -EINVAL;
	}
	if (a->settings.file == NULL && a->settings.nb_sets == 0 && !a->dump_config) {
		fprintf(stderr,
			"braggline-recv: --config FILE is required; see braggline-recv --help\n");
		return -EINVAL;
	}
	return 0;
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
	LOG(ERR, "gang %u failed: %s; its frames are lost\n", gang - 1, why);
	s->failed = error;
	return true;
}

static bool
lcores_stopped(const struct service *s)
{
	return __atomic_load_n(&s->pipeline->lcores->stop, __ATOMIC_ACQUIRE);
}

/** A run of a client has ended. */
static void
report_run(void *arg)
{
	struct service *s = arg;
	struct run_status status;

	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	run_get_status(s->run, &status);
	LOG(NOTICE, "run %s has %s\n", status.name, status.failed ? "failed" : "ended");
	if (f == NULL)
		return;
	report_summary(s->run, &status, f);
	if (fclose(f) != 0)
		return;
	/* the summary of an earlier run waits only if standard output is not read */
	free(s->summary);
	s->rest = s->summary = text;
}

/** Print the summary of a run, as far as standard output does not block. */
static void
print_summary(struct service *s)
{
	struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};

	while (s->summary != NULL && poll(&out, 1, 0) == 1) {
		/* a pipe that is ready has room for that many bytes */
		const ssize_t n = write(STDOUT_FILENO, s->rest, strnlen(s->rest, PIPE_BUF));

		s->rest += RTE_MAX(n, 0);
		if (n >= 0 && *s->rest != '\0')
			continue;
		free(s->summary);
		s->summary = NULL;
	}
}

/** Tell the service manager the state of the run, if it has changed. */
static void
notify_state(struct service *s)
{
	static struct run_status status;
	const int state = run_get_state(s->run);
	char text[96];

	if (state == s->told || s->watchdog == NULL)
		return;
	s->told = state;
	run_get_status(s->run, &status);
	snprintf(text, sizeof(text), "%s%s%s", run_state_names[status.state],
		status.state == RUN_IDLE ? "" : ": run ",
		status.state == RUN_IDLE ? "" : status.name);
	watchdog_status(s->watchdog, text);
}

static bool
lcores_work(void *arg)
{
	struct service *s = arg;

	return lcores_have_polled(s->pipeline->lcores, s->seen);
}

static uint64_t
get_progress(void *arg)
{
	struct service *s = arg;
	uint64_t sum = async_writer_ended() + durable_file_ended();

	pthread_mutex_lock(&s->run_lock);
	if (s->run != NULL)
		sum += run_get_progress(s->run);
	pthread_mutex_unlock(&s->run_lock);
	/* the wait has a limit of its own */
	if (__atomic_load_n(&s->exports, __ATOMIC_RELAXED))
		sum += rte_rdtsc();
	return sum;
}

/** Destroy the run, which the watchdog does not read any more. */
static void
destroy_run(struct service *s)
{
	struct run *run = s->run;

	pthread_mutex_lock(&s->run_lock);
	s->run = NULL;
	pthread_mutex_unlock(&s->run_lock);
	run_destroy(run);
}

/** Wait until the NeXus files are complete. */
static void
stop_nexus(struct service *s)
{
	__atomic_store_n(&s->exports, true, __ATOMIC_RELAXED);
	nexus_stop(s->nexus);
	__atomic_store_n(&s->exports, false, __ATOMIC_RELAXED);
}

/** Return true if a signal or the loss of a device ends the process. Log a loss. */
static bool
has_to_end(struct service *s, int number)
{
	char device[256];

	if (!s->lost_device && pipeline_lost_device(s->pipeline, device, sizeof(device))) {
		s->lost_device = true;
		LOG(ERR, "device %s was removed or has failed; the receiver ends%s\n", device,
			s->pipeline->stores != NULL
				? ", and the journal keeps what stores do not have"
				: "");
	}
	return number != 0 || s->lost_device;
}

static void *
serve(void *arg)
{
	const struct timespec tick = {.tv_nsec = 4000 * 1000};
	struct service *s = arg;
	unsigned int ticks = 0;
	bool stopping = false;

	/* lcores_stopped() is also true if lcores could not be launched */
	while (!gang_failed(s) && !lcores_stopped(s)) {
		const int number = __atomic_load_n(&signalled, __ATOMIC_RELAXED);

		run_tick(s->run);
		print_summary(s);
		notify_state(s);
		report_progress(&s->report, s->run, stderr);
		sources_log(s->pipeline->sources, s->pipeline->source_watch, false);
		if (has_to_end(s, number) && !stopping) {
			/* first, because a client may be requesting the next run */
			run_close(s->run);
			if (number != 0)
				LOG(INFO, "stopping on signal: %s\n", strsignal(number));
			/* if the run could not be stopped in time, try again */
			stopping = run_get_state(s->run) == RUN_IDLE || run_stop(s->run) == 0;
			if (!stopping)
				sleep(1);
		}
		if ((stopping || !s->settings->service) && run_close_if_idle(s->run))
			break;
		if (++ticks % NEXUS_TICKS == 0)
			nexus_watch(s->nexus);
		nanosleep(&tick, NULL);
	}
	print_summary(s);
	run_close(s->run); /* no other run may begin, for any reason of the end */
	for (uint32_t i = 0; i < s->settings->rx_lcores; i++)
		__atomic_store_n(&s->pipeline->rx[i]->stop, true, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < s->settings->rx_lcores; i++)
		while (!__atomic_load_n(&s->pipeline->rx[i]->stopped, __ATOMIC_ACQUIRE) &&
			!lcores_stopped(s))
			nanosleep(&tick, NULL);
	sources_log(s->pipeline->sources, s->pipeline->source_watch, true);
	__atomic_store_n(&s->pipeline->lcores->stop, true, __ATOMIC_RELEASE);
	return NULL;
}

/**
 * Poll until the service thread ends. No data is in progress when this returns.
 * @return 0; REPORTED; -errno
 */
static int
receive(struct service *s)
{
	const struct watchdog_config watchdog = {lcores_work, get_progress, s, &signalled};
	struct run_status status;
	pthread_t thread;
	struct ledger all;
	int ret;

	/* a replay delivers packets in the first poll, so the run must exist before */
	if (!s->settings->service) {
		ret = run_start(s->run);
		if (ret == -ECANCELED) {
			LOG(NOTICE, "stopped by a signal before the run began\n");
			return 0;
		}
		if (ret != 0)
			return ret;
	}
	if (s->settings->service)
		run_on_end(s->run, report_run, s);
	run_polled(s->run);
	s->watchdog = watchdog_start(&watchdog);
	ret = pthread_create(&thread, NULL, serve, s);
	if (ret != 0) {
		LOG(ERR, "cannot start the service thread: %s\n", strerror(ret));
		watchdog_end(s->watchdog);
		run_close(s->run);
		if (s->pipeline->stores != NULL)
			egress_rest(s->pipeline->stores);
		run_give_up(s->run, "cannot start the service thread");
		s->failed = -ret;
		return s->failed;
	}
	pthread_setname_np(thread, "service");
	pthread_setaffinity_np(thread, sizeof(s->pipeline->writer_cpus), &s->pipeline->writer_cpus);
	ret = lcores_run(s->pipeline->lcores);
	pthread_join(thread, NULL);
	watchdog_end(s->watchdog);
	/* a role that stopped early may have received handoffs since then */
	for (uint32_t i = 0; i < s->settings->rx_lcores; i++)
		rx_poll(s->pipeline->rx[i]);
	if (s->pipeline->stores != NULL)
		egress_rest(s->pipeline->stores);
	if (ret != 0)
		s->failed = ret;
	if (s->failed != 0)
		run_give_up(s->run, ret != 0 ? "cannot launch lcores" : "a gang failed");
	ret = s->failed;
	run_get_status(s->run, &status);
	if (!s->settings->service)
		report_summary(s->run, &status, stdout);
	else
		print_summary(s); /* of a run that was abandoned */
	if (status.failed_runs != 0 && s->settings->service)
		LOG(ERR, "%" PRIu64 " of %" PRIu64 " runs failed, see above\n", status.failed_runs,
			status.runs);
	else if (status.failed_runs != 0)
		LOG(ERR, "run %s failed, see above\n", status.name);
	/* after the loss of a device the service manager starts the process again */
	if ((status.failed_runs != 0 || s->lost_device) && ret == 0)
		ret = REPORTED;
	if (s->pipeline->stores != NULL && egress_was_damaged(s->pipeline->stores)) {
		LOG(ERR, "the journal was damaged, see above\n");
		ret = ret != 0 ? ret : REPORTED;
	}
	ledger_read(&all, s->pipeline, NULL);
	if (!all.packets_balance || all.pending != 0) {
		LOG(ERR, "received packets are not all accounted for: this is a bug\n");
		ret = REPORTED;
	}
	return ret;
}

/** Print the configuration. This does not need EAL. */
static int
dump(const struct arguments *a)
{
	static struct egress_settings egress;
	static struct settings settings;
	struct config *config = config_open(&a->settings);
	int status = EXIT_CONFIG;

	if (config != NULL && settings_read(&settings, &egress, config) == 0) {
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
	static struct egress_settings egress;
	static struct settings settings;
	static struct service service = {.run_lock = PTHREAD_MUTEX_INITIALIZER};
	static struct nexus nexus;
	struct placement way;
	struct config *config = config_open(&a->settings);
	int status = EXIT_CONFIG, ret;
	uint32_t leaked;

	if (config == NULL)
		return EXIT_CONFIG;
	if (settings_read(&settings, &egress, config) != 0)
		goto out;
	status = EXIT_FAILURE;
	ret = placement_choose(&way, &settings);
	if (a->check) {
		if (check_run(&settings, &way, stdout) == 0)
			status = EXIT_SUCCESS;
		goto out;
	}
	/* status 2: the service manager does not start it again, as that would change nothing */
	if (ret != 0) {
		LOG(ERR, "%s\n", way.why);
		status = ret == -EINVAL ? EXIT_CONFIG : EXIT_FAILURE;
		goto out;
	}
	if (settings.nexus && nexus_find(&nexus) < 0) {
		LOG(ERR,
			"[output] nexus = yes: braggline-export is not beside this program; "
			"install HDF5 (Debian: libhdf5-dev) and build it, or set no\n");
		goto out;
	}
	service.nexus = &nexus;
	service.pipeline = &pipeline;
	service.settings = &settings;
	service.report.period = a->progress;
	service.told = -1;
	service.run = run_create(&pipeline, &settings, &a->settings, settings.service);
	if (service.run == NULL) {
		LOG(ERR, "cannot allocate the state of runs\n");
		goto out;
	}
	ret = pipeline_create(&pipeline, &settings, &way, process_cpus);
	if (ret == -EINVAL)
		status = EXIT_CONFIG;
	if (ret != 0)
		LOG(ERR, "cannot set up memory, ports and threads: %s%s\n", strerror(-ret),
			ret == -ENOMEM ? "; --check prints the memory that all parts require" : "");
	else if (settings.nexus && (ret = nexus_start(&nexus, settings.directory)) < 0)
		LOG(ERR, "[output] nexus: cannot start %s\n", nexus.program);
	else if ((ret = telemetry_register(service.run)) == 0)
		ret = receive(&service);
	if (ret == 0)
		status = EXIT_SUCCESS;
	else if (ret == REPORTED)
		LOG(ERR, "exiting with status %d\n", status);
	else
		LOG(ERR, "exiting with status %d: %s\n", status, strerror(-ret));
	telemetry_retire();
	destroy_run(&service);
	eal_block_interrupts();
	leaked = pipeline_destroy(&pipeline);
	stop_nexus(&service);
	watchdog_stop(service.watchdog);
	if (leaked != 0 && service.failed != 0)
		LOG(ERR, "%u %s leaked by the aborted run\n", leaked,
			plural(leaked, "mbuf", "mbufs"));
	else if (leaked != 0)
		LOG(ERR, "%u %s leaked: this is a bug\n", leaked, plural(leaked, "mbuf", "mbufs"));
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

	/* Save the CPUs of the process for the writer, before EAL pins this thread. */
	if (sched_getaffinity(0, sizeof(process_cpus), &process_cpus) != 0)
		CPU_ZERO(&process_cpus);
	own = eal_own_words(argc, argv);
	ret = parse_arguments(&arguments, argc - own, argv + own);
	if (ret < 0 && own == 0)
		eal_hint(stderr, "braggline-recv", "--config FILE");
	if (ret != 0)
		return ret > 0 ? EXIT_SUCCESS : EXIT_CONFIG;
	if (arguments.dump_config)
		return dump(&arguments);
	/* A signal that arrives while EAL starts ends the run before it begins. */
	eal_signals(&action);
	status = eal_start("braggline-recv", argc, argv, own);
	if (status != EXIT_SUCCESS)
		return status;
	status = run(&arguments, &process_cpus);
	eal_end();
	return status;
}
