/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors and messages that a peer sends to a store or a receiver. An accepted descriptor has
 * the identity of the stream, a body within its slot, and metadata that equal those of our own
 * template with its numbers. It is written to a file on an in-memory disk, which then has exactly
 * this batch. Writing it a second time reports a duplicate. The first byte of an input selects its
 * kind.
 */

#include "seed_corpus.h"

#include "../unit/arrow/arrow_disk.h"
#include "../unit/xfer/xfer_sample.h"
#include "arrow/reader.h"
#include "xfer/auth.h"
#include "xfer/msg.h"
#include "stream/writer.h"

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

enum what {
	ENTRY,
	ENTRY_SIGNED, /* with a correct CRC, so that it passes the first check */
	FROM_RECEIVER,
	FROM_STORE,
	PRIVATE,
	WHATS
};

#define BODY_MAX (1u << 20) /* of the sample streams */

static struct xfer_sample sample;

static void
take_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	enum xfer_result_status *result = arg;

	WANT(tag < 2 && result[tag] == 0);
	result[tag] = status;
}

/* The written file has this batch and no other. */
static void
look_into_file(const struct xfer_batch *batch)
{
	struct arrow_reader r;
	const char *problem;

	WANT(disk->nb_files == 1);
	WANT(arrow_reader_open_memory(&r, disk->file[0].data, disk->file[0].size, &problem) == 0);
	WANT(r.complete && r.nb_batches == 1);
	WANT(strtoull(r.batches[0].sequence, NULL, 16) == batch->sequence);
	WANT((uint64_t)r.batches[0].body_length == batch->body_bytes);
	arrow_reader_close(&r);
}

/* Process a valid descriptor. */
static void
write_batch(unsigned int table, const struct xfer_batch *batch, const uint8_t *metadata)
{
	static uint8_t body[BODY_MAX] __attribute__((aligned(XFER_BLOCK)));
	enum xfer_result_status result[2] = {0};
	const struct stream_writer_config c = {
		.dir = "/nowhere",
		.run = "r",
		.identity = xfer_sample_identity(table),
		.schema = &sample.tables.schema[table],
		.slices = {.io = &disk_io, .slice = 1 << 16, .depth = 4, .ahead = 1 << 17},
		.result = take_result,
		.arg = result,
	};
	struct stream_batch b = {*batch, metadata, body, 0};
	struct stream_writer *w;

	disk = disk_new(1);
	WANT(stream_writer_open(&w, &c) == 0);
	for (; b.tag < 2; b.tag++)
		stream_writer_append(w, &b);
	WANT(stream_writer_finish(w) == 0);
	WANT(result[0] == XFER_DURABLE && result[1] == XFER_DUPLICATE);
	stream_writer_close(w);
	look_into_file(batch);
	disk_free(disk);
}

static void
try_entry(const uint8_t *data, size_t size, bool sign)
{
	static struct xfer_desc entry __attribute__((aligned(64)));
	struct xfer_stream *s;
	struct xfer_batch batch;
	uint8_t metadata[XFER_BLOCK] __attribute__((aligned(XFER_BLOCK))) = {0};
	uint8_t made[XFER_BLOCK];
	struct arrow_node nodes[ARROW_NODES_MAX];
	struct arrow_buffer buffers[ARROW_BUFFERS_MAX];
	struct arrow_batch again;
	unsigned int i;

	memset(&entry, 0, sizeof(entry));
	memcpy(&entry, data, size < sizeof(entry) ? size : sizeof(entry));
	if (entry.descriptor.table >= ARROW_TABLES)
		return;
	if (sign)
		xfer_sample_sign(&sample.seal, &entry);
	s = &sample.stream[entry.descriptor.table];
	if (xfer_desc_check(s, &entry, entry.descriptor.entry, &batch, metadata) != XFER_DESC_GOOD)
		return;
	WANT(batch.body_bytes > 0 && batch.body_bytes <= s->body_max &&
		batch.body_bytes % XFER_BLOCK == 0);
	memcpy(nodes, metadata + s->template.nodes, s->template.nb_nodes * sizeof(nodes[0]));
	memcpy(buffers, metadata + s->template.buffers,
		s->template.nb_buffers * sizeof(buffers[0]));
	for (i = 0; i < s->template.nb_buffers; i++)
		WANT(buffers[i].offset >= 0 && buffers[i].length >= 0 &&
			(uint64_t)buffers[i].offset + (uint64_t)buffers[i].length <=
				batch.body_bytes);
	again = (struct arrow_batch){(int64_t)batch.rows, nodes, buffers, (int64_t)batch.body_bytes,
		batch.sequence, batch.body_crc32c};
	memcpy(made, s->template.bytes, XFER_BLOCK);
	arrow_template_patch(&s->template, made, &again);
	WANT(memcmp(made, metadata, XFER_BLOCK) == 0);
	write_batch(entry.descriptor.table, &batch, metadata);
}

static void
try_message(const uint8_t *data, size_t size, enum xfer_role from)
{
	static struct xfer_slot place[XFER_DESCS_MAX];
	const uint64_t body_max[XFER_TABLES] = {4096, 4096};
	const struct xfer_msg *m;
	uint32_t nb = 0;
	/* exact size, so that ASAN detects accesses past the end */
	uint8_t *copy = malloc(size + (size == 0));

	memcpy(copy, data, size);
	m = (const struct xfer_msg *)copy;
	if (xfer_msg_check(copy, size, from, 0) == XFER_REASON_NONE) {
		WANT(m->length == size && size <= XFER_MSG_MAX);
		if (m->type == XFER_GRANT &&
			xfer_grant_slots((const struct xfer_grant *)copy, body_max, place, &nb) ==
				XFER_REASON_NONE) {
			WANT(nb > 0 && nb <= XFER_DESCS_MAX);
			while (nb-- > 0)
				WANT(place[nb].body_room >= 4096);
		}
	}
	free(copy);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch ((enum what)(data[0] % WHATS)) {
	case ENTRY:
	case ENTRY_SIGNED:
		try_entry(data + 1, size - 1, data[0] % WHATS == ENTRY_SIGNED);
		break;
	case FROM_RECEIVER:
	case FROM_STORE:
		try_message(data + 1, size - 1,
			data[0] % WHATS == FROM_STORE ? XFER_ROLE_STORE : XFER_ROLE_RECEIVER);
		break;
	default:
		(void)xfer_private_check(data + 1, size - 1, XFER_ROLE_STORE);
		(void)xfer_private_check(data + 1, size - 1, XFER_ROLE_RECEIVER);
	}
	return 0;
}

static void
seed_message(const char *name, enum what what, const void *bytes, size_t size)
{
	uint8_t seed[XFER_DESC_BYTES + 1];

	seed[0] = what;
	memcpy(seed + 1, bytes, size);
	seed_add(name, seed, size + 1);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const struct xfer_region regions[] = {
		{0x1000, 4096, 1, 0, 3, XFER_REGION_METADATA, 0, 0},
		{0x9000, 4096, 2, 0, 1, XFER_REGION_BODY, 0, 0},
		{0x20000, 8192, 3, 1, 2, XFER_REGION_BODY, 1, 0},
	};
	union {
		uint8_t bytes[XFER_MSG_MAX];
		struct xfer_grant grant;
		struct xfer_auth_request request;
		struct xfer_intervals intervals;
		struct xfer_list list;
	} m;
	struct xfer_private p = {XFER_MAGIC, XFER_VERSION, XFER_ROLE_STORE, 0, 1, {0}, 0};
	unsigned int i;
	char name[32];

	seed_begin(argc, argv);
	xfer_sample_init(&sample, 1, 24);
	for (i = 0; i < ARROW_TABLES; i++) {
		snprintf(name, sizeof(name), "entry%u", i);
		seed_message(
			name, ENTRY_SIGNED, &sample.batch[i][0].entry, sizeof(struct xfer_desc));
	}
	xfer_msg_begin(&m, XFER_GRANT, sizeof(m.grant) + sizeof(regions), 0);
	m.grant.heartbeat_ms = 1;
	m.grant.silence_ms = 2;
	m.grant.commit_ms = 1;
	m.grant.nb = 3;
	memcpy(m.grant.region, regions, sizeof(regions));
	seed_message("grant", FROM_STORE, &m, m.grant.head.length);
	xfer_msg_begin(&m, XFER_AUTH, sizeof(m.request), 0);
	strcpy(m.request.name, "run");
	strcpy(m.request.identity, "recv-1");
	for (i = 0; i < XFER_TABLES; i++)
		m.request.table[i].body_max = m.request.table[i].schema_bytes = 4096;
	seed_message("proof", FROM_RECEIVER, &m, sizeof(m.request));
	xfer_msg_begin(&m, XFER_INVENTORY, sizeof(m.intervals) + 16, 0);
	m.intervals.nb = 1;
	seed_message("inventory", FROM_STORE, &m, sizeof(m.intervals) + 16);
	xfer_msg_begin(&m, XFER_REASSIGNED, sizeof(m.list) + 16, 0);
	m.list.nb = 1;
	seed_message("moved", FROM_RECEIVER, &m, sizeof(m.list) + 16);
	m.list.head.type = XFER_HELD;
	seed_message("held", FROM_RECEIVER, &m, sizeof(m.list) + 16);
	seed_message("private", PRIVATE, &p, sizeof(p));
	return 0;
}
