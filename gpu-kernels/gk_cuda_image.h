/* SPDX-License-Identifier: BSD-3-Clause */
/** @file The compiled kernels: code for Hopper, PTX for what is older or newer. Made by nvcc. */
#ifndef GK_CUDA_IMAGE_H
#define GK_CUDA_IMAGE_H

extern const unsigned long long gk_cuda_image[];

#endif /* GK_CUDA_IMAGE_H */
