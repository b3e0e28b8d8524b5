# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint of braggline-recv for braggline-exporter and DPDK's dpdk-telemetry-exporter.py, which load
all files of share/dpdk/telemetry-endpoints and name metrics dpdk_braggline_NAME. RDMA:
braggline_rdma.py."""

# Counters of the ledger are those of the current run, or of the last one: they begin again with
# every run, as a counter may. All others count since the start of the process.
INFO = {
    'info': ('Always 1; the labels describe the process.', 'gauge'),
    'running': ('1 while a run takes frames, else 0.', 'gauge'),
    'armed': ('1 while a run is armed or is being armed, else 0.', 'gauge'),
    'runs_total': ('Runs that were started.', 'counter'),
    'frames_total': ('Frames of the run by outcome; without those in flight and held.', 'counter'),
    'frames_in_flight': ('Frames of the run that are being processed.', 'gauge'),
    'frames_held': ('Kept frames of the run that no store has yet.', 'gauge'),
    'kept_frames_total': ('Kept frames of the run by reason.', 'counter'),
    'incomplete_kept_frames_total': ('Kept frames of the run with missing packets.', 'counter'),
    'unretained_frames_total': ('Unwritten frames of the run, because the journal was full.', 'counter'),
    'timeout_frames_total': ('Frames of the run that were closed by time.', 'counter'),
    'packets_total': ('Packets of the run by outcome; the outcomes add up to those received.', 'counter'),
    'received_packets_total': ('Packets of the run.', 'counter'),
    'received_bytes_total': ('Bytes of the packets of the run.', 'counter'),
    'port_dropped_packets_total': ('Packets of the run that ports dropped before RX, by cause.', 'counter'),
    'lcore_busy_cycles_total': ('Cycles with work, by lcore.', 'counter'),
    'lcore_idle_cycles_total': ('Cycles without work, by lcore.', 'counter'),
    'module_frames_total': ('Frames with a packet of the module.', 'counter'),
    'module_missing_packets_total': ('Missing packets in frames with a packet of the module.', 'counter'),
    'inconsistent_frames_total': ('Frames of another storage cell or gain mode, or whose modules disagree on these or the bunch id.',
                                  'counter'),
    'builder_waits_total': ('Iterations of the builder without a free output slot, or record.', 'counter'),
    'gang_frames_total': ('Frames by gang.', 'counter'),
    'gang_batches_total': ('Batches by gang.', 'counter'),
    'gang_pending_batches': ('Batches that a gang has now.', 'gauge'),
    'writer_bytes_total': ('Bytes in the files of the run by table.', 'counter'),
    'writer_kept_bytes_total': ('Bytes of pixels in the images of the run.', 'counter'),
    'writer_copied_bytes_total': ('Bytes of these pixels that a CPU copied, each copy counted.', 'counter'),
    'writer_durable_rows_total': ('Durable rows of the run, by table.', 'counter'),
    'writer_unwritten_rows_total': ('Rows of the run that are in no file, by table and cause.', 'counter'),
    'writer_outages_total': ('Number of times in the run that a file failed, by table.', 'counter'),
    'writer_stalls_total': ('Number of times in the run that the disk stalled, by table.', 'counter'),
    'egress_active': ('1: batches go to stores; 0: to local files.', 'gauge'),
    'egress_overload_level': ('1 for the current level: hold, spill or refuse; else 0.', 'gauge'),
    'egress_spills_total': ('Number of times that spilling began.', 'counter'),
    'egress_refusals_total': ('Number of times that batches began to be refused.', 'counter'),
    'egress_spilled_batches_total': ('Batches that went to local files.', 'counter'),
    'egress_spill_used_bytes': ('Bytes of local files, reserved ones included.', 'gauge'),
    'egress_spill_error': ('errno of the current error of local files; 0: none.', 'gauge'),
    'journal_batches': ('Batches in the journal.', 'gauge'),
    'journal_bytes': ('Bytes of the journal that are in use.', 'gauge'),
    'journal_room_bytes': ('Size of the journal in bytes.', 'gauge'),
    'journal_slots': ('Output slots in the journal.', 'gauge'),
    'journal_held_slots': ('Output slots in the journal that batches refer to.', 'gauge'),
    'journal_full_total': ('Number of times that the journal had no room for a batch.', 'counter'),
    'journal_in_doubt_batches': ('Batches that a store may have and must truncate.', 'gauge'),
    'egress_store_up': ('1 while the store is connected, else 0.', 'gauge'),
    'egress_store_credits': ('Free slots at the store.', 'gauge'),
    'egress_store_sent_batches_total': ('Batches sent, by store; each transmission counts.', 'counter'),
    'egress_store_sent_bytes_total': ('Bytes of the batches sent, by store.', 'counter'),
    'egress_store_durable_batches_total': ('Batches that are durable at the store.', 'counter'),
    'egress_store_broken_connections_total': ('Connections that broke, by store.', 'counter'),
    'egress_store_stuck_total': ('Number of times that results were overdue, by store.', 'counter'),
    'latency_seconds_bucket': ('Frames or batches (*_batch) whose time was at most `le`, by step.', 'counter'),
    'latency_seconds_sum': ('Sum of these times, by step.', 'counter'),
    'latency_seconds_count': ('Frames or batches whose time was measured, by step.', 'counter'),
    'pedestal_updates_total': ('Updates of the pedestals by dark frames.', 'counter'),
    'pedestal_samples_total': ('Samples of dark pixels in these updates.', 'counter'),
    'calibration_warnings': ('Implausible medians and live pixels in the maps in force.', 'gauge'),
    'calibration_live_pixels': ('Pixels of a module with a photon value in G0.', 'gauge'),
    'pedestal_version': ('Version of the pedestals that the last update made.', 'gauge'),
    'veto_version': ('Newest version of the thresholds.', 'gauge'),
    'preview_pictures_total': ('Pictures that were written.', 'counter'),
}

OUTCOMES = ('stored', 'vetoed', 'incomplete', 'lost', 'refused', 'aborted', 'unwritten', 'spilled',
         'lost_at_restart', 'lost_while_down', 'late_frames')
REASONS = {'hit': 'hits', 'prescale': 'prescaled', 'dry_run': 'dry_run'}
CAUSES = {'full': 'unwritten_full', 'error': 'unwritten_error', 'bad': 'unwritten_bad'}
EGRESS = {
    'egress_spills_total': 'spills', 'egress_refusals_total': 'refusals',
    'egress_spilled_batches_total': 'spilled', 'egress_spill_used_bytes': 'spill_used', 'egress_spill_error': 'spill_error',
}
# Counters among the packets' that are no outcome: totals, bursts, waits, and packets handed on to
# another RX role, which counts them again.
NO_OUTCOMES = ('packets', 'bytes', 'bursts', 'waits', 'handoff')


def info():
    return INFO


def by_label(sock, command, label, names):
    """A reply that is a dict of dicts: the outer key is the label."""
    return [(metric, values[name], {label: key})
            for key, values in sock.cmd(command).items() for metric, name in names.items()]


def ledger(sock):
    reply = sock.cmd('/braggline/ledger')
    frames, packets = reply['frames'], reply['packets']
    yield 'running', int(reply['state'] in ('running', 'stopping')), {}
    yield 'armed', int(reply['state'] in ('arming', 'armed')), {}
    for outcome in OUTCOMES:
        yield 'frames_total', frames[outcome], {'outcome': outcome}
    for reason, name in REASONS.items():
        yield 'kept_frames_total', frames[name], {'reason': reason}
    yield 'frames_in_flight', frames['in_flight'], {}
    yield 'frames_held', frames['held'], {}
    yield 'incomplete_kept_frames_total', frames['incomplete_kept'], {}
    yield 'timeout_frames_total', frames['timeouts'], {}
    yield 'unretained_frames_total', frames['unretained'], {}
    for outcome, n in packets.items():
        if outcome not in NO_OUTCOMES:
            yield 'packets_total', n, {'outcome': outcome}
    yield 'received_packets_total', packets['packets'], {}
    yield 'received_bytes_total', packets['bytes'], {}
    for cause, n in reply['ports'].items():
        yield 'port_dropped_packets_total', n, {'cause': cause}


def builder(sock):
    reply = sock.cmd('/braggline/builder')
    yield 'inconsistent_frames_total', reply['status_mismatch'], {'differs': 'status'}
    yield 'inconsistent_frames_total', reply['bunch_mismatch'], {'differs': 'bunch_id'}
    for what, key in ('outputs', 'no_output_slot'), ('records', 'no_record'):
        yield 'builder_waits_total', reply[key], {'for': what}


def writer(sock):
    reply = sock.cmd('/braggline/writer')
    for table in 'frames', 'images':
        t, labels = reply.get(table), {'table': table}
        if t is None:  # no run yet
            t = dict.fromkeys(('bytes', 'durable', 'outages', 'stalls', *CAUSES.values()), 0)
        yield 'writer_bytes_total', t['bytes'], labels
        yield 'writer_durable_rows_total', t['durable'], labels
        yield 'writer_outages_total', t['outages'], labels
        yield 'writer_stalls_total', t['stalls'], labels
        for cause, name in CAUSES.items():
            yield 'writer_unwritten_rows_total', t[name], {**labels, 'cause': cause}
    yield 'writer_kept_bytes_total', reply.get('kept_bytes', 0), {}
    yield 'writer_copied_bytes_total', reply.get('copied_bytes', 0), {}


def egress(reply):
    active = reply['active']
    ring = reply['journal'] if active else dict.fromkeys(
        ('batches', 'bytes', 'room', 'in_doubt', 'full', 'slots', 'slots_held'), 0)
    yield 'egress_active', active, {}
    for level in 'hold', 'spill', 'refuse':
        yield 'egress_overload_level', int(bool(active) and reply['overload_level'] == level), {'level': level}
    for metric, name in EGRESS.items():
        yield metric, reply[name] if active else 0, {}
    yield 'journal_batches', ring['batches'], {}
    yield 'journal_bytes', ring['bytes'], {}
    yield 'journal_room_bytes', ring['room'], {}
    yield 'journal_slots', ring['slots'], {}
    yield 'journal_held_slots', ring['slots_held'], {}
    yield 'journal_full_total', ring['full'], {}
    yield 'journal_in_doubt_batches', ring['in_doubt'], {}
    for store in reply['stores'].values() if active else ():
        labels = {'store': store['address']}
        yield 'egress_store_up', int(store['state'] == 'up'), labels
        yield 'egress_store_credits', store['credits'], labels
        yield 'egress_store_sent_batches_total', store['sent'], labels
        yield 'egress_store_sent_bytes_total', store['bytes'], labels
        yield 'egress_store_durable_batches_total', store['durable'], labels
        yield 'egress_store_broken_connections_total', store['broken'], labels
        yield 'egress_store_stuck_total', store['stuck'], labels


def latency(reply, stores):
    """Histograms as Prometheus has them: each bucket with all below it."""
    below = reply.pop('below_us')
    if stores['active']:
        for name in 'kept_to_durable', 'kept_to_durable_sum_us':
            reply[name] = stores[name]
    for step, histogram in reply.items():
        if step.endswith('_sum_us'):
            yield 'latency_seconds_sum', histogram / 1e6, {'step': step[:-len('_sum_us')]}
            continue
        total = 0
        for us, n in zip(below, histogram):
            total += n
            last = us == below[-1]
            yield ('latency_seconds_bucket', total,
                   {'step': step, 'le': '+Inf' if last else f'{us / 1e6:g}'})
        yield 'latency_seconds_count', total, {'step': step}


def metrics(sock):
    # the exporter queries every process with every endpoint
    if '/braggline/ledger' not in sock.cmd('/'):
        return []
    about = sock.cmd('/braggline/info')
    labels = {k: about[k] for k in ('version', 'dpdk', 'detector', 'kernel', 'gpu')}
    pedestal = sock.cmd('/braggline/pedestal')
    stores = sock.cmd('/braggline/egress')
    return [
        ('info', 1, labels),
        ('runs_total', sock.cmd('/braggline/run/status')['runs'], {}),
        *ledger(sock),
        *by_label(sock, '/braggline/lcores', 'lcore', {
            'lcore_busy_cycles_total': 'busy_cycles', 'lcore_idle_cycles_total': 'idle_cycles'}),
        *by_label(sock, '/braggline/modules', 'module', {
            'module_frames_total': 'frames', 'module_missing_packets_total': 'missing_packets'}),
        *by_label(sock, '/braggline/calibration', 'module', {
            'calibration_live_pixels': 'live'}),
        ('calibration_warnings', pedestal['warnings'], {}),
        *by_label(sock, '/braggline/gangs', 'gang', {
            'gang_frames_total': 'frames', 'gang_batches_total': 'batches',
            'gang_pending_batches': 'pending'}),
        *builder(sock),
        *writer(sock),
        *egress(stores),
        *latency(sock.cmd('/braggline/latency'), stores),
        ('pedestal_updates_total', pedestal['updates'], {}),
        ('pedestal_samples_total', pedestal['update_samples'], {}),
        ('pedestal_version', pedestal['pedestal_version'], {}),
        ('veto_version', sock.cmd('/braggline/veto')['version'], {}),
        ('preview_pictures_total', sock.cmd('/braggline/preview')['sequence'], {}),
    ]
