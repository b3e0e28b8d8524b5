/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-export: writes the files of a run for programs of crystallography. */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "batches.h"
#include "clock.h"
#include "cxi.h"
#include "data_file.h"
#include "escaped_text.h"
#include "export.h"
#include "follow.h"
#include "io/own_file.h"
#include "geometry/file.h"
#include "geometry_files.h"
#include "mask.h"
#include "master.h"
#include "nxmx_geometry.h"
#include "options.h"
#include "output_lock.h"
#include "plural.h"
#include "source.h"
#include "sparse.h"

#define EXIT_INCOMPLETE	 1
#define EXIT_USAGE	 2
#define EXIT_INTERRUPTED 130
#define PROGRESS_SECONDS 2

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

/* Progress, at most every PROGRESS_SECONDS. */
static struct {
	const struct export *e;
	uint64_t images, bytes;
	double begin, shown;
} progress;

static double
now(void)
{
	return monotonic_ns() * 1e-9;
}

static void
progress_begin(const struct export *e)
{
	progress.e = e;
	progress.images = progress.bytes = 0;
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

/* @return ret, after a message if it is to be printed */
static int
fail(const struct export *e, int ret)
{
	if (ret < 0 && ret != -EINTR && ret != -EUCLEAN)
		export_complain("%s%s", e->message, "");
	return ret;
}

/* Called before a data file changes: an old master could otherwise show wrong images. */
static int
remove_master(struct export *e)
{
	char path[PATH_MAX];

	master_path(e, path);
	if (unlink(path) == 0 || errno == ENOENT)
		return 0;
	snprintf(e->message, sizeof(e->message), "%.400s: cannot be removed: %s", path,
		strerror(errno));
	return -EEXIST;
}

/* Writes the data files that do not exist, and reads the batches of those that do. */
static int
write_data(struct export *e, struct batches *batches)
{
	uint32_t k, kept = 0;
	int ret = 0;

	progress_begin(e);
	if (!e->overwrite && data_file_check_others(e, false) < 0)
		return export_complain("%s%s", e->message, "");
	for (k = 0; k < export_files(e); k++) {
		ret = data_file_check(e, k);
		if (ret < 0 && !e->overwrite)
			return export_complain("%s%s", e->message, "");
		if (ret == 1) {
			kept++;
			progress.images += export_count(e, k);
			continue;
		}
		if (remove_master(e) < 0)
			return export_complain("%s%s", e->message, "");
		ret = data_file_write(e, k, show_progress);
		if (ret < 0)
			return fail(e, ret);
	}
	ret = kept > 0 ? batches_check(batches) : 0;
	if (ret < 0)
		return fail(e, ret);
	if (data_file_check_others(e, false) < 0) {
		ret = remove_master(e);
		if (ret == 0)
			ret = data_file_check_others(e, true);
		if (ret < 0)
			return export_complain("%s%s", e->message, "");
	}
	if (kept > 0)
		printf("%u of %u data files were complete\n", kept, export_files(e));
	return 0;
}

static void
summarise(const struct export *e, enum options_format format)
{
	char path[PATH_MAX];

	escaped_line(stdout, "run %s: %zu image%s of %u x %u pixels, %s", e->run.name, e->images.nb,
		plural(e->images.nb, "", "s"), e->run.cols, e->run.rows,
		e->raw ? "detector words" : "photons");
	if (format != OPTIONS_NXMX) {
		if (format == OPTIONS_SPARSE)
			sparse_path(e, path);
		else
			cxi_path(e, path);
		escaped_line(stdout, "  %s", path);
		if (format == OPTIONS_CXI)
			escaped_line(stdout, "  %s_cxi.geom", e->stem);
		return;
	}
	master_path(e, path);
	escaped_line(stdout, "  %s", path);
	data_file_path(e, 0, path);
	escaped_line(stdout, "  %s%s", path, export_files(e) > 1 ? " ..." : "");
	escaped_line(stdout, "  %s.geom", e->stem);
	if (geometry_files_have_poni(e))
		escaped_line(stdout, "  %s.poni", e->stem);
}

static int
write_nxmx(struct export *e, struct batches *batches)
{
	int ret = write_data(e, batches);

	if (ret == 0) {
		ret = master_write(e);
		if (ret < 0)
			export_complain("%s%s", e->message, "");
	}
	return ret == 0 ? geometry_files_write(e, false) : ret;
}

static int
write_sparse(struct export *e)
{
	char path[PATH_MAX];

	sparse_path(e, path);
	if (!e->overwrite && data_file_check_single(e, path, SPARSE_FRAMES) < 0)
		return export_complain("%s%s", e->message, "");
	progress_begin(e);
	return fail(e, sparse_write(e, show_progress));
}

static int
write_cxi(struct export *e)
{
	char path[PATH_MAX];
	int ret;

	cxi_path(e, path);
	if (!e->overwrite && data_file_check_single(e, path, CXI_FRAMES) < 0)
		return export_complain("%s%s", e->message, "");
	progress_begin(e);
	ret = fail(e, cxi_write(e, show_progress));
	return ret == 0 ? geometry_files_write(e, true) : ret;
}

static int
write_format(struct export *e, enum options_format format)
{
	struct batches *batches;
	int ret = batches_open(&batches, e);

	if (ret < 0)
		return ret;
	switch (format) {
	case OPTIONS_SPARSE:
		ret = write_sparse(e);
		break;
	case OPTIONS_CXI:
		ret = write_cxi(e);
		break;
	default:
		ret = write_nxmx(e, batches);
		break;
	}
	batches_close(batches);
	return ret;
}

static int
read_mask(struct export *e, const char *calibration)
{
	const int ret = mask_read(e, calibration);

	if (ret < 0 && ret != -ENOMEM)
		export_complain("%s%s", e->message, "");
	if (ret > 0)
		export_complain("run %s: %s_calibration.bin is not beside its files: the mask has "
				"no pixels of the calibration; copy it there, or use --calibration",
			e->run.name, e->run.name);
	return ret < 0 ? ret : 0;
}

/* Chooses the names of the files, and makes the directory. */
static int
open_output(struct export *e, const struct options *o, struct output_lock *lock)
{
	const char *name = arrow_reader_meta(scan_run_reader(&e->run), ARROW_META_RUN);
	char message[PATH_MAX];
	const int folder = own_folder_make(o->output, OWN_FOLDER_DATA, message);
	int ret;

	if (folder < 0)
		return export_complain("%s%s", message, "");
	close(folder);
	if (name == NULL || *name == '\0' || strchr(name, '/') != NULL)
		name = e->run.name;
	ret = export_set_stem(e, o->output, name);
	if (ret == 0)
		ret = output_lock_take(lock, e);
	return ret == 0 ? output_lock_clear(lock, e, o->format) : ret;
}

/* Converts a geometry file. */
static int
convert(const struct options *o)
{
	struct geometry *g = malloc(sizeof(*g));
	char message[GEOMETRY_MESSAGE_LEN];
	int ret;

	if (g == NULL)
		return -ENOMEM;
	ret = nxmx_geometry_is_name(o->run[0]) ? nxmx_geometry_read(g, o->run[0], NULL, message)
					       : geometry_file_read(g, o->run[0], NULL, message);
	if (ret == 0)
		ret = geometry_file_write(g, o->convert, message);
	if (ret < 0)
		export_complain("%s%s", message, "");
	free(g);
	return ret;
}

static void
close_run(struct export *e)
{
	selection_free(&e->images);
	free(e->geometry);
	free(e->mask);
	e->geometry = NULL;
	e->mask = NULL;
	scan_run_close(&e->run);
}

/*
 * Opens the run, and selects its images. The CRC of a batch is checked when its images are written.
 * Until then, their numbers and kinds count only if `frames` has the same ones.
 * @param damaged  out: files that are damaged, which are printed
 * @return 0; -EUCLEAN: open it again, and check it first; negative: printed
 */
static int
select_images(struct export *e, const struct options *o, const struct scan_sets *sets,
	unsigned int *damaged)
{
	int ret =
		e->checked ? scan_run_open(&e->run, sets) : scan_run_open_unchecked(&e->run, sets);

	if (ret == 0)
		ret = source_check(e);
	if (ret < 0)
		return ret;
	if (!e->checked && scan_run_is_damaged(&e->run))
		return -EUCLEAN;
	*damaged = source_report_damage(&e->run);
	ret = source_report_same_name(&e->run);
	if (ret < 0)
		return ret;
	ret = selection_read(&e->images, &o->filter, &e->run);
	return ret == 0 && !e->checked && !selection_is_paired(&e->images) ? -EUCLEAN : ret;
}

static int
run_export(struct export *e, const struct options *o, const struct scan_sets *sets,
	struct output_lock *lock)
{
	unsigned int damaged = 0;
	int ret = select_images(e, o, sets, &damaged);

	if (ret == 0)
		ret = source_choose_kind(e, o->format);
	if (ret == 0)
		ret = source_geometry(e, o->geometry);
	if (ret == 0)
		ret = read_mask(e, o->calibration);
	if (ret == 0)
		ret = open_output(e, o, lock);
	if (ret == 0)
		ret = write_format(e, o->format);
	if (ret < 0)
		return ret;
	summarise(e, o->format);
	return source_report_lost(e) || damaged > 0 || e->images.orphans > 0 ? 1 : 0;
}

static int
run(int argc, char **argv)
{
	struct sigaction stop = {.sa_handler = export_stop};
	char message[OPTIONS_MESSAGE_LEN];
	struct scan_list list = {0};
	struct scan_sets sets = {0};
	struct output_lock lock = {.fd = OUTPUT_LOCK_NONE};
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
	if (o.convert != NULL)
		return convert(&o) < 0 ? EXIT_INCOMPLETE : 0;
	if (o.follow) {
		ret = follow(&o);
		if (ret == -ENOMEM)
			export_complain("not enough memory%s%s", "", "");
		return ret == -EINTR ? EXIT_INTERRUPTED : ret != 0 ? EXIT_INCOMPLETE : 0;
	}
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	e.per_file = o.per_file;
	e.threads = o.threads;
	e.overwrite = o.overwrite;
	ret = list_sets(&o, &list, &sets);
	if (ret == 0)
		ret = run_export(&e, &o, &sets, &lock);
	if (ret == -EUCLEAN) {
		close_run(&e);
		e.checked = true;
		ret = run_export(&e, &o, &sets, &lock);
	}
	if (ret == -ENOMEM)
		export_complain("not enough memory%s%s", "", "");
	if (ret == -EINTR)
		export_complain("interrupted; the same command continues%s%s", "", "");
	output_lock_release(&lock);
	close_run(&e);
	free(sets.stem);
	scan_list_free(&list);
	return ret == -EINTR ? EXIT_INTERRUPTED : ret != 0 ? EXIT_INCOMPLETE : 0;
}

int
main(int argc, char **argv)
{
	int status;

	/* a reader that has exited does not end --follow, and leaves no lock behind */
	signal(SIGPIPE, SIG_IGN);
	status = run(argc, argv);
	if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
		(void)export_complain("cannot write to standard output%s%s", "", "");
		status = EXIT_INCOMPLETE;
	}
	return status;
}
