/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "columns.h"
#include "cxi.h"
#include "data_file.h"
#include "scan/detector.h"
#include "h5.h"
#include "modules.h"

#define VERSION 160
#define JOULE	1.602176634e-19 /* joules per electronvolt */
#define CHUNK	(1u << 18)	/* pixels of a chunk of the mask */

/* Bits of the mask in CXI files. */
#define CXI_DEAD    (1u << 3)
#define CXI_IGNORED (1u << 6)
#define CXI_MISSING (1u << 9)

void
cxi_path(const struct export *e, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.4000s.cxi", e->stem);
}

static int
put_mask(struct h5 *h, hid_t data, const struct export *e)
{
	const hsize_t dims[] = {e->run.rows, e->run.cols};
	const size_t pixels = dims[0] * dims[1];
	uint32_t *mask = calloc(pixels, sizeof(*mask));
	size_t i;

	if (mask == NULL)
		return -ENOMEM;
	for (i = 0; i < pixels; i++) {
		mask[i] |= e->mask[i] & ARRAY_GAP ? CXI_MISSING : 0;
		mask[i] |= e->mask[i] & ARRAY_DEAD ? CXI_DEAD : 0;
		mask[i] |= e->mask[i] & ARRAY_USER ? CXI_IGNORED : 0;
	}
	h5_array(h, data, "mask", H5T_STD_U32LE, 2, dims, 1 + CHUNK / e->run.cols, mask, NULL);
	free(mask);
	return 0;
}

static void
put_instrument(struct h5 *h, hid_t entry, const struct export *e)
{
	const struct detector_facts *facts = detector_facts(e->detector);
	const hid_t instrument = h5_group(h, entry, "instrument_1", "NXinstrument");
	const hid_t source = h5_group(h, instrument, "source_1", "NXsource");
	const hid_t detector = h5_group(h, instrument, "detector_1", "NXdetector");

	h5_f64(h, source, "energy", e->geometry->energy_ev * JOULE, "J");
	h5_f64(h, detector, "distance", e->geometry->distance_metres, "m");
	h5_f64(h, detector, "x_pixel_size", e->geometry->pixel_metres, "m");
	h5_f64(h, detector, "y_pixel_size", e->geometry->pixel_metres, "m");
	h5_text(h, detector, "description", facts->description);
	/* links to the objects of data_1 */
	h5_link(h, CXI_DATA, detector, "data");
	h5_link(h, CXI_MASK, detector, "mask");
	h5_release(detector);
	h5_release(source);
	h5_release(instrument);
}

/* Photon energies by image, which CrystFEL reads, and cxiview expects. */
static int
put_energies(struct h5 *h, const struct export *e)
{
	const hsize_t nb = e->images.nb;
	const hid_t group = h5_group(h, h->file, "LCLS", "NXcollection");
	double *energy = malloc((nb + 1) * sizeof(*energy));
	size_t i;

	if (energy == NULL) {
		h5_release(group);
		return -ENOMEM;
	}
	for (i = 0; i < nb; i++)
		energy[i] = e->geometry->energy_ev;
	h5_array(h, group, "photon_energy_eV", H5T_IEEE_F64LE, 1, &nb, 0, energy, "eV");
	h5_release(group);
	free(energy);
	return 0;
}

static int
put_entry(struct h5 *h, hid_t entry, struct export *e, void (*progress)(uint64_t bytes))
{
	const hid_t data = h5_group(h, entry, "data_1", "NXdata");
	const hid_t sample = h5_group(h, entry, "sample_1", "NXsample");
	const char *name = arrow_reader_meta(scan_run_reader(&e->run), ARROW_META_SAMPLE);
	int ret;

	h5_attr_text(h, data, "signal", "data");
	h5_text(h, entry, "program_name", "braggline-export " BRAGGLINE_VERSION);
	h5_text(h, sample, "name", name != NULL && *name != '\0' ? name : "unknown");
	ret = data_file_put_images(e, h, data, 0, e->images.nb, progress);
	if (ret == 0)
		ret = put_mask(h, data, e);
	if (ret == 0 && columns_have_peaks(e))
		ret = columns_put_peaks(h, entry, "result_1", e);
	if (ret == 0)
		ret = columns_put_frames(h, entry, e);
	put_instrument(h, entry, e);
	h5_release(sample);
	h5_release(data);
	return ret;
}

int
cxi_write(struct export *e, void (*progress)(uint64_t bytes))
{
	char path[PATH_MAX], part[PATH_MAX];
	struct h5 h;
	hid_t entry;
	int ret;

	cxi_path(e, path);
	export_part(path, part);
	e->message[0] = '\0';
	h5_create(&h, part);
	h5_i32(&h, h.file, "cxi_version", VERSION);
	ret = put_energies(&h, e);
	entry = h5_group(&h, h.file, "entry_1", "NXentry");
	if (ret == 0)
		ret = put_entry(&h, entry, e, progress);
	h5_release(entry);
	ret = export_finish(e, &h, part, path, ret);
	if (ret < 0 && e->message[0] == '\0')
		snprintf(e->message, sizeof(e->message), "%.400s: %s", path, strerror(-ret));
	return ret;
}
