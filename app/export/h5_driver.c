/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "h5_driver.h"
#include "io/direct_io.h"
#include "io/write_queue.h"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#define PAGE	   UINT64_C(4096)      /* alignment of O_DIRECT, as of Arrow files */
#define COPY_BYTES (UINT64_C(1) << 20) /* bytes copied at a time from data that are not aligned */
#define STREAM_MIN (64 << 10)	       /* minimum bytes of a write with O_DIRECT */
/* limits of the space allocated at a time, which is as much as the file already has @{ */
#define ALLOCATE_MIN (UINT64_C(64) << 20)
#define ALLOCATE_MAX (UINT64_C(256) << 20)
/* @} */
#define DEPTH	    8 /* chunks in flight: more were not faster */
#define ADDRESS_MAX ((haddr_t)INT64_MAX)

/* Memory that is lent to the driver. */
struct loan {
	const void *data;
	void (*drop)(void *memory); /* NULL: none */
	void *memory;
};

/* A write of a chunk. */
struct chunk_write {
	struct iovec part[2]; /* last page of the previous chunk, whole pages of this one */
	uint8_t *page;	      /* buffer for the first part */
	struct loan loan;
	bool busy;
};

struct file {
	H5FD_t common; /* HDF5's part, which is first */
	int fd;
	int direct; /* the same file with O_DIRECT; -1: not possible */
	haddr_t eoa, eof;
	/*
	 * Length of the file with the space that is allocated ahead, because ext4 serialises direct
	 * writes that extend a file. The file is truncated to `eof` when it is closed.
	 */
	uint64_t allocated;
	bool is_full; /* no more space can be allocated ahead */
	int error;    /* errno of the first write that failed; 0: none */
	/*
	 * The last bytes of a large write that do not fill a page, followed by zeros. They are
	 * written with the next large write if it continues here, and otherwise before any other
	 * access @{
	 */
	uint8_t *tail; /* a page */
	uint64_t tail_at, tail_size;
	/* @} */
	struct write_queue *queue; /* queue of `direct`; NULL: no large write yet */
	struct chunk_write write[DEPTH];
	bool is_stuck;	  /* io_uring no longer reports which writes have ended */
	uint8_t *pages;	  /* memory of the tail and of write[].page */
	struct loan loan; /* memory of the chunk that HDF5 is about to write */
	uint8_t *copy;	  /* [COPY_BYTES] for data not aligned to pages; NULL: not needed yet */
};

static hid_t driver = H5I_INVALID_HID;
static int ring_error; /* -errno of the last failed creation of a ring */

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

/* Reports the reason of an error to HDF5, in the form of HDF5's own driver. @return -1 */
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

/*
 * Keeps an error, so that all later writes fail: an index must not be written after chunks to which
 * it points were lost. @return errno of the first error; 0: none
 */
static int
keep_error(struct file *f, int error)
{
	f->error = f->error != 0 ? f->error : error;
	return f->error;
}

static void
return_loan(struct loan *l)
{
	if (l->drop != NULL)
		l->drop(l->memory);
	*l = (struct loan){0};
}

/* Waits for a write. @return false: none is in flight */
static bool
wait_for_write(struct file *f)
{
	struct arrow_io_done done;
	const int ret =
		f->queue == NULL || f->is_stuck ? 0 : write_queue_reap(f->queue, true, &done);

	if (ret < 0) {
		/* the kernel may still read the memory: do not return it */
		f->is_stuck = true;
		(void)keep_error(f, -ret);
	} else if (ret > 0) {
		(void)keep_error(f, -done.error);
		f->write[done.tag].busy = false;
		return_loan(&f->write[done.tag].loan);
	}
	return ret > 0;
}

static void
wait_for_writes(struct file *f)
{
	while (wait_for_write(f))
		;
}

/* Writes the tail. @return 0; errno */
static int
write_tail(struct file *f)
{
	const uint64_t size = f->tail_size;

	f->tail_size = 0;
	return size > 0 && f->error == 0
		? keep_error(f, write_whole(f->fd, f->tail, size, f->tail_at))
		: f->error;
}

/* Waits until the file has all bytes. @return 0; errno */
static int
drain(struct file *f)
{
	wait_for_writes(f);
	return write_tail(f);
}

/* Truncates the file at its end, which frees the space behind it. @return 0; errno */
static int
free_unused_space(struct file *f)
{
	wait_for_writes(f);
	f->allocated = 0;
	return ftruncate(f->fd, (off_t)f->eof) < 0 ? errno : 0;
}

/* Allocates space ahead, in large steps because it waits for the writes in flight. */
static void
allocate(struct file *f, uint64_t end)
{
	uint64_t room;

	while (!f->is_full && f->allocated < end) {
		room = f->allocated < ALLOCATE_MIN    ? ALLOCATE_MIN
			: f->allocated < ALLOCATE_MAX ? f->allocated
						      : ALLOCATE_MAX;
		if (fallocate(f->fd, 0, (off_t)f->allocated, (off_t)room) == 0) {
			f->allocated += room;
			continue;
		}
		/* disk full: even a failed call may have allocated space */
		(void)free_unused_space(f);
		f->is_full = true;
	}
}

/* @return NULL: errno is kept */
static struct chunk_write *
get_free_write(struct file *f)
{
	do
		for (unsigned int i = 0; i < DEPTH; i++)
			if (!f->write[i].busy)
				return &f->write[i];
	while (wait_for_write(f));
	return NULL;
}

/* Starts to write whole pages, and the tail if they are after it. @return 0; errno */
static int
write_pages(struct file *f, uint64_t at, const uint8_t *data, uint64_t size, bool with_tail)
{
	struct chunk_write *w = get_free_write(f);
	unsigned int nb = 0;

	if (w == NULL)
		return f->error;
	if (with_tail) {
		at = f->tail_at;
		w->part[nb++] = (struct iovec){f->tail, PAGE};
		f->tail = w->page;
		w->page = w->part[0].iov_base;
	}
	w->part[nb++] = (struct iovec){(void *)(uintptr_t)data, size};
	w->busy = true;
	if (f->loan.data == data) {
		w->loan = f->loan;
		f->loan = (struct loan){0};
	}
	/* cannot fail: at most DEPTH writes are in flight */
	(void)write_queue_write(f->queue, w->part, nb, at, w - f->write);
	/* the caller may reuse memory that is not lent */
	if (w->loan.drop == NULL)
		wait_for_writes(f);
	return f->error;
}

/*
 * Writes without a copy. Address and offset are aligned to pages, as those of the next chunk will
 * be: the rest of the last page is filled with zeros. @return 0; errno
 */
static int
write_in_place(struct file *f, uint64_t at, const uint8_t *data, uint64_t size)
{
	const uint64_t whole = size - size % PAGE, end = f->tail_at + f->tail_size;
	const bool follows = f->tail_size > 0 && f->eof == end && at == f->tail_at + PAGE;
	int ret = 0;

	if (!follows || whole == 0)
		ret = write_tail(f);
	if (ret == 0 && whole > 0)
		ret = write_pages(f, at, data, whole, follows);
	f->tail_at = at + whole;
	f->tail_size = size - whole;
	memcpy(f->tail, data + whole, f->tail_size);
	memset(f->tail + f->tail_size, 0, PAGE - f->tail_size);
	f->eof = at + size > f->eof ? at + size : f->eof;
	return ret;
}

/* Writes a chunk with O_DIRECT. @return 0; errno */
static int
write_large(struct file *f, uint64_t at, const uint8_t *data, uint64_t size)
{
	uint64_t part;
	int ret = 0;

	allocate(f, at + size);
	if ((uintptr_t)data % PAGE == 0)
		return write_in_place(f, at, data, size);
	for (; ret == 0 && size > 0; data += part, at += part, size -= part) {
		part = size < COPY_BYTES ? size : COPY_BYTES;
		memcpy(f->copy, data, part);
		ret = write_in_place(f, at, f->copy, part);
	}
	return ret;
}

/* @return false: out of memory */
static bool
get_pages(uint8_t **pages, uint64_t size)
{
	if (*pages == NULL)
		*pages = aligned_alloc(PAGE, size);
	return *pages != NULL;
}

/* @return false: out of memory */
static bool
get_queue(struct file *f)
{
	int ret;

	if (f->queue != NULL)
		return true;
	if (!get_pages(&f->pages, (DEPTH + 1) * PAGE) ||
		write_queue_open(&f->queue, f->direct, DEPTH) < 0)
		return false;
	ret = write_queue_use_ring(f->queue);
	ring_error = ret < 0 ? ret : ring_error;
	f->tail = f->pages;
	for (unsigned int i = 0; i < DEPTH; i++)
		f->write[i].page = f->pages + (i + 1) * PAGE;
	return true;
}

/* Whether a write is one for write_large(). */
static bool
is_large(struct file *f, H5FD_mem_t type, uint64_t at, const void *data, uint64_t size)
{
	/* an index may be as large as a chunk; it is written at once */
	return type == H5FD_MEM_DRAW && size >= STREAM_MIN && at % PAGE == 0 && f->direct >= 0 &&
		get_queue(f) && ((uintptr_t)data % PAGE == 0 || get_pages(&f->copy, COPY_BYTES));
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
	return &f->common;
}

static herr_t
driver_close(H5FD_t *common)
{
	struct file *f = file_of(common);
	int ret = drain(f), error = f->allocated > 0 || f->is_full ? free_unused_space(f) : 0;

	ret = ret != 0 ? ret : error;
	if (f->queue != NULL)
		write_queue_close(f->queue);
	if (f->direct >= 0)
		close(f->direct);
	if (close(f->fd) < 0)
		ret = ret != 0 ? ret : errno;
	if (!f->is_stuck) {
		free(f->pages);
		free(f->copy);
	}
	free(f);
	return ret != 0 ? fail("cannot close the file", ret) : 0;
}

/* Compare two files, as HDF5 does to find files that are open already. */
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
	const int ret = drain(f);
	int64_t n;

	if (ret != 0)
		return fail("cannot write the file", ret);
	n = direct_io_read(f->fd, data, size, at);
	if (n < 0)
		return fail("cannot read the file", (int)-n);
	/* as HDF5's own driver does beyond the end */
	memset((uint8_t *)data + n, 0, size - n);
	return 0;
}

static herr_t
driver_write(
	H5FD_t *common, H5FD_mem_t type, hid_t transfer, haddr_t at, size_t size, const void *data)
{
	struct file *f = file_of(common);
	int ret;

	if (is_large(f, type, at, data, size)) {
		ret = f->error != 0 ? f->error : write_large(f, at, data, size);
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

/* Makes the file as long as HDF5 needs it. Space ahead stays until the file is closed. */
static herr_t
driver_truncate(H5FD_t *common, hid_t transfer, hbool_t closing)
{
	struct file *f = file_of(common);
	int ret = drain(f);

	if (ret == 0 && f->eof != f->eoa && f->allocated < f->eoa &&
		ftruncate(f->fd, (off_t)f->eoa) < 0)
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
	/* chunks begin at pages */
	return driver < 0 || H5Pset_alignment(access, STREAM_MIN, PAGE) < 0
		? -1
		: H5Pset_driver(access, driver, NULL);
}

herr_t
h5_driver_write_chunk(hid_t file, hid_t set, const hsize_t *place, const void *chunk, size_t size,
	void (*drop)(void *memory), void *memory)
{
	struct loan loan = {chunk, drop, memory};
	void *handle = NULL;
	struct file *f;
	herr_t ret;

	/* driver_get_handle() */
	if (H5Fget_vfd_handle(file, H5P_DEFAULT, &handle) < 0) {
		return_loan(&loan);
		return -1;
	}
	f = (struct file *)((uint8_t *)handle - offsetof(struct file, fd));
	f->loan = loan;
	ret = H5Dwrite_chunk(set, H5P_DEFAULT, 0, place, size, chunk);
	/* unless a write has it */
	return_loan(&f->loan);
	return ret;
}

int
h5_driver_ring_error(void)
{
	return ring_error;
}
