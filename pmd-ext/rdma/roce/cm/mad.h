/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_MAD_H
#define ROCE_MAD_H

/**
 * @file
 * Management datagrams (MADs) of the communication manager: header, messages and the private data
 * of
 * the RDMA CM, decoded and encoded (InfiniBand Architecture Specification 1.4, 13.4.3, 12.6, annex
 * A11). The layout was checked against captures of Linux' ib_cm.
 */

#include <stdint.h>

#include "engine/wire.h"

#define ROCE_MAD_CLASS_CM  0x07
#define ROCE_RDMA_UDP_QKEY 0x01234567 /**< of RDMA_PS_UDP and multicast, from librdmacm */
/* Port spaces: a service id is one of these << 16 | port. Linux' RDMA_PS_TCP supports RC only; UC
 * is available only with RDMA_PS_IB. */
#define ROCE_PORT_SPACE_TCP  0x0106
#define ROCE_PORT_SPACE_UDP  0x0111
#define ROCE_PORT_SPACE_IB   0x013f
#define ROCE_CM_PRIVATE_REQ  92 /**< including the RDMA CM header */
#define ROCE_CM_PRIVATE_SIDR 216
#define ROCE_CMA_BYTES	     36

/** Attribute id: the type of the message. */
enum roce_cm_attr {
	ROCE_CM_REQ = 0x10,
	ROCE_CM_MRA,
	ROCE_CM_REJ,
	ROCE_CM_REP,
	ROCE_CM_RTU,
	ROCE_CM_DREQ,
	ROCE_CM_DREP,
	ROCE_CM_SIDR_REQ,
	ROCE_CM_SIDR_REP,
};

/** The message that an MRA or a REJ replies to. */
enum roce_cm_answered {
	ROCE_CM_ANSWERS_REQ,
	ROCE_CM_ANSWERS_REP,
	ROCE_CM_ANSWERS_OTHER, /**< of a REJ: none of the above, for example a time-out */
};

/** Reasons of a REJ (table 108) used here. */
enum roce_cm_reason {
	ROCE_REJ_NO_QP = 1,
	ROCE_REJ_NO_RESOURCES = 3,
	ROCE_REJ_TIMEOUT = 4,
	ROCE_REJ_UNSUPPORTED = 5,
	ROCE_REJ_INVALID_COMM_ID = 6,
	ROCE_REJ_INVALID_SERVICE_ID = 8,
	ROCE_REJ_INVALID_TRANSPORT = 9,
	ROCE_REJ_STALE_CONNECTION = 10,
	ROCE_REJ_INVALID_GID = 12,
	ROCE_REJ_INVALID_MTU = 26,
	ROCE_REJ_CONSUMER = 28,
};

/** Status of a SIDR_REP (table 120). */
enum roce_sidr_status {
	ROCE_SIDR_SUCCESS,
	ROCE_SIDR_UNSUPPORTED, /**< unsupported service id */
	ROCE_SIDR_REJECTED,
	ROCE_SIDR_NO_QP,
};

struct roce_cm_path {
	uint16_t local_lid, remote_lid; /**< RoCE: 0xffff */
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label;
	uint8_t rate, traffic_class, hop_limit;
	uint8_t sl, subnet_local;
	uint8_t ack_timeout; /**< 4.096 us x 2^n, like all time-outs here */
};

struct roce_cm_req {
	uint32_t local_id;
	uint64_t service_id, ca_guid;
	uint32_t qkey, qpn;
	uint8_t responder_resources, initiator_depth;
	uint32_t eecn, remote_eecn;
	uint8_t remote_timeout; /**< maximum time until the passive side replies */
	uint8_t transport;	/**< 0 RC, 1 UC */
	uint8_t flow_control;
	uint32_t psn;
	uint8_t local_timeout; /**< maximum time until the active side replies to a REP */
	uint8_t retry_count;
	uint16_t pkey;
	uint8_t mtu; /**< code 1 to 5: 256 to 4096 bytes */
	uint8_t rdc_exists, rnr_retry, cm_retries, srq, extended_transport;
	struct roce_cm_path primary, alternate;
	uint8_t private_data[ROCE_CM_PRIVATE_REQ];
};

struct roce_cm_mra {
	uint32_t local_id, remote_id;
	uint8_t answered; /**< enum roce_cm_answered */
	uint8_t timeout;
	uint8_t private_data[222];
};

struct roce_cm_rej {
	uint32_t local_id, remote_id;
	uint8_t answered; /**< enum roce_cm_answered */
	uint8_t info_len;
	uint16_t reason; /**< enum roce_cm_reason */
	uint8_t info[72];
	uint8_t private_data[148];
};

struct roce_cm_rep {
	uint32_t local_id, remote_id, qkey, qpn, eecn, psn;
	uint8_t responder_resources, initiator_depth;
	uint8_t ack_delay, failover, flow_control, rnr_retry, srq;
	uint64_t ca_guid;
	uint8_t private_data[196];
};

/** RTU and DREP. */
struct roce_cm_short {
	uint32_t local_id, remote_id;
	uint8_t private_data[224];
};

struct roce_cm_dreq {
	uint32_t local_id, remote_id, qpn;
	uint8_t private_data[220];
};

struct roce_sidr_req {
	uint32_t request_id;
	uint16_t pkey;
	uint64_t service_id;
	uint8_t private_data[ROCE_CM_PRIVATE_SIDR];
};

struct roce_sidr_rep {
	uint32_t request_id;
	uint8_t status; /**< enum roce_sidr_status */
	uint8_t info_len;
	uint32_t qpn;
	uint64_t service_id;
	uint32_t qkey;
	uint8_t info[72];
	uint8_t private_data[136];
};

/** A message of the CM. */
struct roce_cm_msg {
	uint16_t attr; /**< enum roce_cm_attr */
	uint16_t status;
	uint64_t tid; /**< a reply has the transaction id of its request */
	union {
		struct roce_cm_req req;
		struct roce_cm_mra mra;
		struct roce_cm_rej rej;
		struct roce_cm_rep rep;
		struct roce_cm_short rtu;
		struct roce_cm_dreq dreq;
		struct roce_cm_short drep;
		struct roce_sidr_req sidr_req;
		struct roce_sidr_rep sidr_rep;
	};
};

/**
 * Decode.
 * @return 0; -EPROTO: not a CM MAD of version 2 with method Send; -ENOTSUP: unsupported attribute
 */
int roce_cm_decode(const uint8_t mad[ROCE_MAD_BYTES], struct roce_cm_msg *msg);

/** Encode. Writes all 256 bytes. */
void roce_cm_encode(const struct roce_cm_msg *msg, uint8_t mad[ROCE_MAD_BYTES]);

/** Name of an attribute, such as "REQ", for log messages. */
const char *roce_cm_attr_name(uint16_t attr);

/** Name of a REJ reason, such as "invalid MTU", for log messages. */
const char *roce_cm_reason_name(uint16_t reason);

/** RDMA CM header, at the start of the private data of a REQ and of a SIDR_REQ. */
struct roce_cma {
	uint8_t version;    /**< 0 */
	uint8_t ip_version; /**< 4 or 6 */
	uint8_t reserved;
	uint16_t port;		  /**< of the active side */
	uint8_t src[16], dst[16]; /**< IPv4 in the last four bytes, the others 0 */
};

/** Decode. @return 0; -EPROTO: unknown version, or neither IPv4 nor IPv6 */
int roce_cma_decode(const uint8_t wire[ROCE_CMA_BYTES], struct roce_cma *cma);

void roce_cma_encode(const struct roce_cma *cma, uint8_t wire[ROCE_CMA_BYTES]);

#endif
