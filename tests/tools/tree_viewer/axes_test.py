"""Buckets compared with the library's, rules of axes, and charts; without a browser."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files", "tests/tools/tree_viewer"]

import buckets  # noqa: E402
import charts  # noqa: E402

SNAPSHOTS = pathlib.Path("tests/tools/tree_viewer/snapshots").resolve()
SEED = int(os.environ.get("CGTREE_SEED", random.randrange(2**32)))


def setUpModule():
    print(f"seed {SEED}")


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
                ({"policy": "buckets", "buckets": [4, 8]}, [(1, 4), (4, 4), (5, 8), (9, None)]),
                ({"policy": "allow_list", "allowed": [4, 8]}, [(4, 4), (5, None)]),
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
                continue  # shares its bar with size 0
            tallest = max(float(bar["height"]) for bar in bars)
            for bar, (_, count) in zip(bars, pairs):
                self.assertAlmostEqual(float(bar["height"]) / tallest, count / most, delta=0.01)


if __name__ == "__main__":
    unittest.main()
