#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whole runs of braggline-recv; apache-arrow for JS reads their files.

usage: recv_test.py CASE BUILD-DIR MODULES-DIR SHARED-DIR
psi    packets of PSI's virtual JUNGFRAU, one and two interfaces, with every kind of reception
real   real frames, split into packets, against PSI's own converted images
lcores the same input with other numbers of lcores and gangs gives the same columns
"""

import configparser
import os
import shutil
import subprocess
import sys
import tempfile

CASE, BUILD, MODULES, SHARED = sys.argv[1:5]
HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(SHARED, 'data')
# lcores that float over all CPUs, so that many fit on a few CPUs
FLOAT = f'(0-9)@(0-{os.cpu_count() - 1})'


def skip(reason):
    print('skipped:', reason)
    sys.exit(77)


def fail(text):
    print('FAILED:', text)
    sys.exit(1)


def run(command):
    """Run a program; its output is printed if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=240)
    if done.returncode != 0:
        print(done.stdout)
        fail(f'{done.returncode} from {" ".join(command)}')
    return done.stdout


def ledger(path):
    ini = configparser.ConfigParser()
    ini.read(path)
    return {k: int(v) for k, v in ini['frames'].items()}


def recv(where, name, capture, lcores, *settings):
    """One run. @return the path of its files without suffix"""
    command = [f'{BUILD}/app/recv/braggline-recv', '--no-huge', '-m', '1024', '--no-pci',
               '--no-shconf', '--no-telemetry', '--lcores', lcores,
               # any access to its memory ends the process, except by gangs and copies
               '--vdev', 'gpu_host0,private=1', '--vdev', f'net_replay0,file={capture}', '--', '--quiet']
    for s in (f'run.name={name}', f'output.directory={where}', 'run.idle_timeout_ms=300',
              *settings):
        command += ['--set', s]
    run(command)
    path = f'{where}/{name}'
    if ledger(path + '_ledger.ini')['balanced'] != 1:
        fail(f'{path}_ledger.ini does not balance')
    return path


def check(*args):
    return run(['node', f'{HERE}/recv_files.mjs', MODULES, *args]).strip()


def psi(where):
    n = 0
    for port in (('mode=split',), ('mode=single',), ('mode=split', 'payload=memory'),
                 ('mode=single', 'payload=memory')):
        for interfaces, frames, lanes, steering in ((1, 3, 1, 'flow'), (2, 2, 1, 'flow'),
                                                    (2, 2, 2, 'flow'), (2, 2, 2, 'software')):
            capture = 'sls-virtual-jungfrau' + ('-2if' if interfaces == 2 else '') + '.pcap'
            n += 1
            path = recv(where, f'psi{n}', f'{DATA}/{capture}', FLOAT, 'output.format=image',
                        'veto.dry_run=yes', f'detector.interfaces={interfaces}',
                        f'lcores.rx_lcores={lanes}', f'port 0.steering={steering}',
                        *(f'port 0.{p}' for p in port))
            print(f'{interfaces} interface(s), {" ".join(port)}, {lanes} RX lcore(s), {steering}:',
                  check('pattern', path, str(frames)))


# All of a module is one panel, as in shared/oracles/peaks/mod5_one_panel.geom
ONE_PANEL = """clen = 0.1
photon_energy = 9000
res = 13333.3
adu_per_photon = 1
one/min_fs = 0
one/max_fs = 1023
one/min_ss = 0
one/max_ss = 511
one/corner_x = -100.5
one/corner_y = 20.25
one/fs = +1x
one/ss = +1y
"""


def real(where):
    d = f'{DATA}/jungfrau'
    raw = [f'{d}/mod5_raw{i}.bin' for i in range(6)]
    conv = [f'{d}/mod5_conv{i}.bin' for i in range(6)]
    pedestal = [f'{d}/mod5_pedeG{g}.bin' for g in range(3)]
    gain = f'{d}/mod5_gain_adu_per_photon.bin'
    run([f'{BUILD}/app/detector/braggline-detector', '--pcap', f'{where}/real.pcap', '--pack',
         *raw])
    # The file holds gain x energy, so energy 1 leaves it unchanged. The run ends after its frames,
    # not after a time, which might be over on a busy machine before they have arrived.
    path = recv(where, 'real', f'{where}/real.pcap', FLOAT, 'output.format=image',
                f'run.frames={len(raw)}', 'run.idle_timeout_ms=20000', 'veto.dry_run=yes',
                f'calibration.gain={gain}', 'calibration.energy_kev=1',
                *(f'calibration.pedestal_g{g}={p}' for g, p in enumerate(pedestal)))
    frames = ledger(path + '_ledger.ini')
    if frames['frames'] != len(raw) or frames['missing_packets'] != 0:
        fail(f'the ledger of {path}: {frames}')
    print(check('converted', path, *raw, '--', *conv, '--', *pedestal, gain))
    oracles = f'{SHARED}/oracles/peaks'
    if not os.path.isdir(oracles):
        skip(f'{oracles} is not there: it has the peaks that CrystFEL finds')
    with open(f'{where}/one.geom', 'w', encoding='ascii') as f:
        f.write(ONE_PANEL)
    path = recv(where, 'peaks', f'{where}/real.pcap', FLOAT, 'output.format=csr',
                f'run.frames={len(raw)}', 'run.idle_timeout_ms=20000', 'veto.strong_min=0',
                f'calibration.gain={gain}', 'calibration.energy_kev=1',
                *(f'calibration.pedestal_g{g}={p}' for g, p in enumerate(pedestal)),
                f'calibration.mask={oracles}/mod5.mask',
                f'geometry.file={where}/one.geom', 'peaks.search=hits', 'peaks.threshold=10',
                'peaks.peaks_min=1')
    print(check('peaks', path, f'{oracles}/mod5_round_one_thr10_snr5.csv'))


def lcores(where):
    run([f'{BUILD}/app/detector/braggline-detector', '--modules', '2', '--interfaces', '2',
         '--frames', '80', '--seed', '7', '--hit-fraction', '0.3', '--dark-every', '4', '--pcap',
         f'{where}/in.pcap', '--truth', f'{where}/truth.csv', '--calibration', where])
    calibration = [f'calibration.gain={where}/gain_m%d.bin',
                   f'calibration.mask={where}/mask_m%d.bin',
                   *(f'calibration.pedestal_g{g}={where}/pedestal_g{g}_m%d.bin'
                     for g in range(3))]
    shape = ['detector.modules=2', 'detector.interfaces=2']
    # CSR with some raw frames; full images as int16, peaks and profiles; a CSR limit that some frames exceed
    kinds = {'csr': ['veto.prescale=5', 'veto.prescale_raw=yes'],
             'image': ['output.format=image', 'output.value=int16', 'veto.strong_min=5',
                       'peaks.search=hits', 'peaks.threshold=6', 'peaks.peaks_min=20',
                       'peaks.peaks_max=60', 'peaks.shells=100,4,2', 'peaks.max=30',
                       'veto.prescale=9', 'radial.bins=40', 'geometry.beam_x=515', 'geometry.beam_y=532',
                       'geometry.distance_mm=100'],
             'dense': ['output.nnz_max=21000', 'output.csr_threshold=1'],
             # four intervals; the dark frames of an interval take effect in the next but one
             'dark': ['dark.select=external_input', 'dark.interval_frames=20', 'dark.samples_min=3',
                      'dark.alpha=0.5', 'veto.prescale=7']}
    layouts = {'1x1': (FLOAT, ['lcores.rx_lcores=1', 'lcores.gangs=1']),
               '3x4': (FLOAT, ['lcores.rx_lcores=3', 'lcores.gangs=4']),
               '3x1sw': (FLOAT, ['lcores.rx_lcores=3', 'port 0.steering=software',
                                 'gpu.batch=1', 'lcores.gang_workers=3']),
               'gpu': (FLOAT, ['lcores.rx_lcores=2', 'lcores.gangs=2', 'gpu.packets=device',
                               'gpu.results=device']),
               'one': ('0@0', ['lcores.rx_lcores=3', 'lcores.gangs=4', 'port 0.mode=single'])}
    for kind, options in kinds.items():
        digests = {}
        for layout, (cpus, settings) in layouts.items():
            path = recv(where, f'{kind}_{layout}', f'{where}/in.pcap', cpus, *shape,
                        *calibration, *options, *settings)
            digests[layout] = check('digest', path)
            if layout == '1x1' and kind == 'csr':
                print(check('truth', path, f'{where}/truth.csv'))
            if layout == '1x1' and kind == 'dark':
                print(check('intervals', path, '20', '4'))
        if len(set(digests.values())) != 1:
            fail(f'{kind}: columns differ: {digests}')
        print(f'{kind}: the same columns on {", ".join(digests)}:', digests['1x1'].split('\n'))


def main():
    if shutil.which('node') is None:
        skip('node is missing (make deps)')
    if not os.path.isdir(f'{MODULES}/node_modules/apache-arrow'):
        skip(f'apache-arrow is not in {MODULES}/node_modules (make deps)')
    if CASE in ('psi', 'real') and not os.path.isdir(DATA):
        skip(f'{DATA} is not there: it has the detector data')
    with tempfile.TemporaryDirectory() as where:
        {'psi': psi, 'real': real, 'lcores': lcores}[CASE](where)


main()
