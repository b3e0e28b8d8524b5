// SPDX-License-Identifier: BSD-3-Clause
// Prints formats of fields and offsets of buffers of files as JSON, for duckdb_arrow.py:
// [{path, fields, batches: [{rows, columns}]}]
// usage: node sql_layout.mjs MODULES-DIR PATH...

import { readFileSync } from 'node:fs';
import { arrow } from './apache_arrow.mjs';
import { column, field } from './arrow_layout.mjs';

console.log(JSON.stringify(process.argv.slice(3).map((path) => {
    const file = readFileSync(path);
    const reader = arrow.RecordBatchReader.from(file).open();
    const { schema } = reader; // the reader forgets it at its end
    const batches = [...reader].filter((batch) => batch.numRows > 0).map((batch) => (
        { rows: batch.numRows, columns: batch.data.children.map((c) => column(c, file)) }));
    return { path, fields: schema.fields.map(field), batches };
})));
