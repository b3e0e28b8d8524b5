/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the verdicts of --check on devices: ports, GPU, and their combination. */

#include "check/multicast.h"
#include "check_rig.h"
#include "ethdev_conf.h"

static void
test_gpu(void **state)
{
	struct check_need need = {.device = UINT64_C(4) << 30};
	struct settings s = {.kernel = "host"};
	struct check_gpu gpu = {0};

	check_gpu(&check, &s, &gpu, &need);
	want(CHECK_NA, "none", "");
	s.kernel = "cuda";
	check_gpu(&check, &s, &gpu, &need);
	want(CHECK_FAIL, "kernel = cuda requires one", "--vdev gpu_cuda0");
	s.gpu = "gpu_cuda0";
	check_gpu(&check, &s, &gpu, &need);
	want(CHECK_FAIL, "no such GPU: gpu_cuda0", "--vdev gpu_cuda0,device=0");
	gpu = (struct check_gpu){.present = true, .name = "gpu_cuda0", .bytes = UINT64_C(2) << 30};
	check_gpu(&check, &s, &gpu, &need);
	want(CHECK_FAIL, "has 2.0 GiB; packets, results and gangs require 4.0 GiB", "slots");
	gpu.bytes = UINT64_C(139) << 30;
	check_gpu(&check, &s, &gpu, &need);
	want(CHECK_OK, "gpu_cuda0, 139 GiB; 4.0 GiB for packets, results and gangs", "");
}

static void
test_kernel(void **state)
{
	struct settings s = {.kernel = "host", .gangs = 3};
	struct placement w = {.gpu = 0, .gpu_name = "gpu_cuda0", .computes = true};

	check_kernel(&check, &s, &w);
	want(CHECK_OK, "host, 3 gangs", "");
	strcpy(w.no_gangs, "too little");
	check_kernel(&check, &s, &w);
	want(CHECK_WARN, "host, 3 gangs, not on gpu_cuda0: too little", "another GPU");
	s.kernel = "metal";
	check_kernel(&check, &s, &w);
	want(CHECK_FAIL, "metal is not built in", "kernel = host");
	s.kernel = "cuda";
	if (gk_ops_find("cuda") == NULL)
		return;
	check_kernel(&check, &s, &w);
	want(CHECK_FAIL, "cuda does not run on gpu_cuda0: too little", "kernel = host");
	w.no_gangs[0] = '\0';
	check_kernel(&check, &s, &w);
	want(CHECK_OK, "cuda, 3 gangs", "");
}

static void
test_way(void **state)
{
	struct settings s = {.kernel = "cuda", .packets = PACKETS_AUTO};
	struct placement w = {
		.gpu = 0, .gpu_name = "gpu_cuda0", .computes = true, .why = "p: cannot"};

	check_placement(&check, &s, &w);
	want(CHECK_WARN, "pinned host memory, not memory of gpu_cuda0: p: cannot", "peermem");
	s.packets = PACKETS_PINNED;
	check_placement(&check, &s, &w);
	want(CHECK_OK, "pinned host memory: p: cannot; results to pinned host memory", "");
	s.packets = PACKETS_DEVICE;
	check_placement(&check, &s, &w);
	want(CHECK_FAIL, "packets = device: p: cannot", "packets = auto");
	w.packets = GK_MEMORY_DEVICE;
	w.why[0] = '\0';
	check_placement(&check, &s, &w);
	want(CHECK_OK, "memory of gpu_cuda0; results to pinned host memory", "");
	s.results_device = true;
	check_placement(&check, &s, &w);
	want(CHECK_FAIL, "results = device", "results = host");
	w.results = GK_MEMORY_DEVICE;
	check_placement(&check, &s, &w);
	want(CHECK_OK, "results to memory of gpu_cuda0", "");
	w = (struct placement){.gpu = -1, .why = "no GPU"};
	s = (struct settings){.kernel = "host"};
	check_placement(&check, &s, &w);
	want(CHECK_OK, "host memory: no GPU", "");
}

static void
test_numa(void **state)
{
	struct check_lcores l = LCORES(true, "2", "3");
	struct check_heap heap = {.node = 1};
	struct check_port port = make_nic();
	struct check_gpu gpu = cuda;

	l.lcore[0].node = l.lcore[1].node = 1;
	put("/sys/devices/system/node/online", "0\n");
	check_numa(&check, &l, &heap, &gpu, &port, 1);
	want(CHECK_NA, "the machine has one", "");
	put("/sys/devices/system/node/online", "0-1\n");
	check_numa(&check, &l, &heap, &gpu, &port, 1);
	want(CHECK_OK, "memory 1, port 0 1, gpu_cuda0 1, all lcores 1", "");
	l.lcore[1].node = 0;
	check_numa(&check, &l, &heap, &gpu, &port, 1);
	want(CHECK_WARN, "lcore 3 (builder) 0", "node1/cpulist");
	l.lcore[1].node = 1;
	gpu.node = 0;
	check_numa(&check, &l, &heap, &gpu, &port, 1);
	want(CHECK_WARN, "gpu_cuda0 0", "node1");
	gpu.node = 1;
	heap.node = 0;
	check_numa(&check, &l, &heap, &gpu, &port, 1);
	want(CHECK_WARN, "memory 0", "-l");
}

#define NIC "/sys/bus/pci/devices/0000:01:00.0"

static void
test_iommu(void **state)
{
	struct check_port port = make_nic();
	char name[PATH_MAX + 64];

	check_iommu(&check, &port, 1);
	want(CHECK_OK, "no port is affected", "");
	put(NIC "/iommu_group/type", "identity\n");
	check_iommu(&check, &port, 1);
	want(CHECK_OK, "pass-through", "");
	put(NIC "/iommu_group/type", "DMA-FQ\n");
	check_iommu(&check, &port, 1);
	want(CHECK_WARN, "group type DMA-FQ", "iommu=pt");
	snprintf(name, sizeof(name), "%s" NIC "/driver", root);
	assert_int_equal(symlink("../../drivers/vfio-pci", name), 0);
	check_iommu(&check, &port, 1);
	want(CHECK_OK, "", "");
	port.is_virtual = true;
	check_iommu(&check, &port, 1);
	want(CHECK_NA, "no port does DMA", "");
}

static void
test_iova(void **state)
{
	struct check_port port = make_nic();

	check_iova(&check, true, &port, 1);
	want(CHECK_OK, "virtual addresses", "");
	check_iova(&check, false, &port, 1);
	want(CHECK_FAIL, "physical addresses", "--iova-mode=va");
	port.reference = true;
	check_iova(&check, false, &port, 1);
	want(CHECK_OK, "physical addresses", "");
	port.is_virtual = true;
	check_iova(&check, false, &port, 1);
	want(CHECK_NA, "no port does DMA", "");
}

static void
test_gpu_direct(void **state)
{
	struct check_port port = make_nic();
	struct check_gpu gpu = cuda;

	check_gpu_direct(&check, &gpu, &port, 1);
	want(CHECK_WARN, "not loaded", "modprobe nvidia_peermem");
	put("/sys/module/nvidia_peermem/initstate", "live\n");
	check_gpu_direct(&check, &gpu, &port, 1);
	want(CHECK_OK, "nvidia_peermem is loaded", "");
	gpu.is_virtual = true;
	check_gpu_direct(&check, &gpu, &port, 1);
	want(CHECK_NA, "no NIC writes to GPU memory", "");
	gpu.is_virtual = false;
	port.reference = true;
	check_gpu_direct(&check, &gpu, &port, 1);
	want(CHECK_NA, "", "");
	port.reference = false;
	gpu.used = false;
	check_gpu_direct(&check, &gpu, &port, 1);
	want(CHECK_NA, "", "");
}

static void
test_locked_memory(void **state)
{
	struct check_need need = {.heap = UINT64_C(1) << 30};
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
	struct check_port port = make_nic();
	struct check_gpu gpu = {0};

	check_locked_memory(&check, &limit, &need, &gpu, &port, 1);
	want(CHECK_OK, "unlimited", "");
	limit.rlim_cur = 8 << 20;
	put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\nSeccomp:\t0\n");
	check_locked_memory(&check, &limit, &need, &gpu, &port, 1);
	want(CHECK_FAIL, "8.0 MiB allowed, 1.0 GiB required", "ulimit -l unlimited");
	put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nSeccomp:\t0\n");
	check_locked_memory(&check, &limit, &need, &gpu, &port, 1);
	want(CHECK_OK, "CAP_IPC_LOCK", "");
	put("/proc/self/status", "Name:\tx\n");
	limit.rlim_cur = UINT64_C(2) << 30;
	check_locked_memory(&check, &limit, &need, &gpu, &port, 1);
	want(CHECK_OK, "2.0 GiB allowed", "");
	port.is_virtual = true;
	check_locked_memory(&check, &limit, &need, &gpu, &port, 1);
	want(CHECK_NA, "no device pins", "");
	/* an RDMA adapter locks the memory of the journal */
	need.journal = UINT64_C(3) << 30;
	check_locked_memory(&check, &limit, &need, &gpu, &port, 1);
	want(CHECK_FAIL, "2.0 GiB allowed, 3.0 GiB required", "ulimit -l unlimited");
	port.is_virtual = false;
	check_locked_memory(&check, &limit, &need, &gpu, &port, 1);
	want(CHECK_FAIL, "2.0 GiB allowed, 4.0 GiB required", "ulimit -l unlimited");
}

/** How much more EAL memory a run needs with `s` than with `than`. */
static uint64_t
needs_more(const struct settings *s, const struct settings *than)
{
	struct check_port port = make_nic();
	struct check_need more, less;
	const struct check_gpu gpu = {0};

	check_count_need(s, &gpu, &port, false, &more);
	check_count_need(than, &gpu, &port, false, &less);
	return more.heap - less.heap;
}

/* The sum lacks what a device that does not exist would take, such as the capture of a replay. */
static void
test_need_of_missing_device(void **state)
{
	struct check_port port = make_nic();
	const struct settings s = make_settings();
	const struct check_gpu none = {0};
	struct check_need need;

	check_count_need(&s, &none, &port, false, &need);
	assert_int_equal(need.missing, 0);
	port.present = false;
	check_count_need(&s, &none, &port, false, &need);
	assert_int_equal(need.missing, 1);
}

static void
test_need_of_searches(void **state)
{
	const uint64_t pixels = UINT64_C(1) << 20; /* two modules */
	const struct check_port port = make_nic();
	struct settings s = make_settings();
	const struct check_gpu none = {0};
	struct check_need need;

	check_count_need(&s, &none, &port, false, &need);
	/* one search for each thread of a gang: photons, arrays of pixels, and tables of bins */
	assert_int_equal(need.searches, 0);
	s.gangs = 3;
	s.gang_workers = 2;
	s.peaks.known = true;
	s.geometry = (struct geometry_settings){.known = true,
		.beam_x = 512,
		.beam_y = 512,
		.distance_mm = 100,
		.energy_kev = 12,
		.column_modules = 2};
	check_count_need(&s, &none, &port, false, &need);
	assert_in_range(need.searches, 6 * (pixels * 8 + 724 * 576), 6 * (pixels * 9 + 900 * 700));
	s.kernel = "cuda";
	check_count_need(&s, &none, &port, false, &need);
	assert_int_equal(need.searches, 0);
}

static void
test_need(void **state)
{
	const uint64_t pixels = UINT64_C(1) << 20; /* two modules */
	struct settings s = make_settings(), than = make_settings();
	const struct check_gpu none = {0}, gpu = {.results = true};
	const struct check_port port = make_nic();
	struct check_need need, less;

	s.outputs = than.outputs = 16;
	/* pedestals a second time, and accumulators */
	s.dark.select = BUILDER_DARK_FRAME;
	assert_int_equal(needs_more(&s, &than), pixels * (4 + 8 * GK_DARK_MAX));
	/* accumulators are in the gangs' memory */
	s.kernel = than.kernel = "cuda";
	assert_int_equal(needs_more(&s, &than), pixels * 4);
	check_count_need(&s, &none, &port, false, &need);
	if (gk_ops_find("cuda") == NULL) {
		assert_int_equal(need.device, pixels * 8 * GK_DARK_MAX);
	} else {
		/* each gang has its own coefficients and staged packets */
		s.gangs = 2;
		check_count_need(&s, &none, &port, false, &need);
		assert_in_range(need.device, pixels * (8 * GK_DARK_MAX + 36 * GK_COEF_MAX + 2 * 32),
			pixels * (8 * GK_DARK_MAX + 38 * GK_COEF_MAX + 2 * 34));
		/* and for searches photons, lists and labels of 16 frames */
		less = need;
		s.peaks.known = true;
		s.peaks.max = 100;
		check_count_need(&s, &none, &port, false, &need);
		assert_in_range(need.device - less.device, 2 * pixels * 16 * 4,
			2 * (pixels * 16 * 8 + (UINT64_C(200) << 20)));
		s.peaks.known = false;
	}
	s.kernel = than.kernel = "host";
	s.dark.select = BUILDER_DARK_NONE;
	s.outputs = 17;
	check_count_need(&s, &gpu, &port, false, &need);
	assert_int_equal(need.device, 17 * needs_more(&s, &than));
	/* the host needs the same as for one output slot: it is the staging buffer */
	than.outputs = 1;
	check_count_need(&than, &none, &port, false, &less);
	assert_int_equal(need.heap, less.heap);
}

/* Output slots are in the journal, in EAL memory if an existing journal has none. */
static void
test_need_of_outputs(void **state)
{
	const struct egress_settings files = {.device = NULL};
	const struct egress_settings stores = {.device = "roce:port=0", .journal_slots = 10};
	const struct check_port port = make_nic();
	struct settings s = make_settings();
	const struct check_gpu none = {0};
	struct check_need local, journal, lacks;

	s.outputs = 16;
	s.egress = &files;
	check_count_need(&s, &none, &port, false, &local);
	s.egress = &stores;
	check_count_need(&s, &none, &port, false, &journal);
	check_count_need(&s, &none, &port, true, &lacks);
	assert_true(journal.heap < local.heap);
	assert_int_equal(lacks.heap, local.heap);
}

/* The largest MTU that rte_eth_dev_configure() of DPDK 22.11 accepts. */
static void
test_mtu_max(void **state)
{
	const struct port_settings s = {.mtu = 9000};
	struct rte_eth_dev_info info = {.max_mtu = 9702, .max_rx_pktlen = 9728};

	assert_int_equal(ethdev_mtu_max(&info), 9702);
	assert_int_equal(port_mtu(&s, &info), 9000);
	/* a frame length without the checksum */
	info = (struct rte_eth_dev_info){.max_mtu = 1500, .max_rx_pktlen = 1514};
	assert_int_equal(port_mtu(&s, &info), 1500);
	/* a driver that reports no MTU */
	info = (struct rte_eth_dev_info){.max_mtu = UINT16_MAX, .max_rx_pktlen = 8018};
	assert_int_equal(port_mtu(&s, &info), 8000);
	info = (struct rte_eth_dev_info){.max_mtu = 9000, .max_rx_pktlen = 8018};
	assert_int_equal(port_mtu(&s, &info), 8000);
	info = (struct rte_eth_dev_info){.max_mtu = UINT16_MAX};
	assert_int_equal(port_mtu(&s, &info), 9000);
}

static void
check_one_port(const struct settings *s, const struct check_port *p)
{
	check.nb_rows = 0;
	check_port(&check, s, p);
}

static void
test_good_port(void **state)
{
	const struct settings s = make_settings();
	const struct check_port p = make_nic();

	check_one_port(&s, &p);
	assert_int_equal(check.nb_rows, 12);
	want_item("port 0: device", CHECK_OK, "0000:01:00.0, mlx5_pci");
	want_item("port 0: RX queues", CHECK_OK, "2 of 1024");
	want_item("port 0: RX descriptors", CHECK_OK,
		"the bursts of 4 frames, 128 packets, in two segments, each");
	want_item("port 0: buffer split", CHECK_OK, "mode = auto: headers in host memory");
	want_item("port 0: flow rules", CHECK_OK, "4 created");
	want_item("port 0: MTU", CHECK_OK, "9000, packets have 8268");
	/* 256 packets a frame of 8,306 bytes on the link, including the gap */
	want_item("port 0: link", CHECK_OK, "100 Gb/s: carries its 4 streams at 5879 frames/s");
	want_item("port 0: pause frames", CHECK_OK, "sent and received");
	/* 2 x 1024, 64 x 256, 2 x 384, 2 x 256 + 2 x (256 + 192 + 4096), 256 */
	want_item("port 0: pools", CHECK_OK,
		"29056 mbufs = 2048 RX descriptors + 16384 in frame slots + 768 in caches + 9600");
}

static void
test_missing_port(void **state)
{
	const struct settings s = make_settings();
	struct check_port p = make_nic();

	p.present = false;
	check_one_port(&s, &p);
	want_item("port 0: device", CHECK_FAIL, "no Ethernet device '0000:01:00.0'; EAL has ");
	want_item("port 0: pools", CHECK_OK, "29056 mbufs");
	assert_int_equal(check.nb_rows, 2);
	p = make_nic();
	p.set_up = -ENOMEM;
	strcpy(p.failed, "starting");
	check_one_port(&s, &p);
	want_item("port 0: device", CHECK_FAIL, "starting failed: Cannot allocate memory");
	assert_null(find("port 0: link"));
}

static void
test_port_mtu(void **state)
{
	struct port_settings settings = some_port;
	const struct settings s = make_settings();
	struct check_port p = make_nic();

	p.settings = &settings;
	settings.mtu = p.mtu = 1500;
	check_one_port(&s, &p);
	want_item("port 0: MTU", CHECK_FAIL, "1500, packets have 8268");
	settings.mtu = 9000;
	p.mtu = p.max_mtu = 1500;
	check_one_port(&s, &p);
	want_item("port 0: MTU", CHECK_FAIL, "1500 at most");
	p.mtu = 0;
	p.max_mtu = 8500;
	check_one_port(&s, &p);
	want_item("port 0: MTU", CHECK_WARN, "configured 9000, the maximum of the port is 8500");
	p.replay = p.is_virtual = true;
	check_one_port(&s, &p);
	want_item("port 0: MTU", CHECK_NA, "replay");
	want_item("port 0: link", CHECK_NA, "replay");
	want_item("port 0: RX descriptors", CHECK_NA, "replay");
	want_item("port 0: pause frames", CHECK_NA, "virtual");
}

static void
test_port_link(void **state)
{
	const struct settings s = make_settings();
	struct check_port p = make_nic();

	p.link_up = false;
	check_one_port(&s, &p);
	want_item("port 0: link", CHECK_FAIL, "down");
	p.is_virtual = true;
	check_one_port(&s, &p);
	want_item("port 0: link", CHECK_WARN, "down");
	p.link_up = true;
	check_one_port(&s, &p);
	want_item("port 0: link", CHECK_OK, "up");
}

static void
test_port_rings(void **state)
{
	struct port_settings settings = some_port;
	const struct settings s = make_settings();
	struct check_port p = make_nic();

	p.settings = &settings;
	settings.descriptors = 100;
	check_one_port(&s, &p);
	want_item("port 0: RX descriptors", CHECK_WARN, "burst of 128 packets in two segments");
	assert_string_equal(find("port 0: RX descriptors")->fix, "[port 0] descriptors = 256");
	p.ring_max = 64;
	check_one_port(&s, &p);
	assert_non_null(strstr(find("port 0: RX descriptors")->fix, "raise [lcores] rx_lcores"));
	settings.descriptors = 32768;
	p.ring_max = 8192;
	check_one_port(&s, &p);
	want_item("port 0: RX descriptors", CHECK_WARN, "configured 32768");
	p.max_queues = 1;
	check_one_port(&s, &p);
	want_item("port 0: RX queues", CHECK_WARN, "2 expected");
	settings.steering = RX_STEERING_FLOW;
	check_one_port(&s, &p);
	want_item("port 0: RX queues", CHECK_FAIL, "the port has 1");
	/* RX roles with RoCE share no queue, with any steering of packets */
	settings.steering = RX_STEERING_AUTO;
	strcpy(settings.rdma, "ip=10.1.2.1/16");
	check_one_port(&s, &p);
	want_item("port 0: RX queues", CHECK_FAIL, "2 expected for RoCE, one per RX lcore");
	assert_string_equal(find("port 0: RX queues")->fix,
		"set [lcores] rx_lcores = 1, or give each RX lcore a port of its own");
	settings.steering = RX_STEERING_SOFTWARE;
	check_one_port(&s, &p);
	want_item("port 0: RX queues", CHECK_FAIL, "the port has 1 with steering = software");
}

static void
test_port_offloads(void **state)
{
	struct port_settings settings = some_port;
	const struct settings s = make_settings();
	struct check_port p = make_nic();

	p.settings = &settings;
	p.can_split = false;
	p.flow = CHECK_FLOW_REFUSED;
	strcpy(p.flow_why, "UDP port 50001: no");
	check_one_port(&s, &p);
	want_item("port 0: buffer split", CHECK_OK, "the port cannot split");
	want_item("port 0: flow rules", CHECK_WARN, "UDP port 50001: no");
	p.queues = 1;
	check_one_port(&s, &p);
	want_item("port 0: flow rules", CHECK_OK, "packets are handed to");
	settings.mode = RX_MODE_SPLIT;
	settings.steering = RX_STEERING_FLOW;
	check_one_port(&s, &p);
	want_item("port 0: buffer split", CHECK_FAIL, "mlx5_pci cannot");
	want_item("port 0: flow rules", CHECK_FAIL, "refused by the driver, UDP port 50001");
	p.flow = CHECK_FLOW_UNTRIED;
	check_one_port(&s, &p);
	want_item("port 0: flow rules", CHECK_NA, "steering = software");
	p.pause = -ENOTSUP;
	check_one_port(&s, &p);
	want_item("port 0: pause frames", CHECK_NA, "not reported by the driver");
	p.pause = RTE_ETH_FC_NONE;
	check_one_port(&s, &p);
	want_item("port 0: pause frames", CHECK_WARN, "off");
}

static void
test_port_backpressure(void **state)
{
	struct settings s = make_settings();
	struct check_port p = make_nic();

	s.backpressure = BACKPRESSURE_WAIT;
	check_one_port(&s, &p);
	want_item("port 0: backpressure", CHECK_WARN, "packets of all frames are lost");
	p.replay = p.is_virtual = true;
	check_one_port(&s, &p);
	assert_null(find("port 0: backpressure"));
	p.replay = false;
	s.backpressure = BACKPRESSURE_REFUSE;
	check_one_port(&s, &p);
	assert_null(find("port 0: backpressure"));
}

static void
test_multicast(void **state)
{
	struct settings s = make_settings();
	char path[PATH_MAX + 32];

	check_multicast(&check, &s);
	assert_int_equal(check.nb_rows, 0);
	s.ingest = (struct ingest_settings){.transport = INGEST_MULTICAST,
		.sender = UINT32_C(0x0A010101),
		.group = UINT32_C(0xEFC000FE),
		.service = 7190,
		.mtu = 4096,
		.slots = 128,
		.buffers = 4096};
	put("/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 340000 kB\n");
	check_multicast(&check, &s);
	assert_int_equal(check.nb_rows, 3);
	want_item("multicast groups", CHECK_OK,
		"239.192.0.254 ... 239.192.1.1, of 10.1.1.1, ports 7190 ... 7193");
	want_item("multicast key", CHECK_WARN, "none");
	/* 4 x 128 x 64 x 8,320 bytes, and 4 x (4,096 + 1,024) x 4,224 bytes */
	want_item("multicast memory", CHECK_FAIL, "260 MiB for rings of 128 frames, 82.5 MiB for");
	put("/proc/meminfo", "MemAvailable: 360000 kB\n");
	check.nb_rows = 0;
	check_multicast_memory(&check, &s);
	want_item("multicast memory", CHECK_OK, "352 MiB available");
	snprintf(path, sizeof(path), "%s/key", root);
	s.ingest.identity = "any";
	s.ingest.key = path;
	check_multicast_key(&check, &s);
	want_item("multicast key", CHECK_FAIL, "cannot open key file");
	put("/key", "0123456789abcdef0123456789abcdef");
	assert_int_equal(chmod(path, 0600), 0);
	check.nb_rows = 0;
	check_multicast_key(&check, &s);
	want_item("multicast key", CHECK_OK, "32 bytes");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_gpu),
		TEST(test_kernel),
		TEST(test_way),
		TEST(test_numa),
		TEST(test_iommu),
		TEST(test_iova),
		TEST(test_gpu_direct),
		TEST(test_locked_memory),
		TEST(test_need),
		TEST(test_need_of_missing_device),
		TEST(test_need_of_searches),
		TEST(test_need_of_outputs),
		TEST(test_mtu_max),
		TEST(test_good_port),
		TEST(test_missing_port),
		TEST(test_port_mtu),
		TEST(test_port_link),
		TEST(test_port_rings),
		TEST(test_port_offloads),
		TEST(test_port_backpressure),
		TEST(test_multicast),
	};

	return cmocka_run_group_tests_name("check device", tests, NULL, NULL);
}
