/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bounds.h"
#include "telemetry_socket.h"

#define GREETING_SIZE 1024

/** Read {"version": ..., "pid": ..., "max_output_len": ...}. */
static int
read_greeting(struct telemetry_socket *s)
{
	char text[GREETING_SIZE];
	const ssize_t n = recv(s->fd, text, sizeof(text), 0);
	json_t *greeting;
	json_int_t size;

	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	greeting = json_loadb(text, (size_t)n, 0, NULL);
	size = json_integer_value(json_object_get(greeting, "max_output_len"));
	s->pid = json_integer_value(json_object_get(greeting, "pid"));
	json_decref(greeting);
	if (size < 1 || size > LIMIT_REPLY)
		return -EPROTO;
	s->size = (size_t)size;
	return 0;
}

int
telemetry_socket_connect(
	struct telemetry_socket *s, const char *path, int timeout_ms, const char **why)
{
	const struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int ret;

	*s = (struct telemetry_socket){.fd = -1};
	*why = "the path of the socket is too long";
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
		(int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	*why = "cannot connect";
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s->fd < 0)
		return -errno;
	if (setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
		setsockopt(s->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0 ||
		connect(s->fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		ret = -errno;
		goto fail;
	}
	*why = "it does not answer as DPDK's telemetry does";
	ret = read_greeting(s);
	if (ret == 0)
		return 0;
fail:
	telemetry_socket_close(s);
	return ret;
}

void
telemetry_socket_close(struct telemetry_socket *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

static int
check_reply(const char *text, size_t size)
{
	json_t *reply = json_loadb(text, size, 0, NULL);
	const int ret = json_is_object(reply) ? 0 : -EPROTO;

	json_decref(reply);
	return ret;
}

int
telemetry_socket_query(struct telemetry_socket *s, const char *command, char **reply)
{
	ssize_t n;
	char *text;
	int ret;

	*reply = NULL;
	if (send(s->fd, command, strlen(command), MSG_NOSIGNAL) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	text = malloc(s->size + 1);
	if (text == NULL)
		return -ENOMEM;
	/* MSG_TRUNC: the size of the message, also if it is larger */
	n = recv(s->fd, text, s->size, MSG_TRUNC);
	if (n < 0)
		ret = errno == EAGAIN ? -ETIMEDOUT : -errno;
	else if (n == 0)
		ret = -ECONNRESET;
	else if ((size_t)n > s->size)
		ret = -EPROTO;
	else
		ret = check_reply(text, (size_t)n);
	if (ret != 0) {
		free(text);
		return ret;
	}
	text[n] = '\0';
	/* they can only be blanks between tokens; an event is one line */
	for (char *c = text; *c != '\0'; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	*reply = text;
	return 0;
}
