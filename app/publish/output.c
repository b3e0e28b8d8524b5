/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "arrow/bitshuffle.h"
#include "backoff.h"
#include "clock.h"
#include "counter.h"
#include "escaped_text.h"
#include "histogram.h"
#include "output.h"
#include "scan/memory.h"
#include "watch.h"

#define STOP_LINGER_MS 300 /* time to send queued messages after a signal */
#define POLL_MS	       100 /* maximum time until a thread notices that it has to end */
#define INPUT_STEPS    256 /* messages of clients that are read before other work */
#define INPUT_BYTES    (64 << 10)
#define ADDRESS_LEN    256
#define ID_MAX	       256 /* ZeroMQ: 1 to 255 bytes */
#define FD_MAX	       (1 << 20)
#define PROBE_MS       1000 /* minimum time between two checks for disconnected workers */

/* What is to be sent next. */
enum pending {
	PENDING_NONE,
	PENDING_IMAGE,
	PENDING_OTHER, /* start or end */
};

/* Address of a worker whose request waits. */
struct worker {
	uint8_t id[ID_MAX];
	size_t size;
};

struct output {
	enum output_kind kind;
	void *context;
	void *socket;
	void *monitor; /* PAIR of zmq_socket_monitor(3) */
	char address[ADDRESS_LEN];
	struct feed_cursor cursor;
	pthread_t thread;
	bool has_thread;
	bool stop, over;	/* atomic */
	struct message message; /* message that is being encoded */
	zmq_msg_t next_message; /* encoded message, if `pending` */
	enum pending pending;
	int64_t seen_ns; /* time at which the image of next_message was found */
	bool no_row;	 /* the image of next_message has no row of `frames` */
	bool closed;	 /* no message will follow */
	/* buffers for the pixels of an image */
	int16_t *photons;
	uint16_t *words;
	size_t pixels;
	/* ring of waiting workers */
	struct worker *worker;
	uint64_t first, next;
	int64_t probed; /* time of the last check for disconnected workers, ms */
	/*
	 * Steps of the thread, atomic. Odd while it calls ZeroMQ, which processes subscriptions as
	 * long as more of them arrive.
	 */
	uint64_t steps;
	/*
	 * used by output_check(): `steps` at the last check, and the CPU time that a step may take,
	 * ns @{
	 */
	uint64_t checked_steps;
	struct backoff stuck;
	/* @} */
	/* bytes of all subscriptions since the last time without clients, including ended ones */
	uint64_t prefixes;
	/* copy of the message `start` of the current series, for subscribers that connect later */
	struct message begin;
	int64_t repeated; /* time at which it was last sent again, ms */
	bool repeat;
	struct backoff full; /* delay until an image is sent after no subscriber had room, ms */
	/* bitmap of the descriptors that are connections, and their number */
	uint8_t *connection;
	uint32_t max_connection, connections;
	struct output_stats stats;
};

const char *
output_name(enum output_kind kind)
{
	static const char *const names[OUTPUT_KINDS] = {
		[OUTPUT_CRYSTFEL] = "crystfel",
		[OUTPUT_CRYSTFEL_PUB] = "crystfel-pub",
		[OUTPUT_STREAM2] = "stream2",
		[OUTPUT_STREAM2_PUB] = "stream2-pub",
	};

	return names[kind];
}

static bool
kind_is_pub(enum output_kind kind)
{
	return kind == OUTPUT_CRYSTFEL_PUB || kind == OUTPUT_STREAM2_PUB;
}

static bool
is_pub(const struct output *o)
{
	return kind_is_pub(o->kind);
}

static bool
is_stream2(const struct output *o)
{
	return o->kind == OUTPUT_STREAM2 || o->kind == OUTPUT_STREAM2_PUB;
}

static int
set_options(void *socket, enum output_kind kind, int hwm)
{
	const struct {
		int option, value;
	} options[] = {
		{ZMQ_LINGER, OUTPUT_LINGER_MS},
		{ZMQ_SNDHWM, hwm},
		{ZMQ_RCVHWM, INPUT_STEPS},
		/* what is left of a flood when its connection has ended */
		{ZMQ_RCVBUF, INPUT_BYTES},
		{ZMQ_HEARTBEAT_IVL, OUTPUT_HEARTBEAT_MS},
		{ZMQ_HEARTBEAT_TIMEOUT, OUTPUT_DEAD_MS},
		/* the send fails if the worker has disconnected; its image goes to another one */
		{kind == OUTPUT_CRYSTFEL ? ZMQ_ROUTER_MANDATORY : ZMQ_LINGER,
			kind == OUTPUT_CRYSTFEL ? 1 : OUTPUT_LINGER_MS},
	};
	const int64_t most = OUTPUT_INPUT_MAX;
	/* bit mask of I/O threads: that of workers does not write to subscribers */
	const uint64_t affinity = kind_is_pub(kind) ? 2 : 1;

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (zmq_setsockopt(socket, options[i].option, &options[i].value,
			    sizeof(options[i].value)) < 0)
			return -errno;
	}
	if (zmq_setsockopt(socket, ZMQ_AFFINITY, &affinity, sizeof(affinity)) < 0 ||
		zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof(most)) < 0)
		return -errno;
	return 0;
}

/* Opens a socket that reports connections. */
static int
open_monitor(struct output *o)
{
	const int events =
		ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
	char name[64];

	snprintf(name, sizeof(name), "inproc://monitor-%s", output_name(o->kind));
	if (zmq_socket_monitor(o->socket, name, events) < 0)
		return -errno;
	o->monitor = zmq_socket(o->context, ZMQ_PAIR);
	if (o->monitor == NULL || zmq_connect(o->monitor, name) < 0)
		return -errno;
	return 0;
}

static int
open_socket(struct output *o, const char *address, int hwm, char message[OUTPUT_MESSAGE_LEN])
{
	static const int types[OUTPUT_KINDS] = {
		[OUTPUT_CRYSTFEL] = ZMQ_ROUTER,
		[OUTPUT_CRYSTFEL_PUB] = ZMQ_XPUB,
		[OUTPUT_STREAM2] = ZMQ_PUSH,
		[OUTPUT_STREAM2_PUB] = ZMQ_XPUB,
	};
	const int verbose = 1;
	size_t size = sizeof(o->address);
	int ret;

	o->socket = zmq_socket(o->context, types[o->kind]);
	ret = o->socket != NULL ? set_options(o->socket, o->kind, hwm) : -errno;
	/* each subscription is reported, so that each client gets `start` */
	if (ret == 0 && is_pub(o) &&
		zmq_setsockopt(o->socket, ZMQ_XPUB_VERBOSER, &verbose, sizeof(verbose)) < 0)
		ret = -errno;
	if (ret == 0)
		ret = open_monitor(o);
	if (ret < 0) {
		snprintf(message, OUTPUT_MESSAGE_LEN, "--%s: cannot create a socket: %s",
			output_name(o->kind), zmq_strerror(-ret));
		return ret;
	}
	if (zmq_bind(o->socket, address) < 0 ||
		zmq_getsockopt(o->socket, ZMQ_LAST_ENDPOINT, o->address, &size) < 0) {
		ret = -errno;
		snprintf(message, OUTPUT_MESSAGE_LEN,
			"--%s %.200s: cannot be bound: %s; expected an address of this machine "
			"that is not in use, such as tcp://127.0.0.1:31001",
			output_name(o->kind), address, zmq_strerror(-ret));
		return ret;
	}
	return 0;
}

/* Ends the reports of connections. Without a reader they would stop the I/O thread. */
static void
close_monitor(struct output *o)
{
	if (o->socket != NULL)
		(void)zmq_socket_monitor(o->socket, NULL, 0);
	if (o->monitor != NULL)
		zmq_close(o->monitor);
	o->monitor = NULL;
}

int
output_create(struct output **output, enum output_kind kind, void *context, const char *address,
	const struct output_config *config, char message[OUTPUT_MESSAGE_LEN])
{
	struct output *o = calloc(1, sizeof(*o));
	int ret = -ENOMEM;

	snprintf(message, OUTPUT_MESSAGE_LEN, "not enough memory");
	if (o == NULL)
		return ret;
	o->kind = kind;
	o->context = context;
	o->cursor.event = -1;
	if (kind == OUTPUT_CRYSTFEL)
		o->worker = malloc(OUTPUT_WORKERS_MAX * sizeof(*o->worker));
	if (kind == OUTPUT_CRYSTFEL && o->worker == NULL)
		goto fail;
	ret = open_socket(o, address, config->hwm, message);
	if (ret < 0)
		goto fail;
	ret = feed_add_cursor(config->feed, &o->cursor, is_stream2(o),
		is_pub(o) ? OUTPUT_BEHIND_PUB : config->behind, config->rows_ns);
	if (ret < 0)
		goto fail;
	*output = o;
	return 0;

fail:
	output_destroy(o);
	return ret;
}

const char *
output_address(const struct output *o)
{
	return o->address;
}

static int
make_room(struct output *o, const struct wire_series *s)
{
	const size_t pixels = (size_t)s->rows * s->cols;

	if (pixels <= o->pixels)
		return 0;
	free(o->photons);
	free(o->words);
	o->photons = malloc(pixels * sizeof(*o->photons));
	o->words = malloc(pixels * sizeof(*o->words));
	o->pixels = o->photons != NULL && o->words != NULL ? pixels : 0;
	return o->pixels > 0 ? 0 : -ENOMEM;
}

static int
read_pixels(struct output *o, const struct feed_item *item, struct wire_image *image)
{
	const struct wire_series *s = item->series;
	const struct scan_images *b = &item->record->images;

	image->chunk_size = scan_images_chunk(b, item->row, &image->chunk);
	/* also for stream v2, which sends the chunk unchanged: checks that it can be decoded */
	if (!s->raw) {
		image->sparse = ((const uint8_t *)b->kind.data)[item->row] == GK_KIND_CSR;
		return scan_images_photons(
			b, item->row, s->rows, s->cols, o->photons, &image->photons);
	}
	image->words = o->words;
	return bitshuffle_decompress(
		image->chunk, image->chunk_size, o->words, (size_t)s->rows * s->cols);
}

static int
read_peaks(const struct feed_item *item, struct wire_peaks *peaks)
{
	const struct scan_peaks *p = &item->record->peaks;
	uint64_t at[SCAN_PEAK_LISTS];
	int nb;

	*peaks = (struct wire_peaks){0};
	if (!item->record->has_peaks)
		return 0;
	nb = scan_peaks_row(p, item->row, at);
	if (nb < 0)
		return nb;
	*peaks = (struct wire_peaks){
		.nb = nb,
		.fs = (const float *)p->list[SCAN_PEAK_FS].data + at[SCAN_PEAK_FS],
		.ss = (const float *)p->list[SCAN_PEAK_SS].data + at[SCAN_PEAK_SS],
		.intensity =
			(const float *)p->list[SCAN_PEAK_INTENSITY].data + at[SCAN_PEAK_INTENSITY],
		.snr = (const float *)p->list[SCAN_PEAK_SNR].data + at[SCAN_PEAK_SNR],
		.background = (const float *)p->list[SCAN_PEAK_BACKGROUND].data +
			at[SCAN_PEAK_BACKGROUND],
		.pixels = (const uint32_t *)p->list[SCAN_PEAK_PIXELS].data + at[SCAN_PEAK_PIXELS],
		.panel = (const uint16_t *)p->list[SCAN_PEAK_PANEL].data + at[SCAN_PEAK_PANEL],
	};
	return 0;
}

static int
encode_image(struct output *o, const struct feed_item *item)
{
	struct wire_image image = {
		.id = item->id,
		.frame = ((const uint64_t *)item->record->images.frame.data)[item->row],
		.seen_ns = item->seen_ns,
		.info = item->info,
	};
	int ret = make_room(o, item->series);

	if (ret == 0)
		ret = read_pixels(o, item, &image);
	if (ret == 0)
		ret = read_peaks(item, &image.peaks);
	if (ret < 0)
		return ret;
	o->seen_ns = item->seen_ns;
	o->no_row = item->info == NULL;
	return is_stream2(o) ? wire_stream2_image(&o->message, item->series, &image)
			     : wire_crystfel(&o->message, item->series, &image);
}

/* Keeps a copy of `start` for subscribers that come later. */
static void
keep_start(struct output *o)
{
	message_clear(&o->begin);
	message_put(&o->begin, o->message.data, o->message.size);
	if (o->begin.failed)
		message_clear(&o->begin);
}

/*
 * Set when the calling thread has freed a message, so that no subscriber has it in its queue. There
 * is one exception: the queue of one subscriber has become full, and all others have received the
 * message already. ZeroMQ does not distinguish the two cases.
 */
static __thread bool freed;

static void
free_data(void *data, void *hint)
{
	freed = true;
	scan_memory_put(data);
}

/* Passes the memory of the encoded message to ZeroMQ. */
static int
fill_zmq_message(struct output *o)
{
	if (zmq_msg_init_data(&o->next_message, o->message.data, o->message.size, free_data, NULL) <
		0)
		return -errno;
	o->message = (struct message){0};
	return 0;
}

/*
 * Return true if an image is skipped because no subscriber has room. ZeroMQ does not report when a
 * subscriber has room again, so that an image is sent from time to time.
 */
static bool
is_left_out(struct output *o)
{
	if (!is_pub(o))
		return false;
	if (o->connections == 0)
		counter_add(&o->stats.unseen, 1);
	else if (o->full.delay != 0 && (uint64_t)monotonic_ms() < o->full.retry_at)
		counter_add(&o->stats.no_room, 1);
	else
		return false;
	return true;
}

/* Makes the next message. @return true: there is more to do at once */
static bool
prepare(struct output *o)
{
	enum pending pending = PENDING_OTHER;
	struct feed_item item;
	enum feed_kind kind;
	int ret = 0;

	if (o->pending != PENDING_NONE || o->closed)
		return false;
	kind = feed_next(&o->cursor, &item);
	counter_set(&o->stats.skipped, o->cursor.skipped);
	counter_set(&o->stats.gone, o->cursor.gone);
	switch (kind) {
	case FEED_WAIT:
		return false;
	case FEED_CLOSED:
		o->closed = true;
		return false;
	case FEED_START:
		ret = wire_stream2_start(&o->message, item.series);
		if (ret == 0)
			keep_start(o);
		break;
	case FEED_FINISH:
		ret = wire_stream2_end(&o->message, item.series);
		message_clear(&o->begin);
		break;
	case FEED_IMAGE:
		if (is_left_out(o))
			return true;
		ret = encode_image(o, &item);
		counter_add(&o->stats.encoded, ret == 0);
		pending = PENDING_IMAGE;
		break;
	}
	if (ret == 0)
		ret = fill_zmq_message(o);
	if (ret == 0)
		o->pending = pending;
	else
		counter_add(&o->stats.damaged, 1);
	return true;
}

/*
 * Notes that the pending message was given to ZeroMQ.
 * @param taken  by any client
 * @param full   the queue of a subscriber has become full
 */
static void
account_sent(struct output *o, size_t size, bool taken, bool full)
{
	int64_t us;

	if (o->pending == PENDING_IMAGE && !taken) {
		counter_add(&o->stats.no_room, 1);
		/* if only this queue was full, others may have room: the next image shows it */
		if (!full)
			backoff_extend(
				&o->full, monotonic_ms(), OUTPUT_FULL_MIN_MS, OUTPUT_FULL_MAX_MS);
	} else if (o->pending == PENDING_IMAGE) {
		o->full.delay = 0;
		us = (utc_ns() - o->seen_ns) / 1000;
		us = us > 0 ? us : 0; /* the clock was set */
		counter_add(&o->stats.us[latency_bucket(us, OUTPUT_BUCKETS)], 1);
		if ((uint64_t)us > o->stats.slowest_us)
			counter_set(&o->stats.slowest_us, us);
		counter_add(&o->stats.images, 1);
		counter_add(&o->stats.bytes, size);
		counter_add(&o->stats.no_row, o->no_row);
	}
	o->pending = PENDING_NONE;
}

/*
 * @param full  the queue of a subscriber has become full
 * @return 0; -EAGAIN: no client has room; -errno. The message stays pending after an error
 */
static int
send_pending(struct output *o, bool full)
{
	const size_t size = zmq_msg_size(&o->next_message);

	freed = false;
	if (zmq_msg_send(&o->next_message, o->socket, ZMQ_DONTWAIT) < 0)
		return -errno;
	/* a message that is in a queue is freed later, by a thread of ZeroMQ */
	account_sent(o, size, !is_pub(o) || !freed, full);
	return 0;
}

static void
set_lossy(struct output *o, bool lossy)
{
	const int nodrop = !lossy;

	(void)zmq_setsockopt(o->socket, ZMQ_XPUB_NODROP, &nodrop, sizeof(nodrop));
}

/* Sends to all subscribers that have room. */
static bool
send_to_subscribers(struct output *o)
{
	set_lossy(o, false);
	if (send_pending(o, false) == 0)
		return true;
	counter_add(&o->stats.full, 1);
	set_lossy(o, true);
	return send_pending(o, true) == 0;
}

/* Answers the requests of workers, the oldest one first. @return true: the message was sent */
static bool
send_to_worker(struct output *o)
{
	struct worker *w;

	while (o->first < o->next) {
		w = &o->worker[o->first++ % OUTPUT_WORKERS_MAX];
		if (zmq_send(o->socket, w->id, w->size, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
			/*
			 * the worker has disconnected, or does not read its messages: the next
			 * worker gets the image
			 */
			counter_add(&o->stats.lost, 1);
			continue;
		}
		if (zmq_send(o->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) == 0 &&
			send_pending(o, false) == 0)
			return true;
	}
	return false;
}

/* Sends the pending message, if there is one. @return true: it was sent */
static bool
send_if_pending(struct output *o)
{
	if (o->pending == PENDING_NONE)
		return false;
	if (is_pub(o))
		return send_to_subscribers(o);
	return o->kind == OUTPUT_CRYSTFEL ? send_to_worker(o) : send_pending(o, false) == 0;
}

/*
 * Drops the requests of workers that have disconnected. ZeroMQ reports a disconnect only when a
 * message is sent. Each worker is therefore sent a message that its REQ socket ignores: a reply to
 * request 0, which is never the number of its request (ZMQ_REQ_CORRELATE). A message that is not in
 * the form of a reply would end the connection, and the socket would not connect again.
 */
static void
drop_disconnected(struct output *o)
{
	const uint32_t request = 0;
	const uint64_t end = o->next;
	const struct worker *w;

	if (o->probed != 0 && monotonic_ms() - o->probed < PROBE_MS)
		return;
	o->probed = monotonic_ms();
	o->next = o->first;
	for (uint64_t i = o->first; i < end; i++) {
		w = &o->worker[i % OUTPUT_WORKERS_MAX];
		if (zmq_send(o->socket, w->id, w->size, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
			counter_add(&o->stats.lost, 1);
			continue;
		}
		(void)zmq_send(o->socket, &request, sizeof(request), ZMQ_SNDMORE | ZMQ_DONTWAIT);
		(void)zmq_send(o->socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
		(void)zmq_send(o->socket, "", 0, ZMQ_DONTWAIT);
		o->worker[o->next++ % OUTPUT_WORKERS_MAX] = *w;
	}
}

static bool
has_waiting(const struct output *o, const struct worker *w)
{
	const struct worker *other;

	for (uint64_t i = o->first; i < o->next; i++) {
		other = &o->worker[i % OUTPUT_WORKERS_MAX];
		if (other->size == w->size && memcmp(other->id, w->id, w->size) == 0)
			return true;
	}
	return false;
}

/* Handle a request, which has an address, an empty part, and any content. */
static void
take_request(struct output *o, const struct worker *w, bool valid)
{
	counter_add(&o->stats.requests, 1);
	if (valid && o->next - o->first == OUTPUT_WORKERS_MAX)
		drop_disconnected(o);
	if (!valid || o->next - o->first == OUTPUT_WORKERS_MAX || has_waiting(o, w))
		counter_add(&o->stats.refused, 1);
	else
		o->worker[o->next++ % OUTPUT_WORKERS_MAX] = *w;
}

/* Handle a subscription (first byte 1) or its end (0). A prefix of messages follows. */
static void
take_subscription(struct output *o, const uint8_t *data, size_t size)
{
	counter_add(&o->stats.requests, 1);
	/* ends are not subtracted: a client may end subscriptions that it does not have */
	if (size == 0 || data[0] > 1)
		counter_add(&o->stats.refused, 1);
	if (size == 0 || data[0] != 1)
		return;
	o->prefixes += size;
	o->repeat = true;
	o->full.delay = 0; /* a new subscriber has room */
}

/* Reads one message of a client, part by part. @return false: there is none */
static bool
read_input(struct output *o)
{
	struct worker w = {.size = 0};
	unsigned int part = 0;
	bool valid = true, more = true;
	zmq_msg_t m;

	for (; more; part++) {
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, o->socket, ZMQ_DONTWAIT) < 0)
			return false;
		more = zmq_msg_more(&m);
		if (is_pub(o)) {
			take_subscription(o, zmq_msg_data(&m), zmq_msg_size(&m));
		} else if (part == 0) {
			w.size = zmq_msg_size(&m) < sizeof(w.id) ? zmq_msg_size(&m) : 0;
			memcpy(w.id, zmq_msg_data(&m), w.size);
		} else if (part == 1) {
			valid = zmq_msg_size(&m) == 0;
		}
		zmq_msg_close(&m);
	}
	if (!is_pub(o))
		take_request(o, &w, valid && part == 3 && w.size > 0);
	return true;
}

/* Notes the begin or the end of a connection. A handshake that fails has an end, too. */
static void
note_connection(struct output *o, uint32_t fd, bool begins)
{
	const uint32_t max = (fd / 8 + 1) * 2;
	uint8_t *more, bit = 1 << fd % 8;

	if (fd / 8 >= o->max_connection) {
		more = begins ? realloc(o->connection, max) : NULL;
		if (more == NULL) {
			/* out of memory: the count stays, so all images are encoded */
			o->connections += begins;
			return;
		}
		memset(more + o->max_connection, 0, max - o->max_connection);
		o->connection = more;
		o->max_connection = max;
	}
	if (((o->connection[fd / 8] & bit) != 0) == begins)
		return;
	o->connection[fd / 8] ^= bit;
	o->connections += begins ? 1 : -1;
	if (o->connections == 0)
		o->prefixes = 0;
}

/* Reads what zmq_socket_monitor(3) reports: the event, and its value. */
static void
read_monitor(struct output *o)
{
	uint16_t event;
	uint32_t value;
	zmq_msg_t m;
	bool more;

	for (unsigned int i = 0; i < INPUT_STEPS; i++) {
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, o->monitor, ZMQ_DONTWAIT) < 0)
			return;
		more = zmq_msg_more(&m);
		if (more && zmq_msg_size(&m) >= sizeof(event) + sizeof(value)) {
			memcpy(&event, zmq_msg_data(&m), sizeof(event));
			memcpy(&value, (uint8_t *)zmq_msg_data(&m) + sizeof(event), sizeof(value));
			if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
				counter_add(&o->stats.connected, 1);
			else
				note_connection(o, value, event == ZMQ_EVENT_ACCEPTED);
			if (event == ZMQ_EVENT_DISCONNECTED)
				counter_add(&o->stats.disconnected, 1);
		}
		zmq_msg_close(&m);
	}
}

/*
 * Whether a local address of a descriptor is that of the output. ZeroMQ does not listen on IPv6
 * addresses by default (ZMQ_IPV6).
 */
static bool
is_own_address(const struct output *o, const struct sockaddr_storage *local, socklen_t size)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)local;
	const struct sockaddr_un *un = (const struct sockaddr_un *)local;
	const size_t before = offsetof(struct sockaddr_un, sun_path);
	char host[INET_ADDRSTRLEN], own[ADDRESS_LEN], any[ADDRESS_LEN] = "";

	if (local->ss_family == AF_INET && inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host))) {
		snprintf(own, sizeof(own), "tcp://%s:%u", host, ntohs(in->sin_port));
		snprintf(any, sizeof(any), "tcp://0.0.0.0:%u", ntohs(in->sin_port));
	} else if (local->ss_family == AF_UNIX && size > before) {
		/* an abstract name begins with 0, and has no 0 at its end */
		snprintf(own, sizeof(own), "ipc://%s%.*s", un->sun_path[0] == '\0' ? "@" : "",
			(int)(size - before - (un->sun_path[0] == '\0')),
			un->sun_path + (un->sun_path[0] == '\0'));
	} else {
		return false;
	}
	return strcmp(own, o->address) == 0 || strcmp(any, o->address) == 0;
}

/*
 * Ends the connections of all clients; their sockets connect again. ZeroMQ has no function for it.
 * So the program shuts down the descriptors that have the address of the output.
 * @return false: there was none
 */
static bool
disconnect_clients(const struct output *o, const char *why)
{
	struct sockaddr_storage local, peer;
	socklen_t local_size, peer_size;
	struct rlimit limit;
	bool any = false;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return false;
	for (int fd = 0; (rlim_t)fd < limit.rlim_cur && fd < FD_MAX; fd++) {
		local_size = sizeof(local);
		peer_size = sizeof(peer);
		if (getsockname(fd, (struct sockaddr *)&local, &local_size) == 0 &&
			getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0 &&
			is_own_address(o, &local, local_size))
			any |= shutdown(fd, SHUT_RDWR) == 0;
	}
	if (any)
		escaped_line(stderr,
			"braggline-publish: --%s %s: %s: all of its clients were disconnected, and "
			"may connect again; expected clients that subscribe to few prefixes",
			output_name(o->kind), o->address, why);
	return any;
}

/*
 * ZeroMQ keeps subscriptions, which need about 30 times their size. Without a connection to end,
 * the report that the last client has disconnected, which resets the sum, is still to come.
 */
static void
limit_prefixes(struct output *o)
{
	if (o->prefixes > OUTPUT_PREFIXES_MAX &&
		disconnect_clients(o, "its clients sent too many subscriptions"))
		o->prefixes = 0;
}

/*
 * Clients that connect again get more time than those before them: the thread may still process
 * what the former ones have sent.
 */
void
output_check(struct output *o)
{
	const uint64_t steps = counter_get(&o->steps);
	const bool stays = steps % 2 == 1 && steps == o->checked_steps;
	struct timespec used;
	clockid_t clock;
	uint64_t ns;

	/* CPU time: a thread that has no CPU, or sleeps, is not stuck */
	if (!is_pub(o) || !o->has_thread || output_is_over(o) ||
		pthread_getcpuclockid(o->thread, &clock) != 0 || clock_gettime(clock, &used) < 0)
		return;
	ns = used.tv_sec * UINT64_C(1000000000) + used.tv_nsec;
	if (stays && ns < o->stuck.retry_at)
		return;
	if (stays)
		(void)disconnect_clients(
			o, "its clients send subscriptions faster than they are processed");
	else
		o->stuck.delay = 0;
	o->checked_steps = steps;
	backoff_extend(&o->stuck, ns, OUTPUT_STUCK_MS * UINT64_C(1000000),
		OUTPUT_STUCK_MAX_MS * UINT64_C(1000000));
}

/* Sends `start` again after a subscription. */
static void
repeat_start(struct output *o)
{
	if (!o->repeat || monotonic_ms() - o->repeated < OUTPUT_REPEAT_MS)
		return;
	o->repeat = false;
	if (o->begin.size == 0)
		return;
	o->repeated = monotonic_ms();
	set_lossy(o, true);
	(void)zmq_send(o->socket, o->begin.data, o->begin.size, ZMQ_DONTWAIT);
}

static void
wait_for_more(struct output *o)
{
	const bool push = o->kind == OUTPUT_STREAM2;
	zmq_pollitem_t items[] = {
		{.socket = o->monitor, .events = ZMQ_POLLIN},
		{.fd = o->cursor.event, .events = ZMQ_POLLIN},
		{.socket = o->socket, .events = push ? ZMQ_POLLOUT : ZMQ_POLLIN},
	};
	/* a client that has room is of interest only if there is something to send */
	const int nb = push && o->pending == PENDING_NONE ? 2 : 3;
	uint64_t events;

	(void)zmq_poll(items, nb, feed_wait_ms(&o->cursor, POLL_MS));
	if (read(o->cursor.event, &events, sizeof(events)) < 0)
		return;
}

/* The thread begins or ends to call ZeroMQ. */
static void
next_step(struct output *o)
{
	counter_add(&o->steps, 1);
}

static void *
run_output(void *arg)
{
	struct output *o = arg;
	bool more;

	next_step(o);
	while (!__atomic_load_n(&o->stop, __ATOMIC_RELAXED)) {
		for (unsigned int i = 0; i < INPUT_STEPS && o->kind != OUTPUT_STREAM2; i++) {
			if (!read_input(o))
				break;
		}
		read_monitor(o);
		limit_prefixes(o);
		repeat_start(o);
		next_step(o);
		more = prepare(o);
		next_step(o);
		more |= send_if_pending(o);
		if (o->closed && o->pending == PENDING_NONE)
			break;
		/* it waits for POLL_MS at most */
		if (!more)
			wait_for_more(o);
	}
	next_step(o);
	read_monitor(o);
	close_monitor(o);
	__atomic_store_n(&o->over, true, __ATOMIC_RELEASE);
	return NULL;
}

int
output_start(struct output *o)
{
	const int ret = -pthread_create(&o->thread, NULL, run_output, o);

	o->has_thread = ret == 0;
	return ret;
}

void
output_stop(struct output *o)
{
	__atomic_store_n(&o->stop, true, __ATOMIC_RELAXED);
}

bool
output_is_over(const struct output *o)
{
	return __atomic_load_n(&o->over, __ATOMIC_ACQUIRE);
}

void
output_destroy(struct output *o)
{
	const int linger = STOP_LINGER_MS;

	if (o == NULL)
		return;
	if (o->has_thread)
		pthread_join(o->thread, NULL);
	if (o->pending != PENDING_NONE)
		zmq_msg_close(&o->next_message);
	close_monitor(o);
	if (o->socket != NULL) {
		if (o->stop)
			(void)zmq_setsockopt(o->socket, ZMQ_LINGER, &linger, sizeof(linger));
		zmq_close(o->socket);
	}
	if (o->cursor.event >= 0)
		feed_free_cursor(&o->cursor);
	message_free(&o->message);
	message_free(&o->begin);
	free(o->photons);
	free(o->words);
	free(o->worker);
	free(o->connection);
	free(o);
}

void
output_stats_get(const struct output *o, struct output_stats *stats)
{
	counters_get(stats, &o->stats, sizeof(*stats));
}

uint64_t
output_waiting(const struct output *o, uint64_t images)
{
	struct output_stats s;
	uint64_t done;

	output_stats_get(o, &s);
	done = s.images + s.skipped + s.gone + s.damaged;
	return is_pub(o) || images < done ? 0 : images - done;
}
