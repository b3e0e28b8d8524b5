/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_WIRE_H
#define PERFTEST_WIRE_H

/**
 * @file
 * The messages with which two perftest programs exchange their parameters (perftest 6.06 with -R,
 * as in Debian 12; taken from captures). Integers are big endian. Every message is one SEND. The
 * client sends first and the server answers with the same message.
 *
 *     version        16  text, zero padded
 *     cycle buffer    4  size in bytes of the buffer that small messages cycle through
 *     cache line      4
 *     MTU             2  text: code of the path MTU, "1" to "5"
 *     destination    56  blank, before and after the measured connections are made; of each queue
 *                        pair; of the first (SEND and latency), of each, of the first (WRITE,
 *                        READ, atomics; SEND and latency when receives are posted)
 *     report          8  five times: bytes, iterations, peak, average, message rate;
 *                        of the client; not for SEND and latencies
 *     destination    56  end of the run
 */

#include <stddef.h>
#include <stdint.h>

#define PERFTEST_VERSION       "6.06"
#define PERFTEST_VERSION_BYTES 16
#define PERFTEST_WORD_BYTES    4
#define PERFTEST_MTU_BYTES     2
#define PERFTEST_DEST_BYTES    56
#define PERFTEST_REPORT_BYTES  8
#define PERFTEST_REPORT_FIELDS 5
#define PERFTEST_MESSAGE_BYTES 64 /**< large enough for each of them */
#define PERFTEST_CYCLE_BUFFER  4096
#define PERFTEST_CACHE_LINE    64

/** Address of a queue pair. */
struct perftest_dest {
	uint32_t lid; /**< 0 for Ethernet */
	uint32_t out_reads;
	uint32_t qpn;
	uint32_t psn;
	uint32_t rkey;
	uint64_t vaddr;
	uint8_t gid[16];
	uint32_t srqn;
	uint32_t gid_index;
};

/** Result of a measurement. */
struct perftest_report {
	uint64_t size;	      /**< bytes per message */
	uint64_t iterations;  /**< sum over all queue pairs */
	double peak, average; /**< bytes/s; on the wire in the printed unit */
	double rate;	      /**< messages/s; on the wire in millions */
};

/** @return bytes written */
size_t perftest_put_version(uint8_t *m);
size_t perftest_put_word(uint8_t *m, uint32_t word);
size_t perftest_put_mtu(uint8_t *m, uint16_t mtu);
size_t perftest_put_dest(uint8_t *m, const struct perftest_dest *dest);

/** Field 0 to PERFTEST_REPORT_FIELDS - 1, in units of MiB/s. @return bytes written */
size_t perftest_put_report(uint8_t *m, const struct perftest_report *report, unsigned int field);

/** @param text room for PERFTEST_VERSION_BYTES + 1 @return 0; -EPROTO: not a text */
int perftest_get_version(const uint8_t *m, char *text);
uint32_t perftest_get_word(const uint8_t *m);

/** @return bytes, 256 to 4096; 0: invalid */
uint16_t perftest_get_mtu(const uint8_t *m);
void perftest_get_dest(const uint8_t *m, struct perftest_dest *dest);
void perftest_get_report(const uint8_t *m, struct perftest_report *report, unsigned int field);

#endif
