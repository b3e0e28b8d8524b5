// SPDX-License-Identifier: BSD-3-Clause
// Reads the truth of braggline-detector, and compares rows of `frames` with it.

import { readFileSync } from 'node:fs';

// frames in their order; numbers of columns by name
export function readTruth(csv) {
    const [head, ...lines] = readFileSync(csv, 'utf8').trimEnd().split('\n');
    const names = head.split(',');
    return lines.map((l) => Object.fromEntries(l.split(',').map((v, i) => [names[i], BigInt(v)])));
}

export function isTrue(row, want) {
    return row.frame === want.frame && row.bunch_id === want.bunch_id &&
        BigInt(row.strong_count) === want.strong_pixels &&
        BigInt(row.saturated) === want.saturated_pixels;
}

export function tell(object) {
    return JSON.stringify(object, (_, v) => (typeof v === 'bigint' ? String(v) : v));
}
