/* SPDX-License-Identifier: BSD-3-Clause */
/** @file How a journal lies in its file, and what follows from that. Not for others. */
#ifndef JOURNAL_PRIVATE_H
#define JOURNAL_PRIVATE_H

#include "arrow/crc32c.h"
#include "journal/journal.h"

#define RING_MAGIC   UINT64_C(0x314e455445524c42) /* `BLRETEN1` */
#define RING_VERSION 7

/* A store that batches were given to. */
struct ring_store {
	uint64_t identity; /* 0: it was never connected to */
	uint8_t used;	   /* makes it valid */
	uint8_t here;	   /* the address is its own, as far as is known */
	uint8_t reserved[6];
	char address[JOURNAL_ADDRESS]; /* where it was last */
};
static_assert(sizeof(struct ring_store) == 80, "layout");

/* How the file begins. What `crc` covers never changes. */
struct ring_header {
	uint64_t magic; /* last: without it there is no file */
	uint32_t version;
	uint32_t crc; /* from here to `store` */
	uint64_t size;
	uint64_t producer;
	uint64_t ledger_at;
	uint64_t runs_at;
	uint64_t batches_at;
	uint64_t data_at;
	uint64_t data_size;
	uint32_t nb_batches;
	uint32_t reserved;
	struct ring_store store[JOURNAL_STORES];
	uint64_t nb_incarnations; /* ever; the last ones: */
	uint64_t incarnation[JOURNAL_INCARNATIONS];
};
static_assert(sizeof(struct ring_header) <= XFER_BLOCK, "one block");
static_assert(offsetof(struct ring_header, size) == 16, "layout");

/* Two of them, behind the header. */
struct ring_ledger {
	uint32_t crc; /* of what follows, up to the last byte used */
	uint32_t size;
	uint64_t number;
	uint8_t bytes[JOURNAL_LEDGER];
	uint8_t reserved[80];
};
static_assert(sizeof(struct ring_ledger) == XFER_BLOCK, "one block");

enum run_state {
	RUN_FREE,
	RUN_LIVE
};

struct ring_run {
	uint32_t crc;  /* from `run` to `body_max`, then the schemas */
	uint8_t state; /* makes it valid */
	uint8_t ended; /* makes `batches` valid */
	uint16_t reserved;
	uint64_t run;
	uint64_t incarnation;
	char name[XFER_NAME_BYTES];
	uint32_t schema_bytes[XFER_TABLES];
	uint64_t body_max[XFER_TABLES];
	uint64_t batches[XFER_TABLES];
	/* batches that were released to files of the receiver's own, and in the low bits 1 + that
	 * which is being released: it counts only if it is not held any more */
	uint64_t spilled;
	uint8_t reserved2[XFER_BLOCK - 136];
	uint8_t schema[XFER_TABLES][JOURNAL_SCHEMA];
};
static_assert(sizeof(struct ring_run) == XFER_BLOCK + XFER_TABLES * JOURNAL_SCHEMA, "blocks");

/* "Bytes ever taken" never gets there: sums with it do not overflow. */
#define POSITION_MAX (UINT64_C(1) << 62)

#define SPILLING_BITS 24
#define SPILLING_MASK ((UINT64_C(1) << SPILLING_BITS) - 1)
static_assert(JOURNAL_BATCHES < SPILLING_MASK, "each can be told");

enum batch_state {
	BATCH_FREE,
	BATCH_HELD,
	BATCH_IN_DOUBT, /* released, but others than its owner were given it */
};

struct ring_batch {
	uint32_t crc;  /* from `position` on */
	uint8_t state; /* makes it valid */
	uint8_t owner;
	uint16_t given;
	uint64_t position; /* in bytes ever taken; modulo data_size: in the file */
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
	uint8_t reserved2[52];
};
static_assert(sizeof(struct ring_batch) == 128, "two cache lines");

/* What was taken, in the order of the ring. */
struct taken {
	uint64_t position;
	uint32_t batch;
};

struct journal {
	int fd;
	uint8_t *map;
	uint64_t size;
	struct ring_header *header;
	struct ring_ledger *ledger;
	struct ring_run *run;
	struct ring_batch *batch;
	uint8_t *data;
	uint64_t data_size;
	uint32_t nb_batches;
	/* not in the file: it follows from what is */
	struct taken *taken; /* ring of nb_batches + 1 */
	uint32_t taken_head;
	uint32_t taken_tail;
	uint32_t *free_batch;
	uint32_t nb_free;
	uint32_t references[JOURNAL_RUNS];
	uint32_t held[JOURNAL_RUNS]; /* of them */
	uint64_t head;		     /* bytes ever taken */
	uint64_t tail;		     /* ... and free again */
	uint64_t reserved;	     /* position of what is reserved, */
	uint64_t reserved_bytes;     /* 0: nothing is */
	uint64_t ledger_number;
	struct journal_stats stats;
	void (*step)(void *arg);
	void *step_arg;
};

/* Here a process may be killed. No store goes from one side of it to the other. */
static inline void
step(const struct journal *r)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (r->step != NULL)
		r->step(r->step_arg);
}

#define PUT(member, value)  __atomic_store_n(&(member), (value), __ATOMIC_RELEASE)
#define SET(counter, value) __atomic_store_n(&(counter), (value), __ATOMIC_RELAXED)
#define COUNT(counter, n)   SET(counter, (counter) + (n))
#define CRC_FROM(object, member)                                                             \
	arrow_crc32c(0, (const uint8_t *)(object) + offsetof(__typeof__(*(object)), member), \
		sizeof(*(object)) - offsetof(__typeof__(*(object)), member))

static inline uint32_t
ledger_crc(const struct ring_ledger *l)
{
	return arrow_crc32c(0, &l->size,
		offsetof(struct ring_ledger, bytes) - offsetof(struct ring_ledger, size) + l->size);
}

static inline bool
ledger_is_sound(const struct ring_ledger *l)
{
	return l->number > 0 && l->size <= JOURNAL_LEDGER && l->crc == ledger_crc(l);
}

/* Of a run whose schema_bytes are in range. */
static inline uint32_t
run_crc(const struct ring_run *run)
{
	uint32_t crc = arrow_crc32c(
		0, &run->run, offsetof(struct ring_run, batches) - offsetof(struct ring_run, run));
	unsigned int t;

	for (t = 0; t < XFER_TABLES; t++)
		crc = arrow_crc32c(crc, run->schema[t], run->schema_bytes[t]);
	return crc;
}

/* Who may have a batch beside its owner. */
static inline uint16_t
others_given(const struct ring_batch *b)
{
	return b->owner < JOURNAL_STORES ? b->given & ~(1u << b->owner) : b->given;
}

static inline uint64_t
round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

#endif /* JOURNAL_PRIVATE_H */
