/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many clients on one lcore: connections with few slots that follow the protocol and drop what they
 * get. The client of app/scan has a device and a thread of its own, which 64 of them cannot have.
 */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "remote/proof.h"
#include "scan_bench.h"
#include "xfer/qp.h"

#define DISTURBERS  3
#define CROWD_MAX   SCAN_SESSIONS
#define CROWD_SLOTS 8
#define CROWD_SLOT  (128 * KIB)
#define PATIENCE_S  30
#define ENDLESS	    "SELECT sum(i) FROM range(1000000000000000) t(i)"
#define LARGE	    "SELECT i FROM range(1000000000) t(i)"

struct member {
	struct xfer_qp link;
	bool link_is_open;
	struct rdma_conn *conn;
	struct scan_proof proof;
	bool up, gone;
	uint64_t sent, received;
	uint32_t cursor;
	bool lazy; /* gives no credit */
	bool ended;
	unsigned int done; /* queries */
	unsigned int failed;
	uint64_t bytes; /* of bodies, of all its queries */
	uint32_t taken; /* messages and slots to be returned */
	uint32_t slot[CROWD_SLOTS];
	uint32_t nb_slots;
};

static struct {
	struct crowd *crowd;
	struct member member[CROWD_MAX];
	unsigned int nb;
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct rdma_mr *mr;
	uint8_t *slots;
} all;

static void
say(struct member *m, const void *message, size_t size)
{
	void *room = xfer_qp_room(&m->link);

	if (room == NULL || m->link.broken)
		return;
	memcpy(room, message, size);
	((struct scan_msg *)room)->number = m->sent++;
	(void)xfer_qp_send(&m->link, size);
}

static void
take_data(struct member *m, const struct scan_data *data)
{
	size_t at = sizeof(*data);
	struct scan_record r;

	while (scan_record_next(data, &at, &r) != NULL) {
		if (r.kind == SCAN_BODY || r.kind == SCAN_PUSHED)
			m->bytes += r.length;
		if (r.kind == SCAN_PUSHED && m->nb_slots < CROWD_SLOTS)
			m->slot[m->nb_slots++] = r.slot;
		m->failed += r.kind == SCAN_ERROR;
		m->ended |= r.kind == SCAN_END || r.kind == SCAN_ERROR;
		m->done += r.kind == SCAN_END;
	}
	m->taken++;
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	const struct scan_msg *head = message;
	struct member *m = arg;

	if (scan_msg_check(message, size, SCAN_SERVER, m->received++) != SCAN_REASON_NONE ||
		head->type == SCAN_REFUSE)
		m->gone = true;
	else if (head->type == SCAN_ANSWER)
		m->up = scan_proof_accept(&m->proof, message) == SCAN_REASON_NONE;
	else if (head->type == SCAN_DATA)
		take_data(m, message);
}

static void
on_forged(void *arg)
{
	((struct member *)arg)->gone = true;
}

static void
on_written(void *arg, uint32_t imm)
{
}

static const struct xfer_qp_ops ops = {
	.message = on_message, .forged = on_forged, .written = on_written};

/* Return what was used up, in one message. */
static void
give_credit(struct member *m)
{
	struct {
		struct scan_credit head;
		uint32_t slot[CROWD_SLOTS];
	} credit;

	if (m->lazy || !m->up || (m->taken == 0 && m->nb_slots == 0))
		return;
	scan_msg_begin(&credit, SCAN_CREDIT, sizeof(credit.head) + m->nb_slots * 4, 0);
	credit.head.messages = m->taken;
	credit.head.nb = m->nb_slots;
	memcpy(credit.slot, m->slot, m->nb_slots * 4);
	say(m, &credit, credit.head.head.length);
	m->taken = m->nb_slots = 0;
}

static void
established(struct member *m, const struct rdma_event *event)
{
	struct xfer_endpoint client = {.qpn = m->link.qpn}, end = {.qpn = event->remote_qpn};
	struct sockaddr_storage addr = {.ss_family = AF_INET};
	struct sockaddr_in *in = (struct sockaddr_in *)&addr;
	uint8_t keys[2][XFER_MAC_BYTES];

	inet_pton(AF_INET, "10.0.0.1", &in->sin_addr);
	xfer_qp_address(&addr, client.addr);
	inet_pton(AF_INET, "10.0.0.2", &in->sin_addr);
	xfer_qp_address(&addr, end.addr);
	if (scan_proof_claim(&m->proof, event->private_data, event->private_len, &client, &end) !=
			SCAN_REASON_NONE ||
		scan_proof_session(&m->proof, keys) < 0 ||
		xfer_qp_seal_keys(&m->link, keys[0], keys[1]) < 0)
		rig_die("a client of many is not authenticated");
	say(m, &m->proof.request, sizeof(m->proof.request));
}

static void
turn(void)
{
	struct rdma_event event[8];
	unsigned int i, n;

	(void)rdma_progress(all.dev, 0);
	for (i = 0; i < all.nb; i++) {
		if (!all.member[i].link_is_open)
			continue;
		(void)xfer_qp_poll(&all.member[i].link);
		give_credit(&all.member[i]);
	}
	n = rdma_poll_cm(all.dev, event, 8);
	for (i = 0; i < n; i++) {
		struct member *m = event[i].conn != NULL ? rdma_conn_context(event[i].conn) : NULL;

		if (m == NULL)
			continue;
		if (event[i].type == RDMA_EVENT_ESTABLISHED)
			established(m, &event[i]);
		else if (event[i].type != RDMA_EVENT_TIMEWAIT_EXIT)
			m->gone = true;
	}
}

#define UNTIL(what)                                                              \
	do {                                                                     \
		const double until_ = now() + PATIENCE_S;                        \
		while (!(what)) {                                                \
			turn();                                                  \
			if (now() > until_)                                      \
				rig_die("many clients: not in time: %s", #what); \
		}                                                                \
	} while (0)

static void
connect_member(struct member *m)
{
	const struct xfer_qp_config config = {
		.dev = all.dev, .pd = all.pd, .receives = CROWD_SLOTS + 16, .ops = &ops, .arg = m};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(SCAN_PORT)};
	struct rdma_conn_attr attr = {.private_data = &m->proof.call,
		.private_len = sizeof(m->proof.call),
		.context = m,
		.timeout_ms = PATIENCE_S * 1000};
	struct scan_grant grant;

	if (xfer_qp_open(&m->link, &config) < 0 || xfer_qp_extend(&m->link) < 0 ||
		scan_proof_call(&m->proof, ENDS_NAME, &ends_key) != SCAN_REASON_NONE)
		rig_die("many clients: no queue pair");
	m->link_is_open = true;
	inet_pton(AF_INET, "10.0.0.2", &to.sin_addr);
	m->conn = rdma_conn_connect(m->link.qp, (const struct sockaddr *)&to, &attr);
	if (m->conn == NULL)
		rig_die("many clients: no connection: %s", rte_strerror(rte_errno));
	UNTIL(m->up || m->gone);
	if (!m->up)
		rig_die("many clients: a connection is refused");
	scan_msg_begin(&grant, SCAN_GRANT, sizeof(grant), 0);
	grant.addr = (uintptr_t)all.slots + (uint64_t)(m - all.member) * CROWD_SLOTS * CROWD_SLOT;
	grant.slot_bytes = CROWD_SLOT;
	grant.nb = CROWD_SLOTS;
	grant.rkey = rdma_mr_rkey(all.mr);
	say(m, &grant, sizeof(grant));
}

static void
ask(struct member *m, const char *sql)
{
	union {
		struct scan_query m;
		uint8_t bytes[SCAN_MSG_MAX];
	} query;
	const size_t length = strlen(sql);

	m->ended = false;
	scan_msg_begin(&query, SCAN_QUERY, sizeof(query.m) + length, 0);
	query.m.cursor = ++m->cursor;
	query.m.total = length;
	memcpy(query.m.bytes, sql, length);
	say(m, &query, query.m.head.length);
}

static void
hang_up(struct member *m)
{
	if (m->conn != NULL)
		(void)rdma_conn_destroy(m->conn);
	m->conn = NULL;
	m->up = false;
	while (m->link_is_open && xfer_qp_close(&m->link) < 0)
		turn();
	m->link_is_open = false;
}

/* Whether each client has had a result, beside that of the first query. */
static bool
all_have_results(const struct member *m, unsigned int nb)
{
	for (; nb > 0; nb--, m++)
		if (m->done < 2 && !m->gone && m->failed == 0)
			return false;
	return true;
}

static void
measure(struct crowd *c)
{
	struct member *first = &all.member[all.nb - c->clients];
	uint64_t sum = 0, least = UINT64_MAX, bytes;
	uint64_t before[CROWD_MAX];
	double start, end;
	unsigned int i;

	/* engines are opened by the first query */
	for (i = 0; i < c->clients; i++) {
		ask(&first[i], c->sql);
		UNTIL(first[i].ended);
	}
	if (c->disturbed) {
		all.member[0].lazy = true;
		ask(&all.member[0], LARGE);
		ask(&all.member[1], LARGE);
		ask(&all.member[2], ENDLESS);
		UNTIL(all.member[1].bytes > MIB);
	}
	for (i = 0; i < c->clients; i++) {
		before[i] = first[i].bytes;
		ask(&first[i], c->sql);
	}
	start = now();
	end = start + c->seconds;
	while (now() < end || (!all_have_results(first, c->clients) && now() < end + PATIENCE_S)) {
		turn();
		for (i = 0; i < c->clients; i++)
			if (first[i].ended && !first[i].gone)
				ask(&first[i], c->sql);
		if (c->disturbed && all.member[1].link_is_open && now() > start + c->seconds / 4)
			hang_up(&all.member[1]);
	}
	end = now();
	for (i = 0; i < c->clients; i++) {
		bytes = first[i].bytes - before[i];
		sum += bytes;
		least = RTE_MIN(least, bytes);
		c->lost += first[i].gone || first[i].failed > 0 || first[i].done < 2;
	}
	c->rate = (double)sum / (end - start);
	c->worst = sum > 0 ? (double)least * c->clients / (double)sum : 0;
}

static void
client(void *arg)
{
	struct rdma_mr_attr attr = {.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1,
		.length = (uint64_t)CROWD_MAX * CROWD_SLOTS * CROWD_SLOT};
	struct crowd *c = arg;
	unsigned int i;

	ends_take_cpus(ENDS_SERVICE);
	memset(&all, 0, sizeof(all));
	if (rte_thread_register() < 0)
		rig_die("no lcore for many clients");
	all.dev = rdma_dev_open(ENDS_CLIENT);
	if (all.dev == NULL)
		rig_die("many clients: no device: %s", rte_strerror(rte_errno));
	(void)rdma_progress(all.dev, 0);
	all.pd = rdma_pd_alloc(all.dev);
	all.slots = mmap(NULL, attr.length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	attr.addr = all.slots;
	all.mr = all.slots != MAP_FAILED ? rdma_mr_reg(all.pd, &attr) : NULL;
	if (all.mr == NULL)
		rig_die("many clients: no memory for slots");
	for (i = 0; i < c->clients + (c->disturbed ? DISTURBERS : 0); i++) {
		all.nb++;
		connect_member(&all.member[i]);
	}
	measure(c);
	for (i = 0; i < all.nb; i++)
		hang_up(&all.member[i]);
	while (rdma_mr_dereg(all.mr) < 0)
		turn();
	(void)rdma_pd_free(all.pd);
	(void)rdma_dev_close(all.dev);
	munmap(all.slots, attr.length);
	rte_thread_unregister();
}

void
crowd_run(struct crowd *c)
{
	ends_open_server();
	pair_run(client, c, ends_serve, NULL);
	ends_close_server();
}
