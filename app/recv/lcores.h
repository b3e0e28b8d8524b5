/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Roles on lcores. A role is a poll function. An lcore polls its roles round-robin, and follows the
 * idle policy when none of them had anything to do. The lcore of a role is configured, or the roles
 * are distributed over EAL's lcores.
 */
#ifndef LCORES_H
#define LCORES_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_lcore.h>

#include "settings.h"

#define LCORES_ROLES_MAX 64

/** Kinds of roles, in the order in which they are assigned to lcores. */
enum role_kind {
	ROLE_RX,       /**< receives and places packets */
	ROLE_BUILDER,  /**< opens, closes and retires frames */
	ROLE_EGRESS,   /**< RDMA to stores */
	ROLE_CONNECT,  /**< answers ARP and connection requests of RoCE detectors */
	ROLE_COMPRESS, /**< compresses raw frames for the writer */
	ROLE_GANG      /**< a worker of a host gang */
};

/** A role of a run, before it is assigned to an lcore. */
struct role_place {
	enum role_kind kind;
	uint32_t index; /**< among the roles of its kind */
	char name[32];
};

/** A role on an lcore. */
struct role {
	enum role_kind kind;
	char name[24];
	int (*poll)(void *arg); /**< returns non-zero if it did any work; must not block */
	void *arg;
	uint64_t busy_cycles; /**< TSC cycles of polls that did anything; written by its lcore */
};

/** Roles and counters of an lcore. Once it runs, only that lcore writes them. */
struct lcore {
	uint32_t nb_roles;
	struct role roles[LCORES_ROLES_MAX];
	enum idle_policy idle;
	uint64_t busy_cycles; /**< TSC cycles of rounds in which a role did anything */
	uint64_t idle_cycles; /**< TSC cycles of the other rounds, with the idle policy */
	uint64_t rounds;      /**< one poll of each role */
} __rte_cache_aligned;

struct lcores {
	struct lcore lcore[RTE_MAX_LCORE];
	bool stop; /**< set to end all polling loops */
};

/** Number of polling roles of a gang: as configured, or calculated from the lcores. */
uint32_t lcores_gang_workers(const struct settings *s);

/**
 * Describe role n of a run. Roles are listed in the order in which they are assigned to lcores.
 * @param s      completed by placement_choose()
 * @param n      0, 1, ...
 * @param place  out
 * @return false: the run has only n roles, or fewer
 */
bool lcores_role(const struct settings *s, uint32_t n, struct role_place *place);

/** Initialize lcores without roles, and choose the idle policy. */
void lcores_init(struct lcores *l, const struct settings *s);

/**
 * Assign a role to an lcore.
 * @return 0; -EINVAL: the configured lcore is not one of EAL's; -ENOSPC: the lcore has
 *         LCORES_ROLES_MAX roles. Both are logged
 */
int lcores_add(struct lcores *l, const struct settings *s, const struct role_place *place,
	int (*poll)(void *arg), void *arg);

/**
 * Poll until lcores.stop is set. The main lcore polls its roles, or sleeps if it has none.
 * @return 0, or -errno if an lcore cannot be launched (logged). lcores.stop is then set, and some
 *         roles may never have been polled
 */
int lcores_run(struct lcores *l);

/**
 * Return true if each lcore with roles has polled all of them since this function last returned
 * true.
 * @param seen  rounds of each lcore at that time; zeros before the first call
 */
bool lcores_have_polled(const struct lcores *l, uint64_t seen[RTE_MAX_LCORE]);

#endif /* LCORES_H */
