/* SPDX-License-Identifier: BSD-3-Clause */
/* Several devices on one port: operations of one device on the port do not affect the others. */
#include <errno.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "port/ctl_plane.h"
#include "mcast/filter.h"
#include "roce_shared_rig.h"

/*
 * The port is removed, and another one gets its number. Station 0 becomes station 1, with the old
 * rings.
 */
static void
port_replace(bool started, struct rte_ring *rx[QUEUES], struct rte_ring *tx[QUEUES])
{
	const struct station left = station[0];
	const uint16_t id = nic.id;

	memcpy(rx, nic.rx, sizeof(nic.rx));
	memcpy(tx, nic.tx, sizeof(nic.tx));
	assert_int_equal(rte_eth_dev_stop(nic.id), 0);
	assert_int_equal(rte_eth_dev_close(nic.id), 0);
	port_make(started);
	assert_int_equal(nic.id, id);
	station[1] = left;
}

/* ---- the port itself ------------------------------------------------------------------------- */

/* The port is started by the first device, which is closed first. */
static void
test_runs_for_the_last(void **state)
{
	char pool[RTE_MEMPOOL_NAMESIZE];

	port_make(false);
	station_open(1, "10.0.0.");
	assert_true(port_runs());
	station_open(0, "10.0.0.");
	assert_answers(0);
	assert_answers(1);
	strcpy(pool, nic.pool->name);
	station_close(1);
	assert_true(port_runs());
	/* the mempool of its queues still exists */
	assert_ptr_equal(rte_mempool_lookup(pool), nic.pool);
	assert_answers(0);
	/* the queue can be used again */
	station_open(1, "10.0.0.");
	assert_answers(1);
	station_close(0);
	assert_true(port_runs());
	assert_answers(1);
	station_close(1);
	assert_false(port_runs());
	assert_null(rte_mempool_lookup(pool));
	port_free();
}

/* Another port got the number of a removed one whose device is still open. */
static void
test_number_again(void **state)
{
	struct rte_ring *rx[QUEUES], *tx[QUEUES];

	port_make(false);
	station_open(0, "fd00::");
	port_replace(false, rx, tx);
	station_open(0, "10.0.0.");
	assert_answers(0);
	station_close(1);
	assert_true(port_runs());
	assert_answers(0);
	station_close(0);
	assert_false(port_runs());
	port_free();
	rings_free(rx, tx);
}

static void
queue_info(struct rte_eth_dev *dev, uint16_t queue, struct rte_eth_txq_info *info)
{
	info->conf.offloads = queue == 2 ? RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE : 0;
}

/*
 * A queue that frees all mbufs to one pool (fast free) cannot be used, regardless of the other
 * devices.
 */
static void
test_queue_frees_fast(void **state)
{
	port_make(true);
	nic.ops.txq_info_get = queue_info;
	assert_null(rdma_dev_open("roce:port=0,queue=2,ip=10.0.0.3/24"));
	assert_int_equal(rte_errno, ENOTSUP);
	assert_null(rdma_dev_open("roce:port=0,queue=1,poll_groups=2,ip=10.0.0.2/24"));
	assert_int_equal(rte_errno, ENOTSUP);
	station_open(1, "10.0.0.");
	station_close(1);
	port_free();
}

/* ---- groups ---------------------------------------------------------------------------------- */

#define NODES4	     "01:00:5E:00:00:01 "
#define NODES6	     "33:33:00:00:00:01 "
#define SOLICITED(n) "33:33:FF:00:00:0" #n " "

/* The port's multicast list equals this one. */
static void
assert_list(const char *wanted)
{
	char text[RTE_ETHER_ADDR_FMT_SIZE * 32] = "", *end = text;

	assert_in_range(nic.nb_list, 0, 31);
	for (unsigned int i = 0; i < nic.nb_list; i++) {
		rte_ether_format_addr(end, RTE_ETHER_ADDR_FMT_SIZE, &nic.list[i]);
		end = strcat(end, " ") + RTE_ETHER_ADDR_FMT_SIZE;
	}
	assert_string_equal(text, wanted);
}

static uint64_t
refused(unsigned int queue)
{
	return station_stat(queue, "group_lists_refused");
}

/* Opening or closing one device does not disturb the other's neighbor discovery. */
static void
test_own_addresses(void **state)
{
	port_make(true);
	station_open(0, "fd00::");
	assert_list(NODES6 SOLICITED(1));
	station_open(1, "fd00::");
	assert_list(NODES6 SOLICITED(1) SOLICITED(2));
	station_open(2, "10.0.0.");
	station_close(0);
	assert_list(NODES6 SOLICITED(2));
	station_close(2);
	assert_list(NODES6 SOLICITED(2));
	station_close(1);
	assert_list("");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	port_free();
}

/* A group that two devices have joined stays until both have left it. */
static void
test_common_groups(void **state)
{
	struct rdma_conn *one, *two, *own;
	unsigned int lists;

	port_make(true);
	station_open(0, "10.0.0.");
	station_open(1, "10.0.0.");
	own = station_join(1, "239.1.0.9");
	one = station_join(0, "239.1.2.3");
	assert_list(NODES4 "01:00:5E:01:00:09 01:00:5E:01:02:03 ");
	lists = nic.lists;
	two = station_join(1, "239.1.2.3");
	/* the list is not set again, as a driver may lose frames meanwhile */
	assert_int_equal(nic.lists, lists);
	station_leave(one);
	assert_int_equal(nic.lists, lists);
	station_leave(own);
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	one = station_join(0, "239.1.2.3");
	station_leave(one);
	station_close(0);
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	station_leave(two);
	assert_list(NODES4);
	station_close(1);
	assert_list("");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	port_free();
}

/* Two groups with one Ethernet address: of one device, and of two devices. */
static void
test_common_address(void **state)
{
	struct rdma_conn *member[3];

	port_make(true);
	station_open(0, "10.0.0.");
	station_open(1, "10.0.0.");
	member[0] = station_join(0, "239.1.2.3");
	member[1] = station_join(0, "239.129.2.3");
	member[2] = station_join(1, "238.1.2.3");
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	station_leave(member[0]);
	station_leave(member[1]);
	assert_list(NODES4 "01:00:5E:01:02:03 ");
	station_leave(member[2]);
	assert_list(NODES4);
	station_close(0);
	station_close(1);
	port_free();
}

/*
 * More groups than the port's list can hold: the port receives all multicast until there are fewer,
 * for any order of leaving.
 */
static void
test_too_long(void **state)
{
	struct rdma_conn *member[2];

	port_make(true);
	nic.room = 3;
	station_open(0, "fd00::");
	station_open(1, "10.0.0.");
	assert_int_equal(refused(1), 0);
	member[0] = station_join(1, "239.1.2.3");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(1), 1);
	member[1] = station_join(1, "239.1.2.4");
	assert_int_equal(refused(1), 2);
	/* one device leaves a group that did not fit: still too many */
	station_leave(member[0]);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(1), 3);
	station_close(0);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	assert_list(NODES4 "01:00:5E:01:02:04 ");
	assert_int_equal(refused(1), 3);
	station_leave(member[1]);
	assert_list(NODES4);
	station_close(1);
	port_free();
}

/* Promiscuous and allmulticast mode of the application are not switched off. */
static void
test_not_ours(void **state)
{
	port_make(true);
	nic.room = 1;
	assert_int_equal(rte_eth_allmulticast_enable(nic.id), 0);
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	assert_int_equal(refused(1), 1);
	station_close(0);
	station_close(1);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	port_free();
}

/* More groups than can be counted */
static void
test_beyond_count(void **state)
{
	struct roce_gid group;

	port_make(true);
	for (unsigned int q = 0; q < QUEUES; q++) {
		struct roce_control *c;

		station_open(q, "10.0.0.");
		c = roce_dev(station[q].dev)->control;
		assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
		for (unsigned int i = 0; i < 250; i++) {
			group = roce_gid_v4(rte_cpu_to_be_32(0xef010000 | q << 8 | i));
			assert_int_equal(roce_membership_join(c, &group), 0);
		}
	}
	assert_int_equal(nic.nb_list, ROCE_FILTER_MAX);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(QUEUES - 1), 1);
	station_close(1);
	assert_int_equal(nic.nb_list, (QUEUES - 1) * 250 + 1);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	for (unsigned int q = 0; q < QUEUES; q++)
		if (station[q].dev)
			station_close(q);
	assert_list("");
	port_free();
}

/*
 * A port without multicast list receives all multicast, or everything, until the last device is
 * closed.
 */
static void
test_no_list(void **state)
{
	port_make(true);
	nic.ops.set_mc_addr_list = NULL;
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	assert_int_equal(refused(0), 2);
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 0);
	station_close(0);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 1);
	station_close(1);
	assert_int_equal(rte_eth_allmulticast_get(nic.id), 0);
	port_free();

	port_make(true);
	nic.ops.set_mc_addr_list = NULL;
	nic.ops.allmulticast_enable = NULL;
	station_open(0, "fd00::");
	station_open(1, "fd00::");
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 1);
	station_close(1);
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 1);
	station_close(0);
	assert_int_equal(rte_eth_promiscuous_get(nic.id), 0);
	port_free();
}

/* A device whose port was removed does not change the port that got its number. */
static void
test_list_of_another(void **state)
{
	struct rte_ring *rx[QUEUES], *tx[QUEUES];
	struct rdma_conn *member[2];

	port_make(true);
	station_open(0, "10.0.0.");
	member[0] = station_join(0, "239.1.2.3");
	port_replace(true, rx, tx);
	station_open(0, "10.0.0.");
	member[1] = station_join(0, "239.1.2.4");
	station_leave(member[0]);
	assert_list(NODES4 "01:00:5E:01:02:04 ");
	station_close(1);
	assert_list(NODES4 "01:00:5E:01:02:04 ");
	station_leave(member[1]);
	station_close(0);
	port_free();
	rings_free(rx, tx);
}

int
main(void)
{
	const char *argv[] = {"roce_shared_port", "--no-huge", "-m", "512", "--no-pci",
		"--no-shconf", "-l", "0", "--log-level", "braggline.rdma:emerg"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs_for_the_last),
		cmocka_unit_test(test_number_again),
		cmocka_unit_test(test_queue_frees_fast),
		cmocka_unit_test(test_own_addresses),
		cmocka_unit_test(test_common_groups),
		cmocka_unit_test(test_common_address),
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_not_ours),
		cmocka_unit_test(test_beyond_count),
		cmocka_unit_test(test_no_list),
		cmocka_unit_test(test_list_of_another),
	};

	if (rte_eal_init(RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
