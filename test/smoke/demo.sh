#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `make demo`: replays the capture of a simulated detector through the receiver, sends the kept
# frames to a store by RDMA in software, prints a summary of the result, and writes NeXus files.
# usage: demo.sh BUILD-DIR [FRAMES]

set -eu
conf=$(cd "$(dirname "$0")/../../conf" && pwd)
cd "$1"
app=$PWD/app
frames=${2:-300}

step()
{
    printf '\n==> %s\n' "$*"
}

# two polling lcores if there are two CPUs
lcores=0
[ "$(nproc)" -lt 2 ] || lcores=0,1

# Programs refuse a folder below one of another user, as with sudo in a user's clone.
above=$(pwd -P)
while [ "$above" != / ]; do
    case $(stat -c %u "$above") in
        0 | "$(id -u)") above=$(dirname "$above") ;;
        *)
            cd "$(mktemp -d)"
            echo "$above is another user's folder: the files are in $PWD/demo"
            break
            ;;
    esac
done
rm -rf demo
mkdir -p demo

step "1/5 simulate: $frames frames of a JUNGFRAU module at 12.4 keV, 10 % hits"
"$app"/detector/braggline-detector --frames "$frames" --pcap demo/capture.pcap \
    --truth demo/truth.csv --spots demo/spots.csv --calibration demo

eal="--no-huge --no-pci --no-telemetry --log-level lib.eal:warning --log-level pmd.net.memif:error"

step "2/5 store: start a storage node at the other end of a shared-memory port"
mkdir demo/stored
(umask 077 && head -c 64 /dev/urandom > demo/key &&
    printf '[receiver demo]\nkey = key\nreceiver_ids = 0\n' > demo/keys.ini)
# a separate session, as services have: "Stalled disks" in the store's README
# shellcheck disable=SC2086
setsid "$app"/store/braggline-store $eal -m 256 --no-shconf -l 0 \
    --vdev "net_memif0,role=server,socket=braggline-demo-$$" -- \
    -s store.device=roce:port=net_memif0,ip=10.0.0.2/24 -s store.keys=demo/keys.ini \
    -s store.memory_mib=128 -s files.directory=demo/stored > demo/store.log 2>&1 &
store=$!
trap 'kill $store 2>/dev/null || :; rm -f "/dev/shm/braggline-demo-$$"' EXIT
until grep -q listening demo/store.log; do
    kill -0 $store 2>/dev/null || { cat demo/store.log; exit 1; }
    sleep 0.1
done
cat demo/store.log

step "3/5 receive: replay the capture on lcores $lcores, send kept frames to the store"
# shellcheck disable=SC2086
"$app"/recv/braggline-recv $eal -m 1024 --no-shconf -l "$lcores" \
    --vdev gpu_host0 --vdev net_replay0,file=demo/capture.pcap \
    --vdev "net_memif0,role=client,socket=braggline-demo-$$" -- \
    --config "$conf/demo.ini" -s egress.device=roce:port=net_memif0,ip=10.0.0.1/24 \
    -s egress.stores=10.0.0.2 -s egress.identity=demo -s egress.key=demo/key -s egress.rate_mb_per_s=10 -s egress.batch_mib=4 \
    -s "egress.journal=/dev/shm/braggline-demo-$$" -s egress.journal_mib=128
kill $store
wait $store

step "4/5 scan: summarise the store's Arrow files, and compare them with the simulation"
"$app"/scan/braggline-scan demo/stored/* --truth demo/truth.csv --spots demo/spots.csv \
    --png demo/images.png --peaks --plot demo/hits.png > demo/scan.log || { cat demo/scan.log; exit 1; }
cat demo/scan.log

step "5/5 export: replay the capture with full images, and write NeXus files"
# shellcheck disable=SC2086
"$app"/recv/braggline-recv $eal -m 1024 --no-shconf -l "$lcores" \
    --vdev gpu_host0 --vdev net_replay0,file=demo/capture.pcap -- \
    --config "$conf/demo.ini" -s output.format=image -s output.value=int16 \
    -s output.directory=demo/full > demo/full.log 2>&1 || { cat demo/full.log; exit 1; }
"$app"/export/braggline-export --output demo/nexus demo/full
if command -v dials.find_spots > /dev/null; then
    (cd demo/nexus && dials.import demo_master.h5 > dials.log &&
        dials.find_spots imported.expt nproc=1 >> dials.log) || { cat demo/nexus/dials.log; exit 1; }
    echo "  DIALS finds $(sed -n 's/^Saved \([0-9]*\) .*/\1/p' demo/nexus/dials.log) spots, the receiver" \
        "found $(sed -n 's/^ *peaks  *\([0-9]*\) in .*/\1/p' demo/scan.log) peaks"
fi

step "files, in $(pwd)/demo"
cat << END
  stored/*/*_frames.arrow  every frame: counts, verdict, missing packets
  stored/*/*_images.arrow  the kept frames' pixels (read them with any Arrow library)
  nexus/demo_master.h5     kept frames as NeXus, for DIALS, CrystFEL, fabio and H5Web
  run/demo_ledger.ini      the outcome of every frame and packet
  images.png               maximum projection, and one kept frame with its peaks
  hits.png                 Bragg peaks of each frame, and hit rate over time
  truth.csv, spots.csv     ground truth of the simulation: frames, and their Bragg peaks
END
