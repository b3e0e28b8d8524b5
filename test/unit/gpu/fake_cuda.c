/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libcuda.so.1 without a GPU. It does not use the driver's headers, so it cannot repeat their
 * errors.
 */
#include <pthread.h>
#include <sched.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda.h"

/* From the CUDA driver API reference; the driver has its own list, checked against cuda.h. */
enum {
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	NOT_FOUND = 500,
	ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713,
};

enum {
	DEPTH = 16,
	PAGE = 4096,
	FOREIGN = 0xf00,  /* a context of the application */
	PRIMARY = 0x1000, /* + device */
	MEMORY = 1 << 30,
};

/* [start, end) of device memory or of registered host memory */
struct extent {
	uintptr_t start;
	uintptr_t end;
	void *block; /* from malloc() */
	bool foreign;
};

static struct fake_cuda fake = {.ordering = 100, .flush_options = 1, .dmabuf = 1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *device_memory, *host_memory; /* tsearch() trees of extents */
static unsigned int retained[FAKE_DEVICES];
static __thread uintptr_t stack[DEPTH];
static __thread unsigned int depth;

struct fake_cuda *
fake_cuda(void)
{
	return &fake;
}

unsigned int
fake_cuda_depth(void)
{
	return depth;
}

uintptr_t
fake_cuda_current(void)
{
	return depth == 0 ? 0 : stack[depth - 1];
}

void
fake_cuda_push_foreign(void)
{
	stack[depth++] = FOREIGN;
}

void
fake_cuda_pop_foreign(void)
{
	depth--;
}

/* Every fake function begins with it: 0, or the failure that the test has set for this function. */
static int
failure(const char *name)
{
	int result = 0;

	pthread_mutex_lock(&lock);
	if (fake.fail != NULL && strcmp(name, fake.fail) == 0) {
		if (fake.fail_skip > 0)
			fake.fail_skip--;
		else
			result = fake.fail_with;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

#define ENTER()                                   \
	do {                                      \
		int failure_ = failure(__func__); \
		if (failure_ != 0)                \
			return failure_;          \
	} while (0)

/* A context that the caller has retained must be current. */
#define ENTER_CURRENT()                                                                        \
	do {                                                                                   \
		uintptr_t current_ = fake_cuda_current();                                      \
		ENTER();                                                                       \
		if (current_ < PRIMARY || current_ >= PRIMARY + FAKE_DEVICES ||                \
			__atomic_load_n(&retained[current_ - PRIMARY], __ATOMIC_RELAXED) == 0) \
			return INVALID_CONTEXT;                                                \
	} while (0)

static int
extent_compare(const void *a, const void *b)
{
	const struct extent *left = a, *right = b;

	if (left->end <= right->start)
		return -1;
	return left->start >= right->end;
}

static struct extent *
extent_find(void **tree, uintptr_t start, uintptr_t end)
{
	struct extent wanted = {.start = start, .end = end}, **node;

	node = tfind(&wanted, tree, extent_compare);
	return node == NULL ? NULL : *node;
}

static void
extent_add(void **tree, uintptr_t start, uintptr_t end, void *block, bool foreign)
{
	struct extent *extent = malloc(sizeof(*extent));

	if (extent == NULL)
		abort();
	*extent = (struct extent){.start = start, .end = end, .block = block, .foreign = foreign};
	tsearch(extent, tree, extent_compare);
}

static void
extent_drop(void **tree, struct extent *extent)
{
	tdelete(extent, tree, extent_compare);
	free(extent->block);
	free(extent);
}

static int
cuInit(unsigned int flags)
{
	ENTER();
	return flags == 0 ? 0 : INVALID_VALUE;
}

static int
cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

static int
cuGetErrorName(int error, const char **name)
{
	*name = error == OUT_OF_MEMORY	      ? "CUDA_ERROR_OUT_OF_MEMORY"
		: error == ALREADY_REGISTERED ? "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
					      : "CUDA_ERROR_OF_THE_FAKE";
	return 0;
}

static int
cuGetErrorString(int error, const char **text)
{
	*text = "as the test wants it";
	return 0;
}

static int
cuDeviceGetCount(int *count)
{
	ENTER();
	*count = FAKE_DEVICES;
	return 0;
}

static int
cuDeviceGet(int *device, int ordinal)
{
	ENTER();
	if (ordinal < 0 || ordinal >= FAKE_DEVICES)
		return INVALID_DEVICE;
	*device = ordinal;
	return 0;
}

static int
cuDeviceGetName(char *name, int len, int device)
{
	ENTER();
	snprintf(name, len, "Fake GPU %d", device);
	return 0;
}

/* version 9020: the UUID of the GPU, not the requested version */
static int
cuDeviceGetUuid(char uuid[16], int device)
{
	memset(uuid, 0xee, 16);
	return 0;
}

static int
cuDeviceGetUuid_v2(char uuid[16], int device)
{
	ENTER();
	for (int i = 0; i < 16; i++)
		uuid[i] = (char)(0x10 * (device + 1) + i);
	return 0;
}

static int
cuDeviceGetByPCIBusId(int *device, const char *pci)
{
	unsigned int domain, bus, dev, function;

	ENTER();
	if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &dev, &function) != 4)
		return INVALID_VALUE;
	if (domain != 0 || bus < 0xa0 || bus >= 0xa0 + FAKE_DEVICES || dev != 0 || function != 0)
		return INVALID_DEVICE;
	*device = (int)bus - 0xa0;
	return 0;
}

static int
cuDeviceGetPCIBusId(char *pci, int len, int device)
{
	ENTER();
	snprintf(pci, len, "0000:A%d:00.0", device);
	return 0;
}

static int
cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	ENTER();
	*bytes = MEMORY;
	return 0;
}

static int
cuDeviceGetAttribute(int *value, int attribute, int device)
{
	ENTER();
	switch (attribute) {
	case 16: /* MULTIPROCESSOR_COUNT */
		*value = 132;
		return 0;
	case 116: /* GPU_DIRECT_RDMA_SUPPORTED */
		*value = 1;
		return 0;
	case 117: /* GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS */
		*value = fake.flush_options;
		return 0;
	case 118: /* GPU_DIRECT_RDMA_WRITES_ORDERING */
		*value = fake.ordering;
		return 0;
	case 124: /* DMA_BUF_SUPPORTED */
		*value = fake.dmabuf;
		return 0;
	default:
		return INVALID_VALUE;
	}
}

static int
cuDevicePrimaryCtxRetain(void **context, int device)
{
	ENTER();
	*context = (void *)(uintptr_t)(PRIMARY + device);
	__atomic_fetch_add(&retained[device], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&fake.contexts, 1, __ATOMIC_RELAXED);
	return 0;
}

static int
cuDevicePrimaryCtxRelease_v2(int device)
{
	ENTER();
	if (__atomic_fetch_sub(&retained[device], 1, __ATOMIC_RELAXED) == 0)
		abort();
	__atomic_fetch_sub(&fake.contexts, 1, __ATOMIC_RELAXED);
	return 0;
}

static int
cuCtxPushCurrent_v2(void *context)
{
	ENTER();
	if (depth == DEPTH)
		abort();
	stack[depth++] = (uintptr_t)context;
	__atomic_fetch_add(&fake.pushes, 1, __ATOMIC_RELAXED);
	return 0;
}

static int
cuCtxPopCurrent_v2(void **context)
{
	ENTER();
	if (depth == 0)
		return INVALID_CONTEXT;
	*context = (void *)stack[--depth];
	return 0;
}

/* Small allocations are aligned to 512 bytes, as by CUDA, and not zeroed. */
static int
cuMemAlloc_v2(unsigned long long *ptr, size_t size)
{
	const size_t boundary = (size_t)2 << 20;
	uintptr_t start;
	void *block;

	ENTER_CURRENT();
	if (size > MEMORY)
		return OUT_OF_MEMORY;
	block = malloc(size + 2 * boundary);
	if (block == NULL)
		return OUT_OF_MEMORY;
	start = ((uintptr_t)block + boundary) & ~(boundary - 1);
	if (size < boundary)
		start += 512;
	memset((void *)start, 0xa5, size);
	pthread_mutex_lock(&lock);
	extent_add(&device_memory, start, start + size, block, false);
	fake.allocated++;
	pthread_mutex_unlock(&lock);
	*ptr = start;
	return 0;
}

static int
cuMemFree_v2(unsigned long long ptr)
{
	struct extent *extent;
	int result = INVALID_VALUE;

	ENTER_CURRENT();
	pthread_mutex_lock(&lock);
	extent = extent_find(&device_memory, ptr, ptr + 1);
	if (extent != NULL && extent->start == ptr) {
		extent_drop(&device_memory, extent);
		fake.allocated--;
		result = 0;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static int
cuMemsetD8_v2(unsigned long long ptr, unsigned char value, size_t size)
{
	struct extent *extent;

	ENTER_CURRENT();
	pthread_mutex_lock(&lock);
	extent = extent_find(&device_memory, ptr, ptr + 1);
	pthread_mutex_unlock(&lock);
	if (extent == NULL || ptr + size > extent->end)
		return INVALID_VALUE;
	memset((void *)(uintptr_t)ptr, value, size);
	return 0;
}

/* At most one stream per device, which does not synchronize with others. */
static int
cuStreamCreate(void **stream, unsigned int flags)
{
	ENTER_CURRENT();
	if (flags != 1)
		return INVALID_VALUE;
	*stream = (void *)fake_cuda_current();
	__atomic_fetch_add(&fake.streams, 1, __ATOMIC_RELAXED);
	return 0;
}

static int
cuStreamDestroy_v2(void *stream)
{
	ENTER_CURRENT();
	if ((uintptr_t)stream != fake_cuda_current())
		return INVALID_VALUE;
	__atomic_fetch_sub(&fake.streams, 1, __ATOMIC_RELAXED);
	return 0;
}

static int
cuStreamSynchronize(void *stream)
{
	ENTER_CURRENT();
	if ((uintptr_t)stream != fake_cuda_current())
		return INVALID_VALUE;
	__atomic_store_n(&fake.copies, 0, __ATOMIC_RELAXED);
	return 0;
}

static int
cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t size, void *stream)
{
	ENTER_CURRENT();
	if ((uintptr_t)stream != fake_cuda_current())
		return INVALID_VALUE;
	memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
	__atomic_fetch_add(&fake.copies, 1, __ATOMIC_RELAXED);
	return 0;
}

static int
cuPointerSetAttribute(const void *value, int attribute, unsigned long long ptr)
{
	const unsigned int *on = value;
	struct extent *extent;

	ENTER_CURRENT();
	pthread_mutex_lock(&lock);
	extent = extent_find(&device_memory, ptr, ptr + 1);
	if (extent != NULL)
		fake.syncs++;
	pthread_mutex_unlock(&lock);
	return extent != NULL && attribute == 6 && *on == 1 ? 0 : INVALID_VALUE;
}

static int
host_register(void *ptr, size_t size, bool foreign)
{
	uintptr_t start = (uintptr_t)ptr;
	int result = ALREADY_REGISTERED;

	sched_yield(); /* exposes a caller that holds no lock */
	pthread_mutex_lock(&lock);
	if (extent_find(&host_memory, start, start + size) == NULL) {
		extent_add(&host_memory, start, start + size, NULL, foreign);
		fake.registered += !foreign;
		fake.registers += !foreign;
		result = 0;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

static int
host_unregister(void *ptr, bool foreign)
{
	struct extent *extent;
	int result = NOT_REGISTERED;

	sched_yield();
	pthread_mutex_lock(&lock);
	extent = extent_find(&host_memory, (uintptr_t)ptr, (uintptr_t)ptr + 1);
	if (extent != NULL && extent->start == (uintptr_t)ptr && extent->foreign == foreign) {
		extent_drop(&host_memory, extent);
		fake.registered -= !foreign;
		result = 0;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int
fake_cuda_register_foreign(void *ptr, size_t size)
{
	return host_register(ptr, size, true);
}

int
fake_cuda_unregister_foreign(void *ptr)
{
	return host_unregister(ptr, true);
}

static int
cuMemHostRegister_v2(void *ptr, size_t size, unsigned int flags)
{
	ENTER_CURRENT();
	/* whole pages, PORTABLE | DEVICEMAP: the driver must always pass these */
	if ((uintptr_t)ptr % PAGE != 0 || size % PAGE != 0 || size == 0 || flags != 3)
		return INVALID_VALUE;
	return host_register(ptr, size, false);
}

static int
cuMemHostUnregister(void *ptr)
{
	ENTER_CURRENT();
	return host_unregister(ptr, false);
}

static int
cuMemHostGetDevicePointer_v2(unsigned long long *device, void *host, unsigned int flags)
{
	struct extent *extent;

	ENTER_CURRENT();
	pthread_mutex_lock(&lock);
	extent = extent_find(&host_memory, (uintptr_t)host, (uintptr_t)host + 1);
	pthread_mutex_unlock(&lock);
	if (extent == NULL || flags != 0)
		return INVALID_VALUE;
	*device = (uintptr_t)host + fake.host_skew;
	return 0;
}

static int
cuMemGetHandleForAddressRange(
	void *handle, unsigned long long ptr, size_t size, int type, unsigned long long flags)
{
	struct extent *extent;

	ENTER_CURRENT();
	pthread_mutex_lock(&lock);
	extent = extent_find(&device_memory, ptr, ptr + 1);
	pthread_mutex_unlock(&lock);
	if (type != 1 || flags != 0 || ptr % PAGE != 0 || size % PAGE != 0 || extent == NULL ||
		ptr + size > extent->end)
		return INVALID_VALUE;
	*(int *)handle = memfd_create("dma-buf", MFD_CLOEXEC);
	return *(int *)handle < 0 || ftruncate(*(int *)handle, (off_t)size) < 0 ? OUT_OF_MEMORY : 0;
}

static int
cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	ENTER_CURRENT();
	if (target != 0 || scope != 100)
		return INVALID_VALUE;
	__atomic_fetch_add(&fake.flushes, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Variants that must never be called: they have other parameters, from older or newer versions. */
static int
other_prototype(void)
{
	fputs("fake libcuda: a symbol of the wrong version was called\n", stderr);
	abort();
}

/* Versions of each name in ascending order; the newest up to the requested one is returned. */
static const struct {
	const char *name;
	int version;
	bool wanted;
	void *function;
} variants[] = {
	{"cuInit", 2000, true, cuInit},
	{"cuDriverGetVersion", 2020, true, cuDriverGetVersion},
	{"cuGetErrorName", 6000, true, cuGetErrorName},
	{"cuGetErrorString", 6000, true, cuGetErrorString},
	{"cuDeviceGetCount", 2000, true, cuDeviceGetCount},
	{"cuDeviceGet", 2000, true, cuDeviceGet},
	{"cuDeviceGet", 14000, false, other_prototype},
	{"cuDeviceGetName", 2000, true, cuDeviceGetName},
	{"cuDeviceGetUuid", 9020, false, cuDeviceGetUuid},
	{"cuDeviceGetUuid", 11040, true, cuDeviceGetUuid_v2},
	{"cuDeviceGetByPCIBusId", 4010, true, cuDeviceGetByPCIBusId},
	{"cuDeviceGetPCIBusId", 4010, true, cuDeviceGetPCIBusId},
	{"cuDeviceTotalMem", 2000, false, other_prototype},
	{"cuDeviceTotalMem", 3020, true, cuDeviceTotalMem_v2},
	{"cuDeviceGetAttribute", 2000, true, cuDeviceGetAttribute},
	{"cuDevicePrimaryCtxRetain", 7000, true, cuDevicePrimaryCtxRetain},
	{"cuDevicePrimaryCtxRetain", 13000, false, other_prototype},
	{"cuDevicePrimaryCtxRelease", 7000, false, other_prototype},
	{"cuDevicePrimaryCtxRelease", 11000, true, cuDevicePrimaryCtxRelease_v2},
	{"cuCtxPushCurrent", 2000, false, other_prototype},
	{"cuCtxPushCurrent", 4000, true, cuCtxPushCurrent_v2},
	{"cuCtxPopCurrent", 2000, false, other_prototype},
	{"cuCtxPopCurrent", 4000, true, cuCtxPopCurrent_v2},
	{"cuMemAlloc", 2000, false, other_prototype},
	{"cuMemAlloc", 3020, true, cuMemAlloc_v2},
	{"cuMemAlloc", 13000, false, other_prototype},
	{"cuMemFree", 2000, false, other_prototype},
	{"cuMemFree", 3020, true, cuMemFree_v2},
	{"cuMemsetD8", 2000, false, other_prototype},
	{"cuMemsetD8", 3020, true, cuMemsetD8_v2},
	{"cuStreamCreate", 2000, true, cuStreamCreate},
	{"cuStreamDestroy", 2000, false, other_prototype},
	{"cuStreamDestroy", 4000, true, cuStreamDestroy_v2},
	{"cuStreamSynchronize", 2000, true, cuStreamSynchronize},
	{"cuStreamSynchronize", 7000, false, other_prototype},
	{"cuMemcpyAsync", 4000, true, cuMemcpyAsync},
	{"cuMemcpyAsync", 7000, false, other_prototype},
	{"cuPointerSetAttribute", 6000, true, cuPointerSetAttribute},
	{"cuMemHostRegister", 4000, false, other_prototype},
	{"cuMemHostRegister", 6050, true, cuMemHostRegister_v2},
	{"cuMemHostUnregister", 4000, true, cuMemHostUnregister},
	{"cuMemHostGetDevicePointer", 2020, false, other_prototype},
	{"cuMemHostGetDevicePointer", 3020, true, cuMemHostGetDevicePointer_v2},
	{"cuMemGetHandleForAddressRange", 11070, true, cuMemGetHandleForAddressRange},
	{"cuFlushGPUDirectRDMAWrites", 11030, true, cuFlushGPUDirectRDMAWrites},
};

int
fake_cuda_version(const char *name)
{
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
		if (variants[i].wanted && strcmp(variants[i].name, name) == 0)
			return variants[i].version;
	return 0;
}

int cuGetProcAddress_v2(
	const char *symbol, void **function, int version, uint64_t flags, int *status);

int
cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status)
{
	unsigned int at = fake.asked++ % (sizeof(fake.symbols) / sizeof(fake.symbols[0]));

	snprintf(fake.symbols[at].name, sizeof(fake.symbols[at].name), "%s", symbol);
	fake.symbols[at].version = version;
	*function = NULL;
	*status = 1; /* SYMBOL_NOT_FOUND */
	if (fake.hide != NULL && strcmp(symbol, fake.hide) == 0) {
		*status = fake.hide_status;
		return 0; /* success with another symbol status */
	}
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
		if (strcmp(variants[i].name, symbol) != 0)
			continue;
		if (variants[i].version > version) {
			*status = *function == NULL ? 2 : 0; /* VERSION_NOT_SUFFICIENT */
			break;
		}
		*function = variants[i].function;
		*status = 0;
	}
	return *function == NULL ? NOT_FOUND : 0;
}
