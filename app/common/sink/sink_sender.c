/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "fail_point.h"
#include "sink_sender_private.h"

RTE_LOG_REGISTER(sink_sender_logtype, braggline.sink, NOTICE);

#define CONNECT_MS 3000
#define WAITING_MS (4 * SINK_HANDSHAKE_MS)

const char *
sink_sender_state_name(enum sink_sender_state state)
{
	static const char *const names[SINK_SENDER_STATES] = {
		[SINK_SENDER_DOWN] = "down",
		[SINK_SENDER_CONNECTING] = "connecting",
		[SINK_SENDER_PROVING] = "proving",
		[SINK_SENDER_WAITING] = "waiting",
		[SINK_SENDER_UP] = "up",
		[SINK_SENDER_ENDING] = "ending",
		[SINK_SENDER_ENDED] = "ended",
	};

	return names[state];
}

static void
enter(struct sink_sender *s, enum sink_sender_state state)
{
	if (s->state != state)
		SENDER_LOG(DEBUG, s, "%s -> %s", sink_sender_state_name(s->state),
			sink_sender_state_name(state));
	s->state = state;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void
forget_connection(struct sink_sender *s)
{
	unsigned int i;

	for (i = 0; i < SINK_TABLES; i++) {
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
	sink_handshake_end(&s->handshake);
}

/* Of this connection nothing more comes that would need to know who the store is. */
static void
leave_store(struct sink_sender *s)
{
	if (s->proved)
		sink_stores_leave(s->config.stores, s->config.at);
	s->proved = false;
}

/* The queue pair drains, then its memory goes. @return whether all is gone */
static bool
close_link(struct sink_sender *s)
{
	if (s->conn != NULL) {
		(void)rdma_conn_destroy(s->conn);
		s->conn = NULL;
	}
	if (s->link_is_open) {
		if (sink_link_close(&s->link) < 0)
			return false;
		s->link_is_open = false;
	}
	s->closing = false;
	return true;
}

/* No connection, or none any more: try again later. */
static void
go_down(struct sink_sender *s)
{
	const uint64_t now = sink_link_clock();

	if (s->state == SINK_SENDER_UP || s->state == SINK_SENDER_ENDING)
		s->stats.broken++;
	s->back_off = s->back_off == 0 ? SINK_BACK_OFF_MS : 2 * s->back_off;
	if (s->back_off > SINK_BACK_OFF_MAX_MS)
		s->back_off = SINK_BACK_OFF_MAX_MS;
	s->retry_at = now + s->back_off;
	if (s->down_since == 0)
		s->down_since = now;
	if (s->link_is_open)
		sink_link_break(&s->link);
	s->closing = true;
	leave_store(s);
	forget_connection(s);
	/* the link is closed by the next poll: this may be one of its own calls */
	enter(s, SINK_SENDER_DOWN);
}

/* Say why, as far as that can still be said, and go. */
static void
refuse(struct sink_sender *s, enum sink_reason reason)
{
	struct sink_refuse *m = s->link.broken ? NULL : sink_link_room(&s->link);

	/* the wrong store was spoken of, and may stay there */
	rte_log(reason == SINK_REASON_STORE ? RTE_LOG_DEBUG : RTE_LOG_WARNING, sink_sender_logtype,
		"sink: store %s: given up: %s\n", sink_sender_name(s), sink_reason_name(reason));
	s->stats.malformed += reason == SINK_REASON_MALFORMED || reason == SINK_REASON_ORDER;
	s->stats.late += reason == SINK_REASON_LATE;
	if (m != NULL && s->state > SINK_SENDER_CONNECTING) {
		sink_message_begin(m, SINK_REFUSE, sizeof(*m),
			s->state == SINK_SENDER_PROVING ? s->handshake.sent : s->sent);
		m->reason = reason;
		(void)sink_link_send(&s->link, sizeof(*m));
	}
	go_down(s);
}

/*
 * What the store will not do at the next try either. What it was given and may still have stays in
 * doubt in the ring.
 */
static void
forbidden(struct sink_sender *s, enum sink_reason reason)
{
	if (reason == SINK_REASON_ENDED && !s->forbidden)
		SENDER_LOG(ERR, s,
			"run %s has ended there, and no receiver changes its files any more: "
			"batches that also went to another store may be there twice. An operator "
			"must run braggline-store reconcile over the directories of both",
			s->run.name);
	else if (reason == SINK_REASON_RIGHTS && !s->forbidden)
		SENDER_LOG(ERR, s,
			"identity %s may not do this with producer %" PRIu64 ", run %s: change "
			"its section of the store's keyring",
			s->config.identity, s->config.producer, s->run.name);
	s->forbidden = true;
	s->retry_at = sink_link_clock() + SINK_FORBIDDEN_MS;
}

static void on_message(void *arg, const void *message, uint32_t size);

/* An entry's WRITE has ended, and those of its body. */
static void
on_done(void *arg, uint64_t writes)
{
	struct sink_sender *s = arg;

	s->writes -= RTE_MIN(s->writes, writes);
}

static const struct sink_link_ops link_ops = {.message = on_message, .done = on_done};

/* Another key may lie there since: it is changed without a restart. */
static void
renew_key(struct sink_sender *s)
{
	char message[PATH_MAX];
	struct sink_key key;

	if (s->config.key_path == NULL)
		return;
	if (sink_key_read(&key, s->config.key_path, message) == 0) {
		*s->config.key = key;
		sink_key_forget(&key);
		s->key_mistake = false;
	} else if (!s->key_mistake) {
		SENDER_LOG(ERR, s, "%s; the key as it was last read stays in use", message);
		s->key_mistake = true;
	}
}

static void
begin_connection(struct sink_sender *s)
{
	const struct sink_link_config link = {
		.dev = s->config.dev,
		.pd = s->config.pd,
		.lane = s->config.lane,
		.writes = WRITES,
		.extra = WINDOW * STAGE,
		.ops = &link_ops,
		.arg = s,
	};
	struct sink_offer offer = {
		.role = s->config.role,
		.identity = s->config.identity,
		.producer = s->config.producer,
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
	const uint64_t deadline = sink_link_clock() + SINK_HANDSHAKE_MS;
	unsigned int i;
	int rc;

	for (i = 0; i < SINK_TABLES; i++) {
		offer.table[i].schema = s->run.schema[i];
		offer.table[i].schema_bytes = s->run.schema_bytes[i];
		offer.table[i].body_max = s->run.body_max[i];
	}
	rc = sink_link_open(&s->link, &link);
	if (rc < 0) {
		SENDER_LOG(ERR, s, "no queue pair: %s", rte_strerror(-rc));
		go_down(s);
		return;
	}
	s->link_is_open = true;
	renew_key(s);
	if (sink_handshake_call(&s->handshake, s->config.key, &offer, deadline) !=
		SINK_REASON_NONE) {
		SENDER_LOG(ERR, s, "no handshake: %s", sink_reason_name(s->handshake.reason));
		go_down(s);
		return;
	}
	s->conn = rdma_conn_connect(s->link.qp, to, &attr);
	if (s->conn == NULL) {
		SENDER_LOG(ERR, s, "cannot connect: %s", rte_strerror(rte_errno));
		go_down(s);
		return;
	}
	enter(s, SINK_SENDER_CONNECTING);
}

static void
established(struct sink_sender *s, const struct rdma_event *event)
{
	struct sink_endpoint receiver = {.qpn = s->link.qpn}, store = {.qpn = event->remote_qpn};
	struct rdma_dev_info info;

	if (s->state != SINK_SENDER_CONNECTING)
		return;
	rdma_dev_info_get(s->config.dev, &info);
	sink_link_address(&info.addr, receiver.addr);
	sink_link_address(&s->config.stores->at[s->config.at].to, store.addr);
	enter(s, SINK_SENDER_PROVING);
	/* the CM fills up with zeros */
	if (sink_handshake_open(&s->handshake, event->private_data, event->private_len, &receiver,
		    &store) != SINK_REASON_NONE)
		refuse(s, s->handshake.reason);
}

static void
rejected(struct sink_sender *s, const struct rdma_event *event)
{
	struct sink_reject reject = {0};

	s->stats.refused++;
	if (event->private_len >= sizeof(reject))
		memcpy(&reject, event->private_data, sizeof(reject));
	if (reject.magic == SINK_MAGIC && reject.reason < SINK_REASONS) {
		s->stats.reason = reject.reason;
		SENDER_LOG(
			WARNING, s, "refuses the connection: %s", sink_reason_name(reject.reason));
	} else {
		SENDER_LOG(INFO, s, "nobody listens there (%d)", event->status);
	}
	go_down(s);
}

void
sink_sender_event(struct sink_sender *s, const struct rdma_event *event)
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
		SENDER_LOG(INFO, s, "nobody answers");
		go_down(s);
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		/* what had come before is still taken */
		(void)sink_link_poll(&s->link);
		if (s->state == SINK_SENDER_ENDED) {
			s->closing = true;
		} else if (s->conn != NULL) {
			/* an end that does not like our proof says nothing */
			s->stats.refused += s->state == SINK_SENDER_PROVING;
			SENDER_LOG(WARNING, s, "connection gone while %s",
				sink_sender_state_name(s->state));
			go_down(s);
		}
		break;
	default:
		break;
	}
}

/* ---- what the store says --------------------------------------------------------------------- */

static enum sink_reason
take_grant(struct sink_sender *s, const struct sink_grant *m)
{
	enum sink_reason reason;
	unsigned int i;

	if (!s->have_all)
		return SINK_REASON_ORDER;
	sink_sender_release_found(s);
	reason = sink_sender_take_places(s, m);
	if (reason != SINK_REASON_NONE)
		return reason;
	for (i = 0; i < SINK_TABLES; i++) {
		s->stream[i].identity = (struct arrow_identity){
			s->config.producer, s->run.run, s->run.incarnation, NULL};
		s->stream[i].epoch = m->epoch;
		s->stream[i].body_max = s->run.body_max[i];
		s->stream[i].table = i;
	}
	s->heartbeat = m->heartbeat_ms;
	s->silence = m->silence_ms;
	s->back_off = 0;
	s->down_since = 0;
	s->forbidden = false;
	/* unless it has said otherwise by now */
	if (!s->said_how)
		s->stats.store_state = SINK_STATE_GOOD;
	if (s->stats.store_state == SINK_STATE_GOOD)
		s->bad_since = 0;
	else if (s->bad_since == 0)
		s->bad_since = s->heard;
	s->progress_at = s->heard;
	s->stuck = false;
	s->stats.connections++;
	enter(s, SINK_SENDER_UP);
	rte_log(s->lonely ? RTE_LOG_WARNING : RTE_LOG_INFO, sink_sender_logtype,
		"sink: store %s: connected, %u places, %" PRIu64 " batches found there\n",
		sink_sender_name(s), s->nb_places, s->stats.found);
	s->lonely = false;
	if (s->config.commit_ms > 0 && m->commit_ms > s->config.commit_ms && !s->slow)
		SENDER_LOG(WARNING, s,
			"syncs after %u ms ([files] sync_ms there), and what is held until then "
			"was reckoned with %u ms: a retention ring may be too small",
			m->commit_ms, s->config.commit_ms);
	s->slow = m->commit_ms > s->config.commit_ms;
	return sink_sender_fill_queues(s) < 0 ? SINK_REASON_FAILED : SINK_REASON_NONE;
}

static enum sink_reason
take_session_message(struct sink_sender *s, const struct sink_message *m)
{
	const struct sink_status *status = (const struct sink_status *)m;
	const bool waiting = s->state == SINK_SENDER_WAITING;
	const bool up = s->state == SINK_SENDER_UP || s->state == SINK_SENDER_ENDING;

	switch ((enum sink_type)m->type) {
	case SINK_HAVE:
		return waiting ? sink_sender_take_have(s, (const struct sink_intervals *)m)
			       : SINK_REASON_ORDER;
	case SINK_GRANT:
		return waiting ? take_grant(s, (const struct sink_grant *)m) : SINK_REASON_ORDER;
	case SINK_RESULTS:
		return up ? sink_sender_take_results(s, (const struct sink_results *)m)
			  : SINK_REASON_ORDER;
	case SINK_STATUS:
		/* how it is comes later */
		if (status->state == SINK_STATE_SETTLING)
			return waiting && !s->have_all ? SINK_REASON_NONE : SINK_REASON_ORDER;
		if (status->state != s->stats.store_state)
			SENDER_LOG(WARNING, s, "is %s", sink_state_name(status->state));
		s->stats.store_state = status->state;
		s->said_how = true;
		if (status->state == SINK_STATE_GOOD)
			s->bad_since = 0;
		else if (s->bad_since == 0)
			s->bad_since = s->heard;
		return SINK_REASON_NONE;
	case SINK_ENDED:
		if (s->state != SINK_SENDER_ENDING)
			return SINK_REASON_ORDER;
		enter(s, SINK_SENDER_ENDED);
		leave_store(s);
		(void)rdma_conn_disconnect(s->conn);
		s->closing = true;
		return SINK_REASON_NONE;
	case SINK_REFUSE:
		s->stats.reason = ((const struct sink_refuse *)m)->reason;
		return s->stats.reason;
	default:
		return SINK_REASON_ORDER;
	}
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct sink_sender *s = arg;
	enum sink_reason reason;

	s->heard = s->link.listened;
	/* of a connection that was given up: what follows is of no interest */
	if (s->state == SINK_SENDER_DOWN || s->state == SINK_SENDER_ENDED)
		return;
	if (s->state <= SINK_SENDER_PROVING) {
		if (sink_handshake_receive(&s->handshake, message, size) != SINK_REASON_NONE) {
			s->stats.refused++;
			s->stats.reason = s->handshake.reason;
			refuse(s, s->handshake.reason);
			if (s->stats.reason == SINK_REASON_RIGHTS)
				forbidden(s, s->stats.reason);
		}
		return;
	}
	reason = sink_message_check(message, size, SINK_ROLE_STORE, s->received++);
	if (reason == SINK_REASON_NONE)
		reason = take_session_message(s, message);
	if (reason != SINK_REASON_NONE)
		refuse(s, reason);
	if (reason == SINK_REASON_ENDED || reason == SINK_REASON_RIGHTS)
		forbidden(s, reason);
}

/* ---- what is to be done now ------------------------------------------------------------------ */

static void
send_status(struct sink_sender *s)
{
	struct sink_status *m = sink_link_room(&s->link);

	if (m == NULL)
		return;
	sink_message_begin(m, SINK_STATUS, sizeof(*m), s->sent++);
	(void)sink_link_send(&s->link, sizeof(*m));
	s->said = sink_link_clock();
}

static void
send_end(struct sink_sender *s)
{
	struct retention_run run;
	struct sink_end *m;
	unsigned int i;

	/* what is another store's, or nobody's yet, may become this one's */
	if (!retention_run_get(s->config.retention, s->config.run, &run) || run.held > 0)
		return;
	m = sink_link_room(&s->link);
	if (m == NULL)
		return;
	sink_message_begin(m, SINK_END, sizeof(*m), s->sent++);
	for (i = 0; i < SINK_TABLES; i++)
		m->batches[i] = run.batches[i];
	(void)sink_link_send(&s->link, sizeof(*m));
	enter(s, SINK_SENDER_ENDING);
	FAIL_POINT("recv.end");
}

static bool
work_up(struct sink_sender *s, uint64_t now)
{
	bool busy = false;

	if (now > s->heard + s->silence) {
		SENDER_LOG(WARNING, s, "silent for %" PRIu64 " ms", now - s->heard);
		refuse(s, SINK_REASON_SILENT);
		return true;
	}
	if (now >= s->said + s->heartbeat)
		send_status(s);
	sink_sender_watch_results(s, now);
	if (s->state != SINK_SENDER_UP)
		return false;
	/* frames first: they are few and small */
	while (s->stats.store_state == SINK_STATE_GOOD &&
		(sink_sender_send_batch(s, 0) || sink_sender_send_batch(s, 1)))
		busy = true;
	if (!s->finish)
		return busy;
	sink_sender_forget_moved(s);
	if (sink_sender_is_idle(s))
		send_end(s);
	return busy;
}

/* Who has answered. @return whether it is one that can be spoken to */
static bool
find_out_who(struct sink_sender *s)
{
	const uint64_t identity = s->handshake.answer.node;

	s->proved = sink_stores_prove(s->config.stores, s->config.at, identity) == 0;
	if (!s->proved) {
		refuse(s, SINK_REASON_STORE);
		return false;
	}
	s->stats.identity = identity;
	return true;
}

static bool
work_proving(struct sink_sender *s, uint64_t now)
{
	void *room;
	size_t size;

	if (sink_handshake_late(&s->handshake, now)) {
		refuse(s, SINK_REASON_LATE);
		return true;
	}
	while ((room = sink_link_room(&s->link)) != NULL) {
		size = sink_handshake_send(&s->handshake, room);
		if (size == 0)
			break;
		(void)sink_link_send(&s->link, size);
	}
	if (s->handshake.state != SINK_HANDSHAKE_DONE)
		return false;
	s->sent = s->handshake.sent;
	s->received = s->handshake.received;
	/* before anything is told that only one of the stores must hear */
	if (!find_out_who(s))
		return true;
	s->told = 0;
	s->told_at = 0;
	s->all_told = false;
	s->have_all = false;
	s->have_table = 0;
	s->have_next = 0;
	s->waiting_since = 0;
	s->settles_since = now;
	s->said_how = false;
	if (sink_sender_collect(s) < 0) {
		refuse(s, SINK_REASON_FAILED);
		return true;
	}
	/* from here on nothing may be moved away from this store: MOVED is being said */
	enter(s, SINK_SENDER_WAITING);
	return true;
}

bool
sink_sender_poll(struct sink_sender *s)
{
	const uint64_t now = sink_link_clock();
	uint64_t away;
	bool busy = false;

	sink_sender_watch_connection(s, now);
	if (s->closing && !close_link(s))
		return true;
	if (s->link_is_open) {
		away = sink_link_absence(&s->link, now);
		s->heard += away;
		s->progress_at += away;
		if (s->waiting_since != 0)
			s->waiting_since += away;
		busy = sink_link_poll(&s->link) > 0;
		if (s->link_is_open && s->link.broken && s->state != SINK_SENDER_ENDED) {
			SENDER_LOG(
				INFO, s, "connection broken: %s", rdma_wc_status_name(s->link.why));
			go_down(s);
			return true;
		}
	}
	switch (s->state) {
	case SINK_SENDER_DOWN:
		if (!s->closing && now >= s->retry_at)
			begin_connection(s);
		break;
	case SINK_SENDER_PROVING:
		return work_proving(s, now) || busy;
	case SINK_SENDER_WAITING:
		while (!s->all_told && sink_link_room(&s->link) != NULL)
			sink_sender_tell(s);
		/* the store settles first: that takes as long as a sync, or an outage, does; once
		 * it has begun with HAVE it comes to an end */
		if (now > s->heard + WAITING_MS ||
			(s->waiting_since != 0 && now > s->waiting_since + WAITING_MS))
			refuse(s, SINK_REASON_LATE);
		break;
	case SINK_SENDER_UP:
	case SINK_SENDER_ENDING:
		return work_up(s, now) || busy;
	default:
		break;
	}
	return busy;
}

/* ---- the rest -------------------------------------------------------------------------------- */

int
sink_sender_open(struct sink_sender **sender, const struct sink_sender_config *config)
{
	struct sink_sender *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->down_since = sink_link_clock();
	if (!retention_run_get(config->retention, config->run, &s->run)) {
		free(s);
		return -EINVAL;
	}
	*sender = s;
	return 0;
}

void
sink_sender_finish(struct sink_sender *s)
{
	s->finish = true;
}

bool
sink_sender_again(struct sink_sender *s)
{
	if (s->state != SINK_SENDER_ENDED)
		return false;
	s->down_since = s->retry_at = sink_link_clock();
	s->back_off = 0;
	s->closing = s->link_is_open;
	forget_connection(s);
	enter(s, SINK_SENDER_DOWN);
	return true;
}

bool
sink_sender_is_down(const struct sink_sender *s)
{
	return s->state <= SINK_SENDER_PROVING;
}

bool
sink_sender_takes(const struct sink_sender *s)
{
	return s->state == SINK_SENDER_UP && s->stats.store_state == SINK_STATE_GOOD;
}

uint64_t
sink_sender_idle_since(const struct sink_sender *s)
{
	/* it takes memory and looks into files, for as long as that takes */
	if (s->state == SINK_SENDER_WAITING)
		return s->settles_since;
	/* one that was not good is not better without a connection */
	return s->bad_since != 0 ? s->bad_since : s->down_since;
}

void
sink_sender_give_up(struct sink_sender *s)
{
	if (s->state <= SINK_SENDER_CONNECTING || s->state >= SINK_SENDER_ENDED)
		return;
	refuse(s, SINK_REASON_STOPPING);
	/* it is there, and no better at once */
	s->retry_at = sink_link_clock() + SINK_BACK_OFF_MAX_MS;
}

void
sink_sender_stats_get(const struct sink_sender *s, struct sink_sender_stats *stats)
{
	*stats = s->stats;
	stats->state = s->state;
	stats->places = s->nb_places;
	stats->credits = s->nb_free[0] + s->nb_free[1];
	stats->waiting = s->queue[0].nb + s->queue[1].nb;
}

int
sink_sender_close(struct sink_sender *s)
{
	unsigned int i;

	leave_store(s);
	/* should it be polled again, it does nothing but close */
	s->state = SINK_SENDER_ENDED;
	if (s->link_is_open && !s->closing) {
		sink_link_break(&s->link);
		s->closing = true;
	}
	if (s->link_is_open && !close_link(s))
		return -EBUSY;
	forget_connection(s);
	for (i = 0; i < SINK_TABLES; i++)
		free(s->queue[i].at);
	free(s);
	return 0;
}
