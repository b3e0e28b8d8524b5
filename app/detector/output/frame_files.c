/* SPDX-License-Identifier: BSD-3-Clause */

#include "output/frame_files.h"

#include <err.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/jungfrau_model.h"
#include "io/own_file.h"

static int
report(const char *path)
{
	int error = errno != 0 ? errno : EIO;

	warnx("%s: cannot read raw frames: %s", path, own_file_error(-error));
	return -error;
}

int
frame_files_open(struct frame_files *files, char *const *paths, int nb_paths, uint32_t modules,
	uint64_t *frames)
{
	struct stat status;
	uint64_t bytes;

	*files = (struct frame_files){.paths = paths,
		.nb_paths = nb_paths,
		.frame_bytes = (uint64_t)modules * JUNGFRAU_PIXELS * sizeof(uint16_t)};
	*frames = 0;
	for (int i = 0; i < nb_paths; i++) {
		if (stat(paths[i], &status) != 0)
			return report(paths[i]);
		bytes = (uint64_t)status.st_size;
		if (!S_ISREG(status.st_mode) || bytes == 0 || bytes % files->frame_bytes != 0) {
			warnx("%s: found %s of %llu bytes, expected a file of whole frames, "
			      "%llu bytes each for %u module%s",
				paths[i], S_ISREG(status.st_mode) ? "a file" : "not a regular file",
				(unsigned long long)bytes, (unsigned long long)files->frame_bytes,
				modules, modules == 1 ? "" : "s");
			return -EINVAL;
		}
		*frames += bytes / files->frame_bytes;
	}
	return 0;
}

int
frame_files_read(struct frame_files *files, uint16_t *raw)
{
	for (;;) {
		size_t bytes;

		if (files->stream == NULL) {
			if (files->next == files->nb_paths)
				return -ENODATA;
			errno = 0;
			files->stream = own_file_read(files->paths[files->next++]);
			if (files->stream == NULL)
				return report(files->paths[files->next - 1]);
		}
		errno = 0;
		bytes = fread(raw, 1, files->frame_bytes, files->stream);
		if (bytes == files->frame_bytes)
			return 0;
		if (ferror(files->stream) || bytes != 0)
			return report(files->paths[files->next - 1]);
		frame_files_close(files);
	}
}

void
frame_files_close(struct frame_files *files)
{
	if (files->stream != NULL)
		fclose(files->stream);
	files->stream = NULL;
}
