/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a retention ring: made, or adopted. */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "file_lock.h"
#include "retention_private.h"

static uint32_t
header_crc(const struct ring_header *h)
{
	return arrow_crc32c(0, &h->size,
		offsetof(struct ring_header, store) - offsetof(struct ring_header, size));
}

static int
map_file(struct retention *r, uint64_t size)
{
	void *map;

	/* populated: a page fault of a full file system would be a SIGBUS in the middle of a run */
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	r->map = map;
	r->size = size;
	r->header = map;
	return 0;
}

static void
find_parts(struct retention *r)
{
	const struct ring_header *h = r->header;

	r->ledger = (struct ring_ledger *)(r->map + h->ledger_at);
	r->run = (struct ring_run *)(r->map + h->runs_at);
	r->batch = (struct ring_batch *)(r->map + h->batches_at);
	r->data = r->map + h->data_at;
	r->data_size = h->data_size;
	r->nb_batches = h->nb_batches;
}

/* Where the parts of a new file lie. @return 0 or -EINVAL */
static int
lay_out(struct ring_header *h, const struct retention_config *c, uint64_t page, char *message)
{
	const uint32_t nb = c->batches > 0 ? c->batches : RETENTION_BATCHES;

	*h = (struct ring_header){
		.version = RING_VERSION, .producer = c->producer, .nb_batches = nb};
	h->ledger_at = SINK_BLOCK;
	h->runs_at = h->ledger_at + 2 * sizeof(struct ring_ledger);
	h->batches_at = h->runs_at + RETENTION_RUNS * sizeof(struct ring_run);
	h->data_at = round_up(h->batches_at + (uint64_t)nb * sizeof(struct ring_batch), page);
	h->data_size = round_up(c->bytes, page);
	h->size = h->data_at + h->data_size;
	if (nb > RETENTION_BATCHES || c->bytes < 2 * SINK_BLOCK || h->data_size < c->bytes ||
		h->size < h->data_size) {
		snprintf(message, PATH_MAX, "a retention ring of %llu bytes: wanted at least %u",
			(unsigned long long)c->bytes, 2 * SINK_BLOCK);
		return -EINVAL;
	}
	return 0;
}

/* Make a file; zeros are empty parts. */
static int
create(struct retention *r, const struct retention_config *c, uint64_t page, char *message)
{
	struct ring_header h;
	int rc = lay_out(&h, c, page, message);

	if (rc < 0)
		return rc;
	/* whatever was there is nothing; zeros again, all of them with memory behind */
	rc = ftruncate(r->fd, 0) < 0 || ftruncate(r->fd, h.size) < 0 ||
			fallocate(r->fd, 0, 0, h.size) < 0
		? -errno
		: map_file(r, h.size);
	if (rc < 0) {
		snprintf(message, PATH_MAX,
			"no room for a retention ring of %llu bytes in %.3000s: %s",
			(unsigned long long)h.size, c->path, strerror(-rc));
		return rc;
	}
	h.crc = header_crc(&h);
	*r->header = h;
	step(r);
	PUT(r->header->magic, RING_MAGIC);
	step(r);
	return 0;
}

/* Whether a header, read from a file of that size, is one of ours. */
static int
check_header(const struct ring_header *h, const char *path, uint64_t size, char *message)
{
	if (h->version != RING_VERSION) {
		snprintf(message, PATH_MAX,
			"%.3000s is a retention ring of version %u: wanted %u. What it holds is "
			"for the braggline that made it, to send or to import; then remove it",
			path, h->version, RING_VERSION);
		return -EINVAL;
	}
	if (h->crc != header_crc(h) || h->size != size || h->nb_batches == 0 ||
		h->nb_batches > RETENTION_BATCHES ||
		h->batches_at - h->runs_at != RETENTION_RUNS * sizeof(struct ring_run) ||
		h->data_at > size || h->data_size != size - h->data_at ||
		h->batches_at + (uint64_t)h->nb_batches * sizeof(struct ring_batch) > h->data_at) {
		snprintf(message, PATH_MAX,
			"the retention ring %.3000s is damaged: what it holds cannot be told; "
			"move it away to begin a new one",
			path);
		return -EBADMSG;
	}
	return 0;
}

static int
check_producer(const struct ring_header *h, const struct retention_config *c, char *message)
{
	if (h->producer == c->producer)
		return 0;
	snprintf(message, PATH_MAX,
		"the retention ring %.3000s is of producer %016llx: wanted %016llx", c->path,
		(unsigned long long)h->producer, (unsigned long long)c->producer);
	return -EINVAL;
}

static int
by_position(const void *a, const void *b)
{
	const struct taken *x = a, *y = b;

	return (x->position > y->position) - (x->position < y->position);
}

static bool
batch_is_sound(const struct retention *r, const struct ring_batch *b)
{
	const uint64_t at = b->position % r->data_size;

	return b->state <= BATCH_IN_DOUBT && b->crc == CRC_FROM(b, position) &&
		b->run < RETENTION_RUNS && r->run[b->run].state == RUN_LIVE &&
		b->table < SINK_TABLES && b->body_bytes < r->data_size &&
		at + SINK_BLOCK + b->body_bytes <= r->data_size;
}

/* What does not stand in the file follows from what does. */
static int
rebuild(struct retention *r, char *message)
{
	struct ring_batch *b;
	uint32_t i, n = 0;

	r->taken = calloc(r->nb_batches + 1, sizeof(*r->taken));
	r->free_batch = calloc(r->nb_batches, sizeof(*r->free_batch));
	if (r->taken == NULL || r->free_batch == NULL) {
		snprintf(message, PATH_MAX, "no memory for a list of %u batches", r->nb_batches);
		return -ENOMEM;
	}
	for (i = 0; i < RETENTION_RUNS; i++) {
		if (r->run[i].state == RUN_LIVE && r->run[i].crc != run_crc(&r->run[i])) {
			snprintf(message, PATH_MAX, "run %u of the retention ring is damaged", i);
			return -EBADMSG;
		}
	}
	/* low numbers first */
	for (i = r->nb_batches; i-- > 0;) {
		b = &r->batch[i];
		/* killed between the last one that was told and forgetting it */
		if (b->state == BATCH_IN_DOUBT && others_given(b) == 0)
			PUT(b->state, BATCH_FREE);
		if (b->state == BATCH_FREE) {
			r->free_batch[r->nb_free++] = i;
			continue;
		}
		if (!batch_is_sound(r, b)) {
			snprintf(message, PATH_MAX, "batch %u of the retention ring is damaged", i);
			return -EBADMSG;
		}
		r->references[b->run]++;
		if (b->position + SINK_BLOCK + b->body_bytes > r->head)
			r->head = b->position + SINK_BLOCK + b->body_bytes;
		r->held[b->run] += b->state == BATCH_HELD;
		if (b->state == BATCH_HELD)
			r->taken[n++] = (struct taken){b->position, i};
		else
			r->stats.in_doubt++;
	}
	qsort(r->taken, n, sizeof(*r->taken), by_position);
	r->taken_head = n;
	r->tail = n > 0 ? r->taken[0].position : r->head;
	r->stats.batches = n;
	r->stats.adopted = n;
	r->stats.bytes = r->head - r->tail;
	r->stats.room = r->data_size;
	return 0;
}

/* @param c  NULL: of any producer. @return 1: a ring of ours; 0: there is nothing; -errno */
static int
read_header(int fd, const char *path, const struct retention_config *c, uint64_t size,
	struct ring_header *h, char *message)
{
	int rc;

	if (size == 0)
		return 0;
	if (pread(fd, h, sizeof(*h), 0) != sizeof(*h) ||
		(h->magic != 0 && h->magic != RING_MAGIC)) {
		snprintf(message, PATH_MAX, "%.3000s is no retention ring, and is not overwritten",
			path);
		return -EINVAL;
	}
	/* begun, and its process was killed then */
	if (h->magic == 0)
		return 0;
	rc = check_header(h, path, size, message);
	if (rc == 0 && c != NULL)
		rc = check_producer(h, c, message);
	return rc < 0 ? rc : 1;
}

/* @param c  NULL: of any producer. @return 1; 0: there is nothing; -errno */
static int
adopt(struct retention *r, const char *path, const struct retention_config *c, uint64_t size,
	char *message)
{
	struct ring_header h;
	unsigned int i;
	int rc = read_header(r->fd, path, c, size, &h, message);

	if (rc <= 0)
		return rc;
	rc = map_file(r, size);
	if (rc < 0) {
		snprintf(message, PATH_MAX, "cannot map %.3000s: %s", path, strerror(-rc));
		return rc;
	}
	find_parts(r);
	for (i = 0; i < 2; i++) {
		/* one that was being written when its process died is written again */
		if (ledger_is_sound(&r->ledger[i]) && r->ledger[i].number > r->ledger_number)
			r->ledger_number = r->ledger[i].number;
	}
	rc = rebuild(r, message);
	if (rc < 0)
		return rc;
	snprintf(message, PATH_MAX, "%llu batches of %.3000s adopted, %llu in doubt",
		(unsigned long long)r->stats.batches, path, (unsigned long long)r->stats.in_doubt);
	return 1;
}

/* Open a file, for this process alone; on errors, too, it may be open then. */
static int
open_file(
	int *fd, const char *path, int flags, unsigned int wait_ms, struct stat *st, char *message)
{
	int rc;

	*fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
	if (*fd < 0 || fstat(*fd, st) < 0) {
		rc = -errno;
		snprintf(message, PATH_MAX, "cannot open the retention ring %.3000s: %s", path,
			strerror(-rc));
		return rc;
	}
	rc = file_lock(*fd, wait_ms);
	if (rc < 0) {
		snprintf(message, PATH_MAX, "the retention ring %.3000s is another process's%s: %s",
			path,
			rc == -EBUSY ? " (or of one that has died and waits for its disk)" : "",
			strerror(-rc));
	}
	return rc;
}

/* What outlives the process but not the machine. @return 0 or -errno */
static int
check_file_system(const char *path, int error, const struct statfs *fs, char *message)
{
	if (error != 0) {
		snprintf(message, PATH_MAX, "cannot open the retention ring %.3000s: %s", path,
			strerror(error));
		return -error;
	}
	if (fs->f_type == TMPFS_MAGIC || fs->f_type == HUGETLBFS_MAGIC)
		return 0;
	snprintf(message, PATH_MAX,
		"the retention ring %.3000s would be written to a disk: wanted a path in a "
		"tmpfs or hugetlbfs",
		path);
	return -EINVAL;
}

/* Of a hugetlbfs: its huge pages. */
static uint64_t
page_of(const struct statfs *fs)
{
	return (uint64_t)fs->f_bsize > SINK_BLOCK ? (uint64_t)fs->f_bsize : SINK_BLOCK;
}

int
retention_open(struct retention **ring, const struct retention_config *c, char message[PATH_MAX])
{
	struct retention *r = calloc(1, sizeof(*r));
	struct statfs fs;
	struct stat st;
	int rc;

	snprintf(message, PATH_MAX, "no memory for a retention ring");
	if (r == NULL)
		return -ENOMEM;
	r->step = c->step;
	r->step_arg = c->step_arg;
	rc = open_file(&r->fd, c->path, O_CREAT, FILE_LOCK_MS, &st, message);
	if (rc == 0)
		rc = check_file_system(c->path, fstatfs(r->fd, &fs) < 0 ? errno : 0, &fs, message);
	if (rc == 0)
		rc = adopt(r, c->path, c, st.st_size, message);
	if (rc == 0) {
		rc = create(r, c, page_of(&fs), message);
		if (rc == 0) {
			find_parts(r);
			rc = rebuild(r, message);
		}
		if (rc == 0)
			snprintf(message, PATH_MAX, "%.3000s: new, room for %llu bytes", c->path,
				(unsigned long long)r->data_size);
	}
	if (rc < 0)
		goto fail;
	*ring = r;
	return rc;

fail:
	retention_close(r);
	return rc;
}

int
retention_open_existing(struct retention **ring, const char *path, char message[PATH_MAX])
{
	struct retention *r = calloc(1, sizeof(*r));
	struct stat st;
	int rc;

	snprintf(message, PATH_MAX, "no memory for a retention ring");
	if (r == NULL)
		return -ENOMEM;
	rc = open_file(&r->fd, path, 0, FILE_LOCK_MS, &st, message);
	if (rc == 0) {
		rc = adopt(r, path, NULL, st.st_size, message);
		if (rc == 0) {
			snprintf(message, PATH_MAX, "%.3000s is no retention ring", path);
			rc = -EINVAL;
		}
	}
	if (rc < 0) {
		retention_close(r);
		return rc;
	}
	*ring = r;
	return 0;
}

/* The directory of a file that is not there. @return 0 or errno */
static int
look_at_directory(const char *path, struct statfs *fs)
{
	char copy[PATH_MAX];
	const char *dir;

	snprintf(copy, sizeof(copy), "%s", path);
	dir = dirname(copy);
	return access(dir, W_OK | X_OK) < 0 || statfs(dir, fs) < 0 ? errno : 0;
}

int
retention_probe(
	const struct retention_config *c, struct retention_probe *to, char message[PATH_MAX])
{
	struct ring_header h;
	struct stat st = {0};
	struct statfs fs;
	int fd, rc, error;

	rc = open_file(&fd, c->path, 0, 0, &st, message);
	if (rc < 0 && rc != -ENOENT)
		goto out;
	if (rc == 0)
		error = fstatfs(fd, &fs) < 0 ? errno : 0;
	else
		error = look_at_directory(c->path, &fs);
	rc = check_file_system(c->path, error, &fs, message);
	if (rc == 0)
		rc = read_header(fd, c->path, c, st.st_size, &h, message);
	*to = (struct retention_probe){.adopts = rc == 1, .free = UINT64_MAX};
	if (rc == 0)
		rc = lay_out(&h, c, page_of(&fs), message);
	if (rc < 0)
		goto out;
	rc = 0;
	to->room = h.data_size;
	to->file = h.size;
	/* what was begun is begun anew */
	if (fs.f_blocks > 0)
		to->free = (uint64_t)fs.f_bavail * fs.f_bsize + (uint64_t)st.st_blocks * 512;
out:
	if (fd >= 0)
		close(fd);
	return rc;
}

uint64_t
retention_producer(const struct retention *r)
{
	return r->header->producer;
}

void
retention_close(struct retention *r)
{
	if (r == NULL)
		return;
	if (r->map != NULL)
		munmap(r->map, r->size);
	if (r->fd >= 0)
		close(r->fd);
	free(r->taken);
	free(r->free_batch);
	free(r);
}

void
retention_memory(const struct retention *r, void **addr, uint64_t *size)
{
	*addr = r->map;
	*size = r->size;
}
