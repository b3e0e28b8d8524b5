/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ingest/multicast_proof.h"
#include "xfer/keyring.h"
#include "xfer/msg.h"

static_assert(RDMA_STREAM_MAC_BYTES == XFER_MAC_BYTES, "HMAC-SHA-256");

/* Keeps a code of a stream from passing for one of a transfer that uses the same key. */
static const char label[] = "braggline multicast 1";

struct ingest_proof {
	struct rdma_stream_proof stream;
	uint64_t identity;	   /* of a member */
	struct xfer_key key;	   /* of a member */
	struct xfer_keyring *ring; /* of a sender */
};

static int
proof_mac(void *arg, uint64_t identity, unsigned int key, const void *message, uint32_t length,
	uint8_t mac[RDMA_STREAM_MAC_BYTES])
{
	const struct ingest_proof *p = arg;
	const struct xfer_part parts[] = {{label, sizeof(label)}, {message, length}};
	/* an identity that the keyring lacks has a random key, and fails like a wrong key */
	const struct xfer_key *of =
		p->ring != NULL ? xfer_keyring_find(p->ring, identity)->key : &p->key;

	if (p->ring == NULL && identity != p->identity)
		return -ENOENT;
	if (key >= p->stream.keys)
		return -ENOKEY;
	return xfer_key_mac(&of[key], parts, sizeof(parts) / sizeof(parts[0]), mac);
}

static struct ingest_proof *
proof_new(unsigned int keys, char message[PATH_MAX])
{
	struct ingest_proof *p = calloc(1, sizeof(*p));

	if (p == NULL)
		snprintf(message, PATH_MAX, "cannot allocate a proof");
	else
		p->stream = (struct rdma_stream_proof){.mac = proof_mac, .arg = p, .keys = keys};
	return p;
}

int
ingest_proof_member(struct ingest_proof **proof, const char *identity, const char *key_path,
	char message[PATH_MAX])
{
	char name[XFER_NAME_BYTES] = "";
	struct ingest_proof *p;
	int ret;

	/* a name that is too long has no terminator, and is refused */
	memcpy(name, identity, strnlen(identity, sizeof(name)));
	if (!xfer_name_check(name)) {
		snprintf(message, PATH_MAX,
			"identity %.200s: expected a name of at most %d letters, digits, '-', '_' "
			"and '.', as in [receiver NAME] of the sender's keyring",
			identity, XFER_NAME_BYTES - 1);
		return -EINVAL;
	}
	p = proof_new(1, message);
	if (p == NULL)
		return -ENOMEM;
	p->identity = xfer_identity_id(name);
	ret = xfer_key_read(&p->key, key_path, message);
	if (ret == 0 && p->identity == 0) {
		snprintf(message, PATH_MAX, "identity %s: libcrypto failed", name);
		ret = -EIO;
	}
	if (ret != 0)
		ingest_proof_destroy(p);
	else
		*proof = p;
	return ret;
}

int
ingest_proof_sender(struct ingest_proof **proof, const char *keyring_path, char message[PATH_MAX])
{
	struct ingest_proof *p = proof_new(XFER_IDENTITY_KEYS, message);
	int ret;

	if (p == NULL)
		return -ENOMEM;
	p->ring = malloc(sizeof(*p->ring));
	if (p->ring == NULL) {
		snprintf(message, PATH_MAX, "cannot allocate a keyring");
		ingest_proof_destroy(p);
		return -ENOMEM;
	}
	ret = xfer_keyring_read(p->ring, keyring_path, message);
	if (ret != 0)
		ingest_proof_destroy(p);
	else
		*proof = p;
	return ret;
}

const struct rdma_stream_proof *
ingest_proof_stream(const struct ingest_proof *proof)
{
	return &proof->stream;
}

uint64_t
ingest_proof_identity(const struct ingest_proof *proof)
{
	return proof->identity;
}

void
ingest_proof_destroy(struct ingest_proof *proof)
{
	if (proof == NULL)
		return;
	if (proof->ring != NULL)
		xfer_keyring_free(proof->ring);
	free(proof->ring);
	xfer_key_forget(&proof->key);
	free(proof);
}
