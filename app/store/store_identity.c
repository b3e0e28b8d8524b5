/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "direct_io.h"
#include "sink_key.h"
#include "store_identity.h"

#define NAME   ".identity"
#define DIGITS 16

/* As text: 16 hexadecimal digits and the end of a line. @return 0; -ENOENT; -EBADMSG; -errno */
static int
read_identity(const char *path, uint64_t *identity)
{
	char text[DIGITS + 2];
	ssize_t n;
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text));
	rc = n < 0 ? -errno : 0;
	close(fd);
	if (rc < 0)
		return rc;
	if (n != DIGITS + 1 || text[DIGITS] != '\n')
		return -EBADMSG;
	text[DIGITS] = '\0';
	if (strspn(text, "0123456789abcdef") != DIGITS)
		return -EBADMSG;
	*identity = strtoull(text, NULL, 16);
	return *identity != 0 ? 0 : -EBADMSG;
}

static int
write_synced(const char *path, const char *text)
{
	const ssize_t size = (ssize_t)strlen(text);
	int fd, rc = 0;
	ssize_t n;

	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	n = write(fd, text, size);
	if (n != size)
		rc = n < 0 ? -errno : -ENOSPC;
	else if (fsync(fd) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

/* It is there whole or not at all, and receivers hear of none that a power failure takes back. */
static int
make_identity(const char *path, uint64_t *identity)
{
	char part[PATH_MAX], text[DIGITS + 2];
	int rc;

	do {
		rc = sink_random(identity, sizeof(*identity));
	} while (rc == 0 && *identity == 0);
	if (rc < 0)
		return rc;
	if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	snprintf(text, sizeof(text), "%016" PRIx64 "\n", *identity);
	rc = write_synced(part, text);
	if (rc == 0 && rename(part, path) < 0)
		rc = -errno;
	return rc == 0 ? direct_io.sync_dir(path) : rc;
}

static int
work(const char *dir, bool make, uint64_t *identity, char message[PATH_MAX])
{
	char path[PATH_MAX];
	int rc;

	if (snprintf(path, sizeof(path), "%s/" NAME, dir) >= (int)sizeof(path))
		rc = -ENAMETOOLONG;
	else
		rc = read_identity(path, identity);
	if (rc == -ENOENT && make)
		rc = make_identity(path, identity);
	if (rc < 0)
		snprintf(message, PATH_MAX,
			rc == -EBADMSG
				? "%.3000s/" NAME ": %s: wanted 16 hexadecimal digits. Put back "
				  "what receivers knew this store by (retention rings have it), or "
				  "remove it for a new one"
				: "%.3000s/" NAME ": %s",
			dir, strerror(-rc));
	return rc;
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
