"""tutorial: the programs of a C++ page of docs/tutorials."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("//bazel/cuda:defs.bzl", "kernel_library")

_DEPS = [
    "//:cgtree",
    "//interop",
]

def _source(name, page, out, change):
    native.genrule(
        name = name,
        srcs = [page],
        outs = [out],
        cmd = "python3 -B $(location tutorial.py) $< --change={} > $@".format(change),
        tools = ["tutorial.py"],
    )

def tutorial(name, changes):
    """Makes the program of a page, and the programs of its changes.

    Args:
      name: the page, without its suffix, and the program.
      changes: the number of changes that the page proposes. Their programs, name_1 and so on, are
        only for the host device.
    """
    page = "//:docs/tutorials/{}.md".format(name)
    _source(name + "_source", page, name + ".cu", 0)
    kernel_library(
        name = name + "_program",
        srcs = [name + ".cu"],
        deps = _DEPS,
    )
    cc_binary(
        name = name,
        deps = [":{}_program".format(name)],
    )
    for change in range(1, changes + 1):
        changed = "{}_{}".format(name, change)
        _source(changed + "_source", page, changed + ".cc", change)
        cc_binary(
            name = changed,
            srcs = [changed + ".cc"],
            deps = _DEPS,
        )
