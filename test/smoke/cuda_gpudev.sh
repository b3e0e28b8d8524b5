#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs DPDK's installed gpudev test with the gpu_cuda driver: without a GPU, on the unit tests' fake
# GPU with and without GDRCopy, and on the GPU of this machine if it has one.
# Usage: cuda_gpudev.sh <folder of librte_gpu_cuda.so> <folder of the fake libcuda.so.1>
set -eu

drivers=$1
fakes=$2
tool=$(command -v dpdk-test-gpudev) || {
	echo "skipped: dpdk-test-gpudev is not installed"
	exit 77
}
log=$(mktemp)
alone=$(mktemp -d) # the fake libcuda without the fake GDRCopy
trap 'rm -rf "$log" "$alone"' EXIT
ln -s "$fakes/libcuda.so.1" "$alone/"

# A driver that is built with a sanitizer needs its runtime loaded first in the stock program.
LD_PRELOAD=$(ldd "$drivers/librte_gpu_cuda.so" | awk '/libasan|libubsan/ { printf "%s ", $3 }')
export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0

# gpudev <libraries> [devargs]: returns the exit status of the stock test, its output is in $log
gpudev()
{
	LD_LIBRARY_PATH=$1 "$tool" --no-huge --no-pci --no-shconf -m 256 -l 0 \
		-d librte_gpu_cuda.so --vdev "gpu_cuda0${2:+,$2}" >"$log" 2>&1
}

die()
{
	cat "$log"
	echo "FAILED: $*"
	exit 1
}

# suites <where>: all five suites pass where the CPU can map device memory, else all but one
suites()
{
	expected=5
	left='closed with'
	if grep -q 'device memory cannot be mapped for the CPU' "$log"; then
		expected=4
		# rte_gpu_comm_create_list() leaks its flags in device memory when it cannot map
		# them
		left='closed with ([^1]|1[^ ]|1 allocations \(([^4]|4[^0]))'
	fi
	passed=$(grep -c 'TEST: PASSED' "$log") || true
	[ "$passed" -eq "$expected" ] || die "$1: $passed suites passed, $expected expected"
	if grep -E "^gpu_cuda: .*(CUDA_ERROR|$left)" "$log"; then
		die "$1"
	fi
	echo "$1: $passed suites passed, $expected expected"
}

# A GPU that does not exist is reported in one line, and has no other effect.
gpudev "$drivers" device=99 && die 'device=99 was found'
[ "$(grep -c '^gpu_cuda: gpu_cuda0: ' "$log")" -eq 1 ] || die 'one line was expected'
grep '^gpu_cuda: ' "$log"
grep -q 'DPDK found 0 GPUs' "$log" || die 'EAL did not go on without the device'

gpudev "$drivers:$fakes" || die 'the fake GPU'
suites 'the fake GPU with GDRCopy'
grep -q 'device memory cannot be mapped' "$log" && die 'the fake GDRCopy was not found'
gpudev "$drivers:$alone" || die 'the fake GPU'
suites 'the fake GPU without GDRCopy'

if gpudev "$drivers${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"; then
	suites 'the GPU of this machine'
else
	echo 'the GPU of this machine: none'
fi
