#!/usr/bin/env python3
"""Adds to a checkout of ggml the lines that give its CUDA graphs to cgtree.

Lines are only added, each group between `#ifdef GGML_CUDA_CGTREE` and `#endif`, so that ggml is as
it was where that is not defined. Places are found by the names of ggml's functions. Exits with 1,
and changes nothing, if one of them is not found exactly once. A checkout that has the lines is left
as it is.
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


COMMON = "src/ggml-cuda/common.cuh"
BACKEND = "src/ggml-cuda/ggml-cuda.cu"

INSERTIONS = [
    Insertion(COMMON, r"^struct ggml_backend_cuda_context \{", """
#include "integrations/ggml/cuda_graphs.h"
""", before=True),
    Insertion(COMMON, r"^struct ggml_backend_cuda_context \{", """
    std::shared_ptr<cgtree_ggml::Recordings> cgtree;
"""),
    # Before the streams are destroyed.
    Insertion(BACKEND, r"^ggml_backend_cuda_context::~ggml_backend_cuda_context\(\) \{", """
    cgtree.reset();
"""),
    Insertion(BACKEND, r"^ +void clear_pool\(\) \{", """
        cgtree_ggml::pool_was_freed();
"""),
    # A buffer for which the pool has no room.
    Insertion(BACKEND, r"MAX_CUDA_BUFFERS", """
        cgtree_ggml::pool_was_freed();
"""),
    # ggml computes by itself what it would not capture, and what it spreads over several streams.
    Insertion(BACKEND, r"\bggml_backend_cuda_graph_compute\(.*\{$", """
    auto & cgtree_ctx = *static_cast<ggml_backend_cuda_context *>(backend->context);
    ggml_cuda_set_device(cgtree_ctx.device);
    if (cgtree_ggml::is_enabled() && ggml_cuda_graph_set_enabled(&cgtree_ctx, nullptr) &&
        cgtree_ctx.stream_context().concurrent_events.empty() && ggml_cuda_graph_check_compability(cgraph)) {
        struct Capturing {  // No handle of cuBLAS is destroyed meanwhile.
            Capturing()  { std::lock_guard<std::mutex> lock(ggml_cuda_lock); ++ggml_cuda_lock_counter; }
            ~Capturing() { std::lock_guard<std::mutex> lock(ggml_cuda_lock); --ggml_cuda_lock_counter; ggml_cuda_lock_cv.notify_all(); }
        } const capturing;
        const bool done = cgtree_ggml::compute(cgtree_ctx.cgtree, cgtree_ctx.stream(), *cgraph, [&] {
            ggml_cuda_graph_evaluate_and_capture(&cgtree_ctx, cgraph, false, false, nullptr);
        });
        return done ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
    }
"""),
]


class Refused(Exception):
    """The checkout is not one that the lines were written for."""


def apply(text, insertion):
    """Returns `text` with the lines of the insertion."""
    lines = text.splitlines(keepends=True)
    found = [i for i, line in enumerate(lines) if re.search(insertion.anchor, line)]
    if len(found) != 1:
        raise Refused(f"{insertion.path}: {len(found)} lines match '{insertion.anchor}', and one is "
                      f"wanted: take the commit of ggml that README.md names, or mend the anchor")
    at = found[0] + (0 if insertion.before else 1)
    return "".join(lines[:at]) + insertion.text + "".join(lines[at:])


def applied(checkout):
    """Returns {path: text with all lines}, without the files that have them already."""
    texts = {}
    for path in dict.fromkeys(insertion.path for insertion in INSERTIONS):
        file = checkout / path
        if not file.is_file():
            raise Refused(f"{file} is missing: {checkout} is no checkout of ggml")
        mine = [insertion for insertion in INSERTIONS if insertion.path == path]
        text = file.read_text(encoding="utf-8")
        for insertion in mine:
            text = text.replace(insertion.text, "", 1)
        if BEGIN in text:
            raise Refused(f"{file} has other lines for cgtree than these: take a fresh checkout")
        for insertion in mine:
            text = apply(text, insertion)
        texts[file] = text
    return {file: text for file, text in texts.items() if text != file.read_text(encoding="utf-8")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", metavar="CHECKOUT", type=pathlib.Path)
    try:
        texts = applied(parser.parse_args().checkout)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
        print(f"{file}: lines added")
    return 0


if __name__ == "__main__":
    sys.exit(main())
