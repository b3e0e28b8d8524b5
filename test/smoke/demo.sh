#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `make demo`: a simulated detector, its capture replayed through the dataplane, and what came out.
# usage: demo.sh BUILD-DIR [FRAMES]

set -eu
conf=$(cd "$(dirname "$0")/../../conf" && pwd)
cd "$1"
frames=${2:-300}

step()
{
    printf '\n==> %s\n' "$*"
}

# two polling lcores if there are two CPUs
lcores=0
[ "$(nproc)" -lt 2 ] || lcores=0,1

rm -rf demo
mkdir -p demo

step "1/3 simulate: $frames frames of a JUNGFRAU module at 12.4 keV, 10 % hits"
app/detector/braggline-detector --frames "$frames" --pcap demo/capture.pcap \
    --truth demo/truth.csv --calibration demo

step "2/3 receive: replay the capture through the dataplane on lcores $lcores"
app/recv/braggline-recv --no-huge -m 1024 --no-pci --no-shconf --no-telemetry -l "$lcores" \
    --log-level lib.eal:warning --vdev gpu_host0 --vdev net_replay0,file=demo/capture.pcap -- \
    --config "$conf/demo.ini"

step "3/3 look: what the Arrow files say, beside the truth of the simulation"
app/scan/braggline-scan demo/run --truth demo/truth.csv --png demo/images.png \
    --plot demo/hits.png

step "files, in $(pwd)/demo"
cat << END
  run/demo_frames.arrow  every frame: counts, verdict, what was missing
  run/demo_images.arrow  the kept frames' pixels (read them with any Arrow library)
  run/demo_ledger.ini    the fate of every frame and packet
  images.png             maximum projection beside one kept frame
  hits.png               Bragg counts and hit rate over time
  truth.csv              what the simulation put in
END
