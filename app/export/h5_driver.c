/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5_driver.h"
#include "io/direct_io.h"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#define PAGE	    UINT64_C(4096) /* alignment of O_DIRECT, as of Arrow files */
#define BLOCK	    (UINT64_C(4) << 20)
#define BLOCKS	    3			 /* one is filled, and two are written or wait */
#define STREAM_MIN  (64 << 10)		 /* bytes of a write that is collected */
#define ROOM	    (UINT64_C(64) << 20) /* that is allocated in the file at a time */
#define ADDRESS_MAX ((haddr_t)INT64_MAX)

/* A block of the file, which begins at a multiple of PAGE. */
struct block {
	uint8_t *data;
	uint64_t at, size;
};

struct file {
	H5FD_t common; /* HDF5's part, which is first */
	int fd;
	int direct; /* the same file with O_DIRECT; -1: not possible */
	haddr_t eoa, eof;
	uint64_t allocated; /* bytes of the file; UINT64_MAX: not possible */
	uint8_t *memory;    /* of the blocks */
	/* ring: the owner fills number `filled`, the thread writes those before it */
	struct block block[BLOCKS];
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* with the lock, if there is a thread */
	uint64_t filled, written;
	int error; /* the first one of the thread; 0: none */
	bool stop;
};

static hid_t driver = H5I_INVALID_HID;

static struct file *
file_of(H5FD_t *common)
{
	return (struct file *)common;
}

static const struct file *
const_file_of(const H5FD_t *common)
{
	return (const struct file *)common;
}

/* Gives HDF5 the reason of an error, in the form of its own driver. @return -1 */
static herr_t
fail(const char *what, int error)
{
	(void)H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_IO,
		H5E_WRITEERROR, "%s: error message = '%s'", what, strerror(error));
	return -1;
}

/* @return 0; errno */
static int
write_whole(int fd, const uint8_t *data, uint64_t size, uint64_t at)
{
	ssize_t n;

	while (size > 0) {
		n = pwrite(fd, data, size, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		data += n;
		at += n;
		size -= n;
	}
	return 0;
}

/* @return 0; errno */
static int
write_block(const struct file *f, const struct block *b)
{
	int ret = write_whole(f->direct, b->data, b->size, b->at);

	/* some file systems accept O_DIRECT and then refuse the writes */
	return ret == EINVAL ? write_whole(f->fd, b->data, b->size, b->at) : ret;
}

static void *
write_blocks(void *arg)
{
	struct file *f = arg;
	struct block b;
	int ret;

	pthread_mutex_lock(&f->lock);
	while (!f->stop || f->written < f->filled) {
		if (f->written == f->filled) {
			pthread_cond_wait(&f->changed, &f->lock);
			continue;
		}
		b = f->block[f->written % BLOCKS];
		ret = f->error;
		pthread_mutex_unlock(&f->lock);
		if (ret == 0)
			ret = write_block(f, &b);
		pthread_mutex_lock(&f->lock);
		f->error = ret;
		f->written++;
		pthread_cond_broadcast(&f->changed);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

/* Makes the blocks and the thread. @return false: write without them */
static bool
begin(struct file *f)
{
	const uint64_t huge = UINT64_C(2) << 20;
	sigset_t all, before;
	uint8_t *data;

	if (f->direct < 0 || f->has_thread)
		return f->direct >= 0;
	data = mmap(NULL, BLOCKS * BLOCK + huge, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data != MAP_FAILED) {
		f->memory = data;
		data += (huge - (uintptr_t)data % huge) % huge;
		(void)madvise(data, BLOCKS * BLOCK, MADV_HUGEPAGE);
		for (unsigned int i = 0; i < BLOCKS; i++)
			f->block[i].data = data + i * BLOCK;
		/* a signal interrupts the waits of another thread */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		f->has_thread = pthread_create(&f->thread, NULL, write_blocks, f) == 0;
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (!f->has_thread) {
		close(f->direct);
		f->direct = -1;
	}
	return f->has_thread;
}

/* Block that is filled. Only the owner changes `filled`. */
static struct block *
current(struct file *f)
{
	return &f->block[f->filled % BLOCKS];
}

/* Hands the current block over, and waits for an empty one. @return 0; errno */
static int
hand_over(struct file *f)
{
	const struct block *b = current(f);
	const uint64_t next = b->at + b->size;
	int ret;

	pthread_mutex_lock(&f->lock);
	f->filled++;
	pthread_cond_broadcast(&f->changed);
	while (f->filled - f->written == BLOCKS)
		pthread_cond_wait(&f->changed, &f->lock);
	ret = f->error;
	pthread_mutex_unlock(&f->lock);
	current(f)->at = next;
	current(f)->size = 0;
	return ret;
}

/*
 * Keeps an error, so that all later writes fail: an index must not be written after chunks to which
 * it points were lost. @return 0; errno of the first error
 */
static int
keep_error(struct file *f, int error)
{
	pthread_mutex_lock(&f->lock);
	f->error = f->error != 0 ? f->error : error;
	error = f->error;
	pthread_mutex_unlock(&f->lock);
	return error;
}

/* Writes all that was collected. @return 0; errno */
static int
drain(struct file *f)
{
	const uint8_t *rest;
	struct block *b;
	uint64_t end, tail;
	int ret;

	if (!f->has_thread)
		return 0;
	b = current(f);
	end = b->at + b->size;
	tail = b->size % PAGE;
	b->size -= tail;
	/* its bytes stay where they are until the block is filled again */
	rest = b->data + b->size;
	if (b->size > 0)
		(void)hand_over(f);
	current(f)->size = 0;
	pthread_mutex_lock(&f->lock);
	while (f->written < f->filled)
		pthread_cond_wait(&f->changed, &f->lock);
	ret = f->error;
	pthread_mutex_unlock(&f->lock);
	if (ret == 0 && tail > 0)
		ret = keep_error(f, write_whole(f->fd, rest, tail, end - tail));
	return ret;
}

/* Space that is allocated before it is written needs no allocation for each block. */
static void
allocate(struct file *f, uint64_t end)
{
	while (f->allocated < end) {
		if (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)f->allocated, ROOM) != 0)
			f->allocated = UINT64_MAX;
		else
			f->allocated += ROOM;
	}
}

/* Collects a write. @return 0; errno */
static int
collect(struct file *f, uint64_t at, const uint8_t *data, uint64_t size)
{
	struct block *b = current(f);
	uint64_t part;
	int ret = 0;

	if (b->size == 0 || at != b->at + b->size) {
		ret = drain(f);
		part = (PAGE - at % PAGE) % PAGE;
		if (ret == 0 && part > 0)
			ret = keep_error(f, write_whole(f->fd, data, part, at));
		data += part;
		at += part;
		size -= part;
		current(f)->at = at;
	}
	allocate(f, at + size);
	while (ret == 0 && size > 0) {
		b = current(f);
		part = size < BLOCK - b->size ? size : BLOCK - b->size;
		memcpy(b->data + b->size, data, part);
		b->size += part;
		data += part;
		size -= part;
		if (b->size == BLOCK)
			ret = hand_over(f);
	}
	return ret;
}

/* Whether bytes of a range may be in blocks, and not in the file. */
static bool
is_collected(struct file *f, uint64_t at, uint64_t size)
{
	const struct block *b;
	bool found = false;

	if (!f->has_thread)
		return false;
	pthread_mutex_lock(&f->lock);
	for (uint64_t i = f->written; i <= f->filled && !found; i++) {
		b = &f->block[i % BLOCKS];
		found = at < b->at + b->size && b->at < at + size;
	}
	pthread_mutex_unlock(&f->lock);
	return found;
}

static int
open_flags(unsigned int flags)
{
	int o = (flags & H5F_ACC_RDWR) != 0 ? O_RDWR : O_RDONLY;

	o |= (flags & H5F_ACC_TRUNC) != 0 ? O_TRUNC : 0;
	o |= (flags & H5F_ACC_CREAT) != 0 ? O_CREAT : 0;
	o |= (flags & H5F_ACC_EXCL) != 0 ? O_EXCL : 0;
	return o | O_CLOEXEC;
}

static H5FD_t *
driver_open(const char *name, unsigned int flags, hid_t access, haddr_t most)
{
	const int o = open_flags(flags);
	struct file *f = calloc(1, sizeof(*f));
	char same[32];
	struct stat st;

	if (f == NULL) {
		(void)fail("cannot open the file", ENOMEM);
		return NULL;
	}
	f->fd = open(name, o, 0666);
	if (f->fd < 0 || fstat(f->fd, &st) < 0) {
		(void)fail("cannot open the file", errno);
		if (f->fd >= 0)
			close(f->fd);
		free(f);
		return NULL;
	}
	f->eof = st.st_size;
	snprintf(same, sizeof(same), "/proc/self/fd/%d", f->fd);
	f->direct = (o & O_RDWR) != 0 ? open(same, O_RDWR | O_DIRECT | O_CLOEXEC) : -1;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
	return &f->common;
}

static herr_t
driver_close(H5FD_t *common)
{
	struct file *f = file_of(common);
	int ret = drain(f);

	if (f->has_thread) {
		pthread_mutex_lock(&f->lock);
		f->stop = true;
		pthread_cond_broadcast(&f->changed);
		pthread_mutex_unlock(&f->lock);
		pthread_join(f->thread, NULL);
	}
	/* the space that was allocated behind the end */
	if (f->allocated > 0 && ftruncate(f->fd, (off_t)f->eof) < 0)
		ret = ret != 0 ? ret : errno;
	if (f->memory != NULL)
		(void)munmap(f->memory, BLOCKS * BLOCK + (UINT64_C(2) << 20));
	if (f->direct >= 0)
		close(f->direct);
	if (close(f->fd) < 0)
		ret = ret != 0 ? ret : errno;
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
	return ret != 0 ? fail("cannot close the file", ret) : 0;
}

/* Whether both are the same file, as HDF5 must know. */
static int
driver_cmp(const H5FD_t *a, const H5FD_t *b)
{
	struct stat x = {0}, y = {0};

	(void)fstat(const_file_of(a)->fd, &x);
	(void)fstat(const_file_of(b)->fd, &y);
	if (x.st_dev != y.st_dev)
		return x.st_dev < y.st_dev ? -1 : 1;
	return x.st_ino < y.st_ino ? -1 : x.st_ino > y.st_ino;
}

static herr_t
driver_query(const H5FD_t *common, unsigned long *flags)
{
	*flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
		H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
		H5FD_FEAT_POSIX_COMPAT_HANDLE | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
	return 0;
}

static haddr_t
driver_get_eoa(const H5FD_t *common, H5FD_mem_t type)
{
	return const_file_of(common)->eoa;
}

static herr_t
driver_set_eoa(H5FD_t *common, H5FD_mem_t type, haddr_t address)
{
	file_of(common)->eoa = address;
	return 0;
}

static haddr_t
driver_get_eof(const H5FD_t *common, H5FD_mem_t type)
{
	return const_file_of(common)->eof;
}

static herr_t
driver_get_handle(H5FD_t *common, hid_t access, void **handle)
{
	*handle = &file_of(common)->fd;
	return 0;
}

static herr_t
driver_read(H5FD_t *common, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t size, void *data)
{
	struct file *f = file_of(common);
	int64_t n;
	int ret = is_collected(f, at, size) ? drain(f) : 0;

	if (ret != 0)
		return fail("cannot write the file", ret);
	n = direct_io_read(f->fd, data, size, at);
	if (n < 0)
		return fail("cannot read the file", (int)-n);
	/* as HDF5's own driver does behind the end */
	memset((uint8_t *)data + n, 0, size - n);
	return 0;
}

static herr_t
driver_write(
	H5FD_t *common, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t size, const void *data)
{
	struct file *f = file_of(common);
	int ret;

	/* an index may be as large as a chunk; blocks would divide it: it is written at once */
	if (type == H5FD_MEM_DRAW && size >= STREAM_MIN && begin(f)) {
		ret = collect(f, at, data, size);
	} else {
		/* in order: an index is in the file only with the chunks to which it points */
		ret = drain(f);
		if (ret == 0)
			ret = write_whole(f->fd, data, size, at);
	}
	if (ret != 0)
		return fail("cannot write the file", ret);
	f->eof = at + size > f->eof ? at + size : f->eof;
	return 0;
}

static herr_t
driver_flush(H5FD_t *common, hid_t transfer, hbool_t closing)
{
	const int ret = drain(file_of(common));

	return ret != 0 ? fail("cannot write the file", ret) : 0;
}

/* Makes the file as long as HDF5 needs it. */
static herr_t
driver_truncate(H5FD_t *common, hid_t transfer, hbool_t closing)
{
	struct file *f = file_of(common);
	int ret = drain(f);

	if (ret == 0 && f->eof != f->eoa && ftruncate(f->fd, (off_t)f->eoa) < 0)
		ret = errno;
	if (ret != 0)
		return fail("cannot set the size of the file", ret);
	f->eof = f->eoa;
	return 0;
}

static const H5FD_class_t class = {
#if H5_VERSION_GE(1, 13, 2)
	.version = H5FD_CLASS_VERSION,
#endif
#if H5_VERSION_GE(1, 13, 0)
	/* a number that is free for any program */
	.value = (H5FD_class_value_t)600,
#endif
	.name = "braggline_direct",
	.maxaddr = ADDRESS_MAX,
	.fc_degree = H5F_CLOSE_WEAK,
	.open = driver_open,
	.close = driver_close,
	.cmp = driver_cmp,
	.query = driver_query,
	.get_eoa = driver_get_eoa,
	.set_eoa = driver_set_eoa,
	.get_eof = driver_get_eof,
	.get_handle = driver_get_handle,
	.read = driver_read,
	.write = driver_write,
	.flush = driver_flush,
	.truncate = driver_truncate,
	.fl_map = H5FD_FLMAP_DICHOTOMY,
};

herr_t
h5_driver_use(hid_t access)
{
	/* it stays registered: H5dont_atexit() */
	if (driver < 0)
		driver = H5FDregister(&class);
	return driver < 0 ? -1 : H5Pset_driver(access, driver, NULL);
}
