/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the parts of gk_cuda_bench: frames of random words, in host and in GPU memory. */
#ifndef GK_CUDA_BENCH_H
#define GK_CUDA_BENCH_H

#include <stdint.h>

#include "gk.h"
#include "gk_cuda_driver.h"
#include "gk_ring.h"

#define BENCH_FRAMES 128 /* 1.07 GB of 4M frames: 18 times the L2 cache */
#define BENCH_SHOTS  1000000

struct bench {
	const struct gk_cuda_symbols *cuda;
	CUcontext context;
	CUstream stream;
	CUmodule module;
	CUfunction read;
	CUfunction both;
	int processors;
	char gpu[64];
	struct gk_geometry geometry;
	uint32_t chunks; /* gk_config.chunks of players */
	double seconds;	 /* duration of one measurement */
	int repeats;
	uint64_t pixels;
	uint16_t *host_raw; /* registered; [BENCH_FRAMES][pixels] */
	uint16_t *device_raw;
	float *planes; /* registered; pedestals and gains of three stages */
	CUdeviceptr_v2 device_planes;
	/* pointer tables of all packets in GPU memory, for the read kernel */
	CUdeviceptr_v2 host_table;
	CUdeviceptr_v2 device_table;
	CUdeviceptr_v2 sink;
	uint64_t *shots; /* ns */
	/* map of pixels, registered; NULL: players have none */
	uint16_t *bin;
	struct gk_peak_panel *panel;
	uint32_t nb_panels;
	/* bins of pixels for radial profiles, registered; NULL: players make none */
	uint16_t *radial;
	uint32_t bins;
};

/* Gangs with their memory, and the builder's side of their rings. */
struct player {
	struct bench *bench;
	struct gk_config config;
	struct gk *gk;
	struct gk_ring ring[GK_GANGS_MAX];
	uint32_t batch;
	uint32_t depth; /* batches in flight per gang */
	CUdeviceptr_v2 device_outputs;
	uint64_t frames; /* processed */
};

enum outputs {
	OUTPUTS_NONE,
	OUTPUTS_HOST,
	OUTPUTS_DEVICE
};

void bench_check(const struct bench *b, CUresult ret, const char *call);
#define CHECK(b, call) bench_check(b, (b)->cuda->call, #call)

double bench_now(void);
void *bench_memory(const struct bench *b, uint64_t size);
void bench_free(const struct bench *b, void *memory);

/* @return 0, or an errno whose message was printed. `keep`: hits in 16 frames. */
int player_open(struct player *p, struct bench *b, uint32_t gangs, uint32_t workers,
	enum gk_memory packets, enum outputs outputs, enum gk_value value);
void player_close(struct player *p);
/* @param chunks  gk_params.chunks */
void player_params(struct player *p, uint32_t kind, uint32_t chunks, int hit);
/* @return seconds for n frames, with several batches in flight */
double player_run(struct player *p, uint32_t batch, uint64_t n);
/* One frame at a time: doorbell to done, in ns, sorted. */
void player_latency(struct player *p, uint64_t shots);

/*
 * Make the map of pixels. Frames have BENCH_PEAKS peaks of two pixels if their number is a multiple
 * of 10, otherwise half of them if it is even, otherwise a third.
 */
void search_map(struct bench *b);
#define BENCH_PEAKS 150
/* Photons of a peak's pixels are above, those of all others are below. */
#define BENCH_PEAK_THRESHOLD 15.0f
/* Search the frames with at least strong_min bright pixels, or none. All are rejected. */
void player_search(struct player *p, enum gk_search search, uint32_t strong_min);

/* Make the map of `bins` equal bins of the distance to the beam. */
void radial_map(struct bench *b, uint32_t bins);
void radial_map_free(struct bench *b);

/* @return GB/s of a kernel that only reads */
double bench_read(struct bench *b, int host, uint32_t blocks);
/*
 * @return frames/s of a kernel that reads packets from host memory and writes a share of their
 * bytes back to it
 */
double bench_both(struct bench *b, double share, uint32_t blocks);
/*
 * Stream memory operations: wait, launch, write. Fills shots, sorted. @return frames/s with many
 * queued
 */
double stream_latency(struct bench *b, uint64_t shots);
/* @return us per frame with one launch for each batch of 16 frames, with the gangs' arithmetic */
double launch_count(struct bench *b);
/* @return us of cuSPARSE's dense-to-sparse conversion of one image, or 0 with the reason printed */
double sparse_convert(struct bench *b, uint32_t *nnz);

#endif /* GK_CUDA_BENCH_H */
