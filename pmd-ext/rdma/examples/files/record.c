/* SPDX-License-Identifier: BSD-3-Clause */
#include "files/record.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

static_assert(sizeof(struct record) == 24, "no padding");

void
record_encode(const struct record *r, uint8_t out[sizeof(*r)])
{
	const struct record wire = {
		.magic = htole32(RECORD_MAGIC),
		.version = htole16(RECORD_VERSION),
		.type = htole16(r->type),
		.file = htole32(r->file),
		.crc = htole32(r->crc),
		.offset = htole64(r->offset),
	};

	memcpy(out, &wire, sizeof(wire));
}

bool
record_name_check(const char *name, size_t length)
{
	if (length == 0 || length > RECORD_NAME_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] == '/' || (unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return false;
	return true;
}

int
record_decode(const uint8_t *packet, size_t length, struct record *r)
{
	struct record wire;
	size_t rest;

	if (length < sizeof(wire))
		return -EINVAL;
	memcpy(&wire, packet, sizeof(wire));
	*r = (struct record){
		.magic = le32toh(wire.magic),
		.version = le16toh(wire.version),
		.type = le16toh(wire.type),
		.file = le32toh(wire.file),
		.crc = le32toh(wire.crc),
		.offset = le64toh(wire.offset),
	};
	if (r->magic != RECORD_MAGIC || r->version != RECORD_VERSION)
		return -EINVAL;
	rest = length - sizeof(wire);
	switch (r->type) {
	case RECORD_BEGIN:
		return record_name_check((const char *)packet + sizeof(wire), rest) ? 0 : -EINVAL;
	case RECORD_DATA:
		return rest > 0 ? 0 : -EINVAL;
	case RECORD_END:
	case RECORD_DONE:
		return rest == 0 ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}
