#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs, upgrades, removes and purges the Debian packages in a fresh Debian, made from the package
# sources of this machine. In between: the installed programs replay a capture as the services'
# user, stock DPDK programs find the drivers, other programs build with the libraries. After the
# purge every file is as before.
# Usage: deb_test.sh DIRECTORY-OF-PACKAGES
set -eu
export LC_ALL=C DEBIAN_FRONTEND=noninteractive

packages=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")

die()
{
	printf 'deb: %s\n' "$*" >&2
	exit 1
}

step()
{
	printf 'deb: %s\n' "$*"
}

[ "$(id -u)" = 0 ] || { echo 'skipped: only root can make a chroot'; exit 77; }
command -v mmdebstrap >/dev/null || { echo 'skipped: mmdebstrap is not installed'; exit 77; }
for package in braggline braggline-dev braggline-doc braggline-view; do
	ls "$packages/${package}"_*.deb >/dev/null || die "no package $package in $packages; run make deb"
done

where=$(mktemp -d)
root=$where/root
cleanup()
{
	umount "$root/dev/hugepages" "$root/dev" "$root/sys" "$root/proc" 2>/dev/null || :
	# nothing of this machine is mounted any more
	! mountpoint -q "$root/dev" 2>/dev/null || die "$root/dev is still mounted"
	rm -rf --one-file-system "$where"
}
trap cleanup EXIT

# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
sources=()
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
	[ ! -s "$file" ] || sources+=("$file")
done
[ ${#sources[@]} -gt 0 ] || die 'this machine has no package sources of Debian'
step "a fresh $suite"
mmdebstrap --quiet --mode=root --variant=apt --include=systemd,passwd "$suite" "$root" \
	"${sources[@]}" >"$where/log" 2>&1 || { tail "$where/log"; die 'mmdebstrap failed'; }
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || :
mount -t proc proc "$root/proc"
mount --bind /sys "$root/sys"
mount --bind /dev "$root/dev"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
mkdir "$root/packages" "$root/old"
cp "$packages"/braggline*.deb "$root/packages/"
rm -f "$root"/packages/*dbgsym*

inside()
{
	chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/ \
		DEBIAN_FRONTEND=noninteractive "$@"
}

# run WHAT COMMAND...: its output is printed if it fails
run()
{
	local what=$1
	shift
	inside "$@" >"$where/log" 2>&1 || { tail -40 "$where/log"; die "$what"; }
}

# the same packages with an older version
for package in "$root"/packages/*.deb; do
	dpkg-deb -R "$package" "$where/repack"
	sed -i 's/^Version: .*/Version: 0.0.1/; s/braggline (= [^)]*)/braggline (= 0.0.1)/' \
		"$where/repack/DEBIAN/control"
	dpkg-deb -b "$where/repack" "$root/old/$(basename "${package%%_*}")_0.0.1.deb" >/dev/null
	rm -r "$where/repack"
done

# replay WHAT: the installed programs, as the unit starts them: same user, arguments, and runtime
# directory
cpus=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
replay()
{
	run "$1: a capture" sh -ec '
		install -d -o braggline -g braggline -m 0750 /var/lib/braggline /run/braggline/recv-demo
		cd /var/lib/braggline
		braggline-detector --frames 60 --dark-every 20 --pcap /etc/braggline/capture.pcap \
			--calibration /etc/braggline/demo
		sed "s#^\(gain\|pedestal_g.\|mask\) = .*/#\1 = /etc/braggline/demo/#
			s#^directory = .*#directory = /var/lib/braggline#" \
			/usr/share/braggline/demo.ini >/etc/braggline/recv-demo.ini'
	run "$1: a receiver as user braggline" setpriv --reuid=braggline --regid=braggline --clear-groups \
		env RUNTIME_DIRECTORY=/run/braggline/recv-demo sh -ec "
		cd /var/lib/braggline
		exec braggline-recv --file-prefix recv-demo --no-huge -m 512 --no-pci \
			--lcores '(0-3)@($cpus)' --vdev gpu_host0 \
			--vdev net_replay0,file=/etc/braggline/capture.pcap -- \
			--config /etc/braggline/recv-demo.ini"
	run "$1: scan" braggline-scan /var/lib/braggline
	grep -q '^ *frames *60,' "$where/log" || { cat "$where/log"; die 'not all frames are there'; }
}

step 'what the package depends on is sufficient'
# this machine's settings of apt: proxies, a snapshot of the archive
apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/99host" || :
run 'package lists' apt-get update -q
run 'install' apt-get install -q -y --no-install-recommends "/packages/$(basename "$packages"/braggline_*.deb)"
replay 'nothing else'
run 'purge' sh -c 'rm -r /var/lib/braggline /etc/braggline/* && dpkg --purge braggline'

step 'dependencies'
inside sh -c 'apt-get install -s --no-install-recommends /packages/*.deb' >"$where/log" 2>&1 ||
	{ tail -20 "$where/log"; die 'the packages cannot be installed'; }
mapfile -t needs < <(awk '/^Inst/ && $2 !~ /^braggline/ { print $2 }' "$where/log")
run 'dependencies' apt-get install -q -y --no-install-recommends "${needs[@]}" dpdk dpdk-dev gcc \
	libc6-dev pkg-config

# files that any installation of a package changes
snapshot()
{
	# /run is a tmpfs on a machine; stock DPDK programs leave folders in it
	(cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp \
		-o -path './run/[!b]*' \
		-o -path ./packages -o -path ./old -o -path ./var/cache -o -path ./var/log \
		-o -path ./var/lib/dpkg -o -path ./var/lib/apt \) -prune -o \
		! -path './etc/*-' ! -name '.pwd.lock' -printf '%p %M %u %g %l\n' | sort
	cat "$root/etc/passwd" "$root/etc/group")
}
snapshot >"$where/before"

step 'install, an older version'
run 'install' sh -c 'dpkg -i /old/*.deb'
for user in braggline braggline-scan braggline-view; do
	inside getent passwd $user >/dev/null || die "no user $user"
done
[ "$(inside dpkg -l braggline | awk '/^ii/ { print $3 }')" = 0.0.1 ] || die 'not installed'

# no file is outside the folders of the FHS
inside sh -c 'dpkg -L braggline braggline-dev braggline-doc braggline-view' | sort -u | while read -r path; do
	case $path in
	/. | /usr | /usr/bin* | /usr/lib* | /usr/include* | /usr/share* | /etc | /etc/braggline | \
		/etc/adbc* | /lib | /lib/systemd* | '') ;;
	*) die "$path is in no place of the FHS" ;;
	esac
done
[ -z "$(find "$root/usr/local" "$root/opt" -name '*braggline*')" ] || die 'files in /usr/local or /opt'

step 'the installed programs'
for program in detector export exporter publish rdma recv scan store view; do
	run "braggline-$program --version" braggline-$program --version
	[ -e "$root/usr/share/man/man1/braggline-$program.1.gz" ] || die "no braggline-$program(1)"
	[ -e "$root/usr/share/bash-completion/completions/braggline-$program" ] ||
		die "no completion of braggline-$program"
done
for unit in exporter recv@ scan@ store@ view; do
	said=$(inside systemd-analyze verify --man=no "/lib/systemd/system/braggline-$unit.service" 2>&1 |
		grep braggline || :)
	[ -z "$said" ] || die "braggline-$unit: $said"
done
replay 'with DPDK'

# the manifest names the driver; DPDK loads every file of its plugins' folder, and only drivers are there
driver=$(sed -n 's/^.*"\(.*libadbc_driver_braggline.so\)".*/\1/p' "$root/etc/adbc/drivers/braggline.toml")
[ -n "$driver" ] && [ -e "$root$driver" ] || die 'the manifest of the ADBC driver names no file'
[ -z "$(find "$root"/usr/lib/*/dpdk/pmds-* -name '*braggline*')" ] ||
	die "a library that is no driver is in DPDK's plugins"

# a stock program finds the drivers without -d
run 'stock DPDK' sh -c "echo quit | dpdk-testpmd --no-huge --no-pci --no-shconf -m 256 -l '$cpus' \
	--vdev net_replay0,file=/etc/braggline/capture.pcap -- -i --total-num-mbufs=16384"
run 'stock DPDK with gpu_host' dpdk-test-gpudev --no-huge --no-pci --no-shconf -m 256 \
	-l "${cpus%%[-,]*}" --vdev gpu_host0

step 'programs with the libraries'
cat >"$root/tmp/rdma.c" <<'END'
#include <rdma.h>
#include <rte_eal.h>

int
main(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 || rdma_dev_open("nobody:") != NULL;
}
END
cat >"$root/tmp/gk.c" <<'END'
#include <gk.h>

int
main(void)
{
	return gk_ops_find("host") == NULL;
}
END
# shellcheck disable=SC2016
run 'braggline-rdma.pc' sh -ec 'cd /tmp
	cc -DALLOW_EXPERIMENTAL_API rdma.c -o rdma $(pkg-config --cflags --libs braggline-rdma)
	./rdma --no-huge --no-pci --no-shconf -m 64 --no-telemetry -l '"${cpus%%[-,]*}"'
	cc gk.c -o gk $(pkg-config --cflags --libs braggline-gk)
	./gk; rm rdma rdma.c gk gk.c'

# open_page BOX PID: when the page of a run can be opened, in the network of the container that
# process PID, a timeout, has started. BOX/page.seen says what was wrong.
open_page()
{
	local box=$1 container status=0
	while [ ! -e "$box/page.ready" ]; do
		kill -0 "$2" 2>/dev/null || return 0
		sleep 0.2
	done
	container=$(pgrep -P "$(pgrep -P "$2")" | head -1)
	nsenter --net="/proc/$container/ns/net" "$tests/deb_page.py" http://127.0.0.1:8090/ "$packages/page.png" \
		>"$where/page" 2>&1 || status=$?
	case $status in
	0) step "page of a run in a browser: $packages/page.png" ;;
	77) step "page not tried in a browser: $(cat "$where/page")" ;;
	*) cp "$where/page" "$box/page.wrong" ;;
	esac
	: >"$box/page.seen"
}

# under systemd as PID 1, in a copy
services()
{
	local box=$where/box pid
	umount "$root/dev" "$root/sys" "$root/proc"
	cp -a "$root" "$box"
	mount -t proc proc "$root/proc"
	mount --bind /sys "$root/sys"
	mount --bind /dev "$root/dev"
	command -v systemd-nspawn >/dev/null || { step 'not tried under systemd: no systemd-nspawn'; return 0; }
	cp "$tests/deb_services.sh" "$box/services.sh"
	cat >"$box/etc/systemd/system/services.service" <<-'END'
		[Service]
		Type=oneshot
		ExecStart=/services.sh
		ExecStopPost=/bin/systemctl --no-block poweroff
		[Install]
		WantedBy=multi-user.target
	END
	mkdir -p "$box/etc/systemd/system/multi-user.target.wants"
	ln -s ../services.service "$box/etc/systemd/system/multi-user.target.wants/"
	# its own network: the services' capabilities apply there
	timeout 360 systemd-nspawn -q -D "$box" --register=no --keep-unit --private-network \
		--bind-ro=/sys/module --boot \
		>"$where/log" 2>&1 </dev/null &
	pid=$!
	open_page "$box" "$pid"
	wait "$pid" || :
	if [ ! -s "$box/result" ]; then
		tail -3 "$where/log"
		step 'not tried under systemd: systemd-nspawn does not work here'
	elif [ "$(tail -1 "$box/result")" = ok ]; then
		step 'services under systemd: start, run, page, metrics, kill, watchdog, stop, wrong settings'
	else
		cat "$box/result"
		die 'services under systemd'
	fi
	rm -rf --one-file-system "$box"
}
services

step 'upgrade'
run 'upgrade' sh -c 'dpkg -i /packages/*.deb'
version=$(inside dpkg -l braggline | awk '/^ii/ { print $3 }')
[ "$version" != 0.0.1 ] || die 'not upgraded'
[ -e "$root/etc/braggline/recv-demo.ini" ] || die 'the upgrade removed a configuration'
[ -z "$(inside dpkg --verify braggline braggline-dev braggline-doc braggline-view)" ] || die 'dpkg --verify differs'

step 'remove'
run 'remove' apt-get remove -q -y braggline braggline-dev braggline-doc braggline-view
for program in recv publish view; do
	[ ! -e "$root/usr/bin/braggline-$program" ] || die "remove left braggline-$program"
done
[ -e "$root/etc/braggline/recv-demo.ini" ] || die 'remove has removed a configuration'

step 'purge, with files of runs and a token'
(umask 077; echo 0123456789abcdef >"$root/etc/braggline/view.token")
inside chown braggline-view /etc/braggline/view.token
run 'purge' dpkg --purge braggline braggline-dev braggline-doc braggline-view
ls "$root"/var/lib/braggline/*.arrow >/dev/null || die 'purge has removed files of runs'
inside getent passwd braggline >/dev/null || die 'purge has removed the owner of the files of runs'
inside getent passwd braggline-view >/dev/null || die 'purge has removed the owner of the token'

step 'purge, without'
rm -r "$root/var/lib/braggline" "$root/etc/braggline"
run 'install again' sh -c 'dpkg -i /packages/*.deb'
run 'purge' dpkg --purge braggline braggline-dev braggline-doc braggline-view
snapshot >"$where/after"
diff "$where/before" "$where/after" >"$where/log" || { cat "$where/log"; die 'purge left something'; }
echo "deb: $version: install, use, upgrade, remove, purge: ok"
