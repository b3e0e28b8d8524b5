/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of a peer on perftest's control connection, to either end. The first byte of an input
 * selects our end and the number of queue pairs. Each message has a length byte and that many
 * bytes. The real exchange runs over a fake queue pair, and its result is used as in a run.
 */
#include <errno.h>

#include "perftest/control.h"
#include "perftest/report.h"
#include "rdma_provider.h"
#include "seed_corpus.h"

#define FLOWS 4

static struct {
	const uint8_t *bytes;
	size_t size, at;
} peer;
static struct rdma_mr mr;
static uint8_t memory[4096];
static struct perftest_control control;
/* posted receives, in their order */
static struct {
	uint64_t wr_id;
	struct rdma_sge sge;
} receives[16];
static unsigned int nb_receives;

/* ---- fake queue pair (-Wl,--wrap) ------------------------------------------------------------ */

int __wrap_endpoint_create(struct session *s, struct endpoint *e, const struct rdma_qp_attr *attr);
int __wrap_endpoint_connect(
	struct endpoint *e, const struct sockaddr_storage *to, const struct rdma_conn_attr *attr);
int __wrap_endpoint_accept(struct endpoint *e, const struct rdma_event *request);
int __wrap_session_request(struct session *s, struct rdma_event *request, uint64_t deadline);
int __wrap_endpoint_recv(struct endpoint *e, uint64_t wr_id, const struct rdma_sge *sge);
int __wrap_endpoint_send(struct endpoint *e, const struct rdma_send_wr *wr);
int __wrap_endpoint_wait(
	struct endpoint *e, struct rdma_cq *cq, struct rdma_wc *wc, uint64_t deadline);
void __wrap_endpoint_destroy(struct endpoint *e);
int __wrap_buffer_create(struct session *s, struct buffer *b, size_t size, uint32_t access);
void __wrap_buffer_destroy(struct session *s, struct buffer *b);

int
__wrap_endpoint_create(struct session *s, struct endpoint *e, const struct rdma_qp_attr *attr)
{
	e->session = s;
	e->send_cq = (struct rdma_cq *)&memory[0];
	e->recv_cq = (struct rdma_cq *)&memory[1];
	nb_receives = 0;
	return 0;
}

int
__wrap_endpoint_connect(
	struct endpoint *e, const struct sockaddr_storage *to, const struct rdma_conn_attr *attr)
{
	return 0;
}

int
__wrap_endpoint_accept(struct endpoint *e, const struct rdma_event *request)
{
	return 0;
}

int
__wrap_session_request(struct session *s, struct rdma_event *request, uint64_t deadline)
{
	return 0;
}

static void
check_sge(const struct rdma_sge *sge)
{
	if (sge->addr < (uintptr_t)control.buffer.addr ||
		sge->addr + sge->length > (uintptr_t)control.buffer.addr + control.buffer.size)
		abort();
}

int
__wrap_endpoint_recv(struct endpoint *e, uint64_t wr_id, const struct rdma_sge *sge)
{
	check_sge(sge);
	if (nb_receives == sizeof(receives) / sizeof(receives[0]))
		abort();
	receives[nb_receives].wr_id = wr_id;
	receives[nb_receives++].sge = *sge;
	return 0;
}

int
__wrap_endpoint_send(struct endpoint *e, const struct rdma_send_wr *wr)
{
	if (wr->nb_sge != 1 || wr->sg->length == 0)
		abort();
	check_sge(wr->sg);
	return 0;
}

/* The peer's next message. If none is left, the peer has disconnected. */
int
__wrap_endpoint_wait(struct endpoint *e, struct rdma_cq *cq, struct rdma_wc *wc, uint64_t deadline)
{
	size_t length;

	memset(wc, 0, sizeof(*wc));
	if (cq == e->send_cq)
		return 0;
	if (peer.at >= peer.size)
		return -ECONNRESET;
	if (nb_receives == 0)
		abort();
	length = peer.bytes[peer.at++];
	if (length > peer.size - peer.at)
		length = peer.size - peer.at;
	/* the queue pair rejects a message that is longer than the receive */
	if (length > receives[0].sge.length)
		return -EIO;
	wc->wr_id = receives[0].wr_id;
	wc->byte_len = (uint32_t)length;
	memcpy((void *)(uintptr_t)receives[0].sge.addr, peer.bytes + peer.at, length);
	peer.at += length;
	memmove(receives, receives + 1, --nb_receives * sizeof(receives[0]));
	return 0;
}

void
__wrap_endpoint_destroy(struct endpoint *e)
{
}

/* Allocated for each input, so that sanitizers detect reads past its end. */
int
__wrap_buffer_create(struct session *s, struct buffer *b, size_t size, uint32_t access)
{
	*b = (struct buffer){.addr = calloc(1, size), .size = size, .mr = &mr};
	return b->addr ? 0 : -ENOMEM;
}

void
__wrap_buffer_destroy(struct session *s, struct buffer *b)
{
	free(b->addr);
	memset(b, 0, sizeof(*b));
}

/* ---------------------------------------------------------------------------------------------- */

static int
introduce(uint8_t choice)
{
	const struct perftest_dest ours = {.qpn = 1, .rkey = 2};
	struct perftest_dest theirs, again;
	uint8_t m[2][PERFTEST_MESSAGE_BYTES];
	uint16_t mtu = choice & 2 ? 4096 : 1024;
	const uint16_t most = mtu;
	int ret;

	ret = perftest_control_hello(&control, &mtu);
	if (ret < 0)
		return ret;
	if (mtu < 256 || mtu > most || (mtu & (mtu - 1)))
		abort();
	if (strlen(control.peer_version) == 0 ||
		strlen(control.peer_version) > PERFTEST_VERSION_BYTES)
		abort();
	for (unsigned int i = 0; i <= (choice >> 2) % FLOWS; i++) {
		ret = perftest_control_dest(&control, &ours, choice & 16 ? NULL : &theirs);
		if (ret < 0)
			return ret;
		if (choice & 16)
			continue;
		perftest_print_dest("remote", &theirs);
		perftest_put_dest(m[0], &theirs);
		perftest_get_dest(m[0], &again);
		perftest_put_dest(m[1], &again);
		if (memcmp(m[0], m[1], PERFTEST_DEST_BYTES) != 0)
			abort();
	}
	return 0;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct perftest_dest dest = {.qpn = 17, .psn = 99, .rkey = 5, .vaddr = 4096};
	static const struct perftest_report report = {65536, 5000, 1e9, 1e9, 1e6};
	uint8_t good[512], *b = good;

	seed_begin(argc, argv);
	/* messages of our client for one queue pair */
	*b++ = 0;
	*b = (uint8_t)perftest_put_version(b + 1);
	b += 1 + *b;
	*b = (uint8_t)perftest_put_word(b + 1, PERFTEST_CYCLE_BUFFER);
	b += 1 + *b;
	*b = (uint8_t)perftest_put_word(b + 1, PERFTEST_CACHE_LINE);
	b += 1 + *b;
	*b = (uint8_t)perftest_put_mtu(b + 1, 1024);
	b += 1 + *b;
	*b = (uint8_t)perftest_put_dest(b + 1, &dest);
	b += 1 + *b;
	for (unsigned int field = 0; field < PERFTEST_REPORT_FIELDS; field++) {
		*b = (uint8_t)perftest_put_report(b + 1, &report, field);
		b += 1 + *b;
	}
	seed_add("server", good, (size_t)(b - good));
	good[0] = 1;
	seed_add("client", good, (size_t)(b - good));
	/* the tool's messages are discarded; libFuzzer has its own stream */
	stderr = fopen("/dev/null", "w");
	return stderr && freopen("/dev/null", "w", stdout) ? 0 : -1;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct perftest_options options = {.gbits = size > 0 && data[0] & 32};
	const struct perftest_report ours = {8, 1, 2.0, 3.0, 4.0};
	struct target target = {.client = size > 0 && data[0] & 1};
	struct perftest_report theirs;
	static struct session session;

	if (size == 0)
		return 0;
	peer.bytes = data;
	peer.size = size;
	peer.at = 1;
	if (perftest_control_open(&control, &session, &target) < 0)
		abort();
	if (introduce(data[0]) == 0 && perftest_control_report(&control, &ours, &theirs) == 0)
		perftest_print_report(&options, &theirs);
	perftest_control_close(&control);
	return 0;
}
