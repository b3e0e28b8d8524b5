/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "data_file.h"
#include "scan/images.h"

#define BLOCK 64 /* images whose lists of peaks are in memory, and in a chunk */

/* Columns of `frames` that are exported, with the units of NeXus. */
static const struct {
	const char *name;
	enum arrow_type type;
	const char *units;
} frame_columns[] = {
	{"bunch_id", ARROW_UINT64, NULL},
	{"detector_time", ARROW_UINT64, "100 ns"},
	{"receive_time", ARROW_TIMESTAMP_NS, "ns since 1970-01-01T00:00:00Z"},
	{"exposure", ARROW_UINT32, "100 ns"},
	{"detector_status", ARROW_UINT32, NULL},
	{"flags", ARROW_UINT32, NULL},
	{"strong_count", ARROW_UINT32, NULL},
	{"sum", ARROW_FLOAT64, "photons"},
	{"saturated", ARROW_UINT32, NULL},
	{"invalid", ARROW_UINT32, NULL},
	{"verdict", ARROW_UINT8, NULL},
	{"veto_version", ARROW_UINT32, NULL},
	{"pedestal_version", ARROW_UINT32, NULL},
};

/* Datasets of the lists of peaks. The first four have names of CXI, which CrystFEL reads. */
static const struct {
	const char *name;
	enum arrow_type item;
} peak_lists[SCAN_PEAK_LISTS] = {
	[SCAN_PEAK_FS] = {"peakXPosRaw", ARROW_FLOAT32},
	[SCAN_PEAK_SS] = {"peakYPosRaw", ARROW_FLOAT32},
	[SCAN_PEAK_INTENSITY] = {"peakTotalIntensity", ARROW_FLOAT32},
	[SCAN_PEAK_SNR] = {"peakSNR", ARROW_FLOAT32},
	[SCAN_PEAK_BACKGROUND] = {"peakBackground", ARROW_FLOAT32},
	[SCAN_PEAK_PIXELS] = {"peakNPixels", ARROW_UINT32},
	[SCAN_PEAK_PANEL] = {"peakPanel", ARROW_UINT16},
};

/* The peaks of a batch. */
struct batch_peaks {
	const struct selection_row *row; /* a row of the batch; NULL: none is open */
	struct scan_peaks peaks;
};

#define NB(array) (sizeof(array) / sizeof((array)[0]))

static hid_t
file_type(enum arrow_type type)
{
	switch (type) {
	case ARROW_UINT8:
		return H5T_STD_U8LE;
	case ARROW_UINT16:
		return H5T_STD_U16LE;
	case ARROW_UINT32:
		return H5T_STD_U32LE;
	case ARROW_UINT64:
		return H5T_STD_U64LE;
	case ARROW_TIMESTAMP_NS:
		return H5T_STD_I64LE;
	case ARROW_FLOAT32:
		return H5T_IEEE_F32LE;
	default:
		return H5T_IEEE_F64LE;
	}
}

void *
columns_read(const struct export *e, const char *name, enum arrow_type type)
{
	const unsigned int width = type == ARROW_TIMESTAMP_NS ? 8 : arrow_type_width(type);
	const struct selection_row *row, *before = NULL;
	const struct arrow_reader *r;
	struct arrow_column column;
	uint8_t *value = calloc(e->images.nb + 1, width);
	bool ok = false;
	int field;
	size_t i;

	for (i = 0; value != NULL && i < e->images.nb; i++) {
		row = &e->images.image[i].info;
		if (row->set == SELECTION_NOWHERE)
			continue;
		if (before == NULL || before->set != row->set || before->batch != row->batch) {
			r = &e->run.set[row->set].file[ARROW_FRAMES].reader;
			field = arrow_reader_find(r, name, type, 0);
			/* 0 for a column that is absent, as in files of older versions */
			ok = field >= 0 && arrow_reader_column(r, row->batch, field, &column) == 0;
		}
		before = row;
		if (ok)
			memcpy(value + i * width,
				(const uint8_t *)column.data + (size_t)row->row * width, width);
	}
	return value;
}

/* Numbers of frames, from the images: an image may have no row in `frames`. */
static int
put_numbers(struct h5 *h, hid_t group, const struct export *e)
{
	const hsize_t nb = e->images.nb;
	uint64_t *frame = malloc((nb + 1) * sizeof(*frame));
	size_t i;

	if (frame == NULL)
		return -ENOMEM;
	for (i = 0; i < nb; i++)
		frame[i] = e->images.image[i].image.frame;
	h5_array(h, group, "frame", H5T_STD_U64LE, 1, &nb, nb, frame, NULL);
	free(frame);
	return 0;
}

int
columns_put_frames(struct h5 *h, hid_t entry, const struct export *e)
{
	const hsize_t nb = e->images.nb;
	hid_t group = h5_group(h, entry, "frames", "NXcollection");
	int ret = put_numbers(h, group, e);
	void *value;
	size_t i;

	if (nb > 0)
		h5_attr_text(h, group, "run", data_file_run_id(e, &e->images.image[0]));
	for (i = 0; ret == 0 && i < NB(frame_columns); i++) {
		value = columns_read(e, frame_columns[i].name, frame_columns[i].type);
		if (value == NULL)
			ret = -ENOMEM;
		else
			h5_array(h, group, frame_columns[i].name, file_type(frame_columns[i].type),
				1, &nb, nb, value, frame_columns[i].units);
		free(value);
	}
	h5_release(group);
	return ret;
}

bool
columns_have_peaks(const struct export *e)
{
	size_t k;

	for (k = 0; k < e->run.nb_sets; k++) {
		if (e->run.set[k].file[ARROW_IMAGES].present &&
			arrow_reader_find(&e->run.set[k].file[ARROW_IMAGES].reader, "peak_fs",
				ARROW_LIST, ARROW_FLOAT32) < 0)
			return false;
	}
	return e->run.nb_sets > 0;
}

/* Finds the lists of an image. @return number of peaks; -EBADMSG */
static int
find_peaks(const struct export *e, const struct selection_row *row, struct batch_peaks *b,
	uint64_t start[SCAN_PEAK_LISTS])
{
	const struct arrow_reader *r = &e->run.set[row->set].file[ARROW_IMAGES].reader;

	if (b->row == NULL || b->row->set != row->set || b->row->batch != row->batch) {
		b->row = NULL;
		if (scan_peaks_open(r, row->batch, &b->peaks) < 0)
			return -EBADMSG;
		b->row = row;
	}
	return scan_peaks_row(&b->peaks, row->row, start);
}

int
columns_count_peaks(struct export *e, int32_t *count)
{
	uint64_t start[SCAN_PEAK_LISTS];
	struct batch_peaks peaks = {0};
	const struct selection_row *row;
	int most = 0;
	size_t i;

	for (i = 0; i < e->images.nb; i++) {
		row = &e->images.image[i].image;
		count[i] = find_peaks(e, row, &peaks, start);
		if (count[i] < 0) {
			snprintf(e->message, sizeof(e->message),
				"%.512s: frame %" PRIu64 ": its lists of peaks are damaged; export "
				"the other frames with --frames",
				e->run.set[row->set].file[ARROW_IMAGES].path, row->frame);
			return -EBADMSG;
		}
		most = count[i] > most ? count[i] : most;
	}
	return most;
}

static int
put_list(struct h5 *h, hid_t group, const struct export *e, size_t list, const int32_t *count,
	hsize_t most)
{
	const unsigned int width = arrow_type_width(peak_lists[list].item);
	const hsize_t dims[] = {e->images.nb, most};
	const char *name = peak_lists[list].name;
	uint8_t *block = malloc(BLOCK * most * width);
	uint64_t start[SCAN_PEAK_LISTS];
	struct batch_peaks peaks = {0};
	size_t i, k, nb;
	hid_t set;

	if (block == NULL)
		return -ENOMEM;
	set = h5_dataset(h, group, name, file_type(peak_lists[list].item), 2, dims, BLOCK);
	for (i = 0; i < e->images.nb && !h->failed; i += nb) {
		nb = e->images.nb - i < BLOCK ? e->images.nb - i : BLOCK;
		memset(block, 0, nb * most * width);
		for (k = 0; k < nb; k++) {
			if (find_peaks(e, &e->images.image[i + k].image, &peaks, start) > 0)
				memcpy(block + k * most * width,
					(const uint8_t *)peaks.peaks.list[list].data +
						start[list] * width,
					(size_t)count[i + k] * width);
		}
		h5_rows(h, name, set, i, nb, block);
	}
	h5_release(set);
	free(block);
	return 0;
}

int
columns_put_peaks(struct h5 *h, hid_t entry, const char *name, struct export *e)
{
	const hsize_t nb = e->images.nb;
	int32_t *count = calloc(nb + 1, sizeof(*count));
	hid_t group = -1;
	size_t list;
	int most, ret = 0;

	if (count == NULL)
		return -ENOMEM;
	most = columns_count_peaks(e, count);
	if (most < 0) {
		free(count);
		return most;
	}
	group = h5_group(h, entry, name, "NXcollection");
	h5_array(h, group, "nPeaks", H5T_STD_I32LE, 1, &nb, nb, count, NULL);
	/* a dimension of 0 is an error in some readers */
	for (list = 0; ret == 0 && list < SCAN_PEAK_LISTS; list++)
		ret = put_list(h, group, e, list, count, most > 0 ? most : 1);
	h5_release(group);
	free(count);
	return ret;
}
