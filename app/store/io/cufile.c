/* SPDX-License-Identifier: BSD-3-Clause */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_common.h>

#include "gpu_cuda.h"
#include "io/body_memory.h"
#include "io/cufile.h"
#include "io/cufile_abi.h"
#include "log.h"

/**
 * @file
 * Access to cuFile: the library, GPU memory, files, and the test write that determines the data
 * path.
 */

struct cufile_library {
	void *handle;
	struct cufile_symbols symbols;
	int16_t gpu;
	bool opened; /**< the driver is open */
};

static struct cufile_error cufile_library_attach(
	const struct cufile_library *lib, int fd, void **handle);

/** @return a hint about an error code, to be appended; "" */
static const char *cufile_library_hint(int code);

/**
 * Open the driver and determine the mode. The GPU's context is current. @return as cufile_open()
 */
static int cufile_probe(struct cufile_library *lib, const char *directory, const char *stats,
	struct cufile_info *info, char message[PATH_MAX]);

LOG_REGISTER("store.cufile", "store");

struct range {
	uintptr_t base;
	uint64_t length;
};

struct cufile {
	struct cufile_library lib;
	struct cufile_info info;
	pthread_rwlock_t lock; /* protects the ranges */
	struct range range[CUFILE_MEMORY_MAX];
	unsigned int nb_ranges;
};

/* Symbol names as in cufile.h, with the offsets of their function pointers. */
static const struct {
	const char *name;
	const char *older; /* name before CUDA 12.3; NULL: the same */
	size_t offset;
} wanted[] = {
#define SYMBOL(name, older, member)                                  \
	{                                                            \
		name, older, offsetof(struct cufile_symbols, member) \
	}
	SYMBOL("cuFileDriverOpen", NULL, driver_open),
	SYMBOL("cuFileDriverClose_v2", "cuFileDriverClose", driver_close),
	SYMBOL("cuFileDriverGetProperties", NULL, get_properties),
	SYMBOL("cuFileHandleRegister", NULL, handle_register),
	SYMBOL("cuFileHandleDeregister", NULL, handle_deregister),
	SYMBOL("cuFileBufRegister", NULL, buf_register),
	SYMBOL("cuFileBufDeregister", NULL, buf_deregister),
	SYMBOL("cuFileRead", NULL, read),
	SYMBOL("cuFileWrite", NULL, write),
#undef SYMBOL
};

const char *
cufile_mode_name(enum cufile_mode mode)
{
	static const char *const names[] = {
		[CUFILE_NVIDIA_FS] = "nvidia-fs",
		[CUFILE_P2PDMA] = "P2PDMA",
		[CUFILE_UNPROVEN] = "unproven",
		[CUFILE_COMPAT] = "compatibility mode",
	};

	return names[mode];
}

const char *
cufile_mode_caveat(enum cufile_mode mode)
{
	if (cufile_mode_is_direct(mode))
		return "";
	return mode == CUFILE_COMPAT ? ", which is not GPUDirect" : ", not proven to be GPUDirect";
}

static int
load_library(struct cufile_library *lib, char *message)
{
	const char *name;
	void *function;
	unsigned int i;

	lib->handle = dlopen(CUFILE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (lib->handle == NULL) {
		snprintf(message, PATH_MAX, "cuFile is not installed: %.3000s", dlerror());
		return -ENOENT;
	}
	for (i = 0; i < RTE_DIM(wanted); i++) {
		name = wanted[i].name;
		function = dlsym(lib->handle, name);
		if (function == NULL && wanted[i].older != NULL)
			function = dlsym(lib->handle, wanted[i].older);
		if (function == NULL) {
			snprintf(message, PATH_MAX, "%s lacks the symbol %s", CUFILE_LIBRARY, name);
			return -ENOTSUP;
		}
		/* POSIX guarantees that an object pointer holds a function's address */
		memcpy(RTE_PTR_ADD(&lib->symbols, wanted[i].offset), &function, sizeof(function));
	}
	return 0;
}

int
cufile_open(struct cufile **cufile, int16_t gpu, const char *directory, const char *stats,
	char message[PATH_MAX])
{
	struct cufile *c = calloc(1, sizeof(*c));
	int ret;

	if (c == NULL) {
		snprintf(message, PATH_MAX, "cannot allocate memory for cuFile");
		return -ENOMEM;
	}
	c->lib.gpu = gpu;
	pthread_rwlock_init(&c->lock, NULL);
	ret = load_library(&c->lib, message);
	if (ret == 0)
		ret = gpu_cuda_enter(gpu);
	if (ret == -ENODEV)
		snprintf(message, PATH_MAX, "cuFile requires memory of a gpu_cuda device");
	if (ret == 0) {
		ret = cufile_probe(&c->lib, directory, stats, &c->info, message);
		gpu_cuda_leave(gpu);
	}
	if (ret < 0) {
		cufile_close(c);
		return ret;
	}
	*cufile = c;
	return 0;
}

void
cufile_close(struct cufile *c)
{
	if (c == NULL)
		return;
	while (c->nb_ranges > 0)
		cufile_memory_remove(c, (const void *)c->range[0].base);
	if (c->lib.opened && cufile_enter(c) == 0) {
		(void)c->lib.symbols.driver_close();
		cufile_leave(c);
	}
	/* the library stays loaded, since its threads use its code */
	pthread_rwlock_destroy(&c->lock);
	free(c);
}

const struct cufile_info *
cufile_info_get(const struct cufile *c)
{
	return &c->info;
}

int
cufile_enter(const struct cufile *c)
{
	return gpu_cuda_enter(c->lib.gpu);
}

void
cufile_leave(const struct cufile *c)
{
	gpu_cuda_leave(c->lib.gpu);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void
forget_memory(const struct cufile *c, const void *base)
{
	if (cufile_enter(c) < 0)
		return;
	(void)c->lib.symbols.buf_deregister(base);
	cufile_leave(c);
}

int
cufile_memory_add(struct cufile *c, void *base, uint64_t length)
{
	struct cufile_error error;
	int ret;

	ret = cufile_enter(c);
	if (ret < 0)
		return ret;
	error = c->lib.symbols.buf_register(base, length, 0);
	cufile_leave(c);
	if (error.code != 0) {
		LOG(ERR, "cuFileBufRegister of %llu bytes: error %d (CUDA: %d)\n",
			(unsigned long long)length, error.code, error.cuda);
		return -EIO;
	}
	pthread_rwlock_wrlock(&c->lock);
	if (c->nb_ranges < CUFILE_MEMORY_MAX)
		c->range[c->nb_ranges++] = (struct range){(uintptr_t)base, length};
	else
		ret = -ENOSPC;
	pthread_rwlock_unlock(&c->lock);
	if (ret < 0)
		forget_memory(c, base);
	return ret;
}

void
cufile_memory_remove(struct cufile *c, const void *base)
{
	bool found = false;
	unsigned int i;

	pthread_rwlock_wrlock(&c->lock);
	for (i = 0; i < c->nb_ranges && !found; i++) {
		found = c->range[i].base == (uintptr_t)base;
		if (found)
			c->range[i] = c->range[--c->nb_ranges];
	}
	pthread_rwlock_unlock(&c->lock);
	if (found)
		forget_memory(c, base);
}

/* Find the registered range of an address: cuFile requires its base and an offset. */
static bool
find_range(struct cufile *c, uintptr_t address, uintptr_t *base)
{
	unsigned int i;

	*base = 0;
	pthread_rwlock_rdlock(&c->lock);
	for (i = 0; i < c->nb_ranges && *base == 0; i++) {
		if (address - c->range[i].base < c->range[i].length)
			*base = c->range[i].base;
	}
	pthread_rwlock_unlock(&c->lock);
	return *base != 0;
}

bool
cufile_memory_has(struct cufile *c, const void *address)
{
	uintptr_t base;

	return find_range(c, (uintptr_t)address, &base);
}

/* ---- files ----------------------------------------------------------------------------------- */

int
cufile_attach(const struct cufile *c, int fd, void **handle)
{
	struct cufile_error error;

	error = cufile_library_attach(&c->lib, fd, handle);
	if (error.code == 0)
		return 0;
	LOG(ERR, "cuFileHandleRegister: error %d (CUDA: %d)%s\n", error.code, error.cuda,
		cufile_library_hint(error.code));
	return -EIO;
}

void
cufile_detach(const struct cufile *c, void *handle)
{
	c->lib.symbols.handle_deregister(handle);
}

/*
 * Convert a result of cuFile: bytes, -1 with errno, or a negative error code that only cuFile uses.
 */
static ssize_t
result(const char *call, ssize_t n)
{
	if (n >= 0)
		return n;
	if (n == -1)
		return errno > 0 ? -errno : -EIO;
	LOG(ERR, "%s: error %zd%s\n", call, -n, cufile_library_hint((int)-n));
	return -EIO;
}

ssize_t
cufile_read(struct cufile *c, void *handle, void *to, uint64_t size, uint64_t offset)
{
	uintptr_t base;

	if (!find_range(c, (uintptr_t)to, &base))
		return -EFAULT;
	return result("cuFileRead",
		c->lib.symbols.read(
			handle, (void *)base, size, (off_t)offset, (off_t)((uintptr_t)to - base)));
}

ssize_t
cufile_write(struct cufile *c, void *handle, const void *from, uint64_t size, uint64_t offset)
{
	uintptr_t base;

	if (!find_range(c, (uintptr_t)from, &base))
		return -EFAULT;
	return result("cuFileWrite",
		c->lib.symbols.write(handle, (const void *)base, size, (off_t)offset,
			(off_t)((uintptr_t)from - base)));
}

#define PROBE_BYTES (1u << 20)
#define COMPAT	    "CUFILE_ALLOW_COMPAT_MODE" /* overrides properties.allow_compat_mode */

/* Result of a probe. */
struct trial {
	struct cufile_properties properties;
	bool has_counters; /* of nvidia-fs */
	uint64_t before;
	uint64_t after;
	int ret;
	char what[160]; /* what failed */
};

static struct cufile_error
cufile_library_attach(const struct cufile_library *lib, int fd, void **handle)
{
	struct cufile_descr descr = {.type = CUFILE_HANDLE_TYPE_FD, .handle.fd = fd};

	return lib->symbols.handle_register(handle, &descr);
}

static const char *
cufile_library_hint(int code)
{
	switch (code) {
	case CUFILE_BASE_ERROR + 1:
		return " (the driver does not start: no nvidia-fs, no P2PDMA)";
	case CUFILE_BASE_ERROR + 8:
		return " (not supported on this platform)";
	case CUFILE_BASE_ERROR + 27:
		return " (no entry of the disk in /run/udev/data, or no such file system)";
	default:
		return "";
	}
}

static void
note(struct trial *t, const char *call, struct cufile_error error)
{
	t->ret = -ENOTSUP;
	snprintf(t->what, sizeof(t->what), "%s: error %d (CUDA: %d)%s", call, error.code,
		error.cuda, cufile_library_hint(error.code));
}

static void
note_errno(struct trial *t, const char *what, int error)
{
	t->ret = error;
	snprintf(t->what, sizeof(t->what), "%s: %s", what, strerror(-error));
}

/*
 * Read the number of writes of nvidia-fs: `n=` of the line `Writes`, and `Write=` of `Ops`,
 * whichever changes.
 * @return false: no counters
 */
static bool
read_counters(const char *path, uint64_t *writes)
{
	FILE *f = fopen(path, "r");
	char line[512], *at;

	*writes = 0;
	if (f == NULL)
		return false;
	while (fgets(line, sizeof(line), f) != NULL) {
		at = NULL;
		if (strncmp(line, "Writes", 6) == 0)
			at = strstr(line, "n=");
		else if (strncmp(line, "Ops", 3) == 0)
			at = strstr(line, "Write=");
		if (at != NULL)
			*writes += strtoull(strchr(at, '=') + 1, NULL, 10);
	}
	fclose(f);
	return true;
}

/*
 * Create a named file. cuFile refuses O_TMPFILE and unnamed files: it reopens the file by its name.
 */
static int
make_file(const char *directory, char path[PATH_MAX])
{
	int fd;

	if (snprintf(path, PATH_MAX, "%s/.cufile_XXXXXX", directory) >= PATH_MAX)
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* on file systems without O_DIRECT, the error is ignored */
	(void)fcntl(fd, F_SETFL, O_DIRECT);
	return fd;
}

/* Compare the file with the pattern that was written from the GPU. */
static void
compare(struct trial *t, int fd, const uint8_t *pattern)
{
	uint8_t *found = aligned_alloc(4096, PROBE_BYTES);

	if (found == NULL)
		note_errno(t, "memory", -ENOMEM);
	else if (pread(fd, found, PROBE_BYTES, 0) != PROBE_BYTES)
		note_errno(t, "reading what cuFile wrote", errno > 0 ? -errno : -EIO);
	else if (memcmp(found, pattern, PROBE_BYTES) != 0)
		note_errno(t, "data read back from the file differ from those written", -EBADMSG);
	free(found);
}

static void
write_registered(struct cufile_library *lib, struct trial *t, int fd, const uint8_t *memory,
	const char *stats)
{
	struct cufile_error error;
	void *handle;
	ssize_t n;

	error = cufile_library_attach(lib, fd, &handle);
	if (error.code != 0) {
		note(t, "cuFileHandleRegister", error);
		return;
	}
	t->has_counters = read_counters(stats, &t->before);
	errno = 0;
	n = lib->symbols.write(handle, memory, PROBE_BYTES, 0, 0);
	(void)read_counters(stats, &t->after);
	if (n == -1)
		note_errno(t, "cuFileWrite", errno > 0 ? -errno : -EIO);
	else if (n != PROBE_BYTES)
		note(t, "cuFileWrite", (struct cufile_error){n < 0 ? (int)-n : 0, 0});
	lib->symbols.handle_deregister(handle);
}

static void
write_probe(struct cufile_library *lib, struct trial *t, int fd, const char *stats)
{
	uint8_t *pattern = aligned_alloc(4096, PROBE_BYTES), *memory = NULL;
	struct cufile_error error;
	unsigned int i;
	int ret;

	ret = pattern != NULL ? body_memory_alloc(lib->gpu, PROBE_BYTES, &memory) : -ENOMEM;
	for (i = 0; ret == 0 && i < PROBE_BYTES; i++)
		pattern[i] = i * 2654435761u >> 24;
	if (ret == 0)
		ret = body_memory_copy(lib->gpu, memory, pattern, PROBE_BYTES);
	if (ret < 0) {
		note_errno(t, "memory of the GPU", ret);
		goto out;
	}
	error = lib->symbols.buf_register(memory, PROBE_BYTES, 0);
	if (error.code != 0) {
		note(t, "cuFileBufRegister", error);
		goto out;
	}
	write_registered(lib, t, fd, memory, stats);
	(void)lib->symbols.buf_deregister(memory);
	if (t->ret == 0)
		compare(t, fd, pattern);
out:
	if (memory != NULL)
		body_memory_free(lib->gpu, memory, PROBE_BYTES);
	free(pattern);
}

/* Open the driver in the current environment, and write. On success the driver stays open. */
static void
try_once(struct cufile_library *lib, const char *directory, const char *stats, struct trial *t)
{
	struct cufile_error error;
	char path[PATH_MAX];
	int fd;

	memset(t, 0, sizeof(*t));
	error = lib->symbols.driver_open();
	if (error.code != 0) {
		note(t, "cuFileDriverOpen", error);
		return;
	}
	lib->opened = true;
	error = lib->symbols.get_properties(&t->properties);
	if (error.code != 0)
		memset(&t->properties, 0, sizeof(t->properties));
	fd = make_file(directory, path);
	if (fd < 0) {
		note_errno(t, directory, fd);
	} else {
		write_probe(lib, t, fd, stats);
		(void)unlink(path);
		close(fd);
	}
	if (t->ret < 0) {
		(void)lib->symbols.driver_close();
		lib->opened = false;
	}
}

static bool
nvidia_fs_did_it(const struct trial *t, struct cufile_info *info)
{
	if (!t->has_counters || t->after <= t->before)
		return false;
	info->mode = CUFILE_NVIDIA_FS;
	snprintf(info->proof, sizeof(info->proof),
		"the counter of writes of nvidia-fs %u.%u rose from %" PRIu64 " to %" PRIu64 " "
		"during a write of %u bytes",
		t->properties.nvfs_major, t->properties.nvfs_minor, t->before, t->after,
		PROBE_BYTES);
	return true;
}

/* Determine the path of a write with compatibility mode forbidden. */
static void
describe_direct(const struct trial *t, struct cufile_info *info)
{
	const struct cufile_properties *p = &t->properties;

	if (nvidia_fs_did_it(t, info))
		return;
	if ((p->feature_flags & CUFILE_FEATURE_P2P) != 0 ||
		(p->status_flags & CUFILE_STATUS_NVME_P2P) != 0) {
		info->mode = CUFILE_P2PDMA;
		snprintf(info->proof, sizeof(info->proof),
			"it writes with compatibility mode disabled and reports P2PDMA (status "
			"%#x, features %#x); %s",
			p->status_flags, p->feature_flags,
			t->has_counters ? "nvidia-fs counted nothing" : "nvidia-fs is not loaded");
		return;
	}
	info->mode = CUFILE_UNPROVEN;
	snprintf(info->proof, sizeof(info->proof),
		"it writes with compatibility mode disabled, but does not report P2PDMA (status "
		"%#x, features %#x); %s",
		p->status_flags, p->feature_flags,
		t->has_counters ? "nvidia-fs counted nothing (rw_stats_enabled?)"
				: "nvidia-fs is not loaded");
}

static int
cufile_probe(struct cufile_library *lib, const char *directory, const char *stats,
	struct cufile_info *info, char message[PATH_MAX])
{
	const bool told = getenv(COMPAT) != NULL;
	struct trial strict, t;

	strict.what[0] = '\0';
	if (!told) {
		(void)setenv(COMPAT, "false", 1);
		try_once(lib, directory, stats, &strict);
		(void)unsetenv(COMPAT);
		/* a library that ignores the setting shows it in control_flags */
		if (strict.ret == 0 && !(strict.properties.control_flags & CUFILE_CONTROL_COMPAT)) {
			describe_direct(&strict, info);
			return 0;
		}
		if (strict.ret == 0 && nvidia_fs_did_it(&strict, info))
			return 0;
		if (strict.ret == 0) {
			(void)lib->symbols.driver_close();
			lib->opened = false;
			snprintf(strict.what, sizeof(strict.what),
				"compatibility mode cannot be disabled: %s has no effect", COMPAT);
		}
		(void)setenv(COMPAT, "true", 1);
	}
	try_once(lib, directory, stats, &t);
	if (!told)
		(void)unsetenv(COMPAT);
	if (t.ret < 0) {
		snprintf(message, PATH_MAX, "cuFile does not work in %.2000s: %s%s%s", directory,
			t.what, strict.what[0] != '\0' ? "; without compatibility mode " : "",
			strict.what);
		return t.ret;
	}
	if (nvidia_fs_did_it(&t, info))
		return 0;
	info->mode = CUFILE_COMPAT;
	snprintf(info->proof, sizeof(info->proof), "%s; %s",
		told ? COMPAT " is set, so compatibility mode was not disabled" : strict.what,
		t.has_counters ? "nvidia-fs counted nothing" : "nvidia-fs is not loaded");
	return 0;
}
