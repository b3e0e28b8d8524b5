/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Header values of the packets of a pulse's frame.
 *
 * Pulses are numbered by the accelerator and continue. The frame number and the time stamp belong
 * to the detector and restart with it.
 */
#ifndef PULSE_HEADER_H
#define PULSE_HEADER_H

#include "wire/fault_options.h"
#include "sim/jungfrau_model.h"
#include "wire/jungfrau_packets.h"

struct pulse_numbering {
	uint64_t first_bunch;	/**< bunch id of pulse 0 */
	double rate;		/**< frames per second */
	uint32_t storage_cells; /**< used in rotation, 1 ... 16 */
	enum jungfrau_dark_run dark_run;
	const struct fault_options *faults; /**< restarts; must outlive this structure */
};

/** Number of restarts up to a pulse. */
uint32_t pulse_restarts(const struct pulse_numbering *numbering, uint64_t pulse);

/** Storage cell of a pulse. */
uint32_t pulse_storage_cell(const struct pulse_numbering *numbering, uint64_t pulse);

/** Header of a pulse's frame. @param dark the frame is recorded without light */
struct jungfrau_frame_header pulse_header(
	const struct pulse_numbering *numbering, uint64_t pulse, bool dark);

#endif /* PULSE_HEADER_H */
