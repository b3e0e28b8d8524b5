/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adopts a journal file: arbitrary bytes, or a real journal with some changes, whose checksums may
 * be corrected so that the changes pass the first checks. An adopted journal can be read, released,
 * filled and adopted again. The first byte selects the kind.
 */

#include <fcntl.h>

#include "seed_corpus.h"

#include "arrow/crc32c.h"
#include "journal/journal_private.h"
#include "xfer/msg.h"

#define WANT(condition)           \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

enum what {
	RAW,	  /* arbitrary bytes */
	CHANGED,  /* a journal with changes */
	SIGNED,	  /* ... and new checksums of header, runs, records and references */
	RESIGNED, /* ... and of the content of batches */
	WHATS
};

/* A change: its offset and size, followed by the bytes. */
struct change {
	uint8_t area;
	uint8_t size;
	uint16_t at;
} __attribute__((packed)); /* followed by `size` bytes */

#define RECORDS 12
#define BLOCKS	22 /* of data */
#define SLOTS	8  /* of a block each */
#define RUNS	3
#define STORES	2
#define MANY	(JOURNAL_BLOCK_PIECES + 1) /* pieces of a table that is after the body */

/* Parts of the file that are changed, by this program or by the code under test. */
static struct area {
	uint64_t at;
	uint64_t size;
	uint8_t *good;
} areas[6 + JOURNAL_RUNS];
static unsigned int nb_areas;

static char path[64];
static char message[PATH_MAX];
static struct ring_header good;
static uint64_t file_size;
static int file;

static void
write_at(uint64_t at, const void *bytes, size_t size)
{
	WANT(pwrite(file, bytes, size, (off_t)at) == (ssize_t)size);
}

static void
read_at(uint64_t at, void *bytes, size_t size)
{
	WANT(pread(file, bytes, size, (off_t)at) == (ssize_t)size);
}

static void
restore(void)
{
	unsigned int i;

	WANT(ftruncate(file, (off_t)file_size) == 0);
	for (i = 0; i < nb_areas; i++)
		write_at(areas[i].at, areas[i].good, areas[i].size);
}

static void
change(const uint8_t *data, size_t size)
{
	const struct change *c;
	const struct area *a;
	uint64_t at, bytes;

	while (size >= sizeof(*c)) {
		c = (const struct change *)data;
		bytes = c->size < size - sizeof(*c) ? c->size : size - sizeof(*c);
		a = &areas[c->area % nb_areas];
		at = c->at % a->size;
		write_at(
			a->at + at, data + sizeof(*c), bytes < a->size - at ? bytes : a->size - at);
		data += sizeof(*c) + bytes;
		size -= sizeof(*c) + bytes;
	}
}

/* Add the bytes in slots to the sum of a body. @return their sum */
static uint32_t
sign_references(struct ring_batch *b, const struct journal_reference *table, bool bytes)
{
	static uint8_t block[SLOTS * XFER_BLOCK];
	const uint32_t n =
		b->nb_references < JOURNAL_REFERENCES ? b->nb_references : JOURNAL_REFERENCES;
	const struct journal_reference *f;
	uint32_t i, crc = 0;
	uint64_t at;

	b->table_crc = arrow_crc32c(0, table, n * sizeof(*table));
	if (!bytes)
		return 0;
	read_at(good.data_at + good.data_size, block, sizeof(block));
	for (i = 0; i < n; i++) {
		f = &table[i];
		at = f->slot % SLOTS * XFER_BLOCK + f->offset % XFER_BLOCK;
		if (f->bytes <= sizeof(block) - at)
			crc = arrow_crc32c(crc, block + at, f->bytes);
	}
	return crc;
}

/*
 * Sign the table of pieces, if it is in the space from the body on or in the block before it.
 * @return sum of those that are in the space
 */
static uint32_t
sign_pieces(struct ring_batch *b, const uint8_t *body, uint64_t space)
{
	const uint32_t n = b->nb_pieces < JOURNAL_PARTS ? b->nb_pieces : JOURNAL_PARTS;
	const uint64_t after = table_after(n);
	struct journal_piece table[JOURNAL_PARTS];
	uint32_t i, crc = 0;

	if (after > space || (after > 0 && b->body_bytes > space - after))
		return 0;
	memcpy(table, after > 0 ? body + b->body_bytes : body - XFER_BLOCK, n * sizeof(table[0]));
	b->table_crc = arrow_crc32c(0, table, n * sizeof(*table));
	for (i = 0; i < n; i++) {
		if (table[i].at <= space && table[i].bytes <= space - table[i].at)
			crc = arrow_crc32c(crc, body + table[i].at, table[i].bytes);
	}
	return crc;
}

static void
sign_batch(struct ring_batch *b, bool bytes)
{
	/* a table may begin at the end */
	static uint8_t block[(BLOCKS + 1) * XFER_BLOCK];
	const uint64_t at = b->position % (BLOCKS * XFER_BLOCK), end = BLOCKS * XFER_BLOCK;
	const uint8_t *body = block + at + XFER_BLOCK;
	uint64_t size = b->body_bytes;
	uint32_t crc = 0;

	read_at(good.data_at, block, end);
	if (b->nb_pieces > 0) {
		if (at + 2 * XFER_BLOCK > end)
			return;
		crc = sign_pieces(b, body + XFER_BLOCK, end - at - 2 * XFER_BLOCK);
		size = 0;
	} else if (b->nb_references > 0) {
		struct journal_reference table[JOURNAL_REFERENCES];

		if (at + 2 * XFER_BLOCK > end)
			return;
		memcpy(table, body, sizeof(table));
		crc = sign_references(b, table, bytes);
		body += XFER_BLOCK;
		size = b->rest_bytes;
	}
	if (bytes && size <= end && body + size <= block + end) {
		b->metadata_crc32c = arrow_crc32c(0, block + at, XFER_BLOCK);
		b->body_crc32c = arrow_crc32c(crc, body, size);
	}
	b->crc = batch_crc(b);
	b->status = status_seal((uint32_t)b->status);
}

/* A journal with another layout gets checksums as if it had ours. */
static void
sign(bool bytes)
{
	static struct ring_run run;
	struct ring_batch batch[RECORDS];
	struct ring_header h;
	unsigned int i, t;

	read_at(0, &h, sizeof(h));
	h.crc = arrow_crc32c(0, &h.size,
		offsetof(struct ring_header, store) - offsetof(struct ring_header, size));
	for (i = 0; i < JOURNAL_STORES; i++) {
		h.store[i].status = status_seal((uint32_t)h.store[i].status);
		h.store[i].identity_crc = identity_crc(&h.store[i]);
		h.store[i].address_crc = address_crc(&h.store[i]);
	}
	for (i = 0; i < JOURNAL_INCARNATIONS; i++)
		h.incarnation[i].crc = incarnation_crc(&h.incarnation[i]);
	write_at(0, &h, sizeof(h));
	for (i = 0; i < RUNS; i++) {
		read_at(good.runs_at + i * sizeof(run), &run, sizeof(run));
		for (t = 0; t < XFER_TABLES; t++) {
			if (run.constants.schema_bytes[t] <= JOURNAL_SCHEMA)
				run.constants.schema_crc[t] = arrow_crc32c(
					0, run.schema[t][0], run.constants.schema_bytes[t]);
		}
		run.constants.crc = constants_crc(&run.constants);
		run.copy.crc = constants_crc(&run.copy);
		run.batches_crc = batches_crc(run.batches);
		run.spilled = status_seal((uint32_t)run.spilled);
		run.spilling = status_seal((uint32_t)run.spilling);
		run.status = status_seal((uint32_t)run.status);
		write_at(good.runs_at + i * sizeof(run), &run, XFER_BLOCK);
	}
	read_at(good.batches_at, batch, sizeof(batch));
	for (i = 0; i < RECORDS; i++)
		sign_batch(&batch[i], bytes);
	write_at(good.batches_at, batch, sizeof(batch));
}

static void
check_runs(const struct journal *r)
{
	struct journal_store store;
	struct journal_run run;
	unsigned int i, t;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!journal_run_get(r, i, &run))
			continue;
		WANT(xfer_name_check(run.name));
		WANT(run.spilled <= JOURNAL_UNCOUNTED);
		WANT(run.held <= run.references && run.references <= r->nb_batches);
		(void)journal_had(r, run.incarnation);
		for (t = 0; t < XFER_TABLES; t++)
			(void)arrow_crc32c(0, run.schema[t], run.schema_bytes[t]);
	}
	for (i = 0; i < JOURNAL_STORES; i++) {
		if (!journal_store_get(r, i, &store))
			continue;
		WANT(strnlen(store.address, sizeof(store.address)) < sizeof(store.address));
		for (t = 0; store.address[t] != '\0'; t++)
			WANT(store.address[t] >= ' ' && store.address[t] <= '~');
		WANT(store.problem == NULL || (store.identity == 0 && !store.here));
		(void)journal_store_at(r, store.address);
		(void)journal_store_of(r, store.identity);
		(void)journal_store_given(r, i);
	}
}

/* The parts of a body are in the data and in slots. @return number of slots */
static uint32_t
check_parts(const struct journal *r, const struct journal_batch *b)
{
	const uint8_t *const end = r->area + r->nb_slots * r->slot_bytes;
	struct iovec part[JOURNAL_PARTS];
	const uint32_t n = journal_parts(b, part);
	uint64_t bytes = 0;
	uint32_t i;

	WANT(n <= JOURNAL_PARTS);
	for (i = 0; i < n; i++) {
		const uint8_t *from = i < b->nb_references ? r->area : r->data;
		const uint8_t *to = i < b->nb_references ? end : r->area, *at = part[i].iov_base;

		WANT(at >= from && at <= to && part[i].iov_len <= (uint64_t)(to - at));
		bytes += part[i].iov_len;
	}
	WANT(bytes == b->body_bytes);
	return b->nb_references;
}

/* All entries lie within their limits and are unchanged. @return number of held batches */
static uint32_t
check_batches(const struct journal *r)
{
	struct journal_batch b;
	struct journal_run run;
	const uint8_t *const end = r->map + r->size;
	struct journal_stats stats;
	struct journal_store s;
	uint32_t i, at = 0, n = 0, store, slots = 0;

	while ((i = journal_walk(r, &at)) != UINT32_MAX) {
		WANT(journal_get(r, i, &b) && b.held && ++n <= r->nb_batches);
		WANT(journal_run_get(r, b.run, &run) && b.table < XFER_TABLES);
		WANT(b.metadata >= r->data && b.metadata < end && b.body <= end);
		slots += check_parts(r, &b);
		WANT(journal_body_crc32c(&b) == b.body_crc32c);
	}
	journal_stats_get(r, &stats);
	WANT(slots <= stats.slots_held && (r->nb_damaged > 0 || slots == stats.slots_held));
	for (i = journal_next(r, 0); i != UINT32_MAX; i = journal_next(r, i + 1)) {
		WANT(journal_get(r, i, &b));
		/* every store that may have it is known, or named as damaged */
		for (store = 0; store < JOURNAL_STORES; store++)
			WANT((b.given & 1u << store) == 0 || journal_store_get(r, store, &s));
		WANT(b.owner < JOURNAL_STORES || b.owner == JOURNAL_SPILL ||
			b.owner == JOURNAL_NOBODY);
	}
	return n;
}

/* What is said of damaged batches lies within its limits. @return their number */
static uint32_t
check_damage(const struct journal *r)
{
	const uint8_t *const end = r->map + r->size, *bytes;
	struct journal_damage d;
	uint32_t i, at = 0, n = 0;
	char text[256];
	uint64_t size, space = 0;

	for (i = 0; i < JOURNAL_RUNS; i++)
		(void)journal_run_damage(r, i);
	for (i = journal_damage_next(r, 0); i != UINT32_MAX; i = journal_damage_next(r, i + 1)) {
		WANT(journal_damage_get(r, i, &d) && ++n <= r->nb_batches);
		journal_damage_text(r, i, text, sizeof(text));
		WANT(text[0] != '\0');
		WANT(d.record >= r->map && d.record + JOURNAL_RECORD_BYTES <= r->data);
		WANT(d.known || (d.batch.metadata == NULL && !d.run_known));
		WANT(!d.run_known || xfer_name_check(d.run.name));
		if (d.batch.metadata == NULL)
			continue;
		WANT(d.batch.metadata >= r->data && d.batch.body <= end);
		(void)check_parts(r, &d.batch);
	}
	while ((bytes = journal_damage_space(r, &at, &size)) != NULL) {
		WANT(bytes >= r->data && size > 0 && size <= (uint64_t)(end - bytes));
		space += size;
	}
	WANT(space <= r->data_size + r->nb_slots * r->slot_bytes);
	return n;
}

static void
drop_damage(struct journal *r)
{
	uint32_t i;

	WANT(journal_damage_next(r, 0) == UINT32_MAX ||
		(journal_reserve(r, 0) == NULL && journal_slot_take(r) == JOURNAL_NO_SLOT));
	while ((i = journal_damage_next(r, 0)) != UINT32_MAX)
		journal_damage_drop(r, i);
}

/* Every slot is free, or a held batch refers to it. */
static void
check_slots(struct journal *r)
{
	static bool seen[JOURNAL_SLOTS];
	uint32_t slot, n = 0, i;
	struct journal_stats stats;

	memset(seen, 0, sizeof(seen));
	while ((slot = journal_slot_take(r)) != JOURNAL_NO_SLOT) {
		WANT(slot < r->nb_slots && !seen[slot]);
		seen[slot] = true;
		n++;
	}
	journal_stats_get(r, &stats);
	WANT(n + stats.slots_held == r->nb_slots);
	for (i = r->nb_slots; i-- > 0;) {
		if (seen[i])
			journal_slot_return(r, i);
	}
}

/* Put a batch whose body is in slots and in the room. @return false: no space */
static bool
put_in_slots(struct journal *r, struct journal_batch *b, uint32_t n, uint64_t rest)
{
	struct journal_reference reference[2];
	uint8_t *to = journal_reserve(r, XFER_BLOCK + rest), *at;
	uint32_t i;

	if (to == NULL)
		return false;
	b->body_bytes = b->rest_bytes = rest;
	b->body_crc32c = 0;
	for (i = 0; i < n; i++) {
		reference[i] = (struct journal_reference){journal_slot_take(r), .offset = i * 7,
			.bytes = i == 0 ? XFER_BLOCK : XFER_BLOCK - 1000};
		if (reference[i].slot == JOURNAL_NO_SLOT)
			break;
		at = r->area + reference[i].slot * r->slot_bytes + reference[i].offset;
		memset(at, (int)b->sequence, reference[i].bytes);
		b->body_crc32c = arrow_crc32c(b->body_crc32c, at, reference[i].bytes);
		b->body_bytes += reference[i].bytes;
	}
	if (i < n) {
		while (i-- > 0)
			journal_slot_return(r, reference[i].slot);
		return false;
	}
	memset(to, (int)b->sequence, XFER_BLOCK);
	memset(to + 2 * XFER_BLOCK, (int)b->sequence, rest);
	b->body_crc32c = arrow_crc32c(b->body_crc32c, to + 2 * XFER_BLOCK, rest);
	journal_refer(r, b, reference, n);
	return true;
}

/* Put a batch whose body is in pieces: the last one is the first in the room. */
static bool
put_in_pieces(struct journal *r, struct journal_batch *b, uint32_t n)
{
	uint8_t *to = journal_reserve(r, 2 * XFER_BLOCK + table_after(n)), *at;
	struct journal_piece piece[MANY];
	uint64_t left = XFER_BLOCK;
	uint32_t i;

	if (to == NULL)
		return false;
	memset(to, (int)b->sequence, XFER_BLOCK);
	b->body_bytes = XFER_BLOCK;
	b->body_crc32c = 0;
	for (i = 0; i < n; i++) {
		piece[i].bytes = i + 1 < n ? XFER_BLOCK / (n + 1) : left;
		left -= piece[i].bytes;
		piece[i].at = left;
		at = to + 2 * XFER_BLOCK + piece[i].at;
		memset(at, (int)(b->sequence + i), piece[i].bytes);
		b->body_crc32c = arrow_crc32c(b->body_crc32c, at, piece[i].bytes);
	}
	journal_scatter(r, b, piece, n);
	return true;
}

/* Operations of a receiver. */
static void
use(struct journal *r)
{
	struct journal_batch b = {.rows = 1}, of, in_slots, in_pieces;
	struct journal_run run;
	uint8_t ledger[JOURNAL_LEDGER], *to;
	uint32_t batch, at = 0, n;

	WANT(journal_ledger_get(r, ledger, sizeof(ledger)) <= sizeof(ledger));
	journal_ledger_put(r, "ledger", 6);
	WANT(journal_ledger_get(r, ledger, sizeof(ledger)) == 6);
	while ((batch = journal_walk(r, &at)) != UINT32_MAX) {
		WANT(journal_get(r, batch, &of));
		if (batch % 4 == 0)
			journal_assign(r, batch, batch / 4 % 2 ? JOURNAL_SPILL : 0);
		if (batch % 4 == 1)
			journal_release_spilled(r, batch);
		else if (batch % 4 != 3)
			journal_release(r, batch);
	}
	for (n = 0; n < 2 * JOURNAL_RUNS; n++) {
		if (n % 2)
			journal_confirm(r, n / 2, n % JOURNAL_STORES);
		else if (n % 8 == 0)
			journal_forget_doubts(r, n / 2);
	}
	for (b.run = 0; b.run < RUNS && !journal_run_get(r, b.run, &run); b.run++)
		;
	for (n = 0; b.run < RUNS && n <= RECORDS; n++) {
		to = journal_reserve(r, n % 3 * XFER_BLOCK);
		if (to == NULL)
			break;
		WANT(to >= r->data && to + (1 + n % 3) * XFER_BLOCK <= r->map + r->size);
		memset(to, (int)n, (1 + n % 3) * XFER_BLOCK);
		b.body_crc32c = arrow_crc32c(0, to + XFER_BLOCK, n % 3 * XFER_BLOCK);
		b.sequence = 1000 + n;
		b.body_bytes = n % 3 * XFER_BLOCK;
		journal_fill(r, &b);
		(void)journal_commit(r, &b);
		in_slots = (struct journal_batch){.sequence = 2000 + n, .run = b.run};
		if (n % 2 && put_in_slots(r, &in_slots, 2, 1000))
			(void)journal_commit(r, &in_slots);
		in_pieces = (struct journal_batch){.sequence = 3000 + n, .run = b.run};
		if (n % 3 == 0 && put_in_pieces(r, &in_pieces, n % 2 == 0 ? MANY : 2))
			(void)journal_commit(r, &in_pieces);
	}
	check_slots(r);
	(void)check_batches(r);
}

static void
try_raw(const uint8_t *data, size_t size)
{
	static char raw[80];
	struct journal *r;
	int fd;

	snprintf(raw, sizeof(raw), "%s-raw", path);
	fd = open(raw, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	WANT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
	/* every journal is larger than that */
	WANT(journal_open_existing(&r, raw, message) < 0);
	unlink(raw);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct journal_stats stats;
	struct journal *r;
	enum what what;
	uint32_t held, damaged;

	if (size == 0)
		return 0;
	what = (enum what)(data[0] % WHATS);
	if (what == RAW) {
		try_raw(data + 1, size - 1);
		return 0;
	}
	change(data + 1, size - 1);
	if (what != CHANGED)
		sign(what == RESIGNED);
	if (journal_open_existing(&r, path, message) == 0) {
		check_runs(r);
		held = check_batches(r);
		damaged = check_damage(r);
		journal_stats_get(r, &stats);
		WANT(stats.batches == held && stats.bytes <= stats.room);
		WANT(stats.damaged == damaged);
		journal_close(r);
		/* opening has changed nothing */
		WANT(journal_open_existing(&r, path, message) == 0);
		WANT(check_batches(r) == held && check_damage(r) == damaged);
		drop_damage(r);
		journal_repair(r);
		use(r);
		journal_stats_get(r, &stats);
		held = stats.batches;
		journal_close(r);
		WANT(journal_open_existing(&r, path, message) == 0);
		WANT(check_batches(r) == held);
		journal_stats_get(r, &stats);
		WANT(stats.damaged == 0);
		journal_close(r);
	}
	WANT(memchr(message, '\0', sizeof(message)) != NULL);
	restore();
	return 0;
}

static void
keep(uint64_t at, uint64_t size)
{
	struct area *a = &areas[nb_areas++];

	*a = (struct area){at, size, malloc(size)};
	read_at(at, a->good, size);
}

static void
remove_file(void)
{
	unlink(path);
}

static void
make_ring(void)
{
	static uint8_t schema[XFER_BLOCK];
	const struct journal_config c = {
		.path = path,
		.receiver_id = 1,
		.bytes = BLOCKS * XFER_BLOCK,
		.batches = RECORDS,
		.slot_bytes = XFER_BLOCK,
		.slots = SLOTS,
	};
	struct journal_run run = {
		.name = "run", .schema = {schema, schema}, .schema_bytes = {XFER_BLOCK, 100}};
	struct journal_batch b = {.rows = 4, .last = 3};
	struct journal *r;
	uint32_t batch;
	uint8_t *to;

	WANT(journal_open(&r, &c, message) == 0);
	for (; run.run < RUNS; run.run++) {
		run.incarnation = run.run + 10;
		WANT(journal_run_add(r, &run) == (int)run.run);
	}
	WANT(journal_store_add(r, "10.0.0.1:18516", 1) == 0);
	WANT(journal_store_add(r, "10.0.0.2:18516", 2) == 1);
	journal_ledger_put(r, "first", 5);
	journal_ledger_put(r, "second", 6);
	/*
	 * batches are held, given, in doubt and spilled; the journal has free room, also in the
	 * middle
	 */
	for (; b.sequence < 9; b.sequence++) {
		b.run = b.sequence % RUNS;
		b.table = b.sequence % XFER_TABLES;
		b.nb_references = b.nb_pieces = 0;
		if (b.sequence == 2 || b.sequence == 8) {
			WANT(put_in_pieces(r, &b, b.sequence == 2 ? MANY : 2));
		} else if (b.sequence == 4 || b.sequence == 5 || b.sequence == 7) {
			WANT(put_in_slots(r, &b, 2, 1000));
		} else {
			to = journal_reserve(r, XFER_BLOCK);
			WANT(to != NULL);
			memset(to, (int)b.sequence, 2 * XFER_BLOCK);
			b.body_crc32c = arrow_crc32c(0, to + XFER_BLOCK, XFER_BLOCK);
			b.body_bytes = XFER_BLOCK;
			journal_fill(r, &b);
		}
		batch = journal_commit(r, &b);
		journal_assign(r, batch, b.sequence % STORES);
		if (b.sequence % 3 == 0)
			journal_give(r, batch);
		if (b.sequence == 3)
			journal_assign(r, batch, 0);
		if (b.sequence == 0 || b.sequence == 3)
			journal_release(r, batch);
		if (b.sequence == 1 || b.sequence == 4)
			journal_release_spilled(r, batch);
	}
	journal_close(r);
}

/* Seeds: set all bits of each number of each structure. */
static void
seed_numbers(const char *name, unsigned int area, size_t from, size_t to)
{
	struct {
		uint8_t what;
		struct change c;
		uint8_t bytes[8];
	} __attribute__((packed)) seed = {.c = {.area = (uint8_t)area, .size = 8}};
	char text[32];

	memset(seed.bytes, 0xff, sizeof(seed.bytes));
	for (; from + 8 <= to; from += 8) {
		seed.what = CHANGED + from / 8 % 3;
		seed.c.at = (uint16_t)from;
		snprintf(text, sizeof(text), "%s%zu", name, from);
		seed_add(text, &seed, sizeof(seed));
	}
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const uint8_t as_it_is = CHANGED;
	struct ring_batch record[RECORDS];
	static uint8_t raw[1 + HEADER_BLOCKS * XFER_BLOCK];
	unsigned int i;
	size_t at;

	snprintf(path, sizeof(path), "/dev/shm/braggline-journal-fuzz-%d", (int)getpid());
	make_ring();
	atexit(remove_file);
	file = open(path, O_RDWR | O_CLOEXEC);
	WANT(file >= 0);
	file_size = (uint64_t)lseek(file, 0, SEEK_END);
	read_at(0, &good, sizeof(good));
	keep(0, HEADER_BLOCKS * XFER_BLOCK);
	keep(good.batches_at, RECORDS * sizeof(struct ring_batch));
	keep(good.data_at, good.data_size);
	keep(good.ledger_at, 2 * sizeof(struct ring_ledger));
	keep(good.data_at + good.data_size, SLOTS * XFER_BLOCK);
	for (i = 0; i < JOURNAL_RUNS; i++)
		keep(good.runs_at + i * sizeof(struct ring_run),
			i < RUNS ? 2 * XFER_BLOCK : XFER_BLOCK);
	seed_begin(argc, argv);
	seed_add("as_it_is", &as_it_is, 1);
	memcpy(raw + 1, &good, sizeof(good));
	seed_add("raw", raw, sizeof(raw));
	seed_numbers("header", 0, 0, offsetof(struct ring_header, incarnation));
	seed_numbers("batch", 1, sizeof(struct ring_batch) * 2, sizeof(struct ring_batch) * 3);
	seed_numbers("data", 2, 0, 64);
	seed_numbers("ledger", 3, 0, 64);
	seed_numbers("run", 5, 0, 160);
	/* a batch with references, and its table */
	read_at(good.batches_at, record, sizeof(record));
	for (i = 0; i < RECORDS && record[i].nb_references == 0; i++)
		;
	WANT(i < RECORDS);
	seed_numbers("refer", 1, sizeof(record[0]) * i, sizeof(record[0]) * (i + 1));
	seed_numbers("table", 2, record[i].position + XFER_BLOCK,
		record[i].position + XFER_BLOCK + 2 * sizeof(struct journal_reference));
	/* batches in pieces, and their tables */
	for (i = 0; i < RECORDS; i++) {
		if (record[i].nb_pieces == 0)
			continue;
		seed_numbers("pieces", 1, sizeof(record[0]) * i, sizeof(record[0]) * (i + 1));
		at = record[i].position + XFER_BLOCK;
		if (record[i].nb_pieces == MANY)
			at += XFER_BLOCK + record[i].body_bytes;
		seed_numbers("list", 2, at, at + 2 * sizeof(struct journal_piece));
	}
	return 0;
}
