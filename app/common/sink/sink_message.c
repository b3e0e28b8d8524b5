/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "sink_message.h"

#define NB_OF(array) (sizeof(array) / sizeof((array)[0]))

const char *
sink_reason_name(uint32_t reason)
{
	static const char *const names[SINK_REASONS] = {
		[SINK_REASON_NONE] = "none",
		[SINK_REASON_MALFORMED] = "malformed",
		[SINK_REASON_VERSION] = "version",
		[SINK_REASON_BUSY] = "busy",
		[SINK_REASON_LATE] = "late",
		[SINK_REASON_KEY] = "key",
		[SINK_REASON_ORDER] = "order",
		[SINK_REASON_SCHEMA] = "schema",
		[SINK_REASON_BODY] = "body",
		[SINK_REASON_ENTRY] = "entry",
		[SINK_REASON_SUPERSEDED] = "superseded",
		[SINK_REASON_SILENT] = "silent",
		[SINK_REASON_QUOTA] = "quota",
		[SINK_REASON_STOPPING] = "stopping",
		[SINK_REASON_FAILED] = "failed",
		[SINK_REASON_STORE] = "store",
		[SINK_REASON_RIGHTS] = "rights",
		[SINK_REASON_CONNECTIONS] = "connections",
		[SINK_REASON_RUNS] = "open_runs",
		[SINK_REASON_ENDED] = "ended",
	};

	return reason < SINK_REASONS ? names[reason] : "?";
}

const char *
sink_state_name(uint32_t state)
{
	static const char *const names[SINK_STATES] = {
		[SINK_STATE_GOOD] = "good",
		[SINK_STATE_FULL] = "disk full",
		[SINK_STATE_FAILED] = "failed",
		[SINK_STATE_STOPPING] = "stopping",
		[SINK_STATE_SETTLING] = "settling",
	};

	return state < SINK_STATES ? names[state] : "?";
}

void
sink_message_begin(void *message, enum sink_type type, size_t size, uint64_t number)
{
	struct sink_message *m = message;

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

enum sink_reason
sink_private_check(const void *bytes, size_t size, enum sink_role role)
{
	struct sink_private p;
	bool known;

	if (size < sizeof(p))
		return SINK_REASON_MALFORMED;
	memcpy(&p, bytes, sizeof(p));
	if (p.magic != SINK_MAGIC || p.version != SINK_VERSION)
		return SINK_REASON_VERSION;
	known = role == SINK_ROLE_STORE
		? p.role == SINK_ROLE_STORE
		: p.role == SINK_ROLE_RECEIVER || p.role == SINK_ROLE_IMPORT;
	if (!known || p.reserved != 0 ||
		(role == SINK_ROLE_STORE && (p.node == 0 || p.identity != 0)) ||
		!all_zero((const uint8_t *)bytes + sizeof(p), size - sizeof(p)))
		return SINK_REASON_MALFORMED;
	return SINK_REASON_NONE;
}

bool
sink_name_check(const char name[SINK_NAME_BYTES])
{
	const size_t len = strnlen(name, SINK_NAME_BYTES);
	size_t i;

	if (len == 0 || len == SINK_NAME_BYTES || name[0] == '.')
		return false;
	/* not isalnum(3): the locale must have no say in it */
	for (i = 0; i < len; i++) {
		if (!(name[i] >= 'a' && name[i] <= 'z') && !(name[i] >= 'A' && name[i] <= 'Z') &&
			!(name[i] >= '0' && name[i] <= '9') && name[i] != '-' && name[i] != '_' &&
			name[i] != '.')
			return false;
	}
	return all_zero(name + len, SINK_NAME_BYTES - len);
}

static bool
check_proof(const struct sink_proof *m)
{
	unsigned int i;

	for (i = 0; i < SINK_TABLES; i++) {
		const struct sink_table *t = &m->table[i];

		if (t->body_max == 0 || t->body_max > SINK_BODY_MAX ||
			t->body_max % SINK_BLOCK != 0 || t->schema_bytes == 0 ||
			t->schema_bytes > SINK_SCHEMA_MAX || t->schema_bytes % SINK_BLOCK != 0 ||
			t->reserved != 0)
			return false;
	}
	return m->receiver.reserved == 0 && m->store.reserved == 0 && sink_name_check(m->name) &&
		sink_name_check(m->identity);
}

static bool
check_intervals(const struct sink_intervals *m, size_t size)
{
	uint32_t i;

	if (m->table >= SINK_TABLES || m->nb > SINK_INTERVALS_MAX ||
		size != sizeof(*m) + m->nb * sizeof(m->interval[0]))
		return false;
	for (i = 0; i < m->nb; i++) {
		/* the highest number is nobody's: one past the last can be named */
		if (m->interval[i].first > m->interval[i].last || m->interval[i].last == UINT64_MAX)
			return false;
		if (i > 0 && m->interval[i].first <= m->interval[i - 1].last + 1)
			return false;
	}
	return true;
}

static bool
check_region(const struct sink_region *r)
{
	uint64_t bytes;

	if (r->kind > SINK_REGION_BODY || r->reserved != 0 || r->nb == 0 ||
		r->nb > SINK_ENTRIES_MAX || r->first > SINK_ENTRIES_MAX - r->nb || r->place == 0 ||
		r->place > SINK_BODY_MAX || r->place % SINK_BLOCK != 0)
		return false;
	if (r->kind == SINK_REGION_METADATA ? r->table != 0 || r->place != SINK_ENTRY_BYTES
					    : r->table >= SINK_TABLES)
		return false;
	/* 2^16 x 2^30 at most */
	bytes = r->nb * r->place;
	return r->addr <= UINT64_MAX - bytes;
}

static bool
check_grant(const struct sink_grant *m, size_t size)
{
	uint32_t i;

	if (m->nb == 0 || m->nb > SINK_REGIONS_MAX ||
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
check_results(const struct sink_results *m, size_t size)
{
	const struct sink_result *r;
	uint32_t i;

	if (m->nb == 0 || m->nb > SINK_RESULTS_MAX || m->reserved != 0 ||
		size != sizeof(*m) + m->nb * sizeof(m->result[0]))
		return false;
	for (i = 0; i < m->nb; i++) {
		r = &m->result[i];
		if (r->table >= SINK_TABLES || r->status == 0 || r->status >= SINK_STATUSES ||
			r->reserved != 0 || r->entry >= SINK_ENTRIES_MAX)
			return false;
	}
	return true;
}

static bool
check_body(const void *message, size_t size)
{
	const struct sink_message *head = message;
	const struct sink_schema *schema = message;
	const struct sink_status *status = message;
	const struct sink_refuse *refuse = message;

	switch ((enum sink_type)head->type) {
	case SINK_PROOF:
		return check_proof(message);
	case SINK_SCHEMA:
		return schema->table < SINK_TABLES && size > sizeof(*schema) &&
			schema->offset <= SINK_SCHEMA_MAX - (size - sizeof(*schema));
	case SINK_MOVED:
	case SINK_HELD:
	case SINK_HAVE:
		return check_intervals(message, size);
	case SINK_GRANT:
		return check_grant(message, size);
	case SINK_RESULTS:
		return check_results(message, size);
	case SINK_STATUS:
		return status->state < SINK_STATES && status->reserved == 0 &&
			status->reserved2 == 0;
	case SINK_REFUSE:
		return refuse->reason > SINK_REASON_NONE && refuse->reason < SINK_REASONS &&
			refuse->reserved == 0;
	default:
		return true;
	}
}

/* Who sends what, how long it is at least and whether that is all, which flags it may have. */
static const struct {
	uint16_t size;
	bool exact;
	bool receiver;
	bool store;
	uint16_t flags;
} known[SINK_TYPES] = {
	[SINK_PROOF] = {sizeof(struct sink_proof), true, true, false, 0},
	[SINK_ANSWER] = {sizeof(struct sink_answer), true, false, true, 0},
	[SINK_SCHEMA] = {sizeof(struct sink_schema), false, true, false, SINK_MORE},
	[SINK_MOVED] = {sizeof(struct sink_intervals), false, true, false, SINK_MORE},
	[SINK_HELD] = {sizeof(struct sink_intervals), false, true, false, SINK_MORE},
	[SINK_HAVE] = {sizeof(struct sink_intervals), false, false, true, SINK_MORE},
	[SINK_GRANT] = {sizeof(struct sink_grant), false, false, true, 0},
	[SINK_RESULTS] = {sizeof(struct sink_results), false, false, true, 0},
	[SINK_STATUS] = {sizeof(struct sink_status), true, true, true, 0},
	[SINK_END] = {sizeof(struct sink_end), true, true, false, 0},
	[SINK_ENDED] = {sizeof(struct sink_end), true, false, true, 0},
	[SINK_REFUSE] = {sizeof(struct sink_refuse), true, true, true, 0},
};

enum sink_reason
sink_message_check(const void *message, size_t size, enum sink_role from, uint64_t number)
{
	const struct sink_message *m = message;

	if (size < sizeof(*m) || size > SINK_MESSAGE_MAX || m->length != size ||
		m->type >= NB_OF(known) || known[m->type].size == 0 || size < known[m->type].size ||
		(known[m->type].exact && size != known[m->type].size) ||
		(m->flags & ~known[m->type].flags) != 0)
		return SINK_REASON_MALFORMED;
	if (m->number != number ||
		!(from == SINK_ROLE_STORE ? known[m->type].store : known[m->type].receiver))
		return SINK_REASON_ORDER;
	return check_body(message, size) ? SINK_REASON_NONE : SINK_REASON_MALFORMED;
}

enum sink_reason
sink_grant_places(const struct sink_grant *grant, const uint64_t body_max[SINK_TABLES],
	struct sink_place *place, uint32_t *nb)
{
	const struct sink_region *r;
	struct sink_place *p;
	uint64_t metadata = 0, bodies = 0;
	uint32_t i, k, end = 0;

	for (i = 0; i < grant->nb; i++) {
		r = &grant->region[i];
		if (r->first + r->nb > end)
			end = r->first + r->nb;
		/* without overlap the sums below are the number of entries */
		metadata += r->kind == SINK_REGION_METADATA ? r->nb : 0;
		bodies += r->kind == SINK_REGION_BODY ? r->nb : 0;
	}
	if (metadata != end || bodies != end)
		return SINK_REASON_MALFORMED;
	memset(place, 0, end * sizeof(*place));
	for (i = 0; i < grant->nb; i++) {
		r = &grant->region[i];
		if (r->kind == SINK_REGION_BODY && r->place < body_max[r->table])
			return SINK_REASON_BODY;
		for (k = 0; k < r->nb; k++) {
			p = &place[r->first + k];
			if (r->kind == SINK_REGION_METADATA) {
				if (p->metadata != 0)
					return SINK_REASON_MALFORMED;
				p->metadata = r->addr + k * r->place;
				p->metadata_rkey = r->rkey;
				continue;
			}
			if (p->body_room != 0)
				return SINK_REASON_MALFORMED;
			p->body = r->addr + k * r->place;
			p->body_room = r->place;
			p->body_rkey = r->rkey;
			p->table = r->table;
		}
	}
	*nb = end;
	return SINK_REASON_NONE;
}
