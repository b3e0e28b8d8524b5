/* SPDX-License-Identifier: BSD-3-Clause */

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_log.h>

#include "cufile_private.h"
#include "gpu_cuda.h"

RTE_LOG_REGISTER(cufile_logtype, braggline.store.cufile, NOTICE);

struct range {
	uintptr_t base;
	uint64_t length;
};

struct cufile {
	struct cufile_library lib;
	struct cufile_info info;
	pthread_rwlock_t lock; /* of ranges */
	struct range range[CUFILE_MEMORY_MAX];
	unsigned int nb_ranges;
};

/* Names as in cufile.h, by where their functions belong. */
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
		snprintf(message, PATH_MAX, "no cuFile on this machine: %.3000s", dlerror());
		return -ENOENT;
	}
	for (i = 0; i < RTE_DIM(wanted); i++) {
		name = wanted[i].name;
		function = dlsym(lib->handle, name);
		if (function == NULL && wanted[i].older != NULL)
			function = dlsym(lib->handle, wanted[i].older);
		if (function == NULL) {
			snprintf(message, PATH_MAX, "%s has no %s", CUFILE_LIBRARY, name);
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
	int rc;

	if (c == NULL) {
		snprintf(message, PATH_MAX, "no memory for cuFile");
		return -ENOMEM;
	}
	c->lib.gpu = gpu;
	pthread_rwlock_init(&c->lock, NULL);
	rc = load_library(&c->lib, message);
	if (rc == 0)
		rc = gpu_cuda_enter(gpu);
	if (rc == -ENODEV)
		snprintf(message, PATH_MAX, "cuFile wants memory of a gpu_cuda device");
	if (rc == 0) {
		rc = cufile_probe(&c->lib, directory, stats, &c->info, message);
		gpu_cuda_leave(gpu);
	}
	if (rc < 0) {
		cufile_close(c);
		return rc;
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
	/* the library stays: it has threads of its own, which must not lose their code */
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
	int rc;

	rc = cufile_enter(c);
	if (rc < 0)
		return rc;
	error = c->lib.symbols.buf_register(base, length, 0);
	cufile_leave(c);
	if (error.code != 0) {
		rte_log(RTE_LOG_ERR, cufile_logtype,
			"store: cuFileBufRegister of %llu bytes: error %d (CUDA: %d)\n",
			(unsigned long long)length, error.code, error.cuda);
		return -EIO;
	}
	pthread_rwlock_wrlock(&c->lock);
	if (c->nb_ranges < CUFILE_MEMORY_MAX)
		c->range[c->nb_ranges++] = (struct range){(uintptr_t)base, length};
	else
		rc = -ENOSPC;
	pthread_rwlock_unlock(&c->lock);
	if (rc < 0)
		forget_memory(c, base);
	return rc;
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

/* What cuFile wants to be told is where the memory begins that it knows, and how far behind. */
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
	rte_log(RTE_LOG_ERR, cufile_logtype, "store: cuFileHandleRegister: error %d (CUDA: %d)%s\n",
		error.code, error.cuda, cufile_library_hint(error.code));
	return -EIO;
}

void
cufile_detach(const struct cufile *c, void *handle)
{
	c->lib.symbols.handle_deregister(handle);
}

/* cuFile: bytes, -1 with errno, or the negative code of an error of its own. */
static ssize_t
result(const char *call, ssize_t n)
{
	if (n >= 0)
		return n;
	if (n == -1)
		return errno > 0 ? -errno : -EIO;
	rte_log(RTE_LOG_ERR, cufile_logtype, "store: %s: error %zd%s\n", call, -n,
		cufile_library_hint((int)-n));
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
