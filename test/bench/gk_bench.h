/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of gk_bench share: a working set, and the passes that are its floor. */
#ifndef GK_BENCH_H
#define GK_BENCH_H

#include <stdint.h>
#include <time.h>

#include "gk.h"
#include "gk_ring.h"

struct bench {
	struct gk_config config; /* of the gangs that are open */
	struct gk *gk;
	struct gk_ring ring;
	uint8_t *packets; /* of all frames, one after the other: packet_of() */
	float *p[3];
	float *r[3];
	uint32_t frames; /* all of them, the working set */
	uint32_t repeats;
	const char *only_row; /* NULL: all */
};

/* What a row of the table writes, a frame. */
struct floor_writes {
	uint32_t pixel_bytes; /* of a full image; 0 = none */
	uint32_t nnz;	      /* pixels of a CSR list; 0 = none */
};

/*
 * Bytes of a buffer beside its packet's pixels, as mbufs have: neighbours begin at other
 * places of a page.
 */
#define PACKET_MORE 576

static inline uint64_t
packet_stride(const struct gk_geometry *g)
{
	return (uint64_t)g->tile_rows * g->cols * sizeof(uint16_t) + PACKET_MORE;
}

/* The pixels of a tile of a frame. */
static inline uint16_t *
packet_of(const struct bench *b, uint32_t frame, uint32_t tile)
{
	const struct gk_geometry *g = &b->config.geometry;

	return (uint16_t *)(b->packets + ((uint64_t)frame * g->tiles + tile) * packet_stride(g));
}

/* Of this thread: what others do on the machine counts as little as may be. */
static inline double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * The floor: for each batch, tile by tile, reads the coefficients of G0 once and the raw data of
 * every frame, and writes as many bytes as the row does, to where it does, and does nothing else.
 * @return seconds for all frames
 */
double floor_run(const struct bench *b, uint32_t batch, const struct floor_writes *writes);

#endif /* GK_BENCH_H */
