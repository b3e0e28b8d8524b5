/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "adbc/pipe.h"
#include "adbc/result.h"
#include "arrow/format.h"
#include "sql/ipc_reader.h"

#define METADATA_MAX (UINT32_C(64) << 20) /* of a message; a larger length is damaged */
#define BODY_ALIGN   64

/* The length of a larger body may be damaged, so its pages are only taken when they are written. */
#define HEAP_MAX (UINT64_C(64) << 20)

/* Statuses of braggline-scan */
#define EXIT_DAMAGED   1 /* also for incomplete files */
#define EXIT_CANCELLED 130
#define EXIT_MAX       255

/* Memory of a message body. */
struct body {
	uint8_t *bytes;
	size_t room;
	bool mapped;
};

struct result {
	struct ipc_reader *reader;
	struct session_process *process; /* NULL: memory, or the answer has ended */
	struct session_pool *pool;
	int status;    /* of the answer, */
	bool answered; /* if it has ended */
	char *memory;
	size_t memory_size, memory_at;
	bool allow_damaged;
	bool ended;
	struct failure failure;
	struct AdbcError error; /* view of `failure` */
};

static int
result_read(struct result *r, void *to, size_t size)
{
	if (r->process != NULL)
		return session_process_read(r->process, to, size);
	if (size > r->memory_size - r->memory_at)
		return 0;
	memcpy(to, r->memory + r->memory_at, size);
	r->memory_at += size;
	return 1;
}

/* The answer is complete, and the failure is described: the next statement may have the process. */
static void
give_helper(struct result *r)
{
	struct session_process *process = r->process;

	r->process = NULL;
	/* a process that was interrupted ends */
	if (r->status == EXIT_CANCELLED)
		session_process_end(process);
	else
		session_pool_give(r->pool, process);
}

/* Take the first half of the end of an answer. @return false: it is something else */
static bool
take_end(struct result *r, const uint32_t end[2])
{
	if (r->process == NULL || end[0] != PIPE_END || end[1] > EXIT_MAX)
		return false;
	session_process_done(r->process);
	r->status = (int)end[1];
	r->answered = true;
	return true;
}

/* Describe why a stream has failed. @return negative errno */
static int
result_fail(struct result *r, int ret)
{
	struct failure *f = &r->failure;
	int status = r->status, waited;

	r->ended = true;
	/* 0: the output ends too early; why is known when the process has ended */
	if (ret == 0 && r->process != NULL && !r->answered) {
		waited = session_process_wait(r->process, &status);
		ret = waited < 0 ? waited : 0;
	}
	if (ret == -ECANCELED)
		failure_set(f, ADBC_STATUS_CANCELLED, "HY008", ret, "the statement was cancelled");
	else if (ret == -ETIMEDOUT)
		failure_set(f, ADBC_STATUS_TIMEOUT, "HYT00", ret,
			"the statement has run longer than its deadline "
			"(adbc.braggline.deadline_seconds), and was ended");
	else if (ret == 0 && status != 0)
		failure_of_process(f, status, session_process_stderr(r->process));
	else if (ret == 0)
		failure_set(f, ADBC_STATUS_IO, "08S01", 0,
			"the result ends before its end marker: rows are missing");
	else if (ret == -EBADMSG || ret == -ENOTSUP)
		failure_set(f, ADBC_STATUS_IO, "08S01", ret,
			"the output of the helper program: expected an Arrow IPC stream, found "
			"a message that is %s",
			ret == -EBADMSG ? "damaged" : "not supported");
	else
		failure_errno(f, -ret, "cannot read the output of the helper program");
	if (r->answered)
		give_helper(r);
	return ret == 0 ? -EIO : ret;
}

static void
body_release(void *arg)
{
	struct body *b = arg;

	if (b->mapped)
		munmap(b->bytes, b->room);
	else
		free(b->bytes);
	free(b);
}

static struct body *
body_new(uint64_t size)
{
	struct body *b = calloc(1, sizeof(*b));

	if (b == NULL || size > INT64_MAX / 2) {
		free(b);
		return NULL;
	}
	b->room = (size + BODY_ALIGN) / BODY_ALIGN * BODY_ALIGN;
	b->mapped = b->room > HEAP_MAX;
	if (!b->mapped) {
		b->bytes = aligned_alloc(BODY_ALIGN, b->room);
	} else {
		b->bytes = mmap(NULL, b->room, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (b->bytes == MAP_FAILED)
			b->bytes = NULL;
	}
	if (b->bytes == NULL) {
		free(b);
		return NULL;
	}
	return b;
}

/*
 * Read the metadata of a message.
 * @param metadata  out: to be freed
 * @return 1; 0: the output ends too early; -ENODATA: the end of the stream; -errno
 */
static int
read_metadata(struct result *r, void **metadata, size_t *size)
{
	uint32_t prefix[2];
	int ret;

	*metadata = NULL;
	ret = result_read(r, prefix, sizeof(prefix));
	if (ret <= 0)
		return ret;
	if (take_end(r, prefix))
		return 0;
	if (prefix[0] != ARROW_CONTINUATION || prefix[1] > METADATA_MAX)
		return -EBADMSG;
	if (prefix[1] == 0)
		return -ENODATA;
	*size = prefix[1];
	*metadata = malloc(*size);
	if (*metadata == NULL)
		return -ENOMEM;
	ret = result_read(r, *metadata, *size);
	if (ret <= 0)
		free(*metadata);
	return ret;
}

/* Read the body of a batch or of a dictionary. @return 1; 0: the output ends too early; -errno */
static int
read_batch(struct result *r, const void *metadata, size_t size, uint64_t length,
	struct ArrowArray *array)
{
	struct body *b = body_new(length);
	int ret;

	if (b == NULL)
		return -ENOMEM;
	ret = length > 0 ? result_read(r, b->bytes, length) : 1;
	if (ret <= 0) {
		body_release(b);
		return ret;
	}
	const struct ipc_body body = {b->bytes, length, body_release, b};

	ret = ipc_reader_batch(r->reader, metadata, size, &body, array);
	return ret < 0 ? ret : 1;
}

static int
read_schema(struct result *r)
{
	void *metadata;
	uint64_t body;
	size_t size;
	int ret;

	ret = read_metadata(r, &metadata, &size);
	if (ret <= 0)
		return ret == -ENODATA ? -EBADMSG : ret;
	ret = ipc_reader_head(metadata, size, &body);
	if (ret >= 0)
		ret = ret == IPC_SCHEMA ? ipc_reader_schema(r->reader, metadata, size) : -EBADMSG;
	free(metadata);
	return ret < 0 ? ret : 1;
}

/* Read until there is a record batch. @return 1; 0: the output ends too early; -ENODATA; -errno */
static int
read_next(struct result *r, struct ArrowArray *array)
{
	void *metadata;
	uint64_t body;
	size_t size;
	int ret;

	*array = (struct ArrowArray){0};
	do {
		ret = read_metadata(r, &metadata, &size);
		if (ret <= 0)
			return ret;
		ret = ipc_reader_head(metadata, size, &body);
		if (ret >= 0)
			ret = ret == IPC_SCHEMA ? -EBADMSG
						: read_batch(r, metadata, size, body, array);
		free(metadata);
	} while (ret == 1 && array->release == NULL);
	return ret;
}

/* The end of the stream was read: check the end of the answer. @return 0; negative errno */
static int
result_end(struct result *r)
{
	uint32_t end[2];
	int ret;

	r->ended = true;
	if (r->process == NULL)
		return 0;
	ret = result_read(r, end, sizeof(end));
	if (ret <= 0)
		return result_fail(r, ret);
	if (!take_end(r, end))
		return result_fail(r, -EBADMSG);
	if (r->status == EXIT_DAMAGED && !r->allow_damaged)
		failure_set(&r->failure, ADBC_STATUS_INVALID_DATA, "22000", r->status,
			"all rows that can be read were returned, but files are damaged or "
			"incomplete (adbc.braggline.allow_damaged = true allows it): %s",
			session_process_stderr(r->process));
	else if (r->status != 0 && r->status != EXIT_DAMAGED)
		failure_of_process(&r->failure, r->status, session_process_stderr(r->process));
	give_helper(r);
	return r->failure.status == ADBC_STATUS_OK ? 0 : -EIO;
}

static struct result *
result_from(struct ArrowArrayStream *stream)
{
	return stream->private_data;
}

static int
stream_get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
	return -ipc_reader_copy_schema(result_from(stream)->reader, out);
}

static int
stream_get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
	struct result *r = result_from(stream);
	int ret;

	*out = (struct ArrowArray){0};
	if (r->ended)
		return r->failure.status != ADBC_STATUS_OK ? failure_stream_errno(&r->failure) : 0;
	ret = read_next(r, out);
	if (ret == 1)
		return 0;
	ret = ret == -ENODATA ? result_end(r) : result_fail(r, ret);
	return ret == 0 ? 0 : failure_stream_errno(&r->failure);
}

static const char *
stream_get_last_error(struct ArrowArrayStream *stream)
{
	const struct result *r = result_from(stream);

	return r->failure.status != ADBC_STATUS_OK ? r->failure.text : NULL;
}

static void
result_free(struct result *r)
{
	ipc_reader_destroy(r->reader);
	session_process_end(r->process);
	session_pool_put(r->pool);
	free(r->memory);
	free(r);
}

static void
stream_release(struct ArrowArrayStream *stream)
{
	result_free(result_from(stream));
	stream->release = NULL;
}

/* Read the schema. The result is freed on an error. */
static AdbcStatusCode
result_open(struct result *r, struct ArrowArrayStream *stream, struct failure *f)
{
	int ret;

	r->reader = ipc_reader_create();
	ret = r->reader != NULL ? read_schema(r) : -ENOMEM;
	if (ret != 1) {
		result_fail(r, ret);
		*f = r->failure;
		result_free(r);
		return f->status;
	}
	*stream = (struct ArrowArrayStream){
		.get_schema = stream_get_schema,
		.get_next = stream_get_next,
		.get_last_error = stream_get_last_error,
		.release = stream_release,
		.private_data = r,
	};
	return ADBC_STATUS_OK;
}

AdbcStatusCode
result_of_process(struct session_process *process, struct session_pool *pool, bool allow_damaged,
	struct ArrowArrayStream *stream, struct failure *f)
{
	struct result *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		session_process_end(process);
		return failure_errno(f, ENOMEM, "");
	}
	r->process = process;
	r->pool = session_pool_get(pool);
	r->allow_damaged = allow_damaged;
	return result_open(r, stream, f);
}

AdbcStatusCode
result_of_memory(char *bytes, size_t size, struct ArrowArrayStream *stream, struct failure *f)
{
	struct result *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		free(bytes);
		return failure_errno(f, ENOMEM, "");
	}
	r->memory = bytes;
	r->memory_size = size;
	return result_open(r, stream, f);
}

AdbcStatusCode
result_finish(struct ArrowArrayStream *stream, struct failure *f)
{
	struct ArrowArray array;

	while (stream_get_next(stream, &array) == 0 && array.release != NULL)
		array.release(&array);
	*f = result_from(stream)->failure;
	stream_release(stream);
	return f->status;
}

const struct AdbcError *
result_error(struct ArrowArrayStream *stream, AdbcStatusCode *status)
{
	struct result *r;

	if (stream == NULL || stream->release != stream_release)
		return NULL;
	r = result_from(stream);
	if (r->failure.status == ADBC_STATUS_OK)
		return NULL;
	r->error = (struct AdbcError){.message = r->failure.text, .vendor_code = r->failure.vendor};
	memcpy(r->error.sqlstate, r->failure.sqlstate, sizeof(r->error.sqlstate));
	if (status != NULL)
		*status = r->failure.status;
	return &r->error;
}
