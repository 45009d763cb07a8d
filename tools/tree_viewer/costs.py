"""The costs of each function's recordings, and whether they are worth their memory."""

import collections

import intervals
import memory_map
import units
from markup import Number, dot, fold, link, section, table, text

_INTRO = ("Own memory is what would be free if the recordings were not there: their graphs, and what they "
          "alone write in the pools. Memory that several functions write costs each of them nothing "
          "more. The least worth their memory are first.")


def _own_bytes(tree, owner_of):
    """Bytes of the pools by owner: all bytes that its recordings write, and those that no other owner writes."""
    ranges = [(begin, end, owner_of[node]) for begin, end, node in memory_map.footprints(tree)]
    return intervals.owned(ranges)


class Cost:
    """The sum over some recordings."""

    def __init__(self, nodes, shared_and_own, now_us):
        written, own = shared_and_own
        self.recordings = len(nodes)
        self.record_us = sum(node["record_us"] for node in nodes)
        self.replays = sum(node["replays"] for node in nodes)
        self.graph_bytes = sum(node["estimated_graph_bytes"] for node in nodes)
        self.written_bytes = written
        self.own_bytes = own + self.graph_bytes
        first = min((node["recorded_at_us"] for node in nodes if "recorded_at_us" in node), default=None)
        self.minutes = None if first is None or now_us is None else max(now_us - first, 0) / 60e6

    def bytes_per_replay(self):
        return self.own_bytes / max(self.replays, 0.5)  # no replays are worse than one

    def cells(self):
        per_replay = self.record_us / self.replays if self.replays else float("inf")
        rate = self.replays / self.minutes if self.minutes else 0
        return [Number(self.record_us, units.duration(self.record_us)),
                Number(self.replays, units.count(self.replays)),
                Number(min(per_replay, 1e300), units.fine_duration(per_replay)
                       if self.replays else "never replayed"),
                Number(rate, f"{rate:,.1f}" if self.minutes else "–"),
                Number(self.written_bytes, units.size(self.written_bytes)),
                Number(self.own_bytes, units.size(self.own_bytes)),
                Number(self.bytes_per_replay(), units.size(self.bytes_per_replay())
                       if self.replays else "never replayed")]


_HEADS = ["Time to record", "Replays since", "Recording time per replay", "Replays per minute",
          "Writes in the pools", "Own memory", "Own memory per replay"]


def costs(tree):
    """Returns [(function, Cost)] and [(node, Cost)], the least worth their memory first."""
    now = tree.get("time_us")
    nodes_of = collections.defaultdict(list)
    for node in tree["nodes"]:
        nodes_of[node["function_id"]].append(node)
    by_function = _own_bytes(tree, {node["id"]: node["function_id"] for node in tree["nodes"]})
    by_node = _own_bytes(tree, {node["id"]: node["id"] for node in tree["nodes"]})
    functions = [(function, Cost(nodes_of[function["id"]], by_function.get(function["id"], (0, 0)), now))
                 for function in tree["functions"] if nodes_of[function["id"]]]
    nodes = [(node, Cost([node], by_node.get(node["id"], (node["footprint_bytes"], 0)), now))
             for node in tree["nodes"]]
    def worth(pair):
        return -pair[1].bytes_per_replay()
    return sorted(functions, key=worth), sorted(nodes, key=worth)


def _skips(function):
    return "".join(f'<span class="skip">{text(reason)} {units.count(number)}</span>'
                   for reason, number in function["skips"].items()) or '<span class="quiet">none</span>'


def _name(function):
    failure = function.get("capture_failure")
    name = f'<div class="function">{dot(function["id"])}<span>{text(function["name"])}</span></div>'
    return name + (f'<p class="failure">{text(failure)}</p>' if failure else "")


def functions_part(tree):
    """Returns the table of functions with the counts of their calls."""
    keys = ["calls", "replays", "recordings", "warm_ups", "failures", "evictions"]
    rows = [[_name(item), *(Number(item.get(key, 0), units.count(item.get(key, 0))) for key in keys),
             _skips(item)] for item in tree["functions"]]
    heads = ["Function", "Calls", "Replays", "Recordings", "Warm-ups", "Failures", "Evictions", "Skips"]
    return section("Functions", table("What calls of each function did", heads, rows, sorts=True))


def render(tree):
    functions, nodes = costs(tree)
    if not nodes:
        return ""
    rows = [[_name({**function, "capture_failure": None}), Number(cost.recordings, units.count(cost.recordings)),
             *cost.cells()] for function, cost in functions]
    body = table("What each function pays", ["Function", "Recordings", *_HEADS], rows, sorts=True)
    each = table("What each recording costs", ["Recording", *_HEADS],
                 [[link(node), *cost.cells()] for node, cost in nodes], sorts=True)
    total = tree.get("recording_us")
    kept = sum(node["record_us"] for node in tree["nodes"])
    spent = (f" Warm-ups and all recordings so far took {units.duration(total)}, the recordings that are "
             f"kept {units.duration(kept)}." if total is not None else "")
    return section("Costs", body + fold(f"Each recording by itself ({len(nodes):,})", each), _INTRO + spent)
