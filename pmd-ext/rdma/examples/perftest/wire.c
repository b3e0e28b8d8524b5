/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/wire.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include <rte_byteorder.h>

#define MEBI	  1048576.0
#define MEGA	  1e6
#define FIRST_MTU 256

/* The destination in wire format. */
struct wire_dest {
	uint32_t lid;
	uint32_t out_reads;
	uint32_t qpn;
	uint32_t psn;
	uint32_t rkey;
	uint32_t padding; /* compiler padding in perftest, where it is uninitialised */
	uint64_t vaddr;
	uint8_t gid[16];
	uint32_t srqn;
	uint32_t gid_index;
};

static_assert(sizeof(struct wire_dest) == PERFTEST_DEST_BYTES, "wire format");

size_t
perftest_put_version(uint8_t *m)
{
	memset(m, 0, PERFTEST_VERSION_BYTES);
	memcpy(m, PERFTEST_VERSION, sizeof(PERFTEST_VERSION));
	return PERFTEST_VERSION_BYTES;
}

size_t
perftest_put_word(uint8_t *m, uint32_t word)
{
	word = rte_cpu_to_be_32(word);
	memcpy(m, &word, sizeof(word));
	return sizeof(word);
}

size_t
perftest_put_mtu(uint8_t *m, uint16_t mtu)
{
	m[0] = '1';
	m[1] = '\0';
	for (; mtu > FIRST_MTU; mtu /= 2)
		m[0]++;
	return PERFTEST_MTU_BYTES;
}

size_t
perftest_put_dest(uint8_t *m, const struct perftest_dest *dest)
{
	struct wire_dest wire = {
		.lid = rte_cpu_to_be_32(dest->lid),
		.out_reads = rte_cpu_to_be_32(dest->out_reads),
		.qpn = rte_cpu_to_be_32(dest->qpn),
		.psn = rte_cpu_to_be_32(dest->psn),
		.rkey = rte_cpu_to_be_32(dest->rkey),
		.vaddr = rte_cpu_to_be_64(dest->vaddr),
		.srqn = rte_cpu_to_be_32(dest->srqn),
		.gid_index = rte_cpu_to_be_32(dest->gid_index),
	};

	memcpy(wire.gid, dest->gid, sizeof(wire.gid));
	memcpy(m, &wire, sizeof(wire));
	return sizeof(wire);
}

static size_t
put_u64(uint8_t *m, uint64_t value)
{
	value = rte_cpu_to_be_64(value);
	memcpy(m, &value, sizeof(value));
	return sizeof(value);
}

static size_t
put_double(uint8_t *m, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return put_u64(m, bits);
}

static uint64_t
get_u64(const uint8_t *m)
{
	uint64_t value;

	memcpy(&value, m, sizeof(value));
	return rte_be_to_cpu_64(value);
}

static double
get_double(const uint8_t *m)
{
	uint64_t bits = get_u64(m);
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

size_t
perftest_put_report(uint8_t *m, const struct perftest_report *report, unsigned int field)
{
	switch (field) {
	case 0:
		return put_u64(m, report->size);
	case 1:
		return put_u64(m, report->iterations);
	case 2:
		return put_double(m, report->peak / MEBI);
	case 3:
		return put_double(m, report->average / MEBI);
	default:
		return put_double(m, report->rate / MEGA);
	}
}

void
perftest_get_report(const uint8_t *m, struct perftest_report *report, unsigned int field)
{
	switch (field) {
	case 0:
		report->size = get_u64(m);
		return;
	case 1:
		report->iterations = get_u64(m);
		return;
	case 2:
		report->peak = get_double(m) * MEBI;
		return;
	case 3:
		report->average = get_double(m) * MEBI;
		return;
	default:
		report->rate = get_double(m) * MEGA;
		return;
	}
}

int
perftest_get_version(const uint8_t *m, char *text)
{
	unsigned int i;

	memcpy(text, m, PERFTEST_VERSION_BYTES);
	text[PERFTEST_VERSION_BYTES] = '\0';
	for (i = 0; text[i]; i++)
		if (!isprint((unsigned char)text[i]))
			return -EPROTO;
	return i ? 0 : -EPROTO;
}

uint32_t
perftest_get_word(const uint8_t *m)
{
	uint32_t word;

	memcpy(&word, m, sizeof(word));
	return rte_be_to_cpu_32(word);
}

uint16_t
perftest_get_mtu(const uint8_t *m)
{
	return m[0] >= '1' && m[0] <= '5' && m[1] == '\0' ? FIRST_MTU << (m[0] - '1') : 0;
}

void
perftest_get_dest(const uint8_t *m, struct perftest_dest *dest)
{
	struct wire_dest wire;

	memcpy(&wire, m, sizeof(wire));
	*dest = (struct perftest_dest){
		.lid = rte_be_to_cpu_32(wire.lid),
		.out_reads = rte_be_to_cpu_32(wire.out_reads),
		.qpn = rte_be_to_cpu_32(wire.qpn),
		.psn = rte_be_to_cpu_32(wire.psn),
		.rkey = rte_be_to_cpu_32(wire.rkey),
		.vaddr = rte_be_to_cpu_64(wire.vaddr),
		.srqn = rte_be_to_cpu_32(wire.srqn),
		.gid_index = rte_be_to_cpu_32(wire.gid_index),
	};
	memcpy(dest->gid, wire.gid, sizeof(dest->gid));
}
