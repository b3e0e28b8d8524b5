/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-store import: stores spilled files and batches of journals in a store's directory. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "escaped_text.h"
#include "arrow/names.h"
#include "option_refuse.h"
#include "tools/command.h"
#include "tools/import.h"
#include "tools/orphaned_journals.h"
#include "server/audit_log.h"
#include "server/settings.h"
#include "store_tree.h"

static const char help[] =
	"usage: braggline-store import [OPTION...] --to DIR SOURCE...\n"
	"       braggline-store import [OPTION...] --config FILE [--set S.KEY=VALUE]... SOURCE...\n"
	"Import the batches of each SOURCE into the files of a store, in DIR or in\n"
	"[files] directory. A SOURCE is a spill directory of a receiver, a file in it,\n"
	"or a journal whose receiver is not running. A batch that the store already has\n"
	"is read, and stored again only if it is damaged there. Nothing of a stream is\n"
	"imported if a batch differs from the one that the store or another SOURCE has, or\n"
	"if the store has the run under another name. Source files are\n"
	"removed, and batches of a journal are released, once they are durable. Damaged\n"
	"batches stay in the journal, and are listed. The store must be stopped.\n"
	"\n"
	"A receiver locks its spilled files as long as a store may still have to truncate\n"
	"its own copies of their batches. Batches of an imported journal may also be in the\n"
	"files of other stores, which are not informed: run braggline-store reconcile when\n"
	"these stores can be reached.\n"
	"\n"
	"  -t, --to DIR                 directory of the store\n"
	"  -c, --config FILE            settings of the store\n"
	"  -s, --set SECTION.KEY=VALUE  override one setting; may be repeated\n"
	"      --keep                   rename source files to .imported, do not remove them\n"
	"  -h, --help                   print this help and exit\n"
	"\n"
	"Exit status: 0: success; 1: damage found, or failure; 2: invalid command line.\n";

struct job {
	struct import import;
	struct store_locks locks;
	struct orphaned_journals journals;
	struct store_tree tree; /* the source files */
	const char *to;
	struct config_source settings;
	struct config *config;
};

static int
fail(const char *message)
{
	escaped_line(stderr, "braggline-store import: %s", message);
	return EXIT_FAILURE;
}

/* Read the configuration: the directory of the store and the parameters of its files. */
static int
read_config(struct job *j)
{
	struct store_config settings = {0};

	j->import.root = j->to;
	if (j->settings.file == NULL && j->settings.nb_sets == 0)
		return EXIT_SUCCESS;
	j->config = config_open(&j->settings);
	if (j->config == NULL)
		return EXIT_USAGE;
	store_settings_read(&settings, j->config);
	if (config_check(j->config) != 0)
		return EXIT_USAGE;
	j->import.slices = settings.files.slices;
	if (j->to == NULL)
		j->import.root = settings.files.root;
	return EXIT_SUCCESS;
}

/*
 * Collect the sources that are files or directories, and open the others as journals.
 * @param files  out: terminated by NULL; it has room for all sources
 */
static int
sort_sources(struct job *j, char **source, char **files)
{
	char message[PATH_MAX];
	struct stat st;

	for (; *source != NULL; source++) {
		if (stat(*source, &st) < 0) {
			snprintf(message, sizeof(message), "%.3000s: %s", *source, strerror(errno));
			return fail(message);
		}
		if (S_ISDIR(st.st_mode) || arrow_name_is_part(*source) ||
			arrow_name_is_complete(*source))
			*files++ = *source;
		else if (orphaned_journals_add(&j->journals, *source, message) < 0)
			return fail(message);
	}
	*files = NULL;
	return EXIT_SUCCESS;
}

static bool
is_same_object(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/*
 * Refuse files of the store itself: otherwise it would have to remove the files that it has just
 * stored.
 */
static int
check_other(const struct job *j)
{
	char above[PATH_MAX + 4], message[PATH_MAX];
	const char *path;
	size_t i;

	for (i = 0; i < j->tree.nb; i++) {
		path = j->tree.path[i];
		snprintf(above, sizeof(above), "%s", path);
		(void)dirname(above);
		if (!is_same_object(above, j->import.root))
			strcat(above, "/..");
		if (!is_same_object(above, j->import.root))
			continue;
		snprintf(message, sizeof(message),
			"source and destination are the same: %.2000s is in %.1500s already; "
			"name another SOURCE, or another directory (--to)",
			path, j->import.root);
		return fail(message);
	}
	return EXIT_SUCCESS;
}

/*
 * List the source files and lock their directories.
 * @return 0; > 0: incomplete files stay; < 0: the list is incomplete, or must not be used
 */
static int
take_files(struct job *j, char **source)
{
	char message[PATH_MAX];
	int left;

	if (*source == NULL)
		return 0;
	left = store_tree_take(&j->tree, &j->locks, source, command_report_recovery, message);
	if (left < 0)
		(void)fail(message);
	else if (check_other(j) != EXIT_SUCCESS)
		left = -EINVAL;
	else if (left > 0)
		(void)fail("incomplete files stay");
	return left;
}

/* Compare all sources with the store and with each other, before any of them is imported. */
static int
compare(struct job *j)
{
	int status = EXIT_SUCCESS;
	size_t i, nb = 0;
	char *path;

	for (i = 0; i < j->tree.nb; i++) {
		path = j->tree.path[i];
		if (arrow_name_is_part(path) || import_compare_file(&j->import, path) == 0) {
			j->tree.path[nb++] = path;
			continue;
		}
		/* it was reported, and is not imported */
		free(path);
		status = EXIT_FAILURE;
	}
	j->tree.nb = nb;
	if (import_compare_sources(&j->import) < 0)
		status = EXIT_FAILURE;
	for (i = 0; i < j->journals.nb; i++)
		if (import_compare_journal(&j->import, j->journals.journal[i]) < 0)
			status = EXIT_FAILURE;
	import_compare_end(&j->import);
	return status;
}

static int
import_files(struct job *j)
{
	int status = EXIT_SUCCESS;
	size_t i;

	for (i = 0; i < j->tree.nb; i++) {
		if (arrow_name_is_part(j->tree.path[i]))
			continue;
		if (import_file(&j->import, j->tree.path[i]) < 0)
			status = EXIT_FAILURE;
	}
	return status;
}

/* @param damaged  0: at the start */
static void
audit(const struct job *j, uint64_t damaged)
{
	char *root = escaped_text(j->import.root);

	if (damaged > 0)
		AUDIT(WARNING, "import damaged=%" PRIu64 " user=%u directory=%s", damaged, getuid(),
			root != NULL ? root : "");
	else
		AUDIT(NOTICE, "import user=%u directory=%s", getuid(), root != NULL ? root : "");
	free(root);
}

static int
work(struct job *j, char **source, char **files)
{
	const struct import_counts *n = &j->import.counts;
	char message[PATH_MAX];
	uint64_t batches;
	bool damaged;
	unsigned int i;
	int status, left;

	if (store_locks_add(&j->locks, j->import.root, message) < 0)
		return fail(message);
	audit(j, 0);
	status = sort_sources(j, source, files);
	if (status != EXIT_SUCCESS)
		return status;
	damaged = orphaned_journals_report_damage(&j->journals, &batches, command_print, NULL);
	left = take_files(j, files);
	/* sources that were not compared may differ from all others */
	if (left < 0)
		return EXIT_FAILURE;
	status = compare(j);
	if (left > 0)
		status = EXIT_FAILURE;
	/* before the first source is removed, see orphaned_journals.h */
	orphaned_journals_forget(&j->journals, import_is_kept, &j->import);
	if (import_files(j) != EXIT_SUCCESS || damaged)
		status = EXIT_FAILURE;
	for (i = 0; i < j->journals.nb; i++) {
		if (import_journal(&j->import, j->journals.journal[i]) < 0)
			status = EXIT_FAILURE;
	}
	if (n->damaged > 0) {
		audit(j, n->damaged);
		printf("%" PRIu64 " batches in the store are damaged; stored the copies of the "
		       "sources\n",
			n->damaged);
	}
	printf("%" PRIu64 " batches stored, %" PRIu64 " already stored, %" PRIu64 " left in the "
	       "source\n",
		n->stored, n->duplicates, n->failed + batches);
	return status;
}

/* @return 0: continue; > 0: exit with success; < 0: invalid arguments */
static int
parse_arguments(struct job *j, int argc, char **argv)
{
	static const struct option options[] = {
		{"to", required_argument, NULL, 't'},
		{"config", required_argument, NULL, 'c'},
		{"set", required_argument, NULL, 's'},
		{"keep", no_argument, NULL, 'k'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "t:c:s:h", options, NULL)) != -1) {
		switch (option) {
		case 't':
			j->to = optarg;
			break;
		case 'c':
			j->settings.file = optarg;
			break;
		case 's':
			if (config_source_set(&j->settings, optarg) < 0)
				return -EINVAL;
			break;
		case 'k':
			j->import.keep = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 1;
		default:
			option_try_help("braggline-store import");
			return -EINVAL;
		}
	}
	if (optind == argc ||
		(j->to == NULL && j->settings.file == NULL && j->settings.nb_sets == 0)) {
		fprintf(stderr,
			"braggline-store import: expected sources and a directory (--to or "
			"--config); see braggline-store import --help\n");
		return -EINVAL;
	}
	return 0;
}

int
cmd_import(int argc, char **argv)
{
	struct job j = {.import = {.say = command_print}};
	char **files;
	int status, ret;

	ret = parse_arguments(&j, argc, argv);
	if (ret != 0)
		return ret > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	status = read_config(&j);
	files = calloc(argc + 1, sizeof(char *));
	if (status == EXIT_SUCCESS)
		status = files != NULL ? work(&j, argv + optind, files) : EXIT_FAILURE;
	free(files);
	import_free(&j.import);
	store_tree_free(&j.tree);
	orphaned_journals_close(&j.journals);
	store_locks_free(&j.locks);
	if (j.config != NULL)
		config_close(j.config);
	return status;
}
