#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the boot image of a soft-RoCE guest: Debian's kernel with rdma_rxe, and tools of this
machine.

usage: rxe_image.py fetch      download the kernel unless it is there (make deps does this)
       rxe_image.py check      exit 1 if fetch has something to do
       rxe_image.py make FILE  write an initramfs, for inspection

The kernel package is downloaded but not installed: the kernel and the modules that the guest loads
are unpacked into .deps/rxe-vm. Everything else in the guest (perftest, librdmacm's tools,
rdma-core, busybox) is copied from this machine with the libraries that it loads here, so a program
that is built here also runs there. RXE_VM_KERNEL names a kernel package other than
linux-image-amd64's.
"""

import fcntl
import glob
import io
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

# Modules to load, with their dependencies. A module that is not in the package is built in.
MODULES = ('crc32_generic', 'crc32c_generic', 'virtio_pci', 'virtio_net', 'rdma_rxe', 'ib_uverbs',
           'rdma_ucm', '9pnet_virtio', '9p', 'sch_netem')
# Increment it when .deps/rxe-vm must be made again.
RECIPE = 1

PROGRAMS = ('ip', 'rdma', 'tc', 'ibv_devinfo', 'ibv_rc_pingpong', 'ibv_uc_pingpong',
            'ibv_ud_pingpong', 'rping', 'ucmatose', 'udaddy', 'mckey', 'cmtime', 'rstream',
            'rcopy', 'ib_write_bw', 'ib_read_bw', 'ib_send_bw', 'ib_atomic_bw', 'ib_write_lat',
            'ib_read_lat', 'ib_send_lat', 'ib_atomic_lat')
APPLETS = ('[', 'awk', 'base64', 'basename', 'cat', 'chmod', 'cmp', 'cp', 'cut', 'date', 'dd',
           'diff', 'dirname', 'dmesg', 'echo', 'env', 'expr', 'false', 'find', 'free', 'grep',
           'head', 'hexdump', 'hostname', 'id', 'insmod', 'kill', 'killall', 'ln', 'ls', 'lsmod',
           'md5sum', 'mkdir', 'mkfifo', 'mknod', 'mount', 'mv', 'nc', 'nproc', 'od', 'ping', 'pkill',
           'pgrep', 'poweroff', 'printf', 'ps', 'pwd', 'readlink', 'reboot', 'rm', 'rmdir', 'sed',
           'seq', 'setsid', 'sha256sum', 'sleep', 'sort', 'stat', 'stty', 'sync', 'sysctl',
           'tail', 'tee', 'test', 'time', 'timeout', 'top', 'touch', 'tr', 'true', 'umount',
           'uname', 'uniq', 'uptime', 'usleep', 'vi', 'wc', 'which', 'xargs', 'yes')
PATH = os.environ.get('PATH', '') + ':/usr/sbin:/usr/bin:/sbin:/bin'


class Missing(Exception):
    """A program or file that the guest needs is not installed on this machine."""


def cache():
    here = os.path.dirname(os.path.abspath(__file__))
    return os.path.join(here, '..', '..', '.deps', 'rxe-vm')


# ---- kernel

def expected():
    return f'recipe {RECIPE} kernel {os.environ.get("RXE_VM_KERNEL", "default")}\n'


def fetched():
    try:
        with open(os.path.join(cache(), 'fetched'), encoding='ascii') as f:
            return f.read() == expected()
    except FileNotFoundError:
        return False


def kernel_package():
    """The package that linux-image-amd64 depends on, '' if apt knows none."""
    if os.environ.get('RXE_VM_KERNEL'):
        return os.environ['RXE_VM_KERNEL']
    out = subprocess.run(['apt-cache', 'depends', '--no-recommends', '--no-suggests',
                          'linux-image-amd64'], capture_output=True, text=True, check=False).stdout
    found = re.search(r'Depends: *(linux-image-\S+)', out)
    return found.group(1) if found else ''


def download(folder):
    """Download the kernel package into folder. @return its path"""
    said = ''
    for attempt in range(2):
        package = kernel_package()
        if package:
            done = subprocess.run(['apt-get', '-o', 'APT::Sandbox::User=root', 'download', '-qq',
                                   package], cwd=folder, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, check=False)
            said = done.stderr
            debs = glob.glob(os.path.join(folder, '*.deb'))
            if done.returncode == 0 and debs:
                return debs[0]
        if attempt == 0:
            # if this fails, the second attempt reports it
            subprocess.run(['apt-get', 'update', '-q'], stdin=subprocess.DEVNULL,
                           capture_output=True, check=False)
    raise Missing(f'apt-get cannot download {package or "linux-image-amd64"}: '
                  f'{said.strip() or "no such package"}')


def vmlinux(image):
    """The ELF file inside a bzImage: it boots in half the time. None if it cannot be unpacked."""
    setup_sectors = image[0x1f1] or 4
    offset = int.from_bytes(image[0x248:0x24c], 'little') + (setup_sectors + 1) * 512
    length = int.from_bytes(image[0x24c:0x250], 'little')
    payload = image[offset:offset + length]
    if payload.startswith(b'\xfd7zXZ\0'):
        elf = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
    elif payload.startswith(b'\x28\xb5\x2f\xfd') and shutil.which('zstd'):
        elf = subprocess.run(['zstd', '-dc'], input=payload, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=False).stdout
    else:
        return None
    return elf if elf.startswith(b'\x7fELF') else None


def unpack(deb, to):
    """Unpack the kernel and the modules, and write the order to load them in."""
    images, modules = {}, {}
    with subprocess.Popen(['dpkg-deb', '--fsys-tarfile', deb], stdout=subprocess.PIPE) as dpkg:
        with tarfile.open(fileobj=dpkg.stdout, mode='r|') as archive:
            for member in archive:
                name = os.path.basename(member.name)
                module = re.fullmatch(r'(.+)\.ko(\.xz)?', name)
                if module and member.isfile():
                    data = archive.extractfile(member).read()
                    modules[module.group(1).replace('-', '_')] = \
                        lzma.decompress(data) if module.group(2) else data
                elif name.startswith('vmlinuz-') and member.isfile():
                    images[name] = archive.extractfile(member).read()
        if dpkg.wait() != 0 or not images:
            raise Missing(f'no kernel in {deb}')
    if 'rdma_rxe' not in modules:
        raise Missing(f'no rdma_rxe in {deb}')
    order = []

    def load(name):
        data = modules.get(name)
        if data is None or name in order:
            return
        for found in re.findall(rb'\0depends=([^\0]*)\0', b'\0' + data)[:1]:
            for other in filter(None, found.decode().split(',')):
                load(other.replace('-', '_'))
        order.append(name)

    for name in MODULES:
        load(name)
    os.makedirs(os.path.join(to, 'modules'))
    for name in order:
        with open(os.path.join(to, 'modules', name + '.ko'), 'wb') as f:
            f.write(modules[name])
    with open(os.path.join(to, 'modules', 'order'), 'w', encoding='ascii') as f:
        f.writelines(name + '\n' for name in order)
    image = next(iter(images.values()))
    with open(os.path.join(to, 'kernel'), 'wb') as f:
        f.write(vmlinux(image) or image)


def fetch():
    """Download and unpack the kernel unless it is there; concurrent calls wait for the first."""
    if fetched():
        return
    for tool in ('apt-get', 'apt-cache', 'dpkg-deb'):
        if not shutil.which(tool):
            raise Missing(f'{tool} is not installed')
    os.makedirs(cache(), exist_ok=True)
    with open(os.path.join(cache(), 'lock'), 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if fetched():
            return
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            unpack(download(work), work)
            for name in ('modules', 'kernel'):
                old = os.path.join(cache(), name)
                if os.path.isdir(old):
                    shutil.rmtree(old)
                os.replace(os.path.join(work, name), old)
        with open(os.path.join(cache(), 'fetched'), 'w', encoding='ascii') as f:
            f.write(expected())


def kernel():
    if not fetched():
        raise Missing('the kernel of the guest: run make deps')
    return os.path.join(cache(), 'kernel')


# ---- initramfs

class Archive:
    """An initramfs: cpio, format newc (Documentation/driver-api/early-userspace of the kernel)."""

    def __init__(self):
        self.out = io.BytesIO()
        self.names = set()

    def add(self, name, data, mode):
        if name in self.names:
            return
        if '/' in name:
            self.folder(name.rsplit('/', 1)[0])
        self.names.add(name)
        self._entry(name, data, mode)

    def _entry(self, name, data, mode):
        # magic, inode, mode, uid, gid, nlink, mtime, size, device and rdev by halves, name, check
        fields = (len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        header = b'070701' + b''.join(b'%08x' % field for field in fields)
        for part in (header + name.encode() + b'\0', data):
            self.out.write(part)
            self.out.write(bytes(-self.out.tell() % 4))

    def folder(self, name):
        self.add(name, b'', stat.S_IFDIR | 0o755)

    def link(self, name, to):
        self.add(name, to.encode(), stat.S_IFLNK | 0o777)

    def text(self, name, text, mode=0o644):
        self.add(name, text.encode(), stat.S_IFREG | mode)

    def file(self, name, path):
        with open(path, 'rb') as f:
            self.add(name, f.read(), stat.S_IFREG | 0o755)

    def done(self):
        self.names.add('TRAILER!!!')
        self._entry('TRAILER!!!', b'', 0)
        return self.out.getvalue()


def find(program):
    path = shutil.which(program, path=PATH)
    if not path:
        raise Missing(f'{program} is not installed: run make deps')
    return path


def libraries(paths):
    """@return {name as the loader knows it: file} of all libraries that these files load"""
    done = subprocess.run(['ldd', *paths], capture_output=True, text=True, check=False)
    found = dict(re.findall(r'^\s(\S+) => (/\S+) \(', done.stdout, re.M))
    # the loader itself, which is listed without =>
    found.update((os.path.basename(p), p) for p in re.findall(r'^\s(/\S+) \(', done.stdout, re.M))
    lost = re.findall(r'^\s(\S+) => not found', done.stdout, re.M)
    if lost:
        raise Missing(f'libraries: {" ".join(sorted(set(lost)))}')
    return found


INIT = r'''#!/bin/sh
export PATH=/bin HOME=/ TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/hugepages
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
# DPDK loads no driver from a path below a world-writable folder
chmod 755 /
ulimit -l unlimited
# keep it open from here on: data that arrives while it is closed is lost
exec 3<>/dev/ttyS1
stty raw -echo <&3
give_up()
{
	echo "rxe-vm: $*"
	poweroff -f
}
while read -r module; do
	insmod "/modules/$module.ko" || echo "rxe-vm: insmod $module failed"
done </modules/order
. /job/conf
if [ -n "$HUGE" ]; then
	mount -t hugetlbfs hugetlbfs /dev/hugepages && echo "$HUGE" >/proc/sys/vm/nr_hugepages ||
		give_up "no huge pages"
fi
if [ -n "$SHARE" ]; then
	mkdir -p /share
	mount -t 9p -o trans=virtio,version=9p2000.L,msize=131072 share /share || give_up "no /share"
fi
ip link set lo up
if [ -e /sys/class/net/eth0 ]; then
	# no duplicate address detection, because the addresses are needed immediately
	echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
	ip link set eth0 mtu "$MTU" up || give_up "no MTU of $MTU"
	for address in $IPS; do
		ip address add "$address" dev eth0 || give_up "no address $address"
	done
	rdma link add rxe0 type rxe netdev eth0 || give_up "no rxe0"
fi
printf '\0010 0\n' >&3
while read -r number seconds command; do
	[ "$number" != quit ] || break
	timeout -s KILL "$seconds" /bin/sh -c "$command" </dev/null >&3 2>&1 3>&-
	status=$?
	# 137: the command was killed, so kill its children, too
	[ $status != 137 ] || kill -KILL -1
	printf '\001%s %s\n' "$number" "$status" >&3
done <&3
poweroff -f
'''

# listen COMMAND...: run it, and report when it listens for CM connections
LISTEN = r'''#!/bin/sh
"$@" &
program=$!
while [ -d /proc/$program ]; do
	if rdma resource show cm_id | grep -q "state LISTEN.* pid $program "; then
		printf '\002listening\n'
		break
	fi
	usleep 50000
done
wait $program
'''


def base():
    """The files that every guest has, without those of its job."""
    archive = Archive()
    for name in ('dev', 'proc', 'sys', 'tmp', 'run', 'var', 'usr', 'lib', 'bin', 'job'):
        archive.folder(name)
    for name, to in (('usr/bin', '../bin'), ('sbin', 'bin'), ('usr/sbin', '../bin'),
                     ('lib64', 'lib'), ('usr/lib', '../lib'), ('lib/x86_64-linux-gnu', '.'),
                     ('var/run', '../run')):
        archive.link(name, to)
    programs = {name: find(name) for name in ('busybox', *PROGRAMS)}
    for name, path in programs.items():
        archive.file(f'bin/{name}', path)
    for name in APPLETS:
        archive.link(f'bin/{name}', 'busybox')
    # busybox's own sh would prefer its applets to the programs above
    programs['sh'] = find('dash')
    archive.file('bin/sh', programs['sh'])
    needed = libraries(programs.values())
    system = os.path.dirname(needed['libibverbs.so.1'])
    # libibverbs opens this library at run time, as glibc does the other at the first pthread_exit
    provider = glob.glob(os.path.join(system, 'libibverbs', 'librxe-rdmav*.so'))
    if not provider:
        raise Missing('librxe, the rxe provider of rdma-core: run make deps')
    archive.file(f'lib/libibverbs/{os.path.basename(provider[0])}', provider[0])
    archive.text('etc/libibverbs.d/rxe.driver', 'driver rxe\n')
    needed['libgcc_s.so.1'] = os.path.join(system, 'libgcc_s.so.1')
    for name, path in needed.items():
        archive.file(f'lib/{name}', path)
    archive.text('etc/passwd', 'root:x:0:0:root:/:/bin/sh\n')
    archive.text('etc/group', 'root:x:0:\n')
    archive.text('etc/hosts', '127.0.0.1 localhost\n')
    archive.text('bin/listen', LISTEN, 0o755)
    archive.text('init', INIT, 0o755)
    modules = os.path.join(cache(), 'modules')
    for name in sorted(os.listdir(modules)):
        archive.file(f'modules/{name}', os.path.join(modules, name))
    return archive


def initramfs(conf, files):
    """@return the bytes of an initramfs; conf is shell syntax, files is {host path: path in the
    guest}"""
    kernel()
    archive = base()
    archive.text('job/conf', conf)
    for path, name in files.items():
        archive.file(name.lstrip('/'), path)
    elf = []
    for path in files:
        with open(path, 'rb') as f:
            if f.read(4) == b'\x7fELF':
                elf.append(path)
    if elf:
        for name, path in libraries(elf).items():
            archive.file(f'lib/{name}', path)
    return archive.done()


def main(arguments):
    try:
        if arguments == ['fetch']:
            fetch()
        elif arguments == ['check']:
            return 0 if fetched() else 1
        elif len(arguments) == 2 and arguments[0] == 'make':
            with open(arguments[1], 'wb') as f:
                f.write(initramfs('', {}))
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except Missing as missing:
        print('rxe_image:', missing, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
