/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests egress after a gang has failed and the lcores have stopped: batches of the run still go
 * into the journal, and the end of the run is waited for no longer than configured.
 */

#include <errno.h>

#include "egress_rig.h"
#include "ledger.h"

#define BATCHES 5

static void
test_rest(void **state)
{
	struct ledger_kept kept = {.version = LEDGER_KEPT_VERSION, .running = 1, .columns = {17}};
	struct egress *e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	struct egress_view view;
	unsigned int k;
	uint64_t held;

	alarm(PATIENCE);
	begin_run(e);
	egress_rest(e);
	for (k = 0; k < BATCHES; k++)
		put(e, k);
	assert_int_equal(egress_end(e), -ETIMEDOUT);
	assert_true(egress_keep_ledger(e, &kept));
	kept.columns[0] = 18;
	assert_true(egress_keep_ledger(e, &kept));
	egress_view_get(e, &view);
	assert_int_equal(view.journal.batches, BATCHES);
	egress_destroy(e);
	/* the next process adopts the batches */
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	(void)egress_poll(e);
	egress_view_get(e, &view);
	assert_int_equal(view.journal.adopted, BATCHES);
	assert_true(egress_ledger_before(e, &kept, &held));
	assert_int_equal(kept.columns[0], 18);
	egress_destroy(e);
	alarm(0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rest),
	};

	return rig_main(tests);
}
