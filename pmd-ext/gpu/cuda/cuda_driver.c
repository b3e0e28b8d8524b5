/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include <rte_common.h>

#include "cuda_driver.h"

#define CUDA_LIBRARY "libcuda.so.1"

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_symbols symbols;
static bool loaded;

/* name, version, and offset of the function pointer in struct cuda_symbols */
static const struct {
	const char *name;
	int version;
	size_t offset;
} wanted[] = {
#define CUDA_ABI_SYMBOL(name, version, parameters) \
	{#name, version, offsetof(struct cuda_symbols, name)},
	CUDA_ABI_SYMBOLS(CUDA_ABI_SYMBOL)
#undef CUDA_ABI_SYMBOL
};

int
cuda_errno(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_INVALID_VALUE:
		return -EINVAL;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return -ENODEV;
	case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
		return -EEXIST;
	case CUDA_ERROR_NOT_PERMITTED:
		return -EPERM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	default:
		return -EIO;
	}
}

const char *
cuda_error_name(const struct cuda_symbols *cuda, CUresult result)
{
	const char *name = NULL;

	if (cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
		return "unknown CUDA error";
	return name;
}

const char *
cuda_error_text(const struct cuda_symbols *cuda, CUresult result)
{
	const char *text = NULL;

	if (cuda->cuGetErrorString(result, &text) != CUDA_SUCCESS || text == NULL)
		return "no description";
	return text;
}

static const char *
status_text(CUdriverProcAddressQueryResult status)
{
	switch (status) {
	case CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND:
		return "symbol not found";
	case CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT:
		return "version not available";
	default:
		return "null address";
	}
}

static int
find_symbols(const char *who, void *library)
{
	cuda_get_proc_address get;
	CUdriverProcAddressQueryResult status;
	void *function;

	/* dlsym() returns an object pointer; POSIX guarantees that it can hold a function address
	 */
	function = dlsym(library, CUDA_ABI_GET_PROC_ADDRESS);
	memcpy(&get, &function, sizeof(get));
	if (get == NULL) {
		GPU_CUDA_LOG(ERR, "%s: %s lacks %s: a driver of CUDA 12.0 or newer is required",
			who, CUDA_LIBRARY, CUDA_ABI_GET_PROC_ADDRESS);
		return -ENOTSUP;
	}
	for (unsigned int i = 0; i < RTE_DIM(wanted); i++) {
		CUresult result;

		function = NULL;
		status = CU_GET_PROC_ADDRESS_SUCCESS;
		result = get(wanted[i].name, &function, wanted[i].version,
			CU_GET_PROC_ADDRESS_DEFAULT, &status);
		/* cuGetProcAddress() may return success although its status reports a failure */
		if (result != CUDA_SUCCESS || status != CU_GET_PROC_ADDRESS_SUCCESS ||
			function == NULL) {
			GPU_CUDA_LOG(ERR, "%s: %s, %s at version %d: %s (CUDA error %d)", who,
				CUDA_LIBRARY, wanted[i].name, wanted[i].version,
				status_text(status), result);
			return -ENOTSUP;
		}
		memcpy(RTE_PTR_ADD(&symbols, wanted[i].offset), &function, sizeof(function));
	}
	return 0;
}

static int
load(const char *who)
{
	int version = 0, ret;
	CUresult result;
	void *library;

	library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		GPU_CUDA_LOG(ERR, "%s: no CUDA driver installed: %s", who, dlerror());
		return -ENODEV;
	}
	ret = find_symbols(who, library);
	if (ret < 0)
		return ret;
	result = symbols.cuInit(0);
	if (result != CUDA_SUCCESS) {
		GPU_CUDA_LOG(ERR, "%s: no GPU: cuInit: %s (%s)", who,
			cuda_error_name(&symbols, result), cuda_error_text(&symbols, result));
		return cuda_errno(result);
	}
	if (symbols.cuDriverGetVersion(&version) == CUDA_SUCCESS)
		GPU_CUDA_LOG(DEBUG, "driver of CUDA %d.%d", version / 1000, version % 1000 / 10);
	return 0;
}

int
cuda_driver_load(const char *who, const struct cuda_symbols **cuda)
{
	int ret = 0;

	pthread_mutex_lock(&load_lock);
	if (!loaded)
		ret = load(who);
	if (ret == 0)
		loaded = true;
	pthread_mutex_unlock(&load_lock);
	*cuda = &symbols;
	return ret;
}
