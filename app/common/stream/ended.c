/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/direct_io.h"
#include "io/own_file.h"
#include "eal/process_cpus.h"
#include "stream/ended.h"

static int
make_path(char path[PATH_MAX], const char *dir, uint64_t incarnation)
{
	return snprintf(path, PATH_MAX, "%s/" STORE_ENDED "%016" PRIx64, dir, incarnation) <
			PATH_MAX
		? 0
		: -ENAMETOOLONG;
}

int
store_ended_read(const char *dir, uint64_t incarnation)
{
	char path[PATH_MAX];
	struct stat st;
	int ret = make_path(path, dir, incarnation);

	if (ret < 0)
		return ret;
	/* any object of this name marks the run as ended */
	if (lstat(path, &st) == 0)
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

int
store_ended_write(const char *dir, uint64_t incarnation)
{
	char path[PATH_MAX];
	int fd, ret = make_path(path, dir, incarnation);

	if (ret < 0)
		return ret;
	fd = own_file_open(AT_FDCWD, path, O_WRONLY | O_CREAT, OWN_FILE_MODE);
	if (fd < 0)
		return fd;
	ret = fsync(fd) < 0 ? -errno : 0;
	close(fd);
	return ret == 0 ? direct_io.sync_dir(path) : ret;
}

static void *
write_main(void *arg)
{
	struct store_ended *e = arg;

	if (e->has_thread)
		process_cpus_take();
	e->error = store_ended_write(e->dir, e->incarnation);
	__atomic_store_n(&e->over, true, __ATOMIC_RELEASE);
	return NULL;
}

void
store_ended_begin(struct store_ended *e, const char *dir, uint64_t incarnation)
{
	snprintf(e->dir, sizeof(e->dir), "%s", dir);
	e->incarnation = incarnation;
	e->begun = true;
	e->over = false;
	/* set before the thread reads it */
	e->has_thread = true;
	if (pthread_create(&e->thread, NULL, write_main, e) == 0)
		return;
	e->has_thread = false;
	(void)write_main(e);
}

bool
store_ended_end(struct store_ended *e)
{
	if (!e->begun || !__atomic_load_n(&e->over, __ATOMIC_ACQUIRE))
		return false;
	if (e->has_thread)
		pthread_join(e->thread, NULL);
	e->begun = false;
	return true;
}
