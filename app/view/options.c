/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_refuse.h"
#include "whole_number.h"
#include "options.h"

#define LISTEN	 "127.0.0.1:8090"
#define INTERVAL 500
#define NICE	 19
#define RECEIVER "/run/dpdk/rte/dpdk_telemetry.v2"

static const char help[] =
	"usage: braggline-view [OPTION...]\n"
	"Serve a page that shows what receivers and stores do: frames, hit rate, losses and\n"
	"load. The server only reads their telemetry sockets and live files.\n"
	"\n"
	"  --receiver [NAME=]SOCKET  telemetry socket of a receiver; may be repeated (default:\n"
	"                            " RECEIVER ")\n"
	"  --store [NAME=]SOCKET     telemetry socket of a store; may be repeated\n"
	"  --runs DIR                list finished runs of this folder and its subfolders, and\n"
	"                            serve their files; may be repeated\n"
	"  --listen ADDRESS:PORT     where to accept connections (default: " LISTEN ").\n"
	"                            An address that others reach needs --token-file\n"
	"  --token-file FILE         clients must send the token in this file, 16 to 256\n"
	"                            characters in one line; no other user may read it\n"
	"  --control                 clients with the token may arm, start and stop runs and\n"
	"                            change thresholds\n"
	"  --tls-certificate FILE    accept HTTPS only, with this chain of certificates in PEM\n"
	"  --tls-key FILE            and this private key (PEM); no other user may read it\n"
	"  --interval MS             from one query of telemetry to the next, 100 to 60000\n"
	"                            (default: 500)\n"
	"  --nice N                  priority of the process, 0 to 19 (default: 19, the lowest)\n"
	"  --help                    print this help and exit\n"
	"  --version                 print the version and exit\n"
	"\n"
	"NAME is the name of a source on the page (default: the EAL file prefix in the path).\n"
	"Exit status: 0: ended by SIGINT or SIGTERM; 1: an error; 2: invalid command line.\n";

void
options_help(void)
{
	fputs(help, stdout);
}

int
options_address(const char *text, struct sockaddr_storage *address, bool *loopback)
{
	const char *colon = strrchr(text, ':');
	struct sockaddr_in *four = (struct sockaddr_in *)address;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
	char host[INET6_ADDRSTRLEN + 2];
	uint64_t port;
	size_t length;

	memset(address, 0, sizeof(*address));
	if (colon == NULL || (size_t)(colon - text) >= sizeof(host) ||
		!whole_number(colon + 1, 0, 65535, &port))
		return -EINVAL;
	length = (size_t)(colon - text);
	memcpy(host, text, length);
	host[length] = '\0';
	if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons((uint16_t)port);
		*loopback = ntohl(four->sin_addr.s_addr) >> 24 == 127;
		return 0;
	}
	if (length < 2 || host[0] != '[' || host[length - 1] != ']')
		return -EINVAL;
	host[length - 1] = '\0';
	if (inet_pton(AF_INET6, host + 1, &six->sin6_addr) != 1)
		return -EINVAL;
	six->sin6_family = AF_INET6;
	six->sin6_port = htons((uint16_t)port);
	*loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
	return 0;
}

/** The name of the folder that the socket is in. */
static void
default_name(const char *path, char name[REQUEST_NAME_LEN])
{
	const char *end = strrchr(path, '/'), *begin = end;

	while (begin != NULL && begin > path && begin[-1] != '/')
		begin--;
	name[0] = '\0';
	if (begin != NULL && end - begin > 0 && end - begin < REQUEST_NAME_LEN)
		snprintf(name, REQUEST_NAME_LEN, "%.*s", (int)(end - begin), begin);
}

static int
add_source(struct options *o, enum source_kind kind, const char *text,
	char message[OPTIONS_MESSAGE_LEN])
{
	const char *option = kind == SOURCE_RECEIVER ? "--receiver" : "--store";
	const size_t length = strcspn(text, "=/");
	struct source_config *c = &o->source[o->nb_sources];
	const char *path = text;

	if (o->nb_sources == LIMIT_SOURCES)
		return option_refuse(message, OPTIONS_MESSAGE_LEN, option, text,
			"at most 16 receivers and stores");
	memset(c, 0, sizeof(*c));
	c->kind = kind;
	if (text[length] == '=') {
		path = text + length + 1;
		if (length < REQUEST_NAME_LEN)
			memcpy(c->name, text, length);
	} else {
		default_name(path, c->name);
	}
	if (!request_is_name(c->name))
		return option_refuse(message, OPTIONS_MESSAGE_LEN, option, text,
			"NAME=SOCKET, with a name of up to 31 letters, digits, _, - and .");
	if (path[0] != '/' || snprintf(c->socket, sizeof(c->socket), "%s", path) >= 108)
		return option_refuse(message, OPTIONS_MESSAGE_LEN, option, text,
			"the absolute path of a socket, of at most 107 bytes");
	for (size_t i = 0; i < o->nb_sources; i++)
		if (strcmp(o->source[i].name, c->name) == 0)
			return option_refuse(message, OPTIONS_MESSAGE_LEN, option, text,
				"another name than that of the other sources; add NAME=");
	o->nb_sources++;
	return 0;
}

static int
add_runs(struct options *o, const char *path, char message[OPTIONS_MESSAGE_LEN])
{
	if (o->nb_runs == LIMIT_RUN_FOLDERS)
		return option_refuse(
			message, OPTIONS_MESSAGE_LEN, "--runs", path, "at most 8 folders");
	if (path[0] != '/' || strlen(path) >= PATH_MAX)
		return option_refuse(message, OPTIONS_MESSAGE_LEN, "--runs", path,
			"the absolute path of a folder");
	o->runs[o->nb_runs++] = path;
	return 0;
}

static int
set_option(struct options *o, int opt, char message[OPTIONS_MESSAGE_LEN])
{
	uint64_t value;

	switch (opt) {
	case 'r':
		return add_source(o, SOURCE_RECEIVER, optarg, message);
	case 's':
		return add_source(o, SOURCE_STORE, optarg, message);
	case 'R':
		return add_runs(o, optarg, message);
	case 'l':
		o->listen = optarg;
		if (options_address(optarg, &o->address, &o->loopback) != 0)
			return option_refuse(message, OPTIONS_MESSAGE_LEN, "--listen", optarg,
				"a numeric address and a port, such as 127.0.0.1:8090 or "
				"[::1]:8090");
		return 0;
	case 't':
		o->token_file = optarg;
		return 0;
	case 'c':
		o->control = true;
		return 0;
	case 'C':
		o->certificate = optarg;
		return 0;
	case 'K':
		o->key = optarg;
		return 0;
	case 'i':
		if (!whole_number(optarg, 100, 60000, &value))
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--interval", optarg, "100 to 60000");
		o->interval_ms = (unsigned int)value;
		return 0;
	case 'n':
		if (!whole_number(optarg, 0, 19, &value))
			return option_refuse(
				message, OPTIONS_MESSAGE_LEN, "--nice", optarg, "0 to 19");
		o->nice = (int)value;
		return 0;
	case 'h':
		o->help = true;
		return 0;
	case 'v':
		o->version = true;
		return 0;
	default:
		snprintf(message, OPTIONS_MESSAGE_LEN,
			"an option is unknown or has no value; see braggline-view --help");
		return -EINVAL;
	}
}

static int
check(struct options *o, char message[OPTIONS_MESSAGE_LEN])
{
	if (!o->loopback && o->token_file == NULL)
		return option_refuse(message, OPTIONS_MESSAGE_LEN, "--listen", o->listen,
			"--token-file, because others reach this address; without it listen to "
			"127.0.0.1 or [::1]");
	if (o->control && o->token_file == NULL) {
		snprintf(message, OPTIONS_MESSAGE_LEN, "--control: expected --token-file");
		return -EINVAL;
	}
	if ((o->certificate == NULL) != (o->key == NULL)) {
		snprintf(message, OPTIONS_MESSAGE_LEN,
			"--tls-certificate and --tls-key: expected both, or none");
		return -EINVAL;
	}
	return 0;
}

int
options_parse(struct options *o, int argc, char **argv, char message[OPTIONS_MESSAGE_LEN])
{
	static const struct option options[] = {
		{"receiver", required_argument, NULL, 'r'},
		{"store", required_argument, NULL, 's'},
		{"runs", required_argument, NULL, 'R'},
		{"listen", required_argument, NULL, 'l'},
		{"token-file", required_argument, NULL, 't'},
		{"control", no_argument, NULL, 'c'},
		{"tls-certificate", required_argument, NULL, 'C'},
		{"tls-key", required_argument, NULL, 'K'},
		{"interval", required_argument, NULL, 'i'},
		{"nice", required_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	int opt, ret;

	*o = (struct options){.listen = LISTEN, .interval_ms = INTERVAL, .nice = NICE};
	(void)options_address(LISTEN, &o->address, &o->loopback);
	message[0] = '\0';
	optind = 0;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		ret = set_option(o, opt, message);
		if (ret < 0)
			return ret;
	}
	if (optind < argc)
		return option_refuse(
			message, OPTIONS_MESSAGE_LEN, "argument", argv[optind], "options only");
	if (o->nb_sources == 0)
		(void)add_source(o, SOURCE_RECEIVER, RECEIVER, message);
	return check(o, message);
}
