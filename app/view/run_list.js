// SPDX-License-Identifier: BSD-3-Clause
// The list of finished runs: links to the page of HDF5 files, and downloads.

const COLUMNS = ['run', 'started', 'finished', 'frames', 'kept', 'size', 'open', 'download'];
const OPENS = /(_master|_sparse)\.h5$|\.cxi$/;
const SHOWN = 100; // runs, the newest ones

function size(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) {
    bytes /= 1000;
    unit++;
  }
  return `${unit === 0 ? bytes : bytes.toPrecision(3)} ${units[unit]}`;
}

function time(seconds) {
  return seconds === null ? '' : new Date(seconds * 1000).toLocaleString();
}

function cell(tag, ...content) {
  const element = document.createElement(tag);
  element.append(...content);
  return element;
}

export class RunList {
  /** @param ask  function (path) of the server's interface, which adds the token */
  constructor(section, ask) {
    this.section = section;
    this.table = section.querySelector('table');
    this.facts = section.querySelector('#runs-facts');
    this.ask = ask;
    this.text = null;
  }

  /** Get the list, and show it if it has changed. */
  async update() {
    const response = await this.ask('/runs');
    if (!response.ok)
      return;
    const text = await response.text();
    if (text === this.text)
      return;
    this.text = text;
    const { folders, truncated, runs } = JSON.parse(text);
    this.section.hidden = folders.length === 0;
    this.table.replaceChildren(cell('tr', ...COLUMNS.map(name => cell('th', name))),
      ...runs.slice(0, SHOWN).map(run => this.row(run)));
    this.facts.textContent = `${runs.length}${truncated ? ' or more' : ''} finished runs in ` +
      `${folders.join(', ')}${runs.length > SHOWN ? `; the newest ${SHOWN} are shown` : ''}`;
  }

  row(run) {
    const opens = run.files.filter(f => OPENS.test(f.name)).map(f => {
      const link = cell('a', f.name);
      link.href = `/h5.html?${new URLSearchParams({ directory: run.directory, file: f.name })}`;
      return cell('span', link, ' ');
    });
    const choice = cell('select', ...run.files.map(f =>
      new Option(`${f.name}, ${size(f.bytes)}`, f.name)));
    choice.setAttribute('aria-label', `file of ${run.name}`);
    const button = cell('button', 'get');
    button.type = 'button';
    button.setAttribute('aria-label', `download the file of ${run.name}`);
    button.addEventListener('click', () => this.download(run, choice.value));
    return cell('tr', cell('td', run.name), cell('td', time(run.started)),
      cell('td', time(run.finished)), cell('td', String(run.frames)), cell('td', String(run.kept)),
      cell('td', size(run.bytes)), cell('td', ...opens), cell('td', choice, ' ', button));
  }

  /** A link cannot send the token: with one, the page gets the file and then saves it. */
  async download(run, name) {
    const path = `/runs/${run.directory}/${encodeURIComponent(name)}`;
    const link = document.createElement('a');
    link.download = name;
    if (!sessionStorage.getItem('token')) {
      link.href = `/api/v1${path}`;
      link.click();
      return;
    }
    const response = await this.ask(path);
    if (!response.ok) {
      this.facts.textContent = `${name}: status ${response.status}`;
      return;
    }
    link.href = URL.createObjectURL(await response.blob());
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }
}
