/* SPDX-License-Identifier: BSD-3-Clause */
/* Classifies samples of packets that could not be used, and writes the warning about them. */

#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "builder/builder.h"
#include "ingest/card.h"
#include "rx/rejects.h"
#include "rx/rx.h"
#include "source_settings.h"

/** Number of a stream's incomplete frames that show which packets it never sends. */
#define ODD_FRAMES 8

#define ROCE_PORT 4791 /* UDP port of RoCEv2 */

/** UDP length of the detector's packets. */
static uint32_t
expected_length(const struct detector *d)
{
	return sizeof(struct rte_udp_hdr) + d->ops->header_bytes + d->ops->pixel_bytes;
}

static bool
is_vlan(uint16_t ether_type)
{
	return ether_type == RTE_ETHER_TYPE_VLAN || ether_type == RTE_ETHER_TYPE_QINQ;
}

static uint16_t
word(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/**
 * Classify a packet by its IPv4 and UDP headers.
 * @param at      offset of the IPv4 header
 * @param tagged  the packet has a VLAN tag
 */
static enum reject
read_ip(struct reject_kind *k, const struct rx_sample *s, uint32_t at, const struct detector *d,
	bool tagged)
{
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(s->data + at);
	const uint32_t header = rte_ipv4_hdr_len(ip);
	const uint8_t *udp = s->data + at + header;
	bool fits;

	memcpy(k->source, &ip->src_addr, sizeof(k->source));
	memcpy(k->destination, &ip->dst_addr, sizeof(k->destination));
	k->protocol = ip->next_proto_id;
	k->length = rte_be_to_cpu_16(ip->total_length);
	if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip) || ip->next_proto_id != IPPROTO_UDP)
		return REJECT_OTHER;
	if ((ip->fragment_offset & RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) != 0)
		return REJECT_FRAGMENT;
	if (at + header + sizeof(struct rte_udp_hdr) > s->bytes)
		return REJECT_OTHER;
	k->source_port = word(udp);
	k->port_min = k->port_max = k->destination_port = word(udp + 2);
	k->length = word(udp + 4);
	fits = k->length == expected_length(d);
	if (tagged)
		return fits ? REJECT_VLAN : REJECT_OTHER;
	if (header > sizeof(*ip))
		return fits ? REJECT_OPTIONS : REJECT_UDP;
	k->ip_checksum = rte_raw_cksum(ip, sizeof(*ip)) == UINT16_MAX;
	return fits ? REJECT_PORT : REJECT_UDP;
}

/** The bit of the stream that a port belongs to; 0: none. */
static uint64_t
stream_of(uint32_t udp_port, uint32_t port, const struct detector *d)
{
	return port >= udp_port && port < udp_port + d->streams ? UINT64_C(1) << (port - udp_port)
								: 0;
}

static bool
is_absent(const struct detector *d, uint64_t stream)
{
	return stream != 0 && detector_stream_expected(d, __builtin_ctzll(stream)) == 0;
}

/** Return true if the stream sends this packet number. */
static bool
is_expected(const struct detector *d, uint64_t stream, uint32_t packet)
{
	const uint32_t s = stream != 0 ? __builtin_ctzll(stream) : 0;

	return stream != 0 && packet >= d->expect_from[s] && packet < d->expect_to[s];
}

/** Classify a packet. @param r  samples that include it */
static enum reject
read_sample(struct reject_kind *k, const struct rx_sample *s, const struct rejects *r,
	const struct detector *d)
{
	const uint32_t udp_port = r->udp_port;
	uint32_t at = RTE_ETHER_HDR_LEN;
	enum reject what;

	k->captured = s->length;
	if (s->bytes < at)
		return REJECT_OTHER;
	k->ether_type = word(s->data + 12);
	if (is_vlan(k->ether_type))
		k->tag = word(s->data + 14) & 0xFFF;
	while (at + RTE_VLAN_HLEN <= s->bytes && is_vlan(word(s->data + at - 2)))
		at += RTE_VLAN_HLEN;
	if (word(s->data + at - 2) != RTE_ETHER_TYPE_IPV4 ||
		at + sizeof(struct rte_ipv4_hdr) > s->bytes)
		return REJECT_OTHER;
	what = read_ip(k, s, at, d, at > RTE_ETHER_HDR_LEN);
	switch ((enum rx_counter)s->cause) {
	case RX_CHECKSUM:
		return REJECT_CHECKSUM;
	case RX_WRONG_LENGTH:
		if (r->messages)
			return REJECT_MESSAGE;
		return what == REJECT_PORT ? REJECT_CUT : REJECT_LENGTH;
	case RX_MALFORMED: {
		const uint8_t *header =
			s->data + at + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_udp_hdr);
		struct detector_packet packet;

		if (header + d->ops->header_bytes > s->data + s->bytes)
			return REJECT_FORMAT;
		d->ops->parse(&header, &packet, 1);
		if (packet.packet == DETECTOR_PACKET_BAD) {
			d->ops->explain(header, k->header, sizeof(k->header));
			return REJECT_FORMAT;
		}
		if (is_absent(d, stream_of(udp_port, k->port_min, d)))
			return REJECT_ABSENT;
		k->tile = packet.packet;
		/* nothing else is wrong with a message whose header is good */
		if (r->messages && is_expected(d, stream_of(udp_port, k->port_min, d), k->tile))
			return REJECT_ADDRESS;
		return REJECT_NUMBER;
	}
	default:
		return what;
	}
}

void
rejects_add(struct rejects *r, const struct rx_sample *sample, const struct detector *d)
{
	struct reject_kind found = {0}, *k;

	k = &r->kind[read_sample(&found, sample, r, d)];
	if (k->samples == 0) {
		*k = found;
	} else {
		k->port_min = RTE_MIN(k->port_min, found.port_min);
		k->port_max = RTE_MAX(k->port_max, found.port_max);
	}
	k->streams |= stream_of(r->udp_port, found.port_min, d);
	k->samples++;
}

void
rejects_clear(struct rejects *r)
{
	memset(r->kind, 0, sizeof(r->kind));
}

const char *
rejects_of_stream(const struct rejects *r, uint32_t stream)
{
	static const char *const what[REJECTS] = {
		[REJECT_UDP] = "have another length",
		[REJECT_VLAN] = "have a VLAN tag",
		[REJECT_OPTIONS] = "have IPv4 options",
		[REJECT_CHECKSUM] = "have a wrong checksum",
		[REJECT_LENGTH] = "have another length",
		[REJECT_CUT] = "are truncated",
		[REJECT_FORMAT] = "have no header of the detector's format",
		[REJECT_NUMBER] = "have packet numbers that the stream does not send",
		[REJECT_ABSENT] = "are from a stream in [detector] absent",
		[REJECT_MESSAGE] = "are messages of another length or operation",
		[REJECT_ADDRESS] = "are messages at a wrong address",
	};

	for (enum reject i = REJECT_OTHER; i < REJECTS; i++)
		if (what[i] != NULL && (r->kind[i].streams >> stream & 1) != 0)
			return what[i];
	return NULL;
}

enum reject
rejects_commonest(const struct rejects *r)
{
	enum reject most = REJECT_OTHER;

	for (enum reject i = REJECT_OTHER; i < REJECTS; i++)
		if (r->kind[i].samples > 0 &&
			(r->kind[i].samples > r->kind[most].samples || most <= REJECT_UDP))
			most = i;
	return most;
}

uint64_t
rejects_samples(const struct rejects *r)
{
	uint64_t samples = 0;

	for (enum reject i = REJECT_OTHER; i < REJECTS; i++)
		samples += r->kind[i].samples;
	return samples;
}

/** "(10.1.1.1:32410 to 10.1.2.1:50001, UDP length 8248)" */
static void
describe(const struct reject_kind *k, bool ports, char *text, size_t size)
{
	const uint8_t *s = k->source, *d = k->destination;

	if (ports)
		snprintf(text, size, "(%u.%u.%u.%u:%u to %u.%u.%u.%u:%u, UDP length %u)", s[0],
			s[1], s[2], s[3], k->source_port, d[0], d[1], d[2], d[3],
			k->destination_port, k->length);
	else
		snprintf(text, size, "(%u.%u.%u.%u to %u.%u.%u.%u, IPv4 length %u)", s[0], s[1],
			s[2], s[3], d[0], d[1], d[2], d[3], k->length);
}

/** "50001" or "50001 to 50008" */
static void
range(uint32_t from, uint32_t to, char *text, size_t size)
{
	if (from == to)
		snprintf(text, size, "%u", from);
	else
		snprintf(text, size, "%u to %u", from, to);
}

/** "module 1 (stream 1, UDP port 50002) and 2 other streams" */
static void
name_streams(const struct reject_view *v, uint64_t streams, char *text, size_t size)
{
	const uint32_t others = __builtin_popcountll(streams) - 1;
	char name[64];

	detector_stream_name(
		v->detector, v->udp_port, __builtin_ctzll(streams), name, sizeof(name));
	if (others == 0)
		snprintf(text, size, "%s", name);
	else
		snprintf(text, size, "%s and %u other stream%s", name, others,
			others > 1 ? "s" : "");
}

/** Range of packet numbers that a stream sends in incomplete frames. */
struct seen_range {
	uint32_t first, last;
	bool any;
};

/** Read the range of packets of a stream. @return false: it has a hole, or is empty */
static bool
seen_range(const struct builder_stream *s, struct seen_range *seen)
{
	uint32_t bits = 0;

	*seen = (struct seen_range){0};
	for (uint32_t p = 0; p < 128; p++) {
		if ((s->seen[p / 64] >> (p % 64) & 1) == 0)
			continue;
		if (bits++ == 0)
			seen->first = p;
		seen->last = p;
	}
	seen->any = bits > 0;
	return seen->any && bits == seen->last - seen->first + 1;
}

/** Return true if a frame with at least one packet was closed in this run. */
static bool
has_frames(const struct reject_view *v)
{
	for (uint32_t s = 0; s < v->detector->streams; s++)
		if (v->stats->stream[s].frames > 0)
			return true;
	return v->stats->complete > 0;
}

/** Return true if all sending streams send exactly the first half of a module's packets. */
static bool
sends_halves(const struct reject_view *v)
{
	const struct detector *d = v->detector;
	struct seen_range seen;
	uint32_t streams = 0;

	if (d->interfaces != 1 || d->ops->interfaces_max < 2 || v->stats->complete > 0)
		return false;
	for (uint32_t s = 0; s < d->streams; s++) {
		if (v->stats->stream[s].frames == 0)
			continue;
		if (!seen_range(&v->stats->stream[s], &seen) || seen.first != 0 ||
			seen.last + 1 != d->module_packets / 2)
			return false;
		streams++;
	}
	return streams > 0;
}

void
rejects_explain_ports(const struct rejects *r, const struct reject_view *v, char *text, size_t size)
{
	const struct reject_kind *k = &r->kind[REJECT_PORT];
	const struct detector *d = v->detector;
	const uint32_t last = v->udp_port + d->streams - 1;
	uint32_t from = v->port_min, to = v->port_max;
	char example[96] = "", found[24], expected[24], what[64];

	/* samples need not include the first and the last port, but also have distant ones */
	if (k->samples > 0) {
		from = from == 0 ? k->port_min : RTE_MIN(from, (uint32_t)k->port_min);
		to = RTE_MAX(to, (uint32_t)k->port_max);
		describe(k, true, example, sizeof(example));
	}
	range(from, to, found, sizeof(found));
	range(v->udp_port, last, expected, sizeof(expected));
	if (sends_halves(v))
		snprintf(what, sizeof(what), "interfaces = 2");
	else if (!v->placed || from < v->udp_port)
		snprintf(what, sizeof(what), "udp_port = %u", from);
	else
		snprintf(what, sizeof(what), "modules = %u%s",
			(to - v->udp_port) / d->interfaces + 1,
			d->interfaces == 1 && !has_frames(v) ? ", or interfaces = 2" : "");
	snprintf(text, size, "are sent to UDP port %s%s%s, expected %s; set [detector] %s", found,
		example[0] != '\0' ? " " : "", example, expected, what);
}

/**
 * Return true if all numbers out of range are on one side of the expected ones. Any number of rows
 * has the same packets on both sides of a module's middle.
 */
static bool
is_one_sided(const struct reject_view *v, uint32_t from, uint32_t to)
{
	return v->detector->interfaces == 1 && (v->highest <= from || v->lowest > to);
}

/** Number of rows that explains the packet numbers received, in and out of range. */
static uint32_t
rows_of_numbers(const struct reject_view *v)
{
	const struct detector *d = v->detector;
	const uint32_t middle = d->stream_packets / 2;
	uint32_t rows = 0;

	for (uint32_t s = 0; s < d->streams; s++) {
		if (detector_stream_expected(d, s) == 0)
			continue;

		const uint32_t from = RTE_MIN(v->lowest - 1, (uint32_t)d->expect_from[s]);
		const uint32_t to = RTE_MAX(v->highest, (uint32_t)d->expect_to[s]);
		uint32_t packets = to - from;

		/* the middle rows are the last of interface 0 and the first of interface 1 */
		if (d->interfaces == 1)
			packets = 2 * RTE_MAX(middle - from, to - middle);
		else if (d->interfaces == 2)
			packets = 2 * (s % 2 == 0 ? d->stream_packets - from : to);
		rows = RTE_MAX(rows, packets * d->ops->tile_rows);
	}
	return rows;
}

static void
explain_number(const struct reject_view *v, char *text, size_t size)
{
	const struct detector *d = v->detector;
	char found[48], expected[24], name[96];
	uint32_t from = UINT32_MAX, to = 0;
	size_t used;

	for (uint32_t s = 0; s < d->streams; s++) {
		if (detector_stream_expected(d, s) == 0 || (v->odd != 0 && (v->odd >> s & 1) == 0))
			continue;
		from = RTE_MIN(from, (uint32_t)d->expect_from[s]);
		to = RTE_MAX(to, (uint32_t)d->expect_to[s]);
	}
	if (v->stream_lowest == 0 ||
		(d->expect_from[v->stream] == from && d->expect_to[v->stream] == to)) {
		range(v->lowest - 1, v->highest - 1, found, sizeof(found));
		range(from, to - 1, expected, sizeof(expected));
	} else { /* without the range of all streams: each stream expects another one */
		range(v->stream_lowest - 1, v->stream_highest - 1, found, sizeof(found));
		used = strlen(found);
		snprintf(found + used, sizeof(found) - used, " in stream %u", v->stream);
		range(d->expect_from[v->stream], d->expect_to[v->stream] - 1, expected,
			sizeof(expected));
	}
	if (__builtin_popcountll(v->swapped) == 2) {
		snprintf(text, size,
			"have packet numbers from %s, expected %s; streams %u and %u look "
			"swapped: swap their cables or ports",
			found, expected, __builtin_ctzll(v->swapped),
			63 - __builtin_clzll(v->swapped));
	} else if (v->swapped != 0) {
		name_streams(v, v->swapped, name, sizeof(name));
		snprintf(text, size,
			"have packet numbers from %s, expected %s; %s look like those of the other "
			"interface: check [detector] udp_port, the cables and the ports",
			found, expected, name);
	} else if (v->odd != 0) {
		/* any setting that fits them would not fit the others */
		name_streams(v, v->odd, name, sizeof(name));
		snprintf(text, size,
			"have packet numbers from %s, expected %s, and are from %s, unlike "
			"those of other modules; check the rows and interfaces that are set in "
			"that module",
			found, expected, name);
	} else if (v->highest <= d->stream_packets && is_one_sided(v, from, to))
		snprintf(text, size,
			"have packet numbers from %s, expected %s; no [detector] rows fits, "
			"because the rows read out are those around packet %u, the middle of a "
			"module; check the rows that the detector reads out",
			found, expected, d->stream_packets / 2);
	else if (v->highest <= d->stream_packets)
		snprintf(text, size,
			"have packet numbers from %s, expected %s; set [detector] rows = %u", found,
			expected, rows_of_numbers(v));
	else if (d->interfaces > 1 && v->highest <= d->module_packets)
		snprintf(text, size,
			"have packet numbers from %s, expected %s; set [detector] interfaces = 1",
			found, expected);
	else
		snprintf(text, size,
			"have packet numbers from %s, expected %s; check [detector] type", found,
			expected);
}

/** A RoCE message of another form. Its headers are those of the queue pair. */
static void
explain_message(const struct reject_kind *k, const struct detector *d, char *text, size_t size)
{
	const uint32_t bytes = k->captured - SOURCE_HEADERS;
	const uint32_t expected = d->ops->pixel_bytes + INGEST_TRAILER_BYTES;

	if (bytes == expected)
		snprintf(text, size,
			"are messages of another operation or path MTU than expected; check "
			"[detector] transport and [ingest] mtu");
	else
		snprintf(text, size,
			"are messages of %u bytes, expected %u: %u of pixels and a trailer of %u; "
			"check the detector's messages",
			bytes, expected, d->ops->pixel_bytes, INGEST_TRAILER_BYTES);
}

/** UDP packets of another form than that of the transport. */
static void
explain_udp(const struct reject_kind *k, const struct detector *d, const char *example, char *text,
	size_t size)
{
	if (k->destination_port == ROCE_PORT)
		snprintf(text, size,
			"are RoCEv2 %s, expected UDP packets of a %s; set [detector] "
			"transport to send or write, and [port N] device to roce:port=...",
			example, d->ops->name);
	else
		snprintf(text, size,
			"are UDP %s, expected length %u; check that the detector sends, and "
			"[detector] type",
			example, expected_length(d));
}

static void
explain_vlan(const struct reject_kind *k, const char *example, char *text, size_t size)
{
	if (k->tag == 0)
		snprintf(text, size,
			"have a priority tag (VLAN 0) %s, expected none; disable priority "
			"tags (802.1p) of this port on the switch or in the detector",
			example);
	else
		snprintf(text, size,
			"have VLAN tag %u %s, expected none; configure this port's VLAN as "
			"untagged on the switch",
			k->tag, example);
}

/** @param name  the only streams that send such packets; "": all do */
static void
explain_length(
	const struct detector *d, const char *example, const char *name, char *text, size_t size)
{
	if (name[0] != '\0')
		snprintf(text, size,
			"have length %s, expected %u of a %s, and are from %s, unlike "
			"those of other modules; check that module's configuration",
			example, expected_length(d), d->ops->name, name);
	else
		snprintf(text, size,
			"have length %s, expected %u of a %s; set [detector] type and "
			"udp_port to the detector that sends",
			example, expected_length(d), d->ops->name);
}

/** @param name  as for explain_length() */
static void
explain_format(const struct reject_kind *k, const struct detector *d, const char *example,
	const char *name, char *text, size_t size)
{
	if (name[0] != '\0')
		snprintf(text, size,
			"have no header of a %s %s: %s; they are from %s, unlike those of "
			"other modules: check that module's type and firmware",
			d->ops->name, example, k->header, name);
	else
		snprintf(text, size,
			"have no header of a %s %s: %s; check the detector's firmware, and "
			"set [detector] type and udp_port to the detector that sends",
			d->ops->name, example, k->header);
}

bool
rejects_explain(const struct rejects *r, const struct reject_view *v, char *text, size_t size)
{
	const enum reject what = rejects_commonest(r);
	const struct reject_kind *k = &r->kind[what];
	const struct detector *d = v->detector;
	char example[96], name[96] = "";

	if (k->samples == 0)
		return false;
	if (what == REJECT_ABSENT && k->streams != 0)
		name_streams(v, k->streams, name, sizeof(name));
	else if (v->odd != 0)
		name_streams(v, v->odd, name, sizeof(name));
	describe(k, what != REJECT_FRAGMENT, example, sizeof(example));
	switch (what) {
	case REJECT_UDP:
		explain_udp(k, d, example, text, size);
		break;
	case REJECT_PORT:
		rejects_explain_ports(r, v, text, size);
		break;
	case REJECT_VLAN:
		explain_vlan(k, example, text, size);
		break;
	case REJECT_OPTIONS:
		snprintf(text, size,
			"have IPv4 options %s, expected a header of 20 bytes; disable them in "
			"the sender or the router",
			example);
		break;
	case REJECT_FRAGMENT:
		snprintf(text, size,
			"are IPv4 fragments %s, expected whole datagrams; set an MTU of 9000 on "
			"the detector, the switches and this host",
			example);
		break;
	case REJECT_CHECKSUM:
		snprintf(text, size, "have a wrong %s checksum %s; check %s and the network",
			k->ip_checksum ? "UDP" : "IPv4 header", example,
			name[0] != '\0' ? name : "the sender");
		break;
	case REJECT_LENGTH:
		explain_length(d, example, name, text, size);
		break;
	case REJECT_CUT:
		snprintf(text, size,
			"are truncated %s: %u bytes are present; capture with a larger snapshot "
			"length, or check the port's MTU",
			example, k->captured);
		break;
	case REJECT_FORMAT:
		explain_format(k, d, example, name, text, size);
		break;
	case REJECT_ABSENT:
		snprintf(text, size,
			"are from %s, which sends, but is in [detector] absent; remove it from "
			"there",
			name);
		break;
	case REJECT_NUMBER:
		explain_number(v, text, size);
		break;
	case REJECT_MESSAGE:
		explain_message(k, d, text, size);
		break;
	case REJECT_ADDRESS:
		snprintf(text, size,
			"are messages at an address that is not that of their frame and tile (the "
			"first one has packet number %u); check base, slots and slot_bytes of the "
			"detector's card, and of a replay its `roce=`",
			k->tile);
		break;
	case REJECT_OTHER:
	default:
		snprintf(text, size,
			"are not IPv4 datagrams of UDP (EtherType 0x%04x); check that the "
			"detector sends to this port",
			k->ether_type);
		break;
	}
	return true;
}

/** Number of rows that explains a stream's packets; 0: none does. */
static uint32_t
rows_of_stream(const struct detector *d, uint32_t stream, const struct seen_range *seen)
{
	const uint32_t n = seen->last - seen->first + 1;
	bool fits = seen->first + seen->last + 1 == d->module_packets;

	if (d->interfaces == 2)
		fits = stream % 2 == 0 ? seen->last + 1 == d->stream_packets : seen->first == 0;
	return fits ? n * d->interfaces * d->ops->tile_rows : 0;
}

/** Number of packets that a stream should send, and that were never present. */
static uint32_t
never_seen(
	const struct detector *d, uint32_t stream, const struct builder_stream *of, uint32_t *first)
{
	uint32_t n = 0;

	for (uint32_t p = d->expect_from[stream]; p < d->expect_to[stream]; p++)
		if ((of->seen[p / 64] >> (p % 64) & 1) == 0 && n++ == 0)
			*first = p;
	return n;
}

/**
 * Return true if the packets that were never present are nearly all that the stream misses.
 * Otherwise they are missing by chance, because many packets are lost.
 */
static bool
is_steady(const struct builder_stream *of, uint32_t never)
{
	const uint64_t missing = never * of->frames;

	return of->missing >= missing && (of->missing - missing) * 8 <= missing;
}

/** Describe the streams that never send some of their packets. @return false: there are none */
static bool
explain_odd(const struct reject_view *v, char *text, size_t size)
{
	const struct detector *d = v->detector;
	char name[96], found[24], expected[24];
	uint32_t first = 0, never = 0, one = 0;
	struct seen_range seen;
	uint64_t odd = 0;

	for (uint32_t s = 0; s < d->streams; s++) {
		const struct builder_stream *of = &v->stats->stream[s];
		uint32_t p = 0, n;

		if (of->frames < ODD_FRAMES)
			continue;
		n = never_seen(d, s, of, &p);
		if (n == 0 || !is_steady(of, n))
			continue;
		if (odd == 0) {
			one = s;
			first = p;
			never = n;
		}
		odd |= UINT64_C(1) << s;
	}
	if (odd == 0)
		return false;
	name_streams(v, odd, name, sizeof(name));
	if (seen_range(&v->stats->stream[one], &seen) && rows_of_stream(d, one, &seen) != 0) {
		range(seen.first, seen.last, found, sizeof(found));
		range(d->expect_from[one], d->expect_to[one] - 1, expected, sizeof(expected));
		snprintf(text, size,
			"%s sends packets %s, expected %s, unlike other modules; check the rows "
			"that are set in that module",
			name, found, expected);
	} else if (never == 1) {
		snprintf(text, size,
			"packet %u of %s is missing in all of them; check that module and its "
			"network",
			first, name);
	} else {
		snprintf(text, size,
			"%u packets of %s, the first is packet %u, are missing in all of them; "
			"check that module and its network",
			never, name, first);
	}
	return true;
}

/** Describe that all streams send the same part of their packets. @return false: they do not */
static bool
explain_alike(const struct reject_view *v, char *text, size_t size)
{
	const struct detector *d = v->detector;
	struct seen_range seen, first = {0};
	uint32_t rows = 0, one = 0;
	char found[24], expected[24];

	for (uint32_t s = 0; s < d->streams; s++) {
		if (v->stats->stream[s].frames == 0)
			continue;
		if (!seen_range(&v->stats->stream[s], &seen) ||
			seen.last - seen.first + 1 >= detector_stream_expected(d, s))
			return false;
		if (!first.any) {
			first = seen;
			one = s;
			rows = rows_of_stream(d, s, &seen);
		} else if (rows_of_stream(d, s, &seen) != rows) {
			return false;
		}
	}
	if (!first.any)
		return false;
	range(first.first, first.last, found, sizeof(found));
	range(d->expect_from[one], d->expect_to[one] - 1, expected, sizeof(expected));
	if (sends_halves(v))
		snprintf(text, size,
			"stream %u sends packets %s, expected %s; set [detector] interfaces = 2",
			one, found, expected);
	else if (rows != 0)
		snprintf(text, size,
			"stream %u sends packets %s, expected %s; set [detector] rows = %u", one,
			found, expected, rows);
	else
		return false;
	return true;
}

bool
rejects_explain_missing(const struct reject_view *v, char *text, size_t size)
{
	return v->stats->complete == 0 &&
		(explain_alike(v, text, size) || explain_odd(v, text, size));
}
