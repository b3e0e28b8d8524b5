/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults of io_uring. A test links with `ring_faults` of meson.build, and defines ring_write().
 */
#ifndef RING_FAULTS_H
#define RING_FAULTS_H

#include <stdbool.h>
#include <sys/uio.h>

#include <liburing.h>

#define RING_FIRST_HALF 1

/*
 * A write that is submitted. @return 0: it is made; RING_FIRST_HALF: only half of its first part is
 * written; -errno: nothing is written, and it ends with this error
 */
static int ring_write(int fd, const struct iovec *part, unsigned int nb);

static int ring_refusal;   /* errno of a ring that is not permitted; 0: it is */
static int ring_rejection; /* errno of all submissions; 0: none */
static bool ring_is_held;  /* nothing is written before the caller waits for a completion */
static unsigned int ring_submissions;

int __real_io_uring_queue_init(unsigned int entries, struct io_uring *ring, unsigned int flags);
int __wrap_io_uring_queue_init(unsigned int entries, struct io_uring *ring, unsigned int flags);
int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __real___io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned int submit,
	unsigned int wait_nr, sigset_t *mask);
int __wrap___io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned int submit,
	unsigned int wait_nr, sigset_t *mask);

int
__wrap_io_uring_queue_init(unsigned int entries, struct io_uring *ring, unsigned int flags)
{
	return ring_refusal != 0 ? -ring_refusal : __real_io_uring_queue_init(entries, ring, flags);
}

/* An operation without effect ends at once. Then its result is changed. */
static int
ring_fail(struct io_uring *ring, struct io_uring_sqe *sqe, int result)
{
	const uint64_t tag = sqe->user_data;
	struct io_uring_cqe *cqe;
	unsigned int head;
	int ret;

	io_uring_prep_nop(sqe);
	sqe->user_data = tag;
	ret = __real_io_uring_submit(ring);
	io_uring_for_each_cqe(ring, head, cqe) if (cqe->user_data == tag) cqe->res = result;
	return ret;
}

int
__wrap_io_uring_submit(struct io_uring *ring)
{
	struct io_uring_sqe *sqe = &ring->sq.sqes[(ring->sq.sqe_tail - 1) & *ring->sq.kring_mask];
	const uint64_t tag = sqe->user_data;
	const struct iovec *part = (const struct iovec *)(uintptr_t)sqe->addr;
	int fault;

	ring_submissions++;
	if (ring_rejection != 0)
		return -ring_rejection;
	fault = sqe->opcode == IORING_OP_WRITEV ? ring_write(sqe->fd, part, sqe->len) : 0;
	if (fault < 0)
		return ring_fail(ring, sqe, fault);
	if (fault == RING_FIRST_HALF) {
		io_uring_prep_write(
			sqe, sqe->fd, part->iov_base, (part->iov_len + 1) / 2, sqe->off);
		sqe->user_data = tag;
	}
	return ring_is_held ? 1 : __real_io_uring_submit(ring);
}

int
__wrap___io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned int submit,
	unsigned int wait_nr, sigset_t *mask)
{
	if (ring_is_held && wait_nr > 0)
		(void)__real_io_uring_submit(ring);
	return __real___io_uring_get_cqe(ring, cqe, submit, wait_nr, mask);
}

#endif /* RING_FAULTS_H */
