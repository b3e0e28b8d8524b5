/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of batches and messages: buffers that are kept, and whose pages are touched ahead. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "scan/memory.h"

#define SIZE ((size_t)5 << 20)

static int
teardown(void **state)
{
	scan_memory_trim();
	return 0;
}

static unsigned int
touch(void)
{
	unsigned int calls = 0;

	while (scan_memory_touch())
		calls++;
	return calls;
}

/* @return page faults of a write to all pages of a buffer */
static long
write_all(void *data)
{
	struct rusage before, after;

	assert_non_null(data);
	getrusage(RUSAGE_SELF, &before);
	memset(data, 1, SIZE);
	getrusage(RUSAGE_SELF, &after);
	return after.ru_minflt - before.ru_minflt;
}

static void
test_reserved_buffers_have_their_pages(void **state)
{
	void *data[3];

	assert_false(scan_memory_touch());
	scan_memory_reserve(SIZE, 2);
	assert_true(touch() > 2);
	/* those that are kept count */
	scan_memory_reserve(SIZE, 2);
	scan_memory_reserve(SIZE / 2, 2);
	assert_int_equal(touch(), 0);
	for (unsigned int i = 0; i < 3; i++)
		data[i] = scan_memory_get(SIZE);
	assert_int_equal(write_all(data[0]), 0);
	assert_int_equal(write_all(data[1]), 0);
	assert_true(write_all(data[2]) > 0);
	for (unsigned int i = 0; i < 3; i++)
		scan_memory_put(data[i]);
	/* they were used */
	assert_int_equal(touch(), 0);
}

static void
test_a_buffer_may_be_used_before_it_is_touched(void **state)
{
	void *data;

	scan_memory_reserve(SIZE, 1);
	assert_true(scan_memory_touch());
	data = scan_memory_get(SIZE);
	assert_true(write_all(data) > 0);
	assert_false(scan_memory_touch());
	scan_memory_put(data);
	assert_false(scan_memory_touch());
}

/* Buffers that were used are not given up for those that may be. */
static void
test_reserved_memory_is_limited(void **state)
{
	void *data = scan_memory_get(SIZE);

	scan_memory_put(data);
	scan_memory_reserve(SCAN_MEMORY_SPARE_MAX, 1);
	scan_memory_reserve(SIZE_MAX, 1);
	assert_false(scan_memory_touch());
	scan_memory_reserve(SIZE, 1000);
	assert_ptr_equal(scan_memory_get(SIZE), data);
	scan_memory_put(data);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_reserved_buffers_have_their_pages, teardown),
		cmocka_unit_test_teardown(test_a_buffer_may_be_used_before_it_is_touched, teardown),
		cmocka_unit_test_teardown(test_reserved_memory_is_limited, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
