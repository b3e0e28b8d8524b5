/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/loop.h"

#include <errno.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

/* A sleep may end late by this time; closer to the due time the loop polls. */
#define SLEEP_MARGIN_US 2000
#define SLEEP_US	500

/* After a stop, a port that accepts no packet for this time counts as failed. */
#define STOP_TIMEOUT_S 1

int
transmit_loop_init(struct transmit_loop *loop)
{
	loop->nb_kept = packet_faults_delay(loop->faults) + 1;
	loop->packets = rte_malloc("detector_order",
		packet_faults_room(loop->faults) * sizeof(*loop->packets), RTE_CACHE_LINE_SIZE);
	loop->kept = rte_malloc("detector_kept", loop->nb_kept * sizeof(*loop->kept), 0);
	if (loop->packets == NULL || loop->kept == NULL)
		return -ENOMEM;
	return loop->sender->init(loop);
}

void
transmit_loop_release(struct transmit_loop *loop)
{
	rte_free(loop->packets);
	rte_free(loop->kept);
	if (loop->sender != NULL)
		loop->sender->release(loop);
}

void
transmit_loop_wait(const struct transmit_loop *loop, uint64_t tsc)
{
	const uint64_t margin = rte_get_tsc_hz() / 1000000 * SLEEP_MARGIN_US;

	for (;;) {
		const bool busy = loop->sender->poll != NULL && loop->sender->poll(loop);
		uint64_t now = rte_rdtsc();

		if ((int64_t)(tsc - now) <= 0 || *loop->stop != 0)
			return;
		if (tsc - now > margin && !busy)
			rte_delay_us_sleep(SLEEP_US);
		else
			rte_pause();
	}
}

bool
transmit_loop_keep_trying(struct transmit_loop *loop, uint64_t since)
{
	uint64_t waited = rte_rdtsc() - since;

	if (waited > (*loop->stop != 0 ? STOP_TIMEOUT_S : loop->link_timeout_s) * rte_get_tsc_hz())
		loop->timed_out = true;
	rte_pause();
	return !loop->timed_out;
}

static void
note_lateness(struct transmit_loop *loop, uint64_t due, double period)
{
	int64_t late = (int64_t)(rte_rdtsc() - due);

	if (late <= 0)
		return;
	loop->late_sum += (uint64_t)late;
	loop->late_max = RTE_MAX(loop->late_max, (uint64_t)late);
	loop->report->late_frames += (double)late > period;
}

int
transmit_loop_run(void *argument)
{
	struct transmit_loop *loop = argument;
	struct detector_report *report = loop->report;
	const double hz = (double)rte_get_tsc_hz(), period = hz / loop->rate;
	uint64_t start = rte_rdtsc(), due = start;
	struct frame_outcome outcome;
	uint32_t count;

	for (uint64_t i = 0; i < loop->nb_frames && *loop->stop == 0 && !loop->timed_out; i++) {
		uint64_t pulse = loop->first + i;

		count = packet_faults_frame(loop->faults, pulse, loop->packets, &outcome);
		loop->kept[pulse % loop->nb_kept] = pulse_header(loop->numbering, pulse,
			loop->frames->frame[i % loop->frames->nb_frames].truth.dark);
		/* exact to a cycle for 2^53 cycles, about a month */
		due = start + (uint64_t)((double)i * period);
		transmit_loop_wait(loop, due);
		note_lateness(loop, due, period);
		loop->sender->send(loop, count, due);
		if (loop->sender->end_frame != NULL)
			loop->sender->end_frame(loop, pulse);
		detector_report_frame(report, &outcome);
	}
	count = packet_faults_flush(loop->faults, loop->packets);
	loop->sender->send(loop, count, rte_rdtsc());
	if (loop->sender->finish != NULL)
		loop->sender->finish(loop);

	report->seconds = (double)(rte_rdtsc() - start) / hz;
	report->late_max = (double)loop->late_max / hz;
	report->late_mean =
		report->frames > 0 ? (double)loop->late_sum / hz / (double)report->frames : 0.0;
	report->waited = (double)loop->waited / hz;
	report->credit_waited = (double)loop->credit_waited / hz;
	return 0;
}
