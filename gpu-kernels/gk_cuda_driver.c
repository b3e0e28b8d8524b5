/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "gk_cuda_driver.h"

#define LIBRARY "libcuda.so.1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gk_cuda_symbols symbols;
static int loaded;

/* Name, version, and offset of the function in struct gk_cuda_symbols. */
static const struct {
	const char *name;
	int version;
	size_t offset;
} wanted[] = {
#define GK_CUDA_SYMBOL(name, version, parameters) \
	{#name, version, offsetof(struct gk_cuda_symbols, name)},
	GK_CUDA_SYMBOLS(GK_CUDA_SYMBOL)
#undef GK_CUDA_SYMBOL
};

static int
find_symbols(void *library, char *why, size_t size)
{
	CUdriverProcAddressQueryResult status;
	gk_cuda_get_proc_address get;
	void *function;
	CUresult ret;

	/*
	 * dlsym() returns an object pointer. POSIX guarantees that it can hold a function's
	 * address.
	 */
	function = dlsym(library, GK_CUDA_GET_PROC_ADDRESS);
	memcpy(&get, &function, sizeof(get));
	if (get == NULL) {
		snprintf(why, size, "%s has no %s, a driver of CUDA 12.0 or newer is expected",
			LIBRARY, GK_CUDA_GET_PROC_ADDRESS);
		return -1;
	}
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		function = NULL;
		status = CU_GET_PROC_ADDRESS_SUCCESS;
		ret = get(wanted[i].name, &function, wanted[i].version, CU_GET_PROC_ADDRESS_DEFAULT,
			&status);
		if (ret != CUDA_SUCCESS || status != CU_GET_PROC_ADDRESS_SUCCESS ||
			function == NULL) {
			snprintf(why, size, "%s has no %s at version %d", LIBRARY, wanted[i].name,
				wanted[i].version);
			return -1;
		}
		memcpy((char *)&symbols + wanted[i].offset, &function, sizeof(function));
	}
	return 0;
}

const struct gk_cuda_symbols *
gk_cuda_driver(char *why, size_t size)
{
	const char *name = NULL;
	void *library;
	CUresult ret;

	pthread_mutex_lock(&lock);
	if (loaded)
		goto out;
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		snprintf(why, size, "no CUDA driver on this machine: %s", dlerror());
		goto out;
	}
	if (find_symbols(library, why, size) != 0)
		goto out;
	ret = symbols.cuInit(0);
	if (ret != CUDA_SUCCESS) {
		symbols.cuGetErrorName(ret, &name);
		snprintf(why, size, "no GPU: cuInit: %s", name != NULL ? name : "unknown error");
		goto out;
	}
	loaded = 1;
out:
	pthread_mutex_unlock(&lock);
	return loaded ? &symbols : NULL;
}
