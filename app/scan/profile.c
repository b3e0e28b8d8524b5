/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk_radial.h>

#include "csv_file.h"
#include "escaped_text.h"
#include "plural.h"
#include "scan/geometry.h"
#include "scan/images.h"
#include "scan/radial.h"
#include "profile.h"

static_assert(PROFILE_WEIGHT_ONE == GK_RADIAL_ONE, "weights of geometries are those of maps");

/* Data that all frames of the run need. */
struct profiler {
	const struct scan_run *run;
	struct gk_radial *radial;
	struct gk_radial_bin *out;
	double *centre;
	uint16_t *bin, *words;
	uint32_t *weight;
	float *plane;
	uint32_t nb_bins;
	uint64_t frames;  /* that were written */
	uint64_t others;  /* that are no full images */
	uint64_t damaged; /* rows */
};

static int
complain(const struct scan_run *run, int error, const char *what)
{
	escaped_line(stderr, "braggline-scan: run %s: no radial profile: %s", run->name, what);
	return error;
}

static void
profiler_close(struct profiler *p)
{
	gk_radial_destroy(p->radial);
	free(p->out);
	free(p->centre);
	free(p->bin);
	free(p->words);
	free(p->weight);
	free(p->plane);
}

static int
make_map(struct profiler *p, const struct geometry *g, const struct profile_options *o)
{
	const bool corrects = o->corrections.solid_angle || o->corrections.polarised;
	const struct gk_radial_map map = {
		p->run->rows, p->run->cols, o->bins, p->bin, corrects ? p->weight : NULL};
	int ret = profile_bins(g, o->unit, o->bins, p->bin, p->centre);

	if (ret == 0 && corrects)
		ret = profile_weights(g, &o->corrections, p->weight);
	if (ret == -ENODATA)
		return complain(p->run, ret,
			"its geometry has no distance or no photon energy; set [geometry] of the "
			"receiver");
	if (ret != 0)
		return complain(p->run, ret, "its geometry has a panel that is not plausible");
	ret = gk_radial_create(&map, GK_ISA_AUTO, &p->radial);
	return ret == 0 ? 0 : complain(p->run, ret, strerror(-ret));
}

static int
profiler_open(struct profiler *p, const struct scan_run *run, const struct profile_options *o)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	struct geometry *g = scan_geometry(run);
	int ret;

	*p = (struct profiler){.run = run, .nb_bins = o->bins};
	if (g == NULL)
		return complain(
			run, -EINVAL, "the run has no geometry; set [geometry] of the receiver");
	p->out = malloc(o->bins * sizeof(*p->out));
	p->centre = malloc(o->bins * sizeof(*p->centre));
	p->bin = malloc(pixels * sizeof(*p->bin));
	p->words = malloc(pixels * sizeof(*p->words));
	p->weight = malloc(pixels * sizeof(*p->weight));
	p->plane = malloc(pixels * sizeof(*p->plane));
	if (p->out == NULL || p->centre == NULL || p->bin == NULL || p->words == NULL ||
		p->weight == NULL || p->plane == NULL)
		ret = complain(run, -ENOMEM, "not enough memory");
	else
		ret = make_map(p, g, o);
	free(g);
	return ret;
}

static void
put_bin(FILE *out, uint64_t frame, uint32_t bin, double centre, const struct gk_radial_bin *b)
{
	fprintf(out, "%" PRIu64 ",%u,%.9g,%.9g,%.15g,%.9g,%u\n", frame, bin, centre, b->mean,
		(double)b->sum / GK_SUM_SCALE, (double)b->norm / GK_RADIAL_ONE, b->count);
}

static void
put_frame(const struct profiler *p, uint64_t frame, FILE *out)
{
	for (uint32_t i = 0; i < p->nb_bins; i++)
		put_bin(out, frame, i, p->centre[i], &p->out[i]);
}

static void
put_batch(struct profiler *p, const struct arrow_reader *r, size_t batch, FILE *out)
{
	const uint64_t rows = r->batches[batch].rows;
	struct scan_images b;

	if (scan_images_open(r, batch, &b) < 0) {
		p->damaged += rows;
		return;
	}
	for (uint64_t row = 0; row < rows; row++) {
		if (((const uint8_t *)b.kind.data)[row] != GK_KIND_IMAGE) {
			p->others++;
		} else if (scan_images_expand(p->run, &b, row, p->plane, p->words) < 0) {
			p->damaged++;
		} else {
			gk_radial_profile_f32(p->radial, p->plane, p->out);
			put_frame(p, ((const uint64_t *)b.frame.data)[row], out);
			p->frames++;
		}
	}
}

static FILE *
create(const char *path)
{
	FILE *out = csv_create(path);

	if (out != NULL)
		fputs("frame,bin,centre,mean,sum,norm,count\n", out);
	return out;
}

/* Write the profiles of a batch that the receiver has made. @return 0; -EBADMSG */
static int
put_made(const struct scan_radial *r, const struct arrow_reader *frames, size_t batch, FILE *out)
{
	const int field = arrow_reader_find(frames, "frame", ARROW_UINT64, 0);
	const uint64_t rows = frames->batches[batch].rows;
	struct arrow_column frame;
	struct scan_radial_batch b;
	const uint32_t *count;
	const int64_t *sum;

	if (field < 0 || arrow_reader_column(frames, batch, field, &frame) < 0 ||
		scan_radial_batch(r, frames, batch, &b) < 0)
		return -EBADMSG;
	for (uint64_t row = 0; row < rows; row++) {
		if (!scan_radial_row(&b, row, &sum, &count))
			continue;
		for (uint32_t i = 0; i < r->bins; i++) {
			struct gk_radial_bin bin = {
				.sum = (int64_t)((uint64_t)sum[i] * GK_SUM_SCALE),
				.norm = (uint64_t)count[i] * GK_RADIAL_ONE,
				.count = count[i]};

			bin.mean = gk_radial_mean(bin.sum, bin.norm);
			put_bin(out, ((const uint64_t *)frame.data)[row], i, r->centre[i], &bin);
		}
	}
	return 0;
}

/* Write the profiles that the receiver has made of all frames. */
static int
save_made(const struct scan_run *run, const struct scan_radial *r, const char *path)
{
	FILE *out = create(path);
	uint64_t damaged = 0;
	int ret;

	if (out == NULL)
		return csv_finish(NULL, path, -errno);
	for (size_t i = 0; i < run->nb_sets; i++) {
		/* a file that does not exist has no batches */
		const struct arrow_reader *frames = &run->set[i].file[ARROW_FRAMES].reader;

		for (size_t batch = 0; batch < frames->nb_batches; batch++)
			if (put_made(r, frames, batch, out) < 0)
				damaged += frames->batches[batch].rows;
	}
	ret = csv_finish(out, path, 0);
	if (ret == 0 && damaged > 0) {
		escaped_line(stderr,
			"braggline-scan: run %s: profiles of %" PRIu64
			" frames are damaged and left out",
			run->name, damaged);
		ret = -EBADMSG;
	}
	return ret;
}

/* Return true if the options are those of profiles that the receiver has made. */
static bool
fits(const struct scan_radial *r, const struct profile_options *o)
{
	return (o->unit == PROFILE_UNITS || o->unit == r->unit) &&
		(o->bins == 0 || o->bins == r->bins) && !o->corrections.solid_angle &&
		!o->corrections.polarised;
}

static int
put_all(struct profiler *p, const char *path)
{
	FILE *out = create(path);

	if (out == NULL)
		return csv_finish(NULL, path, -errno);
	for (size_t i = 0; i < p->run->nb_sets; i++) {
		/* a file that does not exist has no batches */
		const struct arrow_reader *r = &p->run->set[i].file[ARROW_IMAGES].reader;

		for (size_t batch = 0; batch < r->nb_batches; batch++)
			put_batch(p, r, batch, out);
	}
	return csv_finish(out, path, 0);
}

/* Compute the profiles of images. */
static int
save_images(const struct scan_run *run, const struct profile_options *options, const char *path)
{
	struct profile_options o = *options;
	struct profiler p;
	int ret;

	if (o.unit == PROFILE_UNITS)
		o.unit = PROFILE_Q;
	if (o.bins == 0)
		o.bins = PROFILE_BINS;
	ret = profiler_open(&p, run, &o);
	if (ret == 0)
		ret = put_all(&p, path);
	if (ret == 0 && p.others > 0)
		escaped_line(stderr,
			"braggline-scan: run %s: %" PRIu64 " kept %s no full %s no profile; set "
			"[output] format = image",
			run->name, p.others, plural(p.others, "frame is", "frames are"),
			plural(p.others, "image and has", "images and have"));
	if (ret == 0 && p.damaged > 0) {
		escaped_line(stderr, "braggline-scan: run %s: %" PRIu64 " %s damaged and left out",
			run->name, p.damaged, plural(p.damaged, "image is", "images are"));
		ret = -EBADMSG;
	}
	if (ret == 0 && p.others > 0 && p.frames == 0)
		ret = -ENODATA;
	profiler_close(&p);
	return ret;
}

int
profile_save(const struct scan_run *run, const struct profile_options *options, const char *path)
{
	struct scan_radial r;
	int ret = scan_radial_open(&r, run);

	if (ret == -ENOENT)
		return save_images(run, options, path);
	if (ret != 0)
		return complain(run, ret,
			ret == -ENOMEM
				? "not enough memory"
				: "its files have wrong or different bins in their metadata");
	ret = fits(&r, options) ? save_made(run, &r, path) : save_images(run, options, path);
	scan_radial_close(&r);
	return ret;
}
