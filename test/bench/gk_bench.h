/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of gk_bench share: a working set, and the passes that are its floor. */
#ifndef GK_BENCH_H
#define GK_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "bench_median.h"
#include "gk.h"
#include "gk_ring.h"

#define REPEATS_MAX BENCH_ROUNDS_MAX
#define BATCH_MAX   8

/* Thresholds of a receiver whose configuration names none, photons */
#define STRONG_THRESHOLD 10.0f
#define CSR_THRESHOLD	 2.0f

/* Gangs of one instruction set on their own channel; all share the working set. */
struct bench_set {
	enum gk_isa isa;
	struct gk_config config;
	struct gk *gk;
	struct gk_ring ring;
	double speed[REPEATS_MAX]; /* GB/s of raw data, of the row at hand */
};

struct bench {
	struct gk_config config; /* of all sets but for channel and isa */
	uint8_t *packets;	 /* of all frames, one after the other: packet_of() */
	float *p[3];
	float *r[3];
	uint64_t *cells;    /* of darks */
	bool bright;	    /* frames have bright spots */
	uint32_t modules;   /* of a frame */
	uint32_t frames;    /* all of them, the working set */
	uint32_t repeats;   /* rounds of each row, at most */
	double seconds;	    /* ..., which take no longer, if they are enough */
	const char *only;   /* row; NULL: all */
	const char *script; /* gk_bench_numpy.py; NULL: not asked for */
	struct bench_set set[GK_ISAS];
	uint32_t nb_sets;
};

/* What a row of the table writes, a frame. */
struct floor_writes {
	uint32_t pixel_bytes; /* of a full image; 0 = none */
	uint32_t nnz;	      /* pixels of a CSR list; 0 = none */
	bool cells;	      /* of darks, read and written once a batch */
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

static inline struct gk_frame *
frame_of(const struct bench *b, uint32_t slot)
{
	return (struct gk_frame *)(b->config.frames + slot * gk_frame_stride(&b->config.geometry));
}

/* Of this thread: what others do on the machine counts as little as may be. */
static inline double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Zeroed memory in huge pages, if there are any; exits when there is none. */
void *bench_need(uint64_t size);

/*
 * Frames of a detector, as many as b->frames says, or, if that is 0, as it takes to be twice the
 * L3 cache; coefficients, one pixel in a thousand dead; and gangs' memory.
 */
void bench_open(struct bench *b);
void bench_close(struct bench *b);

/* From now on frames have bright spots, in G1 and G2, or none. */
void bench_bright(struct bench *b, bool bright);

/*
 * The floor: for each batch, piece by piece, reads the coefficients of G0 once and the raw data of
 * every frame, and writes as many bytes as the row does, to where it does, and does nothing else.
 * There are several ways of that, and which is the fastest depends on the processor.
 */
#define FLOOR_WAYS 8

/* @return NULL: this way is the same as another one for what is written */
const char *floor_name(unsigned int way, const struct floor_writes *writes);

/* @return seconds for all frames */
double floor_run(
	const struct bench *b, unsigned int way, uint32_t batch, const struct floor_writes *writes);

/* Rows of what is in the caches: what arithmetic takes when memory costs nothing. */
void near_rows(const struct bench *b);

#endif /* GK_BENCH_H */
