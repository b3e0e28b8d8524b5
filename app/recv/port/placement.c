/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include <rte_gpudev.h>
#include <rte_string_fns.h>

#include "builder/builder.h"
#include "port/placement.h"
#include "port/port.h"
#include "settings.h"

/*
 * Gangs and batch size of a GPU, measured on an H200 (test/bench/results/gk_cuda_h200.rst). From
 * host memory, two gangs of four frames saturate the bus, and more only increase the latency. From
 * GPU memory, two gangs of sixteen frames are fastest. A batch takes the frames that wait, so on an
 * idle line it has one frame.
 *
 * If all kept frames are raw, gangs read frames from host memory and write chunks to it at the same
 * time. The bus is then used best with as many gangs as possible (gk_cuda_chunks_h200.rst).
 */
#define GPU_GANGS	 2
#define GPU_GANGS_RAW	 GK_GANGS_MAX
#define GPU_BATCH_PINNED 4
#define GPU_BATCH_DEVICE 16
#define HOST_GANGS	 1
#define HOST_BATCH	 8
#define OUTPUTS_AT_LEAST 16

static int __attribute__((format(printf, 3, 4)))
refuse(struct placement *w, int ret, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(w->why, sizeof(w->why), format, arguments);
	va_end(arguments);
	return ret;
}

static int
find_gpu(struct placement *w, const struct settings *s)
{
	struct rte_gpu_info info;
	int16_t id;

	w->gpu = -1;
	RTE_GPU_FOREACH(id)
	{
		if (rte_gpu_info_get(id, &info) != 0 ||
			(s->gpu != NULL && strcmp(s->gpu, info.name) != 0))
			continue;
		w->gpu = id;
		w->computes = info.processor_count > 0;
		rte_strscpy(w->gpu_name, info.name, sizeof(w->gpu_name));
		return 0;
	}
	if (s->gpu == NULL)
		return 0;
	/* a GPU on the PCI bus may be there at the next start */
	return refuse(w, strncmp(s->gpu, "gpu_", strlen("gpu_")) == 0 ? -EINVAL : -ENODEV,
		"[gpu] device = %s: no such GPU; create it with --vdev %s", s->gpu, s->gpu);
}

/** Check whether gangs can run on the GPU, if they may have to. */
static void
ask_gangs(struct placement *w, const struct settings *s)
{
	const struct gk_ops *ops = gk_ops_find("cuda");
	struct rte_gpu_info info = {0};

	/* If the settings name the kernel, gangs are created wherever there is a driver. */
	if (ops == NULL || strcmp(s->kernel, "host") == 0 ||
		(!w->computes && strcmp(s->kernel, "cuda") != 0))
		return;
	if (w->gpu >= 0 && rte_gpu_info_get(w->gpu, &info) != 0)
		return;
	if (ops->usable((void *)(uintptr_t)info.context) != 0)
		rte_strscpy(w->no_gangs, ops->why(), sizeof(w->no_gangs));
}

/** Check whether the gangs can work in GPU memory. */
static int
gangs_reach(struct placement *w, const struct settings *s)
{
	if (w->gpu < 0)
		return refuse(w, -ENODEV, "no GPU"); /* there may be one at the next start */
	if (w->computes && strcmp(s->kernel, "host") == 0)
		return refuse(w, -EINVAL, "host gangs cannot access the memory of %s", w->gpu_name);
	return 0;
}

static int
choose_packets(struct placement *w, const struct settings *s)
{
	int ret;

	w->packets = GK_MEMORY_HOST;
	if (s->packets == PACKETS_PINNED)
		return refuse(w, 0, "[gpu] packets = pinned");
	if (settings_in_memory(s))
		return refuse(w, s->packets == PACKETS_DEVICE ? -EINVAL : 0,
			"[ingest] delivery = memory, which is host memory");
	ret = gangs_reach(w, s);
	if (ret == 0 && s->packets == PACKETS_AUTO && !w->computes)
		ret = refuse(w, -EINVAL, "the memory of %s is host memory", w->gpu_name);
	for (uint32_t i = 0; i < s->nb_ports && ret == 0; i++)
		ret = port_reaches_gpu(&s->ports[i], w->gpu, w->gpu_name, w->why, sizeof(w->why));
	if (ret != 0)
		return s->packets == PACKETS_DEVICE ? ret : 0;
	w->packets = GK_MEMORY_DEVICE;
	w->why[0] = '\0';
	return 0;
}

static int
choose_results(struct placement *w, const struct settings *s)
{
	char why[sizeof(w->why)];
	int ret;

	w->results = GK_MEMORY_HOST;
	if (!s->results_device)
		return 0;
	rte_strscpy(why, w->why, sizeof(why));
	ret = gangs_reach(w, s);
	if (ret != 0)
		return ret;
	rte_strscpy(w->why, why, sizeof(w->why));
	w->results = GK_MEMORY_DEVICE;
	return 0;
}

/**
 * Return true if frames are refused when no slot is free. By default they are refused unless all
 * ports are replays, which wait.
 */
static bool
refuses(const struct settings *s)
{
	bool live = false;

	for (uint32_t i = 0; i < s->nb_ports; i++)
		live |= !port_replays(&s->ports[i]);
	return s->backpressure == BACKPRESSURE_AUTO ? live : s->backpressure == BACKPRESSURE_REFUSE;
}

static void
settle(const struct placement *w, struct settings *s)
{
	const bool on_gpu = strcmp(s->kernel, "cuda") == 0;
	const bool over_bus = s->veto.params.kind == GK_KIND_RAW && w->packets == GK_MEMORY_HOST &&
		w->results == GK_MEMORY_HOST;

	s->refuse = refuses(s);
	if (s->gangs == 0)
		s->gangs = !on_gpu ? HOST_GANGS : over_bus ? GPU_GANGS_RAW : GPU_GANGS;
	if (s->batch == 0) {
		s->batch = !on_gpu			 ? HOST_BATCH
			: w->packets == GK_MEMORY_DEVICE ? GPU_BATCH_DEVICE
							 : GPU_BATCH_PINNED;
		if (s->outputs != 0)
			s->batch = RTE_MIN(s->batch, s->outputs);
	}
	/*
	 * Each gang has a batch in progress, and one batch is being filled. Host gangs also have a
	 * queued batch, which would otherwise get fewer frames while kept frames wait for the
	 * writer.
	 */
	if (s->outputs == 0)
		s->outputs = RTE_MAX(OUTPUTS_AT_LEAST,
			s->batch * ((on_gpu ? 1 : BUILDER_GANG_DEPTH) * s->gangs + 1));
}

int
placement_choose(struct placement *w, struct settings *s)
{
	int ret;

	*w = (struct placement){0};
	ret = find_gpu(w, s);
	ask_gangs(w, s);
	if (strcmp(s->kernel, "auto") == 0)
		s->kernel = w->computes && gk_ops_find("cuda") != NULL && w->no_gangs[0] == '\0'
			? "cuda"
			: "host";
	if (ret == 0)
		ret = choose_packets(w, s);
	if (ret == 0)
		ret = choose_results(w, s);
	settle(w, s);
	return ret;
}

const char *
placement_name(const struct placement *w, enum gk_memory memory, char text[96])
{
	if (memory == GK_MEMORY_DEVICE)
		snprintf(text, 96, "memory of %s", w->gpu_name);
	else
		rte_strscpy(text, w->gpu >= 0 ? "pinned host memory" : "host memory", 96);
	return text;
}
