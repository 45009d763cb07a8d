"""The list of mutants is true of the sources; and the tool tells those that live from others."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
import plant  # noqa: E402


def mutant(**changes):
    """One of the tool's own text."""
    return {"id": "x", "file": "tests/mutants/plant.py", "old": "os.killpg(process.pid, 9)",
            "new": "pass", "breaks": "b", "tests": ["system_world_test"]} | changes


class MutantsTest(unittest.TestCase):
    def test_each_mutant_of_the_list_can_be_planted(self):
        mutants, groups = plant.read_list(plant.LIST)
        self.assertEqual(plant.problems(mutants, plant.ROOT, groups), [])
        self.assertGreaterEqual(len(mutants), 100)

    def test_a_group_stands_for_its_programs_behind_those_that_are_named(self):
        groups = {"two": ["a", "b"]}
        self.assertEqual(plant.expand(["b", "two", "c"], groups), ["b", "a", "c"])
        for name, tests, expected in (("system_world_test", [], "a test program has this name"),
                                      ("two", ["system_no_test"], "group two: there is no test")):
            found = plant.problems([], plant.ROOT, {name: tests})
            self.assertTrue(any(expected in line for line in found), found)

    def test_each_program_has_a_label(self):
        for test, label in (("cgtree_outputs_test", "//tests/cgtree:outputs_test"),
                            ("c_api_calls_test", "//tests/c_api:calls_test"),
                            ("system_no_test", None), ("none", None)):
            self.assertEqual(plant.label_of(test, plant.ROOT), label)

    def test_a_score_is_of_a_mutant_that_there_is(self):
        mutants, _ = plant.read_list(plant.LIST)
        score = json.loads((FOLDER / "results/score.json").read_text())
        self.assertLessEqual(score.keys(), {mutant["id"] for mutant in mutants})

    def test_a_list_that_is_not_true_is_refused(self):
        for changes, expected in (({"old": "no such text"}, "occurs 0 times"),
                                  ({"old": "def "}, "times in"),
                                  ({"new": "os.killpg(process.pid, 9)"}, "changes nothing"),
                                  ({"tests": ["system_no_test"]}, "no test program or group"),
                                  ({"file": "none.cc"}, "occurs 0 times")):
            found = plant.problems([mutant(**changes)], plant.ROOT)
            self.assertTrue(any(expected in line for line in found), found)
        self.assertIn("2 mutants", plant.problems([mutant(), mutant()], plant.ROOT)[0])

    def run_tool(self, run, *arguments, build="true"):
        """The tool's exit status and score, of one mutant with a program that is `run`."""
        with tempfile.TemporaryDirectory() as folder:
            names = pathlib.Path(folder)
            (names / "list.json").write_text(
                json.dumps({"groups": {"all": ["system_world_test"]},
                            "mutants": [mutant(tests=["all"])]}))
            done = subprocess.run(
                [sys.executable, FOLDER / "plant.py", "--list", names / "list.json", "--copy",
                 names / "copy", "--build", build, "--run", run, "--out", names / "score.json",
                 *arguments], text=True, capture_output=True, check=False)
            score = names / "score.json"
            return done.returncode, json.loads(score.read_text()) if score.exists() else {}

    @unittest.skipUnless(os.path.exists(plant.ROOT / ".git"), "copies what git lists")
    def test_a_mutant_is_killed_or_survives(self):
        status, score = self.run_tool("grep -q 'killpg(process' tests/mutants/plant.py")
        self.assertEqual((status, score["x"]["fate"]), (0, "killed"))
        status, score = self.run_tool("true")
        self.assertEqual((status, score["x"]["fate"]), (1, "survived"))
        label = "//tests/system:world_test"
        status, score = self.run_tool(f"test {{test}}={{label}} = system_world_test={label}",
                                      build=f"test {{labels}}={{tests}} = {label}=system_world_test")
        self.assertEqual((status, score["x"]["fate"]), (1, "survived"))
        status, score = self.run_tool("false")
        self.assertEqual((status, score), (3, {}))

    def test_the_command_line_is_checked(self):
        done = subprocess.run([sys.executable, FOLDER / "plant.py"], capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
