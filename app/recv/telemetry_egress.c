/* SPDX-License-Identifier: BSD-3-Clause */
/* /braggline/egress: stores, the retention ring, and what is done when stores stand still;
 * /braggline/rdma: the device to them. */

#include <stdio.h>

#include "sink/sink_message.h"
#include "telemetry_dict.h"
#include "telemetry_private.h"
#include "telemetry_rdma.h"

static struct rte_tel_data *
retention(const struct retention_stats *r)
{
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	rte_tel_data_add_dict_uint(d, "batches", r->batches);
	rte_tel_data_add_dict_uint(d, "bytes", r->bytes);
	rte_tel_data_add_dict_uint(d, "room", r->room);
	rte_tel_data_add_dict_uint(d, "in_doubt", r->in_doubt);
	rte_tel_data_add_dict_uint(d, "put", r->put);
	rte_tel_data_add_dict_uint(d, "released", r->released);
	rte_tel_data_add_dict_uint(d, "moved", r->moved);
	rte_tel_data_add_dict_uint(d, "adopted", r->adopted);
	rte_tel_data_add_dict_uint(d, "damaged", r->damaged);
	rte_tel_data_add_dict_uint(d, "full", r->full);
	return d;
}

static struct rte_tel_data *
store(const struct egress_store *s)
{
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	telemetry_dict_text(d, "address", s->name);
	rte_tel_data_add_dict_string(d, "state", sink_sender_state_name(s->now.state));
	rte_tel_data_add_dict_string(d, "says", sink_state_name(s->now.store_state));
	telemetry_dict_hex(d, "identity", s->now.identity);
	rte_tel_data_add_dict_uint(d, "places", s->now.places);
	rte_tel_data_add_dict_uint(d, "credits", s->now.credits);
	rte_tel_data_add_dict_uint(d, "waiting", s->now.waiting);
	rte_tel_data_add_dict_uint(d, "sent", s->sent);
	rte_tel_data_add_dict_uint(d, "bytes", s->bytes);
	rte_tel_data_add_dict_uint(d, "bytes_per_s", s->bytes_per_s);
	rte_tel_data_add_dict_uint(d, "durable", s->durable);
	rte_tel_data_add_dict_uint(d, "durable_per_s", s->durable_per_s);
	rte_tel_data_add_dict_uint(d, "found", s->found);
	rte_tel_data_add_dict_uint(d, "doubles", s->doubles);
	rte_tel_data_add_dict_uint(d, "again", s->again);
	rte_tel_data_add_dict_uint(d, "connections", s->connections);
	rte_tel_data_add_dict_uint(d, "broken", s->broken);
	rte_tel_data_add_dict_uint(d, "refused", s->refused);
	rte_tel_data_add_dict_uint(d, "unreachable", s->unreachable);
	rte_tel_data_add_dict_uint(d, "malformed", s->malformed);
	rte_tel_data_add_dict_uint(d, "late", s->late);
	rte_tel_data_add_dict_uint(d, "stuck", s->stuck);
	rte_tel_data_add_dict_string(d, "reason", sink_reason_name(s->now.reason));
	return d;
}

int
telemetry_egress(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct egress *e = telemetry_run->pipeline->stores;
	struct rte_tel_data *stores = telemetry_dict_new();
	struct egress_view v;
	char name[16];

	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_uint(d, "active", e != NULL);
	if (e == NULL || stores == NULL) {
		rte_tel_data_free(stores);
		return 0;
	}
	egress_view_get(e, &v);
	rte_tel_data_add_dict_string(d, "step", egress_step_name(v.step));
	rte_tel_data_add_dict_uint(d, "spills", v.steps[EGRESS_SPILL]);
	rte_tel_data_add_dict_uint(d, "refusals", v.steps[EGRESS_REFUSE]);
	rte_tel_data_add_dict_uint(d, "spilled", v.spilled);
	rte_tel_data_add_dict_uint(d, "spilled_adopted", v.adopted_spilled);
	rte_tel_data_add_dict_uint(d, "spill_used", v.spill_used);
	rte_tel_data_add_dict_uint(d, "spill_error", v.spill_error);
	rte_tel_data_add_dict_uint(d, "runs", v.runs);
	telemetry_dict_nest(d, "retention", retention(&v.retention));
	for (uint32_t i = 0; i < v.nb_stores; i++) {
		snprintf(name, sizeof(name), "%u", i);
		telemetry_dict_nest(stores, name, store(&v.store[i]));
	}
	telemetry_dict_nest(d, "stores", stores);
	telemetry_dict_below_us(d, ARROW_LATENCY_BUCKETS);
	telemetry_dict_array(d, "kept_to_durable", v.latency, ARROW_LATENCY_BUCKETS);
	return 0;
}

int
telemetry_device(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct egress *e = telemetry_run->pipeline->stores;
	const struct rdma_dev_info *info = NULL;
	const struct rdma_dev *dev = e != NULL ? egress_device(e, &info) : NULL;

	telemetry_rdma_reply(d, dev, info);
	return 0;
}
