/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arrow/tables.h"
#include "clock.h"
#include "escaped_text.h"
#include "geometry/array.h"
#include "geometry/crystfel.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "scan/detector.h"
#include "series.h"
#include "watch.h"

#define SIDE_MAX   65536
#define PIXELS_MAX (UINT64_C(1) << 26) /* as app/common/scan */
#define NS	   1000000000

static const char *
text_of(const struct scan_header *h, const char *key)
{
	const char *text = arrow_reader_meta(&h->reader, key);

	return text != NULL ? text : "";
}

/* @return 0: not a number from 1 to SIDE_MAX */
static uint32_t
side_of(const struct scan_header *h, const char *key)
{
	const char *text = text_of(h, key);
	const unsigned long value = strtoul(text, NULL, 10);

	return *text >= '1' && *text <= '9' && value <= SIDE_MAX ? value : 0;
}

/* A number that is not known, or not plausible, is 0. */
static double
number_of(const struct scan_header *h, const char *key)
{
	const double value = strtod(text_of(h, key), NULL);

	return value > 0 && value < 1e9 ? value : 0;
}

/* Reads the geometry. @return NULL: it is not known */
static struct geometry *
read_geometry(const struct scan_header *h, const struct wire_series *s)
{
	const char *text = text_of(h, ARROW_META_GEOMETRY);
	const uint32_t modules = side_of(h, ARROW_META_MODULES);
	const struct geometry_raster raster = {
		.rows = s->rows,
		.cols = s->cols,
		.module_rows = modules > 0 ? s->rows / modules : s->rows,
	};
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g = *text != '\0' ? malloc(sizeof(*g)) : NULL;

	if (g == NULL)
		return NULL;
	if (crystfel_read(g, text, strlen(text), ARROW_META_GEOMETRY, &raster, message) == 0)
		return g;
	escaped_line(stderr, "braggline-publish: run %s: %s", s->run, message);
	free(g);
	return NULL;
}

static void
use_geometry(struct wire_series *s, const struct geometry *g)
{
	uint32_t *mask = malloc((size_t)s->rows * s->cols * sizeof(*mask));

	array_beam(g, &s->beam_x, &s->beam_y);
	s->pixel_metres = g->pixel_metres;
	if (!(s->distance_metres > 0))
		s->distance_metres = g->distance_metres;
	if (!(s->energy_ev > 0))
		s->energy_ev = g->energy_ev;
	if (mask != NULL && array_mask(g, mask) == 0)
		s->mask = mask;
	else
		free(mask);
}

static void
write_geom(const struct geometry *g, const struct wire_series *s, const char *path)
{
	/* as braggline-export; saturated pixels are searched for peaks, but not integrated */
	const struct crystfel_array array = {
		.peaks = "peaks",
		.least = s->raw ? 0 : INT16_MIN + 1,
		.most = s->raw ? UINT16_MAX - 1 : INT16_MAX,
		.max_adu = s->raw ? INFINITY : INT16_MAX - 1,
		.live = true,
	};
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int ret = f != NULL ? crystfel_write(g, &array, f) : -ENOMEM;

	if (f != NULL && fclose(f) != 0 && ret == 0)
		ret = -ENOMEM;
	if (ret == 0)
		ret = durable_file_replace(path, text, size);
	free(text);
	if (ret != 0)
		escaped_line(stderr, "braggline-publish: --geom %s: cannot be written: %s", path,
			own_file_error(ret));
}

/* The name of the run, and the time at which it was found. */
static char *
make_unique(const char *run, int64_t ns)
{
	const time_t seconds = ns / NS;
	char time[32], *text = NULL;
	struct tm tm = {0};

	gmtime_r(&seconds, &tm);
	strftime(time, sizeof(time), "%Y%m%dT%H%M%S", &tm);
	if (asprintf(&text, "%s-%s.%06dZ", run, time, (int)(ns % NS / 1000)) < 0)
		return NULL;
	return text;
}

static void
use_detector(struct wire_series *s, const struct scan_header *h)
{
	const struct detector_facts *facts = detector_facts(text_of(h, ARROW_META_DETECTOR));

	s->description = facts != NULL ? facts->description : "unknown";
	s->material = facts != NULL ? facts->material : "unknown";
	s->thickness_metres = facts != NULL ? facts->thickness_metres : 0;
}

static int
fill(struct wire_series *s, const struct scan_header *h, const char *geom)
{
	struct geometry *g;

	s->rows = side_of(h, ARROW_META_ROWS);
	s->cols = side_of(h, ARROW_META_COLS);
	s->date_ns = utc_ns();
	s->run = escaped_text(text_of(h, ARROW_META_RUN));
	s->sample = escaped_text(text_of(h, ARROW_META_SAMPLE));
	if (s->run == NULL || s->sample == NULL)
		return -ENOMEM;
	s->unique_id = make_unique(s->run, s->date_ns);
	if (s->unique_id == NULL)
		return -ENOMEM;
	if (s->rows == 0 || s->cols == 0 || (uint64_t)s->rows * s->cols > PIXELS_MAX) {
		escaped_line(stderr,
			"braggline-publish: run %s: its images have %u x %u pixels, expected 1 to "
			"%u in each direction, and at most %lu; the run is left out",
			s->run, s->cols, s->rows, SIDE_MAX, (unsigned long)PIXELS_MAX);
		return -EBADMSG;
	}
	use_detector(s, h);
	s->energy_ev = number_of(h, ARROW_META_ENERGY) * 1000;
	s->distance_metres = number_of(h, ARROW_META_DISTANCE) / 1000;
	g = read_geometry(h, s);
	if (g != NULL) {
		use_geometry(s, g);
		if (geom != NULL)
			write_geom(g, s, geom);
	} else if (geom != NULL) {
		escaped_line(stderr,
			"braggline-publish: run %s: it has no geometry for --geom %s; set "
			"[geometry] of the receiver",
			s->run, geom);
	}
	free(g);
	s->wavelength_angstrom = s->energy_ev > 0 ? GEOMETRY_HC / s->energy_ev : 0;
	return 0;
}

struct feed_run *
series_create(const struct scan_header *header, uint32_t id, bool raw, const char *geom)
{
	struct feed_run *run = calloc(1, sizeof(*run));

	if (run == NULL)
		return NULL;
	run->refs = 1;
	run->series.id = id;
	run->series.raw = raw;
	if (fill(&run->series, header, geom) == 0)
		return run;
	feed_run_drop(run);
	return NULL;
}

bool
series_fits(const struct wire_series *s, const struct scan_header *header)
{
	return s->rows == side_of(header, ARROW_META_ROWS) &&
		s->cols == side_of(header, ARROW_META_COLS);
}
