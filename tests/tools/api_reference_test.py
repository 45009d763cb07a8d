"""The API reference is made without a warning, and the check of comments reads every header."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, "tools")

import check_comments  # noqa: E402
import source_tree  # noqa: E402

ROOT = source_tree.real_root()


class ApiReferenceTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
    def test_doxygen_makes_pages_of_what_users_call_and_warns_of_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([ROOT / "tools/api_reference", f"--out={folder}"], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual((done.stdout, done.returncode), ("", 0))
            pages = {path.name for path in pathlib.Path(folder, "html").iterdir()}
        for page in ("classcgtree_1_1Context.html", "classcgtree_1_1CompiledCore.html",
                     "structcgtree_1_1CompileOptions.html", "classcgtree_1_1Steps.html",
                     "classcgt_1_1Context.html", "c__api_8h.html"):
            self.assertIn(page, pages)
        self.assertEqual([page for page in pages if "detail" in page], [])

    def test_an_unknown_argument_is_refused(self):
        done = subprocess.run([ROOT / "tools/api_reference", "--fast"], capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 2)

    def test_names_of_each_kind_are_found_in_the_headers(self):
        found = {f"{one.kind} {one.name}" for path in check_comments.public_headers(ROOT)
                 for one in check_comments.Header(path.read_text(encoding="utf-8")).names}
        for name in ("type Context", "function Context::mark_step", "function CompiledCore::call",
                     "function CompiledFunction::into", "type ContextOptions",
                     "field VerifyOptions::every", "enumerator AtLimit::kEvict",
                     "function compile", "function Steps::begin", "type cgt_context",
                     "function cgt_context_create", "enumerator CGT_OK", "macro CGT_VERSION"):
            self.assertIn(name, found)
        self.assertNotIn("type SignatureOf", found)
        self.assertGreater(len(found), 1000)


if __name__ == "__main__":
    unittest.main()
