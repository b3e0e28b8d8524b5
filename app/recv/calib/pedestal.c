/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_errno.h>

#include <gk_pixel.h>

#include "arrow/crc32c.h"
#include "calib/pedestal.h"
#include "calib/pedestal_file.h"
#include "log.h"

LOG_REGISTER("pedestal", "pedestal");

/** DAQ info of a JUNGFRAU (slsDetectorPackage, docs/src/udpdetspec.rst). @{ */
#define STATUS_FORCED_G1 (1u << 12)
#define STATUS_FORCED_G2 (1u << 13)
/** @} */

/** Sums of a stage, over all modules. */
struct stage_sums {
	double *sum;
	double *squares;
	uint32_t *wrong;
	uint64_t frames[DETECTOR_MODULES_MAX];
};

struct pedestal {
	struct detector detector;
	struct pedestal_params params;
	size_t module_pixels;
	struct stage_sums stage[PEDESTAL_STAGES];
	struct pedestal_stats stats;
};

const struct pedestal_params pedestal_defaults = {
	.window = PEDESTAL_WINDOW,
	.wrong_max = {2, 0, 0},
	.rms_max = PEDESTAL_RMS_MAX,
};

struct pedestal *
pedestal_create(const struct detector *d, const struct pedestal_params *params)
{
	struct pedestal *p;
	size_t pixels;

	if (params == NULL)
		params = &pedestal_defaults;
	if (params->window == 0 || !(params->rms_max > 0)) {
		LOG(ERR, "window = %u, rms_max = %g ADU; expected window >= 1 and rms_max > 0\n",
			params->window, params->rms_max);
		rte_errno = EINVAL;
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		goto no_memory;
	p->detector = *d;
	p->params = *params;
	p->module_pixels = (size_t)d->ops->rows * d->ops->cols;
	pixels = p->module_pixels * d->modules;
	for (uint32_t g = 0; g < PEDESTAL_STAGES; g++) {
		struct stage_sums *s = &p->stage[g];

		/* the pages of a stage without frames are never touched */
		s->sum = calloc(pixels, sizeof(*s->sum));
		s->squares = calloc(pixels, sizeof(*s->squares));
		s->wrong = calloc(pixels, sizeof(*s->wrong));
		if (s->sum == NULL || s->squares == NULL || s->wrong == NULL)
			goto no_memory;
	}
	return p;

no_memory:
	LOG(ERR, "cannot allocate the sums of %u modules\n", d->modules);
	pedestal_destroy(p);
	rte_errno = ENOMEM;
	return NULL;
}

void
pedestal_destroy(struct pedestal *p)
{
	if (p == NULL)
		return;
	for (uint32_t g = 0; g < PEDESTAL_STAGES; g++) {
		free(p->stage[g].sum);
		free(p->stage[g].squares);
		free(p->stage[g].wrong);
	}
	free(p);
}

int
pedestal_stage(uint32_t detector_status)
{
	switch (detector_status & (STATUS_FORCED_G1 | STATUS_FORCED_G2)) {
	case 0:
		return 0;
	case STATUS_FORCED_G1:
		return 1;
	case STATUS_FORCED_G2:
		return 2;
	default:
		return -EINVAL;
	}
}

/*
 * The loops below are written for vectorisation. They are bound by memory: the sums of a module are
 * 14 MB.
 */

static void
add_first(double *restrict sum, double *restrict squares, const uint16_t *restrict raw, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const double adu = raw[i] & GK_RAW_ADC_MASK;

		sum[i] += adu;
		squares[i] += adu * adu;
	}
}

static void
add_later(double *restrict sum, double *restrict squares, const uint16_t *restrict raw, size_t n,
	int code, double window)
{
	for (size_t i = 0; i < n; i++) {
		const double adu = raw[i] & GK_RAW_ADC_MASK;
		/* a factor instead of a branch: multiplying by 1 and adding 0 are exact */
		const double right = (raw[i] & GK_RAW_GAIN_MASK) == code;

		sum[i] += (adu - sum[i] / window) * right;
		squares[i] += (adu * adu - squares[i] / window) * right;
	}
}

static void
count_wrong(uint32_t *restrict wrong, const uint16_t *restrict raw, size_t n, int code)
{
	for (size_t i = 0; i < n; i++)
		wrong[i] += (raw[i] & GK_RAW_GAIN_MASK) != code;
}

static void
add_module(struct pedestal *p, uint32_t stage, uint32_t module, const uint16_t *raw)
{
	static const int codes[PEDESTAL_STAGES] = {0, GK_RAW_G1, GK_RAW_G2};
	const size_t row = p->detector.ops->cols, first = module * p->module_pixels;
	struct stage_sums *s = &p->stage[stage];
	const bool filling = s->frames[module]++ < p->params.window;

	/* row by row: raw data are read twice, the second time from the L1 cache */
	for (size_t at = 0; at < p->module_pixels; at += row) {
		const uint16_t *words = raw + at;

		if (filling)
			add_first(s->sum + first + at, s->squares + first + at, words, row);
		else
			add_later(s->sum + first + at, s->squares + first + at, words, row,
				codes[stage], p->params.window);
		count_wrong(s->wrong + first + at, words, row, codes[stage]);
	}
}

int
pedestal_add(
	struct pedestal *p, const uint16_t *raw, const uint16_t *missing, uint32_t detector_status)
{
	const int stage = pedestal_stage(detector_status);
	int added = 0;

	if (stage < 0) {
		p->stats.unknown++;
		return stage;
	}
	for (uint32_t m = 0; m < p->detector.modules; m++) {
		if (missing != NULL && missing[m] != 0) {
			p->stats.incomplete++;
			continue;
		}
		add_module(p, stage, m, raw + m * p->module_pixels);
		added++;
	}
	p->stats.frames[stage] += added > 0;
	return added;
}

uint64_t
pedestal_frames(const struct pedestal *p, uint32_t stage, uint32_t module)
{
	return p->stage[stage].frames[module];
}

const struct pedestal_stats *
pedestal_stats(const struct pedestal *p)
{
	return &p->stats;
}

void
pedestal_maps(const struct pedestal *p, uint32_t stage, uint32_t module, float *mean_out,
	float *rms_out, uint8_t *mask, struct pedestal_masked *masked)
{
	const struct stage_sums *s = &p->stage[stage];
	const size_t first = module * p->module_pixels;
	const bool few = s->frames[module] < p->params.window;
	const double window = p->params.window;

	memset(masked, 0, sizeof(*masked));
	for (size_t i = 0; i < p->module_pixels; i++) {
		const double mean = s->sum[first + i] / window;
		const double variance = s->squares[first + i] / window - mean * mean;
		/* rounding may give a slightly negative variance for a constant pixel */
		const double rms = variance > 0 ? sqrt(variance) : 0;
		const bool wrong = s->wrong[first + i] > p->params.wrong_max[stage];
		const bool noisy = !few && rms > p->params.rms_max;

		mask[i] |= few || wrong ? PEDESTAL_MASK_GAIN(stage) : 0;
		mask[i] |= noisy ? PEDESTAL_MASK_RMS(stage) : 0;
		if (detector_reads_out(&p->detector, module, i)) {
			masked->frames += few;
			masked->gain += wrong;
			masked->rms += noisy;
			masked->pixels += few || wrong || noisy;
			masked->read_out++;
		}
		mean_out[i] = few || wrong || noisy ? PEDESTAL_MASKED : (float)mean;
		rms_out[i] = few ? NAN : (float)rms;
	}
}

/** Buffers for the files of one module. */
struct maps {
	float *mean;
	float *rms;
	uint8_t *mask;
};

#define MAP_PEDESTAL(stage) (stage)
#define MAP_RMS(stage)	    (PEDESTAL_STAGES + (stage))
#define MAP_MASK	    (2 * PEDESTAL_STAGES)

int
pedestal_map_path(
	char path[PATH_MAX], const char *dir, const char *run, uint32_t map, uint32_t module)
{
	static const char *const names[PEDESTAL_MAPS] = {"pedestal_g0", "pedestal_g1",
		"pedestal_g2", "rms_g0", "rms_g1", "rms_g2", "dark_mask"};
	const int n = snprintf(path, PATH_MAX, "%s/%s_%s_m%u.bin", dir, run, names[map], module);

	if (n >= 0 && n < PATH_MAX)
		return 0;
	LOG(ERR, "path is too long: directory %s, run name %s\n", dir, run);
	return -ENAMETOOLONG;
}

bool
pedestal_find_existing(
	const struct detector *d, const char *dir, const char *run, char path[PATH_MAX])
{
	char map_path[PATH_MAX];

	for (uint32_t map = 0; map < PEDESTAL_MAPS; map++) {
		for (uint32_t m = 0; m < d->modules; m++) {
			if (pedestal_map_path(path, dir, run, map, m) != 0)
				return false; /* reported when it is written */
			if (access(path, F_OK) == 0)
				return true;
			strcpy(map_path, path);
			if (map < PEDESTAL_STAGES &&
				pedestal_sidecar_path(path, PATH_MAX, map_path) == 0 &&
				access(path, F_OK) == 0)
				return true;
		}
	}
	return false;
}

static int
write_stage(const struct pedestal *p, const struct pedestal_output *out, uint32_t stage,
	uint32_t module, struct maps *m, struct pedestal_masked *sum)
{
	const size_t bytes = p->module_pixels * sizeof(float);
	struct pedestal_sidecar s = {
		.modules = p->detector.modules,
		.module = module,
		.module_id =
			out->module_ids != NULL ? out->module_ids[module] : PEDESTAL_NO_MODULE_ID,
		.stage = stage,
		.time = out->time,
		.frames = p->stage[stage].frames[module],
	};
	char path[PATH_MAX];
	struct pedestal_masked masked;
	int ret;

	pedestal_maps(p, stage, module, m->mean, m->rms, m->mask, &masked);
	ret = pedestal_map_path(path, out->dir, out->run, MAP_RMS(stage), module);
	if (ret == 0)
		ret = pedestal_file_write(path, m->rms, bytes);
	if (ret == 0)
		ret = pedestal_map_path(path, out->dir, out->run, MAP_PEDESTAL(stage), module);
	if (ret == 0)
		ret = pedestal_file_write(path, m->mean, bytes);
	if (ret != 0)
		return ret;
	snprintf(s.detector, sizeof(s.detector), "%s", p->detector.ops->name);
	snprintf(s.run, sizeof(s.run), "%s", out->run);
	s.masked_frames = masked.frames;
	s.masked_gain = masked.gain;
	s.masked_rms = masked.rms;
	s.digest = arrow_crc32c(0, m->mean, bytes);
	sum->frames += masked.frames;
	sum->gain += masked.gain;
	sum->rms += masked.rms;
	sum->pixels += masked.pixels;
	sum->read_out += masked.read_out;
	return pedestal_sidecar_write(path, &s);
}

static bool
has_enough(const struct pedestal *p, uint32_t stage, uint32_t module)
{
	return p->stage[stage].frames[module] >= p->params.window;
}

static int
write_module(const struct pedestal *p, const struct pedestal_output *out, uint32_t module,
	struct maps *m, struct pedestal_masked masked[])
{
	char path[PATH_MAX];
	int ret = 0;

	bool any = false;

	memset(m->mask, 0, p->module_pixels);
	for (uint32_t g = 0; g < PEDESTAL_STAGES && ret == 0; g++) {
		if (!has_enough(p, g, module))
			continue;
		ret = write_stage(p, out, g, module, m, &masked[g]);
		any = true;
	}
	if (ret == 0 && any)
		ret = pedestal_map_path(path, out->dir, out->run, MAP_MASK, module);
	return ret == 0 && any ? pedestal_file_write(path, m->mask, p->module_pixels) : ret;
}

/*
 * Log the stages that have too few frames. Their maps would mask every pixel, and are not written.
 */
static int
report_missing(const struct pedestal *p, const char *run)
{
	int ret = 0;

	for (uint32_t g = 0; g < PEDESTAL_STAGES; g++) {
		for (uint32_t m = 0; m < p->detector.modules && p->stats.frames[g] > 0; m++) {
			if (has_enough(p, g, m))
				continue;
			LOG(ERR,
				"run %s: module %u has %" PRIu64 " complete frames in G%u, "
				"expected at least %u; its pedestals of G%u are not written\n",
				run, m, p->stage[g].frames[m], g, p->params.window, g);
			ret = -ERANGE;
		}
	}
	return ret;
}

int
pedestal_write(const struct pedestal *p, const struct pedestal_output *output,
	struct pedestal_masked masked[])
{
	struct pedestal_masked sums[PEDESTAL_STAGES] = {0};
	struct pedestal_output out = *output;
	struct maps m = {0};
	int ret = 0;

	if (p->stats.frames[0] + p->stats.frames[1] + p->stats.frames[2] == 0) {
		LOG(ERR,
			"run %s: no module has a complete dark frame; %" PRIu64 " module images "
			"have missing packets\n",
			out.run, p->stats.incomplete);
		return -ENODATA;
	}
	if (out.time == 0)
		out.time = time(NULL);
	m.mean = malloc(p->module_pixels * (2 * sizeof(float) + 1));
	if (m.mean == NULL) {
		LOG(ERR, "cannot allocate the maps of a module\n");
		return -ENOMEM;
	}
	m.rms = m.mean + p->module_pixels;
	m.mask = (uint8_t *)(m.rms + p->module_pixels);
	for (uint32_t module = 0; module < p->detector.modules && ret == 0; module++)
		ret = write_module(p, &out, module, &m, sums);
	free(m.mean);
	if (ret != 0)
		return ret;
	for (uint32_t g = 0; g < PEDESTAL_STAGES; g++) {
		if (masked != NULL)
			masked[g] = sums[g];
		if (p->stats.frames[g] > 0)
			LOG(INFO,
				"run %s, G%u: %" PRIu64 " frames; %" PRIu64 " of %" PRIu64
				" pixels read out masked (too few frames %" PRIu64
				", wrong gain %" PRIu64 ", noise %" PRIu64 ")\n",
				out.run, g, p->stats.frames[g], sums[g].pixels, sums[g].read_out,
				sums[g].frames, sums[g].gain, sums[g].rms);
	}
	return report_missing(p, out.run);
}
