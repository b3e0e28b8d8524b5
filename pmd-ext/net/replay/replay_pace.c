/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>

#include <rte_cycles.h>
#include <rte_malloc.h>

#include "replay.h"

/* Preamble and start of frame, FCS, gap between packets: what a link spends beside a frame. */
#define WIRE_BYTES (8u + 4u + 12u)

/* value x cycles / per, in parts of cycles, rounded up */
static uint64_t
parts(unsigned __int128 value, uint64_t cycles, uint64_t per)
{
	const unsigned __int128 whole = (value * cycles) << REPLAY_PACE_SHIFT;

	return (uint64_t)((whole + per - 1) / per);
}

static void
pace_by_rate(struct replay_pace *pace, uint64_t rate)
{
	const uint64_t hz = rte_get_tsc_hz();

	for (uint32_t i = 0; i < pace->nb_packets; i++)
		pace->offset[i] = parts(i, hz, rate);
	pace->loop = parts(pace->nb_packets, hz, rate);
}

static void
pace_by_bits(struct replay_pace *pace, uint64_t bps, const struct replay_capture *capture)
{
	const uint64_t hz = rte_get_tsc_hz();
	uint64_t bits = 0;

	for (uint32_t i = 0; i < pace->nb_packets; i++) {
		pace->offset[i] = parts(bits, hz, bps);
		bits += (replay_capture_packet(capture, i)->len + WIRE_BYTES) * 8u;
	}
	pace->loop = parts(bits, hz, bps);
}

/* From loop to loop the mean distance of packets passes once more. */
static int
pace_as_captured(struct replay_pace *pace, double speed, const struct replay_capture *capture)
{
	const double cycles = rte_get_tsc_hz() / 1e9 / speed * (1 << REPLAY_PACE_SHIFT);
	const uint64_t first = replay_capture_packet(capture, 0)->time_ns;
	uint64_t passed = 0;

	for (uint32_t i = 0; i < pace->nb_packets; i++) {
		const uint64_t at = replay_capture_packet(capture, i)->time_ns;

		/* clocks step back at times: such a packet comes with the one before it */
		if (at > first)
			passed = RTE_MAX(passed, at - first);
		if ((double)passed * cycles >= 0x1p63)
			return -ERANGE;
		pace->offset[i] = (uint64_t)((double)passed * cycles);
	}
	if (passed == 0)
		return -ENODATA;
	pace->loop = pace->offset[pace->nb_packets - 1];
	pace->loop += pace->loop / (pace->nb_packets - 1);
	return 0;
}

/* The same without bursts, in parts of cycles. */
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
		REPLAY_LOG(ERR, "%s: no EAL memory for the times of %u packets, %zu bytes",
			args->files[0], pace->nb_packets,
			pace->nb_packets * sizeof(pace->offset[0]));
		return -ENOMEM;
	}
	if (args->rate != 0)
		pace_by_rate(pace, args->rate);
	else if (args->bps != 0)
		pace_by_bits(pace, args->bps, capture);
	else if (args->speed != 0)
		ret = pace_as_captured(pace, args->speed, capture);
	if (ret < 0) {
		REPLAY_LOG(ERR, "%s: speed=%g is not possible: %s", args->files[0], args->speed,
			ret == -ENODATA ? "all packets have the same time stamp"
					: "the capture would take more than 10 hours");
		goto refuse;
	}
	pace->burst = args->burst;
	pace->every = parts(args->burst_ns, rte_get_tsc_hz(), 1000000000u);
	if (pace->burst != 0 &&
		(unsigned __int128)pace->loop * pace->burst >
			(unsigned __int128)pace->every * pace->nb_packets) {
		REPLAY_LOG(ERR,
			"%s: burst=%u:%" PRIu64 ": so many packets take longer than that at the "
			"pace inside the burst",
			args->files[0], args->burst, args->burst_ns);
		goto refuse;
	}
	return 0;

refuse:
	replay_pace_fini(pace);
	return -EINVAL;
}

void
replay_pace_fini(struct replay_pace *pace)
{
	rte_free(pace->offset);
	pace->offset = NULL;
}
