/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runs of a journal, and the incarnations that it remembers: their records in the file, and
 * their copies in the memory of this process.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal/journal_private.h"
#include "xfer/msg.h"

/* ---- incarnations ---------------------------------------------------------------------------- */

static void
remember(struct journal *r, uint64_t incarnation)
{
	const unsigned int slot = r->nb_incarnations % JOURNAL_INCARNATIONS;
	struct ring_incarnation *to = &r->header->incarnation[slot], *i = &r->incarnation[slot];

	*i = (struct ring_incarnation){.incarnation = incarnation, .number = ++r->nb_incarnations};
	i->crc = incarnation_crc(i);
	PUT(to->incarnation, i->incarnation);
	step(r);
	PUT(to->number, i->number);
	step(r);
	PUT(to->crc, i->crc);
	step(r);
}

bool
journal_had(const struct journal *r, uint64_t incarnation)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_INCARNATIONS; i++) {
		if (r->incarnation[i].number > 0 && r->incarnation[i].incarnation == incarnation)
			return true;
	}
	/* the record of its incarnation may be damaged */
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (r->run_status[i].state == RUN_LIVE && r->run_problem[i] == NULL &&
			r->run[i].constants.incarnation == incarnation)
			return true;
	}
	return false;
}

unsigned int
journal_lost_incarnations(const struct journal *r)
{
	return r->lost_incarnations;
}

static bool
is_blank(const struct ring_incarnation *k)
{
	return k->incarnation == 0 && k->number == 0 && k->crc == 0;
}

static void
read_incarnations(struct journal *r)
{
	struct ring_incarnation *k;
	unsigned int i;
	int wrong;

	for (i = 0; i < JOURNAL_INCARNATIONS; i++) {
		k = &r->incarnation[i];
		*k = r->header->incarnation[i];
		if (is_blank(k))
			continue;
		wrong = journal_bytes_open(k, offsetof(struct ring_incarnation, crc), &k->crc);
		if (wrong < 0 || (k->number - 1) % JOURNAL_INCARNATIONS != i)
			k->number = 0;
		if (k->number == 0)
			continue;
		r->stats.corrected += wrong;
		if (k->number > r->nb_incarnations)
			r->nb_incarnations = k->number;
	}
	for (i = 0; i < JOURNAL_INCARNATIONS; i++) {
		/* a process that was killed may have left the next one half written */
		if (i != r->nb_incarnations % JOURNAL_INCARNATIONS)
			r->lost_incarnations += r->incarnation[i].number == 0 &&
				!is_blank(&r->header->incarnation[i]);
	}
}

static void
repair_incarnations(struct journal *r)
{
	struct ring_incarnation *to;
	unsigned int i;

	for (i = 0; i < JOURNAL_INCARNATIONS; i++) {
		to = &r->header->incarnation[i];
		if (r->incarnation[i].number > 0 &&
			memcmp(to, &r->incarnation[i], sizeof(*to)) != 0) {
			*to = r->incarnation[i];
			step(r);
		}
	}
}

/* ---- records of runs ------------------------------------------------------------------------- */

static bool
is_never_used(const struct ring_constants *c)
{
	static const struct ring_constants zeros;

	return memcmp(c, &zeros, sizeof(zeros)) == 0;
}

/* Read a value that has two copies; an undamaged one is better than a corrected one. */
static int
open_copies(void *to, const void *const copy[2], size_t size, uint32_t crc[2])
{
	int wrong[2];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		memcpy(to, copy[i], size);
		wrong[i] = crc[i] == arrow_crc32c(0, to, size) ? 0 : 1;
	}
	for (i = 0; i < 2; i++) {
		if (wrong[i] > 0)
			continue;
		memcpy(to, copy[i], size);
		return wrong[1 - i];
	}
	for (i = 0; i < 2; i++) {
		memcpy(to, copy[i], size);
		if (journal_bytes_open(to, size, &crc[i]) >= 0)
			return 1;
	}
	return -EBADMSG;
}

static int
open_constants(const struct ring_run *ring, struct ring_constants *to)
{
	const void *const copy[2] = {&ring->constants, &ring->copy};
	uint32_t crc[2] = {ring->constants.crc, ring->copy.crc};
	const int wrong = open_copies(to, copy, offsetof(struct ring_constants, crc), crc);

	to->crc = constants_crc(to);
	return wrong;
}

/* @return as journal_bytes_open(); -ENOMEM */
static int
open_schema(const struct ring_run *ring, struct run *run, unsigned int t)
{
	const uint32_t size = run->constants.schema_bytes[t], known = run->constants.schema_crc[t];
	const void *const copy[2] = {ring->schema[t][0], ring->schema[t][1]};
	uint32_t crc[2] = {known, known};
	int wrong;

	run->schema[t] = malloc(size > 0 ? size : 1);
	if (run->schema[t] == NULL)
		return -ENOMEM;
	wrong = open_copies(run->schema[t], copy, size, crc);
	/* the checksum itself is part of the constants, and right */
	return wrong >= 0 && known != arrow_crc32c(0, run->schema[t], size) ? -EBADMSG : wrong;
}

/* @return what is wrong with the constants of a run, regardless of their checksum; NULL: nothing */
static const char *
find_problem(const struct ring_constants *c)
{
	unsigned int t;

	for (t = 0; t < XFER_TABLES; t++) {
		if (c->schema_bytes[t] > JOURNAL_SCHEMA || c->body_max[t] > XFER_BODY_MAX)
			return "a size is out of range";
	}
	return xfer_name_check(c->name) ? NULL : "its name is not valid in file names";
}

/* The numbers of a run that change. Those that are damaged get a safe value. */
static void
read_counts(struct journal *r, unsigned int index)
{
	const struct ring_run *ring = &r->ring_run[index];
	struct run *run = &r->run[index];
	uint64_t batches[XFER_TABLES];
	uint32_t crc = ring->batches_crc;
	int wrong[2];

	if (r->run_status[index].ended) {
		memcpy(batches, ring->batches, sizeof(batches));
		wrong[0] = journal_bytes_open(batches, sizeof(batches), &crc);
		/* as if its receiver was killed before it ended */
		r->run_status[index].ended = wrong[0] >= 0;
		r->stats.corrected += wrong[0] != 0;
		if (wrong[0] >= 0)
			memcpy(run->batches, batches, sizeof(batches));
	}
	wrong[0] = journal_status_open(ring->spilled, &run->spilled);
	wrong[1] = journal_status_open(ring->spilling, &run->spilling);
	r->stats.corrected += (wrong[0] == 1) + (wrong[1] == 1);
	run->spilled_lost =
		wrong[0] < 0 || wrong[1] < 0 || (run->spilling & SPILLING_MASK) > r->nb_batches;
	if (!run->spilled_lost)
		return;
	run->spilled = JOURNAL_UNCOUNTED;
	run->spilling = 0;
}

/*
 * Read a run. If its status is damaged, its record decides: a sound record is that of a run. If the
 * run was dropped, it has no batches.
 * @return 0; -ENOMEM
 */
static int
read_run(struct journal *r, unsigned int index)
{
	const struct ring_run *ring = &r->ring_run[index];
	struct run_status *s = &r->run_status[index];
	struct run *run = &r->run[index];
	const char **problem = &r->run_problem[index];
	unsigned int t;
	uint32_t value;
	int wrong;

	wrong = journal_status_open(ring->status, &value);
	*s = (struct run_status){.state = value & 0xff, .ended = value >> 8 & 0xff};
	r->stats.corrected += wrong == 1;
	if (wrong >= 0 && s->state == RUN_FREE)
		return 0;
	if (wrong < 0 && is_never_used(&ring->constants) && is_never_used(&ring->copy)) {
		*s = (struct run_status){.state = RUN_FREE};
		r->stats.corrected++;
		return 0;
	}
	*problem = "its state is out of range";
	if (wrong >= 0 && (s->state > RUN_LIVE || s->ended > 1))
		return 0;
	if (wrong >= 0)
		*problem = "wrong checksums of its constants";
	wrong = wrong < 0 ? 1 : 0;
	if (wrong > 0)
		*s = (struct run_status){.state = RUN_LIVE};
	r->stats.corrected += wrong;
	wrong = open_constants(ring, &run->constants);
	if (wrong < 0)
		return 0;
	r->stats.corrected += wrong;
	*problem = find_problem(&run->constants);
	for (t = 0; t < XFER_TABLES && *problem == NULL; t++) {
		wrong = open_schema(ring, run, t);
		if (wrong == -ENOMEM)
			return -ENOMEM;
		if (wrong < 0)
			*problem = "wrong checksums of a schema";
		else
			r->stats.corrected += wrong;
	}
	if (*problem == NULL)
		read_counts(r, index);
	return 0;
}

int
journal_runs_read(struct journal *r)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < JOURNAL_RUNS && ret == 0; i++)
		ret = read_run(r, i);
	read_incarnations(r);
	return ret;
}

/* Write what never changes of a run, both copies. */
static void
put_constants(struct journal *r, unsigned int index)
{
	struct ring_run *ring = &r->ring_run[index];
	const struct run *run = &r->run[index];
	unsigned int t, i;

	for (t = 0; t < XFER_TABLES; t++) {
		for (i = 0; i < SCHEMA_COPIES; i++)
			memcpy(ring->schema[t][i], run->schema[t], run->constants.schema_bytes[t]);
	}
	step(r);
	ring->constants = run->constants;
	step(r);
	ring->copy = run->constants;
	step(r);
}

static void
put_batches(struct journal *r, unsigned int index)
{
	struct ring_run *ring = &r->ring_run[index];

	memcpy(ring->batches, r->run[index].batches, sizeof(ring->batches));
	ring->batches_crc = batches_crc(ring->batches);
	step(r);
}

static void
put_count(struct journal *r, uint64_t *word, uint32_t value)
{
	if (*word == status_seal(value))
		return;
	PUT(*word, status_seal(value));
	step(r);
}

static void
put_spilled(struct journal *r, unsigned int index)
{
	put_count(r, &r->ring_run[index].spilled, r->run[index].spilled);
}

static void
put_spilling(struct journal *r, unsigned int index)
{
	put_count(r, &r->ring_run[index].spilling, r->run[index].spilling);
}

/* Write the same values again, which changes only wrong bits, and the numbers that are lost. */
static void
repair_run(struct journal *r, unsigned int index)
{
	const struct ring_run *ring = &r->ring_run[index];
	const struct run *run = &r->run[index];
	const size_t size = sizeof(run->constants);
	bool wrong;
	unsigned int t, i;

	wrong = memcmp(&ring->constants, &run->constants, size) != 0 ||
		memcmp(&ring->copy, &run->constants, size) != 0;
	for (t = 0; t < XFER_TABLES; t++) {
		for (i = 0; i < SCHEMA_COPIES; i++)
			wrong |= memcmp(ring->schema[t][i], run->schema[t],
					 run->constants.schema_bytes[t]) != 0;
	}
	if (wrong)
		put_constants(r, index);
	if (r->run_status[index].ended &&
		(memcmp(ring->batches, run->batches, sizeof(run->batches)) != 0 ||
			ring->batches_crc != batches_crc(run->batches)))
		put_batches(r, index);
	/* in this order, as journal_run_spilled() */
	put_spilled(r, index);
	put_spilling(r, index);
}

void
journal_runs_repair(struct journal *r)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (r->run_problem[i] != NULL)
			continue;
		if (r->run_status[i].state == RUN_LIVE)
			repair_run(r, i);
		if (r->ring_run[i].status != run_status_seal(r->run_status[i]))
			put_run_status(r, i, r->run_status[i]);
	}
	repair_incarnations(r);
}

static void
free_run(struct run *run)
{
	unsigned int t;

	for (t = 0; t < XFER_TABLES; t++)
		free(run->schema[t]);
	memset(run, 0, sizeof(*run));
}

void
journal_runs_free(struct journal *r)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_RUNS; i++)
		free_run(&r->run[i]);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int
copy_run(struct run *run, const struct journal_run *from)
{
	struct ring_constants *c = &run->constants;
	unsigned int t;

	*run = (struct run){.constants = {.run = from->run, .incarnation = from->incarnation}};
	memcpy(c->name, from->name, sizeof(c->name));
	for (t = 0; t < XFER_TABLES; t++) {
		c->schema_bytes[t] = from->schema_bytes[t];
		c->body_max[t] = from->body_max[t];
		c->schema_crc[t] = arrow_crc32c(0, from->schema[t], from->schema_bytes[t]);
		run->schema[t] = malloc(from->schema_bytes[t] > 0 ? from->schema_bytes[t] : 1);
		if (run->schema[t] == NULL)
			return -ENOMEM;
		memcpy(run->schema[t], from->schema[t], from->schema_bytes[t]);
	}
	c->crc = constants_crc(c);
	return 0;
}

int
journal_run_add(struct journal *r, const struct journal_run *from)
{
	unsigned int i, t;

	/* the name becomes part of file names, also in a process that adopts the journal */
	if (!xfer_name_check(from->name))
		return -EINVAL;
	for (t = 0; t < XFER_TABLES; t++) {
		if (from->schema_bytes[t] > JOURNAL_SCHEMA)
			return -E2BIG;
	}
	for (i = 0; i < JOURNAL_RUNS && r->run_status[i].state != RUN_FREE; i++)
		;
	if (i == JOURNAL_RUNS)
		return -ENOSPC;
	if (copy_run(&r->run[i], from) < 0) {
		free_run(&r->run[i]);
		return -ENOMEM;
	}
	put_constants(r, i);
	put_spilled(r, i);
	put_spilling(r, i);
	remember(r, from->incarnation);
	put_run_status(r, i, (struct run_status){.state = RUN_LIVE});
	return (int)i;
}

void
journal_run_end(struct journal *r, unsigned int run, const uint64_t batches[XFER_TABLES])
{
	memcpy(r->run[run].batches, batches, sizeof(r->run[run].batches));
	put_batches(r, run);
	put_run_status(r, run, (struct run_status){.state = RUN_LIVE, .ended = 1});
}

/* Whether any damaged batch may be of this run. That of a damaged record may be of any run. */
static bool
has_damage(const struct journal *r, unsigned int run)
{
	uint32_t i;

	for (i = journal_damage_next(r, 0); i != UINT32_MAX; i = journal_damage_next(r, i + 1)) {
		if (!record_is_known(r->is[i]) || r->known[i].run == run)
			return true;
	}
	return false;
}

int
journal_run_drop(struct journal *r, unsigned int run)
{
	if (r->references[run] > 0 || has_damage(r, run))
		return -EBUSY;
	put_run_status(r, run, (struct run_status){.state = RUN_FREE});
	free_run(&r->run[run]);
	return 0;
}

bool
journal_run_get(const struct journal *r, unsigned int index, struct journal_run *to)
{
	const struct run *run;
	unsigned int t;

	if (index >= JOURNAL_RUNS || r->run_status[index].state != RUN_LIVE ||
		r->run_problem[index] != NULL)
		return false;
	run = &r->run[index];
	memset(to, 0, sizeof(*to));
	to->run = run->constants.run;
	to->incarnation = run->constants.incarnation;
	memcpy(to->name, run->constants.name, sizeof(to->name));
	for (t = 0; t < XFER_TABLES; t++) {
		to->schema[t] = run->schema[t];
		to->schema_bytes[t] = run->constants.schema_bytes[t];
		to->body_max[t] = run->constants.body_max[t];
		to->batches[t] = r->run_status[index].ended ? run->batches[t] : 0;
	}
	to->ended = r->run_status[index].ended;
	to->spilled = run->spilled;
	to->spilled_lost = run->spilled_lost;
	to->references = r->references[index];
	to->held = r->held[index];
	return true;
}

const char *
journal_run_damage(const struct journal *r, unsigned int index)
{
	return index < JOURNAL_RUNS ? r->run_problem[index] : NULL;
}

/* ---- number of spilled batches --------------------------------------------------------------- */

static uint32_t
spilling_word(uint32_t batch, uint32_t spilled)
{
	return spilled << SPILLING_BITS | (batch + 1);
}

void
journal_run_spilled(struct journal *r, unsigned int run, uint64_t batches)
{
	struct run *to = &r->run[run];

	to->spilled = batches < JOURNAL_UNCOUNTED ? batches : JOURNAL_UNCOUNTED;
	to->spilling = 0;
	/* in this order: if the process dies in between, the number is not too low */
	put_spilled(r, run);
	put_spilling(r, run);
}

void
journal_spilling(struct journal *r, unsigned int run, uint32_t batch)
{
	struct run *to = &r->run[run];

	if (to->spilled == JOURNAL_UNCOUNTED)
		return;
	to->spilling = spilling_word(batch, to->spilled + 1);
	put_spilling(r, run);
}

void
journal_spilled(struct journal *r, unsigned int run)
{
	if (r->run[run].spilled == JOURNAL_UNCOUNTED)
		return;
	r->run[run].spilled++;
	put_spilled(r, run);
}

void
journal_runs_count(struct journal *r)
{
	struct run *run;
	unsigned int i;
	uint32_t batch;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		run = &r->run[i];
		if ((run->spilling & SPILLING_MASK) == 0 || run->spilled == JOURNAL_UNCOUNTED)
			continue;
		batch = (run->spilling & SPILLING_MASK) - 1;
		/* otherwise it is counted: its number may have been used again since */
		if (run->spilling != spilling_word(batch, run->spilled + 1))
			continue;
		if (r->status[batch].state != BATCH_HELD || !record_is_known(r->is[batch]) ||
			r->is[batch] == RECORD_STATUS_DAMAGED || r->known[batch].run != i)
			run->spilled++;
	}
}

void
journal_spill_dropped(struct journal *r, uint32_t batch)
{
	const bool known = record_is_known(r->is[batch]);
	const uint8_t owner = r->status[batch].owner;
	unsigned int i;

	/* no owner: its status may be damaged */
	if (r->status[batch].state != BATCH_HELD ||
		(owner != JOURNAL_SPILL && owner != JOURNAL_NOBODY))
		return;
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (r->run_status[i].state != RUN_LIVE || r->run_problem[i] != NULL ||
			(known && i != r->known[batch].run) ||
			(owner == JOURNAL_NOBODY && r->run[i].spilled == 0))
			continue;
		journal_run_spilled(r, i, JOURNAL_UNCOUNTED);
	}
}
