/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdlib.h>

#ifdef WITH_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

#include "service_manager.h"

#define BEAT_MS 1000

bool
service_manager_waits(void)
{
#ifdef WITH_SYSTEMD
	return getenv("NOTIFY_SOCKET") != NULL;
#else
	return false;
#endif
}

uint64_t
service_manager_interval_us(void)
{
#ifdef WITH_SYSTEMD
	uint64_t us = 0;

	/* 0 also if WATCHDOG_PID is another process */
	return sd_watchdog_enabled(0, &us) > 0 ? us / 2 : 0;
#else
	return 0;
#endif
}

void
service_manager_ready(void)
{
#ifdef WITH_SYSTEMD
	(void)sd_notify(0, "READY=1");
#endif
}

void
service_manager_status(const char *status)
{
#ifdef WITH_SYSTEMD
	(void)sd_notifyf(0, "STATUS=%s", status);
#else
	(void)status;
#endif
}

void
service_manager_alive(void)
{
#ifdef WITH_SYSTEMD
	(void)sd_notify(0, "WATCHDOG=1");
#endif
}

void
service_manager_beat(uint64_t *next, uint64_t now)
{
	uint64_t demanded;

	if (now < *next)
		return;
	demanded = service_manager_interval_us() / 1000;
	/* waits only if systemd has not read the last 512 messages */
	service_manager_alive();
	*next = now + (demanded != 0 && demanded < BEAT_MS ? demanded : BEAT_MS);
}

void
service_manager_extend(uint64_t us)
{
#ifdef WITH_SYSTEMD
	(void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, us);
#else
	(void)us;
#endif
}

void
service_manager_stopping(void)
{
#ifdef WITH_SYSTEMD
	(void)sd_notify(0, "STOPPING=1");
#endif
}
