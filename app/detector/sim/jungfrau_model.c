/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/jungfrau_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/jungfrau_background.h"
#include "sim/jungfrau_module.h"
#include "sim/jungfrau_pattern.h"
#include "sim/model_random.h"

/* Flickering pixels that are not masked. The number is for the whole detector, so that the same
 * strong pixel count separates hits from other frames for any number of modules. */
#define FLICKERING_PIXELS 8

/* Peaks: see README.rst, section The model. */
#define PEAK_PHOTONS_MIN 15.0
#define PEAK_PHOTONS	 280.0
#define STRAY_PHOTONS	 60.0
#define STRAY_MEAN	 0.3
#define PEAK_PHOTONS_MAX 100000.0
#define PEAK_RADIUS	 3
#define PEAK_WINDOW	 (2 * PEAK_RADIUS + 1)
#define PEAK_PIXELS	 (PEAK_WINDOW * PEAK_WINDOW)

struct jungfrau_model {
	struct jungfrau_model_config config;
	float normal[MODEL_NORMALS];
	struct panel_places *places; /* NULL: a stack */
	struct jungfrau_background background;
	struct jungfrau_pattern pattern;
	struct jungfrau_module *module;
};

struct peak_pixel {
	uint32_t pixel;
	uint32_t photons;
};

static float
frame_seconds(const struct jungfrau_model *model, const struct jungfrau_frame *frame)
{
	return (float)((double)frame->number / model->config.rate);
}

static bool
config_usable(const struct jungfrau_model_config *config)
{
	return config->modules >= 1 && config->modules <= JUNGFRAU_MODULES_MAX &&
		config->column_modules >= 1 && config->column_modules <= config->modules &&
		config->rows >= 8 && config->rows <= JUNGFRAU_ROWS && config->rows % 8 == 0 &&
		config->hit_fraction >= 0.0 && config->hit_fraction <= 1.0 &&
		config->peaks <= JUNGFRAU_MEAN_PEAKS_MAX && config->energy > 0.0 &&
		config->background >= 0.0 && config->background <= JUNGFRAU_BACKGROUND_MAX &&
		config->noise >= 0.0 && config->rate > 0.0 &&
		(config->geometry == NULL ||
			(config->geometry->rows == config->modules * JUNGFRAU_ROWS &&
				config->geometry->cols == JUNGFRAU_COLUMNS &&
				config->distance > 0.0));
}

static struct jungfrau_geometry
geometry_of(const struct jungfrau_model_config *config)
{
	struct jungfrau_geometry geometry = {.modules = config->modules,
		.column_modules = config->column_modules,
		.first_row = jungfrau_first_row(config->rows),
		.rows = config->rows,
		/* from the outer edge of the first pixel to its centre */
		.beam_x = config->beam[0] - 0.5,
		.beam_y = config->beam[1] - 0.5,
		.distance = config->distance /
			(config->geometry != NULL ? config->geometry->pixel_metres * 1e3
						  : JUNGFRAU_PIXEL_MM)};
	double width, height;

	jungfrau_geometry_extent(&geometry, &width, &height);
	if (config->beam[0] < 0.0)
		geometry.beam_x = 0.5 * (width - 1.0);
	if (config->beam[1] < 0.0)
		geometry.beam_y = 0.5 * (height - 1.0);
	/* then the corners are at 2.2 angstrom for 12.4 keV, for any number of modules */
	if (geometry.distance <= 0.0)
		geometry.distance = sqrt(width * width + height * height);
	return geometry;
}

static int
physics_init(struct jungfrau_model *model)
{
	const struct jungfrau_model_config *config = &model->config;
	struct jungfrau_geometry geometry;
	double wavelength = JUNGFRAU_HC / config->energy;
	struct model_random random;
	int ret;

	for (uint32_t m = 0; m < config->modules; m++) {
		jungfrau_module_init(&model->module[m], config->seed, m, config->energy,
			config->noise, model->normal);
		if (config->drift != 0.0) {
			ret = jungfrau_module_drift(
				&model->module[m], config->seed, m, config->drift);
			if (ret != 0)
				return ret;
		}
	}
	geometry = geometry_of(config);
	if (config->geometry != NULL) {
		geometry.beam_x = geometry.beam_y = 0.0;
		ret = panel_places_create(config->geometry, geometry.distance, &model->places);
		if (ret != 0)
			return ret;
		geometry.places = model->places;
	}
	random.counter = model_random_key(config->seed, MODEL_PURPOSE_FLICKERING, 0, 0);
	for (uint32_t i = 0; i < FLICKERING_PIXELS; i++) {
		uint32_t m = model_random_below(&random, config->modules);

		jungfrau_module_add_flickering(&model->module[m], &random);
	}
	ret = jungfrau_pattern_init(
		&model->pattern, &geometry, config->cell, wavelength, config->peaks, config->seed);
	if (ret != 0)
		return ret;
	return jungfrau_background_init(
		&model->background, &geometry, wavelength, config->background);
}

int
jungfrau_model_create(const struct jungfrau_model_config *config, struct jungfrau_model **result)
{
	struct jungfrau_model *model;
	int ret = -ENOMEM;

	if (!config_usable(config))
		return -EINVAL;
	model = calloc(1, sizeof(*model));
	if (model == NULL)
		return -ENOMEM;
	model->config = *config;
	model_normal_table(model->normal);
	model->module = calloc(config->modules, sizeof(*model->module));
	if (model->module != NULL)
		ret = physics_init(model);
	if (ret != 0) {
		jungfrau_model_destroy(model);
		return ret;
	}
	*result = model;
	return 0;
}

void
jungfrau_model_destroy(struct jungfrau_model *model)
{
	if (model == NULL)
		return;
	if (model->module != NULL)
		for (uint32_t m = 0; m < model->config.modules; m++)
			free(model->module[m].drift);
	free(model->module);
	panel_places_destroy(model->places);
	jungfrau_background_release(&model->background);
	free(model);
}

/* A crystal in the beam: peaks where its lattice meets the Ewald sphere. */
static void
plan_hit(const struct jungfrau_model *model, struct model_random *random,
	struct jungfrau_frame *frame)
{
	const struct jungfrau_model_config *config = &model->config;
	/* the weakest hit has half of the mean: fewer peaks are not a usable pattern */
	uint32_t wanted = (config->peaks + 1) / 2 +
		model_random_poisson(random, config->peaks / 2, model->normal);
	double mean = PEAK_PHOTONS * (0.5 + 0.5 * model_random_exponential(random));
	struct jungfrau_spot spots[JUNGFRAU_PEAKS_MAX];

	if (wanted > JUNGFRAU_PEAKS_MAX)
		wanted = JUNGFRAU_PEAKS_MAX;
	frame->peaks = frame->nb_peaks =
		jungfrau_pattern_make(&model->pattern, random, wanted, spots);
	/* false if the beam is far off the detector */
	frame->hit = frame->peaks > 0;
	for (uint32_t i = 0; i < frame->nb_peaks; i++) {
		double photons = (PEAK_PHOTONS_MIN + mean * spots[i].strength) * spots[i].factor;

		frame->peak[i] = (struct jungfrau_peak){
			.module = spots[i].place.module,
			.row = (float)spots[i].place.row,
			.column = (float)spots[i].place.column,
			.photons = (float)(photons < PEAK_PHOTONS_MAX ? photons : PEAK_PHOTONS_MAX),
			.width = (float)(0.8 + 0.8 * model_random_uniform(random)),
			/* the y axis of the model is opposite to that of the geometry */
			.index = {-spots[i].index[0], -spots[i].index[1], -spots[i].index[2]},
		};
	}
}

/* Stray peaks without a crystal, at random positions. */
static void
plan_strays(const struct jungfrau_model *model, struct model_random *random,
	struct jungfrau_frame *frame)
{
	frame->nb_peaks = model_random_poisson(random, STRAY_MEAN, model->normal);
	for (uint32_t i = 0; i < frame->nb_peaks; i++) {
		struct jungfrau_peak *peak = &frame->peak[i];

		memset(peak->index, 0, sizeof(peak->index));
		peak->photons = (float)(PEAK_PHOTONS_MIN +
			STRAY_PHOTONS * model_random_exponential(random));
		peak->module = model_random_below(random, model->config.modules);
		peak->row = (float)(model_random_uniform(random) * (JUNGFRAU_ROWS - 1));
		peak->column = (float)(model_random_uniform(random) * (JUNGFRAU_COLUMNS - 1));
		peak->width = (float)(0.8 + 0.8 * model_random_uniform(random));
	}
}

void
jungfrau_model_plan(
	const struct jungfrau_model *model, uint64_t number, struct jungfrau_frame *frame)
{
	const struct jungfrau_model_config *config = &model->config;
	struct model_random random = {
		.counter = model_random_key(config->seed, MODEL_PURPOSE_PLAN, number, 0)};

	frame->number = number;
	frame->peaks = frame->nb_peaks = 0;
	frame->dark = config->dark_run != JUNGFRAU_DARK_RUN_NONE ||
		(config->dark_every != 0 && number % config->dark_every == 0);
	frame->hit = model_random_uniform(&random) < config->hit_fraction && !frame->dark;
	if (frame->hit)
		plan_hit(model, &random, frame);
	else if (!frame->dark)
		plan_strays(model, &random, frame);
}

/* Expected photons of the pixels in a peak's window; rows and columns start at top and left. */
static void
peak_profile(const struct jungfrau_peak *peak, int32_t top, int32_t left, double share[PEAK_PIXELS])
{
	double inverse2 = 1.0 / ((double)peak->width * (double)peak->width);
	double sum = 0.0;

	for (int i = 0; i < PEAK_PIXELS; i++) {
		double y = top + i / PEAK_WINDOW - (double)peak->row;
		double x = left + i % PEAK_WINDOW - (double)peak->column;
		double base = 1.0 + (x * x + y * y) * inverse2;

		share[i] = 1.0 / (base * base * base);
		sum += share[i];
	}
	for (int i = 0; i < PEAK_PIXELS; i++)
		share[i] *= (double)peak->photons / sum;
}

/* Corner of the window of a peak. */
static void
peak_corner(const struct jungfrau_peak *peak, int32_t *top, int32_t *left)
{
	*top = (int32_t)(peak->row + 0.5f) - PEAK_RADIUS;
	*left = (int32_t)(peak->column + 0.5f) - PEAK_RADIUS;
}

/* The pixel in which a peak is. Its centre may have been rounded to the edge of the module. */
static void
peak_pixel_at(const struct jungfrau_peak *peak, uint32_t *row, uint32_t *column)
{
	*row = (uint32_t)(peak->row + 0.5f);
	*column = (uint32_t)(peak->column + 0.5f);
	if (*row >= JUNGFRAU_ROWS)
		*row = JUNGFRAU_ROWS - 1;
	if (*column >= JUNGFRAU_COLUMNS)
		*column = JUNGFRAU_COLUMNS - 1;
}

/* Whether a pixel of the window of a peak exists. Panels of a file end at their edges; in a stack,
 * windows reach over the gaps of chips. */
static bool
peak_reaches(const struct jungfrau_model *model, const struct jungfrau_peak *peak, int32_t row,
	int32_t column)
{
	const uint32_t first = peak->module * JUNGFRAU_ROWS;
	uint32_t centre_row, centre_column;

	if (row < 0 || row >= JUNGFRAU_ROWS || column < 0 || column >= JUNGFRAU_COLUMNS)
		return false;
	if (model->places == NULL)
		return true;
	peak_pixel_at(peak, &centre_row, &centre_column);
	return panel_places_same(model->places, first + (uint32_t)row, (uint32_t)column,
		first + centre_row, centre_column);
}

double
jungfrau_model_peak_photons(const struct jungfrau_model *model, const struct jungfrau_peak *peak)
{
	const int32_t first = (int32_t)jungfrau_first_row(model->config.rows);
	double share[PEAK_PIXELS], sum = 0.0;
	int32_t top, left;

	peak_corner(peak, &top, &left);
	peak_profile(peak, top, left, share);
	for (int i = 0; i < PEAK_PIXELS; i++) {
		const int32_t row = top + i / PEAK_WINDOW, column = left + i % PEAK_WINDOW;

		if (row >= first && row < first + (int32_t)model->config.rows &&
			peak_reaches(model, peak, row, column) &&
			!model->module[peak->module].mask[row * JUNGFRAU_COLUMNS + column])
			sum += share[i];
	}
	return sum;
}

const char *
jungfrau_model_peak_panel(const struct jungfrau_model *model, const struct jungfrau_peak *peak,
	char text[GEOMETRY_NAME_LEN])
{
	uint32_t row, column;

	peak_pixel_at(peak, &row, &column);
	if (model->places != NULL)
		return panel_places_name(model->places, peak->module * JUNGFRAU_ROWS + row, column);
	/* as layout_geometry() */
	snprintf(text, GEOMETRY_NAME_LEN, "m%uc%u", peak->module,
		row / LAYOUT_JUNGFRAU_CHIP * (JUNGFRAU_COLUMNS / LAYOUT_JUNGFRAU_CHIP) +
			column / LAYOUT_JUNGFRAU_CHIP);
	return text;
}

static int
compare_peak_pixels(const void *a, const void *b)
{
	uint32_t x = ((const struct peak_pixel *)a)->pixel;
	uint32_t y = ((const struct peak_pixel *)b)->pixel;

	return (x > y) - (x < y);
}

/* Photons that peaks add to pixels of a module, ordered by pixel; a pixel may occur several times.
 */
static uint32_t
peak_pixels(const struct jungfrau_model *model, const struct jungfrau_frame *frame, uint32_t module,
	struct peak_pixel *list)
{
	double share[PEAK_PIXELS];
	uint32_t count = 0;

	for (uint32_t p = 0; p < frame->nb_peaks; p++) {
		const struct jungfrau_peak *peak = &frame->peak[p];
		struct model_random random = {.counter = model_random_key(model->config.seed,
						      MODEL_PURPOSE_PEAK, frame->number, p)};
		int32_t top, left;

		if (peak->module != module)
			continue;
		peak_corner(peak, &top, &left);
		peak_profile(peak, top, left, share);
		for (int i = 0; i < PEAK_PIXELS; i++) {
			int32_t row = top + i / PEAK_WINDOW, column = left + i % PEAK_WINDOW;
			uint32_t photons = model_random_poisson(&random, share[i], model->normal);

			if (photons == 0 || !peak_reaches(model, peak, row, column))
				continue;
			list[count++] = (struct peak_pixel){
				.pixel = (uint32_t)(row * JUNGFRAU_COLUMNS + column),
				.photons = photons};
		}
	}
	qsort(list, count, sizeof(*list), compare_peak_pixels);
	return count;
}

static void
draw_peaks(const struct jungfrau_model *model, const struct jungfrau_frame *frame, uint32_t module,
	uint64_t key, uint16_t *raw)
{
	const uint8_t *levels = model->background.level[module];
	const struct jungfrau_module *constants = &model->module[module];
	float seconds = frame_seconds(model, frame);
	struct peak_pixel list[JUNGFRAU_PEAKS_MAX * PEAK_PIXELS]; /* 200 kB */
	uint32_t count = peak_pixels(model, frame, module, list);

	for (uint32_t i = 0; i < count;) {
		uint32_t pixel = list[i].pixel;
		uint64_t random = model_random_at(key, pixel);
		uint32_t photons =
			jungfrau_background_photons(&model->background, levels, pixel, random);

		for (; i < count && list[i].pixel == pixel; i++)
			photons += list[i].photons;
		raw[pixel] = jungfrau_module_raw(constants, pixel, seconds, photons, random);
	}
}

/* Fill the rows that are not read out. */
static void
blank_rows(const struct jungfrau_model *model, uint16_t *raw)
{
	uint32_t first = jungfrau_first_row(model->config.rows);
	uint32_t end = first + model->config.rows;

	memset(raw, 0xff, (size_t)first * JUNGFRAU_COLUMNS * sizeof(*raw));
	memset(raw + (size_t)end * JUNGFRAU_COLUMNS, 0xff,
		(size_t)(JUNGFRAU_ROWS - end) * JUNGFRAU_COLUMNS * sizeof(*raw));
}

void
jungfrau_model_draw(const struct jungfrau_model *model, const struct jungfrau_frame *frame,
	uint32_t module, uint16_t raw[JUNGFRAU_PIXELS])
{
	const struct jungfrau_module *constants = &model->module[module];
	const uint8_t *levels = model->background.level[module];
	float seconds = frame_seconds(model, frame);
	uint64_t key =
		model_random_key(model->config.seed, MODEL_PURPOSE_PIXELS, frame->number, module);

	if (model->config.dark_run == JUNGFRAU_DARK_RUN_G1) {
		jungfrau_module_draw_forced(constants, 1, key, raw);
	} else if (model->config.dark_run == JUNGFRAU_DARK_RUN_G2) {
		jungfrau_module_draw_forced(constants, 2, key, raw);
	} else {
		for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
			uint64_t random = model_random_at(key, pixel);
			uint32_t photons = 0;

			if (!frame->dark)
				photons = jungfrau_background_photons(
					&model->background, levels, pixel, random);
			raw[pixel] =
				jungfrau_module_raw(constants, pixel, seconds, photons, random);
		}
	}
	if (frame->nb_peaks > 0)
		draw_peaks(model, frame, module, key, raw);
	jungfrau_module_draw_specials(constants,
		model_random_key(
			model->config.seed, MODEL_PURPOSE_SPECIAL_VALUE, frame->number, module),
		seconds, raw);
	blank_rows(model, raw);
}

void
jungfrau_model_calibration(const struct jungfrau_model *model, uint32_t module,
	struct jungfrau_calibration *calibration)
{
	const struct jungfrau_module *constants = &model->module[module];

	for (unsigned int stage = 0; stage < JUNGFRAU_GAINS; stage++) {
		for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
			calibration->gain[stage][pixel] =
				(double)jungfrau_module_gain(constants, stage, pixel);
			calibration->pedestal[stage][pixel] =
				jungfrau_module_pedestal(constants, stage, pixel);
		}
	}
	memcpy(calibration->mask, constants->mask, sizeof(calibration->mask));
}

void
jungfrau_model_pixel_counts(const struct jungfrau_model *model, const struct jungfrau_frame *frame,
	uint32_t module, const uint16_t raw[JUNGFRAU_PIXELS], double threshold,
	struct jungfrau_pixel_counts *pixel_counts)
{
	const struct jungfrau_module *constants = &model->module[module];
	float seconds = frame_seconds(model, frame);
	uint32_t first = jungfrau_first_row(model->config.rows) * JUNGFRAU_COLUMNS;
	uint32_t end = first + model->config.rows * JUNGFRAU_COLUMNS;
	/* nearly all pixels are in G0 far below the threshold and need no exact conversion */
	float worth = (float)(threshold * 0.99 - 0.01);

	for (uint32_t pixel = first; pixel < end; pixel++) {
		float above = (float)raw[pixel] - constants->pedestal[pixel] -
			jungfrau_module_shift(constants, pixel, seconds);

		if (raw[pixel] < JUNGFRAU_RAW_G1 && above < worth * constants->photon_gain[pixel])
			continue;
		if (constants->mask[pixel])
			continue;
		pixel_counts->strong += (double)jungfrau_module_photons(
						constants, pixel, seconds, raw[pixel]) >= threshold;
		pixel_counts->saturated += raw[pixel] == JUNGFRAU_RAW_SATURATED;
		pixel_counts->switched += (raw[pixel] & JUNGFRAU_RAW_GAIN_MASK) != 0;
	}
}
