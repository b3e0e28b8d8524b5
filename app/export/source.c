/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/names.h"
#include "scan/detector.h"
#include "escaped_text.h"
#include "geometry/file.h"
#include "gk_abi.h"
#include "nxmx_geometry.h"
#include "plural.h"
#include "scan/geometry.h"
#include "scan/same_name.h"
#include "source.h"

/* All files must be of one run: of one name, and with the same type of values. */
int
source_check(struct export *e)
{
	static const char *const keys[] = {ARROW_META_RUN, ARROW_META_VALUE, ARROW_META_DETECTOR};
	const struct arrow_reader *first = scan_run_reader(&e->run), *r;
	const char *here, *there;
	const struct scan_file *f;
	size_t set, table, i;

	for (set = 0; set < e->run.nb_sets; set++)
		for (table = 0; table < ARROW_TABLES; table++) {
			f = &e->run.set[set].file[table];
			r = &f->reader;
			for (i = 0; f->present && i < 3; i++) {
				here = arrow_reader_meta(r, keys[i]);
				there = arrow_reader_meta(first, keys[i]);
				if (here != NULL && there != NULL && strcmp(here, there) == 0)
					continue;
				escaped_line(stderr,
					"braggline-export: %s: %s is %s, in another file it is "
					"%s; name the files of one run",
					f->path, keys[i], here != NULL ? here : "absent",
					there != NULL ? there : "absent");
				return -EINVAL;
			}
		}
	e->detector = arrow_reader_meta(first, ARROW_META_DETECTOR);
	if (detector_facts(e->detector) == NULL)
		return export_complain(
			"%s: detector %s: its sensor is not known to this version, and "
			"NXmx requires it; update braggline",
			e->run.name, e->detector);
	return 0;
}

static void
print_damage(const struct scan_file *f)
{
	if (!f->present)
		/* the path is that of a file in progress, which was searched last */
		escaped_line(stderr, "braggline-export: %.*s: not found",
			(int)(strlen(f->path) - strlen(".part")), f->path);
	else if (f->damaged > 0)
		escaped_line(stderr,
			"braggline-export: %s: %zu damaged batch%s left out; braggline-scan lists "
			"the frames",
			f->path, f->damaged, plural(f->damaged, " is", "es are"));
	else
		escaped_line(stderr, "braggline-export: %s: %s; %s", f->path,
			f->fault != NULL ? f->fault : "incomplete",
			arrow_name_is_part(f->path)
				? "braggline-scan --recover completes the files of a run that has "
				  "ended"
				: "its name is that of a complete file: copy it again from its "
				  "origin");
}

/* @return number of files that are damaged or incomplete, which are printed */
unsigned int
source_report_damage(const struct scan_run *run)
{
	unsigned int nb = 0;
	size_t set, table;

	for (set = 0; set < run->nb_sets; set++)
		for (table = 0; table < ARROW_TABLES; table++) {
			if (!scan_file_is_damaged(&run->set[set].file[table]))
				continue;
			print_damage(&run->set[set].file[table]);
			nb++;
		}
	return nb;
}

int
source_report_same_name(const struct scan_run *run)
{
	struct scan_same_name_file *file = calloc(run->nb_sets, sizeof(*file));
	const struct scan_file *f;
	char *text = NULL;
	size_t table, set, nb;
	int ret = file != NULL ? 0 : -ENOMEM;

	for (table = 0; table < ARROW_TABLES && ret == 0; table++) {
		nb = 0;
		for (set = 0; set < run->nb_sets; set++) {
			f = &run->set[set].file[table];
			if (f->present)
				file[nb++] = (struct scan_same_name_file){f->path, &f->reader};
		}
		ret = scan_same_name_find(file, nb, &text);
	}
	if (ret > 0)
		escaped_line(stderr, "braggline-export: warning: %s", text);
	free(text);
	free(file);
	return ret < 0 ? ret : 0;
}

/* @return true if kept frames have no image */
bool
source_report_lost(const struct export *e)
{
	if (e->images.lost > 0)
		escaped_line(stderr,
			"braggline-export: run %s: %" PRIu64 " kept frame%s no image in these "
			"files; name the files of all stores",
			e->run.name, e->images.lost, plural(e->images.lost, " has", "s have"));
	return e->images.lost > 0;
}

static double
meta_number(const struct export *e, const char *key)
{
	const char *text = arrow_reader_meta(scan_run_reader(&e->run), key);

	return text != NULL ? strtod(text, NULL) : 0;
}

/* Reads the geometry: of the file, else of the run. */
int
source_geometry(struct export *e, const char *path)
{
	const struct geometry_raster raster = scan_raster(&e->run);
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g;

	if (path == NULL) {
		g = scan_geometry(&e->run);
		if (g == NULL)
			return export_complain(
				"run %s has no geometry%s; use --geometry FILE, or set "
				"[geometry] of the receiver",
				e->run.name, "");
	} else {
		g = malloc(sizeof(*g));
		if (g == NULL)
			return -ENOMEM;
		if (nxmx_geometry_is_name(path) ? nxmx_geometry_read(g, path, &raster, message)
						: geometry_file_read(g, path, &raster, message)) {
			free(g);
			return export_complain("%s%s", message, "");
		}
	}
	e->geometry = g;
	if (!(g->distance_metres > 0))
		g->distance_metres = meta_number(e, ARROW_META_DISTANCE) / 1000;
	if (!(g->energy_ev > 0))
		g->energy_ev = meta_number(e, ARROW_META_ENERGY) * 1000;
	if (!(g->distance_metres > 0))
		return export_complain(
			"run %s: its distance is not known; use --geometry FILE with %s",
			e->run.name, "clen");
	if (!(g->energy_ev > 0))
		return export_complain(
			"run %s: its photon energy is not known; use --geometry FILE with %s",
			e->run.name, "photon_energy");
	return 0;
}

static void
report_raw(const struct export *e)
{
	const uint64_t raw = e->images.kinds[GK_KIND_RAW];

	if (raw > 0)
		escaped_line(stderr,
			"braggline-export: run %s: %" PRIu64 " raw image%s left out: a file has "
			"either photons or detector words",
			e->run.name, raw, plural(raw, " is", "s are"));
}

/* Chooses the kind of images: photons, or detector words if there is nothing else. */
int
source_choose_kind(struct export *e, enum options_format format)
{
	struct selection *s = &e->images;

	if (s->nb == 0 && source_report_lost(e))
		return -EINVAL;
	if (s->nb == 0)
		return export_complain("run %s has no kept frame %s", e->run.name,
			"that --frames and --verdict select; if the receiver rejected all of them, "
			"receive the run again with [veto] dry_run = yes");
	if (format == OPTIONS_SPARSE) {
		report_raw(e);
		selection_only(s, 1u << GK_KIND_CSR | 1u << GK_KIND_IMAGE);
		return s->nb > 0 ? 0
				 : export_complain("run %s has no CSR image, which --format sparse "
						   "requires; use --format nxmx%s",
					   e->run.name, "");
	}
	if (s->kinds[GK_KIND_CSR] > 0) {
		escaped_line(stderr,
			"braggline-export: run %s: %" PRIu64 " of %zu images are CSR, which have "
			"only pixels of at least %s photons; --format nxmx requires full images: "
			"use --format sparse, or set [output] format = image of the receiver",
			e->run.name, s->kinds[GK_KIND_CSR], s->nb,
			arrow_reader_meta(scan_run_reader(&e->run), ARROW_META_CSR_THRESHOLD));
		return -EINVAL;
	}
	e->raw = s->kinds[GK_KIND_IMAGE] == 0;
	if (!e->raw)
		report_raw(e);
	selection_only(s, e->raw ? 1u << GK_KIND_RAW : 1u << GK_KIND_IMAGE);
	return s->nb > 0
		? 0
		: export_complain("run %s: no image is of a known kind%s", e->run.name, "");
}
