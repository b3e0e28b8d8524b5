/* SPDX-License-Identifier: BSD-3-Clause */

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sql/duckdb_api.h"

static const struct {
	const char *name;
	size_t offset;
} functions[] = {
#define DUCKDB_SYMBOL(result, name, parameters) \
	{"duckdb_" #name, offsetof(struct duckdb_api, name)},
	DUCKDB_FUNCTIONS(DUCKDB_SYMBOL)};

int
duckdb_api_load(struct duckdb_api *api, char *problem, size_t size)
{
	const char *path = getenv(DUCKDB_VARIABLE);
	const char *(*version)(void);
	void *symbol;
	size_t i;

	if (path == NULL || *path == '\0')
		path = DUCKDB_LIBRARY;
	memset(api, 0, sizeof(*api));
	api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (api->library == NULL) {
		snprintf(problem, size,
			"cannot load DuckDB's C library: %s; set " DUCKDB_VARIABLE
			" to the path of libduckdb.so of a release of DuckDB; in the source tree, "
			"'make deps' installs one below .deps",
			dlerror());
		return -ENOENT;
	}
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		symbol = dlsym(api->library, functions[i].name);
		if (symbol == NULL) {
			*(void **)&version = dlsym(api->library, "duckdb_library_version");
			snprintf(problem, size,
				"%s: version %s has no %s(); DuckDB 1.4 or newer is needed", path,
				version != NULL ? version() : "unknown", functions[i].name);
			return -ENOSYS;
		}
		*(void **)((char *)api + functions[i].offset) = symbol;
	}
	return 0;
}
