/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "recovery/damage.h"

/* Get the frame column of a batch. @return false: it is unreadable or missing, or has no rows */
static bool
frames_of(const struct arrow_reader *r, const struct arrow_read_batch *b, struct arrow_column *c)
{
	const int field = arrow_reader_find(r, "frame", ARROW_UINT64, ARROW_UINT64);

	if (field < 0 || arrow_read_column(r, b, field, c) < 0 || c->rows == 0)
		return false;
	arrow_reader_load(r, c->data, sizeof(uint64_t));
	arrow_reader_load(r, (const uint64_t *)c->data + c->rows - 1, sizeof(uint64_t));
	return true;
}

static bool
ascends(const struct arrow_reader *r, const uint64_t *frame, uint64_t rows)
{
	uint64_t i;

	for (i = 1; i < rows; i++) {
		if (i % ARROW_BLOCK == 1)
			arrow_reader_load(r, frame + i - 1, (ARROW_BLOCK + 1) * sizeof(*frame));
		if (frame[i] <= frame[i - 1])
			return false;
	}
	return true;
}

void
arrow_damage_frames(const struct arrow_reader *r, size_t damage, struct arrow_damage_frames *frames)
{
	const struct arrow_read_damage *d = &r->damage[damage];
	struct arrow_damage_frames f = {0};
	struct arrow_column c;
	const uint64_t *frame;

	if (d->before > 0 && frames_of(r, &r->batches[d->before - 1], &c)) {
		f.has_after = true;
		f.first = ((const uint64_t *)c.data)[c.rows - 1];
	}
	if (d->before < r->nb_batches && frames_of(r, &r->batches[d->before], &c)) {
		f.has_before = true;
		f.last = *(const uint64_t *)c.data;
	}
	/* the detector has restarted between the neighbours */
	if (f.has_after && f.has_before && f.first >= f.last)
		f.has_after = f.has_before = false;
	if (d->announced && frames_of(r, &d->batch, &c)) {
		frame = c.data;
		/* a batch with a valid CRC that is only out of order has valid frame numbers */
		if (arrow_read_crc(r, &d->batch) == 1 ||
			(ascends(r, frame, c.rows) && (!f.has_after || frame[0] > f.first) &&
				(!f.has_before || frame[c.rows - 1] < f.last)))
			f = (struct arrow_damage_frames){
				.exact = true, .first = frame[0], .last = frame[c.rows - 1]};
	}
	*frames = f;
}

void
arrow_damage_frames_text(const struct arrow_damage_frames *f, char text[ARROW_DAMAGE_TEXT])
{
	if (f->exact && f->first == f->last)
		snprintf(text, ARROW_DAMAGE_TEXT, "frame %" PRIu64, f->first);
	else if (f->exact)
		snprintf(text, ARROW_DAMAGE_TEXT, "frames %" PRIu64 " to %" PRIu64, f->first,
			f->last);
	else if (f->has_after && f->has_before)
		snprintf(text, ARROW_DAMAGE_TEXT, "frames above %" PRIu64 " and below %" PRIu64,
			f->first, f->last);
	else if (f->has_after)
		snprintf(text, ARROW_DAMAGE_TEXT, "frames above %" PRIu64, f->first);
	else if (f->has_before)
		snprintf(text, ARROW_DAMAGE_TEXT, "frames below %" PRIu64, f->last);
	else
		snprintf(text, ARROW_DAMAGE_TEXT, "frames unknown");
}

static uint64_t
sequence_of(const struct arrow_read_batch *b)
{
	return strtoull(b->sequence, NULL, 16);
}

bool
arrow_damage_sequences(const struct arrow_reader *r, size_t damage, uint64_t *first, uint64_t *last)
{
	const struct arrow_read_damage *d = &r->damage[damage];
	const bool has_before = d->before < r->nb_batches && r->batches[d->before].sequence != NULL;
	uint64_t announced;

	*first = 0;
	if (d->before > 0 && r->batches[d->before - 1].sequence != NULL)
		*first = sequence_of(&r->batches[d->before - 1]) + 1;
	*last = has_before ? sequence_of(&r->batches[d->before]) : UINT64_MAX;
	/* no number is free between the neighbours: the region has no batch of this stream */
	if (*last <= *first)
		return false;
	(*last)--;
	/* any other number belongs to a batch that was written over this one */
	announced = d->announced ? sequence_of(&d->batch) : UINT64_MAX;
	if (*first <= announced && announced <= *last)
		*first = *last = announced;
	else if (!has_before)
		return false;
	return true;
}

bool
arrow_damage_is_end(const struct arrow_reader *r, size_t damage)
{
	return !r->complete && damage + 1 == r->nb_damage &&
		r->damage[damage].before == r->nb_batches;
}

void
arrow_damage_text(const struct arrow_reader *r, size_t damage, char text[ARROW_DAMAGE_TEXT])
{
	const struct arrow_read_damage *d = &r->damage[damage];
	char frames[ARROW_DAMAGE_TEXT], number[64] = "batch with unknown number";
	struct arrow_damage_frames f;
	uint64_t first, last;

	arrow_damage_frames(r, damage, &f);
	arrow_damage_frames_text(&f, frames);
	if (arrow_damage_sequences(r, damage, &first, &last)) {
		if (first == last)
			snprintf(number, sizeof(number), "batch %" PRIu64, first);
		else
			snprintf(number, sizeof(number), "of batches %" PRIu64 " to %" PRIu64,
				first, last);
	}
	snprintf(text, ARROW_DAMAGE_TEXT,
		"damaged: %s at byte %" PRIu64 ", %" PRIu64 " bytes, %.80s: %s", number, d->offset,
		d->length, frames, d->why);
}
