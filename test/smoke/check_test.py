#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-recv --check on this machine, and the deployment configurations of conf/.

usage: check_test.py BUILD-DIR [CASE]...
"""

import os
import re
import subprocess
import sys

from cases import case, run_cases, want

BUILD = sys.argv[1]
RECV = f'{BUILD}/app/recv/braggline-recv'
STORE = f'{BUILD}/app/store/braggline-store'
CONF = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'conf')
CONFS = ('demo', 'jungfrau-500k', 'jungfrau-4m', 'jungfrau-9m')
# mbufs of the payload pools, computed as in the comments of the configurations
POOLS = {'jungfrau-500k': 42112, 'jungfrau-4m': 317184, 'jungfrau-9m': 673152}
PORT_ITEMS = ('device', 'pools', 'RX queues', 'RX descriptors', 'buffer split', 'flow rules', 'MTU',
              'link', 'pause frames', 'sources', 'destination', 'checksums')
ITEMS = ('UDP ports', 'queue pairs', 'card', 'rings', 'peak searches', 'GPU', 'gang kernel', 'pixel path',
         'GPUDirect', 'EAL memory', 'huge pages', 'locked memory', 'IOVA mode', 'IOMMU', 'lcores', 'CPU sharing', 'SMT siblings',
         'isolated CPUs', 'CPUs without ticks', 'CPU frequency', 'irqbalance', 'interrupts',
         'kernel command line', 'NUMA nodes', 'NUMA balancing', 'autogroup', 'TSC', 'clock', 'calibration',
         'output directory', 'geometry', 'disk space', 'direct I/O')
EGRESS_ITEMS = ('egress device', 'egress stores', 'egress key', 'journal', 'spill directory')


def recv(*arguments, eal=(), program=RECV):
    c = [program, '--no-huge', '--no-pci', '--no-shconf', '--no-telemetry', *eal, '--', *arguments]
    return subprocess.run(c, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)


def check(*arguments, eal=('-m', '512', '-l', '0')):
    """Run --check; returns exit status and rows: item -> (verdict, value, fix)."""
    done = recv('--check', *arguments, eal=eal)
    text, rows, last = done.stdout, {}, None
    for line in text.splitlines()[1:-1]:
        fix = re.fullmatch(r' +fix: +(.+)', line)
        if fix:
            rows[last] = (*rows[last][:2], fix[1])
            continue
        row = re.fullmatch(r'(\S.*?)  +(ok|warn|FAIL|n\.a\.)  +(.+)', line)
        want(row, 'not a row:', line, text, done.stderr)
        want(row[1] not in rows, 'twice:', line)
        last = row[1]
        rows[last] = (row[2], row[3], None)
    verdicts = [r[0] for r in rows.values()]
    want(text.splitlines()[-1] == f'{len(rows)} items: {verdicts.count("ok")} ok, '
         f'{verdicts.count("warn")} warn, {verdicts.count("FAIL")} fail, '
         f'{verdicts.count("n.a.")} n.a.', text)
    for item, (verdict, value, fix) in rows.items():
        want((fix is not None) == (verdict in ('warn', 'FAIL')), item, verdict, value, fix)
    want(done.returncode == ('FAIL' in verdicts), done.returncode, text, done.stderr)
    return done.returncode, rows, text


def replay(where, *options):
    capture = f'{where}/in.pcap'
    subprocess.run([f'{BUILD}/app/detector/braggline-detector', '--frames', '2', '--pcap', capture,
                    *options], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return ('-m', '512', '-l', '0', '--vdev', 'gpu_host0', '--vdev', f'net_replay0,file={capture}')


@case
def a_replay_passes_with_a_complete_table(where):
    status, rows, text = check('--set', f'output.directory={where}/out', '--set',
                               'port 0.device=net_replay0', eal=replay(where))
    want(status == 0, text)
    want(set(rows) == {f'port 0: {i}' for i in PORT_ITEMS} | set(ITEMS), sorted(rows))
    for item in ('port 0: MTU', 'port 0: link', 'huge pages', 'IOMMU', 'isolated CPUs'):
        want(rows[item][0] == 'n.a.', item, rows[item])
    for item in ('port 0: device', 'port 0: flow rules', 'EAL memory', 'lcores'):
        want(rows[item][0] == 'ok', item, rows[item])
    want(not os.path.exists(f'{where}/out'), 'a check creates no files')
    want(not [f for f in os.listdir(where) if f != 'in.pcap'], 'a check leaves nothing')


@case
def a_check_agrees_with_a_run(where):
    eal = replay(where)
    base = ('--set', f'output.directory={where}/out', '--set', 'port 0.device=net_replay0',
            '--set', 'run.idle_timeout_ms=100', '--quiet')
    for setting, item, ends in (
            ('gpu.outputs=400', 'EAL memory', 1),
            ('gpu.kernel=metal', 'gang kernel', 2),
            ('gpu.device=gpu_cuda7', 'GPU', 2),
            ('gpu.packets=device,port 0.mode=single', 'pixel path', 2),
            ('lcores.builder=77', 'lcores', 2),
            ('port 0.device=net_replay7', 'port 0: device', 2),
            (f'calibration.mask={where}/none.bin', 'calibration', 1),
            (f'output.directory={where}/a/b', 'output directory', 1),
            ('output.directory=/proc/braggline', 'output directory', 1)):
        sets = [a for s in setting.split(',') for a in ('--set', s)]
        status, rows, text = check(*base, *sets, eal=eal)
        want(status == 1 and rows[item][0] == 'FAIL', setting, text)
        want(recv(*base, *sets, eal=eal).returncode == ends, setting, 'a run ends otherwise')
        subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
    # either CUDA is not built in, or there is no driver, or it works
    cuda = '--set', 'gpu.kernel=cuda'
    status, rows, text = check(*base, *cuda, eal=eal)
    want((rows['gang kernel'][0] == 'FAIL') == (status == 1), text)
    want((recv(*base, *cuda, eal=eal).returncode != 0) == (status != 0), text)
    subprocess.run(['rm', '-rf', f'{where}/out'], check=True)
    status, _, text = check(*base, eal=eal)
    want(status == 0, text)
    done = recv(*base, eal=eal)
    want(done.returncode == 0, done.stdout, done.stderr)
    status, rows, text = check(*base, eal=eal)
    want(status == 1 and 'already exists' in rows['output directory'][1], text)


@case
def egress_is_checked_without_changes(where):
    """--check with an RDMA port at which no store replies: the rows of egress are printed, no file
    is created, and a run with the same settings agrees."""
    ring = f'/dev/shm/{os.path.basename(where)}'
    with open(f'{where}/key', 'wb') as key:
        key.write(os.urandom(64))
    os.chmod(f'{where}/key', 0o600)
    eal = (*replay(where), '--vdev', f'net_memif0,role=server,socket={ring}')
    base = ('--set', f'output.directory={where}/out', '--set', 'port 0.device=net_replay0', '--set',
            'run.idle_timeout_ms=100', '--quiet', '--set', 'egress.stores=10.0.0.2', '--set',
            'egress.device=roce:port=net_memif0,ip=10.0.0.1/24', '--set', 'egress.identity=recv',
            '--set', f'egress.key={where}/key',
            '--set', f'egress.journal={ring}', '--set', 'egress.journal_mib=64', '--set', 'egress.rate_mb_per_s=1',
            '--set', 'egress.batch_mib=1', '--set', 'egress.end_ms=0')
    try:
        status, rows, text = check(*base, '--set', f'egress.spill={where}/spill', eal=eal)
        want(status == 0, text)
        want(set(rows) == {f'port 0: {i}' for i in PORT_ITEMS} | set(ITEMS) | set(EGRESS_ITEMS),
             sorted(rows))
        for item in EGRESS_ITEMS:
            want(rows[item][0] == 'ok', item, text)
        want('egress' in rows['lcores'][1], text)
        want(not os.path.exists(ring) and not os.path.exists(f'{where}/spill'), 'made something')
        for setting, item, ends in (
                ('lcores.egress=77', 'lcores', 2),
                ('egress.device=roce:port=net_memif7,ip=10.0.0.1/24', 'egress device', 1),
                ('egress.device=rocky', 'egress device', 2),
                ('egress.stores=store.example', 'egress stores', 2),
                ('egress.stores=10.0.1.2', 'egress stores', 2),
                (f'egress.journal={where}/journal', 'journal', 2),
                (f'egress.key={where}/none', 'egress key', 1),
                ('egress.rate_mb_per_s=100', 'journal', 2),
                (f'egress.spill={where}/a/b', 'spill directory', 1),
                # both settings try to create the same device
                ('port 0.device=net_memif0', 'port 0: device', 1)):
            status, rows, text = check(*base, '--set', setting, eal=eal)
            want(status == 1 and rows[item][0] == 'FAIL', setting, text)
            done = recv(*base, '--set', setting, eal=eal)
            want(done.returncode == ends, setting, 'a run ends otherwise')
            if '10.0.1.2' in setting:
                want('store 10.0.1.2: 10.0.1.2 is not in 10.0.0.1/24 of the device, and gateway= is not set'
                     in done.stderr and '10.0.1.2 is not in 10.0.0.1/24' in rows[item][1], text, done.stderr)
    finally:
        if os.path.exists(ring):
            os.unlink(ring)


@case
def advised_memory_is_sufficient(where):
    eal = list(replay(where))
    arguments = ('--set', f'output.directory={where}/out', '--set', 'port 0.device=net_replay0',
                 '--set', 'gpu.outputs=400')
    status, rows, text = check(*arguments, eal=eal)
    advice = re.match(r'-m (\d+)', rows['EAL memory'][2])
    want(advice, text)
    eal[1] = advice[1]
    status, rows, text = check(*arguments, eal=eal)
    want(status == 0, text)
    done = recv(*arguments, '--set', 'run.idle_timeout_ms=100', '--quiet', eal=eal)
    want(done.returncode == 0, done.stdout, done.stderr)


@case
def a_geometry_that_is_probably_wrong(where):
    eal = replay(where)
    for settings, verdict, value in (
            ('', 'n.a.', 'none'),
            ('beam_x=515 beam_y=257 distance_mm=80', 'ok',
             '8 panels, picture 1030 x 514, beam between panels, corner at 2.0'),
            ('beam_x=38.6e3 beam_y=257 distance_mm=80', 'warn', 'beam outside'),
            ('beam_x=515 beam_y=257 distance_mm=0.08', 'warn', '0.08 mm from the sample'),
            ('beam_x=515 beam_y=257 distance_mm=80 energy_kev=9', 'warn', 'photon energy 9 keV')):
        _, rows, text = check('--set', f'output.directory={where}/out', '--set', 'port 0.device=net_replay0',
                              *(a for s in settings.split() for a in ('--set', f'geometry.{s}')), eal=eal)
        want(rows['geometry'][0] == verdict and value in rows['geometry'][1], settings, text)


def config_parses(where, config, program):
    """The configuration parses, and so does the dump of its settings. @return the dump"""
    eal = '-m', '64', '-l', '0'
    done = recv('--config', config, '--dump-config', eal=eal, program=program)
    want(done.returncode == 0, config, done.stderr)
    dump = f'{where}/dump.ini'
    with open(dump, 'w', encoding='utf-8') as f:
        f.write(done.stdout)
    again = recv('--config', dump, '--dump-config', eal=eal, program=program)
    want(again.returncode == 0 and again.stdout == done.stdout, config, 'dumps differ')
    return done.stdout


@case
def configurations_parse(where):
    files = {f[:-len('.ini')] for f in os.listdir(CONF) if f.endswith('.ini')}
    want(files == {*CONFS, 'store'}, files)
    for name in sorted(files):
        config_parses(where, f'{CONF}/{name}.ini', STORE if name == 'store' else RECV)


@case
def what_configurations_leave_out_parses_too(where):
    with open(f'{CONF}/jungfrau-4m.ini', encoding='utf-8') as f:
        text = f.read()
    # a setting that is commented out has no blank after its ;
    text, on = re.subn(r'^;(?=\S)', '', text, flags=re.M)
    with open(f'{where}/all.ini', 'w', encoding='utf-8') as f:
        f.write(text)
    dump = config_parses(where, f'{where}/all.ini', RECV)
    want(on > 10 and 'policy = round_robin' in dump and 'select = bunch' in dump, on, dump)
    # all sections of the program
    sections = set(re.findall(r'^\[([a-z]+)', dump, re.M))
    want(sections == set(re.findall(r'^\[([a-z]+)', text, re.M)), sections)


@case
def configurations_fail_clearly_without_their_devices(where):
    for name in CONFS[1:]:
        status, rows, text = check('--config', f'{CONF}/{name}.ini')
        want(status == 1, name, text)
        want(rows['port 0: device'][0] == 'FAIL' and '0000:01:00.0' in rows['port 0: device'][1]
             and '-a' in rows['port 0: device'][2], name, text)
        want(rows['lcores'][0] == 'FAIL', name, text)
        want(int(rows['port 0: pools'][1].split()[0]) == POOLS[name], name, text)
        want(rows['pixel path'][1].startswith('host memory'), name, text)
        if name == 'jungfrau-500k':
            want(rows['GPU'][0] == 'n.a.' and rows['gang kernel'][1] == 'host, 1 gang', text)
        else:
            # without a GPU the check fails; it must not fall back to a host gang
            want(rows['GPU'][0] == 'FAIL' and '--vdev gpu_cuda0' in rows['GPU'][2], name, text)
            want(rows['gang kernel'][1] in ('cuda, 2 gangs', 'cuda is not built in') or
                 rows['gang kernel'][1].startswith('cuda does not run on this host: '), name, text)


sys.exit(run_cases(sys.argv[2:]))
