"""tools/setup does nothing, installs or refuses, on a machine made of a PATH and a prefix."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

COMMANDS = ["bazel", "gcc", "g++", "python3", "clang-format-14", "valgrind", "dpkg", "abidw", "chromium", "clang++-16", "g++-11",
            "cmake", "doxygen", "make", "mpirun", "pkg-config", "promtool", "python3-config", "f2py"]
HEADERS = ["../lib/python3/dist-packages/prometheus_client/parser.py", "gtest/gtest.h",
           "gmock/gmock.h", "spdlog/spdlog.h", "fmt/format.h", "CLI/CLI.hpp",
           "benchmark/benchmark.h", "nlohmann/json.hpp", "rapidcheck.h"]
# Logs its arguments; an installation makes the command exist.
APT_GET = 'echo "$@" >>"{log}"\nif [[ $* == *" install "* ]]; then {install}; fi\n'


class SetupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.log = self.root / "apt.log"
        for command in COMMANDS:
            self.add_command(command, "exit 0")
        self.add_command("id", "echo 0")
        self.add_command("apt-get", APT_GET.format(log=self.log, install="true"))
        for command in ("env", "rm"):
            (self.bin / command).symlink_to(shutil.which(command))
        for header in HEADERS:
            path = self.root / "prefix/include" / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def add_command(self, name, script):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def remove_command(self, name):
        (self.bin / name).unlink()

    def run_setup(self, *arguments):
        environment = {"PATH": str(self.bin), "SYSTEM_PREFIX": str(self.root / "prefix"),
                       "CGTREE_TORCH": str(self.root / "torch"),
                       "CGTREE_SITE": str(self.root / "site")}
        return subprocess.run([shutil.which("bash"), os.path.realpath("tools/setup"), *arguments],
                              env=environment, cwd=self.root, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def test_it_is_silent_and_calls_nothing_when_nothing_is_missing(self):
        result = self.run_setup()
        self.assertEqual((result.stdout, result.returncode), ("", 0))
        self.assertEqual(self.calls(), [])

    def test_it_passes_on_an_unknown_system_that_has_all(self):
        self.remove_command("apt-get")
        self.remove_command("dpkg")
        self.assertEqual(self.run_setup().returncode, 0)

    def test_it_names_what_is_missing_on_an_unknown_system(self):
        for command in ["apt-get", "dpkg", "clang-format-14", "bazel"]:
            self.remove_command(command)
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("bazel-bootstrap clang-format-14", result.stdout)

    def test_it_updates_the_lists_and_installs_only_what_is_missing(self):
        self.remove_command("clang-format-14")
        made = self.bin / "clang-format-14"
        install = f'echo "#!/bin/bash" >"{made}"; {shutil.which("chmod")} +x "{made}"'
        self.add_command("apt-get", APT_GET.format(log=self.log, install=install))
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stdout)
        update, install = self.calls()
        self.assertTrue(update.endswith("update"), update)
        self.assertTrue(install.endswith("install --no-install-recommends clang-format-14"), install)
        self.assertIn("CUDA toolkit", result.stdout)

    def test_it_fails_when_the_installation_did_not_help(self):
        self.remove_command("clang-format-14")
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("still missing", result.stdout)

    def test_it_goes_on_without_a_browser_that_cannot_be_installed(self):
        self.remove_command("chromium")
        self.add_command("apt-get", APT_GET.format(log=self.log, install="exit 100"))
        result = self.run_setup()
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertTrue(self.calls()[-1].endswith("install --no-install-recommends chromium"))
        self.assertIn("going on without chromium", result.stdout)

    def test_a_browser_that_cannot_be_installed_does_not_stop_what_can(self):
        self.remove_command("chromium")
        self.remove_command("clang-format-14")
        made = self.bin / "clang-format-14"
        install = (f'if [[ $* == *chromium* ]]; then exit 100; fi; echo "#!/bin/bash" >"{made}"; '
                   f'{shutil.which("chmod")} +x "{made}"')
        self.add_command("apt-get", APT_GET.format(log=self.log, install=install))
        self.assertEqual(self.run_setup().returncode, 0)
        self.assertTrue(made.exists())

    def test_an_unknown_system_needs_no_browser(self):
        for command in ["apt-get", "dpkg", "chromium", "cmake", "doxygen", "make", "mpirun",
                        "pkg-config", "promtool", "python3-config", "f2py"]:
            self.remove_command(command)
        result = self.run_setup()
        self.assertEqual((result.stdout, result.returncode), ("", 0))

    def test_without_root_or_sudo_it_says_what_to_run(self):
        self.remove_command("clang-format-14")
        self.add_command("id", "echo 1000")
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install clang-format-14", result.stdout)
        self.assertEqual(self.calls(), [])

    def test_without_root_it_uses_sudo(self):
        self.remove_command("clang-format-14")
        self.add_command("id", "echo 1000")
        self.add_command("sudo", f'echo "sudo $1" >>"{self.log}"; exec "$@"')
        self.run_setup()
        self.assertIn("sudo apt-get", self.calls())

    def add_python(self, folder, pip):
        """Adds a python3 whose `-m venv` creates the folder with `pip` as its pip."""
        inner = self.root / folder / "bin/python3"
        marker = self.root / f"{folder}_installed"
        mkdir, chmod = shutil.which("mkdir"), shutil.which("chmod")
        script = (f'#!/bin/bash\\nif [[ $* == *pip* ]]; then {pip.format(marker=marker)}; fi\\n'
                  f'[[ -e {marker} ]]\\n')
        self.add_command("python3", f'echo "$@" >>"{self.log}"\n'
                         f'if [[ $1 == -m ]]; then {mkdir} -p "{inner.parent}"; '
                         f"printf '{script}' >\"{inner}\"; {chmod} +x \"{inner}\"; fi")

    def test_an_environment_is_installed_once(self):
        for folder, what in (("torch", "PyTorch"), ("site", "Sphinx")):
            with self.subTest(folder=folder):
                self.add_python(folder, 'echo >"{marker}"')
                first = self.run_setup(f"--{folder}")
                self.assertEqual(first.returncode, 0)
                self.assertIn(f"installing {what}", first.stdout)
                self.assertNotIn("going on without", first.stdout)
                self.assertIn(f"-m venv {self.root / folder}", self.calls())
                second = self.run_setup(f"--{folder}")
                self.assertEqual((second.stdout, second.returncode), ("", 0))

    def test_without_an_environment_it_goes_on_and_says_why(self):
        for folder in ("torch", "site"):
            with self.subTest(folder=folder):
                self.add_python(folder, 'echo "no such host"; exit 1')
                result = self.run_setup(f"--{folder}")
                self.assertEqual(result.returncode, 0)
                self.assertIn("whose tests are skipped: no such host", result.stdout)
                self.assertFalse((self.root / folder).exists())

    def test_an_environment_that_was_there_is_never_removed(self):
        self.add_python("torch", 'echo "no space left"; exit 1')
        kept = self.root / "torch/kept"
        kept.parent.mkdir()
        kept.touch()
        self.assertIn("no space left", self.run_setup("--torch").stdout)
        self.assertTrue(kept.exists())

    def test_verbose_says_that_nothing_is_missing(self):
        self.assertIn("nothing is missing", self.run_setup("--verbose").stdout)

    def test_an_unknown_argument_is_refused(self):
        self.assertEqual(self.run_setup("--fast").returncode, 2)
