/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store client's work, in each of its states, and the functions for its owner.
 * store_client_private.h has its other parts.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "egress/store_client_private.h"

LOG_REGISTER("xfer", "xfer");

#define WAITING_MS (4 * XFER_AUTH_MS)

/* Log a connected store that returns no results for batches that it was sent. */
static void
store_client_watch_results(struct store_client *s, uint64_t now)
{
	if (store_client_is_idle(s) || s->stats.store_state != XFER_STATE_GOOD) {
		s->progress_at = now;
	} else if (now >= s->progress_at + XFER_STUCK_MS && !s->stuck) {
		s->stuck = true;
		s->stats.stuck++;
		CLIENT_LOG(WARNING, s,
			"no result for %" PRIu64 " ms: %u of %u slots wait for a result, %u "
			"WRITEs in progress, %u batches queued",
			now - s->progress_at, s->nb_slots - s->nb_free[0] - s->nb_free[1],
			s->nb_slots, s->writes, s->queue[0].nb + s->queue[1].nb);
	} else if (now < s->progress_at + XFER_STUCK_MS && s->stuck) {
		s->stuck = false;
		CLIENT_LOG(WARNING, s, "results arrive again");
	}
}

/* Log once that batches accumulate for a store that is not connected. */
static void
store_client_watch_connection(struct store_client *s, uint64_t now)
{
	/* the first attempt takes longer if the store recovers */
	const uint64_t time = s->stats.failure != NULL ? XFER_DOWN_MS : XFER_STUCK_MS;

	if (s->down_logged || s->down_since == 0 || now < s->down_since + time)
		return;
	/* store_client_refuse() has logged what to check: the store runs, at this address */
	if (s->stats.failure == xfer_reason_name(XFER_REASON_KEY))
		return;
	s->down_logged = true;
	CLIENT_LOG(WARNING, s,
		"no connection for %" PRIu64 " ms: %s; state %s, %" PRIu64 " attempts refused, "
		"%" PRIu64
		" not answered; retrying. Check [egress] stores, and that the store runs",
		now - s->down_since,
		s->stats.failure != NULL ? s->stats.failure : "the first attempt goes on",
		store_client_state_name(s->state), s->stats.refused, s->stats.unreachable);
}

static bool
work_up(struct store_client *s, uint64_t now)
{
	bool busy = false;

	if (now > s->last_received_at + s->silence_ms) {
		CLIENT_LOG(WARNING, s, "no message for %" PRIu64 " ms", now - s->last_received_at);
		store_client_refuse(s, XFER_REASON_SILENT);
		return true;
	}
	if (now >= s->last_sent_at + s->heartbeat_ms)
		store_client_send_status(s);
	store_client_watch_results(s, now);
	if (s->state != STORE_CLIENT_UP)
		return false;
	store_client_resend_corrupted(s, now);
	/* `frames` first: its batches are few and small */
	while (s->stats.store_state == XFER_STATE_GOOD &&
		(store_client_send_batch(s, 0) || store_client_send_batch(s, 1)))
		busy = true;
	/* the connection may have been closed */
	if (!s->finish || s->state != STORE_CLIENT_UP)
		return busy;
	store_client_drop_reassigned(s);
	if (store_client_is_idle(s))
		store_client_send_end(s);
	return busy;
}

/* Check the identity of the store. @return true if it can be used */
static bool
check_identity(struct store_client *s)
{
	const uint64_t identity = s->handshake.answer.node;

	s->proved = store_set_prove(s->config.stores, s->config.at, identity) == 0;
	if (!s->proved) {
		store_client_refuse(s, XFER_REASON_STORE);
		return false;
	}
	s->stats.identity = identity;
	return true;
}

static bool
work_authenticating(struct store_client *s, uint64_t now)
{
	void *room;
	size_t size;

	if (xfer_auth_late(&s->handshake, now)) {
		store_client_refuse(s, XFER_REASON_LATE);
		return true;
	}
	while ((room = xfer_qp_room(&s->link)) != NULL) {
		size = xfer_auth_send(&s->handshake, room);
		if (size == 0)
			break;
		(void)xfer_qp_send(&s->link, size);
	}
	if (s->handshake.state != XFER_AUTH_DONE)
		return false;
	s->messages_sent = s->handshake.sent;
	s->messages_received = s->handshake.received;
	/* before sending anything that is meant for one store only */
	if (!check_identity(s))
		return true;
	s->lists_sent = 0;
	s->list_at = 0;
	s->all_lists_sent = false;
	s->inventory_complete = false;
	s->inventory_table = 0;
	s->inventory_next = 0;
	s->waiting_since = 0;
	s->recovering_since = now;
	s->last_sent_at = now;
	s->state_reported = false;
	if (store_client_collect(s) < 0) {
		store_client_refuse(s, XFER_REASON_FAILED);
		return true;
	}
	/*
	 * From here on no batch may be reassigned from this store, because REASSIGNED is being
	 * sent.
	 */
	store_client_enter(s, STORE_CLIENT_WAITING);
	return true;
}

bool
store_client_poll(struct store_client *s)
{
	const uint64_t now = xfer_qp_clock();
	uint64_t away;
	bool busy = false;

	store_client_watch_connection(s, now);
	if (s->closing && !store_client_close_link(s))
		return true;
	if (s->link_is_open) {
		away = xfer_qp_absence(&s->link, now);
		s->last_received_at += away;
		s->progress_at += away;
		if (s->waiting_since != 0)
			s->waiting_since += away;
		busy = xfer_qp_poll(&s->link) > 0;
		if (s->link_is_open && s->link.broken && !s->closing &&
			s->state != STORE_CLIENT_ENDED) {
			CLIENT_LOG(
				INFO, s, "connection broken: %s", rdma_wc_status_name(s->link.why));
			store_client_go_down(s, "connection lost");
			return true;
		}
	}
	switch (s->state) {
	case STORE_CLIENT_DOWN:
		if (!s->closing && now >= s->backoff.retry_at && store_client_has_key(s, now))
			store_client_connect(s);
		break;
	case STORE_CLIENT_AUTHENTICATING:
		return work_authenticating(s, now) || busy;
	case STORE_CLIENT_WAITING:
		while (!s->all_lists_sent && xfer_qp_room(&s->link) != NULL)
			store_client_send_list(s);
		if (s->all_lists_sent && now >= s->last_sent_at + STORE_CLIENT_HEARTBEAT_MS)
			store_client_send_status(s);
		/*
		 * The store recovers first, which takes as long as a sync or an outage. Once it has
		 * begun with INVENTORY, the exchange is finite.
		 */
		if (now > s->last_received_at + WAITING_MS ||
			(s->waiting_since != 0 && now > s->waiting_since + WAITING_MS))
			store_client_refuse(s, XFER_REASON_LATE);
		break;
	case STORE_CLIENT_UP:
	case STORE_CLIENT_ENDING:
		return work_up(s, now) || busy;
	default:
		break;
	}
	return busy;
}

int
store_client_open(struct store_client **sender, const struct store_client_config *config)
{
	struct store_client *s;

	if (config->max_sge < 2 || config->max_sge > RDMA_SGE_MAX)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->down_since = xfer_qp_clock();
	if (!journal_run_get(config->journal, config->run, &s->run)) {
		free(s);
		return -EINVAL;
	}
	*sender = s;
	return 0;
}

void
store_client_finish(struct store_client *s)
{
	s->finish = true;
}

bool
store_client_again(struct store_client *s)
{
	if (s->state != STORE_CLIENT_ENDED)
		return false;
	s->down_since = s->backoff.retry_at = xfer_qp_clock();
	s->stats.failure = NULL;
	s->backoff.delay = 0;
	s->closing = s->link_is_open;
	store_client_forget_connection(s);
	store_client_enter(s, STORE_CLIENT_DOWN);
	return true;
}

bool
store_client_is_down(const struct store_client *s)
{
	return s->state <= STORE_CLIENT_AUTHENTICATING;
}

bool
store_client_takes(const struct store_client *s)
{
	return s->state == STORE_CLIENT_UP && s->stats.store_state == XFER_STATE_GOOD;
}

uint64_t
store_client_idle_since(const struct store_client *s)
{
	/* the store allocates memory and reads files, which takes some time */
	if (s->state == STORE_CLIENT_WAITING)
		return s->recovering_since;
	/* both continue without a connection */
	if (s->bad_since != 0)
		return s->bad_since;
	return s->corrupted_since != 0 ? s->corrupted_since : s->down_since;
}

const char *
store_client_state_name(enum store_client_state state)
{
	static const char *const names[STORE_CLIENT_STATES] = {
		[STORE_CLIENT_DOWN] = "down",
		[STORE_CLIENT_CONNECTING] = "connecting",
		[STORE_CLIENT_AUTHENTICATING] = "authenticating",
		[STORE_CLIENT_WAITING] = "waiting",
		[STORE_CLIENT_UP] = "up",
		[STORE_CLIENT_ENDING] = "ending",
		[STORE_CLIENT_ENDED] = "ended",
	};

	return names[state];
}

void
store_client_give_up(struct store_client *s)
{
	if (s->state <= STORE_CLIENT_CONNECTING || s->state >= STORE_CLIENT_ENDED)
		return;
	store_client_refuse(s, XFER_REASON_STOPPING);
	/* the store answers; retry after a delay */
	s->backoff.retry_at = xfer_qp_clock() + XFER_BACK_OFF_MAX_MS;
}

void
store_client_stats_get(const struct store_client *s, struct store_client_stats *stats)
{
	*stats = s->stats;
	stats->state = s->state;
	stats->slots = s->nb_slots;
	stats->credits = s->nb_free[0] + s->nb_free[1];
	stats->waiting = s->queue[0].nb + s->queue[1].nb;
}

int
store_client_close(struct store_client *s)
{
	unsigned int i;

	store_client_leave(s);
	/* if polled again, it only closes */
	s->state = STORE_CLIENT_ENDED;
	if (s->link_is_open && !s->closing) {
		xfer_qp_break(&s->link);
		s->closing = true;
	}
	if (s->link_is_open && !store_client_close_link(s))
		return -EBUSY;
	store_client_forget_connection(s);
	for (i = 0; i < XFER_TABLES; i++)
		free(s->queue[i].at);
	free(s);
	return 0;
}
