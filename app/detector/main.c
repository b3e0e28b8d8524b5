/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "detector_options.h"
#include "detector_run.h"

static void
on_signal(int number)
{
	detector_stop = number;
}

int
main(int argc, char **argv)
{
	struct detector_options options;
	struct sigaction action = {.sa_handler = on_signal};
	int rc;

	rc = detector_options_parse(argc, argv, &options);
	if (rc != 0)
		return rc > 0 ? EXIT_SUCCESS : 2;

	/* no SA_RESTART: a write into a full pipe is given up */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* a closed pipe is an error of the write, reported as every other */
	signal(SIGPIPE, SIG_IGN);

	rc = detector_run(&options);
	if (detector_stop != 0)
		return 128 + detector_stop;
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
