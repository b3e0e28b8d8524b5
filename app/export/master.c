/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "columns.h"
#include "data_file.h"
#include "scan/detector.h"
#include "h5.h"
#include "image.h"
#include "master.h"
#include "modules.h"
#include "profiles.h"

#define TICK  1e-7 /* seconds of a tick of the detector */
#define NS    1000000000
#define CHUNK (1u << 18) /* pixels of a chunk of the mask */

void
master_path(const struct export *e, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.4000s_master.h5", e->stem);
}

static void
put_time(struct h5 *h, hid_t at, const char *name, int64_t ns)
{
	const time_t seconds = ns / NS;
	char text[64], whole[32];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(whole, sizeof(whole), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%06dZ", whole, (int)(ns % NS / 1000));
	h5_text(h, at, name, text);
}

/* Times of the run. Images without a row of `frames` have the time 0. */
static int
put_times(struct h5 *h, hid_t entry, const struct export *e)
{
	int64_t *receive = columns_read(e, "receive_time", ARROW_TIMESTAMP_NS);
	int64_t first = INT64_MAX, last = 0;
	size_t i;

	if (receive == NULL)
		return -ENOMEM;
	for (i = 0; i < e->images.nb; i++) {
		if (receive[i] <= 0)
			continue;
		first = receive[i] < first ? receive[i] : first;
		last = receive[i] > last ? receive[i] : last;
	}
	free(receive);
	put_time(h, entry, "start_time", first <= last ? first : 0);
	put_time(h, entry, "end_time", last);
	put_time(h, entry, "end_time_estimated", last);
	return 0;
}

/* Exposure, and the period of frames if the first and the last image give it. */
static int
put_exposure(struct h5 *h, hid_t detector, const struct export *e)
{
	uint32_t *exposure = columns_read(e, "exposure", ARROW_UINT32);
	uint64_t *ticks = columns_read(e, "detector_time", ARROW_UINT64);
	const size_t last = e->images.nb - 1;
	uint64_t frames;
	int ret = exposure == NULL || ticks == NULL ? -ENOMEM : 0;

	if (ret == 0) {
		frames = e->images.image[last].image.frame - e->images.image[0].image.frame;
		h5_f64(h, detector, "count_time", exposure[0] * TICK, "s");
		if (frames > 0 && ticks[last] > ticks[0])
			h5_f64(h, detector, "frame_time", (ticks[last] - ticks[0]) * TICK / frames,
				"s");
	}
	free(exposure);
	free(ticks);
	return ret;
}

static const char *
meta_or(const struct export *e, const char *key, const char *otherwise)
{
	const char *text = arrow_reader_meta(scan_run_reader(&e->run), key);

	return text != NULL && *text != '\0' ? text : otherwise;
}

static void
put_mask(struct h5 *h, hid_t detector, const struct export *e)
{
	const hsize_t dims[] = {e->run.rows, e->run.cols};
	const hsize_t rows = CHUNK / e->run.cols;

	h5_array(h, detector, modules_mask_name(e->geometry), H5T_STD_U32LE, 2, dims,
		rows > 0 ? rows : 1, e->mask, NULL);
}

static int
put_detector(struct h5 *h, hid_t instrument, struct export *e)
{
	const struct detector_facts *facts = detector_facts(e->detector);
	const struct geometry *g = e->geometry;
	const hid_t detector = h5_group(h, instrument, "detector", "NXdetector");
	double x, y;
	int ret;

	array_beam(g, &x, &y);
	h5_f64(h, detector, "distance", g->distance_metres, "m");
	h5_f64(h, detector, "beam_center_x", x, "pixel");
	h5_f64(h, detector, "beam_center_y", y, "pixel");
	h5_f64(h, detector, "x_pixel_size", g->pixel_metres, "m");
	h5_f64(h, detector, "y_pixel_size", g->pixel_metres, "m");
	h5_f64(h, detector, "sensor_thickness", facts->thickness_metres, "m");
	h5_text(h, detector, "sensor_material", facts->material);
	h5_text(h, detector, "description", facts->description);
	h5_text(h, detector, "type", "PIXEL");
	h5_i32(h, detector, "bit_depth_readout", 16);
	h5_i32(h, detector, "bit_depth_image", 16);
	h5_i32(h, detector, "saturation_value", image_unsaturated(e->raw));
	h5_i32(h, detector, "underload_value", image_least(e->raw));
	modules_put(h, detector, g);
	ret = put_exposure(h, detector, e);
	put_mask(h, detector, e);
	h5_release(detector);
	return ret;
}

static int
put_instrument(struct h5 *h, hid_t entry, struct export *e)
{
	const hid_t instrument = h5_group(h, entry, "instrument", "NXinstrument");
	const hid_t beam = h5_group(h, instrument, "beam", "NXbeam");
	int ret;

	h5_text(h, instrument, "name", "braggline");
	h5_f64(h, beam, "incident_wavelength", geometry_wavelength(e->geometry), "angstrom");
	h5_f64(h, beam, "incident_energy", e->geometry->energy_ev, "eV");
	h5_release(beam);
	ret = put_detector(h, instrument, e);
	h5_release(instrument);
	return ret;
}

static void
put_sample(struct h5 *h, hid_t entry, const struct export *e)
{
	const hid_t source = h5_group(h, entry, "source", "NXsource");
	const hid_t sample = h5_group(h, entry, "sample", "NXsample");

	h5_text(h, source, "name", "unknown");
	h5_text(h, sample, "name", meta_or(e, ARROW_META_SAMPLE, "unknown"));
	/* stills: no goniometer */
	h5_text(h, sample, "depends_on", ".");
	h5_release(sample);
	h5_release(source);
}

/* The images of all data files, which are found in the master's directory. */
static void
put_images(struct h5 *h, hid_t entry, const struct export *e)
{
	const hid_t type = e->raw ? H5T_STD_U16LE : H5T_STD_I16LE;
	const hsize_t dims[] = {e->images.nb, e->run.rows, e->run.cols};
	const hid_t group = h5_group(h, entry, "data", "NXdata");
	const int16_t invalid = IMAGE_INVALID;
	const uint16_t raw_invalid = IMAGE_RAW_INVALID;
	hid_t space, part, create, set = -1;
	char path[PATH_MAX];
	const char *slash;
	uint32_t k;

	h5_attr_text(h, group, "signal", "data");
	if (h->failed)
		return;
	space = h5_check_id(h, "data", H5Screate_simple(3, dims, NULL));
	create = h5_check_id(h, "data", H5Pcreate(H5P_DATASET_CREATE));
	h5_check(h, "data",
		e->raw ? H5Pset_fill_value(create, H5T_NATIVE_UINT16, &raw_invalid)
		       : H5Pset_fill_value(create, H5T_NATIVE_INT16, &invalid));
	for (k = 0; k < export_files(e) && !h->failed; k++) {
		const hsize_t start[] = {export_first(e, k), 0, 0};
		const hsize_t count[] = {export_count(e, k), e->run.rows, e->run.cols};

		data_file_path(e, k, path);
		slash = strrchr(path, '/');
		part = h5_check_id(h, path, H5Screate_simple(3, count, NULL));
		/* not all of the source: it may have grown when it is read */
		h5_check(h, path,
			H5Sselect_hyperslab(
				part, H5S_SELECT_SET, (hsize_t[]){0, 0, 0}, NULL, count, NULL));
		h5_check(h, path,
			H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
		h5_check(h, path,
			H5Pset_virtual(create, space, slash != NULL ? slash + 1 : path,
				"/entry/data/data", part));
		h5_release(part);
	}
	h5_check(h, "data", H5Sselect_all(space));
	if (!h->failed)
		set = h5_check_id(h, "data",
			H5Dcreate2(group, "data", type, space, H5P_DEFAULT, create, H5P_DEFAULT));
	/* a convention of netCDF: H5Web leaves these pixels out of its colour scale */
	h5_attr_value(h, set, "_FillValue", type,
		e->raw ? (const void *)&raw_invalid : (const void *)&invalid);
	h5_attr_i32(h, set, "image_nr_low", 1);
	h5_attr_i32(h, set, "image_nr_high", e->images.nb);
	h5_release(set);
	h5_release(create);
	h5_release(space);
	h5_release(group);
}

static int
put_entry(struct h5 *h, hid_t entry, struct export *e)
{
	int ret;

	h5_attr_text(h, entry, "default", "data");
	h5_attr_text(h, entry, "version", "1.0");
	h5_text(h, entry, "definition", "NXmx");
	h5_text(h, entry, "program_name", "braggline-export " BRAGGLINE_VERSION);
	h5_text(h, entry, "experiment_identifier", meta_or(e, ARROW_META_RUN, e->run.name));
	ret = put_times(h, entry, e);
	put_sample(h, entry, e);
	if (ret == 0)
		ret = put_instrument(h, entry, e);
	put_images(h, entry, e);
	if (ret == 0)
		ret = columns_put_frames(h, entry, e);
	if (ret == 0 && columns_have_peaks(e))
		ret = columns_put_peaks(h, entry, "peaks", e);
	if (ret == 0)
		ret = profiles_put(h, entry, e);
	return ret;
}

int
master_write(struct export *e)
{
	char path[PATH_MAX], part[PATH_MAX];
	const char *slash;
	struct timespec now;
	struct tm tm;
	char text[64];
	struct h5 h;
	hid_t entry;
	int ret;

	master_path(e, path);
	export_part(path, part);
	slash = strrchr(path, '/');
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	e->message[0] = '\0';
	h5_create(&h, part);
	h5_attr_text(&h, h.file, "default", "entry");
	h5_attr_text(&h, h.file, "file_name", slash != NULL ? slash + 1 : path);
	h5_attr_text(&h, h.file, "file_time", text);
	entry = h5_group(&h, h.file, "entry", "NXentry");
	ret = put_entry(&h, entry, e);
	h5_release(entry);
	ret = export_finish(e, &h, part, path, ret);
	if (ret < 0 && e->message[0] == '\0')
		snprintf(e->message, sizeof(e->message), "%.400s: %s", path, strerror(-ret));
	return ret;
}
