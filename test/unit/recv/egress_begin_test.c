/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the begin of a run by a thread that is not an lcore, and its end. The test is the egress
 * lcore, and polls when it wants to.
 */

#include <errno.h>
#include <pthread.h>

#include "egress/egress_private.h"

#include "egress_rig.h"

static struct egress *e;

static bool unconfirmed; /* the store was connected, and has not confirmed the end of the run */

void __real_store_client_stats_get(const struct store_client *c, struct store_client_stats *stats);
void __wrap_store_client_stats_get(const struct store_client *c, struct store_client_stats *stats);

void
__wrap_store_client_stats_get(const struct store_client *c, struct store_client_stats *stats)
{
	__real_store_client_stats_get(c, stats);
	if (unconfirmed)
		stats->connections = 1;
}

/* Begin a run as a client does. */
static void *
begin_second(void *arg)
{
	const struct egress_begin begin = {
		.tables = &s.tables,
		.run = 2,
		.incarnation = 3,
		.name = "second",
		.body_max = {1 << 20, 1 << 20},
	};
	char message[PATH_MAX];
	int *ret = arg;

	*ret = egress_begin(e, &begin, message);
	return NULL;
}

/* Wait until the command is in the mailbox. */
static void
wait_for_command(void)
{
	while (__atomic_load_n(&e->mailbox.state, __ATOMIC_ACQUIRE) != MAILBOX_POSTED)
		usleep(1000);
}

/*
 * The stores did not take all batches of a run in time. They take them while the next run begins,
 * and they are not counted for it.
 */
static void
late_batches(void **state)
{
	struct egress_stats stats;
	pthread_t client;
	int ret;

	alarm(PATIENCE);
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	begin_run(e);
	put(e, 0);
	put(e, 1);
	(void)egress_poll(e);
	assert_int_equal(pthread_create(&client, NULL, begin_second, &ret), 0);
	wait_for_command();
	egress_stats_released(e, 0, false);
	egress_stats_get(e, ARROW_IMAGES, &stats);
	assert_int_equal(stats.put.batches, 2);
	assert_int_equal(stats.outcome.durable, 1);
	(void)egress_poll(e);
	assert_int_equal(pthread_join(client, NULL), 0);
	assert_int_equal(ret, 0);
	egress_stats_released(e, 1, false);
	egress_stats_get(e, ARROW_IMAGES, &stats);
	assert_int_equal(stats.put.batches, 0);
	assert_int_equal(stats.put.rows, 0);
	assert_int_equal(stats.outcome.durable, 0);
	assert_int_equal(stats.outcome.durable_rows, 0);
	egress_destroy(e);
	unlink(journal);
	alarm(0);
}

/*
 * A client's thread does not do the work of the lcore before its first poll. If there is none, the
 * command times out, and is not executed later.
 */
static void
no_lcore(void **state)
{
	pthread_t client;
	int ret;

	alarm(PATIENCE);
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	assert_int_equal(pthread_create(&client, NULL, begin_second, &ret), 0);
	assert_int_equal(pthread_join(client, NULL), 0);
	assert_int_equal(ret, -ETIMEDOUT);
	assert_int_equal(e->iterations, 0);
	(void)egress_poll(e);
	assert_int_equal(e->current, -1);
	assert_int_equal(pthread_create(&client, NULL, begin_second, &ret), 0);
	wait_for_command();
	(void)egress_poll(e);
	assert_int_equal(pthread_join(client, NULL), 0);
	assert_int_equal(ret, 0);
	assert_int_equal(e->current, 0);
	egress_destroy(e);
	unlink(journal);
	alarm(0);
}

/*
 * Without an answer of the store, a run has failed if a batch is held, and not if only the end is
 * not confirmed.
 */
static void
unconfirmed_end(void **state)
{
	for (unsigned int batches = 0; batches <= 1; batches++) {
		alarm(PATIENCE);
		e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
		begin_run(e);
		unconfirmed = true;
		if (batches > 0)
			put(e, 0);
		egress_rest(e);
		assert_int_equal(egress_end(e), batches > 0 ? -ETIMEDOUT : 0);
		unconfirmed = false;
		egress_destroy(e);
		unlink(journal);
		alarm(0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_batches),
		cmocka_unit_test(no_lcore),
		cmocka_unit_test(unconfirmed_end),
	};

	return rig_main(tests);
}
