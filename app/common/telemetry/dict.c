/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "ascii_text.h"
#include "counter.h"
#include "telemetry/dict.h"

struct rte_tel_data *
telemetry_dict_new(void)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d != NULL)
		rte_tel_data_start_dict(d);
	return d;
}

void
telemetry_dict_nest(struct rte_tel_data *d, const char *name, struct rte_tel_data *child)
{
	if (child != NULL)
		rte_tel_data_add_dict_container(d, name, child, 0);
}

void
telemetry_dict_array(struct rte_tel_data *d, const char *name, const uint64_t *values, uint32_t n)
{
	struct rte_tel_data *array = rte_tel_data_alloc();

	if (array == NULL)
		return;
	rte_tel_data_start_array(array, RTE_TEL_UINT_VAL);
	for (uint32_t i = 0; i < n; i++)
		rte_tel_data_add_array_uint(array, counter_get(&values[i]));
	telemetry_dict_nest(d, name, array);
}

void
telemetry_dict_below_us(struct rte_tel_data *d)
{
	uint64_t below[HISTOGRAM_BUCKETS];

	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		below[i] = UINT64_C(1) << i;
	telemetry_dict_array(d, "below_us", below, HISTOGRAM_BUCKETS);
}

void
telemetry_dict_histogram(struct rte_tel_data *d, const char *name, const struct histogram *h)
{
	char sum[64];

	snprintf(sum, sizeof(sum), "%s_sum_us", name);
	telemetry_dict_array(d, name, h->bucket, HISTOGRAM_BUCKETS);
	rte_tel_data_add_dict_uint(d, sum, counter_get(&h->sum_us));
}

void
telemetry_dict_real(struct rte_tel_data *d, const char *name, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.9g", value);
	rte_tel_data_add_dict_string(d, name, text);
}

void
telemetry_dict_hex(struct rte_tel_data *d, const char *name, uint64_t value)
{
	char text[17];

	snprintf(text, sizeof(text), "%016" PRIx64, value);
	rte_tel_data_add_dict_string(d, name, text);
}

/* Copy a text. If it is too long, copy only the part up to the last blank that fits, if any. */
static void
cut(char part[RTE_TEL_MAX_STRING_LEN], const char *text)
{
	char *blank;

	if (snprintf(part, RTE_TEL_MAX_STRING_LEN, "%s", text) < RTE_TEL_MAX_STRING_LEN)
		return;
	blank = strrchr(part, ' ');
	if (blank != NULL)
		blank[1] = '\0';
}

void
telemetry_dict_text(struct rte_tel_data *d, const char *name, const char *text)
{
	char part[RTE_TEL_MAX_STRING_LEN], key[RTE_TEL_MAX_STRING_LEN];
	char *ascii = ascii_text(text);
	const char *rest = ascii;
	unsigned int n = 1;

	if (ascii == NULL)
		return;
	snprintf(key, sizeof(key), "%s", name);
	do {
		cut(part, rest);
		rte_tel_data_add_dict_string(d, key, part);
		rest += strlen(part);
		snprintf(key, sizeof(key), "%s_%u", name, ++n);
	} while (rest[0] != '\0');
	free(ascii);
}
