/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Wire format of queries over RDMA, between a client and `braggline-scan --serve`. app/scan/
 * README.rst describes the exchange.
 *
 * A connection is an RC queue pair, opened by the IB CM, and a session: its identity, its engine,
 * and the slots that the client grants. Results are messages of Arrow's Dissociated IPC protocol
 * (DissociatedIPC.rst): metadata without the prefix FFFFFFFF and length, and bodies with the tag of
 * their sequence number. Verbs has no tagged messages. A SEND therefore has a head and records,
 * of which SCAN_METADATA and SCAN_BODY carry such a message or a part of it. SCAN_PUSHED announces
 * a part of a body that a WRITE with immediate places in a slot, and SCAN_PULLED one that the
 * client reads.
 *
 * All numbers are little-endian. Structures have no padding. Reserved bytes are zero and are
 * checked. Receivers check a private copy that the peer cannot change.
 */
#ifndef SCAN_WIRE_H
#define SCAN_WIRE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "xfer/proto.h"

#define SCAN_MAGIC UINT32_C(0x51534c42) /**< `BLSQ` */
/**
 * Version of the protocol; both ends must have the same. 2: SCAN_REASON_IDLE says that no statement
 * is executed, and unknown reasons are accepted. 3: schemas are kept, and SCAN_SCHEMA refers to
 * them.
 */
#define SCAN_VERSION 3
#define SCAN_PORT    18517 /**< default port, next to that of the store */

/** Maximum size of a message, bytes. A SEND has it and XFER_TAG_BYTES of its code (xfer/seal.h). */
#define SCAN_MSG_MAX XFER_MSG_MAX
#define SCAN_SQL_MAX (1u << 17) /**< maximum size of a statement, bytes: SQL_STATEMENT_MAX */
/** maximum number of slots of a connection */
#define SCAN_SLOTS_MAX 256
#define SCAN_SLOT_MIN  4096	  /**< bytes */
#define SCAN_SLOT_MAX  (1u << 30) /**< bytes */
#define SCAN_ALIGN     64	  /**< alignment of slots, and of buffers in a body */
#define SCAN_WINDOW    64	  /**< SCAN_DATA messages that the client has not returned yet */
/** maximum number of parts of bodies that a server keeps for a client that reads them */
#define SCAN_PARTS	  8
#define SCAN_METADATA_MAX (1u << 24) /**< maximum size of a metadata message, bytes */
#define SCAN_SCHEMAS	  16	     /**< schemas that both ends of a session keep */
/** maximum size of a body, bytes */
#define SCAN_BODY_MAX	(UINT64_C(1) << 40)
#define SCAN_ALIVE_MS	1000  /**< interval of SCAN_ALIVE, both directions */
#define SCAN_SILENCE_MS 10000 /**< a peer that sends nothing for this time is considered dead */
#define SCAN_PROOF_MS	5000  /**< time for the authentication */

/* ---- private data of the IB CM --------------------------------------------------------------- */

/** Private data of REQ and REP. */
struct scan_private {
	uint32_t magic;
	uint16_t version;
	uint8_t role; /**< REQ: SCAN_CLIENT; REP: SCAN_SERVER */
	uint8_t reserved;
	uint64_t reserved2;
	uint8_t nonce[XFER_NONCE_BYTES];
	uint64_t identity; /**< REQ: xfer_identity_id() of the user; REP: 0 */
};
static_assert(sizeof(struct scan_private) == 56, "REQ has room for 56 bytes");

enum scan_role {
	SCAN_CLIENT = 1,
	SCAN_SERVER,
};

/**
 * Why a connection is refused or ended; in REJ and SCAN_REFUSE. A receiver accepts values that it
 * does not know.
 */
enum scan_reason {
	SCAN_REASON_NONE,
	SCAN_REASON_MALFORMED, /**< a length, a reserved byte or a value is out of range */
	SCAN_REASON_VERSION,   /**< unknown magic or version */
	SCAN_REASON_BUSY,      /**< the server has no free session: retry */
	SCAN_REASON_LATE,      /**< the authentication was not completed in time */
	SCAN_REASON_KEY,       /**< authentication failed: another key or name */
	SCAN_REASON_RIGHTS,    /**< the identity has no right to read */
	SCAN_REASON_ORDER,     /**< unexpected message or message number */
	SCAN_REASON_SILENT,    /**< no message in time */
	SCAN_REASON_IDLE,      /**< no query for the server's idle time; none is executed */
	SCAN_REASON_SESSIONS,  /**< the identity has reached its limit of connections: retry */
	SCAN_REASON_FORGED,    /**< a message was changed or inserted in transit */
	SCAN_REASON_STOPPING,  /**< the server is stopping */
	SCAN_REASON_FAILED,    /**< internal error of the peer: see its log */
	SCAN_REASON_HELD,      /**< a part of a body was not freed in the server's time */
	SCAN_REASON_OVERDUE,   /**< a query was ended, and its end was not taken in time */
	SCAN_REASONS
};

/** Private data of a REJ. */
struct scan_reject {
	uint32_t magic;
	uint16_t version;
	uint16_t reason; /**< enum scan_reason */
};
static_assert(sizeof(struct scan_reject) == 8, "layout");

/* ---- messages: SENDs ------------------------------------------------------------------------- */

enum scan_type {
	SCAN_AUTH = 1, /**< client: its identity, with the proof that it has the key */
	SCAN_ANSWER,   /**< server: the proof that it has the key */
	SCAN_GRANT, /**< client: slots that the server may write to; once, before the first query */
	SCAN_QUERY, /**< client: a statement, or a part of it */
	/** client: slots and SCAN_DATA messages that the server sent and the client has used up */
	SCAN_CREDIT,
	SCAN_CANCEL, /**< client: end a query */
	SCAN_DATA,   /**< server: records of a result */
	SCAN_ALIVE,  /**< both: keepalive */
	SCAN_REFUSE, /**< both: the sender ends the connection */
	SCAN_FREE,   /**< client: parts of bodies that it has read */
	SCAN_TYPES
};

enum scan_flag {
	SCAN_MORE = 1 << 0, /**< SCAN_QUERY: another part of the statement follows */
	SCAN_PULL = 1 << 1, /**< SCAN_GRANT: the client reads bodies; there are no slots */
};

/**
 * Head of each message. After the message, a SEND has its code (xfer/seal.h) of XFER_TAG_BYTES.
 * The first one of each direction, AUTH and ANSWER, has a proof instead.
 */
struct scan_msg {
	uint16_t type;	 /**< enum scan_type */
	uint16_t flags;	 /**< enum scan_flag */
	uint32_t length; /**< bytes, including this head */
	uint64_t number; /**< counts from 0 in each direction of a connection */
};
static_assert(sizeof(struct scan_msg) == 16, "layout");

/** SCAN_AUTH */
struct scan_auth_request {
	struct scan_msg head;
	struct xfer_endpoint client;
	struct xfer_endpoint server;
	char identity[XFER_NAME_BYTES]; /**< name of the user; padded with zeros */
	uint8_t mac[XFER_MAC_BYTES];
};
static_assert(sizeof(struct scan_auth_request) == 160, "layout");

/** SCAN_ANSWER */
struct scan_answer {
	struct scan_msg head;
	uint8_t mac[XFER_MAC_BYTES];
};
static_assert(sizeof(struct scan_answer) == 48, "layout");

/**
 * SCAN_GRANT: `nb` slots of `slot_bytes` bytes each, one after the other. With SCAN_PULL, the
 * server gets no access to memory of the client: `addr`, `nb` and `rkey` are 0.
 */
struct scan_grant {
	struct scan_msg head;
	uint64_t addr; /**< of slot 0; a multiple of SCAN_ALIGN */
	/**
	 * SCAN_SLOT_MIN to SCAN_SLOT_MAX; a multiple of SCAN_ALIGN; with SCAN_PULL, the maximum
	 * size of a part
	 */
	uint32_t slot_bytes;
	uint32_t nb; /**< 1 to SCAN_SLOTS_MAX; 0 with SCAN_PULL */
	uint32_t rkey;
	uint32_t reserved;
};
static_assert(sizeof(struct scan_grant) == 40, "layout");

/** How the columns of a result are converted; enum sql_form. */
enum scan_form {
	SCAN_NATIVE, /**< not at all */
	SCAN_TEXT,   /**< all to text */
	SCAN_SIMPLE, /**< types that JSON does not have to text */
	SCAN_FORMS
};

/**
 * SCAN_QUERY: a part of a statement in UTF-8; parts come in order. A query begins when the one
 * before it has ended with SCAN_END or SCAN_ERROR.
 */
struct scan_query {
	struct scan_msg head;
	uint32_t cursor; /**< number of the query: one more than that of the query before */
	uint32_t form;	 /**< enum scan_form */
	uint32_t total;	 /**< bytes of the statement, 1 to SCAN_SQL_MAX */
	uint32_t offset; /**< of this part */
	uint8_t bytes[];
};
static_assert(sizeof(struct scan_query) == 32, "layout");
#define SCAN_QUERY_PART (SCAN_MSG_MAX - 32) /**< maximum bytes of a message */

/** SCAN_CREDIT */
struct scan_credit {
	struct scan_msg head;
	uint32_t messages; /**< SCAN_DATA messages that were used up, 0 to SCAN_WINDOW */
	uint32_t nb;	   /**< slots that are free again */
	uint32_t slot[];
};
static_assert(sizeof(struct scan_credit) == 24, "layout");

/** SCAN_CANCEL */
struct scan_cancel {
	struct scan_msg head;
	uint32_t cursor; /**< a query that has ended: ignored */
	uint32_t reserved;
};
static_assert(sizeof(struct scan_cancel) == 24, "layout");

/** SCAN_FREE: Dissociated IPC's message `free_data`. */
struct scan_free {
	struct scan_msg head;
	uint32_t nb; /**< 1 to SCAN_PARTS */
	uint32_t reserved;
	uint64_t addr[]; /**< struct scan_pulled.addr of parts that were not freed yet */
};
static_assert(sizeof(struct scan_free) == 24, "layout");

/** SCAN_REFUSE */
struct scan_refuse {
	struct scan_msg head;
	uint32_t reason; /**< enum scan_reason */
	uint32_t reserved;
};
static_assert(sizeof(struct scan_refuse) == 24, "layout");

/* ---- results --------------------------------------------------------------------------------- */

/** SCAN_DATA: records, each at a multiple of 8 bytes. */
struct scan_data {
	struct scan_msg head;
	uint32_t cursor;
	uint32_t nb; /**< number of records, at least 1 */
};
static_assert(sizeof(struct scan_data) == 24, "layout");

enum scan_kind {
	/**
	 * Types of the columns before a conversion, 4 bytes each: DuckDB's enum duckdb_type. The
	 * first record of a result. An extension of Dissociated IPC, for output as text
	 */
	SCAN_COLUMNS = 1,
	/**
	 * Metadata message without its 5 bytes of type and number: a flatbuffer `Message`. With a
	 * slot N, it is a schema in one record. The client keeps it as number N of the session, in
	 * place of an earlier one, also if it drops the result
	 */
	SCAN_METADATA,
	SCAN_BODY,   /**< body of type 0: the packed body of the message with this number */
	SCAN_PUSHED, /**< no bytes: a part of such a body is written to a slot */
	SCAN_END,    /**< no bytes: the end of the result; the number is that of the next message */
	SCAN_ERROR,  /**< struct scan_error: the query failed; what came before is not complete */
	SCAN_PULLED, /**< struct scan_pulled: where a part of such a body can be read */
	/**
	 * no bytes: the schema is the one that is kept as number `slot`. An extension of
	 * Dissociated IPC. The server refers to schemas of results that ended with SCAN_END
	 */
	SCAN_SCHEMA,
	SCAN_KINDS
};

/** A record; its bytes follow. Parts of a message come in order, and not mixed with others. */
struct scan_record {
	uint8_t kind; /**< enum scan_kind */
	uint8_t reserved[3];
	/** bytes that follow; SCAN_PUSHED: that are written; SCAN_PULLED: that can be read */
	uint32_t length;
	uint32_t sequence; /**< number of the message; the schema has 0 */
	/**
	 * SCAN_PUSHED: slot. SCAN_METADATA, SCAN_SCHEMA: number of a schema, 1 to SCAN_SCHEMAS;
	 * SCAN_METADATA: 0: it is not kept. Others: 0
	 */
	uint32_t slot;
	/**
	 * bytes of the whole metadata, body or list of columns; SCAN_END: number of damaged
	 * batches, incomplete files and unreadable folders that the tables of the session left out
	 */
	uint64_t total;
	uint64_t offset; /**< of this part */
};
static_assert(sizeof(struct scan_record) == 32, "layout");
#define SCAN_RECORD_PART (SCAN_MSG_MAX - 24 - 32) /**< maximum bytes of a record */

#define SCAN_SQLSTATE	5
#define SCAN_ERROR_TEXT 2048

/** SCAN_ERROR. The text follows, without a terminating zero. */
struct scan_error {
	char sqlstate[SCAN_SQLSTATE]; /**< letters and digits: ISO 9075 */
	uint8_t reserved[3];
	uint32_t error; /**< errno of Linux */
	char text[];
};
static_assert(sizeof(struct scan_error) == 12, "layout");

/**
 * SCAN_PULLED: Dissociated IPC's body of type 1. The bytes stay readable, and do not change, until
 * SCAN_FREE. A buffer is in the packed body at its offset in the metadata.
 */
struct scan_pulled {
	uint64_t addr; /**< of the part; a multiple of SCAN_ALIGN */
	uint32_t rkey;
	uint32_t reserved;
};
static_assert(sizeof(struct scan_pulled) == 16, "layout");

/** The immediate of a WRITE is the number of the message whose SCAN_PUSHED came before it. */

/* ---- checks ---------------------------------------------------------------------------------- */

/** Name of a reason for messages, a static string; "?": not a known value. */
const char *scan_reason_name(uint32_t reason);

/** Begin a message: set its head and clear the rest. @param size  bytes, at most SCAN_MSG_MAX */
void scan_msg_begin(void *message, enum scan_type type, size_t size, uint64_t number);

/** Check the private data of a REQ or REP. @param role  of its sender */
enum scan_reason scan_private_check(const void *bytes, size_t size, enum scan_role role);

/**
 * Check a message: length, type, flags, reserved bytes, ranges, records.
 *
 * @param message  aligned to 8
 * @param size     bytes received
 * @param from     role of the sender
 * @param number   expected message number
 * @return SCAN_REASON_NONE
 *   - SCAN_REASON_MALFORMED
 *   - SCAN_REASON_ORDER: the number is not the expected one, or this role does not send this type
 */
enum scan_reason scan_msg_check(
	const void *message, size_t size, enum scan_role from, uint64_t number);

/** Number of bytes that follow a record. */
uint32_t scan_record_bytes(const struct scan_record *r);

/**
 * Get the next record of a message that scan_msg_check() accepted.
 * @param at  in and out: offset in the message; begin with sizeof(struct scan_data)
 * @param r   out
 * @return its bytes; NULL: no more records
 */
const uint8_t *scan_record_next(const struct scan_data *m, size_t *at, struct scan_record *r);

/**
 * Append a record to a message.
 * @param m     head.length is extended; its room is SCAN_MSG_MAX
 * @param data  NULL: none (SCAN_PUSHED)
 * @return false: no room
 */
bool scan_record_put(struct scan_data *m, const struct scan_record *r, const void *data);

#endif /* SCAN_WIRE_H */
