# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint of braggline-scan --serve for braggline-exporter and DPDK's dpdk-telemetry-exporter.py,
which load all files of share/dpdk/telemetry-endpoints and name metrics dpdk_braggline_scan_NAME. An
endpoint is one file, so it repeats a function of braggline_store.py. RDMA: braggline_rdma.py."""

# All count since the start of the process.
INFO = {
    'sessions_total': ('Authenticated connections.', 'counter'),
    'open_sessions': ('Current sessions, with those whose engine has not ended yet.', 'gauge'),
    'lost_sessions_total': ('Sessions that their clients did not close.', 'counter'),
    'queries_total': ('Queries.', 'counter'),
    'running_queries': ('Queries that are executed now.', 'gauge'),
    'failed_queries_total': ('Queries that ended with an error, with those that were ended.', 'counter'),
    'cancelled_queries_total': ('Queries that clients cancelled.', 'counter'),
    'overdue_queries_total': ('Queries that were ended because they exceeded the deadline.', 'counter'),
    'deferred_queries_total': ('Queries with deferred lists.', 'counter'),
    'batches_total': ('Record batches of results.', 'counter'),
    'body_bytes_total': ('Bytes of the bodies of these batches.', 'counter'),
    'deferred_body_bytes_total': ('Bytes of these bodies, of deferred lists.', 'counter'),
    'copied_body_bytes_total': ('Bytes that CPUs copied after the engines to make bodies.', 'counter'),
    'gathered_body_bytes_total': ('Bytes of bodies that the device read from mapped files.', 'counter'),
    'message_bytes_total': ('Bytes of messages with results.', 'counter'),
    'slot_bytes_total': ('Bytes of bodies that were written to slots of clients.', 'counter'),
    'pull_bytes_total': ('Bytes of bodies that clients read.', 'counter'),
    'held_bytes': ('Bytes of bodies that clients read and have not freed yet.', 'gauge'),
    'refused_total': ('Connections and sessions that were refused or ended, by reason.', 'counter'),
}

COUNTERS = {
    'sessions_total': 'sessions', 'open_sessions': 'sessions_current',
    'lost_sessions_total': 'sessions_lost', 'queries_total': 'queries',
    'running_queries': 'queries_current', 'failed_queries_total': 'queries_failed',
    'cancelled_queries_total': 'queries_cancelled',
    'overdue_queries_total': 'queries_beyond_deadline',
    'deferred_queries_total': 'queries_deferred', 'batches_total': 'batches',
    'body_bytes_total': 'body_bytes', 'deferred_body_bytes_total': 'body_bytes_deferred',
    'copied_body_bytes_total': 'body_bytes_copied',
    'gathered_body_bytes_total': 'body_bytes_gathered', 'message_bytes_total': 'message_bytes',
    'slot_bytes_total': 'slot_bytes', 'pull_bytes_total': 'pull_bytes',
    'held_bytes': 'pull_bytes_current',
}


def info():
    return INFO


def with_prefix(reply, prefix):
    return ((name[len(prefix):], n) for name, n in reply.items() if name.startswith(prefix))


def metrics(sock):
    # the exporter queries every process with every endpoint
    if '/braggline/scan' not in sock.cmd('/'):
        return
    reply = sock.cmd('/braggline/scan')
    for metric, name in COUNTERS.items():
        yield metric, reply[name], {}
    for reason, n in with_prefix(reply, 'refused_'):
        yield 'refused_total', n, {'reason': reason}
