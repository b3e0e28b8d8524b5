/* SPDX-License-Identifier: BSD-3-Clause */
/* List of the implementations that are built in. */

#include <string.h>

#include "gk.h"

static const struct gk_ops *const gk_ops_table[] = {
	&gk_host_ops,
#ifdef GK_CUDA
	&gk_cuda_ops,
#endif
};

const struct gk_ops *
gk_ops_find(const char *name)
{
	for (size_t i = 0; i < sizeof(gk_ops_table) / sizeof(gk_ops_table[0]); i++) {
		if (strcmp(gk_ops_table[i]->name, name) == 0)
			return gk_ops_table[i];
	}
	return NULL;
}
