/* SPDX-License-Identifier: BSD-3-Clause */
/* Images are paired with their rows of `frames`, in the order of frame numbers. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gk_abi.h"
#include "selection.h"

#define ALL                                                   \
	(&(const struct selection_filter){.last = UINT64_MAX, \
		.verdicts = 1u << FRAME_HIT | 1u << FRAME_PRESCALED | 1u << FRAME_DRY_RUN})

static struct selection_row
frame(uint64_t number, uint32_t set, uint32_t row, uint8_t verdict)
{
	return (struct selection_row){
		.frame = number, .set = set, .row = row, .verdict = verdict, .kind = GK_KIND_IMAGE};
}

static struct selection_row
image(uint64_t number, uint32_t set, uint32_t row, uint8_t kind)
{
	return (struct selection_row){.frame = number, .set = set, .row = row, .kind = kind};
}

#define JOIN(s, filter, frames, images)                                                        \
	assert_int_equal(selection_join(s, filter, frames, sizeof(frames) / sizeof(frames[0]), \
				 images, sizeof(images) / sizeof(images[0])),                  \
		0)

/* Stores have images and rows in any order. */
static void
test_order_is_that_of_frame_numbers(void **state)
{
	struct selection_row frames[] = {frame(9, 0, 0, FRAME_HIT), frame(2, 1, 0, FRAME_HIT),
		frame(5, 1, 1, FRAME_PRESCALED)};
	struct selection_row images[] = {image(5, 0, 0, GK_KIND_RAW), image(9, 0, 1, GK_KIND_IMAGE),
		image(2, 1, 0, GK_KIND_IMAGE)};
	struct selection s;

	JOIN(&s, ALL, frames, images);
	assert_int_equal(s.nb, 3);
	assert_int_equal(s.image[0].image.frame, 2);
	assert_int_equal(s.image[1].image.frame, 5);
	assert_int_equal(s.image[1].info.set, 1);
	assert_int_equal(s.image[1].info.row, 1);
	assert_int_equal(s.image[2].image.frame, 9);
	assert_int_equal(s.kinds[GK_KIND_IMAGE], 2);
	assert_int_equal(s.kinds[GK_KIND_RAW], 1);
	assert_int_equal(s.lost + s.orphans, 0);
	selection_only(&s, 1u << GK_KIND_RAW);
	assert_int_equal(s.nb, 1);
	assert_int_equal(s.image[0].image.frame, 5);
	selection_free(&s);
}

/* A detector that starts again repeats its numbers. */
static void
test_repeated_numbers_are_paired_in_order(void **state)
{
	struct selection_row frames[] = {
		frame(1, 0, 7, FRAME_HIT), frame(1, 1, 3, FRAME_PRESCALED)};
	struct selection_row images[] = {
		image(1, 1, 4, GK_KIND_IMAGE), image(1, 0, 2, GK_KIND_IMAGE)};
	struct selection s;

	JOIN(&s, ALL, frames, images);
	assert_int_equal(s.nb, 2);
	assert_int_equal(s.image[0].image.set, 0);
	assert_int_equal(s.image[0].info.row, 7);
	assert_int_equal(s.image[1].image.set, 1);
	assert_int_equal(s.image[1].info.row, 3);
	selection_free(&s);
}

/* Batches of either table may be damaged, or in a store that is not named. */
static void
test_rows_without_a_partner_are_counted(void **state)
{
	struct selection_row frames[] = {
		frame(1, 0, 0, FRAME_HIT), frame(3, 0, 1, FRAME_HIT), frame(8, 0, 2, FRAME_HIT)};
	struct selection_row images[] = {
		image(2, 0, 0, GK_KIND_IMAGE), image(3, 0, 1, GK_KIND_IMAGE)};
	struct selection s;

	JOIN(&s, ALL, frames, images);
	assert_int_equal(s.nb, 2);
	assert_int_equal(s.image[0].image.frame, 2);
	assert_int_equal(s.image[0].info.set, SELECTION_NOWHERE);
	assert_int_equal(s.image[1].info.row, 1);
	assert_int_equal(s.lost, 2);
	assert_int_equal(s.orphans, 1);
	selection_free(&s);
}

static void
test_frames_and_verdicts_are_filtered(void **state)
{
	const struct selection_filter filter = {
		.first = 2, .last = 4, .verdicts = 1u << FRAME_PRESCALED};
	struct selection_row frames[] = {frame(1, 0, 0, FRAME_PRESCALED), frame(2, 0, 1, FRAME_HIT),
		frame(3, 0, 2, FRAME_PRESCALED), frame(4, 0, 3, FRAME_PRESCALED),
		frame(5, 0, 4, FRAME_PRESCALED)};
	struct selection_row images[] = {image(1, 0, 0, GK_KIND_IMAGE),
		image(2, 0, 1, GK_KIND_IMAGE), image(3, 0, 2, GK_KIND_IMAGE),
		image(5, 0, 3, GK_KIND_IMAGE)};
	struct selection s;

	JOIN(&s, &filter, frames, images);
	assert_int_equal(s.nb, 1);
	assert_int_equal(s.image[0].image.frame, 3);
	/* frame 4 has no image; frames 1 and 5 are not selected */
	assert_int_equal(s.lost, 1);
	selection_free(&s);
}

static void
test_nothing_is_an_empty_selection(void **state)
{
	struct selection s;

	assert_int_equal(selection_join(&s, ALL, NULL, 0, NULL, 0), 0);
	assert_int_equal(s.nb, 0);
	selection_free(&s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_is_that_of_frame_numbers),
		cmocka_unit_test(test_repeated_numbers_are_paired_in_order),
		cmocka_unit_test(test_rows_without_a_partner_are_counted),
		cmocka_unit_test(test_frames_and_verdicts_are_filtered),
		cmocka_unit_test(test_nothing_is_an_empty_selection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
