"""Adds to a checkout the files and the lines that give its CUDA graphs to cgtree: the common part of apply.py of each
port, which has the lines and their places.

The files lie among the sources of its CUDA backend, where its own build finds them: the two of
tools/amalgamate, and cgtree_ggml.h and .cu. Lines are only added, each group between `#ifdef
GGML_CUDA_CGTREE` and `#endif`, so that other builds of the program, such as for HIP, do not change.
Places are found by the names of its functions.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BEGIN = "#ifdef GGML_CUDA_CGTREE\n"
END = "#endif  // GGML_CUDA_CGTREE\n"


class Insertion:
    """Lines that go after, or before, the only line of a file that matches `anchor`."""

    begin, end = BEGIN, END

    def __init__(self, path, anchor, lines, before=False):
        self.path, self.anchor, self.before = path, anchor, before
        self.text = self.begin + lines.lstrip("\n") + self.end


class BuildInsertion(Insertion):
    """Lines of a CMakeLists.txt, for the target whose sources are in `folder`."""

    begin, end = "    # cgtree: begin\n", "    # cgtree: end\n"

    def __init__(self, path, anchor, folder=""):
        super().__init__(path, anchor, f"""
    add_compile_definitions(GGML_CUDA_CGTREE)
    set_source_files_properties({folder}cgtree_steps.cu PROPERTIES COMPILE_OPTIONS -std=c++20)
""", before=True)


def of_context(path):
    """Returns the insertions that give a CUDA backend's context its recordings."""
    context = r"^struct ggml_backend_cuda_context \{"
    return [
        Insertion(path, context, """
namespace cgtree_ggml { class Recordings; }
""", before=True),
        Insertion(path, context, """
    std::shared_ptr<cgtree_ggml::Recordings> cgtree;
"""),
    ]


def of_backend(path):
    """Returns the insertions into a backend's source that both layouts of ggml share."""
    return [
        Insertion(path, r'^#include "ggml-cuda/common\.cuh"', """
#include "ggml-cuda/cgtree_ggml.h"
"""),
        # Before the streams are destroyed.
        Insertion(path, r"^ggml_backend_cuda_context::~ggml_backend_cuda_context\(\) \{", """
    cgtree.reset();
"""),
        # A buffer for which the pool has no room.
        Insertion(path, r"MAX_CUDA_BUFFERS", """
        cgtree_ggml::pool_was_freed();
"""),
    ]


# Lives while a recording is made, so that no handle of cuBLAS is destroyed meanwhile.
CAPTURING = """
        struct Capturing {
            Capturing()  { std::lock_guard<std::mutex> lock(ggml_cuda_lock); ++ggml_cuda_lock_counter; }
            ~Capturing() { std::lock_guard<std::mutex> lock(ggml_cuda_lock); --ggml_cuda_lock_counter; ggml_cuda_lock_cv.notify_all(); }
        } const capturing;
""".lstrip("\n")


class Refused(Exception):
    """The lines were not written for this checkout."""


def apply(text, insertion):
    """Returns `text` with the lines of the insertion."""
    lines = text.splitlines(keepends=True)
    found = [i for i, line in enumerate(lines) if re.search(insertion.anchor, line)]
    if len(found) != 1:
        raise Refused(f"{insertion.path}: {len(found)} lines match '{insertion.anchor}', and one is "
                      f"wanted: take the commit that README.md names, or mend the anchor")
    at = found[0] + (0 if insertion.before else 1)
    return "".join(lines[:at]) + insertion.text + "".join(lines[at:])


def applied(checkout, insertions):
    """Returns {path: text with all lines}, without the files that have them already."""
    texts = {}
    for path in dict.fromkeys(insertion.path for insertion in insertions):
        file = checkout / path
        if not file.is_file():
            raise Refused(f"{file} is missing: {checkout} is no checkout of the program")
        mine = [insertion for insertion in insertions if insertion.path == path]
        text = file.read_text(encoding="utf-8")
        for insertion in mine:
            text = text.replace(insertion.text, "", 1)
        if "GGML_CUDA_CGTREE" in text:
            raise Refused(f"{file} has other lines for cgtree than these: take a fresh checkout")
        for insertion in mine:
            text = apply(text, insertion)
        texts[file] = text
    return {file: text for file, text in texts.items() if text != file.read_text(encoding="utf-8")}


def sources():
    """Returns {name: text} of cgtree's files."""
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([HERE.parents[1] / "tools/amalgamate", folder], check=True)
        for file in [*pathlib.Path(folder).iterdir(), HERE / "cgtree_ggml.h", HERE / "cgtree_ggml.cu"]:
            text = re.sub(r'#include "[^"]*/(cgtree_\w+\.h)"', r'#include "\1"', file.read_text(encoding="utf-8"))
            made[file.name] = text if file.suffix == ".h" else BEGIN + text + END
    return made


def main(usage, insertions, folder):
    """The program apply.py, for sources in `folder`: changes nothing, and returns 1, if a place is not found exactly
    once."""
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("checkout", type=pathlib.Path)
    checkout = parser.parse_args().checkout
    try:
        texts = applied(checkout, insertions)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    texts |= {checkout / folder / name: text for name, text in sources().items()}
    for file, text in texts.items():
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        print(f"{file}: {'lines added' if file.exists() else 'added'}")
        file.write_text(text, encoding="utf-8")
    return 0
