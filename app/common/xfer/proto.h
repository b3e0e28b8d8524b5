/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The transfer protocol as bytes: what a receiver and a store say to each other (README.rst).
 *
 * All numbers are little-endian, all structures without gaps, all reserved bytes zero and checked.
 * What a peer has sent is copied once and checked in the copy (xfer_msg.h, xfer_desc.h).
 */
#ifndef XFER_PROTO_H
#define XFER_PROTO_H

#include <assert.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "structures of the transfer protocol are used as they lie in memory: wanted little-endian"
#endif

#define XFER_MAGIC   UINT32_C(0x4b534c42) /**< `BLSK` */
#define XFER_VERSION 5 /**< of all below, and of the layout that arrow_template gives to metadata */
#define XFER_PORT    18516 /**< default service: beside perftest's 18515 */

#define XFER_TABLES	  2 /**< frames, images: enum arrow_table */
#define XFER_NONCE_BYTES  32
#define XFER_MAC_BYTES	  32 /**< HMAC-SHA-256 */
#define XFER_DIGEST_BYTES 32 /**< SHA-256 */
#define XFER_NAME_BYTES	  64

#define XFER_MSG_MAX	4096	     /**< bytes of a SEND */
#define XFER_SCHEMA_MAX (1u << 20)   /**< bytes of a table's schema */
#define XFER_DESC_BYTES 4096	     /**< a place of the metadata ring */
#define XFER_DESCS_MAX	(1u << 16)   /**< places that a connection is granted */
#define XFER_BODY_MAX	(1ull << 30) /**< bytes of a batch's body */
#define XFER_BLOCK	4096	     /**< bodies are multiples of it: ARROW_BLOCK */
#define XFER_RECEIVES	16 /**< receives that each end keeps posted: SENDs in flight each way */

/* ---- private data of the IB CM --------------------------------------------------------------- */

enum xfer_role {
	XFER_ROLE_RECEIVER = 1, /**< batches of its own incarnation, or of one that it adopted */
	XFER_ROLE_IMPORT,	/**< batches out of spilled files */
	XFER_ROLE_STORE,
};

/** REQ and REP. */
struct xfer_private {
	uint32_t magic;
	uint16_t version;
	uint8_t role; /**< REQ: receiver or import; REP: store */
	uint8_t reserved;
	uint64_t node; /**< REQ: producer; REP: identity of the store's directory, never 0 */
	uint8_t nonce[XFER_NONCE_BYTES];
	uint64_t identity; /**< REQ: xfer_identity_id() of who asks; REP: 0 */
};
static_assert(sizeof(struct xfer_private) == 56, "REQ has room for 56 bytes");

/** REJ, and XFER_REFUSE: why a connection ends. */
enum xfer_reason {
	XFER_REASON_NONE,
	XFER_REASON_MALFORMED,	 /**< a length, a reserved byte, a value out of range */
	XFER_REASON_VERSION,	 /**< magic or version of somebody else */
	XFER_REASON_BUSY,	 /**< too many that have not proved themselves: come again */
	XFER_REASON_LATE,	 /**< not done with it in time */
	XFER_REASON_KEY,	 /**< the proof is wrong: another key, a replay, somebody between */
	XFER_REASON_ORDER,	 /**< a message that does not belong here */
	XFER_REASON_SCHEMA,	 /**< no schema of ours, another one than announced */
	XFER_REASON_BODY,	 /**< a message of one frame does not fit */
	XFER_REASON_ENTRY,	 /**< a metadata entry that is not what it should be */
	XFER_REASON_SUPERSEDED,	 /**< the same stream has come by a newer connection */
	XFER_REASON_SILENT,	 /**< no heartbeat */
	XFER_REASON_QUOTA,	 /**< no room is left to this producer */
	XFER_REASON_STOPPING,	 /**< the store is being stopped */
	XFER_REASON_FAILED,	 /**< something of the store itself: its log says what */
	XFER_REASON_STORE,	 /**< by the receiver: not the store that is to be there */
	XFER_REASON_RIGHTS,	 /**< the identity may not do this: producer, run, right */
	XFER_REASON_ENDED,	 /**< the run has ended: no peer changes it any more */
	XFER_REASON_CONNECTIONS, /**< the identity has as many as it may: come again */
	XFER_REASON_RUNS,	 /**< the identity has as many open runs as it may: come again */
	XFER_REASONS
};

/** Private data of a REJ. */
struct xfer_reject {
	uint32_t magic;
	uint16_t version;
	uint16_t reason; /**< enum xfer_reason */
};
static_assert(sizeof(struct xfer_reject) == 8, "layout");

/* ---- messages: SENDs ------------------------------------------------------------------------- */

enum xfer_type {
	XFER_PROOF = 1, /**< receiver: who it is, what it will send, and that it has the key */
	XFER_ANSWER,	/**< store: that it has the key */
	XFER_SCHEMA,	/**< receiver: a part of a table's schema */
	XFER_MOVED,	/**< receiver: batches that may be here and went elsewhere */
	XFER_HAVE,	/**< store: batches of HELD that are durable here, and sound */
	XFER_GRANT,	/**< store: where to write */
	XFER_RESULTS,	/**< store: what became of batches */
	XFER_STATUS,	/**< both: alive; how the store is */
	XFER_END,	/**< receiver: no more of this stream */
	XFER_ENDED,	/**< store: all of it is durable and its files have their names */
	XFER_REFUSE,	/**< both: the connection is given up, and why */
	XFER_HELD,	/**< receiver: batches that it would release if they are here */
	XFER_TYPES
};

enum xfer_flag {
	XFER_MORE = 1 << 0, /**< XFER_SCHEMA, XFER_MOVED, XFER_HELD, XFER_HAVE: another follows */
};

/** Begins each message. */
struct xfer_msg {
	uint16_t type;	 /**< enum xfer_type */
	uint16_t flags;	 /**< enum xfer_flag */
	uint32_t length; /**< bytes, with this */
	uint64_t number; /**< counts from 0 in each direction of a connection */
};
static_assert(sizeof(struct xfer_msg) == 16, "layout");

/** One end of a connection, as its own side knows it. */
struct xfer_endpoint {
	uint8_t addr[16]; /**< IPv6, or IPv4 as ::ffff:a.b.c.d: the GID */
	uint32_t qpn;
	uint32_t reserved;
};
static_assert(sizeof(struct xfer_endpoint) == 24, "layout");

/** What the schema of a table is, and how large a batch of it may be. */
struct xfer_table {
	uint64_t body_max;			/**< bytes; at least that of one frame */
	uint32_t schema_bytes;			/**< of a file's first blocks */
	uint32_t reserved;			/**< */
	uint8_t fingerprint[XFER_DIGEST_BYTES]; /**< SHA-256 of them */
};
static_assert(sizeof(struct xfer_table) == 48, "layout");

/** XFER_PROOF */
struct xfer_proof {
	struct xfer_msg head;
	uint64_t run;
	uint64_t incarnation;
	struct xfer_endpoint receiver;
	struct xfer_endpoint store;
	struct xfer_table table[XFER_TABLES];
	char name[XFER_NAME_BYTES];	/**< of the run, begins file names; filled up with zeros */
	char identity[XFER_NAME_BYTES]; /**< whose key it is; filled up with zeros */
	uint8_t mac[XFER_MAC_BYTES];
};
static_assert(sizeof(struct xfer_proof) == 336, "layout");

/** XFER_ANSWER */
struct xfer_answer {
	struct xfer_msg head;
	uint8_t mac[XFER_MAC_BYTES];
};
static_assert(sizeof(struct xfer_answer) == 48, "layout");

/** XFER_SCHEMA: in order, frames first; bytes follow. */
struct xfer_schema {
	struct xfer_msg head;
	uint32_t table;
	uint32_t offset; /**< of these bytes */
	uint8_t bytes[];
};
static_assert(sizeof(struct xfer_schema) == 24, "layout");
#define XFER_SCHEMA_PART (XFER_MSG_MAX - 24) /**< bytes of a message, at most */

/** Sequence numbers first to last, both included. */
struct xfer_interval {
	uint64_t first;
	uint64_t last;
};
static_assert(sizeof(struct xfer_interval) == 16, "layout");

/** XFER_MOVED, XFER_HELD, XFER_HAVE: ascending, none touches the next; frames first. */
struct xfer_intervals {
	struct xfer_msg head;
	uint32_t table;
	uint32_t nb;
	struct xfer_interval interval[];
};
static_assert(sizeof(struct xfer_intervals) == 24, "layout");
#define XFER_INTERVALS_MAX ((XFER_MSG_MAX - 24) / 16)
#define XFER_MOVED_MAX \
	(1u << 16) /**< intervals of a table, and batches of HELD: a receiver holds no more */

enum xfer_region_kind {
	XFER_REGION_METADATA, /**< XFER_DESC_BYTES each, of all tables */
	XFER_REGION_BODY,     /**< of one table */
};

/** Memory that the receiver may write: the places of some entries, one after the other. */
struct xfer_region {
	uint64_t addr;
	uint64_t place; /**< bytes of one place; a multiple of XFER_BLOCK */
	uint32_t rkey;
	uint32_t first; /**< entry */
	uint32_t nb;	/**< entries */
	uint8_t kind;	/**< enum xfer_region_kind */
	uint8_t table;	/**< XFER_REGION_BODY: enum arrow_table */
	uint16_t reserved;
};
static_assert(sizeof(struct xfer_region) == 32, "layout");

/** XFER_GRANT */
struct xfer_grant {
	struct xfer_msg head;
	uint64_t session_id;   /**< of the connection: random; in each entry */
	uint32_t heartbeat_ms; /**< XFER_STATUS at least as often, both ways */
	uint32_t silence_ms;   /**< without any message: the peer is gone */
	uint32_t commit_ms;    /**< a batch is durable about so much later, at most */
	uint32_t nb;	       /**< regions */
	struct xfer_region region[];
};
static_assert(sizeof(struct xfer_grant) == 40, "layout");
#define XFER_REGIONS_MAX ((XFER_MSG_MAX - 40) / 32)

/** What became of a batch; its place is the receiver's again. */
enum xfer_result_status {
	XFER_DURABLE = 1, /**< it, and all before it in its file, outlive a power failure */
	XFER_DOUBLE,	  /**< it was durable before: the copy was thrown away */
	XFER_AGAIN,	  /**< not stored (disk full, I/O error): still the receiver's */
	XFER_STATUSES
};

struct xfer_result {
	uint64_t sequence;
	uint32_t entry;
	uint8_t table;
	uint8_t status; /**< enum xfer_result_status */
	uint16_t reserved;
};
static_assert(sizeof(struct xfer_result) == 16, "layout");

/** XFER_RESULTS */
struct xfer_results {
	struct xfer_msg head;
	uint32_t nb;
	uint32_t reserved;
	struct xfer_result result[];
};
static_assert(sizeof(struct xfer_results) == 24, "layout");
#define XFER_RESULTS_MAX ((XFER_MSG_MAX - 24) / 16)

enum xfer_state {
	XFER_STATE_GOOD,
	XFER_STATE_FULL,     /**< disk or quota: send nothing until it is good again */
	XFER_STATE_FAILED,   /**< I/O errors: the same */
	XFER_STATE_STOPPING, /**< goes away in order */
	XFER_STATE_SETTLING, /**< before HAVE: it is alive, and looks into its files */
	XFER_STATES
};

/** XFER_STATUS */
struct xfer_status {
	struct xfer_msg head;
	uint32_t state;	    /**< enum xfer_state; of a receiver: GOOD or STOPPING */
	uint32_t reserved;  /**< 0 */
	uint64_t reserved2; /**< 0 */
};
static_assert(sizeof(struct xfer_status) == 32, "layout");

/** XFER_END, XFER_ENDED */
struct xfer_end {
	struct xfer_msg head;
	uint64_t batches[XFER_TABLES]; /**< END: of the stream, wherever they went; ENDED: here */
};
static_assert(sizeof(struct xfer_end) == 32, "layout");

/** XFER_REFUSE */
struct xfer_refuse {
	struct xfer_msg head;
	uint32_t reason; /**< enum xfer_reason */
	uint32_t reserved;
};
static_assert(sizeof(struct xfer_refuse) == 24, "layout");

/* ---- the metadata ring ----------------------------------------------------------------------- */

/** A batch as it is announced: what a place of the metadata ring begins with. */
struct xfer_descriptor {
	uint32_t magic;
	uint16_t version;
	uint8_t table; /**< enum arrow_table */
	uint8_t reserved;
	uint32_t entry;	     /**< this place; the immediate of the WRITE that brought it */
	uint32_t crc32c;     /**< of these 120 bytes with zeros here; metadata have their own */
	uint64_t session_id; /**< of the grant */
	uint64_t producer;
	uint64_t run;
	uint64_t incarnation;
	uint64_t sequence;
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received;	 /**< of the last row: ns since 1970; 0: unknown */
	uint64_t body_bytes;	 /**< a multiple of XFER_BLOCK */
	uint32_t body_crc32c;	 /**< of the body with its gaps */
	uint32_t metadata_bytes; /**< that follow; up to XFER_BLOCK they are zeros */
	uint64_t reserved2[2];
};
static_assert(sizeof(struct xfer_descriptor) == 120, "layout");

#define XFER_DESC_METADATA_BYTES (XFER_DESC_BYTES - 120)

/** A place of the metadata ring: one WRITE_WITH_IMM of what is used, after the body's WRITEs. */
struct xfer_desc {
	struct xfer_descriptor descriptor;
	/** Arrow's metadata of the batch from the FFFFFFFF on, without the zeros at their end. */
	uint8_t metadata[XFER_DESC_METADATA_BYTES];
};
static_assert(sizeof(struct xfer_desc) == XFER_DESC_BYTES, "a place of the ring");

#endif /* XFER_PROTO_H */
