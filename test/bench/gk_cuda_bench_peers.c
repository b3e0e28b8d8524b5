/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of gangs: read kernel, stream memory operations, cuSPARSE. */

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gk_cuda.h"
#include "bench_median.h"
#include "gk_cuda_bench.h"

#define READS 20

double
bench_read(struct bench *b, int host, uint32_t blocks)
{
	CUdeviceptr_v2 table = host ? b->host_table : b->device_table;
	uint32_t packets = BENCH_FRAMES * b->geometry.tiles;
	uint32_t lines = b->geometry.tile_rows * b->geometry.cols / 8;
	void *parameters[] = {&table, &packets, &lines, &b->sink};
	double gb[READS];
	CUevent from, to;
	float ms;

	CHECK(b, cuEventCreate(&from, 0));
	CHECK(b, cuEventCreate(&to, 0));
	for (int i = -1; i < READS; i++) { /* warm-up in round -1 */
		CHECK(b, cuEventRecord(from, b->stream));
		CHECK(b,
			cuLaunchKernel(b->read, blocks, 1, 1, GK_CUDA_THREADS, 1, 1, 0, b->stream,
				parameters, NULL));
		CHECK(b, cuEventRecord(to, b->stream));
		CHECK(b, cuStreamSynchronize(b->stream));
		CHECK(b, cuEventElapsedTime(&ms, from, to));
		if (i >= 0)
			gb[i] = 2e-6 * (double)b->pixels * BENCH_FRAMES / ms;
	}
	b->cuda->cuEventDestroy(from);
	b->cuda->cuEventDestroy(to);
	return bench_sort(gb, READS);
}

double
bench_both(struct bench *b, double share, uint32_t blocks)
{
	uint32_t packets = BENCH_FRAMES * b->geometry.tiles;
	uint32_t lines = b->geometry.tile_rows * b->geometry.cols / 8;
	uint32_t back = (uint32_t)(share * lines);
	void *out = bench_memory(b, (uint64_t)packets * back * 16);
	void *parameters[] = {&b->host_table, &packets, &lines, &out, &back};
	double rate[READS];
	CUevent from, to;
	float ms;

	CHECK(b, cuEventCreate(&from, 0));
	CHECK(b, cuEventCreate(&to, 0));
	for (int i = -1; i < READS; i++) { /* warm-up in round -1 */
		CHECK(b, cuEventRecord(from, b->stream));
		CHECK(b,
			cuLaunchKernel(b->both, blocks, 1, 1, GK_CUDA_THREADS, 1, 1, 0, b->stream,
				parameters, NULL));
		CHECK(b, cuEventRecord(to, b->stream));
		CHECK(b, cuStreamSynchronize(b->stream));
		CHECK(b, cuEventElapsedTime(&ms, from, to));
		if (i >= 0)
			rate[i] = 1e3 * BENCH_FRAMES / ms;
	}
	b->cuda->cuEventDestroy(from);
	b->cuda->cuEventDestroy(to);
	bench_free(b, out);
	return bench_sort(rate, READS);
}

static int
compare_shots(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Copy to the GPU, on the benchmark's stream. */
static CUdeviceptr_v2
upload(struct bench *b, const void *from, uint64_t size)
{
	CUdeviceptr_v2 at;

	CHECK(b, cuMemAlloc(&at, size));
	CHECK(b, cuMemcpyHtoDAsync(at, from, size, b->stream));
	CHECK(b, cuStreamSynchronize(b->stream));
	return at;
}

/* One launch per batch: coefficients as in gangs, and descriptors of 1 and of 16 frames. */
struct launcher {
	uint32_t *flags;
	CUdeviceptr_v2 flag;
	CUdeviceptr_v2 batch[2];
	CUdeviceptr_v2 table;
	CUdeviceptr_v2 finished;
	CUdeviceptr_v2 coef;
	CUdeviceptr_v2 counts;
	CUdeviceptr_v2 nothing;
	CUfunction count;
};

static struct gk_cuda_divisor
divisor(uint32_t by)
{
	return (struct gk_cuda_divisor){
		by, by == 1 ? UINT32_MAX : (uint32_t)((UINT64_C(1) << 32) / by)};
}

static void
open_launcher(struct bench *b, struct launcher *l)
{
	const uint64_t tile = (uint64_t)b->geometry.tile_rows * b->geometry.cols;
	const uint32_t tiles = b->geometry.tiles, zero = 0;
	uint64_t *table = calloc((uint64_t)tiles * BENCH_FRAMES, 8);
	struct gk_cuda_batch *batch = calloc(1, sizeof(*batch));
	static const uint8_t zeros[GK_CUDA_WORDS];
	struct gk_cuda_args args = {.geometry = b->geometry, .gangs = 1, .blocks = 1};
	void *pack[] = {&l->batch[0]};
	CUdeviceptr_v2 constants;
	CUfunction packer;
	size_t size = 0;

	l->flags = bench_memory(b, 4096);
	l->flag = (uintptr_t)l->flags;
	args.rows = tiles * b->geometry.tile_rows;
	args.row_chunks = divisor((b->geometry.cols + GK_CUDA_CHUNK - 1) / GK_CUDA_CHUNK);
	args.tile_rows = divisor(b->geometry.tile_rows);
	args.chunks = args.rows * args.row_chunks.by;
	for (uint32_t f = 0; f < BENCH_FRAMES; f++)
		for (uint32_t t = 0; t < tiles; t++)
			table[((uint64_t)(f / 16) * tiles + t) * GK_BATCH_MAX + f % 16] =
				(uintptr_t)(b->device_raw + f * b->pixels + t * tile);
	l->table = upload(b, table, (uint64_t)tiles * BENCH_FRAMES * 8);
	CHECK(b, cuMemAlloc(&l->coef, args.chunks * sizeof(*args.coef)));
	args.coef = (struct gk_cuda_coef *)(uintptr_t)l->coef;
	l->nothing = upload(b, zeros, sizeof(zeros));
	args.nothing = (uint16_t *)(uintptr_t)l->nothing;
	CHECK(b, cuMemAlloc(&l->counts, (uint64_t)args.chunks * GK_BATCH_MAX * 4));
	args.counts = (uint32_t *)(uintptr_t)l->counts;
	batch->params.strong_threshold = batch->params.csr_threshold = 5.0f;
	for (int s = 0; s < 3; s++) {
		batch->plane.p[s] = b->device_planes + 2 * s * b->pixels * 4;
		batch->plane.r[s] = b->device_planes + (2 * s + 1) * b->pixels * 4;
	}
	batch->frame[0].result = (uintptr_t)(l->flags + 64);
	for (int i = 0; i < 2; i++) {
		batch->nb_frames = i == 0 ? 1 : GK_BATCH_MAX;
		l->batch[i] = upload(b, batch, sizeof(*batch));
	}
	l->finished = upload(b, &zero, sizeof(zero));
	CHECK(b, cuModuleGetFunction(&l->count, b->module, "bench_count"));
	CHECK(b,
		cuFuncSetAttribute(
			l->count, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, GK_CUDA_SHARED));
	CHECK(b, cuModuleGetFunction(&packer, b->module, "bench_pack"));
	CHECK(b, cuModuleGetGlobal(&constants, &size, b->module, GK_CUDA_ARGS));
	CHECK(b, cuMemcpyHtoDAsync(constants, &args, sizeof(args), b->stream));
	CHECK(b, cuLaunchKernel(packer, 1024, 1, 1, 32, 1, 1, 0, b->stream, pack, NULL));
	CHECK(b, cuStreamSynchronize(b->stream));
	free(table);
	free(batch);
}

static void
close_launcher(struct bench *b, struct launcher *l)
{
	bench_free(b, l->flags);
	for (int i = 0; i < 2; i++)
		CHECK(b, cuMemFree(l->batch[i]));
	CHECK(b, cuMemFree(l->table));
	CHECK(b, cuMemFree(l->finished));
	CHECK(b, cuMemFree(l->coef));
	CHECK(b, cuMemFree(l->counts));
	CHECK(b, cuMemFree(l->nothing));
}

/* Frame `first`, or 16 frames from it. */
static void
launch(struct bench *b, struct launcher *l, int many, uint32_t first)
{
	CUdeviceptr_v2 table = l->table +
		((uint64_t)(first / 16) * b->geometry.tiles * GK_BATCH_MAX + first % 16) * 8;
	void *parameters[] = {&l->batch[many], &table, &l->finished};

	CHECK(b,
		cuLaunchKernel(l->count, (uint32_t)b->processors * GK_CUDA_BLOCKS, 1, 1,
			GK_CUDA_THREADS, 1, 1, GK_CUDA_SHARED, b->stream, parameters, NULL));
}

double
launch_count(struct bench *b)
{
	double us[40];
	struct launcher l;
	CUevent from, to;
	float ms;

	open_launcher(b, &l);
	CHECK(b, cuEventCreate(&from, 0));
	CHECK(b, cuEventCreate(&to, 0));
	for (int i = -2; i < 40; i++) {
		CHECK(b, cuEventRecord(from, b->stream));
		for (uint32_t k = 0; k < 16; k++)
			launch(b, &l, 1, k * GK_BATCH_MAX % BENCH_FRAMES);
		CHECK(b, cuEventRecord(to, b->stream));
		CHECK(b, cuStreamSynchronize(b->stream));
		CHECK(b, cuEventElapsedTime(&ms, from, to));
		if (i >= 0)
			us[i] = 1e3 * ms / 256;
	}
	b->cuda->cuEventDestroy(from);
	b->cuda->cuEventDestroy(to);
	close_launcher(b, &l);
	return bench_sort(us, 40);
}

double
stream_latency(struct bench *b, uint64_t shots)
{
	struct timespec from, to;
	struct launcher l;
	double start;

	open_launcher(b, &l);
	/* queue, then ring the doorbell: the latency of an idle stream */
	for (uint64_t i = 0; i < shots; i++) {
		const uint32_t n = (uint32_t)i + 1;

		CHECK(b, cuStreamWaitValue32(b->stream, l.flag, n, 0));
		launch(b, &l, 0, i % BENCH_FRAMES);
		CHECK(b, cuStreamWriteValue32(b->stream, l.flag + 128, n, 0));
		clock_gettime(CLOCK_MONOTONIC, &from);
		__atomic_store_n(&l.flags[0], n, __ATOMIC_RELEASE);
		while (__atomic_load_n(&l.flags[32], __ATOMIC_ACQUIRE) != n)
			;
		clock_gettime(CLOCK_MONOTONIC, &to);
		b->shots[i] = (uint64_t)((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec) -
			(uint64_t)from.tv_nsec;
	}
	/* ring one after the other without waiting */
	start = bench_now();
	for (uint64_t i = 0; i < shots; i++) {
		const uint32_t n = (uint32_t)(shots + i) + 1;

		CHECK(b, cuStreamWaitValue32(b->stream, l.flag, n, 0));
		launch(b, &l, 0, i % BENCH_FRAMES);
		CHECK(b, cuStreamWriteValue32(b->stream, l.flag + 128, n, 0));
		__atomic_store_n(&l.flags[0], n, __ATOMIC_RELEASE);
	}
	CHECK(b, cuStreamSynchronize(b->stream));
	start = (double)shots / (bench_now() - start);
	qsort(b->shots, shots, sizeof(b->shots[0]), compare_shots);
	close_launcher(b, &l);
	return start;
}

/* Declarations of cuSPARSE's generic interface, from its header. @{ */
typedef struct cusparseContext *cusparseHandle;
typedef void *cusparseDescr;
enum {
	CUSPARSE_INDEX_32I = 2,
	CUSPARSE_CUDA_R_32F = 0,
	CUSPARSE_ORDER_ROW = 2
};

struct sparse {
	void *library;
	int (*create)(cusparseHandle *);
	int (*set_stream)(cusparseHandle, CUstream);
	int (*dense)(cusparseDescr *, int64_t, int64_t, int64_t, void *, int, int);
	int (*csr)(cusparseDescr *, int64_t, int64_t, int64_t, void *, void *, void *, int, int,
		int, int);
	int (*size)(cusparseHandle, cusparseDescr, cusparseDescr, int, size_t *);
	int (*analysis)(cusparseHandle, cusparseDescr, cusparseDescr, int, void *);
	int (*convert)(cusparseHandle, cusparseDescr, cusparseDescr, int, void *);
	int (*nnz)(cusparseDescr, int64_t *, int64_t *, int64_t *);
	int (*set)(cusparseDescr, void *, void *, void *);
};
/** @} */

static int
open_sparse(struct sparse *s)
{
	static const struct {
		const char *name;
		size_t offset;
	} symbols[] = {
		{"cusparseCreate", offsetof(struct sparse, create)},
		{"cusparseSetStream", offsetof(struct sparse, set_stream)},
		{"cusparseCreateDnMat", offsetof(struct sparse, dense)},
		{"cusparseCreateCsr", offsetof(struct sparse, csr)},
		{"cusparseDenseToSparse_bufferSize", offsetof(struct sparse, size)},
		{"cusparseDenseToSparse_analysis", offsetof(struct sparse, analysis)},
		{"cusparseDenseToSparse_convert", offsetof(struct sparse, convert)},
		{"cusparseSpMatGetSize", offsetof(struct sparse, nnz)},
		{"cusparseCsrSetPointers", offsetof(struct sparse, set)},
	};

	s->library = dlopen("libcusparse.so.12", RTLD_NOW | RTLD_LOCAL);
	if (s->library == NULL) {
		printf("cuSPARSE: not measured: %s\n", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *function = dlsym(s->library, symbols[i].name);

		if (function == NULL) {
			printf("cuSPARSE: not measured: no %s\n", symbols[i].name);
			return -1;
		}
		memcpy((char *)s + symbols[i].offset, &function, sizeof(function));
	}
	return 0;
}

double
sparse_convert(struct bench *b, uint32_t *nnz_out)
{
	const int64_t cols = b->geometry.cols, rows = (int64_t)b->pixels / cols;
	float *image = malloc(b->pixels * 4), ms;
	CUdeviceptr_v2 dense[8], row_ptr, col, value, buffer = 0;
	cusparseDescr matrix[8], csr;
	cusparseHandle handle;
	struct sparse s;
	int64_t r, c, nnz = 0;
	size_t size = 0;
	CUevent from, to;
	double us[40];

	if (open_sparse(&s) != 0) {
		free(image);
		return 0;
	}
	if (s.create(&handle) != 0 || s.set_stream(handle, b->stream) != 0) {
		printf("cuSPARSE: not measured: cusparseCreate\n");
		free(image);
		return 0;
	}
	/*
	 * 8 images with only the pixels that CSR keeps, others zero: 134 MB, more than the L2 cache
	 */
	for (int i = 0; i < 8; i++) {
		for (uint64_t x = 0; x < b->pixels; x++) {
			const float p = ((float)b->host_raw[i * b->pixels + x] - b->planes[x]) *
				b->planes[b->pixels + x];

			image[x] = p >= 5.0f ? p : 0.0f;
		}
		dense[i] = upload(b, image, b->pixels * 4);
		s.dense(&matrix[i], rows, cols, cols, (void *)(uintptr_t)dense[i],
			CUSPARSE_CUDA_R_32F, CUSPARSE_ORDER_ROW);
	}
	CHECK(b, cuMemAlloc(&row_ptr, (rows + 1) * 4));
	s.csr(&csr, rows, cols, 0, (void *)(uintptr_t)row_ptr, NULL, NULL, CUSPARSE_INDEX_32I,
		CUSPARSE_INDEX_32I, 0, CUSPARSE_CUDA_R_32F);
	s.size(handle, matrix[0], csr, 0, &size);
	CHECK(b, cuMemAlloc(&buffer, size + 256));
	CHECK(b, cuMemAlloc(&col, b->pixels * 4));
	CHECK(b, cuMemAlloc(&value, b->pixels * 4));
	CHECK(b, cuEventCreate(&from, 0));
	CHECK(b, cuEventCreate(&to, 0));
	for (int i = -8; i < 40; i++) {
		const cusparseDescr m = matrix[(i + 8) % 8];
		int ret;

		CHECK(b, cuEventRecord(from, b->stream));
		ret = s.analysis(handle, m, csr, 0, (void *)(uintptr_t)buffer);
		ret |= s.nnz(csr, &r, &c, &nnz);
		ret |= s.set(csr, (void *)(uintptr_t)row_ptr, (void *)(uintptr_t)col,
			(void *)(uintptr_t)value);
		ret |= s.convert(handle, m, csr, 0, (void *)(uintptr_t)buffer);
		CHECK(b, cuEventRecord(to, b->stream));
		CHECK(b, cuStreamSynchronize(b->stream));
		CHECK(b, cuEventElapsedTime(&ms, from, to));
		if (ret != 0) {
			printf("cuSPARSE: not measured: error %d\n", ret);
			return 0;
		}
		if (i >= 0)
			us[i] = 1e3 * ms;
	}
	*nnz_out = (uint32_t)nnz;
	for (int i = 0; i < 8; i++)
		b->cuda->cuMemFree(dense[i]);
	b->cuda->cuMemFree(col);
	b->cuda->cuMemFree(value);
	b->cuda->cuMemFree(buffer);
	b->cuda->cuMemFree(row_ptr);
	free(image);
	return bench_sort(us, 40);
}
