/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>
#include <rte_string_fns.h>

#include "arrow/crc32c.h"
#include "builder/builder.h"
#include "builder/compressor.h"
#include "calib/calibration.h"
#include "calib/pedestal.h"
#include "egress/egress.h"
#include "geometry/summary.h"
#include "lcores.h"
#include "log.h"
#include "output/live.h"
#include "output/preview.h"
#include "pipeline.h"
#include "port/gang_memory.h"
#include "port/memory.h"
#include "port/placement.h"
#include "port/pools.h"
#include "port/port.h"
#include "rx/messages.h"
#include "rx/ring.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "rx/transport.h"
#include "settings.h"

LOG_REGISTER("recv", "recv");

/** Polling role of a host gang. */
struct gang_worker {
	const struct gk_ops *ops;
	struct gk *gk;
	uint32_t gang;
	uint32_t worker;
};

struct pipeline_own {
	struct placement placement;
	struct memory memory;
	struct calibration calibration;
	struct gk_config gk_config;
	struct source_watch source_watch;
	struct rx *rx[FRAME_RX_MAX];
	struct port ports[SETTINGS_PORTS_MAX];
};

static int
poll_gang(void *arg)
{
	const struct gang_worker *w = arg;

	return w->ops->poll(w->gk, w->gang, w->worker);
}

static int
poll_connect(void *arg)
{
	return rx_connect_poll(*(struct rx_messages **)arg);
}

int
pipeline_calibrate(struct pipeline *p, const struct calibration_files *files)
{
	struct gk_coef *coef = &p->gk_config->channel->coef[0];
	int ret;

	ret = calibration_load(&p->own->calibration, p->planes, files, &p->settings->detector);
	if (ret != 0)
		return ret;
	/* Gangs may keep copies by version, so a version that was in force is never reused. */
	coef->version = RTE_MAX(coef[0].version, coef[1].version) + 1;
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		coef->p[g] = (uintptr_t)p->calibration->p[g];
		coef->r[g] = (uintptr_t)p->calibration->r[g];
	}
	/*
	 * Pedestal intervals alternate between two versions, which differ only in the G0 pedestals.
	 */
	coef[1] = coef[0];
	if (p->second_plane != NULL)
		coef[1].p[0] = (uintptr_t)p->second_plane;
	return 0;
}

static void *
allocate(struct pipeline *p, const struct gang_memory *piece)
{
	return piece->device ? memory_device(p->memory, piece->name, piece->bytes)
			     : memory_host(p->memory, piece->name, piece->bytes);
}

/** Allocate memory for pedestal intervals and dark frames, if configured. */
static int
create_dark(struct pipeline *p, const struct gang_memory pieces[GANG_PIECES])
{
	struct gk_channel *channel = p->gk_config->channel;

	if (pieces[GANG_SECOND_PEDESTALS].n == 0)
		return 0;
	p->second_plane = allocate(p, &pieces[GANG_SECOND_PEDESTALS]);
	if (p->second_plane == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < pieces[GANG_DARK].n; i++) {
		void *cells = allocate(p, &pieces[GANG_DARK]);

		if (cells == NULL)
			return -ENOMEM;
		channel->dark[i].cells = (uintptr_t)cells;
	}
	return 0;
}

/** Make the geometry, if a map of pixels is configured. */
static int
create_geometry(struct pipeline *p)
{
	const struct settings *s = p->settings;
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry_summary summary;
	int ret;

	if (!s->peaks.known && s->radial.bins == 0)
		return 0;
	ret = geometry_settings_make(&s->geometry, &s->detector, &p->geometry, message);
	if (ret != 0) {
		LOG(ERR, "[geometry] %s\n", message);
		return ret;
	}
	geometry_summary(p->geometry, &summary);
	if (summary.missing > 0)
		LOG(WARNING,
			"[geometry] %" PRIu64 " of %" PRIu64 " pixels are in no panel; peaks and "
			"radial profiles leave them out; add panels to the file\n",
			summary.missing, (uint64_t)p->geometry->rows * p->geometry->cols);
	return 0;
}

/** Make the map of pixels for radial profiles, if configured. */
static int
create_radial(struct pipeline *p, const struct gang_memory pieces[GANG_PIECES])
{
	struct gk_radial_pixels *radial = &p->gk_config->channel->radial;
	const struct settings *s = p->settings;
	uint16_t *bin;
	int ret;

	if (s->radial.bins == 0)
		return 0;
	bin = allocate(p, &pieces[GANG_RADIAL_BINS]);
	p->gk_config->profiles = allocate(p, &pieces[GANG_PROFILES]);
	p->radial_centres = calloc(s->radial.bins, sizeof(*p->radial_centres));
	if (bin == NULL || p->gk_config->profiles == NULL || p->radial_centres == NULL)
		return -ENOMEM;
	ret = profile_bins(p->geometry, s->radial.unit, s->radial.bins, bin, p->radial_centres);
	if (ret != 0) {
		LOG(ERR,
			"[geometry] has no range of %s for [radial] bins; check the corners of its "
			"panels\n",
			profile_unit_names[s->radial.unit]);
		return ret;
	}
	p->gk_config->nb_profiles = gang_memory_profiles(s);
	*radial = (struct gk_radial_pixels){.bin = (uintptr_t)bin, .nb_bins = s->radial.bins};
	return 0;
}

/** Make the map of pixels for the search for peaks, if configured. */
static int
create_map(struct pipeline *p, const struct gang_memory pieces[GANG_PIECES])
{
	struct gk_peak_pixels *pixels = &p->gk_config->channel->pixels;
	const struct settings *s = p->settings;
	uint16_t *bin;
	int ret;

	if (!s->peaks.known)
		return 0;
	bin = allocate(p, &pieces[GANG_BINS]);
	p->panels = allocate(p, &pieces[GANG_PANELS]);
	if (bin == NULL || p->panels == NULL)
		return -ENOMEM;
	ret = peak_settings_map(&s->peaks, p->geometry, bin, p->panels, &pixels->nb_bins);
	if (ret != 0) {
		LOG(ERR,
			"[geometry] has pixels that are too far from the beam for [peaks] search; "
			"check the corners of its panels\n");
		return ret;
	}
	pixels->bin = (uintptr_t)bin;
	pixels->panel = (uintptr_t)p->panels;
	pixels->nb_panels = p->geometry->nb_panels;
	return 0;
}

/** Take the output slots of [gpu] outputs from the journal. @return false: too few are free */
static bool
take_outputs(struct pipeline *p, uint32_t n)
{
	uint32_t *slot = calloc(n, sizeof(*slot));
	char message[PATH_MAX];
	int ret;

	if (slot == NULL) {
		LOG(WARNING,
			"kept frames are copied to the journal: not enough memory for a list of %u "
			"slots\n",
			n);
		return false;
	}
	ret = egress_slots_begin(p->stores, n, slot, message);
	if (message[0] != '\0')
		LOG(WARNING, "%s\n", message);
	if (ret == 0)
		p->first_outputs = slot;
	else
		free(slot);
	return ret == 0;
}

/**
 * Let the gangs write into output slots of the journal, so that kept frames are sent from there. An
 * existing journal may have none, or other ones.
 * @return 1; 0: output slots must be in memory of the receiver; or -errno (logged)
 */
static int
use_journal(struct pipeline *p)
{
	const struct egress_slots want = egress_slots_choose(p->settings, p->placement->results);
	struct gk_config *c = p->gk_config;
	uint64_t bytes;
	uint32_t slots;
	uint8_t *area;
	int ret;

	if (p->stores == NULL)
		return 0;
	if (want.n == 0) {
		if (p->settings->outputs >= JOURNAL_SLOTS &&
			p->settings->egress->journal_slots != 0 &&
			p->settings->veto.params.kind != GK_KIND_CSR)
			LOG(NOTICE,
				"kept frames are copied to the journal: [gpu] outputs = %u, "
				"expected fewer than %u\n",
				p->settings->outputs, JOURNAL_SLOTS);
		if (egress_slots_choose(p->settings, GK_MEMORY_HOST).n > 0)
			LOG(NOTICE,
				"kept frames are copied to the journal: results are in memory of "
				"%s\n",
				p->placement->gpu_name);
		return 0;
	}
	area = egress_area(p->stores, &bytes, &slots);
	if (area == NULL || bytes != want.bytes) {
		LOG(NOTICE,
			"kept frames are copied to the journal %s: it is an existing file %s; to "
			"change that, remove it after this process has ended and stores have all "
			"batches\n",
			p->settings->egress->journal,
			area == NULL ? "without output slots"
				     : "with output slots of another size");
		return 0;
	}
	if (!take_outputs(p, p->settings->outputs))
		return 0;
	ret = memory_adopt(p->memory, area, slots * bytes);
	if (ret != 0)
		return ret;
	c->outputs = p->outputs = area;
	c->nb_outputs = slots;
	/* otherwise the CRC is computed while frames are copied */
	c->crc32c = arrow_crc32c;
	return 1;
}

/** Allocate output slots in the chosen memory. */
static int
create_outputs(struct pipeline *p, const struct gang_memory pieces[GANG_PIECES])
{
	struct gk_config *c = p->gk_config;
	int ret;

	ret = use_journal(p);
	if (ret != 0)
		return RTE_MIN(ret, 0);
	c->outputs = p->outputs = allocate(p, &pieces[GANG_OUTPUTS]);
	if (p->outputs == NULL)
		return -ENOMEM;
	if (pieces[GANG_STAGING].n == 0)
		return 0;
	p->staging = allocate(p, &pieces[GANG_STAGING]);
	if (p->staging == NULL)
		return -ENOMEM;
	c->outputs = (uint8_t *)((uintptr_t)p->outputs + (uintptr_t)p->memory->view);
	return 0;
}

/**
 * Create the gangs: channel, slots, results, outputs, coefficients, and the implementation's
 * private state.
 */
static int
create_gangs(struct pipeline *p)
{
	const struct settings *s = p->settings;
	struct gang_memory pieces[GANG_PIECES];
	struct gk_config *c = p->gk_config;
	struct rte_gpu_info gpu;
	char why[256];
	void *planes;
	int ret;

	p->gk_ops = gk_ops_find(s->kernel);
	if (p->gk_ops == NULL) {
		LOG(ERR, "[gpu] kernel = %s: not built in; use 'host', which is always available\n",
			s->kernel);
		return -EINVAL;
	}
	gang_memory_layout(s, &c->geometry, &c->layout);
	gang_memory_list(s, p->placement->results,
		egress_slots_choose(s, p->placement->results).n > 0, pieces);
	c->value = s->value;
	c->gangs = s->gangs;
	c->workers = p->gk_ops->poll != NULL ? lcores_gang_workers(s) : s->gang_workers;
	c->isa = s->isa;
	c->watchdog_ms = s->watchdog_ms;
	c->packets = p->placement->packets;
	c->nb_frames = s->slots;
	c->nb_outputs = s->outputs;
	c->trailers = settings_in_memory(s);
	c->chunks = settings_chunks(s);
	if (p->memory->gpu >= 0 && rte_gpu_info_get(p->memory->gpu, &gpu) == 0)
		c->context = (void *)(uintptr_t)gpu.context;
	c->channel = allocate(p, &pieces[GANG_CHANNEL]);
	c->frames = allocate(p, &pieces[GANG_FRAMES]);
	c->results = allocate(p, &pieces[GANG_RESULTS]);
	c->details = allocate(p, &pieces[GANG_DETAILS]);
	planes = allocate(p, &pieces[GANG_COEFFICIENTS]);
	if (c->channel == NULL || c->frames == NULL || c->results == NULL || c->details == NULL ||
		planes == NULL)
		return -ENOMEM;
	p->planes = planes;
	ret = create_outputs(p, pieces);
	if (ret == 0)
		ret = create_dark(p, pieces);
	if (ret == 0)
		ret = create_geometry(p);
	if (ret == 0)
		ret = create_map(p, pieces);
	if (ret == 0)
		ret = create_radial(p, pieces);
	if (ret == 0)
		ret = memory_register(p->memory);
	if (ret != 0)
		return ret;
	ret = p->gk_ops->create(c, &p->gk);
	if (ret != 0) {
		if (gk_config_check(c, why, sizeof(why)) == 0)
			snprintf(why, sizeof(why), "%s",
				p->gk_ops->why != NULL ? p->gk_ops->why() : strerror(-ret));
		LOG(ERR, "cannot create %s gangs: %s\n", p->gk_ops->name, why);
		/* the settings name an instruction set or a kernel for another CPU or GPU */
		return ret == -ENOTSUP ? -EINVAL : ret;
	}
	return 0;
}

static int
start_gangs(struct pipeline *p)
{
	cpu_set_t own;
	int ret;

	/* A thread that the gangs create inherits this thread's CPU affinity, where roles poll. */
	pthread_getaffinity_np(pthread_self(), sizeof(own), &own);
	pthread_setaffinity_np(pthread_self(), sizeof(p->writer_cpus), &p->writer_cpus);
	ret = p->gk_ops->start(p->gk);
	pthread_setaffinity_np(pthread_self(), sizeof(own), &own);
	if (ret != 0)
		LOG(ERR, "cannot start %s gangs: %s\n", p->gk_ops->name,
			p->gk_ops->why != NULL ? p->gk_ops->why() : strerror(-ret));
	p->gk_started = ret == 0;
	return ret;
}

/**
 * Return the number of packets of a stream that must agree for a resync: at most as many as the
 * stream sends per frame, but more than one.
 */
static uint32_t
agreement(const struct settings *s)
{
	uint32_t fewest = UINT32_MAX;

	for (uint32_t i = 0; i < s->detector.streams; i++) {
		const uint32_t packets = detector_stream_expected(&s->detector, i);

		if (packets > 0)
			fewest = RTE_MIN(fewest, packets);
	}
	/* an event is one for the packets of a stream and frame */
	if (settings_in_memory(s))
		fewest = 1;
	return RTE_MIN(s->resync_packets, RTE_MAX(2u, fewest));
}

static int
create_table(struct pipeline *p)
{
	const struct settings *s = p->settings;
	struct frame_table_config c = {
		.detector = &s->detector,
		.nb_rx = s->rx_lcores,
		.slots = s->slots,
		.max_skew_frames = s->max_skew_frames,
		.resync_packets = agreement(s),
		.max_gap_frames = s->max_gap_frames,
		.stall_cycles = rte_get_tsc_hz() / 1000 * s->stream_timeout_ms,
		.refuse = s->refuse,
		.trailers = settings_in_memory(s),
		.no_run = true,
		.frames = p->gk_config->frames,
		.socket = p->memory->socket,
	};

	for (uint32_t i = 0; i < s->detector.streams; i++)
		c.owner[i] = settings_stream_owner(s, i);
	p->table = frame_table_create(&c);
	return p->table != NULL ? 0 : -rte_errno;
}

static int
create_rx(struct pipeline *p)
{
	const struct settings *s = p->settings;
	const int socket = p->memory->socket;
	char name[RTE_RING_NAMESIZE];

	p->streams = rte_malloc_socket("rx_streams", sizeof(*p->streams), 64, socket);
	p->sources = rte_malloc_socket("sources", sizeof(*p->sources), RTE_CACHE_LINE_SIZE, socket);
	if (p->streams == NULL || p->sources == NULL)
		return -ENOMEM;
	sources_init(p->sources, &s->sources, &s->detector, p->table->config.stall_cycles);
	memset(p->streams, 0xFF, sizeof(*p->streams));
	p->streams->udp_port = s->udp_port;
	for (uint32_t i = 0; i < s->detector.streams; i++)
		p->streams->stream[s->udp_port + i] = i;
	for (uint32_t i = 0; i < s->rx_lcores; i++) {
		struct rx *rx = rte_zmalloc_socket("rx", sizeof(*rx), RTE_CACHE_LINE_SIZE, socket);

		p->rx[i] = rx;
		if (rx == NULL)
			return -ENOMEM;
		rx->table = p->table;
		rx->frx = &p->table->rx[i];
		rx->streams = p->streams;
		rx->detector = &s->detector;
		rx->transport = &rx_udp;
		rx->sources = p->sources;
		if (p->placement->packets == GK_MEMORY_DEVICE)
			rx->view = p->memory->view;
		rx->drop_handoff = s->refuse;
		rx->peers = p->rx;
		/*
		 * Producers on shared CPUs may be preempted: use relaxed tail sync without
		 * spinning.
		 */
		snprintf(name, sizeof(name), "rx_inbox_%u", i);
		rx->handoff_ring = rte_ring_create(
			name, RX_HANDOFF_RING_SIZE, socket, RING_F_MP_RTS_ENQ | RING_F_SC_DEQ);
		if (rx->handoff_ring == NULL) {
			LOG(ERR, "cannot create ring %s: %s\n", name, rte_strerror(rte_errno));
			return -rte_errno;
		}
	}
	return 0;
}

/** Warn of ports that EAL has and no setting names: their packets are not received. */
static void
warn_of_unused_ports(const struct pipeline *p)
{
	const char *egress = p->settings->egress->device;
	char name[RTE_ETH_NAME_MAX_LEN];
	uint16_t id;

	RTE_ETH_FOREACH_DEV(id) {
		bool used = false;

		for (uint32_t i = 0; i < p->nb_ports; i++)
			used |= p->ports[i].id == id;
		if (used || rte_eth_dev_get_name_by_port(id, name) != 0 ||
			(egress != NULL && strstr(egress, name) != NULL))
			continue;
		LOG(WARNING,
			"port %s is in no [port N] section: its packets are not received; add a "
			"section with device = %s, or remove the EAL option\n",
			name, name);
	}
}

/** Open the RoCE devices on the ports, and the streams' queue pairs. */
static int
open_messages(struct pipeline *p)
{
	p->messages = rx_messages_create(p->settings, p->ports, p->table->config.owner, p->memory);
	if (p->messages == NULL)
		return -rte_errno;
	for (uint32_t i = 0; i < p->settings->rx_lcores; i++) {
		p->rx[i]->messages = p->messages;
		if (p->messages->multicast != NULL) {
			p->rx[i]->transport = &rx_multicast;
			continue;
		}
		if (p->messages->ring != NULL)
			p->rx[i]->frx->use = rx_ring_use(p->messages->ring);
		p->rx[i]->transport = settings_in_memory(p->settings) ? &rx_memory : &rx_reference;
	}
	return 0;
}

static int
open_ports(struct pipeline *p)
{
	const struct settings *s = p->settings;
	const struct port_demand demand = port_demand_of(s);

	for (uint32_t i = 0; i < s->nb_ports; i++) {
		struct port *port = &p->ports[p->nb_ports++];
		int ret = 0;

		if (s->ports[i].adapter)
			port_of_adapter(port, &s->ports[i], p->table->config.owner);
		else
			ret = port_open(port, &s->ports[i], s, p->table->config.owner, &demand,
				p->placement->packets, p->memory);
		if (ret != 0)
			return ret;
		for (uint32_t q = 0; q < port->nb_queues; q++) {
			struct rx *rx = p->rx[port->queue_rx[q]];

			if (rx->nb_queues == RX_QUEUES_MAX) {
				LOG(ERR, "an RX lcore can poll at most %u queues\n", RX_QUEUES_MAX);
				return -ENOSPC;
			}
			rx->queues[rx->nb_queues].port = port->rdma ? i : port->id;
			rx->queues[rx->nb_queues++].queue = q;
		}
	}
	warn_of_unused_ports(p);
	return s->ingest.transport == INGEST_UDP ? 0 : open_messages(p);
}

static int
create_builder(struct pipeline *p)
{
	const struct settings *s = p->settings;
	struct builder_config c = {
		.table = p->table,
		.channel = p->gk_config->channel,
		.results = p->gk_config->results,
		.details = p->gk_config->details,
		.chunks = settings_chunk_kinds(s),
		.profiles = p->gk_config->nb_profiles,
		.gangs = s->gangs,
		.batch = s->batch,
		.outputs = s->outputs,
		.output = p->first_outputs,
		.gpu_writes = p->placement->packets == GK_MEMORY_DEVICE,
		.gpu = p->memory->gpu,
		.socket = p->memory->socket,
	};

	p->egress = rte_ring_create(
		"egress", BUILDER_RECORDS * 2, p->memory->socket, RING_F_SP_ENQ | RING_F_SC_DEQ);
	p->returned = rte_ring_create("egress_returned", BUILDER_RECORDS * 2, p->memory->socket,
		RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (p->egress == NULL || p->returned == NULL) {
		LOG(ERR, "cannot create the rings to the writer: %s\n", rte_strerror(rte_errno));
		return -rte_errno;
	}
	c.egress = p->egress;
	c.returned = p->returned;
	p->builder = builder_create(&c);
	return p->builder != NULL ? 0 : -rte_errno;
}

/** Create the path to the stores. The journal may have the output slots of the gangs. */
static int
create_stores(struct pipeline *p)
{
	const struct settings *s = p->settings;
	const struct egress_slots slots = egress_slots_choose(s, p->placement->results);

	if (s->egress->device == NULL)
		return 0;
	return egress_create(&p->stores, s->egress, s->receiver_id, &slots);
}

/** Choose the CPUs of the writer: CPUs without a polling role, or all if there are none. */
static void
writer_cpus(const struct pipeline *p, const cpu_set_t *process_cpus, cpu_set_t *cpus)
{
	unsigned int id;

	*cpus = *process_cpus;
	RTE_LCORE_FOREACH(id) {
		const rte_cpuset_t taken = rte_lcore_cpuset(id);

		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (p->lcores->lcore[id].nb_roles > 0 && CPU_ISSET(cpu, &taken))
				CPU_CLR(cpu, cpus);
	}
	if (CPU_COUNT(cpus) == 0)
		*cpus = *process_cpus;
}

static int
create_preview(struct pipeline *p)
{
	const struct preview_config c = {
		.geometry = p->gk_config->geometry,
		.layout = p->gk_config->layout,
		.value = p->gk_config->value,
		.cpus = &p->writer_cpus,
	};

	const struct live_config live = {
		.geometry = c.geometry,
		.layout = c.layout,
		.value = c.value,
		.panels = p->panels,
		.nb_panels = p->panels != NULL ? p->geometry->nb_panels : 0,
		.cpus = c.cpus,
	};

	p->preview = preview_create(&c);
	p->live = live_create(&live);
	return p->preview != NULL && p->live != NULL ? 0 : -ENOMEM;
}

/**
 * Create jobs for each role, and the same number of waiting jobs, so that a role need not wait for
 * the writer.
 */
static int
create_compressor(struct pipeline *p)
{
	const uint32_t roles = p->settings->nb_compress_map;

	if (roles == 0)
		return 0;
	p->compressor = compressor_create(2 * roles, gk_pixels(&p->gk_config->geometry));
	if (p->compressor == NULL)
		LOG(ERR, "cannot allocate memory to compress %u frames at a time\n", 2 * roles);
	return p->compressor != NULL ? 0 : -ENOMEM;
}

/** Return the argument of a role's poll function. */
static void *
role_argument(struct pipeline *p, const struct role_place *place)
{
	struct gang_worker *w;

	switch (place->kind) {
	case ROLE_RX:
		return p->rx[place->index];
	case ROLE_BUILDER:
		return p->builder;
	case ROLE_EGRESS:
		return p->stores;
	case ROLE_CONNECT:
		return &p->messages;
	case ROLE_COMPRESS:
		return p->compressor;
	case ROLE_GANG:
		break;
	}
	w = &p->workers[place->index];
	*w = (struct gang_worker){.ops = p->gk_ops,
		.gk = p->gk,
		.gang = place->index % p->settings->gangs,
		.worker = place->index / p->settings->gangs};
	return w;
}

static int
assign_roles(struct pipeline *p)
{
	static int (*const poll[])(void *arg) = {
		[ROLE_RX] = rx_poll,
		[ROLE_BUILDER] = builder_poll,
		[ROLE_EGRESS] = egress_poll,
		[ROLE_CONNECT] = poll_connect,
		[ROLE_COMPRESS] = compressor_poll,
		[ROLE_GANG] = poll_gang,
	};
	const struct settings *s = p->settings;
	struct role_place place;
	int ret = 0;

	p->lcores = rte_zmalloc("lcores", sizeof(*p->lcores), RTE_CACHE_LINE_SIZE);
	p->workers = rte_zmalloc("gang_workers",
		s->gangs * lcores_gang_workers(s) * sizeof(*p->workers), RTE_CACHE_LINE_SIZE);
	if (p->lcores == NULL || p->workers == NULL)
		return -ENOMEM;
	lcores_init(p->lcores, s);
	for (uint32_t n = 0; ret == 0 && lcores_role(s, n, &place); n++)
		ret = lcores_add(p->lcores, s, &place, poll[place.kind], role_argument(p, &place));
	return ret;
}

static void
log_way(const struct pipeline *p)
{
	const struct placement *w = p->placement;
	char packets[96], results[96];

	if (w->no_gangs[0] != '\0')
		LOG(NOTICE, "gangs run as threads, not on %s: %s\n", w->gpu_name, w->no_gangs);
	LOG(NOTICE, "packets in %s%s%s%s, results in %s; %u %s gang%s\n",
		placement_name(w, w->packets, packets), w->why[0] != '\0' ? " (" : "", w->why,
		w->why[0] != '\0' ? ")" : "", placement_name(w, w->results, results),
		p->settings->gangs, p->settings->kernel, p->settings->gangs == 1 ? "" : "s");
	if (p->settings->nb_compress_map > 0 && p->gk_config->chunks)
		LOG(NOTICE,
			"[lcores] compress is for dark runs: gangs compress all other "
			"frames\n");
}

int
pipeline_create(struct pipeline *p, const struct settings *settings,
	const struct placement *placement, const cpu_set_t *process_cpus)
{
	struct pipeline_own *own = calloc(1, sizeof(*own));
	int ret;

	memset(p, 0, sizeof(*p));
	p->settings = settings;
	p->own = own;
	if (own == NULL)
		return -ENOMEM;
	own->placement = *placement;
	p->placement = &own->placement;
	p->memory = &own->memory;
	p->calibration = &own->calibration;
	p->gk_config = &own->gk_config;
	p->source_watch = &own->source_watch;
	p->rx = own->rx;
	p->ports = own->ports;
	memory_init(p->memory, placement, rte_socket_id());
	ret = create_stores(p);
	if (ret == 0)
		ret = create_gangs(p);
	if (ret == 0)
		ret = create_table(p);
	if (ret == 0)
		ret = create_rx(p);
	if (ret == 0)
		ret = create_builder(p);
	if (ret == 0)
		ret = create_compressor(p);
	if (ret == 0)
		ret = assign_roles(p);
	if (ret == 0)
		writer_cpus(p, process_cpus, &p->writer_cpus);
	if (ret == 0 && p->stores != NULL)
		ret = egress_start(p->stores, &p->writer_cpus);
	if (ret == 0)
		ret = create_preview(p);
	/* As soon as a port is open, packets arrive and wait in its descriptor rings. */
	if (ret == 0)
		ret = open_ports(p);
	/*
	 * Pools and rings were created since the last registration. Nothing may be registered while
	 * gangs run, because CUDA may wait for their kernel to end.
	 */
	if (ret == 0)
		ret = memory_register(p->memory);
	if (ret == 0)
		ret = start_gangs(p);
	if (ret == 0)
		log_way(p);
	return ret;
}

void
pipeline_why_gang(const struct pipeline *p, uint32_t gang, int error, char *text, size_t size)
{
	const struct gk_channel *channel = p->gk_config->channel;
	/* the oldest unfinished descriptor has not been overwritten */
	const struct gk_work *work = &channel->work[gang][channel->done[gang].done % GK_RING_SIZE];

	if (error == -EINVAL && gk_work_check(p->gk_config, work, text, size) != 0)
		return;
	if (error == -ETIMEDOUT)
		snprintf(text, size, "process did not run for [gpu] watchdog_ms = %u",
			p->settings->watchdog_ms);
	else
		snprintf(text, size, "%s", strerror(-error));
}

bool
pipeline_lost_device(const struct pipeline *p, char *name, size_t size)
{
	const struct rdma_dev_info *stores;

	for (uint32_t i = 0; i < p->nb_ports; i++) {
		if (!__atomic_load_n(&p->ports[i].removed, __ATOMIC_RELAXED))
			continue;
		rte_strscpy(name, p->ports[i].name, size);
		return true;
	}
	if (p->messages != NULL && rx_messages_lost(p->messages, name, size))
		return true;
	if (p->stores == NULL || !egress_lost_device(p->stores))
		return false;
	egress_device(p->stores, &stores);
	rte_strscpy(name, stores->name, size);
	return true;
}

/** Stop the gangs. Only this call reports a crashed kernel. */
static void
stop_gangs(struct pipeline *p)
{
	const int ret = p->gk_ops->stop(p->gk);

	if (ret != 0 && ret != -EBUSY)
		LOG(ERR, "%s gangs had failed: %s\n", p->gk_ops->name,
			p->gk_ops->why != NULL ? p->gk_ops->why() : strerror(-ret));
}

/** Free packets that were released after their RX lcore had stopped. */
static void
reclaim(struct pipeline *p)
{
	for (uint32_t i = 0; i < FRAME_RX_MAX && p->rx[i] != NULL; i++)
		frame_rx_reclaim(p->table, p->rx[i]->frx, UINT32_MAX);
}

uint32_t
pipeline_destroy(struct pipeline *p)
{
	uint32_t leaked = 0;

	if (p->own == NULL)
		return 0;
	compressor_destroy(p->compressor);
	preview_destroy(p->preview);
	live_destroy(p->live);
	pedestal_destroy(p->pedestal);
	for (uint32_t i = 0; i < p->nb_ports; i++)
		p->ports[i].dev = NULL;
	/* gangs may read rings of messages, and returned slots refer to them */
	if (p->gk_started)
		stop_gangs(p);
	reclaim(p);
	/* gangs may write to output slots of the journal */
	if (p->first_outputs != NULL)
		memory_abandon(p->memory, p->outputs);
	egress_destroy(p->stores);
	rx_messages_destroy(p->messages);
	for (uint32_t i = 0; i < p->nb_ports; i++)
		port_close(&p->ports[i]);
	if (p->gk_ops != NULL)
		p->gk_ops->destroy(p->gk);
	memory_unregister(p->memory);
	builder_destroy(p->builder);
	for (uint32_t i = 0; i < FRAME_RX_MAX && p->rx[i] != NULL; i++) {
		rte_ring_free(p->rx[i]->handoff_ring);
		rte_free(p->rx[i]);
	}
	for (uint32_t i = 0; i < p->nb_ports; i++)
		leaked += port_free_pools(&p->ports[i]);
	rte_free(p->streams);
	rte_free(p->sources);
	frame_table_destroy(p->table);
	rte_ring_free(p->egress);
	rte_ring_free(p->returned);
	rte_free(p->workers);
	rte_free(p->lcores);
	memory_release(p->memory);
	free(p->geometry);
	free(p->radial_centres);
	free(p->first_outputs);
	free(p->own);
	p->own = NULL;
	return leaked;
}
