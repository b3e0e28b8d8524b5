/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "adbc/pipe.h"
#include "adbc/session_process.h"
#include "clock.h"
#include "sql/statement.h"

#define PIPE_SIZE  (1 << 20)
#define STDERR_MAX 3072
#define CLOSE_MS   2000 /* time for a process to end after its input */

extern char **environ;

struct session_process {
	uint32_t refs;	/* atomic */
	bool ended;	/* its status is known */
	bool cancelled; /* atomic */
	int status;
	pid_t owner; /* the process that has started it */
	pid_t pid;
	int pidfd;
	int in; /* socket: write() to a pipe whose reader has ended would raise SIGPIPE */
	int out;
	int err;
	int cancel;	      /* eventfd */
	pthread_mutex_t lock; /* of `statement` and `running` */
	uint64_t statement;   /* number of the last one */
	bool running;
	char *command; /* the arguments, each with a zero at its end */
	size_t command_size;
	int64_t deadline; /* CLOCK_MONOTONIC, ns; 0: none */
	size_t stderr_size;
	char stderr_text[STDERR_MAX + 1];
};

static void
close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Move a descriptor out of the range of standard input and output. */
static int
move_up(int *fd)
{
	int moved;

	if (*fd > STDERR_FILENO)
		return 0;
	moved = fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (moved < 0)
		return -errno;
	close(*fd);
	*fd = moved;
	return 0;
}

static int
open_pipe(int *from, int *to)
{
	int ends[2], ret;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	*from = ends[0];
	*to = ends[1];
	ret = move_up(from);
	return ret < 0 ? ret : move_up(to);
}

static int
open_socket(int *here, int *there)
{
	int ends[2], ret;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	*here = ends[0];
	*there = ends[1];
	ret = move_up(here);
	return ret < 0 ? ret : move_up(there);
}

/* Write the arguments one after the other. @return NULL: not enough memory */
static char *
join(const char *const *argv, size_t *size)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, size);

	if (out == NULL)
		return NULL;
	for (; *argv != NULL; argv++)
		fwrite(*argv, strlen(*argv) + 1, 1, out);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* @param fds  its standard input, output and error; all others are closed */
static int
spawn(const char *const *argv, const int *fds, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, defaults;
	int ret, i;

	ret = posix_spawn_file_actions_init(&actions);
	if (ret != 0)
		return -ret;
	ret = posix_spawnattr_init(&attributes);
	if (ret != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return -ret;
	}
	/* interpreters ignore SIGPIPE, which ends a program whose output is not read */
	sigemptyset(&none);
	sigemptyset(&defaults);
	sigaddset(&defaults, SIGPIPE);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &defaults);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	for (i = 0; i < 3 && ret == 0; i++)
		ret = posix_spawn_file_actions_adddup2(&actions, fds[i], i);
	if (ret == 0)
		ret = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
	if (ret == 0)
		ret = posix_spawnp(pid, argv[0], &actions, &attributes,
			(char *const *)(uintptr_t)argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return -ret;
}

static int
start(struct session_process *h, const char *const *argv)
{
	int fds[3] = {-1, -1, -1}, ret, i;

	h->command = join(argv, &h->command_size);
	ret = h->command != NULL ? open_socket(&h->in, &fds[0]) : -ENOMEM;
	if (ret == 0)
		ret = open_pipe(&h->out, &fds[1]);
	if (ret == 0)
		ret = open_pipe(&h->err, &fds[2]);
	if (ret == 0) {
		h->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		ret = h->cancel < 0 ? -errno : 0;
	}
	if (ret == 0) {
		/* the limit of a user may forbid it: the pipe is smaller then */
		fcntl(h->out, F_SETPIPE_SZ, PIPE_SIZE);
		fcntl(h->in, F_SETFL, O_NONBLOCK);
		fcntl(h->out, F_SETFL, O_NONBLOCK);
		fcntl(h->err, F_SETFL, O_NONBLOCK);
		ret = spawn(argv, fds, &h->pid);
	}
	if (ret == 0) {
		h->pidfd = pidfd_open(h->pid, 0);
		ret = h->pidfd < 0 ? -errno : 0;
		if (ret < 0) {
			kill(h->pid, SIGKILL);
			waitpid(h->pid, NULL, 0);
		}
	}
	for (i = 0; i < 3; i++)
		close_fd(&fds[i]);
	return ret;
}

int
session_process_start(const char *const *argv, struct session_process **process)
{
	struct session_process *h = calloc(1, sizeof(*h));
	int ret;

	if (h == NULL)
		return -ENOMEM;
	pthread_mutex_init(&h->lock, NULL);
	h->refs = 1;
	h->owner = getpid();
	h->in = h->out = h->err = h->pidfd = h->cancel = -1;
	ret = start(h, argv);
	if (ret < 0) {
		h->ended = true;
		session_process_put(h);
		return ret;
	}
	*process = h;
	return 0;
}

struct session_process *
session_process_get(struct session_process *h)
{
	__atomic_add_fetch(&h->refs, 1, __ATOMIC_RELAXED);
	return h;
}

/* Get the status of a process that has ended or was killed. */
static void
reap(struct session_process *h)
{
	siginfo_t info = {0};
	int ret;

	do {
		ret = waitid(P_PIDFD, (id_t)h->pidfd, &info, WEXITED);
	} while (ret < 0 && errno == EINTR);
	/* a program that ignores SIGCHLD gets no status */
	if (ret == 0)
		h->status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
	h->ended = true;
}

void
session_process_put(struct session_process *h)
{
	if (h == NULL || __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	/* after a fork, it is that of the parent */
	if (!h->ended && h->owner == getpid()) {
		pidfd_send_signal(h->pidfd, SIGKILL, NULL, 0);
		reap(h);
	}
	close_fd(&h->in);
	close_fd(&h->out);
	close_fd(&h->err);
	close_fd(&h->pidfd);
	close_fd(&h->cancel);
	pthread_mutex_destroy(&h->lock);
	free(h->command);
	free(h);
}

void
session_process_end(struct session_process *h)
{
	/* others may have references, to cancel it */
	if (h != NULL && !h->ended && h->owner == getpid())
		pidfd_send_signal(h->pidfd, SIGKILL, NULL, 0);
	session_process_put(h);
}

void
session_process_close(struct session_process *h)
{
	if (h != NULL && !h->ended && h->owner == getpid()) {
		struct pollfd fd = {.fd = h->pidfd, .events = POLLIN};
		const int64_t until = monotonic_ns() + CLOSE_MS * INT64_C(1000000);

		close_fd(&h->in);
		while (poll(&fd, 1, CLOSE_MS) < 0 && errno == EINTR && monotonic_ns() < until)
			;
	}
	session_process_end(h);
}

bool
session_process_has_command(const struct session_process *h, const char *const *argv)
{
	const char *at = h->command, *end = at + h->command_size;

	if (h->owner != getpid())
		return false;
	for (; *argv != NULL && at < end; argv++, at += strlen(at) + 1) {
		if (strcmp(*argv, at) != 0)
			return false;
	}
	return *argv == NULL && at == end;
}

bool
session_process_is_alive(const struct session_process *h)
{
	struct pollfd fd = {.fd = h->pidfd, .events = POLLIN};

	return !h->ended && poll(&fd, 1, 0) == 0;
}

void
session_process_cancel(struct session_process *h, uint64_t number)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&h->lock);
	if (h->running && h->statement == number) {
		__atomic_store_n(&h->cancelled, true, __ATOMIC_RELEASE);
		if (write(h->cancel, &one, sizeof(one)) == sizeof(one))
			pidfd_send_signal(h->pidfd, SIGKILL, NULL, 0);
	}
	pthread_mutex_unlock(&h->lock);
}

void
session_process_done(struct session_process *h)
{
	pthread_mutex_lock(&h->lock);
	h->running = false;
	pthread_mutex_unlock(&h->lock);
}

/* Read what is on standard error. */
static void
listen_to(struct session_process *h)
{
	char more[1024];
	ssize_t n;

	while (h->err >= 0) {
		n = read(h->err, more, sizeof(more));
		if (n < 0)
			return;
		if (n == 0) {
			close_fd(&h->err);
			return;
		}
		if ((size_t)n > STDERR_MAX - h->stderr_size)
			n = (ssize_t)(STDERR_MAX - h->stderr_size);
		memcpy(h->stderr_text + h->stderr_size, more, (size_t)n);
		h->stderr_size += (size_t)n;
	}
}

/* Wait for an event of a descriptor. @return 0; -ECANCELED; -ETIMEDOUT; -errno */
static int
wait_for(struct session_process *h, int fd, short event)
{
	struct pollfd fds[] = {{h->cancel, POLLIN}, {fd, event}, {-1, POLLIN}};
	int64_t left = -1;
	int ret;

	for (;;) {
		fds[2].fd = h->err;
		if (__atomic_load_n(&h->cancelled, __ATOMIC_ACQUIRE))
			return -ECANCELED;
		if (h->deadline > 0) {
			left = (h->deadline - monotonic_ns() + 999999) / 1000000;
			if (left <= 0) {
				pidfd_send_signal(h->pidfd, SIGKILL, NULL, 0);
				return -ETIMEDOUT;
			}
		}
		ret = poll(fds, 3, left > INT32_MAX ? INT32_MAX : (int)left);
		if (ret < 0 && errno != EINTR)
			return -errno;
		if (ret <= 0)
			continue;
		if (fds[2].revents != 0)
			listen_to(h);
		if (fds[1].revents != 0 && fds[0].revents == 0)
			return 0;
	}
}

static int
write_bytes(struct session_process *h, const void *from, size_t size)
{
	const uint8_t *at = from;
	ssize_t n;
	int ret;

	while (size > 0) {
		n = send(h->in, at, size, MSG_NOSIGNAL);
		if (n > 0) {
			at += n;
			size -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		ret = errno == EAGAIN ? wait_for(h, h->in, POLLOUT) : -errno;
		if (ret < 0)
			return ret;
	}
	return 0;
}

int
session_process_begin(struct session_process *h, const char *sql, double deadline, uint64_t *number)
{
	const struct pipe_statement head = {
		PIPE_STATEMENT, (uint32_t)strnlen(sql, SQL_STATEMENT_MAX + 1)};
	int ret;

	/*
	 * the text that it wrote at its start is the reason of its end, if it does not accept the
	 * first
	 */
	if (h->statement > 0) {
		listen_to(h);
		h->stderr_size = 0;
	}
	pthread_mutex_lock(&h->lock);
	*number = ++h->statement;
	h->running = true;
	pthread_mutex_unlock(&h->lock);
	h->deadline = deadline > 0 ? monotonic_ns() + (int64_t)(deadline * 1e9) : 0;
	ret = write_bytes(h, &head, sizeof(head));
	return ret == 0 ? write_bytes(h, sql, head.length) : ret;
}

int
session_process_read(void *process, void *to, size_t size)
{
	struct session_process *h = process;
	uint8_t *at = to;
	ssize_t n;
	int ret;

	/* a deadline also holds while data are always there */
	if (h->deadline > 0 && monotonic_ns() >= h->deadline)
		return wait_for(h, h->out, POLLIN);
	while (size > 0) {
		n = read(h->out, at, size);
		if (n == 0)
			/* the output of a process that was cancelled ends too */
			return __atomic_load_n(&h->cancelled, __ATOMIC_ACQUIRE) ? -ECANCELED : 0;
		if (n > 0) {
			at += n;
			size -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		ret = errno == EAGAIN ? wait_for(h, h->out, POLLIN) : -errno;
		if (ret < 0)
			return ret;
	}
	return 1;
}

int
session_process_wait(struct session_process *h, int *status)
{
	int ret;

	if (!h->ended) {
		ret = wait_for(h, h->pidfd, POLLIN);
		if (ret < 0)
			return ret;
		reap(h);
	}
	*status = h->status;
	return 0;
}

const char *
session_process_stderr(struct session_process *h)
{
	size_t size;

	listen_to(h);
	size = h->stderr_size;
	while (size > 0 && h->stderr_text[size - 1] == '\n')
		size--;
	h->stderr_text[size] = '\0';
	return h->stderr_text;
}
