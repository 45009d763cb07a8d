"""For tests of benchmarks: a run on the host device, and requirements of the JSON of every run."""

import json
import pathlib
import re
import subprocess
import tempfile


def run(program, *flags):
    return subprocess.run([f"benchmarks/{program}", *flags], text=True, capture_output=True,
                          check=False)


def results_of(program, *flags):
    """Returns the JSON of a run."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "results.json")
        result = run(program, "--device=host", f"--json={path}", *flags)
        if result.returncode != 0:
            raise AssertionError(result.stdout + result.stderr)
        return json.loads(path.read_text(encoding="utf-8"))


def rows_of(results):
    """Returns the rows by name."""
    # google/benchmark appends the way it ran: "/iterations:4/manual_time".
    return {re.sub(r"/iterations:\d+|/manual_time", "", row["name"]): row
            for row in results["benchmarks"]}


class RowsTest:
    """A base for a unittest.TestCase that sets `rows` before its tests run."""

    EXPECTED = []  # names of all rows

    def test_every_row_is_there_and_timed_what_it_says(self):
        self.assertEqual(sorted(self.rows), sorted(self.EXPECTED))
        failed = {name: row["error_message"] for name, row in self.rows.items()
                  if row.get("error_occurred")}
        self.assertEqual(failed, {})


class TimesTest(RowsTest):
    """The same for rows with the least time and the median."""

    UNIT = "us"

    def check_counters(self, names):
        for name, row in self.rows.items():
            with self.subTest(row=name):
                counters = [row[f"{what}_{self.UNIT}"] for what in names]
                self.assertGreater(counters[0], 0)
                self.assertEqual(counters, sorted(counters))

    def test_the_counters_are_in_order(self):
        self.check_counters(["min", "median"])


class CountersTest(TimesTest):
    """The same for rows with percentiles."""

    def test_the_counters_are_in_order(self):
        self.check_counters(["min", "median", "p99"])
