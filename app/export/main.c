/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-export: writes the files of a run for programs of crystallography. */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "columns.h"
#include "data_file.h"
#include "detector.h"
#include "escaped_text.h"
#include "export.h"
#include "geometry/crystfel.h"
#include "geometry/file.h"
#include "gk_abi.h"
#include "image.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "master.h"
#include "modules.h"
#include "options.h"
#include "plural.h"
#include "scan/geometry.h"
#include "sparse.h"

#define EXIT_INCOMPLETE	 1
#define EXIT_USAGE	 2
#define EXIT_INTERRUPTED 130
#define PROGRESS_SECONDS 2

static int
complain(const char *format, const char *first, const char *second)
{
	char text[EXPORT_MESSAGE_LEN + PATH_MAX];

	snprintf(text, sizeof(text), format, first, second);
	escaped_line(stderr, "braggline-export: %s", text);
	return -EINVAL;
}

/* Lists the sets of files of all arguments as one run. */
static int
list_sets(const struct options *o, struct scan_list *list, struct scan_sets *all)
{
	size_t i, k;

	for (i = 0; i < o->nb_runs; i++) {
		if (scan_list_add(list, o->run[i]) < 0)
			return -EINVAL;
		all->nb = 0;
	}
	for (i = 0; i < list->nb; i++)
		all->nb += list->run[i].nb;
	all->stem = calloc(all->nb + 1, sizeof(*all->stem));
	if (all->stem == NULL)
		return -ENOMEM;
	all->nb = 0;
	for (i = 0; i < list->nb; i++)
		for (k = 0; k < list->run[i].nb; k++)
			all->stem[all->nb++] = list->run[i].stem[k];
	all->path = list->run[0].path;
	return 0;
}

/* All files must be of one run: of one name, and with the same type of values. */
static int
check_files(struct export *e)
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
		return complain("%s: detector %s: its sensor is not known to this version, and "
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
		escaped_line(stderr,
			"braggline-export: %s: %s; braggline-scan --recover completes the files "
			"of a run that has ended",
			f->path, f->fault != NULL ? f->fault : "incomplete");
}

/* @return number of files that are damaged or incomplete, which are printed */
static unsigned int
report_damage(const struct scan_run *run)
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

/* @return true if kept frames have no image */
static bool
report_lost(const struct export *e)
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
static int
read_geometry(struct export *e, const char *path)
{
	const struct geometry_raster raster = scan_raster(&e->run);
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g;

	if (path == NULL) {
		g = scan_geometry(&e->run);
		if (g == NULL)
			return complain("run %s has no geometry%s; use --geometry FILE, or set "
					"[geometry] of the receiver",
				e->run.name, "");
	} else {
		g = malloc(sizeof(*g));
		if (g == NULL)
			return -ENOMEM;
		if (geometry_file_read(g, path, &raster, message) != 0) {
			free(g);
			return complain("%s%s", message, "");
		}
	}
	e->geometry = g;
	if (!(g->distance_metres > 0))
		g->distance_metres = meta_number(e, ARROW_META_DISTANCE) / 1000;
	if (!(g->energy_ev > 0))
		g->energy_ev = meta_number(e, ARROW_META_ENERGY) * 1000;
	if (!(g->distance_metres > 0))
		return complain("run %s: its distance is not known; use --geometry FILE with %s",
			e->run.name, "clen");
	if (!(g->energy_ev > 0))
		return complain(
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
static int
choose_kind(struct export *e, enum options_format format)
{
	struct selection *s = &e->images;

	if (s->nb == 0 && report_lost(e))
		return -EINVAL;
	if (s->nb == 0)
		return complain("run %s has no kept frame %s", e->run.name,
			"of these numbers and verdicts; see --frames and --verdict");
	if (format == OPTIONS_SPARSE) {
		report_raw(e);
		selection_only(s, 1u << GK_KIND_CSR | 1u << GK_KIND_IMAGE);
		return s->nb > 0 ? 0
				 : complain("run %s has no CSR image, which --format sparse "
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
	return s->nb > 0 ? 0 : complain("run %s: no image is of a known kind%s", e->run.name, "");
}

/* Progress, at most every PROGRESS_SECONDS. */
static struct {
	const struct export *e;
	uint64_t images, bytes;
	double begin, shown;
} progress;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void
progress_begin(const struct export *e)
{
	progress.e = e;
	progress.begin = progress.shown = now();
}

static void
show_progress(uint64_t bytes)
{
	const double t = now();

	progress.images++;
	progress.bytes += bytes;
	if (t - progress.shown < PROGRESS_SECONDS)
		return;
	progress.shown = t;
	fprintf(stderr, "%" PRIu64 " of %zu images, %.1f MB, %.1f MB/s\n", progress.images,
		progress.e->images.nb, progress.bytes / 1e6,
		progress.bytes / 1e6 / (t - progress.begin));
}

/* Writes the data files that do not exist. */
static int
write_data(struct export *e)
{
	char path[PATH_MAX];
	uint32_t k, kept = 0;
	int ret;

	progress_begin(e);
	for (k = 0; k < export_files(e); k++) {
		ret = data_file_check(e, k);
		if (ret < 0 && !e->overwrite)
			return complain("%s%s", e->message, "");
		if (ret == 1) {
			kept++;
			progress.images += export_count(e, k);
			continue;
		}
		/* from here on an old master could show other images than its own */
		master_path(e, path);
		if (unlink(path) < 0 && errno != ENOENT)
			return complain("%s: cannot be removed: %s", path, strerror(errno));
		ret = data_file_write(e, k, show_progress);
		if (ret == -EINTR)
			return ret;
		if (ret < 0) {
			complain("%s%s", e->message, "");
			return ret;
		}
	}
	if (kept > 0)
		printf("%u of %u data files were complete\n", kept, export_files(e));
	return 0;
}

/*
 * A PONI file describes the picture with all gaps. It fits the array only if both are the same: if
 * the detector is one panel.
 */
static bool
has_poni(const struct export *e)
{
	return e->geometry->nb_panels == 1 && e->geometry->panel[0].width == e->run.cols &&
		e->geometry->panel[0].height == e->run.rows;
}

static int
write_poni(const struct export *e)
{
	char path[PATH_MAX], message[GEOMETRY_MESSAGE_LEN];

	snprintf(path, sizeof(path), "%.4000s.poni", e->stem);
	if (!has_poni(e)) {
		/* one of an export with another geometry would be wrong */
		(void)unlink(path);
		return 0;
	}
	if (geometry_file_write(e->geometry, path, message) == 0)
		return 0;
	/* a tilted panel: the images are of use without the file */
	escaped_line(stderr, "braggline-export: %s", message);
	return 0;
}

/* The geometry file of CrystFEL for these files, with the paths of the mask and the peaks. */
static int
write_geometry(const struct export *e)
{
	char path[PATH_MAX], mask[128], *text = NULL;
	const struct crystfel_array array = {
		.mask = mask,
		.peaks = columns_have_peaks(e) ? "/entry/peaks" : NULL,
		.least = image_least(e->raw),
		.most = image_most(e->raw),
	};
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int ret;

	if (f == NULL)
		return -ENOMEM;
	snprintf(mask, sizeof(mask), "/entry/instrument/detector/%s",
		modules_mask_name(e->geometry));
	ret = crystfel_write(e->geometry, &array, f);
	if (fclose(f) != 0 && ret == 0)
		ret = -ENOMEM;
	snprintf(path, sizeof(path), "%.4000s.geom", e->stem);
	if (ret == 0)
		ret = durable_file_replace(path, text, size);
	free(text);
	if (ret != 0)
		return complain("cannot write %s: %s", path, own_file_error(ret));
	return write_poni(e);
}

static void
summarise(const struct export *e, enum options_format format)
{
	char path[PATH_MAX];

	escaped_line(stdout, "run %s: %zu image%s of %u x %u pixels, %s", e->run.name, e->images.nb,
		plural(e->images.nb, "", "s"), e->run.cols, e->run.rows,
		e->raw ? "detector words" : "photons");
	if (format == OPTIONS_SPARSE) {
		sparse_path(e, path);
		escaped_line(stdout, "  %s", path);
		return;
	}
	master_path(e, path);
	escaped_line(stdout, "  %s", path);
	data_file_path(e, 0, path);
	escaped_line(stdout, "  %s%s", path, export_files(e) > 1 ? " ..." : "");
	escaped_line(stdout, "  %s.geom", e->stem);
	if (has_poni(e))
		escaped_line(stdout, "  %s.poni", e->stem);
}

static int
write_nxmx(struct export *e)
{
	int ret = write_data(e);

	if (ret == 0) {
		ret = master_write(e);
		if (ret < 0)
			complain("%s%s", e->message, "");
	}
	return ret == 0 ? write_geometry(e) : ret;
}

static int
write_sparse(struct export *e)
{
	int ret;

	progress_begin(e);
	ret = sparse_write(e, show_progress);
	if (ret < 0 && ret != -EINTR)
		complain("%s%s", e->message, "");
	return ret;
}

/* Chooses the names of the files, and makes the directory. */
static int
open_output(struct export *e, const char *output)
{
	const char *name = arrow_reader_meta(scan_run_reader(&e->run), ARROW_META_RUN);
	char message[PATH_MAX];
	const int folder = own_folder_make(output, OWN_FOLDER_DATA, message);

	if (folder < 0)
		return complain("%s%s", message, "");
	close(folder);
	if (name == NULL || *name == '\0' || strchr(name, '/') != NULL)
		name = e->run.name;
	if (snprintf(e->stem, sizeof(e->stem), "%s/%s", output, name) > PATH_MAX - 64)
		return complain("--output %s: the name is too long%s", output, "");
	return 0;
}

static int
run_export(struct export *e, const struct options *o, const struct scan_sets *sets)
{
	unsigned int damaged;
	int ret = scan_run_open(&e->run, sets);

	if (ret < 0)
		return ret;
	ret = check_files(e);
	if (ret < 0)
		return ret;
	damaged = report_damage(&e->run);
	ret = selection_read(&e->images, &o->filter, &e->run);
	if (ret == 0)
		ret = choose_kind(e, o->format);
	if (ret == 0)
		ret = read_geometry(e, o->geometry);
	if (ret == 0)
		ret = open_output(e, o->output);
	if (ret == 0)
		ret = o->format == OPTIONS_SPARSE ? write_sparse(e) : write_nxmx(e);
	if (ret < 0)
		return ret;
	summarise(e, o->format);
	return report_lost(e) || damaged > 0 || e->images.orphans > 0 ? 1 : 0;
}

int
main(int argc, char **argv)
{
	struct sigaction stop = {.sa_handler = export_stop};
	char message[OPTIONS_MESSAGE_LEN];
	struct scan_list list = {0};
	struct scan_sets sets = {0};
	struct export e = {0};
	struct options o;
	int ret;

	if (options_parse(&o, argc, argv, message) < 0) {
		escaped_line(stderr, "braggline-export: %s", message);
		return EXIT_USAGE;
	}
	if (o.help || o.version) {
		if (o.help)
			options_help();
		else
			puts("braggline-export " BRAGGLINE_VERSION);
		return 0;
	}
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	e.per_file = o.per_file;
	e.overwrite = o.overwrite;
	ret = list_sets(&o, &list, &sets);
	if (ret == 0)
		ret = run_export(&e, &o, &sets);
	if (ret == -ENOMEM)
		complain("not enough memory%s%s", "", "");
	if (ret == -EINTR)
		complain("interrupted; the same command continues%s%s", "", "");
	selection_free(&e.images);
	free(e.geometry);
	scan_run_close(&e.run);
	free(sets.stem);
	scan_list_free(&list);
	if (fflush(stdout) != 0 && ret == 0)
		ret = complain("cannot write to standard output: %s%s", strerror(errno), "");
	return ret == -EINTR ? EXIT_INTERRUPTED : ret != 0 ? EXIT_INCOMPLETE : 0;
}
