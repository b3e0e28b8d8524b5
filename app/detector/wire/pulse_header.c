/* SPDX-License-Identifier: BSD-3-Clause */

#include "wire/pulse_header.h"

#define TICKS_PER_S 10000000.0 /* of the detector's time stamp */

/* Exposure as a share of the period. */
#define EXPOSURE 0.88

uint32_t
pulse_restarts(const struct pulse_numbering *numbering, uint64_t pulse)
{
	const struct fault_options *faults = numbering->faults;
	uint32_t restarts = 0;

	while (restarts < faults->nb_restarts && faults->restart[restarts].pulse <= pulse)
		restarts++;
	return restarts;
}

uint32_t
pulse_storage_cell(const struct pulse_numbering *numbering, uint64_t pulse)
{
	return (uint32_t)(pulse % numbering->storage_cells);
}

struct jungfrau_frame_header
pulse_header(const struct pulse_numbering *numbering, uint64_t pulse, bool dark)
{
	static const uint32_t forced[] = {
		[JUNGFRAU_DARK_RUN_NONE] = 0,
		[JUNGFRAU_DARK_RUN_G0] = 0,
		[JUNGFRAU_DARK_RUN_G1] = JUNGFRAU_DAQ_FORCED_G1,
		[JUNGFRAU_DARK_RUN_G2] = JUNGFRAU_DAQ_FORCED_G2,
	};
	uint64_t ticks = (uint64_t)(TICKS_PER_S / numbering->rate + 0.5);
	uint32_t restarts = pulse_restarts(numbering, pulse);
	uint64_t number = pulse;

	if (restarts > 0)
		number = numbering->faults->restart[restarts - 1].first + pulse -
			numbering->faults->restart[restarts - 1].pulse;
	return (struct jungfrau_frame_header){
		.number = number,
		.bunch_id = numbering->first_bunch + pulse,
		.timestamp = number * ticks,
		.exposure = (uint32_t)((double)ticks * EXPOSURE),
		.daq_info = JUNGFRAU_DAQ_CHIP_1_1 | forced[numbering->dark_run] |
			JUNGFRAU_DAQ_CELL(pulse_storage_cell(numbering, pulse)) |
			(dark ? JUNGFRAU_DAQ_EXTERNAL_INPUT : 0),
	};
}
