/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests proofs of multicast members against those of a sender with a keyring. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "ingest/multicast_proof.h"

#define KEY_A "0123456789abcdef0123456789abcdef"
#define KEY_B "abcdef0123456789abcdef0123456789"
#define KEY_C "fedcba9876543210fedcba9876543210"

static char dir[] = "/dev/shm/braggline-proof-test-XXXXXX";
static char keyring[64], key_a[64], key_b[64], key_c[64];

static void
write_secret(char *path, const char *name, const char *text, mode_t mode)
{
	int fd;

	snprintf(path, 64, "%s/%s", dir, name);
	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int
setup(void **state)
{
	assert_non_null(mkdtemp(dir));
	write_secret(key_a, "a.key", KEY_A, 0600);
	write_secret(key_b, "b.key", KEY_B, 0600);
	write_secret(key_c, "c.key", KEY_C, 0600);
	write_secret(keyring, "keys.ini",
		"[receiver a]\nkey = a.key\nkey_next = c.key\nreceiver_ids = 1\n"
		"[receiver b]\nkey = b.key\nreceiver_ids = 2\n",
		0600);
	return 0;
}

static int
teardown(void **state)
{
	unlink(key_a);
	unlink(key_b);
	unlink(key_c);
	unlink(keyring);
	rmdir(dir);
	return 0;
}

static struct ingest_proof *
member(const char *identity, const char *key)
{
	struct ingest_proof *p = NULL;
	char message[PATH_MAX] = "";

	assert_int_equal(ingest_proof_member(&p, identity, key, message), 0);
	return p;
}

static int
code(const struct ingest_proof *p, uint64_t identity, unsigned int key, const char *text,
	uint8_t mac[32])
{
	const struct rdma_stream_proof *stream = ingest_proof_stream(p);

	return stream->mac(stream->arg, identity, key, text, (uint32_t)strlen(text), mac);
}

/* Key of an identity with which the sender computes the code that the member sends for itself. */
static int
agrees(const struct ingest_proof *sender, const struct ingest_proof *m, const char *heard)
{
	uint8_t theirs[32], ours[32];
	int found = -1;

	assert_int_equal(code(m, ingest_proof_identity(m), 0, "transcript", theirs), 0);
	assert_int_equal(ingest_proof_stream(sender)->keys, 2);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(code(sender, ingest_proof_identity(m), i, heard, ours), 0);
		if (memcmp(theirs, ours, sizeof(ours)) == 0)
			found = i;
	}
	return found;
}

static void
only_the_right_key_of_an_identity_agrees(void **state)
{
	struct ingest_proof *sender = NULL;
	struct ingest_proof *a = member("a", key_a), *b = member("b", key_b);
	struct ingest_proof *thief = member("a", key_b), *stranger = member("c", key_a);
	struct ingest_proof *next = member("a", key_c);
	char message[PATH_MAX] = "";

	assert_int_equal(ingest_proof_sender(&sender, keyring, message), 0);
	assert_int_equal(agrees(sender, a, "transcript"), 0);
	assert_int_equal(agrees(sender, b, "transcript"), 0);
	assert_int_equal(agrees(sender, next, "transcript"), 1);
	assert_int_equal(agrees(sender, a, "transcripu"), -1);
	assert_int_equal(agrees(sender, thief, "transcript"), -1);
	assert_int_equal(agrees(sender, stranger, "transcript"), -1);
	ingest_proof_destroy(sender);
	ingest_proof_destroy(a);
	ingest_proof_destroy(b);
	ingest_proof_destroy(next);
	ingest_proof_destroy(thief);
	ingest_proof_destroy(stranger);
	ingest_proof_destroy(NULL);
}

/* A member proves only itself, with its only key. */
static void
another_identity_is_refused(void **state)
{
	struct ingest_proof *a = member("a", key_a);
	uint8_t mac[32];

	assert_int_equal(code(a, ingest_proof_identity(a) + 1, 0, "x", mac), -ENOENT);
	assert_int_equal(code(a, ingest_proof_identity(a), 1, "x", mac), -ENOKEY);
	ingest_proof_destroy(a);
}

static void
wrong_names_and_files_are_reported(void **state)
{
	struct ingest_proof *p = NULL;
	char message[PATH_MAX] = "", open_key[64], empty[64], longest[80];

	memset(longest, 'a', sizeof(longest));
	longest[79] = '\0';
	assert_int_equal(ingest_proof_member(&p, "", key_a, message), -EINVAL);
	assert_int_equal(ingest_proof_member(&p, "a/b", key_a, message), -EINVAL);
	assert_int_equal(ingest_proof_member(&p, longest, key_a, message), -EINVAL);
	assert_non_null(strstr(message, "expected a name of at most 63"));

	write_secret(open_key, "open.key", KEY_A, 0644);
	assert_int_equal(chmod(open_key, 0644), 0);
	assert_int_equal(ingest_proof_member(&p, "a", open_key, message), -EACCES);
	assert_non_null(strstr(message, "expected 600 or 400"));
	unlink(open_key);
	assert_int_equal(ingest_proof_member(&p, "a", open_key, message), -ENOENT);

	write_secret(empty, "empty.ini", "; none\n", 0600);
	assert_int_equal(ingest_proof_sender(&p, empty, message), -EINVAL);
	assert_non_null(strstr(message, "no [receiver NAME]"));
	unlink(empty);
	assert_int_equal(ingest_proof_sender(&p, empty, message), -ENOENT);
	assert_null(p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_right_key_of_an_identity_agrees),
		cmocka_unit_test(another_identity_is_refused),
		cmocka_unit_test(wrong_names_and_files_are_reported),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
