/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who may write to a ring, and when: a sender that listens to credits never overwrites frames in
 * use, one stream's sender cannot write to the ring of another, and frame numbers that are skipped
 * are no lost frames.
 */
#include "ring_rig.h"

/** Poll all but the gangs, for some time. */
static void
poll_without_gangs(uint32_t us)
{
	for (uint32_t i = 0; i < us / 20; i++) {
		rdma_progress(sender.dev, 0);
		wire();
		rx_poll(p.rx[0]);
		builder_poll(p.builder);
		usleep(20);
	}
}

/** May a sender that began with frame 1 send a frame? Its own arithmetic. */
static bool
may_send(uint64_t frame)
{
	for (uint32_t s = 0; s < STREAMS; s++)
		if (sender.credit[s] == NO_CREDIT ||
			frame >= RTE_MAX(sender.credit[s], UINT64_C(1)) + SLOTS)
			return false;
	return true;
}

static void
wait_first_credit(void)
{
	for (uint32_t i = 0; i < 1000 && !may_send(1); i++)
		poll_without_gangs(20);
	assert_true(may_send(1));
}

static void
open_with_credits(void)
{
	with_service = true;
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	wait_first_credit();
}

/** Gangs stop, and run slowly. */
static void
credits_stop_the_sender(void **state)
{
	uint64_t frame = 1;

	open_with_credits();
	for (; frame < 100 && may_send(frame); frame++) {
		send_frame(frame);
		poll_without_gangs(100);
	}
	assert_int_equal(frame, 1 + SLOTS);
	poll_without_gangs(10000);
	assert_false(may_send(frame));
	for (uint32_t i = 0; i < 100000 && frame <= 300; i++) {
		if (may_send(frame))
			send_frame(frame++);
		poll_without_gangs(20);
		if (i % 4 == 0)
			poll_all();
	}
	assert_int_equal(frame, 301);
	end_run();
	check_balance();
	assert_int_equal(nb_records, 300);
	assert_int_equal(nb_stale, 0);
	assert_int_equal(builder_stats(p.builder).complete, 300);
	assert_int_equal(p.rx[0]->counters[RX_OVERRUN], 0);
	assert_int_equal(p.rx[0]->counters[RX_DUPLICATE], 0);
	assert_true(p.rx[0]->counters[RX_CREDITS] > 300 / SLOTS * STREAMS);
	close_receiver();
}

/** A credit that is lost comes again, although nothing changes. */
static void
lost_credits_come_again(void **state)
{
	open_with_credits();
	lose_credits = true;
	for (uint64_t f = 1; f <= SLOTS; f++) {
		send_frame(f);
		poll_some();
	}
	poll_until_idle();
	assert_int_equal(nb_records, SLOTS);
	assert_false(may_send(1 + SLOTS));
	lose_credits = false;
	poll_without_gangs(100000);
	assert_true(may_send(2 * SLOTS));
	/* and the event of the last frame again: its pixels may be in use */
	send_event(0, SLOTS, ingest_immediate(0, SLOTS), 0);
	poll_some();
	assert_int_equal(p.rx[0]->counters[RX_DUPLICATE] + p.rx[0]->counters[RX_LATE], TILES);
	end_run();
	check_balance();
	assert_int_equal(builder_stats(p.builder).complete, SLOTS);
	close_receiver();
}

/** An event that comes again while gangs read its frame takes nothing away. */
static void
repeated_event_of_a_frame_in_use(void **state)
{
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	send_frame(1);
	poll_without_gangs(1000);
	send_event(0, 1, ingest_immediate(0, 1), 0);
	poll_without_gangs(1000);
	assert_int_equal(p.rx[0]->counters[RX_DUPLICATE], TILES);
	end_run();
	check_balance();
	assert_int_equal(nb_records, 1);
	assert_int_equal(records[0].missing[0], 0);
	assert_int_equal(nb_stale, 0);
	close_receiver();
}

/** A detector that connects again must not write while frames of before are in use. */
static void
first_credit_waits(void **state)
{
	open_with_credits();
	for (uint64_t f = 1; f <= 4; f++) {
		send_frame(f);
		poll_without_gangs(200);
	}
	restart_sender();
	poll_without_gangs(20000);
	for (uint32_t s = 0; s < STREAMS; s++)
		assert_true(sender.credit[s] == NO_CREDIT);
	poll_until_idle();
	for (uint32_t s = 0; s < STREAMS; s++)
		assert_int_equal(sender.credit[s], 5);
	end_run();
	assert_int_equal(builder_stats(p.builder).complete, 4);
	close_receiver();
}

static uint32_t nb_busy; /* queue pairs of the receiver that cannot be destroyed yet */

int __real_rdma_qp_destroy(struct rdma_qp *qp);
int __wrap_rdma_qp_destroy(struct rdma_qp *qp);

int
__wrap_rdma_qp_destroy(struct rdma_qp *qp)
{
	if (nb_busy == 0 || qp == sender.qp[0] || qp == sender.qp[1])
		return __real_rdma_qp_destroy(qp);
	nb_busy--;
	return -EBUSY;
}

/** A port still has packets of the queue pairs when their detector disconnects. */
static void
busy_queue_pairs_are_replaced_later(void **state)
{
	open_with_credits();
	nb_busy = STREAMS;
	for (uint32_t s = 0; s < STREAMS; s++) {
		rdma_conn_destroy(sender.conn[s]);
		sender.conn[s] = NULL;
	}
	for (uint32_t i = 0; i < 1000 && nb_busy > 0; i++) {
		poll_without_gangs(20);
		rx_connect_poll(p.messages);
	}
	assert_int_equal(nb_busy, 0);
	restart_sender();
	wait_first_credit();
	send_frame(1);
	end_run();
	assert_int_equal(builder_stats(p.builder).complete, 1);
	close_receiver();
}

/** @return packets that the port has refused */
static uint64_t
refused(void)
{
	uint64_t drops[PORT_DROPS] = {0};

	port_drops_add(&p.ports[0], drops);
	return drops[PORT_REFUSED];
}

/** Stream 0's sender knows the key of stream 1's ring. */
static void
ring_of_another_stream(void **state)
{
	const struct rdma_sge sge = {(uintptr_t)0, MESSAGE, 0};
	struct rdma_sge from = sge;
	struct rdma_send_wr wr = {
		.sg = &from, .nb_sge = 1, .op = RDMA_OP_WRITE, .flags = RDMA_SEND_SIGNALED};
	uint8_t *at;

	open_receiver(false, "raw");
	begin_run(1);
	memset(sender.memory, 0x55, MESSAGE);
	from.addr = (uintptr_t)sender.memory;
	from.lkey = rdma_mr_lkey(sender.mr);
	wr.remote_addr = ingest_address(&p.messages->card, 1, 1, FIRST);
	wr.rkey = p.messages->card.stream[1].rkey;
	at = (uint8_t *)(uintptr_t)wr.remote_addr;
	assert_int_equal(refused(), 0);
	post(0, &wr);
	assert_true(refused() > 0);
	assert_int_not_equal(at[0], 0x55);
	/* the right one may */
	post(1, &wr);
	assert_int_equal(at[0], 0x55);
	end_run();
	close_receiver();
}

/** The numbers of the frames jump while the receiver is behind: what was not sent is not lost. */
static void
skipped_numbers_are_not_lost(void **state)
{
	open_receiver(false, "raw");
	check_pixels = true;
	begin_run(1);
	for (uint64_t f = 1; f <= 20; f++) {
		send_frame(f);
		poll_some();
	}
	for (uint64_t f = 100; f < 100 + SLOTS - 5; f++)
		send_frame(f);
	end_run();
	check_balance();
	assert_int_equal(p.rx[0]->counters[RX_EVENTS_LOST], 0);
	assert_int_equal(p.rx[0]->counters[RX_OVERRUN], 0);
	assert_int_equal(p.rx[0]->counters[RX_PACKETS], (20 + SLOTS - 5) * STREAMS * TILES);
	assert_int_equal(nb_stale, 0);
	close_receiver();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(credits_stop_the_sender),
		cmocka_unit_test(lost_credits_come_again),
		cmocka_unit_test(repeated_event_of_a_frame_in_use),
		cmocka_unit_test(first_credit_waits),
		cmocka_unit_test(busy_queue_pairs_are_replaced_later),
		cmocka_unit_test(ring_of_another_stream),
		cmocka_unit_test(skipped_numbers_are_not_lost),
	};

	return ring_main(argv, tests, RTE_DIM(tests));
}
