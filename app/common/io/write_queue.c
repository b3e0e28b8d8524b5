/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <liburing.h>

#include "io/write_queue.h"

#define SUBMIT_TRIES 8 /* enough for a signal or a short lack of kernel memory */

/* A write, or a sync (nb == 0). */
struct request {
	const struct iovec *iov; /* remaining parts */
	unsigned int nb;
	uint64_t offset;
	uint64_t size; /* bytes of a write */
	uint64_t tag;
	bool busy;
	struct iovec rest[ARROW_IO_VECTORS]; /* copy of iov, once it differs from the caller's */
};

struct write_queue {
	int fd;
	bool refused_direct;
	bool has_ring;
	bool submits; /* requests are submitted to the ring */
	struct io_uring ring;
	unsigned int depth;
	unsigned int pending; /* requests in the ring */
	/* requests that were completed by system calls, until they are reaped */
	struct arrow_io_done ended[ARROW_IO_DEPTH_MAX + 1];
	unsigned int nb_ended;
	struct request request[];
};

int
write_queue_open(struct write_queue **queue, int fd, unsigned int depth)
{
	struct write_queue *q;

	if (depth < 1 || depth > ARROW_IO_DEPTH_MAX)
		return -EINVAL;
	q = calloc(1, sizeof(*q) + (depth + 1) * sizeof(q->request[0]));
	if (q == NULL)
		return -ENOMEM;
	q->fd = fd;
	q->depth = depth;
	*queue = q;
	return 0;
}

int
write_queue_use_ring(struct write_queue *q)
{
	const int ret = io_uring_queue_init(q->depth + 1, &q->ring, 0);

	q->has_ring = q->submits = ret == 0;
	return ret;
}

bool
write_queue_refused_direct(const struct write_queue *q)
{
	return q->refused_direct;
}

/* Record `written` bytes of a request. @return true: the request is complete */
static bool
request_advance(struct request *r, size_t written)
{
	if (r->iov != r->rest)
		memcpy(r->rest, r->iov, r->nb * sizeof(*r->iov));
	r->iov = r->rest;
	r->offset += written;
	while (r->nb > 0 && written >= r->iov->iov_len) {
		written -= r->iov->iov_len;
		r->iov++;
		r->nb--;
	}
	if (r->nb == 0)
		return true;
	memmove(r->rest, r->iov, r->nb * sizeof(*r->iov));
	r->iov = r->rest;
	r->rest[0].iov_base = (uint8_t *)r->rest[0].iov_base + written;
	r->rest[0].iov_len -= written;
	return false;
}

/* @return false: it was set so, or cannot be */
static bool
set_direct(struct write_queue *q, bool direct)
{
	const int flags = fcntl(q->fd, F_GETFL), other = flags ^ O_DIRECT;

	return flags >= 0 && ((other & O_DIRECT) != 0) == direct &&
		fcntl(q->fd, F_SETFL, other) == 0;
}

/* Some file systems accept O_DIRECT and then refuse the writes. @return true: retry without it */
static bool
fall_back_to_buffered(struct write_queue *q)
{
	if (!set_direct(q, false))
		return false;
	q->refused_direct = true;
	return true;
}

/* Perform a request by system calls. @return 0; -errno */
static int
perform(struct write_queue *q, struct request *r)
{
	bool suspended = false;
	ssize_t n;
	int error;

	if (r->nb == 0)
		return fdatasync(q->fd) < 0 ? -errno : 0;
	do {
		/* O_DIRECT is for whole blocks, and a short write may end within one */
		if (r->offset % ARROW_BLOCK != 0 && !suspended)
			suspended = set_direct(q, false);
		n = pwritev(q->fd, r->iov, (int)r->nb, (off_t)r->offset);
		error = n < 0 ? errno : n == 0 ? EIO : 0;
		if (n > 0 && request_advance(r, n))
			break;
	} while (n > 0 || error == EINTR || (error == EINVAL && fall_back_to_buffered(q)));
	if (suspended)
		(void)set_direct(q, true);
	return -error;
}

/* @return false: the ring does not accept the request */
static bool
submit(struct write_queue *q, struct request *r)
{
	struct io_uring_sqe *sqe = q->submits ? io_uring_get_sqe(&q->ring) : NULL;

	if (sqe == NULL)
		return false;
	if (r->nb > 0)
		io_uring_prep_writev(sqe, q->fd, r->iov, r->nb, r->offset);
	else
		io_uring_prep_fsync(sqe, q->fd, IORING_FSYNC_DATASYNC);
	io_uring_sqe_set_data(sqe, r);
	for (unsigned int i = 0; i < SUBMIT_TRIES; i++)
		if (io_uring_submit(&q->ring) == 1)
			return true;
	/* the entry stays in the ring, so no further submission is possible */
	q->submits = false;
	return false;
}

static int
begin(struct write_queue *q, const struct iovec *iov, unsigned int nb, uint64_t offset,
	uint64_t tag)
{
	struct request *r = q->request;

	while (r < q->request + q->depth + 1 && r->busy)
		r++;
	if (r == q->request + q->depth + 1 || q->pending + q->nb_ended > q->depth ||
		nb > ARROW_IO_VECTORS)
		return -EINVAL;
	r->iov = iov;
	r->nb = nb;
	r->offset = offset;
	r->tag = tag;
	r->size = 0;
	for (unsigned int i = 0; i < nb; i++)
		r->size += iov[i].iov_len;
	if (submit(q, r)) {
		r->busy = true;
		q->pending++;
	} else {
		q->ended[q->nb_ended++] = (struct arrow_io_done){tag, perform(q, r)};
	}
	return 0;
}

int
write_queue_write(struct write_queue *q, const struct iovec *iov, unsigned int nb, uint64_t offset,
	uint64_t tag)
{
	return nb == 0 ? -EINVAL : begin(q, iov, nb, offset, tag);
}

int
write_queue_sync(struct write_queue *q, uint64_t tag)
{
	return begin(q, NULL, 0, 0, tag);
}

/* @return true: a request that failed in the ring may succeed by a system call */
static bool
may_repeat(struct write_queue *q, const struct request *r, int error)
{
	switch (error) {
	case -EINTR:
	case -EAGAIN:
	case -ECANCELED:
		return true;
	case -EINVAL:
		/* several writes in flight may be refused */
		return r->nb > 0 && (q->refused_direct || fall_back_to_buffered(q));
	default:
		return false;
	}
}

/* Completes a request that has left the ring. @return 0; -errno */
static int
complete(struct write_queue *q, struct request *r, int result)
{
	if (result >= 0 && (uint64_t)result == r->size)
		return 0;
	if (result == 0)
		return -EIO;
	if (result < 0 && !may_repeat(q, r, result))
		return result;
	if (result > 0)
		(void)request_advance(r, result);
	return perform(q, r);
}

int
write_queue_reap(struct write_queue *q, bool wait, struct arrow_io_done *done)
{
	struct io_uring_cqe *cqe;
	struct request *r;
	int ret;

	if (q->nb_ended > 0) {
		*done = q->ended[0];
		q->nb_ended--;
		memmove(q->ended, q->ended + 1, q->nb_ended * sizeof(q->ended[0]));
		return 1;
	}
	if (q->pending == 0)
		return 0;
	do
		ret = wait ? io_uring_wait_cqe(&q->ring, &cqe) : io_uring_peek_cqe(&q->ring, &cqe);
	while (ret == -EINTR); /* of a signal */
	if (ret < 0)
		return ret == -EAGAIN && !wait ? 0 : ret;
	r = io_uring_cqe_get_data(cqe);
	ret = cqe->res;
	io_uring_cqe_seen(&q->ring, cqe);
	r->busy = false;
	q->pending--;
	*done = (struct arrow_io_done){r->tag, complete(q, r, ret)};
	return 1;
}

void
write_queue_close(struct write_queue *q)
{
	if (q->has_ring)
		io_uring_queue_exit(&q->ring);
	free(q);
}
