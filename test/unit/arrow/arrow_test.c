/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the bytes of the Arrow format: checksum, header, metadata of record batches. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arrow/crc32c.h"
#include "arrow/reader.h"
#include "arrow_sample.h"

static void
crc_check_value(void **state)
{
	uint8_t data[5000];
	struct arrow_crc_zeros zeros;
	uint32_t whole, a, b, power;
	unsigned int i, cut;

	assert_int_equal(arrow_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(arrow_crc32c(0, "", 0), 0);
	for (i = 0; i < sizeof(data); i++)
		data[i] = i * 131 + i / 7;
	whole = arrow_crc32c(0, data, sizeof(data));
	for (cut = 0; cut <= sizeof(data); cut += 97) {
		a = arrow_crc32c(0, data, cut);
		b = arrow_crc32c(0, data + cut, sizeof(data) - cut);
		assert_int_equal(arrow_crc32c_combine(a, b, sizeof(data) - cut), whole);
		assert_int_equal(arrow_crc32c(a, data + cut, sizeof(data) - cut), whole);
	}
	/* lengths beyond 32 bits: 2^33 zeros in one step give the same as in 2^20 steps */
	a = arrow_crc32c(0, "x", 1);
	b = arrow_crc32c_zeros(0, 8192);
	power = b;
	for (i = 13; i < 33; i++)
		power = arrow_crc32c_combine(power, power, 1ull << i);
	whole = arrow_crc32c_combine(a, power, 1ull << 33);
	for (i = 0; i < 1u << 20; i++)
		a = arrow_crc32c_combine(a, b, 8192);
	assert_int_equal(a, whole);
	memset(data, 0, sizeof(data));
	assert_int_equal(arrow_crc32c_zeros(7, sizeof(data)), arrow_crc32c(7, data, sizeof(data)));
	for (cut = 0; cut <= sizeof(data); cut += 97) {
		arrow_crc_zeros_init(&zeros, cut);
		assert_int_equal(arrow_crc_zeros(&zeros, 0), arrow_crc32c_zeros(0, cut));
		assert_int_equal(arrow_crc_zeros(&zeros, ~0u), arrow_crc32c_zeros(~0u, cut));
		assert_int_equal(arrow_crc_zeros(&zeros, whole), arrow_crc32c_zeros(whole, cut));
	}
}

static void
header_is_whole_blocks(void **state)
{
	struct arrow_tables t;
	struct sample s;
	char *text = calloc(1, 10000);
	const struct arrow_meta meta = {ARROW_META_SAMPLE, text};
	struct arrow_tables_config c = {.modules = 32,
		.rows = 16384,
		.cols = 1024,
		.packets = 4096,
		.meta = &meta,
		.nb_meta = 1};
	struct arrow_template template;
	const struct arrow_identity id = {1, 2, 3, "frames"};
	uint32_t prefix[2];
	uint8_t *bytes;
	size_t size;

	memset(text, 'g', 9999);
	assert_int_equal(arrow_tables_init(&t, &c), 0);
	assert_int_equal(arrow_header_build(&t.schema[ARROW_FRAMES], &bytes, &size), 0);
	assert_int_equal(size, 2 * 3 * ARROW_BLOCK);
	assert_memory_equal(bytes, bytes + size / 2, size / 2);
	assert_memory_equal(bytes, "ARROW1\0\0", 8);
	memcpy(prefix, bytes + 8, sizeof(prefix));
	assert_int_equal(prefix[0], UINT32_MAX);
	assert_int_equal(prefix[1] + 16, size);
	free(bytes);
	/* 32 modules: the metadata take one block */
	assert_int_equal(arrow_template_init(&template, &t.schema[ARROW_FRAMES], &id), 0);
	assert_int_equal(template.size, ARROW_BLOCK);
	arrow_template_free(&template);
	arrow_tables_free(&t);
	free(text);

	sample_init(&s, 1, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	assert_int_equal(arrow_header_build(&t.schema[ARROW_IMAGES], &bytes, &size), 0);
	assert_int_equal(size, 2 * ARROW_BLOCK);
	free(bytes);
	arrow_tables_free(&t);
	sample_free(&s);
}

/*
 * A patched template has the values that a reader finds, and differs from a fresh one nowhere else.
 */
static void
template_patch(void **state)
{
	const struct arrow_identity id = {0x1122334455667788ull, 0xa, ~0ull, "images"};
	struct arrow_node nodes[ARROW_NODES_MAX];
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX];
	struct arrow_batch b = {.nodes = nodes, .buffers = buffers};
	struct arrow_template t;
	struct arrow_reader r;
	struct arrow_tables tables;
	const char *problem;
	struct sample s;
	uint8_t *file, *m;
	size_t size, i, at;

	sample_init(&s, 3, GK_VALUE_I16, 2);
	assert_int_equal(sample_tables(&s, &tables), 0);
	assert_int_equal(arrow_template_init(&t, &tables.schema[ARROW_IMAGES], &id), 0);
	assert_int_equal(t.size, ARROW_BLOCK);
	assert_int_equal(arrow_header_build(&tables.schema[ARROW_IMAGES], &file, &size), 0);
	file = realloc(file, size + t.size + ARROW_BLOCK);
	m = file + size;
	memset(m + t.size, 0, ARROW_BLOCK);
	memcpy(m, t.bytes, t.size);

	for (i = 0; i < t.nb_nodes; i++)
		nodes[i] = (struct arrow_node){-1, -1};
	for (i = 0; i < t.nb_buffers; i++)
		buffers[i] = (struct arrow_buffer){-1, -1};
	b.rows = 0x0102030405060708;
	b.body_length = ARROW_BLOCK;
	b.sequence = 0xfedcba9876543210ull;
	b.crc32c = 0x9abcdef0;
	arrow_template_patch(&t, m, &b);
	assert_int_equal(
		arrow_reader_open_memory(&r, file, size + t.size + ARROW_BLOCK, &problem), 0);
	assert_int_equal(r.nb_batches, 1);
	assert_int_equal(r.batches[0].rows, b.rows);
	assert_int_equal(r.batches[0].body_length, b.body_length);
	assert_string_equal(r.batches[0].receiver_id, "1122334455667788");
	assert_string_equal(r.batches[0].run, "000000000000000a");
	assert_string_equal(r.batches[0].incarnation, "ffffffffffffffff");
	assert_string_equal(r.batches[0].table, "images");
	assert_string_equal(r.batches[0].sequence, "fedcba9876543210");
	assert_string_equal(r.batches[0].crc32c, "9abcdef0");
	/* the body does not match the CRC given above, the metadata match theirs */
	assert_int_equal(arrow_reader_crc(&r, 0), -EBADMSG);
	assert_int_equal(strtoul(r.batches[0].metadata_crc32c, NULL, 16),
		arrow_metadata_crc(m, t.size, t.metadata_crc32c));
	assert_memory_equal(r.batches[0].nodes, nodes, t.nb_nodes * sizeof(nodes[0]));
	assert_memory_equal(r.batches[0].buffers, buffers, t.nb_buffers * sizeof(buffers[0]));
	arrow_reader_close(&r);

	/* every changed byte belongs to one of the patched fields */
	for (i = 0; i < t.size; i++) {
		if (m[i] == t.bytes[i])
			continue;
		at = i;
		assert_true((at >= t.rows && at < t.rows + 8) ||
			(at >= t.nodes && at < t.nodes + t.nb_nodes * sizeof(nodes[0])) ||
			(at >= t.buffers && at < t.buffers + t.nb_buffers * sizeof(buffers[0])) ||
			(at >= t.body_length && at < t.body_length + 8) ||
			(at >= t.sequence && at < t.sequence + 16) ||
			(at >= t.crc32c && at < t.crc32c + 8) ||
			(at >= t.metadata_crc32c && at < t.metadata_crc32c + 8));
	}
	/* patched back, it equals the template */
	memset(nodes, 0, sizeof(nodes));
	memset(buffers, 0, sizeof(buffers));
	b = (struct arrow_batch){.nodes = nodes, .buffers = buffers};
	arrow_template_patch(&t, m, &b);
	memcpy(m + t.metadata_crc32c, "00000000", 8);
	assert_memory_equal(m, t.bytes, t.size);
	free(file);
	arrow_template_free(&t);
	arrow_tables_free(&tables);
	sample_free(&s);
}

/* A buffer that is not inside its body is refused, for each way to describe such a buffer. */
static void
buffers_are_inside(void **state)
{
	const struct arrow_identity id = {1, 2, 3, "frames"};
	static const struct {
		struct arrow_buffer buffer;
		int want;
	} cases[] = {
		{{0, 8}, 0}, {{ARROW_BLOCK - 8, 8}, 0}, {{ARROW_BLOCK, 8}, -EBADMSG},
		{{ARROW_BLOCK - 8, 16}, -EBADMSG}, {{ARROW_BLOCK + 8, 8}, -EBADMSG},
		{{-8, 8}, -EBADMSG}, {{8, -8}, -EBADMSG}, {{INT64_MAX - 7, 16}, -EBADMSG},
		{{4, 8}, -EBADMSG}, /* not aligned */
		{{0, 7}, -EBADMSG}, /* too short for a row */
	};
	struct arrow_node nodes[ARROW_NODES_MAX] = {{1, 0}};
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX] = {{0, 0}};
	struct arrow_batch b = {
		.rows = 1, .nodes = nodes, .buffers = buffers, .body_length = ARROW_BLOCK};
	struct arrow_column column;
	struct arrow_template t;
	struct arrow_reader r;
	struct arrow_tables tables;
	const char *problem;
	struct sample s;
	uint8_t *file;
	size_t size, i;

	sample_init(&s, 3, GK_VALUE_I16, 2);
	assert_int_equal(sample_tables(&s, &tables), 0);
	assert_int_equal(arrow_template_init(&t, &tables.schema[ARROW_FRAMES], &id), 0);
	assert_int_equal(arrow_header_build(&tables.schema[ARROW_FRAMES], &file, &size), 0);
	file = realloc(file, size + t.size + ARROW_BLOCK);
	memcpy(file + size, t.bytes, t.size);
	memset(file + size + t.size, 0, ARROW_BLOCK);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		buffers[1] = cases[i].buffer;
		arrow_template_patch(&t, file + size, &b);
		assert_int_equal(
			arrow_reader_open_memory(&r, file, size + t.size + ARROW_BLOCK, &problem),
			0);
		assert_int_equal(r.nb_batches, 1);
		assert_int_equal(arrow_reader_column(&r, 0, FRAMES_FRAME, &column), cases[i].want);
		arrow_reader_close(&r);
	}
	free(file);
	arrow_template_free(&t);
	arrow_tables_free(&tables);
	sample_free(&s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_check_value),
		cmocka_unit_test(header_is_whole_blocks),
		cmocka_unit_test(template_patch),
		cmocka_unit_test(buffers_are_inside),
	};

	return cmocka_run_group_tests_name("arrow", tests, NULL, NULL);
}
