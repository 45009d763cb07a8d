"""The parts of the page: the details of a recording, and the table of functions."""

import html

import units


def text(value):
    """Escapes a value; everything that comes from the snapshot goes through here."""
    return html.escape(str(value))


def hue(function_id):
    """Returns a hue; the golden angle gives neighbours colours that are far apart."""
    return round(function_id * 137.508) % 360


def link(node):
    return f'<a href="#node-{node["id"]}">{text(node["function"])} #{node["id"]}</a>'


def _table(name, heads, rows):
    if not rows:
        return f'<section><h4>{name}</h4><p class="quiet">none</p></section>'
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (f'<section><h4>{name}</h4><div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div></section>")


def _code(value):
    return f"<code>{text(value)}</code>"


def _tag(kind, extra=""):
    return f'<span class="tag {text(kind)}">{text(kind.replace("_", " "))}{extra}</span>'


def inputs(node):
    rows = [(str(i), _tag(item["treatment"]) + (" mutated" if item["mutated"] else ""),
             text(item["dtype"]), _code(units.shape(item)), _code(units.address(item["address"])))
            for i, item in enumerate(node["inputs"])]
    return _table("Inputs", ["", "Treatment", "Type", "Shape", "Address"], rows)


def _held(item):
    if "live" not in item:
        return ""
    if not item["live"]:
        return '<span class="quiet">free</span>'
    holds = item.get("holds")
    whose = f' <span class="quiet">output {holds["output"]} of {text(holds["function"])}</span>'
    return '<span class="live">held</span>' + (whose if holds else "")


def outputs(node):
    rows = [(str(i), _tag(item["kind"], f' {item["index"]}' if "index" in item else ""),
             text(item["dtype"]), _code(units.shape(item)),
             _code(units.address(item["address"])) if "address" in item else "",
             units.size(item["bytes"]) if "bytes" in item else "", _held(item))
            for i, item in enumerate(node["outputs"])]
    return _table("Outputs", ["", "Kind", "Type", "Shape", "Address", "Size", "Now"], rows)


def memory(node):
    """Returns what its graph refers to, the foreign memory first; then what was not seen."""
    audit = node["audit"]
    rows = [(_tag("foreign", f' {text(item["kernel"])}'), text(item["place"]),
             _code(units.address(item["memory_address"] or item["address"])),
             units.size(item["memory_bytes"]) if item["memory_bytes"] else "",
             units.plural(item["nodes"], "node")) for item in audit["foreign"]]
    rows += [(_tag(item["owner"], f' {item["number"]}' if "number" in item else ""),
              text(item.get("text", "")), _code(units.address(item["address"])),
              units.size(item["bytes"]), units.plural(item["words"], "word"))
             for item in audit["memory"] if item["owner"] != "foreign"]
    rows += [(_tag("unseen"), text(item["what"]), "", "", units.plural(item["nodes"], "node"))
             for item in audit["unseen"]]
    return _table("Memory that it refers to", ["Whose", "", "Address", "Size", "By"], rows)


def cause(node, nodes):
    """Returns why it was recorded, in full."""
    nearest = node["cause"]["nearest"]
    if nearest == 0:
        return "<p>The first recording of this function.</p>"
    changes = "".join(f"<li>{text(change['text'])}</li>" for change in node["cause"]["changes"])
    name = link(nodes[nearest]) if nearest in nodes else f"#{nearest}, which was evicted"
    return f'<p>{name} could not be replayed:</p><ul class="changes">{changes}</ul>'


def note(node):
    """Returns why it was recorded, in one line; "" for a first recording."""
    changes = node["cause"]["changes"]
    if not changes:
        return ""
    more = f" (and {units.plural(len(changes) - 1, 'more change')})" if len(changes) > 1 else ""
    return f"instead of #{node['cause']['nearest']}: {changes[0]['text']}{more}"


def facts(node, followers):
    moved = f", inputs moved in {units.count(node['root_patches'])}" if node["root_patches"] else ""
    pairs = [("Replays", units.count(node["replays"]) + moved),
             ("Recorded in", units.duration(node["record_us"])),
             ("Graph", f"{units.plural(node['graph_nodes'], 'node')}, "
                       f"{units.plural(node['kernel_nodes'], 'kernel')}, "
                       f"about {units.size(node['estimated_graph_bytes'])}"),
             ("Footprint", f"{units.size(node['footprint_bytes'])} of the pool"),
             ("Key", _code(node["signature"] or "no inputs")),
             ("Followed by", ", ".join(map(link, followers)) or "nothing yet")]
    return "<dl>" + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in pairs) + "</dl>"


def functions(tree):
    rows = []
    for item in tree["functions"]:
        skips = [f'<span class="skip">{text(reason)} {units.count(number)}</span>'
                 for reason, number in item["skips"].items()]
        failure = item.get("capture_failure")
        name = (f'<div class="function"><i class="dot" style="--h:{hue(item["id"])}"></i>'
                f'<span>{text(item["name"])}</span></div>')
        if failure:
            name += f'<p class="failure">{text(failure)}</p>'
        numbers = [units.count(item[key]) for key in
                   ("calls", "replays", "recordings", "warm_ups", "failures")]
        rows.append((name, *numbers, "".join(skips) or '<span class="quiet">none</span>'))
    heads = ["Function", "Calls", "Replays", "Recordings", "Warm-ups", "Failures", "Skips"]
    return _table("Functions", heads, rows).replace("<h4>", "<h2>").replace("</h4>", "</h2>")
