/* SPDX-License-Identifier: BSD-3-Clause */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_pause.h>

#include "endpoint.h"

#define POLLS_PER_CM_POLL 64 /* control traffic is rare */
#define IDLE_POLLS	  4096
#define IDLE_SLEEP_US	  50
#define EVENTS_BURST	  8

volatile sig_atomic_t session_stop;

int
session_open(struct session *s, const char *device)
{
	memset(s, 0, sizeof(*s));
	s->dev = rdma_dev_open(device);
	if (!s->dev) {
		fprintf(stderr, "braggline-rdma: device %s: %s\n", device, rte_strerror(rte_errno));
		return -rte_errno;
	}
	rdma_dev_info_get(s->dev, &s->info);
	/* run the poll groups on this lcore before control functions wait for them */
	session_poll(s, 0);
	s->pd = rdma_pd_alloc(s->dev);
	if (!s->pd) {
		fprintf(stderr,
			"braggline-rdma: device %s: cannot create a protection domain: %s\n",
			device, rte_strerror(rte_errno));
		rdma_dev_close(s->dev);
		return -ENOMEM;
	}
	return 0;
}

void
session_close(struct session *s)
{
	while (s->nb_requests) {
		rdma_conn_reject(s->requests[s->first].conn, NULL, 0);
		s->first = (s->first + 1) % SESSION_REQUESTS_MAX;
		s->nb_requests--;
	}
	rdma_pd_free(s->pd);
	rdma_dev_close(s->dev);
}

void
session_print_stats(const struct session *s)
{
	const int most = rdma_xstats_get(s->dev, NULL, 0);
	struct rdma_xstat *x = calloc(RTE_MAX(most, 1), sizeof(*x));
	int i, n = x ? RTE_MIN(rdma_xstats_get(s->dev, x, most), most) : 0;

	printf("counters of %s:\n", s->info.name);
	for (i = 0; i < n; i++)
		if (x[i].value)
			printf("  %-40s %12" PRIu64 "\n", x[i].name, x[i].value);
	free(x);
}

uint64_t
session_deadline(unsigned int ms)
{
	return ms ? rte_get_tsc_cycles() + rte_get_tsc_hz() / 1000 * ms : UINT64_MAX;
}

static void
take_request(struct session *s, const struct rdma_event *event)
{
	if (s->nb_requests == SESSION_REQUESTS_MAX) {
		rdma_conn_reject(event->conn, NULL, 0);
		return;
	}
	s->requests[(s->first + s->nb_requests++) % SESSION_REQUESTS_MAX] = *event;
}

static unsigned int
poll_cm(struct session *s)
{
	struct rdma_event event[EVENTS_BURST];
	unsigned int i, n = rdma_poll_cm(s->dev, event, EVENTS_BURST);

	for (i = 0; i < n; i++) {
		struct endpoint *e;

		if (s->on_event && s->on_event(s->on_event_arg, &event[i]))
			continue;
		if (event[i].type == RDMA_EVENT_CONNECT_REQUEST) {
			take_request(s, &event[i]);
			continue;
		}
		if (event[i].type == RDMA_EVENT_DEVICE_REMOVED)
			s->removed = true;
		if (event[i].type == RDMA_EVENT_ADDR_CONFLICT)
			fprintf(stderr, "braggline-rdma: another station uses this address\n");
		e = event[i].conn && !s->on_event ? rdma_conn_context(event[i].conn) : NULL;
		if (e)
			endpoint_event(e, &event[i]);
	}
	return n;
}

int
session_poll(struct session *s, uint64_t deadline)
{
	unsigned int work = 0;
	uint16_t pg;

	for (pg = 0; pg < s->info.nb_poll_groups; pg++)
		work += rdma_progress(s->dev, pg);
	if (s->idle % POLLS_PER_CM_POLL == 0)
		work += poll_cm(s);
	/* also counts iterations with work, so that the CM is polled on a busy lcore */
	s->idle++;
	if (work)
		s->idle %= POLLS_PER_CM_POLL;
	else if (s->idle >= IDLE_POLLS) {
		s->idle -= POLLS_PER_CM_POLL;
		if (s->sleepy)
			usleep(IDLE_SLEEP_US);
	}
	if (session_stop)
		return -EINTR;
	if (s->removed)
		return -ENODEV;
	if (deadline != UINT64_MAX && rte_get_tsc_cycles() >= deadline)
		return -ETIMEDOUT;
	return 0;
}

void
session_linger(struct session *s, unsigned int ms)
{
	uint64_t end = session_deadline(ms);
	int ret;

	do {
		ret = session_poll(s, end);
	} while (ret != -ETIMEDOUT && (ret == 0 || rte_get_tsc_cycles() < end));
}

int
session_request(struct session *s, struct rdma_event *request, uint64_t deadline)
{
	int ret = 0;

	while (!s->nb_requests && ret == 0)
		ret = session_poll(s, deadline);
	if (!s->nb_requests)
		return ret;
	*request = s->requests[s->first];
	s->first = (s->first + 1) % SESSION_REQUESTS_MAX;
	s->nb_requests--;
	return 0;
}

const char *
session_error(int error)
{
	switch (error) {
	case -EINTR:
		return "interrupted";
	case -ETIMEDOUT:
		return "no answer in time";
	case -ENODEV:
		return "the device was removed";
	case -ECONNRESET:
		return "the peer disconnected";
	default:
		return strerror(-error);
	}
}
