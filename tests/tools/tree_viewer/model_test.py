"""What the page is made from, without a browser: sweeps, costs, buckets, events, differences."""

import copy
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = ["tools/tree_viewer", "tests/tools/tree_viewer"]

import buckets  # noqa: E402
import charts  # noqa: E402
import compare  # noqa: E402
import costs  # noqa: E402
import events  # noqa: E402
import intervals  # noqa: E402
import memory_map  # noqa: E402
import page  # noqa: E402
import random_snapshots  # noqa: E402
import snapshot  # noqa: E402

SNAPSHOTS = pathlib.Path("tests/tools/tree_viewer/snapshots").resolve()
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
    """Against a list of the owners of each address."""

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


class BucketsTest(unittest.TestCase):

    def test_lists_pad_as_little_and_are_as_short_as_those_of_the_library(self):
        cases = json.loads(subprocess.run([SNAPSHOTS, "buckets", str(SEED)], stdout=subprocess.PIPE,
                                          check=True).stdout)
        for case in cases:
            histogram = [pair for pair in case["histogram"] if pair[1] > 0]
            lists = buckets.suggested(case["histogram"], case["max_buckets"])
            if not histogram:
                self.assertEqual((lists, case["list"]), ([], []))
                continue
            ours, theirs = lists[-1], case["list"]
            self.assertEqual(buckets.of_list(histogram, ours).padded,
                             buckets.of_list(histogram, theirs).padded, case)
            self.assertEqual(len(ours), len(theirs), case)

    def test_sizes_are_rounded_as_the_policies_say(self):
        for axis, pairs in [
                ({"policy": "buckets", "sizes": [4, 8]}, [(1, 4), (4, 4), (5, 8), (9, None)]),
                ({"policy": "allow_list", "sizes": [4, 8]}, [(4, 4), (5, None)]),
                ({"policy": "multiples", "multiple_of": 6, "largest": 12}, [(1, 6), (6, 6), (7, 12), (13, None)]),
                ({"policy": "powers_of_two", "largest": 8}, [(0, 1), (1, 1), (3, 4), (8, 8), (9, None)]),
                ({"policy": "exact"}, [(7, 7)])]:
            for size, expected in pairs:
                self.assertEqual(buckets.rounded(axis, size), expected, (axis, size))


class ChartsTest(unittest.TestCase):

    def test_bars_stand_on_the_line_and_are_as_high_as_their_counts(self):
        rng = random.Random(SEED)
        for _ in range(20):
            pairs = [[size, rng.randrange(1, 50)] for size in sorted(rng.sample(range(80), 10))]
            picture = charts.histogram("x", pairs, [79])
            bars = [dict(re.findall(r'(\w+)="([\d.]+)"', bar))
                    for bar in re.findall(r'<rect class="bar"([^>]*)>', picture)]
            base = {round(float(bar["y"]) + float(bar["height"]), 0) for bar in bars}
            self.assertEqual(len(base), 1)
            most = max(count for _, count in pairs)
            if len(bars) < len(pairs):
                continue  # size 0 shares a bar
            tallest = max(float(bar["height"]) for bar in bars)
            for bar, (_, count) in zip(bars, pairs):
                self.assertAlmostEqual(float(bar["height"]) / tallest, count / most, delta=0.01)


class EventsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "events.jsonl")

    def read(self, text):
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return events.read(self.path)

    def test_wherever_a_file_is_cut_all_whole_lines_are_read_and_the_cut_is_said(self):
        lines = [json.dumps({"event": "skip", "time_us": i, "function": "caf\xe9", "what": "x"}) + "\n"
                 for i in range(5)]
        whole = "".join(lines).encode()
        for cut in range(len(lines[0].encode()), len(whole) + 1):
            found = self.read(whole[:cut])
            left = whole[:cut].count(b"\n")
            rest = whole[:cut].split(b"\n")[-1]
            is_line = rest.endswith(b"}")
            self.assertEqual(len(found.events), left + is_line)
            self.assertEqual(len(found.problems), int(rest != b"" and not is_line))
            if found.problems:
                self.assertIn(f"ends in the middle of line {left + 1}", found.problems[0])

    def test_lines_that_are_no_events_are_counted_and_named(self):
        good = '{"event": "skip", "time_us": 1}'
        bad = ["3", "[]", "null", "{", '{"event": 3, "time_us": 1}', '{"event": "skip"}',
               '{"event": "skip", "time_us": -1}', '{"event": "skip", "time_us": true}',
               '{"event": "skip", "time_us": 1, "function": 3}', '{"event": "skip", "time_us": 1e400}',
               "[" * 100_000]
        found = self.read("\n".join([good, *bad, good]) + "\n")
        self.assertEqual(len(found.events), 2)
        self.assertIn(f"{len(bad)} of {len(bad) + 2} lines are no events and are left out: line 2, 3, 4, 5, 6 …",
                      found.problems[0])

    def test_empty_lines_are_no_damage(self):
        good = '{"event": "skip", "time_us": 1}'
        found = self.read(f"\n{good}\n \n{good}\n")
        self.assertEqual((len(found.events), found.problems), (2, []))

    def test_a_file_without_events_is_no_event_file_unless_it_is_empty(self):
        for text in ("hello\n", "{\n", b"\xff\xfe\n", "half"):
            with self.assertRaises(events.BadEvents):
                self.read(text)
        self.assertEqual(self.read("").events, [])


class CompareTest(unittest.TestCase):

    def test_recordings_of_one_context_are_the_same_by_id(self):
        rng = random.Random(SEED)
        for round_ in range(30):
            after = random_snapshots.make(SEED + round_, slots=10, recordings=12)
            before = copy.deepcopy(after)
            gone = set(rng.sample(range(1, 13), 4))
            new = set(rng.sample(sorted({*range(1, 13)} - gone), 4))
            after["nodes"] = [node for node in after["nodes"] if node["id"] not in gone]
            before["nodes"] = [node for node in before["nodes"] if node["id"] not in new]
            found = compare.difference(before, after)
            self.assertTrue(found.same_context)
            self.assertEqual({node["id"] for node in found.came}, new)
            self.assertEqual({node["id"] for node in found.went}, gone)
            self.assertEqual(len(found.stayed), 4)

    def test_recordings_of_two_contexts_are_the_same_by_function_and_signature(self):
        before = random_snapshots.make(SEED, slots=10, recordings=12)
        after = copy.deepcopy(before)
        for node in after["nodes"]:
            node.update(id=13 - node["id"], record_us=node["record_us"] + 1, parent=0)
        found = compare.difference(before, after)
        self.assertEqual((found.same_context, found.came, found.went), (False, [], []))


class EarlierSnapshotTest(unittest.TestCase):

    def test_what_an_earlier_library_left_out_is_said_and_the_rest_is_shown(self):
        tree = random_snapshots.make(SEED, slots=20, recordings=5)
        for field in ("slots", "time_us", "recording_us", "verify_every"):
            del tree[field]
        for node in tree["nodes"]:
            for field in ("footprint", "recorded_at_us", "padded", "kept", "audit"):
                del node[field]
        for function in tree["functions"]:
            for field in ("axes", "evictions", "frozen", "kept_recordings"):
                del function[field]
        for pool in tree["pools"].values():
            pool.pop("segments")
            pool.pop("blocks", None)
        snapshot.check(tree)
        text = page.render(tree, "old", before=(tree, "old"))
        for field in ("slots", "footprint", "axes", "audit", "time_us"):
            self.assertIn(f"The snapshot has no &#x27;{field}&#x27;", text)
        self.assertEqual(text.count('class="node"'), 5)
        self.assertNotIn('id="memory"', text)

    def test_a_page_of_a_snapshot_that_has_everything_says_nothing_of_the_kind(self):
        text = page.render(random_snapshots.make(SEED, slots=20, recordings=5), "new")
        self.assertNotIn("The snapshot has no", text)


if __name__ == "__main__":
    unittest.main()
