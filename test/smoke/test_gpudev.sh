#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs DPDK's installed gpudev test with the gpu_host driver.
# Usage: test_gpudev.sh <folder of librte_gpu_host.so>
set -eu

drivers=$1
tool=$(command -v dpdk-test-gpudev) || {
	echo "skipped: dpdk-test-gpudev is not installed"
	exit 77
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A driver that is built with a sanitizer needs its runtime loaded first in the stock program.
LD_PRELOAD=$(ldd "$drivers/librte_gpu_host.so" | awk '/libasan|libubsan/ { printf "%s ", $3 }')
ASAN_OPTIONS=detect_leaks=0
# EAL refuses a path below a world-writable folder, but accepts a bare name
LD_LIBRARY_PATH=$drivers${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_PRELOAD ASAN_OPTIONS LD_LIBRARY_PATH

"$tool" --no-huge --no-pci --no-shconf -m 256 -l 0 -d librte_gpu_host.so --vdev gpu_host0 \
	>"$log" 2>&1 || { cat "$log"; exit 1; }
cat "$log"
unset LD_PRELOAD

passed=$(grep -c 'TEST: PASSED' "$log") || true
if [ "$passed" -ne 5 ] || grep -q 'TEST: FAILED' "$log"; then
	echo "dpdk-test-gpudev: $passed suites passed, 5 expected"
	exit 1
fi
