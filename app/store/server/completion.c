/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "arrow/names.h"
#include "clock.h"
#include "fail_point.h"
#include "io/directory.h"
#include "io/own_file.h"
#include "log.h"
#include "monotonic_cond.h"
#include "recovery/directory.h"
#include "server/completion.h"
#include "stream/source.h"

LOG_REGISTER("store.completion", "store");

#define NS_PER_MS 1000000ull
#define RETRY_MS  10000
#define NICE	  10
#define CHUNK	  (1u << 20)

#define REFUSED_MAX 16 /* maximum log messages about refused files at a start */

/* ioprio_set(2) has no header. This thread, best effort, the lowest of eight priorities. */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_LOWEST	   (2 << 13 | 7)

struct leftover {
	char *path;
	size_t dir; /* length of the directory part */
	uint64_t bytes;
	struct timespec written;
	uint64_t try_at; /* ns; 0: immediately */
};

struct store_completion {
	struct store_completion_config config;
	uint64_t begin_at; /* ns */
	pthread_t thread;
	pthread_mutex_t lock; /* protects all members below */
	pthread_cond_t changed;
	struct leftover *file; /* sorted, the oldest first */
	size_t nb;
	/* file that the thread works on, not in the list; path NULL: none */
	struct leftover current;
	struct store_claim *claims;
	struct store_completion_stats stats;
	bool closing;
	bool stop; /* atomic: abort the current file */
};

/* ---- list of files --------------------------------------------------------------------------- */

static int
by_age(const void *a, const void *b)
{
	const struct leftover *x = a, *y = b;

	if (x->written.tv_sec != y->written.tv_sec)
		return x->written.tv_sec < y->written.tv_sec ? -1 : 1;
	if (x->written.tv_nsec != y->written.tv_nsec)
		return x->written.tv_nsec < y->written.tv_nsec ? -1 : 1;
	return strcmp(x->path, y->path);
}

static int
add(struct store_completion *c, const struct leftover *f)
{
	struct leftover *more = realloc(c->file, (c->nb + 1) * sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	c->file = more;
	more[c->nb++] = *f;
	c->stats.files++;
	c->stats.bytes += f->bytes;
	return 0;
}

/* Record a folder or file that another user owns or could change. It is left unchanged. */
static void
refuse(struct store_completion *c, const char *message)
{
	if (c->stats.refused++ < REFUSED_MAX)
		LOG(WARNING, "skipped: %s\n", message);
	else if (c->stats.refused == REFUSED_MAX + 1)
		LOG(WARNING, "more files and folders are skipped, and not logged\n");
}

static bool
is_ours(struct store_completion *c, int folder, const char *name, const char *path)
{
	char message[PATH_MAX];
	const int fd = own_file_open(folder, name, O_RDONLY, 0);
	bool ours;

	if (fd == -ENOENT)
		return false;
	if (fd < 0)
		snprintf(message, sizeof(message), "%.3000s: %s", path, own_file_error(fd));
	ours = fd >= 0 && own_file_check(fd, path, OWN_FILE_OTHERS, message) == 0;
	if (!ours)
		refuse(c, message);
	if (fd >= 0)
		close(fd);
	return ours;
}

static int
list_file(struct store_completion *c, int folder, const char *dir, const char *name)
{
	struct leftover f = {.dir = strlen(dir)};
	char path[PATH_MAX];
	struct stat st;
	int ret;

	if (!arrow_name_is_part(name) || arrow_name_is_hidden(name) ||
		snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) ||
		!is_ours(c, folder, name, path) ||
		fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	f.path = strdup(path);
	f.bytes = st.st_size;
	f.written = st.st_mtim;
	ret = f.path != NULL ? add(c, &f) : -ENOMEM;
	if (ret < 0)
		free(f.path);
	return ret;
}

/* List the incomplete files of a run's directory. An unreadable or other directory has none. */
static int
list_run(struct store_completion *c, int root, const char *name)
{
	char path[PATH_MAX], message[PATH_MAX];
	const struct dirent *entry;
	struct stat st;
	DIR *dir;
	int fd, folder, ret = 0;

	/* an object that is no folder, such as a link to one, is not a run */
	if (fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISREG(st.st_mode) ||
		snprintf(path, sizeof(path), "%s/%s", c->config.root, name) >= (int)sizeof(path))
		return 0;
	folder = own_folder_open(path, OWN_FOLDER_RUN, message);
	if (folder < 0) {
		if (folder != -ENOENT)
			refuse(c, message);
		return 0;
	}
	fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd >= 0 ? fdopendir(fd) : NULL;
	while (dir != NULL && ret == 0 && (entry = directory_next(dir)) != NULL)
		ret = list_file(c, folder, path, entry->d_name);
	if (dir != NULL && ret == 0 && errno != 0) {
		snprintf(message, sizeof(message), "folder %.3000s: %s", path, strerror(errno));
		refuse(c, message);
	}
	if (dir != NULL)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	close(folder);
	return ret;
}

static int
list(struct store_completion *c)
{
	DIR *root = opendir(c->config.root);
	const struct dirent *entry;
	int ret = 0;

	if (root == NULL)
		return -errno;
	while (ret == 0 && (entry = directory_next(root)) != NULL) {
		if (entry->d_name[0] != '.')
			ret = list_run(c, dirfd(root), entry->d_name);
	}
	if (ret == 0 && errno != 0)
		ret = -errno;
	closedir(root);
	if (c->nb > 0)
		qsort(c->file, c->nb, sizeof(*c->file), by_age);
	return ret;
}

/* ---- thread ---------------------------------------------------------------------------------- */

static bool
is_in(const struct leftover *f, const char *dir)
{
	return strlen(dir) == f->dir && strncmp(f->path, dir, f->dir) == 0;
}

static bool
is_claimed(const struct store_completion *c, const struct leftover *f)
{
	const struct store_claim *claim;

	for (claim = c->claims; claim != NULL; claim = claim->next) {
		if (is_in(f, claim->dir))
			return true;
	}
	return false;
}

static void
drop(struct store_completion *c, size_t i)
{
	c->stats.files--;
	c->stats.bytes -= c->file[i].bytes;
	free(c->file[i].path);
	memmove(&c->file[i], &c->file[i + 1], (c->nb - i - 1) * sizeof(c->file[0]));
	c->nb--;
}

/* Release the lock and wait until a change or a time. */
static void
wait_until(struct store_completion *c, uint64_t ns)
{
	const struct timespec t = {ns / 1000000000, ns % 1000000000};

	pthread_cond_timedwait(&c->changed, &c->lock, &t);
}

/* @return true: `current` is the next file to work on. Call this with the lock held. */
static bool
take(struct store_completion *c)
{
	const uint64_t now = monotonic_ns();
	size_t i;

	for (i = 0; i < c->nb; i++) {
		if (c->file[i].try_at <= now && !is_claimed(c, &c->file[i]))
			break;
	}
	if (i == c->nb)
		return false;
	c->current = c->file[i];
	memmove(&c->file[i], &c->file[i + 1], (c->nb - i - 1) * sizeof(c->file[0]));
	c->nb--;
	__atomic_store_n(&c->stop, false, __ATOMIC_RELAXED);
	return true;
}

/*
 * Read the whole file with read(2) before recovery. If the disk cannot read it, the error is
 * reported and the file stays `.part`. The data stays in the page cache for the recovery.
 */
static int
read_through(struct store_completion *c, int folder, const char *name, int *fd)
{
	uint8_t *chunk;
	uint64_t at = 0;
	ssize_t n;
	int ret = 0;

	*fd = own_file_open(folder, name, O_RDONLY, 0);
	if (*fd < 0)
		return *fd;
	chunk = malloc(CHUNK);
	if (chunk == NULL)
		return -ENOMEM;
	(void)posix_fadvise(*fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	while (ret == 0 && (n = pread(*fd, chunk, CHUNK, at)) != 0) {
		if (n < 0 && errno != EINTR)
			ret = -errno;
		else if (n > 0)
			at += n;
		if (__atomic_load_n(&c->stop, __ATOMIC_RELAXED))
			ret = -ECANCELED;
	}
	free(chunk);
	return ret;
}

static int
complete_in(struct store_completion *c, int folder, const struct leftover *f,
	struct arrow_recovery *report)
{
	const char *name = f->path + f->dir + 1;
	char dir[PATH_MAX];
	int ret = 0, fd = -1;

	if (c->config.io == NULL)
		ret = read_through(c, folder, name, &fd);
	/* recovery refuses the other cases quickly */
	if (ret < 0 && ret != -ELOOP && ret != -EMEDIUMTYPE && ret != -EACCES) {
		report->state = ARROW_RECOVERY_FAILED;
		snprintf(report->message, sizeof(report->message), "cannot read it: %s",
			strerror(-ret));
	} else {
		FAIL_POINT("store.completing");
		snprintf(dir, sizeof(dir), "%.*s", (int)f->dir, f->path);
		ret = arrow_recover_in(c->config.io, folder, dir, name, &c->stop, report);
	}
	if (fd >= 0) {
		/* free the page cache: no other reader is expected */
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		close(fd);
	}
	return ret;
}

static int
complete(struct store_completion *c, const struct leftover *f, struct arrow_recovery *report)
{
	char dir[PATH_MAX], message[PATH_MAX];
	int ret, folder;

	*report = (struct arrow_recovery){0};
	snprintf(report->path, sizeof(report->path), "%s", f->path);
	snprintf(dir, sizeof(dir), "%.*s", (int)f->dir, f->path);
	/* the folder may have been replaced since it was listed */
	folder = own_folder_open(dir, OWN_FOLDER_RUN, message);
	if (folder < 0) {
		report->state = ARROW_RECOVERY_FAILED;
		snprintf(report->message, sizeof(report->message), "skipped: %s", message);
		return folder == -ENOENT ? folder : -EPERM;
	}
	ret = complete_in(c, folder, f, report);
	close(folder);
	return ret;
}

/* Record the result of the current file. Call this with the lock held. */
static void
account(struct store_completion *c, int ret, const struct arrow_recovery *report)
{
	struct leftover f = c->current;

	c->current.path = NULL;
	c->stats.files--;
	c->stats.bytes -= f.bytes;
	if (ret == -ECANCELED || ret == -EBUSY) {
		/* a lock may outlive its process (file_lock.h) */
		f.try_at = ret == -EBUSY ? monotonic_ns() + c->config.retry_ms * NS_PER_MS : 0;
		if (add(c, &f) == 0) {
			/* keep the list sorted by age */
			qsort(c->file, c->nb, sizeof(*c->file), by_age);
			return;
		}
	}
	if (ret == 0) {
		c->stats.completed++;
		LOG(NOTICE, "%s: %s (%" PRIu64 " incomplete files of %" PRIu64 " MiB remain)\n",
			report->path, report->message, c->stats.files, c->stats.bytes >> 20);
	} else if (ret != -ENOENT) {
		c->stats.failed++;
		c->stats.refused += ret == -EPERM || report->error == -EPERM;
		LOG(ERR, "%s stays incomplete: %s\n", f.path, report->message);
	}
	free(f.path);
}

static void
work(struct store_completion *c)
{
	struct arrow_recovery report;
	int ret;

	while (!c->closing && monotonic_ns() < c->begin_at)
		wait_until(c, c->begin_at);
	while (!c->closing && c->nb > 0) {
		if (!take(c)) {
			wait_until(c, monotonic_ns() + c->config.retry_ms * NS_PER_MS);
			continue;
		}
		pthread_mutex_unlock(&c->lock);
		ret = complete(c, &c->current, &report);
		pthread_mutex_lock(&c->lock);
		account(c, ret, &report);
		pthread_cond_broadcast(&c->changed);
	}
	if (!c->closing)
		LOG(NOTICE,
			"completed %" PRIu64 " incomplete files, %" PRIu64 " could not be "
			"completed\n",
			c->stats.completed, c->stats.failed);
}

static void *
completion_main(void *arg)
{
	struct store_completion *c = arg;

	if (c->config.enter != NULL)
		c->config.enter();
	/* serving has priority; if this is not permitted, the thread runs like the others */
	(void)setpriority(PRIO_PROCESS, gettid(), NICE);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_LOWEST);
	pthread_mutex_lock(&c->lock);
	work(c);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- interface ------------------------------------------------------------------------------- */

static void
free_all(struct store_completion *c)
{
	while (c->nb > 0)
		drop(c, c->nb - 1);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	free(c->file);
	free(c);
}

int
store_completion_open(
	struct store_completion **completion, const struct store_completion_config *config)
{
	struct store_completion *c = calloc(1, sizeof(*c));
	int ret;

	*completion = NULL;
	if (c == NULL)
		return -ENOMEM;
	c->config = *config;
	if (c->config.retry_ms == 0)
		c->config.retry_ms = RETRY_MS;
	pthread_mutex_init(&c->lock, NULL);
	monotonic_cond_init(&c->changed);
	ret = list(c);
	if (ret < 0 || c->nb == 0) {
		free_all(c);
		return ret;
	}
	LOG(NOTICE,
		"%" PRIu64 " incomplete files of %" PRIu64 " MiB found; those whose receivers do "
		"not connect within %" PRIu64 " ms will be completed\n",
		c->stats.files, c->stats.bytes >> 20, c->config.grace_ms);
	c->begin_at = monotonic_ns() + c->config.grace_ms * NS_PER_MS;
	ret = -pthread_create(&c->thread, NULL, completion_main, c);
	if (ret < 0) {
		free_all(c);
		return ret;
	}
	*completion = c;
	return 0;
}

void
store_completion_claim(struct store_completion *c, struct store_claim *claim, const char *dir)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	claim->dir = dir;
	claim->next = c->claims;
	c->claims = claim;
	/* the claimer recovers the file itself, with normal priority */
	while (c->current.path != NULL && is_in(&c->current, dir)) {
		__atomic_store_n(&c->stop, true, __ATOMIC_RELAXED);
		pthread_cond_wait(&c->changed, &c->lock);
	}
	pthread_mutex_unlock(&c->lock);
}

void
store_completion_release(struct store_completion *c, struct store_claim *claim, const char *run,
	const struct arrow_identity *identity)
{
	const struct arrow_identity of = identity != NULL
		? (struct arrow_identity){identity->receiver_id, identity->run,
			  identity->incarnation, NULL}
		: (struct arrow_identity){0};
	struct store_claim **at;
	size_t i;

	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	for (at = &c->claims; *at != claim; at = &(*at)->next)
		;
	*at = claim->next;
	/* the names may be those of new files from here on */
	for (i = c->nb; run != NULL && i-- > 0;) {
		if (is_in(&c->file[i], claim->dir) &&
			stream_source_matches(c->file[i].path, run, &of))
			drop(c, i);
	}
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

void
store_completion_stats_get(struct store_completion *c, struct store_completion_stats *stats)
{
	*stats = (struct store_completion_stats){0};
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	*stats = c->stats;
	pthread_mutex_unlock(&c->lock);
}

void
store_completion_stop(struct store_completion *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	__atomic_store_n(&c->stop, true, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
}

void
store_completion_close(struct store_completion *c)
{
	if (c == NULL)
		return;
	store_completion_stop(c);
	pthread_join(c->thread, NULL);
	free_all(c);
}
