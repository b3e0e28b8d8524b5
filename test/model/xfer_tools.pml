/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `braggline-store import` and `reconcile`, for xfer.pml. They work on directories of stopped
 * stores, and on the spilled file and the journal of a receiver that is dead or has released them.
 * They may be killed at any moment, with a power failure.
 *
 * A run that has ended in order needs no `reconcile`, nor does an import of spilled batches after
 * its end. After an import while the receiver was dead, only `reconcile` finds duplicates: it runs
 * at the end at the latest. An import goes to store 0, as both stores behave the same.
 */

#if TOOLS > 0

/* ---- import --------------------------------------------------------------------------------- */

/* Append a batch to a directory. */
inline add(s, b)
{
	file[s].batch[file[s].length] = b;
	file[s].length++
}

/* Import the next batch that store 0 does not have; then sync; then remove the source. */
inline import_spilled()
{
	k = 0;
	do
	:: k < file[SPILL].length ->
		n = file[SPILL].batch[k];
		find(0, n, file[0].length);
		if
		:: yes -> k++
		:: else -> break
		fi
	:: else -> break
	od;
	if
	:: k < file[SPILL].length -> add(0, n)
#ifndef REMOVE_BEFORE_SYNC
	:: k == file[SPILL].length && file[0].synced < file[0].length ->
		file[0].synced = file[0].length
#endif
	:: else ->
		file[SPILL].length = 0;
		file[SPILL].synced = 0;
		i = 0;
		do
		:: i < BATCHES -> file[SPILL].batch[i] = 0; i++
		:: else -> break
		od
	fi;
	k = 0
}

/* The same for batches in the journal, which are released. */
inline import_held()
{
	k = 0;
	do
	:: k < BATCHES && IN(held, k) ->
		find(0, k, file[0].length);
		if
		:: yes -> k++
		:: else -> break
		fi
	:: k < BATCHES && !IN(held, k) -> k++
	:: else -> break
	od;
	if
	:: k < BATCHES -> add(0, k)
	:: k == BATCHES && file[0].synced < file[0].length -> file[0].synced = file[0].length
	:: else ->
		k = 0;
		do
		:: IN(held, k) -> break
		:: else -> k++
		od;
		release(0, k)
	fi;
	k = 0
}

/* ---- reconcile ------------------------------------------------------------------------------ */

#define HAS_AT(f, b, at) (file[f].length > at && file[f].batch[at] == b)
#define HAS(f, b) (HAS_AT(f, b, 0) || HAS_AT(f, b, 1) || (BATCHES > 2 && HAS_AT(f, b, BATCHES - 1)))
#define TWICE(f, b) (HAS(f, b) && (HAS((f + 1) % 3, b) || HAS((f + 2) % 3, b)))
#define DOUBLES(f) (TWICE(f, 0) || TWICE(f, 1) || TWICE(f, BATCHES - 1))
#define ALL_ONCE (alone == 0 && !DOUBLES(0) && !DOUBLES(1)) /* no duplicates left */

#define STORED(b) (IN(held, b) && (HAS(0, b) || HAS(1, b) || HAS(SPILL, b)))
#define ANY_STORED (STORED(0) || STORED(1) || STORED(BATCHES - 1))

/*
 * Truncate a directory at its first duplicate. Batches after it that exist nowhere else are copied.
 */
inline cut_doubles(f)
{
	i = 0;
	do
	:: TWICE(f, file[f].batch[i]) -> break
	:: else -> i++
	od;
	k = i;
	do
	:: k < file[f].length ->
		if
		:: !TWICE(f, file[f].batch[k]) -> alone = WITH(alone, file[f].batch[k])
		:: else
		fi;
		k++
	:: else -> break
	od;
	do
	:: file[f].length > i ->
		file[f].length--;
		file[f].batch[file[f].length] = 0
	:: else -> break
	od;
	file[f].synced = i;
	cutting = f
}

inline add_alone()
{
	k = 0;
	do
	:: k < BATCHES ->
		if
		:: IN(alone, k) -> add(cutting, k)
		:: else
		fi;
		k++
	:: else -> break
	od;
	file[cutting].synced = file[cutting].length;
	alone = 0;
	cutting = 0;
	k = 0
}

#ifdef CUT_BEFORE_COPY
#define COPIED(f) cut_doubles(f)
#else
#define COPIED(f) cut_doubles(f); add_alone()
#endif

inline release_stored()
{
	k = 0;
	do
	:: STORED(k) -> break
	:: else -> k++
	od;
	held = WITHOUT(held, k);
	k = 0
}

#endif

/* ---- the operator --------------------------------------------------------------------------- */

inline count(s, b)
{
	i = 0;
	do
	:: i < file[s].length -> n = n + (file[s].batch[i] == b); i++
	:: else -> break
	od
}

/* A running receiver locks its spilled file until it has an inventory from all stores. */
#ifdef IMPORT_WHILE_SPILLING
#define UNLOCKED true
#else
#define UNLOCKED (life != RUNS)
#endif

active proctype operator()
{
#if TOOLS > 0
	bool ring;  /* it is imported as well */
	bool again; /* an import was killed */
	byte alone, cutting;

idle:
	if
	:: d_step { tools > 0 && UNLOCKED -> tools--; working = true } ->
		if
		:: goto import
		:: life == DEAD -> goto reconcile
		fi
	:: life == FINISHED && (dirty || again) -> goto reconcile
	:: life == FINISHED && again -> goto import
	:: life == FINISHED && !dirty && !again -> goto end
	fi;

import:
	skip; /* spin allows no goto into a d_step */
	d_step { working = true; dirty = dirty || (life == DEAD); stop[0] = true };
	stopped[0];
	if
	/* no store will be notified any more of reassigned batches */
	:: d_step { life == DEAD -> ring = true; moved[0] = 0; moved[1] = 0 }
	:: true
	fi;
	begun[0] = WITH(begun[0], file[0].length);
	do
	:: d_step { file[SPILL].length > 0 -> import_spilled() }
	:: d_step { file[SPILL].length == 0 && ring && held != 0 -> import_held() }
	:: d_step { file[SPILL].length == 0 && (!ring || held == 0) -> again = false } -> goto done
	:: d_step { kills > 0 -> kills--; again = true } -> goto killed
	od;

reconcile:
	skip;
	d_step { working = true; dirty = true; stop[0] = true; stop[1] = true };
	stopped[0] && stopped[1];
#ifndef WITHOUT_RING
	d_step { moved[0] = 0; moved[1] = 0 };
#endif
	do
	:: d_step { DOUBLES(0) && alone == 0 -> COPIED(0) }
	:: d_step { DOUBLES(1) && alone == 0 -> COPIED(1) }
	:: d_step { DOUBLES(SPILL) && alone == 0 -> COPIED(SPILL) }
#ifdef CUT_BEFORE_COPY
	:: d_step { alone != 0 -> add_alone() }
#endif
	:: d_step { ALL_ONCE && ANY_STORED -> release_stored() }
	:: d_step {
		ALL_ONCE && !ANY_STORED ->
		dirty = false;
		again = false
	} -> goto done
	:: d_step { kills > 0 -> kills--; alone = 0; cutting = 0 } -> goto killed
	od;

killed:
	if
	:: file[0].length > file[0].synced ->
		d_step {
			file[0].length--;
			file[0].batch[file[0].length] = 0
		};
		goto killed
	:: true
	fi;
done:
	skip;
	d_step {
		file[0].synced = file[0].length;
		ring = false;
		stop[0] = false;
		stop[1] = false;
		working = false
	};
	!stopped[0] && !stopped[1];
	goto idle;
end:
#endif
	life == FINISHED;

	/* exactly once: no batch is in doubt any more */
	d_step {
		k = 0;
		do
		:: k < BATCHES ->
			n = 0;
			count(0, k);
			count(1, k);
			count(SPILL, k);
			assert(n == 1);
			k++
		:: else -> break
		od;
		k = 0;
		over = true
	}
}
