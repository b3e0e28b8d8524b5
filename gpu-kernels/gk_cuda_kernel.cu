/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The persistent kernel of the cuda implementation: one cooperative launch, with all blocks
 * resident. Block 0 dispatches. The other blocks belong to gangs; neighbouring blocks belong to the
 * same gang.
 */

#include <stddef.h>

#include "gk_cuda_gang.cuh"
#include "gk_cuda_setup.cuh"

extern "C" __global__ void
__launch_bounds__(GK_CUDA_THREADS, GK_CUDA_BLOCKS) gk_cuda_serve(void)
{
	if (blockIdx.x == 0)
		dispatch();
	else
		serve();
}
