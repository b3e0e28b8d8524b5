/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datapath of software RoCE. The input is a script of packets to queue pairs of all types (requests
 * and responses that are almost valid, arbitrary frames) and of work requests. Bytes may change
 * only where a region permits it: memory between the regions, a region without rights, and one of
 * another protection domain must stay unchanged. Messages by reference must be well-formed chains,
 * and no mbuf may be lost.
 */
#include "seed_corpus.h"

#include <errno.h>

#include <sanitizer/lsan_interface.h>

#include "../unit/roce/roce_cm_rig.h"
#include "engine/icrc.h"
#include "rdma_roce.h"

#define SCRIPT	 800  /* bytes of an input that are used */
#define MTU	 256  /* small, so that short messages have several packets */
#define REGION	 4096 /* bytes of each region, and of the gaps between them */
#define PEER_QPN 0x77
#define PSN	 0x10000
#define CANARY	 0xa5
#define PAYLOAD	 0x3c

#define REFERENCE_MAX 700 /* bytes of a message by reference */

enum {
	REGION_ALL,
	REGION_READ,  /* remote read only */
	REGION_NONE,  /* no rights */
	REGION_OTHER, /* all rights, another protection domain */
	REGIONS
};

enum {
	QP_RC,
	QP_RC_EMPTY, /* no receive posted */
	QP_UC,
	QP_UD,
	QP_REFERENCE, /* UC, messages by reference to REGION_NONE; only receives */
	QPS
};

struct script {
	const uint8_t *bytes;
	size_t size, at;
};

static uint8_t *memory;
static struct rdma_pd *other_pd;
static struct rdma_mr *mrs[REGIONS];
static struct rdma_qp *qps[QPS];
static uint32_t psns[QPS]; /* PSN of the peer's next request */
static struct roce_path path;
static unsigned int split; /* bytes of a segment of the frames sent; 0: one segment */

static uint8_t
next(struct script *s)
{
	return s->at < s->size ? s->bytes[s->at++] : 0;
}

static uint8_t *
region(unsigned int i)
{
	return memory + (2 * i + 1) * REGION;
}

static void
check_memory(void)
{
	for (unsigned int i = 0; i < 2 * REGIONS + 1; i++) {
		const unsigned int r = i / 2;

		/* areas with even numbers are gaps between regions */
		if (i & 1 && r == REGION_ALL)
			continue;
		for (unsigned int b = 0; b < REGION; b++)
			if (memory[i * REGION + b] != CANARY) {
				fprintf(stderr, "block %u byte %u was written\n", i, b);
				abort();
			}
	}
}

static uint32_t
qpn_of(unsigned int i)
{
	struct rdma_qp_info info;

	rdma_qp_info_get(qps[i], &info);
	return info.qpn;
}

static void
check_message(const struct rdma_roce_message *message)
{
	const uint64_t first = (uintptr_t)region(REGION_NONE);
	const struct rte_mbuf *m;
	uint32_t bytes = 0, segments = 0;

	for (m = message->m; m; m = m->next, segments++) {
		bytes += m->data_len;
		for (unsigned int i = 0; i < m->data_len; i++)
			if (*rte_pktmbuf_mtod_offset(m, const uint8_t *, i) != PAYLOAD)
				abort();
		if (m->data_len == 0)
			abort();
	}
	if (bytes != message->length || bytes > REFERENCE_MAX)
		abort();
	if (message->m && (message->m->pkt_len != bytes || message->m->nb_segs != segments))
		abort();
	if (bytes && message->op == RDMA_WC_RECV_WRITE_IMM &&
		(message->addr < first || message->addr + bytes > first + REGION))
		abort();
	rte_pktmbuf_free(message->m);
}

static void
turn(void)
{
	struct rdma_roce_message message;
	struct rdma_wc wc[16];
	struct rte_mbuf *m;

	rig_run(1);
	while (rdma_poll_cq(rig[0].cq, wc, RTE_DIM(wc)))
		;
	while (rdma_roce_poll_messages(rig[0].dev, 0, &message, 1))
		check_message(&message);
	while ((m = rig_receive(1)))
		rte_pktmbuf_free(m);
	rig[0].taken = rig[0].nb_events = 0;
}

static void
connect_qps(void)
{
	static const enum rdma_qp_type types[QPS] = {
		[QP_UC] = RDMA_QP_UC, [QP_UD] = RDMA_QP_UD, [QP_REFERENCE] = RDMA_QP_UC};
	struct rdma_qp_peer peer = {.qpn = PEER_QPN,
		.psn = PSN,
		.local_psn = PSN,
		.mtu = MTU,
		.rd_atom = 2,
		.responder_rd_atom = 2};
	const struct rdma_roce_reference reference = {.base = (uintptr_t)region(REGION_NONE),
		.length = REGION,
		.rkey = rdma_mr_rkey(mrs[REGION_NONE]),
		.max_bytes = REFERENCE_MAX};

	memcpy(&peer.addr, rig_address(1, 0), sizeof(peer.addr));
	for (unsigned int i = 0; i < QPS; i++) {
		struct rdma_qp_attr attr = {.send_cq = rig[0].cq,
			.recv_cq = rig[0].cq,
			.type = types[i],
			.reference = i == QP_REFERENCE ? &reference : NULL,
			.receive_only = i == QP_REFERENCE,
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_rd_atom = 2,
			.retry_count = 2,
			.rnr_retry = 2};
		struct rdma_sge sge = {
			(uintptr_t)region(REGION_ALL), 600, rdma_mr_lkey(mrs[REGION_ALL])};
		struct rdma_recv_wr wr = {.sg = &sge, .nb_sge = 1};

		qps[i] = rdma_qp_create(rig[0].pd, &attr);
		/* the neighbor entry has become stale */
		if (qps[i] && i != QP_UD && rdma_qp_connect(qps[i], &peer) == -EAGAIN) {
			rig_known(1);
			turn();
		}
		if (!qps[i] || rdma_qp_connect(qps[i], i == QP_UD ? NULL : &peer) < 0)
			abort();
		psns[i] = PSN;
		for (unsigned int n = 0; n < 3 && i != QP_RC_EMPTY; n++)
			rdma_post_recv(qps[i], &wr, 1);
	}
}

/* Extended headers that the opcode requires; region, key and length are chosen by the script. */
static uint8_t *
extend(struct script *s, uint8_t opcode, uint8_t *b)
{
	const uint16_t flags = roce_opcodes[opcode].flags;
	uint8_t choice;

	if (flags & ROCE_F_DETH) {
		struct roce_deth deth = {.qkey = RTE_BE32(ROCE_RDMA_UDP_QKEY)};

		roce_put24(deth.qpn, PEER_QPN);
		if (next(s) == 1)
			deth.qkey++;
		memcpy(b, &deth, sizeof(deth));
		b += sizeof(deth);
	}
	if (flags & (ROCE_F_RETH | ROCE_F_ATOMICETH)) {
		uint32_t key, length;
		uint64_t va;

		choice = next(s);
		key = rdma_mr_rkey(mrs[choice % REGIONS]) + (choice >> 6 == 3);
		va = (uintptr_t)region(choice % REGIONS) + (choice & 4 ? REGION - next(s) : 0) -
			(choice & 8 ? next(s) : 0);
		if (flags & ROCE_F_ATOMICETH) {
			struct roce_atomiceth atomic = {.va = rte_cpu_to_be_64(va & ~7ULL),
				.rkey = rte_cpu_to_be_32(key),
				.swap_add = 1,
				.compare = 0};

			if (choice & 16)
				atomic.va |= RTE_BE64(1);
			memcpy(b, &atomic, sizeof(atomic));
			b += sizeof(atomic);
		} else {
			struct roce_reth reth = {
				.va = rte_cpu_to_be_64(va), .rkey = rte_cpu_to_be_32(key)};

			length = next(s) << (choice & 16 ? 4 : 0);
			reth.length =
				rte_cpu_to_be_32(choice & 32 ? length << 24 | length : length);
			memcpy(b, &reth, sizeof(reth));
			b += sizeof(reth);
		}
	}
	if (flags & ROCE_F_AETH) {
		b[0] = next(s);
		b[1] = b[2] = 0;
		b[3] = next(s);
		b += 4;
	}
	if (flags & ROCE_F_ATOMICACK)
		b += 8;
	if (flags & ROCE_F_IMM)
		b += 4;
	return b;
}

/* Send a frame in segments of `split` bytes. */
static void
send_frame(const uint8_t *frame, unsigned int length)
{
	struct rte_mbuf *whole = NULL, *m;
	unsigned int at = 0, n;

	do {
		m = rte_pktmbuf_alloc(rig_pool);
		if (!m)
			abort();
		n = split ? RTE_MIN(length - at, split) : length;
		memcpy(rte_pktmbuf_append(m, (uint16_t)n), frame + at, n);
		if (!whole)
			whole = m;
		else if (rte_pktmbuf_chain(whole, m) != 0)
			abort();
		at += n;
	} while (at < length);
	rig_send(1, whole);
}

static void
send_packet(struct script *s)
{
	uint8_t frame[ROCE_HEADER_MAX + 1200] = {0}, *b = frame + path.length, choice = next(s);
	const unsigned int qp = choice % QPS;
	const uint8_t opcode = next(s);
	struct roce_bth bth = {.opcode = opcode, .pkey = RTE_BE16(ROCE_PKEY)};
	unsigned int length = next(s), pad;
	const int8_t delta = (int8_t)next(s);
	uint32_t crc;

	/* middle packets of messages must have the full MTU */
	length = choice & 8 ? MTU : choice & 16 ? length * 4 : length;
	pad = -length & 3;
	bth.flags = (uint8_t)((choice & 32 ? next(s) : pad << 4) | ROCE_BTH_MIGREQ);
	bth.ack = ROCE_BTH_ACKREQ;
	roce_put24(bth.qpn, choice >> 6 == 3 ? next(s) : qpn_of(qp));
	roce_put24(bth.psn, roce_psn_add(psns[qp], (uint32_t)delta));
	if (!delta && !(roce_opcodes[opcode].flags & ROCE_F_RESPONSE))
		psns[qp] = roce_psn_add(psns[qp], 1);
	memcpy(b, &bth, sizeof(bth));
	b = extend(s, opcode, b + sizeof(bth));
	/* also the pad: the script may choose another pad count */
	memset(b, PAYLOAD, length + pad);
	b += length + pad;
	memcpy(frame, path.header, path.length);
	roce_path_finish(&path, frame, (uint16_t)(b + ROCE_ICRC_BYTES - frame - path.length));
	crc = roce_icrc_headers(frame + path.l2_len, path.l3_len,
		path.l3_len + ROCE_UDP_BYTES + (unsigned int)sizeof(bth));
	crc = roce_icrc_bytes(crc, frame + path.length + sizeof(bth),
		(size_t)(b - frame) - path.length - sizeof(bth));
	crc = rte_cpu_to_le_32(crc);
	memcpy(b, &crc, sizeof(crc));
	send_frame(frame, (unsigned int)(b + sizeof(crc) - frame));
}

/* The start of a valid frame, truncated, followed by arbitrary bytes. */
static void
send_bytes(struct script *s)
{
	uint8_t frame[256] = {0}, length = next(s), from = next(s);

	memcpy(frame, path.header, path.length);
	for (unsigned int i = from % path.length; i < length; i++)
		frame[i] = next(s);
	send_frame(frame, length);
}

static void
post(struct script *s)
{
	const uint8_t choice = next(s);
	const unsigned int qp = (choice & 7) % QPS;
	struct rdma_sge sge = {(uintptr_t)region(REGION_ALL),
		(uint32_t)next(s) << (choice >> 5 & 1) * 2, rdma_mr_lkey(mrs[REGION_ALL])};
	struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = next(s) % 7,
		.flags = RDMA_SEND_SIGNALED,
		.remote_addr = 4096,
		.rkey = 1};
	struct rdma_recv_wr recv = {.sg = &sge, .nb_sge = 1};

	if (choice & 16) {
		rdma_post_recv(qps[qp], &recv, 1);
		return;
	}
	if (wr.op == RDMA_OP_CMP_SWAP || wr.op == RDMA_OP_FETCH_ADD)
		sge.length = 8;
	if (qp == QP_UD)
		return; /* needs an address handle, which the control lcore creates */
	rdma_post_send(qps[qp], &wr, 1);
}

static void
play(struct script *s)
{
	while (s->at < s->size) {
		const uint8_t op = next(s);

		split = op & 16 ? 8 + next(s) : 0;
		if ((op & 7) < 5)
			send_packet(s);
		else if ((op & 7) == 5)
			send_bytes(s);
		else
			post(s);
		if (op & 8)
			turn();
	}
	turn();
}

/* A device lies in EAL's memory, where LeakSanitizer does not search for pointers. */
static void
open_device(void)
{
	const struct roce_path_attr attr = {.src_mac = {{0x52, 0x54, 0, 0, 0, 0x0b}},
		.dst_mac = {{0x52, 0x54, 0, 0, 0, 0x0a}},
		.src = roce_gid_v4(RTE_BE32(0x0a000002)),
		.dst = roce_gid_v4(RTE_BE32(0x0a000001)),
		.udp_src = 0xd872,
		.hop_limit = 64};
	static const uint32_t access[REGIONS] = {
		[REGION_ALL] = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
			RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC,
		[REGION_READ] = RDMA_ACCESS_REMOTE_READ,
		[REGION_OTHER] = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE |
			RDMA_ACCESS_REMOTE_READ | RDMA_ACCESS_REMOTE_ATOMIC,
	};

	__lsan_disable();
	rig_open(0, "ip=10.0.0.1/24,qps=32,mrs=16");
	__lsan_enable();
	rig_raw(1, "10.0.0.2");
	rig_known(1);
	rig_run(2);
	roce_path_make(&path, &attr);
	other_pd = rdma_pd_alloc(rig[0].dev);
	if (posix_memalign((void **)&memory, REGION, (2 * REGIONS + 1) * REGION) != 0)
		abort();
	memset(memory, CANARY, (2 * REGIONS + 1) * REGION);
	for (unsigned int i = 0; i < REGIONS; i++) {
		const struct rdma_mr_attr mr = {
			.addr = region(i), .length = REGION, .access = access[i], .gpu = -1};

		mrs[i] = rdma_mr_reg(i == REGION_OTHER ? other_pd : rig[0].pd, &mr);
		if (!mrs[i])
			abort();
	}
}

static void
close_device(void)
{
	for (unsigned int i = 0; i < REGIONS; i++)
		if (rdma_mr_dereg(mrs[i]) < 0)
			abort();
	rdma_pd_free(other_pd);
	rig_close();
	free(memory);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	/* choice, opcode, length, PSN; then the extended headers */
	static const uint8_t send[] = {8, 0, 0x04, 64, 0, 8, 8, 0x00, 0, 0, 8, 0, 0x02, 5, 0, 8, 2,
		0x24, 9, 0},
			     write[] = {8, 0, 0x0a, 40, 0, 0, 40, 8, 8, 0x06, 0, 0, 16, 17, 8, 8,
				     0x07, 0, 0, 8, 0, 0x08, 16, 0},
			     read[] = {8, 0, 0x0c, 0, 0, 16, 40, 8, 0, 0x13, 0, 0, 0, 8, 0, 0x14, 0,
				     0, 0},
			     response[] = {14, 0, 200, 4, 8, 0, 0x10, 200, 0, 0, 1, 14, 0, 8, 2, 8,
				     0, 0x11, 0, 1, 0, 2, 14, 0, 8, 0, 8, 0, 0x11, 0, 2, 0x60, 2},
			     datagram[] = {8, 3, 0x64, 30, 0, 0, 8, 3, 0x65, 30, 0, 1},
			     /* SEND of two packets; WRITE of three; SEND of split packets; event */
		reference[] = {8, 9, 0x20, 0, 0, 8, 4, 0x22, 7, 0, 8, 9, 0x26, 0, 0, 18, 36, 8, 9,
			0x27, 0, 0, 8, 4, 0x29, 64, 0, 24, 46, 9, 0x20, 0, 0, 24, 30, 4, 0x23, 9, 0,
			8, 4, 0x2b, 0, 0, 2, 0};
	uint8_t all[SCRIPT];
	size_t size = 0;

	rig_init((*argv)[0]);
	seed_begin(argc, argv);
	seed_add("send", send, sizeof(send));
	seed_add("write", write, sizeof(write));
	seed_add("read", read, sizeof(read));
	seed_add("response", response, sizeof(response));
	seed_add("datagram", datagram, sizeof(datagram));
	seed_add("reference", reference, sizeof(reference));
	/* all of them concatenated: with only short seeds libFuzzer avoids long inputs */
	memcpy(all + size, send, sizeof(send));
	size += sizeof(send);
	memcpy(all + size, write, sizeof(write));
	size += sizeof(write);
	memcpy(all + size, read, sizeof(read));
	size += sizeof(read);
	memcpy(all + size, response, sizeof(response));
	size += sizeof(response);
	memcpy(all + size, datagram, sizeof(datagram));
	size += sizeof(datagram);
	memcpy(all + size, reference, sizeof(reference));
	size += sizeof(reference);
	seed_add("all", all, size);
	open_device();
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = {.bytes = data, .size = RTE_MIN(size, (size_t)SCRIPT)};
	static unsigned int inputs;
	unsigned int held;

	/* numbers and keys are random, so a new device now and then suffices */
	if (++inputs % 1024 == 0) {
		close_device();
		open_device();
	}
	turn();
	held = rte_mempool_in_use_count(rig_pool);
	connect_qps();
	play(&s);
	for (unsigned int i = 0; i < QPS; i++)
		if (rdma_qp_destroy(qps[i]) < 0)
			abort();
	turn();
	check_memory();
	if (rte_mempool_in_use_count(rig_pool) != held) {
		fprintf(stderr, "%u mbufs in use, expected %u\n",
			rte_mempool_in_use_count(rig_pool), held);
		abort();
	}
	return 0;
}
