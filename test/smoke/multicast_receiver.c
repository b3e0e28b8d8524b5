/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Members of a detector's multicast streams, on one device. Each member joins all streams, puts the
 * fragments of messages together, and appends each complete message to a file of its own: stream,
 * frame, message as u32, u64, bytes.
 *
 * usage: multicast_receiver EAL-OPTION... -- DEVICE MEMBERS STREAMS GROUP SENDER PORT FILE
 *     [IDENTITY KEY-FILE]
 * Member N writes FILE.N. It ends when all streams have ended, and prints counters.
 * With MEMBER_DIES in the environment, member 1 does nothing after the first event. Without members
 * it runs until it is killed.
 */

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include "eal/end.h"
#include "ingest/card.h"
#include "ingest/multicast.h"
#include "ingest/multicast_proof.h"

#define PIXELS	    8192
#define MESSAGE	    (PIXELS + INGEST_TRAILER_BYTES)
#define MEMBERS_MAX 4
#define LIMIT_S	    60
#define LINGER_S    10

/* One stream of one member. */
struct stream {
	struct rdma_stream_receiver *r;
	uint8_t message[MESSAGE];
	struct ingest_fragment f; /* header of the message; `offset` is that of the next fragment */
	uint64_t next;		  /* number of the next packet */
	uint64_t run;
	bool open;
	bool left, failed;
};

struct member {
	struct stream stream[INGEST_STREAMS_MAX];
	FILE *out;
};

static struct {
	struct rdma_dev *dev;
	struct rdma_pd *pd;
	struct ingest_proof *proof;
	uint32_t nb_members, nb_streams, fragment_max;
	struct member member[MEMBERS_MAX];
	uint64_t events, messages, incomplete, wrong;
} t;

static void
put_message(struct member *m, struct stream *s)
{
	uint32_t stream = s->f.stream, number;
	uint64_t frame;

	/* the trailer is the detector's header */
	memcpy(&frame, s->message + PIXELS, sizeof(frame));
	memcpy(&number, s->message + PIXELS + 12, sizeof(number));
	t.wrong += frame != s->f.frame || number != s->f.tile;
	t.messages++;
	if (fwrite(&stream, sizeof(stream), 1, m->out) != 1 ||
		fwrite(&frame, sizeof(frame), 1, m->out) != 1 ||
		fwrite(s->message, MESSAGE, 1, m->out) != 1)
		err(1, "write");
}

static void
close_message(struct stream *s)
{
	t.incomplete += s->open;
	s->open = false;
}

static void
take_packet(struct member *m, struct stream *s, const struct rdma_stream_packet *p)
{
	const uint32_t number = (uint32_t)(s - m->stream);
	struct ingest_fragment f;
	uint32_t bytes;

	if (p->lost > 0 || p->run != s->run)
		close_message(s);
	if (p->run != s->run)
		s->next = p->sequence - p->lost;
	s->run = p->run;
	t.wrong += p->sequence != s->next + p->lost;
	s->next = p->sequence + 1;
	if (ingest_fragment_decode(p->data, p->length, t.fragment_max, &f) != 0 ||
		f.stream != number) {
		t.wrong++;
		return;
	}
	if (f.tile == INGEST_EVENT) {
		close_message(s);
		t.events++;
		return;
	}
	if (f.offset == 0) {
		close_message(s);
		s->open = f.message == MESSAGE;
		t.wrong += !s->open;
		s->f = f;
	} else if (!s->open || f.frame != s->f.frame || f.tile != s->f.tile ||
		f.offset != s->f.offset) {
		/* its beginning is missing */
		close_message(s);
		t.incomplete += f.offset == t.fragment_max;
		return;
	}
	bytes = p->length - (uint32_t)sizeof(f);
	memcpy(s->message + f.offset, (const uint8_t *)p->data + sizeof(f), bytes);
	s->f.offset = f.offset + bytes;
	if (s->f.offset == MESSAGE) {
		put_message(m, s);
		s->open = false;
	}
}

/* @return whether the stream goes on */
static bool
run_stream(struct member *m, struct stream *s)
{
	struct rdma_stream_packet packet[32];
	struct rdma_stream_receiver_info info;
	uint16_t n;

	n = rdma_stream_receive(s->r, packet, 32);
	for (uint16_t i = 0; i < n; i++)
		take_packet(m, s, &packet[i]);
	rdma_stream_release(s->r, packet, n);
	rdma_stream_receiver_info_get(s->r, &info);
	if (info.state == RDMA_STREAM_FAILED && !s->failed) {
		s->failed = true;
		printf("failed = %d\n", -info.error);
		fflush(stdout);
	}
	if (info.state == RDMA_STREAM_ENDED && !s->left) {
		rdma_stream_leave(s->r);
		s->left = true;
	}
	return info.state != RDMA_STREAM_LEFT;
}

static void
control(void)
{
	struct rdma_event e[8];
	const uint16_t n = rdma_poll_cm(t.dev, e, 8);

	for (uint32_t m = 0; m < t.nb_members; m++)
		for (uint32_t s = 0; s < t.nb_streams; s++) {
			struct rdma_stream_receiver *r = t.member[m].stream[s].r;

			for (uint16_t i = 0; i < n; i++)
				(void)rdma_stream_receiver_event(r, &e[i]);
			rdma_stream_receiver_control(r);
		}
}

static void
join(char **arg)
{
	struct sockaddr_in group = {.sin_family = AF_INET}, sender = {.sin_family = AF_INET};
	struct rdma_stream_receiver_attr attr = {.dev = t.dev,
		.pd = t.pd,
		.group = (struct sockaddr *)&group,
		.sender = (struct sockaddr *)&sender,
		.reads = 2,
		.proof = t.proof != NULL ? ingest_proof_stream(t.proof) : NULL,
		.identity = t.proof != NULL ? ingest_proof_identity(t.proof) : 0};
	struct in_addr first;
	char path[512];

	if (inet_pton(AF_INET, arg[3], &first) != 1 ||
		inet_pton(AF_INET, arg[4], &sender.sin_addr) != 1)
		errx(2, "address");
	for (uint32_t m = 0; m < t.nb_members; m++) {
		snprintf(path, sizeof(path), "%s.%u", arg[6], m);
		t.member[m].out = fopen(path, "wb");
		if (t.member[m].out == NULL)
			err(1, "%s", path);
		for (uint32_t s = 0; s < t.nb_streams; s++) {
			group.sin_addr.s_addr = htonl(ntohl(first.s_addr) + s);
			sender.sin_port = htons((uint16_t)(atoi(arg[5]) + (int)s));
			t.member[m].stream[s].r = rdma_stream_receiver_create(&attr);
			if (t.member[m].stream[s].r == NULL)
				errx(1, "join: %s", rte_strerror(rte_errno));
		}
	}
}

static void
report(void)
{
	uint64_t received = 0, repaired = 0, lost = 0, reads = 0;
	struct rdma_stream_receiver_info info;

	for (uint32_t m = 0; m < t.nb_members; m++)
		for (uint32_t s = 0; s < t.nb_streams; s++) {
			close_message(&t.member[m].stream[s]);
			rdma_stream_receiver_info_get(t.member[m].stream[s].r, &info);
			received += info.received;
			repaired += info.repaired;
			lost += info.lost;
			reads += info.reads;
		}
	printf("events = %" PRIu64 "\nmessages = %" PRIu64 "\nincomplete = %" PRIu64
	       "\nwrong = %" PRIu64 "\nreceived = %" PRIu64 "\nrepaired = %" PRIu64
	       "\nlost = %" PRIu64 "\nreads = %" PRIu64 "\n",
		t.events, t.messages, t.incomplete, t.wrong, received, repaired, lost, reads);
}

/*
 * Wait until the detector has closed its port: net_memif may crash if its peer ends earlier, and if
 * a burst is on its way when the peer ends. The streams are left, so the detector expects nothing.
 */
static void
linger(void)
{
	const uint64_t end = rte_get_timer_cycles() + LINGER_S * rte_get_timer_hz();
	struct rte_eth_link link;

	do {
		rte_delay_us_sleep(1000);
	} while (rte_eth_link_get_nowait(0, &link) == 0 && link.link_status == RTE_ETH_LINK_UP &&
		rte_get_timer_cycles() < end);
}

static void
close_all(void)
{
	const uint64_t end = rte_get_timer_cycles() + rte_get_timer_hz();

	for (uint32_t m = 0; m < t.nb_members; m++)
		for (uint32_t s = 0; s < t.nb_streams; s++)
			while (rdma_stream_receiver_destroy(t.member[m].stream[s].r) == -EBUSY &&
				rte_get_timer_cycles() < end)
				rdma_progress(t.dev, 0);
	rdma_pd_free(t.pd);
	rdma_dev_close(t.dev);
	ingest_proof_destroy(t.proof);
}

int
main(int argc, char **argv)
{
	const int used = rte_eal_init(argc, argv);
	char **arg = argv + used + 1, message[PATH_MAX];
	const bool dies = getenv("MEMBER_DIES") != NULL;
	struct rdma_dev_info info;
	uint64_t end, turn = 0;
	bool more = true;

	if (used < 0 || (argc - used != 8 && argc - used != 10))
		errx(2, "usage");
	t.nb_members = (uint32_t)atoi(arg[1]);
	t.nb_streams = (uint32_t)atoi(arg[2]);
	if (argc - used == 10 && ingest_proof_member(&t.proof, arg[7], arg[8], message) != 0)
		errx(2, "%s", message);
	t.dev = rdma_dev_open(arg[0]);
	t.pd = t.dev != NULL ? rdma_pd_alloc(t.dev) : NULL;
	if (t.pd == NULL)
		errx(1, "device: %s", rte_strerror(rte_errno));
	rdma_dev_info_get(t.dev, &info);
	t.fragment_max = ingest_fragment_max(info.mtu - RDMA_STREAM_HEADER_BYTES);
	join(arg);
	printf("ready\n");
	fflush(stdout);
	end = rte_get_timer_cycles() + LIMIT_S * rte_get_timer_hz();
	while (more && rte_get_timer_cycles() < end) {
		rdma_progress(t.dev, 0);
		if (turn++ % 64 == 0)
			control();
		more = t.nb_members == 0;
		for (uint32_t m = 0; m < t.nb_members; m++) {
			if (dies && t.events > 0 && m == 1)
				continue;
			for (uint32_t s = 0; s < t.nb_streams; s++)
				more |= run_stream(&t.member[m], &t.member[m].stream[s]);
		}
	}
	linger();
	for (uint32_t m = 0; m < t.nb_members; m++)
		if (fclose(t.member[m].out) != 0)
			err(1, "close");
	report();
	eal_block_interrupts();
	close_all();
	eal_end();
	return more ? 4 : 0;
}
