/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include "xfer/admission.h"

/* Slots of a pool: from `first` up to, but not including, `end`. */
struct pool {
	unsigned int first;
	unsigned int end;
};

static struct pool
pool_of(bool known)
{
	return known ? (struct pool){ADMISSION_UNKNOWN, ADMISSION_PLACES}
		     : (struct pool){0, ADMISSION_UNKNOWN};
}

unsigned int
admission_prefix(const uint8_t addr[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(addr, mapped, sizeof(mapped)) == 0 ? 15 : 8;
}

static bool
same_peer(const struct admission_peer *a, const struct admission_peer *b)
{
	return a->identity == b->identity && memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

static bool
same_prefix(const uint8_t a[16], const uint8_t b[16])
{
	const unsigned int size = admission_prefix(a);

	return size == admission_prefix(b) && memcmp(a, b, size) == 0;
}

/* Whether two peers count for the same limit. */
static bool
same_group(const struct admission_peer *a, const struct admission_peer *b, bool known)
{
	return known ? same_peer(a, b) : same_prefix(a->addr, b->addr);
}

static int
find_known(const struct admission *g, const struct admission_peer *peer)
{
	unsigned int i;

	for (i = 0; i < ADMISSION_REMEMBERED; i++) {
		if (g->known[i].proved != 0 && same_peer(&g->known[i].peer, peer))
			return (int)i;
	}
	return -1;
}

bool
admission_knows(const struct admission *g, const struct admission_peer *peer, uint64_t now)
{
	const int i = find_known(g, peer);

	return i >= 0 && admission_age(g, i, now) < ADMISSION_REMEMBER_MS;
}

bool
admission_may_take(const struct admission *g, const struct admission_peer *peer,
	unsigned int nb_free, uint64_t now)
{
	return nb_free > ADMISSION_KNOWN || (nb_free > 0 && admission_knows(g, peer, now));
}

uint64_t
admission_age(const struct admission *g, unsigned int i, uint64_t now)
{
	const uint64_t proved = g->known[i].proved;

	/* `now` may have been read before the authentication */
	return (now > proved ? now - proved : 0) + g->known[i].older;
}

static unsigned int
crowd_of(const struct admission *g, const struct admission_peer *peer, bool known)
{
	const struct pool pool = pool_of(known);
	unsigned int i, nb = 0;

	for (i = pool.first; i < pool.end; i++)
		nb += g->place[i].since != 0 && same_group(&g->place[i].peer, peer, known);
	return nb;
}

static bool
is_older(const struct admission *g, unsigned int i, int than)
{
	return than < 0 || g->place[i].since < g->place[than].since;
}

/*
 * Find the oldest slot that has reached the minimum time, in the most crowded group or in that of
 * `peer`.
 */
static int
find_victim(const struct admission *g, const struct admission_peer *peer, bool known, uint64_t now)
{
	const struct pool pool = pool_of(known);
	unsigned int i, crowd, most = 0;
	int victim = -1;

	for (i = pool.first; i < pool.end; i++) {
		if (g->place[i].since == 0 || now < g->place[i].since + ADMISSION_MIN_MS ||
			(peer != NULL && !same_group(&g->place[i].peer, peer, known)))
			continue;
		crowd = crowd_of(g, &g->place[i].peer, known);
		if (crowd > most || (crowd == most && is_older(g, i, victim))) {
			most = crowd;
			victim = (int)i;
		}
	}
	return victim;
}

static bool
is_crowded(const struct admission *g, const struct admission_peer *peer)
{
	unsigned int i, same = 0;

	for (i = 0; i < ADMISSION_UNKNOWN; i++)
		same += g->place[i].since != 0 &&
			memcmp(g->place[i].peer.addr, peer->addr, sizeof(peer->addr)) == 0;
	return same >= ADMISSION_PER_ADDRESS || crowd_of(g, peer, false) >= ADMISSION_PER_PREFIX;
}

static int
find_place(struct admission *g, const struct admission_peer *peer, bool known, uint64_t now)
{
	const struct pool pool = pool_of(known);
	unsigned int i;
	int place;

	if (known && crowd_of(g, peer, true) >= ADMISSION_PER_KNOWN) {
		/*
		 * another peer may forge this identity and address: only slots of the same pair are
		 * evicted
		 */
		place = find_victim(g, peer, true, now);
		g->crowded += place < 0;
		return place;
	}
	if (!known && is_crowded(g, peer)) {
		g->crowded++;
		return -1;
	}
	for (i = pool.first; i < pool.end; i++) {
		if (g->place[i].since == 0)
			return (int)i;
	}
	place = find_victim(g, NULL, known, now);
	g->full += place < 0;
	return place;
}

int
admission_enter(struct admission *g, const struct admission_peer *peer, void *owner, uint64_t now,
	void **evicted)
{
	const bool known = admission_knows(g, peer, now);
	const int place = find_place(g, peer, known, now);

	*evicted = NULL;
	if (place < 0)
		return -EBUSY;
	if (g->place[place].since != 0) {
		*evicted = g->place[place].owner;
		g->evicted++;
	}
	g->place[place].peer = *peer;
	g->place[place].since = now;
	g->place[place].owner = owner;
	g->admitted++;
	g->admitted_known += known;
	return place;
}

static int
older_known(const struct admission *g, int one, int other)
{
	/* signed: a time before this process may be before the start of its clock */
	return one >= 0 &&
			(int64_t)(g->known[one].proved - g->known[one].older) <=
				(int64_t)(g->known[other].proved - g->known[other].older)
		? one
		: other;
}

/*
 * Find an entry for a new pair: the oldest of its identity if that has the maximum, otherwise the
 * oldest of all.
 */
static int
find_room(const struct admission *g, uint64_t identity)
{
	int k, unused = -1, own = -1, any = -1;
	unsigned int nb = 0;

	for (k = 0; k < ADMISSION_REMEMBERED; k++) {
		if (g->known[k].proved == 0) {
			unused = k;
			continue;
		}
		any = older_known(g, any, k);
		if (g->known[k].peer.identity != identity)
			continue;
		own = older_known(g, own, k);
		nb++;
	}
	if (nb >= ADMISSION_PER_IDENTITY)
		return own;
	return unused >= 0 ? unused : any;
}

void
admission_proved(struct admission *g, int place, uint64_t now)
{
	const struct admission_peer *peer = &g->place[place].peer;
	int i = find_known(g, peer);

	if (i < 0 || admission_age(g, i, now) > ADMISSION_KEEP_MS)
		g->version++;
	if (i < 0)
		i = find_room(g, peer->identity);
	g->known[i].peer = *peer;
	g->known[i].proved = now;
	g->known[i].older = 0;
	admission_leave(g, place);
}

void
admission_remember(
	struct admission *g, const struct admission_peer *peer, uint64_t now, uint64_t age)
{
	int i = find_known(g, peer);

	if (i < 0)
		i = find_room(g, peer->identity);
	g->known[i].peer = *peer;
	g->known[i].proved = now;
	g->known[i].older = age < ADMISSION_REMEMBER_MS ? age : ADMISSION_REMEMBER_MS;
}

void
admission_leave(struct admission *g, int place)
{
	g->place[place].since = 0;
	g->place[place].owner = NULL;
}

void *
admission_expire(struct admission *g, uint64_t now)
{
	unsigned int i, k, used, known;
	uint64_t ms;
	void *owner;

	for (known = 0; known < 2; known++) {
		const struct pool pool = pool_of(known);
		const unsigned int size = pool.end - pool.first;

		for (used = 0, k = pool.first; k < pool.end; k++)
			used += g->place[k].since != 0;
		ms = ADMISSION_MS - (ADMISSION_MS - ADMISSION_MIN_MS) * used / size;
		for (i = pool.first; i < pool.end; i++) {
			if (g->place[i].since == 0 || now < g->place[i].since + ms)
				continue;
			owner = g->place[i].owner;
			admission_leave(g, (int)i);
			g->late++;
			return owner;
		}
	}
	return NULL;
}
