/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Wire format of the transfer protocol between a receiver and a store (README.rst).
 *
 * All numbers are little-endian. Structures have no padding. Reserved bytes are zero and are
 * checked. Data of a peer is copied once and checked in the copy (msg.h, desc.h).
 */
#ifndef XFER_PROTO_H
#define XFER_PROTO_H

#include <assert.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the transfer protocol sends structures in host byte order: a little-endian CPU is required"
#endif

#define XFER_MAGIC   UINT32_C(0x4b534c42) /**< `BLSK` */
#define XFER_VERSION 7	   /**< version of this file and of the metadata layout of arrow_template */
#define XFER_PORT    18516 /**< default port, next to perftest's 18515 */

#define XFER_TABLES	  2 /**< frames, images: enum arrow_table */
#define XFER_NONCE_BYTES  32
#define XFER_MAC_BYTES	  32 /**< HMAC-SHA-256 */
#define XFER_TAG_BYTES	  16 /**< its first bytes, after messages and in descriptors: seal.h */
#define XFER_DIGEST_BYTES 32 /**< SHA-256 */
#define XFER_NAME_BYTES	  64

#define XFER_SEND_MAX	4096 /**< maximum size of a SEND, bytes */
#define XFER_MSG_MAX	(XFER_SEND_MAX - XFER_TAG_BYTES)
#define XFER_SCHEMA_MAX (1u << 20)   /**< maximum size of a table's schema, bytes */
#define XFER_DESC_BYTES 4096	     /**< size of a descriptor slot, bytes */
#define XFER_DESCS_MAX	(1u << 16)   /**< maximum number of slots of a connection */
#define XFER_BODY_MAX	(1ull << 30) /**< maximum size of a batch's body, bytes */
#define XFER_BLOCK	4096	     /**< bodies are multiples of it; same as ARROW_BLOCK */
/** receives that each end keeps posted: the limit of SENDs in flight in each direction */
#define XFER_RECEIVES 16

/* ---- private data of the IB CM --------------------------------------------------------------- */

enum xfer_role {
	/** sends batches of its own incarnation, or of one that it adopted */
	XFER_ROLE_RECEIVER = 1,
	XFER_ROLE_IMPORT, /**< sends batches from spilled files */
	XFER_ROLE_STORE,
};

/** Private data of REQ and REP. */
struct xfer_private {
	uint32_t magic;
	uint16_t version;
	uint8_t role; /**< REQ: receiver or import; REP: store */
	uint8_t reserved;
	uint64_t node; /**< REQ: receiver; REP: identity of the store's directory, never 0 */
	uint8_t nonce[XFER_NONCE_BYTES];
	uint64_t identity; /**< REQ: xfer_identity_id() of the sender; REP: 0 */
};
static_assert(sizeof(struct xfer_private) == 56, "REQ has room for 56 bytes");

/** Why a connection is refused or ended; in REJ and XFER_REFUSE. */
enum xfer_reason {
	XFER_REASON_NONE,
	XFER_REASON_MALFORMED, /**< a length, a reserved byte or a value is out of range */
	XFER_REASON_VERSION,   /**< unknown magic or version */
	XFER_REASON_BUSY,      /**< too many unauthenticated connections: retry */
	XFER_REASON_LATE,      /**< the handshake was not completed in time */
	/** authentication failed: another key, a replay, or a man in the middle */
	XFER_REASON_KEY,
	XFER_REASON_ORDER,	 /**< unexpected message or message number */
	XFER_REASON_SCHEMA,	 /**< not a schema of this program, or not the announced one */
	XFER_REASON_BODY,	 /**< a body of one frame does not fit */
	XFER_REASON_ENTRY,	 /**< invalid descriptor */
	XFER_REASON_SUPERSEDED,	 /**< a newer connection serves the same stream */
	XFER_REASON_SILENT,	 /**< no heartbeat in time */
	XFER_REASON_QUOTA,	 /**< the receiver may begin no run: its quota is used up */
	XFER_REASON_STOPPING,	 /**< the store is stopping */
	XFER_REASON_FAILED,	 /**< internal error of the store: see its log */
	XFER_REASON_STORE,	 /**< sent by the receiver: this is not the expected store */
	XFER_REASON_RIGHTS,	 /**< the identity lacks the right for this receiver or run */
	XFER_REASON_ENDED,	 /**< the run has ended: peers cannot change it any more */
	XFER_REASON_CONNECTIONS, /**< the identity has reached its limit of connections: retry */
	XFER_REASON_RUNS,	 /**< the identity has reached its limit of open runs: retry */
	XFER_REASON_DIFFERS,	 /**< a batch differs from the stored one with its number */
	XFER_REASON_NAME,	 /**< the store has this run under another name */
	XFER_REASON_MAC,	 /**< a message was changed or inserted in transit */
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
	/** receiver: its identity, run and tables, with the proof that it has the key */
	XFER_AUTH = 1,
	XFER_ANSWER,	 /**< store: the proof that it has the key */
	XFER_SCHEMA,	 /**< receiver: a part of a table's schema */
	XFER_REASSIGNED, /**< receiver: batches that the store may have and that were reassigned */
	XFER_INVENTORY,	 /**< store: batches of HELD that are durable and intact here */
	XFER_GRANT,	 /**< store: memory that the receiver may write to */
	XFER_RESULTS,	 /**< store: results of batches */
	XFER_STATUS,	 /**< both: heartbeat, with the sender's state */
	XFER_END,	 /**< receiver: end of this stream */
	XFER_ENDED,	 /**< store: all batches are durable and the files have their final names */
	XFER_REFUSE,	 /**< both: the sender ends the connection, with the reason */
	XFER_HELD,	 /**< receiver: batches that it would release if the store has them */
	XFER_TYPES
};

enum xfer_flag {
	/** XFER_SCHEMA, XFER_REASSIGNED, XFER_HELD, XFER_INVENTORY: another message follows */
	XFER_MORE = 1 << 0,
};

/**
 * Head of each message. After the message, a SEND has its MAC (seal.h) of XFER_TAG_BYTES. The
 * first one of each direction has none.
 */
struct xfer_msg {
	uint16_t type;	 /**< enum xfer_type */
	uint16_t flags;	 /**< enum xfer_flag */
	uint32_t length; /**< bytes, including this head */
	uint64_t number; /**< counts from 0 in each direction of a connection */
};
static_assert(sizeof(struct xfer_msg) == 16, "layout");

/** One end of a connection, as its own side knows it. */
struct xfer_endpoint {
	uint8_t addr[16]; /**< the GID: IPv6, or IPv4 as ::ffff:a.b.c.d */
	uint32_t qpn;
	uint32_t reserved;
};
static_assert(sizeof(struct xfer_endpoint) == 24, "layout");

/** Schema of a table, and the size of its batches. */
struct xfer_table {
	/** size of the largest body, bytes; at least that of one frame */
	uint64_t body_max;
	/** size of the first blocks of a file, which hold the schema */
	uint32_t schema_bytes;
	uint32_t reserved;			/**< 0 */
	uint8_t fingerprint[XFER_DIGEST_BYTES]; /**< SHA-256 of these blocks */
};
static_assert(sizeof(struct xfer_table) == 48, "layout");

/** XFER_AUTH */
struct xfer_auth_request {
	struct xfer_msg head;
	uint64_t run;
	uint64_t incarnation;
	struct xfer_endpoint receiver;
	struct xfer_endpoint store;
	struct xfer_table table[XFER_TABLES];
	char name[XFER_NAME_BYTES]; /**< of the run; prefix of file names; padded with zeros */
	/** name of the identity whose key is used; padded with zeros */
	char identity[XFER_NAME_BYTES];
	uint8_t mac[XFER_MAC_BYTES];
};
static_assert(sizeof(struct xfer_auth_request) == 336, "layout");

/** XFER_ANSWER */
struct xfer_answer {
	struct xfer_msg head;
	uint8_t mac[XFER_MAC_BYTES];
};
static_assert(sizeof(struct xfer_answer) == 48, "layout");

/** XFER_SCHEMA: parts of the schemas in order, frames first. The bytes follow. */
struct xfer_schema {
	struct xfer_msg head;
	uint32_t table;
	uint32_t offset; /**< of these bytes in the schema */
	uint8_t bytes[];
};
static_assert(sizeof(struct xfer_schema) == 24, "layout");
#define XFER_SCHEMA_PART (XFER_MSG_MAX - 24) /**< maximum bytes of a message */

/** Sequence numbers from first to last, both included. */
struct xfer_interval {
	uint64_t first;
	uint64_t last;
};
static_assert(sizeof(struct xfer_interval) == 16, "layout");

/** XFER_INVENTORY: ascending intervals that do not touch; frames first. */
struct xfer_intervals {
	struct xfer_msg head;
	uint32_t table;
	uint32_t nb;
	struct xfer_interval interval[];
};
static_assert(sizeof(struct xfer_intervals) == 24, "layout");
#define XFER_INTERVALS_MAX ((XFER_MSG_MAX - 24) / 16)

/**
 * A batch that the receiver has, or had: its number, and the CRCs that distinguish it from another
 * one.
 */
struct xfer_listed {
	uint64_t sequence;
	uint32_t body_crc32c;
	uint32_t metadata_crc32c; /**< of the XFER_BLOCK bytes of its announcement */
};
static_assert(sizeof(struct xfer_listed) == 16, "layout");

/** XFER_REASSIGNED, XFER_HELD: ascending sequence numbers; frames first. */
struct xfer_list {
	struct xfer_msg head;
	uint32_t table;
	uint32_t nb;
	struct xfer_listed listed[];
};
static_assert(sizeof(struct xfer_list) == 24, "layout");
#define XFER_LIST_MAX	    ((XFER_MSG_MAX - 24) / 16)
#define XFER_REASSIGNED_MAX (1u << 16) /**< maximum batches of a table, as JOURNAL_BATCHES */

enum xfer_region_kind {
	XFER_REGION_METADATA, /**< descriptor slots of XFER_DESC_BYTES each, for all tables */
	XFER_REGION_BODY,     /**< body buffers of one table */
};

/** Memory that the receiver may write to: consecutive buffers of some slots. */
struct xfer_region {
	uint64_t addr;
	uint64_t slot_bytes; /**< size of one buffer, bytes; a multiple of XFER_BLOCK */
	uint32_t rkey;
	uint32_t first; /**< first slot */
	uint32_t nb;	/**< number of slots */
	uint8_t kind;	/**< enum xfer_region_kind */
	uint8_t table;	/**< XFER_REGION_BODY: enum arrow_table */
	uint16_t reserved;
};
static_assert(sizeof(struct xfer_region) == 32, "layout");

/** XFER_GRANT */
struct xfer_grant {
	struct xfer_msg head;
	uint64_t session_id;   /**< random id of the connection; repeated in each descriptor */
	uint32_t heartbeat_ms; /**< maximum interval of XFER_STATUS, both directions */
	/** time without any message after which the peer is considered gone */
	uint32_t silence_ms;
	uint32_t commit_ms; /**< approximate maximum delay until a batch is durable */
	uint32_t nb;	    /**< number of regions */
	struct xfer_region region[];
};
static_assert(sizeof(struct xfer_grant) == 40, "layout");
#define XFER_REGIONS_MAX ((XFER_MSG_MAX - 40) / 32)

/** Result of a batch. Its slot belongs to the receiver again. */
enum xfer_result_status {
	XFER_DURABLE = 1, /**< the batch, and all before it in its file, survive a power failure */
	XFER_DUPLICATE,	  /**< duplicate of a durable batch: the copy was discarded */
	XFER_RETRY,	  /**< not stored (disk full, I/O error): the receiver keeps it */
	/** not stored, body wrong or unreadable: the receiver checks its copy and sends it again */
	XFER_WRONG_CRC,
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
	XFER_STATE_FULL,       /**< disk or quota full: do not send until the state is GOOD */
	XFER_STATE_FAILED,     /**< I/O errors: do not send until the state is GOOD */
	XFER_STATE_STOPPING,   /**< orderly shutdown */
	XFER_STATE_RECOVERING, /**< before INVENTORY: alive, checking its files */
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
	/** END: batches of the stream, at all stores; ENDED: batches at this store */
	uint64_t batches[XFER_TABLES];
};
static_assert(sizeof(struct xfer_end) == 32, "layout");

/** XFER_REFUSE */
struct xfer_refuse {
	struct xfer_msg head;
	uint32_t reason; /**< enum xfer_reason */
	uint32_t reserved;
};
static_assert(sizeof(struct xfer_refuse) == 24, "layout");

/* ---- descriptor slots ------------------------------------------------------------------------ */

enum xfer_desc_flag {
	/** the receiver has computed the CRC of its copy of the body for this transfer */
	XFER_COPY_CHECKED = 1 << 0,
};

/** Descriptor of a batch: the beginning of a descriptor slot. */
struct xfer_descriptor {
	uint32_t magic;
	uint16_t version;
	uint8_t table; /**< enum arrow_table */
	uint8_t reserved;
	uint32_t entry; /**< number of this slot; equals the immediate of the WRITE */
	/** of these 128 bytes with zeros here and in `mac`, to tell faults from attacks */
	uint32_t crc32c;
	uint64_t session_id; /**< from the grant */
	uint64_t receiver_id;
	uint64_t run;
	uint64_t incarnation;
	uint64_t sequence;
	uint64_t rows;
	uint64_t first; /**< frame numbers */
	uint64_t last;
	int64_t received;     /**< time of the last row, ns since 1970; 0: unknown */
	uint64_t body_bytes;  /**< a multiple of XFER_BLOCK */
	uint32_t body_crc32c; /**< of the body with its padding */
	/** bytes of metadata that follow; the rest up to XFER_BLOCK is zeros */
	uint32_t metadata_bytes;
	/**
	 * XFER_COPY_CHECKED: CRC of the body in the receiver's memory. It differs from body_crc32c
	 * if the body is damaged there. Otherwise 0
	 */
	uint32_t copy_crc32c;
	uint32_t flags; /**< enum xfer_desc_flag */
	/** MAC of the fields before it and of the metadata (seal.h) */
	uint8_t mac[XFER_TAG_BYTES];
};
static_assert(sizeof(struct xfer_descriptor) == 128, "layout");

#define XFER_DESC_METADATA_BYTES (XFER_DESC_BYTES - 128)

/** A descriptor slot. One WRITE_WITH_IMM transfers its used part, after the WRITEs of the body. */
struct xfer_desc {
	struct xfer_descriptor descriptor;
	/** Arrow metadata of the batch, from the FFFFFFFF on, without trailing zeros. */
	uint8_t metadata[XFER_DESC_METADATA_BYTES];
};
static_assert(sizeof(struct xfer_desc) == XFER_DESC_BYTES, "size of a descriptor slot");

#endif /* XFER_PROTO_H */
