/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests texts in telemetry replies that are longer than DPDK's limit. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "telemetry/dict.h"

static struct {
	char name[RTE_TEL_MAX_STRING_LEN];
	char text[RTE_TEL_MAX_STRING_LEN];
} parts[8];
static unsigned int nb;

int __wrap_rte_tel_data_add_dict_string(struct rte_tel_data *d, const char *name, const char *val);

int
__wrap_rte_tel_data_add_dict_string(struct rte_tel_data *d, const char *name, const char *val)
{
	assert_true(nb < sizeof(parts) / sizeof(parts[0]));
	snprintf(parts[nb].name, sizeof(parts[nb].name), "%s", name);
	assert_true(snprintf(parts[nb].text, sizeof(parts[nb].text), "%s", val) <
		RTE_TEL_MAX_STRING_LEN);
	nb++;
	return 0;
}

/* Add a text, and check that its parts are the text. */
static void
add(const char *text)
{
	char whole[1024] = "", name[32] = "message";
	unsigned int i;

	nb = 0;
	telemetry_dict_text(NULL, "message", text);
	for (i = 0; i < nb; i++) {
		assert_string_equal(parts[i].name, name);
		strcat(whole, parts[i].text);
		snprintf(name, sizeof(name), "message_%u", i + 2);
	}
	assert_string_equal(whole, text);
}

/* Texts at the limit of 127 bytes are whole. */
static void
test_short(void **state)
{
	char text[128];

	add("");
	assert_int_equal(nb, 1);
	memset(text, 'x', sizeof(text));
	text[60] = ' ';
	text[127] = '\0';
	add(text);
	assert_int_equal(nb, 1);
}

/* Longer texts are cut after a blank. A word that is longer than a part is cut anywhere. */
static void
test_long(void **state)
{
	char text[512];

	memset(text, 'x', sizeof(text));
	text[100] = text[126] = text[130] = ' ';
	text[140] = '\0';
	add(text);
	assert_int_equal(nb, 2);
	assert_int_equal(strlen(parts[0].text), 127);
	text[126] = 'x';
	add(text);
	assert_int_equal(nb, 2);
	assert_int_equal(strlen(parts[0].text), 101);
	memset(text, 'x', sizeof(text));
	text[4] = ' ';
	text[400] = '\0';
	add(text);
	assert_int_equal(nb, 5);
	assert_string_equal(parts[0].text, "xxxx ");
	assert_int_equal(strlen(parts[1].text), 127);
	assert_int_equal(strlen(parts[4].text), 400 - 5 - 3 * 127);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests_name("telemetry dict", tests, NULL, NULL);
}
