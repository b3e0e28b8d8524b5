/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_log.h>

#include "arrow_crc.h"
#include "calibration.h"

RTE_LOG_REGISTER(calibration_logtype, braggline.calibration, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, calibration_logtype, "calibration: " __VA_ARGS__)

/** Pedestals from here on mark a masked pixel: the ADC has 14 bits. */
#define PEDESTAL_MAX 16383.0f

uint64_t
calibration_size(const struct detector *d)
{
	return (uint64_t)d->modules * d->ops->rows * d->ops->cols * sizeof(float) *
		CALIBRATION_STAGES * 2;
}

/** Put the module number where the path says %d. */
static int
module_path(char *path, size_t size, const char *pattern, uint32_t module)
{
	const char *mark = strstr(pattern, "%d");
	int n;

	if (mark == NULL)
		n = snprintf(path, size, "%s", pattern);
	else
		n = snprintf(
			path, size, "%.*s%u%s", (int)(mark - pattern), pattern, module, mark + 2);
	return n >= 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

/** Read `bytes` of a module's file; it may be longer only in whole further maps. */
static int
read_map(const char *pattern, uint32_t module, const struct detector *d, void *out, size_t bytes,
	size_t map_bytes)
{
	char path[PATH_MAX];
	long size;
	FILE *f;
	int ret;

	if (d->modules > 1 && strstr(pattern, "%d") == NULL) {
		LOG(ERR,
			"%s: a detector of %u modules needs one file a module: write %%d where "
			"the module number goes\n",
			pattern, d->modules);
		return -EINVAL;
	}
	ret = module_path(path, sizeof(path), pattern, module);
	if (ret != 0)
		return ret;
	f = fopen(path, "rb");
	if (f == NULL) {
		ret = -errno;
		LOG(ERR, "cannot read %s: %s\n", path, strerror(errno));
		return ret;
	}
	ret = -EIO;
	if (fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0 || fseek(f, 0, SEEK_SET) != 0) {
		LOG(ERR, "cannot read %s: %s\n", path, strerror(errno));
	} else if ((size_t)size < bytes || (size_t)size % map_bytes != 0) {
		LOG(ERR, "%s has %ld bytes, must have %zu: [%zu][%u][%u] values of %zu bytes\n",
			path, size, bytes, bytes / map_bytes, d->ops->rows, d->ops->cols,
			map_bytes / (d->ops->rows * d->ops->cols));
		ret = -EINVAL;
	} else if (fread(out, 1, bytes, f) != bytes) {
		LOG(ERR, "cannot read %zu bytes of %s\n", bytes, path);
	} else {
		ret = 0;
	}
	fclose(f);
	return ret;
}

/** Files of one module, in memory; absent ones hold what the defaults say. */
struct maps {
	double *gain[CALIBRATION_STAGES];
	float *pedestal[CALIBRATION_STAGES];
	uint8_t *mask;
	void *memory;
};

static int
read_module(struct maps *m, const struct calibration_files *files, const struct detector *d,
	uint32_t module)
{
	const size_t pixels = (size_t)d->ops->rows * d->ops->cols;
	int ret = 0;

	if (files->gain != NULL)
		ret = read_map(files->gain, module, d, m->gain[0],
			pixels * sizeof(double) * CALIBRATION_STAGES, pixels * sizeof(double));
	for (uint32_t g = 0; g < CALIBRATION_STAGES && ret == 0; g++) {
		for (size_t i = 0; i < pixels && files->gain == NULL; i++)
			m->gain[g][i] = files->nominal_gain[g];
		if (files->pedestal[g] != NULL)
			ret = read_map(files->pedestal[g], module, d, m->pedestal[g],
				pixels * sizeof(float), pixels * sizeof(float));
	}
	if (files->mask != NULL && ret == 0)
		ret = read_map(files->mask, module, d, m->mask, pixels, pixels);
	return ret;
}

static void
convert_pixel(struct calibration *c, const struct calibration_files *files, const struct maps *m,
	size_t in, size_t out)
{
	const bool masked = m->mask[in] != 0 || !isfinite(m->gain[0][in]) || m->gain[0][in] == 0;

	c->masked += masked;
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		const double gain = m->gain[g][in];
		const float p = m->pedestal[g][in];
		bool usable = isfinite(gain) && gain != 0 && isfinite(p) && p < PEDESTAL_MAX;

		if (files->pedestal[g] != NULL && p == 0)
			usable = false;
		c->p[g][out] = isfinite(p) ? p : 0;
		c->r[g][out] = (float)(1 / (gain * files->energy));
		if (masked) {
			c->p[g][out] = NAN;
			c->r[g][out] = NAN;
		} else if (!usable) {
			c->r[g][out] = NAN;
			c->unusable[g]++;
		}
	}
}

int
calibration_load(struct calibration *c, void *memory, const struct calibration_files *files,
	const struct detector *d)
{
	const size_t module_pixels = (size_t)d->ops->rows * d->ops->cols;
	const size_t pixels = module_pixels * d->modules;
	struct maps m = {0};
	int ret = 0;

	*c = (struct calibration){0};
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		c->p[g] = (float *)memory + (2 * g) * pixels;
		c->r[g] = (float *)memory + (2 * g + 1) * pixels;
	}
	m.memory = calloc(module_pixels,
		CALIBRATION_STAGES * (sizeof(double) + sizeof(float)) + sizeof(uint8_t));
	if (m.memory == NULL) {
		LOG(ERR, "no memory for the maps of a module\n");
		return -ENOMEM;
	}
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		m.gain[g] = (double *)m.memory + g * module_pixels;
		m.pedestal[g] = (float *)((double *)m.memory + CALIBRATION_STAGES * module_pixels) +
			g * module_pixels;
	}
	m.mask = (uint8_t *)(m.pedestal[0] + CALIBRATION_STAGES * module_pixels);

	for (uint32_t module = 0; module < d->modules; module++) {
		ret = read_module(&m, files, d, module);
		if (ret != 0)
			goto out;
		for (size_t i = 0; i < module_pixels; i++)
			convert_pixel(c, files, &m, i, module * module_pixels + i);
	}
	c->digest = arrow_crc32c(0, memory, calibration_size(d));
	if (files->gain == NULL || files->pedestal[0] == NULL)
		LOG(WARNING, "no %s file: nominal values are used, photons are not calibrated\n",
			files->gain == NULL ? "gain" : "pedestal_g0");
	LOG(INFO,
		"%" PRIu64 " pixels masked of %zu; unusable in G0 %" PRIu64 ", G1 %" PRIu64
		", G2 %" PRIu64 "; digest %08x\n",
		c->masked, pixels, c->unusable[0], c->unusable[1], c->unusable[2], c->digest);
out:
	free(m.memory);
	return ret;
}
