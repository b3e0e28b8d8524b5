/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of xfer_bench: a receiver's end and a store (xfer_bench_ends.c), what they are held against
 * (xfer_bench_peers.c), and what both carry. Jobs run on the rig's worker, which is the receiver's
 * egress lcore; the main lcore is the store.
 */
#ifndef XFER_BENCH_H
#define XFER_BENCH_H

#include "io/file_io.h"
#include "arrow/batch.h"
#include "rdma_bench_rig.h"
#include "xfer/proto.h"

#define KIB    1024
#define MIB    (1024 * KIB)
#define MEMORY (192 * MIB) /* of each end, the journal too: several times the last-level cache */

extern struct rig rig;

/* The batch of a row of the table: all are alike but for their number. */
struct bench_batch {
	enum arrow_table table;
	struct arrow_tables tables;
	struct arrow_template template; /* where its numbers are */
	uint8_t metadata[XFER_BLOCK] __attribute__((aligned(XFER_BLOCK)));
	uint64_t body;
	uint32_t entry; /* bytes that announce it */
	uint64_t rows;
	size_t column[ARROW_IO_VECTORS]; /* bytes of its parts */
	unsigned int nb_columns;
	uint64_t incarnation;
};
extern struct bench_batch batch;

/* What a job is to do, and what it came to. */
struct bench_job {
	double seconds;
	uint64_t bytes, cycles;
	uint64_t copying; /* cycles of serialisation */
	double *times;	  /* ms, of single batches */
	unsigned int nb_times;
};
extern struct bench_job job;

/* One of images is a full image of so many pixels, one of frames has so many rows. */
void batch_make(enum arrow_table table, uint32_t n);
void batch_free(void);

/* Batches under way: bytes that any cache holds, and enough for large ones. */
unsigned int batch_depth(void);

/* Batches that are sent in a row: what the ring holds, wherever in it the first one lies. */
unsigned int batch_segment(void);

/* Journal, and a store with its files below a directory that is made. */
void ends_open(char *directory);
void ends_close(const char *directory);

/* A run of batches like the one at hand. */
void ends_begin(void);
void ends_end(void);

/* @return bytes/s */
double ends_stream(void);

/* Fills job.times: until the store has taken it. */
void ends_singles(void);

/*
 * The engine alone; `checked`, the other end copies entries and sums them up: a store's ceiling.
 * @return bytes/s
 */
double peers_raw(bool checked);

/* Serialised, over TCP. @return bytes/s; the share of serialisation is job.copying / job.cycles */
double peers_serialised(void);
void peers_serialised_singles(void);

#endif /* XFER_BENCH_H */
