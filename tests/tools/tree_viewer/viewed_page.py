"""A test of pages in a real browser. Skipped without chromium, unless CGTREE_REQUIRE_BROWSER=1."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import chromium

PROGRAM = pathlib.Path("tools/tree_viewer/tree_viewer").resolve()
SNAPSHOTS = pathlib.Path("tests/tools/tree_viewer/snapshots").resolve()


def text_of(selector):
    return f"[...document.querySelectorAll({json.dumps(selector)})].map(item => item.innerText)"


class ViewedPage(unittest.TestCase):
    """Each opened page must log nothing and request only itself."""

    @classmethod
    def setUpClass(cls):
        if chromium.find() is None:
            if os.environ.get("CGTREE_REQUIRE_BROWSER") == "1":
                raise AssertionError("no chromium (CGTREE_REQUIRE_BROWSER=1); run tools/setup")
            raise unittest.SkipTest("no chromium; tools/setup installs it")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.trees = {}
        cls.make_pages()
        cls.browser = chromium.Browser()
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)

    @classmethod
    def make_pages(cls):
        """Overridden: calls view() and run_program()."""

    @classmethod
    def run_program(cls, name):
        """Makes a page of the output of the program `name`."""
        made = subprocess.run([SNAPSHOTS, name], stdout=subprocess.PIPE, check=True).stdout
        cls.view(name, json.loads(made))

    @classmethod
    def serve(cls):
        """Makes the page "later" of two snapshots and an event file."""
        subprocess.run([SNAPSHOTS, "serving", cls.folder], check=True)
        cls.trees["earlier"] = json.loads((cls.folder / "earlier.json").read_text())
        cls.view("later", json.loads((cls.folder / "later.json").read_text()),
                 f"--compare={cls.folder}/earlier.json", f"--events={cls.folder}/events.jsonl")

    @classmethod
    def view(cls, name, tree, *options):
        cls.trees[name] = tree
        (cls.folder / f"{name}.json").write_text(json.dumps(tree))
        subprocess.run([PROGRAM, f"--snapshot={cls.folder / name}.json",
                        f"--html={cls.folder / name}.html", *options], check=True)

    def setUp(self):
        self.page = None

    def open(self, name, **options):
        page = self.folder / f"{name}.html"
        self.browser.open(page, **options)
        self.page = page.as_uri() + options.get("fragment", "")

    def value(self, expression):
        return self.browser.evaluate(expression)

    def cells(self, caption):
        """Returns the text of a table's body, row by row."""
        return self.value(f"""(() => {{
            const caption = [...document.querySelectorAll('caption')]
                .find(caption => caption.textContent === {json.dumps(caption)});
            return [...caption.parentElement.tBodies[0].rows]
                .map(row => [...row.cells].map(cell => cell.textContent));
          }})()""")

    def tearDown(self):
        if self.page is None:
            return
        self.assertEqual(self.browser.exceptions, [])
        self.assertEqual(self.browser.log, [], "nothing is blocked, refused or missing")
        self.assertEqual([url.split("#")[0] for url in self.browser.requests],
                         [self.page.split("#")[0]], "nothing but the page itself is asked for")
