/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>

#include "address.h"
#include "files/files.h"
#include "files/incoming.h"
#include "ingest/multicast_proof.h"

#define BURST	   32
#define CONTROL_US 1000
#define PROGRESS_S 1
#define LEAVE_MS   2000
#define BUFFERS	   8192 /* enough for the ring of a sender with a --rate of 26 Gbit/s */
/* A sender that is not connected has failed if no packet arrives for this time. */
#define SENDER_TIMEOUT_S 15

static struct {
	const char *group, *sender, *directory, *identity, *key;
	uint16_t service;
} options;

struct fetch {
	struct session *session;
	struct ingest_proof *proof;
	struct rdma_stream_receiver *receiver;
	struct incoming in;
	uint64_t next_control, next_progress; /* TSC */
	uint64_t last_sign;		      /* TSC: last sign of life of the sender */
};

#define AT(member) offsetof(__typeof__(options), member)

static enum options_result
fetch_parse(int argc, char **argv, struct target *target)
{
	static const struct option_row rows[] = {
		{0, "directory", "DIR", OPTION_TEXT, AT(directory), 0, 0, "directory of the files"},
		{0, "sender", "ADDRESS", OPTION_TEXT, AT(sender), 0, 0, "address of the sender"},
		{0, "group", "ADDRESS", OPTION_TEXT, AT(group), 0, 0,
			"multicast group (" FILES_GROUP ")"},
		{0, "service", "PORT", OPTION_U16, AT(service), 1, UINT16_MAX,
			"port of the sender (7190)"},
		{0, "identity", "NAME", OPTION_TEXT, AT(identity), 0, 0,
			"name of this member in the sender's keyring"},
		{0, "key", "FILE", OPTION_TEXT, AT(key), 0, 0, "key of the identity"},
	};
	enum options_result ret;

	options.group = FILES_GROUP;
	options.service = RDMA_STREAM_PORT;
	ret = target_parse(argc, argv, rows, RTE_DIM(rows), &options, target,
		"--device DEVICE --directory DIR --sender ADDRESS [OPTION]...", NULL, 0);
	if (ret != OPTIONS_OK)
		return ret;
	if (options.directory == NULL || options.sender == NULL) {
		fprintf(stderr, "braggline-rdma fetch: expected --directory and --sender\n");
		return OPTIONS_WRONG;
	}
	if ((options.identity == NULL) != (options.key == NULL)) {
		fprintf(stderr,
			"braggline-rdma fetch: expected both --identity and --key, or "
			"neither\n");
		return OPTIONS_WRONG;
	}
	return OPTIONS_OK;
}

static bool
on_event(void *arg, const struct rdma_event *event)
{
	struct fetch *f = arg;

	return f->receiver != NULL && rdma_stream_receiver_event(f->receiver, event);
}

static int
poll_once(struct fetch *f, uint64_t deadline)
{
	const int ret = session_poll(f->session, deadline);
	const uint64_t now = rte_rdtsc();

	if (now >= f->next_control) {
		f->next_control = now + rte_get_tsc_hz() / 1000000 * CONTROL_US;
		rdma_stream_receiver_control(f->receiver);
	}
	return ret;
}

static void
show_progress(struct fetch *f, uint64_t now)
{
	if (now < f->next_progress || !f->in.begun)
		return;
	f->next_progress = now + rte_get_tsc_hz() * PROGRESS_S;
	fprintf(stderr, "braggline-rdma fetch: %u files, %.1f MB; %s: %.1f of %.1f MB\n",
		f->in.files, f->in.bytes * 1e-6, f->in.name, f->in.written * 1e-6,
		f->in.size * 1e-6);
}

/* Store a packet. @return 0; negative errno, printed */
static int
take_packet(struct fetch *f, const struct rdma_stream_packet *p)
{
	uint32_t files;
	int ret;

	if (f->in.begun && p->run != f->in.run)
		fprintf(stderr, "braggline-rdma fetch: the sender was started again\n");
	ret = incoming_place(&f->in, p->run, p->sequence, p->lost);
	if (ret == 0)
		return 0;
	files = f->in.files;
	if (ret > 0)
		ret = incoming_take(&f->in, p->data, p->length);
	if (ret < 0)
		fprintf(stderr, "braggline-rdma fetch: %s\n", f->in.message);
	else if (f->in.files != files)
		printf("fetch: %s, %" PRIu64 " bytes, CRC-32C %08x\n", f->in.name, f->in.size,
			f->in.crc);
	return ret;
}

static int
take_packets(struct fetch *f)
{
	struct rdma_stream_packet packet[BURST];
	const uint16_t n = rdma_stream_receive(f->receiver, packet, BURST);
	int ret = 0;

	for (uint16_t i = 0; i < n && ret == 0; i++)
		ret = take_packet(f, &packet[i]);
	rdma_stream_release(f->receiver, packet, n);
	if (n > 0)
		f->last_sign = rte_rdtsc();
	return ret;
}

/* Check the state of the stream. @return 0: continue; 1: it has ended; negative errno, printed */
static int
check_state(struct fetch *f, uint64_t now)
{
	const uint32_t wait = f->session->wait_ms != 0 ? f->session->wait_ms : FILES_WAIT_S * 1000;
	const uint64_t limit =
		rte_get_tsc_hz() / 1000 * (f->in.begun ? SENDER_TIMEOUT_S * 1000 : wait);
	struct rdma_stream_receiver_info info;

	rdma_stream_receiver_info_get(f->receiver, &info);
	if (info.state == RDMA_STREAM_FAILED) {
		fprintf(stderr, "braggline-rdma fetch: %s: %s%s\n", options.sender,
			rte_strerror(-info.error),
			info.error == -EACCES ? "; check --identity and --key" : "");
		return info.error;
	}
	/* while the receiver is joining, another run may begin */
	if ((info.state == RDMA_STREAM_JOINED || info.state == RDMA_STREAM_ENDED) &&
		incoming_lost(&f->in, info.run) < 0) {
		fprintf(stderr, "braggline-rdma fetch: %s\n", f->in.message);
		return -EIO;
	}
	if (info.state == RDMA_STREAM_ENDED)
		return 1;
	/* no packets: the sender may be waiting for other members */
	if (info.state == RDMA_STREAM_JOINED)
		f->last_sign = now;
	if (now - f->last_sign <= limit)
		return 0;
	fprintf(stderr, "braggline-rdma fetch: no reply from %s for %" PRIu64 " s\n",
		options.sender, (now - f->last_sign) / rte_get_tsc_hz());
	return -ETIMEDOUT;
}

static int
transfer(struct fetch *f)
{
	int ret = 0;

	f->last_sign = rte_rdtsc();
	while (ret == 0) {
		ret = poll_once(f, UINT64_MAX);
		if (ret == 0)
			ret = take_packets(f);
		if (ret == 0)
			ret = check_state(f, rte_rdtsc());
		show_progress(f, rte_rdtsc());
	}
	if (ret == -EINTR)
		fprintf(stderr, "braggline-rdma fetch: interrupted\n");
	if (ret < 0)
		return ret;
	if (f->in.done)
		return 0;
	if (f->in.begun)
		fprintf(stderr,
			"braggline-rdma fetch: the sender has stopped before the last file\n");
	else
		fprintf(stderr,
			"braggline-rdma fetch: the sender has stopped before the first file; did "
			"all --members of push join within its --wait?\n");
	return -ECONNABORTED;
}

/* Leave the stream, which tells the sender that all files are stored. */
static void
leave(struct fetch *f)
{
	const uint64_t end = session_deadline(LEAVE_MS);
	struct rdma_stream_receiver_info info;
	struct rdma_stream_packet packet;

	rdma_stream_leave(f->receiver);
	do {
		(void)poll_once(f, end);
		(void)rdma_stream_receive(f->receiver, &packet, 0);
		rdma_stream_receiver_info_get(f->receiver, &info);
	} while (info.state != RDMA_STREAM_LEFT && rte_get_tsc_cycles() < end);
}

static int
create(struct fetch *f)
{
	struct sockaddr_storage group, sender;
	struct rdma_stream_receiver_attr attr = {
		.dev = f->session->dev,
		.pd = f->session->pd,
		.group = (const struct sockaddr *)&group,
		.sender = (const struct sockaddr *)&sender,
		.buffers = BUFFERS,
	};
	char message[PATH_MAX];
	int ret;

	ret = files_group("fetch", options.group, &group);
	if (ret == 0 && address_parse(options.sender, options.service, &sender) < 0) {
		fprintf(stderr, "braggline-rdma fetch: --sender: found '%s', expected an address\n",
			options.sender);
		ret = -EINVAL;
	}
	if (ret == 0 && options.key != NULL) {
		ret = ingest_proof_member(&f->proof, options.identity, options.key, message);
		if (ret < 0) {
			fprintf(stderr, "braggline-rdma fetch: %s\n", message);
		} else {
			attr.proof = ingest_proof_stream(f->proof);
			attr.identity = ingest_proof_identity(f->proof);
		}
	}
	if (ret < 0)
		return ret;
	f->receiver = rdma_stream_receiver_create(&attr);
	if (f->receiver == NULL) {
		fprintf(stderr, "braggline-rdma fetch: cannot join: %s\n", rte_strerror(rte_errno));
		return -rte_errno;
	}
	return 0;
}

static int
fetch_run(struct session *s, const struct target *target)
{
	struct fetch f = {.session = s};
	int ret;

	RTE_SET_USED(target);
	s->on_event = on_event;
	s->on_event_arg = &f;
	ret = incoming_open(&f.in, options.directory);
	if (ret < 0)
		fprintf(stderr, "braggline-rdma fetch: %s\n", f.in.message);
	if (ret == 0)
		ret = create(&f);
	if (ret == 0)
		ret = transfer(&f);
	if (ret == 0)
		leave(&f);
	incoming_close(&f.in);
	while (f.receiver != NULL && rdma_stream_receiver_destroy(f.receiver) == -EBUSY)
		session_linger(s, 1);
	f.receiver = NULL;
	ingest_proof_destroy(f.proof);
	return ret;
}

const struct mode fetch_mode = {.name = "fetch",
	.purpose = "receives the files of push",
	.parse = fetch_parse,
	.run = fetch_run};
