/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `--check`: what is wrong with the host, told before the first run.
 *
 * A row is one item: what was found, a verdict, and one line that puts it right. An item is a
 * function that judges facts - files under an injectable root of /proc and /sys, or a structure
 * that another function filled from EAL - and adds rows; so every verdict has its unit test.
 *
 * fail = a run would not work or would lose data at once; warn = it works, and may lose some under
 * load; n.a. = the item makes no sense here, and why. Main lcore only.
 */
#ifndef CHECK_H
#define CHECK_H

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/timex.h>

#include "port/port.h"
#include "settings.h"
#include "port/placement.h"

#define CHECK_ROWS_MAX 320 /**< 16 ports and all else */

enum check_verdict {
	CHECK_OK,
	CHECK_WARN,
	CHECK_FAIL,
	CHECK_NA,
	CHECK_VERDICTS
};

extern const char *const check_verdict_names[CHECK_VERDICTS];

struct check_row {
	enum check_verdict verdict;
	char item[24];
	char value[320];
	char fix[320];
};

struct check {
	const char *root; /**< before /proc and /sys; "" on a real host */
	uint32_t nb_rows;
	struct check_row rows[CHECK_ROWS_MAX];
};

/** Add a row. `item` may be "port 0: link"; the rest is its value, printf-style. */
void check_add(struct check *c, enum check_verdict verdict, const char *item, const char *value,
	...) __attribute__((format(printf, 4, 5)));

/** The fix of the row added last. */
void check_fix(struct check *c, const char *fix, ...) __attribute__((format(printf, 2, 3)));

/**
 * Read a small file under the root, without its last newline.
 * @param path  printf-style, from /proc or /sys on
 * @return its length or -errno
 */
int check_read(const struct check *c, char *text, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));

/** A file under the root that holds a number. @return it, or -1 */
int64_t check_read_number(const struct check *c, const char *path, ...)
	__attribute__((format(printf, 2, 3)));

/** A list as the kernel writes it, `0-3,8`. @return how many CPUs */
int check_parse_cpus(const char *list, cpu_set_t *cpus);

/** The same list again; `none` if empty. @return text */
const char *check_print_cpus(const cpu_set_t *cpus, char *text, size_t size);

/** `2.3 GiB`. @return text */
const char *check_print_bytes(uint64_t bytes, char text[16]);

/** Print all rows and their sum. @return rows that fail */
uint32_t check_print(const struct check *c, FILE *out);

/**
 * Look at everything that these settings need and print the table.
 * @param way  what placement_choose() made of the settings, or what it says is wrong
 * Ports are set up for a moment with small pools, so that their drivers can answer.
 * @return rows that fail
 */
uint32_t check_run(const struct settings *s, const struct placement *way, FILE *out);

/* CPUs: check/cpu.c */

/** An lcore that polls. */
struct check_lcore {
	unsigned int id;
	cpu_set_t cpus;
	int node;
	bool receives;	 /**< has an RX role */
	char roles[128]; /**< `rx 0, builder` */
};

struct check_lcores {
	bool live; /**< packets come whether or not anybody is ready: not only replays */
	uint32_t nb;
	struct check_lcore lcore[RTE_MAX_LCORE];
};

/** Put the roles on lcores as a run would. @return 0; -errno: a row says what is wrong */
int check_place_roles(struct check *c, const struct settings *s, struct check_lcores *l);

/*
 * The items: each adds a row, or two where it says so. What the kernel does not tell is n.a., and
 * so is what only matters to packets that do not wait, where all ports replay.
 */

/** Lcores that share a CPU, float over several, or receive and have other roles besides. */
void check_sharing(struct check *c, const struct check_lcores *l);

/** Two polling CPUs that are threads of one core. */
void check_siblings(struct check *c, const struct check_lcores *l);

/** Polling CPUs that are not isolated, and such with a timer tick: two rows. */
void check_isolation(struct check *c, const struct check_lcores *l);

/** Polling CPUs whose frequency governor is not `performance`. */
void check_governor(struct check *c, const struct check_lcores *l);

/** An irqbalance that runs and may use polling CPUs. */
void check_irqbalance(struct check *c, const struct check_lcores *l);

/** Interrupts of devices that come to polling CPUs, by what the kernel does now. */
void check_interrupts(struct check *c, const struct check_lcores *l);

/** The options of the running kernel that isolate CPUs; the fix is the line for these lcores. */
void check_command_line(struct check *c, const struct check_lcores *l);

/* Memory: check/memory.c */

struct check_gpu {
	bool present;
	bool is_virtual; /**< gpu_host: host memory under another name */
	bool wanted;	 /**< for packets, if ports reach it */
	bool packets;	 /**< lie in its memory */
	bool results;	 /**< likewise */
	int node;
	uint64_t bytes; /**< of the device */
	char name[64];
};

/** What EAL has on the node where the receiver allocates. */
struct check_heap {
	bool huge; /**< more can be mapped from huge pages; else what it has is all */
	int node;
	uint64_t free;
	uint64_t largest; /**< in one piece */
	uint64_t taken;	  /**< by EAL and drivers, so far */
};

/** What a run will allocate. */
struct check_need {
	uint64_t heap;	  /**< bytes of EAL memory */
	uint64_t largest; /**< the largest piece of them */
	const char *largest_name;
	uint64_t device; /**< bytes of GPU memory */
	uint64_t ring;	 /**< bytes that an adapter of [egress] pins beside EAL memory */
};

struct check_port;

/** The GPU of the settings, else the first that EAL has; `present` is false if there is none. */
void check_find_gpu(const struct settings *s, const struct placement *way, struct check_gpu *gpu);

/** EAL memory on the node of this lcore, at this moment; bytes are 0 if EAL does not tell. */
void check_find_heap(struct check_heap *heap);

/**
 * Add up what a run with these settings allocates, but for what [egress] takes.
 * @param ports  s->nb_ports of them
 */
void check_count_need(const struct settings *s, const struct check_gpu *gpu,
	const struct check_port *ports, struct check_need *need);

/** A GPU that is wanted and not there, or has less memory than packets, results and gangs take. */
void check_gpu(struct check *c, const struct settings *s, const struct check_gpu *gpu,
	const struct check_need *need);

/** A gang kernel that is not built in, or that the GPU does not run. */
void check_kernel(struct check *c, const struct settings *s, const struct placement *way);

/** Pixels or results that do not go where the settings want them: fail; or by a detour: warn. */
void check_way(struct check *c, const struct settings *s, const struct placement *way);

/** More bytes of EAL memory needed than are free, or in one piece. */
void check_heap(struct check *c, const struct check_heap *heap, const struct check_need *need);

/** Fewer bytes in free huge pages, of all sizes on the heap's node, than the run needs. */
void check_huge_pages(
	struct check *c, const struct check_heap *heap, const struct check_need *need);

/* The rest of the host: check/host.c */

/** Lcores, memory, GPU and ports that are not all on one NUMA node. */
void check_numa(struct check *c, const struct check_lcores *l, const struct check_heap *heap,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports);

/** Automatic NUMA balancing, for which lcores fault. */
void check_numa_balancing(struct check *c);

/** Scheduling by session, beside which the kernel's workers starve. */
void check_autogroup(struct check *c);

/** An IOMMU that translates what ports write. */
void check_iommu(struct check *c, const struct check_port *ports, uint32_t nb_ports);

/** Physical addresses where a port wants virtual ones. @param va  EAL uses virtual ones for DMA */
void check_iova(struct check *c, bool va, const struct check_port *ports, uint32_t nb_ports);

/** A NIC that is to write into a GPU's memory, without the kernel's module for that. */
void check_gpu_direct(struct check *c, const struct check_gpu *gpu, const struct check_port *ports,
	uint32_t nb_ports);

/** Devices that pin more than this process may lock. @param limit  of RLIMIT_MEMLOCK, bytes */
void check_locked_memory(struct check *c, const struct rlimit *limit, const struct check_need *need,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports);

/** A time stamp counter that is not invariant. */
void check_tsc(struct check *c);

/** A clock that nobody synchronises. @param state  what adjtimex() returned, -errno included */
void check_clock(struct check *c, int state, const struct timex *t);

/** The detector's UDP ports: one that is RoCEv2's, or that a socket of this host has. */
void check_udp_ports(struct check *c, const struct settings *s);

/* Ports: check/port.c */

enum check_flow {
	CHECK_FLOW_UNTRIED,
	CHECK_FLOW_TAKEN,
	CHECK_FLOW_REFUSED
};

struct check_port {
	const struct port_settings *settings;
	uint32_t index; /**< of section [port N] */
	/* from the configuration */
	uint32_t queues; /**< with flow rules, one for each RX role that owns streams */
	uint32_t burst;	 /**< packets of one frame on the busiest of them */
	/* from the device */
	bool present;
	bool is_virtual; /**< no PCI device */
	bool replay;	 /**< it waits for the receiver */
	int node;
	char name[RTE_ETH_NAME_MAX_LEN];
	char driver[32];
	bool can_split;
	bool reference;
	uint32_t max_queues;
	uint32_t ring_min, ring_max;
	uint32_t max_mtu;
	/* from setting it up */
	int set_up;	 /**< 0 or -errno, */
	char failed[64]; /**< ... and what failed */
	uint32_t used;	 /**< queues set up */
	uint32_t mtu;	 /**< in force */
	bool link_up;
	uint32_t mbps; /**< RTE_ETH_SPEED_NUM_UNKNOWN */
	enum check_flow flow;
	bool flow_addresses; /**< rules name the configured addresses */
	char flow_why[128];
	uint64_t checksums; /**< RX offloads: checksums that the port checks */
	int pause;	    /**< enum rte_eth_fc_mode, or -errno */
};

/** Ask EAL about a port, without touching it. */
void check_find_port(struct check_port *p, const struct settings *s, uint32_t index);

/** Set the port up with small pools, ask what can only be asked then, and close it. */
void check_try_port(struct check_port *p, const struct settings *s);

/** All rows of one port. */
void check_port(struct check *c, const struct settings *s, const struct check_port *p);

/** Whole packets, or split? */
static inline bool
check_port_splits(const struct check_port *p)
{
	return p->settings->mode != RX_MODE_SINGLE && p->can_split;
}

/** Is its NIC to write pixels into memory that a real GPU owns? */
static inline bool
check_port_writes_gpu(const struct check_port *p, const struct check_gpu *gpu)
{
	return gpu->wanted && gpu->present && !gpu->is_virtual && p->present && !p->is_virtual &&
		!p->reference;
}

/* Stores: check/egress.c */

struct rdma_dev;

struct check_egress {
	struct rdma_dev *dev; /**< open */
	int error;	      /**< 0 or -errno: it cannot be opened */
	uint64_t heap;	      /**< bytes of EAL memory that it takes */
	bool pins;	      /**< it pins what is registered: an adapter does */
};

/** Open the device, as a run does before it sets ports up. Nothing is sent. */
void check_open_egress(struct check_egress *e, const struct settings *s);

/** Close it; nothing if it is not open. */
void check_close_egress(struct check_egress *e);

/** All rows of [egress], if it is configured. */
void check_egress(struct check *c, const struct settings *s, const struct check_egress *e);

/* Its rows, each by itself; [egress] device is set. */

/** A device that could not be opened. */
void check_egress_device(struct check *c, const struct settings *s, const struct check_egress *e);

/** Addresses of stores that are none. Nobody is asked there. */
void check_egress_stores(struct check *c, const struct settings *s);

/** A key that cannot be read, is too short, or that others can read. */
void check_egress_key(struct check *c, const struct settings *s);

/** A journal that cannot be made or adopted, or is too small for its rate and batches. */
void check_journal(struct check *c, const struct settings *s);

/** A spill directory that cannot be written to, or has little room; n.a. without one. */
void check_spill(struct check *c, const struct settings *s);

/* Storage: check/storage.c */

/** The calibration as a run loads it. */
struct check_maps {
	struct calibration calibration;
	void *memory; /**< of its coefficients */
	bool loaded;
};

/**
 * Files that a run refuses: fail; no G0 pedestal, or a module whose maps are implausible (a row
 * each): warn.
 * @param maps  receives them; check_free_maps() frees them
 */
void check_calibration(struct check *c, const struct settings *s, struct check_maps *maps);

void check_free_maps(struct check_maps *maps);

/** Makes the files of the run as a start does, and removes them again. */
void check_directory(struct check *c, const struct settings *s, const struct check_maps *maps);

/** Room for few frames, of full images. */
void check_space(struct check *c, const struct settings *s);

/** A file system without direct I/O for our blocks; a file is made there, and unlinked at once. */
void check_direct_io(struct check *c, const struct settings *s);

#endif /* CHECK_H */
