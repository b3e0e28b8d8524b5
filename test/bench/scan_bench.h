/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the parts of scan_bench: server and client of queries (scan_bench_ends.c), many clients
 * (scan_bench_crowd.c), and their peers (scan_bench_peers.c).
 */
#ifndef SCAN_BENCH_H
#define SCAN_BENCH_H

#include <stdatomic.h>

#include "bench_run.h"
#include "rdma_bench_rig.h"
#include "remote/client.h"
#include "remote/server.h"

#define KIB	   1024u
#define MIB	   (1024u * KIB)
#define MEMORY	   (64 * MIB) /* of each end of the rig: several times the last-level cache */
#define SLOTS	   16
#define SLOT_BYTES MIB

extern struct rig rig;
extern struct duckdb_api api;

/* What a client has got of a query. */
struct outcome {
	double seconds; /* until the last batch */
	double first;	/* until the first batch, or the end */
	uint64_t bytes; /* of bodies */
	uint64_t copied;
	uint64_t batches;
	uint64_t rows;
	uint64_t messages; /* bytes of the server's messages */
};

double now(void);

#define STATEMENT_MAX 512

/*
 * Text of the i-th execution of a statement: "#" becomes the number of a frame, which is another
 * one each time.
 */
void statement_text(char text[STATEMENT_MAX], const char *sql, unsigned int i);

enum ends_role {
	ENDS_LCORE, /* of the server: the main lcore */
	ENDS_ENGINE,
	ENDS_SERVICE, /* of the client: has its device */
	ENDS_CALLER,  /* of the client: reads the results */
};

/*
 * Bind this thread to the CPUs of a role. The client's service thread has that of the worker lcore,
 * which sleeps meanwhile. If the process has CPUs that no lcore has, the last one is the caller's,
 * and engines have the others. Otherwise, engines have that of the main lcore, and the caller has
 * that of the worker lcore.
 */
void ends_take_cpus(enum ends_role role);
void ends_print_cpus(void);

/*
 * Run a client on a thread with the CPUs of a caller, and its server on the main lcore until `done`
 * is set, which happens when the client returns.
 */
typedef void (*client_job)(void *arg);
typedef void (*server_job)(void *arg, const atomic_bool *done);
void pair_run(client_job client, void *client_arg, server_job server, void *server_arg);

/* Write keys, and create the ports of server and clients. @param dir  of the run */
void ends_create(const char *dir);

/* Open and close a server, which polls while ends_serve() runs. */
void ends_open_server(void);
void ends_serve(void *arg, const atomic_bool *done);
void ends_close_server(void);

/* Have a client execute a query `nb` times, after one time that is not measured. */
void ends_query(const char *sql, struct outcome *o, unsigned int nb);

/* As ends_query(), once, by a client that reads bodies. */
void ends_query_pull(const char *sql, struct outcome *o);

/* Key of the clients. */
extern struct xfer_key ends_key;
#define ENDS_NAME   "bench"
#define ENDS_CLIENT "roce:port=net_ring_scan0,ip=10.0.0.1/24,mtu=4096"
#define ENDS_SERVER "roce:port=net_ring_scan1,ip=10.0.0.2/24,mtu=4096"

/* Many clients at a time. */
struct crowd {
	unsigned int clients;
	bool disturbed; /* three more: one that reads nothing, one that vanishes, one without end */
	double seconds;
	const char *sql;
	/* results */
	double rate;	   /* of all together, bytes/s */
	double worst;	   /* share of the slowest of a fair one */
	unsigned int lost; /* clients whose query failed */
};
void crowd_run(struct crowd *c);

/* Conversion, serialisation, one socket. The server's engine is `e`. */
void peers_tcp_query(struct bench_engine *e, const char *sql, struct outcome *o, unsigned int nb);

/* Thallus' way: each batch is registered at both ends, and read; one at a time. */
void peers_thallus_query(struct bench_engine *e, const char *sql, struct outcome *o);

/* Map the file of images that the server reads, too. @{ */
void peers_open(const char *dir);
void peers_close(void);
/* @} */

/*
 * WRITEs of as many bytes.
 * @param of_file  of the same mapped file; otherwise of MEMORY, repeatedly
 * @return seconds
 */
double peers_write(uint64_t bytes, bool of_file);

/*
 * What the thread of a session does for a query: the same plan, reader and messages of Arrow, which
 * are not sent.
 * @return seconds
 */
double peers_engine(struct bench_engine *e, const char *sql);

/* Messages of a query and its result, with MACs, between lcores that poll. */
void peers_messages(uint32_t query, uint32_t result, double *seconds, unsigned int nb);

#endif /* SCAN_BENCH_H */
