/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the outputs of a run for the pipeline: files, preview, and pedestals of a dark run. */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <rte_eal.h>

#include "calib/calibration.h"
#include "calib/pedestal.h"
#include "clock.h"
#include "egress/egress.h"
#include "geometry/file.h"
#include "geometry/pixels.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "log.h"
#include "output/batch_writer.h"
#include "output/live.h"
#include "output/preview.h"
#include "pipeline.h"
#include "port/gang_memory.h"
#include "port/memory.h"
#include "settings.h"

LOG_REGISTER("files", "recv");

static int
fetch_result(void *arg, void *to, const void *from, size_t size)
{
	struct pipeline *p = arg;

	return memory_copy(p->memory, to, from, size);
}

/** List the coefficient maps by name. */
static void
name_planes(const struct pipeline *p, struct arrow_plane planes[2 * CALIBRATION_STAGES])
{
	static const char *const names[2][CALIBRATION_STAGES] = {
		{"pedestal_g0", "pedestal_g1", "pedestal_g2"},
		{"photons_per_adu_g0", "photons_per_adu_g1", "photons_per_adu_g2"}};
	const struct gk_geometry *g = &p->gk_config->geometry;

	for (uint32_t i = 0; i < CALIBRATION_STAGES; i++) {
		planes[2 * i] = (struct arrow_plane){
			names[0][i], p->calibration->p[i], gk_rows(g), g->cols};
		planes[2 * i + 1] = (struct arrow_plane){
			names[1][i], p->calibration->r[i], gk_rows(g), g->cols};
	}
}

/** Current time on the clock of receive times. */
static int64_t
receive_clock(void *arg)
{
	return utc_ns();
}

const char *
pipeline_preview_path(const struct settings *s, char path[PATH_MAX])
{
	if (strcmp(s->preview, "off") == 0)
		return NULL;
	if (strcmp(s->preview, "auto") != 0)
		return s->preview;
	snprintf(path, PATH_MAX, "%s/%s_preview.png", s->directory, s->run);
	return path;
}

/** Begin the preview. If this fails, the run continues without a preview. */
static void
begin_preview(struct pipeline *p, const struct settings *s, const struct geometry *g)
{
	char own[PATH_MAX];
	const char *path = pipeline_preview_path(s, own);
	int ret = preview_begin(p->preview, path, s->preview_period, g);

	if (ret == -EEXIST)
		LOG(WARNING,
			"run %s: no preview: [output] preview = %s: the file exists and is not a "
			"PNG picture, so it is not replaced; move it away or set another path\n",
			s->run, path);
	else if (ret != 0)
		LOG(WARNING, "run %s: no preview: %s\n", s->run, strerror(-ret));
}

const char *
pipeline_live_path(const struct settings *s, char path[PATH_MAX])
{
	const char *prefix = strrchr(rte_eal_get_runtime_dir(), '/');

	if (strcmp(s->live, "off") == 0)
		return NULL;
	if (strcmp(s->live, "auto") != 0)
		return s->live;
	snprintf(path, PATH_MAX, "%s/live-%s", own_memory_folder(), prefix + 1);
	return path;
}

/** Begin the live file. If this fails, the run continues without one. */
static void
begin_live(struct pipeline *p, const struct settings *s, const struct geometry *g)
{
	char own[PATH_MAX], why[PATH_MAX];
	const struct live_run run = {
		.path = pipeline_live_path(s, own),
		.name = s->run,
		.period = s->live_period,
		.csr_threshold = s->veto.params.csr_threshold,
		.geometry = g,
		.photons_per_adu = p->calibration->r[0],
	};
	int ret = 0, folder;

	if (run.path == own) {
		folder = own_folder_make(own_memory_folder(), OWN_FOLDER_PRIVATE, why);
		ret = folder < 0 ? folder : close(folder);
	}
	if (ret == 0)
		ret = live_begin(p->live, &run);
	if (ret == -EEXIST)
		LOG(WARNING,
			"run %s: no live file: [output] live = %s: the file exists and is not a "
			"live file, so it is not replaced; move it away or set another path\n",
			s->run, run.path);
	else if (ret != 0)
		LOG(WARNING, "run %s: no live file: [output] live = %s: %s\n", s->run, run.path,
			strerror(-ret));
}

/** Called for every kept frame, in the writer's thread. */
static void
update_kept(void *arg, const struct frame_record *record, const uint8_t *output)
{
	struct pipeline *p = arg;

	preview_offer(p->preview, record, output);
	live_offer(p->live, record, output);
	if (p->pedestal != NULL && record->kind == GK_KIND_RAW)
		pedestal_add(p->pedestal, (const uint16_t *)(output + p->gk_config->layout.raw),
			record->missing, record->detector_status);
}

/** Append a stage's frames and masked pixels to the result of a dark run. */
static void
describe_stage(
	uint32_t g, uint64_t frames, const struct pedestal_masked *masked, char *text, size_t size)
{
	const size_t at = strlen(text);

	if (masked->read_out == 0)
		snprintf(text + at, size - at, "%s G%u %" PRIu64 " frames", g > 0 ? ";" : "", g,
			frames);
	else
		snprintf(text + at, size - at,
			"%s G%u %" PRIu64 " frames, %" PRIu64 " of %" PRIu64
			" pixels read out masked",
			g > 0 ? ";" : "", g, frames, masked->pixels, masked->read_out);
}

/** Warn about the first stage of which many pixels are masked; "": none. */
static void
describe_masked(const struct pedestal_masked masked[], char *text, size_t size)
{
	text[0] = '\0';
	for (uint32_t g = 0; g < PEDESTAL_STAGES; g++) {
		const struct pedestal_masked *m = &masked[g];

		if (text[0] != '\0' || m->pixels * PEDESTAL_MASKED_SHARE <= m->read_out)
			continue;
		snprintf(text, size,
			"dark run: %" PRIu64 " of %" PRIu64
			" pixels read out are masked in G%u, %" PRIu64 " of them for noise above "
			"%u ADU, %" PRIu64 " for samples of another gain stage; check that the "
			"beam was off, and the gain mode of the detector",
			m->pixels, m->read_out, g, m->rms, PEDESTAL_RMS_MAX, m->gain);
	}
}

int
pipeline_write_pedestals(struct pipeline *p, const struct settings *s, char *text, size_t size,
	char *warning, size_t warning_size)
{
	const struct pedestal_output out = {.dir = s->directory, .run = s->run};
	struct pedestal_masked masked[PEDESTAL_STAGES] = {0};
	struct pedestal_stats stats;
	int ret;

	if (p->pedestal == NULL)
		return 0;
	stats = *pedestal_stats(p->pedestal);
	ret = pedestal_write(p->pedestal, &out, masked);
	describe_masked(masked, warning, warning_size);
	if (ret == -ENODATA)
		snprintf(text, size, "dark run %s: no dark frames, no pedestals written", s->run);
	else if (ret == -ERANGE)
		snprintf(text, size,
			"dark run %s: frames with at least one complete module: G0 %" PRIu64
			", G1 %" PRIu64 ", G2 %" PRIu64 "; expected at least %u complete frames of "
			"each module in a gain stage; the log names the maps that are not written",
			s->run, stats.frames[0], stats.frames[1], stats.frames[2], PEDESTAL_WINDOW);
	else if (ret != 0)
		snprintf(text, size, "dark run %s: cannot write pedestals: %s", s->run,
			strerror(-ret));
	else
		snprintf(text, size, "dark run %s:", s->run);
	for (uint32_t g = 0; g < PEDESTAL_STAGES && ret == 0; g++)
		describe_stage(g, stats.frames[g], &masked[g], text, size);
	if (ret == 0)
		snprintf(text + strlen(text), size - strlen(text),
			"; modules skipped for missing packets %" PRIu64, stats.incomplete);
	pedestal_destroy(p->pedestal);
	p->pedestal = NULL;
	return ret;
}

/** Lists by module: number of live pixels, and a pedestal and a gain for each stage. */
#define LISTS	  (1 + 2 * CALIBRATION_STAGES)
#define TEXTS	  26 /* other values of the metadata */
#define LIST_ITEM 16 /* bytes of a value, with its comma */

/** Description of a run for the schemas of its files. The keys point into this structure. */
struct description {
	struct arrow_meta meta[TEXTS + LISTS];
	char text[TEXTS + LISTS][32];
	char peaks[2][256];
	char centres[GK_PROFILE_BINS_MAX * LIST_ITEM];
	char list[LISTS][DETECTOR_MODULES_MAX * LIST_ITEM];
	unsigned int nb, nb_lists;
};

static void
describe(struct description *d, const char *key, const char *text)
{
	d->meta[d->nb++] = (struct arrow_meta){key, text};
}

static void
describe_real(struct description *d, const char *key, double value)
{
	snprintf(d->text[d->nb], sizeof(d->text[0]), "%.9g", value);
	describe(d, key, d->text[d->nb]);
}

static void
describe_count(struct description *d, const char *key, uint32_t value)
{
	snprintf(d->text[d->nb], sizeof(d->text[0]), "%u", value);
	describe(d, key, d->text[d->nb]);
}

static void
describe_digest(struct description *d, const char *key, bool files, uint32_t digest)
{
	snprintf(d->text[d->nb], sizeof(d->text[0]), files ? "crc32c:%08x" : "none", digest);
	describe(d, key, d->text[d->nb]);
}

static char *
describe_list(struct description *d, const char *key)
{
	char *text = d->list[d->nb_lists++];

	describe(d, key, text);
	return text;
}

/** Print values separated by commas. */
static void
add_to_list(char text[DETECTOR_MODULES_MAX * LIST_ITEM], double value)
{
	const size_t at = strlen(text);

	snprintf(text + at, LIST_ITEM, "%s%.7g", at == 0 ? "" : ",", value);
}

/** Describe the maps of each module. */
static void
describe_modules(struct description *d, const struct calibration *c, uint32_t modules)
{
	static const char *const keys[2][CALIBRATION_STAGES] = {
		{ARROW_META_PEDESTAL_MEDIAN "0", ARROW_META_PEDESTAL_MEDIAN "1",
			ARROW_META_PEDESTAL_MEDIAN "2"},
		{ARROW_META_GAIN_MEDIAN "0", ARROW_META_GAIN_MEDIAN "1",
			ARROW_META_GAIN_MEDIAN "2"}};
	char *text;

	text = describe_list(d, ARROW_META_LIVE);
	for (uint32_t m = 0; m < modules; m++)
		add_to_list(text, (double)c->module[m].live);
	for (uint32_t g = 0; g < CALIBRATION_STAGES; g++) {
		text = describe_list(d, keys[0][g]);
		for (uint32_t m = 0; m < modules; m++)
			add_to_list(text, c->module[m].pedestal_median[g]);
		text = describe_list(d, keys[1][g]);
		for (uint32_t m = 0; m < modules; m++)
			add_to_list(text, c->module[m].gain_median[g]);
	}
}

/**
 * Describe the geometry.
 * @param g     NULL: not known
 * @param text  the geometry as a file; NULL: not known
 */
static void
describe_geometry(
	struct description *d, const struct settings *s, const struct geometry *g, const char *text)
{
	struct pixels_picture picture = {0};

	if (g != NULL)
		(void)pixels_picture(g, &picture);
	describe_real(d, ARROW_META_DISTANCE, g != NULL ? g->distance_metres * 1000 : 0);
	describe_real(d, ARROW_META_BEAM_X, 0 - picture.left);
	describe_real(d, ARROW_META_BEAM_Y, picture.top);
	describe_real(
		d, ARROW_META_ENERGY, g != NULL ? g->energy_ev / 1000 : s->calibration.energy);
	if (text != NULL)
		describe(d, ARROW_META_GEOMETRY, text);
}

/**
 * Describe the search for peaks, with the options that indexamajig needs to find the same peaks.
 */
static void
describe_peaks(struct description *d, const struct settings *s)
{
	const struct gk_peak_params *p = &s->veto.peak;
	char *shells = d->peaks[1];

	if (s->veto.params.search == GK_SEARCH_NONE)
		return;
	snprintf(d->peaks[0], sizeof(d->peaks[0]),
		"--peaks=peakfinder8 --threshold=%.9g --min-snr=%.9g --min-pix-count=%u "
		"--max-pix-count=%u --local-bg-radius=%u --min-res=%u --max-res=%u%s",
		p->threshold, p->min_snr, p->min_pixels, p->max_pixels, p->bg_radius,
		s->peaks.min_res, s->peaks.max_res, p->saturated ? "" : " --no-use-saturated");
	describe(d, ARROW_META_PEAKS, d->peaks[0]);
	describe_count(d, ARROW_META_PEAKS_MIN, s->veto.params.peaks_min);
	describe_count(d, ARROW_META_PEAKS_MAX, s->veto.params.peaks_max);
	snprintf(shells, sizeof(d->peaks[1]), "%s", s->peaks.nb_shells == 0 ? "none" : "");
	for (uint32_t i = 0; s->peaks.nb_shells > 0 && i <= s->peaks.nb_shells; i++)
		snprintf(shells + strlen(shells), sizeof(d->peaks[1]) - strlen(shells), "%s%.9g",
			i > 0 ? "," : "", s->peaks.shell[i]);
	describe(d, ARROW_META_PEAKS_SHELLS, shells);
}

/** Describe the bins of radial profiles. */
static void
describe_radial(struct description *d, const struct pipeline *p)
{
	const struct radial_settings *s = &p->settings->radial;
	char *at = d->centres;

	if (s->bins == 0)
		return;
	describe(d, ARROW_META_RADIAL_UNIT, profile_unit_names[s->unit]);
	for (uint32_t i = 0; i < s->bins; i++)
		at += snprintf(at, LIST_ITEM, "%s%.9g", i > 0 ? "," : "", p->radial_centres[i]);
	describe(d, ARROW_META_RADIAL_CENTRES, d->centres);
}

/** Describe the run. */
static void
describe_run(struct description *d, const struct pipeline *p, const struct settings *s,
	const struct geometry *g, const char *geometry)
{
	const struct calibration_files *files = &s->calibration;
	const struct calibration *c = p->calibration;
	const struct gk_params *veto = &s->veto.params;

	describe(d, ARROW_META_RUN, s->run);
	describe(d, ARROW_META_SAMPLE, s->sample);
	describe(d, ARROW_META_DETECTOR, s->detector.ops->name);
	describe_count(d, ARROW_META_EXPECTED, s->detector.expected);
	describe_geometry(d, s, g, geometry);
	describe_real(d, ARROW_META_CSR_THRESHOLD, veto->csr_threshold);
	describe_real(d, ARROW_META_STRONG_THRESH, veto->strong_threshold);
	describe_count(d, ARROW_META_STRONG_MIN, veto->strong_min);
	describe_count(d, ARROW_META_STRONG_MAX, veto->strong_max);
	describe_peaks(d, s);
	describe_radial(d, p);
	describe_digest(d, ARROW_META_PEDESTAL,
		files->pedestal[0] != NULL || files->pedestal[1] != NULL ||
			files->pedestal[2] != NULL,
		c->pedestal_digest);
	describe_digest(d, ARROW_META_GAIN, files->gain != NULL, c->gain_digest);
	describe_digest(d, ARROW_META_MASK, files->mask != NULL, c->mask_digest);
	describe(d, ARROW_META_CALIBRATION_WARNING,
		c->warnings > 0 ? calibration_warning(c) : "none");
	describe_modules(d, c, s->detector.modules);
	/* if the maps are in a file, the writer adds its name and digest */
	if (!s->store_calibration)
		describe_digest(d, ARROW_META_CALIBRATION, true, c->digest);
}

/** Choose the incarnation of the run, create the output directory, and check the maps' names. */
static int
prepare_place(const struct settings *s, struct batch_writer_config *c, char message[PATH_MAX])
{
	char why[PATH_MAX];
	int ret;

	if (getrandom(&c->incarnation, sizeof(c->incarnation), 0) != sizeof(c->incarnation)) {
		ret = -errno;
		snprintf(message, PATH_MAX, "cannot get a random incarnation for the run: %s",
			strerror(-ret));
		return ret;
	}
	/* any other error is that of the creation */
	ret = own_folder_check(s->directory, OWN_FOLDER_DATA, why);
	if (ret == -EPERM) {
		snprintf(message, PATH_MAX, "[output] directory: %.*s", PATH_MAX - 64, why);
		return ret;
	}
	ret = durable_dir_make(s->directory, OWN_FOLDER_MODE);
	if (ret < 0) {
		snprintf(message, PATH_MAX,
			"[output] directory = %.*s: cannot create it: %s; create it, or set "
			"another",
			PATH_MAX - 128, s->directory, strerror(-ret));
		return ret;
	}
	if (s->dark_run && pedestal_find_existing(&s->detector, s->directory, s->run, why)) {
		snprintf(message, PATH_MAX,
			"%.*s already exists; move it away or set another run name", PATH_MAX - 80,
			why);
		return -EEXIST;
	}
	return 0;
}

/** Create the files of a run. Nothing is written to them until batch_writer_start(). */
static int
create_writer(struct pipeline *p, const struct settings *s, const struct geometry *g,
	struct batch_writer **writer, char message[PATH_MAX])
{
	struct description run = {.nb = 0};
	struct batch_writer_config c = {
		.dir = s->directory,
		.run = s->run,
		.records = p->egress,
		.returns = p->returned,
		.geometry = file_geometry(&s->detector),
		.layout = p->gk_config->layout,
		.value = s->value,
		.chunks = settings_compresses(p->settings),
		.modules = s->detector.modules,
		.outputs = p->outputs,
		.nb_outputs = p->gk_config->nb_outputs,
		.panels = p->panels,
		.nb_panels = p->panels != NULL ? p->geometry->nb_panels : 0,
		.profiles = p->gk_config->profiles,
		.nb_profiles = p->gk_config->nb_profiles,
		.radial_bins = p->settings->radial.bins,
		.staging = p->staging,
		.fetch = fetch_result,
		.fetch_arg = p,
		.receiver_id = s->receiver_id,
		.run_id = s->run_id,
		.meta = run.meta,
		.frames_interval = s->frames_interval,
		.images_interval = s->images_interval,
		.batch_ms = s->batch_ms,
		.cpus = &p->writer_cpus,
		.slices = {.mode = s->buffered ? ARROW_IO_BUFFERED : ARROW_IO_AUTO,
			.slice = s->slice,
			.depth = s->depth,
			.sync_ms = s->sync_ms,
			.sync_bytes = s->sync_bytes},
		.compressor = p->compressor,
		.egress = p->stores,
		.byte_limit = p->stores != NULL ? s->egress->batch_bytes : 0,
		.roll_frames = s->roll_frames,
		.roll_bytes = s->roll_bytes,
		.roll_ms = s->roll_ms,
		.kept = update_kept,
		.kept_arg = p,
		.clock = receive_clock,
		.clock_arg = p,
	};
	struct arrow_plane planes[2 * CALIBRATION_STAGES];
	char *text = NULL;
	int ret;

	if (g != NULL) {
		text = geometry_text(g);
		if (text == NULL) {
			snprintf(message, PATH_MAX, "cannot allocate the text of the geometry");
			return -ENOMEM;
		}
	}
	describe_run(&run, p, s, g, text);
	c.nb_meta = run.nb;
	ret = prepare_place(s, &c, message);
	if (ret == 0 && s->store_calibration) {
		name_planes(p, planes);
		c.planes = planes;
		c.nb_planes = RTE_DIM(planes);
	}
	if (ret == 0)
		ret = batch_writer_create(writer, &c, message);
	free(text);
	return ret;
}

/** Make the geometry of the run, NULL: not known. */
static int
make_geometry(const struct settings *s, struct geometry **g, char message[PATH_MAX])
{
	char why[GEOMETRY_MESSAGE_LEN];
	int ret = geometry_settings_make(&s->geometry, &s->detector, g, why);

	if (ret != 0)
		snprintf(message, PATH_MAX, "[geometry] %s", why);
	return ret;
}

/** Write only the coefficient maps, because the other files of the run are at the stores. */
static int
try_planes(const struct pipeline *p, const struct settings *s, char message[PATH_MAX])
{
	struct arrow_plane planes[2 * CALIBRATION_STAGES];
	struct batch_writer_config c;
	char path[PATH_MAX];
	int ret;

	ret = prepare_place(s, &c, message);
	if (ret != 0 || !s->store_calibration)
		return ret;
	name_planes(p, planes);
	ret = calibration_file_write(NULL, s->directory, s->run, planes, RTE_DIM(planes), message);
	/* 1: the file existed, and belongs to another run */
	if (ret == 0 &&
		snprintf(path, sizeof(path), "%s/%s_calibration.bin", s->directory, s->run) <
			(int)sizeof(path))
		unlink(path);
	return ret < 0 ? ret : 0;
}

int
pipeline_try_files(const struct settings *settings, const struct calibration *calibration,
	bool *made, char message[PATH_MAX])
{
	struct settings s = *settings;
	struct gk_config config = {0};
	static const struct calibration none;
	struct pipeline p = {.settings = &s,
		.gk_config = &config,
		.calibration = calibration != NULL ? calibration : &none};
	struct batch_writer *writer;
	struct geometry *g = NULL;
	char name[32];
	int ret;

	message[0] = '\0';
	*made = false;
	gang_memory_layout(&s, &config.geometry, &config.layout);
	if (calibration == NULL)
		s.store_calibration = false;
	snprintf(name, sizeof(name), "check-%d", getpid());
	if (s.service)
		s.run = name;
	*made = access(s.directory, F_OK) != 0;
	if (s.egress->device != NULL) {
		ret = try_planes(&p, &s, message);
	} else {
		ret = make_geometry(&s, &g, message);
		if (ret == 0)
			ret = create_writer(&p, &s, g, &writer, message);
		if (ret == 0)
			batch_writer_destroy(writer);
		free(g);
	}
	if (*made)
		rmdir(s.directory);
	return ret;
}

int
pipeline_open_files(struct pipeline *p, const struct settings *s, struct batch_writer **writer,
	char message[PATH_MAX])
{
	struct geometry *g = NULL;
	int ret;

	message[0] = '\0';
	if (s->dark_run) {
		LOG(NOTICE, "dark run %s: requires at least %u frames of each gain stage\n", s->run,
			PEDESTAL_WINDOW);
		p->pedestal = pedestal_create(&p->settings->detector, NULL);
		if (p->pedestal == NULL) {
			snprintf(message, PATH_MAX, "cannot allocate the sums of a dark run");
			return -ENOMEM;
		}
	}
	ret = make_geometry(s, &g, message);
	if (ret == 0 && s->veto.params.search != GK_SEARCH_NONE &&
		!peak_settings_same_map(g, p->geometry)) {
		snprintf(message, PATH_MAX,
			"[geometry] is not that with which the process was started, and [peaks] "
			"search needs it; restart the process to change it");
		ret = -EINVAL;
	}
	if (ret == 0 && p->settings->radial.bins > 0 &&
		(g == NULL || !radial_settings_same_map(g, p->geometry))) {
		snprintf(message, PATH_MAX,
			"[geometry] is not that with which the process was started, and [radial] "
			"bins needs it; restart the process to change it");
		ret = -EINVAL;
	}
	if (ret == 0)
		ret = create_writer(p, s, g, writer, message);
	if (ret != 0)
		goto fail;
	begin_preview(p, s, g);
	begin_live(p, s, g);
	ret = batch_writer_start(*writer);
	if (ret != 0) {
		snprintf(message, PATH_MAX, "cannot start the writer thread: %s", strerror(-ret));
		preview_end(p->preview);
		live_end(p->live);
		goto fail;
	}
	free(g);
	return 0;
fail:
	free(g);
	pedestal_destroy(p->pedestal);
	p->pedestal = NULL;
	return ret;
}
