"""The list of mutants fits the sources; the tool finds definitions by name, and distinguishes surviving mutants.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
import definitions  # noqa: E402
import plant  # noqa: E402


def mutant(**changes):
    """A mutant of tools/source_tree.py."""
    return {"id": "x", "function": "_is_ours", "old": "name not in SKIPPED_DIRECTORIES",
            "new": "True", "breaks": "b", "tests": ["system_world_test"]} | changes


CXX = """
#define BEGIN(name) namespace name {
namespace cgtree { namespace {  // a brace: }
constexpr int kSizes[]{1, 2};
const auto kTwice = [](int a) { return 2 * a; };
enum class Kind : int { kNone };
}
extern "C" {
int plain(Options options = {}) { return '{' + sizeof(R"(})"); }
}
template <class T>
class Box : public Base<T> {
 public:
  explicit Box(int a) noexcept(true) : Base<T>{a}, a_(a) { use(a_); }
  ~Box() { drop(); }
  bool operator<(const Box& other) const { return a_ < other.a_; }
  void declared(int most = 3);
  struct Part {
    int size() const { return size_; }
    int size_ = 4;
  };
 private:
  void (*hook_)(int);
  int a_{7};
};
template <class T>
auto Box<T>::declared(int most) -> Part {
  struct Local { int size() { return 5; } };
  return {most};
}
template <>
Box<int>::Part Box<int>::part() { return {6}; }
__global__ void __launch_bounds__(256) kernel(int* out) { *out = 8; }
}
"""
PYTHON = """
class Report:
    limit = 3

    @property
    def lines(self):  # a comment
        def inner():
            return "# no comment"
        return inner()

LIMIT: int = 4
"""


def definitions_of(text, name, is_python=False):
    """Returns the texts of the definitions of a name."""
    code = definitions.without_comments(text, is_python)
    return [code[begin:end].strip() for known, begin, end in definitions.definitions(code, is_python)
            if known == name]


def places(files, function, old):
    """Returns ((path, text) of each place of `old`, faults) in a tree of files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        sources = definitions.Sources(pathlib.Path(folder))
        found = sources.places(function, old)
        return found and [(path.as_posix(), sources.texts[path][begin:end])
                          for path, begin, end in found], sources.faults


class DefinitionsTest(unittest.TestCase):
    def expect_one(self, text, is_python, expected):
        for name, begin, end in expected:
            with self.subTest(name):
                [found] = definitions_of(text, name, is_python)
                self.assertEqual((found[:len(begin)], found[-len(end):]), (begin, end))

    def test_a_definition_is_found_by_its_qualified_name(self):
        self.expect_one(CXX, False, (
            ("kSizes", "constexpr int", "{1, 2};"), ("kTwice", "const auto", "2 * a; };"),
            ("plain", "int plain(Options", '"(})"); }'), ("Kind", "enum class", "}"),
            ("Box", "template <class T>", "int a_{7};\n}"), ("Box::a_", "int a_", ";"),
            ("Box::Box", "explicit", "use(a_); }"), ("Box::~Box", "~Box()", "drop(); }"),
            ("Box::operator", "bool operator<", "other.a_; }"),
            ("Box::part", "template <>", "{6}; }"), ("Box::Part::size", "int size()", "size_; }"),
            ("Box::Part::size_", "int", "= 4;"), ("kernel", "__global__", "*out = 8; }")))

    def test_a_declaration_and_its_body_have_one_name(self):
        declaration, body = definitions_of(CXX, "Box::declared")
        self.assertEqual(declaration, "void declared(int most = 3);")
        self.assertIn("return 5;", body)
        for name in ("Local::size", "Box::declared::Local::size", "Box::void"):
            self.assertEqual(definitions_of(CXX, name), [])

    def test_python_is_found_by_its_classes(self):
        self.expect_one(PYTHON, True, (
            ("Report", "class Report", "inner()"), ("Report.limit", "limit = 3", "limit = 3"),
            ("Report.lines", "@property", "inner()"), ("LIMIT", "LIMIT", "4")))
        self.assertEqual(definitions_of(PYTHON, "inner", True), [])

    def test_a_comment_is_blank(self):
        for text, is_python, expected in (
                ('f("//", 1); // }\n/* { */ g();', False, 'f("//", 1);     \n        g();'),
                ("f('#', '') # }\ng()", True, "f('#', '')    \ng()")):
            self.assertEqual(definitions.without_comments(text, is_python), expected)

    def test_text_is_found_in_any_file_and_layout(self):
        for name, text in (("a.cc", "int A::f() { return g(a, 1) + 1; }"),
                           ("b/c.cu", "int A::f() {\n  return g( a,  // the first\n    1)+1;\n}"),
                           ("b/d.h", "struct A {\n  int f() { return g(a, 1) + 1; }\n};")):
            with self.subTest(name):
                [(path, found)], _ = places({name: text, "tests/a.cc": text}, "A::f", "g(a,1)")
                self.assertEqual((path, found[0], found[-2:]), (name, "g", "1)"))

    def test_definitions_of_one_name_count_together_and_words_are_whole(self):
        text = "int f(int a) { return a + 1; }\nint f() { return b + 1 + ab + 12; }\nint g() { return a + 1; }"
        for old, count in (("return", 2), ("+ 1", 2), ("a + 1", 1), ("b + 1", 1), ("b + 12", 0), ("a", 2)):
            with self.subTest(old):
                self.assertEqual(len(places({"a.cc": text}, "f", old)[0]), count)
        self.assertIsNone(places({"a.cc": text}, "h", "return")[0])

    def test_a_file_with_brackets_that_do_not_match_is_a_fault(self):
        for name, text in (("a.cc", "int f() {\n  (1];\n}"), ("a.h", "struct A {"), ("a.py", "def f(:\n")):
            with self.subTest(name):
                _, faults = places({name: text}, "f", "1")
                self.assertEqual([fault.split(":")[0] for fault in faults], [name])


class MutantsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sources = definitions.Sources(plant.ROOT)

    def problems(self, mutants, groups=None):
        return plant.problems(mutants, plant.ROOT, groups or {}, self.sources)

    def test_each_mutant_of_the_list_can_be_planted(self):
        mutants, groups = plant.read_list(plant.LIST)
        self.assertEqual(self.problems(mutants, groups), [])
        self.assertGreaterEqual(len(mutants), 100)

    def test_a_group_stands_for_its_programs_behind_those_that_are_named(self):
        groups = {"two": ["a", "b"]}
        self.assertEqual(plant.expand(["b", "two", "c"], groups), ["b", "a", "c"])
        for name, tests, expected in (("system_world_test", [], "a test program has this name"),
                                      ("two", ["system_no_test"], "group two: there is no test")):
            found = self.problems([], {name: tests})
            self.assertTrue(any(expected in line for line in found), found)

    def test_each_program_has_a_label(self):
        for test, label in (("cgtree_outputs_test", "//tests/cgtree:outputs_test"),
                            ("c_api_calls_test", "//tests/c_api:calls_test"),
                            ("system_no_test", None), ("none", None)):
            self.assertEqual(plant.label_of(test, plant.ROOT), label)

    def test_a_score_is_of_a_mutant_that_there_is(self):
        mutants, _ = plant.read_list(plant.LIST)
        score = json.loads((FOLDER / "results/score.json").read_text())
        self.assertLessEqual(score.keys(), {mutant["id"] for mutant in mutants})

    def test_a_list_that_is_not_true_is_refused(self):
        for changes, expected in (({"old": "no such text"}, "occurs 0 times"),
                                  ({"old": "name"}, "times in _is_ours"),
                                  ({"new": "name not in\nSKIPPED_DIRECTORIES"}, "changes nothing"),
                                  ({"tests": ["system_no_test"]}, "no test program or group"),
                                  ({"function": "none_of_it"}, "there is no none_of_it")):
            found = self.problems([mutant(**changes)])
            self.assertTrue(any(expected in line for line in found), found)
        self.assertIn("2 mutants", self.problems([mutant(), mutant()])[0])

    def run_tool(self, folder, run, build="true"):
        """Returns the tool's exit status and the score of one mutant with a program that is `run`."""
        names, score = pathlib.Path(folder), pathlib.Path(folder, "score.json")
        score.unlink(missing_ok=True)
        (names / "list.json").write_text(json.dumps({"groups": {"all": ["system_world_test"]},
                                                     "mutants": [mutant(tests=["all"])]}))
        done = subprocess.run(
            [sys.executable, FOLDER / "plant.py", "--list", names / "list.json", "--copy",
             names / "copy", "--build", build, "--run", run, "--out", score],
            text=True, capture_output=True, check=False)
        return done.returncode, json.loads(score.read_text()) if score.exists() else {}

    @unittest.skipUnless(os.path.exists(plant.ROOT / ".git"), "copies what git lists")
    def test_a_mutant_is_killed_or_survives(self):
        label = "//tests/system:world_test"
        with tempfile.TemporaryDirectory() as folder:
            for run, build, expected in (
                    ("grep -q 'name not in SKIPPED' tools/source_tree.py", "true", (0, "killed")),
                    ("test ${CGTREE_MUTANT_FILE:-tools/source_tree.py} = tools/source_tree.py", "true",
                     (1, "survived")),
                    (f"test {{test}}={{label}} = system_world_test={label}",
                     f"test {{labels}}={{tests}} = {label}=system_world_test", (1, "survived"))):
                status, score = self.run_tool(folder, run, build)
                self.assertEqual((status, score["x"]["fate"]), expected)
            self.assertEqual(self.run_tool(folder, "false"), (3, {}))

    def test_the_command_line_is_checked(self):
        done = subprocess.run([sys.executable, FOLDER / "plant.py"], capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
