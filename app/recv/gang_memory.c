/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "calibration.h"
#include "gang_memory.h"

void
gang_memory_layout(const struct settings *s, struct gk_geometry *geometry, struct gk_layout *layout)
{
	const struct detector *d = &s->detector;

	*geometry = (struct gk_geometry){
		.tiles = d->tiles, .tile_rows = d->ops->tile_rows, .cols = d->ops->cols};
	gk_layout_init(layout, geometry, s->value, s->veto.params.nnz_max);
}

void
gang_memory_list(
	const struct settings *s, enum gk_memory results, struct gang_memory pieces[GANG_PIECES])
{
	const bool device = results == GK_MEMORY_DEVICE;
	const bool dark = s->dark.select != BUILDER_DARK_NONE;
	struct gk_geometry geometry;
	struct gk_layout layout;

	gang_memory_layout(s, &geometry, &layout);
	pieces[GANG_CHANNEL] = (struct gang_memory){
		.name = "gang channel", .n = 1, .bytes = sizeof(struct gk_channel)};
	pieces[GANG_FRAMES] = (struct gang_memory){.name = "[frames] slots",
		.n = 1,
		.bytes = (uint64_t)s->slots * gk_frame_stride(&geometry)};
	pieces[GANG_RESULTS] = (struct gang_memory){
		.name = "results", .n = 1, .bytes = s->slots * sizeof(struct gk_result)};
	pieces[GANG_COEFFICIENTS] = (struct gang_memory){
		.name = "coefficients", .n = 1, .bytes = calibration_size(&s->detector)};
	pieces[GANG_OUTPUTS] = (struct gang_memory){.name = "[gpu] outputs",
		.n = 1,
		.device = device,
		.bytes = (uint64_t)s->outputs * layout.stride};
	pieces[GANG_STAGING] = (struct gang_memory){
		.name = "staging of results", .n = device ? 1 : 0, .bytes = layout.stride};
	pieces[GANG_SECOND_PEDESTALS] = (struct gang_memory){.name = "second pedestals",
		.n = dark ? 1 : 0,
		.bytes = gk_pixels(&geometry) * sizeof(float)};
	pieces[GANG_DARK] = (struct gang_memory){.name = "dark accumulators",
		.n = dark ? GK_DARK_MAX : 0,
		/* gangs alone look at them: eight bytes a pixel and frame need not cross the bus */
		.device = strcmp(s->kernel, "cuda") == 0,
		.bytes = gk_dark_size(&geometry)};
}
