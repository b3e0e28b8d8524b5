/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real pipeline receives RDMA WRITEs in memory, from a sender on the other end of a wire that
 * loses chosen packets. The pixels of each frame tell to which frame, stream and tile they belong:
 * a frame has only its own, and what was lost is missing. Records equal those of a UDP run in which
 * the same tiles are lost. FRAME_SEED repeats a random run, FRAME_SEEDS sets the number of frames
 * in thousands.
 */
#include "rx_rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include <rte_bus_vdev.h>

#include <rdma.h>

#include "../roce/ring_port.h"
#include "builder/builder.h"
#include "builder/command.h"
#include "config/config.h"
#include "egress/egress.h"
#include "pipeline.h"
#include "port/placement.h"
#include "port/port.h"
#include "rx/messages.h"
#include "rx/ring.h"
#include "settings.h"

#define STREAMS	      2
#define TILES	      4 /* of a stream and frame: 16 rows are read out */
#define FIRST	      62
#define SLOTS	      16 /* of a ring */
#define BEHIND	      4	 /* frames that the receiver may be behind */
#define TILE	      8192
#define MESSAGE	      (INGEST_LEADER_BYTES + TILE + INGEST_TRAILER_BYTES)
#define STAGED	      64 /* messages of the sender that may be on their way */
#define FRAMES	      1024
#define EVENT	      UINT32_MAX
#define PIXELS_A_TILE (TILE / 2)

/* Packets of a message. */
enum part {
	PART_FIRST = 1,
	PART_MIDDLE = 2,
	PART_LAST = 4,
	PART_ALL = 7,
};

static char directory[] = "/tmp/ring_test_XXXXXX";
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
	struct rdma_cq *cq;
	struct rdma_mr *mr;
	struct rdma_qp *qp[STREAMS];
	uint8_t *memory;
	uint32_t psn, staged;
} sender;

/* What the wire loses. */
static struct {
	uint32_t stream, tile; /* message that is on its way */
	uint64_t frame;
	uint32_t part;
	bool lost; /* a packet of it */
} now;
static uint32_t (*to_lose)(void); /* parts of this message that are lost; NULL: none */

/* Tiles that came. A frame is forgotten after FRAMES others. */
static bool came[FRAMES][STREAMS][TILES];

/* Records, in order. */
static struct frame_record records[FRAMES], twins[FRAMES];
static uint64_t nb_records, nb_twins, nb_stale, nb_checked, nb_missing;
static bool check_pixels, check_came;

static uint32_t restarts; /* of the detector: the same frame then has other pixels */

/* ---- pixels ---- */

static uint16_t
pixel(uint64_t frame, uint32_t stream, uint32_t tile, uint32_t i)
{
	switch (i % 4) {
	case 0:
		return frame & 0x3FFF;
	case 1:
		return frame >> 14 & 0x3FFF;
	case 2:
		return stream << 8 | tile;
	default:
		return (i + frame + 16 * restarts) & 0x3FF;
	}
}

static void
fill(uint8_t *to, uint64_t frame, uint32_t stream, uint32_t tile)
{
	uint16_t *w = (uint16_t *)to;

	for (uint32_t i = 0; i < PIXELS_A_TILE; i++)
		w[i] = pixel(frame, stream, tile, i);
}

/** A kept frame has its own pixels, and 0xFFFF where a packet is missing. */
static void
check_frame(const struct frame_record *r)
{
	const uint16_t *raw = (const uint16_t *)(p.outputs + r->out * p.gk_config->layout.stride +
		p.gk_config->layout.raw);

	assert_int_equal(r->kind, GK_KIND_RAW);
	for (uint32_t s = 0; s < STREAMS; s++)
		for (uint32_t t = 0; t < TILES; t++) {
			const uint32_t tile = s * 128 + FIRST + t;
			const bool missing = r->missing_map[tile / 8] >> tile % 8 & 1;
			const uint16_t *at = raw + (size_t)tile * PIXELS_A_TILE;

			nb_missing += missing;
			if (check_came)
				assert_int_equal(missing, !came[r->frame % FRAMES][s][t]);
			for (uint32_t i = 0; i < PIXELS_A_TILE; i++)
				nb_stale += at[i] !=
					(missing ? 0xFFFF : pixel(r->frame, s, FIRST + t, i));
		}
	nb_checked++;
}

static void
collect(void)
{
	struct frame_record *r;

	while (rte_ring_sc_dequeue(p.egress, (void **)&r) == 0) {
		if (check_pixels && r->out != GK_NO_OUT)
			check_frame(r);
		records[nb_records++ % FRAMES] = *r;
		assert_int_equal(rte_ring_sp_enqueue(p.returned, r), 0);
	}
}

/* ---- the wire ---- */

static void
wire(void)
{
	struct rte_mbuf *m;

	while (from_sender != NULL && rte_ring_dequeue(from_sender, (void **)&m) == 0) {
		const uint8_t *b = rte_pktmbuf_mtod(m, const uint8_t *);
		const bool data = b[12] == 0x08 && b[13] == 0 && b[23] == 17 && b[36] == 0x12 &&
			b[37] == 0xB7 && b[42] >> 5 == 1;

		if (data && to_lose != NULL && (to_lose() & now.part) != 0) {
			now.lost = true;
			rte_pktmbuf_free(m);
		} else {
			assert_int_equal(rte_ring_enqueue(to_net, m), 0);
		}
		now.part <<= data ? 1 : 0;
	}
	while (from_net != NULL && rte_ring_dequeue(from_net, (void **)&m) == 0) {
		if (to_sender == NULL)
			rte_pktmbuf_free(m);
		else
			assert_int_equal(rte_ring_enqueue(to_sender, m), 0);
	}
}

static void
poll_receiver(void)
{
	rx_poll(p.rx[0]);
	for (uint32_t i = 0; i < 4; i++) {
		builder_poll(p.builder);
		for (uint32_t g = 0; g < settings.gangs; g++)
			p.gk_ops->poll(p.gk, g, 0);
	}
	collect();
}

static void
poll_all(void)
{
	if (sender.dev != NULL)
		rdma_progress(sender.dev, 0);
	wire();
	poll_receiver();
}

/* Frames that were sent since the run began. */
static uint64_t nb_sent;

/**
 * Poll, and longer if the receiver is behind: how far gangs come in a poll depends on the number of
 * lcores, and a sender that laps the ring is a case of its own.
 */
static void
poll_some(void)
{
	for (uint32_t i = 0; i < 4 || (i < 400 && nb_records + BEHIND < nb_sent); i++)
		poll_all();
}

static void
poll_until_idle(void)
{
	/* longer than stream_timeout_ms */
	for (uint32_t i = 0; i < 200; i++) {
		poll_all();
		usleep(200);
	}
}

/* ---- sender ---- */

static void
connect_stream(uint32_t stream)
{
	const struct ingest_stream *card = &p.messages->card.stream[stream];
	const struct rdma_qp_attr attr = {
		.type = RDMA_QP_UC, .send_cq = sender.cq, .recv_cq = sender.cq, .max_send_wr = 16};
	struct rdma_qp_peer peer = {.qpn = card->qpn, .local_psn = sender.psn, .mtu = 4096};
	struct sockaddr_in *to = (struct sockaddr_in *)&peer.addr;
	struct rdma_event event;
	int ret;

	to->sin_family = AF_INET;
	to->sin_addr.s_addr = htonl(0x0A000002);
	sender.qp[stream] = rdma_qp_create(sender.pd, &attr);
	assert_non_null(sender.qp[stream]);
	while ((ret = rdma_qp_connect(sender.qp[stream], &peer)) == -EAGAIN) {
		poll_all();
		rdma_poll_cm(sender.dev, &event, 1);
		rx_connect_poll(p.messages);
	}
	assert_int_equal(ret, 0);
}

static void
open_sender(void)
{
	struct rdma_mr_attr attr = {.length = STAGED * MESSAGE, .gpu = -1};

	sender.dev = rdma_dev_open("roce:port=net_ring_sender,ip=10.0.0.1/24,mtu=4096");
	assert_non_null(sender.dev);
	sender.pd = rdma_pd_alloc(sender.dev);
	sender.cq = rdma_cq_create(sender.dev, 64, 0);
	sender.memory = aligned_alloc(4096, RTE_ALIGN_CEIL(attr.length, 4096));
	assert_non_null(sender.memory);
	attr.addr = sender.memory;
	sender.mr = rdma_mr_reg(sender.pd, &attr);
	assert_non_null(sender.mr);
	for (uint32_t s = 0; s < STREAMS; s++)
		connect_stream(s);
}

/** As a detector that is switched off and on: other queue pairs, other PSNs. */
static void
restart_sender(void)
{
	sender.psn = (sender.psn + 1000000) & 0xFFFFFF;
	for (uint32_t s = 0; s < STREAMS; s++) {
		assert_int_equal(rdma_qp_destroy(sender.qp[s]), 0);
		connect_stream(s);
	}
}

static void
close_sender(void)
{
	if (sender.dev == NULL)
		return;
	for (uint32_t s = 0; s < STREAMS; s++)
		rdma_qp_destroy(sender.qp[s]);
	rdma_mr_dereg(sender.mr);
	rdma_cq_destroy(sender.cq);
	rdma_pd_free(sender.pd);
	rdma_dev_close(sender.dev);
	free(sender.memory);
	memset(&sender, 0, sizeof(sender));
}

static void
post(uint32_t stream, const struct rdma_send_wr *wr)
{
	struct rdma_wc wc;

	now.part = PART_FIRST;
	now.lost = false;
	assert_int_equal(rdma_post_send(sender.qp[stream], wr, 1), 1);
	while (rdma_poll_cq(sender.cq, &wc, 1) == 0) {
		/* the wire takes no copies: a packet is sent when the receiver has placed it */
		rdma_progress(sender.dev, 0);
		wire();
		rdma_progress(p.messages->devices[0], 0);
	}
	assert_int_equal(wc.status, RDMA_WC_SUCCESS);
	wire();
}

/** Write a tile, with the header of `packet`. @return whether it came */
static bool
write_tile(uint32_t stream, uint64_t frame, uint32_t tile, uint32_t packet)
{
	uint8_t *from = sender.memory + sender.staged++ % STAGED * MESSAGE;
	const struct rdma_sge sge = {(uintptr_t)from, MESSAGE, rdma_mr_lkey(sender.mr)};
	const struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = RDMA_OP_WRITE,
		.flags = RDMA_SEND_SIGNALED,
		.remote_addr = ingest_address(&p.messages->card, stream, frame, FIRST + tile),
		.rkey = p.messages->card.stream[stream].rkey};

	now.stream = stream;
	now.frame = frame;
	now.tile = tile;
	memset(from, 0, MESSAGE);
	rig_put(from + INGEST_LEADER_BYTES - 8, frame, 8);
	fill(from + INGEST_LEADER_BYTES, frame, stream, FIRST + tile);
	rig_header(from + INGEST_LEADER_BYTES + TILE, frame, packet);
	rig_put(from + INGEST_LEADER_BYTES + TILE + 24, frame * 500, 8);
	post(stream, &wr);
	return !now.lost;
}

/** @return whether it came */
static bool
send_event(uint32_t stream, uint64_t frame, uint32_t imm, uint32_t bytes)
{
	const struct rdma_sge sge = {(uintptr_t)sender.memory, bytes, rdma_mr_lkey(sender.mr)};
	const struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = bytes > 0 ? 1 : 0,
		.op = RDMA_OP_WRITE_IMM,
		.flags = RDMA_SEND_SIGNALED,
		.imm = imm,
		.remote_addr = ingest_address(&p.messages->card, stream, frame, FIRST),
		.rkey = p.messages->card.stream[stream].rkey};

	now.stream = stream;
	now.frame = frame;
	now.tile = EVENT;
	post(stream, &wr);
	return !now.lost;
}

/** Send all of a frame, stream by stream. */
static void
send_frame(uint64_t frame)
{
	nb_sent++;
	for (uint32_t s = 0; s < STREAMS; s++) {
		for (uint32_t t = 0; t < TILES; t++)
			came[frame % FRAMES][s][t] = write_tile(s, frame, t, FIRST + t);
		send_event(s, frame, ingest_immediate(s, frame), 0);
	}
}

/** Send the packets that came of the same frame over UDP. */
static void
send_udp(uint64_t frame)
{
	for (uint32_t s = 0; s < STREAMS; s++)
		for (uint32_t t = 0; t < TILES; t++) {
			struct rte_mbuf *m;
			uint8_t *b;

			if (!came[frame % FRAMES][s][t])
				continue;
			m = rte_pktmbuf_alloc(rig_single);
			assert_non_null(m);
			assert_non_null(rte_pktmbuf_append(m, RIG_PACKET_BYTES));
			b = rte_pktmbuf_mtod(m, uint8_t *);
			rig_bytes(b, s, frame, FIRST + t);
			rig_put(b + RIG_HEADERS + 24, frame * 500, 8);
			fill(b + RIG_HEADERS + RIG_HEADER_BYTES, frame, s, FIRST + t);
			assert_int_equal(rte_ring_enqueue(to_net, m), 0);
		}
}

/* ---- pipeline ---- */

static void
write_config(bool udp, const char *format)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f,
		"[detector]\nmodules = 2\nrows = 16\nudp_port = %u\ntransport = %s\n"
		"[port 0]\ndevice = %s\ndescriptors = 256\n%s"
		"[ingest]\nslots = %u\ndelivery = %s\n"
		"[frames]\nslots = 8\nmax_skew_frames = 2\nstream_timeout_ms = 20\n"
		"backpressure = wait\n"
		"[gpu]\nkernel = host\noutputs = 32\nbatch = 4\n"
		"[veto]\nstrong_min = 0\n"
		"[output]\nformat = %s\ndirectory = %s\npreview = off\ncalibration = no\n",
		RIG_UDP_PORT, udp ? "udp" : "write",
		udp ? "net_ring_udp" : "roce:port=net_ring_receiver,ip=10.0.0.2/24",
		udp ? "mtu = 9000\n" : "", SLOTS, udp ? "auto" : "memory", format, directory);
	assert_int_equal(fclose(f), 0);
}

static void
open_receiver(bool udp, const char *format)
{
	static struct config_source source;
	struct placement way;
	cpu_set_t cpus;

	write_config(udp, format);
	source = (struct config_source){.file = path};
	config = config_open(&source);
	assert_non_null(config);
	assert_int_equal(settings_read(&settings, &egress, config), 0);
	assert_int_equal(placement_choose(&way, &settings), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	ring_port_make(udp ? "udp" : "receiver", 4096, 1, &to_net, &from_net);
	if (!udp)
		ring_port_make("sender", 4096, 1, &to_sender, &from_sender);
	assert_int_equal(pipeline_create(&p, &settings, &way, &cpus), 0);
	assert_int_equal(pipeline_calibrate(&p, &settings.calibration), 0);
	if (!udp)
		open_sender();
}

static void
begin_run(uint64_t first)
{
	struct builder_command c = {.order = BUILDER_BEGIN,
		.run = {.first_known = true, .first_frame = first, .stride = 1},
		.packets_min = settings.packets_min,
		.veto = settings.veto};

	assert_int_equal(builder_post(p.builder, &c), 0);
	for (uint32_t i = 0; i < 100 && p.table->window.state != FRAME_WINDOW_OPEN; i++)
		poll_receiver();
	nb_records = nb_stale = nb_checked = nb_missing = nb_sent = 0;
}

static void
end_run(void)
{
	struct builder_command c = {.order = BUILDER_END};

	poll_until_idle();
	assert_int_equal(builder_post(p.builder, &c), 0);
	for (uint32_t i = 0; i < 20000 && !builder_is_idle(p.builder); i++) {
		poll_all();
		usleep(100);
	}
	assert_true(builder_is_idle(p.builder));
}

/** Each packet has one outcome. */
static void
check_balance(void)
{
	const uint64_t *c = p.rx[0]->counters;
	uint64_t outcomes = 0;

	for (uint32_t i = RX_PLACED; i < RX_COUNTERS; i++)
		outcomes += c[i];
	if (getenv("RING_DEBUG") != NULL || c[RX_PACKETS] != outcomes)
		for (uint32_t i = 0; i < RX_COUNTERS; i++)
			if (c[i] != 0)
				print_message("%s %lu\n", rx_counter_names[i], c[i]);
	assert_int_equal(c[RX_PACKETS], outcomes);
}

static void
drain(struct rte_ring **rings[], uint32_t n)
{
	struct rte_mbuf *m;

	for (uint32_t i = 0; i < n; i++) {
		if (*rings[i] == NULL)
			continue;
		while (rte_ring_dequeue(*rings[i], (void **)&m) == 0)
			rte_pktmbuf_free(m);
		rte_ring_free(*rings[i]);
		*rings[i] = NULL;
	}
}

static void
close_receiver(void)
{
	struct rte_ring **rings[] = {&from_net, &to_net, &from_sender, &to_sender};
	uint32_t leaked;

	to_lose = NULL;
	wire();
	close_sender();
	leaked = pipeline_destroy(&p);
	if (from_sender != NULL)
		rte_vdev_uninit("net_ring_sender");
	rte_vdev_uninit(from_sender != NULL ? "net_ring_receiver" : "net_ring_udp");
	drain(rings, RTE_DIM(rings));
	config_close(config);
	assert_int_equal(leaked, 0);
	check_pixels = check_came = false;
}

/** Compare what UDP would have recorded of the same frames. */
static void
compare_with_udp(uint64_t first, uint64_t frames)
{
	nb_twins = nb_records;
	memcpy(twins, records, sizeof(twins));
	open_receiver(true, "csr");
	begin_run(first);
	for (uint64_t f = first; f < first + frames; f++) {
		send_udp(f);
		poll_some();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_records, nb_twins);
	for (uint64_t i = 0; i < nb_records; i++) {
		struct frame_record *a = &records[i], *b = &twins[i];

		a->receive_time = b->receive_time = 0;
		a->out = b->out = 0;
		a->flags &= ~FRAME_FLAG_TIMEOUT;
		b->flags &= ~FRAME_FLAG_TIMEOUT;
		if (memcmp(a, b, sizeof(*a)) != 0)
			print_message("frame %lu: missing %u %u and %u %u, verdict %u %u, flags %x "
				      "%x, sum %f %f\n",
				a->frame, a->missing[0], a->missing[1], b->missing[0],
				b->missing[1], a->verdict, b->verdict, a->flags, b->flags, a->sum,
				b->sum);
		assert_memory_equal(a, b, sizeof(*a));
	}
	close_receiver();
}

/* ---- tests ---- */

static void
equals_udp(void **state)
{
	open_receiver(false, "csr");
	begin_run(1);
	for (uint64_t f = 1; f <= 100; f++) {
		send_frame(f);
		poll_some();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_records, 100);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS], 100 * STREAMS);
	assert_int_equal(p.rx[0]->counters[RX_PLACED], 100 * STREAMS * TILES);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 0);
	assert_int_equal(builder_stats(p.builder).complete, 100);
	assert_int_equal(builder_stats(p.builder).overrun, 0);
	close_receiver();
	compare_with_udp(1, 100);
}

/** Of each frame something else: FIRST, MIDDLE, LAST, all of a stream, the event. */
static uint32_t
lose_in_turn(void)
{
	switch (now.frame % 8) {
	case 1:
		return now.tile == 1 && now.stream == 0 ? PART_FIRST : 0;
	case 2:
		return now.tile == 2 && now.stream == 1 ? PART_MIDDLE : 0;
	case 3:
		return now.tile == TILES - 1 ? PART_LAST : 0;
	case 4:
		return now.tile == EVENT && now.stream == 0 ? PART_FIRST : 0;
	case 5:
		return now.tile != EVENT && now.stream == 1 ? PART_ALL : 0;
	case 6: /* the first tile, whose header stands for the frame, and the event */
		return (now.tile == 0 || now.tile == EVENT) && now.stream == 1 ? PART_FIRST : 0;
	case 7: /* all of the frame */
		return now.frame == 15 ? PART_ALL : 0;
	default:
		return 0;
	}
}

static void
lost_is_missing(void **state)
{
	open_receiver(false, "csr");
	begin_run(1);
	to_lose = lose_in_turn;
	for (uint64_t f = 1; f <= 96; f++) {
		send_frame(f);
		poll_some();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_records, 96);
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 2 * 12);
	assert_int_equal(p.rx[0]->counters[RX_OVERRUN], 0);
	close_receiver();
	compare_with_udp(1, 96);
}

static uint64_t seed;

static uint32_t
lose_at_random(void)
{
	return rig_below(&seed, 20) == 0 ? PART_ALL : 0;
}

/** No pixel of another frame passes for one of this frame. */
static void
no_stale_pixels(void **state)
{
	const uint64_t frames = 1000 * rig_seeds(5);

	seed = rig_first_seed();
	print_message("FRAME_SEED=%lu, %lu frames\n", seed, frames);
	open_receiver(false, "raw");
	check_pixels = check_came = true;
	begin_run(1);
	to_lose = lose_at_random;
	for (uint64_t f = 1; f <= frames; f++) {
		send_frame(f);
		poll_some();
	}
	to_lose = NULL;
	send_frame(frames + 1); /* its events end the frames before it */
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_true(nb_checked > frames * 9 / 10);
	assert_true(nb_missing > 0);
	assert_int_equal(nb_records, frames + 1);
	print_message("%lu frames, %lu tiles missing, %lu events lost\n", nb_checked, nb_missing,
		p.rx[0]->counters[RX_EVENTS_LOST]);
	close_receiver();
}

/** The receiver does not run while the detector laps the ring. */
static void
lapped(void **state)
{
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	for (uint64_t f = 1; f <= 400; f++) {
		send_frame(f);
		/* frames wait in the ring; twice more than it holds, and once in gangs */
		if (f % 100 < 60)
			poll_some();
		else if (f % 100 < 62)
			rx_poll(p.rx[0]);
		else
			rdma_progress(p.messages->devices[0], 0);
	}
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_true(p.rx[0]->counters[RX_OVERRUN] > 0);
	print_message("%lu of %lu packets overrun before, %lu after they were placed\n",
		p.rx[0]->counters[RX_OVERRUN], p.rx[0]->counters[RX_PACKETS],
		builder_stats(p.builder).overrun + builder_stats(p.builder).missing_packets);
	close_receiver();
}

static uint32_t
lose_last(void)
{
	return PART_LAST;
}

/**
 * The detector begins to overwrite a frame that a gang has not read, and loses the trailer: the new
 * pixels lie before the trailer of the old frame.
 */
static void
lapped_without_trailer(void **state)
{
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	/* gangs do not run */
	for (uint64_t f = 1; f <= SLOTS; f++) {
		send_frame(f);
		rx_poll(p.rx[0]);
		builder_poll(p.builder);
	}
	to_lose = lose_last;
	write_tile(0, 1 + SLOTS, 1, FIRST + 1);
	to_lose = NULL;
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_int_equal(builder_stats(p.builder).overrun, 1);
	assert_int_equal(records[0].frame, 1);
	assert_int_equal(records[0].missing[0], 1);
	close_receiver();
}

/** The detector sends the same few numbers again, and loses tiles: the old ones do not pass. */
static void
restarted(void **state)
{
	seed = rig_first_seed();
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	for (restarts = 0; restarts < 20; restarts++) {
		to_lose = restarts > 0 ? lose_at_random : NULL;
		for (uint64_t f = 1; f <= SLOTS - 2; f++) {
			send_frame(f);
			poll_some();
		}
		poll_until_idle();
		to_lose = NULL;
		restart_sender();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_stale, 0);
	assert_int_equal(nb_records, restarts * (SLOTS - 2));
	restarts = 0;
	close_receiver();
}

/** The immediate has 24 bits of the frame number. */
static void
immediate_wraps(void **state)
{
	const uint64_t first = (UINT64_C(5) << 24) - 20;

	open_receiver(false, "csr");
	begin_run(first);
	to_lose = lose_in_turn;
	for (uint64_t f = first; f < first + 40; f++) {
		send_frame(f);
		poll_some();
	}
	end_run();
	check_balance();
	assert_int_equal(nb_records, 40);
	close_receiver();
	compare_with_udp(first, 40);
}

/** Events and messages that no detector sends. */
static void
malformed(void **state)
{
	open_receiver(false, "csr");
	begin_run(1);
	send_frame(1);
	poll_all();
	send_event(0, 2, ingest_immediate(1, 2), 0);  /* another stream's */
	send_event(0, 2, ingest_immediate(0, 2), 64); /* with data */
	send_event(0, 2, ingest_immediate(63, 2), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_MALFORMED], 3);
	/* nothing came with this event */
	send_event(1, 2, ingest_immediate(1, 2), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_EVENTS], 3);
	assert_int_equal(p.rx[0]->counters[RX_PACKETS], 2 * TILES + 3);
	/* the header of another packet */
	write_tile(0, 2, 0, FIRST + 1);
	send_event(0, 2, ingest_immediate(0, 2), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_MALFORMED], 3 + TILES);
	/* the same event again */
	send_frame(3);
	poll_all();
	send_event(0, 3, ingest_immediate(0, 3), 0);
	poll_all();
	assert_int_equal(p.rx[0]->counters[RX_DUPLICATE] + p.rx[0]->counters[RX_LATE], TILES);
	end_run();
	check_balance();
	close_receiver();
}

/** What rings cost is known, and their memory is on the best pages there are. */
static void
registered_once(void **state)
{
	struct rx_ring_info info;

	open_receiver(false, "csr");
	rx_ring_info_get(p.messages->ring, &info);
	assert_true(info.bytes >= STREAMS * SLOTS * p.messages->card.slot_bytes);
	assert_true(info.register_ns > 0);
	assert_true(info.prefault_ns > 0);
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
		cmocka_unit_test(registered_once),
		cmocka_unit_test(equals_udp),
		cmocka_unit_test(lost_is_missing),
		cmocka_unit_test(no_stale_pixels),
		cmocka_unit_test(lapped),
		cmocka_unit_test(lapped_without_trailer),
		cmocka_unit_test(restarted),
		cmocka_unit_test(immediate_wraps),
		cmocka_unit_test(malformed),
	};
	int ret;

	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		arguments[i + 1] = options[i];
	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0 || mkdtemp(directory) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/recv.ini", directory);
	rig_single = rte_pktmbuf_pool_create("single", RIG_POOL, 0, 0,
		RTE_PKTMBUF_HEADROOM + RIG_PACKET_BYTES + 64, SOCKET_ID_ANY);
	if (rig_single == NULL)
		return 1;
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	rmdir(directory);
	return ret;
}
