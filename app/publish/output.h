/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An output: a ZeroMQ socket and the thread that encodes and sends images (wire.h). Outputs do not
 * wait for each other, and nothing waits for them: images that they have not sent stay in the
 * files.
 *
 * Subscribers that hang cost little CPU time. When no subscriber had room for an image, no image is
 * encoded for some time. This time grows at each repetition.
 *
 * Memory is bounded: at most `hwm` messages wait for each client, and a client that does not answer
 * ZeroMQ's heartbeats for OUTPUT_DEAD_MS is disconnected. What clients send is limited to
 * OUTPUT_INPUT_MAX bytes a message. Subscriptions are limited to OUTPUT_PREFIXES_MAX bytes in all
 * since no client was connected, and to what is processed in OUTPUT_STUCK_MS of CPU time. Beyond
 * that, all clients are disconnected; the time is doubled while the same call goes on.
 * Subscriptions that have ended count, too: ZeroMQ also reports the end of those that a client
 * never had.
 */
#ifndef PUBLISH_OUTPUT_H
#define PUBLISH_OUTPUT_H

#include <pthread.h>

#include "feed.h"

#define OUTPUT_MESSAGE_LEN  512
#define OUTPUT_WORKERS_MAX  4096      /**< requests that wait */
#define OUTPUT_INPUT_MAX    4096      /**< bytes */
#define OUTPUT_PREFIXES_MAX (1 << 20) /**< bytes of subscriptions of all clients */
#define OUTPUT_STUCK_MS	    200	      /**< maximum CPU time in one call of ZeroMQ, ms */
#define OUTPUT_STUCK_MAX_MS 3200      /**< the same, after clients were disconnected in this call */
#define OUTPUT_HEARTBEAT_MS 2000
#define OUTPUT_DEAD_MS	    10000
#define OUTPUT_LINGER_MS    10000 /**< time at the end for messages that wait for clients */
#define OUTPUT_BEHIND_PUB   1000  /**< images of a run that may wait for subscribers */
#define OUTPUT_REPEAT_MS    1000  /**< shortest time between two `start` for new subscribers */
#define OUTPUT_FULL_MIN_MS  1	  /**< no image is encoded when no subscriber had room; */
#define OUTPUT_FULL_MAX_MS  200	  /**< doubled up to this time */
#define OUTPUT_ROWS_MS	    5000  /**< stream2: default of the longest wait for rows of `frames` */
#define OUTPUT_IO_THREADS   2	  /**< of ZeroMQ: one for workers, one for subscribers */
#define OUTPUT_BUCKETS	    24	  /**< of the histogram of times, app/common/histogram.h */

enum output_kind {
	OUTPUT_CRYSTFEL,     /**< ROUTER for REQ: each image to one worker */
	OUTPUT_CRYSTFEL_PUB, /**< for SUB: drops images of slow clients */
	OUTPUT_STREAM2,	     /**< PUSH: each message to one client */
	OUTPUT_STREAM2_PUB,  /**< for SUB */
	OUTPUT_KINDS
};

/** Counters; any thread may read them. */
struct output_stats {
	uint64_t images;  /**< images sent to a client, or to at least one subscriber */
	uint64_t bytes;	  /**< of their messages */
	uint64_t encoded; /**< images that were encoded as a message */
	uint64_t unseen;  /**< images while no client was connected */
	/**
	 * images for which no subscriber had room. One for each `full` may still have been received
	 */
	uint64_t no_room;
	uint64_t full;	   /**< times that the queue of a subscriber became full: it loses images */
	uint64_t skipped;  /**< images that were left out because too many waited */
	uint64_t gone;	   /**< images whose file was removed */
	uint64_t damaged;  /**< images that do not fit their run */
	uint64_t no_row;   /**< images that were sent without their row of `frames` */
	uint64_t requests; /**< of workers, and subscriptions */
	uint64_t refused;  /**< invalid or superfluous requests */
	uint64_t lost;	   /**< workers that had disconnected when their image was ready */
	uint64_t connected;    /**< connections of clients */
	uint64_t disconnected; /**< connections that ended, also of dead clients */
	uint64_t slowest_us;   /**< longest time from found to sent */
	uint64_t us[OUTPUT_BUCKETS];
};

struct output;

/** @return option of the command line, without dashes */
const char *output_name(enum output_kind kind);

/** How an output takes images from the feed. */
struct output_config {
	int hwm;	 /**< messages that wait for a client */
	uint64_t behind; /**< images of a run that may wait for workers; FEED_ALL */
	int64_t rows_ns; /**< longest wait for rows of `frames` */
	struct feed *feed;
};

/**
 * Bind a socket. @param context  of zmq_ctx_new(3), with OUTPUT_IO_THREADS threads
 * @param message  out, on error: what, and what to do
 * @return 0; -errno
 */
int output_create(struct output **output, enum output_kind kind, void *context, const char *address,
	const struct output_config *config, char message[OUTPUT_MESSAGE_LEN]);

/** Address that it is bound to; valid as long as the output. */
const char *output_address(const struct output *o);

/** Start its thread. @return 0; -errno of pthread_create(3) */
int output_start(struct output *o);

/** End soon: images that are not sent are left out. */
void output_stop(struct output *o);

/**
 * Disconnect the clients if they send subscriptions faster than the thread of the output can
 * process them. To be called at intervals, from one thread.
 */
void output_check(struct output *o);

/** Whether its thread has ended: all was sent, or it was stopped. */
bool output_is_over(const struct output *o);

/** Wait for its thread, and close the socket. */
void output_destroy(struct output *o);

void output_stats_get(const struct output *o, struct output_stats *stats);

/** How many of the first `images` images wait for a worker or client. Subscribers: 0. Any thread */
uint64_t output_waiting(const struct output *o, uint64_t images);

#endif /* PUBLISH_OUTPUT_H */
