/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "escaped_text.h"
#include "io/own_file.h"
#include "recover.h"
#include "recovery/directory.h"
#include "scan/list.h"

/* @param arg  bool: set to true */
static void
print_report(void *arg, const struct arrow_recovery *r)
{
	bool *printed = arg;

	static const char *const states[] = {
		[ARROW_RECOVERY_DONE] = "recovered",
		[ARROW_RECOVERY_REMOVED] = "recovered",
		[ARROW_RECOVERY_BUSY] = "busy",
		[ARROW_RECOVERY_FAILED] = "NOT RECOVERED",
	};

	escaped_line(stderr, "%s %s: %s", states[r->state], r->path, r->message);
	*printed = true;
}

/* Opens the directory of a file. */
static int
open_folder(const char *path, char message[PATH_MAX])
{
	char copy[PATH_MAX];

	snprintf(copy, sizeof(copy), "%s", path);
	return own_folder_open(dirname(copy), OWN_FOLDER_DATA, message);
}

/* Recovery of the files of a directory and of its subfolders. */
struct recovered {
	const char *top;
	bool printed;
	bool failed;
};

static void
recover_folder(struct recovered *r, const char *path)
{
	bool printed = false;
	const int ret = arrow_recover_dir(NULL, path, print_report, &printed);

	/* the report of a folder says more than the error */
	if (ret < 0 && !printed)
		escaped_line(stderr, "braggline-scan: %s: %s", path, strerror(-ret));
	r->printed |= printed || ret < 0;
	r->failed |= ret != 0;
}

/* @return 0: go on */
static int
recover_subfolder(void *arg, const char *path)
{
	struct recovered *r = arg;

	if (path != r->top)
		recover_folder(r, path);
	return 0;
}

int
recover(char *path)
{
	char dir[PATH_MAX], message[PATH_MAX], *part = strrchr(path, '.'), *name;
	struct arrow_recovery report;
	struct recovered r = {0};
	struct stat st;
	int folder;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		r.top = path;
		/* incomplete calibration files may be in one without runs */
		recover_folder(&r, path);
		(void)scan_list_folders(path, recover_subfolder, &r);
		if (!r.printed)
			escaped_line(stderr, "unchanged %s: it has no .arrow.part files", path);
		return r.failed ? -EBADMSG : 0;
	}
	/* a file that does not exist is reported when it is read */
	if (part == NULL || strcmp(part, ".part") != 0) {
		if (access(path, F_OK) == 0)
			escaped_line(stderr,
				"unchanged %s: only .part files are recovered; if it is cut or "
				"damaged, rename it to %s.part first",
				path, path);
		return 0;
	}
	folder = open_folder(path, message);
	if (folder < 0) {
		escaped_line(stderr, "braggline-scan: %s", message);
		return folder;
	}
	name = strrchr(path, '/');
	snprintf(dir, sizeof(dir), "%.*s", name != NULL ? (int)(name - path) : 1,
		name != NULL ? path : ".");
	(void)arrow_recover_in(NULL, folder, dir, name != NULL ? name + 1 : path, NULL, &report);
	close(folder);
	print_report(&r.printed, &report);
	if (report.state == ARROW_RECOVERY_DONE)
		*part = '\0';
	return report.state == ARROW_RECOVERY_DONE ? 0 : -EBADMSG;
}
