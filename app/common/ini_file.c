/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "ini_file.h"

/** Where the reading is. */
struct reading {
	char section[INI_NAME_LEN];
	unsigned int line;
	ini_take *take;
	void *arg;
};

static char *
strip(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

static void
cut_comment(char *text)
{
	char *to = text;

	for (; *text != '\0' && *text != ';'; text++) {
		if (text[0] == '\\' && text[1] == ';')
			text++;
		*to++ = *text;
	}
	*to = '\0';
}

/** @return what is wrong with the line, NULL if nothing is */
static const char *
read_line(struct reading *r, char *text, int *error)
{
	char *key, *value;

	cut_comment(text);
	text = strip(text);
	if (text[0] == '\0')
		return NULL;
	if (text[0] == '[') {
		value = strchr(text, ']');
		if (value == NULL || value[1] != '\0')
			return "wanted [section] alone in its line";
		*value = '\0';
		text = strip(text + 1);
		if (text[0] == '\0' || strlen(text) >= sizeof(r->section))
			return "a section's name has 1 to 63 characters";
		strcpy(r->section, text);
		*error = r->take(r->arg, r->line, r->section, "", "");
		return NULL;
	}
	value = strchr(text, '=');
	if (value == NULL)
		return "wanted [section], key = value or a comment after ;";
	*value = '\0';
	key = strip(text);
	value = strip(value + 1);
	if (r->section[0] == '\0')
		return "comes before the first [section]";
	if (key[0] == '\0' || strlen(key) >= INI_NAME_LEN)
		return "a key has 1 to 63 characters";
	if (strlen(value) >= INI_VALUE_LEN)
		return "a value has at most 255 characters";
	*error = r->take(r->arg, r->line, r->section, key, value);
	return NULL;
}

int
ini_file_read(const char *path, ini_take *take, void *arg, char *message, size_t size)
{
	struct reading r = {.take = take, .arg = arg};
	FILE *f = fopen(path, "r");
	const char *wrong = NULL;
	char *text = NULL;
	size_t room = 0;
	ssize_t length;
	int error = 0;

	if (f == NULL) {
		error = -errno;
		snprintf(message, size, "cannot read %s: %s", path, strerror(-error));
		return error;
	}
	while (error == 0 && wrong == NULL && (length = getline(&text, &room, f)) >= 0) {
		r.line++;
		wrong = strlen(text) == (size_t)length ? read_line(&r, text, &error)
						       : "a zero byte: this is no text";
	}
	if (wrong != NULL) {
		error = -EINVAL;
		snprintf(message, size, "%s:%u: %s", path, r.line, wrong);
	} else if (error != 0) {
		snprintf(message, size, "%s:%u: %s", path, r.line, strerror(-error));
	} else if (ferror(f)) {
		error = -errno;
		snprintf(message, size, "cannot read %s: %s", path, strerror(-error));
	}
	free(text);
	fclose(f);
	return error;
}
