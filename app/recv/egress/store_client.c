/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection to a store and its states, and log messages about connections without progress. */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "egress/store_client_private.h"
#include "fail_point.h"

RTE_LOG_REGISTER(store_client_logtype, braggline.xfer, NOTICE);

#define CONNECT_MS 3000
#define WAITING_MS (4 * XFER_AUTH_MS)

const char *
store_client_state_name(enum store_client_state state)
{
	static const char *const names[STORE_CLIENT_STATES] = {
		[STORE_CLIENT_DOWN] = "down",
		[STORE_CLIENT_CONNECTING] = "connecting",
		[STORE_CLIENT_PROVING] = "proving",
		[STORE_CLIENT_WAITING] = "waiting",
		[STORE_CLIENT_UP] = "up",
		[STORE_CLIENT_ENDING] = "ending",
		[STORE_CLIENT_ENDED] = "ended",
	};

	return names[state];
}

static void
enter(struct store_client *s, enum store_client_state state)
{
	if (s->state != state)
		CLIENT_LOG(DEBUG, s, "%s -> %s", store_client_state_name(s->state),
			store_client_state_name(state));
	s->state = state;
}

/* ---- connections ---- */

static void
forget_connection(struct store_client *s)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		interval_set_free(&s->moved[i]);
		interval_set_free(&s->mine[i]);
		interval_set_free(&s->have[i]);
		free(s->free_place[i]);
		s->free_place[i] = NULL;
		s->nb_free[i] = 0;
		s->queue[i].nb = 0;
	}
	free(s->place);
	free(s->used);
	s->place = NULL;
	s->used = NULL;
	s->nb_places = 0;
	s->writes = 0;
	xfer_auth_end(&s->handshake);
}

/* Tell the store set that this connection no longer needs the store's identity. */
static void
leave_store(struct store_client *s)
{
	if (s->proved)
		store_set_leave(s->config.stores, s->config.at);
	s->proved = false;
}

/* Drain the queue pair, then free its memory. @return true if all is freed */
static bool
close_link(struct store_client *s)
{
	if (s->conn != NULL) {
		(void)rdma_conn_destroy(s->conn);
		s->conn = NULL;
	}
	if (s->link_is_open) {
		if (xfer_qp_close(&s->link) < 0)
			return false;
		s->link_is_open = false;
	}
	s->closing = false;
	return true;
}

/* Enter the state without a connection, and retry later. */
static void
go_down(struct store_client *s)
{
	const uint64_t now = xfer_qp_clock();

	if (s->state == STORE_CLIENT_UP || s->state == STORE_CLIENT_ENDING)
		s->stats.broken++;
	s->back_off = s->back_off == 0 ? XFER_BACK_OFF_MS : 2 * s->back_off;
	if (s->back_off > XFER_BACK_OFF_MAX_MS)
		s->back_off = XFER_BACK_OFF_MAX_MS;
	s->retry_at = now + s->back_off;
	if (s->down_since == 0)
		s->down_since = now;
	if (s->link_is_open)
		xfer_qp_break(&s->link);
	s->closing = true;
	leave_store(s);
	forget_connection(s);
	/*
	 * The next poll closes the connection, because this may be called from one of its
	 * callbacks.
	 */
	enter(s, STORE_CLIENT_DOWN);
}

/* Send the reason if that is still possible, and close the connection. */
static void
refuse(struct store_client *s, enum xfer_reason reason)
{
	struct xfer_refuse *m = s->link.broken ? NULL : xfer_qp_room(&s->link);

	/* logged before: a wrong store that stays at the address, a refusal for good */
	const bool logged = reason == XFER_REASON_STORE || s->forbidden;

	rte_log(logged ? RTE_LOG_DEBUG : RTE_LOG_WARNING, store_client_logtype,
		"xfer: store %s: closing the connection: %s\n", store_client_name(s),
		xfer_reason_name(reason));
	s->stats.malformed += reason == XFER_REASON_MALFORMED || reason == XFER_REASON_ORDER;
	s->stats.late += reason == XFER_REASON_LATE;
	if (m != NULL && s->state > STORE_CLIENT_CONNECTING) {
		xfer_msg_begin(m, XFER_REFUSE, sizeof(*m),
			s->state == STORE_CLIENT_PROVING ? s->handshake.sent : s->sent);
		m->reason = reason;
		(void)xfer_qp_send(&s->link, sizeof(*m));
	}
	go_down(s);
}

/*
 * Handle a refusal that the next attempt cannot change. Batches that the store may have stay in
 * doubt in the journal.
 */
static void
forbidden(struct store_client *s, enum xfer_reason reason)
{
	if (reason == XFER_REASON_ENDED && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"run %s has ended at this store, which accepts no changes to it. Batches "
			"that were also sent to another store may be stored twice: run "
			"braggline-store reconcile on the directories of both stores",
			s->run.name);
	else if (reason == XFER_REASON_RIGHTS && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"identity %s lacks the rights for receiver %" PRIu64 ", run %s; change "
			"its section in the store's keyring",
			s->config.identity, s->config.receiver_id, s->run.name);
	s->forbidden = true;
	s->retry_at = xfer_qp_clock() + XFER_FORBIDDEN_MS;
}

static void on_message(void *arg, const void *message, uint32_t size);

/* WRITE requests of a descriptor and its body have completed. */
static void
on_done(void *arg, uint64_t writes)
{
	struct store_client *s = arg;

	s->writes -= RTE_MIN(s->writes, writes);
}

static const struct xfer_qp_ops link_ops = {.message = on_message, .done = on_done};

/* Read the key again, because it may change without a restart. */
static void
renew_key(struct store_client *s)
{
	char message[PATH_MAX];
	struct xfer_key key;

	if (s->config.key_path == NULL)
		return;
	if (xfer_key_read(&key, s->config.key_path, message) == 0) {
		*s->config.key = key;
		xfer_key_forget(&key);
		s->key_mistake = false;
	} else if (!s->key_mistake) {
		CLIENT_LOG(ERR, s, "%s; keeping the key read before", message);
		s->key_mistake = true;
	}
}

static void
begin_connection(struct store_client *s)
{
	const struct xfer_qp_config link = {
		.dev = s->config.dev,
		.pd = s->config.pd,
		.poll_group = s->config.poll_group,
		.writes = WRITES,
		.extra = WINDOW * STAGE,
		.ops = &link_ops,
		.arg = s,
	};
	struct xfer_offer offer = {
		.role = s->config.role,
		.identity = s->config.identity,
		.receiver_id = s->config.receiver_id,
		.run = s->run.run,
		.incarnation = s->run.incarnation,
		.name = s->run.name,
	};
	struct rdma_conn_attr attr = {
		.private_data = &s->handshake.receiver,
		.private_len = sizeof(s->handshake.receiver),
		.context = s,
		.timeout_ms = CONNECT_MS,
	};
	const struct sockaddr *to = (const struct sockaddr *)&s->config.stores->at[s->config.at].to;
	const uint64_t deadline = xfer_qp_clock() + XFER_AUTH_MS;
	unsigned int i;
	int rc;

	for (i = 0; i < XFER_TABLES; i++) {
		offer.table[i].schema = s->run.schema[i];
		offer.table[i].schema_bytes = s->run.schema_bytes[i];
		offer.table[i].body_max = s->run.body_max[i];
	}
	rc = xfer_qp_open(&s->link, &link);
	if (rc < 0) {
		CLIENT_LOG(ERR, s, "cannot create a queue pair: %s", rte_strerror(-rc));
		go_down(s);
		return;
	}
	s->link_is_open = true;
	renew_key(s);
	if (xfer_auth_call(&s->handshake, s->config.key, &offer, deadline) != XFER_REASON_NONE) {
		CLIENT_LOG(ERR, s, "handshake failed: %s", xfer_reason_name(s->handshake.reason));
		go_down(s);
		return;
	}
	s->conn = rdma_conn_connect(s->link.qp, to, &attr);
	if (s->conn == NULL) {
		CLIENT_LOG(ERR, s, "cannot connect: %s", rte_strerror(rte_errno));
		go_down(s);
		return;
	}
	enter(s, STORE_CLIENT_CONNECTING);
}

static void
established(struct store_client *s, const struct rdma_event *event)
{
	struct xfer_endpoint receiver = {.qpn = s->link.qpn}, store = {.qpn = event->remote_qpn};
	struct rdma_dev_info info;

	if (s->state != STORE_CLIENT_CONNECTING)
		return;
	rdma_dev_info_get(s->config.dev, &info);
	xfer_qp_address(&info.addr, receiver.addr);
	xfer_qp_address(&s->config.stores->at[s->config.at].to, store.addr);
	enter(s, STORE_CLIENT_PROVING);
	/* the CM pads the private data with zeros */
	if (xfer_auth_open(&s->handshake, event->private_data, event->private_len, &receiver,
		    &store) != XFER_REASON_NONE)
		refuse(s, s->handshake.reason);
}

static void
rejected(struct store_client *s, const struct rdma_event *event)
{
	struct xfer_reject reject = {0};

	s->stats.refused++;
	if (event->private_len >= sizeof(reject))
		memcpy(&reject, event->private_data, sizeof(reject));
	if (reject.magic == XFER_MAGIC && reject.reason < XFER_REASONS) {
		s->stats.reason = reject.reason;
		CLIENT_LOG(WARNING, s, "connection refused: %s", xfer_reason_name(reject.reason));
	} else {
		CLIENT_LOG(INFO, s, "nothing listens at this address (%d)", event->status);
	}
	go_down(s);
}

void
store_client_event(struct store_client *s, const struct rdma_event *event)
{
	if (event->conn != s->conn)
		return;
	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		established(s, event);
		break;
	case RDMA_EVENT_REJECTED:
		rejected(s, event);
		break;
	case RDMA_EVENT_UNREACHABLE:
		s->stats.unreachable++;
		CLIENT_LOG(INFO, s, "no answer");
		go_down(s);
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		/* process messages that arrived before */
		(void)xfer_qp_poll(&s->link);
		if (s->state == STORE_CLIENT_ENDED) {
			s->closing = true;
		} else if (s->conn != NULL) {
			/* a store that rejects our proof closes without a message */
			s->stats.refused += s->state == STORE_CLIENT_PROVING;
			CLIENT_LOG(WARNING, s, "connection lost while %s",
				store_client_state_name(s->state));
			go_down(s);
		}
		break;
	default:
		break;
	}
}

/* ---- messages of the store ---- */

static enum xfer_reason
take_grant(struct store_client *s, const struct xfer_grant *m)
{
	enum xfer_reason reason;
	unsigned int i;

	if (!s->have_all)
		return XFER_REASON_ORDER;
	store_client_release_found(s);
	reason = store_client_take_places(s, m);
	if (reason != XFER_REASON_NONE)
		return reason;
	for (i = 0; i < XFER_TABLES; i++) {
		s->stream[i].identity = (struct arrow_identity){
			s->config.receiver_id, s->run.run, s->run.incarnation, NULL};
		s->stream[i].session_id = m->session_id;
		s->stream[i].body_max = s->run.body_max[i];
		s->stream[i].table = i;
	}
	s->heartbeat = m->heartbeat_ms;
	s->silence = m->silence_ms;
	s->back_off = 0;
	s->down_since = 0;
	/* unless the store has reported another state */
	if (!s->said_how)
		s->stats.store_state = XFER_STATE_GOOD;
	if (s->stats.store_state == XFER_STATE_GOOD)
		s->bad_since = 0;
	else if (s->bad_since == 0)
		s->bad_since = s->heard;
	s->progress_at = s->heard;
	s->stuck = false;
	s->stats.connections++;
	enter(s, STORE_CLIENT_UP);
	rte_log(s->unpaired ? RTE_LOG_WARNING : RTE_LOG_INFO, store_client_logtype,
		"xfer: store %s: connected, %u slots, %" PRIu64 " batches found in the store\n",
		store_client_name(s), s->nb_places, s->stats.found);
	s->unpaired = false;
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
			return waiting && !s->have_all ? XFER_REASON_NONE : XFER_REASON_ORDER;
		if (status->state != s->stats.store_state)
			CLIENT_LOG(WARNING, s, "state of the store: %s",
				xfer_state_name(status->state));
		s->stats.store_state = status->state;
		s->said_how = true;
		if (status->state == XFER_STATE_GOOD)
			s->bad_since = 0;
		else if (s->bad_since == 0)
			s->bad_since = s->heard;
		return XFER_REASON_NONE;
	case XFER_ENDED:
		if (s->state != STORE_CLIENT_ENDING)
			return XFER_REASON_ORDER;
		enter(s, STORE_CLIENT_ENDED);
		leave_store(s);
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

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct store_client *s = arg;
	enum xfer_reason reason;

	s->heard = s->link.listened;
	/* the connection was closed: ignore later messages */
	if (s->state == STORE_CLIENT_DOWN || s->state == STORE_CLIENT_ENDED)
		return;
	if (s->state <= STORE_CLIENT_PROVING) {
		if (xfer_auth_receive(&s->handshake, message, size) != XFER_REASON_NONE) {
			s->stats.refused++;
			s->stats.reason = s->handshake.reason;
			refuse(s, s->handshake.reason);
			if (s->stats.reason == XFER_REASON_RIGHTS)
				forbidden(s, s->stats.reason);
		}
		return;
	}
	reason = xfer_msg_check(message, size, XFER_ROLE_STORE, s->received++);
	if (reason == XFER_REASON_NONE)
		reason = take_session_message(s, message);
	if (reason != XFER_REASON_NONE)
		refuse(s, reason);
	if (reason == XFER_REASON_ENDED || reason == XFER_REASON_RIGHTS)
		forbidden(s, reason);
}

/* ---- pending work ---- */

static void
send_status(struct store_client *s)
{
	struct xfer_status *m = xfer_qp_room(&s->link);

	if (m == NULL)
		return;
	xfer_msg_begin(m, XFER_STATUS, sizeof(*m), s->sent++);
	(void)xfer_qp_send(&s->link, sizeof(*m));
	s->said = xfer_qp_clock();
}

static void
send_end(struct store_client *s)
{
	struct journal_run run;
	struct xfer_end *m;
	unsigned int i;

	/* a batch of another store, or an unassigned one, may be assigned to this store */
	if (!journal_run_get(s->config.journal, s->config.run, &run) || run.held > 0)
		return;
	m = xfer_qp_room(&s->link);
	if (m == NULL)
		return;
	xfer_msg_begin(m, XFER_END, sizeof(*m), s->sent++);
	for (i = 0; i < XFER_TABLES; i++)
		m->batches[i] = run.batches[i];
	(void)xfer_qp_send(&s->link, sizeof(*m));
	enter(s, STORE_CLIENT_ENDING);
	FAIL_POINT("recv.end");
}

static bool
work_up(struct store_client *s, uint64_t now)
{
	bool busy = false;

	if (now > s->heard + s->silence) {
		CLIENT_LOG(WARNING, s, "no message for %" PRIu64 " ms", now - s->heard);
		refuse(s, XFER_REASON_SILENT);
		return true;
	}
	if (now >= s->said + s->heartbeat)
		send_status(s);
	store_client_watch_results(s, now);
	if (s->state != STORE_CLIENT_UP)
		return false;
	/* `frames` first: its batches are few and small */
	while (s->stats.store_state == XFER_STATE_GOOD &&
		(store_client_send_batch(s, 0) || store_client_send_batch(s, 1)))
		busy = true;
	if (!s->finish)
		return busy;
	store_client_forget_moved(s);
	if (store_client_is_idle(s))
		send_end(s);
	return busy;
}

/* Check the identity of the store. @return true if it can be used */
static bool
find_out_who(struct store_client *s)
{
	const uint64_t identity = s->handshake.answer.node;

	s->proved = store_set_prove(s->config.stores, s->config.at, identity) == 0;
	if (!s->proved) {
		refuse(s, XFER_REASON_STORE);
		return false;
	}
	s->stats.identity = identity;
	return true;
}

static bool
work_proving(struct store_client *s, uint64_t now)
{
	void *room;
	size_t size;

	if (xfer_auth_late(&s->handshake, now)) {
		refuse(s, XFER_REASON_LATE);
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
	s->sent = s->handshake.sent;
	s->received = s->handshake.received;
	/* before sending anything that is meant for one store only */
	if (!find_out_who(s))
		return true;
	s->told = 0;
	s->logged_at = 0;
	s->all_sent = false;
	s->have_all = false;
	s->have_table = 0;
	s->have_next = 0;
	s->waiting_since = 0;
	s->recovering_since = now;
	s->said_how = false;
	if (store_client_collect(s) < 0) {
		refuse(s, XFER_REASON_FAILED);
		return true;
	}
	/*
	 * From here on no batch may be reassigned from this store, because REASSIGNED is being
	 * sent.
	 */
	enter(s, STORE_CLIENT_WAITING);
	return true;
}

bool
store_client_poll(struct store_client *s)
{
	const uint64_t now = xfer_qp_clock();
	uint64_t away;
	bool busy = false;

	store_client_watch_connection(s, now);
	if (s->closing && !close_link(s))
		return true;
	if (s->link_is_open) {
		away = xfer_qp_absence(&s->link, now);
		s->heard += away;
		s->progress_at += away;
		if (s->waiting_since != 0)
			s->waiting_since += away;
		busy = xfer_qp_poll(&s->link) > 0;
		if (s->link_is_open && s->link.broken && !s->closing &&
			s->state != STORE_CLIENT_ENDED) {
			CLIENT_LOG(
				INFO, s, "connection broken: %s", rdma_wc_status_name(s->link.why));
			go_down(s);
			return true;
		}
	}
	switch (s->state) {
	case STORE_CLIENT_DOWN:
		if (!s->closing && now >= s->retry_at)
			begin_connection(s);
		break;
	case STORE_CLIENT_PROVING:
		return work_proving(s, now) || busy;
	case STORE_CLIENT_WAITING:
		while (!s->all_sent && xfer_qp_room(&s->link) != NULL)
			store_client_tell(s);
		/*
		 * The store recovers first, which takes as long as a sync or an outage. Once it has
		 * begun with INVENTORY, the exchange is finite.
		 */
		if (now > s->heard + WAITING_MS ||
			(s->waiting_since != 0 && now > s->waiting_since + WAITING_MS))
			refuse(s, XFER_REASON_LATE);
		break;
	case STORE_CLIENT_UP:
	case STORE_CLIENT_ENDING:
		return work_up(s, now) || busy;
	default:
		break;
	}
	return busy;
}

/* ---- other functions ---- */

int
store_client_open(struct store_client **sender, const struct store_client_config *config)
{
	struct store_client *s = calloc(1, sizeof(*s));

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
	s->down_since = s->retry_at = xfer_qp_clock();
	s->back_off = 0;
	s->closing = s->link_is_open;
	forget_connection(s);
	enter(s, STORE_CLIENT_DOWN);
	return true;
}

bool
store_client_is_down(const struct store_client *s)
{
	return s->state <= STORE_CLIENT_PROVING;
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
	/* a bad state continues without a connection */
	return s->bad_since != 0 ? s->bad_since : s->down_since;
}

void
store_client_give_up(struct store_client *s)
{
	if (s->state <= STORE_CLIENT_CONNECTING || s->state >= STORE_CLIENT_ENDED)
		return;
	refuse(s, XFER_REASON_STOPPING);
	/* the store answers; retry after a delay */
	s->retry_at = xfer_qp_clock() + XFER_BACK_OFF_MAX_MS;
}

void
store_client_stats_get(const struct store_client *s, struct store_client_stats *stats)
{
	*stats = s->stats;
	stats->state = s->state;
	stats->places = s->nb_places;
	stats->credits = s->nb_free[0] + s->nb_free[1];
	stats->waiting = s->queue[0].nb + s->queue[1].nb;
}

int
store_client_close(struct store_client *s)
{
	unsigned int i;

	leave_store(s);
	/* if polled again, it only closes */
	s->state = STORE_CLIENT_ENDED;
	if (s->link_is_open && !s->closing) {
		xfer_qp_break(&s->link);
		s->closing = true;
	}
	if (s->link_is_open && !close_link(s))
		return -EBUSY;
	forget_connection(s);
	for (i = 0; i < XFER_TABLES; i++)
		free(s->queue[i].at);
	free(s);
	return 0;
}

/* Log a connected store that returns no results for batches that it was sent. */
void
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
			now - s->progress_at, s->nb_places - s->nb_free[0] - s->nb_free[1],
			s->nb_places, s->writes, s->queue[0].nb + s->queue[1].nb);
	} else if (now < s->progress_at + XFER_STUCK_MS && s->stuck) {
		s->stuck = false;
		CLIENT_LOG(WARNING, s, "results arrive again");
	}
}

/* Log once that batches accumulate for a store that is not connected. */
void
store_client_watch_connection(struct store_client *s, uint64_t now)
{
	if (s->unpaired || s->down_since == 0 || now < s->down_since + XFER_STUCK_MS)
		return;
	s->unpaired = true;
	CLIENT_LOG(WARNING, s,
		"no connection for %" PRIu64 " ms: state %s, %" PRIu64 " attempts refused (%s), "
		"%" PRIu64 " not answered; retrying",
		now - s->down_since, store_client_state_name(s->state), s->stats.refused,
		xfer_reason_name(s->stats.reason), s->stats.unreachable);
}
