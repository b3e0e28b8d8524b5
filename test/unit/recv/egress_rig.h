/* SPDX-License-Identifier: BSD-3-Clause */
/* An egress whose batches are those of a sample. No store answers at the configured addresses. */
#ifndef EGRESS_RIG_H
#define EGRESS_RIG_H

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
#include "../xfer/xfer_sample.h"

#define PATIENCE 30 /* s */

static struct xfer_sample s;
static char key[64], journal[64], directory[64];
static struct egress_slots slots; /* in the journal */

static struct egress *
open_egress(const char *stores, enum egress_policy policy)
{
	const struct egress_settings settings = {
		.device = "roce:port=net_null0,ip=10.0.0.1/24",
		.stores = stores,
		.policy = policy,
		.identity = "egress",
		.key = key,
		.journal = journal,
		.journal_bytes = 16 << 20,
		.batch_bytes = 1 << 20,
		.rate = 1000000,
		.failover_ms = 100,
		.hold_ms = 100,
		.spill_at = 50,
		.end_ms = 100,
		.directory = directory,
	};
	struct egress *e;

	assert_int_equal(egress_create(&e, &settings, 7, &slots), 0);
	return e;
}

static inline void
begin_run(struct egress *e)
{
	const struct egress_begin begin = {
		.tables = &s.tables,
		.run = 1,
		.incarnation = 2,
		.name = "egress",
		.body_max = {1 << 20, 1 << 20},
	};
	char message[PATH_MAX];

	assert_int_equal(egress_begin(e, &begin, message), 0);
	(void)egress_poll(e);
}

/* Put batch k. The samples repeat, with other sequence numbers. @return as egress_put() */
static inline int
put_or_refuse(struct egress *e, unsigned int k)
{
	const unsigned int nb = s.nb[ARROW_FRAMES];
	struct xfer_sample_batch *from = &s.batch[ARROW_FRAMES][k % nb];
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
		.sequence = from->batch.sequence + k / nb * nb,
		.crc32c = from->batch.body_crc32c,
	};

	return egress_put(e, &b);
}

static inline void
put(struct egress *e, unsigned int k)
{
	assert_int_equal(put_or_refuse(e, k), 0);
}

/* @return the return value of main() */
#define rig_main(tests) rig_run_tests(tests, sizeof(tests) / sizeof((tests)[0]))
static int
rig_run_tests(const struct CMUnitTest *tests, size_t nb)
{
	const char *eal[] = {"egress", "--no-huge", "-m", "256", "--no-pci", "--no-shconf", "-l",
		"0", "--no-telemetry", "--vdev=net_null0", "--log-level", "lib.eal:warning"};
	FILE *f;
	int ret;

	if (rte_eal_init(sizeof(eal) / sizeof(eal[0]), (char **)(uintptr_t)eal) < 0)
		return 1;
	snprintf(key, sizeof(key), "/dev/shm/braggline-egress-key-%d", getpid());
	snprintf(journal, sizeof(journal), "/dev/shm/braggline-egress-journal-%d", getpid());
	snprintf(directory, sizeof(directory), "/dev/shm/braggline-egress-%d", getpid());
	umask(0077);
	f = fopen(key, "w");
	if (f == NULL || fprintf(f, "%064d", 1) < 0 || fclose(f) != 0)
		return 1;
	xfer_sample_init(&s, 1, 100);
	ret = _cmocka_run_group_tests("egress", tests, nb, NULL, NULL);
	xfer_sample_free(&s);
	unlink(key);
	unlink(journal);
	rmdir(directory);
	rte_eal_cleanup();
	return ret;
}

#endif /* EGRESS_RIG_H */
