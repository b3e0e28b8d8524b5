#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The sweep of store_h200.sh, threads by slice size, as an SVG with one heat map for each method.

usage: heatmap.py < LOG > PICTURE
"""
import sys
from xml.sax.saxutils import escape

CELL_W, CELL_H = 74, 34
LEFT, TOP, GAP = 90, 90, 70
WAYS = {'gpu_out': 'GPU memory to file', 'gpu_in': 'file to GPU memory',
        'host_out': 'host memory to file', 'host_in': 'file to host memory'}
COLD, WARM = (237, 243, 248), (178, 58, 38)


def read(lines):
    """{method: {(threads, KiB): GB/s}} of the table with these columns."""
    found = {}
    columns = None
    for line in lines:
        words = line.split()
        if words[:2] == ['threads', 'KiB']:
            columns = words[2:]
            found = {way: {} for way in columns}
        elif columns and len(words) == 2 + len(columns) and words[0].isdigit():
            for way, value in zip(columns, words[2:]):
                found[way][int(words[0]), int(words[1])] = float(value)
        elif columns and found[columns[0]]:
            break
    return found


def text(x, y, what, anchor='middle', size=12, colour='#222222'):
    return (f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
            f'{escape(what)}</text>')


def panel(x, y, name, cells, most):
    threads = sorted({t for t, _ in cells})
    sizes = sorted({s for _, s in cells})
    yield text(x, y - 30, name, 'start', 15)
    for i, size in enumerate(sizes):
        label = f'{size // 1024} MiB' if size >= 1024 else f'{size} KiB'
        yield text(x + (i + 0.5) * CELL_W, y - 8, label)
    for k, count in enumerate(threads):
        yield text(x - 8, y + (k + 0.65) * CELL_H, str(count), 'end')
        for i, size in enumerate(sizes):
            value = cells[count, size]
            part = value / most
            colour = tuple(round(c + (w - c) * part) for c, w in zip(COLD, WARM))
            yield (f'<rect x="{x + i * CELL_W}" y="{y + k * CELL_H}" width="{CELL_W - 2}" '
                   f'height="{CELL_H - 2}" fill="rgb{colour}"/>')
            yield text(x + (i + 0.5) * CELL_W, y + (k + 0.65) * CELL_H, f'{value:.2f}',
                       colour='#ffffff' if part > 0.6 else '#222222')


def main():
    found = read(sys.stdin)
    if not found:
        sys.exit('heatmap.py: no table of threads and slices on standard input')
    most = max(max(cells.values()) for cells in found.values())
    one = next(iter(found.values()))
    wide = len({s for _, s in one}) * CELL_W + LEFT
    high = len({t for t, _ in one}) * CELL_H + GAP
    width, height = 2 * wide + 30, TOP + (len(found) + 1) // 2 * high
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
          'font-family="sans-serif">')
    print(f'<rect width="{width}" height="{height}" fill="#ffffff"/>')
    print(text(LEFT, 30, 'GB/s by threads (rows) and size of a slice (columns)', 'start', 17))
    for i, (way, cells) in enumerate(found.items()):
        for shape in panel(LEFT + i % 2 * wide, TOP + i // 2 * high, WAYS.get(way, way), cells,
                           most):
            print(shape)
    print('</svg>')


if __name__ == '__main__':
    main()
