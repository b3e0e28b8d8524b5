/* SPDX-License-Identifier: BSD-3-Clause */
/* Fake trees of /proc and /sys, fake devices, and the checks of rows for the tests of --check. */
#ifndef CHECK_RIG_H
#define CHECK_RIG_H

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_ethdev.h>

#include "check/check.h"
#include "check/cpu.h"
#include "check/egress.h"
#include "check/geometry.h"
#include "check/host.h"
#include "check/ingest.h"
#include "check/memory.h"
#include "check/port.h"
#include "check/storage.h"
#include "egress/egress.h"
#include "port/placement.h"
#include "port/pools.h"
#include "port/port.h"
#include "settings.h"

static struct check check;
static char root[PATH_MAX];

static inline int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline int
new_root(void **state)
{
	snprintf(root, sizeof(root), "%s/check-XXXXXX",
		getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(root));
	check = (struct check){.root = root};
	return 0;
}

static inline int
remove_root(void **state)
{
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/** Create a file and its parent directories. */
static inline void
put(const char *path, const char *text)
{
	char name[2 * PATH_MAX];
	FILE *f;

	snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *p = name + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		mkdir(name, 0777);
		*p = '/';
	}
	f = fopen(name, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/** The last row has this verdict and contains these texts; a row that warns or fails has a fix. */
static inline void
want(enum check_verdict verdict, const char *value, const char *fix)
{
	const struct check_row *r = &check.rows[check.nb_rows - 1];

	assert_true(check.nb_rows > 0);
	if (r->verdict != verdict || strstr(r->value, value) == NULL || strstr(r->fix, fix) == NULL)
		fail_msg("%s: %s, '%s', fix '%s'; expected %s, '%s', '%s'", r->item,
			check_verdict_names[r->verdict], r->value, r->fix,
			check_verdict_names[verdict], value, fix);
	assert_int_equal(r->fix[0] != '\0', r->verdict == CHECK_WARN || r->verdict == CHECK_FAIL);
}

/** The row of an item, or NULL. */
static inline const struct check_row *
find(const char *item)
{
	for (uint32_t i = 0; i < check.nb_rows; i++)
		if (strcmp(check.rows[i].item, item) == 0)
			return &check.rows[i];
	return NULL;
}

static inline void
want_item(const char *item, enum check_verdict verdict, const char *value)
{
	const struct check_row *r = find(item);

	if (r == NULL)
		fail_msg("no row '%s'", item);
	if (r->verdict != verdict || strstr(r->value, value) == NULL)
		fail_msg("%s: %s, '%s'; expected %s, '%s'", item, check_verdict_names[r->verdict],
			r->value, check_verdict_names[verdict], value);
	assert_int_equal(r->fix[0] != '\0', r->verdict == CHECK_WARN || r->verdict == CHECK_FAIL);
}

/** Lcores 2, 3, 4 ..., each with one of these CPU lists. */
static inline struct check_lcores
make_lcores(bool live, uint32_t n, const char *const lists[])
{
	struct check_lcores l = {.live = live, .nb = n};

	for (uint32_t i = 0; i < n; i++) {
		l.lcore[i].id = i + 2;
		l.lcore[i].receives = i == 0;
		snprintf(l.lcore[i].roles, sizeof(l.lcore[i].roles), "%s",
			i == 0 ? "rx 0" : "builder");
		check_parse_cpus(lists[i], &l.lcore[i].cpus);
	}
	return l;
}

#define LCORES(live, ...)                                                         \
	make_lcores(live, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), \
		(const char *[]){__VA_ARGS__})

static const struct port_settings some_port = {.device = "0000:01:00.0",
	.nb_streams = 4,
	.streams = {0, 1, 2, 3},
	.descriptors = 1024,
	.mtu = 9000};

/** A NIC on NUMA node 1. */
static inline struct check_port
make_nic(void)
{
	return (struct check_port){.settings = &some_port,
		.queues = 2,
		.used = 2,
		.burst = 128,
		.present = true,
		.node = 1,
		.name = "0000:01:00.0",
		.driver = "mlx5_pci",
		.can_split = true,
		.max_queues = 1024,
		.ring_max = 8192,
		.max_mtu = 9978,
		.mtu = 9000,
		.link_up = true,
		.mbps = 100000,
		.flow = CHECK_FLOW_TAKEN,
		.pause = RTE_ETH_FC_FULL};
}

static const struct check_gpu cuda = {.present = true,
	.used = true,
	.packets = true,
	.node = 1,
	.name = "gpu_cuda0",
	.bytes = UINT64_C(139) << 30};

static struct egress_settings egress; /* of make_settings() */

/** Settings of two modules with two interfaces each: four streams on one port. */
static inline struct settings
make_settings(void)
{
	struct settings s = {.slots = 64,
		.rx_lcores = 2,
		.nb_ports = 1,
		.udp_port = 50001,
		.kernel = "host",
		.egress = &egress};

	egress = (struct egress_settings){0};
	detector_init(&s.detector, &jungfrau_ops, 2, 2);
	return s;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, new_root, remove_root)

#endif /* CHECK_RIG_H */
