/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sql/ipc_type.h"

bool
ipc_int_read(const char **text, int32_t *value)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(*text, &end, 10);
	if (end == *text || errno != 0 || n < 0 || n > INT32_MAX)
		return false;
	*text = end;
	*value = (int32_t)n;
	return true;
}

/* Read a format of one letter. */
static bool
read_letter(char letter, struct ipc_type *t)
{
	static const struct {
		char letter;
		struct ipc_type type;
	} letters[] = {
		{'n', {FB_NULL, LAYOUT_NONE}},
		{'b', {FB_BOOL, LAYOUT_BITS}},
		{'c', {ARROW_FB_INT, LAYOUT_FIXED, 1, {8, 1}}},
		{'C', {ARROW_FB_INT, LAYOUT_FIXED, 1, {8, 0}}},
		{'s', {ARROW_FB_INT, LAYOUT_FIXED, 2, {16, 1}}},
		{'S', {ARROW_FB_INT, LAYOUT_FIXED, 2, {16, 0}}},
		{'i', {ARROW_FB_INT, LAYOUT_FIXED, 4, {32, 1}}},
		{'I', {ARROW_FB_INT, LAYOUT_FIXED, 4, {32, 0}}},
		{'l', {ARROW_FB_INT, LAYOUT_FIXED, 8, {64, 1}}},
		{'L', {ARROW_FB_INT, LAYOUT_FIXED, 8, {64, 0}}},
		{'e', {ARROW_FB_FLOAT, LAYOUT_FIXED, 2, {0}}},
		{'f', {ARROW_FB_FLOAT, LAYOUT_FIXED, 4, {ARROW_FB_SINGLE}}},
		{'g', {ARROW_FB_FLOAT, LAYOUT_FIXED, 8, {ARROW_FB_DOUBLE}}},
		{'u', {FB_UTF8, LAYOUT_TEXT, 4}},
		{'U', {FB_LARGE_UTF8, LAYOUT_TEXT, 8}},
		{'z', {ARROW_FB_BINARY, LAYOUT_TEXT, 4}},
		{'Z', {FB_LARGE_BINARY, LAYOUT_TEXT, 8}},
	};
	size_t i;

	for (i = 0; i < sizeof(letters) / sizeof(letters[0]); i++) {
		if (letters[i].letter == letter) {
			*t = letters[i].type;
			return true;
		}
	}
	return false;
}

/* Read a format of several letters without numbers. */
static bool
read_word(const char *format, struct ipc_type *t)
{
	static const struct {
		const char *format;
		struct ipc_type type;
	} words[] = {
		{"tdD", {FB_DATE, LAYOUT_FIXED, 4, {0}}},
		{"tdm", {FB_DATE, LAYOUT_FIXED, 8, {1}}},
		{"tts", {FB_TIME, LAYOUT_FIXED, 4, {0, 32}}},
		{"ttm", {FB_TIME, LAYOUT_FIXED, 4, {1, 32}}},
		{"ttu", {FB_TIME, LAYOUT_FIXED, 8, {2, 64}}},
		{"ttn", {FB_TIME, LAYOUT_FIXED, 8, {3, 64}}},
		{"tDs", {FB_DURATION, LAYOUT_FIXED, 8, {0}}},
		{"tDm", {FB_DURATION, LAYOUT_FIXED, 8, {1}}},
		{"tDu", {FB_DURATION, LAYOUT_FIXED, 8, {2}}},
		{"tDn", {FB_DURATION, LAYOUT_FIXED, 8, {3}}},
		{"tiM", {FB_INTERVAL, LAYOUT_FIXED, 4, {0}}},
		{"tiD", {FB_INTERVAL, LAYOUT_FIXED, 8, {1}}},
		{"tin", {FB_INTERVAL, LAYOUT_FIXED, 16, {2}}},
		{"+l", {ARROW_FB_LIST, LAYOUT_LIST, 4}},
		{"+L", {FB_LARGE_LIST, LAYOUT_LIST, 8}},
		{"+s", {FB_STRUCT, LAYOUT_CHILD}},
		{"+m", {FB_MAP, LAYOUT_LIST, 4}},
	};
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(words[i].format, format) == 0) {
			*t = words[i].type;
			return true;
		}
	}
	return false;
}

int
ipc_type_read(const char *format, struct ipc_type *t)
{
	static const char units[] = "smun";
	const char *at, *unit;

	*t = (struct ipc_type){0};
	if (format[0] != '\0' && format[1] == '\0')
		return read_letter(format[0], t) ? 0 : -ENOTSUP;
	if (read_word(format, t))
		return 0;
	at = format + 2;
	if (strncmp(format, "d:", 2) == 0) {
		*t = (struct ipc_type){FB_DECIMAL, LAYOUT_FIXED, 16, {0, 0, 128}};
		if (!ipc_int_read(&at, &t->arg[0]) || *at++ != ',' ||
			!ipc_int_read(&at, &t->arg[1]))
			return -ENOTSUP;
		if (*at == ',') {
			at++;
			if (!ipc_int_read(&at, &t->arg[2]) || t->arg[2] % 8 != 0)
				return -ENOTSUP;
			t->width = t->arg[2] / 8;
		}
		return *at == '\0' ? 0 : -ENOTSUP;
	}
	if (strncmp(format, "w:", 2) == 0) {
		*t = (struct ipc_type){FB_FIXED_BINARY, LAYOUT_FIXED};
		if (!ipc_int_read(&at, &t->arg[0]) || *at != '\0')
			return -ENOTSUP;
		t->width = t->arg[0];
		return 0;
	}
	at = format + 3;
	if (strncmp(format, "+w:", 3) == 0) {
		*t = (struct ipc_type){ARROW_FB_FIXED_LIST, LAYOUT_CHILD};
		return ipc_int_read(&at, &t->arg[0]) && *at == '\0' ? 0 : -ENOTSUP;
	}
	if (strncmp(format, "ts", 2) == 0 && format[2] != '\0' && format[3] == ':') {
		unit = strchr(units, format[2]);
		*t = (struct ipc_type){ARROW_FB_TIMESTAMP, LAYOUT_FIXED, 8};
		if (unit == NULL)
			return -ENOTSUP;
		t->arg[0] = unit - units;
		t->text = format + 4;
		return 0;
	}
	if (strncmp(format, "+us:", 4) == 0 || strncmp(format, "+ud:", 4) == 0) {
		*t = (struct ipc_type){
			FB_UNION, LAYOUT_UNION, format[2] == 'd' ? 4 : 0, {format[2] == 'd'}};
		t->text = format + 4;
		return 0;
	}
	return -ENOTSUP;
}
