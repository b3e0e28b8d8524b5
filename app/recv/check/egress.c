/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: the path to the stores. */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <rte_errno.h>

#include "check/check.h"
#include "check/egress.h"
#include "check/memory.h"
#include "egress/egress.h"
#include "settings.h"
#include "rdma/rdma.h"
#include "xfer/auth_key.h"
#include "egress/spill.h"
#include "port/gang_memory.h"
#include "stream/writer.h"

/* Number of slots of an existing journal that the gangs could use. */
static uint32_t
count_free_slots(const struct check_egress *e)
{
	const struct journal_probe *p = &e->journal;

	return p->slot_bytes == e->slots.bytes ? p->slots - p->slots_held : 0;
}

void
check_probe_journal(struct check_egress *e, const struct settings *s)
{
	const struct journal_config config = {
		.path = s->egress->journal,
		.receiver_id = s->receiver_id,
		.bytes = s->egress->journal_bytes,
		.slot_bytes = e->slots.bytes,
		.slots = e->slots.n,
	};

	e->journal_error = journal_probe(&config, &e->journal, e->journal_message);
	e->lacks_slots = e->journal_error == 0 && e->slots.n > 0 && e->journal.adopts &&
		count_free_slots(e) < s->outputs;
}

void
check_parse_stores(struct check_egress *e, const struct settings *s)
{
	e->stores = (struct store_set){0};
	if (egress_stores_parse(s->egress, &e->stores, e->no_stores) == 0)
		e->no_stores[0] = '\0';
}

void
check_open_egress(struct check_egress *e, const struct settings *s, enum gk_memory results)
{
	struct check_heap before, after;
	struct rdma_dev_info info;

	*e = (struct check_egress){0};
	if (s->egress->device == NULL)
		return;
	e->slots = egress_slots_choose(s, results);
	check_probe_journal(e, s);
	check_parse_stores(e, s);
	check_find_heap(&before);
	e->dev = rdma_dev_open(s->egress->device);
	if (e->dev == NULL) {
		e->error = rte_errno != 0 ? -rte_errno : -EIO;
		return;
	}
	check_find_heap(&after);
	if (after.taken > before.taken)
		e->heap = after.taken - before.taken;
	(void)rdma_dev_info_get(e->dev, &info);
	e->pins = strcmp(info.provider, "verbs") == 0;
	if (e->no_stores[0] == '\0')
		(void)egress_stores_check(&e->stores, e->dev, e->no_route);
}

void
check_close_egress(struct check_egress *e)
{
	if (e->dev != NULL)
		(void)rdma_dev_close(e->dev);
	e->dev = NULL;
}

void
check_egress_device(struct check *c, const struct settings *s, const struct check_egress *e)
{
	if (e->error == 0) {
		check_add(c, CHECK_OK, "egress device", "%s", s->egress->device);
		return;
	}
	check_add(c, CHECK_FAIL, "egress device", "%s: %s", s->egress->device,
		rte_strerror(-e->error));
	if (e->error == -ECONNREFUSED)
		check_fix(
			c, "start the store first: the receiver's memif is the client, see above");
	else
		check_fix(c,
			"see the provider's messages above; [egress] device = "
			"roce:port=PORT,ip=ADDRESS/PREFIX, or verbs:ADAPTER");
}

void
check_egress_stores(struct check *c, const struct check_egress *e)
{
	char text[256] = "";
	size_t at = 0;

	if (e->no_stores[0] != '\0') {
		check_add(c, CHECK_FAIL, "egress stores", "%s", e->no_stores);
		check_fix(c,
			"[egress] stores = ADDRESS[:PORT],...: IPv4, or IPv6 in brackets; host "
			"names are not resolved");
		return;
	}
	if (e->no_route[0] != '\0') {
		check_add(c, CHECK_FAIL, "egress stores", "%s", e->no_route);
		check_fix(c,
			"[egress] device = ...,gateway=ADDRESS of a router, or an ip= in the "
			"subnet of the store");
		return;
	}
	for (unsigned int i = 0; i < e->stores.nb && at < sizeof(text); i++)
		at += snprintf(text + at, sizeof(text) - at, "%s%s", i == 0 ? "" : ", ",
			e->stores.at[i].address);
	check_add(c, CHECK_OK, "egress stores", "%s; not connected to by --check", text);
}

void
check_egress_key(struct check *c, const struct settings *s)
{
	char message[PATH_MAX];
	struct xfer_key key;

	if (xfer_key_read(&key, s->egress->key, message) != 0) {
		check_add(c, CHECK_FAIL, "egress key", "%s", message);
		check_fix(c,
			"head -c 64 /dev/urandom > KEY; chmod 600 KEY; the owner must be this "
			"user, and the bytes those of [receiver %s] in the keyrings of all stores",
			s->egress->identity);
		return;
	}
	check_add(c, CHECK_OK, "egress key", "%s, %zu bytes", s->egress->key, key.size);
	xfer_key_forget(&key);
}

/* Return the number of MiB that the journal must have. */
static uint64_t
need_mib(const struct egress_settings *e, char text[256])
{
	return (egress_ring_need(e, text, 256) + (1 << 20) - 1) >> 20;
}

static void
add_journal_error(struct check *c, const struct check_egress *e)
{
	const int ret = e->journal_error;

	check_add(c, CHECK_FAIL, "journal", "%s", e->journal_message);
	if (ret == -EPERM || ret == -ELOOP || ret == -EISDIR || ret == -EMEDIUMTYPE)
		check_fix(c,
			"another user may have created it: remove it if it is not this "
			"receiver's, or set [egress] journal = a path in a folder that only this "
			"user can write to");
	else
		check_fix(c,
			"[egress] journal = a path in a tmpfs (/dev/shm) or hugetlbfs, a "
			"different one for each [output] receiver_id");
}

/* Its file system cannot have all of the file. */
static void
add_full_file_system(struct check *c, const struct egress_settings *s, const struct check_egress *e)
{
	const struct journal_probe *p = &e->journal;
	char text[256], want[16], have[16], area[16];

	check_print_bytes(p->file, want);
	check_print_bytes(p->free, have);
	if (p->adopts) {
		check_add(c, CHECK_FAIL, "journal",
			"%s, existing, is sparse: needs %s, its file system has %s for it",
			s->journal, want, have);
		check_fix(c, "mount -o remount,size=... of its tmpfs, or more huge pages");
		return;
	}
	check_print_bytes(e->slots.n * e->slots.bytes, area);
	check_add(c, CHECK_FAIL, "journal", "%s: needs %s%s%s, its file system has %s free",
		s->journal, want, e->slots.n > 0 ? ", for output slots " : "",
		e->slots.n > 0 ? area : "", have);
	check_fix(c,
		"mount -o remount,size=... of its tmpfs, or more huge pages; or [egress] "
		"journal = a path in a larger one (/dev/shm); or journal_mib = "
		"%" PRIu64 ", which is sufficient%s",
		need_mib(s, text), e->slots.n > 0 ? ", or fewer journal_slots" : "");
}

/*
 * Add a row if an existing journal has no free output slots beyond those of the gangs.
 * @return false: it has some
 */
static bool
add_slots(struct check *c, const struct settings *s, const struct check_egress *e)
{
	const char *copied = e->lacks_slots
		? "kept frames are copied, and [gpu] outputs take EAL memory, until the end of the "
		  "process"
		: "kept frames are copied";
	const struct journal_probe *p = &e->journal;
	const char *path = s->egress->journal;

	if (e->slots.n == 0 || !p->adopts || count_free_slots(e) > s->outputs)
		return false;
	if (p->slot_bytes == e->slots.bytes && p->slots > s->outputs) {
		check_add(c, CHECK_WARN, "journal",
			"%s, existing, will be resumed; its batches have %" PRIu32 " of its "
			"%" PRIu32 " output slots, [gpu] outputs = %" PRIu32 ": %s%s",
			path, p->slots_held, p->slots, s->outputs, copied,
			e->lacks_slots ? "" : " until stores have batches");
		check_fix(c,
			"start the receiver when stores have more of its batches; for more output "
			"slots, remove the file when they have all");
		return true;
	}
	if (p->slots == 0)
		check_add(c, CHECK_WARN, "journal",
			"%s, existing, will be resumed; it has no output slots, expected more "
			"than %" PRIu32 " of %" PRIu64 " bytes: %s",
			path, s->outputs, e->slots.bytes, copied);
	else
		check_add(c, CHECK_WARN, "journal",
			"%s, existing, will be resumed; it has %" PRIu32 " output slots of "
			"%" PRIu64 " bytes, expected more than [gpu] outputs = %" PRIu32
			" of %" PRIu64 ": %s",
			path, p->slots, p->slot_bytes, s->outputs, e->slots.bytes, copied);
	check_fix(c,
		"an existing journal is not resized: remove the file when stores have its "
		"batches, after a run that has ended; or [egress] journal_slots = 0");
	return true;
}

void
check_journal(struct check *c, const struct settings *settings, const struct check_egress *e)
{
	const struct egress_settings *s = settings->egress;
	const struct journal_probe *p = &e->journal;
	char text[256], size[sizeof(text) + 64];
	const uint64_t need = egress_ring_need(s, text, sizeof(text));

	if (e->journal_error != 0) {
		add_journal_error(c, e);
		return;
	}
	snprintf(size, sizeof(size), "%" PRIu64 " MiB; required: %s", p->room >> 20, text);
	if (p->room < need) {
		check_add(c, CHECK_FAIL, "journal", "%s: %s", s->journal, size);
		if (p->adopts)
			check_fix(c,
				"an existing journal is not resized: if it has batches, finish a "
				"run with the old rate_mb_per_s; then remove the file, and set "
				"[egress] journal_mib = %" PRIu64 " or more",
				need_mib(s, text));
		else
			check_fix(c, "[egress] journal_mib = %" PRIu64 ", or a lower rate_mb_per_s",
				need_mib(s, text));
	} else if (p->file > p->free) {
		add_full_file_system(c, s, e);
	} else if (p->adopts && egress_size_is_ignored(s, p->room)) {
		check_add(c, CHECK_WARN, "journal",
			"%s, existing, will be resumed: %s; journal_mib = %" PRIu64
			" has no effect",
			s->journal, size, s->journal_bytes >> 20);
		check_fix(c,
			"an existing journal is not resized: remove the file when stores have its "
			"batches, after a run that has ended");
	} else if (!add_slots(c, settings, e)) {
		check_add(c, CHECK_OK, "journal", "%s%s: %s", s->journal,
			p->adopts ? ", existing, will be resumed" : "", size);
	}
}

void
check_spill(struct check *c, const struct settings *s)
{
	const struct egress_settings *e = s->egress;
	struct stream_quota quota = {
		.limit = e->spill_bytes, .root = e->spill, .receiver_id = s->receiver_id};
	char message[PATH_MAX], have[16], bytes[16], used[16];
	struct statvfs fs;
	uint64_t space, want;
	bool made;
	int ret;

	if (e->spill == NULL) {
		check_add(c, CHECK_NA, "spill directory",
			"none: batches that no store accepts are refused when the journal is full");
		return;
	}
	made = access(e->spill, F_OK) != 0;
	ret = spill_make_folder(e->spill, message);
	if (ret == 0 && statvfs(e->spill, &fs) != 0) {
		ret = -errno;
		snprintf(message, sizeof(message), "%.3000s: %s", e->spill, strerror(-ret));
	}
	if (made)
		rmdir(e->spill);
	if (ret != 0) {
		check_add(c, CHECK_FAIL, "spill directory", "%s", message);
		check_fix(c,
			"mkdir -p %s, owned by this user and not writable for others; or another "
			"[egress] spill",
			e->spill);
		return;
	}
	space = (uint64_t)fs.f_bavail * fs.f_frsize;
	check_print_bytes(space, have);
	/*
	 * Files that are not imported yet count. Without a limit, expect as many bytes as the
	 * journal holds.
	 */
	stream_quota_renew(&quota, NULL);
	check_print_bytes(quota.used, used);
	want = quota.limit == 0 ? e->journal_bytes : quota.limit - RTE_MIN(quota.used, quota.limit);
	if (want == 0) {
		check_add(c, CHECK_WARN, "spill directory",
			"%s: %s not imported yet, the limit spill_mib is reached", e->spill, used);
		check_fix(c, "run braggline-store import, or raise [egress] spill_mib");
		return;
	}
	if (space < want) {
		check_add(c, CHECK_WARN, "spill directory", "%s: %s free, less than %s (%s)",
			e->spill, have,
			quota.limit != 0 ? "the limit spill_mib" : "the size of the journal",
			check_print_bytes(want, bytes));
		check_fix(c, "free disk space, or set another [egress] spill directory");
		return;
	}
	check_add(c, CHECK_OK, "spill directory", "%s%s: %s free, %" PRIu64 " s at rate_mb_per_s",
		e->spill, made ? ", will be created" : "", have,
		(quota.limit != 0 ? want : space) / e->rate);
}

void
check_egress(struct check *c, const struct settings *s, const struct check_egress *e)
{
	/* without a device, files are written locally */
	if (s->egress->device == NULL)
		return;
	check_egress_device(c, s, e);
	check_egress_stores(c, e);
	check_egress_key(c, s);
	check_journal(c, s, e);
	check_spill(c, s);
}
