// SPDX-License-Identifier: BSD-3-Clause
// Checks the files of braggline-recv with apache-arrow, an independent reader.
//
// usage: node recv_files.mjs MODULES-DIR COMMAND RUN-PATH [ARGS]
//   MODULES-DIR holds node_modules; RUN-PATH is DIR/NAME of DIR/NAME_{frames,images}.arrow
//   pattern RUN FRAMES          the pattern of PSI's virtual JUNGFRAU, uncalibrated full images
//   converted RUN RAW... -- CONV... -- PEDESTAL-G0 PEDESTAL-G1 PEDESTAL-G2 GAIN
//                               PSI's own converted images of real frames
//   digest RUN                  prints a digest of all columns except receive times
//   intervals RUN LENGTH EVERY  pedestal versions of intervals of LENGTH frames, one dark in EVERY frames
//   peaks RUN CSV               peaks of kept frames, as in a list of CrystFEL's: frame (from 0), panel, fs, ss, intensity
//   rows RUN TABLE              prints the number of rows of a table; each has a frame number
//   truth RUN CSV               compares hits with the truth of braggline-detector

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { arrow } from './apache_arrow.mjs';
import { isTrue, readTruth, tell } from './truth.mjs';

const [command, run, ...args] = process.argv.slice(3);

const ROWS = 512;
const COLS = 1024;

function fail(text) {
    console.error(`FAILED ${command} ${run}: ${text}`);
    process.exit(1);
}

function table(name) {
    return arrow.tableFromIPC(readFileSync(`${run}_${name}.arrow`));
}

const int = (v) => Number(v);

// PSI's virtual JUNGFRAU: value = packet + 1, gain by column; see ../shared/data/README.md
function pattern(frames) {
    const nominal = [41, -1.439, -0.1145];
    const energy = 12.4;
    const r = nominal.map((g) => Math.fround(1 / (g * energy)));
    const rows = table('frames');
    const images = table('images');
    if (rows.numRows !== frames || images.numRows !== frames)
        fail(`${rows.numRows} rows of frames, ${images.numRows} of images, expected ${frames}`);
    for (let f = 0; f < frames; f++) {
        const { frame, missing, invalid } = rows.get(f);
        if (int(frame) !== f + 1 || [...missing].some((m) => m !== 0) || invalid !== 0)
            fail(`row ${f}: frame ${frame}, missing ${[...missing]}, invalid ${invalid}`);
        const image = images.get(f);
        if (int(image.frame) !== f + 1 || image.kind !== 1 || image.raw !== null)
            fail(`image ${f}: frame ${image.frame}, kind ${image.kind}`);
        const value = image.value.toArray();
        if (value.length !== ROWS * COLS)
            fail(`image ${f}: ${value.length} values`);
        for (let i = 0; i < value.length; i++) {
            const gain = i % COLS < 300 ? 0 : i % COLS < 600 ? 1 : 2;
            const adc = Math.floor(i / COLS / 4) + 1;
            const want = Math.fround(adc * r[gain]);
            if (value[i] !== want)
                fail(`image ${f}, row ${Math.floor(i / COLS)}, column ${i % COLS}: ` +
                    `${value[i]}, expected ${want}`);
        }
    }
    console.log(`${frames} frames have the pattern of PSI's virtual JUNGFRAU`);
}

// distance of two finite f32 in units in the last place
function ulps(a, b) {
    const view = new Int32Array(new Float32Array([a, b]).buffer);
    const order = (n) => (n < 0 ? -0x80000000 - n : n);
    return Math.abs(order(view[0]) - order(view[1]));
}

function groups(list) {
    const out = [[]];
    for (const a of list)
        a === '--' ? out.push([]) : out[out.length - 1].push(a);
    return out;
}

function load(path, Type) {
    const b = readFileSync(path);
    return new Type(b.buffer.slice(b.byteOffset, b.byteOffset + b.length));
}

function converted(list) {
    const [raws, convs, [g0, g1, g2, gainPath]] = groups(list);
    const pedestal = [g0, g1, g2].map((p) => load(p, Float32Array));
    const gain = load(gainPath, Float64Array);
    const images = table('images');
    const pixels = ROWS * COLS;
    let within1 = 0, within4 = 0, g0Pixels = 0, saturated = 0, masked = 0, worst = 0;

    if (images.numRows !== raws.length)
        fail(`${images.numRows} images, expected ${raws.length}`);
    raws.forEach((path, f) => {
        const raw = load(path, Uint16Array);
        const conv = load(convs[f], Float32Array);
        const value = images.get(f).value.toArray();
        for (let i = 0; i < pixels; i++) {
            const code = raw[i] >> 14;
            const stage = code === 3 ? 2 : code;
            const bad = code === 2 || raw[i] === 0xFFFF || raw[i] === 0x4000 || gain[i] === 0 ||
                pedestal[stage][i] === 0 || pedestal[stage][i] >= 16383;
            if (gain[i] !== 0 && raw[i] === 0xC000) {
                saturated++;
                if (value[i] !== Infinity || conv[i] !== 32678)
                    fail(`frame ${f} pixel ${i}: saturated, ${value[i]}, PSI ${conv[i]}`);
            } else if (bad) {
                masked++;
                if (!Number.isNaN(value[i]))
                    fail(`frame ${f} pixel ${i}: masked, but ${value[i]}`);
            } else if (code === 0) {
                const d = ulps(value[i], conv[i]);
                g0Pixels++;
                within1 += d <= 1;
                within4 += d <= 4;
                worst = Math.max(worst, d);
            }
        }
    });
    const share = 100 * within1 / g0Pixels;
    console.log(`${g0Pixels} G0 pixels against PSI's converter: ${share.toFixed(4)} % within ` +
        `1 ULP, ${(100 * within4 / g0Pixels).toFixed(4)} % within 4, worst ${worst}; ` +
        `${saturated} saturated, ${masked} masked`);
    if (share < 97 || within4 !== g0Pixels)
        fail('expected >= 97 % within 1 ULP and all within 4');
    if (saturated === 0 || masked === 0)
        fail('no special value was seen: the inputs are not those expected');
}

function digest() {
    for (const name of ['frames', 'images']) {
        const hash = createHash('sha256');
        const t = table(name);
        for (const field of t.schema.fields) {
            if (field.name === 'receive_time')
                continue;
            // row by row, so that the boundaries of batches do not matter
            for (const batch of t.batches) {
                const column = batch.getChild(field.name);
                for (let i = 0; i < batch.numRows; i++) {
                    const v = column.get(i);
                    const a = v === null ? null : v.toArray ? v.toArray() : v;
                    hash.update(ArrayBuffer.isView(a) ?
                        Buffer.from(a.buffer, a.byteOffset, a.byteLength) : `${a};`);
                    hash.update('|');
                }
            }
            hash.update(field.name);
        }
        console.log(`${name} ${t.numRows} ${hash.digest('hex')}`);
    }
}

function peaks([csv]) {
    const list = readFileSync(csv, 'utf8').trim().split('\n').slice(1).map((l) => l.split(','));
    const counts = new Map([...table('frames')].map((row) => [int(row.frame), row.peaks]));
    // half a unit of the ninth digit
    const same = (x, text) => Math.abs(x - Number(text)) <=
        0.500001 * 10 ** (Math.floor(Math.log10(Math.abs(x))) - 8);
    // the list has 32678 for a saturated pixel, as PSI's converter, and a column of int16 32767
    const bySaturated = (found, w) => Math.abs(found[2] - Number(w[4]) - (32767 - 32678)) < 0.1 &&
        Math.hypot(found[0] - Number(w[2]), found[1] - Number(w[3])) < 0.01;
    let n = 0, saturated = 0;
    for (const image of table('images')) {
        const frame = int(image.frame), want = list.filter((l) => int(l[0]) === frame - 1);
        const [fs, ss, intensity, snr, background, pixels, panel] = ['fs', 'ss', 'intensity',
            'snr', 'background', 'pixels', 'panel'].map((c) => image[`peak_${c}`].toArray());
        if (counts.get(frame) !== want.length || fs.length !== want.length)
            fail(`frame ${frame}: ${counts.get(frame)} peaks, ${fs.length} in lists, ` +
                `expected ${want.length}`);
        want.forEach((w, i) => {
            const found = [fs[i] + 0.5, ss[i] + 0.5, intensity[i]];
            const exact = found.every((v, k) => same(v, w[k + 2]));
            saturated += !exact;
            if (panel[i] !== int(w[1]) || !(exact || bySaturated(found, w)) || !(snr[i] >= 5) ||
                !(pixels[i] >= 2 && pixels[i] <= 200) || !Number.isFinite(background[i]))
                fail(`frame ${frame}, peak ${i}: ${found}, snr ${snr[i]}, ${pixels[i]} pixels, ` +
                    `background ${background[i]}, expected ${w.slice(1)}`);
            n++;
        });
    }
    if (n !== list.length)
        fail(`${n} peaks, expected ${list.length}`);
    if (saturated > 17)
        fail(`${saturated} peaks differ as if by a saturated pixel, but there are 17 of these`);
    console.log(`${n} peaks are those of CrystFEL, in the same order; ` +
        `${saturated} have a saturated pixel`);
}

function rows([name]) {
    const frames = table(name).getChild('frame');
    let n = 0;
    for (const frame of frames)
        n += typeof frame === 'bigint';
    console.log(n);
}

function truth([csv]) {
    const expected = readTruth(csv);
    const rows = table('frames');
    let hits = 0, wrong = 0;
    if (rows.numRows !== expected.length)
        fail(`${rows.numRows} frames, the truth has ${expected.length}`);
    expected.forEach((want, i) => {
        const row = rows.get(i);
        const hit = row.verdict === 1;
        hits += hit;
        if (!isTrue(row, want))
            fail(`row ${i}: ${tell(row)}, expected ${tell(want)}`);
        wrong += hit !== (want.hit === 1n);
    });
    if (wrong !== 0)
        fail(`${wrong} of ${expected.length} verdicts are wrong`);
    console.log(`${expected.length} frames, ${hits} hits: counts and verdicts are the truth`);
}

// pedestals change with every interval from the third on; dark frames have their flag
function intervals([length, every]) {
    for (const row of table('frames')) {
        const frame = int(row.frame);
        const version = Math.max(1, Math.floor(frame / int(length)));
        if (row.pedestal_version !== version || !!(row.flags & 4) !== (frame % int(every) === 0))
            fail(`frame ${frame}: version ${row.pedestal_version}, expected ${version}; ` +
                `flags ${row.flags}`);
    }
    console.log('pedestal versions follow the intervals');
}

const commands = {
    intervals, pattern: (a) => pattern(int(a[0])), converted, digest, peaks, rows, truth
};
if (!(command in commands))
    fail('no such command');
commands[command](args);
