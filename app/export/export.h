/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An export: one run, its images in order, and the files to be written.
 */
#ifndef EXPORT_H
#define EXPORT_H

#include <limits.h>

#include "geometry/geometry.h"
#include "scan/run.h"
#include "selection.h"

struct h5;
struct scan_record;

/**
 * Get the batch of an image with its pixels, whose CRC is correct. The thread of HDF5 calls it, in
 * the order of the images.
 * @param arg     e->load_arg
 * @param image   of the selection
 * @param record  out: a reference, which the caller drops
 * @return 0; -EUCLEAN: the batch is damaged, and the run must be opened again with its CRCs
 *         (e->checked); -ENODATA, -EIO, -ENOMEM, -errno: e->message
 */
typedef int export_load(void *arg, size_t image, struct scan_record **record);

#define EXPORT_MESSAGE_LEN 1024
#define EXPORT_THREADS_MAX 64

struct export
{
	struct scan_run run;
	struct selection images;
	struct geometry *geometry;
	uint32_t *mask;	      /**< [row][column], bits of modules.h; 0: used */
	const char *detector; /**< its name in the run's files */
	char stem[PATH_MAX];  /**< output directory and name of the run */
	uint32_t per_file;    /**< images of a data file */
	uint32_t threads;     /**< that compress images */
	bool raw;	      /**< images are detector words, not photons */
	bool checked;	      /**< the CRCs of all batches were checked */
	export_load *load;    /**< batches.h, or follow_run.h */
	void *load_arg;
	bool overwrite;			  /**< replace files that have other images */
	char message[EXPORT_MESSAGE_LEN]; /**< of a function that failed */
};

/** @return number of data files */
static inline uint32_t
export_files(const struct export *e)
{
	return (e->images.nb + e->per_file - 1) / e->per_file;
}

/** First image of a data file. @param number  of the file, from 0 */
static inline size_t
export_first(const struct export *e, uint32_t number)
{
	return (size_t)number * e->per_file;
}

/** @return number of images of a data file */
static inline size_t
export_count(const struct export *e, uint32_t number)
{
	const size_t rest = e->images.nb - export_first(e, number);

	return rest < e->per_file ? rest : e->per_file;
}

/**
 * Set the stem of the files: output directory and name of the run.
 * @param output  may be e->stem
 * @return 0; -EINVAL: it is too long; printed
 */
int export_set_stem(struct export *e, const char *output, const char *name);

/**
 * Split the stem into the output directory and the name of the run.
 * @param dir  out: "." if the stem has no directory
 * @return the name, a part of e->stem
 */
const char *export_split(const struct export *e, char dir[PATH_MAX]);

/** Whether a name in the output directory is that of the run, followed by `end`. */
bool export_is_file(const struct export *e, const char *name, const char *end);

/**
 * Get the number of a file of the run, which has six digits or more.
 * @param name    in the output directory: RUN, `middle`, number, `end`
 * @return the number, from 1; 0: it is another file
 */
unsigned long export_file_number(
	const struct export *e, const char *name, const char *middle, const char *end);

/** Print a message of two texts. @return -EINVAL */
int export_complain(const char *format, const char *first, const char *second);

/**
 * Lock a directory whose files this process writes (io/dir_lock.h). A file system without locks, as
 * Lustre mounted without `flock`, is reported as a warning.
 * @param name     of the lock file
 * @param wait_ms  as in file_lock()
 * @return a descriptor; -EBUSY: another process has the lock; -EOPNOTSUPP: no lock, continue
 *         without it; -EINVAL: printed
 */
int export_lock(const char *dir, const char *name, unsigned int wait_ms);

/** Request the end of the export. Signal handlers call it. */
void export_stop(int signal);

/** @return the signal that requests the end; 0: none */
int export_stopped(void);

/** Path of a file that is being written. @param path  its final path */
void export_part(const char *path, char part[PATH_MAX]);

/**
 * Give a complete file its final name, which is durable afterwards. An old file is replaced.
 * @return 0; -errno
 */
int export_publish(const char *part, const char *path);

/**
 * End an HDF5 file: close it, and give it its final name. After an error it is removed.
 * @param h     the file at `part`
 * @param part  from export_part()
 * @param ret   0; -errno: writing it has failed
 * @return 0; -errno: `ret`, or e->message
 */
int export_finish(struct export *e, struct h5 *h, const char *part, const char *path, int ret);

#endif /* EXPORT_H */
