"""The changes between two snapshots, as data."""

import collections
import dataclasses


@dataclasses.dataclass
class Difference:
    same_context: bool  # the later snapshot is of the same context: recordings are the same by id
    came: list          # nodes only in the later one
    went: list          # nodes only in the earlier one
    stayed: list        # pairs of nodes
    functions: list     # (name, earlier or None, later or None)
    pools: list         # (name, bytes before, bytes now)


def _identity(node):
    return node["id"], node["function"], node["signature"], node["record_us"]


def _matched(before, after, key):
    """Pairs the items of two lists that have the same key, in order; returns pairs and both rests."""
    waiting = collections.defaultdict(collections.deque)
    for item in before:
        waiting[key(item)].append(item)
    pairs, only_after = [], []
    for item in after:
        queue = waiting[key(item)]
        if queue:
            pairs.append((queue.popleft(), item))
        else:
            only_after.append(item)
    left = {id(item) for queue in waiting.values() for item in queue}
    return pairs, [item for item in before if id(item) in left], only_after


def _is_same_context(before, after):
    """Returns whether recordings have stayed, or all were evicted: later recordings have higher
    ids."""
    known = {_identity(node) for node in before["nodes"]}
    if not known or not after["nodes"] or any(_identity(node) in known for node in after["nodes"]):
        return True
    return min(node["id"] for node in after["nodes"]) > max(node["id"] for node in before["nodes"])


def difference(before, after):
    """Recordings of one context are matched by id. Those of two contexts are matched by function
    and signature."""
    same = _is_same_context(before, after)
    key = _identity if same else lambda node: (node["function"], node["signature"])
    stayed, went, came = _matched(before["nodes"], after["nodes"], key)
    by_name = lambda function: (function["id"], function["name"]) if same else function["name"]  # noqa: E731
    pairs, gone, new = _matched(before["functions"], after["functions"], by_name)
    functions = ([(b["name"], a, b) for a, b in pairs] + [(f["name"], None, f) for f in new]
                 + [(f["name"], f, None) for f in gone])
    pools = [(name, *(tree["pools"].get(name, {}).get("reserved_bytes", {}).get("current", 0)
                      for tree in (before, after)))
             for name in sorted({*before["pools"], *after["pools"]})]
    return Difference(same, came, went, stayed, functions, pools)
