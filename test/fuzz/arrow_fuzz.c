/* SPDX-License-Identifier: BSD-3-Clause */
/* The Arrow reader: it either refuses the input, or every column that it returns can be read. */

#include "seed_corpus.h"

#include "arrow/reader.h"

static volatile uint64_t sink;

static void
read_bytes(const void *data, uint64_t size)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < size; i++)
		sum += ((const uint8_t *)data)[i];
	sink += sum;
}

static void
read_column(const struct arrow_column *c)
{
	const enum arrow_type type = c->field->type;
	const bool lists = type == ARROW_LIST || type == ARROW_FIXED_LIST;
	const uint64_t width =
		type == ARROW_BINARY ? 1 : arrow_type_width(lists ? c->field->item : type);
	uint64_t start, end;

	for (uint64_t row = 0; row < c->rows; row++) {
		sink += arrow_column_is_null(c, row);
		if (type != ARROW_LIST && type != ARROW_BINARY)
			continue;
		arrow_column_range(c, row, &start, &end);
		if (start > end || end > c->items)
			abort();
	}
	read_bytes(c->data, c->items * width);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arrow_reader r;
	struct arrow_column c;
	const char *problem;
	uint8_t *copy = malloc(size + (size == 0)); /* exact size, for ASAN */

	if (copy == NULL)
		abort();
	memcpy(copy, data, size);
	if (arrow_reader_open_memory(&r, copy, size, &problem) == 0) {
		for (size_t b = 0; b < r.nb_batches; b++) {
			arrow_reader_crc(&r, b);
			for (unsigned int f = 0; f < r.schema.nb_fields; f++)
				if (arrow_reader_column(&r, b, f, &c) == 0)
					read_column(&c);
		}
		for (size_t d = 0; d < r.nb_damage; d++)
			for (unsigned int f = 0; r.damage[d].announced && f < r.schema.nb_fields;
				f++)
				if (arrow_read_column(&r, &r.damage[d].batch, f, &c) == 0)
					read_column(&c);
		arrow_reader_meta(&r, "run");
		arrow_reader_find(&r, "frame", ARROW_UINT64, ARROW_UINT64);
		arrow_reader_close(&r);
	}
	free(copy);
	return 0;
}

/** Adds files of the project's own writer (ARROW_WRITE is its path) to the corpus. */
static void
add_written(const char *writer)
{
	char command[1536], path[1024];

	snprintf(command, sizeof(command), "'%s' '%s' a float32 1 2 1 && '%s' '%s' b int16 2 1 2",
		writer, seed_dir, writer, seed_dir);
	if (system(command) != 0)
		fprintf(stderr, "no seeds from %s\n", writer);
	for (char name = 'a'; name <= 'b'; name++) {
		snprintf(path, sizeof(path), "%s/%c.txt", seed_dir, name);
		unlink(path);
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *writer = getenv("ARROW_WRITE");

	seed_begin(argc, argv);
	seed_add("magic", "ARROW1\0\0", 8);
	if (writer != NULL)
		add_written(writer);
	return 0;
}
