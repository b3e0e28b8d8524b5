/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/options.h"

#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "address.h"

#define AT(member)   offsetof(struct perftest_options, member)
#define SIZE_MAX_ALL (1 << 23) /* limit of -a, as in perftest */
#define OUT_READS    128       /* perftest's limit; rdma_rxe supports as many */
#define SIZE_DEFAULT UINT64_MAX
#define NO_HELP	     NULL

static const struct option_row rows[] = {
	{'d', "ib-dev", "DEVICE", OPTION_TEXT, AT(device), 0, 0, "the same as --device"},
	{'p', "port", "PORT", OPTION_U16, AT(port), 1, UINT16_MAX, "service to use (18515)"},
	{'s', "size", "BYTES", OPTION_U64, AT(size), 0, 1ULL << 31,
		"size of a message (65536; latency 2; atomics 8)"},
	{'a', "all", NULL, OPTION_FLAG, AT(all), 0, 0, "sizes from 2 to 2^23"},
	{'n', "iters", "N", OPTION_U64, AT(iterations), 5, 1ULL << 40,
		"messages of each queue pair (1000; write 5000)"},
	{'D', "duration", "S", OPTION_U32, AT(duration), 1, 86400,
		"run for a time instead; its middle half is measured"},
	{'c', "connection", "RC|UC|UD", OPTION_TEXT, AT(connection), 0, 0,
		"transport of the measured queue pairs (RC)"},
	{'m', "mtu", "BYTES", OPTION_U16, AT(mtu), 256, 4096, "path MTU (the device's)"},
	{'q', "qp", "N", OPTION_U32, AT(qps), 1, 1024, "queue pairs (1)"},
	{'t', "tx-depth", "N", OPTION_U32, AT(tx_depth), 1, 16384,
		"sends in flight of a queue pair (128; latency 1)"},
	{'r', "rx-depth", "N", OPTION_U32, AT(rx_depth), 1, 16384,
		"receives posted of a queue pair (512)"},
	{'Q', "cq-mod", "N", OPTION_U32, AT(cq_mod), 1, 1024, "messages for each completion (100)"},
	{'o', "outs", "N", OPTION_U8, AT(out_reads), 1, 255,
		"READs and atomics in flight (the device's)"},
	{'A', "atomic_type", "TYPE", OPTION_TEXT, AT(atomic), 0, 0,
		"CMP_AND_SWAP or FETCH_AND_ADD (FETCH_AND_ADD)"},
	{'I', "inline_size", "BYTES", OPTION_U16, AT(inline_size), 0, RDMA_INLINE_MAX,
		"messages up to this size are sent inline (0)"},
	{'u', "qp-timeout", "N", OPTION_U8, AT(timeout), 1, 31,
		"acknowledge time-out, 4.096 us x 2^N (14)"},
	{0, "retry_count", "N", OPTION_U8, AT(retries), 0, 7, "retries after time-outs (7)"},
	{'T', "tos", "N", OPTION_U8, AT(tos), 0, 255, "type of service (0)"},
	{'N', "noPeak", NULL, OPTION_FLAG, AT(no_peak), 0, 0, "no peak (none over 20000 messages)"},
	{0, "report_gbits", NULL, OPTION_FLAG, AT(gbits), 0, 0, "Gbit/s instead of MiB/s"},
	{0, "trust-icrc", NULL, OPTION_FLAG, AT(trust_icrc), 0, 0,
		"received ICRCs are not checked (roce)"},
	{'R', "rdma_cm", NULL, OPTION_IGNORED_FLAG, 0, 0, 0, "connect by the CM; always set"},
	{'F', "CPU-freq", NULL, OPTION_IGNORED_FLAG, 0, 0, 0, NO_HELP},
	{'i', "ib-port", "N", OPTION_IGNORED, 0, 0, 0, NO_HELP},
	{'x', "gid-index", "N", OPTION_IGNORED, 0, 0, 0, NO_HELP},
};

static enum options_result
wrong(const char *mode, const char *option, const char *found, const char *wanted)
{
	fprintf(stderr, "braggline-rdma %s: %s: found '%s', expected %s\n", mode, option, found,
		wanted);
	return OPTIONS_WRONG;
}

static enum options_result
parse_names(const char *mode, struct perftest_options *o)
{
	if (!o->connection || strcmp(o->connection, "RC") == 0)
		o->type = RDMA_QP_RC;
	else if (strcmp(o->connection, "UC") == 0)
		o->type = RDMA_QP_UC;
	else if (strcmp(o->connection, "UD") == 0)
		o->type = RDMA_QP_UD;
	else
		return wrong(mode, "-c", o->connection, "RC, UC or UD");
	if ((o->verb == PERFTEST_READ || o->verb == PERFTEST_ATOMIC) && o->type != RDMA_QP_RC)
		return wrong(mode, "-c", o->connection, "RC: nothing else has this operation");
	if (o->verb == PERFTEST_WRITE && o->type == RDMA_QP_UD)
		return wrong(mode, "-c", o->connection, "RC or UC: UD has only SEND");
	if (!o->atomic || strcmp(o->atomic, "FETCH_AND_ADD") == 0)
		o->fetch_add = true;
	else if (strcmp(o->atomic, "CMP_AND_SWAP") != 0)
		return wrong(mode, "-A", o->atomic, "CMP_AND_SWAP or FETCH_AND_ADD");
	return OPTIONS_OK;
}

static void
set_defaults(struct perftest_options *o)
{
	if (o->verb == PERFTEST_ATOMIC)
		o->size = 8;
	else if (o->size == SIZE_DEFAULT)
		o->size = o->latency ? 2 : 65536;
	if (!o->iterations)
		o->iterations = o->verb == PERFTEST_WRITE && !o->latency ? 5000 : 1000;
	if (!o->tx_depth)
		o->tx_depth = o->latency ? 1 : 128;
	if (o->iterations < o->tx_depth && !o->duration)
		o->tx_depth = (uint32_t)o->iterations;
	if (!o->rx_depth)
		o->rx_depth = o->verb == PERFTEST_SEND ? 512 : 1;
	o->cq_mod = RTE_MIN(o->cq_mod, o->tx_depth);
	if (o->duration || o->iterations > 20000)
		o->no_peak = true;
}

enum options_result
perftest_options_parse(int argc, char **argv, struct perftest_options *o, struct target *target)
{
	const char *host = NULL;
	enum options_result result;

	o->size = SIZE_DEFAULT;
	o->port = 18515;
	o->qps = 1;
	o->cq_mod = 100;
	o->timeout = 14;
	o->retries = 7;
	result = target_parse(argc, argv, rows, RTE_DIM(rows), o, target,
		"-d DEVICE [OPTION]...        serve one client\n"
		"       braggline-rdma [EAL options] -- MODE -d DEVICE [OPTION]... HOST   connect",
		&host, 1);
	if (result != OPTIONS_OK)
		return result;
	result = parse_names(argv[0], o);
	if (result != OPTIONS_OK)
		return result;
	if (o->mtu & (o->mtu - 1))
		return wrong(argv[0], "-m", "another number", "256, 512, 1024, 2048 or 4096");
	if (o->latency && o->size == 0)
		return wrong(argv[0], "-s", "0", "1 or more: the last byte is waited for");
	if (o->all && (o->latency || o->verb == PERFTEST_ATOMIC || o->duration))
		return wrong(argv[0], "-a", "latency, atomics or -D", "-a without these");
	if (host) {
		if (address_parse(host, o->port, &target->peer) < 0)
			return wrong(argv[0], "HOST", host, "an IPv4 or IPv6 address");
		target->client = true;
	}
	set_defaults(o);
	if (o->device)
		target->device = o->device;
	target->port = o->port;
	return OPTIONS_OK;
}

uint64_t
perftest_size_max(const struct perftest_options *o)
{
	return o->all ? SIZE_MAX_ALL : o->size;
}

uint8_t
perftest_out_reads(const struct perftest_options *o, const struct session *s)
{
	uint16_t most = RTE_MIN(s->info.max_rd_atom, OUT_READS);

	return (uint8_t)(o->out_reads ? RTE_MIN(o->out_reads, most) : most);
}
