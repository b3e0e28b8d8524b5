/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Search for the blobs of a frame by labels: for blobs of any size and any number of blobs. Each
 * hit has a parent, which is a hit of its blob with a smaller index, or itself. Neighbours are
 * united by compare-and-swap, so that the order of threads does not matter.
 */
#ifndef GK_CUDA_LABELS_CUH
#define GK_CUDA_LABELS_CUH

/* Parts of the gang. @{ */
static __device__ __forceinline__ uint64_t
label_part(void)
{
	return (uint64_t)peak_state.gang * peak_args.s.pixels;
}

static __device__ __forceinline__ uint64_t
label_seed_part(void)
{
	return (uint64_t)peak_state.gang * peak_args.s.seeds_max;
}
/** @} */

static __device__ __forceinline__ uint32_t
label_root(uint32_t *parent, uint32_t at)
{
	uint32_t next = __ldcg(&parent[at]);

	while (next != at) {
		const uint32_t after = __ldcg(&parent[next]);

		/* shorten the path; any ancestor is a valid parent */
		if (after != next)
			atomicMin(&parent[at], after);
		at = next;
		next = after;
	}
	return at;
}

static __device__ __forceinline__ void
label_unite(uint32_t *parent, uint32_t a, uint32_t b)
{
	for (;;) {
		uint32_t greater, smaller;

		a = label_root(parent, a);
		b = label_root(parent, b);
		if (a == b)
			return;
		greater = max(a, b);
		smaller = min(a, b);
		if (atomicCAS(&parent[greater], greater, smaller) == greater)
			return;
	}
}

static __device__ __forceinline__ bool
label_is_hit(const uint32_t *hits, uint32_t at)
{
	return __ldcg(&hits[at / 32]) >> at % 32 & 1;
}

static __device__ __forceinline__ bool
label_is_inner(uint32_t at)
{
	return peak_args.inner[at / 32] >> at % 32 & 1;
}

/* Unite a hit with the hits before it. */
static __device__ __forceinline__ void
label_neighbours(const uint32_t *hits, uint32_t *parent, uint32_t at)
{
	const uint32_t cols = peak_args.s.cols;
	const struct gk_peak_panel *panel = &peak_args.panel[peak_args.panel_of[at]];
	const uint32_t row = at / cols, fs = at - row * cols - panel->fs, ss = row - panel->ss;

	if (fs > 0 && label_is_hit(hits, at - 1))
		label_unite(parent, at, at - 1);
	if (ss == 0)
		return;
	if (label_is_hit(hits, at - cols)) {
		label_unite(parent, at, at - cols);
		return; /* the other two are neighbours of this pixel */
	}
	if (fs > 0 && label_is_hit(hits, at - cols - 1))
		label_unite(parent, at, at - cols - 1);
	if (fs + 1 < panel->width && label_is_hit(hits, at - cols + 1))
		label_unite(parent, at, at - cols + 1);
}

/* Call `what` for each hit of the frame. */
template <typename action>
static __device__ __forceinline__ void
label_for_hits(const uint32_t *hits, action what)
{
	for (uint32_t i = peak_thread(); i < peak_args.s.words; i += peak_threads())
		for (uint32_t bits = __ldcg(&hits[i]); bits != 0; bits &= bits - 1)
			what(i * 32 + (uint32_t)__ffs((int)bits) - 1);
}

/* List the seeds, with room for the positions of their blobs. */
static __device__ __forceinline__ void
label_list_seed(struct gk_cuda_peak_counters *c, uint32_t at)
{
	const uint64_t part = label_part();
	const uint32_t root = __ldcg(&peak_args.parent[part + at]);
	const uint32_t n = __ldcg(&peak_args.size[part + root]);
	uint32_t k, position;

	if (!label_is_inner(at) || __ldcg(&peak_args.smallest[part + root]) != at ||
		n < peak_state.params.min_pixels || n > peak_state.params.max_pixels)
		return;
	k = atomicAdd(&c->seeds, 1u);
	position = atomicAdd(&c->positions, n);
	__stcg((uint2 *)&peak_args.seed[label_seed_part() + k], make_uint2(at, position));
}

/* A warp: fill and measure the blob of a seed. */
static __device__ __forceinline__ void
label_find_blob(uint32_t f, uint32_t number)
{
	const uint2 seed = __ldcg((const uint2 *)&peak_args.seed[label_seed_part() + number]);
	const uint32_t cols = peak_args.s.cols, row = seed.x / cols, column = seed.x - row * cols;
	const uint32_t panel_number = peak_args.panel_of[seed.x];
	const struct gk_peak_panel panel = peak_args.panel[panel_number];
	const struct gk_peak_hits hits = {slot_hits(peak_state.slot + f), cols / 32};
	uint32_t *blob = peak_args.position + label_part() + seed.y;
	struct gk_cuda_peak_record *to = peak_records() + number;
	struct gk_cuda_peak_record record;
	uint32_t n = 0;

	if (peak_lane() == 0)
		n = gk_peak_fill(
			&hits, &panel, gk_peak_position(column - panel.fs, row - panel.ss), blob);
	n = __shfl_sync(PEAK_LANES, n, 0);
	__syncwarp(); /* the positions */
	if (peak_measure(peak_state.slot + f, panel_number, &panel, blob, n, peak_args.bin[seed.x],
		    &record) == GK_PEAK_DROPPED) {
		if (peak_lane() == 0)
			to->verdict = GK_PEAK_DROPPED;
	} else if (peak_lane() == 0) {
		atomicAdd(&peak_args.counters[peak_state.slot + f].by_labels, 1u);
		peak_write(f, &record, to);
	}
	__syncwarp();
}

/* All blocks of the gang: find the peaks of a frame. @return false: killed */
static __device__ __noinline__ bool
peak_search_labels(uint32_t f)
{
	const uint32_t slot = peak_state.slot + f;
	const uint64_t part = label_part();
	uint32_t *parent = peak_args.parent + part, *size = peak_args.size + part;
	uint32_t *smallest = peak_args.smallest + part;
	const uint32_t *hits = slot_hits(slot);
	const uint32_t warps = peak_state.blocks * GK_CUDA_WARPS;
	struct gk_cuda_peak_counters *c = &peak_args.counters[slot];
	uint32_t seeds;

	peak_clear_keys(slot);
	label_for_hits(hits, [=](uint32_t at) {
		__stcg(&parent[at], at);
		__stcg(&size[at], 0u);
		__stcg(&smallest[at], UINT32_MAX);
	});
	if (!peak_barrier())
		return false;
	label_for_hits(hits, [=](uint32_t at) { label_neighbours(hits, parent, at); });
	if (!peak_barrier())
		return false;
	label_for_hits(hits, [=](uint32_t at) {
		const uint32_t root = label_root(parent, at);

		atomicMin(&parent[at], root);
		atomicAdd(&size[root], 1u);
		if (label_is_inner(at))
			atomicMin(&smallest[root], at);
	});
	if (!peak_barrier())
		return false;
	label_for_hits(hits, [=](uint32_t at) { label_list_seed(c, at); });
	if (!peak_barrier())
		return false;
	seeds = __ldcg(&c->seeds);
	for (uint32_t i = peak_state.block + peak_warp() * peak_state.blocks; i < seeds; i += warps)
		label_find_blob(f, i);
	if (!peak_barrier())
		return false;
	peak_order(seeds, true);
	/* the next frame uses the same memory */
	return peak_barrier();
}

#endif /* GK_CUDA_LABELS_CUH */
