/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "arrow/crc32c.h"
#include "calib/calibration.h"
#include "io/own_file.h"
#include "calib/pedestal_file.h"
#include "log.h"
#include "plural.h"

LOG_REGISTER("calibration", "calibration");

/** Pedestals from this value on mark a pixel. It is the maximum of the 14-bit ADC. */
#define PEDESTAL_MAX 16383.0f

#define SAMPLES	      4096 /**< number of pixels from which a median is computed */
#define GAIN_UNLIKELY 2.0  /**< maximum factor between a module's median gain and the nominal one */

/** A calibration being loaded. */
struct load {
	struct calibration *c;
	const struct calibration_files *files;
	const struct detector *d;
	size_t pixels; /**< pixels per module */
	int64_t now;
	double gain_limit;
	double suspicious_max;
	char oldest[PATH_MAX];
	/* maps of one module; absent files are replaced by defaults */
	double *gain[CALIBRATION_STAGES];
	float *pedestal[CALIBRATION_STAGES];
	uint8_t *mask;
	uint64_t suspicious[CALIBRATION_SUSPICIONS][CALIBRATION_STAGES];
	void *memory;
};

/** A file that has been read. */
struct map_file {
	char path[PATH_MAX];
	int64_t time; /**< last modification, seconds since 1970 */
};

uint64_t
calibration_size(const struct detector *d)
{
	return (uint64_t)d->modules * d->ops->rows * d->ops->cols * sizeof(float) *
		CALIBRATION_STAGES * 2;
}

const char *
calibration_suspicion_text(enum calibration_suspicion kind)
{
	static const char *const texts[CALIBRATION_SUSPICIONS] = {
		[CALIBRATION_GAIN_NAN] = "gains that are NaN or infinite",
		[CALIBRATION_GAIN_SIGN] = "gains whose sign differs from the nominal gain's",
		[CALIBRATION_GAIN_SIZE] = "gains far from the nominal gain",
		[CALIBRATION_PEDESTAL_NAN] = "pedestals that are NaN or infinite",
		[CALIBRATION_PEDESTAL_RANGE] = "pedestals that are negative",
	};

	return texts[kind];
}

static int __attribute__((format(printf, 3, 4)))
refuse(struct load *l, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(l->c->why, sizeof(l->c->why), format, args);
	va_end(args);
	LOG(ERR, "%s\n", l->c->why);
	return error;
}

/** Replace %d in the path by the module number. */
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

/** Guess why a file has the wrong size. @return " (...)" or "" */
static const char *
guess_size(uint64_t size, size_t bytes, size_t value, size_t maps)
{
	if (value == 1 && size == 4 * bytes)
		return " (int32 values? Convert them to uint8)";
	if (value == 1 && size == 8 * bytes)
		return " (int64 or double values? Convert them to uint8)";
	if (size == 2 * bytes && value == sizeof(float))
		return " (double values, or two maps? Convert them to one map of float32)";
	if (size == 2 * bytes && value == sizeof(double) && maps == CALIBRATION_STAGES)
		return " (6 maps, with HG0, HG1 and HG2? Set [calibration] gain_maps = 6)";
	if (2 * size == bytes && value == sizeof(double) && maps == CALIBRATION_STAGES)
		return " (float32 values? Convert them to double)";
	if (2 * size == bytes && value == sizeof(double))
		return " (float32 values, or 3 maps? Convert them to double, or set [calibration] "
		       "gain_maps = 3)";
	return size > bytes && size % bytes == 0 ? " (several maps in one file?)" : "";
}

/**
 * Read the first `bytes` of a module's file, and update `digest` with them.
 * @param key   its setting of [calibration], for errors
 * @param more  number of bytes that follow and are not read
 */
static int
read_map(struct load *l, const char *key, const char *pattern, uint32_t module, void *out,
	size_t bytes, size_t more, size_t map_bytes, struct map_file *file, uint32_t *digest)
{
	const size_t all = bytes + more;
	struct stat st;
	FILE *f;
	int ret;

	if (l->d->modules > 1 && strstr(pattern, "%d") == NULL)
		return refuse(l, -EINVAL,
			"%s: a detector of %u modules needs one file per module; write %%d in "
			"place of the module number",
			pattern, l->d->modules);
	ret = module_path(file->path, sizeof(file->path), pattern, module);
	if (ret != 0)
		return refuse(l, ret, "%s: path is too long", pattern);
	f = own_file_read(file->path);
	if (f == NULL && (errno == EISDIR || errno == EMEDIUMTYPE))
		return refuse(l, -EINVAL, "%s is not a regular file", file->path);
	if (f == NULL)
		return refuse(l, -errno, "cannot read %s: %s; %s [calibration] %s = %s%s",
			file->path, strerror(errno),
			errno == EACCES ? "give the user of the receiver access to it, or correct"
					: "correct",
			key, pattern, errno == ENOENT ? ", or set it to none" : "");
	if (fstat(fileno(f), &st) != 0)
		ret = refuse(l, -errno, "cannot read %s: %s", file->path, strerror(errno));
	else if ((uint64_t)st.st_size != all)
		ret = refuse(l, -EINVAL,
			"%s has %" PRIu64 " bytes, expected %zu: [%zu][%u][%u] values of %zu "
			"%s%s",
			file->path, (uint64_t)st.st_size, all, all / map_bytes, l->d->ops->rows,
			l->d->ops->cols, map_bytes / l->pixels,
			plural(map_bytes / l->pixels, "byte", "bytes"),
			guess_size(st.st_size, all, map_bytes / l->pixels, all / map_bytes));
	else if (fread(out, 1, bytes, f) != bytes)
		ret = refuse(l, -EIO, "cannot read %zu bytes of %s", bytes, file->path);
	if (ret == 0)
		*digest = arrow_crc32c(*digest, out, bytes);
	file->time = st.st_mtime;
	fclose(f);
	return ret;
}

/** Check that the sidecar of a pedestal file, if there is one, matches the expected map. */
static int
check_sidecar(struct load *l, struct map_file *file, uint32_t module, uint32_t stage)
{
	const uint32_t digest = arrow_crc32c(0, l->pedestal[stage], l->pixels * sizeof(float));
	const uint32_t *ids = l->files->module_ids;
	struct pedestal_sidecar s;
	int ret;

	ret = pedestal_sidecar_read(file->path, &s);
	if (ret == -ENOENT)
		return 0;
	if (ret != 0)
		return refuse(l, ret, "%s: its INI file is invalid", file->path);
	if (strcmp(s.detector, l->d->ops->name) != 0)
		return refuse(l, -EINVAL, "%s is for detector %s, expected %s", file->path,
			s.detector, l->d->ops->name);
	if (s.modules != l->d->modules)
		return refuse(l, -EINVAL, "%s is for a detector with %u modules, expected %u",
			file->path, s.modules, l->d->modules);
	if (s.module != module)
		return refuse(l, -EINVAL, "%s is for module %u, expected module %u", file->path,
			s.module, module);
	if (ids != NULL && s.module_id != PEDESTAL_NO_MODULE_ID && s.module_id != ids[module])
		return refuse(l, -EINVAL, "%s is for the module with id %u, expected id %u",
			file->path, s.module_id, ids[module]);
	if (s.stage != stage)
		return refuse(l, -EINVAL, "%s is for gain stage G%u, expected G%u", file->path,
			s.stage, stage);
	if (s.digest != digest)
		return refuse(l, -EINVAL,
			"%s has digest crc32c:%08x, its INI file has crc32c:%08x; the file was "
			"changed or replaced",
			file->path, digest, s.digest);
	/* the time of the sidecar, because a copied file has a later time */
	file->time = s.time;
	l->c->sidecars++;
	return 0;
}

static void
note_age(struct load *l, const struct map_file *file)
{
	const double hours = ((double)l->now - (double)file->time) / 3600;

	l->c->old += l->files->max_age_hours > 0 && hours > l->files->max_age_hours;
	if (hours > l->c->oldest_hours) {
		l->c->oldest_hours = hours;
		snprintf(l->oldest, sizeof(l->oldest), "%s", file->path);
	}
}

static void
suspect_gain(struct load *l, uint32_t stage, double gain)
{
	const double ratio = gain / l->files->nominal_gain[stage];

	if (!isfinite(gain))
		l->suspicious[CALIBRATION_GAIN_NAN][stage]++;
	else if (l->files->nominal_gain[stage] == 0 || gain == 0)
		return;
	else if (ratio < 0)
		l->suspicious[CALIBRATION_GAIN_SIGN][stage]++;
	else if (ratio > l->gain_limit || ratio < 1 / l->gain_limit)
		l->suspicious[CALIBRATION_GAIN_SIZE][stage]++;
}

static void
suspect_pedestal(struct load *l, uint32_t stage, float pedestal)
{
	if (!isfinite(pedestal))
		l->suspicious[CALIBRATION_PEDESTAL_NAN][stage]++;
	else if (pedestal < 0)
		l->suspicious[CALIBRATION_PEDESTAL_RANGE][stage]++;
}

/**
 * Count the suspicious values of the kinds first ... last, and refuse the file if there are many.
 */
static int
check_suspicions(struct load *l, const char *path, uint32_t stage, enum calibration_suspicion first,
	enum calibration_suspicion last)
{
	for (enum calibration_suspicion k = first; k <= last; k++) {
		const uint64_t n = l->suspicious[k][stage];

		l->c->suspicious[k][stage] += n;
		if ((double)n > l->suspicious_max * (double)l->pixels)
			return refuse(l, -EINVAL,
				"%s: %" PRIu64 " of %zu pixels have G%u %s, the limit is %g %%; "
				"check the kind of the file and that it is for this detector",
				path, n, l->pixels, stage, calibration_suspicion_text(k),
				100 * l->suspicious_max);
	}
	return 0;
}

static int
read_gain(struct load *l, uint32_t module)
{
	const size_t map = l->pixels * sizeof(double), three = map * CALIBRATION_STAGES;
	const uint32_t maps = l->files->gain_maps;
	struct map_file file;
	int ret;

	for (uint32_t g = 0; g < CALIBRATION_STAGES && l->files->gain == NULL; g++)
		for (size_t i = 0; i < l->pixels; i++)
			l->gain[g][i] = l->files->nominal_gain[g];
	if (l->files->gain == NULL)
		return 0;
	ret = read_map(l, "gain", l->files->gain, module, l->gain[0], three,
		maps > CALIBRATION_STAGES ? maps * map - three : 0, map, &file, &l->c->gain_digest);
	for (uint32_t g = 0; g < CALIBRATION_STAGES && ret == 0; g++) {
		for (size_t i = 0; i < l->pixels; i++)
			suspect_gain(l, g, l->gain[g][i]);
		ret = check_suspicions(
			l, file.path, g, CALIBRATION_GAIN_NAN, CALIBRATION_GAIN_SIZE);
	}
	return ret;
}

static int
read_pedestal(struct load *l, uint32_t module, uint32_t stage)
{
	struct map_file file;
	char key[24];
	int ret;

	if (l->files->pedestal[stage] == NULL)
		return 0;
	snprintf(key, sizeof(key), "pedestal_g%u", stage);
	ret = read_map(l, key, l->files->pedestal[stage], module, l->pedestal[stage],
		l->pixels * sizeof(float), 0, l->pixels * sizeof(float), &file,
		&l->c->pedestal_digest);
	/* The sidecar first, because its error message is more specific. */
	if (ret == 0)
		ret = check_sidecar(l, &file, module, stage);
	if (ret != 0)
		return ret;
	note_age(l, &file);
	for (size_t i = 0; i < l->pixels; i++)
		suspect_pedestal(l, stage, l->pedestal[stage][i]);
	return check_suspicions(
		l, file.path, stage, CALIBRATION_PEDESTAL_NAN, CALIBRATION_PEDESTAL_RANGE);
}

static int
read_module(struct load *l, uint32_t module)
{
	struct map_file file;
	int ret;

	memset(l->suspicious, 0, sizeof(l->suspicious));
	ret = read_gain(l, module);
	for (uint32_t g = 0; g < CALIBRATION_STAGES && ret == 0; g++)
		ret = read_pedestal(l, module, g);
	if (l->files->mask != NULL && ret == 0)
		ret = read_map(l, "mask", l->files->mask, module, l->mask, l->pixels, 0, l->pixels,
			&file, &l->c->mask_digest);
	return ret;
}

static bool
gain_is_usable(const struct load *l, uint32_t stage, double gain)
{
	const double nominal = l->files->nominal_gain[stage], ratio = gain / nominal;

	if (!isfinite(gain) || gain == 0)
		return false;
	return nominal == 0 || (ratio <= l->gain_limit && ratio >= 1 / l->gain_limit);
}

static bool
pedestal_is_usable(const struct load *l, uint32_t stage, float pedestal)
{
	if (l->files->pedestal[stage] == NULL)
		return true;
	/* false for NaN */
	return pedestal > 0 && pedestal < PEDESTAL_MAX;
}

static void
convert_pixel(struct load *l, size_t in, size_t out)
{
	const double gain0 = l->gain[0][in];
	const bool masked = l->mask[in] != 0 || !isfinite(gain0) || gain0 == 0;
	struct calibration *c = l->c;

	c->masked += masked;
	c->user_masked += l->mask[in] != 0;
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		const double gain = l->gain[g][in];
		const float p = l->pedestal[g][in];

		c->p[g][out] = isfinite(p) ? p : 0;
		c->r[g][out] = (float)(1 / (gain * l->files->energy));
		if (masked) {
			c->p[g][out] = NAN;
			c->r[g][out] = NAN;
		} else if (!gain_is_usable(l, g, gain) || !pedestal_is_usable(l, g, p) ||
			!isfinite(c->r[g][out])) {
			c->r[g][out] = NAN;
			c->unusable[g]++;
		}
	}
}

/** Log a warning about a module: "module 3: ...". */
static void __attribute__((format(printf, 3, 4)))
warn(struct calibration *c, uint32_t module, const char *format, ...)
{
	struct calibration_module *m = &c->module[module];
	char text[sizeof(m->warning)];
	va_list args;
	int at;

	at = snprintf(text, sizeof(text), "module %u: ", module);
	va_start(args, format);
	vsnprintf(text + at, sizeof(text) - at, format, args);
	va_end(args);
	LOG(WARNING, "%s\n", text);
	if (m->warnings++ == 0)
		memcpy(m->warning, text, sizeof(text));
	c->warnings++;
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static bool
gain_is_likely(const struct load *l, uint32_t stage, double gain)
{
	const double nominal = l->files->nominal_gain[stage], ratio = gain / nominal;

	return nominal == 0 || (ratio <= GAIN_UNLIKELY && ratio >= 1 / GAIN_UNLIKELY);
}

/**
 * Compute the median of a map from some thousand pixels, of those that are read out.
 * @param gain  gains, else pedestals; values that mark masked pixels are excluded
 * @return the median; 0: no pixel has a value
 */
static double
median(const struct load *l, uint32_t module, uint32_t stage, bool gain)
{
	/* an odd step, so that the sample covers all columns */
	const size_t step = l->pixels / SAMPLES | 1;
	double sample[SAMPLES + 1];
	size_t n = 0;

	for (size_t i = 0; i < l->pixels && n < SAMPLES; i += step) {
		const double value = gain ? l->gain[stage][i] : l->pedestal[stage][i];

		if (detector_reads_out(l->d, module, i) && isfinite(value) &&
			(gain ? value != 0 : value > 0 && value < PEDESTAL_MAX))
			sample[n++] = value;
	}
	qsort(sample, n, sizeof(sample[0]), by_value);
	return n > 0 ? sample[n / 2] : 0;
}

/** Return true if the gains are closer to the nominal ones with those of G1 and G2 exchanged. */
static bool
gains_are_exchanged(const struct load *l, const struct calibration_module *m)
{
	return gain_is_likely(l, 0, m->gain_median[0]) && gain_is_likely(l, 1, m->gain_median[2]) &&
		gain_is_likely(l, 2, m->gain_median[1]) &&
		!gain_is_likely(l, 1, m->gain_median[1]) &&
		!gain_is_likely(l, 2, m->gain_median[2]);
}

static void
check_gains(struct load *l, uint32_t module)
{
	struct calibration_module *m = &l->c->module[module];

	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++)
		m->gain_median[g] = median(l, module, g, true);
	/* files with gains per photon instead of per keV have energy = 1 */
	if (l->files->energy == 1)
		return;
	if (gains_are_exchanged(l, m)) {
		warn(l->c, module,
			"the median gains of G1 and G2 are %g and %g ADU/keV, the nominal gains "
			"are %g and %g ADU/keV; are G1 and G2 exchanged in the gain file?",
			m->gain_median[1], m->gain_median[2], l->files->nominal_gain[1],
			l->files->nominal_gain[2]);
		return;
	}
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++)
		if (!gain_is_likely(l, g, m->gain_median[g]))
			warn(l->c, module,
				"the median gain of G%u is %g ADU/keV, the nominal gain is %g "
				"ADU/keV; check [calibration] energy_kev and the unit of the file",
				g, m->gain_median[g], l->files->nominal_gain[g]);
}

/** Check for values that are possible for a pixel but implausible for a whole module. */
static void
check_module(struct load *l, uint32_t module)
{
	/* pedestals of JUNGFRAUs: 1,900 to 3,100 ADU in G0, 13,200 to 14,500 in G1 and G2 */
	static const float from[CALIBRATION_STAGES] = {500, 9000, 9000};
	static const float to[CALIBRATION_STAGES] = {9000, PEDESTAL_MAX, PEDESTAL_MAX};
	struct calibration_module *m = &l->c->module[module];

	/* an absent module */
	if (m->read_out == 0)
		return;
	check_gains(l, module);
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		if (l->files->pedestal[g] == NULL)
			continue;
		m->pedestal_median[g] = (float)median(l, module, g, false);
		if (m->pedestal_median[g] < from[g] || m->pedestal_median[g] > to[g])
			warn(l->c, module,
				"the median pedestal of G%u is %.0f ADU, expected %.0f to %.0f; "
				"check that the file of pedestal_g%u is for this gain stage",
				g, m->pedestal_median[g], from[g], to[g], g);
	}
	if (m->live < m->read_out / 2)
		warn(l->c, module,
			"only %" PRIu64 " of %" PRIu64 " pixels%s are usable in G0; check that 0 "
			"means a good pixel in the masks, and that no map is empty",
			m->live, m->read_out, m->read_out < l->pixels ? " read out" : "");
}

/** Find the gain stages without a pedestal file. */
static void
find_missing(struct load *l)
{
	struct calibration *c = l->c;
	char stages[16] = "", keys[48] = "";
	uint32_t n = 0;

	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		if (l->files->pedestal[g] != NULL || l->files->dark_run)
			continue;
		snprintf(stages + strlen(stages), sizeof(stages) - strlen(stages), "%sG%u",
			n > 0 ? ", " : "", g);
		snprintf(keys + strlen(keys), sizeof(keys) - strlen(keys), "%spedestal_g%u",
			n++ > 0 ? ", " : "", g);
	}
	if (n == 0)
		return;
	snprintf(c->missing, sizeof(c->missing),
		"no pedestal %s of %s: photon values of pixels in %s include the dark level; set "
		"[calibration] %s",
		plural(n, "file", "files"), stages,
		plural(n, "this gain stage", "these gain stages"), keys);
	c->warnings++;
}

static void
report(const struct load *l)
{
	const struct calibration_files *files = l->files;
	const struct calibration *c = l->c;

	/* a dark run stores no photon values, and its pedestals may be the first ones */
	if (files->gain == NULL && !files->dark_run)
		LOG(WARNING,
			"no gain file: using nominal gains, photon values are not calibrated\n");
	if (c->missing[0] != '\0')
		LOG(WARNING, "%s\n", c->missing);
	for (uint32_t k = 0; k < CALIBRATION_SUSPICIONS; k++)
		for (uint32_t g = 0; g < CALIBRATION_STAGES; g++)
			if (c->suspicious[k][g] > 0)
				LOG(WARNING, "%" PRIu64 " pixels have G%u %s and are not used\n",
					c->suspicious[k][g], g, calibration_suspicion_text(k));
	if (c->old > 0)
		LOG(WARNING,
			"%u pedestal %s older than %g %s, %s is %.1f hours old; take new dark "
			"frames\n",
			c->old, plural(c->old, "file is", "files are"), files->max_age_hours,
			files->max_age_hours == 1 ? "hour" : "hours", l->oldest, c->oldest_hours);
	LOG(INFO,
		"%" PRIu64 " of %zu pixels masked, %" PRIu64 " of them by mask files; unusable "
		"in G0 %" PRIu64 ", G1 %" PRIu64 ", G2 %" PRIu64 "; digest %08x\n",
		c->masked, l->pixels * l->d->modules, c->user_masked, c->unusable[0],
		c->unusable[1], c->unusable[2], c->digest);
}

static int
load_init(struct load *l)
{
	const struct calibration_files *files = l->files;

	l->pixels = (size_t)l->d->ops->rows * l->d->ops->cols;
	l->now = files->now != 0 ? files->now : time(NULL);
	l->gain_limit = files->gain_limit != 0 ? files->gain_limit : CALIBRATION_GAIN_LIMIT;
	l->suspicious_max =
		files->suspicious_max != 0 ? files->suspicious_max : CALIBRATION_SUSPICIOUS_MAX;
	if (!(files->energy > 0 && isfinite(files->energy)))
		return refuse(l, -EINVAL, "energy is %g keV, expected more than 0", files->energy);
	if (files->gain_maps != 0 && files->gain_maps != CALIBRATION_STAGES &&
		files->gain_maps != 2 * CALIBRATION_STAGES)
		return refuse(l, -EINVAL, "gain_maps is %u, expected 3 or 6", files->gain_maps);
	if (!(l->gain_limit > 1))
		return refuse(l, -EINVAL, "gain_limit is %g, expected more than 1", l->gain_limit);
	l->memory = calloc(
		l->pixels, CALIBRATION_STAGES * (sizeof(double) + sizeof(float)) + sizeof(uint8_t));
	if (l->memory == NULL)
		return refuse(l, -ENOMEM, "cannot allocate the maps of a module");
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		l->gain[g] = (double *)l->memory + g * l->pixels;
		l->pedestal[g] = (float *)((double *)l->memory + CALIBRATION_STAGES * l->pixels) +
			g * l->pixels;
	}
	l->mask = (uint8_t *)(l->pedestal[0] + CALIBRATION_STAGES * l->pixels);
	return 0;
}

const char *
calibration_warning(const struct calibration *c)
{
	for (uint32_t m = 0; m < DETECTOR_MODULES_MAX; m++)
		if (c->module[m].warnings > 0)
			return c->module[m].warning;
	return c->missing;
}

int
calibration_load(struct calibration *c, void *memory, const struct calibration_files *files,
	const struct detector *d)
{
	struct load l = {.c = c, .files = files, .d = d};
	int ret;

	*c = (struct calibration){0};
	ret = load_init(&l);
	if (ret != 0)
		return ret;
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		c->p[g] = (float *)memory + (2 * g) * l.pixels * d->modules;
		c->r[g] = (float *)memory + (2 * g + 1) * l.pixels * d->modules;
	}
	for (uint32_t module = 0; module < d->modules && ret == 0; module++) {
		ret = read_module(&l, module);
		for (size_t i = 0; i < l.pixels && ret == 0; i++) {
			convert_pixel(&l, i, module * l.pixels + i);
			if (!detector_reads_out(d, module, i))
				continue;
			c->module[module].read_out++;
			c->module[module].live += !isnan(c->r[0][module * l.pixels + i]);
		}
		if (ret == 0)
			check_module(&l, module);
	}
	if (ret == 0) {
		find_missing(&l);
		c->digest = arrow_crc32c(0, memory, calibration_size(d));
		report(&l);
	}
	free(l.memory);
	return ret;
}
