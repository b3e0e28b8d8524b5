/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of the verbs provider: opening, capabilities, counters and protection domains. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_kvargs.h>

#include "verbs_device.h"

#define SYSFS	 "/sys/class/infiniband"
#define GIDS_MAX 256

/* ---- sysfs ---------------------------------------------------------------------------------- */

static int64_t
read_number(const char *path, int64_t otherwise)
{
	FILE *f = fopen(path, "re");
	int64_t value;

	if (!f)
		return otherwise;
	if (fscanf(f, "%" SCNd64, &value) != 1)
		value = otherwise;
	fclose(f);
	return value;
}

static int16_t
numa_node(const char *device)
{
	char path[128];

	snprintf(path, sizeof(path), SYSFS "/%.63s/device/numa_node", device);
	return read_number(path, -1);
}

/** Find the port's counters of the kernel driver, sorted by name. */
static void
find_hw_counters(struct verbs_dev *dev)
{
	const char *device = ibv_get_device_name(dev->context->device);
	char path[128];
	struct dirent **entry;
	int i, n;

	snprintf(path, sizeof(path), SYSFS "/%.63s/ports/%u/hw_counters", device, dev->port);
	n = scandir(path, &entry, NULL, alphasort);
	if (n < 0)
		return;
	dev->hw_counter = calloc(n, sizeof(*dev->hw_counter));
	for (i = 0; i < n; i++) {
		const char *name = entry[i]->d_name;

		if (dev->hw_counter && name[0] != '.' && strcmp(name, "lifespan") != 0) {
			struct verbs_hw_counter *c = &dev->hw_counter[dev->nb_hw_counters++];

			snprintf(c->name, sizeof(c->name), "hw_%.40s", name);
			snprintf(c->path, sizeof(c->path), "%s/%.60s", path, name);
		}
		free(entry[i]);
	}
	free(entry);
}

static uint32_t
link_mbps(const struct ibv_port_attr *port)
{
	/* lane rates in Mb/s by bit of active_speed: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR */
	static const uint32_t lane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
	uint32_t width = port->active_width == 1 ? 1
		: port->active_width == 2	 ? 4
		: port->active_width == 4	 ? 8
		: port->active_width == 8	 ? 12
		: port->active_width == 16	 ? 2
						 : 0;
	unsigned int i;

	for (i = 0; i < RTE_DIM(lane); i++)
		if (port->active_speed == 1 << i)
			return lane[i] * width;
	return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int
number_arg(const char *key, const char *value, void *out)
{
	char *end;
	long number = strtol(value ? value : "", &end, 10);

	if (!value || !*value || *end || number < 0 || number > 255) {
		RDMA_LOG(ERR, "verbs: %s=%s, expected a number from 0 to 255", key,
			value ? value : "");
		return -EINVAL;
	}
	*(int *)out = number;
	return 0;
}

/** Parse a device name such as "mlx5_0,port=1,gid=3". */
static int
parse(const char *args, char *device, size_t size, int *port, int *gid)
{
	static const char *const known[] = {"port", "gid", NULL};
	const size_t length = strcspn(args, ",");
	struct rte_kvargs *kvargs;
	int ret;

	if (length == 0 || length >= size) {
		RDMA_LOG(ERR,
			"verbs:%s: name of an adapter is missing, expected "
			"verbs:NAME[,port=N][,gid=N]",
			args);
		return -EINVAL;
	}
	snprintf(device, size, "%.*s", (int)length, args);
	*port = 1;
	*gid = -1;
	if (args[length] == '\0')
		return 0;
	kvargs = rte_kvargs_parse(args + length + 1, known);
	if (!kvargs) {
		RDMA_LOG(ERR, "verbs:%s: unknown key, expected port=N or gid=N", args);
		return -EINVAL;
	}
	ret = rte_kvargs_process(kvargs, "port", number_arg, port);
	if (ret == 0)
		ret = rte_kvargs_process(kvargs, "gid", number_arg, gid);
	rte_kvargs_free(kvargs);
	return ret < 0 ? -EINVAL : 0;
}

static struct ibv_context *
open_context(const char *name)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	char names[256] = "";
	size_t used = 0;
	int i, n = 0;

	list = ibv_get_device_list(&n);
	for (i = 0; list && i < n; i++) {
		const char *have = ibv_get_device_name(list[i]);

		if (strcmp(have, name) == 0) {
			context = ibv_open_device(list[i]);
			if (!context)
				RDMA_LOG(ERR, "verbs:%s: %s", name, strerror(errno));
			break;
		}
		if (used < sizeof(names))
			used += snprintf(names + used, sizeof(names) - used, " %s", have);
	}
	if (!list || i == n)
		RDMA_LOG(ERR, "verbs:%s: no such adapter; rdma-core has:%s", name,
			n ? names : " none");
	if (list)
		ibv_free_device_list(list);
	return context;
}

/** Choose the GID, which determines the address. */
static int
choose_gid(struct verbs_dev *dev, const char *name, int wanted)
{
	struct ibv_gid_entry *entry = calloc(GIDS_MAX, sizeof(*entry));
	struct ibv_gid_entry *found = NULL;
	ssize_t n, i;

	if (!entry)
		return -ENOMEM;
	n = ibv_query_gid_table(dev->context, entry, GIDS_MAX, 0);
	for (i = 0; i < n && !found; i++) {
		struct sockaddr_storage addr;

		if (entry[i].port_num != dev->port || entry[i].gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		verbs_address_of(&entry[i].gid, 0, &addr);
		if (wanted >= 0 ? entry[i].gid_index == (uint32_t)wanted
				: addr.ss_family == AF_INET)
			found = &entry[i];
	}
	if (found) {
		dev->gid_index = found->gid_index;
		verbs_address_of(&found->gid, found->ndev_ifindex, &dev->addr);
	} else if (wanted >= 0) {
		RDMA_LOG(ERR, "verbs:%s: port %u has no RoCEv2 GID %d", name, dev->port, wanted);
	} else {
		RDMA_LOG(ERR,
			"verbs:%s: port %u has no RoCEv2 GID of an IPv4 address: assign an "
			"address to its network interface, or set gid=N",
			name, dev->port);
	}
	free(entry);
	return found ? 0 : -ENODEV;
}

/** Find the largest inline size. No query returns it: try to create queue pairs. */
static uint16_t
find_max_inline(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	uint16_t bytes = 0;

	for (bytes = RDMA_INLINE_MAX; pd && cq && bytes; bytes /= 2) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.cap = {1, 1, 1, 1, bytes},
			.qp_type = IBV_QPT_RC,
		};
		struct ibv_qp *qp = ibv_create_qp(pd, &init);

		if (qp) {
			ibv_destroy_qp(qp);
			break;
		}
	}
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return pd && cq ? bytes : 0;
}

static void
find_rate_limits(struct verbs_dev *dev)
{
	struct ibv_device_attr_ex ex;

	if (ibv_query_device_ex(dev->context, NULL, &ex) == 0) {
		dev->rate_max_kbps = ex.packet_pacing_caps.qp_rate_limit_max;
		dev->rate_types = dev->rate_max_kbps ? ex.packet_pacing_caps.supported_qpts : 0;
	}
}

static int
non_blocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

static int
query(struct verbs_dev *dev, const char *name, int port, int gid)
{
	int error = ibv_query_device(dev->context, &dev->attr);

	if (error) {
		RDMA_LOG(ERR, "verbs:%s: query: %s", name, strerror(error));
		return -error;
	}
	dev->port = port;
	error = ibv_query_port(dev->context, port, &dev->port_attr);
	if (error) {
		RDMA_LOG(ERR, "verbs:%s: no port %d, the adapter has %u: %s", name, port,
			dev->attr.phys_port_cnt, strerror(error));
		return -ENODEV;
	}
	if (dev->context->device->transport_type != IBV_TRANSPORT_IB ||
		dev->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
		RDMA_LOG(ERR, "verbs:%s: port %d is not RoCE but %s", name, port,
			dev->context->device->transport_type == IBV_TRANSPORT_IB ? "InfiniBand"
										 : "iWARP");
		return -ENOTSUP;
	}
	if (dev->port_attr.state != IBV_PORT_ACTIVE)
		RDMA_LOG(WARNING, "verbs:%s: port %d is %s", name, port,
			ibv_port_state_str(dev->port_attr.state));
	return choose_gid(dev, name, gid);
}

static struct rdma_dev *
verbs_dev_open(const char *args)
{
	struct verbs_dev *dev;
	char name[RDMA_NAME_MAX], text[64];
	int port, gid, ret;

	ret = parse(args, name, sizeof(name), &port, &gid);
	if (ret < 0)
		return verbs_refuse(-ret);
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return verbs_refuse(ENOMEM);
	/* For log messages before the caller sets the name. */
	snprintf(dev->base.name, sizeof(dev->base.name), "verbs:%.50s", name);
	LIST_INIT(&dev->qps);
	LIST_INIT(&dev->conns);
	ret = -ENODEV;
	dev->context = open_context(name);
	if (!dev->context)
		goto free_dev;
	ret = query(dev, name, port, gid);
	if (ret < 0)
		goto close_context;
	dev->channel = rdma_create_event_channel();
	if (!dev->channel) {
		ret = -ENODEV;
		RDMA_LOG(ERR, "verbs:%s: no connection manager; load the module rdma_ucm: %s", name,
			strerror(errno));
		goto close_context;
	}
	ret = non_blocking(dev->channel->fd);
	if (ret == 0)
		ret = non_blocking(dev->context->async_fd);
	if (ret < 0)
		goto destroy_channel;
	dev->numa_node = numa_node(name);
	dev->max_inline = find_max_inline(dev->context);
	dev->dmabuf = verbs_dmabuf_supported(dev->context);
	dev->peermem = access("/sys/module/nvidia_peermem", F_OK) == 0;
	find_rate_limits(dev);
	find_hw_counters(dev);
	RDMA_LOG(DEBUG, "verbs:%s: port %d, %s, GID %u, MTU %u, dma-buf %s, nvidia-peermem %s",
		name, port, verbs_address_text((struct sockaddr *)&dev->addr, text, sizeof(text)),
		dev->gid_index, verbs_mtu_bytes(dev->port_attr.active_mtu),
		dev->dmabuf ? "yes" : "no", dev->peermem ? "yes" : "no");
	return &dev->base;

destroy_channel:
	rdma_destroy_event_channel(dev->channel);
close_context:
	ibv_close_device(dev->context);
free_dev:
	free(dev);
	return verbs_refuse(-ret);
}

static int
verbs_dev_close(struct rdma_dev *base)
{
	struct verbs_dev *dev = VERBS_DEV(base);
	unsigned int i;

	rdma_destroy_event_channel(dev->channel);
	ibv_close_device(dev->context);
	for (i = 0; i < RTE_DIM(dev->qpn); i++)
		free(dev->qpn[i]);
	free(dev->hw_counter);
	free(dev);
	return 0;
}

static int
verbs_dev_info_get(const struct rdma_dev *base, struct rdma_dev_info *info)
{
	const struct verbs_dev *dev = VERBS_DEV(base);
	const struct ibv_device_attr *attr = &dev->attr;

	info->addr = dev->addr;
	info->link_mbps = link_mbps(&dev->port_attr);
	info->max_qp = attr->max_qp;
	info->max_wr = attr->max_qp_wr;
	info->max_cqe = attr->max_cqe;
	info->max_mr = attr->max_mr;
	info->max_mr_bytes = RTE_MIN(attr->max_mr_size, VERBS_MR_BYTES_MAX);
	info->max_msg_bytes = RTE_MIN(dev->port_attr.max_msg_sz, UINT32_C(1) << 31);
	info->max_sge = attr->max_sge;
	info->max_inline = dev->max_inline;
	info->max_rd_atom = RTE_MIN(attr->max_qp_rd_atom, attr->max_qp_init_rd_atom);
	info->mtu = verbs_mtu_bytes(dev->port_attr.active_mtu);
	info->nb_poll_groups = 0;
	info->numa_node = dev->numa_node;
	info->gpu_memory = dev->dmabuf || dev->peermem;
	return 0;
}

/* The adapter does all the work. */
static unsigned int
verbs_progress(struct rdma_dev *base, uint16_t poll_group)
{
	return 0;
}

/* ---- counters ------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t offset;
} xstat[] = {
#define XSTAT(name, field)                                \
	{                                                 \
		name, offsetof(struct verbs_stats, field) \
	}
	XSTAT("wc_local_length_errors", wc_error[RDMA_WC_LOC_LEN_ERR]),
	XSTAT("wc_local_operation_errors", wc_error[RDMA_WC_LOC_QP_OP_ERR]),
	XSTAT("wc_local_protection_errors", wc_error[RDMA_WC_LOC_PROT_ERR]),
	XSTAT("wc_flushed", wc_error[RDMA_WC_WR_FLUSH_ERR]),
	XSTAT("wc_local_access_errors", wc_error[RDMA_WC_LOC_ACCESS_ERR]),
	XSTAT("wc_remote_invalid_request_errors", wc_error[RDMA_WC_REM_INV_REQ_ERR]),
	XSTAT("wc_remote_access_errors", wc_error[RDMA_WC_REM_ACCESS_ERR]),
	XSTAT("wc_remote_operation_errors", wc_error[RDMA_WC_REM_OP_ERR]),
	XSTAT("wc_retries_exceeded", wc_error[RDMA_WC_RETRY_EXC_ERR]),
	XSTAT("wc_rnr_retries_exceeded", wc_error[RDMA_WC_RNR_RETRY_EXC_ERR]),
	XSTAT("wc_general_errors", wc_error[RDMA_WC_GENERAL_ERR]),
	XSTAT("wc_stale", wc_stale),
	XSTAT("cq_overrun", cq_overrun),
	XSTAT("async_events", async_events),
	XSTAT("mr_registered", mr_registered),
	XSTAT("mr_registered_bytes", mr_bytes),
	XSTAT("mr_by_dmabuf", mr_dmabuf),
	XSTAT("mr_by_peermem", mr_peermem),
	XSTAT("mr_busy", mr_busy),
	XSTAT("cm_requests", cm_requests),
	XSTAT("cm_established", cm_established),
	XSTAT("cm_rejected", cm_rejected),
	XSTAT("cm_unreachable", cm_unreachable),
	XSTAT("cm_timed_out", cm_timed_out),
	XSTAT("cm_disconnected", cm_disconnected),
#undef XSTAT
};

static int
verbs_xstats_get(const struct rdma_dev *base, struct rdma_xstat *x, unsigned int n)
{
	const struct verbs_dev *dev = VERBS_DEV(base);
	unsigned int i;

	for (i = 0; i < RTE_DIM(xstat) && i < n; i++) {
		x[i].name = xstat[i].name;
		x[i].value =
			__atomic_load_n((const uint64_t *)RTE_PTR_ADD(&dev->stats, xstat[i].offset),
				__ATOMIC_RELAXED);
	}
	for (; i < RTE_DIM(xstat) + dev->nb_hw_counters && i < n; i++) {
		const struct verbs_hw_counter *c = &dev->hw_counter[i - RTE_DIM(xstat)];

		x[i].name = c->name;
		x[i].value = read_number(c->path, 0);
	}
	return RTE_DIM(xstat) + dev->nb_hw_counters;
}

/* ---- protection domains --------------------------------------------------------------------- */

static struct rdma_pd *
verbs_pd_alloc(struct rdma_dev *base)
{
	struct verbs_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return verbs_refuse(ENOMEM);
	pd->pd = ibv_alloc_pd(VERBS_DEV(base)->context);
	if (!pd->pd) {
		RDMA_LOG(ERR, "device %s: protection domain: %s", base->name, strerror(errno));
		free(pd);
		return verbs_refuse(ENOMEM);
	}
	return &pd->base;
}

static int
verbs_pd_free(struct rdma_pd *base)
{
	struct verbs_pd *pd = VERBS_PD(base);
	int error = ibv_dealloc_pd(pd->pd);

	if (error)
		return -error;
	free(pd);
	return 0;
}

static const struct rdma_ops verbs_ops = {
	.provider = "verbs",
	.mr_reg_parallel = true,
	.dev_open = verbs_dev_open,
	.dev_close = verbs_dev_close,
	.dev_info_get = verbs_dev_info_get,
	.progress = verbs_progress,
	.xstats_get = verbs_xstats_get,
	.pd_alloc = verbs_pd_alloc,
	.pd_free = verbs_pd_free,
	.mr_reg = verbs_mr_reg,
	.mr_dereg = verbs_mr_dereg,
	.cq_create = verbs_cq_create,
	.cq_destroy = verbs_cq_destroy,
	.poll_cq = verbs_poll_cq,
	.qp_create = verbs_qp_create,
	.qp_destroy = verbs_qp_destroy,
	.qp_connect = verbs_qp_connect,
	.qp_error = verbs_qp_error,
	.qp_info_get = verbs_qp_info_get,
	.post_send = verbs_post_send,
	.post_recv = verbs_post_recv,
	.conn_connect = verbs_conn_connect,
	.conn_listen = verbs_conn_listen,
	.conn_accept = verbs_conn_accept,
	.conn_reject = verbs_conn_reject,
	.conn_disconnect = verbs_conn_disconnect,
	.conn_destroy = verbs_conn_destroy,
	.poll_cm = verbs_poll_cm,
	.ah_create = verbs_ah_create,
	.ah_destroy = verbs_ah_destroy,
	.multicast_join = verbs_multicast_join,
};

RDMA_REGISTER_PROVIDER(verbs, verbs_ops)
