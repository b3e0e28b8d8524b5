/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests batches that cuFile writes from GPU memory into files, and runs that are loaded back into
 * memory of host and GPU. Fakes of CUDA and cuFile check the calls.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_gpudev.h>

#include "io/body_memory.h"
#include "io/cufile.h"
#include "io/cufile_io.h"
#include "../gpu/fake_cuda.h"
#include "fake_cufile.h"
#include "run_load.h"
#include "../xfer/xfer_sample.h"
#include "io/bodies.h"
#include "stream/writer.h"

#define THREADS 4
#define SLICE	16384

static int16_t gpu, host_gpu;
static char directory[64], stats[96];
static struct xfer_sample s;
static struct fake_cufile *fake;
static unsigned int durable, again;

static void
clear_directory(void)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(directory);

	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		unlink(path);
	}
	closedir(dir);
}

static int
setup(void **state)
{
	snprintf(directory, sizeof(directory), "/tmp/store_io_XXXXXX");
	assert_non_null(mkdtemp(directory));
	snprintf(stats, sizeof(stats), "%s.stats", directory);
	xfer_sample_init(&s, 1, 120);
	fake = fake_cufile();
	gpu = body_memory_gpu("gpu_cuda0");
	host_gpu = body_memory_gpu("gpu_host0");
	return gpu < 0 || host_gpu < 0;
}

static int
teardown(void **state)
{
	clear_directory();
	rmdir(directory);
	unlink(stats);
	xfer_sample_free(&s);
	return 0;
}

/* Before each test: reset the fake library, and remove all files. */
static int
begin(void **state)
{
	clear_directory();
	unlink(stats);
	memset(fake, 0, sizeof(*fake));
	fake->stats = stats;
	durable = 0;
	again = 0;
	return 0;
}

static struct cufile *
open_cufile(enum fake_cufile_way way)
{
	char message[PATH_MAX];
	struct cufile *c;

	fake->way = way;
	assert_int_equal(cufile_open(&c, gpu, directory, stats, message), 0);
	return c;
}

static void
mode_is_what_carried_the_bytes(void **state)
{
	static const struct {
		enum fake_cufile_way way;
		enum cufile_mode mode;
		const char *proof;
	} cases[] = {
		{FAKE_CUFILE_COMPAT, CUFILE_COMPAT, "error 5001"},
		{FAKE_CUFILE_NVFS, CUFILE_NVIDIA_FS, "rose from 0 to 1"},
		{FAKE_CUFILE_P2P, CUFILE_P2PDMA, "nvidia-fs is not loaded"},
		{FAKE_CUFILE_SILENT, CUFILE_UNPROVEN, "does not report P2PDMA"},
		{FAKE_CUFILE_HEEDLESS, CUFILE_COMPAT, "has no effect"},
	};
	const struct cufile_info *info;
	struct cufile *c;
	unsigned int i;

	for (i = 0; i < RTE_DIM(cases); i++) {
		begin(state);
		c = open_cufile(cases[i].way);
		info = cufile_info_get(c);
		print_message("%s: %s\n", cufile_mode_name(info->mode), info->proof);
		assert_int_equal(info->mode, cases[i].mode);
		assert_non_null(strstr(info->proof, cases[i].proof));
		assert_int_equal(cufile_mode_is_direct(info->mode),
			cases[i].way == FAKE_CUFILE_NVFS || cases[i].way == FAKE_CUFILE_P2P);
		cufile_close(c);
		assert_int_equal(fake->opened, 0);
		assert_int_equal(fake->files, 0);
		assert_int_equal(fake->memory, 0);
		assert_int_equal(fake->wrong, 0);
		assert_null(getenv("CUFILE_ALLOW_COMPAT_MODE"));
	}
}

/* A value that the user has set is kept; then only counters can prove GPUDirect. */
static void
environment_variables_take_precedence(void **state)
{
	struct cufile *c;

	setenv("CUFILE_ALLOW_COMPAT_MODE", "true", 1);
	c = open_cufile(FAKE_CUFILE_P2P);
	assert_int_equal(cufile_info_get(c)->mode, CUFILE_COMPAT);
	cufile_close(c);
	c = open_cufile(FAKE_CUFILE_NVFS);
	assert_int_equal(cufile_info_get(c)->mode, CUFILE_NVIDIA_FS);
	cufile_close(c);
	assert_string_equal(getenv("CUFILE_ALLOW_COMPAT_MODE"), "true");
	unsetenv("CUFILE_ALLOW_COMPAT_MODE");
}

static void
a_broken_library_is_reported(void **state)
{
	char message[PATH_MAX];
	struct cufile *c;

	fake->fail_register = 5027;
	assert_int_equal(cufile_open(&c, gpu, directory, stats, message), -ENOTSUP);
	assert_non_null(strstr(message, "5027"));
	fake->fail_register = 0;
	fake->fail_write = 5016;
	assert_int_equal(cufile_open(&c, gpu, directory, stats, message), -ENOTSUP);
	assert_non_null(strstr(message, "5016"));
	fake->fail_write = 0;
	assert_int_equal(cufile_open(&c, gpu, "/nowhere", stats, message), -ENOENT);
	assert_int_equal(cufile_open(&c, host_gpu, directory, stats, message), -ENODEV);
	assert_int_equal(fake->opened, 0);
	assert_int_equal(fake->memory, 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void
on_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	durable += status == XFER_DURABLE;
	again += status == XFER_RETRY;
}

/* Write all images of the sample from memory for bodies. */
static void
write_run(struct store_bodies *b, struct async_writer_config slices)
{
	const struct stream_writer_config config = {
		.dir = directory,
		.run = "r",
		.identity = xfer_sample_identity(ARROW_IMAGES),
		.schema = &s.tables.schema[ARROW_IMAGES],
		.slices = slices,
		.roll_batches = 11,
		.result = on_result,
	};
	const unsigned int nb = s.nb[ARROW_IMAGES];
	uint64_t size = 0, at = 0;
	struct stream_writer *w;
	uint8_t *memory;
	unsigned int i;

	for (i = 0; i < nb; i++)
		size += s.batch[ARROW_IMAGES][i].batch.body_bytes;
	assert_int_equal(store_bodies_take(b, size, &memory), 0);
	assert_int_equal(stream_writer_open(&w, &config), 0);
	for (i = 0; i < nb; i++) {
		const struct xfer_sample_batch *from = &s.batch[ARROW_IMAGES][i];

		assert_int_equal(
			body_memory_copy(b->gpu, memory + at, from->body, from->batch.body_bytes),
			0);
		stream_writer_append(
			w, &(struct stream_batch){from->batch, from->metadata, memory + at, i});
		at += from->batch.body_bytes;
		stream_writer_poll(w);
	}
	(void)stream_writer_finish(w);
	stream_writer_close(w);
	store_bodies_give(b, memory, size);
}

static struct async_writer_config
small_slices(void)
{
	return (struct async_writer_config){.slice = SLICE, .sync_bytes = 4 * SLICE};
}

static void
open_bodies(struct store_bodies *b, unsigned int where, enum store_io io, bool rdma,
	struct async_writer_config *slices)
{
	const struct store_bodies_config config = {
		.where = where,
		.io = io,
		.threads = THREADS,
		.directory = directory,
		.stats = stats,
		.rdma = rdma,
	};
	char message[PATH_MAX];

	*slices = small_slices();
	if (store_bodies_open(b, &config, slices, message) < 0)
		fail_msg("%s", message);
	print_message("%s\n", b->why);
}

static void
load(struct run_load *l, const struct run_load_config *config)
{
	char message[PATH_MAX];

	if (run_load(l, config, directory, message) < 0)
		fail_msg("%s", message);
	assert_int_equal(l->batches, s.nb[ARROW_IMAGES]);
}

/* The loaded bodies, in memory of host or GPU, equal those of the sample. */
static void
check_bodies(const struct run_load *l)
{
	const struct xfer_sample_batch *from = s.batch[ARROW_IMAGES];
	uint8_t *found = malloc(1 << 20);
	size_t i, k;

	for (i = 0; i < l->nb_files; i++) {
		for (k = 0; k < l->file[i].reader.nb_batches; k++, from++) {
			assert_int_equal(body_memory_copy(l->config.gpu, found,
						 run_load_body(l, i, k), from->batch.body_bytes),
				0);
			assert_memory_equal(found, from->body, from->batch.body_bytes);
		}
	}
	free(found);
}

static void
bodies_go_from_the_gpu_to_files(void **state)
{
	struct async_writer_config slices;
	struct run_load_config config = {.threads = THREADS, .slice = SLICE, .gpu = -1};
	struct store_bodies b;
	struct run_load l;

	fake->way = FAKE_CUFILE_NVFS;
	open_bodies(&b, STORE_BODIES_AUTO, STORE_IO_AUTO, true, &slices);
	assert_int_equal(b.gpu, gpu);
	assert_ptr_equal(slices.io, &cufile_io);
	assert_non_null(strstr(b.why, "nvidia-fs"));
	fake->shorten = 20;
	write_run(&b, slices);
	assert_int_equal(durable, s.nb[ARROW_IMAGES]);
	assert_int_equal(fake->slow, 0);
	assert_int_equal(fake->shorten, 0);
	load(&l, &config);
	assert_int_equal(l.damaged, 0);
	assert_int_equal(l.unchecked, 0);
	assert_int_equal(l.nb_files, (s.nb[ARROW_IMAGES] + 10) / 11);
	check_bodies(&l);
	run_load_free(&l);

	/* load them into GPU memory, too */
	config.gpu = gpu;
	config.cufile = b.cufile;
	fake->shorten = 20;
	load(&l, &config);
	assert_int_equal(l.damaged, 0);
	assert_true(fake->reads > 0);
	check_bodies(&l);
	run_load_free(&l);
	store_bodies_close(&b);
	assert_int_equal(fake->wrong, 0);
	assert_int_equal(fake->files, 0);
	assert_int_equal(fake->memory, 0);
	assert_int_equal(fake->opened, 0);
	assert_int_equal(fake_cuda()->allocated, 0);
}

/*
 * An error of cuFile counts as an error of the disk: the batches are given back, and no incomplete
 * batch is in a file.
 */
static void
errors_of_cufile_give_batches_back(void **state)
{
	static const int codes[] = {1, 5016};
	struct async_writer_config slices;
	struct store_bodies b;
	unsigned int i;

	for (i = 0; i < RTE_DIM(codes); i++) {
		begin(state);
		fake->way = FAKE_CUFILE_P2P;
		open_bodies(&b, STORE_BODIES_GPU + gpu, STORE_IO_CUFILE, true, &slices);
		assert_non_null(strstr(b.why, "P2PDMA"));
		fake->fail_write = codes[i];
		write_run(&b, slices);
		assert_int_equal(durable, 0);
		assert_int_equal(again, s.nb[ARROW_IMAGES]);
		store_bodies_close(&b);
		assert_int_equal(fake->files, 0);
		assert_int_equal(fake->memory, 0);
	}
}

static void
the_mode_is_reported_with_its_reason(void **state)
{
	static const struct {
		enum fake_cufile_way way;
		bool rdma;
		enum store_io io;
		bool on_gpu;
		const char *why;
	} cases[] = {
		{FAKE_CUFILE_COMPAT, true, STORE_IO_AUTO, false, "not GPUDirect"},
		{FAKE_CUFILE_SILENT, true, STORE_IO_AUTO, false, "not proven to be GPUDirect"},
		{FAKE_CUFILE_NVFS, false, STORE_IO_AUTO, false, "RDMA device"},
		{FAKE_CUFILE_NVFS, true, STORE_IO_DIRECT, false, "not cufile"},
		{FAKE_CUFILE_NVFS, true, STORE_IO_CUFILE, true, "nvidia-fs"},
	};
	struct async_writer_config slices;
	struct store_bodies b;
	unsigned int i;

	for (i = 0; i < RTE_DIM(cases); i++) {
		begin(state);
		fake->way = cases[i].way;
		open_bodies(&b, STORE_BODIES_AUTO, cases[i].io, cases[i].rdma, &slices);
		assert_int_equal(b.gpu, cases[i].on_gpu ? gpu : -1);
		assert_int_equal(b.system, !cases[i].on_gpu);
		assert_non_null(strstr(b.why, cases[i].why));
		store_bodies_close(&b);
		assert_int_equal(fake->opened, 0);
	}
	/* a GPU that is named is used in compatibility mode, too; the reason says so */
	fake->way = FAKE_CUFILE_COMPAT;
	open_bodies(&b, STORE_BODIES_GPU + gpu, STORE_IO_AUTO, true, &slices);
	assert_int_equal(b.gpu, gpu);
	assert_non_null(strstr(b.why, "compatibility mode, which is not GPUDirect"));
	store_bodies_close(&b);
	/* memory of gpu_host is host memory */
	open_bodies(&b, STORE_BODIES_GPU + host_gpu, STORE_IO_AUTO, false, &slices);
	assert_int_equal(b.gpu, host_gpu);
	assert_int_equal(store_bodies_rdma_gpu(&b), -1);
	write_run(&b, slices);
	assert_int_equal(durable, s.nb[ARROW_IMAGES]);
	store_bodies_close(&b);
}

static void
what_does_not_go_together_is_refused(void **state)
{
	/* what was configured is wrong: -EINVAL; what was to be found may be there later */
	const struct {
		struct store_bodies_config config;
		int error;
	} cases[] = {
		{{.where = STORE_BODIES_HOST, .io = STORE_IO_CUFILE}, -EINVAL},
		{{.where = STORE_BODIES_GPU + 99}, -ENODEV},
		{{.where = STORE_BODIES_GPU + gpu, .io = STORE_IO_URING, .rdma = true}, -EINVAL},
		{{.where = STORE_BODIES_GPU + gpu, .rdma = false}, -EINVAL},
		{{.where = STORE_BODIES_GPU + host_gpu, .io = STORE_IO_CUFILE}, -EINVAL},
		{{.where = STORE_BODIES_AUTO, .io = STORE_IO_CUFILE, .rdma = false}, -ENOTSUP},
	};
	struct async_writer_config slices = {0};
	struct store_bodies_config config;
	struct store_bodies b;
	char message[PATH_MAX];
	unsigned int i;

	for (i = 0; i < RTE_DIM(cases); i++) {
		config = cases[i].config;
		config.directory = directory;
		message[0] = '\0';
		assert_int_equal(store_bodies_open(&b, &config, &slices, message), cases[i].error);
		assert_true(message[0] != '\0');
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

static void
damaged_batches_are_found(void **state)
{
	const struct run_load_config config = {.threads = 3, .slice = 8192, .gpu = -1};
	struct async_writer_config slices;
	struct store_bodies b;
	struct run_load l;
	char left[96];
	uint64_t at;
	uint8_t byte;
	int fd;

	/* left by a store with the same process id that was killed at its start */
	snprintf(left, sizeof(left), "%s/.braggline_store_%d", directory, (int)getpid());
	fd = open(left, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	close(fd);
	open_bodies(&b, STORE_BODIES_HOST, STORE_IO_AUTO, false, &slices);
	write_run(&b, slices);
	store_bodies_close(&b);
	load(&l, &config);
	assert_int_equal(l.damaged, 0);
	/* flip a bit in the last byte of a body */
	at = l.file[1].reader.batches[3].offset + l.file[1].reader.batches[3].metadata_size +
		l.file[1].reader.batches[3].body_length - 1;
	fd = open(l.file[1].path, O_RDWR);
	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
	run_load_free(&l);
	load(&l, &config);
	assert_int_equal(l.damaged, 1);
	assert_int_equal(l.file[1].damaged, 1);
	run_load_free(&l);
}

static void
directories_without_runs_are_reported(void **state)
{
	const struct run_load_config config = {.gpu = -1};
	char message[PATH_MAX], path[96];
	struct run_load l;
	FILE *f;

	assert_int_equal(run_load(&l, &config, directory, message), -ENOENT);
	run_load_free(&l);
	assert_int_equal(run_load(&l, &config, "/nowhere", message), -ENOENT);
	run_load_free(&l);
	snprintf(path, sizeof(path), "%s/x.arrow", directory);
	f = fopen(path, "w");
	fputs("no Arrow file", f);
	fclose(f);
	assert_int_equal(run_load(&l, &config, directory, message), -EBADMSG);
	assert_non_null(strstr(message, "x.arrow"));
	run_load_free(&l);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(mode_is_what_carried_the_bytes, begin),
		cmocka_unit_test_setup(environment_variables_take_precedence, begin),
		cmocka_unit_test_setup(a_broken_library_is_reported, begin),
		cmocka_unit_test_setup(bodies_go_from_the_gpu_to_files, begin),
		cmocka_unit_test_setup(errors_of_cufile_give_batches_back, begin),
		cmocka_unit_test_setup(the_mode_is_reported_with_its_reason, begin),
		cmocka_unit_test_setup(what_does_not_go_together_is_refused, begin),
		cmocka_unit_test_setup(damaged_batches_are_found, begin),
		cmocka_unit_test_setup(directories_without_runs_are_reported, begin),
	};
	char *eal[] = {(char[]){"store_io_test"}, (char[]){"--no-huge"}, (char[]){"--no-shconf"},
		(char[]){"--no-pci"}, (char[]){"--no-telemetry"}, (char[]){"-m"}, (char[]){"64"},
		(char[]){"--lcores"}, (char[]){"0@(0-1)"}, (char[]){"--vdev"},
		(char[]){"gpu_cuda0"}, (char[]){"--vdev"}, (char[]){"gpu_host0"}};
	int failed;

	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, setup, teardown);
	rte_eal_cleanup();
	return failed;
}
