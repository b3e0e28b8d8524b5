/* SPDX-License-Identifier: BSD-3-Clause */

#include "frame_source.h"

#include <err.h>
#include <errno.h>
#include <string.h>

int
frame_source_open(struct frame_source *source, const struct detector_options *options)
{
	int ret;

	*source = (struct frame_source){.options = options, .frames = options->frames};
	if (options->pack)
		return frame_files_open(&source->files, options->pack_paths, options->nb_pack_paths,
			options->model.modules, &source->frames);
	if (options->replay)
		return run_frames_open(&source->run, options->pack_paths, options->nb_pack_paths,
			options->model.modules, &source->frames);
	ret = jungfrau_model_create(&options->model, &source->model);
	if (ret != 0)
		warnx("cannot create the model of %u modules: %s", options->model.modules,
			ret == -EINVAL ? "invalid unit cell lengths and angles" : strerror(-ret));
	return ret;
}

int
frame_source_make(
	struct frame_source *source, uint64_t pulse, uint16_t *raw, struct frame_truth *truth)
{
	const struct detector_options *options = source->options;
	struct jungfrau_frame *frame = &source->frame;

	if (truth != NULL)
		*truth = (struct frame_truth){0};
	if (source->run != NULL)
		return run_frames_read(source->run, raw, &source->header, &source->missing);
	if (source->model == NULL)
		return frame_files_read(&source->files, raw);
	jungfrau_model_plan(source->model, pulse, frame);
	for (uint32_t m = 0; m < options->model.modules; m++)
		jungfrau_model_draw(source->model, frame, m, raw + (size_t)m * JUNGFRAU_PIXELS);
	if (truth == NULL)
		return 0;
	truth->hit = frame->hit;
	truth->dark = frame->dark;
	truth->peaks = frame->peaks;
	truth->strays = frame->nb_peaks - frame->peaks;
	for (uint32_t m = 0; m < options->model.modules; m++)
		jungfrau_model_pixel_counts(source->model, frame, m,
			raw + (size_t)m * JUNGFRAU_PIXELS, options->threshold,
			&truth->pixel_counts);
	return 0;
}

void
frame_source_close(struct frame_source *source)
{
	frame_files_close(&source->files);
	run_frames_close(source->run);
	source->run = NULL;
	jungfrau_model_destroy(source->model);
	source->model = NULL;
}
