/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_interrupts.h>

#include "eal/end.h"

#define PATIENCE 2 /* s: a callback of a driver that waits for its peer */

/* Not on a stack and not in EAL's memory: the thread outlives both. */
static sem_t held;

static void
hold(void *arg)
{
	sem_post(&held);
	for (;;)
		pause();
}

/** Not by an alarm: EAL's end waits until none is running. */
static int
have_held(void)
{
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	const int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	int ret = -1;

	if (handle && fd >= 0 && rte_intr_fd_set(handle, fd) == 0 &&
		rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0)
		ret = rte_intr_callback_register(handle, hold, NULL);
	/* EAL has made itself a copy */
	rte_intr_instance_free(handle);
	return ret;
}

bool
eal_hold(void)
{
	static bool asked, done;
	struct timespec until;

	if (done)
		return true;
	if (!asked) {
		sem_init(&held, 0, 0);
		if (have_held() < 0)
			return false;
		asked = true;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE;
	while (sem_timedwait(&held, &until) < 0)
		if (errno != EINTR)
			return false;
	done = true;
	return true;
}

void
eal_end(void)
{
	if (eal_hold())
		rte_eal_cleanup();
}
