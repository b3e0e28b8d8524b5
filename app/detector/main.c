/* SPDX-License-Identifier: BSD-3-Clause */

#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "detector_options.h"
#include "detector_run.h"
#include "eal/end.h"
#include "eal/start.h"
#include "transmit/run.h"

static void
on_signal(int number)
{
	detector_stop = number;
}

/* EAL is only needed to transmit. */
static bool
transmits(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strncmp(argv[i], "--port", strlen("--port")) == 0 ||
			strncmp(argv[i], "--device", strlen("--device")) == 0)
			return true;
	return false;
}

int
main(int argc, char **argv)
{
	struct detector_options options;
	struct sigaction action = {.sa_handler = on_signal};
	int own = eal_own_words(argc, argv), ret;

	ret = detector_options_parse(argc - own, argv + own, &options);
	if (ret < 0 && own == 0 && transmits(argc, argv))
		eal_hint(stderr, "braggline-detector", "--port NAME or --device NAME");
	if (ret != 0)
		return ret > 0 ? EXIT_SUCCESS : 2;
	if (detector_options_transmits(&options) != (own != 0)) {
		const char *name = options.port_name != NULL ? "port" : "device";

		if (own != 0)
			warnx("found EAL options, expected --port NAME or --device NAME after "
			      "'--'");
		else
			warnx("--%s: EAL options are missing: braggline-detector [EAL options] "
			      "-- --%s NAME ...",
				name, name);
		return 2;
	}

	/*
	 * No SA_RESTART: a signal interrupts a write to a full pipe. A write of frames to a broken
	 * pipe is an error like any other.
	 */
	eal_signals(&action);

	if (own != 0) {
		ret = eal_start("braggline-detector", argc, argv, own);
		if (ret != EXIT_SUCCESS)
			return ret;
		ret = transmit_run(&options);
		eal_end();
		/* a signal is the normal end of --loop */
		return ret == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	ret = detector_run(&options);
	if (detector_stop != 0)
		return 128 + detector_stop;
	return ret == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
