"""The README shows the example that is compiled and run, and its links and results exist.

Pages link to what exists and name targets that exist, docs/README.md lists each page once, and one
version is stated everywhere.
"""

import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()


PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted(ROOT.glob("docs/**/*.md"))
LABEL = re.compile(r"(?<![:\w])//((?:[\w-]+/)*[\w-]*)(?::([\w./-]*\w))?")


def has_target(package, name):
    """Whether the package has the target or file, or names the source of such a test."""
    build = ROOT / package / "BUILD.bazel"
    if not build.is_file():
        return False
    return (not name or f'"{name}"' in build.read_text(encoding="utf-8")
            or (ROOT / package / name).is_file() or any((ROOT / package).glob(f"{name}.*")))


def headings(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def lines_of_example():
    """Returns the lines between the marks, without indentation."""
    lines, inside = [], False
    for line in (ROOT / "tests/readme_example_test.cc").read_text(encoding="utf-8").splitlines():
        if line.strip() in ("// README begins", "// README ends"):
            inside = line.strip().endswith("begins")
        elif inside and line.strip():
            lines.append(line.strip())
    return lines


class ReadmeTest(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "README.md").read_text(encoding="utf-8")

    def test_the_example_is_the_one_that_runs(self):
        block = re.search(r"```cpp\n(.*?)```", self.text, re.DOTALL).group(1)
        self.assertEqual([line.strip() for line in block.splitlines() if line.strip()],
                         lines_of_example())

    def test_every_link_leads_somewhere(self):
        for page in PAGES:
            text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
                if "://" not in link:
                    with self.subTest(page=page.name, link=link):
                        self.assertTrue((page.parent / link).exists())

    def test_every_number_has_its_results(self):
        for name in re.findall(r"benchmarks/results/[\w.-]+", self.text):
            with self.subTest(file=name):
                self.assertTrue((ROOT / name).is_file())


class PagesTest(unittest.TestCase):
    def test_the_index_lists_each_page_once(self):
        text = (ROOT / "docs/README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| \[([\w./]+)\]\(([\w./]+)\) \| (.+) \|$", text, re.MULTILINE)
        pages = sorted(path.name for path in ROOT.glob("docs/*.md") if path.name != "README.md")
        listed = [link for _, link, _ in rows if "/" not in link]
        self.assertEqual(sorted(listed), pages)
        for name, link, answers in rows:
            with self.subTest(page=name):
                self.assertEqual(name, link.removeprefix("../"))
                self.assertTrue(answers.endswith("?"), "say which question it answers")

    def test_every_heading_that_a_link_names_exists(self):
        for page in PAGES:
            text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            for link, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
                target = page.parent / link if link else page
                with self.subTest(page=page.name, link=link, heading=heading):
                    self.assertIn(heading, headings(target.read_text(encoding="utf-8")))

    def test_every_target_that_a_page_names_exists(self):
        for page in PAGES:
            for package, name in LABEL.findall(page.read_text(encoding="utf-8")):
                if package or name:  # "//..." is all of them
                    with self.subTest(page=page.name, label=f"//{package}:{name}"):
                        self.assertTrue(has_target(package.rstrip("/"), name))

    def test_one_version_is_stated_everywhere(self):
        number = int(re.search(r"#define CGT_VERSION (\d+)",
                               (ROOT / "cgtree/c_api.h").read_text()).group(1))
        version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        for file, statement in (("CMakeLists.txt", f"project(cgtree VERSION {version} "),
                                ("MODULE.bazel", f'version = "{version}"'),
                                ("python/cgtree/__init__.py", f'__version__ = "{version}"'),
                                ("docs/versions.md", f"cgtree is version {version},")):
            with self.subTest(file=file):
                self.assertIn(statement, (ROOT / file).read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
