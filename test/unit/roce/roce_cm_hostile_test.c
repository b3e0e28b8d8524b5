/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection manager against a simulated station. Messages of Linux in the captures are
 * replayed to either role of our device; then messages are sent that no correct peer sends.
 * ROCE_SEED repeats a random run.
 */
#include "roce_cm_rig.h"
#include "engine/icrc.h"
#include "engine/qp.h"

#include <unistd.h>

#include <pcap.h>
#include <rte_debug.h>

#define US   0
#define THEM 1
#define PORT 7174

static struct rdma_conn *listener;

static void
open_us(void)
{
	rig_open(US, "ip=10.99.0.1/24");
	rig_raw(THEM, "10.99.0.2");
	listener = rdma_conn_listen(rig[US].dev, RDMA_QP_RC, PORT, 8, NULL);
	assert_non_null(listener);
	rig_run(2000); /* announcements at the start */
}

static void
drain(void)
{
	struct rte_mbuf *m;

	while ((m = rig_receive(THEM)))
		rte_pktmbuf_free(m);
}

static void
close_us(void)
{
	assert_int_equal(rdma_conn_destroy(listener), 0);
	drain();
	for (unsigned int i = 0; i < 30; i++) {
		rig_run(1000);
		drain();
	}
	assert_int_equal(roce_dev(rig[US].dev)->control->conns.nb_conns, 0);
	rig_close();
}

/* retry counts in their REQs, and those that we accept with */
static uint8_t theirs_retries = 7, theirs_rnr_retries = 7;
static uint32_t theirs_keepalive;

static struct roce_cm_msg
req_of(uint32_t local_id, uint32_t qpn)
{
	struct roce_cm_msg msg = {
		.attr = ROCE_CM_REQ,
		.tid = 0x1000 + local_id,
		.req =
			{
				.local_id = local_id,
				.service_id = (uint64_t)ROCE_PORT_SPACE_TCP << 16 | PORT,
				.qpn = qpn,
				.psn = 77,
				.responder_resources = 1,
				.initiator_depth = 1,
				.retry_count = theirs_retries,
				.pkey = 0xffff,
				.mtu = 3,
				.rnr_retry = theirs_rnr_retries,
			},
	};
	const struct roce_cma cma = {
		.ip_version = 4,
		.port = 40000,
		.src = {[12] = 10, [13] = 99, [15] = 2},
		.dst = {[12] = 10, [13] = 99, [15] = 1},
	};

	memcpy(msg.req.primary.local_gid, rig[THEM].gid.raw, 16);
	memcpy(msg.req.primary.remote_gid, rig[US].gid.raw, 16);
	roce_cma_encode(&cma, msg.req.private_data);
	return msg;
}

static struct roce_cm_msg
expect_cm(uint16_t attr, unsigned int ms)
{
	struct roce_cm_msg msg = {0};

	if (!rig_receive_cm(THEM, &msg, ms))
		fail_msg("no message, expected %s", roce_cm_attr_name(attr));
	if (msg.attr != attr)
		fail_msg("%s, expected %s", roce_cm_attr_name(msg.attr), roce_cm_attr_name(attr));
	return msg;
}

static void
assert_same(const struct roce_cm_msg *a, const struct roce_cm_msg *b)
{
	uint8_t mad[2][ROCE_MAD_BYTES];

	roce_cm_encode(a, mad[0]);
	roce_cm_encode(b, mad[1]);
	assert_memory_equal(mad[0], mad[1], sizeof(mad[0]));
}

/* Their connection with us, until it is established; our side accepts with a new queue pair. */
struct theirs {
	struct rdma_conn *conn;
	struct rdma_qp *qp;
	uint32_t id, our_id, our_qpn;
};

static void
connect_theirs(struct theirs *t, uint32_t id, uint32_t qpn)
{
	const struct rdma_conn_attr attr = {.keepalive_ms = theirs_keepalive};
	struct roce_cm_msg msg = req_of(id, qpn);

	rig_send_cm(THEM, &msg);
	t->conn = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	t->qp = rig_qp(US, RDMA_QP_RC);
	t->id = id;
	assert_int_equal(rdma_conn_accept(t->conn, t->qp, &attr), 0);
	msg = expect_cm(ROCE_CM_REP, 10);
	assert_int_equal(msg.rep.remote_id, id);
	assert_int_equal(msg.rep.qpn, t->qp->qpn);
	assert_int_equal(msg.tid, 0x1000 + id);
	t->our_id = msg.rep.local_id;
	t->our_qpn = msg.rep.qpn;
	msg = (struct roce_cm_msg){.attr = ROCE_CM_RTU,
		.tid = msg.tid,
		.rtu = {.local_id = id, .remote_id = t->our_id}};
	rig_send_cm(THEM, &msg);
	assert_ptr_equal(rig_event(US, RDMA_EVENT_ESTABLISHED, 10)->conn, t->conn);
}

static void
destroy_theirs(struct theirs *t)
{
	assert_int_equal(rdma_conn_destroy(t->conn), 0);
	assert_int_equal(rdma_qp_destroy(t->qp), 0);
}

/* ---- captures -------------------------------------------------------------------------------- */

#define MESSAGES 128

struct captured {
	struct roce_cm_msg msg;
	bool from_asker;    /* of the connection: 10.99.0.2 is the active side in all captures */
	unsigned int pause; /* milliseconds since the previous message */
};

/* Wait as long as between two captured messages, so that time-wait states end as they did. */
static void
pause_as_captured(const struct captured *message)
{
	rig_run(RTE_MIN(message->pause, 10000u));
	rig[US].taken = rig[US].nb_events = 0;
}

static unsigned int
capture_read(const char *name, struct captured *list)
{
	const char *data = getenv("BRAGGLINE_DATA");
	char path[512], error[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *h;
	const uint8_t *frame;
	unsigned int n = 0;
	uint64_t ms, last = 0;
	pcap_t *p;

	snprintf(path, sizeof(path), "%s/roce/%s", data ? data : ".", name);
	if (access(path, R_OK) != 0) {
		print_message("no capture: %s; BRAGGLINE_DATA names its directory\n", path);
		skip();
	}
	p = pcap_open_offline(path, error);
	assert_non_null(p);
	while (pcap_next_ex(p, &h, &frame) == 1) {
		if (h->caplen != 322 || frame[23] != IPPROTO_UDP || frame[49] != 1)
			continue;
		assert_true(n < MESSAGES);
		assert_int_equal(roce_cm_decode(frame + 62, &list[n].msg), 0);
		ms = h->ts.tv_sec * 1000 + h->ts.tv_usec / 1000;
		list[n].pause = n ? ms - last : 0;
		list[n++].from_asker = frame[29] == 2;
		last = ms;
	}
	pcap_close(p);
	return n;
}

/* Numbers of the captured station that our device replaces, and our numbers. */
struct ids {
	uint32_t theirs, ours, our_qpn;
	struct rdma_conn *conn;
	struct rdma_qp *qp;
	uint64_t tid, our_tid;
};

static struct ids ids[MESSAGES];
static unsigned int nb_ids;

static struct ids *
ids_of(uint32_t theirs)
{
	for (unsigned int i = 0; i < nb_ids; i++)
		if (ids[i].theirs == theirs)
			return &ids[i];
	return NULL;
}

static void
ids_free(void)
{
	while (nb_ids > 0) {
		struct ids *id = &ids[--nb_ids];

		if (id->conn)
			assert_int_equal(rdma_conn_destroy(id->conn), 0);
		if (id->qp)
			assert_int_equal(rdma_qp_destroy(id->qp), 0);
	}
}

/*
 * Our device is the passive side: each message of the captured active side is sent to it, with its
 * numbers in place of those of the captured passive side. Its replies equal the captured ones
 * except for the numbers.
 */
static void
replay_passive(const char *name)
{
	static struct captured list[MESSAGES];
	const unsigned int n = capture_read(name, list);
	static struct rdma_conn *listeners[3];
	static const uint16_t ports[] = {7174, 7471, 18515};
	unsigned int seen[16] = {0};

	rig_open(US, "ip=10.99.0.1/24,mtu=4096");
	rig_raw(THEM, "10.99.0.2");
	for (unsigned int i = 0; i < 3; i++)
		listeners[i] = rdma_conn_listen(rig[US].dev, RDMA_QP_RC, ports[i], 16, NULL);
	for (unsigned int i = 0; i < n; i++) {
		struct roce_cm_msg msg = list[i].msg, got;
		const bool ud = msg.attr >= ROCE_CM_SIDR_REQ;
		struct ids *id;

		if (ud)
			continue;
		if (msg.attr == ROCE_CM_REQ)
			pause_as_captured(&list[i]);
		seen[msg.attr - ROCE_CM_REQ]++;
		switch ((enum roce_cm_attr)msg.attr) {
		case ROCE_CM_REQ: {
			const struct rdma_event *e;

			rig_send_cm(THEM, &msg);
			e = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 20);
			assert_memory_equal(e->private_data, msg.req.private_data + 36, 56);
			assert_int_equal(e->responder_rd_atom, msg.req.responder_resources);
			assert_int_equal(e->remote_qpn, msg.req.qpn);
			/* there may be several listeners: one must have the port of the capture */
			assert_int_equal(msg.req.service_id & 0xffff, roce_conn(e->listener)->port);
			id = &ids[nb_ids++];
			*id = (struct ids){.conn = e->conn, .qp = rig_qp(US, RDMA_QP_RC)};
			/* found by the active side's ID until the REP arrives */
			id->theirs = 0;
			id->tid = msg.tid;
			break;
		}
		case ROCE_CM_REP: {
			/* replace it by ours */
			for (id = ids; id < ids + nb_ids && id->tid != msg.tid; id++)
				;
			assert_true(id < ids + nb_ids);
			id->theirs = msg.rep.local_id;
			const struct rdma_conn_attr attr = {.private_data = msg.rep.private_data,
				.private_len = sizeof(msg.rep.private_data)};
			assert_int_equal(rdma_conn_accept(id->conn, id->qp, &attr), 0);
			got = expect_cm(ROCE_CM_REP, 20);
			assert_int_equal(got.tid, msg.tid);
			assert_int_equal(got.rep.remote_id, msg.rep.remote_id);
			assert_memory_equal(got.rep.private_data, msg.rep.private_data, 196);
			assert_int_equal(got.rep.ack_delay, msg.rep.ack_delay);
			assert_int_equal(got.rep.rnr_retry, msg.rep.rnr_retry);
			assert_in_range(got.rep.responder_resources, 0, 16);
			id->ours = got.rep.local_id;
			id->our_qpn = got.rep.qpn;
			break;
		}
		case ROCE_CM_RTU:
			id = ids_of(msg.rtu.remote_id);
			assert_non_null(id);
			msg.rtu.remote_id = id->ours;
			rig_send_cm(THEM, &msg);
			assert_ptr_equal(rig_event(US, RDMA_EVENT_ESTABLISHED, 20)->conn, id->conn);
			break;
		case ROCE_CM_DREQ:
			if (list[i].from_asker) {
				id = ids_of(msg.dreq.remote_id);
				assert_non_null(id);
				msg.dreq.remote_id = id->ours;
				msg.dreq.qpn = id->our_qpn;
				rig_send_cm(THEM, &msg);
				rig_run(3);
			} else {
				id = ids_of(msg.dreq.local_id);
				assert_non_null(id);
				id->our_tid = 0;
				if (roce_conn(id->conn)->state != ROCE_CONN_ESTABLISHED)
					break; /* here their message came first */
				assert_int_equal(rdma_conn_disconnect(id->conn), 0);
				got = expect_cm(ROCE_CM_DREQ, 20);
				assert_int_equal(got.dreq.local_id, id->ours);
				assert_int_equal(got.dreq.remote_id, msg.dreq.remote_id);
				assert_int_equal(got.dreq.qpn, msg.dreq.qpn);
				id->our_tid = got.tid;
			}
			break;
		case ROCE_CM_DREP:
			if (list[i].from_asker) {
				id = ids_of(msg.drep.remote_id);
				assert_non_null(id);
				if (id->our_tid == 0)
					break;
				msg.tid = id->our_tid;
				msg.drep.remote_id = id->ours;
				rig_send_cm(THEM, &msg);
				rig_run(3);
			} else {
				got = expect_cm(ROCE_CM_DREP, 20);
				id = ids_of(msg.drep.local_id);
				assert_non_null(id);
				assert_int_equal(got.drep.local_id, id->ours);
				assert_int_equal(got.drep.remote_id, msg.drep.remote_id);
				assert_int_equal(got.tid, msg.tid);
			}
			break;
		default:
			fail_msg("%s in a capture", roce_cm_attr_name(msg.attr));
		}
		while (rig_has_event(US)) {
			const enum rdma_event_type type = rig[US].events[rig[US].taken].type;

			assert_true(type == RDMA_EVENT_DISCONNECTED ||
				type == RDMA_EVENT_TIMEWAIT_EXIT);
			rig[US].taken++;
		}
		rig[US].taken = rig[US].nb_events = 0;
	}
	/* every connection is closed in the end */
	for (unsigned int i = 0; i < nb_ids; i++)
		assert_true(roce_conn(ids[i].conn)->state >= ROCE_CONN_TIMEWAIT);
	print_message("%s: %u REQ, %u RTU, %u DREQ\n", name, seen[0], seen[4], seen[5]);
	assert_true(seen[0] > 0 && seen[0] == seen[4]);
	ids_free();
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(rdma_conn_destroy(listeners[i]), 0);
	rig_run(10000);
	drain();
	rig_close();
}

/*
 * Our device is the active side: its REQ equals the captured one, and the captured replies complete
 * the handshake.
 */
static void
replay_active(const char *name)
{
	static struct captured list[MESSAGES];
	const unsigned int n = capture_read(name, list);
	unsigned int asked = 0;

	rig_open(US, "ip=10.99.0.2/24,mtu=4096");
	rig_raw(THEM, "10.99.0.1");
	rig_known(THEM);
	drain();
	for (unsigned int i = 0; i < n; i++) {
		struct roce_cm_msg msg = list[i].msg, got;
		struct ids *id;

		if (msg.attr == ROCE_CM_REQ) {
			pause_as_captured(&list[i]);
			rig_known(THEM);
		}
		switch ((enum roce_cm_attr)msg.attr) {
		case ROCE_CM_REQ: {
			const struct rdma_conn_attr attr = {
				.private_data = msg.req.private_data + 36,
				.private_len = 56,
				.source_port =
					msg.req.private_data[2] << 8 | msg.req.private_data[3],
				.mtu = roce_cm_mtu_bytes(msg.req.mtu),
			};

			id = &ids[nb_ids++];
			*id = (struct ids){
				.theirs = msg.req.local_id, .qp = rig_qp(US, RDMA_QP_RC)};
			id->conn = rdma_conn_connect(
				id->qp, rig_address(THEM, msg.req.service_id & 0xffff), &attr);
			assert_non_null(id->conn);
			got = expect_cm(ROCE_CM_REQ, 20);
			id->ours = got.req.local_id;
			id->our_qpn = got.req.qpn;
			id->tid = got.tid;
			/* equal except for numbers and the attributes of our queue pair */
			got.req.local_id = msg.req.local_id;
			got.req.qpn = msg.req.qpn;
			got.req.psn = msg.req.psn;
			got.req.ca_guid = msg.req.ca_guid;
			got.req.local_timeout = msg.req.local_timeout;
			got.req.retry_count = msg.req.retry_count;
			got.req.rnr_retry = msg.req.rnr_retry;
			got.req.responder_resources = msg.req.responder_resources;
			got.req.initiator_depth = msg.req.initiator_depth;
			got.req.flow_control = msg.req.flow_control;
			got.req.srq = msg.req.srq;
			got.req.primary.flow_label = msg.req.primary.flow_label;
			got.req.primary.rate = msg.req.primary.rate;
			got.req.primary.ack_timeout = msg.req.primary.ack_timeout;
			got.req.primary.subnet_local = msg.req.primary.subnet_local;
			got.tid = msg.tid;
			assert_same(&got, &msg);
			asked++;
			break;
		}
		case ROCE_CM_REP:
			id = ids_of(msg.rep.remote_id);
			assert_non_null(id);
			msg.rep.remote_id = id->ours;
			msg.tid = id->tid;
			rig_send_cm(THEM, &msg);
			assert_ptr_equal(rig_event(US, RDMA_EVENT_ESTABLISHED, 20)->conn, id->conn);
			got = expect_cm(ROCE_CM_RTU, 20);
			assert_int_equal(got.rtu.local_id, id->ours);
			assert_int_equal(got.rtu.remote_id, msg.rep.local_id);
			assert_int_equal(got.tid, id->tid);
			break;
		case ROCE_CM_DREQ:
			if (list[i].from_asker)
				break;
			id = ids_of(msg.dreq.remote_id);
			assert_non_null(id);
			msg.dreq.remote_id = id->ours;
			msg.dreq.qpn = id->our_qpn;
			rig_send_cm(THEM, &msg);
			got = expect_cm(ROCE_CM_DREP, 20);
			assert_int_equal(got.drep.local_id, id->ours);
			assert_int_equal(got.tid, msg.tid);
			break;
		default:
			break;
		}
		rig_run(2);
		rig[US].taken = rig[US].nb_events = 0;
	}
	assert_true(asked > 0);
	ids_free();
	for (unsigned int i = 0; i < 30; i++) {
		rig_run(1000);
		drain();
	}
	rig_close();
}

static void
test_replay(void **state)
{
	static const char *const names[] = {
		"rxe-rping.pcap", "rxe-perftest-rping.pcap", "rxe-cm-udaddy-mckey.pcap"};

	for (size_t i = 0; i < RTE_DIM(names); i++) {
		replay_passive(names[i]);
		replay_active(names[i]);
	}
}

/* ---- retransmissions of a correct peer ------------------------------------------------------- */

static void
test_duplicates(void **state)
{
	struct roce_cm_msg msg, first;
	struct theirs t = {0};

	open_us();
	msg = req_of(5, 50);
	rig_send_cm(THEM, &msg);
	t.conn = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	rig_send_cm(THEM, &msg);
	first = expect_cm(ROCE_CM_MRA, 10);
	assert_int_equal(first.mra.answered, ROCE_CM_ANSWERS_REQ);
	assert_int_equal(first.mra.remote_id, 5);
	t.qp = rig_qp(US, RDMA_QP_RC);
	assert_int_equal(rdma_conn_accept(t.conn, t.qp, NULL), 0);
	first = expect_cm(ROCE_CM_REP, 10);
	rig_send_cm(THEM, &msg);
	msg = expect_cm(ROCE_CM_REP, 10);
	assert_same(&msg, &first);
	assert_int_equal(msg.tid, first.tid);
	/* repeated by a timer, too */
	msg = expect_cm(ROCE_CM_REP, 300);
	assert_same(&msg, &first);
	/* an MRA asks for more time: no repetition until it is over */
	msg = (struct roce_cm_msg){.attr = ROCE_CM_MRA,
		.tid = first.tid,
		.mra = {.local_id = 5,
			.remote_id = first.rep.local_id,
			.answered = ROCE_CM_ANSWERS_REP,
			.timeout = 18}};
	rig_send_cm(THEM, &msg);
	assert_false(rig_receive_cm(THEM, &msg, 1000));
	expect_cm(ROCE_CM_REP, 1000);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_RTU,
		.tid = first.tid,
		.rtu = {.local_id = 5, .remote_id = first.rep.local_id}};
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	rig_send_cm(THEM, &msg);
	rig_run(3);
	assert_false(rig_has_event(US));
	/* the DREQ arrives three times */
	msg = (struct roce_cm_msg){.attr = ROCE_CM_DREQ,
		.tid = 99,
		.dreq = {.local_id = 5, .remote_id = first.rep.local_id, .qpn = t.qp->qpn}};
	for (unsigned int i = 0; i < 3; i++) {
		struct roce_cm_msg drep;

		rig_send_cm(THEM, &msg);
		drep = expect_cm(ROCE_CM_DREP, 10);
		assert_int_equal(drep.tid, 99);
		assert_int_equal(drep.drep.remote_id, 5);
	}
	rig_event(US, RDMA_EVENT_DISCONNECTED, 10);
	/* and again long after the connection is forgotten */
	rig_event(US, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	destroy_theirs(&t);
	rig_run(10);
	rig_send_cm(THEM, &msg);
	expect_cm(ROCE_CM_DREP, 10);
	assert_int_equal(rig_stat(US, "cm_duplicates"), 5);
	close_us();
}

/* Our RTU was lost: their REP is repeated, and gets an RTU again. */
static void
test_rep_again(void **state)
{
	struct roce_cm_msg req, rep, rtu;
	struct rdma_conn *conn;
	struct rdma_qp *qp;

	open_us();
	rig_known(THEM);
	drain();
	qp = rig_qp(US, RDMA_QP_RC);
	conn = rdma_conn_connect(qp, rig_address(THEM, 4000), NULL);
	req = expect_cm(ROCE_CM_REQ, 10);
	rep = (struct roce_cm_msg){.attr = ROCE_CM_REP,
		.tid = req.tid,
		.rep = {.local_id = 8, .remote_id = req.req.local_id, .qpn = 80, .psn = 1}};
	for (unsigned int i = 0; i < 3; i++) {
		rig_send_cm(THEM, &rep);
		rtu = expect_cm(ROCE_CM_RTU, 10);
		assert_int_equal(rtu.rtu.remote_id, 8);
		assert_int_equal(rtu.tid, req.tid);
	}
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	rig_run(5);
	assert_false(rig_has_event(US));
	/* a REP for an unknown connection */
	rep.rep.remote_id ^= 1;
	rig_send_cm(THEM, &rep);
	assert_int_equal(expect_cm(ROCE_CM_REJ, 10).rej.reason, ROCE_REJ_INVALID_COMM_ID);
	assert_int_equal(rdma_conn_destroy(conn), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	close_us();
}

/* Their machine was restarted, and uses numbers that are still in use here. */
static void
test_stale(void **state)
{
	struct roce_cm_msg msg;
	struct theirs t;

	open_us();
	connect_theirs(&t, 5, 50);
	msg = req_of(6, 50);
	rig_send_cm(THEM, &msg);
	msg = expect_cm(ROCE_CM_REJ, 10);
	assert_int_equal(msg.rej.reason, ROCE_REJ_STALE_CONNECTION);
	assert_int_equal(msg.rej.remote_id, 6);
	assert_int_equal(rig_event(US, RDMA_EVENT_DISCONNECTED, 10)->status, -ESTALE);
	/* also during time-wait */
	msg = req_of(7, 50);
	rig_send_cm(THEM, &msg);
	assert_int_equal(expect_cm(ROCE_CM_REJ, 10).rej.reason, ROCE_REJ_STALE_CONNECTION);
	rig_event(US, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	destroy_theirs(&t);
	connect_theirs(&t, 8, 50);
	/* the same communication ID, another transaction */
	msg = req_of(8, 51);
	msg.tid++;
	rig_send_cm(THEM, &msg);
	assert_int_equal(expect_cm(ROCE_CM_REJ, 10).rej.reason, ROCE_REJ_STALE_CONNECTION);
	rig_event(US, RDMA_EVENT_DISCONNECTED, 10);
	destroy_theirs(&t);
	/* by chance all numbers are the same, except for the first PSN */
	connect_theirs(&t, 9, 52);
	msg = req_of(9, 52);
	rig_send_cm(THEM, &msg);
	rig_run(10);
	assert_int_equal(rig_stat(US, "cm_duplicates"), 1);
	msg.req.psn++;
	rig_send_cm(THEM, &msg);
	assert_int_equal(expect_cm(ROCE_CM_REJ, 10).rej.reason, ROCE_REJ_STALE_CONNECTION);
	rig_event(US, RDMA_EVENT_DISCONNECTED, 10);
	destroy_theirs(&t);
	assert_int_equal(rig_stat(US, "cm_stale"), 4);
	close_us();
}

/*
 * Their machine is powered off and restarted with other numbers. The new connection is accepted
 * immediately, and the old one is detected as dead, too.
 */
static void
test_switched_off(void **state)
{
	struct theirs old, new;

	open_us();
	theirs_keepalive = 5000;
	connect_theirs(&old, 5, 50);
	theirs_keepalive = 0;
	rig_run(1000);
	connect_theirs(&new, 0x80000006, 17);
	assert_int_equal(rig_event(US, RDMA_EVENT_DISCONNECTED, 10000)->status, -ETIMEDOUT);
	assert_int_equal(rig_stat(US, "tx_keepalives"), 8);
	/* in case the peer is alive and has only lost data */
	assert_int_equal(expect_cm(ROCE_CM_DREQ, 10).dreq.local_id, old.our_id);
	rig_event(US, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	destroy_theirs(&old);
	rig_run(20000);
	assert_false(rig_has_event(US));
	destroy_theirs(&new);
	close_us();
}

/* The retry count of a queue pair is the smaller of the peer's limit and its owner's. */
static void
test_retries(void **state)
{
	struct roce_cm_msg msg;
	struct roce_qp *ours;
	struct theirs t;

	open_us();
	rig_known(THEM);
	theirs_retries = 3;
	theirs_rnr_retries = 2;
	connect_theirs(&t, 5, 50);
	theirs_retries = theirs_rnr_retries = 7;
	ours = (struct roce_qp *)t.qp;
	assert_int_equal(ours->req.retry_count, 3);
	assert_int_equal(ours->req.rnr_retry, 2);
	destroy_theirs(&t);
	/* if we are the active side, they select one of the two */
	t.qp = rig_qp(US, RDMA_QP_RC);
	t.conn = rdma_conn_connect(t.qp, rig_address(THEM, PORT), NULL);
	assert_non_null(t.conn);
	while (rig_receive_cm(THEM, &msg, 100) && msg.attr != ROCE_CM_REQ)
		;
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REP,
		.tid = msg.tid,
		.rep = {.local_id = 6, .remote_id = msg.req.local_id, .qpn = 60, .rnr_retry = 1}};
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	ours = (struct roce_qp *)t.qp;
	assert_int_equal(ours->req.retry_count, 7);
	assert_int_equal(ours->req.rnr_retry, 1);
	destroy_theirs(&t);
	close_us();
}

/* A service request uses a number that their machine had used before it was restarted. */
static void
test_sidr_again(void **state)
{
	struct roce_cm_msg msg = {
		.attr = ROCE_CM_SIDR_REQ,
		.tid = 1,
		.sidr_req =
			{
				.request_id = 5,
				.pkey = 0xffff,
				.service_id = (uint64_t)ROCE_PORT_SPACE_UDP << 16 | PORT,
			},
	};
	struct rdma_conn *conn[2], *service;
	struct roce_cm_msg req;
	struct rdma_qp *qp;

	open_us();
	service = rdma_conn_listen(rig[US].dev, RDMA_QP_UD, PORT, 4, NULL);
	assert_non_null(service);
	qp = rig_qp(US, RDMA_QP_UD);
	req = req_of(1, 1);
	memcpy(msg.sidr_req.private_data, req.req.private_data, ROCE_CMA_BYTES);
	rig_send_cm(THEM, &msg);
	conn[0] = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	/* before it is answered */
	msg.tid++;
	rig_send_cm(THEM, &msg);
	rig_run(2);
	assert_int_equal(rig_event(US, RDMA_EVENT_REJECTED, 10)->status, -ESTALE);
	conn[1] = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	assert_int_equal(rdma_conn_accept(conn[0], qp, NULL), -ENOTCONN);
	assert_int_equal(rdma_conn_destroy(conn[0]), 0);
	assert_int_equal(rdma_conn_accept(conn[1], qp, NULL), 0);
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	assert_int_equal(rdma_conn_destroy(conn[1]), 0);
	assert_int_equal(expect_cm(ROCE_CM_SIDR_REP, 10).tid, 2);
	/* and while the reply is kept for duplicates */
	msg.tid++;
	rig_send_cm(THEM, &msg);
	conn[0] = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	assert_int_equal(rdma_conn_reject(conn[0], NULL, 0), 0);
	assert_int_equal(rdma_qp_destroy(qp), 0);
	assert_int_equal(rdma_conn_destroy(service), 0);
	close_us();
}

/* They reject, or time out, in each of our states. */
static void
test_rej(void **state)
{
	struct roce_cm_msg msg, rep;
	struct theirs t;

	open_us();
	/* while the application decides: a REJ with the ID that they do not know yet */
	msg = req_of(5, 50);
	rig_send_cm(THEM, &msg);
	t.conn = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REJ,
		.tid = msg.tid,
		.rej = {.local_id = 5, .reason = ROCE_REJ_TIMEOUT, .answered = 2}};
	rig_send_cm(THEM, &msg);
	assert_int_equal(rig_event(US, RDMA_EVENT_REJECTED, 10)->status, ROCE_REJ_TIMEOUT);
	assert_int_equal(rdma_conn_destroy(t.conn), 0);
	/* after our REP */
	msg = req_of(6, 60);
	rig_send_cm(THEM, &msg);
	t.conn = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	t.qp = rig_qp(US, RDMA_QP_RC);
	assert_int_equal(rdma_conn_accept(t.conn, t.qp, NULL), 0);
	rep = expect_cm(ROCE_CM_REP, 10);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REJ,
		.tid = msg.tid,
		.rej = {.local_id = 6,
			.remote_id = rep.rep.local_id,
			.reason = ROCE_REJ_CONSUMER,
			.answered = ROCE_CM_ANSWERS_REP}};
	rig_send_cm(THEM, &msg);
	assert_int_equal(rig_event(US, RDMA_EVENT_REJECTED, 10)->status, ROCE_REJ_CONSUMER);
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_TIMEWAIT_EXIT, 2000);
	destroy_theirs(&t);
	/* an established connection */
	connect_theirs(&t, 7, 70);
	msg.rej.local_id = 7;
	msg.rej.remote_id = t.our_id;
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_DISCONNECTED, 10);
	destroy_theirs(&t);
	/* and one that we are closing */
	connect_theirs(&t, 8, 80);
	assert_int_equal(rdma_conn_disconnect(t.conn), 0);
	expect_cm(ROCE_CM_DREQ, 10);
	msg.rej.local_id = 8;
	msg.rej.remote_id = t.our_id;
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_DISCONNECTED, 10);
	destroy_theirs(&t);
	close_us();
}

/* ---- messages of incorrect peers ------------------------------------------------------------- */

static void
test_bad_requests(void **state)
{
	struct roce_cm_msg msg, good;

	open_us();
	good = req_of(5, 50);
	for (unsigned int i = 0; i < 9; i++) {
		static const uint16_t want[] = {ROCE_REJ_INVALID_SERVICE_ID,
			ROCE_REJ_INVALID_SERVICE_ID, ROCE_REJ_INVALID_GID, ROCE_REJ_INVALID_GID,
			ROCE_REJ_INVALID_TRANSPORT, ROCE_REJ_INVALID_MTU, ROCE_REJ_INVALID_MTU,
			ROCE_REJ_UNSUPPORTED, ROCE_REJ_UNSUPPORTED};

		msg = good;
		switch (i) {
		case 0:
			msg.req.service_id++;
			break;
		case 1:
			msg.req.service_id = (uint64_t)ROCE_PORT_SPACE_IB << 16 | PORT;
			break;
		case 2:
			msg.req.primary.local_gid[15]++;
			break;
		case 3:
			msg.req.primary.remote_gid[15]++;
			break;
		case 4:
			msg.req.transport = 3;
			break;
		case 5:
			msg.req.mtu = 0;
			break;
		case 6:
			msg.req.mtu = 9;
			break;
		case 7:
			msg.req.private_data[0] = 7;
			break;
		case 8:
			msg.req.pkey = 0x8001;
			break;
		}
		rig_send_cm(THEM, &msg);
		msg = expect_cm(ROCE_CM_REJ, 10);
		assert_int_equal(msg.rej.reason, want[i]);
		assert_int_equal(msg.rej.remote_id, 5);
		assert_int_equal(msg.tid, good.tid);
	}
	rig_run(10);
	assert_false(rig_has_event(US));
	assert_int_equal(rig_stat(US, "cm_no_listener"), 2);
	assert_int_equal(rig_stat(US, "cm_bad_request"), 5);
	assert_int_equal(rig_stat(US, "cm_bad_mtu"), 2);
	close_us();
}

/* Wrong Q_Key, wrong queue pair, no CM, unknown attribute: counted, and not answered. */
static void
test_bad_mads(void **state)
{
	struct roce_cm_msg msg, got;
	uint8_t mad[ROCE_MAD_BYTES];
	struct roce_gid gid;

	open_us();
	drain();
	gid = rig[THEM].gid;
	msg = req_of(5, 50);
	roce_cm_encode(&msg, mad);
	rig_send_mad(THEM, mad, 0x11111111, ROCE_QPN_CM);
	rig_send_mad(THEM, mad, ROCE_QKEY_CM, 17);
	mad[1] = 0x03;
	rig_send_mad(THEM, mad, ROCE_QKEY_CM, ROCE_QPN_CM);
	mad[1] = ROCE_MAD_CLASS_CM;
	mad[17] = 0x19; /* LAP */
	rig_send_mad(THEM, mad, ROCE_QKEY_CM, ROCE_QPN_CM);
	/* a multicast group cannot request a connection */
	roce_cm_encode(&msg, mad);
	rig[THEM].gid = roce_gid_v4(RTE_BE32(0xe0000005));
	rig_send_mad(THEM, mad, ROCE_QKEY_CM, ROCE_QPN_CM);
	rig[THEM].gid = gid;
	assert_false(rig_receive_cm(THEM, &got, 20));
	assert_int_equal(rig_stat(US, "mad_unsupported"), 1);
	assert_int_equal(rig_stat(US, "mad_malformed"), 2);
	assert_int_equal(rig_stat(US, "mad_qkey") + rig_stat(US, "rx_bad_qkey"), 2);
	assert_false(rig_has_event(US));
	close_us();
}

/*
 * A packet that looks like a MAD but took another path, so that its ICRC was not checked, is not
 * accepted as a MAD.
 */
static void
test_not_mads(void **state)
{
	const struct roce_cm_msg msg = req_of(6, 60);
	struct roce_path_attr attr = {
		.src = {{0xfd, [15] = 2}},
		.dst = {{0xfd, [15] = 1}},
		.udp_src = 0xd872,
		.hop_limit = 64,
	};
	uint8_t mad[ROCE_MAD_BYTES], *frame;
	struct roce_cm_msg got;
	struct roce_path path;
	struct rte_mbuf *m;

	rig_open(US, "ip=fd00::1/64,ip=10.99.0.1/24");
	rig_raw(THEM, "10.99.0.2");
	listener = rdma_conn_listen(rig[US].dev, RDMA_QP_RC, PORT, 8, NULL);
	rig_run(3000);
	drain();
	roce_cm_encode(&msg, mad);
	attr.src_mac = rig[THEM].mac;
	attr.dst_mac = rig[US].mac;
	for (unsigned int i = 0; i < 3; i++) {
		roce_path_make(&path, &attr);
		m = roce_control_ud(roce_dev(rig[US].dev), &path, ROCE_QPN_CM, ROCE_QPN_CM,
			ROCE_QKEY_CM, 0, mad, ROCE_MAD_BYTES);
		assert_non_null(m);
		frame = rte_pktmbuf_mtod(m, uint8_t *);
		if (i == 0) {
			/* another UDP port */
			frame[14 + 40 + 3] ^= 1;
		} else if (i == 1) {
			/* after a router alert option, where the UDP header is 8 bytes later */
			frame = (uint8_t *)rte_pktmbuf_prepend(m, 8);
			RTE_VERIFY(frame != NULL); /* the compiler expects assertions to return */
			memmove(frame, frame + 8, 14 + 40);
			memcpy(frame + 14 + 40, "\x11\0\5\2\0\0\1\0", 8);
			frame[14 + 6] = 0;
			frame[14 + 5] += 8;
			/* and a packet that looks like a MAD at the offset without the option */
			memmove(frame + 14 + 40 + 8, frame + 14 + 40 + 16, 12 + 8 + ROCE_MAD_BYTES);
		} else {
			/* from an IPv4 address in an IPv6 header; as ICMPv6, which has no ICRC */
			frame[14 + 6] = IPPROTO_ICMPV6;
			memcpy(frame + 14 + 8, rig[THEM].gid.raw, 16);
		}
		rig_send(THEM, m);
		assert_false(rig_receive_cm(THEM, &got, 20));
	}
	assert_int_equal(rig_stat(US, "rx_not_for_us"), 1);
	assert_int_equal(rig_stat(US, "control_other"), 1);
	assert_int_equal(rig_stat(US, "control_malformed"), 1);
	assert_int_equal(rig_stat(US, "cm_rx"), 0);
	assert_false(rig_has_event(US));
	close_us();
}

/* A MAD of another partition, and a corrupted one. */
static void
test_corrupted_mads(void **state)
{
	const struct roce_path_attr attr = {
		.src_mac = {{0x52, 0x54, 0, 0, 0, 0x0b}},
		.dst_mac = {{0x52, 0x54, 0, 0, 0, 0x0a}},
		.src = roce_gid_v4(RTE_BE32(0x0a630002)),
		.dst = roce_gid_v4(RTE_BE32(0x0a630001)),
		.udp_src = 0xd872,
		.hop_limit = 64,
	};
	const unsigned int headers = 20 + ROCE_UDP_BYTES + sizeof(struct roce_bth);
	const struct roce_cm_msg msg = req_of(5, 50);
	uint8_t mad[ROCE_MAD_BYTES], *l3;
	struct roce_path path;
	struct rte_mbuf *m;
	uint32_t crc;

	open_us();
	drain();
	roce_cm_encode(&msg, mad);
	roce_path_make(&path, &attr);
	for (unsigned int i = 0; i < 2; i++) {
		m = roce_control_ud(roce_dev(rig[US].dev), &path, ROCE_QPN_CM, ROCE_QPN_CM,
			ROCE_QKEY_CM, 0, mad, ROCE_MAD_BYTES);
		assert_non_null(m);
		l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, 14);
		if (i == 0) {
			l3[headers + 8] ^= 1;
		} else {
			/* P_Key 0xfeff, with a matching ICRC */
			l3[20 + ROCE_UDP_BYTES + 2] ^= 1;
			crc = roce_icrc_headers(l3, 20, headers);
			crc = roce_icrc_bytes(
				crc, l3 + headers, m->pkt_len - 14 - headers - ROCE_ICRC_BYTES);
			crc = rte_cpu_to_le_32(crc);
			memcpy(l3 + m->pkt_len - 14 - ROCE_ICRC_BYTES, &crc, sizeof(crc));
		}
		rig_send(THEM, m);
		rig_run(2);
		assert_false(rig_has_event(US));
	}
	assert_int_equal(rig_stat(US, "rx_icrc_errors"), 1);
	assert_int_equal(rig_stat(US, "rx_bad_pkey"), 1);
	assert_int_equal(rig_stat(US, "cm_rx"), 0);
	close_us();
}

/* A message has no effect, and is counted. */
static void
ignored(const struct roce_conn *conn, const struct roce_cm_msg *msg, const char *counter)
{
	const uint64_t before = rig_stat(US, counter);
	const enum roce_conn_state state = conn->state;
	const uint32_t remote_id = conn->remote_id;

	rig_send_cm(THEM, msg);
	rig_run(2);
	drain();
	if (rig_stat(US, counter) != before + 1)
		fail_msg("%s in state %u: %s has not risen", roce_cm_attr_name(msg->attr), state,
			counter);
	assert_false(rig_has_event(US));
	assert_int_equal(conn->state, state);
	assert_int_equal(conn->remote_id, remote_id);
}

/* The same message with the same IDs from another station. */
static void
by_stranger(const struct roce_conn *conn, const struct roce_cm_msg *msg)
{
	const struct roce_gid gid = rig[THEM].gid;

	rig[THEM].gid = roce_gid_v4(RTE_BE32(0x0a630003));
	ignored(conn, msg, "cm_unmatched");
	rig[THEM].gid = gid;
}

/*
 * A message with two IDs, which have the same offsets in all of them: it is accepted only from the
 * peer, and only if both IDs are right.
 */
static void
wrong_ones(const struct roce_conn *conn, const struct roce_cm_msg *right)
{
	struct roce_cm_msg msg = *right;

	by_stranger(conn, right);
	msg.rtu.remote_id ^= 1;
	ignored(conn, &msg, "cm_unmatched");
	msg.rtu.remote_id = 0;
	ignored(conn, &msg, "cm_unmatched");
	if (conn->remote_id == 0)
		return; /* it has to be learned from the message */
	msg = *right;
	msg.rtu.local_id ^= 1;
	ignored(conn, &msg, "cm_unmatched");
	msg.rtu.local_id = 0;
	ignored(conn, &msg, "cm_unmatched");
}

/* Every message in every state in which it is accepted. */
static void
test_other_stations(void **state)
{
	struct roce_cm_msg req, rep, msg;
	const struct roce_conn *conn;
	struct theirs t;

	open_us();
	rig_known(THEM);
	/* passive side, after our REP */
	req = req_of(6, 60);
	rig_send_cm(THEM, &req);
	t.conn = rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 10)->conn;
	t.qp = rig_qp(US, RDMA_QP_RC);
	conn = roce_conn(t.conn);
	/* a REJ for a timeout has no ID of ours, or the right one */
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REJ,
		.tid = req.tid,
		.rej = {.local_id = 6, .reason = ROCE_REJ_TIMEOUT, .answered = 2}};
	by_stranger(conn, &msg);
	msg.rej.remote_id = conn->local_id ^ 1;
	ignored(conn, &msg, "cm_unmatched");
	assert_int_equal(rdma_conn_accept(t.conn, t.qp, NULL), 0);
	rep = expect_cm(ROCE_CM_REP, 10);
	ignored(conn, &msg, "cm_unmatched");
	msg.rej = (struct roce_cm_rej){.local_id = 6,
		.remote_id = conn->local_id,
		.reason = ROCE_REJ_CONSUMER,
		.answered = ROCE_CM_ANSWERS_REP};
	wrong_ones(conn, &msg);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_MRA,
		.tid = req.tid,
		.mra = {.local_id = 6,
			.remote_id = rep.rep.local_id,
			.answered = ROCE_CM_ANSWERS_REP,
			.timeout = 20}};
	wrong_ones(conn, &msg);
	msg.mra.answered = ROCE_CM_ANSWERS_REQ;
	ignored(conn, &msg, "cm_unexpected");
	msg = (struct roce_cm_msg){.attr = ROCE_CM_DREQ,
		.tid = 9,
		.dreq = {.local_id = 6, .remote_id = conn->local_id, .qpn = t.qp->qpn}};
	wrong_ones(conn, &msg);
	/* the passive side does not reply to it */
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REP,
		.tid = req.tid,
		.rep = {.local_id = 6, .remote_id = conn->local_id, .qpn = 60}};
	ignored(conn, &msg, "cm_unmatched");
	msg = (struct roce_cm_msg){.attr = ROCE_CM_RTU,
		.tid = req.tid,
		.rtu = {.local_id = 6, .remote_id = conn->local_id}};
	wrong_ones(conn, &msg);
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	/* established */
	wrong_ones(conn, &msg);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REJ,
		.tid = req.tid,
		.rej = {.local_id = 6,
			.remote_id = conn->local_id,
			.reason = ROCE_REJ_TIMEOUT,
			.answered = 2}};
	wrong_ones(conn, &msg);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_DREQ,
		.tid = 9,
		.dreq = {.local_id = 6, .remote_id = conn->local_id, .qpn = t.qp->qpn}};
	wrong_ones(conn, &msg);
	msg.dreq.qpn ^= 1;
	ignored(conn, &msg, "cm_unexpected");
	msg.dreq.qpn = 60;
	ignored(conn, &msg, "cm_unexpected");
	/* our side disconnects */
	drain();
	assert_int_equal(rdma_conn_disconnect(t.conn), 0);
	expect_cm(ROCE_CM_DREQ, 10);
	msg.attr = ROCE_CM_DREP;
	wrong_ones(conn, &msg);
	msg.attr = ROCE_CM_DREQ;
	wrong_ones(conn, &msg);
	msg.attr = ROCE_CM_DREP;
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_DISCONNECTED, 10);
	destroy_theirs(&t);
	close_us();
}

/* The same for the active side: only the station that was asked may answer. */
static void
test_other_stations_reply(void **state)
{
	struct roce_cm_msg req, msg;
	const struct roce_conn *conn;
	struct theirs t;

	open_us();
	rig_known(THEM);
	drain();
	t.qp = rig_qp(US, RDMA_QP_RC);
	t.conn = rdma_conn_connect(t.qp, rig_address(THEM, PORT), NULL);
	assert_non_null(t.conn);
	conn = roce_conn(t.conn);
	req = expect_cm(ROCE_CM_REQ, 100);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_MRA,
		.tid = req.tid,
		.mra = {.local_id = 6, .remote_id = conn->local_id, .timeout = 20}};
	wrong_ones(conn, &msg);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REJ,
		.tid = req.tid,
		.rej = {.remote_id = conn->local_id, .reason = ROCE_REJ_CONSUMER}};
	wrong_ones(conn, &msg);
	msg.rej.reason = ROCE_REJ_TIMEOUT;
	wrong_ones(conn, &msg);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REP,
		.tid = req.tid,
		.rep = {.local_id = 6, .remote_id = conn->local_id, .qpn = 60}};
	wrong_ones(conn, &msg);
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	/* again, with another ID than the learned one */
	wrong_ones(conn, &msg);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_REJ,
		.tid = req.tid,
		.rej = {.local_id = 6,
			.remote_id = conn->local_id,
			.reason = ROCE_REJ_STALE_CONNECTION}};
	wrong_ones(conn, &msg);
	destroy_theirs(&t);
	rig_run(2000);
	drain();
	/* a datagram service */
	t.qp = rig_qp(US, RDMA_QP_UD);
	t.conn = rdma_conn_connect(t.qp, rig_address(THEM, PORT), NULL);
	assert_non_null(t.conn);
	conn = roce_conn(t.conn);
	rig_known(THEM);
	req = expect_cm(ROCE_CM_SIDR_REQ, 100);
	msg = (struct roce_cm_msg){.attr = ROCE_CM_SIDR_REP,
		.tid = req.tid,
		.sidr_rep = {.request_id = req.sidr_req.request_id, .qpn = 60, .qkey = 1}};
	by_stranger(conn, &msg);
	msg.sidr_rep.request_id ^= 1;
	ignored(conn, &msg, "cm_unmatched");
	msg.sidr_rep.request_id ^= 1;
	rig_send_cm(THEM, &msg);
	rig_event(US, RDMA_EVENT_ESTABLISHED, 10);
	destroy_theirs(&t);
	close_us();
}

/* Requests that the application does not answer: limited by the backlog, then by the device. */
static void
test_flood(void **state)
{
	struct roce_cm_msg msg;
	uint64_t answers = 0;

	open_us();
	for (uint32_t i = 0; i < 20000; i++) {
		msg = req_of(100 + i, 1000 + i);
		rig_send_cm(THEM, &msg);
		if (i % 64 == 63) {
			rig_run(1);
			drain();
		}
	}
	rig_run(5);
	assert_int_equal(roce_dev(rig[US].dev)->control->conns.nb_conns, 1 + 8);
	assert_int_equal(
		rig_stat(US, "cm_backlog_full") + rig_stat(US, "rx_control_ring_full") + 8, 20000);
	for (unsigned int i = 0; i < 8; i++)
		rdma_conn_reject(rig_event(US, RDMA_EVENT_CONNECT_REQUEST, 1)->conn, NULL, 0);
	assert_false(rig_has_event(US));
	rig_run(2);
	drain();
	/* no listener: one REJ for each, and no state is kept */
	for (uint32_t i = 0; i < 10000; i++) {
		msg = req_of(100 + i, 1000 + i);
		msg.req.service_id++;
		rig_send_cm(THEM, &msg);
		if (i % 64 == 63) {
			rig_run(1);
			while (rig_receive_cm(THEM, &msg, 0))
				answers += msg.attr == ROCE_CM_REJ;
		}
	}
	rig_run(5);
	while (rig_receive_cm(THEM, &msg, 0))
		answers += msg.attr == ROCE_CM_REJ;
	assert_int_equal(answers, 10000);
	assert_int_equal(roce_dev(rig[US].dev)->control->conns.nb_conns, 1);
	close_us();
}

/* Any backlog is accepted, and the device still has its limit. */
static void
test_flood_device(void **state)
{
	struct rdma_conn *other;
	struct roce_conns *conns;
	struct rdma_event event[64];
	struct roce_cm_msg msg;
	uint16_t n;

	rig_open(US, "ip=10.99.0.1/24,qps=64");
	rig_raw(THEM, "10.99.0.2");
	listener = rdma_conn_listen(rig[US].dev, RDMA_QP_RC, 1, 1, NULL);
	other = rdma_conn_listen(rig[US].dev, RDMA_QP_RC, PORT, UINT16_MAX, NULL);
	conns = &roce_dev(rig[US].dev)->control->conns;
	for (uint32_t i = 0; i < 4000; i++) {
		msg = req_of(100 + i, 1000 + i);
		rig_send_cm(THEM, &msg);
		rdma_progress(rig[US].dev, 0);
		rdma_poll_cm(rig[US].dev, NULL, 0);
	}
	assert_int_equal(conns->nb_conns, conns->max);
	assert_true(rig_stat(US, "cm_table_full") > 0);
	/*
	 * the listener is destroyed, and with it all requests except those that the application has
	 */
	n = rdma_poll_cm(rig[US].dev, event, RTE_DIM(event));
	assert_int_equal(n, RTE_DIM(event));
	assert_int_equal(rdma_conn_destroy(other), 0);
	rdma_poll_cm(rig[US].dev, NULL, 0);
	assert_int_equal(conns->nb_conns, 1 + RTE_DIM(event));
	while (n > 0)
		rdma_conn_reject(event[--n].conn, NULL, 0);
	rdma_progress(rig[US].dev, 0);
	close_us();
}

/* Random messages in any state: no crash, and no state is left. */
static void
test_random(void **state)
{
	rig_seed();
	open_us();
	rig_known(THEM);
	for (unsigned int round = 0; round < 300; round++) {
		struct rdma_qp *qp[16] = {NULL};
		struct rdma_conn *conn[16] = {NULL};
		uint32_t known[32] = {0};
		unsigned int nb_known = 1, nb = 0;

		for (unsigned int i = 0; i < 60; i++) {
			struct roce_cm_msg msg = {0}, got;
			struct rdma_event *e;

			switch (rig_random(nb < 16 ? 12 : 11)) {
			case 11:
				qp[nb] = rig_qp(US, RDMA_QP_RC);
				conn[nb] = rdma_conn_connect(qp[nb], rig_address(THEM, 4000), NULL);
				assert_non_null(conn[nb]);
				nb++;
				break;
			case 10:
				if (nb > 0 && conn[nb - 1])
					rdma_conn_disconnect(conn[rig_random(nb)]);
				break;
			case 9:
				msg = req_of(rig_random(4), rig_random(4));
				rig_send_cm(THEM, &msg);
				break;
			default:
				/* well-formed, with IDs that may be valid */
				msg.attr = ROCE_CM_REQ + rig_random(9);
				msg.tid = rig_random(3);
				for (unsigned int at = 0; at < sizeof(msg.req); at++)
					((uint8_t *)&msg.req)[at] = rig_random(256);
				msg.rep.local_id =
					rig_random(2) ? rig_random(4) : known[rig_random(nb_known)];
				if (msg.attr != ROCE_CM_REQ && msg.attr < ROCE_CM_SIDR_REQ)
					msg.rep.remote_id = known[rig_random(nb_known)];
				if (rig_random(2) && nb > 0 && msg.attr == ROCE_CM_DREQ)
					msg.dreq.qpn = roce_conn(conn[nb - 1])->local_qpn;
				rig_send_cm(THEM, &msg);
			}
			rig_run(1 + rig_random(rig_random(20) ? 3 : 400));
			while (rig_receive_cm(THEM, &got, 0))
				if (nb_known < 32)
					known[nb_known++] = got.rep.local_id;
			while (rig_has_event(US)) {
				e = &rig[US].events[rig[US].taken++];
				if (e->type != RDMA_EVENT_CONNECT_REQUEST)
					continue;
				if (nb < 16 && rig_random(2)) {
					qp[nb] = rig_qp(US, RDMA_QP_RC);
					conn[nb] = e->conn;
					rdma_conn_accept(conn[nb], qp[nb], NULL);
					nb++;
				} else {
					rdma_conn_reject(e->conn, NULL, 0);
				}
			}
			rig[US].taken = rig[US].nb_events = 0;
		}
		while (nb-- > 0) {
			assert_int_equal(rdma_conn_destroy(conn[nb]), 0);
			assert_int_equal(rdma_qp_destroy(qp[nb]), 0);
		}
	}
	rig_run(100);
	while (rig_has_event(US)) {
		struct rdma_event *e = &rig[US].events[rig[US].taken++];

		if (e->type == RDMA_EVENT_CONNECT_REQUEST)
			rdma_conn_reject(e->conn, NULL, 0);
	}
	close_us();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_rep_again),
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_switched_off),
		cmocka_unit_test(test_retries),
		cmocka_unit_test(test_sidr_again),
		cmocka_unit_test(test_rej),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_bad_mads),
		cmocka_unit_test(test_not_mads),
		cmocka_unit_test(test_corrupted_mads),
		cmocka_unit_test(test_other_stations),
		cmocka_unit_test(test_other_stations_reply),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_flood_device),
		cmocka_unit_test(test_random),
	};
	int failed;

	rig_init(argv[0]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rig_exit();
	return failed;
}
