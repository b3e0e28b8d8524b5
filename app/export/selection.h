/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The images of a run that are exported, in the order of frame numbers, with their rows of
 * `frames`. The rows may be in the files of several stores.
 */
#ifndef EXPORT_SELECTION_H
#define EXPORT_SELECTION_H

#include "scan/run.h"

#define SELECTION_KINDS	  3	     /**< of enum gk_kind that images have */
#define SELECTION_NOWHERE UINT32_MAX /**< `set` of a row that does not exist */

/** A row of a table. */
struct selection_row {
	uint64_t frame;
	uint32_t set, batch, row;
	uint8_t kind;
	uint8_t verdict; /**< only of `frames` */
};

struct selection_image {
	struct selection_row image;
	struct selection_row info; /**< row of `frames`; `set` is SELECTION_NOWHERE if it is lost */
};

struct selection_filter {
	uint64_t first, last; /**< frame numbers, both included */
	uint32_t verdicts;    /**< bit mask */
};

struct selection {
	struct selection_image *image;
	size_t nb;
	uint64_t lost;	  /**< kept frames of the filter that have no row in `images` */
	uint64_t orphans; /**< images without a row in `frames`; they pass any verdict */
	uint64_t copies;  /**< images that several files have, which are exported once */
	uint64_t kinds[SELECTION_KINDS]; /**< images by enum gk_kind, before selection_only() */
};

/**
 * Pair rows of both tables by frame number. A detector that starts again repeats numbers: the nth
 * image of a number belongs to its nth row. Both arrays are sorted.
 * @return 0; -ENOMEM
 */
int selection_join(struct selection *s, const struct selection_filter *filter,
	struct selection_row *frames, size_t nb_frames, struct selection_row *images,
	size_t nb_images);

/** Read the rows of a run and pair them. @return 0; -ENOMEM; -EBADMSG: a column is damaged */
int selection_read(
	struct selection *s, const struct selection_filter *filter, const struct scan_run *run);

/**
 * Whether each image has its row of `frames` and each row of a kept frame its image, with the same
 * kind.
 */
bool selection_is_paired(const struct selection *s);

/** Rows of a table that grows. */
struct selection_rows {
	struct selection_row *row;
	size_t nb, room;
};

/**
 * Append the rows of a batch that have an image.
 * @return 0; -EBADMSG: a column is damaged; -ENOMEM
 */
int selection_append(struct selection_rows *rows, const struct scan_run *run, uint32_t set,
	enum arrow_table table, uint32_t batch);

/** Keep only images of some kinds. @param kinds  bit mask of enum gk_kind */
void selection_only(struct selection *s, uint32_t kinds);

void selection_free(struct selection *s);

#endif /* EXPORT_SELECTION_H */
