# SPDX-License-Identifier: BSD-3-Clause
"""Properties of the machine that benchmark results depend on: processor, caches, pages, kernel,
compiler, peers."""
import glob
import json
import os
import platform
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))

# first line of a bundle's README (.ci/bundle)
BUNDLE = re.compile(r'braggline \S+, commit (?P<commit>\S+), DPDK (?P<dpdk>\S+)')

# CPUID family and model, which hypervisors do not change when they call all of them "AMD EPYC"
PROCESSORS = {
    ('AuthenticAMD', 23): {range(0x30, 0x100): 'zen2', range(0x00, 0x30): 'zen1'},
    ('AuthenticAMD', 25): {range(0x10, 0x20): 'zen4', range(0x60, 0x80): 'zen4',
                           range(0xa0, 0xb0): 'zen4', range(0x00, 0x10): 'zen3',
                           range(0x20, 0x60): 'zen3'},
    ('AuthenticAMD', 26): {range(0x00, 0x100): 'zen5'},
    ('GenuineIntel', 6): {(85,): 'skylake', (106, 108): 'icelake', (143,): 'sapphirerapids',
                          (207,): 'emeraldrapids', (173, 174): 'graniterapids'},
}
VENDORS = {'AuthenticAMD': 'amd', 'GenuineIntel': 'intel'}
# the flags that gk_isa.c checks
AVX2 = {'avx2', 'bmi1', 'bmi2'}
AVX512 = AVX2 | {'avx512f', 'avx512bw', 'avx512dq', 'avx512vl'}


def read(path):
    try:
        with open(path, encoding='utf-8', errors='replace') as f:
            return f.read()
    except OSError:
        return ''


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL).stdout.strip()
    except OSError:
        return ''


def processor(cpuinfo):
    """The fields of the first CPU of /proc/cpuinfo."""
    lines = (line.split(':', 1) for line in cpuinfo.split('\n\n', maxsplit=1)[0].splitlines()
             if ':' in line)
    return {key.strip(): value.strip() for key, value in lines}


def architecture(cpu):
    """zen3; a processor without a name here is f25m1."""
    family, model = int(cpu.get('cpu family', 0)), int(cpu.get('model', 0))
    for models, name in PROCESSORS.get((cpu.get('vendor_id'), family), {}).items():
        if model in models:
            return name
    return f'f{family}m{model}'


def instruction_set(cpu):
    """The instruction set that gangs use."""
    flags = set(cpu.get('flags', '').split())
    return 'avx512' if AVX512 <= flags else 'avx2' if AVX2 <= flags else 'plain'


def slug(cpu):
    """The name of a machine's files: amd-zen3-avx2."""
    vendor = VENDORS.get(cpu.get('vendor_id'), platform.machine())
    return f'{vendor}-{architecture(cpu)}-{instruction_set(cpu)}'


def caches():
    found = []
    for index in sorted(glob.glob('/sys/devices/system/cpu/cpu0/cache/index*')):
        kind = read(f'{index}/type').strip()
        if kind != 'Instruction':
            found.append(f'L{read(f"{index}/level").strip()}{"d" if kind == "Data" else ""} '
                         f'{read(f"{index}/size").strip()}iB')
    return ', '.join(found) or 'unknown'


def pages():
    facts = dict(line.split(':') for line in read('/proc/meminfo').splitlines() if ':' in line)
    transparent = re.search(r'\[(\w+)\]', read('/sys/kernel/mm/transparent_hugepage/enabled'))
    return (f'{facts["HugePages_Free"].strip()} of {facts["HugePages_Total"].strip()} huge pages '
            f'of {facts["Hugepagesize"].strip()} free; transparent ones: '
            f'{transparent[1] if transparent else "none"}')


def real_time():
    """@return whether polling threads may have real-time priority. A child tries it, so that this
    process does not change."""
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def bundle(build):
    """Versions in a bundle's README, by name; None: not a bundle."""
    return BUNDLE.match(read(f'{build}/README'))


def built(build):
    """Compiler and DPDK as found by meson, or as in the bundle's README."""
    if bundle(build):
        return f'a bundle, DPDK {bundle(build)["dpdk"]}'
    compiler = re.search(r'^C compiler for the host machine: .*?\((.*?) "',
                         read(f'{build}/meson-logs/meson-log.txt'), re.MULTILINE)
    facts = [compiler[1] if compiler else 'compiler not known']
    try:
        facts += [f'DPDK {d["version"]}'
                  for d in json.loads(read(f'{build}/meson-info/intro-dependencies.json'))
                  if d['name'] == 'libdpdk']
        options = {o['name']: o['value']
                   for o in json.loads(read(f'{build}/meson-info/intro-buildoptions.json'))}
        facts += [f'-O{options["optimization"]}']
    except ValueError:
        facts.append('not in its build directory')
    return ', '.join(facts)


def peers():
    numpy = output('/usr/bin/python3', '-c', 'import numpy; print(numpy.__version__)')
    return f'{output("fio", "--version") or "no fio"}, {"numpy " + numpy if numpy else "no numpy"}'


def commit(build):
    """The commit. A bundle has its own record, as it is used on machines without the repository."""
    if bundle(build):
        return bundle(build)['commit']
    return output('git', '-C', HERE, 'describe', '--always', '--dirty', '--abbrev=12') or 'unknown'


def cpu_times():
    """@return total time of all CPUs, and the part of it that the host gave to other guests"""
    times = [int(t) for t in read('/proc/stat').split('\n', maxsplit=1)[0].split()[1:9]]
    return sum(times), times[7]


def facts(build):
    cpu = processor(read('/proc/cpuinfo'))
    memory = int(re.search(r'MemTotal: +(\d+)', read('/proc/meminfo'))[1]) >> 20
    return {
        'Machine': f'{os.cpu_count()} CPUs of {cpu.get("model name", "unknown")}, '
                   f'{architecture(cpu)} (family {cpu.get("cpu family")}, model '
                   f'{cpu.get("model")}), {memory} GB',
        'Caches': f'{caches()} of a CPU',
        'Gangs': f'instruction set {instruction_set(cpu)}',
        'Pages': pages(),
        'Kernel': f'Linux {platform.release()}; real-time priority: '
                  f'{"allowed" if real_time() else "not allowed, others disturb"}; autogroups: '
                  f'{read("/proc/sys/kernel/sched_autogroup_enabled").strip() or "none"}',
        'Built by': built(build),
        'Peers': peers(),
        'Commit': commit(build),
    }
