/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What braggline-export reads: both files of a run, with batches whose CRC was not checked, and the
 * calibration file. Images become chunks of the right size or are refused; chunks of raw images are
 * decompressed, as readers of the HDF5 files do.
 *
 * The first byte of an input selects the kind. Of a run, the next three are the size of the file of
 * images, which the file of frames follows.
 */

#include <math.h>

#include "arrow/bitshuffle.h"
#include "columns.h"
#include "gk_abi.h"
#include "image.h"
#include "scan/dead_pixels.h"
#include "modules.h"
#include "scan/images.h"
#include "seed_corpus.h"

#define PIXELS_MAX (1u << 17)
#define IMAGES_MAX 64

void __wrap_escaped_line(FILE *out, const char *format, ...);

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static uint16_t words[PIXELS_MAX];
static float plane[PIXELS_MAX];
static uint32_t mask[PIXELS_MAX];

static void
check_calibration(const uint8_t *data, size_t size)
{
	const char *why = NULL;

	memset(mask, 0, sizeof(mask));
	/* of an exact size, for ASAN */
	if (dead_pixels_add(data, size, NULL, 4, 8, mask, &why) == 0)
		for (unsigned int i = 0; i < 32; i++)
			WANT(mask[i] == 0 || mask[i] == ARRAY_DEAD);
	else
		WANT(why != NULL);
}

static void
check_images(struct export *e)
{
	const uint64_t pixels = (uint64_t)e->run.rows * e->run.cols;
	const size_t nb = e->images.nb < IMAGES_MAX ? e->images.nb : IMAGES_MAX;
	struct scan_images b;
	const uint8_t *chunk, *own;
	const int16_t *photons;
	struct image m;
	ssize_t size;

	WANT(image_init(&m, e->run.rows, e->run.cols, nb % 2 == 1 ? mask : NULL) == 0);
	for (size_t i = 0; i < nb; i++) {
		const struct selection_row *row = &e->images.image[i].image;
		const struct arrow_reader *r = &e->run.set[row->set].file[ARROW_IMAGES].reader;

		if (scan_images_open(r, row->batch, &b) < 0)
			continue;
		size = image_chunk(&m, &b, row, &chunk);
		/* a chunk of the file is not checked */
		if (size > 0 && scan_images_chunk(&b, row->row, &own) == 0)
			WANT(bitshuffle_decompress(chunk, size, words, pixels) == 0);
		else if (size > 0)
			(void)bitshuffle_decompress(chunk, size, words, pixels);
		(void)scan_images_expand(&e->run, &b, row->row, plane, words);
		(void)scan_images_photons(
			&b, row->row, e->run.rows, e->run.cols, (int16_t *)words, &photons);
	}
	image_free(&m);
}

static void
check_columns(struct export *e)
{
	int32_t *count = calloc(e->images.nb + 1, sizeof(*count));

	WANT(count != NULL);
	free(columns_read(e, "bunch_id", ARROW_UINT64));
	free(columns_read(e, "receive_time", ARROW_TIMESTAMP_NS));
	free(columns_read(e, "verdict", ARROW_UINT8));
	free(columns_read(e, "nothing", ARROW_FLOAT64));
	if (columns_have_peaks(e) && columns_count_peaks(e, count) >= 0)
		for (size_t i = 0; i < e->images.nb; i++)
			WANT(count[i] >= 0 && count[i] <= GK_PEAKS_MAX);
	free(count);
}

static void
check_run(const uint8_t *images, size_t nb_images, const uint8_t *frames, size_t nb_frames)
{
	const struct selection_filter all = {.last = UINT64_MAX, .verdicts = ~0u};
	struct scan_set set = {0};
	struct export e = {.run = {.set = &set, .nb_sets = 1}};
	const uint8_t *const data[ARROW_TABLES] = {
		[ARROW_FRAMES] = frames, [ARROW_IMAGES] = images};
	const size_t size[ARROW_TABLES] = {[ARROW_FRAMES] = nb_frames, [ARROW_IMAGES] = nb_images};
	const char *problem;
	bool ok = true;

	for (unsigned int t = 0; t < ARROW_TABLES; t++) {
		struct scan_file *f = &set.file[t];

		if (arrow_reader_open_memory(&f->reader, data[t], size[t], &problem) < 0) {
			ok = false;
			continue;
		}
		f->present = true;
		ok &= scan_run_check(&e.run, f) == 0;
	}
	if (ok && (uint64_t)e.run.rows * e.run.cols <= PIXELS_MAX &&
		selection_read(&e.images, &all, &e.run) == 0) {
		check_images(&e);
		check_columns(&e);
	}
	selection_free(&e.images);
	for (unsigned int t = 0; t < ARROW_TABLES; t++)
		if (set.file[t].present)
			arrow_reader_close(&set.file[t].reader);
}

static void
check_input(const uint8_t *data, size_t size)
{
	uint8_t *first, *second;
	size_t nb, rest;

	if (data[0] % 2 == 1 || size < 4) {
		first = malloc(size);
		WANT(first != NULL);
		memcpy(first, data + 1, size - 1);
		check_calibration(first, size - 1);
		free(first);
		return;
	}
	nb = data[1] | data[2] << 8 | data[3] << 16;
	nb = nb < size - 4 ? nb : size - 4;
	rest = size - 4 - nb;
	first = malloc(nb + 1);
	second = malloc(rest + 1);
	WANT(first != NULL && second != NULL);
	memcpy(first, data + 4, nb);
	memcpy(second, data + 4 + nb, rest);
	check_run(first, nb, second, rest);
	free(second);
	free(first);
}

static size_t
read_seed(const char *name, const char *table, uint8_t *at, size_t room)
{
	char path[1024];
	FILE *f;
	size_t size;

	snprintf(path, sizeof(path), "%s/%s_%s.arrow", seed_dir, name, table);
	f = fopen(path, "rb");
	if (f == NULL)
		return 0;
	size = fread(at, 1, room, f);
	fclose(f);
	unlink(path);
	return size;
}

/* Runs of the project's own writer; ARROW_WRITE is its path. */
static void
add_runs(const char *writer)
{
	static uint8_t text[1 << 23];
	char command[2048], path[1024];
	size_t size, frames;

	snprintf(command, sizeof(command),
		"'%s' '%s' a float32 1 2 1 && '%s' '%s' b int16 2 1 2 && '%s' '%s' c int16+chunks "
		"1 4 3",
		writer, seed_dir, writer, seed_dir, writer, seed_dir);
	if (system(command) != 0)
		fprintf(stderr, "no seeds from %s\n", writer);
	for (char name[] = "a"; name[0] <= 'c'; name[0]++) {
		size = read_seed(name, "images", text + 4, sizeof(text) - 4);
		frames = read_seed(name, "frames", text + 4 + size, sizeof(text) - 4 - size);
		text[0] = 0;
		text[1] = size;
		text[2] = size >> 8;
		text[3] = size >> 16;
		seed_add(name, text, 4 + size + frames);
		snprintf(path, sizeof(path), "%s/%s.txt", seed_dir, name);
		unlink(path);
	}
}

/* Messages about wrong input are not printed. */
void __attribute__((format(printf, 2, 3))) __wrap_escaped_line(FILE *out, const char *format, ...)
{
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char maps[] = "\1braggline calibration 1\n"
				   "plane photons_per_adu_g0 float32 4 8 at 8 crc32c 00000000\n"
				   "plane photons_per_adu_g1 float32 4 8 at 16 crc32c 00000000\n"
				   "plane photons_per_adu_g2 float32 4 8 at 24 crc32c 00000000\n"
				   "end\n";
	const char *writer = getenv("ARROW_WRITE");

	seed_begin(argc, argv);
	seed_add("maps", maps, sizeof(maps) - 1);
	if (writer != NULL)
		add_runs(writer);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0)
		check_input(data, size);
	return 0;
}
