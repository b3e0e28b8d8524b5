/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The journal: batches of a receiver until some store has them for good, in a file of a
 * tmpfs or hugetlbfs, so that it outlives the process. It does not outlive the machine.
 *
 * A batch lies in one piece (Arrow metadata, then its body, both whole blocks), ready to be sent
 * from where it is. Room is taken round and round, so one that stays holds what came after it; how
 * much there must be is journal_need()'s.
 *
 * Order of stores: at any moment a process may be killed and another adopt the file. Each change is
 * one store of at most 8 bytes that makes it valid, after all that it depends on; readers of a
 * process that was killed see its stores in program order. What was being put in and had not been
 * committed is not there.
 *
 * One thread writes; journal_stats_get() may be called by any.
 */
#ifndef JOURNAL_H
#define JOURNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "xfer/proto.h"

#define JOURNAL_STORES	     16		  /**< that batches may be given to */
#define JOURNAL_RUNS	     32		  /**< whose batches may be held at a time */
#define JOURNAL_SCHEMA	     (256u << 10) /**< bytes of a table's schema, at most */
#define JOURNAL_LEDGER	     4000	  /**< bytes of a ledger, at most */
#define JOURNAL_INCARNATIONS 256	  /**< that are remembered, longer than their runs */
#define JOURNAL_ADDRESS	     64		  /**< bytes of a store's address as text, with its end */
#define JOURNAL_NOBODY	     0xff	  /**< no store yet */
#define JOURNAL_SPILL	     0xfe	  /**< a file of the receiver's own */
#define JOURNAL_BATCHES	     65536	  /**< that are held, or in doubt; at most, the default */

/** What is known of a batch that is held; its bytes are `metadata` and then `body`. */
struct journal_batch {
	uint64_t sequence;
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received;    /**< ns since 1970; 0: unknown */
	uint64_t body_bytes; /**< a multiple of XFER_BLOCK */
	uint32_t body_crc32c;
	uint16_t run; /**< index: journal_run_get() */
	uint8_t table;
	uint8_t owner;	   /**< whose it is: a store, JOURNAL_SPILL or JOURNAL_NOBODY */
	uint16_t given;	   /**< bits of stores that may have it */
	bool held;	   /**< false: its owner has it for good; others may have it as well */
	uint8_t *metadata; /**< XFER_BLOCK bytes; NULL: not held */
	uint8_t *body;
};

/** A run whose batches are held. */
struct journal_run {
	uint64_t run;
	uint64_t incarnation;
	char name[XFER_NAME_BYTES];
	const uint8_t *schema[XFER_TABLES];
	uint32_t schema_bytes[XFER_TABLES];
	uint64_t body_max[XFER_TABLES];
	uint64_t batches[XFER_TABLES]; /**< once it has ended: how many there were */
	bool ended;
	uint64_t spilled;    /**< batches, journal_release_spilled() */
	uint32_t references; /**< batches that are held or in doubt, */
	uint32_t held;	     /**< and those of them that are held */
};

/** A store that batches are given to. */
struct journal_store {
	uint64_t identity;	       /**< as it has proved; 0: it was never connected to */
	char address[JOURNAL_ADDRESS]; /**< ADDRESS:PORT, where it was last */
	bool here;		       /**< the address is its own, as far as is known */
};

struct journal_config {
	const char *path; /**< of the file; its folder exists, but for journal_default_path() */
	uint64_t producer;
	uint64_t bytes;	  /**< for batches; rounded up to whole pages */
	uint32_t batches; /**< 0: JOURNAL_BATCHES */
	/** Called between any two stores to the file: for tests. NULL: not */
	void (*step)(void *arg);
	void *step_arg;
};

/** Counters are of this process; fill is of now. */
struct journal_stats {
	uint64_t batches;  /**< held */
	uint64_t bytes;	   /**< that cannot be used: from the oldest that is held to the newest */
	uint64_t room;	   /**< bytes in all */
	uint64_t in_doubt; /**< released, but a store that may have them does not know it yet */
	uint64_t put;
	uint64_t released;
	uint64_t moved; /**< given to one, and then another's */
	uint64_t adopted;
	uint64_t damaged; /**< not adopted: their bytes or numbers fail their checksums */
	uint64_t full;	  /**< times that there was no room */
};

struct journal;

/** `journal` in own_memory_folder(): where a ring is unless another path is given. */
const char *journal_default_path(void);

/**
 * Create the file, or adopt the one that is there. Nothing that another user can have made is
 * adopted: the file is a regular one of this user or root, mode 0600, with one name, and its folder
 * is one that other users cannot write to, or sticky. The folder of journal_default_path() is
 * made, and is this user's alone.
 *
 * A batch whose record, metadata or body fails its checksum is dropped, counted and named in the
 * message; the others are adopted. Numbers that are out of range in what all of them depend on are
 * refused. Another process of this user that truncates the file ends this one (SIGBUS).
 * @param message  out: what was done, or what is wrong and what was wanted
 * @return 0: new, nothing is held; 1: adopted, with the room that it has
 *   - -EBUSY: another process has it
 *   - -EPERM, -ELOOP, -EISDIR, -EMEDIUMTYPE: another user can have made it
 *   - -EINVAL: a file of another producer, version, or none of ours; no tmpfs or hugetlbfs; no
 *     room for anything
 *   - -EBADMSG: damaged: move it away to begin anew, its batches are lost then
 *   - -errno of open(2), ftruncate(2), mmap(2)
 */
int journal_open(struct journal **r, const struct journal_config *config, char message[PATH_MAX]);

/**
 * Adopt a file that some receiver has left, wherever it is now.
 * @param message  out: what is held, or what is wrong
 * @return 0; -EBUSY: its receiver runs; else as journal_open()
 */
int journal_open_existing(struct journal **r, const char *path, char message[PATH_MAX]);

/** What journal_open() would find. */
struct journal_probe {
	bool adopts;   /**< a ring that is there, with the room that it has */
	uint64_t room; /**< bytes for batches */
	uint64_t file; /**< bytes of the file in all */
	uint64_t free; /**< bytes that its file system has for a new one; UINT64_MAX: no limit */
};

/**
 * What journal_open() would find and do: nothing is made or changed, and the lock of a ring that
 * is there is had for a moment only.
 * @param message  out, on error: as journal_open()'s
 * @return 0; the errors of journal_open() but those of a full file system and a damaged batch
 */
int journal_probe(
	const struct journal_config *config, struct journal_probe *probe, char message[PATH_MAX]);

/** Whose it is. */
uint64_t journal_producer(const struct journal *r);

/** The file stays. */
void journal_close(struct journal *r);

/** Where its bytes are, all of it, for registration as memory that is sent from. */
void journal_memory(const struct journal *r, void **addr, uint64_t *size);

/* ---- runs ------------------------------------------------------------------------------------ */

/**
 * Add a run.
 * @param run  name, numbers, schemas, body_max are used
 * @return index; -ENOSPC: JOURNAL_RUNS are there; -E2BIG: a schema of more than JOURNAL_SCHEMA;
 *   -EINVAL: a name that xfer_name_check() refuses
 */
int journal_run_add(struct journal *r, const struct journal_run *run);

/** No more batches of a run. */
void journal_run_end(struct journal *r, unsigned int run, const uint64_t batches[XFER_TABLES]);

/** So many batches of it that are not held are in files of the receiver's own. */
void journal_run_spilled(struct journal *r, unsigned int run, uint64_t batches);

/** Forget a run. @return 0; -EBUSY: batches of it are held or in doubt */
int journal_run_drop(struct journal *r, unsigned int run);

/** Whether it ever had a run of this incarnation, of the last JOURNAL_INCARNATIONS. */
bool journal_had(const struct journal *r, uint64_t incarnation);

/** @return false: none has this index */
bool journal_run_get(const struct journal *r, unsigned int index, struct journal_run *run);

/* ---- batches --------------------------------------------------------------------------------- */

/**
 * Room for a batch; nothing else may be reserved until it is committed or given up.
 * @param body  bytes, a multiple of XFER_BLOCK
 * @return where metadata, and XFER_BLOCK behind it the body, go; NULL: no room now
 */
uint8_t *journal_reserve(struct journal *r, uint64_t body);

/** Give the room back. */
void journal_give_up(struct journal *r);

/**
 * It is held from here on.
 * @param batch  sequence to table are used
 * @return number of the batch, for the calls below
 */
uint32_t journal_commit(struct journal *r, const struct journal_batch *batch);

/** Look at a batch. @return false: nothing of this number is held or in doubt */
bool journal_get(const struct journal *r, uint32_t batch, struct journal_batch *to);

/** The next number from `batch` on that is held or in doubt, in no order; UINT32_MAX: none. */
uint32_t journal_next(const struct journal *r, uint32_t batch);

/** Held batches, the oldest first, from *at = 0 on; they may be released in between, and nothing
 * else may be put in. @return UINT32_MAX: that was all */
uint32_t journal_walk(const struct journal *r, uint32_t *at);

/**
 * Whose it is from here on. Of one that was given to a store: that store is gone, and it has to
 * hear of it.
 * @param owner  index below JOURNAL_STORES, JOURNAL_SPILL or JOURNAL_NOBODY
 */
void journal_assign(struct journal *r, uint32_t batch, unsigned int owner);

/** The store that owns it may have it from here on: before its first byte goes. */
void journal_give(struct journal *r, uint32_t batch);

/** Its owner has it for good. */
void journal_release(struct journal *r, uint32_t batch);

/**
 * It is in a file of the receiver's own for good. They are counted, before that: who adopts the
 * ring and finds fewer in files knows that some were imported.
 */
void journal_release_spilled(struct journal *r, uint32_t batch);

/** This store has been told what of a run it was given and is another's, and has cut it off. */
void journal_confirm(struct journal *r, unsigned int run, unsigned int store);

/** No store is told any more what of a run it was given and is another's. */
void journal_forget_doubts(struct journal *r, unsigned int run);

/* ---- stores ---------------------------------------------------------------------------------- */

/* A store is who it has proved to be: what it was given is its own wherever it is. Its address says
 * which one is meant until it has been connected to (store_set.h). */

/** Look at a store. @return false: none has this number */
bool journal_store_get(const struct journal *r, unsigned int n, struct journal_store *to);

/** @return the number of the store at an address, as far as is known; -ENOENT */
int journal_store_at(const struct journal *r, const char *address);

/** @return the number of the store of an identity; -ENOENT */
int journal_store_of(const struct journal *r, uint64_t identity);

/** A store that is not known yet. @param identity  0: not yet. @return its number; -ENOSPC */
int journal_store_add(struct journal *r, const char *address, uint64_t identity);

/** Batches, held or in doubt, that it was given. */
uint32_t journal_store_given(const struct journal *r, unsigned int n);

/** Who it is: of one that was given nothing, or is not known. */
void journal_store_identify(struct journal *r, unsigned int n, uint64_t identity);

/** Where it is. Others that were there are somewhere else. @param address  NULL: nobody knows */
void journal_store_move(struct journal *r, unsigned int n, const char *address);

/** Forget one. @return 0; -EBUSY: it was given batches that are held or in doubt */
int journal_store_drop(struct journal *r, unsigned int n);

/* ---- the rest -------------------------------------------------------------------------------- */

/** Keep a ledger: of two copies the older one is overwritten. At most JOURNAL_LEDGER bytes. */
void journal_ledger_put(struct journal *r, const void *ledger, size_t size);

/** @return bytes of the ledger that was kept last, at most `size` are written; 0: none */
size_t journal_ledger_get(const struct journal *r, void *ledger, size_t size);

void journal_stats_get(const struct journal *r, struct journal_stats *stats);

/** What the size of a ring follows from. */
struct journal_need {
	uint64_t rate;	       /**< bytes of kept batches, a second */
	uint32_t commit_ms;    /**< until a store syncs, */
	uint32_t round_ms;     /**< and says so */
	uint32_t detection_ms; /**< until a store that is gone is given up */
	uint32_t hold_ms;      /**< and as long as all stores may stand still then */
	uint64_t body_max;     /**< bytes of the largest batch */
};

/**
 * Bytes that a ring must have, and how they come about.
 * @param text  out: one line, at least 256 bytes
 */
uint64_t journal_need(const struct journal_need *need, char *text, size_t size);

#endif /* JOURNAL_H */
