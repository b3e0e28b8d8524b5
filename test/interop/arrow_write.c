/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes DIR/NAME_frames.arrow, DIR/NAME_images.arrow and their expected content as plain text,
 * DIR/NAME.txt. Floating-point numbers are written as the hexadecimal digits of their bits.
 *
 * With +peaks after the type of values, the tables have the columns of peaks. The text does not.
 * With +chunks full images are chunks.
 *
 * usage: arrow_write DIR NAME float32|int16[+chunks][+peaks][+radial] MODULES FRAMES SEED
 */

#include <stdint.h>
#include <stdio.h>

#include "arrow/file.h"
#include "gk_bitshuffle.h"
#include "../unit/arrow/arrow_sample.h"

static struct arrow_file file[ARROW_TABLES];

static void
emit(void *arg, const struct batch *b)
{
	arrow_file_append(&file[b->table], b);
}

static void
print_hex(FILE *out, const void *bytes, size_t size)
{
	const uint8_t *b = bytes;
	size_t i;

	for (i = 0; i < size; i++)
		fprintf(out, "%02x", b[i]);
}

static void
print_frame(FILE *out, const struct sample *s)
{
	const struct frame_record *r = &s->record;
	unsigned int i;

	fprintf(out, "frames %lu %lu %lu %ld %u %u %u", r->frame, r->bunch_id, r->detector_time,
		r->receive_time, r->exposure, r->detector_status, r->flags);
	for (i = 0; i < s->modules; i++)
		fprintf(out, "%c%u", i == 0 ? ' ' : ',', r->missing[i]);
	fprintf(out, " %u ", r->strong_count);
	print_hex(out, &r->sum, sizeof(r->sum));
	fprintf(out, " %u %u %u %u %u %u %u\n", r->saturated, r->invalid, r->nnz, r->verdict,
		r->kind, r->veto_version, r->pedestal_version);
}

static void
print_image(FILE *out, const struct sample *s)
{
	const struct frame_record *r = &s->record;
	const struct gk_layout *l = &s->layout;
	const uint64_t pixels = gk_pixels(&s->geometry);
	const uint32_t *row_ptr = (const uint32_t *)(s->outputs + l->row_ptr);
	const uint16_t *col = (const uint16_t *)(s->outputs + l->col);
	uint8_t *chunk;
	uint32_t i;

	fprintf(out, "images %lu %u row_ptr", r->frame, r->kind);
	for (i = 0; r->kind == GK_KIND_CSR && i <= gk_rows(&s->geometry); i++)
		fprintf(out, " %u", row_ptr[i]);
	fprintf(out, " col");
	for (i = 0; r->kind == GK_KIND_CSR && i < r->nnz; i++)
		fprintf(out, " %u", col[i]);
	fprintf(out, " value ");
	if (r->kind == GK_KIND_CSR)
		print_hex(out, s->outputs + l->value, (size_t)r->nnz * l->value_size);
	else if (r->kind == GK_KIND_IMAGE && !s->chunks)
		print_hex(out, s->outputs + l->value, pixels * l->value_size);
	fprintf(out, " raw ");
	if (r->kind == GK_KIND_RAW || (r->kind == GK_KIND_IMAGE && s->chunks)) {
		chunk = malloc(gk_bitshuffle_bound(pixels));
		print_hex(out, chunk,
			gk_bitshuffle_compress(
				(const uint16_t *)(s->outputs + l->raw), pixels, chunk));
		free(chunk);
	} else {
		fprintf(out, "null");
	}
	fprintf(out, " missing ");
	print_hex(out, r->missing_map, (s->geometry.tiles + 7) / 8);
	fprintf(out, "\n");
}

int
main(int argc, char **argv)
{
	struct batch_builder_config config;
	struct batch_builder *builder;
	struct arrow_tables tables;
	struct sample s;
	char name[256];
	unsigned int i, frames;
	enum gk_value value;
	FILE *text;
	int ret = 0;

	if (argc != 7) {
		fprintf(stderr,
			"usage: arrow_write DIR NAME float32|int16[+chunks][+peaks][+radial] "
			"MODULES FRAMES SEED\n");
		return 2;
	}
	frames = atoi(argv[5]);
	value = strncmp(argv[3], "int16", 5) == 0 ? GK_VALUE_I16 : GK_VALUE_F32;
	if (strstr(argv[3], "+peaks") != NULL)
		sample_init_peaks(&s, atoi(argv[6]), value, atoi(argv[4]));
	else
		sample_init(&s, atoi(argv[6]), value, atoi(argv[4]));
	if (strstr(argv[3], "+radial") != NULL)
		s.bins = 7;
	s.chunks = strstr(argv[3], "+chunks") != NULL;
	if (sample_tables(&s, &tables) < 0)
		return 1;
	for (i = 0; i < ARROW_TABLES; i++) {
		snprintf(name, sizeof(name), "%s_%s", argv[2], arrow_table_name(i));
		if (arrow_file_create(&file[i], NULL, argv[1], name, &tables.schema[i]) < 0) {
			fprintf(stderr, "%s\n", file[i].message);
			return 1;
		}
	}
	snprintf(name, sizeof(name), "%s/%s.txt", argv[1], argv[2]);
	text = fopen(name, "w");
	if (text == NULL) {
		perror(name);
		return 1;
	}
	config = sample_builder_config(&s, &tables);
	config.frames_interval = 64;
	config.images_interval = 16;
	config.emit = emit;
	if (batch_builder_create(&builder, &config) < 0)
		return 1;
	for (i = 0; i < frames; i++) {
		sample_next(&s, 1 + i % 3, 4);
		if (batch_builder_add(builder, &s.record) < 0)
			return 1;
		print_frame(text, &s);
		if (frame_verdict_is_kept(s.record.verdict))
			print_image(text, &s);
	}
	batch_builder_flush(builder);
	for (i = 0; i < ARROW_TABLES; i++) {
		if (arrow_file_close(&file[i]) < 0) {
			fprintf(stderr, "%s\n", file[i].message);
			ret = 1;
		}
	}
	batch_builder_destroy(builder);
	arrow_tables_free(&tables);
	sample_free(&s);
	return fclose(text) != 0 || ret;
}
