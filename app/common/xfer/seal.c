/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "xfer/seal.h"

int
xfer_seal_open(struct xfer_seal *s, const uint8_t key[XFER_MAC_BYTES])
{
	char sha256[] = "SHA256";
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, sha256, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);

	s->ctx = mac != NULL ? EVP_MAC_CTX_new(mac) : NULL;
	EVP_MAC_free(mac);
	if (s->ctx == NULL)
		return -ENOMEM;
	if (EVP_MAC_init(s->ctx, key, XFER_MAC_BYTES, params) == 1)
		return 0;
	xfer_seal_close(s);
	return -EIO;
}

void
xfer_seal_close(struct xfer_seal *s)
{
	EVP_MAC_CTX_free(s->ctx);
	s->ctx = NULL;
}

int
xfer_seal_make(struct xfer_seal *s, enum xfer_sealed kind, const void *head, size_t head_bytes,
	const void *tail, size_t tail_bytes, uint8_t tag[XFER_TAG_BYTES])
{
	const uint8_t label = kind;
	uint8_t mac[XFER_MAC_BYTES];
	size_t size = 0;

	/* without a key: the one of xfer_seal_open() */
	if (s->ctx == NULL || EVP_MAC_init(s->ctx, NULL, 0, NULL) != 1 ||
		EVP_MAC_update(s->ctx, &label, sizeof(label)) != 1 ||
		EVP_MAC_update(s->ctx, head, head_bytes) != 1 ||
		(tail != NULL && EVP_MAC_update(s->ctx, tail, tail_bytes) != 1) ||
		EVP_MAC_final(s->ctx, mac, &size, sizeof(mac)) != 1 || size != sizeof(mac))
		return -EIO;
	memcpy(tag, mac, XFER_TAG_BYTES);
	return 0;
}

bool
xfer_seal_check(struct xfer_seal *s, enum xfer_sealed kind, const void *head, size_t head_bytes,
	const void *tail, size_t tail_bytes, const uint8_t tag[XFER_TAG_BYTES])
{
	uint8_t right[XFER_TAG_BYTES];

	return xfer_seal_make(s, kind, head, head_bytes, tail, tail_bytes, right) == 0 &&
		CRYPTO_memcmp(right, tag, sizeof(right)) == 0;
}
