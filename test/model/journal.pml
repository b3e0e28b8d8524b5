/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model for spin of the two threads of a journal: app/common/journal/journal.h. The producer
 * reserves and fills rooms of the space that the owner has granted, and hands them over; the owner
 * commits and releases batches. Claims:
 *
 * - the producer only writes to space that no batch has, whether held or on the way to the owner;
 * - a held batch remains as it was filled, and each has a record;
 * - no deadlock: a room of any size up to the whole space is granted when the journal is empty.
 *
 * journal_model.sh also runs mutations, each of which breaks one claim: LATE (the owner reads
 * `skipped` after it has taken the filled batches), NO_SKIP (a producer that waits for a large room
 * does not give up the rest of the space) and NO_RECORDS (only bytes are granted).
 */

#define SPACE	4 /* blocks */
#define RECORDS 2
#define TRIES	1 /* rooms that are not waited for */
#ifndef BATCHES
#define BATCHES 4
#endif

/* atomic; the owner writes */
byte granted = SPACE;
byte granted_batches = RECORDS;
/* atomic; the producer writes */
byte skipped;

chan filled_ring = [2] of { byte, byte }; /* position, blocks */

byte block[SPACE]; /* 1 + the number of the batch that has it; 0: free */

inline write(at, size)
{
	/* the bytes of a room are written one after the other, while the owner goes on */
	for (i : at .. at + size - 1) {
		assert(block[i % SPACE] == 0);
		block[i % SPACE] = filled + 1;
	}
}

active proctype producer()
{
	byte next, filled, size, room, at, i, tries;

choose:
	do
	:: filled < BATCHES ->
		select(room : 1 .. SPACE);
		at = next;
		if
		:: at % SPACE + room > SPACE -> at = ((at + SPACE - 1) / SPACE) * SPACE
		:: else
		fi;
		if
		:: atomic { at + room <= granted && filled < granted_batches -> skip }
		:: else ->
#ifndef NO_SKIP
			if
			:: 2 * room > SPACE -> next = at; skipped = at
			:: else
			fi;
#endif
			if
			:: at + room <= granted && filled < granted_batches
			:: tries < TRIES -> tries++; goto choose
			fi
		fi;
		select(size : 1 .. room);
		write(at, size);
		next = at + size;
		filled_ring!at,size;
		filled++
	:: else -> break
	od
}

active proctype owner()
{
	byte position[BATCHES], blocks[BATCHES], head, tail, committed, first, s, at, size, k, i;
	bool held[BATCHES];

end:
	do
	:: nempty(filled_ring) || skipped > head ->
#ifndef LATE
		s = skipped;
#endif
		do
		:: filled_ring?at,size ->
			position[committed] = at;
			blocks[committed] = size;
			held[committed] = true;
			committed++;
			assert(committed - first <= RECORDS);
			head = at + size
		:: empty(filled_ring) -> break
		od;
#ifdef LATE
		s = skipped;
#endif
		if
		:: first == committed && s > head -> head = s; tail = s; granted = tail + SPACE
		:: else
		fi
	:: first < committed ->
		/* any of the held batches */
		select(k : first .. committed - 1);
		if
		:: held[k] ->
			d_step {
				for (i : position[k] .. position[k] + blocks[k] - 1) {
					assert(block[i % SPACE] == k + 1);
					block[i % SPACE] = 0
				}
				i = 0
			}
			held[k] = false;
			do
			:: first < committed && !held[first] -> first++
			:: else -> break
			od;
			if
			:: first < committed -> tail = position[first]
			:: else -> tail = head
			fi;
			granted = tail + SPACE;
#ifdef NO_RECORDS
			granted_batches = BATCHES
#else
			granted_batches = committed + RECORDS - (committed - first)
#endif
		:: else
		fi
	od
}
