"""The wheel cgtree-check has the package and the library, and nothing else; it runs where it is installed."""

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, "examples/tutorials")

import tutorial  # noqa: E402

LIBRARY = os.path.realpath("check/libcgtree_check.so")
COMMANDS, FAULT, _, REPORT = tutorial.blocks_of(pathlib.Path("docs/first_hour/check.md"), "sh", "cpp", "sh", "text")


class WheelTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run([sys.executable, "-B", "check/pack.py", f"--out={self.folder}", LIBRARY], check=True,
                       stdout=subprocess.DEVNULL)
        [self.wheel] = self.folder.glob("cgtree_check-*.whl")
        self.files = zipfile.ZipFile(self.wheel)
        self.addCleanup(self.files.close)

    def test_it_has_nothing_else(self):
        names = {name.split("/", 1)[1] if ".dist-info/" in name else name for name in self.files.namelist()}
        self.assertEqual(
            {"cgtree_check/__init__.py", "cgtree_check/__main__.py", "cgtree_check/hooks/sitecustomize.py",
             "cgtree_check/libcgtree_check.so", "LICENSE", "THIRD_PARTY_LICENSES.md", "METADATA", "WHEEL", "RECORD",
             "entry_points.txt"}, names)

    def test_its_record_is_true(self):
        [record] = [name for name in self.files.namelist() if name.endswith("/RECORD")]
        rows = [line.rsplit(",", 2) for line in self.files.read(record).decode().splitlines()]
        self.assertEqual(sorted(self.files.namelist()), sorted(row[0] for row in rows))
        for name, digest, size in rows:
            if name != record:
                data = self.files.read(name)
                self.assertEqual(len(data), int(size))
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual(f"sha256={expected}", digest)

    def test_it_runs_where_it_is_unpacked(self):
        self.files.extractall(self.folder / "site")
        said = subprocess.run([sys.executable, "-m", "cgtree_check", "run", "sh", "-c", "echo $PYTHONPATH; exit 5"],
                              env={**os.environ, "PYTHONPATH": str(self.folder / "site")}, text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(5, said.returncode)
        self.assertIn("site/cgtree_check/hooks:", said.stdout)
        self.assertNotIn("is not there", said.stderr)

    def test_the_commands_of_the_first_hour_run(self):
        subprocess.run([sys.executable, "-m", "venv", self.folder / "python"], check=True)
        program = self.folder / "program"
        program.write_text("#!/bin/sh\necho the program runs\n")
        program.chmod(0o755)
        environment = {**os.environ, "PIP_NO_INDEX": "1", "PATH": f"{self.folder}/python/bin:{os.environ['PATH']}"}
        said = subprocess.run(["bash", "-ec", COMMANDS], env=environment, cwd=self.folder, text=True,
                              capture_output=True, check=False, timeout=60)
        self.assertEqual(0, said.returncode, said.stderr)
        self.assertTrue(said.stdout.endswith("the program runs\n"), said.stdout)
        self.assertIn("nothing was watched", said.stderr)


class FirstHourTest(unittest.TestCase):
    """The page of the first hour shows a planted program, and its recorded output on a GPU."""

    def test_the_fault_is_a_planted_program(self):
        _, begin, rest = pathlib.Path("tests/check/planted/planted.cu").read_text(encoding="utf-8").partition(
            "// docs/first_hour/check.md begins\n")
        self.assertTrue(begin)
        self.assertEqual(rest.partition("// docs/first_hour/check.md ends\n")[0], FAULT)

    def test_the_report_is_recorded(self):
        rows = json.loads(pathlib.Path("benchmarks/results/check_gpu_h200.json").read_text(encoding="utf-8"))["rows"]
        [said] = [row["said"] for row in rows if row["name"] == "freed --fault"]
        self.assertRegex(said, rf"\A{tutorial.pattern_of(REPORT)}")


if __name__ == "__main__":
    unittest.main()
