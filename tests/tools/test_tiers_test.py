"""tools/test_release, tools/test_gpu and tools/release: files and targets of their steps, and exit statuses."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()
SCRIPTS = ("test_release", "test_gpu", "release")
LABEL = re.compile(r"//((?:\w+/)*\w*):(\w+)")
CONFIG = re.compile(r"--config=([\w-]+)")
PATH = re.compile(r"(?<![\w/-])((?:tests|tools)/[\w/.]+)")


def run(script, *arguments, **environment):
    return subprocess.run([ROOT / "tools" / script, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=os.environ | environment, check=False)


def steps(script, *arguments):
    """Returns the commands of a script's steps by name."""
    lines = run(script, "--list", *arguments).stdout.splitlines()
    return {head.split(" (")[0]: command.strip()
            for head, command in zip(lines[::2], lines[1::2], strict=True)}


def exists(package, name):
    build = ROOT / package / "BUILD.bazel"
    return build.is_file() and (f'"{name}"' in build.read_text(encoding="utf-8")
                                or any((ROOT / package).glob(f"{name}.*")))


class TestTiersTest(unittest.TestCase):
    def all_commands(self):
        for script, *arguments in ((SCRIPTS[0],), (SCRIPTS[1],), (SCRIPTS[1], "--host=user@host"), (SCRIPTS[2],)):
            found = steps(script, *arguments)
            self.assertGreater(len(found), 5)
            for name, command in found.items():
                with self.subTest(script=script, step=name):
                    yield command

    def test_each_command_parses_and_names_what_exists(self):
        configs = set(re.findall(r"^(?:build|test):([\w-]+) ", (ROOT / ".bazelrc").read_text(),
                                 re.MULTILINE))
        for command in self.all_commands():
            parsed = subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False)
            self.assertEqual((parsed.returncode, parsed.stderr), (0, b""))
            for package, name in LABEL.findall(command):
                self.assertTrue(exists(package, name), f"//{package}:{name}")
            self.assertLessEqual(set(CONFIG.findall(command)), configs)
            for path in PATH.findall(re.sub(r"bazel-bin/\S+|//\S+", "", command)):
                self.assertTrue((ROOT / path).exists(), path)

    def test_every_fuzzer_is_a_step(self):
        commands = " ".join(steps("test_release").values())
        fuzzers = [path.stem for path in (ROOT / "tests").rglob("*_fuzz_test.cc")]
        self.assertGreater(len(fuzzers), 5)
        for name in [*fuzzers, "event_files_fuzz.py", "boundary_fuzz.py"]:
            self.assertIn(name, commands)

    def test_random_steps_go_on_for_as_long_as_is_said(self):
        found = steps("test_release", "--seconds=77")
        self.assertIn("-max_total_time=77 ", found["fuzz_pool"])
        self.assertIn(" 77 ", found["world"])

    def test_all_steps_are_run_and_those_that_fail_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            bazel = pathlib.Path(folder, "bazel")
            bazel.write_text('#!/bin/bash\necho "called $*"\n[[ $* != *asan* ]]\n')
            bazel.chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            done = run("test_release", "--only=tsan,asan", PATH=path)
            self.assertEqual(done.returncode, 1)
            self.assertIn("called test --config=tsan -- //... -//tests/check:run_test", done.stdout)
            self.assertEqual(done.stdout.splitlines()[-1], "failed: asan")
            self.assertNotIn("nocuda", done.stdout)
            done = run("test_release", "--only=nocuda", PATH=path)
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "all passed"))

    @unittest.skipUnless((ROOT / ".git").exists(), "no commit here")
    def test_a_release_stops_at_the_first_step_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            bazel = pathlib.Path(folder, "bazel")
            bazel.write_text("#!/bin/bash\nexit 1\n")
            bazel.chmod(0o755)
            done = run("release", f"--out={folder}/out", "--only=test,sums", PATH=f"{folder}:{os.environ['PATH']}")
            self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (1, "failed: test"))
            self.assertEqual(list(pathlib.Path(folder, "out").iterdir()), [])

    @unittest.skipUnless((ROOT / ".git").exists(), "no commit here")
    def test_a_release_has_two_files_and_the_c_abi_of_its_commit(self):
        with tempfile.TemporaryDirectory() as folder:
            # A clone, as a release deletes the folder that an earlier one in the same tree worked in.
            out, clone = pathlib.Path(folder, "out"), pathlib.Path(folder, "clone")
            subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
            shutil.copy(ROOT / "tools/release", clone / "tools")
            archives = []
            for _ in range(2):
                done = run(clone / "tools/release", f"--out={out}", "--only=sources,abi_file,two_files,sums")
                self.assertEqual(done.returncode, 0, done.stdout)
                [archive] = out.glob("cgtree_steps-*.tar.gz")
                archives.append(archive.read_bytes())
            self.assertEqual(archives[0], archives[1])
            name = archive.name.removesuffix(".tar.gz")
            with tarfile.open(archive) as packed:
                self.assertEqual([member.name for member in packed],
                                 [name, *(f"{name}/{file}" for file in ("LICENSE", "cgtree_steps.cu", "cgtree_steps.h"))])
            [abi] = out.glob("cgtree-*.abi.txt")
            self.assertIn("function cgt_call:", abi.read_text())
            sums = (out / "SHA256SUMS").read_text().splitlines()
            self.assertEqual({line.split("  ")[1] for line in sums},
                             {path.name for path in out.iterdir()} - {"SHA256SUMS"})

    def test_the_command_line_is_checked(self):
        for script in SCRIPTS:
            self.assertIn("usage: tools/" + script, run(script, "--help").stdout)
            self.assertEqual(run(script, "--help").returncode, 0)
            for wrong in ("--fast", "--only=nothing", "--only="):
                self.assertEqual(run(script, wrong).returncode, 2, wrong)
        for script, wrong in (("test_release", "--seconds=x"), ("test_release", "--host=a"),
                              ("test_gpu", "--seconds=3"), ("release", "--host=a")):
            self.assertEqual(run(script, wrong).returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
