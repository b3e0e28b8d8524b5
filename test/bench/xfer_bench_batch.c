/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "xfer_bench.h"

#define IN_FLIGHT (4 * MIB)

struct bench_batch batch;

static struct arrow_identity
identity(void)
{
	return (struct arrow_identity){
		.receiver_id = 1,
		.run = 1,
		.incarnation = batch.incarnation,
		.table = arrow_table_name(batch.table),
	};
}

static void
on_batch(void *arg, const struct batch *b)
{
	unsigned int i;

	if (b->table != batch.table || batch.body != 0)
		return;
	memcpy(batch.metadata, b->metadata, XFER_BLOCK);
	batch.entry = sizeof(struct xfer_descriptor) + batch.template.used;
	batch.body = b->body_length;
	batch.rows = b->rows;
	batch.nb_columns = b->nb_body;
	for (i = 0; i < b->nb_body; i++)
		batch.column[i] = b->body[i].iov_len;
}

void
batch_make(enum arrow_table table, uint32_t n)
{
	const struct gk_geometry geometry = {
		.tiles = 8, .tile_rows = table == ARROW_IMAGES ? n / 1024 / 8 : 1, .cols = 1024};
	struct frame_record record = {.receive_time = 1};
	struct batch_builder_config c = {
		.geometry = geometry,
		.value = GK_VALUE_F32,
		.tables = &batch.tables,
		.receiver_id = 1,
		.run = 1,
		.nb_outputs = 1,
		.emit = on_batch,
	};
	const struct arrow_tables_config tables = {
		.modules = 1,
		.rows = gk_rows(&geometry),
		.cols = geometry.cols,
		.packets = geometry.tiles,
		.value = GK_VALUE_F32,
	};
	struct batch_builder *builder;
	struct arrow_identity id;
	uint8_t *outputs;
	uint32_t i;

	batch.table = table;
	batch.body = 0;
	batch.incarnation++;
	id = identity();
	gk_layout_init(&c.layout, &geometry, c.value, 16);
	outputs = calloc(1, c.layout.stride);
	c.outputs = outputs;
	c.incarnation = batch.incarnation;
	if (outputs == NULL || arrow_tables_init(&batch.tables, &tables) < 0 ||
		arrow_template_init(&batch.template, &batch.tables.schema[table], &id) < 0 ||
		batch_builder_create(&builder, &c) < 0)
		rig_die("no memory for a batch");
	record.verdict = table == ARROW_IMAGES ? FRAME_HIT : FRAME_VETOED;
	record.kind = table == ARROW_IMAGES ? GK_KIND_IMAGE : GK_KIND_NONE;
	record.out = table == ARROW_IMAGES ? 0 : GK_NO_OUT;
	for (i = 0; i < (table == ARROW_IMAGES ? 1 : n); i++) {
		record.frame = i;
		if (batch_builder_add(builder, &record) < 0)
			rig_die("the builder does not take a frame");
	}
	batch_builder_flush(builder);
	batch_builder_destroy(builder);
	free(outputs);
	if (batch.body == 0)
		rig_die("the builder made no batch");
}

void
batch_free(void)
{
	arrow_template_free(&batch.template);
	arrow_tables_free(&batch.tables);
}

unsigned int
batch_depth(void)
{
	return RTE_MAX(IN_FLIGHT / batch.body, 4u);
}

unsigned int
batch_segment(void)
{
	return MEMORY / (batch.body + XFER_BLOCK) - 1;
}
