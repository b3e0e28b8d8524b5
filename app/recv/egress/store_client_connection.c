/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection to a store: how it is established, refused and closed, and the delays between
 * attempts.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>

#include "egress/store_client_private.h"

LOG_REGISTER("xfer", "xfer");

#define CONNECT_MS 3000

void
store_client_enter(struct store_client *s, enum store_client_state state)
{
	if (s->state != state)
		CLIENT_LOG(DEBUG, s, "%s -> %s", store_client_state_name(s->state),
			store_client_state_name(state));
	s->state = state;
}

void
store_client_forget_connection(struct store_client *s)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		stream_contents_free(&s->reassigned[i]);
		stream_contents_free(&s->held_contents[i]);
		interval_set_free(&s->held[i]);
		interval_set_free(&s->inventory[i]);
		free(s->free_slot[i]);
		s->free_slot[i] = NULL;
		s->nb_free[i] = 0;
		s->queue[i].nb = 0;
	}
	free(s->slot);
	free(s->slot_use);
	s->slot = NULL;
	s->slot_use = NULL;
	s->nb_slots = 0;
	s->writes = 0;
	xfer_auth_end(&s->handshake);
}

void
store_client_leave(struct store_client *s)
{
	if (s->proved)
		store_set_leave(s->config.stores, s->config.at);
	s->proved = false;
}

bool
store_client_close_link(struct store_client *s)
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

void
store_client_go_down(struct store_client *s, const char *why)
{
	const uint64_t now = xfer_qp_clock();

	s->stats.failure = why;
	if (s->state == STORE_CLIENT_UP || s->state == STORE_CLIENT_ENDING)
		s->stats.broken++;
	backoff_extend(&s->backoff, now, XFER_BACK_OFF_MS, XFER_BACK_OFF_MAX_MS);
	if (s->down_since == 0)
		s->down_since = now;
	if (s->link_is_open)
		xfer_qp_break(&s->link);
	s->closing = true;
	store_client_leave(s);
	store_client_forget_connection(s);
	/*
	 * The next poll closes the connection, because this may be called from one of its
	 * callbacks.
	 */
	store_client_enter(s, STORE_CLIENT_DOWN);
}

void
store_client_refuse(struct store_client *s, enum xfer_reason reason)
{
	struct xfer_refuse *m = s->link.broken ? NULL : xfer_qp_room(&s->link);
	bool logged;

	s->refusals = reason == s->refused_for ? s->refusals + 1 : 1;
	s->refused_for = reason;
	/*
	 * The store may refuse for days: the first, second, fourth time and so on are logged. A
	 * wrong store that stays at the address, and a permanent refusal, are logged elsewhere.
	 */
	logged = (s->refusals & (s->refusals - 1)) == 0 && reason != XFER_REASON_STORE &&
		!s->forbidden;
	LOG_AT(logged ? RTE_LOG_WARNING : RTE_LOG_DEBUG, "store %s: closing the connection: %s\n",
		store_client_name(s), xfer_reason_name(reason));
	if (logged && reason == XFER_REASON_KEY)
		CLIENT_LOG(ERR, s,
			"it does not know identity %s, or has another key for it; check [egress] "
			"identity and key%s%s, and [receiver %s] of the store's keyring",
			s->config.identity, s->config.key_file != NULL ? " = " : "",
			s->config.key_file != NULL ? s->config.key_file->path : "",
			s->config.identity);
	s->stats.malformed += reason == XFER_REASON_MALFORMED || reason == XFER_REASON_ORDER;
	s->stats.late += reason == XFER_REASON_LATE;
	if (m != NULL && s->state > STORE_CLIENT_CONNECTING) {
		xfer_msg_begin(m, XFER_REFUSE, sizeof(*m),
			s->state == STORE_CLIENT_AUTHENTICATING ? s->handshake.sent
								: s->messages_sent);
		m->reason = reason;
		(void)xfer_qp_send(&s->link, sizeof(*m));
	}
	store_client_go_down(s, xfer_reason_name(reason));
}

void
store_client_forbid(struct store_client *s, enum xfer_reason reason)
{
	if (reason == XFER_REASON_ENDED && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"run %s has ended at this store, which accepts no changes to it. Batches "
			"that were also sent to another store may be stored twice: run "
			"braggline-store reconcile on the directories of both stores",
			s->run.name);
	else if (reason == XFER_REASON_DIFFERS && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"it has a batch of run %s with the number of one that this receiver has, "
			"and other bytes (its log names the batch). Neither is given up: the "
			"batches of this receiver stay in the journal, or go to another store. "
			"Someone may have used this receiver's key: see the audit log of the "
			"store, and braggline-store verify",
			s->run.name);
	else if (reason == XFER_REASON_NAME && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"it has run %016" PRIx64 ", incarnation %016" PRIx64 " of this receiver "
			"under another name than %s; see its log",
			s->run.run, s->run.incarnation, s->run.name);
	else if (reason == XFER_REASON_RIGHTS && !s->forbidden)
		CLIENT_LOG(ERR, s,
			"identity %s lacks the rights for receiver %" PRIu64 ", run %s; change "
			"its section in the store's keyring",
			s->config.identity, s->config.receiver_id, s->run.name);
	s->forbidden = true;
	s->backoff.retry_at = xfer_qp_clock() + XFER_FORBIDDEN_MS;
}

static void
on_forged(void *arg)
{
	struct store_client *s = arg;

	if (s->state != STORE_CLIENT_DOWN && s->state != STORE_CLIENT_ENDED)
		store_client_refuse(s, XFER_REASON_MAC);
}

/* WRITE requests of a descriptor and its body have completed. */
static void
on_done(void *arg, uint64_t writes)
{
	struct store_client *s = arg;

	s->writes -= RTE_MIN(s->writes, writes);
}

static const struct xfer_qp_ops link_ops = {
	.message = store_client_on_message, .forged = on_forged, .done = on_done};

bool
store_client_has_key(struct store_client *s, uint64_t now)
{
	struct key_file *file = s->config.key_file;

	if (file == NULL)
		return true;
	if (s->reading == 0)
		s->reading = key_file_ask(file);
	if (!key_file_is_ready(file, s->reading, now))
		return false;
	s->reading = 0;
	return true;
}

void
store_client_connect(struct store_client *s)
{
	const struct xfer_qp_config link = {
		.dev = s->config.dev,
		.pd = s->config.pd,
		.poll_group = s->config.poll_group,
		.writes = store_client_writes_max(&s->config),
		.extra = STORE_CLIENT_WINDOW * STORE_CLIENT_STAGE,
		.sge = s->config.max_sge,
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
	int ret;

	for (i = 0; i < XFER_TABLES; i++) {
		offer.table[i].schema = s->run.schema[i];
		offer.table[i].schema_bytes = s->run.schema_bytes[i];
		offer.table[i].body_max = s->run.body_max[i];
	}
	ret = xfer_qp_open(&s->link, &link);
	if (ret < 0) {
		CLIENT_LOG(ERR, s, "cannot create a queue pair: %s", rte_strerror(-ret));
		store_client_go_down(s, "no queue pair");
		return;
	}
	s->link_is_open = true;
	if (xfer_auth_call(&s->handshake, s->config.key, &offer, deadline) != XFER_REASON_NONE) {
		CLIENT_LOG(ERR, s, "handshake failed: %s", xfer_reason_name(s->handshake.reason));
		store_client_go_down(s, xfer_reason_name(s->handshake.reason));
		return;
	}
	s->conn = rdma_conn_connect(s->link.qp, to, &attr);
	if (s->conn == NULL) {
		CLIENT_LOG(ERR, s, "cannot connect: %s", rte_strerror(rte_errno));
		store_client_go_down(s, "cannot connect");
		return;
	}
	store_client_enter(s, STORE_CLIENT_CONNECTING);
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
	store_client_enter(s, STORE_CLIENT_AUTHENTICATING);
	/* the CM pads the private data with zeros */
	if (xfer_auth_open(&s->handshake, event->private_data, event->private_len, &receiver,
		    &store) != XFER_REASON_NONE)
		store_client_refuse(s, s->handshake.reason);
	else if (xfer_qp_seal(&s->link, &s->handshake) < 0)
		store_client_refuse(s, XFER_REASON_FAILED);
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
		store_client_go_down(s, xfer_reason_name(reject.reason));
	} else {
		CLIENT_LOG(INFO, s, "nothing listens at this address (%d)", event->status);
		store_client_go_down(s, "no store listens at this address and port");
	}
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
		store_client_go_down(s, "no answer from this address");
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		/* process messages that arrived before */
		(void)xfer_qp_poll(&s->link);
		if (s->state == STORE_CLIENT_ENDED) {
			s->closing = true;
		} else if (s->conn != NULL) {
			/* a store that rejects the authentication closes without a message */
			s->stats.refused += s->state == STORE_CLIENT_AUTHENTICATING;
			CLIENT_LOG(WARNING, s, "connection lost while %s",
				store_client_state_name(s->state));
			store_client_go_down(s, "connection lost");
		}
		break;
	default:
		break;
	}
}
