/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdio.h>

#include "arrow/async_writer.h"
#include "arrow/stall.h"
#include "clock.h"

#define NS_PER_MS 1000000ull

/* Return true if a time is known, and so long ago that it is a stall. */
static bool
is_long(const struct arrow_stall *s, uint64_t now, uint64_t since)
{
	return since != 0 && now > since && now - since >= s->ms * NS_PER_MS;
}

/* Return true if an operation other than the creation of a file is waited for in vain. */
static bool
completes_nothing(struct arrow_stall *s, const struct arrow_stall_wait *wait, uint64_t now)
{
	const uint64_t ended = async_writer_ended();

	if (ended != s->ended || s->moved == 0 || (!wait->closing && wait->since == 0)) {
		s->ended = ended;
		s->moved = now;
		return false;
	}
	return s->stalled ||
		(is_long(s, now, s->moved) && (wait->closing || is_long(s, now, wait->since)));
}

bool
arrow_stall_check(struct arrow_stall *s, const struct arrow_stall_wait *wait)
{
	const uint64_t now = monotonic_ns();
	const bool creating = is_long(s, now, wait->creating_since);
	const bool stalled = completes_nothing(s, wait, now) || wait->writing || creating;

	if (stalled == s->stalled)
		return false;
	s->stalled = stalled;
	s->creating = creating;
	return true;
}

void
arrow_stall_text(
	const struct arrow_stall *s, const char *dir, const char *table, char *text, size_t size)
{
	if (s->stalled)
		snprintf(text, size, "%.4000s: disk stalled: it has %s of `%s` in %u ms", dir,
			s->creating ? "created no file" : "completed no write or sync", table,
			s->ms);
	else
		snprintf(text, size, "%.4000s: disk no longer stalled", dir);
}
