/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the events of the verbs provider, with neither an adapter nor a CM. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "verbs/verbs_device.h"

int __wrap_rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);
int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);

int
__wrap_rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	errno = EAGAIN;
	return -1;
}

int
__wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	errno = EAGAIN;
	return -1;
}

/* The error of a queue pair names the connection that is open on it, not one of before. */
static void
errors_name_the_connection(void **state)
{
	struct verbs_dev dev = {0};
	struct rdma_cm_id id = {0};
	struct verbs_qp qp[2] = {{.dev = &dev, .broken = true}, {.dev = &dev, .broken = true}};
	struct verbs_conn conn[2] = {
		{.dev = &dev, .id = &id, .qp = &qp[0], .state = VERBS_ESTABLISHED},
		{.dev = &dev, .id = &id, .qp = &qp[0], .state = VERBS_OVER}};
	struct rdma_event event;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		LIST_INSERT_HEAD(&dev.qps, &qp[1 - i], next);
		LIST_INSERT_HEAD(&dev.conns, &conn[i], next);
	}
	dev.qp_broken = true;
	assert_int_equal(verbs_poll_cm(&dev.base, &event, 1), 1);
	assert_int_equal(event.type, RDMA_EVENT_QP_ERROR);
	assert_ptr_equal(event.qp, &qp[0].base);
	assert_ptr_equal(event.conn, &conn[0].base);
	/* a queue pair that was connected by hand has none */
	assert_int_equal(verbs_poll_cm(&dev.base, &event, 1), 1);
	assert_ptr_equal(event.qp, &qp[1].base);
	assert_null(event.conn);
	assert_int_equal(verbs_poll_cm(&dev.base, &event, 1), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(errors_name_the_connection)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
