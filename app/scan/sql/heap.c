/* SPDX-License-Identifier: BSD-3-Clause */

#include <malloc.h>

#include "sql/heap.h"

#define MAPPED_BYTES (32 << 20) /* smallest allocation that is mapped: glibc's maximum */
#define KEPT_BYTES   (256 << 20)

void
sql_heap_prepare(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
	(void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}
