"""The contents of the pools: a model of segments, slots and the ranges that recordings write."""

import bisect
import collections
import dataclasses

import intervals

MOST_AREAS = 2000  # areas of one segment that are drawn; beyond, neighbours are joined
_REGIONS = {"output": "Output region", "scratch": "Scratch region", "eager": "Eager region"}


@dataclasses.dataclass
class Piece:
    """A range of a segment: a slot, a block in use of the eager region, or an area."""
    kind: str          # "slot", "block", "area"
    begin: int
    end: int
    slot: dict = None  # for a slot
    state: str = ""    # for a slot: "held", "workspace", "free"
    writers: list = dataclasses.field(default_factory=list)  # ids of the recordings that write a slot
    count: int = 0     # recordings that write it; for joined areas the most
    uses: list = dataclasses.field(default_factory=list)     # sentences: input of, kept by
    row: int = 0       # overlapping slots are in different rows


@dataclasses.dataclass
class Segment:
    begin: int
    end: int
    slots: list
    areas: list
    blocks: list


@dataclasses.dataclass
class Region:
    name: str
    title: str
    segments: list


def has_map(tree):
    return "slots" in tree and all("segments" in pool for pool in tree["pools"].values())


def footprints(tree):
    return [(item["address"], item["address"] + item["bytes"], node["id"])
            for node in tree["nodes"] for item in node.get("footprint", [])]


def _within(ranges, begin, end):
    for item in ranges[bisect.bisect_left(ranges, (begin,)):]:
        if item[0] >= end:
            return
        yield item


def _uses(tree):
    """Addresses that recordings use in place, with their users; in order of address."""
    found = collections.defaultdict(list)
    for node in tree["nodes"]:
        name = f"{node['function']} #{node['id']}"
        for i, item in enumerate(node["inputs"]):
            if item["treatment"] in ("static", "managed"):
                found[item["address"]].append(f"{item['treatment']} input {i} of {name}")
        for item in node.get("kept", []):
            found[item["address"]].append(f"kept by {name}")
        for i, item in enumerate(node["outputs"]):
            if "slot" in item and "address" in item:
                found[item["address"]].append(f"output {i} of {name} goes here")
    return sorted(found.items())


def _slots(tree, region, stabbing, uses):
    """The slots of a region in order of address, each with all known facts."""
    slots = [slot for slot in tree["slots"] if slot["region"] == region]
    for slot in sorted(slots, key=lambda slot: (slot["address"], -slot["bytes"])):
        begin, end = slot["address"], slot["address"] + slot["bytes"]
        state = "workspace" if slot["workspace"] and slot["live"] else "held" if slot["live"] else "free"
        writers = stabbing.owners(begin, end)
        yield Piece("slot", begin, end, slot, state, writers, len(writers),
                    [use for _, names in _within(uses, begin, end) for use in names])


def _put_in_rows(slots):
    ends = []
    for slot in slots:
        row = next((i for i, end in enumerate(ends) if end <= slot.begin), len(ends))
        ends[row:row + 1] = [slot.end]
        slot.row = row


def _clipped(areas, begin, end):
    """The parts of areas inside a range. A footprint may extend over two adjacent segments."""
    first = bisect.bisect_right(areas, begin, key=lambda area: area[1])
    for low, high, count in areas[first:]:
        if low >= end:
            return
        yield max(low, begin), min(high, end), count


def _joined(areas):
    """Joins neighbours until at most MOST_AREAS are left."""
    areas = list(areas)
    if len(areas) <= MOST_AREAS:
        return areas
    size = -(-len(areas) // MOST_AREAS)
    return [(group[0][0], group[-1][1], max(count for _, _, count in group))
            for group in (areas[i:i + size] for i in range(0, len(areas), size))]


def regions(tree):
    """Requires: has_map(tree)."""
    ranges, uses = footprints(tree), _uses(tree)
    areas = intervals.areas(ranges)
    found = []
    for name, pool in tree["pools"].items():
        slots = list(_slots(tree, name, intervals.Stabbing(ranges), uses))
        segments = []
        for segment in sorted(pool["segments"], key=lambda item: item["address"]):
            begin, end = segment["address"], segment["address"] + segment["bytes"]
            inside = [slot for slot in slots if begin <= slot.begin < end]
            _put_in_rows(inside)
            written = _joined(_clipped(areas, begin, end))
            segments.append(Segment(
                begin, end, inside,
                [Piece("area", low, high, count=count) for low, high, count in written],
                [Piece("block", item["address"], item["address"] + item["bytes"])
                 for item in pool.get("blocks", []) if begin <= item["address"] < end]))
        found.append(Region(name, _REGIONS.get(name, f"Region {name}"), segments))
    return found
