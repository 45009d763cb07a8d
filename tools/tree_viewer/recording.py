"""The details of one recording: its cause, costs, inputs, outputs, and memory."""

import collections

import markup
import units
from markup import code, link, quiet, text


def _table(name, heads, rows):
    return f"<section>{markup.table(name, heads, rows, headed=False)}</section>"


def _tag(kind, extra=""):
    return f'<span class="tag {text(kind)}">{text(kind.replace("_", " "))}{extra}</span>'


def inputs(node):
    rows = [(str(i), _tag(item["treatment"]) + (" mutated" if item["mutated"] else ""),
             text(item["dtype"]), code(units.shape(item)), code(units.address(item["address"])))
            for i, item in enumerate(node["inputs"])]
    return _table("Inputs", ["#", "Treatment", "Type", "Shape", "Address"], rows)


def _held(item):
    if "live" not in item:
        return ""
    if not item["live"]:
        return quiet("free")
    holds = item.get("holds")
    whose = " " + quiet(f"output {holds['output']} of {holds['function']}") if holds else ""
    return '<span class="live">held</span>' + whose


def outputs(node):
    rows = [(str(i), _tag(item["kind"], f' {item["index"]}' if "index" in item else ""),
             text(item["dtype"]), code(units.shape(item)),
             code(units.address(item["address"])) if "address" in item else "",
             units.size(item["bytes"]) if "bytes" in item else "", _held(item))
            for i, item in enumerate(node["outputs"])]
    return _table("Outputs", ["#", "Kind", "Type", "Shape", "Address", "Size", "Now"], rows)


def memory(node):
    """Returns the memory to which its graph refers, the foreign memory first; then the unseen
    nodes."""
    audit = node.get("audit", {"memory": [], "foreign": [], "unseen": []})
    rows = [(_tag("foreign", f' {text(item["kernel"])}'), text(item["place"]),
             code(units.address(item["memory_address"] or item["address"])),
             units.size(item["memory_bytes"]) if item["memory_bytes"] else "",
             units.plural(item["nodes"], "node")) for item in audit["foreign"]]
    rows += [(_tag(item["owner"], f' {item["number"]}' if "number" in item else ""),
              text(item.get("text", "")), code(units.address(item["address"])),
              units.size(item["bytes"]), units.plural(item["words"], "word"))
             for item in audit["memory"] if item["owner"] != "foreign"]
    rows += [(_tag("unseen"), text(item["what"]), "", "", units.plural(item["nodes"], "node"))
             for item in audit["unseen"]]
    return _table("Memory that it refers to", ["Whose", "Which", "Address", "Size", "By"], rows)


def scopes(node):
    """Returns how many nodes were captured in each scope, and their kernels; "" without scopes."""
    table = node.get("scopes")
    if table is None:
        return ""
    found = collections.defaultdict(lambda: (collections.Counter(), collections.Counter()))
    for kind, kernel, path in zip(table["node_types"], table["node_kernels"], table["node_paths"]):
        if path >= len(table["paths"]):
            continue
        kinds, kernels = found[table["paths"][path]]
        kinds[kind] += 1
        if 0 < kernel < len(table["kernels"]):
            kernels[table["kernels"][kernel]] += 1
    rows = []
    for path, (kinds, kernels) in found.items():
        most = ", ".join(f"{text(name)} ×{count}" if count > 1 else text(name)
                         for name, count in kernels.most_common(3))
        more = quiet(f" and {len(kernels) - 3} more") if len(kernels) > 3 else ""
        rows.append((text(path) or quiet("in no scope"),
                     ", ".join(f"{units.count(count)} {text(kind.replace('_', ' '))}"
                               for kind, count in kinds.most_common()), most + more))
    return _table("Scopes", ["Scope", "Nodes", "Kernels"], rows)


# For a recording without differences.
FIRST = "the first recording of its function, or one that was dropped and is made again"


def cause(node, nodes):
    """Returns the cause of the recording, in full."""
    nearest = node["cause"]["nearest"]
    if nearest == 0:
        return f"<p>{FIRST.capitalize()}.</p>"
    changes = "".join(f"<li>{text(change['text'])}</li>" for change in node["cause"]["changes"])
    name = link(nodes[nearest]) if nearest in nodes else f"#{nearest}, which was evicted"
    return f'<p>{name} could not be replayed:</p><ul class="changes">{changes}</ul>'


def note(node):
    """Returns the cause of the recording, in one line; "" for a first recording."""
    changes = node["cause"]["changes"]
    if not changes:
        return ""
    more = f" (and {units.plural(len(changes) - 1, 'more change')})" if len(changes) > 1 else ""
    return f"instead of #{node['cause']['nearest']}: {changes[0]['text']}{more}"


def facts(node, followers):
    moved = f", inputs moved in {units.count(node['root_patches'])}" if node["root_patches"] else ""
    pairs = [("Replays", units.count(node["replays"]) + moved),
             ("Recorded in", units.duration(node["record_us"]))]
    if "recorded_at_us" in node:
        pairs.append(("Recorded at", units.moment(node["recorded_at_us"])))
    pairs += [("Graph", f"{units.plural(node['graph_nodes'], 'node')}, "
                        f"{units.plural(node['kernel_nodes'], 'kernel')}, "
                        f"about {units.size(node['estimated_graph_bytes'])}"),
              ("Footprint", f"{units.size(node['footprint_bytes'])} of the pool"),
              ("Key", code(node["signature"] or "no inputs")),
              ("Followed by", ", ".join(map(link, followers)) or "nothing yet")]
    return "<dl>" + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in pairs) + "</dl>"
