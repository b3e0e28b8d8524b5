/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "columns.h"
#include "cxi.h"
#include "escaped_text.h"
#include "geometry/crystfel.h"
#include "geometry/file.h"
#include "geometry_files.h"
#include "image.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "modules.h"

/*
 * A PONI file describes the picture with all gaps. It fits the array only if both are the same: if
 * the detector is one panel.
 */
bool
geometry_files_have_poni(const struct export *e)
{
	return e->geometry->nb_panels == 1 && e->geometry->panel[0].width == e->run.cols &&
		e->geometry->panel[0].height == e->run.rows;
}

static int
write_poni(const struct export *e)
{
	char path[PATH_MAX], message[GEOMETRY_MESSAGE_LEN];

	snprintf(path, sizeof(path), "%.4000s.poni", e->stem);
	if (!geometry_files_have_poni(e)) {
		/* one of an export with another geometry would be wrong */
		(void)unlink(path);
		return 0;
	}
	if (geometry_file_write(e->geometry, path, message) == 0)
		return 0;
	/* a tilted panel: the images are usable without the file */
	escaped_line(stderr, "braggline-export: %s", message);
	return 0;
}

/* The geometry file of CrystFEL for these files, with the paths of the mask and the peaks. */
int
geometry_files_write(const struct export *e, bool cxi)
{
	char path[PATH_MAX], mask[128], *text = NULL;
	const struct crystfel_array array = {
		.data = cxi ? CXI_DATA : "/entry/data/data",
		.mask = mask,
		.peaks = !columns_have_peaks(e) ? NULL
			: cxi			? CXI_PEAKS
						: "/entry/peaks",
		.least = image_least(e->raw),
		.most = image_most(e->raw),
		.max_adu = e->raw ? INFINITY : image_unsaturated(false),
	};
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int ret;

	if (f == NULL)
		return -ENOMEM;
	if (cxi)
		snprintf(mask, sizeof(mask), CXI_MASK);
	else
		snprintf(mask, sizeof(mask), "/entry/instrument/detector/%s",
			modules_mask_name(e->geometry));
	ret = crystfel_write(e->geometry, &array, f);
	if (fclose(f) != 0 && ret == 0)
		ret = -ENOMEM;
	snprintf(path, sizeof(path), "%.4000s%s.geom", e->stem, cxi ? "_cxi" : "");
	if (ret == 0)
		ret = durable_file_replace(path, text, size);
	free(text);
	if (ret != 0)
		return export_complain("cannot write %s: %s", path, own_file_error(ret));
	return write_poni(e);
}
