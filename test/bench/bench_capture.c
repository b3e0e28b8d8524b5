/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pcap/pcap.h>

#include "bench_capture.h"

static void
put_be16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value & 0xFF;
}

int
bench_capture_write(uint32_t modules, uint32_t frames, char *path, size_t size)
{
	static uint8_t b[BENCH_PACKET_BYTES];
	struct pcap_pkthdr h = {.caplen = sizeof(b), .len = sizeof(b)};
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 65535);
	const char *tmp = getenv("TMPDIR");
	pcap_dumper_t *out;
	int fd;

	snprintf(path, size, "%s/bench_capture_XXXXXX", tmp != NULL ? tmp : "/tmp");
	fd = mkstemp(path);
	out = fd < 0 ? NULL : pcap_dump_fopen(pcap, fdopen(dup(fd), "wb"));
	if (out == NULL) {
		perror(path);
		exit(1);
	}
	b[12] = 0x08; /* IPv4 */
	b[14] = 0x45;
	put_be16(b + 16, sizeof(b) - 14);
	b[23] = 17;							/* UDP */
	put_be16(b + 24, (uint16_t) ~(0x4500 + (sizeof(b) - 14) + 17)); /* all else is 0 */
	put_be16(b + 38, sizeof(b) - 34);
	b[BENCH_UDP_HEADERS + 46] = 3; /* JUNGFRAU, header version 2 */
	b[BENCH_UDP_HEADERS + 47] = 2;
	for (uint64_t i = 0; i < (uint64_t)frames * BENCH_PACKETS * modules; i++) {
		const uint64_t frame = 1 + i / (BENCH_PACKETS * modules);

		put_be16(b + 36, (uint16_t)(BENCH_UDP_PORT + i % modules));
		memcpy(b + BENCH_UDP_HEADERS, &frame, sizeof(frame));
		b[BENCH_UDP_HEADERS + 12] = (uint8_t)(i / modules % BENCH_PACKETS);
		pcap_dump((u_char *)out, &h, b);
	}
	if (pcap_dump_flush(out) != 0 || ferror(pcap_dump_file(out))) {
		perror(path);
		unlink(path);
		exit(1);
	}
	pcap_dump_close(out);
	pcap_close(pcap);
	return fd;
}
