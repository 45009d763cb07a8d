#!/usr/bin/env python3
"""Adds to a checkout of ik_llama.cpp the files and the lines that give its CUDA graphs to cgtree.

usage: integrations/ik_llama/apply.py CHECKOUT

Exits with 1, and changes nothing, if a place for them is not found exactly once. A checkout that has the lines is not
changed.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "common"))

import insertions  # noqa: E402

FOLDER = "ggml/src/ggml-cuda"
BUILD = "ggml/src/CMakeLists.txt"
COMMON = f"{FOLDER}/common.cuh"
BACKEND = "ggml/src/ggml-cuda.cu"

INSERTIONS = [
    insertions.BuildInsertion(BUILD, r"^        list\(APPEND GGML_CDEF_PUBLIC GGML_USE_CUDA\)", "ggml-cuda/"),
    *insertions.of_context(COMMON),
    *insertions.of_backend(BACKEND),
    # Tensors of the model are replaced.
    insertions.Insertion(BACKEND, r"^ +ctx->cuda_graphs\.clear\(\);", """
                ctx->cgtree.reset();
"""),
    # After the check, before the copy of the addresses: they are passed as a step block.
    insertions.Insertion(BACKEND, r"^ +graph->use_cpy_indirection = true;", """
        if (stream == nullptr) return true;
"""),
    # The entry of the null key has the addresses at which copies write. Graphs that must not be
    # captured are computed here, too, so that the map does not grow.
    insertions.Insertion(BACKEND, r"\bggml_backend_cuda_graph_compute\(.*\{$", """
    auto & cgtree_ctx = *static_cast<ggml_backend_cuda_context *>(backend->context);
    static const bool cgtree_is_on = cgtree_ggml::is_enabled() && getenv("GGML_CUDA_DISABLE_GRAPHS") == nullptr;
    if (cgtree_is_on && cgtree_ctx.use_cuda_graph && ggml_cuda_info().devices[cgtree_ctx.device].cc >= CC_AMPERE) {
        ggml_cuda_set_device(cgtree_ctx.device);
        const auto evaluate = [&] {
            bool is_evaluated = false, use_graph = false, update = false;
            evaluate_and_capture_cuda_graph(&cgtree_ctx, cgraph, is_evaluated, use_graph, update);
        };
        ggml_cuda_graph * const copies = ggml_cuda_get_graph(cgtree_ctx, nullptr);
        cgtree_ctx.cur_graph = nullptr;
        if (!check_node_graph_compatibility_and_refresh_copy_ops(copies, cgraph, true, nullptr)) {
            evaluate();
            return GGML_STATUS_SUCCESS;
        }
""" + insertions.CAPTURING + """\
        cgtree_ctx.cur_graph = copies;
        const bool done = cgtree_ggml::compute(cgtree_ctx.cgtree, cgtree_ctx.stream(), *cgraph, copies->cpy_dest_ptrs, [&](char ** table) {
            copies->dest_ptrs_d = table;
            copies->use_cpy_indirection = table != nullptr;
            copies->graph_cpynode_index = 0;
            evaluate();
        });
        cgtree_ctx.cur_graph = nullptr;
        return done ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
    }
"""),
]

if __name__ == "__main__":
    sys.exit(insertions.main(__doc__, INSERTIONS, FOLDER))
