/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mask.h"
#include "modules.h"
#include "scan/dead_pixels.h"

bool
mask_is_in_images(const struct export *e)
{
	if (e->raw || strcmp(modules_mask_name(e->geometry), "pixel_mask") == 0)
		return false;
	for (uint64_t i = 0; i < (uint64_t)e->run.rows * e->run.cols; i++) {
		if ((e->mask[i] & ARRAY_USER) != 0)
			return true;
	}
	return false;
}

int
mask_read(struct export *e, const char *calibration)
{
	const size_t pixels = (size_t)e->run.rows * e->run.cols;
	char path[PATH_MAX];
	const char *why;
	int ret;

	e->mask = malloc(pixels * sizeof(*e->mask));
	ret = e->mask != NULL ? array_mask(e->geometry, e->mask) : -ENOMEM;
	if (ret == -ERANGE)
		snprintf(e->message, sizeof(e->message),
			"run %.256s: its geometry has pixels that are more than 65,534 pixels away "
			"from the beam; correct the panels, and use --geometry FILE",
			e->run.name);
	if (ret < 0)
		return ret;
	snprintf(path, sizeof(path), "%s", calibration != NULL ? calibration : "");
	ret = dead_pixels_read(&e->run, path, e->mask, &why);
	if (ret < 0)
		snprintf(e->message, sizeof(e->message),
			"%.400s: %.200s; name the file of this run with --calibration", path, why);
	return ret;
}
