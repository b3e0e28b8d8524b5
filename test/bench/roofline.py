# SPDX-License-Identifier: BSD-3-Clause
"""The roofline of a host as SVG: 4M frames per second over frames per gigabyte of memory traffic.

A stage that moves B bytes of memory for a frame lies at 1 / B. Gangs have two roofs: memory, the
best rate of the passes that only move as many bytes (circles), and their own arithmetic on data in
the caches (horizontal lines). Other stages are drawn with their peers, which are not ceilings of
memory: their bytes are the cache lines that they access. A dashed line is the rate of the detector.
"""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT, KEY = 960, 560, 32
LEFT, RIGHT, TOP, BOTTOM = 80, 300, 70, 60
DETECTOR = 2000  # frames/s of a JUNGFRAU
PACKETS = 1024   # of a 4M frame
COLOURS = ('#1b6ca8', '#c8553d', '#3a7d44', '#8e5aa8', '#b8860b', '#4a4a4a', '#008b8b', '#a0527d')


def frames(value, unit):
    return value * 1e6 / PACKETS if unit == 'Mpackets/s' else value


def points(rows):
    """(name, frames/GB, frames/s, frames/s of the other or 0, whether the other is its floor)"""
    return [(f'{r["stage"]}: {r["what"]}', 1e9 / r['bytes'], frames(r['value'], r['unit']),
             frames(r['other'], r['unit']), r['role'] == 'floor')
            for r in rows if r['bytes'] > 0 and r['value'] > 0]


def ceilings(rows):
    """The limit of the arithmetic with data from any cache: {what: frames/s}"""
    found = {}
    for r in rows:
        if r['role'] == 'ceiling':
            what = r['what'].split(' from ')[0]
            found[what] = max(r['value'], found.get(what, 0))
    return found


class Axis:
    """A logarithmic axis between two positions of the picture."""

    def __init__(self, values, begin, end):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self.begin, self.end = begin, end

    def at(self, value):
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + part * (self.end - self.begin)

    def decades(self):
        return [10.0 ** i for i in range(self.low, self.high + 1)]


def text(x, y, what, anchor='start', size=12, more=''):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>'
            f'{escape(what)}</text>')


def line(x1, y1, x2, y2, colour, more=''):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}"{more}/>')


def grid(x, y):
    for value in x.decades():
        yield line(x.at(value), y.begin, x.at(value), y.end, '#dddddd')
        yield text(x.at(value), y.begin + 18, f'{value:,.0f}', 'middle')
    for value in y.decades():
        yield line(x.begin, y.at(value), x.end, y.at(value), '#dddddd')
        yield text(x.begin - 8, y.at(value) + 4, f'{value:,.0f}', 'end')
    yield text((x.begin + x.end) / 2, y.begin + 46, 'frames for each GB of memory traffic', 'middle')
    middle = (y.begin + y.end) / 2
    yield text(18, middle, 'JUNGFRAU 4M frames/s, one core', 'middle', 12,
               f' transform="rotate(-90 18 {middle:.0f})"')


def roof(found, x, y):
    """The best rate at which a floor moves its bytes, clipped to the picture."""
    floors = [other / intensity for _, intensity, _, other, floor in found if floor]
    if not floors:
        return
    best = max(floors)
    low = max(10.0 ** x.low, 10.0 ** y.low / best)
    high = min(10.0 ** x.high, 10.0 ** y.high / best)
    yield line(x.at(low), y.at(low * best), x.at(high), y.at(high * best), '#222222',
               ' stroke-width="2"')
    yield text(x.at(low) + 14, y.at(low * best) - 18, f'memory: {best:.1f} GB/s, the fastest floor')


def level(x, y, value, what, colour, more=''):
    yield line(x.begin, y.at(value), x.end, y.at(value), colour, more)
    yield text(x.end - 4, y.at(value) - 5, what, 'end', 11, f' fill="{colour}"')


def mark(x, y, point, colour):
    """A disc, with its label and the value that it is compared with above or below it."""
    _, intensity, value, other, floor = point
    at = x.at(intensity)
    if other > 0:
        yield line(at, y.at(value), at, y.at(other), colour, ' stroke-dasharray="2 3"')
        shape = 'stroke-width="1.5"' if floor else 'stroke-width="1" stroke-dasharray="2 2"'
        yield (f'<circle cx="{at:.1f}" cy="{y.at(other):.1f}" r="5" fill="none" '
               f'stroke="{colour}" {shape}/>')
    yield f'<circle cx="{at:.1f}" cy="{y.at(value):.1f}" r="5" fill="{colour}"/>'


def key(at, point, colour):
    name, _, value, other, floor = point
    yield f'<circle cx="{WIDTH - RIGHT + 20}" cy="{at - 4}" r="5" fill="{colour}"/>'
    yield text(WIDTH - RIGHT + 32, at, name, size=11)
    share = f', {value / other:.2f} of its {"floor" if floor else "peer"}' if other > 0 else ''
    yield text(WIDTH - RIGHT + 32, at + 13, f'{value:,.0f} frames/s{share}', size=11,
               more=' fill="#555555"')


def draw(rows, facts):
    """@return the picture; without rows it contains a message"""
    found, limits = points(rows), ceilings(rows)
    height = max(HEIGHT, TOP + KEY * (len(found) + 2))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           text(LEFT, 26, 'Stages of the host and their ceilings', size=17),
           text(LEFT, 44, f'{facts["Machine"]}; {facts["Gangs"]}', size=11),
           text(LEFT, 60, f'{facts["Date"]}, commit {facts["Commit"]}', size=11)]
    if not found:
        return '\n'.join([*out, text(LEFT, 100, 'no stage was measured'), '</svg>', ''])
    x = Axis([p[1] for p in found], LEFT, WIDTH - RIGHT)
    rates = [v for p in found for v in p[2:4] if v > 0]
    y = Axis([DETECTOR, *rates, *limits.values()], height - BOTTOM, TOP + 10)
    out += [*grid(x, y), *roof(found, x, y),
            *level(x, y, DETECTOR, 'detector: 2 kHz', '#c8553d', ' stroke-dasharray="6 4"')]
    for what, value in limits.items():
        out += level(x, y, value, f'arithmetic: {what}, {value:,.0f} frames/s', '#666666')
    for i, point in enumerate(found):
        colour = COLOURS[i % len(COLOURS)]
        out += [*mark(x, y, point, colour), *key(TOP + 24 + KEY * i, point, colour)]
    out.append(text(WIDTH - RIGHT + 12, height - 14,
                    'disc: this; ring: its floor; broken ring: its peer', size=11))
    return '\n'.join([*out, '</svg>', ''])
