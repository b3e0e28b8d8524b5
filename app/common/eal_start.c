/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <rte_eal.h>

#include "eal_start.h"

static char separator[] = "--";

int
eal_own_words(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], separator) == 0) {
			argv[i] = argv[0];
			return i;
		}
	}
	return 0;
}

int
eal_start(int argc, char **argv, int own)
{
	if (own == 0)
		return rte_eal_init(1, argv);
	argv[own] = separator;
	return rte_eal_init(argc, argv);
}
