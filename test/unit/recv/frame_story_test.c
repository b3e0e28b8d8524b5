/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the rules of the window (app/recv/frames/README.rst) with random stories of a detector. A
 * story has acquisitions that continue, skip numbers or restart, with and without silence between
 * them. Packets are lost, duplicated or reordered. Modules lag, are dead, send other numbers than
 * the rest, or are forged. The test runs the real rx_poll() and frame table on a clock of its own.
 *
 *  - Every packet has one outcome. Every frame number in a packet has a row, or is counted as a
 *    late frame.
 *  - Streams that are less than half of all never move the window.
 *  - If the rule promises it for the story, no packet of the other streams is lost.
 *  - No frame has packets of two acquisitions.
 *
 * FRAME_SEED=N FRAME_SEEDS=1 plays one story; a failure prints N.
 */

#define RIG_POOL 4095

#include "rx_rig.h"

#define ACTS	     6
#define FRAMES_MAX   24 /* of an acquisition */
#define NUMBERS_MAX  65536
#define QUEUED_MAX   96 /* packets in a queue; small enough for the pools */
#define FORGED_BURST 12

enum role {
	HONEST,
	DEAD,
	ASTRAY /**< sends random numbers */
};

/** One acquisition. */
struct act {
	uint64_t first;
	uint32_t frames;
	bool silence; /**< before the acquisition */
	bool restart; /**< the window has to move */
	bool request; /**< may be so far away that streams must request a resynchronisation */
	bool promised;
};

static uint64_t seed, rng;
static struct detector d;
static struct frame_table_config config;
static struct frame_table *ft;
static enum role role[DETECTOR_STREAMS_MAX];
static uint32_t lag[DETECTOR_STREAMS_MAX], queue_of[DETECTOR_STREAMS_MAX];
/* an honest stream that sends nothing before this act */
static uint32_t away[DETECTOR_STREAMS_MAX];
/* an honest stream that sends other numbers than the rest in this act, 0 = never */
static uint32_t shifted[DETECTOR_STREAMS_MAX];
static uint32_t loss, duplicates, disorder;
static bool any_dead, any_astray;
/* the receiver keeps up, and nothing happens that looks like late packets */
static bool orderly;
static bool all_promised; /* ... and no packet may be lost */
/* the receiver does not keep up: frames are processed late, the NIC drops packets */
static bool slow, stalled;
/* ... because of its gangs only: the link waits, and no packet may be lost */
static bool busy;
static struct frame_closed processing[64];
static uint32_t nb_processing;
static uint32_t nic_ring;
static uint64_t nic_dropped;
static uint32_t nb_early; /* frames that closed early without an honest stream */

/* state of the model */
static uint64_t named[NUMBERS_MAX], rows[NUMBERS_MAX];
static uint32_t nb_named, nb_rows;
static uint64_t nb_stories, nb_orderly, nb_promised, nb_packets, nb_restarts, nb_late;
static uint64_t sent, sent_once, found, restarts;
static uint32_t generation; /* of the window at the beginning of the story */
static uint64_t stray_number, strays[NUMBERS_MAX];
static uint32_t nb_strays;
/* packets of this acquisition that count as votes, each counted once */
static uint32_t votes[DETECTOR_STREAMS_MAX];
/* packets received of a stream's last frame */
static struct last {
	uint64_t number, seen[2];
} last[DETECTOR_STREAMS_MAX], last_before[DETECTOR_STREAMS_MAX]; /* the acquisition */

static bool
chance(uint32_t percent)
{
	return rig_below(&rng, 100) < percent;
}

static void
note(uint64_t *set, uint32_t *n, uint64_t number)
{
	if (*n > 0 && set[*n - 1] == number)
		return;
	assert_true(*n < NUMBERS_MAX);
	set[(*n)++] = number;
}

static void
shift(uint64_t *tsc, uint64_t cycles)
{
	if (*tsc != 0)
		*tsc -= cycles;
}

/** Let time pass by moving all times that were stored into the past. */
static void
pass(uint64_t cycles)
{
	struct frame_builder *b = ft->builder;

	shift(&b->moved_at, cycles);
	shift(&b->asked_at, cycles);
	shift(&b->listened_at, cycles);
	shift(&b->tick_at, cycles);
	shift(&b->front_at, cycles);
	for (uint32_t s = 0; s < d.streams; s++)
		shift(&b->request_since[s], cycles);
}

/** Let time pass in which builder and RX roles run. */
static void
pass_time(uint64_t cycles)
{
	pass(cycles);
	ft->builder->ran += cycles;
	for (uint32_t l = 0; l < config.nb_rx; l++)
		ft->rx[l].listened += cycles;
}

/** Let time pass in which the receiver does not run. */
static void
be_absent(uint64_t cycles)
{
	pass(cycles);
	shift(&ft->builder->ran_at, cycles);
	for (uint32_t l = 0; l < config.nb_rx; l++)
		shift(&ft->rx[l].polled_at, cycles);
}

/** All packets of a frame belong to one acquisition. */
static void
look_into(const struct frame_closed *closed)
{
	uint32_t act = UINT32_MAX;

	for (uint32_t s = 0; s < d.streams; s++) {
		for (uint32_t p = d.expect_from[s]; p < d.expect_to[s]; p++) {
			const struct rte_mbuf *m = frame_table_mbufs(
				ft, closed->slot)[detector_stream_tile(&d, s) + p];

			if (m == NULL || role[s] != HONEST ||
				(shifted[s] != 0 && m->hash.usr == shifted[s]))
				continue;
			found++;
			if (act == UINT32_MAX)
				act = m->hash.usr;
			if (act != m->hash.usr && all_promised && orderly)
				fail_msg("frame %" PRIu64 " has packets of acts %u and %u",
					closed->frame, act, m->hash.usr);
		}
	}
}

static void
process(const struct frame_closed *closed)
{
	look_into(closed);
	frame_table_release(ft, closed->slot);
	frame_table_recycle(ft, closed->slot);
}

static void
build(void)
{
	struct frame_closed closed;

	while (rig_close(ft, &closed)) {
		note(rows, &nb_rows, closed.frame);
		for (uint32_t s = 0; s < d.streams; s++)
			nb_early += !closed.refused && (closed.waited_for >> s & 1) != 0 &&
				role[s] == HONEST;
		if (closed.packets == 0)
			continue;
		if (slow)
			processing[nb_processing++] = closed;
		else
			process(&closed);
	}
	for (uint32_t i = 0; i < nb_processing && !stalled; i++)
		process(&processing[i]);
	if (!stalled)
		nb_processing = 0;
	frame_table_open(ft);
}

static void
work(uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		if (slow && chance(5))
			stalled = !stalled;
		if (slow && !busy && chance(10))
			be_absent(config.stall_cycles / 16 * rig_below(&rng, 8));
		for (uint32_t l = 0; l < config.nb_rx; l++)
			rx_poll(rig_rx[l]);
		build();
	}
}

static uint64_t
movement(void)
{
	return ft->builder->next_close + rig_outcomes(ft) + rig_count(ft, RX_PACKETS) +
		ft->window.generation;
}

/** Poll until nothing changes without further time. The builder checks an open head every 20 us. */
static void
settle(void)
{
	const uint64_t look = rte_get_tsc_hz() / 1000000 * 40;
	uint64_t since = rte_rdtsc();

	for (uint32_t still = 0; still < 10 || rte_rdtsc() - since < look; still++) {
		const uint64_t before = movement();

		work(1);
		if (movement() == before)
			continue;
		still = 0;
		since = rte_rdtsc();
	}
}

static uint32_t
queued(uint32_t queue)
{
	return rig_queues[queue].head - rig_queues[queue].tail;
}

static void
make_room(uint32_t queue)
{
	for (uint32_t i = 0; queued(queue) >= QUEUED_MAX; i++) {
		work(1);
		/* a queue that is blocked proceeds only by timeouts */
		if (i > 600) {
			pass_time(config.stall_cycles / 8);
			orderly = false;
		}
		assert_true(i < 3000);
	}
}

static void
push(uint32_t stream, uint64_t number, uint32_t packet, uint32_t act)
{
	struct rte_mbuf *m;
	const uint32_t q = queue_of[stream];

	if (slow && !busy && queued(q) >= nic_ring) {
		nic_dropped++;
		return;
	}
	if (!slow || busy)
		make_room(q);
	m = rig_packet(stream, number, packet, false);
	m->hash.usr = act;
	rig_push(q, m);
	sent++;
	if (number <= FRAME_NUMBER_MAX)
		note(named, &nb_named, number);
	if (role[stream] == ASTRAY)
		note(strays, &nb_strays, number);
}

/**
 * Count a vote. After silence, the rest of a frame whose first packets came before does not count.
 */
static void
vote(uint32_t stream, uint64_t number, uint32_t packet)
{
	const struct last *before = &last_before[stream];
	struct last *now = &last[stream];

	if (now->number != number)
		*now = (struct last){.number = number};
	now->seen[packet >> 6] |= UINT64_C(1) << (packet & 63);
	if (number != before->number || (before->seen[packet >> 6] >> (packet & 63) & 1) != 0)
		votes[stream]++;
}

static void
send_frame(uint32_t stream, uint64_t number, uint32_t act)
{
	uint32_t order[128], n = 0;

	for (uint32_t p = d.expect_from[stream]; p < d.expect_to[stream]; p++)
		if (rig_below(&rng, 1000) >= loss)
			order[n++] = p;
	for (uint32_t i = 0; i + 1 < n; i++)
		if (rig_below(&rng, 1000) < disorder)
			RTE_SWAP(order[i], order[i + 1]);
	for (uint32_t i = 0; i < n; i++) {
		push(stream, number, order[i], act);
		sent_once++;
		vote(stream, number, order[i]);
		if (rig_below(&rng, 1000) < duplicates)
			push(stream, number, order[i], act);
		if (!slow && chance(10))
			work(1);
	}
}

/** One stream was restarted alone, or its counter has jumped. */
static void
send_shifted(uint32_t stream, const struct act *act, uint32_t frame, uint32_t a)
{
	const uint64_t number =
		act->first > 3000 && stream % 2 == 0 ? 1 + frame : act->first + frame + 300000;

	for (uint32_t p = d.expect_from[stream]; p < d.expect_to[stream]; p++)
		push(stream, number, p, a);
	note(strays, &nb_strays, number);
}

/** Streams whose numbers differ from the others', or that are forged. */
static void
send_astray(uint32_t stream, uint64_t number, uint32_t act)
{
	switch (rig_below(&rng, 6)) {
	case 0: /* one number many times, to move the window */
		for (uint32_t i = 0; i < FORGED_BURST; i++)
			push(stream, stray_number, d.expect_from[stream] + i % 2, act);
		break;
	case 1:
		push(stream, rig_random(&rng) >> 17 >> rig_below(&rng, 46), d.expect_from[stream],
			act);
		break;
	case 2: /* numbers that ascend from another start */
		for (uint32_t p = d.expect_from[stream]; p < d.expect_to[stream]; p++)
			push(stream, stray_number, p, act);
		stray_number++;
		break;
	case 3:
		stray_number = chance(50) ? rig_below(&rng, 400) : rig_below(&rng, 1000000);
		break;
	case 4: /* the same as the others */
		for (uint32_t p = d.expect_from[stream]; p < d.expect_to[stream]; p++)
			push(stream, number, p, act);
		break;
	default:
		break;
	}
}

static void
tell(const char *when)
{
	const struct frame_builder *b = ft->builder;

	if (getenv("FRAME_TELL") == NULL)
		return;
	print_message("%s: window %" PRIu64 " ... %" PRIu64 ", requests %" PRIx64
		      ", silent %" PRIx64 ", paused %" PRIx64 ", refused %" PRIx64 "\n",
		when, b->next_close, b->next_open, b->requests, b->silent, ft->window.paused,
		ft->window.refused);
	for (uint32_t l = 0; l < config.nb_rx; l++)
		print_message("  RX role %u: elsewhere %" PRIx64 ", requests %" PRIx64
			      ", expected %" PRIu64 "%s, %u pending, %u queued\n",
			l, ft->rx[l].out_of_window, ft->rx[l].requests, ft->rx[l].waits_for,
			ft->rx[l].crowded ? ", crowded" : "", rig_rx[l]->nb_pending, queued(l));
	for (uint32_t c = RX_PLACED; c < RX_COUNTERS; c++)
		if (rig_count(ft, c) != 0)
			print_message("  %s %" PRIu64, rx_counter_names[c], rig_count(ft, c));
	print_message("\n");
}

/**
 * Silence, until all honest streams are silent and paused: a stray module may hold a frame open for
 * `stall_cycles`. If a stray module has begun a frame that the others would send after the silence,
 * a timeout closes it first, and packets of the others may be lost.
 */
static void
be_silent(uint32_t act, uint64_t end)
{
	const bool noise = chance(30);
	/* not a number of later frames: a timeout would close these before the others send them */
	const uint64_t number = 5000000 + rig_below(&rng, 1000);
	uint64_t honest = 0;

	for (uint32_t s = 0; s < d.streams; s++)
		honest |= (uint64_t)(role[s] == HONEST) << s;
	for (uint32_t i = 0; i < nb_strays; i++)
		all_promised &= strays[i] < end || strays[i] >= end + config.max_gap_frames;
	settle();
	/* packets that waited for a refusal were heard when it came */
	for (uint32_t i = 0; i < 10 || (honest & ~(ft->window.paused & ft->builder->silent)) != 0;
		i++) {
		assert_true(i < 400);
		pass_time(config.stall_cycles / 8);
		work(3);
		for (uint32_t s = 0; s < d.streams; s++)
			if (noise && role[s] == ASTRAY && chance(50))
				for (uint32_t k = 0; k < FORGED_BURST; k++)
					push(s, number, d.expect_from[s], act);
		work(3);
	}
	settle();
}

/** A move of the window is promised only if every stream has sent enough packets that agree. */
static void
check_votes(const struct act *act, uint32_t a)
{
	for (uint32_t s = 0; s < d.streams; s++)
		if (act->request && role[s] == HONEST && a >= away[s] &&
			(a != shifted[s] || a == 0) && votes[s] < config.resync_packets)
			orderly = false;
	memset(votes, 0, sizeof(votes));
	memcpy(last_before, last, sizeof(last));
}

/**
 * Whether all earlier packets are placed, and the dead streams are known. If not, packets wait for
 * a module that is dead or astray; silence does not count meanwhile.
 */
static bool
keeps_up(uint32_t act)
{
	for (uint32_t s = 0; s < d.streams; s++)
		if ((role[s] == DEAD || act < away[s]) && (ft->builder->silent >> s & 1) == 0)
			return false;
	for (uint32_t l = 0; l < config.nb_rx; l++) {
		if (ft->rx[l].waits_for != 0)
			return false;
		for (uint32_t i = 0; i < rig_rx[l]->nb_pending; i++)
			if (role[rig_rx[l]->pending[i].stream] == HONEST)
				return false;
	}
	return true;
}

static void
play(const struct act *acts, uint32_t nb)
{
	uint64_t settled = 0;
	bool unsettled = true;

	for (uint32_t a = 0; a < nb; a++) {
		tell("before an act");
		if (acts[a].silence) {
			be_silent(a, a == 0 ? 0 : acts[a - 1].first + acts[a - 1].frames);
			tell("after silence");
		} else if (acts[a].restart ||
			(acts[a].request &&
				(unsettled || any_astray ||
					acts[a].first >= settled + config.max_gap_frames - 100))) {
			/*
			 * settle first: a stream that moves on before the window has followed its
			 * last move loses packets; after a short gap only if a module is astray
			 */
			settle();
			orderly &= keeps_up(a);
			settled = acts[a - 1].first + acts[a - 1].frames;
			unsettled = false;
		}
		unsettled |= acts[a].restart;
		/* lagging streams are one frame behind, also across acquisitions */
		for (uint32_t f = 0; f <= acts[a].frames; f++) {
			const uint32_t from = rig_below(&rng, d.streams);

			for (uint32_t i = 0; i < d.streams; i++) {
				const uint32_t s = (from + i) % d.streams;
				const uint64_t number = acts[a].first + f;

				if (role[s] == HONEST && a < away[s])
					continue;
				if (role[s] == HONEST && a > 0 && a == shifted[s])
					send_shifted(s, &acts[a], f, a);
				else if (role[s] == HONEST && lag[s] == 0 && f < acts[a].frames)
					send_frame(s, number, a);
				else if (role[s] == HONEST && lag[s] != 0 && f > 0)
					send_frame(s, number - 1, a);
				else if (role[s] == ASTRAY && a + f > 0 && chance(50))
					send_astray(s, number, a);
			}
			if (chance(70))
				work(1 + rig_below(&rng, 4));
			/* wait until the dead streams are known */
			if (a == 0 && any_dead) {
				settle();
				pass_time(config.stall_cycles / 8);
			}
		}
		check_votes(&acts[a], a);
	}
}

/** Choose the next acquisition. `end` is the highest number so far plus 1. */
static struct act
next_act(uint32_t a, uint64_t begin, uint64_t end)
{
	struct act act = {.frames = 1 + rig_below(&rng, FRAMES_MAX), .promised = true};
	const uint32_t back = config.max_skew_frames + 3;

	if (a == 0) {
		if (any_dead)
			act.frames = FRAMES_MAX;
		act.first = rig_below(&rng, 3) == 0 ? 1 : rig_below(&rng, 5000);
		return act;
	}
	switch (rig_below(&rng, 6)) {
	case 0: /* continues, perhaps after silence */
		act.first = end;
		act.silence = chance(50);
		break;
	case 1: /* frames are lost */
		act.first = end + rig_below(&rng, config.max_gap_frames - 100);
		act.silence = chance(50);
		break;
	case 2: /* the same or other earlier numbers, after silence */
		act.first = chance(50) ? begin : rig_below(&rng, end);
		act.silence = true;
		break;
	case 3: /* a restart without silence */
		if (end > 2 * back + config.slots) {
			act.first = rig_below(&rng, end - 2 * back - config.slots);
			break;
		}
		act.first = end + 100000;
		break;
	case 4:
		act.first = end + 100000 + rig_below(&rng, 1000000);
		act.silence = chance(50);
		break;
	default: /* back by so few frames that packets cannot be told from late ones */
		act.first = end > config.max_skew_frames
			? end - 1 - rig_below(&rng, config.max_skew_frames)
			: 0;
		act.promised = false;
		break;
	}
	act.restart = act.first < end || act.first >= end + config.max_gap_frames;
	act.request = act.first != end;
	return act;
}

/** The frame table and the RX roles of `config`, with a queue for each. */
static void
open_table(void)
{
	ft = rig_table(&config);
	if (config.no_run)
		assert_int_equal(frame_table_begin(ft, &config.run), 0);
	generation = ft->window.generation;
	memset(rig_queues, 0, sizeof(rig_queues));
	rig_roles(ft, 64);
	for (uint32_t l = 0; l < config.nb_rx; l++)
		rig_poll_queue(l, l);
}

static void
close_table(void)
{
	rig_roles_free(ft);
	rig_table_free(ft);
	assert_int_equal(rig_mbufs_out(), 0);
}

/**
 * Does a stream that was shifted in an act lose no packet in the next one? Numbers between its last
 * one and the window's may be those of late packets.
 */
static bool
is_back(const struct act *acts, uint32_t shifted_act)
{
	const struct act *before = &acts[shifted_act - 1], *next = &acts[shifted_act + 1];

	return next->silence &&
		(!next->restart || next->first < before->first + before->frames ||
			next->first > acts[shifted_act].first + FRAMES_MAX);
}

static void
make_story(struct act *acts, uint32_t *nb)
{
	const uint32_t streams = 1 + rig_below(&rng, 6);
	uint32_t nb_dead = 0, nb_astray = 0;
	uint64_t end = 0;

	rig_config(&config, &d, streams, 1);
	assert_int_equal(detector_expect(&d, 16 << rig_below(&rng, 2), NULL, 0), 0);
	config.nb_rx = 1 + rig_below(&rng, RTE_MIN(3u, streams));
	/* small enough for the pools */
	config.slots = 4 + rig_below(&rng, RTE_MIN(12u, 400 / d.expected));
	/* more than any stream lags */
	config.max_skew_frames = 2 + rig_below(&rng, config.slots - 3);
	config.resync_packets = 2 + rig_below(&rng, 3);
	config.max_gap_frames = 1000;
	config.stall_cycles = rte_get_tsc_hz() * 3600;
	loss = chance(50) ? 0 : rig_below(&rng, 60);
	duplicates = chance(50) ? 0 : rig_below(&rng, 50);
	disorder = chance(50) ? 0 : rig_below(&rng, 300);
	for (uint32_t s = 0; s < streams; s++) {
		config.owner[s] = rig_below(&rng, config.nb_rx);
		queue_of[s] = config.owner[s];
		role[s] = HONEST;
		lag[s] = chance(20);
		away[s] = shifted[s] = 0;
		/* the others are at least half of all, and more than the stray ones */
		if (2 * (nb_dead + nb_astray + 1) > streams || chance(65))
			continue;
		if (chance(30)) {
			role[s] = DEAD;
			nb_dead++;
		} else if (chance(30)) {
			away[s] = 1 + rig_below(&rng, 3);
			nb_dead++;
		} else if (chance(30) && nb_dead + 2 * (nb_astray + 1) < streams) {
			shifted[s] = 1 + rig_below(&rng, 3);
			nb_astray++;
		} else if (nb_dead + 2 * (nb_astray + 1) < streams) {
			role[s] = ASTRAY;
			nb_astray++;
		}
	}
	any_dead = nb_dead > 0;
	any_astray = nb_astray > 0;
	*nb = 1 + rig_below(&rng, ACTS);
	all_promised = true;
	orderly = true;
	for (uint32_t a = 0; a < *nb; a++) {
		acts[a] = next_act(a, a == 0 ? 0 : acts[a - 1].first, end);
		end = acts[a].first + acts[a].frames;
		orderly &= acts[a].promised;
		/* the RX role of a stray module that goes on may have room for one frame only */
		all_promised &= nb_astray == 0 || acts[a].silence || !acts[a].restart;
		restarts += acts[a].restart;
	}
	/* a stream that is late or astray can begin to count only after silence */
	for (uint32_t s = 0; s < streams; s++) {
		if (away[s] > 0 && away[s] < *nb)
			all_promised &= acts[away[s]].silence;
		if (shifted[s] > 0 && shifted[s] + 1 < *nb)
			all_promised &= is_back(acts, shifted[s]);
	}
	/* packets arrive before the search for a window begins */
	config.no_run = !any_dead && chance(30);
	open_table();
	/* wait until the dead streams are no longer expected */
	for (uint32_t i = 0; i < 12 && !config.no_run; i++) {
		pass_time(config.stall_cycles / 8);
		work(1);
	}
}

static int
by_number(const void *a, const void *b)
{
	const uint64_t *p = a, *q = b;

	return *p < *q ? -1 : *p > *q;
}

static uint32_t
unique(uint64_t *set, uint32_t n)
{
	uint32_t kept = 0;

	qsort(set, n, sizeof(*set), by_number);
	for (uint32_t i = 0; i < n; i++)
		if (kept == 0 || set[kept - 1] != set[i])
			set[kept++] = set[i];
	return kept;
}

static bool
any_waits(void)
{
	for (uint32_t l = 0; l < config.nb_rx; l++)
		if (rig_rx[l]->nb_pending > 0 || queued(l) > 0)
			return true;
	return false;
}

/** Let all timeouts expire, and take out the remaining frames. */
static void
end_story(void)
{
	struct frame_closed closed;

	tell("before the end");
	settle();
	for (uint32_t i = 0; i < 30 || (any_waits() && i < 1000); i++) {
		pass_time(config.stall_cycles / 8);
		work(4);
	}
	settle();
	frame_table_flush(ft);
	for (uint32_t l = 0; l < config.nb_rx; l++)
		rig_rx[l]->stop = true;
	while (!frame_table_flushed(ft)) {
		for (uint32_t l = 0; l < config.nb_rx; l++)
			rx_poll(rig_rx[l]);
		while (frame_table_close(ft, &closed)) {
			note(rows, &nb_rows, closed.frame);
			if (closed.packets > 0)
				process(&closed);
		}
	}
	for (uint32_t l = 0; l < config.nb_rx; l++)
		rx_poll(rig_rx[l]);
	frame_table_open(ft);
	tell("at the end");
}

static void
judge(void)
{
	uint32_t late = 0;

	nb_named = unique(named, nb_named);
	nb_rows = unique(rows, nb_rows);
	for (uint32_t i = 0, k = 0; i < nb_named; i++) {
		while (k < nb_rows && rows[k] < named[i])
			k++;
		late += k == nb_rows || rows[k] != named[i];
	}
	nb_stories++;
	nb_orderly += orderly;
	nb_promised += orderly && all_promised;
	nb_packets += sent;
	nb_restarts += restarts;
	nb_late += late;
	assert_int_equal(rig_count(ft, RX_PACKETS), sent);
	assert_int_equal(rig_outcomes(ft), sent);
	if (ft->builder->late_frames != late)
		fail_msg("%" PRIu64 " late frames, and %u have no row", ft->builder->late_frames,
			late);
	/* the first move is to the first window */
	if (orderly && ft->window.generation > generation + 1 + restarts)
		fail_msg("%u moves of the window, and %" PRIu64 " restarts",
			ft->window.generation - generation - 1, restarts);
	if (orderly && all_promised && found != sent_once)
		fail_msg("%" PRIu64 " of %" PRIu64 " packets found", found, sent_once);
}

static void
one_story(void)
{
	struct act acts[ACTS];
	uint32_t nb;

	nb_named = nb_rows = nb_strays = 0;
	memset(votes, 0, sizeof(votes));
	memset(last, 0xFF, sizeof(last));
	memset(last_before, 0xFF, sizeof(last_before));
	sent = sent_once = found = restarts = 0;
	stray_number = 700;
	make_story(acts, &nb);
	if (getenv("FRAME_TELL") != NULL) {
		print_message(
			"%u RX roles, %u slots, K %u, agree %u, loss %u, duplicates %u, disorder "
			"%u\n",
			config.nb_rx, config.slots, config.max_skew_frames, config.resync_packets,
			loss, duplicates, disorder);
		for (uint32_t s = 0; s < d.streams; s++)
			print_message(
				"stream %u: RX role %u, away %u, shifted %u, %s%s, %u packets\n", s,
				config.owner[s], away[s], shifted[s],
				role[s] == HONEST	  ? "honest"
					: role[s] == DEAD ? "dead"
							  : "astray",
				lag[s] ? ", lags" : "", detector_stream_expected(&d, s));
		for (uint32_t a = 0; a < nb; a++)
			print_message("act %u: %" PRIu64 " + %u%s%s%s\n", a, acts[a].first,
				acts[a].frames, acts[a].silence ? ", after silence" : "",
				acts[a].restart ? ", restart" : "",
				acts[a].promised ? "" : ", may lose");
	}
	play(acts, nb);
	end_story();
	judge();
	close_table();
}

/** Play a story for each seed, FRAME_SEEDS or `n` of them. @param kind  makes the stories differ */
static void
play_seeds(uint64_t n, uint32_t kind, void (*story)(void))
{
	const uint64_t first = rig_first_seed();

	n = rig_seeds(n);
	for (seed = first; seed < first + n; seed++) {
		rng = seed * UINT64_C(0x9E3779B97F4A7C15) + kind;
		story();
	}
	print_message("seeds %" PRIu64 " ... %" PRIu64 ":", first, first + n - 1);
}

static void
all_stories_complete(void **state)
{
	play_seeds(2000, 1, one_story);
	print_message(" %" PRIu64 " packets, %" PRIu64 " restarts, %" PRIu64
		      " late frames; %" PRIu64 " stories orderly, %" PRIu64 " without loss\n",
		nb_packets, nb_restarts, nb_late, nb_orderly, nb_promised);
}

#define SLOW_FRAMES 400
#define BUSY_FRAMES 200

/** One RX role with honest streams that lose nothing. Nothing times out by itself. */
static void
one_role(uint32_t streams, uint32_t read_out)
{
	nb_named = nb_rows = nb_strays = nb_processing = 0;
	sent = sent_once = found = restarts = 0;
	rig_config(&config, &d, streams, 1);
	assert_int_equal(detector_expect(&d, read_out, NULL, 0), 0);
	config.slots = 4 + rig_below(&rng, 13);
	config.max_skew_frames = 2 + rig_below(&rng, config.slots - 3);
	config.resync_packets = 2 + rig_below(&rng, 7);
	config.max_gap_frames = 100000;
	config.stall_cycles = rte_get_tsc_hz() * 3600;
	loss = duplicates = disorder = 0;
	for (uint32_t s = 0; s < streams; s++) {
		config.owner[s] = queue_of[s] = away[s] = shifted[s] = 0;
		role[s] = HONEST;
	}
}

/**
 * A detector of 50 frames in `stall_cycles` that goes on, and a receiver that stops now and then.
 */
static void
slow_story(void)
{
	const uint32_t streams = 1 + rig_below(&rng, 2);
	uint64_t number = 1 + rig_below(&rng, 5000);
	uint32_t stop = 0;

	slow = true;
	any_astray = stalled = orderly = false;
	nic_ring = 50 + rig_below(&rng, 900);
	one_role(streams, 16 << rig_below(&rng, 2));
	loss = chance(50) ? 0 : rig_below(&rng, 60);
	config.no_run = chance(30);
	open_table();
	/* as with the default of stream_timeout_ms */
	ft->deaf_cycles = config.stall_cycles / 20;
	for (uint32_t f = 0; f < SLOW_FRAMES; f++, number++) {
		if (chance(1))
			number += rig_below(&rng, 300);
		for (uint32_t s = 0; s < streams; s++)
			send_frame(s, number, 0);
		be_absent(config.stall_cycles / 50);
		if (stop == 0 && chance(3))
			stop = rig_below(&rng, 150);
		if (stop > 0)
			stop--;
		else
			work(1 + rig_below(&rng, 6));
	}
	stalled = false;
	slow = false;
	build();
	end_story();
	nb_packets += sent;
	assert_int_equal(rig_outcomes(ft), sent);
	/* at the end: too few to request a position */
	assert_true(rig_count(ft, RX_STOPPED) <= 4 * streams * config.resync_packets);
	if (ft->window.generation > generation + 1)
		fail_msg("%u moves of the window without a restart",
			ft->window.generation - generation - 1);
	close_table();
}

/**
 * A detector that restarts its numbers far back while packets wait for slots that gangs have. No
 * packet is lost.
 */
static void
busy_story(void)
{
	const uint32_t streams = 1 + rig_below(&rng, 3);
	uint64_t number = 10 * BUSY_FRAMES + rig_below(&rng, 5000);
	uint32_t act = 1, back;

	slow = busy = true;
	any_astray = stalled = false;
	orderly = all_promised = true;
	one_role(streams, 8 << rig_below(&rng, 4));
	config.refuse = false;
	config.no_run = false;
	if (getenv("FRAME_TELL") != NULL)
		print_message("%u streams, %u packets, %u slots, K %u, agree %u\n", streams,
			detector_stream_expected(&d, 0), config.slots, config.max_skew_frames,
			config.resync_packets);
	open_table();
	for (uint32_t f = 0; f < BUSY_FRAMES; f++, number++) {
		if (f % (BUSY_FRAMES / 4) == BUSY_FRAMES / 5) {
			/* two restarts before the window moves are another case */
			for (uint32_t i = 0; ft->window.generation < generation + 1 + restarts;
				i++) {
				work(1);
				assert_true(i < 3000);
			}
			/* to below all frames whose packets may wait */
			back = 2 * BUSY_FRAMES + rig_below(&rng, 40);
			if (getenv("FRAME_TELL") != NULL)
				print_message("from %" PRIu64 " back by %u\n", number, back);
			number -= back;
			restarts++;
			act++;
		}
		for (uint32_t s = 0; s < streams; s++)
			send_frame(s, number, act);
		if (chance(50))
			work(rig_below(&rng, 3));
	}
	stalled = false;
	slow = busy = false;
	build();
	end_story();
	judge();
	assert_int_equal(rig_count(ft, RX_PLACED), sent);
	close_table();
}

/** The run begins at a frame; one or two RX roles. */
static void
begin_at(uint32_t streams, uint64_t number)
{
	config.no_run = false;
	config.run.first_known = true;
	config.run.first_frame = number;
	config.nb_rx = 1 + rig_below(&rng, 2);
	for (uint32_t s = 0; s < streams; s++)
		config.owner[s] = queue_of[s] = s % config.nb_rx;
}

/**
 * A detector of 2000 frames in `stall_cycles`, and a receiver that keeps up and refuses frames
 * without slots. Up to half of the streams stop, for good or for a while: no frame is refused. Or
 * fewer than half send random numbers in the window: no frame of the others closes early.
 */
static void
stalled_story(void)
{
	const uint32_t streams = 2 + rig_below(&rng, 5);
	const bool forged = streams > 2 && chance(50);
	const uint32_t odd = 1 + rig_below(&rng, (streams - forged) / 2);
	/* half of the streams are enough if the others have sent nothing for 2000 / 64 frames */
	const uint32_t slots = (2 * odd == streams ? 50 : 16) + rig_below(&rng, 50);
	const uint32_t from = rig_below(&rng, 200), to = from + rig_below(&rng, 600);
	uint64_t number = 1 + rig_below(&rng, 5000);

	any_astray = orderly = all_promised = false;
	nb_early = 0;
	one_role(streams, 16);
	config.slots = slots;
	config.max_skew_frames = 1 + rig_below(&rng, slots / 4);
	config.refuse = true;
	begin_at(streams, number);
	for (uint32_t s = 0; s < odd && forged; s++)
		role[s] = ASTRAY;
	open_table();
	config.run.first_known = false;
	ft->deaf_cycles = config.stall_cycles / 20;
	for (uint32_t f = 0; f < 800; f++, number++) {
		for (uint32_t s = 0; s < streams; s++) {
			const bool is_odd = s < odd && f >= from && f < to;

			if (is_odd && forged)
				for (uint32_t p = 0; p < 4; p++)
					push(s, number + rig_below(&rng, slots / 8 * 7),
						d.expect_from[s] + p, 0);
			else if (!is_odd)
				send_frame(s, number, 0);
		}
		pass_time(config.stall_cycles / 2000);
		work(4);
	}
	end_story();
	nb_packets += sent;
	assert_int_equal(rig_outcomes(ft), sent);
	if (forged)
		assert_int_equal(nb_early, 0);
	else
		assert_int_equal(rig_count(ft, RX_PLACED), sent);
	assert_int_equal(ft->window.generation, generation + 1);
	config.run.first_frame = 0;
	close_table();
}

/**
 * As above, but fewer than half of the streams pause, then send the packets of the pause at once,
 * perhaps after the first ones of the next frame, and go on with the others. Soon after that, all
 * their packets are placed.
 */
static void
backlog_story(void)
{
	const uint32_t streams = 3 + rig_below(&rng, 4);
	const uint32_t odd = 1 + rig_below(&rng, (streams - 1) / 2);
	const uint32_t slots = 16 + rig_below(&rng, 50);
	const uint32_t from = 10 + rig_below(&rng, 100), to = from + 1 + rig_below(&rng, 300);
	const bool next_first = chance(60);
	uint64_t number = 1 + rig_below(&rng, 5000), settled = 0, placed = 0;
	uint32_t soon;

	any_astray = orderly = all_promised = false;
	one_role(streams, 16);
	config.slots = slots;
	config.max_skew_frames = 1 + rig_below(&rng, slots / 4);
	config.refuse = chance(80);
	begin_at(streams, number);
	soon = to + 2 * config.max_skew_frames + 4;
	open_table();
	config.run.first_known = false;
	ft->deaf_cycles = config.stall_cycles / 20;
	for (uint32_t f = 0; f < 800; f++, number++) {
		if (f == soon) {
			settle();
			settled = sent;
			placed = rig_count(ft, RX_PLACED);
		}
		for (uint32_t s = 0; s < streams; s++) {
			if (s >= odd || f < from || f > to) {
				send_frame(s, number, 0);
				continue;
			}
			if (f < to)
				continue;
			if (next_first)
				send_frame(s, number, 0);
			for (uint32_t i = from; i < to; i++)
				send_frame(s, number - to + i, 0);
			if (!next_first)
				send_frame(s, number, 0);
		}
		pass_time(config.stall_cycles / 2000);
		work(4);
	}
	end_story();
	nb_packets += sent;
	assert_int_equal(rig_outcomes(ft), sent);
	assert_int_equal(rig_count(ft, RX_PLACED) - placed, sent - settled);
	assert_int_equal(ft->window.generation, generation + 1);
	config.run.first_frame = 0;
	close_table();
}

static void
backlogs_are_processed_in_time(void **state)
{
	play_seeds(300, 5, backlog_story);
	print_message(" %" PRIu64 " packets\n", nb_packets);
}

static void
stalled_modules_cost_no_frame(void **state)
{
	play_seeds(300, 4, stalled_story);
	print_message(" %" PRIu64 " packets\n", nb_packets);
}

static void
busy_receiver_loses_nothing(void **state)
{
	play_seeds(1000, 3, busy_story);
	print_message(" %" PRIu64 " packets, %" PRIu64 " restarts\n", nb_packets, nb_restarts);
}

static void
slow_receiver_does_not_move_the_window(void **state)
{
	play_seeds(1000, 2, slow_story);
	print_message(
		" %" PRIu64 " packets, %" PRIu64 " dropped by the NIC\n", nb_packets, nic_dropped);
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
		cmocka_unit_test_teardown(slow_receiver_does_not_move_the_window, say_seed),
		cmocka_unit_test_teardown(busy_receiver_loses_nothing, say_seed),
		cmocka_unit_test_teardown(stalled_modules_cost_no_frame, say_seed),
		cmocka_unit_test_teardown(backlogs_are_processed_in_time, say_seed),
		cmocka_unit_test_teardown(all_stories_complete, say_seed),
	};

	if (rig_eal(argv[0]) < 0)
		return 1;
	rig_port();
	if (getenv("FRAME_TEST") != NULL)
		cmocka_set_test_filter(getenv("FRAME_TEST"));
	if (getenv("FRAME_TELL") != NULL)
		rte_log_set_level_pattern("braggline.frames", RTE_LOG_DEBUG);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
