/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The runs that outputs publish, and the positions of their batches in the files. One thread
 * (watch.h) appends; each output has a cursor. The images stay in the files, so a slow output needs
 * no memory for them. The last batch of each run is kept, so that outputs that keep up do not read
 * the file again. A lock protects the lists; no thread reads a file, encodes or sends while it has
 * it.
 */
#ifndef PUBLISH_FEED_H
#define PUBLISH_FEED_H

#include <limits.h>
#include <pthread.h>
#include <sys/types.h>

#include "rows.h"
#include "scan/record.h"
#include "wire.h"

/** Runs that wait for the slowest output. Older ones are skipped. */
#define FEED_RUNS    64
#define FEED_CURSORS 8

/** No limit of the images that may wait. */
#define FEED_ALL UINT64_MAX

/** Batches of `frames` that are searched for the rows of a batch of images. */
#define FEED_JOIN_MAX 1024

/** A file of a run, of either table. */
struct feed_file {
	char *path; /**< when complete; until then it ends in .part */
	struct scan_header *header;
	dev_t dev;
	ino_t ino;
};

/** A batch that has images. */
struct feed_batch {
	uint32_t file;
	uint32_t images;
	uint64_t at;	/**< offset in the file, bytes */
	uint64_t first; /**< number of its first image */
	uint64_t order; /**< position among the batches of all runs */
	int64_t seen_ns;
	int64_t added_ns; /**< CLOCK_MONOTONIC */
};

/** A batch of `frames`. */
struct feed_rows {
	uint32_t file;
	uint64_t at;	      /**< offset in the file, bytes */
	uint64_t first, last; /**< smallest and largest frame number */
	/** smallest `first` of this and all later batches; largest `last` of this and all earlier
	 *  ones: neither decreases from one batch to the next @{ */
	uint64_t least_first, most_last;
	/** @} */
};

struct feed_run {
	unsigned int refs; /**< atomic */
	/** does not change after feed_begin(); its texts and mask are allocated @{ */
	struct wire_series series;
	/** @} */
	/** under the lock: @{ */
	struct feed_file *file;
	size_t nb_files;
	struct feed_batch *batch;
	size_t nb_batches;
	uint64_t images;
	bool ended;
	/** the last batch */
	struct scan_record *latest;
	struct feed_rows *rows;
	size_t nb_rows;
	/** the last batch of `frames` */
	struct scan_record *latest_rows;
	unsigned int frames_files; /**< files of `frames` that may get more batches */
	int64_t began_ns;	   /**< CLOCK_MONOTONIC */
				   /** @} */
};

struct feed {
	pthread_mutex_t lock;
	struct feed_run *run[FEED_RUNS]; /**< number n is at n % FEED_RUNS */
	uint64_t first, next;		 /**< numbers of the runs: first ... next - 1 */
	uint64_t batches;
	bool closed; /**< no more runs */
	struct feed_cursor *cursor[FEED_CURSORS];
	unsigned int nb_cursors;
};

/** Position of an output. Only its thread uses it, except what is marked. */
struct feed_cursor {
	struct feed *feed;
	bool serial;	 /**< one run after the other, with FEED_START and FEED_FINISH */
	uint64_t behind; /**< images of a run that may wait; FEED_ALL: any number */
	int64_t rows_ns; /**< longest time that a batch waits for its rows of `frames` */
	int event;	 /**< eventfd(2) that is written to when there is more */
	/** the thread changes them under the lock, and others read or change them under it: @{ */
	uint64_t run; /**< number of the first run that is not finished */
	struct {
		uint64_t run; /**< number of the run + 1; 0: none */
		size_t batch; /**< index of the next batch */
		bool begun, finished;
	} place[FEED_RUNS];
	uint64_t dropped; /**< images of dropped runs that are not in `skipped` yet */
	/** @} */
	struct feed_run *current;   /**< run of the last item; a reference */
	struct scan_record *record; /**< batch of the last item; a reference */
	uint32_t file;		    /**< index of the file of this batch */
	struct rows_join join;	    /**< rows of `frames` of this batch */
	bool *published;	    /**< [rows of the batch] the image is published */
	bool joined;		    /**< true: the batch no longer waits for rows */
	bool no_descriptor;	  /**< rows could not be read: EMFILE or ENFILE; the batch waits */
	size_t rows_tried;	  /**< batches of `frames` of the run that were searched */
	int64_t until_ns;	  /**< end of the wait, CLOCK_MONOTONIC */
	struct scan_record *rows; /**< batch of `frames` that was read last; a reference */
	size_t rows_number;	  /**< index of this batch of `frames` in `current` */
	uint64_t row;		  /**< next row of `record` */
	uint64_t id;		  /**< number of the next image */
	int64_t seen_ns;
	uint64_t skipped; /**< images left out: more than `behind`, or FEED_RUNS runs, waited */
	uint64_t gone;	  /**< images whose file was removed or changed */
};

enum feed_kind {
	FEED_WAIT,   /**< no item at present */
	FEED_START,  /**< a run begins; only serial */
	FEED_IMAGE,  /**< an image */
	FEED_FINISH, /**< a run has ended, and all its images were returned; only serial */
	FEED_CLOSED, /**< nothing will follow */
};

/** Valid until the next call for the same cursor. */
struct feed_item {
	const struct wire_series *series;
	const struct scan_record *record; /**< FEED_IMAGE; and all following members */
	const struct wire_frame *info;	  /**< NULL: not known */
	uint64_t row;
	uint64_t id;
	int64_t seen_ns;
};

int feed_init(struct feed *f);
void feed_free(struct feed *f);

/**
 * Add a cursor, before the first run. @param rows_ns  longest wait for rows of `frames`
 * @return 0; -errno of eventfd(2)
 */
int feed_add_cursor(
	struct feed *f, struct feed_cursor *c, bool serial, uint64_t behind, int64_t rows_ns);
void feed_free_cursor(struct feed_cursor *c);

/** Whether a kind of images is published. */
static inline bool
feed_is_image(const struct wire_series *s, uint8_t kind)
{
	return s->raw ? kind == GK_KIND_RAW : kind == GK_KIND_CSR || kind == GK_KIND_IMAGE;
}

/** Add a run. The feed takes the reference. @{ */
void feed_begin(struct feed *f, struct feed_run *run);
/** @} */

/** Add a file to a run. @return its number; -ENOMEM */
int feed_add_file(struct feed *f, struct feed_run *run, const char *path,
	struct scan_header *header, dev_t dev, ino_t ino);

/** Append a batch; its `order`, `first` and `added_ns` are set. @return 0; -ENOMEM */
int feed_append(struct feed *f, struct feed_run *run, const struct feed_batch *batch,
	struct scan_record *record);

/**
 * Append to `rows` of a run. Called with the lock.
 * @param rows  its last two members are set @return 0; -ENOMEM
 */
int feed_rows_push(struct feed_run *run, const struct feed_rows *rows);

/**
 * Find the batches of `frames` that may have frames from `first` to `last`: none before `begin`,
 * and none from `end` on. It takes two binary searches. Called with the lock.
 */
void feed_rows_find(
	const struct feed_run *run, uint64_t first, uint64_t last, size_t *begin, size_t *end);

/** Append a batch of `frames`. @return 0; -ENOMEM; -EBADMSG: no numbers of frames */
int feed_append_rows(struct feed *f, struct feed_run *run, uint32_t file, uint64_t at,
	struct scan_record *record);

/** A file of `frames` is followed, or has ended. */
void feed_follow_rows(struct feed *f, struct feed_run *run, bool followed);

/** The run has ended. */
void feed_end(struct feed *f, struct feed_run *run);

/** Nothing will follow. */
void feed_close(struct feed *f);

struct feed_run *feed_run_ref(struct feed_run *run);
void feed_run_drop(struct feed_run *run);

/**
 * Get what an output publishes next. A batch of images waits until all its rows of `frames` are
 * known, if the run may get them, for at most `rows_ns`. It also waits while no descriptor is free.
 */
enum feed_kind feed_next(struct feed_cursor *c, struct feed_item *item);

/** Time until feed_next() returns the image of a batch that waits, ms; `most`: or longer. */
int feed_wait_ms(const struct feed_cursor *c, int most);

#endif /* PUBLISH_FEED_H */
