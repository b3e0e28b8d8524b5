/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of braggline-publish, decoded by the libraries' own readers. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cbor.h>
#include <msgpack.h>

#include "arrow/bitshuffle.h"
#include "gk_bitshuffle.h"
#include "wire.h"

#define ROWS   16
#define COLS   24
#define PIXELS (ROWS * COLS)
#define NB     6

static int16_t photons[PIXELS];
static uint16_t words[PIXELS];
static uint32_t mask[PIXELS];
/* values whose bits are lost first: signs, NaN with a payload, subnormal, the extremes */
static const uint32_t bits[NB] = {
	0x80000000, 0x7FC12345, 0x00000001, 0x7F7FFFFF, 0xFF800000, 0x42F6E979};
static float fs[NB], ss[NB], intensity[NB], snr[NB], background[NB];
static const uint32_t pixels[NB] = {1, 2, 200, 65536, UINT32_MAX, 0};
static const uint16_t panel[NB] = {0, 1, 2, 511, UINT16_MAX, 7};

static const struct wire_series series = {
	.id = 7,
	.unique_id = "lyso-20261127T001530.000123Z",
	.run = "lyso",
	.sample = "lys\xc3\xb6zym",
	.description = "PSI JUNGFRAU",
	.material = "Si",
	.thickness_metres = 320e-6,
	.rows = ROWS,
	.cols = COLS,
	.energy_ev = 12400,
	.wavelength_angstrom = 0.99987256,
	.distance_metres = 0.08633,
	.pixel_metres = 75e-6,
	.beam_x = 513.25,
	.beam_y = -1,
	.mask = mask,
	.date_ns = INT64_C(1795738530000123456),
};

static struct wire_image
make_image(void)
{
	unsigned int i;

	for (i = 0; i < PIXELS; i++) {
		photons[i] = (int16_t)(i * 7919);
		words[i] = (uint16_t)(i * 40503);
		mask[i] = i % 5 == 0 ? 256 : 0;
	}
	photons[0] = INT16_MIN;
	photons[1] = INT16_MAX;
	words[0] = UINT16_MAX;
	for (i = 0; i < NB; i++) {
		memcpy(&fs[i], &bits[i], sizeof(fs[i]));
		memcpy(&ss[i], &bits[(i + 1) % NB], sizeof(ss[i]));
		memcpy(&intensity[i], &bits[(i + 2) % NB], sizeof(intensity[i]));
		memcpy(&snr[i], &bits[(i + 3) % NB], sizeof(snr[i]));
		memcpy(&background[i], &bits[(i + 4) % NB], sizeof(background[i]));
	}
	return (struct wire_image){
		.id = 3,
		.frame = UINT64_MAX,
		.seen_ns = 42,
		.photons = photons,
		.peaks = {NB, fs, ss, intensity, snr, background, pixels, panel},
	};
}

static const msgpack_object *
find(const msgpack_object *map, const char *key)
{
	const msgpack_object_kv *kv = map->via.map.ptr;

	assert_int_equal(map->type, MSGPACK_OBJECT_MAP);
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		if (strlen(key) == kv[i].key.via.str.size &&
			memcmp(kv[i].key.via.str.ptr, key, strlen(key)) == 0)
			return &kv[i].val;
	}
	fail_msg("no key %s", key);
	return NULL;
}

static void
check_floats(const msgpack_object *map, const char *key, const float *list)
{
	const msgpack_object *array = find(map, key);
	float value;

	assert_int_equal(array->via.array.size, NB);
	for (unsigned int i = 0; i < NB; i++) {
		assert_int_equal(array->via.array.ptr[i].type, MSGPACK_OBJECT_FLOAT64);
		value = (float)array->via.array.ptr[i].via.f64;
		assert_memory_equal(&value, &list[i], sizeof(value));
	}
}

/* Unpack a message, and return its map. */
static const msgpack_object *
unpack(msgpack_unpacked *u, const struct message *m)
{
	size_t at = 0;

	msgpack_unpacked_init(u);
	assert_int_equal(msgpack_unpack_next(u, (const char *)m->data, m->size, &at),
		MSGPACK_UNPACK_SUCCESS);
	assert_int_equal(at, m->size);
	assert_int_equal(u->data.type, MSGPACK_OBJECT_ARRAY);
	assert_int_equal(u->data.via.array.size, 1);
	return u->data.via.array.ptr;
}

static void
check_pixels(const msgpack_object *map, const struct wire_image *image)
{
	const msgpack_object *data = find(map, "detector_data"), *shape = find(data, "shape");
	const msgpack_object *bin = find(data, "data");
	int32_t value;

	assert_memory_equal(find(data, "type")->via.str.ptr, "<i4", 3);
	assert_int_equal(shape->via.array.ptr[0].via.u64, ROWS);
	assert_int_equal(shape->via.array.ptr[1].via.u64, COLS);
	assert_int_equal(bin->type, MSGPACK_OBJECT_BIN);
	assert_int_equal(bin->via.bin.size, 4 * PIXELS);
	for (unsigned int i = 0; i < PIXELS; i++) {
		memcpy(&value, bin->via.bin.ptr + 4 * i, sizeof(value));
		assert_int_equal(value, image->photons != NULL ? photons[i] : words[i]);
	}
}

static void
test_crystfel_has_all_bits(void **state)
{
	struct wire_image image = make_image();
	const msgpack_object *map, *peaks;
	struct message m = {0};
	msgpack_unpacked u;

	assert_int_equal(wire_crystfel(&m, &series, &image), 0);
	map = unpack(&u, &m);
	check_pixels(map, &image);
	peaks = find(map, "peaks");
	check_floats(peaks, "fs", fs);
	check_floats(peaks, "ss", ss);
	check_floats(peaks, "intensity", intensity);
	check_floats(peaks, "snr", snr);
	check_floats(peaks, "background", background);
	for (unsigned int i = 0; i < NB; i++) {
		assert_int_equal(find(peaks, "pixels")->via.array.ptr[i].via.u64, pixels[i]);
		assert_int_equal(find(peaks, "panel")->via.array.ptr[i].via.u64, panel[i]);
	}
	assert_true(find(map, "photon_energy")->via.f64 == 12400);
	assert_true(find(map, "clen_mm")->via.f64 == 86.33);
	assert_true(find(map, "frame")->via.u64 == UINT64_MAX);
	assert_int_equal(find(map, "image_id")->via.u64, 3);
	assert_int_equal(find(map, "series_id")->via.u64, 7);
	assert_false(find(map, "sparse")->via.boolean);
	msgpack_unpacked_destroy(&u);

	image.photons = NULL;
	image.words = words;
	image.sparse = true;
	image.peaks = (struct wire_peaks){0};
	assert_int_equal(wire_crystfel(&m, &series, &image), 0);
	map = unpack(&u, &m);
	check_pixels(map, &image);
	assert_int_equal(find(find(map, "peaks"), "fs")->via.array.size, 0);
	assert_true(find(map, "sparse")->via.boolean);
	msgpack_unpacked_destroy(&u);
	message_free(&m);
}

/* CrystFEL takes the first key that is a prefix of the one it looks for. */
static void
test_no_key_of_crystfel_hides_another(void **state)
{
	struct wire_image image = make_image();
	const struct wire_frame all = {.searched = true};
	const msgpack_object_kv *kv;
	const msgpack_object *map;
	struct message m = {0};
	msgpack_unpacked u;

	image.info = &all;
	assert_int_equal(wire_crystfel(&m, &series, &image), 0);
	map = unpack(&u, &m);
	kv = map->via.map.ptr;
	for (uint32_t i = 0; i < map->via.map.size; i++)
		for (uint32_t k = i + 1; k < map->via.map.size; k++)
			assert_false(kv[i].key.via.str.size <= kv[k].key.via.str.size &&
				memcmp(kv[i].key.via.str.ptr, kv[k].key.via.str.ptr,
					kv[i].key.via.str.size) == 0);
	msgpack_unpacked_destroy(&u);
	message_free(&m);
}

/* Load a message; the caller drops it. */
static cbor_item_t *
load(const struct message *m)
{
	struct cbor_load_result result;
	cbor_item_t *item = cbor_load(m->data, m->size, &result);

	assert_non_null(item);
	assert_int_equal(result.error.code, CBOR_ERR_NONE);
	assert_int_equal(result.read, m->size);
	assert_true(cbor_isa_tag(item));
	assert_int_equal(cbor_tag_value(item), 55799);
	return item;
}

static cbor_item_t *
tagged(cbor_item_t *item, uint64_t tag)
{
	assert_true(cbor_isa_tag(item));
	assert_int_equal(cbor_tag_value(item), tag);
	item = cbor_tag_item(item);
	/* the reference of the parent is enough */
	cbor_decref(&(cbor_item_t *){item});
	return item;
}

static cbor_item_t *
get(const cbor_item_t *map, const char *key)
{
	struct cbor_pair *pair = cbor_map_handle(map);

	for (size_t i = 0; i < cbor_map_size(map); i++) {
		if (strlen(key) == cbor_string_length(pair[i].key) &&
			memcmp(cbor_string_handle(pair[i].key), key, strlen(key)) == 0)
			return pair[i].value;
	}
	fail_msg("no key %s", key);
	return NULL;
}

static void
check_text(const cbor_item_t *item, const char *text)
{
	assert_true(cbor_isa_string(item));
	assert_int_equal(cbor_string_length(item), strlen(text));
	assert_memory_equal(cbor_string_handle(item), text, strlen(text));
}

static void
check_list(const cbor_item_t *peaks, const char *key, uint64_t tag, const void *list, size_t size)
{
	const cbor_item_t *item = tagged(get(peaks, key), tag);

	assert_true(cbor_isa_bytestring(item));
	assert_int_equal(cbor_bytestring_length(item), size);
	if (size > 0)
		assert_memory_equal(cbor_bytestring_handle(item), list, size);
}

/* Get the byte string of an array of two dimensions. */
static cbor_item_t *
get_array(cbor_item_t *item, uint64_t type)
{
	cbor_item_t *pair = tagged(item, 40), **part = cbor_array_handle(pair);
	cbor_item_t **dims = cbor_array_handle(part[0]);

	assert_int_equal(cbor_array_size(pair), 2);
	assert_int_equal(cbor_get_int(dims[0]), ROWS);
	assert_int_equal(cbor_get_int(dims[1]), COLS);
	return tagged(part[1], type);
}

static void
check_chunk(cbor_item_t *typed, const uint16_t *want)
{
	cbor_item_t *compressed = tagged(typed, 56500), **part = cbor_array_handle(compressed);
	uint16_t plain[PIXELS];

	assert_int_equal(cbor_array_size(compressed), 3);
	check_text(part[0], "bslz4");
	assert_int_equal(cbor_get_int(part[1]), 2);
	assert_int_equal(bitshuffle_decompress(cbor_bytestring_handle(part[2]),
				 cbor_bytestring_length(part[2]), plain, PIXELS),
		0);
	assert_memory_equal(plain, want, sizeof(plain));
}

static void
test_stream2_image_has_all_bits(void **state)
{
	static const char *const ratios[] = {"real_time", "start_time", "stop_time"};
	struct wire_image image = make_image();
	struct message m = {0};
	cbor_item_t *root, *map, *peaks;

	assert_int_equal(wire_stream2_image(&m, &series, &image), 0);
	root = load(&m);
	map = tagged(root, 55799);
	assert_memory_equal(cbor_string_handle(cbor_map_handle(map)[0].key), "type", 4);
	check_text(get(map, "type"), "image");
	check_text(get(map, "series_unique_id"), series.unique_id);
	assert_int_equal(cbor_get_int(get(map, "series_id")), 7);
	assert_int_equal(cbor_get_int(get(map, "image_id")), 3);
	assert_true(cbor_get_int(get(map, "frame")) == UINT64_MAX);
	check_text(tagged(get(map, "series_date"), 0), "2026-11-27T00:15:30.000123Z");
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(cbor_array_size(get(map, ratios[i])), 2);
		assert_int_equal(cbor_get_int(cbor_array_handle(get(map, ratios[i]))[1]), 10000000);
	}
	check_chunk(get_array(get(get(map, "data"), "default"), 77), (const uint16_t *)photons);
	peaks = get(map, "peaks");
	check_list(peaks, "fs", 85, fs, sizeof(fs));
	check_list(peaks, "ss", 85, ss, sizeof(ss));
	check_list(peaks, "intensity", 85, intensity, sizeof(intensity));
	check_list(peaks, "snr", 85, snr, sizeof(snr));
	check_list(peaks, "background", 85, background, sizeof(background));
	check_list(peaks, "pixels", 70, pixels, sizeof(pixels));
	check_list(peaks, "panel", 69, panel, sizeof(panel));
	cbor_decref(&root);
	message_free(&m);
}

static void
test_stream2_raw_image_is_the_chunk_of_the_file(void **state)
{
	struct wire_image image = make_image();
	struct wire_series raw = series;
	struct message m = {0};
	cbor_item_t *root, *map, **part;
	uint8_t chunk[16384];

	assert_true(gk_bitshuffle_bound(PIXELS) <= sizeof(chunk));
	image.chunk = chunk;
	image.chunk_size = gk_bitshuffle_compress(words, PIXELS, chunk);
	image.photons = NULL;
	image.words = words;
	image.peaks = (struct wire_peaks){0};
	raw.raw = true;
	assert_int_equal(wire_stream2_image(&m, &raw, &image), 0);
	root = load(&m);
	map = tagged(root, 55799);
	check_chunk(get_array(get(get(map, "data"), "default"), 69), words);
	part = cbor_array_handle(tagged(get_array(get(get(map, "data"), "default"), 69), 56500));
	assert_int_equal(cbor_bytestring_length(part[2]), image.chunk_size);
	assert_memory_equal(cbor_bytestring_handle(part[2]), chunk, image.chunk_size);
	check_list(get(map, "peaks"), "fs", 85, NULL, 0);
	cbor_decref(&root);
	message_free(&m);
}

static void
test_stream2_start_and_end(void **state)
{
	struct wire_series s = series;
	struct message m = {0};
	cbor_item_t *root, *map, **xyz;

	(void)make_image();
	assert_int_equal(wire_stream2_start(&m, &s), 0);
	root = load(&m);
	map = tagged(root, 55799);
	check_text(get(map, "type"), "start");
	check_text(get(map, "image_dtype"), "int16");
	check_text(get(map, "sample"), series.sample);
	check_text(tagged(get(map, "arm_date"), 0), "2026-11-27T00:15:30.000123Z");
	assert_int_equal(cbor_get_int(get(map, "image_size_x")), COLS);
	assert_int_equal(cbor_get_int(get(map, "image_size_y")), ROWS);
	assert_int_equal(cbor_get_int(get(map, "saturation_value")), 32766);
	assert_true(cbor_float_get_float(get(map, "beam_center_x")) == 513.25);
	assert_true(cbor_float_get_float(get(map, "beam_center_y")) == -1);
	xyz = cbor_array_handle(get(map, "detector_translation"));
	assert_true(cbor_float_get_float(xyz[2]) == 0.08633);
	/* -1 - 32767 */
	assert_true(cbor_isa_negint(get(map, "error_value")));
	assert_int_equal(cbor_get_int(get(map, "error_value")), 32767);
	assert_memory_equal(
		cbor_bytestring_handle(get_array(get(get(map, "pixel_mask"), "default"), 70)), mask,
		sizeof(mask));
	cbor_decref(&root);

	s.mask = NULL;
	s.raw = true;
	assert_int_equal(wire_stream2_start(&m, &s), 0);
	root = load(&m);
	map = tagged(root, 55799);
	check_text(get(map, "image_dtype"), "uint16");
	assert_int_equal(cbor_get_int(get(map, "error_value")), 65535);
	cbor_decref(&root);

	assert_int_equal(wire_stream2_end(&m, &s), 0);
	root = load(&m);
	map = tagged(root, 55799);
	check_text(get(map, "type"), "end");
	assert_int_equal(cbor_map_size(map), 3);
	cbor_decref(&root);
	message_free(&m);
}

static const struct wire_frame frame = {
	.bunch_id = UINT64_MAX,
	.detector_time = UINT64_MAX - 1,
	.receive_time = -5,
	.sum = 0.1,
	.exposure = 5,
	.detector_status = 0x80000000,
	.flags = 3,
	.verdict = FRAME_HIT,
	.pedestal_version = 9,
	.searched = true,
	.peaks = 17,
	.nb_shells = 2,
	.shell_peaks = {16, 1},
};

static void
test_crystfel_has_the_row_of_frames(void **state)
{
	struct wire_image image = make_image();
	struct wire_frame unsearched = frame;
	const msgpack_object *map, *shells;
	struct message m = {0};
	msgpack_unpacked u;

	image.info = &frame;
	assert_int_equal(wire_crystfel(&m, &series, &image), 0);
	map = unpack(&u, &m);
	assert_int_equal(map->via.map.size, 25);
	assert_true(find(map, "bunch_id")->via.u64 == UINT64_MAX);
	assert_true(find(map, "detector_time")->via.u64 == UINT64_MAX - 1);
	assert_true(find(map, "receive_time")->via.i64 == -5);
	assert_true(find(map, "sum")->via.f64 == 0.1);
	assert_int_equal(find(map, "detector_status")->via.u64, 0x80000000);
	assert_int_equal(find(map, "verdict")->via.u64, FRAME_HIT);
	assert_int_equal(find(map, "peak_count")->via.u64, 17);
	shells = find(map, "shell_peaks");
	assert_int_equal(shells->via.array.size, 2);
	assert_int_equal(shells->via.array.ptr[0].via.u64, 16);
	msgpack_unpacked_destroy(&u);

	unsearched.searched = false;
	image.info = &unsearched;
	assert_int_equal(wire_crystfel(&m, &series, &image), 0);
	map = unpack(&u, &m);
	assert_int_equal(map->via.map.size, 23);
	assert_int_equal(find(map, "pedestal_version")->via.u64, 9);
	msgpack_unpacked_destroy(&u);
	message_free(&m);
}

static void
check_ratio(const cbor_item_t *item, uint64_t ticks)
{
	assert_int_equal(cbor_array_size(item), 2);
	assert_true(cbor_get_int(cbor_array_handle(item)[0]) == ticks);
	assert_int_equal(cbor_get_int(cbor_array_handle(item)[1]), 10000000);
}

static void
test_stream2_has_the_row_of_frames(void **state)
{
	struct wire_image image = make_image();
	struct wire_frame sane = frame;
	struct message m = {0};
	cbor_item_t *root, *map;

	image.info = &frame;
	assert_int_equal(wire_stream2_image(&m, &series, &image), 0);
	root = load(&m);
	map = tagged(root, 55799);
	assert_int_equal(cbor_map_size(map), 30);
	check_ratio(get(map, "start_time"), UINT64_MAX - 1);
	check_ratio(get(map, "real_time"), 5);
	/* it does not wrap */
	check_ratio(get(map, "stop_time"), UINT64_MAX);
	assert_true(cbor_get_int(get(map, "bunch_id")) == UINT64_MAX);
	assert_true(cbor_get_int(get(map, "xfel_pulse_id")) == UINT64_MAX);
	/* -1 - 4 */
	assert_true(cbor_isa_negint(get(map, "receive_time")));
	assert_int_equal(cbor_get_int(get(map, "receive_time")), 4);
	assert_true(cbor_float_get_float(get(map, "sum")) == 0.1);
	assert_int_equal(cbor_get_int(get(map, "peak_count")), 17);
	assert_int_equal(cbor_array_size(get(map, "shell_peaks")), 2);
	assert_int_equal(cbor_get_int(cbor_array_handle(get(map, "shell_peaks"))[1]), 1);
	cbor_decref(&root);

	sane.detector_time = 70;
	sane.searched = false;
	image.info = &sane;
	assert_int_equal(wire_stream2_image(&m, &series, &image), 0);
	root = load(&m);
	map = tagged(root, 55799);
	assert_int_equal(cbor_map_size(map), 28);
	check_ratio(get(map, "start_time"), 70);
	check_ratio(get(map, "stop_time"), 75);
	cbor_decref(&root);
	message_free(&m);
}

static void
test_a_message_that_is_too_large_fails(void **state)
{
	struct message m = {0};

	assert_null(message_room(&m, SIZE_MAX / 2));
	assert_true(m.failed);
	message_put(&m, "x", 1);
	assert_int_equal(m.size, 0);
	message_clear(&m);
	message_put(&m, "x", 1);
	assert_int_equal(m.size, 1);
	message_free(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crystfel_has_all_bits),
		cmocka_unit_test(test_no_key_of_crystfel_hides_another),
		cmocka_unit_test(test_stream2_image_has_all_bits),
		cmocka_unit_test(test_stream2_raw_image_is_the_chunk_of_the_file),
		cmocka_unit_test(test_stream2_start_and_end),
		cmocka_unit_test(test_crystfel_has_the_row_of_frames),
		cmocka_unit_test(test_stream2_has_the_row_of_frames),
		cmocka_unit_test(test_a_message_that_is_too_large_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
