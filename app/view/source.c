/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <gk_abi.h>

#include "bounds.h"
#include "clock.h"
#include "escaped_text.h"
#include "live_reader.h"
#include "monotonic_cond.h"
#include "source.h"
#include "telemetry_socket.h"

#define WATCH_MS   10 /* polling interval of the live file */
#define SLOW_EVERY 10 /* periods between two requests of a slow command */

struct reply {
	char *text;	      /* NULL: none */
	uint64_t at;	      /* time of the reply, monotonic ms */
	struct timespec time; /* time of the reply since 1970 */
	uint64_t version;
};

struct source {
	struct source_config config;
	const struct command *commands;
	size_t nb_commands;
	pthread_t thread;
	int cancel; /* eventfd: the thread is to end */
	/* used by the thread only */
	struct telemetry_socket socket;
	struct live_reader reader;
	unsigned int round;
	uint64_t ino, generation, sequence; /* identity of the newest frame that was announced */
	pthread_mutex_t lock;		    /* protects the fields below */
	pthread_cond_t changed;
	bool quit;
	bool up;
	int64_t pid;
	int64_t since;	 /* time of the last change of `up`, s since 1970 */
	char error[256]; /* reason if it is not up */
	char *live;	 /* path of the live file; NULL: none */
	char *frame;	 /* newest frame as JSON; NULL: none */
	uint64_t state_version, frame_version;
	struct reply reply[COMMANDS_MAX];
};

/* ---- state ---- */

/** Called with the lock. */
static void
forget(struct source *s)
{
	for (size_t i = 0; i < s->nb_commands; i++) {
		free(s->reply[i].text);
		s->reply[i].text = NULL;
	}
	free(s->live);
	s->live = NULL;
	free(s->frame);
	s->frame = NULL;
}

static void
set_up(struct source *s)
{
	pthread_mutex_lock(&s->lock);
	s->up = true;
	s->pid = s->socket.pid;
	s->since = time(NULL);
	s->error[0] = '\0';
	s->state_version++;
	pthread_mutex_unlock(&s->lock);
	s->config.changed();
}

static void
set_down(struct source *s, const char *why, int error)
{
	char text[sizeof(s->error)];
	bool news;

	telemetry_socket_close(&s->socket);
	live_reader_close(&s->reader);
	snprintf(text, sizeof(text), "%s: %s", why, strerror(-error));
	pthread_mutex_lock(&s->lock);
	news = s->up || strcmp(s->error, text) != 0;
	if (s->up || s->since == 0)
		s->since = time(NULL);
	if (news)
		s->state_version++;
	s->up = false;
	snprintf(s->error, sizeof(s->error), "%s", text);
	forget(s);
	pthread_mutex_unlock(&s->lock);
	if (news)
		s->config.changed();
}

/* ---- telemetry ---- */

/** A text that telemetry has split: NAME, NAME_2 ... (telemetry/dict.h). To be freed. */
static char *
join_text(const json_t *object, const char *name)
{
	char key[64], *text = NULL, *longer;
	const char *part;

	snprintf(key, sizeof(key), "%s", name);
	for (int n = 2; (part = json_string_value(json_object_get(object, key))) != NULL; n++) {
		if (asprintf(&longer, "%s%s", text != NULL ? text : "", part) < 0)
			break;
		free(text);
		text = longer;
		snprintf(key, sizeof(key), "%s_%d", name, n);
	}
	return text;
}

/** Undo ascii_text(): its escapes are those of JSON. @return NULL: they are not; to be freed */
static char *
decode_text(const char *ascii)
{
	char *json = malloc(strlen(ascii) * 6 + 3), *out = json, *text = NULL;
	json_t *string;

	if (json == NULL)
		return NULL;
	*out++ = '"';
	for (const char *c = ascii; *c != '\0'; c++) {
		/* other backslashes are those of the text */
		if (*c == '\\' && c[1] == 'u' && strspn(c + 2, "0123456789abcdef") >= 4)
			*out++ = '\\';
		else if (*c == '\\' || *c == '"' || (uint8_t)*c < ' ')
			out += sprintf(out, "\\u%04x", (uint8_t)*c);
		else
			*out++ = *c;
	}
	strcpy(out, "\"");
	string = json_loads(json, JSON_DECODE_ANY, NULL);
	if (json_is_string(string))
		text = strdup(json_string_value(string));
	json_decref(string);
	free(json);
	return text;
}

/** Take the path of the live file from the reply of /braggline/preview. */
static void
take_live(struct source *s, const char *reply)
{
	json_t *object = json_loads(reply, 0, NULL);
	char *ascii = join_text(json_object_get(object, "/braggline/preview"), "live");
	char *path = ascii != NULL ? decode_text(ascii) : NULL;

	free(ascii);
	json_decref(object);
	if (path != NULL && path[0] != '/') {
		free(path);
		path = NULL;
	}
	pthread_mutex_lock(&s->lock);
	if ((path == NULL) != (s->live == NULL) || (path != NULL && strcmp(path, s->live) != 0))
		s->state_version++;
	free(s->live);
	s->live = path;
	pthread_mutex_unlock(&s->lock);
}

static int
query(struct source *s, size_t index)
{
	struct reply *r = &s->reply[index];
	char *text, *old;
	int ret;

	ret = telemetry_socket_query(
		&s->socket, s->commands[index].path, LIMIT_TELEMETRY_MS, &text);
	if (ret != 0)
		return ret;
	if (strcmp(s->commands[index].path, "/braggline/preview") == 0)
		take_live(s, text);
	pthread_mutex_lock(&s->lock);
	old = r->text;
	r->at = monotonic_ms();
	clock_gettime(CLOCK_REALTIME, &r->time);
	/* a slow reply is announced when it changes */
	if (!s->commands[index].slow || old == NULL || strcmp(old, text) != 0)
		r->version++;
	r->text = text;
	pthread_mutex_unlock(&s->lock);
	free(old);
	return 0;
}

static void
poll_telemetry(struct source *s)
{
	const char *why;
	int ret;

	if (s->socket.fd < 0) {
		ret = telemetry_socket_connect(
			&s->socket, s->config.socket, s->cancel, LIMIT_TELEMETRY_MS, &why);
		if (ret == -ECANCELED)
			return;
		if (ret != 0) {
			set_down(s, why, ret);
			return;
		}
		s->round = 0;
		set_up(s);
	}
	for (size_t i = 0; i < s->nb_commands; i++) {
		if (s->commands[i].slow && s->round % SLOW_EVERY != 0)
			continue;
		ret = query(s, i);
		if (ret == -ECANCELED)
			return;
		if (ret != 0) {
			set_down(s, ret == -EPROTO ? "invalid reply" : "the connection ended", ret);
			return;
		}
	}
	s->round++;
	s->config.changed();
}

/* ---- the live file ---- */

static json_t *
describe_frame(
	const struct source *s, const struct live_file_head *h, const struct live_file_frame *f)
{
	char *run = escaped_text(h->run);
	json_t *o = json_pack("{s:s, s:s*, s:I, s:I, s:I, s:I, s:I}", "source", s->config.name,
		"run", run, "generation", (json_int_t)h->generation, "sequence",
		(json_int_t)f->begin, "frame", (json_int_t)f->frame, "rows", (json_int_t)h->rows,
		"cols", (json_int_t)h->cols);

	free(run);
	if (o == NULL)
		return NULL;
	json_object_set_new(o, "kind", json_string(f->kind == GK_KIND_CSR ? "csr" : "image"));
	json_object_set_new(o, "receive_time_ns", json_integer(f->receive_time));
	json_object_set_new(o, "strong_count", json_integer(f->strong_count));
	json_object_set_new(o, "sum", isfinite(f->sum) ? json_real(f->sum) : json_null());
	json_object_set_new(o, "saturated", json_integer(f->saturated));
	json_object_set_new(
		o, "peaks", f->peaks != FRAME_NO_SEARCH ? json_integer(f->peaks) : json_null());
	json_object_set_new(o, "frames", json_integer((json_int_t)h->frames));
	json_object_set_new(o, "geometry", json_boolean(h->geometry_size > 0));
	return o;
}

static void
announce(struct source *s, const struct live_file_frame *f)
{
	json_t *object = describe_frame(s, &s->reader.head, f);
	char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL, *old;

	json_decref(object);
	if (text == NULL)
		return;
	pthread_mutex_lock(&s->lock);
	old = s->frame;
	s->frame = text;
	s->frame_version++;
	pthread_mutex_unlock(&s->lock);
	free(old);
	s->config.changed();
}

/** Open the file, and again if it was replaced or another run has begun. @return true if open */
static bool
follow_file(struct source *s, const char *path)
{
	struct stat st;

	if (stat(path, &st) != 0)
		st.st_ino = 0;
	if (s->reader.fd >= 0 && st.st_ino == s->ino && !live_reader_is_stale(&s->reader))
		return true;
	live_reader_close(&s->reader);
	if (st.st_ino == 0 || live_reader_open(&s->reader, path) != 0)
		return false;
	s->ino = st.st_ino;
	s->generation = s->reader.head.generation;
	s->sequence = 0;
	return true;
}

static void
watch_live(struct source *s)
{
	struct live_file_frame f;
	char *path = source_live(s);

	if (path != NULL && follow_file(s, path) && live_reader_frame(&s->reader, &f, NULL) == 0 &&
		f.begin != s->sequence &&
		live_reader_at(&s->reader, 0, &s->reader.head, sizeof(s->reader.head)) == 0 &&
		s->reader.head.generation == s->generation) {
		s->sequence = f.begin;
		announce(s, &f);
	}
	free(path);
}

/* ---- thread ---- */

static void *
source_main(void *arg)
{
	struct source *s = arg;
	uint64_t due = monotonic_ms(), t;
	struct timespec until;
	bool quit = false;

	while (!quit) {
		t = monotonic_ms();
		if (t >= due) {
			poll_telemetry(s);
			due = t + s->config.period_ms;
		}
		watch_live(s);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += WATCH_MS * 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_mutex_lock(&s->lock);
		if (!s->quit)
			pthread_cond_timedwait(&s->changed, &s->lock, &until);
		quit = s->quit;
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

struct source *
source_start(const struct source_config *config)
{
	struct source *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->config = *config;
	s->commands = commands_of(config->kind, &s->nb_commands);
	s->cancel = eventfd(0, EFD_CLOEXEC);
	if (s->cancel < 0) {
		free(s);
		return NULL;
	}
	s->socket.fd = -1;
	s->reader.fd = -1;
	s->state_version = 1;
	snprintf(s->error, sizeof(s->error), "not connected yet");
	pthread_mutex_init(&s->lock, NULL);
	monotonic_cond_init(&s->changed);
	if (pthread_create(&s->thread, NULL, source_main, s) == 0)
		return s;
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	close(s->cancel);
	free(s);
	return NULL;
}

void
source_stop(struct source *s)
{
	if (s == NULL)
		return;
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	(void)eventfd_write(s->cancel, 1);
	pthread_join(s->thread, NULL);
}

void
source_free(struct source *s)
{
	if (s == NULL)
		return;
	telemetry_socket_close(&s->socket);
	live_reader_close(&s->reader);
	forget(s);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	close(s->cancel);
	free(s);
}

/* ---- other threads ---- */

const struct source_config *
source_get_config(const struct source *s)
{
	return &s->config;
}

bool
source_is_up(struct source *s)
{
	bool up;

	pthread_mutex_lock(&s->lock);
	up = s->up;
	pthread_mutex_unlock(&s->lock);
	return up;
}

char *
source_reply(struct source *s, size_t index, uint64_t *age_ms)
{
	char *text = NULL;

	pthread_mutex_lock(&s->lock);
	if (s->reply[index].text != NULL)
		text = strdup(s->reply[index].text);
	*age_ms = monotonic_ms() - s->reply[index].at;
	pthread_mutex_unlock(&s->lock);
	return text;
}

char *
source_live(struct source *s)
{
	char *path;

	pthread_mutex_lock(&s->lock);
	path = s->live != NULL ? strdup(s->live) : NULL;
	pthread_mutex_unlock(&s->lock);
	return path;
}

uint64_t
source_version(struct source *s, unsigned int topic)
{
	uint64_t version = 0;

	pthread_mutex_lock(&s->lock);
	if (topic == SOURCE_TOPIC_STATE)
		version = s->state_version;
	else if (topic == SOURCE_TOPIC_FRAME)
		version = s->frame != NULL ? s->frame_version : 0;
	else if (topic - SOURCE_TOPIC_REPLY < s->nb_commands &&
		s->reply[topic - SOURCE_TOPIC_REPLY].text != NULL)
		version = s->reply[topic - SOURCE_TOPIC_REPLY].version;
	pthread_mutex_unlock(&s->lock);
	return version;
}

/** Called with the lock. */
static json_t *
describe_state(const struct source *s)
{
	json_t *commands = json_array(), *o;
	/* a path need not be UTF-8 */
	char *socket = escaped_text(s->config.socket);

	for (size_t i = 0; i < s->nb_commands; i++)
		json_array_append_new(commands, json_string(s->commands[i].path));
	o = json_pack("{s:s, s:s, s:s*, s:s, s:I, s:o, s:b}", "source", s->config.name, "kind",
		s->config.kind == SOURCE_RECEIVER ? "receiver" : "store", "socket", socket, "state",
		s->up ? "up" : "down", "since", (json_int_t)s->since, "commands", commands, "live",
		s->live != NULL);
	free(socket);
	if (s->up)
		json_object_set_new(o, "pid", json_integer(s->pid));
	else
		json_object_set_new(o, "error", json_string(s->error));
	return o;
}

/** The reply, unchanged. Called with the lock held. */
static char *
reply_text(const struct source *s, size_t index)
{
	const struct reply *r = &s->reply[index];
	char *text = NULL;

	if (index >= s->nb_commands || r->text == NULL)
		return NULL;
	if (asprintf(&text,
		    "{\"source\":\"%s\",\"command\":\"%s\",\"time\":%lld.%03ld,\"reply\":%s}",
		    s->config.name, s->commands[index].path, (long long)r->time.tv_sec,
		    r->time.tv_nsec / 1000000, r->text) < 0)
		return NULL;
	return text;
}

char *
source_topic_text(struct source *s, unsigned int topic, uint64_t *version)
{
	json_t *object = NULL;
	char *text = NULL;

	*version = source_version(s, topic);
	pthread_mutex_lock(&s->lock);
	if (topic == SOURCE_TOPIC_STATE)
		object = describe_state(s);
	else if (topic == SOURCE_TOPIC_FRAME)
		text = s->frame != NULL ? strdup(s->frame) : NULL;
	else
		text = reply_text(s, topic - SOURCE_TOPIC_REPLY);
	pthread_mutex_unlock(&s->lock);
	if (object != NULL)
		text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return text;
}

const char *
source_topic_name(unsigned int topic)
{
	return topic == SOURCE_TOPIC_STATE    ? "source"
		: topic == SOURCE_TOPIC_FRAME ? "frame"
					      : "telemetry";
}
