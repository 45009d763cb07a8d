"""The page: one HTML file that needs no other file, and no script for reading."""

import base64
import hashlib
import pathlib
import re

import axes_part
import compare_part
import costs
import foreign_part
import memory_part
import snapshot
import timeline_part
import times_part
import tree_part
import units
import why_part
from markup import text

_HERE = pathlib.Path(__file__).resolve().parent
_STYLES = ["page.css", "parts.css", "memory.css"]
_SCRIPTS = ["page.js", "tables.js", "memory.js"]
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
<a class="skip-link" href="#main">Skip to the content</a>
<header>
<h1>{title}</h1>
<p>{subtitle}</p>
</header>
<section aria-label="In short"><dl class="tiles">{tiles}</dl></section>
{notes}{contents}<main id="main" tabindex="-1">
{parts}
</main>
<script>
{script}</script>
</body>
</html>
"""


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
             ("Graph memory", f"≈ {units.size(graph)}", "estimated from branches and nodes"),
             ("Held outputs", units.count(tree["live_outputs"]), units.size(tree["live_bytes"]))]
    return "".join(f"<div><dt>{name}</dt><dd><b>{value}</b><small>{text(small)}</small></dd></div>"
                   for name, value, small in tiles)


def _notes(notes):
    if not notes:
        return ""
    items = "".join(f"<li>{text(note)}</li>" for note in notes)
    return f'<section class="notes" aria-label="What is not shown"><ul>{items}</ul></section>\n'


def _contents(parts):
    """Returns links to the parts, each of which begins with its id and has one h2."""
    titles = [(re.search(r'id="([^"]+)"', part)[1], re.search(r"<h2[^>]*>([^<]*)</h2>", part)[1])
              for part in parts]
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in titles)
    return f'<nav aria-label="Parts of the page"><ul>{links}</ul></nav>\n'


def _read(names):
    return "".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def render(tree, name, event_files=(), before=None, profile=None):
    """Returns the page; `name` is the name of the snapshot, for the title.

    `event_files`: see events.EventFile. `before`: an earlier snapshot and its name, or None.
    `profile`: see profiles.Profile, or None.
    """
    script = _read(_SCRIPTS)
    # The digest keeps any other script in the page from running.
    digest = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    when = f"{units.moment(tree['time_us'])} · " if "time_us" in tree else ""
    name_and_device = dict.fromkeys([tree.get("context", tree["device"]), tree["device"]])
    subtitle = (f"{when}{text(' · '.join(name_and_device))} · {units.plural(len(tree['functions']), 'function')} · "
                f"generation {units.count(tree['generation'])} · "
                f"{units.plural(tree['restores'], 'restore')} of the pool")
    notes = snapshot.not_shown(tree) + [problem for file in event_files for problem in file.problems]
    parts = [compare_part.render(before[0], tree, before[1]) if before else "",
             why_part.render(tree), tree_part.render(tree), times_part.render(tree, profile), memory_part.render(tree), costs.render(tree),
             axes_part.render(tree), foreign_part.render(tree), timeline_part.render(event_files),
             costs.functions_part(tree)]
    parts = [part for part in parts if part]
    return _PAGE.format(title=text(name), subtitle=subtitle, tiles=_tiles(tree), notes=_notes(notes),
                        contents=_contents(parts), parts="\n".join(parts), script=script,
                        digest=digest, style=_read(_STYLES))
