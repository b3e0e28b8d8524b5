/* SPDX-License-Identifier: BSD-3-Clause */

#include "output/truth_output.h"

int
truth_output_open(struct output_file *file, const char *path)
{
	static const char header[] =
		"frame,hit,peaks,dark,strong_pixels,saturated_pixels,switched_pixels,stray_peaks,"
		"bunch_id,restarts,storage_cell,packets_sent,packets_lost,packets_damaged,"
		"packets_duplicated,packets_reordered\n";

	return output_file_open_csv(file, path, header);
}

int
truth_output_frame(struct output_file *file, const struct pulse_numbering *numbering,
	uint64_t pulse, const struct frame_truth *truth, const struct frame_outcome *outcome)
{
	struct jungfrau_frame_header header = pulse_header(numbering, pulse, truth->dark);
	char line[320];
	int length;

	length = snprintf(line, sizeof(line),
		"%llu,%d,%u,%d,%u,%u,%u,%u,%llu,%u,%u,%u,%u,%u,%u,%u\n",
		(unsigned long long)header.number, truth->hit, truth->peaks, truth->dark,
		truth->pixel_counts.strong, truth->pixel_counts.saturated,
		truth->pixel_counts.switched, truth->strays, (unsigned long long)header.bunch_id,
		pulse_restarts(numbering, pulse), pulse_storage_cell(numbering, pulse),
		outcome->sent, outcome->lost, outcome->damaged, outcome->duplicated,
		outcome->reordered);
	return output_file_write(file, line, (size_t)length);
}
