/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Roles on lcores. A role is a poll function; an lcore polls its roles in turn, and when none had
 * anything to do it follows the idle policy. Which role goes where is configured, or spread over
 * the lcores that EAL was given.
 */
#ifndef LCORES_H
#define LCORES_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_lcore.h>

#include "settings.h"

#define LCORES_ROLES_MAX 64

enum role_kind {
	ROLE_RX,
	ROLE_BUILDER,
	ROLE_EGRESS, /**< RDMA to stores */
	ROLE_COMPRESS,
	ROLE_GANG
};

/** A role that a run has, before it is on an lcore. */
struct role_place {
	enum role_kind kind;
	uint32_t index; /**< among those of its kind */
	char name[32];
};

struct role {
	enum role_kind kind;
	char name[24];
	int (*poll)(void *arg); /**< non-zero if anything was done; never blocks */
	void *arg;
	uint64_t busy_cycles; /**< of polls that did anything; written by its lcore */
};

/** What one lcore does and has done. Written by that lcore. */
struct lcore {
	uint32_t nb_roles;
	struct role roles[LCORES_ROLES_MAX];
	enum idle_policy idle;
	uint64_t busy_cycles;
	uint64_t idle_cycles;
	uint64_t rounds;
} __rte_cache_aligned;

struct lcores {
	struct lcore lcore[RTE_MAX_LCORE];
	bool stop; /**< read by all polling loops */
};

/** How many polling roles a gang gets if the configuration leaves it open. */
uint32_t lcores_gang_workers(const struct settings *s);

/**
 * The roles of a run, in the order in which they are put on lcores: this is the list of them.
 * @param s  settled by placement_choose()
 * @param n  0, 1, ...
 * @return false: there are no more
 */
bool lcores_role(const struct settings *s, uint32_t n, struct role_place *place);

/** Begin with no roles; read which lcores there are. */
void lcores_init(struct lcores *l, const struct settings *s);

/**
 * Put a role on an lcore.
 * @return 0; -EINVAL: the configured lcore is not one of EAL's; -ENOSPC (logged)
 */
int lcores_add(struct lcores *l, const struct settings *s, const struct role_place *place,
	int (*poll)(void *arg), void *arg);

/**
 * Poll until lcores.stop is set. The main lcore polls its roles, or sleeps if it has none.
 * @return 0, or -errno when an lcore cannot be launched (logged): lcores.stop is set then, and
 *         roles that wait for it may never have been polled
 */
int lcores_run(struct lcores *l);

#endif /* LCORES_H */
