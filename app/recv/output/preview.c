/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "counter.h"
#include "io/own_file.h"
#include "log.h"
#include "monotonic_cond.h"
#include "output/preview.h"
#include "output/thread_priority.h"
#include "picture/figure.h"

LOG_REGISTER("preview", "preview");

#define UNIT	"photons"
#define TICK_MS 20 /* maximum delay until a filled frame is noticed */
/* maximum time that the next run waits for the last picture of the previous one */
#define PATIENCE_MS 250

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

struct preview {
	struct preview_config config;
	pthread_t thread;
	bool has_thread;
	struct geometry *geometry; /* of the projection; NULL: none */
	bool active;		   /* for preview_offer; written only while it is not called */
	struct projection projection;
	struct figure *figure; /* `figure` and `cells` belong to the thread */
	float *cells;
	pthread_mutex_t lock; /* protects the fields below and the ownership of the projection */
	pthread_cond_t changed;
	pid_t tid; /* 0: the thread has not started */
	bool quit;
	bool last;	 /* the last picture of an ended run must still be drawn */
	uint64_t run;	 /* number of the run, to detect that another one has begun */
	uint64_t drawn;	 /* frames in the maximum of the previous picture */
	uint64_t period; /* in ns */
	uint64_t due;	 /* time of the next request for a frame */
	uint64_t granted_at;
	bool complained; /* an error was logged in this run */
	char path[PATH_MAX];
	struct preview_status status;
};

/* A picture being drawn. */
struct job {
	uint64_t run;
	uint64_t frame;
	uint32_t count; /* strong pixels of the frame */
	uint64_t frames;
	char path[PATH_MAX];
};

/* Wait for a change, at most until `end`. Called with the lock held. */
static void
wait_until(struct preview *p, uint64_t end)
{
	const struct timespec t = {.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};

	pthread_cond_timedwait(&p->changed, &p->lock, &t);
}

static uint64_t
frames_of(const struct projection *p)
{
	return __atomic_load_n(&p->frames, __ATOMIC_RELAXED);
}

/* Advance the projection. Called with the lock held. @return true if there is something to draw */
static bool
is_due(struct preview *p)
{
	struct projection *projection = &p->projection;
	const uint64_t t = monotonic_ns();

	if (p->last)
		return frames_of(projection) != p->drawn;
	projection_grant(projection, (t - p->granted_at) * (PREVIEW_PIXELS_PER_S / 1e9),
		PREVIEW_PIXELS_PER_S);
	p->granted_at = t;
	if (projection_state(projection) == PROJECTION_SHOWN && t >= p->due)
		projection_want(projection);
	return projection_state(projection) == PROJECTION_FILLED;
}

/* Draw from copies. If the run ends and another begins meanwhile, the copies are discarded. */
static bool
draw(struct preview *p, const struct job *job)
{
	char text[64];
	bool valid, shown;

	snprintf(text, sizeof(text), "maximum of %" PRIu64 " kept frames", job->frames);
	projection_copy_maximum(&p->projection, p->cells);
	figure_draw(p->figure, 0, text, UNIT, p->cells);
	snprintf(text, sizeof(text), "frame %" PRIu64 ", strong pixel count %u", job->frame,
		job->count);
	/* if the run ended during a request, the previous frame stays in the figure */
	shown = projection_state(&p->projection) != PROJECTION_WANTED;
	projection_copy_shown(&p->projection, p->cells);
	pthread_mutex_lock(&p->lock);
	valid = p->run == job->run;
	if (valid) {
		projection_take(&p->projection);
		p->drawn = job->frames;
		p->due = monotonic_ns() + p->period;
		/* Frames that arrived while the run ended get another picture. */
		p->last = p->last && frames_of(&p->projection) != p->drawn;
		pthread_cond_broadcast(&p->changed);
	}
	pthread_mutex_unlock(&p->lock);
	if (valid && shown)
		figure_draw(p->figure, 1, text, UNIT, p->cells);
	return valid;
}

/* @return 0 or -errno */
static int
save(struct preview *p, const char *path)
{
	char part[PATH_MAX + 8];
	int ret;

	snprintf(part, sizeof(part), "%s.part", path);
	/* remove an existing file, because it might be a link to another file */
	(void)unlink(part);
	ret = figure_save(p->figure, part, DRAWING_FAST);
	if (ret == 0 && rename(part, path) < 0)
		ret = -errno;
	if (ret != 0)
		unlink(part);
	return ret;
}

/* Called with the lock held. */
static void
note(struct preview *p, const struct job *job, int error)
{
	struct preview_status *s = &p->status;

	if (error == 0) {
		snprintf(s->path, sizeof(s->path), "%s", job->path);
		s->sequence++;
		s->frame = job->frame;
		s->frames = job->frames;
		s->error[0] = '\0';
		return;
	}
	s->errors++;
	snprintf(s->error, sizeof(s->error), "cannot write %.*s: %s", PATH_MAX - 128, job->path,
		strerror(-error));
	if (!p->complained || p->run != job->run)
		LOG(WARNING, "%s; the run continues without preview\n", s->error);
	p->complained |= p->run == job->run;
}

static void *
preview_main(void *arg)
{
	struct preview *p = arg;
	struct job job;
	int error;

	pthread_mutex_lock(&p->lock);
	p->tid = gettid();
	if (!p->quit)
		thread_priority_lower(p->tid);
	while (!p->quit || p->last) {
		if (!p->active && !p->last) {
			pthread_cond_wait(&p->changed, &p->lock);
			continue;
		}
		if (!is_due(p)) {
			if (p->last) {
				p->last = false;
				pthread_cond_broadcast(&p->changed);
			} else {
				wait_until(p, monotonic_ns() + TICK_MS * NS_PER_MS);
			}
			continue;
		}
		job.run = p->run;
		job.frame = p->projection.shown_frame;
		job.count = p->projection.shown_count;
		job.frames = frames_of(&p->projection);
		snprintf(job.path, sizeof(job.path), "%s", p->path);
		pthread_mutex_unlock(&p->lock);
		if (draw(p, &job)) {
			error = save(p, job.path);
			pthread_mutex_lock(&p->lock);
			note(p, &job, error);
		} else {
			pthread_mutex_lock(&p->lock);
		}
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

struct preview *
preview_create(const struct preview_config *config)
{
	struct preview *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->config = *config;
	pthread_mutex_init(&p->lock, NULL);
	monotonic_cond_init(&p->changed);
	return p;
}

static void
free_memory(struct preview *p)
{
	figure_free(p->figure);
	p->figure = NULL;
	projection_free(&p->projection);
	free(p->cells);
	p->cells = NULL;
	free(p->geometry);
	p->geometry = NULL;
}

/* End the thread, after drawing the last picture of a run that has just ended. */
static void
stop(struct preview *p)
{
	preview_end(p);
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	/* from here on a thread may wait for the picture */
	if (p->tid != 0)
		thread_priority_raise(p->tid);
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->has_thread)
		pthread_join(p->thread, NULL);
	p->has_thread = false;
	p->quit = false;
	p->tid = 0;
	free_memory(p);
}

void
preview_destroy(struct preview *p)
{
	if (p == NULL)
		return;
	stop(p);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static bool
same_geometry(const struct geometry *a, const struct geometry *b)
{
	return a == b || (a != NULL && b != NULL && memcmp(a, b, sizeof(*a)) == 0);
}

/* Allocate memory and start the thread for the first run that has a preview, or this geometry. */
static int
prepare(struct preview *p, const struct geometry *g)
{
	const struct preview_config *c = &p->config;
	const struct panels *panels = &p->projection.panels;
	pthread_attr_t attr;
	int ret;

	if (p->has_thread && same_geometry(p->geometry, g))
		return 0;
	if (p->has_thread)
		stop(p);
	ret = projection_init(&p->projection, &c->geometry, &c->layout, c->value, g);
	if (ret == 0 && g != NULL) {
		p->geometry = malloc(sizeof(*g));
		ret = p->geometry != NULL ? 0 : -ENOMEM;
	}
	if (ret == 0 && g != NULL)
		memcpy(p->geometry, g, sizeof(*g));
	if (ret == 0)
		ret = figure_create(&p->figure, DRAWING_PNG, panels, 2, false);
	if (ret == 0)
		p->cells = malloc(panels_cells(panels) * sizeof(*p->cells));
	if (ret == 0 && p->cells == NULL)
		ret = -ENOMEM;
	if (ret != 0)
		goto fail;
	pthread_attr_init(&attr);
	if (c->cpus != NULL)
		pthread_attr_setaffinity_np(&attr, sizeof(*c->cpus), c->cpus);
	ret = -pthread_create(&p->thread, &attr, preview_main, p);
	pthread_attr_destroy(&attr);
	if (ret != 0)
		goto fail;
	pthread_setname_np(p->thread, "braggline-view");
	p->has_thread = true;
	return 0;

fail:
	free_memory(p);
	return ret;
}

int
preview_check(const char *path)
{
	static const char png[] = "\x89PNG\r\n\x1a\n";
	char head[sizeof(png) - 1];
	size_t n;
	FILE *f;

	f = own_file_read(path);
	/* any other error is that of the creation */
	if (f == NULL)
		return errno == EMEDIUMTYPE ? -EEXIST : 0;
	n = fread(head, 1, sizeof(head), f);
	fclose(f);
	return n == sizeof(head) && memcmp(head, png, n) == 0 ? 0 : -EEXIST;
}

int
preview_begin(struct preview *p, const char *path, double period, const struct geometry *g)
{
	const uint64_t end = monotonic_ns() + PATIENCE_MS * NS_PER_MS;
	int ret;

	preview_end(p);
	if (path == NULL)
		return 0;
	if (strlen(path) >= sizeof(p->path))
		return -ENAMETOOLONG;
	ret = preview_check(path);
	if (ret == 0)
		ret = prepare(p, g);
	if (ret != 0)
		return ret;
	pthread_mutex_lock(&p->lock);
	while (p->last && monotonic_ns() < end)
		wait_until(p, end);
	p->last = false;
	p->run++;
	p->drawn = 0;
	p->complained = false;
	p->period = period * NS_PER_S;
	p->due = p->granted_at = monotonic_ns();
	snprintf(p->path, sizeof(p->path), "%s", path);
	projection_reset(&p->projection);
	projection_grant(&p->projection, PREVIEW_PIXELS_PER_S, PREVIEW_PIXELS_PER_S);
	p->active = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void
preview_end(struct preview *p)
{
	pthread_mutex_lock(&p->lock);
	p->last |= p->active;
	p->active = false;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void
preview_offer(void *preview, const struct frame_record *record, const uint8_t *output)
{
	struct preview *p = preview;

	if (p->active)
		projection_add(&p->projection, record, output);
}

void
preview_get_status(struct preview *p, struct preview_status *status)
{
	const struct projection *projection = &p->projection;

	pthread_mutex_lock(&p->lock);
	*status = p->status;
	status->active = p->active;
	status->skipped = counter_get(&projection->skipped) + counter_get(&projection->raw);
	pthread_mutex_unlock(&p->lock);
}
