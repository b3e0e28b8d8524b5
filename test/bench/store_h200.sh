#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures the disk I/O of a store on a machine with a GPU:
#  - the data path of cuFile, and the evidence for it,
#  - bodies written from GPU memory to durable files, compared with pinned bounce buffers, with host
#    memory and with fio,
#  - runs loaded into GPU memory.
# Exit status 77: there is no GPU.
# usage: store_h200.sh BUNDLE-DIR [DIR [MIB [ROUNDS]]]
# BUNDLE-DIR is made by make bundle. DIR is a folder on the disk; the default is the current one. fio
# must be in the PATH. STORE_GPU=gpu_host0 tries the script on a machine without a GPU.

set -u
bundle=$(cd "$1" && pwd)
dir=${2:-.}
mib=${3:-4096}
rounds=${4:-5}
gpu=${STORE_GPU:-gpu_cuda0,device=0}
bench=$bundle/test/store_bench
work=$(mktemp -d "$dir/store_h200.XXXXXX")
udev=
trap 'rm -rf "$work"; [ -z "$udev" ] || rm -f "$udev"' EXIT

if [ "$gpu" != gpu_host0 ] && ! ldconfig -p | grep -q 'libcuda\.so\.1' && [ ! -e /dev/nvidia0 ]; then
    echo "skipped: no GPU"
    exit 77
fi

echo "== machine"
nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv,noheader 2> /dev/null
uname -r
lscpu | sed -n 's/^Model name: */CPU: /p'
df -hT "$work" | tail -1
source=$(df --output=source "$work" | tail -1)
lsblk -no NAME,MODEL,SIZE,ROTA "$source" 2> /dev/null
fio --version 2> /dev/null || echo "no fio"

echo "== cuFile"
# find the library of the toolkit or of its Python packages
if ! ldconfig -p | grep -q 'libcufile\.so\.0'; then
    found=$(find /usr/local /usr/lib /opt -name 'libcufile.so.0' 2> /dev/null | head -1)
    [ -n "$found" ] || echo "no libcufile.so.0"
    export LD_LIBRARY_PATH="${found%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    echo "libcufile: ${found:-none}"
fi
head -3 /proc/driver/nvidia-fs/stats 2> /dev/null || echo "no nvidia-fs"
# cuFile reads a disk's file system from udev's data. A container has no udev: create the entry.
number=$(stat -c '%Hd:%Ld' "$work" 2> /dev/null)
entry=/run/udev/data/b$number
if [ -n "$number" ] && [ ! -e "$entry" ]; then
    if mkdir -p /run/udev/data 2> /dev/null &&
        printf 'E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=%s\n' \
            "$(stat -f -c %T "$work" | sed 's,/.*,,; s/^ext2$/ext4/')" > "$entry"; then
        udev=$entry
        echo "made $entry: $(tr '\n' ' ' < "$entry")"
    fi
fi
find /usr/local/cuda*/gds/tools -name gdscheck -exec {} -p \; 2> /dev/null | head -40

echo "== bodies to files and back, $mib MiB a row"
status=0
"$bench" --gpu "$gpu" --dir "$work" --mib "$mib" --rounds "$rounds" ||
    {
        # the library may fail to open a second time after compatibility mode was disabled
        echo "== again, with compatibility mode allowed from the start"
        export CUFILE_ALLOW_COMPAT_MODE=true
        "$bench" --gpu "$gpu" --dir "$work" --mib "$mib" --rounds "$rounds" || status=1
    }
# messages of cuFile
[ ! -s cufile.log ] || tail -20 cufile.log

echo "== threads and slices, 1 GiB a row: GPU to file, file to GPU, host to file, file to host, GB/s"
printf '%8s %8s %8s %8s %8s %8s\n' threads KiB gpu_out gpu_in host_out host_in
for threads in 1 2 4 8 16 32; do
    for slice in 64 256 1024 4096 16384; do
        PATH=/usr/bin/none "$bench" --gpu "$gpu" --dir "$work" --mib 1024 --rounds 1 \
            --threads "$threads" --slice "$slice" > "$work/out" 2>&1
        awk -v t="$threads" -v s="$slice" '
            /^bodies in host memory to/ { ho = $(NF - 2); if ($0 ~ /%/) ho = $(NF - 4) }
            /^load into host/ { hi = $(NF - 2); if ($0 ~ /%/) hi = $(NF - 4) }
            /^bodies in GPU memory to/ { go = $(NF - 2); if ($0 ~ /%/) go = $(NF - 4) }
            /^load into GPU/ { gi = $(NF - 2); if ($0 ~ /%/) gi = $(NF - 4) }
            END { printf "%8d %8d %8s %8s %8s %8s\n", t, s, go, gi, ho, hi }' "$work/out"
    done
done

echo "== a run of raw frames, written by the programs"
"$bundle/bin/braggline-detector" --modules 2 --interfaces 2 --frames 200 --pcap "$work/in.pcap" \
    --calibration "$work" 2> /dev/null
calibration=(--set "calibration.gain=$work/gain_m%d.bin" --set "calibration.mask=$work/mask_m%d.bin")
for g in 0 1 2; do
    calibration+=(--set "calibration.pedestal_g$g=$work/pedestal_g${g}_m%d.bin")
done
"$bundle/bin/braggline-recv" --no-huge -m 2048 --no-pci --no-shconf --no-telemetry \
    --lcores "(0-5)@(0-$(($(nproc) - 1)))" --log-level lib.eal:warning --vdev gpu_host0 \
    --vdev "net_replay0,file=$work/in.pcap" -- --quiet --set detector.modules=2 \
    --set detector.interfaces=2 "${calibration[@]}" --set run.name=run --set run.frames=200 \
    --set run.first_frame=1 --set run.idle_timeout_ms=5000 --set frames.backpressure=wait \
    --set output.format=raw --set veto.dry_run=yes --set output.preview=off \
    --set output.directory="$work/run" > "$work/log" 2>&1 || { cat "$work/log"; status=1; }
"$bundle/test/store_load_bench" "$work/run" || status=1
"$bundle/test/store_load_bench" --gpu "$gpu" "$work/run" || status=1
exit $status
