/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_common.h>

#include "cuda_driver.h"
#include "gdrcopy.h"

/* Soname and prototypes of GDRCopy 2.x, include/gdrapi.h. All but gdr_open return 0 or an errno. */
#define GDRCOPY_LIBRARY "libgdrapi.so.2"

struct gdr;

/* passed by value: the ABIs of x86-64 and aarch64 pass a struct of one word like that word */
struct gdr_mh {
	unsigned long h;
};

static struct {
	struct gdr *(*open)(void);
	int (*pin_buffer)(struct gdr *gdr, unsigned long addr, size_t size, uint64_t p2p_token,
		uint32_t va_space, struct gdr_mh *handle);
	int (*unpin_buffer)(struct gdr *gdr, struct gdr_mh handle);
	int (*map)(struct gdr *gdr, struct gdr_mh handle, void **va, size_t size);
	int (*unmap)(struct gdr *gdr, struct gdr_mh handle, void *va, size_t size);
} api;

static const struct {
	const char *name;
	void *function;
} wanted[] = {
	{"gdr_open", &api.open},
	{"gdr_pin_buffer", &api.pin_buffer},
	{"gdr_unpin_buffer", &api.unpin_buffer},
	{"gdr_map", &api.map},
	{"gdr_unmap", &api.unmap},
};

/* Protects `gdr` and every libgdrapi call: the library keeps a list of its handles without a lock.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gdr *gdr;
static bool told;

static int
load(const char **missing)
{
	void *library = dlopen(GDRCOPY_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (library == NULL) {
		*missing = GDRCOPY_LIBRARY " is not installed";
		return -ENOTSUP;
	}
	for (unsigned int i = 0; i < RTE_DIM(wanted); i++) {
		void *function = dlsym(library, wanted[i].name);

		if (function == NULL) {
			*missing = wanted[i].name;
			dlclose(library);
			return -ENOTSUP;
		}
		memcpy(wanted[i].function, &function, sizeof(function));
	}
	gdr = api.open();
	if (gdr == NULL) {
		*missing = "its kernel module gdrdrv does not respond";
		dlclose(library);
		return -ENOTSUP;
	}
	return 0;
}

/* Call with the lock held. */
static int
open_once(const char *who)
{
	const char *missing = "";
	int ret = 0;

	if (gdr == NULL)
		ret = load(&missing);
	if (ret < 0 && !told) {
		GPU_CUDA_LOG(NOTICE, "%s: device memory cannot be mapped for the CPU: GDRCopy: %s",
			who, missing);
		told = true;
	}
	return ret;
}

/* Call with the lock held. */
static int
pin_and_map(const char *who, unsigned long device, size_t size, struct gdrcopy_map *map)
{
	struct gdr_mh handle;
	int ret;

	size = RTE_ALIGN_CEIL(size, GDRCOPY_PAGE);
	ret = api.pin_buffer(gdr, device, size, 0, 0, &handle);
	if (ret != 0) {
		GPU_CUDA_LOG(ERR, "%s: gdr_pin_buffer(0x%lx, %zu): error %d (%s)", who, device,
			size, ret, strerror(ret));
		return -EIO;
	}
	ret = api.map(gdr, handle, &map->cpu, size);
	if (ret != 0) {
		GPU_CUDA_LOG(ERR, "%s: gdr_map(0x%lx, %zu): error %d (%s)", who, device, size, ret,
			strerror(ret));
		api.unpin_buffer(gdr, handle);
		map->cpu = NULL;
		return -EIO;
	}
	map->handle = handle.h;
	map->size = size;
	return 0;
}

int
gdrcopy_map(const char *who, unsigned long device, size_t size, struct gdrcopy_map *map)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = open_once(who);
	if (ret == 0)
		ret = pin_and_map(who, device, size, map);
	pthread_mutex_unlock(&lock);
	return ret;
}

int
gdrcopy_unmap(const char *who, struct gdrcopy_map *map)
{
	struct gdr_mh handle = {.h = map->handle};
	int unmapped, unpinned;

	pthread_mutex_lock(&lock);
	unmapped = api.unmap(gdr, handle, map->cpu, map->size);
	unpinned = api.unpin_buffer(gdr, handle);
	pthread_mutex_unlock(&lock);
	if (unmapped != 0)
		GPU_CUDA_LOG(ERR, "%s: gdr_unmap(%p): error %d (%s)", who, map->cpu, unmapped,
			strerror(unmapped));
	if (unpinned != 0)
		GPU_CUDA_LOG(ERR, "%s: gdr_unpin_buffer(%p): error %d (%s)", who, map->cpu,
			unpinned, strerror(unpinned));
	memset(map, 0, sizeof(*map));
	return unmapped != 0 || unpinned != 0 ? -EIO : 0;
}
