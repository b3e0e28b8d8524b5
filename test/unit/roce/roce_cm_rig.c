/* SPDX-License-Identifier: BSD-3-Clause */
#include "roce_cm_rig.h"

#include <time.h>

#include <ethdev_driver.h>
#include <pcap.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>

#include "net/arp.h"

#define RING  1024
#define HELD  1024
#define FRAME 2048

struct rig_station rig[RIG_STATIONS];
struct rig_wire rig_wire;
struct rte_mempool *rig_pool;

static uint64_t now_tsc;
static unsigned int generation;
static uint32_t random_state;
static struct {
	struct rte_mbuf *m;
	unsigned int to, steps;
} held[HELD];
static unsigned int nb_held;
static pcap_t *capture;
static pcap_dumper_t *capture_file;

static uint64_t
rig_clock(void)
{
	return now_tsc;
}

void
rig_seed(void)
{
	const char *given = getenv("ROCE_SEED");

	random_state = given ? strtoul(given, NULL, 0) : (uint32_t)time(NULL);
	print_message("ROCE_SEED=%u\n", random_state);
}

unsigned int
rig_random(unsigned int n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (uint64_t)random_state * n >> 32;
}

void
rig_init(char *program)
{
	char *eal[] = {program, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"256"}, (char[]){"--no-telemetry"},
		getenv("ROCE_DEBUG") ? (char[]){"--log-level=braggline.rdma:debug"}
				     : (char[]){"--log-level=braggline.rdma:emerg"}};

	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		exit(1);
	rig_pool = rte_pktmbuf_pool_create("rig", 2047, 0, 0, FRAME, SOCKET_ID_ANY);
	if (!rig_pool)
		exit(1);
	now_tsc = rte_get_tsc_hz();
	if (getenv("ROCE_PCAP")) {
		capture = pcap_open_dead(DLT_EN10MB, UINT16_MAX);
		capture_file = pcap_dump_open(capture, getenv("ROCE_PCAP"));
		if (!capture_file) {
			fprintf(stderr, "%s\n", pcap_geterr(capture));
			exit(1);
		}
	}
}

void
rig_exit(void)
{
	if (capture_file) {
		pcap_dump_close(capture_file);
		pcap_close(capture);
	}
	rte_mempool_free(rig_pool);
	rte_eal_cleanup();
}

static void
rig_rings(struct rig_station *st, unsigned int s)
{
	char name[RTE_RING_NAMESIZE];

	memset(st, 0, sizeof(*st));
	snprintf(name, sizeof(name), "rx%u_%u", s, generation);
	st->rx = rte_ring_create(name, RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	snprintf(name, sizeof(name), "tx%u_%u", s, generation);
	st->tx = rte_ring_create(name, RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	assert_true(st->rx && st->tx);
	st->mac = (struct rte_ether_addr){{0x52, 0x54, 0, 0, 0, 0x0a + s}};
}

void
rig_open(unsigned int s, const char *args)
{
	struct rig_station *st = &rig[s];
	char name[RDMA_NAME_MAX];
	int port;

	generation++;
	rig_rings(st, s);
	snprintf(name, sizeof(name), "rig%u_%u", s, generation);
	port = rte_eth_from_rings(name, &st->rx, 1, &st->tx, 1, SOCKET_ID_ANY);
	assert_true(port >= 0);
	st->port = port;
	rte_eth_devices[port].data->mac_addrs[0] = st->mac;
	snprintf(name, sizeof(name), "roce:port=%d,%s", port, args);
	st->dev = rdma_dev_open(name);
	assert_non_null(st->dev);
	roce_dev(st->dev)->control->clock = rig_clock;
	/* timers that were started with the real clock are restarted */
	roce_control_time(roce_dev(st->dev)->control);
	roce_wheel_init(&roce_dev(st->dev)->control->wheel, rte_get_tsc_hz() * 128, now_tsc);
	roce_dev(st->dev)->control->neighbors.announce.timer.tick = 0;
	roce_expiry_start(
		roce_dev(st->dev)->control, &roce_dev(st->dev)->control->neighbors.announce, 0);
	st->gid = roce_dev(st->dev)->has_ip4 ? roce_dev(st->dev)->ip4 : roce_dev(st->dev)->ip6;
	st->pd = rdma_pd_alloc(st->dev);
	st->cq = rdma_cq_create(st->dev, RIG_CQE, 0);
	assert_true(st->pd && st->cq);
}

void
rig_raw(unsigned int s, const char *ip)
{
	struct in_addr in;

	generation++;
	rig_rings(&rig[s], s);
	if (inet_pton(AF_INET, ip, &in) == 1)
		rig[s].gid = roce_gid_v4(in.s_addr);
	else
		assert_int_equal(inet_pton(AF_INET6, ip, rig[s].gid.raw), 1);
}

void
rig_close(void)
{
	struct rte_mbuf *m;

	for (unsigned int s = 0; s < RIG_STATIONS; s++) {
		struct rig_station *st = &rig[s];

		if (!st->rx)
			continue;
		if (st->dev) {
			assert_int_equal(rdma_cq_destroy(st->cq), 0);
			assert_int_equal(rdma_pd_free(st->pd), 0);
			assert_int_equal(rdma_dev_close(st->dev), 0);
			rte_eth_dev_close(st->port);
		}
	}
	while (nb_held)
		rte_pktmbuf_free(held[--nb_held].m);
	for (unsigned int s = 0; s < RIG_STATIONS; s++) {
		if (!rig[s].rx)
			continue;
		while (rte_ring_dequeue(rig[s].rx, (void **)&m) == 0)
			rte_pktmbuf_free(m);
		while (rte_ring_dequeue(rig[s].tx, (void **)&m) == 0)
			rte_pktmbuf_free(m);
		rte_ring_free(rig[s].rx);
		rte_ring_free(rig[s].tx);
		memset(&rig[s], 0, sizeof(rig[s]));
	}
	memset(&rig_wire, 0, sizeof(rig_wire));
	assert_int_equal(rte_mempool_in_use_count(rig_pool), 0);
}

uint64_t
rig_stat(unsigned int s, const char *name)
{
	struct rdma_xstat x[256];
	int n = rdma_xstats_get(rig[s].dev, x, RTE_DIM(x));

	assert_in_range(n, 1, RTE_DIM(x));
	while (n-- > 0)
		if (strcmp(x[n].name, name) == 0)
			return x[n].value;
	fail_msg("no counter %s", name);
	return 0;
}

struct rdma_qp *
rig_qp(unsigned int s, enum rdma_qp_type type)
{
	const struct rdma_qp_attr attr = {
		.type = type,
		.send_cq = rig[s].cq,
		.recv_cq = rig[s].cq,
		.retry_count = 7,
		.rnr_retry = 7,
	};
	struct rdma_qp *qp = rdma_qp_create(rig[s].pd, &attr);

	assert_non_null(qp);
	return qp;
}

struct sockaddr *
rig_address(unsigned int s, uint16_t port)
{
	static struct sockaddr_storage sa[RIG_STATIONS];

	roce_gid_to_sockaddr(&rig[s].gid, port, &sa[s]);
	return (struct sockaddr *)&sa[s];
}

/* ---- the wire -------------------------------------------------------------------------------- */

const uint8_t *
rig_mad(const struct rte_mbuf *m)
{
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const uint8_t *udp = frame + 14 + (frame[12] == 0x86 ? 40 : 20);

	if (m->data_len < udp + 20 + 8 + ROCE_MAD_BYTES - frame || frame[13] == 0x06 ||
		frame[frame[12] == 0x86 ? 20 : 23] != IPPROTO_UDP || udp[2] != 0x12 ||
		udp[3] != 0xb7 || udp[8] != 0x64 || udp[15] != 1)
		return NULL;
	return udp + 8 + 20;
}

static void
deliver(unsigned int to, struct rte_mbuf *m)
{
	if (rte_ring_enqueue(rig[to].rx, m) < 0)
		rte_pktmbuf_free(m);
}

static struct rte_mbuf *
copy(const struct rte_mbuf *m)
{
	struct rte_mbuf *c = rte_pktmbuf_copy(m, rig_pool, 0, UINT32_MAX);

	assert_non_null(c);
	return c;
}

static void
record(const struct rte_mbuf *m)
{
	const uint64_t hz = rte_get_tsc_hz();
	const struct pcap_pkthdr h = {
		.ts = {.tv_sec = now_tsc / hz, .tv_usec = now_tsc % hz * 1000000 / hz},
		.caplen = m->pkt_len,
		.len = m->pkt_len,
	};
	uint8_t frame[FRAME];

	assert_true(m->pkt_len <= sizeof(frame));
	pcap_dump((uint8_t *)capture_file, &h, rte_pktmbuf_read(m, 0, m->pkt_len, frame));
}

static void
carry(unsigned int to, struct rte_mbuf *m)
{
	const uint8_t *mad = rig_mad(m);
	const uint32_t bit = mad ? 1u << (mad[17] - ROCE_CM_REQ) : 0;

	if (capture_file)
		record(m);
	if (rig_wire.lose_next & bit) {
		rig_wire.lose_next &= ~bit;
		rig_wire.lost++;
		rte_pktmbuf_free(m);
		return;
	}
	if (rig_random(1000) < rig_wire.lose) {
		rig_wire.lost++;
		rte_pktmbuf_free(m);
		return;
	}
	if (rig_random(1000) < rig_wire.repeat && nb_held < HELD) {
		rig_wire.repeated++;
		held[nb_held].m = copy(m);
		held[nb_held].to = to;
		held[nb_held++].steps = 1 + rig_random(600);
	}
	if (rig_random(1000) < rig_wire.delay && nb_held < HELD) {
		rig_wire.delayed++;
		held[nb_held].m = m;
		held[nb_held].to = to;
		held[nb_held++].steps = 1 + rig_random(600);
		return;
	}
	deliver(to, m);
}

static void
step(unsigned int ms)
{
	struct rte_mbuf *m;
	unsigned int i;

	now_tsc += rte_get_tsc_hz() / 1000 * ms;
	for (i = 0; i < nb_held;)
		if (--held[i].steps == 0) {
			deliver(held[i].to, held[i].m);
			held[i] = held[--nb_held];
		} else {
			i++;
		}
	for (unsigned int turn = 0; turn < 2; turn++) {
		for (unsigned int s = 0; s < RIG_STATIONS; s++) {
			struct rig_station *st = &rig[s];

			if (!st->dev)
				continue;
			while (rdma_progress(st->dev, 0) > 0)
				;
			assert_true(st->nb_events < RIG_EVENTS);
			st->nb_events += rdma_poll_cm(
				st->dev, st->events + st->nb_events, RIG_EVENTS - st->nb_events);
			while (rdma_progress(st->dev, 0) > 0)
				;
			while (rig[!s].rx && rte_ring_dequeue(st->tx, (void **)&m) == 0)
				carry(!s, m);
		}
	}
}

void
rig_run(unsigned int ms)
{
	while (ms-- > 0)
		step(1);
}

void
rig_jump(unsigned int ms, unsigned int step_ms)
{
	for (unsigned int done = 0; done < ms; done += step_ms)
		step(step_ms);
}

bool
rig_has_event(unsigned int s)
{
	return rig[s].taken < rig[s].nb_events;
}

struct rdma_event *
rig_event(unsigned int s, enum rdma_event_type type, unsigned int ms)
{
	static struct rdma_event event[RIG_STATIONS];
	struct rig_station *st = &rig[s];

	while (!rig_has_event(s) && ms-- > 0)
		step(1);
	if (!rig_has_event(s))
		fail_msg("station %u: no event, expected %s", s, rdma_event_name(type));
	event[s] = st->events[st->taken++];
	if (st->taken == st->nb_events)
		st->taken = st->nb_events = 0;
	if (event[s].type != type)
		fail_msg("station %u: event %s, status %d, expected %s", s,
			rdma_event_name(event[s].type), event[s].status, rdma_event_name(type));
	return &event[s];
}

/* ---- a simulated station --------------------------------------------------------------------- */

struct rte_mbuf *
rig_receive(unsigned int s)
{
	struct rte_mbuf *m;

	return rte_ring_dequeue(rig[s].rx, (void **)&m) == 0 ? m : NULL;
}

bool
rig_receive_cm(unsigned int s, struct roce_cm_msg *msg, unsigned int ms)
{
	struct rte_mbuf *m;

	do {
		while ((m = rig_receive(s))) {
			const uint8_t *mad = rig_mad(m);
			const bool found = mad && roce_cm_decode(mad, msg) == 0;

			rte_pktmbuf_free(m);
			if (found)
				return true;
		}
		step(1);
	} while (ms-- > 0);
	return false;
}

void
rig_send(unsigned int s, struct rte_mbuf *m)
{
	deliver(!s, m);
}

void
rig_send_bytes(unsigned int s, const void *frame, unsigned int length)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(rig_pool);

	assert_non_null(m);
	memcpy(rte_pktmbuf_append(m, length), frame, length);
	rig_send(s, m);
}

void
rig_send_mad(unsigned int s, const uint8_t *mad, uint32_t qkey, uint32_t src_qpn)
{
	const struct roce_path_attr attr = {
		.src_mac = rig[s].mac,
		.dst_mac = rig[!s].mac,
		.src = rig[s].gid,
		.dst = rig[!s].gid,
		.udp_src = 0xd872,
		.hop_limit = 64,
	};
	struct roce_path path;
	struct rte_mbuf *m;

	roce_path_make(&path, &attr);
	m = roce_control_ud(
		roce_dev(rig[!s].dev), &path, ROCE_QPN_CM, src_qpn, qkey, 0, mad, ROCE_MAD_BYTES);
	assert_non_null(m);
	rig_send(s, m);
}

void
rig_send_cm(unsigned int s, const struct roce_cm_msg *msg)
{
	uint8_t mad[ROCE_MAD_BYTES];

	roce_cm_encode(msg, mad);
	rig_send_mad(s, mad, ROCE_QKEY_CM, ROCE_QPN_CM);
}

void
rig_known(unsigned int s)
{
	const struct roce_arp arp = {
		.op = ROCE_ARP_REQUEST,
		.sender_mac = rig[s].mac,
		.sender_ip = roce_gid_to_v4(&rig[s].gid),
		.target_ip = roce_gid_to_v4(&rig[!s].gid),
	};
	uint8_t frame[60] = {0};

	memset(frame, 0xff, 6);
	memcpy(frame + 6, &rig[s].mac, 6);
	frame[12] = 0x08;
	frame[13] = 0x06;
	roce_arp_encode(&arp, frame + 14);
	rig_send_bytes(s, frame, sizeof(frame));
	rig_run(2);
}
