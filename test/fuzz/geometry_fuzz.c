/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Geometry files of any content. The first byte selects the format, and whether there is a raster.
 * What is accepted is in its raster, has bins, places and a picture without errors of memory or
 * arithmetic, and is the same after it has been written and read again.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "geometry/crystfel.h"
#include "geometry/file.h"
#include "geometry/pixels.h"
#include "geometry/poni.h"
#include "seed_corpus.h"

#define PIXELS_MAX (1u << 20) /* larger rasters are not mapped */

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static struct geometry g, again;
static uint16_t bin[PIXELS_MAX];
static uint32_t at[PIXELS_MAX];
static float value[PIXELS_MAX];

static void
check_pixels(void)
{
	struct pixels_picture picture;
	uint32_t nb_bins, shell;

	if (pixels_bins(&g, bin, &nb_bins) == 0)
		for (size_t i = 0; i < (size_t)g.rows * g.cols; i++)
			WANT(bin[i] == GEOMETRY_MASKED || bin[i] < nb_bins);
	if (pixels_picture(&g, &picture) == 0) {
		pixels_place(&g, &picture, at);
		for (size_t i = 0; i < (size_t)g.rows * g.cols; i++)
			WANT(at[i] == PIXELS_NOWHERE || at[i] < picture.width * picture.height);
	}
	(void)pixels_map(&g, PIXELS_RESOLUTION, value);
	(void)pixels_shells(&g, (double[]){4}, 1, &shell);
}

/* Small components of directions have fewer digits in a file. */
static bool
is_exact(void)
{
	for (uint32_t i = 0; i < g.nb_panels; i++) {
		const struct geometry_panel *p = &g.panel[i];
		const double step[] = {p->fs_x, p->fs_y, p->fs_z, p->ss_x, p->ss_y, p->ss_z};

		for (unsigned int k = 0; k < 6; k++)
			if (step[k] != 0 && fabs(step[k]) < 1e-3)
				return false;
	}
	return true;
}

static void
check_text(void)
{
	char message[GEOMETRY_MESSAGE_LEN];
	char *text = geometry_text(&g);
	const struct geometry_raster raster = {.rows = g.rows, .cols = g.cols};
	int ret;

	WANT(text != NULL);
	ret = crystfel_read(&again, text, strlen(text), "again", &raster, message);
	/* a direction may be too small to be written */
	WANT(ret == 0 || !is_exact());
	if (ret == 0 && is_exact()) {
		WANT(again.nb_panels == g.nb_panels && again.nb_bad == g.nb_bad);
		WANT(memcmp(again.panel, g.panel, sizeof(g.panel)) == 0);
		WANT(memcmp(again.bad, g.bad, sizeof(g.bad)) == 0);
		WANT(again.distance_metres == g.distance_metres && again.energy_ev == g.energy_ev);
		WANT(fabs(again.pixel_metres / g.pixel_metres - 1) < 1e-15);
	}
	free(text);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char geom[] =
		"\0photon_energy = 9 keV ; x\nclen = 0.1 m\nres = 1e4\nadu_per_photon = 1\n"
		"dim0 = %\ndim1 = ss\ndim2 = fs\nmax_adu = 50\na/min_fs = 0\na/max_fs = 7\n"
		"a/min_ss = 0\na/max_ss = 3\na/corner_x = -3.5\na/corner_y = 2\n"
		"a/fs = +1.0x -0.01y\na/ss = -0.01x -1.0y +0.1z\na/mask_edge_pixels = 1\n"
		"bad0/min_x = -1\nbad0/max_x = 1\nbad0/min_y = -1\nbad0/max_y = 1\n"
		"bad1/panel = a\nbad1/min_fs = 1\nbad1/max_fs = 1\nbad1/min_ss = 1\n"
		"bad1/max_ss = 1\ngroup_all = a\n";
	static const char modules[] =
		"\1wavelength = /w A\nclen = /c m\nres = 13333\nadu_per_eV = 0.1\nfs = x\n"
		"ss = -y\ndim0 = %\ndim1 = 1\ndim2 = ss\ndim3 = fs\na/min_fs = 0\na/max_fs = 7\n"
		"a/min_ss = 0\na/max_ss = 3\na/corner_x = 0\na/corner_y = 0\ndetector_shift_x = 1 "
		"mm\n";
	static const char poni[] =
		"\2poni_version: 2\nDetector: Detector\nDetector_config: {\"pixel1\": 7.5e-05, "
		"\"pixel2\": 7.5e-05, \"max_shape\": [8, 8], \"orientation\": 3}\nDistance: 0.1\n"
		"Poni1: 0.01\nPoni2: 0.02\nRot1: 0.1\nRot2: 0.0\nRot3: 0.2\nWavelength: 1e-10\n";

	seed_begin(argc, argv);
	seed_add("geom", geom, sizeof(geom) - 1);
	seed_add("modules", modules, sizeof(modules) - 1);
	seed_add("poni", poni, sizeof(poni) - 1);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct geometry_raster raster = {.rows = 8, .cols = 8, .module_rows = 4};
	const struct geometry_raster *in = size > 0 && data[0] % 2 == 1 ? &raster : NULL;
	char message[GEOMETRY_MESSAGE_LEN];
	const char *text = (const char *)data + 1;
	int ret;

	if (size == 0)
		return 0;
	ret = data[0] & 2 ? poni_read(&g, text, size - 1, "x", in, message)
			  : crystfel_read(&g, text, size - 1, "x", in, message);
	WANT((message[0] == '\0') == (ret == 0));
	if (ret != 0)
		return 0;
	WANT(in == NULL || (g.rows == in->rows && g.cols == in->cols));
	for (uint32_t i = 0; i < g.nb_panels; i++)
		WANT(g.panel[i].fs_min + g.panel[i].width <= g.cols &&
			g.panel[i].ss_min + g.panel[i].height <= g.rows);
	if ((uint64_t)g.rows * g.cols > PIXELS_MAX)
		return 0;
	check_pixels();
	check_text();
	return 0;
}
