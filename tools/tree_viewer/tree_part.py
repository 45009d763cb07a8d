"""The tree of recordings: a row for each, which opens to its details."""

import recording
import rows
import units
from markup import hue, name_of, text

_DEEPEST = 24  # columns drawn; deeper ones share the last
_PART = """\
<section class="part" id="recordings" aria-labelledby="recordings-title">
<div class="bar"><h2 id="recordings-title">Recordings</h2><div class="tools" hidden>\
<input type="search" placeholder="Filter by function or #id" aria-label="Filter recordings">\
<button type="button" data-open="all">Expand all</button>\
<button type="button" data-open="none">Collapse all</button></div></div>
{tree}</section>"""


def _rails(row):
    """The lines left of a row: passing columns, the line from above, and the line to below."""
    def rail(kind, column):
        return f'<i class="rail {kind}" style="--l:{min(column, _DEEPEST)}"></i>'
    found = [rail("pass", column) for column in row.through if column < _DEEPEST]
    if row.is_branch:
        found.append(rail("turn", row.column - 1))
    if row.follows:
        found.append(rail("above", row.column))
    if row.leads:
        found.append(rail("below", row.column))
    return "".join(found)


def _notes(row, nodes):
    notes = [recording.note(row.node)] if recording.note(row.node) else []
    elsewhere = rows.shared(row.node, nodes)
    if elsewhere and not row.leads:  # otherwise the tree shows a continuation, and the details have the rest
        names = [name_of(other) for other in elsewhere[:3]]
        more = f" and {len(elsewhere) - 3} more" if len(elsewhere) > 3 else ""
        notes.append(f"goes on with {', '.join(names)}{more}, recorded elsewhere")
    return "".join(f'<span class="note">{text(note)}</span>' for note in notes)


def _row(row, tree, nodes, most):
    node = row.node
    followers = [nodes[i] for i in node["followed_by"] if i != 0]
    live = sum(output.get("live", False) for output in node["outputs"])
    marks = '<span class="mark">ran last</span>' if node["id"] == tree["current"] else ""
    if live:
        marks += f'<span class="live">{live} held</span>'
    bar = f'<i class="meter" style="--part:{node["replays"] / most:.3f}"></i>' if node["replays"] else ""
    name = text(node["function"])
    return f"""\
<li class="node" id="node-{node["id"]}" data-subtree="{row.subtree}" style="--l:{min(row.column, _DEEPEST)};--h:{hue(node["function_id"])}">{_rails(row)}<i class="dot"></i>
<details><summary><span class="who"><span class="line"><b title="{name}">{name}</b>\
<span class="id">#{node["id"]}</span><span class="key">{text(node["signature"])}</span>{marks}</span>\
{_notes(row, nodes)}</span>\
<span class="num">{units.count(node["replays"])}{bar}</span><span class="num">{units.duration(node["record_us"])}</span>\
<span class="num">{units.size(node["footprint_bytes"])}</span><span class="num">{units.count(node["graph_nodes"])}</span></summary>
<div class="body"><section><h3>{text(name_of(node))}</h3>{recording.cause(node, nodes)}</section>
{recording.facts(node, followers)}{recording.inputs(node)}{recording.outputs(node)}{recording.scopes(node)}{recording.memory(node)}</div></details></li>
"""


def render(tree):
    nodes = {node["id"]: node for node in tree["nodes"]}
    if not nodes:
        return _PART.format(tree='<p class="empty">Nothing is recorded yet: the second call of a '
                                 "function records.</p>")
    most = max(node["replays"] for node in nodes.values())
    body = "".join(_row(row, tree, nodes, most) for row in rows.rows(tree))
    return _PART.format(
        tree='<div class="heads" aria-hidden="true"><span>Function</span><span>Replays</span>'
             "<span>Recorded in</span><span>Footprint</span><span>Graph nodes</span></div>"
             f'<ol class="tree">\n{body}</ol>')
