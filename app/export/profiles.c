/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk_radial.h>

#include "profiles.h"
#include "scan/radial.h"

#define BLOCK 64 /* images whose profiles are in memory, and in a chunk */

/* Datasets of the centres of bins, with the units of NeXus. */
static const struct {
	const char *name, *units;
} axes[PROFILE_UNITS] = {
	[PROFILE_Q] = {"bin_to_q", "1/angstrom"},
	[PROFILE_D] = {"bin_to_d", "angstrom"},
	[PROFILE_TWO_THETA] = {"bin_to_two_theta", "deg"},
};

enum profile_set {
	MEAN,
	SUM,
	COUNT,
	SETS
};

static const struct {
	const char *name;
	size_t width;
} sets[SETS] = {
	[MEAN] = {"image", sizeof(float)},
	[SUM] = {"sum", sizeof(int64_t)},
	[COUNT] = {"count", sizeof(uint32_t)},
};

/* The profiles of a batch of `frames`. */
struct batch_profiles {
	const struct selection_row *row; /* a row of the batch; NULL: none was opened */
	bool ok;
	struct scan_radial_batch batch;
};

/* Copy the profile of an image to row `i` of a block. Without one there are no pixels. */
static void
copy_profile(const struct export *e, const struct scan_radial *r, const struct selection_row *row,
	struct batch_profiles *b, void *const block[SETS], size_t i)
{
	float *mean = (float *)block[MEAN] + i * r->bins;
	const uint32_t *count = NULL;
	const int64_t *sum = NULL;

	memset((int64_t *)block[SUM] + i * r->bins, 0, r->bins * sizeof(*sum));
	memset((uint32_t *)block[COUNT] + i * r->bins, 0, r->bins * sizeof(*count));
	for (uint32_t bin = 0; bin < r->bins; bin++)
		mean[bin] = gk_radial_mean(0, 0);
	if (row->set == SELECTION_NOWHERE)
		return;
	if (b->row == NULL || b->row->set != row->set || b->row->batch != row->batch)
		b->ok = scan_radial_batch(r, &e->run.set[row->set].file[ARROW_FRAMES].reader,
				row->batch, &b->batch) == 0;
	b->row = row;
	if (!b->ok || !scan_radial_row(&b->batch, row->row, &sum, &count))
		return;
	memcpy((int64_t *)block[SUM] + i * r->bins, sum, r->bins * sizeof(*sum));
	memcpy((uint32_t *)block[COUNT] + i * r->bins, count, r->bins * sizeof(*count));
	for (uint32_t bin = 0; bin < r->bins; bin++)
		mean[bin] = gk_radial_mean((int64_t)((uint64_t)sum[bin] * GK_SUM_SCALE),
			(uint64_t)count[bin] * GK_RADIAL_ONE);
}

static void
put_images(struct h5 *h, hid_t group, const struct export *e, const struct scan_radial *r,
	void *const block[SETS])
{
	const hid_t type[SETS] = {H5T_IEEE_F32LE, H5T_STD_I64LE, H5T_STD_U32LE};
	const hsize_t dims[] = {e->images.nb, r->bins};
	struct batch_profiles b = {0};
	hid_t set[SETS];
	size_t i, k, nb;

	for (k = 0; k < SETS; k++)
		set[k] = h5_dataset(h, group, sets[k].name, type[k], 2, dims, BLOCK);
	for (i = 0; i < e->images.nb && !h->failed; i += nb) {
		nb = e->images.nb - i < BLOCK ? e->images.nb - i : BLOCK;
		for (k = 0; k < nb; k++)
			copy_profile(e, r, &e->images.image[i + k].info, &b, block, k);
		for (k = 0; k < SETS; k++)
			h5_rows(h, sets[k].name, set[k], i, nb, block[k]);
	}
	for (k = 0; k < SETS; k++)
		h5_release(set[k]);
}

int
profiles_put(struct h5 *h, hid_t entry, struct export *e)
{
	void *block[SETS] = {NULL};
	struct scan_radial r;
	hsize_t bins;
	hid_t group;
	int ret;

	ret = scan_radial_open(&r, &e->run);
	if (ret == -ENOENT)
		return 0;
	if (ret == -EBADMSG)
		snprintf(e->message, sizeof(e->message),
			"run %.256s: bins of radial profiles are wrong in its metadata, or differ "
			"between its files; name the files of one run",
			e->run.name);
	if (ret != 0)
		return ret;
	for (size_t k = 0; k < SETS && ret == 0; k++) {
		block[k] = malloc(BLOCK * r.bins * sets[k].width);
		ret = block[k] != NULL ? 0 : -ENOMEM;
	}
	if (ret == 0) {
		bins = r.bins;
		group = h5_group(h, entry, "azint", "NXcollection");
		h5_array(h, group, axes[r.unit].name, H5T_IEEE_F64LE, 1, &bins, 0, r.centre,
			axes[r.unit].units);
		put_images(h, group, e, &r, block);
		h5_release(group);
	}
	for (size_t k = 0; k < SETS; k++)
		free(block[k]);
	scan_radial_close(&r);
	return ret;
}
