/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow/tables.h"
#include "egress/damaged_batches.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "log.h"
#include "plural.h"

LOG_REGISTER("egress", "egress");

#define FILES_MAX 1000
#define HEAD	  512 /* bytes in front of the bytes of each batch, and of each part of the space */

/* ---- the list -------------------------------------------------------------------------------- */

static void
add_part(struct iovec *part, size_t *nb, const uint8_t *bytes, uint64_t size)
{
	if (size > 0)
		part[(*nb)++] = (struct iovec){(void *)(uintptr_t)bytes, size};
}

/* Begin a batch or a part of the space. @return where its text ends */
static uint8_t *
write_head(uint8_t *head, uint64_t size, const char *text)
{
	snprintf(
		(char *)head, HEAD - JOURNAL_RECORD_BYTES, "bytes = %" PRIu64 "\n%s\n", size, text);
	return head + HEAD - JOURNAL_RECORD_BYTES;
}

/* @return whether its position is known */
static bool
add_batch(struct damaged_list *l, const struct journal *journal, uint32_t batch)
{
	uint8_t *head = l->heads + HEAD * l->nb;
	struct journal_damage d;
	struct iovec part[JOURNAL_PARTS];
	char text[256];
	uint64_t size;
	uint32_t i, n;

	(void)journal_damage_get(journal, batch, &d);
	journal_damage_text(journal, batch, text, sizeof(text));
	size = d.batch.metadata != NULL ? XFER_BLOCK + d.batch.body_bytes : 0;
	memcpy(write_head(head, size, text), d.record, JOURNAL_RECORD_BYTES);
	l->batch[l->nb++] = batch;
	add_part(l->part, &l->nb_parts, head, HEAD);
	if (size > 0)
		add_part(l->part, &l->nb_parts, d.batch.metadata, XFER_BLOCK);
	n = journal_parts(&d.batch, part);
	for (i = 0; i < n; i++)
		add_part(l->part, &l->nb_parts, part[i].iov_base, part[i].iov_len);
	return size > 0 || !d.held;
}

/*
 * Add all that no sound batch occupies. This includes every output slot that no sound batch refers
 * to. A record whose checksum is wrong does not say which of them its batch had: each number in it
 * may be wrong, so the table of references that it leads to may be that of another batch, which was
 * released. The free space has such tables of many released batches, and the slots in them are
 * nearly all. To choose among them would risk the only copy of a batch to save space on a disk
 * once, until someone has examined the file.
 */
static void
add_space(struct damaged_list *l, const struct journal *journal)
{
	const uint8_t *bytes;
	uint32_t at = 0;
	uint64_t size;

	while ((bytes = journal_damage_space(journal, &at, &size)) != NULL)
		add_part(l->space, &l->nb_space, bytes, size);
}

int
damaged_batches_list(struct damaged_list *l, const struct journal *journal)
{
	struct journal_damage d;
	bool known = true;
	uint64_t size;
	size_t nb = 0, parts = 0, space = 0;
	uint32_t n, at = 0;

	memset(l, 0, sizeof(*l));
	l->receiver_id = journal_receiver_id(journal);
	for (n = journal_damage_next(journal, 0); n != UINT32_MAX;
		n = journal_damage_next(journal, n + 1), nb++) {
		(void)journal_damage_get(journal, n, &d);
		parts += 2 + d.batch.nb_parts; /* a head, and the metadata */
	}
	if (nb == 0)
		return 0;
	while (journal_damage_space(journal, &at, &size) != NULL)
		space++;
	l->batch = calloc(nb, sizeof(*l->batch));
	l->heads = calloc(nb, HEAD);
	l->part = calloc(parts, sizeof(*l->part));
	l->space = calloc(space + 1, sizeof(*l->space));
	if (l->batch == NULL || l->heads == NULL || l->part == NULL || l->space == NULL) {
		LOG(ERR, "no memory to list the damaged batches of the journal\n");
		damaged_batches_forget(l);
		return -ENOMEM;
	}
	for (n = journal_damage_next(journal, 0); n != UINT32_MAX;
		n = journal_damage_next(journal, n + 1))
		known &= add_batch(l, journal, n);
	if (!known)
		add_space(l, journal);
	return 0;
}

void
damaged_batches_forget(struct damaged_list *l)
{
	free(l->batch);
	free(l->heads);
	free(l->part);
	free(l->space);
	memset(l, 0, sizeof(*l));
}

/* ---- the quarantine file --------------------------------------------------------------------- */

static bool
is_zero(const uint8_t *block)
{
	static const uint8_t zeros[XFER_BLOCK];

	return memcmp(block, zeros, XFER_BLOCK) == 0;
}

/* Add the space, without zeros at the end of each part. @param heads  one for each part */
static void
end_parts(const struct damaged_list *l, uint8_t *heads, struct iovec *part, size_t *nb)
{
	for (size_t i = 0; i < l->nb_space; i++, heads += HEAD) {
		const uint8_t *bytes = l->space[i].iov_base;
		uint64_t size = l->space[i].iov_len;

		while (size > 0 && is_zero(bytes + size - XFER_BLOCK))
			size -= XFER_BLOCK;
		if (size == 0)
			continue;
		(void)write_head(
			heads, size, "free space, which has the batches whose position is unknown");
		add_part(part, nb, heads, HEAD);
		add_part(part, nb, bytes, size);
	}
}

static int
create_file(const struct damaged_list *l, const struct iovec *part, size_t nb,
	const char *directory, char path[PATH_MAX])
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
			    l->receiver_id, number) >= PATH_MAX)
			return -ENAMETOOLONG;
		/* other users must not read data that they could not read in the journal */
		ret = durable_file_create_parts(path, part, nb, OWN_SECRET_MODE);
	}
	return ret;
}

static int
write_file(const struct damaged_list *l, const char *directory, char path[PATH_MAX])
{
	struct iovec *part = calloc(l->nb_parts + 2 * l->nb_space, sizeof(*part));
	uint8_t *heads = calloc(l->nb_space + 1, HEAD);
	size_t nb = l->nb_parts;
	int ret = -ENOMEM;

	path[0] = '\0';
	if (part != NULL && heads != NULL) {
		memcpy(part, l->part, nb * sizeof(*part));
		end_parts(l, heads, part, &nb);
		ret = create_file(l, part, nb, directory, path);
	}
	free(part);
	free(heads);
	return ret;
}

int
damaged_batches_save(const struct damaged_list *l, const char *directory)
{
	char path[PATH_MAX];
	int ret;

	/* the second line of a head */
	for (size_t i = 0; i < l->nb; i++)
		LOG(ERR, "journal: %s", strchr((const char *)l->heads + i * HEAD, '\n') + 1);
	ret = write_file(l, directory, path);
	if (ret < 0)
		LOG(ERR,
			"cannot save %zu damaged %s of the journal in %s: %s. The journal is "
			"unchanged; make room, or move it away and lose its batches\n",
			l->nb, plural(l->nb, "batch", "batches"),
			path[0] != '\0' ? path : directory, own_file_error(ret));
	else
		LOG(ERR, "%zu damaged %s of the journal saved in %s\n", l->nb,
			plural(l->nb, "batch", "batches"), path);
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

void
damaged_batches_drop(struct journal *journal, const struct damaged_list *l,
	struct ledger_kept *before, struct damaged_batches *found)
{
	*found = (struct damaged_batches){0};
	for (size_t i = 0; i < l->nb; i++)
		take_out(journal, l->batch[i], before, found);
	log_in_doubt(journal, found);
	/* the number may be used again */
	if (before->version == LEDGER_KEPT_VERSION && before->damaged_batch != 0) {
		before->damaged_batch = 0;
		journal_ledger_put(journal, before, sizeof(*before));
	}
}

int
damaged_batches_remove(struct journal *journal, const char *directory, struct ledger_kept *before,
	struct damaged_batches *found)
{
	struct damaged_list list;
	int ret;

	ret = damaged_batches_list(&list, journal);
	if (ret == 0 && list.nb > 0)
		ret = damaged_batches_save(&list, directory);
	if (ret == 0)
		damaged_batches_drop(journal, &list, before, found);
	damaged_batches_forget(&list);
	return ret;
}
