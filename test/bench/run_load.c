/* SPDX-License-Identifier: BSD-3-Clause */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>

#include "arrow/names.h"
#include "arrow/crc32c.h"
#include "arrow/async_writer.h"
#include "clock.h"
#include "io/body_memory.h"
#include "io/cufile.h"
#include "io/own_file.h"
#include "run_load.h"

/* Range of a body in the file. Slices divide it into parts, each with its own CRC. */
struct body {
	uint64_t from; /* offset in the file */
	uint64_t to;
	size_t part; /* index of its first part in reading.crc */
};

struct reading {
	struct run_load *load;
	struct run_load_file *file;
	int fd;
	void *handle; /* cuFile handle; NULL: pread */
	struct body *body;
	uint32_t *crc; /* CRCs of the parts of all bodies */
	struct job *job;
	size_t nb_jobs;
};

struct job {
	struct slice_job job;
	struct reading *r;
	uint64_t from; /* offset in the file */
	uint64_t size;
	int error;
};

/* host copy of a slice in GPU memory, to compute its CRCs */
static __thread uint8_t *mirror;

/* ---- a slice --------------------------------------------------------------------------------- */

/* Compute the CRCs of the parts of bodies within a slice. */
static void
sum_up(struct reading *r, const struct job *j, const uint8_t *data)
{
	const uint64_t end = j->from + j->size, slice = r->load->config.slice;
	const size_t nb = r->file->reader.nb_batches;
	const struct body *b = r->body;
	size_t low = 0, high = nb, middle;
	uint64_t from, to;

	/* find the first body that ends after the start of the slice */
	while (low < high) {
		middle = (low + high) / 2;
		if (b[middle].to > j->from)
			high = middle;
		else
			low = middle + 1;
	}
	for (; low < nb && b[low].from < end; low++) {
		if (b[low].from == b[low].to)
			continue;
		from = b[low].from > j->from ? b[low].from : j->from;
		to = b[low].to < end ? b[low].to : end;
		r->crc[b[low].part + j->from / slice - b[low].from / slice] =
			arrow_crc32c(0, data + (from - j->from), to - from);
	}
}

/* @return number of bytes read, which can be fewer at the end of a file; -errno */
static ssize_t
read_slice(const struct reading *r, const struct job *j, uint8_t *to, uint64_t done)
{
	ssize_t n;

	if (r->handle != NULL)
		return cufile_read(r->load->config.cufile, r->handle, to + done, j->size - done,
			j->from + done);
	do
		n = pread(r->fd, to + done, j->size - done, (off_t)(j->from + done));
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void
run_job(struct slice_job *job)
{
	struct job *j = (struct job *)job;
	struct reading *r = j->r;
	uint8_t *const to = r->file->at + j->from;
	const uint8_t *data = to;
	uint64_t done = 0;
	ssize_t n;

	/* direct I/O reads whole blocks, but the file may end within the last one */
	while (done < j->size && j->from + done < r->file->size) {
		n = read_slice(r, j, to, done);
		if (n <= 0) {
			j->error = n < 0 ? (int)n : -EIO;
			return;
		}
		done += n;
	}
	if (r->load->config.unchecked)
		return;
	if (mirror != NULL) {
		j->error = body_memory_copy(r->load->config.gpu, mirror, to, j->size);
		data = mirror;
	}
	if (j->error == 0)
		sum_up(r, j, data);
}

static int
enter(void *arg)
{
	const struct run_load *load = arg;
	int ret;

	if (load->config.gpu < 0)
		return 0;
	ret = load->config.cufile != NULL ? cufile_enter(load->config.cufile) : 0;
	if (ret == 0 && !load->config.unchecked) {
		mirror = aligned_alloc(ARROW_BLOCK, load->config.slice);
		ret = mirror != NULL ? 0 : -ENOMEM;
	}
	return ret;
}

static void
leave(void *arg)
{
	const struct run_load *load = arg;

	free(mirror);
	if (load->config.gpu >= 0 && load->config.cufile != NULL)
		cufile_leave(load->config.cufile);
}

/* ---- a file ---------------------------------------------------------------------------------- */

static int
plan_bodies(struct reading *r)
{
	const struct arrow_reader *reader = &r->file->reader;
	const uint64_t slice = r->load->config.slice;
	size_t i, parts = 0;
	struct body *b;

	r->body = calloc(reader->nb_batches + 1, sizeof(*r->body));
	if (r->body == NULL)
		return -ENOMEM;
	for (i = 0; i < reader->nb_batches; i++) {
		b = &r->body[i];
		b->from = reader->batches[i].offset + reader->batches[i].metadata_size;
		b->to = b->from + reader->batches[i].body_length;
		b->part = parts;
		if (b->to > b->from)
			parts += (b->to - 1) / slice - b->from / slice + 1;
	}
	r->crc = calloc(parts + 1, sizeof(*r->crc));
	return r->crc != NULL ? 0 : -ENOMEM;
}

static int
plan_jobs(struct reading *r)
{
	const uint64_t slice = r->load->config.slice;
	const uint64_t end = (r->file->size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
	uint64_t at;

	r->job = calloc(end / slice + 1, sizeof(*r->job));
	if (r->job == NULL)
		return -ENOMEM;
	for (at = 0; at < end; at += slice)
		r->job[r->nb_jobs++] = (struct job){
			.job.run = run_job,
			.r = r,
			.from = at,
			.size = end - at < slice ? end - at : slice,
		};
	return 0;
}

static int
open_file(struct run_load *load, struct reading *r, struct run_load_file *f)
{
	int ret;

	*r = (struct reading){.load = load, .file = f, .fd = -1};
	ret = plan_bodies(r);
	if (ret == 0)
		ret = plan_jobs(r);
	if (ret < 0)
		return ret;
	r->fd = own_file_open_named(f->path, O_RDONLY | O_DIRECT, 0);
	if (r->fd == -EINVAL) {
		load->direct = false;
		r->fd = own_file_open_named(f->path, O_RDONLY, 0);
	}
	if (r->fd < 0)
		return r->fd;
	return load->config.cufile != NULL ? cufile_attach(load->config.cufile, r->fd, &r->handle)
					   : 0;
}

static void
close_file(struct reading *r)
{
	if (r->handle != NULL)
		cufile_detach(r->load->config.cufile, r->handle);
	if (r->fd >= 0)
		close(r->fd);
	free(r->job);
	free(r->crc);
	free(r->body);
}

static uint32_t
body_crc(const struct reading *r, size_t batch)
{
	const struct body *b = &r->body[batch];
	const uint64_t slice = r->load->config.slice;
	const uint32_t *crc = &r->crc[b->part];
	uint64_t at, end;
	uint32_t sum = 0;

	for (at = b->from; at < b->to; at = end) {
		end = (at / slice + 1) * slice;
		if (end > b->to)
			end = b->to;
		sum = arrow_crc32c_combine(sum, *crc++, end - at);
	}
	return sum;
}

/* After all slices of a file: check for read errors, and compare the CRCs of the bodies. */
static int
finish_file(struct reading *r)
{
	struct run_load_file *f = r->file;
	size_t i;
	int ret;

	for (i = 0; i < r->nb_jobs; i++) {
		if (r->job[i].error < 0)
			return r->job[i].error;
	}
	for (i = 0; i < f->reader.nb_batches && !r->load->config.unchecked; i++) {
		ret = arrow_reader_crc_is(&f->reader, i, body_crc(r, i));
		f->damaged += ret < 0;
		f->unchecked += ret == 0;
	}
	return 0;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static int
say(char *message, const char *path, int error, const char *what)
{
	snprintf(message, PATH_MAX, "%.3000s: %s", path, what != NULL ? what : strerror(-error));
	return error;
}

static int
add_file(struct run_load *load, const char *path, char *message)
{
	const char *problem = NULL;
	struct run_load_file *more, *f;
	size_t i;
	int ret;

	more = realloc(load->file, (load->nb_files + 1) * sizeof(*more));
	if (more == NULL)
		return say(message, path, -ENOMEM, NULL);
	load->file = more;
	f = &more[load->nb_files];
	memset(f, 0, sizeof(*f));
	ret = arrow_reader_open(&f->reader, path, &problem);
	if (ret < 0)
		return say(message, path, ret, problem);
	/* the reader only touches the page of each announcement: disable read-ahead */
	(void)madvise((void *)(uintptr_t)f->reader.data, f->reader.size, MADV_RANDOM);
	f->path = strdup(path);
	f->size = f->reader.complete ? f->reader.size : f->reader.valid;
	load->nb_files++;
	load->bytes += f->size;
	load->batches += f->reader.nb_batches;
	for (i = 0; i < f->reader.nb_batches; i++)
		load->rows += f->reader.batches[i].rows;
	return f->path != NULL ? 0 : say(message, path, -ENOMEM, NULL);
}

static int
is_arrow(const struct dirent *entry)
{
	const char *name = entry->d_name;

	return !arrow_name_is_hidden(name) &&
		(arrow_name_is_complete(name) || arrow_name_is_part(name));
}

static int
find_files(struct run_load *load, const char *path, char *message)
{
	char name[PATH_MAX];
	struct dirent **entry;
	struct stat st;
	int i, n, ret = 0;

	if (stat(path, &st) < 0)
		return say(message, path, -errno, NULL);
	if (!S_ISDIR(st.st_mode))
		return add_file(load, path, message);
	n = scandir(path, &entry, is_arrow, alphasort);
	if (n < 0)
		return say(message, path, -errno, NULL);
	for (i = 0; i < n; i++) {
		if (ret == 0 &&
			snprintf(name, sizeof(name), "%s/%s", path, entry[i]->d_name) <
				(int)sizeof(name))
			ret = add_file(load, name, message);
		free(entry[i]);
	}
	free(entry);
	return ret == 0 && n == 0 ? say(message, path, -ENOENT, "no Arrow files in this directory")
				  : ret;
}

static int
take_memory(struct run_load *load)
{
	uint64_t size = 0;
	size_t i;
	int ret;

	for (i = 0; i < load->nb_files; i++)
		size += (load->file[i].size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
	ret = body_memory_alloc(load->config.gpu, size, &load->memory);
	if (ret < 0)
		return ret;
	load->memory_size = size;
	size = 0;
	for (i = 0; i < load->nb_files; i++) {
		load->file[i].at = load->memory + size;
		size += (load->file[i].size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
	}
	return load->config.cufile != NULL
		? cufile_memory_add(load->config.cufile, load->memory, load->memory_size)
		: 0;
}

static int
read_files(struct run_load *load, struct reading *reading, char *message)
{
	const struct slice_pool_config config = {load->config.threads, enter, leave, load};
	struct slice_pool *pool;
	size_t i, k;
	int ret = 0;

	ret = slice_pool_open(&pool, &config);
	if (ret < 0)
		return say(message, "threads", ret, NULL);
	for (i = 0; i < load->nb_files && ret == 0; i++) {
		ret = open_file(load, &reading[i], &load->file[i]);
		if (ret < 0)
			say(message, load->file[i].path, ret, NULL);
		for (k = 0; ret == 0 && k < reading[i].nb_jobs; k++)
			slice_pool_submit(pool, &reading[i].job[k].job);
	}
	slice_pool_close(pool);
	for (i = 0; i < load->nb_files && ret == 0; i++) {
		ret = finish_file(&reading[i]);
		if (ret < 0)
			say(message, load->file[i].path, ret, NULL);
		load->damaged += load->file[i].damaged;
		load->unchecked += load->file[i].unchecked;
	}
	return ret;
}

int
run_load_gpu(const char *device, int16_t *gpu)
{
	char text[512], name[64], *words[32], *rest = text;
	int nb = 0;

	/* EAL requires writable strings */
	if (snprintf(text, sizeof(text),
		    "braggline --no-huge -m 64 --no-pci --no-shconf --no-telemetry "
		    "--log-level lib.eal:error --lcores 0@%d --vdev %s",
		    sched_getcpu(), device) >= (int)sizeof(text))
		return -EINVAL;
	while ((words[nb] = strtok_r(NULL, " ", &rest)) != NULL)
		nb++;
	if (rte_eal_init(nb, words) < 0)
		return -rte_errno;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(device, ","), device);
	*gpu = body_memory_gpu(name);
	return *gpu < 0 ? -ENODEV : 0;
}

int
run_load(struct run_load *load, const struct run_load_config *config, const char *path,
	char message[PATH_MAX])
{
	struct reading *reading;
	uint64_t begun;
	size_t i;
	int ret;

	memset(load, 0, sizeof(*load));
	load->config = *config;
	load->direct = true;
	if (load->config.threads == 0)
		load->config.threads = SLICE_POOL_THREADS;
	if (load->config.slice == 0)
		load->config.slice = ARROW_SLICE_SIZE;
	if (load->config.slice % ARROW_BLOCK != 0)
		return say(message, "slices", -EINVAL, NULL);
	ret = find_files(load, path, message);
	if (ret < 0)
		return ret;
	ret = take_memory(load);
	if (ret < 0)
		return say(message, path, ret, NULL);
	reading = calloc(load->nb_files, sizeof(*reading));
	if (reading == NULL)
		return say(message, path, -ENOMEM, NULL);
	for (i = 0; i < load->nb_files; i++)
		reading[i].fd = -1;
	begun = monotonic_ns();
	ret = read_files(load, reading, message);
	load->seconds = (monotonic_ns() - begun) * 1e-9;
	for (i = 0; i < load->nb_files; i++)
		close_file(&reading[i]);
	free(reading);
	return ret;
}

uint8_t *
run_load_body(const struct run_load *load, size_t file, size_t batch)
{
	const struct run_load_file *f = &load->file[file];
	const struct arrow_read_batch *b = &f->reader.batches[batch];

	return f->at + b->offset + b->metadata_size;
}

void
run_load_free(struct run_load *load)
{
	size_t i;

	if (load->memory != NULL) {
		if (load->config.cufile != NULL)
			cufile_memory_remove(load->config.cufile, load->memory);
		body_memory_free(load->config.gpu, load->memory, load->memory_size);
	}
	for (i = 0; i < load->nb_files; i++) {
		arrow_reader_close(&load->file[i].reader);
		free(load->file[i].path);
	}
	free(load->file);
	memset(load, 0, sizeof(*load));
}
