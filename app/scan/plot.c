/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "escaped_text.h"
#include "picture/canvas.h"
#include "io/own_file.h"
#include "plot.h"
#include "report.h"

#define WIDTH  1100
#define HEIGHT 460
#define LEFT   80
#define RIGHT  60
#define TOP    44
#define BOTTOM 48

#define HIT_COLOUR  0xC83232u
#define MISS_COLOUR 0x8098B0u
#define RATE_COLOUR 0x1E64C8u
#define LOST_COLOUR 0xF0D0A0u

struct axes {
	struct canvas *c;
	uint64_t first; /* range of frame numbers */
	uint64_t last;
	double top; /* strong pixel count at the upper edge */
};

static int
x_of(const struct axes *a, uint64_t frame)
{
	const double span = a->last > a->first ? (double)(a->last - a->first) : 1.0;

	return LEFT + (int)((WIDTH - LEFT - RIGHT - 1) * ((double)(frame - a->first) / span));
}

static int
y_of(double share)
{
	return HEIGHT - BOTTOM - (int)lrint((HEIGHT - TOP - BOTTOM) * (share > 1.0 ? 1.0 : share));
}

/* Interval of about `nb` ticks: 1, 2 or 5 times a power of ten. */
static double
tick_step(double span, int nb)
{
	const double step = pow(10.0, floor(log10(span / nb)));
	const double rest = span / nb / step;

	return step * (rest <= 1.0 ? 1.0 : rest <= 2.0 ? 2.0 : rest <= 5.0 ? 5.0 : 10.0);
}

static void
draw_axes(const struct axes *a, const char *title)
{
	struct canvas *c = a->c;
	double step, v;
	char text[32];
	int at;

	canvas_text(c, LEFT, 8, 2, CANVAS_BLACK, title);
	step = tick_step(a->top, 5);
	if (step < 1.0)
		step = 1.0;
	for (v = 0; v <= a->top; v += step) {
		at = y_of(v / a->top);
		canvas_line(c, LEFT, at, WIDTH - RIGHT, at, 0xE4E4E4u);
		snprintf(text, sizeof(text), "%.0f", v);
		canvas_text(
			c, LEFT - 8 - canvas_text_width(1, text), at - 3, 1, CANVAS_BLACK, text);
	}
	for (v = 0; v <= 100; v += 25) {
		snprintf(text, sizeof(text), "%.0f%%", v);
		canvas_text(c, WIDTH - RIGHT + 8, y_of(v / 100) - 3, 1, RATE_COLOUR, text);
	}
	step = tick_step(a->last > a->first ? (double)(a->last - a->first) : 1.0, 8);
	if (step < 1.0)
		step = 1.0;
	for (v = ceil((double)a->first / step) * step; v <= (double)a->last; v += step) {
		at = x_of(a, (uint64_t)v);
		canvas_line(c, at, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 5, CANVAS_BLACK);
		snprintf(text, sizeof(text), "%.0f", v);
		canvas_text(c, at - canvas_text_width(1, text) / 2, HEIGHT - BOTTOM + 9, 1,
			CANVAS_BLACK, text);
	}
	canvas_line(c, LEFT, TOP, LEFT, HEIGHT - BOTTOM, CANVAS_BLACK);
	canvas_line(c, LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, CANVAS_BLACK);
	canvas_text(c, (WIDTH - canvas_text_width(1, "frame number")) / 2, HEIGHT - 20, 1,
		CANVAS_BLACK, "frame number");
}

static void
draw_legend(struct canvas *c, uint64_t window)
{
	char rate[64];
	const struct {
		uint32_t colour;
		const char *text;
	} entry[] = {
		{HIT_COLOUR, "hit"},
		{MISS_COLOUR, "no hit"},
		{LOST_COLOUR, "not judged"},
		{RATE_COLOUR, rate},
	};
	unsigned int i;
	int x = LEFT;

	snprintf(rate, sizeof(rate), "hit rate, mean of %" PRIu64 " frames", window);
	for (i = 0; i < sizeof(entry) / sizeof(entry[0]); i++) {
		canvas_fill(c, x, 31, 8, 6, entry[i].colour);
		canvas_text(c, x + 12, 30, 1, CANVAS_BLACK, entry[i].text);
		x += 28 + canvas_text_width(1, entry[i].text);
	}
}

/* Count that is drawn: peaks if any frame was searched, otherwise strong pixels. */
static uint32_t
count_of(const struct scan_run *run, const struct scan_frame *f)
{
	if (run->nb_searched == 0)
		return f->strong_count;
	return f->peaks != FRAME_NO_SEARCH ? f->peaks : 0;
}

/* Draws misses first, so that they do not cover hits. */
static void
draw_counts(const struct axes *a, const struct scan_run *run, bool hits)
{
	const struct scan_frame *f;
	int x, y;
	size_t i;

	for (i = 0, f = run->frame; i < run->nb_frames; i++, f++) {
		if ((f->verdict == FRAME_HIT) != hits || f->frame < a->first || f->frame > a->last)
			continue;
		x = x_of(a, f->frame);
		if (!report_is_judged(f)) {
			canvas_line(a->c, x, TOP, x, HEIGHT - BOTTOM - 1, LOST_COLOUR);
			continue;
		}
		y = y_of(count_of(run, f) / a->top);
		if (hits)
			canvas_line(a->c, x, HEIGHT - BOTTOM - 1, x, y, 0xF0B8B8u);
		canvas_fill(a->c, x - 1, y - 1, 3, 3, hits ? HIT_COLOUR : MISS_COLOUR);
	}
}

/* Draws the mean of the last `window` judged frames, starting at the first complete window. */
static void
draw_rate(const struct axes *a, const struct scan_run *run, uint64_t window)
{
	const struct scan_frame *oldest = run->frame, *f;
	const struct scan_frame *const end = run->frame + run->nb_frames;
	uint64_t judged = 0, hits = 0;
	int x, y, last_x = -1, last_y = 0;

	for (f = run->frame; f < end; f++) {
		if (!report_is_judged(f) || f->frame < a->first || f->frame > a->last)
			continue;
		judged++;
		hits += f->verdict == FRAME_HIT;
		while (judged > window) {
			judged -= report_is_judged(oldest);
			hits -= oldest->verdict == FRAME_HIT;
			oldest++;
		}
		if (judged < window)
			continue;
		x = x_of(a, f->frame);
		y = y_of((double)hits / judged);
		if (last_x >= 0 && x >= last_x) {
			canvas_line(a->c, last_x, last_y, x, y, RATE_COLOUR);
			canvas_line(a->c, last_x, last_y + 1, x, y + 1, RATE_COLOUR);
		}
		last_x = x;
		last_y = y;
	}
}

int
plot_save(const struct scan_run *run, const char *path)
{
	struct canvas canvas;
	struct axes a = {.c = &canvas, .first = UINT64_MAX, .top = 10.0};
	uint64_t judged = 0, window;
	char title[128];
	size_t i;
	int ret;

	if (run->nb_frames == 0) {
		escaped_line(stderr, "braggline-scan: run %s has no frame; %s not written",
			run->name, path);
		return -EINVAL;
	}
	for (i = 0; i < run->nb_frames; i++) {
		if (run->frame[i].frame < a.first)
			a.first = run->frame[i].frame;
		if (run->frame[i].frame > a.last)
			a.last = run->frame[i].frame;
		if (count_of(run, &run->frame[i]) * 1.05 > a.top)
			a.top = count_of(run, &run->frame[i]) * 1.05;
		judged += report_is_judged(&run->frame[i]);
	}
	window = judged / 20;
	window = window < 20 ? 20 : window > 1000 ? 1000 : window;
	if (window > judged)
		window = judged > 0 ? judged : 1;

	ret = canvas_init(&canvas, WIDTH, HEIGHT, CANVAS_WHITE);
	if (ret < 0)
		goto out;
	snprintf(title, sizeof(title), "%.60s: %s of %zu frames", run->name,
		run->nb_searched > 0 ? "peaks" : "strong pixel count", run->nb_frames);
	draw_axes(&a, title);
	draw_legend(&canvas, window);
	draw_counts(&a, run, false);
	draw_counts(&a, run, true);
	draw_rate(&a, run, window);
	ret = canvas_save(&canvas, path, CANVAS_SMALL);
	canvas_free(&canvas);
out:
	if (ret < 0)
		escaped_line(
			stderr, "braggline-scan: cannot write %s: %s", path, own_file_error(ret));
	return ret;
}
