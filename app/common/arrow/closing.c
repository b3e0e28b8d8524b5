/* SPDX-License-Identifier: BSD-3-Clause */

#include "arrow/closing.h"

static void
close_files(struct arrow_closing *c)
{
	struct arrow_closing *next;

	for (; c != NULL; c = next) {
		next = c->next;
		if (c->discard)
			arrow_file_discard(c->file);
		else
			(void)arrow_file_close(c->file);
		/* the owner may free it from here on */
		__atomic_store_n(&c->over, true, __ATOMIC_RELEASE);
	}
}

static void *
run_thread(void *arg)
{
	struct arrow_closing *c = arg;

	if (c->enter != NULL)
		c->enter();
	close_files(c);
	return NULL;
}

void
arrow_closing_begin(struct arrow_closing *c, struct arrow_closing *next, void (*enter)(void))
{
	/* The last file owns the thread, so that joining another file does not wait for it. */
	struct arrow_closing *last = next != NULL ? next : c;

	c->next = next;
	c->enter = enter;
	last->has_thread = pthread_create(&last->thread, NULL, run_thread, c) == 0;
	if (!last->has_thread)
		close_files(c);
}

bool
arrow_closing_is_over(const struct arrow_closing *c)
{
	return __atomic_load_n(&c->over, __ATOMIC_ACQUIRE);
}

void
arrow_closing_join(struct arrow_closing *c)
{
	if (c->has_thread)
		pthread_join(c->thread, NULL);
	c->has_thread = false;
}
