/* SPDX-License-Identifier: BSD-3-Clause */
/* Log messages of multicast streams. */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "log.h"
#include "rx/fragments.h"
#include "rx/messages.h"
#include "rx/multicast_log.h"
#include "settings.h"

LOG_REGISTER("ingest", "ingest");

#define LOG_S  60 /* a warning about a stream is logged once in this time */
#define WAIT_S 5  /* a sender that has not admitted this member for this time is logged */
/*
 * If no packet of a group arrives for this time, while this number of packets is READ, the group
 * does not reach this host. Losses of a burst are READ within milliseconds.
 */
#define DEAF_MS	   2000
#define DEAF_READS 64

const char *const multicast_state_names[] = {
	[RDMA_STREAM_JOINING] = "joining",
	[RDMA_STREAM_JOINED] = "joined",
	[RDMA_STREAM_ENDED] = "ended",
	[RDMA_STREAM_LEFT] = "left",
	[RDMA_STREAM_FAILED] = "failed",
};

/** Log that a stream has failed, and the remedy. */
static void
log_failed(
	const struct rx_messages *m, uint32_t stream, const struct rdma_stream_receiver_info *info)
{
	const struct ingest_settings *s = &m->settings->ingest;
	const uint32_t payload_max = m->card.mtu - RDMA_STREAM_HEADER_BYTES;
	char advice[200] = "";

	if (info->error == -EACCES && s->identity == NULL)
		snprintf(advice, sizeof(advice),
			"; the detector requires a proof: set [ingest] identity and key");
	else if (info->error == -EACCES)
		snprintf(advice, sizeof(advice),
			"; the detector's keyring must have [ingest] identity = %s with this key, "
			"or it was started without --keys",
			s->identity);
	else if (info->error == -EKEYREJECTED)
		snprintf(advice, sizeof(advice),
			"; the sender does not have the key of [ingest] identity, or is not the "
			"detector");
	else if (info->error == -EMSGSIZE && info->payload > payload_max)
		snprintf(advice, sizeof(advice),
			"; the detector sends packets of %u bytes, expected at most %u with "
			"[ingest] mtu = %u: set it as the detector does",
			info->payload, payload_max, m->card.mtu);
	else if (info->error == -EMSGSIZE)
		snprintf(advice, sizeof(advice),
			"; the detector's ring has %u packets: set [ingest] buffers = %u or more, "
			"found %u",
			info->slots, info->slots, s->buffers);
	LOG(ERR, "stream %u: failed: %s%s\n", stream, rte_strerror(-info->error), advice);
}

static void
log_state(struct multicast_stream_log *log, const struct rx_messages *m, uint32_t stream,
	const struct rdma_stream_receiver_info *info)
{
	if (info->state == log->state && info->run == log->run)
		return;
	if (info->state == RDMA_STREAM_FAILED)
		log_failed(m, stream, info);
	else if (info->state == RDMA_STREAM_JOINED)
		LOG(NOTICE, "stream %u: joined at packet %" PRIu64 " of run %016" PRIx64 "\n",
			stream, info->start, info->run);
	else if (info->state == RDMA_STREAM_JOINING)
		LOG(WARNING, "stream %u: the connections to the sender have ended; joining again\n",
			stream);
	else
		LOG(NOTICE, "stream %u: %s\n", stream, multicast_state_names[info->state]);
	log->state = info->state;
	log->run = info->run;
}

/** Log that fragments of a stream are refused, and why. */
static void
log_refused(
	struct multicast_stream_log *log, uint32_t stream, const uint64_t *refused, uint64_t now)
{
	char text[160] = "";
	size_t used = 0;
	uint64_t n = 0;

	if (now < log->refused_at)
		return;
	for (uint32_t c = 0; c < RX_FRAGMENT_CAUSES; c++) {
		const uint64_t of = refused[c];

		n += of;
		if (of > 0 && used < sizeof(text))
			used += snprintf(text + used, sizeof(text) - used, "%s%s %" PRIu64,
				used > 0 ? ", " : "", rx_fragment_cause_names[c], of);
	}
	if (n == log->refused)
		return;
	LOG(WARNING,
		"stream %u: %" PRIu64 " fragments were refused (%s); the detector must have the "
		"same modules, rows and [ingest] mtu as the receiver\n",
		stream, n, text);
	log->refused = n;
	log->refused_at = now + LOG_S * rte_get_tsc_hz();
}

/** Log that no packet of a stream comes by multicast, although all of them arrive by READ. */
static void
log_group(struct multicast_stream_log *log, const struct rx_messages *m, uint32_t stream,
	const struct rdma_stream_receiver_info *info, uint64_t now)
{
	const rte_be32_t address = htonl(m->settings->ingest.group + stream);
	/* a member that is behind gets packets of the group that it cannot use */
	const uint64_t came = info->received + info->duplicate + info->stale;
	const uint64_t reads = info->repaired - log->group.repaired;
	const bool more = info->repaired != log->group.seen;
	char text[INET_ADDRSTRLEN] = "";

	log->group.seen = info->repaired;
	if (info->joins != log->group.joins || came != log->group.came) {
		log->group.heard = info->joins == log->group.joins;
		log->group.joins = info->joins;
		log->group.came = came;
		log->group.repaired = info->repaired;
		log->group.at = now;
		return;
	}
	/* a stream that is shorter than this time is checked at its end */
	if (reads < DEAF_READS || now < log->group.warn_at ||
		!(more ? now - log->group.at > rte_get_tsc_hz() / 1000 * DEAF_MS
		       : !log->group.heard && info->state == RDMA_STREAM_ENDED))
		return;
	inet_ntop(AF_INET, &address, text, sizeof(text));
	LOG(WARNING,
		"stream %u: %" PRIu64
		" packets were READ, and meanwhile none arrived by multicast to "
		"%s; check [ingest] group, and that the switches have an IGMP querier\n",
		stream, reads, text);
	log->group.repaired = info->repaired;
	log->group.warn_at = now + LOG_S * rte_get_tsc_hz();
}

void
multicast_log_begin(struct multicast_log *log)
{
	log->joining = 0;
}

void
multicast_log_stream(struct multicast_log *log, const struct rx_messages *m, uint32_t stream,
	const struct rdma_stream_receiver_info *info, const uint64_t *refused, uint64_t now)
{
	struct multicast_stream_log *st = &log->stream[stream];

	log_state(st, m, stream, info);
	log_refused(st, stream, refused, now);
	log_group(st, m, stream, info, now);
	if (info->state == RDMA_STREAM_JOINING && log->joining++ == 0)
		log->first = stream;
}

void
multicast_log_end(struct multicast_log *log, const struct rx_messages *m, uint64_t now)
{
	const struct ingest_settings *s = &m->settings->ingest;
	const rte_be32_t address = htonl(s->sender);
	char text[INET_ADDRSTRLEN] = "";

	if (log->joining == 0) {
		log->joining_since = 0;
		log->joining_logged = false;
		return;
	}
	if (log->joining_since == 0)
		log->joining_since = now;
	if (log->joining_logged || now - log->joining_since < WAIT_S * rte_get_tsc_hz())
		return;
	inet_ntop(AF_INET, &address, text, sizeof(text));
	LOG(WARNING,
		"stream %u: no answer of %s port %u for %u s, %u of %u streams have not joined; "
		"check that the detector runs, and [ingest] sender and service\n",
		log->first, text, s->service + log->first, WAIT_S, log->joining, m->card.streams);
	log->joining_logged = true;
}
