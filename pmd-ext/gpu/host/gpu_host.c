/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpudev driver whose device memory is host memory.
 *
 * All uses of GPU memory in braggline - pools in it, doorbells in it, registration of host memory -
 * work with it unchanged on a machine without a GPU. The device does not compute.
 *
 * Each allocation is a separate mapping (host_memory.h) and not limited by the EAL heap (-m). The
 * registry of live pointers belongs to the process: neither an anonymous mapping nor a registration
 * is valid in another process.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bus_vdev_driver.h>
#include <gpudev_driver.h>
#include <rte_atomic.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_jhash.h>
#include <rte_kvargs.h>
#include <rte_log.h>
#include <rte_spinlock.h>

#include "dpdk_compat.h"
#include "gpu_host.h"
#include "host_memory.h"

RTE_LOG_REGISTER_SUFFIX(gpu_host_logtype, host, NOTICE);

#define GPU_HOST_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, gpu_host_logtype, "gpu_host: " fmt "\n", ##__VA_ARGS__)

#define GPU_HOST_NUMA_ARG    "numa"
#define GPU_HOST_PRIVATE_ARG "private"

/*
 * Maximum number of live pointers. rte_gpu_comm_create_list() registers once per item (1,027 for a
 * list of 1,024), so a few dozen lists fit. The table takes 3 MiB of the EAL heap.
 */
#define GPU_HOST_POINTERS_MAX (1u << 16)

enum gpu_host_kind {
	GPU_HOST_ALLOCATED,
	GPU_HOST_REGISTERED,
};

struct gpu_host_region {
	enum gpu_host_kind kind;
	bool cpu_mapped;
	struct host_block block; /* memory, if it is an allocation */
	size_t size;		 /* requested bytes */
};

/* Per-process state of the device. */
struct gpu_host {
	rte_spinlock_t lock;
	struct rte_hash *regions; /* device pointer -> struct gpu_host_region */
	struct host_memory memory;
};

struct gpu_host_args {
	int node;
	int is_private;
};

static const char *const gpu_host_known[] = {GPU_HOST_NUMA_ARG, GPU_HOST_PRIVATE_ARG, NULL};

static size_t
page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t
total_memory(void)
{
	return (size_t)sysconf(_SC_PHYS_PAGES) * page_size();
}

static int
region_find(struct gpu_host *host, const void *ptr, struct gpu_host_region **region)
{
	void *data;
	int ret;

	ret = rte_hash_lookup_data(host->regions, &ptr, &data);
	*region = ret < 0 ? NULL : data;
	return ret < 0 ? ret : 0;
}

/* Takes ownership of the region on success. */
static int
region_add(struct gpu_host *host, void *ptr, struct gpu_host_region *region)
{
	struct gpu_host_region *known;
	int ret;

	rte_spinlock_lock(&host->lock);
	if (region_find(host, ptr, &known) == 0)
		ret = -EEXIST;
	else
		ret = rte_hash_add_key_data(host->regions, &ptr, region);
	rte_spinlock_unlock(&host->lock);

	if (ret == -EEXIST)
		GPU_HOST_LOG(ERR, "%p is already allocated or registered", ptr);
	else if (ret == -ENOSPC)
		GPU_HOST_LOG(ERR,
			"cannot register %p: %u pointers are allocated or registered, the limit "
			"is %u",
			ptr, GPU_HOST_POINTERS_MAX, GPU_HOST_POINTERS_MAX);
	return ret == -ENOSPC ? -ENOMEM : ret;
}

/* Remove a region from the registry; the caller owns it. @return NULL if ptr is not of this kind */
static struct gpu_host_region *
region_take(struct gpu_host *host, const void *ptr, enum gpu_host_kind kind)
{
	struct gpu_host_region *region;

	rte_spinlock_lock(&host->lock);
	if (region_find(host, ptr, &region) == 0 && region->kind == kind)
		rte_hash_del_key(host->regions, &ptr);
	else
		region = NULL;
	rte_spinlock_unlock(&host->lock);
	return region;
}

static void
region_free(struct gpu_host *host, struct gpu_host_region *region)
{
	if (region->kind == GPU_HOST_ALLOCATED)
		host_memory_unmap(&host->memory, &region->block);
	free(region);
}

static int
gpu_host_info_get(struct rte_gpu *dev, struct rte_gpu_info *info)
{
	*info = dev->mpshared->info;
	/* the primary process's string is in shared memory, at this process's address */
	info->name = dev->mpshared->name;
	return 0;
}

static int
gpu_host_mem_alloc(struct rte_gpu *dev, size_t size, unsigned int align, void **ptr)
{
	struct gpu_host *host = dev->process_private;
	struct gpu_host_region *region;
	void *device;
	int ret;

	if (host == NULL)
		return -ENODEV;
	if (size > dev->mpshared->info.total_memory) {
		GPU_HOST_LOG(ERR, "%s: %zu bytes requested, the machine has %zu",
			dev->mpshared->name, size, dev->mpshared->info.total_memory);
		return -E2BIG;
	}
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return -ENOMEM;
	region->kind = GPU_HOST_ALLOCATED;
	region->size = size;
	device = host_memory_map(&host->memory, size, RTE_MAX((size_t)align, page_size()),
		dev->mpshared->info.numa_node, &region->block);
	if (device == NULL) {
		GPU_HOST_LOG(ERR, "%s: cannot allocate %zu bytes", dev->mpshared->name, size);
		free(region);
		return -ENOMEM;
	}
	ret = region_add(host, device, region);
	if (ret < 0) {
		region_free(host, region);
		return ret;
	}
	*ptr = device;
	return 0;
}

static int
gpu_host_mem_free(struct rte_gpu *dev, void *ptr)
{
	struct gpu_host *host = dev->process_private;
	struct gpu_host_region *region;

	if (host == NULL)
		return -ENODEV;
	region = region_take(host, ptr, GPU_HOST_ALLOCATED);
	if (region == NULL)
		return -EINVAL;
	region_free(host, region); /* a live CPU mapping is the same memory and ends with it */
	return 0;
}

static int
gpu_host_mem_register(struct rte_gpu *dev, size_t size, void *ptr)
{
	struct gpu_host *host = dev->process_private;
	struct gpu_host_region *region;
	int ret;

	if (host == NULL)
		return -ENODEV;
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return -ENOMEM;
	region->kind = GPU_HOST_REGISTERED;
	region->size = size;
	ret = region_add(host, ptr, region);
	if (ret < 0)
		free(region);
	return ret < 0 ? ret : 0;
}

static int
gpu_host_mem_unregister(struct rte_gpu *dev, void *ptr)
{
	struct gpu_host *host = dev->process_private;
	struct gpu_host_region *region;

	if (host == NULL)
		return -ENODEV;
	region = region_take(host, ptr, GPU_HOST_REGISTERED);
	if (region == NULL)
		return -EINVAL;
	region_free(host, region);
	return 0;
}

static int
gpu_host_mem_cpu_map(struct rte_gpu *dev, size_t size, void *ptr_in, void **ptr_out)
{
	struct gpu_host *host = dev->process_private;
	struct gpu_host_region *region;
	int ret = -EINVAL;

	if (host == NULL)
		return -ENODEV;
	if (host_memory_offset(&host->memory) != 0)
		return -ENOTSUP;
	rte_spinlock_lock(&host->lock);
	if (region_find(host, ptr_in, &region) == 0 && region->kind == GPU_HOST_ALLOCATED &&
		size <= region->size) {
		region->cpu_mapped = true;
		*ptr_out = ptr_in;
		ret = 0;
	}
	rte_spinlock_unlock(&host->lock);
	return ret;
}

static int
gpu_host_mem_cpu_unmap(struct rte_gpu *dev, void *ptr)
{
	struct gpu_host *host = dev->process_private;
	struct gpu_host_region *region;
	int ret = -EINVAL;

	if (host == NULL)
		return -ENODEV;
	rte_spinlock_lock(&host->lock);
	/* rte_gpu_comm_destroy_list() distinguishes mapped from registered memory by this error */
	if (region_find(host, ptr, &region) == 0 && region->cpu_mapped) {
		region->cpu_mapped = false;
		ret = 0;
	}
	rte_spinlock_unlock(&host->lock);
	return ret;
}

static int
gpu_host_wmb(struct rte_gpu *dev)
{
	rte_wmb();
	return 0;
}

/* Frees what the program has not freed, as a real device does. */
static int
gpu_host_close(struct rte_gpu *dev)
{
	struct gpu_host *host = dev->process_private;
	unsigned int allocated = 0, registered = 0;
	uint32_t next = 0;
	size_t bytes = 0;
	const void *key;
	void *data;

	if (host == NULL)
		return 0;
	while (rte_hash_iterate(host->regions, &key, &data, &next) >= 0) {
		struct gpu_host_region *region = data;

		if (region->kind == GPU_HOST_ALLOCATED) {
			allocated++;
			bytes += region->size;
		} else {
			registered++;
		}
		region_free(host, region);
	}
	if (allocated + registered != 0)
		GPU_HOST_LOG(WARNING,
			"%s: closed with %u allocations (%zu bytes) not freed and %u "
			"registrations not removed",
			dev->mpshared->name, allocated, bytes, registered);
	rte_hash_free(host->regions);
	host_memory_fini(&host->memory);
	free(host);
	dev->process_private = NULL;
	return 0;
}

static const struct rte_gpu_ops gpu_host_ops = {
	.dev_info_get = gpu_host_info_get,
	.dev_close = gpu_host_close,
	.mem_alloc = gpu_host_mem_alloc,
	.mem_free = gpu_host_mem_free,
	.mem_register = gpu_host_mem_register,
	.mem_unregister = gpu_host_mem_unregister,
	.mem_cpu_map = gpu_host_mem_cpu_map,
	.mem_cpu_unmap = gpu_host_mem_cpu_unmap,
	.wmb = gpu_host_wmb,
};

static struct gpu_host *
gpu_host_of(int16_t dev_id)
{
	struct rte_gpu_info info;
	struct rte_gpu *dev;

	if (!rte_gpu_is_valid(dev_id) || rte_gpu_info_get(dev_id, &info) < 0)
		return NULL;
	dev = rte_gpu_get_by_name(info.name);
	if (dev == NULL || dev->ops.dev_close != gpu_host_close)
		return NULL;
	return dev->process_private;
}

int
gpu_host_copy(int16_t dev_id, void *to, const void *from, size_t size)
{
	const struct gpu_host *host = gpu_host_of(dev_id);
	const void *source;
	void *target;

	if (host == NULL) {
		rte_errno = ENODEV;
		return -ENODEV;
	}
	target = host_memory_view(&host->memory, to, size);
	source = host_memory_view(&host->memory, from, size);
	if (target == NULL || source == NULL) {
		rte_errno = EINVAL;
		return -EINVAL;
	}
	memcpy(target, source, size);
	return 0;
}

int
gpu_host_view(int16_t dev_id, ptrdiff_t *offset)
{
	const struct gpu_host *host = gpu_host_of(dev_id);

	if (host == NULL) {
		rte_errno = ENODEV;
		return -ENODEV;
	}
	*offset = host_memory_offset(&host->memory);
	return 0;
}

static struct gpu_host *
gpu_host_create(int16_t dev_id, bool is_private)
{
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters params = {
		.name = name,
		.entries = GPU_HOST_POINTERS_MAX,
		.key_len = sizeof(void *),
		.hash_func = rte_jhash,
		.socket_id = SOCKET_ID_ANY,
		/* guarantees room for all entries, even if hashes of their addresses collide */
		.extra_flag = RTE_HASH_EXTRA_FLAGS_EXT_TABLE,
	};
	struct gpu_host *host;

	host = calloc(1, sizeof(*host));
	if (host == NULL)
		return NULL;
	rte_spinlock_init(&host->lock);
	if (host_memory_init(&host->memory, is_private) < 0) {
		GPU_HOST_LOG(ERR, "cannot reserve the address space of private memory");
		free(host);
		return NULL;
	}
	/* hash names are shared by all processes */
	snprintf(name, sizeof(name), "gpu_host%d_%d", dev_id, (int)getpid());
	host->regions = rte_hash_create(&params);
	if (host->regions == NULL) {
		GPU_HOST_LOG(ERR,
			"cannot allocate a registry of %u pointers in EAL memory: %s; give EAL "
			"more with -m",
			GPU_HOST_POINTERS_MAX, rte_strerror(rte_errno));
		host_memory_fini(&host->memory);
		free(host);
		return NULL;
	}
	return host;
}

static int
parse_numa(const char *key, const char *value, void *opaque)
{
	int *node = opaque;
	char *end;
	long n;

	errno = 0;
	n = value == NULL ? -1 : strtol(value, &end, 10);
	if (value == NULL || *value == '\0' || *end != '\0' || errno != 0 || n < 0 ||
		n >= RTE_MAX_NUMA_NODES) {
		GPU_HOST_LOG(ERR, "%s=%s: expected a NUMA node from 0 to %d", key,
			value == NULL ? "" : value, RTE_MAX_NUMA_NODES - 1);
		return -EINVAL;
	}
	*node = (int)n;
	return 0;
}

static int
parse_private(const char *key, const char *value, void *opaque)
{
	int *is_private = opaque;

	if (value == NULL || (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)) {
		GPU_HOST_LOG(ERR, "%s=%s: expected 0 or 1", key, value == NULL ? "" : value);
		return -EINVAL;
	}
	*is_private = value[0] == '1';
	return 0;
}

static int
parse_args(struct rte_vdev_device *vdev, struct gpu_host_args *parsed)
{
	const char *args = rte_vdev_device_args(vdev);
	struct rte_kvargs *kvlist;
	int ret;

	if (args == NULL || *args == '\0')
		return 0;
	kvlist = rte_kvargs_parse(args, gpu_host_known);
	if (kvlist == NULL) {
		GPU_HOST_LOG(ERR,
			"%s: arguments \"%s\": expected only " GPU_HOST_NUMA_ARG
			"=<node> and " GPU_HOST_PRIVATE_ARG "=0|1",
			rte_vdev_device_name(vdev), args);
		return -EINVAL;
	}
	ret = rte_kvargs_process(kvlist, GPU_HOST_NUMA_ARG, parse_numa, &parsed->node);
	if (ret == 0)
		ret = rte_kvargs_process(
			kvlist, GPU_HOST_PRIVATE_ARG, parse_private, &parsed->is_private);
	rte_kvargs_free(kvlist);
	return ret < 0 ? -EINVAL : 0;
}

static int
gpu_host_probe(struct rte_vdev_device *vdev)
{
	const char *name = rte_vdev_device_name(vdev);
	bool primary = rte_eal_process_type() == RTE_PROC_PRIMARY;
	struct gpu_host_args args = {.node = vdev->device.numa_node};
	struct rte_gpu *dev;
	int ret;

	ret = parse_args(vdev, &args);
	if (ret < 0)
		return ret;
	dev = primary ? rte_gpu_allocate(name) : rte_gpu_attach(name);
	if (dev == NULL)
		return -rte_errno;

	dev->device = &vdev->device;
	dev->ops = gpu_host_ops;
	dev->process_private = gpu_host_create(dev->mpshared->info.dev_id, args.is_private);
	if (dev->process_private == NULL) {
		rte_gpu_release(dev);
		return -ENOMEM;
	}
	if (primary) {
		dev->mpshared->info.numa_node = (int16_t)args.node;
		dev->mpshared->info.processor_count = 0; /* the device has memory only */
		dev->mpshared->info.total_memory = total_memory();
		dev->mpshared->info.page_size = page_size();
	}
	rte_gpu_complete_new(dev);
	GPU_HOST_LOG(INFO, "%s: device %d, NUMA node %d", name, dev->mpshared->info.dev_id,
		dev->mpshared->info.numa_node);
	return 0;
}

static int
gpu_host_remove(struct rte_vdev_device *vdev)
{
	struct rte_gpu *dev;
	int ret;

	dev = rte_gpu_get_by_name(rte_vdev_device_name(vdev));
	if (dev == NULL)
		return 0; /* already closed */
	/* refused while child contexts exist; the slot keeps its contents until it is reused */
	ret = rte_gpu_release(dev);
	if (ret < 0)
		return ret;
	return gpu_host_close(dev);
}

static struct rte_vdev_driver gpu_host_driver = {
	.probe = gpu_host_probe,
	.remove = gpu_host_remove,
};

RTE_PMD_REGISTER_VDEV(gpu_host, gpu_host_driver);
RTE_PMD_REGISTER_PARAM_STRING(gpu_host, GPU_HOST_NUMA_ARG "=<int> " GPU_HOST_PRIVATE_ARG "=0|1");
