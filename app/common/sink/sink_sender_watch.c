/* SPDX-License-Identifier: BSD-3-Clause */
/* What is said of a connection that does not do what it is there for. */

#include <inttypes.h>

#include "sink_sender_private.h"

/* It is there and says so, but nothing becomes of what it was given: that should not be. */
void
sink_sender_watch_results(struct sink_sender *s, uint64_t now)
{
	if (sink_sender_is_idle(s) || s->stats.store_state != SINK_STATE_GOOD) {
		s->progress_at = now;
	} else if (now >= s->progress_at + SINK_STUCK_MS && !s->stuck) {
		s->stuck = true;
		s->stats.stuck++;
		SENDER_LOG(WARNING, s,
			"no result for %" PRIu64
			" ms: %u of %u places wait for one, %u WRITEs are on "
			"their way, %u batches wait",
			now - s->progress_at, s->nb_places - s->nb_free[0] - s->nb_free[1],
			s->nb_places, s->writes, s->queue[0].nb + s->queue[1].nb);
	} else if (now < s->progress_at + SINK_STUCK_MS && s->stuck) {
		s->stuck = false;
		SENDER_LOG(WARNING, s, "results come again");
	}
}

/* What is held for a store that is not there grows: once is enough to say so. */
void
sink_sender_watch_connection(struct sink_sender *s, uint64_t now)
{
	if (s->lonely || s->down_since == 0 || now < s->down_since + SINK_STUCK_MS)
		return;
	s->lonely = true;
	SENDER_LOG(WARNING, s,
		"no connection for %" PRIu64 " ms: it is %s, %" PRIu64
		" tries were refused (%s), %" PRIu64 " not answered; tried on",
		now - s->down_since, sink_sender_state_name(s->state), s->stats.refused,
		sink_reason_name(s->stats.reason), s->stats.unreachable);
}
