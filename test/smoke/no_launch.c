/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: launching work on an lcore fails, except for EAL's own launches at its start. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include <rte_launch.h>

int
rte_eal_remote_launch(lcore_function_t *f, void *arg, unsigned int lcore)
{
	int (*launch)(lcore_function_t * f, void *arg, unsigned int lcore);

	if (arg != NULL)
		return -EBUSY;
	launch = (int (*)(lcore_function_t *, void *, unsigned int))dlsym(
		RTLD_NEXT, "rte_eal_remote_launch");
	return launch(f, arg, lcore);
}
