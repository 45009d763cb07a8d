"""Differences of two snapshots, and snapshots of earlier libraries; without a browser."""

import copy
import os
import random
import sys
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files", "tests/tools/tree_viewer"]

import compare  # noqa: E402
import page  # noqa: E402
import random_snapshots  # noqa: E402
import recording  # noqa: E402
import snapshot  # noqa: E402

SEED = int(os.environ.get("CGTREE_SEED", random.randrange(2**32)))


def setUpModule():
    print(f"seed {SEED}")


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


class CauseTest(unittest.TestCase):

    def test_a_recording_that_differs_from_no_other_may_be_one_that_is_made_again(self):
        tree = random_snapshots.make(SEED, slots=10, recordings=2)
        for node in tree["nodes"]:
            node["cause"] = {"nearest": 0, "changes": []}
            self.assertIn("or one that was dropped and is made again", recording.cause(node, {}))
        before = copy.deepcopy(tree)
        before["nodes"] = []
        self.assertIn("or one that was dropped and is made again",
                      page.render(tree, "new", before=(before, "old")))


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
