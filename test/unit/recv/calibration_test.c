/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests calibration files: how they are converted, and which are refused with which message. */

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include <cmocka.h>

#include <rte_log.h>

#include "arrow/crc32c.h"
#include "calib/calibration.h"
#include "calib/pedestal_file.h"

#define ROWS	4
#define COLS	32
#define PIXELS	(ROWS * COLS)
#define MODULES 2
#define NOW	1740830400

static const struct detector_ops small_ops = {
	.name = "jungfrau", .rows = ROWS, .cols = COLS, .tile_rows = 4, .interfaces_max = 2};

static struct detector detector;
static char folder[] = "calibration_test_XXXXXX";
static char gain_path[64], pedestal_path[3][64], mask_path[64];

/* The contents of the files: gain[m][g][x] is that of pixel x in stage g of module m, and so on. */
static double gain[MODULES][3][PIXELS];
static float pedestal[3][MODULES][PIXELS];
static uint8_t mask[MODULES][PIXELS];

static struct calibration_files files;
static struct calibration c;
static float *memory;

static void
put(const char *pattern, uint32_t module, const void *data, size_t bytes)
{
	char path[128];
	const char *mark = strstr(pattern, "%d");
	struct utimbuf times = {NOW - 3600, NOW - 3600};
	FILE *f;

	snprintf(path, sizeof(path), "%.*s%u%s", (int)(mark - pattern), pattern, module, mark + 2);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, bytes, f), bytes);
	fclose(f);
	assert_int_equal(utime(path, &times), 0);
}

static void
put_all(void)
{
	for (uint32_t m = 0; m < MODULES; m++) {
		put(gain_path, m, gain[m], sizeof(gain[m]));
		for (int g = 0; g < 3; g++)
			put(pedestal_path[g], m, pedestal[g][m], sizeof(pedestal[g][m]));
		put(mask_path, m, mask[m], sizeof(mask[m]));
	}
}

static void
clean(void)
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	char path[512];

	while ((e = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		unlink(path);
	}
	closedir(d);
}

/* Write a valid calibration before each test. */
static int
setup(void **state)
{
	static const double nominal[3] = {41, -1.439, -0.1145};

	clean();
	files = (struct calibration_files){
		.gain = gain_path, .mask = mask_path, .energy = 12.4, .now = NOW};
	memset(mask, 0, sizeof(mask));
	for (int g = 0; g < 3; g++) {
		files.pedestal[g] = pedestal_path[g];
		files.nominal_gain[g] = nominal[g];
		for (uint32_t i = 0; i < MODULES * PIXELS; i++) {
			gain[i / PIXELS][g][i % PIXELS] = nominal[g] * (0.9 + 0.001 * (i % 200));
			pedestal[g][i / PIXELS][i % PIXELS] = (g == 0 ? 3000 : 15000) + i % 17;
		}
	}
	put_all();
	return 0;
}

static void
loads(void)
{
	if (calibration_load(&c, memory, &files, &detector) != 0)
		fail_msg("refused: %s", c.why);
	assert_string_equal(c.why, "");
}

static void
refused(int error, const char *expected)
{
	const char *why;

	assert_int_equal(calibration_load(&c, memory, &files, &detector), error);
	/* the name of the folder differs from run to run */
	why = strstr(c.why, folder) == c.why ? c.why + strlen(folder) + 1 : c.why;
	assert_string_equal(why, expected);
}

static void
test_values(void **state)
{
	uint32_t crc = 0;
	float r;

	mask[1][5] = 4;
	gain[0][0][6] = 0; /* 0 marks an unusable value */
	gain[0][1][7] = 0;
	pedestal[0][1][8] = 0;
	pedestal[1][1][9] = 16383.5f;
	pedestal[2][1][10] = 65534;
	put_all();
	loads();
	for (int g = 0; g < 3; g++) {
		for (uint32_t i = 0; i < MODULES * PIXELS; i++) {
			const uint32_t m = i / PIXELS, x = i % PIXELS;
			const int masked = (m == 1 && x == 5) || (m == 0 && x == 6);
			const int unusable = (m == 0 && x == 7 && g == 1) ||
				(m == 1 && x == 8u + (unsigned int)g);

			r = (float)(1 / (gain[m][g][x] * 12.4));
			assert_true(masked ? isnan(c.p[g][i]) : c.p[g][i] == pedestal[g][m][x]);
			assert_true(masked || unusable ? isnan(c.r[g][i]) : c.r[g][i] == r);
		}
	}
	assert_int_equal(c.masked, 2);
	assert_int_equal(c.user_masked, 1);
	assert_int_equal(c.unusable[0], 1);
	assert_int_equal(c.unusable[1], 2);
	assert_int_equal(c.unusable[2], 1);
	for (int k = 0; k < CALIBRATION_SUSPICIONS; k++) /* such marks are not suspicious */
		for (int g = 0; g < 3; g++)
			assert_int_equal(c.suspicious[k][g], 0);
	assert_int_equal(c.digest, arrow_crc32c(0, memory, calibration_size(&detector)));
	/* CRCs of the files' contents, module by module */
	for (uint32_t m = 0; m < MODULES; m++)
		for (int g = 0; g < 3; g++)
			crc = arrow_crc32c(crc, pedestal[g][m], sizeof(pedestal[g][m]));
	assert_int_equal(c.pedestal_digest, crc);
	assert_int_equal(c.gain_digest, arrow_crc32c(0, gain, sizeof(gain)));
	assert_int_equal(c.mask_digest, arrow_crc32c(0, mask, sizeof(mask)));
	assert_int_equal(c.sidecars, 0);
	assert_true(c.oldest_hours == 1);
	/* without files: nominal gains */
	files.gain = files.mask = NULL;
	for (int g = 0; g < 3; g++)
		files.pedestal[g] = NULL;
	loads();
	r = (float)(1 / (-1.439 * 12.4));
	assert_true(c.p[1][200] == 0 && c.r[1][200] == r);
	assert_int_equal(c.masked + c.unusable[0] + c.unusable[1] + c.unusable[2], 0);
	assert_true(c.oldest_hours == 0);
	assert_int_equal(c.pedestal_digest | c.gain_digest | c.mask_digest, 0);
}

static void
test_file_refused(void **state)
{
	char path[128];

	put(gain_path, 1, gain[1], sizeof(gain[1]) - 8);
	refused(-EINVAL, "gain_m1.bin has 3064 bytes, expected 3072: [3][4][32] values of 8 bytes");
	put(gain_path, 1, gain, sizeof(gain[1]) + 8);
	refused(-EINVAL, "gain_m1.bin has 3080 bytes, expected 3072: [3][4][32] values of 8 bytes");
	setup(state);
	put(pedestal_path[2], 0, pedestal, sizeof(pedestal[2][0]) / 2);
	refused(-EINVAL,
		"pedestal_g2_m0.bin has 256 bytes, expected 512: [1][4][32] values of 4 bytes");
	setup(state);
	put(mask_path, 1, "", 0);
	refused(-EINVAL, "mask_m1.bin has 0 bytes, expected 128: [1][4][32] values of 1 byte");
	snprintf(path, sizeof(path), "%s/mask_m1.bin", folder);
	unlink(path);
	assert_int_equal(calibration_load(&c, memory, &files, &detector), -ENOENT);
	assert_non_null(strstr(c.why, "cannot read "));
	assert_non_null(strstr(c.why,
		"mask_m1.bin: No such file or directory; correct "
		"[calibration] mask = "));
	assert_int_equal(mkdir(path, 0777), 0);
	refused(-EINVAL, "mask_m1.bin is not a regular file");
	rmdir(path);
	setup(state);
	snprintf(path, sizeof(path), "%s/pedestal_g2_m0.bin", folder);
	unlink(path);
	assert_int_equal(calibration_load(&c, memory, &files, &detector), -ENOENT);
	assert_non_null(strstr(c.why, "correct [calibration] pedestal_g2 = "));
	setup(state);
	files.mask = "mask.bin";
	refused(-EINVAL,
		"mask.bin: a detector of 2 modules needs one file per module; write %d in "
		"place of the module number");
	setup(state);
	files.energy = 0;
	refused(-EINVAL, "energy is 0 keV, expected more than 0");
	files.energy = 12.4;
	files.gain_limit = 0.5;
	refused(-EINVAL, "gain_limit is 0.5, expected more than 1");
}

/* A few suspicious values are counted and not used; a file with many of them is refused. */
static void
test_suspicious(void **state)
{
	static const struct {
		int kind, stage;
		double value;
		const char *why;
	} cases[] = {
		{CALIBRATION_GAIN_NAN, 0, NAN,
			"gain_m1.bin: 13 of 128 pixels have G0 gains that are NaN or infinite"},
		{CALIBRATION_GAIN_NAN, 2, -INFINITY,
			"gain_m1.bin: 13 of 128 pixels have G2 gains that are NaN or infinite"},
		{CALIBRATION_GAIN_SIGN, 1, 1.439,
			"gain_m1.bin: 13 of 128 pixels have G1 gains whose sign differs from the "
			"nominal gain's"},
		{CALIBRATION_GAIN_SIZE, 0, 41 * 16.01,
			"gain_m1.bin: 13 of 128 pixels have G0 gains far from the nominal gain"},
		{CALIBRATION_GAIN_SIZE, 2, -0.007,
			"gain_m1.bin: 13 of 128 pixels have G2 gains far from the nominal gain"},
		{CALIBRATION_PEDESTAL_NAN, 1, NAN,
			"pedestal_g1_m1.bin: 13 of 128 pixels have G1 pedestals that are NaN or "
			"infinite"},
		{CALIBRATION_PEDESTAL_RANGE, 0, -1,
			"pedestal_g0_m1.bin: 13 of 128 pixels have G0 pedestals that are negative"},
	};
	char why[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const int g = cases[i].stage;

		setup(state);
		for (uint32_t x = 20; x < 33; x++) {
			if (x == 32) { /* 12 of 128 are 9.4 % */
				put_all();
				loads();
				assert_int_equal(c.suspicious[cases[i].kind][g], 12);
				/* not used; a pixel without a gain in G0 is masked */
				assert_int_equal(c.unusable[g] + c.masked, 12);
				assert_true(isnan(c.r[g][PIXELS + 25]));
				assert_false(isnan(c.r[g][25]));
			}
			if (cases[i].kind >= CALIBRATION_PEDESTAL_NAN)
				pedestal[g][1][x] = (float)cases[i].value;
			else
				gain[1][g][x] = cases[i].value;
		}
		put_all();
		snprintf(why, sizeof(why),
			"%s, the limit is 10 %%; check the kind of the file and that it is for "
			"this detector",
			cases[i].why);
		refused(-EINVAL, why);
		files.suspicious_max = 1;
		loads();
		assert_int_equal(c.suspicious[cases[i].kind][g], 13);
	}
	/* some files have gain x energy */
	setup(state);
	for (int i = 0; i < MODULES * 3 * PIXELS; i++)
		(&gain[0][0][0])[i] *= 12.4;
	files.energy = 1;
	put_all();
	loads();
	files.gain_limit = 2;
	assert_int_equal(calibration_load(&c, memory, &files, &detector), -EINVAL);
	/* an unknown detector has no nominal gain */
	memset(files.nominal_gain, 0, sizeof(files.nominal_gain));
	loads();
}

static struct pedestal_sidecar
sidecar(int stage, uint32_t module)
{
	return (struct pedestal_sidecar){
		.detector = "jungfrau",
		.run = "dark",
		.modules = MODULES,
		.module = module,
		.module_id = 1000 + module,
		.stage = stage,
		.time = NOW - 7200,
		.digest = arrow_crc32c(0, pedestal[stage][module], sizeof(pedestal[0][0])),
	};
}

static void
test_sidecar_refused(void **state)
{
	const uint32_t ids[MODULES] = {1000, 1001};
	char path[128], text[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/pedestal_g1_m1.bin", folder);
#define REFUSED(change, why)                                           \
	do {                                                           \
		struct pedestal_sidecar s = sidecar(1, 1);             \
		assert_int_equal(pedestal_sidecar_write(path, &s), 0); \
		loads();                                               \
		assert_int_equal(c.sidecars, 1);                       \
		assert_true(c.oldest_hours == 2); /* not the file's */ \
		change;                                                \
		assert_int_equal(pedestal_sidecar_write(path, &s), 0); \
		refused(-EINVAL, "pedestal_g1_m1.bin" why);            \
	} while (0)
	REFUSED(strcpy(s.detector, "eiger"), " is for detector eiger, expected jungfrau");
	REFUSED(s.modules = 8, " is for a detector with 8 modules, expected 2");
	REFUSED(s.module = 0, " is for module 0, expected module 1");
	REFUSED(s.stage = 2, " is for gain stage G2, expected G1");
	files.module_ids = ids;
	REFUSED(s.module_id = 4711, " is for the module with id 4711, expected id 1001");
	files.module_ids = NULL; /* ids unknown: not checked */
	loads();
	snprintf(text, sizeof(text), "%08x", sidecar(1, 1).digest);
	{
		struct pedestal_sidecar s = sidecar(1, 1);

		s.digest = 0x1234abcd;
		assert_int_equal(pedestal_sidecar_write(path, &s), 0);
		assert_int_equal(calibration_load(&c, memory, &files, &detector), -EINVAL);
		assert_non_null(strstr(c.why, text));
		assert_non_null(strstr(c.why, "its INI file has crc32c:1234abcd"));
	}
	/* module ids may be left out of a sidecar */
	{
		struct pedestal_sidecar s = sidecar(1, 1);

		s.module_id = PEDESTAL_NO_MODULE_ID;
		files.module_ids = ids;
		assert_int_equal(pedestal_sidecar_write(path, &s), 0);
		loads();
	}
	/* an INI file with other contents, or an empty one */
	snprintf(path, sizeof(path), "%s/pedestal_g1_m1.ini", folder);
	for (int i = 0; i < 4; i++) {
		static const char *const texts[] = {"", "[pedestal]\ndetector = jungfrau\n",
			"[other]\na = b\n",
			"[pedestal]\ndetector = jungfrau\nrun = r\nmodules = 2\nmodule = 1\n"
			"stage = -1\ntime = 1\nframes = 1x\nmasked_frames = 0\nmasked_gain = 0\n"
			"masked_rms = 99999999999999999999\ndigest = 12\n"};

		f = fopen(path, "w");
		fputs(texts[i], f);
		fclose(f);
		refused(-EINVAL, "pedestal_g1_m1.bin: its INI file is invalid");
	}
#undef REFUSED
}

/* Load the files; the log has this text. */
static void
loads_and_logs(const char *expected)
{
	char *text = NULL;
	size_t size;
	FILE *log = open_memstream(&text, &size);

	assert_non_null(log);
	assert_int_equal(rte_openlog_stream(log), 0);
	loads();
	rte_openlog_stream(NULL);
	fclose(log);
	if (strstr(text, expected) == NULL)
		fail_msg("not in the log: %s: %s", expected, text);
	free(text);
}

static void
test_age(void **state)
{
	struct pedestal_sidecar s = sidecar(0, 0);
	char path[128];

	files.max_age_hours = 1.5;
	loads();
	assert_int_equal(c.old, 0);
	assert_true(c.oldest_hours == 1);
	files.max_age_hours = 0.5;
	loads();
	assert_int_equal(c.old, 6);
	/* the time in the sidecar is used: a copy of the file is younger */
	snprintf(path, sizeof(path), "%s/pedestal_g0_m0.bin", folder);
	s.time = NOW - 50 * 3600;
	assert_int_equal(pedestal_sidecar_write(path, &s), 0);
	files.max_age_hours = 24;
	loads_and_logs("1 pedestal file is older than 24 hours, ");
	assert_int_equal(c.old, 1);
	assert_true(c.oldest_hours == 50);
	files.now += 60;
	files.max_age_hours = 1;
	loads_and_logs("6 pedestal files are older than 1 hour, ");
	files.max_age_hours = 24;
	/* with the system clock the files are years old, or from the future */
	files.now = 0;
	loads();
	assert_int_equal(c.old, time(NULL) - NOW > 25 * 3600 ? 6 : 0);
}

static int
setup_all(void **state)
{
	if (mkdtemp(folder) == NULL || detector_init(&detector, &small_ops, MODULES, 1) != 0)
		return -1;
	snprintf(gain_path, sizeof(gain_path), "%s/gain_m%%d.bin", folder);
	snprintf(mask_path, sizeof(mask_path), "%s/mask_m%%d.bin", folder);
	for (int g = 0; g < 3; g++)
		snprintf(pedestal_path[g], sizeof(pedestal_path[g]), "%s/pedestal_g%d_m%%d.bin",
			folder, g);
	memory = aligned_alloc(64, calibration_size(&detector));
	return memory == NULL;
}

static int
teardown_all(void **state)
{
	clean();
	free(memory);
	return rmdir(folder);
}

/* A file that is larger by complete maps has another format: its beginning would be a wrong map. */
static void
test_sizes(void **state)
{
	static uint8_t bytes[PIXELS * sizeof(double) * 6];

	put(mask_path, 0, bytes, PIXELS * sizeof(int32_t));
	refused(-EINVAL,
		"mask_m0.bin has 512 bytes, expected 128: [1][4][32] values of 1 byte (int32 "
		"values? Convert them to uint8)");
	put(mask_path, 0, bytes, PIXELS);
	put(pedestal_path[0], 1, bytes, 2 * PIXELS * sizeof(float));
	refused(-EINVAL,
		"pedestal_g0_m1.bin has 1024 bytes, expected 512: [1][4][32] values of 4 bytes "
		"(double values, or two maps? Convert them to one map of float32)");
	put(pedestal_path[0], 1, pedestal[0][1], sizeof(pedestal[0][1]));
	/* the maps G0, G1, G2, HG0, HG1, HG2 are accepted only with gain_maps = 6 */
	memcpy(bytes, gain[1], sizeof(gain[1]));
	for (unsigned int maps = 4; maps <= 7; maps++) {
		put(gain_path, 1, bytes,
			maps <= 6 ? maps * PIXELS * sizeof(double) : sizeof(bytes) - 1);
		assert_int_equal(calibration_load(&c, memory, &files, &detector), -EINVAL);
		assert_non_null(strstr(c.why, "expected 3072: [3][4][32] values of 8 bytes"));
		assert_int_equal(strstr(c.why, "[calibration] gain_maps = 6") != NULL, maps == 6);
	}
	files.gain_maps = 6;
	refused(-EINVAL,
		"gain_m0.bin has 3072 bytes, expected 6144: [6][4][32] values of 8 bytes "
		"(float32 values, or 3 maps? Convert them to double, or set [calibration] "
		"gain_maps = 3)");
	put(gain_path, 0, bytes, sizeof(bytes));
	put(gain_path, 1, bytes, sizeof(bytes));
	loads();
	files.gain_maps = 5;
	refused(-EINVAL, "gain_maps is 5, expected 3 or 6");
}

/* Stages without a pedestal file are named, but not in a dark run. */
static void
test_missing_pedestals(void **state)
{
	files.pedestal[1] = NULL;
	loads_and_logs(
		"no pedestal file of G1: photon values of pixels in this gain stage include the "
		"dark level; set [calibration] pedestal_g1\n");
	assert_int_equal(c.warnings, 1);
	files.pedestal[0] = files.pedestal[2] = NULL;
	loads();
	assert_string_equal(calibration_warning(&c),
		"no pedestal files of G0, G1, G2: photon values of pixels in these gain stages "
		"include the dark level; set [calibration] pedestal_g0, pedestal_g1, pedestal_g2");
	files.dark_run = true;
	loads();
	assert_int_equal(c.warnings, 0);
	assert_string_equal(calibration_warning(&c), "");
}

/* Each value is plausible, all of them together are not. */
static void
test_implausible(void **state)
{
	loads();
	assert_int_equal(c.warnings, 0);
	assert_string_equal(calibration_warning(&c), "");
	assert_int_equal(c.module[1].live, PIXELS);
	assert_true(fabsf(c.module[1].pedestal_median[0] - 3008) < 9);
	assert_true(fabs(c.module[0].gain_median[1] / files.nominal_gain[1] - 1) < 0.1);

	/* an inverted mask */
	memset(mask[1], 1, sizeof(mask[1]));
	mask[1][3] = 0;
	put_all();
	loads();
	assert_int_equal(c.warnings, 1);
	assert_int_equal(c.module[1].live, 1);
	assert_non_null(
		strstr(calibration_warning(&c), "module 1: only 1 of 128 pixels are usable in G0"));
	memset(mask[1], 0, sizeof(mask[1]));

	/* all pedestals 0; G1's file as G0's */
	memset(pedestal[0][0], 0, sizeof(pedestal[0][0]));
	memcpy(pedestal[0][1], pedestal[1][1], sizeof(pedestal[0][1]));
	put_all();
	loads();
	assert_int_equal(c.warnings, 3);
	assert_int_equal(c.module[0].live, 0);
	assert_non_null(strstr(calibration_warning(&c),
		"module 0: the median pedestal of G0 is 0 ADU, expected 500 to 9000; check "
		"that the file of pedestal_g0"));
	assert_true(c.module[1].pedestal_median[0] > 14000);

	/* gains times the photon energy */
	setup(state);
	for (int i = 0; i < PIXELS; i++)
		gain[0][0][i] *= 12.4;
	put_all();
	loads();
	assert_int_equal(c.warnings, 1);
	assert_non_null(strstr(calibration_warning(&c), "module 0: the median gain of G0 is "));
	files.energy = 1;
	loads();
	assert_int_equal(c.warnings, 0);
}

/* Only pixels that are read out count: 2 of 4 rows of module 0, none of module 1. */
static void
test_reduced_readout(void **state)
{
	static const struct detector_ops rows_ops = {.name = "jungfrau",
		.rows = ROWS,
		.cols = COLS,
		.tile_rows = 1,
		.interfaces_max = 2};
	const struct detector full = detector;
	const uint32_t absent[] = {1};

	assert_int_equal(detector_init(&detector, &rows_ops, MODULES, 1), 0);
	assert_int_equal(detector_expect(&detector, 2, absent, 1), 0);
	/* a dark run marks what it does not receive */
	for (uint32_t m = 0; m < MODULES; m++) {
		for (int i = 0; i < PIXELS; i++) {
			if (m == 0 && i >= COLS && i < 3 * COLS)
				continue;
			pedestal[0][m][i] = 16383.5f;
			mask[m][i] = 1;
		}
	}
	mask[0][40] = 1;
	put_all();
	loads();
	assert_int_equal(c.warnings, 0);
	assert_int_equal(c.module[0].read_out, 2 * COLS);
	assert_int_equal(c.module[0].live, 2 * COLS - 1);
	assert_int_equal(c.module[1].read_out, 0);
	assert_int_equal(c.module[1].live, 0);
	for (int i = 0; i < PIXELS; i++)
		mask[0][i] = i != 40;
	put_all();
	loads();
	assert_int_equal(c.warnings, 1);
	assert_non_null(strstr(calibration_warning(&c),
		"module 0: only 1 of 64 pixels read out are usable in G0; check that 0 means"));
	detector = full;
}

/* The maps of G1 and G2 are exchanged in the gain file. */
static void
test_exchanged_gains(void **state)
{
	double map[PIXELS];

	memcpy(map, gain[1][1], sizeof(map));
	memcpy(gain[1][1], gain[1][2], sizeof(map));
	memcpy(gain[1][2], map, sizeof(map));
	put_all();
	loads();
	assert_int_equal(c.warnings, 1);
	assert_non_null(
		strstr(calibration_warning(&c), "module 1: the median gains of G1 and G2 are "));
	assert_non_null(strstr(calibration_warning(&c),
		" ADU/keV, the nominal gains are -1.439 and -0.1145 ADU/keV; are G1 and G2 "
		"exchanged in the gain file?"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_values, setup),
		cmocka_unit_test_setup(test_file_refused, setup),
		cmocka_unit_test_setup(test_suspicious, setup),
		cmocka_unit_test_setup(test_sizes, setup),
		cmocka_unit_test_setup(test_missing_pedestals, setup),
		cmocka_unit_test_setup(test_implausible, setup),
		cmocka_unit_test_setup(test_reduced_readout, setup),
		cmocka_unit_test_setup(test_exchanged_gains, setup),
		cmocka_unit_test_setup(test_sidecar_refused, setup),
		cmocka_unit_test_setup(test_age, setup),
	};

	return cmocka_run_group_tests_name("calibration", tests, setup_all, teardown_all);
}
