/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Facts about detectors that files and messages for other programs require, and that the files of a
 * run do not contain.
 */
#ifndef SCAN_DETECTOR_H
#define SCAN_DETECTOR_H

struct detector_facts {
	const char *name;	 /**< as in [detector] type */
	const char *description; /**< human-readable */
	const char *material;	 /**< of the sensor; DIALS knows Si, CdTe and GaAs */
	double thickness_metres; /**< of the sensor */
};

/** @return NULL: not known */
const struct detector_facts *detector_facts(const char *name);

#endif /* SCAN_DETECTOR_H */
