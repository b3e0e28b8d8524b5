/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the table of --check, and its verdicts on CPUs, memory, clocks and storage. */

#include "check_rig.h"

static void
test_cpu_lists(void **state)
{
	static const char *const same[] = {"0", "0-3", "1,3,5", "0-2,8-10,64", "4,5"};
	char text[64];
	cpu_set_t cpus;

	for (unsigned int i = 0; i < RTE_DIM(same); i++) {
		assert_true(check_parse_cpus(same[i], &cpus) > 0);
		assert_string_equal(check_print_cpus(&cpus, text, sizeof(text)), same[i]);
	}
	assert_int_equal(check_parse_cpus("", &cpus), 0);
	assert_int_equal(check_parse_cpus(" (null)", &cpus), 0);
	assert_string_equal(check_print_cpus(&cpus, text, sizeof(text)), "none");
	assert_int_equal(check_parse_cpus("5-99999999", &cpus), CPU_SETSIZE - 5);
	/* text that does not fit is truncated */
	check_parse_cpus("1,3,5,7,9,11,13,15,17,19", &cpus);
	check_print_cpus(&cpus, text, 8);
	assert_true(strlen(text) < 8);
}

static void
test_bytes(void **state)
{
	char text[16];

	assert_string_equal(check_print_bytes(0, text), "0 B");
	assert_string_equal(check_print_bytes(1023, text), "1023 B");
	assert_string_equal(check_print_bytes(2 << 20, text), "2.0 MiB");
	assert_string_equal(check_print_bytes(UINT64_C(139) << 30, text), "139 GiB");
	assert_true(strlen(check_print_bytes(UINT64_MAX, text)) < 16);
}

static void
test_table(void **state)
{
	char text[4096] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	check_add(&check, CHECK_OK, "one", "fine");
	check_add(&check, CHECK_FAIL, "the second", "%d of %d", 1, 2);
	check_fix(&check, "do %s", "this");
	check_add(&check, CHECK_NA, "third", "not here");
	check_add(&check, CHECK_WARN, "fourth", "hm");
	check_fix(&check, "that");
	assert_int_equal(check_print(&check, out), 1);
	fclose(out);
	assert_string_equal(text,
		"item        verdict  value, and what to do\n"
		"one         ok       fine\n"
		"the second  FAIL     1 of 2\n"
		"            fix:     do this\n"
		"third       n.a.     not here\n"
		"fourth      warn     hm\n"
		"            fix:     that\n"
		"4 items: 1 ok, 1 warn, 1 fail, 1 n.a.\n");
}

static void
test_table_is_bounded(void **state)
{
	for (int i = 0; i < CHECK_ROWS_MAX + 10; i++)
		check_add(&check, CHECK_OK, "a name much longer than an item may ever be", "%0500d",
			i);
	assert_int_equal(check.nb_rows, CHECK_ROWS_MAX);
	assert_true(strlen(check.rows[0].item) < sizeof(check.rows[0].item));
}

static void
test_sharing(void **state)
{
	struct check_lcores l = LCORES(true, "2", "3", "4");

	check_sharing(&check, &l);
	want(CHECK_OK, "3 lcores, each with its own CPU, 2-4", "");
	l = LCORES(true, "2", "3", "3");
	check_sharing(&check, &l);
	want(CHECK_WARN, "lcores 3 (builder) and 4 (builder) share CPU 3", "--lcores");
	l = LCORES(true, "2", "3,4");
	check_sharing(&check, &l);
	want(CHECK_WARN, "lcore 3 (builder) is not pinned: it may run on CPUs 3,4",
		"--lcores 3@CPU");
	l = LCORES(true, "2", "3");
	strcpy(l.lcore[0].roles, "rx 0, builder");
	check_sharing(&check, &l);
	want(CHECK_WARN, "rx 0, builder on lcore 2", "-l");
	l.live = false;
	check_sharing(&check, &l);
	want(CHECK_OK, "rx 0, builder on lcore 2", "");
}

static void
test_siblings(void **state)
{
	struct check_lcores l = LCORES(true, "0", "1");

	check_siblings(&check, &l);
	want(CHECK_NA, "not reported by the kernel", "");
	put("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n");
	put("/sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1\n");
	check_siblings(&check, &l);
	want(CHECK_OK, "one thread per core", "");
	put("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,64\n");
	check_siblings(&check, &l);
	want(CHECK_OK, "no two", "");
	put("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n");
	check_siblings(&check, &l);
	want(CHECK_WARN, "CPUs 0,1 share a physical core", "smt/control");
}

static void
test_isolation(void **state)
{
	struct check_lcores l = LCORES(true, "2", "3");

	check_isolation(&check, &l);
	want_item("isolated CPUs", CHECK_WARN, "none; polling CPUs 2,3 are not");
	want_item("CPUs without ticks", CHECK_WARN, "none; polling CPUs 2,3 are not");
	check.nb_rows = 0;
	put("/sys/devices/system/cpu/isolated", "2-7\n");
	put("/sys/devices/system/cpu/nohz_full", "3-7\n");
	check_isolation(&check, &l);
	want_item("isolated CPUs", CHECK_OK, "2-7");
	want_item("CPUs without ticks", CHECK_WARN, "polling CPUs 2 are not");
	check.nb_rows = 0;
	put("/sys/devices/system/cpu/isolated", "\n");
	put("/sys/devices/system/cpu/nohz_full", " (null)\n");
	l.live = false;
	check_isolation(&check, &l);
	want_item("isolated CPUs", CHECK_NA, "none; not needed for a replay");
	want_item("CPUs without ticks", CHECK_NA, "none; not needed for a replay");
}

static void
test_governor(void **state)
{
	struct check_lcores l = LCORES(true, "0", "1");

	check_governor(&check, &l);
	want(CHECK_NA, "no governor", "");
	put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
	put("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave\n");
	check_governor(&check, &l);
	want(CHECK_OK, "performance", "");
	put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
	check_governor(&check, &l);
	want(CHECK_WARN, "governor powersave on CPUs 1", "cpupower -c 1 ");
	l.live = false;
	check_governor(&check, &l);
	want(CHECK_NA, "powersave", "");
}

static void
test_irqbalance(void **state)
{
	struct check_lcores l = LCORES(true, "2");

	put("/proc/1/comm", "init\n");
	put("/proc/cmdline", "irqbalance\n");
	check_irqbalance(&check, &l);
	want(CHECK_OK, "not running", "");
	put("/proc/77/comm", "irqbalance\n");
	check_irqbalance(&check, &l);
	want(CHECK_WARN, "polling CPUs 2", "systemctl disable --now irqbalance");
	put("/sys/devices/system/cpu/isolated", "2-5\n");
	check_irqbalance(&check, &l);
	want(CHECK_OK, "ignores isolated CPUs", "");
	l.live = false;
	check_irqbalance(&check, &l);
	want(CHECK_NA, "replay", "");
}

static void
test_interrupts(void **state)
{
	struct check_lcores l = LCORES(true, "2", "3");

	check_interrupts(&check, &l);
	want(CHECK_NA, "not reported by the kernel", "");
	put("/proc/irq/default_smp_affinity", "f\n");
	put("/proc/irq/24/effective_affinity_list", "0-1\n");
	put("/proc/irq/24/eth0-rx-0/x", "");
	/* an interrupt without a handler */
	put("/proc/irq/25/effective_affinity_list", "3\n");
	check_interrupts(&check, &l);
	want(CHECK_OK, "no device interrupts", "");
	put("/proc/irq/36/effective_affinity_list", "3\n");
	put("/proc/irq/36/nvme0q4/x", "");
	check_interrupts(&check, &l);
	want(CHECK_WARN, "1 device interrupt(s) on polling CPUs: nvme0q4 (36)",
		"smp_affinity_list");
	l.live = false;
	check_interrupts(&check, &l);
	want(CHECK_NA, "replay", "");
}

static void
test_command_line(void **state)
{
	struct check_lcores l = LCORES(true, "2", "3", "4");

	check_command_line(&check, &l);
	want(CHECK_NA, "cannot be read", "");
	put("/proc/cmdline", "root=/dev/sda1 noisolcpus=1 quiet\n");
	check_command_line(&check, &l);
	want(CHECK_WARN, "no relevant options",
		"isolcpus=managed_irq,domain,2-4 nohz_full=2-4 rcu_nocbs=2-4 iommu=pt");
	put("/proc/cmdline", "root=/dev/sda1 iommu=pt isolcpus=2-4\n");
	check_command_line(&check, &l);
	want(CHECK_WARN, "isolcpus=2-4 iommu=pt; ", "nohz_full=2-4");
	put("/proc/cmdline", "isolcpus=2-4 nohz_full=2-4");
	check_command_line(&check, &l);
	want(CHECK_OK, "isolcpus=2-4 nohz_full=2-4", "");
	l.live = false;
	check_command_line(&check, &l);
	want(CHECK_NA, "replay", "");
}

static const struct check_heap huge_heap = {.huge = true, .free = 1 << 20, .largest = 1 << 20};

static void
test_huge_pages(void **state)
{
	const struct check_heap no_huge = {.huge = false};
	const struct check_need need = {.heap = UINT64_C(8) << 20};

	check_huge_pages(&check, &no_huge, &need);
	want(CHECK_NA, "--no-huge", "");
	check_huge_pages(&check, &huge_heap, &need);
	want(CHECK_FAIL, "none; 8.0 MiB required", "hugepages=1");
	/* numbers of the whole machine if there are no nodes */
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "10\n");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "4\n");
	check_huge_pages(&check, &huge_heap, &need);
	want(CHECK_OK, "4 of 10 x 2.0 MiB free", "");
	/* else the numbers of the node */
	put("/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
	put("/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages", "0\n");
	put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "5\n");
	put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "2\n");
	check_huge_pages(&check, &huge_heap, &need);
	/* the heap has 1 MiB and the free pages have 4 MiB: 2 more pages are needed */
	want(CHECK_FAIL, "2 of 5 x 2.0 MiB free, 0 of 1 x 1.0 GiB free",
		"echo 7 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages");
	put("/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages", "1\n");
	check_huge_pages(&check, &huge_heap, &need);
	want(CHECK_OK, "1 of 1 x 1.0 GiB free; 8.0 MiB required there", "");
}

static void
test_heap(void **state)
{
	struct check_heap heap = {.free = 100 << 20, .largest = 90 << 20, .taken = 10 << 20};
	struct check_need need = {
		.heap = 80 << 20, .largest = 50 << 20, .largest_name = "[gpu] outputs"};

	check_heap(&check, &heap, &need);
	want(CHECK_OK, "80.0 MiB required, 50.0 MiB of it for [gpu] outputs; 100 MiB free", "");
	heap.largest = 40 << 20;
	check_heap(&check, &heap, &need);
	want(CHECK_FAIL, "50.0 MiB of it", "-m 111");
	heap.largest = heap.free = 60 << 20;
	check_heap(&check, &heap, &need);
	want(CHECK_FAIL, "60.0 MiB free", "reduce [frames] slots");
	check_heap(&check, &huge_heap, &need);
	want(CHECK_OK, "the rest from huge pages", "");
	need.missing = 1;
	check_heap(&check, &huge_heap, &need);
	want(CHECK_OK, "the rest from huge pages; more for the ports without a device", "");
	check_heap(&check, &heap, &need);
	want(CHECK_FAIL, "60.0 MiB free; more for the ports without a device", "-m 111");
}

static void
test_numa_balancing(void **state)
{
	check_numa_balancing(&check);
	want(CHECK_NA, "", "");
	put("/sys/devices/system/node/online", "0-1\n");
	put("/proc/sys/kernel/numa_balancing", "1\n");
	check_numa_balancing(&check);
	want(CHECK_WARN, "on", "sysctl kernel.numa_balancing=0");
	put("/proc/sys/kernel/numa_balancing", "0\n");
	check_numa_balancing(&check);
	want(CHECK_OK, "off", "");
}

static void
test_autogroup(void **state)
{
	check_autogroup(&check);
	want(CHECK_NA, "", "");
	put("/proc/sys/kernel/sched_autogroup_enabled", "1\n");
	check_autogroup(&check);
	want(CHECK_WARN, "on", "sysctl kernel.sched_autogroup_enabled=0");
	put("/proc/sys/kernel/sched_autogroup_enabled", "0\n");
	check_autogroup(&check);
	want(CHECK_OK, "off", "");
}

static void
test_tsc(void **state)
{
	check_tsc(&check);
	want(CHECK_NA, "not an x86 CPU", "");
	put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc\nbugs\t:\n");
	check_tsc(&check);
	want(CHECK_OK, "the kernel's clock is unknown", "");
	put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
	check_tsc(&check);
	want(CHECK_OK, "the kernel's clock is tsc", "");
	put("/proc/cpuinfo",
		"processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc_s3\n"
		"bugs\t: nonstop_tsc\n");
	check_tsc(&check);
	want(CHECK_WARN, "not invariant", "BIOS");
}

static void
test_clock(void **state)
{
	struct timex t = {.maxerror = 300};

	check_clock(&check, TIME_OK, &t);
	want(CHECK_OK, "synchronised, error at most 300 us", "");
	check_clock(&check, TIME_ERROR, &t);
	want(CHECK_WARN, "not synchronised", "chronyd");
	t.status = STA_UNSYNC;
	check_clock(&check, TIME_OK, &t);
	want(CHECK_WARN, "not synchronised", "chronyd");
	check_clock(&check, -EPERM, &t);
	want(CHECK_NA, "adjtimex: ", "");
}

static void
test_udp_ports(void **state)
{
	struct settings s = {.udp_port = 50001};

	detector_init(&s.detector, &jungfrau_ops, 8, 2);
	check_udp_ports(&check, &s);
	want(CHECK_OK, "50001 ... 50016", "");
	/* 50000 and 50017 are outside the range; 50016 = 0xC360 is its last port */
	put("/proc/net/udp",
		"  sl  local_address rem_address   st\n"
		"  12: 00000000:C350 00000000:0000 07\n"
		"  13: 00000000:C361 00000000:0000 07\n");
	check_udp_ports(&check, &s);
	want(CHECK_OK, "50001 ... 50016", "");
	put("/proc/net/udp6",
		"  sl  local_address                         remote_address\n"
		"  12: 00000000000000000000000000000000:C360 "
		"00000000000000000000000000000000:0000\n");
	check_udp_ports(&check, &s);
	want(CHECK_WARN, "bound to 50016", "ss -ulpn");
	s.udp_port = 4780;
	check_udp_ports(&check, &s);
	want(CHECK_FAIL, "4780 ... 4795 include 4791", "udp_port");
}

/* What detectors that speak RoCEv2 need. */
static void
test_ingest(void **state)
{
	const struct check_heap heap = {.huge = true, .free = 64 << 20};
	struct check_need need = {.heap = 100 << 20};
	struct settings s = make_settings();
	char file[PATH_MAX + 16];

	check_queue_pairs(&check, &s);
	want(CHECK_NA, "UDP", "");
	check_card(&check, &s);
	want(CHECK_NA, "UDP", "");
	check_rings(&check, &s, &heap, &need);
	want(CHECK_NA, "buffers of ports", "");

	s.ingest.transport = INGEST_WRITE;
	check_queue_pairs(&check, &s);
	want(CHECK_OK, "4, free numbers", "");
	strcpy(s.ports[0].rdma, "ip=10.0.0.1/24,mtu=4096");
	s.ingest.qpn = 4092;
	check_queue_pairs(&check, &s);
	want(CHECK_OK, "0xffc ... 0xfff", "");
	s.ingest.qpn++;
	check_queue_pairs(&check, &s);
	want(CHECK_FAIL, "ends at 0xfff", "qps=8192");
	strcpy(s.ports[0].rdma, "ip=10.0.0.1/24,qps=5000");
	check_queue_pairs(&check, &s);
	want(CHECK_OK, "0xffd ... 0x1000", "");

	check_card(&check, &s);
	want(CHECK_WARN, "only this process knows", "service");
	s.ingest.rkey = 1;
	check_card(&check, &s);
	want(CHECK_OK, "by hand", "");
	s.ingest.service = 4792;
	check_card(&check, &s);
	want(CHECK_OK, "detectors that connect", "");
	snprintf(file, sizeof(file), "%s/card.ini", root);
	s.ingest.card = file;
	check_card(&check, &s);
	want(CHECK_OK, "card.ini", "");
	assert_int_equal(access(file, F_OK), -1);
	snprintf(file, sizeof(file), "%s/none/card.ini", root);
	check_card(&check, &s);
	want(CHECK_FAIL, "No such file", "[ingest] card");

	need.rings = 512 << 20;
	put("/proc/meminfo", "MemTotal:  9999999 kB\nMemAvailable:   524287 kB\n");
	check_rings(&check, &s, &heap, &need);
	want(CHECK_FAIL, "512 MiB for 4 streams", "slots");
	put("/proc/meminfo", "MemTotal:  9999999 kB\nMemAvailable:   524288 kB\n");
	check_rings(&check, &s, &heap, &need);
	want(CHECK_WARN, "small pages", "huge pages");
	/* 36 MiB of them are for EAL */
	put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "300");
	put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "273");
	check_rings(&check, &s, &heap, &need);
	want(CHECK_WARN, "small pages", "huge pages");
	put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "274");
	check_rings(&check, &s, &heap, &need);
	want(CHECK_OK, "512 MiB of huge pages free", "");
}

/* What host gangs need to search for peaks. */
static void
test_searches(void **state)
{
	struct check_need need = {.rings = 1 << 20};
	struct settings s = make_settings();

	s.gangs = 3;
	s.gang_workers = 2;
	check_searches(&check, &s, &need);
	want(CHECK_NA, "no peak search or radial profile on host gangs", "");
	need.searches = 511 << 20;
	put("/proc/meminfo", "MemAvailable:   524288 kB\n");
	check_searches(&check, &s, &need);
	want(CHECK_OK, "at most 511 MiB (threads: 6); 512 MiB available", "");
	need.searches++;
	check_searches(&check, &s, &need);
	want(CHECK_FAIL, "512 MiB available, also for rings", "gang_workers");
}

/* The checks create directory and files as a run does, and remove them. */
static void
test_storage(void **state)
{
	char out[PATH_MAX + 8], file[PATH_MAX + 32];
	struct settings s = make_settings();
	struct check_maps maps;

	s.sample = "";
	s.store_calibration = true;
	s.frames_interval = 1024;
	s.images_interval = 64;
	s.calibration.energy = 12.4;
	s.calibration.nominal_gain[0] = 41;
	check_calibration(&check, &s, &maps);
	assert_true(maps.loaded);
	snprintf(out, sizeof(out), "%s/out", root);
	s.directory = out;
	s.run = "run";
	check_directory(&check, &s, &maps);
	want(CHECK_OK, "will be created", "");
	assert_int_equal(access(out, F_OK), -1);
	put("/out/other_frames.arrow", "");
	check_directory(&check, &s, &maps);
	want(CHECK_OK, out, "");
	check_space(&check, &s);
	assert_non_null(strstr(check.rows[check.nb_rows - 1].value, "full images of 4.0 MiB"));
	check_direct_io(&check, &s);
	assert_int_not_equal(check.rows[check.nb_rows - 1].verdict, CHECK_FAIL);
	put("/out/run_images.arrow", "");
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "run_images.arrow already exists", "[run] name");
	/* the runs of a service get their names later */
	s.service = true;
	check_directory(&check, &s, &maps);
	want(CHECK_OK, out, "");
	s.service = false;
	/* rotated files, and files of a run that is still open */
	s.run = "rolled";
	put("/out/rolled_000001_frames.arrow", "");
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "rolled_000001_frames.arrow already exists", "[run] name");
	s.run = "third";
	put("/out/third_images.arrow.part", "");
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "third_images.arrow.part", "--recover");
	s.run = "fourth";
	put("/out/fourth_calibration.bin", "x");
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "fourth_calibration.bin belongs to another calibration", "[run] name");
	egress.device = "roce:port=0";
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "fourth_calibration.bin belongs to another calibration", "[run] name");
	egress.device = NULL;
	s.run = "run";
	snprintf(out, sizeof(out), "%s/a/b/c", root);
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "No such file", "mkdir -p");
	check_space(&check, &s);
	want(CHECK_NA, "no directory", "");
	check_direct_io(&check, &s);
	want(CHECK_NA, "cannot create a file", "");
	put("/file", "");
	snprintf(file, sizeof(file), "%s/file", root);
	s.directory = file;
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "Not a directory", "");
	/* a dangling link */
	snprintf(file, sizeof(file), "%s/link", root);
	assert_int_equal(symlink("nowhere", file), 0);
	check_directory(&check, &s, &maps);
	want(CHECK_FAIL, "No such file", "mkdir -p");
	check_free_maps(&maps);
}

static void
put_pedestals(const char *name, const struct settings *s, float value)
{
	const uint32_t pixels = s->detector.ops->rows * s->detector.ops->cols;
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", root, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	for (uint32_t i = 0; i < pixels; i++)
		assert_int_equal(fwrite(&value, sizeof(value), 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

static void
check_calibration_warnings(const struct settings *s)
{
	struct check_maps maps;

	check_calibration(&check, s, &maps);
	check_free_maps(&maps);
}

static void
test_calibration(void **state)
{
	struct settings s = make_settings();
	char path[PATH_MAX + 32];
	uint32_t rows;

	s.calibration.energy = 12.4;
	s.calibration.nominal_gain[0] = 41;
	check_calibration_warnings(&s);
	want(CHECK_WARN, "no pedestal files of G0, G1, G2: ", "pedestal_g0_m%d.bin");
	s.calibration.dark_run = true; /* the other stages have no files in this test */
	snprintf(path, sizeof(path), "%s/p_m%%d.bin", root);
	s.calibration.pedestal[0] = path;
	put_pedestals("/p_m0.bin", &s, 3000);
	check_calibration_warnings(&s);
	want(CHECK_FAIL, "p_m1.bin: No such file", "[calibration]");
	/* files that a run refuses or warns of */
	put("/p_m1.bin", "");
	check_calibration_warnings(&s);
	want(CHECK_FAIL, "p_m1.bin has 0 bytes", "this detector");
	put_pedestals("/p_m1.bin", &s, 14000);
	check_calibration_warnings(&s);
	want(CHECK_WARN, "module 1: the median pedestal of G0 is 14000", "[calibration]");
	assert_string_equal(check.rows[check.nb_rows - 1].item, "calibration, module 1");
	put_pedestals("/p_m0.bin", &s, 14000);
	rows = check.nb_rows;
	check_calibration_warnings(&s);
	assert_int_equal(check.nb_rows, rows + 3);
	assert_string_equal(check.rows[rows + 1].item, "calibration, module 0");
	put_pedestals("/p_m0.bin", &s, 3000);
	put_pedestals("/p_m1.bin", &s, 3000);
	check_calibration_warnings(&s);
	want(CHECK_OK, "0 of 1048576 pixels masked, 0 warnings", "");
}

static void
test_geometry(void **state)
{
	struct settings s = make_settings();
	struct geometry_settings *g = &s.geometry;
	const struct geometry_settings good = {.known = true,
		.beam_x = 515,
		.beam_y = 257,
		.distance_mm = 80,
		.calibration_kev = 12.4,
		.column_modules = 2,
		.chip_gap = 2,
		.gap_x = 8,
		.gap_y = 36};

	check_geometry(&check, &s);
	want(CHECK_NA, "none", "");
	*g = good;
	check_geometry(&check, &s);
	want(CHECK_OK, "16 panels, picture 1030 x 1064, beam between panels, corner at 1.4 A", "");
	g->beam_x = 5000;
	check_geometry(&check, &s);
	want(CHECK_WARN, "beam outside", "beam_x and beam_y are pixels");
	*g = good;
	g->gap_y = 0;
	g->chip_gap = 0;
	check_geometry(&check, &s);
	want(CHECK_OK, "2 panels, picture 1024 x 1024, beam on m0,", "");
	*g = good;
	g->distance_mm = 0.08;
	check_geometry(&check, &s);
	want(CHECK_WARN, "0.08 mm from the sample, 12.4 keV: the corner is at 89.9 degrees",
		"distance_mm in mm");
	g->distance_mm = 80000;
	check_geometry(&check, &s);
	want(CHECK_WARN, "80000 mm", "distance_mm in mm");
	*g = good;
	g->energy_kev = 9;
	check_geometry(&check, &s);
	want(CHECK_WARN, "photon energy 9 keV, [calibration] energy_kev = 12.4",
		"set [calibration] energy_kev");
}

static void
test_geometry_of_a_file(void **state)
{
	static const char common[] = "clen = 0.08 m\nphoton_energy = 12400 eV\nres = 13333.3\n"
				     "adu_per_photon = 1\nfs = x\nss = -y\nmin_fs = 0\n"
				     "max_fs = 1023\n";
	static const char first[] = "a/min_ss = 0\na/max_ss = 511\na/corner_x = -500\n"
				    "a/corner_y = 500\n";
	struct settings s = make_settings();
	char text[1024], path[PATH_MAX + 8];

	snprintf(path, sizeof(path), "%s/g.geom", root);
	s.geometry =
		(struct geometry_settings){.known = true, .file = path, .calibration_kev = 12.4};
	check_geometry(&check, &s);
	want(CHECK_FAIL, "cannot read", "correct [geometry]");
	snprintf(text, sizeof(text), "%s%s", common, first);
	put("/g.geom", text);
	check_geometry(&check, &s);
	want(CHECK_WARN, "; 524288 pixels, the first of module 1, are in no panel", "add panels");
	snprintf(text, sizeof(text),
		"%s%sb/min_ss = 512\nb/max_ss = 1023\nb/corner_x = -500\nb/corner_y = 500\n",
		common, first);
	put("/g.geom", text);
	check_geometry(&check, &s);
	want(CHECK_WARN, "2 panels, picture 1024 x 512, beam on a, corner at 1.", "corners");
	want(CHECK_WARN, "panels a and b overlap", "corners");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_cpu_lists),
		TEST(test_bytes),
		TEST(test_table),
		TEST(test_table_is_bounded),
		TEST(test_sharing),
		TEST(test_siblings),
		TEST(test_isolation),
		TEST(test_governor),
		TEST(test_irqbalance),
		TEST(test_interrupts),
		TEST(test_command_line),
		TEST(test_huge_pages),
		TEST(test_heap),
		TEST(test_numa_balancing),
		TEST(test_autogroup),
		TEST(test_tsc),
		TEST(test_clock),
		TEST(test_udp_ports),
		TEST(test_ingest),
		TEST(test_searches),
		TEST(test_storage),
		TEST(test_calibration),
		TEST(test_geometry),
		TEST(test_geometry_of_a_file),
	};

	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
