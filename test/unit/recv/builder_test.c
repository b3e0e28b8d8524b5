/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the builder with a real frame table; the test itself plays the gangs and egress. */

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "frame_rig.h"

#include <rte_mempool.h>

#include "builder/builder.h"
#include "builder/command.h"

#define SLOTS	 24
#define GANGS	 3
#define OUTPUTS	 16
#define PACKETS	 128
#define NB_MBUFS 4095

static struct rte_mempool *pool;
static struct detector d;
static struct frame_table_config table_config;
static struct frame_table *ft;
static struct builder_config config;
static struct builder_command run;
static struct builder *b;
static struct gk_channel *channel;
static struct gk_result results[SLOTS];
static struct gk_details details[SLOTS];
static struct frame_record *out[BUILDER_RECORDS * 2];
static uint32_t nb_out;
static enum gk_kind kept_as; /* format in which the test's gangs keep a frame */
/* frames whose profiles the test's gangs have written, and areas that records have @{ */
#define AREAS (SLOTS + BUILDER_RECORDS)
static uint64_t areas[AREAS];
static bool area_held[AREAS];
/** @} */
static uint32_t dark_to_gangs; /* number of dark frames that gangs were to accumulate */

static int
setup(void **state)
{
	rig_config(&table_config, &d, 1, 1);
	table_config.slots = SLOTS;
	table_config.no_run = true;
	run = (struct builder_command){
		.order = BUILDER_BEGIN,
		.run = {.first_known = true, .first_frame = 1},
		.veto.params.version = 41,
	};
	channel = rte_zmalloc("channel", sizeof(*channel), 64);
	channel->coef[0].version = 51;
	memset(results, 0xEE, sizeof(results));
	config = (struct builder_config){
		.channel = channel,
		.results = results,
		.gangs = GANGS,
		.batch = 2,
		.outputs = OUTPUTS,
		.egress = rte_ring_create("egress", BUILDER_RECORDS * 2, SOCKET_ID_ANY,
			RING_F_SP_ENQ | RING_F_SC_DEQ),
		.returned = rte_ring_create("returned", BUILDER_RECORDS * 2, SOCKET_ID_ANY,
			RING_F_SP_ENQ | RING_F_SC_DEQ),
		.socket = SOCKET_ID_ANY,
	};
	assert_true(channel != NULL && config.egress != NULL && config.returned != NULL);
	nb_out = 0;
	dark_to_gangs = 0;
	kept_as = GK_KIND_CSR;
	ft = NULL;
	b = NULL;
	return 0;
}

/** All mbufs must be freed after each test. */
static int
teardown(void **state)
{
	builder_destroy(b);
	if (ft != NULL)
		rig_table_free(ft);
	rte_ring_free(config.egress);
	rte_ring_free(config.returned);
	rte_free(channel);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	return 0;
}

/** Poll the builder, and let the RX lcores pass quiescent states and free mbufs. */
static void
poll(uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		ft->builder->looked_at = 0;
		builder_poll(b);
		rig_quiescent(ft);
		frame_rx_reclaim(ft, &ft->rx[0], UINT32_MAX);
	}
}

static void
begin(void)
{
	ft = rig_table(&table_config);
	config.table = ft;
	b = builder_create(&config);
	assert_non_null(b);
	assert_true(builder_is_idle(b));
	assert_int_equal(builder_post(b, &run), 0);
	assert_int_equal(builder_result(b, NULL), -EINPROGRESS);
	poll(1);
	assert_int_equal(builder_result(b, NULL), 0);
	poll(5);
	assert_int_equal(ft->window.state, FRAME_WINDOW_OPEN);
}

/** Send packets [from, to) of a stream and frame. */
static void
send_stream(uint32_t stream, uint64_t frame, uint32_t from, uint32_t to)
{
	uint8_t header[RIG_HEADER_BYTES];

	for (uint32_t p = from; p < to; p++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

		assert_non_null(m);
		rig_header(header, frame, p);
		rig_put(header + 24, frame * 20, 8);
		rig_put(header + 8, 77, 4);
		rig_put(header + 40, 0x80000021, 4);
		assert_int_equal(frame_rx_place(ft, &ft->rx[0], stream, frame, p, header,
					 (uintptr_t)m->buf_addr, m),
			FRAME_PLACED);
	}
}

/** The same for stream 0. */
static void
send_packets(uint64_t frame, uint32_t from, uint32_t to)
{
	send_stream(0, frame, from, to);
}

/** Send the complete frames [from, to); all are closed before the builder dispatches any. */
static void
send_frames(uint64_t from, uint64_t to)
{
	for (uint64_t f = from; f < to; f++)
		send_packets(f, 0, PACKETS);
}

/** Number of batches that a gang has not finished. */
static uint32_t
gang_has(uint32_t gang)
{
	return channel->bell.head[gang] - channel->done[gang].done;
}

static const struct gk_work *
gang_work(uint32_t gang, uint32_t batch)
{
	return &channel->work[gang][batch % GK_RING_SIZE];
}

/** Release the packets of the gang's next batch. */
static void
gang_raw(uint32_t gang)
{
	assert_int_not_equal(channel->bell.head[gang], channel->done[gang].raw);
	channel->done[gang].raw++;
}

/** The verdict of the test's gangs: every third frame is a hit. */
static bool
is_hit(uint64_t frame)
{
	return frame % 3 == 0;
}

/** Gangs of a builder with shells search every second frame. */
static bool
is_searched(uint64_t frame)
{
	return config.details != NULL && frame % 2 == 0;
}

/** Finish the gang's next batch. */
static void
gang_finish(uint32_t gang)
{
	const struct gk_work *w = gang_work(gang, channel->done[gang].done);

	assert_true(gang_has(gang) > 0);
	if (w->op == GK_OP_FRAMES)
		assert_in_range(w->nb_frames, 1, config.batch);
	for (uint32_t i = 0; i < w->nb_frames; i++) {
		const struct gk_frame *f = frame_table_frame(ft, w->slot[i]);
		const bool hit = is_hit(f->frame), keep = hit || (f->flags & GK_FRAME_KEEP) != 0;

		assert_in_range(f->out, 0, OUTPUTS - 1);
		if (config.profiles > 0) {
			assert_in_range(f->profile, 0, AREAS - 1);
			assert_false(area_held[f->profile]);
			areas[f->profile] = f->frame;
		}
		dark_to_gangs += (f->flags & GK_FRAME_DARK) != 0;
		results[w->slot[i]] = (struct gk_result){
			.frame = f->frame,
			.sum = f->frame * 256 + 128,
			.verdict = hit ? GK_VERDICT_HIT : GK_VERDICT_REJECT,
			.kind = !keep					      ? GK_KIND_NONE
				: !hit && (f->flags & GK_FRAME_KIND_RAW) != 0 ? GK_KIND_RAW
									      : kept_as,
			.strong_count = f->frame + 1,
			.saturated = f->frame + 2,
			.invalid = f->frame + 3,
			.nnz = f->frame + 4,
			.params = 42,
			.coef = 52,
			.peaks = is_searched(f->frame) ? f->frame + 5 : 0,
			.peaks_found = is_searched(f->frame) ? f->frame + 6 : GK_NOT_SEARCHED,
		};
		details[w->slot[i]] =
			(struct gk_details){.shell_peaks = {f->frame + 7, f->frame + 8, 9},
				.chunk_bytes = f->frame + 10};
	}
	if (channel->done[gang].raw == channel->done[gang].done)
		gang_raw(gang);
	__atomic_store_n(&channel->done[gang].done, channel->done[gang].done + 1, __ATOMIC_RELEASE);
}

static void
gangs_finish_all(void)
{
	bool any = true;

	while (any) {
		any = false;
		poll(3);
		for (uint32_t g = 0; g < config.gangs; g++)
			for (; gang_has(g) > 0; any = true)
				gang_finish(g);
	}
	poll(2);
}

/** Dequeue all records for egress into `out`. @return how many */
static uint32_t
egress(void)
{
	const uint32_t before = nb_out;

	while (rte_ring_dequeue(config.egress, (void **)&out[nb_out]) == 0)
		nb_out++;
	return nb_out - before;
}

static void
give_back_all(void)
{
	for (uint32_t i = 0; i < nb_out; i++)
		assert_int_equal(rte_ring_enqueue(config.returned, out[i]), 0);
	nb_out = 0;
}

static void
stop(void)
{
	assert_int_equal(builder_post(b, &(struct builder_command){.order = BUILDER_END}), 0);
	ft->config.stall_cycles = 0; /* missing packets will not arrive */
}

/** End the run as the service thread does. */
static void
finish(void)
{
	stop();
	for (int i = 0; i < 100 && !builder_is_idle(b); i++) {
		gangs_finish_all();
		egress();
		give_back_all();
		poll(3);
	}
	assert_true(builder_is_idle(b));
	assert_int_equal(ft->builder->nb_free, SLOTS);
}

static void
bad_numbers_are_refused(void **state)
{
	struct builder_config c;

	ft = rig_table(&table_config);
	config.table = ft;
	for (int i = 0; i < 5; i++) {
		c = config;
		if (i == 0)
			c.gangs = 0;
		else if (i == 1)
			c.gangs = GK_GANGS_MAX + 1;
		else if (i == 2)
			c.batch = 0;
		else if (i == 3)
			c.batch = GK_BATCH_MAX + 1;
		else
			c.outputs = 0;
		rte_errno = 0;
		assert_null(builder_create(&c));
		assert_int_equal(rte_errno, EINVAL);
	}
}

/* Gangs finish in any order; egress receives the frames in ascending order. */
static void
retires_in_frame_order(void **state)
{
	begin();
	send_frames(1, 13);
	poll(1);
	for (uint32_t g = 0; g < GANGS; g++)
		assert_int_equal(gang_has(g), BUILDER_GANG_DEPTH);
	assert_int_equal(builder_stats(b).batches, 6);
	/* gang 2 has frames 5 and 6, 11 and 12; gang 1 has 3, 4, 9, 10; gang 0 has 1, 2, 7, 8 */
	gang_finish(2);
	gang_finish(2);
	gang_finish(1);
	poll(3);
	assert_int_equal(egress(), 0);
	gang_finish(0);
	poll(3);
	assert_int_equal(egress(), 6);
	gang_finish(1);
	poll(3);
	assert_int_equal(egress(), 0);
	gang_finish(0);
	poll(3);
	assert_int_equal(egress(), 6);
	for (uint32_t i = 0; i < 12; i++) {
		assert_int_equal(out[i]->frame, i + 1);
		assert_int_equal(out[i]->verdict, is_hit(i + 1) ? FRAME_HIT : FRAME_VETOED);
		assert_int_equal(out[i]->kind, is_hit(i + 1) ? GK_KIND_CSR : GK_KIND_NONE);
		assert_int_equal(out[i]->out == GK_NO_OUT, !is_hit(i + 1));
	}
	finish();
}

static void
record_of_a_frame(void **state)
{
	const struct frame_record *r;

	begin();
	send_frames(1, 4);
	gangs_finish_all();
	assert_int_equal(egress(), 3);
	r = out[2];
	assert_int_equal(r->frame, 3);
	assert_int_equal(r->bunch_id, 3 ^ 0xB0B0);
	assert_int_equal(r->detector_time, 60);
	assert_int_equal(r->exposure, 77);
	assert_int_equal(r->detector_status, 0x80000021);
	assert_true(r->sum == 3.5);
	assert_int_equal(r->strong_count, 4);
	assert_int_equal(r->saturated, 5);
	assert_int_equal(r->invalid, 6);
	assert_int_equal(r->nnz, 7);
	assert_int_equal(r->veto_version, 42);
	assert_int_equal(r->pedestal_version, 52);
	assert_int_equal(r->flags, 0);
	assert_int_equal(r->missing[0], 0);
	/* time() may lag by some milliseconds, and so show the second before */
	assert_in_range(time(NULL) + 1 - r->receive_time / 1000000000, 0, 61);
	for (uint32_t i = 0; i < sizeof(r->missing_map); i++)
		assert_int_equal(r->missing_map[i], 0);
	finish();
}

/* Records of searched frames have their numbers of peaks; gangs find the options in the channel. */
static void
peaks_in_records(void **state)
{
	config.details = details;
	run.veto.peak = (struct gk_peak_params){.threshold = 12, .shells = 2, .shell = {1, 2, 3}};
	begin();
	send_frames(1, 5);
	gangs_finish_all();
	assert_int_equal(egress(), 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct frame_record *r = out[i];

		assert_int_equal(r->frame, i + 1);
		if (r->frame % 2 != 0) {
			assert_int_equal(r->peaks, FRAME_NO_SEARCH);
			assert_int_equal(r->shells, 0);
			continue;
		}
		assert_int_equal(r->peaks, r->frame + 5);
		assert_int_equal(r->shells, 2);
		assert_int_equal(r->shell_peaks[0], r->frame + 7);
		assert_int_equal(r->shell_peaks[1], r->frame + 8);
	}
	assert_memory_equal(
		&channel->peak[gang_work(0, 0)->params], &run.veto.peak, sizeof(run.veto.peak));
	give_back_all();
	finish();
}

/*
 * Records of kept frames have the size of the chunk. Gangs that make no chunks are not asked for
 * any.
 */
static void
chunks_in_records(void **state)
{
	config.details = details;
	run.veto.params.chunks = 1u << GK_KIND_RAW | 1u << GK_KIND_IMAGE;
	for (uint32_t round = 0; round < 2; round++) {
		config.chunks = round == 1 ? 1u << GK_KIND_RAW : 0;
		begin();
		send_frames(1, 5);
		gangs_finish_all();
		assert_int_equal(channel->params[gang_work(0, 0)->params].chunks,
			round == 1 ? 1u << GK_KIND_RAW : 0);
		assert_int_equal(egress(), 4);
		for (uint32_t i = 0; i < 4; i++)
			assert_int_equal(out[i]->chunk_bytes,
				round == 1 && out[i]->kind != GK_KIND_NONE ? out[i]->frame + 10
									   : 0);
		give_back_all();
		finish();
	}
}

/*
 * Each frame that gangs process has a profile, whose area no other frame in flight has. The writer
 * holds records while slots are used again.
 */
static void
profiles_belong_to_records(void **state)
{
	config.profiles = AREAS;
	begin();
	for (uint32_t round = 0; round < 3 * SLOTS; round++) {
		send_frames(4 * round + 1, 4 * round + 5);
		gangs_finish_all();
		assert_int_equal(egress(), 4);
		for (uint32_t i = nb_out - 4; i < nb_out; i++) {
			assert_in_range(out[i]->profile, 0, AREAS - 1);
			assert_int_equal(areas[out[i]->profile], out[i]->frame);
			area_held[out[i]->profile] = true;
		}
		if (round % 2 == 0)
			continue;
		memset(area_held, 0, sizeof(area_held));
		give_back_all();
	}
	finish();
}

/* A full image gets the flag DENSE only if CSR was configured, for each run separately. */
static void
dense_instead_of_csr(void **state)
{
	const uint8_t kinds[] = {GK_KIND_IMAGE, GK_KIND_CSR, GK_KIND_IMAGE};

	kept_as = GK_KIND_IMAGE;
	for (unsigned int i = 0; i < RTE_DIM(kinds); i++) {
		run.veto.params.kind = kinds[i];
		if (i == 0) {
			begin();
		} else {
			assert_int_equal(builder_post(b, &run), 0);
			poll(5);
		}
		send_frames(1, 4);
		gangs_finish_all();
		assert_int_equal(egress(), 3);
		assert_int_equal(out[2]->verdict, FRAME_HIT);
		assert_int_equal(out[2]->flags, kinds[i] == GK_KIND_CSR ? FRAME_FLAG_DENSE : 0);
		finish();
		ft->config.stall_cycles = table_config.stall_cycles;
	}
}

/*
 * While a second run searches its first frame, a change of thresholds is not deferred by frame
 * numbers of the first run.
 */
static void
thresholds_of_a_second_run(void **state)
{
	struct builder_command veto = {.order = BUILDER_VETO, .veto.params.version = 43};
	uint64_t effective = 1;

	begin();
	assert_int_equal(builder_stats(b).first_frame, 0);
	send_frames(1, 4);
	gangs_finish_all();
	finish();
	assert_int_equal(builder_stats(b).last_frame, 3);
	run.run = (struct frame_run){0};
	assert_int_equal(builder_post(b, &run), 0);
	poll(5);
	assert_int_equal(builder_result(b, NULL), 0);
	assert_int_equal(builder_stats(b).last_frame, 0);
	assert_int_equal(builder_post(b, &veto), 0);
	poll(1);
	assert_int_equal(builder_result(b, &effective), 0);
	assert_int_equal(effective, 0);
	finish();
}

/* A gang releases packets before it finishes: mbufs are freed, frame and record are not. */
static void
packets_go_back_first(void **state)
{
	begin();
	send_frames(1, 3);
	poll(1);
	assert_int_equal(rte_mempool_in_use_count(pool), 2 * PACKETS);
	gang_raw(0);
	poll(3);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	assert_int_equal(egress(), 0);
	assert_int_equal(ft->builder->nb_free, 0); /* 22 frames are open ahead, the gang has 2 */
	gang_finish(0);
	poll(3);
	assert_int_equal(egress(), 2);
	finish();
}

/*
 * A gang reports a batch as done at the moment at which it releases the packets: the slot is not
 * recycled before the packets were given back.
 */
static void
done_before_packets(void **state)
{
	begin();
	send_frames(1, 3);
	poll(1);
	assert_int_equal(gang_has(0), 1);
	/* the builder has read the first of the two words before the gang wrote it */
	gang_finish(0);
	channel->done[0].raw--;
	poll(3);
	assert_int_equal(egress(), 0);
	assert_int_equal(ft->builder->recycled_end, 0);
	assert_int_equal(rte_mempool_in_use_count(pool), 2 * PACKETS);
	channel->done[0].raw++;
	poll(3);
	assert_int_equal(egress(), 2);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
	finish();
}

/*
 * A slot is opened again only after the RX lcore has freed its mbufs: it holds the pointers to
 * them.
 */
static void
recycled_when_mbufs_are_freed(void **state)
{
	uint64_t open;

	begin();
	send_frames(1, 3);
	poll(1);
	gang_finish(0);
	open = ft->builder->next_open;
	for (unsigned int i = 0; i < 10; i++) {
		ft->builder->looked_at = 0;
		builder_poll(b);
		rig_quiescent(ft);
	}
	assert_int_equal(egress(), 2);
	assert_int_equal(ft->builder->next_open, open);
	assert_int_equal(ft->builder->nb_free, 0);
	/* all mbufs of one of the two frames, and a part of the other's */
	frame_rx_reclaim(ft, &ft->rx[0], PACKETS + 1);
	builder_poll(b);
	assert_int_equal(ft->builder->next_open, open + 1);
	poll(3);
	assert_int_equal(ft->builder->next_open, open + 2);
	finish();
}

/* The pages to which the last packet of frame 1 is recorded. */
static struct {
	uint8_t *page[2];
	unsigned int writes;
	bool early; /* the frame was reported complete before the write */
} guard;

static void
guard_write(int number, siginfo_t *info, void *context)
{
	const uint8_t *at = info->si_addr;

	for (unsigned int i = 0; i < 2; i++) {
		if (at < guard.page[i] || at >= guard.page[i] + 4096)
			continue;
		guard.early |= ft->rx[0].done[1 & ft->entry_mask] == 1 + 1;
		guard.writes++;
		mprotect(guard.page[i], 4096, PROT_READ | PROT_WRITE);
		return;
	}
	signal(SIGSEGV, SIG_DFL);
}

static uint8_t *
page_of(const void *at)
{
	return (uint8_t *)((uintptr_t)at & ~UINT64_C(4095));
}

/* A frame is reported complete only after its last packet was recorded. */
static void
complete_when_written_down(void **state)
{
	const struct sigaction action = {.sa_sigaction = guard_write, .sa_flags = SA_SIGINFO};
	const uint32_t last = PACKETS - 1;
	struct sigaction before;
	uint32_t slot;

	begin();
	send_packets(1, 0, last);
	poll(10);
	assert_int_equal(builder_stats(b).closed, 0);
	slot = ft->builder->slot_of[1 & ft->entry_mask];
	memset(&guard, 0, sizeof(guard));
	guard.page[0] = page_of(&frame_table_mbufs(ft, slot)[last]);
	guard.page[1] = page_of(&frame_table_frame(ft, slot)->packet[last]);
	assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(mprotect(guard.page[i], 4096, PROT_READ), 0);
	send_packets(1, last, PACKETS);
	assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
	assert_int_equal(guard.writes, 2);
	assert_false(guard.early);
	assert_int_equal(ft->rx[0].done[1 & ft->entry_mask], 2);
	poll(1);
	assert_int_equal(builder_stats(b).closed, 1);
	finish();
}

/* Parameters that a gang uses are not overwritten, even if thresholds are changed often. */
static void
thresholds_in_use_stay(void **state)
{
	struct builder_command veto = {.order = BUILDER_VETO, .veto.params.version = 100};
	unsigned int changes;
	uint32_t place;

	begin();
	send_frames(1, 3);
	poll(1);
	place = gang_work(0, 0)->params;
	assert_int_equal(channel->params[place].version, 41);
	for (changes = 0; changes <= 2 * GK_PARAMS_MAX; changes++) {
		veto.veto.params.version++;
		assert_int_equal(builder_post(b, &veto), 0);
		poll(1);
		assert_int_equal(channel->params[place].version, 41);
		if (builder_result(b, NULL) != 0)
			break;
	}
	assert_int_equal(builder_result(b, NULL), -EBUSY);
	assert_int_equal(changes, GK_PARAMS_MAX - 2);
	/* once the frames with later parameters are done, there is room again */
	send_frames(3, 5);
	gangs_finish_all();
	assert_int_equal(builder_post(b, &veto), 0);
	poll(1);
	assert_int_equal(builder_result(b, NULL), 0);
	finish();
}

/* A command that was cancelled in time is not executed; an executed command cannot be cancelled. */
static void
order_is_given_up(void **state)
{
	struct builder_command veto = {.order = BUILDER_VETO, .veto.params.version = 77};

	begin();
	assert_int_equal(builder_post(b, &veto), 0);
	assert_int_equal(builder_post(b, &veto), -EBUSY);
	assert_true(builder_cancel(b));
	poll(5);
	assert_int_equal(builder_result(b, NULL), -EINPROGRESS);
	send_frames(1, 2);
	gangs_finish_all();
	for (uint32_t i = 0; i < GK_PARAMS_MAX; i++)
		assert_int_not_equal(channel->params[i].version, 77);
	assert_int_equal(builder_post(b, &veto), 0);
	poll(1);
	assert_false(builder_cancel(b));
	assert_int_equal(builder_result(b, NULL), 0);
	finish();
}

/* Thresholds change at the frame given, which begins a new batch. */
static void
batch_has_one_veto(void **state)
{
	struct builder_command veto = {
		.order = BUILDER_VETO, .from_frame = 3, .veto.params.version = 43};
	const struct gk_work *work;

	config.batch = 16;
	begin();
	assert_int_equal(builder_post(b, &veto), 0);
	poll(1);
	assert_int_equal(builder_result(b, NULL), 0);
	send_frames(1, 5);
	poll(1);
	for (uint32_t g = 0; g < 2; g++) {
		work = gang_work(g, 0);
		assert_int_equal(gang_has(g), 1);
		assert_int_equal(work->nb_frames, 2);
		assert_int_equal(frame_table_frame(ft, work->slot[0])->frame, 1 + 2 * g);
		assert_int_equal(channel->params[work->params].version, 41 + 2 * g);
	}
	finish();
}

/* Hits hold their output slots until egress returns them; vetoed frames do not. */
static void
waits_for_outputs(void **state)
{
	config.outputs = 3;
	config.batch = 16;
	begin();
	send_frames(1, 13); /* hits are 3, 6, 9, 12 */
	poll(1);
	assert_int_equal(gang_has(0), 1);
	assert_int_equal(gang_work(0, 0)->nb_frames, 3);
	assert_int_equal(gang_has(1) + gang_has(2), 0);
	gangs_finish_all();
	assert_int_equal(egress(), 9);
	assert_true(builder_stats(b).no_output_slot > 0);
	gangs_finish_all();
	assert_int_equal(egress(), 0);
	rte_ring_enqueue(config.returned, out[2]); /* return the record of hit 3 */
	gangs_finish_all();
	assert_int_equal(egress(), 3);
	out[2] = out[--nb_out];
	finish();
}

/*
 * Egress returns no records: frames proceed until all records are used, then stop, and none is
 * lost.
 */
static void
egress_is_stuck(void **state)
{
	uint64_t sent = 1;

	run.packets_min = UINT32_MAX;
	begin();
	for (uint32_t idle = 0; idle < 100; idle++) {
		for (; sent < ft->builder->next_open; sent++, idle = 0)
			send_packets(sent, 5, 6);
		poll(2);
	}
	assert_int_equal(egress(), BUILDER_RECORDS);
	assert_true(builder_stats(b).no_record > 0);
	assert_int_equal(builder_stats(b).verdicts[FRAME_INCOMPLETE], BUILDER_RECORDS);
	for (uint32_t i = 0; i < BUILDER_RECORDS; i++)
		assert_int_equal(out[i]->frame, i + 1);
	give_back_all();
	poll(5);
	assert_true(egress() > 0);
	assert_int_equal(out[0]->frame, BUILDER_RECORDS + 1);
	give_back_all();
	finish();
	assert_int_equal(builder_stats(b).closed, sent - 1);
}

/** A frame without packets 0 to 4 and 127. */
static void
incomplete_frame(bool drop)
{
	const struct frame_record *r;

	run.packets_min = drop ? UINT32_MAX : 1;
	begin();
	send_packets(1, 5, 127);
	send_frames(2, 5);
	gangs_finish_all();
	assert_int_equal(egress(), 4);
	r = out[0];
	assert_int_equal(r->frame, 1);
	assert_int_equal(r->verdict, drop ? FRAME_INCOMPLETE : FRAME_VETOED);
	assert_int_equal(r->flags, FRAME_FLAG_INCOMPLETE);
	assert_int_equal(r->missing[0], 6);
	assert_int_equal(r->missing_map[0], 0x1F);
	assert_int_equal(r->missing_map[1], 0);
	assert_int_equal(r->missing_map[15], 0x80);
	assert_int_equal(r->bunch_id, 1 ^ 0xB0B0);
	assert_int_equal(out[1]->flags, 0);
	assert_int_equal(builder_stats(b).missing_packets, 6);
	finish();
}

static void
incomplete_is_dropped(void **state)
{
	incomplete_frame(true);
}

static void
incomplete_is_kept(void **state)
{
	incomplete_frame(false);
}

/* One stream is complete, one is missing, two are incomplete. */
static void
missing_of_several_streams(void **state)
{
	static const uint8_t map[] = {0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
		0xFF, 0xFF, 0, 0x04, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
		0x7F};

	assert_int_equal(detector_init(&d, &jungfrau_ops, 2, 2), 0);
	run.packets_min = 1;
	begin();
	send_stream(0, 1, 0, 64);
	send_stream(2, 1, 0, 10);
	send_stream(2, 1, 11, 64);
	send_stream(3, 1, 63, 64);
	for (uint64_t f = 2; f < 5; f++)
		for (uint32_t s = 0; s < d.streams; s++)
			send_stream(s, f, 0, 1);
	gangs_finish_all();
	assert_true(egress() >= 1);
	assert_int_equal(out[0]->frame, 1);
	assert_int_equal(out[0]->missing[0], 64);
	assert_int_equal(out[0]->missing[1], 1 + 63);
	assert_memory_equal(out[0]->missing_map, map, sizeof(map));
	finish();
}

/*
 * A stream that sends nothing for some frames is silent until it sends again; lost frames do not
 * count.
 */
static void
silent_stream(void **state)
{
	const struct builder_stream *s;
	struct builder_stats stats;

	assert_int_equal(detector_init(&d, &jungfrau_ops, 2, 2), 0);
	run.packets_min = UINT32_MAX;
	begin();
	for (uint64_t f = 1; f <= 40; f++) {
		if (f == 12)
			continue;
		for (uint32_t i = 0; i < d.streams; i++)
			if (i != 2 || f < 9 || (f >= 22 && f != 25))
				send_stream(i, f, 0, f < 5 ? 64 : 2);
		poll(3);
		gangs_finish_all();
		egress();
	}
	finish();
	stats = builder_stats(b);
	assert_int_equal(stats.complete, 4);
	s = &stats.stream[2];
	/* silent from 9 to 21, of which one was lost; 25 is absent */
	assert_int_equal(s->silences, 1);
	assert_int_equal(s->silent_from, 9);
	assert_int_equal(s->silent_to, 22);
	assert_int_equal(s->absent, 0);
	assert_int_equal(s->absent_from, 25);
	assert_int_equal(s->frames, 4 + 18);
	assert_int_equal(s->missing, 13 * 64 + 22 * 62);
	assert_true(s->seen[0] == 3 && s->seen[1] == 0);
	s = &stats.stream[0];
	assert_int_equal(s->silences, 0);
	assert_int_equal(s->frames, 35);
	assert_int_equal(s->missing, 35 * 62);
}

static void
lost_frame(void **state)
{
	begin();
	send_frames(1, 2);
	send_frames(3, 5);
	gangs_finish_all();
	assert_int_equal(egress(), 4);
	assert_int_equal(out[1]->frame, 2);
	assert_int_equal(out[1]->verdict, FRAME_LOST);
	assert_int_equal(out[1]->missing[0], PACKETS);
	for (uint32_t i = 0; i < PACKETS / 8; i++)
		assert_int_equal(out[1]->missing_map[i], 0xFF);
	assert_int_equal(out[1]->out, GK_NO_OUT);
	assert_int_equal(out[1]->kind, GK_KIND_NONE);
	assert_int_equal(builder_stats(b).missing_packets, 0);
	finish();
}

/*
 * A frame has the versions of thresholds and pedestals in force at its number, even if no gang
 * processed it.
 */
static void
versions_of_frames_without_a_gang(void **state)
{
	struct builder_command veto = {
		.order = BUILDER_VETO, .from_frame = 3, .veto.params.version = 43};

	run.packets_min = UINT32_MAX;
	run.dark = (struct builder_dark){
		.select = BUILDER_DARK_FRAME, .every = 1000, .phase = 999, .interval_frames = 4};
	begin();
	assert_int_equal(builder_post(b, &veto), 0);
	poll(1);
	assert_int_equal(builder_result(b, NULL), 0);
	/*
	 * 3 and 8 are lost, 5 and 9 are incomplete; pedestal interval 2 begins at 8. All frames are
	 * closed at once
	 */
	send_frames(1, 3);
	send_frames(4, 5);
	send_packets(5, 0, 1);
	send_frames(6, 8);
	send_packets(9, 0, 1);
	send_frames(10, 14);
	gangs_finish_all();
	assert_int_equal(egress(), 13);
	for (uint32_t i = 0; i < 13; i++) {
		if (out[i]->verdict == FRAME_HIT || out[i]->verdict == FRAME_VETOED)
			continue;
		assert_int_equal(out[i]->veto_version, out[i]->frame < 3 ? 41 : 43);
		assert_int_equal(out[i]->pedestal_version, out[i]->frame < 8 ? 51 : 52);
	}
	assert_int_equal(out[2]->verdict, FRAME_LOST);
	assert_int_equal(out[4]->verdict, FRAME_INCOMPLETE);
	assert_int_equal(out[7]->verdict, FRAME_LOST);
	assert_int_equal(out[8]->verdict, FRAME_INCOMPLETE);
	finish();
}

/*
 * Dark frames are marked in their record. Gangs accumulate them only if there are pedestal
 * intervals, at whose ends the sums are used.
 */
static void
dark_frames(uint64_t interval_frames)
{
	run.dark = (struct builder_dark){.select = BUILDER_DARK_FRAME,
		.every = 4,
		.phase = 1,
		.interval_frames = interval_frames};
	begin();
	send_frames(1, 9);
	gangs_finish_all();
	assert_int_equal(dark_to_gangs, interval_frames != 0 ? 2 : 0);
	assert_int_equal(egress(), 8);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(out[i]->flags, out[i]->frame % 4 == 1 ? FRAME_FLAG_DARK : 0);
	finish();
}

static void
dark_without_intervals_is_only_marked(void **state)
{
	dark_frames(0);
}

static void
dark_with_intervals_is_added_up(void **state)
{
	dark_frames(1000);
}

static void
prescale_keeps_every_nth(void **state)
{
	run.veto.prescale = 4;
	run.veto.prescale_raw = true;
	begin();
	send_frames(1, 13);
	gangs_finish_all();
	assert_int_equal(egress(), 12);
	for (uint32_t i = 0; i < 12; i++) {
		const uint64_t f = i + 1;

		assert_int_equal(out[i]->verdict,
			is_hit(f)	     ? FRAME_HIT
				: f % 4 == 0 ? FRAME_PRESCALED
					     : FRAME_VETOED);
		if (out[i]->verdict != FRAME_VETOED)
			assert_int_equal(out[i]->kind,
				out[i]->verdict == FRAME_PRESCALED ? GK_KIND_RAW : GK_KIND_CSR);
	}
	finish();
}

static void
dry_run_keeps_all(void **state)
{
	run.veto.dry_run = true;
	begin();
	send_frames(1, 7);
	gangs_finish_all();
	assert_int_equal(egress(), 6);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(out[i]->verdict, is_hit(i + 1) ? FRAME_HIT : FRAME_DRY_RUN);
		assert_int_not_equal(out[i]->out, GK_NO_OUT);
		/* no two frames share an output */
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(out[i]->out, out[k]->out);
	}
	finish();
}

static void
gang_gives_up(void **state)
{
	int error = 0;

	begin();
	send_frames(1, 5);
	poll(3);
	assert_int_equal(builder_failed_gang(b, &error), 0);
	channel->done[1].error = (uint32_t)-EINVAL;
	poll(3);
	assert_int_equal(builder_failed_gang(b, &error), 2);
	assert_int_equal(error, -EINVAL);
	finish();
}

/* The GPU cannot order the NIC's writes: no gang may read them, and the run fails. */
static void
writes_are_not_ordered(void **state)
{
	int error = 0;

	config.gpu_writes = true;
	config.gpu = -1;
	begin();
	send_frames(1, 1 + config.batch);
	poll(3);
	assert_int_equal(builder_failed_gang(b, &error), 1);
	assert_int_equal(error, -ENODEV);
	for (uint32_t g = 0; g < GANGS; g++)
		assert_int_equal(channel->bell.head[g], 0);
	poll(3);
	assert_int_equal(egress(), 0);
	/* the process ends after this error: the batch is not dispatched */
	for (uint32_t i = 0; i < config.batch; i++)
		frame_table_release(ft, gang_work(0, 0)->slot[i]);
	poll(1);
}

static void
stop_with_everything_open(void **state)
{
	begin();
	send_frames(1, 4);
	poll(1);
	send_packets(4, 0, 50);
	send_packets(6, 0, 1);
	stop();
	poll(10);
	assert_false(builder_is_idle(b)); /* gangs hold some frames */
	gangs_finish_all();
	assert_int_equal(egress(), 6); /* 7 had not begun */
	assert_int_equal(out[3]->missing[0], 78);
	assert_int_equal(out[4]->verdict, FRAME_LOST);
	assert_int_equal(out[5]->missing[0], 127);
	poll(10);
	assert_false(builder_is_idle(b)); /* egress holds the records */
	give_back_all();
	poll(3);
	assert_true(builder_is_idle(b));
	finish();
}

static void
ends_with_the_run(void **state)
{
	run.run.nb_frames = 3;
	begin();
	send_frames(1, 4);
	poll(5);
	assert_false(builder_has_ended(b));
	gangs_finish_all();
	assert_true(builder_has_ended(b));
	assert_int_equal(egress(), 3);
	finish();
}

/** Number of unfinished batches of an operation. */
static uint32_t
gangs_have(enum gk_op op)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < config.gangs; g++)
		for (uint32_t i = channel->done[g].done; i != channel->bell.head[g]; i++)
			n += gang_work(g, i)->op == op;
	return n;
}

/*
 * Pedestals are updated when all frames of their interval are retired, not while a gang accumulates
 * one of them.
 */
static void
update_waits_for_its_interval(void **state)
{
	run.dark = (struct builder_dark){
		.select = BUILDER_DARK_FRAME, .every = 4, .phase = 1, .interval_frames = 4};
	begin();
	send_frames(1, 4);
	poll(1);
	assert_int_equal(gangs_have(GK_OP_CLEAR), GK_DARK_MAX);
	for (uint32_t g = 0; g < GANGS; g++)
		while (gang_has(g) > 0)
			gang_finish(g);
	poll(3);
	assert_int_equal(gangs_have(GK_OP_FRAMES), 2);
	send_frames(4, 6);
	poll(3);
	assert_int_equal(gangs_have(GK_OP_FRAMES), 3);
	assert_int_equal(gangs_have(GK_OP_UPDATE), 0);
	gangs_finish_all();
	assert_int_equal(builder_stats(b).updates, 1);
	assert_int_equal(egress(), 5);
	finish();
}

/*
 * Gangs, egress and packets proceed in random steps: every frame is retired once and in order, and
 * all resources are returned.
 */
static void
random_steps(void **state)
{
	const uint64_t first = rig_first_seed(), n = rig_seeds(20);

	for (uint64_t seed = first; seed < first + n; seed++) {
		uint64_t rng = seed * UINT64_C(0x9E3779B97F4A7C15) + 1, sent = 1, next = 1;

		print_message("FRAME_SEED=%" PRIu64 "\n", seed);
		config.gangs = 1 + rig_below(&rng, GANGS);
		config.batch = 1 + rig_below(&rng, GK_BATCH_MAX);
		config.outputs = 1 + rig_below(&rng, OUTPUTS);
		run.packets_min = rig_below(&rng, 2) == 0 ? UINT32_MAX : 1;
		run.veto.dry_run = rig_below(&rng, 4) == 0;
		memset(channel->done, 0, sizeof(channel->done));
		memset(&channel->bell, 0, sizeof(channel->bell));
		begin();
		while (next <= 200) {
			const uint32_t g = rig_below(&rng, config.gangs);

			if (sent <= 220 && sent < ft->builder->next_open &&
				rig_below(&rng, 3) == 0) {
				if (rig_below(&rng, 10) != 0)
					send_packets(
						sent, rig_below(&rng, 10) == 0 ? 3 : 0, PACKETS);
				sent++;
			}
			if (gang_has(g) > 0 && rig_below(&rng, 2) == 0)
				gang_finish(g);
			else if (channel->bell.head[g] != channel->done[g].raw)
				gang_raw(g);
			poll(rig_below(&rng, 3));
			egress();
			while (nb_out > 0 && rig_below(&rng, 2) == 0) {
				assert_int_equal(out[0]->frame, next++);
				rte_ring_enqueue(config.returned, out[0]);
				memmove(&out[0], &out[1], --nb_out * sizeof(out[0]));
			}
		}
		finish();
		assert_true(builder_stats(b).closed >= 200);
		builder_destroy(b);
		rig_table_free(ft);
		assert_int_equal(rte_mempool_in_use_count(pool), 0);
	}
	ft = NULL;
	b = NULL;
}

int
main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(bad_numbers_are_refused),
		TEST(retires_in_frame_order),
		TEST(record_of_a_frame),
		TEST(dense_instead_of_csr),
		TEST(peaks_in_records),
		TEST(chunks_in_records),
		TEST(profiles_belong_to_records),
		TEST(thresholds_of_a_second_run),
		TEST(packets_go_back_first),
		TEST(batch_has_one_veto),
		TEST(done_before_packets),
		TEST(recycled_when_mbufs_are_freed),
		TEST(complete_when_written_down),
		TEST(thresholds_in_use_stay),
		TEST(order_is_given_up),
		TEST(waits_for_outputs),
		TEST(egress_is_stuck),
		TEST(incomplete_is_dropped),
		TEST(incomplete_is_kept),
		TEST(missing_of_several_streams),
		TEST(silent_stream),
		TEST(lost_frame),
		TEST(versions_of_frames_without_a_gang),
		TEST(dark_without_intervals_is_only_marked),
		TEST(dark_with_intervals_is_added_up),
		TEST(update_waits_for_its_interval),
		TEST(prescale_keeps_every_nth),
		TEST(dry_run_keeps_all),
		TEST(gang_gives_up),
		TEST(writes_are_not_ordered),
		TEST(stop_with_everything_open),
		TEST(ends_with_the_run),
		TEST(random_steps),
	};

	if (rig_eal(argv[0]) < 0)
		return 1;
	pool = rte_pktmbuf_pool_create(
		"packets", NB_MBUFS, 0, 0, RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
	if (pool == NULL)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
