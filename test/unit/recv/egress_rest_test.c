/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests egress after a gang has failed and the lcores have stopped: batches of the run still go
 * into the journal, and the end of the run is waited for no longer than configured. No store
 * answers at the configured address.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include "arrow/batch.h"
#include "egress/egress.h"
#include "telemetry/ledger.h"
#include "../xfer/xfer_sample.h"

#define BATCHES	 5
#define PATIENCE 30 /* s */

static struct xfer_sample s;
static char key[64], journal[64];

static struct egress *
open_egress(void)
{
	const struct egress_settings settings = {
		.device = "roce:port=net_null0,ip=10.0.0.1/24",
		.stores = "10.0.0.2",
		.identity = "rest",
		.key = key,
		.journal = journal,
		.journal_bytes = 16 << 20,
		.batch_bytes = 1 << 20,
		.rate = 1000000,
		.failover_ms = 100,
		.hold_ms = 100,
		.spill_at = 50,
		.end_ms = 100,
	};
	struct egress *e;

	assert_int_equal(egress_create(&e, &settings, 7), 0);
	return e;
}

static void
put(struct egress *e, unsigned int k)
{
	struct xfer_sample_batch *from = &s.batch[ARROW_FRAMES][k];
	const struct iovec body = {from->body, from->batch.body_bytes};
	const struct batch b = {
		/* rows of `frames` would be read as separate columns, and this body is one piece */
		.table = ARROW_IMAGES,
		.metadata = from->metadata,
		.metadata_size = XFER_BLOCK,
		.body = &body,
		.nb_body = 1,
		.body_length = from->batch.body_bytes,
		.rows = from->batch.rows,
		.first = from->batch.first,
		.last = from->batch.last,
		.sequence = from->batch.sequence,
		.crc32c = from->batch.body_crc32c,
	};

	assert_int_equal(egress_put(e, &b), 0);
}

static void
test_rest(void **state)
{
	const struct egress_begin begin = {
		.tables = &s.tables,
		.run = 1,
		.incarnation = 2,
		.name = "rest",
		.body_max = {1 << 20, 1 << 20},
	};
	struct ledger_kept kept = {.version = LEDGER_KEPT_VERSION, .running = 1, .columns = {17}};
	struct egress *e = open_egress();
	char message[PATH_MAX];
	struct egress_view view;
	unsigned int k;
	uint64_t held;

	alarm(PATIENCE);
	assert_int_equal(egress_begin(e, &begin, message), 0);
	(void)egress_poll(e);
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
	e = open_egress();
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
	const char *eal[] = {"rest", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "-l", "0",
		"--no-telemetry", "--vdev=net_null0", "--log-level", "lib.eal:warning"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rest),
	};
	FILE *f;
	int ret;

	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	snprintf(key, sizeof(key), "/dev/shm/braggline-rest-key-%d", getpid());
	snprintf(journal, sizeof(journal), "/dev/shm/braggline-rest-journal-%d", getpid());
	umask(0077);
	f = fopen(key, "w");
	if (f == NULL || fprintf(f, "%064d", 1) < 0 || fclose(f) != 0)
		return 1;
	xfer_sample_init(&s, 1, 100);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	xfer_sample_free(&s);
	unlink(key);
	unlink(journal);
	rte_eal_cleanup();
	return ret;
}
