/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "xfer/auth_key.h"

/* Check the owner, mode and size of an open file. */
static int
check_file(const struct stat *st, const char *path, const char *what, size_t min, size_t max,
	char message[PATH_MAX])
{
	if (!S_ISREG(st->st_mode)) {
		snprintf(message, PATH_MAX, "%s %.3000s is not a regular file", what, path);
		return -EINVAL;
	}
	if (st->st_uid != geteuid() && st->st_uid != 0) {
		snprintf(message, PATH_MAX,
			"%s %.3000s: owner is user %u, expected this user (%u) or root", what, path,
			st->st_uid, geteuid());
		return -EACCES;
	}
	if ((st->st_mode & 077) != 0) {
		snprintf(message, PATH_MAX,
			"%s %.3000s: mode is %03o, other users may access it; expected 600 or 400",
			what, path, st->st_mode & 0777);
		return -EACCES;
	}
	if ((uint64_t)st->st_size < min || (uint64_t)st->st_size > max) {
		snprintf(message, PATH_MAX, "%s %.3000s has %lld bytes, expected %zu to %zu", what,
			path, (long long)st->st_size, min, max);
		return -EINVAL;
	}
	return 0;
}

int
xfer_secret_open(const char *path, const char *what, size_t min, size_t max, char message[PATH_MAX])
{
	struct stat st;
	int fd, ret;

	/* O_NONBLOCK: opening a FIFO or a device could block */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		ret = -errno;
		snprintf(message, PATH_MAX, "cannot open %s %.3000s: %s", what, path,
			ret == -ELOOP ? "it is a symbolic link" : strerror(-ret));
		return ret;
	}
	ret = fstat(fd, &st) < 0 ? -errno : 0;
	if (ret < 0)
		snprintf(message, PATH_MAX, "cannot get the status of %s %.3000s: %s", what, path,
			strerror(-ret));
	else
		ret = check_file(&st, path, what, min, max, message);
	if (ret == 0)
		return fd;
	close(fd);
	return ret;
}

int
xfer_key_read(struct xfer_key *key, const char *path, char message[PATH_MAX])
{
	/* one extra byte detects a file that has grown since its size was checked */
	uint8_t bytes[XFER_KEY_MAX + 1];
	const int fd = xfer_secret_open(path, "key file", XFER_KEY_MIN, XFER_KEY_MAX, message);
	size_t size = 0;
	ssize_t n = 1;
	int ret = 0;

	memset(key, 0, sizeof(*key));
	if (fd < 0)
		return fd;
	while (n > 0 && size < sizeof(bytes)) {
		n = read(fd, bytes + size, sizeof(bytes) - size);
		size += n > 0 ? n : 0;
	}
	if (n < 0) {
		ret = -errno;
		snprintf(message, PATH_MAX, "cannot read key file %.3000s: %s", path,
			strerror(-ret));
	} else if (size < XFER_KEY_MIN || size > XFER_KEY_MAX) {
		ret = -EINVAL;
		snprintf(message, PATH_MAX, "key file %.3000s changed while it was read; retry",
			path);
	} else {
		memcpy(key->bytes, bytes, size);
		key->size = size;
	}
	OPENSSL_cleanse(bytes, sizeof(bytes));
	close(fd);
	return ret;
}

void
xfer_key_forget(struct xfer_key *key)
{
	OPENSSL_cleanse(key, sizeof(*key));
}

int
xfer_key_mac(const struct xfer_key *key, const struct xfer_part *parts, unsigned int nb,
	uint8_t mac[XFER_MAC_BYTES])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	EVP_PKEY *pkey;
	size_t size = XFER_MAC_BYTES;
	unsigned int i;
	int ok;

	pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, NULL, key->bytes, key->size);
	if (ctx == NULL || pkey == NULL) {
		EVP_MD_CTX_free(ctx);
		EVP_PKEY_free(pkey);
		return -ENOMEM;
	}
	ok = EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, pkey) == 1;
	for (i = 0; ok && i < nb; i++)
		ok = EVP_DigestSignUpdate(ctx, parts[i].data, parts[i].size) == 1;
	ok = ok && EVP_DigestSignFinal(ctx, mac, &size) == 1 && size == XFER_MAC_BYTES;
	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(pkey);
	return ok ? 0 : -EIO;
}

uint64_t
xfer_key_fingerprint(const struct xfer_key *key)
{
	static const char label[] = "braggline key fingerprint";
	const struct xfer_part part = {label, sizeof(label)};
	uint8_t mac[XFER_MAC_BYTES];
	uint64_t fingerprint = 0;

	if (xfer_key_mac(key, &part, 1, mac) == 0)
		memcpy(&fingerprint, mac, sizeof(fingerprint));
	return fingerprint;
}

int
xfer_digest(const void *data, size_t size, uint8_t digest[XFER_DIGEST_BYTES])
{
	return EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL) == 1 ? 0 : -EIO;
}

bool
xfer_mac_equal(const uint8_t a[XFER_MAC_BYTES], const uint8_t b[XFER_MAC_BYTES])
{
	return CRYPTO_memcmp(a, b, XFER_MAC_BYTES) == 0;
}

int
xfer_random(void *bytes, size_t size)
{
	return RAND_bytes(bytes, (int)size) == 1 ? 0 : -EIO;
}
