/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <rte_common.h>

#include "arrow/bitshuffle.h"
#include "clock.h"
#include "counter.h"
#include "geometry/file.h"
#include "io/own_file.h"
#include "live_file.h"
#include "monotonic_cond.h"
#include "output/live.h"
#include "output/thread_priority.h"

#define TICK_NS	   5000000ull
#define RING_BYTES (16ull << 20)
#define NS_PER_S   1000000000ull

/** Owner of the slot with the newest frame, and whether the writer's thread fills the next one. */
enum live_state {
	LIVE_SHOWN,  /**< the thread owns it */
	LIVE_WANTED, /**< the writer's thread fills the next slot with the next frame */
	LIVE_FILLED, /**< the thread owns it, and has not added it yet */
};

/** A sparse frame in the ring. The map of missing packets, row_ptr, col and value follow. */
struct ring_entry {
	uint64_t size; /**< bytes with this header; 0: the next entry is at the start of the ring */
	uint32_t nnz;
	uint32_t map; /**< bytes of the map; 0: no packet is missing */
};

struct live {
	struct live_config config;
	/* of the present file */
	struct live_file_head *head; /* NULL: none */
	char path[PATH_MAX];
	char *text; /* of its geometry; NULL: none */
	uint8_t *ring;
	uint64_t ring_size;
	bool active; /* for live_offer; written only while it is not called */
	/* written by one of the threads, read with atomic loads */
	enum live_state state; /* atomic */
	uint64_t put;	       /* bytes of the ring: writer's thread */
	uint64_t taken;	       /* thread */
	uint64_t spent;	       /* pixels: writer's thread */
	uint64_t granted;      /* thread */
	/* the thread */
	pthread_t thread;
	bool has_thread;
	uint64_t period, due, granted_at;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t changed;
	pid_t tid;
	bool running;	  /* a run is in progress */
	bool last;	  /* frames of a run that has ended must still be added */
	bool pause, quit; /* requests to the thread; it reads `pause` without the lock, too */
	bool idle;	  /* the thread accesses none of the data */
};

static uint64_t
align(uint64_t n)
{
	return RTE_ALIGN_CEIL(n, LIVE_FILE_ALIGN);
}

static void *
at(const struct live *l, uint64_t offset)
{
	return (uint8_t *)l->head + offset;
}

/* ---- the writer's thread ---- */

/** @return number of peaks that were copied */
static uint32_t
copy_peaks(const struct live *l, const struct frame_record *record, const uint8_t *output,
	struct live_file_peak *to)
{
	const struct gk_layout *layout = &l->config.layout;
	const struct gk_peak *peak = (const struct gk_peak *)(output + layout->peaks);
	uint32_t n = 0;

	if (l->config.nb_panels == 0 || record->peaks == FRAME_NO_SEARCH)
		return 0;
	for (uint32_t i = 0; i < RTE_MIN(record->peaks, layout->peaks_cap); i++) {
		if (peak[i].panel >= l->config.nb_panels || n == LIVE_FILE_PEAKS)
			continue;
		to[n].col = l->config.panels[peak[i].panel].fs + peak[i].fs;
		to[n].row = l->config.panels[peak[i].panel].ss + peak[i].ss;
		to[n].intensity = peak[i].intensity;
		to[n++].snr = peak[i].snr;
	}
	return n;
}

/** Copy the pixels, those of a chunk decompressed; none has a value if it is damaged. */
static void
copy_pixels(
	const struct live *l, const struct frame_record *record, const uint8_t *output, uint8_t *to)
{
	const struct gk_layout *layout = &l->config.layout;
	const struct gk_geometry *g = &l->config.geometry;
	uint64_t values = gk_pixels(g);
	int16_t *photons = (int16_t *)(to + layout->value);

	if (record->chunk_bytes > 0) {
		/* only the bits count */
		if (bitshuffle_decompress(output + layout->raw, record->chunk_bytes,
			    (uint16_t *)photons, values) < 0)
			for (uint64_t i = 0; i < values; i++)
				photons[i] = INT16_MIN;
		return;
	}

	if (record->kind == GK_KIND_CSR) {
		values = record->nnz;
		memcpy(to + layout->row_ptr, output + layout->row_ptr,
			(gk_rows(g) + 1) * sizeof(uint32_t));
		memcpy(to + layout->col, output + layout->col, values * sizeof(uint16_t));
	}
	memcpy(to + layout->value, output + layout->value, values * layout->value_size);
}

/** Copy a frame into the next slot. */
static void
show(struct live *l, const struct frame_record *record, const uint8_t *output)
{
	const uint64_t sequence = l->head->sequence + 1;
	uint8_t *slot = at(l, l->head->slot[sequence % LIVE_FILE_SLOTS]);
	struct live_file_frame *f = (struct live_file_frame *)slot;

	__atomic_store_n(&f->begin, sequence, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	f->frame = record->frame;
	f->bunch_id = record->bunch_id;
	f->receive_time = record->receive_time;
	f->sum = record->sum;
	f->kind = record->kind;
	f->nnz = record->nnz;
	f->strong_count = record->strong_count;
	f->saturated = record->saturated;
	f->invalid = record->invalid;
	f->verdict = record->verdict;
	f->flags = record->flags;
	f->veto_version = record->veto_version;
	f->pedestal_version = record->pedestal_version;
	f->peaks = record->peaks;
	memcpy(f->missing_map, record->missing_map, sizeof(f->missing_map));
	f->nb_peaks = copy_peaks(l, record, output, f->peak);
	copy_pixels(l, record, output, slot + LIVE_FILE_DATA);
	__atomic_store_n(&f->end, sequence, __ATOMIC_RELEASE);
	__atomic_store_n(&l->head->sequence, sequence, __ATOMIC_RELEASE);
	__atomic_store_n(&l->state, LIVE_FILLED, __ATOMIC_RELEASE);
}

static uint8_t *
append(uint8_t *to, const void *from, size_t size)
{
	memcpy(to, from, size);
	return to + RTE_ALIGN_CEIL(size, sizeof(uint64_t));
}

/** Copy a sparse frame into the ring. @return false: there is no room, or no grant */
static bool
push(struct live *l, const struct frame_record *record, const uint8_t *output)
{
	const struct gk_layout *layout = &l->config.layout;
	const uint32_t rows = gk_rows(&l->config.geometry);
	const uint32_t map = record->flags & FRAME_FLAG_INCOMPLETE
		? RTE_ALIGN_CEIL(l->config.geometry.tiles, 8) / 8
		: 0;
	const uint64_t size = sizeof(struct ring_entry) + RTE_ALIGN_CEIL(map, 8) +
		RTE_ALIGN_CEIL((rows + 1) * sizeof(uint32_t), 8) +
		RTE_ALIGN_CEIL(record->nnz * sizeof(uint16_t), 8) +
		RTE_ALIGN_CEIL((uint64_t)record->nnz * layout->value_size, 8);
	uint64_t to = l->put % l->ring_size, skip = 0;
	const struct ring_entry entry = {size, record->nnz, map};
	uint8_t *p;

	if (l->spent + record->nnz + rows > __atomic_load_n(&l->granted, __ATOMIC_RELAXED))
		return false;
	if (to + size > l->ring_size)
		skip = l->ring_size - to;
	if (l->put + skip + size - __atomic_load_n(&l->taken, __ATOMIC_ACQUIRE) > l->ring_size)
		return false;
	if (skip > 0) {
		((struct ring_entry *)(l->ring + to))->size = 0;
		to = 0;
	}
	p = append(l->ring + to, &entry, sizeof(entry));
	p = append(p, record->missing_map, map);
	p = append(p, output + layout->row_ptr, (rows + 1) * sizeof(uint32_t));
	p = append(p, output + layout->col, record->nnz * sizeof(uint16_t));
	append(p, output + layout->value, (uint64_t)record->nnz * layout->value_size);
	counter_add(&l->spent, record->nnz + rows);
	__atomic_store_n(&l->put, l->put + skip + size, __ATOMIC_RELEASE);
	return true;
}

void
live_offer(struct live *l, const struct frame_record *record, const uint8_t *output)
{
	bool used = false, wanted;

	if (!l->active)
		return;
	if (record->kind != GK_KIND_CSR && record->kind != GK_KIND_IMAGE) {
		counter_add(&l->head->skipped, 1);
		return;
	}
	if (record->kind == GK_KIND_CSR && record->nnz > l->config.layout.nnz_cap)
		return;
	wanted = __atomic_load_n(&l->state, __ATOMIC_ACQUIRE) == LIVE_WANTED;
	if (record->kind == GK_KIND_CSR)
		used = push(l, record, output);
	if (wanted)
		show(l, record, output);
	if (!used && (record->kind == GK_KIND_CSR || !wanted))
		counter_add(&l->head->skipped, 1);
}

/* ---- the thread ---- */

/** Add a value to maximum and sum of a pixel. NaN is none. */
static inline void
add_value(float *maximum, double *sum, float v)
{
	const double total = *sum + v;

	if (v != v)
		return;
	if (v > *maximum)
		__atomic_store(maximum, &v, __ATOMIC_RELAXED);
	__atomic_store(sum, &total, __ATOMIC_RELAXED);
}

static inline float
value_at(const struct live *l, const void *values, uint64_t i)
{
	const int16_t v = l->config.value == GK_VALUE_I16 ? ((const int16_t *)values)[i] : 0;

	if (l->config.value != GK_VALUE_I16)
		return ((const float *)values)[i];
	return v == INT16_MIN ? NAN : v == INT16_MAX ? INFINITY : v;
}

static void
add_missing(struct live *l, const uint8_t *map)
{
	for (uint32_t i = 0; i < l->config.geometry.tiles; i++)
		if (map[i / 8] & 1u << i % 8)
			__atomic_store_n(&l->head->missing_frames[i],
				l->head->missing_frames[i] + 1, __ATOMIC_RELAXED);
}

/**
 * Add the sparse frame at `entry`. Its content was written by a gang and is checked: pixels must be
 * in the raster, and rows in the frame.
 */
static void
add_sparse(struct live *l, const struct ring_entry *entry)
{
	const uint32_t rows = gk_rows(&l->config.geometry), cols = l->config.geometry.cols;
	const uint8_t *p = (const uint8_t *)(entry + 1);
	const uint32_t *row_ptr;
	const uint16_t *col;
	float *maximum = at(l, l->head->maximum);
	double *sum = at(l, l->head->sum);
	uint32_t i = 0;

	if (entry->map > 0)
		add_missing(l, p);
	p += RTE_ALIGN_CEIL(entry->map, 8);
	row_ptr = (const uint32_t *)p;
	p += RTE_ALIGN_CEIL((rows + 1) * sizeof(uint32_t), 8);
	col = (const uint16_t *)p;
	p += RTE_ALIGN_CEIL(entry->nnz * sizeof(uint16_t), 8);
	for (uint32_t y = 0; y < rows; y++, maximum += cols, sum += cols)
		for (const uint32_t end = RTE_MIN(row_ptr[y + 1], entry->nnz); i < end; i++)
			if (col[i] < cols)
				add_value(&maximum[col[i]], &sum[col[i]], value_at(l, p, i));
	counter_add(&l->head->sparse, 1);
	counter_add(&l->head->frames, 1);
}

/** Add the newest frame, if it is a full image. */
static void
add_shown(struct live *l)
{
	const uint8_t *slot = at(l, l->head->slot[l->head->sequence % LIVE_FILE_SLOTS]);
	const struct live_file_frame *f = (const struct live_file_frame *)slot;
	const void *values = slot + LIVE_FILE_DATA + l->config.layout.value;
	float *maximum = at(l, l->head->maximum);
	double *sum = at(l, l->head->sum);

	if (f->kind != GK_KIND_IMAGE)
		return;
	for (uint64_t i = 0; i < gk_pixels(&l->config.geometry); i++)
		add_value(&maximum[i], &sum[i], value_at(l, values, i));
	add_missing(l, f->missing_map);
	counter_add(&l->head->frames, 1);
}

/** @return true if there was something to do */
static bool
step(struct live *l)
{
	uint64_t t = monotonic_ns(), most;
	bool done = false;

	most = __atomic_load_n(&l->spent, __ATOMIC_RELAXED) + LIVE_PIXELS_PER_S;
	__atomic_store_n(&l->granted,
		RTE_MIN(l->granted + (uint64_t)((t - l->granted_at) * (LIVE_PIXELS_PER_S / 1e9)),
			most),
		__ATOMIC_RELAXED);
	l->granted_at = t;
	while (l->taken != __atomic_load_n(&l->put, __ATOMIC_ACQUIRE) &&
		!__atomic_load_n(&l->pause, __ATOMIC_RELAXED)) {
		const struct ring_entry *entry =
			(const struct ring_entry *)(l->ring + l->taken % l->ring_size);
		const uint64_t size =
			entry->size > 0 ? entry->size : l->ring_size - l->taken % l->ring_size;

		if (entry->size > 0)
			add_sparse(l, entry);
		__atomic_store_n(&l->taken, l->taken + size, __ATOMIC_RELEASE);
		done = true;
	}
	if (__atomic_load_n(&l->state, __ATOMIC_ACQUIRE) == LIVE_FILLED) {
		add_shown(l);
		__atomic_store_n(&l->state, LIVE_SHOWN, __ATOMIC_RELAXED);
		done = true;
	}
	t = monotonic_ns();
	if (__atomic_load_n(&l->state, __ATOMIC_RELAXED) == LIVE_SHOWN && t >= l->due) {
		l->due = RTE_MAX(l->due + l->period, t);
		__atomic_store_n(&l->state, LIVE_WANTED, __ATOMIC_RELEASE);
	}
	return done;
}

static void *
live_main(void *arg)
{
	struct live *l = arg;
	struct timespec t;
	uint64_t end;
	bool done;

	pthread_mutex_lock(&l->lock);
	l->tid = gettid();
	thread_priority_lower(l->tid);
	while (!l->quit) {
		if (l->pause || (!l->running && !l->last)) {
			l->idle = true;
			pthread_cond_broadcast(&l->changed);
			pthread_cond_wait(&l->changed, &l->lock);
			continue;
		}
		l->idle = false;
		pthread_mutex_unlock(&l->lock);
		done = step(l);
		pthread_mutex_lock(&l->lock);
		if (done || l->pause || l->quit)
			continue;
		if (!l->running) {
			l->last = false;
			continue;
		}
		end = monotonic_ns() + RTE_MIN(TICK_NS, l->period / 4);
		t = (struct timespec){.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};
		pthread_cond_timedwait(&l->changed, &l->lock, &t);
	}
	l->idle = true;
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- control threads ---- */

struct live *
live_create(const struct live_config *config)
{
	struct live *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->config = *config;
	pthread_mutex_init(&l->lock, NULL);
	monotonic_cond_init(&l->changed);
	return l;
}

/** Stop the thread between two frames. It continues when `pause` is false. Called with the lock. */
static void
pause_thread(struct live *l)
{
	const pid_t tid = l->tid; /* 0: the thread starts, and then lowers its priority itself */

	if (!l->has_thread)
		return;
	__atomic_store_n(&l->pause, true, __ATOMIC_RELAXED);
	if (tid != 0)
		thread_priority_raise(tid);
	pthread_cond_broadcast(&l->changed);
	while (!l->idle)
		pthread_cond_wait(&l->changed, &l->lock);
	if (tid != 0)
		thread_priority_lower(tid);
}

/** Remove the file, if it is still this process's. */
static void
remove_file(struct live *l)
{
	if (l->head == NULL)
		return;
	unlink(l->path);
	munmap(l->head, l->head->size);
	l->head = NULL;
	free(l->text);
	l->text = NULL;
	free(l->ring);
	l->ring = NULL;
	l->path[0] = '\0';
}

void
live_destroy(struct live *l)
{
	if (l == NULL)
		return;
	live_end(l);
	pthread_mutex_lock(&l->lock);
	pause_thread(l);
	l->quit = true;
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	if (l->has_thread)
		pthread_join(l->thread, NULL);
	remove_file(l);
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int
live_check(const char *path)
{
	char magic[sizeof(LIVE_FILE_MAGIC) - 1];
	FILE *f = own_file_read(path);
	size_t n;

	if (f == NULL)
		return errno == EMEDIUMTYPE ? -EEXIST : 0;
	n = fread(magic, 1, sizeof(magic), f);
	fclose(f);
	return n == sizeof(magic) && memcmp(magic, LIVE_FILE_MAGIC, n) == 0 ? 0 : -EEXIST;
}

/** Set the members that do not change while the file exists. */
static void
lay_out(const struct live *l, const char *text, struct live_file_head *h)
{
	const struct gk_layout *layout = &l->config.layout;
	const struct gk_geometry *g = &l->config.geometry;
	const uint64_t pixels = gk_pixels(g), slot = align(LIVE_FILE_DATA + layout->peaks);

	memcpy(h->magic, LIVE_FILE_MAGIC, sizeof(h->magic));
	h->rows = gk_rows(g);
	h->cols = g->cols;
	h->packets = g->tiles;
	h->packet_rows = g->tile_rows;
	h->value = l->config.value;
	h->nnz_cap = layout->nnz_cap;
	h->row_ptr = layout->row_ptr;
	h->col = layout->col;
	h->values = layout->value;
	h->slot[0] = align(sizeof(*h));
	h->slot[1] = h->slot[0] + slot;
	h->maximum = h->slot[1] + slot;
	h->sum = h->maximum + align(pixels * sizeof(float));
	h->mask = h->sum + align(pixels * sizeof(double));
	h->geometry = h->mask + align(pixels);
	h->geometry_size = text != NULL ? strlen(text) : 0;
	h->size = h->geometry + align(h->geometry_size);
}

/** Create the file as PATH.part. All of its memory is allocated, so that no access fails later. */
static int
create_file(const char *part, const struct live_file_head *h, struct live_file_head **map)
{
	int fd, ret = 0;

	/* remove an existing file, because it might be a link to another file */
	(void)unlink(part);
	fd = own_file_open(AT_FDCWD, part, O_RDWR | O_CREAT | O_EXCL, OWN_FILE_MODE);
	if (fd < 0)
		return fd;
	ret = -posix_fallocate(fd, 0, h->size);
	if (ret == 0) {
		*map = mmap(
			NULL, h->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
		if (*map == MAP_FAILED)
			ret = -errno;
	}
	close(fd);
	if (ret != 0)
		unlink(part);
	return ret;
}

static int
open_file(struct live *l, const char *path, char *text)
{
	struct live_file_head h = {.size = 0}, *map = NULL;
	const uint64_t largest = l->config.layout.peaks + 4096;
	char part[PATH_MAX + 8];
	uint8_t *ring;
	int ret;

	lay_out(l, text, &h);
	if (getrandom(&h.id, sizeof(h.id), 0) != sizeof(h.id))
		return -errno;
	l->ring_size = RTE_MAX(RING_BYTES, RTE_ALIGN_CEIL(2 * largest, 4096));
	ring = malloc(l->ring_size);
	if (ring == NULL)
		return -ENOMEM;
	snprintf(part, sizeof(part), "%s.part", path);
	ret = create_file(part, &h, &map);
	if (ret != 0) {
		free(ring);
		return ret;
	}
	memcpy(map, &h, sizeof(h));
	if (text != NULL)
		memcpy((uint8_t *)map + h.geometry, text, h.geometry_size);
	l->head = map;
	l->ring = ring;
	l->text = text;
	snprintf(l->path, sizeof(l->path), "%s", path);
	return 0;
}

static int
start_thread(struct live *l)
{
	pthread_attr_t attr;
	int ret;

	if (l->has_thread)
		return 0;
	pthread_attr_init(&attr);
	if (l->config.cpus != NULL)
		pthread_attr_setaffinity_np(&attr, sizeof(*l->config.cpus), l->config.cpus);
	ret = -pthread_create(&l->thread, &attr, live_main, l);
	pthread_attr_destroy(&attr);
	if (ret != 0)
		return ret;
	pthread_setname_np(l->thread, "braggline-live");
	l->has_thread = true;
	return 0;
}

/** Discard the contents of the previous run. */
static void
reset(struct live *l, const struct live_run *run)
{
	struct live_file_head *h = l->head;
	const uint64_t pixels = gk_pixels(&l->config.geometry);
	float *maximum = at(l, h->maximum);
	uint8_t *mask = at(l, h->mask);

	__atomic_store_n(&h->generation, h->generation | 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	h->frames = h->sparse = h->skipped = 0;
	h->csr_threshold = run->csr_threshold;
	memset(h->run, 0, sizeof(h->run));
	snprintf(h->run, sizeof(h->run), "%s", run->name);
	memset(h->missing_frames, 0, sizeof(h->missing_frames));
	for (uint32_t i = 0; i < LIVE_FILE_SLOTS; i++) {
		struct live_file_frame *f = at(l, h->slot[i]);

		f->begin = f->end = 0;
	}
	for (uint64_t i = 0; i < pixels; i++) {
		maximum[i] = -INFINITY;
		mask[i] = run->photons_per_adu != NULL && isnan(run->photons_per_adu[i]);
	}
	memset(at(l, h->sum), 0, pixels * sizeof(double));
	h->active = 1;
	__atomic_store_n(&h->generation, h->generation + 1, __ATOMIC_RELEASE);
	l->put = l->taken = l->spent = 0;
	l->granted = LIVE_PIXELS_PER_S;
	l->period = (uint64_t)(run->period * NS_PER_S);
	l->due = l->granted_at = monotonic_ns();
	l->state = LIVE_WANTED;
}

/** Keep the file of the previous run, or create another one. */
static int
prepare(struct live *l, const struct live_run *run)
{
	char *text = NULL;
	char part[PATH_MAX + 8];
	int ret;

	if (run->geometry != NULL) {
		text = geometry_text(run->geometry);
		if (text == NULL)
			return -ENOMEM;
	}
	if (l->head != NULL && strcmp(l->path, run->path) == 0 &&
		strcmp(l->text != NULL ? l->text : "", text != NULL ? text : "") == 0 &&
		access(l->path, F_OK) == 0) {
		free(text);
		reset(l, run);
		return 0;
	}
	remove_file(l);
	ret = open_file(l, run->path, text);
	if (ret != 0) {
		free(text);
		return ret;
	}
	reset(l, run);
	/* readers see only complete files */
	snprintf(part, sizeof(part), "%s.part", run->path);
	if (rename(part, run->path) != 0) {
		ret = -errno;
		unlink(part);
		remove_file(l);
	}
	return ret;
}

int
live_begin(struct live *l, const struct live_run *run)
{
	int ret;

	live_end(l);
	if (run->path == NULL)
		return 0;
	if (strlen(run->path) >= sizeof(l->path))
		return -ENAMETOOLONG;
	ret = live_check(run->path);
	if (ret != 0)
		return ret;
	pthread_mutex_lock(&l->lock);
	pause_thread(l);
	l->last = false;
	ret = prepare(l, run);
	if (ret == 0)
		ret = start_thread(l);
	l->running = l->active = ret == 0;
	__atomic_store_n(&l->pause, false, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
	return ret;
}

void
live_end(struct live *l)
{
	pthread_mutex_lock(&l->lock);
	l->last |= l->running;
	l->running = l->active = false;
	if (l->head != NULL)
		__atomic_store_n(&l->head->active, 0, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

void
live_get_status(struct live *l, struct live_status *status)
{
	memset(status, 0, sizeof(*status));
	pthread_mutex_lock(&l->lock);
	if (l->head != NULL) {
		snprintf(status->path, sizeof(status->path), "%s", l->path);
		status->sequence = counter_get(&l->head->sequence);
		status->frames = counter_get(&l->head->frames);
		status->skipped = counter_get(&l->head->skipped);
	}
	pthread_mutex_unlock(&l->lock);
}
