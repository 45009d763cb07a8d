"""audit_libraries.py: each framework has a row or a reason for its absence, and a failure affects no other row."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy  # noqa: F401  without it there is nothing to measure on the host device

OWNERS = {"input", "output", "workspace", "kept", "scratch", "live_output", "declared", "module",
          "foreign"}


def run(*flags):
    """Returns the output of the program, and the JSON of its run on the host device."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "results.json")
        result = subprocess.run([sys.executable, "benchmarks/audit_libraries.py", "--device=host",
                                 f"--json={path}", *flags], text=True, capture_output=True,
                                check=False)
        if result.returncode != 0:
            raise AssertionError(result.stdout + result.stderr)
        return result.stdout, json.loads(path.read_text(encoding="utf-8"))


class AuditLibrariesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text, cls.results = run()
        cls.rows = {(row["library"], row["step"]): row for row in cls.results["rows"]}

    def test_the_run_says_what_it_was(self):
        self.assertEqual(self.results["program"], "audit_libraries")
        self.assertEqual(self.results["device"], "host")
        self.assertEqual(self.results["torch_allocator"], "pool")

    def test_a_function_of_numpy_is_recorded_and_cannot_be_looked_into(self):
        row = self.rows["NumPy", "a function as a node"]
        self.assertNotIn("missing", row)
        self.assertEqual(row["recordings"], 1)
        self.assertEqual([unseen["nodes"] for unseen in row["unseen"]], [1])
        self.assertIn("host function", row["unseen"][0]["what"])
        self.assertIn("unseen: " + row["unseen"][0]["what"], self.text)

    def test_rows_add_up(self):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                if "missing" in row:
                    self.assertRegex(row["missing"], r"^\w+: ")
                    continue
                self.assertLessEqual(set(row["by_owner"]), OWNERS)
                self.assertEqual(row["addresses"], sum(row["by_owner"].values()))
                foreign = row["by_owner"].get("foreign", 0)
                self.assertEqual(sum(pointer["nodes"] for pointer in row["foreign"]), foreign)
                if row["addresses"] > 0:
                    self.assertAlmostEqual(row["attributed"], 1 - foreign / row["addresses"])

    def test_a_framework_that_is_absent_is_a_row(self):
        for framework in ("cupy", "numba"):
            try:
                __import__(framework)
            except ImportError:
                self.assertIn("ModuleNotFoundError", self.rows[framework, "all"]["missing"])


if __name__ == "__main__":
    unittest.main()
