"""Adds to a checkout the lines that give its CUDA graphs to cgtree: the common part of apply.py of
each port, which says which lines go where.

Lines are only added, each group between `#ifdef GGML_CUDA_CGTREE` and `#endif`, so that the program
is as it was where that is not defined. Places are found by the names of its functions.
"""

import argparse
import pathlib
import re
import sys

BEGIN = "#ifdef GGML_CUDA_CGTREE\n"
END = "#endif  // GGML_CUDA_CGTREE\n"


class Insertion:
    """Lines that go after, or before, the only line of a file that matches `anchor`."""

    def __init__(self, path, anchor, lines, before=False):
        self.path, self.anchor, self.before = path, anchor, before
        self.text = BEGIN + lines.lstrip("\n") + END


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
    """Returns the insertions into a backend's source that both layouts of ggml have."""
    return [
        Insertion(path, r'^#include "ggml-cuda/common\.cuh"', """
#include "integrations/common/cuda_graphs.h"
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


# Lives as long as a recording is made, so that no handle of cuBLAS is destroyed meanwhile.
CAPTURING = """
        struct Capturing {
            Capturing()  { std::lock_guard<std::mutex> lock(ggml_cuda_lock); ++ggml_cuda_lock_counter; }
            ~Capturing() { std::lock_guard<std::mutex> lock(ggml_cuda_lock); --ggml_cuda_lock_counter; ggml_cuda_lock_cv.notify_all(); }
        } const capturing;
""".lstrip("\n")


class Refused(Exception):
    """The checkout is not one that the lines were written for."""


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
        if BEGIN in text:
            raise Refused(f"{file} has other lines for cgtree than these: take a fresh checkout")
        for insertion in mine:
            text = apply(text, insertion)
        texts[file] = text
    return {file: text for file, text in texts.items() if text != file.read_text(encoding="utf-8")}


def main(usage, insertions):
    """The program apply.py: changes nothing, and returns 1, if a place is not found exactly once."""
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("checkout", type=pathlib.Path)
    try:
        texts = applied(parser.parse_args().checkout, insertions)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
        print(f"{file}: lines added")
    return 0
