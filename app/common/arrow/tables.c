/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/reader.h"
#include "arrow/tables.h"

#define OWN_META 10

static const struct arrow_field frames_fields[FRAMES_COLUMNS] = {
	[FRAMES_FRAME] = {"frame", ARROW_UINT64},
	[FRAMES_BUNCH_ID] = {"bunch_id", ARROW_UINT64},
	[FRAMES_DETECTOR_TIME] = {"detector_time", ARROW_UINT64},
	[FRAMES_RECEIVE_TIME] = {"receive_time", ARROW_TIMESTAMP_NS},
	[FRAMES_EXPOSURE] = {"exposure", ARROW_UINT32},
	[FRAMES_DETECTOR_STATUS] = {"detector_status", ARROW_UINT32},
	[FRAMES_FLAGS] = {"flags", ARROW_UINT32},
	[FRAMES_MISSING] = {"missing", ARROW_FIXED_LIST, ARROW_UINT16},
	[FRAMES_STRONG_COUNT] = {"strong_count", ARROW_UINT32},
	[FRAMES_SUM] = {"sum", ARROW_FLOAT64},
	[FRAMES_SATURATED] = {"saturated", ARROW_UINT32},
	[FRAMES_INVALID] = {"invalid", ARROW_UINT32},
	[FRAMES_NNZ] = {"nnz", ARROW_UINT32},
	[FRAMES_VERDICT] = {"verdict", ARROW_UINT8},
	[FRAMES_KIND] = {"kind", ARROW_UINT8},
	[FRAMES_VETO_VERSION] = {"veto_version", ARROW_UINT32},
	[FRAMES_PEDESTAL_VERSION] = {"pedestal_version", ARROW_UINT32},
	[FRAMES_PEAKS] = {"peaks", ARROW_UINT32, .nullable = true},
	[FRAMES_SHELL_PEAKS] = {"shell_peaks", ARROW_LIST, ARROW_UINT32},
	[FRAMES_RADIAL_SUM] = {"radial_sum", ARROW_FIXED_LIST, ARROW_INT64, .nullable = true},
	[FRAMES_RADIAL_COUNT] = {"radial_count", ARROW_FIXED_LIST, ARROW_UINT32, .nullable = true},
};

static const struct arrow_field images_fields[IMAGES_COLUMNS] = {
	[IMAGES_FRAME] = {"frame", ARROW_UINT64},
	[IMAGES_KIND] = {"kind", ARROW_UINT8},
	[IMAGES_ROW_PTR] = {"row_ptr", ARROW_LIST, ARROW_UINT32},
	[IMAGES_COL] = {"col", ARROW_LIST, ARROW_UINT16},
	[IMAGES_VALUE] = {"value", ARROW_LIST, ARROW_FLOAT32},
	[IMAGES_RAW] = {"raw", ARROW_BINARY, .nullable = true},
	[IMAGES_MISSING] = {"missing", ARROW_BINARY},
	[IMAGES_PEAK_FS] = {"peak_fs", ARROW_LIST, ARROW_FLOAT32},
	[IMAGES_PEAK_SS] = {"peak_ss", ARROW_LIST, ARROW_FLOAT32},
	[IMAGES_PEAK_INTENSITY] = {"peak_intensity", ARROW_LIST, ARROW_FLOAT32},
	[IMAGES_PEAK_SNR] = {"peak_snr", ARROW_LIST, ARROW_FLOAT32},
	[IMAGES_PEAK_BACKGROUND] = {"peak_background", ARROW_LIST, ARROW_FLOAT32},
	[IMAGES_PEAK_PIXELS] = {"peak_pixels", ARROW_LIST, ARROW_UINT32},
	[IMAGES_PEAK_PANEL] = {"peak_panel", ARROW_LIST, ARROW_UINT16},
};

/* One allocation; the texts of `meta` follow it. */
struct storage {
	struct arrow_field frames[FRAMES_COLUMNS];
	struct arrow_field images[IMAGES_COLUMNS];
	char modules[12];
	char rows[12];
	char cols[12];
	char packets[12];
	char header_crc[ARROW_TABLES][9];
	struct arrow_meta meta[];
};

const char *
arrow_table_name(enum arrow_table table)
{
	return table == ARROW_FRAMES ? "frames" : "images";
}

const char *
arrow_table_problem(const struct arrow_reader *r, enum arrow_table table)
{
	const char *name = arrow_reader_meta(r, ARROW_META_TABLE);
	const char *format = arrow_reader_meta(r, ARROW_META_FORMAT);

	if (name == NULL || strcmp(name, arrow_table_name(table)) != 0)
		return "its schema does not match the table in its name";
	if (format == NULL || strcmp(format, ARROW_FORMAT_VERSION) == 0 ||
		strcmp(format, ARROW_FORMAT_CHUNKS) == 0)
		return NULL;
	return "its " ARROW_META_FORMAT " is none of those of this program, " ARROW_FORMAT_VERSION
	       " and " ARROW_FORMAT_CHUNKS "; use a newer version";
}

static const char *
keep_text(char **at, const char *text)
{
	const size_t size = strlen(text) + 1;
	char *kept = *at;

	memcpy(kept, text, size);
	*at += size;
	return kept;
}

/* Compute the last value of the metadata, which detects changed bits in the header. */
static int
put_header_crc(const struct arrow_schema *schema, char digits[9])
{
	uint8_t *header;
	size_t size;
	int ret;

	strcpy(digits, "00000000");
	ret = arrow_header_build(schema, &header, &size);
	if (ret < 0)
		return ret;
	/* of one of the two copies */
	snprintf(digits, 9, "%08x", arrow_crc32c(0, header, size / 2));
	free(header);
	return 0;
}

/* Choose the columns of `frames` from all of them. @return their number */
static unsigned int
choose_frames(struct arrow_tables *t, struct arrow_field *frames,
	const struct arrow_tables_config *config)
{
	unsigned int nb = config->peaks ? FRAMES_RADIAL_SUM : FRAMES_PEAKS;

	t->peaks = config->peaks;
	if (config->radial_bins == 0)
		return nb;
	t->radial = nb;
	frames[FRAMES_RADIAL_SUM].list_size = config->radial_bins;
	frames[FRAMES_RADIAL_COUNT].list_size = config->radial_bins;
	frames[nb++] = frames[FRAMES_RADIAL_SUM];
	frames[nb++] = frames[FRAMES_RADIAL_COUNT];
	return nb;
}

int
arrow_tables_init(struct arrow_tables *t, const struct arrow_tables_config *config)
{
	const unsigned int nb = OWN_META + config->nb_meta + 1;
	const bool is_i16 = config->value == GK_VALUE_I16;
	size_t text = 0;
	struct storage *s;
	unsigned int i, table;
	int ret = 0;
	char *at;

	memset(t, 0, sizeof(*t));
	if (config->modules == 0 || config->rows == 0 || config->cols == 0 || config->packets == 0)
		return -EINVAL;
	if (config->chunks && !is_i16)
		return -EINVAL;
	for (i = 0; i < config->nb_meta; i++)
		text += strlen(config->meta[i].key) + strlen(config->meta[i].value) + 2;
	s = calloc(1, sizeof(*s) + ARROW_TABLES * nb * sizeof(s->meta[0]) + text);
	if (s == NULL)
		return -ENOMEM;
	at = (char *)&s->meta[ARROW_TABLES * nb];

	memcpy(s->frames, frames_fields, sizeof(s->frames));
	memcpy(s->images, images_fields, sizeof(s->images));
	s->frames[FRAMES_MISSING].list_size = config->modules;
	s->images[IMAGES_VALUE].item = is_i16 ? ARROW_INT16 : ARROW_FLOAT32;
	snprintf(s->modules, sizeof(s->modules), "%u", config->modules);
	snprintf(s->rows, sizeof(s->rows), "%u", config->rows);
	snprintf(s->cols, sizeof(s->cols), "%u", config->cols);
	snprintf(s->packets, sizeof(s->packets), "%u", config->packets);

	for (table = 0; table < ARROW_TABLES; table++) {
		struct arrow_meta *meta = s->meta + table * nb;
		const struct arrow_meta own[OWN_META] = {
			{ARROW_META_FORMAT,
				config->chunks ? ARROW_FORMAT_CHUNKS : ARROW_FORMAT_VERSION},
			{ARROW_META_VERSION, BRAGGLINE_VERSION},
			{ARROW_META_TABLE, arrow_table_name(table)},
			{ARROW_META_MODULES, s->modules},
			{ARROW_META_ROWS, s->rows},
			{ARROW_META_COLS, s->cols},
			{ARROW_META_PACKETS, s->packets},
			{ARROW_META_VALUE, arrow_type_name(is_i16 ? ARROW_INT16 : ARROW_FLOAT32)},
			{ARROW_META_FILTER, "32008"},
			/* of enum gk_kind */
			{ARROW_META_CHUNKS, config->chunks ? "1:int16,2:uint16" : "2:uint16"},
		};

		memcpy(meta, own, sizeof(own));
		t->schema[table].meta = meta;
		t->schema[table].nb_meta = nb;
	}
	for (i = 0; i < config->nb_meta; i++) {
		s->meta[OWN_META + i].key = keep_text(&at, config->meta[i].key);
		s->meta[OWN_META + i].value = keep_text(&at, config->meta[i].value);
		s->meta[nb + OWN_META + i] = s->meta[OWN_META + i];
	}
	t->chunks = config->chunks;
	t->schema[ARROW_FRAMES].fields = s->frames;
	t->schema[ARROW_FRAMES].nb_fields = choose_frames(t, s->frames, config);
	t->schema[ARROW_IMAGES].fields = s->images;
	t->schema[ARROW_IMAGES].nb_fields = config->peaks ? IMAGES_COLUMNS : IMAGES_PEAK_FS;
	t->storage = s;
	for (table = 0; table < ARROW_TABLES && ret == 0; table++) {
		s->meta[(table + 1) * nb - 1] =
			(struct arrow_meta){ARROW_META_HEADER, s->header_crc[table]};
		ret = put_header_crc(&t->schema[table], s->header_crc[table]);
	}
	if (ret < 0)
		arrow_tables_free(t);
	return ret;
}

void
arrow_tables_free(struct arrow_tables *t)
{
	free(t->storage);
	memset(t, 0, sizeof(*t));
}
