/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The transfer protocol with one receiver and two stores, for spin: app/common/xfer/README.rst.
 *
 * Batches go from the receiver's journal to stores and into their files, or are spilled into a
 * file of the receiver's own. Anybody may crash at any moment: a receiver keeps its journal
 * (what is held, whose it is, what was moved) and what it has spilled, a store its file; a power
 * failure may take of a file what was not synced. Connections may be cut, and what was written into
 * them may arrive late. Somebody may import and reconcile while a receiver is down (xfer_tools.pml;
 * xfer_store.pml is a store). Claims:
 *
 *  - exactly once: when all is released and reconciled, each batch is in one file, once;
 *  - no lost acknowledgement: what the receiver releases is durable, and stays so;
 *  - no place is used twice: what a store writes to disk is the body that the entry announced;
 *  - nobody waits for ever: spin finds no invalid end state.
 *
 * Each can fail: xfer_model.sh also runs mutations, each of which leaves out one rule.
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

/* How often connections are cut or somebody crashes, how many batches go elsewhere then, how often
 * somebody imports or reconciles in the middle of it, and how often that is killed. */
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

/* type, connection, place or set of batches, batch */
chan to[STORES] = [4] of { mtype, byte, byte, byte };
chan from[STORES] = [3] of { mtype, byte, byte, byte };

/* ---- what survives the receiver: its journal ----------------------------------------- */

byte held = ALL;	     /* not released */
byte owner[BATCHES] = NOBODY; /* to whom it was given */
byte moved[STORES];	     /* may be there, and went elsewhere */

/* ---- what survives: files of the stores, and what the receiver has spilled ------------------ */

typedef disk {
	byte batch[BATCHES];
	byte length;
	byte synced; /* at least so many survive */
};
disk file[STORES + 1];

bool broken[STORES]; /* a store has crashed, and the receiver has not noticed */
byte connections[STORES]; /* their numbers, as rkeys, are never used twice */
byte faults = FAULTS;
byte moves = MOVES;

mtype = { RUNS, DEAD, FINISHED };
mtype life = RUNS; /* of the receiver; while it runs it has locks on its ring and what it spills */
bool over;
#if TOOLS > 0
byte tools = TOOLS;
byte kills = KILLS;
bool working;	     /* somebody who is no receiver has these locks */
bool stop[STORES];   /* the same of a store's directory: */
bool stopped[STORES]; /* it does not run */
bool dirty;	     /* only `reconcile` can tell now what is there twice */
byte begun[STORES];  /* where files begin that an import has made */
#endif

#define DOWN 0
#define WAITING 1
#define UP 2

/* The receiver's, of each store. */
byte link[STORES] = DOWN;
byte conn[STORES];
byte sent[STORES];	   /* batches, on this connection */
byte places[STORES]; /* that are free */

/* ---- the receiver --------------------------------------------------------------------------- */

hidden byte i; /* of d_steps */
hidden byte k;
hidden byte yes;
hidden byte n;

/* Whether a batch is among the first of a file. */
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

/* Before anything else a store learns what went elsewhere. */
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
	:: else /* of a connection before */
	fi;
	e = 0;
	x = 0;
	b = 0
}

/* It dies when it has released one of those. */
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

/* The oldest that is this store's, or nobody's: body, then entry with immediate. */
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
/* A WRITE that the network holds back for a while. */
bool late;
byte late_store;
byte late_place;
byte late_batch;
#endif

/* The queue pair drains: nothing more comes out of it. What it wrote may still be on its way. */
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

/* ---- batches that no store takes: files of the receiver's own ------------------------------- */

#ifdef SPILL_WHILE_CONNECTING
#define IS_GONE(s) (s < STORES && link[s] != UP)
#else
#define IS_GONE(s) (s < STORES && link[s] == DOWN)
#endif
#define MAY_SPILL(b) (IN(held, b) && (owner[b] == NOBODY || IS_GONE(owner[b])))
#define CAN_SPILL (moves > 0 && (MAY_SPILL(0) || MAY_SPILL(1) || MAY_SPILL(BATCHES - 1)))

/* Written down in the ring first: who adopts it has to look into the file. */
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

/* The first that is not in a file yet, or not durable. */
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

/* ---- its life ------------------------------------------------------------------------------- */

/* What was spilled is the file's. What is in no file any more was imported by somebody, who sees to
 * it that it is nowhere else: stores are not to cut that off. */
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

	/* no store takes it */
	:: d_step { CAN_SPILL -> spill() }
	:: d_step { SPILLING -> spill_one() }
	:: d_step { SPILLING -> spill_result() }

	/* crash: what is not in the journal is forgotten */
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
