"""Every script prints its usage for --help, and does nothing else."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

# Hooks of build systems, which are not run by hand.
HOOKS = {".ci/run", "bazel/python/run_unittest.sh", "packaging/debian/rules"}


def scripts(root):
    """Returns the paths of the scripts that people run."""
    return [path for path in source_tree.files(root)
            if os.access(root / path, os.X_OK) and str(path) not in HOOKS]


class HelpTest(unittest.TestCase):
    def test_every_script_says_how_it_is_used(self):
        root = source_tree.real_root()
        found = scripts(root)
        self.assertGreater(len(found), 20)
        for script in found:
            with self.subTest(script=str(script)), tempfile.TemporaryDirectory() as empty:
                said = subprocess.run([root / script, "--help"], cwd=empty, text=True, timeout=60,
                                      stdin=subprocess.DEVNULL, capture_output=True, check=False)
                self.assertEqual(0, said.returncode, said.stderr)
                name = script.parent.name if script.stem == "main" else script.name
                self.assertIn("report" if name == "_report.py" else name, said.stdout)  # installed as cgtree_report
                self.assertEqual("", said.stderr)
                self.assertEqual([], os.listdir(empty))

    def test_a_path_that_does_not_exist_is_refused_in_words(self):
        root = source_tree.real_root()
        for script in ["check_comments.py", "check_format.py", "check_layering.py", "check_prose", "count_lines.py",
                       "count_tests.py", "doxygen_filter.py", "sbom.py", "../examples/tutorials/tutorial.py"]:
            with self.subTest(script=script):
                said = subprocess.run([sys.executable, root / "tools" / script, "/no/such/place"], text=True, timeout=60,
                                      capture_output=True, check=False)
                self.assertNotEqual(0, said.returncode)
                self.assertIn("/no/such/place", said.stderr + said.stdout)
                self.assertNotIn("Traceback", said.stderr)


if __name__ == "__main__":
    unittest.main()
