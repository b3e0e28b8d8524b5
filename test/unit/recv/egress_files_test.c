/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The egress lcore does not wait for files: the disk is slow for as long as the test likes, and the
 * clock is the test's.
 */

#include <semaphore.h>
#include <string.h>

#include "egress_rig.h"
#include "egress/key_file.h"
#include "xfer/auth.h"
#include "xfer/qp.h"

static uint64_t now_ms = 1000;

/* What a call that works with a file does. */
static struct {
	bool hangs;  /* atomic: until `goes_on` */
	sem_t began; /* posted when such a call has begun */
	sem_t goes_on;
} disk;

static uint8_t first_of_key; /* the first byte of the key of the last attempt to connect */
static unsigned int attempts;

uint64_t __wrap_xfer_qp_clock(void);
int __real_xfer_key_read(struct xfer_key *k, const char *path, char message[PATH_MAX]);
int __wrap_xfer_key_read(struct xfer_key *k, const char *path, char message[PATH_MAX]);
enum xfer_reason __wrap_xfer_auth_call(struct xfer_auth *h, const struct xfer_key *k,
	const struct xfer_offer *offer, uint64_t deadline);

uint64_t
__wrap_xfer_qp_clock(void)
{
	return now_ms;
}

static void
wait_for_disk(void)
{
	if (!__atomic_load_n(&disk.hangs, __ATOMIC_ACQUIRE))
		return;
	sem_post(&disk.began);
	sem_wait(&disk.goes_on);
}

int
__wrap_xfer_key_read(struct xfer_key *k, const char *path, char message[PATH_MAX])
{
	wait_for_disk();
	return __real_xfer_key_read(k, path, message);
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
	attempts = 0;
	write_key('a');
	e = open_egress("10.0.0.2", EGRESS_ROUND_ROBIN);
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	assert_int_equal(egress_start(e, &cpus), 0);
	return e;
}

static void
end_test(struct egress *e)
{
	egress_destroy(e);
	sem_destroy(&disk.began);
	sem_destroy(&disk.goes_on);
	alarm(0);
}

/* Poll until there was another attempt to connect. */
static void
poll_until_attempt(struct egress *e)
{
	const unsigned int before = attempts;

	while (attempts == before) {
		now_ms += XFER_BACK_OFF_MAX_MS / 10;
		(void)egress_poll(e);
	}
}

/* Poll until a call that works with a file has begun. It waits for the disk. */
static void
hang_and_poll(struct egress *e)
{
	__atomic_store_n(&disk.hangs, true, __ATOMIC_RELEASE);
	while (sem_trywait(&disk.began) < 0) {
		now_ms++;
		(void)egress_poll(e);
	}
}

static void
go_on(void)
{
	__atomic_store_n(&disk.hangs, false, __ATOMIC_RELEASE);
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
	hang_and_poll(e);
	write_key('b');
	poll_until_attempt(e);
	assert_int_equal(first_of_key, 'a');
	go_on();
	while (first_of_key != 'b')
		poll_until_attempt(e);
	end_test(e);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_key),
	};

	return rig_main(tests);
}
