/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Message authentication codes (MACs) of the messages and descriptors that one end of a connection
 * sends after the handshake. A peer without the key cannot change or insert one of them unnoticed.
 * It cannot repeat a message either, because messages are numbered. A MAC is the first
 * XFER_TAG_BYTES of an HMAC-SHA-256.
 *
 * One thread at a time per seal. After xfer_seal_open() nothing is allocated.
 */
#ifndef XFER_SEAL_H
#define XFER_SEAL_H

#include <stdbool.h>
#include <stddef.h>

#include "xfer/proto.h"

/** What a MAC is for. A MAC of one kind is not valid for another. */
enum xfer_sealed {
	XFER_SEALED_MESSAGE = 1,
	XFER_SEALED_DESCRIPTOR,
};

/** All zero: not open. */
struct xfer_seal {
	struct evp_mac_ctx_st *ctx;
};

/** @param key  of the sender's direction, from xfer_auth_session() @return 0; -ENOMEM; -EIO */
int xfer_seal_open(struct xfer_seal *s, const uint8_t key[XFER_MAC_BYTES]);

void xfer_seal_close(struct xfer_seal *s);

/**
 * Compute the MAC of the bytes of `head` and `tail`.
 * @param tail  NULL: none
 * @return 0; -EIO: not open, or libcrypto
 */
int xfer_seal_make(struct xfer_seal *s, enum xfer_sealed kind, const void *head, size_t head_bytes,
	const void *tail, size_t tail_bytes, uint8_t tag[XFER_TAG_BYTES]);

/** Check a MAC, in constant time. @return true: it is right */
bool xfer_seal_check(struct xfer_seal *s, enum xfer_sealed kind, const void *head,
	size_t head_bytes, const void *tail, size_t tail_bytes, const uint8_t tag[XFER_TAG_BYTES]);

#endif /* XFER_SEAL_H */
