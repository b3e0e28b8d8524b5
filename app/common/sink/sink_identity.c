/* SPDX-License-Identifier: BSD-3-Clause */

#include <fnmatch.h>
#include <string.h>

#include "sink_identity.h"

uint64_t
sink_identity_id(const char *name)
{
	uint8_t digest[SINK_DIGEST_BYTES];
	uint64_t id = 0;

	if (sink_digest(name, strlen(name), digest) == 0)
		memcpy(&id, digest, sizeof(id));
	return id;
}

bool
sink_identity_has_producer(const struct sink_identity *identity, uint64_t producer)
{
	unsigned int i;

	for (i = 0; i < identity->nb_producers; i++) {
		if (producer >= identity->producer[i].first &&
			producer <= identity->producer[i].last)
			return true;
	}
	return false;
}

bool
sink_identity_may(const struct sink_identity *identity, enum sink_right right, uint64_t producer,
	const char *run)
{
	unsigned int i;

	if ((identity->rights & right) == 0 || !sink_identity_has_producer(identity, producer))
		return false;
	for (i = 0; i < identity->nb_runs; i++) {
		if (fnmatch(identity->run[i], run, 0) == 0)
			return true;
	}
	return false;
}

void
sink_identity_forget(struct sink_identity *identity)
{
	unsigned int i;

	for (i = 0; i < SINK_IDENTITY_KEYS; i++)
		sink_key_forget(&identity->key[i]);
}
