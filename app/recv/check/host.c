/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: NUMA, IOMMU, GPUDirect, limits, clocks, UDP ports. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_string_fns.h>

#include "check/check.h"
#include "check/cpu.h"
#include "check/host.h"
#include "check/memory.h"
#include "check/port.h"
#include "settings.h"

#define ROCE_UDP_PORT	 4791
#define CAP_IPC_LOCK_BIT 14
#define CLOCK_SLACK_US	 1000

static uint32_t
count_real(const struct check_port *ports, uint32_t nb_ports)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nb_ports; i++)
		n += ports[i].present && !ports[i].is_virtual;
	return n;
}

/** Return the number of NUMA nodes of the machine. */
static int
count_nodes(const struct check *c)
{
	char text[128];
	cpu_set_t nodes; /* same format */

	if (check_read(c, text, sizeof(text), "/sys/devices/system/node/online") <= 0)
		return 1;
	return check_parse_cpus(text, &nodes);
}

void
check_numa(struct check *c, const struct check_lcores *l, const struct check_heap *heap,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports)
{
	char text[256];
	size_t at;
	int node = -1;
	bool apart = false;

	if (count_nodes(c) < 2) {
		check_add(c, CHECK_NA, "NUMA nodes", "the machine has one NUMA node");
		return;
	}
	/* the node of a port; if unknown, of the GPU; if there is none, of the memory */
	for (uint32_t i = 0; i < nb_ports && node < 0; i++)
		node = ports[i].node;
	if (node < 0)
		node = gpu->present ? gpu->node : -1;
	if (node < 0)
		node = heap->node;
	apart |= heap->node != node;
	at = snprintf(text, sizeof(text), "memory %d", heap->node);
	for (uint32_t i = 0; i < nb_ports && at < sizeof(text); i++) {
		if (ports[i].node < 0)
			continue;
		apart |= ports[i].node != node;
		at += snprintf(text + at, sizeof(text) - at, ", port %u %d", i, ports[i].node);
	}
	if (gpu->present && gpu->node >= 0 && at < sizeof(text)) {
		apart |= gpu->node != node;
		at += snprintf(text + at, sizeof(text) - at, ", %s %d", gpu->name, gpu->node);
	}
	for (uint32_t i = 0; i < l->nb; i++) {
		if (l->lcore[i].node == node)
			continue;
		apart = true;
		if (at < sizeof(text))
			at += snprintf(text + at, sizeof(text) - at, ", lcore %u (%s) %d",
				l->lcore[i].id, l->lcore[i].roles, l->lcore[i].node);
	}
	if (!apart) {
		check_add(c, CHECK_OK, "NUMA nodes", "%s, all lcores %d", text, node);
		return;
	}
	check_add(c, CHECK_WARN, "NUMA nodes", "%s", text);
	check_fix(c,
		"use lcores (-l, also the main one), GPU and ports of one node; "
		"/sys/devices/system/node/node%d/cpulist lists the CPUs of the port's node",
		node);
}

void
check_numa_balancing(struct check *c)
{
	const int64_t on = check_read_number(c, "/proc/sys/kernel/numa_balancing");

	if (count_nodes(c) < 2 || on < 0)
		check_add(c, CHECK_NA, "NUMA balancing",
			"the machine has one NUMA node, or the kernel has no such setting");
	else if (on == 0)
		check_add(c, CHECK_OK, "NUMA balancing", "off");
	else {
		check_add(c, CHECK_WARN, "NUMA balancing",
			"on: the kernel unmaps pages to sample accesses, which causes page "
			"faults on lcores");
		check_fix(c, "sysctl kernel.numa_balancing=0");
	}
}

void
check_autogroup(struct check *c)
{
	const int64_t on = check_read_number(c, "/proc/sys/kernel/sched_autogroup_enabled");

	if (on < 0)
		check_add(c, CHECK_NA, "autogroup", "not in this kernel");
	else if (on == 0)
		check_add(c, CHECK_OK, "autogroup", "off");
	else {
		check_add(c, CHECK_WARN, "autogroup",
			"on: kernel threads that complete writes may get too little CPU time "
			"while lcores poll");
		check_fix(c, "sysctl kernel.sched_autogroup_enabled=0");
	}
}

void
check_iommu(struct check *c, const struct check_port *ports, uint32_t nb_ports)
{
	char type[32], path[256], target[256];
	uint32_t looked_at = 0;

	for (uint32_t i = 0; i < nb_ports; i++) {
		const char *driver;
		ssize_t n;

		if (!ports[i].present || ports[i].is_virtual)
			continue;
		if (check_read(c, type, sizeof(type), "/sys/bus/pci/devices/%s/iommu_group/type",
			    ports[i].name) <= 0)
			continue;
		looked_at++;
		snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/driver", c->root,
			ports[i].name);
		n = readlink(path, target, sizeof(target) - 1);
		target[RTE_MAX(n, 0)] = '\0';
		driver = strrchr(target, '/');
		/* vfio creates its mappings once, at start */
		if (strncmp(type, "DMA", 3) != 0 ||
			(driver != NULL && strcmp(driver, "/vfio-pci") == 0))
			continue;
		check_add(c, CHECK_WARN, "IOMMU",
			"translates for %s (group type %s): reduces the packet rate, and "
			"GPUDirect needs pass-through",
			ports[i].name, type);
		check_fix(c, "boot with iommu=pt");
		return;
	}
	if (count_real(ports, nb_ports) == 0)
		check_add(c, CHECK_NA, "IOMMU", "no port does DMA");
	else
		check_add(c, CHECK_OK, "IOMMU", "%s",
			looked_at > 0 ? "pass-through" : "no port is affected");
}

void
check_iova(struct check *c, bool va, const struct check_port *ports, uint32_t nb_ports)
{
	const char *mode = va ? "virtual addresses" : "physical addresses";
	bool pool = false;

	for (uint32_t i = 0; i < nb_ports; i++)
		pool |= ports[i].present && !ports[i].is_virtual && !ports[i].reference;
	if (count_real(ports, nb_ports) == 0) {
		check_add(c, CHECK_NA, "IOVA mode", "%s; no port does DMA", mode);
	} else if (va || !pool) {
		check_add(c, CHECK_OK, "IOVA mode", "%s", mode);
	} else {
		check_add(c, CHECK_FAIL, "IOVA mode",
			"%s: payload pools are contiguous only with virtual addresses", mode);
		check_fix(c, "--iova-mode=va");
	}
}

void
check_gpu_direct(struct check *c, const struct check_gpu *gpu, const struct check_port *ports,
	uint32_t nb_ports)
{
	char text[8];
	bool needed = false;

	for (uint32_t i = 0; i < nb_ports; i++)
		needed |= check_port_writes_gpu(&ports[i], gpu);
	if (!needed) {
		check_add(c, CHECK_NA, "GPUDirect", "no NIC writes to GPU memory");
		return;
	}
	if (check_read(c, text, sizeof(text), "/sys/module/nvidia_peermem/initstate") >= 0 ||
		check_read(c, text, sizeof(text), "/sys/module/nv_peer_mem/initstate") >= 0) {
		check_add(c, CHECK_OK, "GPUDirect", "nvidia_peermem is loaded");
		return;
	}
	/* DPDK registers device memory with ibv_reg_mr() only, which needs nvidia_peermem */
	check_add(c, CHECK_WARN, "GPUDirect",
		"nvidia_peermem is not loaded; DPDK's mlx5 driver does not use dma-buf");
	check_fix(c, "modprobe nvidia_peermem");
}

/** Return true if the process may lock unlimited memory. */
static bool
may_lock(const struct check *c)
{
	char text[4096];
	const char *line;

	if (check_read(c, text, sizeof(text), "/proc/self/status") <= 0)
		return false;
	line = strstr(text, "CapEff:");
	return line != NULL &&
		(strtoull(line + strlen("CapEff:"), NULL, 16) & (1u << CAP_IPC_LOCK_BIT)) != 0;
}

void
check_locked_memory(struct check *c, const struct rlimit *limit, const struct check_need *need,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports)
{
	char have[16], want[16];

	const bool heap = count_real(ports, nb_ports) != 0 || (gpu->present && !gpu->is_virtual);
	uint64_t pinned = (heap ? need->heap : 0) + need->journal;
	bool adapter = false;

	for (uint32_t i = 0; i < nb_ports; i++)
		adapter |= ports[i].settings->adapter;
	pinned += adapter ? need->rings : 0;

	check_print_bytes(limit->rlim_cur, have);
	check_print_bytes(pinned, want);
	if (pinned == 0) {
		check_add(c, CHECK_NA, "locked memory", "no device pins memory");
	} else if (limit->rlim_cur == RLIM_INFINITY) {
		check_add(c, CHECK_OK, "locked memory", "unlimited");
	} else if (may_lock(c)) {
		check_add(c, CHECK_OK, "locked memory", "CAP_IPC_LOCK: the limit does not apply");
	} else if (limit->rlim_cur >= pinned) {
		check_add(c, CHECK_OK, "locked memory", "%s allowed, %s required", have, want);
	} else {
		check_add(c, CHECK_FAIL, "locked memory",
			"%s allowed, %s required to register memory with devices", have, want);
		check_fix(c, "ulimit -l unlimited (LimitMEMLOCK=infinity in a systemd unit)");
	}
}

/** Return true if /proc/cpuinfo lists this flag. */
static bool
cpu_has(const char *flags, const char *flag)
{
	const size_t length = strlen(flag);

	for (const char *at = strstr(flags, flag); at != NULL; at = strstr(at + 1, flag))
		if (at[-1] == ' ' && (at[length] == ' ' || at[length] == '\0'))
			return true;
	return false;
}

void
check_tsc(struct check *c)
{
	char text[8192], source[32];
	char *flags, *end;

	check_read(c, source, sizeof(source),
		"/sys/devices/system/clocksource/clocksource0/current_clocksource");
	check_read(c, text, sizeof(text), "/proc/cpuinfo");
	flags = strstr(text, "\nflags");
	if (flags == NULL) {
		check_add(c, CHECK_NA, "TSC", "not an x86 CPU");
		return;
	}
	flags++;
	end = strchr(flags, '\n');
	if (end != NULL)
		*end = '\0';
	if (cpu_has(flags, "constant_tsc") && cpu_has(flags, "nonstop_tsc")) {
		check_add(c, CHECK_OK, "TSC", "invariant; the kernel's clock is %s",
			source[0] != '\0' ? source : "unknown");
		return;
	}
	check_add(c, CHECK_WARN, "TSC",
		"not invariant: time-outs and receive times depend on the CPU frequency");
	check_fix(c,
		"a virtual machine: pass the invariant TSC to the guest; otherwise fix the "
		"frequency in the BIOS");
}

void
check_clock(struct check *c, int state, const struct timex *t)
{
	if (state < 0) {
		check_add(c, CHECK_NA, "clock", "adjtimex: %s", strerror(-state));
	} else if (state == TIME_ERROR || (t->status & STA_UNSYNC) != 0) {
		check_add(c, CHECK_WARN, "clock",
			"not synchronised: receive times in `frames` cannot be compared between "
			"machines");
		check_fix(c, "run chronyd, or ptp4l with phc2sys");
	} else {
		check_add(c, CHECK_OK, "clock", "synchronised, error %s %ld us",
			t->maxerror > CLOCK_SLACK_US ? "below" : "at most", t->maxerror);
	}
}

/** Find a UDP port of the detector to which a socket of this host is bound. @return 0: none */
static uint32_t
find_bound(const struct check *c, const char *table, uint32_t first, uint32_t n)
{
	char text[65536];
	const char *line = text;

	check_read(c, text, sizeof(text), "%s", table);
	/* lines `  sl: ADDRESS:PORT ...` in hexadecimal, after a header line */
	while ((line = strchr(line, '\n')) != NULL) {
		unsigned int port;

		line++;
		if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x", &port) == 1 && port >= first &&
			port < first + n)
			return port;
	}
	return 0;
}

void
check_udp_ports(struct check *c, const struct settings *s)
{
	const uint32_t first = s->udp_port, n = s->detector.streams;
	uint32_t bound;

	if (s->ingest.transport != INGEST_UDP) {
		check_add(c, CHECK_NA, "UDP ports", "RoCE uses port %u", ROCE_UDP_PORT);
		return;
	}
	if (first <= ROCE_UDP_PORT && ROCE_UDP_PORT < first + n) {
		check_add(c, CHECK_FAIL, "UDP ports", "%u ... %u include %u, the RoCEv2 port",
			first, first + n - 1, ROCE_UDP_PORT);
		check_fix(c, "set another [detector] udp_port, here and in the detector");
		return;
	}
	bound = find_bound(c, "/proc/net/udp", first, n);
	if (bound == 0)
		bound = find_bound(c, "/proc/net/udp6", first, n);
	if (bound == 0) {
		check_add(c, CHECK_OK, "UDP ports", "%u ... %u", first, first + n - 1);
		return;
	}
	check_add(c, CHECK_WARN, "UDP ports",
		"%u ... %u; a socket of this host is bound to %u; is another receiver running?",
		first, first + n - 1, bound);
	check_fix(c, "find its process: ss -ulpn 'sport = :%u'", bound);
}
