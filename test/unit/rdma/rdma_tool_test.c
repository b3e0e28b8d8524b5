/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * braggline-rdma's knowledge of other tools' messages, compared with captures of these tools; its
 * options.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>

#include "address.h"
#include "cm/cmatose.h"
#include "cm/mckey.h"
#include "perftest/perftest.h"
#include "perftest/options.h"
#include "perftest/wire.h"
#include "cm/rping.h"

#define ETHER_BYTES 14
#define IP_BYTES    20
#define UDP_BYTES   8
#define BTH_BYTES   12
#define ICRC_BYTES  4
#define SEND_ONLY   0x04
#define PAD_AT	    20 /* of a destination: padding that the compiler of the original left there */
#define PAD_BYTES   4

/* An RC SEND ONLY of a capture. */
struct message {
	uint8_t bytes[PERFTEST_MESSAGE_BYTES];
	size_t length;
	uint32_t source; /* IPv4 address, network order */
};

static pcap_t *
open_capture(const char *name)
{
	char path[4096], error[PCAP_ERRBUF_SIZE];
	pcap_t *pcap;

	snprintf(path, sizeof(path), "%s/roce/%s", getenv("BRAGGLINE_DATA"), name);
	pcap = pcap_open_offline(path, error);
	if (!pcap) {
		print_message("skipped: %s\n", error);
		skip();
	}
	return pcap;
}

static bool
next_message(pcap_t *pcap, struct message *m)
{
	struct pcap_pkthdr *header;
	const u_char *frame;
	size_t front = ETHER_BYTES + IP_BYTES + UDP_BYTES + BTH_BYTES;

	while (pcap_next_ex(pcap, &header, &frame) == 1) {
		const u_char *bth = frame + ETHER_BYTES + IP_BYTES + UDP_BYTES;
		size_t pad;

		if (header->caplen < front + ICRC_BYTES || frame[12] != 8 || frame[13] != 0 ||
			frame[23] != 17 || frame[36] != 0x12 || frame[37] != 0xb7 ||
			bth[0] != SEND_ONLY)
			continue;
		pad = bth[1] >> 4 & 3;
		m->length = header->caplen - front - ICRC_BYTES - pad;
		if (m->length > sizeof(m->bytes))
			continue;
		memcpy(m->bytes, frame + front, m->length);
		memcpy(&m->source, frame + ETHER_BYTES + 12, sizeof(m->source));
		return true;
	}
	return false;
}

static unsigned int
check_dest(const struct message *m)
{
	struct perftest_dest dest;
	struct sockaddr_storage address = {.ss_family = AF_INET};
	uint8_t again[PERFTEST_DEST_BYTES], gid[16], wanted[PERFTEST_DEST_BYTES];

	perftest_get_dest(m->bytes, &dest);
	assert_int_equal(perftest_put_dest(again, &dest), PERFTEST_DEST_BYTES);
	memcpy(wanted, m->bytes, sizeof(wanted));
	memset(wanted + PAD_AT, 0, PAD_BYTES);
	assert_memory_equal(again, wanted, PERFTEST_DEST_BYTES);
	if (!dest.qpn)
		return 0;
	((struct sockaddr_in *)&address)->sin_addr.s_addr = m->source;
	address_gid(&address, gid);
	assert_memory_equal(dest.gid, gid, sizeof(gid));
	assert_true(dest.out_reads == 1 || dest.out_reads == 128);
	return 1;
}

/* Complete conversations of ib_write_bw, ib_read_bw, ib_send_bw and ib_atomic_bw. */
static void
test_conversation(void **state)
{
	pcap_t *pcap = open_capture("rxe-perftest-rping.pcap");
	unsigned int versions = 0, words = 0, mtus = 0, dests = 0;
	uint8_t again[PERFTEST_MESSAGE_BYTES];
	char text[PERFTEST_VERSION_BYTES + 1];
	struct message m;

	while (next_message(pcap, &m))
		switch (m.length) {
		case PERFTEST_VERSION_BYTES:
			/* rping's messages have the same length */
			if (perftest_get_version(m.bytes, text) < 0)
				continue;
			assert_string_equal(text, PERFTEST_VERSION);
			perftest_put_version(again);
			assert_memory_equal(again, m.bytes, PERFTEST_VERSION_BYTES);
			versions++;
			continue;
		case PERFTEST_WORD_BYTES:
			assert_int_equal(perftest_get_word(m.bytes),
				words / 2 % 2 ? PERFTEST_CACHE_LINE : PERFTEST_CYCLE_BUFFER);
			perftest_put_word(again, perftest_get_word(m.bytes));
			assert_memory_equal(again, m.bytes, PERFTEST_WORD_BYTES);
			words++;
			continue;
		case PERFTEST_MTU_BYTES:
			assert_int_equal(perftest_get_mtu(m.bytes), 1024);
			perftest_put_mtu(again, 1024);
			assert_memory_equal(again, m.bytes, PERFTEST_MTU_BYTES);
			mtus++;
			continue;
		case PERFTEST_DEST_BYTES:
			dests += check_dest(&m);
			continue;
		default:
			continue;
		}
	pcap_close(pcap);
	/* four runs, two ends */
	assert_int_equal(versions, 8);
	assert_int_equal(words, 16);
	assert_int_equal(mtus, 8);
	/* each end: write, read and atomics 5, send 5 */
	assert_int_equal(dests, 40);
}

/* The client's reports of the write run: 20 messages of 8 KiB. */
static void
test_report(void **state)
{
	pcap_t *pcap = open_capture("rxe-perftest-rping.pcap");
	struct perftest_report report = {0};
	uint32_t client = inet_addr("10.99.0.2");
	unsigned int field = 0;
	uint8_t again[8];
	struct message m;

	while (field < PERFTEST_REPORT_FIELDS && next_message(pcap, &m)) {
		if (m.length != PERFTEST_REPORT_BYTES || m.source != client)
			continue;
		perftest_get_report(m.bytes, &report, field);
		assert_int_equal(perftest_put_report(again, &report, field), PERFTEST_REPORT_BYTES);
		assert_memory_equal(again, m.bytes, PERFTEST_REPORT_BYTES);
		field++;
	}
	pcap_close(pcap);
	assert_int_equal(field, PERFTEST_REPORT_FIELDS);
	assert_int_equal(report.size, 8192);
	assert_int_equal(report.iterations, 20);
	assert_true(report.peak >= report.average);
	/* rates agree to the printed precision: bytes/s = messages/s x bytes */
	assert_true(report.average / report.rate / 8192 > 0.999);
	assert_true(report.average / report.rate / 8192 < 1.001);
}

static void
test_hostile(void **state)
{
	char text[PERFTEST_VERSION_BYTES + 1];
	uint8_t m[PERFTEST_MESSAGE_BYTES];

	memset(m, 0xff, sizeof(m));
	assert_true(perftest_get_version(m, text) < 0);
	assert_int_equal(perftest_get_mtu(m), 0);
	memset(m, 0, sizeof(m));
	assert_true(perftest_get_version(m, text) < 0);
	assert_int_equal(perftest_get_mtu(m), 0);
	memset(m, '9', sizeof(m));
	assert_int_equal(perftest_get_version(m, text), 0);
	assert_int_equal(strlen(text), PERFTEST_VERSION_BYTES);
	assert_int_equal(perftest_get_mtu(m), 0);
}

static void
test_mtu(void **state)
{
	uint8_t m[PERFTEST_MTU_BYTES];

	for (uint16_t mtu = 256; mtu <= 4096; mtu *= 2) {
		perftest_put_mtu(m, mtu);
		assert_int_equal(perftest_get_mtu(m), mtu);
	}
}

/* Datagrams of a capture begin with their IPv4 header; the bytes before it are undefined. */
static void
test_grh(void **state)
{
	struct sockaddr_storage address;
	char text[RDMA_ADDRESS_LEN];
	uint8_t grh[40];

	memset(grh, 0x60, sizeof(grh));
	grh[20] = 0x45;
	grh[29] = 17;
	memcpy(&grh[32], "\x0a\x63\x00\x02", 4);
	assert_int_equal(address_of_grh(grh, &address), 0);
	assert_string_equal(rdma_address_text((struct sockaddr *)&address, text), "10.99.0.2");
	grh[20] = 0;
	memcpy(&grh[8], "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
	assert_int_equal(address_of_grh(grh, &address), 0);
	assert_string_equal(rdma_address_text((struct sockaddr *)&address, text), "fd00::1");
	memset(grh, 0, sizeof(grh));
	assert_true(address_of_grh(grh, &address) < 0);
}

/* Parse a command line of the mode; words are separated by blanks. */
static enum options_result
parse(const struct mode *mode, struct target *target, const char *line)
{
	static char text[256]; /* option values point into it */
	char *words[16], *next = text;
	int n = 0;

	snprintf(text, sizeof(text), "mode %s", line);
	while ((words[n] = strsep(&next, " ")))
		n++;
	*target = (struct target){0};
	return mode->parse(n, words, target);
}

static void
test_options(void **state)
{
	static const char *const wrong[] = {"-s 4x", "-s -1", "-s 4294967296", "-p 70000", "-p 0",
		"--unknown", "host", "1.2.3.4 1.2.3.5", "-c XY", "-c UD", "-m 1000", "-n"};
	struct target target;
	unsigned int i;

	assert_int_equal(parse(&perftest_write_bw, &target, "-d roce:port=0 10.0.0.2"), OPTIONS_OK);
	assert_true(target.client);
	assert_string_equal(target.device, "roce:port=0");
	assert_int_equal(target.port, 18515);
	assert_int_equal(ntohs(((struct sockaddr_in *)&target.peer)->sin_port), 18515);
	assert_int_equal(parse(&perftest_send_bw, &target, "-d roce:port=0"), OPTIONS_OK);
	assert_false(target.client);
	assert_int_equal(parse(&perftest_send_bw, &target, "fe80::2 -p 7"), OPTIONS_OK);
	assert_int_equal(target.peer.ss_family, AF_INET6);
	assert_int_equal(ntohs(((struct sockaddr_in6 *)&target.peer)->sin6_port), 7);
	assert_int_equal(parse(&perftest_send_bw, &target, "-c UD"), OPTIONS_OK);
	assert_int_equal(parse(&perftest_read_bw, &target, "-c UC"), OPTIONS_WRONG);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(parse(&perftest_write_bw, &target, wrong[i]), OPTIONS_WRONG);

	assert_int_equal(parse(&rping_mode, &target, "-c"), OPTIONS_WRONG);
	assert_int_equal(parse(&rping_mode, &target, "-s -c -a 1.2.3.4"), OPTIONS_WRONG);
	assert_int_equal(parse(&rping_mode, &target, "-c -a 1.2.3.4 -p 9"), OPTIONS_OK);
	assert_int_equal(ntohs(((struct sockaddr_in *)&target.peer)->sin_port), 9);
	assert_int_equal(parse(&rping_mode, &target, "-s"), OPTIONS_OK);
	assert_int_equal(parse(&cmatose_mode, &target, "-S 0 -s 1.2.3.4"), OPTIONS_OK);
	assert_int_equal(ntohs(((struct sockaddr_in *)&target.peer)->sin_port), 7471);
	assert_int_equal(parse(&mckey_mode, &target, "-s"), OPTIONS_WRONG);
	assert_int_equal(parse(&mckey_mode, &target, "-m 224.1.2.3 -s"), OPTIONS_OK);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conversation),
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_mtu),
		cmocka_unit_test(test_grh),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests_name("rdma_tool", tests, NULL, NULL);
}
