/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real pipeline receives RDMA WRITEs in memory, from a sender on the other end of a wire that
 * loses chosen packets. FRAME_SEED repeats a random run, FRAME_SEEDS sets the number of frames in
 * thousands.
 */
#ifndef RING_RIG_H
#define RING_RIG_H

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
#include "raw_output.h"
#include "rx/messages.h"
#include "rx/ring.h"
#include "settings.h"

#define STREAMS 2
#define TILES	4 /* of a stream and frame: 16 rows are read out */
#define FIRST	62
#define SLOTS	16 /* of a ring */
#define BEHIND	4  /* frames that the receiver may be behind */
/* long, so that frames seldom end by time on a busy machine */
#define STREAM_TIMEOUT_MS 100
#define TILE		  8192
#define MESSAGE		  (INGEST_LEADER_BYTES + TILE + INGEST_TRAILER_BYTES)
#define STAGED		  64 /* messages of the sender that may be on their way */
#define FRAMES		  1024
#define EVENT		  UINT32_MAX
#define SERVICE		  4792
#define NO_CREDIT	  UINT64_MAX
#define PIXELS_A_TILE	  (TILE / 2)

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
	struct rdma_mr *credits_mr;
	struct rdma_conn *conn[STREAMS]; /* with SERVICE */
	uint64_t credit[STREAMS];	 /* written by the receiver */
	uint8_t *memory;
	uint32_t psn, staged;
} sender;

static bool with_service; /* queue pairs are connected through the CM, and have credits */
static bool lose_credits; /* the wire loses what the receiver sends, except of the CM */

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

static inline uint16_t
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

static inline void
fill(uint8_t *to, uint64_t frame, uint32_t stream, uint32_t tile)
{
	uint16_t *w = (uint16_t *)to;

	for (uint32_t i = 0; i < PIXELS_A_TILE; i++)
		w[i] = pixel(frame, stream, tile, i);
}

/** A kept frame has its own pixels, and 0xFFFF where a packet is missing. */
static inline void
check_frame(const struct frame_record *r)
{
	const uint16_t *raw = raw_output(p.gk_config, p.outputs, r);

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

static inline void
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

/** Is it a RoCE packet of a UC queue pair? */
static inline bool
is_data(const uint8_t *b)
{
	return b[12] == 0x08 && b[13] == 0 && b[23] == 17 && b[36] == 0x12 && b[37] == 0xB7 &&
		b[42] >> 5 == 1;
}

static inline void
wire(void)
{
	struct rte_mbuf *m;

	while (from_sender != NULL && rte_ring_dequeue(from_sender, (void **)&m) == 0) {
		const bool data = is_data(rte_pktmbuf_mtod(m, const uint8_t *));

		if (data && to_lose != NULL && (to_lose() & now.part) != 0) {
			now.lost = true;
			rte_pktmbuf_free(m);
		} else {
			assert_int_equal(rte_ring_enqueue(to_net, m), 0);
		}
		now.part <<= data ? 1 : 0;
	}
	while (from_net != NULL && rte_ring_dequeue(from_net, (void **)&m) == 0) {
		if (to_sender == NULL ||
			(lose_credits && is_data(rte_pktmbuf_mtod(m, const uint8_t *))))
			rte_pktmbuf_free(m);
		else
			assert_int_equal(rte_ring_enqueue(to_sender, m), 0);
	}
}

static inline void
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

static inline void
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
static inline void
poll_some(void)
{
	for (uint32_t i = 0; i < 4 || (i < 400 && nb_records + BEHIND < nb_sent); i++)
		poll_all();
}

static inline void
poll_until_idle(void)
{
	/* longer than stream_timeout_ms on a machine with any load */
	for (uint32_t i = 0; i < STREAM_TIMEOUT_MS * 6 / 5; i++) {
		poll_all();
		usleep(1000);
	}
}

/* ---- sender ---- */

/** Ask for credits, and connect through the CM. */
static inline void
connect_by_cm(uint32_t stream, struct sockaddr_in *to)
{
	const struct ingest_request request = {.stream = stream,
		.transport = INGEST_WRITE,
		.credit_address = (uintptr_t)&sender.credit[stream],
		.credit_rkey = rdma_mr_rkey(sender.credits_mr)};
	uint8_t data[INGEST_REQUEST_BYTES];
	const struct rdma_conn_attr attr = {.private_data = data, .private_len = sizeof(data)};
	struct rdma_event event;

	sender.credit[stream] = NO_CREDIT;
	to->sin_port = htons(SERVICE);
	ingest_request_encode(&request, data);
	sender.conn[stream] =
		rdma_conn_connect(sender.qp[stream], (const struct sockaddr *)to, &attr);
	assert_non_null(sender.conn[stream]);
	/* the receiver then gets the last message of the handshake */
	for (uint32_t after = 0; after < 10;) {
		if (rdma_poll_cm(sender.dev, &event, 1) == 0)
			event.type = RDMA_EVENT_DISCONNECTED;
		assert_int_not_equal(event.type, RDMA_EVENT_REJECTED);
		after += after > 0 || event.type == RDMA_EVENT_ESTABLISHED;
		rdma_progress(sender.dev, 0);
		wire();
		rx_poll(p.rx[0]);
		rx_connect_poll(p.messages);
	}
}

static inline void
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
	if (with_service) {
		connect_by_cm(stream, to);
		return;
	}
	while ((ret = rdma_qp_connect(sender.qp[stream], &peer)) == -EAGAIN) {
		poll_all();
		rdma_poll_cm(sender.dev, &event, 1);
		rx_connect_poll(p.messages);
	}
	assert_int_equal(ret, 0);
}

static inline void
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
	sender.credits_mr = rdma_mr_reg(sender.pd,
		&(struct rdma_mr_attr){.addr = sender.credit,
			.length = sizeof(sender.credit),
			.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
			.gpu = -1});
	assert_non_null(sender.credits_mr);
	for (uint32_t s = 0; s < STREAMS; s++)
		connect_stream(s);
}

/** As a detector that is switched off and on: other queue pairs, other PSNs. */
static inline void
restart_sender(void)
{
	sender.psn = (sender.psn + 1000000) & 0xFFFFFF;
	for (uint32_t s = 0; s < STREAMS; s++) {
		if (sender.conn[s] != NULL)
			rdma_conn_destroy(sender.conn[s]);
		assert_int_equal(rdma_qp_destroy(sender.qp[s]), 0);
		connect_stream(s);
	}
}

static inline void
close_sender(void)
{
	if (sender.dev == NULL)
		return;
	for (uint32_t s = 0; s < STREAMS; s++) {
		if (sender.conn[s] != NULL)
			rdma_conn_destroy(sender.conn[s]);
		rdma_qp_destroy(sender.qp[s]);
	}
	rdma_mr_dereg(sender.mr);
	rdma_mr_dereg(sender.credits_mr);
	rdma_cq_destroy(sender.cq);
	rdma_pd_free(sender.pd);
	rdma_dev_close(sender.dev);
	free(sender.memory);
	memset(&sender, 0, sizeof(sender));
}

static inline void
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
static inline bool
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
static inline bool
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
static inline void
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
static inline void
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

static inline void
write_config(bool udp, const char *format)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f,
		"[detector]\nmodules = 2\nrows = 16\nudp_port = %u\ntransport = %s\n"
		"[port 0]\ndevice = %s\ndescriptors = 256\n%s"
		"[ingest]\nslots = %u\ndelivery = %s\n%s"
		"[frames]\nslots = 8\nmax_skew_frames = 2\nstream_timeout_ms = %u\n"
		"backpressure = wait\n"
		"[gpu]\nkernel = host\noutputs = 32\nbatch = 4\n"
		"[veto]\nstrong_min = 0\n"
		"[output]\nformat = %s\ndirectory = %s\npreview = off\ncalibration = no\n",
		RIG_UDP_PORT, udp ? "udp" : "write",
		udp ? "net_ring_udp" : "roce:port=net_ring_receiver,ip=10.0.0.2/24",
		udp ? "mtu = 9000\n" : "", SLOTS, udp ? "auto" : "memory",
		!udp && with_service ? "service = 4792\n" : "", STREAM_TIMEOUT_MS, format,
		directory);
	assert_int_equal(fclose(f), 0);
}

static inline void
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

static inline void
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

static inline void
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
static inline void
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

static inline void
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

static inline void
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
	check_pixels = check_came = with_service = false;
}

/** Compare what UDP would have recorded of the same frames. */
static inline void
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

/* ---- program ---- */

/** Run the tests of a program. @return its exit status */
static inline int
ring_main(char **argv, const struct CMUnitTest *tests, size_t n)
{
	/* with more lcores, gangs have more workers than these tests poll */
	static char options[][48] = {"--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m",
		"512", "--lcores=(0-1)@0", "--vdev=gpu_host0", "--log-level=braggline.*:error"};
	char *arguments[RTE_DIM(options) + 1] = {argv[0]};
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
	ret = _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
	unlink(path);
	rmdir(directory);
	return ret;
}

#endif
