/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "arrow/format.h"
#include "arrow/tables.h"
#include "clock.h"
#include "io/direct_io.h"
#include "scan/memory.h"
#include "scan/record.h"

#define HEADER_MAX	 (UINT64_C(2) << 20)   /* both copies of a schema; a journal holds less */
#define ANNOUNCEMENT_MAX (16 * ARROW_BLOCK)    /* as arrow/reader.c */
#define PART		 (UINT64_C(256) << 10) /* of a body, which stays in the cache for its CRC */
#define ALIGNMENT	 8		       /* of a buffer */
#define CHUNK_MIN	 (UINT64_C(64) << 10)  /* mean size of chunks that are placed */

/* @return 0; -ENODATA: shorter; -errno */
static int
read_whole(int fd, void *data, uint64_t size, uint64_t at)
{
	const int64_t n = direct_io_read(fd, data, size, at);

	return n < 0 ? (int)n : (uint64_t)n < size ? -ENODATA : 0;
}

/* @param crc  CRC-32C of the bytes before, to which these are added @return as read_whole() */
static int
read_body(int fd, uint8_t *data, uint64_t size, uint64_t at, uint32_t *crc)
{
	uint64_t done, part;
	int ret = 0;

	for (done = 0; ret == 0 && done < size; done += part) {
		part = size - done < PART ? size - done : PART;
		ret = read_whole(fd, data + done, part, at + done);
		if (ret == 0)
			*crc = arrow_crc32c(*crc, data + done, part);
	}
	return ret;
}

static int
open_header(struct scan_header *h, uint64_t size, const char *path, const char **problem)
{
	int ret = arrow_reader_open_memory(&h->reader, h->data, size, problem);

	if (ret < 0)
		/* the first copy may not be written yet */
		return ret == -ENOMEM ? ret : -ENODATA;
	if (!arrow_reader_has_schema(&h->reader))
		return -ENODATA;
	*problem = arrow_table_problem(&h->reader, h->table);
	if (*problem != NULL)
		return -EBADMSG;
	arrow_reader_only(&h->reader, path);
	return 0;
}

int
scan_header_read(struct scan_header **header, int fd, const char *path, enum arrow_table table,
	const char **problem)
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
		ret = open_header(h, size, path, problem);
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
	if (record->is_small)
		free(record->data);
	else
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

	/* a file system without holes cannot tell */
	return at == last || (at < 0 && errno != ENXIO);
}

/* A buffer: struct arrow_buffer, whose numbers are negative only in a malicious file. */
struct range {
	uint64_t offset, length;
};
static_assert(sizeof(struct range) == sizeof(struct arrow_buffer), "the same numbers");

/* Positions of the chunks of a batch in its body and in that of its copy. */
struct chunks {
	uint64_t rows;	     /* 0: there are none, or small ones */
	unsigned int number; /* of the buffer of `data` */
	struct range offsets, data;
	/* copy: buffers, and the place of each chunk; NULL: as in the file */
	struct range *buffers;
	uint64_t *place;
	uint64_t body_length;
};

/* Whether no other buffer has bytes of that of chunks. */
static bool
are_apart(const struct arrow_reader *r, const uint8_t *buffers, const struct chunks *c)
{
	const uint64_t end = c->data.offset + c->data.length;
	struct range b;

	for (unsigned int i = 0; i < r->nb_buffers; i++) {
		memcpy(&b, buffers + i * sizeof(b), sizeof(b));
		if (i != c->number && b.offset < end &&
			(b.offset > c->data.offset || b.length > c->data.offset - b.offset))
			return false;
	}
	return true;
}

/* Finds chunks that are large. Nothing of the batch is trusted. */
static bool
find_chunks(const struct arrow_reader *r, const struct arrow_read_batch *b, struct chunks *c)
{
	const int field = arrow_reader_find(r, "raw", ARROW_BINARY, 0);
	struct arrow_schema s = r->schema;
	unsigned int nodes, validity;

	if (field < 0)
		return false;
	s.nb_fields = field;
	arrow_schema_count(&s, &nodes, &validity);
	c->rows = b->rows;
	c->number = validity + 2;
	memcpy(&c->offsets, b->buffers + (validity + 1) * sizeof(c->offsets), sizeof(c->offsets));
	memcpy(&c->data, b->buffers + c->number * sizeof(c->data), sizeof(c->data));
	return c->rows > 0 && c->data.length / c->rows >= CHUNK_MIN &&
		c->data.offset <= b->body_length &&
		c->data.length <= b->body_length - c->data.offset &&
		c->offsets.offset <= b->body_length &&
		c->offsets.length <= b->body_length - c->offsets.offset &&
		c->offsets.length / sizeof(int32_t) > c->rows &&
		b->metadata_size % ALIGNMENT == 0 && are_apart(r, b->buffers, c);
}

/* Bytes of the offsets of chunks. */
static uint64_t
offsets_size(const struct chunks *c)
{
	return (c->rows + 1) * sizeof(int32_t);
}

/* Bytes of a copy beyond those of the batch. */
static uint64_t
extra_size(const struct arrow_reader *r, const struct chunks *c)
{
	return (c->rows + 2) * ARROW_BLOCK + r->nb_buffers * sizeof(*c->buffers) +
		c->rows * sizeof(*c->place) + offsets_size(c) + 2 * ALIGNMENT;
}

static int32_t
offset_of(const uint8_t *offsets, uint64_t row)
{
	int32_t value;

	memcpy(&value, offsets + row * sizeof(value), sizeof(value));
	return value;
}

static bool
are_ascending(const uint8_t *offsets, const struct chunks *c)
{
	uint64_t i;

	for (i = 0; i < c->rows && offset_of(offsets, i) <= offset_of(offsets, i + 1); i++)
		;
	return i == c->rows && offset_of(offsets, 0) == 0 &&
		offset_of(offsets, i) <= c->data.length;
}

/*
 * Reads a body, with each chunk at a multiple of ARROW_BLOCK.
 * @param b   as it is in the file
 * @param at  offset of the body in the file
 */
static int
read_placed(struct scan_record *r, const struct arrow_read_batch *b, struct chunks *c, int fd,
	uint64_t at, uint32_t *crc)
{
	uint8_t *body = r->data + b->metadata_size, *to = body + c->data.offset, *offsets;
	struct range *const data =
		(struct range *)(r->data + r->reader.size) - r->reader.nb_buffers + c->number;
	uint64_t done = c->data.offset, size, i;
	int ret;

	/* at the end of the memory, after the batch: buffers, places, and a copy of the offsets */
	c->buffers = data - c->number;
	c->place = (uint64_t *)c->buffers - c->rows;
	offsets = (uint8_t *)c->place - offsets_size(c);
	ret = read_whole(fd, offsets, offsets_size(c), at + c->offsets.offset);
	if (ret == 0 && !are_ascending(offsets, c)) {
		c->place = NULL;
		return read_body(fd, body, b->body_length, at, crc);
	}
	if (ret == 0)
		ret = read_body(fd, body, done, at, crc);
	memcpy(c->buffers, b->buffers, r->reader.nb_buffers * sizeof(*c->buffers));
	to += -(uintptr_t)to % ARROW_BLOCK;
	data->offset = to - body;
	for (i = 0; ret == 0 && i < c->rows; i++) {
		size = offset_of(offsets, i + 1) - offset_of(offsets, i);
		c->place[i] = to - body - data->offset;
		ret = read_body(fd, to, size, at + done, crc);
		done += size;
		to += size + -size % ARROW_BLOCK;
	}
	data->length = to - body - data->offset;
	/* the other buffers are aligned as they were */
	to += done % ARROW_BLOCK;
	for (i = 0; i < r->reader.nb_buffers; i++) {
		if (i != c->number && c->buffers[i].offset >= c->data.offset + c->data.length)
			c->buffers[i].offset += to - body - done;
	}
	c->body_length = to - body + b->body_length - done;
	if (ret == 0)
		ret = read_body(fd, to, b->body_length - done, at + done, crc);
	/* they may have changed meanwhile, and only those of the second read are checked */
	if (ret == 0 && memcmp(body + data[-1].offset, offsets, offsets_size(c)) != 0)
		ret = -EBADMSG;
	return ret;
}

/*
 * A record for a batch.
 * @param room  bytes of memory for the batch as it is in the file, at least
 * @param c     out
 * @return NULL: out of memory
 */
static struct scan_record *
new_record(const struct arrow_reader *r, const struct arrow_read_batch *b, uint64_t room,
	struct chunks *c)
{
	uint64_t size = b->metadata_size + b->body_length, spare = room > size ? room - size : 0;
	struct scan_record *record = calloc(1, sizeof(*record));

	*c = (struct chunks){0};
	if (record == NULL)
		return NULL;
	if (find_chunks(r, b, c))
		size += extra_size(r, c);
	else
		c->rows = 0;
	size += -size % ALIGNMENT;
	record->refs = 1;
	record->data = scan_memory_get(size + spare);
	if (record->data == NULL) {
		free(record);
		return NULL;
	}
	record->reader = *r;
	record->reader.data = record->data;
	record->reader.size = record->reader.written = size;
	record->reader.batches = &record->batch;
	record->reader.nb_batches = 1;
	return record;
}

/* Makes a batch that was read describe its copy. */
static void
use_places(struct scan_record *r, const struct chunks *c)
{
	if (c->place == NULL)
		return;
	r->batch.buffers = (const uint8_t *)c->buffers;
	r->batch.body_length = c->body_length;
}

/* Reads the body of a batch. @param b  as it is in the file @param crc  out */
static int
read_batch(struct scan_record *r, const struct arrow_read_batch *b, struct chunks *c, int fd,
	uint64_t at, uint32_t *crc)
{
	at += b->metadata_size;
	*crc = 0;
	return c->rows > 0 ? read_placed(r, b, c, fd, at, crc)
			   : read_body(fd, r->data + b->metadata_size, b->body_length, at, crc);
}

/* @return 0; -EBADMSG: a column is damaged */
static int
open_columns(struct scan_record *r, const struct chunks *c)
{
	int ret;

	r->has_images = scan_images_open(&r->reader, 0, &r->images) == 0;
	r->images.place = c->place;
	ret = scan_peaks_open(&r->reader, 0, &r->peaks);
	r->has_peaks = ret == 0;
	return r->has_images && (ret == 0 || ret == -ENODATA) ? 0 : -EBADMSG;
}

/* @param b  as it was announced */
static int
read_record(struct scan_record *r, const struct arrow_read_batch *b, struct chunks *c, int fd,
	uint64_t at)
{
	uint32_t crc;
	int ret = read_batch(r, b, c, fd, at, &crc);

	if (ret < 0)
		return ret;
	if (arrow_reader_announced(&r->reader, 0, &r->batch) != 1 ||
		arrow_reader_crc_is(&r->reader, 0, crc) != 1)
		return -EBADMSG;
	use_places(r, c);
	return r->header->table == ARROW_IMAGES ? open_columns(r, c) : 0;
}

enum scan_record_state
scan_record_read(struct scan_record **record, struct scan_header *header, int fd, uint64_t at,
	uint64_t *length)
{
	_Alignas(8) uint8_t block[ANNOUNCEMENT_MAX];
	struct arrow_read_batch b;
	struct arrow_reader view;
	const enum scan_record_state state = read_announcement(header, fd, at, block, &view, &b);
	struct scan_record *r;
	struct chunks c;

	if (state != SCAN_RECORD_PARTIAL)
		return state;
	*length = b.metadata_size + b.body_length;
	if (!has_data(fd, at + *length))
		return state;
	r = new_record(&header->reader, &b, 0, &c);
	if (r == NULL)
		return state;
	r->header = scan_header_ref(header);
	memcpy(r->data, block, b.metadata_size);
	if (read_record(r, &b, &c, fd, at) < 0) {
		scan_record_drop(r);
		return state;
	}
	*record = r;
	return SCAN_RECORD_WHOLE;
}

/* Makes pointers of a batch point to its copy. `body` and `buffers` are the caller's. */
static void
move_batch(struct arrow_read_batch *b, const uint8_t *from, const uint8_t *to)
{
	const char **const texts[] = {&b->receiver_id, &b->run, &b->incarnation, &b->table,
		&b->sequence, &b->crc32c, &b->metadata_crc32c};

	for (unsigned int i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (*texts[i] != NULL)
			*texts[i] = (const char *)to + (*texts[i] - (const char *)from);
	b->nodes = to + (b->nodes - from);
	b->offset = 0;
}

uint64_t
scan_record_memory(const struct scan_record *r)
{
	return r->is_small ? r->reader.size : scan_memory_size(r->data);
}

int
scan_record_load(struct scan_record **record, const struct arrow_reader *r,
	const struct arrow_read_batch *b, enum arrow_table table, int fd, uint64_t room)
{
	const uint8_t *metadata = r->data + b->offset;
	struct chunks c;
	struct scan_record *copy = new_record(r, b, room, &c);
	uint32_t crc;
	int ret;

	if (copy == NULL)
		return -ENOMEM;
	ret = read_whole(fd, copy->data, b->metadata_size, b->offset);
	/* the places of buffers are those of the metadata */
	if (ret == 0 && memcmp(copy->data, metadata, b->metadata_size) != 0)
		ret = -EBADMSG;
	if (ret == 0)
		ret = read_batch(copy, b, &c, fd, b->offset, &crc);
	if (ret == 0) {
		copy->batch = *b;
		move_batch(&copy->batch, metadata, copy->data);
		copy->batch.buffers = copy->data + (b->buffers - metadata);
		copy->batch.body = copy->data + b->metadata_size;
		ret = arrow_reader_crc_is(&copy->reader, 0, crc);
		use_places(copy, &c);
	}
	if (ret < 0) {
		scan_record_drop(copy);
		return ret;
	}
	if (table == ARROW_IMAGES)
		(void)open_columns(copy, &c);
	*record = copy;
	return 0;
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
	const int64_t ns = monotonic_ns();
	struct stat st;

	if (fstat(fd, &st) < 0 || has_footer(fd, st.st_size))
		return true;
	if (change->seen_ns == 0 || st.st_size != change->size ||
		memcmp(&st.st_mtim, &change->written, sizeof(st.st_mtim)) != 0)
		*change = (struct scan_change){st.st_size, st.st_mtim, ns};
	return ns - change->seen_ns >= SCAN_SETTLED_MS * INT64_C(1000000);
}

static bool
is_pixels(const struct arrow_field *f)
{
	static const char *const names[] = {"row_ptr", "col", "value", "raw"};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(f->name, names[i]) == 0)
			return true;
	return false;
}

/*
 * Chooses the buffers of a batch that are copied; the others are empty.
 * @param b    [nb_buffers] out: as in the batch, with their places in the copy
 * @param from [nb_buffers] out: their places in the batch
 * @return size of the copy
 */
static uint64_t
choose_buffers(const struct scan_record *r, struct arrow_buffer *b, uint64_t *from)
{
	const uint64_t most = r->batch.body_length;
	struct arrow_schema s = r->reader.schema;
	const unsigned int nb_fields = s.nb_fields;
	unsigned int nodes, first, end;
	uint64_t size = 0, length;

	memcpy(b, r->batch.buffers, r->reader.nb_buffers * sizeof(*b));
	for (unsigned int f = 0; f < nb_fields; f++) {
		s.nb_fields = f;
		arrow_schema_count(&s, &nodes, &first);
		s.nb_fields = f + 1;
		arrow_schema_count(&s, &nodes, &end);
		for (unsigned int i = first; i < end; i++) {
			from[i] = b[i].offset;
			length = b[i].length;
			/* not all columns were checked; buffers of a file do not overlap */
			if (is_pixels(&r->reader.fields[f]) || from[i] > most ||
				length > most - from[i] || length > most - size)
				length = 0;
			b[i] = (struct arrow_buffer){.offset = size, .length = length};
			size += length;
			size += (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT;
			if (size > most)
				size = most;
		}
	}
	return size;
}

struct scan_record *
scan_record_without_pixels(const struct scan_record *record)
{
	const unsigned int nb = record->reader.nb_buffers;
	const uint32_t metadata = record->batch.metadata_size;
	struct arrow_buffer *b = calloc(nb + 1, sizeof(*b));
	uint64_t *from = calloc(nb + 1, sizeof(*from)), size;
	struct scan_record *copy = calloc(1, sizeof(*copy));
	uint8_t *body;

	if (b == NULL || from == NULL || copy == NULL)
		goto fail;
	size = choose_buffers(record, b, from);
	copy->data = malloc(metadata + size + nb * sizeof(*b));
	if (copy->data == NULL)
		goto fail;
	copy->refs = 1;
	copy->is_small = true;
	copy->header = record->header != NULL ? scan_header_ref(record->header) : NULL;
	copy->reader = record->reader;
	copy->reader.data = copy->data;
	copy->reader.size = copy->reader.written = metadata + size;
	copy->reader.batches = &copy->batch;
	copy->batch = record->batch;
	body = copy->data + metadata;
	memcpy(copy->data, record->data, metadata);
	for (unsigned int i = 0; i < nb; i++)
		if (b[i].length > 0)
			memcpy(body + b[i].offset, record->batch.body + from[i], b[i].length);
	memcpy(body + size, b, nb * sizeof(*b));
	move_batch(&copy->batch, record->data, copy->data);
	copy->batch.body = body;
	copy->batch.body_length = size;
	copy->batch.buffers = body + size;
	copy->has_peaks = record->has_peaks && scan_peaks_open(&copy->reader, 0, &copy->peaks) == 0;
	free(from);
	free(b);
	return copy;
fail:
	free(copy);
	free(from);
	free(b);
	return NULL;
}
