/* SPDX-License-Identifier: BSD-3-Clause */

#include "output/report.h"

#include <stdio.h>

typedef unsigned long long llu;

void
detector_report_frame(struct detector_report *report, const struct frame_outcome *outcome)
{
	report->frames++;
	report->made += outcome->sent + outcome->lost + outcome->damaged;
	report->placeable += outcome->sent;
	report->whole += outcome->lost == 0 && outcome->damaged == 0;
	report->silent += outcome->sent == 0;
}

static double
per_second(uint64_t count, double seconds)
{
	return seconds > 0.0 ? (double)count / seconds : 0.0;
}

int
detector_report_write(const struct detector_report *report, struct output_file *file)
{
	char text[2048];
	size_t length = 0;

#define PUT(...) length += (size_t)snprintf(text + length, sizeof(text) - length, __VA_ARGS__)
	PUT("[frames]\nsent = %llu\nwhole = %llu\nsilent = %llu\n\n", (llu)report->frames,
		(llu)report->whole, (llu)report->silent);
	PUT("[packets]\nmade = %llu\nplaceable = %llu\nsent = %llu\nbytes = %llu\nevents = %llu\n\n"
	    "[faults]\n",
		(llu)report->made, (llu)report->placeable, (llu)report->sent, (llu)report->bytes,
		(llu)report->events);
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		PUT("%s = %llu\n", fault_kind_names[kind], (llu)report->fault[kind]);
	PUT("\n[port]\nseconds = %.6f\nasked_frame_rate = %.3f\nframe_rate = %.3f\n"
	    "packet_rate = %.1f\ngbit_per_second = %.4f\n",
		report->seconds, report->requested_rate,
		per_second(report->frames, report->seconds),
		per_second(report->sent, report->seconds),
		per_second(report->bytes, report->seconds) * 8e-9);
	PUT("late_frames = %llu\nlate_max_us = %.1f\nlate_mean_us = %.1f\nfull = %llu\n"
	    "waited_us = %.1f\ncredit_waits = %llu\ncredit_waited_us = %.1f\n"
	    "events_again = %llu\nport_packets = %llu\nport_errors = %llu\n",
		(llu)report->late_frames, report->late_max * 1e6, report->late_mean * 1e6,
		(llu)report->full, report->waited * 1e6, (llu)report->credit_waits,
		report->credit_waited * 1e6, (llu)report->events_again, (llu)report->port_packets,
		(llu)report->port_errors);
	PUT("\n[members]\njoined = %llu\nleft = %llu\nremoved = %llu\nrefused = %llu\n"
	    "resent = %llu\n",
		(llu)report->members.joined, (llu)report->members.left,
		(llu)report->members.removed, (llu)report->members.refused,
		(llu)report->members.resent);
#undef PUT
	return output_file_write(file, text, length);
}

void
detector_report_print(const struct detector_report *report, bool multicast)
{
	uint64_t faults = 0;

	fprintf(stderr,
		"braggline-detector: sent %llu frames, %llu packets in %.3f s: %.1f frames/s "
		"(requested %.1f), %.0f packets/s, %.2f Gb/s\n",
		(llu)report->frames, (llu)report->sent, report->seconds,
		per_second(report->frames, report->seconds), report->requested_rate,
		per_second(report->sent, report->seconds),
		per_second(report->bytes, report->seconds) * 8e-9);
	fprintf(stderr,
		"braggline-detector: %llu frames late by more than a period, at most %.0f us, on "
		"average %.0f us; waited %.3f s for the port; %llu port errors\n",
		(llu)report->late_frames, report->late_max * 1e6, report->late_mean * 1e6,
		report->waited, (llu)report->port_errors);
	if (report->credit_waits != 0)
		fprintf(stderr,
			"braggline-detector: waited %llu times, %.3f s, for credits; sent %llu "
			"events again\n",
			(llu)report->credit_waits, report->credit_waited,
			(llu)report->events_again);
	if (multicast)
		fprintf(stderr,
			"braggline-detector: members of all streams: %llu joined, %llu left, %llu "
			"removed, %llu refused; rings full %llu times; %llu packets sent again\n",
			(llu)report->members.joined, (llu)report->members.left,
			(llu)report->members.removed, (llu)report->members.refused,
			(llu)report->full, (llu)report->members.resent);
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		faults += report->fault[kind];
	if (faults == 0)
		return;
	fprintf(stderr, "braggline-detector: faults:");
	for (int kind = 0; kind < FAULT_KINDS; kind++)
		if (report->fault[kind] != 0)
			fprintf(stderr, " %s %llu", fault_kind_names[kind],
				(llu)report->fault[kind]);
	fprintf(stderr, "\n");
}
