/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A JUNGFRAU that sends by RoCEv2, written with libibverbs alone: it shares no code with
 * braggline-detector or the receiver. Queue pairs, addresses and headers follow the tables in
 * app/common/ingest/README.rst, as registers of an FPGA would.
 *
 * Each stream has a UC queue pair. A message is one tile: leader (if any), pixels, and the
 * detector's header padded to 64 bytes. The event of a frame is a message without data.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#define STREAMS_MAX 16
#define HEADER	    48
#define TRAILER	    64
#define IN_FLIGHT   32 /* messages of a stream */

static const char usage[] =
	"Usage: rxe_detector [option]... --stream QPN,PSN,RKEY,BASE,MODULE,ROW,COLUMN,TILE...\n"
	"TILE: number of the stream's first tile, if not all rows are read out\n"
	"  --write              RDMA WRITE (default: SEND)\n"
	"  --ip A.B.C.D         address of the receiver\n"
	"  --mtu N              path MTU (4096)\n"
	"  --tiles N            messages of a stream and frame that a slot has room for (128)\n"
	"  --send N             tiles of a stream that are sent, if not all rows are read out\n"
	"  --tile-bytes N       pixels of a message (8192)\n"
	"  --leader N           bytes before the pixels (0)\n"
	"  --slots N            of a stream's ring (128)\n"
	"  --first-psn N        first PSN, in place of that of each stream\n"
	"  --frames FILE        lines: number exposure bunch timestamp info\n"
	"  --pixels FILE        pixels of all tiles: frame by frame, stream by stream\n"
	"  --from N --to N      send these frames of the file only, by number\n"
	"  --stop N:T           end after T tiles of each stream of frame N, without its events\n"
	"  --interval-us N      between frames (0)\n"
	"  --device NAME        verbs device (rxe0)\n"
	"  --gid N              index of the source GID (1)\n";

struct stream {
	uint32_t qpn, psn, rkey;
	uint64_t base;
	uint32_t module, row, column, first_tile;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *messages; /* IN_FLIGHT of them */
	uint64_t posted, completed;
};

struct frame {
	uint64_t number, bunch, timestamp;
	uint32_t exposure, info;
};

static struct {
	bool write;
	struct in_addr ip;
	uint32_t mtu, tiles, tile_bytes, leader, slots;
	int64_t first_psn; /* -1: of the stream */
	const char *frames, *pixels, *device;
	uint64_t from, to, stop, stop_tile;
	uint32_t nb_tiles; /* that are sent */
	uint32_t interval_us;
	int gid;
	uint32_t nb_streams;
	struct stream stream[STREAMS_MAX];
} the = {.mtu = 4096,
	.tiles = 128,
	.tile_bytes = 8192,
	.slots = 128,
	.first_psn = -1,
	.to = UINT64_MAX,
	.stop = UINT64_MAX,
	.device = "rxe0",
	.gid = 1};

static void
fail(const char *what, int error)
{
	fprintf(stderr, "rxe_detector: %s: %s\n", what, strerror(error));
	exit(1);
}

static uint32_t
message_bytes(void)
{
	return the.leader + the.tile_bytes + TRAILER;
}

/* ---- queue pairs ---- */

static enum ibv_mtu
mtu_code(void)
{
	enum ibv_mtu code = IBV_MTU_256;

	for (uint32_t bytes = 256; bytes < the.mtu; bytes *= 2)
		code++;
	return code;
}

static struct ibv_context *
open_device(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (int i = 0; i < n; i++)
		if (strcmp(ibv_get_device_name(list[i]), the.device) == 0)
			return ibv_open_device(list[i]);
	return NULL;
}

static void
connect_stream(struct stream *s)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_code(),
		.dest_qp_num = s->qpn,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.sgid_index = the.gid, .hop_limit = 64}}};
	struct ibv_qp_attr sends = {.qp_state = IBV_QPS_RTS,
		.sq_psn = the.first_psn < 0 ? s->psn : (uint32_t)the.first_psn};
	uint8_t *gid = ready.ah_attr.grh.dgid.raw;

	/* ::ffff:A.B.C.D */
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &the.ip, 4);
	if (ibv_modify_qp(s->qp, &init,
		    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
		fail("queue pair to INIT", errno);
	if (ibv_modify_qp(s->qp, &ready,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) !=
		0)
		fail("queue pair to RTR", errno);
	if (ibv_modify_qp(s->qp, &sends, IBV_QP_STATE | IBV_QP_SQ_PSN) != 0)
		fail("queue pair to RTS", errno);
}

static void
open_stream(struct ibv_context *context, struct ibv_pd *pd, struct stream *s)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_UC,
		.cap = {.max_send_wr = IN_FLIGHT + 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	const size_t bytes = (size_t)IN_FLIGHT * message_bytes();

	s->cq = ibv_create_cq(context, 2 * IN_FLIGHT, NULL, NULL, 0);
	if (s->cq == NULL)
		fail("completion queue", errno);
	attr.send_cq = attr.recv_cq = s->cq;
	s->qp = ibv_create_qp(pd, &attr);
	if (s->qp == NULL)
		fail("queue pair", errno);
	s->messages = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (s->messages == NULL)
		fail("memory", ENOMEM);
	memset(s->messages, 0, bytes);
	s->mr = ibv_reg_mr(pd, s->messages, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (s->mr == NULL)
		fail("memory region", errno);
	connect_stream(s);
}

/* ---- messages ---- */

static void
wait_completions(struct stream *s, uint64_t in_flight)
{
	struct ibv_wc wc;

	while (s->posted - s->completed > in_flight) {
		const int n = ibv_poll_cq(s->cq, 1, &wc);

		if (n < 0 || (n > 0 && wc.status != IBV_WC_SUCCESS)) {
			fprintf(stderr, "rxe_detector: completion: %s\n",
				n < 0 ? "cannot poll" : ibv_wc_status_str(wc.status));
			exit(1);
		}
		s->completed += n;
	}
}

/* Little-endian; the host's order does not matter. */
static uint8_t *
put(uint8_t *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*at++ = value >> 8 * i & 0xff;
	return at;
}

/* The 48 bytes before the pixels of a UDP packet (SLS detector header, version 2). */
static void
put_header(uint8_t *at, const struct stream *s, const struct frame *f, uint32_t tile)
{
	at = put(at, f->number, 8);
	at = put(at, f->exposure, 4);
	at = put(at, tile, 4);
	at = put(at, f->bunch, 8);
	at = put(at, f->timestamp, 8);
	at = put(at, s->module, 2);
	at = put(at, s->row, 2);
	at = put(at, s->column, 2);
	at = put(at, 0, 2);
	at = put(at, f->info, 4);
	at = put(at, 0, 2);
	at = put(at, 3, 1); /* JUNGFRAU */
	put(at, 2, 1);
}

static void
post(struct stream *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(s->qp, wr, &bad) != 0)
		fail("post", errno);
	s->posted++;
}

static void
send_tile(struct stream *s, const struct frame *f, uint32_t tile, FILE *pixels)
{
	uint8_t *message;
	struct ibv_sge sge = {.length = message_bytes(), .lkey = s->mr->lkey};
	struct ibv_send_wr wr = {.opcode = the.write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1};

	wait_completions(s, IN_FLIGHT - 1);
	message = s->messages + s->posted % IN_FLIGHT * message_bytes();
	sge.addr = (uintptr_t)message;
	if (the.leader > 0)
		put(message + the.leader - 8, f->number, 8);
	if (fread(message + the.leader, the.tile_bytes, 1, pixels) != 1)
		fail(the.pixels, EIO);
	put_header(message + the.leader + the.tile_bytes, s, f, tile);
	wr.wr.rdma.rkey = s->rkey;
	wr.wr.rdma.remote_addr = s->base +
		(f->number & (the.slots - 1)) * ((uint64_t)the.tiles * message_bytes()) +
		(uint64_t)tile * message_bytes();
	post(s, &wr);
}

static void
send_event(struct stream *s, uint32_t number_of_stream, const struct frame *f)
{
	struct ibv_send_wr wr = {
		.opcode = the.write ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM,
		.imm_data = htonl(number_of_stream << 24 | (uint32_t)(f->number & 0xffffff))};

	wait_completions(s, IN_FLIGHT - 1);
	post(s, &wr);
}

/* @return false: the detector has been stopped */
static bool
send_frame(const struct frame *f, uint64_t index, FILE *pixels)
{
	for (uint32_t t = 0; t < the.nb_tiles; t++) {
		for (uint32_t i = 0; i < the.nb_streams; i++) {
			const uint64_t at = (index * the.nb_streams + i) * the.nb_tiles + t;

			if (fseeko(pixels, (off_t)(at * the.tile_bytes), SEEK_SET) != 0)
				fail(the.pixels, errno);
			send_tile(&the.stream[i], f, the.stream[i].first_tile + t, pixels);
		}
		if (f->number == the.stop && t + 1 == the.stop_tile)
			return false;
	}
	for (uint32_t i = 0; i < the.nb_streams; i++)
		send_event(&the.stream[i], i, f);
	return true;
}

static void
send_frames(void)
{
	const struct timespec interval = {
		.tv_sec = the.interval_us / 1000000, .tv_nsec = the.interval_us % 1000000 * 1000L};
	FILE *list = fopen(the.frames, "r"), *pixels = fopen(the.pixels, "rb");
	uint64_t index, sent = 0;
	struct frame f;
	bool on = true;

	if (list == NULL || pixels == NULL)
		fail("frames or pixels", errno);
	for (index = 0; on &&
		fscanf(list, "%" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu32, &f.number,
			&f.exposure, &f.bunch, &f.timestamp, &f.info) == 5;
		index++) {
		if (f.number < the.from || f.number > the.to)
			continue;
		on = send_frame(&f, index, pixels);
		sent += on;
		nanosleep(&interval, NULL);
	}
	for (uint32_t i = 0; i < the.nb_streams; i++)
		wait_completions(&the.stream[i], 0);
	printf("sent %" PRIu64 " frames%s\n", sent, on ? "" : ", and a part of one");
	fclose(list);
	fclose(pixels);
}

/* ---- options ---- */

static void
add_stream(const char *text)
{
	struct stream *s = &the.stream[the.nb_streams++];

	if (the.nb_streams > STREAMS_MAX ||
		sscanf(text,
			"%" SCNi32 ",%" SCNi32 ",%" SCNi32 ",%" SCNi64 ",%" SCNu32 ",%" SCNu32
			",%" SCNu32 ",%" SCNu32,
			(int32_t *)&s->qpn, (int32_t *)&s->psn, (int32_t *)&s->rkey,
			(int64_t *)&s->base, &s->module, &s->row, &s->column, &s->first_tile) != 8)
		fail(text, EINVAL);
}

static void
parse(int argc, char **argv)
{
	static const struct option options[] = {
		{"write", no_argument, NULL, 'w'},
		{"ip", required_argument, NULL, 'i'},
		{"mtu", required_argument, NULL, 'm'},
		{"tiles", required_argument, NULL, 't'},
		{"send", required_argument, NULL, 'n'},
		{"tile-bytes", required_argument, NULL, 'b'},
		{"leader", required_argument, NULL, 'l'},
		{"slots", required_argument, NULL, 's'},
		{"first-psn", required_argument, NULL, 'q'},
		{"frames", required_argument, NULL, 'f'},
		{"pixels", required_argument, NULL, 'p'},
		{"from", required_argument, NULL, 'a'},
		{"to", required_argument, NULL, 'z'},
		{"stop", required_argument, NULL, 'x'},
		{"interval-us", required_argument, NULL, 'u'},
		{"device", required_argument, NULL, 'd'},
		{"gid", required_argument, NULL, 'g'},
		{"stream", required_argument, NULL, 'r'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'w':
			the.write = true;
			break;
		case 'i':
			if (inet_pton(AF_INET, optarg, &the.ip) != 1)
				fail(optarg, EINVAL);
			break;
		case 'm':
			the.mtu = strtoul(optarg, NULL, 0);
			break;
		case 't':
			the.tiles = strtoul(optarg, NULL, 0);
			break;
		case 'n':
			the.nb_tiles = strtoul(optarg, NULL, 0);
			break;
		case 'b':
			the.tile_bytes = strtoul(optarg, NULL, 0);
			break;
		case 'l':
			the.leader = strtoul(optarg, NULL, 0);
			break;
		case 's':
			the.slots = strtoul(optarg, NULL, 0);
			break;
		case 'q':
			the.first_psn = strtol(optarg, NULL, 0);
			break;
		case 'f':
			the.frames = optarg;
			break;
		case 'p':
			the.pixels = optarg;
			break;
		case 'a':
			the.from = strtoull(optarg, NULL, 0);
			break;
		case 'z':
			the.to = strtoull(optarg, NULL, 0);
			break;
		case 'x':
			if (sscanf(optarg, "%" SCNu64 ":%" SCNu64, &the.stop, &the.stop_tile) != 2)
				fail(optarg, EINVAL);
			break;
		case 'u':
			the.interval_us = strtoul(optarg, NULL, 0);
			break;
		case 'd':
			the.device = optarg;
			break;
		case 'g':
			the.gid = atoi(optarg);
			break;
		case 'r':
			add_stream(optarg);
			break;
		default:
			fputs(usage, stderr);
			exit(2);
		}
	}
	if (the.nb_tiles == 0)
		the.nb_tiles = the.tiles;
	if (optind < argc || the.nb_streams == 0 || the.frames == NULL || the.pixels == NULL) {
		fputs(usage, stderr);
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	struct ibv_context *context;
	struct ibv_pd *pd;

	parse(argc, argv);
	context = open_device();
	if (context == NULL)
		fail(the.device, ENODEV);
	pd = ibv_alloc_pd(context);
	if (pd == NULL)
		fail("protection domain", errno);
	for (uint32_t i = 0; i < the.nb_streams; i++)
		open_stream(context, pd, &the.stream[i]);
	send_frames();
	for (uint32_t i = 0; i < the.nb_streams; i++) {
		struct stream *s = &the.stream[i];

		ibv_destroy_qp(s->qp);
		ibv_destroy_cq(s->cq);
		ibv_dereg_mr(s->mr);
		free(s->messages);
	}
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	return 0;
}
