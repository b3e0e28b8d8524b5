/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Mailbox for commands from a thread to a polling lcore, one at a time. The command itself is
 * stored outside the mailbox: the sender writes it before mailbox_post(), and the lcore reads it
 * between mailbox_take() and mailbox_answer(). One thread at a time may send. The job of a file
 * thread goes the other way: there the lcore is the sender (egress/file_thread.h).
 */
#ifndef MAILBOX_H
#define MAILBOX_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/** The sender sets POSTED, and EMPTY to cancel. The lcore sets TAKEN and then ANSWERED. */
enum mailbox_state {
	MAILBOX_EMPTY,	  /**< no command, or a cancelled one */
	MAILBOX_POSTED,	  /**< the lcore has not seen the command */
	MAILBOX_TAKEN,	  /**< the lcore is executing the command */
	MAILBOX_ANSWERED, /**< `result` is valid */
};

struct mailbox {
	uint32_t state; /**< enum mailbox_state; atomic */
	int result;	/**< of the last command */
};

/** Return true if the sender can write a command. Sender only. */
static inline bool
mailbox_is_free(const struct mailbox *m)
{
	const uint32_t state = __atomic_load_n(&m->state, __ATOMIC_ACQUIRE);

	return state != MAILBOX_POSTED && state != MAILBOX_TAKEN;
}

/** Hand over the command that was written while mailbox_is_free(). Sender only. */
static inline void
mailbox_post(struct mailbox *m)
{
	__atomic_store_n(&m->state, MAILBOX_POSTED, __ATOMIC_RELEASE);
}

static inline bool
mailbox_move(struct mailbox *m, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(
		&m->state, &from, to, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/**
 * Cancel the command. Sender only.
 * @return true: it is never executed; false: it was executed or is being executed
 */
static inline bool
mailbox_cancel(struct mailbox *m)
{
	return mailbox_move(m, MAILBOX_POSTED, MAILBOX_EMPTY);
}

/** Take the command. Lcore only. @return true: execute it, then call mailbox_answer() */
static inline bool
mailbox_take(struct mailbox *m)
{
	return __atomic_load_n(&m->state, __ATOMIC_RELAXED) == MAILBOX_POSTED &&
		mailbox_move(m, MAILBOX_POSTED, MAILBOX_TAKEN);
}

/** Publish the result of the command that was taken. Lcore only. */
static inline void
mailbox_answer(struct mailbox *m, int result)
{
	m->result = result;
	__atomic_store_n(&m->state, MAILBOX_ANSWERED, __ATOMIC_RELEASE);
}

/** Any thread. @return result of the last command; -EINPROGRESS: not executed yet, or cancelled */
static inline int
mailbox_result(const struct mailbox *m)
{
	return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MAILBOX_ANSWERED ? m->result
										: -EINPROGRESS;
}

#endif /* MAILBOX_H */
