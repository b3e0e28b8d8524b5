/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_BUFFER_H
#define RDMA_TOOL_BUFFER_H

/**
 * @file
 * Registered memory of EAL's, page-aligned and zeroed.
 */

#include <stddef.h>
#include <stdint.h>

#include "session.h"

struct buffer {
	uint8_t *addr;
	size_t size;
	struct rdma_mr *mr;
};

#define BUFFER_ACCESS_ALL                                                               \
	(RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE | RDMA_ACCESS_REMOTE_READ | \
		RDMA_ACCESS_REMOTE_ATOMIC)

/** @param access of enum rdma_access @return 0; negative errno, said on stderr */
int buffer_create(struct session *s, struct buffer *b, size_t size, uint32_t access);

/** After the queue pairs that used it; NULL memory is fine. */
void buffer_destroy(struct session *s, struct buffer *b);

/** An entry of a scatter-gather list. */
struct rdma_sge buffer_sge(const struct buffer *b, size_t offset, uint32_t length);

#endif
