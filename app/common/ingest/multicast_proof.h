/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Proofs of both ends of a multicast stream (rdma_stream.h), with the keys that stores use: the
 * sender has a keyring (xfer/keyring.h), a member has the name and the key of one identity of it.
 * Each identity of the keyring may join, with its `key` or its `key_next`. The sender then uses the
 * same key for its own proof.
 *
 * The proof is read by rdma_stream_sender_create() and rdma_stream_receiver_create(). It must
 * outlive what they create, and may serve any number of streams. Any thread may call the functions.
 */
#ifndef INGEST_MULTICAST_PROOF_H
#define INGEST_MULTICAST_PROOF_H

#include <limits.h>
#include <stdint.h>

#include "rdma_stream.h"

struct ingest_proof;

/**
 * Proof of a member.
 * @param identity  name of an identity of the sender's keyring
 * @param key_path  file with its key, read by xfer_key_read()
 * @param message   out, on error: what is wrong, what was expected
 * @return 0; -EINVAL, -EACCES, -ENOMEM; -EIO (libcrypto); -errno of reading the file
 */
int ingest_proof_member(struct ingest_proof **proof, const char *identity, const char *key_path,
	char message[PATH_MAX]);

/**
 * Proof of a sender.
 * @param keyring_path  read by xfer_keyring_read()
 * @param message       out, on error: what is wrong, what was expected
 * @return 0 or the error of xfer_keyring_read()
 */
int ingest_proof_sender(
	struct ingest_proof **proof, const char *keyring_path, char message[PATH_MAX]);

/** For rdma_stream_sender_attr.proof or rdma_stream_receiver_attr.proof. */
const struct rdma_stream_proof *ingest_proof_stream(const struct ingest_proof *proof);

/** For rdma_stream_receiver_attr.identity. */
uint64_t ingest_proof_identity(const struct ingest_proof *proof);

/** Overwrite the keys and free them. NULL is allowed. */
void ingest_proof_destroy(struct ingest_proof *proof);

#endif /* INGEST_MULTICAST_PROOF_H */
