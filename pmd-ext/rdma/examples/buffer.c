/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>

#define BUFFER_ALIGN	 4096
#define DEREG_TIMEOUT_MS 2000 /* for the last acknowledgements */

int
buffer_create(struct session *s, struct buffer *b, size_t size, uint32_t access)
{
	struct rdma_mr_attr attr = {.length = size, .access = access, .gpu = -1};

	memset(b, 0, sizeof(*b));
	attr.addr = rte_zmalloc_socket("rdma", size, BUFFER_ALIGN, s->info.numa_node);
	if (!attr.addr) {
		fprintf(stderr,
			"braggline-rdma: cannot allocate a buffer of %zu bytes: give EAL more "
			"memory (-m)\n",
			size);
		return -ENOMEM;
	}
	b->mr = rdma_mr_reg(s->pd, &attr);
	if (!b->mr) {
		fprintf(stderr, "braggline-rdma: cannot register a buffer of %zu bytes: %s\n", size,
			rte_strerror(rte_errno));
		rte_free(attr.addr);
		return -rte_errno;
	}
	b->addr = attr.addr;
	b->size = size;
	return 0;
}

void
buffer_destroy(struct session *s, struct buffer *b)
{
	unsigned int ms;

	if (!b->mr)
		return;
	for (ms = 0; ms < DEREG_TIMEOUT_MS && rdma_mr_dereg(b->mr) == -EBUSY; ms++)
		session_linger(s, 1);
	if (ms == DEREG_TIMEOUT_MS)
		/* do not free it: the network could then access memory of another user */
		fprintf(stderr,
			"braggline-rdma: buffer of %zu bytes is still in use and is not freed\n",
			b->size);
	else
		rte_free(b->addr);
	memset(b, 0, sizeof(*b));
}

struct rdma_sge
buffer_sge(const struct buffer *b, size_t offset, uint32_t length)
{
	return (struct rdma_sge){
		.addr = (uintptr_t)b->addr + offset, .length = length, .lkey = rdma_mr_lkey(b->mr)};
}
