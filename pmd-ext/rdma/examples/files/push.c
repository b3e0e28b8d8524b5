/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>

#include "address.h"
#include "arrow/crc32c.h"
#include "files/files.h"
#include "files/record.h"
#include "ingest/multicast_proof.h"
#include "io/own_file.h"

#define FILES_MAX  256
#define CONTROL_US 1000
#define PROGRESS_S 1
#define SILENCE_MS 10000 /* default; a member may be blocked by its disk */
/* The ring holds the packets of this time, so that a signal ends the stream after it. */
#define LATENCY_US 10000
#define SLOTS_MIN  256u
#define SLOTS_MAX  65536u
#define ABORT_MS   1000 /* time for members to learn that the stream has ended early */

static struct {
	const char *group, *keys;
	uint16_t service, members;
	uint32_t rate, silence;
	const char *file[FILES_MAX];
} options;

struct push {
	struct session *session;
	struct ingest_proof *proof;
	struct rdma_stream_sender *sender;
	uint32_t payload_max;
	uint64_t next_control, next_progress; /* TSC */
	uint64_t bytes;
};

#define AT(member) offsetof(__typeof__(options), member)

static enum options_result
push_parse(int argc, char **argv, struct target *target)
{
	static const struct option_row rows[] = {
		{0, "group", "ADDRESS", OPTION_TEXT, AT(group), 0, 0,
			"multicast group (" FILES_GROUP ")"},
		{0, "service", "PORT", OPTION_U16, AT(service), 1, UINT16_MAX,
			"port that members connect to (7190)"},
		{0, "members", "N", OPTION_U16, AT(members), 1, RDMA_STREAM_MEMBERS_MAX,
			"members to wait for (1)"},
		{0, "rate", "MBIT", OPTION_U32, AT(rate), 0, UINT32_MAX,
			"limit in Mbit/s (0: none)"},
		{0, "silence", "MS", OPTION_U32, AT(silence), 100, 600000,
			"a member that is silent for this time is removed (10000)"},
		{0, "keys", "FILE", OPTION_TEXT, AT(keys), 0, 0,
			"keyring; members prove that they have a key of it"},
	};
	enum options_result ret;

	options.group = FILES_GROUP;
	options.service = RDMA_STREAM_PORT;
	options.members = 1;
	options.silence = SILENCE_MS;
	ret = target_parse(argc, argv, rows, RTE_DIM(rows), &options, target,
		"--device DEVICE [OPTION]... FILE...", options.file, FILES_MAX);
	if (ret == OPTIONS_OK && options.file[0] == NULL) {
		fprintf(stderr, "braggline-rdma push: no file given\n");
		return OPTIONS_WRONG;
	}
	return ret;
}

int
files_group(const char *mode, const char *text, struct sockaddr_storage *group)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)group;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)group;

	if (address_parse(text, 0, group) == 0 &&
		(group->ss_family == AF_INET ? IN_MULTICAST(ntohl(v4->sin_addr.s_addr))
					     : IN6_IS_ADDR_MULTICAST(&v6->sin6_addr)))
		return 0;
	fprintf(stderr,
		"braggline-rdma %s: --group: found '%s', expected a multicast address, as in "
		"239.192.255.1\n",
		mode, text);
	return -EINVAL;
}

/* ---- files ---------------------------------------------------------------------------------- */

static const char *
base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* @return descriptor; negative errno, printed */
static int
open_file(const char *path, uint64_t *size)
{
	const int fd = own_file_open_named(path, O_RDONLY, 0);
	struct stat st;

	if (fd < 0) {
		fprintf(stderr, "braggline-rdma push: %s: %s\n", path, own_file_error(fd));
		return fd;
	}
	if (fstat(fd, &st) < 0) {
		fprintf(stderr, "braggline-rdma push: %s: %s\n", path, strerror(errno));
		close(fd);
		return -EIO;
	}
	*size = (uint64_t)st.st_size;
	return fd;
}

/* Check all files before members join. */
static int
check_files(void)
{
	for (unsigned int i = 0; i < FILES_MAX && options.file[i] != NULL; i++) {
		const char *name = base_name(options.file[i]);
		uint64_t size;
		int fd;

		if (!record_name_check(name, strlen(name))) {
			fprintf(stderr,
				"braggline-rdma push: %s: expected a name of up to %d bytes "
				"that is not hidden and has no control characters\n",
				options.file[i], RECORD_NAME_MAX);
			return -EINVAL;
		}
		for (unsigned int n = 0; n < i; n++)
			if (strcmp(base_name(options.file[n]), name) == 0) {
				fprintf(stderr,
					"braggline-rdma push: %s and %s have the same name\n",
					options.file[n], options.file[i]);
				return -EINVAL;
			}
		fd = open_file(options.file[i], &size);
		if (fd < 0)
			return fd;
		close(fd);
	}
	return 0;
}

/* ---- stream --------------------------------------------------------------------------------- */

static bool
on_event(void *arg, const struct rdma_event *event)
{
	struct push *p = arg;

	return p->sender != NULL && rdma_stream_sender_event(p->sender, event);
}

static int
poll_once(struct push *p, uint64_t deadline)
{
	const int ret = session_poll(p->session, deadline);
	const uint64_t now = rte_rdtsc();

	rdma_stream_sender_poll(p->sender);
	if (now >= p->next_control) {
		p->next_control = now + rte_get_tsc_hz() / 1000000 * CONTROL_US;
		rdma_stream_sender_control(p->sender);
	}
	return ret;
}

static struct rdma_stream_sender_info
get_info(const struct push *p)
{
	struct rdma_stream_sender_info info;

	rdma_stream_sender_info_get(p->sender, &info);
	return info;
}

/* Get memory for a packet. @return 0; -ENOTCONN: all members have left; errors of session_poll() */
static int
next_packet(struct push *p, uint8_t **packet)
{
	const uint64_t report_at = rte_rdtsc() + rte_get_tsc_hz() * PROGRESS_S;
	bool reported = false;
	int ret = 0;

	while ((*packet = rdma_stream_next(p->sender)) == NULL && ret == 0) {
		ret = poll_once(p, UINT64_MAX);
		if (reported || rte_rdtsc() < report_at)
			continue;
		reported = true;
		fprintf(stderr,
			"braggline-rdma push: waiting for the slowest of %u members; one that is "
			"silent for %u ms is removed\n",
			get_info(p).members, options.silence);
	}
	if (ret == 0 && get_info(p).members == 0)
		ret = poll_once(p, UINT64_MAX);
	return ret == 0 && get_info(p).members == 0 ? -ENOTCONN : ret;
}

static int
put_record(struct push *p, const struct record *r, const char *name)
{
	uint8_t *packet;
	int ret;

	ret = next_packet(p, &packet);
	if (ret < 0)
		return ret;
	record_encode(r, packet);
	memcpy(packet + sizeof(*r), name, strlen(name));
	rdma_stream_commit(p->sender, (uint32_t)(sizeof(*r) + strlen(name)));
	return poll_once(p, UINT64_MAX);
}

static void
show_progress(struct push *p, const char *name, uint64_t done, uint64_t size)
{
	const uint64_t now = rte_rdtsc();

	if (now < p->next_progress)
		return;
	p->next_progress = now + rte_get_tsc_hz() * PROGRESS_S;
	fprintf(stderr, "braggline-rdma push: %s: %.1f of %.1f MB; %u members\n", name, done * 1e-6,
		size * 1e-6, get_info(p).members);
}

static int
put_data(struct push *p, int fd, const char *name, struct record *r, uint64_t size)
{
	const uint32_t room = p->payload_max - (uint32_t)sizeof(*r);
	uint8_t *packet;
	ssize_t n;
	int ret;

	r->type = RECORD_DATA;
	for (r->offset = 0; r->offset < size; r->offset += (uint64_t)n) {
		ret = next_packet(p, &packet);
		if (ret < 0)
			return ret;
		n = read(fd, packet + sizeof(*r), RTE_MIN((uint64_t)room, size - r->offset));
		if (n <= 0) {
			fprintf(stderr, "braggline-rdma push: %s: %s\n", name,
				n < 0 ? strerror(errno) : "it was shortened while it was read");
			return -EIO;
		}
		r->crc = arrow_crc32c(r->crc, packet + sizeof(*r), (size_t)n);
		p->bytes += (uint64_t)n;
		record_encode(
			&(struct record){.type = RECORD_DATA, .file = r->file, .offset = r->offset},
			packet);
		rdma_stream_commit(p->sender, (uint32_t)(sizeof(*r) + (size_t)n));
		ret = poll_once(p, UINT64_MAX);
		if (ret < 0)
			return ret;
		show_progress(p, name, r->offset, size);
	}
	return 0;
}

static int
put_file(struct push *p, uint32_t number)
{
	const char *path = options.file[number], *name = base_name(path);
	struct record r = {.file = number};
	uint64_t size;
	int fd, ret;

	fd = open_file(path, &size);
	if (fd < 0)
		return fd;
	r.type = RECORD_BEGIN;
	r.offset = size;
	ret = put_record(p, &r, name);
	if (ret == 0)
		ret = put_data(p, fd, name, &r, size);
	close(fd);
	if (ret < 0)
		return ret;
	r.type = RECORD_END;
	r.offset = size;
	ret = put_record(p, &r, "");
	if (ret == 0)
		printf("push: %s, %" PRIu64 " bytes, CRC-32C %08x\n", name, size, r.crc);
	return ret;
}

static int
wait_members(struct push *p)
{
	const uint32_t wait = p->session->wait_ms != 0 ? p->session->wait_ms : FILES_WAIT_S * 1000;
	const uint64_t end = session_deadline(wait);
	int ret = 0;

	fprintf(stderr, "braggline-rdma push: waiting for %u members\n", options.members);
	while (ret == 0 && get_info(p).members < options.members)
		ret = poll_once(p, end);
	if (ret == -ETIMEDOUT)
		fprintf(stderr,
			"braggline-rdma push: %u members after %u s, expected %u; check the "
			"fetching ends, their keys and --wait\n",
			get_info(p).members, wait / 1000, options.members);
	return ret;
}

/* Wait until all members have stored all files, and have left. Silent ones are removed. */
static int
wait_stored(struct push *p)
{
	struct rdma_stream_sender_info info;
	int ret = 0;

	rdma_stream_end(p->sender);
	while (ret == 0 && (!rdma_stream_sender_done(p->sender) || get_info(p).members > 0)) {
		ret = poll_once(p, UINT64_MAX);
		show_progress(p, "all files sent", p->bytes, p->bytes);
	}
	if (ret < 0)
		return ret;
	info = get_info(p);
	printf("push: %" PRIu64 " of %" PRIu64 " members have stored all files\n", info.left,
		info.joined);
	return info.left == info.joined ? 0 : -EREMOTEIO;
}

static int
transfer(struct push *p)
{
	struct record done = {.type = RECORD_DONE};
	int ret;

	ret = wait_members(p);
	for (; ret == 0 && done.file < FILES_MAX && options.file[done.file] != NULL; done.file++)
		ret = put_file(p, done.file);
	if (ret == 0)
		ret = put_record(p, &done, "");
	if (ret == 0)
		ret = wait_stored(p);
	if (ret == -ENOTCONN)
		fprintf(stderr, "braggline-rdma push: no member is left; see their messages\n");
	else if (ret == -EREMOTEIO)
		fprintf(stderr,
			"braggline-rdma push: members were removed without all files; see "
			"their messages\n");
	else if (ret == -EINTR)
		fprintf(stderr, "braggline-rdma push: interrupted\n");
	return ret;
}

static int
create(struct push *p)
{
	struct sockaddr_storage group;
	struct rdma_stream_sender_attr attr = {
		.dev = p->session->dev,
		.pd = p->session->pd,
		.group = (const struct sockaddr *)&group,
		.port = options.service,
		.members_max = options.members,
		.rate_mbps = options.rate,
		.silence_ms = options.silence,
	};
	char message[PATH_MAX];
	int ret;

	p->payload_max = p->session->info.mtu - RDMA_STREAM_HEADER_BYTES;
	if (options.rate != 0)
		attr.slots =
			RTE_MIN(RTE_MAX(rdma_stream_slots(options.rate, p->payload_max, LATENCY_US),
					SLOTS_MIN),
				SLOTS_MAX);
	ret = files_group("push", options.group, &group);
	if (ret == 0 && options.keys != NULL) {
		ret = ingest_proof_sender(&p->proof, options.keys, message);
		if (ret < 0)
			fprintf(stderr, "braggline-rdma push: --keys: %s\n", message);
		else
			attr.proof = ingest_proof_stream(p->proof);
	} else if (ret == 0) {
		fprintf(stderr,
			"braggline-rdma push: members prove nothing; use --keys FILE unless "
			"the network is trusted\n");
	}
	if (ret < 0)
		return ret;
	p->sender = rdma_stream_sender_create(&attr);
	if (p->sender == NULL) {
		fprintf(stderr, "braggline-rdma push: cannot create the stream: %s\n",
			rte_strerror(rte_errno));
		return -rte_errno;
	}
	return 0;
}

static int
push_run(struct session *s, const struct target *target)
{
	struct push p = {.session = s};
	int ret;

	RTE_SET_USED(target);
	s->on_event = on_event;
	s->on_event_arg = &p;
	ret = check_files();
	if (ret == 0)
		ret = create(&p);
	if (ret == 0) {
		ret = transfer(&p);
		if (ret < 0) {
			/* members then fail at once, because the last record is missing */
			const uint64_t end = session_deadline(ABORT_MS);

			rdma_stream_end(p.sender);
			while (rte_get_tsc_cycles() < end && get_info(&p).members > 0)
				(void)poll_once(&p, end);
		}
	}
	while (p.sender != NULL && rdma_stream_sender_destroy(p.sender) == -EBUSY)
		session_linger(s, 1);
	p.sender = NULL;
	ingest_proof_destroy(p.proof);
	return ret;
}

const struct mode push_mode = {.name = "push",
	.purpose = "sends files to members by reliable multicast",
	.parse = push_parse,
	.run = push_run};
