/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: calibration files and output files. */

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

#include "check/check.h"
#include "check/storage.h"
#include "egress/egress.h"
#include "output/live.h"
#include "output/preview.h"
#include "pipeline.h"
#include "port/gang_memory.h"
#include "settings.h"

/** Every message of a file is a multiple of this size (app/common/README.rst). */
#define FILE_BLOCK 4096

/** Free space for fewer full images causes a warning, because a run may fill it within seconds. */
#define FEW_FRAMES 10000

/** Add a row for each module that has a warning. */
static void
check_modules(struct check *c, const struct calibration *maps, uint32_t modules)
{
	for (uint32_t m = 0; m < modules; m++) {
		const struct calibration_module *module = &maps->module[m];
		char item[sizeof("calibration, module ") + 10]; /* digits of an uint32_t */

		if (module->warnings == 0)
			continue;
		snprintf(item, sizeof(item), "calibration, module %u", m);
		check_add(c, CHECK_WARN, item, "%s%s", module->warning,
			module->warnings > 1 ? "; more in the log" : "");
		check_fix(c, "check the files of [calibration]");
	}
}

void
check_calibration(struct check *c, const struct settings *s, struct check_maps *maps)
{
	const uint64_t bytes = calibration_size(&s->detector);
	uint32_t g = 0;

	maps->loaded = false;
	maps->memory = aligned_alloc(
		RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(bytes, (uint64_t)RTE_CACHE_LINE_SIZE));
	if (maps->memory == NULL) {
		check_add(c, CHECK_FAIL, "calibration", "cannot allocate its %" PRIu64 " bytes",
			bytes);
		check_fix(c, "free memory of the host");
		return;
	}
	if (calibration_load(&maps->calibration, maps->memory, &s->calibration, &s->detector) !=
		0) {
		check_add(c, CHECK_FAIL, "calibration", "%s", maps->calibration.why);
		check_fix(c,
			"[calibration] needs the files of this detector, module and gain stage; "
			"paths are relative to the working directory");
		return;
	}
	maps->loaded = true;
	while (g < CALIBRATION_STAGES - 1 && s->calibration.pedestal[g] != NULL)
		g++; /* the first stage without a file, if there is one */
	if (maps->calibration.missing[0] != '\0') {
		check_add(c, CHECK_WARN, "calibration", "%s", maps->calibration.missing);
		check_fix(c, "for example pedestal_g%u = PATH/pedestal_g%u_m%%d.bin", g, g);
	} else {
		check_add(c, CHECK_OK, "calibration",
			"%" PRIu64 " of %" PRIu64 " pixels masked, %u warnings",
			maps->calibration.masked,
			(uint64_t)s->detector.modules * s->detector.ops->rows *
				s->detector.ops->cols,
			maps->calibration.warnings);
	}
	check_modules(c, &maps->calibration, s->detector.modules);
}

void
check_free_maps(struct check_maps *maps)
{
	free(maps->memory);
	maps->memory = NULL;
}

/** Find the directory, or its parent if it does not exist. @return 0 or -errno */
static int
find_directory(const char *directory, char path[PATH_MAX])
{
	struct stat st;

	rte_strscpy(path, directory, PATH_MAX);
	if (stat(path, &st) != 0) {
		char copy[PATH_MAX];

		if (errno != ENOENT)
			return -errno;
		rte_strscpy(copy, directory, sizeof(copy));
		/* recv creates only the last directory of the path */
		rte_strscpy(path, dirname(copy), PATH_MAX);
		if (stat(path, &st) != 0)
			return -errno;
	}
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

void
check_directory(struct check *c, const struct settings *s, const struct check_maps *maps)
{
	char message[PATH_MAX];
	bool made;
	const int ret =
		pipeline_try_files(s, maps->loaded ? &maps->calibration : NULL, &made, message);

	if (ret == 0) {
		check_add(c, CHECK_OK, "output directory", "%s%s", s->directory,
			made ? ", will be created" : "");
		return;
	}
	check_add(c, CHECK_FAIL, "output directory", "%s", message);
	if (ret == -EEXIST)
		check_fix(c,
			"files are never overwritten: set another [run] name or [output] "
			"directory; for .part files of a killed receiver run braggline-scan "
			"--recover %s",
			s->directory);
	else if (ret == -ENOSPC || ret == -EDQUOT)
		check_fix(c,
			"free space on the file system of %s, or set another [output] directory",
			s->directory);
	else if (ret == -EPERM)
		check_fix(c, "run as the owner of that folder, or set another [output] directory");
	else
		check_fix(c,
			"mkdir -p %s, writable for this user, or set another [output] directory",
			s->directory);
}

void
check_space(struct check *c, const struct settings *s)
{
	const struct gk_geometry geometry = file_geometry(&s->detector);
	const uint64_t image = gk_pixels(&geometry) * (s->value == GK_VALUE_I16 ? 2 : 4);
	char path[PATH_MAX], bytes[16], each[16];
	struct statvfs fs;
	uint64_t space;

	if (s->egress->device != NULL) {
		check_add(c, CHECK_NA, "disk space", "batches go to stores");
		return;
	}
	if (find_directory(s->directory, path) != 0 || statvfs(path, &fs) != 0) {
		check_add(c, CHECK_NA, "disk space", "no directory");
		return;
	}
	space = (uint64_t)fs.f_bavail * fs.f_frsize;
	check_add(c, space / image < FEW_FRAMES ? CHECK_WARN : CHECK_OK, "disk space",
		"%s: space for %" PRIu64 " full images of %s", check_print_bytes(space, bytes),
		space / image, check_print_bytes(image, each));
	if (space / image < FEW_FRAMES)
		check_fix(c,
			"free disk space, or set another [output] directory; format = csr needs "
			"less than full images");
}

/** A file of [output] that is replaced by each run. */
struct replaced_file {
	const char *key;
	const char *path;
	int (*check)(const char *path); /* @return 0; -EEXIST: another file that is not replaced */
	const char *content;
};

static void
check_replaced(struct check *c, const struct replaced_file *f)
{
	char copy[PATH_MAX];
	const char *directory;
	struct stat st;
	int error = 0;

	if (strcmp(f->path, "auto") == 0 || strcmp(f->path, "off") == 0)
		return;
	rte_strscpy(copy, f->path, sizeof(copy));
	directory = dirname(copy);
	if (stat(f->path, &st) == 0 && S_ISDIR(st.st_mode))
		error = EISDIR;
	else if (stat(directory, &st) != 0)
		error = errno;
	else if (!S_ISDIR(st.st_mode))
		error = ENOTDIR;
	else if (access(directory, W_OK | X_OK) != 0)
		error = errno;
	else
		error = -f->check(f->path);
	if (error == 0) {
		check_add(c, CHECK_OK, f->key, "%s", f->path);
		return;
	}
	if (error == EEXIST) {
		check_add(c, CHECK_WARN, f->key,
			"[output] %s = %s: the file exists and is not a %s, so it is not replaced",
			f->key, f->path, f->content);
		check_fix(c, "move it away or set another path");
		return;
	}
	check_add(c, CHECK_WARN, f->key, "[output] %s = %s: cannot write it: %s", f->key, f->path,
		strerror(error));
	check_fix(c, "set a file in a directory that exists and is writable for this user");
}

void
check_preview(struct check *c, const struct settings *s)
{
	const struct replaced_file preview = {"preview", s->preview, preview_check, "PNG picture"};
	const struct replaced_file live = {"live", s->live, live_check, "live file"};

	check_replaced(c, &preview);
	check_replaced(c, &live);
}

/** Return the offset alignment that direct I/O needs; 0: direct I/O is not supported; or -errno. */
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
	/* older kernel or file system: test whether it accepts the flag */
	return fcntl(fd, F_SETFL, O_DIRECT) == 0 ? FILE_BLOCK : errno == EINVAL ? 0 : -errno;
}

void
check_direct_io(struct check *c, const struct settings *s)
{
	char path[PATH_MAX], name[PATH_MAX + 32];
	int alignment, fd = -1;
	bool told;

	if (s->egress->device != NULL) {
		check_add(c, CHECK_NA, "direct I/O", "batches go to stores");
		return;
	}
	if (find_directory(s->directory, path) == 0) {
		snprintf(name, sizeof(name), "%s/.braggline-check-XXXXXX", path);
		fd = mkstemp(name);
	}
	if (fd < 0) {
		check_add(c, CHECK_NA, "direct I/O", "cannot create a file in %s", s->directory);
		return;
	}
	unlink(name);
	alignment = direct_io_alignment(fd, &told);
	close(fd);
	if (alignment > 0 && FILE_BLOCK % alignment == 0) {
		check_add(c, CHECK_OK, "direct I/O", "%s %d bytes",
			told ? "in multiples of" : "accepted; assumed in multiples of", alignment);
		return;
	}
	if (alignment < 0)
		check_add(c, CHECK_WARN, "direct I/O", "%s", strerror(-alignment));
	else if (alignment == 0)
		check_add(c, CHECK_WARN, "direct I/O",
			"not supported by this file system: writes go through the page cache");
	else
		check_add(c, CHECK_WARN, "direct I/O",
			"in multiples of %d bytes; blocks of files have %d", alignment, FILE_BLOCK);
	check_fix(c, "use XFS or ext4 on NVMe for long runs");
}
