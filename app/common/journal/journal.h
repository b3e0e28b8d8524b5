/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The journal keeps a receiver's batches until a store has made them durable. It is a file on a
 * tmpfs or hugetlbfs, so it survives the process but not the machine.
 *
 * Each batch has a room, which is contiguous: Arrow metadata, then the body, both in whole blocks.
 * The parts of a body can also be in the room in another order than in the body, or in output slots
 * (see "area"). A batch is sent directly from the file. Space is allocated in circular order, so a
 * batch that remains held also keeps the space of all batches after it. journal_need() computes the
 * size that a journal must have.
 *
 * Threads: the *producer* fills rooms, with journal_reserve() and journal_fill(). The *owner* calls
 * all other functions. One thread may be both. Any thread may call journal_stats_get(). The owner
 * grants the producer free space ahead. A grant is two numbers that only grow: the position up to
 * which rooms may extend, and the number of batches that the journal has records for. The owner
 * stores them (release) after it has freed the records and the space; the producer loads them
 * (acquire) before it writes to a room. In the other direction, the program hands the filled
 * batches over to the owner, in order and with release and acquire, for instance through an
 * rte_ring. No call waits for the other thread.
 *
 * Store ordering: a process may be killed at any moment, and another process may then adopt the
 * file. Each change becomes valid through one store of at most 8 bytes, which follows all stores
 * that it depends on. The adopting process sees the stores of the killed process in program order.
 * A grant is not in the file. A room that was reserved or filled, but not committed, does not exist
 * for the adopting process: only records are adopted, and it grants the space after the last one.
 */
#ifndef JOURNAL_H
#define JOURNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "xfer/proto.h"

#define JOURNAL_STORES 16	    /**< maximum number of stores */
#define JOURNAL_RUNS   32	    /**< maximum number of runs that are recorded at a time */
#ifndef JOURNAL_SCHEMA		    /* unit tests have a smaller one */
#define JOURNAL_SCHEMA (128u << 10) /**< maximum size of a table's schema, bytes */
#endif
#define JOURNAL_LEDGER 4000 /**< maximum size of a ledger, bytes */
/** incarnations that are remembered, also after their runs are dropped */
#define JOURNAL_INCARNATIONS 256
/** size of a store's address as text, with its terminating zero */
#define JOURNAL_ADDRESS 64
#define JOURNAL_NOBODY	0xff /**< owner: no store yet */
#define JOURNAL_SPILL	0xfe /**< owner: one of the receiver's own files */
/** maximum and default number of batches that are held or in doubt */
#define JOURNAL_BATCHES 65536
/** maximum number of parts of a batch's body: pieces; or references, and what follows them */
#define JOURNAL_PARTS 3328
/** maximum number of slots that a batch refers to */
#define JOURNAL_REFERENCES 127
#define JOURNAL_NO_SLOT	   UINT32_MAX
#define JOURNAL_SLOTS	   16384 /**< maximum number of slots of the area */
/** number of spilled batches that files never reach: some were not counted */
#define JOURNAL_UNCOUNTED UINT32_MAX

/** A part of a body that is in the room of the batch. */
struct journal_piece {
	uint64_t at; /**< of its first byte, from the start of the body's bytes in the room on */
	uint64_t bytes;
};

/** pieces of a table that is before the body's bytes in a room; a larger one is after them */
#define JOURNAL_BLOCK_PIECES (XFER_BLOCK / sizeof(struct journal_piece))
/** maximum size of what a table of pieces needs in a room, bytes */
#define JOURNAL_TABLE_MAX (XFER_BLOCK + JOURNAL_PARTS * sizeof(struct journal_piece))

/**
 * State of a batch that is held or in doubt. Its bytes are `metadata`, then the parts of the body:
 * see journal_parts().
 */
struct journal_batch {
	uint64_t position; /**< of the room; of journal_fill() */
	uint64_t sequence;
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received;    /**< ns since 1970; 0: unknown */
	uint64_t body_bytes; /**< a multiple of XFER_BLOCK */
	uint32_t body_crc32c;
	/** output of journal_get(): of the XFER_BLOCK bytes of metadata; also if not held */
	uint32_t metadata_crc32c;
	uint16_t run; /**< index for journal_run_get() */
	uint8_t table;
	uint8_t owner;	  /**< index of a store, JOURNAL_SPILL or JOURNAL_NOBODY */
	uint16_t given;	  /**< bitmap of the stores that may have a copy */
	bool copies_stay; /**< see journal_keep_copies() */
	/** false: durable at its owner; in doubt, because other stores may have a copy too */
	bool held;
	uint8_t *metadata; /**< XFER_BLOCK bytes; NULL: not held */
	/** in the room: the last part; with pieces, all parts; otherwise the whole body */
	uint8_t *body;
	uint32_t nb_parts; /**< parts of the body, at most JOURNAL_PARTS; 0: not held */
	/** slots that the body begins in, at most JOURNAL_REFERENCES; of journal_refer() */
	uint32_t nb_references;
	/** of the table of references or pieces; of journal_refer(), journal_scatter() */
	uint32_t table_crc32c;
	const struct iovec *in_slot; /**< the parts in these slots; of journal_refer() */
	uint64_t rest_bytes; /**< with such slots: bytes of the body after them, in the room */
	/** pieces that the body consists of, at most JOURNAL_PARTS; of journal_scatter() */
	uint32_t nb_pieces;
	const struct journal_piece *piece; /**< these pieces, in the room */
};

/** A part of a body that is in a slot of the area. */
struct journal_reference {
	uint32_t slot;
	uint32_t reserved;
	uint64_t offset; /**< of the part in its slot, bytes */
	uint64_t bytes;	 /**< not 0 */
};

/** A run that the journal has recorded. */
struct journal_run {
	uint64_t run;
	uint64_t incarnation;
	char name[XFER_NAME_BYTES];
	/** output of journal_run_get(): in memory of the journal, until journal_run_drop() */
	const uint8_t *schema[XFER_TABLES];
	uint32_t schema_bytes[XFER_TABLES];
	uint64_t body_max[XFER_TABLES];
	uint64_t batches[XFER_TABLES]; /**< valid if `ended`: number of batches of the run */
	bool ended;
	uint64_t spilled; /**< batches counted by journal_release_spilled(); or JOURNAL_UNCOUNTED */
	bool spilled_lost;   /**< that number was damaged when the journal was opened */
	uint32_t references; /**< batches that are held or in doubt */
	uint32_t held;	     /**< batches that are held */
};

/** A store that batches may be sent to. */
struct journal_store {
	uint64_t identity;	       /**< authenticated identity; 0: never connected */
	char address[JOURNAL_ADDRESS]; /**< last known address, ADDRESS:PORT; or a text */
	bool here;		       /**< true: the store is believed to be at `address` */
	/**
	 * what is wrong with its record, which is damaged: its identity is not known. NULL:
	 * nothing. Only after journal_open_existing()
	 */
	const char *problem;
};

struct journal_config {
	/** path of the file; its folder must exist, unless it is that of journal_default_path() */
	const char *path;
	uint64_t receiver_id;
	uint64_t bytes;	  /**< space for batches; rounded up to whole pages */
	uint32_t batches; /**< maximum number of batches; 0: JOURNAL_BATCHES */
	/**
	 * the area: `slots` slots of `slot_bytes`, a multiple of XFER_BLOCK; both 0: none. Rounded
	 * up to whole pages: it may have more slots. Used when the file is created; an adopted file
	 * keeps its own @{
	 */
	uint64_t slot_bytes;
	uint32_t slots;
	/** @} */
	/** For tests: called between any two stores to the file. May be NULL. */
	void (*step)(void *arg);
	void *step_arg;
};

/** The counters cover this process. The fill levels are current values. */
struct journal_stats {
	uint64_t batches; /**< batches that are held */
	uint64_t bytes;	  /**< bytes in use: from the oldest held batch to the newest batch */
	uint64_t room;	  /**< capacity, bytes */
	/** released batches; a store that may have a copy has not confirmed yet */
	uint64_t in_doubt;
	uint64_t put;
	uint64_t released;
	uint64_t moved; /**< batches that were reassigned after they had been sent to a store */
	uint64_t adopted;
	uint64_t damaged; /**< damaged batches found when it was opened, and by journal_check() */
	/**
	 * wrong records that were corrected: by opening, one wrong bit in the status of a batch, or
	 * anywhere in the record of a batch, a store, an incarnation or a ledger, or in a part of
	 * the record of a run, or a damaged copy of such a part; by journal_check(), any change of
	 * the record of a batch
	 */
	uint64_t corrected;
	uint64_t full;	     /**< times that there was no space for a room */
	uint32_t slots;	     /**< slots of the area */
	uint32_t slots_held; /**< of these, slots that held batches refer to */
};

struct journal;

/** Default path of the journal: the file `journal` in own_memory_folder(). */
const char *journal_default_path(void);

/**
 * Create the file, or adopt an existing one. A file that another user could have created is not
 * adopted: the file must be a regular one of this user or of root, with mode 0600 and one link.
 * Other users must not be able to write to its folder, unless the folder is sticky. The folder of
 * journal_default_path() is created if it is missing, and is accessible to this user only.
 *
 * A batch whose record, metadata or body fails its checksum is counted and stays where it is
 * (journal_damage_next()). The other batches are adopted. One wrong bit in the status of a batch,
 * or in the record of a batch, a run, a store, an incarnation or the ledger, is corrected and
 * counted. Of the constants and of each schema of a run there are two copies, so that more wrong
 * bits in one of them are corrected, too. The file is refused if a value that all batches depend on
 * is out of range, or if a run or a store is damaged.
 * A store is damaged, too, if batches were sent to it and its record is free. A file that begins
 * with zeros is created again only if it is empty. The whole file is allocated, even if an existing
 * one is sparse. If another process of this user truncates the file, this process is killed by
 * SIGBUS.
 * @param message  out: what was done, or what was found and expected
 * @return 0: created, no batch is held; 1: adopted, with its existing capacity
 *   - -EBUSY: another process has it open
 *   - -EPERM, -ELOOP, -EISDIR, -EMEDIUMTYPE: another user could have created it
 *   - -EINVAL: the file belongs to another receiver or version, or is no journal; the file system
 *     is neither tmpfs nor hugetlbfs; or the capacity is zero
 *   - -EBADMSG: the file is damaged. Move it away to start with an empty journal; its batches are
 *     then lost
 *   - -ENOSPC: the file system is full
 *   - -errno of open(2), ftruncate(2), fallocate(2), mmap(2)
 */
int journal_open(struct journal **r, const struct journal_config *config, char message[PATH_MAX]);

/**
 * Adopt an existing journal at any path. Nothing is changed in it, but missing pages of a sparse
 * file are allocated if its file system supports that: otherwise an access to one of them on a full
 * file system could end the process by SIGBUS. Call journal_repair() before the first function that
 * changes it. Batches of a damaged run are damaged; those of other runs are adopted. A damaged
 * store keeps the batches that it may have.
 * @param message  out: how many batches are held, or what is wrong
 * @return 0; -EBUSY: its receiver is running; otherwise as journal_open(). -ENOSPC: the file is
 *   sparse and its file system is full. Copy it to a file system with room for all of its bytes
 */
int journal_open_existing(struct journal **r, const char *path, char message[PATH_MAX]);

/**
 * Complete what a killed process left unfinished, and write down what opening corrected.
 * journal_open() has done this.
 */
void journal_repair(struct journal *r);

/** Result of journal_probe(). */
struct journal_probe {
	bool adopts;   /**< a journal exists and would be adopted, with its existing capacity */
	uint64_t room; /**< capacity for batches, bytes */
	uint64_t file; /**< size of the whole file, bytes */
	uint64_t free; /**< bytes that the file system has for a new file; UINT64_MAX: no limit */
	uint64_t slot_bytes; /**< size of an output slot; 0: no area */
	uint32_t slots;	     /**< output slots in the file */
	/** of these, slots that batches refer to; those of damaged records do not count */
	uint32_t slots_held;
};

/**
 * Report what journal_open() would do. Nothing is created or changed. The lock of an existing
 * journal is held for a moment only.
 * @param message  out, on error: as for journal_open()
 * @return 0, or an error of journal_open(), except those of a full file system and of a damaged
 *   batch
 */
int journal_probe(
	const struct journal_config *config, struct journal_probe *probe, char message[PATH_MAX]);

/** @return the id of the receiver that the journal belongs to */
uint64_t journal_receiver_id(const struct journal *r);

/** Close the journal. The file stays. */
void journal_close(struct journal *r);

/** Address range of the whole file, to be registered as memory for sending. */
void journal_memory(const struct journal *r, void **addr, uint64_t *size);

/* ---- runs ------------------------------------------------------------------------------------ */

/**
 * Add a run. The process uses a copy of it in its own memory from then on: damage of the file
 * changes nothing until the file is opened again.
 * @param run  name, run, incarnation, schemas and body_max are used
 * @return index of the run
 *   - -ENOSPC: JOURNAL_RUNS runs exist
 *   - -ENOMEM
 *   - -E2BIG: a schema is larger than JOURNAL_SCHEMA
 *   - -EINVAL: xfer_name_check() refuses the name
 */
int journal_run_add(struct journal *r, const struct journal_run *run);

/** Record that a run has ended, and the number of its batches. */
void journal_run_end(struct journal *r, unsigned int run, const uint64_t batches[XFER_TABLES]);

/**
 * Set the number of the run's batches that are not held because files of the receiver have them.
 * @param batches  JOURNAL_UNCOUNTED: the number is not known; the next receiver that adopts the
 *   journal then forgets the doubts of the run
 */
void journal_run_spilled(struct journal *r, unsigned int run, uint64_t batches);

/**
 * Forget a run.
 * @return 0; -EBUSY: batches of it are held or in doubt, or a damaged batch may be of this run
 */
int journal_run_drop(struct journal *r, unsigned int run);

/** Whether a run of this incarnation was ever added. The last JOURNAL_INCARNATIONS are known. */
bool journal_had(const struct journal *r, uint64_t incarnation);

/** @return number of damaged records of incarnations: journal_had() is false for those */
unsigned int journal_lost_incarnations(const struct journal *r);

/** @return false: no run has this index */
bool journal_run_get(const struct journal *r, unsigned int index, struct journal_run *run);

/* ---- batches --------------------------------------------------------------------------------- */

/**
 * Reserve a room: contiguous space for the next batch, which the producer may write to. Only the
 * last reservation counts, and none needs to be cancelled: the room becomes part of the journal
 * when it is filled. Rooms that may be used together, for instance one for each gang, can be cut
 * from one reservation.
 *
 * A room does not cross the end of the space. If it does not fit before the end, it begins at the
 * start, and the remainder at the end stays unused. The reservation of a room larger than half of
 * the space gives up the remainder even if it fails: after journal_skip() the room can have the
 * whole space of an empty journal.
 * @param body  bytes, a multiple of XFER_BLOCK; the batch may be smaller
 * @return where to write the metadata, followed after XFER_BLOCK bytes by the body; NULL: no space
 *   now
 */
uint8_t *journal_reserve(struct journal *r, uint64_t body);

/**
 * Fill the reserved room: a batch is at its start, and the rest remains free. The batch is not held
 * until the owner has committed it.
 * @param batch  `body_bytes` is used; `position` is set
 */
void journal_fill(struct journal *r, struct journal_batch *batch);

/**
 * Fill the reserved room with a batch whose body begins in slots of the area: the referenced parts,
 * in their order, and then `rest_bytes` bytes that are in the room. Of the room, the references
 * take the block after the metadata: the rest begins 2 x XFER_BLOCK after the start, and
 * journal_reserve() was called for XFER_BLOCK + rest_bytes. The slots belong to the batch from then
 * on, and are free again when it is released. The parts must no longer change.
 * @param batch  `body_bytes` and `rest_bytes` are used: the whole body, and what is in the room, a
 *   multiple of XFER_BLOCK or, if it is all that follows the last part, any number. The members
 *   that name this function, and `position`, are set
 * @param reference  of slots that journal_slot_take() returned, each once
 * @param n  1 to JOURNAL_REFERENCES
 */
void journal_refer(struct journal *r, struct journal_batch *batch,
	const struct journal_reference *reference, uint32_t n);

/**
 * Fill the reserved room with a batch whose body is in the room in another order: the body consists
 * of pieces of the room, in the order given. The body's bytes begin 2 x XFER_BLOCK after the start
 * of the room. The table of the pieces takes the block before them. A larger one takes blocks after
 * them, and leaves that block unused. Unlike a table of references, the table is only in the
 * file, as the metadata is: if it changes, the batch is damaged. journal_reserve() was called for
 * JOURNAL_TABLE_MAX + body_bytes, or for XFER_BLOCK + body_bytes if n is at most
 * JOURNAL_BLOCK_PIECES.
 * @param batch  `body_bytes` is used: the sum of the pieces, a multiple of XFER_BLOCK. The members
 *   that name this function, and `position`, are set
 * @param piece  in the first `body_bytes` bytes
 * @param n  1 to JOURNAL_PARTS
 */
void journal_scatter(struct journal *r, struct journal_batch *batch,
	const struct journal_piece *piece, uint32_t n);

/**
 * Commit a batch, in the order of journal_fill(), journal_refer() and journal_scatter(). It is held
 * from then on.
 * @param batch  the members from `position` to `table` are used, and those of journal_refer() and
 *   journal_scatter()
 * @return number of the batch, for the functions below
 */
uint32_t journal_commit(struct journal *r, const struct journal_batch *batch);

/** @return position before which the producer fills no more rooms, for journal_skip() */
uint64_t journal_skipped(const struct journal *r);

/**
 * Free the space that the producer has given up, if no batch is held.
 * @param position  of journal_skipped(), if all batches filled before that call are committed
 */
void journal_skip(struct journal *r, uint64_t position);

/** Get the state of a batch. @return false: no batch of this number is held or in doubt */
bool journal_get(const struct journal *r, uint32_t batch, struct journal_batch *to);

/**
 * List the parts of the body of a held batch. The parts follow one another in the body. They are in
 * the journal's memory until the batch is released. Together they have at most `body_bytes` bytes,
 * fewer only if the table of pieces was damaged since journal_check().
 * @param part  out
 * @return their number
 */
uint32_t journal_parts(const struct journal_batch *batch, struct iovec part[JOURNAL_PARTS]);

/** Compute the CRC-32C of the body of a held batch, as it is in memory now. */
uint32_t journal_body_crc32c(const struct journal_batch *batch);

/**
 * Get the next batch number, from `batch` on, that is held or in doubt. The order of the numbers
 * has no meaning. @return UINT32_MAX: none
 */
uint32_t journal_next(const struct journal *r, uint32_t batch);

/**
 * Iterate over the held batches, the oldest first. *at is 0 for the first call. Batches may be
 * released during the iteration, but none may be added.
 * @return number of the batch; UINT32_MAX: end
 */
uint32_t journal_walk(const struct journal *r, uint32_t *at);

/**
 * Set the owner of a batch. If the batch was sent to another store before, that store must still be
 * notified (see journal_confirm()).
 * @param owner  index below JOURNAL_STORES, JOURNAL_SPILL or JOURNAL_NOBODY
 */
void journal_assign(struct journal *r, uint32_t batch, unsigned int owner);

/** Record that the owner, a store, may have the batch. Call this before its first byte is sent. */
void journal_give(struct journal *r, uint32_t batch);

/**
 * Let stores other than the owner keep what they may have of a batch: they are not told that it was
 * reassigned. Used for a batch that is damaged here, because a store may have the only good copy.
 * This ends with journal_prove(). Otherwise, when the batch is released, these stores count as
 * stores without a copy. It is not recorded in the file: a process that adopts the file finds the
 * damage itself.
 */
void journal_keep_copies(struct journal *r, uint32_t batch);

/** A store has proved that it has a sound copy of a held batch: journal_keep_copies() ends. */
void journal_prove(struct journal *r, uint32_t batch);

/** Release a batch that is durable at its owner. */
void journal_release(struct journal *r, uint32_t batch);

/**
 * Release a batch that is durable in a file of the receiver. It is counted before it is released: a
 * process that adopts the journal and finds fewer batches in the files knows that some were
 * imported.
 */
void journal_release_spilled(struct journal *r, uint32_t batch);

/**
 * Record that the store was notified of the run's batches that it may have and that another owner
 * has, and that it has truncated them.
 */
void journal_confirm(struct journal *r, unsigned int run, unsigned int store);

/** Stop notifying stores of batches of this run that they may have and that another owner has. */
void journal_forget_doubts(struct journal *r, unsigned int run);

/* ---- area ------------------------------------------------------------------------------------ */

/*
 * The area is a part of the file that is divided into slots of one size. A gang writes a result
 * into a slot, and a batch then refers to it (journal_refer()): the bytes are sent from where the
 * gang left them. A slot is free, or the producer has it, or one held batch refers to it. The file
 * knows only the last of these: a process that adopts it finds all other slots free. While a batch
 * is damaged, no slot becomes free, because the batch may refer to any of them.
 */

/**
 * Get the area. Any thread.
 * @param slot_bytes  out
 * @param slots  out
 * @return address of slot 0, a multiple of XFER_BLOCK; the others follow it. NULL: there is none
 */
uint8_t *journal_area(const struct journal *r, uint64_t *slot_bytes, uint32_t *slots);

/** Take a free slot. Producer. @return JOURNAL_NO_SLOT: none is free now */
uint32_t journal_slot_take(struct journal *r);

/** Give back a slot that no batch refers to. Producer. */
void journal_slot_return(struct journal *r, uint32_t slot);

/* ---- damage ---------------------------------------------------------------------------------- */

/*
 * A damaged batch has a record, metadata, a table or a body that fails its checksum, or belongs to
 * a damaged run. Opening and journal_check() find it and change nothing in the file. It stays in
 * the journal, but no function above returns it. Until journal_damage_drop() was called for each of
 * them, the producer gets no room: the bytes of a batch whose record is damaged may be anywhere in
 * the free space.
 */

/**
 * Check a batch before its bytes are used. If its record or its references in the file have
 * changed, they are written again: this process has them in memory. If the batch is held, its
 * metadata and its table of pieces are compared with their checksums.
 * @return false: the batch is damaged from now on
 */
bool journal_check(struct journal *r, uint32_t batch);

/** Whether the metadata and the body of a held batch match their checksums. Changes nothing. */
bool journal_is_sound(const struct journal *r, uint32_t batch);

/** @return whether there are damaged batches */
bool journal_is_damaged(const struct journal *r);

/** A damaged batch. */
struct journal_damage {
	/** record, run, metadata, table of references or pieces, body: the first that is damaged */
	const char *what;
	bool held;	   /**< false: in doubt, a store has it */
	bool known;	   /**< the record is sound, except its status */
	bool stores_known; /**< `batch` has the owner and the stores that may have a copy */
	/**
	 * if `known`, all members, in range; otherwise only owner, given and held. metadata is
	 * NULL: the place is not known, or not that of each part
	 */
	struct journal_batch batch;
	bool run_known; /**< `run` is valid: `known`, and the run is sound */
	struct journal_run run;
	const uint8_t *record; /**< the record as stored in the file */
};
#define JOURNAL_RECORD_BYTES 128 /**< size of a record */

/** Get the next damaged batch, from number `batch` on. @return UINT32_MAX: none */
uint32_t journal_damage_next(const struct journal *r, uint32_t batch);

/** Describe a damaged batch. @return false: the batch of this number is not damaged */
bool journal_damage_get(const struct journal *r, uint32_t batch, struct journal_damage *to);

/** Write one line about a damaged batch: what is damaged, and its run, table and frames. */
void journal_damage_text(const struct journal *r, uint32_t batch, char *text, size_t size);

/**
 * Iterate over the parts of the space, and over the slots, that no sound batch occupies. A batch
 * whose place is not known is in some of them. *at is 0 for the first call. Meanwhile no batch may
 * be added or released.
 * @param size  out: size of the part, a multiple of XFER_BLOCK
 * @return its bytes; NULL: end
 */
const uint8_t *journal_damage_space(const struct journal *r, uint32_t *at, uint64_t *size);

/** Free the record of a damaged batch. Its bytes are lost. */
void journal_damage_drop(struct journal *r, uint32_t batch);

/** @return what is wrong with a run of this index; NULL: nothing, or there is none */
const char *journal_run_damage(const struct journal *r, unsigned int index);

/* ---- stores ---------------------------------------------------------------------------------- */

/*
 * A store is identified by its authenticated identity: the batches sent to it stay assigned to it
 * when its address changes. Until it has connected once, its address identifies it.
 */

/** Get a store. @return false: no store has this index */
bool journal_store_get(const struct journal *r, unsigned int n, struct journal_store *to);

/** @return index of the store that is believed to be at an address; -ENOENT */
int journal_store_at(const struct journal *r, const char *address);

/** @return index of the store with an identity; -ENOENT */
int journal_store_of(const struct journal *r, uint64_t identity);

/** Add a store. @param identity  0: not known yet. @return its index; -ENOSPC */
int journal_store_add(struct journal *r, const char *address, uint64_t identity);

/** @return number of batches, held, in doubt or damaged, that the store may have a copy of */
uint32_t journal_store_given(const struct journal *r, unsigned int n);

/** Set the identity of a store that no batch was sent to, or whose identity is unknown. */
void journal_store_identify(struct journal *r, unsigned int n, uint64_t identity);

/**
 * Set the address of a store. It is cleared for other stores that had the same address.
 * @param address  NULL: unknown
 */
void journal_store_move(struct journal *r, unsigned int n, const char *address);

/** Remove a store. @return 0; -EBUSY: it may have batches that are held or in doubt */
int journal_store_drop(struct journal *r, unsigned int n);

/* ---- the rest -------------------------------------------------------------------------------- */

/** Save a ledger of at most JOURNAL_LEDGER bytes. It overwrites the older of two copies. */
void journal_ledger_put(struct journal *r, const void *ledger, size_t size);

/**
 * Read the ledger that was saved last. At most `size` bytes are written.
 * @return size of the ledger in bytes; 0: none
 */
size_t journal_ledger_get(const struct journal *r, void *ledger, size_t size);

/** @return whether opening found that both copies of the ledger are damaged */
bool journal_ledger_is_lost(const struct journal *r);

void journal_stats_get(const struct journal *r, struct journal_stats *stats);

/** What the required size of a journal depends on. */
struct journal_need {
	uint64_t rate;	       /**< kept batches, bytes/s */
	uint32_t commit_ms;    /**< maximum time until a store syncs its files */
	uint32_t round_ms;     /**< round trip of the acknowledgement */
	uint32_t detection_ms; /**< time until a failed store is detected */
	uint32_t hold_ms;      /**< time that all stores may be unavailable after that */
	uint64_t body_max;     /**< size of the largest batch, bytes */
};

/**
 * Compute the size that a journal must have.
 * @param text  out: the calculation in one line
 * @param size  size of `text`, at least 256 bytes
 * @return bytes
 */
uint64_t journal_need(const struct journal_need *need, char *text, size_t size);

#endif /* JOURNAL_H */
