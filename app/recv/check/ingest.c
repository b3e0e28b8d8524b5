/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: the items that a run with RoCE detectors needs in addition to ports. */

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_string_fns.h>

#include <rdma_roce.h>

#include "check/check.h"
#include "check/ingest.h"
#include "check/memory.h"
#include "settings.h"

/** Return the entries of a device's table of queue pairs: a power of two. */
static uint32_t
table_size(const struct port_settings *p)
{
	const char *at = strstr(p->rdma, "qps=");
	const unsigned long n = at != NULL ? strtoul(at + strlen("qps="), NULL, 10) : 0;

	return rte_align32pow2(n > 0 && n <= INT32_MAX ? (uint32_t)n : RDMA_ROCE_QPS);
}

void
check_queue_pairs(struct check *c, const struct settings *s)
{
	const uint32_t qpn = s->ingest.qpn, last = qpn + s->detector.streams - 1;

	if (s->ingest.transport == INGEST_UDP) {
		check_add(c, CHECK_NA, "queue pairs", "UDP packets");
		return;
	}
	if (qpn == 0) {
		check_add(c, CHECK_OK, "queue pairs", "%u, free numbers", s->detector.streams);
		return;
	}
	for (uint32_t i = 0; i < s->nb_ports; i++) {
		const uint32_t size = table_size(&s->ports[i]);

		if (last < size)
			continue;
		check_add(c, CHECK_FAIL, "queue pairs",
			"0x%x ... 0x%x, and the table of [port %u] device ends at 0x%x", qpn, last,
			i, size - 1);
		check_fix(c, "set a lower [ingest] qpn, or add qps=%u to the device",
			rte_align32pow2(last + 1));
		return;
	}
	check_add(c, CHECK_OK, "queue pairs", "0x%x ... 0x%x", qpn, last);
}

void
check_card(struct check *c, const struct settings *s)
{
	const struct ingest_settings *i = &s->ingest;
	char copy[PATH_MAX];
	const char *directory;

	if (i->transport == INGEST_UDP) {
		check_add(c, CHECK_NA, "card", "UDP packets");
		return;
	}
	if (i->transport == INGEST_MULTICAST) {
		check_add(c, CHECK_NA, "card", "multicast: receivers connect to the detector");
		return;
	}
	if (i->card == NULL && i->service == 0 &&
		(i->qpn == 0 || (i->transport == INGEST_WRITE && i->rkey == 0))) {
		check_add(c, CHECK_WARN, "card",
			"none, no service, and numbers and keys that only this process knows");
		check_fix(c, "set [ingest] card or service, so that the detector can send");
		return;
	}
	if (i->card == NULL) {
		check_add(c, CHECK_OK, "card", "%s",
			i->service != 0 ? "sent to detectors that connect"
					: "none: the detector is configured by hand");
		return;
	}
	/* the file is replaced: its directory must be writable */
	rte_strscpy(copy, i->card, sizeof(copy));
	directory = dirname(copy);
	if (access(directory, W_OK | X_OK) == 0) {
		check_add(c, CHECK_OK, "card", "%s", i->card);
		return;
	}
	check_add(c, CHECK_FAIL, "card", "%s: cannot write to %s: %s", i->card, directory,
		strerror(errno));
	check_fix(c, "create the directory, or set another [ingest] card");
}

void
check_rings(struct check *c, const struct settings *s, const struct check_heap *heap,
	const struct check_need *need)
{
	const uint64_t huge = check_free_huge_pages(c, heap->node);
	/* EAL takes what its heap lacks from the same pages */
	const uint64_t eal = heap->huge ? need->heap - RTE_MIN(need->heap, heap->free) : 0;
	char want[16], have[16];

	if (need->rings == 0) {
		check_add(c, CHECK_NA, "rings", "pixels stay in the buffers of ports");
		return;
	}
	check_print_bytes(need->rings, want);
	if (huge >= eal + need->rings) {
		check_add(c, CHECK_OK, "rings", "%s for %u streams, %s of huge pages free", want,
			s->detector.streams, check_print_bytes(huge - eal, have));
		return;
	}
	check_print_bytes(check_available(c), have);
	if (check_available(c) < need->rings) {
		check_add(c, CHECK_FAIL, "rings", "%s for %u streams; %s available", want,
			s->detector.streams, have);
		check_fix(c, "set [ingest] slots lower");
		return;
	}
	check_add(c, CHECK_WARN, "rings", "%s for %u streams, of small pages", want,
		s->detector.streams);
	check_fix(c,
		"more huge pages: an adapter and the CPU then need fewer translations; see the "
		"item above");
}
