/* SPDX-License-Identifier: BSD-3-Clause */

#include <math.h>
#include <stdio.h>

#include "modules.h"

#define DETECTOR     "/entry/instrument/detector/"
#define DET_Z	     DETECTOR "transformations/det_z"
#define NAME_MAX_LEN 96

static double
length(const double v[3])
{
	return sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
}

static double
normalise(double v[3])
{
	const double size = length(v);

	for (unsigned int i = 0; size > 0 && i < 3; i++)
		v[i] /= size;
	return size;
}

void
modules_axes(const struct geometry *g, uint32_t panel, struct module_axes *a)
{
	const struct geometry_panel *p = &g->panel[panel];

	*a = (struct module_axes){
		.corner = {p->corner_x * g->pixel_metres, p->corner_y * g->pixel_metres,
			p->coffset_metres},
		.fast = {p->fs_x, p->fs_y, p->fs_z},
		.slow = {p->ss_x, p->ss_y, p->ss_z},
	};
	a->fast_size = normalise(a->fast) * g->pixel_metres;
	a->slow_size = normalise(a->slow) * g->pixel_metres;
}

/* A translation of one value. The validator of NeXus wants the offset on every axis. */
static void
put_axis(struct h5 *h, hid_t at, const char *name, double metres, const double vector[3],
	const double offset[3], const char *depends_on)
{
	static const double nothing[3];
	const hsize_t nb = 1;
	const hid_t set = h5_dataset(h, at, name, H5T_IEEE_F64LE, 1, &nb, 0);

	h5_rows(h, name, set, 0, 1, &metres);
	h5_attr_text(h, set, "units", "m");
	h5_attr_text(h, set, "transformation_type", "translation");
	h5_attr_f64(h, set, "vector", vector, 3);
	h5_attr_f64(h, set, "offset", offset != NULL ? offset : nothing, 3);
	h5_attr_text(h, set, "offset_units", "m");
	h5_attr_text(h, set, "depends_on", depends_on);
	h5_release(set);
}

static void
put_module(struct h5 *h, hid_t detector, const struct geometry *g, uint32_t panel)
{
	static const double along_beam[] = {0, 0, 1};
	const struct geometry_panel *p = &g->panel[panel];
	const int32_t origin[] = {p->ss_min, p->fs_min}, size[] = {p->height, p->width};
	const hsize_t two = 2;
	struct module_axes a;
	char name[NAME_MAX_LEN], offset[NAME_MAX_LEN];
	hid_t module;

	modules_axes(g, panel, &a);
	/* the name of a panel may not be one of NeXus; three digits keep the order of panels */
	snprintf(name, sizeof(name), "module_%03u", panel);
	snprintf(offset, sizeof(offset), DETECTOR "%.16s/module_offset", name);
	module = h5_group(h, detector, name, "NXdetector_module");
	h5_text(h, module, "panel", p->name);
	h5_array(h, module, "data_origin", H5T_STD_I32LE, 1, &two, 0, origin, NULL);
	h5_array(h, module, "data_size", H5T_STD_I32LE, 1, &two, 0, size, NULL);
	/* DIALS ignores offsets of the pixel directions, so the corner has a separate axis */
	put_axis(h, module, "module_offset", 0, along_beam, a.corner, DET_Z);
	put_axis(h, module, "fast_pixel_direction", a.fast_size, a.fast, NULL, offset);
	put_axis(h, module, "slow_pixel_direction", a.slow_size, a.slow, NULL, offset);
	h5_release(module);
}

void
modules_put(struct h5 *h, hid_t detector, const struct geometry *g)
{
	static const double along_beam[] = {0, 0, 1};
	const hid_t axes = h5_group(h, detector, "transformations", "NXtransformations");

	h5_text(h, detector, "depends_on", DET_Z);
	put_axis(h, axes, "det_z", g->distance_metres, along_beam, NULL, ".");
	h5_release(axes);
	for (uint32_t i = 0; i < g->nb_panels; i++)
		put_module(h, detector, g, i);
}

const char *
modules_mask_name(const struct geometry *g)
{
	for (uint32_t i = 0; i < g->nb_panels; i++) {
		if (g->panel[i].width != g->cols)
			return "pixel_mask_1";
	}
	return "pixel_mask";
}
