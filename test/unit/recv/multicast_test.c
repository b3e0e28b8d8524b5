/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real pipeline receives multicast streams, from senders on the other end of a wire that loses
 * packets of the groups. The pixels of each frame tell to which frame, stream and tile they belong:
 * a frame has only its own, and what was lost is missing. FRAME_SEED repeats a random run,
 * FRAME_TEST selects tests.
 */
#include "rx_rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <time.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>

#include <rdma.h>
#include <rdma_stream.h>

#include "../roce/ring_port.h"
#include "builder/builder.h"
#include "builder/command.h"
#include "config/config.h"
#include "egress/egress.h"
#include "ingest/multicast.h"
#include "pipeline.h"
#include "port/placement.h"
#include "port/port.h"
#include "raw_output.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/transport.h"
#include "settings.h"

#define STREAMS	      2
#define TILES	      4 /* of a stream and frame: 16 rows are read out */
#define FIRST	      62
#define SLOTS	      16  /* of a stream's ring in the receiver */
#define PACKETS	      256 /* of a sender's ring: 21 frames */
#define TILE	      8192
#define MESSAGE	      (TILE + INGEST_TRAILER_BYTES)
#define PAYLOAD	      (4096 - RDMA_STREAM_HEADER_BYTES)
#define BEHIND	      4 /* frames that the receiver may be behind */
#define PIXELS_A_TILE (TILE / 2)
#define FRAMES	      1024
#define UNFINISHED    13 /* frame in which a detector dies */

static char directory[] = "/tmp/multicast_test_XXXXXX";
static char path[sizeof(directory) + 16];
static struct config *config;
static struct egress_settings egress;
static struct settings settings;
static struct pipeline p;
static struct rte_ring *from_net, *to_net; /* the receiver's port */
static struct rte_ring *from_sender, *to_sender;

static struct {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_stream_sender *stream[STREAMS];
	enum rdma_stream_policy policy;
	bool dead; /* nothing of it runs */
	const struct rdma_stream_proof *proof[STREAMS];
} sender;

static uint32_t chance; /* of a packet of a group to be lost, of 1,000 */
static uint64_t seed, nb_lost;
static bool receiver_stalled, gangs_stalled;
static uint32_t timeout_ms = 20; /* stream_timeout_ms */
static uint32_t generation;	 /* of the detector: the same frame then has other pixels */

/* Frames of the run, by number modulo FRAMES. */
static struct frame_record records[FRAMES];
static uint64_t nb_sent, nb_records, nb_stale, nb_missing;

/* ---- pixels ---- */

static uint16_t
pixel(uint64_t frame, uint32_t stream, uint32_t tile, uint32_t i)
{
	switch (i % 4) {
	case 0:
		return frame & 0x3FFF;
	case 1:
		return frame == UNFINISHED ? 0 : generation;
	case 2:
		return stream << 8 | tile;
	default:
		return (i + frame) & 0x3FF;
	}
}

static void
make_message(uint8_t to[MESSAGE], uint64_t frame, uint32_t stream, uint32_t tile)
{
	memset(to, 0, MESSAGE);
	for (uint32_t i = 0; i < PIXELS_A_TILE; i++)
		((uint16_t *)to)[i] = pixel(frame, stream, tile, i);
	rig_header(to + TILE, frame, tile);
}

/** A kept frame has its own pixels, and 0xFFFF where a packet is missing. */
static void
check_frame(const struct frame_record *r)
{
	const uint16_t *raw = raw_output(p.gk_config, p.outputs, r);

	assert_int_equal(r->kind, GK_KIND_RAW);
	for (uint32_t s = 0; s < STREAMS; s++)
		for (uint32_t t = FIRST; t < FIRST + TILES; t++) {
			const uint32_t tile = s * 128 + t;
			const bool missing = r->missing_map[tile / 8] >> tile % 8 & 1;
			const uint16_t *at = raw + (size_t)tile * PIXELS_A_TILE;

			nb_missing += missing;
			for (uint32_t i = 0; i < PIXELS_A_TILE; i++)
				nb_stale += at[i] != (missing ? 0xFFFF : pixel(r->frame, s, t, i));
		}
}

static void
collect(void)
{
	struct frame_record *r;

	while (rte_ring_sc_dequeue(p.egress, (void **)&r) == 0) {
		if (r->out != GK_NO_OUT)
			check_frame(r);
		records[r->frame % FRAMES] = *r;
		nb_records++;
		assert_int_equal(rte_ring_sp_enqueue(p.returned, r), 0);
	}
}

/* ---- the wire ---- */

static void
wire(void)
{
	struct rte_mbuf *m;

	while (rte_ring_dequeue(from_sender, (void **)&m) == 0) {
		const uint8_t *b = rte_pktmbuf_mtod(m, const uint8_t *);
		const bool group = b[12] == 0x08 && b[13] == 0 && b[30] == 239;

		if (group && chance > 0 && rig_below(&seed, 1000) < chance) {
			rte_pktmbuf_free(m);
			nb_lost++;
		} else if (receiver_stalled) {
			rte_pktmbuf_free(m); /* its port is full */
		} else if (rte_ring_enqueue(to_net, m) != 0) {
			rte_pktmbuf_free(m);
		}
	}
	while (rte_ring_dequeue(from_net, (void **)&m) == 0)
		if (sender.dead || rte_ring_enqueue(to_sender, m) != 0)
			rte_pktmbuf_free(m);
}

static void
poll_receiver(void)
{
	if (receiver_stalled)
		return;
	rx_poll(p.rx[0]);
	rx_connect_poll(p.messages);
	for (uint32_t i = 0; i < 4; i++) {
		builder_poll(p.builder);
		for (uint32_t g = 0; g < settings.gangs && !gangs_stalled; g++)
			p.gk_ops->poll(p.gk, g, 0);
	}
	collect();
}

static void
poll_sender(void)
{
	struct rdma_event event;

	if (sender.dev == NULL || sender.dead)
		return;
	for (uint32_t s = 0; s < STREAMS; s++)
		if (sender.stream[s] != NULL) {
			rdma_stream_sender_poll(sender.stream[s]);
			rdma_stream_sender_control(sender.stream[s]);
		}
	rdma_progress(sender.dev, 0);
	if (rdma_poll_cm(sender.dev, &event, 1) == 0)
		return;
	for (uint32_t s = 0; s < STREAMS; s++)
		if (sender.stream[s] != NULL && rdma_stream_sender_event(sender.stream[s], &event))
			return;
}

static void
poll_all(void)
{
	poll_sender();
	wire();
	poll_receiver();
}

/** Seconds for which this process has run: a loaded host may not run it for long. */
static double
cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

#define POLL_UNTIL(condition)                                                                      \
	do {                                                                                       \
		const double until = cpu_seconds() + 10;                                           \
		while (!(condition)) {                                                             \
			poll_all();                                                                \
			if (cpu_seconds() > until)                                                 \
				fail_msg(                                                          \
					"%s:%d: not in time: %s", __func__, __LINE__, #condition); \
		}                                                                                  \
	} while (0)

static void
poll_for(uint32_t ms)
{
	const uint64_t end = rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;

	do
		poll_all();
	while (rte_rdtsc() < end);
}

/** No frame of a receiver's streams waits for more tiles. The time in which a loaded host does not
 * run this process does not count. */
static void
wait_timeout(void)
{
	const uint64_t end = p.rx[0]->frx->listened + rte_get_tsc_hz() / 1000 * timeout_ms;

	POLL_UNTIL(p.rx[0]->frx->listened > end);
}

/* ---- sender ---- */

static void
start_stream(uint32_t stream)
{
	const struct sockaddr_in group = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(UINT32_C(0xEFC00000) + stream)};
	const struct rdma_stream_sender_attr attr = {.dev = sender.dev,
		.pd = sender.pd,
		.group = (const struct sockaddr *)&group,
		.port = RDMA_STREAM_PORT + stream,
		.policy = sender.policy,
		.slots = PACKETS,
		.payload_max = PAYLOAD,
		.silence_ms = 500,
		.proof = sender.proof[stream]};

	sender.stream[stream] = rdma_stream_sender_create(&attr);
	assert_non_null(sender.stream[stream]);
}

static void
start_streams(void)
{
	for (uint32_t s = 0; s < STREAMS; s++)
		start_stream(s);
}

static void
stop_streams(void)
{
	for (uint32_t s = 0; s < STREAMS; s++) {
		struct rdma_stream_sender *stream = sender.stream[s];

		sender.stream[s] = NULL;
		POLL_UNTIL(stream == NULL || rdma_stream_sender_destroy(stream) == 0);
	}
}

static struct rx_multicast_info
info_of(uint32_t stream)
{
	struct rx_multicast_info info;

	rx_multicast_info_get(p.messages->multicast, stream, &info);
	return info;
}

static struct rdma_stream_sender_info
sent_of(uint32_t stream)
{
	struct rdma_stream_sender_info info;

	rdma_stream_sender_info_get(sender.stream[stream], &info);
	return info;
}

static bool
all_are(enum rdma_stream_state state)
{
	for (uint32_t s = 0; s < STREAMS; s++)
		if (info_of(s).stream.state != state ||
			(state == RDMA_STREAM_JOINED && info_of(s).stream.run != sent_of(s).run))
			return false;
	return true;
}

/** Send a packet of a stream. */
static void
send_packet(uint32_t stream, const void *data, uint32_t bytes)
{
	uint8_t *to;

	POLL_UNTIL((to = rdma_stream_next(sender.stream[stream])) != NULL);
	memcpy(to, data, bytes);
	assert_int_equal(rdma_stream_commit(sender.stream[stream], bytes), 0);
}

/** Send a fragment. @param from  data; NULL: there are none */
static void
send_fragment(uint32_t stream, const struct ingest_fragment *f, const uint8_t *from, uint32_t bytes)
{
	uint8_t packet[PAYLOAD];

	ingest_fragment_encode(f, packet);
	if (bytes > 0)
		memcpy(packet + sizeof(*f), from, bytes);
	send_packet(stream, packet, sizeof(*f) + bytes);
}

static struct ingest_fragment
fragment(uint32_t stream, uint64_t frame, uint32_t tile)
{
	return (struct ingest_fragment){.magic = INGEST_FRAGMENT_MAGIC,
		.version = INGEST_FRAGMENT_VERSION,
		.stream = stream,
		.frame = frame,
		.tile = tile,
		.message = tile == INGEST_EVENT ? 0 : MESSAGE,
		.tiles = 128};
}

/** Send fragment i of a message. */
static void
send_part(uint32_t stream, uint64_t frame, uint32_t tile, const uint8_t *message, uint32_t i)
{
	const uint32_t most = ingest_fragment_max(PAYLOAD);
	struct ingest_fragment f = fragment(stream, frame, tile);

	f.offset = i * most;
	send_fragment(stream, &f, message + f.offset, RTE_MIN(most, MESSAGE - f.offset));
}

static void
send_tile(uint32_t stream, uint64_t frame, uint32_t tile)
{
	uint8_t message[MESSAGE];

	make_message(message, frame, stream, tile);
	for (uint32_t i = 0; i < 3; i++)
		send_part(stream, frame, tile, message, i);
}

static void
send_event(uint32_t stream, uint64_t frame)
{
	const struct ingest_fragment f = fragment(stream, frame, INGEST_EVENT);

	send_fragment(stream, &f, NULL, 0);
}

static void
send_stream(uint32_t stream, uint64_t frame)
{
	for (uint32_t t = FIRST; t < FIRST + TILES; t++)
		send_tile(stream, frame, t);
	send_event(stream, frame);
}

/**
 * Send a frame. A receiver that is behind runs out of buffers, and then READs packets that the wire
 * has not lost: that is a separate case.
 */
static void
send_frame(uint64_t frame)
{
	for (uint32_t s = 0; s < STREAMS; s++)
		send_stream(s, frame);
	nb_sent++;
	poll_all();
	for (uint32_t i = 0; i < 400 && nb_records + BEHIND < nb_sent; i++)
		if (!receiver_stalled && !gangs_stalled)
			poll_all();
}

/** All packets sent until now were taken, or are lost. */
static void
settle(void)
{
	for (uint32_t s = 0; s < STREAMS; s++)
		POLL_UNTIL(
			info_of(s).stream.next == sent_of(s).head && info_of(s).stream.held == 0);
	poll_for(2);
}

/* ---- pipeline ---- */

static void
write_config(const char *more)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f,
		"[detector]\nmodules = 2\nrows = 16\nudp_port = %u\ntransport = multicast\n"
		"[port 0]\ndevice = roce:port=net_ring_receiver,ip=10.0.0.2/24\n"
		"descriptors = 256\n"
		"[ingest]\nslots = %u\nsender = 10.0.0.1\nbuffers = 512\n%s"
		"[frames]\nslots = 8\nmax_skew_frames = 2\nstream_timeout_ms = %u\n"
		"backpressure = wait\n"
		"[gpu]\nkernel = host\noutputs = 32\nbatch = 4\n"
		"[veto]\nstrong_min = 0\n"
		"[output]\nformat = raw\ndirectory = %s\npreview = off\ncalibration = no\n",
		RIG_UDP_PORT, SLOTS, more, timeout_ms, directory);
	assert_int_equal(fclose(f), 0);
}

static void
open_receiver(enum rdma_stream_policy policy, const char *more)
{
	static struct config_source source;
	struct placement way;
	cpu_set_t cpus;

	write_config(more);
	source = (struct config_source){.file = path};
	config = config_open(&source);
	assert_non_null(config);
	assert_int_equal(settings_read(&settings, &egress, config), 0);
	assert_int_equal(placement_choose(&way, &settings), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	ring_port_make("receiver", 4096, 1, &to_net, &from_net);
	ring_port_make("sender", 4096, 1, &to_sender, &from_sender);
	assert_int_equal(pipeline_create(&p, &settings, &way, &cpus), 0);
	assert_int_equal(pipeline_calibrate(&p, &settings.calibration), 0);
	sender.dev = rdma_dev_open("roce:port=net_ring_sender,ip=10.0.0.1/24,mtu=4096");
	assert_non_null(sender.dev);
	sender.pd = rdma_pd_alloc(sender.dev);
	sender.policy = policy;
	start_streams();
}

static void
begin_run(uint64_t first)
{
	struct builder_command c = {.order = BUILDER_BEGIN,
		.run = {.first_known = first != 0, .first_frame = first, .stride = 1},
		.packets_min = settings.packets_min,
		.veto = settings.veto};

	assert_int_equal(builder_post(p.builder, &c), 0);
	for (uint32_t i = 0; i < 100 && p.table->window.state == FRAME_WINDOW_CLOSED; i++)
		poll_receiver();
	nb_sent = nb_records = nb_stale = nb_missing = nb_lost = 0;
}

static void
open_and_begin(enum rdma_stream_policy policy)
{
	open_receiver(policy, "");
	POLL_UNTIL(all_are(RDMA_STREAM_JOINED));
	begin_run(1);
}

/** The run has ended. Each packet has one outcome, and no tile of the rings is in use. */
static void
check_end(void)
{
	const uint64_t *counters = p.rx[0]->counters;
	struct builder_stats stats;
	uint64_t outcomes = 0;

	/* give all tiles back */
	wait_timeout();
	for (uint32_t i = 0; i < 100; i++)
		poll_all();
	for (uint32_t i = RX_PLACED; i < RX_COUNTERS; i++)
		outcomes += counters[i];
	if (getenv("RING_DEBUG") != NULL || counters[RX_PACKETS] != outcomes)
		for (uint32_t i = 0; i < RX_COUNTERS; i++)
			if (counters[i] != 0)
				print_message("%s %lu\n", rx_counter_names[i], counters[i]);
	assert_int_equal(counters[RX_PACKETS], outcomes);
	stats = builder_stats(p.builder);
	assert_int_equal(counters[RX_OVERRUN] + stats.overrun, 0);
	assert_int_equal(counters[RX_PLACED] - stats.not_found, stats.packets);
	assert_int_equal(nb_stale, 0);
	for (uint32_t s = 0; s < STREAMS; s++)
		for (uint32_t slot = 0; slot < SLOTS; slot++)
			for (uint32_t t = FIRST; t < FIRST + TILES; t++)
				assert_int_equal(
					*(uint64_t *)(uintptr_t)(ingest_address(&p.messages->card,
									 s, slot, t) +
						INGEST_LEADER_BYTES + TILE),
					FRAME_TRAILER_NONE);
}

static uint64_t
progress(void)
{
	uint64_t sum = nb_records + builder_stats(p.builder).packets;

	for (uint32_t i = 0; i < RX_COUNTERS; i++)
		sum += i != RX_WAITS ? p.rx[0]->counters[i] : 0;
	return sum;
}

/** Until nothing is placed, and no frame ends. Gangs that compress take longer, most under ASAN. */
static void
poll_until_quiet(void)
{
	uint64_t before;

	do {
		const double end = cpu_seconds() + timeout_ms / 1e3;

		before = progress();
		do
			poll_all();
		while (cpu_seconds() < end);
	} while (progress() != before);
}

static void
end_run(void)
{
	struct builder_command c = {.order = BUILDER_END};

	wait_timeout();
	poll_until_quiet();
	assert_int_equal(builder_post(p.builder, &c), 0);
	POLL_UNTIL(builder_is_idle(p.builder));
	check_end();
}

static void
drain(struct rte_ring **ring)
{
	struct rte_mbuf *m;

	while (rte_ring_dequeue(*ring, (void **)&m) == 0)
		rte_pktmbuf_free(m);
	rte_ring_free(*ring);
	*ring = NULL;
}

static void
close_receiver(void)
{
	uint32_t leaked;

	chance = 0;
	receiver_stalled = gangs_stalled = sender.dead = false;
	timeout_ms = 20;
	stop_streams();
	leaked = pipeline_destroy(&p);
	wire();
	rdma_pd_free(sender.pd);
	rdma_dev_close(sender.dev);
	memset(&sender, 0, sizeof(sender));
	rte_vdev_uninit("net_ring_sender");
	rte_vdev_uninit("net_ring_receiver");
	drain(&from_net);
	drain(&to_net);
	drain(&from_sender);
	drain(&to_sender);
	config_close(config);
	assert_int_equal(leaked, 0);
}

/* ---- tests ---- */

static void
nothing_is_lost(void **state)
{
	open_and_begin(RDMA_STREAM_WAIT);
	for (uint64_t f = 1; f <= 100; f++)
		send_frame(f);
	settle();
	end_run();
	assert_int_equal(nb_records, 100);
	assert_int_equal(nb_missing, 0);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS], 100 * STREAMS);
	assert_int_equal(p.rx[0]->counters[RX_PLACED], 100 * STREAMS * TILES);
	assert_int_equal(builder_stats(p.builder).complete, 100);
	assert_int_equal(info_of(0).stream.repaired, 0);
	close_receiver();
}

static void
lost_is_repaired(void **state)
{
	seed = rig_first_seed();
	print_message("FRAME_SEED=%lu\n", seed);
	open_and_begin(RDMA_STREAM_WAIT);
	chance = 30;
	for (uint64_t f = 1; f <= 100; f++)
		send_frame(f);
	settle();
	end_run();
	assert_true(nb_lost > 20);
	assert_int_equal(nb_records, 100);
	assert_int_equal(nb_missing, 0);
	assert_int_equal(builder_stats(p.builder).complete, 100);
	assert_in_range(
		info_of(0).stream.repaired + info_of(1).stream.repaired, nb_lost, nb_lost + 100);
	assert_int_equal(info_of(0).stream.lost + info_of(1).stream.lost, 0);
	close_receiver();
}

/** The sender does not wait for a receiver that stands still. */
static void
late_receiver_loses(void **state)
{
	uint64_t lost = 0;

	open_and_begin(RDMA_STREAM_OVERWRITE);
	for (uint64_t f = 1; f <= 200; f++) {
		receiver_stalled = f > 20 && f < 120;
		send_frame(f);
		if (f % 4 == 0)
			poll_for(1);
	}
	settle();
	end_run();
	for (uint32_t s = 0; s < STREAMS; s++)
		lost += info_of(s).stream.lost;
	assert_true(lost > 20 * STREAMS * TILES * 3);
	/* each frame has a row, lost ones too */
	assert_int_equal(nb_records, 200);
	assert_true(builder_stats(p.builder).complete > 60);
	assert_true(builder_stats(p.builder).verdicts[FRAME_LOST] > 20);
	close_receiver();
}

/** Frames wait while the slots of their rings are in use; the sender waits with them. */
static void
slots_are_in_use(void **state)
{
	open_and_begin(RDMA_STREAM_WAIT);
	gangs_stalled = true;
	for (uint64_t f = 1; f <= SLOTS + 12; f++)
		send_frame(f);
	poll_for(20);
	assert_true(info_of(0).slot_waits > 0);
	/* longer than a silent member is kept */
	poll_for(700);
	assert_int_equal(sent_of(0).members, 1);
	gangs_stalled = false;
	POLL_UNTIL(nb_records == SLOTS + 12);
	end_run();
	assert_int_equal(nb_missing, 0);
	close_receiver();
}

/** So many frames wait that the RX role takes no packets: it remains a member. */
static void
member_while_full(void **state)
{
	open_and_begin(RDMA_STREAM_WAIT);
	p.rx[0]->nb_of_source[0] = RX_PENDING_FULL + 1;
	p.rx[0]->nb_pending = 0;
	poll_for(700);
	assert_int_equal(sent_of(0).members, 1);
	assert_int_equal(sent_of(0).removed_silent, 0);
	p.rx[0]->nb_of_source[0] = 0;
	end_run();
	close_receiver();
}

/** The event of a frame does not come: the next packet of another frame ends it. */
static void
event_does_not_come(void **state)
{
	open_and_begin(RDMA_STREAM_WAIT);
	for (uint64_t f = 1; f <= 8; f++)
		for (uint32_t s = 0; s < STREAMS; s++) {
			for (uint32_t t = FIRST; t < FIRST + TILES - (f == 5); t++)
				send_tile(s, f, t);
			if (f % 2 == 0)
				send_event(s, f);
		}
	/* an event without tiles */
	send_event(0, 9);
	send_tile(0, 10, FIRST);
	settle();
	for (uint32_t s = 0; s < STREAMS; s++)
		rdma_stream_end(sender.stream[s]);
	POLL_UNTIL(all_are(RDMA_STREAM_ENDED) && rx_multicast_ends(p.messages->multicast) == 1);
	end_run();
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 4 * STREAMS + 1);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS], 4 * STREAMS + 1);
	assert_int_equal(records[5].missing[0], 1);
	assert_int_equal(records[8].missing[0], 0);
	assert_int_equal(records[10].missing[0], TILES - 1);
	close_receiver();
}

/** Frames that come again while their pixels are in use, and later. */
static void
frames_come_again(void **state)
{
	uint64_t placed;

	open_and_begin(RDMA_STREAM_WAIT);
	gangs_stalled = true;
	send_frame(1);
	send_tile(0, 2, FIRST);
	send_tile(0, 2, FIRST); /* twice in one frame */
	send_event(0, 2);
	send_stream(1, 2);
	settle();
	assert_int_equal(p.rx[0]->counters[RX_DUPLICATE], 1);
	wait_timeout(); /* frame 2 waits for its other tiles no longer */
	generation++;
	send_frame(1);
	send_frame(2);
	settle();
	/* the tiles of frame 2 that are missing are late: gangs may be reading it */
	assert_int_equal(p.rx[0]->counters[RX_DUPLICATE], 1 + 2 * TILES * STREAMS - (TILES - 1));
	assert_int_equal(p.rx[0]->counters[RX_LATE], TILES - 1);
	generation--;
	gangs_stalled = false;
	for (uint64_t f = 3; f <= 6; f++)
		send_frame(f);
	settle();
	POLL_UNTIL(nb_records == 6);
	placed = p.rx[0]->counters[RX_PLACED];
	send_frame(1);
	send_frame(6);
	settle();
	end_run();
	assert_int_equal(p.rx[0]->counters[RX_PLACED], placed);
	close_receiver();
}

/** A network before the sender delays a tile until the next frame is being sent. */
static void
tiles_are_late(void **state)
{
	open_and_begin(RDMA_STREAM_WAIT);
	for (uint64_t f = 1; f <= 20; f++) {
		send_stream(1, f);
		for (uint32_t t = FIRST; t < FIRST + TILES; t++) {
			if (f % 3 != 1 || t != FIRST + 1)
				send_tile(0, f, t);
			if (f % 3 == 2 && t == FIRST + 2)
				send_tile(0, f - 1, FIRST + 1);
		}
		send_event(0, f);
		nb_sent++;
		poll_all();
	}
	settle();
	send_tile(0, 17, FIRST + 1); /* a second time, after its event was made */
	settle();
	end_run();
	assert_int_equal(nb_records, 20);
	assert_int_equal(nb_missing, 0);
	assert_int_equal(p.rx[0]->counters[RX_LATE] + p.rx[0]->counters[RX_DUPLICATE], 1);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 0);
	assert_int_equal(builder_stats(p.builder).complete, 20);
	close_receiver();
}

/** Fragments, messages and events of other frames, among those of a frame. */
static void
stray_fragments(void **state)
{
	uint8_t message[MESSAGE];

	timeout_ms = 500; /* no frame ends by time */
	open_and_begin(RDMA_STREAM_WAIT);
	for (uint64_t f = 1; f <= 30; f++) {
		const uint64_t other = f % 5 == 0 ? f + SLOTS : f % 5 == 1 ? f + 1000 : f - 1;

		send_stream(1, f);
		send_tile(0, f, FIRST);
		make_message(message, other, 0, FIRST + 1);
		switch (f % 3) {
		case 0:
			send_part(0, other, FIRST + 1, message, 0);
			break;
		case 1:
			send_tile(0, other, FIRST + 1);
			break;
		case 2:
			send_event(0, other);
			break;
		}
		for (uint32_t t = FIRST + 1; t < FIRST + TILES; t++)
			send_tile(0, f, t);
		send_event(0, f);
		nb_sent++;
		poll_all();
	}
	settle();
	end_run();
	for (uint64_t f = 1; f <= 30; f++) {
		assert_int_equal(records[f].frame, f);
		assert_int_equal(records[f].missing[0], 0);
	}
	assert_int_equal(builder_stats(p.builder).complete, 30);
	close_receiver();
}

/** The detector dies in a frame: the frame is closed by time, and has a row. */
static void
sender_dies(void **state)
{
	open_and_begin(RDMA_STREAM_WAIT);
	for (uint64_t f = 1; f <= 3; f++)
		send_frame(f);
	send_tile(0, 4, FIRST);
	send_tile(0, 4, FIRST + 1);
	send_tile(1, 4, FIRST);
	settle();
	sender.dead = true;
	POLL_UNTIL(nb_records == 4);
	end_run();
	assert_int_equal(records[4].missing[0], TILES - 2);
	assert_int_equal(records[4].missing[1], TILES - 1);
	assert_int_equal(nb_missing, 2 * TILES - 3);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], STREAMS);
	close_receiver();
}

/** One stream pauses in a frame: what has come of it counts when the frame is closed by time. */
static void
stream_pauses(void **state)
{
	timeout_ms = 200;
	open_and_begin(RDMA_STREAM_WAIT);
	for (uint64_t f = 1; f <= 3; f++)
		send_frame(f);
	send_tile(0, 4, FIRST);
	send_tile(0, 4, FIRST + 1);
	send_stream(1, 4);
	send_stream(1, 5);
	POLL_UNTIL(nb_records == 4);
	assert_int_equal(records[4].missing[0], TILES - 2);
	assert_int_equal(records[4].missing[1], 0);
	assert_true(all_are(RDMA_STREAM_JOINED));
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 1);
	/* the rest comes too late; the stream's next frame is complete */
	send_tile(0, 4, FIRST + 2);
	send_tile(0, 4, FIRST + 3);
	send_event(0, 4);
	send_stream(0, 5);
	nb_sent += 2;
	settle();
	end_run();
	assert_int_equal(nb_records, 5);
	assert_int_equal(p.rx[0]->counters[RX_LATE], TILES - 2);
	assert_int_equal(records[5].missing[0], 0);
	close_receiver();
}

/** The run is stopped in a frame, whose sender goes on later: the frame has a row. */
static void
run_stops_in_frame(void **state)
{
	struct builder_command c = {.order = BUILDER_END};

	timeout_ms = 100;
	open_and_begin(RDMA_STREAM_WAIT);
	for (uint64_t f = 1; f <= 3; f++)
		send_frame(f);
	send_tile(0, 4, FIRST);
	send_tile(0, 4, FIRST + 1);
	send_tile(1, 4, FIRST);
	send_tile(0, 5, FIRST + 2); /* no event of frame 4 */
	settle();
	assert_true(nb_records <= 3);
	assert_int_equal(builder_post(p.builder, &c), 0);
	poll_for(20);
	send_tile(0, 5, FIRST + 3); /* the sender goes on: that delays nothing */
	POLL_UNTIL(builder_is_idle(p.builder));
	assert_int_equal(nb_records, 5);
	assert_int_equal(records[4].missing[0], TILES - 2);
	assert_int_equal(records[4].missing[1], TILES - 1);
	assert_int_equal(records[5].missing[0], TILES - 2);
	assert_int_equal(records[5].missing[1], TILES);
	assert_int_equal(p.rx[0]->counters[RX_PLACED], 3 * STREAMS * TILES + 3 * TILES);
	assert_int_equal(p.rx[0]->counters[RX_LATE], 0);
	/* a frame that begins after the stop is none of the run */
	send_frame(6);
	settle();
	check_end();
	assert_int_equal(nb_records, 5);
	close_receiver();
}

static void
check_refused(enum rx_fragment_cause cause, int line)
{
	static uint64_t before[RX_FRAGMENT_CAUSES];
	struct rx_multicast_info info;

	settle();
	info = info_of(0);
	for (uint32_t c = 0; c < RX_FRAGMENT_CAUSES; c++) {
		if (info.refused[c] != before[c] + (c == cause))
			fail_msg("line %d: %lu of %s", line, info.refused[c] - before[c],
				rx_fragment_cause_names[c]);
		before[c] = info.refused[c];
	}
}

/** One fragment was refused since the last call, because of `cause`; RX_FRAGMENT_CAUSES: none. */
#define expect_refused(cause) check_refused(cause, __LINE__)

/** Fragments that no detector sends: each is counted by its cause, and places nothing. */
static void
malformed(void **state)
{
	const uint32_t most = ingest_fragment_max(PAYLOAD);
	uint8_t message[MESSAGE];
	struct ingest_fragment f;

	timeout_ms = 500; /* frame 3 is open until its event */
	open_and_begin(RDMA_STREAM_WAIT);
	send_frame(1);
	make_message(message, 2, 0, FIRST);
	send_packet(0, message, 0);
	expect_refused(RX_FRAGMENT_FORMAT);
	send_packet(0, message, 31);
	expect_refused(RX_FRAGMENT_FORMAT);
	send_packet(0, message, PAYLOAD);
	expect_refused(RX_FRAGMENT_FORMAT);
	f = fragment(0, 2, FIRST);
	ingest_fragment_encode(&f, message);
	message[4]++; /* version */
	send_packet(0, message, sizeof(f) + most);
	expect_refused(RX_FRAGMENT_FORMAT);
#define TRY(change, bytes, cause)                     \
	do {                                          \
		f = fragment(0, 2, FIRST);            \
		change;                               \
		send_fragment(0, &f, message, bytes); \
		expect_refused(cause);                \
	} while (0)
	TRY(f.offset = 1, most, RX_FRAGMENT_FORMAT);
	TRY(f.offset = 3 * most, most, RX_FRAGMENT_FORMAT);
	TRY(f.offset = UINT32_MAX - most + 1, most, RX_FRAGMENT_FORMAT);
	TRY(f.message = UINT32_MAX, most - 1, RX_FRAGMENT_FORMAT);
	TRY(f.tile = INGEST_EVENT, 0, RX_FRAGMENT_FORMAT);
	TRY(f.stream = 1, most, RX_FRAGMENT_STREAM);
	TRY(f.stream = UINT16_MAX, most, RX_FRAGMENT_STREAM);
	TRY(f.tile = FIRST - 1, most, RX_FRAGMENT_TILE);
	TRY(f.tile = FIRST + TILES, most, RX_FRAGMENT_TILE);
	TRY(f.tile = UINT32_MAX - 1, most, RX_FRAGMENT_TILE);
	TRY(f.frame = UINT64_MAX, most, RX_FRAGMENT_TILE);
	TRY(f.tiles = 64, most, RX_FRAGMENT_SIZE);
	TRY(f.message = most, most, RX_FRAGMENT_SIZE);
	TRY(f.message = 1 << 20, most, RX_FRAGMENT_SIZE);
	TRY(f = fragment(1, 2, INGEST_EVENT), 0, RX_FRAGMENT_STREAM);
	TRY(f = fragment(0, UINT64_MAX, INGEST_EVENT), 0, RX_FRAGMENT_TILE);
#undef TRY
	/* not the first, twice the first, not the next, another tile, another frame, no end */
	send_event(0, 2);
	expect_refused(RX_FRAGMENT_CAUSES);
	send_tile(0, 3, FIRST);
	send_part(0, 3, FIRST + 1, message, 1);
	expect_refused(RX_FRAGMENT_ORDER);
	send_part(0, 3, FIRST + 1, message, 2); /* the rest is dropped without a count */
	expect_refused(RX_FRAGMENT_CAUSES);
	send_part(0, 3, FIRST + 1, message, 0);
	send_part(0, 3, FIRST + 1, message, 0);
	expect_refused(RX_FRAGMENT_ORDER);
	send_part(0, 3, FIRST + 1, message, 2);
	expect_refused(RX_FRAGMENT_ORDER);
	send_part(0, 3, FIRST + 1, message, 0);
	send_part(0, 3, FIRST + 2, message, 1);
	expect_refused(RX_FRAGMENT_ORDER);
	send_part(0, 3, FIRST + 1, message, 0);
	send_part(0, 4, FIRST + 1, message, 1);
	expect_refused(RX_FRAGMENT_ORDER);
	send_part(0, 3, FIRST + 1, message, 0);
	send_event(0, 3);
	expect_refused(RX_FRAGMENT_ORDER);
	/* the header of another tile, frame and format */
	make_message(message, 4, 0, FIRST + 1);
	for (uint32_t i = 0; i < 3; i++)
		send_part(0, 4, FIRST, message, i);
	expect_refused(RX_FRAGMENT_HEADER);
	make_message(message, 5, 0, FIRST);
	for (uint32_t i = 0; i < 3; i++)
		send_part(0, 4, FIRST, message, i);
	expect_refused(RX_FRAGMENT_HEADER);
	memset(message + TILE, 0xFF, INGEST_TRAILER_BYTES);
	for (uint32_t i = 0; i < 3; i++)
		send_part(0, 4, FIRST, message, i);
	expect_refused(RX_FRAGMENT_HEADER);
	/* no frame number */
	make_message(message, UINT64_MAX - 1, 0, FIRST);
	for (uint32_t i = 0; i < 3; i++)
		send_part(0, UINT64_MAX - 1, FIRST, message, i);
	send_event(0, UINT64_MAX - 1);
	expect_refused(RX_FRAGMENT_CAUSES);
	for (uint32_t s = 0; s < STREAMS; s++)
		send_stream(s, 6);
	settle();
	end_run();
	assert_int_equal(p.rx[0]->counters[RX_OUTLIER], TILES);
	assert_int_equal(records[3].missing[0], TILES - 1);
	assert_int_equal(records[6].missing[0], 0);
	close_receiver();
}

/** Random damage of headers: nothing is placed that is not what the detector sent. */
static void
random_damage(void **state)
{
	uint64_t frame;

	seed = rig_first_seed();
	print_message("FRAME_SEED=%lu\n", seed);
	open_and_begin(RDMA_STREAM_WAIT);
	for (frame = 1; frame <= 40 * rig_seeds(2); frame++) {
		for (uint32_t s = 0; s < STREAMS; s++) {
			for (uint32_t t = FIRST; t < FIRST + TILES; t++) {
				uint8_t message[MESSAGE], packet[PAYLOAD];
				const uint32_t most = ingest_fragment_max(PAYLOAD);

				make_message(message, frame, s, t);
				for (uint32_t i = 0; i < 3; i++) {
					struct ingest_fragment f = fragment(s, frame, t);
					uint32_t bytes;

					f.offset = i * most;
					bytes = RTE_MIN(most, MESSAGE - f.offset);
					ingest_fragment_encode(&f, packet);
					memcpy(packet + sizeof(f), message + f.offset, bytes);
					if (rig_below(&seed, 20) == 0)
						packet[rig_below(&seed, sizeof(f))] ^= 1
							<< rig_below(&seed, 8);
					if (rig_below(&seed, 50) == 0)
						bytes = rig_below(&seed, bytes);
					if (rig_below(&seed, 50) != 0)
						send_packet(s, packet, sizeof(f) + bytes);
				}
			}
			if (rig_below(&seed, 10) != 0)
				send_event(s, frame);
		}
		poll_all();
	}
	send_frame(frame); /* ends the frames before it */
	settle();
	end_run();
	assert_true(nb_missing > 0);
	close_receiver();
}

/** The detector dies, and starts again with the same numbers and other pixels. */
static void
sender_starts_again(void **state)
{
	seed = rig_first_seed();
	open_and_begin(RDMA_STREAM_WAIT);
	for (generation = 1; generation <= 4; generation++) {
		for (uint64_t f = 1; f <= 12; f++)
			send_frame(f);
		send_tile(0, UNFINISHED, FIRST);
		send_part(0, UNFINISHED, FIRST + 1, (uint8_t[MESSAGE]){0}, 0);
		settle();
		stop_streams();
		poll_for(40);
		start_streams();
		POLL_UNTIL(all_are(RDMA_STREAM_JOINED));
		assert_int_equal(info_of(0).stream.joins, generation + 1);
	}
	/* two events show that the numbers have gone back */
	for (uint64_t f = 1; f <= 3; f++)
		send_frame(f);
	settle();
	end_run();
	assert_int_equal(builder_stats(p.builder).complete, 4 * 12 + 3);
	assert_int_equal(info_of(0).stream.lost, 0);
	generation = 0;
	close_receiver();
}

/** A member joins while a frame is being sent: the rest of it does not count as malformed. */
static void
late_join(void **state)
{
	uint8_t message[MESSAGE];

	open_receiver(RDMA_STREAM_OVERWRITE, "");
	begin_run(0);
	make_message(message, 7, 0, FIRST);
	send_part(0, 7, FIRST, message, 0);
	POLL_UNTIL(all_are(RDMA_STREAM_JOINED));
	assert_int_equal(info_of(0).stream.start, 1);
	send_part(0, 7, FIRST, message, 1);
	send_part(0, 7, FIRST, message, 2);
	for (uint32_t t = FIRST + 1; t < FIRST + TILES; t++)
		send_tile(0, 7, t);
	send_event(0, 7);
	send_stream(1, 7);
	for (uint64_t f = 8; f < 20; f++)
		send_frame(f);
	settle();
	end_run();
	assert_int_equal(records[7].missing[0], 1);
	assert_int_equal(records[8].missing[0], 0);
	assert_int_equal(p.rx[0]->counters[RX_MALFORMED], 0);
	assert_int_equal(builder_stats(p.builder).complete, 12);
	close_receiver();
}

/** Streams end a different number of times: they have ended when all are ended. */
static void
streams_end(void **state)
{
	struct rdma_stream_sender *second;

	open_and_begin(RDMA_STREAM_WAIT);
	send_frame(1);
	settle();
	rdma_stream_end(sender.stream[0]);
	POLL_UNTIL(info_of(0).stream.state == RDMA_STREAM_ENDED);
	second = sender.stream[1];
	sender.stream[1] = NULL;
	stop_streams();
	start_stream(0);
	sender.stream[1] = second;
	POLL_UNTIL(info_of(0).stream.state == RDMA_STREAM_JOINED &&
		info_of(0).stream.run == sent_of(0).run);
	rdma_stream_end(sender.stream[1]);
	POLL_UNTIL(info_of(1).stream.state == RDMA_STREAM_ENDED);
	poll_for(5);
	assert_int_equal(rx_multicast_ends(p.messages->multicast), 0);
	rdma_stream_end(sender.stream[0]);
	POLL_UNTIL(rx_multicast_ends(p.messages->multicast) == 1);
	end_run();
	close_receiver();
}

/** The receiver stops: the sender does not wait for it. */
static void
receiver_leaves(void **state)
{
	struct rx_counts counts;

	timeout_ms = 1000; /* frame 2 is open when the receiver stops */
	open_and_begin(RDMA_STREAM_WAIT);
	send_frame(1);
	settle();
	end_run();
	send_tile(0, 2, FIRST);
	settle();
	p.rx[0]->stop = true;
	POLL_UNTIL(p.rx[0]->stopped);
	assert_true(all_are(RDMA_STREAM_LEFT));
	/* the tile of the frame that was open is counted, in what other threads read, too */
	assert_int_equal(p.rx[0]->counters[RX_STOPPED], 1);
	rx_get_counts(p.rx[0], &counts);
	assert_memory_equal(counts.counters, p.rx[0]->counters, sizeof(counts.counters));
	receiver_stalled = true;
	POLL_UNTIL(sent_of(0).members == 0 && sent_of(1).members == 0);
	assert_int_equal(sent_of(0).removed_silent, 0);
	close_receiver();
}

/** The sender has exited: the receiver waits for its answer for a limited time. */
static void
leave_without_sender(void **state)
{
	uint64_t begin;

	open_and_begin(RDMA_STREAM_WAIT);
	sender.dead = true;
	poll_for(20);
	begin = rte_rdtsc();
	p.rx[0]->stop = true;
	POLL_UNTIL(p.rx[0]->stopped);
	assert_true(rte_rdtsc() - begin < 2 * rte_get_tsc_hz());
	close_receiver();
}

static int
no_mac(void *arg, uint64_t identity, unsigned int key, const void *message, uint32_t length,
	uint8_t mac[RDMA_STREAM_MAC_BYTES])
{
	return -ENOENT;
}

/** A sender refuses the receiver's proof: the other stream counts alone, and without it none. */
static void
streams_fail(void **state)
{
	static const struct rdma_stream_proof proof = {.mac = no_mac};

	sender.proof[0] = &proof;
	open_receiver(RDMA_STREAM_WAIT, "");
	POLL_UNTIL(info_of(0).stream.state == RDMA_STREAM_FAILED &&
		info_of(1).stream.state == RDMA_STREAM_JOINED);
	poll_for(2);
	assert_int_equal(info_of(0).stream.error, -EACCES);
	assert_false(rx_multicast_failed(p.messages->multicast));
	assert_int_equal(rx_multicast_ends(p.messages->multicast), 0);
	rdma_stream_end(sender.stream[1]);
	POLL_UNTIL(rx_multicast_ends(p.messages->multicast) == 1);
	stop_streams();
	sender.proof[1] = &proof;
	start_streams();
	POLL_UNTIL(rx_multicast_failed(p.messages->multicast));
	close_receiver();
}

int
main(int argc, char **argv)
{
	/* with more lcores, gangs have more workers than these tests poll */
	static char options[][48] = {"--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m",
		"512", "--lcores=(0-1)@0", "--vdev=gpu_host0", "--log-level=braggline.*:error"};
	char *arguments[RTE_DIM(options) + 1] = {argv[0]};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_lost),
		cmocka_unit_test(lost_is_repaired),
		cmocka_unit_test(late_receiver_loses),
		cmocka_unit_test(slots_are_in_use),
		cmocka_unit_test(member_while_full),
		cmocka_unit_test(event_does_not_come),
		cmocka_unit_test(frames_come_again),
		cmocka_unit_test(tiles_are_late),
		cmocka_unit_test(stray_fragments),
		cmocka_unit_test(sender_dies),
		cmocka_unit_test(stream_pauses),
		cmocka_unit_test(run_stops_in_frame),
		cmocka_unit_test(malformed),
		cmocka_unit_test(random_damage),
		cmocka_unit_test(sender_starts_again),
		cmocka_unit_test(late_join),
		cmocka_unit_test(streams_end),
		cmocka_unit_test(receiver_leaves),
		cmocka_unit_test(leave_without_sender),
		cmocka_unit_test(streams_fail),
	};
	int ret;

	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		arguments[i + 1] = options[i];
	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0 || mkdtemp(directory) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/recv.ini", directory);
	if (getenv("FRAME_TEST") != NULL)
		cmocka_set_test_filter(getenv("FRAME_TEST"));
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	rmdir(directory);
	return ret;
}
