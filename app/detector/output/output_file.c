/* SPDX-License-Identifier: BSD-3-Clause */

#include "output/output_file.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/own_file.h"

#define BUFFER_BYTES (1u << 20)

static void
clear_file(struct output_file *file)
{
	free(file->path);
	free(file->partial);
	*file = (struct output_file){0};
}

static int
report(const struct output_file *file, const char *what)
{
	int error = errno != 0 ? errno : EIO;

	warnx("%s: cannot %s: %s", file->path, what, strerror(error));
	return -error;
}

/* Opens a pipe or a device. A regular file that has replaced it is refused, not truncated. */
static FILE *
open_special(const char *path)
{
	const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	FILE *stream = NULL;
	struct stat status;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		errno = EEXIST;
	else
		stream = fdopen(fd, "wb");
	if (stream == NULL)
		close(fd);
	return stream;
}

/* A pipe or a device is opened directly; a file is renamed when it is complete. */
static FILE *
open_stream(const struct output_file *file)
{
	FILE *stream;
	int fd;

	if (file->partial == NULL)
		return open_special(file->path);
	/* do not truncate it: it might be a link to another file */
	(void)unlink(file->partial);
	fd = own_file_open(AT_FDCWD, file->partial, O_WRONLY | O_CREAT | O_EXCL, OWN_FILE_MODE);
	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	stream = fdopen(fd, "wb");
	if (stream == NULL)
		close(fd);
	return stream;
}

int
output_file_open(struct output_file *file, const char *path)
{
	struct stat status;
	int ret;

	*file = (struct output_file){.path = strdup(path)};
	if (file->path == NULL)
		return -ENOMEM;
	if ((stat(path, &status) != 0 || S_ISREG(status.st_mode)) &&
		asprintf(&file->partial, "%s.partial", path) < 0) {
		file->partial = NULL;
		clear_file(file);
		return -ENOMEM;
	}
	file->stream = open_stream(file);
	if (file->stream == NULL) {
		ret = report(file, "create");
		clear_file(file);
		return ret;
	}
	/* a hint; the default buffer also works, but is slower */
	setvbuf(file->stream, NULL, _IOFBF, BUFFER_BYTES);
	return 0;
}

int
output_file_open_csv(struct output_file *file, const char *path, const char *header)
{
	const int ret = output_file_open(file, path);

	return ret == 0 ? output_file_write(file, header, strlen(header)) : ret;
}

int
output_file_write(struct output_file *file, const void *data, size_t bytes)
{
	if (fwrite(data, 1, bytes, file->stream) != bytes)
		return report(file, "write");
	return 0;
}

int
output_file_check(struct output_file *file)
{
	if (ferror(file->stream))
		return report(file, "write");
	return 0;
}

int
output_file_commit(struct output_file *file)
{
	FILE *stream = file->stream;
	int ret = 0;

	if (fflush(stream) != 0 || ferror(stream))
		ret = report(file, "write");
	file->stream = NULL;
	if (fclose(stream) != 0 && ret == 0)
		ret = report(file, "close");
	if (ret == 0 && file->partial != NULL && rename(file->partial, file->path) != 0)
		ret = report(file, "rename the finished file to its name");
	if (ret != 0 && file->partial != NULL)
		unlink(file->partial);
	clear_file(file);
	return ret;
}

void
output_file_discard(struct output_file *file)
{
	if (file->stream == NULL)
		return;
	fclose(file->stream);
	if (file->partial != NULL)
		unlink(file->partial);
	clear_file(file);
}
