/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/cufile.h"
#include "io/cufile_io.h"
#include "io/direct_io.h"
#include "io/slice_pool.h"

/* A write, or a sync (nb == 0). */
struct request {
	struct slice_job job;
	struct cufile_file *file;
	struct request *next; /* next completed request */
	const struct iovec *iov;
	unsigned int nb;
	uint64_t offset;
	uint64_t tag;
	int error;
	bool busy;
};

struct cufile_file {
	void *disk; /* handle of direct_io */
	int fd;
	void *handle; /* handle of cuFile */
	struct arrow_io_info info;
	pthread_mutex_t lock; /* protects the members below, except `busy`, which is the owner's */
	pthread_cond_t ended;
	struct request *first; /* completed requests */
	struct request **last;
	unsigned int pending;
	unsigned int depth;
	struct request request[];
};

static struct cufile *library;
static struct slice_pool *pool;

static int
enter(void *arg)
{
	return cufile_enter(arg);
}

static void
leave(void *arg)
{
	cufile_leave(arg);
}

int
cufile_io_start(struct cufile *cufile, unsigned int threads)
{
	const struct slice_pool_config config = {threads, enter, leave, cufile};

	library = cufile;
	return slice_pool_open(&pool, &config);
}

void
cufile_io_stop(void)
{
	slice_pool_close(pool);
	pool = NULL;
	library = NULL;
}

/* ---- threads --------------------------------------------------------------------------------- */

static int
write_part(const struct cufile_file *f, const uint8_t *from, uint64_t size, uint64_t offset)
{
	const bool of_gpu = cufile_memory_has(library, from);
	ssize_t n;

	for (; size > 0; size -= n, from += n, offset += n) {
		n = of_gpu ? cufile_write(library, f->handle, from, size, offset)
			   : pwrite(f->fd, from, size, (off_t)offset);
		if (n < 0 && !of_gpu)
			n = -errno;
		if (n == -EINTR)
			n = 0;
		else if (n <= 0)
			return n < 0 ? (int)n : -EIO;
	}
	return 0;
}

static void
run_request(struct slice_job *job)
{
	struct request *r = (struct request *)job;
	struct cufile_file *f = r->file;
	uint64_t at = r->offset;
	unsigned int i;

	r->error = 0;
	if (r->nb == 0 && fdatasync(f->fd) < 0)
		r->error = -errno;
	for (i = 0; i < r->nb && r->error == 0; at += r->iov[i++].iov_len)
		r->error = write_part(f, r->iov[i].iov_base, r->iov[i].iov_len, at);
	pthread_mutex_lock(&f->lock);
	r->next = NULL;
	*f->last = r;
	f->last = &r->next;
	pthread_cond_signal(&f->ended);
	pthread_mutex_unlock(&f->lock);
}

/* ---- operations ------------------------------------------------------------------------------ */

static int
cufile_io_open(void **handle, const struct arrow_io_open *how)
{
	struct arrow_io_open plain = *how;
	const struct cufile_info *c;
	struct cufile_file *f;
	unsigned int i;
	int ret;

	if (how->depth < 1 || how->depth > ARROW_IO_DEPTH_MAX)
		return -EINVAL;
	f = calloc(1, sizeof(*f) + (how->depth + 1) * sizeof(f->request[0]));
	if (f == NULL)
		return -ENOMEM;
	/* without io_uring: the threads keep several writes in flight */
	if (plain.mode == ARROW_IO_AUTO || plain.mode > ARROW_IO_DIRECT)
		plain.mode = ARROW_IO_DIRECT;
	ret = direct_io.open(&f->disk, &plain);
	if (ret < 0)
		goto fail;
	f->fd = direct_io_fd(f->disk);
	ret = cufile_attach(library, f->fd, &f->handle);
	if (ret < 0) {
		(void)direct_io.close(f->disk);
		if (!how->existing)
			(void)direct_io.remove(how->path);
		goto fail;
	}
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->ended, NULL);
	f->last = &f->first;
	f->depth = how->depth;
	for (i = 0; i < f->depth + 1; i++)
		f->request[i] = (struct request){.job.run = run_request, .file = f};
	c = cufile_info_get(library);
	f->info = *direct_io.info(f->disk);
	f->info.mode = cufile_mode_is_direct(c->mode) ? ARROW_IO_GPUDIRECT : ARROW_IO_CUFILE;
	snprintf(f->info.why, sizeof(f->info.why), "%s", cufile_mode_name(c->mode));
	*handle = f;
	return 0;

fail:
	free(f);
	return ret;
}

static const struct arrow_io_info *
cufile_io_info(void *handle)
{
	return &((const struct cufile_file *)handle)->info;
}

static int
begin(struct cufile_file *f, const struct iovec *iov, unsigned int nb, uint64_t offset,
	uint64_t tag)
{
	struct request *r = f->request;

	while (r < f->request + f->depth + 1 && r->busy)
		r++;
	if (r == f->request + f->depth + 1 || nb > ARROW_IO_VECTORS)
		return -EINVAL;
	r->iov = iov;
	r->nb = nb;
	r->offset = offset;
	r->tag = tag;
	r->busy = true;
	f->pending++;
	slice_pool_submit(pool, &r->job);
	return 0;
}

static int
cufile_io_write(
	void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset, uint64_t tag)
{
	return nb == 0 ? -EINVAL : begin(handle, iov, nb, offset, tag);
}

static int
cufile_io_sync(void *handle, uint64_t tag)
{
	return begin(handle, NULL, 0, 0, tag);
}

static int
cufile_io_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	struct cufile_file *f = handle;
	struct request *r;

	if (f->pending == 0)
		return 0;
	pthread_mutex_lock(&f->lock);
	while (f->first == NULL && wait)
		pthread_cond_wait(&f->ended, &f->lock);
	r = f->first;
	if (r != NULL) {
		f->first = r->next;
		if (f->first == NULL)
			f->last = &f->first;
	}
	pthread_mutex_unlock(&f->lock);
	if (r == NULL)
		return 0;
	*done = (struct arrow_io_done){r->tag, r->error};
	r->busy = false;
	f->pending--;
	return 1;
}

static int
cufile_io_allocate(void *handle, uint64_t size)
{
	return direct_io.allocate(((const struct cufile_file *)handle)->disk, size);
}

static int
cufile_io_truncate(void *handle, uint64_t size)
{
	return direct_io.truncate(((const struct cufile_file *)handle)->disk, size);
}

static int
cufile_io_map(void *handle, const uint8_t **data, uint64_t *size)
{
	return direct_io.map(((const struct cufile_file *)handle)->disk, data, size);
}

static int
cufile_io_size(void *handle, uint64_t *size, uint64_t *allocated)
{
	return direct_io.size(((const struct cufile_file *)handle)->disk, size, allocated);
}

static int64_t
cufile_io_read(void *handle, void *data, uint64_t size, uint64_t offset)
{
	return direct_io.read(((const struct cufile_file *)handle)->disk, data, size, offset);
}

static int
cufile_io_close(void *handle)
{
	struct cufile_file *f = handle;
	int ret;

	cufile_detach(library, f->handle);
	ret = direct_io.close(f->disk);
	pthread_cond_destroy(&f->ended);
	pthread_mutex_destroy(&f->lock);
	free(f);
	return ret;
}

static int
cufile_io_rename(const char *from, const char *to)
{
	return direct_io.rename(from, to);
}

static int
cufile_io_remove(const char *path)
{
	return direct_io.remove(path);
}

static int
cufile_io_sync_dir(const char *path)
{
	return direct_io.sync_dir(path);
}

const struct arrow_io_ops cufile_io = {
	.open = cufile_io_open,
	.info = cufile_io_info,
	.write = cufile_io_write,
	.sync = cufile_io_sync,
	.reap = cufile_io_reap,
	.allocate = cufile_io_allocate,
	.truncate = cufile_io_truncate,
	.map = cufile_io_map,
	.size = cufile_io_size,
	.read = cufile_io_read,
	.close = cufile_io_close,
	.rename = cufile_io_rename,
	.remove = cufile_io_remove,
	.sync_dir = cufile_io_sync_dir,
};
