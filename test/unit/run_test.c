/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs over a real pipeline, whose roles the test polls; packets come from the test, too. */

#include <errno.h>
#include <ftw.h>
#include <unistd.h>

#include "frame_rig.h"

#include <rte_bus_vdev.h>

#include "run.h"

static char directory[] = "/tmp/run_test_XXXXXX";
static char path[sizeof(directory) + 16];
static struct config_source source;
static struct config *config;
static struct settings settings;
static struct pipeline p;
static struct run r;

/** The configuration file, with more lines at its end. */
static void
write_config(const char *more)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f,
		"[detector]\nmodules = 1\n"
		"[port 0]\ndevice = net_null0\ndescriptors = 64\n"
		"[frames]\nslots = 8\ngive_up = 2\nstall_ms = 50\nagree = 1024\n"
		"[gpu]\nkernel = host\noutputs = 8\nbatch = 4\n"
		"[output]\ndirectory = %s\npreview = off\ncalibration = no\n%s",
		directory, more);
	assert_int_equal(fclose(f), 0);
}

static int
setup(void **state)
{
	struct way way;
	cpu_set_t cpus;

	write_config("");
	source = (struct config_source){.file = path};
	config = config_open(&source);
	assert_non_null(config);
	assert_int_equal(settings_read(&settings, config), 0);
	assert_int_equal(way_choose(&way, &settings), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	run_init(&r, &p, &settings, &source);
	assert_int_equal(rte_vdev_init("net_null0", "no-rx=1"), 0);
	return pipeline_create(&p, &settings, &way, &cpus);
}

static int
teardown(void **state)
{
	run_free(&r);
	assert_int_equal(pipeline_destroy(&p), 0);
	config_close(config);
	return 0;
}

/* Batches say who made them; stores are told once, when they are connected. */
static void
producer_is_fixed_with_stores(void **state)
{
	int ret;

	assert_int_equal(run_configure(&r, "output.producer=7"), 0);
	assert_true(r.settings.producer == 7);
	/* nothing looks at them before a run is armed */
	p.stores = (struct egress *)&p;
	ret = run_configure(&r, "output.producer=8");
	p.stores = NULL;
	assert_int_equal(ret, -EINVAL);
	assert_string_equal(r.message, "output.producer is fixed while stores are connected");
	p.stores = (struct egress *)&p;
	ret = run_configure(&r, "output.producer=0");
	p.stores = NULL;
	assert_int_equal(ret, 0);
}

static int delete (const char *name, const struct stat *s, int type, struct FTW *ftw)
{
	return remove(name);
}

int
main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	static char options[][40] = {"--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m",
		"512", "--vdev=gpu_host0", "--log-level=braggline.*:critical"};
	char *arguments[RTE_DIM(options) + 1] = {argv[0]};
	const struct CMUnitTest tests[] = {
		TEST(producer_is_fixed_with_stores),
	};
	int ret;

	for (uint32_t i = 0; i < RTE_DIM(options); i++)
		arguments[i + 1] = options[i];
	if (rte_eal_init(RTE_DIM(arguments), arguments) < 0 || mkdtemp(directory) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/recv.ini", directory);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	nftw(directory, delete, 8, FTW_DEPTH | FTW_PHYS);
	return ret;
}
