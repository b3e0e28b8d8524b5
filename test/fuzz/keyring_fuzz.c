/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keyrings of any content. In one that is accepted, each identity has a name, a key of its own, and
 * receivers that no other identity has.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seed_corpus.h"
#include "xfer/msg.h"
#include "xfer/keyring.h"

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static void
check(const struct xfer_keyring *k)
{
	const struct xfer_identity *id;
	unsigned int i, n;

	WANT(k->nb > 0 && k->nb <= XFER_KEYRING_IDENTITIES);
	for (i = 0; i < k->nb; i++) {
		id = &k->identity[i];
		WANT(xfer_name_check(id->name) && id->nb_receiver_ids > 0 && id->nb_runs > 0);
		WANT(id->fingerprint[0] != 0 && xfer_keyring_find(k, id->id) == id);
		WANT(xfer_keyring_check(k, id->name, id->fingerprint[0]) == id);
		for (n = 0; n < XFER_IDENTITY_KEYS; n++)
			WANT(id->key[n].size >= XFER_KEY_MIN && id->key[n].size <= XFER_KEY_MAX);
		for (n = 0; n < k->nb; n++)
			WANT(n == i ||
				!xfer_identity_has_receiver_id(
					&k->identity[n], id->receiver_id[0].first));
		(void)xfer_identity_may(id, XFER_RIGHT_WRITE, id->receiver_id[0].first, "run_1");
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char text[] =
		"[receiver a-1]\nkey = hex:"
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
		"receiver_ids = 1,2,5-8\nruns = lyso_*\nrights = write, reconcile, import, read\n";

	seed_begin(argc, argv);
	seed_add("keyring", (const uint8_t *)text, sizeof(text) - 1);
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct xfer_keyring ring;
	char message[PATH_MAX];
	FILE *f;

	if (size == 0)
		return 0;
	f = fmemopen((void *)(uintptr_t)data, size, "r");
	WANT(f != NULL);
	/* key files with relative paths do not exist */
	if (xfer_keyring_parse(&ring, f, "/nowhere/keys.ini", message) == 0) {
		check(&ring);
		xfer_keyring_free(&ring);
	} else {
		WANT(message[0] != '\0' && ring.identity == NULL);
	}
	fclose(f);
	return 0;
}
