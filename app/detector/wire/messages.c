/* SPDX-License-Identifier: BSD-3-Clause */

#include "wire/messages.h"

#include <endian.h>
#include <err.h>
#include <errno.h>
#include <string.h>

static_assert(JUNGFRAU_SLS_BYTES <= INGEST_TRAILER_BYTES, "the header fits");

uint32_t
message_dropped(const struct wire_packet *packet, uint32_t packets)
{
	switch ((enum fault_kind)packet->damage) {
	case FAULT_DROP_FIRST:
		return 0;
	case FAULT_DROP_MIDDLE:
		return 1 + (uint32_t)(packet->random % (packets - 2));
	case FAULT_DROP_LAST:
		return packets - 1;
	default:
		return UINT32_MAX;
	}
}

/* A message of 8,256 bytes has a middle packet with any path MTU. */
static_assert((JUNGFRAU_PAYLOAD_BYTES + INGEST_TRAILER_BYTES + 4095) / 4096 > 2,
	"FIRST, MIDDLE and LAST");

void
message_make_ends(const struct jungfrau_wire *wire, const struct jungfrau_frame_header *header,
	const struct wire_packet *packet, struct message_ends *out)
{
	const uint64_t number = htole64(header->number);

	jungfrau_sls_make(
		wire, header, packet->module, packet->interface, packet->packet, out->trailer);
	memset(out->trailer + JUNGFRAU_SLS_BYTES, 0, INGEST_TRAILER_BYTES - JUNGFRAU_SLS_BYTES);
	memset(out->leader, 0, INGEST_LEADER_BYTES - sizeof(number));
	memcpy(out->leader + INGEST_LEADER_BYTES - sizeof(number), &number, sizeof(number));
}

static int
report_mismatch(const char *where, const char *key, uint32_t found, const char *relation,
	uint32_t expected, const char *what)
{
	warnx("%s: [card] %s = %u: expected %s%u, %s", where, key, found, relation, expected, what);
	return -EINVAL;
}

int
message_card_check(const struct ingest_card *card, const char *where,
	enum ingest_transport transport, const struct jungfrau_wire *wire)
{
	const uint32_t streams = wire->modules * wire->interfaces;
	uint32_t tiles = 0;

	for (uint32_t i = 0; i < wire->interfaces; i++) {
		const uint32_t end = jungfrau_stream_first(wire, i) + jungfrau_stream_packets(wire);

		tiles = end > tiles ? end : tiles;
	}
	if (card->transport != transport) {
		warnx("%s: [card] transport = %s: expected %s, as --transport", where,
			ingest_transport_names[card->transport], ingest_transport_names[transport]);
		return -EINVAL;
	}
	if (card->streams != streams)
		return report_mismatch(where, "streams", card->streams, "", streams,
			"that is --modules x --interfaces");
	if (card->tile_bytes != JUNGFRAU_PAYLOAD_BYTES)
		return report_mismatch(where, "tile_bytes", card->tile_bytes, "",
			JUNGFRAU_PAYLOAD_BYTES, "the pixels of a packet");
	if (card->tiles < tiles)
		return report_mismatch(where, "tiles", card->tiles, "at least ", tiles,
			"the packets of a stream and frame");
	return 0;
}

int
message_card_read(struct ingest_card *card, const char *path, enum ingest_transport transport,
	const struct jungfrau_wire *wire)
{
	char message[2048];
	int ret;

	ret = ingest_card_read(card, path, message, sizeof(message));
	if (ret != 0) {
		warnx("--card: %s", message);
		return ret;
	}
	return message_card_check(card, path, transport, wire);
}
