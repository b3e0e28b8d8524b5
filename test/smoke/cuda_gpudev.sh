#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# DPDK's own gpudev test, as installed, on the gpu_cuda driver: without a CUDA driver, then with the
# fake one of the unit tests. On a machine with a GPU, the same on the GPU.
# Usage: cuda_gpudev.sh <folder of librte_gpu_cuda.so> <folder of the fake libcuda.so.1>
set -eu

drivers=$1
fakes=$2
tool=$(command -v dpdk-test-gpudev) || {
	echo "skipped: dpdk-test-gpudev is not installed"
	exit 77
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A sanitizer build of the driver needs its runtime in the stock program before anything else.
LD_PRELOAD=$(ldd "$drivers/librte_gpu_cuda.so" | awk '/libasan|libubsan/ { printf "%s ", $3 }')
export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0

# gpudev <libraries> [devargs]: the status of the stock test, its output in $log
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

# suites <wanted> <where>
suites()
{
	passed=$(grep -c 'TEST: PASSED' "$log") || true
	[ "$passed" -eq "$1" ] || die "$2: $passed suites passed, $1 wanted"
	# our own lines: what failed, or was left behind
	if grep -E '^gpu_cuda: .*(CUDA_ERROR|closed with)' "$log"; then
		die "$2"
	fi
}

# A GPU that is not there is one line, and nothing else changes.
gpudev "$drivers" device=99 && die 'device=99 was found'
[ "$(grep -c '^gpu_cuda: gpu_cuda0: ' "$log")" -eq 1 ] || die 'one line was wanted'
grep '^gpu_cuda: ' "$log"
grep -q 'DPDK found 0 GPUs' "$log" || die 'EAL did not go on without the device'

gpudev "$drivers:$fakes" || die 'the fake GPU'
cat "$log"
suites 5 'the fake GPU'

if gpudev "$drivers"; then
	cat "$log"
	# all five where GDRCopy is, else all but the one that maps device memory for the CPU
	if grep -q 'no CPU mapping of device memory' "$log"; then
		suites 4 'this GPU, without GDRCopy'
	else
		suites 5 'this GPU'
	fi
else
	echo "no GPU here: the stock test ran on the fake one only"
fi
