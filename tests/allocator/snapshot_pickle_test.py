"""The pickle of a snapshot: Python loads it, it says what the JSON says, and the viewer can read it."""

import json
import pathlib
import pickle
import pickletools
import random
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path("tests/allocator/snapshot_sample").resolve()

# What torch/utils/viz/MemoryViz.js unpickles.
OPCODES = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "SETITEMS", "APPENDS", "BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "NONE",
    "NEWTRUE", "NEWFALSE",
}

SEGMENT = {
    "device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int,
    "requested_size": int, "stream": int, "segment_type": str, "segment_pool_id": tuple,
    "is_expandable": bool, "frames": list, "blocks": list,
}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
EVENT = {"action": str, "size": int, "stream": int, "time_us": int, "pool_id": tuple,
         "frames": list}

VALUES = {
    "numbers": [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1,
                -1, -256, -2**31, -2**31 - 1, -2**63],
    "text": ["", "é\u4e2d\U0001f600", "x" * 300, "\u0000\n"],
    "others": [True, False, None, {}, [], [[]], {"": {}}],
    "tuple": [1, "two", None],
    "inner": [{"tuple": []}, {"tuple": [1]}, {"tuple": [1, [2]]}, {"tuple": None}],
}


def lists(value):
    """The value with tuples made lists, as JSON has none."""
    if isinstance(value, dict):
        return {key: lists(item) for key, item in value.items()}
    return [lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def random_value(rng, depth):
    kind = rng.randrange(7 if depth else 4)
    if kind == 0:
        return rng.randrange(-2**rng.randrange(1, 63), 2**rng.randrange(1, 64))
    if kind == 1:
        return "".join(chr(rng.randrange(1, 0xd800)) for _ in range(rng.randrange(9)))
    if kind <= 3:
        return rng.choice([True, False, None])
    if kind == 4:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(6))]
    return {str(rng.random()): random_value(rng, depth - 1) for _ in range(rng.randrange(6))}


class SnapshotPickleTest(unittest.TestCase):

    def sample(self, values):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        path.joinpath("values.json").write_text(json.dumps(values))
        subprocess.run([PROGRAM, path, path / "values.json"], check=True)
        return path

    def setUp(self):
        self.path = self.sample(VALUES)
        self.pickled = self.path.joinpath("snapshot.pickle").read_bytes()
        self.snapshot = pickle.loads(self.pickled)

    def assert_fields(self, value, fields):
        self.assertEqual({key: type(value[key]) for key in fields}, fields)

    def test_says_what_the_json_says(self):
        json_text = self.path.joinpath("snapshot.json").read_text()
        self.assertEqual(lists(self.snapshot), json.loads(json_text))

    def test_has_only_opcodes_that_the_viewer_knows(self):
        opcodes = {opcode.name for opcode, _, _ in pickletools.genops(self.pickled)}
        self.assertLessEqual(opcodes, OPCODES)

    def test_has_pytorchs_keys(self):
        self.assert_fields(self.snapshot, {"segments": list, "device_traces": list,
                                           "allocator_settings": dict,
                                           "external_annotations": list})

    def test_segments_and_blocks_have_the_viewers_fields(self):
        self.assertEqual(len(self.snapshot["segments"]), 2)
        for segment in self.snapshot["segments"]:
            self.assert_fields(segment, SEGMENT)
            for block in segment["blocks"]:
                self.assert_fields(block, BLOCK)

    def test_blocks_tile_their_segment(self):
        for segment in self.snapshot["segments"]:
            end = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], end)
                end += block["size"]
            self.assertEqual(end, segment["address"] + segment["total_size"])

    def test_says_what_the_pools_hold(self):
        small, large = self.snapshot["segments"]
        self.assertEqual([(b["size"], b["requested_size"], b["state"]) for b in small["blocks"]],
                         [(1024, 0, "inactive"), (1024, 1000, "active_allocated"),
                          (2**21 - 2048, 0, "inactive")])
        self.assertEqual((small["segment_type"], small["segment_pool_id"], small["is_expandable"]),
                         ("small", (3, 0), False))
        self.assertEqual((large["segment_type"], large["segment_pool_id"], large["is_expandable"]),
                         ("large", (4, 0), True))
        self.assertEqual((large["device"], large["stream"], large["active_size"]),
                         (1, 77, 24 << 20))

    def test_traces_are_by_device_and_in_order(self):
        first, second = self.snapshot["device_traces"]
        self.assertEqual([(e["action"], e["size"], e["pool_id"]) for e in first],
                         [("alloc", 700, (3, 0)), ("alloc", 1000, (3, 0)),
                          ("free_completed", 700, (3, 0))])
        self.assertEqual([(e["action"], e["size"], e["stream"]) for e in second],
                         [("alloc", 24 << 20, 77), ("oom", 30 << 20, 77)])
        for event in first + second:
            self.assert_fields(event, EVENT)
            place = "device_free" if event["action"] == "oom" else "addr"
            self.assertIs(type(event[place]), int)

    def test_every_kind_of_value_comes_back(self):
        loaded = pickle.loads(self.path.joinpath("values.pickle").read_bytes())
        self.assertEqual(lists(loaded), VALUES)
        self.assertEqual(loaded["tuple"], (1, "two", None))
        self.assertEqual(loaded["inner"],
                         [{"tuple": ()}, {"tuple": (1,)}, {"tuple": (1, [2])}, {"tuple": None}])

    def test_random_values_come_back(self):
        seed = random.SystemRandom().randrange(2**32)
        rng = random.Random(seed)
        values = {str(i): random_value(rng, 5) for i in range(500)}
        loaded = pickle.loads(self.sample(values).joinpath("values.pickle").read_bytes())
        self.assertEqual(loaded, values, f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
