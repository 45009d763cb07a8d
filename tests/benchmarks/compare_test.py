"""benchmarks/compare with programs that answer immediately."""

import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPARE = ROOT / "benchmarks/compare/main.py"
sys.path.insert(0, str(COMPARE.parent))

import programs  # noqa: E402
import rows as rows_of_rounds  # noqa: E402

PROGRAM = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__)
count = here.with_suffix(".count")
number = int(count.read_text()) if count.exists() else 0
count.write_text(str(number + 1))
path = next(a.partition("=")[2] for a in sys.argv if a.startswith("--json="))
answers = {answers}
if answers is None:
    sys.exit("no device")
rows = [{{"name": name + "/iterations:9/manual_time", "min_us": m[number] / 2, "median_us": m[number],
         "p99_us": m[number] * 2}} for name, m in answers.items()]
json.dump({{"context": {{"device_name": "NVIDIA Z9 80GB"}}, "benchmarks": rows}}, open(path, "w"))
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "results").mkdir()

    def program(self, name, answers):
        """Makes a program that reports these medians in us, one per round."""
        path = self.folder / name
        path.write_text(PROGRAM.format(python=sys.executable, answers=answers))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def compare(self, *flags):
        return subprocess.run(
            [sys.executable, "-B", str(COMPARE), f"--bin={self.folder}", "--device=host",
             f"--results={self.folder / 'results'}", *flags],
            capture_output=True, text=True, check=False,
            env={**os.environ, "BUILD_WORKING_DIRECTORY": str(self.folder)})

    def line_of(self, output, name):
        return next(line.split() for line in output.splitlines() if line.split()[:1] == [name])

    def test_a_row_is_compared_with_the_best_of_its_peers(self):
        self.program("copy_bench", {"BM_Alone/chosen/kib:4": [6.0] * 3,
                                    "BM_Alone/copied/kib:4": [8.0] * 3,
                                    "BM_Alone/rebound/kib:4": [3.0] * 3})
        done = self.compare("--only=copy_bench")
        self.assertEqual(done.returncode, 0, done.stderr)
        line = self.line_of(done.stdout, "BM_Alone/chosen/kib:4")
        self.assertIn("2.00", line)
        self.assertIn("BM_Alone/rebound/kib:4", line)

    def test_rounds_are_merged_and_their_spread_is_the_noise(self):
        self.program("match_bench", {"BM_Predict/inputs:1": [1.0, 2.0, 4.0]})
        done = self.compare("--only=match_bench", "--json=out")
        self.assertEqual(done.returncode, 0, done.stderr)
        line = self.line_of(done.stdout, "BM_Predict/inputs:1")
        self.assertIn("150%", line)
        with open(self.folder / "out/match_bench_z9.json", encoding="utf-8") as file:
            document = json.load(file)
        row = document["benchmarks"][0]
        self.assertEqual((row["min_us"], row["median_us"], row["p99_us"]), (0.5, 2.0, 4.0))
        self.assertEqual(row["medians_us"], [1.0, 2.0, 4.0])
        self.assertEqual(rows_of_rounds.read(document)["BM_Predict/inputs:1"]["median"], 2000)

    def test_only_a_change_beyond_the_noise_is_marked(self):
        before = {"benchmarks": [{"name": name, "median_us": 1.0} for name in ("BM_A", "BM_B")]}
        (self.folder / "results/match_bench_z9.json").write_text(json.dumps(before))
        self.program("match_bench", {"BM_A": [1.2, 1.2, 1.2], "BM_B": [1.0, 1.2, 1.5]})
        done = self.compare("--only=match_bench")
        self.assertEqual(self.line_of(done.stdout, "BM_A")[-1], "+20%!")
        self.assertEqual(self.line_of(done.stdout, "BM_B")[-1], "+20%")

    def test_a_program_that_fails_is_named_and_the_others_are_shown(self):
        self.program("match_bench", {"BM_Predict/inputs:1": [1.0]})
        self.program("device_bench", None)
        done = self.compare("--only=device_bench,match_bench", "--rounds=1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("device_bench ended with 1: no device", done.stderr)
        self.assertIn("BM_Predict/inputs:1", done.stdout)

    def test_the_picture_has_both_sides_of_each_main_row(self):
        self.program("engine_bench", {"BM_Steps/copied:16": [2.0], "BM_MapOfGraphs/copied:16": [8.0]})
        done = self.compare("--only=engine_bench", "--rounds=1", "--svg=main.svg")
        self.assertEqual(done.returncode, 0, done.stderr)
        tree = xml.etree.ElementTree.parse(self.folder / "main.svg")
        texts = [node.text for node in tree.iter() if node.tag.endswith("text")]
        self.assertIn("cgtree 2.00 us", texts)
        self.assertTrue(any("8.00 us" in text and "4.0 ×" in text for text in texts), texts)

    def test_no_value_in_the_picture_lies_over_a_bar(self):
        for kept in (None, ROOT / "docs/pictures/results.svg"):
            if kept is None:
                self.program("engine_bench", {"BM_Steps/copied:16": [2.0], "BM_MapOfGraphs/copied:16": [800.0]})
                self.compare("--only=engine_bench", "--rounds=1", "--svg=main.svg")
            nodes = list(xml.etree.ElementTree.parse(kept or self.folder / "main.svg").iter())
            ends = [int(node.get("x")) + int(node.get("width")) for node in nodes if node.tag.endswith("rect")]
            values = [int(node.get("x")) for node in nodes
                      if node.tag.endswith("text") and node.get("text-anchor") is None and node.get("y") != "20"]
            self.assertEqual(len(values), len(ends))
            self.assertGreater(min(values), max(ends))

    def test_bad_usage_is_refused(self):
        for flags in (["--only=nothing"], ["--rounds=0"], ["--unknown"]):
            done = self.compare(*flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertTrue(done.stderr)

    def test_each_pair_has_rows_in_the_results_that_are_kept(self):
        for program in programs.PROGRAMS:
            path = ROOT / f"benchmarks/results/{program.result}_h200.json"
            results = json.loads(path.read_text(encoding="utf-8"))
            names = {rows_of_rounds.name_of(row) for row in results["benchmarks"]}
            compared = {name for name in names if names & set(programs.rivals(program, name))}
            for pattern, _ in program.pairs:
                with self.subTest(program=program.result, pattern=pattern):
                    self.assertTrue([name for name in compared if re.fullmatch(pattern, name)])

    def test_names_lose_what_the_library_adds(self):
        for written, name in (("BM_A/b:1/iterations:9/manual_time", "BM_A/b:1"),
                              ("BM_A/b:1/repeats:3/threads:1", "BM_A/b:1"),
                              ("BM_A/threads:16", "BM_A/threads:16")):
            self.assertEqual(rows_of_rounds.name_of({"name": written}), name)


if __name__ == "__main__":
    unittest.main()
