"""The ranks of a group stay together on host devices when a call fails on one of them."""

import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = "benchmarks/ranks_soak"


class RanksSoakTest(unittest.TestCase):
    def run_soak(self, *flags):
        return subprocess.run([PROGRAM, *flags], capture_output=True, text=True, check=False)

    def test_no_step_differs_and_the_dead_rank_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "soak.json")
            done = self.run_soak("--device=host", "--ranks=3", "--steps=500", "--json=" + path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path, encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual(result["wrong_values"], 0)
        self.assertGreater(sum(result["faults"].values()), 0)
        for row in result["rows"][:-1]:
            self.assertIn("rank 2 of 3 has left", row["when_the_last_rank_has_left"])
            self.assertGreater(row["steps"]["replay"], 0)
            self.assertGreater(row["steps"]["record"], 0)

    def test_more_ranks_than_devices_is_an_error(self):
        done = self.run_soak("--device=host", "--ranks=9")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ranks", done.stderr)


if __name__ == "__main__":
    unittest.main()
