/* SPDX-License-Identifier: BSD-3-Clause */
/* gk_cuda_bench_kernel.cu, compiled by nvcc. */
#ifndef GK_CUDA_BENCH_IMAGE_H
#define GK_CUDA_BENCH_IMAGE_H

extern const unsigned long long gk_cuda_bench_image[];

#endif /* GK_CUDA_BENCH_IMAGE_H */
