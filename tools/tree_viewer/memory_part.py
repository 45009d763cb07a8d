"""The maps of the pools: the contents, their holders, and the recordings that write them."""

import json

import memory_map
import units
from markup import Number, code, fold, hue, name_of, section, table, text

_INTRO = ("Each bar is a segment, drawn to scale. Point at a slot, or go there with Tab and the arrow "
          "keys, to see which recordings write it; point at a recording to see what it writes.")
_LEGEND = """\
<ul class="legend"><li><svg aria-hidden="true" class="swatch"><rect class="slot held" width="18" height="12"/></svg>held output, by function</li>\
<li><svg aria-hidden="true" class="swatch"><rect class="slot workspace" width="18" height="12"/></svg>workspace that a warm-up left</li>\
<li><svg aria-hidden="true" class="swatch"><rect class="slot free" width="18" height="12"/></svg>free slot</li>\
<li><svg aria-hidden="true" class="swatch"><rect class="area" style="--n:.7" width="18" height="12"/></svg>written by recordings, stronger by more of them</li>\
<li><svg aria-hidden="true" class="swatch"><rect class="block" width="18" height="12"/></svg>in use by eager calls</li></ul>"""
_ZOOM = """\
<div class="tools" role="group" aria-label="Zoom of the {name}" hidden><button type="button" data-zoom="0.5" aria-label="Zoom out">−</button>\
<button type="button" data-zoom="2" aria-label="Zoom in">+</button><button type="button" data-zoom="fit">Fit what is used</button>\
<button type="button" data-zoom="1">To scale</button></div>"""
_WIDTH = 10_000  # units that a segment is wide
_ROW, _GAP, _MOST_ROWS = 16, 2, 6


def _now(piece):
    if piece.kind != "slot":
        return ""
    if piece.state == "free":
        return "free"
    holds = piece.slot.get("holds")
    if piece.state == "workspace":
        return "workspace" + (f" that a warm-up of {holds['function']} left" if holds else "")
    return f"held: output {holds['output']} of {holds['function']}" if holds else "held"


def _label(piece):
    where = f"{units.size(piece.end - piece.begin)} at {units.address(piece.begin)}"
    if piece.kind == "block":
        return f"in use by eager calls, {where}"
    by = f"written by {units.plural(piece.count, 'recording')}"
    if piece.kind == "area":
        return f"{where}, {by}"
    uses = f"; {'; '.join(piece.uses[:3])}" if piece.uses else ""
    more = f" and {len(piece.uses) - 3} more uses" if len(piece.uses) > 3 else ""
    return f"slot {piece.slot['slot']}, {_now(piece)}, {where}, {by}{uses}{more}"


def _piece(piece, segment, top, height, hues, most):
    scale = _WIDTH / (segment.end - segment.begin)
    style = ""
    if piece.kind == "area":
        style = f' style="--n:{piece.count / most:.2f}"'
    elif piece.state == "held" and "holds" in piece.slot:
        style = f' style="--h:{hues.get(piece.slot["holds"]["function"], 210)}"'
    return (f'<rect role="option" class="{piece.kind} {piece.state}"{style} tabindex="-1" '
            f'x="{(piece.begin - segment.begin) * scale:.2f}" y="{top}" '
            f'width="{(piece.end - piece.begin) * scale:.2f}" height="{height}" '
            f'data-b="{piece.begin}" data-e="{piece.end}" aria-label="{text(_label(piece))}"/>')


def _strip(segment, largest, hues, most):
    pieces = sorted(segment.slots + segment.areas + segment.blocks, key=lambda piece: piece.begin)
    rows = min(_MOST_ROWS, 1 + max((slot.row for slot in segment.slots), default=0))
    tall = rows * _ROW
    has_below = segment.areas or not segment.blocks
    drawn = [_piece(piece, segment,
                    tall + _GAP if piece.kind == "area" else min(piece.row, rows - 1) * _ROW,
                    tall if piece.kind == "block" else _ROW - _GAP, hues, most) for piece in pieces]
    name = (f"Segment at {units.address(segment.begin)}, {units.size(segment.end - segment.begin)}, "
            f"{units.plural(len(segment.slots), 'slot')}")
    role = f'role="listbox" aria-label="{name}"' if pieces else f'role="img" aria-label="{name}, unused"'
    used = max((piece.end for piece in pieces), default=segment.begin) - segment.begin
    part = (segment.end - segment.begin) / largest
    return (f'<svg {role} class="strip" viewBox="0 0 {_WIDTH} {tall + _ROW * bool(has_below)}" '
            f'preserveAspectRatio="none" style="--w:{part:.6f};--tall:{tall + _ROW * bool(has_below)}px" '
            f'data-used="{used / largest:.9f}">{"".join(drawn)}</svg>')


def _slot_table(region, names):
    rows = []
    for segment in region.segments:
        for piece in segment.slots:
            who = ", ".join(names[i] for i in piece.writers[:8])
            more = f" and {len(piece.writers) - 8} more" if len(piece.writers) > 8 else ""
            rows.append([str(piece.slot["slot"]), code(units.address(piece.begin)),
                         Number(piece.end - piece.begin, units.size(piece.end - piece.begin)),
                         text(_now(piece)), who + more or "no recording",
                         text("; ".join(piece.uses[:8])) or "–"])
    heads = ["Slot", "Address", "Size", "Now", "Written by", "Used as"]
    return table(f"Slots of the {region.title.lower()}", heads, rows, sorts=True) if rows else ""


def _segment_table(region):
    def bytes_of(pieces):
        size = sum(piece.end - piece.begin for piece in pieces)
        return Number(size, units.size(size))
    rows = [[code(units.address(segment.begin)),
             Number(segment.end - segment.begin, units.size(segment.end - segment.begin)),
             Number(len(segment.slots), units.count(len(segment.slots))),
             bytes_of([slot for slot in segment.slots if slot.state != "free"]),
             bytes_of(segment.areas), bytes_of(segment.blocks)] for segment in region.segments]
    return table(f"Segments of the {region.title.lower()}",
                 ["Segment", "Size", "Slots", "Held", "Written by recordings", "In use by eager calls"],
                 rows, sorts=True)


def _region(region, tree, hues, names):
    largest = max((segment.end - segment.begin for segment in region.segments), default=0)
    if not largest:
        return f"<h3>{text(region.title)}</h3><p class='quiet'>It holds no memory.</p>"
    most = max((area.count for segment in region.segments for area in segment.areas), default=1)
    ranges = [(segment.begin, segment.end) for segment in region.segments]
    writers = [node for node in tree["nodes"] if any(
        begin < item["address"] + item["bytes"] and item["address"] < end
        for item in node.get("footprint", []) for begin, end in ranges)]
    chips = "".join(f'<li><a href="#node-{node["id"]}" data-node="{node["id"]}" '
                    f'style="--h:{hue(node["function_id"])}">{text(name_of(node))}</a></li>'
                    for node in writers)
    held = f'<ul class="chips" aria-label="Recordings that write here">{chips}</ul>' if chips else ""
    strips = "".join(_strip(segment, largest, hues, most) for segment in region.segments)
    size = sum(segment.end - segment.begin for segment in region.segments)
    slots = sum(len(segment.slots) for segment in region.segments)
    tables = _segment_table(region) + _slot_table(region, names)
    return f"""\
<div class="region"><div class="bar"><h3>{text(region.title)}: {units.size(size)} in \
{units.plural(len(region.segments), "segment")}</h3>{_ZOOM.format(name=text(region.title.lower()))}</div>
<div class="strips">{strips}</div><p class="about" hidden></p>{held}
{fold(f"The {region.title.lower()} as tables ({units.plural(slots, 'slot')})", tables)}</div>"""


def render(tree):
    if not memory_map.has_map(tree):
        return ""
    hues = {function["name"]: hue(function["id"]) for function in tree["functions"]}
    names = {node["id"]: f'<a href="#node-{node["id"]}">#{node["id"]}</a>' for node in tree["nodes"]}
    ranges = {node["id"]: [[item["address"], item["address"] + item["bytes"]]
                           for item in node.get("footprint", [])] for node in tree["nodes"]}
    data = json.dumps(ranges, separators=(",", ":"))  # numbers only: nothing to escape
    body = "".join(_region(region, tree, hues, names) for region in memory_map.regions(tree))
    return section("Memory", f'{_LEGEND}{body}<script type="application/json" id="footprints">{data}</script>',
                   _INTRO)
