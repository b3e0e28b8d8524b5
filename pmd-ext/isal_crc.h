/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CRCs of ISA-L (isa-l/crc.h), for callers that process packets.
 *
 * Its functions for AVX-512 return with upper halves of vector registers in use. SSE instructions
 * that follow then wait for these registers, also in the caller, until the halves are cleared: on
 * Xeons (Emerald Rapids) this took as long as the CRC of 4 KiB itself.
 */
#ifndef ISAL_CRC_H
#define ISAL_CRC_H

#include <stddef.h>
#include <stdint.h>

#include <isa-l/crc.h>

static inline void
isal_clear_upper_halves(void)
{
#ifdef __x86_64__
	/* constant for a process, so the branch costs nothing */
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroupper");
#endif
}

/** Continue a CRC-32 of Ethernet. Complemented at both ends. */
static inline uint32_t
isal_crc32(uint32_t crc, const void *bytes, size_t length)
{
	crc = crc32_gzip_refl(crc, (const unsigned char *)bytes, length);
	isal_clear_upper_halves();
	return crc;
}

/** Continue a CRC-32C. Complemented at no end. @param length At most INT_MAX bytes. */
static inline uint32_t
isal_crc32c(uint32_t crc, const void *bytes, size_t length)
{
	crc = crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)length, crc);
	isal_clear_upper_halves();
	return crc;
}

#endif /* ISAL_CRC_H */
