/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of gk_bench: a working set, and the passes that are the floor. */
#ifndef GK_BENCH_H
#define GK_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "bench_median.h"
#include "gk.h"
#include "gk_peaks.h"
#include "gk_ring.h"

#define REPEATS_MAX BENCH_ROUNDS_MAX
#define BATCH_MAX   8

/* Thresholds of a receiver with default settings, photons */
#define STRONG_THRESHOLD 10.0f
#define CSR_THRESHOLD	 2.0f

/* Gangs of one instruction set with their own channel; all use the same working set. */
struct bench_set {
	enum gk_isa isa;
	struct gk_config config;
	struct gk *gk;
	struct gk_ring ring;
	double speed[REPEATS_MAX];   /* GB/s of raw data in the current row */
	double without[REPEATS_MAX]; /* the same without trailers */
};

struct bench {
	struct gk_config config; /* of all instruction sets, except for channel and isa */
	uint8_t *packets;	 /* packets of all frames, one frame after the other: packet_of() */
	float *p[3];
	float *r[3];
	uint64_t *cells; /* accumulators of dark frames */
	bool bright;	 /* frames have bright spots */
	/*
	 * The cache lines of coefficients that the pixels in G1 and G2 need, in their order, and
	 * the first one of each strip: bench_line(). NULL: no frame has any.
	 */
	uint32_t *lines;
	uint32_t *strip_lines; /* [frames * strips of a frame + 1] */
	uint32_t modules;      /* modules of a frame */
	uint32_t frames;       /* number of frames of the working set */
	uint32_t repeats;      /* maximum number of rounds of a row */
	double seconds;	       /* limit of their time, after enough rounds */
	const char *only;      /* only this row; NULL: all */
	const char *script;    /* path of gk_bench_numpy.py; NULL: not used */
	struct bench_set set[GK_ISAS];
	uint32_t nb_sets;
};

/* Bytes that a row of the table writes for a frame. */
struct floor_writes {
	uint32_t pixel_bytes; /* of a full image; 0: none */
	uint32_t nnz;	      /* pixels of a CSR list; 0: none */
	bool cells;	      /* accumulators of dark frames, read and written once a batch */
	uint32_t lines;	      /* coefficients of G1 and G2 that are read, cache lines of a frame */
};

/* Pixels of a strip, the smallest piece of a frame */
#define STRIP 1024

/*
 * Bytes of a buffer in addition to its packet's pixels, as in mbufs, so that neighbours begin at
 * different offsets in a page.
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

/* The number after them, as in frames with GK_FRAME_TRAILER. */
static inline uint64_t *
trailer_of(const struct bench *b, uint32_t frame, uint32_t tile)
{
	const struct gk_geometry *g = &b->config.geometry;

	return (uint64_t *)(packet_of(b, frame, tile) + (uint64_t)g->tile_rows * g->cols);
}

static inline struct gk_frame *
frame_of(const struct bench *b, uint32_t slot)
{
	return (struct gk_frame *)(b->config.frames + slot * gk_frame_stride(&b->config.geometry));
}

/* CPU time of this thread, so that other programs affect it as little as possible. */
static inline double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Zeroed memory, in huge pages if available; exits if there is none. */
void *bench_need(uint64_t size);

/*
 * Make the frames of a detector (b->frames, or, if that is 0, enough for twice the L3 cache),
 * coefficients with one dead pixel in a thousand, and the memory of gangs.
 */
void bench_open(struct bench *b);
void bench_close(struct bench *b);

/*
 * A line of bench.lines: number of the line in a plane of coefficients << 2 | number of the plane:
 * p of G1, r of G1, p of G2, r of G2.
 */
static inline const float *
bench_line(const struct bench *b, uint32_t line)
{
	float *const plane[] = {b->p[1], b->r[1], b->p[2], b->r[2]};

	return plane[line & 3] + (line >> 2) * (uint64_t)16;
}

/* Set whether frames have bright spots in G1 and G2 from now on. */
void bench_bright(struct bench *b, bool bright);

/*
 * The floor. For each batch, piece by piece, it reads the coefficients of G0 once and the raw data
 * of every frame, and writes as many bytes to the same locations as the row does. Of the
 * coefficients of G1 and G2 it reads the cache lines that the frame's pixels need. There are
 * several variants; which one is fastest depends on the processor.
 */
#define FLOOR_WAYS 8

/* @return NULL: this variant equals another one for these writes */
const char *floor_name(unsigned int way, const struct floor_writes *writes);

/* @return seconds for all frames */
double floor_run(
	const struct bench *b, unsigned int way, uint32_t batch, const struct floor_writes *writes);

/* Rows with data in the caches: the time of the arithmetic alone. */
void near_rows(const struct bench *b);

/* Process all frames in the gang, in batches. @return seconds */
double bench_play(const struct bench *b, struct bench_set *s, uint32_t batch);

/* The search for peaks. */
void peak_rows(const struct bench *b);

/* Modules in two columns around the beam. @param bin,panel  memory of the map */
struct gk_peak_map bench_map(uint32_t modules, uint16_t *bin, struct gk_peak_panel *panel);

/* Gangs that search none to all frames for peaks. @return 0 or -errno */
int search_rows(struct bench *b);

/* Radial profiles, beside the conversion alone. It changes the frames. @return 0 or -errno */
int radial_rows(struct bench *b);

#endif /* GK_BENCH_H */
