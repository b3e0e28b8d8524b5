/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes HDF5 files that other programs open without a repair: superblock 0, no locks, no SWMR.
 * Strings have a fixed length and end with a NUL, which every reader of NeXus files understands.
 *
 * The first error is kept, and later calls do nothing. So a caller writes all objects, and checks
 * once. The caller that opens an object closes it. One thread at a time may call HDF5.
 */
#ifndef EXPORT_H5_H
#define EXPORT_H5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define H5_MESSAGE_LEN 512

/** Filter of bitshuffle, and its options for 16-bit values compressed by LZ4. */
#define H5_BITSHUFFLE 32008

struct h5 {
	hid_t file;
	bool failed;
	char message[H5_MESSAGE_LEN]; /**< object, and what HDF5 says; with `failed` */
	const hsize_t *growing;	      /**< h5_dataset(): largest dimensions; NULL: those it has */
};

/** Create a file; an old one of this name is removed. HDF5's own messages are turned off. */
void h5_create(struct h5 *h, const char *path);

/**
 * As h5_create(), for a dataset that grows while others read it: the index of up to `chunks` chunks
 * is one node, so that a flush changes no structure of the file that readers may be in. Such a file
 * has superblock 1.
 */
void h5_create_growing(struct h5 *h, const char *path, uint32_t chunks);

/** Largest `chunks` of h5_create_growing(). */
#define H5_CHUNKS_MAX 65000

/** Open a regular file for reading. */
void h5_open(struct h5 *h, const char *path);

/** Flush and close the file. @return 0; -EIO: an error of this or an earlier call: h->message */
int h5_close(struct h5 *h);

/** Keep an error if `result` is negative. @return result @{ */
herr_t h5_check(struct h5 *h, const char *object, herr_t result);
hid_t h5_check_id(struct h5 *h, const char *object, hid_t id);
/** @} */

/** Close an object of any type; negative: nothing is done. */
void h5_release(hid_t id);

/** Create a group. @param nx_class  NeXus class @return negative after an error */
hid_t h5_group(struct h5 *h, hid_t at, const char *name, const char *nx_class);

/** Give an object of the file another name. @param path  of the object */
void h5_link(struct h5 *h, const char *path, hid_t at, const char *name);

/** Attributes of an object that is open. @{ */
void h5_attr_text(struct h5 *h, hid_t object, const char *name, const char *text);
void h5_attr_i32(struct h5 *h, hid_t object, const char *name, int32_t value);
/** One value of a type that is also that of `value`. */
void h5_attr_value(struct h5 *h, hid_t object, const char *name, hid_t type, const void *value);
void h5_attr_i32_set(struct h5 *h, hid_t object, const char *name, int32_t value); /**< change */
void h5_attr_f64(struct h5 *h, hid_t object, const char *name, const double *value, hsize_t nb);
/** @} */

/** Scalars. @param units  NULL: none @{ */
void h5_scalar(
	struct h5 *h, hid_t at, const char *name, hid_t type, const void *value, const char *units);
void h5_text(struct h5 *h, hid_t at, const char *name, const char *text);
void h5_f64(struct h5 *h, hid_t at, const char *name, double value, const char *units);
void h5_i32(struct h5 *h, hid_t at, const char *name, int32_t value);
/** @} */

/**
 * Create a dataset.
 * @param chunk  rows of a chunk, which is compressed by gzip; 0: contiguous
 * @return negative after an error
 */
hid_t h5_dataset(struct h5 *h, hid_t at, const char *name, hid_t type, unsigned int rank,
	const hsize_t *dims, hsize_t chunk);

/** Write rows of a dataset: of its first dimension. */
void h5_rows(
	struct h5 *h, const char *name, hid_t dataset, hsize_t first, hsize_t nb, const void *data);

/** Create a dataset and write all of it. @param units  NULL: none */
void h5_array(struct h5 *h, hid_t at, const char *name, hid_t type, unsigned int rank,
	const hsize_t *dims, hsize_t chunk, const void *data, const char *units);

#endif /* EXPORT_H5_H */
