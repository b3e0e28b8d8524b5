/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "xfer/admission.h"
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

/* Networks without an entry share the rest of the total limit. */
static bool
prefix_may(struct store_warnings *w, const uint8_t addr[16])
{
	const unsigned int size = admission_prefix(addr);
	unsigned int i;

	for (i = 0; i < w->nb_prefixes; i++) {
		if (size == admission_prefix(w->prefix[i].addr) &&
			memcmp(w->prefix[i].addr, addr, size) == 0)
			return w->prefix[i].nb++ < STORE_WARN_PER_ONE;
	}
	if (i < STORE_WARN_PREFIXES) {
		memcpy(w->prefix[i].addr, addr, sizeof(w->prefix[i].addr));
		w->prefix[i].nb = 1;
		w->nb_prefixes++;
	}
	return true;
}

bool
store_warnings_take(struct store_warnings *w, const uint8_t addr[16], uint64_t now)
{
	if (w->begin == 0)
		w->begin = now;
	if (w->nb < STORE_WARN_IN_ALL && prefix_may(w, addr)) {
		w->nb++;
		return true;
	}
	w->suppressed++;
	w->suppressed_ever++;
	return false;
}

uint64_t
store_warnings_poll(struct store_warnings *w, uint64_t now)
{
	uint64_t suppressed;

	if (w->begin == 0 || now < w->begin + STORE_WARN_MS)
		return 0;
	suppressed = w->suppressed;
	w->begin = 0;
	w->nb = 0;
	w->suppressed = 0;
	w->nb_prefixes = 0;
	return suppressed;
}

const char *
store_audit_address(const uint8_t addr[16], char text[STORE_ADDRESS_LEN])
{
	const bool four = admission_prefix(addr) == 15;

	if (inet_ntop(four ? AF_INET : AF_INET6, four ? addr + 12 : addr, text,
		    STORE_ADDRESS_LEN) == NULL)
		text[0] = '\0';
	return text;
}
