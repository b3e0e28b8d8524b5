/* SPDX-License-Identifier: BSD-3-Clause */

#include <endian.h>
#include <errno.h>
#include <string.h>

#include <msgpack.h>

#include "wire.h"

static int
put(void *arg, const char *data, size_t size)
{
	struct message *m = arg;

	message_put(m, data, size);
	return m->failed ? -1 : 0;
}

static void
put_text(msgpack_packer *p, const char *text)
{
	const size_t size = strlen(text);

	msgpack_pack_str(p, size);
	msgpack_pack_str_body(p, text, size);
}

/* The lists are in a batch, whose columns have any alignment that the file gives them. */
static void
put_floats(msgpack_packer *p, const char *key, const float *list, uint32_t nb)
{
	float value;

	put_text(p, key);
	msgpack_pack_array(p, nb);
	for (uint32_t i = 0; i < nb; i++) {
		memcpy(&value, list + i, sizeof(value));
		msgpack_pack_double(p, value);
	}
}

static void
put_peaks(msgpack_packer *p, const struct wire_peaks *peaks)
{
	put_text(p, "peaks");
	msgpack_pack_map(p, 7);
	put_floats(p, "fs", peaks->fs, peaks->nb);
	put_floats(p, "ss", peaks->ss, peaks->nb);
	put_floats(p, "intensity", peaks->intensity, peaks->nb);
	put_floats(p, "snr", peaks->snr, peaks->nb);
	put_floats(p, "background", peaks->background, peaks->nb);
	put_text(p, "pixels");
	msgpack_pack_array(p, peaks->nb);
	for (uint32_t i = 0; i < peaks->nb; i++)
		msgpack_pack_uint32(p, peaks->pixels[i]);
	put_text(p, "panel");
	msgpack_pack_array(p, peaks->nb);
	for (uint32_t i = 0; i < peaks->nb; i++)
		msgpack_pack_uint16(p, peaks->panel[i]);
}

/* CrystFEL reads no 16-bit pixels. The message has any alignment. @{ */
typedef uint32_t __attribute__((aligned(1), may_alias)) pixel;

static void
widen_photons(pixel *restrict to, const int16_t *restrict photons, size_t pixels)
{
	for (size_t i = 0; i < pixels; i++)
		to[i] = htole32((uint32_t)(int32_t)photons[i]);
}

static void
widen_words(pixel *restrict to, const uint16_t *restrict words, size_t pixels)
{
	for (size_t i = 0; i < pixels; i++)
		to[i] = htole32(words[i]);
}
/* @} */

static void
put_pixels(msgpack_packer *p, struct message *m, const struct wire_series *s,
	const struct wire_image *image)
{
	const size_t pixels = (size_t)s->rows * s->cols, size = pixels * sizeof(int32_t);
	uint8_t *to;

	put_text(p, "detector_data");
	msgpack_pack_map(p, 3);
	put_text(p, "type");
	put_text(p, "<i4");
	put_text(p, "shape");
	msgpack_pack_array(p, 2);
	msgpack_pack_uint32(p, s->rows);
	msgpack_pack_uint32(p, s->cols);
	put_text(p, "data");
	msgpack_pack_bin(p, size);
	/* widened in place, not copied again */
	to = message_room(m, size);
	if (to == NULL)
		return;
	if (image->photons != NULL)
		widen_photons((pixel *)to, image->photons, pixels);
	else
		widen_words((pixel *)to, image->words, pixels);
	m->size += size;
}

static void
put_key(void *packer, const char *key)
{
	put_text(packer, key);
}

static void
put_number(void *packer, uint64_t value)
{
	msgpack_pack_uint64(packer, value);
}

static void
put_time(void *packer, int64_t value)
{
	msgpack_pack_int64(packer, value);
}

static void
put_real(void *packer, double value)
{
	msgpack_pack_double(packer, value);
}

static void
put_array(void *packer, uint32_t nb)
{
	msgpack_pack_array(packer, nb);
}

static const struct wire_format format = {
	.key = put_key,
	.number = put_number,
	.time = put_time,
	.real = put_real,
	.array = put_array,
};

int
wire_crystfel(struct message *m, const struct wire_series *s, const struct wire_image *i)
{
	msgpack_packer p;

	message_clear(m);
	/* reserve all at once: a growing buffer would be copied */
	(void)message_room(m, wire_image_size(s));
	msgpack_packer_init(&p, m, put);
	msgpack_pack_array(&p, 1);
	msgpack_pack_map(&p, 10 + wire_frame_keys(i->info));
	put_pixels(&p, m, s, i);
	put_peaks(&p, &i->peaks);
	put_text(&p, "photon_energy");
	msgpack_pack_double(&p, s->energy_ev);
	put_text(&p, "clen_mm");
	msgpack_pack_double(&p, s->distance_metres * 1000);
	put_text(&p, "frame");
	msgpack_pack_uint64(&p, i->frame);
	put_text(&p, "image_id");
	msgpack_pack_uint64(&p, i->id);
	put_text(&p, "run_name");
	put_text(&p, s->run);
	put_text(&p, "series_id");
	msgpack_pack_uint32(&p, s->id);
	put_text(&p, "sparse");
	if (i->sparse)
		msgpack_pack_true(&p);
	else
		msgpack_pack_false(&p);
	put_text(&p, "seen_ns");
	msgpack_pack_int64(&p, i->seen_ns);
	wire_put_frame(&format, &p, i->info);
	return m->failed ? -ENOMEM : 0;
}
