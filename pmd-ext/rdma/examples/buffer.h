/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_BUFFER_H
#define RDMA_TOOL_BUFFER_H

/**
 * @file
 * Registered EAL memory, page-aligned and zeroed.
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

/** @param access flags of enum rdma_access @return 0; negative errno, printed to stderr */
int buffer_create(struct session *s, struct buffer *b, size_t size, uint32_t access);

/** Call after the queue pairs that used it are destroyed. NULL memory is allowed. */
void buffer_destroy(struct session *s, struct buffer *b);

/** Make an entry of a scatter-gather list. */
struct rdma_sge buffer_sge(const struct buffer *b, size_t offset, uint32_t length);

#endif
