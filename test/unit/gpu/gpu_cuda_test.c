/* SPDX-License-Identifier: BSD-3-Clause */
/* The gpu_cuda driver through the public gpudev API, with the fake libcuda of fake_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_log.h>

#include "fake_cuda.h"
#include "gpu_cuda.h"

enum {
	PAGE = 4096,
	GPU_PAGE = 64 << 10,
};

static struct fake_cuda *fake;
static int16_t gpu;
static uint8_t *host; /* 16 pages, aligned */
static FILE *log_stream;

static void
arm(const char *function, int result)
{
	fake->fail = function;
	fake->fail_with = result;
	fake->fail_skip = 0;
}

static void
log_clear(void)
{
	rewind(log_stream);
	assert_int_equal(ftruncate(fileno(log_stream), 0), 0);
}

/* The log since log_clear(), and its number of lines. */
static unsigned int
logged(char *text, size_t size)
{
	unsigned int lines = 0;
	size_t len;

	fflush(log_stream);
	rewind(log_stream);
	len = fread(text, 1, size - 1, log_stream);
	text[len] = '\0';
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	log_clear();
	return lines;
}

/*
 * Nothing of the driver is left in CUDA except for the device's own context, and none is current.
 */
static int
check_balance(void **state)
{
	fake->fail = NULL;
	fake->host_skew = 0;
	fake->gdr_map_error = 0;
	assert_int_equal(fake_cuda_depth(), 0);
	assert_int_equal(fake->contexts, 1);
	assert_int_equal(fake->allocated, 0);
	assert_int_equal(fake->registered, 0);
	assert_int_equal(fake->mapped, 0);
	assert_int_equal(fake->pinned, 0);
	assert_int_equal(fake->streams, 1);
	assert_int_equal(fake->copies, 0);
	assert_int_equal(rte_gpu_count_avail(), 1);
	return 0;
}

static void
symbols_are_asked_at_their_version(void **state)
{
	assert_int_equal(fake->asked, FAKE_SYMBOLS);
	for (unsigned int i = 0; i < fake->asked; i++) {
		int version = fake_cuda_version(fake->symbols[i].name);

		if (fake->symbols[i].version != version)
			fail_msg("%s at %d, %d is expected", fake->symbols[i].name,
				fake->symbols[i].version, version);
	}
}

static void
info_is_filled(void **state)
{
	struct rte_gpu_info info;

	assert_int_equal(rte_gpu_info_get(gpu, &info), 0);
	assert_string_equal(info.name, "gpu_cuda0");
	assert_int_equal(info.dev_id, gpu);
	assert_int_equal(info.page_size, GPU_PAGE);
	assert_int_equal(info.total_memory, 1 << 30);
	assert_int_equal(info.processor_count, 132);
	assert_int_equal(info.numa_node, -1);
	assert_int_equal(info.context, 0x1000); /* the primary context of GPU 0 */
}

static void
memory_is_aligned_zero_and_synchronous(void **state)
{
	static const unsigned int align[] = {0, 64, 4096, 65536, 4u << 20};
	static const size_t size[] = {1, 1000, GPU_PAGE, GPU_PAGE + 1, 3u << 20};
	unsigned int syncs = fake->syncs;

	for (unsigned int i = 0; i < RTE_DIM(align); i++) {
		uint8_t *ptr = rte_gpu_mem_alloc(gpu, size[i], align[i]);
		size_t len = RTE_ALIGN_CEIL(size[i], (size_t)GPU_PAGE);

		assert_non_null(ptr);
		assert_int_equal((uintptr_t)ptr % RTE_MAX(align[i], (unsigned int)GPU_PAGE), 0);
		for (size_t at = 0; at < len; at++)
			assert_int_equal(ptr[at], 0);
		assert_int_equal(fake->allocated, 1);
		assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
	}
	assert_int_equal(fake->syncs - syncs, RTE_DIM(align));
}

static void
impossible_sizes_are_refused(void **state)
{
	assert_null(rte_gpu_mem_alloc(gpu, SIZE_MAX / 2, 0));
	assert_int_equal(rte_errno, E2BIG);
	assert_int_not_equal(rte_gpu_mem_register(gpu, SIZE_MAX - 10, host), 0);
	assert_int_not_equal(rte_gpu_mem_register(gpu, 20, (void *)(UINTPTR_MAX - 10)), 0);
}

static void
unknown_pointers_are_rejected(void **state)
{
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, 8192, 0);

	assert_non_null(ptr);
	assert_int_not_equal(rte_gpu_mem_free(gpu, ptr + 0x700), 0);
	assert_int_not_equal(rte_gpu_mem_free(gpu, host), 0);
	assert_int_not_equal(rte_gpu_mem_unregister(gpu, ptr), 0);
	assert_int_equal(rte_gpu_mem_register(gpu, 64, host), 0);
	assert_int_not_equal(rte_gpu_mem_register(gpu, 64, host), 0);
	assert_int_not_equal(rte_gpu_mem_free(gpu, host), 0);
	assert_int_not_equal(rte_gpu_mem_unregister(gpu, host + 1), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host), 0);
	assert_int_not_equal(rte_gpu_mem_unregister(gpu, host), 0);
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
	assert_int_not_equal(rte_gpu_mem_free(gpu, ptr), 0);
}

static void
blocks_share_pages(void **state)
{
	/* two in page 0, one in 0 and 1, one in page 3: the gap is not registered */
	assert_int_equal(rte_gpu_mem_register(gpu, 64, host + 64), 0);
	assert_int_equal(rte_gpu_mem_register(gpu, 64, host + 192), 0);
	assert_int_equal(fake->registered, 1);
	assert_int_equal(rte_gpu_mem_register(gpu, PAGE, host + 256), 0);
	assert_int_equal(fake->registered, 2);
	assert_int_equal(rte_gpu_mem_register(gpu, 1, host + 3 * PAGE), 0);
	assert_int_equal(fake->registered, 3);
	/* all pages, including registered ones: pages 2 and 4 to 15 are new */
	assert_int_equal(rte_gpu_mem_register(gpu, 16 * PAGE, host), 0);
	assert_int_equal(fake->registered, 5);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host + 64), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host + 256), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host + 3 * PAGE), 0);
	assert_int_equal(fake->registered, 5);
	/* the largest is unregistered first: page 0 stays for the remaining block in it */
	assert_int_equal(rte_gpu_mem_unregister(gpu, host), 0);
	assert_int_equal(fake->registered, 1);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host + 192), 0);
	assert_int_equal(fake->registered, 0);
}

static void
a_failed_registration_changes_nothing(void **state)
{
	char text[1024];

	assert_int_equal(rte_gpu_mem_register(gpu, 1, host + PAGE), 0);
	assert_int_equal(rte_gpu_mem_register(gpu, 1, host + 3 * PAGE), 0);
	/* pages 0, 2 and 4 are missing; the second of the three registrations fails */
	arm("cuMemHostRegister_v2", 2);
	fake->fail_skip = 1;
	log_clear();
	assert_int_not_equal(rte_gpu_mem_register(gpu, 5 * PAGE, host), 0);
	assert_int_equal(logged(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "gpu_cuda0 (Fake GPU 0 0000:a0:00.0): cuMemHostRegister("));
	assert_non_null(strstr(text, "CUDA_ERROR_OUT_OF_MEMORY (as the test wants it)"));
	assert_int_equal(fake->registered, 2);
	fake->fail = NULL;

	/* memory that another program part has registered */
	assert_int_equal(fake_cuda_register_foreign(host + 8 * PAGE, PAGE), 0);
	assert_int_not_equal(rte_gpu_mem_register(gpu, 2 * PAGE, host + 7 * PAGE), 0);
	assert_int_equal(logged(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"));
	assert_int_equal(fake->registered, 2);
	assert_int_equal(fake_cuda_unregister_foreign(host + 8 * PAGE), 0);

	/* memory that has another address on the GPU */
	fake->host_skew = 1 << 20;
	assert_int_not_equal(rte_gpu_mem_register(gpu, 5 * PAGE, host), 0);
	assert_int_equal(logged(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "expected the same address"));
	assert_int_equal(fake->registered, 2);

	assert_int_equal(rte_gpu_mem_unregister(gpu, host + PAGE), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host + 3 * PAGE), 0);
}

static void
two_devices_share_registrations(void **state)
{
	int16_t second = RTE_GPU_ID_NONE, id;

	assert_int_equal(rte_vdev_init("gpu_cuda1", "pci=0000:a1:00.0"), 0);
	RTE_GPU_FOREACH(id)
	if (id != gpu)
		second = id;
	assert_int_equal(rte_gpu_mem_register(second, 2 * PAGE, host), 0);
	assert_int_equal(rte_gpu_mem_register(gpu, 64, host + PAGE), 0);
	assert_int_equal(fake->registered, 1);
	/* the context that registered the pages outlives its device */
	assert_int_equal(rte_gpu_mem_unregister(second, host), 0);
	assert_int_equal(rte_vdev_uninit("gpu_cuda1"), 0);
	assert_int_equal(fake->registered, 1);
	assert_int_equal(fake->contexts, 2);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host + PAGE), 0);
	assert_int_equal(fake->contexts, 1);
}

static void
thousands_of_registrations(void **state)
{
	enum {
		COUNT = 50000,
		STEP = 3000 /* every other block spans two pages */
	};
	uint8_t *blocks = aligned_alloc(PAGE, (size_t)COUNT * STEP / PAGE * PAGE + PAGE);

	assert_non_null(blocks);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(rte_gpu_mem_register(gpu, STEP, blocks + (size_t)i * STEP), 0);
	for (int i = 0; i < COUNT; i += 2)
		assert_int_equal(rte_gpu_mem_unregister(gpu, blocks + (size_t)i * STEP), 0);
	for (int i = 1; i < COUNT; i += 2)
		assert_int_equal(rte_gpu_mem_unregister(gpu, blocks + (size_t)i * STEP), 0);
	free(blocks);
}

static void
errors_of_cuda_are_reported(void **state)
{
	static const char *const steps[] = {
		"cuCtxPushCurrent_v2", "cuMemAlloc_v2", "cuPointerSetAttribute", "cuMemsetD8_v2"};
	char text[1024], name[32];
	uint8_t *ptr;

	for (unsigned int i = 0; i < RTE_DIM(steps); i++) {
		arm(steps[i], 2);
		log_clear();
		assert_null(rte_gpu_mem_alloc(gpu, 1000, 0));
		assert_int_equal(rte_errno, ENOMEM);
		assert_int_equal(logged(text, sizeof(text)), 1);
		snprintf(name, sizeof(name), "0000:a0:00.0): %.10s", steps[i]);
		assert_non_null(strstr(text, name));
		assert_non_null(strstr(text, "CUDA_ERROR_OUT_OF_MEMORY"));
		assert_int_equal(fake->allocated, 0);
		assert_int_equal(fake_cuda_depth(), 0);
	}
	fake->fail = NULL;
	ptr = rte_gpu_mem_alloc(gpu, 1000, 0);
	assert_non_null(ptr);
	arm("cuMemFree_v2", 700);
	assert_int_not_equal(rte_gpu_mem_free(gpu, ptr), 0);
	assert_int_equal(logged(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "cuMemFree(0x"));
	/* it is no longer in the driver's registry, so undo it in the fake */
	fake->fail = NULL;
	assert_int_not_equal(rte_gpu_mem_free(gpu, ptr), 0);
	assert_int_equal(fake->allocated, 1);
	fake->allocated = 0;
}

static void
the_callers_context_stays(void **state)
{
	uint8_t *ptr;

	fake_cuda_push_foreign();
	ptr = rte_gpu_mem_alloc(gpu, 1000, 0);
	assert_non_null(ptr);
	assert_int_equal(rte_gpu_mem_register(gpu, 64, host), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host), 0);
	assert_int_equal(rte_gpu_wmb(gpu), 0);
	arm("cuMemHostRegister_v2", 1);
	assert_int_not_equal(rte_gpu_mem_register(gpu, 64, host), 0);
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
	assert_int_equal(fake_cuda_depth(), 1);
	assert_int_equal(fake_cuda_current(), 0xf00);
	fake_cuda_pop_foreign();
}

static void
copies_go_either_way(void **state)
{
	uint8_t in[100], out[100] = {0};
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, 1000, 0);
	char text[1024];

	assert_non_null(ptr);
	memset(in, 7, sizeof(in));
	fake_cuda_push_foreign();
	assert_int_equal(gpu_cuda_copy(gpu, ptr + 900, in, sizeof(in)), 0);
	assert_int_equal(gpu_cuda_copy(gpu, out, ptr + 900, sizeof(out)), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(fake->copies, 0); /* it was synchronized */
	fake_cuda_pop_foreign();

	assert_int_equal(gpu_cuda_copy(gpu + 7, out, in, sizeof(in)), -ENODEV);
	assert_int_equal(rte_errno, ENODEV);
	arm("cuMemcpyAsync", 700);
	log_clear();
	assert_int_not_equal(gpu_cuda_copy(gpu, out, in, sizeof(in)), 0);
	assert_int_equal(logged(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "cuMemcpyAsync(0x"));
	arm("cuStreamSynchronize", 700);
	assert_int_not_equal(gpu_cuda_copy(gpu, out, in, sizeof(in)), 0);
	fake->copies = 0;
	fake->fail = NULL;
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
}

static void
cpu_map_goes_through_gdrcopy(void **state)
{
	char text[1024];
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, 100000, 0);

	assert_non_null(ptr);
	/* not installed: logged once */
	fake->gdr_absent = true;
	log_clear();
	assert_null(rte_gpu_mem_cpu_map(gpu, 64, ptr));
	assert_null(rte_gpu_mem_cpu_map(gpu, 64, ptr));
	assert_int_equal(logged(text, sizeof(text)), 1);
	assert_non_null(strstr(text, "device memory cannot be mapped for the CPU: GDRCopy"));
	fake->gdr_absent = false;
	fake->gdr_map_error = ENOMEM;
	assert_null(rte_gpu_mem_cpu_map(gpu, 64, ptr));
	assert_int_equal(fake->pinned, 0);
	fake->gdr_map_error = 0;

	assert_null(rte_gpu_mem_cpu_map(gpu, 100001, ptr));
	assert_null(rte_gpu_mem_cpu_map(gpu, 64, ptr + 64));
	assert_int_not_equal(rte_gpu_mem_cpu_unmap(gpu, ptr), 0);
	assert_ptr_equal(rte_gpu_mem_cpu_map(gpu, 64, ptr), ptr);
	assert_ptr_equal(rte_gpu_mem_cpu_map(gpu, 65, ptr), ptr); /* the same mapping */
	assert_null(rte_gpu_mem_cpu_map(gpu, 100000, ptr));	  /* beyond it */
	assert_int_equal(fake->mapped, 1);
	assert_int_equal(rte_gpu_mem_cpu_unmap(gpu, ptr), 0);
	assert_ptr_equal(rte_gpu_mem_cpu_map(gpu, 100000, ptr), ptr);
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0); /* while it is mapped */

	/* rte_gpu_comm_destroy_list() relies on this */
	assert_int_equal(rte_gpu_mem_register(gpu, 64, host), 0);
	assert_int_not_equal(rte_gpu_mem_cpu_unmap(gpu, host), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host), 0);
}

static void
dmabuf_export(void **state)
{
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, 100000, 0);
	struct stat stat;
	uint64_t offset = 1;
	int fd = -1;

	assert_non_null(ptr);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr, 100000, &fd, &offset), 0);
	assert_int_equal(offset, 0);
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(stat.st_size, 2 * GPU_PAGE);
	close(fd);
	/* a part: the pages that contain it */
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr + GPU_PAGE + 256, 34208, &fd, &offset), 0);
	assert_int_equal(offset, 256);
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(stat.st_size, GPU_PAGE);
	close(fd);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr + GPU_PAGE - 1, 2, &fd, &offset), 0);
	assert_int_equal(offset, GPU_PAGE - 1);
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(stat.st_size, 2 * GPU_PAGE);
	close(fd);
	assert_int_equal(
		gpu_cuda_dmabuf_export(gpu, ptr + GPU_PAGE + 256, 34209, &fd, &offset), -EINVAL);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr, 100001, &fd, &offset), -EINVAL);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr, 0, &fd, &offset), -EINVAL);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr - 1, 1, &fd, &offset), -EINVAL);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr + 100000, 1, &fd, &offset), -EINVAL);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr, 1, NULL, &offset), -EINVAL);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr, 1, &fd, NULL), -EINVAL);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu + 1, ptr, 1, &fd, &offset), -ENODEV);
	assert_int_equal(rte_errno, ENODEV);
	arm("cuMemGetHandleForAddressRange", 801);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr, 1, &fd, &offset), -ENOTSUP);
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
	assert_int_equal(gpu_cuda_dmabuf_export(gpu, ptr, 1, &fd, &offset), -EINVAL);
}

static int16_t
add_second(const char *args)
{
	int16_t id, second = RTE_GPU_ID_NONE;

	assert_int_equal(rte_vdev_init("gpu_cuda1", args), 0);
	RTE_GPU_FOREACH(id)
	if (id != gpu)
		second = id;
	return second;
}

static void
wmb_flushes_where_writes_are_unordered(void **state)
{
	int16_t second;
	unsigned int flushes = fake->flushes;

	assert_int_equal(rte_gpu_wmb(gpu), 0);
	assert_int_equal(fake->flushes, flushes); /* ordered by the GPU */

	fake->ordering = 0;
	second = add_second("device=1");
	assert_int_equal(rte_gpu_wmb(second), 0);
	assert_int_equal(fake->flushes, flushes + 1);
	assert_int_equal(rte_vdev_uninit("gpu_cuda1"), 0);

	fake->flush_options = 2; /* by stream operations only */
	second = add_second("device=1");
	assert_int_not_equal(rte_gpu_wmb(second), 0);
	assert_int_equal(rte_vdev_uninit("gpu_cuda1"), 0);
	fake->flush_options = 1;
	fake->ordering = 100;
}

static void
a_gpu_is_chosen_by_any_name(void **state)
{
	static const char *const names[] = {"device=1", "pci=0000:a1:00.0", "pci=0000:A1:00.0",
		"uuid=GPU-20212223-2425-2627-2829-2a2b2c2d2e2f",
		"uuid=MIG-20212223-2425-2627-2829-2A2B2C2D2E2F",
		"uuid=202122232425262728292a2b2c2d2e2f"};
	struct rte_gpu_info info;

	for (unsigned int i = 0; i < RTE_DIM(names); i++) {
		int16_t second = add_second(names[i]);

		assert_int_equal(rte_gpu_info_get(second, &info), 0);
		assert_int_equal(info.context, 0x1001);
		assert_int_equal(rte_vdev_uninit("gpu_cuda1"), 0);
	}
}

static void
bad_arguments_are_refused(void **state)
{
	static const struct {
		const char *args;
		const char *says;
	} bad[] = {
		{"device=x", "one of device="},
		{"device=-1", "one of device="},
		{"device=2", "device=2: only 2 GPUs are visible"},
		{"device=0,pci=0000:a0:00.0", "one of device="},
		{"gpu=0", "one of device="},
		{"pci=0000:b0:00.0", "pci=0000:b0:00.0: not one of the 2 visible GPUs"},
		{"uuid=GPU-12", "32 hexadecimal digits"},
		{"uuid=00000000-0000-0000-0000-000000000000", "not one of the 2 visible GPUs"},
	};
	char text[1024];

	for (unsigned int i = 0; i < RTE_DIM(bad); i++) {
		log_clear();
		assert_int_not_equal(rte_vdev_init("gpu_cuda7", bad[i].args), 0);
		logged(text, sizeof(text));
		if (strstr(text, bad[i].says) == NULL)
			fail_msg("%s: %s", bad[i].args, text);
	}
	arm("cuDevicePrimaryCtxRetain", 46);
	assert_int_not_equal(rte_vdev_init("gpu_cuda7", ""), 0);
}

static void
removal_frees_remaining_memory(void **state)
{
	int16_t second = add_second("device=1");
	char text[2048];
	uint8_t *ptr;
	int child;

	ptr = rte_gpu_mem_alloc(second, 4096, 0);
	assert_non_null(rte_gpu_mem_cpu_map(second, 4096, ptr));
	assert_non_null(rte_gpu_mem_alloc(second, 1000, 0));
	assert_int_equal(rte_gpu_mem_register(second, 64, host), 0);

	/* not while a child exists; children have no operations */
	child = rte_gpu_add_child("child", second, 0xc0);
	assert_true(child >= 0);
	assert_null(rte_gpu_mem_alloc((int16_t)child, 64, 0));
	assert_int_equal(rte_errno, ENOTSUP);
	assert_int_not_equal(rte_vdev_uninit("gpu_cuda1"), 0);
	assert_int_equal(rte_gpu_close((int16_t)child), 0);

	log_clear();
	assert_int_equal(rte_vdev_uninit("gpu_cuda1"), 0);
	logged(text, sizeof(text));
	assert_non_null(strstr(text,
		"closed with 2 allocations (5096 bytes) not freed and 1 registrations not "
		"removed"));
	assert_int_equal(check_balance(NULL), 0);
	/* the name can be reused, and closing before removal is allowed */
	second = add_second("device=1");
	assert_int_equal(rte_gpu_close(second), 0);
	assert_int_equal(rte_vdev_uninit("gpu_cuda1"), 0);
}

struct worker {
	pthread_t thread;
	unsigned int seed;
	unsigned int errors;
};

static pthread_barrier_t hammer_start;

/* Allocate, map, and free memory while it is mapped or after unmapping. */
static unsigned int
hammer_memory(unsigned int *seed)
{
	void *ptr = rte_gpu_mem_alloc(gpu, 100, 0), *cpu;
	unsigned int errors = ptr == NULL;

	cpu = rte_gpu_mem_cpu_map(gpu, 100, ptr);
	errors += cpu == NULL;
	if (rand_r(seed) % 2 == 0)
		errors += rte_gpu_mem_cpu_unmap(gpu, ptr) != 0;
	return errors + (rte_gpu_mem_free(gpu, ptr) != 0);
}

/* Register, allocate and free; blocks of all threads share the pages of host. */
static void *
hammer(void *arg)
{
	struct worker *worker = arg;
	uint8_t *block = host + 64 * worker->seed;
	cpu_set_t any;

	/* EAL pins the thread that created this one to one CPU */
	memset(&any, 0xff, sizeof(any));
	worker->errors += sched_setaffinity(0, sizeof(any), &any) != 0;
	pthread_barrier_wait(&hammer_start);
	for (unsigned int i = 0; i < 3000; i++) {
		size_t size = 1 + rand_r(&worker->seed) % (8 * PAGE);

		worker->errors += rte_gpu_mem_register(gpu, size, block) != 0;
		if (i % 16 == 0)
			worker->errors += hammer_memory(&worker->seed);
		worker->errors += rte_gpu_wmb(gpu) != 0;
		worker->errors += rte_gpu_mem_unregister(gpu, block) != 0;
		worker->errors += fake_cuda_depth() != 0;
	}
	return NULL;
}

static void
any_thread_may_call(void **state)
{
	struct worker workers[4];

	assert_int_equal(pthread_barrier_init(&hammer_start, NULL, RTE_DIM(workers)), 0);
	for (unsigned int i = 0; i < RTE_DIM(workers); i++) {
		workers[i] = (struct worker){.seed = 7 + i};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, hammer, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < RTE_DIM(workers); i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].errors, 0);
	}
	assert_int_equal(fake->gdr_overlaps, 0);
}

/* A symbol is missing; these tests precede all others, because libcuda is not loaded yet. */
static void
a_missing_symbol_is_reported(void **state)
{
	char text[1024];

	for (int status = 1; status <= 2; status++) {
		fake->hide = "cuMemGetHandleForAddressRange";
		fake->hide_status = status;
		log_clear();
		assert_int_not_equal(rte_vdev_init("gpu_cuda0", NULL), 0);
		logged(text, sizeof(text));
		assert_non_null(strstr(text, "cuMemGetHandleForAddressRange at version 11070"));
	}
	fake->hide = NULL;
	arm("cuInit", 100);
	log_clear();
	assert_int_not_equal(rte_vdev_init("gpu_cuda0", NULL), 0);
	logged(text, sizeof(text));
	assert_non_null(strstr(text, "gpu_cuda0: no GPU: cuInit: "));
	fake->fail = NULL;
	assert_int_equal(rte_gpu_count_avail(), 0);

	memset(fake->symbols, 0, sizeof(fake->symbols));
	fake->asked = 0;
	assert_int_equal(rte_vdev_init("gpu_cuda0", NULL), 0);
	gpu = rte_gpu_find_next(0, RTE_GPU_ID_ANY);
}

#define BALANCED(test) cmocka_unit_test_teardown(test, check_balance)

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BALANCED(a_missing_symbol_is_reported),
		BALANCED(symbols_are_asked_at_their_version),
		BALANCED(info_is_filled),
		BALANCED(memory_is_aligned_zero_and_synchronous),
		BALANCED(impossible_sizes_are_refused),
		BALANCED(unknown_pointers_are_rejected),
		BALANCED(blocks_share_pages),
		BALANCED(a_failed_registration_changes_nothing),
		BALANCED(two_devices_share_registrations),
		BALANCED(thousands_of_registrations),
		BALANCED(errors_of_cuda_are_reported),
		BALANCED(the_callers_context_stays),
		BALANCED(copies_go_either_way),
		BALANCED(cpu_map_goes_through_gdrcopy),
		BALANCED(dmabuf_export),
		BALANCED(wmb_flushes_where_writes_are_unordered),
		BALANCED(a_gpu_is_chosen_by_any_name),
		BALANCED(bad_arguments_are_refused),
		BALANCED(removal_frees_remaining_memory),
		BALANCED(any_thread_may_call),
	};
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"128"}, (char[]){"--no-telemetry"}};
	int failed;

	fake_gdrapi();
	fake = fake_cuda();
	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	log_stream = tmpfile();
	host = aligned_alloc(PAGE, 16 * PAGE);
	if (log_stream == NULL || host == NULL || rte_openlog_stream(log_stream) != 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rte_eal_cleanup();
	free(host);
	return failed;
}
