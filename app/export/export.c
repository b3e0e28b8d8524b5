/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "escaped_text.h"
#include "export.h"
#include "h5.h"
#include "io/dir_lock.h"
#include "io/direct_io.h"
#include "io/own_file.h"

#define STEM_MAX 4000 /* bytes; the paths of all files begin with it */

static volatile sig_atomic_t stopped;

int
export_set_stem(struct export *e, const char *output, const char *name)
{
	char stem[PATH_MAX];

	if (snprintf(stem, sizeof(stem), "%s/%s", output, name) > STEM_MAX)
		return export_complain("--output %s: the name is too long%s", output, "");
	memcpy(e->stem, stem, sizeof(stem));
	return 0;
}

static const char *
run_of(const struct export *e)
{
	const char *slash = strrchr(e->stem, '/');

	return slash != NULL ? slash + 1 : e->stem;
}

const char *
export_split(const struct export *e, char dir[PATH_MAX])
{
	const char *run = run_of(e);

	if (run == e->stem)
		strcpy(dir, ".");
	else
		snprintf(dir, PATH_MAX, "%.*s", (int)(run - e->stem - 1), e->stem);
	return run;
}

/* @return what follows the name of the run; NULL: it is not of this run */
static const char *
skip_run(const struct export *e, const char *name)
{
	const size_t length = strlen(run_of(e));

	return strncmp(name, run_of(e), length) == 0 ? name + length : NULL;
}

bool
export_is_file(const struct export *e, const char *name, const char *end)
{
	const char *rest = skip_run(e, name);

	return rest != NULL && strcmp(rest, end) == 0;
}

unsigned long
export_file_number(const struct export *e, const char *name, const char *middle, const char *end)
{
	const char *rest = skip_run(e, name);
	unsigned long number;
	char *after;

	if (rest == NULL || strncmp(rest, middle, strlen(middle)) != 0)
		return 0;
	rest += strlen(middle);
	if (strspn(rest, "0123456789") < 6)
		return 0;
	errno = 0;
	number = strtoul(rest, &after, 10);
	return errno == 0 && strcmp(after, end) == 0 ? number : 0;
}

int
export_complain(const char *format, const char *first, const char *second)
{
	char text[EXPORT_MESSAGE_LEN + PATH_MAX];

	snprintf(text, sizeof(text), format, first, second);
	escaped_line(stderr, "braggline-export: %s", text);
	return -EINVAL;
}

int
export_lock(const char *dir, const char *name, unsigned int wait_ms)
{
	char message[PATH_MAX], path[PATH_MAX];
	const int fd = dir_lock(dir, name, true, wait_ms, message);

	if (fd >= 0 || fd == -EBUSY)
		return fd;
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return export_complain("%s%s", message, "");
	if (fd == -ENOSYS || fd == -ENOLCK || fd == -EOPNOTSUPP) {
		export_complain("warning: %s: the file system has no locks; continuing without: do "
				"not start a second export into this directory%s",
			message, "");
		/* other users could not open it */
		(void)unlink(path);
		return -EOPNOTSUPP;
	}
	/* the file may belong to an export of another user that was killed */
	return export_complain("%s%s", message,
		fd == -EACCES && access(path, F_OK) == 0
			? "; remove it if no export into this directory is running"
			: "");
}

void
export_stop(int signal)
{
	stopped = signal;
}

int
export_stopped(void)
{
	return stopped;
}

void
export_part(const char *path, char part[PATH_MAX])
{
	snprintf(part, PATH_MAX, "%.4090s.part", path);
}

int
export_publish(const char *part, const char *path)
{
	const int fd = own_file_open(AT_FDCWD, part, O_RDONLY, 0);
	int ret;

	if (fd < 0)
		return fd;
	ret = fsync(fd) != 0 ? -errno : 0;
	close(fd);
	if (ret == 0 && rename(part, path) != 0)
		ret = -errno;
	/* a rename is durable once its directory is */
	return ret == 0 ? direct_io.sync_dir(path) : ret;
}

int
export_finish(struct export *e, struct h5 *h, const char *part, const char *path, int ret)
{
	if (h5_close(h) < 0 && ret == 0) {
		ret = -EIO;
		snprintf(e->message, sizeof(e->message), "%.400s: %.600s", part, h->message);
	}
	if (ret == 0) {
		ret = export_publish(part, path);
		if (ret < 0)
			snprintf(e->message, sizeof(e->message), "%.400s: %.600s", path,
				strerror(-ret));
	}
	if (ret < 0)
		(void)unlink(part);
	return ret;
}
