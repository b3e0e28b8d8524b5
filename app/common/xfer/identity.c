/* SPDX-License-Identifier: BSD-3-Clause */

#include <fnmatch.h>
#include <string.h>

#include "xfer/identity.h"

uint64_t
xfer_identity_id(const char *name)
{
	uint8_t digest[XFER_DIGEST_BYTES];
	uint64_t id = 0;

	if (xfer_digest(name, strlen(name), digest) == 0)
		memcpy(&id, digest, sizeof(id));
	return id;
}

bool
xfer_identity_has_receiver_id(const struct xfer_identity *identity, uint64_t receiver_id)
{
	unsigned int i;

	for (i = 0; i < identity->nb_receiver_ids; i++) {
		if (receiver_id >= identity->receiver_id[i].first &&
			receiver_id <= identity->receiver_id[i].last)
			return true;
	}
	return false;
}

static bool
has_run(const struct xfer_identity *identity, const char *run)
{
	unsigned int i;

	for (i = 0; i < identity->nb_runs; i++) {
		if (fnmatch(identity->run[i], run, 0) == 0)
			return true;
	}
	return false;
}

bool
xfer_identity_may(const struct xfer_identity *identity, enum xfer_right right, uint64_t receiver_id,
	const char *run)
{
	if ((identity->rights & right) == 0 ||
		!xfer_identity_has_receiver_id(identity, receiver_id))
		return false;
	return has_run(identity, run);
}

bool
xfer_identity_may_read(const struct xfer_identity *identity, const char *run)
{
	return (identity->rights & XFER_RIGHT_READ) != 0 && has_run(identity, run);
}

void
xfer_identity_forget(struct xfer_identity *identity)
{
	unsigned int i;

	for (i = 0; i < XFER_IDENTITY_KEYS; i++)
		xfer_key_forget(&identity->key[i]);
}
