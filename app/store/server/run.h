/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Runs that a store has files of: schemas, directory, a stream of each table. A run stays when its
 * connection goes, until it has ended or nobody has asked for it for a while.
 *
 * Files are in ROOT/NAME-PRODUCER-RUN, numbers as 16 hexadecimal digits. One thread, but for
 * store_run_open() and what says so.
 */
#ifndef STORE_RUN_H
#define STORE_RUN_H

#include "arrow/reader.h"
#include "xfer/auth.h"
#include "server/completion.h"
#include "stream/writer.h"

#define STORE_RUNS 64

/** What all runs have in common; 0 is the default of each number. */
struct store_files {
	const char *root;
	struct arrow_slices_config slices;
	uint64_t roll_bytes;
	uint64_t roll_ms;
	uint64_t quota;	  /**< bytes of a producer; 0: none */
	uint64_t idle_ms; /**< without a connection: then files are completed */
	stream_result result;
	void *arg;
};

struct store_producer {
	uint64_t producer;
	unsigned int nb_runs; /**< that it has; 0: this is nobody's */
	struct stream_quota quota;
};

struct store_run {
	bool used;
	uint64_t producer;
	uint64_t run;
	uint64_t incarnation;
	char name[XFER_NAME_BYTES];
	char dir[PATH_MAX];
	uint8_t *schema[XFER_TABLES];
	uint32_t schema_bytes[XFER_TABLES];
	struct arrow_reader reader[XFER_TABLES]; /**< of the schema */
	struct stream_writer *writer[XFER_TABLES];
	struct store_producer *owner; /**< whose quota it goes by; NULL: there is none */
	bool open;		      /**< what is there was read, and more may be written */
	bool ended;		      /**< its receiver has said so: stream/ended.h */
	bool settling;		      /**< server/recovery_thread.h: its thread has the writers */
	void *connection;	      /**< that it belongs to; NULL: none */
	uint64_t idle_since;	      /**< ms; 0: it has a connection */
	bool visible;		      /**< to store_runs_view() */
};

/** A stream as other threads may see it. */
struct store_stream_view {
	char run[XFER_NAME_BYTES];
	uint64_t producer;
	uint64_t incarnation;
	bool connected;
	uint64_t quota; /**< bytes that the producer may take; 0: no matter */
	uint64_t quota_used;
	struct stream_stats stats;
};

struct store_runs {
	struct store_files files;
	struct store_run run[STORE_RUNS];
	unsigned int nb; /**< those from here on have never been used: a line of each is a lot */
	struct store_producer producer[STORE_RUNS];
	uint64_t opened;
	uint64_t ended;
	uint64_t idle; /**< completed because nobody came */
	uint64_t refused;
	struct store_completion *completion; /**< of what earlier processes left; NULL: nothing */
	uint64_t latency[ARROW_LATENCY_BUCKETS]; /**< of runs that have ended */
};

/**
 * The run of a handshake that is done. A new one is to be opened.
 * @return NULL with the reason: schemas that are none of ours or not those that it had (_SCHEMA),
 *   too many runs (_BUSY), names too long, no memory (_FAILED)
 */
struct store_run *store_run_find(
	struct store_runs *s, const struct xfer_auth *h, enum xfer_reason *reason);

/**
 * Recover and read what files there are, so that more can be written; nothing, if that was done.
 * Any thread, while the run is `settling`: it may take minutes.
 * @return _NONE; _BUSY: somebody writes one of them; _FAILED: what is in one is not known, or the
 *   directory cannot be had (the log says which)
 */
enum xfer_reason store_run_open(struct store_runs *s, struct store_run *r);

/** It settles no more; one that could not be opened is forgotten. */
void store_run_settle_end(struct store_runs *s, struct store_run *r);

/** Write on; every few ms. @param now  ms */
void store_runs_poll(struct store_runs *s, uint64_t now);

/** Whether all that was taken has its result. */
bool store_run_settled(const struct store_run *r);

/** How it is: enum xfer_state. */
enum xfer_state store_run_state(const struct store_run *r);

/** Complete the files and forget the run; all have results then. @return 0 or the first error */
int store_run_end(struct store_runs *s, struct store_run *r);

/** Any thread. @return whether there is such a run now */
bool store_runs_view(const struct store_runs *s, unsigned int run, unsigned int table,
	struct store_stream_view *view);

/** Last packet to durable, of all runs that there are or were: arrow/file.h. Any thread. */
void store_runs_latency(const struct store_runs *s, uint64_t latency[ARROW_LATENCY_BUCKETS]);

/** End all. @return 0 or the first error */
int store_runs_close(struct store_runs *s);

#endif /* STORE_RUN_H */
