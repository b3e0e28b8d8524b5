/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Connections that receive server-sent events. A client gets the newest text of each topic of the
 * sources. Newer texts replace those that it has not read yet, so a slow client needs no more
 * memory than a fast one. Any thread may call the functions.
 */
#ifndef EVENTS_H
#define EVENTS_H

#include <microhttpd.h>

#include "source.h"

struct events;

/** @return NULL: out of memory */
struct events *events_create(struct source *const *sources, size_t nb_sources);

/** End all streams, so that the daemon can be stopped. New ones are refused. */
void events_end(struct events *e);

/** After the daemon was stopped. NULL is allowed. */
void events_destroy(struct events *e);

/**
 * Create the response that is a stream.
 * @param only  of one source; NULL: of all
 * @return NULL: there are LIMIT_STREAMS, or out of memory
 */
struct MHD_Response *events_response(
	struct events *e, struct MHD_Connection *connection, const struct source *only);

/** A text has changed: wake up the streams. */
void events_notify(struct events *e);

/** Send a comment on all streams, so that both ends notice broken connections. */
void events_beat(struct events *e);

#endif /* EVENTS_H */
