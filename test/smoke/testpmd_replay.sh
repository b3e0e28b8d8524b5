#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Stock dpdk-testpmd receives from net_replay: all packets of every loop arrive, in single buffers,
# with buffer split, and with flow steering.
# Usage: testpmd_replay.sh <folder of librte_net_replay.so>
set -eu

drivers=$1
for tool in dpdk-testpmd python3; do
	command -v "$tool" >/dev/null || {
		echo "skipped: $tool is not installed"
		exit 77
	}
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 1,000 UDP packets of 1,400 bytes to ports 5000 to 5003 in round-robin order
python3 - "$work/packets.pcap" <<'END'
import struct
import sys

COUNT, LENGTH = 1000, 1400
with open(sys.argv[1], 'wb') as f:
    f.write(struct.pack('<IHHiIII', 0xa1b23c4d, 2, 4, 0, 0, 65535, 1))
    for i in range(COUNT):
        frame = bytes(12) + b'\x08\x00'
        frame += struct.pack('>BBHHHBBHII', 0x45, 0, LENGTH - 14, 0, 0, 64, 17, 0,
                             0x0a000001, 0x0a000100)
        frame += struct.pack('>HHHH', 4000, 5000 + i % 4, LENGTH - 34, 0)
        frame += bytes(LENGTH - len(frame))
        f.write(struct.pack('<IIII', i, 0, LENGTH, LENGTH) + frame)
END

cpus=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)
# A driver that is built with a sanitizer needs its runtime loaded first in the stock program.
preload=$(ldd "$drivers/librte_net_replay.so" | awk '/libasan|libubsan/ { printf "%s ", $3 }')

# run <name> <devargs> <testpmd options> <commands before the start> -> $work/<name>
run() {
	printf '%s\nstart\n' "$4" >"$work/commands"
	# testpmd discards packets that are queued at its start, unless disabled
	# shellcheck disable=SC2086,SC2094
	{
		for _ in $(seq 100); do
			grep -q '^replay_done: 1' "$work/$1" && break
			sleep 0.1
			echo 'show port xstats 0'
		done
		echo 'show rxq info 0 0'
		echo quit
	} | LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0 \
		LD_LIBRARY_PATH="$drivers${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
		timeout 180 dpdk-testpmd --no-huge --no-pci --no-shconf -m 256 \
		--lcores "(0,1)@($cpus)" -d librte_net_replay.so \
		--vdev "net_replay0,file=$work/packets.pcap,$2" -- \
		-i --forward-mode=rxonly --no-flush-rx --total-num-mbufs=4096 \
		--cmdline-file="$work/commands" $3 >"$work/$1" 2>&1 || {
		cat "$work/$1"
		echo "$1: testpmd failed"
		exit 1
	}
}

# expect <name> <regular expression of a line>
expect() {
	grep -Eq "$2" "$work/$1" || {
		cat "$work/$1"
		echo "$1: no line matches $2"
		exit 1
	}
}

: >"$work/loops" # read before testpmd creates it
run loops loops=3 '' ''
expect loops '^ *RX-packets: 3000 .*RX-total: 3000'
expect loops '^rx_copied_packets: 3000'
expect loops '^rx_good_bytes: 4200000'

: >"$work/split"
# SCATTER (bit 13) and BUFFER_SPLIT (bit 20)
run split loops=2 '--mbuf-size=256,2048 --rxpkts=90,2048 --rx-offloads=0x102000' ''
expect split '^ *RX-packets: 2000 .*RX-total: 2000'
expect split '^Burst mode: .*split, copy'

: >"$work/queues"
run queues loops=2 '--rxq=2 --txq=2' \
	'flow create 0 ingress pattern eth / ipv4 / udp dst is 5001 / end actions queue index 1 / end'
expect queues '^rx_q0_packets: 1500'
expect queues '^rx_q1_packets: 500'
expect queues '^rx_good_packets: 2000'
echo "testpmd received every packet"
