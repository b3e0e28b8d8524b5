/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/packet_loss.h"

#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_kvargs.h>
#include <rte_udp.h>

#include "engine/path.h"
#include "engine/wire.h"
#include "ingest/card.h"
#include "sim/model_random.h"
#include "wire/fault_options.h"

#define GROUP_QPN	0xffffff
#define ETHER_TYPE_LOST 0x88b5 /* for local experiments (IEEE 802) */

struct lossy_stream {
	struct roce_gid ip;
	uint32_t qpn;
	uint32_t first_psn;
	bool begun;	/* first_psn is known */
	uint64_t *mark; /* [window / 64], by packet modulo window */
};

struct packet_loss {
	uint16_t port, queue;
	const struct rte_eth_rxtx_callback *callback;
	uint32_t window;     /* a power of two */
	uint32_t nb_streams; /* streams that have queue pairs */
	uint32_t nb_groups;  /* multicast groups seen so far, if nb_streams is 0 */
	struct lossy_stream stream[INGEST_STREAMS_MAX];
	struct packet_loss_chance *chance; /* NULL: no random loss */
	uint64_t reads;			   /* packets of READ responses so far */
};

/* Find the BTH and the destination address. @return NULL: not a RoCE packet */
static const struct roce_bth *
find_bth(const struct rte_mbuf *m, struct roce_gid *ip)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	const uint8_t *l3 = (const uint8_t *)(eth + 1);
	rte_be16_t type = eth->ether_type;
	const struct rte_udp_hdr *udp;
	rte_be32_t v4;

	if (type == RTE_BE16(RTE_ETHER_TYPE_VLAN)) {
		type = ((const struct rte_vlan_hdr *)l3)->eth_proto;
		l3 += sizeof(struct rte_vlan_hdr);
	}
	/* all headers of the device are in the first segment, and have no options */
	if (m->data_len < l3 - (const uint8_t *)eth + sizeof(struct rte_ipv4_hdr) + sizeof(*udp) +
			sizeof(struct roce_bth))
		return NULL;
	if (type == RTE_BE16(RTE_ETHER_TYPE_IPV4)) {
		memcpy(&v4, &((const struct rte_ipv4_hdr *)l3)->dst_addr, sizeof(v4));
		*ip = roce_gid_v4(v4);
		udp = (const struct rte_udp_hdr *)(l3 + sizeof(struct rte_ipv4_hdr));
	} else if (type == RTE_BE16(RTE_ETHER_TYPE_IPV6)) {
		memcpy(ip->raw, ((const struct rte_ipv6_hdr *)l3)->dst_addr, sizeof(ip->raw));
		udp = (const struct rte_udp_hdr *)(l3 + sizeof(struct rte_ipv6_hdr));
	} else {
		return NULL;
	}
	return udp->dst_port == RTE_BE16(ROCE_UDP_PORT) ? (const struct roce_bth *)(udp + 1) : NULL;
}

/* Random number in [0, 1) that depends only on the seed and on the packet. */
static double
random_uniform(uint64_t seed, uint64_t which, uint64_t a, uint64_t b)
{
	return (double)(model_random_key(seed, which, a, b) >> 11) * 0x1p-53;
}

/* Position of a packet in the stream of its group. */
static uint32_t
group_packet(struct packet_loss *loss, const struct roce_gid *ip, uint32_t psn)
{
	struct lossy_stream *group;
	uint32_t i = 0;

	while (i < loss->nb_groups && !roce_gid_equal(&loss->stream[i].ip, ip))
		i++;
	if (i == INGEST_STREAMS_MAX)
		return psn;
	group = &loss->stream[i];
	if (i == loss->nb_groups) {
		*group = (struct lossy_stream){.ip = *ip, .first_psn = psn};
		loss->nb_groups++;
	}
	return (psn - group->first_psn) & 0xffffff;
}

/* Whether a packet of a multicast stream is lost. */
static bool
is_lost(struct packet_loss *loss, const struct roce_bth *bth, const struct roce_gid *ip)
{
	struct packet_loss_chance *chance = loss->chance;
	uint64_t half[2];
	bool lost = false;

	if (roce_get24(bth->qpn) == GROUP_QPN) {
		memcpy(half, ip->raw, sizeof(half));
		lost = random_uniform(chance->seed, FAULT_GROUP_LOSS, half[0] ^ half[1],
			       group_packet(loss, ip, roce_get24(bth->psn))) < chance->group;
		chance->group_lost += lost;
	} else if (bth->opcode >= (ROCE_RC | ROCE_READ_RESPONSE_FIRST) &&
		bth->opcode <= (ROCE_RC | ROCE_READ_RESPONSE_ONLY)) {
		lost = random_uniform(chance->seed, FAULT_READ_LOSS, 0, loss->reads++) <
			chance->read;
		chance->read_lost += lost;
	}
	return lost;
}

/* Check and clear the mark of a packet that is to be lost, so that its retransmission is sent. */
static bool
take_loss_mark(struct packet_loss *loss, const struct rte_mbuf *m)
{
	const struct roce_bth *bth;
	struct roce_gid ip;
	uint32_t qpn, s, at;
	uint64_t bit;

	bth = find_bth(m, &ip);
	if (bth == NULL)
		return false;
	if (loss->chance != NULL && is_lost(loss, bth, &ip))
		return true;
	qpn = roce_get24(bth->qpn);
	for (s = 0; s < loss->nb_streams; s++) {
		struct lossy_stream *stream = &loss->stream[s];

		if (stream->qpn != qpn || !roce_gid_equal(&stream->ip, &ip))
			continue;
		if (!stream->begun) {
			stream->begun = true;
			stream->first_psn = roce_get24(bth->psn);
		}
		at = (roce_get24(bth->psn) - stream->first_psn) & (loss->window - 1);
		bit = UINT64_C(1) << at % 64;
		if ((stream->mark[at / 64] & bit) == 0)
			return false;
		stream->mark[at / 64] &= ~bit;
		return true;
	}
	return false;
}

static uint16_t
on_transmit(uint16_t port, uint16_t queue, struct rte_mbuf **m, uint16_t n, void *arg)
{
	RTE_SET_USED(port);
	RTE_SET_USED(queue);
	for (uint16_t i = 0; i < n; i++)
		if (take_loss_mark(arg, m[i]))
			rte_pktmbuf_mtod(m[i], struct rte_ether_hdr *)->ether_type =
				RTE_BE16(ETHER_TYPE_LOST);
	return n;
}

/* Callback of rte_kvargs_process(): "port", a number or a name, or "queue". */
static int
take_argument(const char *key, const char *value, void *arg)
{
	struct packet_loss *loss = arg;
	unsigned long number;
	char *end;

	number = strtoul(value, &end, 10);
	if (strcmp(key, "queue") == 0)
		loss->queue = (uint16_t)number;
	else if (*end == '\0' && number < RTE_MAX_ETHPORTS)
		loss->port = (uint16_t)number;
	else
		return rte_eth_dev_get_port_by_name(value, &loss->port);
	return 0;
}

static int
find_queue(struct packet_loss *loss, const char *device)
{
	static const char prefix[] = "roce:";
	struct rte_kvargs *arguments;
	int ret;

	if (strncmp(device, prefix, strlen(prefix)) != 0) {
		warnx("--fault: found loss of RoCE packets with --device %s, expected roce:..., "
		      "because an adapter sends whole messages",
			device);
		return -ENOTSUP;
	}
	arguments = rte_kvargs_parse(device + strlen(prefix), NULL);
	if (arguments == NULL)
		return -EINVAL;
	ret = rte_kvargs_process(arguments, "port", take_argument, loss);
	if (ret == 0)
		ret = rte_kvargs_process(arguments, "queue", take_argument, loss);
	rte_kvargs_free(arguments);
	return ret;
}

int
packet_loss_create(
	const char *device, uint32_t nb_streams, uint32_t window, struct packet_loss **loss)
{
	struct packet_loss *l = calloc(1, sizeof(*l));
	int ret;

	if (l == NULL)
		return -ENOMEM;
	l->window = rte_align32pow2(RTE_MAX(window, 64u));
	l->nb_streams = nb_streams;
	ret = find_queue(l, device);
	for (uint32_t s = 0; ret == 0 && s < nb_streams; s++) {
		l->stream[s].mark = calloc(l->window / 64, sizeof(*l->stream[s].mark));
		ret = l->stream[s].mark == NULL ? -ENOMEM : 0;
	}
	if (ret == 0) {
		l->callback = rte_eth_add_tx_callback(l->port, l->queue, on_transmit, l);
		if (l->callback == NULL) {
			ret = -rte_errno;
			warnx("--fault: cannot watch the port of %s: %s", device,
				rte_strerror(rte_errno));
		}
	}
	if (ret != 0) {
		packet_loss_destroy(l);
		return ret;
	}
	*loss = l;
	return 0;
}

void
packet_loss_stream(
	struct packet_loss *loss, uint32_t stream, const struct sockaddr_storage *ip, uint32_t qpn)
{
	struct lossy_stream *s = &loss->stream[stream];

	roce_gid_from_sockaddr(&s->ip, (const struct sockaddr *)ip);
	s->qpn = qpn;
}

void
packet_loss_mark(struct packet_loss *loss, uint32_t stream, uint64_t packet)
{
	const uint32_t at = (uint32_t)packet & (loss->window - 1);

	loss->stream[stream].mark[at / 64] |= UINT64_C(1) << at % 64;
}

void
packet_loss_random(struct packet_loss *loss, struct packet_loss_chance *chance)
{
	loss->chance = chance;
}

void
packet_loss_destroy(struct packet_loss *loss)
{
	if (loss == NULL)
		return;
	if (loss->callback != NULL)
		rte_eth_remove_tx_callback(loss->port, loss->queue, loss->callback);
	for (uint32_t s = 0; s < INGEST_STREAMS_MAX; s++)
		free(loss->stream[s].mark);
	free(loss);
}
