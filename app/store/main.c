/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-store: receives record batches from receivers and writes them to files. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_ethdev.h>
#include <rte_version.h>

#include "log.h"
#include "option_refuse.h"
#include "tools/command.h"
#include "arrow/async_writer.h"
#include "config/config.h"
#include "eal/end.h"
#include "eal/nexus.h"
#include "eal/start.h"
#include "eal/watchdog.h"
#include "server/settings.h"
#include "server/telemetry.h"
#include "service_manager.h"

LOG_REGISTER("store.main", "store");

#define IDLE_TURNS 1000
#define IDLE_US	   50
#define STOP_MS	   10000
#define WATCH_MS   UINT64_C(1000)

struct arguments {
	struct config_source settings;
	bool dump_config;
};

/* Commands that work on directories, without EAL. A command name never begins with a dash. */
static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	bool writes; /* a broken pipe must not end it */
	const char *what;
} commands[] = {
	{"import", cmd_import, true,
		"import spilled files, or a journal, into the directory of a store"},
	{"reconcile", cmd_reconcile, true, "remove batches that two stores have from one of them"},
	{"verify", cmd_verify, false, "compare the files with the CRCs of their batches"},
};

#define NB_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int signalled;  /* atomic: number of the signal; set by its handler */
static uint64_t polls; /* atomic */

static void
on_signal(int number)
{
	__atomic_store_n(&signalled, number, __ATOMIC_RELAXED);
}

static void
usage(FILE *out)
{
	unsigned int i;

	fprintf(out,
		"Usage: braggline-store [EAL options] -- --config FILE [options]\n"
		"       braggline-store COMMAND ...\n"
		"\n"
		"Receives record batches from braggline-recv over RDMA and stores them in Arrow\n"
		"files. Acknowledges a batch after it is durable. Runs until SIGTERM or SIGINT.\n"
		"\n"
		"  -c, --config FILE            settings; README.rst has the table of keys\n"
		"  -s, --set SECTION.KEY=VALUE  override one setting; may be repeated\n"
		"      --dump-config            print all effective settings and exit\n"
		"      --list-telemetry         print the commands of /braggline/... and exit\n"
		"  -h, --help                   print this help and exit\n"
		"  -V, --version                print the version and exit\n"
		"\n"
		"Exit status: 0: success; 1: failure; 2: invalid command line or settings.\n"
		"\n"
		"Commands, each with its own --help:\n");
	for (i = 0; i < NB_COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
}

/* @return 0: continue; > 0: exit with success; < 0: invalid arguments */
static int
parse_arguments(struct arguments *a, int argc, char **argv)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"set", required_argument, NULL, 's'},
		{"dump-config", no_argument, NULL, 'D'},
		{"list-telemetry", no_argument, NULL, 'T'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	unsigned int i;
	int option;

	optind = 1;
	while ((option = getopt_long(argc, argv, "c:s:hV", options, NULL)) != -1) {
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
		case 'T':
			store_telemetry_document(stdout);
			return 1;
		case 'h':
			usage(stdout);
			return 1;
		case 'V':
			printf("braggline-store %s, %s\n", BRAGGLINE_VERSION, rte_version());
			return 1;
		default:
			option_try_help("braggline-store");
			return -EINVAL;
		}
	}
	if (optind < argc) {
		fprintf(stderr,
			"braggline-store: '%s' is neither a command nor an option:", argv[optind]);
		for (i = 0; i < NB_COMMANDS; i++)
			fprintf(stderr, "%s %s", i == 0 ? "" : ",", commands[i].name);
		fprintf(stderr, "; see braggline-store --help\n");
		return -EINVAL;
	}
	if (a->settings.file == NULL && a->settings.nb_sets == 0 && !a->dump_config) {
		fprintf(stderr,
			"braggline-store: --config FILE is required; see braggline-store --help\n");
		return -EINVAL;
	}
	return 0;
}

static bool
is_memif_client(uint16_t port)
{
	const struct rte_devargs *devargs;
	struct rte_eth_dev_info info;

	if (rte_eth_dev_info_get(port, &info) != 0 || strcmp(info.driver_name, "net_memif") != 0)
		return false;
	devargs = rte_dev_devargs(info.device);
	return devargs != NULL && devargs->args != NULL &&
		strstr(devargs->args, "role=client") != NULL;
}

/* The client of a memif does not connect again when its server's process has ended. */
static void
watch_memif(void)
{
	static bool up[RTE_MAX_ETHPORTS];
	char name[RTE_ETH_NAME_MAX_LEN];
	struct rte_eth_link link;
	uint16_t port;

	RTE_ETH_FOREACH_DEV(port) {
		if (!is_memif_client(port) || rte_eth_link_get_nowait(port, &link) != 0 ||
			link.link_status == up[port])
			continue;
		up[port] = link.link_status;
		if (!up[port] && rte_eth_dev_get_name_by_port(port, name) == 0)
			LOG(WARNING,
				"%s: the server of this memif has ended, and its client does not "
				"connect again; restart the store after that process\n",
				name);
	}
}

/** Log what connections have registered, and the share of registration in the time of service. */
static void
log_registrations(const struct store *s, uint64_t began)
{
	const uint64_t ms = xfer_qp_clock() - began;
	const struct rdma_dev_info *info;
	struct rdma_registrations r;

	rdma_registrations_get(store_get_device(s, &info), &r);
	LOG(INFO,
		"%" PRIu64 " memory regions of %" PRIu64 " MiB registered in %.3f ms, %.4f %% of "
		"%.1f s\n",
		r.regions, r.bytes >> 20, r.ns / 1e6, r.ns / 1e4 / RTE_MAX(ms, UINT64_C(1)),
		ms / 1e3);
}

static bool
has_polled(void *arg)
{
	uint64_t *seen = arg;
	const uint64_t now = __atomic_load_n(&polls, __ATOMIC_RELAXED);
	const bool any = now != *seen;

	*seen = now;
	return any;
}

/* The end waits for the disk. */
static uint64_t
get_progress(void *arg)
{
	return async_writer_ended();
}

static void
poll_until_signal(struct store *s, struct nexus *nexus)
{
	const uint64_t began = xfer_qp_clock();
	uint64_t until, watch_at = 0;
	unsigned int idle = 0;

	while (__atomic_load_n(&signalled, __ATOMIC_RELAXED) == 0 && !store_lost_device(s)) {
		if (xfer_qp_clock() >= watch_at) {
			watch_memif();
			nexus_watch(nexus);
			watch_at = xfer_qp_clock() + WATCH_MS;
		}
		__atomic_store_n(&polls, polls + 1, __ATOMIC_RELAXED);
		idle = store_poll(s) ? 0 : idle + 1;
		if (idle > IDLE_TURNS)
			usleep(IDLE_US);
	}
	if (signalled != 0)
		LOG(NOTICE, "stopping on signal: %s\n", strsignal(signalled));
	log_registrations(s, began);
	store_stop(s);
	until = xfer_qp_clock() + STOP_MS;
	while (!store_is_idle(s) && xfer_qp_clock() < until)
		(void)store_poll(s);
}

/* Print the effective configuration. Does not need EAL. */
static int
dump(const struct arguments *a)
{
	struct config *c = config_open(&a->settings);
	struct store_config settings = {0};
	int status = EXIT_USAGE;

	if (c == NULL)
		return EXIT_USAGE;
	store_settings_read(&settings, c);
	if (config_check(c) == 0) {
		config_dump(c, stdout);
		status = EXIT_SUCCESS;
	}
	config_close(c);
	return status;
}

/** A connection grants its receiver this memory. */
static void
warn_of_memory(uint64_t bytes)
{
	const uint64_t have = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	if (bytes > have)
		LOG(WARNING,
			"[store] memory_mib = %" PRIu64 " for each connection, but this host has "
			"%" PRIu64 " MiB; set less\n",
			bytes >> 20, have >> 20);
}

static int
run(const struct arguments *a)
{
	struct config *c = config_open(&a->settings);
	struct store_config settings = {0};
	struct watchdog *watchdog = NULL;
	struct nexus nexus = {0};
	char message[PATH_MAX];
	uint64_t seen = 0; /* by has_polled() */
	struct store *s;
	int ret, status = EXIT_USAGE;

	if (c == NULL)
		return EXIT_USAGE;
	store_settings_read(&settings, c);
	store_settings_need(&settings, c);
	if (config_check(c) != 0)
		goto out;
	status = EXIT_FAILURE;
	if (settings.nexus && nexus_find(&nexus) < 0) {
		LOG(ERR,
			"[files] nexus = yes: braggline-export is not beside this program; install "
			"HDF5 (Debian: libhdf5-dev) and build it, or set no\n");
		goto out;
	}
	ret = store_open(&s, &settings, message);
	if (ret < 0) {
		LOG(ERR, "%s\n", message);
		/* the service manager does not start it again: that would change nothing */
		if (ret == -EINVAL)
			status = EXIT_USAGE;
		goto out;
	}
	store_telemetry_open(s);
	warn_of_memory(settings.memory);
	snprintf(message, sizeof(message), "listening on port %u of %.1000s, files in %.3000s",
		settings.port, settings.device, settings.files.root);
	LOG(NOTICE, "%s\n", message);
	if (settings.nexus)
		ret = nexus_start(&nexus, settings.files.root);
	if (ret < 0) {
		LOG(ERR, "[files] nexus: cannot start %s: %s\n", nexus.program, strerror(-ret));
	} else {
		service_manager_status(message);
		watchdog = watchdog_start(
			&(struct watchdog_config){has_polled, get_progress, &seen, &signalled});
		poll_until_signal(s, &nexus);
		watchdog_end(watchdog);
	}
	store_telemetry_close();
	eal_block_interrupts();
	/* without its device the service manager starts it again */
	status = ret < 0 || store_lost_device(s) ? EXIT_FAILURE : EXIT_SUCCESS;
	ret = store_close(s);
	nexus_stop(&nexus);
	watchdog_stop(watchdog);
	if (ret < 0) {
		LOG(ERR, "a file ended with an error: %s\n", strerror(-ret));
		status = EXIT_FAILURE;
	}
out:
	config_close(c);
	return status;
}

int
main(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = on_signal};
	struct arguments arguments = {0};
	unsigned int i;
	int own, ret;

	for (i = 0; i < NB_COMMANDS && argc > 1; i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		if (commands[i].writes)
			signal(SIGPIPE, SIG_IGN);
		return commands[i].run(argc - 1, argv + 1);
	}
	own = eal_own_words(argc, argv);
	ret = parse_arguments(&arguments, argc - own, argv + own);
	if (ret < 0 && own == 0)
		eal_hint(stderr, "braggline-store", "--config FILE");
	if (ret != 0)
		return ret > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	if (arguments.dump_config)
		return dump(&arguments);
	eal_signals(&action);
	ret = eal_start("braggline-store", argc, argv, own);
	if (ret != EXIT_SUCCESS)
		return ret;
	ret = run(&arguments);
	eal_end();
	return ret;
}
