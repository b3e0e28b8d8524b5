/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "eal/process_cpus.h"
#include "scan_bench.h"

#define WIRE_SLOTS 1024

struct xfer_key ends_key;
static struct scan_server *server;
static struct rte_ring *wire[2];
static const char *path[1];
static char key_path[128], keys_path[128];

double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

void __wrap_process_cpus_take(void);

static cpu_set_t
cpus_of(enum ends_role role)
{
	cpu_set_t others;
	int last = CPU_SETSIZE, cpu;

	process_cpus_others(&others);
	if (role == ENDS_LCORE || (role == ENDS_ENGINE && CPU_COUNT(&others) == 0))
		return rte_lcore_cpuset(rte_get_main_lcore());
	if (role == ENDS_SERVICE || CPU_COUNT(&others) == 0)
		return rte_lcore_cpuset(rig.worker);
	if (CPU_COUNT(&others) == 1)
		return others;
	while (!CPU_ISSET(--last, &others))
		;
	for (cpu = 0; cpu <= last; cpu++)
		if ((cpu == last) == (role == ENDS_ENGINE))
			CPU_CLR(cpu, &others);
	return others;
}

void
ends_take_cpus(enum ends_role role)
{
	const cpu_set_t cpus = cpus_of(role);

	(void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
}

/* Linked in place of process_cpus_take(), which the thread of an engine calls. */
void
__wrap_process_cpus_take(void)
{
	ends_take_cpus(ENDS_ENGINE);
}

static void
print_cpus(const char *what, const cpu_set_t *cpus)
{
	const char *before = " ";
	int cpu;

	printf("%s", what);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, cpus)) {
			printf("%s%d", before, cpu);
			before = ", ";
		}
}

void
ends_print_cpus(void)
{
	static const char *const name[] = {
		[ENDS_LCORE] = "CPUs: server",
		[ENDS_ENGINE] = "; engines",
		[ENDS_SERVICE] = "; client",
		[ENDS_CALLER] = "; caller",
	};
	enum ends_role role;
	cpu_set_t cpus;

	for (role = ENDS_LCORE; role <= ENDS_CALLER; role++) {
		cpus = cpus_of(role);
		print_cpus(name[role], &cpus);
	}
	printf("\n");
}

/* ---- pairs ----------------------------------------------------------------------------------- */

struct pair {
	client_job client;
	void *arg;
	atomic_bool done;
};

static void *
client_main(void *arg)
{
	struct pair *p = arg;

	ends_take_cpus(ENDS_CALLER);
	p->client(p->arg);
	atomic_store(&p->done, true);
	return NULL;
}

void
pair_run(client_job client, void *client_arg, server_job serve, void *server_arg)
{
	struct pair p = {client, client_arg, false};
	pthread_t thread;

	if (pthread_create(&thread, NULL, client_main, &p) != 0)
		rig_die("no thread for a client");
	serve(server_arg, &p.done);
	pthread_join(thread, NULL);
}

/* ---- server ---------------------------------------------------------------------------------- */

static void
write_file(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0 || chmod(name, 0600) < 0)
		rig_die("cannot write %s", name);
}

void
ends_create(const char *dir)
{
	char keys[256], name[32], message[PATH_MAX];
	int i;

	path[0] = dir;
	snprintf(key_path, sizeof(key_path), "%s/key", dir);
	snprintf(keys_path, sizeof(keys_path), "%s/keys.ini", dir);
	write_file(key_path, "0123456789abcdef0123456789abcdef");
	snprintf(keys, sizeof(keys),
		"[receiver " ENDS_NAME "]\nkey = %s\nrights = read\nconnections = 64\n", key_path);
	write_file(keys_path, keys);
	if (xfer_key_read(&ends_key, key_path, message) < 0)
		rig_die("%s", message);
	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "scan_wire%d", i);
		wire[i] = rte_ring_create(
			name, WIRE_SLOTS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (wire[i] == NULL)
			rig_die("no ring: %s", rte_strerror(rte_errno));
	}
	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "scan%d", i);
		if (rte_eth_from_rings(name, &wire[i], 1, &wire[!i], 1, 0) < 0)
			rig_die("no port on rings: %s", rte_strerror(rte_errno));
	}
}

void
ends_open_server(void)
{
	struct scan_server_config config = {
		.device = ENDS_SERVER,
		.keys = keys_path,
		.sessions = SCAN_SESSIONS,
		.worker = {.api = &api, .path = path, .nb_paths = 1, .threads = 1, .memory = "1GB"},
	};
	char message[PATH_MAX];

	if (scan_server_open(&server, &config, message) < 0)
		rig_die("%s", message);
}

/* The loop of braggline-scan --serve. */
void
ends_serve(void *arg, const atomic_bool *done)
{
	while (!atomic_load_explicit(done, memory_order_acquire)) {
		scan_server_pause(server, scan_server_poll(server));
	}
}

/* The client is closed and takes nothing any more. The device waits for its frames. */
static void
empty_wires(void)
{
	struct rte_mbuf *frame;
	unsigned int i;

	for (i = 0; i < 2; i++)
		while (rte_ring_dequeue(wire[i], (void **)&frame) == 0)
			rte_pktmbuf_free(frame);
}

void
ends_close_server(void)
{
	scan_server_stop(server);
	while (!scan_server_is_idle(server)) {
		(void)scan_server_poll(server);
		empty_wires();
	}
	scan_server_close(server);
	server = NULL;
}

/* ---- a client -------------------------------------------------------------------------------- */

struct asking {
	const char *sql;
	struct outcome *outcome;
	unsigned int nb;
	bool pull;
};

static void
ask(struct scan_client *c, const char *sql, struct outcome *o)
{
	struct scan_client_counters before, after;
	struct ArrowArrayStream stream;
	struct ArrowArray array;
	double start;
	int ret;

	memset(o, 0, sizeof(*o));
	scan_client_counters(c, &before);
	start = now();
	if (scan_client_query(c, sql, SCAN_NATIVE, &stream) < 0)
		rig_die("%s: not sent", sql);
	do {
		ret = stream.get_next(&stream, &array);
		if (o->first == 0)
			o->first = now() - start;
		if (ret != 0)
			rig_die("%s: %s", sql, stream.get_last_error(&stream));
		if (array.release == NULL)
			break;
		o->rows += array.length;
		array.release(&array);
	} while (true);
	o->seconds = now() - start;
	stream.release(&stream);
	scan_client_counters(c, &after);
	o->batches = after.batches - before.batches;
	o->copied = after.copied_bytes - before.copied_bytes;
	o->bytes = after.inline_bytes + after.pushed_bytes + after.pulled_bytes -
		before.inline_bytes - before.pushed_bytes - before.pulled_bytes;
}

static void
client(void *arg)
{
	const struct asking *a = arg;
	const struct scan_client_config config = {
		.device = ENDS_CLIENT,
		.server = "10.0.0.2",
		.identity = ENDS_NAME,
		.key = key_path,
		.slots = SLOTS,
		.slot_bytes = SLOT_BYTES,
		.pull = a->pull,
	};
	struct scan_client_error error;
	char sql[STATEMENT_MAX];
	struct scan_client *c;
	unsigned int i;

	/* its thread inherits them */
	ends_take_cpus(ENDS_SERVICE);
	if (scan_client_open(&c, &config, &error) < 0)
		rig_die("client: %s", error.text);
	ends_take_cpus(ENDS_CALLER);
	/* opens the engine, and checks the CRC of each batch */
	statement_text(sql, a->sql, a->nb);
	ask(c, sql, &a->outcome[0]);
	for (i = 0; i < a->nb; i++) {
		statement_text(sql, a->sql, i);
		ask(c, sql, &a->outcome[i]);
	}
	scan_client_close(c);
}

static void
query(struct asking *a)
{
	ends_open_server();
	pair_run(client, a, ends_serve, NULL);
	/* there was one more query */
	a->outcome[0].messages = scan_server_get_counters(server)->inline_bytes / (a->nb + 1);
	ends_close_server();
}

void
ends_query(const char *sql, struct outcome *o, unsigned int nb)
{
	query(&(struct asking){sql, o, nb, false});
}

void
ends_query_pull(const char *sql, struct outcome *o)
{
	query(&(struct asking){sql, o, 1, true});
}
