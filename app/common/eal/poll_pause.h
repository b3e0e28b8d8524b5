/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The pause of a polling loop that has nothing to do.
 *
 * A loop continues to poll for a time after its last work, because work that follows soon then has
 * the least latency. After that it sleeps. Both times depend on what the loop expects:
 *
 * =================  ==============================================================================
 * expected           pause
 * =================  ==============================================================================
 * nothing            sleeps of POLL_PAUSE_LONG_US, after POLL_PAUSE_LINGER_US
 * packets            sleeps of POLL_PAUSE_SHORT_US, after POLL_PAUSE_SPIN_US. Their length grows
 *                    with the time that the loop has waited
 * later packets      sleeps that grow faster, from POLL_PAUSE_LONG_US to POLL_PAUSE_LATER_US, after
 *                    POLL_PAUSE_LINGER_US: nobody waits for these packets
 * a thread           as packets. If the thread may run on the CPU of the loop: the loop sleeps at
 *                    once, for POLL_PAUSE_TICK_US and then for POLL_PAUSE_MAX_US each time, because
 *                    each timer takes time from the thread; poll_wake() ends the sleep
 * =================  ==============================================================================
 *
 * If other threads run on the same CPU, they need CPU time. Then the loop sleeps after
 * POLL_PAUSE_TURNS while it expects packets or a thread. It detects such threads by the time in
 * which it did not run.
 */
#ifndef POLL_PAUSE_H
#define POLL_PAUSE_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#define POLL_PAUSE_SHORT_US  20	    /**< first sleep while packets are expected */
#define POLL_PAUSE_LONG_US   50	    /**< sleep while nothing is expected */
#define POLL_PAUSE_YIELD_US  200    /**< longest sleep of poll_yield() */
#define POLL_PAUSE_MAX_US    1000   /**< longest sleep if somebody waits */
#define POLL_PAUSE_LATER_US  20000  /**< longest sleep if nobody waits */
#define POLL_PAUSE_LINGER_US 100    /**< time after work, if nothing is expected */
#define POLL_PAUSE_SPIN_US   5000   /**< time after work, if something is expected */
#define POLL_PAUSE_TURNS     8	    /**< turns without work, if the CPU is shared */
#define POLL_PAUSE_AWAY_US   200    /**< a longer time between two turns: others had the CPU */
#define POLL_PAUSE_KEEP_US   100000 /**< the CPU counts as shared for this time after that */

/**
 * First sleep for a thread on the same CPU: longer than the scheduler's tick of 4 ms (HZ = 250),
 * which such a CPU has anyway. The CPU would be set to an earlier timer when the sleep begins, and
 * again when poll_wake() ends it: in a virtual machine, each time is an exit of some 7 us.
 */
#define POLL_PAUSE_TICK_US 5000

/** What a loop waits for. */
enum poll_expect {
	POLL_NOTHING, /**< work may come at any time, or never */
	POLL_PACKETS, /**< a peer answers */
	/**
	 * a peer may send, and nobody waits for it: a thread that begins to wait calls poll_wake()
	 */
	POLL_LATER,
	POLL_THREAD, /**< another thread works, and calls poll_wake() when it needs the loop */
	POLL_SHARED, /**< as POLL_THREAD, and it may run on the CPU of the loop */
};

/** State of a loop, of its thread; only poll_wake() is called by others. */
struct poll_pause {
	uint32_t idle;	       /**< turns without work */
	uint64_t since;	       /**< first turn without work, us */
	uint64_t last;	       /**< end of the last pause, us; 0: there was work since */
	uint64_t shared_until; /**< us */
	int cpu;	       /**< of the last turn; -1: it sleeps. Atomic, read by any thread */
	bool precise;	       /**< the thread's timer slack is set */
	sem_t wake;
};

void poll_pause_init(struct poll_pause *p);
void poll_pause_destroy(struct poll_pause *p);

/** Pause after a turn of the loop. @param busy  the turn had work: there is no pause */
void poll_pause(struct poll_pause *p, bool busy, enum poll_expect expected);

/** End the pause, or the next one if there is none now. Any thread. */
void poll_wake(struct poll_pause *p);

/** Forget the calls of poll_wake() since the last pause. */
void poll_forget(struct poll_pause *p);

/**
 * Let another thread of this CPU run that this thread has woken. Otherwise that thread would wait
 * until the scheduler takes the CPU from the loop. Returns when poll_wake() is called, or if it was
 * called since poll_forget(), and after POLL_PAUSE_YIELD_US at the latest.
 *
 * Call poll_forget() before the thread is woken, because the thread may run immediately.
 */
void poll_yield(struct poll_pause *p);

/** @return CPU on which the loop polls; -1: it sleeps, or has not begun. Any thread. */
int poll_cpu(const struct poll_pause *p);

/** State of a thread that polls for some time before it sleeps. */
struct poll_spin {
	uint64_t shared_until; /**< us; 0: its CPU was not shared so far */
};

/**
 * Poll for what another thread does, for a thread that would sleep until that thread wakes it. A
 * wake-up takes time of both, in a virtual machine 10 to 40 us. If the thread loses its CPU
 * meanwhile, others need it: then, and for POLL_PAUSE_KEEP_US, it does not poll.
 *
 * @param us        longest time
 * @param happened  whether it is done; called repeatedly
 * @return the last result of `happened`
 */
bool poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg);

#endif /* POLL_PAUSE_H */
