"""The README shows the example that is compiled and run, and its links and results exist."""

import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()


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
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
            text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
                if "://" not in link:
                    with self.subTest(page=page.name, link=link):
                        self.assertTrue((page.parent / link).exists())

    def test_every_number_has_its_results(self):
        for name in re.findall(r"benchmarks/results/[\w.-]+", self.text):
            with self.subTest(file=name):
                self.assertTrue((ROOT / name).is_file())


if __name__ == "__main__":
    unittest.main()
