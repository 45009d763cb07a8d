"""The times of scopes as a picture: an outer scope lies above its inner scopes, each as wide as its time."""

import html
import re

import scopes

_WIDTH, _ROW, _GAP = 960, 22, 2
_BYTE = 7         # the width of a character, about
_LEAST = 0.5      # narrower scopes are left out
_MOST_ROWS = 16
_STYLE = """\
.scope-times { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.scope-times rect { fill: #d4e5f7; stroke: #fff; } .scope-times rect.none { fill: #e4e7ea; }
.scope-times text { fill: #14212e; }
@media (prefers-color-scheme: dark) {
.scope-times rect { fill: #234a70; stroke: #14171b; } .scope-times rect.none { fill: #3a4148; }
.scope-times text { fill: #eef3f8; } }"""


def _escaped(value):
    """Names come from the caller; XML has no control characters and no halves of pairs."""
    return html.escape(re.sub("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", value))


def _box(name, launches, ns, whole, x, row, kind=""):
    """Returns one scope; pointing at it shows the numbers."""
    wide = ns / whole * _WIDTH
    room = int((wide - 10) / _BYTE)
    label = name if len(name) <= room else name[:room - 1] + "…" if room >= 4 else ""
    shown = f'<text x="{x + 5:.1f}" y="{row * _ROW + 15}">{_escaped(label)}</text>' if label else ""
    told = f"{name}: {ns / 1e6:.3f} ms, {ns / whole:.1%}" + (f", {launches:,} launches" if launches else "")
    return (f'<g><title>{_escaped(told)}</title><rect{kind} x="{x:.1f}" y="{row * _ROW}" width="{wide:.1f}" '
            f'height="{_ROW - _GAP}"/>{shown}</g>')


def render(times, rest):
    """Returns an SVG. `times` and `rest`: see scopes.add_up(); not all of them 0 ns."""
    whole = max(1, sum(own for _, own, _ in times.values()) + rest[1])
    boxes, ends, rows = [], {"": 0.0}, 1  # by path, the position of its next inner scope
    for path, (launches, own, inner) in scopes.in_order(times):
        outer = path.rpartition("/")[0]
        x, row = ends[outer], path.count("/") if outer else 0
        ends[outer] = x + (own + inner) / whole * _WIDTH
        ends[path] = x
        if row >= _MOST_ROWS or (own + inner) / whole * _WIDTH < _LEAST:
            continue
        rows = max(rows, row + 1)
        boxes.append(_box(path[len(outer) + 1 if outer else 0:], launches, own + inner, whole, x, row))
    if rest[1]:
        boxes.append(_box("(in no scope)", rest[0], rest[1], whole, ends[""], 0, ' class="none"'))
    high = rows * _ROW
    longest = scopes.in_order(times)[0][0] if times else "(in no scope)"
    label = f"{whole / 1e6:.3f} ms of the device in {len(times)} scopes; the longest is {longest}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="scope-times" role="img" aria-label="{_escaped(label)}" '
            f'viewBox="0 0 {_WIDTH} {high}" width="100%"><style>{_STYLE}</style>{"".join(boxes)}</svg>\n')
