/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the choice of the pixels' data path with real devices: gpu_host, net_replay, net_null. */
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
#include <gpudev_driver.h>
#include <rte_bus_vdev.h>
#include <rte_eal.h>

#include "builder/builder.h"
#include "port/placement.h"
#include "settings.h"

static char capture[] = "/tmp/placement_test_XXXXXX";
static struct settings settings;
static struct placement way;

static int
begin(void **state)
{
	settings = (struct settings){.kernel = "auto", .nb_ports = 1};
	strcpy(settings.ports[0].device, "net_replay0");
	return 0;
}

static void
choose(int ret, enum gk_memory packets, const char *why)
{
	struct settings s = settings;

	assert_int_equal(placement_choose(&way, &s), ret);
	assert_int_equal(way.packets, packets);
	if (strstr(way.why, why) == NULL || (why[0] == '\0') != (way.why[0] == '\0'))
		fail_msg("'%s', expected '%s'", way.why, why);
}

static void
without_a_gpu(void **state)
{
	char text[96];

	settings.gpu = "gpu_cuda0";
	choose(-EINVAL, GK_MEMORY_HOST, "--vdev gpu_cuda0");
	settings.gpu = "none of these";
	choose(-ENODEV, GK_MEMORY_HOST, "none of these");
	settings.gpu = NULL;
	assert_int_equal(rte_vdev_uninit("gpu_host0"), 0);
	choose(0, GK_MEMORY_HOST, "no GPU");
	assert_string_equal(placement_name(&way, way.packets, text), "host memory");
	settings.packets = PACKETS_DEVICE;
	choose(-ENODEV, GK_MEMORY_HOST, "no GPU");
	settings.packets = PACKETS_PINNED;
	settings.results_device = true;
	choose(-ENODEV, GK_MEMORY_HOST, "no GPU");
	assert_int_equal(rte_vdev_init("gpu_host0", "private=1"), 0);
}

static void
a_port_that_can(void **state)
{
	char text[96];

	choose(0, GK_MEMORY_HOST, "the memory of gpu_host0 is host memory");
	assert_string_equal(placement_name(&way, way.packets, text), "pinned host memory");
	settings.packets = PACKETS_PINNED;
	choose(0, GK_MEMORY_HOST, "packets = pinned");
	settings.packets = PACKETS_DEVICE;
	choose(0, GK_MEMORY_DEVICE, "");
	assert_string_equal(placement_name(&way, way.packets, text), "memory of gpu_host0");
	assert_int_equal(way.results, GK_MEMORY_HOST);
	settings.results_device = true;
	choose(0, GK_MEMORY_DEVICE, "");
	assert_int_equal(way.results, GK_MEMORY_DEVICE);
	strcpy(settings.ports[0].device, "0"); /* the same port, named by its number */
	choose(0, GK_MEMORY_DEVICE, "");
}

static void
ports_that_cannot(void **state)
{
	settings.packets = PACKETS_DEVICE;
	settings.ports[0].mode = RX_MODE_SINGLE;
	choose(-EINVAL, GK_MEMORY_HOST, "net_replay0: mode = single");
	settings.ports[0].mode = RX_MODE_AUTO;
	/* one such port of several is enough */
	settings.nb_ports = 2;
	strcpy(settings.ports[1].device, "net_null0");
	choose(-EINVAL, GK_MEMORY_HOST, "net_null0: it cannot split buffers");
	strcpy(settings.ports[1].device, "net_nobody0");
	choose(-EINVAL, GK_MEMORY_HOST, "net_nobody0: no such port");
	settings.nb_ports = 1;
	settings.ports[0].payload = PAYLOAD_REFERENCE; /* the replay supports this */
	choose(0, GK_MEMORY_DEVICE, "");
}

static void
open_settings_are_settled(void **state)
{
	struct settings s = settings;

	assert_int_equal(placement_choose(&way, &s), 0);
	assert_string_equal(s.kernel, "host"); /* gpu_host cannot run kernels */
	assert_int_equal(s.gangs, 1);
	assert_int_equal(s.batch, 8);
	assert_int_equal(s.outputs, 24);
	s = settings;
	s.gangs = 3;
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_int_equal(s.outputs, 56);
	s = settings;
	s.outputs = 5;
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_int_equal(s.outputs, 5);
	assert_int_equal(s.batch, 5);
	/*
	 * gangs on a GPU: the values that were measured to be best, for packets on the host and on
	 * the GPU
	 */
	s = settings;
	s.kernel = "cuda";
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_int_equal(s.gangs, 2);
	assert_int_equal(s.batch, 4);
	s = settings;
	s.kernel = "cuda";
	s.packets = PACKETS_DEVICE;
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_int_equal(s.batch, 16);
	assert_int_equal(s.outputs, 48);
	s = settings;
	s.kernel = "cuda";
	s.veto.params.kind = GK_KIND_RAW;
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_int_equal(s.gangs, 12);
	assert_int_equal(s.batch, 4);
	assert_int_equal(s.outputs, 52);
	s.packets = PACKETS_DEVICE;
	s.gangs = 0;
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_int_equal(s.gangs, 2);
	s = settings;
	s.gangs = 7;
	s.batch = 3;
	s.outputs = 100;
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_true(s.gangs == 7 && s.batch == 3 && s.outputs == 100);
}

/* A GPU with processors runs the gangs if it can. */
static void
gangs_of_a_gpu(void **state)
{
	const struct gk_ops *ops = gk_ops_find("cuda");
	const bool can = ops != NULL && ops->usable(NULL) == 0;
	struct rte_gpu *gpu = rte_gpu_allocate("gpu_test0");
	struct settings s;

	assert_non_null(gpu);
	gpu->mpshared->info.processor_count = 1;
	rte_gpu_complete_new(gpu);
	s = settings;
	s.gpu = "gpu_test0";
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_true(way.computes);
	assert_string_equal(s.kernel, can ? "cuda" : "host");
	assert_int_equal(way.no_gangs[0] != '\0', ops != NULL && !can);
	s = settings;
	s.gpu = "gpu_test0";
	s.kernel = "host";
	assert_int_equal(placement_choose(&way, &s), 0);
	assert_string_equal(s.kernel, "host");
	assert_string_equal(way.no_gangs, "");
	assert_int_equal(rte_gpu_release(gpu), 0);
}

static bool
refuses(enum backpressure backpressure)
{
	struct settings s = settings;

	s.backpressure = backpressure;
	s.refuse = backpressure == BACKPRESSURE_WAIT;
	assert_int_equal(placement_choose(&way, &s), 0);
	return s.refuse;
}

static void
only_a_replay_waits(void **state)
{
	assert_false(refuses(BACKPRESSURE_AUTO));
	assert_true(refuses(BACKPRESSURE_REFUSE));
	/* one such port of several is enough */
	settings.nb_ports = 2;
	strcpy(settings.ports[1].device, "net_null0");
	assert_true(refuses(BACKPRESSURE_AUTO));
	assert_false(refuses(BACKPRESSURE_WAIT));
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

#define WAY(test) cmocka_unit_test_setup(test, begin)

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WAY(without_a_gpu),
		WAY(a_port_that_can),
		WAY(ports_that_cannot),
		WAY(open_settings_are_settled),
		WAY(gangs_of_a_gpu),
		WAY(only_a_replay_waits),
	};
	char replay[64];
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"128"}, (char[]){"--no-telemetry"},
		(char[]){"--vdev"}, (char[]){"gpu_host0,private=1"}, (char[]){"--vdev"}, replay,
		(char[]){"--vdev"}, (char[]){"net_null0"}};
	int failed;

	write_capture();
	snprintf(replay, sizeof(replay), "net_replay0,file=%s", capture);
	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	failed = cmocka_run_group_tests_name("way", tests, NULL, NULL);
	unlink(capture);
	rte_eal_cleanup();
	return failed;
}
