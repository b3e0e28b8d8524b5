/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the end of a server while a command is being executed. */

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <microhttpd.h>

#include "server.h"
#include "source.h"
#include "xfer/auth_key.h"

#define PATIENCE_S 10

static const char greeting[] = "{\"version\":\"x\",\"pid\":1,\"max_output_len\":1024}";
static const char post[] = "POST /api/v1/sources/r/command HTTP/1.1\r\nHost: localhost\r\n"
			   "Authorization: Bearer correct-horse-battery\r\n"
			   "Content-Type: application/json\r\nContent-Length: 35\r\n\r\n"
			   "{\"command\": \"/braggline/run/start\"}";
static struct source_config config;
static char path[64];

static void
changed(void)
{
}

void __real_MHD_resume_connection(struct MHD_Connection *connection);
void __wrap_MHD_resume_connection(struct MHD_Connection *connection);

/* The thread of the command loses the CPU before it resumes the connection. */
void
__wrap_MHD_resume_connection(struct MHD_Connection *connection)
{
	nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
	__real_MHD_resume_connection(connection);
}

static int
listen_at_path(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static int
connect_to(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/*
 * The telemetry socket of a receiver that never answers. The server is stopped when the command has
 * arrived there.
 */
static void
test_stop_with_command(void **state)
{
	struct server_config c = {.loopback = true, .control = true, .has_token = true};
	struct sockaddr_in *address = (struct sockaddr_in *)&c.address;
	struct source *source;
	struct server *server;
	int listener, client, peer;
	char text[1024];
	time_t begin;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/server_test.%d", (int)getpid());
	memcpy(config.socket, path, sizeof(path));
	snprintf(config.name, sizeof(config.name), "r");
	config.period_ms = 60000;
	config.changed = changed;
	source = source_start(&config);
	assert_non_null(source);
	/* the thread of the source has found nothing, and tries again after a minute */
	for (int i = 0; i < PATIENCE_S * 100 && source_version(source, SOURCE_TOPIC_STATE) < 2; i++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	listener = listen_at_path();
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(xfer_digest("correct-horse-battery", 21, c.token), 0);
	assert_int_equal(server_start(&server, &c, &source, 1), 0);

	client = connect_to(server_port(server));
	assert_int_equal(send(client, post, sizeof(post) - 1, 0), sizeof(post) - 1);
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(send(peer, greeting, sizeof(greeting) - 1, 0), sizeof(greeting) - 1);
	assert_int_equal(recv(peer, text, sizeof(text), 0), strlen("/braggline/run/start"));

	begin = time(NULL);
	server_stop(server);
	assert_true(time(NULL) - begin < PATIENCE_S);
	source_stop(source);
	source_free(source);
	close(client);
	close(peer);
	close(listener);
	unlink(path);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop_with_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
