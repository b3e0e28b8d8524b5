/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The sink protocol as bytes: what a receiver and a store say to each other (README.rst).
 *
 * All numbers are little-endian, all structures without gaps, all reserved bytes zero and checked.
 * What a peer has sent is copied once and checked in the copy (sink_message.h, sink_entry.h).
 */
#ifndef SINK_WIRE_H
#define SINK_WIRE_H

#include <assert.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "structures of the sink protocol are used as they lie in memory: wanted little-endian"
#endif

#define SINK_MAGIC   UINT32_C(0x4b534c42) /**< `BLSK` */
#define SINK_VERSION 5 /**< of all below, and of the layout that arrow_template gives to metadata */
#define SINK_PORT    18516 /**< default service: beside perftest's 18515 */

#define SINK_TABLES	  2 /**< frames, images: enum arrow_table */
#define SINK_NONCE_BYTES  32
#define SINK_MAC_BYTES	  32 /**< HMAC-SHA-256 */
#define SINK_DIGEST_BYTES 32 /**< SHA-256 */
#define SINK_NAME_BYTES	  64

#define SINK_MESSAGE_MAX 4096	      /**< bytes of a SEND */
#define SINK_SCHEMA_MAX	 (1u << 20)   /**< bytes of a table's schema */
#define SINK_ENTRY_BYTES 4096	      /**< a place of the metadata ring */
#define SINK_ENTRIES_MAX (1u << 16)   /**< places that a connection is granted */
#define SINK_BODY_MAX	 (1ull << 30) /**< bytes of a batch's body */
#define SINK_BLOCK	 4096	      /**< bodies are multiples of it: ARROW_BLOCK */
#define SINK_RECEIVES	 16 /**< receives that each end keeps posted: SENDs in flight each way */

/* ---- private data of the IB CM --------------------------------------------------------------- */

enum sink_role {
	SINK_ROLE_RECEIVER = 1, /**< batches of its own incarnation, or of one that it adopted */
	SINK_ROLE_IMPORT,	/**< batches out of spilled files */
	SINK_ROLE_STORE,
};

/** REQ and REP. */
struct sink_private {
	uint32_t magic;
	uint16_t version;
	uint8_t role; /**< REQ: receiver or import; REP: store */
	uint8_t reserved;
	uint64_t node; /**< REQ: producer; REP: identity of the store's directory, never 0 */
	uint8_t nonce[SINK_NONCE_BYTES];
	uint64_t identity; /**< REQ: sink_identity_id() of who asks; REP: 0 */
};
static_assert(sizeof(struct sink_private) == 56, "REQ has room for 56 bytes");

/** REJ, and SINK_REFUSE: why a connection ends. */
enum sink_reason {
	SINK_REASON_NONE,
	SINK_REASON_MALFORMED,	 /**< a length, a reserved byte, a value out of range */
	SINK_REASON_VERSION,	 /**< magic or version of somebody else */
	SINK_REASON_BUSY,	 /**< too many that have not proved themselves: come again */
	SINK_REASON_LATE,	 /**< not done with it in time */
	SINK_REASON_KEY,	 /**< the proof is wrong: another key, a replay, somebody between */
	SINK_REASON_ORDER,	 /**< a message that does not belong here */
	SINK_REASON_SCHEMA,	 /**< no schema of ours, another one than announced */
	SINK_REASON_BODY,	 /**< a message of one frame does not fit */
	SINK_REASON_ENTRY,	 /**< a metadata entry that is not what it should be */
	SINK_REASON_SUPERSEDED,	 /**< the same stream has come by a newer connection */
	SINK_REASON_SILENT,	 /**< no heartbeat */
	SINK_REASON_QUOTA,	 /**< no room is left to this producer */
	SINK_REASON_STOPPING,	 /**< the store is being stopped */
	SINK_REASON_FAILED,	 /**< something of the store itself: its log says what */
	SINK_REASON_STORE,	 /**< by the receiver: not the store that is to be there */
	SINK_REASON_RIGHTS,	 /**< the identity may not do this: producer, run, right */
	SINK_REASON_ENDED,	 /**< the run has ended: no peer changes it any more */
	SINK_REASON_CONNECTIONS, /**< the identity has as many as it may: come again */
	SINK_REASON_RUNS,	 /**< the identity has as many open runs as it may: come again */
	SINK_REASONS
};

/** Private data of a REJ. */
struct sink_reject {
	uint32_t magic;
	uint16_t version;
	uint16_t reason; /**< enum sink_reason */
};
static_assert(sizeof(struct sink_reject) == 8, "layout");

/* ---- messages: SENDs ------------------------------------------------------------------------- */

enum sink_type {
	SINK_PROOF = 1, /**< receiver: who it is, what it will send, and that it has the key */
	SINK_ANSWER,	/**< store: that it has the key */
	SINK_SCHEMA,	/**< receiver: a part of a table's schema */
	SINK_MOVED,	/**< receiver: batches that may be here and went elsewhere */
	SINK_HAVE,	/**< store: batches of HELD that are durable here, and sound */
	SINK_GRANT,	/**< store: where to write */
	SINK_RESULTS,	/**< store: what became of batches */
	SINK_STATUS,	/**< both: alive; how the store is */
	SINK_END,	/**< receiver: no more of this stream */
	SINK_ENDED,	/**< store: all of it is durable and its files have their names */
	SINK_REFUSE,	/**< both: the connection is given up, and why */
	SINK_HELD,	/**< receiver: batches that it would release if they are here */
	SINK_TYPES
};

enum sink_flag {
	SINK_MORE = 1 << 0, /**< SINK_SCHEMA, SINK_MOVED, SINK_HELD, SINK_HAVE: another follows */
};

/** Begins each message. */
struct sink_message {
	uint16_t type;	 /**< enum sink_type */
	uint16_t flags;	 /**< enum sink_flag */
	uint32_t length; /**< bytes, with this */
	uint64_t number; /**< counts from 0 in each direction of a connection */
};
static_assert(sizeof(struct sink_message) == 16, "layout");

/** One end of a connection, as its own side knows it. */
struct sink_endpoint {
	uint8_t addr[16]; /**< IPv6, or IPv4 as ::ffff:a.b.c.d: the GID */
	uint32_t qpn;
	uint32_t reserved;
};
static_assert(sizeof(struct sink_endpoint) == 24, "layout");

/** What the schema of a table is, and how large a batch of it may be. */
struct sink_table {
	uint64_t body_max;			/**< bytes; at least that of one frame */
	uint32_t schema_bytes;			/**< of a file's first blocks */
	uint32_t reserved;			/**< */
	uint8_t fingerprint[SINK_DIGEST_BYTES]; /**< SHA-256 of them */
};
static_assert(sizeof(struct sink_table) == 48, "layout");

/** SINK_PROOF */
struct sink_proof {
	struct sink_message head;
	uint64_t run;
	uint64_t incarnation;
	struct sink_endpoint receiver;
	struct sink_endpoint store;
	struct sink_table table[SINK_TABLES];
	char name[SINK_NAME_BYTES];	/**< of the run, begins file names; filled up with zeros */
	char identity[SINK_NAME_BYTES]; /**< whose key it is; filled up with zeros */
	uint8_t mac[SINK_MAC_BYTES];
};
static_assert(sizeof(struct sink_proof) == 336, "layout");

/** SINK_ANSWER */
struct sink_answer {
	struct sink_message head;
	uint8_t mac[SINK_MAC_BYTES];
};
static_assert(sizeof(struct sink_answer) == 48, "layout");

/** SINK_SCHEMA: in order, frames first; bytes follow. */
struct sink_schema {
	struct sink_message head;
	uint32_t table;
	uint32_t offset; /**< of these bytes */
	uint8_t bytes[];
};
static_assert(sizeof(struct sink_schema) == 24, "layout");
#define SINK_SCHEMA_PART (SINK_MESSAGE_MAX - 24) /**< bytes of a message, at most */

/** Sequence numbers first to last, both included. */
struct sink_interval {
	uint64_t first;
	uint64_t last;
};
static_assert(sizeof(struct sink_interval) == 16, "layout");

/** SINK_MOVED, SINK_HELD, SINK_HAVE: ascending, none touches the next; frames first. */
struct sink_intervals {
	struct sink_message head;
	uint32_t table;
	uint32_t nb;
	struct sink_interval interval[];
};
static_assert(sizeof(struct sink_intervals) == 24, "layout");
#define SINK_INTERVALS_MAX ((SINK_MESSAGE_MAX - 24) / 16)
#define SINK_MOVED_MAX \
	(1u << 16) /**< intervals of a table, and batches of HELD: a receiver holds no more */

enum sink_region_kind {
	SINK_REGION_METADATA, /**< SINK_ENTRY_BYTES each, of all tables */
	SINK_REGION_BODY,     /**< of one table */
};

/** Memory that the receiver may write: the places of some entries, one after the other. */
struct sink_region {
	uint64_t addr;
	uint64_t place; /**< bytes of one place; a multiple of SINK_BLOCK */
	uint32_t rkey;
	uint32_t first; /**< entry */
	uint32_t nb;	/**< entries */
	uint8_t kind;	/**< enum sink_region_kind */
	uint8_t table;	/**< SINK_REGION_BODY: enum arrow_table */
	uint16_t reserved;
};
static_assert(sizeof(struct sink_region) == 32, "layout");

/** SINK_GRANT */
struct sink_grant {
	struct sink_message head;
	uint64_t epoch;	       /**< of the connection: random; in each entry */
	uint32_t heartbeat_ms; /**< SINK_STATUS at least as often, both ways */
	uint32_t silence_ms;   /**< without any message: the peer is gone */
	uint32_t commit_ms;    /**< a batch is durable about so much later, at most */
	uint32_t nb;	       /**< regions */
	struct sink_region region[];
};
static_assert(sizeof(struct sink_grant) == 40, "layout");
#define SINK_REGIONS_MAX ((SINK_MESSAGE_MAX - 40) / 32)

/** What became of a batch; its place is the receiver's again. */
enum sink_result_status {
	SINK_DURABLE = 1, /**< it, and all before it in its file, outlive a power failure */
	SINK_DOUBLE,	  /**< it was durable before: the copy was thrown away */
	SINK_AGAIN,	  /**< not stored (disk full, I/O error): still the receiver's */
	SINK_STATUSES
};

struct sink_result {
	uint64_t sequence;
	uint32_t entry;
	uint8_t table;
	uint8_t status; /**< enum sink_result_status */
	uint16_t reserved;
};
static_assert(sizeof(struct sink_result) == 16, "layout");

/** SINK_RESULTS */
struct sink_results {
	struct sink_message head;
	uint32_t nb;
	uint32_t reserved;
	struct sink_result result[];
};
static_assert(sizeof(struct sink_results) == 24, "layout");
#define SINK_RESULTS_MAX ((SINK_MESSAGE_MAX - 24) / 16)

enum sink_state {
	SINK_STATE_GOOD,
	SINK_STATE_FULL,     /**< disk or quota: send nothing until it is good again */
	SINK_STATE_FAILED,   /**< I/O errors: the same */
	SINK_STATE_STOPPING, /**< goes away in order */
	SINK_STATE_SETTLING, /**< before HAVE: it is alive, and looks into its files */
	SINK_STATES
};

/** SINK_STATUS */
struct sink_status {
	struct sink_message head;
	uint32_t state;	    /**< enum sink_state; of a receiver: GOOD or STOPPING */
	uint32_t reserved;  /**< 0 */
	uint64_t reserved2; /**< 0 */
};
static_assert(sizeof(struct sink_status) == 32, "layout");

/** SINK_END, SINK_ENDED */
struct sink_end {
	struct sink_message head;
	uint64_t batches[SINK_TABLES]; /**< END: of the stream, wherever they went; ENDED: here */
};
static_assert(sizeof(struct sink_end) == 32, "layout");

/** SINK_REFUSE */
struct sink_refuse {
	struct sink_message head;
	uint32_t reason; /**< enum sink_reason */
	uint32_t reserved;
};
static_assert(sizeof(struct sink_refuse) == 24, "layout");

/* ---- the metadata ring ----------------------------------------------------------------------- */

/** A batch as it is announced: what a place of the metadata ring begins with. */
struct sink_descriptor {
	uint32_t magic;
	uint16_t version;
	uint8_t table; /**< enum arrow_table */
	uint8_t reserved;
	uint32_t entry;	 /**< this place; the immediate of the WRITE that brought it */
	uint32_t crc32c; /**< of these 120 bytes with zeros here; metadata have their own */
	uint64_t epoch;	 /**< of the grant */
	uint64_t producer;
	uint64_t run;
	uint64_t incarnation;
	uint64_t sequence;
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received;	 /**< of the last row: ns since 1970; 0: unknown */
	uint64_t body_bytes;	 /**< a multiple of SINK_BLOCK */
	uint32_t body_crc32c;	 /**< of the body with its gaps */
	uint32_t metadata_bytes; /**< that follow; up to SINK_BLOCK they are zeros */
	uint64_t reserved2[2];
};
static_assert(sizeof(struct sink_descriptor) == 120, "layout");

#define SINK_ENTRY_METADATA_BYTES (SINK_ENTRY_BYTES - 120)

/** A place of the metadata ring: one WRITE_WITH_IMM of what is used, after the body's WRITEs. */
struct sink_entry {
	struct sink_descriptor descriptor;
	/** Arrow's metadata of the batch from the FFFFFFFF on, without the zeros at their end. */
	uint8_t metadata[SINK_ENTRY_METADATA_BYTES];
};
static_assert(sizeof(struct sink_entry) == SINK_ENTRY_BYTES, "a place of the ring");

#endif /* SINK_WIRE_H */
