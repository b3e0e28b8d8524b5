/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/names.h"
#include "io/direct_io.h"
#include "io/own_file.h"
#include "recovery/directory.h"

#define CALIBRATION_PART "_calibration.bin.part"

int
arrow_path_in(char path[PATH_MAX], int folder, const char *name)
{
	return snprintf(path, PATH_MAX, "/proc/self/fd/%d/%s", folder, name) < PATH_MAX
		? 0
		: -ENAMETOOLONG;
}

/* As direct_io.open(), but refuse an existing file that another user owns or can write to. */
static int
open_own(void **handle, const struct arrow_io_open *how)
{
	char message[PATH_MAX];
	int ret = direct_io.open(handle, how);

	if (ret < 0 || !how->existing)
		return ret;
	ret = own_file_check(direct_io_fd(*handle), how->path, OWN_FILE_OTHERS, message);
	if (ret < 0)
		(void)direct_io.close(*handle);
	return ret;
}

/* Find why open_own() refused a file. @return -EPERM; -EBADMSG: another user owns it */
static int
find_reason(int folder, const char *name, const char *path, char message[PATH_MAX])
{
	const int fd = own_file_open(folder, name, O_RDONLY, 0);
	struct stat st;

	if (fd < 0)
		snprintf(message, PATH_MAX, "%.3000s: %s", path, own_file_error(fd));
	else if (own_file_check(fd, path, OWN_FILE_OTHERS, message) == 0)
		/* the file has been corrected since */
		snprintf(message, PATH_MAX, "%.3000s: %s", path, strerror(EPERM));
	if (fd >= 0)
		close(fd);
	return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid != geteuid() &&
			st.st_uid != 0
		? -EBADMSG
		: -EPERM;
}

/* Replace the path of the folder's descriptor in a text with the name of the folder. */
static void
name_folder(char *text, size_t size, const char *by_fd, const char *dir)
{
	char *at = strstr(text, by_fd), *copy;

	if (at == NULL)
		return;
	copy = strdup(text);
	if (copy == NULL)
		return;
	/* truncate the text if it does not fit */
	if (snprintf(text, size, "%.*s%s%s", (int)(at - text), copy, dir,
		    copy + (at - text) + strlen(by_fd)) >= (int)size)
		text[size - 1] = '\0';
	free(copy);
}

int
arrow_recover_in(const struct arrow_io_ops *io, int folder, const char *dir, const char *name,
	const bool *stop, struct arrow_recovery *report)
{
	struct arrow_io_ops own = direct_io;
	char path[PATH_MAX], by_fd[32], message[PATH_MAX];
	int ret;

	own.open = open_own;
	ret = arrow_path_in(path, folder, name);
	if (ret == 0)
		ret = arrow_recover_file_until(io != NULL ? io : &own, path, stop, report);
	snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d/", folder);
	snprintf(message, sizeof(message), "%.3000s/", dir);
	name_folder(report->path, sizeof(report->path), by_fd, message);
	name_folder(report->quarantine, sizeof(report->quarantine), by_fd, message);
	name_folder(report->message, sizeof(report->message), by_fd, message);
	if (ret == -EPERM || ret == -EACCES || ret == -ELOOP || ret == -EMEDIUMTYPE) {
		ret = find_reason(folder, name, report->path, message);
		snprintf(report->message, sizeof(report->message), "skipped: %s", message);
		report->error = ret;
	}
	return ret;
}

static bool
is_part(const char *name)
{
	return !arrow_name_is_hidden(name) &&
		(arrow_name_is_part(name) || arrow_name_ends(name, CALIBRATION_PART));
}

/* Remove an incomplete copy of a calibration file. It has no use. */
static void
remove_calibration(int folder, const char *name)
{
	char path[PATH_MAX];
	const struct arrow_io_open how = {path, true, ARROW_IO_BUFFERED, 1};
	void *handle;

	/* opening it fails if another process has locked it */
	if (arrow_path_in(path, folder, name) < 0 || open_own(&handle, &how) < 0)
		return;
	(void)unlinkat(folder, name, 0);
	(void)direct_io.close(handle);
}

static int
is_wanted(const struct dirent *entry)
{
	return is_part(entry->d_name);
}

int
arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg)
{
	return arrow_recover_dir_until(io, dir, NULL, report, arg);
}

int
arrow_recover_dir_until(const struct arrow_io_ops *io, const char *dir, const bool *stop,
	arrow_recovery_report report, void *arg)
{
	struct arrow_recovery *r = calloc(1, sizeof(*r));
	int i, nb, folder, failed = 0;
	struct dirent **entry;
	bool stopped = false;

	if (r == NULL)
		return -ENOMEM;
	folder = own_folder_open(dir, OWN_FOLDER_DATA, r->message);
	if (folder < 0) {
		snprintf(r->path, sizeof(r->path), "%s", dir);
		r->state = ARROW_RECOVERY_FAILED;
		r->error = folder;
		if (folder != -ENOENT && report != NULL)
			report(arg, r);
		free(r);
		return folder == -ENOENT ? 0 : folder;
	}
	nb = scandirat(folder, ".", &entry, is_wanted, alphasort);
	for (i = 0; i < nb; i++) {
		stopped |= stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED);
		if (!stopped && arrow_name_ends(entry[i]->d_name, CALIBRATION_PART)) {
			remove_calibration(folder, entry[i]->d_name);
		} else if (!stopped) {
			stopped = arrow_recover_in(io, folder, dir, entry[i]->d_name, stop, r) ==
				-ECANCELED;
			failed += r->state == ARROW_RECOVERY_FAILED;
			if (report != NULL)
				report(arg, r);
		}
		free(entry[i]);
	}
	if (nb >= 0)
		free(entry);
	else
		failed = -errno;
	free(r);
	close(folder);
	return stopped ? -ECANCELED : failed;
}
