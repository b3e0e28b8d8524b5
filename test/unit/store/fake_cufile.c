/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcufile.so.0 for tests without a GPU. It does not include the store's headers, so that it
 * does not repeat their mistakes.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../gpu/fake_cuda.h"
#include "fake_cufile.h"

/* From the cuFile API reference, CUfileOpError */
enum {
	DRIVER_NOT_INITIALIZED = 5001,
	PERMISSION = 5013,
	INVALID_VALUE = 5022,
	MEMORY_ALREADY_REGISTERED = 5023,
	MEMORY_NOT_REGISTERED = 5024,
	NOT_REGISTERED = 5027,
	INVALID_CONTEXT = 5034,
};

enum {
	RANGES = 256,
	BLOCK = 4096,
};

struct error {
	int code;
	int cuda;
};

struct properties {
	struct {
		unsigned int major_version;
		unsigned int minor_version;
		size_t poll_thresh_size;
		size_t max_direct_io_size;
		unsigned int dstatusflags;
		unsigned int dcontrolflags;
	} nvfs;
	unsigned int fflags;
	unsigned int sizes[5];
};

struct descr {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
};

struct file {
	int fd;
};

static struct fake_cufile fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool compat; /* compatibility mode was allowed when the driver was opened */
static struct {
	const uint8_t *base;
	size_t length;
} range[RANGES];

struct error cuFileDriverOpen(void);
struct error cuFileDriverClose_v2(void);
struct error cuFileDriverGetProperties(struct properties *properties);
struct error cuFileHandleRegister(void **handle, struct descr *descr);
void cuFileHandleDeregister(void *handle);
struct error cuFileBufRegister(const void *base, size_t length, int flags);
struct error cuFileBufDeregister(const void *base);
ssize_t cuFileRead(void *handle, void *base, size_t size, off_t file_offset, off_t offset);
ssize_t cuFileWrite(void *handle, const void *base, size_t size, off_t file_offset, off_t offset);

struct fake_cufile *
fake_cufile(void)
{
	return &fake;
}

static struct error
answer(int code)
{
	return (struct error){code, 0};
}

/* Write the counters in the format of nvidia-fs. Called with the lock held. */
static void
tell_counters(void)
{
	FILE *out;

	out = fake.way == FAKE_CUFILE_NVFS && fake.stats != NULL ? fopen(fake.stats, "w") : NULL;
	if (out == NULL)
		return;
	fprintf(out,
		"GDS Version: 1.7.2.10\nIO stats: Enabled, peer IO stats: Disabled\n"
		"Reads\t\t\t\t: err=0 io_state_err=0\n"
		"Writes\t\t\t\t: n=%u ok=%u err=0 writeMiB=1 io_state_err=0\n"
		"Ops\t\t\t\t: Read=0 Write=0 BatchIO=0\n",
		fake.writes, fake.writes);
	fclose(out);
}

struct error
cuFileDriverOpen(void)
{
	const char *allowed = getenv("CUFILE_ALLOW_COMPAT_MODE");

	if (getenv("FAKE_CUFILE_WAY") != NULL)
		fake.way = atoi(getenv("FAKE_CUFILE_WAY"));
	if (getenv("FAKE_CUFILE_STATS") != NULL)
		fake.stats = getenv("FAKE_CUFILE_STATS");
	compat = allowed == NULL || strcmp(allowed, "false") != 0 ||
		fake.way == FAKE_CUFILE_HEEDLESS;
	if (fake.way == FAKE_CUFILE_COMPAT && !compat)
		return answer(DRIVER_NOT_INITIALIZED);
	fake.opened++;
	tell_counters();
	return answer(0);
}

struct error
cuFileDriverClose_v2(void)
{
	if (fake.opened == 0)
		return answer(DRIVER_NOT_INITIALIZED);
	fake.opened--;
	return answer(0);
}

struct error
cuFileDriverGetProperties(struct properties *p)
{
	memset(p, 0, sizeof(*p));
	if (fake.way == FAKE_CUFILE_NVFS)
		p->nvfs.major_version = 2;
	if (fake.way == FAKE_CUFILE_P2P) {
		p->nvfs.dstatusflags = 1u << 11;
		p->fflags = 1u << 4;
	}
	p->nvfs.dcontrolflags = compat ? 1u << 1 : 0;
	return answer(0);
}

struct error
cuFileHandleRegister(void **handle, struct descr *descr)
{
	struct file *f;

	if (fake.opened == 0)
		return answer(DRIVER_NOT_INITIALIZED);
	if (fake.fail_register != 0)
		return answer(fake.fail_register);
	if (descr->type != 1 || descr->fs_ops != NULL)
		return answer(INVALID_VALUE);
	f = malloc(sizeof(*f));
	if (f == NULL)
		return answer(INVALID_VALUE);
	f->fd = descr->handle.fd;
	*handle = f;
	__atomic_fetch_add(&fake.files, 1, __ATOMIC_RELAXED);
	return answer(0);
}

void
cuFileHandleDeregister(void *handle)
{
	free(handle);
	__atomic_fetch_sub(&fake.files, 1, __ATOMIC_RELAXED);
}

struct error
cuFileBufRegister(const void *base, size_t length, int flags)
{
	int code = INVALID_VALUE;
	unsigned int i, room = RANGES;

	if (fake_cuda_current() == 0)
		return answer(INVALID_CONTEXT);
	pthread_mutex_lock(&lock);
	for (i = 0; i < RANGES; i++) {
		if (range[i].base == base)
			code = MEMORY_ALREADY_REGISTERED;
		if (range[i].base == NULL)
			room = i;
	}
	if (code == INVALID_VALUE && room < RANGES && length > 0 && flags == 0) {
		range[room].base = base;
		range[room].length = length;
		fake.memory++;
		code = 0;
	}
	pthread_mutex_unlock(&lock);
	return answer(code);
}

struct error
cuFileBufDeregister(const void *base)
{
	int code = MEMORY_NOT_REGISTERED;
	unsigned int i;

	if (fake_cuda_current() == 0)
		return answer(INVALID_CONTEXT);
	pthread_mutex_lock(&lock);
	for (i = 0; i < RANGES; i++) {
		if (range[i].base != base)
			continue;
		range[i].base = NULL;
		fake.memory--;
		code = 0;
	}
	pthread_mutex_unlock(&lock);
	return answer(code);
}

/* Check the arguments of a call. @return 0, or a negative code */
static ssize_t
judge(const void *base, size_t size, off_t file_offset, off_t offset)
{
	ssize_t code = -MEMORY_NOT_REGISTERED;
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < RANGES; i++) {
		if (range[i].base == base && (size_t)offset <= range[i].length &&
			size <= range[i].length - offset)
			code = 0;
	}
	if (fake_cuda_current() == 0)
		code = -INVALID_CONTEXT;
	fake.wrong += code != 0;
	fake.slow += size % BLOCK != 0 || file_offset % BLOCK != 0 || offset % BLOCK != 0;
	pthread_mutex_unlock(&lock);
	return code;
}

/* The size to transfer: half of it for the next `fake.shorten` calls. */
static size_t
shorten(size_t size)
{
	pthread_mutex_lock(&lock);
	if (fake.shorten > 0 && size > BLOCK) {
		fake.shorten--;
		size = size / 2 / BLOCK * BLOCK;
	}
	pthread_mutex_unlock(&lock);
	return size;
}

ssize_t
cuFileRead(void *handle, void *base, size_t size, off_t file_offset, off_t offset)
{
	const struct file *f = handle;
	ssize_t wrong = judge(base, size, file_offset, offset);

	if (wrong != 0)
		return wrong;
	__atomic_fetch_add(&fake.reads, 1, __ATOMIC_RELAXED);
	return pread(f->fd, (uint8_t *)base + offset, shorten(size), file_offset);
}

static void
count_write(void)
{
	pthread_mutex_lock(&lock);
	fake.writes++;
	tell_counters();
	pthread_mutex_unlock(&lock);
}

ssize_t
cuFileWrite(void *handle, const void *base, size_t size, off_t file_offset, off_t offset)
{
	const struct file *f = handle;
	ssize_t wrong = judge(base, size, file_offset, offset);

	if (wrong != 0)
		return wrong;
	if (fake.fail_write == 1) {
		errno = EIO;
		return -1;
	}
	if (fake.fail_write != 0)
		return -fake.fail_write;
	count_write();
	return pwrite(f->fd, (const uint8_t *)base + offset, shorten(size), file_offset);
}
