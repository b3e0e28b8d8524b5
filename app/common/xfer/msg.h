/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Builds messages of the transfer protocol, and checks that received ones are well formed.
 *
 * The checks do not depend on earlier messages. The handshake (auth.h) and the two ends check the
 * order and the meaning. No allocation. Any thread may call these functions.
 */
#ifndef XFER_MSG_H
#define XFER_MSG_H

#include <stdbool.h>
#include <stddef.h>

#include "xfer/proto.h"

/** Name of an enum xfer_reason for logs and telemetry, a static string; "?": not a known value. */
const char *xfer_reason_name(uint32_t reason);

/** Name of an enum xfer_state, as above. */
const char *xfer_state_name(uint32_t state);

/** Begin a message: set its head and clear the rest. @param size  bytes, at most XFER_MSG_MAX */
void xfer_msg_begin(void *message, enum xfer_type type, size_t size, uint64_t number);

/**
 * Check the private data of a REQ or a REP.
 * @param size  bytes received; the CM pads with zeros
 * @param role  XFER_ROLE_STORE: of a REP; otherwise of a REQ
 * @return XFER_REASON_NONE, _MALFORMED or _VERSION
 */
enum xfer_reason xfer_private_check(const void *bytes, size_t size, enum xfer_role role);

/**
 * Check a message: length, type, flags, reserved bytes, ranges, order of intervals.
 *
 * @param message  aligned to 8; the peer must not be able to change it any more
 * @param size     bytes received
 * @param from     role of the sender
 * @param number   expected message number
 * @return XFER_REASON_NONE
 *   - XFER_REASON_MALFORMED
 *   - XFER_REASON_ORDER: the number is not the expected one, or this role does not send this type
 */
enum xfer_reason xfer_msg_check(
	const void *message, size_t size, enum xfer_role from, uint64_t number);

/**
 * Check the name of a run, which is the beginning of file names: one or more letters, digits, `-`,
 * `_` or `.`; the first is not a dot; zeros up to the end of the array.
 */
bool xfer_name_check(const char name[XFER_NAME_BYTES]);

/** Check a name that ends with a zero, of any length, in the same way. */
bool xfer_name_check_text(const char *text);

/** The memory of a slot. */
struct xfer_slot {
	uint64_t metadata; /**< address */
	uint64_t body;
	uint64_t body_room; /**< bytes */
	uint32_t metadata_rkey;
	uint32_t body_rkey;
	uint8_t table;
};

/**
 * Split a grant into slots. Each slot, from 0 on, has one buffer for metadata and one for a body.
 *
 * @param grant     checked by xfer_msg_check()
 * @param body_max  size of the largest body of each table, bytes; each buffer must have that size
 * @param slot      out: XFER_DESCS_MAX elements
 * @param nb        out: number of slots
 * @return XFER_REASON_NONE; _MALFORMED; _BODY: a buffer is too small
 */
enum xfer_reason xfer_grant_slots(const struct xfer_grant *grant,
	const uint64_t body_max[XFER_TABLES], struct xfer_slot *slot, uint32_t *nb);

#endif /* XFER_MSG_H */
