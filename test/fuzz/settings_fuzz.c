/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configuration files and telemetry parameters of any content. An input is an INI file, a zero
 * byte, and parameters of /braggline/run/configure. Accepted settings must lie in the ranges that
 * the rest of the program relies on.
 */

#include <rte_log.h>

#include "run.c"
#include "seed_corpus.h"
#include "settings_range.h"

static char path[64];

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char demo[] = "[detector]\nmodules = 2\n; note\n[lcores]\nrx = 1,3-4\n"
				   "[geometry]\nbeam_x = 5\nbeam_y = 7\ndistance_mm = 90\n"
				   "[peaks]\nsearch = all\nshells = 50,10,4\nveto_shells = 1\n"
				   "[veto]\nstrong_min = 20\n[run]\nname = a\n\0"
				   "run.name=b,veto.strong_min=3,output.format=raw";

	seed_begin(argc, argv);
	seed_add("demo", (const uint8_t *)demo, sizeof(demo) - 1);
	rte_log_set_global_level(RTE_LOG_EMERG);
	snprintf(path, sizeof(path), "/dev/shm/braggline-settings-%d.ini", (int)getpid());
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gk_channel channel;
	static struct gk_config gk_config;
	static struct pipeline pipeline;
	static struct egress_settings egress;
	static struct settings process;
	const uint8_t *end = memchr(data, 0, size);
	const size_t ini = end != NULL ? (size_t)(end - data) : size;
	const struct config_source base = {.file = path};
	char assignments[512] = "";
	struct config *c;
	struct run *run;
	FILE *f;

	f = fopen(path, "wb");
	if (f == NULL || fwrite(data, 1, ini, f) != ini || fclose(f) != 0)
		abort();
	if (end != NULL)
		snprintf(assignments, sizeof(assignments), "%.*s", (int)(size - ini - 1),
			(const char *)end + 1);
	c = config_open(&base);
	if (c != NULL) {
		if (settings_read(&process, &egress, c) == 0) {
			settings_check(&process);
			gk_config.channel = &channel;
			gk_config.layout.nnz_cap = process.veto.params.nnz_max;
			pipeline.gk_config = &gk_config;
			run = run_create(&pipeline, &process, &base, false);
			if (run == NULL)
				abort();
			if (run_configure(run, assignments) == 0)
				settings_check(&run->settings);
			else if (run->message[0] == '\0')
				abort();
			run_destroy(run);
		}
		config_close(c);
	}
	unlink(path);
	return 0;
}
