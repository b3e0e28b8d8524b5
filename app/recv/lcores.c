/* SPDX-License-Identifier: BSD-3-Clause */
/* Distributes roles over lcores, and runs the polling loop of each lcore. */

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_pause.h>
#include <rte_string_fns.h>

#include <gk.h>

#include "counter.h"
#include "egress/egress.h"
#include "lcores.h"
#include "log.h"

LOG_REGISTER("lcores", "lcores");

/** With at most this many lcores, the main lcore polls roles, too. */
#define MAIN_POLLS_UP_TO 2

/** Idle rounds before an lcore yields its CPU: the next burst often arrives immediately. */
#define ROUNDS_BEFORE_YIELD 16

/** Lcores over which roles are distributed, in EAL's order. @return their number */
static uint32_t
polling_lcores(uint32_t out[RTE_MAX_LCORE])
{
	const bool with_main = rte_lcore_count() <= MAIN_POLLS_UP_TO;
	uint32_t n = 0;
	unsigned int id;

	RTE_LCORE_FOREACH(id)
		if (with_main || id != rte_get_main_lcore())
			out[n++] = id;
	return n;
}

uint32_t
lcores_gang_workers(const struct settings *s)
{
	uint32_t ids[RTE_MAX_LCORE];
	const uint32_t n = polling_lcores(ids);
	const uint32_t others = s->rx_lcores + 1;

	if (s->gang_workers != 0)
		return s->gang_workers;
	if (s->nb_gang_map != 0)
		return RTE_MAX(1u, s->nb_gang_map / s->gangs);
	return n > others ? RTE_MAX(1u, (n - others) / s->gangs) : 1;
}

/** Return true if lcores share CPUs, so that an idle lcore delays another one. */
static bool
cpus_are_shared(void)
{
	unsigned int a, b;

	RTE_LCORE_FOREACH(a) {
		const rte_cpuset_t cpus = rte_lcore_cpuset(a);

		if (CPU_COUNT(&cpus) != 1)
			return true;
		RTE_LCORE_FOREACH(b) {
			const rte_cpuset_t other = rte_lcore_cpuset(b);

			if (a != b && CPU_EQUAL(&cpus, &other))
				return true;
		}
	}
	return (long)rte_lcore_count() >= sysconf(_SC_NPROCESSORS_ONLN);
}

void
lcores_init(struct lcores *l, const struct settings *s)
{
	enum idle_policy idle = s->idle;
	unsigned int id;

	if (idle == IDLE_AUTO)
		idle = cpus_are_shared() ? IDLE_YIELD : IDLE_PAUSE;
	RTE_LCORE_FOREACH(id)
		l->lcore[id].idle = idle;
}

/**
 * Choose the lcore of a role. If there are enough lcores, each RX role and the builder have a
 * separate one, and gangs share the others. Otherwise RX and builder share the first half of the
 * lcores, and gangs share the other half.
 */
static uint32_t
spread(const struct settings *s, enum role_kind kind, uint32_t index)
{
	uint32_t ids[RTE_MAX_LCORE];
	const uint32_t n = polling_lcores(ids);
	const uint32_t others = s->rx_lcores + 1;
	const uint32_t first = n > others ? others : (n + 1) / 2;

	if (kind == ROLE_BUILDER || kind == ROLE_EGRESS || kind == ROLE_CONNECT)
		index = s->rx_lcores;
	if (kind != ROLE_GANG)
		return ids[index % first];
	return n > first ? ids[first + index % (n - first)] : ids[index % n];
}

bool
lcores_role(const struct settings *s, uint32_t n, struct role_place *place)
{
	const struct gk_ops *ops = gk_ops_find(s->kernel);
	const uint32_t has[] = {
		[ROLE_RX] = s->rx_lcores,
		[ROLE_BUILDER] = 1,
		[ROLE_EGRESS] = s->egress->device != NULL ? 1 : 0,
		[ROLE_CONNECT] = s->ingest.transport != INGEST_UDP ? 1 : 0,
		[ROLE_COMPRESS] = s->nb_compress_map,
		/* gangs of a GPU poll on the GPU */
		[ROLE_GANG] =
			ops != NULL && ops->poll != NULL ? s->gangs * lcores_gang_workers(s) : 0,
	};
	uint32_t kind = 0;

	while (kind < RTE_DIM(has) && n >= has[kind])
		n -= has[kind++];
	if (kind == RTE_DIM(has))
		return false;
	*place = (struct role_place){.kind = kind, .index = n};
	if (kind == ROLE_BUILDER || kind == ROLE_EGRESS || kind == ROLE_CONNECT)
		rte_strscpy(place->name,
			kind == ROLE_BUILDER	      ? "builder"
				: kind == ROLE_EGRESS ? "egress"
						      : "connect",
			sizeof(place->name));
	else if (kind == ROLE_GANG)
		snprintf(
			place->name, sizeof(place->name), "gang %u.%u", n % s->gangs, n / s->gangs);
	else
		snprintf(place->name, sizeof(place->name), "%s %u",
			kind == ROLE_RX ? "rx" : "compress", n);
	return true;
}

int
lcores_add(struct lcores *l, const struct settings *s, const struct role_place *place,
	int (*poll)(void *arg), void *arg)
{
	const struct {
		const uint32_t *lcores;
		uint32_t nb;
	} maps[] =
		{
			[ROLE_RX] = {s->rx_map, s->nb_rx_map},
			[ROLE_BUILDER] = {s->builder_map, s->nb_builder_map},
			[ROLE_EGRESS] = {s->egress_map, s->nb_egress_map},
			/* one lcore executes the control functions of all RDMA devices */
			[ROLE_CONNECT] = {s->egress_map, s->nb_egress_map},
			[ROLE_COMPRESS] = {s->compress_map, s->nb_compress_map},
			[ROLE_GANG] = {s->gang_map, s->nb_gang_map},
		},
	  *map = &maps[place->kind];
	const uint32_t id = map->nb > 0 ? map->lcores[place->index % map->nb]
					: spread(s, place->kind, place->index);
	struct lcore *lc = &l->lcore[id];

	if (!rte_lcore_is_enabled(id)) {
		LOG(ERR, "%s is assigned to lcore %u, which EAL does not have; see -l\n",
			place->name, id);
		return -EINVAL;
	}
	if (lc->nb_roles == LCORES_ROLES_MAX) {
		LOG(ERR, "%s: lcore %u already has %u roles, the limit\n", place->name, id,
			lc->nb_roles);
		return -ENOSPC;
	}
	lc->roles[lc->nb_roles] = (struct role){.kind = place->kind, .poll = poll, .arg = arg};
	rte_strscpy(lc->roles[lc->nb_roles].name, place->name, sizeof(lc->roles[0].name));
	lc->nb_roles++;
	LOG(INFO, "%s runs on lcore %u\n", place->name, id);
	return 0;
}

static void
rest(enum idle_policy policy, uint32_t rounds)
{
	if (policy == IDLE_PAUSE)
		rte_pause();
	else if (policy == IDLE_YIELD && rounds >= ROUNDS_BEFORE_YIELD)
		sched_yield();
}

static int
poll_roles(void *arg)
{
	struct lcores *l = arg;
	const unsigned int id = rte_lcore_id();
	struct lcore *lc = &l->lcore[id];
	uint64_t last = rte_rdtsc();
	uint32_t idle_rounds = 0;

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		uint64_t now = last;
		int busy = 0;

		for (uint32_t i = 0; i < lc->nb_roles; i++) {
			struct role *role = &lc->roles[i];
			const uint64_t begin = now;
			const int did = role->poll(role->arg);

			now = rte_rdtsc();
			if (did)
				counter_add(&role->busy_cycles, now - begin);
			busy |= did;
		}
		counter_add(&lc->rounds, 1);
		if (busy) {
			counter_add(&lc->busy_cycles, now - last);
			idle_rounds = 0;
		} else {
			rest(lc->idle, ++idle_rounds);
			now = rte_rdtsc();
			counter_add(&lc->idle_cycles, now - last);
		}
		last = now;
	}
	return 0;
}

int
lcores_run(struct lcores *l)
{
	const unsigned int main_lcore = rte_get_main_lcore();
	const struct timespec pause = {.tv_nsec = 1000 * 1000};
	unsigned int id;
	int ret = 0;

	RTE_LCORE_FOREACH_WORKER(id) {
		if (l->lcore[id].nb_roles == 0)
			continue;
		ret = rte_eal_remote_launch(poll_roles, l, id);
		if (ret != 0) {
			LOG(ERR, "cannot launch lcore %u: %s\n", id, rte_strerror(-ret));
			__atomic_store_n(&l->stop, true, __ATOMIC_RELEASE);
			break;
		}
	}
	if (l->lcore[main_lcore].nb_roles > 0) {
		poll_roles(l);
	} else {
		while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE))
			nanosleep(&pause, NULL);
	}
	rte_eal_mp_wait_lcore();
	return ret;
}

bool
lcores_have_polled(const struct lcores *l, uint64_t seen[RTE_MAX_LCORE])
{
	unsigned int id;

	for (id = 0; id < RTE_MAX_LCORE; id++)
		if (l->lcore[id].nb_roles > 0 && counter_get(&l->lcore[id].rounds) == seen[id])
			return false;
	for (id = 0; id < RTE_MAX_LCORE; id++)
		seen[id] = counter_get(&l->lcore[id].rounds);
	return true;
}
