// SPDX-License-Identifier: BSD-3-Clause
// A worker that reads the HDF5 files of a run with h5wasm. The files stay on the server: ranges are
// requested when HDF5 reads them, so that a file of many gigabytes opens at once. A master finds its
// data files, because all files of the run are in one folder.
//
// Protocol: {id, call, args} -> {id, value} or {id, error}.
import { Attribute, Dataset, ready } from 'h5wasm';

const BLOCK = 1 << 18; // bytes of a request
const BLOCKS = 256; // of all files, in memory
const FOLDER = '/run', PLUGINS = '/plugins';
const FILTERS = { 32008: '/h5bshuf.wasm' }; // bitshuffle, of braggline's files
const loaded = new Set();
const cache = new Map(); // blocks, the least recently used first
let h5, file;

/** HDF5 reads synchronously: so are the requests, which only a worker may do. */
function request(url, token, range) {
  const r = new XMLHttpRequest();
  r.open('GET', url, false);
  r.responseType = 'arraybuffer';
  if (token)
    r.setRequestHeader('Authorization', `Bearer ${token}`);
  if (range)
    r.setRequestHeader('Range', `bytes=${range[0]}-${range[1] - 1}`);
  for (let tries = 0; ; tries++) {
    r.send();
    if (r.status !== 503 || tries === 50)
      break;
    // a limit is reached: later; a worker without shared memory cannot sleep
    for (const until = performance.now() + 100; performance.now() < until;)
      continue;
    r.open('GET', url, false);
  }
  if (r.status !== (range ? 206 : 200))
    throw new Error(`${url}: status ${r.status}`);
  return new Uint8Array(r.response);
}

/** A file of the server that WORKERFS takes for a File. */
class RemoteFile {
  constructor({ name, bytes, url }, token) {
    Object.assign(this, { name, size: bytes, url, token, lastModifiedDate: new Date(0) });
  }

  block(number) {
    const key = `${this.name} ${number}`;
    const known = cache.get(key);
    const data = known ?? request(this.url, this.token,
      [number * BLOCK, Math.min((number + 1) * BLOCK, this.size)]);
    cache.delete(key);
    cache.set(key, data);
    if (cache.size > BLOCKS)
      cache.delete(cache.keys().next().value);
    return data;
  }

  slice(begin, end) {
    end = Math.min(end, this.size);
    const all = new Uint8Array(Math.max(0, end - begin));
    for (let at = begin; at < end;) {
      const number = Math.floor(at / BLOCK), from = at - number * BLOCK;
      const part = this.block(number).subarray(from, from + end - at);
      if (part.length === 0)
        throw new Error(`${this.name}: shorter than before`);
      all.set(part, at - begin);
      at += part.length;
    }
    return { size: all.length, buffer: all.buffer };
  }
}

async function open(files, name, token) {
  h5 = await ready;
  h5.activate_throwing_error_handler();
  h5.remove_plugin_search_path(0);
  h5.insert_plugin_search_path(PLUGINS, 0);
  const { FS } = h5, { WORKERFS } = FS.filesystems;
  FS.mkdirTree(PLUGINS);
  FS.mkdirTree(FOLDER);
  WORKERFS.reader = { readAsArrayBuffer: part => part.buffer };
  FS.mount(WORKERFS, { files: files.map(f => new RemoteFile(f, token)) }, FOLDER);
  for (const f of files)
    if (f.name.startsWith(`${name.replace(/_master\.h5$/, '')}_data_`))
      loadFilters(`${FOLDER}/${f.name}`);
  file = h5.open(`${FOLDER}/${name}`, h5.H5F_ACC_RDONLY, false);
}

function loadFilter(id) {
  if (loaded.has(id) || !FILTERS[id])
    return;
  loaded.add(id);
  h5.FS.writeFile(`${PLUGINS}/libH5Z${id}.so`, request(FILTERS[id]));
}

/** All data files of a run have the same filters. */
function loadFilters(path) {
  if (loaded.size === Object.keys(FILTERS).length)
    return;
  const id = h5.open(path, h5.H5F_ACC_RDONLY, false);
  try {
    h5.get_dataset_filters(id, '/entry/data/data').forEach(f => loadFilter(f.id));
  } finally {
    h5.close_file(id);
  }
}

/* ---- what H5Web calls an entity (@h5web/app, index.d.ts) ---- */

/** Classes of H5Tpublic.h. */
const [INTEGER, FLOAT, , STRING, BITFIELD, OPAQUE, COMPOUND, REFERENCE, ENUM, VLEN, ARRAY] =
  Array(11).keys();
const endianness = m => m.littleEndian ? 'little-endian' : 'big-endian';

function typeOf(m) {
  switch (m.type) {
  case INTEGER:
    return { class: 'Integer', signed: m.signed, size: m.size * 8, endianness: endianness(m) };
  case FLOAT:
    return { class: 'Float', size: m.size * 8, endianness: endianness(m) };
  case STRING:
    return { class: 'String', charSet: m.cset === 1 ? 'UTF-8' : 'ASCII',
      strPad: ['null-terminated', 'null-padded', 'space-padded'][m.strpad],
      ...m.vlen ? {} : { length: m.size } };
  case BITFIELD:
    return { class: 'Bitfield' };
  case OPAQUE:
    return { class: 'Opaque' };
  case COMPOUND:
    return { class: 'Compound',
      fields: Object.fromEntries(m.compound_type.members.map(c => [c.name, typeOf(c)])) };
  case REFERENCE:
    return { class: 'Reference' };
  case ENUM: {
    const base = typeOf({ ...m, type: m.enum_type.type });
    const members = Object.entries(m.enum_type.members);
    if (members.length === 2 && m.enum_type.members.FALSE === 0 && m.enum_type.members.TRUE === 1)
      return { class: 'Boolean', base };
    return { class: 'Enumeration', base,
      mapping: Object.fromEntries(members.map(([name, value]) => [value, name])) };
  }
  case VLEN:
    return { class: 'Array (variable length)', base: typeOf(m.vlen_type) };
  case ARRAY:
    return { class: 'Array', base: typeOf(m.array_type), dims: m.array_type.shape };
  default:
    return { class: 'Unknown' };
  }
}

function entityOf(path, isChild) {
  const base = { name: path.split('/').at(-1), path, attributes: [] };
  const kind = h5.get_type(file, path);
  const attributes = () => h5.get_attribute_names(file, path).map(name => {
    const m = h5.get_attribute_metadata(file, path, name);
    return { name, shape: m.shape, type: typeOf(m) };
  });
  if (kind === h5.H5G_GROUP) {
    const group = { ...base, kind: 'group', attributes: attributes() };
    return isChild ? group : { ...group, children: h5.get_names(file, path, false).map(name =>
      entityOf(`${path === '/' ? '' : path}/${name}`, true)) };
  }
  if (kind === h5.H5G_DATASET) {
    const { chunks, maxshape, shape, virtual_sources: sources, ...rawType } =
      h5.get_dataset_metadata(file, path);
    return { ...base, kind: 'dataset', shape, type: typeOf(rawType), rawType,
      chunks: chunks ?? undefined, filters: h5.get_dataset_filters(file, path),
      virtualSources: sources?.map(s => ({ file: s.file_name, path: s.dset_name })),
      attributes: attributes() };
  }
  if (kind === h5.H5G_TYPE)
    return { ...base, kind: 'datatype', attributes: attributes(),
      type: typeOf(h5.get_datatype_metadata(file, path)) };
  if (kind === h5.H5G_LINK)
    base.link = { class: 'Soft', path: h5.get_symbolic_link(file, path) };
  else if (kind === h5.H5G_UDLINK) {
    const external = h5.get_external_link(file, path);
    base.link = { class: 'External', file: external.filename, path: external.obj_path };
  }
  return { ...base, kind: 'unresolved' };
}

function valueOf(path, selection) {
  h5.get_dataset_filters(file, path).forEach(f => loadFilter(f.id));
  const dataset = new Dataset(file, path);
  if (!selection)
    return dataset.value;
  return dataset.slice(selection.split(',').map((member, i) =>
    member === ':' ? [0, dataset.shape[i]] : [Number(member), Number(member) + 1]));
}

const calls = {
  open,
  entity: path => entityOf(path, false),
  value: valueOf,
  attributes: (path, names) => Object.fromEntries(names.map(name =>
    [name, new Attribute(file, path, name).json_value])),
  paths: root => h5.get_names(file, root, true).map(path => `${root}${path}`),
};

self.onmessage = async ({ data: { id, call, args } }) => {
  try {
    self.postMessage({ id, value: await calls[call](...args) });
  } catch (error) {
    self.postMessage({ id, error: String(error.message ?? error) });
  }
};
