"""Snapshots and events with random damage: refused with a message or shown, and never a traceback."""

import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = ["tools/tree_viewer", "tools/files"]

import dot  # noqa: E402
import events  # noqa: E402
import page  # noqa: E402
import snapshot  # noqa: E402

SNAPSHOTS = pathlib.Path("tests/tools/tree_viewer/snapshots").resolve()
SEED = int(os.environ.get("CGTREE_SEED", random.randrange(2**32)))
CASES = int(os.environ.get("CGTREE_CASES", 400))
VALUES = [0, 1, 2, 7, 512, 2**40, 2**63, 2**64 - 1, 2**64, -1, 0.5, True, False, None, "", "slot", "static",
          "f", "<b>", [], {}, [1], [[3, 4]], {"address": 1, "bytes": 2}]


def places(value, path=()):
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from places(item, (*path, key))


def damage(rng, value, paths):
    """Returns a copy of a snapshot in which a few values are changed, missing or duplicated."""
    value = copy.deepcopy(value)
    for path in rng.sample(paths, rng.randrange(1, 4)):
        owner = value
        try:
            for step in path[:-1]:
                owner = owner[step]
            how = rng.randrange(4)
            if how == 0:
                del owner[path[-1]]
            elif how == 1 and isinstance(owner, list):
                owner.append(copy.deepcopy(owner[path[-1]]))
            else:
                owner[path[-1]] = rng.choice(VALUES)
        except (KeyError, IndexError, TypeError):
            continue  # removed by earlier damage
    return value


class DamagedTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        print(f"seed {SEED}")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([SNAPSHOTS, "serving", cls.folder], check=True)
        cls.tree = json.loads((cls.folder / "later.json").read_text())
        for node in cls.tree["nodes"][4:]:  # fewer nodes, so that other fields are damaged, too
            node.update(inputs=node["inputs"][:1], audit={"memory": [], "foreign": [], "unseen": []})

    def test_a_damaged_snapshot_is_refused_or_shown(self):
        rng = random.Random(SEED)
        paths = list(places(self.tree))
        refused = shown = 0
        for _ in range(CASES):
            tree = damage(rng, self.tree, paths)
            try:
                snapshot.check(tree)
            except snapshot.BadSnapshot:
                refused += 1
                continue
            shown += 1
            page.render(tree, "x", before=(self.tree, "y"))
            page.render(self.tree, "x", before=(tree, "y"))
            dot.render(tree)
        self.assertGreater(refused, 0)
        self.assertGreater(shown, 0)

    def test_events_with_any_fields_are_left_out_or_shown(self):
        rng = random.Random(SEED)
        lines = [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()[:200]]
        paths = list(places(lines))
        for _ in range(CASES // 7):
            damaged = damage(rng, lines, paths)
            path = self.folder / "damaged.jsonl"
            path.write_text("".join(json.dumps(line) + "\n" for line in damaged))
            page.render(self.tree, "x", [events.read(path)])


if __name__ == "__main__":
    unittest.main()
