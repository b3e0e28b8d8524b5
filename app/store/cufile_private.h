/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CUFILE_PRIVATE_H
#define CUFILE_PRIVATE_H

/**
 * @file
 * What the parts of cuFile share: cufile.c (library, memory, files) and cufile_probe.c (which way
 * bytes go).
 */

#include "cufile.h"
#include "cufile_abi.h"

struct cufile_library {
	void *handle;
	struct cufile_symbols symbols;
	int16_t gpu;
	bool opened; /**< the driver is */
};

struct cufile_error cufile_library_attach(const struct cufile_library *lib, int fd, void **handle);

/** @return what is known of a code, to be put behind it; "" */
const char *cufile_library_hint(int code);

/** Open the driver and find out the mode; the GPU's context is current. @return as cufile_open() */
int cufile_probe(struct cufile_library *lib, const char *directory, const char *stats,
	struct cufile_info *info, char message[PATH_MAX]);

#endif /* CUFILE_PRIVATE_H */
