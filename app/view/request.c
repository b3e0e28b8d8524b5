/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bounds.h"
#include "request.h"

#define API "/api/v1/"

static const char sources[] = API "sources";
static const char runs[] = API "runs/";
/* characters allowed in names in paths */
static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";

static_assert(REQUEST_COMMAND_LEN == LIMIT_COMMAND + 1, "DPDK's limit");

static const struct {
	const char *name;
	enum request_target target;
} parts[] = {
	{"", REQUEST_SOURCE},
	{"/telemetry", REQUEST_TELEMETRY},
	{"/command", REQUEST_COMMAND},
	{"/frame", REQUEST_FRAME},
	{"/image", REQUEST_IMAGE},
	{"/geometry", REQUEST_GEOMETRY},
	{"/places", REQUEST_PLACES},
};

enum request_target
request_target(const char *path, char name[REQUEST_NAME_LEN])
{
	size_t length;

	name[0] = '\0';
	if (strcmp(path, API "events") == 0)
		return REQUEST_EVENTS;
	if (strcmp(path, API "runs") == 0)
		return REQUEST_RUNS;
	if (strncmp(path, runs, sizeof(runs) - 1) == 0)
		return REQUEST_RUN_FILE;
	if (strncmp(path, sources, sizeof(sources) - 1) != 0)
		return REQUEST_NOT_FOUND;
	path += sizeof(sources) - 1;
	if (*path == '\0')
		return REQUEST_SOURCES;
	if (*path++ != '/')
		return REQUEST_NOT_FOUND;
	length = strcspn(path, "/");
	if (length >= REQUEST_NAME_LEN)
		return REQUEST_NOT_FOUND;
	memcpy(name, path, length);
	name[length] = '\0';
	for (size_t i = 0; request_is_name(name) && i < sizeof(parts) / sizeof(parts[0]); i++)
		if (strcmp(path + length, parts[i].name) == 0)
			return parts[i].target;
	name[0] = '\0';
	return REQUEST_NOT_FOUND;
}

bool
request_is_name(const char *name)
{
	const size_t length = strlen(name);

	return length > 0 && length < REQUEST_NAME_LEN && strspn(name, allowed) == length &&
		strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool
request_is_run_name(const char *name)
{
	const size_t length = strnlen(name, REQUEST_RUN_LEN);

	return length > 0 && length < REQUEST_RUN_LEN && name[0] != '.' &&
		strspn(name, allowed) == length;
}

int
request_run_file(const char *path, struct request_run *run)
{
	size_t length;

	if (strncmp(path, runs, sizeof(runs) - 1) != 0)
		return -EINVAL;
	path += sizeof(runs) - 1;
	if (!isdigit((unsigned char)*path))
		return -EINVAL;
	run->folder = (unsigned int)(*path++ - '0');
	run->sub[0] = '\0';
	if (*path == ':') {
		length = strcspn(++path, "/");
		if (length >= sizeof(run->sub))
			return -EINVAL;
		memcpy(run->sub, path, length);
		run->sub[length] = '\0';
		if (!request_is_run_name(run->sub))
			return -EINVAL;
		path += length;
	}
	if (*path++ != '/' || !request_is_run_name(path))
		return -EINVAL;
	memcpy(run->file, path, strlen(path) + 1);
	return 0;
}

/** Read a number, and advance. @return false: there is none, or it is too long */
static bool
read_offset(const char **text, uint64_t *value)
{
	const size_t digits = strspn(*text, "0123456789");

	if (digits == 0 || digits > 18)
		return false;
	*value = strtoull(*text, NULL, 10);
	*text += digits;
	return true;
}

enum request_range
request_range(const char *range, uint64_t size, uint64_t *begin, uint64_t *length)
{
	static const char unit[] = "bytes=";
	uint64_t last = UINT64_MAX;
	bool from;

	*begin = 0;
	*length = size;
	if (range == NULL || strncasecmp(range, unit, sizeof(unit) - 1) != 0)
		return REQUEST_RANGE_WHOLE;
	range += sizeof(unit) - 1;
	from = read_offset(&range, begin);
	if (*range++ != '-')
		goto whole;
	if (*range != '\0' && !read_offset(&range, &last))
		goto whole;
	if (*range != '\0' || (!from && last == UINT64_MAX) || (from && last < *begin))
		goto whole;
	if (!from) {
		/* the last bytes */
		if (last == 0 || size == 0)
			return REQUEST_RANGE_OUTSIDE;
		*length = last < size ? last : size;
		*begin = size - *length;
		return REQUEST_RANGE_PART;
	}
	if (*begin >= size)
		return REQUEST_RANGE_OUTSIDE;
	*length = (last < size ? last : size - 1) - *begin + 1;
	return REQUEST_RANGE_PART;
whole:
	*begin = 0;
	return REQUEST_RANGE_WHOLE;
}

enum request_plane
request_plane(const char *plane)
{
	static const char *const names[] = {
		[REQUEST_PLANE_FRAME] = "frame",
		[REQUEST_PLANE_MAXIMUM] = "maximum",
		[REQUEST_PLANE_MEAN] = "mean",
		[REQUEST_PLANE_MASK] = "mask",
	};

	if (plane == NULL)
		return REQUEST_PLANE_FRAME;
	for (int i = REQUEST_PLANE_FRAME; i <= REQUEST_PLANE_MASK; i++)
		if (strcmp(plane, names[i]) == 0)
			return i;
	return REQUEST_PLANE_NONE;
}

bool
request_is_local_host(const char *host)
{
	char name[INET_ADDRSTRLEN];
	struct in_addr address;
	size_t length, digits;

	if (host == NULL)
		return false;
	length = strcspn(host, host[0] == '[' ? "]" : ":");
	length += host[0] == '[' && host[length] == ']';
	/* any port: it is another one behind a tunnel */
	if (host[length] == ':') {
		digits = strspn(host + length + 1, "0123456789");
		if (digits < 1 || digits > 5 || host[length + 1 + digits] != '\0')
			return false;
	} else if (host[length] != '\0') {
		return false;
	}
	if (length >= sizeof(name))
		return false;
	memcpy(name, host, length);
	name[length] = '\0';
	return strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0 ||
		(inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

bool
request_is_same_site(const char *site)
{
	/* "same-site" is another port of this machine */
	return site == NULL || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0;
}

const char *
request_bearer(const char *authorization)
{
	static const char scheme[] = "Bearer ";

	if (authorization == NULL || strncasecmp(authorization, scheme, sizeof(scheme) - 1) != 0)
		return NULL;
	authorization += sizeof(scheme) - 1;
	return authorization + strspn(authorization, " ");
}

bool
request_matches(const char *if_none_match, const char *etag)
{
	const size_t length = strlen(etag);
	const char *p = if_none_match;

	while (p != NULL && *p != '\0') {
		p += strspn(p, " \t,");
		if (strcmp(p, "*") == 0)
			return true;
		if (strncmp(p, "W/", 2) == 0)
			p += 2;
		if (strncmp(p, etag, length) == 0 && strchr(" \t,", p[length]) != NULL)
			return true;
		p += strcspn(p, ",");
	}
	return false;
}

bool
request_is_json(const char *type)
{
	static const char json[] = "application/json";

	return type != NULL && strncasecmp(type, json, sizeof(json) - 1) == 0 &&
		strchr("; \t", type[sizeof(json) - 1]) != NULL;
}

int
request_window(const char *text, struct request_window *w)
{
	const struct {
		uint32_t *value;
		uint32_t least, most;
	} part[] = {
		{&w->x, 0, REQUEST_SIDE_MAX},
		{&w->y, 0, REQUEST_SIDE_MAX},
		{&w->width, 1, REQUEST_SIDE_MAX},
		{&w->height, 1, REQUEST_SIDE_MAX},
		{&w->bin, 1, REQUEST_BIN_MAX},
	};
	const size_t nb = sizeof(part) / sizeof(part[0]);

	for (size_t i = 0; i < nb; i++) {
		const size_t digits = strspn(text, "0123456789");
		unsigned long value;

		/* more digits than any allowed number has */
		if (digits == 0 || digits > 6 || text[digits] != (i + 1 < nb ? ',' : '\0'))
			return -EINVAL;
		value = strtoul(text, NULL, 10);
		if (value < part[i].least || value > part[i].most)
			return -EINVAL;
		*part[i].value = (uint32_t)value;
		text += digits + 1;
	}
	return 0;
}

/** Printable UTF-8 without control characters. jansson has checked that it is UTF-8. */
static bool
is_line(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (iscntrl((unsigned char)text[i]))
			return false;
	return true;
}

static int
fill_command(json_t *object, struct request_command *c, const char **why)
{
	const char *key, *path = NULL, *parameters = "";
	json_t *value;
	int n;

	*why = "the body is not a JSON object";
	if (!json_is_object(object))
		return -EINVAL;
	json_object_foreach(object, key, value)
	{
		*why = "the values of command and parameters are texts without control characters";
		if (!json_is_string(value) ||
			!is_line(json_string_value(value), json_string_length(value)))
			return -EINVAL;
		*why = "expected the keys command and parameters only";
		if (strcmp(key, "command") == 0)
			path = json_string_value(value);
		else if (strcmp(key, "parameters") == 0)
			parameters = json_string_value(value);
		else
			return -EINVAL;
	}
	*why = "command: expected a path such as /braggline/run/start";
	if (path == NULL || path[0] != '/' || strchr(path, ',') != NULL)
		return -EINVAL;
	*why = "command and parameters have more than 1,023 bytes";
	if (snprintf(c->path, sizeof(c->path), "%s", path) >= (int)sizeof(c->path))
		return -EINVAL;
	n = snprintf(c->text, sizeof(c->text), "%s%s%s", path, parameters[0] != '\0' ? "," : "",
		parameters);
	return n < (int)sizeof(c->text) ? 0 : -EINVAL;
}

int
request_command(const void *body, size_t size, struct request_command *c, const char **why)
{
	json_t *object = json_loadb(body, size, JSON_REJECT_DUPLICATES, NULL);
	const int ret = fill_command(object, c, why);

	json_decref(object);
	return ret;
}
