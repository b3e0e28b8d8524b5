/* SPDX-License-Identifier: BSD-3-Clause */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "cm/cmatose.h"
#include "eal/end.h"
#include "eal/start.h"
#include "cm/mckey.h"
#include "files/files.h"
#include "perftest/perftest.h"
#include "cm/rping.h"
#include "session.h"
#include "cm/udaddy.h"
#include "wiretap.h"

#define FLUSH_MS 20 /* time to transmit the last acknowledgements */

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
	&push_mode,
	&fetch_mode,
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
		"Tests RDMA devices against the standard RDMA programs, in both roles, or "
		"against itself. Sends files by multicast.\n"
		"\n");
	for (i = 0; i < RTE_DIM(modes); i++)
		fprintf(out, "  %-12s %s%s\n", modes[i]->name, modes[i]->purpose ? "" : "peer of ",
			modes[i]->purpose ? modes[i]->purpose : modes[i]->summary);
	fprintf(out,
		"\nbraggline-rdma -- MODE --help lists the options of a mode; --version prints "
		"the version.\n");
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

static int
run(const struct mode *mode, const struct target *target)
{
	struct session session;
	int ret;

	ret = session_open(&session, target->device);
	if (ret < 0)
		return ret;
	session.sleepy = target->sleepy;
	session.wait_ms = target->wait * 1000;
	ret = wiretap_open(target);
	if (ret == 0)
		ret = mode->run(&session, target);
	session_linger(&session, FLUSH_MS);
	wiretap_close();
	if (target->stats)
		session_print_stats(&session);
	eal_block_interrupts();
	session_close(&session);
	return ret;
}

int
main(int argc, char **argv)
{
	const int own = eal_own_words(argc, argv), nb = argc - own - 1;
	char **const words = argv + own + 1;
	struct sigaction action = {.sa_handler = on_signal};
	struct target target = {0};
	const struct mode *mode;
	int ret;

	/* other programs wait for its output, also through a pipe */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (nb && (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0)) {
		print_help(stdout);
		return EXIT_SUCCESS;
	}
	if (nb && strcmp(words[0], "--version") == 0) {
		printf("braggline-rdma " BRAGGLINE_VERSION "\n");
		return EXIT_SUCCESS;
	}
	mode = nb ? find_mode(words[0]) : NULL;
	if (!mode) {
		if (nb)
			warnx("unknown mode '%s'", words[0]);
		print_help(stderr);
		if (own == 0)
			eal_hint(stderr, "braggline-rdma", "MODE");
		return 2;
	}
	switch (mode->parse(nb, words, &target)) {
	case OPTIONS_HELP:
		return EXIT_SUCCESS;
	case OPTIONS_WRONG:
		return 2;
	default:
		break;
	}
	if (!target.device) {
		warnx("%s: no device given, expected --device, as roce:port=0,ip=10.0.0.1/24",
			mode->name);
		return 2;
	}
	/* no SA_RESTART: a signal also interrupts sleep */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	ret = eal_start("braggline-rdma", argc, argv, own);
	if (ret != EXIT_SUCCESS)
		return ret;
	ret = run(mode, &target);
	eal_end();
	if (session_stop && ret < 0)
		return 128 + session_stop;
	return ret == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
