/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <gpu_cuda.h>
#include <gpu_host.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>
#include <rte_string_fns.h>

#include "builder/builder.h"
#include "calib/calibration.h"
#include "log.h"
#include "port/gang_memory.h"
#include "port/memory.h"
#include "port/placement.h"
#include "settings.h"

LOG_REGISTER("memory", "memory");

/** Minimum page size that any GPU maps. */
#define PAGE 65536

void
memory_init(struct memory *m, const struct placement *way, int socket)
{
	*m = (struct memory){.gpu = way->gpu, .socket = socket};
	rte_strscpy(m->gpu_name, way->gpu_name, sizeof(m->gpu_name));
	if (m->gpu < 0 || gpu_host_view(m->gpu, &m->view) != 0)
		m->view = 0;
}

static void *
keep(struct memory *m, void *address, size_t size, int device)
{
	m->pieces[m->nb_pieces].address = address;
	m->pieces[m->nb_pieces].size = size;
	m->pieces[m->nb_pieces].device = device;
	m->nb_pieces++;
	return address;
}

static void
log_short(const struct memory *m, const char *what, size_t size)
{
	struct rte_malloc_socket_stats stats;

	if (rte_malloc_get_socket_stats(m->socket, &stats) != 0)
		memset(&stats, 0, sizeof(stats));
	LOG(ERR,
		"%s: cannot allocate %zu MiB; the heap of socket %d has %zu MiB free, at most "
		"%zu contiguous; give EAL more memory (-m, or more huge pages)\n",
		what, size >> 20, m->socket, stats.heap_freesz_bytes >> 20,
		stats.greatest_free_size >> 20);
}

void *
memory_host(struct memory *m, const char *what, size_t size)
{
	void *address;

	size = RTE_ALIGN_CEIL(size, RTE_PGSIZE_4K);
	if (m->nb_pieces == MEMORY_PIECES_MAX)
		return NULL;
	address = rte_zmalloc_socket(what, size, RTE_PGSIZE_4K, m->socket);
	if (address == NULL) {
		log_short(m, what, size);
		rte_errno = ENOMEM; /* rte_malloc leaves it as it was */
		return NULL;
	}
	return keep(m, address, size, 0);
}

void *
memory_device(struct memory *m, const char *what, size_t size)
{
	void *address;

	size = RTE_ALIGN_CEIL(size, PAGE);
	if (m->nb_pieces == MEMORY_PIECES_MAX)
		return NULL;
	if (m->gpu < 0)
		return memory_host(m, what, size);
	address = rte_gpu_mem_alloc(m->gpu, size, PAGE);
	if (address == NULL) {
		LOG(ERR, "%s: %s cannot allocate %zu MiB: %s\n", what, m->gpu_name, size >> 20,
			rte_strerror(rte_errno));
		return NULL;
	}
	return keep(m, address, size, 1);
}

int
memory_copy(struct memory *m, void *to, const void *from, size_t size)
{
	int ret;

	if (m->gpu < 0) {
		memcpy(to, from, size);
		return 0;
	}
	/* gpudev has no copy function, but its drivers do */
	ret = gpu_host_copy(m->gpu, to, from, size);
	return ret == -ENODEV ? gpu_cuda_copy(m->gpu, to, from, size) : ret;
}

/** Result of a walk over EAL memory: the areas that are not registered yet. */
struct found {
	const struct memory *m;
	unsigned int nb;
	struct {
		uint8_t *address;
		size_t size;
	} areas[MEMORY_AREAS_MAX];
};

static int
note_area(const struct rte_memseg_list *msl, const struct rte_memseg *ms, size_t len, void *arg)
{
	struct found *f = arg;
	uint8_t *address = ms->addr;

	if (msl->external)
		return 0;
	/* a heap grows at its ends, so the beginning of this area may be registered already */
	for (unsigned int i = 0; i < f->m->nb_areas && len > 0; i++) {
		const size_t size = f->m->areas[i].size;

		if (f->m->areas[i].address != address || size > len)
			continue;
		address += size;
		len -= size;
	}
	if (len == 0)
		return 0;
	if (f->nb == MEMORY_AREAS_MAX - f->m->nb_areas)
		return -1;
	f->areas[f->nb].address = address;
	f->areas[f->nb++].size = len;
	return 0;
}

/** Register an area with the GPU. */
static int
register_area(struct memory *m, void *address, size_t size)
{
	if (rte_gpu_mem_register(m->gpu, size, address) != 0) {
		LOG(ERR, "%s cannot register %zu MiB of host memory: %s\n", m->gpu_name, size >> 20,
			rte_strerror(rte_errno));
		return -ENOMEM;
	}
	m->areas[m->nb_areas].address = address;
	m->areas[m->nb_areas++].size = size;
	return 0;
}

int
memory_adopt(struct memory *m, void *address, size_t size)
{
	if (m->gpu < 0)
		return 0;
	if (m->nb_areas == MEMORY_AREAS_MAX) {
		LOG(ERR, "more than %d areas of memory\n", MEMORY_AREAS_MAX);
		return -ENOSPC;
	}
	return register_area(m, address, size);
}

void
memory_abandon(struct memory *m, void *address)
{
	for (unsigned int i = 0; i < m->nb_areas; i++) {
		if (m->areas[i].address != address)
			continue;
		rte_gpu_mem_unregister(m->gpu, address);
		m->areas[i] = m->areas[--m->nb_areas];
		return;
	}
}

int
memory_register(struct memory *m)
{
	static struct found found;

	if (m->gpu < 0)
		return 0;
	found.m = m;
	found.nb = 0;
	/* The walk holds a lock that a driver may need: collect first, then register. */
	if (rte_memseg_contig_walk(note_area, &found) != 0) {
		LOG(ERR, "EAL memory has more than %d segments; use larger huge pages\n",
			MEMORY_AREAS_MAX);
		return -ENOSPC;
	}
	for (unsigned int i = 0; i < found.nb; i++)
		if (register_area(m, found.areas[i].address, found.areas[i].size) != 0)
			return -ENOMEM;
	return 0;
}

void
memory_unregister(struct memory *m)
{
	while (m->nb_areas > 0)
		rte_gpu_mem_unregister(m->gpu, m->areas[--m->nb_areas].address);
}

void
memory_release(struct memory *m)
{
	memory_unregister(m);
	while (m->nb_pieces > 0) {
		const unsigned int i = --m->nb_pieces;

		if (m->pieces[i].device)
			rte_gpu_mem_free(m->gpu, m->pieces[i].address);
		else
			rte_free(m->pieces[i].address);
	}
}

void
gang_memory_layout(const struct settings *s, struct gk_geometry *geometry, struct gk_layout *layout)
{
	const struct detector *d = &s->detector;

	*geometry = (struct gk_geometry){.tiles = d->tiles * d->parts,
		.tile_rows = d->ops->tile_rows / d->parts,
		.cols = d->ops->cols};
	gk_layout_init(layout, geometry, s->value, s->veto.params.nnz_max);
	if (s->peaks.known)
		gk_layout_add_peaks(layout, s->peaks.max);
}

uint32_t
gang_memory_profiles(const struct settings *s)
{
	return s->radial.bins > 0 ? s->slots + BUILDER_RECORDS : 0;
}

void
gang_memory_list(const struct settings *s, enum gk_memory results, bool outputs_in_journal,
	struct gang_memory pieces[GANG_PIECES])
{
	const bool device = results == GK_MEMORY_DEVICE;
	const bool dark = s->dark.select != BUILDER_DARK_NONE && s->dark.select != BUILDER_DARK_RUN;
	struct gk_geometry geometry;
	struct gk_layout layout;

	gang_memory_layout(s, &geometry, &layout);
	pieces[GANG_CHANNEL] = (struct gang_memory){
		.name = "gang channel", .n = 1, .bytes = sizeof(struct gk_channel)};
	pieces[GANG_FRAMES] = (struct gang_memory){.name = "[frames] slots",
		.n = 1,
		.bytes = (uint64_t)s->slots * gk_frame_stride(&geometry)};
	pieces[GANG_RESULTS] = (struct gang_memory){
		.name = "results", .n = 1, .bytes = s->slots * sizeof(struct gk_result)};
	pieces[GANG_COEFFICIENTS] = (struct gang_memory){
		.name = "coefficients", .n = 1, .bytes = calibration_size(&s->detector)};
	pieces[GANG_OUTPUTS] = (struct gang_memory){.name = "[gpu] outputs",
		.n = !outputs_in_journal,
		.device = device,
		.bytes = (uint64_t)s->outputs * layout.stride};
	pieces[GANG_STAGING] = (struct gang_memory){
		.name = "result staging", .n = device ? 1 : 0, .bytes = layout.stride};
	pieces[GANG_SECOND_PEDESTALS] = (struct gang_memory){.name = "second pedestals",
		.n = dark ? 1 : 0,
		.bytes = gk_pixels(&geometry) * sizeof(float)};
	pieces[GANG_DARK] = (struct gang_memory){.name = "dark accumulators",
		.n = dark ? GK_DARK_MAX : 0,
		/* Only gangs access them: 8 bytes per pixel and frame need not cross the bus. */
		.device = strcmp(s->kernel, "cuda") == 0,
		.bytes = gk_dark_size(&geometry)};
	pieces[GANG_DETAILS] = (struct gang_memory){.name = "details of results",
		.n = 1,
		.bytes = s->slots * sizeof(struct gk_details)};
	pieces[GANG_BINS] = (struct gang_memory){.name = "radial bins",
		.n = s->peaks.known,
		.bytes = gk_pixels(&geometry) * sizeof(uint16_t)};
	pieces[GANG_PANELS] = (struct gang_memory){.name = "panels",
		.n = s->peaks.known,
		.bytes = GEOMETRY_PANELS_MAX * sizeof(struct gk_peak_panel)};
	pieces[GANG_RADIAL_BINS] = (struct gang_memory){.name = "bins of profiles",
		.n = s->radial.bins > 0,
		.bytes = gk_pixels(&geometry) * sizeof(uint16_t)};
	pieces[GANG_PROFILES] = (struct gang_memory){.name = "radial profiles",
		.n = s->radial.bins > 0,
		.bytes = gang_memory_profiles(s) * gk_profile_stride(s->radial.bins)};
}
