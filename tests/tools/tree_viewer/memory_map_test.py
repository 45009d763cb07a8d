"""Sweeps over ranges, the model of the pools, and costs, against brute force; without a browser."""

import os
import random
import sys
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files", "tests/tools/tree_viewer"]

import costs  # noqa: E402
import intervals  # noqa: E402
import memory_map  # noqa: E402
import random_snapshots  # noqa: E402
import snapshot  # noqa: E402

SEED = int(os.environ.get("CGTREE_SEED", random.randrange(2**32)))
ROUNDS = 200


def setUpModule():
    print(f"seed {SEED}")


def random_ranges(rng):
    ranges = []
    for _ in range(rng.randrange(12)):
        begin = rng.randrange(30)
        ranges.append((begin, begin + rng.randrange(8), rng.randrange(4)))
    return ranges


class IntervalsTest(unittest.TestCase):
    """Compared with a list of the owners of each address."""

    def test_areas_have_the_owners_of_each_of_their_addresses(self):
        rng = random.Random(SEED)
        for _ in range(ROUNDS):
            ranges = random_ranges(rng)
            owners = [{owner for begin, end, owner in ranges if begin <= at < end} for at in range(40)]
            counts = [0] * 40
            for begin, end, count in intervals.areas(ranges):
                counts[begin:end] = [count] * (end - begin)
            self.assertEqual(counts, list(map(len, owners)), ranges)

    def test_own_bytes_are_those_of_one_owner_alone(self):
        rng = random.Random(SEED)
        for _ in range(ROUNDS):
            ranges = random_ranges(rng)
            owners = [{owner for begin, end, owner in ranges if begin <= at < end} for at in range(40)]
            expected = {owner: (sum(owner in found for found in owners), owners.count({owner}))
                        for owner in set().union(*owners)}
            self.assertEqual(intervals.owned(ranges), expected, ranges)

    def test_stabbing_finds_all_owners_of_a_byte_of_the_range(self):
        rng = random.Random(SEED)
        for _ in range(ROUNDS):
            ranges = random_ranges(rng)
            stabbing = intervals.Stabbing(ranges)
            for begin in range(0, 36, 3):
                end = begin + rng.randrange(1, 9)
                expected = {owner for low, high, owner in ranges if low < high and low < end and begin < high}
                self.assertEqual(stabbing.owners(begin, end), sorted(expected), (ranges, begin, end))


class MapTest(unittest.TestCase):

    def test_slots_of_one_row_do_not_overlap_and_each_slot_is_in_one_segment(self):
        for round_ in range(20):
            tree = random_snapshots.make(SEED + round_, slots=80, recordings=10)
            snapshot.check(tree)
            regions = memory_map.regions(tree)
            shown = [slot.slot["slot"] for region in regions for segment in region.segments
                     for slot in segment.slots]
            self.assertEqual(sorted(shown), sorted(slot["slot"] for slot in tree["slots"]))
            for segment in (segment for region in regions for segment in region.segments):
                for row in {slot.row for slot in segment.slots}:
                    slots = [slot for slot in segment.slots if slot.row == row]
                    for left, right in zip(slots, slots[1:]):
                        self.assertLessEqual(left.end, right.begin)

    def test_areas_stay_in_their_segments_and_have_all_bytes_that_are_written_there(self):
        for round_ in range(20):
            tree = random_snapshots.make(SEED + round_, slots=80, recordings=10)
            blocks = {at for begin, end, _ in memory_map.footprints(tree) for at in range(begin, end, 512)}
            for region in memory_map.regions(tree):
                for segment in region.segments:
                    inside = {at for at in blocks if segment.begin <= at < segment.end}
                    shown = {at for area in segment.areas for at in range(area.begin, area.end, 512)}
                    self.assertEqual(shown, inside)

    def test_too_many_areas_are_joined_and_none_is_lost(self):
        ranges = [(2 * i, 2 * i + 1, i % 3) for i in range(3 * memory_map.MOST_AREAS)]
        joined = memory_map._joined(intervals.areas(ranges))
        self.assertLessEqual(len(joined), memory_map.MOST_AREAS)
        self.assertEqual((joined[0][0], joined[-1][1]), (0, ranges[-1][1]))


class CostsTest(unittest.TestCase):

    def test_memory_that_two_functions_write_is_not_the_own_memory_of_either(self):
        tree = random_snapshots.make(SEED, slots=20, recordings=2)
        first, second = tree["nodes"]
        tree["functions"] = [{**tree["functions"][0], "id": i, "name": f"f{i}"} for i in (1, 2)]
        for i, node in enumerate(tree["nodes"], start=1):
            node.update(function=f"f{i}", function_id=i, estimated_graph_bytes=10)
        first["footprint"] = [{"address": 1000, "bytes": 300}]
        second["footprint"] = [{"address": 1200, "bytes": 400}]
        functions, _ = costs.costs(tree)
        own = {function["name"]: (cost.written_bytes, cost.own_bytes) for function, cost in functions}
        self.assertEqual(own, {"f1": (300, 200 + 10), "f2": (400, 300 + 10)})

    def test_a_recording_without_replays_is_worth_less_than_one_with_a_replay(self):
        tree = random_snapshots.make(SEED, slots=20, recordings=2)
        for node, replays in zip(tree["nodes"], (1, 0)):
            node.update(replays=replays, footprint=[], estimated_graph_bytes=10)
        _, nodes = costs.costs(tree)
        self.assertEqual([node["replays"] for node, _ in nodes], [0, 1])


if __name__ == "__main__":
    unittest.main()
