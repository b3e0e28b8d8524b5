/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "clock.h"
#include "eal/process_cpus.h"
#include "io/durable_file.h"
#include "io/own_file.h"
#include "log.h"
#include "server/known_peers.h"
#include "xfer/qp.h"

#define MAGIC	 "BLPROVED"
#define RETRY_MS 10000 /* delay after an error */

LOG_REGISTER("store.known_peers", "store");

static uint64_t
wall_ms(void)
{
	return (uint64_t)utc_ns() / 1000000;
}

static uint32_t
crc_of(const struct store_known_peers_file *f)
{
	return arrow_crc32c(0, f, offsetof(struct store_known_peers_file, crc));
}

/* @return 0; -ENOENT; -errno: `message` has the reason */
static int
read_file(const char *path, struct store_known_peers_file *f, char message[PATH_MAX])
{
	const int fd = own_file_open(AT_FDCWD, path, O_RDONLY, 0);
	ssize_t n;
	int ret;

	if (fd < 0) {
		snprintf(message, PATH_MAX, "%.3000s: %s", path, own_file_error(fd));
		return fd;
	}
	ret = own_file_check(fd, path, OWN_FILE_OTHERS, message);
	n = read(fd, f, sizeof(*f));
	close(fd);
	if (ret < 0)
		return ret;
	if (n == sizeof(*f) && memcmp(f->magic, MAGIC, sizeof(f->magic)) == 0 &&
		f->crc == crc_of(f) && f->nb <= ADMISSION_REMEMBERED)
		return 0;
	snprintf(message, PATH_MAX, "%.3000s: damaged, or of another version; remove it", path);
	return -EBADMSG;
}

void
store_known_peers_open(
	struct store_known_peers *p, const char *dir, struct admission *gate, uint64_t now)
{
	const uint64_t wall = wall_ms();
	char message[PATH_MAX];
	uint64_t age;
	uint32_t i;
	int ret;

	if (snprintf(p->path, sizeof(p->path), "%s/" STORE_KNOWN_PEERS, dir) >=
		(int)sizeof(p->path)) {
		p->path[0] = '\0';
		return;
	}
	ret = read_file(p->path, &p->file, message);
	if (ret < 0) {
		if (ret != -ENOENT)
			LOG(WARNING,
				"receivers are treated as unknown until they authenticate "
				"again: %s\n",
				message);
		return;
	}
	for (i = 0; i < p->file.nb; i++) {
		struct admission_peer pair = {.identity = p->file.pair[i].identity};

		memcpy(pair.addr, p->file.pair[i].addr, sizeof(pair.addr));
		/* if the clock was set back, the age is 0 */
		age = wall > p->file.pair[i].proved ? wall - p->file.pair[i].proved : 0;
		admission_remember(gate, &pair, now, age);
	}
	p->written = gate->version;
}

static void *
write_main(void *arg)
{
	struct store_known_peers *p = arg;

	if (p->has_thread)
		process_cpus_take();
	p->error = durable_file_replace(p->path, &p->file, sizeof(p->file));
	__atomic_store_n(&p->over, true, __ATOMIC_RELEASE);
	return NULL;
}

static void
copy(struct store_known_peers *p, const struct admission *gate)
{
	const uint64_t wall = wall_ms(), now = xfer_qp_clock();
	struct store_known_peers_file *f = &p->file;
	unsigned int i;

	memset(f, 0, sizeof(*f));
	memcpy(f->magic, MAGIC, sizeof(f->magic));
	for (i = 0; i < ADMISSION_REMEMBERED; i++) {
		if (gate->known[i].proved == 0)
			continue;
		memcpy(f->pair[f->nb].addr, gate->known[i].peer.addr, sizeof(f->pair[0].addr));
		f->pair[f->nb].identity = gate->known[i].peer.identity;
		f->pair[f->nb++].proved = wall - admission_age(gate, i, now);
	}
	f->crc = crc_of(f);
	p->written = gate->version;
}

/* @return false: still running */
static bool
end_thread(struct store_known_peers *p, bool wait)
{
	if (!p->has_thread)
		return true;
	if (!wait && !__atomic_load_n(&p->over, __ATOMIC_ACQUIRE))
		return false;
	pthread_join(p->thread, NULL);
	p->has_thread = false;
	if (p->error < 0) {
		LOG(WARNING,
			"cannot write %.3000s: %s. After the next start receivers are "
			"treated as unknown until they authenticate again\n",
			p->path, strerror(-p->error));
		p->written = UINT64_MAX;
		p->not_before = xfer_qp_clock() + RETRY_MS;
	}
	return true;
}

void
store_known_peers_poll(struct store_known_peers *p, const struct admission *gate, uint64_t now)
{
	if (!end_thread(p, false) || p->written == gate->version || now < p->not_before ||
		p->path[0] == '\0')
		return;
	copy(p, gate);
	p->over = false;
	/* set before the thread reads it */
	p->has_thread = true;
	if (pthread_create(&p->thread, NULL, write_main, p) == 0)
		return;
	p->has_thread = false;
	p->written = UINT64_MAX;
	p->not_before = now + RETRY_MS;
}

void
store_known_peers_close(struct store_known_peers *p, const struct admission *gate)
{
	(void)end_thread(p, true);
	if (p->path[0] == '\0' || p->written == gate->version)
		return;
	copy(p, gate);
	(void)write_main(p);
}
