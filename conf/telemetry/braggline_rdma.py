# SPDX-License-Identifier: BSD-3-Clause
"""Endpoint of RDMA devices for braggline-exporter and DPDK's dpdk-telemetry-exporter.py, which load
all files of share/dpdk/telemetry-endpoints and name metrics dpdk_braggline_rdma_NAME. Events that a
device does not count are left out. A receiver without stores has no metrics here."""

# All count since the start of the process.
INFO = {
    'info': ('Always 1; the labels describe the RDMA device.', 'gauge'),
    'packets_total': ('Packets of the RDMA device by direction.', 'counter'),
    'events_total': ('Events that the RDMA device counted, by type.', 'counter'),
}

# Counters of /braggline/rdma by direction and event: names of `roce` first, then of adapters.
RDMA_PACKETS = {'rx': ('rx_packets', 'hw_rcvd_pkts'), 'tx': ('tx_packets', 'hw_sent_pkts')}
RDMA_EVENTS = {
    'icrc_error': ('rx_icrc_errors', 'hw_rx_icrc_encapsulated'),
    'malformed': ('rx_malformed',),
    'out_of_sequence': ('rx_out_of_sequence', 'hw_out_of_sequence', 'hw_out_of_seq_request'),
    'duplicate': ('rx_duplicates', 'hw_duplicate_request'),
    'retransmit': ('tx_retransmits',),
    'timeout': ('ack_timeouts', 'hw_local_ack_timeout_err'),
    'nak_sequence': ('rx_nak_sequence', 'hw_packet_seq_err', 'hw_rcvd_seq_err'),
    'nak_fatal': ('rx_nak_fatal',),
    'peer_not_ready': ('rx_nak_rnr', 'hw_rnr_nak_retry_err', 'hw_rcvd_rnr_err'),
    'not_ready': ('rx_no_receive_posted', 'hw_out_of_buffer', 'hw_send_rnr_err'),
    'refused': ('rx_access_refused', 'hw_resp_remote_access_errors'),
    'retries_exceeded': ('wc_retries_exceeded', 'wc_rnr_retries_exceeded'),
    'qp_error': ('qp_errors',),
    'cq_overrun': ('cq_overrun',),
    'no_mbuf': ('tx_no_mbuf', 'control_nombuf'),
    'ring_full': ('rx_control_ring_full', 'tx_control_ring_full', 'rx_handover_ring_full',
                  'rx_other_device_ring_full'),
    'congestion_mark': ('rx_congestion_marks', 'hw_np_ecn_marked_roce_packets'),
    'congestion_notice': ('rx_cnps', 'hw_rp_cnp_handled'),
    'cm_timeout': ('cm_timeouts', 'cm_timed_out'),
    'cm_full': ('cm_backlog_full', 'cm_table_full', 'neighbors_full'),
    'neighbor_failed': ('neighbors_failed',),
    'address_conflict': ('addr_conflicts',),
}


def info():
    return INFO


def metrics(sock):
    # the exporter queries every process with every endpoint
    if '/braggline/rdma' not in sock.cmd('/'):
        return
    reply = sock.cmd('/braggline/rdma')
    if not reply['active']:
        return
    counters = reply['counters']
    yield 'info', 1, {k: reply[k] for k in ('device', 'provider')}
    for metric, label, causes in (('packets_total', 'direction', RDMA_PACKETS),
                                  ('events_total', 'event', RDMA_EVENTS)):
        for cause, names in causes.items():
            values = [counters[name] for name in names if name in counters]
            if values:
                yield metric, sum(values), {label: cause}
