/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Random numbers of the detector model, identical on every machine.
 *
 * A generator is a counter and a hash (splitmix64, Steele et al. 2014). The numbers of a frame, a
 * module or a pixel are therefore independent of what was drawn before. Distributions use only
 * operations that IEEE 754 rounds exactly (+ - * / sqrt), and no libm function, because their last
 * bits differ between versions.
 */
#ifndef MODEL_RANDOM_H
#define MODEL_RANDOM_H

#include <assert.h>
#include <float.h>
#include <stdint.h>

static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must be rounded to float at each operation");

/** Step of the counter: 2^64 / golden ratio. */
#define MODEL_RANDOM_STEP 0x9e3779b97f4a7c15ull

/** Entries of the table of the normal distribution. Its tails end at 3.7 sigma. */
#define MODEL_NORMALS 4096

struct model_random {
	uint64_t counter;
};

/** Finaliser of splitmix64: a bijection in which every input bit changes half of the output. */
static inline uint64_t
model_random_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/** Make a key for one purpose (calibration, plan, pixels ...) of one object (module, frame). */
static inline uint64_t
model_random_key(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b)
{
	uint64_t key = model_random_mix(seed + MODEL_RANDOM_STEP);

	key = model_random_mix(key ^ (purpose + MODEL_RANDOM_STEP));
	key = model_random_mix(key ^ (a + MODEL_RANDOM_STEP));
	return model_random_mix(key ^ (b + MODEL_RANDOM_STEP));
}

/** Number `index` of the generator that starts at `key`. */
static inline uint64_t
model_random_at(uint64_t key, uint64_t index)
{
	return model_random_mix(key + (index + 1) * MODEL_RANDOM_STEP);
}

static inline uint64_t
model_random_next(struct model_random *random)
{
	random->counter += MODEL_RANDOM_STEP;
	return model_random_mix(random->counter);
}

/** Uniform in [0, 1): 53 bits. */
static inline double
model_random_uniform(struct model_random *random)
{
	return (double)(model_random_next(random) >> 11) * 0x1p-53;
}

/** Uniform in 0 ... n-1; the bias is n / 2^32. */
static inline uint32_t
model_random_below(struct model_random *random, uint32_t n)
{
	return (uint32_t)(((model_random_next(random) >> 32) * n) >> 32);
}

/** e^-x, x >= 0. */
double model_exp_minus(double x);

/** -ln(x), 0 < x <= 1. */
double model_minus_log(double x);

/** cos x, 0 <= x <= pi: within 1e-14. */
double model_cosine(double x);

/** Quantiles of the normal distribution, (i + 1/2) / MODEL_NORMALS. */
void model_normal_table(float table[MODEL_NORMALS]);

/** Exponentially distributed with mean 1. */
double model_random_exponential(struct model_random *random);

/** Poisson with mean `lambda` (0 ... 2^24); above 64 the normal approximation, rounded. */
uint32_t model_random_poisson(
	struct model_random *random, double lambda, const float normal[MODEL_NORMALS]);

#endif /* MODEL_RANDOM_H */
