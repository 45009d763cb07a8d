"""Small charts as SVG. Each is one picture with a text; a table beside it has the numbers."""

import units
from markup import text

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 460, 170, 46, 24, 10
_MOST_BARS = 80


def _frame(title, label, body):
    return (f'<figure><figcaption>{text(title)}</figcaption><svg class="chart" role="img" '
            f'aria-label="{text(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
            f'height="{_HEIGHT}">{body}</svg></figure>')


def _axis_lines(x_text, top_text):
    right, base = _WIDTH - 8, _HEIGHT - _BOTTOM
    return (f'<path class="line" d="M{_LEFT} {_TOP}V{base}H{right}"/>'
            f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{text(top_text)}</text>'
            f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>'
            f'<text x="{right}" y="{_HEIGHT - 6}" text-anchor="end">{text(x_text)}</text>')


def histogram(name, pairs, marks):
    """Bars of (size, count), and a tick at each size that others are padded to."""
    largest = max(max(size for size, _ in pairs), marks[-1] if marks else 1, 1)
    bins = min(_MOST_BARS, largest)
    counts = [0] * (bins + 1)
    for size, count in pairs:
        counts[min(bins, -(-size * bins // largest))] += count
    most, base = max(counts), _HEIGHT - _BOTTOM
    room = _WIDTH - 8 - _LEFT
    step = room / bins
    bars = "".join(
        f'<rect class="bar" x="{_LEFT + (i - 1) * step if i else _LEFT:.1f}" '
        f'y="{base - (base - _TOP) * count / most:.1f}" width="{max(1, step - 1):.1f}" '
        f'height="{(base - _TOP) * count / most:.1f}"/>'
        for i, count in enumerate(counts) if count)
    ticks = "".join(f'<path class="tick" d="M{_LEFT + size / largest * room:.1f} {_TOP}V{base + 6}"/>'
                    for size in marks[:_MOST_BARS])
    calls = sum(count for _, count in pairs)
    label = (f"Histogram of {name}: {units.plural(len(pairs), 'size')} from {pairs[0][0]} to "
             f"{pairs[-1][0]} in {units.plural(calls, 'call')}; padded to "
             f"{', '.join(map(str, marks[:12])) or 'nothing'}{' …' if len(marks) > 12 else ''}")
    return _frame("Calls by size; dashed: what sizes are padded to", label,
                  _axis_lines(f"size {largest}", units.short(most)) + bars + ticks)


def curve(name, points, now):
    """Padding by the number of buckets: a line of the cheapest lists, and a ring at the present
    list."""
    if not points:
        return ""
    wide = max(points[-1][0], now[0], 1)
    high = max([now[1], *(waste for _, waste in points)]) or 1
    base, room = _HEIGHT - _BOTTOM, _WIDTH - 16 - _LEFT

    def at(point):
        return f"{_LEFT + point[0] / wide * room:.1f}", f"{base - point[1] / high * (base - _TOP):.1f}"
    line = " ".join(",".join(at(point)) for point in points)
    dots = "".join('<circle class="point" r="2.5" cx="{}" cy="{}"/>'.format(*at(p)) for p in points)
    ring = '<circle class="ring" r="6" cx="{}" cy="{}"/>'.format(*at(now))
    label = (f"Padding of {name} by the number of buckets: now {now[0]} sizes and {100 * now[1]:.1f} %; "
             f"the cheapest lists from {100 * points[0][1]:.1f} % with 1 bucket to "
             f"{100 * points[-1][1]:.1f} % with {points[-1][0]}")
    return _frame("Padding of the cheapest lists by number of buckets; ring: now", label,
                  _axis_lines(f"{wide} buckets", f"{100 * high:.0f} %")
                  + f'<polyline class="curve" points="{line}"/>{dots}{ring}')
