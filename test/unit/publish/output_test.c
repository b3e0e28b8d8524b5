/* SPDX-License-Identifier: BSD-3-Clause */
/* Outputs of braggline-publish: what the result of a send to subscribers means. */

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <zmq.h>

/* How ZeroMQ answers. */
static struct {
	bool full;  /* the queue of a subscriber is full: EAGAIN, unless messages may be lost */
	bool taken; /* a subscriber has the message in its queue */
	zmq_msg_t kept;
} zmq_says;

static int send_message(zmq_msg_t *message, void *socket, int flags);

#define zmq_msg_send send_message
#include "output.c"

static struct output output = {.kind = OUTPUT_CRYSTFEL_PUB};

static int
send_message(zmq_msg_t *message, void *socket, int flags)
{
	const int size = (int)zmq_msg_size(message);

	if (zmq_says.full) {
		zmq_says.full = false;
		errno = EAGAIN;
		return -1;
	}
	zmq_msg_init(&zmq_says.kept);
	zmq_msg_move(&zmq_says.kept, message);
	if (!zmq_says.taken)
		zmq_msg_close(&zmq_says.kept);
	return size;
}

/* Publishes an image. @return whether the next one is encoded at once */
static bool
publish_image(bool full, bool taken)
{
	zmq_says.full = full;
	zmq_says.taken = taken;
	message_put(&output.message, "image", 5);
	assert_int_equal(fill_zmq_message(&output), 0);
	output.pending = PENDING_IMAGE;
	assert_true(send_to_subscribers(&output));
	assert_int_equal(output.pending, PENDING_NONE);
	if (taken)
		zmq_msg_close(&zmq_says.kept);
	return output.full.delay == 0;
}

static void
test_images_are_left_out_without_room(void **state)
{
	output.stats = (struct output_stats){0};
	assert_true(publish_image(false, true));
	assert_false(publish_image(false, false));
	assert_true(publish_image(false, true));
	assert_int_equal(output.stats.images, 2);
	assert_int_equal(output.stats.no_room, 1);
	assert_int_equal(output.stats.full, 0);
}

/* Another subscriber may have received it: no image may be left out for that one. */
static void
test_a_queue_that_becomes_full_stops_nothing(void **state)
{
	output.stats = (struct output_stats){0};
	assert_true(publish_image(true, true));
	assert_true(publish_image(true, false));
	assert_int_equal(output.stats.images, 1);
	assert_int_equal(output.stats.no_room, 1);
	assert_int_equal(output.stats.full, 2);
	/* the next one has no receiver */
	assert_false(publish_image(false, false));
}

static bool
is_own(const char *address, const void *local, socklen_t size)
{
	struct sockaddr_storage s = {0};

	memcpy(&s, local, size);
	snprintf(output.address, sizeof(output.address), "%s", address);
	return is_own_address(&output, &s, size);
}

/* Clients of other outputs stay connected, also if a part of their address is the same. */
static void
test_descriptors_of_an_output_have_its_address(void **state)
{
	const size_t path = offsetof(struct sockaddr_un, sun_path);
	const struct sockaddr_in in = {.sin_family = AF_INET,
		.sin_port = htons(31001),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/x:31001"};

	assert_true(is_own("tcp://127.0.0.1:31001", &in, sizeof(in)));
	assert_true(is_own("tcp://0.0.0.0:31001", &in, sizeof(in)));
	assert_false(is_own("tcp://127.0.0.2:31001", &in, sizeof(in)));
	assert_false(is_own("tcp://127.0.0.1:3100", &in, sizeof(in)));
	assert_false(is_own("ipc:///x:31001", &in, sizeof(in)));
	assert_true(is_own("ipc:///x:31001", &un, sizeof(un)));
	assert_true(is_own("ipc:///x:31001", &un, path + 9));
	assert_false(is_own("ipc:///x:31002", &un, sizeof(un)));
	assert_false(is_own("tcp://127.0.0.1:31001", &un, sizeof(un)));
	/* no name; an abstract one; the longest one, which has no 0 at its end */
	assert_false(is_own("ipc://", &un, path));
	memcpy(un.sun_path, "\0x:31001", 9);
	assert_true(is_own("ipc://@x:31001", &un, path + 8));
	assert_false(is_own("ipc://@x:31001", &un, path + 7));
	memset(un.sun_path, 'x', sizeof(un.sun_path));
	assert_false(is_own("ipc://x", &un, sizeof(un)));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_images_are_left_out_without_room),
		cmocka_unit_test(test_a_queue_that_becomes_full_stops_nothing),
		cmocka_unit_test(test_descriptors_of_an_output_have_its_address),
	};
	const int ret = cmocka_run_group_tests(tests, NULL, NULL);

	scan_memory_trim();
	return ret;
}
