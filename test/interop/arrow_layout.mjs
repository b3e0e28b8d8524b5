// SPDX-License-Identifier: BSD-3-Clause
// Formats of fields, and offsets of buffers in a file, for the Arrow C data interface.

import { arrow } from './apache_arrow.mjs';

const { Type } = arrow;

function want(condition, text) {
    if (condition)
        return;
    console.error(`FAILED: ${text}`);
    process.exit(1);
}

function format(type) {
    switch (type.typeId) {
    case Type.Int:
        return { 8: 'cC', 16: 'sS', 32: 'iI', 64: 'lL' }[type.bitWidth][type.isSigned ? 0 : 1];
    case Type.Float:
        return 'efg'[type.precision];
    case Type.Timestamp:
        return `ts${'smun'[type.unit]}:${type.timezone ?? ''}`;
    case Type.Binary:
        return 'z';
    case Type.List:
        return '+l';
    case Type.FixedSizeList:
        return `+w:${type.listSize}`;
    default:
        want(false, `a column of type ${type}`);
    }
}

export function field({ name, type, nullable }) {
    return { name, nullable, format: format(type), children: (type.children ?? []).map(field) };
}

// apache-arrow does not copy: its arrays are views of the file's bytes
function place(array, file) {
    if (!array || array.byteLength === 0)
        return null;
    want(array.buffer === file.buffer, 'a buffer does not lie in the file');
    return array.byteOffset - file.byteOffset;
}

export function column(data, file) {
    const nested = data.children.length > 0;
    const buffers = [data.nullCount > 0 ? data.nullBitmap : null];
    if ([Type.List, Type.Binary].includes(data.typeId))
        buffers.push(data.valueOffsets);
    if (!nested)
        buffers.push(data.values);
    return {
        length: data.length, nulls: data.nullCount, buffers: buffers.map((b) => place(b, file)),
        children: data.children.map((c) => column(c, file)),
    };
}
