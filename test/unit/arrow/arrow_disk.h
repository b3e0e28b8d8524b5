/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A disk in memory for the tests of code that writes files. It logs every write, sync and rename in
 * order, completes writes in random order, fails on request, and can lose its power at any moment:
 * then data that no sync has covered is lost, kept or torn, in sectors of 512 bytes.
 */
#ifndef ARROW_DISK_H
#define ARROW_DISK_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file_io.h"

#define DISK_SECTOR  512
#define DISK_FILES   1024
#define DISK_PENDING (ARROW_IO_DEPTH_MAX + 1)

enum disk_kind {
	DISK_CREATE,
	DISK_WRITE,
	DISK_SIZE,
	DISK_SYNC,
	DISK_RENAME,
	DISK_REMOVE,
	DISK_SYNC_DIR
};

/* One operation on the disk. Times count events. */
struct disk_event {
	enum disk_kind kind;
	unsigned int file;
	uint64_t begun;
	uint64_t ended;	 /* UINT64_MAX: not completed, or completed with an error */
	uint64_t offset; /* or the new size */
	uint64_t length;
	uint8_t *data;
	char to[64];
	uint64_t claim; /* what the user had reported durable when it made the call */
};

struct disk_file {
	char name[64];	/* "": removed, or never made durable */
	char first[64]; /* name at the beginning of the log */
	uint8_t *base;	/* contents at the beginning of the log */
	uint64_t base_size;
	uint8_t *data;
	uint64_t size;
	uint64_t room;
	bool is_open;
};

struct disk {
	struct disk_file file[DISK_FILES];
	unsigned int nb_files;
	struct disk_event *event;
	size_t nb_events;
	uint64_t now;
	uint64_t seed;
	uint64_t calls;
	uint64_t fail_from; /* range of calls that fail; both 0: none */
	uint64_t fail_until;
	int fail_error;
	bool stuck;	   /* completes only what the caller waits for */
	uint64_t capacity; /* bytes of all files; 0: no limit */
	uint64_t bad_from; /* range of bytes that cannot be read, in any file */
	uint64_t bad_until;
	uint64_t (*claim)(void *arg);
	void *claim_arg;
	pthread_mutex_t lock;
};

struct disk_handle {
	struct disk *disk;
	struct disk_file *file;
	struct arrow_io_info info;
	struct {
		uint64_t tag;
		size_t event;
		int error;
	} pending[DISK_PENDING];
	unsigned int nb_pending;
	bool read_only;
};

/* The disk that the operations below work on. */
static struct disk *disk;

static inline uint32_t
disk_random(struct disk *d)
{
	d->seed = d->seed * 6364136223846793005ull + 1442695040888963407ull;
	return d->seed >> 33;
}

static inline struct disk *
disk_new(uint64_t seed)
{
	struct disk *d = calloc(1, sizeof(*d));

	d->seed = seed;
	pthread_mutex_init(&d->lock, NULL);
	return d;
}

static inline void
disk_free(struct disk *d)
{
	unsigned int i;
	size_t k;

	for (i = 0; i < d->nb_files; i++) {
		free(d->file[i].base);
		free(d->file[i].data);
	}
	for (k = 0; k < d->nb_events; k++)
		free(d->event[k].data);
	free(d->event);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static inline const char *
disk_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static inline struct disk_file *
disk_find(struct disk *d, const char *path)
{
	const char *name = disk_base_name(path);
	unsigned int i;

	for (i = 0; i < d->nb_files; i++) {
		if (d->file[i].name[0] != '\0' && strcmp(d->file[i].name, name) == 0)
			return &d->file[i];
	}
	return NULL;
}

/*
 * Whether the complete file exists whose temporary file is `part`: arrow_file_create() checks this
 * on a real disk.
 */
static inline bool
disk_has_complete(struct disk *d, const char *part)
{
	char name[64];
	const size_t len = snprintf(name, sizeof(name), "%s", disk_base_name(part));

	if (len < 5 || strcmp(name + len - 5, ".part") != 0)
		return false;
	name[len - 5] = '\0';
	return disk_find(d, name) != NULL;
}

static inline struct disk_event *
disk_log(struct disk *d, enum disk_kind kind, const struct disk_file *f)
{
	struct disk_event *e;

	d->event = realloc(d->event, (d->nb_events + 1) * sizeof(*d->event));
	e = &d->event[d->nb_events];
	memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->file = f != NULL ? f - d->file : 0;
	e->claim = d->claim != NULL ? d->claim(d->claim_arg) : 0;
	e->begun = d->now++;
	e->ended = e->begun;
	d->nb_events++;
	return e;
}

/* The error of this call, or 0. */
static inline int
disk_fails(struct disk *d)
{
	const uint64_t call = d->calls++;

	return call >= d->fail_from && call < d->fail_until ? d->fail_error : 0;
}

static inline int
disk_resize(struct disk *d, struct disk_file *f, uint64_t size)
{
	uint64_t used = 0;
	unsigned int i;

	for (i = 0; i < d->nb_files; i++)
		used += d->file[i].name[0] != '\0' ? d->file[i].size : 0;
	if (size > f->size && d->capacity > 0 && used - f->size + size > d->capacity)
		return -ENOSPC;
	if (size > f->room) {
		f->data = realloc(f->data, 2 * size);
		memset(f->data + f->room, 0, 2 * size - f->room);
		f->room = 2 * size;
	}
	if (size < f->size)
		memset(f->data + size, 0, f->size - size);
	f->size = size;
	return 0;
}

static inline int
disk_open(void **handle, const struct arrow_io_open *how)
{
	struct disk_handle *h;
	struct disk_file *f;
	int ret;

	pthread_mutex_lock(&disk->lock);
	ret = disk_fails(disk);
	f = disk_find(disk, how->path);
	if (ret == 0 && how->existing)
		ret = f == NULL ? -ENOENT : f->is_open && !how->read_only ? -EBUSY : 0;
	if (ret == 0 && !how->existing) {
		ret = f != NULL || disk_has_complete(disk, how->path) ? -EEXIST
			: disk->nb_files == DISK_FILES		      ? -ENFILE
								      : 0;
		if (ret == 0) {
			f = &disk->file[disk->nb_files++];
			snprintf(f->name, sizeof(f->name), "%s", disk_base_name(how->path));
			strcpy(disk_log(disk, DISK_CREATE, f)->to, f->name);
		}
	}
	if (ret == 0) {
		f->is_open |= !how->read_only;
		h = calloc(1, sizeof(*h));
		h->read_only = how->read_only;
		h->disk = disk;
		h->file = f;
		h->info = (struct arrow_io_info){ARROW_IO_DIRECT_URING, 4096, ""};
		*handle = h;
	}
	pthread_mutex_unlock(&disk->lock);
	return ret;
}

static inline const struct arrow_io_info *
disk_info(void *handle)
{
	return &((struct disk_handle *)handle)->info;
}

static inline void
disk_pend(struct disk_handle *h, uint64_t tag, struct disk_event *event, int error)
{
	event->ended = UINT64_MAX;
	h->pending[h->nb_pending].tag = tag;
	h->pending[h->nb_pending].event = event - h->disk->event;
	h->pending[h->nb_pending++].error = error;
}

static inline int
disk_write(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset, uint64_t tag)
{
	struct disk_handle *h = handle;
	struct disk *d = h->disk;
	struct disk_event *e;
	uint64_t length = 0;
	unsigned int i;
	int error;

	pthread_mutex_lock(&d->lock);
	for (i = 0; i < nb; i++)
		length += iov[i].iov_len;
	if (offset % 4096 != 0 || length % 4096 != 0 || nb > ARROW_IO_VECTORS ||
		h->nb_pending == DISK_PENDING)
		abort();
	e = disk_log(d, DISK_WRITE, h->file);
	error = disk_fails(d);
	if (error == 0 && offset + length > h->file->size)
		error = disk_resize(d, h->file, offset + length);
	e->offset = offset;
	e->length = length;
	e->data = malloc(length);
	for (i = 0, length = 0; i < nb; length += iov[i++].iov_len)
		memcpy(e->data + length, iov[i].iov_base, iov[i].iov_len);
	if (error == 0)
		memcpy(h->file->data + offset, e->data, length);
	disk_pend(h, tag, e, error);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static inline int
disk_sync(void *handle, uint64_t tag)
{
	struct disk_handle *h = handle;

	pthread_mutex_lock(&h->disk->lock);
	disk_pend(h, tag, disk_log(h->disk, DISK_SYNC, h->file), disk_fails(h->disk));
	pthread_mutex_unlock(&h->disk->lock);
	return 0;
}

static inline int
disk_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	struct disk_handle *h = handle;
	struct disk *d = h->disk;
	unsigned int i;
	int ret = 0;

	pthread_mutex_lock(&d->lock);
	if (h->nb_pending > 0 && (wait || (!d->stuck && disk_random(d) % 2))) {
		i = disk_random(d) % h->nb_pending;
		*done = (struct arrow_io_done){h->pending[i].tag, h->pending[i].error};
		if (done->error == 0)
			d->event[h->pending[i].event].ended = d->now++;
		h->pending[i] = h->pending[--h->nb_pending];
		ret = 1;
	}
	pthread_mutex_unlock(&d->lock);
	return ret;
}

static inline int
disk_set_size(void *handle, uint64_t size)
{
	struct disk_handle *h = handle;
	struct disk *d = h->disk;
	int ret;

	pthread_mutex_lock(&d->lock);
	ret = disk_fails(d);
	if (ret == 0)
		ret = disk_resize(d, h->file, size);
	if (ret == 0)
		disk_log(d, DISK_SIZE, h->file)->offset = size;
	pthread_mutex_unlock(&d->lock);
	return ret;
}

static inline int
disk_map(void *handle, const uint8_t **data, uint64_t *size)
{
	struct disk_handle *h = handle;

	*data = h->file->data;
	*size = h->file->size;
	return 0;
}

static inline int
disk_size(void *handle, uint64_t *size, uint64_t *allocated)
{
	const struct disk_handle *h = handle;

	*size = *allocated = h->file->size;
	return 0;
}

static inline int64_t
disk_read(void *handle, void *data, uint64_t size, uint64_t offset)
{
	const struct disk_handle *h = handle;
	const struct disk *d = h->disk;

	if (offset >= h->file->size)
		return 0;
	if (size > h->file->size - offset)
		size = h->file->size - offset;
	if (offset < d->bad_until && offset + size > d->bad_from)
		return -EIO;
	memcpy(data, h->file->data + offset, size);
	return (int64_t)size;
}

static inline int
disk_close(void *handle)
{
	struct disk_handle *h = handle;

	/* memory that a pending write uses */
	if (h->nb_pending > 0)
		abort();
	if (!h->read_only)
		h->file->is_open = false;
	free(h);
	return 0;
}

static inline int
disk_rename(const char *from, const char *to)
{
	struct disk_file *f;
	int ret;

	pthread_mutex_lock(&disk->lock);
	ret = disk_fails(disk);
	f = disk_find(disk, from);
	if (ret == 0)
		ret = f == NULL ? -ENOENT : disk_find(disk, to) != NULL ? -EEXIST : 0;
	if (ret == 0) {
		snprintf(f->name, sizeof(f->name), "%s", disk_base_name(to));
		strcpy(disk_log(disk, DISK_RENAME, f)->to, f->name);
	}
	pthread_mutex_unlock(&disk->lock);
	return ret;
}

static inline int
disk_remove(const char *path)
{
	struct disk_file *f;
	int ret;

	pthread_mutex_lock(&disk->lock);
	ret = disk_fails(disk);
	f = disk_find(disk, path);
	if (ret == 0 && f == NULL)
		ret = -ENOENT;
	if (ret == 0) {
		f->name[0] = '\0';
		disk_log(disk, DISK_REMOVE, f);
	}
	pthread_mutex_unlock(&disk->lock);
	return ret;
}

static inline int
disk_sync_dir(const char *path)
{
	int ret;

	pthread_mutex_lock(&disk->lock);
	ret = disk_fails(disk);
	if (ret == 0)
		disk_log(disk, DISK_SYNC_DIR, NULL);
	pthread_mutex_unlock(&disk->lock);
	return ret;
}

static const struct arrow_io_ops disk_io = {
	.open = disk_open,
	.info = disk_info,
	.write = disk_write,
	.sync = disk_sync,
	.reap = disk_reap,
	.allocate = disk_set_size,
	.truncate = disk_set_size,
	.map = disk_map,
	.size = disk_size,
	.read = disk_read,
	.close = disk_close,
	.rename = disk_rename,
	.remove = disk_remove,
	.sync_dir = disk_sync_dir,
};

/* Whether a sync that ended before `at` covers an event of a file. */
static inline bool
disk_is_synced(const struct disk *d, size_t event, uint64_t at)
{
	const struct disk_event *e = &d->event[event];
	size_t i;

	for (i = event + 1; i < d->nb_events && d->event[i].begun < at; i++) {
		if (d->event[i].kind == DISK_SYNC && d->event[i].file == e->file &&
			d->event[i].ended < at && e->ended < d->event[i].begun)
			return true;
	}
	return false;
}

/* Apply a write that no sync covers: each sector completely, in part or not at all. */
static inline void
disk_tear(struct disk *to, struct disk_file *f, const struct disk_event *e, uint32_t loss)
{
	uint64_t at, part;

	for (at = 0; at < e->length; at += DISK_SECTOR) {
		if (disk_random(to) % 100 < loss)
			continue;
		part = disk_random(to) % 16 == 0 && loss > 0 ? disk_random(to) % DISK_SECTOR
							     : DISK_SECTOR;
		if (e->offset + at + DISK_SECTOR > f->size)
			disk_resize(to, f, e->offset + at + DISK_SECTOR);
		memcpy(f->data + e->offset + at, e->data + at, part);
	}
}

/* The contents of the disk after a power failure at event `at` of `d`. */
static inline struct disk *
disk_crash(const struct disk *d, uint64_t at, uint64_t seed)
{
	static const uint32_t losses[] = {0, 5, 50, 100};
	struct disk *to = disk_new(seed);
	const uint32_t loss = losses[disk_random(to) % 4];
	const struct disk_event *e;
	struct disk_file *f;
	uint64_t named = 0; /* names are durable up to this event */
	size_t i;

	to->nb_files = d->nb_files;
	for (i = 0; i < d->nb_files; i++) {
		f = &to->file[i];
		memcpy(f->name, d->file[i].first, sizeof(f->name));
		disk_resize(to, f, d->file[i].base_size);
		if (f->size > 0)
			memcpy(f->data, d->file[i].base, f->size);
	}
	for (i = 0; i < d->nb_events && d->event[i].begun < at; i++) {
		if (d->event[i].kind == DISK_SYNC_DIR)
			named = d->event[i].begun;
	}
	for (i = 0; i < d->nb_events && d->event[i].begun < at; i++) {
		e = &d->event[i];
		f = &to->file[e->file];
		switch (e->kind) {
		case DISK_CREATE:
		case DISK_RENAME:
		case DISK_REMOVE:
			/*
			 * the file system's journal keeps the order: if one name is lost, all later
			 * ones are
			 */
			if (e->begun > named && disk_random(to) % 100 < loss)
				named = UINT64_MAX;
			if (named != UINT64_MAX)
				memcpy(f->name, e->to, sizeof(f->name));
			break;
		case DISK_WRITE:
			disk_tear(to, f, e, disk_is_synced(d, i, at) ? 0 : loss);
			break;
		case DISK_SIZE:
			if (disk_is_synced(d, i, at) || disk_random(to) % 100 >= loss)
				disk_resize(to, f, e->offset);
			break;
		default:
			break;
		}
	}
	/* the next log begins with this state */
	for (i = 0; i < to->nb_files; i++) {
		f = &to->file[i];
		memcpy(f->first, f->name, sizeof(f->first));
		f->base = malloc(f->size + 1);
		if (f->size > 0)
			memcpy(f->base, f->data, f->size);
		f->base_size = f->size;
	}
	return to;
}

/* What the user of the disk had reported durable when the power failed. */
static inline uint64_t
disk_claim(const struct disk *d, uint64_t at)
{
	uint64_t claim = 0;
	size_t i;

	for (i = 0; i < d->nb_events && d->event[i].begun < at; i++)
		claim = d->event[i].claim;
	return claim;
}

#endif /* ARROW_DISK_H */
