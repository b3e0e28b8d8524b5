/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-view: serves a page that shows what receivers and stores do. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "escaped_text.h"
#include "io/own_file.h"
#include "options.h"
#include "runs.h"
#include "server.h"
#include "xfer/auth_key.h"

#define EXIT_USAGE 2
#define TOKEN_MIN  16
#define TOKEN_MAX  256
#define PEM_MAX	   (1 << 20)

/* used by threads of sources, which start before it and end after it */
static struct server *server;

static void
notify(void)
{
	server_notify(__atomic_load_n(&server, __ATOMIC_ACQUIRE));
}

static int
complain(const char *format, const char *first, const char *second)
{
	char text[PATH_MAX + OPTIONS_MESSAGE_LEN];

	snprintf(text, sizeof(text), format, first, second);
	escaped_line(stderr, "braggline-view: %s", text);
	return -EINVAL;
}

/** Read a file that only this user may read. @return its text, to be freed; NULL: complained */
static char *
read_secret(const char *path, const char *what, size_t min, size_t max)
{
	char message[PATH_MAX], *text = NULL;
	ssize_t n;
	int fd;

	fd = xfer_secret_open(path, what, min, max, message);
	if (fd < 0) {
		complain("%s%s", message, "");
		return NULL;
	}
	text = malloc(max + 1);
	n = text != NULL ? read(fd, text, max) : -1;
	close(fd);
	if (n < 0) {
		complain("%s: cannot read it: %s", path, strerror(errno));
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

/** Read a certificate, which is no secret. @return its text, to be freed; NULL: complained */
static char *
read_certificate(const char *path)
{
	FILE *f = own_file_read(path);
	char *text = f != NULL ? malloc(PEM_MAX + 1) : NULL;
	size_t n;

	if (text == NULL) {
		complain("--tls-certificate %s: cannot read it: %s", path, own_file_error(-errno));
	} else {
		n = fread(text, 1, PEM_MAX, f);
		text[n] = '\0';
	}
	if (f != NULL)
		fclose(f);
	return text;
}

/** Compute the digest of the token. */
static int
read_token(const char *path, struct server_config *c)
{
	char *text = read_secret(path, "token file", TOKEN_MIN, TOKEN_MAX + 1);
	size_t length;
	int ret = 0;

	if (text == NULL)
		return -EINVAL;
	length = strcspn(text, "\r\n");
	if (text[length + strspn(text + length, "\r\n")] != '\0' || length < TOKEN_MIN ||
		length > TOKEN_MAX)
		ret = complain(
			"--token-file %s: expected one line of 16 to 256 characters%s", path, "");
	for (size_t i = 0; ret == 0 && i < length; i++)
		if (text[i] <= ' ' || text[i] > '~')
			ret = complain(
				"--token-file %s: expected letters, digits and other printable "
				"ASCII characters without blanks%s",
				path, "");
	if (ret == 0)
		ret = xfer_digest(text, length, c->token);
	explicit_bzero(text, length);
	free(text);
	c->has_token = true;
	return ret;
}

static int
read_files(const struct options *o, struct server_config *c)
{
	if (o->token_file != NULL && read_token(o->token_file, c) != 0)
		return -EINVAL;
	if (o->certificate == NULL)
		return 0;
	c->certificate = read_certificate(o->certificate);
	c->key = read_secret(o->key, "private key", 1, PEM_MAX);
	return c->certificate != NULL && c->key != NULL ? 0 : -EINVAL;
}

/** Serve until a signal arrives. */
static int
serve(const struct options *o, const struct server_config *c, struct source **sources,
	const sigset_t *signals)
{
	const struct timespec second = {.tv_sec = 1};
	struct server *s;
	int ret;

	ret = server_start(&s, c, sources, o->nb_sources);
	if (ret == -EINVAL && c->certificate != NULL)
		return complain("--tls-certificate %s: not a certificate with the key %s",
			o->certificate, o->key);
	if (ret == -EADDRINUSE)
		return complain("--listen %s: %s", o->listen,
			"another program listens there; end it, or set another port");
	if (ret != 0)
		return complain("--listen %s: cannot listen: %s", o->listen, strerror(-ret));
	__atomic_store_n(&server, s, __ATOMIC_RELEASE);
	printf("braggline-view: %s://%.*s:%u/\n", c->certificate != NULL ? "https" : "http",
		(int)(strrchr(o->listen, ':') - o->listen), o->listen, server_port(s));
	fflush(stdout);
	while (sigtimedwait(signals, NULL, &second) < 0)
		server_tick(s);
	return 0;
}

static int
run(const struct options *o, const sigset_t *signals)
{
	struct server_config c = {
		.address = o->address, .loopback = o->loopback, .control = o->control};
	struct source *sources[LIMIT_SOURCES] = {NULL};
	struct source_config config;
	int ret;

	ret = read_files(o, &c);
	for (size_t i = 0; i < o->nb_sources && ret == 0; i++) {
		config = o->source[i];
		config.period_ms = o->interval_ms;
		config.changed = notify;
		sources[i] = source_start(&config);
		if (sources[i] == NULL)
			ret = complain("cannot start a thread for %s%s", config.name, "");
	}
	if (ret == 0 && o->nb_runs > 0) {
		c.runs = runs_start(o->runs, o->nb_runs);
		if (c.runs == NULL)
			ret = complain("cannot start a thread for %s%s", "--runs", "");
	}
	if (ret == 0)
		ret = serve(o, &c, sources, signals);
	/* the threads of the sources use the server, whose threads use the sources */
	for (size_t i = 0; i < o->nb_sources; i++)
		source_stop(sources[i]);
	server_stop(server);
	runs_stop(c.runs);
	for (size_t i = 0; i < o->nb_sources; i++)
		source_free(sources[i]);
	free((void *)(uintptr_t)c.certificate);
	free((void *)(uintptr_t)c.key);
	return ret;
}

int
main(int argc, char **argv)
{
	char message[OPTIONS_MESSAGE_LEN];
	struct options *o = malloc(sizeof(*o));
	sigset_t signals;
	int ret;

	if (o == NULL)
		return EXIT_FAILURE;
	if (options_parse(o, argc, argv, message) != 0) {
		complain("%s%s", message, "");
		free(o);
		return EXIT_USAGE;
	}
	if (o->help || o->version) {
		if (o->help)
			options_help();
		else
			printf("braggline-view %s\n", BRAGGLINE_VERSION);
		free(o);
		return EXIT_SUCCESS;
	}
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	/* threads inherit the mask: only main() takes signals */
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (setpriority(PRIO_PROCESS, 0, o->nice) != 0)
		complain("--nice: %s%s; the priority is unchanged", strerror(errno), "");
	ret = run(o, &signals);
	free(o);
	return ret == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
