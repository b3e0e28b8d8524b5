/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/multicast.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "ingest/multicast.h"
#include "ingest/multicast_proof.h"
#include "rdma.h"
#include "transmit/address.h"
#include "transmit/packet_loss.h"

#define EVENTS_MAX    8
#define CONTROL_US    1000 /* time between two calls of the control functions */
#define ACTIVE_US     200  /* time without sleep after work: one READ often follows another */
#define SLEEP_US      100  /* between two polls while no member has joined */
#define NOTICE_S      2	   /* time between two log messages while members are missing */
#define LINGER_MS     300  /* for a peer to empty a shared ring before the port is stopped */
#define END_MS	      1000 /* to wait for the end of the senders */
#define SPARE_MEMBERS 8	   /* members that may join in addition to those that are waited for */

/* Ethernet, IPv4, UDP, BTH, DETH, immediate, header of the stream, ICRC */
#define HEADERS_BYTES (14 + 20 + 8 + 12 + 8 + 4 + RDMA_STREAM_HEADER_BYTES + 4)

struct transmit_multicast {
	const struct detector_options *options;
	struct rdma_dev_info info;
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct ingest_proof *proof; /* NULL: members prove nothing */
	struct packet_loss *loss;
	struct packet_loss_chance chance;
	uint32_t fragment_max;
	uint32_t nb_streams;
	uint64_t next_control; /* TSC */
	uint64_t active_until; /* TSC */
	bool failed;
	struct rdma_stream_sender *sender[INGEST_STREAMS_MAX];
};

static int
failed(const struct transmit_multicast *m, const char *what)
{
	const int error = rte_errno != 0 ? rte_errno : EINVAL;

	warnx("--device %s: cannot %s: %s", m->options->device_name, what, rte_strerror(error));
	return -error;
}

/* ---- open ----------------------------------------------------------------------------------- */

static int
stream_group(const struct transmit_multicast *m, uint32_t stream, struct sockaddr_storage *group)
{
	const char *text = m->options->group;
	const bool v6 = m->info.addr.ss_family == AF_INET6;

	if (transmit_address_parse(text, 0, group) == 0 &&
		group->ss_family == m->info.addr.ss_family &&
		transmit_address_group(group, stream) == 0)
		return 0;
	warnx("--group: found '%s', expected an IPv%d multicast address that %u streams can count "
	      "from, as in %s",
		text, v6 ? 6 : 4, m->nb_streams, v6 ? "ff15::100" : "239.192.0.0");
	return -EINVAL;
}

static int
open_loss(struct transmit_multicast *m)
{
	const struct fault_options *faults = &m->options->faults;
	int ret;

	m->chance = (struct packet_loss_chance){.group = faults->group_loss,
		.read = faults->read_loss,
		.seed = detector_options_fault_seed(m->options)};
	if (faults->group_loss == 0.0 && faults->read_loss == 0.0)
		return 0;
	ret = packet_loss_create(m->options->device_name, 0, 0, &m->loss);
	if (ret == 0)
		packet_loss_random(m->loss, &m->chance);
	return ret;
}

static int
open_keys(struct transmit_multicast *m)
{
	char message[PATH_MAX];
	int ret;

	if (m->options->keys_path == NULL) {
		warnx("members prove nothing; use --keys FILE unless the network is trusted");
		return 0;
	}
	ret = ingest_proof_sender(&m->proof, m->options->keys_path, message);
	if (ret != 0)
		warnx("--keys: %s", message);
	return ret;
}

static int
open_device(struct transmit_multicast *m)
{
	struct sockaddr_storage group;

	rte_errno = 0;
	m->dev = rdma_dev_open(m->options->device_name);
	if (m->dev == NULL)
		return failed(m, "open it");
	rdma_dev_info_get(m->dev, &m->info);
	m->fragment_max = ingest_fragment_max(m->info.mtu - RDMA_STREAM_HEADER_BYTES);
	m->pd = rdma_pd_alloc(m->dev);
	if (m->pd == NULL)
		return failed(m, "allocate a protection domain");
	return stream_group(m, m->nb_streams - 1, &group);
}

int
transmit_multicast_open(
	const struct detector_options *options, struct transmit_multicast **multicast)
{
	struct transmit_multicast *m = calloc(1, sizeof(*m));
	int ret;

	if (m == NULL)
		return -ENOMEM;
	m->options = options;
	m->nb_streams = options->wire.modules * options->wire.interfaces;
	ret = open_keys(m);
	if (ret == 0)
		ret = open_device(m);
	if (ret == 0)
		ret = open_loss(m);
	if (ret != 0) {
		transmit_multicast_close(m);
		return ret;
	}
	*multicast = m;
	return 0;
}

static int
create_senders(struct transmit_multicast *m)
{
	struct sockaddr_storage group;
	struct rdma_stream_sender_attr attr = {
		.dev = m->dev,
		.pd = m->pd,
		.group = (const struct sockaddr *)&group,
		.policy = m->options->policy,
		.slots = m->options->ring_slots,
		.members_max = (uint16_t)RTE_MIN(
			m->options->members + SPARE_MEMBERS, (uint32_t)RDMA_STREAM_MEMBERS_MAX),
		.silence_ms = m->options->silence_ms,
		.proof = m->proof != NULL ? ingest_proof_stream(m->proof) : NULL,
	};
	char what[64];
	int ret;

	for (uint32_t i = 0; i < m->nb_streams; i++) {
		ret = stream_group(m, i, &group);
		if (ret != 0)
			return ret;
		attr.port = (uint16_t)(m->options->service + i);
		rte_errno = 0;
		m->sender[i] = rdma_stream_sender_create(&attr);
		snprintf(what, sizeof(what), "create the sender of stream %u, port %u", i,
			attr.port);
		if (m->sender[i] == NULL)
			return failed(m, what);
	}
	return 0;
}

/* Find the stream with the fewest members. @param members  out: their number */
static uint32_t
find_fewest_members(const struct transmit_multicast *m, uint16_t *members)
{
	struct rdma_stream_sender_info info;
	uint32_t stream = 0;

	*members = UINT16_MAX;
	for (uint32_t i = 0; i < m->nb_streams; i++) {
		rdma_stream_sender_info_get(m->sender[i], &info);
		if (info.members < *members) {
			*members = info.members;
			stream = i;
		}
	}
	return stream;
}

int
transmit_multicast_start(
	struct transmit_multicast *m, uint32_t seconds, const volatile sig_atomic_t *stop)
{
	const uint64_t hz = rte_get_tsc_hz(), end = rte_rdtsc() + seconds * hz;
	uint64_t notice = rte_rdtsc() + hz / 2;
	uint16_t members;
	uint32_t stream;
	int ret;

	ret = create_senders(m);
	while (ret == 0) {
		const uint64_t now = rte_rdtsc();

		if (!transmit_multicast_poll(m))
			rte_delay_us_sleep(SLEEP_US);
		stream = find_fewest_members(m, &members);
		if (members >= m->options->members)
			break;
		if (*stop != 0)
			return -EINTR;
		if (m->failed)
			return -ENODEV;
		if ((int64_t)(now - notice) >= 0) {
			warnx("waiting for members: stream %u has %u, expected %u", stream, members,
				m->options->members);
			notice = now + NOTICE_S * hz;
		}
		if ((int64_t)(now - end) >= 0) {
			warnx("stream %u has %u members after %u s, expected %u; check the "
			      "receivers, their groups and keys, --members and --link-wait",
				stream, members, seconds, m->options->members);
			ret = -ETIMEDOUT;
		}
	}
	return ret;
}

/* ---- run ------------------------------------------------------------------------------------ */

static void
run_control(struct transmit_multicast *m, uint64_t now)
{
	struct rdma_event event[EVENTS_MAX];
	uint16_t n;

	m->next_control = now + rte_get_tsc_hz() / 1000000 * CONTROL_US;
	n = rdma_poll_cm(m->dev, event, EVENTS_MAX);
	for (uint16_t i = 0; i < n; i++) {
		if (event[i].type == RDMA_EVENT_DEVICE_REMOVED) {
			warnx("--device %s: it was removed", m->options->device_name);
			m->failed = true;
		}
		for (uint32_t s = 0; s < m->nb_streams && m->sender[s] != NULL; s++)
			if (rdma_stream_sender_event(m->sender[s], &event[i]))
				break;
	}
	for (uint32_t s = 0; s < m->nb_streams && m->sender[s] != NULL; s++)
		rdma_stream_sender_control(m->sender[s]);
}

bool
transmit_multicast_poll(struct transmit_multicast *m)
{
	unsigned int work = 0;
	uint64_t now;

	for (uint16_t g = 0; g < m->info.nb_poll_groups; g++)
		work += rdma_progress(m->dev, g);
	for (uint32_t s = 0; s < m->nb_streams && m->sender[s] != NULL; s++)
		work += rdma_stream_sender_poll(m->sender[s]);
	now = rte_rdtsc();
	if ((int64_t)(now - m->next_control) >= 0)
		run_control(m, now);
	if (work > 0)
		m->active_until = now + rte_get_tsc_hz() / 1000000 * ACTIVE_US;
	return (int64_t)(now - m->active_until) < 0;
}

bool
transmit_multicast_failed(const struct transmit_multicast *m)
{
	return m->failed;
}

uint32_t
transmit_multicast_fragment_max(const struct transmit_multicast *m)
{
	return m->fragment_max;
}

uint8_t *
transmit_multicast_next(struct transmit_multicast *m, uint32_t stream)
{
	return rdma_stream_next(m->sender[stream]);
}

uint32_t
transmit_multicast_commit(struct transmit_multicast *m, uint32_t stream, uint32_t bytes)
{
	const uint32_t l3 = m->info.addr.ss_family == AF_INET6 ? 20 : 0; /* more than IPv4 */

	/* the slot is that of transmit_multicast_next(), and a fragment fits */
	(void)rdma_stream_commit(m->sender[stream], bytes);
	return HEADERS_BYTES + l3 + RTE_ALIGN_CEIL(bytes, 4);
}

void
transmit_multicast_end(struct transmit_multicast *m)
{
	for (uint32_t s = 0; s < m->nb_streams; s++)
		rdma_stream_end(m->sender[s]);
}

bool
transmit_multicast_complete(const struct transmit_multicast *m)
{
	struct rdma_stream_sender_info info;

	for (uint32_t s = 0; s < m->nb_streams; s++) {
		rdma_stream_sender_info_get(m->sender[s], &info);
		if (!rdma_stream_sender_done(m->sender[s]) || info.tail != info.head)
			return false;
	}
	return true;
}

bool
transmit_multicast_left(const struct transmit_multicast *m)
{
	struct rdma_stream_sender_info info;

	for (uint32_t s = 0; s < m->nb_streams; s++) {
		rdma_stream_sender_info_get(m->sender[s], &info);
		if (info.members > 0)
			return false;
	}
	return true;
}

unsigned int
transmit_multicast_late(const struct transmit_multicast *m, unsigned int seconds)
{
	struct rdma_stream_member_info member[RDMA_STREAM_MEMBERS_MAX];
	struct rdma_stream_sender_info info;
	char text[RDMA_ADDRESS_LEN];
	unsigned int late = 0;

	for (uint32_t s = 0; s < m->nb_streams; s++) {
		const uint16_t n =
			rdma_stream_sender_members(m->sender[s], member, RDMA_STREAM_MEMBERS_MAX);

		rdma_stream_sender_info_get(m->sender[s], &info);
		for (uint16_t i = 0; i < n; i++) {
			if (member[i].tail == info.head)
				continue;
			late++;
			warnx("stream %u: member %s has %llu of %llu packets after %u s", s,
				rdma_address_text((const struct sockaddr *)&member[i].addr, text),
				(unsigned long long)member[i].tail, (unsigned long long)info.head,
				seconds);
		}
	}
	return late;
}

unsigned int
transmit_multicast_deserted(const struct transmit_multicast *m)
{
	struct rdma_stream_sender_info info;
	unsigned int deserted = 0;

	for (uint32_t s = 0; s < m->nb_streams; s++) {
		rdma_stream_sender_info_get(m->sender[s], &info);
		if (info.joined == 0 || info.members > 0 || info.left > 0)
			continue;
		deserted++;
		warnx("stream %u: all %llu members were removed, %llu of them because they were "
		      "silent; check the receivers",
			s, (unsigned long long)info.joined,
			(unsigned long long)info.removed_silent);
	}
	return deserted;
}

void
transmit_multicast_report(const struct transmit_multicast *m, struct detector_report *report)
{
	struct rdma_stream_sender_info info;
	struct rdma_xstat x[128];
	const int n = rdma_xstats_get(m->dev, x, RTE_DIM(x));

	for (int i = 0; i < RTE_MIN(n, (int)RTE_DIM(x)); i++)
		if (strcmp(x[i].name, "tx_packets") == 0)
			report->port_packets = x[i].value;
	for (uint32_t s = 0; s < m->nb_streams; s++) {
		rdma_stream_sender_info_get(m->sender[s], &info);
		report->members.joined += info.joined;
		report->members.left += info.left;
		report->members.removed += info.removed_silent + info.removed_wrong;
		report->members.refused += info.refused + info.refused_proof;
		report->members.resent += info.resent;
		report->port_errors += info.send_errors;
	}
	report->fault[FAULT_GROUP_LOSS] = m->chance.group_lost;
	report->fault[FAULT_READ_LOSS] = m->chance.read_lost;
}

/* ---- close ---------------------------------------------------------------------------------- */

static uint64_t
deadline_after_ms(uint32_t ms)
{
	return rte_rdtsc() + rte_get_tsc_hz() / 1000 * ms;
}

static void
destroy_senders(struct transmit_multicast *m)
{
	const uint64_t end = deadline_after_ms(END_MS);

	for (uint32_t s = 0; s < m->nb_streams; s++) {
		struct rdma_stream_sender *sender = m->sender[s];

		/* events of its connections belong to no sender from now on */
		m->sender[s] = NULL;
		while (sender != NULL && rdma_stream_sender_destroy(sender) == -EBUSY &&
			rte_rdtsc() < end)
			for (uint16_t g = 0; g < m->info.nb_poll_groups; g++)
				rdma_progress(m->dev, g);
	}
}

void
transmit_multicast_close(struct transmit_multicast *m)
{
	if (m == NULL)
		return;
	if (m->sender[0] != NULL) {
		const uint64_t end = deadline_after_ms(LINGER_MS);

		do
			transmit_multicast_poll(m);
		while (rte_rdtsc() < end);
		destroy_senders(m);
	}
	if (m->pd != NULL)
		rdma_pd_free(m->pd);
	if (m->dev != NULL) {
		packet_loss_destroy(m->loss);
		rdma_dev_close(m->dev);
	}
	ingest_proof_destroy(m->proof);
	free(m);
}
