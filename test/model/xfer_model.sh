#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Lets spin check every state of xfer.pml, and find the error that each of its mutations has.
#
#   xfer_model.sh FOLDER_OF_THE_MODEL
set -eu
model=$(cd "$1" && pwd)/xfer.pml

for tool in spin gcc; do
	command -v $tool >/dev/null || { echo "skipped: no $tool (make deps)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# build DEFINES...: makes ./pan
build()
{
	spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
	gcc $optimise -w -DSAFETY -DCOLLAPSE -DMEMLIM=2048 -o pan pan.c
}

# A complete search finds no error.
holds()
{
	local states
	build "$@"
	(ulimit -t 300; exec ./pan -m100000) >pan.log 2>&1 || { tail -5 pan.log; exit 1; }
	states=$(awk '/states, stored/ { print $1 }' pan.log)
	if ! grep -q 'errors: 0$' pan.log || grep -q 'Search not completed' pan.log; then
		grep -E '^pan|errors:|not completed' pan.log
		echo "$*: expected no error in a complete search"
		exit 1
	fi
	# the claim is also true if a store or receiver never does anything, so each assertion must
	# be reached
	if grep -A100 'unreached in proctype' pan.log | grep -q 'pml:[0-9]*, state [0-9]*, "assert'; then
		echo "$*: an assertion is never reached"
		exit 1
	fi
	printf '%-44s %9d states, no error\n' "$*" "$states"
}

# Without one rule, spin must find this error.
fails()
{
	local expected=$1
	shift
	build "$@"
	(ulimit -t 60; exec ./pan -m100000) >pan.log 2>&1 || :
	if ! grep -q "$expected" pan.log; then
		grep -E '^pan|errors:' pan.log || :
		echo "$*: expected '$expected'"
		exit 1
	fi
	printf '%-44s %s\n' "$*" "$(grep -m1 '^pan:1:' pan.log)"
}

optimise=-O2
holds -DBATCHES=3 -DFAULTS=1 -DMOVES=1
holds -DBATCHES=2 -DFAULTS=2 -DMOVES=1
# the claim also holds if batches after a reassigned one are removed with it
holds -DBATCHES=2 -DFAULTS=2 -DMOVES=1 -DCUT_OFF
# an operator runs import or reconcile meanwhile, and is killed
holds -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1

# these end early
optimise=-O0
lost='assertion violated yes'
once='assertion violated (n==1)'
place='assertion violated (memory'
fails "$lost" -DFAULTS=1 -DACK_BEFORE_SYNC
fails "$once" -DFAULTS=1 -DRELEASE_WHEN_SENT
fails "$once" -DBATCHES=2 -DFAULTS=2 -DNO_REASSIGNED
fails "$once" -DBATCHES=2 -DFAULTS=2 -DMOVES=1 -DFORGET_REASSIGNED
fails "$once" -DBATCHES=2 -DFAULTS=2 -DMOVE_WHILE_CONNECTING
fails "$once" -DBATCHES=2 -DFAULTS=2 -DMOVES=1 -DCUT_OFF -DFOUND_IN_ANY_ORDER
fails "$lost" -DBATCHES=2 -DFAULTS=2 -DGRANT_BEFORE_SETTLED
fails "$place" -DBATCHES=2 -DFAULTS=1 -DMOVES=0 -DREUSE_AT_ONCE
fails "$place" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DOLD_KEYS
# spilled batches
fails "$lost" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DRELEASE_BEFORE_SPILLED
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DSPILL_WHILE_CONNECTING
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DADOPT_BLINDLY
# import
fails "$once" -DBATCHES=1 -DFAULTS=2 -DMOVES=1 -DTOOLS=1 -DPLACES=1 -DKEEP_DOUBTS
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1 -DIMPORT_WHILE_SPILLING
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1 -DREMOVE_BEFORE_SYNC
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1 -DCUT_OFF -DCUT_ALL_FILES
# reconcile
fails "$once" -DBATCHES=1 -DFAULTS=2 -DMOVES=1 -DTOOLS=1 -DPLACES=1 -DWITHOUT_RING
fails "$once" -DBATCHES=3 -DFAULTS=2 -DMOVES=1 -DTOOLS=1 -DCUT_BEFORE_COPY
