/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the devargs of a device, `roce:...`. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include <rte_ethdev.h>
#include <rte_kvargs.h>
#include <rte_string_fns.h>

#include "ethdev_find.h"
#include "port/device.h"
#include "rdma_roce.h"

#define MRS_DEFAULT 65536

/** Parse a number in a range. @return 0; -EINVAL, logged */
static int
number(const char *key, const char *value, unsigned long least, unsigned long most, uint32_t *out)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(value, &end, 0);
	if (errno || end == value || *end || n < least || n > most) {
		RDMA_LOG(ERR, "roce: %s=%s, expected a number from %lu to %lu", key, value, least,
			most);
		return -EINVAL;
	}
	*out = n;
	return 0;
}

static int
set_port(struct roce_dev *dev, const char *key, const char *value)
{
	char names[ETHDEV_NAMES_SIZE];

	if (ethdev_find(value, &dev->port) == 0)
		return 0;
	RDMA_LOG(ERR, "roce: %s=%s: no such port; expected number or name of one that EAL has: %s",
		key, value, ethdev_names(names));
	return -ENODEV;
}

static int
set_queue(struct roce_dev *dev, const char *key, const char *value)
{
	uint32_t n;
	int ret = number(key, value, 0, RTE_MAX_QUEUES_PER_PORT - 1, &n);

	dev->queue = ret ? 0 : n;
	return ret;
}

static int
set_poll_groups(struct roce_dev *dev, const char *key, const char *value)
{
	uint32_t n;
	int ret = number(key, value, 1, ROCE_POLL_GROUPS_MAX, &n);

	dev->nb_poll_groups = ret ? 0 : n;
	return ret;
}

/**
 * Parse an IPv4 or IPv6 address, with /PREFIX if `prefix` is not NULL.
 * @return 0; -EINVAL, logged
 */
static int
address(const char *key, const char *value, struct roce_gid *gid, uint8_t *prefix)
{
	char text[INET6_ADDRSTRLEN + 4], *slash;
	struct in_addr in4;
	uint32_t bits = 0;
	bool v4;

	strlcpy(text, value, sizeof(text));
	slash = strchr(text, '/');
	if (slash)
		*slash = '\0';
	v4 = inet_pton(AF_INET, text, &in4) == 1;
	if (v4)
		*gid = roce_gid_v4(in4.s_addr);
	/* an IPv4 address written as an IPv6 address has no meaningful prefix */
	else if (inet_pton(AF_INET6, text, gid->raw) != 1 || roce_gid_is_v4(gid)) {
		RDMA_LOG(ERR, "roce: %s=%s, expected an IP address%s", key, value,
			prefix ? " with /PREFIX" : "");
		return -EINVAL;
	}
	if (!prefix != !slash) {
		RDMA_LOG(ERR, "roce: %s=%s, expected the address %s /PREFIX", key, value,
			prefix ? "with" : "without");
		return -EINVAL;
	}
	if (!prefix)
		return 0;
	if (number(key, slash + 1, 1, v4 ? 32 : 128, &bits) < 0)
		return -EINVAL;
	*prefix = bits;
	return 0;
}

static int
set_ip(struct roce_dev *dev, const char *key, const char *value)
{
	struct roce_gid gid;
	uint8_t prefix = 0;
	int ret = address(key, value, &gid, &prefix);
	bool *has;

	if (ret < 0)
		return ret;
	has = roce_gid_is_v4(&gid) ? &dev->has_ip4 : &dev->has_ip6;
	if (*has || roce_gid_is_multicast(&gid)) {
		RDMA_LOG(ERR, "roce: %s=%s, expected one unicast address per family", key, value);
		return -EINVAL;
	}
	*has = true;
	if (has == &dev->has_ip4) {
		dev->ip4 = gid;
		dev->prefix4 = prefix;
	} else {
		dev->ip6 = gid;
		dev->prefix6 = prefix;
	}
	return 0;
}

static int
set_gateway(struct roce_dev *dev, const char *key, const char *value)
{
	struct roce_gid gid;
	int ret = address(key, value, &gid, NULL);

	if (ret < 0)
		return ret;
	if (roce_gid_is_v4(&gid)) {
		dev->gateway4 = gid;
		dev->has_gateway4 = true;
	} else {
		dev->gateway6 = gid;
		dev->has_gateway6 = true;
	}
	return 0;
}

static int
set_vlan(struct roce_dev *dev, const char *key, const char *value)
{
	char text[16], *colon;
	uint32_t id, pcp = 0;

	strlcpy(text, value, sizeof(text));
	colon = strchr(text, ':');
	if (colon)
		*colon++ = '\0';
	if (number(key, text, 1, 4094, &id) < 0 || (colon && number(key, colon, 0, 7, &pcp) < 0))
		return -EINVAL;
	dev->vlan_tci = pcp << 13 | id;
	return 0;
}

static int
set_mtu(struct roce_dev *dev, const char *key, const char *value)
{
	uint32_t n;

	if (number(key, value, 256, 4096, &n) < 0)
		return -EINVAL;
	if (!rte_is_power_of_2(n)) {
		RDMA_LOG(ERR, "roce: %s=%s, expected 256, 512, 1024, 2048 or 4096", key, value);
		return -EINVAL;
	}
	dev->mtu = n;
	return 0;
}

static int
set_qps(struct roce_dev *dev, const char *key, const char *value)
{
	return number(key, value, 1, 1 << 18, &dev->max_qps);
}

static int
set_mrs(struct roce_dev *dev, const char *key, const char *value)
{
	return number(key, value, 1, 1 << 24, &dev->max_mrs);
}

static int
set_handover(struct roce_dev *dev, const char *key, const char *value)
{
	uint32_t n;
	int ret = number(key, value, 0, 1, &n);

	dev->handover = ret == 0 && n;
	return ret;
}

static int
set_steer(struct roce_dev *dev, const char *key, const char *value)
{
	dev->no_steer = strcmp(value, "no") == 0;
	if (dev->no_steer || strcmp(value, "auto") == 0)
		return 0;
	RDMA_LOG(ERR, "roce: %s=%s, expected auto or no", key, value);
	return -EINVAL;
}

static int
set_poll(struct roce_dev *dev, const char *key, const char *value)
{
	uint32_t n;
	int ret = number(key, value, 0, 1, &n);

	dev->no_poll = ret == 0 && !n;
	return ret;
}

static int
set_cc(struct roce_dev *dev, const char *key, const char *value)
{
	if (strcmp(value, "none") == 0)
		return 0;
	if (strcmp(value, "dcqcn") == 0) {
		dev->dcqcn = true;
		return 0;
	}
	RDMA_LOG(ERR, "roce: %s=%s, expected none or dcqcn", key, value);
	return -EINVAL;
}

static const struct {
	const char *key;
	int (*set)(struct roce_dev *dev, const char *key, const char *value);
} keys[] = {
	{"port", set_port},
	{"queue", set_queue},
	{"poll_groups", set_poll_groups},
	{"ip", set_ip},
	{"gateway", set_gateway},
	{"vlan", set_vlan},
	{"mtu", set_mtu},
	{"qps", set_qps},
	{"mrs", set_mrs},
	{"handover", set_handover},
	{"steer", set_steer},
	{"poll", set_poll},
	{"cc", set_cc},
};

struct parse {
	struct roce_dev *dev;
	bool port;
	int ret;
};

static int
one(const char *key, const char *value, void *arg)
{
	struct parse *p = arg;
	unsigned int i;

	for (i = 0; i < RTE_DIM(keys); i++)
		if (strcmp(keys[i].key, key) == 0)
			break;
	if (i == RTE_DIM(keys)) {
		RDMA_LOG(ERR,
			"roce: unknown key %s, expected port, queue, poll_groups, ip, gateway, "
			"vlan, mtu, qps, mrs, handover, steer, poll or cc",
			key);
		p->ret = -EINVAL;
		return -1;
	}
	p->port |= i == 0;
	p->ret = keys[i].set(p->dev, key, value ? value : "");
	return p->ret;
}

int
roce_args_parse(struct roce_dev *dev, const char *args)
{
	struct rte_kvargs *kvlist = rte_kvargs_parse(args, NULL);
	struct parse p = {.dev = dev};

	if (!kvlist) {
		RDMA_LOG(ERR, "roce:%s, expected KEY=VALUE[,KEY=VALUE]...", args);
		return -EINVAL;
	}
	dev->nb_poll_groups = 1;
	dev->max_qps = RDMA_ROCE_QPS;
	dev->max_mrs = MRS_DEFAULT;
	rte_kvargs_process(kvlist, NULL, one, &p);
	rte_kvargs_free(kvlist);
	if (p.ret)
		return p.ret;
	if (!p.port || (!dev->has_ip4 && !dev->has_ip6)) {
		RDMA_LOG(ERR, "roce:%s, expected port= and ip=", args);
		return -EINVAL;
	}
	return 0;
}
