# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint of braggline-store for braggline-exporter and DPDK's dpdk-telemetry-exporter.py, which
load all files of share/dpdk/telemetry-endpoints and name metrics dpdk_braggline_store_NAME. An
endpoint is one file, so it repeats some functions of braggline.py. RDMA: braggline_rdma.py."""

# All count since the start of the process, except those of streams, which end with their runs.
INFO = {
    'info': ('Always 1; the labels describe the process.', 'gauge'),
    'alarm': ('1 for the alarm that the files raise now; 0 for the others.', 'gauge'),
    'requests': ('Requests for a connection.', 'counter'),
    'connections': ('Connections, by outcome.', 'counter'),
    'refused_connections': ('Connections that were refused, by reason.', 'counter'),
    'descriptors': ('Announced batches, by fault; good ones too.', 'counter'),
    'received_bytes': ('Bytes of the bodies of good descriptors.', 'counter'),
    'durable_batches': ('Batches that are durable in files.', 'counter'),
    'duplicate_batches': ('Batches that the store already had.', 'counter'),
    'returned_batches': ('Batches that were not written: disk full, quota, error, wrong CRC.',
                         'counter'),
    'truncated_batches': ('Batches that were truncated, because another store has them.', 'counter'),
    'reconciliations': ('Number of times that batches were truncated.', 'counter'),
    'runs': ('Runs, by outcome.', 'counter'),
    'body_crc_errors': ('Bodies that arrived with a wrong CRC.', 'counter'),
    'unreadable_bodies': ('Bodies that the store could not read back.', 'counter'),
    'stored_damaged_batches': ('Batches that were damaged in the memory of a receiver.', 'counter'),
    'reassigned_refused': ('REASSIGNED without the right, or of a run that has ended.', 'counter'),
    'removed_connections': ('Connections that ended because the new keyring lacks their key.', 'counter'),
    'unauthenticated_requests': ('Requests of peers that had not authenticated, by outcome.', 'counter'),
    'completing_files': ('Incomplete files of an earlier process that remain.', 'gauge'),
    'completing_bytes': ('Bytes of these files.', 'gauge'),
    'completed_files': ('Files of an earlier process, by outcome.', 'counter'),
    'age_milliseconds': ('Age of the counters when they were read.', 'gauge'),
    'identity_connections': ('Current connections of an identity.', 'gauge'),
    'identity_authentications': ('Number of times that an identity authenticated.', 'counter'),
    'identity_connections_established': ('Connections of an identity that were granted.', 'counter'),
    'identity_refused': ('Refusals of an identity after it authenticated.', 'counter'),
    'identity_durable_batches': ('Batches of an identity that are durable in files.', 'counter'),
    'identity_received_bytes': ('Bytes of the bodies of good descriptors of an identity.', 'counter'),
    'identity_truncated_batches': ('Batches truncated because the identity reassigned them.', 'counter'),
    'identity_ended_runs': ('Runs that an identity has ended.', 'counter'),
    'open_connections': ('Current connections.', 'gauge'),
    'slots': ('Slots for batches that are granted to connections.', 'gauge'),
    'credits': ('Free slots.', 'gauge'),
    'pending_batches': ('Batches that have arrived and have no result yet.', 'gauge'),
    'streams': ('Tables of runs whose files are open.', 'gauge'),
    'stream_bytes': ('Bytes of a table of an open run.', 'counter'),
    'stream_batches': ('Batches of a table of an open run.', 'counter'),
    'stream_pending_batches': ('Batches of a table of an open run that are being written.', 'gauge'),
    'stream_files': ('Files of a table of an open run.', 'gauge'),
    'stream_outages': ('Number of times that a file of the table failed.', 'counter'),
    'stream_stalls': ('Number of times that the disk of the table stalled.', 'counter'),
    'stream_error': ('errno of the current outage of the table; 0: none.', 'gauge'),
    'quota_bytes': ('Quota of the receiver_id of an open run; 0: no limit.', 'gauge'),
    'quota_used_bytes': ('Bytes of the quota that are used.', 'gauge'),
    'latency_seconds_bucket': ('Batches whose time was at most `le`, by step.', 'counter'),
    'latency_seconds_count': ('Batches whose time was measured, by step.', 'counter'),
}

ALARMS = ('disk full', 'quota', 'I/O error', 'disk stalled')
ENDS = ('established', 'broken', 'ended', 'abandoned', 'superseded')
RUNS = ('opened', 'ended', 'idle', 'refused')
COUNTERS = {
    'requests': 'requests', 'received_bytes': 'body_bytes', 'durable_batches': 'batches_durable',
    'duplicate_batches': 'batches_duplicate', 'returned_batches': 'batches_returned',
    'truncated_batches': 'batches_truncated', 'reconciliations': 'reconciliations',
    'body_crc_errors': 'body_crc_errors', 'unreadable_bodies': 'bodies_unreadable',
    'stored_damaged_batches': 'batches_stored_damaged',
    'reassigned_refused': 'reassigned_refused', 'removed_connections': 'keys_removed',
    'completing_files': 'completing_files', 'completing_bytes': 'completing_bytes',
}
UNPROVED = ('admitted', 'admitted_known', 'full', 'crowded', 'evicted')
COMPLETED = {'completed': 'files_completed', 'not_completed': 'files_not_completed'}
IDENTITY = {
    'identity_connections': 'connections', 'identity_authentications': 'authentications',
    'identity_connections_established': 'connections_established', 'identity_refused': 'refused',
    'identity_durable_batches': 'batches_durable', 'identity_received_bytes': 'body_bytes',
    'identity_truncated_batches': 'batches_truncated', 'identity_ended_runs': 'runs_ended',
}
CONNECTION = {'slots': 'slots', 'credits': 'credits', 'pending_batches': 'pending'}
STREAM = {
    'stream_bytes': 'bytes', 'stream_batches': 'batches', 'stream_pending_batches': 'pending',
    'stream_files': 'files', 'stream_outages': 'outages', 'stream_stalls': 'stalls',
    'stream_error': 'error',
}


def info():
    return INFO


def with_prefix(reply, prefix):
    return ((name[len(prefix):], n) for name, n in reply.items() if name.startswith(prefix))


def store(sock):
    reply = sock.cmd('/braggline/store')
    yield 'info', 1, {k: reply[k] for k in ('identity', 'bodies', 'cufile')}
    for alarm in ALARMS:
        yield 'alarm', int(reply['alarm'] == alarm), {'alarm': alarm}
    for metric, name in COUNTERS.items():
        yield metric, reply[name], {}
    for end in ENDS:
        yield 'connections', reply[f'connections_{end}'], {'end': end}
    for reason, n in with_prefix(reply, 'refused_'):
        yield 'refused_connections', n, {'reason': reason}
    for fault, n in with_prefix(reply, 'descriptors_'):
        yield 'descriptors', n, {'fault': fault}
    for end in RUNS:
        yield 'runs', reply[f'runs_{end}'], {'end': end}
    for end in UNPROVED:
        yield 'unauthenticated_requests', reply[f'unauthenticated_{end}'], {'end': end}
    for end, name in COMPLETED.items():
        yield 'completed_files', reply[name], {'end': end}
    yield 'age_milliseconds', reply['age_ms'], {}


def identities(sock):
    for identity in sock.cmd('/braggline/store/identities').values():
        for metric, name in IDENTITY.items():
            yield metric, identity[name], {'identity': identity['name']}


def connections(sock):
    """Of all together: the numbers of connections are given again."""
    reply = sock.cmd('/braggline/store/connections').values()
    yield 'open_connections', len(reply), {}
    for metric, name in CONNECTION.items():
        yield metric, sum(c[name] for c in reply), {}


def streams(sock):
    reply = sock.cmd('/braggline/store/streams')
    below, times = reply.pop('below_us'), reply.pop('received_to_durable')
    yield 'streams', len(reply), {}
    quotas = {}
    for name, stream in reply.items():
        slot, table = name.split('_')
        # two runs may have the same name, but not the same slot
        labels = {'slot': slot, 'run': stream['run'], 'receiver_id': stream['receiver_id'],
                  'table': table}
        for metric, key in STREAM.items():
            yield metric, stream[key], labels
        quotas[stream['receiver_id']] = stream['quota'], stream['quota_used']
    for receiver_id, (quota, used) in quotas.items():
        yield 'quota_bytes', quota, {'receiver_id': receiver_id}
        yield 'quota_used_bytes', used, {'receiver_id': receiver_id}
    yield from histogram('received_to_durable', below, times)


def histogram(step, below, times):
    """As Prometheus has them: each bucket with all below it."""
    total = 0
    for us, n in zip(below, times):
        total += n
        le = '+Inf' if us == below[-1] else f'{us / 1e6:g}'
        yield 'latency_seconds_bucket', total, {'step': step, 'le': le}
    yield 'latency_seconds_count', total, {'step': step}


def metrics(sock):
    # the exporter queries every process with every endpoint
    if '/braggline/store' not in sock.cmd('/'):
        return []
    return [*store(sock), *connections(sock), *identities(sock), *streams(sock)]
