/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include "pipeline.h"

RTE_LOG_REGISTER(pipeline_logtype, braggline.recv, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, pipeline_logtype, "recv: " __VA_ARGS__)

static int
poll_gang(void *arg)
{
	const struct gang_worker *w = arg;

	return w->ops->poll(w->gk, w->gang, w->worker);
}

int
pipeline_calibrate(struct pipeline *p, const struct calibration_files *files)
{
	struct gk_coef *coef = &p->gk_config.channel->coef[0];
	int ret;

	ret = calibration_load(&p->calibration, p->planes, files, &p->settings->detector);
	if (ret != 0)
		return ret;
	/* gangs may keep copies by version: one that was in force never comes again */
	coef->version = RTE_MAX(coef[0].version, coef[1].version) + 1;
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		coef->p[g] = (uintptr_t)p->calibration.p[g];
		coef->r[g] = (uintptr_t)p->calibration.r[g];
	}
	/* epochs take turns with two versions, which differ in the pedestals of G0 alone */
	coef[1] = coef[0];
	if (p->second_plane != NULL)
		coef[1].p[0] = (uintptr_t)p->second_plane;
	return 0;
}

/** Memory for epochs and dark frames, if they are configured. */
static int
create_dark(struct pipeline *p)
{
	const struct gk_geometry *g = &p->gk_config.geometry;
	struct gk_channel *channel = p->gk_config.channel;

	if (p->settings->dark.select == BUILDER_DARK_NONE)
		return 0;
	p->second_plane = memory_host(&p->memory, "second pedestals", gk_pixels(g) * sizeof(float));
	if (p->second_plane == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < GK_DARK_MAX; i++) {
		void *cells = memory_host(&p->memory, "dark accumulators", gk_dark_size(g));

		if (cells == NULL)
			return -ENOMEM;
		channel->dark[i].cells = (uintptr_t)cells;
	}
	return 0;
}

/** Gangs: channel, slots, results, outputs, coefficients, and the implementation's own state. */
static int
create_gangs(struct pipeline *p)
{
	const struct settings *s = p->settings;
	const struct detector *d = &s->detector;
	struct gk_config *c = &p->gk_config;
	struct rte_gpu_info gpu;
	char why[256];
	void *planes;
	int ret;

	p->gk_ops = gk_ops_find(s->kernel);
	if (p->gk_ops == NULL) {
		LOG(ERR, "[gpu] kernel = %s: not built in; 'host' always is\n", s->kernel);
		return -ENOTSUP;
	}
	c->geometry = (struct gk_geometry){
		.tiles = d->tiles, .tile_rows = d->ops->tile_rows, .cols = d->ops->cols};
	gk_layout_init(&c->layout, &c->geometry, s->value, s->veto.params.nnz_max);
	c->value = s->value;
	c->gangs = s->gangs;
	c->workers = p->gk_ops->poll != NULL ? lcores_gang_workers(s) : s->gang_workers;
	c->isa = s->isa;
	c->watchdog_ms = s->watchdog_ms;
	c->nb_frames = s->slots;
	c->nb_outputs = s->outputs;
	if (p->memory.gpu >= 0 && rte_gpu_info_get(p->memory.gpu, &gpu) == 0)
		c->context = (void *)(uintptr_t)gpu.context;
	c->channel = memory_host(&p->memory, "gang channel", sizeof(*c->channel));
	c->frames =
		memory_host(&p->memory, "frame slots", s->slots * gk_frame_stride(&c->geometry));
	c->results = memory_host(&p->memory, "results", s->slots * sizeof(*c->results));
	c->outputs = memory_host(&p->memory, "output slots", (size_t)s->outputs * c->layout.stride);
	planes = memory_host(&p->memory, "coefficients", calibration_size(d));
	if (c->channel == NULL || c->frames == NULL || c->results == NULL || c->outputs == NULL ||
		planes == NULL)
		return -ENOMEM;
	p->planes = planes;
	ret = create_dark(p);
	if (ret == 0)
		ret = memory_register(&p->memory);
	if (ret != 0)
		return ret;
	ret = p->gk_ops->create(c, &p->gk);
	if (ret != 0) {
		if (gk_config_check(c, why, sizeof(why)) == 0)
			snprintf(why, sizeof(why), "%s",
				p->gk_ops->why != NULL ? p->gk_ops->why() : strerror(-ret));
		LOG(ERR, "cannot create %s gangs: %s\n", p->gk_ops->name, why);
		return ret;
	}
	return 0;
}

static int
start_gangs(struct pipeline *p)
{
	const int ret = p->gk_ops->start(p->gk);

	if (ret != 0)
		LOG(ERR, "cannot start %s gangs: %s\n", p->gk_ops->name,
			p->gk_ops->why != NULL ? p->gk_ops->why() : strerror(-ret));
	p->gk_started = ret == 0;
	return ret;
}

static int
create_table(struct pipeline *p)
{
	const struct settings *s = p->settings;
	struct frame_table_config c = {
		.detector = &s->detector,
		.lanes = s->rx_lcores,
		.slots = s->slots,
		.give_up = s->give_up,
		.agree = s->agree,
		.jump = s->jump,
		.stall_cycles = rte_get_tsc_hz() / 1000 * s->stall_ms,
		.refuse = s->refuse,
		.no_run = true,
		.frames = p->gk_config.frames,
		.socket = p->memory.socket,
	};

	/* neighbours in the raster to the same lcore */
	for (uint32_t i = 0; i < s->detector.streams; i++)
		c.owner[i] = i * s->rx_lcores / s->detector.streams;
	p->table = frame_table_create(&c);
	return p->table != NULL ? 0 : -rte_errno;
}

static int
create_rx(struct pipeline *p)
{
	const struct settings *s = p->settings;
	const int socket = p->memory.socket;
	char name[RTE_RING_NAMESIZE];

	p->streams = rte_malloc_socket("rx_streams", sizeof(*p->streams), 64, socket);
	if (p->streams == NULL)
		return -ENOMEM;
	memset(p->streams, 0xFF, sizeof(*p->streams));
	for (uint32_t i = 0; i < s->detector.streams; i++)
		p->streams->stream[s->udp_port + i] = i;
	for (uint32_t i = 0; i < s->rx_lcores; i++) {
		struct rx *rx = rte_zmalloc_socket("rx", sizeof(*rx), RTE_CACHE_LINE_SIZE, socket);

		p->rx[i] = rx;
		if (rx == NULL)
			return -ENOMEM;
		rx->table = p->table;
		rx->lane = &p->table->lanes[i];
		rx->streams = p->streams;
		rx->detector = &s->detector;
		rx->drop_handoff = s->refuse;
		rx->peers = p->rx;
		/* producers on shared CPUs may be preempted: relaxed tail sync, no spinning */
		snprintf(name, sizeof(name), "rx_inbox_%u", i);
		rx->inbox = rte_ring_create(
			name, RX_INBOX_SIZE, socket, RING_F_MP_RTS_ENQ | RING_F_SC_DEQ);
		if (rx->inbox == NULL) {
			LOG(ERR, "cannot create ring %s: %s\n", name, rte_strerror(rte_errno));
			return -rte_errno;
		}
	}
	return 0;
}

static int
open_ports(struct pipeline *p)
{
	const struct settings *s = p->settings;
	const struct port_demand demand = {
		.frame_packets = s->slots * s->detector.tiles,
		.lcores = s->rx_lcores + 1,
		.lanes = s->rx_lcores,
	};

	for (uint32_t i = 0; i < s->nb_ports; i++) {
		struct port *port = &p->ports[p->nb_ports++];
		int ret = port_open(
			port, &s->ports[i], s, p->table->config.owner, &demand, &p->memory);

		if (ret != 0)
			return ret;
		for (uint32_t q = 0; q < port->nb_queues; q++) {
			struct rx *rx = p->rx[port->queue_lane[q]];

			if (rx->nb_queues == RX_QUEUES_MAX) {
				LOG(ERR, "an RX lcore can poll %u queues\n", RX_QUEUES_MAX);
				return -ENOSPC;
			}
			rx->queues[rx->nb_queues].port = port->id;
			rx->queues[rx->nb_queues++].queue = q;
		}
	}
	return 0;
}

static int
create_builder(struct pipeline *p)
{
	const struct settings *s = p->settings;
	struct builder_config c = {
		.table = p->table,
		.channel = p->gk_config.channel,
		.results = p->gk_config.results,
		.gangs = s->gangs,
		.batch = s->batch,
		.outputs = s->outputs,
		.socket = p->memory.socket,
	};
	struct timespec now;

	p->egress = rte_ring_create(
		"egress", BUILDER_RECORDS * 2, p->memory.socket, RING_F_SP_ENQ | RING_F_SC_DEQ);
	p->returned = rte_ring_create("egress_returned", BUILDER_RECORDS * 2, p->memory.socket,
		RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (p->egress == NULL || p->returned == NULL) {
		LOG(ERR, "cannot create egress rings: %s\n", rte_strerror(rte_errno));
		return -rte_errno;
	}
	c.egress = p->egress;
	c.returned = p->returned;
	clock_gettime(CLOCK_REALTIME, &now);
	c.clock_tsc = p->clock_tsc = rte_rdtsc();
	c.clock_ns = p->clock_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
	p->builder = builder_create(&c);
	return p->builder != NULL ? 0 : -rte_errno;
}

/** CPUs for the writer: those that no role polls on, or all if there are none. */
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

/** The maps that frames are corrected with, by name. */
static void
name_planes(const struct pipeline *p, struct arrow_plane planes[2 * CALIBRATION_STAGES])
{
	static const char *const names[2][CALIBRATION_STAGES] = {
		{"pedestal_g0", "pedestal_g1", "pedestal_g2"},
		{"photons_per_adu_g0", "photons_per_adu_g1", "photons_per_adu_g2"}};
	const struct gk_geometry *g = &p->gk_config.geometry;

	for (uint32_t i = 0; i < CALIBRATION_STAGES; i++) {
		planes[2 * i] =
			(struct arrow_plane){names[0][i], p->calibration.p[i], gk_rows(g), g->cols};
		planes[2 * i + 1] =
			(struct arrow_plane){names[1][i], p->calibration.r[i], gk_rows(g), g->cols};
	}
}

/** Now, as the builder counts: system time would drift away from it in a week. */
static int64_t
receive_clock(void *arg)
{
	const struct pipeline *p = arg;
	const double cycles = (double)(int64_t)(rte_rdtsc() - p->clock_tsc);

	return p->clock_ns + (int64_t)(cycles * (1e9 / rte_get_tsc_hz()));
}

/** Pictures of a run are no reason not to have one. */
static void
begin_preview(struct pipeline *p, const struct settings *s)
{
	const char *path = s->preview;
	char own[PATH_MAX];
	int ret;

	if (strcmp(path, "auto") == 0) {
		snprintf(own, sizeof(own), "%s/%s_preview.png", s->directory, s->run);
		path = own;
	} else if (strcmp(path, "off") == 0) {
		path = NULL;
	}
	ret = preview_begin(p->preview, path, s->preview_period);
	if (ret != 0)
		LOG(WARNING, "run %s has no preview: %s\n", s->run, strerror(-ret));
}

/** Every kept frame comes by here, in the writer's thread. */
static void
look_at_kept(void *arg, const struct frame_record *record, const uint8_t *output)
{
	struct pipeline *p = arg;

	preview_offer(p->preview, record, output);
	if (p->pedestal != NULL && record->kind == GK_KIND_RAW)
		pedestal_add(p->pedestal, (const uint16_t *)(output + p->gk_config.layout.raw),
			record->missing, record->detector_status);
}

int
pipeline_write_pedestals(struct pipeline *p, const struct settings *s, char *text, size_t size)
{
	const struct pedestal_output out = {.dir = s->directory, .run = s->run};
	struct pedestal_masked masked[PEDESTAL_STAGES] = {0};
	struct pedestal_stats stats;
	int ret;

	if (p->pedestal == NULL)
		return 0;
	stats = *pedestal_stats(p->pedestal);
	ret = pedestal_write(p->pedestal, &out, masked);
	if (ret == -ENODATA)
		snprintf(text, size, "dark run %s: no frame, no pedestals", s->run);
	else if (ret != 0)
		snprintf(text, size, "dark run %s: pedestals cannot be written: %s", s->run,
			strerror(-ret));
	else
		snprintf(text, size,
			"dark run %s: frames in G0 %" PRIu64 ", G1 %" PRIu64 ", G2 %" PRIu64
			"; pixels masked %" PRIu64 ", %" PRIu64 ", %" PRIu64
			"; modules skipped for missing packets %" PRIu64,
			s->run, stats.frames[0], stats.frames[1], stats.frames[2], masked[0].pixels,
			masked[1].pixels, masked[2].pixels, stats.incomplete);
	pedestal_destroy(p->pedestal);
	p->pedestal = NULL;
	return ret;
}

int
pipeline_open_files(struct pipeline *p, const struct settings *s, struct file_writer **writer,
	char message[PATH_MAX])
{
	char text[10][32];
	const struct arrow_meta meta[] = {
		{ARROW_META_RUN, s->run},
		{ARROW_META_DETECTOR, s->detector.ops->name},
		{ARROW_META_ENERGY, text[0]},
		{ARROW_META_CSR_THRESHOLD, text[1]},
		{ARROW_META_BRAGG_THRESH, text[2]},
		{ARROW_META_BRAGG_MIN, text[3]},
		{ARROW_META_BRAGG_MAX, text[4]},
		{ARROW_META_PEDESTAL, text[5]},
		{"braggline.distance_mm", text[6]},
		{"braggline.beam_x", text[7]},
		{"braggline.beam_y", text[8]},
		{"braggline.sample", s->sample},
	};
	struct file_writer_config c = {
		.dir = s->directory,
		.run = s->run,
		.records = p->egress,
		.returns = p->returned,
		.geometry = p->gk_config.geometry,
		.layout = p->gk_config.layout,
		.value = s->value,
		.modules = s->detector.modules,
		.outputs = p->gk_config.outputs,
		.nb_outputs = s->outputs,
		.producer = s->producer,
		.run_id = s->run_id,
		.meta = meta,
		.nb_meta = RTE_DIM(meta),
		.frames_interval = s->frames_interval,
		.images_interval = s->images_interval,
		.cpus = &p->writer_cpus,
		.slices = s->writing,
		.roll_frames = s->roll_frames,
		.roll_bytes = s->roll_bytes,
		.roll_ms = s->roll_ms,
		.kept = look_at_kept,
		.kept_arg = p,
		.clock = receive_clock,
		.clock_arg = p,
	};
	struct arrow_plane planes[2 * CALIBRATION_STAGES];
	int ret;

	snprintf(text[0], sizeof(text[0]), "%.9g", s->calibration.energy);
	snprintf(text[1], sizeof(text[1]), "%.9g", s->veto.params.csr_threshold);
	snprintf(text[2], sizeof(text[2]), "%.9g", s->veto.params.bragg_threshold);
	snprintf(text[3], sizeof(text[3]), "%u", s->veto.params.bragg_min);
	snprintf(text[4], sizeof(text[4]), "%u", s->veto.params.bragg_max);
	snprintf(text[5], sizeof(text[5]), "crc32c:%08x", p->calibration.digest);
	snprintf(text[6], sizeof(text[6]), "%.9g", s->distance);
	snprintf(text[7], sizeof(text[7]), "%.9g", s->beam_x);
	snprintf(text[8], sizeof(text[8]), "%.9g", s->beam_y);
	if (getrandom(&c.incarnation, sizeof(c.incarnation), 0) != sizeof(c.incarnation))
		return -errno;
	if (mkdir(s->directory, 0777) != 0 && errno != EEXIST) {
		ret = -errno;
		snprintf(message, PATH_MAX, "cannot create directory %.*s: %s", PATH_MAX - 128,
			s->directory, strerror(-ret));
		return ret;
	}
	if (s->store_calibration) {
		name_planes(p, planes);
		c.planes = planes;
		c.nb_planes = RTE_DIM(planes);
	}
	if (s->dark_run) {
		p->pedestal = pedestal_create(&p->settings->detector, NULL);
		if (p->pedestal == NULL) {
			snprintf(message, PATH_MAX, "no memory for the sums of a dark run");
			return -ENOMEM;
		}
	}
	ret = file_writer_create(writer, &c, message);
	if (ret != 0)
		return ret;
	begin_preview(p, s);
	ret = file_writer_start(*writer);
	if (ret != 0)
		snprintf(message, PATH_MAX, "cannot start the writer thread: %s", strerror(-ret));
	if (ret != 0) {
		preview_end(p->preview);
		pedestal_destroy(p->pedestal);
		p->pedestal = NULL;
	}
	return ret;
}

static int
create_preview(struct pipeline *p)
{
	const struct preview_config c = {
		.geometry = p->gk_config.geometry,
		.layout = p->gk_config.layout,
		.value = p->gk_config.value,
		.cpus = &p->writer_cpus,
	};

	p->preview = preview_create(&c);
	return p->preview != NULL ? 0 : -ENOMEM;
}

static int
assign_roles(struct pipeline *p)
{
	const struct settings *s = p->settings;
	const uint32_t workers = lcores_gang_workers(s);
	char name[32];
	int ret = 0;

	p->lcores = rte_zmalloc("lcores", sizeof(*p->lcores), RTE_CACHE_LINE_SIZE);
	p->workers = rte_zmalloc(
		"gang_workers", s->gangs * workers * sizeof(*p->workers), RTE_CACHE_LINE_SIZE);
	if (p->lcores == NULL || p->workers == NULL)
		return -ENOMEM;
	lcores_init(p->lcores, s);
	for (uint32_t i = 0; i < s->rx_lcores && ret == 0; i++) {
		snprintf(name, sizeof(name), "rx %u", i);
		ret = lcores_add(p->lcores, s, ROLE_RX, i, name, rx_poll, p->rx[i]);
	}
	if (ret == 0)
		ret = lcores_add(
			p->lcores, s, ROLE_BUILDER, 0, "builder", builder_poll, p->builder);
	for (uint32_t i = 0; i < s->gangs * workers && ret == 0 && p->gk_ops->poll != NULL; i++) {
		struct gang_worker *w = &p->workers[i];

		*w = (struct gang_worker){.ops = p->gk_ops,
			.gk = p->gk,
			.gang = i % s->gangs,
			.worker = i / s->gangs};
		snprintf(name, sizeof(name), "gang %u.%u", w->gang, w->worker);
		ret = lcores_add(p->lcores, s, ROLE_GANG, i, name, poll_gang, w);
	}
	return ret;
}

int
pipeline_create(struct pipeline *p, const struct settings *settings, const cpu_set_t *process_cpus)
{
	int ret;

	memset(p, 0, sizeof(*p));
	p->settings = settings;
	ret = memory_init(&p->memory, settings->gpu, rte_socket_id());
	if (ret == 0)
		ret = create_gangs(p);
	if (ret == 0)
		ret = create_table(p);
	if (ret == 0)
		ret = create_rx(p);
	if (ret == 0)
		ret = create_builder(p);
	if (ret == 0)
		ret = assign_roles(p);
	if (ret == 0)
		writer_cpus(p, process_cpus, &p->writer_cpus);
	if (ret == 0)
		ret = create_preview(p);
	/* once a port is open, packets arrive, and wait in its rings */
	if (ret == 0)
		ret = open_ports(p);
	/* pools and rings have come since; from here on nothing may be registered (gpu.md) */
	if (ret == 0)
		ret = memory_register(&p->memory);
	if (ret == 0)
		ret = start_gangs(p);
	return ret;
}

uint32_t
pipeline_destroy(struct pipeline *p)
{
	uint32_t leaked = 0;

	preview_destroy(p->preview);
	pedestal_destroy(p->pedestal);
	for (uint32_t i = 0; i < p->nb_ports; i++)
		port_close(&p->ports[i]);
	if (p->gk_started)
		p->gk_ops->stop(p->gk);
	if (p->gk_ops != NULL)
		p->gk_ops->destroy(p->gk);
	builder_destroy(p->builder);
	for (uint32_t i = 0; i < FRAME_LANES_MAX && p->rx[i] != NULL; i++) {
		rte_ring_free(p->rx[i]->inbox);
		rte_free(p->rx[i]);
	}
	for (uint32_t i = 0; i < p->nb_ports; i++)
		leaked += port_free_pools(&p->ports[i]);
	rte_free(p->streams);
	frame_table_destroy(p->table);
	rte_ring_free(p->egress);
	rte_ring_free(p->returned);
	rte_free(p->workers);
	rte_free(p->lcores);
	memory_release(&p->memory);
	return leaked;
}
