/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>

#include "config/ini_file.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "calib/pedestal_file.h"
#include "log.h"
#include "whole_number.h"

LOG_REGISTER("pedestal", "pedestal");

#define SECTION "pedestal"

int
pedestal_file_write(const char *path, const void *data, size_t bytes)
{
	const int ret = durable_file_replace(path, data, bytes);

	if (ret != 0)
		LOG(ERR, "cannot write %s, %zu bytes: %s\n", path, bytes, strerror(-ret));
	return ret;
}

int
pedestal_sidecar_path(char *path, size_t size, const char *map)
{
	const char *slash = strrchr(map, '/'), *name = slash != NULL ? slash + 1 : map;
	const char *dot = strrchr(name, '.');
	/* a leading dot marks a hidden file, not an extension */
	const int stem = dot != NULL && dot > name ? (int)(dot - map) : (int)strlen(map);
	const int n = snprintf(path, size, "%.*s.ini", stem, map);

	return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

int
pedestal_sidecar_write(const char *map, const struct pedestal_sidecar *s)
{
	const time_t seconds = s->time;
	char path[PATH_MAX], date[32] = "";
	struct tm tm;
	size_t bytes;
	char *text;
	FILE *f;
	int ret;

	ret = pedestal_sidecar_path(path, sizeof(path), map);
	if (ret != 0)
		return ret;
	f = open_memstream(&text, &bytes);
	if (f == NULL)
		return -errno;
	if (gmtime_r(&seconds, &tm) != NULL)
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	fprintf(f, "[%s]\ndetector = %s\nmodules = %u\nmodule = %u\n", SECTION, s->detector,
		s->modules, s->module);
	if (s->module_id != PEDESTAL_NO_MODULE_ID)
		fprintf(f, "module_id = %u\n", s->module_id);
	fprintf(f, "stage = %u\nrun = %s\ndate = %s\ntime = %" PRId64 "\nframes = %" PRIu64 "\n",
		s->stage, s->run, date, s->time, s->frames);
	fprintf(f, "masked_frames = %" PRIu64 "\nmasked_gain = %" PRIu64 "\n", s->masked_frames,
		s->masked_gain);
	fprintf(f, "masked_rms = %" PRIu64 "\ndigest = crc32c:%08x\n", s->masked_rms, s->digest);
	if (fclose(f) != 0)
		return -ENOMEM;
	ret = pedestal_file_write(path, text, bytes);
	free(text);
	return ret;
}

static const char *const keys[] = {"detector", "run", "modules", "module", "module_id", "stage",
	"time", "frames", "masked_frames", "masked_gain", "masked_rms", "digest"};

/** A sidecar being read. `bad` is set after the first error, which was logged. */
struct reading {
	const char *path;
	char *text[RTE_DIM(keys)]; /**< by key; NULL: not in the file */
	int bad;
};

/** Keep the value of a known key. Others, such as `date`, are informative. */
static int
take_line(void *arg, unsigned int line, const char *section, const char *key, const char *value)
{
	struct reading *r = arg;

	if (strcmp(section, SECTION) != 0)
		return 0;
	for (uint32_t i = 0; i < RTE_DIM(keys); i++) {
		if (strcmp(key, keys[i]) != 0)
			continue;
		free(r->text[i]);
		r->text[i] = strdup(value);
		return r->text[i] != NULL ? 0 : -ENOMEM;
	}
	return 0;
}

/** @return NULL: the key is not in the file */
static const char *
find_text(const struct reading *r, const char *key)
{
	for (uint32_t i = 0; i < RTE_DIM(keys); i++)
		if (strcmp(key, keys[i]) == 0)
			return r->text[i];
	return NULL;
}

static const char *
get_text(struct reading *r, const char *key)
{
	const char *text = find_text(r, key);

	if (text == NULL || text[0] == '\0') {
		LOG(ERR, "%s: key [%s] %s is missing\n", r->path, SECTION, key);
		r->bad = 1;
		return "";
	}
	return text;
}

static void
copy_text(struct reading *r, const char *key, char out[PEDESTAL_TEXT_MAX])
{
	const int n = snprintf(out, PEDESTAL_TEXT_MAX, "%s", get_text(r, key));

	if (n < PEDESTAL_TEXT_MAX)
		return;
	LOG(ERR, "%s: [%s] %s has %d characters, expected at most %d\n", r->path, SECTION, key, n,
		PEDESTAL_TEXT_MAX - 1);
	r->bad = 1;
}

static uint64_t
get_number(struct reading *r, const char *key, const char *prefix, int base, uint64_t max)
{
	const char *text = get_text(r, key);
	const size_t skip = strlen(prefix);
	const char *end = NULL;
	uint64_t n = 0;

	if (text[0] == '\0')
		return 0;
	if (strncmp(text, prefix, skip) == 0)
		end = whole_number_read(text + skip, base, &n);
	if (end == NULL || *end != '\0' || n > max) {
		LOG(ERR, "%s: [%s] %s = %s, expected %s%s up to %" PRIu64 "\n", r->path, SECTION,
			key, text, prefix, base == 16 ? "hexadecimal digits" : "a number", max);
		r->bad = 1;
		return 0;
	}
	return n;
}

static void
read_fields(struct reading *r, struct pedestal_sidecar *s)
{
	*s = (struct pedestal_sidecar){.module_id = PEDESTAL_NO_MODULE_ID};
	copy_text(r, "detector", s->detector);
	copy_text(r, "run", s->run);
	s->modules = get_number(r, "modules", "", 10, UINT32_MAX);
	s->module = get_number(r, "module", "", 10, UINT32_MAX);
	if (find_text(r, "module_id") != NULL)
		s->module_id = get_number(r, "module_id", "", 10, UINT16_MAX);
	s->stage = get_number(r, "stage", "", 10, 2);
	s->time = get_number(r, "time", "", 10, INT64_MAX);
	s->frames = get_number(r, "frames", "", 10, UINT64_MAX);
	s->masked_frames = get_number(r, "masked_frames", "", 10, UINT64_MAX);
	s->masked_gain = get_number(r, "masked_gain", "", 10, UINT64_MAX);
	s->masked_rms = get_number(r, "masked_rms", "", 10, UINT64_MAX);
	s->digest = get_number(r, "digest", "crc32c:", 16, UINT32_MAX);
}

int
pedestal_sidecar_read(const char *map, struct pedestal_sidecar *s)
{
	char path[PATH_MAX], message[PATH_MAX + 256];
	struct reading r = {.path = path};
	FILE *f;
	int ret;

	ret = pedestal_sidecar_path(path, sizeof(path), map);
	if (ret != 0)
		return ret;
	f = own_file_read(path);
	if (f == NULL) {
		ret = -errno;
		if (ret != -ENOENT)
			LOG(ERR, "cannot read %s: %s\n", path, own_file_error(ret));
		return ret;
	}
	ret = ini_stream_read(f, path, take_line, &r, message, sizeof(message));
	fclose(f);
	if (ret == 0)
		read_fields(&r, s);
	else
		LOG(ERR, "%s\n", message[0] != '\0' ? message : strerror(-ret));
	for (uint32_t i = 0; i < RTE_DIM(keys); i++)
		free(r.text[i]);
	return ret == 0 && r.bad ? -EINVAL : ret;
}
