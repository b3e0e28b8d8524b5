#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The units of systemd and their drop-ins: systemd-analyze finds nothing wrong, and the exposure of
# the services is low.
# Usage: units_test.sh BUILD-DIR SOURCE-DIR
set -eu

build=$1 source=$2
exposure_max=30 # tenths: 3.0 of 10

die()
{
	printf 'units: %s\n' "$*" >&2
	exit 1
}

command -v systemd-analyze >/dev/null || {
	echo 'skipped: systemd-analyze is not installed (Debian: systemd)'
	exit 77
}
[ -e "$build/conf/systemd/braggline-recv@.service" ] || die "no units in $build/conf/systemd"
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT

# verify UNIT: what systemd-analyze says of it
verify()
{
	systemd-analyze verify --man=no --recursive-errors=no "$where/$1" 2>&1 || echo "status $?"
}

for program in recv store; do
	unit=braggline-$program@.service
	# the program of the build directory takes the place of the installed one
	sed "s#^ExecStart=[^ ]*/braggline-$program #ExecStart=$(realpath "$build")/app/$program/braggline-$program #" \
		"$build/conf/systemd/$unit" >"$where/$unit"
	grep -q "^ExecStart=$(realpath "$build")" "$where/$unit" || die "$unit: no ExecStart="
	grep -qE '@[a-z]+@' "$where/$unit" && die "$unit: a path was not set: $(grep -E '@[a-z]+@' "$where/$unit")"
	said=$(verify "$unit")
	[ -z "$said" ] || die "$unit: $said"
	mkdir "$where/$unit.d"
	cp "$source"/conf/systemd/drop-ins/*.conf "$where/$unit.d/"
	said=$(verify "$unit")
	[ -z "$said" ] || die "$unit with drop-ins: $said"
	# a mistake in a drop-in is found, so they have been read
	printf '[Service]\nMemoryLock=yes\n' >"$where/$unit.d/wrong.conf"
	said=$(verify "$unit")
	case $said in *MemoryLock*) ;; *) die "$unit: drop-ins were not read: $said" ;; esac
	rm -r "$where/$unit.d"
	systemd-analyze security --offline=true --no-pager --threshold=$exposure_max "$where/$unit" \
		>"$where/log" 2>&1 || die "$unit: $(tail -1 "$where/log"), expected at most $exposure_max"
done

# the user of the units is the one that sysusers makes
if command -v systemd-sysusers >/dev/null; then
	mkdir -p "$where/root/etc"
	touch "$where/root/etc/passwd" "$where/root/etc/group"
	systemd-sysusers --root="$where/root" "$(realpath "$build")/conf/systemd/braggline.conf" \
		>"$where/log" 2>&1 || die "systemd-sysusers: $(cat "$where/log")"
	grep -q '^braggline:.*:/.*/lib/braggline:' "$where/root/etc/passwd" ||
		die "systemd-sysusers: no user braggline: $(cat "$where/root/etc/passwd")"
	for unit in "$where"/*.service; do
		grep -q '^User=braggline$' "$unit" || die "$unit: no User=braggline"
	done
fi
echo 'units: systemd-analyze verify and security: ok'
