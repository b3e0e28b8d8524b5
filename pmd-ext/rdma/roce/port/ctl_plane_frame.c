/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds UD frames for the control plane: BTH, DETH, payload and ICRC. */
#include "roce.h"
#include "engine/icrc.h"

struct rte_mbuf *
roce_control_ud(struct roce_dev *dev, const struct roce_path *path, uint32_t qpn, uint32_t src_qpn,
	uint32_t qkey, uint32_t psn, const void *payload, uint16_t length)
{
	const uint16_t headers = sizeof(struct roce_bth) + sizeof(struct roce_deth);
	struct rte_mbuf *m = rte_pktmbuf_alloc(dev->pool);
	struct roce_deth *deth;
	struct roce_bth *bth;
	uint8_t *frame;
	uint32_t crc;

	if (!m)
		return NULL;
	frame = (uint8_t *)rte_pktmbuf_append(m, path->length + headers + length + ROCE_ICRC_BYTES);
	if (!frame || (length & 3)) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	memcpy(frame, path->header, path->length);
	roce_path_finish(path, frame, headers + length + ROCE_ICRC_BYTES);
	bth = (struct roce_bth *)(frame + path->length);
	memset(bth, 0, headers);
	bth->opcode = ROCE_UD + ROCE_SEND_ONLY;
	bth->pkey = RTE_BE16(ROCE_PKEY);
	roce_put24(bth->qpn, qpn);
	roce_put24(bth->psn, psn);
	deth = (struct roce_deth *)(bth + 1);
	deth->qkey = rte_cpu_to_be_32(qkey);
	roce_put24(deth->qpn, src_qpn);
	memcpy(deth + 1, payload, length);
	crc = roce_icrc_headers(
		frame + path->l2_len, path->l3_len, path->length - path->l2_len + headers);
	crc = rte_cpu_to_le_32(roce_icrc_bytes(crc, payload, length));
	memcpy(frame + path->length + headers + length, &crc, sizeof(crc));
	return m;
}
