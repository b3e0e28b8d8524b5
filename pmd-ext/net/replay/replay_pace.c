/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "replay.h"

/* Bytes on the wire in addition to the frame: preamble and start of frame, FCS, inter-packet gap.
 */
#define WIRE_BYTES (8u + 4u + 12u)

/* Limit of a loop: 13 hours at 3 GHz. */
#define LOOP_MAX ((uint64_t)1 << 63)

/* value x cycles / per, in fractions of cycles, rounded up */
static unsigned __int128
parts(unsigned __int128 value, uint64_t cycles, uint64_t per)
{
	const unsigned __int128 whole = (value * cycles) << REPLAY_PACE_SHIFT;

	return (whole + per - 1) / per;
}

/* Sets the duration of a loop. All offsets in it must be smaller. */
static int
set_loop(struct replay_pace *pace, unsigned __int128 loop)
{
	if (loop >= LOOP_MAX)
		return -ERANGE;
	pace->loop = (uint64_t)loop;
	return 0;
}

static int
pace_by_rate(struct replay_pace *pace, uint64_t rate)
{
	const uint64_t hz = rte_get_tsc_hz();

	for (uint32_t i = 0; i < pace->nb_packets; i++)
		pace->offset[i] = (uint64_t)parts(i, hz, rate);
	return set_loop(pace, parts(pace->nb_packets, hz, rate));
}

static int
pace_by_bits(struct replay_pace *pace, uint64_t bps, const struct replay_capture *capture)
{
	const uint64_t hz = rte_get_tsc_hz();
	uint64_t bits = 0;

	for (uint32_t i = 0; i < pace->nb_packets; i++) {
		pace->offset[i] = (uint64_t)parts(bits, hz, bps);
		bits += (replay_capture_packet(capture, i)->len + WIRE_BYTES) * 8u;
	}
	return set_loop(pace, parts(bits, hz, bps));
}

/* Uses the captured time stamps. Between two loops, one mean packet distance passes. */
static int
pace_as_captured(struct replay_pace *pace, double speed, const struct replay_capture *capture)
{
	const double cycles = rte_get_tsc_hz() / 1e9 / speed * (1 << REPLAY_PACE_SHIFT);
	const uint64_t first = replay_capture_packet(capture, 0)->time_ns;
	uint64_t passed = 0, last;

	for (uint32_t i = 0; i < pace->nb_packets; i++) {
		const uint64_t at = replay_capture_packet(capture, i)->time_ns;

		/* time stamps may go backwards: such a packet is due with the one before it */
		if (at > first)
			passed = RTE_MAX(passed, at - first);
		if ((double)passed * cycles >= (double)LOOP_MAX)
			return -ERANGE;
		pace->offset[i] = (uint64_t)((double)passed * cycles);
	}
	if (passed == 0)
		return -ENODATA;
	last = pace->offset[pace->nb_packets - 1];
	if (last < pace->nb_packets)
		return -EDOM;
	return set_loop(pace, (unsigned __int128)last + last / (pace->nb_packets - 1));
}

/* Checks that the packets of a burst take no longer than the burst interval, wherever a burst
 * begins. */
static int
check_bursts(const struct replay_pace *pace, const struct replay_devargs *args)
{
	const uint32_t n = pace->nb_packets;
	uint32_t step = n;

	/* bursts begin at multiples of the greatest common divisor of their size and the loop's */
	for (uint32_t rest = pace->burst; rest != 0;) {
		const uint32_t next = step % rest;

		step = rest;
		rest = next;
	}
	for (uint32_t first = 0; first < n; first += step) {
		const uint64_t last = (uint64_t)first + pace->burst - 1;
		const unsigned __int128 takes =
			replay_pace_plain(pace, last / n, (uint32_t)(last % n)) -
			pace->offset[first];

		if (takes <= pace->every)
			continue;
		REPLAY_LOG(ERR,
			"%s: burst=%u:%" PRIu64 ": packet %u and the %u after it take %.0f ns at "
			"the pace within the burst; expected more nanoseconds, fewer packets or "
			"a faster pace",
			args->name, args->burst, args->burst_ns, first + 1, args->burst - 1,
			(double)takes / (1 << REPLAY_PACE_SHIFT) * 1e9 / rte_get_tsc_hz());
		return -EINVAL;
	}
	return 0;
}

static int
refuse_pace(const struct replay_devargs *args, int error)
{
	const char *why = "the capture would take more than 10 hours";
	char pace[64];

	if (args->rate != 0)
		snprintf(pace, sizeof(pace), "rate=%" PRIu64, args->rate);
	else if (args->bps != 0)
		snprintf(pace, sizeof(pace), "bps=%" PRIu64, args->bps);
	else
		snprintf(pace, sizeof(pace), "speed=%g", args->speed);
	if (error == -ENODATA)
		why = "all packets have the same time stamp";
	else if (error == -EDOM)
		why = "packets would be less than a 65,536th of a TSC cycle apart";
	REPLAY_LOG(ERR, "%s: %s is not possible: %s", args->name, pace, why);
	return -EINVAL;
}

/* Number of packets due at a time in fractions of cycles, without bursts. */
static uint64_t
plain_passed(const struct replay_pace *pace, unsigned __int128 time)
{
	const unsigned __int128 loop = time / pace->loop;
	const uint64_t rest = (uint64_t)(time % pace->loop);
	uint32_t begin = 0, n = pace->nb_packets;

	while (n > 0) {
		const uint32_t half = n / 2;

		if (pace->offset[begin + half] <= rest) {
			begin += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return (uint64_t)loop * pace->nb_packets + begin;
}

uint64_t
replay_pace_passed(const struct replay_pace *pace, uint64_t cycles)
{
	const unsigned __int128 time = (unsigned __int128)cycles << REPLAY_PACE_SHIFT;
	uint64_t number, first;

	if (pace->burst == 0)
		return plain_passed(pace, time);
	number = (uint64_t)(time / pace->every);
	first = number * pace->burst;
	if (pace->loop == 0)
		return first + pace->burst;
	return RTE_MIN(first + pace->burst,
		plain_passed(pace,
			time - (unsigned __int128)number * pace->every +
				replay_pace_plain(pace, first / pace->nb_packets,
					(uint32_t)(first % pace->nb_packets))));
}

int
replay_pace_init(struct replay_pace *pace, const struct replay_devargs *args,
	const struct replay_capture *capture, int socket)
{
	int ret = 0;

	*pace = (struct replay_pace){.nb_packets = capture->nb_packets};
	if (args->rate == 0 && args->bps == 0 && args->speed == 0 && args->burst == 0)
		return 0;
	pace->offset = rte_zmalloc_socket(
		"replay_pace", pace->nb_packets * sizeof(pace->offset[0]), 0, socket);
	if (pace->offset == NULL) {
		REPLAY_LOG(ERR,
			"%s: cannot allocate the times of %u packets, %zu bytes of EAL memory",
			args->name, pace->nb_packets, pace->nb_packets * sizeof(pace->offset[0]));
		return -ENOMEM;
	}
	if (args->rate != 0)
		ret = pace_by_rate(pace, args->rate);
	else if (args->bps != 0)
		ret = pace_by_bits(pace, args->bps, capture);
	else if (args->speed != 0)
		ret = pace_as_captured(pace, args->speed, capture);
	if (ret < 0)
		ret = refuse_pace(args, ret);
	pace->burst = args->burst;
	pace->every = (uint64_t)parts(args->burst_ns, rte_get_tsc_hz(), 1000000000u);
	if (ret == 0 && pace->burst != 0)
		ret = check_bursts(pace, args);
	if (ret < 0)
		replay_pace_fini(pace);
	return ret;
}

void
replay_pace_fini(struct replay_pace *pace)
{
	rte_free(pace->offset);
	pace->offset = NULL;
}
