/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>
#include <string.h>

#include "server/audit_log.h"

RTE_LOG_REGISTER(store_audit_logtype, braggline.audit, NOTICE);

struct store_audit_counts *
store_audit_of(struct store_audit *a, const char *name)
{
	unsigned int i;

	for (i = 0; i < a->nb; i++) {
		if (strcmp(a->identity[i].name, name) == 0)
			return &a->identity[i];
	}
	if (i == STORE_AUDITED)
		return NULL;
	snprintf(a->identity[i].name, sizeof(a->identity[i].name), "%s", name);
	a->nb = i + 1;
	return &a->identity[i];
}
