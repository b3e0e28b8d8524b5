/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the log of port_open() when a port does not support what several RX lcores need: net_null
 * has no flow rules, net_pcap with one file has one queue, net_replay waits and needs neither.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <pcap/pcap.h>
#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_log.h>

#include <ethdev_driver.h>

#include "ethdev_find.h"
#include "port/memory.h"
#include "port/placement.h"
#include "port/pools.h"
#include "port/port.h"
#include "port/steering.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "settings.h"

#define UDP_PORT 50001
#define STREAMS	 4

#define ROCE_SOURCES 12 /* of the packets of the RoCE capture, the streams' first */

static char capture[] = "/tmp/port_test_XXXXXX", roce_capture[] = "/tmp/port_test_roce_XXXXXX";
static int promiscuous; /* result of rte_eth_promiscuous_enable() */
static uint64_t drops[PORT_DROPS];
static bool roce;		     /* open_port() opens a port of a RoCE device */
static struct source_filter sources; /* of all streams; the last byte of the address counts them */
static uint32_t nb_rules;
static uint32_t received[STREAMS][256]; /* packets of each queue, by the last byte of the source */

int __wrap_rte_eth_stats_get(uint16_t port, struct rte_eth_stats *stats);
int __wrap_rte_eth_promiscuous_enable(uint16_t port);

int
__wrap_rte_eth_promiscuous_enable(uint16_t port)
{
	return promiscuous;
}

int
__wrap_rte_eth_stats_get(uint16_t port, struct rte_eth_stats *stats)
{
	*stats = (struct rte_eth_stats){.imissed = 1, .rx_nombuf = 2};
	return 0;
}

/** Receive all packets of a port that was opened. */
static void
receive(const struct port *port)
{
	struct rte_mbuf *m[32];
	uint16_t n;

	memset(received, 0, sizeof(received));
	for (uint32_t q = 0; q < port->nb_queues; q++) {
		n = rte_eth_rx_burst(port->id, q, m, RTE_DIM(m));
		for (uint16_t i = 0; i < n; i++)
			received[q][rte_pktmbuf_mtod(m[i], const uint8_t *)[SOURCE_IP_FROM + 3]]++;
		rte_pktmbuf_free_bulk(m, n);
	}
}

/** Open a port for this many RX lcores, and get its log. @return number of queues, or -errno */
static int
open_port(
	const char *device, uint32_t rx_lcores, enum rx_steering steering, char *text, size_t size)
{
	const struct placement way = {.gpu = -1};
	struct settings s = {.slots = 2,
		.rx_lcores = rx_lcores,
		.udp_port = UDP_PORT,
		.nb_ports = 1,
		.ports = {{.nb_streams = STREAMS,
			.streams = {0, 1, 2, 3},
			.descriptors = 64,
			.mtu = 1500,
			.steering = steering}}};
	uint8_t owner[STREAMS];
	struct port_demand demand;
	struct memory memory;
	struct port port;
	FILE *log;
	int ret;

	detector_init(&s.detector, &jungfrau_ops, 2, 2);
	strcpy(s.ports[0].device, device);
	if (roce)
		strcpy(s.ports[0].rdma, "ip=10.1.2.1/16");
	for (uint32_t i = 0; i < STREAMS; i++)
		owner[i] = settings_stream_owner(&s, i);
	for (uint32_t i = 0; i < STREAMS; i++) {
		s.sources.filter[i] = sources;
		/* the last byte of the source address, and of the port */
		((uint8_t *)&s.sources.filter[i].value[SOURCE_WORD_IP])[3] += i;
		((uint8_t *)&s.sources.filter[i].port)[1] += i;
	}
	demand = port_demand_of(&s);
	memory_init(&memory, &way, 0);
	memset(text, 0, size);
	log = fmemopen(text, size, "w");
	assert_non_null(log);
	rte_openlog_stream(log);
	ret = port_open(&port, &s.ports[0], &s, owner, &demand, GK_MEMORY_HOST, &memory);
	rte_openlog_stream(NULL);
	fclose(log);
	memset(drops, 0, sizeof(drops));
	if (ret == 0) {
		ret = port.nb_queues;
		port_drops_add(&port, drops);
		nb_rules = port.nb_rules;
		receive(&port);
	}
	port_unsteer(&port);
	/* closing a virtual device would remove it */
	rte_eth_dev_stop(port.id);
	assert_int_equal(port_free_pools(&port), 0);
	memory_release(&memory);
	return ret;
}

static void
want(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("'%s', expected '%s'", text, part);
}

static int
begin(void **state)
{
	promiscuous = 0;
	roce = false;
	sources = (struct source_filter){0};
	return 0;
}

static void
rules_are_refused(void **state)
{
	char text[1024];

	assert_int_equal(open_port("net_null0", 2, RX_STEERING_AUTO, text, sizeof(text)), 1);
	want(text, "net_null0: cannot create a flow rule for UDP port 50001: ");
	want(text, "hands packets to 1 others; set steering = software");
	/* no message if one RX lcore has all packets, or if software steering is configured */
	assert_int_equal(open_port("net_null0", 1, RX_STEERING_AUTO, text, sizeof(text)), 1);
	assert_string_equal(text, "");
	assert_int_equal(open_port("net_null0", 2, RX_STEERING_SOFTWARE, text, sizeof(text)), 1);
	assert_string_equal(text, "");
	assert_int_equal(open_port("net_null0", 2, RX_STEERING_FLOW, text, sizeof(text)), -ENOTSUP);
	want(text, "cannot create a flow rule for UDP port 50001: ");
	want(text, "set steering = software or auto");
}

static void
queues_are_too_few(void **state)
{
	char text[1024];

	assert_int_equal(open_port("net_pcap0", 4, RX_STEERING_AUTO, text, sizeof(text)), 1);
	want(text, "net_pcap0: 1 RX queues available, 4 RX lcores need one each. One RX lcore");
	want(text, "hands packets to 3 others");
}

static void
a_replay_says_nothing(void **state)
{
	char text[1024];

	assert_int_equal(open_port("net_replay0", 2, RX_STEERING_AUTO, text, sizeof(text)), 2);
	assert_string_equal(text, "");
}

/* A replay without mbufs has lost no packets: it returns them in a later poll. */
static void
a_replay_that_waits_drops_nothing(void **state)
{
	char text[1024];

	assert_int_equal(open_port("net_null0", 1, RX_STEERING_AUTO, text, sizeof(text)), 1);
	assert_int_equal(drops[PORT_RING_FULL], 1);
	assert_int_equal(drops[PORT_NO_MBUF], 2);
	assert_int_equal(open_port("net_replay0", 2, RX_STEERING_AUTO, text, sizeof(text)), 2);
	assert_int_equal(drops[PORT_RING_FULL], 1);
	assert_int_equal(drops[PORT_NO_MBUF], 0);
}

static void
promiscuous_is_refused(void **state)
{
	char text[1024];

	promiscuous = -EIO;
	/* logged once, although the port is set up twice */
	assert_int_equal(open_port("net_null0", 2, RX_STEERING_AUTO, text, sizeof(text)), 1);
	want(text, "net_null0: cannot enable promiscuous mode: Input/output error");
	assert_null(strstr(strstr(text, "promiscuous") + 1, "promiscuous"));
	promiscuous = -ENOTSUP;
	assert_int_equal(open_port("net_null0", 1, RX_STEERING_AUTO, text, sizeof(text)), 1);
	assert_string_equal(text, "");
}

/* The port reports that its device was unplugged, if the driver can. */
static void
removal_is_reported(void **state)
{
	struct rte_eth_conf conf;
	char text[1024];
	uint32_t *flags;
	uint16_t id;

	assert_int_equal(rte_eth_dev_get_port_by_name("net_null0", &id), 0);
	flags = &rte_eth_devices[id].data->dev_flags;
	assert_int_equal(open_port("net_null0", 1, RX_STEERING_AUTO, text, sizeof(text)), 1);
	assert_int_equal(rte_eth_dev_conf_get(id, &conf), 0);
	assert_int_equal(conf.intr_conf.rmv, 0);
	*flags |= RTE_ETH_DEV_INTR_RMV;
	assert_int_equal(open_port("net_null0", 1, RX_STEERING_AUTO, text, sizeof(text)), 1);
	assert_int_equal(rte_eth_dev_conf_get(id, &conf), 0);
	assert_int_equal(conf.intr_conf.rmv, 1);
	*flags &= ~RTE_ETH_DEV_INTR_RMV;
}

/*
 * Flow rules contain the configured addresses. They match any address if none is configured, and on
 * ports that refuse rules with addresses.
 */
static void
rules_have_the_addresses(void **state)
{
	const uint8_t headers[SOURCE_HEADERS] = {[SOURCE_IP_FROM] = 10, 1, 0, 7, 10, 0, 0, 1};
	const uint8_t from[SOURCE_HEADERS] = {[SOURCE_IP_FROM] = 255, 255, 255, 0};
	uint64_t value[SOURCE_WORDS], mask[SOURCE_WORDS];
	struct source_filter filter;
	struct port_rule rule;

	source_words(headers, 0, value);
	source_words(from, 0, mask);
	source_filter_set(&filter, value, mask);
	port_rule_init(&rule, UDP_PORT, 0, &filter);
	assert_ptr_equal(rule.pattern[1].spec, &rule.ip);
	assert_ptr_equal(rule.pattern[1].mask, &rule.ip_mask);
	assert_int_equal(rule.ip.hdr.src_addr, RTE_BE32(0x0a010007));
	assert_int_equal(rule.ip_mask.hdr.src_addr, RTE_BE32(0xffffff00));
	assert_int_equal(rule.ip_mask.hdr.dst_addr, 0);
	memset(filter.mask, 0, sizeof(filter.mask));
	port_rule_init(&rule, UDP_PORT, 0, &filter);
	assert_null(rule.pattern[1].spec);
	port_rule_init(&rule, UDP_PORT, 0, NULL);
	assert_null(rule.pattern[1].spec);
}

/* RoCE packets of source 10.1.1.1 + i, and UDP source port 0xc000 + i, for each stream i. */
static void
set_sources(bool addresses, bool ports)
{
	const uint8_t headers[SOURCE_HEADERS] = {
		[SOURCE_IP_FROM] = 10, 1, 1, 1, [SOURCE_PORT_FROM] = 0xc0, 0};
	const uint8_t compared[SOURCE_HEADERS] = {[SOURCE_IP_FROM] = addresses ? 255 : 0,
		addresses ? 255 : 0,
		addresses ? 255 : 0,
		addresses ? 255 : 0,
		[SOURCE_PORT_FROM] = ports ? 255 : 0,
		ports ? 255 : 0};
	uint64_t value[SOURCE_WORDS], mask[SOURCE_WORDS];

	source_words(headers, 0, value);
	source_words(compared, 0, mask);
	source_filter_set(&sources, value, mask);
}

/* Packets of two streams each reach the queue of their RX role, and all others the first queue. */
static void
want_steered(void)
{
	assert_int_equal(nb_rules, STREAMS);
	for (uint32_t q = 0; q < 2; q++)
		for (uint32_t i = 1; i <= ROCE_SOURCES; i++)
			assert_int_equal(received[q][i], q == (i == 3 || i == 4));
}

/* RoCE packets have one destination port: rules match the address or the UDP port of the source. */
static void
roce_is_steered_by_source(void **state)
{
	char text[1024];

	roce = true;
	set_sources(true, false);
	assert_int_equal(open_port("net_replay1", 2, RX_STEERING_FLOW, text, sizeof(text)), 2);
	assert_string_equal(text, "");
	want_steered();
	set_sources(false, true);
	assert_int_equal(open_port("net_replay1", 2, RX_STEERING_FLOW, text, sizeof(text)), 2);
	want_steered();
	set_sources(true, true);
	assert_int_equal(open_port("net_replay1", 2, RX_STEERING_AUTO, text, sizeof(text)), 2);
	want_steered();
	/* one RX role: also ARP reaches its queue */
	assert_int_equal(open_port("net_replay1", 1, RX_STEERING_AUTO, text, sizeof(text)), 1);
	assert_int_equal(nb_rules, 0);
}

/* Without sources, RSS distributes the packets. Each RX role keeps its queue. */
static void
roce_of_any_source_is_spread(void **state)
{
	char text[1024];
	uint32_t n = 0;

	roce = true;
	assert_int_equal(open_port("net_replay1", 2, RX_STEERING_AUTO, text, sizeof(text)), 2);
	assert_string_equal(text, "");
	assert_int_equal(nb_rules, 1);
	for (uint32_t i = 1; i <= ROCE_SOURCES; i++)
		n += received[1][i];
	assert_in_range(n, 1, ROCE_SOURCES - 1);
	assert_int_equal(
		open_port("net_replay1", 2, RX_STEERING_FLOW, text, sizeof(text)), -ENOTSUP);
	want(text, "by destination port: set [detector] source");
}

static void
roce_keeps_its_queues(void **state)
{
	char text[1024];

	roce = true;
	set_sources(true, false);
	assert_int_equal(open_port("net_null0", 2, RX_STEERING_AUTO, text, sizeof(text)), 2);
	want(text, "cannot create a flow rule for the source of RoCE stream 0: ");
	want(text, "may reach the first RX lcore, which then hands them to 1 others");
	assert_int_equal(open_port("net_null0", 2, RX_STEERING_FLOW, text, sizeof(text)), -ENOTSUP);
}

/* The queue pairs of an RX role are in the poll group of its own queue. */
static void
roce_needs_a_queue_for_each_rx_role(void **state)
{
	char text[1024];

	roce = true;
	assert_int_equal(open_port("net_pcap0", 2, RX_STEERING_AUTO, text, sizeof(text)), -ENOTSUP);
	want(text,
		"net_pcap0: 1 RX queue for RoCE, expected one for each of 2 RX lcores; set "
		"[lcores] rx_lcores = 1, or give each RX lcore a port of its own");
	assert_int_equal(
		open_port("net_null0", 2, RX_STEERING_SOFTWARE, text, sizeof(text)), -ENOTSUP);
	want(text, "net_null0: 1 RX queue for RoCE with steering = software, expected one");
	assert_int_equal(open_port("net_null0", 1, RX_STEERING_SOFTWARE, text, sizeof(text)), 1);
	assert_string_equal(text, "");
}

/* Packets to UDP port 4791: of four streams, and of others. */
static void
write_roce(void)
{
	const struct pcap_pkthdr header = {.caplen = 60, .len = 60};
	const int fd = mkstemp(roce_capture);
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 65535);
	pcap_dumper_t *dump = pcap_dump_open(pcap, roce_capture);

	for (uint8_t i = 0; i < ROCE_SOURCES; i++) {
		const uint8_t packet[60] = {[12] = 8,
			[14] = 0x45,
			[17] = 46,
			[23] = IPPROTO_UDP,
			[SOURCE_IP_FROM] = 10,
			1,
			1,
			1 + i,
			10,
			1,
			2,
			1,
			0xc0,
			i < STREAMS ? i : 0xff,
			4791 >> 8,
			4791 & 0xff,
			0,
			26};

		pcap_dump((u_char *)dump, &header, packet);
	}
	pcap_dump_close(dump);
	pcap_close(pcap);
	close(fd);
}

static void
write_capture(void)
{
	const struct pcap_pkthdr header = {.caplen = 60, .len = 60};
	const int fd = mkstemp(capture);
	pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 65535);
	pcap_dumper_t *dump = pcap_dump_open(pcap, capture);

	pcap_dump((u_char *)dump, &header, (u_char[60]){0});
	pcap_dump_close(dump);
	pcap_close(pcap);
	close(fd);
}

/* A port has a name or a number, and a message has the names of all ports, as far as they fit. */
static void
ports_are_named(void **state)
{
	static const char *const others[] = {"", "+0", " 0", "0x0", "99", "18446744073709551616"};
	char names[ETHDEV_NAMES_SIZE], name[RTE_ETH_NAME_MAX_LEN], *end;
	uint16_t id, number;
	uint32_t n;

	assert_int_equal(ethdev_find("net_null0", &id), 0);
	snprintf(name, sizeof(name), "%u", id);
	assert_int_equal(ethdev_find(name, &number), 0);
	assert_int_equal(number, id);
	for (n = 0; n < RTE_DIM(others); n++)
		assert_int_equal(ethdev_find(others[n], &id), -ENODEV);
	ethdev_names(names);
	assert_non_null(strstr(names, "net_replay0, "));
	assert_non_null(strstr(names, "net_null0"));
	assert_null(strstr(names, "..."));
	for (n = 0; n < 8; n++) {
		snprintf(name, sizeof(name), "net_null_with_a_very_long_name_to_cut_%u", n);
		assert_int_equal(rte_vdev_init(name, ""), 0);
	}
	ethdev_names(names);
	end = strstr(names, ", ...");
	assert_non_null(end);
	assert_string_equal(end, ", ...");
	assert_true(memcmp(end - strlen("cut_0"), "cut_", strlen("cut_")) == 0);
	while (n-- > 0) {
		snprintf(name, sizeof(name), "net_null_with_a_very_long_name_to_cut_%u", n);
		assert_int_equal(rte_vdev_uninit(name), 0);
	}
}

#define PORT(test) cmocka_unit_test_setup(test, begin)

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		PORT(ports_are_named),
		PORT(rules_are_refused),
		PORT(queues_are_too_few),
		PORT(a_replay_says_nothing),
		PORT(a_replay_that_waits_drops_nothing),
		PORT(promiscuous_is_refused),
		PORT(removal_is_reported),
		PORT(rules_have_the_addresses),
		PORT(roce_is_steered_by_source),
		PORT(roce_of_any_source_is_spread),
		PORT(roce_keeps_its_queues),
		PORT(roce_needs_a_queue_for_each_rx_role),
	};
	char replay[64], replay_roce[64], pcap[64];
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"512"}, (char[]){"--no-telemetry"},
		(char[]){"--vdev"}, replay, (char[]){"--vdev"}, replay_roce, (char[]){"--vdev"},
		pcap, (char[]){"--vdev"}, (char[]){"net_null0"}};
	int failed;

	write_capture();
	write_roce();
	snprintf(replay_roce, sizeof(replay_roce), "net_replay1,file=%s", roce_capture);
	snprintf(replay, sizeof(replay), "net_replay0,file=%s", capture);
	snprintf(pcap, sizeof(pcap), "net_pcap0,rx_pcap=%s", capture);
	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	failed = cmocka_run_group_tests_name("port", tests, NULL, NULL);
	unlink(capture);
	unlink(roce_capture);
	rte_eal_cleanup();
	return failed;
}
