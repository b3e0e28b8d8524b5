/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_log.h>

#include "arrow/tables.h"
#include "egress/damaged_batches.h"
#include "egress/kept_ledger.h"
#include "io/durable_file.h"
#include "io/own_file.h"

extern int egress_logtype;

#define LOG(level, ...) rte_log(RTE_LOG_##level, egress_logtype, "egress: " __VA_ARGS__)

#define FILES_MAX 1000
#define HEAD	  512 /* bytes in front of the bytes of each batch, and of each part of the space */

/* ---- the quarantine file --------------------------------------------------------------------- */

/* The parts of the file: heads, and bytes of the journal. */
struct content {
	struct iovec *part;
	size_t nb;
	uint8_t *heads; /* of all batches and parts of the space */
	size_t nb_heads;
};

static void
add_part(struct content *c, const uint8_t *bytes, uint64_t size)
{
	if (size > 0)
		c->part[c->nb++] = (struct iovec){(void *)(uintptr_t)bytes, size};
}

/* Begin a batch or a part of the space. @return where its text ends */
static uint8_t *
add_head(struct content *c, uint64_t size, const char *text)
{
	uint8_t *head = c->heads + HEAD * c->nb_heads++;

	snprintf(
		(char *)head, HEAD - JOURNAL_RECORD_BYTES, "bytes = %" PRIu64 "\n%s\n", size, text);
	add_part(c, head, HEAD);
	return head + HEAD - JOURNAL_RECORD_BYTES;
}

/* @return whether its position is known */
static bool
add_batch(struct content *c, const struct journal *journal, uint32_t batch)
{
	struct journal_damage d;
	struct iovec part[JOURNAL_PARTS];
	char text[256];
	uint64_t size;
	uint32_t i, n;

	(void)journal_damage_get(journal, batch, &d);
	journal_damage_text(journal, batch, text, sizeof(text));
	size = d.batch.metadata != NULL ? XFER_BLOCK + d.batch.body_bytes : 0;
	memcpy(add_head(c, size, text), d.record, JOURNAL_RECORD_BYTES);
	if (size > 0)
		add_part(c, d.batch.metadata, XFER_BLOCK);
	n = journal_parts(&d.batch, part);
	for (i = 0; i < n; i++)
		add_part(c, part[i].iov_base, part[i].iov_len);
	return size > 0 || !d.held;
}

static bool
is_zero(const uint8_t *block)
{
	static const uint8_t zeros[XFER_BLOCK];

	return memcmp(block, zeros, XFER_BLOCK) == 0;
}

/*
 * Add all that no sound batch occupies, without zeros at the end of each part. This includes every
 * output slot that no sound batch refers to. A record whose checksum is wrong does not say which of
 * them its batch had: each number in it may be wrong, so the table of references that it leads to
 * may be that of another batch, which was released. The free space has such tables of many released
 * batches, and the slots in them are nearly all. To choose among them would risk the only copy of a
 * batch to save space on a disk once, until someone has examined the file.
 */
static void
add_space(struct content *c, const struct journal *journal)
{
	const uint8_t *bytes;
	uint32_t at = 0;
	uint64_t size;

	while ((bytes = journal_damage_space(journal, &at, &size)) != NULL) {
		while (size > 0 && is_zero(bytes + size - XFER_BLOCK))
			size -= XFER_BLOCK;
		if (size == 0)
			continue;
		(void)add_head(
			c, size, "free space, which has the batches whose position is unknown");
		add_part(c, bytes, size);
	}
}

static int
create_file(
	const struct content *c, const char *directory, uint64_t receiver_id, char path[PATH_MAX])
{
	char number[16] = "";
	char message[PATH_MAX];
	unsigned int i;
	int ret;

	ret = own_folder_make(directory, OWN_FOLDER_DATA, message);
	if (ret < 0) {
		LOG(ERR, "%s\n", message);
		return ret;
	}
	close(ret);
	for (i = 1, ret = -EEXIST; i <= FILES_MAX && ret == -EEXIST; i++) {
		if (i > 1)
			snprintf(number, sizeof(number), ".%u", i);
		if (snprintf(path, PATH_MAX, "%s/journal-%016" PRIx64 ".quarantine%s", directory,
			    receiver_id, number) >= PATH_MAX)
			return -ENAMETOOLONG;
		/* other users must not read data that they could not read in the journal */
		ret = durable_file_create_parts(path, c->part, c->nb, OWN_SECRET_MODE);
	}
	return ret;
}

/* Write all damaged batches to a new file. */
static int
write_file(const struct journal *journal, uint64_t nb, const char *directory, char path[PATH_MAX])
{
	struct content c = {0};
	bool known = true;
	uint64_t size;
	struct journal_damage d;
	size_t heads, parts = 0;
	uint32_t n, at = 0;
	int ret;

	for (heads = nb; journal_damage_space(journal, &at, &size) != NULL; heads++)
		;
	for (n = journal_damage_next(journal, 0); n != UINT32_MAX;
		n = journal_damage_next(journal, n + 1)) {
		(void)journal_damage_get(journal, n, &d);
		parts += d.batch.nb_parts;
	}
	/* a head, and the metadata or a part of the space, for each */
	c.part = calloc(2 * heads + parts, sizeof(*c.part));
	c.heads = calloc(heads, HEAD);
	path[0] = '\0';
	ret = c.part != NULL && c.heads != NULL ? 0 : -ENOMEM;
	for (n = journal_damage_next(journal, 0); n != UINT32_MAX && ret == 0;
		n = journal_damage_next(journal, n + 1))
		known &= add_batch(&c, journal, n);
	if (ret == 0 && !known)
		add_space(&c, journal);
	if (ret == 0)
		ret = create_file(&c, directory, journal_receiver_id(journal), path);
	free(c.part);
	free(c.heads);
	return ret;
}

/* ---- the ledger ------------------------------------------------------------------------------ */

/*
 * Count the rows of a batch in the ledger that has them. A batch of images whose rows were not put
 * belongs to frames that are lost at the restart.
 */
static void
count(struct ledger_kept *before, const struct journal_damage *d)
{
	const struct journal_batch *b = &d->batch;

	if (!d->run_known || !d->held)
		return;
	if (d->run.incarnation == before->incarnation) {
		if (b->last <= before->retained_frame)
			ledger_count_damaged(before->retained, b->table, b->rows, false);
	} else if (d->run.run == before->run && strcmp(d->run.name, before->name) == 0) {
		ledger_count_damaged(before->earlier, b->table, b->rows, true);
	}
}

/* Note the stores that may have copies of a batch, if there may be two. */
static void
note_doubt(const struct journal *journal, const struct journal_damage *d,
	struct damaged_batches *found)
{
	uint16_t stores = d->batch.given;
	struct journal_store store;
	unsigned int i;

	if (!d->held && d->batch.owner < JOURNAL_STORES)
		stores |= 1u << d->batch.owner;
	for (i = 0; i < JOURNAL_STORES && !d->stores_known; i++)
		stores |= (uint16_t)journal_store_get(journal, i, &store) << i;
	if (d->held && __builtin_popcount(stores) < 2)
		return;
	found->doubts++;
	found->stores |= stores;
}

static void
log_in_doubt(const struct journal *journal, const struct damaged_batches *found)
{
	struct journal_store store;
	unsigned int i;

	if (found->doubts == 0)
		return;
	LOG(ERR,
		"there may be two copies of %" PRIu64 " of the damaged batches: in two of these "
		"stores, or in one and in spilled files. No store will be told to truncate one: "
		"run braggline-store reconcile on the directories of all of them\n",
		found->doubts);
	for (i = 0; i < JOURNAL_STORES; i++) {
		if ((found->stores & 1u << i) != 0 && journal_store_get(journal, i, &store))
			LOG(ERR, "    store %016" PRIx64 ", last seen at %s\n", store.identity,
				store.address);
	}
}

/* Count and free one batch. It is counted only once, whenever the process is killed. */
static void
take_out(struct journal *journal, uint32_t batch, struct ledger_kept *before,
	struct damaged_batches *found)
{
	const uint64_t number = (uint64_t)batch + 1;
	struct journal_damage d;

	(void)journal_damage_get(journal, batch, &d);
	found->batches++;
	note_doubt(journal, &d, found);
	if (d.held && d.run_known && d.run.incarnation == before->incarnation) {
		found->nb[d.batch.table]++;
		found->rows[d.batch.table] += d.batch.rows;
	}
	if (d.known && d.held && d.batch.table == ARROW_IMAGES)
		found->frames += d.batch.rows;
	if (before->version == LEDGER_KEPT_VERSION && before->damaged_batch != number) {
		count(before, &d);
		before->damaged_batch = number;
		journal_ledger_put(journal, before, sizeof(*before));
	}
	journal_damage_drop(journal, batch);
}

int
damaged_batches_remove(struct journal *journal, const char *directory, struct ledger_kept *before,
	struct damaged_batches *found)
{
	char path[PATH_MAX], text[256];
	uint64_t nb = 0;
	uint32_t n, next;
	int ret;

	*found = (struct damaged_batches){0};
	for (n = journal_damage_next(journal, 0); n != UINT32_MAX;
		n = journal_damage_next(journal, n + 1), nb++) {
		journal_damage_text(journal, n, text, sizeof(text));
		LOG(ERR, "journal: %s\n", text);
	}
	if (nb > 0) {
		ret = write_file(journal, nb, directory, path);
		if (ret < 0) {
			LOG(ERR,
				"cannot save %" PRIu64 " damaged batches of the journal in %s: %s. "
				"The journal is unchanged; make room, or move it away and lose its "
				"batches\n",
				nb, path[0] != '\0' ? path : directory, own_file_error(ret));
			return ret;
		}
		LOG(ERR, "%" PRIu64 " damaged batches of the journal are saved in %s\n", nb, path);
	}
	for (n = journal_damage_next(journal, 0); n != UINT32_MAX; n = next) {
		next = journal_damage_next(journal, n + 1);
		take_out(journal, n, before, found);
	}
	log_in_doubt(journal, found);
	/* the number may be used again */
	if (before->version == LEDGER_KEPT_VERSION && before->damaged_batch != 0) {
		before->damaged_batch = 0;
		journal_ledger_put(journal, before, sizeof(*before));
	}
	return 0;
}
