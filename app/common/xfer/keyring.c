/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "config/ini_file.h"
#include "whole_number.h"
#include "xfer/msg.h"
#include "xfer/keyring.h"

#define FILE_MAX   (1u << 20) /* maximum size of a keyring, bytes */
#define MISTAKE	   1024
#define SECTION	   "receiver "
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* Keys that a section has had. */
enum seen {
	SEEN_KEY = 1 << 0,
	SEEN_KEY_NEXT = 1 << 1,
	SEEN_RECEIVER_IDS = 1 << 2,
	SEEN_RUNS = 1 << 3,
	SEEN_RIGHTS = 1 << 4,
	SEEN_CONNECTIONS = 1 << 5,
	SEEN_OPEN_RUNS = 1 << 6,
};

struct parser {
	struct xfer_keyring *ring;
	const char *path;
	struct xfer_identity *identity; /* identity of the current section */
	unsigned int seen;
	unsigned int line; /* line of the error */
	char mistake[MISTAKE];
};

#define mistake(p, ...) (snprintf((p)->mistake, sizeof((p)->mistake), __VA_ARGS__), -EINVAL)

/* Check that a section has the required keys. The others have defaults. */
static int
end_section(struct parser *p)
{
	struct xfer_identity *id = p->identity;

	if (id == NULL)
		return 0;
	if ((p->seen & SEEN_KEY) == 0)
		return mistake(p, "[receiver %s]: key is missing; expected key = FILE", id->name);
	/* an identity that only reads has no receivers */
	if ((p->seen & SEEN_RECEIVER_IDS) == 0 && id->rights != XFER_RIGHT_READ)
		return mistake(p,
			"[receiver %s]: receiver_ids is missing; expected receiver_ids = 1,5-8, "
			"or rights = read",
			id->name);
	if (id->nb_runs == 0)
		strcpy(id->run[id->nb_runs++], "*");
	if ((p->seen & SEEN_RIGHTS) == 0)
		id->rights = XFER_RIGHT_WRITE | XFER_RIGHT_RECONCILE;
	return 0;
}

static int
begin_section(struct parser *p, const char *section)
{
	struct xfer_keyring *k = p->ring;
	const char *name = section + strlen(SECTION);
	struct xfer_identity *id;
	unsigned int i;
	int ret = end_section(p);

	if (ret < 0)
		return ret;
	if (strncmp(section, SECTION, strlen(SECTION)) != 0)
		return mistake(p, "[%s]: expected [receiver NAME]", section);
	if (k->nb == XFER_KEYRING_IDENTITIES)
		return mistake(p, "more than %u identities, the limit", XFER_KEYRING_IDENTITIES);
	id = &k->identity[k->nb];
	/* the name of a section fits */
	snprintf(id->name, sizeof(id->name), "%s", name);
	if (!xfer_name_check(id->name))
		return mistake(
			p, "[%s]: expected a name of letters, digits, '-', '_' and '.'", section);
	id->id = xfer_identity_id(id->name);
	if (id->id == 0)
		return -EIO;
	for (i = 0; i < k->nb; i++) {
		if (k->identity[i].id == id->id)
			return mistake(p, "[%s]: this name is used twice%s", section,
				strcmp(k->identity[i].name, id->name) == 0
					? ""
					: " (same hash); use another name");
	}
	k->nb++;
	p->identity = id;
	p->seen = 0;
	id->connections = XFER_IDENTITY_LIMIT;
	id->open_runs = XFER_IDENTITY_LIMIT;
	return 0;
}

static int
read_hex(struct xfer_key *key, const char *hex)
{
	unsigned char *bytes;
	long size = 0;
	int ret = -EINVAL;

	if (strlen(hex) % 2 != 0 || strspn(hex, "0123456789abcdefABCDEF") != strlen(hex))
		return ret;
	bytes = OPENSSL_hexstr2buf(hex, &size);
	if (bytes == NULL)
		return ret;
	if (size >= XFER_KEY_MIN && size <= XFER_KEY_MAX) {
		memcpy(key->bytes, bytes, size);
		key->size = size;
		ret = 0;
	}
	OPENSSL_clear_free(bytes, size);
	return ret;
}

/* Check that no other identity has a key. Its holder could act for both. */
static int
check_own_key(struct parser *p, unsigned int at)
{
	const struct xfer_keyring *k = p->ring;
	const struct xfer_identity *id = p->identity;
	unsigned int i, n;

	for (i = 0; i < k->nb; i++) {
		for (n = 0; n < XFER_IDENTITY_KEYS; n++) {
			if (&k->identity[i] != id &&
				k->identity[i].fingerprint[n] == id->fingerprint[at])
				return mistake(p,
					"[receiver %s] and [receiver %s] have the same key; each "
					"identity needs its own",
					id->name, k->identity[i].name);
		}
	}
	return 0;
}

/* Read a key: from a file, relative to the keyring's folder, or as hexadecimal digits. */
static int
read_key(struct parser *p, unsigned int at, const char *value)
{
	struct xfer_key *key = &p->identity->key[at];
	const char *slash = strrchr(p->path, '/');
	char path[PATH_MAX], message[PATH_MAX];

	if (strncmp(value, "hex:", 4) == 0) {
		/* the message does not repeat the value, which is a secret */
		if (read_hex(key, value + 4) < 0)
			return mistake(p, "expected a key of %u to 125 bytes as hexadecimal digits",
				XFER_KEY_MIN);
	} else {
		if (snprintf(path, sizeof(path), "%.*s%s",
			    value[0] == '/' || slash == NULL ? 0 : (int)(slash - p->path + 1),
			    p->path, value) >= (int)sizeof(path))
			return mistake(p, "path of the key is too long");
		if (xfer_key_read(key, path, message) < 0)
			return mistake(p, "%.900s", message);
	}
	p->identity->fingerprint[at] = xfer_key_fingerprint(key);
	return p->identity->fingerprint[at] != 0 ? check_own_key(p, at) : -EIO;
}

/* Add receivers. Each belongs to one identity only, which alone may send its runs. */
static int
add_receiver_ids(struct parser *p, uint64_t first, uint64_t last)
{
	const struct xfer_keyring *k = p->ring;
	struct xfer_identity *id = p->identity;
	unsigned int i, n;

	for (i = 0; i < k->nb; i++) {
		const struct xfer_identity *other = &k->identity[i];

		for (n = 0; n < other->nb_receiver_ids; n++) {
			if (first <= other->receiver_id[n].last &&
				last >= other->receiver_id[n].first)
				return mistake(p,
					"[receiver %s] and [receiver %s] have a receiver_id in "
					"common; each receiver_id must belong to one identity",
					id->name, other->name);
		}
	}
	if (id->nb_receiver_ids == XFER_IDENTITY_RECEIVER_IDS)
		return mistake(p, "more than %u ranges of receiver_ids, the limit",
			XFER_IDENTITY_RECEIVER_IDS);
	id->receiver_id[id->nb_receiver_ids++] = (struct xfer_interval){first, last};
	return 0;
}

static int
read_receiver_ids(struct parser *p, const char *value)
{
	uint64_t first, last;
	int ret = 0;

	do {
		value += strspn(value, " ");
		/* decimal, even with a leading 0 */
		value = whole_number_read(value, 10, &first);
		if (value == NULL)
			goto wrong;
		last = first;
		if (*value == '-') {
			value++;
			value = whole_number_read(value, 10, &last);
			if (value == NULL)
				goto wrong;
		}
		value += strspn(value, " ");
		if (last < first || (*value != ',' && *value != '\0'))
			goto wrong;
		ret = add_receiver_ids(p, first, last);
	} while (ret == 0 && *value++ == ',');
	return ret;
wrong:
	return mistake(p, "receiver_ids: expected numbers and ranges: 1,5-8");
}

/* Get the next word of a list. @return its length; 0: none */
static size_t
next_word(const char **list, const char **word)
{
	size_t size;

	*list += strspn(*list, ", ");
	size = strcspn(*list, ", ");
	*word = *list;
	*list += size;
	return size;
}

static int
read_runs(struct parser *p, const char *value)
{
	struct xfer_identity *id = p->identity;
	const char *word;
	size_t size;

	while ((size = next_word(&value, &word)) > 0) {
		if (size >= XFER_NAME_BYTES || strspn(word, NAME_CHARS "*?") < size)
			return mistake(
				p, "runs: expected names with * and ?, not %.*s", (int)size, word);
		if (id->nb_runs == XFER_IDENTITY_RUNS)
			return mistake(
				p, "runs: more than %u patterns, the limit", XFER_IDENTITY_RUNS);
		memcpy(id->run[id->nb_runs++], word, size);
	}
	return id->nb_runs > 0 ? 0 : mistake(p, "runs: expected names with * and ?");
}

static int
read_rights(struct parser *p, const char *value)
{
	static const char *const names[] = {"write", "reconcile", "import", "read"};
	const char *word;
	unsigned int i;
	size_t size;

	while ((size = next_word(&value, &word)) > 0) {
		for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			if (strlen(names[i]) == size && memcmp(names[i], word, size) == 0)
				break;
		}
		if (i == sizeof(names) / sizeof(names[0]))
			return mistake(p,
				"rights: expected write, reconcile, import, read, not %.*s",
				(int)size, word);
		p->identity->rights |= 1 << i;
	}
	if (p->identity->rights == 0)
		return mistake(
			p, "rights: expected at least one of write, reconcile, import, read");
	return 0;
}

/* Read an identity's limit of a shared resource. */
static int
read_limit(struct parser *p, const char *key, const char *value, uint32_t most, uint32_t *limit)
{
	uint64_t number;

	if (!whole_number(value, 1, most, &number))
		return mistake(p, "%s: expected a number from 1 to %u", key, most);
	*limit = number;
	return 0;
}

static int
take_key(struct parser *p, const char *key, const char *value)
{
	static const char *const names[] = {
		"key", "key_next", "receiver_ids", "runs", "rights", "connections", "open_runs"};
	unsigned int i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(key, names[i]) == 0)
			break;
	}
	if (i == sizeof(names) / sizeof(names[0]))
		return mistake(p,
			"%s: expected key, key_next, receiver_ids, runs, rights, "
			"connections or open_runs",
			key);
	if ((p->seen & 1u << i) != 0)
		return mistake(p, "%s: this key is set twice", key);
	p->seen |= 1u << i;
	switch ((enum seen)(1u << i)) {
	case SEEN_KEY:
		return read_key(p, 0, value);
	case SEEN_KEY_NEXT:
		return read_key(p, 1, value);
	case SEEN_RECEIVER_IDS:
		return read_receiver_ids(p, value);
	case SEEN_RUNS:
		return read_runs(p, value);
	case SEEN_RIGHTS:
		return read_rights(p, value);
	case SEEN_CONNECTIONS:
		return read_limit(
			p, key, value, XFER_KEYRING_CONNECTIONS, &p->identity->connections);
	default:
		return read_limit(p, key, value, XFER_KEYRING_RUNS, &p->identity->open_runs);
	}
}

static int
on_line(void *arg, unsigned int line, const char *section, const char *key, const char *value)
{
	struct parser *p = arg;

	p->line = line;
	return key[0] == '\0' ? begin_section(p, section) : take_key(p, key, value);
}

/* Create a random key. */
static int
make_random(struct xfer_key *key)
{
	key->size = XFER_KEY_MIN;
	return xfer_random(key->bytes, key->size);
}

/* Compute the digest of the content, without the random keys. */
static int
finish(struct xfer_keyring *k)
{
	struct {
		uint8_t before[XFER_DIGEST_BYTES];
		struct xfer_identity identity;
	} part;
	unsigned int i;
	int ret = 0;

	memset(&part, 0, sizeof(part));
	for (i = 0; i < k->nb && ret == 0; i++) {
		memcpy(part.before, k->digest, sizeof(part.before));
		part.identity = k->identity[i];
		ret = xfer_digest(&part, sizeof(part), k->digest);
		if (ret == 0 && k->identity[i].fingerprint[1] == 0)
			ret = make_random(&k->identity[i].key[1]);
	}
	xfer_identity_forget(&part.identity);
	for (i = 0; i < XFER_IDENTITY_KEYS && ret == 0; i++)
		ret = make_random(&k->nobody.key[i]);
	return ret;
}

int
xfer_keyring_parse(struct xfer_keyring *k, FILE *f, const char *path, char message[PATH_MAX])
{
	struct parser p = {.ring = k, .path = path};
	int ret;

	memset(k, 0, sizeof(*k));
	k->identity = calloc(XFER_KEYRING_IDENTITIES, sizeof(*k->identity));
	if (k->identity == NULL) {
		snprintf(message, PATH_MAX, "keyring %.3000s: cannot allocate memory", path);
		return -ENOMEM;
	}
	ret = ini_stream_read(f, path, on_line, &p, message, PATH_MAX);
	if (ret == 0)
		ret = end_section(&p);
	if (ret == 0 && k->nb == 0)
		ret = mistake(&p, "no [receiver NAME]: no receiver could connect");
	if (p.mistake[0] != '\0')
		snprintf(message, PATH_MAX, "%.2500s:%u: %.1000s", path, p.line, p.mistake);
	if (ret == 0) {
		ret = finish(k);
		if (ret < 0)
			snprintf(message, PATH_MAX, "keyring %.3000s: libcrypto failed", path);
	}
	if (ret < 0)
		xfer_keyring_free(k);
	return ret;
}

int
xfer_keyring_read(struct xfer_keyring *k, const char *path, char message[PATH_MAX])
{
	const int fd = xfer_secret_open(path, "keyring", 1, FILE_MAX, message);
	FILE *f;
	int ret;

	memset(k, 0, sizeof(*k));
	if (fd < 0)
		return fd;
	f = fdopen(fd, "r");
	if (f == NULL) {
		close(fd);
		snprintf(message, PATH_MAX, "keyring %.3000s: cannot allocate memory", path);
		return -ENOMEM;
	}
	ret = xfer_keyring_parse(k, f, path, message);
	fclose(f);
	return ret;
}

void
xfer_keyring_free(struct xfer_keyring *k)
{
	if (k->identity != NULL)
		OPENSSL_cleanse(k->identity, k->nb * sizeof(*k->identity));
	free(k->identity);
	OPENSSL_cleanse(k, sizeof(*k));
}

const struct xfer_identity *
xfer_keyring_find(const struct xfer_keyring *k, uint64_t id)
{
	const struct xfer_identity *found = &k->nobody;
	unsigned int i;

	/* compare with all, for constant time */
	for (i = 0; i < k->nb; i++) {
		if (k->identity[i].id == id)
			found = &k->identity[i];
	}
	return found;
}

const struct xfer_identity *
xfer_keyring_check(const struct xfer_keyring *k, const char *name, uint64_t fingerprint)
{
	unsigned int i, n;

	for (i = 0; i < k->nb; i++) {
		if (strcmp(k->identity[i].name, name) != 0)
			continue;
		for (n = 0; n < XFER_IDENTITY_KEYS; n++) {
			if (fingerprint != 0 && k->identity[i].fingerprint[n] == fingerprint)
				return &k->identity[i];
		}
	}
	return NULL;
}
