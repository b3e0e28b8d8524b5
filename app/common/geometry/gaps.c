/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "geometry/gaps.h"

#define PIECE_NAME_MAX 18 /* maximum bytes of the name of a panel that is split */

/* A chip: where it is in the raster with gaps and in the one without. */
struct chip {
	uint32_t from_fs, from_ss;
	uint32_t to_fs, to_ss;
	uint32_t index; /* index in the module */
};

static uint32_t
filled(const struct layout *l, uint32_t pixels)
{
	return pixels + (pixels / l->chip - 1) * (uint32_t)l->chip_gap;
}

struct geometry_raster
gaps_raster(const struct layout *l)
{
	return (struct geometry_raster){.rows = l->modules * filled(l, l->module_rows),
		.cols = filled(l, l->module_cols),
		.module_rows = filled(l, l->module_rows)};
}

static struct chip
chip_of(const struct layout *l, uint32_t i)
{
	const uint32_t pitch = l->chip + (uint32_t)l->chip_gap;
	const uint32_t across = l->module_cols / l->chip;
	const uint32_t chips = across * (l->module_rows / l->chip);
	const uint32_t m = i / chips, row = i % chips / across, column = i % across;

	return (struct chip){.from_fs = column * pitch,
		.from_ss = m * filled(l, l->module_rows) + row * pitch,
		.to_fs = column * l->chip,
		.to_ss = m * l->module_rows + row * l->chip,
		.index = i % chips};
}

/* Add the part of a bad region that is in a piece of its panel. */
static int
cut_bad(struct geometry *g, const struct geometry_bad *b, const struct chip *c,
	const struct geometry_panel *piece, char message[GEOMETRY_MESSAGE_LEN])
{
	const double dx = (double)c->to_fs - c->from_fs, dy = (double)c->to_ss - c->from_ss;
	struct geometry_bad cut = *b;
	int n;

	cut.min_x = fmax(b->min_x + dx, piece->fs_min);
	cut.max_x = fmin(b->max_x + dx, piece->fs_min + piece->width - 1.0);
	cut.min_y = fmax(b->min_y + dy, piece->ss_min);
	cut.max_y = fmin(b->max_y + dy, piece->ss_min + piece->height - 1.0);
	if (cut.min_x > cut.max_x || cut.min_y > cut.max_y)
		return 0;
	cut.panel = g->nb_panels - 1;
	memset(cut.name, 0, sizeof(cut.name));
	n = snprintf(cut.name, sizeof(cut.name), "%.18s_c%u", b->name, g->nb_bad);
	if (n < (int)sizeof(cut.name) && g->nb_bad < GEOMETRY_BAD_MAX) {
		g->bad[g->nb_bad++] = cut;
		return 0;
	}
	snprintf(message, GEOMETRY_MESSAGE_LEN,
		"region %.31s: more than %d regions after the pixels "
		"in gaps are removed",
		b->name, GEOMETRY_BAD_MAX);
	return -EINVAL;
}

/* Add the part of a panel that is in a chip, with its bad regions. */
static int
cut_panel(struct geometry *g, const struct geometry *from, uint32_t panel, const struct chip *c,
	uint32_t size, char message[GEOMETRY_MESSAGE_LEN])
{
	const struct geometry_panel *p = &from->panel[panel];
	const double left = fmax(p->fs_min, c->from_fs), top = fmax(p->ss_min, c->from_ss);
	const double right = fmin(p->fs_min + p->width, c->from_fs + size);
	const double bottom = fmin(p->ss_min + p->height, c->from_ss + size);
	struct geometry_panel *piece = &g->panel[g->nb_panels];
	int ret = 0;

	if (left >= right || top >= bottom)
		return 0;
	if (g->nb_panels == GEOMETRY_PANELS_MAX) {
		snprintf(message, GEOMETRY_MESSAGE_LEN, "panel %.31s: more than %d panels of chips",
			p->name, GEOMETRY_PANELS_MAX);
		return -EINVAL;
	}
	*piece = *p;
	piece->fs_min = c->to_fs + (uint32_t)left - c->from_fs;
	piece->ss_min = c->to_ss + (uint32_t)top - c->from_ss;
	piece->width = (uint32_t)(right - left);
	piece->height = (uint32_t)(bottom - top);
	if (piece->width != p->width || piece->height != p->height) {
		memset(piece->name, 0, sizeof(piece->name));
		if (strlen(p->name) > PIECE_NAME_MAX || p->edge != 0) {
			snprintf(message, GEOMETRY_MESSAGE_LEN,
				"panel %.31s: has pixels in gaps between chips: give it a name of "
				"at most %d bytes, and no mask_edge_pixels",
				p->name, PIECE_NAME_MAX);
			return -EINVAL;
		}
		snprintf(piece->name, sizeof(piece->name), "%.18s_c%u", p->name, c->index);
	}
	piece->corner_x += (left - p->fs_min) * p->fs_x + (top - p->ss_min) * p->ss_x;
	piece->corner_y += (left - p->fs_min) * p->fs_y + (top - p->ss_min) * p->ss_y;
	piece->coffset_metres +=
		((left - p->fs_min) * p->fs_z + (top - p->ss_min) * p->ss_z) * from->pixel_metres;
	g->nb_panels++;
	for (uint32_t i = 0; i < from->nb_bad && ret == 0; i++)
		if (from->bad[i].in_panel && from->bad[i].panel == panel)
			ret = cut_bad(g, &from->bad[i], c, piece, message);
	return ret;
}

int
gaps_remove(struct geometry *g, const struct layout *l, char message[GEOMETRY_MESSAGE_LEN])
{
	const uint32_t chips = l->modules * (l->module_rows / l->chip) * (l->module_cols / l->chip);
	struct geometry *from = malloc(sizeof(*from));
	int ret = 0;

	message[0] = '\0';
	if (from == NULL) {
		snprintf(message, GEOMETRY_MESSAGE_LEN, "cannot allocate a geometry");
		return -ENOMEM;
	}
	memcpy(from, g, sizeof(*from));
	memset(g->panel, 0, sizeof(g->panel));
	memset(g->bad, 0, sizeof(g->bad));
	g->nb_panels = g->nb_bad = 0;
	g->rows = l->modules * l->module_rows;
	g->cols = l->module_cols;
	for (uint32_t i = 0; i < from->nb_bad; i++)
		if (!from->bad[i].in_panel)
			g->bad[g->nb_bad++] = from->bad[i];
	for (uint32_t i = 0; i < from->nb_panels && ret == 0; i++) {
		for (uint32_t k = 0; k < chips && ret == 0; k++) {
			const struct chip c = chip_of(l, k);

			ret = cut_panel(g, from, i, &c, l->chip, message);
		}
	}
	free(from);
	return ret;
}
