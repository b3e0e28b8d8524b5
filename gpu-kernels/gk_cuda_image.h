/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file The compiled kernels, made by nvcc: code for Hopper, and PTX for other GPUs.
 */
#ifndef GK_CUDA_IMAGE_H
#define GK_CUDA_IMAGE_H

extern const unsigned long long gk_cuda_image[];
/** with the search for peaks */
extern const unsigned long long gk_cuda_search_image[];
/** with the search for peaks and chunks */
extern const unsigned long long gk_cuda_compress_image[];
/** with the search for peaks and radial profiles */
extern const unsigned long long gk_cuda_profile_image[];
/** with the search for peaks, radial profiles and chunks */
extern const unsigned long long gk_cuda_all_image[];

#endif /* GK_CUDA_IMAGE_H */
