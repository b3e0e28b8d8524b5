/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares the frame table with a model without rings, tags or slots, which has arrays over all
 * frames of a run. Detectors, RX roles and windows are random; packets are lost, duplicated and
 * reordered; streams fall silent, for good or for a while. RX roles and builder take steps in
 * random order, and the model predicts the result of each.
 *
 * FRAME_SEED=N FRAME_SEEDS=1 runs one case; a failure prints N.
 */

#include "frame_rig.h"

#define FRAMES_MAX 64
#define FIRST	   UINT64_C(1000)

enum model_state {
	AHEAD, /**< not open yet */
	OPEN,
	CLOSING,
	CLOSED,
	REFUSED, /**< refused, and not reported yet */
};

struct model_frame {
	enum model_state state;
	uint32_t packets;
	uint64_t *id; /**< by tile, 0 = missing */
};

struct packet {
	uint64_t key; /**< order of arrival */
	uint64_t frame;
	uint16_t stream;
	uint16_t packet;
	uint64_t id;
};

struct wire {
	struct packet *packets;
	uint32_t n, next;
	bool waits; /**< the table has asked its next packet to wait */
	bool quiet; /**< had a quiescent state since the head began to close */
};

static uint64_t seed, rng;
static struct detector d;
static struct frame_table_config config;
static struct frame_table *ft;
static struct wire wires[FRAME_RX_MAX];
static uint8_t *outcome; /**< by id: 0 not placed, 1 in the table, 2 returned in a slot */
static uint64_t nb_ids;
static uint64_t sent, results[FRAME_PLACES], came_back;
static bool silences; /**< streams may fall silent in this case */

/* state of the model */
static struct model_frame frames[FRAMES_MAX * 2];
static uint64_t next_close, next_open, end;
static uint32_t nb_free, held[FRAME_SLOTS_MAX], nb_held;
static uint64_t progress[DETECTOR_STREAMS_MAX], leap[DETECTOR_STREAMS_MAX],
	given_up[DETECTOR_STREAMS_MAX], waits_at[DETECTOR_STREAMS_MAX],
	held_at[DETECTOR_STREAMS_MAX], moved_at[DETECTOR_STREAMS_MAX];
static bool timed_out, flushing, head_held, outrun;
static uint64_t behind_streams, short_behind, nb_outrun, nb_waited_for;

static struct model_frame *
at(uint64_t frame)
{
	assert_in_range(frame, FIRST, FIRST + 2 * FRAMES_MAX - 1);
	return &frames[frame - FIRST];
}

static void
saw(uint32_t stream, uint64_t frame)
{
	if (frame < progress[stream])
		return;
	/* a single number far ahead may be corrupt: the next one must confirm it */
	if (progress[stream] == 0 || frame == progress[stream] || frame + 1 == leap[stream] ||
		frame == leap[stream])
		progress[stream] = frame + 1;
	else
		leap[stream] = frame + 1;
}

/** A packet ahead of the window waits: a single number may be corrupt, two are not. */
static void
saw_ahead(uint32_t stream, uint64_t frame)
{
	if (frame < waits_at[stream])
		return;
	if (frame <= progress[stream] || frame + 1 == leap[stream] || frame == leap[stream])
		waits_at[stream] = frame + 1;
	else
		leap[stream] = frame + 1;
}

static enum frame_placement
model_place(const struct packet *p)
{
	const uint64_t ring = ft->entry_mask + 1;
	struct model_frame *f;
	uint64_t *id;

	if (p->frame >= end)
		return FRAME_PLACE_BEYOND;
	f = at(p->frame);
	if (f->state == AHEAD) {
		saw_ahead(p->stream, p->frame);
		return FRAME_PLACE_WAIT;
	}
	if (next_open > p->frame + ring)
		return FRAME_PLACE_LATE; /* too long ago for the ring */
	saw(p->stream, p->frame);
	if (f->state == CLOSING || f->state == CLOSED)
		return FRAME_PLACE_LATE;
	if (f->state == REFUSED)
		return FRAME_PLACE_REFUSED;
	id = &f->id[p->stream * d.stream_packets + p->packet];
	if (*id != 0)
		return FRAME_PLACE_DUPLICATE;
	*id = p->id;
	f->packets++;
	return FRAME_PLACED;
}

static uint64_t
model_wanted(uint32_t frx)
{
	const struct wire *w = &wires[frx];

	return w->waits ? w->packets[w->next].frame + 1 : 0;
}

static uint32_t
model_open(void)
{
	uint64_t wanted = 0;
	uint32_t n = 0;

	if (flushing)
		return 0;
	for (; nb_free > 0 && next_open < end && next_open - next_close <= ft->entry_mask; n++) {
		at(next_open++)->state = OPEN;
		nb_free--;
	}
	for (uint32_t i = 0; i < config.nb_rx; i++)
		wanted = RTE_MAX(wanted, model_wanted(i));
	if (!config.refuse || nb_free > 0)
		return n;
	for (; next_open < RTE_MIN(wanted, end) && next_open - next_close < config.slots; n++) {
		at(next_open++)->state = REFUSED;
		short_behind = head_held ? behind_streams : 0;
	}
	return n;
}

/** Highest frame + 1 of a stream's packets, placed or waiting. */
static uint64_t
model_highest(uint32_t s)
{
	return RTE_MAX(progress[s], waits_at[s]);
}

/** Frame + 1 that a stream has reached, seen from the head. */
static uint64_t
model_reach(uint32_t s)
{
	const uint64_t waits_for = model_wanted(config.owner[s]), reach = model_highest(s);

	return next_open - next_close >= config.slots && waits_for > next_open
		? RTE_MAX(reach, waits_for)
		: reach;
}

/** Whether slots are short, and enough streams are ahead of the head. */
static bool
model_is_outrun(bool time_is_up)
{
	uint32_t ahead = 0;

	for (uint32_t s = 0; s < d.streams; s++)
		ahead += model_reach(s) > next_close + config.max_skew_frames &&
			next_open + nb_free < model_reach(s) + config.slots / 4;
	return config.refuse && 2 * ahead >= d.streams &&
		ahead > (time_is_up ? 0 : d.streams - ahead);
}

/** End of the frames of which all live streams are `max_skew_frames` ahead. */
static uint64_t
model_passed(void)
{
	uint64_t passed = RTE_MIN(next_open, end);

	for (uint32_t i = 0; i < config.nb_rx; i++)
		if (model_wanted(i) != 0)
			passed = RTE_MIN(passed, model_wanted(i) - 1);
	for (uint32_t s = 0; s < d.streams; s++)
		if (given_up[s] == 0)
			passed = RTE_MIN(passed,
				model_highest(s) -
					RTE_MIN(model_highest(s), config.max_skew_frames));
	return passed;
}

/**
 * Whether the head may be closed although it is incomplete.
 * @param passed  out: end of the frames that close with it
 */
static bool
model_gives_up(bool time_is_up, uint64_t *passed)
{
	uint64_t highest = 0;
	uint32_t behind = 0, live = 0, began = 0;

	/* an RX role that waits for the head will still place its packets */
	for (uint32_t i = 0; i < config.nb_rx; i++)
		if (model_wanted(i) != 0 && model_wanted(i) <= next_close + 1)
			return false;
	behind_streams = 0;
	for (uint32_t s = 0; s < d.streams; s++) {
		highest = RTE_MAX(highest, RTE_MAX(progress[s], model_wanted(config.owner[s])));
		if (given_up[s] != progress[s] + 1)
			given_up[s] = 0;
		live += given_up[s] == 0;
		began += progress[s] > next_close;
		if (given_up[s] != 0 || model_reach(s) > next_close + config.max_skew_frames)
			continue;
		behind++;
		behind_streams |= UINT64_C(1) << s;
	}
	*passed = next_close + 1;
	if (live > 0 && behind == 0)
		*passed = RTE_MAX(*passed, model_passed());
	if (live == 0)
		behind = began;
	if (highest <= next_close) {
		head_held = false;
		return false;
	}
	if (behind > 0 && !head_held)
		memcpy(held_at, progress, sizeof(progress));
	if (behind > 0)
		memcpy(moved_at, progress, sizeof(progress));
	head_held |= behind > 0;
	outrun = behind > 0 && model_is_outrun(time_is_up);
	if (outrun) {
		short_behind = behind_streams;
		for (uint32_t s = 0; s < d.streams && time_is_up; s++)
			if ((behind_streams >> s & 1) != 0)
				given_up[s] = progress[s] + 1;
		nb_outrun++;
		return true;
	}
	if (behind > 0 && !time_is_up)
		return false;
	for (uint32_t s = 0; s < d.streams && behind > 0; s++)
		if (progress[s] == held_at[s] &&
			(progress[s] <= next_close + config.max_skew_frames ||
				model_reach(s) == progress[s]))
			given_up[s] = progress[s] + 1;
	timed_out = behind > 0;
	return true;
}

static bool
all_quiet(void)
{
	for (uint32_t i = 0; i < config.nb_rx; i++)
		if (!wires[i].quiet)
			return false;
	return true;
}

static void
begin_grace(void)
{
	for (uint32_t i = 0; i < config.nb_rx; i++)
		wires[i].quiet = false;
}

/** @return whether a frame is closed, which is then next_close - 1 */
static bool
model_close(bool time_is_up)
{
	struct model_frame *f;
	uint64_t highest, passed;

	if (next_close == next_open)
		return false;
	f = at(next_close);
	if (flushing && !all_quiet())
		return false;
	if (f->state == OPEN && f->packets < d.tiles) {
		if (!model_gives_up(time_is_up, &passed))
			return false;
		for (uint64_t i = next_close; i < passed; i++)
			if (at(i)->state == OPEN)
				at(i)->state = CLOSING;
		begin_grace();
	}
	if (f->state == CLOSING && !all_quiet())
		return false;
	next_close++;
	if (head_held)
		memcpy(moved_at, progress, sizeof(progress));
	highest = 0;
	for (uint32_t s = 0; s < d.streams; s++)
		highest = RTE_MAX(highest, moved_at[s]);
	head_held = head_held && highest > next_close;
	memcpy(held_at, moved_at, sizeof(held_at));
	return true;
}

/* ---- the case ---- */

static int
by_key(const void *a, const void *b)
{
	const struct packet *p = a, *q = b;

	return p->key < q->key ? -1 : p->key > q->key;
}

static bool
chance(uint32_t percent)
{
	return rig_below(&rng, 100) < percent;
}

/** The behaviour of one stream over the run. */
struct manner {
	uint32_t silent_from, silent_to; /**< frame numbers */
	uint32_t delay;			 /**< frames by which these are delayed; 0 = never sent */
};

static void
send_frame(struct wire *w, uint32_t stream, uint64_t frame, uint64_t key, uint32_t loss,
	uint32_t duplicates, uint32_t disorder)
{
	for (uint32_t p = 0; p < d.stream_packets; p++) {
		const uint32_t copies = rig_below(&rng, 1000) < loss ? 0
			: rig_below(&rng, 1000) < duplicates	     ? 2
								     : 1;

		for (uint32_t c = 0; c < copies; c++) {
			w->packets[w->n++] = (struct packet){
				.key = key + p * 16 + rig_below(&rng, 1 + disorder * 16),
				.frame = frame,
				.stream = stream,
				.packet = p,
				.id = ++nb_ids,
			};
		}
	}
}

/** Make the packets of all RX roles, in order of arrival. */
static void
make_traffic(uint32_t nb_frames)
{
	const uint32_t loss = chance(50) ? 0 : rig_below(&rng, 50);
	const uint32_t duplicates = chance(50) ? 0 : rig_below(&rng, 30);
	const uint32_t disorder = chance(50) ? 0 : rig_below(&rng, 300);
	const uint32_t frame_loss = chance(70) ? 0 : rig_below(&rng, 30);
	struct manner manner[DETECTOR_STREAMS_MAX] = {0};
	uint32_t lost_in_a_row = 0;

	silences = chance(30);
	for (uint32_t s = 0; s < d.streams && silences; s++) {
		if (!chance(30))
			continue;
		manner[s].silent_from = rig_below(&rng, nb_frames);
		manner[s].silent_to = manner[s].silent_from + 1 + rig_below(&rng, config.slots);
		manner[s].delay = chance(50) ? 0 : 1 + rig_below(&rng, config.slots);
	}
	for (uint32_t i = 0; i < config.nb_rx; i++) {
		const size_t most = (size_t)nb_frames * d.tiles * 2;

		wires[i] = (struct wire){.packets = malloc(most * sizeof(struct packet))};
		assert_non_null(wires[i].packets);
	}
	for (uint32_t f = 0; f < nb_frames; f++) {
		if (chance(frame_loss) && ++lost_in_a_row < config.slots)
			continue;
		lost_in_a_row = 0;
		for (uint32_t s = 0; s < d.streams; s++) {
			const struct manner *m = &manner[s];
			const bool silent = f >= m->silent_from && f < m->silent_to;

			if (silent && m->delay == 0)
				continue;
			send_frame(&wires[config.owner[s]], s, FIRST + f,
				(f + (silent ? m->delay : 0)) * UINT64_C(4096) +
					rig_below(&rng, 512),
				loss, duplicates, disorder);
		}
	}
	for (uint32_t i = 0; i < config.nb_rx; i++) {
		qsort(wires[i].packets, wires[i].n, sizeof(struct packet), by_key);
		sent += wires[i].n;
	}
}

static void
make_case(uint32_t *nb_frames)
{
	const uint32_t modules = chance(80) ? 1 + rig_below(&rng, 4) : 1 + rig_below(&rng, 32);

	rig_config(&config, &d, modules, 1 + rig_below(&rng, 2));
	config.nb_rx = 1 + rig_below(&rng, RTE_MIN(4u, d.streams));
	for (uint32_t s = 0; s < d.streams; s++)
		config.owner[s] = chance(50) ? s % config.nb_rx : rig_below(&rng, config.nb_rx);
	config.slots = 2 + rig_below(&rng, 12);
	config.max_skew_frames = 1 + rig_below(&rng, config.slots - 1);
	config.resync_packets = UINT32_MAX; /* no restarts in this test */
	config.max_gap_frames = 1000000;
	config.refuse = chance(40);
	config.run.first_known = true;
	config.run.first_frame = FIRST;
	*nb_frames = modules > 8 ? 10 : 2 + rig_below(&rng, FRAMES_MAX - 2);
	config.run.nb_frames = chance(30) ? 1 + rig_below(&rng, *nb_frames) : 0;

	ft = rig_table(&config);
	next_close = next_open = FIRST;
	end = config.run.nb_frames != 0 ? FIRST + config.run.nb_frames : UINT64_MAX;
	nb_free = config.slots;
	nb_held = 0;
	nb_ids = sent = came_back = 0;
	flushing = false;
	memset(results, 0, sizeof(results));
	memset(progress, 0, sizeof(progress));
	memset(leap, 0, sizeof(leap));
	memset(given_up, 0, sizeof(given_up));
	memset(waits_at, 0, sizeof(waits_at));
	head_held = outrun = false;
	behind_streams = short_behind = 0;
	for (uint32_t i = 0; i < RTE_DIM(frames); i++) {
		frames[i].state = AHEAD;
		frames[i].packets = 0;
		frames[i].id = calloc(d.tiles, sizeof(uint64_t));
		assert_non_null(frames[i].id);
	}
	make_traffic(*nb_frames);
	outcome = calloc(nb_ids + 1, 1);
	assert_non_null(outcome);
	frame_table_open(ft);
	rig_quiescent(ft);
	assert_int_equal(frame_table_open(ft), model_open());
}

/* ---- steps of the table, each compared with the prediction of the model ---- */

static bool
step_rx(uint32_t frx, uint32_t burst)
{
	struct wire *w = &wires[frx];
	bool moved = false;

	frame_rx_quiescent(ft, &ft->rx[frx]);
	w->quiet = true;
	w->waits = false;
	for (; w->next < w->n && burst > 0; w->next++, burst--) {
		const struct packet *p = &w->packets[w->next];
		const enum frame_placement expected = model_place(p);

		enum frame_placement r = rig_place(ft, p->stream, p->frame, p->packet, p->id);

		/* held first, and dropped afterwards: restarts are tested in frame_story_test.c */
		if (r == FRAME_PLACE_HOLD &&
			(expected == FRAME_PLACE_LATE || expected == FRAME_PLACE_DUPLICATE))
			r = expected;
		assert_int_equal(r, expected);
		if (expected == FRAME_PLACE_WAIT) {
			w->waits = true;
			break;
		}
		results[expected]++;
		outcome[p->id] = expected == FRAME_PLACED;
		moved = true;
	}
	frame_rx_waits_for(&ft->rx[frx], model_wanted(frx), w->waits);
	return moved;
}

/** Compare a closed frame with that of the model. */
static void
compare(const struct frame_closed *closed)
{
	const struct model_frame *f = at(closed->frame);
	const struct gk_frame *header;

	assert_int_equal(closed->refused, f->state == REFUSED);
	assert_int_equal(closed->packets, f->packets);
	assert_int_equal(closed->missing, d.tiles - f->packets);
	assert_int_equal(closed->timeout, timed_out);
	assert_int_equal(closed->waited_for,
		closed->refused || (outrun && closed->missing > 0) ? short_behind : 0);
	nb_waited_for += closed->waited_for != 0;
	if (f->packets == 0)
		return;
	header = frame_table_frame(ft, closed->slot);
	assert_int_equal(header->frame, closed->frame);
	assert_int_equal(header->missing, closed->missing);
	for (uint32_t t = 0; t < d.tiles; t++) {
		const uint64_t id = f->id[t];

		if (header->packet[t] != id * 64 ||
			frame_table_mbufs(ft, closed->slot)[t] != rig_mbuf(id))
			fail_msg("frame %" PRIu64 ", tile %u is not packet %" PRIu64, closed->frame,
				t, id);
		if (id == 0)
			continue;
		assert_int_equal(outcome[id], 1);
		outcome[id] = 2;
		came_back++;
	}
	for (uint32_t s = 0; s < d.streams; s++)
		if (frame_table_stream_packets(ft, closed->slot, s) > 0)
			assert_int_equal(frame_table_stream(ft, closed->slot, s)->info.bunch_id,
				closed->frame ^ 0xB0B0);
}

static bool
step_close(bool time_is_up)
{
	struct frame_closed closed;
	bool expected;

	timed_out = at(next_close)->state == CLOSING && timed_out;
	expected = model_close(time_is_up);
	ft->config.stall_cycles = time_is_up ? 0 : UINT64_MAX;
	assert_int_equal(rig_close(ft, &closed), expected);
	/* time passes only here, so that no stream becomes silent elsewhere */
	ft->config.stall_cycles = UINT64_MAX;
	if (!expected)
		return false;
	assert_int_equal(closed.frame, next_close - 1);
	compare(&closed);
	if (closed.packets > 0)
		held[nb_held++] = closed.slot;
	else if (!closed.refused)
		nb_free++;
	at(closed.frame)->state = closed.refused ? REFUSED : CLOSED;
	timed_out = outrun = false;
	return true;
}

static bool
step_recycle(void)
{
	uint32_t i;

	if (nb_held == 0)
		return false;
	i = rig_below(&rng, nb_held);
	frame_table_recycle(ft, held[i]);
	held[i] = held[--nb_held];
	nb_free++;
	return true;
}

static bool
step_open(void)
{
	const uint32_t n = model_open();

	assert_int_equal(frame_table_open(ft), n);
	return n > 0;
}

/** One step of everything. @return whether anything changed */
static bool
round_of_all(bool time_is_up)
{
	bool moved = false;

	for (uint32_t i = 0; i < config.nb_rx; i++)
		moved |= step_rx(i, 64);
	while (step_recycle())
		moved = true;
	moved |= step_open();
	for (int i = 0; i < 2; i++) {
		moved |= step_close(time_is_up);
		for (uint32_t l = 0; l < config.nb_rx; l++)
			step_rx(l, 0);
	}
	return moved;
}

static bool
wires_have(bool all)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < config.nb_rx; i++)
		n += wires[i].next < wires[i].n;
	return all ? n == config.nb_rx : n > 0;
}

static void
play(void)
{
	while (wires_have(false)) {
		for (uint32_t i = 0; i < 200; i++) {
			switch (rig_below(&rng, 8)) {
			case 0 ... 3:
				step_rx(rig_below(&rng, config.nb_rx), 1 + rig_below(&rng, 200));
				break;
			case 4:
				step_open();
				break;
			case 5:
				step_recycle();
				break;
			default:
				step_close(silences && chance(2));
			}
		}
		if (round_of_all(false) || round_of_all(false) || !wires_have(false))
			continue;
		/* the rest needs timeouts: a stream is silent, or has ended */
		if (wires_have(true) && !silences)
			fail_msg("nothing moves, and every RX role has packets");
		if (!round_of_all(true) && !round_of_all(true))
			fail_msg("nothing moves, not even by time");
	}
}

/** Flush: frames that have begun are closed, the others are not. */
static void
finish(void)
{
	uint64_t last = next_close;

	timed_out = at(next_close)->state == CLOSING && timed_out;
	for (uint64_t f = next_close; f < next_open; f++) {
		if (at(f)->packets > 0 || at(f)->state == REFUSED)
			last = f + 1;
		if (at(f)->state == OPEN)
			at(f)->state = CLOSING;
	}
	frame_table_flush(ft);
	flushing = true;
	begin_grace();
	while (next_close < last) {
		if (!step_close(false))
			for (uint32_t i = 0; i < config.nb_rx; i++)
				step_rx(i, 0);
		step_open();
	}
	for (uint32_t i = 0; i < config.nb_rx; i++)
		frame_rx_quiescent(ft, &ft->rx[i]);
	assert_false(frame_table_close(ft, &(struct frame_closed){0}));
	assert_true(frame_table_flushed(ft));
	while (step_recycle())
		;
}

static void
one_case(void)
{
	uint64_t counted = 0;
	uint32_t nb_frames;

	make_case(&nb_frames);
	play();
	finish();
	for (uint32_t i = 0; i < FRAME_PLACES; i++)
		counted += results[i];
	assert_int_equal(counted, sent);
	assert_int_equal(results[FRAME_PLACE_OUTLIER], 0);
	assert_int_equal(came_back, results[FRAME_PLACED]);
	for (uint64_t id = 1; id <= nb_ids; id++)
		assert_int_not_equal(outcome[id], 1);
	assert_int_equal(ft->builder->nb_free, config.slots);
	rig_table_free(ft);
	for (uint32_t i = 0; i < config.nb_rx; i++)
		free(wires[i].packets);
	for (uint32_t i = 0; i < RTE_DIM(frames); i++)
		free(frames[i].id);
	free(outcome);
}

static void
table_matches_the_model(void **state)
{
	const uint64_t first = rig_first_seed(), n = rig_seeds(300);

	for (seed = first; seed < first + n; seed++) {
		rng = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
		one_case();
	}
	print_message("seeds %" PRIu64 " ... %" PRIu64 ": %" PRIu64
		      " frames closed because slots were "
		      "short, %" PRIu64 " closed or refused for a stream\n",
		first, first + n - 1, nb_outrun, nb_waited_for);
}

static int
say_seed(void **state)
{
	print_message("last seed: FRAME_SEED=%" PRIu64 "\n", seed);
	return 0;
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(table_matches_the_model, say_seed),
	};

	if (rig_eal(argv[0]) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
