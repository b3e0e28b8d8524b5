# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint of braggline-store for braggline-exporter and DPDK's dpdk-telemetry-exporter.py, which
load all files of share/dpdk/telemetry-endpoints and name metrics dpdk_braggline_store_NAME. An
endpoint is one file, so it repeats some functions of braggline.py. RDMA: braggline_rdma.py."""

# All count since the start of the process, except those of streams, which end with their runs.
INFO = {
    'info': ('Always 1; the labels describe the process.', 'gauge'),
    'alarm': ('1 for the alarm that the files raise now; 0 for the others.', 'gauge'),
    'requests_total': ('Requests for a connection.', 'counter'),
    'connections_total': ('Connections, by outcome.', 'counter'),
    'refused_connections_total': ('Connections that were refused, by reason.', 'counter'),
    'descriptors_total': ('Announced batches, by fault; good ones too.', 'counter'),
    'received_bytes_total': ('Bytes of the bodies of good descriptors.', 'counter'),
    'durable_batches_total': ('Batches that are durable in files.', 'counter'),
    'duplicate_batches_total': ('Batches that the store already had.', 'counter'),
    'returned_batches_total': ('Batches that were not written: disk full, quota, error, wrong CRC.',
                         'counter'),
    'truncated_batches_total': ('Batches that were truncated, because another store has them.', 'counter'),
    'reconciliations_total': ('Number of times that batches were truncated.', 'counter'),
    'runs_total': ('Runs, by outcome.', 'counter'),
    'body_crc_errors_total': ('Bodies that arrived with a wrong CRC.', 'counter'),
    'unreadable_bodies_total': ('Bodies that the store could not read back.', 'counter'),
    'stored_damaged_batches_total': ('Batches that were damaged in the memory of a receiver.', 'counter'),
    'reassigned_refused_total': ('REASSIGNED without the right, or of a run that has ended.', 'counter'),
    'removed_connections_total': ('Connections that ended because the new keyring lacks their key.', 'counter'),
    'unauthenticated_requests_total': ('Requests of peers that had not authenticated, by outcome.', 'counter'),
    'completing_files': ('Incomplete files of an earlier process that remain.', 'gauge'),
    'completing_bytes': ('Bytes of these files.', 'gauge'),
    'completed_files_total': ('Files of an earlier process, by outcome.', 'counter'),
    'age_milliseconds': ('Age of the counters when they were read.', 'gauge'),
    'identity_connections': ('Current connections of an identity.', 'gauge'),
    'identity_authentications_total': ('Number of times that an identity authenticated.', 'counter'),
    'identity_connections_established_total': ('Connections of an identity that were granted.', 'counter'),
    'identity_refused_total': ('Refusals of an identity after it authenticated.', 'counter'),
    'identity_durable_batches_total': ('Batches of an identity that are durable in files.', 'counter'),
    'identity_received_bytes_total': ('Bytes of the bodies of good descriptors of an identity.', 'counter'),
    'identity_truncated_batches_total': ('Batches truncated because the identity reassigned them.', 'counter'),
    'identity_ended_runs_total': ('Runs that an identity has ended.', 'counter'),
    'open_connections': ('Current connections.', 'gauge'),
    'slots': ('Slots for batches that are granted to connections.', 'gauge'),
    'credits': ('Free slots.', 'gauge'),
    'pending_batches': ('Batches that have arrived and have no result yet.', 'gauge'),
    'streams': ('Tables of runs whose files are open.', 'gauge'),
    'stream_bytes_total': ('Bytes of a table of an open run.', 'counter'),
    'stream_batches_total': ('Batches of a table of an open run.', 'counter'),
    'stream_pending_batches': ('Batches of a table of an open run that are being written.', 'gauge'),
    'stream_files': ('Files of a table of an open run.', 'gauge'),
    'stream_outages_total': ('Number of times that a file of the table failed.', 'counter'),
    'stream_stalls_total': ('Number of times that the disk of the table stalled.', 'counter'),
    'stream_error': ('errno of the current outage of the table; 0: none.', 'gauge'),
    'quota_bytes': ('Quota of the receiver_id of an open run; 0: no limit.', 'gauge'),
    'quota_used_bytes': ('Bytes of the quota that are used.', 'gauge'),
    'latency_seconds_bucket': ('Batches whose time was at most `le`, by step.', 'counter'),
    'latency_seconds_sum': ('Sum of these times, by step.', 'counter'),
    'latency_seconds_count': ('Batches whose time was measured, by step.', 'counter'),
}

ALARMS = ('disk full', 'quota', 'I/O error', 'disk stalled')
ENDS = ('established', 'broken', 'ended', 'abandoned', 'superseded')
RUNS = ('opened', 'ended', 'idle', 'refused')
COUNTERS = {
    'requests_total': 'requests', 'received_bytes_total': 'body_bytes',
    'durable_batches_total': 'batches_durable', 'duplicate_batches_total': 'batches_duplicate',
    'returned_batches_total': 'batches_returned', 'truncated_batches_total': 'batches_truncated',
    'reconciliations_total': 'reconciliations', 'body_crc_errors_total': 'body_crc_errors',
    'unreadable_bodies_total': 'bodies_unreadable', 'stored_damaged_batches_total': 'batches_stored_damaged',
    'reassigned_refused_total': 'reassigned_refused', 'removed_connections_total': 'keys_removed',
    'completing_files': 'completing_files', 'completing_bytes': 'completing_bytes',
}
UNPROVED = ('admitted', 'admitted_known', 'full', 'crowded', 'evicted')
COMPLETED = {'completed': 'files_completed', 'not_completed': 'files_not_completed'}
IDENTITY = {
    'identity_connections': 'connections', 'identity_authentications_total': 'authentications',
    'identity_connections_established_total': 'connections_established',
    'identity_refused_total': 'refused', 'identity_durable_batches_total': 'batches_durable',
    'identity_received_bytes_total': 'body_bytes',
    'identity_truncated_batches_total': 'batches_truncated',
    'identity_ended_runs_total': 'runs_ended',
}
CONNECTION = {'slots': 'slots', 'credits': 'credits', 'pending_batches': 'pending'}
STREAM = {
    'stream_bytes_total': 'bytes', 'stream_batches_total': 'batches', 'stream_pending_batches': 'pending',
    'stream_files': 'files', 'stream_outages_total': 'outages', 'stream_stalls_total': 'stalls',
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
        yield 'connections_total', reply[f'connections_{end}'], {'end': end}
    for reason, n in with_prefix(reply, 'refused_'):
        yield 'refused_connections_total', n, {'reason': reason}
    for fault, n in with_prefix(reply, 'descriptors_'):
        yield 'descriptors_total', n, {'fault': fault}
    for end in RUNS:
        yield 'runs_total', reply[f'runs_{end}'], {'end': end}
    for end in UNPROVED:
        yield 'unauthenticated_requests_total', reply[f'unauthenticated_{end}'], {'end': end}
    for end, name in COMPLETED.items():
        yield 'completed_files_total', reply[name], {'end': end}
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
    seconds = reply.pop('received_to_durable_sum_us') / 1e6
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
    yield from histogram('received_to_durable', below, times, seconds)


def histogram(step, below, times, seconds):
    """As Prometheus has them: each bucket with all below it."""
    total = 0
    for us, n in zip(below, times):
        total += n
        le = '+Inf' if us == below[-1] else f'{us / 1e6:g}'
        yield 'latency_seconds_bucket', total, {'step': step, 'le': le}
    yield 'latency_seconds_sum', seconds, {'step': step}
    yield 'latency_seconds_count', total, {'step': step}


def metrics(sock):
    # the exporter queries every process with every endpoint
    if '/braggline/store' not in sock.cmd('/'):
        return []
    return [*store(sock), *connections(sock), *identities(sock), *streams(sock)]
