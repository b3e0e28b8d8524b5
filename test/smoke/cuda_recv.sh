#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares braggline-recv with CUDA gangs, with packets in pinned memory and in GPU memory, with the
# same runs with host gangs. The columns must be equal; the rates are printed. Needs a GPU; exit
# status 77 without one.
# usage: cuda_recv.sh BIN-DIR [FRAMES-OF-A-4M-RUN [SOAK-SECONDS]]
# CUDA_RECV_ROWS, a pattern of grep -E, selects the runs by name: equal, life, 4M_pinned, ...
# Without a GPU, CUDA_RECV_GPU=gpu_host0,private=1 CUDA_RECV_KERNEL=host tests this script.

set -eu
bin=$1
total=${2:-20000}
soak=${3:-0}
gpu=${CUDA_RECV_GPU:-gpu_cuda0,device=0}
kernel=${CUDA_RECV_KERNEL:-cuda}
memory=${CUDA_RECV_MEMORY:-20480}
rows=${CUDA_RECV_ROWS:-.}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

wants()
{
    printf '%s\n' "$1" | grep -Eq -- "$rows"
}

# lcores LAST: one CPU for each lcore if there are enough, else floating lcores
lcores()
{
    if [ "$(nproc)" -gt "$1" ]; then
        echo "0-$1"
    else
        echo "(0-$1)@(0-$(($(nproc) - 1)))"
    fi
}

recv()
{
    local name=$1 megabytes=$2 map vdev=$4
    map=$(lcores "$3")
    shift 4
    "$bin/braggline-recv" --no-huge -m "$megabytes" --no-pci --no-shconf --no-telemetry --lcores "$map" \
        --log-level lib.eal:warning "--vdev=$vdev" "--vdev=net_replay0,$capture" -- --quiet \
        "$@" --set run.name=run --set output.directory="$work/$name" \
        --set run.idle_timeout_ms=10000 --set output.calibration=no --set output.preview=off \
        > "$work/$name.log" 2>&1 ||
        {
            if grep -Eq 'no GPU|no CUDA driver' "$work/$name.log"; then
                echo "skipped: no GPU"
                exit 77
            fi
            cat "$work/$name.log"
            echo "FAILED: $name"
            exit 1
        }
}

# digest of all columns except the time of arrival
columns()
{
    "$bin/braggline-scan" --csv - "$work/$1/run_frames.arrow" | cut -d, -f1-3,5-
}

calibration()
{
    printf -- '--set calibration.gain=%s/gain_m%%d.bin ' "$work"
    printf -- '--set calibration.mask=%s/mask_m%%d.bin ' "$work"
    for g in 0 1 2; do
        printf -- '--set calibration.pedestal_g%d=%s/pedestal_g%d_m%%d.bin ' "$g" "$work" "$g"
    done
}

# the line about the data path in the start-up log
way()
{
    sed -n 's/^recv: \(packets in.*\)/  \1/p' "$work/$1.log"
}

"$bin/braggline-detector" --modules 2 --interfaces 2 --frames 240 --hit-fraction 0.3 --dark-every 5 \
    --fault loss=0.001 --pcap "$work/in.pcap" --calibration "$work" 2> /dev/null
capture=file=$work/in.pcap
# Runs with a timeout that is long enough on every machine, as results that depend on time may
# differ.
shape='--set detector.modules=2 --set detector.interfaces=2 --set lcores.rx_lcores=2'
shape="$shape --set run.frames=240 --set frames.stream_timeout_ms=3000"
while wants equal && read -r name settings; do
    # shellcheck disable=SC2046,SC2086
    recv "${name}_host" 4096 5 gpu_host0 $shape $(calibration) $settings
    while read -r gangs packets results; do
        run=${name}_${gangs}_${packets}_$results
        # shellcheck disable=SC2046,SC2086
        recv "$run" 4096 5 "$gpu" $shape $(calibration) $settings --set gpu.kernel="$kernel" \
            --set lcores.gangs="$gangs" --set gpu.packets="$packets" --set gpu.results="$results"
        columns "${name}_host" > "$work/a"
        columns "$run" > "$work/b"
        cmp "$work/a" "$work/b"
        # images may differ only in the identity of the process in each batch, and in its checksum
        differ=$(cmp -l "$work/${name}_host/run_images.arrow" "$work/$run/run_images.arrow" |
            wc -l)
        size=$(stat -c %s "$work/${name}_host/run_images.arrow")
        [ "$size" = "$(stat -c %s "$work/$run/run_images.arrow")" ]
        echo "$name, $gangs gangs, packets $packets, results $results: $(wc -l < "$work/a") rows" \
            "equal; $differ of $size bytes of images differ (identity of batches)"
        [ "$differ" -lt 400 ]
        rm -r "${work:?}/$run"
    done << 'END'
1 pinned host
3 pinned host
2 device host
2 device device
END
    rm -r "${work:?}/${name}_host"
done << 'END'
csr --set veto.prescale=7 --set veto.prescale_raw=yes
image --set output.format=image --set output.value=int16 --set output.compress=no
chunk --set output.format=image --set output.value=int16 --set output.compress=yes
raw --set output.format=raw --set veto.dry_run=yes
intervals --set dark.select=external_input --set dark.interval_frames=50 --set dark.samples_min=3
END

! wants life || CUDA_RECV_GPU=$gpu CUDA_RECV_KERNEL=$kernel python3 "$here/cuda_recv_life.py" "$bin"

# the upper limit for pinned packets, measured in the same run
bare=
bench=$(dirname "$bin")/test/gk_cuda_bench
if [ -x "$bench" ] && "$bench" --rows h --seconds 0.05 --repeats 3 > "$work/bench" 2>&1; then
    bare=$(sed -n 's/.*host memory; bare read \([0-9.]*\) GB.*/\1/p' "$work/bench")
    echo "bare read of host memory by a kernel: $bare GB/s"
fi

# draw MODULES: makes a capture of 64 frames and its calibration
draw()
{
    [ "$1" != "$drawn" ] || return 0
    "$bin/braggline-detector" --modules "$1" --interfaces 2 --frames 64 --hit-fraction 0.1 \
        --pcap "$work/in.pcap" --calibration "$work" 2> /dev/null
    drawn=$1
}

# fast NAME MODULES FRAMES PACE SETTINGS...: replays a capture of 64 frames repeatedly, renumbered
fast()
{
    local name=$1 modules=$2 frames=$3 pace=$4 rate
    wants "$name" || return 0
    shift 4
    draw "$modules"
    capture=file=$work/in.pcap,loops=$((frames / 64)),rewrite=42:8:le:64$pace
    # shellcheck disable=SC2046
    recv "$name" "$memory" 9 "$gpu" "$@" $(calibration) --set gpu.kernel="$kernel" \
        --set run.frames=$((frames / 64 * 64))
    rate=$(sed -n 's/^ *\([0-9]*\) frames\/s.*/\1/p' "$work/$name.log")
    echo
    echo "$name: $modules modules, 4 RX lcores"
    way "$name"
    sed -n '/^rate/,/^files/p' "$work/$name.log" | grep -v files
    sed -n 's/^ *\(stored\|vetoed\|lost\|refused\|incomplete\|= sum\) /  \1 /p' "$work/$name.log"
    awk -v rate="$rate" -v modules="$modules" -v bare="${bare:-0}" 'BEGIN {
        gb = rate * modules * 1048576 / 1e9
        printf "  %.1f GB/s of pixels", gb
        if (bare > 0) printf ", %.1f %% of the bare read", 100 * gb / bare
        print "" }'
    rm -r "${work:?}/$name"
}

# the deployment configuration, except for the port; the replay waits for the receiver
four=(--config "$here/../../conf/jungfrau-4m.ini" --set 'port 0.device=net_replay0'
    --set frames.backpressure=wait --set output.frames_interval=16384)
nine=(--set detector.modules=18 --set detector.interfaces=2 --set lcores.rx_lcores=4
    --set frames.slots=128 --set gpu.outputs=64 --set lcores.idle=poll)
# beam in the centre, modules in two columns
place4=(--set geometry.beam_x=1034 --set geometry.beam_y=1082 --set geometry.distance_mm=100
    --set geometry.column_modules=4)
place9=(--set geometry.beam_x=1034 --set geometry.beam_y=2440 --set geometry.distance_mm=100
    --set geometry.column_modules=9)

# every frame kept as a chunk, and a sink in place of files, which frees output slots at once
raw()
{
    local name=$1 modules=$2 seconds=$3 pace=$4 program
    wants "$name" || return 0
    shift 4
    program=$(dirname "$bin")/test/recv_sink_bench
    [ -x "$program" ] || { echo "$name: not run: no $program"; return 0; }
    draw "$modules"
    echo
    echo "$name: $modules modules, all frames kept as raw chunks, no files"
    # shellcheck disable=SC2046
    "$program" --no-huge -m "$memory" --no-pci --no-shconf --no-telemetry --lcores "$(lcores 9)" \
        --log-level lib.eal:warning "--vdev=$gpu" \
        "--vdev=net_replay0,file=$work/in.pcap,loops=0,rewrite=42:8:le:64$pace" -- \
        --seconds "$seconds" "$@" $(calibration) --set gpu.kernel="$kernel" \
        --set output.format=raw --set output.preview=off --set veto.strong_min=0 \
        --set gpu.packets=pinned --set gpu.outputs=128
}

drawn=0
fast 4M_pinned_1 8 "$total" '' "${four[@]}" --set gpu.packets=pinned --set lcores.gangs=1
fast 4M_pinned 8 "$total" '' "${four[@]}" --set gpu.packets=pinned
fast 4M_device_1 8 "$total" '' "${four[@]}" --set gpu.packets=device --set lcores.gangs=1
fast 4M_device 8 "$total" '' "${four[@]}" --set gpu.packets=device
fast 4M_device_results 8 "$total" '' "${four[@]}" --set gpu.packets=device --set gpu.results=device
fast 4M_peaks_hits 8 "$total" '' "${four[@]}" "${place4[@]}" --set gpu.packets=pinned \
    --set peaks.search=hits
fast 4M_peaks_all 8 "$total" '' "${four[@]}" "${place4[@]}" --set gpu.packets=pinned \
    --set peaks.search=all
fast 4M_radial 8 "$total" '' "${four[@]}" "${place4[@]}" --set gpu.packets=pinned \
    --set radial.bins=500
raw 4M_raw 8 3 '' "${four[@]}"
[ "$soak" -gt 0 ] || exit 0
raw 4M_raw_soak 8 "$soak" '' "${four[@]}"
fast 4M_pinned_soak 8 $((soak * 6000)) '' "${four[@]}" --set gpu.packets=pinned
fast 4M_device_soak 8 $((soak * 6000)) '' "${four[@]}" --set gpu.packets=device
# at the detector's rate: 2,000 frames of 2,304 packets a second, and the replay does not wait
fast 9M_soak 18 $((soak * 2000)) ",rate=$((2000 * 2304))" "${nine[@]}" --set gpu.packets=pinned \
    --set frames.backpressure=refuse
fast 9M_peaks_soak 18 $((soak * 2000)) ",rate=$((2000 * 2304))" "${nine[@]}" "${place9[@]}" \
    --set gpu.packets=pinned --set frames.backpressure=refuse --set peaks.search=all
raw 9M_raw_soak 18 "$soak" ",rate=$((2000 * 2304))" "${nine[@]}" --set frames.backpressure=refuse
