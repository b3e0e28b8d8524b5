/* SPDX-License-Identifier: BSD-3-Clause */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "io/slice_pool.h"
#include "server/settings.h"

/* `auto`, `host`, `gpu:N` */
static unsigned int
read_bodies(struct config *c)
{
	const char *text = config_text(c, "store", "bodies", "auto");
	unsigned long gpu;
	char *end;

	if (strcmp(text, "auto") == 0)
		return STORE_BODIES_AUTO;
	if (strcmp(text, "host") == 0)
		return STORE_BODIES_HOST;
	gpu = strncmp(text, "gpu:", 4) == 0 ? strtoul(text + 4, &end, 10) : ULONG_MAX;
	if (gpu > INT16_MAX || *end != '\0' || end == text + 4)
		config_complain(c, "store", "bodies", "expected: auto, host or gpu:N");
	return STORE_BODIES_GPU + gpu;
}

void
store_settings_read(struct store_config *s, struct config *c)
{
	static const char *const modes[] = {
		"auto", "buffered", "direct", "io_uring", "cufile", NULL};
	static const char *const checks[] = {"auto", "all", "sampled", "off", NULL};

	s->device = config_text(c, "store", "device", NULL);
	s->port = config_uint(c, "store", "port", XFER_PORT, 1, UINT16_MAX);
	s->keys = config_text(c, "store", "keys", NULL);
	s->bodies = read_bodies(c);
	s->memory = config_uint(c, "store", "memory_mib", 1024, 1, 1 << 20) << 20;
	s->heartbeat_ms = config_uint(c, "store", "heartbeat_ms", 500, 10, 60000);
	s->silence_ms = config_uint(c, "store", "silence_ms", 2000, s->heartbeat_ms + 1, 600000);
	s->nexus = config_bool(c, "files", "nexus", false);
	s->files.root = config_text(c, "files", "directory", ".");
	s->io = config_choice(c, "files", "io", STORE_IO_AUTO, modes);
	s->check = config_choice(c, "files", "check", STORE_CHECK_AUTO, checks);
	s->io_threads =
		config_uint(c, "files", "threads", SLICE_POOL_THREADS, 1, SLICE_POOL_THREADS_MAX);
	s->files.slices.slice = config_uint(c, "files", "slice_kib", 4096, 4, 1 << 20) << 10;
	s->files.slices.depth = config_uint(c, "files", "depth", STREAM_DEPTH, 1, 64);
	s->files.slices.sync_ms = config_uint(c, "files", "sync_ms", STREAM_SYNC_MS, 1, 60000);
	s->files.slices.sync_bytes = config_uint(c, "files", "sync_mib", 256, 1, 65536) << 20;
	s->files.roll_bytes = config_uint(c, "files", "roll_mib", 65536, 1, UINT32_MAX) << 20;
	s->files.roll_ms =
		config_uint_word(c, "files", "roll_s", "unlimited", 0, 1, 1000000) * 1000;
	s->files.quota = config_uint_word(c, "files", "quota_mib", "unlimited", 0, 1, UINT32_MAX)
		<< 20;
	s->files.runs_max = config_uint_word(
		c, "files", "runs_max", "unlimited", STORE_RUN_DIRS, 1, UINT32_MAX);
	s->files.idle_ms =
		config_uint_word(c, "files", "idle_s", "unlimited", 600, 1, 1000000) * 1000;
}

void
store_settings_need(const struct store_config *s, struct config *c)
{
	if (s->device == NULL)
		config_complain(c, "store", "device", "is required: roce:... or verbs:...");
	if (s->keys == NULL)
		config_complain(
			c, "store", "keys", "is required: the path of a keyring, see README.rst");
}
