"""Pieces of HTML that the parts of the page share."""

import html
import re

MOST_ROWS = 10_000  # of one table; the rest is counted


def text(value):
    """Escapes a value; everything that comes from a file goes through here."""
    return html.escape(str(value))


def hue(function_id):
    """Returns a hue; the golden angle gives neighbours colours that are far apart."""
    return round(function_id * 137.508) % 360


def dot(function_id):
    return f'<i class="dot" style="--h:{hue(function_id)}"></i>'


def code(value):
    return f"<code>{text(value)}</code>"


def quiet(value):
    return f'<span class="quiet">{text(value)}</span>'


def name_of(node):
    return f"{node['function']} #{node['id']}"


def link(node):
    return f'<a href="#node-{node["id"]}">{text(name_of(node))}</a>'


class Number:
    """A cell that is sorted by `value` and shows `shown`, which is HTML."""

    def __init__(self, value, shown):
        self.value, self.shown = value, shown


def _cell(cell, number, heading):
    if isinstance(cell, Number):
        return f'<td class="num" data-v="{cell.value:.12g}">{cell.shown}</td>'
    tag = 'th scope="row"' if heading else "td"
    return f"<{tag}>{cell}</{tag.split()[0]}>"


def table(caption, heads, rows, sorts=False, headed=True):
    """Returns a table. Cells are HTML, or Numbers; the first cell of a row is its heading if `headed`."""
    if not rows:
        return f'<p class="quiet">{text(caption)}: none.</p>'
    shown, rest = rows[:MOST_ROWS], len(rows) - MOST_ROWS
    numeric = [isinstance(cell, Number) for cell in shown[0]]
    head = "".join(f'<th scope="col"{" class=num" if is_number else ""}>{text(cell)}</th>'
                   for cell, is_number in zip(heads, numeric))
    body = "".join("<tr>" + "".join(_cell(cell, i, headed and i == 0) for i, cell in enumerate(row))
                   + "</tr>" for row in shown)
    more = f'<p class="quiet">{rest:,} more rows are not shown.</p>' if rest > 0 else ""
    return (f'<div class="scroll" role="group" tabindex="0" aria-label="{text(caption)}">'
            f'<table{" data-sorts" if sorts else ""}><caption>{text(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}")


def section(title, body, intro=""):
    """Returns a part of the page, which navigation can go to."""
    name = anchor(title)
    about = f'<p class="intro">{intro}</p>' if intro else ""
    return (f'<section class="part" id="{name}" aria-labelledby="{name}-title">'
            f'<h2 id="{name}-title">{text(title)}</h2>{about}{body}</section>')


def anchor(title):
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def fold(summary, body):
    return f'<details class="fold"><summary>{text(summary)}</summary>{body}</details>'
