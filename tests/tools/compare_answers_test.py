"""The differences that compare_answers reports, and its exit status."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest


def row(call="Alloc", device="host", **changed):
    return {"device": device, "call": call, "mode": "Global", "stream": "Blocking", "code": 900,
            "last_error": 900, "status": "invalidated", "end": 901} | changed


class CompareAnswersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def compare(self, left, right, left_device="", right_device=""):
        arguments = []
        for name, rows, device in (("a", left, left_device), ("b", right, right_device)):
            file = self.root / name
            file.write_text(json.dumps(rows), encoding="utf-8")
            arguments.append(f"{file}{device and ':' + device}")
        return subprocess.run([sys.executable, "tools/compare_answers.py", *arguments], text=True,
                              capture_output=True, check=False)

    def test_the_same_answers_of_two_devices_are_no_difference(self):
        result = self.compare([row()], [row(device="cuda")])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("1 calls compared, 0 differ", result.stdout)

    def test_another_number_or_status_is_printed_with_both_sides(self):
        result = self.compare([row(), row("Free")], [row(code=0), row("Free", status="active")])
        self.assertEqual(result.returncode, 1)
        self.assertIn("Alloc Global Blocking: code 900 / 0", result.stdout)
        self.assertIn("Free Global Blocking: status invalidated / active", result.stdout)

    def test_a_call_that_one_side_lacks_is_a_difference(self):
        result = self.compare([row(), row("Free")], [row()])
        self.assertEqual(result.returncode, 1)
        self.assertIn("Free Global Blocking: only the first has it", result.stdout)

    def test_one_of_several_devices_is_chosen_by_name(self):
        both = [row(), row(device="cuda", code=0)]
        self.assertEqual(self.compare(both, both, "host", "cuda").returncode, 1)
        self.assertEqual(self.compare(both, both, "cuda", "cuda").returncode, 0)

    def test_nothing_to_compare_is_not_success(self):
        self.assertEqual(self.compare([row()], []).returncode, 2)
        self.assertEqual(self.compare([row()], [row(), row(device="cuda")]).returncode, 2)
        self.assertEqual(self.compare([row()], [row()], "cuda").returncode, 2)


if __name__ == "__main__":
    unittest.main()
