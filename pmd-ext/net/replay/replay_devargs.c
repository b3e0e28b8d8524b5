/* SPDX-License-Identifier: BSD-3-Clause */
/* Device arguments: --vdev 'net_replay0,file=a.pcap,loops=10,...' */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_string_fns.h>

#include "replay.h"

#define ARG_FILE     "file"
#define ARG_LOOPS    "loops"
#define ARG_RATE     "rate"
#define ARG_QUEUES   "queues"
#define ARG_ALIGN_AT "align_at"
#define ARG_REWRITE  "rewrite"
#define ARG_ROCE     "roce"
#define ARG_BPS	     "bps"
#define ARG_SPEED    "speed"
#define ARG_BURST    "burst"
#define ARG_SEED     "seed"
#define ARG_STAMP    "timestamp"
#define ARG_TX	     "tx"
#define ARG_OVERRUN  "overrun"

static const char *const known_args[] = {ARG_FILE, ARG_LOOPS, ARG_RATE, ARG_BPS, ARG_SPEED,
	ARG_BURST, ARG_QUEUES, ARG_ALIGN_AT, ARG_REWRITE, ARG_ROCE, ARG_SEED, "loss", "burst_loss",
	"reorder", "duplicate", "corrupt", "truncate", ARG_STAMP, ARG_TX, ARG_OVERRUN, NULL};

/* Faults, and the meaning of the number after the probability. */
static const struct {
	const char *key;
	const char *second; /* NULL: no second number */
	uint32_t min, max;
} fault_args[REPLAY_FAULTS] = {
	[REPLAY_LOSS] = {"loss"},
	[REPLAY_BURST_LOSS] = {"burst_loss", "PACKETS", 1, UINT16_MAX},
	[REPLAY_REORDER] = {"reorder", "WINDOW", 2, REPLAY_WINDOW_MAX},
	[REPLAY_DUPLICATE] = {"duplicate"},
	[REPLAY_CORRUPT] = {"corrupt"},
	[REPLAY_TRUNCATE] = {"truncate"},
};

static int
parse_u64(const char *text, uint64_t *value)
{
	char *end;

	/* strtoull accepts signs and leading blanks */
	if (text == NULL || text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	*value = strtoull(text, &end, 0);
	return *end != '\0' || errno != 0 ? -EINVAL : 0;
}

struct number {
	const char *name; /* device name */
	uint64_t min, max;
	uint64_t value;
};

/* Logs the invalid value and what was expected. */
#define LOG_BAD(name, key, text, wanted, ...) \
	REPLAY_LOG(                           \
		ERR, "%s: %s=%s: " wanted, name, key, (text) == NULL ? "" : (text), ##__VA_ARGS__)

static int
no_memory(const char *name, const char *key)
{
	REPLAY_LOG(ERR, "%s: %s=...: cannot allocate memory", name, key);
	return -ENOMEM;
}

static int
number_arg(const char *key, const char *text, void *opaque)
{
	struct number *number = opaque;
	uint64_t value;

	if (parse_u64(text, &value) < 0 || value < number->min || value > number->max) {
		LOG_BAD(number->name, key, text, "expected a number from %" PRIu64 " to %" PRIu64,
			number->min, number->max);
		return -EINVAL;
	}
	number->value = value;
	return 0;
}

static int
file_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;
	char *file;

	if (text == NULL || *text == '\0') {
		LOG_BAD(args->name, key, text, "expected the path of a pcap or pcapng file");
		return -EINVAL;
	}
	if (args->nb_files == RTE_DIM(args->files)) {
		LOG_BAD(args->name, key, text, "at most %zu files can be merged",
			RTE_DIM(args->files));
		return -EINVAL;
	}
	file = strdup(text);
	if (file == NULL)
		return no_memory(args->name, key);
	args->files[args->nb_files++] = file;
	return 0;
}

/* Parses an unsigned decimal number that ends at `stop`. */
static int
parse_decimal(const char *text, char stop, double *value, const char **end)
{
	char *after;

	if (text == NULL || ((text[0] < '0' || text[0] > '9') && text[0] != '.'))
		return -EINVAL;
	errno = 0;
	*value = strtod(text, &after);
	if (errno != 0 || !isfinite(*value) || (*after != '\0' && *after != stop))
		return -EINVAL;
	*end = after;
	return 0;
}

static int
speed_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;
	const char *end;

	if (parse_decimal(text, '\0', &args->speed, &end) < 0 || args->speed < 1e-6 ||
		args->speed > 1e6) {
		LOG_BAD(args->name, key, text, "expected a factor from 0.000001 to 1000000");
		return -EINVAL;
	}
	return 0;
}

static int
burst_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;
	const char *colon = text == NULL ? NULL : strchr(text, ':');
	char packets[24] = "";
	uint64_t n;

	if (colon != NULL && (size_t)(colon - text) < sizeof(packets))
		memcpy(packets, text, (size_t)(colon - text));
	if (parse_u64(packets, &n) < 0 || n < 1 || n > REPLAY_BURST_MAX ||
		parse_u64(colon + 1, &args->burst_ns) < 0 || args->burst_ns < 1 ||
		args->burst_ns > UINT32_MAX) {
		LOG_BAD(args->name, key, text,
			"expected PACKETS:NS, up to %u packets every 1 to %u nanoseconds",
			REPLAY_BURST_MAX, UINT32_MAX);
		return -EINVAL;
	}
	args->burst = (uint32_t)n;
	return 0;
}

/* P or P:N */
static int
fault_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;
	struct replay_faults *faults = &args->faults;
	unsigned int kind = 0;
	const char *end = NULL;
	double chance = 0;
	uint64_t n = 0;
	bool bad;

	while (strcmp(fault_args[kind].key, key) != 0)
		kind++;
	bad = parse_decimal(text, ':', &chance, &end) < 0 || chance > 1;
	if (!bad && fault_args[kind].second != NULL)
		bad = *end != ':' || parse_u64(end + 1, &n) < 0 || n < fault_args[kind].min ||
			n > fault_args[kind].max;
	else if (!bad)
		bad = *end != '\0';
	if (bad && fault_args[kind].second != NULL)
		LOG_BAD(args->name, key, text, "expected PROBABILITY:%s, with %s from %u to %u",
			fault_args[kind].second, fault_args[kind].second, fault_args[kind].min,
			fault_args[kind].max);
	else if (bad)
		LOG_BAD(args->name, key, text, "expected a probability from 0 to 1");
	if (bad)
		return -EINVAL;
	if (kind == REPLAY_BURST_LOSS)
		faults->run = (uint32_t)n;
	else if (kind == REPLAY_REORDER)
		faults->window = (uint32_t)n;
	faults->chance[kind] = chance == 1 ? UINT64_MAX : (uint64_t)(chance * 0x1p64);
	faults->any |= chance > 0;
	return 0;
}

static int
stamp_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;

	if (text != NULL && strcmp(text, "arrival") == 0) {
		args->stamp = REPLAY_STAMP_ARRIVAL;
	} else if (text != NULL && strcmp(text, "captured") == 0) {
		args->stamp = REPLAY_STAMP_CAPTURED;
	} else {
		LOG_BAD(args->name, key, text, "expected arrival or captured");
		return -EINVAL;
	}
	return 0;
}

static int
overrun_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;

	if (text != NULL && strcmp(text, "drop") == 0) {
		args->overrun_drops = true;
	} else if (text == NULL || strcmp(text, "wait") != 0) {
		LOG_BAD(args->name, key, text, "expected wait or drop");
		return -EINVAL;
	}
	return 0;
}

static int
tx_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;

	if (text != NULL && strcmp(text, "count") == 0) {
		args->tx = REPLAY_TX_COUNT;
	} else if (text != NULL && strcmp(text, "drop") == 0) {
		args->tx = REPLAY_TX_DROP;
	} else if (text != NULL && strncmp(text, "file:", 5) == 0 && text[5] != '\0') {
		args->tx = REPLAY_TX_FILE;
		args->tx_file = strdup(text + 5);
		return args->tx_file == NULL ? no_memory(args->name, key) : 0;
	} else {
		LOG_BAD(args->name, key, text, "expected count, drop or file:PATH");
		return -EINVAL;
	}
	return 0;
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
		LOG_BAD(args->name, key, text, "at most %zu fields can be rewritten",
			RTE_DIM(args->rewrites));
		return -EINVAL;
	}
	copy = strdup(text == NULL ? "" : text);
	if (copy == NULL)
		return no_memory(args->name, key);
	ret = parse_rewrite(copy, &args->rewrites[args->nb_rewrites]);
	free(copy);
	if (ret < 0) {
		LOG_BAD(args->name, key, text,
			"expected OFFSET:LENGTH:ENDIAN:STEP, with LENGTH from 1 to 8, OFFSET + "
			"LENGTH up to %u, ENDIAN le or be, STEP an integer",
			REPLAY_FRAME_MAX);
		return ret;
	}
	for (unsigned int i = 0; i < args->nb_rewrites; i++) {
		const struct replay_rewrite *one = &args->rewrites[i];
		const struct replay_rewrite *two = &args->rewrites[args->nb_rewrites];

		if (one->offset < two->offset + two->length &&
			two->offset < one->offset + one->length) {
			LOG_BAD(args->name, key, text, "overlaps the field of %u bytes at %u",
				one->length, one->offset);
			return -EINVAL;
		}
	}
	args->nb_rewrites++;
	return 0;
}

/* STEP[:SLOTS:SLOT_BYTES[:LEADER]] */
static int
parse_roce(char *text, struct replay_roce_args *roce)
{
	uint64_t value[4] = {0};
	char *field, *save = NULL;
	unsigned int n = 0;

	for (field = strtok_r(text, ":", &save); field != NULL; field = strtok_r(NULL, ":", &save))
		if (n == RTE_DIM(value) || parse_u64(field, &value[n++]) < 0)
			return -EINVAL;
	if (n != 1 && n != 3 && n != 4)
		return -EINVAL;
	if (n > 1 &&
		(value[1] < 1 || value[1] > REPLAY_ROCE_SLOTS_MAX ||
			!rte_is_power_of_2((uint32_t)value[1]) || value[2] == 0))
		return -EINVAL;
	if (value[3] != 0 && (value[3] < 8 || value[3] > REPLAY_ROCE_LEADER_MAX))
		return -EINVAL;
	*roce = (struct replay_roce_args){.on = true,
		.step = value[0],
		.slots = (uint32_t)value[1],
		.slot_bytes = value[2],
		.leader = (uint32_t)value[3]};
	return 0;
}

static int
roce_arg(const char *key, const char *text, void *opaque)
{
	struct replay_devargs *args = opaque;
	char *copy = strdup(text == NULL ? "" : text);
	int ret;

	if (copy == NULL)
		return no_memory(args->name, key);
	ret = parse_roce(copy, &args->roce);
	free(copy);
	if (ret < 0)
		LOG_BAD(args->name, key, text,
			"expected STEP[:SLOTS:SLOT_BYTES[:LEADER]], with SLOTS a power of two up "
			"to %u, SLOT_BYTES from 1, and LEADER 0 or from 8 to %u",
			REPLAY_ROCE_SLOTS_MAX, REPLAY_ROCE_LEADER_MAX);
	return ret;
}

static int
number_of(struct rte_kvargs *kvlist, const char *name, const char *key, uint64_t min, uint64_t max,
	uint64_t *value)
{
	struct number number = {.name = name, .min = min, .max = max, .value = *value};
	int ret;

	ret = rte_kvargs_process(kvlist, key, number_arg, &number);
	*value = number.value;
	return ret < 0 ? -EINVAL : 0;
}

/* Checks combinations of arguments. */
static int
check_together(const struct replay_devargs *args, const char *name)
{
	const unsigned int paces = (args->rate != 0) + (args->bps != 0) + (args->speed != 0);

	if (paces > 1) {
		REPLAY_LOG(ERR,
			"%s: only one of " ARG_RATE ", " ARG_BPS " and " ARG_SPEED " can be given",
			name);
		return -EINVAL;
	}
	if (args->roce.on && args->nb_rewrites > 0) {
		REPLAY_LOG(ERR,
			"%s: only one of " ARG_REWRITE " and " ARG_ROCE " can be given: the "
			"invariant CRC of a RoCE packet covers all fields",
			name);
		return -EINVAL;
	}
	if (args->overrun_drops && (paces + args->burst == 0 || args->faults.any)) {
		REPLAY_LOG(ERR,
			"%s: " ARG_OVERRUN "=drop requires a pace (" ARG_RATE ", " ARG_BPS
			", " ARG_SPEED " or " ARG_BURST ") and no faults",
			name);
		return -EINVAL;
	}
	return 0;
}

static bool
is_known(const char *name, size_t length)
{
	for (unsigned int i = 0; known_args[i] != NULL; i++)
		if (strlen(known_args[i]) == length && memcmp(known_args[i], name, length) == 0)
			return true;
	return false;
}

/* Find the argument that rte_kvargs refuses. @return the fault of the argument; NULL: not found */
static const char *
find_malformed(const char *params, const char **argument, int *length)
{
	const char *at = params, *end, *equals;

	for (; *at != '\0'; at = *end == '\0' ? end : end + 1) {
		end = strchrnul(at, ',');
		equals = memchr(at, '=', end - at);
		*argument = at;
		*length = end - at;
		if (equals == NULL)
			return "has no '='";
		if (memchr(equals + 1, '=', end - equals - 1) != NULL)
			return "has more than one '='";
		if (!is_known(at, equals - at))
			return "is not known";
	}
	return NULL;
}

static void
log_known(const char *name, const char *params)
{
	char known[256] = "";
	const char *argument, *what;
	int length;

	for (unsigned int i = 0; known_args[i] != NULL; i++) {
		strlcat(known, i == 0 ? "" : ", ", sizeof(known));
		strlcat(known, known_args[i], sizeof(known));
	}
	what = params != NULL ? find_malformed(params, &argument, &length) : NULL;
	if (what != NULL)
		REPLAY_LOG(ERR,
			"%s: argument \"%.*s\" %s: expected NAME=VALUE, with ',' between "
			"arguments and no ',' or '=' in a value such as a path; the names are %s",
			name, length, argument, what, known);
	else
		REPLAY_LOG(ERR, "%s: arguments \"%s\": expected at most %u arguments, of %s", name,
			params == NULL ? "" : params, RTE_KVARGS_MAX, known);
}

int
replay_devargs_parse(struct replay_devargs *args, const char *name, const char *params)
{
	uint64_t queues = REPLAY_QUEUES_DEFAULT, align_at = REPLAY_ALIGN_AT_DEFAULT;
	struct rte_kvargs *kvlist;
	int ret = -EINVAL;

	*args = (struct replay_devargs){
		.name = name, .loops = 1, .faults = {.seed = 1, .run = 1, .window = 1}};
	kvlist = rte_kvargs_parse(params == NULL ? "" : params, known_args);
	if (kvlist == NULL) {
		log_known(name, params);
		return -EINVAL;
	}
	for (unsigned int i = 0; known_args[i] != NULL; i++)
		if (strcmp(known_args[i], ARG_REWRITE) != 0 &&
			strcmp(known_args[i], ARG_FILE) != 0 &&
			rte_kvargs_count(kvlist, known_args[i]) > 1) {
			REPLAY_LOG(ERR, "%s: %s is given more than once", name, known_args[i]);
			goto out;
		}
	if (rte_kvargs_count(kvlist, ARG_FILE) == 0) {
		REPLAY_LOG(ERR, "%s: expected " ARG_FILE "=<pcap or pcapng file>", name);
		goto out;
	}
	ret = rte_kvargs_process(kvlist, ARG_FILE, file_arg, args);
	if (ret == 0)
		ret = number_of(kvlist, name, ARG_LOOPS, 0, UINT32_MAX, &args->loops);
	if (ret == 0)
		ret = number_of(kvlist, name, ARG_RATE, 0, rte_get_tsc_hz(), &args->rate);
	if (ret == 0)
		ret = number_of(kvlist, name, ARG_BPS, 0, UINT64_C(10000000000000), &args->bps);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_SPEED, speed_arg, args);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_BURST, burst_arg, args);
	if (ret == 0)
		ret = number_of(kvlist, name, ARG_QUEUES, 1, RTE_MAX_QUEUES_PER_PORT, &queues);
	if (ret == 0)
		ret = number_of(kvlist, name, ARG_ALIGN_AT, 0, REPLAY_FRAME_MAX, &align_at);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_REWRITE, rewrite_arg, args);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_ROCE, roce_arg, args);
	if (ret == 0)
		ret = number_of(kvlist, name, ARG_SEED, 0, UINT64_MAX, &args->faults.seed);
	for (unsigned int i = 0; i < REPLAY_FAULTS && ret == 0; i++)
		ret = rte_kvargs_process(kvlist, fault_args[i].key, fault_arg, args);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_STAMP, stamp_arg, args);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_TX, tx_arg, args);
	if (ret == 0)
		ret = rte_kvargs_process(kvlist, ARG_OVERRUN, overrun_arg, args);
	if (ret == 0)
		ret = check_together(args, name);
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
	for (uint16_t i = 0; i < args->nb_files; i++)
		free(args->files[i]);
	args->nb_files = 0;
	free(args->tx_file);
	args->tx_file = NULL;
}
