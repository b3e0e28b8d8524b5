/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "escaped_text.h"
#include "arrow/names.h"
#include "io/directory.h"
#include "scan/list.h"

__attribute__((format(printf, 4, 5))) static int
refuse(char *message, int error, const char *path, const char *format, ...)
{
	const int length = snprintf(message, SCAN_LIST_MESSAGE_LEN, "%s: ", path);
	va_list args;

	if (length < SCAN_LIST_MESSAGE_LEN) {
		va_start(args, format);
		vsnprintf(message + length, SCAN_LIST_MESSAGE_LEN - length, format, args);
		va_end(args);
	}
	return -error;
}

size_t
scan_stem_length(const char *path)
{
	static const char *const ends[] = {
		"_frames.arrow", "_frames.arrow.part", "_images.arrow", "_images.arrow.part"};
	const size_t len = strlen(path);
	size_t end, i;

	for (i = 0; !arrow_name_is_hidden(path) && i < sizeof(ends) / sizeof(ends[0]); i++) {
		end = strlen(ends[i]);
		if (len > end && strcmp(path + len - end, ends[i]) == 0 &&
			path[len - end - 1] != '/')
			return len - end;
	}
	return 0;
}

/* The number of a set has six digits or more after the last underscore. */
size_t
scan_run_length(const char *stem, size_t len)
{
	size_t digits = 0;

	while (digits < len && isdigit((unsigned char)stem[len - digits - 1]))
		digits++;
	return digits >= 6 && len > digits + 1 && stem[len - digits - 1] == '_' &&
			stem[len - digits - 2] != '/'
		? len - digits - 1
		: len;
}

static struct scan_sets *
list_run(struct scan_list *list, const char *path, size_t len)
{
	struct scan_sets *runs;
	size_t i;

	for (i = 0; i < list->nb; i++) {
		if (strlen(list->run[i].path) == len && memcmp(list->run[i].path, path, len) == 0)
			return &list->run[i];
	}
	runs = realloc(list->run, (list->nb + 1) * sizeof(*runs));
	if (runs == NULL)
		return NULL;
	list->run = runs;
	runs[list->nb] = (struct scan_sets){.path = strndup(path, len)};
	return runs[list->nb].path != NULL ? &runs[list->nb++] : NULL;
}

static int
list_stem(struct scan_list *list, const char *path, size_t len)
{
	struct scan_sets *run = list_run(list, path, scan_run_length(path, len));
	char **stem;
	size_t i;

	if (run == NULL)
		return -ENOMEM;
	for (i = 0; i < run->nb; i++) {
		if (strlen(run->stem[i]) == len && memcmp(run->stem[i], path, len) == 0)
			return 0;
	}
	stem = realloc(run->stem, (run->nb + 1) * sizeof(*stem));
	if (stem == NULL)
		return -ENOMEM;
	run->stem = stem;
	stem[run->nb] = strndup(path, len);
	if (stem[run->nb] == NULL)
		return -ENOMEM;
	run->nb++;
	return 0;
}

/* Order: RUN, RUN_000001, ... RUN_1000000. A longer name is a later one. */
static int
by_set(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;
	const size_t nx = strlen(x), ny = strlen(y);

	return nx != ny ? (nx < ny ? -1 : 1) : strcmp(x, y);
}

static int
by_path(const void *a, const void *b)
{
	return strcmp(((const struct scan_sets *)a)->path, ((const struct scan_sets *)b)->path);
}

/* Add the runs of a directory with files of runs. */
static int
list_folder(struct scan_list *list, const char *dir, char *message)
{
	const size_t before = list->nb;
	struct dirent *entry;
	char path[PATH_MAX];
	size_t len, i;
	DIR *d;
	int ret = 0;

	d = opendir(dir);
	if (d == NULL)
		return refuse(message, errno, dir, "%s", strerror(errno));
	while (ret == 0 && (entry = directory_next(d)) != NULL) {
		if (snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >= (int)sizeof(path))
			continue;
		len = scan_stem_length(path);
		if (len > 0)
			ret = list_stem(list, path, len);
	}
	if (ret == 0 && errno != 0)
		ret = refuse(message, errno, dir, "%s", strerror(errno));
	closedir(d);
	/* sort: a directory is not listed in order */
	for (i = before; i < list->nb; i++)
		qsort(list->run[i].stem, list->run[i].nb, sizeof(*list->run[i].stem), by_set);
	return ret;
}

static void
sort_runs(struct scan_list *list, size_t before)
{
	if (list->nb > before)
		qsort(list->run + before, list->nb - before, sizeof(*list->run), by_path);
}

/* Directories whose runs are added. */
struct adding {
	struct scan_list *list;
	char *message; /* of `error` */
	int error;     /* the first one */
};

/* One that cannot be read hides no others. */
static int
add_folder(void *arg, const char *dir)
{
	char other[SCAN_LIST_MESSAGE_LEN];
	struct adding *a = arg;
	const int ret = list_folder(a->list, dir, a->error == 0 ? a->message : other);

	if (a->error == 0)
		a->error = ret;
	return 0;
}

static int
list_directory(struct scan_list *list, const char *dir, char *message)
{
	const size_t before = list->nb;
	struct adding a = {list, message, 0};
	const int ret = scan_list_folders(dir, add_folder, &a);

	sort_runs(list, before);
	if (ret == 0 || a.error < 0)
		return a.error;
	return refuse(message, -ret, dir, "%s",
		ret == -ENODATA ? "no file named RUN_frames.arrow or RUN_images.arrow in this "
				  "directory or in a subfolder"
				: strerror(-ret));
}

int
scan_list_try(struct scan_list *list, const char *path, char message[SCAN_LIST_MESSAGE_LEN])
{
	struct stat st;
	size_t len;

	snprintf(message, SCAN_LIST_MESSAGE_LEN, "not enough memory");
	if (stat(path, &st) < 0)
		return refuse(message, errno, path, "%s", strerror(errno));
	if (S_ISDIR(st.st_mode))
		return list_directory(list, path, message);
	len = scan_stem_length(path);
	if (len == 0)
		return refuse(message, EINVAL, path,
			"expected a directory, or a file named RUN_frames.arrow or "
			"RUN_images.arrow, also with .part");
	return list_stem(list, path, len);
}

static int
complain(int ret, const char *message)
{
	if (ret < 0)
		escaped_line(stderr, "%s: %s", program_invocation_short_name, message);
	return ret;
}

int
scan_list_add(struct scan_list *list, const char *path)
{
	char message[SCAN_LIST_MESSAGE_LEN];

	return complain(scan_list_try(list, path, message), message);
}

int
scan_list_add_folder(struct scan_list *list, const char *dir)
{
	char message[SCAN_LIST_MESSAGE_LEN] = "not enough memory";
	const size_t before = list->nb;
	const int ret = list_folder(list, dir, message);

	sort_runs(list, before);
	return complain(ret, message);
}

bool
scan_list_has(const char *dir)
{
	char path[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *d = opendir(dir);

	if (d == NULL)
		return false;
	while (!found && (entry = directory_next(d)) != NULL)
		found = snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) <
				(int)sizeof(path) &&
			scan_stem_length(path) > 0;
	/* scan_list_add() says why the rest of it cannot be read */
	found = found || errno != 0;
	closedir(d);
	return found;
}

int
scan_list_folders(const char *dir, int (*found)(void *arg, const char *folder), void *arg)
{
	char path[PATH_MAX];
	struct dirent *entry;
	bool some = false;
	struct stat st;
	int ret = 0;
	DIR *d;

	if (scan_list_has(dir))
		return found(arg, dir);
	d = opendir(dir);
	if (d == NULL)
		return -errno;
	while (ret == 0 && (entry = directory_next(d)) != NULL) {
		/* a link may lead to a folder that is here, too */
		if (entry->d_name[0] == '.' || strcmp(entry->d_name, "lost+found") == 0 ||
			snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >=
				(int)sizeof(path) ||
			lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		/* it may have runs if it cannot be read */
		if (!scan_list_has(path) && access(path, R_OK | X_OK) == 0)
			continue;
		some = true;
		ret = found(arg, path);
	}
	if (ret == 0 && errno != 0)
		ret = -errno;
	closedir(d);
	return ret == 0 && !some ? -ENODATA : ret;
}

void
scan_list_free(struct scan_list *list)
{
	size_t i, k;

	for (i = 0; i < list->nb; i++) {
		for (k = 0; k < list->run[i].nb; k++)
			free(list->run[i].stem[k]);
		free(list->run[i].stem);
		free(list->run[i].path);
	}
	free(list->run);
}
