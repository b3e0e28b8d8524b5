// SPDX-License-Identifier: BSD-3-Clause
// Reads an Arrow stream from standard input with apache-arrow, and prints each row as a line of
// JSON: integers, decimals and times as text of their digits, other values as braggline-scan --format
// json writes them. The first line has the types.
// usage: node sql_arrow.mjs MODULES-DIR < STREAM

import { readFileSync } from 'node:fs';
import { arrow } from './apache_arrow.mjs';

const { Type } = arrow;

function decimal(words, scale) {
    let n = 0n;
    for (let i = words.length - 1; i >= 0; i--)
        n = (n << 32n) | BigInt(words[i]);
    n = BigInt.asIntN(128, n);
    const digits = (n < 0n ? -n : n).toString().padStart(scale + 1, '0');
    const point = digits.length - scale;
    return `${n < 0n ? '-' : ''}${digits.slice(0, point)}${scale > 0 ? '.' : ''}${digits.slice(point)}`;
}

function float(value, single) {
    if (!Number.isFinite(value))
        return Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity';
    return single ? Math.fround(value) : value;
}

// A value by the layout of its column, not by what get() makes of it, which loses digits of times.
function read(data, i) {
    const { type } = data;
    if (type.typeId === Type.Null)
        return null;
    const at = data.offset + i;
    if (type.typeId !== Type.Union && data.nullCount > 0 && !(data.nullBitmap[at >> 3] >> (at & 7) & 1))
        return null; // unions have no validity
    const offsets = data.valueOffsets;
    const bytes = () => Buffer.from(data.values.subarray(offsets[i], offsets[i + 1]));
    const range = (child, from, to) => Array.from({ length: to - from }, (_, k) => read(child, from + k));
    switch (type.typeId) {
    case Type.Bool:
        return (data.values[i >> 3] >> (i & 7) & 1) === 1;
    case Type.Float:
        return float(data.values[i], type.precision === 1);
    case Type.Utf8:
        return bytes().toString();
    case Type.Binary:
        return bytes().toString('hex');
    case Type.Decimal:
        return decimal(data.values.subarray(4 * i, 4 * i + 4), type.scale);
    case Type.List:
        return range(data.children[0], Number(offsets[i]), Number(offsets[i + 1]));
    case Type.Map:
        return range(data.children[0], Number(offsets[i]), Number(offsets[i + 1]));
    case Type.FixedSizeList:
        return range(data.children[0], i * type.listSize, (i + 1) * type.listSize);
    case Type.Struct:
        return Object.fromEntries(type.children.map((f, k) => [f.name, read(data.children[k], i)]));
    case Type.Dictionary:
        return data.dictionary.get(data.values[i]);
    case Type.Interval: {
        const words = new Int32Array(data.values.buffer, data.values.byteOffset + 16 * i, 4);
        const ns = new BigInt64Array(data.values.slice(4 * i + 2, 4 * i + 4).buffer)[0];
        return `${words[0]} ${words[1]} ${ns}`;
    }
    case Type.Union: {
        const child = type.typeIdToChildIndex[data.typeIds[i]];
        return read(data.children[child], type.mode === 1 ? data.valueOffsets[i] : i);
    }
    default:
        return String(data.values[i]);
    }
}

const reader = arrow.RecordBatchReader.from(readFileSync(0)).open();
const { schema } = reader;
const lines = [JSON.stringify(Object.fromEntries(schema.fields.map((f) => [f.name, String(f.type)])))];

for (const batch of reader) {
    for (let i = 0; i < batch.numRows; i++)
        lines.push(JSON.stringify(Object.fromEntries(
            schema.fields.map((f, k) => [f.name, read(batch.data.children[k], i)]))));
}
console.log(lines.join('\n'));
