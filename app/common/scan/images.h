/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Columns of a batch of `images` that hold pixels, and lists of peaks.
 */
#ifndef SCAN_IMAGES_H
#define SCAN_IMAGES_H

#include "arrow/reader.h"
#include "scan/run.h"

/** The columns. Their rows are not checked yet. */
struct scan_images {
	struct arrow_column frame, kind, row_ptr, col, value, raw;
	struct arrow_column missing; /**< `field` is NULL: the file does not have it */
	bool is_i16;		     /**< type of `value`: int16, otherwise float32 */
	/** [rows] place of each chunk in the data of `raw`; NULL: that of its offset (record.h) */
	const uint64_t *place;
};

/** @return 0; -EBADMSG: a column is absent or damaged */
int scan_images_open(const struct arrow_reader *r, size_t batch, struct scan_images *b);

/**
 * Find the chunk of a row (arrow/bitshuffle.h): detector words of a raw frame, or int16 photons of
 * a full image in a file with chunks (arrow_tables_config.chunks).
 * @return its size in bytes; 0: the row has none
 */
uint64_t scan_images_chunk(const struct scan_images *b, uint64_t row, const uint8_t **chunk);

/**
 * Expand an image to photons of all pixels: NaN masked or missing, infinity saturated; 0 for pixels
 * that a sparse frame does not list, but NaN in packets that are missing. Sparse frames do not have
 * the masked pixels: scan/dead_pixels.h. Raw frames give their words.
 * @param plane  out: [rows][cols]
 * @param words  [rows][cols], used for chunks
 * @return 0; -EBADMSG: the row does not fit the detector's size
 */
int scan_images_expand(const struct scan_run *run, const struct scan_images *b, uint64_t row,
	float *plane, uint16_t *words);

/**
 * Get the photons of an image as in the int16 column: -32768 masked or missing, 32767 saturated; 0
 * for pixels that a sparse frame does not list. float32 photons are rounded as by the receiver.
 * @param room     [rows][cols], used if the batch does not have these values
 * @param photons  out: [rows][cols], in the batch or `room`
 * @return 0; -EBADMSG: a raw frame, a damaged chunk, or the row does not fit the size
 */
int scan_images_photons(const struct scan_images *b, uint64_t row, uint32_t rows, uint32_t cols,
	int16_t *room, const int16_t **photons);

/** Lists of peaks, in the order of the columns. */
enum scan_peak_list {
	SCAN_PEAK_FS,
	SCAN_PEAK_SS,
	SCAN_PEAK_INTENSITY,
	SCAN_PEAK_SNR,
	SCAN_PEAK_BACKGROUND,
	SCAN_PEAK_PIXELS,
	SCAN_PEAK_PANEL,
	SCAN_PEAK_LISTS
};

/** The columns of peaks of a batch. */
struct scan_peaks {
	struct arrow_column list[SCAN_PEAK_LISTS];
};

/** @return 0; -ENODATA: the file has no peaks; -EBADMSG: a column is absent or damaged */
int scan_peaks_open(const struct arrow_reader *r, size_t batch, struct scan_peaks *p);

/**
 * Find the lists of a row.
 * @param start  out: first item of each list in its column
 * @return number of peaks, at most GK_PEAKS_MAX; -EBADMSG: more, or lists of different lengths
 */
int scan_peaks_row(const struct scan_peaks *p, uint64_t row, uint64_t start[SCAN_PEAK_LISTS]);

#endif /* SCAN_IMAGES_H */
