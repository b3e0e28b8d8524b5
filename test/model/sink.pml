/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sink protocol with one receiver and two stores, for spin: app/common/sink/README.rst.
 *
 * Batches go from the receiver's retention to stores and into their files. Anybody may crash at any
 * moment: a receiver keeps its retention ring (what is held, whose it is, what was moved), a store
 * its file, of which a power failure may take what was not synced. Connections may be cut, and what
 * was written into them may arrive late. Claims:
 *
 *  - exactly once: when all is released and reconciled, each batch is in one file, once;
 *  - no lost acknowledgement: what the receiver releases is durable, and stays so;
 *  - no place is used twice: what a store writes to disk is the body that the entry announced;
 *  - nobody waits for ever: spin finds no invalid end state.
 *
 * Each can fail: sink_model.sh also runs mutations, each of which leaves out one rule.
 */

#ifndef BATCHES
#define BATCHES 3
#endif
#define PLACES 2
#define STORES 2
#define NOBODY STORES

/* How often connections are cut or somebody crashes, and how many batches go elsewhere then. */
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef MOVES
#define MOVES 2
#endif

#define IN(set, b) (((set) >> (b)) & 1)
#define WITH(set, b) ((set) | (1 << (b)))
#define WITHOUT(set, b) ((set) & ~(1 << (b)))
#define ALL ((1 << BATCHES) - 1)
#define ALL_FREE ((1 << PLACES) - 1)

mtype = { CONNECT, BODY, IMM, HAVE, RESULT };

/* type, connection, place or set of batches, batch */
chan to[STORES] = [4] of { mtype, byte, byte, byte };
chan from[STORES] = [3] of { mtype, byte, byte, byte };

/* ---- what survives the receiver: its retention ring -------------------------------------------- */

byte held = ALL;	     /* not released */
byte owner[BATCHES] = NOBODY; /* to whom it was given */
byte moved[STORES];	     /* may be there, and went elsewhere */

/* ---- what survives a store: its file ----------------------------------------------------------- */

typedef disk {
	byte batch[BATCHES];
	byte length;
	byte synced; /* at least so many survive */
};
disk file[STORES];

bool broken[STORES]; /* a store has crashed, and the receiver has not noticed */
byte connections;    /* their numbers, as rkeys, are never used twice */
byte faults = FAULTS;
byte moves = MOVES;
bool finished;

#define DOWN 0
#define WAITING 1
#define UP 2

/* The receiver's, of each store. */
byte link[STORES] = DOWN;
byte conn[STORES];
byte sent[STORES];	   /* batches, on this connection */
byte places[STORES]; /* that are free */

/* ---- the receiver ------------------------------------------------------------------------------- */

hidden byte i; /* of d_steps */
hidden byte k;
hidden byte yes;

inline release(s, b)
{
	yes = false;
	i = 0;
	do
	:: i < file[s].synced ->
		if
		:: file[s].batch[i] == b -> yes = true
		:: else
		fi;
		i++
	:: else -> break
	od;
	assert(yes); /* no lost acknowledgement */
	held = WITHOUT(held, b)
}

#define CAN_CONNECT(s) (link[s] == DOWN && !broken[s] && len(to[s]) < 4)

/* Before anything else a store learns what went elsewhere. */
inline connect(s)
{
	connections++;
	conn[s] = connections;
	link[s] = WAITING;
#ifdef NO_MOVED
	to[s]!CONNECT(connections, 0, 0)
#else
	to[s]!CONNECT(connections, moved[s], 0)
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
#define CAN_MOVE(s) (moves > 0 && CAN_LEAVE(s) && (GIVEN(s, 0) || GIVEN(s, 1) || GIVEN(s, BATCHES - 1)))

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

active proctype receiver()
{
	byte e, x, b;

	do
	:: d_step { CAN_CONNECT(0) -> connect(0) }
	:: d_step { CAN_CONNECT(1) -> connect(1) }
	:: d_step { from[0]?HAVE(e, x, b) -> take_have(0) }
	:: d_step { from[1]?HAVE(e, x, b) -> take_have(1) }
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

	/* crash: what is not in the retention ring is forgotten */
	:: d_step {
		faults > 0 && (link[0] != DOWN || link[1] != DOWN) ->
		faults--;
		down(0);
		down(1);
#ifdef FORGET_MOVED
		moved[0] = 0;
		moved[1] = 0;
#endif
		k = 0
	}

	:: d_step { held == 0 && moved[0] == 0 && moved[1] == 0 -> finished = true } -> break
	od;
	skip; /* spin lets no break lead into a d_step */

	/* exactly once: reconciled, so nothing is in doubt */
	d_step {
		k = 0;
		do
		:: k < BATCHES ->
			b = 0;
			i = 0;
			do
			:: i < file[0].length -> b = b + (file[0].batch[i] == k); i++
			:: else -> break
			od;
			i = 0;
			do
			:: i < file[1].length -> b = b + (file[1].batch[i] == k); i++
			:: else -> break
			od;
			assert(b == 1);
			k++
		:: else -> break
		od;
		k = 0
	}
}

/* ---- stores ------------------------------------------------------------------------------------- */

inline write_one(s)
{
	/* no place is used twice: the body is still the one that was announced */
	assert(memory[place[0]] == taken[0]);
	file[s].batch[file[s].length] = taken[0];
	place_of[file[s].length] = place[0];
	file[s].length++;
	i = 1;
	do
	:: i < nb -> taken[i - 1] = taken[i]; place[i - 1] = place[i]; i++
	:: else -> break
	od;
	nb--;
	taken[nb] = 0;
	place[nb] = 0
}

inline look(s, b)
{
	yes = false;
	i = 0;
	do
	:: i < file[s].length -> yes = yes || (file[s].batch[i] == b); i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < nb -> yes = yes || (taken[i] == b); i++
	:: else -> break
	od
}

/* What was moved is cut off, from the first one on: what follows is still the receiver's. */
inline cut_off(s, set)
{
	i = 0;
	do
	:: i < file[s].length && !IN(set, file[s].batch[i]) -> i++
	:: else -> break
	od;
	do
	:: file[s].length > i ->
		file[s].length--;
		file[s].batch[file[s].length] = 0
	:: else -> break
	od;
	if
	:: file[s].synced > file[s].length -> file[s].synced = file[s].length
	:: else
	fi
}

inline have(s)
{
	x = 0;
	i = 0;
	do
	:: i < file[s].synced -> x = WITH(x, file[s].batch[i]); i++
	:: else -> break
	od
}

#ifdef GRANT_BEFORE_SETTLED
#define SETTLED true
#else
#define SETTLED (nb == 0 && file[s].synced == file[s].length)
#endif

proctype store(byte s)
{
	byte current;	      /* connection whose writes the memory takes */
	byte memory[PLACES];  /* bodies */
	byte taken[PLACES];   /* announced, not written yet */
	byte place[PLACES];
	byte nb;
	byte place_of[BATCHES]; /* of what is in the file */
	byte reported;		/* of the file */
	byte e, x, b;

alive:
	do
	/* what was taken is settled first: it is in the file, or it is nowhere */
	:: d_step {
		/* what was written before may still be on its way */
		(to[s]??[CONNECT, _, _, _] && len(from[s]) < 3 && SETTLED) ->
		to[s]??CONNECT(e, x, b);
		current = e;
		cut_off(s, x);
		have(s);
		reported = file[s].length;
		from[s]!HAVE(e, x, 0);
		e = 0;
		x = 0;
		b = 0
	}
	:: d_step {
		to[s]?BODY(e, x, b) ->
		if
		:: e == current -> memory[x] = b
		:: else /* its rkey is gone */
		fi;
		e = 0;
		x = 0;
		b = 0
	}
	:: d_step {
		(len(from[s]) < 3 && to[s]?[IMM, _, _, _]) ->
		to[s]?IMM(e, x, b);
		look(s, b);
		if
		:: e == current && !yes ->
			taken[nb] = b;
			place[nb] = x;
			nb++
		:: e == current && yes -> from[s]!RESULT(current, x, b)
		:: else
		fi;
		e = 0;
		x = 0;
		b = 0
	}
#ifdef OLD_KEYS
	:: d_step { late && late_store == s -> late = false; memory[late_place] = late_batch }
#endif
	:: d_step { nb > 0 -> write_one(s) }
	:: d_step { file[s].synced < file[s].length -> file[s].synced = file[s].length }
#ifdef ACK_BEFORE_SYNC
	:: d_step {
		reported < file[s].length && len(from[s]) < 3 ->
#else
	:: d_step {
		reported < file[s].synced && len(from[s]) < 3 ->
#endif
		from[s]!RESULT(current, place_of[reported], file[s].batch[reported]);
		reported++
	}

	/* the power fails: any part of what was not synced is lost */
	:: d_step { faults > 0 -> faults-- } -> goto crash
	:: finished -> break
	od;
	goto end;

crash:
	if
	:: file[s].length > file[s].synced ->
		d_step { file[s].length--; file[s].batch[file[s].length] = 0 };
		goto crash
	:: true
	fi;
	d_step {
		file[s].synced = file[s].length;
		broken[s] = true;
		current = 0;
		nb = 0;
		reported = 0;
		i = 0;
		do
		:: i < PLACES -> memory[i] = 0; taken[i] = 0; place[i] = 0; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < BATCHES -> place_of[i] = 0; i++
		:: else -> break
		od;
		do
		:: nempty(to[s]) -> to[s]?_, _, _, _
		:: empty(to[s]) -> break
		od;
		i = 0
	}
	goto alive;
end:
	skip
}

init
{
	atomic {
		run store(0);
		run store(1)
	}
}
