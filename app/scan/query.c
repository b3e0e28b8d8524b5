/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "escaped_text.h"
#include "log.h"
#include "query.h"
#include "query_arrow.h"
#include "query_output.h"
#include "sql/result_stream.h"

LOG_REGISTER("scan.query", "scan");

#define WATCH_MS    200
#define PROGRESS_MS 1000 /* shorter queries show no progress */

const char *const query_format_names[QUERY_FORMATS] = {"table", "csv", "json", "arrow"};

/* A thread that waits for SIGINT and shows the progress. */
struct watch {
	void (*cancel)(void *arg);
	void *arg;
	const struct sql_catalog *catalog; /* NULL: no progress is shown */
	pthread_t thread;
	bool shown;
	bool interrupted; /* valid after watch_stop() */
};

void
query_warn(void *arg, const char *text)
{
	escaped_line(stderr, "%s: %s", program_invocation_short_name, text);
}

/*
 * Print an error of a session. Those of the engine have several lines, of which the first is that
 * of the message and the last may point to a place in the one before. Their text may come from the
 * statement or from files. It is escaped, and the lines are indented: none looks like a message.
 * The engine indents by tabs.
 */
void
query_print_error(const char *error)
{
	char *text = strdup(error), *line = text, *end;

	if (text == NULL) {
		query_warn(NULL, "not enough memory");
		return;
	}
	for (end = text; *end != '\0'; end++)
		*end = *end == '\t' ? ' ' : *end;
	do {
		end = strchr(line, '\n');
		if (end != NULL)
			*end++ = '\0';
		if (line == text)
			query_warn(NULL, line);
		else
			escaped_line(stderr, "%s%s", line[0] != '\0' ? "  " : "", line);
		line = end;
	} while (line != NULL);
	free(text);
}

static void
show_progress(const struct sql_catalog *c)
{
	fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " rows read", program_invocation_short_name,
		__atomic_load_n(&c->rows, __ATOMIC_RELAXED),
		__atomic_load_n(&c->rows_total, __ATOMIC_RELAXED));
}

/* Whether the output is no longer read: a pipe or socket whose other end is closed. */
static bool
is_output_broken(void)
{
	struct pollfd out = {.fd = STDOUT_FILENO};

	return poll(&out, 1, 0) > 0 && out.revents & (POLLERR | POLLHUP);
}

static void *
watch_main(void *arg)
{
	const struct timespec period = {.tv_nsec = WATCH_MS * 1000000L};
	const bool terminal = isatty(STDERR_FILENO);
	unsigned int interrupts = 0, passed = 0;
	struct watch *w = arg;
	sigset_t set;
	int got;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	for (;;) {
		got = sigtimedwait(&set, NULL, &period);
		if (got == SIGUSR1)
			return NULL;
		if (got == SIGINT && ++interrupts > 1)
			_exit(QUERY_CANCELLED); /* the output may be blocked */
		w->interrupted |= got == SIGINT;
		/* a statement that writes nothing for a long time gets no SIGPIPE from write() */
		if (interrupts == 0 && is_output_broken()) {
			kill(getpid(), SIGPIPE);
			interrupts = 1; /* it is ignored */
		}
		/* repeatedly: a statement that is about to start misses a call */
		if (interrupts > 0)
			w->cancel(w->arg);
		if (got < 0 && errno == EAGAIN && terminal && w->catalog != NULL &&
			++passed > PROGRESS_MS / WATCH_MS) {
			show_progress(w->catalog);
			w->shown = true;
		}
	}
}

/* Before the first thread starts, so that all threads have the mask. */
void
query_prepare(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int
watch_start(struct watch *w)
{
	return -pthread_create(&w->thread, NULL, watch_main, w);
}

static void
watch_stop(struct watch *w)
{
	pthread_kill(w->thread, SIGUSR1);
	pthread_join(w->thread, NULL);
	if (w->shown)
		fputs("\r\033[K", stderr);
}

/* Read the statement from standard input. @return NULL: printed */
static char *
read_statement(void)
{
	char *text = malloc(SQL_STATEMENT_MAX + 2);
	size_t length;

	if (text == NULL)
		return NULL;
	length = fread(text, 1, SQL_STATEMENT_MAX + 1, stdin);
	text[length] = '\0';
	if (ferror(stdin) || memchr(text, '\0', length) != NULL) {
		fprintf(stderr, "%s: standard input: expected a statement as text\n",
			program_invocation_short_name);
		free(text);
		return NULL;
	}
	return text;
}

static const enum sql_form query_forms[QUERY_FORMATS] = {
	[QUERY_TABLE] = SQL_TEXT,
	[QUERY_CSV] = SQL_TEXT,
	[QUERY_JSON] = SQL_SIMPLE,
	[QUERY_ARROW] = SQL_NATIVE,
};

static void
cancel_session(void *arg)
{
	sql_session_cancel(arg);
}

/* Write the result as text. */
static int
execute_text(struct sql_session *s, const char *sql, const struct query_options *o)
{
	struct ArrowArrayStream stream;
	struct ArrowSchema schema = {0};
	struct query_result result = {.stream = &stream, .schema = &schema};
	int ret;

	ret = sql_result_stream(s, &stream);
	if (ret < 0)
		return ret;
	ret = -stream.get_schema(&stream, &schema);
	if (ret == 0) {
		result.type = s->present.type;
		result.plan = sql_statement_explained(sql) != NULL;
		ret = query_output(&result, o->format, stdout);
		snprintf(s->error, sizeof(s->error), "%s", result.error);
		schema.release(&schema);
	}
	stream.release(&stream);
	return ret;
}

static int
execute(struct sql_session *s, const char *sql, const struct query_options *o)
{
	int ret = sql_session_execute(s, sql, query_forms[o->format]);

	if (ret < 0)
		return ret;
	ret = o->format == QUERY_ARROW ? query_arrow(s, stdout, o->stats) : execute_text(s, sql, o);
	if (fflush(stdout) != 0 && ret == 0) {
		snprintf(
			s->error, sizeof(s->error), "cannot write the result: %s", strerror(errno));
		ret = -EIO;
	}
	return ret;
}

/*
 * Check where the output goes, and read the statement.
 * @param text  out: to be freed by the caller
 * @return 0; -EINVAL: printed
 */
static int
read_options(const struct query_options *o, const char **sql, char **text)
{
	*sql = o->sql;
	*text = NULL;
	if (o->format == QUERY_ARROW && isatty(STDOUT_FILENO)) {
		fprintf(stderr,
			"%s: --format arrow is binary, and standard output is a terminal: redirect "
			"it to a file\n",
			program_invocation_short_name);
		return -EINVAL;
	}
	if (strcmp(o->sql, "-") == 0)
		*sql = *text = read_statement();
	return *sql != NULL ? 0 : -EINVAL;
}

int
query_session(struct sql_session *s, const char *sql, const struct query_options *o)
{
	struct watch w = {cancel_session, s, s->catalog};
	int ret = watch_start(&w);

	if (ret == 0) {
		ret = execute(s, sql, o);
		watch_stop(&w);
	} else {
		snprintf(s->error, sizeof(s->error), "cannot start a thread: %s", strerror(-ret));
	}
	if (ret < 0) {
		fflush(stdout);
		query_print_error(s->error);
	}
	if (ret == -EPROTO)
		return QUERY_CUT;
	return ret == 0 ? 0 : ret == -ECANCELED ? QUERY_CANCELLED : 1;
}

int
query(const struct scan_list *list, const struct query_options *o)
{
	const struct sql_limits limits = {
		.threads = o->threads,
		.memory = o->memory,
		.any_order = o->unordered,
		.defer = true,
		.join = true,
	};
	char problem[1024], *text = NULL;
	const char *sql = o->sql;
	struct sql_catalog catalog;
	struct sql_session session;
	struct duckdb_api api;
	int ret;

	if (read_options(o, &sql, &text) < 0)
		return 1;
	query_prepare();
	if (duckdb_api_load(&api, problem, sizeof(problem)) < 0) {
		query_warn(NULL, problem);
		free(text);
		return 1;
	}
	if (sql_catalog_create(&catalog, list, query_warn, NULL) < 0) {
		query_warn(NULL, "not enough memory");
		free(text);
		return 1;
	}
	ret = sql_session_open(&session, &api, &catalog, &limits);
	if (ret == 0) {
		ret = query_session(&session, sql, o);
	} else {
		query_print_error(session.error);
		ret = ret == -EINVAL ? QUERY_USAGE : 1;
	}
	sql_session_close(&session);
	if (ret == QUERY_CUT || (ret == 0 && catalog.damaged + catalog.incomplete > 0))
		ret = 1;
	sql_catalog_destroy(&catalog);
	free(text);
	return ret;
}

/* ------------------------------------------------------------------ remote */

static void
cancel_client(void *arg)
{
	scan_client_cancel(arg);
}

/* Read a result of a server, and write it. */
static int
output_remote(struct scan_client *c, struct ArrowArrayStream *stream, const char *sql,
	enum query_format format, char *error, size_t size)
{
	struct ArrowSchema schema = {0};
	struct query_result result = {
		stream, &schema, NULL, "", sql_statement_explained(sql) != NULL};
	const char *text;
	uint64_t nb;
	int ret;

	ret = -stream->get_schema(stream, &schema);
	if (ret < 0) {
		text = stream->get_last_error(stream);
		snprintf(error, size, "%s", text != NULL ? text : strerror(-ret));
		return ret;
	}
	result.type = scan_client_columns(c, &nb);
	if (nb != (uint64_t)schema.n_children) {
		snprintf(error, size, "the server did not send the types of the columns");
		ret = -EBADMSG;
	} else {
		ret = query_output(&result, format, stdout);
		snprintf(error, size, "%s", result.error);
	}
	schema.release(&schema);
	if (fflush(stdout) != 0 && ret == 0) {
		snprintf(error, size, "cannot write the result: %s", strerror(errno));
		ret = -EIO;
	}
	return ret;
}

/* Print what the client has received. */
static void
show_counters(const struct scan_client *c)
{
	struct scan_client_counters n;

	scan_client_counters(c, &n);
	fprintf(stderr,
		"%s: record batches %" PRIu64 ", bytes of bodies in messages %" PRIu64
		", in slots %" PRIu64 ", of these read by READ %" PRIu64
		", copied out of slots %" PRIu64 "\n",
		program_invocation_short_name, n.batches, n.inline_bytes,
		n.pushed_bytes + n.pulled_bytes, n.pulled_bytes, n.copied_bytes);
}

int
query_client(struct scan_client *c, const char *sql, const struct query_options *o)
{
	struct ArrowArrayStream stream;
	struct watch w = {.cancel = cancel_client, .arg = c};
	char error[4096] = "";
	int ret;

	ret = scan_client_query(c, sql, (enum scan_form)query_forms[o->format], &stream);
	if (ret == -EINVAL)
		snprintf(error, sizeof(error), "expected a statement of 1 to %u bytes, found %zu",
			SCAN_SQL_MAX, strlen(sql));
	else if (ret == -EPIPE)
		return ret;
	else if (ret < 0)
		snprintf(error, sizeof(error), "%s", strerror(-ret));
	if (ret == 0) {
		ret = watch_start(&w);
		if (ret == 0) {
			ret = output_remote(c, &stream, sql, o->format, error, sizeof(error));
			/* it may wait for the end of the query: another signal ends the process */
			stream.release(&stream);
			watch_stop(&w);
		} else {
			stream.release(&stream);
		}
		/* it can be repeated, but not if it was to be cancelled */
		if (ret < 0 && scan_client_was_idle(c)) {
			LOG(DEBUG, "the server ended the idle session, and no statement\n");
			if (!w.interrupted)
				return -EPIPE;
			ret = -ECANCELED;
		}
	}
	if (ret < 0) {
		fflush(stdout);
		query_print_error(error);
	} else if (o->stats) {
		show_counters(c);
	}
	if (ret == 0 && scan_client_left_out(c) > 0) {
		fflush(stdout);
		snprintf(error, sizeof(error),
			"the tables of the server lack rows: damaged batches, incomplete files and "
			"unreadable folders: %" PRIu64 "; the log of the server names them",
			scan_client_left_out(c));
		query_warn(NULL, error);
		return 1;
	}
	return ret == 0 ? 0 : ret == -ECANCELED ? QUERY_CANCELLED : 1;
}

static void
give_up(void *arg)
{
	__atomic_store_n((bool *)arg, true, __ATOMIC_RELAXED);
}

int
query_connect(struct scan_client **c, const struct scan_client_config *server)
{
	struct scan_client_config config = *server;
	bool given_up = false;
	struct watch w = {.cancel = give_up, .arg = &given_up};
	struct scan_client_error refused;
	int ret = watch_start(&w);

	config.give_up = &given_up;
	if (ret < 0) {
		snprintf(refused.text, sizeof(refused.text), "cannot start a thread: %s",
			strerror(-ret));
	} else {
		ret = scan_client_open(c, &config, &refused);
		watch_stop(&w);
	}
	/* just before the end of the watch */
	if (ret == 0 && w.interrupted) {
		scan_client_close(*c);
		ret = -ECANCELED;
		snprintf(refused.text, sizeof(refused.text), "the connection was given up");
	}
	if (ret == -ECANCELED && !w.interrupted) {
		ret = -EPIPE;
		snprintf(refused.text, sizeof(refused.text), "cannot write the result: %s",
			strerror(EPIPE));
	}
	if (ret == 0)
		return 0;
	*c = NULL;
	query_print_error(refused.text);
	return ret;
}

int
query_remote(const struct scan_client_config *server, const struct query_options *o)
{
	struct scan_client *c;
	const char *sql;
	char *text;
	int ret;

	if (read_options(o, &sql, &text) < 0)
		return 1;
	ret = query_connect(&c, server);
	if (ret < 0) {
		free(text);
		return ret == -ECANCELED ? QUERY_CANCELLED : 1;
	}
	ret = query_client(c, sql, o);
	if (ret == -EPIPE) {
		query_print_error("the connection to the server has ended");
		ret = 1;
	}
	scan_client_close(c);
	free(text);
	return ret;
}
