/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "arrow/tables.h"
#include "geometry/array.h"
#include "io/own_file.h"
#include "scan/dead_pixels.h"

#define STAGES	     3	 /* of gain */
#define PLANES_MAX   32	 /* of a file */
#define LINE_MAX_LEN 256 /* of its header */
#define HEADER_MAX   (1u << 16)

/* A plane of the file. Its place was checked. */
struct plane {
	char name[65];
	const uint8_t *data;
	uint32_t crc;
};

/* Reads a line of the header. @return its length with the newline; 0: there is none */
static size_t
read_line(const uint8_t *data, size_t size, size_t at, char line[LINE_MAX_LEN])
{
	const size_t most = size - at < LINE_MAX_LEN ? size - at : LINE_MAX_LEN;
	const uint8_t *end = memchr(data + at, '\n', most);
	size_t length;

	if (end == NULL)
		return 0;
	length = end - (data + at);
	memcpy(line, data + at, length);
	line[length] = '\0';
	return length + 1;
}

static bool
read_plane(const char *line, const uint8_t *data, size_t size, uint64_t pixels, struct plane *plane)
{
	unsigned int rows, cols;
	uint64_t at;
	int end = 0;

	if (sscanf(line, "plane %64s float32 %u %u at %" SCNu64 " crc32c %8" SCNx32 "%n",
		    plane->name, &rows, &cols, &at, &plane->crc, &end) != 5 ||
		line[end] != '\0')
		return false;
	if ((uint64_t)rows * cols != pixels || at > size || size - at < pixels * sizeof(float))
		return false;
	plane->data = data + at;
	return true;
}

/* @return number of planes; -EBADMSG */
static int
read_planes(const uint8_t *data, size_t size, uint64_t pixels, struct plane plane[PLANES_MAX])
{
	const size_t header = size < HEADER_MAX ? size : HEADER_MAX;
	char line[LINE_MAX_LEN];
	size_t at, length;
	int nb;

	at = read_line(data, header, 0, line);
	if (at == 0 || strcmp(line, "braggline calibration 1") != 0)
		return -EBADMSG;
	for (nb = 0;; nb++, at += length) {
		length = read_line(data, header, at, line);
		if (length == 0)
			return -EBADMSG;
		if (strcmp(line, "end") == 0)
			return nb;
		if (nb == PLANES_MAX || !read_plane(line, data, size, pixels, &plane[nb]))
			return -EBADMSG;
	}
}

/* Whether the planes are those of the run, and are not damaged. */
static bool
have_digest(const struct plane *plane, int nb, uint64_t bytes, const char *digest)
{
	char text[32];
	uint32_t all = 0;

	for (int i = 0; i < nb; i++) {
		if (arrow_crc32c(0, plane[i].data, bytes) != plane[i].crc)
			return false;
		all = arrow_crc32c_combine(all, plane[i].crc, bytes);
	}
	snprintf(text, sizeof(text), "crc32c:%08" PRIx32, all);
	return digest == NULL || strcmp(text, digest) == 0;
}

static bool
is_nan(const struct plane *plane, uint64_t pixel)
{
	float value;

	/* planes are at multiples of 4096 in files of the receiver only */
	memcpy(&value, plane->data + pixel * sizeof(value), sizeof(value));
	return isnan(value);
}

int
dead_pixels_add(const uint8_t *data, size_t size, const char *digest, uint32_t rows, uint32_t cols,
	uint32_t *mask, const char **why)
{
	const uint64_t pixels = (uint64_t)rows * cols;
	const struct plane *stage[STAGES] = {NULL};
	struct plane plane[PLANES_MAX];
	const int nb = read_planes(data, size, pixels, plane);
	char name[] = "photons_per_adu_g0";

	*why = "is no calibration file of a detector of this size";
	if (nb < 0)
		return nb;
	for (unsigned int g = 0; g < STAGES; g++) {
		name[sizeof(name) - 2] = '0' + g;
		for (int i = 0; i < nb; i++) {
			if (strcmp(plane[i].name, name) == 0)
				stage[g] = &plane[i];
		}
		if (stage[g] == NULL)
			return -EBADMSG;
	}
	*why = "is damaged, or the calibration of another run";
	if (!have_digest(plane, nb, pixels * sizeof(float), digest))
		return -EBADMSG;
	for (uint64_t i = 0; i < pixels; i++) {
		if (is_nan(stage[0], i) && is_nan(stage[1], i) && is_nan(stage[2], i))
			mask[i] |= ARRAY_DEAD;
	}
	return 0;
}

static int
read_file(const struct scan_run *run, const char *path, uint32_t *mask, const char **why)
{
	const char *digest = arrow_reader_meta(scan_run_reader(run), ARROW_META_CALIBRATION);
	const int fd = own_file_open_named(path, O_RDONLY, 0);
	struct stat st;
	void *data;
	int ret = -EBADMSG;

	if (fd < 0) {
		*why = own_file_error(fd);
		return fd;
	}
	*why = "is empty";
	if (fstat(fd, &st) < 0) {
		ret = -errno;
		*why = strerror(errno);
	} else if (st.st_size > 0) {
		data = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (data == MAP_FAILED) {
			ret = -errno;
			*why = strerror(errno);
		} else {
			ret = dead_pixels_add(
				data, st.st_size, digest, run->rows, run->cols, mask, why);
			munmap(data, st.st_size);
		}
	}
	close(fd);
	return ret;
}

/* Searches the directory of the run's other files for the file. @return true: path is set */
static bool
find_file(const struct scan_run *run, char path[PATH_MAX])
{
	const char *name = arrow_reader_meta(scan_run_reader(run), ARROW_META_CALIBRATION_FILE);

	if (name == NULL || strchr(name, '/') != NULL)
		return false;
	for (size_t k = 0; k < run->nb_sets; k++) {
		const char *frames = run->set[k].file[ARROW_FRAMES].path;
		const char *slash = strrchr(frames, '/');

		snprintf(path, PATH_MAX, "%.*s%.255s",
			slash != NULL ? (int)(slash + 1 - frames) : 0, frames, name);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

int
dead_pixels_read(const struct scan_run *run, char path[PATH_MAX], uint32_t *mask, const char **why)
{
	if (path[0] == '\0' && !find_file(run, path))
		return 1;
	return read_file(run, path, mask, why);
}
