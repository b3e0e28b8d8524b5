/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_string_fns.h>

#include <gk.h>

#include "builder/builder.h"
#include "builder/command.h"
#include "calib/calibration.h"
#include "config/config.h"
#include "counter.h"
#include "egress/egress.h"
#include "ledger_read.h"
#include "log.h"
#include "output/live.h"
#include "output/preview.h"
#include "pipeline.h"
#include "recovery/recovery.h"
#include "run.h"
#include "run_end.h"
#include "run_ledger.h"
#include "run_notes.h"
#include "run_watch.h"
#include "run_writer.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/rx.h"
#include "settings.h"

LOG_REGISTER("run", "run");

/**
 * The builder polls for commands in every iteration. A timeout means that it does not run at all.
 */
#define COMMAND_TIMEOUT_MS 5000

/** A run that received the packets of so many frames, and placed none of them, has failed. */
#define UNUSED_FRAMES UINT64_C(4)

struct run {
	/**
	 * Held for a short time only, so that readers of the status never wait for a disk. A thread
	 * that may have to wait for one sets `busy` and releases the lock. Until it has the lock
	 * again, no other thread changes the run.
	 */
	pthread_mutex_t lock;
	bool busy;
	uint64_t progress;	   /**< last result of run_get_progress(), of its thread */
	pthread_cond_t free;	   /**< `busy` was cleared */
	void (*report)(void *arg); /**< run_on_end(); NULL: none */
	void *report_arg;
	enum run_state state;
	bool closed; /* no other run may begin */
	struct pipeline *pipeline;
	const struct config_source *base; /**< base settings of every run */
	const struct settings *process;	  /**< settings of the pipeline */
	struct config *config;		  /**< of the current run; its settings point into it */
	/** the same with thresholds changed during the run; NULL: none */
	struct config *changed;
	struct settings settings;
	struct calibration calibration; /**< of the last run that was armed */
	struct batch_writer *writer;
	bool began; /**< the run was started, not only armed */
	struct run_ledger ledger;
	uint64_t batches; /**< struct builder_stats when the run began */
	uint64_t batched_frames;
	struct run_status last; /**< of the last run that ended */
	/** paths of its files, or of the last ones if there were several */
	char paths[ARROW_TABLES][PATH_MAX];
	char first_paths[ARROW_TABLES][PATH_MAX]; /**< of the current run or the last one */
	struct run_watch watch;			  /**< checks on the data that the run receives */
	struct run_notes notes;			  /**< ... and on its counters */
	struct run_end end;			  /**< detector past the last frame */
	uint64_t stream_ends;			  /**< count_stream_ends() when the run began */
	bool streams_ended;			  /**< ... and that has ended the run */
	bool timed_out;				  /**< [run] idle_timeout_ms ended the run */
	bool aborted;				  /**< a client aborted the run */
	uint64_t activity;			  /**< packets and frames so far */
	uint64_t active_at;			  /**< TSC of the last change of `activity` */
	uint64_t idle_from[FRAME_RX_MAX]; /**< frame_rx.listened of the RX roles at that time */
	uint64_t first_activity;	  /**< TSC; 0: no activity yet */
	uint64_t runs;
	struct run_writer last_writer;
	/** Latencies of the batches of all runs that have ended. */
	struct histogram latency[ARROW_TABLES];
	uint32_t veto_version; /**< newest version */

	bool lcores_poll; /**< false: the control thread polls the builder */
	char message[RUN_MESSAGE_SIZE];
};

/**
 * Atomic: end the arming in progress, or else the next one. Not a member of the run, because a
 * signal handler sets it.
 */
static bool give_up;

const char *const run_state_names[RUN_STATES] = {
	[RUN_IDLE] = "idle",
	[RUN_CONFIGURED] = "configured",
	[RUN_ARMING] = "arming",
	[RUN_ARMED] = "armed",
	[RUN_RUNNING] = "running",
	[RUN_STOPPING] = "stopping",
};

static void
enter(struct run *r, enum run_state state)
{
	LOG(DEBUG, "%s -> %s\n", run_state_names[r->state], run_state_names[state]);
	r->state = state;
}

/** Release the lock for work that may wait for a disk. */
static void
begin_waiting(struct run *r)
{
	r->busy = true;
	pthread_mutex_unlock(&r->lock);
}

static void
end_waiting(struct run *r)
{
	pthread_mutex_lock(&r->lock);
	r->busy = false;
	pthread_cond_broadcast(&r->free);
}

/** Take the lock when no other thread has released it for such work. */
static void
lock_free_run(struct run *r)
{
	pthread_mutex_lock(&r->lock);
	while (r->busy)
		pthread_cond_wait(&r->free, &r->lock);
}

/** Store an error message that was already logged. @return `error` */
static int __rte_format_printf(3, 4) note(struct run *r, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->message, sizeof(r->message), format, args);
	va_end(args);
	return error;
}

/** Store an error message and log it. @return `error` */
static int __rte_format_printf(3, 4) complain(struct run *r, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(r->message, sizeof(r->message), format, args);
	va_end(args);
	LOG(ERR, "%s\n", r->message);
	return error;
}

struct run *
run_create(struct pipeline *p, const struct settings *process, const struct config_source *base,
	bool lcores_poll)
{
	struct run *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->free, NULL);
	r->pipeline = p;
	r->process = process;
	r->base = base;
	r->lcores_poll = lcores_poll;
	run_ledger_init(&r->ledger, p, &r->settings);
	/* set the balance flags of the empty ledger */
	ledger_since(&r->last.ledger, &(struct ledger){0});
	return r;
}

void
run_destroy(struct run *r)
{
	if (r == NULL)
		return;
	batch_writer_destroy(r->writer);
	config_close(r->config);
	config_close(r->changed);
	run_ledger_free(&r->ledger);
	pthread_cond_destroy(&r->free);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

const struct pipeline *
run_get_pipeline(const struct run *r)
{
	return r->pipeline;
}

void
run_on_end(struct run *r, void (*report)(void *arg), void *arg)
{
	r->report = report;
	r->report_arg = arg;
}

void
run_polled(struct run *r)
{
	/* another thread's command may be polling the builder */
	pthread_mutex_lock(&r->lock);
	r->lcores_poll = true;
	pthread_mutex_unlock(&r->lock);
}

/**
 * Post a command to the builder and wait until it is executed. A command that times out is
 * cancelled, so it is not executed later.
 */
static int
send_command(struct run *r, const struct builder_command *command, uint64_t *effective)
{
	struct builder *b = r->pipeline->builder;
	int ret = builder_post(b, command);

	if (ret != 0)
		return ret;
	for (unsigned int ms = 0;; ms++) {
		ret = builder_result(b, effective);
		if (ret != -EINPROGRESS)
			return ret;
		/* false: the builder is already executing the command */
		if (ms >= COMMAND_TIMEOUT_MS && builder_cancel(b))
			return -ETIMEDOUT;
		if (r->lcores_poll)
			usleep(1000);
		else
			builder_poll(b);
	}
}

/** Return true if the key may differ from run to run. */
static bool
is_run_setting(const char *assignment)
{
	static const char *const sections[] = {
		"run.", "veto.", "output.", "calibration.", "dark.", "geometry.", "peaks."};

	for (unsigned int i = 0; i < RTE_DIM(sections); i++)
		if (strncmp(assignment, sections[i], strlen(sections[i])) == 0)
			return true;
	return false;
}

/** Return true if the key may change during a run. */
static bool
is_threshold(const char *assignment)
{
	return strncmp(assignment, "veto.", strlen("veto.")) == 0 ||
		strncmp(assignment, "peaks.", strlen("peaks.")) == 0;
}

/** Return true if this part of a list, which a comma or the end of the list ends, has an `=`. */
static bool
is_assignment(const char *part)
{
	return strcspn(part, "=") < strcspn(part, ",");
}

/**
 * Remove the next assignment from the list. Text that follows a comma and has no `=` is part of the
 * value, which may be a list: peaks.shells=50,10,4.
 */
static char *
next_assignment(char **list)
{
	char *begin = *list + strspn(*list, " ,"), *end = begin + strcspn(begin, ",");

	if (*begin == '\0')
		return NULL;
	while (is_assignment(begin) && end[strspn(end, " ,")] != '\0' && !is_assignment(end + 1))
		end += 1 + strcspn(end + 1, ",");
	*list = end + (*end != '\0');
	*end = '\0';
	return begin;
}

/** Apply `section.key=value,...`. @param during  during a run: only thresholds */
static int
apply(struct run *r, struct config *c, const char *assignments, bool during)
{
	char *list = strdup(assignments), *rest = list;
	int ret = list != NULL ? 0 : -ENOMEM;

	for (char *a; ret == 0 && (a = next_assignment(&rest)) != NULL;) {
		if (strchr(a, '=') == NULL || memchr(a, '.', strcspn(a, "=")) == NULL)
			ret = complain(r, -EINVAL,
				"'%.100s': expected SECTION.KEY=VALUE, as in veto.strong_min=30",
				a);
		else if (!is_run_setting(a))
			ret = complain(r, -EINVAL,
				"'%.100s' cannot change between runs; only [run], [veto], "
				"[dark], [output], [calibration], [geometry] and [peaks] can",
				a);
		else if (during && !is_threshold(a))
			ret = complain(r, -EINVAL,
				"'%.100s' cannot change during a run; only veto.* and peaks.* can",
				a);
		else if (config_set(c, "telemetry", a) != 0)
			ret = note(r, -EINVAL, "%s", config_mistake(c));
	}
	free(list);
	return ret;
}

/** Check that settings which determine the memory layout of the process are unchanged. */
static int
check_fits(struct run *r, const struct settings *s)
{
	if (s->value != r->process->value)
		return complain(r, -EINVAL,
			"output.value is fixed while the process runs; restart it to change the "
			"value");
	if (s->compress != r->process->compress)
		return complain(r, -EINVAL,
			"output.compress is fixed while the process runs; restart it to change "
			"it");
	if (s->detector.ops != r->process->detector.ops ||
		s->detector.modules != r->process->detector.modules ||
		s->detector.interfaces != r->process->detector.interfaces ||
		s->detector.tiles != r->process->detector.tiles ||
		s->detector.expected != r->process->detector.expected)
		return complain(r, -EINVAL,
			"[detector] is fixed while the process runs; restart it to change the "
			"section");
	if (s->service != r->process->service)
		return complain(r, -EINVAL,
			"run.control is fixed while the process runs; restart it to change the "
			"control");
	/* Stores learned the id on connection, and refuse batches of another receiver. */
	if (r->pipeline->stores != NULL && s->receiver_id != r->process->receiver_id)
		return complain(
			r, -EINVAL, "output.receiver_id cannot change while stores are connected");
	if (s->dark.select != BUILDER_DARK_NONE && s->dark.select != BUILDER_DARK_RUN &&
		r->pipeline->gk_config->channel->dark[0].cells == 0)
		return complain(r, -EINVAL,
			"[dark] select: the process was started without dark frames and has no "
			"memory for them; restart it with [dark] settings");
	if (s->peaks.known && !r->process->peaks.known)
		return complain(r, -EINVAL,
			"peaks.search: the process was started without it and has no map of "
			"pixels; restart it with [peaks] search");
	/* also without a search, which a later change may switch on again */
	if (r->process->peaks.known &&
		(s->peaks.min_res != r->process->peaks.min_res ||
			s->peaks.max_res != r->process->peaks.max_res ||
			s->peaks.max != r->process->peaks.max))
		return complain(r, -EINVAL,
			"peaks.min_res, max_res and max are fixed while the process runs; restart "
			"it to change them");
	if (s->veto.params.nnz_max > r->pipeline->gk_config->layout.nnz_cap)
		return complain(r, -EINVAL,
			"output.nnz_max is %u, expected at most %u, the size of the output slots",
			s->veto.params.nnz_max, r->pipeline->gk_config->layout.nnz_cap);
	return 0;
}

/** Read and check the settings of a run. */
static int
read_settings(struct run *r, struct config *c, struct settings *settings)
{
	struct egress_settings egress;

	if (settings_read(settings, &egress, c) != 0)
		return note(r, -EINVAL, "%s", config_mistake(c));
	/* the section is read only to be checked: it is not a setting of a run */
	settings->egress = r->process->egress;
	return check_fits(r, settings);
}

static int
configure(struct run *r, const char *assignments)
{
	struct settings settings;
	struct config *config;
	int ret = 0;

	if (r->state != RUN_IDLE && r->state != RUN_CONFIGURED)
		return complain(r, -EBUSY, "a run is %s; %s", run_state_names[r->state],
			r->state == RUN_STOPPING ? "wait until it has ended" : "stop it first");
	begin_waiting(r);
	config = config_open(r->base);
	end_waiting(r);
	if (config == NULL)
		return complain(r, -EINVAL, "cannot read %s", r->base->file);
	if (assignments != NULL)
		ret = apply(r, config, assignments, false);
	if (ret == 0)
		ret = read_settings(r, config, &settings);
	if (ret != 0) {
		config_close(config);
		return ret;
	}
	config_close(r->config);
	config_close(r->changed);
	r->config = config;
	r->changed = NULL;
	r->settings = settings;
	enter(r, RUN_CONFIGURED);
	return 0;
}

/** Log the result of recovering a file after a crash. */
static void
note_recovery(void *arg, const struct arrow_recovery *report)
{
	LOG_AT(report->state == ARROW_RECOVERY_FAILED ? RTE_LOG_ERR : RTE_LOG_NOTICE, "%s: %s\n",
		report->path, report->message);
}

/** Build the file's final name. */
static void
name_first(struct run *r, enum arrow_table table)
{
	char *path = r->first_paths[table], *part;

	rte_strscpy(path, batch_writer_path(r->writer, table), PATH_MAX);
	part = strrchr(path, '.');
	if (part != NULL && strcmp(part, ".part") == 0)
		*part = '\0';
}

/** Note that the detector sends: the idle time begins. */
static void
begin_idle_time(struct run *r)
{
	for (uint32_t i = 0; i < r->process->rx_lcores; i++)
		r->idle_from[i] = counter_get(&r->pipeline->rx[i]->frx->listened);
}

/** Return the number of times that the detector has ended its multicast streams. */
static uint64_t
count_stream_ends(const struct run *r)
{
	const struct rx_messages *m = r->pipeline->messages;

	return m != NULL && m->multicast != NULL ? rx_multicast_ends(m->multicast) : 0;
}

/** Return true if all multicast streams have failed. */
static bool
streams_have_failed(const struct run *r)
{
	const struct rx_messages *m = r->pipeline->messages;

	return m != NULL && m->multicast != NULL && rx_multicast_failed(m->multicast);
}

static void
read_writer(struct run *r, struct run_writer *writer)
{
	snprintf(writer->name, sizeof(writer->name), "%s", r->settings.run);
	batch_writer_stats_get(r->writer, &writer->stats);
	for (int t = 0; t < ARROW_TABLES; t++)
		batch_writer_status(r->writer, t, &writer->status[t]);
}

static_assert(RUN_WARNINGS == RUN_WATCH_FINDINGS + (int)RUN_NOTES, "one of each kind");

static void
add_note(const struct run *r, enum run_note note, struct run_status *status, uint32_t *n)
{
	if (r->notes.text[note][0] != '\0')
		rte_strscpy(status->warnings[(*n)++], r->notes.text[note], RUN_WARNING_SIZE);
}

/** The most severe warning first. */
static void
read_warnings(struct run *r, struct run_status *status)
{
	struct run_writer writer;
	uint32_t n = 0;

	memset(status->warnings, 0, sizeof(status->warnings));
	read_writer(r, &writer);
	run_notes_unwritten(&r->notes, &writer, r->pipeline->stores != NULL);
	status->write_error = 0;
	for (int t = 0; t < ARROW_TABLES; t++)
		if (writer.stats.table[t].error != 0)
			status->write_error = writer.stats.table[t].error;
	add_note(r, RUN_NOTE_UNWRITTEN, status, &n);
	for (uint32_t f = 0; f < RUN_WATCH_FINDINGS; f++)
		if (r->watch.finding[f][0] != '\0')
			rte_strscpy(status->warnings[n++], r->watch.finding[f], RUN_WARNING_SIZE);
	add_note(r, RUN_NOTE_STATUS, status, &n);
	add_note(r, RUN_NOTE_BUNCH, status, &n);
	add_note(r, RUN_NOTE_SLOTS, status, &n);
	add_note(r, RUN_NOTE_FRAMES, status, &n);
	add_note(r, RUN_NOTE_DARK, status, &n);
}

/**
 * Count packets from the detector's own sources. Other packets also arrive on an idle line, and
 * must neither begin nor extend the activity of a run. The count uses the counters by cause,
 * because the sender is not known yet when a packet is received.
 */
static uint64_t
detector_packets(const uint64_t counters[])
{
	/*
	 * Packets counted before the sender is checked, or because it is wrong. Misplaced packets
	 * are not in the list, because they come from the stream's own source.
	 */
	static const bool is_anybodys[RX_COUNTERS] = {
		[RX_FOREIGN] = true,
		[RX_CHECKSUM] = true,
		[RX_FRAGMENT] = true,
		[RX_WRONG_LENGTH] = true,
		[RX_MALFORMED] = true,
	};
	uint64_t packets = 0;

	for (uint32_t c = RX_PLACED; c < RX_COUNTERS; c++)
		if (!is_anybodys[c])
			packets += counter_get(&counters[c]);
	return packets;
}

/**
 * Count packets of the detector's format that the run could have used: not those that came before
 * or after it, belong to another receiver, or had no time to be placed.
 */
static uint64_t
usable_packets(const struct ledger *l)
{
	return detector_packets(l->packets) - l->packets[RX_OTHER] - l->packets[RX_NO_RUN] -
		l->packets[RX_BEYOND] - l->packets[RX_STOPPED];
}

/** The detector's number of the run's last frame. */
static uint64_t
last_frame(const struct run *r)
{
	const struct frame_run *f = &r->settings.frames;
	const uint64_t stride = RTE_MAX(f->stride, 1u), offset = stride == 1 ? 0 : f->offset;
	const uint64_t first =
		f->first_known ? f->first_frame : builder_stats(r->pipeline->builder).first_frame;

	/* the first frame of this receiver from there on */
	return offset +
		((RTE_MAX(first, offset) - offset + stride - 1) / stride + f->nb_frames - 1) *
		stride;
}

/**
 * Check whether no received packet could be used, or no packet came although the run waited for
 * one, and if so store a message. A run that a client ends before its detector sends is not an
 * error.
 * @return true if so
 */
static bool
received_nothing(struct run *r, const struct ledger *l)
{
	char until[64], why[480];

	if (!r->began || r->aborted)
		return false;
	if (r->streams_ended && streams_have_failed(r)) {
		complain(r, 0, "run %s: all multicast streams have failed, see above",
			r->settings.run);
		return true;
	}
	if (l->packets[RX_PLACED] > 0)
		return false;
	if (r->last.warnings[0][0] != '\0') {
		note(r, 0, "%s", r->last.warnings[0]);
		/* the log may have the warning after this line */
		LOG(ERR, "run %s: none of the received packets was usable; its warnings say why\n",
			r->settings.run);
		return true;
	}
	if (r->end.past) {
		complain(r, 0,
			"run %s: the detector is at frame %" PRIu64 ", the run's last frame is "
			"%" PRIu64 "; set [run] first_frame to 'auto' or to a frame that the "
			"detector has not sent yet",
			r->settings.run, r->end.frame, last_frame(r));
		return true;
	}
	/* a client may end a run while its first packets wait for the window */
	if (!r->timed_out && !r->streams_ended &&
		usable_packets(l) < UNUSED_FRAMES * r->process->detector.expected)
		return false;
	if (r->streams_ended)
		rte_strscpy(until, "until the detector ended its streams", sizeof(until));
	else
		snprintf(until, sizeof(until), "within [run] idle_timeout_ms = %u",
			r->settings.idle_timeout_ms);
	if (l->packets[RX_PACKETS] == 0 && run_watch_refused(&r->watch, why, sizeof(why)))
		complain(r, 0, "run %s: no usable packet received %s: %s", r->settings.run, until,
			why);
	else if (l->packets[RX_PACKETS] == 0 && r->ledger.before.packets[RX_NO_RUN] > 0)
		complain(r, 0,
			"run %s: no packet received %s, but %" PRIu64
			" packets arrived before the run; start the run before the detector, or "
			"replay the capture without end (loops=0)",
			r->settings.run, until, r->ledger.before.packets[RX_NO_RUN]);
	else if (l->packets[RX_PACKETS] == 0)
		complain(r, 0,
			"run %s: no packet received %s; check that the detector sends to this "
			"port",
			r->settings.run, until);
	else if (usable_packets(l) == 0)
		complain(r, 0,
			"run %s: no usable packet received %s, but %" PRIu64
			" others; see [packets] in the ledger",
			r->settings.run, until, l->packets[RX_PACKETS]);
	else
		complain(r, 0,
			"run %s: none of %" PRIu64 " received packets was usable; see [packets] in "
			"the ledger",
			r->settings.run, l->packets[RX_PACKETS]);
	return true;
}

/**
 * Return true if kept frames or rows were not written. If so, store a message, unless the error of
 * a file has one.
 */
static bool
lost_kept(struct run *r, const struct ledger *l)
{
	if (l->unwritten + l->unwritten_rows == 0)
		return false;
	if (r->message[0] == '\0')
		complain(r, 0, "run %s: %s", r->settings.run, r->notes.text[RUN_NOTE_UNWRITTEN]);
	return true;
}

/**
 * Check whether the journal lost kept frames of the run through damage, also those of an earlier
 * receiver, and if so store a message.
 * @return true if so
 */
static bool
journal_was_damaged(struct run *r)
{
	const struct egress *stores = r->pipeline->stores;
	struct egress_stats images, frames;

	if (!r->began || stores == NULL)
		return false;
	egress_stats_get(stores, ARROW_IMAGES, &images);
	egress_stats_get(stores, ARROW_FRAMES, &frames);
	if (images.outcome.damaged + frames.outcome.damaged > 0)
		complain(r, 0,
			"run %s: %" PRIu64 " kept frames and %" PRIu64 " rows were damaged in the "
			"journal, and are not in a store; see above",
			r->settings.run, images.outcome.damaged_rows, frames.outcome.damaged_rows);
	else if (r->ledger.resumed.version != 0 && egress_before_was_damaged(stores))
		complain(r, 0,
			"run %s: the journal that an earlier receiver of this run left was "
			"damaged, see above",
			r->settings.run);
	else
		return false;
	return true;
}

/** Results of the work at the end of a run that waits for the disk or for stores. */
struct closing {
	bool drained;  /**< all that was kept is in files or stores */
	bool was_dark; /**< the run has made pedestals, or should have */
	/** results of pipeline_write_pedestals() @{ */
	int dark;
	char dark_text[sizeof(((struct run_status *)0)->dark)];
	char dark_warning[RUN_NOTE_SIZE];
	/** @} */
	struct ledger ledger;
	/** results of run_ledger_write() @{ */
	int written;
	char ledger_path[PATH_MAX];
	/** @} */
};

/** Close the files and write the ledger of the run. Called without the lock. */
static void
close_files(struct run *r, struct closing *c)
{
	c->drained = batch_writer_stop(r->writer, true) == 0;
	preview_end(r->pipeline->preview);
	live_end(r->pipeline->live);
	c->was_dark = r->pipeline->pedestal != NULL;
	c->dark = pipeline_write_pedestals(r->pipeline, &r->settings, c->dark_text,
		sizeof(c->dark_text), c->dark_warning, sizeof(c->dark_warning));
	if (!r->began)
		ledger_read(&r->ledger.before, r->pipeline, NULL);
	run_ledger_read(&r->ledger, r->writer, &c->ledger);
	c->ledger.ports[PORT_INCOMPLETE] += c->ledger.unfinished;
	/* The ledger of a receiver that died stays for the run that continues it. */
	if (r->began)
		run_ledger_keep(&r->ledger, r->writer, false);
	c->written =
		run_ledger_write(&r->ledger, r->writer, &c->ledger, c->drained, c->ledger_path);
}

/** Log the result of a dark run. @return false: its pedestals could not be written */
static bool
finish_dark(struct run *r, const struct closing *closing)
{
	struct run_status *last = &r->last;

	last->dark[0] = '\0';
	if (!closing->was_dark)
		return true;
	rte_strscpy(last->dark, closing->dark_text, sizeof(last->dark));
	rte_strscpy(r->notes.text[RUN_NOTE_DARK], closing->dark_warning, RUN_NOTE_SIZE);
	if (closing->dark != 0)
		complain(r, 0, "%s", last->dark);
	else
		LOG(NOTICE, "%s\n", last->dark);
	if (closing->dark_warning[0] != '\0')
		LOG(WARNING, "%s\n", closing->dark_warning);
	return closing->dark == 0;
}

/** Store what the run was, for telemetry, without its result. */
static void
describe_last(struct run *r, const struct builder_stats *b, const struct closing *closing)
{
	struct run_status *last = &r->last;
	char path[PATH_MAX];
	const char *preview = pipeline_preview_path(&r->settings, path);

	snprintf(last->name, sizeof(last->name), "%s", r->settings.run);
	snprintf(last->directory, sizeof(last->directory), "%s", r->settings.directory);
	snprintf(last->preview, sizeof(last->preview), "%s", preview != NULL ? preview : "");
	last->calibration = r->settings.store_calibration;
	last->seconds = r->first_activity == 0
		? 0
		: (double)(r->active_at - r->first_activity) / rte_get_tsc_hz();
	last->batches = r->began ? b->batches - r->batches : 0;
	last->batched_frames = r->began ? b->batched_frames - r->batched_frames : 0;
	last->first_frame = r->began ? b->first_frame : 0;
	last->last_frame = r->began ? b->last_frame : 0;
	last->veto_version = r->began ? r->veto_version : 0;
	last->ledger = closing->ledger;
	rte_strscpy(last->ledger_path, closing->written == 0 ? closing->ledger_path : "",
		sizeof(last->ledger_path));
}

/** Log everything that makes the run a failed one. @return true: it has failed */
static bool
find_failures(struct run *r, const struct closing *closing)
{
	const struct ledger *ledger = &closing->ledger;
	bool failed = !closing->drained;

	if (closing->written != 0)
		complain(r, 0, "cannot write %s: %s", closing->ledger_path,
			strerror(-closing->written));
	failed |= closing->written != 0;
	failed |= lost_kept(r, ledger);
	failed |= journal_was_damaged(r);
	failed |= received_nothing(r, ledger);
	if (!ledger_balanced(ledger)) {
		complain(r, 0, "the ledger of run %s does not balance: this is a bug",
			r->settings.run);
		failed = true;
	}
	return failed;
}

/**
 * Close the files of the run, and store its status.
 * @param failed  the run has failed; else that is found here
 */
static void
finish(struct run *r, bool failed)
{
	const struct builder_stats stats = builder_stats(r->pipeline->builder), *b = &stats;
	struct run_status *last = &r->last;
	struct closing closing;
	char message[sizeof(r->message)];

	if (r->state != RUN_STOPPING)
		enter(r, RUN_STOPPING);
	memset(last->warnings, 0, sizeof(last->warnings));
	last->write_error = 0;
	if (r->began) {
		run_watch_check(&r->watch, true);
		run_notes_status(&r->notes, b, true);
		run_notes_bunch(&r->notes, b, true);
		run_notes_slots(&r->notes, b);
		if (!r->aborted && !failed)
			run_notes_frames(&r->notes, b, &r->settings.frames);
	}
	rte_strscpy(message, r->message, sizeof(message));
	begin_waiting(r);
	close_files(r, &closing);
	end_waiting(r);
	/* a command that was refused meanwhile is not the result of the run */
	rte_strscpy(r->message, message, sizeof(r->message));
	if (r->began && r->pipeline->stores != NULL &&
		egress_lost_doubts(r->pipeline->stores) > 0) {
		complain(r, 0,
			"stores may have two copies of damaged batches, see above: run "
			"braggline-store reconcile");
		failed = true;
	}
	for (int t = 0; t < ARROW_TABLES; t++) {
		rte_strscpy(r->paths[t], batch_writer_path(r->writer, t), sizeof(r->paths[t]));
		if (batch_writer_error(r->writer, t)[0] != '\0')
			complain(r, 0, "%s", batch_writer_error(r->writer, t));
	}
	failed |= !finish_dark(r, &closing);
	if (r->began)
		read_warnings(r, last);
	describe_last(r, b, &closing);
	failed |= find_failures(r, &closing);
	last->failed = failed;
	last->failed_runs += failed && r->began;
	read_writer(r, &r->last_writer);
	for (int t = 0; t < ARROW_TABLES; t++)
		histogram_add(&r->latency[t], &r->last_writer.stats.table[t].latency);
	batch_writer_destroy(r->writer);
	r->writer = NULL;
	enter(r, RUN_IDLE);
	if (!r->began || r->report == NULL)
		return;
	begin_waiting(r);
	r->report(r->report_arg);
	end_waiting(r);
}

/** Return what a client can do whose run cannot begin in this state. */
static const char *
what_to_do(enum run_state state)
{
	switch (state) {
	case RUN_ARMING:
		return "; wait, or stop it";
	case RUN_STOPPING:
		return "; wait until it has ended";
	default:
		return "";
	}
}

static bool
is_given_up(void)
{
	return __atomic_load_n(&give_up, __ATOMIC_RELAXED);
}

/**
 * Load the calibration, recover files and open those of the run. Called without the lock.
 * @param writer   out; NULL on error
 * @param message  receives the error, which was logged
 */
static int
prepare(struct run *r, struct batch_writer **writer, char message[PATH_MAX])
{
	const struct calibration *c = r->pipeline->calibration;
	int ret;

	*writer = NULL;
	message[0] = '\0';
	ret = pipeline_calibrate(r->pipeline, &r->settings.calibration);
	if (ret != 0 && c->why[0] != '\0') {
		rte_strscpy(message, c->why, PATH_MAX);
		return ret;
	}
	if (ret != 0) {
		snprintf(message, PATH_MAX, "cannot load the calibration: %s", strerror(-ret));
		LOG(ERR, "%s\n", message);
		return ret;
	}
	/* a receiver that died may have left files */
	arrow_recover_dir_until(NULL, r->settings.directory, &give_up, note_recovery, r);
	if (is_given_up())
		return -ECANCELED;
	ret = pipeline_open_files(r->pipeline, &r->settings, writer, message);
	if (ret != 0) {
		batch_writer_destroy(*writer);
		*writer = NULL;
		LOG(ERR, "%s\n", message);
	}
	return ret;
}

/** A client, or the end of the process, has stopped a run that was being armed. */
static int
disarm(struct run *r)
{
	__atomic_store_n(&give_up, false, __ATOMIC_RELAXED);
	if (r->writer != NULL)
		finish(r, false);
	else
		enter(r, RUN_IDLE);
	return note(r, -ECANCELED, "run %s was stopped while it was armed", r->settings.run);
}

static int
arm(struct run *r)
{
	struct batch_writer *writer;
	char message[PATH_MAX];
	int ret = 0;

	if (r->state == RUN_IDLE)
		ret = configure(r, NULL);
	if (ret != 0)
		return ret;
	if (r->state != RUN_CONFIGURED)
		return complain(r, -EBUSY, "a run is already %s%s", run_state_names[r->state],
			what_to_do(r->state));
	enter(r, RUN_ARMING);
	/* The run may end before it begins; values of the previous run must not remain. */
	r->began = false;
	run_ledger_begin(&r->ledger);
	r->first_activity = 0;
	begin_waiting(r);
	ret = prepare(r, &writer, message);
	end_waiting(r);
	r->writer = writer;
	r->calibration = *r->pipeline->calibration;
	if (is_given_up())
		return disarm(r);
	if (ret != 0) {
		enter(r, RUN_CONFIGURED);
		return note(r, ret, "%s", message);
	}
	for (int i = 0; i < ARROW_TABLES; i++)
		name_first(r, i);
	enter(r, RUN_ARMED);
	return 0;
}

/**
 * Do what may wait for a disk at the start of an armed run: check that its files exist, or the
 * directory if its batches go to stores, and write the ledger of a receiver that was killed.
 */
static int
prepare_start(struct run *r)
{
	char path[PATH_MAX] = "";
	int error = 0;

	/* meanwhile a stop ends the arming */
	enter(r, RUN_ARMING);
	begin_waiting(r);
	for (int i = 0; i < ARROW_TABLES && error == 0; i++) {
		rte_strscpy(path,
			r->pipeline->stores != NULL ? r->settings.directory
						    : batch_writer_path(r->writer, i),
			sizeof(path));
		error = access(path, F_OK) == 0 ? 0 : errno;
	}
	if (error == 0)
		run_ledger_prepare(&r->ledger);
	end_waiting(r);
	if (is_given_up())
		return disarm(r);
	enter(r, RUN_ARMED);
	if (error == 0)
		return 0;
	return complain(r, -error,
		"%s: %s; it was removed or renamed after run %s was armed; stop the run and start "
		"it again",
		path, strerror(error), r->settings.run);
}

static int
start(struct run *r)
{
	struct builder_command command = {.order = BUILDER_BEGIN};
	struct builder_stats stats;
	int ret;

	if (r->state == RUN_RUNNING || r->state == RUN_STOPPING)
		return complain(r, -EBUSY, "a run is %s%s", run_state_names[r->state],
			what_to_do(r->state));
	ret = r->state != RUN_ARMED ? arm(r) : 0;
	if (ret == 0)
		ret = prepare_start(r);
	if (ret != 0)
		return ret;
	r->activity = 0;
	r->active_at = rte_rdtsc();
	begin_idle_time(r);
	r->stream_ends = count_stream_ends(r);
	r->streams_ended = false;
	r->timed_out = false;
	r->aborted = false;
	command.run = r->settings.frames;
	command.packets_min = r->settings.packets_min;
	command.dark = r->settings.dark;
	command.veto = r->settings.veto;
	command.veto.params.version = ++r->veto_version;
	ledger_read(&r->ledger.before, r->pipeline, NULL);
	for (uint32_t i = 0; i < r->process->rx_lcores; i++)
		__atomic_store_n(&r->pipeline->rx[i]->first_frame,
			r->settings.frames.first_known ? r->settings.frames.first_frame : 0,
			__ATOMIC_RELAXED);
	run_watch_begin(&r->watch, r->pipeline, &r->ledger.before,
		r->settings.frames.first_known ? r->settings.frames.first_frame : 0);
	stats = builder_stats(r->pipeline->builder);
	r->batches = stats.batches;
	r->batched_frames = stats.batched_frames;
	run_end_begin(&r->end, r->pipeline);
	run_notes_begin(&r->notes, &r->process->detector, &stats);
	ret = send_command(r, &command, NULL);
	if (ret != 0)
		return complain(r, ret, "cannot start the run: %s", strerror(-ret));
	r->began = true;
	run_ledger_resume(&r->ledger);
	run_ledger_keep(&r->ledger, r->writer, true);
	run_ledger_add_veto(&r->ledger, &command.veto, 0);
	r->runs++;
	enter(r, RUN_RUNNING);
	if (r->process->service)
		LOG(NOTICE, "run %s begins, files in %s\n", r->settings.run, r->settings.directory);
	return 0;
}

static int
stop(struct run *r, bool aborting)
{
	const struct builder_command command = {.order = aborting ? BUILDER_ABORT : BUILDER_END};
	int ret;

	switch (r->state) {
	case RUN_IDLE:
		return complain(r, -EALREADY, "no run to stop");
	case RUN_CONFIGURED:
		enter(r, RUN_IDLE);
		return 0;
	case RUN_ARMING:
		run_interrupt();
		return 0;
	case RUN_ARMED:
		finish(r, false);
		return 0;
	case RUN_STOPPING:
		/* if it is busy, no frame is left to abort */
		if (!aborting || r->busy)
			return 0;
		break;
	case RUN_RUNNING:
	default:
		break;
	}
	ret = send_command(r, &command, NULL);
	if (ret != 0)
		return complain(r, ret, "cannot stop the run: %s", strerror(-ret));
	r->aborted |= aborting;
	enter(r, RUN_STOPPING);
	return 0;
}

static int
set_veto(struct run *r, const char *assignments, uint64_t from_frame, uint64_t *effective)
{
	struct builder_command command = {.order = BUILDER_VETO, .from_frame = from_frame};
	struct settings settings;
	struct config *config;
	int ret;

	if (r->state != RUN_RUNNING)
		return complain(r, -EALREADY, "no run whose thresholds can be changed");
	if (from_frame > FRAME_NUMBER_MAX)
		return complain(r, -EINVAL,
			"from_frame is %" PRIu64 ", the last frame number is %" PRIu64, from_frame,
			(uint64_t)FRAME_NUMBER_MAX);
	/*
	 * Start from the run's current settings, because the file may have been edited for the next
	 * run. A refused change has no effect.
	 */
	config = config_copy(r->changed != NULL ? r->changed : r->config);
	if (config == NULL)
		return complain(r, -ENOMEM, "cannot allocate the settings of a run");
	ret = apply(r, config, assignments, true);
	if (ret == 0)
		ret = read_settings(r, config, &settings);
	if (ret == 0 &&
		memcmp(settings.peaks.shell, r->settings.peaks.shell,
			sizeof(settings.peaks.shell)) != 0)
		ret = complain(r, -EINVAL,
			"peaks.shells cannot change during a run: the files describe them once");
	if (ret == 0 && settings.peaks.known && !r->settings.peaks.known)
		ret = complain(r, -EINVAL,
			"peaks.search: this run began without it, and its files have no columns of "
			"peaks; set it for the next run");
	if (ret != 0) {
		config_close(config);
		return ret;
	}
	command.veto = settings.veto;
	command.veto.params.version = r->veto_version + 1;
	ret = send_command(r, &command, effective);
	if (ret != 0) {
		config_close(config);
		return complain(r, ret, "cannot change the thresholds now: %s", strerror(-ret));
	}
	config_close(r->changed);
	r->changed = config;
	r->veto_version++;
	r->settings.veto = settings.veto;
	run_ledger_add_veto(&r->ledger, &command.veto, *effective);
	LOG(INFO, "thresholds version %u apply from frame %" PRIu64 "\n", r->veto_version,
		*effective);
	return 0;
}

/**
 * Return the time since the last packet arrived, in TSC cycles. Time in which an RX role did not
 * poll does not count, because packets may have arrived meanwhile: before the lcores run, while the
 * process is stopped (SIGSTOP), or while the CPU has other work.
 */
static uint64_t
idle_time(const struct run *r)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < r->process->rx_lcores; i++)
		least = RTE_MIN(
			least, counter_get(&r->pipeline->rx[i]->frx->listened) - r->idle_from[i]);
	return least;
}

/** Record when the counts of packets and frames last changed. */
static void
watch_activity(struct run *r)
{
	const struct builder_stats stats = builder_stats(r->pipeline->builder), *b = &stats;
	uint64_t activity = b->closed - r->ledger.before.frames;
	const uint64_t now = rte_rdtsc();

	for (uint32_t v = 0; v < FRAME_VERDICTS; v++)
		activity += b->verdicts[v];
	for (uint32_t i = 0; i < r->process->rx_lcores; i++)
		activity += detector_packets(r->pipeline->rx[i]->counters);
	activity -= r->ledger.before.hits + r->ledger.before.prescaled + r->ledger.before.dry_run +
		r->ledger.before.vetoed + r->ledger.before.incomplete + r->ledger.before.lost +
		r->ledger.before.refused + r->ledger.before.aborted +
		detector_packets(r->ledger.before.packets);
	if (activity == r->activity)
		return;
	r->activity = activity;
	r->active_at = now;
	begin_idle_time(r);
	if (r->first_activity == 0)
		r->first_activity = now;
}

static void
watch_status(struct run *r)
{
	struct builder_stats stats;

	if (!run_notes_due(&r->notes))
		return;
	stats = builder_stats(r->pipeline->builder);
	run_notes_status(&r->notes, &stats, false);
	run_notes_bunch(&r->notes, &stats, false);
	run_notes_slots(&r->notes, &stats);
}

/** Return true if the detector has ended its streams, and no packet of them waits. */
static bool
streams_have_ended(const struct run *r)
{
	if (count_stream_ends(r) == r->stream_ends && !streams_have_failed(r))
		return false;
	for (uint32_t i = 0; i < r->process->rx_lcores; i++)
		if (__atomic_load_n(&r->pipeline->rx[i]->nb_pending, __ATOMIC_RELAXED) > 0)
			return false;
	return true;
}

static bool
is_over(const struct run *r)
{
	uint64_t patience = r->settings.idle_timeout_ms;

	if (builder_has_ended(r->pipeline->builder))
		return true;
	if (patience == 0)
		return false;
	/* the run is not idle while packets wait for a stalled stream */
	for (uint32_t i = 0; i < r->process->rx_lcores; i++)
		if (__atomic_load_n(&r->pipeline->rx[i]->nb_pending, __ATOMIC_RELAXED) > 0)
			patience = r->settings.idle_timeout_ms +
				2 * (uint64_t)r->process->stream_timeout_ms;
	return idle_time(r) / (rte_get_tsc_hz() / 1000) > patience;
}

void
run_give_up(struct run *r, const char *why)
{
	lock_free_run(r);
	if (r->writer != NULL) {
		complain(r, 0, "run %s aborted: %s", r->settings.run, why);
		finish(r, true);
	}
	pthread_mutex_unlock(&r->lock);
}

void
run_tick(struct run *r)
{
	pthread_mutex_lock(&r->lock);
	if (r->busy) {
		pthread_mutex_unlock(&r->lock);
		return;
	}
	if (r->state == RUN_RUNNING) {
		watch_activity(r);
		run_watch_check(&r->watch, false);
		watch_status(r);
		if (run_end_check(&r->end) && !builder_has_ended(r->pipeline->builder)) {
			LOG(NOTICE,
				"run %s ends: the detector is at frame %" PRIu64 ", the run's last "
				"frame is %" PRIu64 "\n",
				r->settings.run, r->end.frame, last_frame(r));
			stop(r, false);
		} else if (streams_have_ended(r)) {
			r->streams_ended = true;
			LOG(NOTICE, "run %s ends: %s\n", r->settings.run,
				streams_have_failed(r) ? "all streams have failed"
						       : "the detector has ended its streams");
			stop(r, false);
		} else if (is_over(r)) {
			r->timed_out = !builder_has_ended(r->pipeline->builder);
			if (r->timed_out)
				LOG(NOTICE,
					"run %s ends: no packet of the detector within [run] "
					"idle_timeout_ms = %u\n",
					r->settings.run, r->settings.idle_timeout_ms);
			stop(r, false);
		}
	}
	if (r->writer != NULL)
		batch_writer_watch(r->writer);
	if ((r->state == RUN_RUNNING || r->state == RUN_STOPPING) &&
		rte_rdtsc() >= r->ledger.keep_at)
		run_ledger_keep(&r->ledger, r->writer, true);
	if (r->state == RUN_STOPPING && builder_is_idle(r->pipeline->builder) &&
		run_ledger_settle(&r->ledger)) {
		/*
		 * the message that a command was refused because the run was stopping is no longer
		 * true
		 */
		r->message[0] = '\0';
		finish(r, false);
	}
	pthread_mutex_unlock(&r->lock);
}

/**
 * A new command clears the previous error. It waits while a client configures a run, but not for
 * one that is armed or ends, whose state answers it.
 */
static void
begin_command(struct run *r)
{
	pthread_mutex_lock(&r->lock);
	while (r->busy && r->state != RUN_ARMING && r->state != RUN_STOPPING)
		pthread_cond_wait(&r->free, &r->lock);
	r->message[0] = '\0';
}

static int
check_open(struct run *r)
{
	return r->closed ? complain(r, -ESHUTDOWN, "the process is exiting") : 0;
}

void
run_close(struct run *r)
{
	run_interrupt();
	pthread_mutex_lock(&r->lock);
	r->closed = true;
	pthread_mutex_unlock(&r->lock);
}

void
run_interrupt(void)
{
	__atomic_store_n(&give_up, true, __ATOMIC_RELAXED);
}

bool
run_close_if_idle(struct run *r)
{
	bool closed;

	pthread_mutex_lock(&r->lock);
	/* a run that is only configured has no data to lose */
	if (r->state == RUN_CONFIGURED && !r->busy)
		enter(r, RUN_IDLE);
	closed = r->state == RUN_IDLE && !r->busy;
	r->closed |= closed;
	pthread_mutex_unlock(&r->lock);
	return closed;
}

int
run_configure(struct run *r, const char *assignments)
{
	int ret;

	begin_command(r);
	ret = check_open(r);
	if (ret == 0)
		ret = configure(r, assignments);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int
run_arm(struct run *r)
{
	int ret;

	begin_command(r);
	ret = check_open(r);
	if (ret == 0)
		ret = arm(r);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int
run_start(struct run *r)
{
	int ret;

	begin_command(r);
	ret = check_open(r);
	if (ret == 0)
		ret = start(r);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int
run_stop(struct run *r)
{
	int ret;

	begin_command(r);
	ret = stop(r, false);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int
run_abort(struct run *r)
{
	int ret;

	begin_command(r);
	ret = stop(r, true);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int
run_set_veto(struct run *r, const char *assignments, uint64_t from_frame, uint64_t *effective)
{
	int ret;

	begin_command(r);
	ret = set_veto(r, assignments, from_frame, effective);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

enum run_state
run_get_state(struct run *r)
{
	enum run_state state;

	pthread_mutex_lock(&r->lock);
	state = r->state;
	pthread_mutex_unlock(&r->lock);
	return state;
}

void
run_get_status(struct run *r, struct run_status *status)
{
	const struct builder_stats stats = builder_stats(r->pipeline->builder), *b = &stats;

	pthread_mutex_lock(&r->lock);
	*status = r->last;
	status->state = r->state;
	status->runs = r->runs;
	snprintf(status->message, sizeof(status->message), "%s", r->message);
	if (r->state != RUN_IDLE) {
		/* do not show the numbers of the last run under the name of the next one */
		memset(&status->ledger, 0, sizeof(status->ledger));
		ledger_since(&status->ledger, &(struct ledger){0});
		memset(status->warnings, 0, sizeof(status->warnings));
		status->seconds = 0;
		status->batches = status->batched_frames = 0;
		status->first_frame = status->last_frame = 0;
		status->write_error = 0;
		status->failed = false;
		status->veto_version = 0;
		status->dark[0] = '\0';
		snprintf(status->name, sizeof(status->name), "%s", r->settings.run);
		snprintf(status->directory, sizeof(status->directory), "%s", r->settings.directory);
	}
	if (r->began && (r->state == RUN_RUNNING || r->state == RUN_STOPPING)) {
		run_ledger_read(&r->ledger, r->writer, &status->ledger);
		status->first_frame = b->first_frame;
		status->last_frame = b->last_frame;
		status->veto_version = r->veto_version;
		read_warnings(r, status);
		status->failed = false;
		status->seconds = r->first_activity == 0
			? 0
			: (double)(r->active_at - r->first_activity) / rte_get_tsc_hz();
	}
	pthread_mutex_unlock(&r->lock);
}

uint64_t
run_get_progress(struct run *r)
{
	struct batch_writer_stats s;
	uint64_t sum;

	/* a holder of the lock may wait for a file system that hangs */
	if (pthread_mutex_trylock(&r->lock) != 0)
		return r->progress;
	sum = r->runs + r->state;
	if (r->writer != NULL) {
		batch_writer_stats_get(r->writer, &s);
		sum += s.records - s.held;
		for (int t = 0; t < ARROW_TABLES; t++)
			sum += s.table[t].batches + s.table[t].bytes + s.table[t].unwritten -
				s.held_batches[t];
	}
	pthread_mutex_unlock(&r->lock);
	if (r->pipeline->stores != NULL && egress_is_ending(r->pipeline->stores))
		sum += rte_rdtsc();
	r->progress = sum;
	return sum;
}

void
run_get_veto(struct run *r, struct builder_veto *veto)
{
	pthread_mutex_lock(&r->lock);
	*veto = r->state == RUN_IDLE ? r->process->veto : r->settings.veto;
	veto->params.version =
		r->state == RUN_RUNNING || r->state == RUN_STOPPING ? r->veto_version : 0;
	pthread_mutex_unlock(&r->lock);
}

void
run_get_calibration(struct run *r, struct calibration *calibration)
{
	pthread_mutex_lock(&r->lock);
	*calibration = r->calibration;
	pthread_mutex_unlock(&r->lock);
}

const char *
run_first_path(const struct run *r, enum arrow_table table)
{
	return r->first_paths[table];
}

const char *
run_last_path(const struct run *r, enum arrow_table table)
{
	return r->paths[table];
}

void
run_get_writer(struct run *r, struct run_writer *writer)
{
	pthread_mutex_lock(&r->lock);
	if (r->writer != NULL)
		read_writer(r, writer);
	else
		*writer = r->last_writer;
	pthread_mutex_unlock(&r->lock);
}

void
run_get_latency(struct run *r, struct histogram latency[ARROW_TABLES])
{
	struct batch_writer_stats now = {0};

	pthread_mutex_lock(&r->lock);
	if (r->writer != NULL)
		batch_writer_stats_get(r->writer, &now);
	for (int t = 0; t < ARROW_TABLES; t++) {
		latency[t] = r->latency[t];
		histogram_add(&latency[t], &now.table[t].latency);
	}
	pthread_mutex_unlock(&r->lock);
}
