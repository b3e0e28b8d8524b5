/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries over RDMA, both directions: messages are refused, or their records can be read; metadata
 * and bodies of results are refused, or every value of the arrays can be read.
 *
 * The first byte of an input selects: a message of the client, of the server, or messages of Arrow.
 * These are {u16 bytes of metadata, u16 bytes of body} with the bytes, one after the other. Without
 * bytes, another result with the same schema begins.
 */

#include <errno.h>

#include "arrow_result.h"
#include "seed_corpus.h"

#include "remote/wire.h"
#include "sql/ipc_reader.h"
#include "sql/ipc_stream.h"

static void
read_message(const uint8_t *data, size_t size, enum scan_role from)
{
	void *copy = aligned_alloc(8, (size + 8) / 8 * 8);
	struct scan_record r;
	const uint8_t *bytes;
	uint64_t number = 0;
	size_t at = sizeof(struct scan_data);

	if (copy == NULL)
		abort();
	memcpy(copy, data, size);
	if (size >= sizeof(struct scan_msg))
		number = ((const struct scan_msg *)copy)->number;
	if (scan_msg_check(copy, size, from, number) == SCAN_REASON_NONE &&
		((const struct scan_msg *)copy)->type == SCAN_DATA) {
		while ((bytes = scan_record_next(copy, &at, &r)) != NULL) {
			read_bytes(bytes, scan_record_bytes(&r));
		}
	}
	free(copy);
}

static void
read_result(const uint8_t *data, size_t size)
{
	struct ipc_reader *r = ipc_reader_create();
	struct ArrowSchema schema = {0};
	struct ArrowArray array;
	struct ipc_body body;
	uint16_t length[2];
	uint8_t *metadata;
	uint64_t announced;
	int ret = 0;

	while (ret == 0 && size >= sizeof(length)) {
		memcpy(length, data, sizeof(length));
		data += sizeof(length);
		size -= sizeof(length);
		if ((size_t)length[0] + length[1] > size)
			break;
		if (length[0] == 0 && length[1] == 0) {
			ipc_reader_restart(r);
			continue;
		}
		metadata = malloc(length[0] + (length[0] == 0));
		body = (struct ipc_body){
			aligned_alloc(64, (length[1] + 64) / 64 * 64), length[1], free, NULL};
		body.arg = (void *)(uintptr_t)body.bytes;
		if (metadata == NULL || body.arg == NULL)
			abort();
		memcpy(metadata, data, length[0]);
		memcpy(body.arg, data + length[0], length[1]);
		data += length[0] + length[1];
		size -= length[0] + length[1];
		ret = ipc_reader_head(metadata, length[0], &announced);
		if (ret == IPC_SCHEMA && schema.release == NULL) {
			ret = ipc_reader_schema(r, metadata, length[0]);
			if (ret == 0)
				ret = ipc_reader_copy_schema(r, &schema);
			free(body.arg);
		} else {
			ret = ipc_reader_batch(r, metadata, length[0], &body, &array);
			if (ret == 0 && array.release != NULL) {
				read_array(&schema, &array, 0);
				array.release(&array);
			}
		}
		free(metadata);
	}
	if (schema.release != NULL)
		schema.release(&schema);
	ipc_reader_destroy(r);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] % 3 == 2)
		read_result(data + 1, size - 1);
	else
		read_message(data + 1, size - 1, data[0] % 3 == 0 ? SCAN_CLIENT : SCAN_SERVER);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static uint8_t seed[1 << 16];
static size_t seed_size;

static int
take_message(void *arg, const void *metadata, size_t size, const struct ipc_buffer *buffer,
	size_t nb, uint64_t body)
{
	const uint16_t length[2] = {size, body};

	memcpy(seed + seed_size, length, sizeof(length));
	memcpy(seed + seed_size + sizeof(length), metadata, size);
	seed_size += sizeof(length) + size;
	for (size_t i = 0; i < nb; i++) {
		if (buffer[i].size > 0)
			memcpy(seed + seed_size, buffer[i].bytes, buffer[i].size);
		seed_size += (buffer[i].size + IPC_ALIGN - 1) / IPC_ALIGN * IPC_ALIGN;
	}
	return 0;
}

static void
add_result(const struct ArrowSchema *schema, const struct ArrowArray *batch)
{
	const struct ipc_sink to = {take_message, NULL};
	struct ipc_stream s;
	unsigned int i;

	seed[0] = 2;
	seed_size = 1;
	if (ipc_stream_begin_messages(&s, &to, schema) < 0)
		abort();
	for (i = 0; i < 2; i++) {
		s.started = false;
		if (ipc_stream_batch(&s, batch) < 0)
			abort();
		memset(seed + seed_size, 0, 2 * sizeof(uint16_t));
		seed_size += 2 * sizeof(uint16_t);
	}
	seed_add("result", seed, seed_size);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const size_t sizes[SCAN_TYPES] = {0, sizeof(struct scan_auth_request),
		sizeof(struct scan_answer), sizeof(struct scan_grant),
		sizeof(struct scan_query) + 8, sizeof(struct scan_credit) + 4,
		sizeof(struct scan_cancel), sizeof(struct scan_data), sizeof(struct scan_msg),
		sizeof(struct scan_refuse), sizeof(struct scan_free) + 8};
	static uint8_t message[SCAN_MSG_MAX] __attribute__((aligned(8)));
	const struct scan_record r = {.kind = SCAN_BODY, .length = 8, .total = 16};
	const struct scan_record pulled = {.kind = SCAN_PULLED, .length = 4096, .total = 8192};
	const struct scan_pulled where = {4096, 7, 0};
	const struct scan_record kept = {
		.kind = SCAN_METADATA, .length = 8, .total = 8, .slot = SCAN_SCHEMAS};
	const struct scan_record known = {.kind = SCAN_SCHEMA, .slot = SCAN_SCHEMAS};
	struct scan_grant *grant = (struct scan_grant *)message;
	struct scan_free *parts = (struct scan_free *)message;
	char name[16];

	seed_begin(argc, argv);
	result_example(add_result);
	for (unsigned int type = 1; type < SCAN_TYPES; type++) {
		scan_msg_begin(message, type, sizes[type], 0);
		if (type == SCAN_DATA) {
			(void)scan_record_put((struct scan_data *)message, &kept, "12345678");
			(void)scan_record_put((struct scan_data *)message, &known, NULL);
			(void)scan_record_put((struct scan_data *)message, &r, "12345678");
			(void)scan_record_put((struct scan_data *)message, &pulled, &where);
		} else if (type == SCAN_GRANT) {
			grant->head.flags = SCAN_PULL;
			grant->slot_bytes = SCAN_SLOT_MIN;
		} else if (type == SCAN_FREE) {
			parts->nb = 1;
			parts->addr[0] = where.addr;
		}
		seed[0] = type == SCAN_DATA || type == SCAN_ANSWER;
		memcpy(seed + 1, message, ((struct scan_msg *)message)->length);
		snprintf(name, sizeof(name), "message%u", type);
		seed_add(name, seed, 1 + ((struct scan_msg *)message)->length);
	}
	return 0;
}
