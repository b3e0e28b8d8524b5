/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * `--check`: checks of the host and the settings before the first run.
 *
 * A row is the result of one item: the value found, a verdict, and a one-line fix. An item is a
 * function that evaluates facts and adds rows. The facts are files below a replaceable root of
 * /proc and /sys, or a structure that another function has filled from EAL. So unit tests cover
 * every verdict.
 *
 * Verdicts: fail = a run would not work or would lose data at once; warn = a run works, but may
 * lose data under load; n.a. = the item does not apply here, and the value gives the reason.
 *
 * Only the main lcore may call these functions.
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

#define CHECK_ROWS_MAX 320 /**< for 16 ports and all other items */

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
	const char *root; /**< prefix of /proc and /sys; "" on a real host */
	uint32_t nb_rows;
	struct check_row rows[CHECK_ROWS_MAX];
};

/** Add a row. `item` may be "port 0: link"; the other arguments are its value, printf-style. */
void check_add(struct check *c, enum check_verdict verdict, const char *item, const char *value,
	...) __attribute__((format(printf, 4, 5)));

/** Set the fix of the last row. */
void check_fix(struct check *c, const char *fix, ...) __attribute__((format(printf, 2, 3)));

/**
 * Read a small file below the root. The final newline is removed.
 * @param path  printf-style; starts with /proc or /sys
 * @return length of the text, or -errno
 */
int check_read(const struct check *c, char *text, size_t size, const char *path, ...)
	__attribute__((format(printf, 4, 5)));

/** Read a number from a file below the root. @return the number, or -1 */
int64_t check_read_number(const struct check *c, const char *path, ...)
	__attribute__((format(printf, 2, 3)));

/** Parse a CPU list in the kernel's format, `0-3,8`. @return number of CPUs */
int check_parse_cpus(const char *list, cpu_set_t *cpus);

/** Format a CPU list in the kernel's format; `none` if empty. @return text */
const char *check_print_cpus(const cpu_set_t *cpus, char *text, size_t size);

/** Format a size, e.g. `2.3 GiB`. @return text */
const char *check_print_bytes(uint64_t bytes, char text[16]);

/** Print all rows and the totals. @return number of rows that fail */
uint32_t check_print(const struct check *c, FILE *out);

/**
 * Run all items that apply to these settings, and print the table. Sets up the ports for a moment
 * with small pools, because their drivers report some properties only then.
 * @param way  result of placement_choose() for the settings, including its errors
 * @return number of rows that fail
 */
uint32_t check_run(const struct settings *s, const struct placement *way, FILE *out);

/* CPUs: check/cpu.c */

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

/*
 * Items. Each adds one row, unless its comment says otherwise. Its verdict is n.a. if the kernel
 * does not provide the information. If all ports are replays, which wait for the receiver, it is
 * also n.a. for items that only matter for live packets.
 */

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

/* Memory: check/memory.c */

struct check_gpu {
	bool present;
	bool is_virtual; /**< gpu_host: a GPU device in host memory */
	bool wanted;	 /**< receives packets, if ports can reach it */
	bool packets;	 /**< packets are in its memory */
	bool results;	 /**< results are in its memory */
	int node;
	uint64_t bytes; /**< memory size of the device */
	char name[64];
};

/** State of EAL memory on the node where the receiver allocates. */
struct check_heap {
	bool huge; /**< EAL can map more huge pages; false: it cannot grow */
	int node;
	uint64_t free;
	uint64_t largest; /**< largest free piece */
	uint64_t taken;	  /**< used by EAL and drivers so far */
};

/** Memory that a run will allocate. */
struct check_need {
	uint64_t heap;	  /**< bytes of EAL memory */
	uint64_t largest; /**< largest single allocation */
	const char *largest_name;
	uint64_t device; /**< bytes of GPU memory */
	uint64_t ring;	 /**< journal bytes that an [egress] adapter locks; not EAL memory */
};

struct check_port;

/** Find the GPU of the settings, or EAL's first GPU. `present` is false if there is none. */
void check_find_gpu(const struct settings *s, const struct placement *way, struct check_gpu *gpu);

/** Read the state of EAL memory on this lcore's node; all sizes are 0 if EAL gives none. */
void check_find_heap(struct check_heap *heap);

/**
 * Add up the memory that a run with these settings allocates, without the part of [egress].
 * @param ports  s->nb_ports elements
 */
void check_count_need(const struct settings *s, const struct check_gpu *gpu,
	const struct check_port *ports, struct check_need *need);

/** Check for a missing GPU, or one with too little memory for packets, results and gangs. */
void check_gpu(struct check *c, const struct settings *s, const struct check_gpu *gpu,
	const struct check_need *need);

/** Check for a gang kernel that is not built in or does not run on the GPU. */
void check_kernel(struct check *c, const struct settings *s, const struct placement *way);

/**
 * Check where pixels and results are stored. Fail: the settings demand GPU memory, which is
 * impossible; warn: gangs run on the GPU, but packets are in host memory.
 */
void check_way(struct check *c, const struct settings *s, const struct placement *way);

/** Check that EAL has enough free memory, in total and for the largest piece. */
void check_heap(struct check *c, const struct check_heap *heap, const struct check_need *need);

/** Check that the free huge pages of the heap's node, of all sizes, are enough for the run. */
void check_huge_pages(
	struct check *c, const struct check_heap *heap, const struct check_need *need);

/* The rest of the host: check/host.c */

/** Check that lcores, memory, GPU and ports are on one NUMA node. */
void check_numa(struct check *c, const struct check_lcores *l, const struct check_heap *heap,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports);

/** Check for automatic NUMA balancing, which causes page faults on lcores. */
void check_numa_balancing(struct check *c);

/** Check for scheduling by session (autogroup), in which polling lcores starve kernel workers. */
void check_autogroup(struct check *c);

/** Check for an IOMMU that translates the DMA addresses of ports. */
void check_iommu(struct check *c, const struct check_port *ports, uint32_t nb_ports);

/** Check for ports that need virtual addresses. @param va  EAL uses virtual addresses for DMA */
void check_iova(struct check *c, bool va, const struct check_port *ports, uint32_t nb_ports);

/** Check that the kernel module for DMA to GPU memory is loaded if a NIC is to write there. */
void check_gpu_direct(struct check *c, const struct check_gpu *gpu, const struct check_port *ports,
	uint32_t nb_ports);

/** Check that devices do not lock more memory than allowed. @param limit  RLIMIT_MEMLOCK, bytes */
void check_locked_memory(struct check *c, const struct rlimit *limit, const struct check_need *need,
	const struct check_gpu *gpu, const struct check_port *ports, uint32_t nb_ports);

/** Check that the time stamp counter is invariant. */
void check_tsc(struct check *c);

/** Check that the clock is synchronized. @param state  return value of adjtimex(), or -errno */
void check_clock(struct check *c, int state, const struct timex *t);

/** Check the detector's UDP ports: not RoCEv2's port, and not in use by a socket of this host. */
void check_udp_ports(struct check *c, const struct settings *s);

/* Ports: check/port.c */

enum check_flow {
	CHECK_FLOW_UNTRIED,
	CHECK_FLOW_TAKEN,
	CHECK_FLOW_REFUSED
};

struct check_port {
	const struct port_settings *settings;
	uint32_t index; /**< number of the section [port N] */
	/* from the configuration */
	uint32_t queues; /**< with flow rules: one for each RX role that owns streams */
	uint32_t burst;	 /**< packets of one frame on the busiest queue */
	/* from the device */
	bool present;
	bool is_virtual; /**< no PCI device */
	bool replay;	 /**< a replay, which waits for the receiver */
	int node;
	char name[RTE_ETH_NAME_MAX_LEN];
	char driver[32];
	bool can_split;
	bool reference;
	uint32_t max_queues;
	uint32_t ring_min, ring_max;
	uint32_t max_mtu;
	/* result of setting it up */
	int set_up;	 /**< 0 or -errno */
	char failed[64]; /**< the step that failed */
	uint32_t used;	 /**< queues set up */
	uint32_t mtu;	 /**< in use */
	bool link_up;
	uint32_t mbps; /**< link speed, or RTE_ETH_SPEED_NUM_UNKNOWN */
	enum check_flow flow;
	bool flow_addresses; /**< the rules match the configured addresses */
	char flow_why[128];
	uint64_t checksums; /**< RX offloads: checksums that the port verifies */
	int pause;	    /**< enum rte_eth_fc_mode, or -errno */
};

/** Read the properties of a port from EAL. The port is not changed. */
void check_find_port(struct check_port *p, const struct settings *s, uint32_t index);

/** Set up the port with small pools, read the properties that need this, and close it. */
void check_try_port(struct check_port *p, const struct settings *s);

/** Add all rows of one port. */
void check_port(struct check *c, const struct settings *s, const struct check_port *p);

/** Return true if the port splits packets. */
static inline bool
check_port_splits(const struct check_port *p)
{
	return p->settings->mode != RX_MODE_SINGLE && p->can_split;
}

/** Return true if the port's NIC is to write pixels to the memory of a physical GPU. */
static inline bool
check_port_writes_gpu(const struct check_port *p, const struct check_gpu *gpu)
{
	return gpu->wanted && gpu->present && !gpu->is_virtual && p->present && !p->is_virtual &&
		!p->reference;
}

/* Stores: check/egress.c */

struct rdma_dev;

struct check_egress {
	struct rdma_dev *dev; /**< open device */
	int error;	      /**< 0, or -errno of opening it */
	uint64_t heap;	      /**< bytes of EAL memory that it uses */
	bool pins;	      /**< registered memory is locked, as for an RDMA adapter */
};

/** Open the device. As in a run, this comes before the ports are set up. Nothing is sent. */
void check_open_egress(struct check_egress *e, const struct settings *s);

/** Close the device if it is open. */
void check_close_egress(struct check_egress *e);

/** Add all rows of [egress], if it is configured. */
void check_egress(struct check *c, const struct settings *s, const struct check_egress *e);

/* The rows of [egress], one function each. [egress] device is set. */

/** Check that the device could be opened. */
void check_egress_device(struct check *c, const struct settings *s, const struct check_egress *e);

/** Check the syntax of the addresses of stores. The stores are not contacted. */
void check_egress_stores(struct check *c, const struct settings *s);

/** Check for a key that is unreadable, too short, or readable by other users. */
void check_egress_key(struct check *c, const struct settings *s);

/**
 * Check for a journal that cannot be created or reused, or is too small for its rate and batches.
 */
void check_journal(struct check *c, const struct settings *s);

/** Check that the spill directory is writable and has enough free space; n.a. if none is set. */
void check_spill(struct check *c, const struct settings *s);

/* Storage: check/storage.c */

/** The calibration, loaded as in a run. */
struct check_maps {
	struct calibration calibration;
	void *memory; /**< memory of the coefficients */
	bool loaded;
};

/**
 * Check the calibration. Fail: files that a run refuses; warn: no G0 pedestal, or a module with
 * implausible maps (one row each).
 * @param maps  out; free with check_free_maps()
 */
void check_calibration(struct check *c, const struct settings *s, struct check_maps *maps);

void check_free_maps(struct check_maps *maps);

/** Create the files of the run as at its start, and remove them again. */
void check_directory(struct check *c, const struct settings *s, const struct check_maps *maps);

/** Check the free disk space, in full images. */
void check_space(struct check *c, const struct settings *s);

/** Check that the file system supports direct I/O with our block size, on a temporary file. */
void check_direct_io(struct check *c, const struct settings *s);

#endif /* CHECK_H */
