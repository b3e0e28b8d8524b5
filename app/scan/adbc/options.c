/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adbc/options.h"
#include "whole_number.h"

#define SCHEME_LOCAL  "file://"
#define SCHEME_SERVER "braggline://"

#define DEADLINE_MAX 1e9 /* seconds */

/* What a value must be. */
enum kind {
	KIND_TEXT,
	KIND_BOOLEAN,
	KIND_THREADS,
	KIND_SECONDS,
	KIND_PARTITION,
};

static const struct {
	const char *name;
	enum kind kind;
	const char *absent; /* default */
} table[OPTIONS] = {
	[OPTION_URI] = {ADBC_OPTION_URI, KIND_TEXT, NULL},
	[OPTION_PROGRAM] = {"adbc.braggline.program", KIND_TEXT, "braggline-scan"},
	[OPTION_EAL] = {"adbc.braggline.eal_arguments", KIND_TEXT, NULL},
	[OPTION_DEVICE] = {"adbc.braggline.device", KIND_TEXT, NULL},
	[OPTION_IDENTITY] = {"username", KIND_TEXT, NULL},
	[OPTION_KEY] = {"adbc.braggline.key", KIND_TEXT, NULL},
	[OPTION_PULL] = {"adbc.braggline.pull", KIND_BOOLEAN, "false"},
	[OPTION_THREADS] = {"adbc.braggline.threads", KIND_THREADS, NULL},
	[OPTION_MEMORY] = {"adbc.braggline.memory", KIND_TEXT, NULL},
	[OPTION_UNORDERED] = {"adbc.braggline.unordered", KIND_BOOLEAN, "false"},
	[OPTION_DEADLINE] = {"adbc.braggline.deadline_seconds", KIND_SECONDS, "0"},
	[OPTION_ALLOW_DAMAGED] = {"adbc.braggline.allow_damaged", KIND_BOOLEAN, "false"},
	[OPTION_PARTITION_BY] = {"adbc.braggline.partition_by", KIND_PARTITION, "none"},
};

enum option
option_find(const char *name)
{
	enum option option;

	for (option = 0; option < OPTIONS; option++) {
		if (strcmp(table[option].name, name) == 0)
			break;
	}
	return option;
}

/* @return what is expected; NULL: the value is good */
static const char *
value_problem(enum kind kind, const char *value)
{
	uint64_t number;
	double seconds;
	char *end;

	switch (kind) {
	case KIND_TEXT:
		return *value != '\0' ? NULL : "a text that is not empty";
	case KIND_BOOLEAN:
		return strcmp(value, "true") == 0 || strcmp(value, "false") == 0 ? NULL
										 : "true or false";
	case KIND_THREADS:
		return whole_number(value, 1, 9999, &number) ? NULL : "1 to 9999";
	case KIND_SECONDS:
		seconds = strtod(value, &end);
		return end != value && *end == '\0' && seconds >= 0 && seconds <= DEADLINE_MAX
			? NULL
			: "seconds from 0 (no limit) to 1e9";
	case KIND_PARTITION:
		return strcmp(value, "none") == 0 || strcmp(value, "source") == 0
			? NULL
			: "none or source";
	}
	return NULL;
}

AdbcStatusCode
options_set(struct options *o, enum option option, const char *value, struct failure *f)
{
	const char *expected;
	char *copy = NULL;

	if (value != NULL) {
		expected = value_problem(table[option].kind, value);
		if (expected != NULL)
			return failure_set(f, ADBC_STATUS_INVALID_ARGUMENT, "HY024", -EINVAL,
				"%s: expected %s, found '%s'", table[option].name, expected, value);
		copy = strdup(value);
		if (copy == NULL)
			return failure_errno(f, ENOMEM, "");
	}
	free(o->value[option]);
	o->value[option] = copy;
	return ADBC_STATUS_OK;
}

const char *
options_get(const struct options *o, enum option option)
{
	return o->value[option] != NULL ? o->value[option] : table[option].absent;
}

bool
options_true(const struct options *o, enum option option)
{
	return strcmp(options_get(o, option), "true") == 0;
}

int
options_inherit(struct options *to, const struct options *from)
{
	size_t i;

	for (i = 0; i < OPTIONS; i++) {
		if (to->value[i] != NULL || from->value[i] == NULL)
			continue;
		to->value[i] = strdup(from->value[i]);
		if (to->value[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

void
options_free(struct options *o)
{
	size_t i;

	for (i = 0; i < OPTIONS; i++)
		free(o->value[i]);
	*o = (struct options){0};
}

/* Find the next line that is not empty. @return its length; 0: there is none */
static size_t
next_line(const char **text)
{
	*text += strspn(*text, "\r\n");
	return strcspn(*text, "\r\n");
}

size_t
options_sources(const struct options *o)
{
	const char *at = o->value[OPTION_URI];
	size_t nb = 0, length;

	for (; at != NULL && (length = next_line(&at)) > 0; at += length)
		nb++;
	return nb;
}

int
options_one_source(struct options *to, const struct options *from, size_t source)
{
	const char *at = from->value[OPTION_URI];
	size_t length = next_line(&at);

	for (; source > 0; source--) {
		at += length;
		length = next_line(&at);
	}
	free(to->value[OPTION_URI]);
	to->value[OPTION_URI] = strndup(at, length);
	return to->value[OPTION_URI] != NULL ? 0 : -ENOMEM;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Replace %XX in a path. @return false: it is no escape, or that of a zero */
static bool
decode_path(char *path)
{
	char *to = path;
	int high, low;

	for (; *path != '\0'; path++) {
		if (*path != '%') {
			*to++ = *path;
			continue;
		}
		high = hex_digit(path[1]);
		low = high >= 0 ? hex_digit(path[2]) : -1;
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to++ = (char)(high << 4 | low);
		path += 2;
	}
	*to = '\0';
	return true;
}

/* Whether a source has a scheme, as RFC 3986 defines it, and "://". */
static bool
has_scheme(const char *source)
{
	const size_t length =
		strspn(source, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

	return length > 0 && strncmp(source + length, "://", 3) == 0;
}

/*
 * Get the argument for a source, which is changed.
 * @param server  out: it is the address of a server
 */
static AdbcStatusCode
source_argument(char *source, const char **argument, bool *server, struct failure *f)
{
	size_t length;

	*argument = source;
	*server = false;
	if (!has_scheme(source))
		return ADBC_STATUS_OK;
	if (strncmp(source, SCHEME_LOCAL, strlen(SCHEME_LOCAL)) == 0) {
		source += strlen(SCHEME_LOCAL);
		if (strncmp(source, "localhost/", 10) == 0)
			source += 9;
		if (*source != '/' || !decode_path(source))
			return failure_set(f, ADBC_STATUS_INVALID_ARGUMENT, "HY024", -EINVAL,
				"uri: expected file:///PATH with %%XX for other characters, found "
				"file://%s",
				source);
		*argument = source;
		return ADBC_STATUS_OK;
	}
	if (strncmp(source, SCHEME_SERVER, strlen(SCHEME_SERVER)) != 0)
		return failure_set(f, ADBC_STATUS_INVALID_ARGUMENT, "HY024", -EINVAL,
			"uri: expected a path, file:///PATH or braggline://ADDRESS, found %s",
			source);
	source += strlen(SCHEME_SERVER);
	length = strlen(source);
	if (length > 0 && source[length - 1] == '/')
		source[length - 1] = '\0';
	*argument = source;
	*server = true;
	return ADBC_STATUS_OK;
}

/* Append the lines of a text to the arguments. @param copy  room for them; out: after them */
static void
append_lines(struct command_line *c, size_t *argc, char **copy, const char *lines)
{
	size_t length;

	for (; lines != NULL && (length = next_line(&lines)) > 0; lines += length) {
		memcpy(*copy, lines, length);
		(*copy)[length] = '\0';
		c->argv[(*argc)++] = *copy;
		*copy += length + 1;
	}
}

static void
append_option(struct command_line *c, size_t *argc, const struct options *o, enum option option,
	const char *name)
{
	if (o->value[option] == NULL)
		return;
	c->argv[(*argc)++] = name;
	c->argv[(*argc)++] = o->value[option];
}

/* Append the sources. @param is_server  out */
static AdbcStatusCode
append_sources(struct command_line *c, size_t *argc, char **copy, const struct options *o,
	bool *is_server, struct failure *f)
{
	const size_t first = *argc;
	AdbcStatusCode status;
	bool server;
	size_t i;

	*is_server = false;
	append_lines(c, argc, copy, options_get(o, OPTION_URI));
	for (i = first; i < *argc; i++) {
		status = source_argument((char *)(uintptr_t)c->argv[i], &c->argv[i], &server, f);
		if (status != ADBC_STATUS_OK)
			return status;
		*is_server |= server;
	}
	if (!*is_server || *argc - first == 1)
		return ADBC_STATUS_OK;
	return failure_set(f, ADBC_STATUS_NOT_IMPLEMENTED, "HYC00", -ENOTSUP,
		"uri: expected one server, found %zu sources: use ExecutePartitions with "
		"adbc.braggline.partition_by = source for a result of each",
		*argc - first);
}

/* Whether the first source is a server. */
static bool
is_remote(const char *uri)
{
	next_line(&uri);
	return strncmp(uri, SCHEME_SERVER, strlen(SCHEME_SERVER)) == 0;
}

AdbcStatusCode
command_line_make(struct command_line *c, const struct options *o, struct failure *f)
{
	const char *uri = options_get(o, OPTION_URI);
	const char *eal = options_get(o, OPTION_EAL);
	const size_t length = strlen(uri) + (eal != NULL ? strlen(eal) : 0);
	const bool remote = is_remote(uri);
	AdbcStatusCode status;
	size_t argc = 0;
	bool server;
	char *copy;

	/* a line has one character at least, and an end */
	c->argv = calloc(32 + length, sizeof(*c->argv));
	c->text = copy = malloc(length + 4);
	if (c->argv == NULL || c->text == NULL) {
		command_line_free(c);
		return failure_errno(f, ENOMEM, "");
	}
	c->argv[argc++] = options_get(o, OPTION_PROGRAM);
	if (remote && eal != NULL) {
		append_lines(c, &argc, &copy, eal);
		c->argv[argc++] = "--";
	}
	c->argv[argc++] = "--session";
	append_option(c, &argc, o, OPTION_THREADS, "--threads");
	append_option(c, &argc, o, OPTION_MEMORY, "--memory");
	if (options_true(o, OPTION_UNORDERED))
		c->argv[argc++] = "--unordered";
	if (remote) {
		append_option(c, &argc, o, OPTION_DEVICE, "--device");
		append_option(c, &argc, o, OPTION_IDENTITY, "--identity");
		append_option(c, &argc, o, OPTION_KEY, "--key");
		if (options_true(o, OPTION_PULL))
			c->argv[argc++] = "--pull";
	}
	c->argv[argc++] = remote ? "--connect" : "--";
	status = append_sources(c, &argc, &copy, o, &server, f);
	if (status == ADBC_STATUS_OK && server != remote)
		status = failure_set(f, ADBC_STATUS_INVALID_ARGUMENT, "HY024", -EINVAL,
			"uri: expected paths or a server, found both");
	if (status != ADBC_STATUS_OK)
		command_line_free(c);
	return status;
}

void
command_line_free(struct command_line *c)
{
	free(c->argv);
	free(c->text);
	c->argv = NULL;
	c->text = NULL;
}
