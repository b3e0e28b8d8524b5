/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-store verify: checks that all bytes of files are unchanged since they were written. */

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "escaped_text.h"
#include "option_refuse.h"
#include "recovery/damage.h"
#include "arrow/names.h"
#include "recovery/order.h"
#include "recovery/recovery.h"
#include "io/direct_io.h"
#include "tools/command.h"
#include "tools/reconcile.h"
#include "store_tree.h"
#include "stream/source.h"

#define NS_PER_S	  1000000000ull
#define PROGRESS_S	  1  /* period of progress reports on a terminal */
#define PROGRESS_S_IN_LOG 30 /* the same if stderr is not a terminal */

static const char help[] =
	"usage: braggline-store verify [OPTION...] DIR|FILE...\n"
	"Read the files of stores in FILE and below DIR. Compare every batch with the\n"
	"CRCs that its receiver computed, and the first block and the footer with the\n"
	"CRCs of the store. Print the content of each file, and duplicate batches. List\n"
	"each damaged batch with its frames, also those that recovery has moved to a\n"
	"quarantine file, and the bytes of such a file that announce no batch. A damaged\n"
	"batch of which another of the files, of the same owner or of root, has a valid\n"
	"copy with the CRCs that the damaged batch announces is called repaired, and is not\n"
	"an error. List batches that two files have with different bytes, and runs with two\n"
	"names. Nothing is changed; stores may run.\n"
	"\n"
	"  -a, --all          also read files that import has kept (.imported)\n"
	"  -w, --whole        DIR are all stores of these runs: a batch that is in none of the\n"
	"                     files is an error\n"
	"  -q, --quiet        print only files with errors, and totals\n"
	"  -p, --progress     print progress, even if standard error is not a terminal\n"
	"  -r, --rate-mb N    read at most N MB/s\n"
	"  -h, --help         print this help and exit\n"
	"\n"
	"SIGINT stops it and prints the results so far.\n"
	"Exit status: 0: success; 1: a batch or file is damaged and not repaired,\n"
	"incomplete or duplicate, with --whole also missing, or the command was\n"
	"interrupted; 2: invalid command line.\n";

/* A damaged batch, or a damaged region that may have contained several batches. */
struct finding {
	char *path;
	struct arrow_identity identity; /* identity.table is NULL: the stream is unknown */
	bool numbered;			/* `first` and `last` are known */
	uint64_t first;
	uint64_t last;
	bool announced; /* `content` is that of its announcement */
	uint64_t content;
	bool quarantined;
	char text[ARROW_DAMAGE_TEXT];
};

struct verify {
	bool quiet;
	bool on_terminal;
	bool progress;
	uint64_t rate; /* bytes per second; 0: no limit */
	bool whole;
	struct reconcile streams;
	struct reconcile there; /* as `streams`, with damaged batches and incomplete files */
	struct finding *finding;
	size_t nb_findings;
	uint64_t files;
	uint64_t total; /* bytes of all files */
	uint64_t batches;
	uint64_t rows;
	uint64_t bytes;
	uint64_t passed; /* bytes of the files that are finished */
	uint64_t damaged;
	uint64_t repaired;    /* findings for which another file has a valid copy */
	uint64_t quarantined; /* bytes */
	uint64_t wrong;	      /* files with a fault */
	uint64_t lost;	      /* files with a fault other than a damaged batch */
	uint64_t missing;     /* batches */
	uint64_t begun;	      /* ns */
	uint64_t said;
};

static volatile sig_atomic_t interrupted;

static void
on_signal(int signal)
{
	interrupted = 1;
}

static double
seconds_since(uint64_t begun)
{
	return (double)(monotonic_ns() - begun) / NS_PER_S;
}

/* @param bytes  bytes of this file that are verified so far */
static void
show_progress(struct verify *v, const char *path, uint64_t bytes)
{
	const uint64_t now = monotonic_ns();
	const unsigned int period = v->on_terminal ? PROGRESS_S : PROGRESS_S_IN_LOG;
	const double done = v->passed + bytes, seconds = seconds_since(v->begun);
	char *name;

	if (!v->progress || now - v->said < period * NS_PER_S)
		return;
	v->said = now;
	name = escaped_text(path);
	fprintf(stderr, "%s%.1f of %.1f GB, %.2f GB/s, %.0f s left, %s%s",
		v->on_terminal ? "\r\033[K" : "", done / 1e9, v->total / 1e9, done / 1e9 / seconds,
		done > 0 ? (v->total - done) * seconds / done : 0, name != NULL ? name : "",
		v->on_terminal ? "" : "\n");
	free(name);
}

static void
clear_progress(const struct verify *v)
{
	if (v->on_terminal && v->said != v->begun)
		fprintf(stderr, "\r\033[K");
}

/* Sleep until the bytes read so far no longer exceed the rate limit. */
static void
keep_rate(const struct verify *v)
{
	const double ahead = v->rate > 0 ? (double)v->bytes / v->rate - seconds_since(v->begun) : 0;
	const struct timespec t = {ahead, (ahead - (time_t)ahead) * 1e9};

	if (ahead > 0)
		nanosleep(&t, NULL);
}

static int
add_finding(struct verify *v, const struct finding *f, const char *path)
{
	struct finding *more = realloc(v->finding, (v->nb_findings + 1) * sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	v->finding = more;
	more[v->nb_findings] = *f;
	more[v->nb_findings].path = strdup(path);
	v->damaged++;
	return more[v->nb_findings++].path != NULL ? 0 : -ENOMEM;
}

/* Check every batch of a file, including those after a damaged batch. */
static int
check_batches(struct verify *v, const char *path, struct arrow_reader *r)
{
	size_t i;
	int ret;

	for (i = 0; i < r->nb_batches && !interrupted; i++) {
		(void)arrow_recovery_check(r, i);
		v->bytes += r->batches[i].metadata_size + r->batches[i].body_length;
		show_progress(v, path, r->batches[i].offset);
		keep_rate(v);
	}
	ret = arrow_order(r);
	return ret < 0 ? ret : arrow_reader_part(r);
}

/* Record batches that a file contains, sound or damaged. */
static int
note_there(struct verify *v, const char *path, const struct arrow_identity *identity,
	const struct interval_set *have)
{
	struct stream_contents none = {0};
	struct interval_set copy = {0};
	int ret = interval_set_add_all(&copy, have);

	if (ret == 0 && identity->table != NULL)
		ret = reconcile_add(&v->there, path, identity, &copy, &none);
	interval_set_free(&copy);
	return ret;
}

static int
note_damage(struct verify *v, const char *path, const struct arrow_reader *r,
	const struct arrow_identity *identity)
{
	struct finding f;
	size_t i;
	int ret = 0;

	for (i = 0; i < r->nb_damage && ret == 0; i++) {
		f = (struct finding){.identity = *identity};
		if (f.identity.table == NULL)
			f.identity = r->only;
		if (f.identity.table == NULL && r->damage[i].announced)
			(void)stream_source_identity(&r->damage[i].batch, &f.identity);
		f.numbered = arrow_damage_sequences(r, i, &f.first, &f.last);
		f.announced = r->damage[i].announced;
		if (f.announced)
			f.content = stream_source_content(r, &r->damage[i].batch);
		arrow_damage_text(r, i, f.text);
		if (arrow_damage_is_end(r, i))
			strncat(f.text, ", or its write had not ended",
				sizeof(f.text) - strlen(f.text) - 1);
		ret = add_finding(v, &f, path);
	}
	return ret;
}

/*
 * Record a batch with an announcement and an incomplete body. Its frames follow those of the last
 * batch of the reader.
 */
static int
note_torn(struct verify *v, const char *path, const struct arrow_reader *r,
	const struct arrow_read_batch *b, const char *why, bool quarantined)
{
	struct arrow_read_damage d = {.offset = b->offset, .before = r->nb_batches};
	struct finding f = {.numbered = true,
		.announced = true,
		.content = stream_source_content(r, b),
		.quarantined = quarantined};
	struct arrow_reader one = *r;
	struct arrow_damage_frames range;
	char frames[ARROW_DAMAGE_TEXT];

	one.damage = &d;
	one.nb_damage = 1;
	arrow_damage_frames(&one, 0, &range);
	arrow_damage_frames_text(&range, frames);
	(void)stream_source_identity(b, &f.identity);
	f.first = f.last = strtoull(b->sequence, NULL, 16);
	snprintf(f.text, sizeof(f.text),
		"damaged: batch %" PRIu64 " at byte %" PRIu64 ", %.80s, its end is missing: %.100s",
		f.first, b->offset, frames, why);
	return add_finding(v, &f, path);
}

/*
 * Record the data after the last batch of an incomplete file. In a `.part` file, this may be a
 * batch that is being written, which is recorded only if the file ends within it.
 */
static int
note_end(struct verify *v, const char *path, const struct arrow_reader *r,
	const struct arrow_identity *identity)
{
	struct finding f = {.identity = *identity};
	struct arrow_read_damage d = {
		.offset = r->end,
		.length = r->size - r->end,
		.before = r->nb_batches,
		.why = ARROW_NO_ANNOUNCEMENT,
	};
	struct arrow_read_batch torn;
	struct arrow_reader one = *r;

	if (r->end >= r->size)
		return 0;
	if (arrow_reader_announced(r, r->end, &torn) == -ENODATA)
		return note_torn(v, path, r, &torn, "the file ends within it", false);
	/* the data are a damaged footer, not a batch */
	if (arrow_name_is_part(path) || r->valid > r->end)
		return 0;
	one.damage = &d;
	one.nb_damage = 1;
	arrow_damage_text(&one, 0, f.text);
	return add_finding(v, &f, path);
}

/*
 * Record bytes of a quarantine file that belong to no announced batch. Their origin is unknown, so
 * it is also unknown whether another file has a sound copy.
 */
static void
note_unannounced(
	struct verify *v, const char *path, const struct arrow_reader *r, uint64_t at, uint64_t end)
{
	struct finding f = {.quarantined = true};
	uint64_t first = UINT64_MAX, last = 0;

	for (; at < end && !interrupted; at += ARROW_BLOCK) {
		if (arrow_reader_is_zero(r, at, end - at < ARROW_BLOCK ? end - at : ARROW_BLOCK))
			continue;
		first = first < at ? first : at;
		last = (end - at < ARROW_BLOCK ? end : at + ARROW_BLOCK) - 1;
	}
	if (first == UINT64_MAX)
		return;
	snprintf(f.text, sizeof(f.text),
		"damaged: bytes %" PRIu64 " to %" PRIu64
		", truncated by recovery: " ARROW_NO_ANNOUNCEMENT,
		first, last);
	(void)add_finding(v, &f, path);
}

/* Open a file, or report it as wrong. @return false: it cannot be read */
static bool
open_file(struct verify *v, const char *path, struct arrow_reader *r)
{
	const char *problem;

	if (arrow_reader_open_read(r, path, &problem) >= 0)
		return true;
	clear_progress(v);
	escaped_line(stdout, "WRONG  %s: %s", path, problem);
	v->wrong++;
	v->lost++;
	return false;
}

/* Record the batches in a quarantine file. Recovery has removed them from their original file. */
static void
verify_quarantine(struct verify *v, const char *path)
{
	struct arrow_read_batch b;
	struct arrow_reader r;
	unsigned int nb = 0;
	uint64_t at, covered;

	if (!open_file(v, path, &r))
		return;
	covered = r.begin;
	for (at = r.begin; arrow_reader_next(&r, &at, &b) && !interrupted; nb++) {
		struct arrow_read_damage damage = {
			.offset = at,
			.length = b.metadata_size + b.body_length,
			.why = "it was truncated when the file was recovered",
			.announced = at + b.metadata_size + b.body_length <= r.size,
			.batch = b,
		};
		const struct arrow_reader one = {.data = r.data,
			.size = r.size,
			.written = r.written,
			.window = r.window,
			.schema = r.schema,
			.fields = r.fields,
			.damage = &damage,
			.nb_damage = 1,
			.nb_nodes = r.nb_nodes,
			.nb_buffers = r.nb_buffers};
		struct finding f = {.numbered = true,
			.announced = true,
			.content = stream_source_content(&r, &b),
			.quarantined = true};

		(void)stream_source_identity(&b, &f.identity);
		f.first = f.last = strtoull(b.sequence, NULL, 16);
		arrow_damage_text(&one, 0, f.text);
		if (damage.announced)
			(void)add_finding(v, &f, path);
		else
			(void)note_torn(v, path, &one, &b, damage.why, true);
		if (at > covered)
			note_unannounced(v, path, &r, covered, at);
		covered = at + damage.length > covered ? at + damage.length : covered;
		at = damage.announced ? at + damage.length : at + ARROW_BLOCK;
	}
	if (covered < r.size)
		note_unannounced(v, path, &r, covered, r.size);
	v->quarantined += r.size - r.begin;
	v->bytes += r.size;
	clear_progress(v);
	escaped_line(stdout,
		"note   %s: %" PRIu64 " bytes truncated by recovery, %u batch%s announced in them",
		path, r.size - r.begin, nb, nb == 1 ? "" : "es");
	arrow_reader_close(&r);
}

static void
verify_file(struct verify *v, const char *path)
{
	struct arrow_identity identity = {0};
	struct stream_contents contents = {0};
	struct interval_set have = {0};
	struct arrow_reader r;
	const char *problem;
	uint64_t rows = 0;
	size_t i;
	int ret;

	if (!open_file(v, path, &r))
		return;
	ret = check_batches(v, path, &r);
	for (i = 0; i < r.nb_batches; i++)
		rows += r.batches[i].rows;
	v->batches += r.nb_batches;
	v->rows += rows;
	problem = r.problem != NULL ? r.problem : arrow_recovery_frame_fault(&r);
	if (ret == 0)
		ret = stream_source_list(&r, &identity, &have, &contents);
	if (ret == -EXDEV)
		problem = "batches of no stream, or of several streams";
	/* incomplete files are listed in `there` only: their batches do not count as stored */
	if (ret == 0)
		ret = note_there(v, path, &identity, &have);
	if (ret == 0)
		ret = note_damage(v, path, &r, &identity);
	if (ret == 0 && !r.complete)
		ret = note_end(v, path, &r, &identity);
	if (ret == 0 && r.complete)
		ret = reconcile_add(&v->streams, path, &identity, &have, &contents);
	if (ret == -ENOMEM)
		problem = "cannot allocate the list of its batches";
	interval_set_free(&have);
	stream_contents_free(&contents);
	v->lost += problem != NULL;
	v->wrong += problem != NULL || r.nb_damage > 0;
	clear_progress(v);
	if (problem != NULL || r.nb_damage > 0)
		escaped_line(stdout,
			"WRONG  %s: %zu batches, %" PRIu64 " rows valid, %zu damaged%s%s", path,
			r.nb_batches, rows, r.nb_damage, problem != NULL ? ": " : "",
			problem != NULL ? problem : "");
	else if (!v->quiet)
		escaped_line(stdout, "good   %s: %zu batches, %" PRIu64 " rows, %" PRIu64 " bytes",
			path, r.nb_batches, rows, r.size);
	arrow_reader_close(&r);
}

/*
 * Whether a copy was written by the user whose file is damaged, or by root. Stores trust no other
 * file, and any user can make one with valid CRCs.
 */
static bool
has_owner(const char *copy, const struct stat *damaged)
{
	struct stat st;

	return stat(copy, &st) == 0 && (st.st_uid == damaged->st_uid || st.st_uid == 0);
}

/*
 * Whether another file has a sound copy of the batch of a finding, with the CRCs that the damaged
 * announcement names: a receiver resent it. If the announcement is lost, too, a copy cannot be
 * distinguished from another batch.
 */
static bool
is_repaired(const struct verify *v, const struct finding *f)
{
	const struct reconcile_stream *s = NULL;
	const struct closed_file *file;
	struct stat damaged;
	uint64_t content;
	bool repaired = false;
	size_t i;

	if (!f->announced || f->first != f->last || !f->numbered || f->identity.table == NULL ||
		stat(f->path, &damaged) < 0)
		return false;
	for (i = 0; i < v->streams.nb && s == NULL; i++) {
		s = &v->streams.stream[i];
		if (s->identity.receiver_id != f->identity.receiver_id ||
			s->identity.run != f->identity.run ||
			s->identity.incarnation != f->identity.incarnation ||
			strcmp(s->identity.table, f->identity.table) != 0)
			s = NULL;
	}
	for (i = 0; s != NULL && i < s->files.nb && !repaired; i++) {
		file = &s->files.file[i];
		repaired = interval_set_has(&file->have, f->first) &&
			stream_contents_get(&file->contents, f->first, &content) &&
			content == f->content && has_owner(file->path, &damaged);
	}
	return repaired;
}

static void
print_findings(struct verify *v)
{
	const struct finding *f;
	bool repaired;

	for (f = v->finding; f < v->finding + v->nb_findings; f++) {
		repaired = is_repaired(v, f);
		v->repaired += repaired;
		if (!repaired || !v->quiet)
			escaped_line(stdout, "%s%s: %s",
				repaired ? "repaired, another file has a valid copy: " : "",
				f->path, f->text);
	}
}

/*
 * Print the sequence numbers of a stream that no file has. Numbers start at 0. Batches after the
 * last number found cannot be detected.
 */
static void
print_missing(struct verify *v, const struct reconcile_stream *s)
{
	const struct arrow_identity *id = &s->identity;
	uint64_t next = 0;
	size_t i;

	for (i = 0; i < s->all.nb; i++) {
		if (s->all.at[i].first > next)
			escaped_line(stdout,
				"missing: batches %" PRIu64 " to %" PRIu64 " of %s, receiver "
				"%" PRIu64 ", run %016" PRIx64 ", incarnation %016" PRIx64 ", "
				"are in none of these files: another store has them, the "
				"receiver refused them, or a file was removed",
				next, s->all.at[i].first - 1, id->table, id->receiver_id, id->run,
				id->incarnation);
		v->missing += s->all.at[i].first - next;
		next = s->all.at[i].last + 1;
	}
}

/* Record damaged batches whose numbers are known, so that they do not count as missing. */
static int
add_findings(struct verify *v)
{
	const struct finding *f;
	int ret = 0;

	for (f = v->finding; f < v->finding + v->nb_findings && ret == 0; f++) {
		struct interval_set one = {0};

		if (!f->numbered || interval_set_add(&one, f->first, f->last) < 0)
			continue;
		ret = note_there(v, f->path, &f->identity, &one);
		interval_set_free(&one);
	}
	return ret;
}

static void
print_differing(void *arg, bool error, const char *text)
{
	escaped_line(stdout, "%s", text);
}

static int
print_totals(struct verify *v)
{
	const double seconds = seconds_since(v->begun);
	uint64_t duplicates = 0;
	size_t i;

	print_findings(v);
	if (add_findings(v) < 0) {
		fprintf(stderr, "braggline-store verify: cannot allocate a list of batches\n");
		return EXIT_FAILURE;
	}
	for (i = 0; i < v->there.nb && !interrupted; i++)
		print_missing(v, &v->there.stream[i]);
	for (i = 0; i < v->streams.nb; i++) {
		const struct reconcile_stream *s = &v->streams.stream[i];
		const uint64_t copies = reconcile_duplicates(s);

		duplicates += copies;
		v->lost += reconcile_report_names(&v->streams, s) < 0;
		if (copies > 0)
			(void)closed_files_report_differing(
				&s->files, &direct_io, print_differing, NULL);
	}
	printf("%s%" PRIu64 " files, %" PRIu64 " batches, %" PRIu64 " rows, %.3f GB, %.2f GB/s; "
	       "%" PRIu64 " files with errors, %" PRIu64 " batches damaged (%" PRIu64 " of them "
	       "repaired), %" PRIu64 " bytes in quarantine, %" PRIu64 " duplicates%s, "
	       "%" PRIu64 " missing\n",
		interrupted ? "interrupted: " : "", v->files, v->batches, v->rows, v->bytes / 1e9,
		seconds > 0 ? v->bytes / 1e9 / seconds : 0, v->wrong, v->damaged, v->repaired,
		v->quarantined, duplicates,
		duplicates > 0 ? " (run braggline-store reconcile)" : "", v->missing);
	if (fflush(stdout) != 0) {
		fprintf(stderr, "braggline-store verify: cannot write: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	return v->lost > 0 || v->damaged > v->repaired || duplicates > 0 || interrupted ||
			(v->whole && v->missing > 0)
		? EXIT_FAILURE
		: EXIT_SUCCESS;
}

static void
verify_tree(struct verify *v, const struct store_tree *tree)
{
	const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
	struct stat st;
	size_t i;

	sigaction(SIGINT, &action, NULL);
	for (i = 0; i < tree->nb; i++)
		v->total += stat(tree->path[i], &st) == 0 ? st.st_size : 0;
	for (i = 0; i < tree->nb && !interrupted; i++) {
		v->files++;
		if (arrow_name_is_quarantine(tree->path[i]))
			verify_quarantine(v, tree->path[i]);
		else
			verify_file(v, tree->path[i]);
		v->passed += stat(tree->path[i], &st) == 0 ? st.st_size : 0;
	}
}

int
cmd_verify(int argc, char **argv)
{
	static const struct option options[] = {
		{"all", no_argument, NULL, 'a'},
		{"whole", no_argument, NULL, 'w'},
		{"quiet", no_argument, NULL, 'q'},
		{"progress", no_argument, NULL, 'p'},
		{"rate-mb", required_argument, NULL, 'r'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct verify v = {.on_terminal = isatty(STDERR_FILENO),
		.streams = {.say = print_differing},
		.there = {.say = command_print}};
	struct store_tree tree = {.quarantine = true};
	char message[PATH_MAX], *end;
	int option, status;
	size_t i;

	v.progress = v.on_terminal;
	while ((option = getopt_long(argc, argv, "awqpr:h", options, NULL)) != -1) {
		switch (option) {
		case 'a':
			tree.imported = true;
			break;
		case 'p':
			v.progress = true;
			break;
		case 'r':
			v.rate = strtoull(optarg, &end, 10) * 1000000;
			if (*optarg >= '1' && *optarg <= '9' && *end == '\0')
				break;
			escaped_line(stderr,
				"braggline-store verify: --rate-mb %s: expected a rate in MB/s "
				"above 0",
				optarg);
			return EXIT_USAGE;
		case 'w':
			v.whole = true;
			break;
		case 'q':
			v.quiet = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		default:
			option_try_help("braggline-store verify");
			return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		fprintf(stderr,
			"braggline-store verify: expected at least one file or "
			"directory; see braggline-store verify --help\n");
		return EXIT_USAGE;
	}
	v.begun = v.said = monotonic_ns();
	if (store_tree_read(&tree, argv + optind, message) < 0) {
		escaped_line(stderr, "braggline-store verify: %s", message);
		status = EXIT_FAILURE;
		goto out;
	}
	verify_tree(&v, &tree);
	status = print_totals(&v);
out:
	for (i = 0; i < v.nb_findings; i++)
		free(v.finding[i].path);
	free(v.finding);
	reconcile_free(&v.streams);
	reconcile_free(&v.there);
	store_tree_free(&tree);
	return status;
}
