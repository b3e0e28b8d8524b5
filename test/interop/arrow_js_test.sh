#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# apache-arrow for JS reads files that arrow_write makes.
# usage: arrow_js_test.sh ARROW_WRITE MODULES-DIR

set -eu
write=$1
modules=$2
here=$(dirname "$0")

if ! command -v node > /dev/null; then
    echo "skipped: node is missing (make deps)"
    exit 77
fi
if [ ! -d "$modules/node_modules/apache-arrow" ]; then
    echo "skipped: apache-arrow is not in $modules/node_modules (make deps)"
    exit 77
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
seed=$(date +%s)
echo "seed $seed"
"$write" "$dir" f32 float32 1 150 "$seed"
"$write" "$dir" i16 int16 8 100 "$seed"
"$write" "$dir" big float32 32 40 "$seed"
"$write" "$dir" empty int16 2 0 "$seed"
for name in f32 i16 big empty; do
    node "$here/arrow_js.mjs" "$modules" "$dir" "$name"
done
