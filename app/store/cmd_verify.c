/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-store verify: every byte of files is what it was when it was written. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow_recovery.h"
#include "arrow_slices.h"
#include "command.h"
#include "reconcile.h"
#include "store_tree.h"
#include "stream_source.h"

#define NS_PER_S	  1000000000ull
#define PROGRESS_S	  1  /* on a terminal, */
#define PROGRESS_S_IN_LOG 30 /* and elsewhere */

static const char help[] =
	"usage: braggline-store verify [OPTION...] DIR|FILE...\n"
	"Read the files of stores below DIR and compare every batch with the CRCs that its\n"
	"receiver gave it, and the footer with the batches; say what each file has, and\n"
	"whether a batch is in two of them. Nothing is changed, stores may run.\n"
	"\n"
	"  -q, --quiet  only files that something is wrong with, and totals\n"
	"  -h, --help   this text\n"
	"\n"
	"Exit status: 0; 1 if anything is damaged, not complete, or there twice; 2 for a\n"
	"wrong command line.\n";

struct verify {
	bool quiet;
	bool on_terminal;
	struct reconcile streams;
	uint64_t files;
	uint64_t batches;
	uint64_t rows;
	uint64_t bytes;
	uint64_t damaged; /* batches */
	uint64_t wrong;	  /* files */
	uint64_t begun;	  /* ns */
	uint64_t said;
};

static double
seconds_since(uint64_t begun)
{
	return (double)(arrow_slices_clock() - begun) / NS_PER_S;
}

static void
show_progress(struct verify *v, const char *path)
{
	const uint64_t now = arrow_slices_clock();
	const unsigned int period = v->on_terminal ? PROGRESS_S : PROGRESS_S_IN_LOG;

	if (now - v->said < period * NS_PER_S)
		return;
	v->said = now;
	fprintf(stderr, "%s%.1f GB, %.2f GB/s, %s%s", v->on_terminal ? "\r\033[K" : "",
		v->bytes / 1e9, v->bytes / 1e9 / seconds_since(v->begun), path,
		v->on_terminal ? "" : "\n");
}

static void
clear_progress(const struct verify *v)
{
	if (v->on_terminal && v->said != v->begun)
		fprintf(stderr, "\r\033[K");
}

/* Every batch, also behind one that is damaged. @return the first fault; NULL: none */
static const char *
check_batches(struct verify *v, const char *path, const struct arrow_reader *r, size_t *first,
	uint64_t *rows)
{
	const char *why, *fault = NULL;
	size_t i;

	*rows = 0;
	for (i = 0; i < r->nb_batches; i++) {
		why = arrow_recovery_fault(r, i);
		v->damaged += why != NULL;
		if (why != NULL && fault == NULL) {
			fault = why;
			*first = i;
		}
		*rows += r->batches[i].rows;
		v->bytes += r->batches[i].metadata_size + r->batches[i].body_length;
		show_progress(v, path);
	}
	return fault;
}

static void
verify_file(struct verify *v, const char *path)
{
	struct arrow_identity identity = {0};
	struct interval_set have = {0};
	const char *problem, *fault;
	struct arrow_reader r;
	size_t first = 0;
	uint64_t rows;

	v->files++;
	if (arrow_reader_open(&r, path, &problem) < 0) {
		clear_progress(v);
		printf("WRONG  %s: %s\n", path, problem);
		v->wrong++;
		return;
	}
	fault = check_batches(v, path, &r, &first, &rows);
	v->batches += r.nb_batches;
	v->rows += rows;
	problem = fault != NULL ? fault : r.problem;
	if (problem == NULL && stream_source_list(&r, &identity, &have) < 0)
		problem = "batches of no stream, or of several";
	if (problem == NULL && reconcile_add(&v->streams, path, &identity, &have) < 0)
		problem = "no memory for a list of its batches";
	interval_set_free(&have);
	v->wrong += problem != NULL;
	clear_progress(v);
	if (fault != NULL)
		printf("WRONG  %s: batch %zu of %zu: %s\n", path, first, r.nb_batches, fault);
	else if (problem != NULL)
		printf("WRONG  %s: %zu batches, %" PRIu64 " rows: %s\n", path, r.nb_batches, rows,
			problem);
	else if (!v->quiet)
		printf("good   %s: %zu batches, %" PRIu64 " rows, %" PRIu64 " bytes\n", path,
			r.nb_batches, rows, r.size);
	arrow_reader_close(&r);
}

static int
print_totals(struct verify *v)
{
	const double seconds = seconds_since(v->begun);
	uint64_t doubles = 0;
	size_t i;

	for (i = 0; i < v->streams.nb; i++)
		doubles += reconcile_doubles(&v->streams.stream[i]);
	printf("%" PRIu64 " files, %" PRIu64 " batches, %" PRIu64
	       " rows, %.3f GB, %.2f GB/s; %" PRIu64 " files with something wrong, %" PRIu64
	       " batches damaged, %" PRIu64 " there twice%s\n",
		v->files, v->batches, v->rows, v->bytes / 1e9,
		seconds > 0 ? v->bytes / 1e9 / seconds : 0, v->wrong, v->damaged, doubles,
		doubles > 0 ? " (braggline-store reconcile)" : "");
	if (fflush(stdout) != 0) {
		fprintf(stderr, "braggline-store verify: cannot write: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	return v->wrong > 0 || doubles > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int
cmd_verify(int argc, char **argv)
{
	static const struct option options[] = {
		{"quiet", no_argument, NULL, 'q'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct verify v = {.on_terminal = isatty(STDERR_FILENO), .streams = {.say = command_say}};
	struct store_tree tree = {0};
	char message[PATH_MAX];
	int option, status;
	size_t i;

	while ((option = getopt_long(argc, argv, "qh", options, NULL)) != -1) {
		switch (option) {
		case 'q':
			v.quiet = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		default:
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		fprintf(stderr, "braggline-store verify: which files? See verify --help\n");
		return EXIT_USAGE;
	}
	v.begun = v.said = arrow_slices_clock();
	if (store_tree_read(&tree, argv + optind, message) < 0) {
		fprintf(stderr, "braggline-store verify: %s\n", message);
		status = EXIT_FAILURE;
		goto out;
	}
	for (i = 0; i < tree.nb; i++)
		verify_file(&v, tree.path[i]);
	status = print_totals(&v);
out:
	reconcile_free(&v.streams);
	store_tree_free(&tree);
	return status;
}
