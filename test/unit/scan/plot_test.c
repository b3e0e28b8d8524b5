/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the plot of a run: that files are valid for any rows, and what is drawn where. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "picture_file.h"
#include "plot.h"
#include "report.h"

#define HIT  0xC0282Cu
#define MISS 0x8098B0u
#define LOST 0xF2CFA0u
#define RATE 0x1858B8u
#define WIDE 1200
#define HIGH 700

static char dir[64];

/* The same rule as report.c's, for frames of runs that are not dark. */
bool
report_is_judged(const struct scan_frame *f)
{
	return f->verdict == FRAME_VETOED || frame_verdict_is_kept(f->verdict);
}

/* Save a plot of rows as PNG and as SVG, check both, and read them back. */
static void
plot(const struct scan_frame *rows, size_t nb, size_t searched, struct picture_file *file,
	char **svg)
{
	struct scan_set set = {.file[ARROW_FRAMES].present = true};
	struct scan_run run = {.name = "r<&\xff",
		.set = &set,
		.nb_sets = 1,
		.nb_frames = nb,
		.nb_searched = searched};
	char path[3][96];
	size_t size;

	/* memory of exactly this size, so that the sanitizer sees a read beyond its end */
	run.frame = malloc(nb * sizeof(*rows));
	assert_non_null(run.frame);
	memcpy(run.frame, rows, nb * sizeof(*rows));
	for (int i = 0; i < 3; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/%d.%s", dir, i, i < 2 ? "png" : "svg");
		assert_int_equal(plot_save(&run, path[i]), 0);
	}
	picture_file_assert_same(path[0], path[1]);
	picture_file_read(path[0], file);
	assert_int_equal(file->width, WIDE);
	assert_int_equal(file->height, HIGH);
	*svg = picture_file_text(path[2], &size);
	picture_file_check_svg(*svg);
	assert_non_null(strstr(*svg, ">r&lt;&amp;\\xff: "));
	assert_non_null(strstr(*svg, ">frame number</text>"));
	assert_non_null(strstr(*svg, ">hit rate (%)</text>"));
	free(run.frame);
}

static struct scan_frame
row(uint64_t frame, enum frame_verdict verdict, uint32_t peaks)
{
	return (struct scan_frame){.frame = frame,
		.verdict = verdict,
		.peaks = peaks,
		.strong_count = 7 * peaks,
		.receive_time = 1700000000000000000 + (int64_t)(frame * 1000000)};
}

static void
one_frame(void **state)
{
	static const enum frame_verdict verdicts[] = {FRAME_HIT, FRAME_VETOED, FRAME_LOST};

	for (unsigned int i = 0; i < 3; i++) {
		const struct scan_frame f = row(5, verdicts[i], 0);
		struct picture_file file;
		char *svg;

		plot(&f, 1, 1, &file, &svg);
		/* dots of data are more than those of the legend */
		assert_true(picture_file_count(&file, HIT) > (i == 0 ? 40 : 20));
		assert_true(i == 2 ? picture_file_count(&file, LOST) > 300
				   : picture_file_count(&file, LOST) == 0);
		assert_non_null(strstr(svg, ">5</text>"));
		assert_null(strstr(svg, "time since"));
		free(file.dot);
		free(svg);
	}
}

/* A run of hits in its second half: the mean is drawn low, then high. */
static void
hits_and_misses(void **state)
{
	struct scan_frame f[400];
	struct picture_file file;
	unsigned int left = 0, right = 0;
	char *svg;

	for (unsigned int i = 0; i < 400; i++)
		f[i] = i < 200 ? row(i + 1, FRAME_VETOED, 0) : row(i + 1, FRAME_HIT, 40);
	f[100].verdict = FRAME_INCOMPLETE;
	plot(f, 400, 200, &file, &svg);
	assert_non_null(strstr(svg, ">Bragg peaks per frame</text>"));
	assert_non_null(strstr(svg, ">time since the first frame (ms)</text>"));
	assert_non_null(strstr(svg, ">mean of 20 frames, 95 % interval</text>"));
	assert_non_null(strstr(svg, ">not judged</text>"));
	assert_non_null(strstr(svg, ">100</text>"));
	assert_true(picture_file_count(&file, LOST) > 400);
	for (unsigned int y = 440; y < 634; y++) {
		for (unsigned int x = 104; x < WIDE; x++) {
			if (file.dot[y * WIDE + x] != RATE)
				continue;
			left += x < 620 && y < 540;
			right += x > 660 && y < 540;
		}
	}
	assert_int_equal(left, 0);
	assert_true(right > 500);
	free(file.dot);
	free(svg);
	/* without a search, strong pixels are plotted */
	plot(f, 400, 0, &file, &svg);
	assert_non_null(strstr(svg, ">strong pixels per frame</text>"));
	free(file.dot);
	free(svg);
}

/* Numbers of frames, counts and times may have any value. */
static void
extreme_values(void **state)
{
	const struct scan_frame rows[][3] = {
		{{.frame = 0}, {.frame = UINT64_MAX / 2, .receive_time = INT64_MIN},
			{.frame = UINT64_MAX,
				.verdict = FRAME_HIT,
				.peaks = UINT32_MAX - 1,
				.receive_time = INT64_MAX,
				.strong_count = UINT32_MAX}},
		{{.frame = UINT64_MAX - 2, .receive_time = 5},
			{.frame = UINT64_MAX - 1, .receive_time = 5},
			{.frame = UINT64_MAX, .receive_time = 6}},
		{{.frame = UINT64_MAX}, {.frame = UINT64_MAX}, {.frame = UINT64_MAX}},
		/* times that fall, a frame number twice, and unknown verdicts */
		{{.frame = 1, .receive_time = 9000000000}, {.frame = 1, .verdict = 200},
			{.frame = 3, .receive_time = 1, .peaks = FRAME_NO_SEARCH, .kind = 77}},
	};
	struct picture_file file;
	char *svg;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int searched = 0; searched < 2; searched++) {
			plot(rows[i], 3, searched, &file, &svg);
			free(file.dot);
			free(svg);
		}
	}
}

/* The size of SVG does not grow with the number of frames. */
static void
many_frames(void **state)
{
	const size_t nb = 300000;
	struct scan_frame *f = malloc(nb * sizeof(*f));
	struct picture_file file;
	char *svg;

	assert_non_null(f);
	for (size_t i = 0; i < nb; i++)
		f[i] = row(1000 + i, i % 10 ? FRAME_VETOED : FRAME_HIT, i % 10 ? 2 : 40);
	plot(f, nb, nb, &file, &svg);
	assert_true(strlen(svg) < 2 << 20);
	assert_non_null(strstr(svg, ">mean of 1000 frames, 95 % interval</text>"));
	assert_non_null(strstr(svg, ">time since the first frame (min)</text>"));
	assert_true(picture_file_count(&file, HIT) > 1000);
	assert_true(picture_file_count(&file, MISS) > 1000);
	free(file.dot);
	free(svg);
	free(f);
}

static void
errors(void **state)
{
	struct scan_frame f = row(1, FRAME_HIT, 20);
	struct scan_set set = {.file[ARROW_FRAMES].present = true};
	struct scan_run run = {.name = "r", .frame = &f, .set = &set, .nb_sets = 1, .nb_frames = 1};
	char path[96];

	snprintf(path, sizeof(path), "%s/none/x.png", dir);
	assert_int_equal(plot_save(&run, path), -ENOENT);
	snprintf(path, sizeof(path), "%s/x.pdf", dir);
	assert_int_equal(plot_save(&run, path), -EINVAL);
	snprintf(path, sizeof(path), "%s/empty.svg", dir);
	run.nb_frames = 0;
	assert_int_equal(plot_save(&run, path), -EINVAL);
	assert_int_equal(access(path, F_OK), -1);
}

static int
setup(void **state)
{
	strcpy(dir, "/tmp/plot_XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int
teardown(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_frame),
		cmocka_unit_test(hits_and_misses),
		cmocka_unit_test(extreme_values),
		cmocka_unit_test(many_frames),
		cmocka_unit_test(errors),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
