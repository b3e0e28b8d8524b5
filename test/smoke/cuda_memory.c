/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the gpu_cuda driver on the GPU of this machine, where a fake driver is not sufficient: CUDA
 * must agree with it. Prints each step and its time. Exit status 77 if there is no GPU.
 * Usage: cuda_memory [arguments of gpu_cuda]
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_mbuf.h>

#include "gpu_cuda.h"

#define MIB ((size_t)1 << 20)

static int16_t gpu;
static unsigned int failures;

/* The functions of the CUDA driver that another program would use. */
static struct {
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*current)(void **context);
	int (*to_device)(unsigned long long device, const void *host, size_t size);
	int (*to_host)(void *host, unsigned long long device, size_t size);
	int (*pci)(char *pci, int len, int device);
} cuda;

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

#define CHECK(condition)                                                                    \
	do {                                                                                \
		if (!(condition)) {                                                         \
			printf("FAILED line %d: %s (rte_errno %d)\n", __LINE__, #condition, \
				rte_errno);                                                 \
			failures++;                                                         \
		}                                                                           \
	} while (0)

static int
cuda_load(void)
{
	static const char *const names[] = {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
		"cuCtxGetCurrent", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuDeviceGetPCIBusId"};
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *function;

	for (unsigned int i = 0; i < RTE_DIM(names); i++) {
		function = library == NULL ? NULL : dlsym(library, names[i]);
		if (function == NULL)
			return -1;
		memcpy((char *)&cuda + i * sizeof(function), &function, sizeof(function));
	}
	return 0;
}

static bool
no_context_is_current(void)
{
	void *context = &context;

	return cuda.current(&context) == 0 && context == NULL;
}

static void
allocations(const struct rte_gpu_info *info)
{
	static const struct {
		size_t size;
		unsigned int align;
	} cases[] = {{1, 0}, {1000, 4096}, {65536, 0}, {65537, 65536}, {3 << 20, 4 << 20},
		{(size_t)1 << 30, 0}, {(size_t)16 << 30, 0}};

	for (unsigned int i = 0; i < RTE_DIM(cases); i++) {
		uint8_t edge[64] = {1}, zero[64] = {0};
		size_t last = RTE_ALIGN_CEIL(cases[i].size, (size_t)65536) - sizeof(edge);
		double start = now(), end;
		uint8_t *ptr;

		if (cases[i].size > info->total_memory / 2)
			continue;
		ptr = rte_gpu_mem_alloc(gpu, cases[i].size, cases[i].align);
		end = now();
		CHECK(ptr != NULL);
		CHECK((uintptr_t)ptr % RTE_MAX(cases[i].align, 65536u) == 0);
		cuda.push((void *)(uintptr_t)info->context);
		CHECK(cuda.to_host(edge, (uintptr_t)ptr, sizeof(edge)) == 0 &&
			memcmp(edge, zero, sizeof(edge)) == 0);
		memset(edge, 1, sizeof(edge));
		CHECK(cuda.to_host(edge, (uintptr_t)ptr + last, sizeof(edge)) == 0 &&
			memcmp(edge, zero, sizeof(edge)) == 0);
		cuda.pop(&(void *){NULL});
		CHECK(rte_gpu_mem_free(gpu, ptr + 0x700) != 0);
		printf("alloc %11zu bytes, align %7u: %p, zero, %.2f ms\n", cases[i].size,
			cases[i].align, ptr, end - start);
		CHECK(rte_gpu_mem_free(gpu, ptr) == 0);
	}
	CHECK(rte_gpu_mem_alloc(gpu, info->total_memory + 1, 0) == NULL && rte_errno == E2BIG);
	CHECK(rte_gpu_mem_alloc(gpu, info->total_memory, 0) == NULL && rte_errno == ENOMEM);
}

static uint8_t *
host_memory(size_t size)
{
	uint8_t *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (ptr == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return ptr;
}

static void
registrations(void)
{
	static const size_t count = 60000, step = 3000;
	size_t size = 512 * MIB;
	uint8_t *block = host_memory(size);
	double start = now(), middle;

	CHECK(rte_gpu_mem_register(gpu, size, block) == 0);
	middle = now();
	CHECK(rte_gpu_mem_unregister(gpu, block) == 0);
	printf("register %zu MiB: %.1f ms, unregister %.1f ms\n", size / MIB, middle - start,
		now() - middle);

	start = now();
	for (size_t i = 0; i < count; i++)
		CHECK(rte_gpu_mem_register(gpu, step, block + i * step) == 0);
	middle = now();
	for (size_t i = 0; i < count; i++)
		CHECK(rte_gpu_mem_unregister(gpu, block + i * step) == 0);
	printf("register %zu blocks of %zu bytes that share pages: %.2f us each, unregister "
	       "%.2f us each\n",
		count, step, (middle - start) * 1e3 / (double)count,
		(now() - middle) * 1e3 / (double)count);
	munmap(block, size);
}

/*
 * Copy from host to device to host between two registered blocks; the first replaces a smaller one.
 */
static void
copies(const struct rte_gpu_info *info)
{
	const size_t size = 64 * MIB;
	uint8_t *from = host_memory(size), *to = host_memory(size);
	uint8_t *device = rte_gpu_mem_alloc(gpu, size, 0);
	uint32_t *words = (uint32_t *)from;

	CHECK(device != NULL);
	for (size_t i = 0; i < size / sizeof(*words); i++)
		words[i] = (uint32_t)(i * 2654435761u + 12345);
	CHECK(rte_gpu_mem_register(gpu, size, from) == 0);
	CHECK(rte_gpu_mem_register(gpu, 100, from + 5000) == 0);
	CHECK(rte_gpu_mem_register(gpu, size, to) == 0);
	cuda.push((void *)(uintptr_t)info->context);
	CHECK(cuda.to_device((uintptr_t)device, from, size) == 0);
	CHECK(cuda.to_host(to, (uintptr_t)device, size) == 0);
	cuda.pop(&(void *){NULL});
	CHECK(memcmp(from, to, size) == 0);
	printf("copy %zu MiB registered to device to registered: same bytes\n", size / MIB);
	CHECK(rte_gpu_mem_unregister(gpu, from) == 0);
	CHECK(rte_gpu_mem_unregister(gpu, from + 5000) == 0);
	CHECK(rte_gpu_mem_unregister(gpu, to) == 0);
	CHECK(rte_gpu_mem_free(gpu, device) == 0);
	munmap(from, size);
	munmap(to, size);
}

/* Export a part of an allocation. */
static void
dmabuf_of(const uint8_t *ptr, size_t size)
{
	uint64_t offset;
	int fd = -1, ret;

	ret = gpu_cuda_dmabuf_export(gpu, ptr, size, &fd, &offset);
	if (ret == 0) {
		const long long held = lseek(fd, 0, SEEK_END);

		printf("dma-buf of %zu bytes: fd %d holds %lld bytes, offset %" PRIu64 "\n", size,
			fd, held, offset);
		CHECK(offset == (uintptr_t)ptr % ((size_t)64 << 10));
		CHECK(held >= (long long)(offset + size));
		close(fd);
	} else {
		printf("dma-buf of %zu bytes: %s\n", size, rte_strerror(-ret));
		CHECK(ret == -ENOTSUP);
	}
}

static void
dmabuf(void)
{
	static const size_t sizes[] = {1000, 100000, (size_t)64 << 20};

	for (unsigned int i = 0; i < RTE_DIM(sizes); i++) {
		uint8_t *ptr = rte_gpu_mem_alloc(gpu, sizes[i], 0);

		CHECK(ptr != NULL);
		dmabuf_of(ptr, sizes[i]);
		dmabuf_of(ptr + sizes[i] / 2 + 1, sizes[i] / 4);
		CHECK(rte_gpu_mem_free(gpu, ptr) == 0);
	}
}

static void
driver_copies(void)
{
	const size_t size = 64 * MIB;
	uint8_t *block = host_memory(2 * size), *back = block + size;
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, size, 0);
	double start, in, out;

	CHECK(ptr != NULL);
	for (size_t i = 0; i < size; i += 4)
		*(uint32_t *)(void *)(block + i) = (uint32_t)i;
	CHECK(rte_gpu_mem_register(gpu, 2 * size, block) == 0);
	start = now();
	CHECK(gpu_cuda_copy(gpu, ptr, block, size) == 0);
	in = now() - start;
	start = now();
	CHECK(gpu_cuda_copy(gpu, back, ptr, size) == 0);
	out = now() - start;
	CHECK(memcmp(block, back, size) == 0);
	CHECK(rte_gpu_mem_unregister(gpu, block) == 0);
	CHECK(rte_gpu_mem_free(gpu, ptr) == 0);
	printf("gpu_cuda_copy of 64 MiB: %.1f GB/s to the GPU, %.1f back\n",
		(double)size / in / 1e6, (double)size / out / 1e6);
	munmap(block, 2 * size);
}

static void
cpu_map(void)
{
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, 4096, 0);
	uint8_t *mapped = rte_gpu_mem_cpu_map(gpu, 4096, ptr);

	if (mapped != NULL) {
		mapped[0] = 42;
		CHECK(mapped[0] == 42);
		CHECK(rte_gpu_mem_cpu_unmap(gpu, ptr) == 0);
	}
	printf("cpu_map: %s\n", mapped != NULL ? "through GDRCopy" : "not here");
	CHECK(rte_gpu_mem_free(gpu, ptr) == 0);
}

static void
barriers(void)
{
	const unsigned int count = 100000;
	double start = now();

	for (unsigned int i = 0; i < count; i++)
		CHECK(rte_gpu_wmb(gpu) == 0);
	printf("wmb: %.0f ns each\n", (now() - start) * 1e6 / count);
}

static void
list(void)
{
	double start = now();
	struct rte_gpu_comm_list *items = rte_gpu_comm_create_list((uint16_t)gpu, 1024);

	CHECK(items != NULL);
	if (items == NULL)
		return;
	printf("communication list of 1024 items: created in %.1f ms", now() - start);
	start = now();
	CHECK(rte_gpu_comm_destroy_list(items, 1024) == 0);
	printf(", destroyed in %.1f ms\n", now() - start);
}

/* The same GPU, selected by its PCI address: a second device that shares the registrations. */
static void
second_device(void)
{
	uint8_t *block = host_memory(MIB);
	int16_t id, second = RTE_GPU_ID_NONE;
	char pci[32] = "", args[48];

	CHECK(cuda.pci(pci, sizeof(pci), 0) == 0);
	snprintf(args, sizeof(args), "pci=%s", pci);
	CHECK(rte_vdev_init("gpu_cuda1", args) == 0);
	RTE_GPU_FOREACH(id)
	if (id != gpu)
		second = id;
	CHECK(rte_gpu_mem_register(second, MIB, block) == 0);
	CHECK(rte_gpu_mem_register(gpu, MIB, block) == 0);
	CHECK(rte_gpu_mem_unregister(second, block) == 0);
	CHECK(rte_vdev_uninit("gpu_cuda1") == 0);
	CHECK(rte_gpu_mem_unregister(gpu, block) == 0);
	printf("second device by %s: shares registrations\n", args);
	munmap(block, MIB);
}

int
main(int argc, char **argv)
{
	char vdev[256];
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"256"}, (char[]){"-l"},
		(char[]){"0"}, (char[]){"--no-telemetry"},
		(char[]){"--log-level=braggline.gpu.cuda:info"}, (char[]){"--vdev"}, vdev};
	struct rte_gpu_info info;

	snprintf(vdev, sizeof(vdev), "gpu_cuda0%s%s", argc > 1 ? "," : "", argc > 1 ? argv[1] : "");
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	gpu = rte_gpu_find_next(0, RTE_GPU_ID_ANY);
	if (gpu < 0 || cuda_load() < 0) {
		puts("skipped: no GPU");
		rte_eal_cleanup();
		return 77;
	}
	CHECK(rte_gpu_info_get(gpu, &info) == 0);
	printf("%s: %zu MiB, %u multiprocessors, NUMA node %d, page %zu\n", info.name,
		info.total_memory / MIB, info.processor_count, info.numa_node, info.page_size);
	CHECK(no_context_is_current());
	allocations(&info);
	registrations();
	copies(&info);
	driver_copies();
	dmabuf();
	cpu_map();
	barriers();
	list();
	second_device();
	CHECK(no_context_is_current());
	rte_eal_cleanup();
	printf("%u failures\n", failures);
	return failures != 0;
}
