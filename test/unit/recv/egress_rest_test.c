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

/*
 * The lcore no longer polls, and the main lcore does not do its work (`lcore_polls`): the ring
 * takes some, and the next batch is refused after 5 s, not after hold_ms.
 */
static void
test_stall(void **state)
{
	struct egress_stats stats;
	struct egress_view view;
	struct egress *e;
	unsigned int k = 0;

	alarm(PATIENCE);
	unlink(journal);
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	begin_run(e);
	do {
		(void)put_or_refuse(e, k++);
		egress_stats_get(e, ARROW_IMAGES, &stats);
	} while (stats.put.refused == 0);
	assert_int_equal(stats.put.batches, k - 1);
	/* what the ring took is in the journal as soon as the lcore polls again */
	egress_rest(e);
	egress_wait(e);
	assert_int_equal(egress_end(e), -ETIMEDOUT);
	egress_view_get(e, &view);
	assert_int_equal(view.journal.batches, k - 1);
	egress_destroy(e);
	alarm(0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_stall),
	};

	return rig_main(tests);
}
