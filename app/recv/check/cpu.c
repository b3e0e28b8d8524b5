/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: the polling CPUs. */

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <rte_lcore.h>
#include <rte_string_fns.h>

#include <gk.h>

#include "check/check.h"
#include "check/cpu.h"
#include "lcores.h"
#include "settings.h"

static void
note_lcore(struct check_lcores *l, unsigned int id, const struct lcore *lc)
{
	struct check_lcore *to = &l->lcore[l->nb++];
	size_t at = 0;

	*to = (struct check_lcore){
		.id = id, .cpus = rte_lcore_cpuset(id), .node = rte_lcore_to_socket_id(id)};
	for (uint32_t i = 0; i < lc->nb_roles; i++) {
		to->receives |= lc->roles[i].kind == ROLE_RX;
		if (at < sizeof(to->roles))
			at += snprintf(to->roles + at, sizeof(to->roles) - at, "%s%s",
				i == 0 ? "" : ", ", lc->roles[i].name);
	}
}

int
check_place_roles(struct check *c, const struct settings *s, struct check_lcores *l)
{
	struct role_place place;
	struct lcores *lcores;
	char text[256];
	size_t at = 0;
	int ret = 0;

	l->nb = 0;
	lcores = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*lcores));
	if (lcores == NULL)
		return -ENOMEM;
	memset(lcores, 0, sizeof(*lcores));
	for (uint32_t n = 0; ret == 0 && lcores_role(s, n, &place); n++)
		ret = lcores_add(lcores, s, &place, NULL, NULL);
	for (unsigned int id = 0; id < RTE_MAX_LCORE; id++)
		if (lcores->lcore[id].nb_roles > 0)
			note_lcore(l, id, &lcores->lcore[id]);
	free(lcores);
	if (ret != 0) {
		cpu_set_t given;
		unsigned int id;

		CPU_ZERO(&given);
		RTE_LCORE_FOREACH(id)
			CPU_SET(id, &given);
		check_add(c, CHECK_FAIL, "lcores", "%s has no lcore; EAL has lcores %s", place.name,
			check_print_cpus(&given, text, sizeof(text)));
		check_fix(c,
			"pass the lcores of [lcores] to EAL (-l), or set rx, builder, egress and "
			"gang to auto");
		return ret;
	}
	text[0] = '\0';
	for (uint32_t i = 0; i < l->nb && at < sizeof(text); i++)
		at += snprintf(text + at, sizeof(text) - at, "%s%u: %s", i == 0 ? "" : "; ",
			l->lcore[i].id, l->lcore[i].roles);
	check_add(c, CHECK_OK, "lcores", "%s", text);
	return 0;
}

/** Collect the CPUs of all polling lcores. */
static void
used_cpus(const struct check_lcores *l, cpu_set_t *used)
{
	CPU_ZERO(used);
	for (uint32_t i = 0; i < l->nb; i++)
		CPU_OR(used, used, &l->lcore[i].cpus);
}

/** List the polling CPUs that are not in `list`, as text. @return NULL: all are */
static const char *
used_but_not_in(const struct check_lcores *l, const char *list, char *text, size_t size)
{
	cpu_set_t used, in, out;

	used_cpus(l, &used);
	check_parse_cpus(list, &in);
	CPU_AND(&in, &in, &used);
	CPU_XOR(&out, &in, &used);
	return CPU_COUNT(&out) > 0 ? check_print_cpus(&out, text, size) : NULL;
}

void
check_sharing(struct check *c, const struct check_lcores *l)
{
	char text[128];
	cpu_set_t used;

	for (uint32_t i = 0; i < l->nb; i++) {
		const struct check_lcore *a = &l->lcore[i];

		for (uint32_t k = 0; k < i; k++) {
			const struct check_lcore *b = &l->lcore[k];
			cpu_set_t both;

			CPU_AND(&both, &a->cpus, &b->cpus);
			if (CPU_COUNT(&both) == 0)
				continue;
			check_add(c, CHECK_WARN, "CPU sharing",
				"lcores %u (%s) and %u (%s) share CPU %s", b->id, b->roles, a->id,
				a->roles, check_print_cpus(&both, text, sizeof(text)));
			check_fix(c,
				"give each lcore its own CPU: -l or --lcores with as many "
				"CPUs as lcores");
			return;
		}
		if (CPU_COUNT(&a->cpus) > 1) {
			check_add(c, CHECK_WARN, "CPU sharing",
				"lcore %u (%s) is not pinned: it may run on CPUs %s", a->id,
				a->roles, check_print_cpus(&a->cpus, text, sizeof(text)));
			check_fix(c, "pin it: -l, or --lcores %u@CPU", a->id);
			return;
		}
	}
	for (uint32_t i = 0; i < l->nb; i++) {
		const struct check_lcore *a = &l->lcore[i];

		if (!a->receives || strchr(a->roles, ',') == NULL)
			continue;
		check_add(c, l->live ? CHECK_WARN : CHECK_OK, "CPU sharing",
			"an RX lcore has other roles too: %s on lcore %u", a->roles, a->id);
		if (l->live)
			check_fix(c,
				"give EAL more lcores (-l), or assign the roles to separate "
				"lcores in [lcores] rx, builder, egress, gang");
		return;
	}
	used_cpus(l, &used);
	check_add(c, CHECK_OK, "CPU sharing", "%u lcores, each with its own CPU, %s", l->nb,
		check_print_cpus(&used, text, sizeof(text)));
}

void
check_siblings(struct check *c, const struct check_lcores *l)
{
	char text[128];
	cpu_set_t used;
	bool known = false, smt = false;

	used_cpus(l, &used);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		cpu_set_t siblings, both;

		if (!CPU_ISSET(cpu, &used) ||
			check_read(c, text, sizeof(text),
				"/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
				cpu) <= 0)
			continue;
		known = true;
		smt |= check_parse_cpus(text, &siblings) > 1;
		CPU_AND(&both, &siblings, &used);
		if (CPU_COUNT(&both) < 2)
			continue;
		check_add(c, CHECK_WARN, "SMT siblings",
			"CPUs %s share a physical core, and both poll",
			check_print_cpus(&both, text, sizeof(text)));
		check_fix(c,
			"remove one of them from -l, or echo off > "
			"/sys/devices/system/cpu/smt/control");
		return;
	}
	if (!known)
		check_add(c, CHECK_NA, "SMT siblings", "not reported by the kernel");
	else
		check_add(c, CHECK_OK, "SMT siblings", "%s",
			smt ? "no two polling CPUs share a core" : "one thread per core");
}

static void
check_isolated_list(struct check *c, const struct check_lcores *l, const char *item,
	const char *file, const char *what)
{
	char list[256], missing[128];

	check_read(c, list, sizeof(list), "%s", file);
	/* if it is empty, nohz_full reads `(null)` */
	if (!isdigit((unsigned char)list[0]))
		rte_strscpy(list, "none", sizeof(list));
	if (!l->live) {
		check_add(c, CHECK_NA, item,
			"%s; not needed for a replay, which waits for the receiver", list);
		return;
	}
	if (used_but_not_in(l, list, missing, sizeof(missing)) == NULL) {
		check_add(c, CHECK_OK, item, "%s", list);
		return;
	}
	check_add(c, CHECK_WARN, item, "%s; polling CPUs %s are not among them: %s", list, missing,
		what);
	check_fix(c, "boot with the options shown under `kernel command line`");
}

void
check_isolation(struct check *c, const struct check_lcores *l)
{
	check_isolated_list(c, l, "isolated CPUs", "/sys/devices/system/cpu/isolated",
		"other threads may interrupt them");
	check_isolated_list(c, l, "CPUs without ticks", "/sys/devices/system/cpu/nohz_full",
		"timer interrupts stop them");
}

void
check_governor(struct check *c, const struct check_lcores *l)
{
	char text[64], found[64] = "";
	cpu_set_t used, slow;

	used_cpus(l, &used);
	CPU_ZERO(&slow);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &used) ||
			check_read(c, text, sizeof(text),
				"/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu) <= 0)
			continue;
		if (strcmp(text, "performance") != 0)
			CPU_SET(cpu, &slow);
		if (found[0] == '\0' || strcmp(text, "performance") != 0)
			rte_strscpy(found, text, sizeof(found));
	}
	if (found[0] == '\0')
		check_add(c, CHECK_NA, "CPU frequency", "no governor (a virtual machine?)");
	else if (CPU_COUNT(&slow) == 0)
		check_add(c, CHECK_OK, "CPU frequency", "governor %s", found);
	else if (!l->live)
		check_add(c, CHECK_NA, "CPU frequency",
			"governor %s; not important for a replay, which waits for the receiver",
			found);
	else {
		check_add(c, CHECK_WARN, "CPU frequency", "governor %s on CPUs %s", found,
			check_print_cpus(&slow, text, sizeof(text)));
		check_fix(c, "cpupower -c %s frequency-set -g performance",
			check_print_cpus(&slow, text, sizeof(text)));
	}
}

/** Return true if a process of this name is running. */
static bool
is_running(const struct check *c, const char *name)
{
	char text[64];
	char path[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *proc;

	snprintf(path, sizeof(path), "%s/proc", c->root);
	proc = opendir(path);
	if (proc == NULL)
		return false;
	while (!found && (entry = readdir(proc)) != NULL)
		found = isdigit((unsigned char)entry->d_name[0]) &&
			check_read(c, text, sizeof(text), "/proc/%s/comm", entry->d_name) > 0 &&
			strcmp(text, name) == 0;
	closedir(proc);
	return found;
}

void
check_irqbalance(struct check *c, const struct check_lcores *l)
{
	char isolated[256], cpus[128];
	const char *open;

	if (!is_running(c, "irqbalance")) {
		check_add(c, CHECK_OK, "irqbalance", "not running");
		return;
	}
	check_read(c, isolated, sizeof(isolated), "/sys/devices/system/cpu/isolated");
	/* irqbalance does not use isolated CPUs */
	open = used_but_not_in(l, isolated, cpus, sizeof(cpus));
	if (!l->live) {
		check_add(c, CHECK_NA, "irqbalance",
			"running; not important for a replay, which waits for the receiver");
	} else if (open == NULL) {
		check_add(c, CHECK_OK, "irqbalance", "running, ignores isolated CPUs");
	} else {
		check_add(c, CHECK_WARN, "irqbalance",
			"running, may move interrupts to polling CPUs %s", open);
		check_fix(c,
			"systemctl disable --now irqbalance, or "
			"IRQBALANCE_BANNED_CPULIST=%s in its environment file",
			open);
	}
}

/** Find the handler of an interrupt: a folder has its name. @return false: no handler */
static bool
find_handler(const struct check *c, const char *number, char *name, size_t size)
{
	char path[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *irq;

	snprintf(path, sizeof(path), "%s/proc/irq/%s", c->root, number);
	irq = opendir(path);
	if (irq == NULL)
		return false;
	while (!found && (entry = readdir(irq)) != NULL) {
		found = entry->d_type == DT_DIR && entry->d_name[0] != '.';
		if (found)
			rte_strscpy(name, entry->d_name, size);
	}
	closedir(irq);
	return found;
}

/**
 * Work that a handler queues for its CPU, such as completions of direct writes, is delayed, too.
 */
void
check_interrupts(struct check *c, const struct check_lcores *l)
{
	char path[PATH_MAX], list[256], name[64], found[256] = "";
	cpu_set_t used, to;
	struct dirent *entry;
	uint32_t nb = 0;
	DIR *irqs;

	used_cpus(l, &used);
	snprintf(path, sizeof(path), "%s/proc/irq", c->root);
	irqs = opendir(path);
	if (irqs == NULL) {
		check_add(c, CHECK_NA, "interrupts", "not reported by the kernel");
		return;
	}
	while ((entry = readdir(irqs)) != NULL) {
		const size_t at = strlen(found);

		if (!isdigit((unsigned char)entry->d_name[0]) ||
			check_read(c, list, sizeof(list), "/proc/irq/%s/effective_affinity_list",
				entry->d_name) <= 0)
			continue;
		check_parse_cpus(list, &to);
		CPU_AND(&to, &to, &used);
		if (CPU_COUNT(&to) == 0 || !find_handler(c, entry->d_name, name, sizeof(name)))
			continue;
		if (nb++ < 3)
			snprintf(found + at, sizeof(found) - at, "%s%s (%.9s)", at == 0 ? "" : ", ",
				name, entry->d_name);
	}
	closedir(irqs);
	if (nb == 0) {
		check_add(c, CHECK_OK, "interrupts", "no device interrupts on a polling CPU");
	} else if (!l->live) {
		check_add(c, CHECK_NA, "interrupts",
			"%u device interrupt(s) on polling CPUs; not important for a replay, which "
			"waits for the receiver",
			nb);
	} else {
		check_add(c, CHECK_WARN, "interrupts",
			"%u device interrupt(s) on polling CPUs: %s%s", nb, found,
			nb > 3 ? ", ..." : "");
		check_fix(c,
			"echo OTHER-CPUS > /proc/irq/NUMBER/smp_affinity_list; a disk completes "
			"its writes on these CPUs too");
	}
}

/** Append the word `name=...` of the command line to `found`. @return false: it is not there */
static bool
find_option(const char *line, const char *name, char *found, size_t size)
{
	const size_t length = strlen(name);

	for (const char *word = line; *word != '\0';) {
		const size_t n = strcspn(word, " ");
		const size_t at = strlen(found);

		if (strncmp(word, name, length) == 0 && (word[length] == '=' || n == length)) {
			snprintf(found + at, size - at, "%s%.*s", at == 0 ? "" : " ", (int)n, word);
			return true;
		}
		word += n;
		word += strspn(word, " ");
	}
	return false;
}

void
check_command_line(struct check *c, const struct check_lcores *l)
{
	static const char *const others[] = {"iommu", "intel_iommu", "amd_iommu",
		"default_hugepagesz", "hugepagesz", "hugepages", "mitigations", "idle",
		"processor.max_cstate", "intel_idle.max_cstate"};
	char line[4096], found[256] = "", cpus[96];
	bool isolated, quiet;
	cpu_set_t used;

	if (check_read(c, line, sizeof(line), "/proc/cmdline") < 0) {
		check_add(c, CHECK_NA, "kernel command line", "cannot be read");
		return;
	}
	isolated = find_option(line, "isolcpus", found, sizeof(found));
	quiet = find_option(line, "nohz_full", found, sizeof(found));
	/* nohz_full implies rcu_nocbs for its CPUs */
	quiet = find_option(line, "rcu_nocbs", found, sizeof(found)) || quiet;
	for (uint32_t i = 0; i < RTE_DIM(others); i++)
		find_option(line, others[i], found, sizeof(found));
	if (found[0] == '\0')
		rte_strscpy(found, "no relevant options", sizeof(found));
	if (!l->live) {
		check_add(c, CHECK_NA, "kernel command line",
			"%s; not important for a replay, which waits for the receiver", found);
		return;
	}
	if (isolated && quiet) {
		check_add(c, CHECK_OK, "kernel command line", "%s", found);
		return;
	}
	used_cpus(l, &used);
	check_print_cpus(&used, cpus, sizeof(cpus));
	check_add(c, CHECK_WARN, "kernel command line", "%s; isolcpus= and nohz_full= are missing",
		found);
	check_fix(c, "boot with isolcpus=managed_irq,domain,%s nohz_full=%s rcu_nocbs=%s iommu=pt",
		cpus, cpus, cpus);
}
