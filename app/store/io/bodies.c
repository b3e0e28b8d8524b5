/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_gpudev.h>

#include "io/body_memory.h"
#include "io/cufile_io.h"
#include "io/direct_io.h"
#include "io/slice_pool.h"
#include "io/bodies.h"

/* Determine what the directory's file system supports, with a temporary file. */
static int
try_direct(const struct store_bodies_config *c, enum arrow_io_mode mode, char *text,
	char message[PATH_MAX])
{
	const struct arrow_io_info *info;
	struct arrow_io_open how = {.mode = mode, .depth = 1};
	char path[PATH_MAX];
	void *handle;
	int ret;

	if (snprintf(path, sizeof(path), "%s/.braggline_store_%d", c->directory, (int)getpid()) >=
		(int)sizeof(path))
		return -ENAMETOOLONG;
	how.path = path;
	/* left by a killed process with the same id, which is likely in containers */
	(void)direct_io.remove(path);
	ret = direct_io.open(&handle, &how);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "cannot write to %.3000s: %s", c->directory,
			strerror(-ret));
		return ret;
	}
	info = direct_io.info(handle);
	snprintf(text, 256, "%s%s%s, memory aligned to %u bytes", arrow_io_mode_name(info->mode),
		info->why[0] != '\0' ? ": " : "", info->why, info->memory_align);
	(void)direct_io.remove(path);
	(void)direct_io.close(handle);
	return 0;
}

static int
use_host(struct store_bodies *b, const struct store_bodies_config *c,
	struct async_writer_config *slices, const char *reason, char message[PATH_MAX])
{
	static const enum arrow_io_mode modes[] = {
		[STORE_IO_AUTO] = ARROW_IO_DIRECT_URING,
		[STORE_IO_BUFFERED] = ARROW_IO_BUFFERED,
		[STORE_IO_DIRECT] = ARROW_IO_DIRECT,
		[STORE_IO_URING] = ARROW_IO_DIRECT_URING,
	};
	char text[256];
	int ret;

	b->system = true;
	slices->io = &direct_io;
	slices->mode = modes[c->io];
	ret = try_direct(c, slices->mode, text, message);
	if (ret == 0)
		snprintf(b->why, sizeof(b->why), "bodies in memory of %.64s (%.3000s), files by %s",
			body_memory_name(b->gpu), reason, text);
	return ret;
}

static void
describe_cufile(struct store_bodies *b, unsigned int threads, const char *reason)
{
	const struct cufile_info *info = cufile_info_get(b->cufile);

	snprintf(b->why, sizeof(b->why),
		"bodies in memory of %.64s (%s), files by cuFile with %u threads, %s%s: %.400s",
		body_memory_name(b->gpu), reason, threads, cufile_mode_name(info->mode),
		cufile_mode_caveat(info->mode), info->proof);
}

static int
use_cufile(struct store_bodies *b, const struct store_bodies_config *c,
	struct async_writer_config *slices, const char *reason, char message[PATH_MAX])
{
	const unsigned int threads = c->threads > 0 ? c->threads : SLICE_POOL_THREADS;
	int ret;

	ret = cufile_io_start(b->cufile, threads);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "cannot start %u threads for cuFile: %s", threads,
			strerror(-ret));
		return ret;
	}
	slices->io = &cufile_io;
	/* as many as threads, so that one file can use all of them */
	slices->depth = threads < ARROW_IO_DEPTH_MAX ? threads : ARROW_IO_DEPTH_MAX;
	describe_cufile(b, threads, reason);
	return 0;
}

static int
load_cufile(struct store_bodies *b, const struct store_bodies_config *c, char message[PATH_MAX])
{
	return cufile_open(&b->cufile, b->gpu, c->directory,
		c->stats != NULL ? c->stats : CUFILE_PROC, message);
}

static int
refuse(char message[PATH_MAX], const char *what)
{
	snprintf(message, PATH_MAX, "%s", what);
	return -EINVAL;
}

static int
choose_configured(struct store_bodies *b, const struct store_bodies_config *c,
	struct async_writer_config *slices, char message[PATH_MAX])
{
	const unsigned int gpu = c->where - STORE_BODIES_GPU;
	int ret;

	if (gpu > INT16_MAX || !rte_gpu_is_valid(gpu)) {
		snprintf(
			message, PATH_MAX, "[store] bodies: no GPU %u; create it with --vdev", gpu);
		return -ENODEV; /* it may be there at the next start */
	}
	b->gpu = gpu;
	if (body_memory_is_host(b->gpu)) {
		if (c->io == STORE_IO_CUFILE)
			return refuse(message,
				"[files] io = cufile: the memory of this GPU is "
				"host memory; set io = auto");
		return use_host(b, c, slices, "configured; it is host memory", message);
	}
	if (c->io != STORE_IO_AUTO && c->io != STORE_IO_CUFILE)
		return refuse(message,
			"[files] io: only cufile can write GPU memory to files; "
			"set io = auto or cufile");
	if (!c->rdma)
		return refuse(message,
			"[store] bodies: the RDMA device cannot write to GPU memory; "
			"set bodies = auto or host");
	ret = load_cufile(b, c, message);
	return ret == 0 ? use_cufile(b, c, slices, "configured", message) : ret;
}

static int
choose(struct store_bodies *b, const struct store_bodies_config *c,
	struct async_writer_config *slices, char message[PATH_MAX])
{
	char reason[PATH_MAX];

	b->gpu = body_memory_gpu(NULL);
	if (b->gpu < 0)
		snprintf(reason, sizeof(reason), "no GPU");
	else if (!c->rdma)
		snprintf(reason, sizeof(reason), "the RDMA device cannot write to memory of %s",
			body_memory_name(b->gpu));
	else if (c->io != STORE_IO_AUTO && c->io != STORE_IO_CUFILE)
		snprintf(reason, sizeof(reason), "[files] io is not cufile");
	else if (load_cufile(b, c, reason) == 0) {
		if (cufile_mode_is_direct(cufile_info_get(b->cufile)->mode))
			return use_cufile(b, c, slices, "it can write to files directly", message);
		snprintf(reason, sizeof(reason), "cuFile: %s%s",
			cufile_mode_name(cufile_info_get(b->cufile)->mode),
			cufile_mode_caveat(cufile_info_get(b->cufile)->mode));
		cufile_close(b->cufile);
		b->cufile = NULL;
	}
	b->gpu = -1;
	if (c->io == STORE_IO_CUFILE) {
		snprintf(message, PATH_MAX, "[files] io = cufile: %.3000s", reason);
		return -ENOTSUP;
	}
	return use_host(b, c, slices, reason, message);
}

int
store_bodies_open(struct store_bodies *b, const struct store_bodies_config *config,
	struct async_writer_config *slices, char message[PATH_MAX])
{
	int ret;

	memset(b, 0, sizeof(*b));
	b->gpu = -1;
	if (config->where == STORE_BODIES_HOST)
		ret = config->io == STORE_IO_CUFILE
			? refuse(message,
				  "[files] io = cufile: bodies are in host memory; set "
				  "[store] bodies = gpu:N, or io = auto")
			: use_host(b, config, slices, "configured", message);
	else if (config->where == STORE_BODIES_AUTO)
		ret = choose(b, config, slices, message);
	else
		ret = choose_configured(b, config, slices, message);
	if (ret < 0)
		store_bodies_close(b);
	return ret;
}

void
store_bodies_close(struct store_bodies *b)
{
	cufile_io_stop();
	cufile_close(b->cufile);
	b->cufile = NULL;
}

int
store_bodies_take(struct store_bodies *b, uint64_t size, uint8_t **memory)
{
	int ret;

	ret = body_memory_alloc(b->gpu, size, memory);
	if (ret < 0 || b->cufile == NULL)
		return ret;
	ret = cufile_memory_add(b->cufile, *memory, size);
	if (ret < 0)
		body_memory_free(b->gpu, *memory, size);
	return ret;
}

void
store_bodies_give(struct store_bodies *b, uint8_t *memory, uint64_t size)
{
	/* before the memory is freed: otherwise nvidia-fs may wait forever */
	if (b->cufile != NULL)
		cufile_memory_remove(b->cufile, memory);
	body_memory_free(b->gpu, memory, size);
}
