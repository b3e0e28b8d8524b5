/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of configurations, descriptors and rings. Gangs, which check every batch, pass no buffer.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "gk_peaks.h"
#include "gk_reason.h"

static int
check_pointer(const struct reason *why, const char *name, uint64_t address)
{
	if (address == 0)
		return refuse(why, "%s is NULL", name);
	if (address % 64 != 0)
		return refuse(
			why, "%s is at 0x%" PRIx64 ", expected a multiple of 64", name, address);
	return 0;
}

static int
check_geometry(const struct reason *why, const struct gk_geometry *g)
{
	if (g->tiles == 0 || g->tile_rows == 0)
		return refuse(why, "geometry is %u tiles of %u rows, expected at least 1 of 1",
			g->tiles, g->tile_rows);
	if (g->cols == 0 || g->cols % 32 != 0 || g->cols > GK_COLS_MAX)
		return refuse(why, "geometry.cols is %u, expected a multiple of 32 up to %u",
			g->cols, GK_COLS_MAX);
	/* Check rows first, so that their product cannot wrap before the comparison. */
	if ((uint64_t)g->tiles * g->tile_rows >= UINT32_MAX || gk_pixels(g) > UINT32_MAX)
		return refuse(why,
			"geometry is %u tiles x %u rows x %u columns, expected fewer than 2^32 "
			"pixels",
			g->tiles, g->tile_rows, g->cols);
	return 0;
}

static int
check_layout(const struct reason *why, const struct gk_config *c)
{
	struct gk_layout l;

	gk_layout_init(&l, &c->geometry, c->value, c->layout.nnz_cap);
	if (c->layout.peaks_cap > 0)
		gk_layout_add_peaks(&l, c->layout.peaks_cap);
#define SAME(field)                                                     \
	if (c->layout.field != l.field)                                 \
	return refuse(why,                                              \
		"layout." #field " is %" PRIu64 ", expected %" PRIu64   \
		": gk_layout_init() with this geometry and value type", \
		(uint64_t)c->layout.field, (uint64_t)l.field)
	SAME(nnz_cap);
	SAME(value_size);
	SAME(row_ptr);
	SAME(col);
	SAME(value);
	SAME(raw);
	SAME(peaks);
	SAME(peaks_cap);
	SAME(stride);
#undef SAME
	return 0;
}

/* Having none is valid as long as there are no dark frames. */
static int
check_dark(const struct reason *why, const struct gk_config *c, uint32_t index)
{
	char name[32];

	snprintf(name, sizeof(name), "dark[%u].cells", index);
	return check_pointer(why, name, c->channel->dark[index].cells);
}

/* Having no map is valid as long as no peaks are searched. create() checks its content. */
static int
check_pixels(const struct reason *why, const struct gk_config *c)
{
	const struct gk_peak_pixels *p = &c->channel->pixels;

	if (p->bin == 0)
		return 0;
	if (check_pointer(why, "pixels.bin", p->bin) != 0 ||
		check_pointer(why, "pixels.panel", p->panel) != 0)
		return -EINVAL;
	if (p->nb_panels == 0 || p->nb_panels > GK_PEAK_PANELS_MAX)
		return refuse(why, "pixels.nb_panels is %u, expected 1 to %d", p->nb_panels,
			GK_PEAK_PANELS_MAX);
	if (p->nb_bins > GK_PEAK_BINS_MAX)
		return refuse(why, "pixels.nb_bins is %u, expected at most %d", p->nb_bins,
			GK_PEAK_BINS_MAX);
	return 0;
}

/* Sizes of chunks and of their parts are 32-bit numbers within gangs. */
static int
check_chunks(const struct reason *why, const struct gk_config *c)
{
	const uint64_t bound = gk_bitshuffle_bound(gk_pixels(&c->geometry));

	if (!c->chunks)
		return 0;
	if (c->details == NULL)
		return refuse(why, "details is NULL, expected memory for the sizes of chunks");
	if (bound > UINT32_MAX)
		return refuse(
			why, "chunks have up to %" PRIu64 " bytes, expected less than 2^32", bound);
	return 0;
}

/* Having no map is valid: no profiles are made. create() checks its content. */
static int
check_radial(const struct reason *why, const struct gk_config *c)
{
	const struct gk_radial_pixels *r = &c->channel->radial;

	if (r->bin == 0)
		return 0;
	if (check_pointer(why, "radial.bin", r->bin) != 0 ||
		check_pointer(why, "profiles", (uintptr_t)c->profiles) != 0)
		return -EINVAL;
	if (r->nb_bins == 0 || r->nb_bins > GK_PROFILE_BINS_MAX)
		return refuse(why, "radial.nb_bins is %u, expected 1 to %d", r->nb_bins,
			GK_PROFILE_BINS_MAX);
	if (c->nb_profiles == 0)
		return refuse(why, "nb_profiles is 0, expected at least 1");
	return 0;
}

int
gk_config_check(const struct gk_config *c, char *text, size_t size)
{
	const struct reason why = {text, size};

	if (check_geometry(&why, &c->geometry) != 0)
		return -EINVAL;
	if (c->value != GK_VALUE_F32 && c->value != GK_VALUE_I16)
		return refuse(&why, "value is %d, expected %d (f32) or %d (i16)", (int)c->value,
			GK_VALUE_F32, GK_VALUE_I16);
	if (gk_isa_name(c->isa) == NULL)
		return refuse(&why, "isa %d, expected 0 to %d", (int)c->isa, GK_ISAS - 1);
	if (c->watchdog_ms != 0 && c->watchdog_ms < GK_WATCHDOG_MIN_MS)
		return refuse(&why, "watchdog_ms is %u, expected at least %d, or 0 for none",
			c->watchdog_ms, GK_WATCHDOG_MIN_MS);
	if (check_layout(&why, c) != 0)
		return -EINVAL;
	if (c->gangs == 0 || c->gangs > GK_GANGS_MAX)
		return refuse(&why, "gangs is %u, expected 1 to %d", c->gangs, GK_GANGS_MAX);
	if (c->nb_frames == 0)
		return refuse(&why, "nb_frames is 0, expected at least 1");
	if (check_pointer(&why, "channel", (uintptr_t)c->channel) != 0 ||
		check_pointer(&why, "frames", (uintptr_t)c->frames) != 0 ||
		check_pointer(&why, "results", (uintptr_t)c->results) != 0)
		return -EINVAL;
	/* without output slots only results are written */
	if (c->nb_outputs > 0 && check_pointer(&why, "outputs", (uintptr_t)c->outputs) != 0)
		return -EINVAL;
	for (uint32_t i = 0; i < GK_DARK_MAX; i++)
		if (c->channel->dark[i].cells != 0 && check_dark(&why, c, i) != 0)
			return -EINVAL;
	if (c->details != NULL && check_pointer(&why, "details", (uintptr_t)c->details) != 0)
		return -EINVAL;
	if (check_chunks(&why, c) != 0)
		return -EINVAL;
	return check_pixels(&why, c) != 0 ? -EINVAL : check_radial(&why, c);
}

static int
check_search(const struct reason *why, const struct gk_config *c, uint32_t index)
{
	const struct gk_params *p = &c->channel->params[index];
	const struct gk_peak_params *peak = &c->channel->peak[index];
	char text[160];

	if (p->search > GK_SEARCH_ALL)
		return refuse(why,
			"params[%u].search is %u, expected %d (none), %d (strong) or %d (all)",
			index, p->search, GK_SEARCH_NONE, GK_SEARCH_STRONG, GK_SEARCH_ALL);
	if (c->channel->pixels.bin == 0)
		return refuse(why,
			"params[%u].search is %u, expected 0: the channel has no map of pixels",
			index, p->search);
	if (gk_peak_params_check(peak, text, sizeof(text)) != 0)
		return refuse(why, "peak[%u]: %s", index, text);
	if (p->peaks_shells >> peak->shells != 0)
		return refuse(why, "params[%u].peaks_shells is 0x%x, expected bits of %u shells",
			index, p->peaks_shells, peak->shells);
	return 0;
}

static int
check_params(const struct reason *why, const struct gk_config *c, uint32_t index)
{
	const struct gk_params *p = &c->channel->params[index];
	const uint32_t chunks =
		1u << GK_KIND_RAW | (c->value == GK_VALUE_I16 ? 1u << GK_KIND_IMAGE : 0);

	if (p->kind != GK_KIND_CSR && p->kind != GK_KIND_IMAGE && p->kind != GK_KIND_RAW)
		return refuse(why,
			"params[%u].kind is %u, expected %d (CSR), %d (image) or %d (raw)", index,
			p->kind, GK_KIND_CSR, GK_KIND_IMAGE, GK_KIND_RAW);
	if (p->strong_threshold != p->strong_threshold)
		return refuse(why, "params[%u].strong_threshold is NaN, expected photons", index);
	if (p->csr_threshold != p->csr_threshold)
		return refuse(why, "params[%u].csr_threshold is NaN, expected photons", index);
	if (p->nnz_max > c->layout.nnz_cap)
		return refuse(why, "params[%u].nnz_max is %u, expected at most layout.nnz_cap = %u",
			index, p->nnz_max, c->layout.nnz_cap);
	if ((p->chunks & ~chunks) != 0)
		return refuse(why, "params[%u].chunks is 0x%x, expected 0 or bits of 0x%x (%s)",
			index, p->chunks, chunks,
			c->value == GK_VALUE_I16 ? "raw, image" : "raw; images are f32");
	if (p->chunks != 0 && !c->chunks)
		return refuse(why, "params[%u].chunks is 0x%x, expected 0: gk_config.chunks is 0",
			index, p->chunks);
	return p->search == GK_SEARCH_NONE ? 0 : check_search(why, c, index);
}

static int
check_coef(const struct reason *why, const struct gk_config *c, uint32_t index)
{
	const struct gk_coef *coef = &c->channel->coef[index];
	char name[32];

	for (int g = 0; g < 3; g++) {
		/* the common case needs no name */
		if (coef->p[g] != 0 && coef->r[g] != 0 && (coef->p[g] | coef->r[g]) % 64 == 0)
			continue;
		snprintf(name, sizeof(name), "coef[%u].p[%d]", index, g);
		if (check_pointer(why, name, coef->p[g]) != 0)
			return -EINVAL;
		snprintf(name, sizeof(name), "coef[%u].r[%d]", index, g);
		return check_pointer(why, name, coef->r[g]);
	}
	return 0;
}

/* Check an index and the pointers of its entry. `what` is the field of the descriptor. */
static int
check_work_coef(
	const struct reason *why, const struct gk_config *c, const char *what, uint32_t index)
{
	if (index >= GK_COEF_MAX)
		return refuse(
			why, "work.%s is %u, expected less than %d", what, index, GK_COEF_MAX);
	return check_coef(why, c, index);
}

static int
check_work_params(const struct reason *why, const struct gk_work *work)
{
	if (work->params >= GK_PARAMS_MAX)
		return refuse(why, "work.params is %u, expected less than %d", work->params,
			GK_PARAMS_MAX);
	return 0;
}

static int
check_work_dark(const struct reason *why, const struct gk_config *c, const struct gk_work *work)
{
	if (work->dark >= GK_DARK_MAX)
		return refuse(
			why, "work.dark is %u, expected less than %d", work->dark, GK_DARK_MAX);
	return check_dark(why, c, work->dark);
}

/* Check the addresses of a frame's packets. */
static int
check_packets(const struct reason *why, const struct gk_config *c, const struct gk_frame *frame,
	uint32_t slot)
{
	for (uint32_t t = 0; t < c->geometry.tiles; t++)
		if (frame->packet[t] % GK_PACKET_ALIGN != 0)
			return refuse(why,
				"frame %" PRIu64 " in slot %u has packet %u at 0x%" PRIx64
				", expected a multiple of %d",
				frame->frame, slot, t, frame->packet[t], GK_PACKET_ALIGN);
	return 0;
}

/* Trailers are read as one word, so the packets before them must be aligned. */
static int
check_trailers(const struct reason *why, const struct gk_config *c, const struct gk_frame *frame,
	uint32_t slot)
{
	if (!c->trailers)
		return refuse(why,
			"frame %" PRIu64 " in slot %u has trailers, expected none: "
			"gk_config.trailers is 0",
			frame->frame, slot);
	return check_packets(why, c, frame, slot);
}

static int
check_flags(const struct reason *why, const struct gk_config *c, const struct gk_work *work,
	const struct gk_frame *frame, uint32_t slot)
{
	if ((frame->flags & GK_FRAME_DARK) && check_work_dark(why, c, work) != 0)
		return -EINVAL;
	if (frame->flags & GK_FRAME_TRAILER)
		return check_trailers(why, c, frame, slot);
	if (frame->flags & GK_FRAME_LEADER)
		return refuse(why,
			"frame %" PRIu64
			" in slot %u has GK_FRAME_LEADER, expected GK_FRAME_TRAILER with it",
			frame->frame, slot);
	return 0;
}

static int
check_frames(const struct reason *why, const struct gk_config *c, const struct gk_work *work)
{
	const uint64_t stride = gk_frame_stride(&c->geometry);
	const struct gk_frame *frame;

	if (work->nb_frames == 0 || work->nb_frames > GK_BATCH_MAX)
		return refuse(why, "work.nb_frames is %u, expected 1 to %d", work->nb_frames,
			GK_BATCH_MAX);
	if (check_work_params(why, work) != 0 || check_params(why, c, work->params) != 0 ||
		check_work_coef(why, c, "coef", work->coef) != 0)
		return -EINVAL;
	for (uint32_t i = 0; i < work->nb_frames; i++) {
		if (work->slot[i] >= c->nb_frames)
			return refuse(why, "work.slot[%u] is %u, expected less than nb_frames = %u",
				i, work->slot[i], c->nb_frames);
		frame = (const struct gk_frame *)(c->frames + work->slot[i] * stride);
		if (frame->out != GK_NO_OUT && frame->out >= c->nb_outputs)
			return refuse(why,
				"frame %" PRIu64
				" in slot %u has output slot %u, expected less than "
				"nb_outputs = %u or GK_NO_OUT",
				frame->frame, work->slot[i], frame->out, c->nb_outputs);
		if (c->channel->radial.bin != 0 && frame->profile >= c->nb_profiles)
			return refuse(why,
				"frame %" PRIu64
				" in slot %u has profile %u, expected less than nb_profiles = %u",
				frame->frame, work->slot[i], frame->profile, c->nb_profiles);
		if (check_flags(why, c, work, frame, work->slot[i]) != 0)
			return -EINVAL;
	}
	return 0;
}

static int
check_update(const struct reason *why, const struct gk_config *c, const struct gk_work *work)
{
	const struct gk_params *p;

	if (check_work_params(why, work) != 0)
		return -EINVAL;
	p = &c->channel->params[work->params];
	if (p->dark_min == 0)
		return refuse(why, "params[%u].dark_min is 0, expected at least 1", work->params);
	if (!(p->dark_alpha > 0 && p->dark_alpha <= 1))
		return refuse(why, "params[%u].dark_alpha is %g, expected more than 0, at most 1",
			work->params, (double)p->dark_alpha);
	if (check_work_coef(why, c, "coef", work->coef) != 0 ||
		check_work_coef(why, c, "coef_to", work->coef_to) != 0)
		return -EINVAL;
	if (c->channel->coef[work->coef].p[0] == c->channel->coef[work->coef_to].p[0])
		return refuse(why,
			"coef[%u].p[0] and coef[%u].p[0] are the same plane, expected two: the old "
			"version is still in use",
			work->coef, work->coef_to);
	return 0;
}

int
gk_descriptor_check(const struct gk_config *c, const struct gk_work *work, char *text, size_t size)
{
	const struct reason why = {text, size};

	if (work->op == GK_OP_FRAMES)
		return check_frames(&why, c, work);
	if (work->op != GK_OP_UPDATE && work->op != GK_OP_CLEAR)
		return refuse(&why,
			"work.op is %u, expected %d (frames), %d (update) or %d (clear)", work->op,
			GK_OP_FRAMES, GK_OP_UPDATE, GK_OP_CLEAR);
	if (work->nb_frames != 0)
		return refuse(&why, "work.nb_frames is %u, expected 0 of work.op %u",
			work->nb_frames, work->op);
	if (check_work_dark(&why, c, work) != 0)
		return -EINVAL;
	return work->op == GK_OP_UPDATE ? check_update(&why, c, work) : 0;
}

int
gk_work_check(const struct gk_config *c, const struct gk_work *work, char *text, size_t size)
{
	const uint64_t stride = gk_frame_stride(&c->geometry);
	const struct reason why = {text, size};

	if (gk_descriptor_check(c, work, text, size) != 0)
		return -EINVAL;
	for (uint32_t i = 0; i < work->nb_frames; i++)
		if (check_packets(&why, c,
			    (const struct gk_frame *)(c->frames + work->slot[i] * stride),
			    work->slot[i]) != 0)
			return -EINVAL;
	return 0;
}

int
gk_start_check(const struct gk_config *c, char *text, size_t size)
{
	const struct reason why = {text, size};

	for (uint32_t i = 0; i < c->gangs; i++) {
		const struct gk_done *line = &c->channel->done[i];
		const uint32_t done = __atomic_load_n(&line->done, __ATOMIC_ACQUIRE);
		const uint32_t raw = __atomic_load_n(&line->raw, __ATOMIC_ACQUIRE);
		const uint32_t left =
			__atomic_load_n(&c->channel->bell.head[i], __ATOMIC_ACQUIRE) - done;
		/* a gang that refuses a descriptor (-EINVAL) has not begun the batch */
		const int error = (int)__atomic_load_n(&line->error, __ATOMIC_ACQUIRE);

		if (left > GK_RING_SIZE)
			return refuse(&why,
				"gang %u has %u unfinished batches, expected at most %d", i, left,
				GK_RING_SIZE);
		if (raw != done)
			return refuse(&why,
				"gang %u was ended in batch %u, whose packets it has released, "
				"expected new gangs on a zeroed channel",
				i, done);
		if (left > 0 && (error == -ETIMEDOUT || error == -EIO))
			return refuse(&why,
				"gang %u was ended with %u unfinished batches, expected new gangs "
				"on a zeroed channel",
				i, left);
	}
	return 0;
}
