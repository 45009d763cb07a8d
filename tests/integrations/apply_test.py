"""The changes of apply.py to a checkout of ggml or of a program with it, and the checkouts that it refuses."""

import importlib.util
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, "integrations/common")

import insertions  # noqa: E402

CONTEXT = "struct other {\n};\nstruct ggml_backend_cuda_context {\n    int device;\n};\n"
# Lines that the ports look for, in both layouts, and others.
BACKEND = ('#include "ggml-cuda.h"\n#include "ggml-cuda/common.cuh"\n'
           "    log(\"MAX_CUDA_BUFFERS\");\n"
           "ggml_backend_cuda_context::~ggml_backend_cuda_context() {\n}\n"
           "ggml_status ggml_backend_cuda_graph_compute(graph * g) {\n}\n"
           "  /* .graph_compute = */ ggml_backend_cuda_graph_compute,\n")
BUILD = ("        list(APPEND GGML_CDEF_PUBLIC GGML_USE_CUDA)\n    list(APPEND GGML_CDEF_PUBLIC GGML_USE_CUDA)\n"
         "    ggml_add_backend_library(ggml-cuda\n                             )\n")
COPIES = '#include "cpy.cuh"\nvoid ggml_cuda_cpy(context & ctx) {\n}\nvoid f() {\n    ggml_cuda_cpy(ctx);\n}\n'
# By port: further lines, which are inserted into BACKEND after these.
PORTS = {
    "ggml": "void f() { pool.clear_pool(); }\n    void clear_pool() {\n    }\n",
    "ik_llama": "    //   info.all_ctx[i]->cuda_graphs.clear();\n    ctx->cuda_graphs.clear();\n"
                "        graph->use_cpy_indirection = true;\n"
                "        graph->use_cpy_indirection = false;\n",
}


def port(name):
    """Returns the module apply.py of a port."""
    spec = importlib.util.spec_from_file_location(f"apply_{name}", f"integrations/{name}/apply.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class ApplyTest(unittest.TestCase):
    def each(self):
        """Yields for each port its module, a checkout, and {path: text} of the checkout."""
        for name, lines in PORTS.items():
            with self.subTest(port=name), tempfile.TemporaryDirectory() as folder:
                module, root = port(name), pathlib.Path(folder)
                files = {module.BUILD: BUILD, module.COMMON: CONTEXT, module.BACKEND: BACKEND + lines}
                if name == "ggml":
                    files[module.COPIES] = COPIES
                for path, text in files.items():
                    self.write(root / path, text)
                yield module, root, files

    def write(self, file, text):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def add(self, module, root):
        for file, text in insertions.applied(root, module.INSERTIONS).items():
            file.write_text(text, encoding="utf-8")

    def test_only_adds_lines_that_another_build_does_not_see(self):
        for module, root, files in self.each():
            self.add(module, root)
            for path, before in files.items():
                kept, inside = [], False
                added = next(insertion for insertion in module.INSERTIONS if insertion.path == path)
                text = (root / path).read_text(encoding="utf-8")
                for line in text.splitlines(keepends=True):
                    inside = inside or line == added.begin
                    if not inside:
                        kept.append(line)
                    inside = inside and line != added.end
                self.assertEqual("".join(kept), before)

    def test_adds_all_lines_behind_their_anchors(self):
        for module, root, files in self.each():
            self.add(module, root)
            texts = {path: (root / path).read_text(encoding="utf-8") for path in files}
            for insertion in module.INSERTIONS:
                self.assertIn(insertion.text, texts[insertion.path])
            self.assertIn("(graph * g) {\n" + insertions.BEGIN, texts[module.BACKEND])
            self.assertIn(insertions.END + "struct ggml_backend_cuda_context {\n" + insertions.BEGIN,
                          texts[module.COMMON])

    def test_a_checkout_that_has_the_lines_stays_as_it_is(self):
        for module, root, _ in self.each():
            self.add(module, root)
            self.assertEqual(insertions.applied(root, module.INSERTIONS), {})

    def test_an_anchor_that_is_missing_or_not_the_only_one_is_refused(self):
        for module, root, files in self.each():
            anchor = "ggml_backend_cuda_context::~ggml_backend_cuda_context() {\n"
            for count, text in [(0, files[module.BACKEND].replace(anchor, "")),
                                (2, files[module.BACKEND] + anchor)]:
                with self.subTest(count=count):
                    self.write(root / module.BACKEND, text)
                    with self.assertRaisesRegex(insertions.Refused, f"{count} lines match .*~ggml"):
                        insertions.applied(root, module.INSERTIONS)

    def test_other_lines_of_ours_are_refused(self):
        for module, root, files in self.each():
            self.write(root / module.COMMON,
                       insertions.BEGIN + insertions.END + files[module.COMMON])
            with self.assertRaisesRegex(insertions.Refused, "other lines for cgtree"):
                insertions.applied(root, module.INSERTIONS)

    def test_a_folder_that_is_no_checkout_is_refused(self):
        for module, root, _ in self.each():
            with self.assertRaisesRegex(insertions.Refused, "no checkout of the program"):
                insertions.applied(root / "src", module.INSERTIONS)


if __name__ == "__main__":
    unittest.main()
