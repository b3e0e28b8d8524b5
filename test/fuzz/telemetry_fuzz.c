/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests on the receiver's telemetry socket. Each line of an input is a request, which is split
 * into command and parameters as by DPDK, to a run in any state. The commands are those that
 * telemetry.c registers; builder and writer are fakes. A store's commands take no parameters.
 */
#include <errno.h>

#include <rte_log.h>
#include <rte_telemetry.h>

#include "run.c"
#include "seed_corpus.h"
#include "settings_range.h"
#include "telemetry/telemetry.h"

#define REQUEST	 1023 /* bytes that DPDK reads */
#define COMMANDS 64

static struct {
	const char *path;
	telemetry_cb callback;
} commands[COMMANDS];
static unsigned int nb_commands;

static struct builder_stats stats;
static struct builder_command ordered;
static struct gk_channel channel;
static struct gk_config gk_config;
static struct rx *rx[FRAME_RX_MAX];
static struct pipeline pipeline;
static struct egress_settings egress;
static struct settings process;
static struct config *process_config;
static char path[64];
static const struct config_source base = {.file = path};

/* ---- fake functions (-Wl,--wrap) ------------------------------------------------------------- */

int __wrap_rte_telemetry_register_cmd(const char *cmd, telemetry_cb fn, const char *help);
struct builder_stats __wrap_builder_stats(const struct builder *b);
int __wrap_builder_post(struct builder *b, const struct builder_command *command);
int __wrap_builder_result(struct builder *b, uint64_t *from_frame);
void __wrap_batch_writer_stats_get(const struct batch_writer *w, struct batch_writer_stats *stats);
void __wrap_batch_writer_status(
	struct batch_writer *w, enum arrow_table table, struct run_files_status *status);

int
__wrap_rte_telemetry_register_cmd(const char *cmd, telemetry_cb fn, const char *help)
{
	if (nb_commands == COMMANDS)
		abort();
	commands[nb_commands].path = cmd;
	commands[nb_commands++].callback = fn;
	return 0;
}

struct builder_stats
__wrap_builder_stats(const struct builder *b)
{
	return stats;
}

int
__wrap_builder_post(struct builder *b, const struct builder_command *command)
{
	if (command->order == BUILDER_VETO && command->from_frame > FRAME_NUMBER_MAX)
		abort();
	ordered = *command;
	return 0;
}

int
__wrap_builder_result(struct builder *b, uint64_t *from_frame)
{
	if (from_frame)
		*from_frame = ordered.from_frame;
	return 0;
}

void
__wrap_batch_writer_stats_get(const struct batch_writer *w, struct batch_writer_stats *writer_stats)
{
	memset(writer_stats, 0, sizeof(*writer_stats));
}

void
__wrap_batch_writer_status(
	struct batch_writer *w, enum arrow_table table, struct run_files_status *status)
{
	memset(status, 0, sizeof(*status));
}

/* ---------------------------------------------------------------------------------------------- */

/*
 * Commands that need only settings. The others take no parameters and read counters and files. DPDK
 * frees nested dicts of a reply after printing them, which does not happen here.
 */
static bool
is_served(const char *cmd)
{
	static const char *const served[] = {"/braggline/run/configure", "/braggline/veto/set",
		"/braggline/veto", "/braggline/run/status"};

	for (unsigned int i = 0; i < RTE_DIM(served); i++)
		if (strcmp(cmd, served[i]) == 0)
			return true;
	return false;
}

static void
serve(struct run *run, const char *line, size_t length)
{
	char request[REQUEST + 1], *rest, *cmd;
	const uint32_t version = run->veto_version;
	struct rte_tel_data *d;

	if (length > REQUEST)
		length = REQUEST;
	memcpy(request, line, length);
	request[length] = '\0';
	cmd = strtok_r(request, ",", &rest);
	if (cmd == NULL || !is_served(cmd))
		return;
	for (unsigned int i = 0; i < nb_commands; i++) {
		if (strcmp(cmd, commands[i].path) != 0)
			continue;
		d = rte_tel_data_alloc();
		if (d == NULL)
			abort();
		commands[i].callback(cmd, strtok_r(NULL, "", &rest), d);
		rte_tel_data_free(d);
	}
	/* thresholds that were accepted are the run's and the builder's; a refusal has a message */
	if (run->veto_version != version &&
		(run->veto_version != version + 1 || run->state != RUN_RUNNING ||
			ordered.veto.params.version != run->veto_version))
		abort();
	if (run->state != RUN_IDLE)
		settings_check(&run->settings);
	if (memchr(run->message, '\0', sizeof(run->message)) == NULL)
		abort();
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char ini[] = "[detector]\nmodules = 2\n[veto]\nstrong_min = 20\n[run]\n"
				  "name = a\n";
	static const char runs[] = "/braggline/run/configure,run.name=b,veto.strong_min=3,"
				   "output.format=raw,run.stride=4,run.offset=1\n"
				   "/braggline/run/status\n",
			  vetoes[] = "/braggline/run/configure,\n+\n"
				     "/braggline/veto/set,veto.strong_min=7,from_frame=0x100\n"
				     "/braggline/veto/set,from_frame=3,veto.dry_run=1\n"
				     "/braggline/veto\n-\n"
				     "/braggline/run/configure,dark.select=bunch\n";
	FILE *f;

	seed_begin(argc, argv);
	seed_add("runs", runs, sizeof(runs) - 1);
	seed_add("vetoes", vetoes, sizeof(vetoes) - 1);
	rte_log_set_global_level(RTE_LOG_EMERG);
	snprintf(path, sizeof(path), "%s/telemetry.ini", seed_dir);
	f = fopen(path, "w");
	if (f == NULL || fwrite(ini, 1, sizeof(ini) - 1, f) != sizeof(ini) - 1 || fclose(f) != 0)
		abort();
	process_config = config_open(&base);
	if (process_config == NULL || settings_read(&process, &egress, process_config) != 0)
		abort();
	pipeline.settings = &process;
	pipeline.gk_config = &gk_config;
	pipeline.rx = rx;
	gk_config.channel = &channel;
	gk_config.layout.nnz_cap = process.veto.params.nnz_max;
	return telemetry_register(NULL) == 0 ? 0 : -1;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *line = (const char *)data, *end = line + size, *next;
	struct run *run;

	nb_commands = 0;
	run = run_create(&pipeline, &process, &base, false);
	if (run == NULL)
		abort();
	telemetry_register(run);
	for (; line < end; line = next + 1) {
		next = memchr(line, '\n', (size_t)(end - line));
		if (next == NULL)
			next = end;
		/* a run begins and ends */
		if (*line == '+' && run->state == RUN_CONFIGURED)
			run->state = RUN_RUNNING;
		else if (*line == '-' && run->state == RUN_RUNNING)
			run->state = RUN_CONFIGURED;
		else
			serve(run, line, (size_t)(next - line));
	}
	telemetry_retire();
	run_destroy(run);
	return 0;
}
