/* SPDX-License-Identifier: BSD-3-Clause */
#include "wiretap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pcap/pcap.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_random.h>

#include "io/own_file.h"

#define QUEUES_MAX	16
#define FRAME_MAX	65536
#define ETHER_TYPE_LOST 0x88b5 /* for local experiments (IEEE 802) */

static struct {
	uint16_t port, nb_queues;
	const struct rte_eth_rxtx_callback *rx[QUEUES_MAX], *tx[QUEUES_MAX];
	pcap_t *pcap;
	pcap_dumper_t *file;
	uint64_t chance; /* of losing a frame, in units of 2^-32 */
	uint64_t lost, seen;
	uint64_t mark; /* dynamic flag of mbufs that on_transmit() has seen */
	uint8_t frame[FRAME_MAX];
} tap;

static void
write_frame(const struct rte_mbuf *m)
{
	struct pcap_pkthdr header;
	struct timespec now;
	const void *bytes;

	clock_gettime(CLOCK_REALTIME, &now);
	header.ts.tv_sec = now.tv_sec;
	header.ts.tv_usec = now.tv_nsec; /* the file's header declares nanoseconds */
	header.caplen = header.len = rte_pktmbuf_pkt_len(m);
	bytes = rte_pktmbuf_read(m, 0, header.caplen, tap.frame);
	if (bytes)
		pcap_dump((u_char *)tap.file, &header, bytes);
}

static bool
is_to_be_lost(void)
{
	tap.seen++;
	if (!tap.chance || (rte_rand() & UINT32_MAX) >= tap.chance)
		return false;
	tap.lost++;
	return true;
}

static uint16_t
on_receive(uint16_t port, uint16_t queue, struct rte_mbuf **m, uint16_t n, uint16_t max, void *arg)
{
	uint16_t i, kept = 0;

	for (i = 0; i < n; i++) {
		if (tap.file)
			write_frame(m[i]);
		if (is_to_be_lost())
			rte_pktmbuf_free(m[i]);
		else
			m[kept++] = m[i];
	}
	return kept;
}

/*
 * A TX callback cannot drop frames: if it returns fewer, the caller of the driver assumes that the
 * last ones were not sent. A lost frame is therefore sent with an unknown EtherType. Frames that
 * the driver does not accept are passed in again; a mark identifies them.
 */
static uint16_t
on_transmit(uint16_t port, uint16_t queue, struct rte_mbuf **m, uint16_t n, void *arg)
{
	uint16_t i;

	for (i = 0; i < n; i++) {
		if (m[i]->ol_flags & tap.mark)
			continue;
		m[i]->ol_flags |= tap.mark;
		if (is_to_be_lost())
			rte_pktmbuf_mtod(m[i], struct rte_ether_hdr *)->ether_type =
				RTE_BE16(ETHER_TYPE_LOST);
		if (tap.file)
			write_frame(m[i]);
	}
	return n;
}

/* Find the port in "roce:port=0,ip=..." */
static int
find_port(const char *device)
{
	const char *at = strstr(device, "port=");
	char name[RTE_ETH_NAME_MAX_LEN], *end;
	unsigned long number;

	if (strncmp(device, "roce:", 5) != 0 || !at)
		return -EINVAL;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(at + 5, ","), at + 5);
	number = strtoul(name, &end, 10);
	if (*end == '\0' && end != name && rte_eth_dev_is_valid_port((uint16_t)number)) {
		tap.port = (uint16_t)number;
		return 0;
	}
	return rte_eth_dev_get_port_by_name(name, &tap.port);
}

static int
open_file(const char *path)
{
	FILE *stream = strcmp(path, "-") == 0 ? stdout : own_file_write(path);

	if (!stream) {
		fprintf(stderr, "braggline-rdma: --capture %s: %s\n", path, own_file_error(-errno));
		return -EIO;
	}
	tap.pcap = pcap_open_dead_with_tstamp_precision(
		DLT_EN10MB, FRAME_MAX, PCAP_TSTAMP_PRECISION_NANO);
	if (tap.pcap)
		tap.file = pcap_dump_fopen(tap.pcap, stream);
	if (tap.file)
		return 0;
	fprintf(stderr, "braggline-rdma: --capture %s: %s\n", path,
		tap.pcap ? pcap_geterr(tap.pcap) : "no memory");
	if (stream != stdout)
		fclose(stream);
	return -EIO;
}

int
wiretap_open(const struct target *target)
{
	const struct rte_mbuf_dynflag mark = {.name = "braggline_rdma_wiretap"};
	struct rte_eth_dev_info info;
	int bit;
	uint16_t q;

	if (!target->capture && target->loss == 0)
		return 0;
	if (find_port(target->device) < 0) {
		fprintf(stderr,
			"braggline-rdma: --capture and --loss: found device %s, expected "
			"roce:port=...\n",
			target->device);
		return -EINVAL;
	}
	if (target->capture && open_file(target->capture) < 0)
		return -EIO;
	bit = rte_mbuf_dynflag_register(&mark);
	if (bit < 0) {
		fprintf(stderr, "braggline-rdma: no free mbuf flag for --capture: %s\n",
			rte_strerror(rte_errno));
		return -rte_errno;
	}
	tap.mark = RTE_BIT64(bit);
	tap.chance = (uint64_t)(target->loss / 100 * 4294967296.0);
	rte_srand(target->seed);
	rte_eth_dev_info_get(tap.port, &info);
	tap.nb_queues = RTE_MIN(RTE_MIN(info.nb_rx_queues, info.nb_tx_queues), QUEUES_MAX);
	for (q = 0; q < tap.nb_queues; q++) {
		tap.rx[q] = rte_eth_add_rx_callback(tap.port, q, on_receive, NULL);
		tap.tx[q] = rte_eth_add_tx_callback(tap.port, q, on_transmit, NULL);
		if (!tap.rx[q] || !tap.tx[q]) {
			fprintf(stderr, "braggline-rdma: port %u does not accept a callback: %s\n",
				tap.port, rte_strerror(rte_errno));
			return -ENOTSUP;
		}
	}
	return 0;
}

void
wiretap_close(void)
{
	uint16_t q;

	for (q = 0; q < tap.nb_queues; q++) {
		rte_eth_remove_rx_callback(tap.port, q, tap.rx[q]);
		rte_eth_remove_tx_callback(tap.port, q, tap.tx[q]);
	}
	if (tap.chance)
		fprintf(stderr, "braggline-rdma: %" PRIu64 " of %" PRIu64 " frames were dropped\n",
			tap.lost, tap.seen);
	if (tap.file)
		pcap_dump_close(tap.file);
	if (tap.pcap)
		pcap_close(tap.pcap);
	memset(&tap, 0, sizeof(tap));
}
