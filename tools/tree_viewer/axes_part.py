"""Dynamic axes: the sizes of calls, their padding, and the padding by other lists."""

import buckets
import charts
import units
from markup import Number, fold, link, section, table, text

_INTRO = ("Padding is how much larger the sizes are made, summed over all calls that are padded. The "
          "lists that pad least are exact; <code>suggest_buckets()</code> returns the same.")
_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # buckets
_SHOWN_SIZES = 24  # of a list


def _policy(axis):
    all_sizes = axis.get("buckets", axis.get("allowed", []))
    sizes = ", ".join(map(str, all_sizes[:_SHOWN_SIZES]))
    more = len(all_sizes) - _SHOWN_SIZES
    sizes += f" and {more} more" if more > 0 else ""
    limit = f", at most {units.count(axis['max_sizes'])} sizes" if "max_sizes" in axis else ""
    return {"exact": "Each size has recordings of its own" + limit,
            "allow_list": f"Recorded sizes: {sizes}; others run eagerly",
            "skip": "Runs eagerly as soon as the size varies",
            "buckets": f"Padded to {sizes}",
            "multiples": f"Padded to multiples of {axis.get('multiple_of')}",
            "powers_of_two": "Padded to powers of two"}[axis["policy"]]


def _waste(padding):
    return Number(padding.waste(), f"{100 * padding.waste():.1f} %")


def _row(name, padding, sizes):
    shown = ", ".join(map(str, sizes[:_SHOWN_SIZES])) + (" …" if len(sizes) > _SHOWN_SIZES else "")
    return [text(name), Number(len(padding.sizes), units.count(len(padding.sizes))), _waste(padding),
            Number(padding.eager, units.count(padding.eager)), text(shown)]


def _alternatives(axis, histogram):
    """Returns the rows of the table and [(buckets, waste)] of the cheapest lists."""
    now = buckets.Padding(histogram, lambda size: buckets.rounded(axis, size))
    rows = [_row("as it is", now, sorted(now.sizes))]
    if axis["policy"] != "powers_of_two":
        powers = buckets.Padding(
            histogram, lambda size: buckets.rounded({"policy": "powers_of_two"}, size))
        rows.append(_row("powers of two", powers, sorted(powers.sizes)))
    lists = buckets.suggested(histogram, max(_TRIED))
    curve = []
    for sizes in lists:
        padding = buckets.of_list(histogram, sizes)
        curve.append((len(sizes), padding.waste()))
        if len(sizes) in _TRIED or len(sizes) == len(lists):
            rows.append(_row(f"cheapest, {units.plural(len(sizes), 'bucket')}", padding, sizes))
    exact = buckets.Padding(histogram, lambda size: size)
    if len(lists) < len(exact.sizes):
        rows.append(_row("each size by itself", exact, sorted(exact.sizes)))
    return now, rows, curve


def _sizes(axis, histogram, nodes):
    """Returns the table of the sizes that calls had after padding, with the recordings of each."""
    calls, actual = {}, {}
    for size, count in histogram:
        to = buckets.rounded(axis, size)
        calls[to] = calls.get(to, 0) + count
        actual[to] = actual.get(to, 0) + size * count
    recorded = {}
    for node in nodes:
        if axis["axis"] in node.get("padded", {}):
            recorded.setdefault(node["padded"][axis["axis"]], []).append(node)
    rows = []
    for size in sorted({*calls, *recorded} - {None}):
        those = recorded.get(size, [])
        waste = size * calls.get(size, 0) / actual[size] - 1 if actual.get(size) else 0
        links = ", ".join(link(node) for node in those[:6])
        links += f" and {len(those) - 6} more" if len(those) > 6 else ""
        rows.append([str(size), Number(calls.get(size, 0), units.count(calls.get(size, 0))),
                     Number(waste, f"{100 * waste:.1f} %"),
                     Number(sum(node["replays"] for node in those),
                            units.count(sum(node["replays"] for node in those))), links or "none"])
    if None in calls:
        rows.append(["runs eagerly", Number(calls[None], units.count(calls[None])), Number(0, "–"),
                     Number(0, "–"), "none"])
    return table("Sizes that the step function sees", ["Size", "Calls", "Padding", "Replays", "Recordings"],
                 rows, sorts=True)


def _axis(function, axis, nodes):
    kind = "key" if axis["of_key"] else "axis"
    name = f"{function['name']}: {kind} '{axis['axis']}'"
    histogram = [pair for pair in axis["sizes"] if pair[1] > 0]
    lost = f" {units.count(axis['uncounted'])} calls had further sizes, which were not counted." \
        if axis["uncounted"] else ""
    title = f"<h3>{text(name)}</h3><p>{text(_policy(axis))}.{lost}</p>"
    if not histogram:
        return title + '<p class="quiet">No call has had a size yet.</p>'
    now, rows, curve = _alternatives(axis, histogram)
    marks = sorted(now.sizes)
    heads = ["Sizes", "Recorded sizes", "Padding", "Calls that run eagerly", "List"]
    counts = table(f"Sizes of {name} as they came", ["Size", "Calls", "Padded to"],
                   [[str(size), Number(count, units.count(count)), str(buckets.rounded(axis, size) or "eagerly")]
                    for size, count in histogram], sorts=True)
    return (f'<div class="axis">{title}<div class="charts">{charts.histogram(name, histogram, marks)}'
            f"{charts.curve(name, curve, (len(marks), now.waste()))}</div>"
            + table(f"What other lists would pad: {name}", heads, rows)
            + fold("What is recorded for which size, and which sizes came",
                   _sizes(axis, histogram, nodes) + counts) + "</div>")


def render(tree):
    parts = [_axis(function, axis, [node for node in tree["nodes"]
                                    if node["function_id"] == function["id"]])
             for function in tree["functions"] for axis in function.get("axes", [])]
    return section("Axes", "".join(parts), _INTRO) if parts else ""
