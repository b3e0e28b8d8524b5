/* SPDX-License-Identifier: BSD-3-Clause */
/* The gpu_host driver through the public gpudev API. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <rte_bus_vdev.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>

#include "gpu_host.h"

static int16_t gpu;

static void
info_is_filled(void **state)
{
	struct rte_gpu_info info;

	assert_int_equal(rte_gpu_info_get(gpu, &info), 0);
	assert_string_equal(info.name, "gpu_host0");
	assert_int_equal(info.dev_id, gpu);
	assert_int_equal(info.page_size, 4096);
	assert_int_equal(info.numa_node, 0);
	assert_true(info.total_memory > ((size_t)64 << 20));
}

static void
memory_is_aligned_zero_and_beyond_the_eal_heap(void **state)
{
	const size_t large = (size_t)300 << 20; /* EAL has 128 MiB */
	static const unsigned int align[] = {0, 64, 4096, 65536, 4u << 20};
	uint8_t *ptr;

	for (unsigned int i = 0; i < RTE_DIM(align); i++) {
		ptr = rte_gpu_mem_alloc(gpu, 1000, align[i]);
		assert_non_null(ptr);
		assert_int_equal((uintptr_t)ptr % RTE_MAX(align[i], 4096u), 0);
		for (unsigned int at = 0; at < 1000; at++)
			assert_int_equal(ptr[at], 0);
		memset(ptr, 0xff, 1000);
		assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
	}
	ptr = rte_gpu_mem_alloc(gpu, large, 0);
	assert_non_null(ptr);
	assert_int_equal((uintptr_t)ptr % (2u << 20), 0);
	assert_int_equal(ptr[0], 0);
	assert_int_equal(ptr[large - 1], 0);
	ptr[large - 1] = 1;
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
}

static void
impossible_sizes_are_refused(void **state)
{
	assert_null(rte_gpu_mem_alloc(gpu, SIZE_MAX / 2, 0));
	assert_int_equal(rte_errno, E2BIG);
}

static void
unknown_pointers_are_rejected(void **state)
{
	static char host[64];
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, 8192, 0);

	assert_non_null(ptr);
	assert_int_not_equal(rte_gpu_mem_free(gpu, ptr + 0x700), 0);
	assert_int_not_equal(rte_gpu_mem_free(gpu, host), 0);
	assert_int_not_equal(rte_gpu_mem_unregister(gpu, ptr), 0);
	assert_int_not_equal(rte_gpu_mem_register(gpu, 8192, ptr), 0);
	assert_int_equal(rte_gpu_mem_register(gpu, sizeof(host), host), 0);
	assert_int_not_equal(rte_gpu_mem_register(gpu, sizeof(host), host), 0);
	assert_int_not_equal(rte_gpu_mem_free(gpu, host), 0);
	assert_int_not_equal(rte_gpu_mem_unregister(gpu, host + 1), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host), 0);
	assert_int_not_equal(rte_gpu_mem_unregister(gpu, host), 0);
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
	assert_int_not_equal(rte_gpu_mem_free(gpu, ptr), 0);
}

static void
cpu_map_is_the_same_memory(void **state)
{
	static char host[64];
	uint8_t *ptr = rte_gpu_mem_alloc(gpu, 8192, 0);

	assert_non_null(ptr);
	assert_null(rte_gpu_mem_cpu_map(gpu, 8193, ptr));
	assert_null(rte_gpu_mem_cpu_map(gpu, 64, ptr + 64));
	assert_int_not_equal(rte_gpu_mem_cpu_unmap(gpu, ptr), 0);
	assert_ptr_equal(rte_gpu_mem_cpu_map(gpu, 8192, ptr), ptr);
	assert_int_equal(rte_gpu_mem_cpu_unmap(gpu, ptr), 0);
	assert_ptr_equal(rte_gpu_mem_cpu_map(gpu, 100, ptr), ptr);
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0); /* while it is mapped */

	/* rte_gpu_comm_destroy_list() relies on this */
	assert_int_equal(rte_gpu_mem_register(gpu, sizeof(host), host), 0);
	assert_int_not_equal(rte_gpu_mem_cpu_unmap(gpu, host), 0);
	assert_int_equal(rte_gpu_mem_unregister(gpu, host), 0);
	assert_int_equal(rte_gpu_wmb(gpu), 0);
}

static void
thousands_of_registrations(void **state)
{
	enum {
		COUNT = 20000,
		STEP = 48
	}; /* several share a page */
	char *host = malloc(COUNT * STEP);

	assert_non_null(host);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(rte_gpu_mem_register(gpu, STEP, host + i * STEP), 0);
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(rte_gpu_mem_unregister(gpu, host + i * STEP), 0);
	free(host);
}

static void
bad_arguments_are_refused(void **state)
{
	assert_int_not_equal(rte_vdev_init("gpu_host7", "numa=x"), 0);
	assert_int_not_equal(rte_vdev_init("gpu_host7", "numa=-1"), 0);
	assert_int_not_equal(rte_vdev_init("gpu_host7", "size=1"), 0);
	assert_int_equal(rte_gpu_count_avail(), 1);
}

/* Does an access to this byte by the CPU end the process? */
static bool __attribute__((no_sanitize("address", "undefined")))
is_out_of_reach(const volatile uint8_t *at, bool write)
{
	const pid_t child = fork();
	int status;

	if (child == 0) {
		/* a sanitizer has installed a handler */
		signal(SIGSEGV, SIG_DFL);
		if (write)
			*(volatile uint8_t *)(uintptr_t)at = 1;
		_exit(write ? 0 : *at & 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void
private_memory_is_reached_by_copies_only(void **state)
{
	int16_t other = RTE_GPU_ID_NONE, id;
	uint8_t in[100], out[100] = {0};
	uint8_t *ptr, *again, *view;
	ptrdiff_t offset = -1;
	int pipes[2];

	assert_int_not_equal(rte_vdev_init("gpu_host1", "private=yes"), 0);
	assert_int_equal(rte_vdev_init("gpu_host1", "private=1,numa=0"), 0);
	RTE_GPU_FOREACH(id)
	if (id != gpu)
		other = id;
	ptr = rte_gpu_mem_alloc(other, 5u << 20, 65536);
	assert_non_null(ptr);
	assert_int_equal((uintptr_t)ptr % (2u << 20), 0);
	assert_true(is_out_of_reach(ptr, false));
	assert_true(is_out_of_reach(ptr + (5u << 20) - 1, true));
	assert_null(rte_gpu_mem_cpu_map(other, 4096, ptr));
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(write(pipes[1], ptr, 1), -1);
	close(pipes[0]);
	close(pipes[1]);

	for (unsigned int i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)(i + 1);
	assert_int_equal(gpu_host_copy(other, ptr + 4001, in, sizeof(in)), 0);
	assert_int_equal(gpu_host_copy(other, ptr + 9000, ptr + 4001, sizeof(in)), 0);
	assert_int_equal(gpu_host_copy(other, out, ptr + 9000, sizeof(out)), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(gpu_host_view(other, &offset), 0);
	assert_int_not_equal(offset, 0);
	view = (uint8_t *)((uintptr_t)ptr + (uintptr_t)offset);
	assert_memory_equal(view + 4001, in, sizeof(in));
	assert_int_equal(view[0], 0);

	assert_int_equal(rte_gpu_mem_free(other, ptr), 0);
	again = rte_gpu_mem_alloc(other, 5u << 20, 65536);
	assert_non_null(again);
	assert_ptr_not_equal(again, ptr);
	assert_true(is_out_of_reach(view, false));
	assert_int_equal(rte_vdev_uninit("gpu_host1"), 0);

	/* of a device that is not private, and of none */
	assert_int_equal(gpu_host_view(gpu, &offset), 0);
	assert_int_equal(offset, 0);
	ptr = rte_gpu_mem_alloc(gpu, 4096, 0);
	assert_non_null(ptr);
	assert_int_equal(gpu_host_copy(gpu, ptr, in, sizeof(in)), 0);
	assert_memory_equal(ptr, in, sizeof(in));
	assert_int_equal(rte_gpu_mem_free(gpu, ptr), 0);
	assert_int_equal(gpu_host_copy(other, out, in, sizeof(in)), -ENODEV);
	assert_int_equal(gpu_host_view(other, &offset), -ENODEV);
	assert_int_equal(rte_errno, ENODEV);
}

static void
removal_frees_remaining_memory(void **state)
{
	static char host[64];
	int16_t second = RTE_GPU_ID_NONE, id;

	assert_int_equal(rte_vdev_init("gpu_host1", NULL), 0);
	assert_int_equal(rte_gpu_count_avail(), 2);
	RTE_GPU_FOREACH(id)
	if (id != gpu)
		second = id;
	assert_non_null(rte_gpu_mem_alloc(second, 4096, 0));
	assert_int_equal(rte_gpu_mem_register(second, sizeof(host), host), 0);
	assert_int_equal(rte_vdev_uninit("gpu_host1"), 0);
	assert_int_equal(rte_gpu_count_avail(), 1);
	/* the name and the memory can be reused */
	assert_int_equal(rte_vdev_init("gpu_host1", NULL), 0);
	assert_int_equal(rte_gpu_close(second), 0);
	assert_int_equal(rte_vdev_uninit("gpu_host1"), 0);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(info_is_filled),
		cmocka_unit_test(memory_is_aligned_zero_and_beyond_the_eal_heap),
		cmocka_unit_test(impossible_sizes_are_refused),
		cmocka_unit_test(unknown_pointers_are_rejected),
		cmocka_unit_test(cpu_map_is_the_same_memory),
		cmocka_unit_test(thousands_of_registrations),
		cmocka_unit_test(bad_arguments_are_refused),
		cmocka_unit_test(private_memory_is_reached_by_copies_only),
		cmocka_unit_test(removal_frees_remaining_memory),
	};
	char *eal[] = {argv[0], (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"-m"}, (char[]){"128"}, (char[]){"--no-telemetry"},
		(char[]){"--vdev"}, (char[]){"gpu_host0,numa=0"}};
	int failed;

	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	gpu = rte_gpu_find_next(0, RTE_GPU_ID_ANY);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rte_eal_cleanup();
	return failed;
}
