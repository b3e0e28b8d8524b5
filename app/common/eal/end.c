/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_interrupts.h>

#include "eal/end.h"

#define CALLBACK_WAIT_S 2 /* a driver's callback may wait for its peer */

/* Static, because the blocked thread outlives the caller's stack and EAL's memory. */
static sem_t thread_blocked;

static void
block_thread(void *arg)
{
	sem_post(&thread_blocked);
	for (;;)
		pause();
}

/**
 * Register a callback that blocks the interrupt thread. An alarm is not suitable, because
 * rte_eal_cleanup() waits until no alarm callback is running.
 */
static int
request_block(void)
{
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	const int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	int ret = -1;

	if (handle && fd >= 0 && rte_intr_fd_set(handle, fd) == 0 &&
		rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0)
		ret = rte_intr_callback_register(handle, block_thread, NULL);
	/* EAL keeps a copy of the handle */
	rte_intr_instance_free(handle);
	if (ret < 0 && fd >= 0)
		close(fd);
	return ret;
}

bool
eal_block_interrupts(void)
{
	static bool requested, done;
	struct timespec until;

	if (done)
		return true;
	if (!requested) {
		sem_init(&thread_blocked, 0, 0);
		if (request_block() < 0) {
			sem_destroy(&thread_blocked);
			return false;
		}
		requested = true;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += CALLBACK_WAIT_S;
	while (sem_timedwait(&thread_blocked, &until) < 0)
		if (errno != EINTR)
			return false;
	done = true;
	return true;
}

void
eal_end(void)
{
	if (eal_block_interrupts())
		rte_eal_cleanup();
}
