/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include "sink_gate.h"

int
sink_gate_enter(struct sink_gate *g, const uint8_t addr[16], uint64_t now)
{
	unsigned int i, same = 0;
	int place = -1;

	for (i = 0; i < SINK_GATE_PLACES; i++) {
		if (g->place[i].until == 0)
			place = i;
		else
			same += memcmp(g->place[i].addr, addr, 16) == 0;
	}
	if (same >= SINK_GATE_PER_ADDRESS) {
		g->address++;
		return -EBUSY;
	}
	if (place < 0) {
		g->full++;
		return -EBUSY;
	}
	memcpy(g->place[place].addr, addr, 16);
	g->place[place].until = now + SINK_GATE_MS;
	g->admitted++;
	return place;
}

void
sink_gate_leave(struct sink_gate *g, int place)
{
	g->place[place].until = 0;
}

int
sink_gate_expire(struct sink_gate *g, uint64_t now)
{
	int i;

	for (i = 0; i < SINK_GATE_PLACES; i++) {
		if (g->place[i].until == 0 || now < g->place[i].until)
			continue;
		g->place[i].until = 0;
		g->late++;
		return i;
	}
	return -1;
}
