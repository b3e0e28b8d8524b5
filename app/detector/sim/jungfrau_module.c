/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/jungfrau_module.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Detector constants: pedestals as in PSI's module 5 (10 to 90 % within 2166-2733, 13397-13783 and
 * 13889-14315 ADU), gains from slsDetectorPackage's Definitions.h; their spread is an assumption.
 */
static const struct {
	double gain, gain_spread;	  /* ADU/keV, relative */
	double pedestal, pedestal_spread; /* ADU */
	double noise;			  /* ADU rms; that of G0 is configured */
} stage_constants[JUNGFRAU_GAINS] = {
	{41.0, 0.02, 2450.0, 180.0, 0.0},
	{-1.439, 0.02, 13584.0, 150.0, 8.0},
	{-0.1145, 0.02, 14100.0, 165.0, 8.0},
};

#define ADC_PEDESTAL_SIGMA 120.0f

/* Below this value a pixel switches from G1 to G2: about 640 photons of 12.4 keV, as in PSI's
 * frames. */
#define G1_SWITCH_ADU 2200.0f
#define ADC_MAX	      16383.0f

/* Masked pixels of a module. */
#define DEAD_PIXELS    150
#define HOT_PIXELS     60
#define STUCK_PIXELS   20
#define INVALID_PIXELS 5

#define FLICKER_ONE_IN	4
#define FLICKER_PHOTONS 12 /* and up to FLICKER_RANGE - 1 more */
#define FLICKER_RANGE	28

static_assert(DEAD_PIXELS + HOT_PIXELS + STUCK_PIXELS + INVALID_PIXELS < JUNGFRAU_SPECIALS_MAX,
	"special pixels have places");

float
jungfrau_module_gain(const struct jungfrau_module *module, unsigned int stage, uint32_t pixel)
{
	double z = (double)module->normal[model_random_at(module->gain_key[stage], pixel) >> 52];

	return (float)(stage_constants[stage].gain *
		(1.0 + stage_constants[stage].gain_spread * z));
}

float
jungfrau_module_pedestal(const struct jungfrau_module *module, unsigned int stage, uint32_t pixel)
{
	double z =
		(double)module->normal[model_random_at(module->pedestal_key[stage], pixel) >> 52];
	double value = stage_constants[stage].pedestal + stage_constants[stage].pedestal_spread * z;
	uint32_t half = pixel / (JUNGFRAU_PIXELS / 2);
	uint32_t adc = half * (JUNGFRAU_ADCS / 2) + pixel % JUNGFRAU_COLUMNS / JUNGFRAU_ADC_COLUMNS;

	if (stage == 0)
		value += (double)module->adc_offset[adc];
	return (float)value;
}

static void
place_special(struct jungfrau_module *module, struct model_random *random,
	enum jungfrau_special kind, uint32_t count)
{
	uint32_t pixel;

	while (count > 0 && module->nb_specials < JUNGFRAU_SPECIALS_MAX) {
		pixel = model_random_below(random, JUNGFRAU_PIXELS);
		if (module->mask[pixel])
			continue;
		module->mask[pixel] = kind != JUNGFRAU_FLICKERING;
		module->special[module->nb_specials].pixel = pixel;
		module->special[module->nb_specials++].kind = kind;
		count--;
	}
}

void
jungfrau_module_add_flickering(struct jungfrau_module *module, struct model_random *random)
{
	place_special(module, random, JUNGFRAU_FLICKERING, 1);
}

void
jungfrau_module_init(struct jungfrau_module *module, uint64_t seed, uint32_t index, double energy,
	double noise, const float *normal)
{
	struct model_random random;

	module->normal = normal;
	module->energy = energy;
	module->noise = (float)(noise * stage_constants[0].gain);
	for (unsigned int stage = 0; stage < JUNGFRAU_GAINS; stage++) {
		module->gain_key[stage] =
			model_random_key(seed, MODEL_PURPOSE_GAIN + stage, index, 0);
		module->pedestal_key[stage] =
			model_random_key(seed, MODEL_PURPOSE_PEDESTAL + stage, index, 0);
	}
	random.counter = model_random_key(seed, MODEL_PURPOSE_ADC, index, 0);
	for (uint32_t adc = 0; adc < JUNGFRAU_ADCS; adc++)
		module->adc_offset[adc] =
			ADC_PEDESTAL_SIGMA * normal[model_random_next(&random) >> 52];

	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
		module->pedestal[pixel] = jungfrau_module_pedestal(module, 0, pixel);
		module->photon_gain[pixel] =
			(float)((double)jungfrau_module_gain(module, 0, pixel) * energy);
	}

	random.counter = model_random_key(seed, MODEL_PURPOSE_SPECIAL, index, 0);
	place_special(module, &random, JUNGFRAU_DEAD, DEAD_PIXELS);
	place_special(module, &random, JUNGFRAU_HOT, HOT_PIXELS);
	place_special(module, &random, JUNGFRAU_STUCK, STUCK_PIXELS);
	place_special(module, &random, JUNGFRAU_INVALID, INVALID_PIXELS);
}

int
jungfrau_module_drift(struct jungfrau_module *module, uint64_t seed, uint32_t index, double mean)
{
	uint64_t key = model_random_key(seed, MODEL_PURPOSE_DRIFT, index, 0);

	module->drift = malloc(JUNGFRAU_PIXELS * sizeof(*module->drift));
	if (module->drift == NULL)
		return -ENOMEM;
	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++)
		module->drift[pixel] = (float)mean *
			(1.0f + 0.5f * module->normal[model_random_at(key, pixel) >> 52]);
	return 0;
}

static float
switched_adu(const struct jungfrau_module *module, unsigned int stage, uint32_t pixel,
	uint32_t photons, float z)
{
	float kev = (float)((double)photons * module->energy);

	return jungfrau_module_pedestal(module, stage, pixel) +
		kev * jungfrau_module_gain(module, stage, pixel) +
		z * (float)stage_constants[stage].noise + 0.5f;
}

uint16_t
jungfrau_module_raw_switched(
	const struct jungfrau_module *module, uint32_t pixel, uint32_t photons, float z)
{
	float adu = switched_adu(module, 1, pixel, photons, z);

	if (adu >= G1_SWITCH_ADU)
		return JUNGFRAU_RAW_G1 | (uint16_t)(adu < ADC_MAX ? adu : ADC_MAX);
	adu = switched_adu(module, 2, pixel, photons, z);
	if (adu < 1.0f)
		return JUNGFRAU_RAW_SATURATED;
	/* 0xffff means missing */
	return JUNGFRAU_RAW_G2 | (uint16_t)(adu < ADC_MAX - 1 ? adu : ADC_MAX - 1);
}

void
jungfrau_module_draw_forced(const struct jungfrau_module *module, unsigned int stage, uint64_t key,
	uint16_t raw[JUNGFRAU_PIXELS])
{
	uint16_t code = stage == 1 ? JUNGFRAU_RAW_G1 : JUNGFRAU_RAW_G2;

	for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
		float z = module->normal[model_random_at(key, pixel) >> 52];
		float adu = switched_adu(module, stage, pixel, 0, z);

		/* 0x4000, 0xc000 and 0xffff have other meanings */
		adu = adu < 1.0f ? 1.0f : adu < ADC_MAX - 1 ? adu : ADC_MAX - 1;
		raw[pixel] = code | (uint16_t)adu;
	}
}

void
jungfrau_module_draw_specials(const struct jungfrau_module *module, uint64_t key, float seconds,
	uint16_t raw[JUNGFRAU_PIXELS])
{
	for (uint32_t i = 0; i < module->nb_specials; i++) {
		uint32_t pixel = module->special[i].pixel;
		uint64_t random = model_random_at(key, i);

		switch (module->special[i].kind) {
		case JUNGFRAU_DEAD:
			raw[pixel] = 0;
			break;
		case JUNGFRAU_HOT:
			raw[pixel] = random & JUNGFRAU_RAW_ADC_MASK;
			break;
		case JUNGFRAU_STUCK:
			raw[pixel] = JUNGFRAU_RAW_G1;
			break;
		case JUNGFRAU_INVALID:
			raw[pixel] = JUNGFRAU_RAW_INVALID | (random & JUNGFRAU_RAW_ADC_MASK);
			break;
		case JUNGFRAU_FLICKERING:
			/* a forced gain stage does not show so little light */
			if (random % FLICKER_ONE_IN != 0 || raw[pixel] >= JUNGFRAU_RAW_G1)
				break;
			raw[pixel] = jungfrau_module_raw(module, pixel, seconds,
				FLICKER_PHOTONS + (random >> 32) % FLICKER_RANGE,
				model_random_mix(random));
			break;
		}
	}
}

float
jungfrau_module_photons(
	const struct jungfrau_module *module, uint32_t pixel, float seconds, uint16_t raw)
{
	float pedestal;
	unsigned int code = raw >> 14;
	unsigned int stage = code == 3 ? 2 : code;
	float r;

	if (raw == JUNGFRAU_RAW_SATURATED)
		return INFINITY;
	if (code == 2 || raw == JUNGFRAU_RAW_G1)
		return NAN;
	r = (float)(1.0 / ((double)jungfrau_module_gain(module, stage, pixel) * module->energy));
	pedestal = jungfrau_module_pedestal(module, stage, pixel);
	if (stage == 0)
		pedestal += jungfrau_module_shift(module, pixel, seconds);
	return ((float)(raw & JUNGFRAU_RAW_ADC_MASK) - pedestal) * r;
}
