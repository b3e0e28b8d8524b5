// SPDX-License-Identifier: BSD-3-Clause
// Reads all files of a run's stores with apache-arrow, compares them with the detector's truth, and
// prints as JSON:
//   sums       sums over all rows, for comparison with another reader
//   threshold  threshold of strong pixels
//   rows       pixel rows of an image
//   files      [{path, table, fields, batches}]: formats and offsets in the file, for the Arrow C
//              data interface
//
// usage: node store_readers.mjs MODULES-DIR TRUTH-CSV PATH...

import { readFileSync } from 'node:fs';
import { arrow } from './apache_arrow.mjs';
import { column, field } from './arrow_layout.mjs';
import { isTrue, readTruth, tell } from './truth.mjs';

const INCOMPLETE = 1;
const LOST = 5;
const KEPT = [1, 2, 3];
const [csv, ...paths] = process.argv.slice(3);

function want(condition, text) {
    if (condition)
        return;
    console.error(`FAILED: ${text}`);
    process.exit(1);
}

const tables = { frames: new Map(), images: new Map() };
const settings = new Set();

function read(path) {
    const file = readFileSync(path);
    const reader = arrow.RecordBatchReader.from(file).open();
    const { schema } = reader;
    const table = schema.metadata.get('braggline.table');
    const known = tables[table];
    const batches = [];
    want(reader.isFile() && known, `${path}: not a file of frames or images`);
    settings.add(JSON.stringify({
        threshold: Number(schema.metadata.get('braggline.strong_threshold')),
        rows: Number(schema.metadata.get('braggline.rows')),
    }));
    for (const batch of reader) {
        // for a file without batches, apache-arrow returns one whose lists have no child
        if (reader.numRecordBatches === 0)
            continue;
        for (const row of batch) {
            want(!known.has(row.frame), `${path}: frame ${row.frame} is there twice`);
            known.set(row.frame, row);
        }
        const columns = batch.data.children.map((c) => column(c, file));
        batches.push({ rows: batch.numRows, columns });
    }
    return { path, table, fields: schema.fields.map(field), batches };
}

// weighted by position, so that exchanged values change the sum
function weigh(list) {
    const weight = (v, k) => (Number.isFinite(v) ? (k + 1) * Math.trunc(v) : 0);
    return list.toArray().reduce((n, v, k) => n + weight(v, k), 0);
}

const files = paths.map(read);
const { threshold, rows } = JSON.parse([...settings][0]);
const truth = new Map(readTruth(csv).map((t) => [t.frame, t]));
const sums = {
    frames: 0, images: 0, lost: 0, incomplete: 0, strong: 0, nnz: 0, missing: 0, row_ptr: 0, col: 0,
    value: 0,
};

want(settings.size === 1 && threshold > 0 && rows > 0, `schemas say ${[...settings]}`);
for (const [frame, row] of tables.frames) {
    const image = tables.images.get(frame);
    const incomplete = (row.flags & INCOMPLETE) !== 0;
    sums.frames++;
    sums.lost += row.verdict === LOST;
    sums.incomplete += incomplete;
    sums.strong += row.strong_count;
    sums.nnz += row.nnz;
    sums.missing += [...row.missing].reduce((n, m) => n + m, 0);
    if (row.verdict === LOST) {
        want(!image, `frame ${frame} is lost, but has an image`);
        continue;
    }
    want(truth.has(frame) && (incomplete || isTrue(row, truth.get(frame))),
        `row of frames ${tell(row)}, expected ${tell(truth.get(frame) ?? 'none')}`);
    // the veto is a dry run: complete frames are kept
    want(incomplete || KEPT.includes(row.verdict), `frame ${frame}: verdict ${row.verdict}`);
    want(KEPT.includes(row.verdict) === !!image, `frame ${frame}: verdict ${row.verdict}, ` +
        `${image ? 'an' : 'no'} image`);
    if (!image)
        continue;
    const strong = image.value.toArray().reduce((n, v) => n + (v >= threshold), 0);
    sums.images++;
    for (const list of ['row_ptr', 'col', 'value'])
        sums[list] += weigh(image[list]);
    want(image.kind === row.kind && strong === row.strong_count, `frame ${frame}: image of kind ` +
        `${image.kind} has ${strong} strong pixels, expected ${row.kind} and ${row.strong_count}`);
}
want(sums.images === tables.images.size, 'an image has no row of frames');
console.log(JSON.stringify({ sums, threshold, rows, files }));
