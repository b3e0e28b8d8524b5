/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <iconv.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <wchar.h>

#include "config/ini_file.h"
#include "io/own_file.h"

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* some editors write it at the start of a file */

/** State of the parser. */
struct reading {
	char section[INI_NAME_LEN];
	bool unnamed; /**< the section has no valid name: its keys are skipped */
	unsigned int line;
	ini_take *take;
	void *arg;
};

/* Uses iconv(), which has UTF-8 built in. Machines without locales have no "C.UTF-8". */
static bool
is_utf8(const char *text)
{
	const iconv_t cd = iconv_open("WCHAR_T", "UTF-8");
	char *in = (char *)(uintptr_t)text; /* iconv() does not write to it */
	size_t left = strlen(text);
	size_t ret;

	if (cd == (iconv_t)-1)
		return false;
	do {
		wchar_t wide[64];
		char *out = (char *)wide;
		size_t room = sizeof(wide);

		ret = iconv(cd, &in, &left, &out, &room);
	} while (ret == (size_t)-1 && errno == E2BIG);
	iconv_close(cd);
	return ret != (size_t)-1;
}

static bool
has_control(const char *text)
{
	static const char controls[] =
		"\1\2\3\4\5\6\7\10\13\14\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37\177";

	return text[strcspn(text, controls)] != '\0';
}

bool
ini_is_text(const char *text)
{
	return is_utf8(text) && !has_control(text);
}

/* Return true if a file begins with the byte order mark of UTF-16, which some editors write. */
static bool
is_utf16(const char *text)
{
	return strncmp(text, "\xff\xfe", 2) == 0 || strncmp(text, "\xfe\xff", 2) == 0;
}

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

/** Parse a line. @param error  out: result of `take` @return fault of the line; NULL: none */
static const char *
read_line(struct reading *r, char *text, int *error)
{
	static const char not_alone[] = "expected [section] alone in its line";
	char *key, *value;
	bool alone;

	if (r->line == 1 && strncmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
		text += strlen(BYTE_ORDER_MARK);
	if (!is_utf8(text))
		return "is not UTF-8 text; save the file as UTF-8";
	if (has_control(text))
		return "contains a control character; remove it";
	cut_comment(text);
	text = strip(text);
	if (text[0] == '\0')
		return NULL;
	if (text[0] == '[') {
		value = strchr(text, ']');
		alone = value != NULL && value[1] == '\0';
		if (value != NULL)
			*value = '\0';
		text = strip(text + 1);
		r->unnamed = text[0] == '\0' || strlen(text) >= sizeof(r->section);
		if (r->unnamed)
			return alone ? "a section name must have 1 to 63 characters" : not_alone;
		/* also for a wrong line: the keys that follow are not mistakes */
		strcpy(r->section, text);
		*error = r->take(r->arg, r->line, r->section, "", "");
		return alone ? NULL : not_alone;
	}
	value = strchr(text, '=');
	if (value == NULL)
		return "expected [section], key = value or a comment that starts with ;";
	*value = '\0';
	key = strip(text);
	value = strip(value + 1);
	if (r->unnamed)
		return NULL;
	if (r->section[0] == '\0')
		return "key before the first [section]";
	if (key[0] == '\0' || strlen(key) >= INI_NAME_LEN)
		return "a key must have 1 to 63 characters";
	if (strlen(value) >= INI_VALUE_LEN)
		return "a value has at most " INI_VALUE_MAX " bytes";
	*error = r->take(r->arg, r->line, r->section, key, value);
	return NULL;
}

/** Lines that are reported. If more are wrong, the file is probably not one of settings. */
#define WRONG_LINES 5

int
ini_stream_read(FILE *f, const char *path, ini_take *take, void *arg, char *message, size_t size)
{
	struct reading r = {.take = take, .arg = arg};
	const char *wrong;
	unsigned int nb_wrong = 0;
	size_t used = 0;
	char *text = NULL;
	size_t room = 0;
	ssize_t length;
	int error = 0;

	message[0] = '\0';
	while (error == 0 && (length = getline(&text, &room, f)) >= 0) {
		r.line++;
		if (r.line == 1 && is_utf16(text)) {
			used = snprintf(message, size,
				"%s: is UTF-16 text, expected UTF-8; save the file as UTF-8", path);
			break;
		}
		wrong = strlen(text) == (size_t)length
			? read_line(&r, text, &error)
			: "contains a zero byte, expected UTF-8 text";
		/* continue: what is in the other lines is not missing */
		if (wrong != NULL && nb_wrong++ < WRONG_LINES && used < size)
			used += snprintf(message + used, size - used, "%s%s:%u: %s",
				used > 0 ? "\n" : "", path, r.line, wrong);
	}
	if (nb_wrong > WRONG_LINES && used < size)
		used += snprintf(message + used, size - used,
			"\n%s: %u more wrong lines; is this a file of settings?", path,
			nb_wrong - WRONG_LINES);
	if (error != 0) {
		snprintf(message, size, "%s:%u: %s", path, r.line, strerror(-error));
	} else if (ferror(f)) {
		error = -errno;
		snprintf(message, size, "cannot read %s: %s", path, strerror(-error));
	} else if (used > 0) {
		error = -EINVAL;
	}
	free(text);
	return error;
}

int
ini_file_read(const char *path, ini_take *take, void *arg, char *message, size_t size)
{
	FILE *f = own_file_read(path);
	int error;

	if (f == NULL) {
		error = -errno;
		snprintf(message, size, "cannot read %s: %s", path, own_file_error(error));
		return error;
	}
	error = ini_stream_read(f, path, take, arg, message, size);
	fclose(f);
	return error;
}
