/* SPDX-License-Identifier: BSD-3-Clause */
/* A JUNGFRAU capture without content: valid headers, all pixels 0. */
#ifndef BENCH_CAPTURE_H
#define BENCH_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_UDP_PORT	   50000 /* of module 0; those of other modules follow */
#define BENCH_UDP_HEADERS  42	 /* Ethernet, IPv4, UDP */
#define BENCH_SPLIT_AT	   (BENCH_UDP_HEADERS + 48)
#define BENCH_PACKET_BYTES (BENCH_SPLIT_AT + 8192)
#define BENCH_PACKETS	   128 /* of a module and frame */

/*
 * Write frames 1 ... n, packet by packet of all modules in round-robin order, to a new file in
 * $TMPDIR. @return its descriptor; exits if it cannot be written
 */
int bench_capture_write(uint32_t modules, uint32_t frames, char *path, size_t size);

#endif /* BENCH_CAPTURE_H */
