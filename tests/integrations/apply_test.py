"""What apply.py adds to a checkout of ggml, and which checkouts it refuses."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "integrations/ggml")

import apply  # noqa: E402

# Lines that have what apply.py looks for, and others.
FILES = {
    apply.COMMON: "struct other {\n};\nstruct ggml_backend_cuda_context {\n    int device;\n};\n",
    apply.BACKEND: "void f() { pool.clear_pool(); }\n"
                   "    void clear_pool() {\n    }\n"
                   "    log(\"MAX_CUDA_BUFFERS\");\n"
                   "ggml_backend_cuda_context::~ggml_backend_cuda_context() {\n}\n"
                   "ggml_status ggml_backend_cuda_graph_compute(graph * g) {\n}\n"
                   "  /* .graph_compute = */ ggml_backend_cuda_graph_compute,\n",
}


class ApplyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for path, text in FILES.items():
            self.write(path, text)

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def add(self):
        for file, text in apply.applied(self.root).items():
            file.write_text(text, encoding="utf-8")

    def test_only_adds_lines_that_another_build_does_not_see(self):
        self.add()
        for path, before in FILES.items():
            kept, inside = [], False
            for line in (self.root / path).read_text(encoding="utf-8").splitlines(keepends=True):
                inside = inside or line == apply.BEGIN
                if not inside:
                    kept.append(line)
                inside = inside and line != apply.END
            self.assertEqual("".join(kept), before)

    def test_adds_all_lines_behind_their_anchors(self):
        self.add()
        texts = {path: (self.root / path).read_text(encoding="utf-8") for path in FILES}
        for insertion in apply.INSERTIONS:
            self.assertIn(insertion.text, texts[insertion.path])
        self.assertIn("    void clear_pool() {\n" + apply.BEGIN, texts[apply.BACKEND])
        self.assertIn(apply.END + "struct ggml_backend_cuda_context {\n" + apply.BEGIN,
                      texts[apply.COMMON])

    def test_a_checkout_that_has_the_lines_stays_as_it_is(self):
        self.add()
        self.assertEqual(apply.applied(self.root), {})

    def test_an_anchor_that_is_missing_or_not_the_only_one_is_refused(self):
        anchor = "    void clear_pool() {\n"
        for count, text in [(0, FILES[apply.BACKEND].replace(anchor, "")),
                            (2, FILES[apply.BACKEND] + anchor)]:
            with self.subTest(count=count):
                self.write(apply.BACKEND, text)
                with self.assertRaisesRegex(apply.Refused, f"{count} lines match .*clear_pool"):
                    apply.applied(self.root)

    def test_other_lines_of_ours_are_refused(self):
        self.write(apply.COMMON, apply.BEGIN + apply.END + FILES[apply.COMMON])
        with self.assertRaisesRegex(apply.Refused, "other lines for cgtree"):
            apply.applied(self.root)

    def test_a_folder_that_is_no_checkout_is_refused(self):
        with self.assertRaisesRegex(apply.Refused, "no checkout of ggml"):
            apply.applied(self.root / "src")


if __name__ == "__main__":
    unittest.main()
