// SPDX-License-Identifier: BSD-3-Clause
// The picture: pixels at their places, zoom and pan to single pixels, rings, peaks, a cursor.
//
// It has either the whole raster (sparse frames, which are small), or the cells of a window, which
// the server has made for the present zoom.
//
// Coordinates: "raster" is row and column as in files, "picture" is x and y in the plane with all
// gaps, "screen" is pixels of the canvas.
import { COLOURS, GAP, MASKED, MISSING, SATURATED, limitsOf, scaleOf } from './colours.js';

const NOWHERE = 0xffffffff;
const ZOOM_MAX = 64;
const BIN_MAX = 64; // of the server
const MASKED_BITS = 0x7fc00000, MISSING_BITS = 0x7fc00001; // cells without value
const PEAK_RADIUS = 5; // picture pixels

export class Picture {
  /**
   * @param cursor  called with a description of the pixel under the cursor
   * @param moved   called when another part of the picture is visible
   */
  constructor(canvas, cursor, moved) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.off = document.createElement('canvas');
    this.cursorChanged = cursor;
    this.moved = moved;
    this.data = null; // Float32Array [rows][cols]: NaN nothing, +Inf saturated
    this.cells = null; // {x, y, bin, rows, cols, data, bits}, if there is no raster
    this.exact = null; // {x, y, value, what}: value of a pixel, if cells are larger
    this.mask = null;
    this.peaks = [];
    this.kind = 'linear';
    this.limits = null; // [low, high]; null: by percentile
    this.percentile = 99;
    this.showRings = this.showPeaks = true;
    this.cursor = null; // {x, y} in the picture
    this.fitted = true;
    this.used = [0, 1];
    this.setLayout(0, 0, null, null);
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.listen();
  }

  /**
   * @param geometry  of the server; null: the raster is shown
   * @param places    Uint32Array: place of each pixel of the raster
   */
  setLayout(rows, cols, geometry, places) {
    this.rows = rows;
    this.cols = cols;
    this.geometry = geometry;
    this.places = places;
    this.width = geometry ? geometry.width : cols;
    this.height = geometry ? geometry.height : rows;
    this.data = this.mask = this.cells = this.exact = null;
    this.peaks = [];
    this.cursor = null;
    this.source = null;
    if (geometry) {
      this.source = new Int32Array(this.width * this.height).fill(-1);
      for (let i = 0; i < places.length; i++)
        if (places[i] !== NOWHERE)
          this.source[places[i]] = i;
    }
    this.resize();
    this.fit();
  }

  /** @param peaks  array of [column, row] */
  setData(data, mask, peaks) {
    this.data = data;
    this.cells = null;
    this.mask = mask;
    this.peaks = peaks;
    this.draw();
    this.tell();
  }

  /** @param cells  {x, y, bin, rows, cols, data} of a window() */
  setCells(cells, peaks) {
    this.data = null;
    this.cells = { ...cells,
      bits: new Uint32Array(cells.data.buffer, cells.data.byteOffset, cells.data.length) };
    this.exact = null;
    this.peaks = peaks;
    this.draw();
    this.tell();
  }

  /** The visible part of the picture, in cells of at least one pixel of the screen; null: none. */
  window() {
    const { canvas, zoom } = this;
    const bin = zoom < 1 ? Math.min(BIN_MAX, Math.ceil(1 / zoom)) : 1;
    const x = Math.max(0, Math.floor((this.x - canvas.width / 2 / zoom) / bin) * bin);
    const y = Math.max(0, Math.floor((this.y - canvas.height / 2 / zoom) / bin) * bin);
    const width = Math.min(this.width, Math.ceil(this.x + canvas.width / 2 / zoom)) - x;
    const height = Math.min(this.height, Math.ceil(this.y + canvas.height / 2 / zoom)) - y;
    return width > 0 && height > 0 ? { x, y, width, height, bin } : null;
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    const height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (width === this.canvas.width && height === this.canvas.height)
      return;
    this.canvas.width = width;
    this.canvas.height = height;
    if (this.fitted)
      this.fit();
    else
      this.later();
  }

  fit() {
    this.zoom = Math.min(this.canvas.width / Math.max(1, this.width),
      this.canvas.height / Math.max(1, this.height));
    this.x = this.width / 2;
    this.y = this.height / 2;
    this.fitted = true;
    this.later();
  }

  /** Zoom around a point of the picture, which keeps its place on the screen. */
  zoomTo(zoom, x = this.x, y = this.y) {
    const least = Math.min(1, this.canvas.width / this.width, this.canvas.height / this.height) / 2;
    const next = Math.min(ZOOM_MAX, Math.max(least, zoom));
    this.x = x + (this.x - x) * this.zoom / next;
    this.y = y + (this.y - y) * this.zoom / next;
    this.zoom = next;
    this.fitted = false;
    this.pan(0, 0);
  }

  /** @param dx, dy  pixels of the picture */
  pan(dx, dy) {
    this.x = Math.min(this.width, Math.max(0, this.x + dx));
    this.y = Math.min(this.height, Math.max(0, this.y + dy));
    if (dx || dy)
      this.fitted = false;
    this.later();
  }

  screenX(x) { return this.canvas.width / 2 + (x - this.x) * this.zoom; }
  screenY(y) { return this.canvas.height / 2 + (y - this.y) * this.zoom; }

  /** Draw with the next repaint, once. */
  later() {
    if (this.waiting)
      return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
      if (this.cells)
        this.moved();
    });
  }

  draw() {
    const { canvas, context } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = '#14171c';
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (!this.data && !this.cells)
      return;
    this.used = this.limits ?? limitsOf((this.cells ?? this).data, this.kind, this.percentile);
    if (this.cells)
      this.drawCells();
    else
      this.drawPixels();
    if (this.showRings && this.geometry)
      this.drawRings();
    if (this.showPeaks)
      this.drawPeaks();
    this.drawCursor();
  }

  /** Draw columns x lines cells of bin x bin pixels. @param fill  makes their colours */
  paint(x, y, bin, columns, lines, fill) {
    if (this.off.width !== columns || this.off.height !== lines || !this.image) {
      this.off.width = columns;
      this.off.height = lines;
      this.image = this.off.getContext('2d').createImageData(columns, lines);
    }
    fill(new Uint32Array(this.image.data.buffer));
    this.off.getContext('2d').putImageData(this.image, 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.off, this.screenX(x), this.screenY(y), columns * bin * this.zoom,
      lines * bin * this.zoom);
  }

  /** The brightest pixel of each cell is shown. */
  drawPixels() {
    const w = this.window();
    if (!w)
      return;
    const columns = Math.ceil(w.width / w.bin), lines = Math.ceil(w.height / w.bin);
    this.paint(w.x, w.y, w.bin, columns, lines, out =>
      this.fill(out, columns, lines, w.x, w.y, w.x + w.width, w.y + w.height, w.bin));
  }

  drawCells() {
    const { x, y, bin, rows, cols, data, bits } = this.cells;
    const scale = scaleOf(this.kind, ...this.used);
    this.paint(x, y, bin, cols, rows, out => {
      for (let i = 0; i < data.length; i++) {
        const v = data[i];
        out[i] = v === Infinity ? SATURATED : v === v ? COLOURS[scale(v)]
          : bits[i] === MASKED_BITS ? MASKED : bits[i] === MISSING_BITS ? MISSING : GAP;
      }
    });
  }

  fill(out, columns, lines, x0, y0, x1, y1, by) {
    const { data, source, width } = this;
    const scale = scaleOf(this.kind, ...this.used);
    let at = 0;
    for (let line = 0; line < lines; line++) {
      const top = y0 + line * by, bottom = Math.min(top + by, y1);
      for (let column = 0; column < columns; column++) {
        const left = x0 + column * by, right = Math.min(left + by, x1);
        let most = -Infinity;
        for (let y = top; y < bottom; y++) {
          const end = y * width + right;
          if (source === null) {
            for (let p = y * width + left; p < end; p++)
              if (data[p] > most)
                most = data[p];
          } else {
            for (let p = y * width + left; p < end; p++) {
              const i = source[p];
              if (i >= 0 && data[i] > most)
                most = data[i];
            }
          }
        }
        out[at++] = most === Infinity ? SATURATED
          : most > -Infinity ? COLOURS[scale(most)]
          : this.colourOfNothing(left, top, right, bottom);
      }
    }
  }

  /** Colour of a cell without values: masked or missing, if it has pixels. */
  colourOfNothing(left, top, right, bottom) {
    for (let y = top; y < bottom; y++)
      for (let p = y * this.width + left, end = y * this.width + right; p < end; p++) {
        const i = this.source === null ? p : this.source[p];
        if (i >= 0)
          return this.mask !== null && this.mask[i] ? MASKED : MISSING;
      }
    return GAP;
  }

  /** A circle that is visible on bright and on dark pixels. */
  circle(x, y, radius, colour, dash) {
    const { context } = this;
    context.setLineDash(dash);
    for (const [style, width] of [['rgba(0, 0, 0, 0.6)', 3.5], [colour, 1.5]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.stroke();
    }
    context.setLineDash([]);
  }

  drawRings() {
    const { context, geometry } = this;
    context.fillStyle = '#5fd39b';
    context.font = `${Math.round(12 * Math.min(window.devicePixelRatio || 1, 2))}px system-ui`;
    for (const ring of geometry.rings) {
      const x = this.screenX(geometry.beam_x), y = this.screenY(geometry.beam_y);
      const radius = ring.radius * this.zoom;
      const label = [`${ring.resolution_angstrom} Å`, x + radius * 0.71 + 3, y - radius * 0.71];
      this.circle(x, y, radius, '#5fd39b', [6, 4]);
      context.strokeStyle = 'rgba(0, 0, 0, 0.6)';
      context.lineWidth = 3;
      context.strokeText(...label);
      context.fillText(...label);
    }
  }

  /** @return place of a point of the raster, [x, y]; null: in a gap */
  placeOf(column, row) {
    if (!this.geometry)
      return [column + 0.5, row + 0.5];
    const c = Math.round(column), r = Math.round(row);
    const place = c >= 0 && c < this.cols && r >= 0 && r < this.rows
      ? this.places[r * this.cols + c] : NOWHERE;
    if (place === NOWHERE)
      return null;
    return [place % this.width + 0.5, Math.floor(place / this.width) + 0.5];
  }

  drawPeaks() {
    for (const [column, row] of this.peaks) {
      const place = this.placeOf(column, row);
      if (place)
        this.circle(this.screenX(place[0]), this.screenY(place[1]),
          Math.max(5, PEAK_RADIUS * this.zoom), '#40e0ff', []);
    }
  }

  drawCursor() {
    if (!this.cursor)
      return;
    const size = Math.max(7, this.zoom);
    const x = this.screenX(this.cursor.x + 0.5), y = this.screenY(this.cursor.y + 0.5);
    this.context.strokeStyle = '#ffffff';
    this.context.lineWidth = 1;
    this.context.strokeRect(x - size / 2, y - size / 2, size, size);
  }

  /** Value of a pixel in the cells; what is `unknown` if cells have several pixels. */
  cellAt(x, y) {
    const c = this.cells;
    if (this.exact && this.exact.x === x && this.exact.y === y)
      return this.exact;
    const column = x - c.x, row = y - c.y;
    if (c.bin > 1 || column < 0 || row < 0 || column >= c.cols || row >= c.rows)
      return { value: null, what: 'unknown' };
    return this.describe(c.data[row * c.cols + column], c.bits[row * c.cols + column]);
  }

  describe(value, bits) {
    return { value, what: value === Infinity ? 'saturated' : value === value ? 'value'
      : bits === MASKED_BITS ? 'masked' : bits === MISSING_BITS ? 'missing' : 'gap' };
  }

  /** Facts of the pixel under the cursor; null: none. */
  pixel() {
    if (!this.cursor || (!this.data && !this.cells))
      return null;
    const { x, y } = this.cursor;
    const i = this.source === null ? y * this.width + x : this.source[y * this.width + x];
    const found = { x, y, row: null, column: null, value: null, what: 'gap', resolution: null };
    if (i >= 0) {
      found.row = Math.floor(i / this.cols);
      found.column = i % this.cols;
      Object.assign(found, this.cells ? this.cellAt(x, y)
        : this.describe(this.data[i], this.mask && this.mask[i] ? MASKED_BITS : MISSING_BITS));
    }
    const g = this.geometry;
    if (g && g.distance_metres && g.wavelength_angstrom) {
      const radius = Math.hypot(x + 0.5 - g.beam_x, y + 0.5 - g.beam_y) * g.pixel_metres;
      const theta = Math.atan2(radius, g.distance_metres) / 2;
      found.resolution = theta > 0 ? g.wavelength_angstrom / (2 * Math.sin(theta)) : Infinity;
    }
    return found;
  }

  tell() {
    this.cursorChanged(this.pixel());
  }

  setCursor(x, y) {
    if (this.width === 0)
      return;
    this.cursor = { x: Math.min(this.width - 1, Math.max(0, Math.floor(x))),
      y: Math.min(this.height - 1, Math.max(0, Math.floor(y))) };
    this.later();
    this.tell();
  }

  /** Place of a pointer event in the picture. */
  pointed(event) {
    const box = this.canvas.getBoundingClientRect();
    const ratio = this.canvas.width / box.width;
    return [this.x + ((event.clientX - box.left) * ratio - this.canvas.width / 2) / this.zoom,
      this.y + ((event.clientY - box.top) * ratio - this.canvas.height / 2) / this.zoom];
  }

  listen() {
    const { canvas } = this;
    const down = new Map(); // pointers by id
    const spread = () => {
      const [a, b] = [...down.values()];
      return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    };
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      this.zoomTo(this.zoom * 2 ** (-event.deltaY / 240), ...this.pointed(event));
    }, { passive: false });
    canvas.addEventListener('pointerdown', event => {
      canvas.setPointerCapture(event.pointerId);
      down.set(event.pointerId, event);
    });
    canvas.addEventListener('pointermove', event => {
      const before = down.get(event.pointerId);
      if (!before) {
        this.setCursor(...this.pointed(event));
        return;
      }
      const ratio = canvas.width / canvas.getBoundingClientRect().width;
      const wide = down.size === 2 ? spread() : 0;
      down.set(event.pointerId, event);
      if (wide > 0)
        this.zoomTo(this.zoom * spread() / wide);
      this.pan(-(event.clientX - before.clientX) * ratio / this.zoom / down.size,
        -(event.clientY - before.clientY) * ratio / this.zoom / down.size);
    });
    for (const name of ['pointerup', 'pointercancel'])
      canvas.addEventListener(name, event => {
        down.delete(event.pointerId);
        this.setCursor(...this.pointed(event));
      });
    canvas.addEventListener('keydown', event => this.key(event));
  }

  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in step && event.shiftKey) {
      const by = this.canvas.width / 8 / this.zoom;
      this.pan(step[event.key][0] * by, step[event.key][1] * by);
    } else if (event.key in step) {
      const at = this.cursor ?? { x: Math.floor(this.x), y: Math.floor(this.y) };
      this.setCursor(at.x + step[event.key][0], at.y + step[event.key][1]);
      this.follow();
    } else if (event.key === '+' || event.key === '=') {
      this.zoomTo(this.zoom * 2, ...this.centre());
    } else if (event.key === '-') {
      this.zoomTo(this.zoom / 2, ...this.centre());
    } else if (event.key === '0') {
      this.fit();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Point around which keys zoom. */
  centre() {
    return this.cursor ? [this.cursor.x + 0.5, this.cursor.y + 0.5] : [this.x, this.y];
  }

  /** Keep the cursor in view. */
  follow() {
    const x = this.screenX(this.cursor.x), y = this.screenY(this.cursor.y);
    if (x < 0 || y < 0 || x > this.canvas.width || y > this.canvas.height)
      this.pan(this.cursor.x - this.x, this.cursor.y - this.y);
  }
}
