/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_string_fns.h>

#include "eal/process_cpus.h"
#include "eal/watchdog.h"
#include "log.h"
#include "monotonic_cond.h"
#include "service_manager.h"

LOG_REGISTER("watchdog", "watchdog");

/** Interval of the first checks, until the lcores poll, and the longest one. */
#define START_US UINT64_C(10000)
#define LONG_US	 UINT64_C(1000000)
/** Time within which an end must make progress. */
#define EXTEND_US UINT64_C(30000000)
/** Time in which the last message must be taken when the process ends. */
#define JOIN_S 2

struct watchdog {
	struct watchdog_config config;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* protected by the lock */
	bool stop;
	bool ending;	  /**< watchdog_end() */
	bool has_status;  /**< `status` was not sent yet */
	char status[128]; /**< line for the user */
	/* used by the thread only */
	bool told;  /**< the service manager knows that the process ends */
	bool asked; /**< it was asked for more time */
	uint64_t seen_progress;
};

/**
 * Ask for more time when the process begins to end, and whenever the end has made progress.
 * @param stop  the thread ends: what progress() reads may be freed
 */
static void
extend(struct watchdog *w, bool stop)
{
	const bool signalled = __atomic_load_n(w->config.signalled, __ATOMIC_RELAXED) != 0;
	const uint64_t seen = w->seen_progress;

	if ((!signalled && !w->told) || (w->asked && stop))
		return;
	if (w->asked)
		w->seen_progress = w->config.progress(w->config.arg);
	if (!w->asked || w->seen_progress != seen)
		service_manager_extend(EXTEND_US);
	w->asked = true;
}

/** Wait until the time has passed, or send a status. @return false: the thread must end */
static bool
pause_us(struct watchdog *w, uint64_t us)
{
	char status[sizeof(w->status)] = "";
	struct timespec until;
	bool stop, ending;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(us / 1000000);
	until.tv_nsec += (long)(us % 1000000) * 1000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&w->lock);
	while (!w->stop && !w->has_status && (!w->ending || w->told) &&
		pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
		;
	stop = w->stop;
	ending = w->ending || stop;
	if (w->has_status)
		rte_strscpy(status, w->status, sizeof(status));
	w->has_status = false;
	pthread_mutex_unlock(&w->lock);
	if (ending && !w->told) {
		service_manager_stopping();
		w->told = true;
	}
	extend(w, stop);
	if (status[0] != '\0')
		service_manager_status(status);
	return !stop;
}

/** Whether all lcores have polled. Not after watchdog_end(): what works() reads may be freed. */
static bool
works(struct watchdog *w)
{
	bool ret;

	pthread_mutex_lock(&w->lock);
	ret = !w->ending && w->config.works(w->config.arg);
	pthread_mutex_unlock(&w->lock);
	return ret;
}

static void *
watch(void *arg)
{
	struct watchdog *w = arg;
	const uint64_t demanded = service_manager_interval_us();
	/*
	 * half of the required interval: an lcore that is late at one check is not late at the next
	 * one
	 */
	const uint64_t interval = demanded != 0 ? RTE_MIN(demanded / 2, LONG_US) : LONG_US;

	process_cpus_take();
	while (pause_us(w, START_US) && !w->told)
		if (works(w)) {
			service_manager_ready();
			break;
		}
	while (pause_us(w, interval))
		if (works(w))
			service_manager_alive();
	return NULL;
}

struct watchdog *
watchdog_start(const struct watchdog_config *config)
{
	struct watchdog *w;
	int ret;

	if (!service_manager_waits())
		return NULL;
	w = calloc(1, sizeof(*w));
	if (w == NULL) {
		LOG(ERR, "no memory\n");
		return NULL;
	}
	w->config = *config;
	pthread_mutex_init(&w->lock, NULL);
	monotonic_cond_init(&w->wake);
	ret = pthread_create(&w->thread, NULL, watch, w);
	if (ret != 0) {
		LOG(ERR, "cannot start the thread: %s\n", strerror(ret));
		free(w);
		return NULL;
	}
	pthread_setname_np(w->thread, "watchdog");
	return w;
}

void
watchdog_status(struct watchdog *w, const char *status)
{
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	rte_strscpy(w->status, status, sizeof(w->status));
	w->has_status = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void
watchdog_end(struct watchdog *w)
{
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void
watchdog_stop(struct watchdog *w)
{
	struct timespec until;

	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += JOIN_S;
	if (pthread_timedjoin_np(w->thread, NULL, &until) != 0) {
		/* sd_notify() waits for a reader; the thread owns `w` and ends with the process */
		LOG(WARNING,
			"the service manager does not read NOTIFY_SOCKET: last messages dropped\n");
		pthread_detach(w->thread);
		return;
	}
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
