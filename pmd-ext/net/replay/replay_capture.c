/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The capture in memory: the bytes of every packet in an arena of EAL memory, which NICs and GPUs
 * can access, and one entry per packet.
 *
 * The file is read twice, first to determine the required memory and then to load it. All memory is
 * therefore requested at once, and an error can state how much is needed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <pcap/pcap.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_malloc.h>
#include <rte_udp.h>

#include "replay.h"

/* Large enough for a small number of chunks, small enough for a fragmented heap. */
#define CHUNK_BYTES ((size_t)64 << 20)

/* Size of a slot: a frame and the padding before it, at most one cache line less one byte. */
static size_t
slot_bytes(uint32_t len)
{
	return RTE_ALIGN_CEIL((size_t)len + REPLAY_LINE - 1, (size_t)REPLAY_LINE);
}

/* Offset of a frame in its slot that puts its byte `align_at` at the start of a cache line. */
static uint32_t
slot_shift(uint32_t align_at)
{
	return (REPLAY_LINE - align_at % REPLAY_LINE) % REPLAY_LINE;
}

size_t
replay_capture_chunk(const struct replay_capture *capture, uint32_t chunk)
{
	return chunk + 1 < capture->nb_chunks ? CHUNK_BYTES : capture->last_chunk;
}

/** What to do if libpcap does not know a file's format, because the file is compressed. */
static const char *
compressed(const char *file)
{
	static const struct {
		const char *begin, *advice;
	} formats[] = {
		{"\x1f\x8b", "; it is compressed with gzip: decompress it with gunzip"},
		{"\x28\xb5\x2f\xfd", "; it is compressed with zstd: decompress it with unzstd"},
		{"\xfd"
		 "7zXZ",
			"; it is compressed with xz: decompress it with unxz"},
	};
	char begin[5] = "";
	FILE *f = fopen(file, "rb");
	size_t n = 0;

	if (f == NULL)
		return "";
	n = fread(begin, 1, sizeof(begin), f);
	fclose(f);
	for (unsigned int i = 0; i < RTE_DIM(formats); i++)
		if (n == sizeof(begin) &&
			memcmp(begin, formats[i].begin, strlen(formats[i].begin)) == 0)
			return formats[i].advice;
	return "";
}

static pcap_t *
capture_open(const char *name, const char *file)
{
	char why[PCAP_ERRBUF_SIZE];
	struct stat status;
	pcap_t *pcap;
	int link;

	/* the file is read twice, which is not possible with standard input ("-" in libpcap) and
	 * pipes */
	if (strcmp(file, "-") == 0 || (stat(file, &status) == 0 && !S_ISREG(status.st_mode))) {
		REPLAY_LOG(ERR, "%s: file=%s: expected a regular file", name, file);
		return NULL;
	}

	pcap = pcap_open_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, why);
	if (pcap == NULL) {
		/* libpcap includes the file name only in errors of opening */
		if (strncmp(why, file, strlen(file)) == 0)
			REPLAY_LOG(ERR, "%s: %s", name, why);
		else
			REPLAY_LOG(ERR, "%s: %s: %s%s", name, file, why, compressed(file));
		return NULL;
	}
	link = pcap_datalink(pcap);
	if (link != DLT_EN10MB) {
		const char *type = pcap_datalink_val_to_name(link);

		REPLAY_LOG(ERR, "%s: %s: link type %d (%s), expected Ethernet (%d)%s", name, file,
			link, type == NULL ? "unknown" : type, DLT_EN10MB,
			type != NULL && strncmp(type, "LINUX_SLL", strlen("LINUX_SLL")) == 0
				? "; capture on the detector's interface, not on any (-i INTERFACE)"
				: "");
		pcap_close(pcap);
		return NULL;
	}
	return pcap;
}

/* Position up to which a file was read. */
struct capture_end {
	off_t last; /* offset after the last complete record */
	bool cut;   /* the file ends within the next record */
};

/*
 * Return true if the file ends within a record, because its writer was killed or the disk was full.
 * The records before it are complete.
 */
static bool
capture_is_cut(pcap_t *pcap, off_t end)
{
	FILE *f = pcap_file(pcap);

	/* an invalid length field also leads to the end of the file, but from further back */
	return end > 0 && feof(f) && !ferror(f) && ftello(f) - end < REPLAY_FRAME_MAX;
}

/* @return 1: the next record with data; 0: end of the file or of its last complete record */
static int
capture_next(pcap_t *pcap, const char *name, const char *file, uint64_t record,
	struct capture_end *end, struct pcap_pkthdr **header, const uint8_t **bytes)
{
	int ret = pcap_next_ex(pcap, header, bytes);

	if (ret == PCAP_ERROR_BREAK)
		return 0;
	end->cut = ret != 1 && capture_is_cut(pcap, end->last);
	if (end->cut)
		return 0;
	if (ret != 1) {
		REPLAY_LOG(ERR, "%s: %s: record %" PRIu64 ": %s", name, file, record + 1,
			pcap_geterr(pcap));
		return -EIO;
	}
	if ((*header)->caplen > REPLAY_FRAME_MAX) {
		REPLAY_LOG(ERR, "%s: %s: record %" PRIu64 " holds %u bytes, expected at most %u",
			name, file, record + 1, (*header)->caplen, REPLAY_FRAME_MAX);
		return -EFBIG;
	}
	end->last = ftello(pcap_file(pcap));
	return 1;
}

/*
 * Return true if this is the header of another capture, read as a record: two captures were joined
 * with cat. The magic of the second one is then in place of the seconds.
 */
static bool
is_file_header(const struct pcap_pkthdr *header)
{
	const uint32_t magic = (uint32_t)header->ts.tv_sec;

	return header->caplen == 0 && (magic == 0xA1B2C3D4 || magic == 0xA1B23C4D);
}

/* Measures a file: adds to nb_packets, nb_chunks, last_chunk and the counts. */
static int
capture_measure(struct replay_capture *capture, const char *name, const char *file)
{
	const uint32_t before = capture->nb_packets;
	size_t used = capture->last_chunk;
	struct pcap_pkthdr *header;
	const uint8_t *bytes;
	uint64_t record = 0, empty = 0, first_empty = 0, last_used = 0;
	pcap_t *pcap;
	struct capture_end end = {0};
	int ret;

	pcap = capture_open(name, file);
	if (pcap == NULL)
		return -EINVAL;
	for (; (ret = capture_next(pcap, name, file, record, &end, &header, &bytes)) > 0;
		record++) {
		size_t slot = slot_bytes(header->caplen);

		if (is_file_header(header)) {
			REPLAY_LOG(ERR,
				"%s: %s: record %" PRIu64 " is the header of another capture: join "
				"captures with mergecap, or pass each with its own file=",
				name, file, record + 1);
			ret = -EINVAL;
			break;
		}
		if (header->caplen == 0) {
			capture->empty++;
			if (empty++ == 0)
				first_empty = record + 1;
			continue;
		}
		last_used = record + 1;
		if (capture->nb_packets == UINT32_MAX || capture->nb_chunks > UINT16_MAX) {
			REPLAY_LOG(ERR, "%s: %s: more than %u packets or %zu bytes", name, file,
				UINT32_MAX, CHUNK_BYTES * UINT16_MAX);
			ret = -EFBIG;
			break;
		}
		if (capture->nb_chunks == 0 || used + slot > CHUNK_BYTES) {
			capture->nb_chunks++;
			used = 0;
		}
		used += slot;
		capture->nb_packets++;
		capture->bytes += header->caplen;
		capture->truncated += header->caplen < header->len;
	}
	pcap_close(pcap);
	if (end.cut)
		REPLAY_LOG(WARNING,
			"%s: %s: ends within record %" PRIu64 ": %s%" PRIu64
			" records before it are used",
			name, file, record + 1, empty > 0 ? "" : "the ", record - empty);
	if (empty > 0)
		REPLAY_LOG(WARNING,
			"%s: %s: %" PRIu64 " records are empty and not used, the first is record "
			"%" PRIu64 "%s",
			name, file, empty, first_empty,
			last_used < first_empty ? "; the file is probably damaged from there"
						: "; records after it are used");
	if (ret == 0 && capture->nb_packets == before) {
		REPLAY_LOG(ERR, "%s: %s: no packets", name, file);
		ret = -ENODATA;
	}
	capture->last_chunk = used;
	return ret;
}

static void
heap_free_bytes(int socket, size_t *total, size_t *largest)
{
	*total = *largest = 0;
	for (unsigned int i = 0; i < rte_socket_count(); i++) {
		struct rte_malloc_socket_stats stats;
		int id = rte_socket_id_by_idx(i);

		if (socket != SOCKET_ID_ANY && socket != id)
			continue;
		if (rte_malloc_get_socket_stats(id, &stats) < 0)
			continue;
		*total += stats.heap_freesz_bytes;
		*largest = RTE_MAX(*largest, stats.greatest_free_size);
	}
}

static void
capture_free(struct replay_capture *capture)
{
	if (capture->chunks != NULL)
		for (uint32_t i = 0; i < capture->nb_chunks; i++)
			rte_free(capture->chunks[i]);
	rte_free(capture->chunks);
	rte_free(capture->copy_offset);
	rte_free(capture->packets);
	rte_free(capture->order);
	replay_roce_free(capture->roce);
	rte_free(capture);
}

static int
capture_alloc(struct replay_capture *capture, const struct replay_devargs *args, int socket)
{
	const bool paced =
		args->rate != 0 || args->bps != 0 || args->speed != 0 || args->burst != 0;
	/* per packet: order, queue list and times; the last two are allocated later by their users
	 */
	const size_t beside = 4 + 4 + (paced ? 8 : 0);
	size_t arena = (size_t)(capture->nb_chunks - 1) * CHUNK_BYTES + capture->last_chunk;
	size_t entries = (size_t)capture->nb_packets * (sizeof(struct replay_packet) + beside);
	size_t has, largest;

	heap_free_bytes(socket, &has, &largest);
	capture->packets = rte_zmalloc_socket("replay_packets",
		(size_t)capture->nb_packets * sizeof(capture->packets[0]), REPLAY_LINE, socket);
	capture->order = rte_malloc_socket("replay_order",
		capture->nb_packets * sizeof(capture->order[0]), REPLAY_LINE, socket);
	if (capture->packets == NULL || capture->order == NULL)
		goto refuse;
	capture->chunks = rte_zmalloc_socket(
		"replay_chunks", capture->nb_chunks * sizeof(capture->chunks[0]), 0, socket);
	capture->copy_offset = rte_zmalloc_socket("replay_copy_offset",
		capture->nb_chunks * sizeof(capture->copy_offset[0]), 0, socket);
	if (capture->chunks == NULL || capture->copy_offset == NULL)
		goto refuse;
	for (uint32_t i = 0; i < capture->nb_chunks; i++) {
		capture->chunks[i] = rte_malloc_socket(
			"replay_arena", replay_capture_chunk(capture, i), REPLAY_LINE, socket);
		if (capture->chunks[i] == NULL)
			goto refuse;
	}
	return 0;

refuse:
	REPLAY_LOG(ERR,
		"%s: the %u packets of %s%s need %zu bytes of EAL memory (%zu of frames, %zu of "
		"entries), the heap has %zu free, %zu of them contiguous; give EAL more memory "
		"(-m with --no-huge, or huge pages), or replay a smaller file",
		args->name, capture->nb_packets, args->files[0],
		args->nb_files > 1 ? " and the other files" : "", arena + entries, arena, entries,
		has, largest);
	return -ENOMEM;
}

/* The last reference to a packet was released: the port is closed. */
static void
packet_released(void *addr, void *opaque)
{
	struct replay_capture *capture = opaque;

	if (__atomic_sub_fetch(&capture->held, 1, __ATOMIC_ACQ_REL) == 0)
		capture_free(capture);
}

/* The headers that are parsed. */
struct headers {
	/* the frame may begin at an odd address: parsed bytes are copied to an aligned buffer */
	uint8_t bytes[sizeof(struct rte_ether_hdr) + 15 * RTE_IPV4_IHL_MULTIPLIER +
		sizeof(struct rte_udp_hdr)] __rte_aligned(2);
	const struct rte_ipv4_hdr *ip;
	const struct rte_udp_hdr *udp;
};

static uint32_t
classify(const uint8_t *frame, uint32_t len, struct headers *headers)
{
	const struct rte_ether_hdr *ether = (const void *)headers->bytes;
	const struct rte_ipv4_hdr *ip = (const void *)(ether + 1);
	uint32_t ihl, ptype = RTE_PTYPE_L2_ETHER;

	headers->ip = NULL;
	headers->udp = NULL;
	if (len < sizeof(*ether))
		return RTE_PTYPE_UNKNOWN;
	memcpy(headers->bytes, frame, RTE_MIN(len, sizeof(headers->bytes)));
	if (ether->ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		len < sizeof(*ether) + sizeof(*ip) || ip->version_ihl >> 4 != 4)
		return ptype;
	ihl = (ip->version_ihl & RTE_IPV4_HDR_IHL_MASK) * RTE_IPV4_IHL_MULTIPLIER;
	if (ihl < sizeof(*ip) || len < sizeof(*ether) + ihl)
		return ptype;
	headers->ip = ip;
	ptype |= ihl == sizeof(*ip) ? RTE_PTYPE_L3_IPV4 : RTE_PTYPE_L3_IPV4_EXT;
	if ((ip->fragment_offset & RTE_BE16(RTE_IPV4_HDR_OFFSET_MASK | RTE_IPV4_HDR_MF_FLAG)) != 0)
		return ptype | RTE_PTYPE_L4_FRAG;
	if (ip->next_proto_id != IPPROTO_UDP || len < sizeof(*ether) + ihl + sizeof(*headers->udp))
		return ptype;
	headers->udp = (const void *)((const uint8_t *)ip + ihl);
	return ptype | RTE_PTYPE_L4_UDP;
}

uint32_t
replay_packet_type(const uint8_t *frame, uint32_t len)
{
	struct headers headers;

	return classify(frame, len, &headers);
}

/*
 * Checksum flags of a complete frame, as a NIC sets them. `frame` must be aligned to 2 bytes.
 *
 * A capture taken on the sending host has partial UDP checksums if the adapter computes them: only
 * the pseudo header is summed (CHECKSUM_PARTIAL of Linux). The flag is then NONE, as for the
 * packets of virtual machines: the field is not the checksum, but the packet is not damaged.
 */
static uint32_t
verify_checksums(const uint8_t *frame, uint32_t len, const struct headers *headers)
{
	const struct rte_ipv4_hdr *ip = headers->ip;
	uint32_t flags, ihl, size;

	if (ip == NULL)
		return 0;
	ihl = rte_ipv4_hdr_len(ip);
	if (rte_raw_cksum(ip, ihl) != UINT16_MAX)
		return RTE_MBUF_F_RX_IP_CKSUM_BAD;
	flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
	size = rte_be_to_cpu_16(ip->total_length);
	/* a checksum of 0 was not computed */
	if (headers->udp == NULL || headers->udp->dgram_cksum == 0 ||
		size < ihl + sizeof(*headers->udp) || sizeof(struct rte_ether_hdr) + size > len)
		return flags;
	if (headers->udp->dgram_cksum == rte_ipv4_phdr_cksum(ip, 0))
		return flags | RTE_MBUF_F_RX_L4_CKSUM_NONE;
	if (rte_ipv4_udptcp_cksum_verify(ip, frame + sizeof(struct rte_ether_hdr) + ihl) != 0)
		return flags | RTE_MBUF_F_RX_L4_CKSUM_BAD;
	return flags | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
}

/* `bytes` are the packet's, in the buffer of libpcap, which is aligned to at least 4 bytes. */
static void
parse_headers(struct replay_packet *packet, const uint8_t *bytes, bool whole)
{
	struct headers headers;

	packet->ptype = classify(bytes, packet->len, &headers);
	packet->checksums = whole ? verify_checksums(bytes, packet->len, &headers) : 0;
	if (headers.ip != NULL) {
		packet->src_addr = headers.ip->src_addr;
		packet->dst_addr = headers.ip->dst_addr;
	}
	if (headers.udp != NULL) {
		packet->src_port = headers.udp->src_port;
		packet->dst_port = headers.udp->dst_port;
	}
}

/* Where the next packet is stored. */
struct cursor {
	uint32_t packet;
	uint32_t chunk;
	size_t used; /* bytes used in the chunk */
};

static int
capture_fill(struct replay_capture *capture, const char *name, const char *file, struct cursor *at)
{
	struct pcap_pkthdr *header;
	const uint8_t *bytes;
	uint64_t record = 0;
	pcap_t *pcap;
	struct capture_end end = {0};
	int ret;

	pcap = capture_open(name, file);
	if (pcap == NULL)
		return -EINVAL;
	for (; (ret = capture_next(pcap, name, file, record, &end, &header, &bytes)) > 0;
		record++) {
		struct replay_packet *packet = &capture->packets[at->packet];
		size_t slot = slot_bytes(header->caplen);

		if (header->caplen == 0)
			continue;
		if (at->used + slot > CHUNK_BYTES) {
			at->chunk++;
			at->used = 0;
		}
		if (at->packet == capture->nb_packets || at->chunk == capture->nb_chunks ||
			at->used + slot > replay_capture_chunk(capture, at->chunk))
			break; /* the file has grown since it was measured */
		packet->data = (uint8_t *)capture->chunks[at->chunk] + at->used +
			slot_shift(capture->align);
		packet->len = (uint16_t)header->caplen;
		packet->chunk = (uint16_t)at->chunk;
		packet->time_ns =
			(uint64_t)header->ts.tv_sec * 1000000000u + (uint64_t)header->ts.tv_usec;
		memcpy(packet->data, bytes, header->caplen);
		parse_headers(packet, bytes, header->caplen >= header->len);
		packet->shared.free_cb = packet_released;
		packet->shared.fcb_opaque = capture;
		rte_mbuf_ext_refcnt_set(&packet->shared, 1);
		at->used += slot;
		at->packet++;
	}
	pcap_close(pcap);
	if (ret > 0) {
		REPLAY_LOG(ERR, "%s: %s: changed while it was read", name, file);
		ret = -EIO;
	}
	return ret;
}

static int
by_time(const void *a, const void *b, void *packets)
{
	const struct replay_packet *one = (struct replay_packet *)packets + *(const uint32_t *)a;
	const struct replay_packet *two = (struct replay_packet *)packets + *(const uint32_t *)b;

	if (one->time_ns != two->time_ns)
		return one->time_ns < two->time_ns ? -1 : 1;
	return one < two ? -1 : 1; /* keep the order of the files */
}

static int
by_flow(const void *a, const void *b, void *packets)
{
	const struct replay_packet *one = (struct replay_packet *)packets + *(const uint32_t *)a;
	const struct replay_packet *two = (struct replay_packet *)packets + *(const uint32_t *)b;
	const uint64_t one_addr = (uint64_t)one->src_addr << 32 | one->dst_addr,
		       two_addr = (uint64_t)two->src_addr << 32 | two->dst_addr;
	const uint32_t one_port = (uint32_t)one->src_port << 16 | one->dst_port,
		       two_port = (uint32_t)two->src_port << 16 | two->dst_port;

	if (one_addr != two_addr)
		return one_addr < two_addr ? -1 : 1;
	if (one_port != two_port)
		return one_port < two_port ? -1 : 1;
	return one < two ? -1 : 1; /* keep the captured order */
}

/*
 * Sorts the packets in place by index, so that the EAL heap need not hold them twice. `place`,
 * unless NULL, receives the new index of each packet.
 */
static int
capture_sort(struct replay_capture *capture, const struct replay_devargs *args,
	int (*compare)(const void *a, const void *b, void *packets), uint32_t *place)
{
	struct replay_packet *packets = capture->packets, moved;
	uint32_t *from = malloc(capture->nb_packets * sizeof(*from));

	if (from == NULL) {
		REPLAY_LOG(ERR, "%s: cannot allocate the order of %u packets, %zu bytes",
			args->name, capture->nb_packets, capture->nb_packets * sizeof(*from));
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < capture->nb_packets; i++)
		from[i] = i;
	qsort_r(from, capture->nb_packets, sizeof(*from), compare, packets);
	for (uint32_t i = 0; place != NULL && i < capture->nb_packets; i++)
		place[from[i]] = i;
	/* follow each cycle of the permutation */
	for (uint32_t i = 0; i < capture->nb_packets; i++) {
		uint32_t to = i;

		if (from[i] == i)
			continue;
		moved = packets[i];
		while (from[to] != i) {
			const uint32_t next = from[to];

			packets[to] = packets[next];
			from[to] = to;
			to = next;
		}
		packets[to] = moved;
		from[to] = to;
	}
	free(from);
	return 0;
}

int
replay_capture_load(struct replay_capture **out, const struct replay_devargs *args, int socket)
{
	struct replay_capture *capture;
	struct cursor at = {0};
	int ret = 0;

	capture = rte_zmalloc_socket("replay_capture", sizeof(*capture), 0, socket);
	if (capture == NULL) {
		REPLAY_LOG(ERR, "%s: cannot allocate %zu bytes of EAL memory", args->name,
			sizeof(*capture));
		return -ENOMEM;
	}
	capture->align = args->align_at % REPLAY_LINE;
	for (uint16_t f = 0; f < args->nb_files && ret == 0; f++)
		ret = capture_measure(capture, args->name, args->files[f]);
	if (ret == 0)
		ret = capture_alloc(capture, args, socket);
	for (uint16_t f = 0; f < args->nb_files && ret == 0; f++)
		ret = capture_fill(capture, args->name, args->files[f], &at);
	if (ret == 0 && at.packet != capture->nb_packets) {
		REPLAY_LOG(ERR, "%s: %s: changed while it was read", args->name,
			args->nb_files > 1 ? "one of the files" : args->files[0]);
		ret = -EIO;
	}
	/* merge the files of several interfaces */
	if (ret == 0 && args->nb_files > 1)
		ret = capture_sort(capture, args, by_time, NULL);
	if (ret == 0)
		ret = capture_sort(capture, args, by_flow, capture->order);
	if (ret == 0 && args->roce.on)
		ret = replay_roce_load(&capture->roce, capture, &args->roce, args->name, socket);
	if (ret < 0) {
		capture_free(capture);
		return ret;
	}
	capture->held = capture->nb_packets;
	if (capture->truncated != 0)
		REPLAY_LOG(WARNING,
			"%s: %" PRIu64 " of %u records hold less than the original packet, and "
			"are delivered truncated",
			args->name, capture->truncated, capture->nb_packets);
	*out = capture;
	return 0;
}

uint64_t
replay_capture_references(const struct replay_capture *capture)
{
	uint64_t references = 0;

	if (!capture->lent)
		return 0; /* no need to check each packet */
	for (uint32_t i = 0; i < capture->nb_packets; i++)
		references += rte_mbuf_ext_refcnt_read(&capture->packets[i].shared) - 1u;
	return references;
}

int
replay_capture_align(struct replay_capture *capture, uint32_t align_at)
{
	uint32_t from = slot_shift(capture->align), to = slot_shift(align_at);

	if (from == to)
		return 0;
	if (replay_capture_references(capture) != 0)
		return -EBUSY;
	for (uint32_t i = 0; i < capture->nb_packets; i++) {
		struct replay_packet *packet = &capture->packets[i];
		uint8_t *data = packet->data - from + to;

		memmove(data, packet->data, packet->len);
		packet->data = data;
	}
	capture->align = align_at % REPLAY_LINE;
	capture->placed = false;
	return 0;
}

void
replay_capture_release(struct replay_capture *capture, const char *name)
{
	/* releasing any packet may free the capture; array and size are needed until the last one
	 */
	const uint32_t nb_packets = capture->nb_packets;
	struct replay_packet *packets = capture->packets;
	uint64_t references = replay_capture_references(capture);

	if (references != 0)
		REPLAY_LOG(WARNING,
			"%s: closed while %" PRIu64 " references to its packets are in use; "
			"%" PRIu64 " bytes stay allocated until the last one is freed",
			name, references, capture->bytes);
	for (uint32_t i = 0; i < nb_packets; i++)
		if (rte_mbuf_ext_refcnt_update(&packets[i].shared, -1) == 0)
			packet_released(packets[i].data, capture);
}
