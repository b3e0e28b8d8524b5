/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "builder/builder.h"
#include "ledger_read.h"
#include "output/batch_writer.h"
#include "pipeline.h"
#include "port/port.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/rx.h"
#include "settings.h"

/*
 * Add the packets of an RX role. A packet counts as received once it has an outcome, so that each
 * run has the outcomes of its packets, even if packets were pending when it began or ended.
 */
static void
add_packets(struct ledger *l, const struct rx *rx)
{
	struct rx_counts of;

	rx_get_counts(rx, &of);
	for (uint32_t c = 0; c < RX_COUNTERS; c++)
		l->packets[c] += of.counters[c];
	l->packets[RX_PACKETS] += of.handoff_taken - of.counters[RX_HANDOFF_SENT] - of.pending;
	l->pending += of.pending;
}

void
ledger_read(struct ledger *l, const struct pipeline *p, const struct batch_writer *writer)
{
	const struct builder_stats stats = builder_stats(p->builder), *b = &stats;
	struct batch_writer_stats w = {0};

	memset(l, 0, sizeof(*l));
	if (writer != NULL)
		batch_writer_stats_get(writer, &w);
	l->hits = b->verdicts[FRAME_HIT];
	l->prescaled = b->verdicts[FRAME_PRESCALED];
	l->dry_run = b->verdicts[FRAME_DRY_RUN];
	l->unwritten = w.table[ARROW_IMAGES].unwritten;
	l->unwritten_rows = w.table[ARROW_FRAMES].unwritten;
	l->stored = w.table[ARROW_IMAGES].rows;
	l->held = w.held;
	l->spilled = w.spilled;
	l->unretained = w.unretained;
	l->records = w.records;
	l->vetoed = b->verdicts[FRAME_VETOED];
	l->incomplete = b->verdicts[FRAME_INCOMPLETE];
	l->lost = b->verdicts[FRAME_LOST];
	l->refused = b->verdicts[FRAME_REFUSED];
	l->aborted = b->verdicts[FRAME_ABORTED];
	l->late_frames = b->late_frames;
	l->frames = b->closed + b->late_frames;
	l->frame_packets = b->packets;
	l->incomplete_kept = b->incomplete_kept;
	l->missing_packets = b->missing_packets;
	l->timeouts = b->timeouts;
	for (uint32_t i = 0; i < p->settings->rx_lcores; i++)
		if (p->rx[i] != NULL)
			add_packets(l, p->rx[i]);
	/*
	 * An event was placed as all packets of its stream and frame. Those that gangs did not find
	 * have not been received.
	 */
	l->packets[RX_PACKETS] -= b->not_found;
	l->packets[RX_PLACED] -= b->not_found + b->overrun;
	l->packets[RX_OVERRUN] += b->overrun;
	for (uint32_t i = 0; i < p->nb_ports; i++) {
		port_drops_add(&p->ports[i], l->ports);
		l->unfinished += port_unfinished(&p->ports[i]);
	}
	if (p->messages != NULL && p->messages->multicast != NULL)
		rx_multicast_add_drops(p->messages->multicast, l->ports);
	ledger_balance(l);
}
