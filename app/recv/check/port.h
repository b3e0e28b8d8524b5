/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check: Ethernet ports.
 */
#ifndef CHECK_PORT_H
#define CHECK_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>

struct check;
struct check_gpu;
struct port_settings;
struct settings;

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
	/* result of opening its RoCE device, or the adapter */
	bool rdma_tried;
	int rdma;	  /**< 0 or -errno */
	uint32_t address; /**< its IPv4 address, host byte order; 0: none */
	uint32_t mtu;	  /**< in use */
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
bool check_port_splits(const struct check_port *p);

/** Return true if the port's NIC is to write pixels to the memory of a physical GPU. */
bool check_port_writes_gpu(const struct check_port *p, const struct check_gpu *gpu);

#endif /* CHECK_PORT_H */
