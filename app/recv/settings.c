/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>
#include <rte_lcore.h>
#include <rte_string_fns.h>

#include <gk.h>
#include <rdma_stream.h>

#include <rdma_roce.h>

#include "arrow/async_writer.h"
#include "calib/pedestal.h"
#include "config/config.h"
#include "egress/egress.h"
#include "settings.h"

/** Check names that become part of file names. */
static bool
is_plain_name(const char *name)
{
	if (name[0] == '\0' || strlen(name) > 64)
		return false;
	for (const char *p = name; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-')
			return false;
	return true;
}

/** The rows that are read out are the middle ones: as many packets above as below. */
static void
complain_of_rows(struct config *c, const struct detector_ops *ops)
{
	const uint32_t step = 2 * ops->tile_rows;
	char what[64];

	snprintf(what, sizeof(what), "must be a multiple of %u, %u ... %u", step, step, ops->rows);
	config_complain(c, "detector", "rows", what);
}

/** Read the detector's configuration: rows, streams, storage cell, gain mode, bunch id. */
static void
read_readout(struct settings *s, struct config *c)
{
	static const char *const modes[] = {"any", "dynamic", "g1", "g2", NULL};
	static const char *const bunch_ids[] = {"same", "any", NULL};
	uint32_t absent[DETECTOR_STREAMS_MAX];
	uint64_t cell;
	struct detector *d = &s->detector;
	const uint32_t rows = config_uint(c, "detector", "rows", d->ops->rows, 1, d->ops->rows);
	const unsigned int n = config_list(
		c, "detector", "absent", "none", absent, DETECTOR_STREAMS_MAX, d->streams - 1);
	const unsigned int mode = config_choice(c, "detector", "gain_mode", 0, modes);

	if (detector_expect(d, rows, NULL, 0) != 0)
		complain_of_rows(c, d->ops);
	else if (detector_expect(d, rows, absent, n) != 0)
		config_complain(c, "detector", "absent",
			"leaves no stream that sends packets of these rows; list fewer streams");
	if (config_uint_or(c, "detector", "storage_cell", "any", &cell, 0, 15)) {
		d->status_mask |= d->ops->status_cell;
		d->status_value |= cell << __builtin_ctz(d->ops->status_cell);
	}
	if (mode != 0) {
		/* JUNGFRAU: bits 12 and 13 force a switch to G1 and G2 */
		d->status_mask |= d->ops->status_mode & 0x3000;
		d->status_value |= mode == 2 ? 0x1000 : mode == 3 ? 0x2000 : 0;
	}
	d->bunch_any = config_choice(c, "detector", "bunch_id", 0, bunch_ids) != 0;
}

static void
read_detector(struct settings *s, struct config *c)
{
	const char *type = config_text(c, "detector", "type", "jungfrau");
	const struct detector_ops *ops = detector_find(type);
	uint32_t modules, interfaces;
	char what[160];

	if (ops == NULL) {
		snprintf(what, sizeof(what), "must be one of %s", detector_names());
		config_complain(c, "detector", "type", what);
		ops = &jungfrau_ops;
	}
	modules = config_uint(c, "detector", "modules", 1, 1, DETECTOR_MODULES_MAX);
	interfaces = config_uint(c, "detector", "interfaces", 1, 1, ops->interfaces_max);
	detector_init(&s->detector, ops, modules, interfaces);
	read_readout(s, c);
	s->udp_port = config_uint(c, "detector", "udp_port", 50001, 1, 65536 - s->detector.streams);
	if (s->udp_port <= 4791 && s->udp_port + s->detector.streams > 4791)
		config_complain(c, "detector", "udp_port",
			"the streams' ports must not include 4791, which is RoCEv2");
	source_settings_read(&s->sources, c, &s->detector);
}

/** Read an IPv4 address. @return the address in host byte order; 0: not set, or invalid */
static uint32_t
read_address(struct config *c, const char *key, const char *fallback)
{
	const char *text = config_text(c, "ingest", key, fallback);
	struct in_addr address = {0};

	if (text != NULL && inet_pton(AF_INET, text, &address) != 1)
		config_complain(c, "ingest", key, "must be an IPv4 address");
	return ntohl(address.s_addr);
}

/** Read how the receiver joins the streams of a detector that sends to several receivers. */
static void
read_multicast(struct ingest_settings *i, struct config *c)
{
	i->sender = read_address(c, "sender", NULL);
	i->group = read_address(c, "group", "239.192.0.0");
	i->buffers = config_uint(c, "ingest", "buffers", 4096, 64, 65536);
	i->reads = config_uint(c, "ingest", "reads", 4, 1, RDMA_STREAM_CONNS_MAX);
	i->identity = config_text(c, "ingest", "identity", NULL);
	i->key = config_text(c, "ingest", "key", NULL);
}

/** Read how a detector that uses RoCEv2 sends. */
static void
read_ingest(struct settings *s, struct config *c)
{
	static const char *const deliveries[] = {"auto", "reference", "memory", NULL};
	static const char *const mtus[] = {"4096", "2048", NULL};
	struct ingest_settings *i = &s->ingest;
	const uint32_t slots = 128;

	i->transport =
		config_choice(c, "detector", "transport", INGEST_UDP, ingest_transport_names);
	i->delivery = config_choice(c, "ingest", "delivery", DELIVERY_AUTO, deliveries);
	i->mtu = config_choice(c, "ingest", "mtu", 0, mtus) == 0 ? 4096 : 2048;
	i->qpn = config_uint_word(c, "ingest", "qpn", "auto", 0, 2, 0xFFFFFF - s->detector.streams);
	i->rkey = config_uint_word(c, "ingest", "rkey", "auto", 0, 1, UINT32_MAX);
	i->slots = config_uint(c, "ingest", "slots", slots, 1, INGEST_SLOTS_MAX);
	i->service = config_uint_word(c, "ingest", "service", "none", 0, 1, UINT16_MAX);
	i->check_icrc = config_bool(c, "ingest", "check_icrc", true);
	i->card = config_text(c, "ingest", "card", NULL);
	read_multicast(i, c);
	if (!rte_is_power_of_2(i->slots))
		config_complain(c, "ingest", "slots", "must be a power of 2");
}

/** 224.0.1.0: groups before it are not forwarded. 239.255.255.255 is the last group. */
#define GROUP_FIRST UINT32_C(0xE0000100)
#define GROUP_LAST  UINT32_C(0xEFFFFFFF)

/** Check what multicast streams require. */
static void
settle_multicast(struct settings *s, struct config *c, uint32_t adapters)
{
	struct ingest_settings *i = &s->ingest;
	const uint32_t streams = s->detector.streams;

	if (adapters > 0)
		config_complain(c, "detector", "transport",
			"must not be multicast with a verbs: device: use roce:");
	if (i->delivery == DELIVERY_REFERENCE)
		config_complain(c, "ingest", "delivery",
			"must be memory with [detector] transport = multicast, whose packets end "
			"within a row");
	i->delivery = DELIVERY_MEMORY;
	if (i->sender == 0)
		config_complain(c, "ingest", "sender",
			"is required with [detector] transport = multicast: the IPv4 address of "
			"the detector");
	if (i->service == 0)
		i->service = RDMA_STREAM_PORT;
	if (i->service > UINT16_MAX - (streams - 1))
		config_complain(
			c, "ingest", "service", "leaves no port for each stream; set a lower one");
	if (i->group < GROUP_FIRST || i->group > GROUP_LAST - (streams - 1))
		config_complain(c, "ingest", "group",
			"must be a multicast address from 224.0.1.0 on, with room for one group "
			"for each stream");
	if ((i->identity == NULL) != (i->key == NULL))
		config_complain(c, "ingest", i->key == NULL ? "key" : "identity",
			"is required: a member proves itself with the name and the key of an "
			"identity");
}

/** Decide how messages are delivered, and check what depends on it. Ports are known. */
static void
settle_ingest(struct settings *s, struct config *c)
{
	struct ingest_settings *i = &s->ingest;
	uint32_t adapters = 0;

	if (i->transport == INGEST_UDP)
		return;
	s->detector.messages = true;
	/* queue pairs check the addresses themselves, and packets have none that could be learnt */
	if (!s->sources.source)
		s->sources.source = s->sources.any = true;
	for (uint32_t p = 0; p < s->nb_ports; p++)
		adapters += s->ports[p].adapter;
	if (i->transport == INGEST_MULTICAST)
		settle_multicast(s, c, adapters);
	if (i->delivery == DELIVERY_AUTO)
		i->delivery = adapters > 0 ? DELIVERY_MEMORY : DELIVERY_REFERENCE;
	if (i->delivery == DELIVERY_REFERENCE) {
		if (adapters > 0)
			config_complain(c, "ingest", "delivery",
				"must be memory with a verbs: device, which delivers no mbufs");
		if (detector_split(&s->detector, s->detector.ops->pixel_bytes / i->mtu) != 0)
			config_complain(c, "ingest", "mtu", "must hold a whole number of rows");
		return;
	}
	if (i->transport == INGEST_SEND)
		config_complain(c, "ingest", "delivery",
			"must be reference with [detector] transport = send, which has no "
			"addresses");
	if (i->qpn != 0)
		config_complain(c, "ingest", "qpn",
			"must be auto with delivery = memory: the card has the numbers");
	if (i->rkey != 0)
		config_complain(c, "ingest", "rkey",
			"must be auto with delivery = memory: the card has the keys");
	if (i->slots <= s->slots)
		config_complain(c, "ingest", "slots",
			"must be more than [frames] slots: frames being processed stay in the "
			"ring");
}

/**
 * Split `roce:port=NAME,KEYS` into the name of an ethdev and the other keys.
 * @return whether `text` has this form
 */
static bool
read_roce_device(struct port_settings *p, const char *text)
{
	const char *port, *end, *rest = text + strlen("roce:");
	size_t before, length;

	port = strstr(text, "port=");
	if (strncmp(text, "roce:", strlen("roce:")) != 0 || port == NULL ||
		(port != rest && port[-1] != ','))
		return false;
	before = port - rest;
	port += strlen("port=");
	length = strcspn(port, ",");
	end = port + length;
	if (length == 0 || length >= sizeof(p->device))
		return false;
	memcpy(p->device, port, length);
	p->device[length] = '\0';
	return (size_t)snprintf(p->rdma, sizeof(p->rdma), "%.*s%s", (int)before, rest,
		       *end == ',' ? end + 1 : end) < sizeof(p->rdma);
}

/** Read the device of a port: an ethdev for UDP, a RoCE device on an ethdev for messages. */
static void
read_device(struct settings *s, struct config *c, const char *section, struct port_settings *p)
{
	const char *text = config_text(c, section, "device", "0");

	if (s->ingest.transport == INGEST_UDP) {
		if (strncmp(text, "roce:", strlen("roce:")) == 0 ||
			strncmp(text, "verbs:", strlen("verbs:")) == 0)
			config_complain(c, section, "device",
				"is a device for RoCE: set [detector] transport = send, write or "
				"multicast, or a device for UDP packets");
		rte_strscpy(p->device, text, sizeof(p->device));
		return;
	}
	if (strncmp(text, "verbs:", strlen("verbs:")) == 0) {
		p->adapter = true;
		if (rte_strscpy(p->rdma, text, sizeof(p->rdma)) < 0)
			config_complain(c, section, "device", "is too long");
		return;
	}
	if (!read_roce_device(p, text) || strstr(p->rdma, "ip=") == NULL)
		config_complain(c, section, "device",
			"must be roce:port=NAME,ip=ADDRESS/BITS or verbs:NAME with [detector] "
			"transport = send, write or multicast");
	else if (strstr(p->rdma, "queue=") != NULL || strstr(p->rdma, "poll") != NULL ||
		strstr(p->rdma, "handover=") != NULL || strstr(p->rdma, "mtu=") != NULL)
		config_complain(c, section, "device",
			"must not set queue, poll_groups, poll, handover or mtu: the receiver "
			"does ([ingest] mtu)");
}

static void
read_port(struct settings *s, struct config *c, const char *section)
{
	static const char *const modes[] = {"auto", "split", "single", NULL};
	static const char *const steerings[] = {"auto", "flow", "software", NULL};
	static const char *const payloads[] = {"auto", "memory", "reference", NULL};
	struct port_settings *p = &s->ports[s->nb_ports++];

	read_device(s, c, section, p);
	p->nb_streams = config_list(c, section, "streams", "auto", p->streams, DETECTOR_STREAMS_MAX,
		s->detector.streams - 1);
	p->all_streams = p->nb_streams == 0;
	if (p->all_streams)
		for (uint32_t i = 0; i < s->detector.streams; i++)
			p->streams[p->nb_streams++] = i;
	p->mode = config_choice(c, section, "mode", RX_MODE_AUTO, modes);
	p->steering = config_choice(c, section, "steering", RX_STEERING_AUTO, steerings);
	p->payload = config_choice(c, section, "payload", PAYLOAD_AUTO, payloads);
	p->descriptors = config_uint(c, section, "descriptors", 4096, 64, 32768);
	p->mtu = config_uint(c, section, "mtu",
		s->ingest.transport == INGEST_UDP ? 9000 : s->ingest.mtu + RDMA_ROCE_OVERHEAD, 1500,
		65000);
}

/**
 * Assign the streams of a port to it.
 * @param owner  the port of each stream
 * @return the first stream that a port has already; DETECTOR_STREAMS_MAX: none
 */
static uint32_t
find_shared(const struct settings *s, uint32_t port, uint32_t owner[])
{
	uint32_t shared = DETECTOR_STREAMS_MAX;

	for (uint32_t k = 0; k < s->ports[port].nb_streams; k++) {
		const uint32_t stream = s->ports[port].streams[k];

		if (owner[stream] == UINT32_MAX)
			owner[stream] = port;
		else if (shared == DETECTOR_STREAMS_MAX)
			shared = stream;
	}
	return shared;
}

/** Read sections [port 0], [port 1] ...; without any, all streams use the first port. */
static void
read_ports(struct settings *s, struct config *c)
{
	uint32_t owner[DETECTOR_STREAMS_MAX];
	char section[SETTINGS_PORTS_MAX][16], what[120];

	memset(owner, 0xFF, sizeof(owner)); /* UINT32_MAX: none */
	for (uint32_t i = 0; i < SETTINGS_PORTS_MAX; i++) {
		char *name = section[s->nb_ports];

		snprintf(name, sizeof(section[0]), "port %u", i);
		if (config_has_section(c, name))
			read_port(s, c, name);
	}
	if (s->nb_ports == 0) {
		rte_strscpy(section[0], "port 0", sizeof(section[0]));
		read_port(s, c, section[0]);
	}
	for (uint32_t i = 0; i < s->nb_ports; i++) {
		const uint32_t shared = find_shared(s, i, owner);

		if (shared == DETECTOR_STREAMS_MAX)
			continue;
		snprintf(what, sizeof(what),
			"%s stream %u, which [%s] has, too; list the streams of each port, every "
			"stream once",
			s->ports[i].all_streams ? "means all streams, also" : "lists", shared,
			section[owner[shared]]);
		config_complain(c, section[i], "streams", what);
	}
	for (uint32_t i = 0; i < s->detector.streams; i++) {
		if (owner[i] != UINT32_MAX)
			continue;
		config_complain(c, section[0], "streams",
			"does not cover all streams; assign every stream to a port");
		break;
	}
}

static void
read_lcores(struct settings *s, struct config *c)
{
	static const char *const idles[] = {"auto", "poll", "pause", "yield", NULL};

	s->rx_lcores = config_uint(c, "lcores", "rx_lcores", 1, 1, FRAME_RX_MAX);
	s->gangs = config_uint_word(c, "lcores", "gangs", "auto", 0, 1, GK_GANGS_MAX);
	s->gang_workers = config_uint_word(
		c, "lcores", "gang_workers", "auto", 0, 1, SETTINGS_LCORES_MAX / GK_GANGS_MAX);
	s->nb_rx_map = config_list(
		c, "lcores", "rx", "auto", s->rx_map, SETTINGS_LCORES_MAX, RTE_MAX_LCORE - 1);
	s->nb_egress_map =
		config_list(c, "lcores", "egress", "auto", s->egress_map, 1, RTE_MAX_LCORE - 1);
	s->nb_compress_map = config_list(c, "lcores", "compress", "none", s->compress_map,
		SETTINGS_LCORES_MAX, RTE_MAX_LCORE - 1);
	s->nb_builder_map =
		config_list(c, "lcores", "builder", "auto", s->builder_map, 1, RTE_MAX_LCORE - 1);
	s->nb_gang_map = config_list(
		c, "lcores", "gang", "auto", s->gang_map, SETTINGS_LCORES_MAX, RTE_MAX_LCORE - 1);
	s->idle = config_choice(c, "lcores", "idle", IDLE_AUTO, idles);
	if (s->rx_lcores > s->detector.streams) {
		config_complain(c, "lcores", "rx_lcores",
			"must not exceed the number of streams of the detector");
		s->rx_lcores = s->detector.streams;
	}
}

static void
read_table(struct settings *s, struct config *c)
{
	static const char *const backpressures[] = {"auto", "wait", "refuse", NULL};
	static const char *const policies[] = {"keep", "drop", NULL};

	s->slots = config_uint(c, "frames", "slots", 64, 2, FRAME_SLOTS_MAX);
	s->max_skew_frames = config_uint(
		c, "frames", "max_skew_frames", RTE_MIN(8u, s->slots / 2), 1, s->slots - 1);
	s->resync_packets = config_uint(c, "frames", "resync_packets", 8, 1, 1024);
	s->max_gap_frames = config_uint(c, "frames", "max_gap_frames", RTE_MAX(16384u, s->slots),
		s->slots, UINT64_C(1) << 40);
	s->stream_timeout_ms = config_uint(c, "frames", "stream_timeout_ms", 1000, 1, 3600 * 1000);
	s->backpressure =
		config_choice(c, "frames", "backpressure", BACKPRESSURE_AUTO, backpressures);
	s->incomplete = config_choice(c, "frames", "incomplete", INCOMPLETE_KEEP, policies);
	s->packets_min =
		config_uint(c, "frames", "incomplete_min", 1, 1, RTE_MAX(1u, s->detector.expected));
	if (s->incomplete == INCOMPLETE_DROP)
		s->packets_min = UINT32_MAX;
}

static void
read_gangs(struct settings *s, struct config *c)
{
	static const char *const ways[] = {"auto", "pinned", "device", NULL};
	static const char *const memories[] = {"host", "device", NULL};
	const char *isas[GK_ISAS + 1] = {NULL};

	for (int isa = 0; isa < GK_ISAS; isa++)
		isas[isa] = gk_isa_name(isa);
	s->gpu = config_text(c, "gpu", "device", "auto");
	if (strcmp(s->gpu, "auto") == 0)
		s->gpu = NULL;
	s->kernel = config_text(c, "gpu", "kernel", "auto");
	s->isa = config_choice(c, "gpu", "isa", GK_ISA_AUTO, isas);
	s->packets = config_choice(c, "gpu", "packets", PACKETS_AUTO, ways);
	s->results_device = config_choice(c, "gpu", "results", 0, memories) == 1;
	s->batch = config_uint_word(c, "gpu", "batch", "auto", 0, 1, GK_BATCH_MAX);
	s->watchdog_ms = config_uint_word(
		c, "gpu", "watchdog_ms", "none", 10000, GK_WATCHDOG_MIN_MS, 3600 * 1000);
	s->outputs = config_uint_word(c, "gpu", "outputs", "auto", 0, 1, 65536);
	if (s->outputs != 0 && s->outputs < s->batch)
		config_complain(c, "gpu", "outputs", "must not be less than [gpu] batch");
}

static void
read_veto(struct settings *s, struct config *c)
{
	uint64_t strong_max = UINT32_MAX;
	struct builder_veto *v = &s->veto;
	const struct detector *d = &s->detector;

	v->params.version = 1;
	v->params.strong_threshold = config_real(c, "veto", "strong_threshold", 10, -1e6, 1e6);
	v->params.strong_min = config_uint(c, "veto", "strong_min", 20, 0,
		(uint64_t)d->expected * d->ops->tile_rows * d->ops->cols);
	config_uint_or(c, "veto", "strong_max", "none", &strong_max, 0, UINT32_MAX);
	v->params.strong_max = strong_max;
	v->dry_run = config_bool(c, "veto", "dry_run", false);
	v->prescale = config_uint_word(c, "veto", "prescale", "none", 0, 1, UINT64_MAX);
	v->prescale_raw = config_bool(c, "veto", "prescale_raw", false);
	if (v->params.strong_max < v->params.strong_min)
		config_complain(c, "veto", "strong_max", "must not be less than strong_min");
}

/** Read the output format of kept frames, which is part of the thresholds. */
static void
read_image(struct settings *s, struct config *c)
{
	static const char *const kinds[] = {"csr", "image", "raw", NULL};
	static const char *const values[] = {"float32", "int16", NULL};
	static const char *const compress[] = {"auto", "yes", "no", NULL};
	const uint64_t pixels =
		(uint64_t)s->detector.modules * s->detector.ops->rows * s->detector.ops->cols;
	struct gk_params *p = &s->veto.params;
	uint64_t nnz_max = pixels / 8;

	p->kind = config_choice(c, "output", "format", GK_KIND_CSR, kinds);
	s->value = config_choice(c, "output", "value", GK_VALUE_F32, values);
	p->csr_threshold = config_real(c, "output", "csr_threshold", 2, -1e6, 1e6);
	config_uint_or(c, "output", "nnz_max", "auto", &nnz_max, 0, pixels);
	p->nnz_max = nnz_max;
	/* the kinds that the gangs compress, see settings_chunk_kinds() */
	p->chunks = 1u << GK_KIND_RAW | 1u << GK_KIND_IMAGE;
	s->compress = config_choice(c, "output", "compress", COMPRESS_AUTO, compress);
	if (s->compress == COMPRESS_YES && s->value != GK_VALUE_I16)
		config_complain(c, "output", "compress",
			"requires [output] value = int16; full images of float32 are not "
			"compressed");
}

static void
read_output(struct settings *s, struct config *c)
{
	static const char *const writes[] = {"auto", "buffered", NULL};

	read_image(s, c);
	s->directory = config_text(c, "output", "directory", ".");
	s->buffered = config_choice(c, "output", "write", 0, writes) == 1;
	s->slice = config_uint(c, "output", "slice_kib", 4096, 4, 1 << 20) << 10;
	s->depth = config_uint(c, "output", "depth", 8, 1, ARROW_IO_DEPTH_MAX);
	s->sync_ms = config_uint(c, "output", "sync_ms", 1000, 1, 3600 * 1000);
	s->sync_bytes = config_uint(c, "output", "sync_mib", 256, 1, 1 << 20) << 20;
	s->roll_frames =
		config_uint_word(c, "output", "roll_frames", "unlimited", 0, 1, UINT64_MAX);
	s->roll_bytes = config_uint_word(c, "output", "roll_mib", "unlimited", 0, 1, 1 << 30) << 20;
	s->roll_ms = config_uint_word(c, "output", "roll_s", "unlimited", 0, 1, UINT32_MAX) * 1000;
	s->store_calibration = config_bool(c, "output", "calibration", true);
	s->nexus = config_bool(c, "output", "nexus", false);
	if (s->nexus && s->egress->device != NULL)
		config_complain(c, "output", "nexus",
			"is for local files; with stores, set [files] nexus = yes of the stores");
	s->receiver_id = config_uint(c, "output", "receiver_id", 0, 0, UINT64_MAX);
	s->frames_interval = config_uint(c, "output", "frames_interval", 1024, 1, 1 << 20);
	s->images_interval = config_uint(c, "output", "images_interval", 64, 1, 1 << 20);
	s->batch_ms = config_uint(c, "output", "batch_ms", 1000, 0, 3600 * 1000);
	s->preview = config_text(c, "output", "preview", "auto");
	s->preview_period = config_real(c, "output", "preview_s", 2, 0.1, 3600);
	s->live = config_text(c, "output", "live", "off");
	s->live_period = config_real(c, "output", "live_s", 0.1, 0.02, 60);
}

/** Read a number that must be less than that of another key. */
static uint32_t
read_below(struct config *c, const char *section, const char *key, const char *than, uint32_t limit)
{
	const uint64_t value = config_uint(c, section, key, 0, 0, UINT32_MAX);
	char what[80];

	if (value < limit)
		return value;
	snprintf(what, sizeof(what), "must be less than [%s] %s = %u", section, than, limit);
	config_complain(c, section, key, what);
	return 0;
}

/**
 * Read dark frames and pedestal intervals. The parameters of the update are part of the thresholds.
 */
static void
read_dark(struct settings *s, struct config *c)
{
	static const char *const selects[] = {
		"none", "external_input", "event_code", "bunch", "frame", NULL};
	struct builder_dark *d = &s->dark;
	const unsigned int select = config_choice(c, "dark", "select", 0, selects);

	/* JUNGFRAU's DAQ info: external input in bit 31, event code in bits 23-16 */
	if (select == 1) {
		d->select = BUILDER_DARK_STATUS;
		d->mask = d->value = UINT32_C(1) << 31;
	} else if (select == 2) {
		d->select = BUILDER_DARK_STATUS;
		d->mask = 0xFF0000;
	} else if (select > 2) {
		d->select = select == 3 ? BUILDER_DARK_BUNCH : BUILDER_DARK_FRAME;
	}
	if (select == 2)
		d->value = config_uint(c, "dark", "event_code", 0, 0, 255) << 16;
	else
		config_uint(c, "dark", "event_code", 0, 0, 255);
	d->every = config_uint(c, "dark", "every", 100, 1, UINT32_MAX);
	d->phase = read_below(c, "dark", "phase", "every", d->every);
	d->interval_frames = config_uint_word(
		c, "dark", "interval_frames", "none", 20000, 1, GK_DARK_FRAMES_MAX);
	s->veto.params.dark_min = config_uint(c, "dark", "samples_min", 10, 1, GK_DARK_FRAMES_MAX);
	s->veto.params.dark_alpha = config_real(c, "dark", "alpha", 0.5, 1e-6, 1);
}

static void
read_calibration(struct settings *s, struct config *c)
{
	/* JUNGFRAU's nominal gains, ADU/keV (slsDetectorPackage's Definitions.h) */
	static const double nominal[CALIBRATION_STAGES] = {41, -1.439, -0.1145};
	static const char *const gain_maps[] = {"3", "6", NULL};
	char key[16];

	s->calibration.gain = config_text(c, "calibration", "gain", NULL);
	s->calibration.gain_maps = config_choice(c, "calibration", "gain_maps", 0, gain_maps) == 0
		? CALIBRATION_STAGES
		: 2 * CALIBRATION_STAGES;
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		snprintf(key, sizeof(key), "pedestal_g%u", g);
		s->calibration.pedestal[g] = config_text(c, "calibration", key, NULL);
		s->calibration.nominal_gain[g] = nominal[g];
	}
	s->calibration.mask = config_text(c, "calibration", "mask", NULL);
	s->calibration.gain_limit = config_real(c, "calibration", "gain_limit", 16, 1, 1e6);
	s->calibration.max_age_hours =
		config_real_word(c, "calibration", "max_age_hours", "unlimited", 1e6);
	s->calibration.energy =
		config_real_unit(c, "calibration", "energy_kev", "keV", 12.4, 0.1, 1e3);
}

static void
read_run(struct settings *s, struct config *c)
{
	static const char *const controls[] = {"single", "telemetry", NULL};
	static const char *const types[] = {"data", "dark", NULL};
	struct frame_run *f = &s->frames;

	s->run = config_text(c, "run", "name", "run");
	if (!is_plain_name(s->run))
		config_complain(c, "run", "name",
			"must be 1 to 64 letters, digits, '-' or '_', because file names contain "
			"it");
	s->run_id = config_uint(c, "run", "id", 0, 0, UINT64_MAX);
	s->sample = config_text(c, "run", "sample", NULL);
	if (s->sample == NULL)
		s->sample = "";
	f->first_known = config_uint_or(
		c, "run", "first_frame", "auto", &f->first_frame, 0, FRAME_NUMBER_MAX);
	f->nb_frames = config_uint_word(c, "run", "frames", "unlimited", 0, 1, FRAME_NUMBER_MAX);
	f->stride = config_uint(c, "run", "stride", 1, 1, 1 << 16);
	f->offset = read_below(c, "run", "offset", "stride", f->stride);
	s->dark_run = config_choice(c, "run", "type", 0, types) == 1;
	s->service = config_choice(c, "run", "control", 0, controls) == 1;
	s->idle_timeout_ms =
		config_uint_word(c, "run", "idle_timeout_ms", "none", 0, 1, UINT32_MAX);
}

/** Adapt the settings for a dark run, which keeps every frame as raw data. */
static void
settle_dark_run(struct settings *s, struct config *c)
{
	if (!s->dark_run)
		return;
	if (s->frames.nb_frames != 0 && s->frames.nb_frames < PEDESTAL_WINDOW)
		config_complain(c, "run", "frames",
			"must be at least " RTE_STR(PEDESTAL_WINDOW) " in a dark run, the frames "
								     "that a gain stage needs");
	s->veto.params.kind = GK_KIND_RAW;
	s->veto.params.chunks = 0; /* pedestals are made from plain words */
	s->veto.params.strong_min = 0;
	s->veto.params.strong_max = UINT32_MAX;
	s->veto.params.search = GK_SEARCH_NONE;
	s->veto.prescale = 0;
	s->veto.dry_run = true;
	s->calibration.dark_run = true;
	s->dark.select = BUILDER_DARK_RUN;
	s->dark.interval_frames = 0;
	s->incomplete = INCOMPLETE_KEEP;
	s->packets_min = 1;
}

static void
complain_of_interval(struct config *c, uint32_t stride)
{
	char what[80];

	snprintf(what, sizeof(what), "must be 'none', or not less than [run] stride = %u", stride);
	config_complain(c, "dark", "interval_frames", what);
}

int
settings_read(struct settings *s, struct egress_settings *egress, struct config *c)
{
	memset(s, 0, sizeof(*s));
	memset(egress, 0, sizeof(*egress));
	read_detector(s, c);
	read_ingest(s, c);
	read_ports(s, c);
	egress_settings_read(egress, c);
	s->egress = egress;
	read_lcores(s, c);
	read_table(s, c);
	settle_ingest(s, c);
	read_gangs(s, c);
	read_veto(s, c);
	read_output(s, c);
	egress->directory = s->directory;
	read_dark(s, c);
	read_calibration(s, c);
	geometry_settings_read(&s->geometry, c, &s->detector,
		s->sources.positions == SOURCE_POSITIONS_OFF ? 0 : s->sources.positions,
		s->calibration.energy);
	peak_settings_read(&s->peaks, &s->veto, c, &s->geometry, &s->detector);
	radial_settings_read(&s->radial, c, &s->geometry, &s->detector);
	read_run(s, c);
	if (s->dark.interval_frames != 0 && s->dark.interval_frames < s->frames.stride)
		complain_of_interval(c, s->frames.stride);
	settle_dark_run(s, c);
	return config_check(c);
}
