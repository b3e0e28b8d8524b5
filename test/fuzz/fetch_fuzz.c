/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of any content for braggline-rdma fetch: a length of two bytes before each. Only files
 * with names that are allowed appear in the directory, and incomplete ones are removed.
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "files/incoming.h"
#include "files/record.h"
#include "seed_corpus.h"

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static char dir[64];

/* A large file would take the memory of the machine. */
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length);

int
__wrap_fallocate64(int fd, int mode, off_t offset, off_t length)
{
	errno = EOPNOTSUPP;
	return -1;
}

static size_t
put(uint8_t *at, const struct record *r, const char *text)
{
	const size_t length = sizeof(*r) + strlen(text);

	at[0] = (uint8_t)length;
	at[1] = (uint8_t)(length >> 8);
	record_encode(r, at + 2);
	memcpy(at + 2 + sizeof(*r), text, strlen(text));
	return 2 + length;
}

static void
clean(void)
{
	if (dir[0] != '\0')
		rmdir(dir);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	uint8_t bytes[512];
	size_t n = 0;

	seed_begin(argc, argv);
	n += put(bytes + n, &(struct record){.type = RECORD_BEGIN, .offset = 3}, "gain");
	n += put(bytes + n, &(struct record){.type = RECORD_DATA}, "ab");
	n += put(bytes + n, &(struct record){.type = RECORD_DATA, .offset = 2}, "c");
	n += put(bytes + n,
		&(struct record){.type = RECORD_END, .offset = 3, .crc = arrow_crc32c(0, "abc", 3)},
		"");
	n += put(bytes + n, &(struct record){.type = RECORD_DONE, .file = 1}, "");
	seed_add("file", bytes, n);
	snprintf(dir, sizeof(dir), "/dev/shm/braggline-fetch-XXXXXX");
	WANT(mkdtemp(dir) != NULL);
	atexit(clean);
	return 0;
}

/* Remove all files. @return their number */
static uint32_t
empty_directory(void)
{
	DIR *d = opendir(dir);
	char path[512];
	struct dirent *e;
	uint32_t n = 0;

	WANT(d != NULL);
	while ((e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		WANT(record_name_check(e->d_name, strlen(e->d_name)));
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		WANT(unlink(path) == 0);
		n++;
	}
	closedir(d);
	return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct incoming in;
	uint32_t files = 0;

	WANT(incoming_open(&in, dir) == 0);
	while (size >= 2) {
		const size_t length = data[0] | (size_t)data[1] << 8;

		data += 2;
		size -= 2;
		if (length > size)
			break;
		if (incoming_take(&in, data, length) < 0) {
			WANT(in.message[0] != '\0');
			files += in.files;
			incoming_restart(&in);
		}
		WANT(in.written <= in.size);
		data += length;
		size -= length;
	}
	files += in.files;
	incoming_close(&in);
	/* files may have the same name */
	WANT(empty_directory() <= files);
	return 0;
}
