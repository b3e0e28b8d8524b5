/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cbor.h>

#include "gk_bitshuffle.h"
#include "wire.h"

#define HEAD_MAX   16	    /* bytes of the longest head of a CBOR item, with room to spare */
#define TICKS	   10000000 /* per second, of the detector's clock */
#define NS	   1000000000
#define CHANNEL	   "default"
#define ERROR_I16  (-32768) /* of masked and missing pixels */
#define ERROR_RAW  65535
#define LARGEST	   32766 /* valid photons */
#define LARGEST_RW 65534

/* Tags of RFC 8949, RFC 8746 and DECTRIS. */
enum tag {
	TAG_DATE = 0,
	TAG_ARRAY = 40,
	TAG_U16 = 69,
	TAG_U32 = 70,
	TAG_I16 = 77,
	TAG_F32 = 85,
	TAG_SELF = 55799,
	TAG_COMPRESSED = 56500,
};

/* Some functions of libcbor take a size_t, others a uint64_t: the same type on 64-bit machines. */
typedef size_t (*encoder)(uint64_t value, unsigned char *to, size_t room);

static void
put_head(struct message *m, encoder encode, uint64_t value)
{
	uint8_t *to = message_room(m, HEAD_MAX);

	if (to != NULL)
		m->size += encode(value, to, HEAD_MAX);
}

static void
put_uint(struct message *m, uint64_t value)
{
	put_head(m, cbor_encode_uint, value);
}

static void
put_array(struct message *m, uint64_t nb)
{
	put_head(m, cbor_encode_array_start, nb);
}

static void
put_map(struct message *m, uint64_t nb)
{
	put_head(m, cbor_encode_map_start, nb);
}

static void
put_tag(struct message *m, enum tag tag)
{
	put_head(m, cbor_encode_tag, tag);
}

static void
put_text(struct message *m, const char *text)
{
	const size_t size = strlen(text);

	put_head(m, cbor_encode_string_start, size);
	message_put(m, text, size);
}

static void
put_bytes(struct message *m, const void *data, size_t size)
{
	put_head(m, cbor_encode_bytestring_start, size);
	message_put(m, data, size);
}

static void
put_double(struct message *m, double value)
{
	uint8_t *to = message_room(m, HEAD_MAX);

	if (to != NULL)
		m->size += cbor_encode_double(value, to, HEAD_MAX);
}

static void
put_bool(struct message *m, bool value)
{
	uint8_t *to = message_room(m, HEAD_MAX);

	if (to != NULL)
		m->size += cbor_encode_bool(value, to, HEAD_MAX);
}

static void
put_null(struct message *m)
{
	uint8_t *to = message_room(m, HEAD_MAX);

	if (to != NULL)
		m->size += cbor_encode_null(to, HEAD_MAX);
}

static void
key_text(struct message *m, const char *key, const char *text)
{
	put_text(m, key);
	put_text(m, text);
}

static void
key_uint(struct message *m, const char *key, uint64_t value)
{
	put_text(m, key);
	put_uint(m, value);
}

static void
key_double(struct message *m, const char *key, double value)
{
	put_text(m, key);
	put_double(m, value);
}

static void
key_bool(struct message *m, const char *key, bool value)
{
	put_text(m, key);
	put_bool(m, value);
}

static void
key_null(struct message *m, const char *key)
{
	put_text(m, key);
	put_null(m);
}

static void
key_date(struct message *m, const char *key, int64_t ns)
{
	const time_t seconds = ns / NS;
	char whole[32], text[64];
	struct tm tm = {0};

	gmtime_r(&seconds, &tm);
	strftime(whole, sizeof(whole), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%06dZ", whole, (int)(ns % NS / 1000));
	put_text(m, key);
	put_tag(m, TAG_DATE);
	put_text(m, text);
}

/* A time of the detector. */
static void
key_time(struct message *m, const char *key, uint64_t ticks)
{
	put_text(m, key);
	put_array(m, 2);
	put_uint(m, ticks);
	put_uint(m, TICKS);
}

/* Begin a message. */
static void
begin(struct message *m, uint64_t nb, const char *type, const struct wire_series *s)
{
	message_clear(m);
	put_tag(m, TAG_SELF);
	put_map(m, nb);
	key_text(m, "type", type);
	key_uint(m, "series_id", s->id);
	key_text(m, "series_unique_id", s->unique_id);
}

/* Begin an array of two dimensions. */
static void
begin_pixels(struct message *m, const struct wire_series *s, enum tag type)
{
	put_tag(m, TAG_ARRAY);
	put_array(m, 2);
	put_array(m, 2);
	put_uint(m, s->rows);
	put_uint(m, s->cols);
	put_tag(m, type);
}

static void
put_mask(struct message *m, const struct wire_series *s)
{
	put_text(m, "pixel_mask");
	put_map(m, 1);
	put_text(m, CHANNEL);
	begin_pixels(m, s, TAG_U32);
	put_bytes(m, s->mask, (size_t)s->rows * s->cols * sizeof(*s->mask));
}

int
wire_stream2_start(struct message *m, const struct wire_series *s)
{
	/* 30 fields of DECTRIS without the mask, and 4 */
	begin(m, 34 + (s->mask != NULL), "start", s);
	key_date(m, "arm_date", s->date_ns);
	key_double(m, "beam_center_x", s->beam_x);
	key_double(m, "beam_center_y", s->beam_y);
	put_text(m, "channels");
	put_array(m, 1);
	put_text(m, CHANNEL);
	key_double(m, "count_time", 0);
	key_bool(m, "countrate_correction_enabled", false);
	key_text(m, "detector_description", s->description);
	key_text(m, "detector_serial_number", "unknown");
	put_text(m, "detector_translation");
	put_array(m, 3);
	put_double(m, 0);
	put_double(m, 0);
	put_double(m, s->distance_metres);
	key_bool(m, "flatfield_enabled", false);
	key_double(m, "frame_time", 0);
	put_text(m, "goniometer");
	put_map(m, 0);
	key_text(m, "image_dtype", s->raw ? "uint16" : "int16");
	key_uint(m, "image_size_x", s->cols);
	key_uint(m, "image_size_y", s->rows);
	key_double(m, "incident_energy", s->energy_ev);
	key_double(m, "incident_wavelength", s->wavelength_angstrom);
	key_uint(m, "number_of_images", s->nb_images);
	if (s->mask != NULL)
		put_mask(m, s);
	key_bool(m, "pixel_mask_enabled", true);
	key_double(m, "pixel_size_x", s->pixel_metres);
	key_double(m, "pixel_size_y", s->pixel_metres);
	key_uint(m, "saturation_value", s->raw ? LARGEST_RW : LARGEST);
	key_text(m, "sensor_material", s->material);
	key_double(m, "sensor_thickness", s->thickness_metres);
	put_text(m, "threshold_energy");
	put_map(m, 0);
	key_null(m, "user_data");
	key_bool(m, "virtual_pixel_interpolation_enabled", false);
	key_double(m, "detector_distance", s->distance_metres);
	put_text(m, "error_value");
	if (s->raw)
		put_uint(m, ERROR_RAW);
	else
		put_head(m, cbor_encode_negint, -1 - ERROR_I16);
	key_text(m, "run_name", s->run);
	key_text(m, "sample", s->sample);
	return m->failed ? -ENOMEM : 0;
}

static void
put_list(struct message *m, const char *key, enum tag type, const void *list, size_t size)
{
	put_text(m, key);
	put_tag(m, type);
	put_bytes(m, list, size);
}

static void
put_peaks(struct message *m, const struct wire_peaks *p)
{
	put_text(m, "peaks");
	put_map(m, 7);
	put_list(m, "fs", TAG_F32, p->fs, p->nb * sizeof(*p->fs));
	put_list(m, "ss", TAG_F32, p->ss, p->nb * sizeof(*p->ss));
	put_list(m, "intensity", TAG_F32, p->intensity, p->nb * sizeof(*p->intensity));
	put_list(m, "snr", TAG_F32, p->snr, p->nb * sizeof(*p->snr));
	put_list(m, "background", TAG_F32, p->background, p->nb * sizeof(*p->background));
	put_list(m, "pixels", TAG_U32, p->pixels, p->nb * sizeof(*p->pixels));
	put_list(m, "panel", TAG_U16, p->panel, p->nb * sizeof(*p->panel));
}

/* Compresses photons after the message, then puts the length of the chunk in front of it. */
static void
put_photons(struct message *m, const int16_t *photons, size_t pixels)
{
	const size_t bound = gk_bitshuffle_bound(pixels), lead = HEAD_MAX;
	uint8_t *to = message_room(m, lead + bound);
	size_t size, head;

	if (to == NULL)
		return;
	/* only the bits count */
	size = gk_bitshuffle_compress((const uint16_t *)photons, pixels, to + lead);
	head = cbor_encode_bytestring_start(size, to, lead);
	memmove(to + head, to + lead, size);
	m->size += head + size;
}

static void
format_key(void *to, const char *key)
{
	put_text(to, key);
}

static void
format_number(void *to, uint64_t value)
{
	put_uint(to, value);
}

static void
format_time(void *to, int64_t value)
{
	/* CBOR's negative integers are -1 - n */
	if (value < 0)
		put_head(to, cbor_encode_negint, -1 - value);
	else
		put_uint(to, value);
}

static void
format_real(void *to, double value)
{
	put_double(to, value);
}

static void
format_array(void *to, uint32_t nb)
{
	put_array(to, nb);
}

static const struct wire_format format = {
	.key = format_key,
	.number = format_number,
	.time = format_time,
	.real = format_real,
	.array = format_array,
};

static void
put_frame(struct message *m, const struct wire_frame *f)
{
	if (f == NULL)
		return;
	key_uint(m, "xfel_pulse_id", f->bunch_id);
	wire_put_frame(&format, m, f);
}

int
wire_stream2_image(struct message *m, const struct wire_series *s, const struct wire_image *i)
{
	const struct wire_frame *f = i->info;
	const uint64_t start = f != NULL ? f->detector_time : 0, real = f != NULL ? f->exposure : 0;

	begin(m, 14 + (f != NULL) + wire_frame_keys(f), "image", s);
	key_uint(m, "image_id", i->id);
	key_time(m, "real_time", real);
	key_date(m, "series_date", s->date_ns);
	key_time(m, "start_time", start);
	/* a wrong time of the last ticks does not begin again at 0 */
	key_time(m, "stop_time", start > UINT64_MAX - real ? UINT64_MAX : start + real);
	key_null(m, "user_data");
	put_text(m, "data");
	put_map(m, 1);
	put_text(m, CHANNEL);
	begin_pixels(m, s, s->raw ? TAG_U16 : TAG_I16);
	put_tag(m, TAG_COMPRESSED);
	put_array(m, 3);
	put_text(m, "bslz4");
	put_uint(m, sizeof(uint16_t));
	if (i->chunk != NULL)
		put_bytes(m, i->chunk, i->chunk_size);
	else
		put_photons(m, i->photons, (size_t)s->rows * s->cols);
	key_uint(m, "frame", i->frame);
	key_bool(m, "sparse", i->sparse);
	key_uint(m, "seen_ns", i->seen_ns);
	put_peaks(m, &i->peaks);
	put_frame(m, f);
	return m->failed ? -ENOMEM : 0;
}

int
wire_stream2_end(struct message *m, const struct wire_series *s)
{
	begin(m, 3, "end", s);
	return m->failed ? -ENOMEM : 0;
}
