// SPDX-License-Identifier: BSD-3-Clause
// Colour scale: 256 colours (inferno of matplotlib, interpolated), linear or logarithmic.

const ANCHORS = [[0, 0, 4], [31, 12, 72], [85, 15, 109], [136, 34, 106], [186, 54, 85],
  [227, 89, 51], [249, 140, 10], [249, 201, 50], [252, 255, 164]];

function rgba(r, g, b) {
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

/** Colours as little-endian RGBA, as ImageData has them. */
export const COLOURS = new Uint32Array(256);
for (let i = 0; i < 256; i++) {
  const at = i / 255 * (ANCHORS.length - 1), k = Math.min(Math.floor(at), ANCHORS.length - 2);
  const mix = [0, 1, 2].map(c =>
    Math.round(ANCHORS[k][c] + (at - k) * (ANCHORS[k + 1][c] - ANCHORS[k][c])));
  COLOURS[i] = rgba(...mix);
}
export const SATURATED = rgba(0xff, 0x00, 0xff);
export const MASKED = rgba(0x2f, 0x4a, 0x6e);
export const MISSING = rgba(0x8c, 0x2f, 0x39);
export const GAP = rgba(0x2b, 0x2f, 0x36);

/** @return function from a finite value to the index of its colour */
export function scaleOf(kind, low, high) {
  if (kind === 'log') {
    const from = Math.max(low, 1e-6), k = 255 / Math.log(Math.max(high, from * 1.0001) / from);
    return v => v <= from ? 0 : Math.min(255, Math.log(v / from) * k | 0);
  }
  const k = 255 / Math.max(high - low, 1e-9);
  return v => v <= low ? 0 : Math.min(255, (v - low) * k | 0);
}

/**
 * Limits by percentile of the values above 0, which a sample of the pixels gives.
 * @return [low, high]
 */
export function limitsOf(data, kind, percentile) {
  const step = Math.max(1, Math.floor(data.length / 16381)) | 1;
  const above = [], below = [];
  for (let i = 0; i < data.length; i += step) {
    const v = data[i];
    if (v > 0 && v < Infinity)
      above.push(v);
    else if (v < 0)
      below.push(v);
  }
  /* a sparse frame: nearly all pixels are 0 */
  if (step > 1 && above.length < 64)
    for (let i = 0; i < data.length && above.length < 65536; i++)
      if (data[i] > 0 && data[i] < Infinity)
        above.push(data[i]);
  const of = (values, p) => {
    if (values.length === 0)
      return 0;
    const sorted = Float32Array.from(values).sort();
    return sorted[Math.min(sorted.length - 1, Math.floor(p / 100 * sorted.length))];
  };
  const high = of(above, percentile) || 1;
  if (kind === 'log')
    return [Math.max(of(above, 100 - percentile), high / 1e4), high];
  return [of(below, 100 - percentile), high];
}
