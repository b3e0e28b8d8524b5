/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "escaped_text.h"
#include "io/own_file.h"
#include "plural.h"
#include "report.h"

/* Counters of the files, and of each output: name and place in the structure. */
struct counter {
	const char *name;
	size_t offset;
};

static const struct counter watch_counters[] = {
	{"runs", offsetof(struct watch_stats, runs)},
	{"batches", offsetof(struct watch_stats, batches)},
	{"images", offsetof(struct watch_stats, images)},
	{"other_kind", offsetof(struct watch_stats, other_kind)},
	{"damaged_batches", offsetof(struct watch_stats, damaged)},
	{"copies", offsetof(struct watch_stats, copies)},
	{"rows", offsetof(struct watch_stats, rows)},
	{"bytes", offsetof(struct watch_stats, bytes)},
};

static const struct counter output_counters[] = {
	{"images", offsetof(struct output_stats, images)},
	{"bytes", offsetof(struct output_stats, bytes)},
	{"unseen", offsetof(struct output_stats, unseen)},
	{"encoded", offsetof(struct output_stats, encoded)},
	{"no_room", offsetof(struct output_stats, no_room)},
	{"full", offsetof(struct output_stats, full)},
	{"skipped", offsetof(struct output_stats, skipped)},
	{"gone", offsetof(struct output_stats, gone)},
	{"damaged", offsetof(struct output_stats, damaged)},
	{"no_row", offsetof(struct output_stats, no_row)},
	{"requests", offsetof(struct output_stats, requests)},
	{"refused", offsetof(struct output_stats, refused)},
	{"lost_workers", offsetof(struct output_stats, lost)},
	{"connected", offsetof(struct output_stats, connected)},
	{"disconnected", offsetof(struct output_stats, disconnected)},
};

#define NB(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t
value_of(const void *stats, const struct counter *c)
{
	return *(const uint64_t *)((const uint8_t *)stats + c->offset);
}

/* Upper limit of a share of the times, us. */
static uint64_t
quantile(const struct output_stats *s, unsigned int percent)
{
	uint64_t all = 0, below = 0;
	unsigned int i;

	for (i = 0; i < OUTPUT_BUCKETS; i++)
		all += s->us[i];
	for (i = 0; i < OUTPUT_BUCKETS - 1; i++) {
		below += s->us[i];
		if (below * 100 >= all * percent)
			break;
	}
	/* bucket i has the times below 2^i */
	return i == OUTPUT_BUCKETS - 1 || UINT64_C(1) << i > s->slowest_us ? s->slowest_us
									   : UINT64_C(1) << i;
}

static void
print_output(const struct output *o, enum output_kind kind)
{
	struct output_stats s;

	output_stats_get(o, &s);
	printf("  %-13s %" PRIu64 " image%s, %.1f MB; clients %" PRIu64 " (%" PRIu64 " ended)",
		output_name(kind), s.images, plural(s.images, "", "s"), s.bytes / 1e6, s.connected,
		s.disconnected);
	if (s.images > 0)
		printf("; found to sent: p50 < %.2f, p95 < %.2f, longest %.2f ms",
			quantile(&s, 50) / 1e3, quantile(&s, 95) / 1e3, s.slowest_us / 1e3);
	for (size_t i = 2; i < NB(output_counters) - 2; i++) {
		if (value_of(&s, &output_counters[i]) > 0)
			printf("; %s %" PRIu64, output_counters[i].name,
				value_of(&s, &output_counters[i]));
	}
	printf("\n");
}

void
report_summary(const struct report *r)
{
	struct watch_stats w;

	watch_stats_get(r->watch, &w);
	printf("%" PRIu64 " run%s, %" PRIu64 " image%s in %" PRIu64 " batch%s", w.runs,
		plural(w.runs, "", "s"), w.images, plural(w.images, "", "s"), w.batches,
		plural(w.batches, "", "es"));
	for (size_t i = 3; i < NB(watch_counters) - 1; i++) {
		if (value_of(&w, &watch_counters[i]) > 0)
			printf("; %s %" PRIu64, watch_counters[i].name,
				value_of(&w, &watch_counters[i]));
	}
	printf("\n");
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++) {
		if (r->output[i] != NULL)
			print_output(r->output[i], i);
	}
}

void
report_waiting(const struct report *r)
{
	struct watch_stats w;
	uint64_t images;

	watch_stats_get(r->watch, &w);
	for (unsigned int i = 0; i < OUTPUT_KINDS; i++) {
		images = r->output[i] != NULL ? output_waiting(r->output[i], w.images) : 0;
		if (images > 0)
			escaped_line(stderr,
				"braggline-publish: --%s %s: %" PRIu64
				" image%s wait%s for clients",
				output_name(i), output_address(r->output[i]), images,
				plural(images, "", "s"), plural(images, "s", ""));
	}
}

static void
put_outputs(const struct report *r, FILE *f)
{
	struct output_stats s[OUTPUT_KINDS];
	uint64_t below;
	unsigned int k, i;

	for (k = 0; k < OUTPUT_KINDS; k++) {
		if (r->output[k] != NULL)
			output_stats_get(r->output[k], &s[k]);
	}
	/* all lines of a metric are together */
	for (i = 0; i < NB(output_counters); i++) {
		fprintf(f, "# TYPE braggline_publish_output_%s counter\n", output_counters[i].name);
		for (k = 0; k < OUTPUT_KINDS; k++) {
			if (r->output[k] != NULL)
				fprintf(f,
					"braggline_publish_output_%s{output=\"%s\"} %" PRIu64 "\n",
					output_counters[i].name, output_name(k),
					value_of(&s[k], &output_counters[i]));
		}
	}
	fprintf(f, "# TYPE braggline_publish_seconds histogram\n");
	for (k = 0; k < OUTPUT_KINDS; k++) {
		if (r->output[k] == NULL)
			continue;
		for (i = 0, below = 0; i < OUTPUT_BUCKETS - 1; i++) {
			below += s[k].us[i];
			fprintf(f,
				"braggline_publish_seconds_bucket{output=\"%s\",le=\"%g\"} %" PRIu64
				"\n",
				output_name(k), (UINT64_C(1) << i) / 1e6, below);
		}
		below += s[k].us[i];
		fprintf(f,
			"braggline_publish_seconds_bucket{output=\"%s\",le=\"+Inf\"} %" PRIu64
			"\nbraggline_publish_seconds_count{output=\"%s\"} %" PRIu64 "\n",
			output_name(k), below, output_name(k), below);
	}
}

static void
put_all(const struct report *r, FILE *f)
{
	struct watch_stats w;

	watch_stats_get(r->watch, &w);
	for (size_t i = 0; i < NB(watch_counters); i++)
		fprintf(f,
			"# TYPE braggline_publish_%s counter\nbraggline_publish_%s %" PRIu64 "\n",
			watch_counters[i].name, watch_counters[i].name,
			value_of(&w, &watch_counters[i]));
	put_outputs(r, f);
}

int
report_write(const struct report *r, const char *path)
{
	char part[PATH_MAX];
	int ret = own_file_may_replace(path);
	FILE *f;

	if (ret < 0)
		return ret;
	if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	f = own_file_write(part);
	if (f == NULL)
		return -errno;
	put_all(r, f);
	if (fclose(f) != 0)
		ret = -errno;
	if (ret == 0 && rename(part, path) != 0)
		ret = -errno;
	if (ret < 0)
		(void)unlink(part);
	return ret;
}
