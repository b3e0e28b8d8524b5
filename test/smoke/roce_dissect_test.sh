#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# tshark decodes the packets that RoCE devices exchange in the unit tests of connections, neighbors
# and multicast groups: there is no malformed frame and no wrong checksum, and each kind of message
# occurs.
#
# usage: roce_dissect_test.sh TEST...
set -eu

command -v tshark >/dev/null || {
	echo 'skipped: tshark is not installed: run make deps'
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for test in "$@"; do
	pcap=$work/$(basename "$test").pcap
	ROCE_PCAP=$pcap "$test" >"$work/log" 2>&1 || {
		cat "$work/log"
		echo "$(basename "$test") failed"
		exit 1
	}
	# tshark would look for rpcordma in every SEND; RoCE uses no UDP checksum, in IPv6 neither
	# (A17.3.2)
	tshark -r "$pcap" --disable-protocol rpcordma -o ip.check_checksum:TRUE \
		-o udp.ignore_ipv6_zero_checksum:TRUE -T fields -E separator='|' \
		-e frame.number -e _ws.malformed -e _ws.expert.severity -e _ws.expert.message \
		-e frame.protocols -e infiniband.mad.attributeid -e arp.duplicate-address-detected \
		2>>"$work/tshark.log" >>"$work/frames"
done

# severity: 8388608 is error, 6291456 is warning. A correct capture has neither, except for
# duplicate addresses, which one test produces.
awk -F'|' '
	$2 != "" || ($3 >= 6291456 && $4 !~ /^Duplicate IP address/) {
		print "frame " $1 ": " $2 " " $4 " (" $5 ")"
		faults++
	}
	{ frames++ }
	END {
		print frames " frames, " faults + 0 " faults"
		exit faults > 0 || frames < 1000
	}' "$work/frames" || {
	cat "$work/tshark.log"
	exit 1
}

status=0
check()
{
	local n
	n=$(grep -c "$2" "$work/frames" || :)
	printf '%-12s %6d\n' "$1" "$n"
	[ "$n" -gt 0 ] || status=1
}
check REQ '|0x0010|'
check MRA '|0x0011|'
check REJ '|0x0012|'
check REP '|0x0013|'
check RTU '|0x0014|'
check DREQ '|0x0015|'
check DREP '|0x0016|'
check SIDR_REQ '|0x0017|'
check SIDR_REP '|0x0018|'
check ARP '|eth:ethertype:arp'
check VLAN '|eth:ethertype:vlan'
check ICMP '|eth:ethertype:ip:icmp'
check IGMP '|eth:ethertype:ip:igmp'
check ICMPv6 '|eth:ethertype:ipv6:icmpv6'
check MLD '|eth:ethertype:ipv6:ipv6.hopopts:icmpv6'
check 'CM on IPv6' '|eth:ethertype:ipv6:udp:infiniband'
exit $status
