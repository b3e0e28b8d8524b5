/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-publish: sends the kept frames of runs to live programs. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "escaped_text.h"
#include "io/own_file.h"
#include "scan/memory.h"
#include "options.h"
#include "report.h"

#define EXIT_FAILED 1
#define EXIT_USAGE  2
#define NICE	    10
#define IO_CLASS    2 /* best effort, ioprio_set(2) */
#define IO_LEVEL    7 /* the last one */
#define REPORT_MS   1000
#define STEP_MS	    50 /* interval at which the main thread checks whether all has ended */
/*
 * times after which a run that has not begun is reported: the first one, if it was not reported at
 * the start, and again after each @{
 */
#define ABSENT_FIRST_MS 1000
#define ABSENT_MS	60000
/* @} */

struct publisher {
	struct options options;
	struct feed feed;
	struct watch *watch;
	struct output *output[OUTPUT_KINDS];
	void *context;
	pthread_t thread;
	bool has_thread;
	bool awaits;	/* the runs to come were reported at the start */
	uint64_t ended; /* runs whose end was noticed */
};

static int
complain(const char *format, const char *text)
{
	char line[OUTPUT_MESSAGE_LEN + 64];

	snprintf(line, sizeof(line), format, text);
	escaped_line(stderr, "braggline-publish: %s", line);
	return -EINVAL;
}

/* The programs of the dataplane come first: for CPUs, for the disk, and if memory runs out. */
static void
lower_priority(void)
{
	int fd;

	(void)setpriority(PRIO_PROCESS, 0, NICE);
	(void)syscall(SYS_ioprio_set, 1, 0, IO_CLASS << 13 | IO_LEVEL);
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "1000", 4) != 4)
		complain("/proc/self/oom_score_adj: cannot be written: %s", strerror(errno));
	close(fd);
}

/*
 * Each client needs a descriptor. The soft limit is low because of programs that call select(2).
 * This one does not.
 */
static void
raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void *
run_watch(void *arg)
{
	watch_run(arg);
	return NULL;
}

static int
open_outputs(struct publisher *p)
{
	const struct options *o = &p->options;
	struct output_config config = {.hwm = o->hwm, .behind = o->behind, .feed = &p->feed};
	char message[OUTPUT_MESSAGE_LEN];
	int64_t rows_ms;
	int ret;

	p->context = zmq_ctx_new();
	if (p->context == NULL || zmq_ctx_set(p->context, ZMQ_IO_THREADS, OUTPUT_IO_THREADS) < 0)
		return complain("cannot start ZeroMQ: %s", strerror(errno));
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++) {
		if (o->address[i] == NULL)
			continue;
		/* CrystFEL does not need rows to index an image */
		rows_ms = i == OUTPUT_STREAM2 || i == OUTPUT_STREAM2_PUB ? OUTPUT_ROWS_MS : 0;
		rows_ms = o->rows_ms >= 0 ? o->rows_ms : rows_ms;
		config.rows_ns = rows_ms * 1000000;
		ret = output_create(&p->output[i], i, p->context, o->address[i], &config, message);
		if (ret < 0)
			return complain("%s", message);
	}
	return 0;
}

/* Tests and scripts wait for these lines: runs that begin after them are published. */
static int
print_addresses(const struct publisher *p)
{
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++) {
		if (p->output[i] != NULL)
			printf("%s: %s\n", output_name(i), output_address(p->output[i]));
	}
	if (fflush(stdout) == 0)
		return 0;
	return complain("cannot write the addresses to standard output: %s", strerror(errno));
}

/* Number of messages of images in memory: each output has those of a client, and two in work. */
static unsigned int
count_messages(const struct options *o)
{
	unsigned int nb = 0;

	for (unsigned int i = 0; i < OUTPUT_KINDS; i++)
		nb += o->address[i] != NULL ? o->hwm + 2 : 0;
	return nb;
}

/* Says for which runs the program waits, and where. */
static void
report_awaited(const struct publisher *p)
{
	const struct options *o = &p->options;
	const char *absent;

	for (size_t i = 0; i < o->nb_dirs; i++) {
		absent = access(o->dir[i], F_OK) < 0 && errno == ENOENT ? " (it does not exist yet)"
									: "";
		if (o->run != NULL)
			escaped_line(stderr,
				"braggline-publish: waiting for run %s in %s%s and its subfolders: "
				"a file %s*_images.arrow or .arrow.part with images of this run",
				o->run, o->dir[i], absent, o->run);
		else
			escaped_line(stderr,
				"braggline-publish: waiting for runs that are written in %s%s and "
				"its subfolders; --run NAME publishes one that has ended",
				o->dir[i], absent);
	}
}

static int
start(struct publisher *p)
{
	const struct options *o = &p->options;
	const struct watch_config config = {
		.dir = o->dir,
		.nb_dirs = o->nb_dirs,
		.run = o->run,
		.geom = o->geom,
		.poll_us = o->poll_ms * 1000,
		.messages = count_messages(o),
		.raw = o->raw,
	};
	int ret = open_outputs(p);

	if (ret == 0)
		ret = watch_create(&p->watch, &config, &p->feed);
	if (ret == 0)
		ret = print_addresses(p);
	p->awaits = ret == 0 && !watch_has_files(p->watch);
	if (p->awaits)
		report_awaited(p);
	for (unsigned int i = 0; ret == 0 && i < OUTPUT_KINDS; i++) {
		if (p->output[i] != NULL)
			ret = output_start(p->output[i]);
	}
	if (ret == 0)
		ret = -pthread_create(&p->thread, NULL, run_watch, p->watch);
	p->has_thread = ret == 0;
	return ret;
}

static bool
is_over(const struct publisher *p)
{
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++) {
		if (p->output[i] != NULL && !output_is_over(p->output[i]))
			return false;
	}
	return true;
}

static void
write_stats(const struct publisher *p, bool *failed)
{
	const struct report report = {p->watch, p->output};
	int ret;

	if (p->options.stats == NULL)
		return;
	ret = report_write(&report, p->options.stats);
	if (ret < 0 && !*failed)
		escaped_line(stderr, "braggline-publish: --stats %s: cannot be written: %s",
			p->options.stats, own_file_error(ret));
	*failed = ret < 0;
}

static void
check_outputs(const struct publisher *p)
{
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++) {
		if (p->output[i] != NULL)
			output_check(p->output[i]);
	}
}

/* Says now and then that the run of --run has not begun: its name may be wrong. */
static void
report_absent_run(const struct publisher *p, unsigned int waited_ms)
{
	const bool first = waited_ms == ABSENT_FIRST_MS && !p->awaits;
	struct watch_stats stats;

	if (p->options.run == NULL || (!first && waited_ms % ABSENT_MS != 0))
		return;
	watch_stats_get(p->watch, &stats);
	if (stats.runs == 0)
		report_awaited(p);
}

/* Says at the end of a run which images of all runs are not sent yet. */
static void
report_unsent(struct publisher *p)
{
	struct watch_stats stats;

	watch_stats_get(p->watch, &stats);
	if (stats.ended == p->ended)
		return;
	p->ended = stats.ended;
	report_waiting(&(struct report){p->watch, p->output});
}

/* Until a signal, or until all was sent. */
static void
wait_for_end(struct publisher *p, const sigset_t *signals)
{
	const struct timespec step = {.tv_nsec = STEP_MS * 1000000};
	unsigned int ms = REPORT_MS, waited_ms = 0;
	bool failed = false;

	while (!is_over(p)) {
		if (sigtimedwait(signals, NULL, &step) >= 0)
			break;
		waited_ms += STEP_MS;
		report_absent_run(p, waited_ms);
		report_unsent(p);
		check_outputs(p);
		ms += STEP_MS;
		if (ms < REPORT_MS)
			continue;
		ms = 0;
		write_stats(p, &failed);
	}
}

static void
stop(struct publisher *p, const sigset_t *signals)
{
	const bool whole = is_over(p);
	bool failed = false;

	if (p->watch != NULL)
		watch_stop(p->watch);
	for (unsigned int i = 0; i < OUTPUT_KINDS && !whole; i++) {
		if (p->output[i] != NULL)
			output_stop(p->output[i]);
	}
	if (p->has_thread) {
		pthread_join(p->thread, NULL);
		/* the counters of the end */
		while (!is_over(p)) {
			check_outputs(p);
			usleep(1000);
		}
		write_stats(p, &failed);
		report_summary(&(struct report){p->watch, p->output});
	}
	/* a second signal ends the process immediately, even while outputs wait for clients */
	pthread_sigmask(SIG_UNBLOCK, signals, NULL);
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++)
		output_destroy(p->output[i]);
	if (p->context != NULL)
		zmq_ctx_term(p->context);
	watch_destroy(p->watch);
	feed_free(&p->feed);
	scan_memory_trim();
}

int
main(int argc, char **argv)
{
	struct publisher p = {0};
	char message[OPTIONS_MESSAGE_LEN];
	sigset_t signals;
	int ret;

	if (options_parse(&p.options, argc, argv, message) < 0) {
		complain("%s", message);
		return EXIT_USAGE;
	}
	if (p.options.help || p.options.version) {
		if (p.options.help)
			options_help();
		else
			puts("braggline-publish " BRAGGLINE_VERSION);
		return 0;
	}
	lower_priority();
	raise_descriptors();
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	ret = feed_init(&p.feed);
	if (ret == 0)
		ret = start(&p);
	if (ret == 0)
		wait_for_end(&p, &signals);
	else if (ret != -EINVAL)
		complain("cannot start: %s", strerror(-ret));
	stop(&p, &signals);
	if (fflush(stdout) != 0 && ret == 0)
		ret = complain("cannot write to standard output: %s", strerror(errno));
	return ret < 0 ? EXIT_FAILED : 0;
}
