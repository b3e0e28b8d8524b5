/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <string.h>

#include "xfer/admission.h"
#include "xfer/refusal_log.h"

/* Networks without an entry share the rest of the total limit. */
static bool
prefix_may(struct refusal_limit *w, const uint8_t addr[16])
{
	const unsigned int size = admission_prefix(addr);
	unsigned int i;

	for (i = 0; i < w->nb_prefixes; i++) {
		if (size == admission_prefix(w->prefix[i].addr) &&
			memcmp(w->prefix[i].addr, addr, size) == 0)
			return w->prefix[i].nb++ < REFUSAL_LIMIT_PER_PREFIX;
	}
	if (i < REFUSAL_LIMIT_PREFIXES) {
		memcpy(w->prefix[i].addr, addr, sizeof(w->prefix[i].addr));
		w->prefix[i].nb = 1;
		w->nb_prefixes++;
	}
	return true;
}

bool
refusal_limit_take(struct refusal_limit *w, const uint8_t addr[16], uint64_t now)
{
	if (w->begin == 0)
		w->begin = now;
	if (w->nb < REFUSAL_LIMIT_IN_ALL && prefix_may(w, addr)) {
		w->nb++;
		return true;
	}
	w->suppressed++;
	w->suppressed_ever++;
	return false;
}

uint64_t
refusal_limit_poll(struct refusal_limit *w, uint64_t now)
{
	uint64_t suppressed;

	if (w->begin == 0 || now < w->begin + REFUSAL_LIMIT_MS)
		return 0;
	suppressed = w->suppressed;
	w->begin = 0;
	w->nb = 0;
	w->suppressed = 0;
	w->nb_prefixes = 0;
	return suppressed;
}

const char *
refusal_address(const uint8_t addr[16], char text[REFUSAL_ADDRESS_LEN])
{
	const bool four = admission_prefix(addr) == 15;

	if (inet_ntop(four ? AF_INET : AF_INET6, four ? addr + 12 : addr, text,
		    REFUSAL_ADDRESS_LEN) == NULL)
		text[0] = '\0';
	return text;
}
