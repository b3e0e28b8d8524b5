/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/crc32c.h"
#include "io/body_memory.h"
#include "io/body_check.h"

#define CHUNK (1u << 20) /* bytes of GPU memory copied at a time */

/* Compute the CRC of a body that the CPU cannot read in place. */
static int
crc_of_copy(const struct store_check_job *j, uint32_t *crc)
{
	uint8_t *chunk = malloc(CHUNK);
	uint64_t at, n;
	int ret = chunk != NULL ? 0 : -ENOMEM;

	for (at = 0; at < j->bytes && ret == 0; at += n) {
		n = j->bytes - at < CHUNK ? j->bytes - at : CHUNK;
		ret = body_memory_copy(j->check->gpu, chunk, j->body + at, n);
		if (ret == 0)
			*crc = arrow_crc32c(*crc, chunk, n);
	}
	free(chunk);
	return ret;
}

static void
check_body(struct slice_job *job)
{
	struct store_check_job *j = (struct store_check_job *)job;

	j->crc = 0;
	j->error = 0;
	if (j->check->host)
		j->crc = arrow_crc32c(0, j->body, j->bytes);
	else
		j->error = crc_of_copy(j, &j->crc);
	__atomic_store_n(&j->done, true, __ATOMIC_RELEASE);
}

int
store_check_open(struct store_check *c, enum store_check_mode mode,
	const struct store_bodies *bodies, char message[PATH_MAX])
{
	const struct slice_pool_config pool = {.threads = STORE_CHECK_THREADS};
	const char *name = body_memory_name(bodies->gpu);
	int ret;

	memset(c, 0, sizeof(*c));
	c->gpu = bodies->gpu;
	c->host = bodies->system;
	c->mode = mode != STORE_CHECK_AUTO ? mode : c->host ? STORE_CHECK_ALL : STORE_CHECK_SAMPLED;
	if (c->mode == STORE_CHECK_OFF) {
		snprintf(c->what, sizeof(c->what), "CRCs of arriving bodies are not checked");
		return 0;
	}
	if (c->mode == STORE_CHECK_ALL)
		snprintf(c->what, sizeof(c->what),
			"CRCs of all arriving bodies in memory of %.32s are checked", name);
	else
		snprintf(c->what, sizeof(c->what),
			"CRC of one in %d arriving bodies in memory of %.32s is checked",
			STORE_CHECK_SAMPLE, name);
	ret = slice_pool_open(&c->pool, &pool);
	if (ret < 0)
		snprintf(message, PATH_MAX, "cannot start %u threads that check bodies: %s",
			pool.threads, strerror(-ret));
	return ret;
}

void
store_check_close(struct store_check *c)
{
	slice_pool_close(c->pool);
	c->pool = NULL;
}

void
store_check_begin(struct store_check *c, struct store_check_job *j)
{
	static_assert(offsetof(struct store_check_job, job) == 0, "check_body() casts it");
	j->check = c;
	j->done = false;
	j->job.run = check_body;
	if (c->host && j->bytes <= STORE_CHECK_INLINE)
		check_body(&j->job);
	else
		slice_pool_submit(c->pool, &j->job);
}
