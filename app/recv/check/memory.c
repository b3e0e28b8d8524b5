/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: the memory that a run allocates, and the memory that is available. */

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_gpudev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_string_fns.h>

#include <gk.h>
#include <gk_peaks.h>

#include "builder/builder.h"
#include "check/check.h"
#include "check/memory.h"
#include "check/port.h"
#include "egress/egress.h"
#include "port/gang_memory.h"
#include "port/placement.h"
#include "port/pools.h"
#include "rx/messages.h"
#include "rx/ring.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "settings.h"

/**
 * Estimate for queues of drivers, rings of egress and roles: twice the 2 MiB measured with
 * net_replay.
 */
#define NEED_OF_THE_REST (4 << 20)

void
check_find_gpu(const struct settings *s, const struct placement *way, struct check_gpu *gpu)
{
	struct rte_gpu_info info;
	int16_t id;

	*gpu = (struct check_gpu){.node = -1,
		.used = s->packets != PACKETS_PINNED && strcmp(s->kernel, "host") != 0,
		.packets = way->packets == GK_MEMORY_DEVICE,
		.results = way->results == GK_MEMORY_DEVICE};
	RTE_GPU_FOREACH(id)
	{
		if (rte_gpu_info_get(id, &info) != 0 ||
			(s->gpu != NULL && strcmp(s->gpu, info.name) != 0))
			continue;
		gpu->present = true;
		gpu->is_virtual = strncmp(info.name, "gpu_host", strlen("gpu_host")) == 0;
		gpu->node = info.numa_node;
		gpu->bytes = info.total_memory;
		rte_strscpy(gpu->name, info.name, sizeof(gpu->name));
		return;
	}
}

void
check_find_heap(struct check_heap *heap)
{
	struct rte_malloc_socket_stats stats = {0};

	*heap = (struct check_heap){.huge = rte_eal_has_hugepages(), .node = rte_socket_id()};
	/* without huge pages, EAL reports all memory as node 0 */
	if (!heap->huge || heap->node < 0)
		heap->node = 0;
	if (rte_malloc_get_socket_stats(heap->node, &stats) != 0)
		return;
	heap->free = stats.heap_freesz_bytes;
	heap->largest = stats.greatest_free_size;
	heap->taken = stats.heap_allocsz_bytes;
}

static void
need_piece(struct check_need *need, const char *name, uint64_t bytes)
{
	need->heap += bytes;
	if (bytes <= need->largest)
		return;
	need->largest = bytes;
	need->largest_name = name;
}

/** Add a mempool. Its objects are allocated in several pieces, so it does not affect `largest`. */
static void
need_pool(struct check_need *need, uint32_t n, uint32_t element)
{
	need->heap += (uint64_t)n * rte_mempool_calc_obj_size(element, 0, NULL) +
		RTE_MEMPOOL_HEADER_SIZE((struct rte_mempool *)NULL, PORT_MEMPOOL_CACHE) +
		rte_ring_get_memsize(rte_align32pow2(n + 1));
}

static void
need_port(struct check_need *need, const struct settings *s, const struct check_gpu *gpu,
	const struct check_port *p)
{
	const struct port_demand demand = port_demand_of(s);
	const struct port_mbufs n = port_count_mbufs(p->queues, p->settings->descriptors, &demand);
	const bool split = check_port_splits(p);
	const uint64_t data = (uint64_t)n.payload * port_element_bytes(s, split);

	if (p->reference) {
		need_pool(need, n.payload,
			sizeof(struct rte_mbuf) + (split ? 0 : RTE_PKTMBUF_HEADROOM));
	} else {
		need_pool(need, n.payload,
			sizeof(struct rte_mbuf) + sizeof(struct rte_mbuf_ext_shared_info));
		if (gpu->packets)
			need->device += data;
		else
			need_piece(need, "payload pool", data);
	}
	if (split)
		need_pool(need, n.header,
			sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM +
				RTE_ALIGN_CEIL(port_header_bytes(s), 64));
}

/** Return the private memory of CUDA gangs. */
static uint64_t
need_of_gangs(const struct settings *s, const struct check_gpu *gpu)
{
	const struct gk_ops *ops = gk_ops_find(s->kernel);
	struct gk_config c = {
		.value = s->value,
		.gangs = s->gangs,
		.workers = s->gang_workers,
		.packets = gpu->packets ? GK_MEMORY_DEVICE : GK_MEMORY_HOST,
		.trailers = settings_in_memory(s),
		.chunks = settings_chunks(s),
		.nb_profiles = gang_memory_profiles(s),
	};

	if (ops == NULL || ops->memory == NULL)
		return 0;
	gang_memory_layout(s, &c.geometry, &c.layout);
	return ops->memory(&c);
}

/** Return the radial bins of searches for peaks. @return 0: none, or a wrong geometry */
static uint32_t
count_peak_bins(const struct settings *s, const struct gk_geometry *geometry)
{
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g = NULL;
	struct gk_peak_panel *panel;
	uint32_t nb_bins = 0;
	uint16_t *bin;

	if (!s->peaks.known ||
		geometry_settings_make(&s->geometry, &s->detector, &g, message) != 0 || g == NULL)
		return 0;
	bin = malloc(gk_pixels(geometry) * sizeof(*bin));
	panel = malloc(g->nb_panels * sizeof(*panel));
	if (bin == NULL || panel == NULL ||
		peak_settings_map(&s->peaks, g, bin, panel, &nb_bins) != 0)
		nb_bins = 0;
	free(panel);
	free(bin);
	free(g);
	return nb_bins;
}

/** Return the memory of host gangs for searches for peaks and radial profiles. @return 0: none */
static uint64_t
need_of_searches(const struct settings *s)
{
	struct gk_config c = {.gangs = s->gangs, .workers = s->gang_workers};
	struct gk_layout layout;
	uint32_t peak_bins;

	if (strcmp(s->kernel, "cuda") == 0)
		return 0;
	gang_memory_layout(s, &c.geometry, &layout);
	peak_bins = count_peak_bins(s, &c.geometry);
	return peak_bins + s->radial.bins > 0 ? gk_host_search_memory(&c, peak_bins, s->radial.bins)
					      : 0;
}

void
check_count_need(const struct settings *s, const struct check_gpu *gpu,
	const struct check_port *ports, bool lacks_slots, struct check_need *need)
{
	const enum gk_memory results = gpu->results ? GK_MEMORY_DEVICE : GK_MEMORY_HOST;
	const struct detector *d = &s->detector;
	struct gang_memory pieces[GANG_PIECES];

	*need = (struct check_need){.heap = NEED_OF_THE_REST};
	gang_memory_list(s, results, egress_slots_choose(s, results).n > 0, pieces);
	if (lacks_slots)
		pieces[GANG_OUTPUTS].n = 1;
	for (const struct gang_memory *p = pieces; p < pieces + GANG_PIECES; p++) {
		for (uint32_t i = 0; i < p->n && !p->device; i++)
			need_piece(need, p->name, p->bytes);
		need->device += p->device ? p->n * p->bytes : 0;
	}
	need->device += need_of_gangs(s, gpu);
	need->searches = need_of_searches(s);
	/* frame_table.c: for each slot, a cache line per stream and an mbuf pointer per packet */
	need_piece(need, "frame table", (uint64_t)s->slots * d->streams * RTE_CACHE_LINE_SIZE);
	need_piece(need, "frame table", (uint64_t)s->slots * d->tiles * sizeof(void *));
	need_piece(need, "frame records", BUILDER_RECORDS * sizeof(struct frame_record));
	need_piece(need, "streams", sizeof(struct rx_streams));
	need_piece(need, "sources", sizeof(struct sources));
	for (uint32_t i = 0; i < s->rx_lcores; i++)
		need_piece(
			need, "RX role", sizeof(struct rx) + RX_HANDOFF_RING_SIZE * sizeof(void *));
	for (uint32_t i = 0; i < s->nb_ports; i++) {
		if (s->ports[i].adapter)
			continue;
		need_port(need, s, gpu, &ports[i]);
		need->missing += !ports[i].present;
	}
	if (settings_in_memory(s)) {
		struct ingest_card card = {0};

		rx_messages_describe(&card, s);
		need->rings = d->streams * rx_ring_bytes(&card);
		need_piece(need, "rings", d->streams * rx_ring_heap(&card));
	}
}

uint64_t
check_available(const struct check *c)
{
	char text[4096];
	const char *line;

	if (check_read(c, text, sizeof(text), "/proc/meminfo") <= 0)
		return 0;
	line = strstr(text, "MemAvailable:");
	return line != NULL ? strtoull(line + strlen("MemAvailable:"), NULL, 10) << 10 : 0;
}

void
check_searches(struct check *c, const struct settings *s, const struct check_need *need)
{
	const uint32_t n = s->gangs * RTE_MAX(s->gang_workers, 1u);
	const uint64_t have = check_available(c);
	char want[16], text[16];

	check_print_bytes(need->searches, want);
	check_print_bytes(have, text);
	if (need->searches == 0) {
		check_add(c, CHECK_NA, "peak searches",
			"no peak search or radial profile on host gangs");
	} else if (have < need->searches + need->rings) {
		check_add(c, CHECK_FAIL, "peak searches",
			"at most %s (threads: %u); %s available%s", want, n, text,
			need->rings > 0 ? ", also for rings" : "");
		check_fix(c,
			"set [lcores] gangs or gang_workers lower, or [peaks] search = no and "
			"[radial] bins = none");
	} else {
		check_add(c, CHECK_OK, "peak searches", "at most %s (threads: %u); %s available",
			want, n, text);
	}
}

void
check_gpu(struct check *c, const struct settings *s, const struct check_gpu *gpu,
	const struct check_need *need)
{
	char have[16], want[16];

	check_print_bytes(gpu->bytes, have);
	check_print_bytes(need->device, want);
	if (!gpu->present && s->gpu != NULL) {
		check_add(c, CHECK_FAIL, "GPU", "no such GPU: %s", s->gpu);
		check_fix(c,
			"create it with --vdev %s,device=0; check that nvidia-smi lists the GPU",
			s->gpu);
	} else if (!gpu->present && strcmp(s->kernel, "host") != 0) {
		check_add(c, CHECK_FAIL, "GPU", "none, but [gpu] kernel = %s requires one",
			s->kernel);
		check_fix(c, "create one with --vdev gpu_cuda0,device=0, or set kernel = host");
	} else if (!gpu->present) {
		check_add(c, CHECK_NA, "GPU", "none: packets in host memory, gangs run as threads");
	} else if (gpu->bytes != 0 && need->device > gpu->bytes) {
		check_add(c, CHECK_FAIL, "GPU", "%s has %s; packets, results and gangs require %s",
			gpu->name, have, want);
		check_fix(c, "reduce [frames] slots, [port N] descriptors or [gpu] outputs");
	} else {
		check_add(c, CHECK_OK, "GPU", "%s%s, %s; %s for packets, results and gangs",
			gpu->name, gpu->is_virtual ? " (host memory)" : "", have,
			need->device != 0 ? want : "none");
	}
}

void
check_kernel(struct check *c, const struct settings *s, const struct placement *way)
{
	const char *gangs = s->gangs == 1 ? "gang" : "gangs";

	if (gk_ops_find(s->kernel) == NULL) {
		check_add(c, CHECK_FAIL, "gang kernel", "%s is not built in", s->kernel);
		check_fix(c, "set [gpu] kernel = host, or rebuild with the dependencies of %s",
			s->kernel);
	} else if (way->no_gangs[0] == '\0') {
		check_add(c, CHECK_OK, "gang kernel", "%s, %u %s", s->kernel, s->gangs, gangs);
	} else if (strcmp(s->kernel, "host") == 0) {
		check_add(c, CHECK_WARN, "gang kernel", "host, %u %s, not on %s: %s", s->gangs,
			gangs, way->gpu_name, way->no_gangs);
		check_fix(c, "use another GPU, or set [gpu] kernel = host to silence this warning");
	} else {
		check_add(c, CHECK_FAIL, "gang kernel", "%s does not run on %s: %s", s->kernel,
			way->gpu_name[0] != '\0' ? way->gpu_name : "this host", way->no_gangs);
		check_fix(c, "use another GPU, or set [gpu] kernel = host");
	}
}

void
check_placement(struct check *c, const struct settings *s, const struct placement *way)
{
	const bool packets = s->packets == PACKETS_DEVICE && way->packets != GK_MEMORY_DEVICE;
	const bool results = s->results_device && way->results != GK_MEMORY_DEVICE;
	char place[96], other[96];

	placement_name(way, way->packets, place);
	if (packets || results) {
		check_add(c, CHECK_FAIL, "pixel path", "%s = device: %s",
			packets ? "packets" : "results", way->why);
		check_fix(c, "[gpu] packets = auto, results = host");
	} else if (way->packets == GK_MEMORY_HOST && way->computes && s->packets == PACKETS_AUTO) {
		check_add(c, CHECK_WARN, "pixel path", "%s, not %s: %s", place,
			placement_name(way, GK_MEMORY_DEVICE, other), way->why);
		check_fix(c,
			"use a port that splits buffers and does DMA to the GPU "
			"(nvidia_peermem), or set [gpu] packets = pinned to silence this warning");
	} else {
		check_add(c, CHECK_OK, "pixel path", "%s%s%s; results to %s", place,
			way->why[0] != '\0' ? ": " : "", way->why,
			placement_name(way, way->results, other));
	}
}

/**
 * Describe memory that the sum lacks: a device that EAL could not create, such as a net_replay for
 * whose capture it had too little memory.
 */
static const char *
explain_missing(const struct check_need *need)
{
	return need->missing > 0 ? "; more for the ports without a device, see EAL's messages" : "";
}

void
check_heap(struct check *c, const struct check_heap *heap, const struct check_need *need)
{
	char have[16], want[16], piece[16];

	check_print_bytes(need->heap, want);
	check_print_bytes(need->largest, piece);
	check_print_bytes(heap->free, have);
	if (heap->huge) {
		check_add(c, CHECK_OK, "EAL memory",
			"%s required, %s of it for %s; %s mapped and free, the rest from huge "
			"pages%s",
			want, piece, need->largest_name, have, explain_missing(need));
	} else if (need->heap > heap->free || need->largest > heap->largest) {
		check_add(c, CHECK_FAIL, "EAL memory", "%s required, %s of it for %s; %s free%s",
			want, piece, need->largest_name, have, explain_missing(need));
		/* with a margin for fragmentation */
		check_fix(c, "-m %" PRIu64 ", or reduce [frames] slots or [gpu] outputs",
			((heap->taken + need->heap + need->heap / 16) >> 20) + 16);
	} else {
		check_add(c, CHECK_OK, "EAL memory", "%s required, %s of it for %s; %s free%s",
			want, piece, need->largest_name, have, explain_missing(need));
	}
}

/** Huge pages of one size, of a node or of the whole machine. */
struct huge_size {
	uint64_t bytes;
	int64_t total;
	int64_t free;
};

static uint32_t
read_huge_sizes(const struct check *c, const char *directory, struct huge_size *sizes, uint32_t max)
{
	char path[PATH_MAX];
	struct dirent *entry;
	uint32_t n = 0;
	DIR *sysfs;

	snprintf(path, sizeof(path), "%s%s", c->root, directory);
	sysfs = opendir(path);
	if (sysfs == NULL)
		return 0;
	while (n < max && (entry = readdir(sysfs)) != NULL) {
		struct huge_size h = {0};

		if (sscanf(entry->d_name, "hugepages-%" SCNu64 "kB", &h.bytes) != 1)
			continue;
		h.bytes <<= 10;
		h.total = check_read_number(c, "%s/%s/nr_hugepages", directory, entry->d_name);
		h.free = check_read_number(c, "%s/%s/free_hugepages", directory, entry->d_name);
		if (h.total < 0 || h.free < 0)
			continue;
		/* sort by size, smallest first */
		for (uint32_t i = 0; i < n; i++)
			if (sizes[i].bytes > h.bytes)
				RTE_SWAP(sizes[i], h);
		sizes[n++] = h;
	}
	closedir(sysfs);
	return n;
}

/** Read the huge pages of a node, or of the machine. @param directory  out: where they are */
static uint32_t
find_huge_sizes(
	const struct check *c, int node, char directory[128], struct huge_size *sizes, uint32_t max)
{
	uint32_t n;

	snprintf(directory, 128, "/sys/devices/system/node/node%d/hugepages", node);
	n = read_huge_sizes(c, directory, sizes, max);
	if (n > 0)
		return n;
	rte_strscpy(directory, "/sys/kernel/mm/hugepages", 128);
	return read_huge_sizes(c, directory, sizes, max);
}

uint64_t
check_free_huge_pages(const struct check *c, int node)
{
	struct huge_size sizes[8];
	char directory[128];
	uint64_t bytes = 0;

	for (uint32_t n = find_huge_sizes(c, node, directory, sizes, RTE_DIM(sizes)); n-- > 0;)
		bytes += sizes[n].free * sizes[n].bytes;
	return bytes;
}

void
check_huge_pages(struct check *c, const struct check_heap *heap, const struct check_need *need)
{
	char directory[128], text[192] = "none", want[16], size[16];
	struct huge_size sizes[8];
	uint64_t have = heap->free;
	uint32_t n;
	size_t at = 0;

	if (!heap->huge) {
		check_add(c, CHECK_NA, "huge pages", "EAL runs with --no-huge");
		return;
	}
	n = find_huge_sizes(c, heap->node, directory, sizes, RTE_DIM(sizes));
	for (uint32_t i = 0; i < n; i++) {
		have += sizes[i].free * sizes[i].bytes;
		if (at < sizeof(text))
			at += snprintf(text + at, sizeof(text) - at,
				"%s%" PRId64 " of %" PRId64 " x %s free", i == 0 ? "" : ", ",
				sizes[i].free, sizes[i].total,
				check_print_bytes(sizes[i].bytes, size));
	}
	check_add(c, have < need->heap ? CHECK_FAIL : CHECK_OK, "huge pages",
		"node %d: %s; %s required there%s", heap->node, text,
		check_print_bytes(need->heap, want), explain_missing(need));
	if (have >= need->heap)
		return;
	if (n == 0)
		check_fix(c, "boot with default_hugepagesz=1G hugepagesz=1G hugepages=%" PRIu64,
			(need->heap >> 30) + 1);
	else
		check_fix(c, "echo %" PRIu64 " > %s/hugepages-%" PRIu64 "kB/nr_hugepages",
			sizes[0].total + (need->heap - have + sizes[0].bytes - 1) / sizes[0].bytes,
			directory, sizes[0].bytes >> 10);
}
