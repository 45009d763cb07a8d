"""libraries: on the host device every address in a recording is attributed, which each row reports."""

import json
import pathlib
import subprocess
import tempfile
import unittest


class LibrariesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.json")
            run = subprocess.run(["benchmarks/libraries/libraries", "--device=host", "--ranks=2",
                                  f"--json={path}"], text=True, capture_output=True, check=False)
            if run.returncode != 0:
                raise AssertionError(run.stdout + run.stderr)
            cls.rows = json.loads(path.read_text(encoding="utf-8"))["rows"]

    def test_every_step_was_recorded(self):
        self.assertEqual([row["step"] for row in self.rows],
                         ["a chain of 100 kernels", "a memset and a copy", "all-reduce on 2 ranks"])
        self.assertEqual([row for row in self.rows if "missing" in row], [])

    def test_counts_are_those_of_the_steps(self):
        chain, copies = self.rows[:2]
        self.assertEqual((chain["kernels"], chain["words"], chain["addresses"]), (100, 300, 200))
        self.assertEqual((copies["nodes"], copies["kernels"], copies["addresses"]), (2, 0, 3))

    def test_every_address_is_attributed(self):
        for row in self.rows:
            with self.subTest(row=row["step"]):
                self.assertEqual(row["attributed"], 1)
                self.assertEqual(sum(row["by_owner"].values()), row["addresses"])
                self.assertEqual((row["foreign"], row["unseen"]), ([], []))


if __name__ == "__main__":
    unittest.main()
