#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The result of `make install` is sufficient: its programs run, a stock DPDK program loads its
# drivers, and another program builds with its RDMA library and has both providers.
# Usage: install_test.sh BUILD-DIR
set -eu

build=$1
cpus=$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/self/status)

die()
{
	printf 'install: %s\n' "$*" >&2
	exit 1
}

# EAL loads no driver from a folder that is below a world-writable one, such as /tmp.
is_private()
{
	local folder
	folder=$(realpath "$1") || return
	while [ "$folder" != / ]; do
		[ -z "$(find "$folder" -maxdepth 0 -perm -o+w)" ] || return
		folder=$(dirname "$folder")
	done
}

where=
for folder in "$build" /run "${XDG_RUNTIME_DIR:-}" "${HOME:-}"; do
	[ -w "$folder" ] && is_private "$folder" || continue
	where=$(mktemp -d "$folder/install.XXXXXX")
	break
done
if [ -z "$where" ]; then
	echo "skipped: no folder to install into: EAL refuses drivers below world-writable folders ($build)"
	exit 77
fi
trap 'rm -rf "$where"' EXIT

DESTDIR=$where meson install -C "$build" --no-rebuild >"$where/log" 2>&1 || {
	cat "$where/log"
	die 'meson install failed'
}
prefix=$where$(meson introspect "$build" --buildoptions |
	python3 -c 'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')

# built only with their libraries
extra=""
[ ! -x "$build/app/export/braggline-export" ] || extra="export"
[ ! -x "$build/app/publish/braggline-publish" ] || extra="$extra publish"
# built only with libmicrohttpd and uPlot
[ ! -x "$build/app/view/braggline-view" ] || extra="$extra view"
# only with Debian's python3-prometheus-client
! /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || extra="$extra exporter"
for program in detector $extra rdma recv scan store; do
	env -i "$prefix/bin/braggline-$program" --version >"$where/log" 2>&1 ||
		env -i "$prefix/bin/braggline-$program" --no-huge --no-pci --no-shconf -l "${cpus%%[-,]*}" \
			-- --version >"$where/log" 2>&1 || {
		cat "$where/log"
		die "braggline-$program does not run"
	}
done

extension=$(find "$prefix" -name braggline.duckdb_extension)
tail -c 512 "$extension" | grep -qa C_STRUCT || die "$extension is no extension of DuckDB"

# a driver manager of ADBC finds the driver by its manifest
manifest=$(find "$where" -path '*/adbc/drivers/braggline.toml')
module=$where$(sed -n 's/^shared = "\(.*\)"$/\1/p' "$manifest")
nm -D --defined-only "$module" | grep -q ' T AdbcDriverInit$' || die "$module is no driver of ADBC"

drivers=$(dirname "$(find "$prefix" -name librte_net_replay.so)")
if command -v dpdk-testpmd >/dev/null; then
	# -d also takes the whole folder
	echo quit | dpdk-testpmd --no-huge --no-pci --no-shconf -m 128 --no-telemetry -l "$cpus" \
		-d "$drivers" --vdev net_replay0 --log-level=lib.eal:debug -- -i >"$where/log" 2>&1 || true
	for driver in net_replay gpu_host gpu_cuda; do
		grep -q "librte_$driver.so" "$where/log" || {
			cat "$where/log"
			die "dpdk-testpmd -d $drivers does not load $driver"
		}
	done
	grep -q 'net_replay0.*file' "$where/log" || {
		cat "$where/log"
		die 'net_replay does not ask for its capture'
	}
fi

# pkg-config must name the staging directory, not the final one
mkdir "$where/pc"
sed "s#^prefix=.*#prefix=$prefix#" "$(find "$prefix" -name braggline-rdma.pc)" >"$where/pc/braggline-rdma.pc"
cat >"$where/main.c" <<'END'
#include <stdio.h>

#include <rte_eal.h>

#include <net_replay.h>
#include <rdma_pool.h>
#include <rdma_roce.h>

int
main(int argc, char **argv)
{
	if (rte_eal_init(argc, argv) < 0)
		return 1;
	if (rdma_dev_open("nobody:") != NULL)
		return 1;
	return rte_eal_cleanup();
}
END
export PKG_CONFIG_PATH=$where/pc
# shellcheck disable=SC2046
cc -DALLOW_EXPERIMENTAL_API "$where/main.c" -o "$where/main" $(pkg-config --cflags --libs braggline-rdma) \
	${SANITIZE:-}
"$where/main" --no-huge --no-pci --no-shconf -m 64 --no-telemetry -l "${cpus%%[-,]*}" >"$where/log" 2>&1 || {
	cat "$where/log"
	die 'a program with the RDMA library does not run'
}
for provider in roce verbs; do
	grep -q "unknown provider.*$provider" "$where/log" || {
		cat "$where/log"
		die "the RDMA library has no provider $provider"
	}
done

# a program with the kernels of gangs
sed "s#^prefix=.*#prefix=$prefix#" "$(find "$prefix" -name braggline-gk.pc)" >"$where/pc/braggline-gk.pc"
cat >"$where/gk.c" <<'END'
#include <stdio.h>

#include <gk.h>
#include <gk_peaks.h>
#include <gk_pixel.h>
#include <gk_radial.h>
#include <gk_reason.h>
#include <gk_ring.h>

int
main(void)
{
	return gk_ops_find("host") == NULL || puts(gk_ops_find("host")->name) < 0;
}
END
# shellcheck disable=SC2046
cc "$where/gk.c" -o "$where/gk" $(pkg-config --cflags --libs braggline-gk) ${SANITIZE:-}
[ "$("$where/gk")" = host ] || die 'a program with the gang kernels does not run'

# files of packages: manual pages and completions of all programs, units, configurations
if [ -e "$build/conf/man/braggline-recv.1" ]; then
	for program in detector $extra rdma recv scan store; do
		for file in "share/man/man1/braggline-$program.1" \
			"share/bash-completion/completions/braggline-$program"; do
			[ -s "$prefix/$file" ] || die "no $file"
		done
	done
	for page in braggline-recv.ini.5 braggline-store.ini.5 net_replay.7 gpu_host.7 gpu_cuda.7; do
		[ -s "$prefix/share/man/man${page##*.}/$page" ] || die "no manual page $page"
	done
fi
for file in demo.ini store.ini telemetry/alerts.yml telemetry/grafana-recv.json; do
	[ -s "$prefix/share/braggline/$file" ] || die "no share/braggline/$file"
done
# no file is installed outside the prefix, and none has a path of the staging directory
[ -z "$(cd "$where" && find . -type f -path './*/*' ! -path ".${prefix#"$where"}/*" ! -path './pc/*')" ] ||
	die "files outside the prefix: $(cd "$where" && find . -type f ! -path ".${prefix#"$where"}/*")"
echo 'install: programs, drivers, libraries, manual pages: ok'
