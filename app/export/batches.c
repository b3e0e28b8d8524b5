/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "batches.h"
#include "io/own_file.h"
#include "read_ahead.h"
#include "scan/record.h"

/* A batch of a file of `images`. */
struct place {
	TAILQ_ENTRY(place) next;    /* in batches.loaded */
	struct scan_record *record; /* reference to the batch; NULL: not loaded */
	size_t last;		    /* last image of the batch in the selection */
	bool checked;		    /* it was loaded before, so its CRC is known to be correct */
};

/* Parameters and result of reading a batch, in either thread. */
struct reading {
	const struct scan_file *file;
	uint32_t batch;
	uint64_t room; /* minimum bytes of memory to use */
	struct place *place;
	struct scan_record *record; /* NULL: `ret` says why */
	int ret;
};

struct batches {
	struct export *e;
	size_t *first; /* [sets] number of the first batch of each file */
	struct place *place;
	TAILQ_HEAD(, place) loaded; /* loaded batches, least recently used first */
	uint64_t bytes;		    /* bytes of all loaded batches */
	uint64_t largest;	    /* bytes of the largest batch of the run */
	size_t at;		    /* image that was loaded last */
	size_t search; /* the batches of images before this one were read or are being read */
	struct read_ahead read_ahead;
	struct reading reading;
	bool is_reading; /* the thread is reading */
};

static struct place *
place_of(const struct batches *b, size_t image)
{
	const struct selection_row *row = &b->e->images.image[image].image;

	return &b->place[b->first[row->set] + row->batch];
}

static uint64_t
size_of(const struct reading *r)
{
	const struct arrow_read_batch *b = &r->file->reader.batches[r->batch];

	return b->metadata_size + b->body_length;
}

/* Bytes of memory that a batch needs, at least. */
static uint64_t
memory_for(const struct reading *r)
{
	return size_of(r) > r->room ? size_of(r) : r->room;
}

/* Reads a batch, in either thread. */
static void
read_batch(void *arg)
{
	struct reading *r = arg;
	const struct arrow_reader *reader = &r->file->reader;
	const struct arrow_read_batch *b = &reader->batches[r->batch];
	/* there may be more files than a process may have open */
	const int fd = own_file_open_named(r->file->path, O_RDONLY, 0);

	r->record = NULL;
	if (fd < 0) {
		r->ret = fd;
		return;
	}
	(void)posix_fadvise(fd, b->offset, size_of(r), POSIX_FADV_SEQUENTIAL);
	r->ret = scan_record_load(&r->record, reader, b, ARROW_IMAGES, fd, r->room);
	close(fd);
}

static struct reading
reading_of(const struct batches *b, size_t image)
{
	const struct selection_row *row = &b->e->images.image[image].image;

	return (struct reading){
		.file = &b->e->run.set[row->set].file[ARROW_IMAGES],
		.batch = row->batch,
		.room = b->largest,
		.place = place_of(b, image),
	};
}

static void
drop(struct batches *b, struct place *p)
{
	TAILQ_REMOVE(&b->loaded, p, next);
	b->bytes -= scan_record_memory(p->record);
	scan_record_drop(p->record);
	p->record = NULL;
}

/* Drops batches that are no longer needed, and others if there is no room. */
static void
make_room(struct batches *b, size_t image, uint64_t size)
{
	struct place *p, *next;

	for (p = TAILQ_FIRST(&b->loaded); p != NULL; p = next) {
		next = TAILQ_NEXT(p, next);
		if (p->last < image)
			drop(b, p);
	}
	while (b->bytes + size > BATCHES_BYTES && !TAILQ_EMPTY(&b->loaded))
		drop(b, TAILQ_FIRST(&b->loaded));
}

static void
keep(struct batches *b, const struct reading *r)
{
	r->place->record = r->record;
	r->place->checked = true;
	b->bytes += scan_record_memory(r->record);
	TAILQ_INSERT_TAIL(&b->loaded, r->place, next);
}

static int
fail(struct export *e, const struct reading *r, uint64_t frame)
{
	const bool changed = r->ret == -EBADMSG || r->ret == -ENODATA;

	if (changed && !e->checked)
		return -EUCLEAN;
	snprintf(e->message, sizeof(e->message), "%.512s: frame %" PRIu64 ": %.400s", r->file->path,
		frame,
		changed ? "its batch has changed since the file was opened; export "
			  "the run again"
			: r->ret == -ENOMEM ? "not enough memory for its batch"
					    : own_file_error(r->ret));
	return changed ? -EIO : r->ret;
}

/* Loads the batch of an image. */
static int
load(struct batches *b, size_t image)
{
	struct place *p = place_of(b, image);
	struct reading r = reading_of(b, image);

	if (b->is_reading) {
		read_ahead_wait(&b->read_ahead);
		b->is_reading = false;
		/* an error of a batch is reported when its image is requested */
		if (b->reading.place == p)
			r = b->reading;
		else if (b->reading.record != NULL) {
			make_room(b, image, scan_record_memory(b->reading.record));
			keep(b, &b->reading);
		}
	}
	if (r.record == NULL && r.ret == 0) {
		make_room(b, image, memory_for(&r));
		read_batch(&r);
	} else if (r.record != NULL) {
		make_room(b, image, scan_record_memory(r.record));
	}
	if (r.record == NULL)
		return fail(b->e, &r, b->e->images.image[image].image.frame);
	keep(b, &r);
	return 0;
}

/* Begins to read the next batch that the images after this one need. */
static void
read_ahead(struct batches *b, size_t image)
{
	if (b->is_reading)
		return;
	b->search = b->search > image ? b->search : image + 1;
	while (b->search < b->e->images.nb && place_of(b, b->search)->record != NULL)
		b->search++;
	if (b->search == b->e->images.nb)
		return;
	b->reading = reading_of(b, b->search);
	if (b->bytes + memory_for(&b->reading) <= BATCHES_BYTES)
		b->is_reading = read_ahead_start(&b->read_ahead, read_batch, &b->reading);
}

static int
get(void *batches, size_t image, struct scan_record **record)
{
	struct batches *b = batches;
	struct place *p = place_of(b, image);
	int ret = 0;

	/* again from the start */
	if (image < b->at)
		b->search = 0;
	b->at = image;
	if (p->record == NULL)
		ret = load(b, image);
	if (ret < 0)
		return ret;
	TAILQ_REMOVE(&b->loaded, p, next);
	TAILQ_INSERT_TAIL(&b->loaded, p, next);
	*record = scan_record_ref(p->record);
	read_ahead(b, image);
	return 0;
}

int
batches_check(struct batches *b)
{
	struct scan_record *record;
	int ret;

	for (size_t i = 0; i < b->e->images.nb; i++) {
		if (place_of(b, i)->checked)
			continue;
		ret = export_stopped() != 0 ? -EINTR : get(b, i, &record);
		if (ret < 0)
			return ret;
		scan_record_drop(record);
	}
	return 0;
}

int
batches_open(struct batches **batches, struct export *e)
{
	struct batches *b = calloc(1, sizeof(*b));
	size_t nb = 0;

	if (b == NULL)
		return -ENOMEM;
	b->e = e;
	TAILQ_INIT(&b->loaded);
	b->first = calloc(e->run.nb_sets + 1, sizeof(*b->first));
	for (size_t k = 0; b->first != NULL && k < e->run.nb_sets; k++) {
		b->first[k] = nb;
		nb += e->run.set[k].file[ARROW_IMAGES].reader.nb_batches;
	}
	b->place = calloc(nb + 1, sizeof(*b->place));
	if (b->first == NULL || b->place == NULL) {
		batches_close(b);
		return -ENOMEM;
	}
	for (size_t i = 0; i < e->images.nb; i++) {
		struct reading r = reading_of(b, i);

		r.place->last = i;
		b->largest = size_of(&r) > b->largest ? size_of(&r) : b->largest;
	}
	e->load = get;
	e->load_arg = b;
	*batches = b;
	return 0;
}

void
batches_close(struct batches *b)
{
	if (b == NULL)
		return;
	read_ahead_close(&b->read_ahead);
	if (b->is_reading)
		scan_record_drop(b->reading.record);
	while (!TAILQ_EMPTY(&b->loaded))
		drop(b, TAILQ_FIRST(&b->loaded));
	free(b->first);
	free(b->place);
	free(b);
}
