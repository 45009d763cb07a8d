"""The tutorials in Python, which use PyTorch, print the output on their pages, on the CPU."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "tests/examples/tutorials")

try:
    import torch  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest("PyTorch is absent") from error

from support import PAGES, expect_page  # noqa: E402


class TorchTutorialsTest(unittest.TestCase):
    def test_programs_print_what_their_pages_say(self):
        pages = {name: page for name, page in PAGES.items() if page.language == "python"}
        self.assertTrue(pages)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, page in pages.items():
            def command_of(number, name=name, page=page):
                path = pathlib.Path(folder.name, f"{name}_{number}.py")
                path.write_text(page.program_with(number), encoding="utf-8")
                start = f"import sys; sys.path.insert(0, 'python'); import runpy; runpy.run_path({str(path)!r})"
                return [sys.executable, "-B", "-c", start]
            with self.subTest(page=name):
                expect_page(self, page, command_of)


if __name__ == "__main__":
    unittest.main()
