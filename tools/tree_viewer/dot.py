"""The tree as a Graphviz graph: a solid edge to a node after which it was recorded, a dashed one to a shared node."""

import units

_HEAD = """\
digraph cgtree {
  graph [fontname="Helvetica", nodesep=0.35, ranksep=0.45];
  node [fontname="Helvetica", fontsize=11, shape=box, style=rounded, margin="0.14,0.08", color="#8a939d"];
  edge [fontname="Helvetica", fontsize=9, color="#8a939d", fontcolor="#57606a", arrowsize=0.7];
  n0 [label="root", shape=plaintext, tooltip="nothing has run in this generation"];
"""
_LONGEST = 72  # characters of a line; the tooltip has all


def _quoted(text):
    """A string of DOT: names may hold anything; a backslash begins an escape, & an entity."""
    text = text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + text.replace("\r", " ").replace("\0", " ").replace("\n", "\\n") + '"'


def _line(text):
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[:_LONGEST - 1] + "…"


def _node(node):
    label = "\n".join([
        _line(f"{node['function']}") + f"  #{node['id']}",
        _line(node["signature"]),
        f"{units.plural(node['replays'], 'replay')}, {units.size(node['footprint_bytes'])}, "
        f"{units.plural(node['graph_nodes'], 'graph node')}"])
    return f"  n{node['id']} [label={_quoted(label)}, tooltip={_quoted(node['function'])}];\n"


def _edges(node):
    reason = "\n".join(change["text"] for change in node["cause"]["changes"])
    attributes = ""
    if reason:
        first, *more = reason.split("\n")
        label = _line(first) + (f"\nand {len(more)} more" if more else "")
        attributes = f" [label={_quoted(label)}, tooltip={_quoted(reason)}]"
    yield f"  n{node['parent']} -> n{node['id']}{attributes};\n"


def render(tree):
    parents = {node["id"]: node["parent"] for node in tree["nodes"]}
    lines = [_HEAD]
    for node in tree["nodes"]:
        lines.append(_node(node))
    for node in tree["nodes"]:
        lines.extend(_edges(node))
        for other in node["followed_by"]:
            if other != 0 and parents[other] != node["id"]:
                lines.append(f"  n{node['id']} -> n{other} [style=dashed, constraint=false];\n")
    return "".join(lines) + "}\n"
