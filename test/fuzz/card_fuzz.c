/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cards and fragments of any content. The first byte selects a file, private data of a REP, private
 * data of a REQ, or a fragment. A card that is accepted has a ring whose addresses do not wrap, and
 * is the same after it has been written and read again. A fragment that is accepted is a part of
 * its message.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ingest/card.h"
#include "ingest/multicast.h"
#include "seed_corpus.h"

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static char path[64];

static void
check_ring(const struct ingest_card *c, uint32_t stream)
{
	const uint64_t base = c->stream[stream].base;
	const uint64_t last = ingest_address(c, stream, UINT64_MAX, c->tiles - 1);

	if (c->transport == INGEST_WRITE)
		WANT(last >= base && last + c->tile_bytes + c->trailer_bytes > last);
}

static void
check_file(const uint8_t *data, size_t size)
{
	struct ingest_card card, again;
	char message[4096];
	FILE *f = fopen(path, "wb");

	WANT(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
	if (ingest_card_read(&card, path, message, sizeof(message)) < 0) {
		WANT(message[0] != '\0');
		unlink(path);
		return;
	}
	WANT(message[0] == '\0' && ingest_card_check(&card, message, sizeof(message)) == 0);
	for (uint32_t s = 0; s < card.streams; s++) {
		check_ring(&card, s);
		if (card.transport == INGEST_WRITE)
			continue;
		/* accepted with `send`, but neither used nor written */
		card.slots = 0;
		card.slot_bytes = 0;
		card.stream[s].rkey = 0;
		card.stream[s].base = 0;
	}
	for (uint32_t s = card.streams; s < INGEST_STREAMS_MAX; s++)
		WANT(card.stream[s].ip[0] == '\0');
	WANT(ingest_card_write(&card, path) == 0);
	WANT(ingest_card_read(&again, path, message, sizeof(message)) == 0);
	WANT(memcmp(&again, &card, sizeof(card)) == 0);
	unlink(path);
}

static void
check_private(const uint8_t *data, size_t size)
{
	const uint32_t stream = size > 31 ? data[31] : 0;
	struct ingest_card card = {0};
	uint8_t again[INGEST_PRIVATE_BYTES];

	if (ingest_card_from_private(&card, stream, data, size) < 0)
		return;
	WANT(stream < card.streams && card.streams <= INGEST_STREAMS_MAX);
	check_ring(&card, stream);
	ingest_card_to_private(&card, stream, again);
	if (card.transport == INGEST_WRITE)
		WANT(memcmp(again, data, 52) == 0);
}

static void
check_request(const uint8_t *data, size_t size)
{
	uint8_t again[INGEST_REQUEST_BYTES];
	struct ingest_request request;

	if (ingest_request_decode(&request, data, size) < 0)
		return;
	WANT(request.stream < INGEST_STREAMS_MAX);
	WANT(request.credit_address % 8 == 0);
	ingest_request_encode(&request, again);
	WANT(memcmp(again, data, sizeof(again)) == 0);
}

static void
check_fragment(const uint8_t *data, size_t size)
{
	const uint32_t mtu = size > 0 ? 256u << data[0] % 5 : 256;
	const uint32_t max = ingest_fragment_max(mtu - 32);
	uint8_t again[sizeof(struct ingest_fragment)];
	struct ingest_fragment f;

	if (size == 0 || ingest_fragment_decode(data + 1, size - 1, max, &f) < 0)
		return;
	size -= 1 + sizeof(f);
	ingest_fragment_encode(&f, again);
	WANT(memcmp(again, data + 1, sizeof(again)) == 0);
	if (f.tile == INGEST_EVENT) {
		WANT(size == 0 && f.offset == 0 && f.message == 0);
		return;
	}
	WANT(size > 0 && size <= max && f.offset % max == 0);
	WANT((uint64_t)f.offset + size <= f.message);
	WANT(size == max || f.offset + size == f.message);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct ingest_card card = {.transport = INGEST_WRITE,
		.streams = 1,
		.mtu = 4096,
		.tile_bytes = 8192,
		.trailer_bytes = 64,
		.tiles = 128,
		.slots = 8,
		.slot_bytes = 128 * 8256,
		.stream[0] = {"10.0.0.1", 2, 3, 4, 0x40}};
	static const char text[] =
		"\0[card]\nversion = 1\ntransport = send\nstreams = 1\n"
		"mtu = 1024\ntile_bytes = 4096\ntrailer_bytes = 64\ntiles = 256\n"
		"[stream 0]\nip = fd00::1\nqpn = 2\npsn = 0\n";
	static const char ring[] =
		"\0[card]\nversion = 1\ntransport = write\nstreams = 1\nmtu = 4096\n"
		"tile_bytes = 8192\ntrailer_bytes = 64\ntiles = 128\nslots = 8\n"
		"slot_bytes = 1056768\n[stream 0]\nip = 10.0.0.1\nqpn = 0x123\npsn = 7\n"
		"rkey = 0xdeadbeef\nbase = 0x7f0000000000\n";
	uint8_t bytes[1 + INGEST_PRIVATE_BYTES] = {1}, fragment[2 + 32 + 192] = {3};
	struct ingest_fragment f = {.message = 576, .tiles = 128};

	seed_begin(argc, argv);
	seed_add("send", (const uint8_t *)text, sizeof(text) - 1);
	seed_add("write", (const uint8_t *)ring, sizeof(ring) - 1);
	ingest_card_to_private(&card, 0, bytes + 1);
	seed_add("private", bytes, sizeof(bytes));
	bytes[0] = 2;
	ingest_request_encode(&(struct ingest_request){.transport = INGEST_WRITE,
				      .credit_address = 0x7f0000001000,
				      .credit_rkey = 0x1234},
		bytes + 1);
	seed_add("request", bytes, 1 + INGEST_REQUEST_BYTES);
	ingest_fragment_encode(&f, fragment + 2);
	seed_add("fragment", fragment, sizeof(fragment));
	f = (struct ingest_fragment){.tile = INGEST_EVENT, .tiles = 128};
	ingest_fragment_encode(&f, fragment + 2);
	seed_add("event", fragment, 2 + sizeof(f));
	snprintf(path, sizeof(path), "/dev/shm/braggline-card-%d.ini", (int)getpid());
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0] % 4) {
	case 0:
		check_file(data + 1, size - 1);
		break;
	case 1:
		check_private(data + 1, size - 1);
		break;
	case 2:
		check_request(data + 1, size - 1);
		break;
	default:
		check_fragment(data + 1, size - 1);
		break;
	}
	return 0;
}
