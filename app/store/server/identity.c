/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/durable_file.h"
#include "io/own_file.h"
#include "xfer/auth_key.h"
#include "server/identity.h"

#define NAME   ".identity"
#define DIGITS 16

/* Read the file: 16 hexadecimal digits and a newline. @return 0; -ENOENT; -EBADMSG; -errno */
static int
read_identity(const char *path, uint64_t *identity, char message[PATH_MAX])
{
	char text[DIGITS + 2];
	ssize_t n;
	int fd, ret;

	fd = own_file_open(AT_FDCWD, path, O_RDONLY, 0);
	if (fd < 0) {
		snprintf(message, PATH_MAX, "%.3000s: %s", path, own_file_error(fd));
		return fd;
	}
	ret = own_file_check(fd, path, 022, message);
	n = read(fd, text, sizeof(text));
	close(fd);
	if (ret < 0)
		return ret;
	if (n == DIGITS + 1 && text[DIGITS] == '\n') {
		text[DIGITS] = '\0';
		*identity = strtoull(text, NULL, 16);
		if (strspn(text, "0123456789abcdef") == DIGITS && *identity != 0)
			return 0;
	}
	snprintf(message, PATH_MAX,
		"%.3000s: %s: expected 16 hexadecimal digits. Restore the identity by which "
		"receivers know this store (their journals have it), or remove the file to get a "
		"new one",
		path, strerror(EBADMSG));
	return -EBADMSG;
}

/*
 * Create the file atomically and durably, so that a power failure cannot revert an identity known
 * to receivers.
 */
static int
make_identity(const char *path, uint64_t *identity, char message[PATH_MAX])
{
	char text[DIGITS + 2];
	int ret;

	do {
		ret = xfer_random(identity, sizeof(*identity));
	} while (ret == 0 && *identity == 0);
	snprintf(text, sizeof(text), "%016" PRIx64 "\n", *identity);
	if (ret == 0)
		ret = durable_file_replace(path, text, DIGITS + 1);
	if (ret < 0)
		snprintf(message, PATH_MAX, "%.3000s: %s", path, strerror(-ret));
	return ret;
}

static int
work(const char *dir, bool make, uint64_t *identity, char message[PATH_MAX])
{
	char path[PATH_MAX];
	int ret;

	if (snprintf(path, sizeof(path), "%s/" NAME, dir) >= (int)sizeof(path)) {
		snprintf(message, PATH_MAX, "%.3000s: %s", dir, strerror(ENAMETOOLONG));
		return -ENAMETOOLONG;
	}
	ret = read_identity(path, identity, message);
	return ret == -ENOENT && make ? make_identity(path, identity, message) : ret;
}

int
store_identity(const char *dir, uint64_t *identity, char message[PATH_MAX])
{
	return work(dir, true, identity, message);
}

int
store_identity_read(const char *dir, uint64_t *identity, char message[PATH_MAX])
{
	return work(dir, false, identity, message);
}
