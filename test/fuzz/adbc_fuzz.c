/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers of the helper process, as the driver of ADBC reads them: each is an error, or every value
 * of its arrays can be read. An answer that has ended leaves the helper at the start of the next
 * one, which is read in turn. Helper and pool are fakes.
 *
 * The first byte of an input has flags: damaged files are no error; the helper is killed at the end
 * of its output. The rest is the helper's output.
 */

#include <errno.h>
#include <stdbool.h>

#include "adbc/pipe.h"
#include "adbc/result.h"
#include "arrow_result.h"
#include "seed_corpus.h"
#include "sql/ipc_stream.h"

#define ALLOW_DAMAGED 1
#define KILLED	      2

struct session_process {
	const uint8_t *data;
	size_t size;
	bool killed;
	bool running;
	bool waits; /* for the next statement: the pool has it */
	bool ended;
};

/* ---- fakes ----------------------------------------------------------------------------------- */

int
session_process_read(void *process, void *to, size_t size)
{
	struct session_process *h = process;

	if (h->ended || h->waits)
		abort();
	if (size > h->size)
		return 0;
	memcpy(to, h->data, size);
	h->data += size;
	h->size -= size;
	return 1;
}

int
session_process_wait(struct session_process *h, int *status)
{
	/* it would wait for ever */
	if (!h->running)
		abort();
	*status = h->killed ? 137 : 1;
	return 0;
}

const char *
session_process_stderr(struct session_process *h)
{
	return "braggline-scan: Binder Error: fake";
}

void
session_process_done(struct session_process *h)
{
	h->running = false;
}

void
session_process_end(struct session_process *h)
{
	if (h == NULL)
		return;
	if (h->ended || h->waits)
		abort();
	h->ended = true;
}

void
session_pool_give(struct session_pool *p, struct session_process *h)
{
	if (h->running || h->ended || h->waits)
		abort();
	h->waits = true;
}

struct session_pool *
session_pool_get(struct session_pool *p)
{
	return p;
}

void
session_pool_put(struct session_pool *p)
{
}

/* ---- target ---------------------------------------------------------------------------------- */

static void
read_stream(struct ArrowArrayStream *stream)
{
	struct ArrowSchema schema;
	struct ArrowArray array;
	AdbcStatusCode status = ADBC_STATUS_OK;
	const struct AdbcError *error;
	int ret;

	if (stream->get_schema(stream, &schema) != 0)
		abort();
	while ((ret = stream->get_next(stream, &array)) == 0 && array.release != NULL) {
		read_array(&schema, &array, 0);
		array.release(&array);
	}
	error = result_error(stream, &status);
	if ((ret != 0) != (error != NULL) || (ret != 0 && stream->get_last_error(stream) == NULL))
		abort();
	schema.release(&schema);
	stream->release(stream);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct session_process h = {.killed = size > 0 && data[0] & KILLED};
	struct ArrowArrayStream stream;
	struct failure f;
	AdbcStatusCode status;

	if (size == 0)
		return 0;
	h.data = data + 1;
	h.size = size - 1;
	do {
		h.running = true;
		h.waits = false;
		f.status = ADBC_STATUS_OK;
		status = result_of_process(&h, NULL, data[0] & ALLOW_DAMAGED, &stream, &f);
		if (status != f.status)
			abort();
		if (status == ADBC_STATUS_OK)
			read_stream(&stream);
		if (h.waits == h.ended)
			abort();
	} while (h.waits && h.size > 0);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static void
add_answers(const struct ArrowSchema *schema, const struct ArrowArray *batch)
{
	static const uint32_t statuses[] = {0, 1, 130};
	char *bytes = NULL, name[16];
	size_t size;

	for (unsigned int i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		const struct pipe_end end = {PIPE_END, statuses[i]};
		FILE *out = open_memstream(&bytes, &size);
		struct ipc_stream s;

		/* one with a batch, one that fails at once */
		putc(0, out);
		if (ipc_stream_begin(&s, out, schema) < 0 || ipc_stream_batch(&s, batch) < 0 ||
			ipc_stream_end(&s) < 0)
			abort();
		fwrite(&end, sizeof(end), 1, out);
		fwrite(&end, sizeof(end), 1, out);
		fclose(out);
		snprintf(name, sizeof(name), "status%u", statuses[i]);
		seed_add(name, bytes, size);
		free(bytes);
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	seed_begin(argc, argv);
	result_example(add_answers);
	return 0;
}
