"""copy_bench: its rows time replays, and replays take no memory."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = "benchmarks/copy_bench"
NAMES = [*(f"copied:{inputs}" for inputs in (0, 1, 4, 16, 64, 256)),
         "copied_back:16", "strided:16", "padded:16", "copied_mib:1"]


class CopyBenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.json")
            result = subprocess.run(
                [PROGRAM, "--device=host", "--samples=2", f"--json={path}"],
                text=True, capture_output=True, check=False)
            if result.returncode != 0:
                raise AssertionError(result.stdout + result.stderr)
            rows = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
        cls.rows = {re.sub(r"/iterations:.*", "", row["name"]): row for row in rows}

    def test_every_row_is_there_and_timed_what_it_says(self):
        self.assertEqual(sorted(self.rows),
                         sorted([f"BM_{side}/{name}" for side in ("Device", "Host")
                                 for name in NAMES]))
        failed = {name: row["error_message"] for name, row in self.rows.items()
                  if row.get("error_occurred")}
        self.assertEqual(failed, {})

    def test_a_replay_takes_no_memory_from_the_heap(self):
        for name in NAMES:
            with self.subTest(row=name):
                self.assertEqual(self.rows[f"BM_Host/{name}"]["allocations"], 0)


if __name__ == "__main__":
    unittest.main()
