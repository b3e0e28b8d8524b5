/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "arrow_recovery.h"
#include "recover.h"

static void
print_report(void *arg, const struct arrow_recovery *r)
{
	static const char *const states[] = {
		[ARROW_RECOVERY_DONE] = "recovered",
		[ARROW_RECOVERY_REMOVED] = "recovered",
		[ARROW_RECOVERY_BUSY] = "busy",
		[ARROW_RECOVERY_FAILED] = "NOT RECOVERED",
	};

	fprintf(stderr, "%s %s: %s\n", states[r->state], r->path, r->message);
}

int
recover(char *path)
{
	struct arrow_recovery report;
	char *part = strrchr(path, '.');
	struct stat st;
	int rc;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		rc = arrow_recover_dir(NULL, path, print_report, NULL);
		if (rc < 0)
			fprintf(stderr, "braggline-scan: %s: %s\n", path, strerror(-rc));
		return rc == 0 ? 0 : -EBADMSG;
	}
	/* a complete one needs nothing */
	if (part == NULL || strcmp(part, ".part") != 0)
		return 0;
	(void)arrow_recover_file(NULL, path, &report);
	print_report(NULL, &report);
	if (report.state == ARROW_RECOVERY_DONE)
		*part = '\0';
	return report.state == ARROW_RECOVERY_DONE ? 0 : -EBADMSG;
}
