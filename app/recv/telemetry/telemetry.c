/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry commands (telemetry.h): their callbacks, and the table of commands. */

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_string_fns.h>
#include <rte_telemetry.h>
#include <rte_version.h>

#include "builder/builder.h"
#include "calib/calibration.h"
#include "config/config.h"
#include "counter.h"
#include "egress/egress.h"
#include "frames/frame_table.h"
#include "output/live.h"
#include "output/preview.h"
#include "pipeline.h"
#include "port/memory.h"
#include "port/placement.h"
#include "run.h"
#include "run_writer.h"
#include "lcores.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/ring.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "settings.h"
#include "telemetry/dict.h"
#include "telemetry/rdma.h"
#include "telemetry/table.h"
#include "telemetry/telemetry.h"
#include "xfer/msg.h"
#include "whole_number.h"

/**
 * The run that all callbacks use, because DPDK passes no argument to them. NULL while the process
 * ends: DPDK cannot unregister commands, so these then fail.
 */
extern struct run *telemetry_run;

static int telemetry_latency(const char *cmd, const char *params, struct rte_tel_data *d);
static int telemetry_writer(const char *cmd, const char *params, struct rte_tel_data *d);
static int telemetry_egress(const char *cmd, const char *params, struct rte_tel_data *d);
static int telemetry_device(const char *cmd, const char *params, struct rte_tel_data *d);
static int telemetry_preview(const char *cmd, const char *params, struct rte_tel_data *d);

struct run *telemetry_run;
static pthread_rwlock_t run_lock = PTHREAD_RWLOCK_INITIALIZER;

/* ---- counters of the datapath ---- */

/** Set-up times of the rings of a detector's messages. */
static void
add_ring(struct rte_tel_data *d, const struct rx_ring *ring)
{
	struct rx_ring_info info;

	rx_ring_info_get(ring, &info);
	rte_tel_data_add_dict_uint(d, "ring_bytes", info.bytes);
	rte_tel_data_add_dict_uint(d, "ring_register_us", info.register_ns / 1000);
	rte_tel_data_add_dict_uint(d, "ring_prefault_us", info.prefault_ns / 1000);
	rte_tel_data_add_dict_uint(d, "ring_used_us", info.used_ns / 1000);
}

static int
get_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct pipeline *p = run_get_pipeline(telemetry_run);
	const struct settings *s = p->settings;
	char place[96];

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "version", BRAGGLINE_VERSION);
	rte_tel_data_add_dict_string(d, "dpdk", rte_version());
	rte_tel_data_add_dict_string(d, "detector", s->detector.ops->name);
	rte_tel_data_add_dict_uint(d, "modules", s->detector.modules);
	rte_tel_data_add_dict_uint(d, "interfaces", s->detector.interfaces);
	rte_tel_data_add_dict_uint(d, "rows", gk_rows(&p->gk_config->geometry));
	rte_tel_data_add_dict_uint(d, "cols", p->gk_config->geometry.cols);
	rte_tel_data_add_dict_uint(d, "rx_lcores", s->rx_lcores);
	rte_tel_data_add_dict_uint(d, "gangs", s->gangs);
	rte_tel_data_add_dict_uint(d, "frame_slots", s->slots);
	rte_tel_data_add_dict_string(d, "kernel", p->gk_ops->name);
	rte_tel_data_add_dict_string(d, "gpu", p->memory->gpu >= 0 ? p->memory->gpu_name : "none");
	rte_tel_data_add_dict_string(
		d, "packets", placement_name(p->placement, p->placement->packets, place));
	rte_tel_data_add_dict_string(
		d, "results", placement_name(p->placement, p->placement->results, place));
	rte_tel_data_add_dict_string(d, "control", s->service ? "telemetry" : "single");
	if (p->messages != NULL && p->messages->ring != NULL)
		add_ring(d, p->messages->ring);
	return 0;
}

static struct rte_tel_data *
ledger_frames(const struct ledger *l)
{
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		rte_tel_data_add_dict_uint(d, ledger_column_name(i), ledger_column(l, i));
	rte_tel_data_add_dict_uint(d, "balanced", ledger_balanced(l));
	return d;
}

static struct rte_tel_data *
ledger_packets(const struct ledger *l)
{
	struct rte_tel_data *d = telemetry_dict_new();

	for (uint32_t c = 0; d != NULL && c < RX_COUNTERS; c++)
		rte_tel_data_add_dict_uint(d, rx_counter_names[c], l->packets[c]);
	return d;
}

static struct rte_tel_data *
ledger_ports(const struct ledger *l)
{
	struct rte_tel_data *d = telemetry_dict_new();

	for (uint32_t c = 0; d != NULL && c < PORT_DROPS; c++)
		rte_tel_data_add_dict_uint(d, port_drop_names[c], l->ports[c]);
	return d;
}

static int
get_ledger(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct run_status status;

	run_get_status(telemetry_run, &status);
	rte_tel_data_start_dict(d);
	telemetry_dict_text(d, "run", status.name);
	rte_tel_data_add_dict_string(d, "state", run_state_names[status.state]);
	telemetry_dict_nest(d, "frames", ledger_frames(&status.ledger));
	telemetry_dict_nest(d, "packets", ledger_packets(&status.ledger));
	telemetry_dict_nest(d, "ports", ledger_ports(&status.ledger));
	return 0;
}

/** Add a role. Keys of telemetry contain no blanks and no dots. */
static void
add_role(struct rte_tel_data *d, const struct role *role)
{
	char key[sizeof(role->name)];

	rte_strscpy(key, role->name, sizeof(key));
	for (char *c = key; *c != '\0'; c++)
		if (!isalnum((unsigned char)*c))
			*c = '_';
	rte_tel_data_add_dict_uint(d, key, counter_get(&role->busy_cycles));
}

static int
get_lcores(const char *cmd, const char *params, struct rte_tel_data *d)
{
	unsigned int id;

	rte_tel_data_start_dict(d);
	RTE_LCORE_FOREACH(id) {
		const struct lcore *lc = &run_get_pipeline(telemetry_run)->lcores->lcore[id];
		char name[16], roles[1024] = "";
		struct rte_tel_data *e = telemetry_dict_new(), *by_role = telemetry_dict_new();
		size_t used = 0;

		if (e == NULL || by_role == NULL) {
			rte_tel_data_free(e);
			rte_tel_data_free(by_role);
			return -ENOMEM;
		}
		for (uint32_t i = 0; i < lc->nb_roles && used < sizeof(roles); i++)
			used += snprintf(roles + used, sizeof(roles) - used, "%s%s",
				i == 0 ? "" : ", ", lc->roles[i].name);
		for (uint32_t i = 0; i < lc->nb_roles; i++)
			add_role(by_role, &lc->roles[i]);
		telemetry_dict_text(e, "roles", roles);
		rte_tel_data_add_dict_uint(e, "busy_cycles", counter_get(&lc->busy_cycles));
		rte_tel_data_add_dict_uint(e, "idle_cycles", counter_get(&lc->idle_cycles));
		rte_tel_data_add_dict_uint(e, "rounds", counter_get(&lc->rounds));
		telemetry_dict_nest(e, "role_busy_cycles", by_role);
		snprintf(name, sizeof(name), "%u", id);
		telemetry_dict_nest(d, name, e);
	}
	return 0;
}

/** Return the counters of each RX role. */
static int
get_rx(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const uint32_t n = run_get_pipeline(telemetry_run)->settings->rx_lcores;

	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; i < n; i++) {
		const struct rx *rx = run_get_pipeline(telemetry_run)->rx[i];
		struct rte_tel_data *e = telemetry_dict_new();
		struct rx_counts counts;
		char name[16];

		if (e == NULL)
			return -ENOMEM;
		rx_get_counts(rx, &counts);
		for (uint32_t c = 0; c < RX_COUNTERS; c++)
			rte_tel_data_add_dict_uint(e, rx_counter_names[c], counts.counters[c]);
		rte_tel_data_add_dict_uint(e, "pending", counts.pending);
		rte_tel_data_add_dict_uint(e, "absent_ms",
			__atomic_load_n(&rx->frx->absent, __ATOMIC_RELAXED) /
				(rte_get_tsc_hz() / 1000));
		snprintf(name, sizeof(name), "%u", i);
		telemetry_dict_nest(d, name, e);
	}
	return 0;
}

static void
add_position(struct rte_tel_data *d, const char *name, uint32_t position)
{
	char text[32] = "n.a.";

	if (position != SOURCE_POSITION_UNKNOWN)
		snprintf(text, sizeof(text), "row %u column %u", position & 0xFFFF, position >> 16);
	rte_tel_data_add_dict_string(d, name, text);
}

/** Return the accepted sources of each stream. */
static int
get_sources(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct sources *all = run_get_pipeline(telemetry_run)->sources;
	uint32_t expected[DETECTOR_STREAMS_MAX];

	(void)sources_expected(all, expected);
	rte_tel_data_start_dict(d);
	for (uint32_t s = 0; s < all->detector->streams; s++) {
		struct rte_tel_data *e = telemetry_dict_new();
		struct source st;
		char text[64];

		if (e == NULL)
			return -ENOMEM;
		sources_get(all, s, &st);
		rte_tel_data_add_dict_string(e, "state", source_step_names[st.step]);
		rte_tel_data_add_dict_string(
			e, "source", source_text(st.taken, text, sizeof(text)));
		rte_tel_data_add_dict_string(
			e, "destination", source_destination_text(st.taken, text, sizeof(text)));
		rte_tel_data_add_dict_uint(e, "rejected", st.nb_rejected);
		rte_tel_data_add_dict_string(
			e, "last_rejected", source_text(st.rejected, text, sizeof(text)));
		add_position(e, "position", st.position);
		add_position(e, "expected_position", expected[s]);
		rte_tel_data_add_dict_uint(e, "misplaced", st.misplaced);
		snprintf(text, sizeof(text), "%u", s);
		telemetry_dict_nest(d, text, e);
	}
	return 0;
}

/** Fragments that were refused, by cause. @return NULL: none was, or out of memory */
static struct rte_tel_data *
refused_fragments(const struct rx_multicast_info *info)
{
	struct rte_tel_data *d = NULL;

	for (uint32_t c = 0; c < RX_FRAGMENT_CAUSES; c++) {
		if (info->refused[c] == 0)
			continue;
		d = d != NULL ? d : telemetry_dict_new();
		if (d != NULL)
			rte_tel_data_add_dict_uint(d, rx_fragment_cause_names[c], info->refused[c]);
	}
	return d;
}

/** Return the multicast streams. */
static int
get_multicast(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct rx_messages *m = run_get_pipeline(telemetry_run)->messages;

	rte_tel_data_start_dict(d);
	if (m == NULL || m->multicast == NULL)
		return 0;
	for (uint32_t s = 0; s < m->card.streams; s++) {
		struct rte_tel_data *e = telemetry_dict_new(), *refused;
		struct rx_multicast_info info;
		char name[16];

		if (e == NULL)
			return -ENOMEM;
		rx_multicast_info_get(m->multicast, s, &info);
		rte_tel_data_add_dict_string(e, "state", info.state);
		if (info.stream.error != 0)
			telemetry_dict_text(e, "error", rte_strerror(-info.stream.error));
		telemetry_dict_hex(e, "run", info.stream.run);
		rte_tel_data_add_dict_uint(e, "joins", info.stream.joins);
		rte_tel_data_add_dict_uint(e, "rejoins", info.stream.rejoins);
		rte_tel_data_add_dict_uint(e, "received", info.stream.received);
		rte_tel_data_add_dict_uint(e, "repaired", info.stream.repaired);
		rte_tel_data_add_dict_uint(e, "lost_for_good", info.stream.lost);
		rte_tel_data_add_dict_uint(e, "reads", info.stream.reads);
		rte_tel_data_add_dict_uint(e, "foreign", info.stream.foreign);
		rte_tel_data_add_dict_uint(e, "slot_waits", info.slot_waits);
		refused = refused_fragments(&info);
		if (refused != NULL)
			telemetry_dict_nest(e, "refused", refused);
		snprintf(name, sizeof(name), "%u", s);
		telemetry_dict_nest(d, name, e);
	}
	return 0;
}

static int
get_modules(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct frame_table *ft = run_get_pipeline(telemetry_run)->table;
	const struct builder_stats stats = builder_stats(run_get_pipeline(telemetry_run)->builder),
				   *b = &stats;
	const struct detector *det = &ft->detector;

	rte_tel_data_start_dict(d);
	for (uint32_t m = 0; m < det->modules; m++) {
		struct rte_tel_data *e = telemetry_dict_new();
		uint64_t last = 0;
		char name[16];

		if (e == NULL)
			return -ENOMEM;
		for (uint32_t i = 0; i < det->interfaces; i++) {
			const uint32_t s = m * det->interfaces + i;

			last = RTE_MAX(last, frame_table_last_number(ft, s));
		}
		rte_tel_data_add_dict_uint(e, "frames", b->module_frames[m]);
		rte_tel_data_add_dict_uint(e, "missing_packets", b->module_missing[m]);
		rte_tel_data_add_dict_uint(e, "last_frame", last);
		snprintf(name, sizeof(name), "%u", m);
		telemetry_dict_nest(d, name, e);
	}
	return 0;
}

static int
get_gangs(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct builder_stats stats = builder_stats(run_get_pipeline(telemetry_run)->builder),
				   *b = &stats;
	const struct gk_channel *channel = run_get_pipeline(telemetry_run)->gk_config->channel;

	rte_tel_data_start_dict(d);
	for (uint32_t g = 0; g < run_get_pipeline(telemetry_run)->settings->gangs; g++) {
		struct rte_tel_data *e = telemetry_dict_new();
		char name[16];

		if (e == NULL)
			return -ENOMEM;
		rte_tel_data_add_dict_uint(e, "frames", b->gang_frames[g]);
		rte_tel_data_add_dict_uint(e, "batches", b->gang_batches[g]);
		rte_tel_data_add_dict_uint(e, "pending",
			__atomic_load_n(&channel->bell.head[g], __ATOMIC_RELAXED) -
				__atomic_load_n(&channel->done[g].done, __ATOMIC_RELAXED));
		rte_tel_data_add_dict_int(e, "error",
			(int)__atomic_load_n(&channel->done[g].error, __ATOMIC_RELAXED));
		snprintf(name, sizeof(name), "%u", g);
		telemetry_dict_nest(d, name, e);
	}
	return 0;
}

static int
get_builder(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct builder_stats stats = builder_stats(run_get_pipeline(telemetry_run)->builder),
				   *b = &stats;

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "closed", b->closed);
	rte_tel_data_add_dict_uint(d, "batches", b->batches);
	rte_tel_data_add_dict_uint(d, "batched_frames", b->batched_frames);
	rte_tel_data_add_dict_uint(d, "status_mismatch", b->status_mismatch);
	rte_tel_data_add_dict_uint(d, "bunch_mismatch", b->bunch_mismatch);
	rte_tel_data_add_dict_uint(d, "no_output_slot", b->no_output_slot);
	rte_tel_data_add_dict_uint(d, "no_record", b->no_record);
	return 0;
}

static int
get_veto(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct builder_veto veto;

	run_get_veto(telemetry_run, &veto);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "version", veto.params.version);
	telemetry_dict_real(d, "strong_threshold", veto.params.strong_threshold);
	rte_tel_data_add_dict_uint(d, "strong_min", veto.params.strong_min);
	rte_tel_data_add_dict_uint(d, "strong_max", veto.params.strong_max);
	rte_tel_data_add_dict_uint(d, "dry_run", veto.dry_run);
	rte_tel_data_add_dict_uint(d, "prescale", veto.prescale);
	rte_tel_data_add_dict_uint(d, "prescale_raw", veto.prescale_raw);
	telemetry_dict_real(d, "csr_threshold", veto.params.csr_threshold);
	rte_tel_data_add_dict_uint(d, "nnz_max", veto.params.nnz_max);
	rte_tel_data_add_dict_uint(d, "search", veto.params.search);
	rte_tel_data_add_dict_uint(d, "peaks_min", veto.params.peaks_min);
	rte_tel_data_add_dict_uint(d, "peaks_max", veto.params.peaks_max);
	rte_tel_data_add_dict_uint(d, "veto_shells", veto.params.peaks_shells);
	telemetry_dict_real(d, "threshold", veto.peak.threshold);
	telemetry_dict_real(d, "min_snr", veto.peak.min_snr);
	rte_tel_data_add_dict_uint(d, "min_pix_count", veto.peak.min_pixels);
	rte_tel_data_add_dict_uint(d, "max_pix_count", veto.peak.max_pixels);
	rte_tel_data_add_dict_uint(d, "local_bg_radius", veto.peak.bg_radius);
	rte_tel_data_add_dict_uint(d, "use_saturated", veto.peak.saturated);
	return 0;
}

/* ---- control of runs ---- */

/** Find `from_frame=N` in the list. @return NULL: there is none */
static char *
find_from_frame(char *list)
{
	char *at = strstr(list, "from_frame=");

	return at != NULL && (at == list || at[-1] == ',') ? at : NULL;
}

/**
 * Remove `from_frame=N` from the list; the rest is passed to the run.
 * @return 0; -EINVAL; -EEXIST: the list has another one
 */
static int
take_from_frame(char *list, uint64_t *frame)
{
	char *at = find_from_frame(list);
	const char *end;

	if (at == NULL)
		return 0;
	end = whole_number_or_hex(at + strlen("from_frame="), frame);
	if (end == NULL || (*end != ',' && *end != '\0'))
		return -EINVAL;
	end += *end == ',';
	memmove(at, end, strlen(end) + 1);
	return find_from_frame(list) == NULL ? 0 : -EEXIST;
}

/** Reply with the result of a command that controls runs. */
static int
reply(struct rte_tel_data *d, int result)
{
	struct run_status status;

	run_get_status(telemetry_run, &status);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_int(d, "result", result);
	rte_tel_data_add_dict_string(d, "state", run_state_names[status.state]);
	if (result != 0)
		telemetry_dict_text(d, "message", status.message);
	return 0;
}

/** Reply to a command with wrong parameters, which has no effect. @return 0 */
static int
refuse(struct rte_tel_data *d, int result, const char *message)
{
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_int(d, "result", result);
	rte_tel_data_add_dict_string(d, "state", run_state_names[run_get_state(telemetry_run)]);
	telemetry_dict_text(d, "message", message);
	return 0;
}

/*
 * DPDK reads this many bytes of a request and discards the rest, so a request of this length may be
 * truncated.
 */
#define REQUEST_MAX 1023

/* Check the length of a request. @return 0; -E2BIG: the reply contains the error */
static int
check_length(const char *cmd, const char *params, struct rte_tel_data *d)
{
	if (strlen(cmd) + 1 + strlen(params != NULL ? params : "") < REQUEST_MAX)
		return 0;
	refuse(d, -E2BIG,
		"the command is too long for DPDK's telemetry (at most 1022 bytes); put the "
		"settings into the file of --config");
	return -E2BIG;
}

static int
set_veto(const char *cmd, const char *params, struct rte_tel_data *d)
{
	uint64_t effective = 0, from = 0;
	char *list;
	int ret;

	if (check_length(cmd, params, d) != 0)
		return 0;
	list = strdup(params != NULL ? params : "");
	if (list == NULL)
		return -ENOMEM;
	ret = take_from_frame(list, &from);
	if (ret == -EEXIST) {
		refuse(d, -EINVAL, "from_frame is given twice; give it once");
	} else if (ret != 0) {
		refuse(d, -EINVAL, "from_frame must be a frame number, or 0: as soon as possible");
	} else if (list[0] == '\0') {
		refuse(d, -EINVAL, "no threshold given; expected veto.KEY=VALUE,...");
	} else {
		ret = run_set_veto(telemetry_run, list, from, &effective);
		reply(d, ret);
		if (ret == 0)
			rte_tel_data_add_dict_uint(d, "from_frame", effective);
	}
	free(list);
	return 0;
}

/* ---- calibration and status of runs ---- */

static int
get_pedestal(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct builder_stats stats = builder_stats(run_get_pipeline(telemetry_run)->builder),
				   *b = &stats;
	struct calibration calibration, *c = &calibration;
	char digest[24];

	run_get_calibration(telemetry_run, c);
	rte_tel_data_start_dict(d);
	snprintf(digest, sizeof(digest), "crc32c:%08x", c->digest);
	rte_tel_data_add_dict_string(d, "digest", digest);
	rte_tel_data_add_dict_uint(d, "masked", c->masked);
	rte_tel_data_add_dict_uint(d, "warnings", c->warnings);
	telemetry_dict_text(d, "warning", calibration_warning(c));
	rte_tel_data_add_dict_uint(d, "unusable_g0", c->unusable[0]);
	rte_tel_data_add_dict_uint(d, "unusable_g1", c->unusable[1]);
	rte_tel_data_add_dict_uint(d, "unusable_g2", c->unusable[2]);
	rte_tel_data_add_dict_uint(d, "updates", b->updates);
	rte_tel_data_add_dict_uint(d, "update_samples", b->update_samples);
	rte_tel_data_add_dict_uint(d, "update_pixels", b->update_pixels);
	telemetry_dict_real(d, "update_drift_adu",
		b->update_pixels == 0 ? 0 : b->update_drift_q8 / 256.0 / b->update_pixels);
	rte_tel_data_add_dict_uint(d, "pedestal_version", b->pedestal_version);
	return 0;
}

/** Return the statistics of each module's maps. */
static int
get_calibration(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct pipeline *p = run_get_pipeline(telemetry_run);
	struct calibration calibration;
	char key[24];
	int ret = 0;

	run_get_calibration(telemetry_run, &calibration);
	rte_tel_data_start_dict(d);
	for (uint32_t m = 0; m < p->settings->detector.modules && ret == 0; m++) {
		const struct calibration_module *module = &calibration.module[m];
		struct rte_tel_data *e = telemetry_dict_new();

		if (e == NULL) {
			ret = -ENOMEM;
			break;
		}
		rte_tel_data_add_dict_uint(e, "live", module->live);
		for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
			snprintf(key, sizeof(key), "pedestal_g%u", g);
			telemetry_dict_real(e, key, module->pedestal_median[g]);
			snprintf(key, sizeof(key), "gain_g%u", g);
			telemetry_dict_real(e, key, module->gain_median[g]);
		}
		rte_tel_data_add_dict_uint(e, "warnings", module->warnings);
		snprintf(key, sizeof(key), "%u", m);
		telemetry_dict_nest(d, key, e);
	}
	return ret;
}

static int
run_configure_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	if (check_length(cmd, params, d) != 0)
		return 0;
	return reply(d, run_configure(telemetry_run, params));
}

static int
run_arm_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return reply(d, run_arm(telemetry_run));
}

static int
run_start_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return reply(d, run_start(telemetry_run));
}

static int
run_stop_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return reply(d, run_stop(telemetry_run));
}

static int
run_abort_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return reply(d, run_abort(telemetry_run));
}

static int
run_status_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct run_status status;

	run_get_status(telemetry_run, &status);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "state", run_state_names[status.state]);
	telemetry_dict_text(d, "name", status.name);
	telemetry_dict_text(d, "directory", status.directory);
	rte_tel_data_add_dict_uint(d, "runs", status.runs);
	rte_tel_data_add_dict_uint(d, "first_frame", status.first_frame);
	rte_tel_data_add_dict_uint(d, "last_frame", status.last_frame);
	rte_tel_data_add_dict_uint(d, "frames", status.ledger.frames);
	rte_tel_data_add_dict_uint(d, "stored", status.ledger.stored);
	rte_tel_data_add_dict_uint(d, "veto_version", status.veto_version);
	telemetry_dict_real(d, "seconds", status.seconds);
	telemetry_dict_text(d, "dark", status.dark);
	telemetry_dict_text(d, "ledger", status.ledger_path);
	rte_tel_data_add_dict_uint(d, "failed", status.failed);
	telemetry_dict_text(d, "warning", status.warnings[0]);
	telemetry_dict_text(d, "message", status.message);
	return 0;
}

/* ---- table of commands ---- */

static const struct telemetry_command commands[] = {
	{"/braggline/info", "", "Version and configuration of this process",
		"version, dpdk, detector, modules, interfaces, rows, cols, rx_lcores, gangs, "
		"frame_slots, kernel, gpu, packets, results, control; with [ingest] delivery = "
		"memory: ring_bytes, ring_register_us, ring_prefault_us, ring_used_us (time since "
		"then)",
		get_info},
	{"/braggline/ledger", "", "Every frame and packet of the current or last run, by outcome",
		"run, state; frames {...}, packets {...}, ports {...}: as in RUN_ledger.ini; "
		"balanced is 0 while frames or packets are in progress",
		get_ledger},
	{"/braggline/lcores", "", "Roles and load of each lcore",
		"by lcore: roles, busy_cycles, idle_cycles, rounds, role_busy_cycles", get_lcores},
	{"/braggline/rx", "", "Packets of each RX role since the start, by outcome",
		"by role: the packets of the ledger, pending, absent_ms (time in which it did "
		"not run)",
		get_rx},
	{"/braggline/sources", "", "Accepted sources of each stream, since the start",
		"by stream: state (configured, none, first, contested, learnt), source, "
		"destination, rejected (packets), last_rejected, position (announced), "
		"expected_position, misplaced",
		get_sources},
	{"/braggline/multicast", "", "Multicast streams, since the start",
		"by stream: state (joining, joined, ended, left, failed), error (if failed), run "
		"(of the sender), joins, rejoins (connections that were replaced), received, "
		"repaired, lost_for_good (packets), reads, foreign (packets of others), slot_waits "
		"(polls in which the ring had no room), refused {...} (fragments, by cause)",
		get_multicast},
	{"/braggline/modules", "", "Packets received from each module, since the start",
		"by module: frames, missing_packets, last_frame", get_modules},
	{"/braggline/builder", "", "Frames since the start, and the reasons why they waited",
		"closed, batches (for gangs), batched_frames, status_mismatch (frames of another "
		"storage cell or gain mode, or whose modules disagree), bunch_mismatch (frames "
		"whose modules disagree on the bunch id), no_output_slot (rounds without a free "
		"slot of [gpu] outputs), no_record (rounds in which the writer had all records)",
		get_builder},
	{"/braggline/gangs", "", "Work of each gang since the start",
		"by gang: frames, batches, pending, error", get_gangs},
	{"/braggline/latency", "",
		"Histograms of latencies since the start: to the verdict, to the disk",
		"below_us [...], first_packet_to_verdict [...], last_packet_to_verdict [...]; "
		"batches, from the first packet of the last frame: frames_batch_to_durable [...], "
		"images_batch_to_durable [...]; sum of the times of each: "
		"first_packet_to_verdict_sum_us and so on",
		telemetry_latency},
	{"/braggline/writer", "", "Writer of the current or last run",
		"run; frames {...}, images {...}: state, mode, why (not the fastest mode), path, "
		"rows (accepted), durable, unwritten, unwritten_full, unwritten_error, "
		"unwritten_bad, batches, bytes, files, outages, stalls, stalled "
		"(1: now), resumes, error; kept_bytes (of pixels in images), copied_bytes (each "
		"copy that a CPU made of one of them), "
		"no_journal_slot (frames copied because the journal had no free output slot)",
		telemetry_writer},
	{"/braggline/egress", "", "Stores, unacknowledged batches and overload handling",
		"active; overload_level (hold, spill, refuse), spills, refusals (times), "
		"spilled (batches), spilled_adopted, damaged_frames (images in damaged batches of "
		"the journal at start), spill_used (bytes), spill_error, runs (held); journal "
		"{batches, bytes, room, in_doubt, put, released, reassigned, adopted, damaged "
		"(batches), corrected (records), full, slots (for output), slots_held}; "
		"stores by number: address, state, store_state, identity, slots, credits, waiting, "
		"sent, bytes, "
		"bytes_per_s, durable, durable_per_s, found, duplicates, returned, wrong_crc "
		"(of these, the body arrived with a wrong CRC), corrupted (of these, although the "
		"receiver had just checked its copy), sent_damaged (damaged in the receiver's "
		"memory), connections, broken, refused, unreachable, malformed, late, stuck, "
		"reason; below_us [...], kept_to_durable [...], kept_to_durable_sum_us",
		telemetry_egress},
	{"/braggline/rdma", "", "The RDMA device of [egress], since the start", TELEMETRY_RDMA_KEYS,
		telemetry_device},
	{"/braggline/preview", "", "Preview picture of the current or last run that has one",
		"active, path, sequence (number of pictures, all runs), frame, frames (in the "
		"maximum), skipped, errors, error; live (path of the live file), live_sequence "
		"(number of frames shown), live_frames (in maximum and mean), live_skipped",
		telemetry_preview},
	{"/braggline/veto", "", "Newest version of the thresholds of the active run",
		"version (0: no run is active, these are those of the next run), strong_threshold, "
		"strong_min, strong_max, dry_run, prescale, prescale_raw, csr_threshold, nnz_max, "
		"search (0: no, 1: hits, 2: all), peaks_min, peaks_max, veto_shells (bits; "
		"0: all), threshold, min_snr, min_pix_count, max_pix_count, local_bg_radius, "
		"use_saturated",
		get_veto},
	{"/braggline/veto/set", "veto.KEY=VALUE,...[,from_frame=N]",
		"Change the thresholds from a frame on, while running; also peaks.KEY",
		"result, state, from_frame or message (continued in message_2 ...)", set_veto},
	{"/braggline/pedestal", "",
		"The calibration, and its updates by dark frames since the start",
		"digest, masked, warnings, warning (the first), unusable_g0, unusable_g1, "
		"unusable_g2, updates, update_samples, "
		"update_pixels, update_drift_adu (mean of the last), pedestal_version",
		get_pedestal},
	{"/braggline/calibration", "", "Pixel and calibration statistics of each module",
		"by module: live (pixels with a photon value in G0), pedestal_gN (median, ADU; 0: "
		"no file), gain_gN (median, ADU/keV), warnings (implausible medians or live "
		"pixels)",
		get_calibration},
	{"/braggline/run/configure", "SECTION.KEY=VALUE,...",
		"Set settings of the next run: [run], [veto], [dark], [output], [calibration], "
		"[geometry], [peaks]",
		"result, state, message (continued in message_2 ...)", run_configure_command},
	{"/braggline/run/arm", "", "Load the calibration and open the files",
		"result, state, message (continued in message_2 ...)", run_arm_command},
	{"/braggline/run/start", "", "Start to take frames; configures and arms first if necessary",
		"result, state, message (continued in message_2 ...)", run_start_command},
	{"/braggline/run/stop", "", "Stop; write the frames received so far, close the files",
		"result, state, message (continued in message_2 ...)", run_stop_command},
	{"/braggline/run/abort", "", "Abort; discard frames that no gang has started",
		"result, state, message (continued in message_2 ...)", run_abort_command},
	{"/braggline/run/status", "", "State of the current or last run",
		"state, name, directory, runs, first_frame, last_frame, frames, stored, "
		"veto_version, seconds, dark, ledger (file of the last one), failed, warning "
		"(about received packets), message (continued in message_2 ...)",
		run_status_command},
};

static int
serve_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	int ret = -ENOENT;

	pthread_rwlock_rdlock(&run_lock);
	if (telemetry_run != NULL)
		ret = telemetry_table_serve(commands, RTE_DIM(commands), cmd, params, d);
	pthread_rwlock_unlock(&run_lock);
	return ret;
}

void
telemetry_retire(void)
{
	pthread_rwlock_wrlock(&run_lock);
	telemetry_run = NULL;
	pthread_rwlock_unlock(&run_lock);
}

int
telemetry_register(struct run *r)
{
	pthread_rwlock_wrlock(&run_lock);
	telemetry_run = r;
	pthread_rwlock_unlock(&run_lock);
	return telemetry_table_register(commands, RTE_DIM(commands), serve_command);
}

void
telemetry_document(FILE *out)
{
	telemetry_table_print(commands, RTE_DIM(commands), out);
}

/* ---- latency, files, stores and preview ---- */

static int
telemetry_latency(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct builder_stats stats = builder_stats(run_get_pipeline(telemetry_run)->builder),
				   *b = &stats;
	struct histogram durable[ARROW_TABLES];

	rte_tel_data_start_dict(d);
	telemetry_dict_below_us(d);
	telemetry_dict_histogram(d, "first_packet_to_verdict", &b->latency_verdict);
	telemetry_dict_histogram(d, "last_packet_to_verdict", &b->latency_gang);
	run_get_latency(telemetry_run, durable);
	telemetry_dict_histogram(d, "frames_batch_to_durable", &durable[ARROW_FRAMES]);
	telemetry_dict_histogram(d, "images_batch_to_durable", &durable[ARROW_IMAGES]);
	return 0;
}

/**
 * Describe one table. Of the `rows` received, some are durable, some unwritten, the rest in
 * progress.
 */
static struct rte_tel_data *
writer_table(const struct run_writer *w, enum arrow_table table, uint64_t rows)
{
	const struct run_files_stats *s = &w->stats.table[table];
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	rte_tel_data_add_dict_string(d, "state", run_files_state_name(s->state));
	rte_tel_data_add_dict_string(d, "mode", arrow_io_mode_name(s->mode));
	telemetry_dict_text(d, "why", w->status[table].why);
	telemetry_dict_text(d, "path", w->status[table].path);
	rte_tel_data_add_dict_uint(d, "rows", rows);
	rte_tel_data_add_dict_uint(d, "durable", s->rows);
	rte_tel_data_add_dict_uint(d, "unwritten", s->unwritten);
	rte_tel_data_add_dict_uint(d, "unwritten_full", s->unwritten_full);
	rte_tel_data_add_dict_uint(d, "unwritten_error", s->unwritten_error);
	rte_tel_data_add_dict_uint(d, "unwritten_bad", s->unwritten_bad);
	rte_tel_data_add_dict_uint(d, "batches", s->batches);
	rte_tel_data_add_dict_uint(d, "bytes", s->bytes);
	rte_tel_data_add_dict_uint(d, "files", s->files);
	rte_tel_data_add_dict_uint(d, "outages", s->outages);
	rte_tel_data_add_dict_uint(d, "stalls", s->stalls);
	rte_tel_data_add_dict_uint(d, "stalled", s->stalled);
	rte_tel_data_add_dict_uint(d, "resumes", s->resumes);
	telemetry_dict_text(d, "error", w->status[table].error);
	return d;
}

static int
telemetry_writer(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct run_writer w;

	run_get_writer(telemetry_run, &w);
	rte_tel_data_start_dict(d);
	telemetry_dict_text(d, "run", w.name);
	if (w.name[0] == '\0')
		return 0;
	telemetry_dict_nest(d, "frames", writer_table(&w, ARROW_FRAMES, w.stats.records));
	telemetry_dict_nest(d, "images", writer_table(&w, ARROW_IMAGES, w.stats.kept));
	rte_tel_data_add_dict_uint(d, "kept_bytes", w.stats.kept_bytes);
	rte_tel_data_add_dict_uint(d, "copied_bytes", w.stats.copied_bytes);
	rte_tel_data_add_dict_uint(d, "no_journal_slot", w.stats.no_slot);
	return 0;
}

static int
telemetry_preview(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct preview_status status;
	struct live_status live;

	preview_get_status(run_get_pipeline(telemetry_run)->preview, &status);
	live_get_status(run_get_pipeline(telemetry_run)->live, &live);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "active", status.active);
	telemetry_dict_text(d, "path", status.path);
	rte_tel_data_add_dict_uint(d, "sequence", status.sequence);
	rte_tel_data_add_dict_uint(d, "frame", status.frame);
	rte_tel_data_add_dict_uint(d, "frames", status.frames);
	rte_tel_data_add_dict_uint(d, "skipped", status.skipped);
	rte_tel_data_add_dict_uint(d, "errors", status.errors);
	telemetry_dict_text(d, "error", status.error);
	telemetry_dict_text(d, "live", live.path);
	rte_tel_data_add_dict_uint(d, "live_sequence", live.sequence);
	rte_tel_data_add_dict_uint(d, "live_frames", live.frames);
	rte_tel_data_add_dict_uint(d, "live_skipped", live.skipped);
	return 0;
}

static struct rte_tel_data *
journal(const struct journal_stats *r)
{
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	rte_tel_data_add_dict_uint(d, "batches", r->batches);
	rte_tel_data_add_dict_uint(d, "bytes", r->bytes);
	rte_tel_data_add_dict_uint(d, "room", r->room);
	rte_tel_data_add_dict_uint(d, "in_doubt", r->in_doubt);
	rte_tel_data_add_dict_uint(d, "put", r->put);
	rte_tel_data_add_dict_uint(d, "released", r->released);
	rte_tel_data_add_dict_uint(d, "reassigned", r->moved);
	rte_tel_data_add_dict_uint(d, "adopted", r->adopted);
	rte_tel_data_add_dict_uint(d, "damaged", r->damaged);
	rte_tel_data_add_dict_uint(d, "corrected", r->corrected);
	rte_tel_data_add_dict_uint(d, "full", r->full);
	rte_tel_data_add_dict_uint(d, "slots", r->slots);
	rte_tel_data_add_dict_uint(d, "slots_held", r->slots_held);
	return d;
}

static struct rte_tel_data *
store(const struct egress_store *s)
{
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	telemetry_dict_text(d, "address", s->name);
	rte_tel_data_add_dict_string(d, "state", store_client_state_name(s->now.state));
	rte_tel_data_add_dict_string(d, "store_state", xfer_state_name(s->now.store_state));
	telemetry_dict_hex(d, "identity", s->now.identity);
	rte_tel_data_add_dict_uint(d, "slots", s->now.slots);
	rte_tel_data_add_dict_uint(d, "credits", s->now.credits);
	rte_tel_data_add_dict_uint(d, "waiting", s->now.waiting);
	rte_tel_data_add_dict_uint(d, "sent", s->sent);
	rte_tel_data_add_dict_uint(d, "bytes", s->bytes);
	rte_tel_data_add_dict_uint(d, "bytes_per_s", s->bytes_per_s);
	rte_tel_data_add_dict_uint(d, "durable", s->durable);
	rte_tel_data_add_dict_uint(d, "durable_per_s", s->durable_per_s);
	rte_tel_data_add_dict_uint(d, "found", s->found);
	rte_tel_data_add_dict_uint(d, "duplicates", s->duplicates);
	rte_tel_data_add_dict_uint(d, "returned", s->returned);
	rte_tel_data_add_dict_uint(d, "wrong_crc", s->wrong_crc);
	rte_tel_data_add_dict_uint(d, "corrupted", s->corrupted);
	rte_tel_data_add_dict_uint(d, "sent_damaged", s->sent_damaged);
	rte_tel_data_add_dict_uint(d, "connections", s->connections);
	rte_tel_data_add_dict_uint(d, "broken", s->broken);
	rte_tel_data_add_dict_uint(d, "refused", s->refused);
	rte_tel_data_add_dict_uint(d, "unreachable", s->unreachable);
	rte_tel_data_add_dict_uint(d, "malformed", s->malformed);
	rte_tel_data_add_dict_uint(d, "late", s->late);
	rte_tel_data_add_dict_uint(d, "stuck", s->stuck);
	rte_tel_data_add_dict_string(d, "reason", xfer_reason_name(s->now.reason));
	return d;
}

static int
telemetry_egress(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct egress *e = run_get_pipeline(telemetry_run)->stores;
	struct rte_tel_data *stores = telemetry_dict_new();
	struct egress_view v;
	char name[16];

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "active", e != NULL);
	if (e == NULL || stores == NULL) {
		rte_tel_data_free(stores);
		return 0;
	}
	egress_view_get(e, &v);
	rte_tel_data_add_dict_string(d, "overload_level", egress_level_name(v.step));
	rte_tel_data_add_dict_uint(d, "spills", v.steps[EGRESS_SPILL]);
	rte_tel_data_add_dict_uint(d, "refusals", v.steps[EGRESS_REFUSE]);
	rte_tel_data_add_dict_uint(d, "spilled", v.spilled);
	rte_tel_data_add_dict_uint(d, "spilled_adopted", v.adopted_spilled);
	rte_tel_data_add_dict_uint(d, "damaged_frames", v.damaged_frames);
	rte_tel_data_add_dict_uint(d, "spill_used", v.spill_used);
	rte_tel_data_add_dict_uint(d, "spill_error", v.spill_error);
	rte_tel_data_add_dict_uint(d, "runs", v.runs);
	telemetry_dict_nest(d, "journal", journal(&v.journal));
	for (uint32_t i = 0; i < v.nb_stores; i++) {
		snprintf(name, sizeof(name), "%u", i);
		telemetry_dict_nest(stores, name, store(&v.store[i]));
	}
	telemetry_dict_nest(d, "stores", stores);
	telemetry_dict_below_us(d);
	telemetry_dict_histogram(d, "kept_to_durable", &v.latency);
	return 0;
}

static int
telemetry_device(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct egress *e = run_get_pipeline(telemetry_run)->stores;
	const struct rdma_dev_info *info = NULL;
	const struct rdma_dev *dev = e != NULL ? egress_device(e, &info) : NULL;

	telemetry_rdma_reply(d, dev, info);
	return 0;
}
