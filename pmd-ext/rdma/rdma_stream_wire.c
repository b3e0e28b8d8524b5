/* SPDX-License-Identifier: BSD-3-Clause */
#include "rdma_stream_wire.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

#include <rte_common.h>

#include "isal_crc.h"

/* ISA-L returns the state of CRC-32C: the caller inverts before and after. */
uint32_t
stream_crc(const struct stream_header *header, const void *payload)
{
	struct stream_header h = *header;
	uint32_t crc;

	h.crc = 0;
	crc = isal_crc32c(UINT32_MAX, &h, sizeof(h));
	return ~isal_crc32c(crc, payload, h.length);
}

int
stream_random(void *to, uint32_t length)
{
	return getrandom(to, length, 0) == (ssize_t)length ? 0 : -EIO;
}

int
stream_mac(const struct rdma_stream_proof *proof, unsigned int key,
	const struct stream_transcript *transcript, const struct stream_card *card,
	uint8_t mac[RDMA_STREAM_MAC_BYTES])
{
	struct {
		struct stream_transcript transcript;
		struct stream_card card;
	} message;

	memset(mac, 0, RDMA_STREAM_MAC_BYTES);
	if (!proof || !proof->mac)
		return 0;
	memset(&message, 0, sizeof(message));
	message.transcript = *transcript;
	message.transcript.type = card ? STREAM_ANSWER : STREAM_PROOF;
	if (card) {
		message.card = *card;
		memset(message.card.mac, 0, sizeof(message.card.mac));
	}
	return proof->mac(
		proof->arg, transcript->request.identity, key, &message, sizeof(message), mac);
}

bool
stream_mac_equal(const uint8_t *a, const uint8_t *b)
{
	uint8_t different = 0;

	for (unsigned int i = 0; i < RDMA_STREAM_MAC_BYTES; i++)
		different |= a[i] ^ b[i];
	return different == 0;
}
