/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hdf5.h>

#include "child_process.h"

static void
limit(int resource, rlim_t most)
{
	struct rlimit l;

	if (getrlimit(resource, &l) < 0 || l.rlim_cur <= most)
		return;
	l.rlim_cur = most;
	(void)setrlimit(resource, &l);
}

/* Memory that the process has. @return bytes; 0: not known */
static uint64_t
used_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	uint64_t pages = 0;

	if (f == NULL)
		return 0;
	if (fscanf(f, "%" SCNu64, &pages) != 1)
		pages = 0;
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

static void __attribute__((noreturn))
run_child(void (*call)(void *state), void *state, pid_t parent)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* the parent may have ended before prctl() */
	if (getppid() != parent)
		_exit(1);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		(void)signal(signals[i], SIG_DFL);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_CPU, CHILD_PROCESS_SECONDS);
	limit(RLIMIT_AS, used_bytes() + CHILD_PROCESS_BYTES);
	(void)H5PLset_loading_state(0);
	call(state);
	_exit(0);
}

int
child_process_call(void (*call)(void *state), void *state, size_t size)
{
	void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const pid_t parent = getpid();
	int status = 0, ret = 0;
	pid_t child;

	if (shared == MAP_FAILED)
		return -errno;
	memcpy(shared, state, size);
	/* the child's copies of output would be written twice */
	fflush(NULL);
	child = fork();
	if (child == 0)
		run_child(call, shared, parent);
	if (child < 0)
		ret = -errno;
	while (ret == 0 && waitpid(child, &status, 0) < 0)
		ret = errno == EINTR ? 0 : -errno;
	if (ret == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		ret = -EFAULT;
	if (ret == 0)
		memcpy(state, shared, size);
	(void)munmap(shared, size);
	return ret;
}
