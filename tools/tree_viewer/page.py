"""The page: one HTML file that needs nothing but itself, and no script to be read."""

import base64
import hashlib
import pathlib

import page_parts as parts
import rows
import units

_HERE = pathlib.Path(__file__).resolve().parent
_DEEPEST = 24  # columns drawn; deeper ones share the last
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · cgtree</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>{subtitle}</p>
</header>
<dl class="tiles">{tiles}</dl>
<main>
<div class="bar"><h2>Recordings</h2><div class="tools" hidden>\
<input type="search" placeholder="Filter by function or #id" aria-label="Filter recordings">\
<button type="button" data-open="all">Expand all</button>\
<button type="button" data-open="none">Collapse all</button></div></div>
{tree}
{functions}
</main>
<script>
{script}</script>
</body>
</html>
"""


def _rails(row):
    """The lines left of a row: columns that pass, what comes from above, what goes on below."""
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
    notes = [parts.note(row.node)] if parts.note(row.node) else []
    elsewhere = rows.shared(row.node, nodes)
    if elsewhere and not row.leads:  # else the tree shows a way on, and the details have the rest
        names = [f"{other['function']} #{other['id']}" for other in elsewhere[:3]]
        more = f" and {len(elsewhere) - 3} more" if len(elsewhere) > 3 else ""
        notes.append(f"goes on with {', '.join(names)}{more}, recorded elsewhere")
    return "".join(f'<span class="note">{parts.text(note)}</span>' for note in notes)


def _row(row, tree, nodes, most):
    node = row.node
    followers = [nodes[i] for i in node["followed_by"] if i != 0]
    live = sum(output.get("live", False) for output in node["outputs"])
    marks = '<span class="mark">ran last</span>' if node["id"] == tree["current"] else ""
    if live:
        marks += f'<span class="live">{live} held</span>'
    bar = f'<i class="meter" style="--part:{node["replays"] / most:.3f}"></i>' if node["replays"] else ""
    return f"""\
<li class="node" id="node-{node["id"]}" data-subtree="{row.subtree}" style="--l:{min(row.column, _DEEPEST)};--h:{parts.hue(node["function_id"])}">{_rails(row)}<i class="dot"></i>
<details><summary><span class="who"><span class="line"><b title="{parts.text(node["function"])}">{parts.text(node["function"])}</b>\
<span class="id">#{node["id"]}</span><span class="key">{parts.text(node["signature"])}</span>{marks}</span>\
{_notes(row, nodes)}</span>\
<span class="num">{units.count(node["replays"])}{bar}</span><span class="num">{units.duration(node["record_us"])}</span>\
<span class="num">{units.size(node["footprint_bytes"])}</span><span class="num">{units.count(node["graph_nodes"])}</span></summary>
<div class="body"><section><h4>{parts.text(node["function"])} #{node["id"]}</h4>{parts.cause(node, nodes)}</section>
{parts.facts(node, followers)}{parts.inputs(node)}{parts.outputs(node)}{parts.memory(node)}</div></details></li>
"""


def _tree(tree):
    nodes = {node["id"]: node for node in tree["nodes"]}
    if not nodes:
        return '<p class="empty">Nothing is recorded yet: the second call of a function records.</p>'
    most = max(node["replays"] for node in nodes.values())
    body = "".join(_row(row, tree, nodes, most) for row in rows.rows(tree))
    return ('<div class="heads" aria-hidden="true"><span>Function</span><span>Replays</span>'
            "<span>Recorded in</span><span>Footprint</span><span>Graph nodes</span></div>"
            f'<ol class="tree">\n{body}</ol>')


def _tiles(tree):
    calls = sum(function["calls"] for function in tree["functions"])
    replays = sum(function["replays"] for function in tree["functions"])
    graph = sum(node["estimated_graph_bytes"] for node in tree["nodes"])
    largest_first = sorted(((pool["reserved_bytes"]["current"], name)
                            for name, pool in tree["pools"].items()), reverse=True)
    pools = ", ".join(f"{name} {units.size(number)}" for number, name in largest_first)
    tiles = [("Recordings", units.count(len(tree["nodes"])),
              f"of at most {units.count(tree['max_recordings'])}"),
             ("Replayed", units.share(replays, calls) if calls else "–",
              f"of {units.plural(calls, 'call')}"),
             ("Pool memory", units.size(tree["reserved_bytes"]), pools),
             ("Graph memory", f"≈ {units.size(graph)}", "3 KiB per kernel node"),
             ("Held outputs", units.count(tree["live_outputs"]), units.size(tree["live_bytes"]))]
    return "".join(f"<div><dt>{name}</dt><dd><b>{value}</b><small>{parts.text(small)}</small></dd></div>"
                   for name, value, small in tiles)


def _read(name):
    return (_HERE / name).read_text(encoding="utf-8")


def render(tree, name):
    """Returns the page; `name` is the name of the snapshot, for the title."""
    script = _read("page.js")
    # The digest keeps any other script in the page from running.
    digest = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    subtitle = (f"{parts.text(tree['device'])} · {units.plural(len(tree['functions']), 'function')} · "
                f"generation {units.count(tree['generation'])} · "
                f"{units.plural(tree['restores'], 'restore')} of the pool")
    return _PAGE.format(title=parts.text(name), subtitle=subtitle, tiles=_tiles(tree),
                        tree=_tree(tree), functions=parts.functions(tree), script=script,
                        digest=digest, style=_read("page.css"))
