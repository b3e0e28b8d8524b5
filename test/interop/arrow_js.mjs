// SPDX-License-Identifier: BSD-3-Clause
// Reads both tables with apache-arrow, and compares every value with the text of arrow_write.
// usage: node arrow_js.mjs MODULES-DIR DIR NAME   (MODULES-DIR holds node_modules)

import { readFileSync } from 'node:fs';
import { arrow } from './apache_arrow.mjs';

const [dir, name] = process.argv.slice(3);

function hex(typed) {
    return Buffer.from(typed.buffer, typed.byteOffset, typed.byteLength).toString('hex');
}

function fail(text) {
    console.error(text);
    process.exit(1);
}

// Read a table through its footer, and as a stream without it: the results must be equal.
function read(table) {
    const path = `${dir}/${name}_${table}.arrow`;
    const bytes = readFileSync(path);
    const reader = arrow.RecordBatchReader.from(bytes).open();
    if (!reader.isFile())
        fail(`${path}: not taken for a file`);
    const { schema } = reader;
    const batches = [...reader].filter((b) => b.numRows > 0);
    // apache-arrow 21 reads past the end of a stream that has no batch, so the input is truncated
    // there
    const end = batches.length === 0 ? bytes.length - 4096 + 8 : bytes.length;
    const stream = arrow.tableFromIPC(bytes.subarray(8, end));
    const rows = batches.reduce((n, b) => n + b.numRows, 0);
    if (stream.numRows !== rows || stream.batches.filter((b) => b.numRows > 0).length !== batches.length)
        fail(`${path}: ${rows} rows in ${batches.length} batches by the footer, ` +
            `${stream.numRows} in ${stream.batches.length} as a stream`);
    const meta = schema.metadata;
    if (meta.get('braggline.table') !== table || meta.get('braggline.run_name') !== 'sample' ||
        meta.get('braggline.sample') !== '; of two\nlines = 1\n')
        fail(`${path}: schema metadata ${JSON.stringify([...meta])}`);
    return { schema, batches, meta };
}

function types(schema) {
    return schema.fields.map((f) => `${f.name}:${f.type}${f.nullable ? '?' : ''}`).join(' ');
}

function frameLines(batch) {
    const column = (n) => batch.getChild(n);
    const sums = column('sum');
    // from the column's memory: get() returns Numbers, which cannot represent ns exactly
    const times = column('receive_time').data[0].values;
    const lines = [];
    for (let i = 0; i < batch.numRows; i++) {
        const plain = (n) => column(n).get(i);
        lines.push(['frames', plain('frame'), plain('bunch_id'), plain('detector_time'), times[i],
            plain('exposure'), plain('detector_status'), plain('flags'),
            [...plain('missing')].join(','), plain('strong_count'),
            hex(Float64Array.of(sums.get(i))), plain('saturated'), plain('invalid'), plain('nnz'),
            plain('verdict'), plain('kind'), plain('veto_version'), plain('pedestal_version'),
        ].join(' '));
    }
    return lines;
}

function imageLines(batch) {
    const lines = [];
    for (let i = 0; i < batch.numRows; i++) {
        const plain = (n) => batch.getChild(n).get(i);
        const list = (n) => [...plain(n).toArray()].map((v) => ` ${v}`).join('');
        const raw = plain('raw');
        lines.push(`images ${plain('frame')} ${plain('kind')} row_ptr${list('row_ptr')}` +
            ` col${list('col')} value ${hex(plain('value').toArray())}` +
            ` raw ${raw === null ? 'null' : hex(raw)} missing ${hex(plain('missing'))}`);
    }
    return lines;
}

const frames = read('frames');
const images = read('images');
const value = frames.meta.get('braggline.value') === 'int16' ? 'Int16' : 'Float32';
const expected = {
    frames: 'frame:Uint64 bunch_id:Uint64 detector_time:Uint64 receive_time:Timestamp<NANOSECOND> ' +
        'exposure:Uint32 detector_status:Uint32 flags:Uint32 ' +
        `missing:FixedSizeList[${frames.meta.get('braggline.modules')}]<Uint16> ` +
        'strong_count:Uint32 sum:Float64 saturated:Uint32 invalid:Uint32 nnz:Uint32 verdict:Uint8 ' +
        'kind:Uint8 veto_version:Uint32 pedestal_version:Uint32',
    images: `frame:Uint64 kind:Uint8 row_ptr:List<Uint32> col:List<Uint16> value:List<${value}> ` +
        'raw:Binary? missing:Binary',
};
for (const [table, { schema }] of Object.entries({ frames, images })) {
    if (types(schema) !== expected[table])
        fail(`${table}: columns ${types(schema)}\nwanted ${expected[table]}`);
}

const text = readFileSync(`${dir}/${name}.txt`, 'utf8').trimEnd().split('\n');
for (const [table, found] of [['frames', frames.batches.flatMap(frameLines)],
    ['images', images.batches.flatMap(imageLines)]]) {
    const want = text.filter((l) => l.startsWith(table));
    if (want.length !== found.length)
        fail(`${table}: ${found.length} rows, ${want.length} expected`);
    for (let i = 0; i < want.length; i++) {
        if (want[i] !== found[i])
            fail(`${table} row ${i}:\n${found[i].slice(0, 2000)}\nwanted\n${want[i].slice(0, 2000)}`);
    }
    console.log(`${name}: ${found.length} rows of ${table}: the same in apache-arrow`);
}
