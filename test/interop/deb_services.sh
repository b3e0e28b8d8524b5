#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs in a container with systemd, where deb_test.sh has installed the packages: starts a receiver
# and a store as services, kills them, stops one that hangs, and gives them wrong settings. The
# container ends when the script does. The last line of /result is `ok`.
set -eu
exec >/result 2>&1
export LC_ALL=C

die()
{
	printf 'services: %s\n' "$*"
	systemctl --no-pager --lines 0 status 'braggline-*' || :
	journalctl --no-pager -n 60 -u 'braggline-*' || :
	exit 1
}

# wait_for WHAT COMMAND...: until it succeeds
wait_for()
{
	local what=$1 i
	shift
	for ((i = 0; i < 600; i++)); do
		! "$@" >/dev/null 2>&1 || return 0
		sleep 0.1
	done
	die "$what: not within 60 s"
}

property()
{
	systemctl show -P "$2" "$1"
}

# is UNIT PROPERTY VALUE
is()
{
	[ "$(property "$1" "$2")" = "$3" ]
}

ask()
{
	echo "$1" | RUNTIME_DIRECTORY=/run/braggline/recv-demo dpdk-telemetry.py -f recv-demo
}

# says PORT PATH TEXT: in the reply to a request of this machine
says()
{
	local reply
	exec 3<>"/dev/tcp/127.0.0.1/$1" || return
	printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
	reply=$(timeout 5 cat <&3)
	exec 3>&-
	[[ $reply == *"$3"* ]]
}

# restarted UNIT OLD-PID: it runs again, as another process
restarted()
{
	local pid
	pid=$(property "$1" MainPID)
	[ "$pid" != 0 ] && [ "$pid" != "$2" ] && is "$1" ActiveState active
}

cpus=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
receiver=braggline-recv@demo.service
store=braggline-store@demo.service
page=braggline-view.service
sources='8090 /api/v1/sources'
exporter=braggline-exporter.service
metrics='9876 /metrics?target=recv-demo'
memif=net_memif0,socket=/run/braggline/demo.sock,socket-abstract=no
install -d -o braggline -g braggline /run/braggline
sed -i 's/^control = .*//; s/^\[run\]/[run]\ncontrol = telemetry/
	s,^live = .*,live = /run/braggline/recv-demo/live,' /etc/braggline/recv-demo.ini
echo "EAL_OPTIONS=--no-huge -m 512 --no-pci --lcores (0-3)@($cpus) --vdev gpu_host0 --vdev net_replay0,file=/etc/braggline/capture.pcap,loops=0,rewrite=42:8:le:60,rate=20000" \
	>/etc/braggline/recv-demo.env
(umask 077; head -c 64 /dev/urandom >/etc/braggline/key
 printf '[receiver demo]\nkey = key\nreceiver_ids = 0\n' >/etc/braggline/keys.ini)
chown braggline /etc/braggline/key /etc/braggline/keys.ini
printf '[store]\ndevice = roce:port=net_memif0,ip=10.0.0.2/24\nkeys = /etc/braggline/keys.ini\n[files]\ndirectory = /var/lib/braggline/stored\n' \
	>/etc/braggline/store-demo.ini
echo "EAL_OPTIONS=--no-huge -m 128 --no-pci --lcores 0@($cpus) --vdev $memif,role=server" \
	>/etc/braggline/store-demo.env
mkdir -p /etc/systemd/system/braggline-recv@demo.service.d
# a watchdog that the test can wait for
printf '[Service]\nWatchdogSec=4s\n' >/etc/systemd/system/braggline-recv@demo.service.d/watchdog.conf
systemctl daemon-reload

# start: it returns when the service is ready
systemctl start "$receiver" || die 'the receiver does not start'
is "$receiver" ActiveState active || die 'the receiver is not active'
pid=$(property "$receiver" MainPID)
[ "$(stat -c %U "/proc/$pid")" = braggline ] || die 'the receiver does not run as braggline'
grep -q '^NoNewPrivs:.*1' "/proc/$pid/status" || die 'new privileges are possible'
ask '/braggline/run/configure,run.name=one' | grep -q configured || die 'configure'
ask /braggline/run/start | grep -q running || die 'start'
wait_for 'the state of the run' is "$receiver" StatusText 'running: run one'
ask /braggline/run/stop >/dev/null
wait_for 'the end of the run' is "$receiver" StatusText idle
[ -s /var/lib/braggline/one_frames.arrow ] || die 'no file of the run'

# the page and the exporter: their users reach the receiver's socket and live file by the drop-in only
cp /usr/share/braggline/systemd/telemetry.conf /etc/systemd/system/braggline-recv@demo.service.d/
echo "VIEW_OPTIONS=--receiver /run/braggline/recv-demo/dpdk/recv-demo/dpdk_telemetry.v2" \
	>/etc/braggline/view.env
systemctl start "$page" || die 'the page does not start'
[ "$(stat -c %U "/proc/$(property "$page" MainPID)")" = braggline-view ] ||
	die 'the page does not run as braggline-view'
grep -q '^CapBnd:.*0000000000000000' "/proc/$(property "$page" MainPID)/status" ||
	die 'the page has capabilities'
systemctl start "$exporter" || die 'the exporter does not start'
pid=$(property "$exporter" MainPID)
# the range of dynamic users
[ "$(stat -c %u "/proc/$pid")" -ge 61184 ] || die 'the exporter has no user of its own'
grep -q '^CapBnd:.*0000000000000000' "/proc/$pid/status" || die 'the exporter has capabilities'
# shellcheck disable=SC2086
wait_for 'a page without the receiver' says $sources '"error":'
# shellcheck disable=SC2086
wait_for 'an exporter without the receiver' says $metrics ' 503 '
systemctl daemon-reload
systemctl restart "$receiver" || die 'the receiver does not start with the drop-in'
# shellcheck disable=SC2086
wait_for 'a page of the receiver' says $sources '"state":"up"'
# shellcheck disable=SC2086
wait_for 'metrics of the receiver' says $metrics dpdk_braggline_running
# deb_test.sh opens it in a browser
ask '/braggline/run/configure,run.name=two' | grep -q configured || die 'configure'
ask /braggline/run/start | grep -q running || die 'start'
: >/page.ready
# longer than the waits of deb_page.py
wait_for 'a browser' test -e /page.seen
[ ! -e /page.wrong ] || die "page in a browser: $(cat /page.wrong)"
ask /braggline/run/stop >/dev/null
wait_for 'the end of the run' is "$receiver" StatusText idle
systemctl stop "$page" || die 'stop of the page'
is "$page" Result success || die 'the page did not end with status 0'
systemctl stop "$exporter" || die 'stop of the exporter'
is "$exporter" Result success || die 'the exporter did not end with status 0'
pid=$(property "$receiver" MainPID)

# killed: started again
kill -9 "$pid"
wait_for 'a restart after a kill' restarted "$receiver" "$pid"
# it hangs: the watchdog ends it, and it is started again
pid=$(property "$receiver" MainPID)
kill -STOP "$pid"
wait_for 'a restart by the watchdog' restarted "$receiver" "$pid"
journalctl --no-pager -u "$receiver" | grep -qi 'watchdog timeout' || die 'not by the watchdog'

# stopped
systemctl stop "$receiver" || die 'stop'
is "$receiver" Result success || die 'the receiver did not end with status 0'
[ -d /run/braggline/recv-demo ] || die 'the folder of the journal was removed'

# wrong settings: no restart
printf '[detector]\nmodules = 99\n' >/etc/braggline/recv-wrong.ini
cp /etc/braggline/recv-demo.env /etc/braggline/recv-wrong.env
! systemctl start braggline-recv@wrong 2>/dev/null || die 'a receiver with wrong settings started'
sleep 3
is braggline-recv@wrong.service NRestarts 0 || die 'restarted with wrong settings'
is braggline-recv@wrong.service ExecMainStatus 2 || die 'not status 2'
! systemctl start braggline-recv@absent 2>/dev/null || is braggline-recv@absent.service ActiveState inactive ||
	die 'a receiver without settings started'

# a store, and its end
systemctl start "$store" || die 'the store does not start'
case $(property "$store" StatusText) in
'listening on port 18516'*) ;;
*) die "status of the store: $(property "$store" StatusText)" ;;
esac
pid=$(property "$store" MainPID)
kill -9 "$pid"
wait_for 'a restart of the store' restarted "$store" "$pid"
systemctl stop "$store" || die 'stop of the store'
is "$store" Result success || die 'the store did not end with status 0'
[ -s /var/lib/braggline/stored/.identity ] || die 'the store has no directory'
systemctl --no-pager --failed | grep -q 'braggline-recv@wrong' || die 'the failure is not shown'
echo ok
