/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the check of a batch's descriptor and metadata: valid ones pass unchanged, all others are
 * rejected with the right cause. XFER_SEED repeats a run.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "xfer_sample.h"

static uint64_t seed;
static struct xfer_sample s;
static struct xfer_desc entry __attribute__((aligned(64)));
static uint8_t metadata[XFER_BLOCK];
static struct xfer_batch batch;

static struct xfer_stream *
stream_of(const struct xfer_desc *e)
{
	return &s.stream[e->descriptor.table];
}

/* Copy the entry of a random batch. */
static const struct xfer_sample_batch *
pick(void)
{
	const unsigned int table = sample_random(&s.sample) % ARROW_TABLES;
	const struct xfer_sample_batch *b = &s.batch[table][sample_random(&s.sample) % s.nb[table]];

	entry = b->entry;
	return b;
}

static enum xfer_desc_fault
check(uint32_t index)
{
	memset(metadata, 0, sizeof(metadata));
	return xfer_desc_check(stream_of(&entry), &entry, index, &batch, metadata);
}

static void
test_good(void **state)
{
	unsigned int i, k;

	for (i = 0; i < ARROW_TABLES; i++) {
		assert_true(s.nb[i] > 4);
		for (k = 0; k < s.nb[i]; k++) {
			entry = s.batch[i][k].entry;
			assert_int_equal(check(k), XFER_DESC_GOOD);
			assert_memory_equal(&batch, &s.batch[i][k].batch, sizeof(batch));
			assert_memory_equal(metadata, s.batch[i][k].metadata, XFER_BLOCK);
		}
	}
}

/*
 * Change one bit, and repair the descriptor's CRC: the entry is rejected unless the bit belongs to
 * a value that the store cannot check. In that case the copy for the file agrees with the
 * descriptor.
 */
static void
test_any_byte(void **state)
{
	uint64_t faults[XFER_DESC_FAULTS] = {0};
	const struct xfer_sample_batch *b;
	enum xfer_desc_fault fault;
	uint32_t at, n;

	for (n = 0; n < 40000; n++) {
		b = pick();
		at = sample_random(&s.sample) %
			(n % 2 ? sizeof(entry.descriptor)
			       : sizeof(entry.descriptor) + b->entry.descriptor.metadata_bytes);
		((uint8_t *)&entry)[at] ^= 1 << sample_random(&s.sample) % 8;
		/* without the repair each change is found */
		if (entry.descriptor.table < ARROW_TABLES)
			assert_int_equal(check(b->batch.entry),
				at < offsetof(struct xfer_descriptor, mac) ? XFER_DESC_GARBAGE
									   : XFER_DESC_MAC);
		if (entry.descriptor.table >= ARROW_TABLES)
			continue;
		xfer_sample_sign(&s.seal, &entry);
		fault = check(b->batch.entry);
		faults[fault]++;
		if (fault != XFER_DESC_GOOD)
			continue;
		assert_int_equal(batch.body_bytes, b->batch.body_bytes);
		assert_int_equal(batch.body_crc32c, b->batch.body_crc32c);
		assert_int_equal(batch.sequence, b->batch.sequence);
		assert_int_equal(batch.rows, b->batch.rows);
	}
	for (fault = XFER_DESC_GOOD; fault < XFER_DESC_FAULTS; fault++) {
		printf("%s %llu\n", xfer_desc_fault_name(fault), (unsigned long long)faults[fault]);
		/* a changed sequence number is rejected as one that differs from the metadata's */
		assert_true(
			faults[fault] > 0 || fault == XFER_DESC_SEQUENCE || fault == XFER_DESC_MAC);
	}
	/*
	 * only frame numbers, times and the CRC itself may pass: a small part of a descriptor's
	 * bytes
	 */
	assert_true(faults[XFER_DESC_GOOD] < n / 4);
}

/*
 * The copy for the file is padded with zeros, even if other bytes follow its metadata. Zeros may
 * also be counted as metadata.
 */
static void
test_behind(void **state)
{
	const struct xfer_sample_batch *b;
	uint32_t at, i;

	for (i = 0; i < 1000; i++) {
		b = pick();
		at = entry.descriptor.metadata_bytes;
		entry.metadata[at + sample_random(&s.sample) % (sizeof(entry.metadata) - at)] = 1;
		assert_int_equal(check(b->batch.entry), XFER_DESC_GOOD);
		assert_memory_equal(metadata, b->metadata, XFER_BLOCK);
		if (i % 2 == 0)
			continue;
		entry = b->entry;
		entry.descriptor.metadata_bytes +=
			sample_random(&s.sample) % (sizeof(entry.metadata) - at + 1);
		xfer_sample_sign(&s.seal, &entry);
		assert_int_equal(check(b->batch.entry), XFER_DESC_GOOD);
		assert_memory_equal(metadata, b->metadata, XFER_BLOCK);
		/* a byte other than zero that is counted as metadata is rejected */
		at = entry.descriptor.metadata_bytes - 1;
		if (at < b->entry.descriptor.metadata_bytes)
			continue;
		entry.metadata[at] = 1;
		assert_int_equal(check(b->batch.entry), XFER_DESC_MAC);
		xfer_sample_sign(&s.seal, &entry);
		assert_int_equal(check(b->batch.entry), XFER_DESC_METADATA);
	}
}

static void
test_forged(void **state)
{
	const struct xfer_sample_batch *b;

	b = pick();
	/* another slot, another connection */
	assert_int_equal(check(b->batch.entry + 1), XFER_DESC_SLOT);
	entry.descriptor.session_id++;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_SLOT);

	b = pick();
	entry.descriptor.receiver_id++;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_IDENTITY);
	b = pick();
	entry.descriptor.run++;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_IDENTITY);
	b = pick();
	entry.descriptor.incarnation++;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_IDENTITY);

	/* UINT64_MAX, which has no successor; a number that differs from the metadata's */
	b = pick();
	entry.descriptor.sequence = UINT64_MAX;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_SEQUENCE);
	b = pick();
	entry.descriptor.sequence++;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_METADATA);
}

/* The CRC of the receiver's copy is there if the flag says so, and no other flag is known. */
static void
test_copy(void **state)
{
	const struct xfer_sample_batch *b = pick();

	assert_int_equal(check(b->batch.entry), XFER_DESC_GOOD);
	assert_int_equal(xfer_batch_sent_crc(&batch), b->batch.body_crc32c);
	entry.descriptor.flags = XFER_COPY_CHECKED;
	entry.descriptor.copy_crc32c = 7;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_GOOD);
	assert_int_equal(batch.body_crc32c, b->batch.body_crc32c);
	assert_int_equal(xfer_batch_sent_crc(&batch), 7);
	entry.descriptor.flags = 0;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_GARBAGE);
	entry.descriptor.flags = XFER_COPY_CHECKED | 2;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_GARBAGE);
}

static void
test_lengths(void **state)
{
	static const uint64_t bodies[] = {0, 4095, (1 << 20) + 4096, UINT64_MAX, 1ull << 63};
	static const uint32_t metadatas[] = {0, 4096, 3969, UINT32_MAX};
	const struct xfer_sample_batch *b;
	unsigned int i;

	for (i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		b = pick();
		entry.descriptor.body_bytes = bodies[i];
		xfer_sample_sign(&s.seal, &entry);
		assert_int_equal(check(b->batch.entry), XFER_DESC_LENGTH);
	}
	for (i = 0; i < sizeof(metadatas) / sizeof(metadatas[0]); i++) {
		b = pick();
		entry.descriptor.metadata_bytes = metadatas[i];
		xfer_sample_sign(&s.seal, &entry);
		assert_int_equal(check(b->batch.entry), XFER_DESC_LENGTH);
	}
	b = pick();
	entry.descriptor.rows = 1ull << 63;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_LENGTH);
	/* a length shorter than the metadata: they no longer match */
	b = pick();
	entry.descriptor.metadata_bytes = 64;
	xfer_sample_sign(&s.seal, &entry);
	assert_int_equal(check(b->batch.entry), XFER_DESC_METADATA);
}

/* Metadata of the right identity with a buffer outside the body are rejected. */
static void
test_buffers_outside(void **state)
{
	const struct arrow_template *t;
	const struct xfer_sample_batch *b;
	uint8_t made[XFER_BLOCK];
	struct arrow_batch batch_of;
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX];
	struct arrow_node nodes[ARROW_NODES_MAX];
	struct xfer_batch of;
	unsigned int i, k;

	for (i = 0; i < ARROW_TABLES; i++) {
		b = &s.batch[i][0];
		t = &s.stream[i].template;
		for (k = 0; k < t->nb_buffers; k++) {
			memcpy(made, b->metadata, XFER_BLOCK);
			memcpy(nodes, made + t->nodes, t->nb_nodes * sizeof(nodes[0]));
			memcpy(buffers, made + t->buffers, t->nb_buffers * sizeof(buffers[0]));
			buffers[k].offset = (int64_t)b->batch.body_bytes;
			buffers[k].length = 8;
			batch_of = (struct arrow_batch){(int64_t)b->batch.rows, nodes, buffers,
				(int64_t)b->batch.body_bytes, b->batch.sequence,
				b->batch.body_crc32c};
			arrow_template_patch(t, made, &batch_of);
			of = b->batch;
			assert_int_equal(xfer_sample_entry(&s.stream[i], &of, made, &entry), 0);
			assert_int_equal(check(of.entry), XFER_DESC_METADATA);
			buffers[k].offset = -8;
			arrow_template_patch(t, made, &batch_of);
			assert_int_equal(xfer_sample_entry(&s.stream[i], &of, made, &entry), 0);
			assert_int_equal(check(of.entry), XFER_DESC_METADATA);
		}
	}
}

static void
test_make(void **state)
{
	static uint8_t ones[XFER_BLOCK];
	struct xfer_stream stream;
	struct xfer_batch of;

	of = s.batch[0][0].batch;
	of.body_bytes = (1 << 20) + 4096;
	assert_int_equal(
		xfer_sample_entry(&s.stream[0], &of, s.batch[0][0].metadata, &entry), -EMSGSIZE);
	of = s.batch[0][0].batch;
	memset(ones, 1, sizeof(ones));
	stream = (struct xfer_stream){.body_max = of.body_bytes};
	assert_int_equal(xfer_sample_entry(&stream, &of, ones, &entry), -EMSGSIZE);
	/* the sender's stream has no template: the result is the same */
	stream.table = 0;
	stream.seal = &s.seal;
	stream.identity = s.stream[0].identity;
	stream.session_id = s.stream[0].session_id;
	assert_int_equal(xfer_sample_entry(&stream, &of, s.batch[0][0].metadata, &entry), 0);
	assert_memory_equal(
		&entry.descriptor, &s.batch[0][0].entry.descriptor, sizeof(entry.descriptor));
}

int
main(void)
{
	const char *text = getenv("XFER_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_any_byte),
		cmocka_unit_test(test_behind),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_buffers_outside),
		cmocka_unit_test(test_make),
	};
	int ret;

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	xfer_sample_init(&s, seed, 100);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	xfer_sample_free(&s);
	return ret;
}
