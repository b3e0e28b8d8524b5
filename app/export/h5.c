/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5.h"
#include "h5_driver.h"

#define GZIP_LEVEL 4
#define RANK_MAX   4

/* The innermost entry of HDF5's stack has the cause, often with the text of errno. */
static herr_t
keep_cause(unsigned int n, const H5E_error2_t *entry, void *arg)
{
	const char **cause = arg;

	if (n == 0)
		*cause = entry->desc;
	return 0;
}

/* Keeps the reason: of a long description of a failed write or read, only the text of errno. */
static void
keep_reason(struct h5 *h, const char *object, const char *cause)
{
	static const char before[] = "error message = '";
	const char *text = cause != NULL ? strstr(cause, before) : NULL;

	if (text != NULL)
		snprintf(h->message, sizeof(h->message), "%.128s: %.*s", object,
			(int)strcspn(text + sizeof(before) - 1, "'"), text + sizeof(before) - 1);
	else
		snprintf(h->message, sizeof(h->message), "%.128s: %.320s", object,
			cause != NULL ? cause : "HDF5 gives no reason");
}

herr_t
h5_check(struct h5 *h, const char *object, herr_t result)
{
	const char *cause = NULL;

	if (result >= 0 || h->failed)
		return result;
	h->failed = true;
	/* the description belongs to the stack, which the next call of HDF5 clears */
	(void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_cause, &cause);
	keep_reason(h, object, cause);
	return result;
}

hid_t
h5_check_id(struct h5 *h, const char *object, hid_t id)
{
	(void)h5_check(h, object, id < 0 ? -1 : 0);
	return id;
}

void
h5_release(hid_t id)
{
	if (id >= 0)
		(void)H5Idec_ref(id);
}

static void
keep_error(struct h5 *h, const char *path, const char *why)
{
	h->failed = true;
	snprintf(h->message, sizeof(h->message), "%.128s: %.320s", path, why);
}

/* Opens a file that exists. HDF5 would wait for the writer of a pipe. */
static void
open_regular(struct h5 *h, const char *path, hid_t access)
{
	const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char same[32];
	struct stat st;

	if (fd < 0) {
		keep_error(h, path, strerror(errno));
		return;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		keep_error(h, path, "it is not a regular file");
	} else {
		/* the file that was checked, even if another one has this name now */
		snprintf(same, sizeof(same), "/proc/self/fd/%d", fd);
		h->file = h5_check_id(h, path, H5Fopen(same, H5F_ACC_RDONLY, access));
	}
	close(fd);
}

static void
open_file(struct h5 *h, const char *path, bool create, uint32_t chunks)
{
	hid_t access, creation;

	memset(h, 0, sizeof(*h));
	h->file = -1;
	/* files are closed here: HDF5's exit handler crashes after a write that failed */
	(void)H5dont_atexit();
	(void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	access = h5_check_id(h, path, H5Pcreate(H5P_FILE_ACCESS));
	/* superblock 0; virtual datasets require the objects of 1.10 */
	h5_check(h, path, H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_V110));
	/* open objects are closed with the file, so that none remains after an error */
	h5_check(h, path, H5Pset_fclose_degree(access, H5F_CLOSE_STRONG));
	/* readers on file systems without locks, and readers of files that grow */
	h5_check(h, path, H5Pset_file_locking(access, false, true));
	if (!h->failed && create) {
		h5_check(h, path, h5_driver_use(access));
		/* created, not opened: the name could be a link to a file of another user */
		(void)unlink(path);
		creation = h5_check_id(h, path, H5Pcreate(H5P_FILE_CREATE));
		/* a node has twice as many entries */
		if (chunks > 0)
			h5_check(h, path, H5Pset_istore_k(creation, chunks / 2 + 1));
		if (!h->failed)
			h->file = h5_check_id(
				h, path, H5Fcreate(path, H5F_ACC_EXCL, creation, access));
		h5_release(creation);
	} else if (!h->failed) {
		open_regular(h, path, access);
	}
	h5_release(access);
}

void
h5_create(struct h5 *h, const char *path)
{
	open_file(h, path, true, 0);
}

void
h5_create_growing(struct h5 *h, const char *path, uint32_t chunks)
{
	open_file(h, path, true, chunks);
}

void
h5_open(struct h5 *h, const char *path)
{
	open_file(h, path, false, 0);
}

int
h5_close(struct h5 *h)
{
	if (h->file >= 0)
		h5_check(h, "closing the file", H5Fclose(h->file));
	h->file = -1;
	return h->failed ? -EIO : 0;
}

hid_t
h5_group(struct h5 *h, hid_t at, const char *name, const char *nx_class)
{
	hid_t group;

	if (h->failed)
		return -1;
	group = h5_check_id(h, name, H5Gcreate2(at, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	h5_attr_text(h, group, "NX_class", nx_class);
	return group;
}

void
h5_link(struct h5 *h, const char *path, hid_t at, const char *name)
{
	if (!h->failed)
		h5_check(
			h, name, H5Lcreate_hard(h->file, path, at, name, H5P_DEFAULT, H5P_DEFAULT));
}

static hid_t
text_type(struct h5 *h, const char *name, const char *text)
{
	hid_t type = h5_check_id(h, name, H5Tcopy(H5T_C_S1));

	if (type >= 0)
		h5_check(h, name, H5Tset_size(type, strlen(text) + 1));
	return type;
}

static void
put_attr(struct h5 *h, hid_t object, const char *name, hid_t type, hid_t space, const void *data)
{
	hid_t attr;

	if (h->failed)
		return;
	attr = h5_check_id(
		h, name, H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
	if (attr >= 0)
		h5_check(h, name, H5Awrite(attr, type, data));
	h5_release(attr);
}

void
h5_attr_text(struct h5 *h, hid_t object, const char *name, const char *text)
{
	hid_t type, space;

	if (h->failed)
		return;
	type = text_type(h, name, text);
	space = h5_check_id(h, name, H5Screate(H5S_SCALAR));
	put_attr(h, object, name, type, space, text);
	h5_release(space);
	h5_release(type);
}

void
h5_attr_value(struct h5 *h, hid_t object, const char *name, hid_t type, const void *value)
{
	hid_t space;

	if (h->failed)
		return;
	space = h5_check_id(h, name, H5Screate(H5S_SCALAR));
	put_attr(h, object, name, type, space, value);
	h5_release(space);
}

void
h5_attr_i32(struct h5 *h, hid_t object, const char *name, int32_t value)
{
	h5_attr_value(h, object, name, H5T_STD_I32LE, &value);
}

void
h5_attr_i32_set(struct h5 *h, hid_t object, const char *name, int32_t value)
{
	hid_t attr;

	if (h->failed)
		return;
	attr = h5_check_id(h, name, H5Aopen(object, name, H5P_DEFAULT));
	if (attr >= 0)
		h5_check(h, name, H5Awrite(attr, H5T_NATIVE_INT32, &value));
	h5_release(attr);
}

void
h5_attr_f64(struct h5 *h, hid_t object, const char *name, const double *value, hsize_t nb)
{
	hid_t space;

	if (h->failed)
		return;
	space = h5_check_id(h, name, H5Screate_simple(1, &nb, NULL));
	put_attr(h, object, name, H5T_IEEE_F64LE, space, value);
	h5_release(space);
}

void
h5_scalar(struct h5 *h, hid_t at, const char *name, hid_t type, const void *data, const char *units)
{
	hid_t space, set = -1;

	if (h->failed)
		return;
	space = h5_check_id(h, name, H5Screate(H5S_SCALAR));
	if (space >= 0)
		set = h5_check_id(h, name,
			H5Dcreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	if (set >= 0)
		h5_check(h, name, H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
	if (units != NULL)
		h5_attr_text(h, set, "units", units);
	h5_release(set);
	h5_release(space);
}

void
h5_text(struct h5 *h, hid_t at, const char *name, const char *text)
{
	hid_t type;

	if (h->failed)
		return;
	type = text_type(h, name, text);
	h5_scalar(h, at, name, type, text, NULL);
	h5_release(type);
}

void
h5_f64(struct h5 *h, hid_t at, const char *name, double value, const char *units)
{
	h5_scalar(h, at, name, H5T_IEEE_F64LE, &value, units);
}

void
h5_i32(struct h5 *h, hid_t at, const char *name, int32_t value)
{
	h5_scalar(h, at, name, H5T_STD_I32LE, &value, NULL);
}

hid_t
h5_dataset(struct h5 *h, hid_t at, const char *name, hid_t type, unsigned int rank,
	const hsize_t *dims, hsize_t chunk)
{
	hsize_t chunks[RANK_MAX];
	hid_t space, create, set = -1;

	if (h->failed)
		return -1;
	space = h5_check_id(h, name, H5Screate_simple(rank, dims, h->growing));
	create = h5_check_id(h, name, H5Pcreate(H5P_DATASET_CREATE));
	if (chunk > 0) {
		memcpy(chunks, dims, rank * sizeof(*dims));
		chunks[0] = chunk < dims[0] || h->growing != NULL ? chunk : dims[0];
		h5_check(h, name, H5Pset_chunk(create, rank, chunks));
		h5_check(h, name, H5Pset_shuffle(create));
		h5_check(h, name, H5Pset_deflate(create, GZIP_LEVEL));
	}
	if (!h->failed)
		set = h5_check_id(h, name,
			H5Dcreate2(at, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT));
	h5_release(create);
	h5_release(space);
	return set;
}

void
h5_rows(struct h5 *h, const char *name, hid_t dataset, hsize_t first, hsize_t nb, const void *data)
{
	hsize_t dims[RANK_MAX], start[RANK_MAX] = {first};
	hid_t file, memory, type;
	int rank;

	if (h->failed || nb == 0)
		return;
	file = h5_check_id(h, name, H5Dget_space(dataset));
	type = h5_check_id(h, name, H5Dget_type(dataset));
	rank = h5_check(h, name, H5Sget_simple_extent_dims(file, dims, NULL));
	dims[0] = nb;
	memory = h5_check_id(h, name, H5Screate_simple(rank, dims, NULL));
	h5_check(h, name, H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, dims, NULL));
	if (!h->failed)
		h5_check(h, name, H5Dwrite(dataset, type, memory, file, H5P_DEFAULT, data));
	h5_release(memory);
	h5_release(type);
	h5_release(file);
}

void
h5_array(struct h5 *h, hid_t at, const char *name, hid_t type, unsigned int rank,
	const hsize_t *dims, hsize_t chunk, const void *data, const char *units)
{
	const hid_t set = h5_dataset(h, at, name, type, rank, dims, chunk);

	if (set < 0)
		return;
	h5_rows(h, name, set, 0, dims[0], data);
	if (units != NULL)
		h5_attr_text(h, set, "units", units);
	h5_release(set);
}
