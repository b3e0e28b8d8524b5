// SPDX-License-Identifier: BSD-3-Clause
// Formats of the server: .npy, safetensors, server-sent events, and texts of telemetry.

const NPY_TYPES = { '<f4': Float32Array, '<i2': Int16Array, '<u4': Uint32Array, '|u1': Uint8Array };
const TENSOR_TYPES = { F32: Float32Array, I16: Int16Array, U32: Uint32Array, U16: Uint16Array,
  U8: Uint8Array };

/** @return {rows, cols, data} of a two-dimensional array */
export function readNpy(buffer) {
  const length = new DataView(buffer).getUint16(8, true);
  const head = new TextDecoder('latin1').decode(new Uint8Array(buffer, 10, length));
  const type = NPY_TYPES[/'descr': '([^']+)'/.exec(head)[1]];
  const [, rows, cols] = /'shape': \((\d+), (\d+)\)/.exec(head).map(Number);
  return { rows, cols, data: new type(buffer, 10 + length, rows * cols) };
}

/** @return {facts, tensors} */
export function readTensors(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const facts = head.__metadata__;
  const tensors = {};
  delete head.__metadata__;
  for (const [name, t] of Object.entries(head)) {
    const type = TENSOR_TYPES[t.dtype];
    tensors[name] = new type(buffer, 8 + length + t.data_offsets[0],
      (t.data_offsets[1] - t.data_offsets[0]) / type.BYTES_PER_ELEMENT);
  }
  return { facts, tensors };
}

/** int16 photons have two special values. */
function fromInt16(from, to) {
  for (let i = 0; i < from.length; i++) {
    const v = from[i];
    to[i] = v === -32768 ? NaN : v === 32767 ? Infinity : v;
  }
}

/** @return an array of the raster as float32; that of the argument if it is one */
export function toFloat32(data) {
  if (data instanceof Float32Array)
    return data;
  const to = new Float32Array(data.length);
  fromInt16(data, to);
  return to;
}

/**
 * Make the raster of a frame. Pixels of sparse frames that were not kept are 0.
 * @param base  Float32Array with NaN at masked pixels and 0 elsewhere
 * @param into  Float32Array that may be used again
 */
export function expandFrame({ facts, tensors }, base, into) {
  const rows = Number(facts.rows), cols = Number(facts.cols), height = Number(facts.packet_rows);
  if (facts.kind !== 'csr')
    return toFloat32(tensors.value);
  const data = into && into.length === rows * cols ? into : new Float32Array(rows * cols);
  const { row_ptr, col } = tensors;
  const value = toFloat32(tensors.value);
  data.set(base);
  for (let y = 0, i = 0; y < rows; y++)
    for (const end = Math.min(row_ptr[y + 1], col.length); i < end; i++)
      if (col[i] < cols)
        data[y * cols + col[i]] = value[i];
  for (let p = 0; p * height < rows; p++)
    if (tensors.missing[p >> 3] >> (p & 7) & 1)
      data.fill(NaN, p * height * cols, (p + 1) * height * cols);
  return data;
}

/** A text that telemetry has split, with its escapes. */
export function text(reply, key) {
  let whole = reply[key] ?? '';
  for (let n = 2; `${key}_${n}` in reply; n++)
    whole += reply[`${key}_${n}`];
  return String(whole).replace(/\\u([0-9a-fA-F]{4})/g, (_, hex) =>
    String.fromCharCode(parseInt(hex, 16)));
}

/**
 * Read server-sent events until the stream ends. fetch() is used because EventSource cannot send
 * the header Authorization.
 * @param event  called with the type and the parsed data
 */
export async function readEvents(response, event) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done)
      return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      const match = /^event: (\w+)\ndata: (.*)$/.exec(block);
      if (match)
        event(match[1], JSON.parse(match[2]));
    }
  }
}
