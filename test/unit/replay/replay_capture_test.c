/* SPDX-License-Identifier: BSD-3-Clause */
/* net_replay: captures, device arguments, loops and pace, memory. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pcap/pcap.h>
#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include "replay_fixture.h"

static void
loops_are_exact(void **state)
{
	struct rte_mbuf *m[64];
	uint16_t port;

	write_equal(7, 200);
	for (uint16_t burst = 1; burst <= 64; burst += 9) {
		uint32_t n = 0, got;

		port = start_single("loops=13", roomless, 0);
		while ((got = rte_eth_rx_burst(port, 0, m, burst)) != 0) {
			for (uint32_t i = 0; i < got; i++)
				assert_int_equal(counter_of(m[i]), (n + i) % 7);
			rte_pktmbuf_free_bulk(m, got);
			n += got;
		}
		assert_int_equal(n, 7 * 13);
		assert_int_equal(rte_eth_rx_burst(port, 0, m, burst), 0);
		assert_int_equal(xstat(port, "replay_loops_done"), 13);
		close_port(port);
	}
	port = start_single("loops=0", roomless, 0);
	for (uint32_t i = 0; i < 1000; i++) {
		assert_int_equal(rte_eth_rx_burst(port, 0, m, 64), 64);
		rte_pktmbuf_free_bulk(m, 64);
	}
	assert_int_equal(xstat(port, "replay_done"), 0);
	close_port(port);
}

static void
link_is_up_until_the_end_and_start_begins_anew(void **state)
{
	struct rte_eth_link link;
	struct rte_mbuf *m[64];
	uint16_t port;

	write_equal(40, 200);
	port = start_single("", roomless, 0);
	for (uint32_t round = 0; round < 3; round++) {
		uint32_t n = round == 0 ? 15 : 40; /* the first run ends early */

		assert_int_equal(receive(port, 0, m, n), n);
		assert_int_equal(counter_of(m[0]), 0);
		assert_int_equal(rte_eth_link_get_nowait(port, &link), 0);
		assert_int_equal(link.link_status, round == 0);
		rte_pktmbuf_free_bulk(m, n);
		assert_int_equal(rte_eth_dev_stop(port), 0);
		assert_int_equal(rte_eth_dev_start(port), 0);
		assert_int_equal(rte_eth_link_get_nowait(port, &link), 0);
		assert_int_equal(link.link_status, RTE_ETH_LINK_UP);
	}
	close_port(port);
}

static void
link_is_up_without_rx_queues(void **state)
{
	const struct rte_eth_conf conf = {0};
	struct rte_eth_link link;
	int port;

	write_equal(4, 200);
	port = open_port("");
	assert_true(port >= 0);
	assert_int_equal(xstat((uint16_t)port, "replay_done"), 0); /* not started */
	assert_int_equal(rte_eth_dev_configure((uint16_t)port, 0, 1, &conf), 0);
	assert_int_equal(rte_eth_tx_queue_setup((uint16_t)port, 0, 64, 0, NULL), 0);
	assert_int_equal(rte_eth_dev_start((uint16_t)port), 0);
	assert_int_equal(rte_eth_link_get_nowait((uint16_t)port, &link), 0);
	assert_int_equal(link.link_status, RTE_ETH_LINK_UP);
	assert_int_equal(xstat((uint16_t)port, "replay_done"), 0);
	close_port((uint16_t)port);
}

static void
paced_packets_are_never_early(void **state)
{
	const uint64_t rate = 30000, hz = rte_get_tsc_hz();
	struct rte_mbuf *m[64];
	uint64_t begin, end, n = 0;
	uint16_t port;

	write_equal(100, 200);
	port = start_single("loops=15,rate=30000", roomless, 0);
	rte_delay_ms(5); /* the clock starts with the first burst, not with the port */
	begin = rte_rdtsc();
	do {
		uint16_t got = rte_eth_rx_burst(port, 0, m, 64);

		end = rte_rdtsc();
		n += got;
		rte_pktmbuf_free_bulk(m, got);
		/* packet k is due at k / rate after a time that is not before `begin` */
		assert_true(n <= (end - begin) * rate / hz + 1);
	} while (n < 1500 && end - begin < 5 * hz);
	assert_int_equal(n, 1500);
	assert_true(end - begin >= 1499 * hz / rate);
	close_port(port);
}

static void
malformed_arguments_are_refused(void **state)
{
	static const char *const bad[] = {"loops=x", "loops=-1", "loops=", "loops=1,loops=2",
		"rate=fast", "rate=99999999999999", "queues=0", "queues=5000", "align_at=70000",
		"colour=blue", "rewrite=42", "rewrite=42:8:le", "rewrite=42:9:le:1",
		"rewrite=42:0:le:1", "rewrite=42:8:me:1", "rewrite=42:8:le:x",
		"rewrite=42:8:le:1:1", "rewrite=65530:8:le:1",
		"rewrite=42:8:le:1,rewrite=49:1:le:1"};

	write_equal(4, 200);
	for (uint32_t i = 0; i < RTE_DIM(bad); i++)
		assert_int_equal(open_port(bad[i]), -1);
	assert_int_not_equal(rte_vdev_init("net_replay0", ""), 0);
	assert_int_not_equal(rte_vdev_init("net_replay0", "file="), 0);
	assert_int_not_equal(rte_vdev_init("net_replay0", "file=/nonexistent.pcap"), 0);
	assert_int_equal(rte_eth_dev_count_avail(), 0);
}

static void
damaged_captures_are_refused(void **state)
{
	pcap_t *pcap;

	write_equal(4, 200);
	assert_int_equal(truncate(capture, 24), 0); /* no packets */
	assert_int_equal(open_port(""), -1);
	assert_int_equal(truncate(capture, 10), 0);
	assert_int_equal(open_port(""), -1);
	pcap = pcap_open_dead(DLT_RAW, 65535);
	pcap_dump_close(pcap_dump_open(pcap, capture));
	pcap_close(pcap);
	assert_int_equal(open_port(""), -1);
}

/*
 * A capture that ends in the middle of a packet, as after tcpdump was killed or the disk was full.
 */
static void
whole_records_of_a_cut_capture_are_delivered(void **state)
{
	static const off_t cut[] = {24 + 3 * 216 + 100, 24 + 3 * 216 + 16, 24 + 3 * 216 + 7};
	struct rte_mbuf *m[8];

	for (uint32_t i = 0; i < RTE_DIM(cut); i++) {
		uint16_t port;

		write_equal(4, 200);
		assert_int_equal(truncate(capture, cut[i]), 0);
		port = start_single("", roomless, 0);
		assert_int_equal(receive(port, 0, m, 4), 3);
		rte_pktmbuf_free_bulk(m, 3);
		close_port(port);
	}
}

/*
 * A packet with a wrong length in the middle also extends past the end of the file, and hides the
 * packets after it: it is not a truncated capture.
 */
static void
a_wrong_length_is_not_a_cut(void **state)
{
	const uint32_t length[2] = {250000, 250000};
	FILE *f;

	write_equal(1000, 200);
	f = fopen(capture, "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, 24 + 216 + 8, SEEK_SET), 0);
	assert_int_equal(fwrite(length, sizeof(length), 1, f), 1);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(open_port(""), -1);
}

/* Files are read twice, and the log of several ports must tell which port a line refers to. */
static void
messages_name_port_and_expected_value(void **state)
{
	static const struct {
		const char *args, *says;
	} wrong[] = {
		{"loops=x", "net_replay0: loops=x: expected a number"},
		{"speed=0", "net_replay0: speed=0: "},
		{"loss=2", "net_replay0: loss=2: "},
		{"file=-", "net_replay0: file=-: expected a regular file"},
		{"file=/dev/null", "net_replay0: file=/dev/null: expected a regular file"},
		{"file=/nonexistent", "net_replay0: /nonexistent"},
		{"file=/a=b", "net_replay0: argument \"file=/a=b\" has more than one '='"},
		{"file=/a,b",
			"net_replay0: argument \"b\" has no '=': expected NAME=VALUE, with "
			"',' between arguments and no ',' or '=' in a value such as a path"},
		{"colour=blue", "net_replay0: argument \"colour=blue\" is not known"},
	};
	char fifo[] = "/tmp/replay_fifo_XXXXXX", args[64], *text = NULL;
	size_t size;
	FILE *log = open_memstream(&text, &size);

	write_equal(4, 200);
	assert_non_null(log);
	assert_int_equal(rte_openlog_stream(log), 0);
	for (uint32_t i = 0; i < RTE_DIM(wrong); i++) {
		rewind(log);
		assert_int_equal(open_port(wrong[i].args), -1);
		fflush(log);
		assert_non_null(strstr(text, wrong[i].says));
	}
	close(mkstemp(fifo));
	unlink(fifo);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	snprintf(args, sizeof(args), "file=%s", fifo);
	rewind(log);
	assert_int_equal(open_port(args), -1); /* and does not wait for a writer */
	fflush(log);
	rte_openlog_stream(NULL);
	unlink(fifo);
	assert_non_null(strstr(text, "expected a regular file"));
	fclose(log);
	free(text);
}

/* Frames of one interface at even seconds, of the other at odd ones. */
static void
files_are_merged_by_time(void **state)
{
	char args[128], second[] = "/tmp/replay_second_XXXXXX";
	static uint8_t frame[100];
	struct rte_mbuf *m[20];
	uint16_t port;
	int fd = mkstemp(second);

	assert_true(fd >= 0);
	close(fd);
	for (uint32_t k = 0; k < 2; k++) {
		pcap_t *pcap = pcap_open_dead(DLT_EN10MB, 65535);
		pcap_dumper_t *dump = pcap_dump_open(pcap, k == 0 ? capture : second);

		assert_non_null(dump);
		for (uint32_t i = 0; i < 10; i++) {
			struct pcap_pkthdr header = {.len = 100, .caplen = 100};

			header.ts.tv_sec = 2 * i + k;
			make_frame(frame, 2 * i + k, 100, (uint16_t)(5000 + (2 * i + k) % 4));
			pcap_dump((u_char *)dump, &header, frame);
		}
		pcap_dump_close(dump);
		pcap_close(pcap);
	}
	snprintf(args, sizeof(args), "file=%s", second);
	port = start_single(args, roomless, 0);
	assert_int_equal(receive(port, 0, m, 20), 20);
	for (uint32_t i = 0; i < 20; i++)
		assert_content(m[i], i, 100);
	rte_pktmbuf_free_bulk(m, 20);
	assert_int_equal(xstat(port, "replay_capture_packets"), 20);
	close_port(port);
	assert_pool_sound(roomless);
	unlink(second);
	assert_int_equal(open_port(args), -1); /* the second file is missing */
}

static void
short_records_are_delivered_and_counted(void **state)
{
	static const uint32_t len[] = {1000, 100, 0};
	struct rte_mbuf *m[30];
	uint16_t port;

	write_capture(30, len, RTE_DIM(len), 128);
	port = start_single("", roomless, 0);
	assert_int_equal(receive(port, 0, m, 30), 20);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(m[i]->pkt_len, i % 2 ? 100 : 128);
	assert_int_equal(xstat(port, "replay_capture_packets"), 20);
	assert_int_equal(xstat(port, "replay_capture_truncated_records"), 10);
	assert_int_equal(xstat(port, "replay_capture_empty_records"), 10);
	rte_pktmbuf_free_bulk(m, 20);
	close_port(port);
}

static void
pcapng_is_read(void **state)
{
	uint32_t shb[] = {0x0a0d0d0a, 28, 0x1a2b3c4d, 1, UINT32_MAX, UINT32_MAX, 28};
	uint32_t idb[] = {1, 20, DLT_EN10MB, 65535, 20};
	uint8_t frame[200];
	struct rte_mbuf *m[8];
	FILE *file = fopen(capture, "w");
	uint16_t port;

	assert_non_null(file);
	fwrite(shb, sizeof(shb), 1, file);
	fwrite(idb, sizeof(idb), 1, file);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t epb[] = {6, 32 + sizeof(frame), 0, 0, i, sizeof(frame), sizeof(frame)};
		uint32_t total = 32 + sizeof(frame);

		make_frame(frame, i, sizeof(frame), (uint16_t)(5000 + i % 4));
		fwrite(epb, sizeof(epb), 1, file);
		fwrite(frame, sizeof(frame), 1, file);
		fwrite(&total, sizeof(total), 1, file);
	}
	fclose(file);
	port = start_single("", roomless, 0);
	assert_int_equal(receive(port, 0, m, 8), 5);
	for (uint32_t i = 0; i < 5; i++)
		assert_content(m[i], i, sizeof(frame));
	rte_pktmbuf_free_bulk(m, 5);
	close_port(port);
}

static size_t
heap_used(void)
{
	struct rte_malloc_socket_stats stats;

	assert_int_equal(rte_malloc_get_socket_stats(0, &stats), 0);
	return stats.heap_allocsz_bytes;
}

static void
short_memory_is_refused_and_returned(void **state)
{
	void *hog[512];
	uint32_t n = 0;
	size_t used;
	int port;

	write_equal(2000, 9000); /* 18 MB */
	while (n < RTE_DIM(hog) && (hog[n] = rte_malloc(NULL, 4 << 20, 0)) != NULL)
		n++;
	assert_true(n > 0 && n < RTE_DIM(hog));
	used = heap_used();
	assert_int_equal(open_port(""), -1);
	assert_int_equal(heap_used(), used);
	while (n > 0)
		rte_free(hog[--n]);
	port = open_port("");
	assert_true(port >= 0);
	assert_int_equal(rte_eth_dev_close((uint16_t)port), 0);
	rte_vdev_uninit("net_replay0");
}

/* 128 bytes of an aligned frame of 60 bytes, and the 72 bytes that the guide states. */
static void
the_guide_says_what_memory_is_needed(void **state)
{
	const uint32_t packets = 100000;
	const size_t needed = packets * (128 + 72), spare = 1 << 20;
	void *hog[4096], *reserve;
	uint32_t n = 0;
	int port;

	write_equal(packets, 60);
	reserve = rte_malloc(NULL, needed + spare, 0);
	assert_non_null(reserve);
	for (size_t bytes = 4 << 20; bytes >= 64 << 10; bytes /= 2)
		while (n < RTE_DIM(hog) && (hog[n] = rte_malloc(NULL, bytes, 0)) != NULL)
			n++;
	assert_true(n < RTE_DIM(hog));
	rte_free(reserve);
	port = open_port("");
	assert_true(port >= 0);
	assert_int_equal(rte_eth_dev_close((uint16_t)port), 0);
	rte_vdev_uninit("net_replay0");
	while (n > 0)
		rte_free(hog[--n]);
}

static void
capture_outlives_its_port_while_referenced(void **state)
{
	struct rte_mbuf *m[50], *clone;
	size_t used, with_capture;
	uint16_t port;

	write_equal(50, 9000);
	used = heap_used();
	port = start_split("", zero, 90);
	with_capture = heap_used();
	assert_int_equal(receive(port, 0, m, 50), 50);
	clone = rte_pktmbuf_clone(m[7], ordinary);
	assert_non_null(clone);
	close_port(port);
	assert_true(heap_used() > used + 50 * 9000);
	for (uint32_t i = 0; i < 50; i++)
		assert_content(m[i], i, 9000);
	rte_pktmbuf_free_bulk(m, 50);
	assert_content(clone, 7, 9000);
	assert_true(heap_used() > used + 50 * 9000);
	rte_pktmbuf_free(clone);
	assert_true(heap_used() + 50 * 9000 < with_capture);
	assert_pool_sound(zero);
	assert_pool_sound(headers);
}

static void
start_is_refused_while_references_pin_the_layout(void **state)
{
	struct rte_mbuf *m[20];
	uint16_t port;

	write_equal(10, 1000);
	port = start_split("queues=3,align_at=8", zero, 90);
	assert_int_equal(receive(port, 0, m, 10), 10);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(split_queue(port, 0, zero, 64), 0);
	assert_int_equal(rte_eth_dev_start(port), -EBUSY);
	/* a queue that copies has no requirement on the position of a frame */
	assert_int_equal(rte_eth_rx_queue_setup(port, 0, 64, 0, NULL, ordinary), 0);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(receive(port, 0, m + 10, 10), 10);
	assert_content(m[19], 9, 1000);
	rte_pktmbuf_free_bulk(m + 10, 10);
	assert_int_equal(xstat(port, "replay_references_outstanding"), 10);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	assert_int_equal(split_queue(port, 0, zero, 64), 0);
	rte_pktmbuf_free_bulk(m, 10);
	assert_int_equal(rte_eth_dev_start(port), 0);
	assert_int_equal(rte_eth_dev_stop(port), 0);
	/* one arena cannot be aligned for two split positions */
	configure(port, 2, SPLIT);
	assert_int_equal(split_queue(port, 0, zero, 64), 0);
	assert_int_equal(split_queue(port, 1, zero, 90), 0);
	assert_int_equal(rte_eth_dev_start(port), -ENOTSUP);
	configure(port, 3, SPLIT); /* the third queue is not set up */
	assert_int_equal(rte_eth_dev_start(port), -EINVAL);
	close_port(port);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(loops_are_exact, remove_port),
		cmocka_unit_test_teardown(
			link_is_up_until_the_end_and_start_begins_anew, remove_port),
		cmocka_unit_test_teardown(link_is_up_without_rx_queues, remove_port),
		cmocka_unit_test_teardown(paced_packets_are_never_early, remove_port),
		cmocka_unit_test_teardown(malformed_arguments_are_refused, remove_port),
		cmocka_unit_test_teardown(messages_name_port_and_expected_value, remove_port),
		cmocka_unit_test_teardown(files_are_merged_by_time, remove_port),
		cmocka_unit_test_teardown(damaged_captures_are_refused, remove_port),
		cmocka_unit_test_teardown(
			whole_records_of_a_cut_capture_are_delivered, remove_port),
		cmocka_unit_test_teardown(a_wrong_length_is_not_a_cut, remove_port),
		cmocka_unit_test_teardown(short_records_are_delivered_and_counted, remove_port),
		cmocka_unit_test_teardown(pcapng_is_read, remove_port),
		cmocka_unit_test_teardown(short_memory_is_refused_and_returned, remove_port),
		cmocka_unit_test_teardown(the_guide_says_what_memory_is_needed, remove_port),
		cmocka_unit_test_teardown(capture_outlives_its_port_while_referenced, remove_port),
		cmocka_unit_test_teardown(
			start_is_refused_while_references_pin_the_layout, remove_port),
	};

	return run_replay_tests(argv[0], tests, RTE_DIM(tests));
}
