"""A test of tree_viewer's command line: runs it in a new folder."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path("tools/tree_viewer/tree_viewer").resolve()
SNAPSHOTS = pathlib.Path("tests/tools/tree_viewer/snapshots").resolve()


def snapshot_of(program):
    return subprocess.run([SNAPSHOTS, program], stdout=subprocess.PIPE, check=True).stdout.decode()


class CommandLineTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.small = snapshot_of("small")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("tree.json", self.small)

    def write(self, name, text):
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def view(self, *arguments, **options):
        environment = dict(os.environ, BUILD_WORKING_DIRECTORY=str(self.folder))
        return subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True,
                              encoding="utf-8", check=False, **options)

    def assert_refused(self, message, *arguments, **options):
        before = sorted(self.folder.rglob("*"))
        done = self.view(*arguments, **options)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(message, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(sorted(self.folder.rglob("*")), before, "nothing is left behind")

    def assert_bad_snapshot(self, text, message):
        self.write("bad.json", text)
        self.assert_refused(message, "--snapshot=bad.json", "--html=out.html", "--dot=out.dot")

    def changed(self, change):
        tree = json.loads(self.small)
        change(tree)
        return json.dumps(tree)
