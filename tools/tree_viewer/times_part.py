"""The times of scopes, from a profile of the snapshot's process."""

import scope_chart
import scopes
from markup import Number, quiet, section, table, text

_INTRO = ("What a profiler has measured of the nodes of each scope. The picture has an outer scope above those inside "
          "of it, each as wide as its time.")


def _row(name, launches, own, both, whole):
    return [name, Number(launches, f"{launches:,}"), Number(own, f"{own / 1e6:.3f}"),
            Number(both, f"{both / 1e6:.3f}"), Number(both, f"{both / whole:.1%}")]


def render(tree, profile):
    """`profile`: see profiles.Profile; or None."""
    if profile is None:
        return ""
    known = scopes.of(tree)
    times, rest = scopes.add_up(known, profile)
    if why := scopes.why_nothing(known, profile, times):
        return section("Times of scopes", f"<p>No launch of the profile is in a scope: {text(why)}.</p>")
    whole = max(1, sum(own for _, own, _ in times.values()) + rest[1])
    rows = [_row(text(path), launches, own, own + inner, whole)
            for path, (launches, own, inner) in scopes.in_order(times)]
    rows.append(_row(quiet("in no scope"), rest[0], rest[1], rest[1], whole))
    heads = ["Scope", "Launches", "Own ms", "With inner ms", "Share"]
    return section("Times of scopes",
                   scope_chart.render(times, rest) + table("Times of scopes", heads, rows, sorts=True), _INTRO)
