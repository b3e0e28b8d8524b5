/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The part of FlatBuffers that Arrow IPC metadata need: a forward writer and bounds-checked
 * readers.
 *
 * The writer goes front to back. A table is placed after its vtable, and before the objects that it
 * refers to. References are filled in when their target is placed. Unlike other builders, it stores
 * every requested field, even if it is zero, so that a metadata template has a slot for every
 * value. Alignment is relative to the start of the flatbuffer, which is at a multiple of 8 in an
 * Arrow message.
 *
 * The readers check every offset, vtable, vector and string against the end of the buffer. They
 * accept unaligned memory. Byte order is little-endian on both sides, as in FlatBuffers. Big-endian
 * machines are not supported (asserted in arrow/flatbuf.c).
 *
 * Source: FlatBuffers internals (https://flatbuffers.dev/internals/).
 */
#ifndef ARROW_FLATBUF_H
#define ARROW_FLATBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A flatbuffer under construction. It grows by realloc(): for setup, not for the datapath. */
struct fb_writer {
	uint8_t *buf;
	size_t len;
	size_t cap;
	int error; /**< 0, or -ENOMEM: everything written since is invalid */
};

/** Number of fields of the largest table in Arrow metadata (Field has 7). */
#define FB_FIELDS_MAX 8

/** Start a flatbuffer. Offset 0 is the reference to the root table. */
void fb_init(struct fb_writer *w);

void fb_free(struct fb_writer *w);

/** Append zeros up to a length that is a multiple of `align` (a power of two). */
void fb_pad(struct fb_writer *w, size_t align);

/**
 * Place a table.
 * @param size  bytes of each field by slot: 0 (absent), 1, 2, 4 or 8; references take 4
 * @param nb    number of slots, at most FB_FIELDS_MAX
 * @param at    out: offset of each field; unchanged for absent ones
 * @return offset of the table, to be passed to fb_refer()
 */
size_t fb_table(struct fb_writer *w, const uint8_t *size, unsigned int nb, size_t *at);

/**
 * Place a vector of nb zeroed elements.
 * @param size   bytes of an element; references take 4
 * @param align  alignment of an element, at most 8
 * @param items  out: offset of the first element
 * @return offset of the vector, to be passed to fb_refer()
 */
size_t fb_vector(struct fb_writer *w, size_t nb, size_t size, size_t align, size_t *items);

/** Place a string and make the reference at `ref` point to it. @return offset of its bytes */
size_t fb_string(struct fb_writer *w, size_t ref, const char *text, size_t len);

/** Make the reference at `ref` point to `target`, which must have a higher offset. */
void fb_refer(struct fb_writer *w, size_t ref, size_t target);

void fb_put8(struct fb_writer *w, size_t at, uint8_t value);
void fb_put16(struct fb_writer *w, size_t at, uint16_t value);
void fb_put32(struct fb_writer *w, size_t at, uint32_t value);
void fb_put64(struct fb_writer *w, size_t at, uint64_t value);

/** A flatbuffer to be read. */
struct fb_view {
	const uint8_t *base;
	size_t len;
};

/** A table in a view. Its vtable was checked to be inside the view. */
struct fb_tab {
	const struct fb_view *view;
	uint32_t pos;	 /**< of the table */
	uint32_t vtable; /**< of its vtable */
	uint16_t slots;	 /**< number of fields of the vtable */
	uint16_t size;	 /**< bytes of the table */
};

/** A vector. Its `nb` elements of the requested size were checked to be inside the view. */
struct fb_vec {
	const struct fb_view *view;
	uint32_t pos; /**< of the first element */
	uint32_t nb;
};

/** All readers return 1: present; 0: absent; -EBADMSG: an offset is outside the buffer. */
int fb_get_root(const struct fb_view *view, struct fb_tab *root);

/** Read a scalar of 1, 2, 4 or 8 bytes, zero-extended. If it is absent, the value is `absent`. */
int fb_get_scalar(const struct fb_tab *t, unsigned int slot, unsigned int size, uint64_t absent,
	uint64_t *value);

int fb_get_table(const struct fb_tab *t, unsigned int slot, struct fb_tab *sub);

/** Read a vector. If it is absent, the vector is empty. */
int fb_get_vector(const struct fb_tab *t, unsigned int slot, size_t size, struct fb_vec *vec);

/** @param text  out: in the buffer; checked to be followed by a zero */
int fb_get_string(const struct fb_tab *t, unsigned int slot, const char **text, uint32_t *len);

/** Get element i of a vector of tables (read with size 4). */
int fb_vec_table(const struct fb_vec *vec, uint32_t i, struct fb_tab *t);

/** Get the bytes of element i of a vector of structs; i must be below nb. */
const uint8_t *fb_vec_at(const struct fb_vec *vec, uint32_t i, size_t size);

#endif /* ARROW_FLATBUF_H */
