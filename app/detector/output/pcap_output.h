/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes packets to a pcap file in host byte order, with time stamps in nanoseconds.
 */
#ifndef PCAP_OUTPUT_H
#define PCAP_OUTPUT_H

#include <pcap/pcap.h>
#include <stdint.h>

#include "output/output_file.h"

struct pcap_output {
	struct output_file file;
	pcap_t *format;
	pcap_dumper_t *dumper;
};

/** @return 0 or -errno, reported */
int pcap_output_open(struct pcap_output *output, const char *path);

/** Append a packet captured at `time`, nanoseconds since 1970. @return 0 or -errno, reported */
int pcap_output_packet(
	struct pcap_output *output, uint64_t time, const uint8_t *packet, uint32_t bytes);

/** @return 0 or -errno, reported */
int pcap_output_commit(struct pcap_output *output);

/** Does nothing if the output is closed. */
void pcap_output_discard(struct pcap_output *output);

#endif /* PCAP_OUTPUT_H */
