/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The egress lcore does not wait for files: the disk is slow for as long as the test likes, and the
 * test advances the clock.
 */

#include <semaphore.h>
#include <string.h>

#include "egress_rig.h"
#include "egress/store_client.h"
#include "xfer/auth.h"
#include "xfer/qp.h"

static uint64_t ahead_ms; /* of the clock */

/* Calls that work with a file. */
enum call {
	NO_CALL,
	KEY_READ,
	QUARANTINE_WRITE,
};

/* What they do. */
static struct {
	enum call hangs; /* atomic: this one, until `goes_on` */
	sem_t began;	 /* posted when such a call has begun */
	sem_t goes_on;
	sem_t ended; /* posted when a reading of the key that has waited has ended */
} disk;

static struct xfer_key *read_key; /* result of the last reading */
/* a part of the memory that a thread has kept, for the leak sanitizer */
static struct xfer_key *volatile kept_key;
static uint8_t first_of_key; /* the first byte of the key of the last attempt to connect */
static unsigned int attempts;
static struct journal *open_journal;

uint64_t __real_xfer_qp_clock(void);
uint64_t __wrap_xfer_qp_clock(void);
int __real_store_client_open(struct store_client **client, const struct store_client_config *c);
int __wrap_store_client_open(struct store_client **client, const struct store_client_config *c);
int __real_durable_file_create_parts(
	const char *path, const struct iovec *parts, size_t nb, mode_t mode);
int __wrap_durable_file_create_parts(
	const char *path, const struct iovec *parts, size_t nb, mode_t mode);
int __real_xfer_key_read(struct xfer_key *k, const char *path, char message[PATH_MAX]);
int __wrap_xfer_key_read(struct xfer_key *k, const char *path, char message[PATH_MAX]);
enum xfer_reason __wrap_xfer_auth_call(struct xfer_auth *h, const struct xfer_key *k,
	const struct xfer_offer *offer, uint64_t deadline);

uint64_t
__wrap_xfer_qp_clock(void)
{
	return __real_xfer_qp_clock() + ahead_ms;
}

/* @return whether the call has waited */
static bool
wait_for_disk(enum call call)
{
	if (__atomic_load_n(&disk.hangs, __ATOMIC_ACQUIRE) != call)
		return false;
	sem_post(&disk.began);
	sem_wait(&disk.goes_on);
	return true;
}

int
__wrap_xfer_key_read(struct xfer_key *k, const char *path, char message[PATH_MAX])
{
	const bool waited = wait_for_disk(KEY_READ);
	const int ret = __real_xfer_key_read(k, path, message);

	read_key = k;
	if (waited)
		sem_post(&disk.ended);
	return ret;
}

int
__wrap_durable_file_create_parts(
	const char *path, const struct iovec *parts, size_t nb, mode_t mode)
{
	(void)wait_for_disk(QUARANTINE_WRITE);
	return __real_durable_file_create_parts(path, parts, nb, mode);
}

/* It tells the test the journal. */
int
__wrap_store_client_open(struct store_client **client, const struct store_client_config *c)
{
	open_journal = c->journal;
	return __real_store_client_open(client, c);
}

/* No attempt goes any further. */
enum xfer_reason
__wrap_xfer_auth_call(struct xfer_auth *h, const struct xfer_key *k, const struct xfer_offer *offer,
	uint64_t deadline)
{
	attempts++;
	first_of_key = k->bytes[0];
	h->reason = XFER_REASON_FAILED;
	return XFER_REASON_FAILED;
}

static void
write_key(char first)
{
	FILE *f = fopen(key, "w");

	assert_non_null(f);
	assert_true(fprintf(f, "%c%063d", first, 1) == 64);
	assert_int_equal(fclose(f), 0);
}

static struct egress *
begin_test(void)
{
	struct egress *e;
	cpu_set_t cpus;

	alarm(PATIENCE);
	unlink(journal);
	sem_init(&disk.began, 0, 0);
	sem_init(&disk.goes_on, 0, 0);
	sem_init(&disk.ended, 0, 0);
	attempts = 0;
	first_of_key = 0;
	write_key('a');
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	assert_int_equal(egress_start(e, &cpus), 0);
	return e;
}

static void
release_disk(void)
{
	sem_destroy(&disk.began);
	sem_destroy(&disk.goes_on);
	sem_destroy(&disk.ended);
	alarm(0);
}

static void
end_test(struct egress *e)
{
	egress_destroy(e);
	release_disk();
}

/* Poll until there was another attempt to connect. */
static void
poll_until_attempt(struct egress *e)
{
	const unsigned int before = attempts;

	while (attempts == before) {
		ahead_ms += XFER_BACK_OFF_MAX_MS / 10;
		(void)egress_poll(e);
	}
}

/* Poll until the call has begun. It waits for the disk. */
static void
hang_and_poll(struct egress *e, enum call call)
{
	__atomic_store_n(&disk.hangs, call, __ATOMIC_RELEASE);
	while (sem_trywait(&disk.began) < 0) {
		ahead_ms++;
		(void)egress_poll(e);
	}
}

static void
go_on(void)
{
	__atomic_store_n(&disk.hangs, NO_CALL, __ATOMIC_RELEASE);
	sem_post(&disk.goes_on);
}

/*
 * A key file that cannot be read in time does not stop the lcore: it connects with the key that it
 * has, and later with the new one.
 */
static void
test_key(void **state)
{
	struct egress *e = begin_test();

	begin_run(e);
	hang_and_poll(e, KEY_READ);
	write_key('b');
	poll_until_attempt(e);
	assert_int_equal(first_of_key, 'a');
	go_on();
	while (first_of_key != 'b')
		poll_until_attempt(e);
	end_test(e);
}

/* The process ends while the key file cannot be read: the thread keeps what it uses. */
static void
test_key_at_end(void **state)
{
	struct egress *e = begin_test();

	begin_run(e);
	hang_and_poll(e, KEY_READ);
	egress_destroy(e);
	go_on();
	sem_wait(&disk.ended);
	kept_key = read_key;
	assert_int_equal(kept_key->bytes[0], 'a');
	release_disk();
}

/* Put two batches, and change a byte of the metadata of the first one. */
static void
put_and_spoil(struct egress *e)
{
	struct journal_batch b;
	uint32_t at = 0, batch;

	put(e, 0);
	put(e, 1);
	(void)egress_poll(e);
	batch = journal_walk(open_journal, &at);
	assert_true(journal_get(open_journal, batch, &b));
	((uint8_t *)(uintptr_t)b.metadata)[100] ^= 3;
	assert_false(journal_check(open_journal, batch));
}

static unsigned int
count_quarantine_files(void)
{
	char path[128];
	unsigned int nb = 0;

	for (unsigned int i = 1; i <= 3; i++) {
		snprintf(path, sizeof(path), "%s/journal-%016x.quarantine%s", directory, 7,
			i == 1		 ? ""
				: i == 2 ? ".2"
					 : ".3");
		nb += unlink(path) == 0;
	}
	return nb;
}

/* Damaged batches are being saved, which takes long: the key is read meanwhile. */
static void
test_key_during_save(void **state)
{
	struct egress *e = begin_test();

	begin_run(e);
	put_and_spoil(e);
	hang_and_poll(e, QUARANTINE_WRITE);
	write_key('b');
	while (first_of_key != 'b')
		poll_until_attempt(e);
	go_on();
	end_test(e);
	assert_int_equal(count_quarantine_files(), 1);
}

/* Damaged batches are saved while the lcore polls, and stay in the journal until then. */
static void
test_damaged(void **state)
{
	struct egress *e = begin_test();
	struct egress_stats stats;
	struct egress_view view;

	begin_run(e);
	put_and_spoil(e);
	hang_and_poll(e, QUARANTINE_WRITE);
	assert_true(journal_is_damaged(open_journal));
	put(e, 2);
	poll_until_attempt(e);
	egress_stats_get(e, ARROW_IMAGES, &stats);
	assert_int_equal(stats.outcome.damaged, 0);
	assert_int_equal(stats.put.batches, 3);
	go_on();
	while (journal_is_damaged(open_journal))
		(void)egress_poll(e);
	egress_stats_get(e, ARROW_IMAGES, &stats);
	assert_int_equal(stats.outcome.damaged, 1);
	assert_int_equal(stats.outcome.damaged_rows, s.batch[ARROW_FRAMES][0].batch.rows);
	ahead_ms += 1000;
	(void)egress_poll(e);
	egress_view_get(e, &view);
	assert_int_equal(view.journal.batches, 2);
	end_test(e);
	assert_int_equal(count_quarantine_files(), 1);
}

/*
 * The run ends after end_ms although the disk hangs. The process waits until the batches are saved:
 * nothing is left for the next one to save.
 */
static void
test_damaged_at_end(void **state)
{
	struct egress *e = begin_test();
	struct egress_view view;

	begin_run(e);
	put_and_spoil(e);
	hang_and_poll(e, QUARANTINE_WRITE);
	egress_rest(e);
	assert_int_equal(egress_end(e), -ETIMEDOUT);
	assert_true(journal_is_damaged(open_journal));
	go_on();
	egress_destroy(e);
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	assert_false(egress_before_was_damaged(e));
	ahead_ms += 1000;
	(void)egress_poll(e);
	egress_view_get(e, &view);
	assert_int_equal(view.journal.adopted, 1);
	end_test(e);
	assert_int_equal(count_quarantine_files(), 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key),
		cmocka_unit_test(test_key_at_end),
		cmocka_unit_test(test_key_during_save),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_damaged_at_end),
	};

	return rig_main(tests);
}
