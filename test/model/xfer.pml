/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model for spin of the transfer protocol with one receiver and two stores:
 * app/common/xfer/README.rst.
 *
 * Batches go from the receiver's journal to stores and into their files, or the receiver spills
 * them into a file of its own. Each side may crash at any moment. A receiver keeps its journal
 * (held batches, their stores, reassigned batches) and its spilled file, a store keeps its file. A
 * power failure may remove data that is not synced from a file. Connections may break, and their
 * WRITEs may arrive late. An operator may run import and reconcile while a receiver is down
 * (xfer_tools.pml; xfer_store.pml is a store). Claims:
 *
 * - exactly once: when all batches are released and reconciled, each is in exactly one file, once;
 * - no lost acknowledgement: a batch that the receiver releases is durable and remains so;
 * - no slot is reused too early: a store writes the body to disk that the descriptor announced;
 * - no deadlock: spin finds no invalid end state.
 *
 * Each claim can fail: xfer_model.sh also runs mutations, each of which omits one rule.
 */

#ifndef BATCHES
#define BATCHES 3
#endif
#ifndef PLACES
#define PLACES 2
#endif
#define STORES 2
#define SPILL STORES
#define NOBODY (STORES + 1)

/*
 * Maximum number of broken connections and crashes, of batches that are reassigned or spilled, of
 * runs of import or reconcile before the end, and of kills of these.
 */
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef TOOLS
#define TOOLS 0
#endif
#ifndef KILLS
#define KILLS 1
#endif

#define IN(set, b) (((set) >> (b)) & 1)
#define WITH(set, b) ((set) | (1 << (b)))
#define WITHOUT(set, b) ((set) & ~(1 << (b)))
#define ALL ((1 << BATCHES) - 1)
#define ALL_FREE ((1 << PLACES) - 1)

mtype = { CONNECT, BODY, IMM, INVENTORY, RESULT };

/* type, connection, slot or set of batches, batch */
chan to[STORES] = [4] of { mtype, byte, byte, byte };
chan from[STORES] = [3] of { mtype, byte, byte, byte };

/* ---- persistent: the receiver's journal ---------------------------------------------- */

byte held = ALL;	     /* not released */
byte owner[BATCHES] = NOBODY; /* store that it was given to */
byte moved[STORES];	     /* the store may have it, but it was reassigned */

/* ---- persistent: files of the stores, and the receiver's spilled file ----------------------- */

typedef disk {
	byte batch[BATCHES];
	byte length;
	byte synced; /* number of batches that certainly survive */
};
disk file[STORES + 1];

bool broken[STORES]; /* a store has crashed, and the receiver has not noticed */
byte connections[STORES]; /* number of the last one; like an rkey it is never reused */
byte faults = FAULTS;
byte moves = MOVES;

mtype = { RUNS, DEAD, FINISHED };
mtype life = RUNS; /* of the receiver; while it runs it locks its journal and its spilled file */
bool over;
#if TOOLS > 0
byte tools = TOOLS;
byte kills = KILLS;
bool working;	     /* an operator holds these locks */
bool stop[STORES];   /* a store is requested to stop, so that its directory can be locked: */
bool stopped[STORES]; /* it has stopped */
bool dirty;	     /* only `reconcile` can find duplicates now */
byte begun[STORES];  /* positions at which an import has begun a file */
#endif

#define DOWN 0
#define WAITING 1
#define UP 2

/* The receiver's connection to each store. */
byte link[STORES] = DOWN;
byte conn[STORES];
byte sent[STORES];	   /* batches sent on this connection */
byte places[STORES]; /* free slots */

/* ---- the receiver --------------------------------------------------------------------------- */

hidden byte i; /* for d_steps */
hidden byte k;
hidden byte yes;
hidden byte n;

/* yes = a batch is among the first end_of of a file */
inline find(s, b, end_of)
{
	yes = false;
	i = 0;
	do
	:: i < end_of -> yes = yes || (file[s].batch[i] == b); i++
	:: else -> break
	od
}

inline release(s, b)
{
	find(s, b, file[s].synced);
	assert(yes); /* no lost acknowledgement */
	held = WITHOUT(held, b)
}

#define CAN_CONNECT(s) (link[s] == DOWN && !broken[s] && len(to[s]) < 4)

/* A store gets the set of reassigned batches before anything else. */
inline connect(s)
{
	connections[s]++;
	conn[s] = connections[s];
	link[s] = WAITING;
#ifdef NO_REASSIGNED
	to[s]!CONNECT(conn[s], 0, 0)
#else
	to[s]!CONNECT(conn[s], moved[s], 0)
#endif
}

inline take_have(s)
{
	if
	:: e == conn[s] && link[s] == WAITING ->
		k = 0;
		do
		:: k < BATCHES ->
			if
			:: IN(x, k) && IN(held, k) -> release(s, k)
			:: else
			fi;
			k++
		:: else -> break
		od;
		moved[s] = 0;
		sent[s] = 0;
		places[s] = ALL_FREE;
		link[s] = UP
	:: else /* of an earlier connection */
	fi;
	e = 0;
	x = 0;
	b = 0
}

/* The receiver crashes after it has released one of the batches. */
inline take_some(s)
{
	faults--;
#ifdef FOUND_IN_ANY_ORDER
	k = BATCHES - 1;
	do
	:: k > 0 && !(IN(x, k) && IN(held, k)) -> k--
#else
	k = 0;
	do
	:: k < BATCHES - 1 && !(IN(x, k) && IN(held, k)) -> k++
#endif
	:: else -> break
	od;
	if
	:: e == conn[s] && link[s] == WAITING && IN(x, k) && IN(held, k) -> release(s, k)
	:: else
	fi;
	down(0);
	down(1);
	e = 0;
	x = 0;
	b = 0;
	k = 0
}

inline take_result(s)
{
	if
	:: e == conn[s] && link[s] == UP ->
		places[s] = WITH(places[s], x);
		if
		:: IN(held, b) -> release(s, b)
		:: else
		fi
	:: else
	fi;
	e = 0;
	x = 0;
	b = 0
}

#define SENDS(s, b) \
	(IN(held, b) && !IN(sent[s], b) && (owner[b] == s || owner[b] == NOBODY))
#define CAN_SEND(s) \
	(link[s] == UP && places[s] != 0 && len(to[s]) < 3 && \
		(SENDS(s, 0) || SENDS(s, 1) || SENDS(s, BATCHES - 1)))

/*
 * Send the oldest batch that belongs to this store or to none: body, then descriptor with
 * immediate.
 */
inline send(s)
{
	k = 0;
	do
	:: SENDS(s, k) -> break
	:: else -> k++
	od;
	i = 0;
	do
	:: IN(places[s], i) -> break
	:: else -> i++
	od;
	owner[k] = s;
	sent[s] = WITH(sent[s], k);
#ifndef REUSE_AT_ONCE
	places[s] = WITHOUT(places[s], i);
#endif
	to[s]!BODY(conn[s], i, k);
	to[s]!IMM(conn[s], i, k);
#ifdef RELEASE_WHEN_SENT
	held = WITHOUT(held, k)
#endif
}

#define GIVEN(s, b) (IN(held, b) && owner[b] == s)
#ifdef MOVE_WHILE_CONNECTING
#define CAN_LEAVE(s) (link[s] != UP)
#else
#define CAN_LEAVE(s) (link[s] == DOWN)
#endif
#define CAN_MOVE(s) \
	(moves > 0 && CAN_LEAVE(s) && (GIVEN(s, 0) || GIVEN(s, 1) || GIVEN(s, BATCHES - 1)))

inline move(s)
{
	k = 0;
	do
	:: GIVEN(s, k) -> break
	:: else -> k++
	od;
	moves--;
	moved[s] = WITH(moved[s], k);
	sent[1 - s] = WITHOUT(sent[1 - s], k);
	owner[k] = 1 - s
}

#ifdef OLD_KEYS
/* A WRITE that is delayed in the network. */
bool late;
byte late_store;
byte late_place;
byte late_batch;
#endif

/* The queue pair is closed: it delivers no more messages. Its WRITEs may still be in flight. */
inline down(s)
{
	link[s] = DOWN;
	conn[s] = 0;
	sent[s] = 0;
	places[s] = 0;
#ifdef OLD_KEYS
	if
	:: to[s]??[BODY, _, _, _] ->
		to[s]??BODY(k, late_place, late_batch);
		late = true;
		late_store = s
	:: else
	fi;
#endif
	do
	:: nempty(from[s]) -> from[s]?_, _, _, _
	:: empty(from[s]) -> break
	od;
	k = 0
}

/* ---- batches that no store takes: the receiver's spilled file ------------------------------- */

#ifdef SPILL_WHILE_CONNECTING
#define IS_GONE(s) (s < STORES && link[s] != UP)
#else
#define IS_GONE(s) (s < STORES && link[s] == DOWN)
#endif
#define MAY_SPILL(b) (IN(held, b) && (owner[b] == NOBODY || IS_GONE(owner[b])))
#define CAN_SPILL (moves > 0 && (MAY_SPILL(0) || MAY_SPILL(1) || MAY_SPILL(BATCHES - 1)))

/* The journal records it first, so that a receiver that adopts it reads the file. */
inline spill()
{
	k = 0;
	do
	:: MAY_SPILL(k) -> break
	:: else -> k++
	od;
	moves--;
	if
	:: owner[k] < STORES -> moved[owner[k]] = WITH(moved[owner[k]], k)
	:: else
	fi;
	owner[k] = SPILL;
	k = 0
}

#define OF_SPILL(b) (IN(held, b) && owner[b] == SPILL)
#define SPILLING (OF_SPILL(0) || OF_SPILL(1) || OF_SPILL(BATCHES - 1))

/* The next batch that is not in the file yet, or a sync. */
inline spill_one()
{
	k = 0;
	do
	:: k < BATCHES && OF_SPILL(k) ->
		find(SPILL, k, file[SPILL].length);
		if
		:: yes -> k++
		:: else -> break
		fi
	:: k < BATCHES && !OF_SPILL(k) -> k++
	:: else -> break
	od;
	if
	:: k < BATCHES ->
		file[SPILL].batch[file[SPILL].length] = k;
		file[SPILL].length++
	:: else -> file[SPILL].synced = file[SPILL].length
	fi;
	k = 0
}

#ifdef RELEASE_BEFORE_SPILLED
#define SPILLED file[SPILL].length
#else
#define SPILLED file[SPILL].synced
#endif

inline spill_result()
{
	k = 0;
	do
	:: k < BATCHES && OF_SPILL(k) ->
		find(SPILL, k, SPILLED);
		if
		:: yes -> release(SPILL, k); break
		:: else -> k++
		fi
	:: k < BATCHES && !OF_SPILL(k) -> k++
	:: else -> break
	od;
	k = 0
}

/* ---- the receiver's life -------------------------------------------------------------------- */

/*
 * Spilled batches belong to the file. A batch that is in no file any more was imported by an
 * operator, who ensures that it is nowhere else. So stores must not remove it.
 */
inline adopt()
{
	k = 0;
	do
	:: k < BATCHES && owner[k] == SPILL ->
		find(SPILL, k, file[SPILL].length);
		if
#ifndef ADOPT_BLINDLY
		:: IN(held, k) && yes -> held = WITHOUT(held, k)
		:: IN(held, k) && !yes -> owner[k] = NOBODY
#else
		:: IN(held, k) -> owner[k] = NOBODY
#endif
#ifndef KEEP_DOUBTS
		:: !IN(held, k) && !yes ->
			moved[0] = WITHOUT(moved[0], k);
			moved[1] = WITHOUT(moved[1], k)
#endif
		:: else
		fi;
		k++
	:: k < BATCHES && owner[k] != SPILL -> k++
	:: else -> break
	od;
	k = 0
}

#if TOOLS > 0
#define CAN_START !working
#else
#define CAN_START true
#endif

active proctype receiver()
{
	byte e, x, b;

runs:
	do
	:: d_step { CAN_CONNECT(0) -> connect(0) }
	:: d_step { CAN_CONNECT(1) -> connect(1) }
	:: d_step { from[0]?INVENTORY(e, x, b) -> take_have(0) }
	:: d_step { from[1]?INVENTORY(e, x, b) -> take_have(1) }
	:: d_step { faults > 0 && from[0]?[INVENTORY, e, x, b] -> from[0]?INVENTORY(e, x, b); take_some(0) }
		-> goto crash
	:: d_step { faults > 0 && from[1]?[INVENTORY, e, x, b] -> from[1]?INVENTORY(e, x, b); take_some(1) }
		-> goto crash
	:: d_step { from[0]?RESULT(e, x, b) -> take_result(0) }
	:: d_step { from[1]?RESULT(e, x, b) -> take_result(1) }
	:: d_step { CAN_SEND(0) -> send(0) }
	:: d_step { CAN_SEND(1) -> send(1) }
	:: d_step { CAN_MOVE(0) -> move(0) }
	:: d_step { CAN_MOVE(1) -> move(1) }

	/* connections break */
	:: d_step { faults > 0 && link[0] != DOWN -> faults--; down(0) }
	:: d_step { faults > 0 && link[1] != DOWN -> faults--; down(1) }
	:: d_step { broken[0] -> broken[0] = false; down(0) }
	:: d_step { broken[1] -> broken[1] = false; down(1) }

	/* no store takes the batch */
	:: d_step { CAN_SPILL -> spill() }
	:: d_step { SPILLING -> spill_one() }
	:: d_step { SPILLING -> spill_result() }

	/* crash: only the journal and the spilled file survive */
	:: d_step {
		faults > 0 && (link[0] != DOWN || link[1] != DOWN || SPILLING) ->
		faults--;
		down(0);
		down(1);
#ifdef FORGET_REASSIGNED
		moved[0] = 0;
		moved[1] = 0;
#endif
		k = 0
	} -> goto crash

	:: d_step { held == 0 && moved[0] == 0 && moved[1] == 0 -> life = FINISHED } -> goto end
	od;

crash:
	if
	:: file[SPILL].length > file[SPILL].synced ->
		d_step {
			file[SPILL].length--;
			file[SPILL].batch[file[SPILL].length] = 0
		};
		goto crash
	:: true
	fi;
	d_step { file[SPILL].synced = file[SPILL].length; life = DEAD };
	d_step { CAN_START -> life = RUNS; broken[0] = false; broken[1] = false; adopt() };
	goto runs;
end:
	skip
}

#include "xfer_store.pml"
#include "xfer_tools.pml"

init
{
	atomic {
		run store(0);
		run store(1)
	}
}
