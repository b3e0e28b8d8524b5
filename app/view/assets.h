/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Files of the page, which embed.py compiles into the program. */
#ifndef ASSETS_H
#define ASSETS_H

#include <stddef.h>

struct asset {
	const char *path;     /**< of the URL */
	const char *type;     /**< MIME type */
	const char *encoding; /**< of `bytes`; NULL: none */
	const char *etag;
	const unsigned char *bytes;
	size_t size;
};

extern const struct asset assets[];
extern const size_t nb_assets;

#endif /* ASSETS_H */
