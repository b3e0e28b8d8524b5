/* SPDX-License-Identifier: BSD-3-Clause */

#include <ctype.h>
#include <string.h>

#include "remote/wire.h"
#include "xfer/msg.h"

#define RECORD_SIZE(length) ((sizeof(struct scan_record) + (size_t)(length) + 7) / 8 * 8)

const char *
scan_reason_name(uint32_t reason)
{
	static const char *const names[SCAN_REASONS] = {
		[SCAN_REASON_NONE] = "none",
		[SCAN_REASON_MALFORMED] = "malformed message",
		[SCAN_REASON_VERSION] = "unknown protocol version",
		[SCAN_REASON_BUSY] = "no free session",
		[SCAN_REASON_LATE] = "authentication took too long",
		[SCAN_REASON_KEY] = "wrong identity or key",
		[SCAN_REASON_RIGHTS] = "no right to read",
		[SCAN_REASON_ORDER] = "unexpected message",
		[SCAN_REASON_SILENT] = "no message in time",
		[SCAN_REASON_IDLE] = "no query in the server's idle time",
		[SCAN_REASON_SESSIONS] = "too many connections of this identity",
		[SCAN_REASON_FORGED] = "message with a wrong code",
		[SCAN_REASON_STOPPING] = "the server is stopping",
		[SCAN_REASON_FAILED] = "internal error of the peer",
		[SCAN_REASON_HELD] = "results were not read and freed in the server's time",
		[SCAN_REASON_OVERDUE] = "the query did not end in the server's time",
	};

	return reason < SCAN_REASONS ? names[reason] : "a reason that this version does not know";
}

void
scan_msg_begin(void *message, enum scan_type type, size_t size, uint64_t number)
{
	memset(message, 0, size);
	*(struct scan_msg *)message =
		(struct scan_msg){.type = type, .length = (uint32_t)size, .number = number};
}

enum scan_reason
scan_private_check(const void *bytes, size_t size, enum scan_role role)
{
	struct scan_private p;

	if (size < sizeof(p))
		return SCAN_REASON_MALFORMED;
	memcpy(&p, bytes, sizeof(p));
	if (p.magic != SCAN_MAGIC || p.version != SCAN_VERSION)
		return SCAN_REASON_VERSION;
	if (p.role != role || p.reserved != 0 || p.reserved2 != 0 ||
		(p.identity != 0) != (role == SCAN_CLIENT))
		return SCAN_REASON_MALFORMED;
	return SCAN_REASON_NONE;
}

static bool
is_query(const struct scan_query *m)
{
	const uint32_t part = m->head.length - sizeof(*m);

	return m->form < SCAN_FORMS && m->total >= 1 && m->total <= SCAN_SQL_MAX && part >= 1 &&
		m->offset < m->total && part <= m->total - m->offset &&
		((m->head.flags & SCAN_MORE) == 0) == (m->offset + part == m->total) &&
		memchr(m->bytes, '\0', part) == NULL;
}

static bool
is_credit(const struct scan_credit *m)
{
	uint32_t i;

	if (m->messages > SCAN_WINDOW || m->nb > SCAN_SLOTS_MAX ||
		m->head.length != sizeof(*m) + m->nb * sizeof(m->slot[0]))
		return false;
	for (i = 0; i < m->nb; i++) {
		if (m->slot[i] >= SCAN_SLOTS_MAX)
			return false;
	}
	return m->messages > 0 || m->nb > 0;
}

static bool
is_grant(const struct scan_grant *m)
{
	if (m->slot_bytes < SCAN_SLOT_MIN || m->slot_bytes > SCAN_SLOT_MAX ||
		m->slot_bytes % SCAN_ALIGN != 0 || m->reserved != 0)
		return false;
	if ((m->head.flags & SCAN_PULL) != 0)
		return m->addr == 0 && m->nb == 0 && m->rkey == 0;
	return m->nb >= 1 && m->nb <= SCAN_SLOTS_MAX && m->addr % SCAN_ALIGN == 0 &&
		m->addr <= UINT64_MAX - (uint64_t)m->nb * m->slot_bytes;
}

static bool
is_free(const struct scan_free *m)
{
	uint32_t i;

	if (m->nb < 1 || m->nb > SCAN_PARTS || m->reserved != 0 ||
		m->head.length != sizeof(*m) + m->nb * sizeof(m->addr[0]))
		return false;
	for (i = 0; i < m->nb; i++) {
		if (m->addr[i] == 0 || m->addr[i] % SCAN_ALIGN != 0)
			return false;
	}
	return true;
}

static bool
is_error(const uint8_t *bytes, const struct scan_record *r)
{
	struct scan_error e;
	unsigned int i;

	if (r->length < sizeof(e) || r->length > sizeof(e) + SCAN_ERROR_TEXT ||
		r->total != r->length || r->offset != 0)
		return false;
	memcpy(&e, bytes, sizeof(e));
	for (i = 0; i < SCAN_SQLSTATE; i++) {
		if (!isdigit((unsigned char)e.sqlstate[i]) &&
			!(e.sqlstate[i] >= 'A' && e.sqlstate[i] <= 'Z'))
			return false;
	}
	return e.reserved[0] == 0 && e.reserved[1] == 0 && e.reserved[2] == 0 && e.error >= 1 &&
		e.error < 4096;
}

static bool
is_pulled(const uint8_t *bytes, const struct scan_record *r)
{
	struct scan_pulled p;

	memcpy(&p, bytes, sizeof(p));
	return p.addr != 0 && p.addr % SCAN_ALIGN == 0 && p.addr <= UINT64_MAX - r->length &&
		p.reserved == 0;
}

/* Check the number of a metadata message that may be a schema to be kept. */
static bool
is_kept(const struct scan_record *r)
{
	return r->slot == 0 ||
		(r->slot <= SCAN_SCHEMAS && r->sequence == 0 && r->length == r->total);
}

static bool
is_record(const uint8_t *bytes, const struct scan_record *r)
{
	const bool part = r->offset <= r->total && r->length <= r->total - r->offset;

	if (r->reserved[0] != 0 || r->reserved[1] != 0 || r->reserved[2] != 0)
		return false;
	if (r->kind != SCAN_PUSHED && r->kind != SCAN_METADATA && r->kind != SCAN_SCHEMA &&
		r->slot != 0)
		return false;
	switch ((enum scan_kind)r->kind) {
	case SCAN_COLUMNS:
		return part && r->length > 0 && r->total <= SCAN_METADATA_MAX;
	case SCAN_METADATA:
		return part && r->length > 0 && r->total <= SCAN_METADATA_MAX && is_kept(r);
	case SCAN_BODY:
		return part && r->length > 0 && r->total <= SCAN_BODY_MAX;
	case SCAN_PUSHED:
		return part && r->length > 0 && r->total <= SCAN_BODY_MAX &&
			r->slot < SCAN_SLOTS_MAX;
	case SCAN_END:
		return r->length == 0 && r->offset == 0;
	case SCAN_ERROR:
		return is_error(bytes, r);
	case SCAN_PULLED:
		return part && r->length > 0 && r->total <= SCAN_BODY_MAX && is_pulled(bytes, r);
	case SCAN_SCHEMA:
		return r->slot >= 1 && r->slot <= SCAN_SCHEMAS && r->sequence == 0 &&
			r->length == 0 && r->total == 0 && r->offset == 0;
	case SCAN_KINDS:
		break;
	}
	return false;
}

static bool
is_data(const struct scan_data *m)
{
	const uint8_t *bytes = (const uint8_t *)m;
	size_t at = sizeof(*m), room;
	struct scan_record r;
	uint32_t n;

	for (n = 0; at < m->head.length; n++) {
		if (m->head.length - at < sizeof(r))
			return false;
		memcpy(&r, bytes + at, sizeof(r));
		room = m->head.length - at;
		if (RECORD_SIZE(scan_record_bytes(&r)) > room ||
			!is_record(bytes + at + sizeof(r), &r))
			return false;
		at += RECORD_SIZE(scan_record_bytes(&r));
	}
	return n >= 1 && n == m->nb;
}

/* Check the content of a message whose length is at least that of its type. */
static bool
is_content(const void *message, enum scan_type type)
{
	const struct scan_auth_request *auth = message;
	const struct scan_refuse *refuse = message;

	switch (type) {
	case SCAN_AUTH:
		return xfer_name_check(auth->identity) && auth->client.reserved == 0 &&
			auth->server.reserved == 0;
	case SCAN_GRANT:
		return is_grant(message);
	case SCAN_QUERY:
		return is_query(message);
	case SCAN_CREDIT:
		return is_credit(message);
	case SCAN_CANCEL:
		return ((const struct scan_cancel *)message)->reserved == 0;
	case SCAN_DATA:
		return is_data(message);
	case SCAN_FREE:
		return is_free(message);
	case SCAN_REFUSE:
		return refuse->reason > SCAN_REASON_NONE && refuse->reserved == 0;
	case SCAN_ANSWER:
	case SCAN_ALIVE:
	case SCAN_TYPES:
		break;
	}
	return true;
}

enum scan_reason
scan_msg_check(const void *message, size_t size, enum scan_role from, uint64_t number)
{
	static const struct {
		size_t size;
		bool longer; /* more may follow */
		unsigned int roles;
		uint16_t flags;
	} types[SCAN_TYPES] = {
		[SCAN_AUTH] = {sizeof(struct scan_auth_request), false, 1 << SCAN_CLIENT, 0},
		[SCAN_ANSWER] = {sizeof(struct scan_answer), false, 1 << SCAN_SERVER, 0},
		[SCAN_GRANT] = {sizeof(struct scan_grant), false, 1 << SCAN_CLIENT, SCAN_PULL},
		[SCAN_QUERY] = {sizeof(struct scan_query), true, 1 << SCAN_CLIENT, SCAN_MORE},
		[SCAN_CREDIT] = {sizeof(struct scan_credit), true, 1 << SCAN_CLIENT, 0},
		[SCAN_CANCEL] = {sizeof(struct scan_cancel), false, 1 << SCAN_CLIENT, 0},
		[SCAN_DATA] = {sizeof(struct scan_data), true, 1 << SCAN_SERVER, 0},
		[SCAN_ALIVE] = {sizeof(struct scan_msg), false, 1 << SCAN_CLIENT | 1 << SCAN_SERVER,
			0},
		[SCAN_REFUSE] = {sizeof(struct scan_refuse), false,
			1 << SCAN_CLIENT | 1 << SCAN_SERVER, 0},
		[SCAN_FREE] = {sizeof(struct scan_free), true, 1 << SCAN_CLIENT, 0},
	};
	const struct scan_msg *m = message;

	if (size < sizeof(*m) || size > SCAN_MSG_MAX || m->length != size || m->type == 0 ||
		m->type >= SCAN_TYPES)
		return SCAN_REASON_MALFORMED;
	if ((types[m->type].roles & 1u << from) == 0 || m->number != number)
		return SCAN_REASON_ORDER;
	if (size < types[m->type].size || (!types[m->type].longer && size > types[m->type].size) ||
		(m->flags & ~types[m->type].flags) != 0)
		return SCAN_REASON_MALFORMED;
	return is_content(message, m->type) ? SCAN_REASON_NONE : SCAN_REASON_MALFORMED;
}

uint32_t
scan_record_bytes(const struct scan_record *r)
{
	switch (r->kind) {
	case SCAN_PUSHED:
		return 0;
	case SCAN_PULLED:
		return sizeof(struct scan_pulled);
	default:
		return r->length;
	}
}

const uint8_t *
scan_record_next(const struct scan_data *m, size_t *at, struct scan_record *r)
{
	const uint8_t *bytes = (const uint8_t *)m + *at;

	if (*at >= m->head.length)
		return NULL;
	memcpy(r, bytes, sizeof(*r));
	*at += RECORD_SIZE(scan_record_bytes(r));
	return bytes + sizeof(*r);
}

bool
scan_record_put(struct scan_data *m, const struct scan_record *r, const void *data)
{
	const size_t length = data != NULL ? scan_record_bytes(r) : 0, size = RECORD_SIZE(length);
	uint8_t *at = (uint8_t *)m + m->head.length;

	if (size > SCAN_MSG_MAX - m->head.length)
		return false;
	memset(at, 0, size);
	memcpy(at, r, sizeof(*r));
	if (length > 0)
		memcpy(at + sizeof(*r), data, length);
	m->head.length += size;
	m->nb++;
	return true;
}
