/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: where files come from and go to. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <rte_string_fns.h>

#include <gk_abi.h>

#include "check.h"

/** Every message of a file is a multiple of this (app/common/README.rst). */
#define FILE_BLOCK 4096

/** Fewer kept frames than this are seconds of a run. */
#define FEW_FRAMES 10000

/** Look for the files of one kind, one a module. @return those that cannot be read, `first` one */
static uint32_t
count_missing(const struct settings *s, const char *pattern, char first[PATH_MAX])
{
	const char *mark = strstr(pattern, "%d");
	const uint32_t n = mark != NULL ? s->detector.modules : 1;
	uint32_t missing = 0;

	for (uint32_t m = 0; m < n; m++) {
		char path[PATH_MAX];

		if (mark != NULL)
			snprintf(path, sizeof(path), "%.*s%u%s", (int)(mark - pattern), pattern, m,
				mark + 2);
		else
			rte_strscpy(path, pattern, sizeof(path));
		if (access(path, R_OK) == 0)
			continue;
		if (missing++ == 0 && first[0] == '\0')
			rte_strscpy(first, path, PATH_MAX);
	}
	return missing;
}

/** Load them as a run does. */
static void
check_maps(struct check *c, const struct settings *s, uint32_t given)
{
	static struct calibration maps;
	void *memory = aligned_alloc(RTE_CACHE_LINE_SIZE,
		RTE_ALIGN_CEIL(calibration_size(&s->detector), (uint64_t)RTE_CACHE_LINE_SIZE));

	if (memory == NULL) {
		check_add(c, CHECK_WARN, "calibration", "not loaded: no memory");
		check_fix(c, "free %" PRIu64 " bytes", calibration_size(&s->detector));
		return;
	}
	if (calibration_load(&maps, memory, &s->calibration, &s->detector) != 0) {
		check_add(c, CHECK_FAIL, "calibration", "%s", maps.why);
		check_fix(c, "give the file of this detector, module and gain stage");
	} else if (maps.warnings > 0) {
		check_add(c, CHECK_WARN, "calibration", "%s%s", maps.warning,
			maps.warnings > 1 ? "; and more, see the log" : "");
		check_fix(c, "look at the files of [calibration]");
	} else {
		check_add(c, CHECK_OK, "calibration",
			"%u kinds of files, %" PRIu64 " pixels masked", given, maps.masked);
	}
	free(memory);
}

void
check_calibration(struct check *c, const struct settings *s)
{
	const struct calibration_files *f = &s->calibration;
	const char *const patterns[] = {
		f->gain, f->pedestal[0], f->pedestal[1], f->pedestal[2], f->mask};
	uint32_t given = 0, missing = 0;
	char first[PATH_MAX] = "";

	for (unsigned int i = 0; i < RTE_DIM(patterns); i++) {
		if (patterns[i] == NULL)
			continue;
		given++;
		missing += count_missing(s, patterns[i], first);
	}
	if (missing > 0) {
		check_add(c, CHECK_FAIL, "calibration", "%u files cannot be read, first %s",
			missing, first);
		check_fix(c, "set the paths in [calibration], relative to the working directory");
	} else if (given > 0) {
		check_maps(c, s, given);
	}
	if (missing == 0 && f->pedestal[0] == NULL) {
		check_add(c, CHECK_WARN, "calibration",
			"no G0 pedestal: photons are wrong by the dark level");
		check_fix(c, "[calibration] pedestal_g0 = PATH/pedestal_g0_m%%d.bin");
	}
}

int
check_find_directory(const char *directory, char path[PATH_MAX])
{
	struct stat st;

	rte_strscpy(path, directory, PATH_MAX);
	if (stat(path, &st) != 0) {
		char copy[PATH_MAX];

		if (errno != ENOENT)
			return -errno;
		rte_strscpy(copy, directory, sizeof(copy));
		/* recv makes one level, no more */
		rte_strscpy(path, dirname(copy), PATH_MAX);
		if (stat(path, &st) != 0)
			return -errno;
	}
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

void
check_directory(struct check *c, const struct settings *s)
{
	static const char *const tables[] = {"frames", "images"};
	char path[PATH_MAX], file[PATH_MAX + 128];
	int ret = check_find_directory(s->directory, path);

	if (ret == 0 && access(path, W_OK | X_OK) != 0)
		ret = -errno;
	if (ret != 0) {
		check_add(
			c, CHECK_FAIL, "output directory", "%s: %s", s->directory, strerror(-ret));
		check_fix(c, "mkdir -p %s, writable for this user, or another [output] directory",
			s->directory);
		return;
	}
	/* runs of a service get their names later; those of stores are theirs */
	for (unsigned int i = 0; i < RTE_DIM(tables) && !s->service && s->egress.device == NULL;
		i++) {
		snprintf(file, sizeof(file), "%s/%s_%s.arrow", s->directory, s->run, tables[i]);
		if (access(file, F_OK) != 0)
			continue;
		check_add(c, CHECK_FAIL, "output directory", "%s exists: runs overwrite nothing",
			file);
		check_fix(c, "another [run] name or [output] directory");
		return;
	}
	check_add(c, CHECK_OK, "output directory", "%s%s", s->directory,
		strcmp(path, s->directory) == 0 ? "" : ", to be made");
}

void
check_space(struct check *c, const struct settings *s)
{
	const struct gk_geometry geometry = {.tiles = s->detector.tiles,
		.tile_rows = s->detector.ops->tile_rows,
		.cols = s->detector.ops->cols};
	const uint64_t image = gk_pixels(&geometry) * (s->value == GK_VALUE_I16 ? 2 : 4);
	char path[PATH_MAX], bytes[16], each[16];
	struct statvfs fs;
	uint64_t space;

	if (s->egress.device != NULL) {
		check_add(c, CHECK_NA, "disk space", "batches go to stores");
		return;
	}
	if (check_find_directory(s->directory, path) != 0 || statvfs(path, &fs) != 0) {
		check_add(c, CHECK_NA, "disk space", "no directory");
		return;
	}
	space = (uint64_t)fs.f_bavail * fs.f_frsize;
	check_add(c, space / image < FEW_FRAMES ? CHECK_WARN : CHECK_OK, "disk space",
		"%s: room for %" PRIu64 " full images of %s", check_print_bytes(space, bytes),
		space / image, check_print_bytes(image, each));
	if (space / image < FEW_FRAMES)
		check_fix(c,
			"free some, or another [output] directory; kind = csr needs less than "
			"full images");
}

/** Offset alignment that direct I/O wants, 0 = there is none, or -errno. */
static int
direct_io_alignment(int fd, bool *told)
{
	*told = false;
#ifdef STATX_DIOALIGN
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
		(st.stx_mask & STATX_DIOALIGN) != 0) {
		*told = true;
		return RTE_MAX(st.stx_dio_offset_align, st.stx_dio_mem_align);
	}
#endif
	/* an older kernel or file system: does it take the flag? */
	return fcntl(fd, F_SETFL, O_DIRECT) == 0 ? FILE_BLOCK : errno == EINVAL ? 0 : -errno;
}

void
check_direct_io(struct check *c, const struct settings *s)
{
	char path[PATH_MAX], name[PATH_MAX + 32];
	int alignment, fd = -1;
	bool told;

	if (s->egress.device != NULL) {
		check_add(c, CHECK_NA, "direct I/O", "batches go to stores");
		return;
	}
	if (check_find_directory(s->directory, path) == 0) {
		snprintf(name, sizeof(name), "%s/.braggline-check-XXXXXX", path);
		fd = mkstemp(name);
	}
	if (fd < 0) {
		check_add(c, CHECK_NA, "direct I/O", "no file can be made in %s", s->directory);
		return;
	}
	unlink(name);
	alignment = direct_io_alignment(fd, &told);
	close(fd);
	if (alignment > 0 && FILE_BLOCK % alignment == 0) {
		check_add(c, CHECK_OK, "direct I/O", "%s %d bytes",
			told ? "in multiples of" : "is taken; assumed in multiples of", alignment);
		return;
	}
	if (alignment < 0)
		check_add(c, CHECK_WARN, "direct I/O", "%s", strerror(-alignment));
	else if (alignment == 0)
		check_add(c, CHECK_WARN, "direct I/O",
			"not on this file system: writes go through "
			"the page cache");
	else
		check_add(c, CHECK_WARN, "direct I/O",
			"in multiples of %d bytes; files have blocks of %d", alignment, FILE_BLOCK);
	check_fix(c, "write to XFS or ext4 on NVMe for long runs");
}
