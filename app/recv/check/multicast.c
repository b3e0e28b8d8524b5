/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <rdma_stream.h>

#include "check/check.h"
#include "check/multicast.h"
#include "ingest/card.h"
#include "settings.h"
#include "xfer/auth_key.h"

#define REPAIR_BUFFERS 1024 /**< default of rdma_stream_receiver_attr */
/** GRH and alignment of a receive buffer, in addition to the path MTU */
#define BUFFER_MORE 128

static const char *
print_address(uint32_t address, char text[INGEST_ADDRESS_LEN])
{
	snprintf(text, INGEST_ADDRESS_LEN, "%u.%u.%u.%u", address >> 24, address >> 16 & 0xFF,
		address >> 8 & 0xFF, address & 0xFF);
	return text;
}

void
check_multicast_groups(struct check *c, const struct settings *s)
{
	const struct ingest_settings *i = &s->ingest;
	const uint32_t last = s->detector.streams - 1;
	char first[INGEST_ADDRESS_LEN], end[INGEST_ADDRESS_LEN], sender[INGEST_ADDRESS_LEN];

	check_add(c, CHECK_OK, "multicast groups",
		"%s ... %s, of %s, ports %u ... %u; switches that snoop IGMP need a querier",
		print_address(i->group, first), print_address(i->group + last, end),
		print_address(i->sender, sender), i->service, i->service + last);
}

void
check_multicast_key(struct check *c, const struct settings *s)
{
	char message[PATH_MAX];
	struct xfer_key key;

	if (s->ingest.key == NULL) {
		check_add(c, CHECK_WARN, "multicast key",
			"none: sender and receiver prove nothing to each other");
		check_fix(c, "set [ingest] identity and key, and give the detector a keyring");
		return;
	}
	if (xfer_key_read(&key, s->ingest.key, message) != 0) {
		check_add(c, CHECK_FAIL, "multicast key", "%s", message);
		check_fix(c, "put the key of [ingest] identity there, readable only by this user");
		return;
	}
	check_add(c, CHECK_OK, "multicast key", "%s, %zu bytes", s->ingest.key, key.size);
	xfer_key_forget(&key);
}

/** Memory that the kernel can give to processes. @return 0: unknown */
static uint64_t
available(const struct check *c)
{
	char text[4096];
	const char *at;
	uint64_t kib;

	check_read(c, text, sizeof(text), "/proc/meminfo");
	at = strstr(text, "MemAvailable:");
	return at != NULL && sscanf(at, "MemAvailable: %" SCNu64, &kib) == 1 ? kib << 10 : 0;
}

void
check_multicast_memory(struct check *c, const struct settings *s)
{
	const struct ingest_settings *i = &s->ingest;
	const uint64_t streams = s->detector.streams;
	const uint64_t message =
		INGEST_LEADER_BYTES + s->detector.ops->pixel_bytes + INGEST_TRAILER_BYTES;
	const uint64_t rings = streams * i->slots * s->detector.stream_packets * message;
	const uint64_t buffers =
		streams * (i->buffers + REPAIR_BUFFERS) * (uint64_t)(i->mtu + BUFFER_MORE);
	uint64_t have;
	char ring[16], buffer[16], free[16];

	have = available(c);
	check_add(c, have != 0 && have < rings + buffers ? CHECK_FAIL : CHECK_OK,
		"multicast memory",
		"%s for rings of %u frames, %s for %u buffers of each stream: at least the packets "
		"of the sender's ring; %s available",
		check_print_bytes(rings, ring), i->slots, check_print_bytes(buffers, buffer),
		i->buffers, have != 0 ? check_print_bytes(have, free) : "unknown memory");
	if (have != 0 && have < rings + buffers)
		check_fix(c, "set [ingest] slots and buffers lower, or reserve fewer huge pages");
}

void
check_multicast(struct check *c, const struct settings *s)
{
	if (s->ingest.transport != INGEST_MULTICAST)
		return;
	check_multicast_groups(c, s);
	check_multicast_key(c, s);
	check_multicast_memory(c, s);
}
