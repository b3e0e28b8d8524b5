/* SPDX-License-Identifier: BSD-3-Clause */

#include "jungfrau_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_random.h"

/* Detector constants: medians and spreads of PSI's module 5 (shared data, detectors.md 3.5), gains
 * from slsDetectorPackage's Definitions.h. */
static const struct {
	double gain, gain_spread;	  /* ADU/keV, relative */
	double pedestal, pedestal_spread; /* ADU */
	double noise;			  /* ADU rms; G0 is configured in keV */
} stage_constants[JUNGFRAU_GAINS] = {
	{41.0, 0.02, 2450.0, 180.0, 0.0},
	{-1.439, 0.02, 13584.0, 150.0, 8.0},
	{-0.1145, 0.02, 14100.0, 165.0, 8.0},
};

/* G0 pedestals also differ by column of 64 pixels, which share an ADC. */
#define ADC_COLUMNS	   64
#define ADC_PEDESTAL_SIGMA 120.0

/* A comparator switches G0 to G1 above about 21 photons of 12.4 keV, G1 to G2 above about 640. */
#define G0_SWITCH_ADU 13500.0f
#define G1_SWITCH_ADU 2200.0f

#define ADC_MAX	      16383.0f
#define RAW_G1	      0x4000
#define RAW_INVALID   0x8000
#define RAW_G2	      0xc000
#define RAW_SATURATED 0xc000
#define RAW_GAIN_MASK 0xc000
#define RAW_ADC_MASK  0x3fff

/* Masked pixels of a module, and pixels of the whole detector that no mask names. */
#define DEAD_PIXELS	   150
#define HOT_PIXELS	   60
#define STUCK_PIXELS	   20
#define INVALID_PIXELS	   5
#define FLICKERING_PIXELS  8
#define FLICKER_ONE_IN	   4
#define FLICKER_PHOTONS	   12 /* ... and up to FLICKER_RANGE - 1 more */
#define FLICKER_RANGE	   28
#define MASKED_PIXELS	   (DEAD_PIXELS + HOT_PIXELS + STUCK_PIXELS + INVALID_PIXELS)
#define SPECIAL_PIXELS_MAX (MASKED_PIXELS + FLICKERING_PIXELS)

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

enum purpose {
	PURPOSE_GAIN,					  /* + stage */
	PURPOSE_PEDESTAL = PURPOSE_GAIN + JUNGFRAU_GAINS, /* + stage */
	PURPOSE_ADC = PURPOSE_PEDESTAL + JUNGFRAU_GAINS,
	PURPOSE_SPECIAL,
	PURPOSE_FLICKERING,
	PURPOSE_PLAN,
	PURPOSE_PEAK,
	PURPOSE_PIXELS,
	PURPOSE_SPECIAL_VALUE,
};

enum special_kind {
	SPECIAL_DEAD,
	SPECIAL_HOT,
	SPECIAL_STUCK,
	SPECIAL_INVALID,
	SPECIAL_FLICKERING
};

struct special_pixel {
	uint32_t pixel;
	enum special_kind kind;
};

/* G1 and G2 constants are wanted for few pixels only: they are hashed when needed, not kept. */
struct module_constants {
	uint64_t gain_key[JUNGFRAU_GAINS];
	uint64_t pedestal_key[JUNGFRAU_GAINS];
	float adc_offset[2][JUNGFRAU_COLUMNS / ADC_COLUMNS];
	uint32_t nb_specials;
	struct special_pixel special[SPECIAL_PIXELS_MAX];
	float pedestal[JUNGFRAU_PIXELS];     /* G0, ADU */
	float photon_gain[JUNGFRAU_PIXELS];  /* G0, ADU a photon */
	uint8_t background[JUNGFRAU_PIXELS]; /* level */
	uint8_t mask[JUNGFRAU_PIXELS];
};

struct jungfrau_model {
	struct jungfrau_model_config config;
	float noise; /* G0, ADU */
	float normal[MODEL_NORMALS];
	uint32_t cumulative[LEVELS][COUNTS];
	uint8_t guide[LEVELS][1 << GUIDE_BITS];
	struct module_constants *module;
};

struct peak_pixel {
	uint32_t pixel;
	uint32_t photons;
};

static float
normal_at(const struct jungfrau_model *model, uint64_t random)
{
	return model->normal[random >> 52];
}

static float
pixel_gain(const struct jungfrau_model *model, const struct module_constants *constants,
	unsigned int stage, uint32_t pixel)
{
	double z = (double)normal_at(model, model_random_at(constants->gain_key[stage], pixel));

	return (float)(stage_constants[stage].gain *
		(1.0 + stage_constants[stage].gain_spread * z));
}

static float
pixel_pedestal(const struct jungfrau_model *model, const struct module_constants *constants,
	unsigned int stage, uint32_t pixel)
{
	double z = (double)normal_at(model, model_random_at(constants->pedestal_key[stage], pixel));
	double value = stage_constants[stage].pedestal + stage_constants[stage].pedestal_spread * z;
	uint32_t half = pixel / (JUNGFRAU_PIXELS / 2);

	if (stage == 0)
		value +=
			(double)constants->adc_offset[half][pixel % JUNGFRAU_COLUMNS / ADC_COLUMNS];
	return (float)value;
}

static void
place_special(struct module_constants *constants, struct model_random *random,
	enum special_kind kind, uint32_t count)
{
	uint32_t pixel;

	while (count > 0) {
		pixel = model_random_below(random, JUNGFRAU_PIXELS);
		if (constants->mask[pixel])
			continue;
		constants->mask[pixel] = kind != SPECIAL_FLICKERING;
		constants->special[constants->nb_specials++] =
			(struct special_pixel){.pixel = pixel, .kind = kind};
		count--;
	}
}

static void
module_init(struct jungfrau_model *model, uint32_t index)
{
	struct module_constants *constants = &model->module[index];
	struct model_random random;
	uint64_t seed = model->config.seed;
	uint64_t key;

	for (unsigned int stage = 0; stage < JUNGFRAU_GAINS; stage++) {
		constants->gain_key[stage] = model_random_key(seed, PURPOSE_GAIN + stage, index, 0);
		constants->pedestal_key[stage] =
			model_random_key(seed, PURPOSE_PEDESTAL + stage, index, 0);
	}
	key = model_random_key(seed, PURPOSE_ADC, index, 0);
	for (uint32_t half = 0; half < 2; half++)
		for (uint32_t adc = 0; adc < JUNGFRAU_COLUMNS / ADC_COLUMNS; adc++)
			constants->adc_offset[half][adc] = (float)ADC_PEDESTAL_SIGMA *
				normal_at(model,
					model_random_at(
						key, half * JUNGFRAU_COLUMNS / ADC_COLUMNS + adc));

	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
		constants->pedestal[pixel] = pixel_pedestal(model, constants, 0, pixel);
		constants->photon_gain[pixel] =
			(float)((double)pixel_gain(model, constants, 0, pixel) *
				model->config.energy);
	}

	random.counter = model_random_key(seed, PURPOSE_SPECIAL, index, 0);
	place_special(constants, &random, SPECIAL_DEAD, DEAD_PIXELS);
	place_special(constants, &random, SPECIAL_HOT, HOT_PIXELS);
	place_special(constants, &random, SPECIAL_STUCK, STUCK_PIXELS);
	place_special(constants, &random, SPECIAL_INVALID, INVALID_PIXELS);
}

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
			model->module[m].background[pixel] = (uint8_t)level;
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
	if (model->module == NULL) {
		free(model);
		return -ENOMEM;
	}
	model->noise = (float)(config->noise * stage_constants[0].gain);
	model_normal_table(model->normal);
	for (uint32_t m = 0; m < config->modules; m++)
		module_init(model, m);
	background_init(model);

	random.counter = model_random_key(config->seed, PURPOSE_FLICKERING, 0, 0);
	for (uint32_t i = 0; i < FLICKERING_PIXELS; i++)
		place_special(&model->module[model_random_below(&random, config->modules)], &random,
			SPECIAL_FLICKERING, 1);
	*result = model;
	return 0;
}

void
jungfrau_model_destroy(struct jungfrau_model *model)
{
	if (model == NULL)
		return;
	free(model->module);
	free(model);
}

void
jungfrau_model_plan(
	const struct jungfrau_model *model, uint64_t number, struct jungfrau_frame *frame)
{
	const struct jungfrau_model_config *config = &model->config;
	struct model_random random = {
		.counter = model_random_key(config->seed, PURPOSE_PLAN, number, 0)};
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
background_photons(const struct jungfrau_model *model, const struct module_constants *constants,
	uint32_t pixel, uint64_t random)
{
	uint32_t uniform = (uint32_t)random >> 1;
	uint32_t level = constants->background[pixel];
	uint32_t count = model->guide[level][uniform >> (31 - GUIDE_BITS)];

	while (uniform >= model->cumulative[level][count])
		count++;
	return count;
}

/* The analogue chain: charge to gain stage and ADC value. */
static uint16_t
pixel_raw(const struct jungfrau_model *model, const struct module_constants *constants,
	uint32_t pixel, uint32_t photons, uint64_t random)
{
	float z = normal_at(model, random);
	float kev, adu;

	adu = constants->pedestal[pixel] + (float)photons * constants->photon_gain[pixel] +
		z * model->noise + 0.5f;
	if (adu < G0_SWITCH_ADU)
		return adu < 0.0f ? 0 : (uint16_t)(int32_t)adu;

	kev = (float)((double)photons * model->config.energy);
	adu = pixel_pedestal(model, constants, 1, pixel) +
		kev * pixel_gain(model, constants, 1, pixel) + z * (float)stage_constants[1].noise +
		0.5f;
	if (adu >= G1_SWITCH_ADU)
		return RAW_G1 | (uint16_t)(adu < ADC_MAX ? adu : ADC_MAX);

	adu = pixel_pedestal(model, constants, 2, pixel) +
		kev * pixel_gain(model, constants, 2, pixel) + z * (float)stage_constants[2].noise +
		0.5f;
	if (adu < 1.0f)
		return RAW_SATURATED;
	/* 0xffff would mean missing */
	return RAW_G2 | (uint16_t)(adu < ADC_MAX - 1 ? adu : ADC_MAX - 1);
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
						      PURPOSE_PEAK, frame->number, p)};
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
	const struct module_constants *constants = &model->module[module];
	struct peak_pixel list[JUNGFRAU_PEAKS_MAX * PEAK_PIXELS]; /* 200 kB */
	uint32_t count = peak_pixels(model, frame, module, list);

	for (uint32_t i = 0; i < count;) {
		uint32_t pixel = list[i].pixel;
		uint64_t random = model_random_at(key, pixel);
		uint32_t photons = background_photons(model, constants, pixel, random);

		for (; i < count && list[i].pixel == pixel; i++)
			photons += list[i].photons;
		raw[pixel] = pixel_raw(model, constants, pixel, photons, random);
	}
}

static void
draw_specials(const struct jungfrau_model *model, const struct jungfrau_frame *frame,
	uint32_t module, uint16_t *raw)
{
	const struct module_constants *constants = &model->module[module];
	uint64_t key =
		model_random_key(model->config.seed, PURPOSE_SPECIAL_VALUE, frame->number, module);

	for (uint32_t i = 0; i < constants->nb_specials; i++) {
		uint32_t pixel = constants->special[i].pixel;
		uint64_t random = model_random_at(key, i);

		switch (constants->special[i].kind) {
		case SPECIAL_DEAD:
			raw[pixel] = 0;
			break;
		case SPECIAL_HOT:
			raw[pixel] = random & RAW_ADC_MASK;
			break;
		case SPECIAL_STUCK:
			raw[pixel] = RAW_G1;
			break;
		case SPECIAL_INVALID:
			raw[pixel] = RAW_INVALID | (random & RAW_ADC_MASK);
			break;
		case SPECIAL_FLICKERING:
			if (random % FLICKER_ONE_IN == 0)
				raw[pixel] = pixel_raw(model, constants, pixel,
					FLICKER_PHOTONS + (random >> 32) % FLICKER_RANGE,
					model_random_mix(random));
			break;
		}
	}
}

void
jungfrau_model_draw(const struct jungfrau_model *model, const struct jungfrau_frame *frame,
	uint32_t module, uint16_t raw[JUNGFRAU_PIXELS])
{
	const struct module_constants *constants = &model->module[module];
	uint64_t key = model_random_key(model->config.seed, PURPOSE_PIXELS, frame->number, module);

	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
		uint64_t random = model_random_at(key, pixel);
		uint32_t photons = 0;

		if (!frame->dark)
			photons = background_photons(model, constants, pixel, random);
		raw[pixel] = pixel_raw(model, constants, pixel, photons, random);
	}
	if (frame->nb_peaks > 0)
		draw_peaks(model, frame, module, key, raw);
	draw_specials(model, frame, module, raw);
}

void
jungfrau_model_calibration(const struct jungfrau_model *model, uint32_t module,
	struct jungfrau_calibration *calibration)
{
	const struct module_constants *constants = &model->module[module];

	for (unsigned int stage = 0; stage < JUNGFRAU_GAINS; stage++) {
		for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
			calibration->gain[stage][pixel] =
				(double)pixel_gain(model, constants, stage, pixel);
			calibration->pedestal[stage][pixel] =
				pixel_pedestal(model, constants, stage, pixel);
		}
	}
	memcpy(calibration->mask, constants->mask, sizeof(calibration->mask));
}

/* Photons of a pixel: (adu - pedestal) * r, each operation rounded once in f32. */
static float
pixel_photons(const struct jungfrau_model *model, const struct module_constants *constants,
	uint32_t pixel, uint16_t raw)
{
	unsigned int code = raw >> 14;
	unsigned int stage = code == 3 ? 2 : code;
	float r;

	if (raw == RAW_SATURATED)
		return INFINITY;
	if (code == 2 || raw == RAW_G1)
		return NAN;
	r = (float)(1.0 /
		((double)pixel_gain(model, constants, stage, pixel) * model->config.energy));
	return ((float)(raw & RAW_ADC_MASK) - pixel_pedestal(model, constants, stage, pixel)) * r;
}

void
jungfrau_model_census(const struct jungfrau_model *model, uint32_t module,
	const uint16_t raw[JUNGFRAU_PIXELS], double threshold, struct jungfrau_census *census)
{
	const struct module_constants *constants = &model->module[module];
	/* what is far below the threshold in G0, nearly all, need not be converted exactly */
	float worth = (float)(threshold * 0.99 - 0.01);

	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
		float above = (float)raw[pixel] - constants->pedestal[pixel];

		if (raw[pixel] < RAW_G1 && above < worth * constants->photon_gain[pixel])
			continue;
		if (constants->mask[pixel])
			continue;
		census->strong +=
			(double)pixel_photons(model, constants, pixel, raw[pixel]) >= threshold;
		census->saturated += raw[pixel] == RAW_SATURATED;
		census->switched += (raw[pixel] & RAW_GAIN_MASK) != 0;
	}
}
