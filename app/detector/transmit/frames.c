/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/frames.h"

#include <err.h>
#include <errno.h>

#include <rte_malloc.h>
#include <rte_memory.h>

/* The run holds a reference until the end, so this is not called while packets are in flight. */
static void
payload_returned(void *data, void *opaque)
{
	RTE_SET_USED(data);
	RTE_SET_USED(opaque);
}

static int
frame_alloc(struct transmit_frame *frame, uint32_t modules)
{
	size_t bytes = (size_t)modules * JUNGFRAU_PIXELS * sizeof(*frame->raw);
	uint32_t nb_payloads = modules * JUNGFRAU_MODULE_PACKETS;

	/* aligned to its size, no payload crosses a page: one bus address per payload is enough */
	frame->raw = rte_malloc("detector_pixels", bytes, JUNGFRAU_PAYLOAD_BYTES);
	frame->payload = rte_zmalloc(
		"detector_payloads", nb_payloads * sizeof(*frame->payload), RTE_CACHE_LINE_SIZE);
	if (frame->raw == NULL || frame->payload == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < nb_payloads; i++) {
		struct transmit_payload *payload = &frame->payload[i];

		payload->data = (uint8_t *)frame->raw + (size_t)i * JUNGFRAU_PAYLOAD_BYTES;
		payload->iova = rte_mem_virt2iova(payload->data);
		payload->shared.free_cb = payload_returned;
		rte_mbuf_ext_refcnt_set(&payload->shared, 1);
	}
	return 0;
}

int
transmit_frames_load(struct transmit_frames *frames, struct frame_source *source, uint64_t first,
	uint32_t nb_frames, const volatile sig_atomic_t *stop)
{
	uint32_t modules = source->options->model.modules;
	int ret = 0;

	*frames = (struct transmit_frames){
		.nb_frames = nb_frames, .nb_payloads = modules * JUNGFRAU_MODULE_PACKETS};
	frames->frame = rte_zmalloc("detector_frames", nb_frames * sizeof(*frames->frame), 0);
	if (frames->frame == NULL)
		ret = -ENOMEM;
	/* allocate first: drawing takes long, and lack of memory should be reported before */
	for (uint32_t i = 0; ret == 0 && i < nb_frames; i++)
		ret = frame_alloc(&frames->frame[i], modules);
	if (ret != 0) {
		warnx("cannot allocate %u frames of %u MiB; give EAL more memory (-m), or reduce "
		      "--distinct",
			nb_frames, modules);
		return ret;
	}
	for (uint32_t i = 0; i < nb_frames; i++) {
		if (*stop != 0)
			return -EINTR;
		ret = frame_source_make(
			source, first + i, frames->frame[i].raw, &frames->frame[i].truth);
		if (ret != 0)
			return ret;
	}
	return 0;
}

void
transmit_frames_release(struct transmit_frames *frames)
{
	for (uint32_t i = 0; frames->frame != NULL && i < frames->nb_frames; i++) {
		rte_free(frames->frame[i].raw);
		rte_free(frames->frame[i].payload);
	}
	rte_free(frames->frame);
	*frames = (struct transmit_frames){0};
}
