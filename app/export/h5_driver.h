/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * HDF5's file driver for files that are written. Chunks of images begin at pages of the file. Those
 * of 64 KiB and more are written with O_DIRECT from where they are in memory, if that is at a page,
 * too, and otherwise from a copy. Through the page cache, a copy of the same bytes takes more CPU
 * time, and the disk waits for it. Other writes are small and go through the page cache, and so do
 * all if a file system refuses O_DIRECT.
 *
 * Several chunks are in flight at a time (io/write_queue.h) if their memory is lent to the driver.
 * An index is written when all chunks are in the file. After an error nothing is written any more.
 * While a file is open, it is longer than its data: it has space that is allocated ahead.
 *
 * After H5Fflush() all bytes are in the file. HDF5 1.10.7 or newer; reference: "HDF5 Virtual File
 * Layer" of its documentation, H5FDsec2.c.
 */
#ifndef EXPORT_H5_DRIVER_H
#define EXPORT_H5_DRIVER_H

#include <hdf5.h>

/** Use the driver for files of an access property list. @return negative after an error */
herr_t h5_driver_use(hid_t access);

/**
 * Write a chunk (H5Dwrite_chunk()) and lend its memory until it is in the file.
 * @param file   created with this driver
 * @param place  of the chunk in the dataset
 * @param drop   called once when the memory is no longer needed, at the latest by H5Fclose(); NULL:
 *               the chunk is in the file when this function returns
 * @return negative after an error of this or an earlier chunk. The memory is dropped in any case
 */
herr_t h5_driver_write_chunk(hid_t file, hid_t set, const hsize_t *place, const void *chunk,
	size_t size, void (*drop)(void *memory), void *memory);

/**
 * @return 0; -errno: io_uring is not available, so a file of this process had one write at a time
 */
int h5_driver_ring_error(void);

#endif /* EXPORT_H5_DRIVER_H */
