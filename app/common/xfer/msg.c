/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "xfer/msg.h"

#define NB_OF(array) (sizeof(array) / sizeof((array)[0]))

const char *
xfer_reason_name(uint32_t reason)
{
	static const char *const names[XFER_REASONS] = {
		[XFER_REASON_NONE] = "none",
		[XFER_REASON_MALFORMED] = "malformed",
		[XFER_REASON_VERSION] = "version",
		[XFER_REASON_BUSY] = "busy",
		[XFER_REASON_LATE] = "late",
		[XFER_REASON_KEY] = "key",
		[XFER_REASON_ORDER] = "order",
		[XFER_REASON_SCHEMA] = "schema",
		[XFER_REASON_BODY] = "body",
		[XFER_REASON_ENTRY] = "descriptor",
		[XFER_REASON_SUPERSEDED] = "superseded",
		[XFER_REASON_SILENT] = "timeout",
		[XFER_REASON_QUOTA] = "quota",
		[XFER_REASON_STOPPING] = "stopping",
		[XFER_REASON_FAILED] = "failed",
		[XFER_REASON_STORE] = "store",
		[XFER_REASON_RIGHTS] = "rights",
		[XFER_REASON_CONNECTIONS] = "connections",
		[XFER_REASON_RUNS] = "open_runs",
		[XFER_REASON_DIFFERS] = "differs",
		[XFER_REASON_NAME] = "run_name",
		[XFER_REASON_MAC] = "mac",
		[XFER_REASON_ENDED] = "ended",
	};

	return reason < XFER_REASONS ? names[reason] : "?";
}

const char *
xfer_state_name(uint32_t state)
{
	static const char *const names[XFER_STATES] = {
		[XFER_STATE_GOOD] = "good",
		[XFER_STATE_FULL] = "disk full",
		[XFER_STATE_FAILED] = "failed",
		[XFER_STATE_STOPPING] = "stopping",
		[XFER_STATE_RECOVERING] = "recovering",
	};

	return state < XFER_STATES ? names[state] : "?";
}

void
xfer_msg_begin(void *message, enum xfer_type type, size_t size, uint64_t number)
{
	struct xfer_msg *m = message;

	memset(message, 0, size);
	m->type = type;
	m->length = size;
	m->number = number;
}

static bool
all_zero(const void *bytes, size_t size)
{
	const uint8_t *b = bytes;
	size_t i;

	for (i = 0; i < size; i++) {
		if (b[i] != 0)
			return false;
	}
	return true;
}

enum xfer_reason
xfer_private_check(const void *bytes, size_t size, enum xfer_role role)
{
	struct xfer_private p;
	bool known;

	if (size < sizeof(p))
		return XFER_REASON_MALFORMED;
	memcpy(&p, bytes, sizeof(p));
	if (p.magic != XFER_MAGIC || p.version != XFER_VERSION)
		return XFER_REASON_VERSION;
	known = role == XFER_ROLE_STORE
		? p.role == XFER_ROLE_STORE
		: p.role == XFER_ROLE_RECEIVER || p.role == XFER_ROLE_IMPORT;
	if (!known || p.reserved != 0 ||
		(role == XFER_ROLE_STORE && (p.node == 0 || p.identity != 0)) ||
		!all_zero((const uint8_t *)bytes + sizeof(p), size - sizeof(p)))
		return XFER_REASON_MALFORMED;
	return XFER_REASON_NONE;
}

bool
xfer_name_check(const char name[XFER_NAME_BYTES])
{
	const size_t len = strnlen(name, XFER_NAME_BYTES);
	size_t i;

	if (len == 0 || len == XFER_NAME_BYTES || name[0] == '.')
		return false;
	/* not isalnum(3), which depends on the locale */
	for (i = 0; i < len; i++) {
		if (!(name[i] >= 'a' && name[i] <= 'z') && !(name[i] >= 'A' && name[i] <= 'Z') &&
			!(name[i] >= '0' && name[i] <= '9') && name[i] != '-' && name[i] != '_' &&
			name[i] != '.')
			return false;
	}
	return all_zero(name + len, XFER_NAME_BYTES - len);
}

bool
xfer_name_check_text(const char *text)
{
	char name[XFER_NAME_BYTES] = "";

	/* a name that is too long has no terminator, and is refused */
	memcpy(name, text, strnlen(text, sizeof(name)));
	return xfer_name_check(name);
}

static bool
check_auth(const struct xfer_auth_request *m)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		const struct xfer_table *t = &m->table[i];

		if (t->body_max == 0 || t->body_max > XFER_BODY_MAX ||
			t->body_max % XFER_BLOCK != 0 || t->schema_bytes == 0 ||
			t->schema_bytes > XFER_SCHEMA_MAX || t->schema_bytes % XFER_BLOCK != 0 ||
			t->reserved != 0)
			return false;
	}
	return m->receiver.reserved == 0 && m->store.reserved == 0 && xfer_name_check(m->name) &&
		xfer_name_check(m->identity);
}

static bool
check_intervals(const struct xfer_intervals *m, size_t size)
{
	uint32_t i;

	if (m->table >= XFER_TABLES || m->nb > XFER_INTERVALS_MAX ||
		size != sizeof(*m) + m->nb * sizeof(m->interval[0]))
		return false;
	for (i = 0; i < m->nb; i++) {
		/* UINT64_MAX is not a sequence number, so that last + 1 can be represented */
		if (m->interval[i].first > m->interval[i].last || m->interval[i].last == UINT64_MAX)
			return false;
		if (i > 0 && m->interval[i].first <= m->interval[i - 1].last + 1)
			return false;
	}
	return true;
}

static bool
check_list(const struct xfer_list *m, size_t size)
{
	uint32_t i;

	if (m->table >= XFER_TABLES || m->nb > XFER_LIST_MAX ||
		size != sizeof(*m) + m->nb * sizeof(m->listed[0]))
		return false;
	for (i = 0; i < m->nb; i++) {
		if (m->listed[i].sequence == UINT64_MAX ||
			(i > 0 && m->listed[i].sequence <= m->listed[i - 1].sequence))
			return false;
	}
	return true;
}

static bool
check_region(const struct xfer_region *r)
{
	uint64_t bytes;

	if (r->kind > XFER_REGION_BODY || r->reserved != 0 || r->nb == 0 ||
		r->nb > XFER_DESCS_MAX || r->first > XFER_DESCS_MAX - r->nb || r->slot_bytes == 0 ||
		r->slot_bytes > XFER_BODY_MAX || r->slot_bytes % XFER_BLOCK != 0)
		return false;
	if (r->kind == XFER_REGION_METADATA ? r->table != 0 || r->slot_bytes != XFER_DESC_BYTES
					    : r->table >= XFER_TABLES)
		return false;
	/* at most 2^16 x 2^30, no overflow */
	bytes = r->nb * r->slot_bytes;
	return r->addr <= UINT64_MAX - bytes;
}

static bool
check_grant(const struct xfer_grant *m, size_t size)
{
	uint32_t i;

	if (m->nb == 0 || m->nb > XFER_REGIONS_MAX ||
		size != sizeof(*m) + m->nb * sizeof(m->region[0]) || m->heartbeat_ms == 0 ||
		m->silence_ms <= m->heartbeat_ms || m->commit_ms == 0)
		return false;
	for (i = 0; i < m->nb; i++) {
		if (!check_region(&m->region[i]))
			return false;
	}
	return true;
}

static bool
check_results(const struct xfer_results *m, size_t size)
{
	const struct xfer_result *r;
	uint32_t i;

	if (m->nb == 0 || m->nb > XFER_RESULTS_MAX || m->reserved != 0 ||
		size != sizeof(*m) + m->nb * sizeof(m->result[0]))
		return false;
	for (i = 0; i < m->nb; i++) {
		r = &m->result[i];
		if (r->table >= XFER_TABLES || r->status == 0 || r->status >= XFER_STATUSES ||
			r->reserved != 0 || r->entry >= XFER_DESCS_MAX)
			return false;
	}
	return true;
}

static bool
check_body(const void *message, size_t size)
{
	const struct xfer_msg *head = message;
	const struct xfer_schema *schema = message;
	const struct xfer_status *status = message;
	const struct xfer_refuse *refuse = message;

	switch ((enum xfer_type)head->type) {
	case XFER_AUTH:
		return check_auth(message);
	case XFER_SCHEMA:
		return schema->table < XFER_TABLES && size > sizeof(*schema) &&
			schema->offset <= XFER_SCHEMA_MAX - (size - sizeof(*schema));
	case XFER_REASSIGNED:
	case XFER_HELD:
		return check_list(message, size);
	case XFER_INVENTORY:
		return check_intervals(message, size);
	case XFER_GRANT:
		return check_grant(message, size);
	case XFER_RESULTS:
		return check_results(message, size);
	case XFER_STATUS:
		return status->state < XFER_STATES && status->reserved == 0 &&
			status->reserved2 == 0;
	case XFER_REFUSE:
		return refuse->reason > XFER_REASON_NONE && refuse->reason < XFER_REASONS &&
			refuse->reserved == 0;
	default:
		return true;
	}
}

/* For each type: its sender, minimum size, whether the size is exact, and the allowed flags. */
static const struct {
	uint16_t size;
	bool exact;
	bool receiver;
	bool store;
	uint16_t flags;
} known[XFER_TYPES] = {
	[XFER_AUTH] = {sizeof(struct xfer_auth_request), true, true, false, 0},
	[XFER_ANSWER] = {sizeof(struct xfer_answer), true, false, true, 0},
	[XFER_SCHEMA] = {sizeof(struct xfer_schema), false, true, false, XFER_MORE},
	[XFER_REASSIGNED] = {sizeof(struct xfer_list), false, true, false, XFER_MORE},
	[XFER_HELD] = {sizeof(struct xfer_list), false, true, false, XFER_MORE},
	[XFER_INVENTORY] = {sizeof(struct xfer_intervals), false, false, true, XFER_MORE},
	[XFER_GRANT] = {sizeof(struct xfer_grant), false, false, true, 0},
	[XFER_RESULTS] = {sizeof(struct xfer_results), false, false, true, 0},
	[XFER_STATUS] = {sizeof(struct xfer_status), true, true, true, 0},
	[XFER_END] = {sizeof(struct xfer_end), true, true, false, 0},
	[XFER_ENDED] = {sizeof(struct xfer_end), true, false, true, 0},
	[XFER_REFUSE] = {sizeof(struct xfer_refuse), true, true, true, 0},
};

enum xfer_reason
xfer_msg_check(const void *message, size_t size, enum xfer_role from, uint64_t number)
{
	const struct xfer_msg *m = message;

	if (size < sizeof(*m) || size > XFER_MSG_MAX || m->length != size ||
		m->type >= NB_OF(known) || known[m->type].size == 0 || size < known[m->type].size ||
		(known[m->type].exact && size != known[m->type].size) ||
		(m->flags & ~known[m->type].flags) != 0)
		return XFER_REASON_MALFORMED;
	if (m->number != number ||
		!(from == XFER_ROLE_STORE ? known[m->type].store : known[m->type].receiver))
		return XFER_REASON_ORDER;
	return check_body(message, size) ? XFER_REASON_NONE : XFER_REASON_MALFORMED;
}

enum xfer_reason
xfer_grant_slots(const struct xfer_grant *grant, const uint64_t body_max[XFER_TABLES],
	struct xfer_slot *slot, uint32_t *nb)
{
	const struct xfer_region *r;
	struct xfer_slot *p;
	uint64_t metadata = 0, bodies = 0;
	uint32_t i, k, end = 0;

	for (i = 0; i < grant->nb; i++) {
		r = &grant->region[i];
		if (r->first + r->nb > end)
			end = r->first + r->nb;
		/* regions do not overlap, so these sums are the numbers of slots */
		metadata += r->kind == XFER_REGION_METADATA ? r->nb : 0;
		bodies += r->kind == XFER_REGION_BODY ? r->nb : 0;
	}
	if (metadata != end || bodies != end)
		return XFER_REASON_MALFORMED;
	memset(slot, 0, end * sizeof(*slot));
	for (i = 0; i < grant->nb; i++) {
		r = &grant->region[i];
		if (r->kind == XFER_REGION_BODY && r->slot_bytes < body_max[r->table])
			return XFER_REASON_BODY;
		for (k = 0; k < r->nb; k++) {
			p = &slot[r->first + k];
			if (r->kind == XFER_REGION_METADATA) {
				if (p->metadata != 0)
					return XFER_REASON_MALFORMED;
				p->metadata = r->addr + k * r->slot_bytes;
				p->metadata_rkey = r->rkey;
				continue;
			}
			if (p->body_room != 0)
				return XFER_REASON_MALFORMED;
			p->body = r->addr + k * r->slot_bytes;
			p->body_room = r->slot_bytes;
			p->body_rkey = r->rkey;
			p->table = r->table;
		}
	}
	*nb = end;
	return XFER_REASON_NONE;
}
