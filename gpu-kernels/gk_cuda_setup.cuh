/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first block of the grid. Its first warp polls the doorbell, the only line of host memory that
 * is polled. The whole block reads descriptors, headers and pointer tables of batches from host
 * memory, checks them, and hands them to gangs in device memory. It also ends the kernel.
 */
#ifndef GK_CUDA_SETUP_CUH
#define GK_CUDA_SETUP_CUH

#include <errno.h>

#include "gk_cuda.h"
#include "gk_cuda_order.cuh"

#define LINE_WORDS \
	16 /* of struct gk_doorbell, gk_frame, gk_params, gk_coef, gk_dark, gk_peak_params */
#define BELL_QUIT (offsetof(struct gk_doorbell, quit) / 4)
#define BELL_BEAT (offsetof(struct gk_doorbell, watchdog) / 4)
/* concurrent loads of a pointer table per thread */
#define TABLE_LOADS 8

struct setup_shared {
	uint32_t bell[LINE_WORDS];
	uint32_t next[GK_GANGS_MAX]; /* batches set up */
	uint32_t failed;	     /* bit mask of gangs that failed */
	uint32_t ended;		     /* bit mask of gangs that were informed of the end */
	uint32_t quit;
	uint32_t killed;
	uint32_t beat; /* last value of bell.watchdog, and the time of its change */
	uint64_t beat_ns;
	/* Versions as last packed. A version that a gang is still packing is waited for. */
	struct gk_coef packed[GK_COEF_MAX];
	uint32_t is_packed[GK_COEF_MAX];
	uint32_t packing[GK_COEF_MAX]; /* gang + 1; 0: none */
	uint32_t packing_batch[GK_COEF_MAX];
	/*
	 * Thresholds determined for the versions. Other thresholds wait until no gang uses these.
	 */
	uint32_t has_thresholds[GK_COEF_MAX];
	uint32_t thresholds_of[GK_COEF_MAX][2];
	uint32_t coef_of[GK_GANGS_MAX][2]; /* version of a gang's batches, by parity */
	uint32_t one_pass;		   /* bit mask of gangs whose last batch is in one pass */
	uint32_t waiting;		   /* gang + 1 for which the others pause; 0: none */
	uint32_t turns;			   /* given to batches */
	/* Data of the batch being set up. */
	GK_ALIGNED(64) struct gk_work work;
	struct gk_params params;
	struct gk_coef coef;
	struct gk_coef coef_to;
	struct gk_dark dark;
	struct gk_peak_params peak;
	uint32_t header[GK_BATCH_MAX][LINE_WORDS]; /* struct gk_frame */
	uint32_t pack;
	uint32_t set_thresholds;
	uint32_t packs; /* a batch before this one still does one of these */
};
GK_STATIC_ASSERT(sizeof(struct setup_shared) <= GK_CUDA_SHARED, "in place of words");

static __device__ __forceinline__ const struct gk_frame *
header_of(const struct setup_shared *s, uint32_t frame)
{
	return (const struct gk_frame *)s->header[frame];
}

/* Load one line. All threads of one or more warps. */
static __device__ __forceinline__ void
load_line(void *to, const void *from, uint32_t thread)
{
	if (thread < LINE_WORDS)
		((uint32_t *)to)[thread] = __ldcg((const uint32_t *)from + thread);
}

/*
 * Poll the doorbell with one warp. Read `quit` before the heads: batches handed over before it was
 * set are seen and processed.
 */
static __device__ void
poll_bell(struct setup_shared *s)
{
	const uint32_t *bell = (const uint32_t *)&args.channel->bell;
	const uint32_t lane = threadIdx.x;
	uint32_t quit = args.once, word = 0;

	if (lane < LINE_WORDS)
		word = load_acquire_sys(bell + lane);
	quit |= __shfl_sync(0xFFFFFFFFu, word, BELL_QUIT);
	if (quit && !s->quit && lane < LINE_WORDS)
		word = load_acquire_sys(bell + lane);
	__syncwarp();
	/* The heads are final with `quit`: from then on only the watchdog word is read. */
	if (lane < LINE_WORDS && (!s->quit || lane >= GK_GANGS_MAX))
		s->bell[lane] = word;
	__syncwarp();
	if (lane == 0)
		s->quit = quit || s->quit;
}

/* One thread: check whether the host has been silent for too long. */
static __device__ void
watch(struct setup_shared *s)
{
	const uint64_t now = now_ns();

	if (args.watchdog_ns == 0)
		return;
	if (s->bell[BELL_BEAT] != s->beat) {
		s->beat = s->bell[BELL_BEAT];
		s->beat_ns = now;
	} else if (now - s->beat_ns > args.watchdog_ns) {
		for (uint32_t i = 0; i < args.gangs; i++)
			store_release_sys(&args.channel->done[i].error, (uint32_t)-ETIMEDOUT);
		store_release(&args.control->killed, 1);
		for (uint32_t i = 0; i < args.gangs; i++)
			store_release(&args.control->gang[i].end, 1);
		s->killed = 1;
	}
}

/* Same checks as gk_work_check(), which has the messages; this has only the result. @{ */
static __device__ bool
bad_pointer(uint64_t address)
{
	return address == 0 || address % 64 != 0;
}

static __device__ bool
bad_coef(const struct gk_coef *c)
{
	bool bad = false;

	for (int g = 0; g < 3; g++)
		bad |= bad_pointer(c->p[g]) || bad_pointer(c->r[g]);
	return bad;
}

static __device__ bool
bad_search(const struct gk_params *params, const struct gk_peak_params *p)
{
	bool bad = params->search > GK_SEARCH_ALL || !args.searches ||
		!(fabsf(p->threshold) < INFINITY) || !(p->min_snr >= 0 && p->min_snr < INFINITY) ||
		p->min_pixels > p->max_pixels || p->bg_radius > GK_PEAK_RADIUS_MAX ||
		p->shells > GK_PEAK_SHELLS_MAX;

	if (bad)
		return true;
	for (uint32_t i = 0; i < p->shells; i++)
		bad |= p->shell[i] >= p->shell[i + 1];
	return bad || params->peaks_shells >> p->shells != 0;
}

/* Kinds that gk_params.chunks may have, in kernels with the stage and in others. */
static __device__ __forceinline__ uint32_t
chunk_kinds(void)
{
#ifdef GK_CUDA_COMPRESS
	return 1u << GK_KIND_RAW | (args.value == GK_VALUE_I16 ? 1u << GK_KIND_IMAGE : 0);
#else
	return 0;
#endif
}

static __device__ bool
bad_params(const struct setup_shared *s)
{
	const struct gk_params *p = &s->params;

	/* no branch between the first two */
	return ((p->kind > GK_KIND_RAW) | ((p->chunks & ~chunk_kinds()) != 0)) ||
		p->strong_threshold != p->strong_threshold ||
		p->csr_threshold != p->csr_threshold || p->nnz_max > args.layout.nnz_cap ||
		(p->search != GK_SEARCH_NONE && bad_search(p, &s->peak));
}

static __device__ bool
bad_dark(const struct setup_shared *s)
{
	return s->work.dark >= GK_DARK_MAX || bad_pointer(s->dark.cells);
}

static __device__ bool
bad_frame(const struct setup_shared *s, uint32_t i)
{
	const struct gk_frame *f = header_of(s, i);

	return s->work.slot[i] >= args.nb_frames ||
		(f->out != GK_NO_OUT && f->out >= args.nb_outputs) ||
		(args.profiles != NULL && f->profile >= args.nb_profiles) ||
		((f->flags & GK_FRAME_TRAILER) ? !args.trailers : (f->flags & GK_FRAME_LEADER)) ||
		((f->flags & GK_FRAME_DARK) && bad_dark(s));
}

static __device__ bool
bad_work(const struct setup_shared *s)
{
	const struct gk_work *w = &s->work;

	if (w->op == GK_OP_FRAMES)
		return w->nb_frames == 0 || w->nb_frames > GK_BATCH_MAX ||
			w->params >= GK_PARAMS_MAX || bad_params(s) || w->coef >= GK_COEF_MAX ||
			bad_coef(&s->coef);
	if ((w->op != GK_OP_UPDATE && w->op != GK_OP_CLEAR) || w->nb_frames != 0 || bad_dark(s))
		return true;
	if (w->op == GK_OP_CLEAR)
		return false;
	return w->params >= GK_PARAMS_MAX || s->params.dark_min == 0 ||
		!(s->params.dark_alpha > 0 && s->params.dark_alpha <= 1) ||
		w->coef >= GK_COEF_MAX || bad_coef(&s->coef) || w->coef_to >= GK_COEF_MAX ||
		bad_coef(&s->coef_to) || s->coef.p[0] == s->coef_to.p[0];
}
/** @} */

/*
 * Read everything that a descriptor refers to in one round trip. Invalid indices are replaced by
 * valid ones.
 * @return OR of the packet addresses read by the thread, because copies trap on set low bits
 */
static __device__ uint64_t
load_batch(struct setup_shared *s, uint64_t *table)
{
	const struct gk_channel *c = args.channel;
	const struct gk_work *w = &s->work;
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t n = w->op == GK_OP_FRAMES ? min(w->nb_frames, (uint32_t)GK_BATCH_MAX) : 0;
	const uint32_t pairs = (args.geometry.tiles + 1) / 2;
	uint64_t addresses = 0;

	if (warp == 0) {
		load_line(&s->params, &c->params[w->params % GK_PARAMS_MAX], lane);
		load_line(&s->coef, &c->coef[w->coef % GK_COEF_MAX], lane);
		load_line(&s->coef_to, &c->coef[w->coef_to % GK_COEF_MAX], lane);
		load_line(&s->dark, &c->dark[w->dark % GK_DARK_MAX], lane);
		load_line(&s->peak, &c->peak[w->params % GK_PARAMS_MAX], lane);
	}
	for (uint32_t f = warp; f < n; f += GK_CUDA_WARPS)
		if (w->slot[f] < args.nb_frames)
			load_line(s->header[f], args.frames + w->slot[f] * args.frame_stride, lane);
	/* pointer tables: 16 bytes per load, into rows by tile */
	for (uint32_t first = threadIdx.x; first < n * pairs;
		first += TABLE_LOADS * GK_CUDA_THREADS) {
		ulonglong2 v[TABLE_LOADS];

#pragma unroll
		for (int k = 0; k < TABLE_LOADS; k++) {
			const uint32_t i = first + k * GK_CUDA_THREADS, f = i / pairs;
			const uint32_t slot = f < n ? w->slot[f] : args.nb_frames;
			const struct gk_frame *frame =
				(const struct gk_frame *)(args.frames + slot * args.frame_stride);

			v[k] = make_ulonglong2(0, 0);
			if (slot < args.nb_frames)
				v[k] = __ldcg((const ulonglong2 *)frame->packet + i % pairs);
		}
#pragma unroll
		for (int k = 0; k < TABLE_LOADS; k++) {
			const uint32_t i = first + k * GK_CUDA_THREADS, f = i / pairs;
			const uint32_t tile = i % pairs * 2;

			if (f >= n)
				continue;
			__stcg((unsigned long long *)table + (uint64_t)tile * GK_BATCH_MAX + f,
				v[k].x);
			addresses |= v[k].x;
			if (tile + 1 >= args.geometry.tiles)
				continue;
			__stcg((unsigned long long *)table + (uint64_t)(tile + 1) * GK_BATCH_MAX +
					f,
				v[k].y);
			addresses |= v[k].y;
		}
	}
	return addresses;
}

/* Whether every frame is a hit. */
static __device__ bool
all_hit(const struct gk_params *p)
{
	return p->strong_min == 0 && p->strong_max == UINT32_MAX && p->search == GK_SEARCH_NONE;
}

/* Whether a frame is certain to be kept. */
static __device__ bool
is_certain_to_be_kept(const struct gk_frame *f, const struct gk_params *p)
{
	return f->out != GK_NO_OUT && (all_hit(p) || (f->flags & GK_FRAME_KEEP));
}

/*
 * Output kind of a frame that is certain before counting, and is written by the thread that counts
 * its pixels; otherwise NONE.
 */
static __device__ uint32_t
certain_kind(const struct gk_frame *f, const struct gk_params *p)
{
	const bool hit = all_hit(p);

	if (!is_certain_to_be_kept(f, p))
		return GK_KIND_NONE;
	/* chunks are made of whole blocks */
	if (p->kind <= GK_KIND_RAW && ((p->chunks & chunk_kinds()) >> p->kind & 1) != 0)
		return GK_KIND_NONE;
	if (!hit && (f->flags & GK_FRAME_KIND_RAW)) /* raw if it is rejected */
		return p->kind == GK_KIND_RAW ? GK_KIND_RAW : GK_KIND_NONE;
	return p->kind == GK_KIND_CSR ? GK_KIND_NONE : p->kind;
}

/*
 * Whether the frames of a batch may be counted and compressed in one pass, if all are certain to be
 * kept: they are raw chunks, whose blocks are 8 KiB of a packet, packets are in host memory, and
 * nothing else reads the words. Warps use the coefficients of any chunk, which must be complete.
 */
static __device__ bool
may_be_one_pass(const struct setup_shared *s)
{
	const struct gk_params *p = &s->params;

	return p->kind == GK_KIND_RAW && (p->chunks & chunk_kinds()) >> GK_KIND_RAW != 0 &&
		p->search == GK_SEARCH_NONE && args.staged && args.profiles == NULL &&
		args.geometry.cols % GK_CUDA_CHUNK == 0 && args.tile_blocks.by != 0 && !s->pack &&
		!s->set_thresholds && !s->packs;
}

static __device__ bool
same_coef(const struct gk_coef *x, const struct gk_coef *y, bool but_p0)
{
	bool same = but_p0 || (x->version == y->version && x->p[0] == y->p[0]);

	for (int g = 0; g < 3; g++)
		same &= x->r[g] == y->r[g] && (g == 0 || x->p[g] == y->p[g]);
	return same;
}

/* Return true if a batch of another gang in flight uses this version. */
static __device__ bool
in_use(const struct setup_shared *s, uint32_t gang, uint32_t coef)
{
	for (uint32_t i = 0; i < args.gangs; i++) {
		const uint32_t done = load_acquire(&args.control->gang[i].done);

		for (uint32_t batch = done; i != gang && batch != s->next[i]; batch++)
			if (s->coef_of[i][batch & 1] == coef)
				return true;
	}
	return false;
}

/* One thread: record that this gang's next batch writes the version. */
static __device__ void
claim_coef(struct setup_shared *s, uint32_t gang, uint32_t coef, const struct gk_coef *planes)
{
	s->is_packed[coef] = 1;
	s->packed[coef] = *planes;
	s->packing[coef] = gang + 1;
	s->packing_batch[coef] = s->next[gang];
}

/*
 * One thread: check whether the gang must read the coefficients from their planes, or determine
 * thresholds.
 * @return false: other gangs do this now, or use them; retry later
 */
static __device__ bool
choose_coef(struct setup_shared *s, uint32_t gang)
{
	const uint32_t i = s->work.coef, by = s->packing[i];
	const uint32_t bragg = __float_as_uint(s->params.strong_threshold);
	const uint32_t csr = __float_as_uint(s->params.csr_threshold);

	/* in one pass, blocks of the gang use all coefficients without a barrier */
	const bool busy = (s->one_pass >> gang & 1) &&
		load_acquire(&args.control->gang[gang].done) != s->next[gang];

	s->pack = s->set_thresholds = s->packs = 0;
	if (s->work.op == GK_OP_CLEAR)
		return true;
	if (by != 0) {
		const uint32_t done = load_acquire(&args.control->gang[by - 1].done);

		s->packs = (int32_t)(done - s->packing_batch[i]) <= 0;
		if (!s->packs)
			s->packing[i] = 0;
		else if (by != gang + 1)
			return false;
	}
	s->pack = !s->is_packed[i] || !same_coef(&s->packed[i], &s->coef, false);
	if (s->work.op == GK_OP_UPDATE) {
		if (s->pack && busy)
			return false;
		if (s->pack)
			s->has_thresholds[i] = 0;
		s->has_thresholds[s->work.coef_to] = 0;
		claim_coef(s, gang, s->work.coef_to, &s->coef_to);
	} else {
		s->set_thresholds = s->pack || !s->has_thresholds[i] ||
			s->thresholds_of[i][0] != bragg || s->thresholds_of[i][1] != csr;
		if (s->set_thresholds && in_use(s, gang, i)) {
			s->waiting = gang + 1;
			return false;
		}
		if (s->set_thresholds && busy)
			return false;
		s->waiting = 0;
		s->has_thresholds[i] = 1;
		s->thresholds_of[i][0] = bragg;
		s->thresholds_of[i][1] = csr;
	}
	if (s->pack || s->set_thresholds)
		claim_coef(s, gang, i, &s->coef);
	return true;
}

/* All threads: write the batch for the blocks of the gang. */
static __device__ void
write_batch(struct setup_shared *s, struct gk_cuda_batch *b, struct gk_cuda_trailers *trailers,
	struct gk_peak_params *peak, uint64_t *profile)
{
	const uint32_t f = threadIdx.x;
	const uint32_t n = s->work.op == GK_OP_FRAMES ? s->work.nb_frames : 0;
	uint32_t kind = f < n ? certain_kind(header_of(s, f), &s->params) : GK_KIND_NONE;
	uint32_t dark, direct, with;
	bool one_pass;

	if (threadIdx.x >= 32)
		return;
	dark = __ballot_sync(0xFFFFFFFFu, f < n && (header_of(s, f)->flags & GK_FRAME_DARK));
	with = __ballot_sync(0xFFFFFFFFu, f < n && (header_of(s, f)->flags & GK_FRAME_TRAILER));
	/* frames that are read from copies are not written while they are counted */
	kind = with == 0 ? kind : GK_KIND_NONE;
	direct = __ballot_sync(0xFFFFFFFFu, kind != GK_KIND_NONE);
	one_pass = n > 0 && (dark | with) == 0 && may_be_one_pass(s) &&
		__all_sync(
			0xFFFFFFFFu, f >= n || is_certain_to_be_kept(header_of(s, f), &s->params));
	if (f < n) {
		const struct gk_frame *frame = header_of(s, f);
		const uint64_t slot = s->work.slot[f];

		b->frame[f].number = frame->frame;
		b->frame[f].out = frame->out == GK_NO_OUT
			? 0
			: (uint64_t)(args.outputs + frame->out * args.layout.stride);
		b->frame[f].result = (uint64_t)(args.results + slot);
		b->frame[f].flags = frame->flags;
		b->frame[f].direct = kind;
		b->sums[f].sum = b->sums[f].strong_nnz = b->sums[f].saturated_invalid = 0;
		trailers->number[f] = frame->trailer;
		trailers->map[f] = (uint64_t)(args.frames + slot * args.frame_stride + args.map_at);
		trailers->lost[f] = 0;
		profile[f] = (uint64_t)(args.profiles + frame->profile * args.profile_stride);
	}
	if (f < LINE_WORDS) {
		((uint32_t *)&b->params)[f] = ((const uint32_t *)&s->params)[f];
		((uint32_t *)&b->plane)[f] = ((const uint32_t *)&s->coef)[f];
		((uint32_t *)&b->plane_to)[f] = ((const uint32_t *)&s->coef_to)[f];
		((uint32_t *)peak)[f] = ((const uint32_t *)&s->peak)[f];
	}
	if (f == 0) {
		b->op = s->work.op;
		b->nb_frames = n;
		b->dark = dark;
		b->direct = direct;
		b->coef = s->work.coef;
		b->coef_to = s->work.coef_to;
		b->pack = s->pack;
		b->set_thresholds = s->set_thresholds;
		b->trailers = with;
		b->turn = n > 0 && args.readers > 0 && s->params.chunks != 0 && !one_pass
			? ++s->turns
			: 0;
		b->one_pass = one_pass;
		b->share = same_coef(&s->coef, &s->coef_to, true);
		b->cells = s->dark.cells;
		b->update = (uint64_t)&args.channel->update[s->work.dark % GK_DARK_MAX];
		b->samples = b->drift = b->updated = 0;
	}
}

/* All threads: set up the next batch of a gang. */
static __device__ void
set_up(struct setup_shared *s, uint32_t gang)
{
	struct gk_cuda_gang *g = &args.control->gang[gang];
	const uint32_t batch = s->next[gang], place = args.first[gang] + batch;
	const struct gk_work *work = &args.channel->work[gang][place % GK_RING_SIZE];
	uint64_t *table = args.tables +
		((uint64_t)gang * 2 + (batch & 1)) * args.geometry.tiles * GK_BATCH_MAX;
	bool bad = false, now = true;
	uint64_t addresses;

	if (threadIdx.x < sizeof(*work) / 4)
		((uint32_t *)&s->work)[threadIdx.x] = __ldcg((const uint32_t *)work + threadIdx.x);
	__syncthreads();
	addresses = load_batch(s, table);
	__syncthreads();
	if (threadIdx.x == 0)
		bad = bad_work(s);
	else if (s->work.op == GK_OP_FRAMES && threadIdx.x <= GK_BATCH_MAX)
		bad = threadIdx.x <= s->work.nb_frames && bad_frame(s, threadIdx.x - 1);
	bad |= addresses % GK_PACKET_ALIGN != 0;
	if (__syncthreads_or(bad)) {
		if (threadIdx.x == 0) {
			store_release_sys(&args.channel->done[gang].error, (uint32_t)-EINVAL);
			s->failed |= 1u << gang;
		}
		__syncthreads();
		return;
	}
	if (threadIdx.x == 0)
		now = choose_coef(s, gang);
	if (!__syncthreads_and(now))
		return;
	if (s->work.op == GK_OP_FRAMES && s->params.chunks != 0)
		compress_prepare((uint64_t)gang * 2 + (batch & 1), s->work.nb_frames);
	write_batch(s, &g->batch[batch & 1], &g->trailers[batch & 1], &g->peak[batch & 1],
		g->profile[batch & 1]);
	__syncthreads();
	if (threadIdx.x == 0) {
		s->coef_of[gang][batch & 1] =
			s->work.op == GK_OP_FRAMES ? s->work.coef : GK_COEF_MAX;
		s->next[gang] = batch + 1;
		s->one_pass &= ~(1u << gang);
		s->one_pass |= g->batch[batch & 1].one_pass << gang;
		store_release(&g->ready, batch + 1);
	}
	__syncthreads();
}

/* One thread: inform a gang that no more batches follow. @return true if all are informed */
static __device__ bool
end_gang(struct setup_shared *s, uint32_t gang)
{
	const bool all = s->bell[gang] == args.first[gang] + s->next[gang];

	if (s->quit && !(s->ended >> gang & 1) && (all || (s->failed >> gang & 1))) {
		store_release(&args.control->gang[gang].end, 1);
		s->ended |= 1u << gang;
	}
	return s->ended == (1u << args.gangs) - 1;
}

static __device__ __noinline__ void
dispatch(void)
{
	extern __shared__ uint4 shared_area[];
	struct setup_shared *s = (struct setup_shared *)shared_area;

	if (threadIdx.x < GK_GANGS_MAX)
		s->next[threadIdx.x] = 0;
	if (threadIdx.x < GK_COEF_MAX)
		s->is_packed[threadIdx.x] = s->packing[threadIdx.x] =
			s->has_thresholds[threadIdx.x] = 0;
	if (threadIdx.x == 0) {
		s->failed = s->ended = s->quit = s->killed = s->waiting = s->turns = s->one_pass =
			0;
		s->beat = 0;
		s->beat_ns = now_ns();
	}
	__syncthreads();
	for (;;) {
		bool ended = false;

		if (threadIdx.x < 32)
			poll_bell(s);
		if (threadIdx.x == 0)
			watch(s);
		__syncthreads();
		if (s->killed)
			return;
		for (uint32_t i = 0; i < args.gangs; i++) {
			bool free = false;

			if (threadIdx.x == 0)
				free = s->bell[i] != args.first[i] + s->next[i] &&
					!(s->failed >> i & 1) &&
					(s->waiting == 0 || s->waiting == i + 1) &&
					s->next[i] - load_acquire(&args.control->gang[i].done) < 2;
			if (__syncthreads_or(free))
				set_up(s, i);
			if (threadIdx.x == 0)
				ended = end_gang(s, i);
		}
		if (__syncthreads_or(ended))
			return;
	}
}

#endif /* GK_CUDA_SETUP_CUH */
