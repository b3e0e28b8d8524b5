/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <rte_gpudev.h>

#include "arrow/async_writer.h"
#include "clock.h"
#include "io/body_memory.h"
#include "store_bench.h"

#define GPU_BYTES (1ull << 30)

/* Bounce buffers, one for each thread. */
struct bounce {
	const struct store_bench_io *io;
	int16_t gpu;
	int fd;
	uint8_t *memory; /* on the GPU */
	uint8_t *buffer; /* on the host, pinned: a slice for each thread */
	uint64_t next;	 /* offset in the file of the next slice for a thread */
	unsigned int thread;
};

static void *
bounce(void *arg)
{
	struct bounce *b = arg;
	const unsigned int thread = __atomic_fetch_add(&b->thread, 1, __ATOMIC_RELAXED);
	uint8_t *const buffer = b->buffer + (uint64_t)thread * b->io->slice;
	const uint64_t slice = b->io->slice;
	uint64_t at;

	while ((at = __atomic_fetch_add(&b->next, slice, __ATOMIC_RELAXED)) < b->io->bytes) {
		if (body_memory_copy(b->gpu, buffer, b->memory + at % GPU_BYTES, slice) < 0)
			store_bench_die("copy out of the GPU", EIO);
		if (pwrite(b->fd, buffer, slice, (off_t)at) != (ssize_t)slice)
			store_bench_die("write", errno);
		if ((at + slice) % b->io->sync_bytes == 0 && fdatasync(b->fd) < 0)
			store_bench_die("sync", errno);
	}
	return NULL;
}

double
store_bench_bounce(const struct store_bench_io *io, int16_t gpu)
{
	const uint64_t pinned = (uint64_t)io->threads * io->slice;
	struct bounce b = {.io = io, .gpu = gpu};
	pthread_t thread[ARROW_IO_DEPTH_MAX];
	char path[PATH_MAX];
	unsigned int i;
	uint64_t begin;
	double seconds;

	snprintf(path, sizeof(path), "%s/bounce.bench", io->dir);
	if (body_memory_alloc(gpu, GPU_BYTES, &b.memory) < 0 ||
		body_memory_alloc(-1, pinned, &b.buffer) < 0 ||
		rte_gpu_mem_register(gpu, pinned, b.buffer) < 0)
		store_bench_die("pinned memory", ENOMEM);
	b.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0644);
	if (b.fd < 0)
		store_bench_die(path, errno);
	begin = monotonic_ns();
	(void)fallocate(b.fd, 0, 0, (off_t)io->bytes);
	for (i = 0; i < io->threads; i++) {
		if (pthread_create(&thread[i], NULL, bounce, &b) != 0)
			store_bench_die("threads", EAGAIN);
	}
	for (i = 0; i < io->threads; i++)
		pthread_join(thread[i], NULL);
	if (fdatasync(b.fd) < 0)
		store_bench_die("sync", errno);
	seconds = (monotonic_ns() - begin) * 1e-9;
	close(b.fd);
	unlink(path);
	(void)rte_gpu_mem_unregister(gpu, b.buffer);
	body_memory_free(-1, b.buffer, pinned);
	body_memory_free(gpu, b.memory, GPU_BYTES);
	return io->bytes / seconds;
}
