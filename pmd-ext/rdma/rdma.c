/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of rdma.h: checks that are common to all providers, reference counts, and names of
 * statuses and events.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_debug.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_string_fns.h>

#include "counter.h"
#include "rdma_provider.h"

RTE_LOG_REGISTER(rdma_logtype, braggline.rdma, NOTICE);

#define PROVIDERS_MAX 8

static const struct rdma_ops *providers[PROVIDERS_MAX];
static unsigned int nb_providers;

void
rdma_provider_register(const struct rdma_ops *ops)
{
	RTE_VERIFY(nb_providers < PROVIDERS_MAX);
	providers[nb_providers++] = ops;
}

/** Names of the providers in this build, as "roce, verbs". */
static const char *
provider_names(char *text, size_t size)
{
	size_t used = 0;
	unsigned int i;

	text[0] = '\0';
	for (i = 0; i < nb_providers && used < size; i++)
		used += snprintf(
			text + used, size - used, "%s%s", i ? ", " : "", providers[i]->provider);
	return text;
}

static void *
refuse(int error)
{
	rte_errno = error;
	return NULL;
}

/* ---- devices -------------------------------------------------------------------------------- */

struct rdma_dev *
rdma_dev_open(const char *name)
{
	const char *colon = strchr(name, ':');
	size_t length = colon ? (size_t)(colon - name) : strlen(name);
	struct rdma_dev *dev;
	char text[128];
	unsigned int i;

	for (i = 0; i < nb_providers; i++)
		if (strlen(providers[i]->provider) == length &&
			memcmp(providers[i]->provider, name, length) == 0)
			break;
	if (i == nb_providers) {
		RDMA_LOG(ERR, "device %s: unknown provider, this build has: %s", name,
			provider_names(text, sizeof(text)));
		return refuse(EINVAL);
	}
	if (strlen(name) >= RDMA_NAME_MAX) {
		RDMA_LOG(ERR, "device %s: name of %zu characters, at most %u", name, strlen(name),
			RDMA_NAME_MAX - 1);
		return refuse(EINVAL);
	}
	dev = providers[i]->dev_open(colon ? colon + 1 : "");
	if (!dev)
		return NULL;
	dev->ops = providers[i];
	strlcpy(dev->name, name, sizeof(dev->name));
	return dev;
}

int
rdma_dev_close(struct rdma_dev *dev)
{
	if (dev->nb_pds || dev->nb_cqs || dev->nb_conns) {
		RDMA_LOG(ERR,
			"device %s: closed with %u protection domains, %u completion queues "
			"and %u connections or listeners, expected none",
			dev->name, dev->nb_pds, dev->nb_cqs, dev->nb_conns);
		return -EBUSY;
	}
	return dev->ops->dev_close(dev);
}

int
rdma_dev_info_get(const struct rdma_dev *dev, struct rdma_dev_info *info)
{
	int ret;

	memset(info, 0, sizeof(*info));
	strlcpy(info->name, dev->name, sizeof(info->name));
	info->provider = dev->ops->provider;
	ret = dev->ops->dev_info_get(dev, info);
	info->max_sge = RTE_MIN(info->max_sge, RDMA_SGE_MAX);
	info->max_inline = RTE_MIN(info->max_inline, RDMA_INLINE_MAX);
	return ret;
}

unsigned int
rdma_progress(struct rdma_dev *dev, uint16_t pg)
{
	return dev->ops->progress(dev, pg);
}

void
rdma_registrations_count(struct rdma_dev *dev, uint64_t regions, uint64_t bytes, uint64_t ns)
{
	struct rdma_registrations *r = &dev->registrations;

	counter_add(&r->regions, regions);
	counter_add(&r->bytes, bytes);
	counter_add(&r->ns, ns);
}

void
rdma_registrations_get(const struct rdma_dev *dev, struct rdma_registrations *r)
{
	counters_get(r, &dev->registrations, sizeof(*r));
}

int
rdma_dev_route_check(
	const struct rdma_dev *dev, const struct sockaddr *dst, char why[RDMA_ROUTE_TEXT])
{
	return dev->ops->dev_route_check ? dev->ops->dev_route_check(dev, dst, why) : 0;
}

int
rdma_xstats_get(const struct rdma_dev *dev, struct rdma_xstat *x, unsigned int n)
{
	struct rdma_registrations r;
	const int ret = dev->ops->xstats_get(dev, x, n);

	if (ret < 0)
		return ret;
	rdma_registrations_get(dev, &r);
	const struct rdma_xstat common[] = {
		{"mr_registrations", r.regions},
		{"mr_registration_bytes", r.bytes},
		{"mr_registration_us", r.ns / 1000},
	};

	for (unsigned int i = 0; i < RTE_DIM(common) && ret + i < n; i++)
		x[ret + i] = common[i];
	return ret + RTE_DIM(common);
}

/* ---- memory --------------------------------------------------------------------------------- */

struct rdma_pd *
rdma_pd_alloc(struct rdma_dev *dev)
{
	struct rdma_pd *pd = dev->ops->pd_alloc(dev);

	if (!pd)
		return NULL;
	pd->dev = dev;
	dev->nb_pds++;
	return pd;
}

int
rdma_pd_free(struct rdma_pd *pd)
{
	struct rdma_dev *dev = pd->dev;
	int ret;

	if (pd->nb_mrs || pd->nb_qps || pd->nb_ahs) {
		RDMA_LOG(ERR,
			"device %s: protection domain freed with %u regions, %u queue pairs "
			"and %u address handles, expected none",
			dev->name, pd->nb_mrs, pd->nb_qps, pd->nb_ahs);
		return -EBUSY;
	}
	ret = dev->ops->pd_free(pd);
	if (ret == 0)
		dev->nb_pds--;
	return ret;
}

struct rdma_mr *
rdma_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr)
{
	const uint32_t writers = RDMA_ACCESS_REMOTE_WRITE | RDMA_ACCESS_REMOTE_ATOMIC;
	const uint64_t first = (uintptr_t)attr->addr;
	struct rdma_mr *mr;
	uint64_t began;

	if (attr->length == 0 || first + attr->length < first) {
		RDMA_LOG(ERR,
			"device %s: region of %" PRIu64 " bytes at %p, expected at least one "
			"byte and no address wrap",
			pd->dev->name, attr->length, attr->addr);
		return refuse(EINVAL);
	}
	if ((attr->access & writers) && !(attr->access & RDMA_ACCESS_LOCAL_WRITE)) {
		RDMA_LOG(ERR, "device %s: region at %p allows remote writes but no local writes",
			pd->dev->name, attr->addr);
		return refuse(EINVAL);
	}
	began = rte_rdtsc();
	mr = pd->dev->ops->mr_reg(pd, attr);
	if (!mr)
		return NULL;
	rdma_registrations_count(
		pd->dev, 1, attr->length, (double)(rte_rdtsc() - began) / rte_get_tsc_hz() * 1e9);
	mr->pd = pd;
	mr->attr = *attr;
	pd->nb_mrs++;
	return mr;
}

int
rdma_mr_dereg(struct rdma_mr *mr)
{
	struct rdma_pd *pd = mr->pd;
	int ret = pd->dev->ops->mr_dereg(mr);

	if (ret == 0)
		pd->nb_mrs--;
	return ret;
}

uint32_t
rdma_mr_lkey(const struct rdma_mr *mr)
{
	return mr->lkey;
}

uint32_t
rdma_mr_rkey(const struct rdma_mr *mr)
{
	return mr->rkey;
}

/* ---- completion queues ---------------------------------------------------------------------- */

struct rdma_cq *
rdma_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t pg)
{
	struct rdma_cq *cq;

	if (depth == 0) {
		RDMA_LOG(ERR, "device %s: completion queue of depth 0, expected at least 1",
			dev->name);
		return refuse(EINVAL);
	}
	cq = dev->ops->cq_create(dev, depth, pg);
	if (!cq)
		return NULL;
	cq->dev = dev;
	cq->poll_group = pg;
	cq->depth = depth;
	dev->nb_cqs++;
	return cq;
}

int
rdma_cq_destroy(struct rdma_cq *cq)
{
	struct rdma_dev *dev = cq->dev;
	int ret;

	if (cq->nb_qps) {
		RDMA_LOG(ERR, "device %s: completion queue destroyed while in use by %u queues",
			dev->name, cq->nb_qps);
		return -EBUSY;
	}
	ret = dev->ops->cq_destroy(cq);
	if (ret == 0)
		dev->nb_cqs--;
	return ret;
}

uint16_t
rdma_poll_cq(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n)
{
	return cq->dev->ops->poll_cq(cq, wc, n);
}

/* ---- queue pairs ---------------------------------------------------------------------------- */

/** Replace zeros by the defaults of rdma.h. */
static void
qp_defaults(struct rdma_qp_attr *a, const struct rdma_dev_info *info)
{
	if (!a->max_send_wr)
		a->max_send_wr = 128;
	if (!a->max_recv_wr)
		a->max_recv_wr = 128;
	if (!a->max_send_sge)
		a->max_send_sge = RTE_MIN(4, info->max_sge);
	if (!a->max_recv_sge)
		a->max_recv_sge = 1;
	if (!a->max_mtu)
		a->max_mtu = info->mtu;
	if (!a->max_rd_atom)
		a->max_rd_atom = RTE_MIN(16, info->max_rd_atom);
	if (!a->ack_timeout)
		a->ack_timeout = 14;
	if (a->retry_count == UINT8_MAX)
		a->retry_count = 7;
	if (a->rnr_retry == UINT8_MAX)
		a->rnr_retry = 7;
	if (!a->min_rnr_timer)
		a->min_rnr_timer = 12;
	if (!a->hop_limit)
		a->hop_limit = 64;
	if (!a->qkey)
		a->qkey = 0x01234567; /* RDMA_UDP_QKEY of librdmacm */
}

/** Check ranges, and log the first attribute out of range. @return 0; -EINVAL */
static int
qp_check(const struct rdma_dev *dev, const struct rdma_qp_attr *a, const struct rdma_dev_info *info)
{
	const struct {
		const char *name;
		uint64_t value, least, most;
	} range[] = {
		{"type", a->type, 0, RDMA_QP_UD},
		{"poll group", a->poll_group, 0, RTE_MAX(info->nb_poll_groups, 1) - 1},
		{"max_send_wr", a->max_send_wr, 1, info->max_wr},
		{"max_recv_wr", a->max_recv_wr, 1, info->max_wr},
		{"max_send_sge", a->max_send_sge, 1, info->max_sge},
		{"max_recv_sge", a->max_recv_sge, 1, info->max_sge},
		{"max_inline", a->max_inline, 0, info->max_inline},
		{"max_mtu", a->max_mtu, 256, info->mtu},
		{"max_rd_atom", a->max_rd_atom, 0, info->max_rd_atom},
		{"ack_timeout", a->ack_timeout, 1, 31},
		{"retry_count", a->retry_count, 0, 7},
		{"rnr_retry", a->rnr_retry, 0, 7},
		{"min_rnr_timer", a->min_rnr_timer, 1, 31},
		{"qkey", a->qkey, 1, INT32_MAX},
		{"send_cq's poll group", a->send_cq->poll_group, a->poll_group, a->poll_group},
		{"recv_cq's poll group", a->recv_cq->poll_group, a->poll_group, a->poll_group},
	};
	unsigned int i;

	for (i = 0; i < RTE_DIM(range); i++)
		if (range[i].value < range[i].least || range[i].value > range[i].most) {
			RDMA_LOG(ERR,
				"device %s: queue pair with %s %" PRIu64 ", expected %" PRIu64
				" to %" PRIu64,
				dev->name, range[i].name, range[i].value, range[i].least,
				range[i].most);
			return -EINVAL;
		}
	if (a->reference && (a->type != RDMA_QP_UC || !dev->ops->reference)) {
		RDMA_LOG(ERR,
			"device %s: queue pair with messages by reference, expected one of type UC "
			"and a device of the provider roce",
			dev->name);
		return -EINVAL;
	}
	if (a->max_mtu & (a->max_mtu - 1)) {
		RDMA_LOG(ERR, "device %s: queue pair with max_mtu %u, expected a power of two",
			dev->name, a->max_mtu);
		return -EINVAL;
	}
	return 0;
}

struct rdma_qp *
rdma_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr)
{
	struct rdma_qp_attr a = *attr;
	struct rdma_dev_info info;
	struct rdma_qp *qp;

	if (!a.send_cq || !a.recv_cq || a.send_cq->dev != pd->dev || a.recv_cq->dev != pd->dev) {
		RDMA_LOG(ERR, "device %s: queue pair needs two completion queues of this device",
			pd->dev->name);
		return refuse(EINVAL);
	}
	rdma_dev_info_get(pd->dev, &info);
	qp_defaults(&a, &info);
	if (qp_check(pd->dev, &a, &info) < 0)
		return refuse(EINVAL);
	qp = pd->dev->ops->qp_create(pd, &a);
	if (!qp)
		return NULL;
	/* the provider has a copy */
	a.reference = NULL;
	qp->pd = pd;
	qp->attr = a;
	pd->nb_qps++;
	a.send_cq->nb_qps++;
	a.recv_cq->nb_qps++;
	return qp;
}

int
rdma_qp_destroy(struct rdma_qp *qp)
{
	const struct rdma_qp_attr attr = qp->attr;
	struct rdma_pd *pd = qp->pd;
	int ret;

	if (qp->nb_conns) {
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x destroyed with %u connections or "
			"multicast groups, destroy these first",
			pd->dev->name, qp->qpn, qp->nb_conns);
		return -EBUSY;
	}
	ret = pd->dev->ops->qp_destroy(qp);
	if (ret < 0)
		return ret;
	attr.send_cq->nb_qps--;
	attr.recv_cq->nb_qps--;
	pd->nb_qps--;
	return 0;
}

int
rdma_qp_connect(struct rdma_qp *qp, const struct rdma_qp_peer *peer)
{
	if (qp->attr.type != RDMA_QP_UD && !peer) {
		RDMA_LOG(ERR, "device %s: queue pair 0x%06x connected without a peer",
			qp->pd->dev->name, qp->qpn);
		return -EINVAL;
	}
	return qp->pd->dev->ops->qp_connect(qp, peer);
}

int
rdma_qp_error(struct rdma_qp *qp)
{
	return qp->pd->dev->ops->qp_error(qp);
}

int
rdma_qp_info_get(const struct rdma_qp *qp, struct rdma_qp_info *info)
{
	memset(info, 0, sizeof(*info));
	info->qpn = qp->qpn;
	return qp->pd->dev->ops->qp_info_get(qp, info);
}

uint16_t
rdma_post_send(struct rdma_qp *qp, const struct rdma_send_wr *wr, uint16_t n)
{
	return qp->pd->dev->ops->post_send(qp, wr, n);
}

uint16_t
rdma_post_recv(struct rdma_qp *qp, const struct rdma_recv_wr *wr, uint16_t n)
{
	return qp->pd->dev->ops->post_recv(qp, wr, n);
}

/* ---- connections ---------------------------------------------------------------------------- */

static struct rdma_conn *
conn_made(struct rdma_conn *conn, struct rdma_dev *dev, struct rdma_qp *qp, void *context)
{
	if (!conn)
		return NULL;
	conn->dev = dev;
	conn->qp = qp;
	conn->context = context;
	dev->nb_conns++;
	if (qp)
		qp->nb_conns++;
	return conn;
}

struct rdma_conn *
rdma_conn_connect(struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr)
{
	static const struct rdma_conn_attr none;

	if (!attr)
		attr = &none;
	return conn_made(
		qp->pd->dev->ops->conn_connect(qp, dst, attr), qp->pd->dev, qp, attr->context);
}

struct rdma_conn *
rdma_conn_listen(struct rdma_dev *dev, enum rdma_qp_type type, uint16_t port, uint16_t backlog,
	void *context)
{
	return conn_made(dev->ops->conn_listen(dev, type, port, backlog), dev, NULL, context);
}

int
rdma_conn_accept(struct rdma_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr)
{
	static const struct rdma_conn_attr none;
	int ret;

	if (!attr)
		attr = &none;
	if (conn->qp || qp->pd->dev != conn->dev) {
		RDMA_LOG(ERR,
			"device %s: accept requires a request that is not accepted yet and a "
			"queue pair of the same device",
			conn->dev->name);
		return -EINVAL;
	}
	ret = conn->dev->ops->conn_accept(conn, qp, attr);
	if (ret < 0)
		return ret;
	conn->qp = qp;
	conn->context = attr->context;
	qp->nb_conns++;
	return 0;
}

/** Release the references of a destroyed connection. */
static void
conn_gone(struct rdma_dev *dev, struct rdma_qp *qp)
{
	dev->nb_conns--;
	if (qp)
		qp->nb_conns--;
}

int
rdma_conn_reject(struct rdma_conn *conn, const void *private_data, uint16_t private_len)
{
	struct rdma_dev *dev = conn->dev;
	int ret;

	if (conn->qp)
		return -EINVAL;
	ret = dev->ops->conn_reject(conn, private_data, private_len);
	if (ret == 0)
		conn_gone(dev, NULL);
	return ret;
}

int
rdma_conn_disconnect(struct rdma_conn *conn)
{
	if (!conn->qp)
		return -ENOTCONN;
	return conn->dev->ops->conn_disconnect(conn);
}

int
rdma_conn_destroy(struct rdma_conn *conn)
{
	struct rdma_dev *dev = conn->dev;
	struct rdma_qp *qp = conn->qp;
	int ret = dev->ops->conn_destroy(conn);

	if (ret == 0)
		conn_gone(dev, qp);
	return ret;
}

void *
rdma_conn_context(const struct rdma_conn *conn)
{
	return conn->context;
}

uint16_t
rdma_poll_cm(struct rdma_dev *dev, struct rdma_event *event, uint16_t n)
{
	uint16_t i, got = dev->ops->poll_cm(dev, event, n);

	/* A request is a new connection, created by the provider. */
	for (i = 0; i < got; i++)
		if (event[i].type == RDMA_EVENT_CONNECT_REQUEST)
			conn_made(event[i].conn, dev, NULL, event[i].listener->context);
	return got;
}

/* ---- datagrams ------------------------------------------------------------------------------ */

struct rdma_ah *
rdma_ah_create(
	struct rdma_pd *pd, const struct sockaddr *dst, uint8_t traffic_class, uint8_t hop_limit)
{
	struct rdma_ah *ah =
		pd->dev->ops->ah_create(pd, dst, traffic_class, hop_limit ? hop_limit : 64);

	if (!ah)
		return NULL;
	ah->pd = pd;
	pd->nb_ahs++;
	return ah;
}

int
rdma_ah_destroy(struct rdma_ah *ah)
{
	struct rdma_pd *pd = ah->pd;
	int ret = pd->dev->ops->ah_destroy(ah);

	if (ret == 0)
		pd->nb_ahs--;
	return ret;
}

struct rdma_conn *
rdma_multicast_join(struct rdma_qp *qp, const struct sockaddr *group, void *context)
{
	if (qp->attr.type != RDMA_QP_UD) {
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x cannot join a multicast group, expected UD",
			qp->pd->dev->name, qp->qpn);
		return refuse(EINVAL);
	}
	return conn_made(qp->pd->dev->ops->multicast_join(qp, group), qp->pd->dev, qp, context);
}

/* ---- names ---------------------------------------------------------------------------------- */

const char *
rdma_wc_status_name(enum rdma_wc_status status)
{
	static const char *const name[] = {
		[RDMA_WC_SUCCESS] = "success",
		[RDMA_WC_LOC_LEN_ERR] = "local length error",
		[RDMA_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
		[RDMA_WC_LOC_PROT_ERR] = "local protection error",
		[RDMA_WC_WR_FLUSH_ERR] = "work request flushed",
		[RDMA_WC_LOC_ACCESS_ERR] = "local access error",
		[RDMA_WC_REM_INV_REQ_ERR] = "remote invalid request",
		[RDMA_WC_REM_ACCESS_ERR] = "remote access error",
		[RDMA_WC_REM_OP_ERR] = "remote operation error",
		[RDMA_WC_RETRY_EXC_ERR] = "retries exceeded",
		[RDMA_WC_RNR_RETRY_EXC_ERR] = "receiver-not-ready retries exceeded",
		[RDMA_WC_GENERAL_ERR] = "general error",
	};

	return (unsigned int)status < RTE_DIM(name) ? name[status] : "unknown status";
}

const char *
rdma_event_name(enum rdma_event_type type)
{
	static const char *const name[] = {
		[RDMA_EVENT_CONNECT_REQUEST] = "connect request",
		[RDMA_EVENT_ESTABLISHED] = "established",
		[RDMA_EVENT_REJECTED] = "rejected",
		[RDMA_EVENT_UNREACHABLE] = "unreachable",
		[RDMA_EVENT_DISCONNECTED] = "disconnected",
		[RDMA_EVENT_TIMEWAIT_EXIT] = "time-wait exit",
		[RDMA_EVENT_MULTICAST_JOINED] = "multicast joined",
		[RDMA_EVENT_MULTICAST_ERROR] = "multicast error",
		[RDMA_EVENT_QP_ERROR] = "queue pair error",
		[RDMA_EVENT_ADDR_CONFLICT] = "address conflict",
		[RDMA_EVENT_DEVICE_REMOVED] = "device removed",
	};

	return (unsigned int)type < RTE_DIM(name) ? name[type] : "unknown event";
}

const char *
rdma_address_text(const struct sockaddr *addr, char text[RDMA_ADDRESS_LEN])
{
	const void *ip = addr->sa_family == AF_INET
		? (const void *)&((const struct sockaddr_in *)addr)->sin_addr
		: (const void *)&((const struct sockaddr_in6 *)addr)->sin6_addr;

	if (inet_ntop(addr->sa_family, ip, text, RDMA_ADDRESS_LEN) == NULL)
		snprintf(text, RDMA_ADDRESS_LEN, "no IP address");
	return text;
}
