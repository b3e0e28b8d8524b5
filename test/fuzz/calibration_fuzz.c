/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calibration files and sidecars of any content: what loads must contain only numbers and the
 * markers of gk_pixel.h. An input has one byte that selects the files, two bytes with the length of
 * the INI file, the INI file, and one map, which is truncated or repeated to serve for all maps.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_log.h>

#include "arrow/crc32c.h"
#include "calib/calibration.h"
#include "seed_corpus.h"

#define ROWS   4
#define COLS   32
#define PIXELS (ROWS * COLS)

/* In memory if there is such a file system: it makes fuzzing ten times as fast. */
static char folder[64], gain_path[80], pedestal_path[80], sidecar_path[80], mask_path[80];
static pid_t owner;

static const struct detector_ops small_ops = {
	.name = "jungfrau", .rows = ROWS, .cols = COLS, .tile_rows = 4, .interfaces_max = 2};

static void
put(const char *name, const uint8_t *data, size_t size, size_t wanted)
{
	FILE *f = fopen(name, "wb");

	if (f == NULL)
		abort();
	for (size_t left = size > 0 ? wanted : 0; left > 0;) {
		const size_t n = left < size ? left : size;

		if (fwrite(data, 1, n, f) != n)
			abort();
		left -= n;
	}
	fclose(f);
}

static void
check(const struct calibration *c, int ret)
{
	if (ret != 0) {
		if (c->why[0] == '\0')
			abort();
		return;
	}
	for (uint32_t i = 0; i < PIXELS; i++) {
		const int masked = isnan(c->p[2][i]);

		for (int g = 0; g < CALIBRATION_STAGES; g++) {
			if (isinf(c->r[g][i]) || isinf(c->p[g][i]))
				abort();
			if (masked != !!isnan(c->p[g][i]) || (masked && !isnan(c->r[g][i])))
				abort();
			/* every value is within its limits */
			if (!isnan(c->r[g][i]) && (c->p[g][i] < 0 || c->p[g][i] >= 16383))
				abort();
		}
	}
}

/* Valid files: a sidecar with the digest of a map of one value. */
static void
add_seed(const char *name, uint8_t files, const void *value, size_t size)
{
	uint8_t map[PIXELS * 4], seed[1024] = {files};
	int ini;

	for (size_t i = 0; i < sizeof(map); i++)
		map[i] = ((const uint8_t *)value)[i % size];
	ini = snprintf((char *)seed + 3, sizeof(seed) - 3 - size,
		"[pedestal]\ndetector = jungfrau\nmodules = 1\nmodule = 0\nmodule_id = 3\n"
		"stage = 0\n"
		"run = dark\ndate = 2025-03-01T12:00:00Z\ntime = 1740830400\nframes = 1000\n"
		"masked_frames = 0\nmasked_gain = 12\nmasked_rms = 3\ndigest = crc32c:%08x\n",
		arrow_crc32c(0, map, sizeof(map)));
	seed[1] = (uint8_t)ini;
	seed[2] = (uint8_t)(ini >> 8);
	memcpy(seed + 3 + ini, value, size);
	seed_add(name, seed, 3 + (size_t)ini + size);
}

static void
remove_folder(void)
{
	if (getpid() != owner)
		return;
	unlink(gain_path);
	unlink(pedestal_path);
	unlink(sidecar_path);
	unlink(mask_path);
	rmdir(folder);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const double gain = 41;
	static const float pedestal = 3000, half = 16383.5f;

	seed_begin(argc, argv);
	add_seed("gain", 1, &gain, sizeof(gain));
	add_seed("pedestal", 2, &pedestal, sizeof(pedestal));
	add_seed("masked", 0x1F, &half, sizeof(half));
	rte_log_set_global_level(RTE_LOG_EMERG);
	strcpy(folder, "/dev/shm/braggline-calibration-XXXXXX");
	if (mkdtemp(folder) == NULL) {
		strcpy(folder, "/tmp/braggline-calibration-XXXXXX");
		if (mkdtemp(folder) == NULL)
			abort();
	}
	owner = getpid();
	atexit(remove_folder);
	snprintf(gain_path, sizeof(gain_path), "%s/gain.bin", folder);
	snprintf(pedestal_path, sizeof(pedestal_path), "%s/pedestal.bin", folder);
	snprintf(sidecar_path, sizeof(sidecar_path), "%s/pedestal.ini", folder);
	snprintf(mask_path, sizeof(mask_path), "%s/mask.bin", folder);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static _Alignas(64) float memory[PIXELS * CALIBRATION_STAGES * 2];
	struct calibration_files files = {
		.nominal_gain = {41, -1.439, -0.1145}, .energy = 12.4, .max_age_hours = 1};
	struct detector detector;
	struct calibration c;
	size_t ini, whole;

	if (size < 3 || detector_init(&detector, &small_ops, 1, 1) != 0)
		return 0;
	ini = data[1] | data[2] << 8;
	ini = ini < size - 3 ? ini : size - 3;
	/* sometimes the length is wrong */
	whole = data[0] & 0x40 ? size - 3 - ini : SIZE_MAX;
#define LENGTH(bytes) (whole < (bytes) ? whole : (bytes))
	if (data[0] & 1)
		files.gain = gain_path;
	if (data[0] & 2)
		files.pedestal[0] = pedestal_path;
	if (data[0] & 4)
		files.pedestal[2] = pedestal_path;
	if (data[0] & 8)
		files.mask = mask_path;
	if (data[0] & 16)
		files.suspicious_max = 1;
	put(gain_path, data + 3 + ini, size - 3 - ini, LENGTH(PIXELS * 3 * 8));
	put(pedestal_path, data + 3 + ini, size - 3 - ini, LENGTH(PIXELS * 4));
	put(mask_path, data + 3 + ini, size - 3 - ini, LENGTH(PIXELS));
	if (ini > 0)
		put(sidecar_path, data + 3, ini, ini);
	else
		remove(sidecar_path);
#undef LENGTH
	check(&c, calibration_load(&c, memory, &files, &detector));
	return 0;
}
