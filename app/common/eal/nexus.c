/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "eal/nexus.h"
#include "eal/process_cpus.h"
#include "log.h"

LOG_REGISTER("nexus", "nexus");

#define WAIT_MAX 60 /* calls of nexus_watch() between two starts */
#define STOP_MS	 30000
#define STEP_US	 10000

extern char **environ;

int
nexus_find(struct nexus *n)
{
	static const char *const places[] = {"", "../export/"};
	char self[PATH_MAX];
	const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	memset(n, 0, sizeof(*n));
	if (length <= 0)
		return -ENOENT;
	self[length] = '\0';
	slash = strrchr(self, '/');
	if (slash == NULL)
		return -ENOENT;
	slash[1] = '\0';
	for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(n->program, sizeof(n->program), "%.4000s%sbraggline-export", self,
			places[i]);
		if (access(n->program, X_OK) == 0)
			return 0;
	}
	n->program[0] = '\0';
	return -ENOENT;
}

/* Starts the process. This thread temporarily moves to CPUs without lcores, for it to inherit. */
static int
spawn(struct nexus *n)
{
	char follow[] = "--follow", background[] = "--background", end[] = "--";
	char directory[PATH_MAX];
	/* the name of a directory may begin with a dash */
	char *argv[] = {n->program, follow, background, end, directory, NULL};
	posix_spawnattr_t attributes;
	sigset_t none;
	cpu_set_t cpus;
	int ret;

	snprintf(directory, sizeof(directory), "%s", n->directory);
	/* EAL and this program block signals in some threads */
	sigemptyset(&none);
	ret = posix_spawnattr_init(&attributes);
	if (ret != 0)
		return -ret;
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attributes, &none);
	/* a separate process group: ^C of a terminal goes to this program, which then ends it */
	posix_spawnattr_setpgroup(&attributes, 0);
	pthread_getaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	process_cpus_take();
	ret = posix_spawn(&n->pid, n->program, NULL, &attributes, argv, environ);
	(void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	posix_spawnattr_destroy(&attributes);
	if (ret != 0)
		n->pid = 0;
	return -ret;
}

int
nexus_start(struct nexus *n, const char *directory)
{
	n->directory = directory;
	return spawn(n);
}

static void
report_end(const struct nexus *n, int status)
{
	if (WIFSIGNALED(status))
		LOG(WARNING, "braggline-export was ended by signal %d; it is started again\n",
			WTERMSIG(status));
	else
		LOG(WARNING,
			"braggline-export ended with status %d, see above; it is started again "
			"in %u s\n",
			WEXITSTATUS(status), n->wait);
}

void
nexus_watch(struct nexus *n)
{
	int status, ret;

	if (n->directory == NULL)
		return;
	if (n->pid != 0) {
		if (waitpid(n->pid, &status, WNOHANG) != n->pid)
			return;
		n->pid = 0;
		n->wait = n->ends == 0 ? 1 : 2 * n->ends < WAIT_MAX ? 2 * n->ends : WAIT_MAX;
		n->ends++;
		report_end(n, status);
		return;
	}
	if (n->wait > 0 && --n->wait > 0)
		return;
	ret = spawn(n);
	if (ret < 0) {
		LOG(ERR, "cannot start %s: %s\n", n->program, strerror(-ret));
		n->wait = WAIT_MAX;
	}
}

void
nexus_stop(struct nexus *n)
{
	int status, ms;

	if (n->directory == NULL)
		return;
	/* files that were completed since it ended are exported as well */
	if (n->pid == 0 && spawn(n) < 0)
		return;
	kill(n->pid, SIGTERM);
	for (ms = 0; ms < STOP_MS; ms += STEP_US / 1000) {
		if (waitpid(n->pid, &status, WNOHANG) == n->pid) {
			n->pid = 0;
			break;
		}
		usleep(STEP_US);
	}
	if (n->pid != 0)
		LOG(NOTICE,
			"braggline-export still writes, and continues without this program; if a "
			"service manager ends it, the rest is exported at the next start\n");
	n->directory = NULL;
}
