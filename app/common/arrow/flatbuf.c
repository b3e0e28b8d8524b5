/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/flatbuf.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	"numbers are stored as they lie in memory, FlatBuffers wants little endian");

/*
 * Append `size` zero bytes. The offset is always valid, so callers check for errors only at the
 * end: after an error, writes have no effect (see fb_put).
 */
static size_t
fb_extend(struct fb_writer *w, size_t size)
{
	const size_t at = w->len;
	uint8_t *buf;
	size_t cap;

	if (w->error != 0)
		return 0;
	if (w->len + size > w->cap) {
		cap = (w->len + size) * 2 + 1024;
		buf = realloc(w->buf, cap);
		if (buf == NULL) {
			w->error = -ENOMEM;
			return 0;
		}
		w->buf = buf;
		w->cap = cap;
	}
	memset(w->buf + w->len, 0, size);
	w->len += size;
	return at;
}

static void
fb_put(struct fb_writer *w, size_t at, const void *from, size_t size)
{
	if (w->error == 0)
		memcpy(w->buf + at, from, size);
}

void
fb_init(struct fb_writer *w)
{
	memset(w, 0, sizeof(*w));
	fb_extend(w, 4);
}

void
fb_free(struct fb_writer *w)
{
	free(w->buf);
	memset(w, 0, sizeof(*w));
}

void
fb_pad(struct fb_writer *w, size_t align)
{
	fb_extend(w, -w->len & (align - 1));
}

size_t
fb_table(struct fb_writer *w, const uint8_t *size, unsigned int nb, size_t *at)
{
	uint16_t offset[FB_FIELDS_MAX];
	uint16_t bytes = 4;
	unsigned int i, width;
	size_t vtable, table;

	/* the reference to the vtable, then the fields by descending width, for little padding */
	for (width = 8; width > 0; width /= 2) {
		for (i = 0; i < nb; i++) {
			if (size[i] != width)
				continue;
			bytes = (bytes + width - 1) & ~(width - 1);
			offset[i] = bytes;
			bytes += width;
		}
	}
	fb_pad(w, 2);
	vtable = fb_extend(w, 4 + 2 * nb);
	fb_pad(w, 8);
	table = fb_extend(w, bytes);

	fb_put16(w, vtable, 4 + 2 * nb);
	fb_put16(w, vtable + 2, bytes);
	for (i = 0; i < nb; i++) {
		if (size[i] == 0)
			continue;
		fb_put16(w, vtable + 4 + 2 * i, offset[i]);
		at[i] = table + offset[i];
	}
	/* signed: table minus vtable */
	fb_put32(w, table, table - vtable);
	return table;
}

size_t
fb_vector(struct fb_writer *w, size_t nb, size_t size, size_t align, size_t *items)
{
	size_t at;

	/* the elements are aligned, and their count is directly before them */
	fb_pad(w, 4);
	if (align > 4 && w->len % align != align - 4)
		fb_extend(w, 4);
	at = fb_extend(w, 4);
	fb_put32(w, at, nb);
	*items = fb_extend(w, nb * size);
	return at;
}

size_t
fb_string(struct fb_writer *w, size_t ref, const char *text, size_t len)
{
	size_t at, chars;

	/* the terminating zero is not part of the length */
	at = fb_vector(w, len + 1, 1, 4, &chars);
	fb_put32(w, at, len);
	fb_put(w, chars, text, len);
	fb_refer(w, ref, at);
	return chars;
}

void
fb_refer(struct fb_writer *w, size_t ref, size_t target)
{
	fb_put32(w, ref, target - ref);
}

void
fb_put8(struct fb_writer *w, size_t at, uint8_t value)
{
	fb_put(w, at, &value, sizeof(value));
}

void
fb_put16(struct fb_writer *w, size_t at, uint16_t value)
{
	fb_put(w, at, &value, sizeof(value));
}

void
fb_put32(struct fb_writer *w, size_t at, uint32_t value)
{
	fb_put(w, at, &value, sizeof(value));
}

void
fb_put64(struct fb_writer *w, size_t at, uint64_t value)
{
	fb_put(w, at, &value, sizeof(value));
}

/* @return `size` bytes at `pos`; NULL: not inside the view */
static const uint8_t *
fb_bytes(const struct fb_view *view, uint64_t pos, uint64_t size)
{
	if (pos > view->len || size > view->len - pos)
		return NULL;
	return view->base + pos;
}

static int
fb_load(const struct fb_view *view, uint64_t pos, void *to, size_t size)
{
	const uint8_t *from = fb_bytes(view, pos, size);

	if (from == NULL)
		return -EBADMSG;
	memcpy(to, from, size);
	return 1;
}

/* Follow the reference at `pos` (below 2^32: a view is one metadata block). */
static int
fb_follow(const struct fb_view *view, uint32_t pos, uint32_t *target)
{
	uint32_t offset;

	if (fb_load(view, pos, &offset, sizeof(offset)) < 0 || offset == 0 ||
		offset > UINT32_MAX - pos)
		return -EBADMSG;
	*target = pos + offset;
	return 1;
}

static int
fb_open_table(const struct fb_view *view, uint32_t pos, struct fb_tab *t)
{
	uint16_t head[2];
	int64_t vtable;
	int32_t back;

	if (fb_load(view, pos, &back, sizeof(back)) < 0)
		return -EBADMSG;
	vtable = (int64_t)pos - back;
	if (vtable < 0 || vtable > UINT32_MAX || fb_load(view, vtable, head, sizeof(head)) < 0)
		return -EBADMSG;
	if (head[0] < 4 || fb_bytes(view, vtable, head[0]) == NULL ||
		fb_bytes(view, pos, head[1]) == NULL)
		return -EBADMSG;
	t->view = view;
	t->pos = pos;
	t->vtable = vtable;
	t->slots = (head[0] - 4) / 2;
	t->size = head[1];
	return 1;
}

/* Get the offset of field `slot`, checked to be inside the table. */
static int
fb_field(const struct fb_tab *t, unsigned int slot, unsigned int size, uint32_t *pos)
{
	uint16_t offset;

	if (slot >= t->slots)
		return 0;
	if (fb_load(t->view, t->vtable + 4 + 2 * slot, &offset, sizeof(offset)) < 0)
		return -EBADMSG;
	if (offset == 0)
		return 0;
	if ((unsigned int)offset + size > t->size)
		return -EBADMSG;
	*pos = t->pos + offset;
	return 1;
}

int
fb_get_root(const struct fb_view *view, struct fb_tab *root)
{
	uint32_t pos;

	if (view->len > UINT32_MAX || fb_follow(view, 0, &pos) < 0)
		return -EBADMSG;
	return fb_open_table(view, pos, root);
}

int
fb_get_scalar(const struct fb_tab *t, unsigned int slot, unsigned int size, uint64_t absent,
	uint64_t *value)
{
	uint32_t pos;
	int ret;

	*value = absent;
	ret = fb_field(t, slot, size, &pos);
	if (ret <= 0)
		return ret;
	*value = 0;
	return fb_load(t->view, pos, value, size);
}

int
fb_get_table(const struct fb_tab *t, unsigned int slot, struct fb_tab *sub)
{
	uint32_t pos, target;
	int ret;

	ret = fb_field(t, slot, 4, &pos);
	if (ret <= 0)
		return ret;
	if (fb_follow(t->view, pos, &target) < 0)
		return -EBADMSG;
	return fb_open_table(t->view, target, sub);
}

int
fb_get_vector(const struct fb_tab *t, unsigned int slot, size_t size, struct fb_vec *vec)
{
	uint32_t pos, target, nb;
	int ret;

	vec->view = t->view;
	vec->pos = 0;
	vec->nb = 0;
	ret = fb_field(t, slot, 4, &pos);
	if (ret <= 0)
		return ret;
	if (fb_follow(t->view, pos, &target) < 0 || fb_load(t->view, target, &nb, sizeof(nb)) < 0 ||
		fb_bytes(t->view, (uint64_t)target + 4, (uint64_t)nb * size) == NULL)
		return -EBADMSG;
	vec->pos = target + 4;
	vec->nb = nb;
	return 1;
}

int
fb_get_string(const struct fb_tab *t, unsigned int slot, const char **text, uint32_t *len)
{
	struct fb_vec vec;
	int ret;

	*text = "";
	*len = 0;
	ret = fb_get_vector(t, slot, 1, &vec);
	if (ret <= 0)
		return ret;
	if (vec.pos + (uint64_t)vec.nb >= t->view->len || vec.view->base[vec.pos + vec.nb] != '\0')
		return -EBADMSG;
	*text = (const char *)t->view->base + vec.pos;
	*len = vec.nb;
	return 1;
}

int
fb_vec_table(const struct fb_vec *vec, uint32_t i, struct fb_tab *t)
{
	uint32_t target;

	if (i >= vec->nb || fb_follow(vec->view, vec->pos + 4 * i, &target) < 0)
		return -EBADMSG;
	return fb_open_table(vec->view, target, t);
}

const uint8_t *
fb_vec_at(const struct fb_vec *vec, uint32_t i, size_t size)
{
	return vec->view->base + vec->pos + i * size;
}
