/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The used part of the ABI of libcufile.so.0, so that building needs neither CUDA nor its headers.
 * cufile_abi_check.c compares it with cufile.h where that is installed.
 *
 * Source: cuFile API reference, GDS 1.13 (CUDA 12.8) to 1.15 (CUDA 13.0).
 */
#ifndef CUFILE_ABI_H
#define CUFILE_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CUFILE_LIBRARY "libcufile.so.0"

/** First error code of cuFile. Read and write return negative codes. */
#define CUFILE_BASE_ERROR 5000

#define CUFILE_HANDLE_TYPE_FD 1

/** Bits of cufile_properties.control_flags. */
#define CUFILE_CONTROL_COMPAT (1u << 1) /**< compatibility mode is allowed */
/** Bits of cufile_properties.status_flags. */
#define CUFILE_STATUS_NVME_P2P (1u << 11)
/** Bits of cufile_properties.feature_flags. */
#define CUFILE_FEATURE_P2P (1u << 4) /**< CUDA 13 */

/** CUfileError_t */
struct cufile_error {
	int code; /**< 0 or CUFILE_BASE_ERROR + n */
	int cuda; /**< CUresult */
};

/** CUfileDrvProps_t */
struct cufile_properties {
	unsigned int nvfs_major; /**< version of nvidia-fs; 0.0: not loaded */
	unsigned int nvfs_minor;
	size_t poll_threshold;
	size_t max_direct_io;
	unsigned int status_flags;
	unsigned int control_flags;
	unsigned int feature_flags;
	unsigned int max_device_cache;
	unsigned int per_buffer_cache;
	unsigned int max_device_pinned;
	unsigned int max_batch_io;
	unsigned int max_batch_timeout_ms;
	uint8_t later[256]; /**< space for members of newer libraries */
};

/** CUfileDescr_t */
struct cufile_descr {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
};

struct cufile_symbols {
	struct cufile_error (*driver_open)(void);
	struct cufile_error (*driver_close)(void);
	struct cufile_error (*get_properties)(struct cufile_properties *properties);
	struct cufile_error (*handle_register)(void **handle, struct cufile_descr *descr);
	void (*handle_deregister)(void *handle);
	struct cufile_error (*buf_register)(const void *base, size_t length, int flags);
	struct cufile_error (*buf_deregister)(const void *base);
	ssize_t (*read)(void *handle, void *base, size_t size, off_t file_offset, off_t offset);
	ssize_t (*write)(
		void *handle, const void *base, size_t size, off_t file_offset, off_t offset);
};

#endif /* CUFILE_ABI_H */
