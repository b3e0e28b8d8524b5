/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests where the builder begins record batches, and which records it rejects. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/crc32c.h"
#include "arrow_sample.h"
#include "arrow/region.h"
#include "gk_bitshuffle.h"

/* The batches that the builder emitted. */
static struct {
	struct batch noted[4096];
	unsigned int nb;
} sink;

static void
xfer_emit(void *arg, const struct batch *b)
{
	sink.noted[sink.nb++] = *b;
}

static unsigned int
noted_of(enum arrow_table table, unsigned int from)
{
	while (from < sink.nb && sink.noted[from].table != table)
		from++;
	return from;
}

/*
 * Batches begin at multiples of the interval of frame numbers, for any number of missing frames,
 * and end at the size limit.
 */
static void
cutting(void **state)
{
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	unsigned int i, n;
	uint64_t rows = 0, batches;

	memset(&sink, 0, sizeof(sink));
	sample_init(&s, 5, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	c = sample_builder_config(&s, &t);
	c.frames_interval = 10;
	c.images_interval = 5;
	c.emit = xfer_emit;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 300; i++) {
		sample_next(&s, 1 + i % 4, 4);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	/* the detector restarts: frame numbers still ascend inside each batch */
	s.record.frame -= 1;
	assert_int_equal(batch_builder_add(b, &s.record), 0);
	batch_builder_flush(b);
	for (i = 0; i < sink.nb; i++) {
		n = sink.noted[i].table == ARROW_FRAMES ? 10 : 5;
		assert_int_equal(sink.noted[i].first / n, sink.noted[i].last / n);
		if (sink.noted[i].table == ARROW_FRAMES)
			rows += sink.noted[i].rows;
	}
	assert_int_equal(rows, 301);
	batch_builder_destroy(b);

	/* 100 raw frames; by the upper bound of their size, 7 fit the limit */
	memset(&sink, 0, sizeof(sink));
	c.images_interval = 1000;
	c.frames_interval = 1000;
	c.byte_limit = 7 * (gk_bitshuffle_bound(gk_pixels(&s.geometry)) + 2) + 10;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	s.record.frame = 1000;
	s.record.kind = GK_KIND_RAW;
	s.record.verdict = FRAME_HIT;
	s.record.out = 0;
	for (i = 0; i < 100; i++, s.record.frame++)
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	batch_builder_flush(b);
	for (i = noted_of(ARROW_IMAGES, 0), batches = 0; i < sink.nb;
		i = noted_of(ARROW_IMAGES, i + 1), batches++) {
		assert_int_equal(sink.noted[i].first, 1000 + 7 * batches);
		assert_int_equal(sink.noted[i].rows, batches < 14 ? 7 : 2);
		assert_int_equal(sink.noted[i].sequence, batches);
	}
	assert_int_equal(batches, 15);
	batch_builder_destroy(b);

	/* a limit below the size of one row: each row is a batch */
	memset(&sink, 0, sizeof(sink));
	c.byte_limit = 1;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 3; i++, s.record.frame++)
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	batch_builder_flush(b);
	assert_int_equal(sink.nb, 4);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

static void
note_crc(void *arg, const struct batch *b)
{
	uint32_t *crc = arg;

	if (b->table == ARROW_IMAGES)
		*crc = b->crc32c;
}

/*
 * Full images are chunks in tables with them, whether a gang or the builder has compressed them;
 * otherwise they are plain, and a chunk is refused.
 */
static void
chunks_of_images(void **state)
{
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_tables t;
	struct sample s;
	uint32_t crc[3] = {0};
	uint8_t *chunk;
	size_t size;

	sample_init(&s, 9, GK_VALUE_F32, 1);
	s.chunks = true;
	assert_int_equal(sample_tables(&s, &t), -EINVAL);
	sample_free(&s);
	sample_init(&s, 9, GK_VALUE_I16, 1);
	for (uint64_t i = 0; i < gk_pixels(&s.geometry); i++)
		((int16_t *)(s.outputs + s.layout.value))[i] = (int16_t)(i % 7 == 0);
	s.record = (struct frame_record){.frame = 5, .verdict = FRAME_HIT, .kind = GK_KIND_IMAGE};
	chunk = malloc(gk_bitshuffle_bound(gk_pixels(&s.geometry)));
	assert_non_null(chunk);
	size = gk_bitshuffle_compress(
		(const uint16_t *)(s.outputs + s.layout.value), gk_pixels(&s.geometry), chunk);
	/* by the builder, by a gang, plain */
	for (unsigned int i = 0; i < 3; i++) {
		s.chunks = i < 2;
		assert_int_equal(sample_tables(&s, &t), 0);
		assert_int_equal(t.chunks, i < 2);
		c = sample_builder_config(&s, &t);
		c.emit = note_crc;
		c.arg = &crc[i];
		assert_int_equal(batch_builder_create(&b, &c), 0);
		if (i == 1) {
			memcpy(s.outputs + s.layout.raw, chunk, size);
			s.record.chunk_bytes = size;
		}
		assert_int_equal(batch_builder_add(b, &s.record), i == 2 ? -EINVAL : 0);
		batch_builder_flush(b);
		batch_builder_destroy(b);
		arrow_tables_free(&t);
	}
	assert_int_equal(crc[0], crc[1]);
	assert_int_not_equal(crc[0], 0);
	assert_int_equal(crc[2], 0);
	free(chunk);
	sample_free(&s);
}

/* Compares the rows that have an image with the images that were emitted before them. */
static struct {
	struct batch_builder *builder;
	bool refuse; /* refuse the next batch of images */
	uint64_t images[8];
	unsigned int nb_images;
	unsigned int rows;
	unsigned int without;
} pairs;

static bool
pairs_has_image(uint64_t frame)
{
	unsigned int i = 0;

	while (i < pairs.nb_images && pairs.images[i] != frame)
		i++;
	return i < pairs.nb_images;
}

static void
pairs_emit(void *arg, const struct batch *b)
{
	const uint64_t *frame;
	const uint32_t *flags;
	const uint8_t *verdict;

	/*
	 * `frames` has no empty column and no validity buffers: buffer numbers equal column numbers
	 */
	if (b->table == ARROW_IMAGES) {
		if (pairs.refuse) {
			batch_builder_disown(pairs.builder, b->first, b->last);
			return;
		}
		/* body[0] has the values: the frames are full images */
		for (uint64_t i = 0; i < b->rows; i++)
			pairs.images[pairs.nb_images++] =
				((const uint64_t *)b->body[1].iov_base)[i];
		return;
	}
	frame = b->body[FRAMES_FRAME].iov_base;
	flags = b->body[FRAMES_FLAGS].iov_base;
	verdict = b->body[FRAMES_VERDICT].iov_base;
	for (uint64_t i = 0; i < b->rows; i++) {
		const bool says_none = (flags[i] & FRAME_FLAG_NO_IMAGE) != 0;

		if (!frame_verdict_is_kept(verdict[i]))
			assert_false(says_none);
		else
			assert_int_equal(pairs_has_image(frame[i]), !says_none);
		pairs.without += says_none;
	}
	pairs.rows += b->rows;
}

static void
pairs_add(struct sample *s, uint64_t frame, bool kept)
{
	s->record.frame = frame;
	s->record.flags = 0;
	s->record.verdict = kept ? FRAME_HIT : FRAME_VETOED;
	s->record.kind = kept ? GK_KIND_IMAGE : GK_KIND_NONE;
	s->record.out = kept ? 0 : GK_NO_OUT;
	assert_int_equal(batch_builder_add(pairs.builder, &s->record), 0);
}

/*
 * A batch of images ends at the first frame of another interval, kept or not, and is emitted before
 * the rows of the same frames. If the images were refused, the rows are marked.
 */
static void
images_before_rows(void **state)
{
	struct batch_builder_config c;
	struct arrow_tables t;
	struct sample s;

	memset(&pairs, 0, sizeof(pairs));
	sample_init(&s, 5, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	c = sample_builder_config(&s, &t);
	c.frames_interval = 30;
	c.images_interval = 8;
	c.emit = pairs_emit;
	assert_int_equal(batch_builder_create(&pairs.builder, &c), 0);
	pairs_add(&s, 8, true);
	pairs_add(&s, 15, false);
	assert_int_equal(pairs.nb_images, 0);
	pairs_add(&s, 16, false);
	assert_int_equal(pairs.nb_images, 1);
	/* where a batch of rows ends, the batch of images ends, too */
	pairs_add(&s, 28, true);
	pairs_add(&s, 30, true);
	assert_int_equal(pairs.nb_images, 2);
	assert_int_equal(pairs.rows, 4);
	/* the detector restarts, with a frame that is not kept */
	pairs_add(&s, 1, false);
	assert_int_equal(pairs.nb_images, 3);
	assert_int_equal(pairs.rows, 5);
	pairs_add(&s, 2, true);
	pairs_add(&s, 3, false);
	pairs_add(&s, 7, true);
	pairs.refuse = true;
	pairs_add(&s, 8, false);
	pairs.refuse = false;
	pairs_add(&s, 9, true);
	assert_int_equal(batch_builder_rows(pairs.builder), 6);
	batch_builder_flush(pairs.builder);
	assert_int_equal(batch_builder_rows(pairs.builder), 0);
	assert_int_equal(pairs.nb_images, 4);
	assert_int_equal(pairs.without, 2);
	/* a hit without an output slot */
	s.record.frame = 10;
	s.record.verdict = FRAME_HIT;
	s.record.out = GK_NO_OUT;
	assert_int_equal(batch_builder_add(pairs.builder, &s.record), -EINVAL);
	batch_builder_flush(pairs.builder);
	assert_int_equal(pairs.without, 3);
	batch_builder_destroy(pairs.builder);
	arrow_tables_free(&t);
	sample_free(&s);
}

/* Batches that were lent, and must keep their checksum until they are reclaimed. */
static struct {
	struct batch batch;
	struct iovec body[64];
	bool out;
} lent[ARROW_TABLES][3];

static unsigned int reclaimed;

static void
check_lent(enum arrow_table table, unsigned int set)
{
	const struct batch *b = &lent[table][set].batch;
	uint32_t crc = 0;
	unsigned int i;

	for (i = 0; i < b->nb_body; i++)
		crc = arrow_crc32c(
			crc, lent[table][set].body[i].iov_base, lent[table][set].body[i].iov_len);
	assert_int_equal(crc, b->crc32c);
}

static void
lend(void *arg, const struct batch *b)
{
	assert_true(b->lasting);
	assert_true(b->set < 3);
	assert_false(lent[b->table][b->set].out);
	lent[b->table][b->set].out = true;
	lent[b->table][b->set].batch = *b;
	/* the builder reuses the list after this call, but not the bytes */
	memcpy(lent[b->table][b->set].body, b->body, b->nb_body * sizeof(*b->body));
}

static void
take_back(void *arg, enum arrow_table table, unsigned int set)
{
	assert_true(lent[table][set].out);
	check_lent(table, set);
	lent[table][set].out = false;
	reclaimed++;
}

/* Collects the bytes of the batches that a builder emits, with or without a place for them. */
#define PLACE_BYTES (8 << 20)

static struct place {
	uint8_t *memory; /* NULL: none */
	bool open;
	bool refuse; /* every second time, there is no memory */
	unsigned int calls;
	unsigned int empty; /* batches without a byte in the lead column */
	unsigned int placed;
	unsigned int most; /* parts of a batch, if those that follow one another count as one */
	uint64_t kept;
	uint64_t copied;
	uint8_t *bytes;
	size_t nb;
} place;

static uint8_t *
place_next(void *arg, uint64_t size)
{
	assert_false(place.open);
	assert_true(size <= PLACE_BYTES);
	if (place.calls++ % 2 == 1 && place.refuse)
		return NULL;
	place.open = true;
	/* the builder writes what it counts on */
	memset(place.memory, 0xa5, PLACE_BYTES);
	return place.memory;
}

static void
place_emit(void *arg, const struct batch *b)
{
	unsigned int i, parts = 0;
	const uint8_t *end = NULL; /* end of the previous part; NULL: the next part is elsewhere */
	uint64_t there = 0, last = 0;
	uint32_t crc = 0;

	assert_int_equal(b->table == ARROW_FRAMES && place.open, false);
	assert_int_equal(b->nb_references, 0);
	place.bytes = realloc(place.bytes, place.nb + b->metadata_size + b->body_length);
	assert_non_null(place.bytes);
	memcpy(place.bytes + place.nb, b->metadata, b->metadata_size);
	place.nb += b->metadata_size;
	for (i = 0; i < b->nb_body; i++) {
		const uint8_t *bytes = b->body[i].iov_base;
		const size_t size = b->body[i].iov_len;
		const bool in =
			place.open && bytes >= place.memory && bytes < place.memory + PLACE_BYTES;

		crc = arrow_crc32c(crc, bytes, size);
		memcpy(place.bytes + place.nb, bytes, size);
		place.nb += size;
		parts += i == 0 || (in ? bytes != end : end != NULL);
		end = in ? bytes + size : NULL;
		if (i == 0 && place.open) {
			place.placed += in;
			place.empty += !in;
		}
		if (!in)
			continue;
		/* what is there is the start of the memory, without gaps */
		there += size;
		if (last < (uint64_t)(end - place.memory))
			last = end - place.memory;
	}
	assert_int_equal(crc, b->crc32c);
	assert_int_equal(there, last);
	if (place.open && parts > place.most)
		place.most = parts;
	place.kept += b->kept_bytes;
	place.copied += b->copied_bytes;
	place.open = false;
}

/* @param csr  all kept frames are CSR data */
static void
place_frames(struct sample *s, const struct batch_builder_config *c, unsigned int frames, bool csr)
{
	const uint64_t row_ptrs = (gk_rows(&s->geometry) + 1) * sizeof(uint32_t);
	struct batch_builder *b;
	unsigned int i;

	assert_int_equal(batch_builder_create(&b, c), 0);
	if (frames > 200)
		s->layout.nnz_cap = 50; /* many frames fit into byte_limit */
	for (i = 0; i < frames; i++) {
		sample_next(s, 1, csr ? 8 : 6);
		if (csr && frame_verdict_is_kept(s->record.verdict)) {
			s->record.kind = GK_KIND_CSR;
			sample_csr(s);
		}
		/* kept frames without a pixel: some batches have no others */
		if (i >= 100 && i < 140 && frame_verdict_is_kept(s->record.verdict)) {
			s->record.kind = GK_KIND_CSR;
			s->record.nnz = 0;
			memset(s->outputs + s->layout.row_ptr, 0, row_ptrs);
		}
		assert_int_equal(batch_builder_add(b, &s->record), 0);
	}
	batch_builder_flush(b);
	batch_builder_destroy(b);
}

/*
 * The bytes of a batch do not depend on where its rows are copied to.
 * @param csr  all kept frames are CSR data
 * @param way  the last one: 0: in the builder's memory; 1: elsewhere; 2: every second batch
 */
static void
check_placed(enum gk_value value, bool chunks, unsigned int frames, bool csr, uint32_t interval,
	unsigned int last)
{
	uint8_t *expected = NULL;
	struct batch_builder_config c;
	struct arrow_tables t;
	struct sample s;
	size_t nb = 0;
	unsigned int way;

	for (way = 0; way <= last; way++) {
		memset(&place, 0, sizeof(place));
		sample_init(&s, 17, value, 1);
		s.chunks = chunks;
		assert_int_equal(sample_tables(&s, &t), 0);
		c = sample_builder_config(&s, &t);
		c.frames_interval = 4 * interval;
		c.images_interval = interval;
		c.byte_limit = 3 << 20;
		c.emit = place_emit;
		if (way > 0) {
			c.place = place_next;
			place.refuse = way == 2;
			place.memory = aligned_alloc(ARROW_BLOCK, PLACE_BYTES);
			assert_non_null(place.memory);
		}
		place_frames(&s, &c, frames, csr);
		if (way == 0) {
			expected = place.bytes;
			nb = place.nb;
		} else {
			assert_true(place.most <= BATCH_PLACE_PARTS);
			assert_int_equal(place.nb, nb);
			assert_memory_equal(place.bytes, expected, nb);
			free(place.bytes);
			free(place.memory);
		}
		c.reclaim = take_back;
		if (way > 0) {
			struct batch_builder *b;

			assert_int_equal(batch_builder_create(&b, &c), -EINVAL);
		}
		arrow_tables_free(&t);
		sample_free(&s);
	}
	free(expected);
}

/* A builder that is destroyed with a batch that was not emitted leaves its place as it is. */
static void
placed_and_destroyed(void **state)
{
	unsigned char resident[PLACE_BYTES / 4096];
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_tables t;
	struct sample s;

	assert_int_equal(sysconf(_SC_PAGESIZE), 4096);
	memset(&place, 0, sizeof(place));
	place.memory =
		mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(place.memory != MAP_FAILED);
	sample_init(&s, 17, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	c = sample_builder_config(&s, &t);
	c.byte_limit = 3 << 20;
	c.emit = place_emit;
	c.place = place_next;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	while (!place.open) {
		sample_next(&s, 1, 6);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_destroy(b);
	assert_true(place.open);
	/* ENOMEM: a part is not mapped */
	assert_int_equal(mincore(place.memory, PLACE_BYTES, resident), 0);
	munmap(place.memory, PLACE_BYTES);
	free(place.bytes);
	arrow_tables_free(&t);
	sample_free(&s);
}

static void
bytes_do_not_depend_on_the_place(void **state)
{
	check_placed(GK_VALUE_F32, false, 200, false, 5, 1);
	assert_true(place.placed > 10);
	assert_true(place.empty > 1);
	/* values of chunks are not copied: they are compressed to their place */
	assert_true(place.copied <= place.kept);
	check_placed(GK_VALUE_F32, false, 200, false, 5, 2);
	assert_true(place.placed > 10);
	check_placed(GK_VALUE_I16, true, 200, false, 5, 2);
	/* each byte of CSR data is copied once */
	check_placed(GK_VALUE_F32, false, 200, true, 20, 1);
	assert_int_equal(place.copied, place.kept);
	assert_true(place.most > 3 * 15);
	check_placed(GK_VALUE_I16, true, 200, true, 20, 1);
	assert_int_equal(place.copied, place.kept);
	/* a batch of as many rows as frames_interval has by default */
	check_placed(GK_VALUE_F32, false, BATCH_FRAMES_INTERVAL, true, BATCH_FRAMES_INTERVAL, 1);
	assert_int_equal(place.copied, place.kept);
	assert_true(place.most > 2900);
	/* more rows than there can be parts */
	check_placed(GK_VALUE_F32, false, 1200, true, 1200, 1);
	assert_in_range(place.most, BATCH_PLACE_PARTS - 10, BATCH_PLACE_PARTS);
	assert_true(place.copied > place.kept && place.copied < 2 * place.kept);
}

/* Output slots that batches may refer to, and what a builder made of them. */
#define SLOTS 40

static struct referred {
	uint8_t *slots;
	uint64_t stride;
	bool held[SLOTS];
	uint8_t *bytes;
	size_t nb;
	uint64_t kept;
	uint64_t copied;
	unsigned int references;
	unsigned int most;  /* references of a batch */
	unsigned int mixed; /* batches with references and copied bytes of the same column */
} referred;

static void
refer_emit(void *arg, const struct batch *b)
{
	uint64_t body = 0;
	uint32_t crc = 0;
	unsigned int i;

	referred.bytes = realloc(referred.bytes, referred.nb + b->metadata_size + b->body_length);
	assert_non_null(referred.bytes);
	memcpy(referred.bytes + referred.nb, b->metadata, b->metadata_size);
	referred.nb += b->metadata_size;
	for (i = 0; i < b->nb_body; i++) {
		memcpy(referred.bytes + referred.nb, b->body[i].iov_base, b->body[i].iov_len);
		referred.nb += b->body[i].iov_len;
		body += b->body[i].iov_len;
		crc = arrow_crc32c(crc, b->body[i].iov_base, b->body[i].iov_len);
	}
	assert_int_equal(body, b->body_length);
	assert_int_equal(crc, b->crc32c);
	for (i = 0; i < b->nb_references; i++) {
		const uint8_t *slot = referred.slots + b->slots[i] * referred.stride;
		const uint8_t *at = b->body[i].iov_base;

		assert_true(at >= slot && at + b->body[i].iov_len <= slot + referred.stride);
		assert_true(b->body[i].iov_len > 0);
		assert_true(referred.held[b->slots[i]]);
		referred.held[b->slots[i]] = false;
		memset(referred.slots + b->slots[i] * referred.stride, 0xdb, referred.stride);
	}
	referred.kept += b->kept_bytes;
	referred.copied += b->copied_bytes;
	referred.references += b->nb_references;
	if (b->nb_references > referred.most)
		referred.most = b->nb_references;
	/* the column has the bytes of more rows than the references */
	referred.mixed += b->nb_references > 0 && b->nb_body > b->nb_references &&
		b->body[b->nb_references].iov_len >= 2 * ARROW_BLOCK;
}

/* Compress the output as a gang does, in every second frame. */
static void
compress_some(struct sample *s, uint8_t *chunk)
{
	uint8_t *raw = s->outputs + s->layout.raw;

	if (s->record.kind != GK_KIND_RAW && (s->record.kind != GK_KIND_IMAGE || !s->chunks))
		return;
	if (sample_random(s) % 2 == 0)
		return;
	s->record.chunk_bytes =
		gk_bitshuffle_compress((const uint16_t *)raw, gk_pixels(&s->geometry), chunk);
	memcpy(raw, chunk, s->record.chunk_bytes);
	if (sample_random(s) % 2 == 0)
		s->record.chunk_crc32c = arrow_crc32c(0, chunk, s->record.chunk_bytes);
}

/* Add the frame, from a free slot if there is one. */
static void
refer_frame(struct batch_builder *b, const struct sample *s, uint32_t at)
{
	struct frame_record record = s->record;
	int ret;

	if (!frame_verdict_is_kept(record.verdict) || at == SLOTS || referred.held[at]) {
		/* slot SLOTS is never referred to */
		memcpy(referred.slots + SLOTS * referred.stride, s->outputs, referred.stride);
		record.out = frame_verdict_is_kept(record.verdict) ? SLOTS : GK_NO_OUT;
		assert_int_equal(batch_builder_add(b, &record), 0);
		return;
	}
	memcpy(referred.slots + at * referred.stride, s->outputs, referred.stride);
	record.out = at;
	/* a batch may be emitted before, but this slot is not in it */
	ret = batch_builder_refer(b, &record);
	assert_true(ret == 0 || ret == 1);
	referred.held[at] = ret == 1;
	if (ret == 0)
		memset(referred.slots + at * referred.stride, 0xdb, referred.stride);
}

/* Batches with references have the bytes of those without. @param kind  of all images; -1: any */
static void
check_references(enum gk_value value, bool chunks, int kind, uint32_t references)
{
	uint8_t *expected = NULL, *chunk;
	struct batch_builder_config c;
	struct batch_builder *b;
	struct arrow_tables t;
	struct sample s;
	size_t nb = 0;

	for (unsigned int way = 0; way < 2; way++) {
		memset(&referred, 0, sizeof(referred));
		sample_init_peaks(&s, 31, value, 1);
		s.chunks = chunks;
		chunk = malloc(gk_bitshuffle_bound(gk_pixels(&s.geometry)));
		referred.stride = s.layout.stride;
		referred.slots = aligned_alloc(4096, (SLOTS + 1) * s.layout.stride);
		assert_non_null(chunk);
		assert_non_null(referred.slots);
		assert_int_equal(sample_tables(&s, &t), 0);
		c = sample_builder_config(&s, &t);
		c.outputs = referred.slots;
		c.nb_outputs = SLOTS + 1;
		c.frames_interval = 30;
		c.images_interval = 10;
		c.emit = refer_emit;
		c.references = way == 0 ? 0 : references;
		assert_int_equal(batch_builder_create(&b, &c), 0);
		for (uint32_t i = 0; i < 600; i++) {
			sample_next(&s, 1, 6);
			if (kind >= 0 && frame_verdict_is_kept(s.record.verdict)) {
				s.record.kind = (uint32_t)kind;
				if (kind == GK_KIND_CSR)
					sample_csr(&s);
				if (kind == GK_KIND_CSR && i % 50 == 27) /* no pixel */
					memset(s.outputs + s.layout.row_ptr, 0,
						(gk_rows(&s.geometry) + 1) * sizeof(uint32_t));
			}
			compress_some(&s, chunk);
			/* in some intervals, some frames have no slot */
			refer_frame(b, &s, i % 70 == 33 ? SLOTS : i % SLOTS);
		}
		batch_builder_flush(b);
		batch_builder_destroy(b);
		if (way == 0) {
			assert_int_equal(referred.references, 0);
			assert_true(referred.copied > 0);
			expected = referred.bytes;
			nb = referred.nb;
		} else {
			assert_int_equal(referred.nb, nb);
			assert_memory_equal(referred.bytes, expected, nb);
			assert_true(referred.most <= references);
			free(referred.bytes);
		}
		free(referred.slots);
		free(chunk);
		arrow_tables_free(&t);
		sample_free(&s);
	}
	free(expected);
}

static void
references(void **state)
{
	check_references(GK_VALUE_F32, false, -1, 128);
	assert_true(referred.references > 30);
	assert_true(referred.mixed > 5);

	check_references(GK_VALUE_I16, true, -1, 128);
	assert_true(referred.references > 30);
	check_references(GK_VALUE_I16, true, GK_KIND_RAW, 128);
	assert_true(referred.references > 30);
	check_references(GK_VALUE_F32, false, GK_KIND_IMAGE, 128);
	assert_int_equal(referred.most, 10);
	assert_true(referred.copied * 5 < referred.kept);
	/* the limit ends no batch */
	check_references(GK_VALUE_F32, false, GK_KIND_IMAGE, 3);
	assert_int_equal(referred.most, 3);
	/* the values of CSR data are not copied */
	check_references(GK_VALUE_F32, false, GK_KIND_CSR, 128);
	assert_int_equal(referred.most, 10);
	assert_true(referred.copied < referred.kept * 7 / 4);
	check_references(GK_VALUE_I16, false, GK_KIND_CSR, 128);
	assert_int_equal(referred.most, 10);
}

/* With several buffers for each table a batch stays unchanged while the next ones grow. */
static void
emitted_batches_stay_unchanged(void **state)
{
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	unsigned int i, k, out;

	sample_init(&s, 21, GK_VALUE_I16, 2);
	assert_int_equal(sample_tables(&s, &t), 0);
	c = sample_builder_config(&s, &t);
	c.frames_interval = 10;
	c.images_interval = 5;
	c.emit = lend;
	c.sets = 3;
	assert_int_equal(batch_builder_create(&b, &c), -EINVAL);
	c.reclaim = take_back;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 200; i++) {
		sample_next(&s, 1, 4);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	for (i = 0, out = 0; i < ARROW_TABLES; i++) {
		for (k = 0; k < 3; k++) {
			out += lent[i][k].out;
			check_lent(i, k);
		}
	}
	assert_int_equal(out, 6);
	assert_true(reclaimed > 40);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

/* Batches large enough for the disk use two buffers, even if there are more. */
static void
large_batches(void **state)
{
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	unsigned int i, k;

	memset(lent, 0, sizeof(lent));
	sample_init(&s, 22, GK_VALUE_I16, 2);
	assert_int_equal(sample_tables(&s, &t), 0);
	c = sample_builder_config(&s, &t);
	c.frames_interval = 10;
	c.images_interval = 5;
	c.emit = lend;
	c.reclaim = take_back;
	c.sets = 3;
	c.ahead = 1;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	for (i = 0; i < 100; i++) {
		sample_next(&s, 1, 4);
		assert_int_equal(batch_builder_add(b, &s.record), 0);
	}
	batch_builder_flush(b);
	for (i = 0; i < ARROW_TABLES; i++) {
		for (k = 0; k < 3; k++)
			assert_int_equal(lent[i][k].out, k < 2);
	}
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

/* A record that does not match its output slot is refused, but keeps its row in `frames`. */
static void
wrong_records(void **state)
{
	struct sample s;
	struct arrow_tables t;
	struct batch_builder_config c;
	struct batch_builder *b;
	uint32_t nnz;

	memset(&sink, 0, sizeof(sink));
	sample_init(&s, 5, GK_VALUE_F32, 1);
	assert_int_equal(sample_tables(&s, &t), 0);
	c = sample_builder_config(&s, &t);
	assert_int_equal(batch_builder_create(&b, &c), -EINVAL);
	c.emit = xfer_emit;
	c.layout.value_size = 2;
	assert_int_equal(batch_builder_create(&b, &c), -EINVAL);
	c.layout = s.layout;
	assert_int_equal(batch_builder_create(&b, &c), 0);
	s.record.verdict = FRAME_HIT;
	s.record.out = GK_NO_OUT;
	assert_int_equal(batch_builder_add(b, &s.record), -EINVAL);
	s.record.out = 0;
	s.record.kind = GK_KIND_RAW;
	s.record.frame++;
	s.record.chunk_bytes = gk_bitshuffle_bound(gk_pixels(&s.geometry)) + 1;
	assert_int_equal(batch_builder_add(b, &s.record), -EINVAL);
	s.record.chunk_bytes = 0;
	s.record.kind = GK_KIND_NONE;
	s.record.frame++;
	assert_int_equal(batch_builder_add(b, &s.record), -EINVAL);
	s.record.kind = GK_KIND_CSR;
	s.record.frame++;
	nnz = s.layout.nnz_cap + 1;
	memcpy(s.outputs + s.layout.row_ptr + gk_rows(&s.geometry) * 4, &nnz, 4);
	assert_int_equal(batch_builder_add(b, &s.record), -EINVAL);
	batch_builder_flush(b);
	assert_int_equal(sink.nb, 1);
	assert_int_equal(sink.noted[0].rows, 4);
	batch_builder_destroy(b);
	arrow_tables_free(&t);
	sample_free(&s);
}

static bool
is_resident(const struct batch_region *r, size_t at)
{
	unsigned char page;

	assert_int_equal(mincore(r->base + at, 1, &page), 0);
	return page & 1;
}

/* The memory of a rare huge batch is released; memory for the usual size is kept. */
static void
region_memory(void **state)
{
	const size_t usual = 100000, huge = 32 << 20;
	uint8_t *data = malloc(huge);
	struct batch_region r;
	unsigned int i;

	memset(data, 'x', huge);
	assert_int_equal(batch_region_init(&r, huge), 0);
	for (i = 0; i < 3 * BATCH_REGION_WINDOW; i++) {
		batch_region_append_large(&r, data, i == 3 ? huge : usual);
		assert_int_equal(batch_region_finish(&r, 0, 4096) % 4096, 0);
		assert_int_equal(r.crc,
			i == 3 ? arrow_crc32c(0, data, huge)
			       : arrow_crc32c_zeros(arrow_crc32c(0, data, usual), -usual & 4095));
		if (i == 3)
			assert_true(is_resident(&r, 20 << 20));
		batch_region_reset(&r);
	}
	assert_true(is_resident(&r, 0));
	assert_false(is_resident(&r, 20 << 20));
	batch_region_free(&r);
	free(data);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cutting),
		cmocka_unit_test(chunks_of_images),
		cmocka_unit_test(images_before_rows),
		cmocka_unit_test(emitted_batches_stay_unchanged),
		cmocka_unit_test(bytes_do_not_depend_on_the_place),
		cmocka_unit_test(placed_and_destroyed),
		cmocka_unit_test(references),
		cmocka_unit_test(large_batches),
		cmocka_unit_test(wrong_records),
		cmocka_unit_test(region_memory),
	};

	return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
