"""Repository rule for the headers of the Python that is installed on this machine.

Looks at $PYTHON_BIN_PATH, /usr/bin/python3, then python3 on $PATH. If there are no headers of 3.11
or later (Debian: python3-dev), or $PYTHON_BIN_PATH is "none", the repository still loads: its
targets are incompatible with every platform, so that `bazel test //...` skips targets that need
them.
"""

_BUILD = """\
load("@rules_cc//cc:defs.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

# No platform has this value: what names it in target_compatible_with is skipped.
constraint_setting(name = "headers_presence")

constraint_value(
    name = "not_found",
    constraint_setting = ":headers_presence",
)

cc_library(
    name = "headers",
{attributes}
)
"""

_FOUND = """\
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],"""

_MISSING = """\
    target_compatible_with = [":not_found"],"""

_DEFS = """\
PYTHON_HEADERS = {available}
"""

_PROGRAM = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('include'))"

def _find_headers(rctx):
    wanted = rctx.os.environ.get("PYTHON_BIN_PATH")
    if wanted == "none":
        return None
    candidates = [wanted, "/usr/bin/python3", rctx.which("python3")]
    for candidate in candidates:
        if not candidate or not rctx.path(str(candidate)).exists:
            continue
        result = rctx.execute([str(candidate), "-c", _PROGRAM])
        if result.return_code != 0:
            continue
        major, minor, include = result.stdout.strip().split(" ", 2)
        if (int(major), int(minor)) >= (3, 11) and rctx.path(include + "/Python.h").exists:
            return include
    return None

def _local_python_impl(rctx):
    include = _find_headers(rctx)
    if include:
        rctx.symlink(include, "include")
    rctx.file("BUILD.bazel", _BUILD.format(attributes = _FOUND if include else _MISSING), executable = False)
    rctx.file("defs.bzl", _DEFS.format(available = bool(include)), executable = False)

local_python = repository_rule(
    implementation = _local_python_impl,
    configure = True,
    environ = ["PATH", "PYTHON_BIN_PATH"],
    local = True,
)
