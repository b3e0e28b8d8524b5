/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two rigs with the same inputs, one of host gangs and one of CUDA gangs: for any input, every byte
 * of results, outputs, accumulators and pedestals must be the same.
 */
#ifndef GK_CUDA_RIG_H
#define GK_CUDA_RIG_H

#include <sched.h>
#include <time.h>

#include "gk_cuda_driver.h"
#include "gk_peaks.h"
#include "gk_radial.h"
#include "gk_rig.h"

/* The kernel runs on CPUs (gk_cuda_emulated.c). */
#ifndef GK_EMULATED
#define GK_EMULATED 0
#endif

/* Gangs with at least one thread block each: the emulation has four blocks, and one dispatches. */
#define PAIR_GANGS_MAX (GK_EMULATED ? 3 : 8)

struct pair {
	struct rig host;
	struct rig cuda;
	const struct gk_cuda_symbols *driver;
	CUdevice_v1 device;
	CUcontext context;
	CUstream stream;
	int in_device;	 /* packets, outputs, coefficients and accumulators are in GPU memory */
	uint8_t *raw;	 /* target of the CUDA rig's pointer tables */
	uint8_t *packed; /* all of these in GPU memory */
};

/* Load CUDA. @return NULL: there is no GPU; the reason is printed */
static inline const struct gk_cuda_symbols *
pair_driver(void)
{
	const struct gk_cuda_symbols *driver;
	char why[256] = "";

	driver = gk_cuda_driver(why, sizeof(why));
	if (driver == NULL)
		printf("skipped: %s\n", why);
	return driver;
}

/* Tests of large frames and of races are for a GPU. */
static inline void
pair_skip_emulated(void)
{
	if (GK_EMULATED)
		skip();
}

/* Wait for the gangs. Those that are emulated need the CPU. */
static inline void
pair_pause(void)
{
	const struct timespec pause = {.tv_nsec = 200000};

	if (GK_EMULATED)
		nanosleep(&pause, NULL);
	else
		sched_yield();
}

static inline void
pair_check(CUresult ret, const char *call)
{
	if (ret != CUDA_SUCCESS)
		fail_msg("%s: CUDA error %d", call, ret);
}
#define CHECK(call) pair_check(call, #call)

static inline void
pair_register(const struct pair *p, void *memory, uint64_t size)
{
	CHECK(p->driver->cuMemHostRegister(memory, (size + 4095) & ~UINT64_C(4095),
		CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
}

#define PAIR_PIECES 22

/* Every block of host memory that a CUDA gang may access, with its size. */
static inline uint32_t
pair_pieces(const struct pair *p, void *memory[PAIR_PIECES], uint64_t size[PAIR_PIECES])
{
	const struct gk_config *c = &p->cuda.config;
	const uint64_t plane = gk_pixels(&c->geometry) * sizeof(float);
	uint32_t n = 0;

#define PIECE(what, bytes) (memory[n] = (what), size[n++] = (bytes))
	PIECE(c->channel, sizeof(*c->channel));
	PIECE(c->frames, c->nb_frames * gk_frame_stride(&c->geometry));
	PIECE(c->results, c->nb_frames * sizeof(*c->results));
	if (!p->in_device)
		PIECE(c->outputs, c->nb_outputs * c->layout.stride);
	PIECE(p->cuda.memory, RIG_TRAILER + c->nb_frames * rig_raw_stride(&p->cuda));
	for (int i = 0; i < 3; i++) {
		PIECE(p->cuda.p[i], plane);
		PIECE(p->cuda.r[i], plane);
	}
	PIECE(p->cuda.p_next, plane);
	for (int i = 0; i < GK_DARK_MAX; i++)
		PIECE(p->cuda.cells[i], gk_dark_size(&c->geometry));
	PIECE(c->details, c->nb_frames * sizeof(*c->details));
	if (c->profiles != NULL) {
		PIECE(c->profiles, c->nb_profiles * gk_profile_stride(c->channel->radial.nb_bins));
		PIECE((void *)(uintptr_t)c->channel->radial.bin,
			gk_pixels(&c->geometry) * sizeof(uint16_t));
	}
	if (c->channel->pixels.bin != 0) {
		PIECE((void *)(uintptr_t)c->channel->pixels.bin,
			gk_pixels(&c->geometry) * sizeof(uint16_t));
		PIECE((void *)(uintptr_t)c->channel->pixels.panel,
			c->channel->pixels.nb_panels * sizeof(struct gk_peak_panel));
	}
#undef PIECE
	return n;
}

static inline void
pair_copy(const struct pair *p, uint64_t to, uint64_t from, uint64_t size, int down)
{
	if (down)
		CHECK(p->driver->cuMemcpyDtoHAsync((void *)(uintptr_t)to, from, size, p->stream));
	else
		CHECK(p->driver->cuMemcpyHtoDAsync(
			to, (const void *)(uintptr_t)from, size, p->stream));
	CHECK(p->driver->cuStreamSynchronize(p->stream));
}

/* GPU memory for coefficients, accumulators, packets and outputs. */
static inline void
pair_move(struct pair *p)
{
	struct gk_config *c = &p->cuda.config;
	struct gk_channel *channel = c->channel;
	const uint64_t plane = (gk_pixels(&c->geometry) * 4 + 255) & ~UINT64_C(255);
	const uint64_t raw = RIG_TRAILER + c->nb_frames * rig_raw_stride(&p->cuda);
	const uint64_t outputs = c->nb_outputs * c->layout.stride;
	CUdeviceptr_v2 at;

	CHECK(p->driver->cuMemAlloc(&at, 7 * plane + GK_DARK_MAX * 2 * plane + raw + outputs));
	p->packed = (uint8_t *)(uintptr_t)at;
	for (int i = 0; i < 3; i++) {
		channel->coef[0].p[i] = at + i * plane;
		channel->coef[0].r[i] = at + (3 + i) * plane;
	}
	channel->coef[1] = channel->coef[0];
	channel->coef[1].p[0] = at + 6 * plane;
	for (int i = 0; i < GK_DARK_MAX; i++)
		channel->dark[i].cells = at + 7 * plane + i * 2 * plane;
	p->raw = p->packed + 7 * plane + GK_DARK_MAX * 2 * plane + RIG_TRAILER;
	c->outputs = p->raw + raw - RIG_TRAILER;
	pair_copy(p, (uintptr_t)c->outputs, (uintptr_t)p->host.config.outputs, outputs, 0);
	for (int i = 0; i < GK_DARK_MAX; i++)
		pair_copy(p, channel->dark[i].cells, (uintptr_t)p->cuda.cells[i],
			gk_dark_size(&c->geometry), 0);
}

/* Copy the host rig's coefficients to the CUDA rig; under another version if they changed. */
static inline void
pair_coef(struct pair *p)
{
	const uint64_t plane = gk_pixels(&p->host.config.geometry) * sizeof(float);
	const struct gk_coef *coef = p->cuda.config.channel->coef;

	for (int i = 0; i < 3; i++) {
		memcpy(p->cuda.p[i], p->host.p[i], plane);
		memcpy(p->cuda.r[i], p->host.r[i], plane);
		if (p->in_device) {
			pair_copy(p, coef[0].p[i], (uintptr_t)p->host.p[i], plane, 0);
			pair_copy(p, coef[0].r[i], (uintptr_t)p->host.r[i], plane, 0);
		}
	}
	memcpy(p->cuda.p_next, p->host.p_next, plane);
	if (p->in_device)
		pair_copy(p, coef[1].p[0], (uintptr_t)p->host.p_next, plane, 0);
}

/* Give a rig areas for profiles, and a map with the bins of its gangs. */
static inline void
pair_add_profiles(struct rig *rig, const struct gk_radial_map *map)
{
	struct gk_config *c = &rig->config;
	const uint64_t bins = gk_pixels(&c->geometry) * sizeof(*map->bin);
	uint16_t *bin = rig_alloc(bins);

	memcpy(bin, map->bin, bins);
	c->channel->radial =
		(struct gk_radial_pixels){.bin = (uintptr_t)bin, .nb_bins = map->nb_bins};
	c->nb_profiles = c->nb_frames + 3;
	c->profiles = rig_alloc(c->nb_profiles * gk_profile_stride(map->nb_bins));
	memset(c->profiles, RIG_GUARD, c->nb_profiles * gk_profile_stride(map->nb_bins));
}

/* Give a rig a map of pixels, and its outputs room for peaks. */
static inline void
pair_add_map(struct rig *rig, const struct gk_peak_map *map, uint32_t peaks_cap)
{
	struct gk_config *c = &rig->config;
	const uint64_t bins = gk_pixels(&c->geometry) * sizeof(*map->bin);
	const uint64_t panels = map->nb_panels * sizeof(*map->panel);
	struct gk_peak_pixels *pixels = &c->channel->pixels;

	gk_layout_add_peaks(&c->layout, peaks_cap);
	free(c->outputs);
	c->outputs = rig_alloc(c->nb_outputs * c->layout.stride);
	memset(c->outputs, RIG_GUARD, c->nb_outputs * c->layout.stride);
	*pixels = (struct gk_peak_pixels){.bin = (uintptr_t)rig_alloc(bins),
		.panel = (uintptr_t)rig_alloc(panels),
		.nb_panels = map->nb_panels};
	memcpy((void *)(uintptr_t)pixels->bin, map->bin, bins);
	memcpy((void *)(uintptr_t)pixels->panel, map->panel, panels);
}

/* Give a rig what the maps need. Its gangs are created again. */
static inline void
pair_add_maps(struct rig *rig, const struct gk_peak_map *map, uint32_t peaks_cap,
	const struct gk_radial_map *radial)
{
	rig->ops->destroy(rig->gk);
	if (map != NULL)
		pair_add_map(rig, map, peaks_cap);
	if (radial != NULL)
		pair_add_profiles(rig, radial);
	if (rig->ops->create(&rig->config, &rig->gk) != 0)
		fail_msg("%s", rig->ops->why());
}

/*
 * Call rig_open_trailers() for both; `tune` may change the CUDA rig's configuration.
 * @param map     for searches for peaks; NULL: none
 * @param radial  for radial profiles; NULL: none
 */
static inline void
pair_open_search(struct pair *p, const struct gk_geometry *g, enum gk_value value, uint32_t nnz_cap,
	uint32_t gangs, uint32_t slots, uint32_t first, int in_device,
	void (*tune)(struct gk_config *), int trailers, const struct gk_peak_map *map,
	uint32_t peaks_cap, const struct gk_radial_map *radial)
{
	struct gk_config *c = &p->cuda.config;
	void *memory[PAIR_PIECES];
	uint64_t size[PAIR_PIECES];
	uint32_t n;

	memset(p, 0, sizeof(*p));
	rig_open_trailers(&p->host, g, value, nnz_cap, gangs, slots, first, trailers);
	rig_open_trailers(&p->cuda, g, value, nnz_cap, gangs, slots, first, trailers);
	if (map != NULL || radial != NULL) {
		pair_add_maps(&p->host, map, peaks_cap, radial);
		pair_add_maps(&p->cuda, map, peaks_cap, radial);
	}
	p->cuda.ops->destroy(p->cuda.gk);
	p->cuda.gk = NULL;
	p->cuda.ops = gk_ops_find("cuda");
	assert_non_null(p->cuda.ops);
	p->driver = gk_cuda_driver(NULL, 0);
	assert_non_null(p->driver);
	CHECK(p->driver->cuDeviceGet(&p->device, 0));
	CHECK(p->driver->cuDevicePrimaryCtxRetain(&p->context, p->device));
	CHECK(p->driver->cuCtxPushCurrent(p->context));
	CHECK(p->driver->cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING));
	p->in_device = in_device;
	p->raw = p->cuda.raw;
	n = pair_pieces(p, memory, size);
	for (uint32_t i = 0; i < n; i++)
		pair_register(p, memory[i], size[i]);
	if (in_device) {
		free(c->outputs);
		pair_move(p);
	}
	c->workers = 0;
	c->packets = in_device ? GK_MEMORY_DEVICE : GK_MEMORY_HOST;
	if (tune != NULL)
		tune(c);
	if (p->cuda.ops->create(c, &p->cuda.gk) != 0)
		fail_msg("%s", p->cuda.ops->why());
}

static inline void
pair_open_trailers(struct pair *p, const struct gk_geometry *g, enum gk_value value,
	uint32_t nnz_cap, uint32_t gangs, uint32_t slots, uint32_t first, int in_device,
	void (*tune)(struct gk_config *), int trailers)
{
	pair_open_search(p, g, value, nnz_cap, gangs, slots, first, in_device, tune, trailers, NULL,
		0, NULL);
}

static inline void
pair_open(struct pair *p, const struct gk_geometry *g, enum gk_value value, uint32_t nnz_cap,
	uint32_t gangs, uint32_t slots, uint32_t first, int in_device,
	void (*tune)(struct gk_config *))
{
	pair_open_trailers(p, g, value, nnz_cap, gangs, slots, first, in_device, tune, 0);
}

static inline void
pair_close(struct pair *p)
{
	void *memory[PAIR_PIECES];
	uint64_t size[PAIR_PIECES];
	const uint32_t n = pair_pieces(p, memory, size);
	CUcontext context;

	p->cuda.ops->destroy(p->cuda.gk);
	p->cuda.gk = NULL;
	for (uint32_t i = 0; i < n; i++)
		CHECK(p->driver->cuMemHostUnregister(memory[i]));
	if (p->in_device) {
		CHECK(p->driver->cuMemFree((uintptr_t)p->packed));
		p->cuda.config.outputs = NULL;
	}
	CHECK(p->driver->cuStreamDestroy(p->stream));
	CHECK(p->driver->cuCtxPopCurrent(&context));
	CHECK(p->driver->cuDevicePrimaryCtxRelease(p->device));
	p->cuda.ops = p->host.ops;
	for (int i = 0; i < 2; i++) {
		const struct gk_config *c = i == 0 ? &p->host.config : &p->cuda.config;

		free((void *)(uintptr_t)c->channel->pixels.bin);
		free((void *)(uintptr_t)c->channel->pixels.panel);
		free((void *)(uintptr_t)c->channel->radial.bin);
		free(c->profiles);
	}
	rig_close(&p->cuda);
	rig_close(&p->host);
}

/* Copy a frame of the host rig, words and header, to the CUDA rig. */
static inline void
pair_frame(struct pair *p, uint32_t slot)
{
	const struct gk_frame *from = rig_frame(&p->host, slot);
	struct gk_frame *to = rig_frame(&p->cuda, slot);
	/* with the leader of the first tile */
	const uint64_t size = rig_raw_stride(&p->host), at = slot * size - RIG_TRAILER;

	if (p->in_device)
		pair_copy(p, (uintptr_t)p->raw + at, (uintptr_t)p->host.raw + at,
			size + RIG_TRAILER, 0);
	else
		memcpy(p->raw + at, p->host.raw + at, size + RIG_TRAILER);
	memcpy(to, from, sizeof(*to));
	for (uint32_t t = 0; t < p->host.config.geometry.tiles; t++)
		to->packet[t] = from->packet[t] == 0
			? 0
			: from->packet[t] - (uintptr_t)p->host.raw + (uintptr_t)p->raw;
}

/* Submit the same descriptor to both. */
static inline void
pair_submit(struct pair *p, uint32_t gang, const struct gk_work *work)
{
	struct gk_work *w;

	for (int i = 0; i < 2; i++) {
		struct rig *rig = i == 0 ? &p->host : &p->cuda;

		w = gk_ring_next(&rig->ring[gang]);
		assert_non_null(w);
		*w = *work;
		gk_ring_submit(&rig->ring[gang]);
	}
}

static inline double
pair_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CRC-32C, by the definition. */
static inline uint32_t
pair_crc32c(const uint8_t *bytes, uint64_t size)
{
	uint32_t crc = UINT32_MAX;

	for (uint64_t i = 0; i < size; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
	}
	return ~crc;
}

/*
 * Overwrite speculative output in the output slots of a batch: host gangs may write some, CUDA
 * gangs do not.
 */
static inline void
pair_forget_guesses(struct pair *p, struct rig *rig, const struct gk_work *work)
{
	const uint64_t stride = rig->config.layout.stride;
	const int far = rig == &p->cuda && p->in_device;
	uint8_t *copy = far ? malloc(stride) : NULL;

	for (uint32_t i = 0; i < work->nb_frames; i++) {
		const struct gk_result *result = &rig->config.results[work->slot[i]];
		struct gk_details *details = &rig->config.details[work->slot[i]];
		const uint64_t chunk = rig->config.chunks ? details->chunk_bytes : 0;
		const uint32_t out = rig_frame(rig, work->slot[i])->out;

		/* what the CRCs of CUDA gangs are compared with */
		if (rig == &p->host && rig->config.chunks)
			details->chunk_crc32c = chunk > 0
				? pair_crc32c(rig_output(rig, out) + rig->config.layout.raw, chunk)
				: 0;
		if (out == GK_NO_OUT)
			continue;
		if (!far) {
			rig_forget_guess(rig, result, chunk, rig_output(rig, out));
			continue;
		}
		assert_non_null(copy);
		pair_copy(p, (uintptr_t)copy, (uintptr_t)rig_output(rig, out), stride, 1);
		rig_forget_guess(rig, result, chunk, copy);
		pair_copy(p, (uintptr_t)rig_output(rig, out), (uintptr_t)copy, stride, 0);
	}
	free(copy);
}

/* Wait until both have completed all batches. */
static inline void
pair_drain(struct pair *p)
{
	const double start = pair_seconds();
	struct gk_ring *ring;

	rig_poll_all(&p->host);
	for (int i = 0; i < 2; i++) {
		struct rig *rig = i == 0 ? &p->host : &p->cuda;

		for (uint32_t g = 0; g < rig->config.gangs; g++) {
			ring = &rig->ring[g];
			while (gk_ring_pending(ring) > 0) {
				uint32_t batch;

				if (gk_ring_error(ring) != 0)
					fail_msg("gang %u: error %d", g, gk_ring_error(ring));
				if (pair_seconds() - start > 60)
					fail_msg("gang %u: batch %u is not done after 60 s", g,
						ring->done_tail);
				if (!gk_ring_is_done(ring, ring->done_tail)) {
					pair_pause();
					continue;
				}
				/* raw is at least done */
				assert_int_equal(gk_ring_take_raw(ring, &batch), 1);
				assert_int_equal(batch, ring->done_tail);
				pair_forget_guesses(p, rig, gk_ring_work(ring, ring->done_tail));
				gk_ring_collect(ring);
			}
		}
	}
}

static inline void
pair_same(const char *what, const void *host, const void *cuda, uint64_t size)
{
	const uint8_t *a = host, *b = cuda;

	if (memcmp(a, b, size) == 0)
		return;
	for (uint64_t i = 0; i < size; i++)
		if (a[i] != b[i])
			fail_msg("%s: byte %llu of %llu is 0x%02x on the GPU, 0x%02x on the host",
				what, (unsigned long long)i, (unsigned long long)size, b[i], a[i]);
}

/* Are two planes, accumulators or outputs the same? */
static inline void
pair_same_at(struct pair *p, const char *what, const void *host, uint64_t cuda, uint64_t size)
{
	void *copy;

	if (!p->in_device) {
		pair_same(what, host, (const void *)(uintptr_t)cuda, size);
		return;
	}
	copy = malloc(size);
	assert_non_null(copy);
	pair_copy(p, (uintptr_t)copy, cuda, size, 1);
	pair_same(what, host, copy, size);
	free(copy);
}

/* Compare all memory that gangs write, while no batch is in flight. */
static inline void
pair_compare(struct pair *p)
{
	const struct gk_config *h = &p->host.config, *c = &p->cuda.config;
	const uint64_t plane = gk_pixels(&h->geometry) * sizeof(float);

	for (uint32_t i = 0; i < h->nb_frames; i++)
		if (rig_frame(&p->host, i)->flags & GK_FRAME_TRAILER)
			pair_same("map of missing packets",
				gk_missing_map(&h->geometry, rig_frame(&p->host, i)),
				gk_missing_map(&c->geometry, rig_frame(&p->cuda, i)),
				gk_missing_size(&h->geometry));
	for (uint32_t i = 0; i < h->nb_frames; i++)
		if (memcmp(&h->results[i], &c->results[i], sizeof(h->results[i])) != 0)
			fail_msg("slot %u: count %u/%u nnz %u/%u sum %lld/%lld saturated %u/%u "
				 "invalid %u/%u verdict %u/%u kind %u/%u peaks %u/%u found %u/%u "
				 "(host/GPU)",
				i, h->results[i].strong_count, c->results[i].strong_count,
				h->results[i].nnz, c->results[i].nnz, (long long)h->results[i].sum,
				(long long)c->results[i].sum, h->results[i].saturated,
				c->results[i].saturated, h->results[i].invalid,
				c->results[i].invalid, h->results[i].verdict, c->results[i].verdict,
				h->results[i].kind, c->results[i].kind, h->results[i].peaks,
				c->results[i].peaks, h->results[i].peaks_found,
				c->results[i].peaks_found);
	pair_same("details", h->details, c->details, h->nb_frames * sizeof(*h->details));
	if (h->profiles != NULL)
		pair_same("profiles", h->profiles, c->profiles,
			h->nb_profiles * gk_profile_stride(h->channel->radial.nb_bins));
	pair_same_at(
		p, "outputs", h->outputs, (uintptr_t)c->outputs, h->nb_outputs * h->layout.stride);
	pair_same_at(p, "p[0] of version 0", p->host.p[0], c->channel->coef[0].p[0], plane);
	pair_same_at(p, "p[0] of version 1", p->host.p_next, c->channel->coef[1].p[0], plane);
	for (int i = 0; i < GK_DARK_MAX; i++)
		pair_same_at(p, "accumulators", p->host.cells[i], c->channel->dark[i].cells,
			gk_dark_size(&h->geometry));
	pair_same("updates", h->channel->update, c->channel->update, sizeof(h->channel->update));
}

static inline void
pair_start(struct pair *p)
{
	assert_int_equal(p->host.ops->start(p->host.gk), 0);
	if (p->cuda.ops->start(p->cuda.gk) != 0)
		fail_msg("%s", p->cuda.ops->why());
}

/* Stop a gang; any result except -EBUSY is accepted. */
static inline int
pair_stop_rig(struct rig *rig)
{
	const double start = pair_seconds();
	int ret;

	while ((ret = rig->ops->stop(rig->gk)) == -EBUSY) {
		if (pair_seconds() - start > 60)
			fail_msg("%s gangs do not stop", rig->ops->name);
		pair_pause();
	}
	return ret;
}

static inline void
pair_stop(struct pair *p)
{
	assert_int_equal(pair_stop_rig(&p->host), 0);
	if (pair_stop_rig(&p->cuda) != 0)
		fail_msg("%s", p->cuda.ops->why());
}

#endif /* GK_CUDA_RIG_H */
