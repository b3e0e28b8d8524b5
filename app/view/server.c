/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "assets.h"
#include "bounds.h"
#include "clock.h"
#include "events.h"
#include "images.h"
#include "io/direct_io.h"
#include "runs.h"
#include "server.h"
#include "telemetry_socket.h"
#include "xfer/auth_key.h"

#define THREADS	   2
#define BEAT_TICKS 10
#define FILE_BLOCK (256u << 10) /* bytes of a file that are read at a time */

/* priority string of GnuTLS; RFC 8996 forbids TLS 1.0 and 1.1 */
#define PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

#define POLICY                                                     \
	"style-src 'self' 'unsafe-inline'; img-src 'self' data:; " \
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
/*
 * The page of HDF5 files needs unsafe-eval: ndarray (of H5Web) compiles text, HDF5 is WebAssembly.
 */
#define POLICY_H5 "default-src 'self'; script-src 'self' 'unsafe-eval'; " POLICY

/** A connection, for its deadline. */
struct client {
	struct server *server;
	int fd;		   /**< -1: free */
	uint64_t deadline; /**< s; 0: none */
};

/** A command that is being executed. There is one at a time, because it may take long. */
struct job {
	struct server *server;
	struct MHD_Connection *connection;
	char socket[PATH_MAX];
	struct request_command command;
	pthread_t thread;
	bool started;
	bool done; /* the thread no longer uses the connection */
	char *reply;
	int result;
};

/** A request; MHD's con_cls. */
struct request {
	char body[LIMIT_BODY];
	size_t size;
	bool too_long;
	bool get;      /**< GET, for which ranges are allowed (RFC 9110, 14.2); false: HEAD, POST */
	bool download; /**< included in server.files */
	struct job *job;
};

struct server {
	struct server_config config;
	struct source *const *sources;
	size_t nb_sources;
	struct MHD_Daemon *daemon;
	struct events *events;
	struct images_cache *cache[LIMIT_SOURCES];
	unsigned int ticks;
	int cancel;	      /* eventfd: the server is being stopped */
	unsigned int images;  /* number of images being sent; atomic */
	unsigned int files;   /* number of files being sent; atomic */
	pthread_mutex_t lock; /* protects the fields below */
	struct client client[LIMIT_CONNECTIONS];
	struct job *job; /* NULL: none */
	bool stop;
};

static uint64_t
now_s(void)
{
	return (uint64_t)monotonic_ms() / 1000;
}

/* ---- deadlines ---- */

static void
notify_connection(void *arg, struct MHD_Connection *connection, void **context,
	enum MHD_ConnectionNotificationCode code)
{
	struct server *s = arg;
	struct client *c = *context;

	pthread_mutex_lock(&s->lock);
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (c != NULL)
			c->fd = -1;
	} else {
		for (size_t i = 0; i < LIMIT_CONNECTIONS; i++) {
			c = &s->client[i];
			if (c->fd >= 0)
				continue;
			c->fd = MHD_get_connection_info(
				connection, MHD_CONNECTION_INFO_CONNECTION_FD)
					->connect_fd;
			c->deadline = now_s() + LIMIT_REQUEST_S;
			*context = c;
			break;
		}
	}
	pthread_mutex_unlock(&s->lock);
}

static void
set_deadline(struct server *s, struct MHD_Connection *connection, unsigned int seconds)
{
	struct client *c = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
				   ->socket_context;

	pthread_mutex_lock(&s->lock);
	if (c != NULL)
		c->deadline = seconds > 0 ? now_s() + seconds : 0;
	pthread_mutex_unlock(&s->lock);
}

/**
 * The first line of a request has arrived. A connection may wait longer for its next request than a
 * request may take. @return NULL: no context of the request yet
 */
static void *
begin_request(void *arg, const char *uri, struct MHD_Connection *connection)
{
	struct server *s = arg;
	struct client *c = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
				   ->socket_context;
	const uint64_t latest = now_s() + LIMIT_REQUEST_S;

	(void)uri;
	pthread_mutex_lock(&s->lock);
	if (c != NULL && c->deadline > latest)
		c->deadline = latest;
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void
server_tick(struct server *s)
{
	const uint64_t t = now_s();

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < LIMIT_CONNECTIONS; i++)
		if (s->client[i].fd >= 0 && s->client[i].deadline != 0 && t > s->client[i].deadline)
			shutdown(s->client[i].fd, SHUT_RDWR);
	pthread_mutex_unlock(&s->lock);
	if (++s->ticks % BEAT_TICKS == 0)
		events_beat(s->events);
}

/* ---- responses ---- */

/** Queue a response with the headers that all have, and release it. */
static enum MHD_Result
queue(struct MHD_Connection *connection, unsigned int status, struct MHD_Response *r,
	const char *type)
{
	enum MHD_Result ret;

	if (r == NULL)
		return MHD_NO;
	if (type != NULL)
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
	MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
	if (MHD_get_response_header(r, MHD_HTTP_HEADER_CONTENT_SECURITY_POLICY) == NULL)
		MHD_add_response_header(
			r, MHD_HTTP_HEADER_CONTENT_SECURITY_POLICY, "default-src 'self'; " POLICY);
	if (MHD_get_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL) == NULL)
		MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	ret = MHD_queue_response(connection, status, r);
	MHD_destroy_response(r);
	return ret;
}

/** A text that the response frees. */
static enum MHD_Result
queue_text(struct MHD_Connection *connection, unsigned int status, char *text, const char *type)
{
	if (text == NULL)
		return MHD_NO;
	return queue(connection, status,
		MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE), type);
}

/** An error as RFC 9457 describes it. @param header, value  further header; NULL: none */
static enum MHD_Result
refuse_with(struct MHD_Connection *connection, unsigned int status, const char *title,
	const char *detail, const char *header, const char *value)
{
	json_t *object = json_pack(
		"{s:s, s:i, s:s}", "title", title, "status", (int)status, "detail", detail);
	char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
	struct MHD_Response *r;

	json_decref(object);
	if (text == NULL)
		return MHD_NO;
	r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (r != NULL && header != NULL)
		MHD_add_response_header(r, header, value);
	return queue(connection, status, r, "application/problem+json");
}

static enum MHD_Result
refuse(struct MHD_Connection *connection, unsigned int status, const char *title,
	const char *detail)
{
	return refuse_with(connection, status, title, detail, NULL, NULL);
}

static enum MHD_Result
refuse_for_now(struct MHD_Connection *connection, const char *detail)
{
	return refuse_with(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "not available", detail,
		MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

static enum MHD_Result
serve_asset(struct MHD_Connection *connection, const struct asset *a)
{
	const char *match = MHD_lookup_connection_value(
		connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
	const bool same = request_matches(match, a->etag);
	struct MHD_Response *r = MHD_create_response_from_buffer(same ? 0 : a->size,
		same ? NULL : (void *)(uintptr_t)a->bytes, MHD_RESPMEM_PERSISTENT);

	if (r == NULL)
		return MHD_NO;
	if (strncmp(a->path, "/h5", 3) == 0)
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_SECURITY_POLICY, POLICY_H5);
	if (a->encoding != NULL && !same)
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING, a->encoding);
	MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, a->etag);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	return queue(connection, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, r, a->type);
}

/* ---- sources ---- */

static enum MHD_Result
serve_sources(struct server *s, struct MHD_Connection *connection)
{
	json_t *all = json_array(), *object;
	uint64_t version;
	char *text;

	for (size_t i = 0; i < s->nb_sources; i++) {
		text = source_topic_text(s->sources[i], SOURCE_TOPIC_STATE, &version);
		if (text != NULL)
			json_array_append_new(all, json_loads(text, 0, NULL));
		free(text);
	}
	object = json_pack("{s:s, s:b, s:o}", "version", BRAGGLINE_VERSION, "control",
		s->config.control, "sources", all);
	text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return queue_text(connection, MHD_HTTP_OK, text, "application/json");
}

static enum MHD_Result
serve_source(struct source *source, struct MHD_Connection *connection)
{
	uint64_t version;

	return queue_text(connection, MHD_HTTP_OK,
		source_topic_text(source, SOURCE_TOPIC_STATE, &version), "application/json");
}

static enum MHD_Result
serve_telemetry(struct source *source, struct MHD_Connection *connection)
{
	const char *command =
		MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "command");
	const int index =
		command != NULL ? commands_find(source_get_config(source)->kind, command) : -1;
	struct MHD_Response *r;
	char age[32], *text;
	uint64_t age_ms;

	if (index < 0)
		return refuse(connection, MHD_HTTP_BAD_REQUEST, "unknown command",
			"command: expected one of the commands of the source");
	text = source_reply(source, (size_t)index, &age_ms);
	if (text == NULL)
		return refuse_for_now(connection, "the source does not answer");
	r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	snprintf(age, sizeof(age), "%llu", (unsigned long long)age_ms / 1000);
	if (r != NULL)
		MHD_add_response_header(r, MHD_HTTP_HEADER_AGE, age);
	return queue(connection, MHD_HTTP_OK, r, "application/json");
}

/* ---- images ---- */

/** A body that is being sent. */
struct sending {
	struct server *server;
	uint8_t *bytes;
};

static void
free_sending(void *arg)
{
	struct sending *sending = arg;

	__atomic_fetch_sub(&sending->server->images, 1, __ATOMIC_RELAXED);
	free(sending->bytes);
	free(sending);
}

static enum MHD_Result
refuse_image(struct MHD_Connection *connection, int error)
{
	switch (error) {
	case -ENODATA:
		return refuse(connection, MHD_HTTP_NOT_FOUND, "not known",
			"the run has no frame yet, or no geometry");
	case -ERANGE:
		return refuse(connection, MHD_HTTP_BAD_REQUEST, "wrong parameter",
			"window: not in the picture, see geometry");
	case -ENOENT:
	case -EAGAIN:
		return refuse_for_now(connection, "the receiver is replacing its live file");
	default:
		return refuse(connection, MHD_HTTP_BAD_GATEWAY, "cannot read the live file",
			strerror(-error));
	}
}

/** An image that a client wants. */
struct image_request {
	enum request_target target;
	enum request_plane plane;
	bool has_window;
	struct request_window window;
	struct images_cache *cache;
};

static int
make_image(const char *path, const struct image_request *w, struct body *body)
{
	switch (w->target) {
	case REQUEST_IMAGE:
		return w->has_window ? images_window(path, w->plane, &w->window, w->cache, body)
				     : images_plane(path, w->plane, body);
	case REQUEST_FRAME:
		return images_frame(path, w->has_window ? &w->window : NULL, w->cache, body);
	case REQUEST_GEOMETRY:
		return images_geometry(path, body);
	default:
		return images_places(path, body);
	}
}

static enum MHD_Result
send_image(struct server *s, struct MHD_Connection *connection, struct body *body, const char *type)
{
	struct sending *sending = malloc(sizeof(*sending));
	struct MHD_Response *r;

	if (sending == NULL) {
		__atomic_fetch_sub(&s->images, 1, __ATOMIC_RELAXED);
		free(body->bytes);
		return MHD_NO;
	}
	*sending = (struct sending){s, body->bytes};
	r = MHD_create_response_from_buffer_with_free_callback_cls(
		body->size, body->bytes, free_sending, sending);
	if (r == NULL) {
		free_sending(sending);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, body->etag);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	set_deadline(s, connection, LIMIT_IMAGE_S);
	return queue(connection, MHD_HTTP_OK, r, type);
}

/** Return true if the client has this version (304). Only the head of the file is read. */
static bool
is_known(struct MHD_Connection *connection, const char *path, const struct image_request *w,
	char etag[64])
{
	const char *match = MHD_lookup_connection_value(
		connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);

	return match != NULL && (w->target == REQUEST_IMAGE || w->target == REQUEST_FRAME) &&
		images_etag(path, w->plane, etag) == 0 && request_matches(match, etag);
}

static enum MHD_Result
send_known(struct MHD_Connection *connection, const char *etag)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);

	if (r != NULL) {
		MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, etag);
		MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	}
	return queue(connection, MHD_HTTP_NOT_MODIFIED, r, NULL);
}

/** @return NULL; otherwise what is wrong with the parameters */
static const char *
read_image_request(struct MHD_Connection *connection, struct image_request *w)
{
	const char *window =
		MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "window");

	w->plane = request_plane(w->target == REQUEST_IMAGE
			? MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "plane")
			: NULL);
	if (w->plane == REQUEST_PLANE_NONE)
		return "plane: expected frame, maximum, mean or mask";
	if (window == NULL || (w->target != REQUEST_IMAGE && w->target != REQUEST_FRAME))
		return NULL;
	w->has_window = true;
	if (request_window(window, &w->window) != 0)
		return "window: expected X,Y,WIDTH,HEIGHT,BIN";
	return w->plane == REQUEST_PLANE_MASK ? "window: not for the mask" : NULL;
}

static enum MHD_Result
serve_image(struct server *s, size_t source, struct MHD_Connection *connection,
	enum request_target target)
{
	struct image_request w = {.target = target, .cache = s->cache[source]};
	const char *why = read_image_request(connection, &w);
	struct body body = {.bytes = NULL};
	char *path, etag[64];
	int ret;

	if (why != NULL)
		return refuse(connection, MHD_HTTP_BAD_REQUEST, "wrong parameter", why);
	path = source_live(s->sources[source]);
	if (path == NULL)
		return refuse(connection, MHD_HTTP_NOT_FOUND, "no live file",
			"the receiver is down, or has no run with [output] live");
	if (is_known(connection, path, &w, etag)) {
		free(path);
		return send_known(connection, etag);
	}
	if (__atomic_add_fetch(&s->images, 1, __ATOMIC_RELAXED) > LIMIT_IMAGES) {
		__atomic_fetch_sub(&s->images, 1, __ATOMIC_RELAXED);
		free(path);
		return refuse_for_now(connection, "too many images are being sent");
	}
	ret = make_image(path, &w, &body);
	free(path);
	if (ret == 0)
		return send_image(s, connection, &body,
			target == REQUEST_GEOMETRY ? "application/json"
						   : "application/octet-stream");
	__atomic_fetch_sub(&s->images, 1, __ATOMIC_RELAXED);
	return refuse_image(connection, ret);
}

/* ---- finished runs ---- */

static enum MHD_Result
serve_runs(struct server *s, struct MHD_Connection *connection)
{
	char *text = s->config.runs != NULL
		? runs_text(s->config.runs)
		: strdup("{\"folders\":[],\"truncated\":false,\"runs\":[]}");

	if (text == NULL)
		return refuse_for_now(connection, "the folders have not been read yet");
	return queue_text(connection, MHD_HTTP_OK, text, "application/json");
}

/** A part of a file that is being sent. */
struct file_part {
	int fd;
	uint64_t begin;
};

/** The connection ends where a file was truncated, instead of waiting for the rest. */
static ssize_t
read_file_part(void *arg, uint64_t at, char *to, size_t most)
{
	const struct file_part *part = arg;
	const int64_t n = direct_io_read(part->fd, to, most, part->begin + at);

	return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void
close_file_part(void *arg)
{
	struct file_part *part = arg;

	close(part->fd);
	free(part);
}

/** @param fd  is closed with the response, or at once if there is none */
static struct MHD_Response *
respond_with_file(int fd, uint64_t begin, uint64_t length)
{
	struct file_part *part = malloc(sizeof(*part));
	struct MHD_Response *r = NULL;

	if (part != NULL) {
		*part = (struct file_part){fd, begin};
		r = MHD_create_response_from_callback(
			length, FILE_BLOCK, read_file_part, part, close_file_part);
	}
	if (r == NULL) {
		close(fd);
		free(part);
	}
	return r;
}

/** Send a part of a file. @param fd  is closed */
static enum MHD_Result
send_file(struct server *s, struct MHD_Connection *connection, struct request *request, int fd,
	const struct stat *st)
{
	const char *if_range =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_RANGE);
	const char *range =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_RANGE);
	const uint64_t size = (uint64_t)st->st_size;
	char etag[80], text[80];
	uint64_t begin, length;
	struct MHD_Response *r;
	enum request_range part;

	snprintf(etag, sizeof(etag), "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "%09lx\"",
		(uint64_t)st->st_ino, size, (uint64_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	if (!request->get || (if_range != NULL && strcmp(if_range, etag) != 0))
		range = NULL;
	part = request_range(range, size, &begin, &length);
	if (part == REQUEST_RANGE_OUTSIDE) {
		close(fd);
		snprintf(text, sizeof(text), "bytes */%" PRIu64, size);
		return refuse_with(connection, MHD_HTTP_RANGE_NOT_SATISFIABLE, "wrong range",
			"Range: outside of the file", MHD_HTTP_HEADER_CONTENT_RANGE, text);
	}
	r = respond_with_file(fd, begin, length);
	if (r == NULL)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
	MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, etag);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	/* never shown as a page of this server */
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_DISPOSITION, "attachment");
	if (part == REQUEST_RANGE_PART) {
		snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, begin,
			begin + length - 1, size);
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_RANGE, text);
	}
	length /= LIMIT_DOWNLOAD_BPS;
	set_deadline(s, connection,
		LIMIT_IMAGE_S + (length < UINT32_MAX / 2 ? (unsigned int)length : UINT32_MAX / 2));
	return queue(connection,
		part == REQUEST_RANGE_PART ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, r,
		"application/octet-stream");
}

/* Counts a file as being sent until the request is complete. @return false: there are too many */
static bool
begin_download(struct server *s, struct request *request)
{
	request->download = __atomic_add_fetch(&s->files, 1, __ATOMIC_RELAXED) <= LIMIT_DOWNLOADS;
	if (!request->download)
		__atomic_fetch_sub(&s->files, 1, __ATOMIC_RELAXED);
	return request->download;
}

static enum MHD_Result
serve_run_file(struct server *s, struct MHD_Connection *connection, const char *url,
	struct request *request)
{
	struct request_run name;
	struct stat st;
	int fd = -ENOENT;

	if (s->config.runs != NULL && request_run_file(url, &name) == 0) {
		if (!begin_download(s, request))
			return refuse_for_now(connection, "too many files are being sent");
		fd = runs_open(s->config.runs, &name, &st);
	}
	if (fd < 0)
		return refuse(connection, MHD_HTTP_NOT_FOUND, "no such file",
			"expected a file that /api/v1/runs lists");
	return send_file(s, connection, request, fd, &st);
}

static enum MHD_Result
serve_events(struct server *s, struct MHD_Connection *connection)
{
	const char *name = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "source");
	const struct source *only = NULL;
	struct MHD_Response *r;

	for (size_t i = 0; name != NULL && i < s->nb_sources; i++)
		if (strcmp(source_get_config(s->sources[i])->name, name) == 0)
			only = s->sources[i];
	if (name != NULL && only == NULL)
		return refuse(connection, MHD_HTTP_BAD_REQUEST, "unknown source",
			"source: expected the name of a source");
	r = events_response(s->events, connection, only);
	if (r == NULL)
		return refuse_for_now(connection, "too many streams of events");
	set_deadline(s, connection, 0);
	return queue(connection, MHD_HTTP_OK, r, "text/event-stream");
}

/* ---- commands ---- */

static void *
job_main(void *arg)
{
	struct job *job = arg;
	const uint64_t begin = now_s();
	struct telemetry_socket socket;
	const char *why;

	job->result = telemetry_socket_connect(
		&socket, job->socket, job->server->cancel, LIMIT_COMMAND_MS, &why);
	if (job->result == 0)
		job->result = telemetry_socket_query(&socket, job->command.text,
			LIMIT_COMMAND_MS - (int)(now_s() - begin) * 1000, &job->reply);
	telemetry_socket_close(&socket);
	/* MHD calls the handler again */
	MHD_resume_connection(job->connection);
	/* last: libmicrohttpd ends the process if it is stopped while a connection is suspended */
	__atomic_store_n(&job->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/** Free the job, whose thread has resumed the connection or will do nothing else. */
static void
free_job(struct server *s, struct job *job)
{
	if (job == NULL)
		return;
	if (job->started)
		pthread_join(job->thread, NULL);
	pthread_mutex_lock(&s->lock);
	s->job = NULL;
	pthread_mutex_unlock(&s->lock);
	free(job->reply);
	free(job);
}

static enum MHD_Result
start_job(struct server *s, struct source *source, struct MHD_Connection *connection,
	struct request *request, const struct request_command *command)
{
	struct job *job = calloc(1, sizeof(*job));
	bool busy;

	if (job == NULL)
		return MHD_NO;
	*job = (struct job){.server = s, .connection = connection, .command = *command};
	snprintf(job->socket, sizeof(job->socket), "%s", source_get_config(source)->socket);
	pthread_mutex_lock(&s->lock);
	busy = s->job != NULL || s->stop;
	if (!busy)
		s->job = job;
	pthread_mutex_unlock(&s->lock);
	if (busy) {
		free(job);
		return refuse_for_now(connection, "another command is being executed");
	}
	request->job = job;
	set_deadline(s, connection, 0);
	MHD_suspend_connection(connection);
	if (pthread_create(&job->thread, NULL, job_main, job) == 0) {
		job->started = true;
		return MHD_YES;
	}
	job->result = -EAGAIN;
	MHD_resume_connection(connection);
	__atomic_store_n(&job->done, true, __ATOMIC_RELEASE);
	return MHD_YES;
}

static enum MHD_Result
finish_job(struct server *s, struct MHD_Connection *connection, struct request *request)
{
	char *text = request->job->reply;
	const int result = request->job->result;

	set_deadline(s, connection, LIMIT_IMAGE_S);
	/* before the answer is sent: its client may send the next command at once */
	request->job->reply = NULL;
	free_job(s, request->job);
	request->job = NULL;
	if (result == 0)
		return queue_text(connection, MHD_HTTP_OK, text, "application/json");
	return refuse(
		connection, MHD_HTTP_BAD_GATEWAY, "the receiver did not answer", strerror(-result));
}

static enum MHD_Result
serve_command(struct server *s, struct source *source, struct MHD_Connection *connection,
	struct request *request)
{
	struct request_command command;
	const char *why;

	if (request->job != NULL)
		return finish_job(s, connection, request);
	if (request->too_long)
		return refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, "body too long",
			"expected at most 2,048 bytes");
	if (!s->config.control)
		return refuse(connection, MHD_HTTP_FORBIDDEN, "no control",
			"the server was started without --control");
	if (!request_is_json(MHD_lookup_connection_value(
		    connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE)))
		return refuse(connection, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "not JSON",
			"Content-Type: expected application/json");
	if (request_command(request->body, request->size, &command, &why) != 0)
		return refuse(connection, MHD_HTTP_BAD_REQUEST, "not a command", why);
	if (!commands_is_control(source_get_config(source)->kind, command.path))
		return refuse(connection, MHD_HTTP_BAD_REQUEST, "unknown command",
			"command: expected /braggline/run/configure, arm, start, stop, abort or "
			"/braggline/veto/set of a receiver");
	return start_job(s, source, connection, request, &command);
}

/* ---- requests ---- */

static bool
is_authorized(const struct server *s, struct MHD_Connection *connection)
{
	const char *token = request_bearer(MHD_lookup_connection_value(
		connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION));
	uint8_t digest[XFER_DIGEST_BYTES];

	/* digests have the same length, so the comparison reveals nothing about the token */
	return token != NULL && xfer_digest(token, strlen(token), digest) == 0 &&
		xfer_mac_equal(digest, s->config.token);
}

static enum MHD_Result
route(struct server *s, struct MHD_Connection *connection, const char *url, bool post,
	struct request *request)
{
	char name[REQUEST_NAME_LEN];
	const enum request_target target = request_target(url, name);
	struct source *source = NULL;
	size_t index = 0;

	if (target == REQUEST_NOT_FOUND)
		return refuse(
			connection, MHD_HTTP_NOT_FOUND, "not found", "see /api/v1/openapi.json");
	if (post != (target == REQUEST_COMMAND))
		return refuse_with(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed",
			"see /api/v1/openapi.json", MHD_HTTP_HEADER_ALLOW,
			target == REQUEST_COMMAND ? "POST" : "GET, HEAD");
	if (target == REQUEST_SOURCES)
		return serve_sources(s, connection);
	if (target == REQUEST_EVENTS)
		return serve_events(s, connection);
	if (target == REQUEST_RUNS)
		return serve_runs(s, connection);
	if (target == REQUEST_RUN_FILE)
		return serve_run_file(s, connection, url, request);
	for (size_t i = 0; i < s->nb_sources; i++) {
		if (strcmp(source_get_config(s->sources[i])->name, name) != 0)
			continue;
		source = s->sources[i];
		index = i;
	}
	if (source == NULL)
		return refuse(
			connection, MHD_HTTP_NOT_FOUND, "unknown source", "see /api/v1/sources");
	if (target == REQUEST_SOURCE)
		return serve_source(source, connection);
	if (target == REQUEST_TELEMETRY)
		return serve_telemetry(source, connection);
	if (target == REQUEST_COMMAND)
		return serve_command(s, source, connection, request);
	return serve_image(s, index, connection, target);
}

static const struct asset *
find_asset(const char *url)
{
	for (size_t i = 0; i < nb_assets; i++)
		if (strcmp(assets[i].path, url) == 0)
			return &assets[i];
	return NULL;
}

/** The page has no secrets: it is served without the token, and then asks for it. */
static enum MHD_Result
answer(struct server *s, struct MHD_Connection *connection, const char *url, bool post,
	struct request *request)
{
	const char *host =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	const struct asset *asset = find_asset(url);

	if (!s->config.has_token && s->config.loopback && !request_is_local_host(host))
		return refuse(connection, MHD_HTTP_FORBIDDEN, "wrong host",
			"Host: expected localhost, [::1], or an address in 127.0.0.0/8");
	if (asset != NULL && post)
		return refuse_with(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed",
			"expected GET or HEAD", MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	if (asset != NULL)
		return serve_asset(connection, asset);
	/* pages of other sites cannot read answers, but could occupy all streams and downloads */
	if (!request_is_same_site(
		    MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Site")))
		return refuse(connection, MHD_HTTP_FORBIDDEN, "wrong site",
			"Sec-Fetch-Site: a page of another site sent the request");
	if (s->config.has_token && !is_authorized(s, connection))
		return refuse_with(connection, MHD_HTTP_UNAUTHORIZED, "unauthorized",
			"Authorization: expected Bearer and the token of --token-file",
			MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	return route(s, connection, url, post, request);
}

/** Number of headers of a request that may occur only once. */
struct header_count {
	unsigned int hosts, lengths;
};

static enum MHD_Result
count_single(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct header_count *n = arg;

	(void)kind;
	(void)value;
	n->hosts += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
	n->lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0 ||
		strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
	return MHD_YES;
}

/**
 * Return true if a request has two host names or lengths. A proxy may use one of them, and this
 * server the other (RFC 9112, 3.2 and 6.3): what is a body for the proxy would be a request here.
 */
static bool
is_ambiguous(struct MHD_Connection *connection)
{
	struct header_count n = {0};

	MHD_get_connection_values(connection, MHD_HEADER_KIND, count_single, &n);
	return n.hosts > 1 || n.lengths > 1;
}

/** MHD calls it for the head, for each part of the body, and at the end. */
static enum MHD_Result
handle(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
	const char *version, const char *upload, size_t *upload_size, void **context)
{
	const bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
	struct request *request = *context;
	struct server *s = arg;
	size_t room;

	(void)version;
	if (request == NULL) {
		if (!post && strcmp(method, MHD_HTTP_METHOD_GET) != 0 &&
			strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
			return refuse_with(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
				"method not allowed", "expected GET, HEAD or POST",
				MHD_HTTP_HEADER_ALLOW, "GET, HEAD, POST");
		if (is_ambiguous(connection))
			return refuse(connection, MHD_HTTP_BAD_REQUEST, "ambiguous request",
				"expected one Host, and one of Content-Length and "
				"Transfer-Encoding");
		request = calloc(1, sizeof(*request));
		if (request == NULL)
			return MHD_NO;
		request->get = strcmp(method, MHD_HTTP_METHOD_GET) == 0;
		*context = request;
		return MHD_YES;
	}
	if (*upload_size > 0) {
		room = sizeof(request->body) - request->size;
		request->too_long |= *upload_size > room;
		if (!request->too_long) {
			memcpy(request->body + request->size, upload, *upload_size);
			request->size += *upload_size;
		}
		*upload_size = 0;
		return MHD_YES;
	}
	if (request->job == NULL)
		set_deadline(s, connection, LIMIT_IMAGE_S);
	return answer(s, connection, url, post, request);
}

static void
complete(void *arg, struct MHD_Connection *connection, void **context,
	enum MHD_RequestTerminationCode code)
{
	struct request *request = *context;
	struct server *s = arg;

	(void)code;
	if (request != NULL)
		free_job(s, request->job);
	if (request != NULL && request->download)
		__atomic_fetch_sub(&s->files, 1, __ATOMIC_RELAXED);
	free(request);
	*context = NULL;
	/* the next request of the connection */
	set_deadline(s, connection, LIMIT_IDLE_S + LIMIT_REQUEST_S);
}

/* ---- start and stop ---- */

/** libmicrohttpd's own messages are about clients, which may not fill a log. */
static void
discard_log(void *arg, const char *format, va_list arguments)
{
	(void)arg;
	(void)format;
	(void)arguments;
}

static int
start_daemon(struct server *s)
{
	const struct server_config *c = &s->config;
	const bool six = c->address.ss_family == AF_INET6;
	unsigned int flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
		MHD_USE_ERROR_LOG | (six ? MHD_USE_IPv6 : 0) |
		(c->certificate != NULL ? MHD_USE_TLS : 0);
	const struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)c->certificate},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)c->key},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)PRIORITIES},
		{MHD_OPTION_END, 0, NULL},
	};

	errno = 0;
	s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, s, MHD_OPTION_EXTERNAL_LOGGER,
		discard_log, NULL, MHD_OPTION_SOCK_ADDR, &c->address, MHD_OPTION_THREAD_POOL_SIZE,
		THREADS, MHD_OPTION_CONNECTION_LIMIT, LIMIT_CONNECTIONS,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, LIMIT_PER_ADDRESS,
		MHD_OPTION_CONNECTION_TIMEOUT, LIMIT_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)LIMIT_HEAD * 2, MHD_OPTION_NOTIFY_COMPLETED, complete, s,
		MHD_OPTION_NOTIFY_CONNECTION, notify_connection, s, MHD_OPTION_URI_LOG_CALLBACK,
		begin_request, s, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		c->certificate != NULL ? MHD_OPTION_ARRAY : MHD_OPTION_END, tls, MHD_OPTION_END);
	if (s->daemon != NULL)
		return 0;
	/* without a system call that failed, TLS refused the certificate or the key */
	return errno != 0 ? -errno : -EINVAL;
}

static void
free_server(struct server *s)
{
	for (size_t i = 0; i < LIMIT_SOURCES; i++)
		images_cache_free(s->cache[i]);
	events_destroy(s->events);
	pthread_mutex_destroy(&s->lock);
	if (s->cancel >= 0)
		close(s->cancel);
	free(s);
}

int
server_start(struct server **server, const struct server_config *config,
	struct source *const *sources, size_t nb_sources)
{
	struct server *s = calloc(1, sizeof(*s));
	int ret;

	*server = NULL;
	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->sources = sources;
	s->nb_sources = nb_sources;
	s->cancel = eventfd(0, EFD_CLOEXEC);
	for (size_t i = 0; i < LIMIT_CONNECTIONS; i++)
		s->client[i].fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	s->events = events_create(sources, nb_sources);
	ret = s->cancel < 0 ? -EMFILE : s->events != NULL ? 0 : -ENOMEM;
	for (size_t i = 0; i < nb_sources && ret == 0; i++) {
		s->cache[i] = images_cache_create();
		ret = s->cache[i] != NULL ? 0 : -ENOMEM;
	}
	if (ret == 0)
		ret = start_daemon(s);
	if (ret == 0)
		*server = s;
	else
		free_server(s);
	return ret;
}

uint16_t
server_port(const struct server *s)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);

	return info != NULL ? info->port : 0;
}

void
server_notify(struct server *s)
{
	if (s != NULL)
		events_notify(s->events);
}

void
server_stop(struct server *s)
{
	struct timespec pause = {.tv_nsec = 10000000};
	bool busy = true;

	if (s == NULL)
		return;
	events_end(s->events);
	(void)eventfd_write(s->cancel, 1);
	/* no connection may be suspended when the daemon stops */
	while (busy) {
		pthread_mutex_lock(&s->lock);
		s->stop = true;
		busy = s->job != NULL && !__atomic_load_n(&s->job->done, __ATOMIC_ACQUIRE);
		pthread_mutex_unlock(&s->lock);
		if (busy)
			nanosleep(&pause, NULL);
	}
	MHD_stop_daemon(s->daemon);
	free_server(s);
}
