/* SPDX-License-Identifier: BSD-3-Clause */

#include "wire/fault_options.h"

#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "whole_number.h"

const char *const fault_kind_names[FAULT_KINDS] = {
	[FAULT_LOSS] = "loss",
	[FAULT_BURST_LOSS] = "burst_loss",
	[FAULT_STALL] = "stall",
	[FAULT_REORDER] = "reorder",
	[FAULT_DUPLICATE] = "duplicate",
	[FAULT_CORRUPT_PORT] = "corrupt_port",
	[FAULT_CORRUPT_VERSION] = "corrupt_version",
	[FAULT_CORRUPT_PACKET] = "corrupt_packet",
	[FAULT_CORRUPT_FRAME] = "corrupt_frame",
	[FAULT_CORRUPT_PIXELS] = "corrupt_pixels",
	[FAULT_TRUNCATE] = "truncate",
	[FAULT_RESTART] = "restart",
	[FAULT_DROP_FIRST] = "drop_first",
	[FAULT_DROP_MIDDLE] = "drop_middle",
	[FAULT_DROP_LAST] = "drop_last",
	[FAULT_DROP_EVENT] = "drop_event",
	[FAULT_GROUP_LOSS] = "group_loss",
	[FAULT_READ_LOSS] = "read_loss",
};

#define CORRUPT_ALL                                                                            \
	(1u << FAULT_CORRUPT_PORT | 1u << FAULT_CORRUPT_VERSION | 1u << FAULT_CORRUPT_PACKET | \
		1u << FAULT_CORRUPT_FRAME | 1u << FAULT_CORRUPT_PIXELS)

/* Parses an integer of a list separated by colons; advances *text past it. */
static bool
read_whole(const char **text, uint64_t min, uint64_t max, uint64_t *value)
{
	const char *end = whole_number_read(*text, 10, value);

	if (end == NULL)
		return false;
	*text = end;
	return *value >= min && *value <= max;
}

static bool
read_probability(const char **text, double *value)
{
	char *end;

	*value = strtod(*text, &end);
	if (end == *text)
		return false;
	*text = end;
	/* this form of the comparison also rejects NaN */
	return *value >= 0.0 && *value <= 1.0;
}

static bool
read_colon(const char **text)
{
	return *(*text)++ == ':';
}

static bool
parse_probability(const char *text, double *value)
{
	return read_probability(&text, value) && *text == '\0';
}

static bool
parse_probability_count(const char *text, double *value, uint32_t max, uint32_t *count)
{
	uint64_t number;

	if (!read_probability(&text, value) || !read_colon(&text) ||
		!read_whole(&text, 1, max, &number) || *text != '\0')
		return false;
	*count = (uint32_t)number;
	return true;
}

static bool
parse_loss(const char *text, struct fault_options *options)
{
	return parse_probability(text, &options->loss);
}

static bool
parse_burst_loss(const char *text, struct fault_options *options)
{
	return parse_probability_count(
		text, &options->burst_loss, FAULT_BURST_MAX, &options->burst_packets);
}

static bool
parse_reorder(const char *text, struct fault_options *options)
{
	return parse_probability_count(
		text, &options->reorder, FAULT_WINDOW_MAX, &options->reorder_window);
}

static bool
parse_duplicate(const char *text, struct fault_options *options)
{
	return parse_probability(text, &options->duplicate);
}

static bool
parse_truncate(const char *text, struct fault_options *options)
{
	return parse_probability(text, &options->truncate);
}

static bool
parse_corrupt(const char *text, struct fault_options *options)
{
	const size_t prefix = strlen("corrupt_");

	if (!read_probability(&text, &options->corrupt))
		return false;
	options->corrupt_kinds = CORRUPT_ALL;
	if (*text == '\0')
		return true;
	if (!read_colon(&text))
		return false;
	for (unsigned int kind = FAULT_CORRUPT_PORT; kind <= FAULT_CORRUPT_PIXELS; kind++) {
		if (strcmp(text, fault_kind_names[kind] + prefix) == 0) {
			options->corrupt_kinds = 1u << kind;
			return true;
		}
	}
	return false;
}

static bool
parse_stall(const char *text, struct fault_options *options)
{
	uint64_t module, from, to;

	if (options->nb_stalls == FAULT_STALLS_MAX || !read_whole(&text, 0, 31, &module) ||
		!read_colon(&text) || !read_whole(&text, 0, UINT64_MAX, &from) ||
		!read_colon(&text) || !read_whole(&text, from, UINT64_MAX, &to) || *text != '\0')
		return false;
	options->stall[options->nb_stalls].module = (uint32_t)module;
	options->stall[options->nb_stalls].from = from;
	options->stall[options->nb_stalls++].to = to;
	return true;
}

static bool
parse_restart(const char *text, struct fault_options *options)
{
	uint32_t n = options->nb_restarts;
	uint64_t pulse, first = 1;

	if (n == FAULT_RESTARTS_MAX || !read_whole(&text, 0, UINT64_MAX, &pulse) ||
		(n > 0 && pulse <= options->restart[n - 1].pulse))
		return false;
	if (*text != '\0' &&
		(!read_colon(&text) || !read_whole(&text, 0, UINT64_MAX, &first) || *text != '\0'))
		return false;
	options->restart[n].pulse = pulse;
	options->restart[n].first = first;
	options->nb_restarts++;
	return true;
}

static bool
parse_drop(const char *text, struct fault_options *options)
{
	static const char *const names[FAULT_DROPS] = {"FIRST", "MIDDLE", "LAST", "EVENT"};

	for (unsigned int i = 0; i < FAULT_DROPS; i++) {
		const size_t length = strlen(names[i]);

		if (strncmp(text, names[i], length) == 0 && text[length] == ':')
			return parse_probability(text + length + 1, &options->drop[i]);
	}
	return false;
}

static bool
parse_event_loss(const char *text, struct fault_options *options)
{
	return parse_probability(text, &options->drop[FAULT_DROP_EVENT - FAULT_DROP_FIRST]);
}

static bool
parse_group_loss(const char *text, struct fault_options *options)
{
	return parse_probability(text, &options->group_loss);
}

static bool
parse_read_loss(const char *text, struct fault_options *options)
{
	return parse_probability(text, &options->read_loss);
}

static const struct {
	const char *name;
	bool (*parse)(const char *text, struct fault_options *options);
	const char *wanted;
} faults[] = {
	{"loss", parse_loss, "P"},
	{"burst-loss", parse_burst_loss, "P:PACKETS"},
	{"reorder", parse_reorder, "P:PACKETS"},
	{"duplicate", parse_duplicate, "P"},
	{"corrupt", parse_corrupt, "P or P:KIND, port, version, packet, frame or pixels"},
	{"truncate", parse_truncate, "P"},
	{"stall", parse_stall, "MODULE:FROM:TO, at most 8"},
	{"restart", parse_restart, "FRAME or FRAME:FIRST, later than the one before, at most 8"},
	{"drop", parse_drop, "FIRST:P, MIDDLE:P, LAST:P or EVENT:P"},
	{"event-loss", parse_event_loss, "P"},
	{"group-loss", parse_group_loss, "P"},
	{"read-loss", parse_read_loss, "P"},
};

int
fault_options_parse(const char *text, struct fault_options *options)
{
	const char *value = strchr(text, '=');

	for (size_t i = 0; value != NULL && i < sizeof(faults) / sizeof(faults[0]); i++) {
		if (strlen(faults[i].name) != (size_t)(value - text) ||
			strncmp(faults[i].name, text, (size_t)(value - text)) != 0)
			continue;
		if (faults[i].parse(value + 1, options))
			return 0;
		warnx("--fault: found '%s', expected %s=%s; P is 0 to 1", text, faults[i].name,
			faults[i].wanted);
		return -EINVAL;
	}
	warnx("--fault: found '%s', expected loss, burst-loss, reorder, duplicate, corrupt, "
	      "truncate, stall, restart, drop, event-loss, group-loss or read-loss, = and a value",
		text);
	return -EINVAL;
}
