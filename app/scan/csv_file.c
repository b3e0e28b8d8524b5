/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "csv_file.h"
#include "escaped_text.h"
#include "io/own_file.h"
#include "whole_number.h"

int
csv_wrong(const struct csv_file *csv, const char *what)
{
	escaped_line(stderr, "braggline-scan: %s:%u: %s", csv->path, csv->number, what);
	return -EINVAL;
}

int
csv_open(struct csv_file *csv, const char *path)
{
	*csv = (struct csv_file){.path = path, .f = own_file_read(path), .number = 1};
	if (csv->f == NULL) {
		escaped_line(stderr, "braggline-scan: %s: %s", path, own_file_error(-errno));
		return -EINVAL;
	}
	if (getline(&csv->line, &csv->room, csv->f) >= 0)
		return 0;
	csv_wrong(csv, "empty; expected a header line");
	csv_close(csv);
	return -EINVAL;
}

void
csv_close(struct csv_file *csv)
{
	free(csv->line);
	if (csv->f != NULL)
		fclose(csv->f);
	*csv = (struct csv_file){0};
}

int
csv_column(const struct csv_file *csv, const char *name)
{
	const char *at = csv->line;
	const size_t len = strlen(name);

	for (int index = 0;; index++, at++) {
		if (strncmp(at, name, len) == 0 && strchr(",\r\n", at[len]) != NULL)
			return index;
		at = strchr(at, ',');
		if (at == NULL)
			return -1;
	}
}

bool
csv_next(struct csv_file *csv)
{
	do {
		if (getline(&csv->line, &csv->room, csv->f) < 0)
			return false;
		csv->number++;
	} while (csv->line[strspn(csv->line, " \r\n")] == '\0');
	return true;
}

/* Start of the value in a column; NULL: the line has less columns. */
static const char *
value_at(const struct csv_file *csv, int column)
{
	const char *at = csv->line;

	for (; at != NULL && column > 0; column--) {
		at = strchr(at, ',');
		at = at != NULL ? at + 1 : NULL;
	}
	return at;
}

bool
csv_whole(const struct csv_file *csv, int column, uint64_t *value)
{
	const char *at = value_at(csv, column);
	const char *end = at != NULL ? whole_number_read(at, 10, value) : NULL;

	return end != NULL && strchr(",\r\n", *end) != NULL;
}

bool
csv_real(const struct csv_file *csv, int column, double *value)
{
	const char *at = value_at(csv, column);
	char *end;

	if (at == NULL)
		return false;
	*value = strtod(at, &end);
	return end > at && strchr(",\r\n", *end) != NULL && isfinite(*value);
}

FILE *
csv_create(const char *path)
{
	return strcmp(path, "-") == 0 ? stdout : own_file_write(path);
}

int
csv_finish(FILE *out, const char *path, int ret)
{
	if (out != NULL && (ferror(out) || fflush(out) != 0))
		ret = errno != 0 ? -errno : -EIO;
	if (out != NULL && out != stdout)
		fclose(out);
	if (ret < 0)
		escaped_line(
			stderr, "braggline-scan: cannot write %s: %s", path, own_file_error(ret));
	return ret;
}
