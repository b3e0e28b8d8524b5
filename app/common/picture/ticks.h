/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Ticks of axes. Any thread.
 */
#ifndef TICKS_H
#define TICKS_H

#define TICKS_MAX      16
#define TICKS_TEXT_LEN 32

struct ticks {
	unsigned int nb;
	double value[TICKS_MAX]; /**< rising */
};

/**
 * Choose ticks of a linear axis at multiples of 1, 2 or 5 times a power of ten.
 * @param first, last  finite; if last is not larger, there is at most one tick
 * @param most         largest number of ticks, 1 to TICKS_MAX
 * @param least_step   minimum distance of ticks, such as 1 for counts; 0: any
 */
void ticks_choose(struct ticks *t, double first, double last, unsigned int most, double least_step);

/** Write a value as text: integers below 1e15 in full, others with at most 6 digits. */
void ticks_text(char text[TICKS_TEXT_LEN], double value);

#endif /* TICKS_H */
