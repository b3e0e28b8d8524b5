/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "ingest/multicast.h"

static_assert(sizeof(struct ingest_fragment) == 32, "data begin at half a cache line");

void
ingest_fragment_encode(const struct ingest_fragment *f, uint8_t out[sizeof(*f)])
{
	const struct ingest_fragment wire = {
		.magic = htole32(INGEST_FRAGMENT_MAGIC),
		.version = htole16(INGEST_FRAGMENT_VERSION),
		.stream = htole16(f->stream),
		.frame = htole64(f->frame),
		.tile = htole32(f->tile),
		.offset = htole32(f->offset),
		.message = htole32(f->message),
		.tiles = htole32(f->tiles),
	};

	memcpy(out, &wire, sizeof(wire));
}

int
ingest_fragment_decode(
	const uint8_t *packet, size_t length, uint32_t fragment_max, struct ingest_fragment *f)
{
	struct ingest_fragment wire;
	size_t data;

	if (length < sizeof(wire))
		return -EINVAL;
	memcpy(&wire, packet, sizeof(wire));
	*f = (struct ingest_fragment){
		.magic = le32toh(wire.magic),
		.version = le16toh(wire.version),
		.stream = le16toh(wire.stream),
		.frame = le64toh(wire.frame),
		.tile = le32toh(wire.tile),
		.offset = le32toh(wire.offset),
		.message = le32toh(wire.message),
		.tiles = le32toh(wire.tiles),
	};
	if (f->magic != INGEST_FRAGMENT_MAGIC || f->version != INGEST_FRAGMENT_VERSION)
		return -EINVAL;
	data = length - sizeof(wire);
	if (f->tile == INGEST_EVENT)
		return data == 0 && f->offset == 0 && f->message == 0 ? 0 : -EINVAL;
	if (data == 0 || data > fragment_max || f->offset % fragment_max != 0 ||
		f->offset > f->message || data > f->message - f->offset)
		return -EINVAL;
	if (data < fragment_max && f->offset + data != f->message)
		return -EINVAL;
	return 0;
}
