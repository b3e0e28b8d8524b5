/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * As much of FlatBuffers as Arrow IPC metadata needs: a forward writer and bounds-checked reads.
 *
 * The writer goes front to back: a table is placed with its vtable before it, what it refers to
 * follows, and references are filled in when their target is placed. Unlike the usual builders it
 * keeps every field that it was asked for, zero or not, so that a metadata template has a slot for
 * every value. Alignment is relative to the start of the flatbuffer; an Arrow message puts that at
 * a multiple of 8.
 *
 * The readers trust nothing: every offset, vtable, vector and string is checked against the end of
 * the buffer. They work on unaligned memory. Byte order is little endian on both sides, as in
 * FlatBuffers; big-endian machines are not supported (asserted in arrow/flatbuf.c).
 *
 * Source: FlatBuffers internals (https://flatbuffers.dev/internals/).
 */
#ifndef ARROW_FLATBUF_H
#define ARROW_FLATBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A flatbuffer in the making. Grows by realloc: for setup, not for the datapath. */
struct fb_writer {
	uint8_t *buf;
	size_t len;
	size_t cap;
	int error; /**< 0, or -ENOMEM: then everything written since is void */
};

/** Fields of the largest table that Arrow metadata has (Field: 7). */
#define FB_FIELDS_MAX 8

/** Start a flatbuffer; place 0 is the reference to the root table. */
void fb_init(struct fb_writer *w);

void fb_free(struct fb_writer *w);

/** Zeros up to a length that is a multiple of align (a power of two). */
void fb_pad(struct fb_writer *w, size_t align);

/**
 * Place a table.
 * @param size  bytes of each field by slot: 0 (absent), 1, 2, 4 or 8; references take 4
 * @param nb    slots, at most FB_FIELDS_MAX
 * @param at    out: where each field lies; untouched for absent ones
 * @return where the table lies, to be passed to fb_refer()
 */
size_t fb_table(struct fb_writer *w, const uint8_t *size, unsigned int nb, size_t *at);

/**
 * Place a vector of nb zeroed elements.
 * @param size   bytes of an element; references take 4
 * @param align  alignment of an element, at most 8
 * @param items  out: where the first element lies
 * @return where the vector lies, to be passed to fb_refer()
 */
size_t fb_vector(struct fb_writer *w, size_t nb, size_t size, size_t align, size_t *items);

/** Place a string and make the reference at `ref` point to it. @return where its bytes lie */
size_t fb_string(struct fb_writer *w, size_t ref, const char *text, size_t len);

/** Make the reference at `ref` point to `target`, which lies behind it. */
void fb_refer(struct fb_writer *w, size_t ref, size_t target);

void fb_put8(struct fb_writer *w, size_t at, uint8_t value);
void fb_put16(struct fb_writer *w, size_t at, uint16_t value);
void fb_put32(struct fb_writer *w, size_t at, uint32_t value);
void fb_put64(struct fb_writer *w, size_t at, uint64_t value);

/** A flatbuffer from elsewhere. */
struct fb_view {
	const uint8_t *base;
	size_t len;
};

/** A table within a view; its vtable has been checked to lie inside. */
struct fb_tab {
	const struct fb_view *view;
	uint32_t pos;	 /**< of the table */
	uint32_t vtable; /**< of its vtable */
	uint16_t slots;	 /**< fields that the vtable has */
	uint16_t size;	 /**< bytes of the table */
};

/** A vector; nb elements of the size asked for have been checked to lie inside. */
struct fb_vec {
	const struct fb_view *view;
	uint32_t pos; /**< of the first element */
	uint32_t nb;
};

/** All readers: 1 present, 0 absent, -EBADMSG a place outside of the buffer. */
int fb_get_root(const struct fb_view *view, struct fb_tab *root);

/** Read a scalar of 1, 2, 4 or 8 bytes, zero-extended; an absent one becomes `absent`. */
int fb_get_scalar(const struct fb_tab *t, unsigned int slot, unsigned int size, uint64_t absent,
	uint64_t *value);

int fb_get_table(const struct fb_tab *t, unsigned int slot, struct fb_tab *sub);

/** An absent vector is an empty one. */
int fb_get_vector(const struct fb_tab *t, unsigned int slot, size_t size, struct fb_vec *vec);

/** @param text  out: in the buffer; a zero behind its len bytes has been checked */
int fb_get_string(const struct fb_tab *t, unsigned int slot, const char **text, uint32_t *len);

/** Element i of a vector of tables (read with size 4). */
int fb_vec_table(const struct fb_vec *vec, uint32_t i, struct fb_tab *t);

/** Bytes of element i of a vector of structs; i must be below nb. */
const uint8_t *fb_vec_at(const struct fb_vec *vec, uint32_t i, size_t size);

#endif /* ARROW_FLATBUF_H */
