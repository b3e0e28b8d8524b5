/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the checks of HTTP requests, and the command line. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bounds.h"
#include "commands.h"
#include "options.h"
#include "request.h"

static void
test_targets(void **state)
{
	static const struct {
		const char *path;
		enum request_target target;
		const char *name;
	} cases[] = {
		{"/api/v1/sources", REQUEST_SOURCES, ""},
		{"/api/v1/sources/rte", REQUEST_SOURCE, "rte"},
		{"/api/v1/sources/a.b-c_9/telemetry", REQUEST_TELEMETRY, "a.b-c_9"},
		{"/api/v1/sources/rte/command", REQUEST_COMMAND, "rte"},
		{"/api/v1/sources/rte/frame", REQUEST_FRAME, "rte"},
		{"/api/v1/sources/rte/image", REQUEST_IMAGE, "rte"},
		{"/api/v1/sources/rte/geometry", REQUEST_GEOMETRY, "rte"},
		{"/api/v1/sources/rte/places", REQUEST_PLACES, "rte"},
		{"/api/v1/events", REQUEST_EVENTS, ""},
		{"/api/v1/runs", REQUEST_RUNS, ""},
		{"/api/v1/runs/0/x", REQUEST_RUN_FILE, ""},
		{"/api/v1/runsx", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/..", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/../frame", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources//frame", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/rte/", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/rte/frame/", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/rte/frames", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/r te/frame", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sources/r%2f/frame", REQUEST_NOT_FOUND, ""},
		{"/api/v1/sourcesx", REQUEST_NOT_FOUND, ""},
		{"/api/v1/events/", REQUEST_NOT_FOUND, ""},
		{"/api/v2/sources", REQUEST_NOT_FOUND, ""},
		{"", REQUEST_NOT_FOUND, ""},
		{"/etc/passwd", REQUEST_NOT_FOUND, ""},
	};
	char name[REQUEST_NAME_LEN], path[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(request_target(cases[i].path, name), cases[i].target);
		assert_string_equal(name, cases[i].name);
	}
	/* the longest name, and one more */
	snprintf(path, sizeof(path), "/api/v1/sources/%031d/frame", 0);
	assert_int_equal(request_target(path, name), REQUEST_FRAME);
	assert_int_equal(strlen(name), 31);
	snprintf(path, sizeof(path), "/api/v1/sources/%032d/frame", 0);
	assert_int_equal(request_target(path, name), REQUEST_NOT_FOUND);
}

static void
test_run_files(void **state)
{
	static const char *const wrong[] = {"", "/", "0", "0/", "0//a", "x/a", "00/a", "-1/a",
		"0:/a", "0:./a", "0:../a", "0:.x/a", "0:b", "0:b/", "0:b/c/a", "0/../a", "0/..",
		"0/.a", "0/a/b", "0/a b", "0/a\n", "0/\xc3\xa4", "0:b:c/a"};
	struct request_run run;
	char path[600];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(path, sizeof(path), "/api/v1/runs/%s", wrong[i]);
		assert_int_equal(request_run_file(path, &run), -EINVAL);
	}
	assert_int_equal(request_run_file("/api/v1/runs/7/a-b_c.9", &run), 0);
	assert_int_equal(run.folder, 7);
	assert_string_equal(run.sub, "");
	assert_string_equal(run.file, "a-b_c.9");
	assert_int_equal(request_run_file("/api/v1/runs/0:x.y/a", &run), 0);
	assert_string_equal(run.sub, "x.y");
	assert_string_equal(run.file, "a");
	/* the longest names, and one more */
	snprintf(path, sizeof(path), "/api/v1/runs/0:%0255d/%0255d", 1, 2);
	assert_int_equal(request_run_file(path, &run), 0);
	assert_int_equal(strlen(run.sub), 255);
	assert_int_equal(strlen(run.file), 255);
	snprintf(path, sizeof(path), "/api/v1/runs/0:%0256d/%d", 1, 2);
	assert_int_equal(request_run_file(path, &run), -EINVAL);
	snprintf(path, sizeof(path), "/api/v1/runs/0/%0256d", 1);
	assert_int_equal(request_run_file(path, &run), -EINVAL);
}

static void
test_ranges(void **state)
{
	static const struct {
		const char *range;
		enum request_range part;
		uint64_t begin, length;
	} cases[] = {
		{NULL, REQUEST_RANGE_WHOLE, 0, 100},
		{"", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes=0-0", REQUEST_RANGE_PART, 0, 1},
		{"bytes=0-99", REQUEST_RANGE_PART, 0, 100},
		{"Bytes=5-9", REQUEST_RANGE_PART, 5, 5},
		{"bytes=99-", REQUEST_RANGE_PART, 99, 1},
		{"bytes=10-999999999999999999", REQUEST_RANGE_PART, 10, 90},
		{"bytes=-1", REQUEST_RANGE_PART, 99, 1},
		{"bytes=-100", REQUEST_RANGE_PART, 0, 100},
		{"bytes=-101", REQUEST_RANGE_PART, 0, 100},
		{"bytes=-0", REQUEST_RANGE_OUTSIDE},
		{"bytes=100-", REQUEST_RANGE_OUTSIDE},
		{"bytes=999999999999999999-", REQUEST_RANGE_OUTSIDE},
		/* not valid, or several */
		{"bytes=", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes=-", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes=5", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes=9-5", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes=0-1,5-6", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes= 0-1", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes=+0-1", REQUEST_RANGE_WHOLE, 0, 100},
		{"bytes=9999999999999999999-", REQUEST_RANGE_WHOLE, 0, 100},
		{"items=0-1", REQUEST_RANGE_WHOLE, 0, 100},
	};
	uint64_t begin, length;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(
			request_range(cases[i].range, 100, &begin, &length), cases[i].part);
		if (cases[i].part == REQUEST_RANGE_OUTSIDE)
			continue;
		assert_int_equal(begin, cases[i].begin);
		assert_int_equal(length, cases[i].length);
	}
	assert_int_equal(request_range("bytes=-5", 0, &begin, &length), REQUEST_RANGE_OUTSIDE);
	assert_int_equal(request_range("bytes=0-", 0, &begin, &length), REQUEST_RANGE_OUTSIDE);
}

static void
test_planes(void **state)
{
	assert_int_equal(request_plane(NULL), REQUEST_PLANE_FRAME);
	assert_int_equal(request_plane("frame"), REQUEST_PLANE_FRAME);
	assert_int_equal(request_plane("maximum"), REQUEST_PLANE_MAXIMUM);
	assert_int_equal(request_plane("mean"), REQUEST_PLANE_MEAN);
	assert_int_equal(request_plane("mask"), REQUEST_PLANE_MASK);
	assert_int_equal(request_plane(""), REQUEST_PLANE_NONE);
	assert_int_equal(request_plane("Frame"), REQUEST_PLANE_NONE);
}

static void
test_windows(void **state)
{
	static const char *const refused[] = {"", ",", "1,2,3,4", "1,2,3,4,", "1,2,3,4,5,",
		"a,2,3,4,5", "-1,2,3,4,5", " 1,2,3,4,5", "1,2,0,4,5", "1,2,3,0,5", "1,2,3,4,0",
		"1,2,3,4,65", "65537,2,3,4,5", "1,2,65537,4,5", "1,2,3,4,5x",
		"99999999999999999999,2,3,4,5", "1,2,,4,5", "1 ,2,3,4,5"};
	struct request_window w;

	assert_int_equal(request_window("1,2,3,4,5", &w), 0);
	assert_true(w.x == 1 && w.y == 2 && w.width == 3 && w.height == 4 && w.bin == 5);
	assert_int_equal(request_window("65536,0,65536,1,64", &w), 0);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		if (request_window(refused[i], &w) != -EINVAL)
			fail_msg("\"%s\" is accepted", refused[i]);
}

static void
test_only_names_of_this_machine_are_local(void **state)
{
	static const char *const local[] = {"localhost", "LocalHost:8090", "127.0.0.1",
		"127.0.0.1:1", "127.8.9.255", "[::1]", "[::1]:65535"};
	static const char *const other[] = {"", "example.org", "localhost.example.org",
		"127.0.0.1.example.org", "localhost:", "localhost:80a", "localhost:123456",
		"128.0.0.1", "127.1", "127.0.0.256", "[127.0.0.1]", "[::1]x", "::1", "[::1",
		"user@localhost"};

	assert_false(request_is_local_host(NULL));
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		assert_true(request_is_local_host(local[i]));
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		assert_false(request_is_local_host(other[i]));
}

static void
test_headers(void **state)
{
	assert_true(request_is_same_site(NULL));
	assert_true(request_is_same_site("same-origin"));
	assert_true(request_is_same_site("none"));
	assert_false(request_is_same_site("same-site"));
	assert_false(request_is_same_site("cross-site"));
	assert_false(request_is_same_site(""));
	assert_null(request_bearer(NULL));
	assert_null(request_bearer("Basic dXNlcjo="));
	assert_null(request_bearer("Bearer"));
	assert_string_equal(request_bearer("Bearer secret"), "secret");
	assert_string_equal(request_bearer("bearer  secret"), "secret");
	assert_string_equal(request_bearer("Bearer "), "");

	assert_true(request_matches("\"a-1\"", "\"a-1\""));
	assert_true(request_matches("\"b\", W/\"a-1\"", "\"a-1\""));
	assert_true(request_matches("*", "\"a-1\""));
	assert_false(request_matches(NULL, "\"a-1\""));
	assert_false(request_matches("", "\"a-1\""));
	assert_false(request_matches("\"a-12\"", "\"a-1\""));
	assert_false(request_matches(",,,", "\"a-1\""));

	assert_true(request_is_json("application/json"));
	assert_true(request_is_json("Application/JSON; charset=utf-8"));
	assert_false(request_is_json(NULL));
	assert_false(request_is_json("text/plain"));
	assert_false(request_is_json("application/jsonp"));
}

static void
expect_command(const char *body, int ret, const char *text)
{
	struct request_command c;
	const char *why = NULL;

	assert_int_equal(request_command(body, strlen(body), &c, &why), ret);
	if (ret == 0)
		assert_string_equal(c.text, text);
	else
		assert_non_null(why);
}

static void
test_commands(void **state)
{
	struct request_command c;
	char body[LIMIT_BODY];
	const char *why;
	int n;

	expect_command("{\"command\":\"/braggline/run/start\"}", 0, "/braggline/run/start");
	expect_command("{\"command\":\"/a\",\"parameters\":\"\"}", 0, "/a");
	expect_command("{\"parameters\":\"x.y=1,z\",\"command\":\"/a\"}", 0, "/a,x.y=1,z");
	expect_command("{\"command\":\"/a\",\"parameters\":\"run.sample=\\u00e4\"}", 0,
		"/a,run.sample=\xc3\xa4");
	expect_command("", -EINVAL, NULL);
	expect_command("[]", -EINVAL, NULL);
	expect_command("{}", -EINVAL, NULL);
	expect_command("{\"command\":\"/a\"} x", -EINVAL, NULL);
	expect_command("{\"command\":\"a\"}", -EINVAL, NULL);
	expect_command("{\"command\":1}", -EINVAL, NULL);
	expect_command("{\"command\":\"/a\",\"command\":\"/b\"}", -EINVAL, NULL);
	expect_command("{\"command\":\"/a\",\"more\":\"\"}", -EINVAL, NULL);
	/* a parameter in the path would pass the check of the path */
	expect_command("{\"command\":\"/a,b\"}", -EINVAL, NULL);
	expect_command("{\"command\":\"/a\",\"parameters\":\"x\\ny\"}", -EINVAL, NULL);
	expect_command("{\"command\":\"/a\",\"parameters\":\"x\\u0000y\"}", -EINVAL, NULL);
	expect_command("{\"command\":\"/a\",\"parameters\":\"\xff\"}", -EINVAL, NULL);
	/* the longest one that DPDK reads, and one more byte */
	n = snprintf(body, sizeof(body), "{\"command\":\"/a\",\"parameters\":\"%01020d\"}", 0);
	assert_int_equal(request_command(body, n, &c, &why), 0);
	assert_int_equal(strlen(c.text), LIMIT_COMMAND);
	n = snprintf(body, sizeof(body), "{\"command\":\"/a\",\"parameters\":\"%01021d\"}", 0);
	assert_int_equal(request_command(body, n, &c, &why), -EINVAL);
}

static void
test_only_the_control_commands_change_a_receiver(void **state)
{
	static const char *const allowed[] = {"/braggline/run/configure", "/braggline/run/arm",
		"/braggline/run/start", "/braggline/run/stop", "/braggline/run/abort",
		"/braggline/veto/set"};
	static const char *const refused[] = {
		"/braggline/ledger", "/eal/params", "/", "", "/braggline/run/start/"};
	size_t nb;

	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		assert_true(commands_is_control(SOURCE_RECEIVER, allowed[i]));
		assert_false(commands_is_control(SOURCE_STORE, allowed[i]));
		/* never without a request */
		assert_int_equal(commands_find(SOURCE_RECEIVER, allowed[i]), -1);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		assert_false(commands_is_control(SOURCE_RECEIVER, refused[i]));
	assert_non_null(commands_of(SOURCE_STORE, &nb));
	assert_in_range(nb, 1, COMMANDS_MAX);
}

static void
expect_options(int ret, const char *text, ...)
{
	char *argv[24] = {(char *)(uintptr_t) "braggline-view"}, message[OPTIONS_MESSAGE_LEN];
	struct options *o = calloc(1, sizeof(*o));
	va_list more;
	int argc = 1;

	va_start(more, text);
	while ((argv[argc] = va_arg(more, char *)) != NULL)
		argc++;
	va_end(more);
	assert_int_equal(options_parse(o, argc, argv, message), ret);
	if (text != NULL && strstr(message, text) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", text, message);
	free(o);
}

static void
test_options(void **state)
{
	char *argv[] = {(char *)(uintptr_t) "braggline-view", NULL}, message[OPTIONS_MESSAGE_LEN];
	struct options *o = calloc(1, sizeof(*o));

	assert_int_equal(options_parse(o, 1, argv, message), 0);
	assert_int_equal(o->nb_sources, 1);
	assert_string_equal(o->source[0].name, "rte");
	assert_string_equal(o->source[0].socket, "/run/dpdk/rte/dpdk_telemetry.v2");
	assert_true(o->loopback && !o->control && o->nice == 19);
	free(o);
	expect_options(0, NULL, "--receiver", "/run/dpdk/a/x", "--store", "b=/c", NULL);
	expect_options(0, NULL, "--listen", "[::1]:0", NULL);
	expect_options(0, NULL, "--listen", "127.5.5.5:1", NULL);
	expect_options(0, NULL, "--listen", "0.0.0.0:80", "--token-file", "t", NULL);
	expect_options(-EINVAL, "--token-file, because others", "--listen", "0.0.0.0:80", NULL);
	expect_options(-EINVAL, "--token-file, because others", "--listen", "[::]:80", NULL);
	expect_options(-EINVAL, "numeric address", "--listen", "localhost:80", NULL);
	expect_options(-EINVAL, "numeric address", "--listen", "127.0.0.1", NULL);
	expect_options(-EINVAL, "numeric address", "--listen", "127.0.0.1:65536", NULL);
	expect_options(-EINVAL, "numeric address", "--listen", "::1:80", NULL);
	expect_options(-EINVAL, "--control: expected --token-file", "--control", NULL);
	expect_options(-EINVAL, "expected both", "--tls-key", "k", NULL);
	expect_options(-EINVAL, "absolute path", "--receiver", "a=b", NULL);
	expect_options(-EINVAL, "NAME=SOCKET", "--receiver", "a b=/c", NULL);
	expect_options(-EINVAL, "NAME=SOCKET", "--receiver", "..=/c", NULL);
	expect_options(-EINVAL, "another name", "--receiver", "/x/a/s", "--store", "/y/a/s", NULL);
	expect_options(-EINVAL, "100 to 60000", "--interval", "99", NULL);
	expect_options(-EINVAL, "0 to 19", "--nice", "-1", NULL);
	expect_options(0, NULL, "--runs", "/a", "--runs", "/b", NULL);
	expect_options(-EINVAL, "absolute path", "--runs", "a", NULL);
	expect_options(-EINVAL, "at most 8", "--runs", "/1", "--runs", "/2", "--runs", "/3",
		"--runs", "/4", "--runs", "/5", "--runs", "/6", "--runs", "/7", "--runs", "/8",
		"--runs", "/9", NULL);
	expect_options(-EINVAL, "options only", "x", NULL);
	expect_options(-EINVAL, "--help", "--nonsense", NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_run_files),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_planes),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_only_names_of_this_machine_are_local),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_only_the_control_commands_change_a_receiver),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
