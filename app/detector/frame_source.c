/* SPDX-License-Identifier: BSD-3-Clause */

#include "frame_source.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "geometry/file.h"

/* Choose the value of an option or of a file; both must agree. @param option, file  0: not given */
static int
choose_value(const char *name, double option, double file, double *value)
{
	if (option != 0.0 && file != 0.0 && option != file) {
		warnx("--%s: found %.9g, expected no such option, or %.9g as in the file of "
		      "--geometry",
			name, option, file);
		return -EINVAL;
	}
	*value = file != 0.0 ? file : option;
	return 0;
}

static int
read_geometry(struct frame_source *source, struct jungfrau_model_config *config)
{
	const struct geometry_raster raster = {.rows = config->modules * JUNGFRAU_ROWS,
		.cols = JUNGFRAU_COLUMNS,
		.module_rows = JUNGFRAU_ROWS};
	const char *path = source->options->geometry_path;
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g;
	int ret;

	if (path == NULL)
		return 0;
	g = source->geometry = malloc(sizeof(*g));
	if (g == NULL)
		return -ENOMEM;
	ret = geometry_file_read(g, path, &raster, message);
	if (ret != 0) {
		warnx("--geometry: %s", message);
		return ret;
	}
	ret = choose_value(
		"distance", config->distance, g->distance_metres * 1e3, &config->distance);
	if (ret == 0 && g->energy_ev != 0.0)
		config->energy = g->energy_ev / 1e3;
	if (ret == 0 && !(config->energy >= 1.0 && config->energy <= 100.0)) {
		warnx("--geometry: %s: found photons of %.9g keV, expected 1 to 100 keV", path,
			config->energy);
		ret = -EINVAL;
	}
	if (ret == 0 && config->distance <= 0.0) {
		warnx("--geometry: %s has no distance, expected --distance", path);
		ret = -EINVAL;
	}
	config->geometry = g;
	return ret;
}

int
frame_source_open(struct frame_source *source, const struct detector_options *options)
{
	struct jungfrau_model_config config = options->model;
	int ret;

	*source = (struct frame_source){.options = options, .frames = options->frames};
	if (options->pack)
		return frame_files_open(&source->files, options->pack_paths, options->nb_pack_paths,
			options->model.modules, &source->frames);
	if (options->replay)
		return run_frames_open(&source->run, options->pack_paths, options->nb_pack_paths,
			options->model.modules, &source->frames);
	ret = read_geometry(source, &config);
	if (ret != 0)
		return ret;
	ret = jungfrau_model_create(&config, &source->model);
	if (ret == -ERANGE || (ret == -EINVAL && config.geometry != NULL))
		warnx("--geometry: %s: found a panel without area, or radii above 65,534 pixels; "
		      "or the cell has invalid lengths and angles",
			options->geometry_path);
	else if (ret != 0)
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
	free(source->geometry);
	source->geometry = NULL;
}
