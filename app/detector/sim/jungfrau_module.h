/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * One modelled JUNGFRAU module: its constants, its bad pixels and its analogue chain.
 *
 * Constants of G0 are stored. Those of G1 and G2 are needed for few pixels only and are computed
 * from a hash of the seed. Used by jungfrau_model.c.
 */
#ifndef JUNGFRAU_MODULE_H
#define JUNGFRAU_MODULE_H

#include <stdint.h>

#include "sim/jungfrau_model.h"
#include "sim/model_random.h"

/** Columns that share an ADC. */
#define JUNGFRAU_ADC_COLUMNS 64
#define JUNGFRAU_ADCS	     (2 * JUNGFRAU_COLUMNS / JUNGFRAU_ADC_COLUMNS)

/** Maximum number of special pixels of a module: masked ones, and all flickering ones in the worst
 * case. */
#define JUNGFRAU_SPECIALS_MAX 256

/** Above this value a comparator switches a pixel from G0 to G1: about 21 photons of 12.4 keV. */
#define JUNGFRAU_G0_SWITCH_ADU 13500.0f

#define JUNGFRAU_RAW_G1	       0x4000
#define JUNGFRAU_RAW_INVALID   0x8000
#define JUNGFRAU_RAW_G2	       0xc000
#define JUNGFRAU_RAW_SATURATED 0xc000
#define JUNGFRAU_RAW_GAIN_MASK 0xc000
#define JUNGFRAU_RAW_ADC_MASK  0x3fff

/** Purposes of random numbers. Each purpose has its own generators. */
enum model_purpose {
	MODEL_PURPOSE_GAIN = 0,	    /* + stage */
	MODEL_PURPOSE_PEDESTAL = 3, /* + stage */
	MODEL_PURPOSE_ADC = 6,
	MODEL_PURPOSE_SPECIAL,
	MODEL_PURPOSE_FLICKERING,
	MODEL_PURPOSE_PLAN,
	MODEL_PURPOSE_PEAK,
	MODEL_PURPOSE_PIXELS,
	MODEL_PURPOSE_SPECIAL_VALUE,
	MODEL_PURPOSE_STRUCTURE,
	MODEL_PURPOSE_DRIFT,
	MODEL_PURPOSE_FAULT,
	MODEL_PURPOSE_DROP,
};

enum jungfrau_special {
	JUNGFRAU_DEAD,	  /* ADC 0 */
	JUNGFRAU_HOT,	  /* any ADC value */
	JUNGFRAU_STUCK,	  /* 0x4000 */
	JUNGFRAU_INVALID, /* gain code 10 */
	/* sometimes reports photons that do not exist; the only kind that is not masked */
	JUNGFRAU_FLICKERING
};

struct jungfrau_module {
	const float *normal; /* MODEL_NORMALS entries, owned by the model */
	double energy;	     /* keV */
	float noise;	     /* G0, ADU rms */
	uint64_t gain_key[JUNGFRAU_GAINS];
	uint64_t pedestal_key[JUNGFRAU_GAINS];
	float adc_offset[JUNGFRAU_ADCS];
	uint32_t nb_specials;
	struct {
		uint32_t pixel;
		enum jungfrau_special kind;
	} special[JUNGFRAU_SPECIALS_MAX];
	float pedestal[JUNGFRAU_PIXELS];    /* G0, ADU */
	float photon_gain[JUNGFRAU_PIXELS]; /* G0, ADU per photon */
	float *drift;			    /* G0 pedestals, ADU/s; NULL: no drift */
	uint8_t mask[JUNGFRAU_PIXELS];
};

/** Initialise module `index` of a detector. `noise` is that of G0 in keV rms. */
void jungfrau_module_init(struct jungfrau_module *module, uint64_t seed, uint32_t index,
	double energy, double noise, const float *normal);

/**
 * Let the G0 pedestals drift by `mean` ADU/s, with a variation between pixels of half that (rms).
 * @return 0 or -ENOMEM
 */
int jungfrau_module_drift(
	struct jungfrau_module *module, uint64_t seed, uint32_t index, double mean);

/** Make one more pixel flicker. */
void jungfrau_module_add_flickering(struct jungfrau_module *module, struct model_random *random);

/** ADU/keV of a pixel. */
float jungfrau_module_gain(
	const struct jungfrau_module *module, unsigned int stage, uint32_t pixel);

/** ADU of a pixel, at 0 s. */
float jungfrau_module_pedestal(
	const struct jungfrau_module *module, unsigned int stage, uint32_t pixel);

/** Raw value of a pixel that has left G0. `z` is its noise in sigmas. */
uint16_t jungfrau_module_raw_switched(
	const struct jungfrau_module *module, uint32_t pixel, uint32_t photons, float z);

/** Drift of a pixel's G0 pedestal so far, ADU. */
static inline float
jungfrau_module_shift(const struct jungfrau_module *module, uint32_t pixel, float seconds)
{
	return module->drift != NULL ? module->drift[pixel] * seconds : 0.0f;
}

/** Raw value of a good pixel; the upper 12 bits of `random` determine its noise. */
static inline uint16_t
jungfrau_module_raw(const struct jungfrau_module *module, uint32_t pixel, float seconds,
	uint32_t photons, uint64_t random)
{
	float z = module->normal[random >> 52];
	float adu = module->pedestal[pixel] + jungfrau_module_shift(module, pixel, seconds) +
		(float)photons * module->photon_gain[pixel] + z * module->noise + 0.5f;

	if (adu >= JUNGFRAU_G0_SWITCH_ADU)
		return jungfrau_module_raw_switched(module, pixel, photons, z);
	return adu < 0.0f ? 0 : (uint16_t)(int32_t)adu;
}

/** Draw the pixels of a dark frame that is forced into gain stage 1 or 2, with random numbers of
 * `key`. */
void jungfrau_module_draw_forced(const struct jungfrau_module *module, unsigned int stage,
	uint64_t key, uint16_t raw[JUNGFRAU_PIXELS]);

/** Overwrite special pixels with their values. */
void jungfrau_module_draw_specials(const struct jungfrau_module *module, uint64_t key,
	float seconds, uint16_t raw[JUNGFRAU_PIXELS]);

/** Photons of a pixel regardless of its mask: (adu - pedestal) * r, each operation rounded once in
 * f32; NaN = invalid, +Inf = saturated. */
float jungfrau_module_photons(
	const struct jungfrau_module *module, uint32_t pixel, float seconds, uint16_t raw);

#endif /* JUNGFRAU_MODULE_H */
