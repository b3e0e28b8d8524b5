/* SPDX-License-Identifier: BSD-3-Clause */
/* [detector] source, source_mac, destination, positions: what is read, and what passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <rte_log.h>

#include "sources.h"

static struct source_settings settings;
static struct detector d;

/** @return what config_check() says */
static int
read_settings(uint32_t modules, const char *const set[])
{
	struct config_source source = {0};
	struct config *c;
	int ret;

	for (uint32_t i = 0; set[i] != NULL; i++)
		assert_int_equal(config_source_set(&source, set[i]), 0);
	c = config_open(&source);
	assert_non_null(c);
	assert_int_equal(detector_init(&d, &jungfrau_ops, modules, 1), 0);
	memset(&settings, 0, sizeof(settings));
	source_settings_read(&settings, c, &d);
	ret = config_check(c);
	config_close(c);
	return ret;
}

#define READ(modules, ...) read_settings(modules, (const char *const[]){__VA_ARGS__, NULL})

/** Headers from 10.1.0.LAST, port 32410, to 10.0.0.1. */
static bool
passes(uint32_t stream, uint8_t last, uint16_t port, uint8_t mac)
{
	uint8_t h[SOURCE_HEADERS] = {0};

	h[11] = mac;
	memcpy(h + 26, (uint8_t[]){10, 1, 0, last, 10, 0, 0, 1, port >> 8, port & 0xFF}, 10);
	return source_passes(&settings.filter[stream], h, 0);
}

static void
sources_are_read(void **state)
{
	assert_int_equal(READ(4, "detector.source=auto"), 0);
	assert_false(settings.source);
	assert_true(passes(0, 1, 1, 1));
	assert_int_equal(READ(4, "detector.source=any"), 0);
	assert_true(settings.source && settings.any && passes(3, 99, 1, 1));
	assert_int_equal(READ(4, "detector.source=10.1.0.0/24"), 0);
	assert_true(settings.source && passes(3, 99, 1, 1));
	assert_int_equal(READ(4, "detector.source=10.2.0.0/16"), 0);
	assert_false(passes(0, 99, 1, 1));
	assert_int_equal(READ(4, "detector.source=10.1.0.7:32410"), 0);
	assert_true(passes(0, 7, 32410, 1) && passes(3, 7, 32410, 1));
	assert_false(passes(0, 8, 32410, 1) || passes(0, 7, 32411, 1));
	assert_int_equal(READ(4, "detector.source=10.1.0.5-10.1.0.8"), 0);
	for (uint32_t s = 0; s < 4; s++)
		for (uint32_t last = 0; last < 12; last++)
			assert_int_equal(passes(s, last, 1, 1), last == 5 + s);
	assert_int_equal(READ(4, "detector.source=10.1.0.9, 10.1.0.1-10.1.0.3:7"), 0);
	assert_true(passes(0, 9, 1, 1) && passes(3, 3, 7, 1));
	assert_false(passes(3, 3, 1, 1) || passes(0, 1, 7, 1));
	assert_int_equal(READ(2, "detector.source_mac=00:00:00:00:00:01,00:00:00:00:00:02"), 0);
	assert_true(passes(0, 9, 1, 1) && passes(1, 9, 1, 2) && !passes(1, 9, 1, 1));
	assert_int_equal(READ(2, "detector.destination=10.0.0.1"), 0);
	assert_true(settings.destination && passes(1, 1, 1, 1));
	assert_int_equal(READ(2, "detector.destination=10.0.0.2"), 0);
	assert_false(passes(1, 1, 1, 1));
	assert_int_equal(READ(2, "detector.positions=2"), 0);
	assert_int_equal(settings.positions, 2);
}

static void
mistakes_are_refused(void **state)
{
	static const char *const wrong[] = {"source=10.1.0", "source=10.1.0.1/33",
		"source=10.1.0.1/24", "source=10.1.0.1:0", "source=10.1.0.1:65536",
		"source=10.1.0.2-10.1.0.1", "source=10.1.0.1,10.1.0.2",
		"source=0.0.0.0-255.255.255.255", "source=detector.example", "source=,",
		"source_mac=00:11:22:33:44", "source_mac=any,any", "destination=10.0.0.1:5",
		"destination=10.0.0.1-10.0.0.2", "positions=0", "positions=33", "positions=2x"};

	rte_log_set_global_level(RTE_LOG_EMERG);
	for (uint32_t i = 0; i < RTE_DIM(wrong); i++) {
		char set[64];

		snprintf(set, sizeof(set), "detector.%s", wrong[i]);
		if (READ(4, set) == 0)
			fail_msg("%s is taken", wrong[i]);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sources_are_read),
		cmocka_unit_test(mistakes_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
