/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Types of the Arrow C data interface and of Arrow IPC, for writer and reader.
 *
 * Sources: Arrow's CDataInterface.rst (format strings), Schema.fbs, Columnar.rst (layouts).
 */
#ifndef SQL_IPC_TYPE_H
#define SQL_IPC_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "arrow/format.h"

#define IPC_DEPTH_MAX 64 /**< of nested types */

/** union Type, beyond arrow/format.h */
enum {
	FB_NULL = 1,
	FB_UTF8 = 5,
	FB_BOOL = 6,
	FB_DECIMAL = 7,
	FB_DATE = 8,
	FB_TIME = 9,
	FB_INTERVAL = 11,
	FB_STRUCT = 13,
	FB_UNION = 14,
	FB_FIXED_BINARY = 15,
	FB_MAP = 17,
	FB_DURATION = 18,
	FB_LARGE_BINARY = 19,
	FB_LARGE_UTF8 = 20,
	FB_LARGE_LIST = 21,
};

#define FB_DICTIONARY_BATCH 2 /* of union MessageHeader */

/** Parts of an array of a type. */
enum ipc_layout {
	LAYOUT_NONE,  /* null: no buffers */
	LAYOUT_BITS,  /* validity, bits */
	LAYOUT_FIXED, /* validity, values of `width` bytes */
	LAYOUT_TEXT,  /* validity, offsets of `width` bytes, bytes */
	LAYOUT_LIST,  /* validity, offsets of `width` bytes; child */
	LAYOUT_CHILD, /* validity; children: fixed-size list, struct */
	LAYOUT_UNION, /* types, and offsets if `width` is 4; children */
};

struct ipc_type {
	uint8_t id; /* union Type */
	enum ipc_layout layout;
	uint32_t width;
	/* Int: bits, signed. Decimal: precision, scale, bits. Others: unit, size, mode, bits */
	int32_t arg[3];
	const char *text; /* time zone; list of the types of a union */
};

/** Read a format string. @return 0; -ENOTSUP */
int ipc_type_read(const char *format, struct ipc_type *t);

/** Read a number from 0 to INT32_MAX, and skip it. @return false: none */
bool ipc_int_read(const char **text, int32_t *value);

#endif /* SQL_IPC_TYPE_H */
