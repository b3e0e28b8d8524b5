/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files written by the driver of HDF5, read by HDF5's own: whole after each flush, also if writes
 * are short, interrupted, cancelled, refused with O_DIRECT, or if the disk is full at any one of
 * them; with io_uring, and where it is not permitted.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "h5.h"
#include "h5_driver.h"
#include "io/direct_io.h"
#include "io/ring_faults.h"

#define CHUNKS	   16
#define CHUNK_MAX  (UINT32_C(1) << 20)
#define CHUNK_STEP 4099 /* bytes from the begin of a chunk to that of the next one */
#define FLUSH	   5	/* chunks from one flush to the next */
#define INDEX	   4000 /* entries of the index, which has more than 64 KiB */
#define GROUPS	   30	/* of which each has about 1 KiB */
#define WRITES_MAX 1000

enum mode {
	WHOLE,
	SHORT,
	CANCEL,
	REFUSE_OPEN,
	REFUSE_WRITE,
	FULL
};

static char dir[] = "/tmp/h5_driver_test.XXXXXX";
static uint8_t pattern[CHUNK_MAX + CHUNKS * CHUNK_STEP] __attribute__((aligned(4096)));
static uint8_t stored[CHUNK_MAX];
static enum mode mode;
static unsigned int fail_at;		   /* FULL: the only write that fails, from 1 */
static unsigned int writes, direct_writes; /* of all writes */
static unsigned int writes_in_place;	   /* that include pages of `pattern` */
static unsigned int fallocate_error;
static off_t size_of_copy, final_size; /* of the last file: after its last flush, closed */
static size_t largest_buffered;
static uint8_t lent[CHUNKS * CHUNK_MAX] __attribute__((aligned(4096))); /* copies of chunks */
static unsigned int dropped[CHUNKS]; /* times that the copy was given back */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
ssize_t __real_pwrite64(int fd, const void *data, size_t size, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t at);
ssize_t __real_pwritev64(int fd, const struct iovec *part, int nb, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *part, int nb, off_t at);
int __real_fallocate64(int fd, int how, off_t at, off_t size);
int __wrap_fallocate64(int fd, int how, off_t at, off_t size);

/* HDF5 does not free its buffer of metadata, 256 KiB, if it cannot write it when a file closes. */
const char *__lsan_default_suppressions(void);

const char *
__lsan_default_suppressions(void)
{
	return "leak:libhdf5\n";
}

int
__wrap_open64(const char *path, int flags, ...)
{
	mode_t permissions = 0;
	va_list list;

	va_start(list, flags);
	if ((flags & O_CREAT) != 0)
		permissions = va_arg(list, mode_t);
	va_end(list);
	if (mode == REFUSE_OPEN && (flags & O_DIRECT) != 0) {
		errno = EINVAL;
		return -1;
	}
	return __real_open64(path, flags, permissions);
}

/* Counts a write. @return errno that it fails with; 0: none */
static int
count(int fd, const void *data, size_t size)
{
	const bool is_direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
	const unsigned int number = ++writes;

	direct_writes += is_direct;
	if (is_direct && (const uint8_t *)data >= lent &&
		(const uint8_t *)data < lent + sizeof(lent))
		writes_in_place++;
	if (!is_direct && size > largest_buffered)
		largest_buffered = size;
	if (mode == SHORT && number % 3 == 0)
		return EINTR;
	if (mode == REFUSE_WRITE && is_direct)
		return EINVAL;
	return mode == FULL && number == fail_at ? ENOSPC : 0;
}

/* The same faults of writes through io_uring. */
static int
ring_write(int fd, const struct iovec *part, unsigned int nb)
{
	const int error = count(fd, part[nb - 1].iov_base, part[nb - 1].iov_len);

	if (mode == CANCEL)
		return writes % 3 == 0 ? 0 : -ECANCELED;
	return error != 0 ? -error : mode == SHORT ? RING_FIRST_HALF : 0;
}

/* A file system may allocate a part of the space before it finds that the disk is full. */
int
__wrap_fallocate64(int fd, int how, off_t at, off_t size)
{
	const int ret = __real_fallocate64(fd, how, at, size);

	if (fallocate_error == 0)
		return ret;
	errno = fallocate_error;
	return -1;
}

ssize_t
__wrap_pwrite64(int fd, const void *data, size_t size, off_t at)
{
	errno = count(fd, data, size);
	if (errno != 0)
		return -1;
	return __real_pwrite64(fd, data, mode == SHORT ? (size + 1) / 2 : size, at);
}

ssize_t
__wrap_pwritev64(int fd, const struct iovec *part, int nb, off_t at)
{
	errno = count(fd, part[nb - 1].iov_base, part[nb - 1].iov_len);
	if (errno != 0)
		return -1;
	if (mode == SHORT)
		return __real_pwrite64(fd, part->iov_base, (part->iov_len + 1) / 2, at);
	return __real_pwritev64(fd, part, nb, at);
}

/*
 * Bytes of chunk i, of which none is 0. Most are at a page in memory. @return its size: few of them
 * end at a page
 */
static size_t
get_chunk(unsigned int i, const uint8_t **chunk)
{
	*chunk = pattern + (i % 3 == 2 ? i * CHUNK_STEP : i * 4096);
	return i % 4 == 3 ? CHUNK_MAX : 70001 + i * 37003;
}

static hid_t
create_chunks(struct h5 *h)
{
	static const unsigned int options[] = {0, 2, sizeof(uint16_t), 0, 2};
	const hsize_t dims[] = {CHUNKS, 1024, 512}, size[] = {1, 1024, 512};
	const hid_t space = H5Screate_simple(3, dims, NULL);
	const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
	hid_t set;

	h5_check(h, "data", H5Pset_chunk(create, 3, size));
	/* chunks of any size: no filter reads them here */
	h5_check(h, "data", H5Pset_filter(create, H5_BITSHUFFLE, H5Z_FLAG_OPTIONAL, 5, options));
	set = h5_check_id(h, "data",
		h->failed ? -1
			  : H5Dcreate2(h->file, "data", H5T_STD_U16LE, space, H5P_DEFAULT, create,
				    H5P_DEFAULT));
	h5_release(create);
	h5_release(space);
	return set;
}

/* Copies a file; zeros at its end are space ahead, and stay a hole. @return its size */
static off_t
copy_file(const char *from, const char *to)
{
	const int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	struct stat st;
	off_t at = 0, end;

	assert_true(in >= 0 && out >= 0);
	assert_int_equal(fstat(in, &st), 0);
	end = (off_t)direct_io_written(in, st.st_size);
	while (at < end && sendfile(out, in, &at, end - at) > 0)
		;
	assert_int_equal(at, end);
	assert_int_equal(ftruncate(out, st.st_size), 0);
	close(in);
	assert_int_equal(close(out), 0);
	return st.st_size;
}

/* All chunks that the file has are as they were written. @return number; `least` must be there */
static unsigned int
check_chunks(const char *path, unsigned int least)
{
	unsigned int found = 0;
	const uint8_t *chunk;
	uint32_t filters;
	hsize_t size = 0;
	struct h5 h;
	hid_t set;

	h5_open(&h, path);
	set = h.failed ? -1 : H5Dopen2(h.file, "data", H5P_DEFAULT);
	assert_true(set >= 0 || least == 0);
	for (unsigned int i = 0; set >= 0 && i < CHUNKS; i++) {
		const hsize_t place[] = {i, 0, 0};

		if (H5Dget_chunk_storage_size(set, place, &size) < 0 || size == 0) {
			assert_true(i >= least);
			continue;
		}
		assert_int_equal(size, get_chunk(i, &chunk));
		assert_true(H5Dread_chunk(set, H5P_DEFAULT, place, &filters, stored) >= 0);
		assert_memory_equal(stored, chunk, size);
		found++;
	}
	h5_release(set);
	if (h.failed)
		h.file = -1;
	(void)h5_close(&h);
	return found;
}

/* Puts metadata between two chunks, which HDF5 writes later: the second one begins elsewhere. */
static void
make_groups(struct h5 *h)
{
	char name[16];

	for (unsigned int i = 0; i < GROUPS; i++) {
		snprintf(name, sizeof(name), "group%u", i);
		h5_release(h5_group(h, h->file, name, "NXcollection"));
	}
}

static void
drop(void *memory)
{
	const unsigned int i = ((uint8_t *)memory - lent) / CHUNK_MAX;

	/* it may be used again: a later write from it is wrong */
	memset(memory, 0xee, CHUNK_MAX);
	dropped[i]++;
}

/*
 * Writes a chunk. Every fourth one is not lent: its memory is changed as soon as the call returns.
 * Some are not at a page.
 */
static void
put_chunk(struct h5 *h, hid_t set, unsigned int i)
{
	const hsize_t place[] = {i, 0, 0};
	uint8_t *const memory = lent + (size_t)i * CHUNK_MAX;
	const uint8_t *chunk;
	const size_t size = get_chunk(i, &chunk);
	const size_t shift = (uintptr_t)chunk % 4096 != 0 && size < CHUNK_MAX ? 8 : 0;

	memcpy(memory + shift, chunk, size);
	h5_check(h, "data",
		h5_driver_write_chunk(h->file, set, place, memory + shift, size,
			i % 4 == 1 ? NULL : drop, memory));
	if (i % 4 == 1)
		drop(memory);
}

/* Writes a file, and checks a copy after each flush. @return chunks that were flushed; or -EIO */
static int
write_file(struct h5 *h, const char *path, unsigned int *flushed, bool check)
{
	unsigned int lent_chunks = 0;
	char copy[64];
	hid_t set;
	int ret;

	memset(dropped, 0, sizeof(dropped));
	snprintf(copy, sizeof(copy), "%s/copy.h5", dir);
	*flushed = writes = direct_writes = writes_in_place = 0;
	largest_buffered = 0;
	h5_create_growing(h, path, INDEX);
	set = h->failed ? -1 : create_chunks(h);
	for (unsigned int i = 0; !h->failed && i < CHUNKS; i++) {
		put_chunk(h, set, i);
		lent_chunks = i + 1;
		if (i == FLUSH + 1)
			make_groups(h);
		if ((i + 1) % FLUSH != 0)
			continue;
		h5_check(h, "flush", H5Fflush(h->file, H5F_SCOPE_LOCAL));
		*flushed = h->failed ? *flushed : i + 1;
		if (check && !h->failed) {
			size_of_copy = copy_file(path, copy);
			assert_int_equal(check_chunks(copy, i + 1), i + 1);
		}
	}
	h5_release(set);
	ret = h5_close(h);
	for (unsigned int i = 0; i < lent_chunks; i++)
		assert_int_equal(dropped[i], 1);
	return ret;
}

static void
write_and_check(enum mode m)
{
	unsigned int flushed;
	struct stat st;
	char path[64];
	struct h5 h;

	snprintf(path, sizeof(path), "%s/a.h5", dir);
	mode = m;
	assert_int_equal(write_file(&h, path, &flushed, true), 0);
	mode = WHOLE;
	assert_int_equal(check_chunks(path, CHUNKS), CHUNKS);
	/* space that was allocated beyond the end is given back */
	assert_int_equal(stat(path, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size + (1 << 20));
	final_size = st.st_size;
}

/* Returns false where space cannot be allocated ahead. */
static bool
can_allocate(void)
{
	char path[64];
	int fd;
	bool can;

	snprintf(path, sizeof(path), "%s/a.h5", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	can = __real_fallocate64(fd, 0, 0, 4096) == 0;
	close(fd);
	return can;
}

/* ext4 makes direct writes one at a time if they make a file longer: the file is so already. */
static void
test_space_ahead_is_cut_when_the_file_is_closed(void **state)
{
	off_t size;

	if (!can_allocate())
		skip();
	write_and_check(REFUSE_OPEN);
	size = final_size;
	assert_true(size_of_copy <= size);
	write_and_check(WHOLE);
	assert_int_equal(final_size, size);
	assert_true(size_of_copy >= 64 << 20);
	assert_true(size_of_copy > 2 * size);
}

static void
test_a_flushed_file_is_whole(void **state)
{
	write_and_check(WHOLE);
	/* chunks that are not at a page are copied */
	assert_true(writes_in_place >= CHUNKS / 2);
	assert_true(direct_writes > writes_in_place);
}

/* Nothing is written before the driver waits for it: an index must not be written before. */
static void
test_chunks_are_in_the_file_before_their_index(void **state)
{
	if (ring_refusal == 0)
		ring_is_held = true;
	write_and_check(WHOLE);
	ring_is_held = false;
}

static void
test_cancelled_writes_are_repeated(void **state)
{
	write_and_check(CANCEL);
}

static void
test_rejected_writes_are_made_at_once(void **state)
{
	ring_rejection = EAGAIN;
	write_and_check(WHOLE);
	ring_rejection = 0;
}

/* The space that was allocated is given back at once: other files need it. */
static void
test_a_full_disk_has_no_allocated_space(void **state)
{
	unsigned int flushed;
	char path[64];
	struct stat st;
	struct h5 h;
	hid_t set;

	snprintf(path, sizeof(path), "%s/a.h5", dir);
	mode = WHOLE;
	fallocate_error = ENOSPC;
	h5_create_growing(&h, path, INDEX);
	set = create_chunks(&h);
	memset(dropped, 0, sizeof(dropped));
	put_chunk(&h, set, 0);
	h5_check(&h, "flush", H5Fflush(h.file, H5F_SCOPE_LOCAL));
	assert_false(h.failed);
	assert_int_equal(stat(path, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size + (1 << 20));
	h5_release(set);
	assert_int_equal(h5_close(&h), 0);
	assert_int_equal(write_file(&h, path, &flushed, true), 0);
	fallocate_error = 0;
}

static void
test_an_index_is_written_at_once(void **state)
{
	write_and_check(WHOLE);
	assert_true(largest_buffered > INDEX * (sizeof(uint64_t) * 6));
}

static void
test_short_and_interrupted_writes_continue(void **state)
{
	write_and_check(SHORT);
}

static void
test_without_direct_files_are_written(void **state)
{
	write_and_check(REFUSE_OPEN);
	assert_int_equal(direct_writes, 0);
}

static void
test_refused_direct_writes_are_repeated(void **state)
{
	write_and_check(REFUSE_WRITE);
	assert_true(direct_writes > 0);
}

/* Entries of a directory of /proc: descriptors of this process */
static unsigned int
count_entries(const char *path)
{
	unsigned int nb = 0;
	DIR *d = opendir(path);

	assert_non_null(d);
	while (readdir(d) != NULL)
		nb++;
	closedir(d);
	return nb;
}

/* One write fails, and those after it would not. No index may have a chunk that is not there. */
static void
test_a_full_disk_loses_no_flushed_chunk(void **state)
{
	const unsigned int files = count_entries("/proc/self/fd");
	unsigned int flushed;
	char path[64];
	struct h5 h;

	snprintf(path, sizeof(path), "%s/full.h5", dir);
	for (fail_at = 1; fail_at < WRITES_MAX; fail_at++) {
		int ret;

		mode = FULL;
		ret = write_file(&h, path, &flushed, false);
		mode = WHOLE;
		if (writes < fail_at)
			break;
		assert_int_equal(ret, -EIO);
		assert_non_null(strstr(h.message, strerror(ENOSPC)));
		(void)check_chunks(path, flushed);
		assert_int_equal(count_entries("/proc/self/fd"), files);
	}
	assert_true(fail_at > 10);
	assert_int_equal(check_chunks(path, CHUNKS), CHUNKS);
}

static int
make_dir(void **state)
{
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(1 + (i * 7 + (i >> 12)) % 251);
	return mkdtemp(dir) != NULL ? 0 : -1;
}

static int
remove_dir(void **state)
{
	static const char *const names[] = {"a.h5", "copy.h5", "full.h5"};
	char path[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		(void)unlink(path);
	}
	return rmdir(dir);
}

static int
run_driver_tests(const char *name)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_flushed_file_is_whole),
		cmocka_unit_test(test_space_ahead_is_cut_when_the_file_is_closed),
		cmocka_unit_test(test_chunks_are_in_the_file_before_their_index),
		cmocka_unit_test(test_an_index_is_written_at_once),
		cmocka_unit_test(test_short_and_interrupted_writes_continue),
		cmocka_unit_test(test_cancelled_writes_are_repeated),
		cmocka_unit_test(test_rejected_writes_are_made_at_once),
		cmocka_unit_test(test_without_direct_files_are_written),
		cmocka_unit_test(test_refused_direct_writes_are_repeated),
		cmocka_unit_test(test_a_full_disk_has_no_allocated_space),
		cmocka_unit_test(test_a_full_disk_loses_no_flushed_chunk),
	};

	return cmocka_run_group_tests_name(name, tests, make_dir, remove_dir);
}

int
main(void)
{
	int failed = run_driver_tests("io_uring");

	ring_refusal = EPERM;
	strcpy(strrchr(dir, '.'), ".XXXXXX");
	return failed + run_driver_tests("without io_uring");
}
