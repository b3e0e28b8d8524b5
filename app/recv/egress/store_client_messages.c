/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages to a store and from it, except those of the inventory.
 */

#include <inttypes.h>

#include "egress/store_client_private.h"
#include "fail_point.h"

LOG_REGISTER("xfer", "xfer");

void
store_client_send_status(struct store_client *s)
{
	struct xfer_status *m = xfer_qp_room(&s->link);

	if (m == NULL)
		return;
	xfer_msg_begin(m, XFER_STATUS, sizeof(*m), s->messages_sent++);
	(void)xfer_qp_send(&s->link, sizeof(*m));
	s->last_sent_at = xfer_qp_clock();
}

/*
 * Whether batches came to be in doubt during this connection: this store kept its copies, because
 * those in the journal are damaged, and then another store proved to have sound copies.
 */
static bool
store_client_has_doubts(const struct store_client *s)
{
	const unsigned int number = store_client_number(s);
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t i;

	journal_stats_get(s->config.journal, &stats);
	if (stats.in_doubt == 0)
		return false;
	for (i = journal_next(s->config.journal, 0); i != UINT32_MAX;
		i = journal_next(s->config.journal, i + 1)) {
		if (journal_get(s->config.journal, i, &b) && b.run == s->config.run && !b.held &&
			b.owner != number && (b.given & 1u << number) != 0)
			return true;
	}
	return false;
}

void
store_client_send_end(struct store_client *s)
{
	struct journal_run run;
	struct xfer_end *m;
	unsigned int i;

	/* a batch of another store, or an unassigned one, may be assigned to this store */
	if (!journal_run_get(s->config.journal, s->config.run, &run) || run.held > 0)
		return;
	/* after END it accepts no changes */
	if (store_client_has_doubts(s)) {
		CLIENT_LOG(WARNING, s,
			"another store has sound copies of batches that this store may have: "
			"connecting again to say so");
		store_client_refuse(s, XFER_REASON_STOPPING);
		return;
	}
	m = xfer_qp_room(&s->link);
	if (m == NULL)
		return;
	xfer_msg_begin(m, XFER_END, sizeof(*m), s->messages_sent++);
	for (i = 0; i < XFER_TABLES; i++)
		m->batches[i] = run.batches[i];
	(void)xfer_qp_send(&s->link, sizeof(*m));
	store_client_enter(s, STORE_CLIENT_ENDING);
	FAIL_POINT("recv.end");
}

static enum xfer_reason
take_grant(struct store_client *s, const struct xfer_grant *m)
{
	enum xfer_reason reason;
	unsigned int i;

	if (!s->inventory_complete)
		return XFER_REASON_ORDER;
	store_client_release_found(s);
	reason = store_client_take_slots(s, m);
	if (reason != XFER_REASON_NONE)
		return reason;
	for (i = 0; i < XFER_TABLES; i++) {
		s->stream[i].identity = (struct arrow_identity){
			s->config.receiver_id, s->run.run, s->run.incarnation, NULL};
		s->stream[i].session_id = m->session_id;
		s->stream[i].seal = &s->link.send;
		s->stream[i].body_max = s->run.body_max[i];
		s->stream[i].table = i;
	}
	s->heartbeat_ms = m->heartbeat_ms;
	s->silence_ms = m->silence_ms;
	s->backoff.delay = 0;
	s->down_since = 0;
	s->refusals = 0;
	/* unless the store has reported another state */
	if (!s->state_reported)
		s->stats.store_state = XFER_STATE_GOOD;
	if (s->stats.store_state == XFER_STATE_GOOD)
		s->bad_since = 0;
	else if (s->bad_since == 0)
		s->bad_since = s->last_received_at;
	s->progress_at = s->last_received_at;
	s->stuck = false;
	s->stats.connections++;
	store_client_enter(s, STORE_CLIENT_UP);
	LOG_AT(s->down_logged ? RTE_LOG_WARNING : RTE_LOG_INFO,
		"store %s: connected, %u slots, %" PRIu64 " batches found in the store\n",
		store_client_name(s), s->nb_slots, s->stats.found);
	s->down_logged = false;
	if (s->config.commit_ms > 0 && m->commit_ms > s->config.commit_ms && !s->slow)
		CLIENT_LOG(WARNING, s,
			"[files] sync_ms there is %u ms, the journal was sized for %u ms: it may "
			"be too small, raise [egress] journal_mib",
			m->commit_ms, s->config.commit_ms);
	s->slow = m->commit_ms > s->config.commit_ms;
	return store_client_fill_queues(s) < 0 ? XFER_REASON_FAILED : XFER_REASON_NONE;
}

static enum xfer_reason
take_session_message(struct store_client *s, const struct xfer_msg *m)
{
	const struct xfer_status *status = (const struct xfer_status *)m;
	const bool waiting = s->state == STORE_CLIENT_WAITING;
	const bool up = s->state == STORE_CLIENT_UP || s->state == STORE_CLIENT_ENDING;

	switch ((enum xfer_type)m->type) {
	case XFER_INVENTORY:
		return waiting ? store_client_take_inventory(s, (const struct xfer_intervals *)m)
			       : XFER_REASON_ORDER;
	case XFER_GRANT:
		return waiting ? take_grant(s, (const struct xfer_grant *)m) : XFER_REASON_ORDER;
	case XFER_RESULTS:
		return up ? store_client_take_results(s, (const struct xfer_results *)m)
			  : XFER_REASON_ORDER;
	case XFER_STATUS:
		/* the store reports its state later */
		if (status->state == XFER_STATE_RECOVERING)
			return waiting && !s->inventory_complete ? XFER_REASON_NONE
								 : XFER_REASON_ORDER;
		if (status->state != s->stats.store_state)
			CLIENT_LOG(WARNING, s, "state of the store: %s",
				xfer_state_name(status->state));
		s->stats.store_state = status->state;
		s->state_reported = true;
		if (status->state == XFER_STATE_GOOD)
			s->bad_since = 0;
		else if (s->bad_since == 0)
			s->bad_since = s->last_received_at;
		return XFER_REASON_NONE;
	case XFER_ENDED:
		if (s->state != STORE_CLIENT_ENDING)
			return XFER_REASON_ORDER;
		store_client_enter(s, STORE_CLIENT_ENDED);
		store_client_leave(s);
		(void)rdma_conn_disconnect(s->conn);
		s->closing = true;
		return XFER_REASON_NONE;
	case XFER_REFUSE:
		s->stats.reason = ((const struct xfer_refuse *)m)->reason;
		return s->stats.reason;
	default:
		return XFER_REASON_ORDER;
	}
}

void
store_client_on_message(void *arg, const void *message, uint32_t size)
{
	struct store_client *s = arg;
	enum xfer_reason reason;

	s->last_received_at = s->link.listened;
	/* the connection was closed: ignore later messages */
	if (s->state == STORE_CLIENT_DOWN || s->state == STORE_CLIENT_ENDED)
		return;
	if (s->state <= STORE_CLIENT_AUTHENTICATING) {
		if (xfer_auth_receive(&s->handshake, message, size) != XFER_REASON_NONE) {
			s->stats.refused++;
			s->stats.reason = s->handshake.reason;
			store_client_refuse(s, s->handshake.reason);
			if (s->stats.reason == XFER_REASON_RIGHTS)
				store_client_forbid(s, s->stats.reason);
		}
		return;
	}
	reason = xfer_msg_check(message, size, XFER_ROLE_STORE, s->messages_received++);
	if (reason == XFER_REASON_NONE)
		reason = take_session_message(s, message);
	if (reason != XFER_REASON_NONE)
		store_client_refuse(s, reason);
	if (reason == XFER_REASON_ENDED || reason == XFER_REASON_RIGHTS ||
		reason == XFER_REASON_DIFFERS || reason == XFER_REASON_NAME)
		store_client_forbid(s, reason);
}
