# SPDX-License-Identifier: BSD-3-Clause
"""The roofline of a host as SVG: 4M frames a second over frames that a gigabyte of traffic makes.

A stage that moves B bytes of memory for a frame lies at 1 / B. Its floor - a pass that only moves
them - is a ring above it; the best of the floors is the roof. A line is what the detector sends.
"""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 900, 560
LEFT, RIGHT, TOP, BOTTOM = 80, 240, 70, 60
DETECTOR = 2000  # frames/s of a JUNGFRAU
PACKETS = 1024   # of a 4M frame
COLOURS = ('#1b6ca8', '#c8553d', '#3a7d44', '#8e5aa8', '#b8860b', '#4a4a4a', '#008b8b', '#a0527d')


def frames(value, unit):
    return value * 1e6 / PACKETS if unit == 'Mpackets/s' else value


def points(rows):
    """(name, frames/GB, frames/s, frames/s of the floor or 0)"""
    return [(f'{r["stage"]}: {r["what"]}', 1e9 / r['bytes'], frames(r['value'], r['unit']),
             frames(r['other'], r['unit'])) for r in rows if r['bytes'] > 0 and r['value'] > 0]


class Axis:
    """Decades between two places of the picture."""

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
    yield text((x.begin + x.end) / 2, HEIGHT - 14, 'frames for each GB of memory traffic', 'middle')
    middle = (y.begin + y.end) / 2
    yield text(18, middle, 'JUNGFRAU 4M frames/s, one core', 'middle', 12,
               f' transform="rotate(-90 18 {middle:.0f})"')


def roof(found, x, y):
    """The best rate at which a floor, or a stage, moves its bytes; drawn within the picture."""
    best = max(max(f, v) / i for _, i, v, f in found)
    low = max(10.0 ** x.low, 10.0 ** y.low / best)
    high = min(10.0 ** x.high, 10.0 ** y.high / best)
    yield line(x.at(low), y.at(low * best), x.at(high), y.at(high * best), '#222222',
               ' stroke-width="2"')
    yield text(x.at(low) + 14, y.at(low * best) - 18, f'{best:.1f} GB/s, the fastest pass')


def draw(rows, facts):
    """@return the picture; an empty one says so."""
    found = points(rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           text(LEFT, 26, 'Stages of the host and their ceilings', size=17),
           text(LEFT, 44, f'{facts["Machine"]}', size=11),
           text(LEFT, 60, f'{facts["Date"]}, commit {facts["Commit"]}', size=11)]
    if not found:
        return '\n'.join([*out, text(LEFT, 100, 'no stage was measured'), '</svg>', ''])
    x = Axis([p[1] for p in found], LEFT, WIDTH - RIGHT)
    y = Axis([DETECTOR, *(v for p in found for v in p[2:] if v > 0)], HEIGHT - BOTTOM, TOP + 10)
    out += [*grid(x, y), *roof(found, x, y),
            line(x.begin, y.at(DETECTOR), x.end, y.at(DETECTOR), '#c8553d',
                 ' stroke-dasharray="6 4"'),
            text(x.end - 4, y.at(DETECTOR) - 6, 'detector: 2 kHz', 'end', 12, ' fill="#c8553d"')]
    for i, (name, intensity, value, floor) in enumerate(found):
        colour, at = COLOURS[i % len(COLOURS)], x.at(intensity)
        if floor > 0:
            out.append(line(at, y.at(value), at, y.at(floor), colour, ' stroke-dasharray="2 3"'))
            out.append(f'<circle cx="{at:.1f}" cy="{y.at(floor):.1f}" r="5" fill="none" '
                       f'stroke="{colour}" stroke-width="1.5"/>')
        out.append(f'<circle cx="{at:.1f}" cy="{y.at(value):.1f}" r="5" fill="{colour}"/>')
        key = TOP + 24 + 40 * i
        out.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{key - 4}" r="5" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 32, key, name, size=11))
        out.append(text(WIDTH - RIGHT + 32, key + 14, f'{value:,.0f} frames/s' + (
            f', {value / floor:.2f} of its floor' if floor > 0 else ''), size=11,
            more=' fill="#555555"'))
    out.append(text(WIDTH - RIGHT + 12, HEIGHT - 14, 'disc: this; ring: its floor', size=11))
    return '\n'.join([*out, '</svg>', ''])
