"""The part of the page with the changes since an earlier snapshot."""

import compare
import costs
import recording
import units
from markup import Number, link, name_of, section, table, text

_COUNTS = ("calls", "replays", "recordings", "failures", "evictions")


def _change(before, after, show=units.count):
    if before == after:
        return Number(0, f'<span class="quiet">{show(after)}</span>')
    kind = "more" if after > before else "less"
    return Number(after - before, f'{show(after)} <span class="{kind}">{units.signed(after - before, show)}</span>')


def _totals(before, after, pools):
    keys = [("Recordings", len(before["nodes"]), len(after["nodes"]), units.count),
            ("Graph memory", *(sum(node["estimated_graph_bytes"] for node in tree["nodes"])
                               for tree in (before, after)), units.size),
            ("Held outputs", before["live_outputs"], after["live_outputs"], units.count),
            ("Held bytes", before["live_bytes"], after["live_bytes"], units.size),
            *((f"Pool {name}", was, now, units.size) for name, was, now in pools)]
    return table("In all", ["What", "Before", "Now"],
                 [[text(name), Number(was, show(was)), _change(was, now, show)]
                  for name, was, now, show in keys])


def _own_bytes(tree):
    return {function["id"]: cost.own_bytes for function, cost in costs.costs(tree)[0]}


def _functions(found, trees):
    rows, memory = [], [_own_bytes(tree) for tree in trees]
    for name, before, after in found:
        own = [of.get(function["id"], 0) if function else 0
               for of, function in zip(memory, (before, after))]
        if before and after and own[0] == own[1] and all(
                before.get(key, 0) == after.get(key, 0) for key in _COUNTS):
            continue
        how = "came" if before is None else "went" if after is None else ""
        rows.append([text(name) + (f' <span class="mark">{how}</span>' if how else ""),
                     *(_change((before or {}).get(key, 0), (after or {}).get(key, 0)) for key in _COUNTS),
                     _change(*own, units.size)])
    return table("Functions that changed",
                 ["Function", *(key.capitalize() for key in _COUNTS), "Own memory"], rows, sorts=True)


def _recordings(caption, nodes, show):
    return table(caption, ["Recording", "Signature", "Why it was recorded", "Replays", "Footprint"],
                 [[show(node), f"<code>{text(node['signature'])}</code>",
                   text(recording.note(node)) or recording.FIRST,
                   Number(node["replays"], units.count(node["replays"])),
                   Number(node["footprint_bytes"], units.size(node["footprint_bytes"]))] for node in nodes],
                 sorts=True)


def _idle(stayed):
    rows = [[link(after), f"<code>{text(after['signature'])}</code>",
             Number(after["replays"], units.count(after["replays"])),
             Number(after["footprint_bytes"], units.size(after["footprint_bytes"])),
             Number(after["estimated_graph_bytes"], units.size(after["estimated_graph_bytes"]))]
            for before, after in stayed if before["replays"] == after["replays"]]
    return table("Recordings that were not replayed in between",
                 ["Recording", "Signature", "Replays", "Footprint", "Graph"], rows, sorts=True)


def render(before, after, name):
    found = compare.difference(before, after)
    intro = f"Compared with {text(name)}"
    if "time_us" in before and "time_us" in after:
        seconds = after["time_us"] - before["time_us"]
        intro += (f", which was taken {units.duration(abs(seconds))} "
                  f"{'before' if seconds >= 0 else 'after this snapshot'}")
    intro += "." if found.same_context else (
        ". It is of another context: recordings are taken for the same if function and signature are.")
    body = (_totals(before, after, found.pools) + _functions(found.functions, (before, after))
            + _recordings("Recordings that came", found.came, link)
            + _recordings("Recordings that went", found.went, lambda node: text(name_of(node))))
    if found.same_context:
        body += _idle(found.stayed)
    return section("Changes", body, intro)
