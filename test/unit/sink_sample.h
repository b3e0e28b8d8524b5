/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of random frames, as a receiver announces them: for the tests of the sink protocol. */
#ifndef SINK_SAMPLE_H
#define SINK_SAMPLE_H

#include "arrow_crc.h"
#include "arrow_sample.h"
#include "sink_entry.h"

#define SINK_SAMPLE_BATCHES 64
#define SINK_SAMPLE_EPOCH   77

struct sink_sample_batch {
	struct sink_batch batch;
	struct sink_entry entry __attribute__((aligned(64)));
	uint8_t metadata[SINK_BLOCK] __attribute__((aligned(SINK_BLOCK)));
	uint8_t *body;
};

struct sink_sample {
	struct sample sample;
	struct arrow_tables tables;
	struct sink_stream stream[ARROW_TABLES];
	struct sink_sample_batch *batch[ARROW_TABLES];
	unsigned int nb[ARROW_TABLES];
};

static inline struct arrow_identity
sink_sample_identity(enum arrow_table table)
{
	return (struct arrow_identity){
		.producer = 0x0123456789abcdefull,
		.run = 42,
		.incarnation = 0xfedcba9876543210ull,
		.table = arrow_table_name(table),
	};
}

/* An entry as it is when all of it has come. */
static inline int
sink_sample_entry(struct sink_stream *s, const struct sink_batch *batch, const uint8_t *metadata,
	struct sink_entry *entry)
{
	memcpy(entry->metadata, metadata, sizeof(entry->metadata));
	return sink_entry_describe(s, batch, metadata, &entry->descriptor);
}

static inline void
sink_sample_take(void *arg, const struct batch *b)
{
	struct sink_sample *s = arg;
	struct sink_sample_batch *to = &s->batch[b->table][s->nb[b->table]];
	size_t at = 0;
	unsigned int i;

	if (s->nb[b->table] == SINK_SAMPLE_BATCHES)
		return;
	to->batch = (struct sink_batch){b->sequence, b->rows, b->first, b->last, b->received,
		b->body_length, b->crc32c, s->nb[b->table]};
	memcpy(to->metadata, b->metadata, SINK_BLOCK);
	to->body = aligned_alloc(SINK_BLOCK, b->body_length);
	for (i = 0; i < b->nb_body; at += b->body[i++].iov_len)
		memcpy(to->body + at, b->body[i].iov_base, b->body[i].iov_len);
	if (b->metadata_size != SINK_BLOCK ||
		sink_sample_entry(&s->stream[b->table], &to->batch, to->metadata, &to->entry) < 0)
		abort();
	s->nb[b->table]++;
}

static inline void
sink_sample_init(struct sink_sample *s, uint64_t seed, unsigned int frames)
{
	struct batch_builder_config c;
	struct arrow_identity identity;
	struct batch_builder *b;
	unsigned int i;

	memset(s, 0, sizeof(*s));
	sample_init(&s->sample, seed, GK_VALUE_I16, 1);
	if (sample_tables(&s->sample, &s->tables) < 0)
		abort();
	for (i = 0; i < ARROW_TABLES; i++) {
		identity = sink_sample_identity(i);
		if (sink_stream_init(&s->stream[i], i, &s->tables.schema[i], &identity,
			    SINK_SAMPLE_EPOCH, 1 << 20) < 0)
			abort();
		s->batch[i] = aligned_alloc(SINK_BLOCK, SINK_SAMPLE_BATCHES * sizeof(*s->batch[i]));
	}
	c = sample_builder_config(&s->sample, &s->tables);
	c.frames_interval = 8;
	c.images_interval = 4;
	c.emit = sink_sample_take;
	c.arg = s;
	if (batch_builder_create(&b, &c) < 0)
		abort();
	while (frames-- > 0) {
		sample_next(&s->sample, 1, 4);
		if (batch_builder_add(b, &s->sample.record) < 0)
			abort();
	}
	batch_builder_flush(b);
	batch_builder_destroy(b);
}

static inline void
sink_sample_free(struct sink_sample *s)
{
	unsigned int i, k;

	for (i = 0; i < ARROW_TABLES; i++) {
		for (k = 0; k < s->nb[i]; k++)
			free(s->batch[i][k].body);
		free(s->batch[i]);
		sink_stream_free(&s->stream[i]);
	}
	arrow_tables_free(&s->tables);
	sample_free(&s->sample);
}

/* Give an entry whose descriptor was changed the CRC that it needs. */
static inline void
sink_sample_sign(struct sink_entry *entry)
{
	entry->descriptor.crc32c = 0;
	entry->descriptor.crc32c = arrow_crc32c(0, &entry->descriptor, sizeof(entry->descriptor));
}

#endif /* SINK_SAMPLE_H */
