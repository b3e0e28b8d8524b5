/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/format.h"
#include "arrow/tables.h"
#include "io/direct_io.h"
#include "scan/memory.h"
#include "scan/record.h"

#define HEADER_MAX	 (UINT64_C(2) << 20) /* both copies of a schema; a journal holds less */
#define ANNOUNCEMENT_MAX (16 * ARROW_BLOCK)  /* as arrow/reader.c */

/* @return 0; -ENODATA: shorter; -errno */
static int
read_whole(int fd, void *data, uint64_t size, uint64_t at)
{
	const int64_t n = direct_io_read(fd, data, size, at);

	return n < 0 ? (int)n : (uint64_t)n < size ? -ENODATA : 0;
}

static int
open_header(struct scan_header *h, uint64_t size, const char *path)
{
	const char *problem, *table;
	int ret = arrow_reader_open_memory(&h->reader, h->data, size, &problem);

	if (ret < 0)
		/* the first copy may not be written yet */
		return ret == -ENOMEM ? ret : -ENODATA;
	if (!arrow_reader_has_schema(&h->reader))
		return -ENODATA;
	table = arrow_reader_meta(&h->reader, ARROW_META_TABLE);
	if (table == NULL || strcmp(table, arrow_table_name(h->table)) != 0)
		return -EBADMSG;
	arrow_reader_only(&h->reader, path);
	return 0;
}

int
scan_header_read(struct scan_header **header, int fd, const char *path, enum arrow_table table)
{
	uint8_t lead[ARROW_MAGIC_ROOM + ARROW_PREFIX];
	struct scan_header *h;
	uint32_t length;
	uint64_t size;
	int ret;

	ret = read_whole(fd, lead, sizeof(lead), 0);
	if (ret < 0)
		return ret;
	memcpy(&length, lead + ARROW_MAGIC_ROOM + 4, sizeof(length));
	size = sizeof(lead) + (uint64_t)length;
	if (memcmp(lead, ARROW_MAGIC "\0", ARROW_MAGIC_ROOM) != 0 || size > HEADER_MAX ||
		size % ARROW_BLOCK != 0)
		return -ENODATA;
	h = calloc(1, sizeof(*h));
	if (h == NULL)
		return -ENOMEM;
	h->refs = 1;
	h->table = table;
	h->data = malloc(size);
	ret = h->data != NULL ? read_whole(fd, h->data, size, 0) : -ENOMEM;
	if (ret == 0)
		ret = open_header(h, size, path);
	if (ret == 0)
		*header = h;
	else
		scan_header_drop(h);
	return ret;
}

struct scan_header *
scan_header_ref(struct scan_header *header)
{
	__atomic_add_fetch(&header->refs, 1, __ATOMIC_RELAXED);
	return header;
}

struct scan_record *
scan_record_ref(struct scan_record *record)
{
	__atomic_add_fetch(&record->refs, 1, __ATOMIC_RELAXED);
	return record;
}

void
scan_header_drop(struct scan_header *header)
{
	if (header == NULL || __atomic_sub_fetch(&header->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (header->reader.data != NULL)
		arrow_reader_close(&header->reader);
	free(header->data);
	free(header);
}

void
scan_record_drop(struct scan_record *record)
{
	if (record == NULL || __atomic_sub_fetch(&record->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	scan_header_drop(record->header);
	scan_memory_put(record->data);
	free(record);
}

/* Read the announcement at an offset into `block`. @return its size, or a state below it */
static enum scan_record_state
read_announcement(const struct scan_header *h, int fd, uint64_t at, uint8_t block[ANNOUNCEMENT_MAX],
	struct arrow_reader *view, struct arrow_read_batch *b)
{
	uint32_t prefix[2];

	if (read_whole(fd, block, ARROW_PREFIX, at) < 0)
		return SCAN_RECORD_NONE;
	memcpy(prefix, block, sizeof(prefix));
	if (prefix[0] == 0 && prefix[1] == 0)
		return SCAN_RECORD_NONE;
	if (prefix[0] == ARROW_CONTINUATION && prefix[1] == 0)
		return SCAN_RECORD_END;
	if (prefix[0] != ARROW_CONTINUATION || prefix[1] > ANNOUNCEMENT_MAX - ARROW_PREFIX ||
		read_whole(fd, block, ARROW_PREFIX + prefix[1], at) < 0)
		return SCAN_RECORD_WRONG;
	*view = h->reader;
	view->data = block;
	view->size = view->written = ARROW_PREFIX + prefix[1];
	switch (arrow_reader_announced(view, 0, b)) {
	case 1:
	case -ENODATA:
		break;
	default:
		return SCAN_RECORD_WRONG;
	}
	return b->body_length > SCAN_RECORD_MAX ? SCAN_RECORD_WRONG : SCAN_RECORD_PARTIAL;
}

enum scan_record_state
scan_record_peek(const struct scan_header *header, int fd, uint64_t at, uint64_t *length)
{
	_Alignas(8) uint8_t block[ANNOUNCEMENT_MAX];
	struct arrow_read_batch b;
	struct arrow_reader view;
	enum scan_record_state state = read_announcement(header, fd, at, block, &view, &b);

	if (state == SCAN_RECORD_PARTIAL)
		*length = b.metadata_size + b.body_length;
	return state;
}

/* Whether the last block of a batch was written. Space that is only allocated reads as a hole. */
static bool
has_data(int fd, uint64_t end)
{
	const off_t last = (off_t)(end - ARROW_BLOCK);
	const off_t at = lseek(fd, last, SEEK_DATA);

	/* a file system without holes does not tell */
	return at == last || (at < 0 && errno != ENXIO);
}

static int
open_record(struct scan_record *r)
{
	int ret;

	if (arrow_reader_announced(&r->reader, 0, &r->batch) != 1)
		return -EBADMSG;
	r->reader.batches = &r->batch;
	r->reader.nb_batches = 1;
	if (arrow_reader_crc(&r->reader, 0) != 1)
		return -EBADMSG;
	if (r->header->table != ARROW_IMAGES)
		return 0;
	if (scan_images_open(&r->reader, 0, &r->images) < 0)
		return -EBADMSG;
	ret = scan_peaks_open(&r->reader, 0, &r->peaks);
	r->has_peaks = ret == 0;
	return ret == -ENODATA ? 0 : ret;
}

enum scan_record_state
scan_record_read(struct scan_record **record, struct scan_header *header, int fd, uint64_t at,
	uint64_t *length)
{
	enum scan_record_state state = scan_record_peek(header, fd, at, length);
	struct scan_record *r;

	if (state != SCAN_RECORD_PARTIAL || !has_data(fd, at + *length))
		return state;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return state;
	r->refs = 1;
	r->header = scan_header_ref(header);
	r->data = scan_memory_get(*length);
	r->reader = header->reader;
	r->reader.data = r->data;
	r->reader.size = r->reader.written = *length;
	if (r->data == NULL || read_whole(fd, r->data, *length, at) < 0 || open_record(r) < 0) {
		scan_record_drop(r);
		return state;
	}
	*record = r;
	return SCAN_RECORD_WHOLE;
}

int
scan_record_search(const struct scan_header *header, int fd, uint64_t *at, uint64_t blocks)
{
	enum scan_record_state state;
	uint64_t length;
	struct stat st;

	for (; blocks > 0; blocks--, *at += ARROW_BLOCK) {
		if (fstat(fd, &st) < 0 || *at >= (uint64_t)st.st_size)
			return -ENODATA;
		state = scan_record_peek(header, fd, *at, &length);
		if (state == SCAN_RECORD_PARTIAL || state == SCAN_RECORD_END)
			return 1;
	}
	return 0;
}

static bool
has_footer(int fd, int64_t size)
{
	char end[ARROW_MAGIC_SIZE];

	return size > ARROW_MAGIC_ROOM + ARROW_MAGIC_SIZE &&
		read_whole(fd, end, sizeof(end), size - sizeof(end)) == 0 &&
		memcmp(end, ARROW_MAGIC, sizeof(end)) == 0;
}

bool
scan_file_settled(struct scan_change *change, int fd)
{
	struct timespec t;
	struct stat st;
	int64_t ns;

	clock_gettime(CLOCK_MONOTONIC, &t);
	ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
	if (fstat(fd, &st) < 0 || has_footer(fd, st.st_size))
		return true;
	if (change->seen_ns == 0 || st.st_size != change->size ||
		memcmp(&st.st_mtim, &change->written, sizeof(st.st_mtim)) != 0)
		*change = (struct scan_change){st.st_size, st.st_mtim, ns};
	return ns - change->seen_ns >= SCAN_SETTLED_MS * INT64_C(1000000);
}

/* Gives whole pages back. */
static void
forget(const void *data, uint64_t size)
{
	const uintptr_t page = sysconf(_SC_PAGESIZE);
	const uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
	const uintptr_t end = ((uintptr_t)data + size) / page * page;

	/* if it fails, the memory stays in use */
	if (data != NULL && end > first)
		(void)madvise((void *)first, end - first, MADV_DONTNEED);
}

void
scan_record_shrink(struct scan_record *record)
{
	const struct scan_images *images = &record->images;
	const uint64_t size = record->reader.size;

	/* a spare buffer may be larger */
	forget(record->data + size, scan_memory_size(record->data) - size);
	if (record->header->table != ARROW_IMAGES)
		return;
	forget(images->row_ptr.data, images->row_ptr.items * sizeof(uint32_t));
	forget(images->col.data, images->col.items * sizeof(uint16_t));
	forget(images->value.data,
		images->value.items * (images->is_i16 ? sizeof(int16_t) : sizeof(float)));
	forget(images->raw.data, images->raw.items);
}
