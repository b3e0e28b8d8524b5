/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"
#include "io/own_file.h"
#include "picture/drawing.h"
#include "picture/ticks.h"
#include "plot.h"
#include "report.h"

/* Lengths are in dots. */
#define WIDTH	     1200
#define HEIGHT	     700
#define LEFT	     104
#define RIGHT	     24
#define COUNT_TOP    118 /* below title, legend and axis of time */
#define COUNT_HEIGHT 300
#define RATE_TOP     (COUNT_TOP + COUNT_HEIGHT + 24)
#define RATE_HEIGHT  190
#define PLOT_WIDTH   (WIDTH - LEFT - RIGHT)
#define FONT	     18
#define CHARACTER    11 /* width of a digit */

#define BACKGROUND   0xFFFFFFu
#define TEXT	     0x202020u
#define GRID	     0xE0E0E0u
#define HIT_COLOUR   0xC0282Cu
#define MISS_COLOUR  0x8098B0u
#define RATE_COLOUR  0x1858B8u
#define BAND_COLOUR  0xC4D8F4u
#define LOST_COLOUR  0xF2CFA0u
#define LIMIT_COLOUR 0x606060u
#define NORMAL_95    1.959964 /* 95 % of a normal distribution are within this many sigma */
#define NS_PER_S     1e9

/* What is plotted. */
struct plot {
	struct drawing *drawing;
	cairo_t *cr;
	const struct scan_run *run;
	uint64_t first, last; /* range of frame numbers */
	double top;	      /* count at the upper edge */
	double rate_top;      /* hit rate at the upper edge, 0 to 1 */
	uint64_t judged;
	uint64_t window; /* judged frames of a mean */
	bool has_unjudged;
};

/* A point of the hit rate, with its confidence interval; 0 to 1. */
struct rate {
	uint64_t frame;
	double mean, low, high;
};

/* State of a running mean. */
struct running {
	size_t newest, oldest; /* rows */
	uint64_t judged, hits;
};

static double
x_of(const struct plot *p, uint64_t frame)
{
	const double span = p->last > p->first ? (double)(p->last - p->first) : 1.0;

	return LEFT + (PLOT_WIDTH - 1) * ((double)(frame - p->first) / span) + 0.5;
}

static double
y_of(double top, double height, double share)
{
	return top + rint(height * (1 - (share > 1 ? 1 : share))) - 0.5;
}

static struct drawing_font
font_of(enum drawing_align align)
{
	return (struct drawing_font){
		.size = FONT,
		.align = align,
		.colour = TEXT,
		.halo = DRAWING_NO_HALO,
	};
}

/* Count that is plotted: peaks if any frame was searched, otherwise strong pixels. */
static uint32_t
count_of(const struct scan_run *run, const struct scan_frame *f)
{
	if (run->nb_searched == 0)
		return f->strong_count;
	return f->peaks != FRAME_NO_SEARCH ? f->peaks : 0;
}

/* Wilson's interval of the hit probability: it is right for few hits, too. */
static void
set_rate(struct rate *r, uint64_t hits, uint64_t judged)
{
	const double n = judged, share = hits / n, z2 = NORMAL_95 * NORMAL_95;
	const double centre = (share + z2 / (2 * n)) / (1 + z2 / n);
	const double half =
		NORMAL_95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n);

	r->mean = share;
	r->low = fmax(0, centre - half);
	r->high = fmin(1, centre + half);
}

/* Find the next mean of the last `window` judged frames. @return false: there are no more */
static bool
next_rate(const struct plot *p, struct running *s, struct rate *r)
{
	while (s->newest < p->run->nb_frames) {
		const struct scan_frame *f = &p->run->frame[s->newest++];

		if (!report_is_judged(f))
			continue;
		s->judged++;
		s->hits += f->verdict == FRAME_HIT;
		while (s->judged > p->window) {
			const struct scan_frame *old = &p->run->frame[s->oldest++];

			s->judged -= report_is_judged(old);
			s->hits -= old->verdict == FRAME_HIT;
		}
		if (s->judged < p->window)
			continue;
		r->frame = f->frame;
		set_rate(r, s->hits, s->judged);
		return true;
	}
	return false;
}

/* Set ranges and the window. */
static void
measure(struct plot *p)
{
	const struct scan_run *run = p->run;
	struct running s = {0};
	struct rate r;
	double highest = 0;

	p->first = UINT64_MAX;
	p->top = 10;
	for (size_t i = 0; i < run->nb_frames; i++) {
		const struct scan_frame *f = &run->frame[i];

		p->first = f->frame < p->first ? f->frame : p->first;
		p->last = f->frame > p->last ? f->frame : p->last;
		p->top = fmax(p->top, count_of(run, f) * 1.05);
		p->judged += report_is_judged(f);
		p->has_unjudged |= !report_is_judged(f);
	}
	p->window = p->judged / 20;
	p->window = p->window < 20 ? 20 : p->window > 1000 ? 1000 : p->window;
	if (p->window > p->judged)
		p->window = p->judged > 0 ? p->judged : 1;
	while (next_rate(p, &s, &r))
		highest = fmax(highest, r.high);
	p->rate_top = highest > 0 ? fmin(1.05, highest * 1.1) : 1;
}

static void
draw_frame(cairo_t *cr, int top, int height)
{
	drawing_colour(cr, TEXT);
	cairo_set_line_width(cr, 1);
	cairo_rectangle(cr, LEFT - 0.5, top - 0.5, PLOT_WIDTH + 1, height + 1);
	cairo_stroke(cr);
}

/* Draw ticks and lines of a vertical axis. @param scale  of the values in the text */
static void
draw_y_axis(const struct plot *p, int top, int height, double last, double scale, double least_step,
	const char *name)
{
	struct drawing_font font = font_of(DRAWING_RIGHT);
	char text[TICKS_TEXT_LEN];
	struct ticks t;

	ticks_choose(&t, 0, last * scale, height / 45, least_step);
	for (unsigned int i = 0; i < t.nb; i++) {
		const double y = y_of(top, height, t.value[i] / scale / last);

		drawing_line(p->cr, LEFT, y, LEFT + PLOT_WIDTH, y, GRID);
		drawing_line(p->cr, LEFT - 6, y, LEFT, y, TEXT);
		ticks_text(text, t.value[i]);
		drawing_text(p->drawing, LEFT - 10, rint(y + 0.35 * FONT), &font, text);
	}
	font.align = DRAWING_CENTRE;
	font.upwards = true;
	drawing_text(p->drawing, FONT + 4, top + height / 2, &font, name);
}

static void
draw_frame_axis(const struct plot *p)
{
	const struct drawing_font font = font_of(DRAWING_CENTRE);
	const int bottom = RATE_TOP + RATE_HEIGHT;
	char text[TICKS_TEXT_LEN];
	struct ticks t;

	ticks_text(text, p->last);
	ticks_choose(&t, p->first, p->last, PLOT_WIDTH / (((int)strlen(text) + 3) * CHARACTER), 1);
	for (unsigned int i = 0; i < t.nb; i++) {
		/* the nearest double of a large frame number can be outside the range */
		const double share = p->last > p->first
			? (t.value[i] - p->first) / (double)(p->last - p->first)
			: 0;
		const double x = LEFT + rint((PLOT_WIDTH - 1) * share) + 0.5;

		if (!(share >= 0 && share <= 1))
			continue;
		drawing_line(p->cr, x, COUNT_TOP, x, COUNT_TOP + COUNT_HEIGHT, GRID);
		drawing_line(p->cr, x, RATE_TOP, x, bottom, GRID);
		drawing_line(p->cr, x, bottom, x, bottom + 6, TEXT);
		ticks_text(text, t.value[i]);
		drawing_text(p->drawing, x, bottom + 8 + FONT, &font, text);
	}
	drawing_text(
		p->drawing, LEFT + PLOT_WIDTH / 2, bottom + 14 + 2 * FONT, &font, "frame number");
}

/* Range of the times when frames were received, ns. @return false: not known */
static bool
time_range(const struct scan_run *run, double *first, double *last)
{
	bool found = false;

	for (size_t i = 0; i < run->nb_frames; i++) {
		const double t = (double)run->frame[i].receive_time;

		if (run->frame[i].receive_time <= 0)
			continue;
		*first = found ? fmin(*first, t) : t;
		*last = found ? fmax(*last, t) : t;
		found = true;
	}
	return found && *last > *first;
}

/* Draw the axis of time: a tick is at the first frame that was received at this time or later. */
static void
draw_time_axis(const struct plot *p)
{
	static const struct {
		double ns;
		const char *name;
	} units[] = {{1e3, "\u00B5s"}, {1e6, "ms"}, {NS_PER_S, "s"}, {60 * NS_PER_S, "min"},
		{3600 * NS_PER_S, "h"}};
	const struct scan_run *run = p->run;
	const struct drawing_font font = font_of(DRAWING_CENTRE);
	double first, last, left = -WIDTH;
	unsigned int unit = 0, i = 0;
	char text[64];
	struct ticks t;

	if (!time_range(run, &first, &last))
		return;
	while (unit + 1 < sizeof(units) / sizeof(units[0]) &&
		last - first >= 3 * units[unit + 1].ns)
		unit++;
	ticks_choose(&t, 0, (last - first) / units[unit].ns, 8, 0);
	for (size_t k = 0; k < run->nb_frames && i < t.nb; k++) {
		const double time = ((double)run->frame[k].receive_time - first) / units[unit].ns;
		const double x = floor(x_of(p, run->frame[k].frame)) + 0.5;

		if (run->frame[k].receive_time <= 0 || time < t.value[i])
			continue;
		/* after a pause, several ticks are at the same frame: the last one is right */
		while (i + 1 < t.nb && time >= t.value[i + 1])
			i++;
		drawing_line(p->cr, x, COUNT_TOP, x, COUNT_TOP - 6, TEXT);
		ticks_text(text, t.value[i]);
		if (x - left >= ((int)strlen(text) + 2) * CHARACTER) {
			drawing_text(p->drawing, x, COUNT_TOP - 10, &font, text);
			left = x;
		}
		i++;
	}
	snprintf(text, sizeof(text), "time since the first frame (%s)", units[unit].name);
	drawing_text(p->drawing, LEFT + PLOT_WIDTH / 2, COUNT_TOP - 14 - FONT, &font, text);
}

static void
fill_dot(cairo_t *cr, double x, double y, double radius)
{
	cairo_new_sub_path(cr);
	cairo_arc(cr, x, y, radius, 0, 2 * M_PI);
}

static void
draw_title(const struct plot *p, const char *limit)
{
	char title[NAME_MAX + 64], rate[64];
	const struct {
		uint32_t colour;
		const char *text;
	} entry[] = {
		{HIT_COLOUR, "hit"},
		{MISS_COLOUR, "no hit"},
		{RATE_COLOUR, rate},
		{LOST_COLOUR, p->has_unjudged ? "not judged" : NULL},
		{LIMIT_COLOUR, limit},
	};
	const struct drawing_font font = font_of(DRAWING_LEFT);
	double x = LEFT;

	snprintf(title, sizeof(title), "%s: %" PRIu64 " frames", p->run->name,
		(uint64_t)p->run->nb_frames);
	drawing_text(p->drawing, LEFT, 8 + FONT, &font, title);
	snprintf(rate, sizeof(rate), "mean of %" PRIu64 " frames, 95 %% interval", p->window);
	for (unsigned int i = 0; i < sizeof(entry) / sizeof(entry[0]); i++) {
		if (entry[i].text == NULL)
			continue;
		if (i < 2) {
			drawing_colour(p->cr, entry[i].colour);
			fill_dot(p->cr, x + FONT / 2, 48, i == 0 ? 4 : 3);
			cairo_fill(p->cr);
		} else if (i == 2) {
			drawing_fill(p->cr, x, 42, FONT, 12, BAND_COLOUR);
			drawing_fill(p->cr, x, 47, FONT, 2, entry[i].colour);
		} else {
			drawing_fill(
				p->cr, x, i == 3 ? 42 : 48, FONT, i == 3 ? 12 : 1, entry[i].colour);
		}
		drawing_text(p->drawing, x + 1.3 * FONT, 48 + 0.35 * FONT, &font, entry[i].text);
		x += 3 * FONT + CHARACTER * strlen(entry[i].text);
	}
}

/* Draw the counts of hits, or those of all other judged frames. */
static void
draw_counts(const struct plot *p, uint8_t *drawn, bool hits)
{
	const struct scan_run *run = p->run;

	memset(drawn, 0, PLOT_WIDTH * (COUNT_HEIGHT + 1));
	for (size_t i = 0; i < run->nb_frames; i++) {
		const struct scan_frame *f = &run->frame[i];
		double x, y;
		size_t at;

		if ((f->verdict == FRAME_HIT) != hits || !report_is_judged(f))
			continue;
		x = floor(x_of(p, f->frame));
		y = y_of(COUNT_TOP, COUNT_HEIGHT, count_of(run, f) / p->top);
		/* a dot for each place, so that SVG has a limited size */
		at = (size_t)(x - LEFT) + PLOT_WIDTH * (size_t)(y + 0.5 - COUNT_TOP);
		if (drawn[at])
			continue;
		drawn[at] = 1;
		fill_dot(p->cr, x + 0.5, y, hits ? 3 : 2);
	}
	drawing_colour(p->cr, hits ? HIT_COLOUR : MISS_COLOUR);
	cairo_fill(p->cr);
}

/* Mark frames that have no verdict of the veto. */
static void
draw_unjudged(const struct plot *p)
{
	double last = -1;

	for (size_t i = 0; i < p->run->nb_frames; i++) {
		const double x = floor(x_of(p, p->run->frame[i].frame));

		if (report_is_judged(&p->run->frame[i]) || x == last)
			continue;
		cairo_rectangle(p->cr, x, COUNT_TOP, 1, COUNT_HEIGHT);
		cairo_rectangle(p->cr, x, RATE_TOP, 1, RATE_HEIGHT);
		last = x;
	}
	drawing_colour(p->cr, LOST_COLOUR);
	cairo_fill(p->cr);
}

/* Draw the running mean from the first complete window on: a point for each dot of the axis. */
static void
draw_rates(const struct plot *p, struct rate *point)
{
	struct running s = {0};
	struct rate r;
	double last = -1;
	size_t nb = 0;

	while (next_rate(p, &s, &r)) {
		if (floor(x_of(p, r.frame)) == last)
			continue;
		last = floor(x_of(p, r.frame));
		point[nb++] = r;
	}
	if (nb == 0)
		return;
	for (size_t i = 0; i < nb; i++)
		cairo_line_to(p->cr, x_of(p, point[i].frame),
			y_of(RATE_TOP, RATE_HEIGHT, point[i].high / p->rate_top));
	for (size_t i = nb; i-- > 0;)
		cairo_line_to(p->cr, x_of(p, point[i].frame),
			y_of(RATE_TOP, RATE_HEIGHT, point[i].low / p->rate_top));
	cairo_close_path(p->cr);
	drawing_colour(p->cr, BAND_COLOUR);
	cairo_fill(p->cr);
	for (size_t i = 0; i < nb; i++)
		cairo_line_to(p->cr, x_of(p, point[i].frame),
			y_of(RATE_TOP, RATE_HEIGHT, point[i].mean / p->rate_top));
	if (nb == 1)
		fill_dot(p->cr, x_of(p, point[0].frame),
			y_of(RATE_TOP, RATE_HEIGHT, point[0].mean / p->rate_top), 2);
	drawing_colour(p->cr, RATE_COLOUR);
	cairo_set_line_width(p->cr, 2);
	cairo_set_line_join(p->cr, CAIRO_LINE_JOIN_ROUND);
	cairo_stroke(p->cr);
}

/* Minimum count of a hit by the settings of the run. @return 0: not known, or outside the plot */
static double
count_limit(const struct plot *p)
{
	const struct arrow_reader *r = scan_run_reader(p->run);
	const char *text = r == NULL
		? NULL
		: arrow_reader_meta(r,
			  p->run->nb_searched > 0 ? ARROW_META_PEAKS_MIN : ARROW_META_STRONG_MIN);
	const double limit = text != NULL ? strtod(text, NULL) : 0;

	return limit > 0 && limit < p->top ? limit : 0;
}

static int
draw(struct plot *p)
{
	const bool peaks = p->run->nb_searched > 0;
	const double limit = count_limit(p);
	uint8_t *drawn = malloc(PLOT_WIDTH * (COUNT_HEIGHT + 1));
	struct rate *point = malloc(PLOT_WIDTH * sizeof(*point));
	const double y = y_of(COUNT_TOP, COUNT_HEIGHT, limit / p->top);
	int ret = -ENOMEM;

	if (drawn == NULL || point == NULL)
		goto out;
	draw_title(p, limit > 0 ? "limit of a hit" : NULL);
	draw_y_axis(p, COUNT_TOP, COUNT_HEIGHT, p->top, 1, 1,
		peaks ? "Bragg peaks per frame" : "strong pixels per frame");
	draw_y_axis(p, RATE_TOP, RATE_HEIGHT, p->rate_top, 100, 0, "hit rate (%)");
	draw_frame_axis(p);
	draw_time_axis(p);
	draw_frame(p->cr, COUNT_TOP, COUNT_HEIGHT);
	draw_frame(p->cr, RATE_TOP, RATE_HEIGHT);
	draw_unjudged(p);
	if (limit > 0)
		drawing_line(p->cr, LEFT, y, LEFT + PLOT_WIDTH, y, LIMIT_COLOUR);
	draw_counts(p, drawn, false);
	draw_counts(p, drawn, true);
	draw_rates(p, point);
	ret = 0;
out:
	free(drawn);
	free(point);
	return ret;
}

int
plot_save(const struct scan_run *run, const char *path)
{
	struct plot p = {.run = run};
	enum drawing_kind kind;
	int ret;

	if (run->nb_frames == 0) {
		escaped_line(stderr, "braggline-scan: run %s has no frame; %s not written",
			run->name, path);
		return -EINVAL;
	}
	measure(&p);
	ret = drawing_kind_of(path, &kind);
	if (ret == 0)
		ret = drawing_create(&p.drawing, kind, WIDTH, HEIGHT, BACKGROUND);
	if (ret == 0) {
		p.cr = drawing_cairo(p.drawing);
		ret = draw(&p);
	}
	if (ret == 0)
		ret = drawing_save(p.drawing, path, DRAWING_SMALL);
	drawing_free(p.drawing);
	if (ret < 0)
		escaped_line(
			stderr, "braggline-scan: cannot write %s: %s", path, own_file_error(ret));
	return ret;
}
