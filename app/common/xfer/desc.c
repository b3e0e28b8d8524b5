/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/crc32c.h"
#include "xfer/desc.h"

const char *
xfer_desc_fault_name(enum xfer_desc_fault fault)
{
	static const char *const names[XFER_DESC_FAULTS] = {
		[XFER_DESC_GOOD] = "good",
		[XFER_DESC_GARBAGE] = "garbage",
		[XFER_DESC_MAC] = "mac",
		[XFER_DESC_SLOT] = "slot",
		[XFER_DESC_IDENTITY] = "identity",
		[XFER_DESC_SEQUENCE] = "sequence",
		[XFER_DESC_LENGTH] = "length",
		[XFER_DESC_METADATA] = "metadata",
	};

	return names[fault];
}

/* CRC-32C of a descriptor, with zeros for its own four bytes and for the code. */
static uint32_t
descriptor_crc(const struct xfer_descriptor *descriptor)
{
	struct xfer_descriptor d = *descriptor;

	d.crc32c = 0;
	memset(d.mac, 0, sizeof(d.mac));
	return arrow_crc32c(0, &d, sizeof(d));
}

/* Number of metadata bytes up to the last nonzero one. */
static uint32_t
used_bytes(const uint8_t *metadata)
{
	uint32_t size = XFER_BLOCK;

	while (size > 0 && metadata[size - 1] == 0)
		size--;
	return size;
}

int
xfer_stream_init(struct xfer_stream *s, uint8_t table, const struct arrow_schema *schema,
	const struct arrow_identity *identity, uint64_t session_id, struct xfer_seal *seal,
	uint64_t body_max)
{
	int ret;

	memset(s, 0, sizeof(*s));
	s->identity = *identity;
	s->schema = schema;
	s->session_id = session_id;
	s->seal = seal;
	s->body_max = body_max;
	s->table = table;
	ret = arrow_template_init(&s->template, schema, identity);
	if (ret < 0)
		return ret;
	if (s->template.size != XFER_BLOCK) {
		xfer_stream_free(s);
		return -EINVAL;
	}
	s->made = aligned_alloc(XFER_BLOCK, XFER_BLOCK);
	if (s->made == NULL) {
		xfer_stream_free(s);
		return -ENOMEM;
	}
	memcpy(s->made, s->template.bytes, XFER_BLOCK);
	s->metadata_bytes = used_bytes(s->made);
	return 0;
}

void
xfer_stream_free(struct xfer_stream *s)
{
	arrow_template_free(&s->template);
	free(s->made);
	s->made = NULL;
}

int
xfer_desc_fill(struct xfer_stream *s, const struct xfer_batch *batch, const uint8_t *metadata,
	struct xfer_descriptor *descriptor)
{
	const uint32_t size = s->metadata_bytes > 0 ? s->metadata_bytes : used_bytes(metadata);

	if (size > XFER_DESC_METADATA_BYTES || batch->body_bytes > s->body_max)
		return -EMSGSIZE;
	if (s->metadata_bytes == 0)
		s->metadata_bytes = size;
	/* all members: the compiler would first clear omitted ones, with slower instructions */
	*descriptor = (struct xfer_descriptor){
		.magic = XFER_MAGIC,
		.version = XFER_VERSION,
		.table = s->table,
		.reserved = 0,
		.entry = batch->entry,
		.crc32c = 0,
		.session_id = s->session_id,
		.receiver_id = s->identity.receiver_id,
		.run = s->identity.run,
		.incarnation = s->identity.incarnation,
		.sequence = batch->sequence,
		.rows = batch->rows,
		.first = batch->first,
		.last = batch->last,
		.received = batch->received,
		.body_bytes = batch->body_bytes,
		.body_crc32c = batch->body_crc32c,
		.metadata_bytes = size,
		.copy_crc32c = batch->copy_crc32c,
		.flags = batch->flags,
		.mac = {0},
	};
	descriptor->crc32c = descriptor_crc(descriptor);
	return xfer_seal_make(s->seal, XFER_SEALED_DESCRIPTOR, descriptor,
		offsetof(struct xfer_descriptor, mac), metadata, size, descriptor->mac);
}

static enum xfer_desc_fault
check_descriptor(const struct xfer_stream *s, const struct xfer_descriptor *d, uint32_t index,
	const uint8_t *metadata, uint32_t size)
{
	if (d->magic != XFER_MAGIC || d->version != XFER_VERSION || d->table != s->table ||
		d->reserved != 0 || (d->flags & ~XFER_COPY_CHECKED) != 0 ||
		(d->flags == 0 && d->copy_crc32c != 0) || d->crc32c != descriptor_crc(d))
		return XFER_DESC_GARBAGE;
	if (!xfer_seal_check(s->seal, XFER_SEALED_DESCRIPTOR, d,
		    offsetof(struct xfer_descriptor, mac), metadata, size, d->mac))
		return XFER_DESC_MAC;
	if (d->entry != index || d->session_id != s->session_id)
		return XFER_DESC_SLOT;
	if (d->receiver_id != s->identity.receiver_id || d->run != s->identity.run ||
		d->incarnation != s->identity.incarnation)
		return XFER_DESC_IDENTITY;
	/* UINT64_MAX is not a sequence number, so that last + 1 can be represented */
	if (d->sequence == UINT64_MAX)
		return XFER_DESC_SEQUENCE;
	if (d->body_bytes == 0 || d->body_bytes > s->body_max || d->body_bytes % XFER_BLOCK != 0 ||
		d->metadata_bytes == 0 || d->metadata_bytes > XFER_DESC_METADATA_BYTES ||
		d->rows == 0 || d->rows > INT64_MAX || d->first > d->last)
		return XFER_DESC_LENGTH;
	return XFER_DESC_GOOD;
}

/* Check that the field nodes can belong to a batch, and that those of columns have all rows. */
static bool
check_nodes(const struct xfer_stream *s, const struct arrow_node *nodes, int64_t rows)
{
	const struct arrow_field *field;
	unsigned int f, node = 0;

	for (f = 0; f < s->schema->nb_fields; f++) {
		field = &s->schema->fields[f];
		if (nodes[node].length != rows || nodes[node].null_count < 0 ||
			nodes[node].null_count > (field->nullable ? rows : 0))
			return false;
		node++;
		if (field->type != ARROW_LIST && field->type != ARROW_FIXED_LIST)
			continue;
		if (nodes[node].length < 0 || nodes[node].null_count != 0)
			return false;
		node++;
	}
	return true;
}

static bool
check_buffers(const struct xfer_stream *s, const struct arrow_buffer *buffers, uint64_t body)
{
	uint64_t offset, length;
	unsigned int i;

	for (i = 0; i < s->template.nb_buffers; i++) {
		offset = buffers[i].offset;
		length = buffers[i].length;
		if (offset > body || length > body - offset || offset % 8 != 0)
			return false;
	}
	return true;
}

/* Take the numbers from the copy, and compare it with the metadata that the template generates. */
static enum xfer_desc_fault
check_metadata(
	struct xfer_stream *s, const struct xfer_descriptor *d, uint8_t *metadata, uint32_t size)
{
	const struct arrow_template *t = &s->template;
	const uint32_t whole = size > t->used ? size : t->used;
	struct arrow_node nodes[ARROW_NODES_MAX];
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX];
	const struct arrow_batch batch = {
		.rows = (int64_t)d->rows,
		.nodes = nodes,
		.buffers = buffers,
		.body_length = (int64_t)d->body_bytes,
		.sequence = d->sequence,
		.crc32c = d->body_crc32c,
	};

	/* the bytes that were not sent are zeros, as are those beyond the template */
	memset(metadata + size, 0, whole - size);
	memcpy(nodes, metadata + t->nodes, t->nb_nodes * sizeof(nodes[0]));
	memcpy(buffers, metadata + t->buffers, t->nb_buffers * sizeof(buffers[0]));
	if (!check_nodes(s, nodes, batch.rows) || !check_buffers(s, buffers, d->body_bytes))
		return XFER_DESC_METADATA;
	arrow_template_patch(t, s->made, &batch);
	return memcmp(s->made, metadata, whole) == 0 ? XFER_DESC_GOOD : XFER_DESC_METADATA;
}

enum xfer_desc_fault
xfer_desc_check(struct xfer_stream *s, const struct xfer_desc *entry, uint32_t index,
	struct xfer_batch *batch, uint8_t *metadata)
{
	enum xfer_desc_fault fault;
	struct xfer_descriptor d;
	uint32_t size;

	/* copy once: the compiler must not read the slot again after this fence */
	memcpy(&d, &entry->descriptor, sizeof(d));
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	size = d.metadata_bytes < XFER_DESC_METADATA_BYTES ? d.metadata_bytes
							   : XFER_DESC_METADATA_BYTES;
	memcpy(metadata, entry->metadata, size);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	fault = check_descriptor(s, &d, index, metadata, size);
	if (fault == XFER_DESC_GOOD)
		fault = check_metadata(s, &d, metadata, size);
	if (fault != XFER_DESC_GOOD) {
		memset(metadata, 0, XFER_BLOCK);
		return fault;
	}
	*batch = (struct xfer_batch){
		.sequence = d.sequence,
		.rows = d.rows,
		.first = d.first,
		.last = d.last,
		.received = d.received,
		.body_bytes = d.body_bytes,
		.body_crc32c = d.body_crc32c,
		.entry = d.entry,
		.flags = d.flags,
		.copy_crc32c = d.copy_crc32c,
	};
	return XFER_DESC_GOOD;
}
