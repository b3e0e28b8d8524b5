# SPDX-License-Identifier: BSD-3-Clause
"""The manual pages, and the parts of the READMEs that they are made of."""

from dataclasses import dataclass, field


@dataclass
class Page:
    name: str
    section: int
    folder: str                # of its README.rst
    summary: str               # of the section NAME
    parts: tuple = ()          # sections of the README; (): all
    without: tuple = ()        # ... but these
    intro: bool = True         # the README's introduction becomes the description
    more: tuple = ()           # folders whose READMEs become sections of the page
    see: tuple = ()
    commands: dict = field(default_factory=dict)  # command of the program -> its section
    settings: tuple = ()       # README folder and section of the keys of --set


PAGES = (
    Page('braggline-recv', 1, 'app/recv', 'receive the frames of a pixel detector',
         without=('Documentation', 'Processing of a frame', 'Settings'),
         more=('app/recv/rx', 'app/recv/frames', 'app/recv/port', 'app/recv/calib',
               'app/recv/egress', 'app/recv/telemetry', 'app/recv/output', 'app/recv/check'),
         see=('braggline-recv.ini(5)', 'braggline-store(1)', 'braggline-scan(1)', 'net_replay(7)',
              'gpu_cuda(7)', 'gpu_host(7)', 'braggline-rdma-devices(7)'),
         settings=('app/recv', 'Settings')),
    Page('braggline-store', 1, 'app/store', 'write record batches of receivers to files',
         without=('Settings', 'Keyring', 'Source files'),
         see=('braggline-store.ini(5)', 'braggline-recv(1)', 'braggline-scan(1)',
              'braggline-rdma-devices(7)'),
         commands={name: f'Commands/{name}' for name in ('verify', 'reconcile', 'import')},
         settings=('app/store', 'Settings')),
    Page('braggline-scan', 1, 'app/scan', 'read and check the files of runs',
         see=('braggline-recv(1)', 'braggline-export(1)')),
    Page('braggline-export', 1, 'app/export', 'write the frames of a run as NeXus files',
         see=('braggline-recv(1)', 'braggline-scan(1)', 'braggline-publish(1)')),
    Page('braggline-publish', 1, 'app/publish', 'send the frames of runs to live programs',
         without=('Delay',),
         see=('braggline-recv(1)', 'braggline-store(1)', 'braggline-export(1)')),
    Page('braggline-view', 1, 'app/view', 'serve a page that shows receivers and stores',
         without=('Performance', 'Build'),
         see=('braggline-recv(1)', 'braggline-store(1)')),
    Page('braggline-exporter', 1, 'conf/telemetry', 'serve metrics to Prometheus',
         without=('Build folder',),
         see=('braggline-recv(1)', 'braggline-store(1)', 'braggline-scan(1)', 'prometheus(1)')),
    Page('braggline-detector', 1, 'app/detector', 'simulate a JUNGFRAU detector',
         without=('The model',),
         see=('braggline-recv(1)', 'braggline-rdma-devices(7)')),
    Page('braggline-rdma', 1, 'pmd-ext/rdma/examples', 'test RDMA devices and send files',
         without=('Files',),
         see=('braggline-rdma-devices(7)', 'ib_write_bw(1)', 'rping(1)'),
         commands={**{name: 'Options/perftest' for name in (
             'write_bw', 'read_bw', 'send_bw', 'atomic_bw', 'write_lat', 'read_lat', 'send_lat',
             'atomic_lat')},
             **{name: f'Options/{name}' for name in ('rping', 'cmatose', 'udaddy', 'mckey')},
             'push': 'Files to several hosts/push', 'fetch': 'Files to several hosts/fetch'}),
    Page('braggline-recv.ini', 5, 'app/recv', 'configuration of braggline-recv',
         parts=('Settings',), intro=False,
         see=('braggline-recv(1)',)),
    Page('braggline-store.ini', 5, 'app/store', 'configuration of braggline-store',
         parts=('Settings', 'Keyring'), intro=False,
         see=('braggline-store(1)',)),
    Page('net_replay', 7, 'pmd-ext/net/replay', 'Ethernet device that receives a capture',
         see=('braggline-recv(1)',)),
    Page('gpu_host', 7, 'pmd-ext/gpu/host', 'gpudev driver on host memory',
         see=('braggline-recv(1)', 'gpu_cuda(7)')),
    Page('gpu_cuda', 7, 'pmd-ext/gpu/cuda', 'gpudev driver for NVIDIA GPUs',
         without=('Source',),
         see=('braggline-recv(1)', 'gpu_host(7)')),
    Page('braggline-rdma-devices', 7, 'pmd-ext/rdma', 'RDMA devices of roce: and verbs:',
         without=('Tests',),
         see=('braggline-rdma(1)', 'braggline-recv(1)', 'braggline-store(1)')),
)


def find(name):
    for page in PAGES:
        if page.name == name:
            return page
    raise SystemExit(f'{name}: no such page, expected {" ".join(p.name for p in PAGES)}')
