"""The site is made without a warning, loads only its own files, has no broken link, and fits narrow windows."""

import html
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse

sys.path[:0] = ["tools", "tests/tools/tree_viewer"]

import chromium  # noqa: E402
import source_tree  # noqa: E402

ROOT = source_tree.real_root()
LOADED = re.compile(r'<(?:script|img|source|iframe|video|link)\b[^>]*?\s(?:src|srcset|href)="((?:https?:)?//[^"]*)"'
                    r'|(?:url\(|@import)\s*["\']?((?:https?:)?//[^"\')]*)')
LINK = re.compile(r'\s(?:href|src|srcset)="([^"]*)"')
ANCHOR = re.compile(r'\sid="([^"]*)"')
# Pages with wide content: tables, programs, signatures, long names.
WIDE = ["index", "docs/README", "docs/benchmarks", "docs/multi_gpu", "docs/python", "docs/footguns",
        "docs/metrics", "docs/tree_viewer", "docs/tutorials/find_out_why", "docs/decisions/README",
        "tests/acceptance", "api/README", "api/compile.h", "api/c_api.h", "cgtree/compile.h"]


def load():
    """Returns tools/site as a module."""
    loader = importlib.machinery.SourceFileLoader("site_tool", str(ROOT / "tools/site"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("site_tool", loader))
    loader.exec_module(module)
    return module


SITE = load()


@unittest.skipUnless(SITE.SPHINX.exists(), "Sphinx is not installed: tools/setup --site")
@unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed: tools/setup")
class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        began = time.monotonic()
        cls.done = subprocess.run([ROOT / "tools/site", f"--out={cls.folder}"], text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(f"made in {time.monotonic() - began:.0f} s", file=sys.stderr)
        cls.pages = {path.relative_to(cls.folder): path.read_text(encoding="utf-8")
                     for path in cls.folder.rglob("*.html")}

    def test_it_is_made_without_a_warning(self):
        self.assertEqual((self.done.stdout, self.done.returncode), ("", 0))

    def test_it_has_every_page(self):
        for path in [*ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md"]:
            self.assertIn(path.relative_to(ROOT).with_suffix(".html"), self.pages)
        for name in ("index", "api/context.h", "api/c_api.h", "search", "benchmarks/results/replay_bench_h200.json"):
            self.assertIn(pathlib.Path(name + ".html"), self.pages)
        compile_page = self.pages[pathlib.Path("api/compile.h.html")]
        self.assertIn("CompiledCore", compile_page)
        self.assertNotIn("function_", compile_page.replace("function_handle", ""), "what is private")

    def test_nothing_is_loaded_from_elsewhere(self):
        for path in self.folder.rglob("*"):
            if path.suffix in (".html", ".css"):
                found = LOADED.findall(path.read_text(encoding="utf-8"))
                self.assertEqual(found, [], path)

    def test_what_would_load_from_elsewhere_is_found(self):
        for text in ('<script src="https://a.b/c.js">', '<link rel="stylesheet" href="//a.b/c.css">',
                     "@import 'http://a.b'", "src: url(https://a.b/font.woff)"):
            self.assertTrue(LOADED.search(text), text)
        self.assertFalse(LOADED.search('<a href="https://a.b">'))

    def test_every_link_leads_to_a_page_and_an_anchor(self):
        anchors = {path: set(map(html.unescape, ANCHOR.findall(text))) for path, text in self.pages.items()}
        broken = set()
        for page, text in self.pages.items():
            for link in map(html.unescape, LINK.findall(text)):
                file, _, anchor = link.partition("#")
                if re.match(r"[a-z]+:", file):
                    continue
                file = urllib.parse.unquote(file.partition("?")[0])
                target = pathlib.Path(os.path.normpath(page.parent / file)) if file else page
                if not (self.folder / target).is_file():
                    broken.add((str(page), link))
                elif anchor and urllib.parse.unquote(anchor) not in anchors[target]:
                    broken.add((str(page), link))
        self.assertEqual(broken, set())

    def test_a_broken_link_or_anchor_fails(self):
        for text in ("[a](absent.md)", "[a](other.md#absent)"):
            with self.subTest(text=text), tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                (folder / "pages").mkdir()
                (folder / "pages/index.md").write_text(f"# A\n\n{text}\n", encoding="utf-8")
                (folder / "pages/other.md").write_text("# B\n\n## A part\n", encoding="utf-8")
                self.assertFalse(SITE.build(folder / "pages", folder, folder / "out"))

    def in_browser(self):
        if not chromium.find():
            if os.environ.get("CGTREE_REQUIRE_BROWSER") == "1":
                self.fail("no chromium (CGTREE_REQUIRE_BROWSER=1); run tools/setup")
            self.skipTest("no chromium; run tools/setup")
        browser = chromium.Browser()
        self.enterContext(browser)
        return browser

    def test_pages_fit_a_narrow_window(self):
        browser = self.in_browser()
        for name in WIDE:
            browser.open(self.folder / f"{name}.html", width=420)
            wide, window = browser.evaluate(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            self.assertLessEqual(wide, window, name)
            self.assertEqual((browser.exceptions, browser.log), ([], []), name)

    def test_it_is_light_or_dark_as_the_reader_likes(self):
        browser = self.in_browser()
        grounds = []
        for scheme in ("light", "dark"):
            browser.open(self.folder / "index.html", scheme=scheme)
            grounds.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*grounds)

    def test_search_works_without_network(self):
        browser = self.in_browser()
        browser.open(self.folder / "search.html", fragment="?q=bucket")
        deadline = time.monotonic() + 30
        while "finished" not in browser.evaluate("document.body.innerText") and time.monotonic() < deadline:
            time.sleep(0.1)
        found = browser.evaluate("[...document.querySelectorAll('#search-results li')].map(one => one.innerText)")
        self.assertTrue(any(one.startswith("Dynamic shapes") for one in found), found)
        self.assertEqual([url for url in browser.requests if not url.startswith(("file:", "data:"))], [])


class CommandLineTest(unittest.TestCase):
    def run_site(self, *arguments, **environment):
        return subprocess.run([ROOT / "tools/site", *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=os.environ | environment, check=False)

    def test_a_wrong_argument_is_refused(self):
        self.assertEqual(self.run_site("--fast").returncode, 2)
        self.assertEqual(self.run_site().returncode, 2)

    def test_what_is_not_installed_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_site(f"--out={folder}/site", CGTREE_SITE=folder)
        self.assertEqual((done.returncode, done.stdout),
                         (3, "site: Sphinx is not installed: run tools/setup --site\n"))


if __name__ == "__main__":
    unittest.main()
