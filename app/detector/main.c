/* SPDX-License-Identifier: BSD-3-Clause */

#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "detector_options.h"
#include "detector_run.h"
#include "eal_end.h"
#include "transmit_run.h"

static void
on_signal(int number)
{
	detector_stop = number;
}

/* Words before "--", which are EAL's; 0 if there is none. */
static int
eal_words(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			return i;
	return 0;
}

int
main(int argc, char **argv)
{
	struct detector_options options;
	struct sigaction action = {.sa_handler = on_signal};
	int eal = eal_words(argc, argv), rc;
	char *name = argv[0];

	/* the program's own options first: help and mistakes need no EAL */
	argv[eal] = name;
	rc = detector_options_parse(argc - eal, argv + eal, &options);
	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : 2;
	if ((options.port_name != NULL) != (eal != 0)) {
		if (eal != 0)
			warnx("found EAL options, wanted --port NAME behind '--' to transmit on");
		else
			warnx("--port: wanted EAL options before: braggline-detector "
			      "[EAL options] -- --port NAME ...");
		return 2;
	}

	/* no SA_RESTART: a write into a full pipe is given up */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* a closed pipe is an error of the write, reported as every other */
	signal(SIGPIPE, SIG_IGN);

	if (eal != 0) {
		if (rte_eal_init(eal, argv) < 0)
			errx(2, "EAL cannot be initialised: %s", rte_strerror(rte_errno));
		rc = transmit_run(&options);
		eal_end();
		/* a signal is how --loop ends */
		return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	rc = detector_run(&options);
	if (detector_stop != 0)
		return 128 + detector_stop;
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
