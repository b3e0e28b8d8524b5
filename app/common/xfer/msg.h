/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Messages of the transfer protocol: whether one that came is well formed, and beginning one's own.
 *
 * The checks know nothing of what was said before: order and meaning are the handshake's
 * (xfer_auth.h) and the ends'. No allocation. Any thread.
 */
#ifndef XFER_MSG_H
#define XFER_MSG_H

#include <stdbool.h>
#include <stddef.h>

#include "xfer/proto.h"

/** Name of an enum xfer_reason, for logs and telemetry: a constant; "?" for none that exists. */
const char *xfer_reason_name(uint32_t reason);

/** The same of an enum xfer_state. */
const char *xfer_state_name(uint32_t state);

/** Begin a message: everything zero but its head. @param size  bytes, at most XFER_MSG_MAX */
void xfer_msg_begin(void *message, enum xfer_type type, size_t size, uint64_t number);

/**
 * Look at private data of a REQ or a REP.
 * @param size  bytes that came; the CM fills up with zeros
 * @param role  XFER_ROLE_STORE: of a REP; otherwise of a REQ
 * @return XFER_REASON_NONE, _MALFORMED, _VERSION
 */
enum xfer_reason xfer_private_check(const void *bytes, size_t size, enum xfer_role role);

/**
 * Look at a message: length, type, flags, reserved bytes, ranges, order of intervals.
 *
 * @param message  aligned to 8; nobody else can write it any more
 * @param size     bytes that came
 * @param from     who sent it
 * @param number   that it should have
 * @return XFER_REASON_NONE; _MALFORMED; _ORDER: a number that is not next, or a type that this end
 *   does not send
 */
enum xfer_reason xfer_msg_check(
	const void *message, size_t size, enum xfer_role from, uint64_t number);

/**
 * Whether the name of a run may begin file names: letters, digits, `-`, `_`, `.`, not beginning
 * with a dot, at least one, and zeros behind.
 */
bool xfer_name_check(const char name[XFER_NAME_BYTES]);

/** Where the places of an entry are. */
struct xfer_slot {
	uint64_t metadata; /**< address */
	uint64_t body;
	uint64_t body_room; /**< bytes */
	uint32_t metadata_rkey;
	uint32_t body_rkey;
	uint8_t table;
};

/**
 * Take a grant apart: each entry from 0 on has one place for metadata and one for a body.
 *
 * @param grant  checked by xfer_msg_check()
 * @param body_max  bytes that a body of each table may have: all places must have that room
 * @param place  out: XFER_DESCS_MAX of them
 * @param nb     out: entries
 * @return XFER_REASON_NONE; _MALFORMED; _BODY: a place is too small
 */
enum xfer_reason xfer_grant_slots(const struct xfer_grant *grant,
	const uint64_t body_max[XFER_TABLES], struct xfer_slot *place, uint32_t *nb);

#endif /* XFER_MSG_H */
