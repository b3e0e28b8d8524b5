// SPDX-License-Identifier: BSD-3-Clause
// The page of an HDF5 file of a finished run: H5Web, whose data come from worker.js.
//
// @h5web/h5wasm opens a single file that is in memory or on the disk of the browser's machine. The
// images of a master are in other files, and the files are on the server: hence this provider.
import { App, DataProvider, DataProviderApi } from '@h5web/app';
import '@h5web/app/styles.css';
import { createElement } from 'react';
import { createRoot } from 'react-dom/client';

const IMAGES = '/entry/data/data';

class RunApi extends DataProviderApi {
  constructor(name) {
    super(name);
    this.worker = new Worker('/h5worker.js', { type: 'module' });
    this.waiting = new Map();
    this.next = 0;
    this.worker.onmessage = ({ data: { id, value, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error === undefined)
        resolve(value);
      else
        reject(new Error(error));
    };
  }

  call(call, ...args) {
    return new Promise((resolve, reject) => {
      this.waiting.set(++this.next, { resolve, reject });
      this.worker.postMessage({ id: this.next, call, args });
    });
  }

  getEntity(path) {
    return this.call('entity', path);
  }

  getValue({ dataset, selection }) {
    return this.call('value', dataset.path, selection);
  }

  getAttrValues({ path, attributes }) {
    return this.call('attributes', path, attributes.map(a => a.name));
  }

  getSearchablePaths(root) {
    return this.call('paths', root);
  }
}

async function open() {
  const query = new URLSearchParams(location.search);
  const directory = query.get('directory'), name = query.get('file');
  const token = sessionStorage.getItem('token');
  const response = await fetch('/api/v1/runs', { cache: 'no-store',
    headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (!response.ok)
    throw new Error(response.status === 401 ? 'The token is missing: enter it on the first page.'
      : `The list of runs: status ${response.status}`);
  const { runs } = await response.json();
  const run = runs.find(r => r.directory === directory && r.files.some(f => f.name === name));
  if (!run)
    throw new Error(`${name} is not a file of a finished run.`);
  document.title = name;
  const api = new RunApi(name);
  const url = f => `/api/v1/runs/${directory}/${encodeURIComponent(f.name)}`;
  await api.call('open', run.files.filter(f => /\.(h5|cxi)$/.test(f.name))
    .map(f => ({ ...f, url: url(f) })), name, token);
  // images by themselves, whose colour scale leaves invalid pixels out (_FillValue)
  const path = await api.getEntity(IMAGES).then(e => e.kind === 'dataset' ? IMAGES : '/', () => '/');
  window.braggline = { api }; // for tests
  createRoot(document.getElementById('file')).render(
    createElement(DataProvider, { api }, createElement(App, { sidebarOpen: innerWidth > 800,
      initialPath: path })));
}

open().catch(error => {
  const alert = document.getElementById('alert');
  alert.textContent = error.message;
  alert.hidden = false;
});
