/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "adbc/pipe.h"
#include "scan/list.h"
#include "statements.h"

/* A file when an engine was opened; zeros: it could not be found. */
struct stamp {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec changed;
};

/* An engine, and the files that it knows. */
struct engine {
	struct sql_catalog catalog;
	struct sql_session session;
	bool opened;
	struct stamp *stamp; /* of all files, in the order of the catalog */
	size_t nb_stamps;
};

/* ------------------------------------------------------------------ statements and answers */

/*
 * Read the next statement.
 * @param sql  out: to be freed by the caller
 * @return 1; 0: the input has ended; -EINVAL, -ENOMEM: printed
 */
static int
read_statement(char **sql)
{
	struct pipe_statement head;
	const size_t nb = fread(&head, 1, sizeof(head), stdin);

	if (nb == 0 && !ferror(stdin))
		return 0;
	if (nb < sizeof(head) || head.magic != PIPE_STATEMENT ||
		head.length > SQL_STATEMENT_MAX + 1) {
		query_warn(NULL, "standard input: expected a statement of the driver of ADBC");
		return -EINVAL;
	}
	*sql = malloc(head.length + 1);
	if (*sql == NULL) {
		query_warn(NULL, "not enough memory");
		return -ENOMEM;
	}
	(*sql)[head.length] = '\0';
	if (fread(*sql, 1, head.length, stdin) == head.length &&
		memchr(*sql, '\0', head.length) == NULL)
		return 1;
	query_warn(NULL, "standard input: a statement is not complete, or is not text");
	free(*sql);
	return -EINVAL;
}

/* End an answer. @return false: the reader of the output has exited, or a message was truncated */
static bool
end_answer(int status)
{
	const struct pipe_end end = {PIPE_END, (uint32_t)status};

	return !ferror(stdout) && fwrite(&end, sizeof(end), 1, stdout) == 1 && fflush(stdout) == 0;
}

/* An interrupt that arrived between two statements belongs to none of them. */
static void
forget_interrupts(void)
{
	const struct timespec now = {0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	while (sigtimedwait(&set, NULL, &now) > 0)
		;
}

/* Execute statements until the input ends. @return exit status */
static int
serve_statements(int (*execute)(void *arg, const char *sql), void *arg)
{
	int ret, status;
	char *sql;

	while ((ret = read_statement(&sql)) > 0) {
		forget_interrupts();
		status = execute(arg, sql);
		free(sql);
		/* the driver would take the end of the answer for a part of the message */
		if (status == QUERY_CUT || !end_answer(status))
			return 1;
		/* an engine that was interrupted executes no further statement */
		if (status == QUERY_CANCELLED)
			return status;
	}
	return ret < 0 ? 1 : 0;
}

/* ------------------------------------------------------------------ local */

struct local {
	char *const *path;
	int nb_paths;
	struct query_options options;
	struct duckdb_api api;
	struct engine *engine; /* NULL: none is open */
};

static void
engine_free(struct engine *e)
{
	if (e == NULL)
		return;
	if (e->opened)
		sql_session_close(&e->session);
	sql_catalog_destroy(&e->catalog);
	free(e->stamp);
	free(e);
}

static struct stamp
stamp_of(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return (struct stamp){0};
	return (struct stamp){st.st_dev, st.st_ino, st.st_size, st.st_ctim};
}

/* Note the state of all files of the catalog. @return 0; -ENOMEM */
static int
stamp_files(struct engine *e)
{
	const struct sql_catalog *c = &e->catalog;
	const struct sql_files *files;
	struct stamp *more;
	size_t i, k;

	for (i = 0; i < c->nb_runs * ARROW_TABLES; i++) {
		files = &c->run[i / ARROW_TABLES].table[i % ARROW_TABLES];
		more = realloc(e->stamp, (e->nb_stamps + files->nb + 1) * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		e->stamp = more;
		for (k = 0; k < files->nb; k++)
			e->stamp[e->nb_stamps++] = stamp_of(files->file[k].path);
	}
	return 0;
}

/* Find the runs. @param missing  out: a path has none, which was printed @return NULL: printed */
static struct engine *
engine_create(const struct local *l, bool *missing)
{
	struct engine *e = calloc(1, sizeof(*e));
	struct scan_list list = {0};
	int i;

	*missing = false;
	for (i = 0; i < l->nb_paths; i++)
		*missing |= scan_list_add(&list, l->path[i]) < 0;
	if (list.nb == 0)
		goto fail; /* printed */
	if (e == NULL || sql_catalog_create(&e->catalog, &list, query_warn, NULL) < 0) {
		query_warn(NULL, "not enough memory");
		goto fail;
	}
	scan_list_free(&list);
	if (stamp_files(e) == 0)
		return e;
	query_warn(NULL, "not enough memory");
	engine_free(e);
	return NULL;
fail:
	scan_list_free(&list);
	free(e);
	return NULL;
}

static bool
is_same_stamp(const struct stamp *a, const struct stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
		a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* Whether two engines have the same runs, with the same files that have not changed. */
static bool
is_same(const struct engine *a, const struct engine *b)
{
	const struct sql_files *x, *y;
	size_t i, k;

	if (a->catalog.nb_runs != b->catalog.nb_runs || a->nb_stamps != b->nb_stamps)
		return false;
	for (i = 0; i < a->nb_stamps; i++)
		if (!is_same_stamp(&a->stamp[i], &b->stamp[i]))
			return false;
	for (i = 0; i < a->catalog.nb_runs; i++)
		if (strcmp(a->catalog.run[i].name, b->catalog.run[i].name) != 0)
			return false;
	for (i = 0; i < a->catalog.nb_runs * ARROW_TABLES; i++) {
		x = &a->catalog.run[i / ARROW_TABLES].table[i % ARROW_TABLES];
		y = &b->catalog.run[i / ARROW_TABLES].table[i % ARROW_TABLES];
		if (x->nb != y->nb)
			return false;
		for (k = 0; k < x->nb; k++)
			if (strcmp(x->file[k].path, y->file[k].path) != 0)
				return false;
	}
	return true;
}

static int
execute_local(void *arg, const char *sql)
{
	struct local *l = arg;
	const struct sql_limits limits = {.threads = l->options.threads,
		.memory = l->options.memory,
		.any_order = l->options.unordered,
		.defer = true,
		.join = true};
	struct engine *e;
	bool missing, damaged;
	int status, ret;

	e = engine_create(l, &missing);
	if (e == NULL)
		return 1;
	if (l->engine != NULL && is_same(l->engine, e)) {
		engine_free(e);
		e = l->engine;
	} else {
		engine_free(l->engine);
		e->opened = true;
		ret = sql_session_open(&e->session, &l->api, &e->catalog, &limits);
		if (ret < 0) {
			query_print_error(e->session.error);
			engine_free(e);
			l->engine = NULL;
			return ret == -EINVAL ? QUERY_USAGE : 1;
		}
	}
	l->engine = e;
	status = query_session(&e->session, sql, &l->options);
	/* an engine reports a damaged file once, and cannot be used after some errors */
	damaged = e->catalog.damaged + e->catalog.incomplete > 0;
	if (status != 0 || damaged) {
		engine_free(e);
		l->engine = NULL;
	}
	return status == 0 && (missing || damaged) ? 1 : status;
}

int
statements_local(char *const *path, int nb, const struct query_options *o)
{
	struct local l = {.path = path, .nb_paths = nb, .options = *o};
	char problem[1024];
	int ret;

	l.options.format = QUERY_ARROW;
	query_prepare();
	if (duckdb_api_load(&l.api, problem, sizeof(problem)) < 0) {
		query_warn(NULL, problem);
		return 1;
	}
	ret = serve_statements(execute_local, &l);
	engine_free(l.engine);
	return ret;
}

/* ------------------------------------------------------------------ remote */

struct remote {
	const struct scan_client_config *server;
	struct query_options options;
	struct scan_client *client; /* NULL: not connected */
};

static int
execute_remote(void *arg, const char *sql)
{
	struct remote *r = arg;
	int status = -EPIPE;

	if (r->client != NULL)
		status = query_client(r->client, sql, &r->options);
	if (status != -EPIPE)
		return status;
	/* the server ends connections that are idle for long */
	if (r->client != NULL)
		scan_client_close(r->client);
	r->client = NULL;
	status = query_connect(&r->client, r->server);
	if (status < 0)
		return status == -ECANCELED ? QUERY_CANCELLED : 1;
	status = query_client(r->client, sql, &r->options);
	if (status == -EPIPE)
		query_warn(NULL, "the connection to the server has ended");
	return status == -EPIPE ? 1 : status;
}

int
statements_remote(const struct scan_client_config *server, const struct query_options *o)
{
	struct remote r = {.server = server, .options = *o};
	int ret;

	r.options.format = QUERY_ARROW;
	ret = serve_statements(execute_remote, &r);
	if (r.client != NULL)
		scan_client_close(r.client);
	return ret;
}
