/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/ini_file.h"
#include "ingest/card.h"
#include "io/durable_file.h"
#include "whole_number.h"

#define PSN_MAX 0xFFFFFF /* 24 bits on the wire, as queue pair numbers */

/* Queue pair numbers 0 and 1 belong to the management of a port (IBTA 3.5.10). */
#define QPN_MIN 2

/* A message by reference has at most 80 KiB (RDMA_ROCE_MESSAGE_MAX), trailer included. */
#define TILE_BYTES_MAX 65536
#define TILE_ALIGN     64
#define TILES_MAX      65536

#define SLOT_BYTES_MAX \
	(TILES_MAX * (uint64_t)(INGEST_LEADER_BYTES + TILE_BYTES_MAX + INGEST_TRAILER_BYTES))

const char *const ingest_transport_names[5] = {
	[INGEST_UDP] = "udp",
	[INGEST_SEND] = "send",
	[INGEST_WRITE] = "write",
	[INGEST_MULTICAST] = "multicast",
};

/* ---- keys ----------------------------------------------------------------------------------- */

enum key_kind {
	KEY_VERSION,   /* not a member of the card */
	KEY_TRANSPORT, /* a name */
	KEY_ADDRESS,   /* IPv4 or IPv6 */
	KEY_U32,
	KEY_U64
};

/* Keys of the section [card], and then of a section [stream N]. */
enum key {
	CARD_VERSION,
	CARD_TRANSPORT,
	CARD_STREAMS,
	CARD_MTU,
	CARD_TILE_BYTES,
	CARD_TRAILER_BYTES,
	CARD_TILES,
	CARD_SLOTS,
	CARD_SLOT_BYTES,
	CARD_LEADER_BYTES,
	STREAM_IP,
	STREAM_QPN,
	STREAM_PSN,
	STREAM_RKEY,
	STREAM_BASE,
	NB_KEYS
};

#define NB_CARD_KEYS   STREAM_IP
#define NB_STREAM_KEYS (NB_KEYS - NB_CARD_KEYS)

struct key_row {
	const char *name;
	size_t offset; /* in struct ingest_card, or in struct ingest_stream */
	uint64_t min, max;
	enum key_kind kind;
	bool write_only; /* of transport `write`; ignored with `send` */
	bool hex;	 /* as written to a file */
	bool optional;	 /* 0 if it is absent, and not written if it is 0 */
};

#define CARD(member)   offsetof(struct ingest_card, member)
#define STREAM(member) offsetof(struct ingest_stream, member)

static const struct key_row key_rows[NB_KEYS] = {
	[CARD_VERSION] = {"version", 0, INGEST_VERSION, INGEST_VERSION, KEY_VERSION, false, false},
	[CARD_TRANSPORT] = {"transport", CARD(transport), 0, 0, KEY_TRANSPORT, false, false},
	[CARD_STREAMS] = {"streams", CARD(streams), 1, INGEST_STREAMS_MAX, KEY_U32, false, false},
	[CARD_MTU] = {"mtu", CARD(mtu), 256, 4096, KEY_U32, false, false},
	[CARD_TILE_BYTES] = {"tile_bytes", CARD(tile_bytes), TILE_ALIGN, TILE_BYTES_MAX, KEY_U32,
		false, false},
	[CARD_TRAILER_BYTES] = {"trailer_bytes", CARD(trailer_bytes), INGEST_TRAILER_BYTES,
		INGEST_TRAILER_BYTES, KEY_U32, false, false},
	[CARD_TILES] = {"tiles", CARD(tiles), 1, TILES_MAX, KEY_U32, false, false},
	[CARD_SLOTS] = {"slots", CARD(slots), 1, INGEST_SLOTS_MAX, KEY_U32, true, false},
	[CARD_SLOT_BYTES] = {"slot_bytes", CARD(slot_bytes), TILE_ALIGN + INGEST_TRAILER_BYTES,
		SLOT_BYTES_MAX, KEY_U64, true, false},
	[CARD_LEADER_BYTES] = {"leader_bytes", CARD(leader_bytes), 0, INGEST_LEADER_BYTES, KEY_U32,
		true, false, true},
	[STREAM_IP] = {"ip", STREAM(ip), 0, 0, KEY_ADDRESS, false, false},
	[STREAM_QPN] = {"qpn", STREAM(qpn), QPN_MIN, PSN_MAX, KEY_U32, false, true},
	[STREAM_PSN] = {"psn", STREAM(psn), 0, PSN_MAX, KEY_U32, false, true},
	[STREAM_RKEY] = {"rkey", STREAM(rkey), 0, UINT32_MAX, KEY_U32, true, true},
	[STREAM_BASE] = {"base", STREAM(base), 0, UINT64_MAX, KEY_U64, true, true},
};

/* An invalid value: where it is, and what is allowed. */
struct fault {
	enum key key;
	uint32_t stream;
	char allowed[96];
};

static void *
key_member(struct ingest_card *card, enum key key, uint32_t stream)
{
	uint8_t *object = key < NB_CARD_KEYS ? (uint8_t *)card : (uint8_t *)&card->stream[stream];

	return object + key_rows[key].offset;
}

static uint64_t
key_number(const struct ingest_card *card, enum key key, uint32_t stream)
{
	const struct key_row *row = &key_rows[key];
	const uint8_t *object =
		key < NB_CARD_KEYS ? (const uint8_t *)card : (const uint8_t *)&card->stream[stream];
	uint64_t number = 0;
	uint32_t word;

	switch (row->kind) {
	case KEY_VERSION:
		return INGEST_VERSION;
	case KEY_U32:
		memcpy(&word, object + row->offset, sizeof(word));
		return word;
	case KEY_U64:
		memcpy(&number, object + row->offset, sizeof(number));
		return number;
	case KEY_TRANSPORT:
		return card->transport;
	case KEY_ADDRESS:
		break;
	}
	return 0;
}

/* Text of a value, as in a file. */
static void
key_format(const struct ingest_card *card, enum key key, uint32_t stream, char *text, size_t size)
{
	const struct key_row *row = &key_rows[key];
	const uint64_t number = key_number(card, key, stream);

	if (row->kind == KEY_ADDRESS)
		snprintf(text, size, "%.*s", INGEST_ADDRESS_LEN, card->stream[stream].ip);
	else if (row->kind == KEY_TRANSPORT && number <= INGEST_WRITE)
		snprintf(text, size, "%s", ingest_transport_names[number]);
	else if (row->hex)
		snprintf(text, size, "0x%" PRIx64, number);
	else
		snprintf(text, size, "%" PRIu64, number);
}

/* Name of a section with its brackets. */
static void
section_format(enum key key, uint32_t stream, char *text, size_t size)
{
	if (key < NB_CARD_KEYS)
		snprintf(text, size, "[card]");
	else
		snprintf(text, size, "[stream %u]", stream);
}

/* ---- check ---------------------------------------------------------------------------------- */

static bool
fault_set(struct fault *f, enum key key, uint32_t stream, const char *allowed)
{
	f->key = key;
	f->stream = stream;
	snprintf(f->allowed, sizeof(f->allowed), "%s", allowed);
	return false;
}

static bool
fault_range(struct fault *f, enum key key, uint32_t stream, uint64_t min, uint64_t max)
{
	f->key = key;
	f->stream = stream;
	if (min == max)
		snprintf(f->allowed, sizeof(f->allowed), "%" PRIu64, min);
	else if (key_rows[key].hex)
		snprintf(f->allowed, sizeof(f->allowed), "0x%" PRIx64 " to 0x%" PRIx64, min, max);
	else
		snprintf(f->allowed, sizeof(f->allowed), "%" PRIu64 " to %" PRIu64, min, max);
	return false;
}

/* Whether the numbers of some keys are in their ranges. */
static bool
check_ranges(const struct ingest_card *card, enum key from, enum key to, uint32_t stream,
	struct fault *f)
{
	for (enum key key = from; key < to; key++) {
		const struct key_row *row = &key_rows[key];
		const uint64_t number = key_number(card, key, stream);

		if ((row->kind != KEY_U32 && row->kind != KEY_U64) ||
			(row->write_only && card->transport != INGEST_WRITE))
			continue;
		if (number < row->min || number > row->max)
			return fault_range(f, key, stream, row->min, row->max);
	}
	return true;
}

/* Values that all streams share. */
static bool
check_common(const struct ingest_card *card, struct fault *f)
{
	char allowed[96];
	uint64_t slot;

	if (card->transport != INGEST_SEND && card->transport != INGEST_WRITE)
		return fault_set(f, CARD_TRANSPORT, 0, "send or write");
	if (!check_ranges(card, 0, NB_CARD_KEYS, 0, f))
		return false;
	if ((card->mtu & (card->mtu - 1)) != 0)
		return fault_set(f, CARD_MTU, 0, "256, 512, 1024, 2048 or 4096");
	if (card->tile_bytes % TILE_ALIGN != 0)
		return fault_set(f, CARD_TILE_BYTES, 0, "a multiple of 64, 64 to 65536");
	if (card->transport != INGEST_WRITE)
		return true;
	if ((card->slots & (card->slots - 1)) != 0)
		return fault_set(f, CARD_SLOTS, 0, "a power of two, 1 to 65536");
	if (card->leader_bytes != 0 && card->leader_bytes != INGEST_LEADER_BYTES)
		return fault_set(f, CARD_LEADER_BYTES, 0, "0 or 64");
	slot = card->tiles * ingest_message_bytes(card);
	if (card->slot_bytes != slot) {
		snprintf(allowed, sizeof(allowed),
			"%" PRIu64 ", that is tiles x (%stile_bytes + trailer_bytes)", slot,
			card->leader_bytes != 0 ? "leader_bytes + " : "");
		return fault_set(f, CARD_SLOT_BYTES, 0, allowed);
	}
	return true;
}

static bool
check_ring(const struct ingest_card *card, uint32_t stream, struct fault *f)
{
	const uint64_t base = card->stream[stream].base;
	const uint64_t ring = (uint64_t)card->slots * card->slot_bytes;

	if (card->transport != INGEST_WRITE)
		return true;
	if (base % TILE_ALIGN != 0)
		return fault_set(f, STREAM_BASE, stream, "a multiple of 64");
	if (base > UINT64_MAX - ring)
		return fault_range(f, STREAM_BASE, stream, 0, UINT64_MAX - ring);
	return true;
}

static bool
check_stream(const struct ingest_card *card, uint32_t stream, struct fault *f)
{
	const char *ip = card->stream[stream].ip;
	struct in6_addr address;

	if (memchr(ip, '\0', INGEST_ADDRESS_LEN) == NULL ||
		(inet_pton(AF_INET, ip, &address) != 1 && inet_pton(AF_INET6, ip, &address) != 1))
		return fault_set(f, STREAM_IP, stream, "an IPv4 or IPv6 address, as in 10.0.0.1");
	return check_ranges(card, NB_CARD_KEYS, NB_KEYS, stream, f) && check_ring(card, stream, f);
}

static bool
check_card(const struct ingest_card *card, struct fault *f)
{
	bool good = check_common(card, f);

	for (uint32_t s = 0; good && s < card->streams; s++)
		good = check_stream(card, s, f);
	return good;
}

static void
fault_format(const struct fault *f, const struct ingest_card *card, char *text, size_t size)
{
	char section[32], value[64];

	section_format(f->key, f->stream, section, sizeof(section));
	key_format(card, f->key, f->stream, value, sizeof(value));
	snprintf(text, size, "%s %s = %s: expected %s", section, key_rows[f->key].name, value,
		f->allowed);
}

int
ingest_card_check(const struct ingest_card *card, char *message, size_t size)
{
	struct fault f;

	snprintf(message, size, "%s", "");
	if (check_card(card, &f))
		return 0;
	fault_format(&f, card, message, size);
	return -EINVAL;
}

/* ---- file ----------------------------------------------------------------------------------- */

/* State of reading a file. A line number of 0: the key is absent. */
struct reading {
	struct ingest_card *card;
	const char *path;
	FILE *wrong; /* one line of text for each invalid line */
	unsigned int card_line[NB_CARD_KEYS];
	unsigned int stream_line[INGEST_STREAMS_MAX][NB_STREAM_KEYS];
	unsigned int section_line[INGEST_STREAMS_MAX];
};

static unsigned int *
key_line(struct reading *r, enum key key, uint32_t stream)
{
	return key < NB_CARD_KEYS ? &r->card_line[key] : &r->stream_line[stream][key - STREAM_IP];
}

/* @return false: not a number, or above `max` */
static bool
parse_number(const char *text, uint64_t max, uint64_t *number)
{
	const char *end = whole_number_or_hex(text, number);

	return end != NULL && *end == '\0' && *number <= max;
}

/* The number of a section "stream N". */
static bool
parse_stream(const char *section, uint32_t *stream)
{
	static const char prefix[] = "stream ";
	uint64_t number;

	if (strncmp(section, prefix, strlen(prefix)) != 0 ||
		!parse_number(section + strlen(prefix), INGEST_STREAMS_MAX - 1, &number))
		return false;
	*stream = (uint32_t)number;
	return true;
}

static bool
take_number(struct reading *r, enum key key, uint32_t stream, const char *value, struct fault *f)
{
	const struct key_row *row = &key_rows[key];
	uint64_t number;
	uint32_t word;

	if (!parse_number(value, row->max, &number) || number < row->min)
		return fault_range(f, key, stream, row->min, row->max);
	word = (uint32_t)number;
	if (row->kind == KEY_U32)
		memcpy(key_member(r->card, key, stream), &word, sizeof(word));
	else if (row->kind == KEY_U64)
		memcpy(key_member(r->card, key, stream), &number, sizeof(number));
	return true;
}

static bool
take_transport(struct reading *r, const char *value, struct fault *f)
{
	for (int t = INGEST_SEND; t <= INGEST_WRITE; t++) {
		if (strcmp(value, ingest_transport_names[t]) == 0) {
			r->card->transport = (enum ingest_transport)t;
			return true;
		}
	}
	return fault_set(f, CARD_TRANSPORT, 0, "send or write");
}

static bool
take_value(struct reading *r, enum key key, uint32_t stream, const char *value, struct fault *f)
{
	char *ip;

	switch (key_rows[key].kind) {
	case KEY_TRANSPORT:
		return take_transport(r, value, f);
	case KEY_ADDRESS:
		if (strlen(value) >= INGEST_ADDRESS_LEN)
			return fault_set(f, key, stream, "an IPv4 or IPv6 address, as in 10.0.0.1");
		ip = key_member(r->card, key, stream);
		strcpy(ip, value);
		return true;
	case KEY_VERSION:
	case KEY_U32:
	case KEY_U64:
		break;
	}
	return take_number(r, key, stream, value, f);
}

static int
take_section(struct reading *r, unsigned int line, const char *section)
{
	uint32_t stream;

	if (strcmp(section, "card") == 0)
		return 0;
	if (!parse_stream(section, &stream))
		fprintf(r->wrong, "%s:%u: [%s]: expected [card], or [stream N] with N of 0 to %d\n",
			r->path, line, section, INGEST_STREAMS_MAX - 1);
	else if (r->section_line[stream] == 0)
		r->section_line[stream] = line;
	return 0;
}

/*
 * Callback of ini_file_read(); it continues after a mistake, so that the message has the mistakes
 * of all lines.
 */
static int
take_line(void *arg, unsigned int line, const char *section, const char *key, const char *value)
{
	struct reading *r = arg;
	const bool common = strcmp(section, "card") == 0;
	enum key at = common ? 0 : STREAM_IP;
	const enum key end = common ? NB_CARD_KEYS : NB_KEYS;
	unsigned int *seen;
	uint32_t stream = 0;
	struct fault f;

	if (key[0] == '\0')
		return take_section(r, line, section);
	if (!common && !parse_stream(section, &stream))
		return 0; /* the header of the section was reported */
	while (at < end && strcmp(key, key_rows[at].name) != 0)
		at++;
	if (at == end) {
		fprintf(r->wrong, "%s:%u: [%s] %s = %s: unknown key, expected ", r->path, line,
			section, key, value);
		for (at = common ? 0 : STREAM_IP; at < end; at++)
			fprintf(r->wrong, "%s%s", key_rows[at].name, at + 1 < end ? ", " : "\n");
		return 0;
	}
	seen = key_line(r, at, stream);
	if (*seen != 0)
		fprintf(r->wrong, "%s:%u: [%s] %s = %s: set twice, first in line %u; remove one\n",
			r->path, line, section, key, value, *seen);
	else if (!take_value(r, at, stream, value, &f))
		fprintf(r->wrong, "%s:%u: [%s] %s = %s: expected %s\n", r->path, line, section, key,
			value, f.allowed);
	if (*seen == 0)
		*seen = line;
	return 0;
}

/* Report the keys that a section lacks. */
static void
find_absent(struct reading *r, enum key from, enum key to, uint32_t stream)
{
	char section[32];

	section_format(from, stream, section, sizeof(section));
	for (enum key key = from; key < to; key++) {
		if (*key_line(r, key, stream) == 0 && !key_rows[key].optional &&
			(!key_rows[key].write_only || r->card->transport == INGEST_WRITE))
			fprintf(r->wrong, "%s: %s %s: missing; add the key\n", r->path, section,
				key_rows[key].name);
	}
}

/* Checks that need more than one line. */
static void
check_file(struct reading *r)
{
	struct fault f;
	char text[256];

	find_absent(r, 0, NB_CARD_KEYS, 0);
	for (uint32_t s = 0; s < r->card->streams; s++)
		find_absent(r, NB_CARD_KEYS, NB_KEYS, s);
	/* without a valid number of streams, all sections may be right */
	for (uint32_t s = r->card->streams; s > 0 && s < INGEST_STREAMS_MAX; s++)
		if (r->section_line[s] != 0)
			fprintf(r->wrong,
				"%s:%u: [stream %u]: expected streams 0 to %u, as "
				"[card] streams = %u\n",
				r->path, r->section_line[s], s, r->card->streams - 1,
				r->card->streams);
	if (ftell(r->wrong) > 0 || check_card(r->card, &f))
		return;
	fault_format(&f, r->card, text, sizeof(text));
	fprintf(r->wrong, "%s:%u: %s\n", r->path, *key_line(r, f.key, f.stream), text);
}

int
ingest_card_read(struct ingest_card *card, const char *path, char *message, size_t size)
{
	struct reading *r = calloc(1, sizeof(*r));
	char *wrong = NULL;
	size_t length = 0, used;
	int ret = -ENOMEM;

	memset(card, 0, sizeof(*card));
	if (r != NULL) {
		r->card = card;
		r->path = path;
		r->wrong = open_memstream(&wrong, &length);
	}
	if (r == NULL || r->wrong == NULL) {
		snprintf(message, size, "cannot read %s: %s", path, strerror(ENOMEM));
		free(r);
		return ret;
	}
	ret = ini_file_read(path, take_line, r, message, size);
	if (ret == 0)
		check_file(r);
	if (fclose(r->wrong) != 0 && ret == 0) {
		ret = -ENOMEM;
		snprintf(message, size, "cannot read %s: %s", path, strerror(ENOMEM));
	}
	if ((ret == 0 || ret == -EINVAL) && length > 0) {
		wrong[length - 1] = '\0'; /* the last line end */
		used = strlen(message);
		if (used < size)
			snprintf(message + used, size - used, "%s%s", used > 0 ? "\n" : "", wrong);
		ret = -EINVAL;
	}
	free(wrong);
	free(r);
	return ret;
}

int
ingest_card_write(const struct ingest_card *card, const char *path)
{
	char section[32], value[64];
	char *text = NULL;
	size_t length = 0;
	FILE *f;
	int ret;

	f = open_memstream(&text, &length);
	if (f == NULL)
		return -ENOMEM;
	fprintf(f, "; card of a receiver of braggline, for a detector that sends by RoCEv2\n");
	for (uint32_t s = 0; s <= card->streams && s <= INGEST_STREAMS_MAX; s++) {
		const enum key from = s == 0 ? 0 : NB_CARD_KEYS;
		const enum key to = s == 0 ? NB_CARD_KEYS : NB_KEYS;
		const uint32_t stream = s == 0 ? 0 : s - 1;

		section_format(from, stream, section, sizeof(section));
		fprintf(f, "%s%s\n", s == 0 ? "" : "\n", section);
		for (enum key key = from; key < to; key++) {
			if ((key_rows[key].write_only && card->transport != INGEST_WRITE) ||
				(key_rows[key].optional && key_number(card, key, stream) == 0))
				continue;
			key_format(card, key, stream, value, sizeof(value));
			fprintf(f, "%s = %s\n", key_rows[key].name, value);
		}
	}
	ret = fclose(f) == 0 ? durable_file_replace(path, text, length) : -ENOMEM;
	free(text);
	return ret;
}

/* ---- private data of the CM ----------------------------------------------------------------- */

#define MAGIC_CARD    0x424c4344 /* "BLCD" */
#define MAGIC_REQUEST 0x424c5251 /* "BLRQ" */

/* Private data of a REP. All fields are big-endian. */
struct private_card {
	uint32_t magic;
	uint16_t version;
	uint16_t transport;
	uint16_t streams;
	uint16_t mtu;
	uint32_t tile_bytes;
	uint32_t trailer_bytes;
	uint32_t tiles;
	uint32_t slots;
	uint32_t stream;
	uint64_t slot_bytes;
	uint64_t base;
	uint32_t rkey;
	uint32_t leader_bytes;
};
static_assert(sizeof(struct private_card) == INGEST_PRIVATE_BYTES, "layout of the private data");

/* Private data of a REQ. All fields are big-endian. */
struct private_request {
	uint32_t magic;
	uint16_t version;
	uint16_t transport;
	uint32_t stream;
	uint32_t credit_rkey;
	uint64_t credit_address;
};
static_assert(sizeof(struct private_request) == INGEST_REQUEST_BYTES, "layout of a request");

void
ingest_card_to_private(
	const struct ingest_card *card, uint32_t stream, uint8_t out[INGEST_PRIVATE_BYTES])
{
	const bool ring = card->transport == INGEST_WRITE;
	const struct private_card p = {
		.magic = htobe32(MAGIC_CARD),
		.version = htobe16(INGEST_VERSION),
		.transport = htobe16((uint16_t)card->transport),
		.streams = htobe16((uint16_t)card->streams),
		.mtu = htobe16((uint16_t)card->mtu),
		.tile_bytes = htobe32(card->tile_bytes),
		.trailer_bytes = htobe32(card->trailer_bytes),
		.tiles = htobe32(card->tiles),
		.slots = htobe32(ring ? card->slots : 0),
		.stream = htobe32(stream),
		.slot_bytes = htobe64(ring ? card->slot_bytes : 0),
		.base = htobe64(ring ? card->stream[stream].base : 0),
		.rkey = htobe32(ring ? card->stream[stream].rkey : 0),
		.leader_bytes = htobe32(ring ? card->leader_bytes : 0),
	};

	memcpy(out, &p, sizeof(p));
}

int
ingest_card_from_private(
	struct ingest_card *card, uint32_t stream, const uint8_t *data, size_t length)
{
	struct ingest_card c;
	struct private_card p;
	struct fault f;

	/* the CM pads private data */
	if (length < sizeof(p) || stream >= INGEST_STREAMS_MAX)
		return -EINVAL;
	memcpy(&p, data, sizeof(p));
	if (be32toh(p.magic) != MAGIC_CARD || be16toh(p.version) != INGEST_VERSION ||
		be32toh(p.stream) != stream || be16toh(p.transport) > INGEST_WRITE)
		return -EINVAL;
	c = *card;
	c.transport = (enum ingest_transport)be16toh(p.transport);
	c.streams = be16toh(p.streams);
	c.mtu = be16toh(p.mtu);
	c.tile_bytes = be32toh(p.tile_bytes);
	c.trailer_bytes = be32toh(p.trailer_bytes);
	c.leader_bytes = be32toh(p.leader_bytes);
	c.tiles = be32toh(p.tiles);
	c.slots = be32toh(p.slots);
	c.slot_bytes = be64toh(p.slot_bytes);
	c.stream[stream].base = be64toh(p.base);
	c.stream[stream].rkey = be32toh(p.rkey);
	if (!check_common(&c, &f) || stream >= c.streams || !check_ring(&c, stream, &f))
		return -EINVAL;
	*card = c;
	return 0;
}

void
ingest_request_encode(const struct ingest_request *request, uint8_t out[INGEST_REQUEST_BYTES])
{
	const struct private_request p = {
		.magic = htobe32(MAGIC_REQUEST),
		.version = htobe16(INGEST_VERSION),
		.transport = htobe16((uint16_t)request->transport),
		.stream = htobe32(request->stream),
		.credit_rkey = htobe32(request->credit_rkey),
		.credit_address = htobe64(request->credit_address),
	};

	memcpy(out, &p, sizeof(p));
}

int
ingest_request_decode(struct ingest_request *request, const uint8_t *data, size_t length)
{
	struct private_request p;
	uint16_t transport;
	uint64_t credit;

	if (length < sizeof(p))
		return -EINVAL;
	memcpy(&p, data, sizeof(p));
	transport = be16toh(p.transport);
	credit = be64toh(p.credit_address);
	if (be32toh(p.magic) != MAGIC_REQUEST || be16toh(p.version) != INGEST_VERSION ||
		be32toh(p.stream) >= INGEST_STREAMS_MAX ||
		(transport != INGEST_SEND && transport != INGEST_WRITE))
		return -EINVAL;
	if (credit % sizeof(credit) != 0 || (credit != 0 && transport != INGEST_WRITE) ||
		(credit == 0 && p.credit_rkey != 0))
		return -EINVAL;
	*request = (struct ingest_request){.stream = be32toh(p.stream),
		.transport = (enum ingest_transport)transport,
		.credit_address = credit,
		.credit_rkey = be32toh(p.credit_rkey)};
	return 0;
}
