/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_kvargs.h>

#include "ascii_text.h"
#include "eal/start.h"
#include "io/file_lock.h"
#include "io/own_file.h"
#include "log.h"

#define START_LOG_LINES 8
#define FREE_PAGES	"/sys/kernel/mm/hugepages/hugepages-*/free_hugepages"

LOG_REGISTER("lock", "lock");

static char separator[] = "--";

/* What EAL logs while eal_start_quietly() starts it. Other threads may be logging: never closed. */
static FILE *start_log;
static char *start_log_text;
static size_t start_log_size;
static bool quiet; /* eal_start_quietly() was called */

int
eal_own_words(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], separator) == 0) {
			argv[i] = argv[0];
			return i;
		}
	}
	return 0;
}

void
eal_hint(FILE *out, const char *program, const char *own)
{
	fprintf(out, "EAL options come first: %s [EAL options] -- %s\n", program, own);
}

void
eal_signals(const struct sigaction *end)
{
	struct sigaction before;

	sigaction(SIGINT, end, NULL);
	sigaction(SIGTERM, end, NULL);
	if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
		sigaction(SIGHUP, end, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* a write beyond the limit of file sizes then fails with EFBIG */
	signal(SIGXFSZ, SIG_IGN);
}

static bool
no_page_is_free(void)
{
	unsigned long pages = 0, n;
	glob_t found;

	if (glob(FREE_PAGES, 0, NULL, &found) != 0)
		return true;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *f = fopen(found.gl_pathv[i], "re");

		if (f == NULL)
			continue;
		if (fscanf(f, "%lu", &n) == 1)
			pages += n;
		fclose(f);
	}
	globfree(&found);
	return pages == 0;
}

/* EAL maps files of hugetlbfs. Without a mount its error is EACCES, also for root. */
static bool
no_hugetlbfs(void)
{
	FILE *f = setmntent("/proc/mounts", "re");
	const struct mntent *m;
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && (m = getmntent(f)) != NULL)
		found = strcmp(m->mnt_type, "hugetlbfs") == 0;
	endmntent(f);
	return !found;
}

/*
 * Check access to the folder BASE/dpdk/PREFIX, in which EAL creates a lock file.
 * @param path  out: the folder that was checked
 * @return 0; -errno
 */
static int
try_runtime_folder(char path[PATH_MAX])
{
	const char *base = geteuid() == 0 ? "/var/run" : getenv("XDG_RUNTIME_DIR");

	snprintf(path, PATH_MAX, "%s", rte_eal_get_runtime_dir());
	/* EAL returns no path before the folder exists */
	if (path[0] == '\0')
		snprintf(path, PATH_MAX, "%s/dpdk", base != NULL ? base : "/tmp");
	if (access(path, F_OK) != 0 && errno == ENOENT)
		snprintf(path, PATH_MAX, "%s", base != NULL ? base : "/tmp");
	return access(path, W_OK | X_OK) == 0 ? 0 : -errno;
}

/* Print the last lines of the log that was kept. */
static void
print_start_log(void)
{
	unsigned int lines = START_LOG_LINES;
	size_t at;

	if (start_log == NULL || fflush(start_log) != 0)
		return;
	/* the last byte ends the last line */
	for (at = start_log_size; at > 0; at--)
		if (start_log_text[at - 1] == '\n' && at < start_log_size && --lines == 0)
			break;
	fwrite(start_log_text + at, 1, start_log_size - at, stderr);
}

/*
 * Print cause and remedy of a failure that is known without the messages of EAL.
 * @return exit status of the program; 0: the cause is not known
 */
static int
explain_known(const char *program, int error, bool huge, bool in_memory)
{
	const char *instead = in_memory ? " instead of --in-memory" : "";
	char folder[PATH_MAX];
	int ret;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		fprintf(stderr,
			"%s: cannot start EAL: it would be a secondary process of another one "
			"with this --file-prefix; remove --proc-type, and give each process its "
			"own --file-prefix\n",
			program);
	} else if ((error == 0 || error == EINVAL || error == EACCES) &&
		(ret = try_runtime_folder(folder)) != 0) {
		fprintf(stderr,
			"%s: cannot start EAL: runtime folder %s is not usable: %s; use another "
			"--file-prefix, or set XDG_RUNTIME_DIR to a folder of this user\n",
			program, folder, strerror(-ret));
	} else if (rte_eal_primary_proc_alive(NULL) == 1) {
		fprintf(stderr,
			"%s: cannot start EAL: another process uses this --file-prefix; give "
			"each process its own, as in --file-prefix %s2\n",
			program, program);
	} else if (error == EINVAL) {
		/*
		 * Before huge pages: if EAL rejects an option, it may not have read --no-huge. The
		 * other causes of this error are above.
		 */
		if (!in_memory || huge)
			return 0;
		fprintf(stderr,
			"%s: cannot start EAL: --in-memory and --no-huge exclude each other; "
			"remove one of them\n",
			program);
		return EAL_EXIT_USAGE;
	} else if (huge && no_page_is_free()) {
		fprintf(stderr,
			"%s: cannot start EAL: no free huge pages; use --no-huge -m 1024%s, or as "
			"root: echo 1024 > /proc/sys/vm/nr_hugepages\n",
			program, instead);
	} else if (huge && no_hugetlbfs()) {
		fprintf(stderr,
			"%s: cannot start EAL: huge pages are free, but hugetlbfs is not mounted; "
			"use --no-huge -m 1024%s, or as root: mkdir -p /dev/hugepages && mount -t "
			"hugetlbfs none /dev/hugepages\n",
			program, instead);
	} else {
		return 0;
	}
	return EXIT_FAILURE;
}

/*
 * Print cause and remedy of common failures, which are missing from the messages of EAL.
 * @param huge       EAL was to use huge pages
 * @param in_memory  --in-memory was given, which excludes --no-huge
 * @return exit status of the program
 */
static int
explain(const char *program, bool huge, bool in_memory)
{
	/* if EAL cannot create its lock file, it sets errno only, and rte_errno is 0 */
	const char *why = rte_errno != 0 ? rte_strerror(rte_errno) : "see the messages above";
	const int error = rte_errno;
	int status;

	/* EAL prints the list of its options to stdout, which is buffered if it is no terminal */
	fflush(stdout);
	status = explain_known(program, error, huge, in_memory);
	if (status != 0)
		return status;
	print_start_log();
	if (error == EINVAL) {
		fprintf(stderr,
			"%s: cannot start EAL: it rejects one of its options, see its message "
			"%s; options of %s come after '--'\n",
			program, quiet ? "above" : "before the list of all options", program);
		return EAL_EXIT_USAGE;
	}
	if (huge && geteuid() != 0)
		fprintf(stderr,
			"%s: cannot start EAL: %s; huge pages and devices require root, or "
			"access to hugetlbfs and /dev/vfio: run as root, or use --no-huge "
			"--no-pci%s\n",
			program, why, in_memory ? " instead of --in-memory" : "");
	else if (error == ENOMEM && huge)
		fprintf(stderr,
			"%s: cannot start EAL: %s; request no more than the free huge pages: -m "
			"MIB, or raise /proc/sys/vm/nr_hugepages as root\n",
			program, why);
	else if (error == ENOMEM)
		fprintf(stderr,
			"%s: cannot start EAL: %s; request no more memory than this host has: -m "
			"MIB\n",
			program, why);
	else if (error == ENODEV)
		fprintf(stderr,
			"%s: cannot start EAL: a device is missing or fails to start, see above; "
			"check --vdev and -a\n",
			program);
	else
		fprintf(stderr, "%s: cannot start EAL: %s\n", program, why);
	return EXIT_FAILURE;
}

/*
 * Remove a socket of this user that a killed process left in the file system, on which no process
 * listens. If the socket belongs to another user or is in use, report that.
 */
static void
clear_socket(const char *program, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	int fd, error;

	if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode) ||
		strlen(path) >= sizeof(address.sun_path))
		return;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	error = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
	close(fd);
	if (error == ECONNREFUSED && st.st_uid == geteuid()) {
		fprintf(stderr, "%s: %s: removing this socket, no process listens on it\n", program,
			path);
		unlink(path);
	} else if (error == ECONNREFUSED) {
		fprintf(stderr,
			"%s: %s: no process listens on this socket, and its owner is user %u, "
			"not this user (%u); remove it, or name another in --vdev\n",
			program, path, st.st_uid, geteuid());
	} else if (error == 0 || error == EAGAIN) {
		fprintf(stderr,
			"%s: %s: another process listens on this socket; stop that process, or "
			"name another socket in --vdev\n",
			program, path);
	}
}

/* Remove the socket of a killed memif server. DPDK's memif fails to bind if it still exists. */
static void
remove_stale_socket(const char *program, const char *device)
{
	static const char memif[] = "net_memif";
	const char *list = strchr(device, ','), *role, *path, *abstract;
	struct rte_kvargs *args;

	if (strncmp(device, memif, strlen(memif)) != 0 || list == NULL)
		return;
	args = rte_kvargs_parse(list + 1, NULL);
	if (args == NULL)
		return;
	role = rte_kvargs_get(args, "role");
	path = rte_kvargs_get(args, "socket");
	abstract = rte_kvargs_get(args, "socket-abstract");
	/* an abstract socket, which is the default, has no file */
	if (role != NULL && strcmp(role, "server") == 0 && path != NULL && abstract != NULL &&
		strcmp(abstract, "no") == 0)
		clear_socket(program, path);
	rte_kvargs_free(args);
}

static void
remove_stale_sockets(const char *program, char **argv, int own)
{
	static const char option[] = "--vdev";

	for (int i = 1; i < own; i++) {
		if (strcmp(argv[i], option) == 0 && i + 1 < own)
			remove_stale_socket(program, argv[i + 1]);
		else if (strncmp(argv[i], option, strlen(option)) == 0 &&
			argv[i][strlen(option)] == '=')
			remove_stale_socket(program, argv[i] + strlen(option) + 1);
	}
}

/*
 * Check the folder of EAL's files and telemetry socket. EAL uses an existing folder without a
 * check, and for an ordinary user, the folder may be in /tmp.
 */
static int
check_runtime_folder(const char *program)
{
	char message[PATH_MAX], above[PATH_MAX];
	int ret;

	ret = own_folder_check(rte_eal_get_runtime_dir(), OWN_FOLDER_NAMED, message);
	/* no folder: --no-shconf or --in-memory */
	if (ret == -ENOENT)
		return 0;
	if (ret == 0) {
		snprintf(above, sizeof(above), "%s", rte_eal_get_runtime_dir());
		ret = own_folder_check(dirname(above), OWN_FOLDER_NAMED, message);
	}
	if (ret < 0)
		fprintf(stderr,
			"%s: EAL's runtime %s; or use another --file-prefix or XDG_RUNTIME_DIR\n",
			program, message);
	return ret;
}

/*
 * Initialize EAL. It shows the program's own arguments in /eal/app_params. It may reorder `words`,
 * and it keeps copies of the arguments.
 */
static int
init(int argc, char **argv, int own)
{
	char **words = calloc(argc + 1, sizeof(*words)), **ascii = calloc(argc, sizeof(*ascii));
	int ret = -1;

	rte_errno = ENOMEM;
	if (words == NULL || ascii == NULL)
		goto out;
	for (int i = 0; i < argc; i++) {
		if (i > own)
			ascii[i] = ascii_text(argv[i]);
		words[i] = ascii[i] != NULL ? ascii[i] : argv[i];
	}
	rte_errno = 0;
	ret = rte_eal_init(argc, words);
out:
	for (int i = 0; ascii != NULL && i < argc; i++)
		free(ascii[i]);
	free(ascii);
	free(words);
	return ret;
}

static void
warn_of_reader(const char *text)
{
	LOG(WARNING, "%s\n", text);
}

/* Find an EAL option, also with "=VALUE". */
static bool
has_option(char **argv, int own, const char *option)
{
	const size_t len = strlen(option);

	for (int i = 1; i < own; i++)
		if (strncmp(argv[i], option, len) == 0 &&
			(argv[i][len] == '\0' || argv[i][len] == '='))
			return true;
	return false;
}

int
eal_start(const char *program, int argc, char **argv, int own)
{
	const bool huge = !has_option(argv, own, "--no-huge");
	const bool in_memory = has_option(argv, own, "--in-memory");
	int status = EXIT_SUCCESS;

	file_lock_warn = warn_of_reader;
	remove_stale_sockets(program, argv, own);
	if (own != 0)
		argv[own] = separator;
	if (init(own != 0 ? argc : 1, argv, own) < 0)
		return explain(program, huge, in_memory);
	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		/* as a secondary process, it would share memory, ports and telemetry */
		status = explain(program, huge, in_memory);
	} else if (check_runtime_folder(program) < 0) {
		status = EXIT_FAILURE;
	}
	if (status != EXIT_SUCCESS)
		(void)rte_eal_cleanup();
	return status;
}

int
eal_start_quietly(const char *program, int argc, char **argv, int own)
{
	const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0),
		  nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int status;

	quiet = true;
	if (!has_option(argv, own, "--log-level"))
		start_log = open_memstream(&start_log_text, &start_log_size);
	(void)rte_openlog_stream(start_log != NULL ? start_log : stderr);
	/* EAL prints the list of its options there if it rejects one */
	if (out >= 0 && nowhere >= 0)
		(void)dup2(nowhere, STDOUT_FILENO);
	status = eal_start(program, argc, argv, own);
	if (out >= 0 && nowhere >= 0)
		(void)dup2(out, STDOUT_FILENO);
	if (out >= 0)
		close(out);
	if (nowhere >= 0)
		close(nowhere);
	(void)rte_openlog_stream(stderr);
	return status;
}
