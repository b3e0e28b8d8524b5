/* SPDX-License-Identifier: BSD-3-Clause */
/* Instruction sets of host gangs: those built in, and those that the CPU supports. */

#include <errno.h>
#include <stddef.h>

#include "gk_bitshuffle_block.h"
#include "gk_peak_finder.h"
#include "gk_radial_pass.h"
#include "gk_tile.h"

static const char *const names[GK_ISAS] = {
	[GK_ISA_AUTO] = "auto",
	[GK_ISA_PLAIN] = "plain",
	[GK_ISA_AVX2] = "avx2",
	[GK_ISA_AVX512] = "avx512",
};

/* Check CPUID, and that the operating system saves the registers. */
static int
cpu_supports(enum gk_isa isa)
{
	switch (isa) {
	case GK_ISA_PLAIN:
		return 1;
#ifdef GK_SIMD
	case GK_ISA_AVX2:
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
			__builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
	case GK_ISA_AVX512:
		return cpu_supports(GK_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
			__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
			__builtin_cpu_supports("avx512vl");
#endif
	default:
		return 0;
	}
}

const char *
gk_isa_name(enum gk_isa isa)
{
	return (unsigned int)isa < GK_ISAS ? names[isa] : NULL;
}

int
gk_isa_choose(enum gk_isa isa)
{
	if (isa == GK_ISA_AUTO)
		for (isa = GK_ISAS - 1; !cpu_supports(isa); isa--)
			continue;
	return cpu_supports(isa) ? (int)isa : -ENOTSUP;
}

const struct gk_tile_ops *
gk_tile_choose(enum gk_isa isa)
{
	switch (gk_isa_choose(isa)) {
	case GK_ISA_PLAIN:
		return &gk_tile_plain;
#ifdef GK_SIMD
	case GK_ISA_AVX2:
		return &gk_tile_avx2;
	case GK_ISA_AVX512:
		return &gk_tile_avx512;
#endif
	default:
		return NULL;
	}
}

const struct gk_peak_ops *
gk_peak_choose(enum gk_isa isa)
{
	switch (gk_isa_choose(isa)) {
	case GK_ISA_PLAIN:
		return &gk_peak_plain;
#ifdef GK_SIMD
	case GK_ISA_AVX2:
		return &gk_peak_avx2;
	case GK_ISA_AVX512:
		return &gk_peak_avx512;
#endif
	default:
		return NULL;
	}
}

const struct gk_radial_ops *
gk_radial_choose(enum gk_isa isa)
{
	switch (gk_isa_choose(isa)) {
	case GK_ISA_PLAIN:
		return &gk_radial_plain;
#ifdef GK_SIMD
	case GK_ISA_AVX2:
		return &gk_radial_avx2;
	case GK_ISA_AVX512:
		return &gk_radial_avx512;
#endif
	default:
		return NULL;
	}
}

const struct gk_bitshuffle_ops *
gk_bitshuffle_choose(enum gk_isa isa)
{
	switch (gk_isa_choose(isa)) {
	case GK_ISA_PLAIN:
		return &gk_bitshuffle_plain;
#ifdef GK_SIMD
	case GK_ISA_AVX2:
		return &gk_bitshuffle_avx2;
	case GK_ISA_AVX512:
		return &gk_bitshuffle_avx512;
#endif
	default:
		return NULL;
	}
}
