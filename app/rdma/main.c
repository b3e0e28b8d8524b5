/* SPDX-License-Identifier: BSD-3-Clause */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "cmatose.h"
#include "eal_end.h"
#include "mckey.h"
#include "perftest.h"
#include "rping.h"
#include "session.h"
#include "udaddy.h"
#include "wiretap.h"

#define LAST_FRAMES 20 /* ms, for acknowledgements that are still to go out */

static const struct mode *const modes[] = {
	&perftest_write_bw,
	&perftest_read_bw,
	&perftest_send_bw,
	&perftest_atomic_bw,
	&perftest_write_lat,
	&perftest_read_lat,
	&perftest_send_lat,
	&perftest_atomic_lat,
	&rping_mode,
	&cmatose_mode,
	&udaddy_mode,
	&mckey_mode,
};

static void
on_signal(int number)
{
	session_stop = number;
}

static void
print_help(FILE *out)
{
	unsigned int i;

	fprintf(out,
		"Usage: braggline-rdma [EAL options] -- MODE [OPTION]...\n"
		"Speak RDMA with stock programs, in both roles, or with itself.\n\n");
	for (i = 0; i < RTE_DIM(modes); i++)
		fprintf(out, "  %-12s peer of %s\n", modes[i]->name, modes[i]->summary);
	fprintf(out,
		"\nbraggline-rdma -- MODE --help lists a mode's options; --version prints the "
		"version.\n");
}

static const struct mode *
find_mode(const char *name)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(modes); i++)
		if (strcmp(modes[i]->name, name) == 0)
			return modes[i];
	return NULL;
}

/* Words up to "--", which are EAL's; 0 if there is none. */
static int
eal_words(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			return i;
	return 0;
}

static int
run(const struct mode *mode, const struct target *target)
{
	struct session session;
	int rc;

	rc = session_open(&session, target->device);
	if (rc < 0)
		return rc;
	session.sleepy = target->sleepy;
	session.wait_ms = target->wait * 1000;
	rc = wiretap_open(target);
	if (rc == 0)
		rc = mode->run(&session, target);
	session_linger(&session, LAST_FRAMES);
	wiretap_close();
	eal_hold();
	session_close(&session);
	return rc;
}

int
main(int argc, char **argv)
{
	int eal = eal_words(argc, argv), rc;
	struct sigaction action = {.sa_handler = on_signal};
	struct target target = {0};
	const struct mode *mode;
	char *name = argv[0];

	/* others wait for what it says, also behind a pipe */
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* the program's own words first: help and mistakes need no EAL */
	argv[eal] = name;
	argc -= eal + 1;
	argv += eal + 1;
	if (argc && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
		print_help(stdout);
		return EXIT_SUCCESS;
	}
	if (argc && strcmp(argv[0], "--version") == 0) {
		printf("braggline-rdma " BRAGGLINE_VERSION "\n");
		return EXIT_SUCCESS;
	}
	mode = argc ? find_mode(argv[0]) : NULL;
	if (!mode) {
		if (argc)
			warnx("unknown mode '%s'", argv[0]);
		print_help(stderr);
		return 2;
	}
	switch (mode->parse(argc, argv, &target)) {
	case OPTIONS_HELP:
		return EXIT_SUCCESS;
	case OPTIONS_WRONG:
		return 2;
	default:
		break;
	}
	if (!target.device) {
		warnx("%s: no device, wanted --device, as roce:port=0,ip=10.0.0.1/24", mode->name);
		return 2;
	}
	/* no SA_RESTART: sleeping ends, too */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	argv -= eal + 1;
	argv[0] = name;
	if (rte_eal_init(eal ? eal : 1, argv) < 0)
		errx(2, "EAL cannot be initialised: %s", rte_strerror(rte_errno));
	rc = run(mode, &target);
	eal_end();
	if (session_stop && rc < 0)
		return 128 + session_stop;
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
