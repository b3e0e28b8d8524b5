/* SPDX-License-Identifier: BSD-3-Clause */
/* What the figures stand beside: the line's own limit, and the tables of the paper. */

#include <rte_common.h>

#include "ingest_bench.h"

#define LINE	 100.0		   /* Gbit/s */
#define ETHERNET (8 + 14 + 4 + 12) /* preamble, header, FCS, gap */
#define IP_UDP	 (20 + 8)
#define ROCE	 (12 + 4) /* BTH, ICRC */
#define RETH	 16
#define IMM	 4
#define MTU	 4096u

const char *
ingest_name(enum ingest_method method)
{
	static const char *const name[] = {
		[INGEST_UDP_RECV] = "UDP recv",
		[INGEST_UDP_TUNED] = "UDP tuned",
		[INGEST_RAW] = "RAW",
		[INGEST_UC_SEND] = "UC SEND",
		[INGEST_UC_WRITE] = "UC WRITE",
		[INGEST_UC_WRITE_IMM] = "UC WRITE_IMM",
		[INGEST_RC_WRITE] = "RC WRITE",
	};

	return name[method];
}

bool
ingest_is_rdma(enum ingest_method method)
{
	return method >= INGEST_UC_SEND;
}

double
ingest_line(enum ingest_method method, uint32_t payload)
{
	const uint32_t packets = (payload + MTU - 1) / MTU, padded = RTE_ALIGN(payload, 4);
	uint32_t bytes;

	if (!ingest_is_rdma(method))
		return LINE * payload / (payload + IP_UDP + ETHERNET);
	bytes = padded + packets * (ROCE + IP_UDP + ETHERNET);
	if (method != INGEST_UC_SEND)
		bytes += RETH;
	if (method == INGEST_UC_WRITE_IMM)
		bytes += IMM;
	return LINE * payload / bytes;
}

/*
 * Ponsard et al., RDMA data transfer and GPU acceleration methods for high-throughput online
 * processing of serial crystallography images, J. Synchrotron Rad. 2020, tables 1 and 2: two hosts
 * with ConnectX-5. Table 2 does not say which transport and how many addresses.
 */
double
ingest_paper(enum ingest_method method, uint32_t payload, bool many)
{
	static const struct {
		uint32_t payload;
		double udp, tuned[2], send, write, raw;
	} paper[] = {
		{2048, 7.2, {10.9, 11}, 94.5, 95.2, 33.3},
		{4096, 9.1, {22.8, 23.1}, 97.6, 97.5, 60.5},
		{8246, 9.8, {36.7, 27.4}, 0, 0, 99.1},
	};

	for (unsigned int i = 0; i < RTE_DIM(paper); i++) {
		if (paper[i].payload != payload)
			continue;
		switch (method) {
		case INGEST_UDP_RECV:
			return many ? 0 : paper[i].udp;
		case INGEST_UDP_TUNED:
			return paper[i].tuned[many];
		case INGEST_RAW:
			return many ? 0 : paper[i].raw;
		case INGEST_UC_SEND:
			return many ? 0 : paper[i].send;
		case INGEST_UC_WRITE:
			return many ? 0 : paper[i].write;
		case INGEST_UC_WRITE_IMM:
		case INGEST_RC_WRITE:
		case INGEST_METHODS:
			return 0;
		}
	}
	return 0;
}
