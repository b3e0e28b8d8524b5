/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "geometry/crystfel.h"
#include "geometry/number.h"

/* CrystFEL reads no exponents in directions, so these are written with this number of decimals. */
#define DECIMALS_MAX 20

static void
put_number(FILE *f, const char *before, double value)
{
	char text[NUMBER_LEN];

	fprintf(f, "%s%s", before, number_text(value, text));
}

/* Print `res`, so that the reader, which divides 1 by it, gets the same size of a pixel. */
static void
put_res(FILE *f, double pixel)
{
	char text[32];

	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, 1 / pixel);
		if (1 / strtod(text, NULL) == pixel)
			break;
	}
	fprintf(f, "res = %s\n", text);
}

static void
put_component(FILE *f, double value, char axis)
{
	char text[64];

	for (int decimals = 1; decimals <= DECIMALS_MAX; decimals++) {
		snprintf(text, sizeof(text), "%+.*f", decimals, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fprintf(f, " %s%c", text, axis);
}

static void
put_direction(FILE *f, const char *panel, const char *key, double x, double y, double z)
{
	fprintf(f, "%s/%s =", panel, key);
	put_component(f, x, 'x');
	put_component(f, y, 'y');
	if (z != 0)
		put_component(f, z, 'z');
	fprintf(f, "\n");
}

static void
put_panel_number(FILE *f, const char *panel, const char *key, double value)
{
	fprintf(f, "%s/%s", panel, key);
	put_number(f, " = ", value);
	fprintf(f, "\n");
}

static void
put_panel(FILE *f, const struct geometry_panel *p, double max_adu)
{
	fprintf(f, "\n%s/min_fs = %u\n%s/max_fs = %u\n", p->name, p->fs_min, p->name,
		p->fs_min + p->width - 1);
	fprintf(f, "%s/min_ss = %u\n%s/max_ss = %u\n", p->name, p->ss_min, p->name,
		p->ss_min + p->height - 1);
	put_panel_number(f, p->name, "corner_x", p->corner_x);
	put_panel_number(f, p->name, "corner_y", p->corner_y);
	put_direction(f, p->name, "fs", p->fs_x, p->fs_y, p->fs_z);
	put_direction(f, p->name, "ss", p->ss_x, p->ss_y, p->ss_z);
	if (p->coffset_metres != 0)
		put_panel_number(f, p->name, "coffset", p->coffset_metres);
	/* otherwise that of all panels applies */
	if (p->max_adu < max_adu)
		put_panel_number(f, p->name, "max_adu", p->max_adu);
	if (p->edge != 0)
		fprintf(f, "%s/mask_edge_pixels = %u\n", p->name, p->edge);
	if (p->unused)
		fprintf(f, "%s/no_index = 1\n", p->name);
}

static void
put_bad(FILE *f, const struct geometry *g, const struct geometry_bad *b)
{
	const char *x = b->in_panel ? "fs" : "x", *y = b->in_panel ? "ss" : "y";

	fprintf(f, "\n%s/min_%s", b->name, x);
	put_number(f, " = ", b->min_x);
	fprintf(f, "\n%s/max_%s", b->name, x);
	put_number(f, " = ", b->max_x);
	fprintf(f, "\n%s/min_%s", b->name, y);
	put_number(f, " = ", b->min_y);
	fprintf(f, "\n%s/max_%s", b->name, y);
	put_number(f, " = ", b->max_y);
	fprintf(f, "\n");
	if (b->in_panel)
		fprintf(f, "%s/panel = %s\n", b->name, g->panel[b->panel].name);
}

/* int16 images: saturated pixels have 32767, masked and lost ones -32768 */
#define INT16_ARRAY                                                                  \
	.data = "/entry/data/data", .mask = "/entry/instrument/detector/pixel_mask", \
	.peaks = "/entry/peaks", .least = INT16_MIN + 1, .most = INT16_MAX

const struct crystfel_array crystfel_photons = {INT16_ARRAY, .max_adu = INT16_MAX - 1};

static const struct crystfel_array geometry_only = {INT16_ARRAY, .max_adu = INFINITY};

/* Photon energy and distance. If no number is known, CrystFEL reads them with the images. */
static void
put_beam(FILE *f, const struct geometry *g, bool live)
{
	if (g->energy_ev > 0)
		put_number(f, "photon_energy = ", g->energy_ev);
	else if (live)
		fprintf(f, "photon_energy = photon_energy");
	else
		fprintf(f, "wavelength = /entry/instrument/beam/incident_wavelength A");
	fprintf(f, g->energy_ev > 0 || live ? " eV\n" : "\n");
	if (g->distance_metres > 0)
		put_number(f, "clen = ", g->distance_metres);
	else
		fprintf(f, live ? "clen = clen_mm" : "clen = /entry/instrument/detector/distance");
	fprintf(f, live && !(g->distance_metres > 0) ? " mm\n" : " m\n");
}

static void
put_array(FILE *f, const struct crystfel_array *a)
{
	if (a->live)
		fprintf(f, "data = detector_data\n");
	else
		fprintf(f,
			"data = %s\n"
			"dim0 = %%\n"
			"dim1 = ss\n"
			"dim2 = fs\n"
			"mask0_data = %s\n"
			"mask0_goodbits = 0x0\n"
			"mask0_badbits = 0xffff\n",
			a->data, a->mask);
	fprintf(f, "flag_lessthan = %d\n", a->least);
	/* no int16 value is larger */
	if (a->most != INT16_MAX)
		fprintf(f, "flag_morethan = %d\n", a->most);
	if (isfinite(a->max_adu)) {
		put_number(f, "max_adu = ", a->max_adu);
		fprintf(f, "\n");
	}
	if (a->peaks != NULL)
		fprintf(f, "peak_list = %s\n", a->peaks);
	if (a->peaks != NULL && !a->live)
		fprintf(f, "peak_list_type = cxi\n");
}

int
crystfel_write(const struct geometry *g, const struct crystfel_array *array, FILE *f)
{
	const struct crystfel_array *a = array != NULL ? array : &geometry_only;

	fprintf(f,
		"; CrystFEL geometry of a raster of %u x %u pixels, written by braggline\n"
		"; values for which no number is known come from the %s\n",
		g->rows, g->cols, a->live ? "messages" : "NeXus file");
	put_beam(f, g, a->live);
	put_res(f, g->pixel_metres);
	fprintf(f, "adu_per_photon = 1\n");
	put_array(f, a);
	for (uint32_t i = 0; i < g->nb_panels; i++)
		put_panel(f, &g->panel[i], a->max_adu);
	for (uint32_t i = 0; i < g->nb_bad; i++)
		put_bad(f, g, &g->bad[i]);
	fprintf(f, "\ngroup_all = ");
	for (uint32_t i = 0; i < g->nb_panels; i++)
		fprintf(f, "%s%s", i > 0 ? "," : "", g->panel[i].name);
	fprintf(f, "\n");
	return ferror(f) ? -EIO : 0;
}
