// SPDX-License-Identifier: BSD-3-Clause
// Plots over time, drawn by uPlot. Series appear when they have values.

const POINTS = 600;
const HEIGHT = 130;
const COUNTERS = 4096; // groups of them whose last values are kept
const STROKES = ['#6db3f2', '#f2a65a', '#7fd18b', '#e57ea1', '#c9a6ff', '#e8d95b', '#5fd3d0',
  '#ff8a80', '#b0bec5', '#a1887f'];

class Plot {
  constructor(parent, title, unit, logarithmic) {
    this.box = document.createElement('div');
    this.box.className = 'plot';
    this.box.dataset.title = title;
    const head = document.createElement('h3');
    head.textContent = unit ? `${title} (${unit})` : title;
    this.box.append(head);
    parent.append(this.box);
    this.names = [];
    this.data = [[]];
    this.width = () => Math.max(200, this.box.clientWidth);
    const axis = { stroke: '#a9b2bf', grid: { stroke: '#2b323c' }, ticks: { stroke: '#39414d' } };
    this.plot = new uPlot({
      width: this.width(), height: HEIGHT, cursor: { y: false },
      scales: { y: logarithmic ? { distr: 3 } : { range: (_, low, high) =>
        [Math.min(0, low ?? 0), (high ?? 1) > 0 ? (high ?? 1) * 1.05 : 1] } },
      axes: [axis, { ...axis, size: 72 }],
      series: [{}],
    }, this.data, this.box);
    new ResizeObserver(() =>
      this.plot.setSize({ width: this.width(), height: HEIGHT })).observe(this.box);
  }

  /** @param values  by name; null: no value */
  push(time, values) {
    for (const name of Object.keys(values)) {
      if (this.names.includes(name) || this.names.length >= 24)
        continue;
      this.names.push(name);
      this.data.push(new Array(this.data[0].length).fill(null));
      this.plot.addSeries({ label: name, stroke: STROKES[(this.names.length - 1) % STROKES.length],
        width: 1.5, spanGaps: true }, this.names.length);
    }
    this.data[0].push(time);
    this.names.forEach((name, i) => this.data[i + 1].push(values[name] ?? null));
    if (this.data[0].length > POINTS)
      this.data.forEach(column => column.shift());
    this.stale = true;
  }
}

/** All plots of the page. */
export class Plots {
  constructor(parent) {
    this.parent = parent;
    this.plots = new Map();
    setInterval(() => this.draw(), 500);
  }

  push(title, unit, time, values, logarithmic = false) {
    if (!this.plots.has(title))
      this.plots.set(title, new Plot(this.parent, title, unit, logarithmic));
    this.plots.get(title).push(time, values);
  }

  draw() {
    for (const plot of this.plots.values())
      if (plot.stale) {
        plot.stale = false;
        plot.plot.setData(plot.data);
      }
  }

  clear() {
    for (const plot of this.plots.values()) {
      plot.plot.destroy();
      plot.box.remove();
    }
    this.plots.clear();
  }
}

/** Differences of counters between two replies, per second. */
export class Rates {
  constructor() {
    this.before = new Map();
  }

  /** @return {seconds, of(counters)}: null for the first reply, and after a counter was reset */
  since(key, time, counters) {
    const old = this.before.get(key);
    if (!old && this.before.size >= COUNTERS)
      return null;
    this.before.set(key, { time, counters });
    if (!old || time <= old.time)
      return null;
    const change = {};
    for (const [name, value] of Object.entries(counters)) {
      if (typeof value !== 'number' || typeof old.counters[name] !== 'number')
        continue;
      if (value < old.counters[name])
        return null;
      change[name] = value - old.counters[name];
    }
    return { seconds: time - old.time, change };
  }
}

/** Upper bound of the bucket in which the given share of a histogram ends, in its unit. */
export function percentile(counts, below, share) {
  const total = counts.reduce((a, b) => a + b, 0);
  let sum = 0;
  if (total === 0)
    return null;
  for (let i = 0; i < counts.length; i++) {
    sum += counts[i];
    if (sum >= share * total)
      return below[Math.min(i, below.length - 1)];
  }
  return below[below.length - 1];
}
