/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: Ethernet ports. */

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_string_fns.h>

#include <rdma.h>
#include <rdma_roce.h>

#include "check/check.h"
#include "check/memory.h"
#include "check/port.h"
#include "ethdev_conf.h"
#include "ethdev_find.h"
#include "port/pools.h"
#include "port/port.h"
#include "port/steering.h"
#include "rx/messages.h"
#include "settings.h"

/** Time in 0.1 s that a link may need to come up after the cable is plugged in. */
#define LINK_TENTHS 20

/**
 * Bytes of preamble, start of frame delimiter, frame check sequence and gap per packet on the line.
 */
#define LINE_OVERHEAD 24

#define TRIAL_RING 64

bool
check_port_splits(const struct check_port *p)
{
	return p->settings->mode != RX_MODE_SINGLE && p->can_split;
}

bool
check_port_writes_gpu(const struct check_port *p, const struct check_gpu *gpu)
{
	return gpu->used && gpu->present && !gpu->is_virtual && p->present && !p->is_virtual &&
		!p->reference;
}

/** Return the size of a packet without the Ethernet header, as an MTU counts it. */
static uint32_t
packet_mtu(const struct settings *s)
{
	if (s->ingest.transport != INGEST_UDP)
		return s->ingest.mtu + RDMA_ROCE_OVERHEAD;
	return port_header_bytes(s) - RTE_ETHER_HDR_LEN + s->detector.ops->pixel_bytes;
}

/**
 * Count the queues that RX roles need with flow rules, and the packets of a frame on the busiest
 * one.
 */
static void
count_queues(struct check_port *p, const struct settings *s)
{
	uint32_t packets[FRAME_RX_MAX] = {0};

	for (uint32_t i = 0; i < p->settings->nb_streams; i++)
		packets[settings_stream_owner(s, p->settings->streams[i])] +=
			s->detector.stream_packets;
	for (uint32_t frx = 0; frx < FRAME_RX_MAX; frx++) {
		p->queues += packets[frx] > 0;
		p->burst = RTE_MAX(p->burst, packets[frx]);
	}
	/* RX roles hand RoCE packets to each other, but each needs a queue */
	if (p->settings->steering == RX_STEERING_SOFTWARE && p->settings->rdma[0] == '\0') {
		p->queues = 1;
		p->burst = p->settings->nb_streams * s->detector.stream_packets;
	}
}

void
check_find_port(struct check_port *p, const struct settings *s, uint32_t index)
{
	struct rte_eth_dev_info info;
	uint16_t id;

	*p = (struct check_port){.settings = &s->ports[index],
		.index = index,
		.node = -1,
		.pause = -ENOTSUP,
		.can_split = true,
		.reference = s->ports[index].payload == PAYLOAD_REFERENCE,
		.is_virtual = true};
	count_queues(p, s);
	if (p->settings->adapter) {
		rte_strscpy(p->name, p->settings->rdma, sizeof(p->name));
		return;
	}
	rte_strscpy(p->name, p->settings->device, sizeof(p->name));
	if (ethdev_find(p->name, &id) != 0 || rte_eth_dev_info_get(id, &info) != 0)
		return;
	p->present = true;
	rte_eth_dev_get_name_by_port(id, p->name);
	rte_strscpy(p->driver, info.driver_name != NULL ? info.driver_name : "unknown driver",
		sizeof(p->driver));
	p->is_virtual = !port_is_real(&info);
	if (!p->is_virtual) /* the name in sysfs, which may differ from the port's name */
		rte_strscpy(p->name, rte_dev_name(info.device), sizeof(p->name));
	p->replay = port_is_replay(&info);
	p->reference |= p->settings->payload == PAYLOAD_AUTO && p->replay;
	p->node = rte_eth_dev_socket_id(id);
	p->can_split = port_can_split(id, &info);
	p->max_queues = info.max_rx_queues;
	if (p->settings->rdma[0] != '\0' && p->settings->steering == RX_STEERING_SOFTWARE)
		p->max_queues = 1;
	p->ring_min = info.rx_desc_lim.nb_min;
	p->ring_max = info.rx_desc_lim.nb_max;
	p->max_mtu = ethdev_mtu_max(&info);
	p->checksums = port_checksums(&info);
}

/** Record the step that failed, and its error. */
static void
trial_failed(struct check_port *p, int error, const char *what)
{
	p->set_up = error != 0 ? error : -EIO;
	rte_strscpy(p->failed, what, sizeof(p->failed));
}

/** Validate the rule of a stream, with addresses if the port supports them. @return 0 or -errno */
static int
try_rule(struct check_port *p, const struct settings *s, uint16_t id, uint32_t stream,
	uint16_t queue, struct rte_flow_error *error)
{
	const struct source_filter *filter = &s->sources.filter[stream];
	struct port_rule rule;
	int ret;

	if (p->settings->rdma[0] != '\0') {
		if (!port_rule_init_roce(&rule, queue, filter))
			return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_UNSPECIFIED,
				NULL, "no [detector] source");
		return rte_flow_validate(id, &rule.attr, rule.pattern, rule.actions, error);
	}
	port_rule_init(&rule, s->udp_port + stream, queue, filter);
	p->flow_addresses &= rule.pattern[1].spec != NULL;
	ret = rte_flow_validate(id, &rule.attr, rule.pattern, rule.actions, error);
	if (ret == 0 || rule.pattern[1].spec == NULL)
		return ret;
	p->flow_addresses = false;
	port_rule_init(&rule, s->udp_port + stream, queue, NULL);
	return rte_flow_validate(id, &rule.attr, rule.pattern, rule.actions, error);
}

static void
try_rules(struct check_port *p, const struct settings *s, uint16_t id)
{
	p->flow = CHECK_FLOW_TAKEN;
	p->flow_addresses = true;
	for (uint32_t i = 0; i < p->settings->nb_streams; i++) {
		const uint32_t stream = p->settings->streams[i];
		struct rte_flow_error error = {0};
		const int ret =
			try_rule(p, s, id, stream, i * p->used / p->settings->nb_streams, &error);

		if (ret == 0)
			continue;
		p->flow = CHECK_FLOW_REFUSED;
		snprintf(p->flow_why, sizeof(p->flow_why), "%s %u: %s",
			p->settings->rdma[0] != '\0' ? "RoCE stream" : "UDP port",
			p->settings->rdma[0] != '\0' ? stream : s->udp_port + stream,
			error.message != NULL ? error.message : rte_strerror(-ret));
		return;
	}
}

static void
ask_started_port(struct check_port *p, const struct settings *s, uint16_t id)
{
	struct rte_eth_fc_conf pause = {0};
	struct rte_eth_link link = {0};
	uint16_t mtu = 0;
	int ret;

	if (p->settings->steering != RX_STEERING_SOFTWARE)
		try_rules(p, s, id);
	if (rte_eth_dev_get_mtu(id, &mtu) == 0)
		p->mtu = mtu;
	ret = rte_eth_dev_flow_ctrl_get(id, &pause);
	p->pause = ret == 0 ? (int)pause.mode : ret;
	for (int i = 0; i < LINK_TENTHS; i++) {
		if (rte_eth_link_get_nowait(id, &link) == 0 && link.link_status != 0)
			break;
		rte_delay_us_sleep(100000);
	}
	p->link_up = link.link_status != 0;
	p->mbps = link.link_speed;
}

/** Open the RoCE device of a started port, or an adapter, as a run does, and close it. */
static void
try_rdma(struct check_port *p, const struct settings *s, uint16_t id)
{
	char name[RDMA_NAME_MAX];
	struct rdma_dev_info info;
	const struct sockaddr_in *four = (const struct sockaddr_in *)&info.addr;
	struct rdma_dev *dev;

	rx_messages_name_device(p->settings, id, s->ingest.mtu, p->used, p->replay, name);
	dev = rdma_dev_open(name);
	p->rdma_tried = true;
	p->rdma = dev != NULL ? 0 : -rte_errno;
	if (dev == NULL)
		return;
	rdma_dev_info_get(dev, &info);
	if (info.addr.ss_family == AF_INET)
		p->address = rte_be_to_cpu_32(four->sin_addr.s_addr);
	rdma_dev_close(dev);
}

static int
try_queues(struct check_port *p, const struct settings *s, uint16_t id, struct rte_mempool *header,
	struct rte_mempool *payload, uint16_t ring)
{
	const bool split = header != NULL;
	uint64_t offloads =
		split ? RTE_ETH_RX_OFFLOAD_SCATTER | RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT : 0;
	struct rte_eth_conf conf;
	struct rte_eth_dev_info info;
	union rte_eth_rxseg segments[2] = {0};
	struct rte_eth_rxconf rx;
	int ret;

	ret = rte_eth_dev_info_get(id, &info);
	if (ret == 0) {
		offloads |= port_checksums(&info);
		conf = ethdev_conf(&info, p->settings->mtu);
		conf.rxmode.offloads = offloads;
		/* a RoCE device sends, too */
		if (p->settings->rdma[0] != '\0')
			conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
		ret = rte_eth_dev_configure(
			id, p->used, p->settings->rdma[0] != '\0' ? p->used : 0, &conf);
	}
	if (ret != 0) {
		trial_failed(p, ret, "configuring its RX queues");
		return ret;
	}
	rx = info.default_rxconf;
	rx.offloads = offloads;
	segments[0].split.mp = header;
	segments[0].split.length = port_header_bytes(s);
	segments[1].split.mp = payload;
	if (split) {
		rx.rx_seg = segments;
		rx.rx_nseg = 2;
	}
	for (uint32_t q = 0; q < p->used && ret == 0; q++)
		ret = rte_eth_rx_queue_setup(
			id, q, ring, rte_eth_dev_socket_id(id), &rx, split ? NULL : payload);
	for (uint32_t q = 0; p->settings->rdma[0] != '\0' && q < p->used && ret == 0; q++)
		ret = rte_eth_tx_queue_setup(id, q, ring, rte_eth_dev_socket_id(id), NULL);
	if (ret != 0) {
		trial_failed(p, ret,
			split ? "setting up an RX queue with split buffers"
			      : "setting up an RX queue");
		return ret;
	}
	ret = rte_eth_dev_start(id);
	if (ret != 0)
		trial_failed(p, ret, "starting");
	return ret;
}

void
check_try_port(struct check_port *p, const struct settings *s)
{
	const bool split = check_port_splits(p);
	struct rte_mempool *header = NULL, *payload;
	uint16_t id, ring = TRIAL_RING, none = 0;
	uint32_t n;

	if (p->settings->adapter) {
		try_rdma(p, s, 0);
		return;
	}
	if (!p->present || ethdev_find(p->settings->device, &id) != 0)
		return;
	p->used = p->queues > p->max_queues ? 1 : p->queues;
	rte_eth_dev_adjust_nb_rx_tx_desc(id, &ring, &none);
	n = p->used * ring * 2;
	payload = rte_pktmbuf_pool_create("check_payload", n, 0, 0,
		RTE_PKTMBUF_HEADROOM + port_element_bytes(s, false), rte_socket_id());
	if (split)
		header = rte_pktmbuf_pool_create("check_header", n, 0, 0,
			RTE_PKTMBUF_HEADROOM + RTE_ALIGN_CEIL(port_header_bytes(s), 64),
			rte_socket_id());
	if (payload == NULL || (split && header == NULL)) {
		trial_failed(p, -rte_errno, "creating a pool for the test");
	} else if (try_queues(p, s, id, header, payload, ring) == 0) {
		ask_started_port(p, s, id);
		if (p->settings->rdma[0] != '\0')
			try_rdma(p, s, id);
		rte_eth_dev_stop(id);
	}
	rte_eth_dev_close(id);
	rte_mempool_free(payload);
	rte_mempool_free(header);
}

/** Add a row for this port. */
static void add(struct check *c, const struct check_port *p, enum check_verdict verdict,
	const char *what, const char *value, ...) __attribute__((format(printf, 5, 6)));

static void
add(struct check *c, const struct check_port *p, enum check_verdict verdict, const char *what,
	const char *value, ...)
{
	char item[32], text[sizeof(c->rows[0].value)];
	va_list arguments;

	snprintf(item, sizeof(item), "port %u: %s", p->index, what);
	va_start(arguments, value);
	vsnprintf(text, sizeof(text), value, arguments);
	va_end(arguments);
	check_add(c, verdict, item, "%s", text);
}

static void
check_device(struct check *c, const struct check_port *p)
{
	char names[ETHDEV_NAMES_SIZE];

	if (!p->present) {
		add(c, p, CHECK_FAIL, "device", "no Ethernet device '%s'; EAL has %s",
			p->settings->device, ethdev_names(names));
		check_fix(c,
			"allow a NIC with -a (with the libraries of its driver installed), or "
			"create a virtual device with --vdev; then set [port %u] device",
			p->index);
	} else if (p->set_up != 0) {
		add(c, p, CHECK_FAIL, "device", "%s, %s: %s failed: %s", p->name, p->driver,
			p->failed, rte_strerror(-p->set_up));
		check_fix(c, "see the driver's messages above%s",
			strcmp(p->driver, "net_memif") != 0
				? ""
				: "; if the memif is a client, start the process with its server "
				  "first");
	} else if (strcmp(p->driver, "net_af_packet") == 0) {
		add(c, p, CHECK_WARN, "device",
			"%s, %s: packets that the kernel's ring drops are in no counter, and VLAN "
			"tags are not seen",
			p->name, p->driver);
		check_fix(c, "for tests only; a detector needs a NIC with a driver of DPDK");
	} else {
		add(c, p, CHECK_OK, "device", "%s, %s", p->name, p->driver);
	}
}

/** Add a row about the RoCE device of the port, or the adapter. */
static void
check_rdma(struct check *c, const struct settings *s, const struct check_port *p)
{
	if (!p->rdma_tried)
		return;
	if (p->rdma == 0) {
		add(c, p, CHECK_OK, "RoCE device", "%s, path MTU %u", p->settings->rdma,
			s->ingest.mtu);
		return;
	}
	add(c, p, CHECK_FAIL, "RoCE device", "%s: cannot open: %s", p->settings->rdma,
		rte_strerror(-p->rdma));
	check_fix(c, "see the messages of rdma above, and correct [port %u] device%s", p->index,
		p->settings->adapter ? "" : ", such as roce:port=NAME,ip=ADDRESS/BITS");
}

static void
check_link(struct check *c, const struct settings *s, const struct check_port *p)
{
	const uint64_t frame_bits = (uint64_t)p->settings->nb_streams * s->detector.stream_packets *
		(packet_mtu(s) + RTE_ETHER_HDR_LEN + LINE_OVERHEAD) * 8;

	if (p->replay) {
		add(c, p, CHECK_NA, "link", "a replay has no link");
	} else if (!p->link_up) {
		add(c, p, p->is_virtual ? CHECK_WARN : CHECK_FAIL, "link", "down");
		check_fix(c,
			"check the cable, the transceiver and the other end; ethtool INTERFACE "
			"shows the state");
	} else if (p->mbps == RTE_ETH_SPEED_NUM_UNKNOWN || p->is_virtual) {
		add(c, p, CHECK_OK, "link", "up");
	} else {
		add(c, p, CHECK_OK, "link", "up, %g Gb/s: carries its %u streams at %.0f frames/s",
			p->mbps / 1e3, p->settings->nb_streams, p->mbps * 1e6 / frame_bits);
	}
}

static void
check_mtu(struct check *c, const struct settings *s, const struct check_port *p)
{
	const uint32_t want = packet_mtu(s), asked = p->settings->mtu;
	const uint32_t most = p->max_mtu != 0 ? p->max_mtu : asked;
	const uint32_t have = p->mtu != 0 ? p->mtu : RTE_MIN(asked, most);

	if (p->replay) {
		add(c, p, CHECK_NA, "MTU", "a replay has no link");
	} else if (p->rdma_tried && p->rdma == 0) {
		/* a driver may report a lower one than it has, which the RoCE device knows */
		add(c, p, CHECK_OK, "MTU", "%u reported, accepted for a path MTU of %u", have,
			s->ingest.mtu);
	} else if (most < want) {
		add(c, p, CHECK_FAIL, "MTU", "%u at most, packets have %u", most, want);
		check_fix(
			c, "ip link set INTERFACE mtu 9000, larger driver buffers, or another NIC");
	} else if (have < want) {
		add(c, p, CHECK_FAIL, "MTU", "%u, packets have %u and would be dropped", have,
			want);
		check_fix(
			c, "[port %u] mtu = 9000; the same on every switch in the path", p->index);
	} else if (asked > most) {
		/* a run logs this and continues */
		add(c, p, CHECK_WARN, "MTU", "configured %u, the maximum of the port is %u", asked,
			most);
		check_fix(c, "[port %u] mtu = %u", p->index, most);
	} else {
		add(c, p, CHECK_OK, "MTU", "%u, packets have %u", have, want);
	}
}

static void
check_queues(struct check *c, const struct check_port *p)
{
	if (p->queues <= p->max_queues) {
		add(c, p, CHECK_OK, "RX queues", "%u of %u", p->queues, p->max_queues);
		return;
	}
	if (p->settings->rdma[0] != '\0') {
		add(c, p, CHECK_FAIL, "RX queues",
			"%u expected for RoCE, one per RX lcore; the port has %u%s", p->queues,
			p->max_queues,
			p->settings->steering == RX_STEERING_SOFTWARE ? " with steering = software"
								      : "");
		check_fix(c, PORT_ROCE_FIX);
		return;
	}
	add(c, p, p->settings->steering == RX_STEERING_FLOW ? CHECK_FAIL : CHECK_WARN, "RX queues",
		"%u expected, one per RX lcore; the port has %u", p->queues, p->max_queues);
	check_fix(c, "[lcores] rx_lcores = %u, or [port %u] steering = software", p->max_queues,
		p->index);
}

/** A NIC that splits packets uses a descriptor for each part of a packet (mlx5: mlx5_rxq_new()). */
static void
check_ring(struct check *c, const struct check_port *p)
{
	const uint32_t parts = check_port_splits(p) && !p->is_virtual ? 2 : 1;
	const uint32_t want = p->settings->descriptors;
	const uint32_t ring = p->ring_max != 0 ? RTE_MIN(want, p->ring_max) : want;
	const char *each = parts > 1 ? ", in two segments," : "";

	if (p->replay) {
		add(c, p, CHECK_NA, "RX descriptors",
			"%u; not important for a replay, which waits for the receiver", ring);
	} else if (ring < parts * p->burst) {
		add(c, p, CHECK_WARN, "RX descriptors",
			"%u per queue, a frame is a burst of %u packets%s", ring, p->burst,
			parts > 1 ? " in two segments" : "");
		if (p->ring_max != 0 && p->ring_max < parts * p->burst)
			check_fix(c,
				"the maximum of the port is %u: raise [lcores] rx_lcores, so "
				"that each queue serves fewer streams",
				p->ring_max);
		else
			check_fix(c, "[port %u] descriptors = %u", p->index,
				rte_align32pow2(parts * p->burst));
	} else if (want > ring || want < p->ring_min) {
		add(c, p, CHECK_WARN, "RX descriptors", "configured %u, the port supports %u to %u",
			want, p->ring_min, p->ring_max);
		check_fix(c, "[port %u] descriptors = %u", p->index,
			want > ring ? ring : p->ring_min);
	} else {
		add(c, p, CHECK_OK, "RX descriptors",
			"%u per queue hold the bursts of %u frames, %u packets%s each", ring,
			ring / (parts * p->burst), p->burst, each);
	}
}

static void
check_split(struct check *c, const struct check_port *p)
{
	static const char *const modes[] = {
		[RX_MODE_AUTO] = "auto", [RX_MODE_SPLIT] = "split", [RX_MODE_SINGLE] = "single"};
	const char *mode = modes[p->settings->mode];

	if (p->settings->mode == RX_MODE_SPLIT && !p->can_split) {
		add(c, p, CHECK_FAIL, "buffer split", "mode = split, but %s cannot split",
			p->driver);
		check_fix(c, "[port %u] mode = single, or auto", p->index);
	} else {
		add(c, p, CHECK_OK, "buffer split", "mode = %s: %s", mode,
			check_port_splits(p)   ? "headers in host memory, pixels separate"
				: p->can_split ? "whole packets"
					       : "whole packets, the port cannot split");
	}
}

static void
check_rules(struct check *c, const struct check_port *p)
{
	if (p->settings->rdma[0] != '\0' && (p->settings->adapter || p->queues == 1)) {
		add(c, p, CHECK_NA, "flow rules",
			p->settings->adapter ? "the adapter finds queue pairs itself"
					     : "RoCE, one RX role");
	} else if (p->flow == CHECK_FLOW_UNTRIED) {
		add(c, p, CHECK_NA, "flow rules", "steering = software");
	} else if (p->flow == CHECK_FLOW_TAKEN) {
		add(c, p, CHECK_OK, "flow rules", "%u created, one per stream%s",
			p->settings->nb_streams, p->flow_addresses ? ", with addresses" : "");
	} else if (p->settings->rdma[0] != '\0') {
		add(c, p, p->settings->steering == RX_STEERING_FLOW ? CHECK_FAIL : CHECK_WARN,
			"flow rules", "%s: RX lcores hand RoCE packets to each other", p->flow_why);
		check_fix(c, "set [detector] source, and use a NIC with rte_flow");
	} else if (p->settings->steering == RX_STEERING_FLOW) {
		add(c, p, CHECK_FAIL, "flow rules", "refused by the driver, %s", p->flow_why);
		check_fix(c, "[port %u] steering = software, or auto; mlx5: -a DEVICE,dv_flow_en=1",
			p->index);
	} else {
		add(c, p, p->queues > 1 ? CHECK_WARN : CHECK_OK, "flow rules",
			"refused by the driver, %s: one queue, packets are handed to the other "
			"RX lcores",
			p->flow_why);
		if (p->queues > 1)
			check_fix(c,
				"one RX lcore reads the whole port: stay below the limit of one "
				"lcore, or use a NIC with rte_flow");
	}
}

/** Return true if [detector] source names another address than that of the multicast streams. */
static bool
is_other_sender(const struct settings *s, const struct check_port *p)
{
	struct rte_ipv4_hdr ip, mask;

	source_filter_ipv4(&s->sources.filter[p->settings->streams[0]], &ip, &mask);
	return mask.src_addr != 0 &&
		((ip.src_addr ^ rte_cpu_to_be_32(s->ingest.sender)) & mask.src_addr) != 0;
}

/** Check the sources that may send to this port's streams; see source_settings.h. */
static void
check_sources(struct check *c, const struct settings *s, const struct check_port *p)
{
	const struct source_settings *set = &s->sources;
	const uint64_t ip = s->detector.streams > 0
		? set->filter[p->settings->streams[0]].mask[SOURCE_WORD_IP]
		: 0;

	if (p->replay) {
		add(c, p, CHECK_NA, "sources", "a replay accepts all sources of its capture");
	} else if (s->ingest.transport == INGEST_MULTICAST && p->address == s->ingest.sender) {
		add(c, p, CHECK_FAIL, "sources", "[ingest] sender is the address of this port");
		check_fix(c, "[ingest] sender = ADDRESS of the detector");
	} else if (s->ingest.transport == INGEST_MULTICAST && is_other_sender(s, p)) {
		add(c, p, CHECK_WARN, "sources",
			"[detector] source is not [ingest] sender, which alone is used");
		check_fix(c, "set only [ingest] sender");
	} else if (s->ingest.transport == INGEST_MULTICAST) {
		add(c, p, CHECK_OK, "sources", "[ingest] sender");
	} else if (set->source && !set->any && ip != 0) {
		add(c, p, CHECK_OK, "sources", "as configured");
	} else {
		add(c, p, CHECK_WARN, "sources",
			set->source ? "any: every sender that reaches the port can replace pixels"
				    : "not configured: the first sender is taken as the detector");
		check_fix(c, "[detector] source = ADDRESS, one per stream");
	}
	if (p->replay) {
		add(c, p, CHECK_NA, "destination",
			"a replay accepts all destinations of its capture");
	} else if (set->destination) {
		add(c, p, CHECK_OK, "destination", "as configured");
	} else {
		add(c, p, CHECK_WARN, "destination",
			set->source ? "not checked" : "not configured: learnt with the source");
		check_fix(c, "[detector] destination = the ADDRESS that the detector sends to");
	}
	if (p->checksums & RTE_ETH_RX_OFFLOAD_IPV4_CKSUM)
		add(c, p, CHECK_OK, "checksums", "by the port: IPv4%s",
			p->checksums & RTE_ETH_RX_OFFLOAD_UDP_CKSUM ? ", UDP" : "");
	else
		add(c, p, CHECK_NA, "checksums",
			"none by the port: the RX role checks IPv4, UDP is not checked");
}

static void
check_pause(struct check *c, const struct check_port *p)
{
	static const char *const modes[] = {[RTE_ETH_FC_NONE] = "off",
		[RTE_ETH_FC_RX_PAUSE] = "received only",
		[RTE_ETH_FC_TX_PAUSE] = "sent",
		[RTE_ETH_FC_FULL] = "sent and received"};

	if (p->is_virtual) {
		add(c, p, CHECK_NA, "pause frames", "a virtual device");
	} else if (p->pause < 0) {
		add(c, p, CHECK_NA, "pause frames", "not reported by the driver: %s",
			rte_strerror(-p->pause));
	} else if (p->pause == RTE_ETH_FC_TX_PAUSE || p->pause == RTE_ETH_FC_FULL) {
		add(c, p, CHECK_OK, "pause frames", "%s", modes[p->pause]);
	} else {
		add(c, p, CHECK_WARN, "pause frames",
			"%s (priority flow control cannot be detected here): packets that the "
			"full RX ring cannot take are lost",
			p->pause < (int)RTE_DIM(modes) ? modes[p->pause] : "unknown");
		check_fix(c,
			"ethtool -A INTERFACE tx on, and enable flow control in the switch and "
			"the detector");
	}
}

/** A NIC does not wait: its descriptor rings overflow, and every frame in them is incomplete. */
static void
check_backpressure(struct check *c, const struct settings *s, const struct check_port *p)
{
	if (s->backpressure != BACKPRESSURE_WAIT || p->replay)
		return;
	add(c, p, CHECK_WARN, "backpressure",
		"wait, which works for a replay only: when no frame slot is free, packets of all "
		"frames are lost");
	check_fix(c, "[frames] backpressure = refuse, or auto: then whole frames are refused");
}

static void
check_pools(struct check *c, const struct settings *s, const struct check_port *p)
{
	const struct port_demand demand = port_demand_of(s);
	const struct port_mbufs n = port_count_mbufs(p->queues, p->settings->descriptors, &demand);
	const bool split = check_port_splits(p);
	char bytes[16];

	check_print_bytes((uint64_t)n.payload * port_element_bytes(s, split), bytes);
	add(c, p, CHECK_OK, "pools",
		"%u mbufs = %u RX descriptors + %u in frame slots + %u in caches + %u in bursts "
		"and handoff rings + %u held until the window moves; %s%s",
		n.payload, n.rings, n.frames, n.caches, n.bursts, n.held,
		p->reference ? "payload by reference" : bytes, p->reference ? "" : " of payload");
}

void
check_port(struct check *c, const struct settings *s, const struct check_port *p)
{
	/* an adapter uses neither queues nor pools of the receiver */
	if (p->settings->adapter) {
		check_rdma(c, s, p);
		return;
	}
	check_device(c, p);
	check_rdma(c, s, p);
	check_pools(c, s, p);
	if (!p->present)
		return;
	check_queues(c, p);
	check_ring(c, p);
	check_backpressure(c, s, p);
	check_split(c, p);
	check_sources(c, s, p);
	check_mtu(c, s, p);
	if (p->set_up != 0)
		return;
	check_rules(c, p);
	check_link(c, s, p);
	check_pause(c, p);
}
