/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/credits.h"

#include <rte_byteorder.h>

/* Update `free` from the word that the receiver writes. */
static void
read_credit(struct transmit_credit *c)
{
	const uint64_t word = rte_le_to_cpu_64(__atomic_load_n(c->word, __ATOMIC_ACQUIRE));

	if (word == TRANSMIT_CREDIT_NONE)
		return;
	c->open = true;
	/* ignore a credit for frames that were not sent: it precedes a restart, or is wrong */
	if (word > c->free && word <= c->next)
		c->free = word;
}

bool
transmit_credit_take(struct transmit_credit *c, uint64_t pulse, uint64_t number)
{
	/* no credit is needed for a delayed packet of an earlier frame */
	if (c->word == NULL || pulse < c->pulse)
		return true;
	read_credit(c);
	if (!c->open)
		return false;
	if (c->pulse == 0 || c->free == c->next)
		c->free = number; /* no slot is in use: the numbers may continue anywhere */
	else if (number < c->next || number - c->free >= c->slots)
		return false;
	c->next = number + 1;
	c->pulse = pulse + 1;
	return true;
}
