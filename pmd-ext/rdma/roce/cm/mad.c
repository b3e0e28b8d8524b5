/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include <rte_common.h>
#include <rte_debug.h>

#include "cm/field.h"
#include "cm/mad.h"

#define MAD_HEADER 24

/** The header of every MAD (13.4.3). */
struct mad_header {
	uint8_t base_version, class, class_version, method;
	uint16_t status;
	uint64_t tid;
	uint16_t attr;
};

#define F(member, byte, bit, bits) ROCE_FIELD(T, member, byte, bit, bits)
#define B(member, byte)		   ROCE_FIELD_BYTES(T, member, byte)

#define T struct mad_header
static const struct roce_field header_fields[] = {
	F(base_version, 0, 0, 8),
	F(class, 1, 0, 8),
	F(class_version, 2, 0, 8),
	F(method, 3, 0, 8),
	F(status, 4, 0, 16),
	F(tid, 8, 0, 64),
	F(attr, 16, 0, 16),
};
#undef T

/* a REQ contains two paths */
#define PATH(path, byte)                                                                        \
	F(path.local_lid, byte, 0, 16), F(path.remote_lid, (byte) + 2, 0, 16),                  \
		B(path.local_gid, (byte) + 4), B(path.remote_gid, (byte) + 20),                 \
		F(path.flow_label, (byte) + 36, 0, 20), F(path.rate, (byte) + 39, 2, 6),        \
		F(path.traffic_class, (byte) + 40, 0, 8), F(path.hop_limit, (byte) + 41, 0, 8), \
		F(path.sl, (byte) + 42, 0, 4), F(path.subnet_local, (byte) + 42, 4, 1),         \
		F(path.ack_timeout, (byte) + 43, 0, 5)

#define T struct roce_cm_req
static const struct roce_field req_fields[] = {
	F(local_id, 0, 0, 32),
	F(service_id, 8, 0, 64),
	F(ca_guid, 16, 0, 64),
	F(qkey, 28, 0, 32),
	F(qpn, 32, 0, 24),
	F(responder_resources, 35, 0, 8),
	F(eecn, 36, 0, 24),
	F(initiator_depth, 39, 0, 8),
	F(remote_eecn, 40, 0, 24),
	F(remote_timeout, 43, 0, 5),
	F(transport, 43, 5, 2),
	F(flow_control, 43, 7, 1),
	F(psn, 44, 0, 24),
	F(local_timeout, 47, 0, 5),
	F(retry_count, 47, 5, 3),
	F(pkey, 48, 0, 16),
	F(mtu, 50, 0, 4),
	F(rdc_exists, 50, 4, 1),
	F(rnr_retry, 50, 5, 3),
	F(cm_retries, 51, 0, 4),
	F(srq, 51, 4, 1),
	F(extended_transport, 51, 5, 3),
	PATH(primary, 52),
	PATH(alternate, 96),
	B(private_data, 140),
};
#undef T

#define T struct roce_cm_mra
static const struct roce_field mra_fields[] = {
	F(local_id, 0, 0, 32),
	F(remote_id, 4, 0, 32),
	F(answered, 8, 0, 2),
	F(timeout, 9, 0, 5),
	B(private_data, 10),
};
#undef T

#define T struct roce_cm_rej
static const struct roce_field rej_fields[] = {
	F(local_id, 0, 0, 32),
	F(remote_id, 4, 0, 32),
	F(answered, 8, 0, 2),
	F(info_len, 9, 0, 7),
	F(reason, 10, 0, 16),
	B(info, 12),
	B(private_data, 84),
};
#undef T

#define T struct roce_cm_rep
static const struct roce_field rep_fields[] = {
	F(local_id, 0, 0, 32),
	F(remote_id, 4, 0, 32),
	F(qkey, 8, 0, 32),
	F(qpn, 12, 0, 24),
	F(eecn, 16, 0, 24),
	F(psn, 20, 0, 24),
	F(responder_resources, 24, 0, 8),
	F(initiator_depth, 25, 0, 8),
	F(ack_delay, 26, 0, 5),
	F(failover, 26, 5, 2),
	F(flow_control, 26, 7, 1),
	F(rnr_retry, 27, 0, 3),
	F(srq, 27, 3, 1),
	F(ca_guid, 28, 0, 64),
	B(private_data, 36),
};
#undef T

#define T struct roce_cm_short
static const struct roce_field short_fields[] = {
	F(local_id, 0, 0, 32),
	F(remote_id, 4, 0, 32),
	B(private_data, 8),
};
#undef T

#define T struct roce_cm_dreq
static const struct roce_field dreq_fields[] = {
	F(local_id, 0, 0, 32),
	F(remote_id, 4, 0, 32),
	F(qpn, 8, 0, 24),
	B(private_data, 12),
};
#undef T

#define T struct roce_sidr_req
static const struct roce_field sidr_req_fields[] = {
	F(request_id, 0, 0, 32),
	F(pkey, 4, 0, 16),
	F(service_id, 8, 0, 64),
	B(private_data, 16),
};
#undef T

#define T struct roce_sidr_rep
static const struct roce_field sidr_rep_fields[] = {
	F(request_id, 0, 0, 32),
	F(status, 4, 0, 8),
	F(info_len, 5, 0, 8),
	F(qpn, 8, 0, 24),
	F(service_id, 12, 0, 64),
	F(qkey, 20, 0, 32),
	B(info, 24),
	B(private_data, 96),
};
#undef T

#define T struct roce_cma
static const struct roce_field cma_fields[] = {
	F(version, 0, 0, 8),
	F(ip_version, 1, 0, 4),
	F(reserved, 1, 4, 4),
	F(port, 2, 0, 16),
	B(src, 4),
	B(dst, 20),
};
#undef T

/* indexed by attribute, starting at ROCE_CM_REQ */
static const struct {
	const char *name;
	const struct roce_field *field;
	unsigned int nb_fields;
} messages[] = {
	{"REQ", req_fields, RTE_DIM(req_fields)},
	{"MRA", mra_fields, RTE_DIM(mra_fields)},
	{"REJ", rej_fields, RTE_DIM(rej_fields)},
	{"REP", rep_fields, RTE_DIM(rep_fields)},
	{"RTU", short_fields, RTE_DIM(short_fields)},
	{"DREQ", dreq_fields, RTE_DIM(dreq_fields)},
	{"DREP", short_fields, RTE_DIM(short_fields)},
	{"SIDR_REQ", sidr_req_fields, RTE_DIM(sidr_req_fields)},
	{"SIDR_REP", sidr_rep_fields, RTE_DIM(sidr_rep_fields)},
};

#define METHOD_SEND 0x03

int
roce_cm_decode(const uint8_t mad[ROCE_MAD_BYTES], struct roce_cm_msg *msg)
{
	struct mad_header h;
	unsigned int at;

	roce_fields_get(header_fields, RTE_DIM(header_fields), mad, &h);
	if (h.base_version != 1 || h.class != ROCE_MAD_CLASS_CM || h.class_version != 2 ||
		h.method != METHOD_SEND)
		return -EPROTO;
	at = h.attr - ROCE_CM_REQ;
	if (at >= RTE_DIM(messages))
		return -ENOTSUP;
	msg->attr = h.attr;
	msg->status = h.status;
	msg->tid = h.tid;
	roce_fields_get(messages[at].field, messages[at].nb_fields, mad + MAD_HEADER, &msg->req);
	return 0;
}

void
roce_cm_encode(const struct roce_cm_msg *msg, uint8_t mad[ROCE_MAD_BYTES])
{
	const struct mad_header h = {
		.base_version = 1,
		.class = ROCE_MAD_CLASS_CM,
		.class_version = 2,
		.method = METHOD_SEND,
		.status = msg->status,
		.tid = msg->tid,
		.attr = msg->attr,
	};
	const unsigned int at = msg->attr - ROCE_CM_REQ;

	RTE_VERIFY(at < RTE_DIM(messages));
	memset(mad, 0, ROCE_MAD_BYTES);
	roce_fields_put(header_fields, RTE_DIM(header_fields), &h, mad);
	roce_fields_put(messages[at].field, messages[at].nb_fields, &msg->req, mad + MAD_HEADER);
}

const char *
roce_cm_attr_name(uint16_t attr)
{
	const unsigned int at = attr - ROCE_CM_REQ;

	return at < RTE_DIM(messages) ? messages[at].name : "unknown message";
}

const char *
roce_cm_reason_name(uint16_t reason)
{
	switch (reason) {
	case ROCE_REJ_NO_QP:
		return "no queue pair";
	case ROCE_REJ_NO_RESOURCES:
		return "no resources";
	case ROCE_REJ_TIMEOUT:
		return "time-out";
	case ROCE_REJ_UNSUPPORTED:
		return "unsupported request";
	case ROCE_REJ_INVALID_COMM_ID:
		return "invalid communication id";
	case ROCE_REJ_INVALID_SERVICE_ID:
		return "no listener";
	case ROCE_REJ_INVALID_TRANSPORT:
		return "invalid transport";
	case ROCE_REJ_STALE_CONNECTION:
		return "stale connection";
	case ROCE_REJ_INVALID_GID:
		return "invalid GID";
	case ROCE_REJ_INVALID_MTU:
		return "invalid MTU";
	case ROCE_REJ_CONSUMER:
		return "by the consumer";
	}
	return "unknown reason";
}

int
roce_cma_decode(const uint8_t wire[ROCE_CMA_BYTES], struct roce_cma *cma)
{
	roce_fields_get(cma_fields, RTE_DIM(cma_fields), wire, cma);
	return cma->version != 0 || (cma->ip_version != 4 && cma->ip_version != 6) ? -EPROTO : 0;
}

void
roce_cma_encode(const struct roce_cma *cma, uint8_t wire[ROCE_CMA_BYTES])
{
	roce_fields_put(cma_fields, RTE_DIM(cma_fields), cma, wire);
}
