#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The units of systemd and their drop-ins: systemd-analyze finds nothing wrong, and the exposure of
# the services is low.
# Usage: units_test.sh BUILD-DIR SOURCE-DIR
set -eu

build=$1 source=$2

die()
{
	printf 'units: %s\n' "$*" >&2
	exit 1
}

# exposure_max PROGRAM: tenths of 10
exposure_max()
{
	case $1 in
	braggline-exporter | braggline-view) echo 15 ;;
	*) echo 30 ;;
	esac
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

for unit in braggline-recv@ braggline-store@ braggline-scan@ braggline-view braggline-exporter; do
	program=${unit%@}
	folder=app/${program#*-}
	[ "$program" != braggline-exporter ] || folder=conf/telemetry
	drop_ins=$unit.service.d
	unit=$unit.service
	# a unit of a program that is not built
	[ "$program" != braggline-view ] || [ -e "$build/$folder/$program" ] || continue
	# the program of the build directory takes the place of the installed one, by a link, because
	# its path may have blanks
	ln -s "$(realpath "$build/$folder/$program")" "$where/$program"
	sed "s#^ExecStart=[^ ]*/$program #ExecStart=$where/$program #" \
		"$build/conf/systemd/$unit" >"$where/$unit"
	grep -q "^ExecStart=$where/$program " "$where/$unit" || die "$unit: no ExecStart="
	grep -qE '@[a-z]+@' "$where/$unit" && die "$unit: a path was not set: $(grep -E '@[a-z]+@' "$where/$unit")"
	said=$(verify "$unit")
	[ -z "$said" ] || die "$unit: $said"
	systemd-analyze security --offline=true --no-pager --threshold="$(exposure_max "$program")" \
		"$where/$unit" >"$where/log" 2>&1 ||
		die "$unit: $(tail -1 "$where/log"), expected at most $(exposure_max "$program")"
	case $program in braggline-recv | braggline-store) ;; *) continue ;; esac
	mkdir "$where/$drop_ins"
	cp "$source"/conf/systemd/drop-ins/*.conf "$where/$drop_ins/"
	said=$(verify "$unit")
	[ -z "$said" ] || die "$unit with drop-ins: $said"
	# a mistake in a drop-in is found, so they have been read
	printf '[Service]\nMemoryLock=yes\n' >"$where/$drop_ins/wrong.conf"
	said=$(verify "$unit")
	case $said in *MemoryLock*) ;; *) die "$unit: drop-ins were not read: $said" ;; esac
	rm -r "${where:?}/$drop_ins"
done

# the page and the exporter have no capabilities
for unit in braggline-view braggline-exporter; do
	[ -e "$where/$unit.service" ] || continue
	for line in CapabilityBoundingSet= AmbientCapabilities= NoNewPrivileges=yes \
		'SupplementaryGroups=braggline.*'; do
		grep -qx "$line" "$where/$unit.service" || die "$unit.service: no line $line"
	done
done

# the query server cannot change files of runs, nor reach the sockets of the dataplane
for line in User=braggline-scan SupplementaryGroups=braggline ProtectSystem=strict NoNewPrivileges=yes \
	InaccessiblePaths=-/run/braggline; do
	grep -qx "$line" "$where/braggline-scan@.service" || die "braggline-scan@.service: no line $line"
done
! grep -qE '^(ReadWritePaths|StateDirectory)=' "$where/braggline-scan@.service" ||
	die 'braggline-scan@.service: a folder that can be written'

# the users of the units are those that sysusers makes
if command -v systemd-sysusers >/dev/null; then
	mkdir -p "$where/root/etc"
	touch "$where/root/etc/passwd" "$where/root/etc/group"
	for unit in "$where"/*.service; do
		user=$(sed -n 's/^User=//p' "$unit")
		case $unit in
		*braggline-exporter.service)
			grep -qx DynamicUser=yes "$unit" || die "$unit: no line DynamicUser=yes"
			continue
			;;
		*braggline-view.service) expected=braggline-view file=braggline-view home=/ ;;
		*braggline-scan@.service) expected=braggline-scan file=braggline home=/ ;;
		*) expected=braggline file=braggline home="/.*/lib/braggline" ;;
		esac
		[ "$user" = "$expected" ] || die "$unit: User=$user, expected $expected"
		systemd-sysusers --root="$where/root" "$(realpath "$build")/conf/systemd/$file.conf" \
			>"$where/log" 2>&1 || die "systemd-sysusers: $(cat "$where/log")"
		grep -q "^$user:.*:$home:" "$where/root/etc/passwd" ||
			die "systemd-sysusers: no user $user: $(cat "$where/root/etc/passwd")"
	done
fi
echo 'units: systemd-analyze verify and security: ok'
