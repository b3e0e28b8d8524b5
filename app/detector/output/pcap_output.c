/* SPDX-License-Identifier: BSD-3-Clause */

#include "output/pcap_output.h"

#include <err.h>
#include <errno.h>

#define SNAPSHOT_BYTES 65535
#define NS_PER_S       1000000000u

int
pcap_output_open(struct pcap_output *output, const char *path)
{
	int ret;

	*output = (struct pcap_output){0};
	ret = output_file_open(&output->file, path);
	if (ret != 0)
		return ret;
	output->format = pcap_open_dead_with_tstamp_precision(
		DLT_EN10MB, SNAPSHOT_BYTES, PCAP_TSTAMP_PRECISION_NANO);
	if (output->format != NULL)
		output->dumper = pcap_dump_fopen(output->format, output->file.stream);
	if (output->dumper == NULL) {
		warnx("%s: libpcap cannot create the file: %s", path,
			output->format != NULL ? pcap_geterr(output->format) : "out of memory");
		pcap_output_discard(output);
		return -EIO;
	}
	return 0;
}

int
pcap_output_packet(struct pcap_output *output, uint64_t time, const uint8_t *packet, uint32_t bytes)
{
	struct pcap_pkthdr header = {
		.ts = {.tv_sec = time / NS_PER_S, .tv_usec = time % NS_PER_S},
		.caplen = bytes,
		.len = bytes,
	};

	/* libpcap ignores errors of its fwrite(), but the stream's error flag stays set */
	errno = 0;
	pcap_dump((u_char *)output->dumper, &header, packet);
	return output_file_check(&output->file);
}

int
pcap_output_commit(struct pcap_output *output)
{
	pcap_close(output->format);
	output->format = NULL;
	/* the dumper is the stream, which the output file closes */
	return output_file_commit(&output->file);
}

void
pcap_output_discard(struct pcap_output *output)
{
	if (output->format != NULL)
		pcap_close(output->format);
	output->format = NULL;
	output_file_discard(&output->file);
}
