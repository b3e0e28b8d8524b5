/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <string.h>

#include "commands.h"

static const struct command receiver[] = {
	{"/braggline/run/status", SOURCE_RECEIVER, false},
	{"/braggline/ledger", SOURCE_RECEIVER, false},
	{"/braggline/lcores", SOURCE_RECEIVER, false},
	{"/braggline/rx", SOURCE_RECEIVER, false},
	{"/braggline/modules", SOURCE_RECEIVER, false},
	{"/braggline/builder", SOURCE_RECEIVER, false},
	{"/braggline/gangs", SOURCE_RECEIVER, false},
	{"/braggline/latency", SOURCE_RECEIVER, false},
	{"/braggline/writer", SOURCE_RECEIVER, false},
	{"/braggline/egress", SOURCE_RECEIVER, false},
	{"/braggline/preview", SOURCE_RECEIVER, false},
	{"/braggline/veto", SOURCE_RECEIVER, false},
	{"/braggline/info", SOURCE_RECEIVER, true},
	{"/braggline/sources", SOURCE_RECEIVER, true},
	{"/braggline/multicast", SOURCE_RECEIVER, true},
	{"/braggline/rdma", SOURCE_RECEIVER, true},
	{"/braggline/pedestal", SOURCE_RECEIVER, true},
	{"/braggline/calibration", SOURCE_RECEIVER, true},
};

static const struct command store[] = {
	{"/braggline/store", SOURCE_STORE, false},
	{"/braggline/store/connections", SOURCE_STORE, false},
	{"/braggline/store/streams", SOURCE_STORE, false},
	{"/braggline/store/identities", SOURCE_STORE, true},
	{"/braggline/rdma", SOURCE_STORE, true},
};

/* commands that change the state of a receiver */
static const char *const control[] = {
	"/braggline/run/configure",
	"/braggline/run/arm",
	"/braggline/run/start",
	"/braggline/run/stop",
	"/braggline/run/abort",
	"/braggline/veto/set",
};

#define NB(array) (sizeof(array) / sizeof((array)[0]))

static_assert(NB(receiver) <= COMMANDS_MAX && NB(store) <= COMMANDS_MAX, "replies have room");

const struct command *
commands_of(enum source_kind kind, size_t *nb)
{
	*nb = kind == SOURCE_RECEIVER ? NB(receiver) : NB(store);
	return kind == SOURCE_RECEIVER ? receiver : store;
}

int
commands_find(enum source_kind kind, const char *path)
{
	size_t nb;
	const struct command *c = commands_of(kind, &nb);

	for (size_t i = 0; i < nb; i++)
		if (strcmp(c[i].path, path) == 0)
			return (int)i;
	return -1;
}

bool
commands_is_control(enum source_kind kind, const char *path)
{
	for (size_t i = 0; kind == SOURCE_RECEIVER && i < NB(control); i++)
		if (strcmp(control[i], path) == 0)
			return true;
	return false;
}
