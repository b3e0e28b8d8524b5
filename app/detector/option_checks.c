/* SPDX-License-Identifier: BSD-3-Clause */
/* Combinations of options. */

#include "detector_options.h"

#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

static int
check_replay(const struct detector_options *options)
{
	const char *wrong = options->pack	    ? "pack"
		: options->port_name != NULL	    ? "port"
		: options->device_name != NULL	    ? "device"
		: options->truth_path != NULL	    ? "truth"
		: options->spots_path != NULL	    ? "spots"
		: options->geometry_path != NULL    ? "geometry"
		: options->calibration_path != NULL ? "calibration"
		: options->report_path != NULL	    ? "report"
						    : NULL;

	if (options->nb_pack_paths == 0) {
		warnx("--replay: no run given; expected directories or Arrow files");
		return -EINVAL;
	}
	if (wrong != NULL) {
		warnx("--replay: found --%s; expected only --pcap or --raw", wrong);
		return -EINVAL;
	}
	return 0;
}

static int
check_port(const struct detector_options *options)
{
	const struct jungfrau_model_config *model = &options->model;

	if (!detector_options_transmits(options)) {
		if (!options->loop)
			return 0;
		warnx("--loop: requires --port or --device, because a file has an end");
		return -EINVAL;
	}
	if (options->pcap_path != NULL || options->raw_path != NULL ||
		options->spots_path != NULL) {
		warnx("--%s: found --%s; write files of packets, frames or spots in a separate run",
			options->port_name != NULL ? "port" : "device",
			options->pcap_path != NULL	    ? "pcap"
				: options->raw_path != NULL ? "raw"
							    : "spots");
		return -EINVAL;
	}
	if (model->drift != 0.0 && (options->loop || options->distinct < options->frames)) {
		warnx("--drift: repeated frames do not drift; expected --distinct of at least "
		      "--frames, and no --loop");
		return -EINVAL;
	}
	if (model->dark_every != 0 && options->distinct % model->dark_every != 0 &&
		(options->loop || options->distinct < options->frames)) {
		warnx("--distinct: found %llu, expected a multiple of the %llu of --dark-every, "
		      "so that dark frames are evenly spaced",
			(unsigned long long)options->distinct,
			(unsigned long long)model->dark_every);
		return -EINVAL;
	}
	return 0;
}

/* Which transports an option is for, a bitmap of enum ingest_transport. */
#define UDP	  (1u << INGEST_UDP)
#define SEND	  (1u << INGEST_SEND)
#define WRITE	  (1u << INGEST_WRITE)
#define MULTICAST (1u << INGEST_MULTICAST)

/* Report an option of another transport. */
static int
wrong_transport(const struct detector_options *options, const char *option, const char *what,
	unsigned int of)
{
	char names[64] = "";
	size_t used = 0;
	unsigned int left = of;

	for (unsigned int t = INGEST_UDP; t <= INGEST_MULTICAST; t++) {
		if ((of & 1u << t) == 0)
			continue;
		left &= ~(1u << t);
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
			used == 0	    ? ""
				: left == 0 ? " or "
					    : ", ",
			ingest_transport_names[t]);
	}
	warnx("--%s: found %s--transport %s, expected %s", option, what,
		ingest_transport_names[options->transport], names);
	return -EINVAL;
}

static int
check_faults(const struct detector_options *options)
{
	const struct fault_options *f = &options->faults;
	bool drop = false;

	for (unsigned int i = 0; i < FAULT_DROPS; i++)
		drop |= f->drop[i] != 0.0;

	const struct {
		const char *what;
		bool found;
		unsigned int of;
	} faults[] = {
		{"corrupt with ", f->corrupt != 0.0, UDP},
		{"truncate with ", f->truncate != 0.0, UDP},
		{"drop or event-loss with ", drop, SEND | WRITE | MULTICAST},
		{"group-loss with ", f->group_loss != 0.0, MULTICAST},
		{"read-loss with ", f->read_loss != 0.0, MULTICAST},
	};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (faults[i].found && (faults[i].of & 1u << options->transport) == 0)
			return wrong_transport(options, "fault", faults[i].what, faults[i].of);
	return 0;
}

/* Options that only some transports have. */
static int
check_transport(const struct detector_options *options)
{
	struct detector_options other;

	detector_options_default(&other);
	const struct {
		const char *name;
		bool found;
		unsigned int of;
	} rows[] = {
		{"port", options->port_name != NULL, UDP},
		{"device", options->device_name != NULL, SEND | WRITE | MULTICAST},
		{"card", options->card_path != NULL, SEND | WRITE},
		{"connect", options->connect != NULL, SEND | WRITE},
		{"queue-pairs", options->reliable, SEND | WRITE},
		{"pcap", options->pcap_path != NULL, UDP | SEND | WRITE},
		{"group", options->group != other.group, MULTICAST},
		{"service", options->service != other.service, MULTICAST},
		{"policy", options->policy != other.policy, MULTICAST},
		{"ring-slots", options->ring_slots != other.ring_slots, MULTICAST},
		{"members", options->members != other.members, MULTICAST},
		{"silence", options->silence_ms != other.silence_ms, MULTICAST},
		{"keys", options->keys_path != NULL, MULTICAST},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].found && (rows[i].of & 1u << options->transport) == 0)
			return wrong_transport(options, rows[i].name, "", rows[i].of);
	return check_faults(options);
}

/* Check the destination of messages, and the source of their card. */
static int
check_messages(const struct detector_options *options)
{
	if (options->credits && (options->transport != INGEST_WRITE || options->connect == NULL)) {
		warnx("--credits: found --transport %s%s, expected write and --connect",
			ingest_transport_names[options->transport],
			options->connect == NULL ? " without --connect" : "");
		return -EINVAL;
	}
	if (options->transport != INGEST_SEND && options->transport != INGEST_WRITE)
		return 0;
	if (options->pcap_path != NULL &&
		(options->card_path == NULL || options->connect != NULL)) {
		warnx("--pcap: with --transport %s expected --card, and no --connect",
			ingest_transport_names[options->transport]);
		return -EINVAL;
	}
	if (options->device_name != NULL &&
		(options->card_path != NULL) == (options->connect != NULL)) {
		warnx("--device: expected either --card or --connect");
		return -EINVAL;
	}
	if (options->reliable && options->connect == NULL) {
		warnx("--queue-pairs: rc needs the queue pairs of both ends, expected "
		      "--connect");
		return -EINVAL;
	}
	return 0;
}

static int
check_multicast(const struct detector_options *options)
{
	const uint32_t streams = options->model.modules * options->wire.interfaces;

	if (options->transport != INGEST_MULTICAST)
		return 0;
	if (options->service + streams - 1 > UINT16_MAX) {
		warnx("--service: found %u, expected at most %u, as %u streams need as many ports",
			options->service, UINT16_MAX - streams + 1, streams);
		return -EINVAL;
	}
	if ((options->ring_slots & (options->ring_slots - 1)) != 0) {
		warnx("--ring-slots: found %u, expected a power of two", options->ring_slots);
		return -EINVAL;
	}
	return 0;
}

int
detector_options_check(const struct detector_options *options)
{
	uint32_t streams = options->model.modules * options->wire.interfaces;

	if (options->model.column_modules > options->model.modules) {
		warnx("--column-modules: found %u, expected at most the %u of --modules",
			options->model.column_modules, options->model.modules);
		return -EINVAL;
	}
	if (options->wire.port + streams - 1 > UINT16_MAX) {
		warnx("--udp-port: found %u, expected at most %u, as %u streams need as many ports",
			options->wire.port, UINT16_MAX - streams + 1, streams);
		return -EINVAL;
	}
	if (options->wire.module_id + options->model.modules - 1 > UINT16_MAX) {
		warnx("--module-id: found %u, expected at most %u for %u modules",
			options->wire.module_id, UINT16_MAX - options->model.modules + 1,
			options->model.modules);
		return -EINVAL;
	}
	if (options->geometry_path != NULL && options->model.beam[0] >= 0.0) {
		warnx("--beam: found --geometry, whose file has the beam's position");
		return -EINVAL;
	}
	if (options->model.rows % 8 != 0) {
		warnx("--rows: found %u, expected a multiple of 8", options->model.rows);
		return -EINVAL;
	}
	if (options->pcap_path == NULL && options->truth_path == NULL &&
		options->calibration_path == NULL && options->raw_path == NULL &&
		options->spots_path == NULL && !detector_options_transmits(options)) {
		warnx("no output: expected one of --pcap, --truth, --spots, --calibration, --raw, "
		      "--port, --device");
		return -EINVAL;
	}
	if (check_transport(options) != 0 || check_messages(options) != 0 ||
		check_multicast(options) != 0)
		return -EINVAL;
	if (check_port(options) != 0)
		return -EINVAL;
	if (options->replay)
		return check_replay(options);
	if (options->pack) {
		if (options->nb_pack_paths == 0) {
			warnx("--pack: no file given; expected raw frame files");
			return -EINVAL;
		}
		const char *wrong = options->truth_path != NULL ? "truth"
			: options->spots_path != NULL		? "spots"
			: options->geometry_path != NULL	? "geometry"
			: options->calibration_path != NULL	? "calibration"
								: NULL;

		if (wrong != NULL) {
			warnx("--pack: found --%s, which requires the model", wrong);
			return -EINVAL;
		}
	} else if (options->nb_pack_paths > 0) {
		warnx("found '%s', expected options only; for raw frame files use --pack",
			options->pack_paths[0]);
		return -EINVAL;
	}
	return 0;
}
