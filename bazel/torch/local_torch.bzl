"""Repository rule for the C++ headers and libraries of the PyTorch that is installed on this machine.

Looks at the Python $TORCH_PYTHON, then python3 on $PATH. Without a package `torch` there, the
repository still loads: its targets are incompatible with every platform, so that `bazel test //...`
skips targets that need them.
"""

_DEFS = """\
# For target_compatible_with.
REQUIRES_TORCH = {requires}
REQUIRES_TORCH_CUDA = REQUIRES_TORCH + select({{
    "@cgtree//bazel/cuda:enabled": [],
    "//conditions:default": ["@local_torch//:cuda_not_found"],
}})
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# No platform has these values: what names one in target_compatible_with is skipped.
constraint_setting(name = "torch_presence")

constraint_value(
    name = "not_found",
    constraint_setting = ":torch_presence",
)

constraint_setting(name = "cuda_presence")

constraint_value(
    name = "cuda_not_found",
    constraint_setting = ":cuda_presence",
)

cc_library(
    name = "torch",
{attributes}
)
"""

# Its fmt has another version than cgtree's.
_FOUND = """\
    hdrs = glob(
        ["include/**"],
        exclude = ["include/fmt/**", "include/google/**", "include/pybind11/**"],
    ),
    includes = ["include", "include/torch/csrc/api/include"],
    defines = select({{
        "@cgtree//bazel/cuda:enabled": [],
        "//conditions:default": ["CGTREE_TORCH_CUDA=0"],
    }}),
    linkopts = [
        "-L{lib}",
        "-Wl,-rpath,{lib}",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
    ] + select({{
        "@cgtree//bazel/cuda:enabled": {cuda_links},
        "//conditions:default": [],
    }}) + ["-Wl,--as-needed"],
    deps = select({{
        "@cgtree//bazel/cuda:enabled": ["@local_cuda//:cuda_headers"],
        "//conditions:default": [],
    }}),"""

_MISSING = """\
    target_compatible_with = [":not_found"],"""

# Without importing it, which takes seconds.
_PROGRAM = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"

def _find_torch(rctx):
    for candidate in [rctx.os.environ.get("TORCH_PYTHON"), rctx.which("python3")]:
        if not candidate:
            continue
        result = rctx.execute([str(candidate), "-c", _PROGRAM])
        folder = result.stdout.strip()
        if result.return_code == 0 and rctx.path(folder + "/include/ATen/ATen.h").exists:
            return folder
    return None

def _local_torch_impl(rctx):
    folder = _find_torch(rctx)
    attributes = _MISSING
    if folder:
        rctx.symlink(folder + "/include", "include")
        has_cuda = rctx.path(folder + "/lib/libtorch_cuda.so").exists
        attributes = _FOUND.format(
            lib = folder + "/lib",
            cuda_links = '["-ltorch_cuda", "-lc10_cuda"]' if has_cuda else "[]",
        )
    requires = "[]" if folder else '["@local_torch//:not_found"]'
    rctx.file("defs.bzl", _DEFS.format(requires = requires), executable = False)
    rctx.file("BUILD.bazel", _BUILD.format(attributes = attributes), executable = False)

local_torch = repository_rule(
    implementation = _local_torch_impl,
    configure = True,
    environ = ["PATH", "TORCH_PYTHON"],
    local = True,
)
