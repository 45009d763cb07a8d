"""The README is short, its example is tested, and each figure in it is in the JSON beside it.

Each room around the core has a short page. Pages link to files that exist and name targets that
exist, docs/README.md lists each page once, and all pages state one version.
"""

import json
import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

ROOT = source_tree.real_root()
MAX_LINES = 90
MAX_ROWS = 8
MAX_ROOM_LINES = 55
MAX_LINES_FOR_WRITERS = 110  # for the page that also explains how to write an extension
MAX_ROOM_COLUMNS = 120
NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?")


def time_of(results, name):
    row = next(row for row in results["benchmarks"] if row["name"] == name)
    return row.get("median_us", row["real_time"])


def call(name, peer):
    """Returns the numbers of a call. above_us is the median of its time above that of a bare launch."""
    def numbers(results):
        above = next(row["above_us"] for row in results["benchmarks"] if row["name"] == name)
        time = time_of(results, name)
        return [time, time - above, time_of(results, peer)]
    return numbers


def collectives(results):
    return [time_of(results, f"BM_HostTime/{what}/ranks:2/mixing:0/iterations:50/manual_time")
            for what in ("context_in_group", "graph", "eager")]


def torch_call(results):
    host = {row["row"]: row["median"] for row in results["results"]
            if row["parameters"] == 50 and row["kind"] == "inference"}
    return [host[row] for row in ("cgtree eager", "floor", "graph trees")]


def tokens(results):
    return [results[mode]["tokens_per_second"] for mode in ("cgtree", "eager")]


# For each row of the table of results: its file, and the numbers that its cells round.
FIGURES = {
    "a call, nothing copied": ("replay_bench_h200", call(
        "BM_Call/copied:0/moved:0", "BM_Call/torch_trees/copied:0/moved:0")),
    "a call, 16 copied inputs that have moved": ("replay_bench_h200", call(
        "BM_Call/copied:16/moved:1", "BM_Call/torch_trees/copied:16/moved:1")),
    "a call, 300 static inputs": ("replay_bench_h200", call(
        "BM_Call/static:300", "BM_Call/torch_trees/static:300")),
    "a step with 32 all-reduces on two GPUs": ("ranks_bench_h200", collectives),
    "a call of a PyTorch model with 50 parameters":
        ("torch_seam_bench_h200", torch_call),
    "a server's tokens/s, model of 1 billion parameters, 1,000 requests": ("serve_h200", tokens),
}


PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
                                  "THIRD_PARTY_LICENSES.md")]
# The rooms around the core, except those that only select the extensions of a program.
ROOMS = [path.parent for path in source_tree.files(ROOT)
         if path.name == "ROOM" and path.parent.name not in ("all", "none")
         and "part: around" in (ROOT / path).read_text(encoding="utf-8").splitlines()]
ROOM_PAGES = [ROOT / room / "README.md" for room in ROOMS]
PAGES += [ROOT / "allocator/README.md", ROOT / "tests/acceptance.md", *sorted(ROOT.glob("docs/**/*.md")),
          *(page for page in ROOM_PAGES if page.is_file())]
LABEL = re.compile(r"(?<![:\w])//((?:[\w-]+/)*[\w-]*)(?::([\w./-]*\w))?")


def has_target(package, name):
    """Returns True if the package has the target or file, or names the source of such a test."""
    build = ROOT / package / "BUILD.bazel"
    if not build.is_file():
        return False
    return (not name or f'"{name}"' in build.read_text(encoding="utf-8")
            or (ROOT / package / name).is_file() or any((ROOT / package).glob(f"{name}.*")))


def project_version():
    """Returns the version of CMakeLists.txt, which all others repeat."""
    lists = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"^project\(cgtree VERSION (\S+) ", lists, re.MULTILINE).group(1)


def table(text):
    """Returns the rows of the table of results, each as a list of cells, without the head."""
    part = text.split("## Results")[1].split("\n## ")[0]
    lines = [line.strip("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def headings(text):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def rounded(value, like):
    """Returns `value` with as many digits as the text `like`."""
    digits = len(like.partition(".")[2])
    return f"{value:,.{digits}f}"


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

    def test_a_cell_of_the_table_has_one_number_which_is_in_the_json(self):
        rows = table(self.text)
        self.assertEqual([row[0] for row in rows], list(FIGURES))
        self.assertLessEqual(len(rows), MAX_ROWS)
        for what, *cells, link in rows:
            file, numbers = FIGURES[what]
            with self.subTest(row=what):
                self.assertTrue(link.endswith(f"(benchmarks/results/{file}.json)"), link)
                found = [NUMBER.findall(cell) for cell in cells if cell != "–"]
                self.assertEqual([len(cell) for cell in found], [1] * len(found))
                text = (ROOT / f"benchmarks/results/{file}.json").read_text(encoding="utf-8")
                expected = numbers(json.loads(text))
                self.assertEqual([like for like, in found],
                                 [rounded(value, like)
                                  for value, (like,) in zip(expected, found, strict=True)])

    def test_it_is_short(self):
        self.assertLessEqual(len(self.text.splitlines()), MAX_LINES)


class RoomPagesTest(unittest.TestCase):
    def test_every_room_around_the_core_has_a_page_of_one_screen(self):
        self.assertGreater(len(ROOMS), 10)
        for room, page in zip(ROOMS, ROOM_PAGES, strict=True):
            with self.subTest(room=room):
                self.assertTrue(page.is_file())
                lines = page.read_text(encoding="utf-8").splitlines()
                most = MAX_LINES_FOR_WRITERS if str(room) == "extensions" else MAX_ROOM_LINES
                self.assertLessEqual(len(lines), most)
                self.assertEqual([line for line in lines if len(line) > MAX_ROOM_COLUMNS], [])

    def test_it_says_what_it_costs_and_how_stable_it_is_and_leads_to_docs(self):
        for room, page in zip(ROOMS, ROOM_PAGES, strict=True):
            text = page.read_text(encoding="utf-8")
            for part in (r"^\*\*(Stable|Experimental)\*\*", r"^\*\*Costs where it is not used:\*\*",
                         r"\]\((\.\./)+docs/\w+\.md"):
                with self.subTest(room=room, part=part):
                    self.assertRegex(text, re.compile(part, re.MULTILINE))

    def test_every_header_that_its_example_includes_exists(self):
        for room, page in zip(ROOMS, ROOM_PAGES, strict=True):
            headers = re.findall(r'#include "([^"]+)"', page.read_text(encoding="utf-8"))
            with self.subTest(room=room):
                self.assertNotEqual(headers, [])
                self.assertEqual([name for name in headers if not (ROOT / name).is_file()], [])


class PagesTest(unittest.TestCase):
    def test_the_index_lists_each_page_once(self):
        text = (ROOT / "docs/README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| \[([\w./]+)\]\(([\w./]+)\) \| (.+) \|$", text, re.MULTILINE)
        pages = [path.name for path in ROOT.glob("docs/*.md") if path.name != "README.md"]
        listed = [link for _, link, _ in rows if "/" not in link]
        self.assertEqual(sorted(listed), sorted(pages))
        for name, link, answers in rows:
            with self.subTest(page=name):
                self.assertIn(name.rstrip("/"), link)
                self.assertTrue(answers.endswith("?"), "say which question it answers")

    def test_the_index_of_decisions_has_their_titles(self):
        listed = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8").splitlines()
        pages = {path.name: path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
                 for path in sorted(ROOT.glob("docs/decisions/0*.md"))}
        self.assertEqual([line for line in listed if line.startswith("- ")],
                         [f"- [{title[:4]}]({name}){title[4:]}" for name, title in pages.items()])

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
                if package or name:  # "//..." means all targets
                    with self.subTest(page=page.name, label=f"//{package}:{name}"):
                        self.assertTrue(has_target(package.rstrip("/"), name))

    def test_one_version_is_stated_everywhere(self):
        version = project_version()
        major, minor, patch = map(int, version.split("."))
        for file, statement in (("MODULE.bazel", f'version = "{version}"'),
                                ("bindings/c/c_api.h", f"#define CGT_VERSION {major * 10000 + minor * 100 + patch}\n"),
                                ("python/cgtree/__init__.py", f'__version__ = "{version}"'),
                                ("packaging/debian/changelog", f"cgtree ({version}-"),
                                ("packaging/vcpkg/vcpkg.json", f'"version": "{version}"'),
                                ("packaging/spack/package.py", f'version("{version}")'),
                                ("docs/versions.md", f"cgtree is version {version},")):
            with self.subTest(file=file):
                self.assertIn(statement, (ROOT / file).read_text(encoding="utf-8"))
        changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        self.assertEqual(re.search("^## (.*)", changes, re.MULTILINE).group(1), version)

    def test_pages_ask_for_this_version(self):
        """find_package(cgtree 0.2) has a part of the version, cgtree-0.2.0-cp311... all of it."""
        for page in PAGES:
            for stated in re.findall(r"\bcgtree[-@ ](\d+(?:\.\d+)+)",
                                     page.read_text(encoding="utf-8")):
                with self.subTest(page=page.name):
                    self.assertTrue(f"{project_version()}.".startswith(f"{stated}."), stated)


if __name__ == "__main__":
    unittest.main()
