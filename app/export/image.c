/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gk_abi.h"
#include "gk_bitshuffle.h"
#include "image.h"

static size_t
round_up(size_t size)
{
	return (size + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK;
}

int
image_init(struct image *m, uint32_t rows, uint32_t cols, const uint32_t *mask)
{
	const size_t pixels = (size_t)rows * cols;

	*m = (struct image){.rows = rows, .cols = cols, .mask = mask};
	m->photons = malloc(pixels * sizeof(*m->photons));
	/* aligned to a page, so that h5_driver.c writes it without a copy */
	m->packed = aligned_alloc(ARROW_BLOCK, round_up(gk_bitshuffle_bound(pixels)));
	if (m->photons != NULL && m->packed != NULL)
		return 0;
	image_free(m);
	return -ENOMEM;
}

void
image_free(struct image *m)
{
	free(m->photons);
	free(m->packed);
	m->photons = NULL;
	m->packed = NULL;
}

/*
 * Whether a chunk can be copied unchanged. Only its header is checked: readers check the blocks. To
 * check them here would take as long as decompression.
 */
static bool
is_chunk(const uint8_t *chunk, uint64_t size, uint64_t pixels)
{
	uint64_t bytes = 0;
	uint32_t block = 0;
	unsigned int i;

	if (size < GK_BITSHUFFLE_HEADER)
		return false;
	for (i = 0; i < 8; i++)
		bytes = bytes << 8 | chunk[i];
	for (i = 8; i < GK_BITSHUFFLE_HEADER; i++)
		block = block << 8 | chunk[i];
	return bytes == pixels * sizeof(uint16_t) && block == GK_BITSHUFFLE_BYTES;
}

ssize_t
image_chunk(struct image *m, const struct scan_images *b, const struct selection_row *row,
	const uint8_t **chunk)
{
	const uint64_t pixels = (uint64_t)m->rows * m->cols;
	const int16_t *photons;
	uint64_t i, size;

	size = scan_images_chunk(b, row->row, chunk);
	if (row->kind == GK_KIND_RAW || (size > 0 && m->mask == NULL))
		return is_chunk(*chunk, size, pixels) ? (ssize_t)size : -EBADMSG;
	if (row->kind != GK_KIND_IMAGE ||
		scan_images_photons(b, row->row, m->rows, m->cols, m->photons, &photons) < 0)
		return -EBADMSG;
	if (m->mask != NULL) {
		for (i = 0; i < pixels; i++)
			m->photons[i] = m->mask[i] != 0 ? IMAGE_INVALID : photons[i];
		photons = m->photons;
	}
	*chunk = m->packed;
	/* only the bits count */
	return gk_bitshuffle_compress((const uint16_t *)photons, pixels, m->packed);
}
