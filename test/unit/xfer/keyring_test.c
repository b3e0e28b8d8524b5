/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the keyring: the file that lists who may connect to a store. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "xfer/admission.h"
#include "xfer/keyring.h"
#include "xfer/refusal_log.h"

#define HEX32 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY   "key = hex:" HEX32 "\n"
#define KEY_B "key = hex:" HEX32 "20\n"

static char dir[] = "/tmp/braggline-keyring-XXXXXX", path[64], key_path[64];
static char message[PATH_MAX];
static struct xfer_keyring ring;

static void
write_text(const char *to, const char *text, mode_t mode)
{
	FILE *f = fopen(to, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(chmod(to, mode), 0);
}

static int
read_text(const char *text)
{
	write_text(path, text, 0600);
	return xfer_keyring_read(&ring, path, message);
}

static int
begin(void **state)
{
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/keys.ini", dir);
	snprintf(key_path, sizeof(key_path), "%s/a.key", dir);
	write_text(key_path, "0123456789abcdef0123456789abcdef", 0600);
	return 0;
}

static int
end(void **state)
{
	unlink(path);
	unlink(key_path);
	return rmdir(dir);
}

static void
test_good(void **state)
{
	const struct xfer_identity *id, *other;

	assert_int_equal(
		read_text(
			"; who may\n[receiver lyso-1]\nkey = a.key\nkey_next = hex:" HEX32
			"\nreceiver_ids = 1,2, 5-8 ,010,016\nruns = lyso_*, test?\n"
			"rights = write, import\n"
			"[receiver b]\nreceiver_ids = 9\nconnections = 010\nopen_runs = 1\n" KEY_B),
		0);
	assert_int_equal(ring.nb, 2);
	id = xfer_keyring_find(&ring, xfer_identity_id("lyso-1"));
	assert_string_equal(id->name, "lyso-1");
	assert_memory_equal(id->key[0].bytes, "0123456789abcdef", 16);
	assert_int_equal(id->key[1].bytes[31], 0x1f);
	assert_true(xfer_identity_may(id, XFER_RIGHT_WRITE, 6, "lyso_7"));
	assert_true(xfer_identity_may(id, XFER_RIGHT_IMPORT, 16, "test1"));
	/* numbers are decimal, even with a leading zero */
	assert_true(xfer_identity_may(id, XFER_RIGHT_WRITE, 10, "lyso_7"));
	assert_int_equal(id->connections, XFER_IDENTITY_LIMIT);
	assert_int_equal(id->open_runs, XFER_IDENTITY_LIMIT);
	assert_false(xfer_identity_may(id, XFER_RIGHT_RECONCILE, 6, "lyso_7"));
	assert_false(xfer_identity_may(id, XFER_RIGHT_WRITE, 4, "lyso_7"));
	assert_false(xfer_identity_may(id, XFER_RIGHT_WRITE, 17, "lyso_7"));
	assert_false(xfer_identity_may(id, XFER_RIGHT_WRITE, 6, "test12"));
	other = xfer_keyring_find(&ring, xfer_identity_id("b"));
	assert_int_equal(other->connections, 10);
	assert_int_equal(other->open_runs, 1);
	/* defaults: any run, and the rights that a receiver needs */
	assert_true(xfer_identity_may(other, XFER_RIGHT_WRITE, 9, "x"));
	assert_true(xfer_identity_may(other, XFER_RIGHT_RECONCILE, 9, "x"));
	assert_false(xfer_identity_may(other, XFER_RIGHT_IMPORT, 9, "x"));
	assert_ptr_equal(xfer_keyring_check(&ring, "b", other->fingerprint[0]), other);
	assert_null(xfer_keyring_check(&ring, "b", id->fingerprint[0]));
	/* fingerprint 0 of an absent key matches no identity */
	assert_null(xfer_keyring_check(&ring, "b", 0));
	assert_int_not_equal(id->fingerprint[1], other->fingerprint[0]);
	xfer_keyring_free(&ring);
}

/* Who only reads has no receivers, and reads the runs of all of them. */
static void
test_reader(void **state)
{
	const struct xfer_identity *id;

	assert_int_equal(read_text("[receiver r]\nrights = read\nruns = lyso_*\n" KEY), 0);
	id = xfer_keyring_find(&ring, xfer_identity_id("r"));
	assert_true(xfer_identity_may_read(id, "lyso_7"));
	assert_false(xfer_identity_may_read(id, "other"));
	assert_false(xfer_identity_may(id, XFER_RIGHT_READ, 0, "lyso_7"));
	xfer_keyring_free(&ring);
	assert_int_equal(read_text("[receiver r]\nreceiver_ids = 1\n" KEY), 0);
	id = xfer_keyring_find(&ring, xfer_identity_id("r"));
	assert_false(xfer_identity_may_read(id, "lyso_7"));
	xfer_keyring_free(&ring);
}

/* An unknown identity gets random keys, and other ones after each read. */
static void
test_unknown_identity(void **state)
{
	const struct xfer_identity *id;
	uint8_t before[XFER_KEY_MIN], digest[XFER_DIGEST_BYTES];

	assert_int_equal(read_text("[receiver b]\nreceiver_ids = 9\n" KEY), 0);
	memcpy(digest, ring.digest, sizeof(digest));
	id = xfer_keyring_find(&ring, xfer_identity_id("c"));
	assert_ptr_equal(id, &ring.nobody);
	assert_int_equal(id->key[0].size + id->key[1].size, 2 * XFER_KEY_MIN);
	assert_string_equal(id->name, "");
	assert_int_equal(id->rights, 0);
	memcpy(before, id->key[0].bytes, sizeof(before));
	xfer_keyring_free(&ring);
	assert_int_equal(xfer_keyring_read(&ring, path, message), 0);
	assert_memory_not_equal(before, ring.nobody.key[0].bytes, sizeof(before));
	/* the digest of the file is the same */
	assert_memory_equal(digest, ring.digest, sizeof(digest));
	xfer_keyring_free(&ring);
	assert_int_equal(read_text("[receiver b]\nreceiver_ids = 8\n" KEY), 0);
	assert_memory_not_equal(digest, ring.digest, sizeof(digest));
	xfer_keyring_free(&ring);
}

static void
test_mistakes(void **state)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{"; nobody\n", "no receiver could connect"},
		{"[receiver a]\nreceiver_ids = 1\n", ":2: [receiver a]: key is missing"},
		{"[receiver a]\n" KEY,
			"[receiver a]: receiver_ids is missing; expected receiver_ids = 1,5-8, or "
			"rights = read"},
		{"[receiver a]\nrights = read, write\n" KEY,
			"[receiver a]: receiver_ids is missing"},
		{"[receiver a]\n" KEY "[receiver b]\n", "[receiver a]: receiver_ids is missing"},
		{"[sender a]\n", ":1: [sender a]: expected [receiver NAME]"},
		{"[receiver a/b]\n", "expected a name of letters"},
		{"[receiver a]\nreceiver_ids = 1\n" KEY "[receiver a]\n",
			":4: [receiver a]: this name is used twice"},
		{"[receiver a]\n" KEY KEY, ":3: key: this key is set twice"},
		{"[receiver a]\nkee = 1\n", ":2: kee: expected key, key_next"},
		{"[receiver a]\nkey = hex:00\n", ":2: expected a key of 32 to"},
		{"[receiver a]\nkey = hex:" HEX32 "0\n", ":2: expected a key of 32 to"},
		{"[receiver a]\nkey = hex:" HEX32 "zz\n", ":2: expected a key of 32 to"},
		{"[receiver a]\nkey = no.key\n", "no.key: No such file"},
		{"[receiver a]\n" KEY "receiver_ids = 1,\n", ":3: receiver_ids: expected numbers"},
		{"[receiver a]\n" KEY "receiver_ids = 5-4\n", ":3: receiver_ids: expected numbers"},
		{"[receiver a]\n" KEY "receiver_ids = -1\n", ":3: receiver_ids: expected numbers"},
		{"[receiver a]\n" KEY "receiver_ids = 18446744073709551616\n",
			"receiver_ids: expected"},
		{"[receiver a]\n" KEY "receiver_ids = 1 2\n", ":3: receiver_ids: expected numbers"},
		{"[receiver a]\n" KEY "receiver_ids = 1-5\n[receiver b]\n" KEY_B
		 "receiver_ids = 5\n",
			":6: [receiver b] and [receiver a] have a receiver_id in common"},
		{"[receiver a]\n" KEY "receiver_ids = 1\nruns = a/*\n", ":4: runs: expected"},
		{"[receiver a]\n" KEY "receiver_ids = 1\nruns = ,\n", ":4: runs: expected"},
		{"[receiver a]\n" KEY "receiver_ids = 1\nrights = all\n", "import, read, not all"},
		{"[receiver a]\n" KEY "receiver_ids = 1\nrights =\n", ":4: "},
		{"[receiver a]\n" KEY "receiver_ids = 1\nrights = ,\n",
			":4: rights: expected at least one of"},
		{"[receiver a]\n" KEY "receiver_ids = 1\n[receiver b]\n" KEY,
			":5: [receiver b] and [receiver a] have the same key"},
		{"[receiver a]\nnothing\n", ":2: "},
		{"[receiver a] b\n" KEY "receiver_ids = 1\n", ":1: expected [section] alone"},
		{"[ ]\n" KEY "receiver_ids = 1\n", ":1: a section name must have"},
		{"[]x\n" KEY "[receiver a]\n" KEY_B "receiver_ids = 1\n", ":1: expected"},
		{"[receiver a]\n" KEY "receiver_ids = 0x10\n",
			":3: receiver_ids: expected numbers"},
		{"[receiver a]\nconnections = 0\n", ":2: connections: expected a number from 1"},
		{"[receiver a]\nconnections = 65\n", "expected a number from 1 to 64"},
		{"[receiver a]\nopen_runs = 0x10\n", ":2: open_runs: expected a number from 1"},
		{"[receiver a]\nopen_runs = 1 2\n", ":2: open_runs: expected a number from 1"},
		{"[receiver a]\nopen_runs =\n", ":2: "},
	};
	unsigned int i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_true(read_text(wrong[i].text) < 0);
		if (strstr(message, wrong[i].says) == NULL)
			fail_msg("%s: expected %s", message, wrong[i].says);
		/* no message contains a key */
		assert_null(strstr(message, "0001020304"));
		assert_null(ring.identity);
	}
}

static void
test_files(void **state)
{
	static const char text[] = "[receiver a]\nkey = a.key\nreceiver_ids = 1\n";
	char link[72];

	write_text(path, text, 0640);
	assert_int_equal(xfer_keyring_read(&ring, path, message), -EACCES);
	assert_non_null(strstr(message, "640"));
	write_text(path, text, 0600);
	write_text(key_path, "0123456789abcdef0123456789abcdef", 0644);
	assert_int_equal(xfer_keyring_read(&ring, path, message), -EINVAL);
	assert_non_null(strstr(message, ":2: key file"));
	assert_int_equal(chmod(key_path, 0600), 0);
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(xfer_keyring_read(&ring, link, message), -ELOOP);
	unlink(link);
	assert_int_equal(xfer_keyring_read(&ring, link, message), -ENOENT);
	assert_int_equal(xfer_keyring_read(&ring, path, message), 0);
	xfer_keyring_free(&ring);
}

/*
 * A flood of warnings is limited to a few lines for each network and for all; the rest is counted.
 */
static void
test_warnings(void **state)
{
	static struct refusal_limit w;
	uint8_t addr[16] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1};
	unsigned int i, nb = 0;

	for (i = 0; i < 100; i++) {
		addr[15] = i;
		nb += refusal_limit_take(&w, addr, 1 + i);
	}
	assert_int_equal(nb, REFUSAL_LIMIT_PER_PREFIX);
	for (i = 0; i < 100; i++) {
		addr[14] = 1 + i;
		nb += refusal_limit_take(&w, addr, 200);
	}
	assert_int_equal(nb, REFUSAL_LIMIT_IN_ALL);
	assert_int_equal(refusal_limit_poll(&w, REFUSAL_LIMIT_MS), 0);
	assert_int_equal(refusal_limit_poll(&w, 1 + REFUSAL_LIMIT_MS), 200 - REFUSAL_LIMIT_IN_ALL);
	assert_true(refusal_limit_take(&w, addr, 2 + REFUSAL_LIMIT_MS));
	assert_int_equal(w.suppressed_ever, 200 - REFUSAL_LIMIT_IN_ALL);
}

/* An identity with many addresses does not displace the entries of other identities. */
static void
test_admission_keeps_entries(void **state)
{
	static struct admission admission;
	const struct admission_peer quiet = {{[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}, 1};
	struct admission_peer busy = {{[10] = 0xff, [11] = 0xff, 10, 1}, 2};
	unsigned int i, known = 0;
	void *evicted;

	admission_proved(
		&admission, admission_enter(&admission, &quiet, &admission, 1, &evicted), 1);
	for (i = 0; i < 2 * ADMISSION_REMEMBERED; i++) {
		busy.addr[14] = i >> 8;
		busy.addr[15] = i;
		admission_proved(&admission,
			admission_enter(&admission, &busy, &admission, 2 + i, &evicted), 2 + i);
	}
	assert_true(admission_knows(&admission, &quiet, 2 + i));
	for (i = 0; i < 2 * ADMISSION_REMEMBERED; i++) {
		busy.addr[14] = i >> 8;
		busy.addr[15] = i;
		known += admission_knows(&admission, &busy, 2 * ADMISSION_REMEMBERED);
	}
	assert_int_equal(known, ADMISSION_PER_IDENTITY);
	/* the most recent ones */
	assert_true(admission_knows(&admission, &busy, 2 * ADMISSION_REMEMBERED));
}

/* Unknown peers leave the last connections to peers that were authenticated before. */
static void
test_admission_reserves(void **state)
{
	static struct admission admission;
	const struct admission_peer known = {{[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}, 1};
	const struct admission_peer unknown = {{[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}, 2};
	void *evicted;

	admission_proved(
		&admission, admission_enter(&admission, &known, &admission, 1, &evicted), 1);
	assert_true(admission_may_take(&admission, &unknown, ADMISSION_KNOWN + 1, 2));
	assert_false(admission_may_take(&admission, &unknown, ADMISSION_KNOWN, 2));
	assert_true(admission_may_take(&admission, &known, ADMISSION_KNOWN, 2));
	assert_true(admission_may_take(&admission, &known, 1, 2));
	assert_false(admission_may_take(&admission, &known, 0, 2));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_unknown_identity),
		cmocka_unit_test(test_reader),
		cmocka_unit_test(test_mistakes),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_warnings),
		cmocka_unit_test(test_admission_keeps_entries),
		cmocka_unit_test(test_admission_reserves),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
