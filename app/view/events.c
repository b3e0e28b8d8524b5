/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "events.h"

#define BLOCK 16384

struct stream {
	struct events *events;
	struct MHD_Connection *connection;
	const struct source *only;
	bool used;
	bool suspended; /* suspended by a callback that found no new event */
	bool beat;	/* a comment is due */
	size_t next;	/* topic at which the next search begins */
	char *text;	/* being sent */
	size_t size, sent;
	uint64_t seen[LIMIT_SOURCES][SOURCE_TOPICS];
};

struct events {
	struct source *const *sources;
	size_t nb_sources;
	pthread_mutex_t lock;
	uint64_t changes; /* calls of events_notify() and of events_beat() */
	bool end;
	struct stream stream[LIMIT_STREAMS];
};

struct events *
events_create(struct source *const *sources, size_t nb_sources)
{
	struct events *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return NULL;
	e->sources = sources;
	e->nb_sources = nb_sources;
	pthread_mutex_init(&e->lock, NULL);
	return e;
}

void
events_destroy(struct events *e)
{
	if (e == NULL)
		return;
	pthread_mutex_destroy(&e->lock);
	free(e);
}

/** Called with the lock. */
static void
wake(struct events *e)
{
	for (size_t i = 0; i < LIMIT_STREAMS; i++) {
		if (!e->stream[i].used || !e->stream[i].suspended)
			continue;
		e->stream[i].suspended = false;
		MHD_resume_connection(e->stream[i].connection);
	}
}

void
events_end(struct events *e)
{
	pthread_mutex_lock(&e->lock);
	e->end = true;
	wake(e);
	pthread_mutex_unlock(&e->lock);
}

void
events_notify(struct events *e)
{
	pthread_mutex_lock(&e->lock);
	e->changes++;
	wake(e);
	pthread_mutex_unlock(&e->lock);
}

void
events_beat(struct events *e)
{
	pthread_mutex_lock(&e->lock);
	for (size_t i = 0; i < LIMIT_STREAMS; i++)
		e->stream[i].beat = true;
	e->changes++;
	wake(e);
	pthread_mutex_unlock(&e->lock);
}

/** Set the next text to send. @return false: there is nothing new */
static bool
find_news(struct stream *s)
{
	struct events *e = s->events;
	const size_t n = e->nb_sources * SOURCE_TOPICS;

	for (size_t k = 0; k < n; k++) {
		const size_t at = (s->next + k) % n, source = at / SOURCE_TOPICS;
		const unsigned int topic = at % SOURCE_TOPICS;
		uint64_t version;
		char *text;
		int size;

		if ((s->only != NULL && s->only != e->sources[source]) ||
			source_version(e->sources[source], topic) == s->seen[source][topic])
			continue;
		text = source_topic_text(e->sources[source], topic, &version);
		s->seen[source][topic] = version;
		if (text == NULL)
			continue;
		size = asprintf(
			&s->text, "event: %s\ndata: %s\n\n", source_topic_name(topic), text);
		free(text);
		if (size < 0)
			s->text = NULL;
		s->size = size > 0 ? (size_t)size : 0;
		s->sent = 0;
		/* the other topics come first, so that none is held back */
		s->next = at + 1;
		return s->text != NULL;
	}
	return false;
}

/** MHD's callback: copy the data to be sent, or suspend the connection. */
static ssize_t
read_stream(void *arg, uint64_t position, char *to, size_t size)
{
	struct stream *s = arg;
	struct events *e = s->events;
	uint64_t changes;
	ssize_t n = 0;
	bool beat;

	(void)position;
	pthread_mutex_lock(&e->lock);
	changes = e->changes;
	beat = s->beat;
	pthread_mutex_unlock(&e->lock);
	if (s->text == NULL && !find_news(s) && beat) {
		s->text = strdup(":\n\n");
		s->size = s->text != NULL ? strlen(s->text) : 0;
		s->sent = 0;
	}
	if (s->text != NULL) {
		n = (ssize_t)(s->size - s->sent < size ? s->size - s->sent : size);
		memcpy(to, s->text + s->sent, (size_t)n);
		s->sent += (size_t)n;
		if (s->sent == s->size) {
			free(s->text);
			s->text = NULL;
		}
	}
	pthread_mutex_lock(&e->lock);
	if (n > 0)
		s->beat = false;
	if (e->end) {
		n = MHD_CONTENT_READER_END_OF_STREAM;
	} else if (n == 0 && changes == e->changes) {
		s->suspended = true;
		MHD_suspend_connection(s->connection);
	}
	pthread_mutex_unlock(&e->lock);
	return n;
}

static void
free_stream(void *arg)
{
	struct stream *s = arg;

	pthread_mutex_lock(&s->events->lock);
	free(s->text);
	s->text = NULL;
	s->used = false;
	pthread_mutex_unlock(&s->events->lock);
}

struct MHD_Response *
events_response(struct events *e, struct MHD_Connection *connection, const struct source *only)
{
	struct MHD_Response *response;
	struct stream *s = NULL;

	pthread_mutex_lock(&e->lock);
	for (size_t i = 0; i < LIMIT_STREAMS && s == NULL && !e->end; i++)
		if (!e->stream[i].used)
			s = &e->stream[i];
	if (s != NULL) {
		memset(s, 0, sizeof(*s));
		s->events = e;
		s->connection = connection;
		s->only = only;
		s->used = true;
	}
	pthread_mutex_unlock(&e->lock);
	if (s == NULL)
		return NULL;
	response = MHD_create_response_from_callback(
		MHD_SIZE_UNKNOWN, BLOCK, read_stream, s, free_stream);
	if (response == NULL)
		free_stream(s);
	return response;
}
