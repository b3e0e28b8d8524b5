#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# braggline-scan on complete, unfinished, damaged and missing files: its output and its exit status.
# usage: scan_test.sh BRAGGLINE-SCAN ARROW_WRITE

set -u
scan=$1
write=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
seed=$(date +%s)
echo "seed $seed"
RANDOM=$seed

# want STATUS TEXT ARGUMENT...: expects this exit status, and the text in the output
want() {
	local status=$1 text=$2 got
	shift 2
	"$scan" "$@" > "$dir/said" 2>&1
	got=$?
	if [ $got -ne "$status" ] || ! grep -q -- "$text" "$dir/said"; then
		echo "braggline-scan $*"
		echo "exit status $got, expected $status with '$text':"
		cat "$dir/said"
		exit 1
	fi
}

"$write" "$dir" one float32 2 300 "$seed" || exit 1
awk 'BEGIN { print "frame,hit,x" }
	$1 == "frames" { print $2 "," ($15 == 1 ? 1 : 0) ",7" }' "$dir/one.txt" > "$dir/truth.csv"
awk -F, 'NR > 1 && $2 == 1 { n++ } END { print n }' "$dir/truth.csv" > "$dir/hits"
hits=$(cat "$dir/hits")

want 0 'braggline-scan' --help
want 2 'expected a directory or a file' --plot x
want 2 'expected a frame number' --frame -1 --png x "$dir"
want 2 '--png: expected a name that ends in .png or .svg, not x.jpg' --png x.jpg "$dir"
want 2 '--plot: expected a name that ends in .png or .svg, not png' --plot png "$dir"
want 0 'every CRC-32C right, complete' "$dir"
want 0 'frames             300,' "$dir/one_images.arrow"
want 0 "100.00 %  $hits of $hits hits found" "$dir" --truth "$dir/truth.csv"
want 0 'hit rate' "$dir" --png "$dir/a.png" --plot "$dir/b.png"
for png in a b; do
	[ "$(head -c 4 "$dir/$png.png" | tail -c 3)" = PNG ] || { echo "no $png.png"; exit 1; }
done
# the same bytes twice, in two processes
want 0 'hit rate' "$dir" --png "$dir/a.svg" --plot "$dir/b.svg"
for name in a.png b.png a.svg b.svg; do
	mv "$dir/$name" "$dir/first_$name"
done
want 0 'hit rate' "$dir" --png "$dir/a.png" --plot "$dir/b.png"
want 0 'hit rate' "$dir" --png "$dir/a.svg" --plot "$dir/b.svg"
for name in a.png b.png a.svg b.svg; do
	cmp "$dir/$name" "$dir/first_$name" || exit 1
done
want 1 "cannot write $dir/none/x.svg: No such file" "$dir" --png "$dir/none/x.svg"
want 1 "cannot write $dir/none/x.png: No such file" "$dir" --plot "$dir/none/x.png"
# without fonts
FONTCONFIG_FILE=$dir/none want 0 'hit rate' "$dir" --png "$dir/a.png" --plot "$dir/b.png"
want 2 'from requires --geometry' --from "$dir/a.geom"
want 2 'geometry converts a file with --from [^ ]*a.geom' --geometry "$dir/b.geom" "$dir/a.geom"
want 1 'run one has no geometry' "$dir" --geometry "$dir/a.geom"
want 1 'cannot read .*/a.geom: No such file' --geometry "$dir/b.geom" --from "$dir/a.geom"
cat > "$dir/a.geom" <<'EOF'
photon_energy = 12.4 keV
clen = 100 mm
res = 10000
adu_per_photon = 1
p/min_fs = 0
p/max_fs = 9
p/min_ss = 0
p/max_ss = 4
p/corner_x = -2
p/corner_y = 3
p/fs = x
p/ss = -y
EOF
"$scan" --geometry "$dir/a.poni" --from "$dir/a.geom" || exit 1
grep -q '"max_shape": \[5, 10\]' "$dir/a.poni" || { cat "$dir/a.poni"; exit 1; }
"$scan" --geometry "$dir/b.geom" --from "$dir/a.poni" || exit 1
grep -q '^poni/corner_x = -2$' "$dir/b.geom" || { cat "$dir/b.geom"; exit 1; }
echo 'p/coffset = near' >> "$dir/a.geom"
want 1 'a.geom:13: panel p: coffset = near: expected a number' --geometry "$dir/b.geom" --from "$dir/a.geom"
want 1 'no image of frame 5000000' "$dir" --png "$dir/a.png" --frame 5000000
sed '4s/^/x/' "$dir/truth.csv" > "$dir/wrong.csv"
want 1 'wrong.csv:4: expected a frame number' "$dir" --truth "$dir/wrong.csv"
want 1 'header line with the columns frame and hit' "$dir" --truth "$dir/one.txt"

# the rows of the table, compared with the plain text
"$scan" --csv - "$dir" > "$dir/frames.csv" || exit 1
awk -F, 'NR > 1 { print $1, $2, $4, $14, $15 }' "$dir/frames.csv" > "$dir/got"
awk '$1 == "frames" { print $2, $3, $5, $15, $16 }' "$dir/one.txt" > "$dir/expected"
cmp "$dir/got" "$dir/expected" || exit 1

# a run that was not closed
size=$(stat -c %s "$dir/one_frames.arrow")
mkdir "$dir/part"
head -c $((size - 5000)) "$dir/one_frames.arrow" > "$dir/part/one_frames.arrow.part"
cp "$dir/one_images.arrow" "$dir/part/"
want 1 'NOT COMPLETE' "$dir/part"
want 1 'every CRC-32C right' "$dir/part/one_frames.arrow.part"

# recovered: it is complete without its last batch, so images has more rows; a second recovery does
# nothing
cp "$dir/part/one_frames.arrow.part" "$dir/part/two_frames.arrow.part"
mkdir -p "$dir/store/lyso"
cp "$dir/part/one_frames.arrow.part" "$dir/one_images.arrow" "$dir/store/lyso"
want 1 'recovered .*store/lyso/one_frames.arrow: ' --recover "$dir/store"
want 1 'NOTE .* kept frames, but' "$dir/store"
echo nonsense > "$dir/store/cal_pedestals.arrow.part"
want 1 'NOT RECOVERED .*store/cal_pedestals.arrow.part' --recover "$dir/store"
want 1 'recovered .*one_frames.arrow: ' --recover "$dir/part/one_frames.arrow.part"
want 1 'NOTE .* kept frames, but' "$dir/part/one_frames.arrow"
cmp -n 40000 "$dir/one_frames.arrow" "$dir/part/one_frames.arrow" || exit 1
cp "$dir/one_images.arrow" "$dir/part/two_images.arrow"
echo nonsense > "$dir/part/bad_frames.arrow.part"
want 1 'NOT RECOVERED .*bad_frames.arrow.part' --recover "$dir/part"
rm "$dir/part/bad_frames.arrow.part"
want 1 'run two' --recover "$dir/part"
want 1 'unchanged .*part: it has no .arrow.part files' --recover "$dir/part"
want 1 'unchanged .*one_frames.arrow: only .part files are recovered; .*one_frames.arrow.part' \
	--recover "$dir/part/one_frames.arrow"

# a run in several files
mkdir "$dir/sets"
for set in 1 2 3; do
	"$write" "$dir/sets" "long_00000$set" float32 2 100 "$((seed + set))" || exit 1
done
want 0 'run long$' "$dir/sets"
want 0 '3 sets of files' "$dir/sets"
want 0 'frames             300,' "$dir/sets" --png "$dir/a.png" --plot "$dir/b.png"
want 0 'frames             100,' "$dir/sets/long_000002_images.arrow"
"$scan" --csv - "$dir/sets" > "$dir/frames.csv" || exit 1
[ "$(wc -l < "$dir/frames.csv")" = 301 ] || { echo "not all sets in the CSV"; exit 1; }
rm "$dir/sets/long_000002_images.arrow"
want 1 'images   2 files, .* 1 WITH ERRORS' "$dir/sets"

# a flipped byte in a body
mkdir "$dir/bad"
cp "$dir"/one_*.arrow "$dir/bad/"
printf '\377' | dd of="$dir/bad/one_frames.arrow" bs=1 seek=12300 conv=notrunc 2> "$dir/dd"
want 1 '1 DAMAGED' "$dir/bad"

# the last batch, in a file without a footer, as when the writer is killed
cp "$dir"/one_*.arrow "$dir/bad/"
python3 - "$dir/bad/one_frames.arrow" << 'EOF' || exit 1
import os
import struct
import sys

with open(sys.argv[1], 'r+b') as f:
    data = f.read()
    end = (len(data) - 10 - struct.unpack('<I', data[-10:-6])[0]) // 4096 * 4096
    f.truncate(end)
    f.seek(end - 4096 + 12)
    f.write(b'\377')
os.rename(sys.argv[1], sys.argv[1] + '.part')
EOF
want 1 ', 1 incomplete, left out' "$dir/bad"
want 1 'incomplete, its write may not have ended: damaged: batch 9' "$dir/bad"
rm "$dir/bad/one_frames.arrow.part"

# one of the two copies of the schema is damaged: all rows are read, and the damage is reported
cp "$dir"/one_*.arrow "$dir/bad/"
printf '\377' | dd of="$dir/bad/one_frames.arrow" bs=1 seek=1000 conv=notrunc 2> "$dir/dd"
want 1 'DAMAGED: one of the two copies of its schema' "$dir/bad"
want 1 'frames             300,' "$dir/bad"

# two batches that were exchanged are reported as misplaced
cp "$dir"/one_*.arrow "$dir/bad/"
python3 - "$dir/bad/one_frames.arrow" << 'EOF' || exit 1
import struct
import sys

with open(sys.argv[1], 'r+b') as f:
    data = f.read()
    begin, places = 2 * 4096, {}
    while data[begin:begin + 4] == b'\xff' * 4 and data[begin + 4:begin + 8] != bytes(4):
        end = begin + 4096 + struct.unpack_from('<q', data, begin + 40)[0]
        places.setdefault(end - begin, []).append(begin)
        begin = end
    size, (a, b, *_) = next((s, at) for s, at in places.items() if len(at) > 1)
    f.seek(a)
    f.write(data[b:b + size])
    f.seek(b)
    f.write(data[a:a + size])
EOF
want 1 'a batch out of order' "$dir/bad"

want 1 'No such file' "$dir/nothing"
want 1 'no file named RUN_frames.arrow' "$(mktemp -d -p "$dir")"
want 1 'expected a directory, or a file named' "$dir/one.txt"
rm "$dir/bad/one_frames.arrow"
want 1 'one_frames.arrow: not found' "$dir/bad"
echo nonsense > "$dir/bad/one_frames.arrow"
want 1 'not an Arrow IPC file' "$dir/bad"
"$write" "$dir" two int16 1 50 "$seed" || exit 1
want 2 'require a single run' "$dir" --plot "$dir/b.png"
want 0 'run two' "$dir"

# random damage: an exit status, never a signal
for _ in $(seq 60); do
	cp "$dir/one_frames.arrow" "$dir/one_images.arrow" "$dir/bad/"
	for table in frames images; do
		size=$(stat -c %s "$dir/one_$table.arrow")
		for _ in 1 2 3; do
			at=$((RANDOM % (size / 4096) * 4096 + RANDOM % 1600))
			printf "\\x$(printf %x $((RANDOM % 256)))" |
				dd of="$dir/bad/one_$table.arrow" bs=1 seek=$at conv=notrunc \
					2> "$dir/dd"
		done
	done
	"$scan" "$dir/bad" --png "$dir/c.png" --plot "$dir/d.png" --csv "$dir/e.csv" \
		> "$dir/said" 2>&1
	rc=$?
	if [ $rc -gt 1 ] || grep -q 'Sanitizer\|runtime error' "$dir/said"; then
		echo "exit status $rc on damaged files"
		cat "$dir/said"
		exit 1
	fi
done
echo "all as expected"
