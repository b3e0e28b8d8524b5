/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_replay's loader: it either refuses a file, or returns packets that lie in its memory. RoCE
 * messages of a loop have the same bytes again after other loops.
 */

#include "seed_corpus.h"

#include <sys/mman.h>

#include <pcap/pcap.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include "../../pmd-ext/net/replay/replay.h"
#include "engine/icrc.h"
#include "engine/packet.h"

static int file = -1;
static volatile uint64_t sink;

/* Inputs with a correct ICRC are rare. */
bool __wrap_roce_packet_check(const struct roce_packet *pkt);
bool
__wrap_roce_packet_check(const struct roce_packet *pkt)
{
	return true;
}

/** Give all packets the numbers of a loop. @return CRC of all packets */
static uint32_t
renumber(struct replay_capture *capture, uint64_t loop)
{
	uint32_t crc = 0;

	for (uint32_t i = 0; i < capture->nb_packets; i++) {
		struct replay_packet *p = &capture->packets[i];

		if (replay_roce_renumber(capture->roce, &p, 1, loop) != 1)
			abort();
		crc = roce_icrc_bytes(crc, p->data, p->len);
	}
	return crc;
}

static void
check_loops(struct replay_capture *capture)
{
	const uint32_t before = renumber(capture, 3);

	renumber(capture, UINT32_MAX);
	if (renumber(capture, 3) != before)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct replay_capture *capture = NULL;
	struct replay_devargs args = {.nb_files = 1};
	uint64_t bytes = 0;
	char path[64];

	if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	args.files[0] = path;
	args.align_at = size > 0 ? data[size - 1] : 90;
	args.roce = (struct replay_roce_args){.on = args.align_at & 1,
		.step = 3,
		.slots = args.align_at & 2 ? 4 : 0,
		.slot_bytes = 1000,
		.leader = args.align_at & 4 ? 64 : 0};
	if (replay_capture_load(&capture, &args, SOCKET_ID_ANY) != 0)
		return 0;
	for (uint32_t i = 0; i < capture->nb_packets; i++) {
		const struct replay_packet *p = &capture->packets[i];

		for (uint32_t k = 0; k < p->len; k++)
			sink += p->data[k];
		bytes += p->len;
		if (((uintptr_t)p->data + capture->align) % REPLAY_LINE != 0)
			abort();
	}
	if (capture->roce != NULL)
		check_loops(capture);
	if (bytes != capture->bytes || bytes == 0 || bytes > size)
		abort();
	if (replay_capture_align(capture, 48) != 0 || replay_capture_references(capture) != 0)
		abort();
	replay_capture_release(capture, "fuzz");
	return 0;
}

/** A capture of three packets, written by libpcap. */
static void
add_pcap(const char *name, int link, int precision)
{
	pcap_t *pcap = pcap_open_dead_with_tstamp_precision(link, 65535, precision);
	uint8_t packet[100] = {[12] = 0x08, [14] = 0x45, [23] = 17}, bytes[1024];
	FILE *f = tmpfile();
	pcap_dumper_t *out = pcap_dump_fopen(pcap, f);

	for (uint32_t i = 0; i < 3; i++) {
		struct pcap_pkthdr h = {.ts.tv_sec = i, .caplen = 40 + 30 * i, .len = 100};

		pcap_dump((u_char *)out, &h, packet);
	}
	pcap_dump_flush(out);
	rewind(f);
	seed_add(name, bytes, fread(bytes, 1, sizeof(bytes), f));
	pcap_dump_close(out);
	pcap_close(pcap);
}

/** A message of two UC RDMA WRITE packets and its event; option bits follow the capture. */
static void
add_roce(const char *name, uint8_t option)
{
	static const uint8_t opcodes[] = {ROCE_UC + ROCE_WRITE_FIRST, ROCE_UC + ROCE_WRITE_LAST,
		ROCE_UC + ROCE_WRITE_ONLY_IMM};
	static const uint16_t ext[] = {16, 0, 20}, payload[] = {256, 128, 0};
	pcap_t *pcap =
		pcap_open_dead_with_tstamp_precision(DLT_EN10MB, 65535, PCAP_TSTAMP_PRECISION_NANO);
	uint8_t bytes[2048];
	FILE *f = tmpfile();
	pcap_dumper_t *out = pcap_dump_fopen(pcap, f);
	size_t size;

	for (uint32_t i = 0; i < RTE_DIM(opcodes); i++) {
		const uint32_t udp = 8 + 12 + ext[i] + payload[i] + 4, ip = 20 + udp;
		uint8_t packet[512] = {[12] = 0x08,
			[14] = 0x45,
			[16] = ip >> 8,
			[17] = ip & 0xff,
			[23] = 17,
			[36] = 4791 >> 8,
			[37] = 4791 & 0xff,
			[38] = udp >> 8,
			[39] = udp & 0xff,
			[42] = opcodes[i],
			[47] = 0x11,
			[53] = i};
		struct pcap_pkthdr h = {.ts.tv_sec = i, .caplen = 14 + ip, .len = 14 + ip};

		pcap_dump((u_char *)out, &h, packet);
	}
	pcap_dump_flush(out);
	rewind(f);
	size = fread(bytes, 1, sizeof(bytes) - 1, f);
	bytes[size++] = option;
	seed_add(name, bytes, size);
	pcap_dump_close(out);
	pcap_close(pcap);
}

static void
add_pcapng(void)
{
	static const uint32_t section[] = {
		0x0A0D0D0A, 28, 0x1A2B3C4D, 1, UINT32_MAX, UINT32_MAX, 28};
	static const uint32_t interface[] = {1, 20, DLT_EN10MB, 65535, 20};
	static const uint32_t packet[] = {6, 48, 0, 0, 1000, 14, 60, 0, 0, 0, 0, 48};
	uint8_t bytes[sizeof(section) + sizeof(interface) + sizeof(packet)];

	memcpy(bytes, section, sizeof(section));
	memcpy(bytes + sizeof(section), interface, sizeof(interface));
	memcpy(bytes + sizeof(section) + sizeof(interface), packet, sizeof(packet));
	seed_add("pcapng", bytes, sizeof(bytes));
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static char options[][16] = {
		"--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "256"};
	char *eal[RTE_DIM(options) + 1] = {(*argv)[0]};

	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		eal[i + 1] = options[i];
	file = memfd_create("capture", 0);
	if (file < 0 || rte_eal_init(RTE_DIM(eal), eal) < 0)
		return -1;
	rte_log_set_global_level(RTE_LOG_EMERG);
	seed_begin(argc, argv);
	add_pcap("nanoseconds", DLT_EN10MB, PCAP_TSTAMP_PRECISION_NANO);
	add_pcap("microseconds", DLT_EN10MB, PCAP_TSTAMP_PRECISION_MICRO);
	add_pcap("raw_ip", DLT_RAW, PCAP_TSTAMP_PRECISION_NANO);
	add_pcapng();
	add_roce("roce", 3);
	add_roce("roce_leader", 7);
	return 0;
}
