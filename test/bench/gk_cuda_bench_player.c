/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in memory, gangs that process them, and a builder without other work. */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gk_cuda_bench.h"

void
bench_check(const struct bench *b, CUresult ret, const char *call)
{
	const char *name = "unknown error";

	if (ret == CUDA_SUCCESS)
		return;
	b->cuda->cuGetErrorName(ret, &name);
	fprintf(stderr, "gk_cuda_bench: %s: %s\n", call, name);
	exit(1);
}

double
bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int
compare_shots(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void *
bench_memory(const struct bench *b, uint64_t size)
{
	const uint64_t whole = (size + 4095) & ~UINT64_C(4095);
	void *memory = aligned_alloc(4096, whole);

	if (memory == NULL) {
		fprintf(stderr, "gk_cuda_bench: no memory for %llu bytes\n",
			(unsigned long long)size);
		exit(1);
	}
	memset(memory, 0, whole);
	CHECK(b,
		cuMemHostRegister(
			memory, whole, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	return memory;
}

void
bench_free(const struct bench *b, void *memory)
{
	if (memory == NULL)
		return;
	CHECK(b, cuMemHostUnregister(memory));
	free(memory);
}

static struct gk_frame *
frame_of(const struct player *p, uint32_t slot)
{
	return (struct gk_frame *)(p->config.frames + slot * gk_frame_stride(&p->config.geometry));
}

int
player_open(struct player *p, struct bench *b, uint32_t gangs, uint32_t workers,
	enum gk_memory packets, enum outputs outputs, enum gk_value value)
{
	const uint64_t tile = (uint64_t)b->geometry.tile_rows * b->geometry.cols;
	const uint16_t *raw = packets == GK_MEMORY_HOST ? b->host_raw : b->device_raw;
	struct gk_config *c = &p->config;
	int ret;

	memset(p, 0, sizeof(*p));
	p->bench = b;
	p->depth = 4;
	c->geometry = b->geometry;
	c->value = value;
	gk_layout_init(&c->layout, &c->geometry, value, (uint32_t)(b->pixels / 16));
	c->gangs = gangs;
	c->workers = workers;
	c->packets = packets;
	c->context = b->context;
	c->watchdog_ms = 10000;
	c->nb_frames = BENCH_FRAMES;
	c->nb_outputs = outputs == OUTPUTS_NONE ? 0 : BENCH_FRAMES;
	c->channel = bench_memory(b, sizeof(*c->channel));
	c->frames = bench_memory(b, BENCH_FRAMES * gk_frame_stride(&c->geometry));
	c->results = bench_memory(b, BENCH_FRAMES * sizeof(*c->results));
	c->details = bench_memory(b, BENCH_FRAMES * sizeof(*c->details));
	c->chunks = b->chunks;
	if (outputs == OUTPUTS_HOST)
		c->outputs = bench_memory(b, BENCH_FRAMES * c->layout.stride);
	if (outputs == OUTPUTS_DEVICE) {
		CHECK(b, cuMemAlloc(&p->device_outputs, BENCH_FRAMES * c->layout.stride));
		c->outputs = (uint8_t *)(uintptr_t)p->device_outputs;
	}
	if (b->bin != NULL)
		c->channel->pixels = (struct gk_peak_pixels){.bin = (uintptr_t)b->bin,
			.panel = (uintptr_t)b->panel,
			.nb_panels = b->nb_panels};
	if (b->radial != NULL) {
		c->channel->radial =
			(struct gk_radial_pixels){.bin = (uintptr_t)b->radial, .nb_bins = b->bins};
		c->nb_profiles = BENCH_FRAMES;
		c->profiles = bench_memory(b, BENCH_FRAMES * gk_profile_stride(b->bins));
	}
	for (int s = 0; s < 3; s++) {
		c->channel->coef[0].p[s] = b->device_planes + 2 * s * b->pixels * 4;
		c->channel->coef[0].r[s] = b->device_planes + (2 * s + 1) * b->pixels * 4;
	}
	for (uint32_t f = 0; f < BENCH_FRAMES; f++) {
		frame_of(p, f)->frame = f;
		frame_of(p, f)->profile = f;
		frame_of(p, f)->out = outputs == OUTPUTS_NONE ? GK_NO_OUT : f;
		for (uint32_t t = 0; t < c->geometry.tiles; t++)
			frame_of(p, f)->packet[t] = (uintptr_t)(raw + f * b->pixels + t * tile);
	}
	for (uint32_t i = 0; i < gangs; i++)
		gk_ring_init(&p->ring[i], c->channel, i);
	player_params(p, GK_KIND_CSR, 0, 0);
	ret = gk_cuda_ops.create(c, &p->gk);
	if (ret == 0)
		ret = gk_cuda_ops.start(p->gk);
	if (ret != 0)
		fprintf(stderr, "gk_cuda_bench: %s\n", gk_cuda_ops.why());
	return ret;
}

void
player_close(struct player *p)
{
	int ret;

	while ((ret = gk_cuda_ops.stop(p->gk)) == -EBUSY)
		sched_yield();
	if (ret != 0)
		fprintf(stderr, "gk_cuda_bench: %s\n", gk_cuda_ops.why());
	gk_cuda_ops.destroy(p->gk);
	bench_free(p->bench, p->config.channel);
	bench_free(p->bench, p->config.frames);
	bench_free(p->bench, p->config.results);
	bench_free(p->bench, p->config.details);
	bench_free(p->bench, p->config.profiles);
	if (p->device_outputs != 0)
		CHECK(p->bench, cuMemFree(p->device_outputs));
	else
		bench_free(p->bench, p->config.outputs);
}

void
player_params(struct player *p, uint32_t kind, uint32_t chunks, int hit)
{
	p->config.channel->params[0] = (struct gk_params){.kind = kind,
		.chunks = chunks,
		.strong_threshold = 5.0f,
		.csr_threshold = 5.0f,
		.strong_min = hit ? 0 : UINT32_MAX,
		.strong_max = UINT32_MAX,
		.nnz_max = p->config.layout.nnz_cap};
}

static void
submit(struct player *p, struct gk_ring *ring, uint32_t n, uint32_t *slot)
{
	struct gk_work *w = gk_ring_next(ring);

	w->nb_frames = n;
	for (uint32_t i = 0; i < n; i++) {
		w->slot[i] = *slot;
		*slot = (*slot + 1) % BENCH_FRAMES;
	}
	gk_ring_submit(ring);
}

double
player_run(struct player *p, uint32_t batch, uint64_t n)
{
	const uint32_t gangs = p->config.gangs;
	/* batches in flight share neither slots nor outputs */
	const uint32_t most = BENCH_FRAMES / batch / gangs;
	const uint32_t depth = most < 1 ? 1 : most < p->depth ? most : p->depth;
	const double start = bench_now();
	uint64_t sent = 0, done = 0;
	uint32_t slot = 0;

	while (done < n) {
		for (uint32_t g = 0; g < gangs; g++) {
			struct gk_ring *ring = &p->ring[g];

			while (gk_ring_pending(ring) > 0 &&
				gk_ring_is_done(ring, ring->done_tail)) {
				gk_ring_collect(ring);
				done += batch;
			}
			while (sent < n && gk_ring_pending(ring) < depth) {
				submit(p, ring, batch, &slot);
				sent += batch;
			}
			if (gk_ring_error(ring) != 0) {
				fprintf(stderr, "gk_cuda_bench: gang %u: error %d\n", g,
					gk_ring_error(ring));
				exit(1);
			}
		}
	}
	return bench_now() - start;
}

void
player_latency(struct player *p, uint64_t shots)
{
	struct gk_ring *ring = &p->ring[0];
	struct timespec a, b;
	uint32_t slot = 0;

	for (uint64_t i = 0; i < shots; i++) {
		clock_gettime(CLOCK_MONOTONIC, &a);
		submit(p, ring, 1, &slot);
		while (!gk_ring_is_done(ring, ring->done_tail))
			;
		clock_gettime(CLOCK_MONOTONIC, &b);
		gk_ring_collect(ring);
		p->bench->shots[i] = (uint64_t)((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec) -
			(uint64_t)a.tv_nsec;
	}
	qsort(p->bench->shots, shots, sizeof(p->bench->shots[0]), compare_shots);
}
