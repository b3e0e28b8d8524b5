/* SPDX-License-Identifier: BSD-3-Clause */

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/xattr.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "io/dir_lock.h"
#include "io/direct_io.h"
#include "io/file_lock.h"
#include "io/own_file.h"
#include "io/write_queue.h"

#define MEMORY_ALIGN 4096 /* alignment of memory if the kernel does not report it */

struct disk_file {
	struct disk_file *next; /* next open file of this process */
	int fd;
	dev_t dev;
	ino_t ino;
	int dir[2]; /* locks of its directory, which replace its own lock; -1: none */
	struct arrow_io_info info;
	struct write_queue *queue;
	void *map;
	size_t map_size;
};

const char *
arrow_io_mode_name(enum arrow_io_mode mode)
{
	static const char *const names[] = {
		[ARROW_IO_AUTO] = "auto",
		[ARROW_IO_BUFFERED] = "buffered",
		[ARROW_IO_DIRECT] = "direct",
		[ARROW_IO_DIRECT_URING] = "direct+io_uring",
		[ARROW_IO_CUFILE] = "cufile",
		[ARROW_IO_GPUDIRECT] = "cufile+gpudirect",
	};

	return names[mode];
}

/* Switch to O_DIRECT if the file system supports it. */
static void
choose_direct(struct disk_file *f, enum arrow_io_mode wanted)
{
	const char *why = NULL;
	struct statfs fs;
	uint32_t offset_align = 0;

	f->info = (struct arrow_io_info){ARROW_IO_BUFFERED, 1, ""};
	if (wanted == ARROW_IO_BUFFERED)
		why = "as configured";
	else if (fstatfs(f->fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC))
		why = "the file system keeps files in memory";
	if (why != NULL)
		goto buffered;
	f->info.memory_align = MEMORY_ALIGN;
#ifdef STATX_DIOALIGN
	struct statx st;

	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
		(st.stx_mask & STATX_DIOALIGN)) {
		f->info.memory_align = st.stx_dio_mem_align;
		offset_align = st.stx_dio_offset_align;
		why = "the file system does not support direct I/O for this file";
		if (offset_align == 0)
			goto buffered;
	}
#endif
	if (offset_align > ARROW_BLOCK || f->info.memory_align > MEMORY_ALIGN) {
		snprintf(f->info.why, sizeof(f->info.why),
			"direct I/O requires multiples of %u bytes, blocks of files have %u",
			offset_align, ARROW_BLOCK);
		return;
	}
	why = "the file system rejects O_DIRECT";
	if (fcntl(f->fd, F_SETFL, O_DIRECT) < 0)
		goto buffered;
	/* parts of a write must also be whole sectors */
	if (f->info.memory_align < offset_align)
		f->info.memory_align = offset_align;
	f->info.mode = ARROW_IO_DIRECT;
	return;

buffered:
	f->info.memory_align = 1;
	snprintf(f->info.why, sizeof(f->info.why), "%s", why);
}

static void
choose_ring(struct disk_file *f, enum arrow_io_mode wanted)
{
	int ret;

	if (f->info.mode != ARROW_IO_DIRECT)
		return;
	if (wanted == ARROW_IO_DIRECT) {
		snprintf(f->info.why, sizeof(f->info.why), "as configured");
		return;
	}
	ret = write_queue_use_ring(f->queue);
	if (ret < 0) {
		snprintf(f->info.why, sizeof(f->info.why), "io_uring is not available: %s",
			strerror(-ret));
		return;
	}
	f->info.mode = ARROW_IO_DIRECT_URING;
}

/*
 * Files that this process has open. They exclude its own threads from each other also if other
 * users prevent the locks of files.
 */
static struct disk_file *open_files;
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;

/* @return -EBUSY: this process has the file open */
static int
register_open(struct disk_file *f)
{
	const struct disk_file *other;
	struct stat st;
	int ret = 0;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	pthread_mutex_lock(&open_mutex);
	for (other = open_files; other != NULL && ret == 0; other = other->next)
		ret = other->dev == f->dev && other->ino == f->ino ? -EBUSY : 0;
	if (ret == 0) {
		f->next = open_files;
		open_files = f;
	}
	pthread_mutex_unlock(&open_mutex);
	return ret;
}

/* Before the descriptor is closed: another file may get the inode's number then. */
static void
unregister_open(struct disk_file *f)
{
	struct disk_file **at;

	pthread_mutex_lock(&open_mutex);
	for (at = &open_files; *at != NULL && *at != f; at = &(*at)->next)
		;
	if (*at == f)
		*at = f->next;
	pthread_mutex_unlock(&open_mutex);
}

static void
release_dir(struct disk_file *f)
{
	dir_lock_release(f->dir[0]);
	dir_lock_release(f->dir[1]);
}

static void
warn_of_reader(int fd)
{
	static bool reported; /* atomic */
	char text[PATH_MAX], link[32], path[PATH_MAX] = "";

	if (__atomic_exchange_n(&reported, true, __ATOMIC_RELAXED))
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	(void)!readlink(link, path, sizeof(path) - 1);
	snprintf(text, sizeof(text),
		"%.3000s: another process has locked it for reading. Going on with the lock of its "
		"directory; lslocks lists such processes. Other files are not reported",
		path);
	file_lock_warn(text);
}

/* @return -EBUSY: another process uses the file */
static int
lock(struct disk_file *f, const char *path)
{
	int ret = file_lock_or_read(f->fd, 0);

	if (ret == 1) {
		ret = dir_lock_for_file(path, f->dir);
		if (ret < 0)
			return -EBUSY;
		warn_of_reader(f->fd);
	}
	/* a file system without locks is accepted */
	return ret == -EBUSY ? ret : 0;
}

/* The umask. umask(2) cannot read it without a change that other threads would see. */
static mode_t
read_umask(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	unsigned int mask = 077;
	char line[128];

	while (status != NULL && fgets(line, sizeof(line), status) != NULL &&
		sscanf(line, "Umask: %o", &mask) != 1)
		;
	if (status != NULL)
		fclose(status);
	return mask;
}

/*
 * Permissions that a new file may have at most. As for all programs, a default ACL of the directory
 * replaces the umask (acl(5)).
 */
static mode_t
allowed_mode(const char *path)
{
	struct {
		struct posix_acl_xattr_header header;
		struct posix_acl_xattr_entry entry[256];
	} acl;
	unsigned int tag, group = 0, mask = 0, others = 0;
	bool has_mask = false;
	char dir[PATH_MAX];
	ssize_t size, i;

	snprintf(dir, sizeof(dir), "%s", path);
	size = getxattr(dirname(dir), XATTR_NAME_POSIX_ACL_DEFAULT, &acl, sizeof(acl));
	if (size < 0)
		return errno == ENODATA || errno == ENOTSUP ? ~read_umask() : OWN_SECRET_MODE;
	for (i = 0; i < (size - (ssize_t)sizeof(acl.header)) / (ssize_t)sizeof(acl.entry[0]); i++) {
		tag = le16toh(acl.entry[i].e_tag);
		if (tag == ACL_GROUP_OBJ)
			group = le16toh(acl.entry[i].e_perm);
		else if (tag == ACL_MASK)
			mask = le16toh(acl.entry[i].e_perm);
		else if (tag == ACL_OTHER)
			others = le16toh(acl.entry[i].e_perm);
		has_mask |= tag == ACL_MASK;
	}
	return OWN_SECRET_MODE | (has_mask ? mask : group) << 3 | others;
}

/* Set the permissions of a created file as if it had been created with OWN_FILE_MODE. */
static void
make_readable(int fd, const char *path)
{
	(void)fchmod(fd, OWN_FILE_MODE & allowed_mode(path));
}

static int
direct_open(void **handle, const struct arrow_io_open *how)
{
	const int flags = how->read_only ? O_RDONLY
		: how->existing		 ? O_RDWR
					 : O_RDWR | O_CREAT | O_EXCL;
	struct disk_file *f;
	struct stat st;
	int ret;

	/* before a file is created */
	if (how->depth < 1 || how->depth > ARROW_IO_DEPTH_MAX)
		return -EINVAL;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	f->dir[0] = f->dir[1] = -1;
	/* others may read it once it is locked, and so cannot prevent the lock */
	f->fd = own_file_open(AT_FDCWD, how->path, flags, OWN_SECRET_MODE);
	if (f->fd < 0) {
		ret = f->fd;
		goto fail;
	}
	ret = how->read_only ? 0 : register_open(f);
	if (ret == 0 && !how->read_only)
		ret = lock(f, how->path);
	if (ret < 0)
		goto fail;
	/*
	 * recovery removes empty files that are not locked: it may have removed this one before the
	 * lock
	 */
	if (fstat(f->fd, &st) == 0 && st.st_nlink == 0) {
		ret = how->existing ? -ENOENT : -EEXIST;
		goto fail;
	}
	if (!how->existing)
		make_readable(f->fd, how->path);
	ret = write_queue_open(&f->queue, f->fd, how->depth);
	if (ret < 0)
		goto fail;
	choose_direct(f, how->mode);
	choose_ring(f, how->mode);
	*handle = f;
	return 0;

fail:
	unregister_open(f);
	if (f->fd >= 0)
		close(f->fd);
	release_dir(f);
	free(f);
	return ret;
}

int
direct_io_fd(void *handle)
{
	return ((const struct disk_file *)handle)->fd;
}

static const struct arrow_io_info *
direct_info(void *handle)
{
	return &((const struct disk_file *)handle)->info;
}

/* The mode changes with the first direct write that is refused. */
static void
note_mode(struct disk_file *f)
{
	static const char why[] = "the file system rejected a direct write";

	if (f->info.mode == ARROW_IO_BUFFERED || !write_queue_refused_direct(f->queue))
		return;
	f->info.mode = ARROW_IO_BUFFERED;
	f->info.memory_align = 1;
	memcpy(f->info.why, why, sizeof(why));
}

static int
direct_write(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset, uint64_t tag)
{
	struct disk_file *f = handle;
	const int ret = write_queue_write(f->queue, iov, nb, offset, tag);

	note_mode(f);
	return ret;
}

static int
direct_sync(void *handle, uint64_t tag)
{
	return write_queue_sync(((struct disk_file *)handle)->queue, tag);
}

static int
direct_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	struct disk_file *f = handle;
	const int ret = write_queue_reap(f->queue, wait, done);

	note_mode(f);
	return ret;
}

static int
direct_allocate(void *handle, uint64_t size)
{
	const struct disk_file *f = handle;
	int ret;

	do
		ret = fallocate(f->fd, 0, 0, (off_t)size);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : 0;
}

static int
direct_truncate(void *handle, uint64_t size)
{
	const struct disk_file *f = handle;

	return ftruncate(f->fd, (off_t)size) < 0 ? -errno : 0;
}

static int
direct_map(void *handle, const uint8_t **data, uint64_t *size)
{
	struct disk_file *f = handle;
	struct stat st;
	void *map;

	*data = NULL;
	*size = 0;
	if (fstat(f->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size == 0 || f->map != NULL)
		return f->map != NULL ? -EINVAL : 0;
	map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, f->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	f->map = map;
	f->map_size = st.st_size;
	*data = map;
	*size = st.st_size;
	return 0;
}

static int
direct_size(void *handle, uint64_t *size, uint64_t *allocated)
{
	const struct disk_file *f = handle;
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*size = st.st_size;
	*allocated = (uint64_t)st.st_blocks * 512;
	return 0;
}

int64_t
direct_io_read(int fd, void *data, uint64_t size, uint64_t offset)
{
	uint64_t done = 0;
	ssize_t n;

	while (done < size) {
		n = pread(fd, (uint8_t *)data + done, size - done, (off_t)(offset + done));
		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? n : 0;
	}
	return (int64_t)done;
}

static int64_t
direct_read(void *handle, void *data, uint64_t size, uint64_t offset)
{
	return direct_io_read(((const struct disk_file *)handle)->fd, data, size, offset);
}

uint64_t
direct_io_written(int fd, uint64_t size)
{
	off_t data, end = 0;

	while ((data = lseek(fd, end, SEEK_DATA)) >= 0) {
		end = lseek(fd, data, SEEK_HOLE);
		if (end < 0)
			return size;
	}
	return errno == ENXIO && (uint64_t)end < size ? (uint64_t)end : size;
}

static uint64_t
direct_written(void *handle)
{
	const struct disk_file *f = handle;
	struct stat st;

	return fstat(f->fd, &st) < 0 ? UINT64_MAX : direct_io_written(f->fd, st.st_size);
}

static int
direct_close(void *handle)
{
	struct disk_file *f = handle;
	int ret;

	if (f->map != NULL)
		munmap(f->map, f->map_size);
	write_queue_close(f->queue);
	unregister_open(f);
	ret = close(f->fd) < 0 ? -errno : 0;
	release_dir(f);
	free(f);
	return ret;
}

static int
direct_rename(const char *from, const char *to)
{
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	/* NFS and others do not support the flag */
	if (errno != EINVAL)
		return -errno;
	if (access(to, F_OK) == 0)
		return -EEXIST;
	return rename(from, to) < 0 ? -errno : 0;
}

static int
direct_remove(const char *path)
{
	return unlink(path) < 0 ? -errno : 0;
}

static int
direct_sync_dir(const char *path)
{
	char dir[PATH_MAX];
	char *slash;
	int fd, ret;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash == NULL)
		strcpy(dir, ".");
	else
		slash[slash == dir] = '\0';
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* EINVAL: this file system does not sync directories */
	ret = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
	close(fd);
	return ret;
}

const struct arrow_io_ops direct_io = {
	.open = direct_open,
	.info = direct_info,
	.write = direct_write,
	.sync = direct_sync,
	.reap = direct_reap,
	.allocate = direct_allocate,
	.truncate = direct_truncate,
	.map = direct_map,
	.size = direct_size,
	.read = direct_read,
	.written = direct_written,
	.close = direct_close,
	.rename = direct_rename,
	.remove = direct_remove,
	.sync_dir = direct_sync_dir,
};
