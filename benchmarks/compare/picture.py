"""The main rows as a picture: a bar for cgtree and a bar for the best peer, on a logarithmic
scale."""

import html
import math

from programs import MAIN_ROWS, PEERS, PROGRAMS, rivals
from rows import best_of
from table import text_of

WIDTH, LABEL, VALUE, BAR, GAP = 800, 260, 220, 12, 16  # px; VALUE: the column of the bars' names
STYLE = """<style>text{font:12px sans-serif;fill:#222}.o{fill:#2a7f62}.p{fill:#b9bcc4}.a{stroke:#ddd}
@media(prefers-color-scheme:dark){text{fill:#ddd}.p{fill:#6b7080}.a{stroke:#444}}</style>"""


def bars_of(results):
    """Returns (label, cgtree's ns, the best peer's ns, its name) of the main rows that were
    measured."""
    programs = {program.result: program for program in PROGRAMS}
    bars = []
    for result, name, label in MAIN_ROWS:
        rows = results.get(result, {})
        rival = best_of(rows, rivals(programs[result], name)) if name in rows else None
        if rival:
            peer = next((text for start, text in PEERS.items() if rival[0].startswith(start)),
                        rival[0])
            bars.append((label, rows[name]["median"], rival[1]["median"], peer))
    return bars


def svg_of(results, title):
    """Returns the picture as SVG; it needs no network and no script."""
    bars = bars_of(results)
    if not bars:
        return None
    least = 10 ** math.floor(math.log10(min(min(ours, peer) for _, ours, peer, _ in bars)))
    most = max(max(ours, peer) for _, ours, peer, _ in bars)
    scale = (WIDTH - LABEL - VALUE) / math.log10(most / least)

    def length(value):
        return max(1, scale * math.log10(value / least))

    height = 60 + len(bars) * (2 * BAR + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img" '
             f'viewBox="0 0 {WIDTH} {height}" aria-label="{html.escape(title)}">', STYLE,
             f'<text x="8" y="20">{html.escape(title)}</text>']
    power = least
    while power <= most:
        x = LABEL + scale * math.log10(power / least)
        parts.append(f'<line class="a" x1="{x:.0f}" x2="{x:.0f}" y1="32" y2="{height - 18}"/>'
                     f'<text x="{x:.0f}" y="{height - 4}" text-anchor="middle">{text_of(power)}</text>')
        power *= 10
    for i, (label, ours, peer, name) in enumerate(bars):
        y = 38 + i * (2 * BAR + GAP)
        parts += [
            f'<text x="{LABEL - 8}" y="{y + BAR + 4}" text-anchor="end">{html.escape(label)}</text>',
            f'<rect class="o" x="{LABEL}" y="{y}" width="{length(ours):.0f}" height="{BAR}"/>',
            f'<rect class="p" x="{LABEL}" y="{y + BAR}" width="{length(peer):.0f}" height="{BAR}"/>',
            f'<text x="{WIDTH - VALUE + 8}" y="{y + BAR - 2}">cgtree {text_of(ours)}</text>',
            f'<text x="{WIDTH - VALUE + 8}" y="{y + 2 * BAR - 2}">{html.escape(name)} '
            f'{text_of(peer)} ({peer / ours:.1f} ×)</text>']
    return "\n".join(parts + ["</svg>", ""])
