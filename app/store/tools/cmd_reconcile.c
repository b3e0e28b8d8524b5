/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-store reconcile: removes duplicates, so that each batch is in one file only. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "escaped_text.h"
#include "arrow/names.h"
#include "option_refuse.h"
#include "tools/command.h"
#include "io/direct_io.h"
#include "tools/orphaned_journals.h"
#include "tools/reconcile.h"
#include "server/audit_log.h"
#include "server/identity.h"
#include "store_tree.h"

static const char help[] =
	"usage: braggline-store reconcile [OPTION...] DIR...\n"
	"Remove batches that two stores have from one of them, so that each batch is in\n"
	"one file. DIR are the directories of stores ([files] directory), of all stores\n"
	"that may have batches of the same runs, and spill directories of receivers.\n"
	"\n"
	"Use it for streams whose receiver will not start again, or whose journal is\n"
	"given. A receiver that starts again reports its reassigned batches to stores,\n"
	"which then remove them: the copy that this command kept may be one of them. The\n"
	"command removes the records of reassigned batches from a journal that is given.\n"
	"\n"
	"If the process or the machine fails meanwhile, each batch stays in at least one\n"
	"file; run the command again. Batches after a duplicate that are in no other\n"
	"file are first copied to a file of their own. Stores that use a DIR\n"
	"must be stopped.\n"
	"\n"
	"Nothing of a run is changed if two copies of a batch differ, if the run has two\n"
	"names, or if a file with duplicates is damaged. If the run has ended in one DIR, it\n"
	"is marked as ended in each DIR that keeps batches of it.\n"
	"\n"
	"  -j, --journal FILE  journal of a receiver that is not running; may be repeated\n"
	"      --without-journal  assume that journals that are not given no longer exist\n"
	"  -n, --dry-run       change nothing, print what would be done\n"
	"  -h, --help          print this help and exit\n"
	"\n"
	"Exit status: 0: success; 1: damage found, or failure; 2: invalid command line.\n";

#define STORES_MAX 256

struct job {
	struct reconcile reconcile;
	struct store_locks locks;
	const char *ring_path[ORPHANED_JOURNALS_MAX];
	unsigned int nb_rings;
	struct orphaned_journals journals;
	uint64_t identity[STORES_MAX]; /* identities of the stores whose files are examined */
	size_t nb_identities;
};

static int
fail(const char *message)
{
	escaped_line(stderr, "braggline-store reconcile: %s", message);
	return EXIT_FAILURE;
}

/*
 * Check that the journal of every run that has duplicates is open here, so that no receiver can
 * still change the batches of these runs.
 */
static int
check_rings(const struct job *j)
{
	const struct reconcile_stream *s;
	char message[PATH_MAX];
	size_t i;

	for (i = 0; i < j->reconcile.nb; i++) {
		s = &j->reconcile.stream[i];
		if (reconcile_duplicates(s) == 0 ||
			orphaned_journals_has(&j->journals, &s->identity))
			continue;
		snprintf(message, sizeof(message),
			"run %016" PRIx64 ", incarnation %016" PRIx64 " of receiver "
			"%016" PRIx64 " has duplicates, and no given journal has this run; give "
			"the journal of its receiver (--journal), or use --without-journal if "
			"that journal no longer exists",
			s->identity.run, s->identity.incarnation, s->identity.receiver_id);
		return fail(message);
	}
	return EXIT_SUCCESS;
}

/* Read the files. Except in a dry run, `.part` files are completed first, as at a store's start. */
static int
read_files(struct job *j, char **dir)
{
	struct store_tree tree = {.ended = true};
	char message[PATH_MAX];
	int left, ret, status = EXIT_SUCCESS;
	size_t i;

	left = store_tree_take(&tree, &j->locks, dir,
		j->reconcile.dry_run ? NULL : command_report_recovery, message);
	if (left < 0)
		status = fail(message);
	if (left > 0)
		status = fail("incomplete files have unknown batches");
	for (i = 0; i < tree.nb && status == EXIT_SUCCESS; i++) {
		ret = reconcile_add_mark(&j->reconcile, tree.path[i]);
		if (ret == -ENOMEM)
			status = fail("cannot allocate a list of files");
		if (ret != -EINVAL)
			continue;
		if (arrow_name_is_part(tree.path[i]))
			escaped_line(stdout, "%s is incomplete and was skipped", tree.path[i]);
		else if (reconcile_read(&j->reconcile, tree.path[i]) < 0)
			status = EXIT_FAILURE;
	}
	store_tree_free(&tree);
	return status;
}

/* Read the identity of the store that owns a directory, from it or from its parent directory. */
static int
find_identity(struct job *j, const char *dir)
{
	char above[PATH_MAX], message[PATH_MAX];
	int ret;

	if (j->nb_identities == STORES_MAX)
		return fail("too many directories");
	ret = store_identity_read(dir, &j->identity[j->nb_identities], message);
	if (ret == -ENOENT && snprintf(above, sizeof(above), "%s/..", dir) < (int)sizeof(above))
		ret = store_identity_read(above, &j->identity[j->nb_identities], message);
	j->nb_identities += ret == 0;
	/* a spill directory of a receiver has no identity */
	return ret == 0 || ret == -ENOENT ? EXIT_SUCCESS : fail(message);
}

/* Add a stream of which two journals hold different batches, if no file of it was read. */
static int
add_differing(void *arg, const struct arrow_identity *identity)
{
	struct stream_contents held = {0};
	struct interval_set differing = {0};
	struct job *j = arg;
	int ret;

	ret = orphaned_journals_contents(&j->journals, identity, &held, &differing);
	if (ret == 0 && differing.nb > 0 && reconcile_stream_of(&j->reconcile, identity) == NULL)
		ret = -ENOMEM;
	stream_contents_free(&held);
	interval_set_free(&differing);
	return ret;
}

/*
 * Compare the batches that journals hold with each other, and with those in the files. A stream
 * with differing batches is left unchanged, in the files and in the journals.
 */
static int
compare_held(struct job *j, struct reconcile_stream *s)
{
	const struct arrow_identity *id = &s->identity;
	struct stream_contents held = {0};
	struct interval_set differing = {0};
	const char *path;
	size_t i;
	int ret;

	ret = orphaned_journals_contents(&j->journals, id, &held, &differing);
	for (i = 0; i < held.nb && ret == 0; i++) {
		if (closed_files_compare(&s->files, held.at[i].sequence, held.at[i].crc, &path) >=
			0)
			continue;
		escaped_line(stderr,
			"different: batch %" PRIu64 " of %s has other bytes in the journal than in "
			"%s; nothing of this run is changed. Find out which is the receiver's, "
			"move the other away, and repeat the command",
			held.at[i].sequence, s->identity.table, path);
		s->kept = true;
	}
	for (i = 0; i < differing.nb; i++) {
		escaped_line(stderr,
			"different: batches %" PRIu64 " to %" PRIu64 " of %s, receiver "
			"%016" PRIx64 ", run %016" PRIx64 ", incarnation %016" PRIx64 ", have "
			"other bytes in one journal than in another; nothing of this run is "
			"changed. Find out which journal is the receiver's, and repeat the command "
			"without the other",
			differing.at[i].first, differing.at[i].last, id->table, id->receiver_id,
			id->run, id->incarnation);
		s->kept = true;
	}
	stream_contents_free(&held);
	interval_set_free(&differing);
	return ret;
}

/* Release the held batches of a stream that are durable in files and were verified there. */
static int
release(struct job *j, struct reconcile_stream *s)
{
	struct interval_set held = {0}, sound = {0};
	uint64_t damaged = 0;
	int ret;

	ret = orphaned_journals_held(&j->journals, &s->identity, &held);
	if (ret == 0 && held.nb > 0)
		ret = reconcile_check(&j->reconcile, s, &held, &sound, &damaged);
	if (ret == 0)
		(void)orphaned_journals_release(&j->journals, &s->identity, &sound);
	if (damaged > 0)
		AUDIT(WARNING,
			"reconcile damaged=%" PRIu64 " user=%u receiver_id=%" PRIu64
			" run=%016" PRIx64 " incarnation=%016" PRIx64 " table=%s",
			damaged, getuid(), s->identity.receiver_id, s->identity.run,
			s->identity.incarnation, s->identity.table);
	interval_set_free(&held);
	interval_set_free(&sound);
	return ret < 0 || damaged > 0 ? -EBADMSG : 0;
}

static int
work(struct job *j, char **dir)
{
	struct reconcile *r = &j->reconcile;
	char message[PATH_MAX];
	uint64_t batches;
	bool damaged;
	char *name;
	unsigned int i;
	int status, ret;

	for (i = 0; dir[i] != NULL; i++) {
		if (store_locks_add(&j->locks, dir[i], message) < 0)
			return fail(message);
		if (find_identity(j, dir[i]) != EXIT_SUCCESS)
			return EXIT_FAILURE;
		name = escaped_text(dir[i]);
		AUDIT(NOTICE, "reconcile user=%u directory=%s dry_run=%u", getuid(),
			name != NULL ? name : "", r->dry_run);
		free(name);
	}
	for (i = 0; i < j->nb_rings; i++) {
		if (orphaned_journals_add(&j->journals, j->ring_path[i], message) < 0)
			return fail(message);
	}
	status = read_files(j, dir);
	if (status == EXIT_SUCCESS)
		status = check_rings(j);
	if (status != EXIT_SUCCESS)
		return status;
	damaged = orphaned_journals_report_damage(&j->journals, &batches, command_print, NULL);
	orphaned_journals_report_others(
		&j->journals, j->identity, j->nb_identities, command_print, NULL);
	ret = orphaned_journals_streams(&j->journals, add_differing, j);
	for (i = 0; i < r->nb && ret == 0; i++)
		ret = compare_held(j, &r->stream[i]);
	if (ret < 0)
		return fail("cannot allocate a list of batches");
	(void)reconcile_inspect(r);
	/* before the first copy is removed, see orphaned_journals.h */
	if (!r->dry_run)
		orphaned_journals_forget(&j->journals, reconcile_is_kept, r);
	ret = reconcile_run(r);
	/*
	 * Release the batches even if other streams failed. Otherwise, a receiver would send a held
	 * batch again to a store whose copy was just removed.
	 */
	for (i = 0; i < r->nb && !r->dry_run; i++)
		if (r->stream[i].result == 0 && release(j, &r->stream[i]) < 0)
			ret = -EBADMSG;
	escaped_line(stdout,
		"%zu streams, %" PRIu64 " batches, %" PRIu64 " duplicates; %" PRIu64 " files "
		"%struncated, %" PRIu64 " batches removed, %" PRIu64 " of them copied",
		r->nb, r->batches, r->duplicates, r->files, r->dry_run ? "to be " : "", r->cut,
		r->copied);
	return ret == 0 && !damaged ? EXIT_SUCCESS : EXIT_FAILURE;
}

int
cmd_reconcile(int argc, char **argv)
{
	static const struct option options[] = {
		{"journal", required_argument, NULL, 'j'},
		{"without-journal", no_argument, NULL, 'w'},
		{"dry-run", no_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct job j = {.reconcile = {.io = &direct_io, .say = command_print}};
	int option, status;

	while ((option = getopt_long(argc, argv, "j:nh", options, NULL)) != -1) {
		switch (option) {
		case 'j':
			if (j.nb_rings == ORPHANED_JOURNALS_MAX) {
				fprintf(stderr,
					"braggline-store reconcile: at most %u journals "
					"(--journal)\n",
					ORPHANED_JOURNALS_MAX);
				return EXIT_USAGE;
			}
			j.ring_path[j.nb_rings++] = optarg;
			break;
		case 'w':
			j.journals.without = true;
			break;
		case 'n':
			j.reconcile.dry_run = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		default:
			option_try_help("braggline-store reconcile");
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		fprintf(stderr,
			"braggline-store reconcile: expected at least one directory; see "
			"braggline-store reconcile --help\n");
		return EXIT_USAGE;
	}
	status = work(&j, argv + optind);
	reconcile_free(&j.reconcile);
	orphaned_journals_close(&j.journals);
	store_locks_free(&j.locks);
	return status;
}
