/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Batches of random frames in the form in which a receiver announces them, for the tests of the
 * transfer protocol.
 */
#ifndef XFER_SAMPLE_H
#define XFER_SAMPLE_H

#include "arrow/crc32c.h"
#include "../arrow/arrow_sample.h"
#include "xfer/desc.h"

#define XFER_SAMPLE_BATCHES 64
#define XFER_SAMPLE_SESSION 77

struct xfer_sample_batch {
	struct xfer_batch batch;
	struct xfer_desc entry __attribute__((aligned(64)));
	uint8_t metadata[XFER_BLOCK] __attribute__((aligned(XFER_BLOCK)));
	uint8_t *body;
};

struct xfer_sample {
	struct sample sample;
	struct arrow_tables tables;
	struct xfer_stream stream[ARROW_TABLES];
	struct xfer_seal seal; /* of the streams */
	struct xfer_sample_batch *batch[ARROW_TABLES];
	unsigned int nb[ARROW_TABLES];
};

static inline struct arrow_identity
xfer_sample_identity(enum arrow_table table)
{
	return (struct arrow_identity){
		.receiver_id = 0x0123456789abcdefull,
		.run = 42,
		.incarnation = 0xfedcba9876543210ull,
		.table = arrow_table_name(table),
	};
}

/* Make an entry as the store has it when it has arrived completely. */
static inline int
xfer_sample_entry(struct xfer_stream *s, const struct xfer_batch *batch, const uint8_t *metadata,
	struct xfer_desc *entry)
{
	memcpy(entry->metadata, metadata, sizeof(entry->metadata));
	return xfer_desc_fill(s, batch, metadata, &entry->descriptor);
}

static inline void
xfer_sample_take(void *arg, const struct batch *b)
{
	struct xfer_sample *s = arg;
	struct xfer_sample_batch *to = &s->batch[b->table][s->nb[b->table]];
	size_t at = 0;
	unsigned int i;

	if (s->nb[b->table] == XFER_SAMPLE_BATCHES)
		return;
	to->batch = (struct xfer_batch){b->sequence, b->rows, b->first, b->last, b->received,
		b->body_length, b->crc32c, s->nb[b->table]};
	memcpy(to->metadata, b->metadata, XFER_BLOCK);
	to->body = aligned_alloc(XFER_BLOCK, b->body_length);
	for (i = 0; i < b->nb_body; at += b->body[i++].iov_len)
		memcpy(to->body + at, b->body[i].iov_base, b->body[i].iov_len);
	if (b->metadata_size != XFER_BLOCK ||
		xfer_sample_entry(&s->stream[b->table], &to->batch, to->metadata, &to->entry) < 0)
		abort();
	s->nb[b->table]++;
}

static inline void
xfer_sample_init(struct xfer_sample *s, uint64_t seed, unsigned int frames)
{
	static const uint8_t key[XFER_MAC_BYTES] = {1};
	struct batch_builder_config c;
	struct arrow_identity identity;
	struct batch_builder *b;
	unsigned int i;

	memset(s, 0, sizeof(*s));
	sample_init(&s->sample, seed, GK_VALUE_I16, 1);
	if (sample_tables(&s->sample, &s->tables) < 0 || xfer_seal_open(&s->seal, key) < 0)
		abort();
	for (i = 0; i < ARROW_TABLES; i++) {
		identity = xfer_sample_identity(i);
		if (xfer_stream_init(&s->stream[i], i, &s->tables.schema[i], &identity,
			    XFER_SAMPLE_SESSION, &s->seal, 1 << 20) < 0)
			abort();
		s->batch[i] = aligned_alloc(XFER_BLOCK, XFER_SAMPLE_BATCHES * sizeof(*s->batch[i]));
	}
	c = sample_builder_config(&s->sample, &s->tables);
	c.frames_interval = 8;
	c.images_interval = 4;
	c.emit = xfer_sample_take;
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
xfer_sample_free(struct xfer_sample *s)
{
	unsigned int i, k;

	for (i = 0; i < ARROW_TABLES; i++) {
		for (k = 0; k < s->nb[i]; k++)
			free(s->batch[i][k].body);
		free(s->batch[i]);
		xfer_stream_free(&s->stream[i]);
	}
	xfer_seal_close(&s->seal);
	arrow_tables_free(&s->tables);
	sample_free(&s->sample);
}

/* Recompute the CRC and the code of an entry that was changed. */
static inline void
xfer_sample_sign(struct xfer_seal *seal, struct xfer_desc *entry)
{
	struct xfer_descriptor *d = &entry->descriptor;
	const uint32_t size = d->metadata_bytes < sizeof(entry->metadata) ? d->metadata_bytes
									  : sizeof(entry->metadata);

	memset(d->mac, 0, sizeof(d->mac));
	d->crc32c = 0;
	d->crc32c = arrow_crc32c(0, d, sizeof(*d));
	if (xfer_seal_make(seal, XFER_SEALED_DESCRIPTOR, d, offsetof(struct xfer_descriptor, mac),
		    entry->metadata, size, d->mac) < 0)
		abort();
}

#endif /* XFER_SAMPLE_H */
