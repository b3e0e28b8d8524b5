/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gk.h"
#include "recv_null_gang.h"

/* One thread polls a gang. */
struct gk {
	struct gk_config config;
	bool stopped;
};

static bool used;

static int
null_create(const struct gk_config *config, struct gk **gk)
{
	*gk = calloc(1, sizeof(**gk));
	if (*gk == NULL)
		return -ENOMEM;
	(*gk)->config = *config;
	return 0;
}

static int
null_start(struct gk *gk)
{
	gk->stopped = false;
	return 0;
}

static void
reject(const struct gk *gk, uint32_t slot)
{
	const struct gk_config *c = &gk->config;
	const struct gk_frame *frame =
		(const struct gk_frame *)(c->frames + slot * gk_frame_stride(&c->geometry));

	c->results[slot] = (struct gk_result){.frame = frame->frame,
		.verdict = GK_VERDICT_REJECT,
		.kind = GK_KIND_NONE,
		.peaks_found = GK_NOT_SEARCHED};
}

static int
null_poll(struct gk *gk, uint32_t gang, uint32_t worker)
{
	struct gk_channel *channel = gk->config.channel;
	struct gk_done *line = &channel->done[gang];
	const struct gk_work *work = &channel->work[gang][line->done & (GK_RING_SIZE - 1)];

	(void)worker;
	if (gk->stopped ||
		line->done == __atomic_load_n(&channel->bell.head[gang], __ATOMIC_ACQUIRE))
		return 0;
	for (uint32_t i = 0; i < work->nb_frames; i++)
		reject(gk, work->slot[i]);
	__atomic_store_n(&line->raw, line->done + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&line->done, line->done + 1, __ATOMIC_RELEASE);
	return 1;
}

static int
null_stop(struct gk *gk)
{
	const struct gk_channel *channel = gk->config.channel;

	for (uint32_t i = 0; i < gk->config.gangs; i++)
		if (channel->done[i].done != channel->bell.head[i])
			return -EBUSY;
	gk->stopped = true;
	return 0;
}

static void
null_destroy(struct gk *gk)
{
	free(gk);
}

static const struct gk_ops null_ops = {
	.name = "host",
	.create = null_create,
	.start = null_start,
	.poll = null_poll,
	.stop = null_stop,
	.destroy = null_destroy,
};

const struct gk_ops *__real_gk_ops_find(const char *name);
const struct gk_ops *__wrap_gk_ops_find(const char *name);

const struct gk_ops *
__wrap_gk_ops_find(const char *name)
{
	return used && strcmp(name, null_ops.name) == 0 ? &null_ops : __real_gk_ops_find(name);
}

void
recv_null_gang_use(void)
{
	used = true;
}
