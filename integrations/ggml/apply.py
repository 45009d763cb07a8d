#!/usr/bin/env python3
"""Adds to a checkout of ggml the files and the lines that give its CUDA graphs to cgtree.

usage: integrations/ggml/apply.py CHECKOUT

Exits with 1, and changes nothing, if a place for them is not found exactly once. A checkout that has the lines is not
changed.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "common"))

import insertions  # noqa: E402

FOLDER = "src/ggml-cuda"
BUILD = f"{FOLDER}/CMakeLists.txt"
COMMON = f"{FOLDER}/common.cuh"
BACKEND = f"{FOLDER}/ggml-cuda.cu"
COPIES = f"{FOLDER}/cpy.cu"

INSERTIONS = [
    insertions.BuildInsertion(BUILD, r"^ +ggml_add_backend_library\(ggml-cuda$"),
    *insertions.of_context(COMMON),
    *insertions.of_backend(BACKEND),
    insertions.Insertion(BACKEND, r"^ +void clear_pool\(\) \{", """
        cgtree_ggml::pool_was_freed();
"""),
    # ggml itself computes graphs that it would not capture, and graphs that it spreads over several
    # streams.
    insertions.Insertion(BACKEND, r"\bggml_backend_cuda_graph_compute\(.*\{$", """
    auto & cgtree_ctx = *static_cast<ggml_backend_cuda_context *>(backend->context);
    ggml_cuda_set_device(cgtree_ctx.device);
    if (cgtree_ggml::is_enabled() && ggml_cuda_graph_set_enabled(&cgtree_ctx, nullptr) &&
        cgtree_ctx.stream_context().concurrent_events.empty() && ggml_cuda_graph_check_compability(cgraph)) {
""" + insertions.CAPTURING + """\
        const bool done = cgtree_ggml::compute(cgtree_ctx.cgtree, cgtree_ctx.stream(), *cgraph, [&] {
            ggml_cuda_graph_evaluate_and_capture(&cgtree_ctx, cgraph, false, false, nullptr);
        });
        return done ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
    }
"""),
    insertions.Insertion(COPIES, r'^#include "cpy\.cuh"', """
#include "ggml-cuda/cgtree_ggml.h"
"""),
    insertions.Insertion(COPIES, r"^void ggml_cuda_cpy\(.*\{$", """
    if (cgtree_ggml::copy(ctx.cgtree.get(), ctx.stream(), *src0, *src1)) return;
"""),
]

if __name__ == "__main__":
    sys.exit(insertions.main(__doc__, INSERTIONS, FOLDER))
