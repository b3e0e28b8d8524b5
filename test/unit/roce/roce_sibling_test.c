/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several devices on one port: each gets its own packets, by flow rules of the port or from the
 * other devices.
 */
#include <errno.h>
#include <netinet/in.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_flow_driver.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "net/arp.h"
#include "port/ctl_plane.h"
#include "engine/icrc.h"
#include "engine/engine.h"
#include "net/nd.h"
#include "roce_shared_rig.h"

#define NO_QUEUE 99
#define RULES	 16

/* ---- a port with rte_flow -------------------------------------------------------------------- */

struct rte_flow {
	struct layer {
		enum rte_flow_item_type type;
		uint8_t spec[40], mask[40]; /* bytes of a header */
	} layer[4];
	unsigned int nb_layers;
	uint16_t queue[8];
	unsigned int nb_queues;
	bool used;
};

static struct flows {
	struct rte_flow rule[RULES];
	unsigned int asked;
	/* refusals: all rules, in validate or in create; RSS rules */
	bool no_validate, no_create, no_rss;
	uint16_t otherwise; /* queue of packets that match no rule */
} flows;

static unsigned int
header_bytes(enum rte_flow_item_type type)
{
	switch (type) {
	case RTE_FLOW_ITEM_TYPE_ETH:
		return sizeof(struct rte_ether_hdr);
	case RTE_FLOW_ITEM_TYPE_VLAN:
		return sizeof(struct rte_vlan_hdr);
	case RTE_FLOW_ITEM_TYPE_IPV4:
		return sizeof(struct rte_ipv4_hdr);
	case RTE_FLOW_ITEM_TYPE_IPV6:
		return sizeof(struct rte_ipv6_hdr);
	case RTE_FLOW_ITEM_TYPE_UDP:
		return sizeof(struct rte_udp_hdr);
	case RTE_FLOW_ITEM_TYPE_ARP_ETH_IPV4:
		return ROCE_ARP_BYTES;
	default:
		fail_msg("item %u", type);
		return 0;
	}
}

static int
take_rule(struct rte_flow *rule, const struct rte_flow_attr *attr, const struct rte_flow_item *item,
	const struct rte_flow_action *action)
{
	memset(rule, 0, sizeof(*rule));
	assert_true(attr->ingress && !attr->egress && !attr->transfer);
	for (; item->type != RTE_FLOW_ITEM_TYPE_END; item++) {
		struct layer *l = &rule->layer[rule->nb_layers++];

		assert_in_range(rule->nb_layers, 1, RTE_DIM(rule->layer));
		l->type = item->type;
		if (!item->spec)
			continue;
		if (item->type == RTE_FLOW_ITEM_TYPE_ARP_ETH_IPV4) {
			/* the only field that is not in wire format */
			const struct rte_flow_item_arp_eth_ipv4 *spec = item->spec,
								*mask = item->mask;

			memcpy(l->spec + ROCE_ARP_BYTES - 4, &spec->tpa, 4);
			memcpy(l->mask + ROCE_ARP_BYTES - 4, &mask->tpa, 4);
			continue;
		}
		memcpy(l->spec, item->spec, header_bytes(item->type));
		memcpy(l->mask, item->mask, header_bytes(item->type));
	}
	if (action->type == RTE_FLOW_ACTION_TYPE_RSS) {
		const struct rte_flow_action_rss *rss = action->conf;

		if (flows.no_rss)
			return -ENOTSUP;
		assert_in_range(rss->queue_num, 2, RTE_DIM(rule->queue));
		memcpy(rule->queue, rss->queue, rss->queue_num * sizeof(rss->queue[0]));
		rule->nb_queues = rss->queue_num;
	} else {
		assert_int_equal(action->type, RTE_FLOW_ACTION_TYPE_QUEUE);
		rule->queue[0] = ((const struct rte_flow_action_queue *)action->conf)->index;
		rule->nb_queues = 1;
	}
	assert_int_equal(action[1].type, RTE_FLOW_ACTION_TYPE_END);
	return 0;
}

static int
validate(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
	struct rte_flow_error *error)
{
	struct rte_flow rule;
	int ret = flows.no_validate ? -ENOTSUP : take_rule(&rule, attr, pattern, actions);

	flows.asked++;
	return ret < 0 ? rte_flow_error_set(error, -ret, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
				 "no such rules")
		       : 0;
}

static struct rte_flow *
create(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
	struct rte_flow_error *error)
{
	unsigned int i = 0;

	if (flows.no_create) {
		rte_flow_error_set(error, ENOSPC, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL, "no room");
		return NULL;
	}
	while (flows.rule[i].used)
		i++;
	assert_in_range(i, 0, RULES - 1);
	assert_int_equal(take_rule(&flows.rule[i], attr, pattern, actions), 0);
	flows.rule[i].used = true;
	return &flows.rule[i];
}

static int
destroy(struct rte_eth_dev *dev, struct rte_flow *rule, struct rte_flow_error *error)
{
	assert_true(rule->used);
	assert_true(dev->data->dev_started);
	rule->used = false;
	return 0;
}

static int
flow_ops(struct rte_eth_dev *dev, const struct rte_flow_ops **ops)
{
	static const struct rte_flow_ops all = {
		.validate = validate, .create = create, .destroy = destroy};

	*ops = &all;
	return 0;
}

/* @param rules does the port support rules? */
static void
flow_port_make(bool rules)
{
	port_make(true);
	memset(&flows, 0, sizeof(flows));
	flows.otherwise = NO_QUEUE;
	if (rules)
		nic.ops.flow_ops_get = flow_ops;
}

/* Number of rules for a queue, of rules with that many queues; NO_QUEUE: of all rules. */
static unsigned int
rules_for(uint16_t queue, unsigned int nb_queues)
{
	unsigned int i, n = 0;

	for (i = 0; i < RULES; i++)
		n += flows.rule[i].used &&
			(queue == NO_QUEUE ||
				(flows.rule[i].queue[0] == queue &&
					flows.rule[i].nb_queues == nb_queues));
	return n;
}

/* ---- frames ---------------------------------------------------------------------------------- */

struct frame {
	uint8_t bytes[192];
	unsigned int length;
};

static void
add(struct frame *f, const void *bytes, unsigned int length)
{
	memcpy(f->bytes + f->length, bytes, length);
	f->length += length;
}

static struct frame
ether(uint16_t vlan, uint16_t type)
{
	const struct rte_ether_hdr eth = {.src_addr = {{2, 0, 0, 0, 0, 99}},
		.ether_type = rte_cpu_to_be_16(vlan ? RTE_ETHER_TYPE_VLAN : type)};
	const struct rte_vlan_hdr tag = {rte_cpu_to_be_16(vlan), rte_cpu_to_be_16(type)};
	struct frame f = {.length = 0};

	add(&f, &eth, sizeof(eth));
	if (vlan)
		add(&f, &tag, sizeof(tag));
	return f;
}

/* ARP request for 10.0.0.`host` */
static struct frame
arp(uint16_t vlan, unsigned int host)
{
	const struct roce_arp question = {
		.op = ROCE_ARP_REQUEST,
		.sender_mac = {{2, 0, 0, 0, 0, 99}},
		.sender_ip = RTE_BE32(RTE_IPV4(10, 0, 0, 99)),
		.target_ip = rte_cpu_to_be_32(RTE_IPV4(10, 0, 0, host)),
	};
	struct frame f = ether(vlan, RTE_ETHER_TYPE_ARP);

	roce_arp_encode(&question, f.bytes + f.length);
	f.length += ROCE_ARP_BYTES;
	return f;
}

/* Payload after an IP header that is complete except for its length. */
static struct frame
ip(uint16_t vlan, const struct roce_ip *header, const void *payload)
{
	struct frame f = ether(
		vlan, roce_gid_is_v4(&header->dst) ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6);

	f.length += roce_ip_encode(header, f.bytes + f.length);
	add(&f, payload, header->payload_len);
	return f;
}

/* The address of station `host` - 1. */
static struct roce_gid
address(bool v4, unsigned int host)
{
	if (v4)
		return roce_gid_v4(rte_cpu_to_be_32(RTE_IPV4(10, 0, 0, host)));
	return (struct roce_gid){{0xfd, [15] = host}};
}

/* To a queue pair that does not exist, or to a group; the ICRC is wrong. */
static struct frame
roce(uint16_t vlan, const struct roce_gid *dst)
{
	const bool group = roce_gid_is_multicast(dst);
	struct {
		struct rte_udp_hdr udp;
		struct roce_bth bth;
		uint8_t deth[8], icrc[4];
	} p = {.udp = {.dst_port = RTE_BE16(ROCE_UDP_PORT), .dgram_len = RTE_BE16(sizeof(p))}};
	const struct roce_ip header = {.src = address(roce_gid_is_v4(dst), 99),
		.dst = *dst,
		.proto = IPPROTO_UDP,
		.hop_limit = 64,
		.payload_len = sizeof(p)};

	p.bth.opcode = ROCE_UD + ROCE_SEND_ONLY;
	p.bth.pkey = RTE_BE16(0xffff);
	roce_put24(p.bth.qpn, group ? ROCE_QPN_MULTICAST : 0x123456);
	return ip(vlan, &header, &p);
}

static struct frame
roce_to(bool v4, unsigned int host)
{
	const struct roce_gid dst = address(v4, host);

	return roce(0, &dst);
}

/* To 239.1.2.3, from a sender with a wrong Q_Key; the ICRC is right. */
static struct frame
roce_to_group(void)
{
	const struct roce_gid group = roce_gid_v4(RTE_BE32(RTE_IPV4(239u, 1, 2, 3)));
	struct frame f = roce(0, &group);
	const unsigned int at = f.length - ROCE_ICRC_BYTES;
	const rte_le32_t crc = rte_cpu_to_le_32(roce_icrc_headers(f.bytes + 14, 20, at - 14));

	memcpy(f.bytes + at, &crc, sizeof(crc));
	return f;
}

/* Neighbor solicitation for fd00::`host` */
static struct frame
solicit(unsigned int host)
{
	const struct roce_nd nd = {.type = ROCE_ND_SOLICIT,
		.target = address(false, host),
		.has_mac = true,
		.mac = {{2, 0, 0, 0, 0, 99}}};
	struct roce_ip header = {.src = address(false, 99),
		.dst = roce_nd_group(&nd.target),
		.proto = IPPROTO_ICMPV6,
		.hop_limit = 255};
	uint8_t payload[64];

	roce_nd_encode(&nd, &header, payload);
	return ip(0, &header, payload);
}

static bool
matches(const struct rte_flow *rule, const struct frame *f)
{
	static const uint16_t type_of[RTE_FLOW_ITEM_TYPE_ARP_ETH_IPV4 + 1] = {
		[RTE_FLOW_ITEM_TYPE_IPV4] = RTE_ETHER_TYPE_IPV4,
		[RTE_FLOW_ITEM_TYPE_IPV6] = RTE_ETHER_TYPE_IPV6,
		[RTE_FLOW_ITEM_TYPE_VLAN] = RTE_ETHER_TYPE_VLAN,
		[RTE_FLOW_ITEM_TYPE_ARP_ETH_IPV4] = RTE_ETHER_TYPE_ARP,
	};
	const uint8_t *at = f->bytes;
	unsigned int i, n, bytes;
	uint16_t type;

	for (n = 0; n < rule->nb_layers; n++) {
		const struct layer *l = &rule->layer[n];

		type = type_of[l->type];
		if (type && (at[-2] << 8 | at[-1]) != type)
			return false;
		bytes = header_bytes(l->type);
		for (i = 0; i < bytes; i++)
			if ((at[i] ^ l->spec[i]) & l->mask[i])
				return false;
		at += bytes;
	}
	return true;
}

/*
 * The port receives a frame.
 * @return the queue that got it; NO_QUEUE: none
 */
static uint16_t
receive(struct frame f)
{
	uint16_t queue = flows.otherwise;
	struct rte_mbuf *m;
	unsigned int i;

	for (i = 0; i < RULES; i++)
		if (flows.rule[i].used && matches(&flows.rule[i], &f))
			queue = flows.rule[i].queue[0];
	if (queue == NO_QUEUE)
		return queue;
	m = rte_pktmbuf_alloc(nic.pool);
	assert_non_null(m);
	memcpy(rte_pktmbuf_append(m, f.length), f.bytes, f.length);
	assert_int_equal(rte_ring_enqueue(nic.rx[queue], m), 0);
	return queue;
}

/* Poll devices until a frame has been passed to its device, and back if that is wrong. */
static void
work(void)
{
	struct rdma_event event;
	unsigned int i, q;

	for (i = 0; i < 2; i++)
		for (q = 0; q < QUEUES; q++)
			if (station[q].dev) {
				rdma_progress(station[q].dev, 0);
				rdma_poll_cm(station[q].dev, &event, 1);
				drain(nic.tx[q]);
			}
}

static void
assert_stat(unsigned int queue, const char *name, uint64_t wanted)
{
	const uint64_t found = station_stat(queue, name);

	if (found != wanted)
		fail_msg("queue %u: %s is %lu, expected %lu", queue, name, (unsigned long)found,
			(unsigned long)wanted);
}

/* All frames of the port are back in their pool. */
static void
assert_no_frame_lost(void)
{
	for (unsigned int q = 0; q < QUEUES; q++) {
		drain(nic.rx[q]);
		drain(nic.tx[q]);
	}
	assert_true(rte_mempool_full(nic.pool));
}

/* ---- by flow rules of the port --------------------------------------------------------------- */

static void
test_rules(void **state)
{
	flow_port_make(true);
	station_open(0, "10.0.0.");
	station_open(1, "10.0.0.");
	assert_int_equal(rules_for(0, 1), 3);
	assert_int_equal(rules_for(1, 1), 3);
	assert_int_equal(receive(roce_to(true, 1)), 0);
	assert_int_equal(receive(roce_to(true, 2)), 1);
	assert_int_equal(receive(arp(0, 1)), 0);
	assert_int_equal(receive(arp(0, 2)), 1);
	/* packets of no device stay where they were */
	assert_int_equal(receive(roce_to(true, 3)), NO_QUEUE);
	assert_int_equal(receive(arp(0, 3)), NO_QUEUE);
	assert_int_equal(receive(solicit(1)), NO_QUEUE);
	work();
	for (unsigned int q = 0; q < 2; q++) {
		assert_stat(q, "rx_packets", 2);
		assert_stat(q, "rx_unknown_qpn", 1);
		/*
		 * including ARP for the other device, because its sender may have a new MAC address
		 */
		assert_stat(q, "arp_rx", 2);
		assert_stat(q, "rx_not_for_us", 0);
	}
	station_close(0);
	assert_int_equal(rules_for(NO_QUEUE, 0), 3);
	assert_int_equal(receive(roce_to(true, 2)), 1);
	station_close(1);
	assert_int_equal(rules_for(NO_QUEUE, 0), 0);
	assert_no_frame_lost();
	port_free();
}

static void
test_rules_of_ip6(void **state)
{
	flow_port_make(true);
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	assert_int_equal(rules_for(NO_QUEUE, 0), 6);
	for (unsigned int q = 0; q < 2; q++) {
		assert_int_equal(receive(roce_to(false, q + 1)), q);
		assert_int_equal(receive(solicit(q + 1)), q);
	}
	assert_int_equal(receive(roce_to(false, 3)), NO_QUEUE);
	work();
	for (unsigned int q = 0; q < 2; q++) {
		assert_stat(q, "rx_unknown_qpn", 1);
		assert_in_range(station_stat(q, "nd_tx"), 1, 2);
		assert_stat(q, "rx_to_other_device", 1);
	}
	station_close(1);
	station_close(0);
	assert_int_equal(rules_for(NO_QUEUE, 0), 0);
	port_free();
}

/* Rules for the queues of all poll groups; only for the first one if the port supports no more. */
static void
test_rules_of_poll_groups(void **state)
{
	flow_port_make(true);
	station_open_as(2, "10.0.0.", ",poll_groups=2");
	assert_int_equal(rules_for(2, 2), 1);
	assert_int_equal(rules_for(2, 1), 2);
	station_close(2);
	flows.no_rss = true;
	station_open_as(2, "10.0.0.", ",poll_groups=2");
	assert_int_equal(rules_for(2, 1), 3);
	station_close(2);
	flows.no_rss = false;
	station_open_as(2, "10.0.0.", ",poll_groups=2,handover=1");
	assert_int_equal(rules_for(2, 1), 3);
	station_close(2);
	assert_int_equal(rules_for(NO_QUEUE, 0), 0);
	port_free();
}

static void
test_no_rules_requested(void **state)
{
	flow_port_make(true);
	station_open_as(1, "10.0.0.", ",steer=no");
	station_open_as(2, "10.0.0.", ",poll=0");
	station_close(1);
	station_close(2);
	/* all queues belong to this device */
	station_open_as(0, "10.0.0.", ",poll_groups=5");
	station_close(0);
	assert_int_equal(flows.asked, 0);
	station_open_as(0, "10.0.0.", ",steer=auto");
	assert_int_equal(flows.asked, 3);
	station_close(0);
	assert_null(rdma_dev_open("roce:port=0,ip=10.0.0.1/24,steer=maybe"));
	port_free();
}

/* No rule is created at a port that got the number of a removed one. */
static void
test_rules_of_another(void **state)
{
	struct rte_ring *rx[QUEUES], *tx[QUEUES];
	struct station left;

	flow_port_make(true);
	station_open(0, "10.0.0.");
	left = station[0];
	memcpy(rx, nic.rx, sizeof(rx));
	memcpy(tx, nic.tx, sizeof(tx));
	assert_int_equal(rte_eth_dev_stop(nic.id), 0);
	assert_int_equal(rte_eth_dev_close(nic.id), 0);
	flow_port_make(true);
	station_open(0, "10.0.0.");
	station[1] = left;
	station_close(1);
	assert_int_equal(rules_for(0, 1), 3);
	station_close(0);
	port_free();
	rings_free(rx, tx);
}

/* ---- from the other devices ------------------------------------------------------------------ */

/* Frames that arrive at a queue of any device, with any restrictions of the port. */
static void
test_forwarded(void **state)
{
	for (unsigned int way = 0; way < 4; way++) {
		flow_port_make(way != 0);
		flows.no_validate = way == 1;
		flows.no_create = way == 2;
		station_open_as(0, "10.0.0.", way == 3 ? ",steer=no" : "");
		station_open_as(1, "10.0.0.", way == 3 ? ",steer=no" : "");
		assert_int_equal(rules_for(NO_QUEUE, 0), 0);
		for (unsigned int q = 0; q < 2; q++) {
			flows.otherwise = q;
			for (unsigned int host = 1; host <= 3; host++) {
				receive(roce_to(true, host));
				receive(arp(0, host));
			}
		}
		work();
		for (unsigned int q = 0; q < 2; q++) {
			assert_stat(q, "rx_packets", 6);
			assert_stat(q, "rx_unknown_qpn", 2);
			assert_stat(q, "rx_not_for_us", 1);
			assert_stat(q, "arp_rx", 6);
			assert_stat(q, "rx_to_other_device", 4);
			assert_stat(q, "rx_from_other_device", 4);
			assert_stat(q, "rx_other_device_ring_full", 0);
		}
		station_close(0);
		/* the device that it is for is closed */
		receive(roce_to(true, 1));
		work();
		assert_stat(1, "rx_not_for_us", 2);
		assert_stat(1, "rx_to_other_device", 4);
		station_close(1);
		assert_no_frame_lost();
		port_free();
	}
}

/* Neighbor solicitations are sent to a multicast group. */
static void
test_given_ip6(void **state)
{
	flow_port_make(false);
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	flows.otherwise = 0;
	receive(roce_to(false, 2));
	receive(solicit(2));
	work();
	assert_stat(1, "rx_unknown_qpn", 1);
	assert_stat(1, "nd_rx", 1);
	assert_stat(0, "nd_rx", 1);
	station_close(0);
	station_close(1);
	assert_no_frame_lost();
	port_free();
}

/* One device is in a VLAN. */
static void
test_vlan(void **state)
{
	const struct roce_gid second = address(true, 2);

	for (unsigned int rules = 0; rules < 2; rules++) {
		flow_port_make(rules);
		station_open(0, "10.0.0.");
		station_open_as(1, "10.0.0.", ",vlan=5");
		flows.otherwise = 0;
		assert_int_equal(receive(roce(5, &second)), rules);
		assert_int_equal(receive(arp(5, 2)), rules);
		assert_int_equal(receive(roce(0, &second)), 0);
		assert_int_equal(receive(roce(6, &second)), 0);
		assert_int_equal(receive(arp(6, 2)), 0);
		work();
		assert_stat(1, "rx_unknown_qpn", 1);
		assert_stat(1, "arp_rx", 1);
		assert_stat(1, "rx_other_vlan", 0);
		assert_stat(0, "rx_not_for_us", 1);
		assert_stat(0, "rx_other_vlan", 2);
		assert_stat(0, "arp_rx", 0);
		assert_stat(0, "rx_to_other_device", rules ? 0 : 2);
		station_close(0);
		station_close(1);
		assert_no_frame_lost();
		port_free();
	}
}

/*
 * Packets to groups: each device with a member gets a copy. Packets that cannot be valid are not
 * copied.
 */
static void
test_groups(void **state)
{
	const struct roce_gid group = roce_gid_v4(RTE_BE32(RTE_IPV4(239u, 1, 2, 3)));
	struct rdma_conn *member[2];

	flow_port_make(false);
	flows.otherwise = 0;
	for (unsigned int q = 0; q < 3; q++)
		station_open(q, "10.0.0.");
	receive(roce_to_group());
	work();
	assert_stat(0, "rx_not_for_us", 1);
	member[0] = station_join(1, "239.1.2.3");
	receive(roce_to_group());
	work();
	/* accepted, as the Q_Key is checked only then */
	assert_stat(1, "rx_bad_qkey", 1);
	assert_stat(0, "rx_bad_qkey", 0);
	assert_stat(0, "rx_not_for_us", 1);
	assert_stat(0, "rx_to_other_device", 1);
	member[1] = station_join(0, "239.1.2.3");
	receive(roce_to_group());
	work();
	assert_stat(1, "rx_bad_qkey", 2);
	assert_stat(0, "rx_bad_qkey", 1);
	assert_stat(0, "rx_to_other_device", 2);
	receive(roce(0, &group));
	work();
	assert_stat(0, "rx_icrc_errors", 1);
	assert_stat(0, "rx_to_other_device", 2);
	assert_stat(1, "rx_icrc_errors", 0);
	assert_stat(2, "rx_from_other_device", 0);
	station_leave(member[0]);
	station_leave(member[1]);
	for (unsigned int q = 0; q < 3; q++)
		station_close(q);
	assert_no_frame_lost();
	port_free();
}

/*
 * The multicast queue pair number with the address of another device: it belongs to no group, and
 * is passed on only once.
 */
static void
test_number_of_groups(void **state)
{
	struct frame f = roce_to(true, 2);

	flow_port_make(false);
	flows.otherwise = 0;
	station_open(0, "10.0.0.");
	station_open(1, "10.0.0.");
	roce_put24(f.bytes + 14 + 20 + 8 + offsetof(struct roce_bth, qpn), ROCE_QPN_MULTICAST);
	receive(f);
	work();
	assert_stat(0, "rx_not_for_us", 1);
	assert_stat(0, "rx_to_other_device", 0);
	station_close(0);
	station_close(1);
	assert_no_frame_lost();
	port_free();
}

/* A device that is not polled: packets beyond its room are counted, the others are freed. */
static void
test_not_polled(void **state)
{
	uint64_t given, full, frames = 0;
	struct rte_mempool *pool;

	flow_port_make(false);
	pool = nic.pool;
	nic.pool = rte_pktmbuf_pool_create("many", 2047, 0, 0, 2048, 0);
	assert_non_null(nic.pool);
	flows.otherwise = 0;
	station_open(0, "10.0.0.");
	station_open(1, "10.0.0.");
	while (frames < 1200) {
		receive(roce_to(true, 2));
		frames++;
		rdma_progress(station[0].dev, 0);
	}
	given = station_stat(0, "rx_to_other_device");
	full = station_stat(0, "rx_other_device_ring_full");
	assert_int_equal(given, ROCE_RING_SLOTS - 1);
	assert_int_equal(given + full, frames);
	station_close(1);
	station_close(0);
	assert_no_frame_lost();
	rte_mempool_free(nic.pool);
	nic.pool = pool;
	port_free();
}

/* A packet that was passed to a device goes on to the poll group of its queue pair. */
static void
test_poll_groups(void **state)
{
	struct rdma_qp_info info;
	struct frame f;

	flow_port_make(false);
	flows.otherwise = 0;
	station_open(0, "10.0.0.");
	station_open_as(1, "10.0.0.", ",poll_groups=2");
	assert_int_equal(rdma_qp_info_get(station[1].qp, &info), 0);
	f = roce_to(true, 2);
	roce_put24(f.bytes + 14 + 20 + 8 + offsetof(struct roce_bth, qpn), info.qpn);
	receive(f);
	work();
	assert_stat(1, "rx_from_other_device", 1);
	assert_stat(1, "rx_bad_state", 1);
	station_close(1);
	station_close(0);
	port_free();
}

int
main(void)
{
	const char *argv[] = {"roce_sibling", "--no-huge", "-m", "512", "--no-pci", "--no-shconf",
		"-l", "0", "--log-level", "braggline.rdma:emerg"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_rules_of_ip6),
		cmocka_unit_test(test_rules_of_poll_groups),
		cmocka_unit_test(test_no_rules_requested),
		cmocka_unit_test(test_rules_of_another),
		cmocka_unit_test(test_forwarded),
		cmocka_unit_test(test_given_ip6),
		cmocka_unit_test(test_vlan),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_number_of_groups),
		cmocka_unit_test(test_not_polled),
		cmocka_unit_test(test_poll_groups),
	};

	if (rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
