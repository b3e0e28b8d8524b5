/* SPDX-License-Identifier: BSD-3-Clause */
/* Common parts of the tests of frame table, RX and builder: EAL, a table, packet headers. */
#ifndef FRAME_RIG_H
#define FRAME_RIG_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "frames/frame_table_private.h"
#undef LOG /* tests that include a .c file use its own */

#define RIG_HEADER_BYTES 48

/** Start EAL without huge pages, files or devices. @return -1 on error */
static inline int
rig_eal(char *program)
{
	static char options[][32] = {"--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m",
		"256", "--log-level=braggline.*:error"};
	char *argv[RTE_DIM(options) + 1] = {program};

	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		argv[i + 1] = options[i];
	return rte_eal_init(RTE_DIM(argv), argv);
}

/** Random numbers from a seed: xorshift64*. */
static inline uint64_t
rig_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545F4914F6CDD1D);
}

static inline uint32_t
rig_below(uint64_t *state, uint32_t n)
{
	return (rig_random(state) >> 32) * n >> 32;
}

/** First seed of random tests: FRAME_SEED of the environment, or 1. */
static inline uint64_t
rig_first_seed(void)
{
	const char *text = getenv("FRAME_SEED");

	return text != NULL ? strtoull(text, NULL, 0) : 1;
}

/**
 * Number of seeds: FRAME_SEEDS of the environment, or `n`. A sanitizer makes them several times
 * slower, and needs fewer: the ordinary build checks the results.
 */
static inline uint64_t
rig_seeds(uint64_t n)
{
	const char *text = getenv("FRAME_SEEDS");

#ifdef __SANITIZE_ADDRESS__
	n = (n + 3) / 4;
#endif
	return text != NULL ? strtoull(text, NULL, 0) : n;
}

static inline void
rig_put(uint8_t *at, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		at[i] = value >> (8 * i);
}

/** Write an sls_detector_header byte by byte, with the offsets of slsDetectorPackage. */
static inline void
rig_header(uint8_t header[RIG_HEADER_BYTES], uint64_t frame, uint32_t packet)
{
	memset(header, 0, RIG_HEADER_BYTES);
	rig_put(header, frame, 8);
	rig_put(header + 12, packet, 4);
	rig_put(header + 16, frame ^ 0xB0B0, 8); /* bunch id */
	header[46] = 3;
	header[47] = 2;
}

/** Defaults of the tests: 1 RX role, 4 slots, K = 2, resync_packets = 3, no timeouts. */
static inline void
rig_config(struct frame_table_config *c, struct detector *d, uint32_t modules, uint32_t interfaces)
{
	assert_int_equal(detector_init(d, &jungfrau_ops, modules, interfaces), 0);
	*c = (struct frame_table_config){
		.detector = d,
		.nb_rx = 1,
		.slots = 4,
		.max_skew_frames = 2,
		.resync_packets = 3,
		.max_gap_frames = 1000,
		.stall_cycles = UINT64_MAX,
		.socket = SOCKET_ID_ANY,
	};
}

/** Create a table with its own frame slots, and set config->frames. */
static inline struct frame_table *
rig_table(struct frame_table_config *c)
{
	const uint64_t stride = gk_frame_stride(
		&(struct gk_geometry){.tiles = c->detector->tiles, .tile_rows = 4, .cols = 1024});
	struct frame_table *ft;

	c->frames = rte_zmalloc("frames", c->slots * stride, RTE_CACHE_LINE_SIZE);
	assert_non_null(c->frames);
	ft = frame_table_create(c);
	assert_non_null(ft);
	return ft;
}

static inline void
rig_table_free(struct frame_table *ft)
{
	rte_free(ft->frames);
	frame_table_destroy(ft);
}

/** A fake mbuf: only a number, which also gives the address of its pixels. */
static inline struct rte_mbuf *
rig_mbuf(uint64_t id)
{
	return (struct rte_mbuf *)(uintptr_t)(id * 128);
}

static inline enum frame_placement
rig_place(struct frame_table *ft, uint32_t stream, uint64_t frame, uint32_t packet, uint64_t id)
{
	struct frame_rx *frx = &ft->rx[ft->config.owner[stream]];
	uint8_t header[RIG_HEADER_BYTES];

	rig_header(header, frame, packet);
	return frame_rx_place(ft, frx, stream, frame, packet, header, id * 64, rig_mbuf(id));
}

static inline void
rig_quiescent(struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		frame_rx_quiescent(ft, &ft->rx[i]);
}

/** frame_table_close(), but checking the progress of the RX roles in every call. */
static inline bool
rig_close(struct frame_table *ft, struct frame_closed *closed)
{
	ft->builder->looked_at = 0;
	return frame_table_close(ft, closed);
}

/** The same, with quiescent states of the RX roles as needed. */
static inline bool
rig_close_graced(struct frame_table *ft, struct frame_closed *closed)
{
	for (int i = 0; i < 3; i++) {
		if (rig_close(ft, closed))
			return true;
		rig_quiescent(ft);
	}
	return false;
}

#endif /* FRAME_RIG_H */
