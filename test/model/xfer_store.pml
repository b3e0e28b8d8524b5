/* SPDX-License-Identifier: BSD-3-Clause */
/* A store, for xfer.pml. */

inline write_one(s)
{
	/* no slot is reused too early: the body is still the one that was announced */
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
	find(s, b, file[s].length);
	i = 0;
	do
	:: i < nb -> yes = yes || (taken[i] == b); i++
	:: else -> break
	od
}

/*
 * Remove reassigned batches from each file. CUT_OFF: remove also all batches after the first of
 * them. The receiver still holds these, because it was not notified that they are stored.
 */
inline cut_off(s, set)
{
	i = 0;
	k = 0; /* number of batches that stay */
	yes = false;
#if TOOLS > 0
	n = begun[s];
	begun[s] = 0;
#endif
	do
	:: i < file[s].length ->
#if TOOLS > 0 && !defined(CUT_ALL_FILES)
		if
		:: IN(n, i) -> yes = false; begun[s] = WITH(begun[s], k)
		:: else
		fi;
#endif
#ifdef CUT_OFF
		yes = yes || IN(set, file[s].batch[i]);
#else
		yes = IN(set, file[s].batch[i]);
#endif
		if
		:: yes -> skip
		:: else -> file[s].batch[k] = file[s].batch[i]; k++
		fi;
		i++
	:: else -> break
	od;
	do
	:: file[s].length > k ->
		file[s].length--;
		file[s].batch[file[s].length] = 0
	:: else -> break
	od;
	if
	:: file[s].synced > file[s].length -> file[s].synced = file[s].length
	:: else
	fi;
	k = 0
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

/* Messages to a store that is down are lost. */
inline deaf(s)
{
	do
	:: nempty(to[s]) -> to[s]?_, _, _, _
	:: empty(to[s]) -> break
	od
}

/* Messages to a receiver that is dead are lost. */
inline tell(s, what, id, p, q)
{
	if
	:: life == RUNS -> from[s]!what(id, p, q)
	:: else
	fi
}

#ifdef GRANT_BEFORE_SETTLED
#define SETTLED true
#else
#define SETTLED (nb == 0 && file[s].synced == file[s].length)
#endif

proctype store(byte s)
{
	byte current;	      /* connection whose WRITEs are accepted */
	byte memory[PLACES];  /* bodies */
	byte taken[PLACES];   /* announced, not yet written */
	byte place[PLACES];
	byte nb;
	byte place_of[BATCHES]; /* slot of each batch in the file */
	byte reported;		/* number of batches of the file */
	byte e, x, b;

alive:
	{
	do
	/* batches that were taken are resolved first: they are in the file, or discarded */
	:: d_step {
		/* earlier WRITEs may still be in flight */
		(to[s]??[CONNECT, _, _, _] && len(from[s]) < 3 && SETTLED) ->
		to[s]??CONNECT(e, x, b);
		current = e;
		cut_off(s, x);
		have(s);
		reported = file[s].length;
		tell(s, INVENTORY, e, x, 0);
		e = 0;
		x = 0;
		b = 0
	}
	:: d_step {
		to[s]?BODY(e, x, b) ->
		if
		:: e == current -> memory[x] = b
		:: else /* its rkey is invalid now */
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
		:: e == current && yes -> tell(s, RESULT, current, x, b)
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
		life == RUNS && reported < file[s].length && len(from[s]) < 3 ->
#else
	:: d_step {
		life == RUNS && reported < file[s].synced && len(from[s]) < 3 ->
#endif
		from[s]!RESULT(current, place_of[reported], file[s].batch[reported]);
		reported++
	}

	/* power failure: any part of the data that is not synced is lost */
	:: d_step { faults > 0 -> faults-- } -> goto crash
	:: over -> goto end
	od
	}
#if TOOLS > 0
	unless { stop[s] };
#endif

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
		reported = file[s].length; /* no connection */
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
		deaf(s);
		i = 0
	}
#if TOOLS > 0
	if
	:: stop[s] ->
		stopped[s] = true;
		!stop[s];
		d_step {
			deaf(s);
			stopped[s] = false;
			broken[s] = true;
			reported = file[s].length
		}
	:: else
	fi;
#endif
	goto alive;
end:
	skip
}
