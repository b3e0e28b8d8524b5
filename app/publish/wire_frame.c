/* SPDX-License-Identifier: BSD-3-Clause */

#include "wire.h"

#define COLUMNS	     13
#define PEAK_COLUMNS 2

unsigned int
wire_frame_keys(const struct wire_frame *f)
{
	return f == NULL ? 0 : f->searched ? COLUMNS + PEAK_COLUMNS : COLUMNS;
}

static void
put(const struct wire_format *format, void *to, const char *key, uint64_t value)
{
	format->key(to, key);
	format->number(to, value);
}

void
wire_put_frame(const struct wire_format *format, void *to, const struct wire_frame *f)
{
	if (f == NULL)
		return;
	put(format, to, "bunch_id", f->bunch_id);
	put(format, to, "detector_time", f->detector_time);
	format->key(to, "receive_time");
	format->time(to, f->receive_time);
	put(format, to, "exposure", f->exposure);
	put(format, to, "detector_status", f->detector_status);
	put(format, to, "flags", f->flags);
	put(format, to, "strong_count", f->strong_count);
	format->key(to, "sum");
	format->real(to, f->sum);
	put(format, to, "saturated", f->saturated);
	put(format, to, "invalid", f->invalid);
	put(format, to, "verdict", f->verdict);
	put(format, to, "veto_version", f->veto_version);
	put(format, to, "pedestal_version", f->pedestal_version);
	if (!f->searched)
		return;
	put(format, to, "peak_count", f->peaks);
	format->key(to, "shell_peaks");
	format->array(to, f->nb_shells);
	for (uint32_t i = 0; i < f->nb_shells; i++)
		format->number(to, f->shell_peaks[i]);
}
