/* SPDX-License-Identifier: BSD-3-Clause */
/* Section [egress] of the settings. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include <rte_common.h>

#include "egress/egress.h"
#include "port/gang_memory.h"
#include "rdma/rdma.h"
#include "settings.h"
#include "whole_number.h"
#include "xfer/msg.h"

#define ROUND_MS 5

void
egress_settings_read(struct egress_settings *s, struct config *c)
{
	static const char *const policies[] = {"round_robin", "by_frame", "primary", NULL};
	uint64_t slots;

	s->journal_slots = EGRESS_SLOTS_AUTO;
	s->device = config_text(c, "egress", "device", NULL);
	s->stores = config_text(c, "egress", "stores", NULL);
	s->identity = config_text(c, "egress", "identity", NULL);
	s->key = config_text(c, "egress", "key", NULL);
	s->journal = config_text(c, "egress", "journal", "auto");
	if (s->journal != NULL && strcmp(s->journal, "auto") == 0)
		s->journal = journal_default_path();
	s->journal_bytes = config_uint(c, "egress", "journal_mib", 1024, 1, UINT32_MAX) << 20;
	if (config_uint_or(c, "egress", "journal_slots", "auto", &slots, 0, JOURNAL_SLOTS))
		s->journal_slots = slots;
	s->batch_bytes = config_uint(c, "egress", "batch_mib", 16, 1, 512) << 20;
	s->rate = config_uint(c, "egress", "rate_mb_per_s", 100, 1, 1000000) * 1000000;
	s->policy = config_choice(c, "egress", "policy", EGRESS_ROUND_ROBIN, policies);
	s->interval = config_uint(c, "egress", "interval", 1024, 1, UINT32_MAX);
	s->failover_ms = config_uint(c, "egress", "failover_ms", 3000, 1, UINT32_MAX);
	s->hold_ms = config_uint(c, "egress", "hold_ms", 1000, 0, UINT32_MAX);
	s->spill = config_text(c, "egress", "spill", NULL);
	s->spill_bytes = config_uint_word(c, "egress", "spill_mib", "unlimited", 0, 1, UINT32_MAX)
		<< 20;
	s->spill_at = config_uint(c, "egress", "spill_at", 75, 1, 100);
	s->end_ms = config_uint(c, "egress", "end_ms", 60000, 0, UINT32_MAX);
	if (s->device == NULL) {
		if (s->stores != NULL || s->identity != NULL || s->key != NULL)
			config_complain(c, "egress", "device",
				"is required with stores, identity or key: the RDMA device that "
				"sends to the stores; without stores, remove these keys");
		return;
	}
	if (s->stores == NULL)
		config_complain(c, "egress", "stores", "is required: ADDRESS[:PORT],...");
	if (s->identity == NULL || !xfer_name_check_text(s->identity))
		config_complain(c, "egress", "identity",
			"is required: the NAME of [receiver NAME] in the stores' keyrings: "
			"letters, digits, '-', '_', '.'");
	if (s->key == NULL)
		config_complain(c, "egress", "key",
			"is required: a file with the key that the stores' keyrings have for it");
}

/* Parse ADDRESS[:PORT]: IPv4, or IPv6 in brackets. */
static int
parse_store(const char *text, struct sockaddr_storage *to)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
	struct sockaddr_in *four = (struct sockaddr_in *)to;
	char address[64], *port;
	uint64_t number = XFER_PORT;

	memset(to, 0, sizeof(*to));
	if (snprintf(address, sizeof(address), "%s", text) >= (int)sizeof(address))
		return -EINVAL;
	port = address[0] == '[' ? strstr(address, "]:") : strchr(address, ':');
	if (port != NULL) {
		if (!whole_number(strchr(port, ':') + 1, 1, UINT16_MAX, &number))
			return -EINVAL;
		*port = '\0';
	}
	if (address[0] == '[') {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(number);
		if (port == NULL && address[strlen(address) - 1] == ']')
			address[strlen(address) - 1] = '\0';
		return inet_pton(AF_INET6, address + 1, &six->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	four->sin_family = AF_INET;
	four->sin_port = htons(number);
	return inet_pton(AF_INET, address, &four->sin_addr) == 1 ? 0 : -EINVAL;
}

/* Normalise an address to ADDRESS:PORT. */
static void
print_address(struct xfer_store *s)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&s->to;
	const struct sockaddr_in *four = (const struct sockaddr_in *)&s->to;
	char text[INET6_ADDRSTRLEN] = "";

	if (six->sin6_family == AF_INET6) {
		(void)inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof(text));
		snprintf(s->address, sizeof(s->address), "[%s]:%u", text, ntohs(six->sin6_port));
		return;
	}
	(void)inet_ntop(AF_INET, &four->sin_addr, text, sizeof(text));
	snprintf(s->address, sizeof(s->address), "%s:%u", text, ntohs(four->sin_port));
}

/* Add an address. Two addresses of one store are detected on connection. */
static int
check_stores(const struct store_set *s, char message[PATH_MAX])
{
	unsigned int i, k;

	for (i = 0; i < s->nb; i++) {
		for (k = 0; k < i; k++) {
			if (strcmp(s->at[i].address, s->at[k].address) != 0)
				continue;
			snprintf(message, PATH_MAX, "'%s' and '%s' are the same store",
				s->at[k].name, s->at[i].name);
			return -EINVAL;
		}
	}
	if (s->nb == 0)
		snprintf(message, PATH_MAX, "is empty: expected ADDRESS[:PORT],...");
	return s->nb > 0 ? 0 : -EINVAL;
}

int
egress_stores_parse(
	const struct egress_settings *settings, struct store_set *s, char message[PATH_MAX])
{
	char list[1024], *save = NULL, *text;

	snprintf(list, sizeof(list), "%s", settings->stores);
	for (text = strtok_r(list, ", ", &save); text != NULL; text = strtok_r(NULL, ", ", &save)) {
		if (s->nb == STORE_SET || parse_store(text, &s->at[s->nb].to) < 0) {
			snprintf(message, PATH_MAX,
				"'%s': expected ADDRESS[:PORT], at most %u; host names "
				"are not resolved",
				text, STORE_SET);
			return -EINVAL;
		}
		snprintf(s->at[s->nb].name, sizeof(s->at[0].name), "%s", text);
		print_address(&s->at[s->nb++]);
	}
	return check_stores(s, message);
}

int
egress_stores_check(
	const struct store_set *stores, const struct rdma_dev *dev, char message[PATH_MAX])
{
	char why[RDMA_ROUTE_TEXT];
	unsigned int i;
	int ret;

	for (i = 0; i < stores->nb; i++) {
		ret = rdma_dev_route_check(dev, (const struct sockaddr *)&stores->at[i].to, why);
		if (ret < 0) {
			snprintf(message, PATH_MAX, "store %s: %s", stores->at[i].name, why);
			return ret;
		}
	}
	return 0;
}

uint64_t
egress_ring_need(const struct egress_settings *s, char *text, size_t size)
{
	const struct journal_need need = {
		.rate = s->rate,
		.commit_ms = EGRESS_COMMIT_MS,
		.round_ms = ROUND_MS,
		.detection_ms = s->failover_ms,
		.hold_ms = s->hold_ms,
		.body_max = s->batch_bytes,
	};

	return journal_need(&need, text, size);
}

bool
egress_size_is_ignored(const struct egress_settings *s, uint64_t room)
{
	struct statvfs fs;
	uint64_t page = XFER_BLOCK;

	/* a new file has whole pages, on a hugetlbfs huge ones */
	if (statvfs(s->journal, &fs) == 0 && fs.f_bsize > page)
		page = fs.f_bsize;
	return room != RTE_ALIGN_MUL_CEIL(s->journal_bytes, page);
}

struct egress_slots
egress_slots_choose(const struct settings *s, enum gk_memory results)
{
	const struct egress_settings *e = s->egress;
	struct gk_geometry geometry;
	struct gk_layout layout;
	uint64_t n = e->journal_slots;

	/* a device cannot send from memory of a GPU that it does not know */
	if (e->device == NULL || results == GK_MEMORY_DEVICE)
		return (struct egress_slots){0};
	gang_memory_layout(s, &geometry, &layout);
	/* a CSR frame would take the memory of a full image, until a store has it */
	if (n == EGRESS_SLOTS_AUTO)
		n = s->veto.params.kind == GK_KIND_CSR
			? 0
			: RTE_MAX(1u, e->journal_bytes / layout.stride);
	/* the gangs use those of [gpu] outputs: kept frames need further ones */
	if (n == 0 || s->outputs >= JOURNAL_SLOTS)
		return (struct egress_slots){0};
	return (struct egress_slots){layout.stride, RTE_MIN(n + s->outputs, JOURNAL_SLOTS)};
}
