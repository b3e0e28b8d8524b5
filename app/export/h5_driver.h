/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * HDF5's file driver for files that are written. Chunks of images begin at pages of the file. Those
 * of 64 KiB and more are written with O_DIRECT from where they are in memory, if that is at a page,
 * too, and otherwise from a copy. Through the page cache, a copy of the same bytes takes more CPU
 * time, and the disk waits for it. Other writes are small and go through the page cache, and so do
 * all if a file system refuses O_DIRECT.
 *
 * After H5Fflush() all bytes are in the file. HDF5 1.10.7 or newer; reference: "HDF5 Virtual File
 * Layer" of its documentation, H5FDsec2.c.
 */
#ifndef EXPORT_H5_DRIVER_H
#define EXPORT_H5_DRIVER_H

#include <hdf5.h>

/** Use the driver for files of an access property list. @return negative after an error */
herr_t h5_driver_use(hid_t access);

#endif /* EXPORT_H5_DRIVER_H */
