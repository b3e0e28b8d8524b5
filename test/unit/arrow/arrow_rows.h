/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of a file that a test has written. */
#ifndef ARROW_ROWS_H
#define ARROW_ROWS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arrow/reader.h"

/* Count the rows, and check the CRC of each batch. */
static inline uint64_t
count_rows(const struct arrow_reader *r)
{
	uint64_t rows = 0;
	size_t i;

	for (i = 0; i < r->nb_batches; i++) {
		assert_int_equal(arrow_reader_crc(r, i), 1);
		rows += r->batches[i].rows;
	}
	return rows;
}

#endif /* ARROW_ROWS_H */
