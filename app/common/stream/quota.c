/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow/names.h"
#include "counter.h"
#include "io/directory.h"
#include "stream/ended.h"
#include "stream/writer.h"

static bool
is_marker(const char *name)
{
	return strncmp(name, STORE_ENDED, strlen(STORE_ENDED)) == 0;
}

/*
 * Size of a file for the quota. Incomplete files do not count, since their allocated space is not
 * final. A marker has no bytes, but takes a block of its folder and an inode, and there may be as
 * many as incarnations.
 */
static uint64_t
measure_file(int run, const char *name)
{
	struct stat st;

	if (is_marker(name))
		return XFER_BLOCK;
	if (!arrow_name_is_complete(name) && !arrow_name_is_quarantine(name))
		return 0;
	return fstatat(run, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_size : 0;
}

/*
 * Measure a directory of a run. An ended incarnation takes an inode for its marker, so a directory
 * with several markers counts as several runs.
 * @param bytes  NULL: only the runs are counted
 * @return 0; -errno: the directory cannot be read to its end
 */
static int
measure_run(int root, const char *name, uint64_t *bytes, uint64_t *runs)
{
	const int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	uint64_t markers = 0;
	int ret;

	if (dir == NULL) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while ((entry = directory_next(dir)) != NULL) {
		if (bytes != NULL)
			*bytes += measure_file(fd, entry->d_name);
		markers += is_marker(entry->d_name);
	}
	ret = -errno;
	closedir(dir);
	*runs += markers > 1 ? markers : 1;
	return ret;
}

/* Whether a directory's name is RUN-RECEIVER_ID-ID. */
static bool
is_of(const char *name, uint64_t receiver_id)
{
	const size_t length = strlen(name), end = 2 * (1 + 16);
	char digits[1 + 16 + 2];

	snprintf(digits, sizeof(digits), "-%016" PRIx64 "-", receiver_id);
	return length > end && strncmp(name + length - end, digits, strlen(digits)) == 0;
}

int
stream_quota_measure(const char *root, uint64_t receiver_id, uint64_t *bytes, uint64_t *runs)
{
	const struct dirent *entry;
	DIR *dir = opendir(root);
	int ret = 0;

	*runs = 0;
	if (bytes != NULL)
		*bytes = 0;
	if (dir == NULL)
		return -errno;
	while (ret == 0 && (entry = directory_next(dir)) != NULL) {
		if (is_of(entry->d_name, receiver_id))
			ret = measure_run(dirfd(dir), entry->d_name, bytes, runs);
	}
	if (ret == 0)
		ret = -errno;
	closedir(dir);
	return ret;
}

void
stream_quota_apply(struct stream_quota *q, uint64_t bytes, uint64_t closed)
{
	/* the measurement may not include files that were completed meanwhile */
	counter_set(&q->used, bytes + (q->closed - closed) + q->open);
}

/* A measurement by a thread. Thread and owner share it; the last one to release it frees it. */
struct stream_quota_job {
	enum job_state {
		JOB_RUNNING,
		JOB_DONE,
		JOB_ABANDONED,
	} state; /* atomic */
	char root[PATH_MAX];
	uint64_t receiver_id;
	uint64_t closed; /* quota.closed when it began */
	void (*enter)(void);
	uint64_t bytes;
	int error;
};

static void *
measure_main(void *arg)
{
	struct stream_quota_job *j = arg;
	uint64_t runs;

	if (j->enter != NULL)
		j->enter();
	j->error = stream_quota_measure(j->root, j->receiver_id, &j->bytes, &runs);
	if (__atomic_exchange_n(&j->state, JOB_DONE, __ATOMIC_ACQ_REL) == JOB_ABANDONED)
		free(j);
	return NULL;
}

static void
begin_job(struct stream_quota *q, void (*enter)(void))
{
	struct stream_quota_job *j = calloc(1, sizeof(*j));
	pthread_t thread;

	if (j == NULL)
		return;
	snprintf(j->root, sizeof(j->root), "%s", q->root);
	j->receiver_id = q->receiver_id;
	j->closed = q->closed;
	j->enter = enter;
	if (pthread_create(&thread, NULL, measure_main, j) != 0) {
		free(j);
		return;
	}
	pthread_detach(thread);
	q->job = j;
}

void
stream_quota_abandon(struct stream_quota *q)
{
	struct stream_quota_job *j = q->job;

	q->job = NULL;
	if (j != NULL &&
		__atomic_exchange_n(&j->state, JOB_ABANDONED, __ATOMIC_ACQ_REL) == JOB_DONE)
		free(j);
}

void
stream_quota_renew(struct stream_quota *q, void (*enter)(void))
{
	struct stream_quota_job *j = q->job;
	uint64_t bytes, runs;

	if (!q->in_thread) {
		if (stream_quota_measure(q->root, q->receiver_id, &bytes, &runs) == 0)
			stream_quota_apply(q, bytes, q->closed);
	} else if (j == NULL) {
		begin_job(q, enter);
	} else if (__atomic_load_n(&j->state, __ATOMIC_ACQUIRE) == JOB_DONE) {
		if (j->error == 0)
			stream_quota_apply(q, j->bytes, j->closed);
		stream_quota_abandon(q);
	}
}
