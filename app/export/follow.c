/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <linux/ioprio.h>
#include <signal.h>
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
#include "escaped_text.h"
#include "follow.h"
#include "follow_run.h"
#include "h5_driver.h"
#include "io/directory.h"

#define LIST_SECONDS  1
#define RETRY_SECONDS 10 /* delay after an error, doubled after each further one */
#define RETRY_MAX     600
#define IDLE_MS	      100
#define LOWEST_NICE   19 /* lowest priority of setpriority(2) */

/*
 * The kernel writes back dirty pages regardless of the priority of the process. While disks are
 * busy, a follower in the background therefore works only 1/20 of the time.
 */
#define PRESSURE_MAX  25 /* percent of the time in which some task waits for a disk */
#define PRESSURE_IDLE 19 /* length of a pause, relative to the work before it */
#define PAUSE_MAX     5	 /* seconds */

/* The files of a run in a directory. In a directory of a store, all files are of one run. */
struct group {
	char *path; /* store: the directory; else the path of the files without the set number */
	char *output;
	char **stem;
	size_t nb_stems, nb_added;
	bool wanted; /* the group is exported, see is_exported() */
	bool ended;  /* the export is complete, unless further files appear */
	bool failed;
	bool incomplete; /* batches were left out */
	double retry_at; /* time of the next attempt after an error; 0: no error */
	double retry_seconds;
	struct follow_run *run;
};

struct follower {
	const struct options *o;
	struct group *group;
	size_t nb;
	bool first;    /* the first listing */
	bool unlisted; /* this listing did not reach the end of a directory */
	bool told;     /* nor did the listing before, and an error was printed */
	time_t started;
};

static volatile sig_atomic_t stopping;

static void
on_signal(int number)
{
	if (stopping != 0)
		export_stop(number);
	stopping = number;
}

static double
now(void)
{
	return monotonic_ns() * 1e-9;
}

static struct group *
find_group(struct follower *f, const char *path, const char *output)
{
	struct group *more;
	size_t i;

	for (i = 0; i < f->nb; i++)
		if (strcmp(f->group[i].path, path) == 0)
			return &f->group[i];
	more = realloc(f->group, (f->nb + 1) * sizeof(*more));
	if (more == NULL)
		return NULL;
	f->group = more;
	more[f->nb] = (struct group){.path = strdup(path), .output = strdup(output)};
	if (more[f->nb].path == NULL || more[f->nb].output == NULL) {
		free(more[f->nb].path);
		free(more[f->nb].output);
		return NULL;
	}
	return &more[f->nb++];
}

/* Adds a stem unless it is in the list. @return 1: added; 0: it was there; -ENOMEM */
static int
add_stem(struct group *g, const char *stem)
{
	char **more;
	size_t i;

	for (i = 0; i < g->nb_stems; i++)
		if (strcmp(g->stem[i], stem) == 0)
			return 0;
	more = realloc(g->stem, (g->nb_stems + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	g->stem = more;
	more[g->nb_stems] = strdup(stem);
	if (more[g->nb_stems] == NULL)
		return -ENOMEM;
	g->nb_stems++;
	return 1;
}

/* Directory of the HDF5 files of a directory of Arrow files. */
static void
choose_output(const struct follower *f, const char *dir, bool of_store, char output[PATH_MAX])
{
	const char *slash = strrchr(dir, '/');

	if (f->o->output_given && of_store)
		snprintf(output, PATH_MAX, "%s/%s", f->o->output, slash != NULL ? slash + 1 : dir);
	else
		snprintf(output, PATH_MAX, "%s", f->o->output_given ? f->o->output : dir);
}

/* Complains about a directory that cannot be opened or read. @return -EINVAL */
static int
fail_list(const char *dir)
{
	return export_complain("%s: %s", dir, strerror(errno));
}

/*
 * Finds the time of the last change of the HDF5 files in a directory.
 * @param newest  out; 0: there are none
 * @return 0; -EINVAL: printed
 */
static int
exported_at(const char *dir, time_t *newest)
{
	char path[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	DIR *d = opendir(dir);
	int ret;

	*newest = 0;
	if (d == NULL)
		return errno == ENOENT ? 0 : fail_list(dir);
	while ((entry = directory_next(d)) != NULL) {
		const size_t length = strlen(entry->d_name);

		if (length < 3 || strcmp(entry->d_name + length - 3, ".h5") != 0 ||
			snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >=
				(int)sizeof(path))
			continue;
		if (stat(path, &st) == 0 && st.st_mtime > *newest)
			*newest = st.st_mtime;
	}
	ret = errno == 0 ? 0 : fail_list(dir);
	closedir(d);
	return ret;
}

/*
 * Whether a follower in the background exports files that existed when it started: files that are
 * being written, files that have changed since then, also by the parent process, and files whose
 * export did not end.
 * @return 1: yes; 0: no; -EINVAL: printed
 */
static int
is_exported(const struct follower *f, const char *stem, const char *output)
{
	char path[PATH_MAX];
	time_t exported;
	struct stat st;
	const int ret = exported_at(output, &exported);

	if (ret < 0)
		return ret;
	for (unsigned int t = 0; t < ARROW_TABLES; t++) {
		snprintf(path, sizeof(path), "%.4000s_%s.arrow", stem, arrow_table_name(t));
		if (stat(path, &st) == 0 &&
			(st.st_mtime >= f->started || (exported > 0 && st.st_mtime >= exported)))
			return 1;
		strcat(path, ".part");
		if (access(path, F_OK) == 0)
			return 1;
	}
	return 0;
}

/* Adds the runs of a directory. @return 0; -ENOMEM */
static int
list_directory(struct follower *f, const char *dir)
{
	struct scan_list list = {0};
	struct arrow_identity identity;
	char output[PATH_MAX], file[PATH_MAX];
	struct group *g;
	bool of_store;
	int ret = 0;

	if (!scan_list_has(dir))
		return 0;
	if (scan_list_add_folder(&list, dir) < 0)
		goto out;
	for (size_t i = 0; ret == 0 && i < list.nb; i++) {
		snprintf(file, sizeof(file), "%.4000s_images.arrow", list.run[i].stem[0]);
		of_store = arrow_name_stream(file, &identity);
		choose_output(f, dir, of_store, output);
		g = find_group(f, of_store ? dir : list.run[i].path, output);
		ret = g != NULL ? 0 : -ENOMEM;
		for (size_t k = 0; ret >= 0 && k < list.run[i].nb; k++) {
			ret = add_stem(g, list.run[i].stem[k]);
			/* if the output cannot be read, only the export of this run fails */
			if (ret == 1 && f->o->background && f->first)
				ret = is_exported(f, list.run[i].stem[k], output) != 0;
			g->wanted |= ret == 1;
		}
		ret = ret > 0 ? 0 : ret;
	}
out:
	scan_list_free(&list);
	return ret;
}

/* Adds the runs of a directory and of those in it: a store has a directory for each run. */
static int
list_tree(struct follower *f, const char *dir)
{
	char path[PATH_MAX];
	struct dirent *entry;
	struct stat st;
	DIR *d = opendir(dir);
	int ret;

	/* the receiver may make it later */
	if (d == NULL)
		return errno == ENOENT ? 0 : fail_list(dir);
	ret = list_directory(f, dir);
	while (ret == 0 && (entry = directory_next(d)) != NULL) {
		if (entry->d_name[0] == '.' ||
			snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) >=
				(int)sizeof(path))
			continue;
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			ret = list_directory(f, path);
	}
	/* the next listing may be complete */
	if (ret == 0 && errno != 0) {
		if (!f->told)
			(void)fail_list(dir);
		f->unlisted = true;
	}
	closedir(d);
	return ret;
}

static void
close_run(struct group *g)
{
	if (g->run == NULL)
		return;
	follow_run_close(g->run);
	free(g->run);
	g->run = NULL;
	g->nb_added = 0;
}

static int
open_run(const struct follower *f, struct group *g)
{
	int ret = 0;

	if (g->run == NULL) {
		g->run = calloc(1, sizeof(*g->run));
		if (g->run == NULL)
			return -ENOMEM;
		ret = follow_run_open(g->run, f->o, g->output);
	}
	for (; ret == 0 && g->nb_added < g->nb_stems; g->nb_added++)
		ret = follow_run_add(g->run, g->stem[g->nb_added]);
	return ret;
}

/* @return true: there may be more to do at once */
static bool
poll_group(const struct follower *f, struct group *g, bool last)
{
	enum follow_state state;
	int ret;

	if (!g->wanted || (g->ended && g->nb_added == g->nb_stems))
		return false;
	if (g->retry_at > now() && !last)
		return false;
	if (g->ended)
		g->nb_added = 0;
	g->ended = false;
	ret = open_run(f, g);
	if (ret == -ENOMEM)
		export_complain("%s: not enough memory%s", g->path, "");
	state = ret == 0 ? follow_run_poll(g->run, last) : FOLLOW_FAILED;
	g->failed = state == FOLLOW_FAILED;
	g->incomplete |= g->run != NULL && g->run->damaged > 0;
	if (state == FOLLOW_BUSY || state == FOLLOW_IDLE)
		return state == FOLLOW_BUSY;
	close_run(g);
	if (state == FOLLOW_FAILED) {
		g->retry_seconds = g->retry_seconds > 0 ? 2 * g->retry_seconds : RETRY_SECONDS;
		if (g->retry_seconds > RETRY_MAX)
			g->retry_seconds = RETRY_MAX;
		g->retry_at = now() + g->retry_seconds;
	}
	if (state == FOLLOW_ENDED) {
		g->ended = true;
		g->nb_added = g->nb_stems;
	}
	return false;
}

/* Share of the last 10 s in which some task waited for a disk, in percent; 0: not known. */
static double
disk_pressure(void)
{
	FILE *f = fopen("/proc/pressure/io", "re");
	double percent = 0;

	if (f != NULL) {
		if (fscanf(f, "some avg10=%lf", &percent) != 1)
			percent = 0;
		fclose(f);
	}
	return percent;
}

/*
 * Pauses so that programs that write runs can use the disks. @param seconds  work since the last
 * call
 */
static void
pause_for_writers(const struct follower *f, double seconds)
{
	double pause = seconds * PRESSURE_IDLE;
	struct timespec t;
	bool writing = false;

	for (size_t i = 0; i < f->nb; i++)
		writing |= f->group[i].wanted && !f->group[i].ended;
	if (!f->o->background || !writing || stopping != 0 || disk_pressure() < PRESSURE_MAX)
		return;
	pause = pause < PAUSE_MAX ? pause : PAUSE_MAX;
	t = (struct timespec){.tv_sec = pause, .tv_nsec = (pause - (time_t)pause) * 1e9};
	/* a signal ends the pause */
	nanosleep(&t, NULL);
}

/* Takes the lowest priority. */
static void
run_in_background(void)
{
	(void)setpriority(PRIO_PROCESS, 0, LOWEST_NICE);
	(void)syscall(
		SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
}

/*
 * Stops when the program that started this one has ended. PR_SET_PDEATHSIG is no substitute: it
 * reports the end of the thread that started this program, and its signal could be the second one.
 */
static void
watch_parent(pid_t parent)
{
	if (stopping == 0 && getppid() != parent)
		stopping = SIGTERM;
}

/* Locks the directories, so that only one process writes into them. @return 0; -EINVAL: printed */
static int
lock_directories(const struct options *o)
{
	int fd;

	for (size_t i = 0; i < o->nb_runs; i++) {
		if (access(o->run[i], F_OK) < 0)
			continue;
		fd = export_lock(o->run[i], ".export.lock", 5000);
		if (fd == -EBUSY)
			return export_complain(
				"%s: another braggline-export follows it%s", o->run[i], "");
		if (fd == -EINVAL)
			return fd;
	}
	return 0;
}

/* Says once that images are written more slowly. */
static void
report_ring(void)
{
	static bool reported;
	const int error = h5_driver_ring_error();

	if (error < 0 && !reported)
		(void)export_complain("notice: io_uring is not available: %s; writing one image at "
				      "a time%s",
			strerror(-error), "");
	reported |= error < 0;
}

int
follow(const struct options *o)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct follower f = {.o = o, .first = true, .started = time(NULL)};
	const struct timespec idle = {.tv_nsec = IDLE_MS * 1000000};
	const pid_t parent = getppid();
	double listed = 0, begin;
	bool busy = true, last = false, listing;
	int ret = 0;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (o->background)
		run_in_background();
	ret = lock_directories(o);
	while (ret == 0 && export_stopped() == 0) {
		if (o->background)
			watch_parent(parent);
		/* everything that exists when the signal arrives is exported */
		listing = !last && (stopping != 0 || now() - listed >= LIST_SECONDS);
		last = stopping != 0;
		if (listing) {
			f.unlisted = false;
			for (size_t i = 0; ret == 0 && i < o->nb_runs; i++)
				ret = list_tree(&f, o->run[i]);
			f.told = f.unlisted;
			listed = now();
			f.first = false;
		}
		busy = false;
		begin = now();
		for (size_t i = 0; ret == 0 && i < f.nb && export_stopped() == 0; i++)
			busy |= poll_group(&f, &f.group[i], last);
		report_ring();
		if (last && !busy)
			break;
		pause_for_writers(&f, now() - begin);
		if (!busy)
			nanosleep(&idle, NULL);
	}
	if (f.unlisted && ret == 0)
		ret = -EINVAL;
	for (size_t i = 0; i < f.nb; i++) {
		if ((f.group[i].failed || f.group[i].incomplete) && ret == 0)
			ret = -EINVAL;
		close_run(&f.group[i]);
		for (size_t k = 0; k < f.group[i].nb_stems; k++)
			free(f.group[i].stem[k]);
		free(f.group[i].stem);
		free(f.group[i].path);
		free(f.group[i].output);
	}
	free(f.group);
	return export_stopped() != 0 ? -EINTR : ret;
}
