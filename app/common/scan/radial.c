/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scan/radial.h"

/* Read the centres of bins, such as `0.1,0.2`. @return 0; -EBADMSG */
static int
read_centres(double *centre, uint32_t bins, const char *text)
{
	char *end;

	for (uint32_t i = 0; i < bins; i++, text = end + 1) {
		centre[i] = strtod(text, &end);
		if (end == text || !(centre[i] >= 0) || *end != (i + 1 < bins ? ',' : '\0'))
			return -EBADMSG;
	}
	return 0;
}

static bool
same_text(const char *a, const char *b)
{
	return a != NULL && strcmp(a, b) == 0;
}

int
scan_radial_open(struct scan_radial *r, const struct scan_run *run)
{
	const struct arrow_reader *first = scan_run_reader(run);
	const char *unit = arrow_reader_meta(first, ARROW_META_RADIAL_UNIT);
	const char *text = arrow_reader_meta(first, ARROW_META_RADIAL_CENTRES);

	if (unit == NULL || text == NULL)
		return -ENOENT;
	*r = (struct scan_radial){.bins = 1};
	while (r->unit < PROFILE_UNITS && strcmp(unit, profile_unit_names[r->unit]) != 0)
		r->unit++;
	for (const char *at = text; (at = strchr(at, ',')) != NULL; at++)
		r->bins++;
	if (r->unit == PROFILE_UNITS || r->bins > GK_PROFILE_BINS_MAX)
		return -EBADMSG;
	for (size_t i = 0; i < run->nb_sets; i++) {
		const struct scan_file *f = &run->set[i].file[ARROW_FRAMES];

		if (f->present &&
			(!same_text(arrow_reader_meta(&f->reader, ARROW_META_RADIAL_UNIT), unit) ||
				!same_text(arrow_reader_meta(&f->reader, ARROW_META_RADIAL_CENTRES),
					text)))
			return -EBADMSG;
	}
	r->centre = malloc(r->bins * sizeof(*r->centre));
	if (r->centre == NULL)
		return -ENOMEM;
	if (read_centres(r->centre, r->bins, text) == 0)
		return 0;
	scan_radial_close(r);
	return -EBADMSG;
}

void
scan_radial_close(struct scan_radial *r)
{
	free(r->centre);
	r->centre = NULL;
}

int
scan_radial_batch(const struct scan_radial *r, const struct arrow_reader *frames, size_t batch,
	struct scan_radial_batch *b)
{
	const int sum = arrow_reader_find(frames, "radial_sum", ARROW_FIXED_LIST, ARROW_INT64);
	const int count = arrow_reader_find(frames, "radial_count", ARROW_FIXED_LIST, ARROW_UINT32);

	b->bins = r->bins;
	if (sum < 0 || count < 0 || arrow_reader_column(frames, batch, sum, &b->sum) < 0 ||
		arrow_reader_column(frames, batch, count, &b->count) < 0 ||
		b->sum.field->list_size != r->bins || b->count.field->list_size != r->bins)
		return -EBADMSG;
	return 0;
}

bool
scan_radial_row(const struct scan_radial_batch *b, uint64_t row, const int64_t **sum,
	const uint32_t **count)
{
	if (arrow_column_is_null(&b->sum, row) || arrow_column_is_null(&b->count, row))
		return false;
	*sum = (const int64_t *)b->sum.data + row * b->bins;
	*count = (const uint32_t *)b->count.data + row * b->bins;
	return true;
}
