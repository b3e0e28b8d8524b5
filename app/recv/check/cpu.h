/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check: the CPUs of polling lcores.
 */
#ifndef CHECK_CPU_H
#define CHECK_CPU_H

#include <sched.h>
#include <stdbool.h>

#include <rte_lcore.h>

struct check;
struct settings;

/** A polling lcore. */
struct check_lcore {
	unsigned int id;
	cpu_set_t cpus;
	int node;
	bool receives;	 /**< has an RX role */
	char roles[128]; /**< `rx 0, builder` */
};

struct check_lcores {
	bool live; /**< packets arrive at any time: at least one port is not a replay */
	uint32_t nb;
	struct check_lcore lcore[RTE_MAX_LCORE];
};

/** Assign the roles to lcores as a run does. @return 0; -errno: a row describes the error */
int check_place_roles(struct check *c, const struct settings *s, struct check_lcores *l);

/** Check for lcores that share a CPU or are not pinned, and for RX lcores with other roles. */
void check_sharing(struct check *c, const struct check_lcores *l);

/** Check for polling CPUs that are hardware threads of the same core. */
void check_siblings(struct check *c, const struct check_lcores *l);

/** Check for polling CPUs that are not isolated or have timer ticks. Adds two rows. */
void check_isolation(struct check *c, const struct check_lcores *l);

/** Check that the frequency governor of polling CPUs is `performance`. */
void check_governor(struct check *c, const struct check_lcores *l);

/** Check for a running irqbalance that may use polling CPUs. */
void check_irqbalance(struct check *c, const struct check_lcores *l);

/** Check for device interrupts whose effective affinity is a polling CPU. */
void check_interrupts(struct check *c, const struct check_lcores *l);

/**
 * Check the CPU isolation options of the running kernel. The fix gives the options for these
 * lcores.
 */
void check_command_line(struct check *c, const struct check_lcores *l);

#endif /* CHECK_CPU_H */
