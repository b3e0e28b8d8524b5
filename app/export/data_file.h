/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Data files: RUN_data_000001.h5 and so on. Each has /entry/data/data, one chunk an image, and the
 * frame numbers. A file has its name only when it is complete.
 */
#ifndef EXPORT_DATA_FILE_H
#define EXPORT_DATA_FILE_H

#include "export.h"
#include "h5.h"

/** Path of a data file. @param number  from 0 */
void data_file_path(const struct export *e, uint32_t number, char path[PATH_MAX]);

/**
 * Compare an existing file with the file that would be written.
 * @return 1: the same images; 0: the file does not exist; -EEXIST: it has other images, or is no
 *         such file: e->message says what was found
 */
int data_file_check(struct export *e, uint32_t number);

/**
 * Write a file.
 * @param written  in, out: bytes of chunks, and images, for the display of progress
 * @return 0; -EINTR: export_stopped(), nothing was left; -EUCLEAN (export_load); -EBADMSG, -EIO,
 *         -ENOMEM, -errno: e->message
 */
int data_file_write(struct export *e, uint32_t number, void (*progress)(uint64_t bytes));

/**
 * Search data files with higher numbers than this export has. Programs that list the directory
 * would take them for images of the run.
 * @param remove  remove them; false: they are an error
 * @return 0; -EEXIST, -errno: e->message
 */
int data_file_check_others(struct export *e, bool remove);

/**
 * Create the dataset `data` in a group, and write images.
 * @param first, nb  images of the selection
 * @return 0, errors of `h` are kept there; -EINTR; -EUCLEAN; -EBADMSG, -ENOMEM, -EAGAIN:
 *         e->message
 */
int data_file_put_images(struct export *e, struct h5 *h, hid_t data, size_t first, size_t nb,
	void (*progress)(uint64_t bytes));

/**
 * Create the dataset `data` of nb images, which may grow to `most`.
 * @return negative after an error
 */
hid_t data_file_create_images(
	struct h5 *h, hid_t data, const struct export *e, hsize_t nb, hsize_t most);

/** Put `frames/frame`, the frame numbers of images of the selection, into a group. */
void data_file_put_frames(
	struct h5 *h, hid_t entry, const struct export *e, size_t first, hsize_t nb);

/**
 * Compare the images of a file, by a list of frame numbers, with those of the selection.
 * @param group   that has the identity of the run
 * @param frames  path of the list
 * @return number of images, of which the first nb are the same; 0: no file; -EEXIST: others
 */
ssize_t data_file_same_frames(const struct export *e, const char *path, const char *group,
	const char *frames, size_t first, size_t nb);

/**
 * Check that a file with all images may be replaced: it has the same images of the same run, or
 * does not exist.
 * @param group  of columns_put_frames()
 * @return 0; -EEXIST: e->message
 */
int data_file_check_single(struct export *e, const char *path, const char *group);

/**
 * Write chunks.
 * @param at    place of the first one in the dataset
 * @param done  out: images whose chunks were written, even after an error
 * @return as above
 */
int data_file_put_chunks(struct export *e, struct h5 *h, hid_t set, size_t first, size_t nb,
	size_t at, void (*progress)(uint64_t bytes), size_t *done);

/**
 * Identity of the run of an image: its files may be exported to a directory that has another run's
 * files.
 */
const char *data_file_run_id(const struct export *e, const struct selection_image *image);

/** @return number of images of a file that exists; 0: none, or no such file */
hsize_t data_file_images(const struct export *e, uint32_t number);

#endif /* EXPORT_DATA_FILE_H */
