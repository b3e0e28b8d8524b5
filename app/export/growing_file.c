/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data_file.h"
#include "growing_file.h"
#include "io/own_file.h"

static int
fail(struct export *e, const char *path, const char *why, int ret)
{
	snprintf(e->message, sizeof(e->message), "%.400s: %.600s", path, why);
	return ret;
}

/* A dataset of numbers that grows within one chunk, which has a fixed place. */
static hid_t
create_frames(struct h5 *h, hid_t group, hsize_t most)
{
	const hsize_t none = 0;
	hid_t space, create, set = -1;

	space = h5_check_id(h, "frame", H5Screate_simple(1, &none, &most));
	create = h5_check_id(h, "frame", H5Pcreate(H5P_DATASET_CREATE));
	h5_check(h, "frame", H5Pset_chunk(create, 1, &most));
	if (!h->failed)
		set = h5_check_id(h, "frame",
			H5Dcreate2(group, "frame", H5T_STD_U64LE, space, H5P_DEFAULT, create,
				H5P_DEFAULT));
	h5_release(create);
	h5_release(space);
	return set;
}

int
growing_file_open(struct growing_file *g, struct export *e, uint32_t number)
{
	const size_t first = export_first(e, number);
	char path[PATH_MAX], part[PATH_MAX];
	hid_t entry, data, frames;

	*g = (struct growing_file){.number = number, .open = true, .data = -1, .frames = -1};
	data_file_path(e, number, path);
	export_part(path, part);
	h5_create_growing(&g->h, part, e->per_file);
	entry = h5_group(&g->h, g->h.file, "entry", "NXentry");
	data = h5_group(&g->h, entry, "data", "NXdata");
	frames = h5_group(&g->h, entry, "frames", "NXcollection");
	h5_attr_text(&g->h, data, "signal", "data");
	if (!g->h.failed)
		g->data = data_file_create_images(&g->h, data, e, 0, e->per_file);
	g->frames = create_frames(&g->h, frames, e->per_file);
	h5_attr_i32(&g->h, g->data, "image_nr_low", first + 1);
	h5_attr_i32(&g->h, g->data, "image_nr_high", first);
	h5_attr_text(&g->h, g->data, "run", data_file_run_id(e, &e->images.image[first]));
	h5_release(frames);
	h5_release(data);
	h5_release(entry);
	return g->h.failed ? fail(e, part, g->h.message, -EIO) : 0;
}

static void
put_frames(struct growing_file *g, const struct export *e, size_t first, size_t nb)
{
	uint64_t *frame = malloc(nb * sizeof(*frame));
	size_t i;

	if (frame == NULL) {
		h5_check(&g->h, "frame: out of memory", -1);
		return;
	}
	for (i = 0; i < nb; i++)
		frame[i] = e->images.image[first + i].image.frame;
	h5_rows(&g->h, "frame", g->frames, g->nb, nb, frame);
	free(frame);
}

static void
ignore(uint64_t bytes)
{
}

static void
set_size(struct growing_file *g, const struct export *e, hsize_t nb)
{
	const hsize_t dims[] = {nb, e->run.rows, e->run.cols};

	h5_check(&g->h, "data", H5Dset_extent(g->data, dims));
	h5_check(&g->h, "frame", H5Dset_extent(g->frames, &nb));
}

int
growing_file_add(struct growing_file *g, struct export *e, size_t nb)
{
	const size_t first = export_first(e, g->number) + g->nb;
	char path[PATH_MAX], part[PATH_MAX];
	struct h5 *h = &g->h;
	size_t done = 0;
	int ret = 0, published;

	data_file_path(e, g->number, path);
	export_part(path, part);
	set_size(g, e, g->nb + nb);
	if (!h->failed)
		ret = data_file_put_chunks(e, h, g->data, first, nb, g->nb, ignore, &done);
	if (ret < 0)
		set_size(g, e, g->nb + done);
	if (ret < 0 && done == 0)
		return ret;
	put_frames(g, e, first, done);
	h5_attr_i32_set(h, g->data, "image_nr_high", first + done);
	if (!h->failed)
		h5_check(h, "flush", H5Fflush(h->file, H5F_SCOPE_LOCAL));
	/* the first error is the reason */
	if (h->failed)
		return ret < 0 ? ret : fail(e, g->named ? path : part, h->message, -EIO);
	published = g->named ? 0 : export_publish(part, path);
	if (published < 0)
		return ret < 0 ? ret : fail(e, path, strerror(-published), published);
	g->named = true;
	g->nb += done;
	return ret;
}

int
growing_file_close(struct growing_file *g, struct export *e)
{
	char path[PATH_MAX], part[PATH_MAX];
	int fd, ret;

	if (!g->open)
		return 0;
	g->open = false;
	data_file_path(e, g->number, path);
	export_part(path, part);
	h5_release(g->data);
	h5_release(g->frames);
	ret = h5_close(&g->h);
	if (!g->named) {
		(void)unlink(part);
		return ret < 0 ? fail(e, part, g->h.message, ret) : 0;
	}
	if (ret < 0)
		return fail(e, path, g->h.message, ret);
	fd = own_file_open(AT_FDCWD, path, O_RDONLY, 0);
	if (fd < 0)
		return fail(e, path, own_file_error(fd), fd);
	ret = fsync(fd) != 0 ? -errno : 0;
	close(fd);
	return ret < 0 ? fail(e, path, strerror(-ret), ret) : 0;
}
