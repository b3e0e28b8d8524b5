// SPDX-License-Identifier: BSD-3-Clause
// The page: receives events of the server, shows the picture, the run, plots and stores.
import { COLOURS } from './colours.js';
import { expandFrame, readEvents, readNpy, readTensors, text } from './formats.js';
import { Picture } from './picture.js';
import { Plots, Rates, percentile } from './plots.js';
import { RunList } from './run_list.js';

const API = '/api/v1';
const PLANE_MS = 500; // between two versions of maximum and mean
const RETRY_MS = 1000;
const PIXEL_MS = 100; // between two requests of single pixels
const ENTRIES = 256; // of a list or table, whatever a source says
const RUNS_MS = 5000; // between two requests of the list of runs

const element = id => document.getElementById(id);
const sources = new Map(); // newest state by name
const misread = new Set(); // commands of the selected source whose replies have another form
const plots = new Plots(element('plots'));
const rates = new Rates();
const runs = new RunList(element('runs-section'), ask);
const picture = new Picture(element('picture'), showPixel, () => update());
let selected = null;
let token = sessionStorage.getItem('token');
let shown = null; // {source, run}: what the layout of the picture is of
let newest = null; // newest frame of the selected source
let fetching = false;
let asking = false;
let planeAt = 0;
let spare = null;
let base = null;
let control = false;
let stream = null; // AbortController of the events
const drawn = []; // times of the last pictures

// for tests
window.braggline = { picture, colours: COLOURS, plots, drawn };

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token)
    headers.Authorization = `Bearer ${token}`;
  return fetch(API + path, { ...options, headers, cache: 'no-store' });
}

function path(name) {
  return `/sources/${encodeURIComponent(name)}`;
}

/* ---- picture ---- */

function number(v) {
  return Math.abs(v) >= 1e6 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(3)
    : String(Number(v.toFixed(3)));
}

function showPixel(pixel) {
  if (!pixel) {
    element('cursor').textContent = picture.data || picture.cells ? 'point at a pixel'
      : 'no frame yet';
    return;
  }
  if (pixel.what === 'unknown') {
    getPixel(pixel);
    return;
  }
  const value = pixel.what === 'value' ? `${number(pixel.value)} photons` : pixel.what;
  const raster = pixel.row === null ? '' : `row ${pixel.row}, column ${pixel.column}; `;
  const resolution = pixel.resolution === null ? ''
    : `; d = ${pixel.resolution === Infinity ? '∞' : pixel.resolution.toFixed(2)} Å`;
  element('cursor').textContent = `${value}; ${raster}x ${pixel.x}, y ${pixel.y}${resolution}`;
}

/** Get the value of a single pixel of what is shown; at most one request at a time. */
async function getPixel({ x, y }) {
  if (asking || !selected)
    return;
  asking = true;
  try {
    const array = await arrayOf(`${path(selected)}/image?plane=${element('plane').value}` +
      `&window=${x},${y},1,1,1`);
    if (array) {
      const bits = new Uint32Array(array.data.buffer, array.data.byteOffset, 1);
      picture.exact = { x, y, ...picture.describe(array.data[0], bits[0]) };
    }
    await new Promise(resolve => setTimeout(resolve, PIXEL_MS));
  } finally {
    asking = false;
  }
  if (picture.exact)
    picture.tell();
}

async function arrayOf(url) {
  const response = await ask(url);
  return response.ok ? readNpy(await response.arrayBuffer()) : null;
}

/** Get geometry and mask of a run that has begun. */
async function layOut(frame) {
  const key = `${frame.source} ${sources.get(frame.source)?.pid} ${frame.run} ${frame.generation}`;
  if (shown?.key === key)
    return true;
  let geometry = null, places = null;
  if (frame.geometry) {
    const response = await ask(`${path(frame.source)}/geometry`);
    geometry = response.ok ? await response.json() : null;
    places = geometry ? (await arrayOf(`${path(frame.source)}/places`))?.data : null;
  }
  const mask = await arrayOf(`${path(frame.source)}/image?plane=mask`);
  if (!mask || frame.source !== selected)
    return false;
  const same = shown && picture.rows === mask.rows && picture.cols === mask.cols &&
    JSON.stringify(geometry) === JSON.stringify(picture.geometry);
  if (!same)
    picture.setLayout(mask.rows, mask.cols, places ? geometry : null, places);
  base = Float32Array.from(mask.data, m => m ? NaN : 0);
  shown = { key, mask: mask.data };
  planeAt = 0;
  return true;
}

function showFacts(facts) {
  const peaks = facts.peaks_found === undefined ? '' : `, ${facts.peaks_found} peaks`;
  element('facts').textContent = `frame ${facts.frame}: ${facts.strong_count} strong pixels${peaks}, ` +
    `sum ${number(Number(facts.sum))} photons, ${facts.saturated} saturated`;
}

function queryOf({ x, y, width, height, bin }) {
  return `window=${x},${y},${width},${height},${bin}`;
}

/** @param w  window of the picture, for full images, which are large; null: the whole raster */
async function getFrame(name, w) {
  const response = await ask(`${path(name)}/frame${w ? `?${queryOf(w)}` : ''}`);
  if (!response.ok || name !== selected)
    return false;
  const frame = readTensors(await response.arrayBuffer());
  const peaks = [];
  /* another run has begun since the mask was read */
  if (Number(frame.facts.rows) !== picture.rows || Number(frame.facts.cols) !== picture.cols)
    return false;
  for (let i = 0; i < frame.tensors.peaks.length; i += 4)
    peaks.push([frame.tensors.peaks[i], frame.tensors.peaks[i + 1]]);
  if (w) {
    const cols = Math.ceil(w.width / w.bin), data = frame.tensors.cells;
    picture.setCells({ ...w, cols, rows: data.length / cols, data }, peaks);
  } else {
    spare = expandFrame(frame, base, spare);
    picture.setData(spare, shown.mask, peaks);
  }
  picture.frame = frame.facts.frame;
  showFacts(frame.facts);
  return true;
}

async function getPlane(name, plane, w) {
  const array = await arrayOf(`${path(name)}/image?plane=${plane}&${queryOf(w)}`);
  if (!array || name !== selected)
    return false;
  picture.setCells({ ...w, ...array }, []);
  picture.frame = null;
  element('facts').textContent = `${newest.frames} kept frames`;
  return true;
}

function showBar() {
  element('bar-low').textContent = number(picture.used[0]);
  element('bar-high').textContent = number(picture.used[1]);
}

/** Get what the page shows, while something newer exists. One request at a time. */
async function update() {
  if (fetching || document.hidden)
    return;
  fetching = true;
  try {
    while (newest && newest.source === selected) {
      const frame = newest, plane = element('plane').value;
      if (!await layOut(frame))
        break;
      const w = plane !== 'frame' || frame.kind === 'image' ? picture.window() : null;
      const part = `${plane} ${w ? queryOf(w) : 'all'}`;
      const version = `${frame.generation} ${plane === 'frame' ? frame.sequence : frame.frames}`;
      if (part === picture.part && (version === picture.version ||
          (plane !== 'frame' && performance.now() < planeAt)))
        break;
      const done = plane === 'frame' ? await getFrame(frame.source, w)
        : w && await getPlane(frame.source, plane, w);
      if (!done)
        break;
      picture.version = version;
      picture.part = part;
      planeAt = performance.now() + PLANE_MS;
      drawn.push(performance.now());
      while (drawn.length > 200)
        drawn.shift();
      showBar();
      /* events arrive between two pictures */
      await new Promise(resolve => setTimeout(resolve));
    }
  } catch (error) {
    if (!(error instanceof TypeError))
      throw error; /* TypeError: the server is gone, which the stream of events shows */
  } finally {
    fetching = false;
  }
}

function changeScale() {
  const manual = element('limits').value === 'manual';
  const low = element('low'), high = element('high');
  if (manual && low.disabled) {
    low.value = number(picture.used[0]);
    high.value = number(picture.used[1]);
  }
  low.disabled = high.disabled = !manual;
  element('percentile').disabled = manual;
  picture.kind = element('scale').value;
  picture.limits = manual && low.value !== '' && high.value !== ''
    ? [Number(low.value), Number(high.value)] : null;
  picture.percentile = Math.min(100, Math.max(50, Number(element('percentile').value) || 99));
  picture.showRings = element('rings').checked;
  picture.showPeaks = element('peaks').checked;
  picture.draw();
  if (picture.data || picture.cells)
    showBar();
}

/* ---- run, plots, stores ---- */

function list(id, entries) {
  element(id).replaceChildren(...entries.slice(0, ENTRIES).flatMap(([name, value]) => {
    const term = document.createElement('dt'), description = document.createElement('dd');
    term.textContent = name;
    description.textContent = value;
    return [term, description];
  }));
}

const settings = {};
const handlers = {
  '/braggline/run/status': (time, reply) => {
    element('run-name').textContent = text(reply, 'name');
    list('run', [['state', reply.state], ['name', text(reply, 'name')],
      ['directory', text(reply, 'directory')], ['frames', `${reply.first_frame} to ${reply.last_frame}`],
      ['stored', reply.stored], ['seconds', Number(reply.seconds).toFixed(1)],
      ['failed', reply.failed ? 'yes' : 'no'],
      ...['warning', 'message'].filter(key => reply[key]).map(key => [key, text(reply, key)])]);
  },
  '/braggline/ledger': (time, reply) => {
    const frames = rates.since('frames', time, reply.frames);
    if (frames) {
      const c = frames.change;
      const all = (c.hits ?? 0) + (c.vetoed ?? 0) + (c.prescaled ?? 0) + (c.dry_run ?? 0);
      plots.push('Hit rate', '%', time, { hits: all > 0 ? 100 * c.hits / all : null });
      pushRates('Frames', 'per second', time, frames, ['balanced', 'in_flight', 'missing_packets']);
    }
    const packets = rates.since('packets', time, reply.packets);
    if (packets)
      pushRates('Packets', 'per second', time, packets, ['bytes', 'bursts']);
  },
  '/braggline/modules': (time, reply) => {
    const missing = {};
    for (const [module, m] of Object.entries(reply)) {
      const lost = rates.since(`module ${module}`, time, { missing: m.missing_packets });
      if (lost)
        missing[`module ${module}`] = lost.change.missing / lost.seconds;
    }
    plots.push('Missing packets', 'per second', time, missing);
  },
  '/braggline/lcores': (time, reply) => {
    const load = {};
    for (const [lcore, l] of Object.entries(reply)) {
      const cycles = rates.since(`lcore ${lcore}`, time,
        { busy: l.busy_cycles, idle: l.idle_cycles });
      if (cycles && cycles.change.busy + cycles.change.idle > 0)
        load[`${lcore}: ${text(l, 'roles')}`.slice(0, 40)] = 100 * cycles.change.busy /
          (cycles.change.busy + cycles.change.idle);
    }
    plots.push('Load of lcores', '%', time, load);
  },
  '/braggline/latency': (time, reply) => {
    const p99 = {};
    for (const [name, counts] of Object.entries(reply)) {
      if (name.endsWith('_us'))
        continue;
      const change = rates.since(`latency ${name}`, time, { ...counts });
      const value = change && percentile(Object.values(change.change), reply.below_us, 0.99);
      if (value)
        p99[name.replaceAll('_', ' ')] = value / 1000;
    }
    if (Object.keys(p99).length > 0)
      plots.push('Latency, 99 %', 'ms', time, p99, true);
  },
  '/braggline/egress': (time, reply) => {
    if (!reply.active)
      return;
    const bytes = {};
    for (const [number_, s] of Object.entries(reply.stores ?? {}))
      bytes[`store ${number_}`] = s.bytes_per_s / 1e6;
    plots.push('To stores', 'MB/s', time, bytes);
    if (reply.journal)
      plots.push('Journal', 'batches', time, { waiting: reply.journal.batches,
        'in doubt': reply.journal.in_doubt });
    const durable = reply.kept_to_durable &&
      rates.since('durable', time, { ...reply.kept_to_durable });
    const value = durable && percentile(Object.values(durable.change), reply.below_us, 0.99);
    if (value)
      plots.push('Kept to durable, 99 %', 'ms', time, { 'all stores': value / 1000 }, true);
    showStores(reply.stores ?? {});
  },
  '/braggline/store': (time, reply) => {
    plots.push('Store', 'MB/s', time, { bodies: reply.body_bytes_per_s / 1e6 });
    const batches = rates.since('store', time, { durable: reply.batches_durable,
      duplicate: reply.batches_duplicate, 'wrong CRC': reply.body_crc_errors });
    if (batches)
      pushRates('Batches', 'per second', time, batches, []);
    list('run', [['identity', text(reply, 'identity')], ['alarm', reply.alarm],
      ['runs opened', reply.runs_opened], ['batches durable', reply.batches_durable]]);
  },
  '/braggline/store/streams': (time, reply) => showStores(
    Object.fromEntries(Object.entries(reply).filter(([, v]) => typeof v === 'object' &&
      !Array.isArray(v)))),
  '/braggline/veto': (time, reply) => showSettings('veto', reply),
  '/braggline/info': (time, reply) => showSettings('process', reply),
};

function pushRates(title, unit, time, { seconds, change }, without) {
  const values = {};
  const plot = plots.plots.get(title);
  for (const [name, n] of Object.entries(change))
    if (!without.includes(name) && (n > 0 || plot?.names.includes(name)))
      values[name] = n / seconds;
  plots.push(title, unit, time, values);
}

function showSettings(part, reply) {
  settings[part] = Object.entries(reply).filter(([, value]) => typeof value !== 'object')
    .map(([key, value]) => [key, String(value)]);
  list('settings', [...settings.process ?? [], ...settings.veto ?? []]);
}

function showStores(stores) {
  const rows = Object.entries(stores).slice(0, ENTRIES);
  const keys = [...new Set(rows.flatMap(([, s]) => Object.keys(s)))].filter(key =>
    rows.some(([, s]) => typeof s[key] !== 'object')).slice(0, ENTRIES);
  const line = (tag, cells) => {
    const row = document.createElement('tr');
    row.append(...cells.map(value => {
      const cell = document.createElement(tag);
      cell.textContent = value;
      return cell;
    }));
    return row;
  };
  element('stores').replaceChildren(...rows.length === 0 ? []
    : [line('th', ['', ...keys.map(key => key.replaceAll('_', ' '))]),
      ...rows.map(([name, s]) => line('td', [name, ...keys.map(key => s[key] ?? '')]))]);
}

/* ---- sources ---- */

function select(name) {
  selected = name;
  newest = null;
  shown = null;
  picture.version = undefined;
  picture.setLayout(0, 0, null, null);
  plots.clear();
  rates.before.clear();
  misread.clear();
  showPixel(null);
  for (const id of ['run', 'settings', 'stores'])
    element(id).replaceChildren();
  element('facts').textContent = element('run-name').textContent = '';
  showState();
}

function showState() {
  const s = sources.get(selected);
  const badge = element('state'), warning = element('alert');
  badge.textContent = s ? s.state : 'connecting';
  badge.className = `badge ${s?.state ?? ''}`;
  const down = s?.state === 'down', strange = s?.state === 'up' && misread.size > 0;
  warning.hidden = !down && !strange;
  warning.textContent = down
    ? `${s.kind} ${s.source} is down since ${new Date(s.since * 1000).toLocaleTimeString()}: ${s.error}`
    : strange ? `${s.kind} ${s.source}: unexpected replies to ${[...misread].join(', ')}: ` +
      `expected a ${s.kind} of this version of braggline; check the options of braggline-view` : '';
  element('picture-section').classList.toggle('stale', down);
  element('picture-section').hidden = s?.kind === 'store';
  element('control').hidden = !control || s?.kind !== 'receiver';
}

/** Another program, or another version, must not hide what other sources say. */
function showReply({ command, time, reply }) {
  const before = misread.size;
  try {
    handlers[command]?.(time, reply[command]);
    misread.delete(command);
  } catch (error) {
    misread.add(command);
  }
  if (misread.size !== before)
    showState();
}

function onEvent(type, data) {
  if (type === 'source') {
    const known = sources.has(data.source);
    sources.set(data.source, data);
    if (!known) {
      element('source').append(new Option(data.source, data.source));
      if (selected === null)
        select(data.source);
    }
    if (data.source === selected && data.state === 'down') {
      newest = null;
      misread.clear();
    }
    showState();
  } else if (data.source !== selected) {
    return;
  } else if (type === 'frame') {
    newest = data;
    plots.push('Strong pixels of frames', '', Date.now() / 1000, { count: data.strong_count });
    plots.push('Sum of frames', 'photons', Date.now() / 1000, { sum: data.sum });
    if (data.peaks !== null)
      plots.push('Peaks of frames', '', Date.now() / 1000, { peaks: data.peaks });
    update();
  } else if (type === 'telemetry') {
    showReply(data);
  }
}

function askForToken() {
  element('login').hidden = false;
  element('token').focus();
}

/** Receive events for as long as the page is open. */
async function follow() {
  for (;;) {
    let state = 'no server';
    try {
      const about = await ask('/sources');
      if (about.status === 401) {
        askForToken();
        return;
      }
      if (about.ok) {
        control = (await about.json()).control && token !== null;
        listRuns();
        stream = new AbortController();
        const response = await ask('/events', { signal: stream.signal });
        if (response.ok)
          await readEvents(response, onEvent);
        else if (response.status === 503)
          state = 'busy: too many pages are open';
      }
    } catch (error) {
      if (!(error instanceof TypeError) && error.name !== 'AbortError')
        throw error;
    }
    element('state').textContent = state;
    element('state').className = 'badge down';
    await new Promise(resolve => setTimeout(resolve, RETRY_MS));
  }
}

/** Once in a while, while the page is visible. */
async function listRuns() {
  clearTimeout(runs.timer);
  try {
    if (!document.hidden)
      await runs.update();
  } catch (error) {
    if (!(error instanceof TypeError))
      throw error; /* the server is gone */
  }
  runs.timer = setTimeout(listRuns, RUNS_MS);
}

/* ---- start ---- */

function fillBar() {
  const bar = element('bar').getContext('2d'), image = bar.createImageData(256, 1);
  new Uint32Array(image.data.buffer).set(COLOURS);
  bar.putImageData(image, 0, 0);
}

async function command(event) {
  event.preventDefault();
  const path_ = event.submitter.value;
  const parameters = /configure|set$/.test(path_) ? element('parameters').value : '';
  const output = element('command-reply');
  output.textContent = 'waiting';
  try {
    const response = await ask(`${path(selected)}/command`, { method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ command: path_, parameters }) });
    const reply = await response.json();
    const answer = reply[path_];
    output.textContent = answer
      ? `${path_}: ${answer.result === 0 ? 'done' : answer.result} ${text(answer, 'message')}`
      : `${response.status}: ${reply.detail ?? 'the receiver does not know the command'}`;
  } catch (error) {
    output.textContent = `${path_}: no answer (${error.message}); see the state of the run`;
  }
}

fillBar();
for (const id of ['scale', 'limits', 'percentile', 'low', 'high', 'rings', 'peaks'])
  element(id).addEventListener('change', changeScale);
element('plane').addEventListener('change', update);
element('source').addEventListener('change', event => select(event.target.value));
element('zoom-in').addEventListener('click', () => picture.zoomTo(picture.zoom * 2, ...picture.centre()));
element('zoom-out').addEventListener('click', () => picture.zoomTo(picture.zoom / 2, ...picture.centre()));
element('fit').addEventListener('click', () => picture.fit());
element('one').addEventListener('click', () => picture.zoomTo(1, ...picture.centre()));
element('control').addEventListener('submit', command);
element('login').addEventListener('submit', event => {
  event.preventDefault();
  token = element('token').value;
  sessionStorage.setItem('token', token);
  element('token').value = '';
  element('login').hidden = true;
  follow();
});
document.addEventListener('visibilitychange', update);
// a page that the browser keeps for its "back" would keep its stream; it connects again when shown
window.addEventListener('pagehide', () => stream?.abort());
follow();
