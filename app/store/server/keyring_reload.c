/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eal/process_cpus.h"
#include "monotonic_cond.h"
#include "server/audit_log.h"
#include "server/keyring_reload.h"

struct store_keys {
	char path[PATH_MAX];
	struct xfer_keyring *ring;  /* owned by the lcore */
	struct xfer_keyring *taken; /* atomic: read by the thread, for the lcore to switch to */
	pthread_t thread;
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t stop;
	bool stopping;
	uint8_t offered[XFER_DIGEST_BYTES]; /* of the last one offered to the lcore */
	uint8_t seen[XFER_DIGEST_BYTES];    /* of the last one read */
	char mistake[PATH_MAX];		    /* the last error that was logged */
};

static void
free_ring(struct xfer_keyring *ring)
{
	if (ring != NULL)
		xfer_keyring_free(ring);
	free(ring);
}

/* Offer a keyring to the lcore. One that the lcore has not switched to yet is replaced. */
static void
offer(struct store_keys *k, struct xfer_keyring *ring)
{
	memcpy(k->offered, ring->digest, sizeof(k->offered));
	free_ring(__atomic_exchange_n(&k->taken, ring, __ATOMIC_ACQ_REL));
}

/* Read the keyring, with the lock held. @param at_once  accept it after a single read */
static int
read_again(struct store_keys *k, bool at_once, char message[PATH_MAX])
{
	struct xfer_keyring *ring = malloc(sizeof(*ring));
	bool same;
	int ret;

	if (ring == NULL) {
		snprintf(message, PATH_MAX, "cannot allocate a keyring");
		return -ENOMEM;
	}
	ret = xfer_keyring_read(ring, k->path, message);
	if (ret < 0) {
		free(ring);
		if (strcmp(k->mistake, message) != 0)
			AUDIT(ERR, "keys refused, keeping the previous keyring: %s", message);
		snprintf(k->mistake, sizeof(k->mistake), "%s", message);
		memset(k->seen, 0, sizeof(k->seen));
		return ret;
	}
	k->mistake[0] = '\0';
	same = memcmp(k->seen, ring->digest, sizeof(k->seen)) == 0;
	memcpy(k->seen, ring->digest, sizeof(k->seen));
	if (memcmp(k->offered, ring->digest, sizeof(k->offered)) == 0 || (!same && !at_once))
		free_ring(ring);
	else
		offer(k, ring);
	return 0;
}

static void *
watch(void *arg)
{
	struct store_keys *k = arg;
	char message[PATH_MAX];
	struct timespec until;

	process_cpus_take();
	pthread_mutex_lock(&k->lock);
	while (!k->stopping) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += STORE_KEYS_MS / 1000;
		while (!k->stopping &&
			pthread_cond_timedwait(&k->stop, &k->lock, &until) != ETIMEDOUT)
			;
		if (!k->stopping)
			(void)read_again(k, false, message);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

int
store_keys_open(struct store_keys **keys, const char *path, char message[PATH_MAX])
{
	struct store_keys *k = calloc(1, sizeof(*k));
	int ret = -ENOMEM;

	if (k == NULL || (k->ring = calloc(1, sizeof(*k->ring))) == NULL) {
		snprintf(message, PATH_MAX, "cannot allocate a keyring");
		goto fail;
	}
	ret = xfer_keyring_read(k->ring, path, message);
	if (ret < 0)
		goto fail;
	snprintf(k->path, sizeof(k->path), "%s", path);
	memcpy(k->offered, k->ring->digest, sizeof(k->offered));
	pthread_mutex_init(&k->lock, NULL);
	monotonic_cond_init(&k->stop);
	ret = -pthread_create(&k->thread, NULL, watch, k);
	if (ret == 0) {
		AUDIT(NOTICE, "keys loaded file=%s identities=%u", path, k->ring->nb);
		*keys = k;
		return 0;
	}
	snprintf(message, PATH_MAX, "cannot start the thread that watches keyring %.3000s: %s",
		path, strerror(-ret));
fail:
	if (k != NULL)
		free_ring(k->ring);
	free(k);
	return ret;
}

void
store_keys_close(struct store_keys *k)
{
	if (k == NULL)
		return;
	pthread_mutex_lock(&k->lock);
	k->stopping = true;
	pthread_cond_signal(&k->stop);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->thread, NULL);
	pthread_cond_destroy(&k->stop);
	pthread_mutex_destroy(&k->lock);
	free_ring(k->taken);
	free_ring(k->ring);
	free(k);
}

const struct xfer_keyring *
store_keys_get(const struct store_keys *k)
{
	return k->ring;
}

bool
store_keys_poll(struct store_keys *k)
{
	struct xfer_keyring *ring;

	if (__atomic_load_n(&k->taken, __ATOMIC_RELAXED) == NULL)
		return false;
	ring = __atomic_exchange_n(&k->taken, NULL, __ATOMIC_ACQ_REL);
	if (ring == NULL)
		return false;
	free_ring(k->ring);
	k->ring = ring;
	AUDIT(NOTICE, "keys loaded file=%s identities=%u", k->path, ring->nb);
	return true;
}

int
store_keys_reload(struct store_keys *k, char message[PATH_MAX])
{
	int ret;

	pthread_mutex_lock(&k->lock);
	ret = read_again(k, true, message);
	pthread_mutex_unlock(&k->lock);
	return ret;
}
