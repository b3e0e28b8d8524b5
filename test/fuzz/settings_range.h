/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of accepted settings that the rest of the program relies on. */
#ifndef SETTINGS_RANGE_H
#define SETTINGS_RANGE_H

#include <stdlib.h>

#include "frame_record.h"
#include "settings.h"

static inline void
settings_check(const struct settings *s)
{
	const struct detector *d = &s->detector;

	if (d->expected == 0 || d->expected > d->tiles || d->tiles > FRAME_PACKETS_MAX ||
		s->udp_port + d->streams > 65536 || s->slots < 2 || s->slots > FRAME_SLOTS_MAX ||
		s->max_skew_frames >= s->slots || s->rx_lcores > d->streams ||
		s->batch > GK_BATCH_MAX || (s->outputs != 0 && s->outputs < s->batch) ||
		s->nb_ports == 0 || s->frames.offset >= s->frames.stride)
		abort();
	if (gk_peak_params_check(&s->veto.peak, NULL, 0) != 0 ||
		s->veto.params.search > GK_SEARCH_ALL || s->peaks.max > GK_PEAKS_MAX ||
		(s->peaks.known && s->veto.params.peaks_shells >> s->veto.peak.shells != 0))
		abort();
	for (uint32_t i = 0; i < s->nb_ports; i++)
		for (uint32_t k = 0; k < s->ports[i].nb_streams; k++)
			if (s->ports[i].streams[k] >= d->streams)
				abort();
}

#endif /* SETTINGS_RANGE_H */
