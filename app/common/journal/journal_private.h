/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Layout of a journal's file, and the state of an open journal. Private to app/common/journal.
 */
#ifndef JOURNAL_PRIVATE_H
#define JOURNAL_PRIVATE_H

#include "arrow/crc32c.h"
#include "journal/journal.h"

#define RING_MAGIC UINT64_C(0x314e455445524c42) /* `BLRETEN1` */

/*
 * Version of new files. Older ones back to RING_OLDEST are adopted, because each version only adds
 * to the one before it: 11 the area, 12 batches of pieces, 13 tables of pieces that are larger than
 * a block. What is added is zero in older files.
 */
#define RING_VERSION 13
#define RING_OLDEST  10

/* What is valid in the record of a store. Without STORE_USED, the record is free. */
enum store_status {
	STORE_USED = 1,
	STORE_KNOWN = 2, /* `identity`; without it, the store has never connected */
	STORE_HERE = 4,	 /* `address`; the store is believed to be there */
	STORE_ALL = 7
};

/*
 * A store that batches may be sent to. A member is changed while the status says that it is not
 * valid.
 */
struct ring_store {
	uint64_t status; /* enum store_status, sealed; written last */
	uint64_t identity;
	char address[JOURNAL_ADDRESS]; /* without STORE_HERE, for messages only: the last address */
	uint32_t identity_crc;
	uint32_t address_crc;
};
static_assert(sizeof(struct ring_store) == 88, "layout");

/*
 * The incarnation of a run that was added. A record whose checksum is wrong is not used: it was
 * being written when the process was killed, or it is damaged.
 */
struct ring_incarnation {
	uint64_t incarnation;
	uint32_t number; /* of incarnations added up to this one; 0: never used */
	uint32_t crc;	 /* of the members above; written last */
};
static_assert(sizeof(struct ring_incarnation) == 16, "layout");

/* First blocks of the file. The members that `crc` covers never change. */
struct ring_header {
	uint64_t magic; /* written last: without it the file is empty */
	uint32_t version;
	uint32_t crc; /* of the members from `size` up to `store` */
	uint64_t size;
	uint64_t receiver_id;
	uint64_t ledger_at;
	uint64_t runs_at;
	uint64_t batches_at;
	uint64_t data_at;
	uint64_t data_size;
	uint32_t nb_batches;
	/*
	 * size of a slot in blocks; 0: there is no area. Otherwise the area is behind the data, up
	 * to the end of the file
	 */
	uint32_t slot_blocks;
	struct ring_store store[JOURNAL_STORES];
	/* the last ones; the next one overwrites the oldest */
	struct ring_incarnation incarnation[JOURNAL_INCARNATIONS];
};
#define HEADER_BLOCKS 2
static_assert(sizeof(struct ring_header) <= HEADER_BLOCKS * XFER_BLOCK, "blocks");
static_assert(offsetof(struct ring_header, size) == 16, "layout");

/* Two copies follow the header. */
struct ring_ledger {
	uint32_t crc;	 /* of all members that follow; written last */
	uint32_t size;	 /* used bytes; the others are zero */
	uint64_t number; /* of ledgers saved up to this one; 0: never used */
	uint8_t bytes[JOURNAL_LEDGER];
	uint8_t reserved[80];
};
static_assert(sizeof(struct ring_ledger) == XFER_BLOCK, "one block");

enum run_state {
	RUN_FREE,
	RUN_LIVE
};

struct run_status {
	uint8_t state;
	uint8_t ended; /* makes `batches` valid */
	uint16_t reserved;
};

/* What never changes of a run, except for its schemas. */
struct ring_constants {
	uint64_t run;
	uint64_t incarnation;
	char name[XFER_NAME_BYTES];
	uint32_t schema_bytes[XFER_TABLES];
	uint64_t body_max[XFER_TABLES];
	uint32_t schema_crc[XFER_TABLES];
	uint32_t reserved;
	uint32_t crc; /* of the members above */
};
static_assert(sizeof(struct ring_constants) == 120, "layout");

#define RUN_COPY_AT   2048 /* far from the first copy: damage may be longer than a few words */
#define SCHEMA_COPIES 2

/*
 * A run. Only opening reads it: later the process uses the copy in its own memory (struct run),
 * even if the file is damaged meanwhile.
 */
struct ring_run {
	uint64_t status; /* struct run_status, sealed; written last: makes the record valid */
	struct ring_constants constants;
	uint64_t batches[XFER_TABLES];
	uint32_t batches_crc;
	uint32_t reserved;
	/* number of batches released to files of the receiver, sealed */
	uint64_t spilled;
	/*
	 * The batch that is being released to such a file, sealed. The low SPILLING_BITS are 1 +
	 * its number, the others are the low bits of `spilled` after the release. The batch counts
	 * once it is not held any more, if `spilled` does not count it yet.
	 */
	uint64_t spilling;
	uint8_t reserved2[RUN_COPY_AT - 168];
	struct ring_constants copy; /* of `constants` */
	uint8_t reserved3[XFER_BLOCK - RUN_COPY_AT - sizeof(struct ring_constants)];
	uint8_t schema[XFER_TABLES][SCHEMA_COPIES][JOURNAL_SCHEMA];
};
static_assert(offsetof(struct ring_run, copy) == RUN_COPY_AT, "layout");
static_assert(sizeof(struct ring_run) == XFER_BLOCK + XFER_TABLES * SCHEMA_COPIES * JOURNAL_SCHEMA,
	"blocks");

/* Upper limit of positions, so that sums of them do not overflow. */
#define POSITION_MAX (UINT64_C(1) << 62)

#define SPILLING_BITS 17
#define SPILLING_MASK ((UINT32_C(1) << SPILLING_BITS) - 1)
static_assert(JOURNAL_BATCHES < SPILLING_MASK, "room for 1 + any batch number");

enum batch_state {
	BATCH_FREE,
	BATCH_HELD,
	BATCH_IN_DOUBT, /* released, but a store that is not its owner may have a copy */
};

struct batch_status {
	uint8_t state;
	uint8_t owner;
	uint16_t given;
};

struct ring_batch {
	uint64_t status;   /* struct batch_status, sealed; written last: makes the record valid */
	uint64_t position; /* bytes ever allocated before it; modulo data_size: offset in `data` */
	uint64_t sequence;
	uint64_t rows;
	uint64_t first;
	uint64_t last;
	int64_t received;
	uint64_t body_bytes;
	uint32_t body_crc32c;
	uint16_t run;
	uint8_t table;
	uint8_t reserved;
	uint32_t metadata_crc32c;
	uint32_t nb_references; /* entries of the table of references */
	uint64_t rest_bytes;	/* of the body, in the room; 0 without references */
	uint32_t table_crc;	/* of the table of references or of pieces */
	uint32_t nb_pieces;	/* entries of the table of pieces; 0 with references */
	uint8_t reserved2[28];
	uint32_t crc; /* of the members from `position` on */
};
static_assert(sizeof(struct ring_batch) == 128, "two cache lines");

/*
 * A table of references is an array of struct journal_reference, a table of pieces one of struct
 * journal_piece. It has a block of the room, between the metadata and what is there of the body. A
 * table of pieces that is larger has blocks after the body instead.
 */
static_assert(sizeof(struct journal_reference) == 24, "layout");
static_assert(JOURNAL_REFERENCES * sizeof(struct journal_reference) <= XFER_BLOCK, "one block");
static_assert(sizeof(struct journal_piece) == 16, "layout");
static_assert(JOURNAL_TABLE_MAX % XFER_BLOCK == 0, "blocks");

/*
 * The status of a batch, a run or a store changes, so it has a separate checksum, in the same word.
 * Zero is a sealed zero: the status of a record that was never used.
 */
static inline uint64_t
status_seal(uint32_t value)
{
	static const uint32_t zero;

	return value |
		(uint64_t)(arrow_crc32c(0, &value, sizeof(value)) ^
			arrow_crc32c(0, &zero, sizeof(zero)))
		<< 32;
}

static inline uint64_t
batch_status_seal(struct batch_status s)
{
	return status_seal((uint32_t)s.given << 16 | (uint32_t)s.owner << 8 | s.state);
}

static inline uint64_t
run_status_seal(struct run_status s)
{
	return status_seal((uint32_t)s.reserved << 16 | (uint32_t)s.ended << 8 | s.state);
}

/* An allocated batch; the entries are in the order of their positions. */
struct taken {
	uint64_t position;
	uint32_t batch;
};

/* What opening found out about a record. Not in the file. */
enum record_is {
	RECORD_SOUND,
	/* The values from here on mean that the record is damaged, see journal_damage_get(). */
	RECORD_DAMAGED,	       /* more than one bit is wrong: its batch is not known */
	RECORD_WHOLLY_DAMAGED, /* and its status is not known */
	RECORD_STATUS_DAMAGED, /* only its status is not known */
	RECORD_RUN_DAMAGED,
	RECORD_METADATA_DAMAGED,
	RECORD_REFERENCES_DAMAGED, /* its table, or another batch has one of the slots */
	RECORD_PIECES_DAMAGED,
	RECORD_BODY_DAMAGED,
};

/* Whether the members of a record are known. */
static inline bool
record_is_known(enum record_is is)
{
	return is != RECORD_DAMAGED && is != RECORD_WHOLLY_DAMAGED;
}

/* A store, as corrected by opening. From journal_repair() on, the file has the same. */
struct store {
	uint32_t status;   /* bits of enum store_status */
	uint64_t identity; /* 0: never connected, or damaged */
	char address[JOURNAL_ADDRESS];
	const char *problem; /* NULL: none; otherwise the record is damaged and is not changed */
};

/* A live run, as corrected by opening. From journal_repair() on, the file has the same. */
struct run {
	struct ring_constants constants;
	uint8_t *schema[XFER_TABLES]; /* allocated */
	uint64_t batches[XFER_TABLES];
	uint32_t spilled;  /* JOURNAL_UNCOUNTED: see journal_run_spilled() */
	uint32_t spilling; /* as in the file; 0: none */
	bool spilled_lost; /* a count was damaged when the journal was opened */
};

struct journal {
	int fd;
	uint8_t *map;
	uint64_t size;
	struct ring_header *header;
	struct ring_ledger *ledger;
	struct ring_run *ring_run;
	struct ring_batch *batch;
	uint8_t *data;
	uint64_t data_size;
	uint32_t nb_batches;
	uint8_t *area; /* NULL: none */
	uint64_t slot_bytes;
	uint32_t nb_slots;
	/* The members below are not in the file. They are rebuilt from it. */
	struct taken *taken; /* circular array of nb_batches + 1 */
	uint32_t taken_head;
	uint32_t taken_tail;
	uint32_t *free_batch;
	uint32_t nb_free;
	/*
	 * The status of each record, as corrected by opening. From journal_repair() on, the file
	 * has the same, except for damaged records. Those count as held.
	 */
	struct batch_status *status;
	/*
	 * The records in use, as this process decides with them, unless the batch is not known.
	 * They come from journal_commit(), or from opening, which has checked and corrected them.
	 * The records in the file are for the next process. They are read again only to find out
	 * that they have changed. The status is not valid here.
	 */
	struct ring_batch *known;
	bool *copies_stay; /* by batch: the copy here is damaged, see journal_keep_copies() */
	/* By batch: its first slot; JOURNAL_NO_SLOT: it refers to none, or it is not known. */
	uint32_t *first_slot;
	/*
	 * By the first slot of a batch: its parts in slots. The producer writes them while it has
	 * the slot.
	 */
	struct iovec (*in_slot)[JOURNAL_REFERENCES];
	uint32_t *slot_batch; /* by slot: the batch that refers to it; NO_BATCH: none */
	uint32_t *freed;      /* slots that are free, but not granted yet */
	uint32_t nb_freed;
	/*
	 * Free slots, from the owner to the producer. Every entry that is not taken is another
	 * slot, so the owner never overtakes the producer.
	 */
	uint32_t *slot_ring;	/* circular array of nb_slots */
	uint64_t slots_granted; /* atomic; number of entries ever added. The owner writes it */
	uint64_t slots_taken;	/* number of entries ever taken. It belongs to the producer */
	uint32_t *own_slot;	/* slots that the producer has given back; it belongs to it */
	uint32_t nb_own_slots;
	struct run_status run_status[JOURNAL_RUNS];
	uint8_t *is; /* enum record_is of each record that is not free */
	/* Damaged records. While there is one, no space is granted: its bytes may be anywhere. */
	uint32_t nb_damaged;
	const char *run_problem[JOURNAL_RUNS]; /* of a damaged run; NULL: sound, or free */
	struct run run[JOURNAL_RUNS];
	struct store store[JOURNAL_STORES];
	/* As corrected by opening; the number of a damaged record is 0. */
	struct ring_incarnation incarnation[JOURNAL_INCARNATIONS];
	uint32_t nb_incarnations;	/* number ever added */
	unsigned int lost_incarnations; /* damaged records */
	bool repaired;			/* journal_repair() was called */
	uint32_t references[JOURNAL_RUNS];
	uint32_t held[JOURNAL_RUNS]; /* of `references`, batches that are held */
	uint64_t head;		     /* end of the last committed batch: bytes ever allocated */
	uint64_t tail;		     /* bytes ever freed */
	/* The owner writes these two; the producer reads them. Both only grow. */
	uint64_t granted;	  /* atomic; position: rooms end before or at it */
	uint64_t granted_batches; /* atomic; number of batches that may be filled, ever */
	/* The members up to `skipped` belong to the producer. */
	uint64_t next;	   /* position from which on rooms are reserved */
	uint64_t filled;   /* number of batches that were filled, ever */
	uint64_t reserved; /* position of the last reservation */
	uint64_t skipped;  /* atomic; position before which it fills no more rooms */
	/* As corrected by opening: the newest sound copy, from journal_ledger_put() or the file. */
	struct ring_ledger newest;
	bool ledger_lost; /* opening found two damaged copies */
	struct journal_stats stats;
	void (*step)(void *arg);
	void *step_arg;
};

#define NO_BATCH UINT32_MAX

/* Mark a point where a process may be killed. No store is reordered across it. */
static inline void
step(const struct journal *r)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (r->step != NULL)
		r->step(r->step_arg);
}

#define PUT(member, value) __atomic_store_n(&(member), (value), __ATOMIC_RELEASE)
#define GET(member)	   __atomic_load_n(&(member), __ATOMIC_ACQUIRE)

static inline uint32_t
batch_crc(const struct ring_batch *b)
{
	return arrow_crc32c(0, &b->position,
		offsetof(struct ring_batch, crc) - offsetof(struct ring_batch, position));
}

/* Change the status of a batch, in the file too. */
static inline void
put_status(struct journal *r, uint32_t batch, struct batch_status s)
{
	r->status[batch] = s;
	PUT(r->batch[batch].status, batch_status_seal(s));
	step(r);
}

static inline void
put_run_status(struct journal *r, unsigned int run, struct run_status s)
{
	r->run_status[run] = s;
	PUT(r->ring_run[run].status, run_status_seal(s));
	step(r);
}

static inline uint32_t
ledger_crc(const struct ring_ledger *l)
{
	return arrow_crc32c(0, &l->size, sizeof(*l) - offsetof(struct ring_ledger, size));
}

static inline uint32_t
constants_crc(const struct ring_constants *c)
{
	return arrow_crc32c(0, c, offsetof(struct ring_constants, crc));
}

static inline uint32_t
batches_crc(const uint64_t batches[XFER_TABLES])
{
	return arrow_crc32c(0, batches, XFER_TABLES * sizeof(batches[0]));
}

/* Bitmap of the stores other than the owner that may have a copy of the batch. */
static inline uint16_t
others_given(struct batch_status s)
{
	return s.owner < JOURNAL_STORES ? s.given & ~(1u << s.owner) : s.given;
}

/* The batch is held or in doubt, and it is not damaged. */
static inline bool
is_live(const struct journal *r, uint32_t batch)
{
	return r->status[batch].state != BATCH_FREE && r->is[batch] == RECORD_SOUND;
}

/* The batch of an entry is held. Its number may have been used again since. */
static inline bool
is_held(const struct journal *r, const struct taken *t)
{
	return r->status[t->batch].state == BATCH_HELD && r->is[t->batch] == RECORD_SOUND &&
		r->known[t->batch].position == t->position;
}

/* The members of a record as users of the journal see them; without status and bytes. */
static inline struct journal_batch
known_members(const struct ring_batch *k)
{
	return (struct journal_batch){
		.position = k->position,
		.sequence = k->sequence,
		.rows = k->rows,
		.first = k->first,
		.last = k->last,
		.received = k->received,
		.body_bytes = k->body_bytes,
		.body_crc32c = k->body_crc32c,
		.metadata_crc32c = k->metadata_crc32c,
		.run = k->run,
		.table = k->table,
		.nb_references = k->nb_references,
		.table_crc32c = k->table_crc,
		.rest_bytes = k->nb_references > 0 ? k->rest_bytes : k->body_bytes,
		.nb_pieces = k->nb_pieces,
	};
}

static inline uint64_t
round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

/* Bytes of the room of a batch in front of its part of the body: the metadata, and a table. */
static inline uint64_t
room_head(const struct ring_batch *k)
{
	return (k->nb_references > 0 || k->nb_pieces > 0 ? 2 : 1) * XFER_BLOCK;
}

/* Bytes of a table of pieces that are after the body. */
static inline uint64_t
table_after(uint32_t nb_pieces)
{
	return nb_pieces > JOURNAL_BLOCK_PIECES
		? round_up(nb_pieces * sizeof(struct journal_piece), XFER_BLOCK)
		: 0;
}

/* Size of the room of a batch, bytes. */
static inline uint64_t
room_bytes(const struct ring_batch *k)
{
	return room_head(k) +
		(k->nb_references > 0 ? round_up(k->rest_bytes, XFER_BLOCK) : k->body_bytes) +
		table_after(k->nb_pieces);
}

/* End of the room of a batch. */
static inline uint64_t
end_of(const struct ring_batch *k)
{
	return k->position + room_bytes(k);
}

/* Address of a position. */
static inline uint8_t *
data_at(const struct journal *r, uint64_t position)
{
	return r->data + position % r->data_size;
}

/* The table of references in the room at a position. */
static inline struct journal_reference *
references_at(const struct journal *r, uint64_t position)
{
	return (struct journal_reference *)(data_at(r, position) + XFER_BLOCK);
}

/* The table of pieces in the room at a position. */
static inline struct journal_piece *
pieces_at(const struct journal *r, uint64_t position, uint64_t body_bytes, uint32_t nb_pieces)
{
	const uint64_t body = table_after(nb_pieces) > 0 ? XFER_BLOCK + body_bytes : 0;

	return (struct journal_piece *)(data_at(r, position) + XFER_BLOCK + body);
}

/**
 * Set where the bytes of a batch are whose record is known. Nothing is set if it refers to slots
 * that are not known.
 */
void journal_place(const struct journal *r, uint32_t batch, struct journal_batch *to);

/** As journal_place(). @param in_slot  the parts in slots; they stay the caller's */
void journal_place_parts(const struct journal *r, uint32_t batch, const struct iovec *in_slot,
	struct journal_batch *to);

/** Allocate the memory for the slots. @return 0; -ENOMEM */
int journal_area_create(struct journal *r);

void journal_area_destroy(struct journal *r);

/**
 * Read the table of references of a batch whose record is known. One wrong bit is corrected, not in
 * the file.
 * @param part  out: the parts of the body in slots, in range
 * @return number of wrong bits: 0 or 1; -EBADMSG: more, or a reference is out of range, or two are
 *   to the same slot
 */
int journal_references_open(
	const struct journal *r, uint32_t batch, struct iovec part[JOURNAL_REFERENCES]);

/**
 * Write the table of references of a batch again if it is not what this process knows of it.
 * @return whether it was written
 */
bool journal_references_repair(struct journal *r, uint32_t batch);

/**
 * Give slots to a batch.
 * @param part  of journal_references_open()
 * @return false: another batch refers to one of them. Nothing is changed
 */
bool journal_slots_hold(struct journal *r, uint32_t batch, const struct iovec *part);

/** A batch no longer refers to its slots. They are granted by journal_grant(). */
void journal_slots_free(struct journal *r, uint32_t batch);

/** Free all slots that no batch has. Once, when the file is opened. */
void journal_slots_find(struct journal *r);

/** Grant the producer the slots that are free. Called by journal_grant(). */
void journal_slots_grant(struct journal *r);

/**
 * Whether a batch whose record is known has no table of pieces, or one that matches its checksum
 * and whose pieces are in the room and have as many bytes as the body.
 */
bool journal_pieces_are_sound(const struct journal *r, uint32_t batch);

/** Whether the body of a held batch matches its checksum. */
bool journal_body_is_sound(const struct journal *r, uint32_t batch);

static inline uint32_t
identity_crc(const struct ring_store *s)
{
	return arrow_crc32c(0, &s->identity, sizeof(s->identity));
}

static inline uint32_t
address_crc(const struct ring_store *s)
{
	return arrow_crc32c(0, s->address, sizeof(s->address));
}

static inline uint32_t
incarnation_crc(const struct ring_incarnation *i)
{
	return arrow_crc32c(0, i, offsetof(struct ring_incarnation, crc));
}

/**
 * Read a sealed status. One wrong bit is corrected: any two statuses with their CRCs differ in at
 * least four bits.
 * @param value  out
 * @return number of wrong bits: 0 or 1; -EBADMSG: more
 */
int journal_status_open(uint64_t word, uint32_t *value);

/**
 * Check bytes against their CRC-32C. One wrong bit, in the bytes or in the CRC, is corrected. Any
 * two sequences of up to 2^28 bytes with their CRCs differ in at least four bits. Therefore there
 * is only one such correction, and two wrong bits are never corrected as one.
 * @return number of wrong bits: 0 or 1; -EBADMSG: more, nothing is changed
 */
int journal_bytes_open(void *bytes, size_t size, uint32_t *crc);

/**
 * Read the runs and the incarnations, without changing the file. Damaged runs are in run_problem.
 * @return 0; -ENOMEM
 */
int journal_runs_read(struct journal *r);

/** Count the batches whose release to a file was interrupted. The batches must be known. */
void journal_runs_count(struct journal *r);

/** Write down the corrections of runs and incarnations. */
void journal_runs_repair(struct journal *r);

/** Free the memory of the runs. */
void journal_runs_free(struct journal *r);

/** A held batch is about to be released to a file of the receiver. */
void journal_spilling(struct journal *r, unsigned int run, uint32_t batch);

/** It is released. */
void journal_spilled(struct journal *r, unsigned int run);

/** A damaged batch is about to be dropped; a file may have it, and its run is not certain. */
void journal_spill_dropped(struct journal *r, uint32_t batch);

/** Read the record of a store. @return number of corrected bits */
unsigned int journal_store_read(const struct ring_store *from, struct store *to);

/** Write down the corrections of stores. */
void journal_stores_repair(struct journal *r);

/** Grant the producer the space and the records that are free. */
void journal_grant(struct journal *r);

/** Free the space up to the oldest held batch. */
void journal_move_tail(struct journal *r);

/**
 * Correct a copy of a record in which one bit is wrong.
 * @return number of wrong bits: 0 or 1; -EBADMSG: more
 */
int journal_record_open(struct ring_batch *b);

/**
 * Write a record, with its status, again if it is not what this process knows of its batch. Each
 * store changes wrong bits only. @return whether it was written
 */
bool journal_record_repair(struct journal *r, uint32_t batch);

/** Whether the record can be of a batch: all its numbers are in range. Its checksum is not read. */
bool journal_record_fits(const struct journal *r, const struct ring_batch *b);

#endif /* JOURNAL_PRIVATE_H */
