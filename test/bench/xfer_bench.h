/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the parts of xfer_bench: a receiver's end and a store (xfer_bench_ends.c), their peers
 * (xfer_bench_peers.c), and the batches of both. Jobs run on the rig's worker, which is the
 * receiver's egress lcore; the main lcore is the store.
 */
#ifndef XFER_BENCH_H
#define XFER_BENCH_H

#include "io/file_io.h"
#include "arrow/batch.h"
#include "rdma_bench_rig.h"
#include "xfer/proto.h"

#define KIB    1024
#define MIB    (1024 * KIB)
#define MEMORY (192 * MIB) /* of each end, with the journal: several times the last-level cache */

extern struct rig rig;

/* The batch of a row of the table: all are the same except for their number. */
struct bench_batch {
	enum arrow_table table;
	struct arrow_tables tables;
	struct arrow_template template; /* positions of its numbers */
	uint8_t metadata[XFER_BLOCK] __attribute__((aligned(XFER_BLOCK)));
	uint64_t body;
	uint32_t entry; /* bytes of its descriptor */
	uint64_t rows;
	size_t column[ARROW_IO_VECTORS]; /* bytes of its columns */
	unsigned int nb_columns;
	uint64_t incarnation;
};
extern struct bench_batch batch;

/* Parameters and results of a job. */
struct bench_job {
	double seconds;
	uint64_t bytes, cycles;
	uint64_t copying; /* cycles of serialisation */
	double *times;	  /* ms, for single batches */
	unsigned int nb_times;
};
extern struct bench_job job;

/* Make a batch. images: one full image with n pixels; frames: n rows. */
void batch_make(enum arrow_table table, uint32_t n);
void batch_free(void);

/* Number of batches in flight: few enough for the caches, and sufficient for large ones. */
unsigned int batch_depth(void);

/*
 * Number of batches of a sequence: those that fit into the journal at any position of the first
 * one.
 */
unsigned int batch_segment(void);

/* Create a journal, and a store with its files in a new directory. */
void ends_open(char *directory);
void ends_close(const char *directory);

/* Begin a run of batches like the current one. */
void ends_begin(void);
void ends_end(void);

/*
 * @param in_parts  of bodies in 65 parts of odd lengths, 64 of them in slots of the journal's area,
 *   instead of contiguous ones; only for bodies of IN_PARTS_MIN bytes or more
 * @return bytes/s
 */
#define IN_PARTS_MIN MIB
double ends_stream(bool in_parts);

/* Fills job.times: time until the store has taken each batch. */
void ends_singles(void);

/*
 * The engine alone. With `checked` the other end copies descriptors and checks their CRC, which is
 * the ceiling of a store. @return bytes/s
 */
double peers_raw(bool checked);

/* Serialised, over TCP. @return bytes/s; the share of serialisation is job.copying / job.cycles */
double peers_serialised(void);
void peers_serialised_singles(void);

#endif /* XFER_BENCH_H */
