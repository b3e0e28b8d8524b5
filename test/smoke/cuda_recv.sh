#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# braggline-recv with CUDA gangs beside the same runs with host gangs: the same columns, and how fast.
# For a machine with a GPU; exit status 77 where there is none.
# usage: cuda_recv.sh BIN-DIR [FRAMES-OF-THE-4M-RUN [SOAK-SECONDS]]

set -eu
bin=$1
total=${2:-20000}
soak=${3:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

recv()
{
    local name=$1 memory=$2 lcores=$3 vdev=$4 map
    shift 4
    # one CPU each where there are enough, else floating
    map=0-$lcores
    [ "$(nproc)" -gt "$lcores" ] || map="($map)@(0-$(($(nproc) - 1)))"
    "$bin/braggline-recv" --no-huge -m "$memory" --no-pci --no-shconf --no-telemetry --lcores "$map" \
        --log-level lib.eal:warning "--vdev=$vdev" "--vdev=net_replay0,$capture" -- --quiet \
        --set run.name="$name" --set output.directory="$work/out" --set run.idle_timeout_ms=500 \
        --set output.calibration=no --set output.preview=off "$@" > "$work/$name.log" 2>&1 ||
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

# all columns but the time of arrival
columns()
{
    "$bin/braggline-scan" --csv - "$work/out/$1_frames.arrow" | cut -d, -f1-3,5-
}

calibration()
{
    printf -- '--set calibration.gain=%s/gain_m%%d.bin ' "$work"
    printf -- '--set calibration.mask=%s/mask_m%%d.bin ' "$work"
    for g in 0 1 2; do
        printf -- '--set calibration.pedestal_g%d=%s/pedestal_g%d_m%%d.bin ' "$g" "$work" "$g"
    done
}

"$bin/braggline-detector" --modules 2 --interfaces 2 --frames 400 --hit-fraction 0.3 --dark-every 5 \
    --fault loss=0.001 --pcap "$work/in.pcap" --calibration "$work" 2> /dev/null
capture=file=$work/in.pcap
shape='--set detector.modules=2 --set detector.interfaces=2 --set lcores.rx_lcores=2'
while read -r name settings; do
    # shellcheck disable=SC2046,SC2086
    recv "${name}_host" 4096 5 gpu_host0 $shape $(calibration) $settings
    for gangs in 1 3; do
        # shellcheck disable=SC2046,SC2086
        recv "${name}_cuda$gangs" 4096 5 gpu_cuda0,device=0 $shape $(calibration) $settings \
            --set gpu.kernel=cuda --set lcores.gangs=$gangs
        columns "${name}_host" > "$work/a"
        columns "${name}_cuda$gangs" > "$work/b"
        cmp "$work/a" "$work/b"
        # of the images all is equal but the identity of the process in each batch, and its checksum
        differ=$(cmp -l "$work/out/${name}_host_images.arrow" \
            "$work/out/${name}_cuda${gangs}_images.arrow" | wc -l)
        size=$(stat -c %s "$work/out/${name}_host_images.arrow")
        [ "$size" = "$(stat -c %s "$work/out/${name}_cuda${gangs}_images.arrow")" ]
        echo "$name, $gangs gangs: $(wc -l < "$work/a") rows equal; $differ of $size bytes of" \
            "images differ (identity of batches)"
        [ "$differ" -lt 2000 ]
    done
done << 'END'
csr --set veto.audit_every=7
image --set output.kind=image --set output.value=int16
raw --set output.kind=raw --set veto.dry_run=yes
epochs --set dark.select=external_input --set dark.epoch=50 --set dark.samples_min=3
END

# fast NAME MODULES GANGS FRAMES PACE SETTINGS...: a capture of 64 frames, repeated with new numbers
fast()
{
    local name=$1 modules=$2 gangs=$3 frames=$4 pace=$5
    shift 5
    if [ "$modules" != "$drawn" ]; then
        "$bin/braggline-detector" --modules "$modules" --frames 64 --hit-fraction 0.1 \
            --pcap "$work/in.pcap" --calibration "$work" 2> /dev/null
        drawn=$modules
    fi
    capture=file=$work/in.pcap,loops=$((frames / 64)),rewrite=42:8:le:64$pace
    # shellcheck disable=SC2046
    recv "$name" 20480 9 gpu_cuda0,device=0 --set detector.modules="$modules" \
        --set lcores.rx_lcores=4 --set gpu.kernel=cuda --set lcores.gangs="$gangs" \
        $(calibration) --set frames.slots=128 --set gpu.outputs=64 "$@"
    echo
    echo "$name: $modules modules from host memory, $gangs gangs, 4 RX lcores"
    sed -n '/^rate/,/^files/p' "$work/$name.log" | grep -v files
    sed -n 's/^ *\(stored\|vetoed\|lost\|refused\|incomplete\|= sum\) /  \1 /p' "$work/$name.log"
    rm -rf "$work/out"
}

drawn=0
fast 4M_1_gang 8 1 "$total" ''
fast 4M_2_gangs 8 2 "$total" ''
[ "$soak" -gt 0 ] || exit 0
fast 4M_soak 8 2 $((soak * 6000)) '' --set output.frames_interval=16384
# as the detector sends: 2,000 frames of 2,304 packets a second, and nobody waits
fast 9M_soak 18 2 $((soak * 2000)) ",rate=$((2000 * 2304))" --set frames.backpressure=refuse
