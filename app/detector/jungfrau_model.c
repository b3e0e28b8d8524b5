/* SPDX-License-Identifier: BSD-3-Clause */

#include "jungfrau_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "jungfrau_module.h"
#include "model_random.h"

/* Pixels that flicker and that no mask names: of the whole detector, so that a hit is told from the
 * rest by the same count for any number of modules. */
#define FLICKERING_PIXELS 8

/* Peaks: README.rst, The model. */
#define PEAK_PHOTONS_MIN 15.0
#define PEAK_PHOTONS	 120.0
#define STRAY_PHOTONS	 60.0
#define STRAY_MEAN	 0.3
#define PEAK_PHOTONS_MAX 100000.0
#define PEAK_RADIUS	 3
#define PEAK_WINDOW	 (2 * PEAK_RADIUS + 1)
#define PEAK_PIXELS	 (PEAK_WINDOW * PEAK_WINDOW)

/* Background: mean quantised to levels; counts by inversion of 31-bit cumulative tables, entered
 * through a guide of the upper bits, so that one comparison is enough for nearly every pixel. */
#define LEVELS	   64
#define COUNTS	   64 /* a mean of 20 exceeds it once in 10^13 */
#define GUIDE_BITS 8
#define LAMBDA_MAX 20.0

struct jungfrau_model {
	struct jungfrau_model_config config;
	float normal[MODEL_NORMALS];
	uint32_t cumulative[LEVELS][COUNTS];
	uint8_t guide[LEVELS][1 << GUIDE_BITS];
	struct jungfrau_module *module;
	uint8_t (*background)[JUNGFRAU_PIXELS]; /* level, by module */
};

struct peak_pixel {
	uint32_t pixel;
	uint32_t photons;
};

static void
count_table_init(struct jungfrau_model *model, uint32_t level, double lambda)
{
	uint32_t *cumulative = model->cumulative[level];
	double probability = model_exp_minus(lambda);
	double sum = 0.0;
	uint32_t count = 0;

	for (uint32_t n = 0; n < COUNTS; n++) {
		sum += probability;
		/* the last one is above every 31-bit number and ends the search */
		cumulative[n] = sum < 1.0 && n < COUNTS - 1 ? (uint32_t)(sum * 0x1p31) : 1u << 31;
		probability *= lambda / (n + 1);
	}
	for (uint32_t i = 0; i < 1u << GUIDE_BITS; i++) {
		while (i << (31 - GUIDE_BITS) >= cumulative[count])
			count++;
		model->guide[level][i] = (uint8_t)count;
	}
}

/* A scattering background falls with the distance from the beam in the middle of the stack, to one
 * half at a quarter of its diagonal. */
static void
background_init(struct jungfrau_model *model)
{
	const struct jungfrau_model_config *config = &model->config;
	uint32_t stack_columns =
		(config->modules + config->column_modules - 1) / config->column_modules;
	double height = (double)config->column_modules * JUNGFRAU_ROWS;
	double width = (double)stack_columns * JUNGFRAU_COLUMNS;
	double radius2 = (height * height + width * width) / 16.0;
	uint64_t pixels_of[LEVELS] = {0};
	double sum = 0.0;

	for (uint32_t m = 0; m < config->modules; m++) {
		double top = m % config->column_modules * (double)JUNGFRAU_ROWS - height * 0.5;
		double left = m / config->column_modules * (double)JUNGFRAU_COLUMNS - width * 0.5;

		for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
			double y = top + pixel / JUNGFRAU_COLUMNS + 0.5;
			double x = left + pixel % JUNGFRAU_COLUMNS + 0.5;
			double shape = 1.0 / (1.0 + (x * x + y * y) / radius2);
			uint32_t level = (uint32_t)(shape * LEVELS);

			if (level >= LEVELS)
				level = LEVELS - 1;
			model->background[m][pixel] = (uint8_t)level;
			pixels_of[level]++;
		}
	}
	for (uint32_t level = 0; level < LEVELS; level++)
		sum += (double)pixels_of[level] * (level + 0.5);
	for (uint32_t level = 0; level < LEVELS; level++) {
		double lambda = config->background * config->modules * JUNGFRAU_PIXELS *
			(level + 0.5) / sum;

		/* levels that no pixel has may be beyond the table */
		count_table_init(model, level, lambda < LAMBDA_MAX ? lambda : LAMBDA_MAX);
	}
}

static bool
config_usable(const struct jungfrau_model_config *config)
{
	return config->modules >= 1 && config->modules <= JUNGFRAU_MODULES_MAX &&
		config->column_modules >= 1 && config->column_modules <= config->modules &&
		config->hit_fraction >= 0.0 && config->hit_fraction <= 1.0 &&
		config->peaks <= JUNGFRAU_MEAN_PEAKS_MAX && config->energy > 0.0 &&
		config->background >= 0.0 && config->background <= JUNGFRAU_BACKGROUND_MAX &&
		config->noise >= 0.0;
}

int
jungfrau_model_create(const struct jungfrau_model_config *config, struct jungfrau_model **result)
{
	struct jungfrau_model *model;
	struct model_random random;

	if (!config_usable(config))
		return -EINVAL;
	model = calloc(1, sizeof(*model));
	if (model == NULL)
		return -ENOMEM;
	model->config = *config;
	model->module = calloc(config->modules, sizeof(*model->module));
	model->background = calloc(config->modules, sizeof(*model->background));
	if (model->module == NULL || model->background == NULL) {
		jungfrau_model_destroy(model);
		return -ENOMEM;
	}
	model_normal_table(model->normal);
	for (uint32_t m = 0; m < config->modules; m++)
		jungfrau_module_init(&model->module[m], config->seed, m, config->energy,
			config->noise, model->normal);
	background_init(model);

	random.counter = model_random_key(config->seed, MODEL_PURPOSE_FLICKERING, 0, 0);
	for (uint32_t i = 0; i < FLICKERING_PIXELS; i++) {
		uint32_t m = model_random_below(&random, config->modules);

		jungfrau_module_add_flickering(&model->module[m], &random);
	}
	*result = model;
	return 0;
}

void
jungfrau_model_destroy(struct jungfrau_model *model)
{
	if (model == NULL)
		return;
	free(model->module);
	free(model->background);
	free(model);
}

void
jungfrau_model_plan(
	const struct jungfrau_model *model, uint64_t number, struct jungfrau_frame *frame)
{
	const struct jungfrau_model_config *config = &model->config;
	struct model_random random = {
		.counter = model_random_key(config->seed, MODEL_PURPOSE_PLAN, number, 0)};
	double mean_photons = STRAY_PHOTONS;
	uint32_t count;

	frame->number = number;
	frame->dark = config->dark_every != 0 && number % config->dark_every == 0;
	frame->hit = model_random_uniform(&random) < config->hit_fraction && !frame->dark;
	if (frame->dark) {
		count = 0;
	} else if (frame->hit) {
		/* the poorest hit has half of the mean: fewer peaks than that are no pattern */
		count = (config->peaks + 1) / 2 +
			model_random_poisson(&random, config->peaks / 2, model->normal);
		mean_photons = PEAK_PHOTONS * (0.5 + 0.5 * model_random_exponential(&random));
	} else {
		count = model_random_poisson(&random, STRAY_MEAN, model->normal);
	}
	frame->nb_peaks = count < JUNGFRAU_PEAKS_MAX ? count : JUNGFRAU_PEAKS_MAX;
	frame->peaks = frame->hit ? frame->nb_peaks : 0;

	for (uint32_t i = 0; i < frame->nb_peaks; i++) {
		struct jungfrau_peak *peak = &frame->peak[i];
		double photons =
			PEAK_PHOTONS_MIN + mean_photons * model_random_exponential(&random);
		double kind = model_random_uniform(&random);

		/* low orders are far stronger than the rest: 3 % reach G2, 0.1 % may saturate */
		if (frame->hit && kind < 0.001)
			photons *= 400.0;
		else if (frame->hit && kind < 0.031)
			photons *= 20.0;
		peak->photons = (float)(photons < PEAK_PHOTONS_MAX ? photons : PEAK_PHOTONS_MAX);
		peak->module = model_random_below(&random, config->modules);
		peak->row = (float)(model_random_uniform(&random) * (JUNGFRAU_ROWS - 1));
		peak->column = (float)(model_random_uniform(&random) * (JUNGFRAU_COLUMNS - 1));
		peak->width = (float)(0.8 + 0.8 * model_random_uniform(&random));
	}
}

static uint32_t
background_photons(
	const struct jungfrau_model *model, const uint8_t *levels, uint32_t pixel, uint64_t random)
{
	uint32_t uniform = (uint32_t)random >> 1;
	uint32_t level = levels[pixel];
	uint32_t count = model->guide[level][uniform >> (31 - GUIDE_BITS)];

	while (uniform >= model->cumulative[level][count])
		count++;
	return count;
}

/* Expected photons of the pixels of a peak's window; rows and columns start at top and left. */
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

static int
compare_peak_pixels(const void *a, const void *b)
{
	uint32_t x = ((const struct peak_pixel *)a)->pixel;
	uint32_t y = ((const struct peak_pixel *)b)->pixel;

	return (x > y) - (x < y);
}

/* Photons that peaks add to pixels of a module, ordered by pixel; a pixel may occur repeatedly. */
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
		int32_t top = (int32_t)(peak->row + 0.5f) - PEAK_RADIUS;
		int32_t left = (int32_t)(peak->column + 0.5f) - PEAK_RADIUS;

		if (peak->module != module)
			continue;
		peak_profile(peak, top, left, share);
		for (int i = 0; i < PEAK_PIXELS; i++) {
			int32_t row = top + i / PEAK_WINDOW, column = left + i % PEAK_WINDOW;
			uint32_t photons = model_random_poisson(&random, share[i], model->normal);

			if (photons == 0 || row < 0 || row >= JUNGFRAU_ROWS || column < 0 ||
				column >= JUNGFRAU_COLUMNS)
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
	const uint8_t *levels = model->background[module];
	struct peak_pixel list[JUNGFRAU_PEAKS_MAX * PEAK_PIXELS]; /* 200 kB */
	uint32_t count = peak_pixels(model, frame, module, list);

	for (uint32_t i = 0; i < count;) {
		uint32_t pixel = list[i].pixel;
		uint64_t random = model_random_at(key, pixel);
		uint32_t photons = background_photons(model, levels, pixel, random);

		for (; i < count && list[i].pixel == pixel; i++)
			photons += list[i].photons;
		raw[pixel] = jungfrau_module_raw(&model->module[module], pixel, photons, random);
	}
}

void
jungfrau_model_draw(const struct jungfrau_model *model, const struct jungfrau_frame *frame,
	uint32_t module, uint16_t raw[JUNGFRAU_PIXELS])
{
	const uint8_t *levels = model->background[module];
	uint64_t key =
		model_random_key(model->config.seed, MODEL_PURPOSE_PIXELS, frame->number, module);

	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
		uint64_t random = model_random_at(key, pixel);
		uint32_t photons = 0;

		if (!frame->dark)
			photons = background_photons(model, levels, pixel, random);
		raw[pixel] = jungfrau_module_raw(&model->module[module], pixel, photons, random);
	}
	if (frame->nb_peaks > 0)
		draw_peaks(model, frame, module, key, raw);
	jungfrau_module_draw_specials(&model->module[module],
		model_random_key(
			model->config.seed, MODEL_PURPOSE_SPECIAL_VALUE, frame->number, module),
		raw);
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
jungfrau_model_census(const struct jungfrau_model *model, uint32_t module,
	const uint16_t raw[JUNGFRAU_PIXELS], double threshold, struct jungfrau_census *census)
{
	const struct jungfrau_module *constants = &model->module[module];
	/* what is far below the threshold in G0, nearly all, need not be converted exactly */
	float worth = (float)(threshold * 0.99 - 0.01);

	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
		float above = (float)raw[pixel] - constants->pedestal[pixel];

		if (raw[pixel] < JUNGFRAU_RAW_G1 && above < worth * constants->photon_gain[pixel])
			continue;
		if (constants->mask[pixel])
			continue;
		census->strong +=
			(double)jungfrau_module_photons(constants, pixel, raw[pixel]) >= threshold;
		census->saturated += raw[pixel] == JUNGFRAU_RAW_SATURATED;
		census->switched += (raw[pixel] & JUNGFRAU_RAW_GAIN_MASK) != 0;
	}
}
