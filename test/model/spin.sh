#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Functions for the checks of models by spin. Sourced with the path of the model in `model`.
: "${model:?}"

for tool in spin gcc; do
	command -v $tool >/dev/null || { echo "skipped: no $tool (make deps)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit

# build DEFINES...: makes ./pan
build()
{
	spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
	# states are not compressed (-DCOLLAPSE), which took a third of the time: 1 GB at most
	gcc $optimise -w -DSAFETY -DMEMLIM=4096 -o pan pan.c
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
