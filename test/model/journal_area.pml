/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model for spin of the slots of a journal: app/common/journal/journal_area.c. The producer takes
 * slots, writes to them and hands over a batch that refers to them; the owner holds the batch,
 * releases it, and frees its slots. Claims:
 *
 * - the producer only takes and writes to slots that no batch has, held or on the way to the owner;
 * - the owner never overwrites an entry of the ring that the producer has not taken;
 * - no deadlock: the slots of released batches come back.
 *
 * journal_model.sh also runs mutations, each of which breaks one claim: EARLY (a slot is freed
 * before the record of its batch is), COUNT_FIRST (an entry is counted before it is written), TWICE
 * (a batch that was released frees its slots again) and LOSE (a producer that gets too few slots
 * does not give them back).
 */

#define SLOTS 3
#ifndef BATCHES
#define BATCHES 5
#endif
#define FREE	 0
#define PRODUCER 1
#define HELD	 2 /* + number of the batch; as the next process would see it */

byte slot_ring[SLOTS] = { 0, 1, 2 };
byte granted = SLOTS; /* atomic; the owner writes */
byte taken;	      /* the owner does not read it: only for a claim */
byte user[SLOTS];

chan filled_ring = [2] of { byte, byte }; /* the slots of a batch; the second may be SLOTS: none */

active proctype producer()
{
	byte own[SLOTS], nb_own, got[2], nb_got, filled, want, i;

	do
	:: filled < BATCHES ->
		select(want : 1 .. 2);
		nb_got = 0;
		do
		:: nb_got == want -> break
		:: nb_got < want && nb_own > 0 ->
			nb_own--;
			got[nb_got] = own[nb_own];
			nb_got++
		:: nb_got < want && nb_own == 0 ->
			if
			:: taken < granted ->
				got[nb_got] = slot_ring[taken % SLOTS];
				atomic {
					assert(user[got[nb_got]] == FREE);
					user[got[nb_got]] = PRODUCER;
					taken++
				}
				nb_got++
			:: taken == granted -> break
			fi
		od;
		if
		:: nb_got == want ->
			for (i : 0 .. want - 1) {
				/* the gang writes to it */
				assert(user[got[i]] == PRODUCER)
			}
			if
			:: want == 1 -> filled_ring!got[0],SLOTS
			:: else -> filled_ring!got[0],got[1]
			fi;
			filled++
		:: else ->
#ifndef LOSE
			do
			:: nb_got > 0 ->
				nb_got--;
				own[nb_own] = got[nb_got];
				nb_own++
			:: else -> break
			od;
#endif
			/* it copies the frame instead, or waits */
			taken < granted
		fi
	:: else -> break
	od
}

inline push(slot)
{
	/* every entry that is not taken is another slot */
	assert(granted - taken < SLOTS);
#ifdef COUNT_FIRST
	granted++;
	slot_ring[(granted - 1) % SLOTS] = slot
#else
	slot_ring[granted % SLOTS] = slot;
	granted++
#endif
}

/* The record of the batch is free. */
inline clear()
{
	d_step {
		user[first[k]] = FREE;
		if
		:: second[k] < SLOTS -> user[second[k]] = FREE
		:: else
		fi
	}
}

active proctype owner()
{
	byte first[BATCHES], second[BATCHES], committed, nb_held, k, one, two;
	bool held[BATCHES];

end:
	do
	:: filled_ring?one,two ->
		first[committed] = one;
		second[committed] = two;
		held[committed] = true;
		d_step {
			assert(user[one] == PRODUCER);
			user[one] = HELD + committed;
			if
			:: two < SLOTS ->
				assert(user[two] == PRODUCER);
				user[two] = HELD + committed
			:: else
			fi
		}
		committed++;
		nb_held++
	:: nb_held > 0 ->
		/* any of the held batches */
		select(k : 0 .. committed - 1);
		if
#ifdef TWICE
		:: true ->
#else
		:: held[k] ->
#endif
			nb_held = nb_held - held[k];
			held[k] = false;
#ifndef EARLY
			clear();
#endif
			push(first[k]);
			if
			:: second[k] < SLOTS -> push(second[k])
			:: else
			fi;
#ifdef EARLY
			clear()
#endif
		:: else
		fi
	od
}
