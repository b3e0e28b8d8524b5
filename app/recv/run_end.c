/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include <rte_cycles.h>

#include "counter.h"
#include "pipeline.h"
#include "run_end.h"
#include "rx/rx.h"
#include "settings.h"

/** Packets of a stream after the run's last frame that count: a few may have corrupt numbers. */
#define BEYOND_MIN 8

static const struct rx *
owner_of(const struct run_end *e, uint32_t stream)
{
	return e->pipeline->rx[e->pipeline->table->config.owner[stream]];
}

static uint64_t
count_placed(const struct run_end *e)
{
	uint64_t placed = 0;

	for (uint32_t i = 0; i < e->pipeline->settings->rx_lcores; i++)
		placed += counter_get(&e->pipeline->rx[i]->counters[RX_PLACED]);
	return placed;
}

static void
note(struct run_end *e)
{
	for (uint32_t s = 0; s < e->pipeline->settings->detector.streams; s++) {
		const struct rx *rx = owner_of(e, s);

		e->beyond[s] = counter_get(&rx->beyond[s].packets);
		e->dropped[s] = counter_get(&rx->drops[s].packets);
	}
	for (uint32_t i = 0; i < e->pipeline->settings->rx_lcores; i++)
		e->listened[i] = counter_get(&e->pipeline->rx[i]->frx->listened);
	e->noted = true;
}

void
run_end_begin(struct run_end *e, const struct pipeline *p)
{
	memset(e, 0, sizeof(*e));
	e->pipeline = p;
	e->placed = count_placed(e);
	note(e);
}

/** Return true if packets wait for frames that are not open yet, and may be frames of the run. */
static bool
any_waits(const struct run_end *e)
{
	for (uint32_t i = 0; i < e->pipeline->settings->rx_lcores; i++)
		for (uint32_t s = 0; s < e->pipeline->settings->detector.streams; s++)
			if (__atomic_load_n(&e->pipeline->rx[i]->waiting[s], __ATOMIC_RELAXED) != 0)
				return true;
	return false;
}

/**
 * Return true if most streams have sent packets after the last frame, and fewer have sent others.
 */
static bool
most_are_past(struct run_end *e)
{
	const struct detector *d = &e->pipeline->settings->detector;
	uint32_t expected = 0, past = 0, others = 0;

	for (uint32_t s = 0; s < d->streams; s++) {
		const struct rx *rx = owner_of(e, s);

		if (detector_stream_expected(d, s) == 0)
			continue;
		expected++;
		if (counter_get(&rx->beyond[s].packets) - e->beyond[s] >= BEYOND_MIN) {
			past++;
			e->frame = counter_get(&rx->beyond[s].frame);
		} else {
			others += counter_get(&rx->drops[s].packets) != e->dropped[s];
		}
	}
	return detector_are_most(past, others, expected);
}

bool
run_end_check(struct run_end *e)
{
	const uint64_t placed = count_placed(e);
	uint64_t least = UINT64_MAX;

	if (placed != e->placed || any_waits(e)) {
		e->placed = placed;
		e->noted = false;
		e->past = false;
		return false;
	}
	if (!e->noted)
		note(e);
	e->past = most_are_past(e);
	/* time in which an RX role did not poll does not count: packets may have arrived */
	for (uint32_t i = 0; i < e->pipeline->settings->rx_lcores; i++)
		least = RTE_MIN(
			least, counter_get(&e->pipeline->rx[i]->frx->listened) - e->listened[i]);
	return e->past &&
		least / (rte_get_tsc_hz() / 1000) >= e->pipeline->settings->stream_timeout_ms;
}
