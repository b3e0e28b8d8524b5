/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_common.h>

#define LINE_WIDTH 87

static const char *const verb_names[] = {
	[PERFTEST_WRITE] = "RDMA_Write",
	[PERFTEST_READ] = "RDMA_Read",
	[PERFTEST_SEND] = "Send",
	[PERFTEST_ATOMIC] = "Atomic",
};

static const char *const type_names[] = {
	[RDMA_QP_RC] = "RC",
	[RDMA_QP_UC] = "UC",
	[RDMA_QP_UD] = "UD",
};

void
perftest_print_line(void)
{
	for (int i = 0; i < LINE_WIDTH; i++)
		putchar('-');
	putchar('\n');
}

void
perftest_print_waiting(void)
{
	printf("\n************************************\n"
	       "* Waiting for client to connect... *\n"
	       "************************************\n");
	fflush(stdout);
}

void
perftest_print_setup(
	const struct perftest_options *o, const struct session *s, uint16_t mtu, bool client)
{
	perftest_print_line();
	printf("                    %s %s%s Test\n", verb_names[o->verb],
		o->verb != PERFTEST_ATOMIC ? ""
			: o->fetch_add	   ? "FETCH_AND_ADD "
					   : "CMP_AND_SWAP ",
		o->latency ? "Latency" : "BW");
	printf(" Dual-port       : OFF\t\tDevice         : %s\n", s->info.name);
	printf(" Number of qps   : %u\t\tTransport type : IB\n", o->qps);
	printf(" Connection type : %s\t\tUsing SRQ      : OFF\n", type_names[o->type]);
	if (client)
		printf(" TX depth        : %u\n", o->tx_depth);
	else if (o->verb == PERFTEST_SEND)
		printf(" RX depth        : %u\n", o->rx_depth);
	if (!o->latency)
		printf(" CQ Moderation   : %u\n", o->cq_mod);
	printf(" Mtu             : %u[B]\n", mtu);
	printf(" Link type       : Ethernet\n");
	if (o->verb == PERFTEST_READ || o->verb == PERFTEST_ATOMIC)
		printf(" Outstand reads  : %u\n", perftest_out_reads(o, s));
	else
		printf(" Max inline data : %u[B]\n", o->inline_size);
	printf(" rdma_cm QPs\t : ON\n");
	printf(" Data ex. method : rdma_cm\n");
	perftest_print_line();
}

void
perftest_print_dest(const char *side, const struct perftest_dest *dest)
{
	unsigned int i;

	printf(" %s address: LID %#04x QPN %#06x PSN %#06x", side, dest->lid, dest->qpn, dest->psn);
	printf("\n GID: ");
	for (i = 0; i < sizeof(dest->gid); i++)
		printf("%02d%s", dest->gid[i], i + 1 < sizeof(dest->gid) ? ":" : "\n");
}

void
perftest_print_header(const struct perftest_options *o)
{
	const char *unit = o->gbits ? "Gb/sec" : "MB/sec";

	perftest_print_line();
	if (o->latency && o->duration)
		printf(" #bytes        #iterations       t_avg[usec]    tps average\n");
	else if (o->latency)
		printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "
		       "t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   "
		       "99.9%% percentile[usec] \n");
	else
		printf(" #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n",
			unit, unit);
	fflush(stdout);
}

void
perftest_print_report(const struct perftest_options *o, const struct perftest_report *report)
{
	double unit = o->gbits ? 1e9 / 8 : 1048576.0;

	printf(" %-7" PRIu64 "    %-10" PRIu64 "       %-7.2lf            %-7.2lf\t\t   %-7.6lf\n",
		report->size, report->iterations, report->peak / unit, report->average / unit,
		report->rate / 1e6);
	fflush(stdout);
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void
perftest_print_latency(const struct perftest_options *o, struct perftest_latency *latency)
{
	uint64_t n = latency->samples, i;
	double sum = 0, squares = 0, average;

	for (i = 0; i < n; i++)
		sum += latency->us[i];
	average = n ? sum / (double)n : 0;
	if (o->duration || !n) {
		printf(" %-7" PRIu64 "       %" PRIu64 "            %-7.2f        %-7.2f\n",
			latency->size, latency->iterations, average,
			average > 0 ? 1e6 / average : 0);
		return;
	}
	for (i = 0; i < n; i++)
		squares += (latency->us[i] - average) * (latency->us[i] - average);
	qsort(latency->us, n, sizeof(*latency->us), compare);
	printf(" %-7" PRIu64 " %" PRIu64 "          %-7.2f        %-7.2f      %-7.2f  \t       "
	       "%-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f\n",
		latency->size, latency->iterations, latency->us[0], latency->us[n - 1],
		latency->us[n / 2], average, sqrt(squares / (double)n), latency->us[n * 99 / 100],
		latency->us[n * 999 / 1000]);
	fflush(stdout);
}
