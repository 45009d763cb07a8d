"""Joins the nodes of snapshots, which have scopes, with the launches of a profile, which have times."""

import collections
import dataclasses
import json


class BadSnapshot(Exception):
    """The message names the file."""


@dataclasses.dataclass
class Known:
    """Facts about nodes from snapshots. Profilers give a node of a graph and its clone in the executable graph
    different numbers."""
    paths: dict = dataclasses.field(default_factory=dict)  # by number, of both kinds
    has_scopes: bool = False
    doubtful: set = dataclasses.field(default_factory=set)  # numbers that two nodes with other paths have


def _add(known, number, path):
    if not isinstance(path, str):
        raise TypeError("a path is no text")
    if not number:
        return
    if known.paths.setdefault(number, path) != path:
        known.doubtful.add(number)


def of(snapshot, known=None):
    """Returns the Known of a snapshot, merged with `known`. Numbers without a path are left
    out."""
    known = known or Known()
    for node in snapshot["nodes"]:
        scopes = node.get("scopes")
        if not scopes:
            continue
        known.has_scopes = True
        for column in ("node_ids", "exec_node_ids"):
            for number, index in zip(scopes.get(column, []), scopes["node_paths"]):
                if 0 <= index < len(scopes["paths"]):
                    _add(known, number, scopes["paths"][index])
    return known


def read(paths):
    """Returns the Known of the files. Raises BadSnapshot."""
    known = Known()
    for path in paths:
        try:
            snapshot = json.loads(path.read_text(encoding="utf-8"))
            if snapshot["schema"] != "cgtree.snapshot":
                raise KeyError("schema")
            known = of(snapshot, known)
        except OSError as error:
            raise BadSnapshot(f"cannot read '{path}': {error.strerror}") from None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            raise BadSnapshot(f"'{path}' is no snapshot of a context") from None
    return known


def add_up(known, profile):
    """Returns ({path: [launches, own ns, ns of inner scopes]}, [launches, ns] of the rest)."""
    times = collections.defaultdict(lambda: [0, 0, 0])
    rest = [0, 0]
    for launch in profile.launches:
        path = ""
        for number in profile.numbers_of(launch):
            if number in known.paths and number not in known.doubtful:
                path = known.paths[number]
                break
        if not path:
            rest[0] += 1
            rest[1] += launch.ns
            continue
        times[path][0] += 1
        times[path][1] += launch.ns
        while path := path.rpartition("/")[0]:  # a name may begin with '/', and "" is outside of scopes
            times[path][2] += launch.ns
    return dict(times), rest


def in_order(times):
    """Returns the items: a scope before its inner scopes, and among siblings the longest first."""
    def key(item):
        parts = item[0].split("/")
        outer = ["/".join(parts[:i]) for i in range(1, len(parts) + 1)]
        return [(-sum(times[path][1:]), path) for path in outer if path]  # a name may begin with '/'
    return sorted(times.items(), key=key)


def why_nothing(known, profile, times):
    """Returns the reason why no launch is in a scope, or ""."""
    if times:
        return ""
    if not known.has_scopes:
        return "no recording of the snapshot has scopes: open cgtree::Scope in step functions"
    if not known.paths:
        return ("the snapshot has no numbers of nodes: they come from CUPTI, which the profiled process did "
                "not find (libcupti.so), or its device is not cuda")
    if not any(launch.node for launch in profile.launches):
        return ("no launch of the profile has the number of a node: profile with --cuda-graph-trace=node, or "
                "with a PyTorch profiler that writes 'graph node id'")
    return ("no number of the profile is in the snapshot: take it in the process that was profiled, after its "
            "recordings were made")
