/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways of a detector's packets into the receiver's memory: kernel UDP, an ethdev port, and RDMA, as
 * in tables 1 and 2 of Ponsard et al., J. Synchrotron Rad. 2020. Sender and receiver are two lcores
 * of one process, or two hosts. All rows are measured in turn in each round.
 */

#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "bench_alone.h"
#include "bench_median.h"
#include "bench_rows.h"
#include "ingest_bench.h"

#define SOURCE_MIB 1 /* in a cache, where a NIC with DDIO also writes */
#define PAYLOADS   3
#define ADDRESSES  100000
#define TCP_PORT   4792
#define WIRE_SLOTS 1024

static const char usage[] =
	"Usage: ingest_bench EAL-OPTIONS -- [OPTION]...\n"
	"Highest rate without loss of each way into the receiver's memory, as a table.\n"
	"  --role both|sender|receiver  both: two lcores of this process (default)\n"
	"  --device NAME    verbs:... or roce:..., see rdma.h; both: once for the receiver and\n"
	"                   once for the sender (default: roce on two ports of rings)\n"
	"  --peer HOST      receiver: the sender's host\n"
	"  --port N         TCP port of the sender (default 4792)\n"
	"  --addresses N    destinations of the second column (default 100000)\n"
	"  --payload BYTES  one payload, up to 1048576 by RDMA (default: 2048, 4096, 8246)\n"
	"  --depth N        RDMA messages in flight, up to 64 (default 64)\n"
	"  --source MIB     memory that the sender sends from (default 1: in its cache)\n"
	"  --only METHOD    one method, for example 'UC WRITE'; may be repeated\n"
	"  --seconds S      of a window, up to 0.6 (default 0.1)\n"
	"  --rounds N       windows of each row, all rows in turn (default 5)\n"
	"  --rows FILE      rows for bench.py\n"
	"Cycles are TSC cycles of the receiver's lcore for a message, in polls that find work. Of\n"
	"UDP it is the CPU time, without what the kernel does on the sender's CPU.\n";

/* Columns of destinations. */
enum column {
	ONE,
	MANY,
	MANY_SMALL,
	COLUMNS,
};

enum role {
	ROLE_BOTH,
	ROLE_SENDER,
	ROLE_RECEIVER,
};

struct cell {
	double gbit[BENCH_ROUNDS_MAX]; /* of each round */
	double cycles[BENCH_ROUNDS_MAX];
	double busy[BENCH_ROUNDS_MAX];
	bool measured;
};

static struct {
	enum role role;
	const char *device[2]; /* receiver, sender */
	unsigned int nb_devices;
	const char *peer;
	uint16_t port;
	uint32_t addresses;
	uint32_t payloads[PAYLOADS];
	unsigned int nb_payloads;
	uint32_t depth;
	uint64_t source_mib;
	uint32_t methods; /* bit mask */
	double seconds;
	unsigned int rounds;
} options = {.port = TCP_PORT,
	.addresses = ADDRESSES,
	.payloads = {2048, 4096, 8246},
	.nb_payloads = PAYLOADS,
	.depth = INGEST_DEPTH_MAX,
	.source_mib = SOURCE_MIB,
	.seconds = 0.1,
	.rounds = 5};

static struct ingest_host sender = {.raw_port = UINT16_MAX}, receiver = {.raw_port = UINT16_MAX};
static struct cell cells[PAYLOADS][INGEST_METHODS][COLUMNS];

void
ingest_fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("ingest_bench: ", stderr);
	vfprintf(stderr, format, list);
	fputs("\n", stderr);
	va_end(list);
	exit(1);
}

uint32_t
ingest_stride(uint32_t payload)
{
	return RTE_ALIGN(payload, RTE_CACHE_LINE_SIZE);
}

/* ---- set-up ---- */

static void
map(struct ingest_ring *ring, uint64_t bytes, enum rdma_pages_kind kind)
{
	ring->length = bytes;
	ring->kind = kind;
	ring->memory = rdma_pages_map(&ring->length, -1, &ring->kind);
	if (ring->memory == NULL || rdma_pages_prefault(ring->memory, ring->length, 0) != 0)
		ingest_fail("%llu bytes of memory are missing", (unsigned long long)bytes);
}

static void
open_receiver(struct ingest_host *h)
{
	const uint32_t payload = options.payloads[options.nb_payloads - 1];
	const uint64_t bytes = (uint64_t)options.addresses * ingest_stride(payload);

	map(&h->ring[INGEST_SMALL], bytes, RDMA_PAGES_SMALL);
	map(&h->ring[INGEST_HUGE], bytes, RDMA_PAGES_HUGETLB);
}

static void
open_sender(struct ingest_host *h)
{
	map(&h->source, options.source_mib << 20, RDMA_PAGES_HUGETLB);
}

/* Two ports that hand over packets by reference. */
static void
open_rings(void)
{
	static char name[2][64];
	struct rte_ring *ring[2];
	int port;

	for (int i = 0; i < 2; i++) {
		ring[i] = rte_ring_create(i == 0 ? "wire there" : "wire back", WIRE_SLOTS,
			SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (ring[i] == NULL)
			ingest_fail("no ring: %s", rte_strerror(rte_errno));
	}
	for (int i = 0; i < 2; i++) {
		port = rte_eth_from_rings(
			i == 0 ? "receiver" : "sender", &ring[i], 1, &ring[!i], 1, 0);
		if (port < 0)
			ingest_fail("no port on rings: %s", rte_strerror(rte_errno));
		snprintf(name[i], sizeof(name[i]), "roce:port=%d,ip=10.0.0.%d/24,mtu=4096", port,
			i + 1);
		options.device[i] = name[i];
	}
}

static int
serve(void *arg)
{
	ingest_serve(arg);
	return 0;
}

static void
open_both(void)
{
	const unsigned int worker = rte_get_next_lcore(-1, 1, 0);
	int channel[2];

	if (worker >= RTE_MAX_LCORE)
		ingest_fail("found one lcore, expected two: EAL's -l");
	if (options.nb_devices == 0)
		open_rings();
	ingest_raw_open(&sender, &receiver);
	ingest_channel_pair(channel);
	receiver.channel = channel[0];
	sender.channel = channel[1];
	open_sender(&sender);
	ingest_rdma_open(&sender, options.device[1]);
	open_receiver(&receiver);
	ingest_rdma_open(&receiver, options.device[0]);
	rte_eal_remote_launch(serve, &sender, worker);
}

/* ---- receiver: rounds ---- */

/* UDP and RAW are not sensitive to the kind of pages, and a bisection takes its time. */
static bool
is_measured(unsigned int p, enum ingest_method method, enum column column)
{
	if (!(options.methods & RTE_BIT32(method)))
		return false;
	if (method == INGEST_RAW && receiver.raw_port == UINT16_MAX)
		return false;
	if (!ingest_is_rdma(method) && options.payloads[p] > INGEST_PACKET_MAX)
		return false;
	if (ingest_is_rdma(method) && receiver.rdma.dev == NULL)
		return false;
	return column != MANY_SMALL || ingest_is_rdma(method);
}

static void
measure(unsigned int p, enum ingest_method method, enum column column, unsigned int round)
{
	const struct ingest_trial t = {.method = method,
		.pages = column == MANY_SMALL ? INGEST_SMALL : INGEST_HUGE,
		.payload = options.payloads[p],
		.addresses = column == ONE ? 1 : options.addresses,
		.depth = options.depth,
		.seconds = options.seconds};
	struct cell *cell = &cells[p][method][column];
	struct ingest_outcome out;

	ingest_lossless(&receiver, &t, &out);
	cell->measured = true;
	cell->gbit[round] = out.rate * options.payloads[p] * 8e-9;
	cell->cycles[round] = out.cycles;
	cell->busy[round] = out.busy;
}

static void
run_rounds(void)
{
	for (unsigned int round = 0; round < options.rounds; round++)
		for (unsigned int p = 0; p < options.nb_payloads; p++)
			for (unsigned int m = 0; m < INGEST_METHODS; m++)
				for (unsigned int c = 0; c < COLUMNS; c++)
					if (is_measured(p, m, c))
						measure(p, m, c, round);
}

/* ---- receiver: the table ---- */

static const char *
pages_name(enum rdma_pages_kind kind)
{
	switch (kind) {
	case RDMA_PAGES_HUGETLB:
		return "huge pages of hugetlbfs";
	case RDMA_PAGES_TRANSPARENT:
		return "transparent huge pages";
	case RDMA_PAGES_SMALL:
		break;
	}
	return "pages of 4 KiB: no huge pages are free";
}

static double
median(const double *values)
{
	return bench_median(values, options.rounds);
}

/* A cell of the table; a dash: not measured, or nothing to compare with. */
static void
print_number(bool measured, double value, int width, int digits)
{
	if (measured && isfinite(value))
		printf(" %*.*f", width, digits, value);
	else
		printf(" %*s", width, "-");
}

/* The median of the rounds in which both had a rate without loss. */
static double
ratio(const struct cell *a, const struct cell *b)
{
	double ratios[BENCH_ROUNDS_MAX];
	unsigned int nb = 0;

	for (unsigned int i = 0; i < options.rounds; i++)
		if (b->gbit[i] > 0)
			ratios[nb++] = a->gbit[i] / b->gbit[i];
	return nb > 0 ? bench_sort(ratios, nb) : NAN;
}

static void
print_row(unsigned int p, enum ingest_method method)
{
	const struct cell *one = &cells[p][method][ONE], *many = &cells[p][method][MANY];
	const struct cell *small = &cells[p][method][MANY_SMALL];
	const struct cell *tuned = &cells[p][INGEST_UDP_TUNED][MANY];
	const double paper[] = {ingest_paper(method, options.payloads[p], false),
		ingest_paper(method, options.payloads[p], true)};

	printf("%7u %-13s", options.payloads[p], ingest_name(method));
	print_number(one->measured, median(one->gbit), 7, 1);
	print_number(many->measured, median(many->gbit), 7, 1);
	print_number(small->measured, median(small->gbit), 7, 1);
	print_number(many->measured, ratio(many, one), 6, 2);
	print_number(many->measured && tuned->measured, ratio(many, tuned), 6, 1);
	print_number(one->measured, median(one->cycles), 6, 0);
	print_number(many->measured, median(many->cycles), 6, 0);
	print_number(many->measured, 100 * median(many->busy), 4, 0);
	print_number(true, ingest_line(method, options.payloads[p]), 6, 1);
	print_number(paper[0] > 0, paper[0], 6, 1);
	print_number(paper[1] > 0, paper[1], 6, 1);
	printf("\n");
}

static void
print_table(void)
{
	printf("Gbit/s of payload, nothing lost, medians of %u rounds; %u destinations on %s;\n"
	       "TSC %.2f GHz; wire: %s%s\n\n",
		options.rounds, options.addresses, pages_name(receiver.ring[INGEST_HUGE].kind),
		1e-9 * (double)rte_get_tsc_hz(),
		options.role == ROLE_BOTH && options.nb_devices == 0 ? "rings, UDP over loopback"
								     : "as given",
		receiver.alone ? "" : "; no real-time priority: others disturb");
	printf("%7s %-13s %7s %7s %7s %6s %6s %6s %6s %4s %6s %6s %6s\n", "", "", "1", "many",
		"many", "many/", "many/", "cycles", "cycles", "CPU", "100GbE", "paper", "paper");
	printf("%7s %-13s %7s %7s %7s %6s %6s %6s %6s %4s %6s %6s %6s\n", "payload", "method", "",
		"huge", "4 KiB", "1", "tuned", "1", "many", "%", "line", "1", "many");
	for (unsigned int p = 0; p < options.nb_payloads; p++)
		for (unsigned int m = 0; m < INGEST_METHODS; m++)
			if (cells[p][m][ONE].measured)
				print_row(p, m);
}

/* The goals are those of 4,096 bytes by SEND and WRITE. */
static void
write_rows(unsigned int p, enum ingest_method method)
{
	const struct cell *one = &cells[p][method][ONE], *many = &cells[p][method][MANY];
	const struct cell *tuned = &cells[p][INGEST_UDP_TUNED][MANY];
	const bool goal = options.payloads[p] == 4096 &&
		(method == INGEST_UC_SEND || method == INGEST_UC_WRITE);
	char what[64];

	if (!many->measured)
		return;
	snprintf(what, sizeof(what), "%s, %u B, %u addresses", ingest_name(method),
		options.payloads[p], options.addresses);
	bench_row(&(struct bench_row){.stage = "ingest",
		.what = what,
		.value = median(many->gbit),
		.unit = "Gbit/s",
		.against = tuned->measured && tuned != many ? "UDP tuned" : NULL,
		.other = tuned->measured && tuned != many ? median(tuned->gbit) : 0,
		.ratio = tuned->measured && tuned != many ? ratio(many, tuned) : 0,
		.goal = goal && tuned->measured ? "ratio >= 10" : NULL,
		.notes = pages_name(receiver.ring[INGEST_HUGE].kind)});
	if (!ingest_is_rdma(method))
		return;
	snprintf(what, sizeof(what), "%s, %u B, many addresses beside 1", ingest_name(method),
		options.payloads[p]);
	bench_row(&(struct bench_row){.stage = "ingest",
		.what = what,
		.value = median(many->gbit),
		.unit = "Gbit/s",
		.against = "1 address",
		.other = median(one->gbit),
		.ratio = ratio(many, one),
		.goal = goal ? "ratio >= 0.9" : NULL});
}

static void
receive(void)
{
	run_rounds();
	print_table();
	for (unsigned int p = 0; p < options.nb_payloads; p++)
		for (unsigned int m = 0; m < INGEST_METHODS; m++)
			write_rows(p, m);
}

/* ---- roles ---- */

static void
run_both(void)
{
	open_both();
	receive();
	close(receiver.channel);
	rte_eal_mp_wait_lcore();
	ingest_rdma_close(&sender);
	ingest_rdma_close(&receiver);
}

static void
run_receiver(void)
{
	char more;

	open_receiver(&receiver);
	if (options.nb_devices > 0)
		ingest_rdma_open(&receiver, options.device[0]);
	receiver.channel = ingest_channel_connect(options.peer, options.port);
	receive();
	/* the sender closes its device first: two ends of a memif must not do so at a time */
	shutdown(receiver.channel, SHUT_WR);
	if (ingest_get(receiver.channel, &more, sizeof(more), NULL, NULL))
		ingest_fail("the sender goes on");
	close(receiver.channel);
	if (options.nb_devices > 0)
		ingest_rdma_close(&receiver);
}

static void
run_sender(void)
{
	open_sender(&sender);
	if (options.nb_devices > 0)
		ingest_rdma_open(&sender, options.device[0]);
	sender.channel = ingest_channel_listen(options.port);
	ingest_serve(&sender);
	if (options.nb_devices > 0)
		ingest_rdma_close(&sender);
	close(sender.channel);
}

static void
refuse(void)
{
	fputs(usage, stderr);
	exit(2);
}

static void
take_role(const char *name)
{
	static const char *const names[] = {"both", "sender", "receiver"};

	for (unsigned int i = 0; i < RTE_DIM(names); i++)
		if (strcmp(name, names[i]) == 0) {
			options.role = i;
			return;
		}
	refuse();
}

static void
take_payload(const char *text)
{
	options.payloads[0] = (uint32_t)strtoul(text, NULL, 10);
	options.nb_payloads = 1;
	if (options.payloads[0] < 64 || options.payloads[0] > INGEST_PAYLOAD_MAX)
		refuse();
}

static void
take_method(const char *name)
{
	for (unsigned int i = 0; i < INGEST_METHODS; i++)
		if (strcasecmp(name, ingest_name(i)) == 0) {
			options.methods |= RTE_BIT32(i);
			return;
		}
	refuse();
}

static void
check_options(void)
{
	if (options.methods == 0)
		options.methods = RTE_BIT32(INGEST_METHODS) - 1;
	if (options.depth < 1 || options.depth > INGEST_DEPTH_MAX || options.source_mib < 1 ||
		options.source_mib > 1024)
		refuse();
	if (options.addresses < 1 || options.addresses > 1000000 || !(options.seconds > 0) ||
		options.seconds > BENCH_WINDOW_MAX || options.rounds < 1 ||
		options.rounds > BENCH_ROUNDS_MAX || options.port == 0)
		refuse();
	if (options.role == ROLE_BOTH ? options.nb_devices == 1 : options.nb_devices > 1)
		refuse();
	if ((options.role == ROLE_RECEIVER) != (options.peer != NULL))
		refuse();
}

static void
parse_arguments(int argc, char **argv)
{
	static const struct option known[] = {
		{"role", required_argument, NULL, 'r'},
		{"device", required_argument, NULL, 'd'},
		{"peer", required_argument, NULL, 'p'},
		{"port", required_argument, NULL, 't'},
		{"addresses", required_argument, NULL, 'a'},
		{"payload", required_argument, NULL, 'l'},
		{"depth", required_argument, NULL, 'q'},
		{"source", required_argument, NULL, 'c'},
		{"only", required_argument, NULL, 'm'},
		{"seconds", required_argument, NULL, 's'},
		{"rounds", required_argument, NULL, 'n'},
		{"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	/* EAL has used it */
	optind = 1;
	while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
		if (option == 'r')
			take_role(optarg);
		else if (option == 'd' && options.nb_devices < RTE_DIM(options.device))
			options.device[options.nb_devices++] = optarg;
		else if (option == 'p')
			options.peer = optarg;
		else if (option == 't')
			options.port = (uint16_t)strtoul(optarg, NULL, 10);
		else if (option == 'a')
			options.addresses = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'l')
			take_payload(optarg);
		else if (option == 'q')
			options.depth = (uint32_t)strtoul(optarg, NULL, 10);
		else if (option == 'c')
			options.source_mib = strtoul(optarg, NULL, 10);
		else if (option == 'm')
			take_method(optarg);
		else if (option == 's')
			options.seconds = strtod(optarg, NULL);
		else if (option == 'n')
			options.rounds = (unsigned int)strtoul(optarg, NULL, 10);
		else if (option == 'o')
			bench_rows_to(optarg);
		else if (option == 'h')
			exit(fputs(usage, stdout) < 0);
		else
			refuse();
	}
	if (optind < argc)
		refuse();
	check_options();
}

int
main(int argc, char **argv)
{
	int words = rte_eal_init(argc, argv);

	if (words < 0)
		ingest_fail("EAL: %s", rte_strerror(rte_errno));
	parse_arguments(argc - words, argv + words);
	if (options.role == ROLE_BOTH)
		run_both();
	else if (options.role == ROLE_RECEIVER)
		run_receiver();
	else
		run_sender();
	rte_eal_cleanup();
	return 0;
}
