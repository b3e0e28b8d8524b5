/* SPDX-License-Identifier: BSD-3-Clause */
/* The device arguments: --vdev 'net_replay0,file=a.pcap,loops=10,...' */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "replay.h"

#define ARG_FILE     "file"
#define ARG_LOOPS    "loops"
#define ARG_RATE     "rate"
#define ARG_QUEUES   "queues"
#define ARG_ALIGN_AT "align_at"
#define ARG_REWRITE  "rewrite"

static const char *const known_args[] = {
	ARG_FILE, ARG_LOOPS, ARG_RATE, ARG_QUEUES, ARG_ALIGN_AT, ARG_REWRITE, NULL};

static int
parse_u64(const char *text, uint64_t *value)
{
	char *end;

	/* strtoull takes signs and leading blanks */
	if (text == NULL || text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	*value = strtoull(text, &end, 0);
	return *end != '\0' || errno != 0 ? -EINVAL : 0;
}

struct number {
	uint64_t min, max;
	uint64_t value;
};

static int
number_arg(const char *key, const char *text, void *opaque)
{
	struct number *number = opaque;
	uint64_t value;

	if (parse_u64(text, &value) < 0 || value < number->min || value > number->max) {
		REPLAY_LOG(ERR, "%s=%s: a number from %" PRIu64 " to %" PRIu64 " is wanted", key,
			text == NULL ? "" : text, number->min, number->max);
		return -EINVAL;
	}
	number->value = value;
	return 0;
}

static int
file_arg(const char *key, const char *text, void *opaque)
{
	char **file = opaque;

	if (text == NULL || *text == '\0') {
		REPLAY_LOG(ERR, "%s=: the path of a pcap or pcapng file is wanted", key);
		return -EINVAL;
	}
	*file = strdup(text);
	return *file == NULL ? -ENOMEM : 0;
}

/* OFFSET:LENGTH:ENDIAN:STEP */
static int
parse_rewrite(char *text, struct replay_rewrite *rewrite)
{
	char *field[4], *save = NULL;
	uint64_t offset, length;
	bool negative;

	for (unsigned int i = 0; i < RTE_DIM(field); i++) {
		field[i] = strtok_r(i == 0 ? text : NULL, ":", &save);
		if (field[i] == NULL)
			return -EINVAL;
	}
	if (strtok_r(NULL, ":", &save) != NULL)
		return -EINVAL;
	if (parse_u64(field[0], &offset) < 0 || parse_u64(field[1], &length) < 0)
		return -EINVAL;
	if (length < 1 || length > 8 || offset > REPLAY_FRAME_MAX - length)
		return -EINVAL;
	if (strcmp(field[2], "le") != 0 && strcmp(field[2], "be") != 0)
		return -EINVAL;
	negative = field[3][0] == '-';
	if (parse_u64(field[3] + negative, &rewrite->step) < 0)
		return -EINVAL;
	if (negative)
		rewrite->step = -rewrite->step;
	rewrite->offset = (uint16_t)offset;
	rewrite->length = (uint8_t)length;
	rewrite->big_endian = field[2][0] == 'b';
	return 0;
}

static int
rewrite_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;
	char *copy;
	int ret;

	if (args->nb_rewrites == RTE_DIM(args->rewrites)) {
		REPLAY_LOG(ERR, "%s=%s: at most %zu fields can be rewritten", key, text,
			RTE_DIM(args->rewrites));
		return -EINVAL;
	}
	copy = strdup(text == NULL ? "" : text);
	if (copy == NULL)
		return -ENOMEM;
	ret = parse_rewrite(copy, &args->rewrites[args->nb_rewrites]);
	free(copy);
	if (ret < 0) {
		REPLAY_LOG(ERR,
			"%s=%s: OFFSET:LENGTH:ENDIAN:STEP is wanted, with LENGTH from 1 to 8, "
			"OFFSET + LENGTH up to %u, ENDIAN le or be, STEP an integer",
			key, text == NULL ? "" : text, REPLAY_FRAME_MAX);
		return ret;
	}
	for (unsigned int i = 0; i < args->nb_rewrites; i++) {
		const struct replay_rewrite *one = &args->rewrites[i];
		const struct replay_rewrite *two = &args->rewrites[args->nb_rewrites];

		if (one->offset < two->offset + two->length &&
			two->offset < one->offset + one->length) {
			REPLAY_LOG(ERR, "%s=%s: overlaps the field of %u bytes at %u", key, text,
				one->length, one->offset);
			return -EINVAL;
		}
	}
	args->nb_rewrites++;
	return 0;
}

static int
number_of(struct rte_kvargs *kvlist, const char *key, uint64_t min, uint64_t max, uint64_t *value)
{
	struct number number = {.min = min, .max = max, .value = *value};
	int ret;

	ret = rte_kvargs_process(kvlist, key, number_arg, &number);
	*value = number.value;
	return ret < 0 ? -EINVAL : 0;
}

int
replay_devargs_parse(struct replay_devargs *args, const char *name, const char *params)
{
	uint64_t queues = REPLAY_QUEUES_DEFAULT, align_at = REPLAY_ALIGN_AT_DEFAULT;
	struct rte_kvargs *kvlist;
	int ret = -EINVAL;

	*args = (struct replay_devargs){.loops = 1};
	kvlist = rte_kvargs_parse(params == NULL ? "" : params, known_args);
	if (kvlist == NULL) {
		REPLAY_LOG(ERR,
			"%s: arguments \"%s\": known are " ARG_FILE ", " ARG_LOOPS ", " ARG_RATE
			", " ARG_QUEUES ", " ARG_ALIGN_AT ", " ARG_REWRITE,
			name, params == NULL ? "" : params);
		return -EINVAL;
	}
	for (unsigned int i = 0; known_args[i] != NULL; i++)
		if (strcmp(known_args[i], ARG_REWRITE) != 0 &&
			rte_kvargs_count(kvlist, known_args[i]) > 1) {
			REPLAY_LOG(ERR, "%s: %s is given more than once", name, known_args[i]);
			goto out;
		}
	if (rte_kvargs_count(kvlist, ARG_FILE) == 0) {
		REPLAY_LOG(ERR, "%s: " ARG_FILE "=<pcap or pcapng file> is missing", name);
		goto out;
	}
	ret = rte_kvargs_process(kvlist, ARG_FILE, file_arg, &args->file);
	if (ret == 0)
		ret = number_of(kvlist, ARG_LOOPS, 0, UINT32_MAX, &args->loops);
	if (ret == 0)
		ret = number_of(kvlist, ARG_RATE, 0, rte_get_tsc_hz(), &args->rate);
	if (ret == 0)
		ret = number_of(kvlist, ARG_QUEUES, 1, RTE_MAX_QUEUES_PER_PORT, &queues);
	if (ret == 0)
		ret = number_of(kvlist, ARG_ALIGN_AT, 0, REPLAY_FRAME_MAX, &align_at);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_REWRITE, rewrite_arg, args);
	args->queues = (uint16_t)queues;
	args->align_at = (uint16_t)align_at;
out:
	rte_kvargs_free(kvlist);
	if (ret < 0)
		replay_devargs_free(args);
	return ret < 0 ? -EINVAL : 0;
}

void
replay_devargs_free(struct replay_devargs *args)
{
	free(args->file);
	args->file = NULL;
}
