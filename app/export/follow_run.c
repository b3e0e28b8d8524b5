/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/names.h"
#include "clock.h"
#include "data_file.h"
#include "escaped_text.h"
#include "follow_run.h"
#include "geometry_files.h"
#include "gk_abi.h"
#include "io/own_file.h"
#include "mask.h"
#include "master.h"
#include "plural.h"
#include "source.h"

/*
 * A master has the columns of all images: the time to write it grows with the run. At most a
 * twentieth of the time is spent on it.
 */
#define MASTER_SECONDS 1
#define MASTER_SHARE   20

static double
now(void)
{
	return monotonic_ns() * 1e-9;
}

/* Frees the pixels of other files. */
static void
keep_pixels_of(struct follow_run *r, struct follow_file *g)
{
	if (r->loaded != NULL && r->loaded != g)
		follow_file_forget(r->loaded);
	r->loaded = g;
}

/* Gets the batch of an image, with its pixels (export_load). */
static int
load_pixels(void *run, size_t image, struct scan_record **record)
{
	struct follow_run *r = run;
	const struct selection_row *row = &r->e.images.image[image].image;
	struct follow_file *g = &r->source[row->set][ARROW_IMAGES];
	int ret;

	keep_pixels_of(r, g);
	ret = follow_file_load(g, row->batch);
	if (ret < 0)
		snprintf(r->e.message, sizeof(r->e.message),
			"%.512s: frame %" PRIu64 ": its batch cannot be read again, because the "
			"file was truncated or memory is out; export the run again",
			g->file->path, row->frame);
	else
		*record = scan_record_ref(g->loaded);
	return ret;
}

int
follow_run_open(struct follow_run *r, const struct options *options, const char *output)
{
	memset(r, 0, sizeof(*r));
	r->options = options;
	r->lock.fd = OUTPUT_LOCK_NONE;
	r->e.load = load_pixels;
	r->e.load_arg = r;
	r->e.per_file = options->per_file;
	r->e.threads = options->threads;
	snprintf(r->e.stem, sizeof(r->e.stem), "%s", output);
	/* readers must stay in place */
	r->e.run.set = calloc(FOLLOW_SETS_MAX, sizeof(*r->e.run.set));
	r->source = calloc(FOLLOW_SETS_MAX, sizeof(*r->source));
	if (r->e.run.set != NULL && r->source != NULL)
		return 0;
	follow_run_close(r);
	return -ENOMEM;
}

int
follow_run_add(struct follow_run *r, const char *stem)
{
	struct scan_set *set;

	if (r->e.run.nb_sets == FOLLOW_SETS_MAX)
		return export_complain("%s: the run has more sets of files than --follow can read; "
				       "export it without --follow%s",
			stem, "");
	set = &r->e.run.set[r->e.run.nb_sets++];
	for (unsigned int t = 0; t < ARROW_TABLES; t++)
		snprintf(set->file[t].path, sizeof(set->file[t].path), "%.4000s_%s.arrow", stem,
			arrow_table_name(t));
	return 0;
}

/* Opens a file if it exists. @return 0: it may not exist yet; -EBADMSG, -ENOMEM, -errno: printed */
static int
open_file(struct follow_run *r, struct follow_file *g, struct scan_file *f, enum arrow_table table)
{
	const size_t length = strlen(f->path);
	int ret;

	if (access(f->path, F_OK) < 0) {
		strcat(f->path, ".part");
		if (access(f->path, F_OK) < 0) {
			f->path[length] = '\0';
			return 0;
		}
	}
	ret = follow_file_open(g, &r->e.run, f, table);
	if (ret == -EAGAIN && r->last && !arrow_name_is_part(f->path) && !r->unreadable) {
		escaped_line(stderr,
			"braggline-export: %s: its schema is damaged or absent; the file is left "
			"out",
			f->path);
		r->unreadable = true;
		r->damaged++;
	}
	if (ret < 0)
		f->path[length] = '\0';
	else
		r->nb_opened++;
	if (ret == 0 || ret == -EAGAIN || ret == -EBADMSG || ret == -ENOENT)
		return ret == -EBADMSG ? ret : 0;
	return export_complain("%s: %s", f->path, own_file_error(ret));
}

static int
compare_numbers(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Whether a batch was read already, from another file. @return 1: it was; 0; -ENOMEM */
static int
is_copy(struct follow_run *r, const struct arrow_read_batch *b)
{
	const char *const texts[] = {b->receiver_id, b->run, b->incarnation, b->table, b->sequence};
	uint64_t *key = malloc(sizeof(*key)), **found;

	if (key == NULL)
		return -ENOMEM;
	*key = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
	for (unsigned int i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		for (const char *c = texts[i]; c != NULL && *c != '\0'; c++)
			*key = (*key ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
	found = tsearch(key, &r->batches, compare_numbers);
	if (found == NULL || *found != key) {
		free(key);
		return found == NULL ? -ENOMEM : 1;
	}
	return 0;
}

/* Reads the next batch of a file. @return 1: read; 0: none; -ENOMEM, -EINVAL: printed */
static int
read_file(struct follow_run *r, uint32_t set, enum arrow_table table)
{
	struct scan_file *f = &r->e.run.set[set].file[table];
	struct follow_file *g = &r->source[set][table];
	struct selection_rows *rows = table == ARROW_FRAMES ? &r->frames : &r->images;
	int ret;

	if (g->file == NULL) {
		ret = open_file(r, g, f, table);
		if (ret < 0 || g->file == NULL)
			return ret;
	}
	if (r->last)
		follow_file_stop(g);
	ret = follow_file_next(g);
	if (ret == -EBADMSG) {
		escaped_line(stderr,
			follow_file_ended(g)
				? "braggline-export: %s: its end is absent or damaged: images may "
				  "be left out; complete the file and export the run again"
				: "braggline-export: %s: a damaged batch is left out",
			f->path);
		r->damaged++;
		return 1;
	}
	if (ret == 1) {
		const uint32_t batch = f->reader.nb_batches - 1;

		if (table == ARROW_IMAGES) {
			keep_pixels_of(r, g);
			follow_file_read_ahead(g, &r->read_ahead);
		} else {
			follow_file_forget(g);
		}
		ret = is_copy(r, &f->reader.batches[batch]);
		if (ret == 0)
			ret = selection_append(rows, &r->e.run, set, table, batch);
		if (ret == -EBADMSG) {
			escaped_line(stderr,
				"braggline-export: %s: batch %u has a damaged column, and is left "
				"out",
				f->path, batch);
			r->damaged++;
		}
		return ret == -ENOMEM ? ret : 1;
	}
	return ret < 0 ? export_complain("%s: %s", f->path, own_file_error(ret)) : 0;
}

/* @return 1: a batch was read; 0; negative: printed */
static int
read_files(struct follow_run *r)
{
	int ret, any = 0;

	for (uint32_t k = 0; k < r->e.run.nb_sets; k++)
		for (unsigned int t = 0; t < ARROW_TABLES; t++) {
			ret = read_file(r, k, t);
			if (ret < 0)
				return ret;
			any |= ret;
		}
	return any;
}

static bool
files_ended(struct follow_run *r)
{
	for (uint32_t k = 0; k < r->e.run.nb_sets; k++)
		for (unsigned int t = 0; t < ARROW_TABLES; t++)
			if (!follow_file_ended(&r->source[k][t]))
				return false;
	return r->e.run.nb_sets > 0;
}

/* Names of the files, geometry and mask, from the first files that are open. */
static int
make_ready(struct follow_run *r)
{
	struct export *e = &r->e;
	const struct arrow_reader *frames = NULL;
	const char *name;
	char message[PATH_MAX];
	int folder, ret;

	for (uint32_t k = 0; k < e->run.nb_sets && frames == NULL; k++)
		if (e->run.set[k].file[ARROW_FRAMES].present)
			frames = &e->run.set[k].file[ARROW_FRAMES].reader;
	if (frames == NULL)
		return -EAGAIN;
	name = arrow_reader_meta(frames, ARROW_META_RUN);
	if (name == NULL || *name == '\0' || strchr(name, '/') != NULL)
		return export_complain("%s: the files have no name of a run%s", e->stem, "");
	snprintf(e->run.name, sizeof(e->run.name), "%s", name);
	ret = source_check(e);
	if (ret == 0)
		ret = source_geometry(e, r->options->geometry);
	if (ret == 0)
		ret = mask_read(e, r->options->calibration);
	if (ret < 0)
		return e->message[0] != '\0' ? export_complain("%s%s", e->message, "") : ret;
	folder = own_folder_make(e->stem, OWN_FOLDER_DATA, message);
	if (folder < 0)
		return export_complain("%s%s", message, "");
	close(folder);
	ret = export_set_stem(e, e->stem, name);
	if (ret == 0)
		ret = output_lock_take(&r->lock, e);
	r->ready = ret == 0;
	return ret;
}

/* Sparse frames, if there are some; photons, if the first images have some; detector words. */
static int
choose_kind(struct follow_run *r)
{
	uint64_t kinds[SELECTION_KINDS] = {0};

	for (size_t i = 0; i < r->images.nb; i++)
		if (r->images.row[i].kind < SELECTION_KINDS)
			kinds[r->images.row[i].kind]++;
	r->is_sparse = kinds[GK_KIND_CSR] > 0;
	r->e.raw = !r->is_sparse && kinds[GK_KIND_IMAGE] == 0;
	if (output_lock_clear(&r->lock, &r->e, r->is_sparse ? OPTIONS_SPARSE : OPTIONS_NXMX) < 0)
		return -EINVAL;
	return r->is_sparse ? sparse_live_open(&r->sparse, &r->e) : 0;
}

/*
 * The first images of a run with CSR images had more than nnz_max pixels, so they are full ones:
 * its files begin again as sparse frames.
 */
static int
become_sparse(struct follow_run *r)
{
	struct export *e = &r->e;
	char path[PATH_MAX];
	int ret = growing_file_close(&r->file, e);

	master_path(e, path);
	if (ret == 0 && unlink(path) < 0 && errno != ENOENT)
		return export_complain("%s: cannot be removed: %s", path, strerror(errno));
	e->images.nb = 0;
	if (ret == 0)
		ret = data_file_check_others(e, true);
	if (ret < 0)
		return export_complain("%s%s", e->message, "");
	r->is_sparse = true;
	r->next_image = r->next_frame = r->written = r->in_master = 0;
	r->left_out = 0;
	return sparse_live_open(&r->sparse, e);
}

/* Whether an image has a kind that the files of the run have. */
static bool
has_kind(const struct follow_run *r, uint8_t kind)
{
	if (r->is_sparse)
		return kind == GK_KIND_CSR || kind == GK_KIND_IMAGE;
	return kind == (r->e.raw ? GK_KIND_RAW : GK_KIND_IMAGE);
}

/* Adds images of the right kind to the selection. */
static int
add_images(struct follow_run *r)
{
	struct selection *s = &r->e.images;
	struct selection_image *image;
	int ret = 0;

	for (size_t i = r->next_image; ret == 0 && i < r->images.nb; i++)
		if (!r->is_sparse && !r->e.raw && r->images.row[i].kind == GK_KIND_CSR)
			ret = become_sparse(r);
	if (ret < 0 || r->next_image == r->images.nb)
		return ret;
	image = realloc(s->image, (r->images.nb + 1) * sizeof(*image));
	if (image == NULL)
		return -ENOMEM;
	s->image = image;
	for (; r->next_image < r->images.nb; r->next_image++) {
		if (!has_kind(r, r->images.row[r->next_image].kind)) {
			r->left_out++;
			continue;
		}
		image[s->nb++] = (struct selection_image){
			.image = r->images.row[r->next_image], .info.set = SELECTION_NOWHERE};
	}
	return 0;
}

/*
 * Finds the row of `frames` of each image. Both tables have the order in which frames were closed,
 * so a search begins after the row of the image before. That row may not be there yet.
 * @param all  search all rows: files of several starts of a receiver may be read in any order
 */
static void
match_rows(struct follow_run *r, bool all)
{
	struct selection_image *m;
	size_t i, k;

	for (i = 0; i < r->e.images.nb; i++) {
		m = &r->e.images.image[i];
		if (m->info.set != SELECTION_NOWHERE)
			continue;
		for (k = all ? 0 : r->next_frame; k < r->frames.nb; k++)
			if (r->frames.row[k].frame == m->image.frame)
				break;
		if (k == r->frames.nb)
			continue;
		m->info = r->frames.row[k];
		r->next_frame = k + 1 > r->next_frame ? k + 1 : r->next_frame;
	}
}

/* Whether images are added to the open file, or to a new one. @return 1; 0: wait; negative */
static int
prepare_file(struct follow_run *r)
{
	struct export *e = &r->e;
	hsize_t have;
	uint32_t number;

	if (r->file.open)
		return 1;
	number = r->written / e->per_file;
	have = data_file_images(e, number);
	/* of an earlier process: a file is replaced by one that has its images, too */
	if (have > e->images.nb - r->written && !r->read_once)
		return 0;
	if (have == e->per_file && export_count(e, number) == e->per_file &&
		data_file_check(e, number) == 1) {
		r->written += e->per_file;
		return 0;
	}
	return growing_file_open(&r->file, e, number) == 0 ? 1 : -EIO;
}

/* Writes images that are not in data files. @return 1: some; 0: none; negative: printed */
static int
write_images(struct follow_run *r)
{
	struct export *e = &r->e;
	size_t nb, before = r->written;
	int ret;

	while (r->written < e->images.nb) {
		ret = prepare_file(r);
		if (ret == 0 && r->written == before)
			return 0;
		before = r->written;
		if (ret == 0)
			continue;
		nb = e->images.nb - r->written;
		nb = nb < e->per_file - r->file.nb ? nb : e->per_file - r->file.nb;
		if (ret > 0) {
			ret = growing_file_add(&r->file, e, nb);
			r->written = export_first(e, r->file.number) + r->file.nb;
		}
		if (ret == 0 && r->file.nb == e->per_file)
			ret = growing_file_close(&r->file, e);
		if (ret < 0)
			return ret == -EINTR ? ret : export_complain("%s%s", e->message, "");
	}
	return 1;
}

/*
 * Writes the next file of lists.
 * @return 1; 0: wait; negative: printed
 */
static int
write_lists(struct follow_run *r, size_t nb)
{
	struct export *e = &r->e;
	const int ret = sparse_live_part(&r->sparse, e, r->full / e->per_file, nb, r->read_once);

	if (ret < 0 && ret != -EAGAIN)
		return ret == -EINTR ? ret : export_complain("%s%s", e->message, "");
	if (ret == 0)
		r->written = r->sparse.written;
	return ret == 0;
}

/* Writes the files of lists that are full. @return 1; 0: wait; negative: printed */
static int
write_full_lists(struct follow_run *r)
{
	int ret = 1;

	while (ret == 1 && r->e.images.nb - r->full >= r->e.per_file) {
		ret = write_lists(r, r->e.per_file);
		r->full += ret == 1 ? r->e.per_file : 0;
	}
	return ret;
}

/* Replaces RUN_sparse.h5, after the file of lists that is not full. */
static int
write_sparse(struct follow_run *r, bool last)
{
	struct export *e = &r->e;
	const size_t all = e->images.nb;
	int ret = all > r->full ? write_lists(r, all - r->full) : 1;

	if (ret != 1)
		return ret;
	match_rows(r, false);
	if (last)
		match_rows(r, true);
	ret = sparse_live_write(&r->sparse, e);
	return ret == 0 || ret == -EINTR ? ret : export_complain("%s%s", e->message, "");
}

/* Replaces the master if it is time. */
static int
write_master(struct follow_run *r, bool last)
{
	struct export *e = &r->e;
	const size_t all = e->images.nb, ready = r->is_sparse ? all : r->written;
	const double begin = now();
	int ret;

	if (ready == 0 || (r->in_master == ready && !last))
		return 0;
	if (!last && begin - r->master_at < MASTER_SECONDS + MASTER_SHARE * r->master_took)
		return 0;
	if (r->is_sparse) {
		ret = write_sparse(r, last);
		r->in_master = r->written;
		r->master_at = now();
		r->master_took = r->master_at - begin;
		return ret;
	}
	/* images that are in memory but not in a file yet are not in the master */
	e->images.nb = r->written;
	match_rows(r, false);
	if (last)
		match_rows(r, true);
	ret = master_write(e);
	if (ret == 0 && r->in_master == 0)
		ret = geometry_files_write(e, false);
	else if (ret < 0)
		export_complain("%s%s", e->message, "");
	e->images.nb = all;
	r->in_master = r->written;
	r->master_at = now();
	r->master_took = r->master_at - begin;
	return ret;
}

/*
 * Everything is written: close the last file, and remove data files of an earlier, longer export.
 */
static enum follow_state
finish(struct follow_run *r)
{
	int ret = growing_file_close(&r->file, &r->e);

	if (ret == 0 && r->written > 0)
		ret = r->is_sparse ? sparse_live_finish(&r->sparse, &r->e)
				   : data_file_check_others(&r->e, true);
	if (ret < 0) {
		export_complain("%s%s", r->e.message, "");
		return FOLLOW_FAILED;
	}
	escaped_line(stdout, "run %s: %zu image%s, %s%s", r->e.run.name, r->written,
		plural(r->written, "", "s"), r->e.stem, r->is_sparse ? "_sparse.h5" : "_master.h5");
	if (r->left_out > 0)
		escaped_line(stderr,
			"braggline-export: run %s: %" PRIu64 " image%s left out: a file has either "
			"photons or detector words",
			r->e.run.name, r->left_out, plural(r->left_out, " is", "s are"));
	fflush(stdout);
	return FOLLOW_ENDED;
}

enum follow_state
follow_run_poll(struct follow_run *r, bool last)
{
	bool ended;
	int any, ret;

	r->last |= last;
	any = read_files(r);
	ended = any == 0 && files_ended(r);
	ret = any < 0 ? any : 0;

	r->read_once |= any == 0;
	if (ret == 0 && r->images.nb > 0 && !r->ready) {
		ret = make_ready(r);
		if (ret == 0)
			ret = choose_kind(r);
	}
	if (ret == -EAGAIN && !ended)
		return any > 0 ? FOLLOW_BUSY : FOLLOW_IDLE;
	if (ret == 0 && r->ready)
		ret = add_images(r);
	if (ret == 0 && r->ready) {
		ret = r->is_sparse ? write_full_lists(r) : write_images(r);
		if (ret >= 0)
			ret = write_master(r, ended || last);
		else if (ret != -EINTR && !r->is_sparse && !r->file.h.failed)
			/* keep the images before the one that cannot be exported */
			(void)write_master(r, true);
	}
	if (ret == -ENOMEM)
		export_complain("%s: not enough memory%s", r->e.stem, "");
	if (ret < 0)
		return FOLLOW_FAILED;
	if (ended)
		return r->ready ? finish(r) : FOLLOW_ENDED;
	return any > 0 ? FOLLOW_BUSY : FOLLOW_IDLE;
}

void
follow_run_close(struct follow_run *r)
{
	(void)growing_file_close(&r->file, &r->e);
	sparse_live_close(&r->sparse);
	output_lock_release(&r->lock);
	for (uint32_t k = 0; r->source != NULL && k < r->e.run.nb_sets; k++)
		for (unsigned int t = 0; t < ARROW_TABLES; t++)
			follow_file_close(&r->source[k][t]);
	read_ahead_close(&r->read_ahead);
	free(r->source);
	tdestroy(r->batches, free);
	free(r->frames.row);
	free(r->images.row);
	free(r->e.run.set);
	free(r->e.geometry);
	free(r->e.mask);
	selection_free(&r->e.images);
	memset(r, 0, sizeof(*r));
}
