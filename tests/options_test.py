"""Each option is set by an example, an integration, a benchmark, a tutorial or the Python package.

The options are the fields of the public structs named ...Options or ...Limits. EXCEPTIONS names fields that none of
these sets, each with the page that promises it or with a reason.
"""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, "tools")

import source_tree  # noqa: E402

USERS = ("examples/", "integrations/", "benchmarks/", "docs/tutorials/", "README.md", "python/cgtree/")
# Faces, which pass on the options that they are given.
FACES = re.compile(r"python/cgtree/(_context|_report|_steps)\.py|.*\.pyi")
NOT_THE_LIBRARY = ("examples", "integrations", "benchmarks", "docs", "python", "packaging", "tools", "tests")
TABLE = "extensions/watch/option_table.h"
FILLS = "push_back|emplace_back|assign|resize"
ROW = re.compile(r"(?:FIRST|X)\(\w+, (\w+), (\w+),\s*(\w+)\)")

# Structs whose fields the library sets, or that describe objects of others.
INNER = {
    "Limits": "what deciding reads of a ContextOptions",
    "FunctionOptions": "the C ABI's form of a CompileOptions",
    "HostDeviceOptions": "the simulator's: tests set them",
    "PoolOptions": "contexts and their allocator set them",
}
EXCEPTIONS = {
    "AxisOptions.multiple_of": "docs/dynamic_shapes.md",
    "AxisOptions.largest": "docs/dynamic_shapes.md",
    "AxisOptions.above_largest": "docs/dynamic_shapes.md",
    "ContextOptions.owner": "the faces in C and Python set it, for streams that are theirs",
    "ContextOptions.max_bytes": "the share of a process in a device that it does not have alone",
    "ContextOptions.segments": "memory of a caller's own: SegmentSource is to be implemented by users",
    "ContextOptions.max_graph_bytes": "docs/hangs.md",
    "ContextOptions.checked": "docs/footguns.md",
    "InputOptions.alignment": "docs/rebinding.md",
    "InputOptions.tolerance": "docs/verify.md",
    "InputOptions.require_contiguous": "docs/footguns.md",
    "OutputOptions.tolerance": "docs/verify.md",
    "CompileOptions.max_waste": "docs/dynamic_shapes.md",
    "CompileOptions.keeps_allocations": "docs/adopting.md",
    "CompileOptions.verify_first": "docs/verify.md",
    "CompileOptions.while_missing": "docs/dynamic_shapes.md",
    "StepsOptions.keeps_allocations": "docs/adopting.md",
    "StepsOptions.max_waste": "docs/dynamic_shapes.md",
    "StepsOptions.capture_mode": "bindings/steps/cgtree_steps.h, which the ports of ggml take",
    "PrecaptureOptions.wants": "a learner sets it",
    "PrecaptureOptions.max_time": "docs/dynamic_shapes.md",
    "PrecaptureOptions.progress": "docs/multi_gpu.md",
    "ProgressOptions.on_timeout": "docs/hangs.md",
    "LearnOptions.max_bytes": "docs/dynamic_shapes.md",
    "LearnOptions.busy_fraction": "docs/dynamic_shapes.md",
    "BucketLimits.max_combinations": "docs/dynamic_shapes.md",
    "BucketLimits.max_bytes": "docs/dynamic_shapes.md",
    "BucketLimits.bytes": "what max_bytes is compared with",
    "ImportOptions.on_any_device": "docs/tensor_boundary.md",
    "ImportOptions.producer": "docs/tensor_boundary.md",
    "ExportOptions.pending": "docs/tensor_boundary.md",
}


def names_of(table):
    """Returns the names of each field in Python and C, by field."""
    names = {}
    for field, python, c in ROW.findall(re.sub(r"\\\n", "", table)):
        names.setdefault(field, set()).update({python, c} - {"_", field})
    return names


def is_set(text, names):
    """Returns True if `text` sets an option with one of these names."""
    for name in names:
        if name.isupper():  # a flag in C
            found = re.search(rf"\b{name}\b", text)
        else:
            found = (re.search(rf"(?:\.|->){name}(?:\[[^\]]*\])?\s*(?:=(?!=)|\.(?:{FILLS})\()", text)
                     or re.search(rf"[(,{{\s]{name}=(?!=)", text) or re.search(rf"\"{name}\"\s*:", text))
        if found:
            return True
    return False


class OptionsTest(unittest.TestCase):
    def setUp(self):
        self.root = source_tree.real_root()

    def read(self, path):
        return pathlib.Path(self.root, path).read_text(encoding="utf-8", errors="replace")

    def test_every_option_is_set_where_users_look(self):
        paths = source_tree.files(self.root)
        users = [self.read(path) for path in paths
                 if path.as_posix().startswith(USERS) and not FACES.fullmatch(path.as_posix())]
        other_names = names_of(self.read(TABLE))
        options = set()
        unset = set()
        for path in paths:
            if path.suffix != ".h" or path.parts[0] in NOT_THE_LIBRARY:
                continue
            for struct, fields in source_tree.option_structs(self.read(path)):
                if struct in INNER:
                    continue
                for field in fields:
                    options.add(f"{struct}.{field}")
                    names = {field} | other_names.get(field, set())
                    if not any(is_set(text, names) for text in users):
                        unset.add(f"{struct}.{field}")
        self.assertGreater(len(options), 80)
        self.assertEqual(sorted(unset - EXCEPTIONS.keys()), [], "nothing sets these: delete them, or use them")
        self.assertEqual(sorted(EXCEPTIONS.keys() - unset), [], "no exceptions any more: leave them out")

    def test_a_page_that_is_a_reason_names_the_option(self):
        for option, reason in EXCEPTIONS.items():
            page = re.match(r"docs/\w+\.md", reason)
            if page:
                with self.subTest(option=option):
                    plain = self.read(page.group()).replace("_", "").lower()
                    self.assertIn(option.split(".")[1].replace("_", ""), plain)


class ReadingTest(unittest.TestCase):
    def test_fields_are_read(self):
        found = dict(source_tree.option_structs("""\
struct AOptions {
  struct Inner {
    int within = 0;
  };
  std::size_t count = 1;  // a comment; with = signs
  std::function<void(const A&, int)> called = nullptr;
  std::vector<std::pair<int, int>> list = {};
  std::optional<B> maybe = std::nullopt;
  std::chrono::milliseconds time{30'000};
  const Budget* budget;
  void set(int value);
};
struct Other {
  int none = 0;
};
"""))
        self.assertEqual(found, {"AOptions": ["count", "called", "list", "maybe", "time", "budget"]})

    def test_settings_are_found(self):
        for text in ["f({.count = 1});", "options.count = 2;", "options->count = n;", "f(x, count=3)",
                     "options.count.push_back(1)", '{"count": 1}', "options.count[0] = 1"]:
            with self.subTest(text=text):
                self.assertTrue(is_set(text, {"count"}))
        for text in ["if (options.count == 1)", "count == 1", "x.counts = 1", "f(discount=1)"]:
            with self.subTest(text=text):
                self.assertFalse(is_set(text, {"count"}))
        self.assertTrue(is_set("options.flags |= CGT_A_FLAG;", {"CGT_A_FLAG"}))

    def test_other_names_are_those_of_the_table(self):
        self.assertEqual(names_of("FIRST(Text, name, name, name) X(Flag, is_static, static, CGT_INPUT_STATIC)"),
                         {"name": set(), "is_static": {"static", "CGT_INPUT_STATIC"}})


if __name__ == "__main__":
    unittest.main()
