/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/format.h"
#include "arrow/tables.h"
#include "io/direct_io.h"
#include "memory.h"
#include "record.h"

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
open_header(struct record_header *h, uint64_t size, const char *path)
{
	const char *problem, *table;
	int ret = arrow_reader_open_memory(&h->reader, h->data, size, &problem);

	if (ret < 0)
		/* the first copy may not be written yet */
		return ret == -ENOMEM ? ret : -ENODATA;
	if (!arrow_reader_has_schema(&h->reader))
		return -ENODATA;
	table = arrow_reader_meta(&h->reader, ARROW_META_TABLE);
	if (table == NULL || strcmp(table, arrow_table_name(ARROW_IMAGES)) != 0)
		return -EBADMSG;
	arrow_reader_only(&h->reader, path);
	return 0;
}

int
record_header_read(struct record_header **header, int fd, const char *path)
{
	uint8_t lead[ARROW_MAGIC_ROOM + ARROW_PREFIX];
	struct record_header *h;
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
	h->data = malloc(size);
	ret = h->data != NULL ? read_whole(fd, h->data, size, 0) : -ENOMEM;
	if (ret == 0)
		ret = open_header(h, size, path);
	if (ret == 0)
		*header = h;
	else
		record_header_drop(h);
	return ret;
}

struct record_header *
record_header_ref(struct record_header *header)
{
	__atomic_add_fetch(&header->refs, 1, __ATOMIC_RELAXED);
	return header;
}

struct record *
record_ref(struct record *record)
{
	__atomic_add_fetch(&record->refs, 1, __ATOMIC_RELAXED);
	return record;
}

void
record_header_drop(struct record_header *header)
{
	if (header == NULL || __atomic_sub_fetch(&header->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (header->reader.data != NULL)
		arrow_reader_close(&header->reader);
	free(header->data);
	free(header);
}

void
record_drop(struct record *record)
{
	if (record == NULL || __atomic_sub_fetch(&record->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	record_header_drop(record->header);
	memory_put(record->data);
	free(record);
}

/* Read the announcement at an offset into `block`. @return its size, or a state below it */
static enum record_state
read_announcement(const struct record_header *h, int fd, uint64_t at,
	uint8_t block[ANNOUNCEMENT_MAX], struct arrow_reader *view, struct arrow_read_batch *b)
{
	uint32_t prefix[2];

	if (read_whole(fd, block, ARROW_PREFIX, at) < 0)
		return RECORD_NONE;
	memcpy(prefix, block, sizeof(prefix));
	if (prefix[0] == 0 && prefix[1] == 0)
		return RECORD_NONE;
	if (prefix[0] == ARROW_CONTINUATION && prefix[1] == 0)
		return RECORD_END;
	if (prefix[0] != ARROW_CONTINUATION || prefix[1] > ANNOUNCEMENT_MAX - ARROW_PREFIX ||
		read_whole(fd, block, ARROW_PREFIX + prefix[1], at) < 0)
		return RECORD_WRONG;
	*view = h->reader;
	view->data = block;
	view->size = view->written = ARROW_PREFIX + prefix[1];
	switch (arrow_reader_announced(view, 0, b)) {
	case 1:
	case -ENODATA:
		break;
	default:
		return RECORD_WRONG;
	}
	return b->body_length > RECORD_MAX ? RECORD_WRONG : RECORD_PARTIAL;
}

enum record_state
record_peek(const struct record_header *header, int fd, uint64_t at, uint64_t *length)
{
	_Alignas(8) uint8_t block[ANNOUNCEMENT_MAX];
	struct arrow_read_batch b;
	struct arrow_reader view;
	enum record_state state = read_announcement(header, fd, at, block, &view, &b);

	if (state == RECORD_PARTIAL)
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
open_record(struct record *r)
{
	int ret;

	if (arrow_reader_announced(&r->reader, 0, &r->batch) != 1)
		return -EBADMSG;
	r->reader.batches = &r->batch;
	r->reader.nb_batches = 1;
	if (arrow_reader_crc(&r->reader, 0) != 1 || scan_images_open(&r->reader, 0, &r->images) < 0)
		return -EBADMSG;
	ret = scan_peaks_open(&r->reader, 0, &r->peaks);
	r->has_peaks = ret == 0;
	return ret == -ENODATA ? 0 : ret;
}

enum record_state
record_read(
	struct record **record, struct record_header *header, int fd, uint64_t at, uint64_t *length)
{
	enum record_state state = record_peek(header, fd, at, length);
	struct record *r;

	if (state != RECORD_PARTIAL || !has_data(fd, at + *length))
		return state;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return state;
	r->refs = 1;
	r->header = record_header_ref(header);
	r->data = memory_get(*length);
	r->reader = header->reader;
	r->reader.data = r->data;
	r->reader.size = r->reader.written = *length;
	if (r->data == NULL || read_whole(fd, r->data, *length, at) < 0 || open_record(r) < 0) {
		record_drop(r);
		return state;
	}
	*record = r;
	return RECORD_WHOLE;
}
