/* SPDX-License-Identifier: BSD-3-Clause */

#include "output/calibration_output.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "output/output_file.h"
#include "io/own_file.h"

static int
write_file(const char *directory, const char *name, uint32_t module, const void *data, size_t bytes)
{
	struct output_file file;
	char *path;
	int ret;

	if (asprintf(&path, "%s/%s_m%u.bin", directory, name, module) < 0)
		return -ENOMEM;
	ret = output_file_open(&file, path);
	free(path);
	if (ret != 0)
		return ret;
	ret = output_file_write(&file, data, bytes);
	if (ret == 0)
		return output_file_commit(&file);
	output_file_discard(&file);
	return ret;
}

static int
write_module(const char *directory, uint32_t module, const struct jungfrau_calibration *calibration)
{
	static const char *const pedestal[JUNGFRAU_GAINS] = {
		"pedestal_g0", "pedestal_g1", "pedestal_g2"};
	int ret;

	ret = write_file(directory, "gain", module, calibration->gain, sizeof(calibration->gain));
	for (int stage = 0; ret == 0 && stage < JUNGFRAU_GAINS; stage++)
		ret = write_file(directory, pedestal[stage], module, calibration->pedestal[stage],
			sizeof(calibration->pedestal[stage]));
	if (ret == 0)
		ret = write_file(
			directory, "mask", module, calibration->mask, sizeof(calibration->mask));
	return ret;
}

int
calibration_output_write(const struct jungfrau_model *model, uint32_t modules,
	const char *directory, const volatile sig_atomic_t *stop)
{
	struct jungfrau_calibration *calibration;
	int ret = 0;

	if (mkdir(directory, OWN_FOLDER_MODE) != 0 && errno != EEXIST) {
		ret = -errno;
		warnx("%s: cannot create this directory for the calibration: %s", directory,
			strerror(-ret));
		return ret;
	}
	calibration = malloc(sizeof(*calibration));
	if (calibration == NULL)
		return -ENOMEM;
	for (uint32_t m = 0; ret == 0 && m < modules; m++) {
		if (*stop) {
			ret = -EINTR;
			break;
		}
		jungfrau_model_calibration(model, m, calibration);
		ret = write_module(directory, m, calibration);
	}
	free(calibration);
	return ret;
}
