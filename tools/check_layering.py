#!/usr/bin/env python3
"""Checks which room uses which, who uses third parties' headers and plain locks, and how files
begin.

Prints one line for each violation, and exits with 1 if there is any.

base -> interop -> allocator -> cgtree ->
    {python, examples, integrations, packaging, tools, benchmarks, tests}

An arrow reads "is used by". A room uses itself and the rooms to its left. The rooms at the end do
not use one another, with these exceptions:

* examples, tools and benchmarks use tests/support, as tests do;
* benchmarks/serve uses examples/serve, because it measures that server; so do its tests;
* tests/<room> uses <room>, and those of benchmarks and tutorials in Python use python;
* the checks of the whole tree, which lie directly in tests/, use tools, and so does tests/install,
  because the report is installed; that uses packaging, too.

The core (CORE) is what one must know to understand a call. What stands around it uses it, and it uses
nothing of that.

The rooms of the library have sub-rooms, which are ordered too (SUB_ROOMS): an include leads to the
same sub-room or to one to its left. Two kinds of files of a room lie outside its sub-rooms. Faces
use every sub-room, and no sub-room uses a face. Values are used by every sub-room, and use none.
The files in cgtree/ itself are values, except for those that FACES names. In other rooms, files
that lie in no sub-room are faces.
"""

import argparse
import ast
import pathlib
import re
import sys

import source_tree

LIBRARY = ["base", "interop", "allocator", "cgtree"]
END = ["python", "examples", "integrations", "packaging", "tools", "benchmarks", "tests"]
SUB_ROOMS = {
    "interop": ["device", "tensor", "exchange", "target", "random", "collectives"],
    "allocator": ["pool", "segments", "caching", "threads", "captures", "reports"],
    "cgtree": ["memory", "axes", "record", "tree", "flow", "check", "watch", "ranks", "pools"],
}
# The files of cgtree/ itself that are faces, without their suffixes; cgtree/c_api/ and
# cgtree/torch/ are too.
FACES = re.compile(
    r"cgtree|communicator|compile|context\w*|control_flow|function_handle|learned_demand|loop_stream|precapture|recent_events|scope|size_learner|steps|surroundings|bare_\w+"
    r"|torch|c_api\w*")
# What belongs to the core, but for what STAND_AROUND says: paths without their suffixes.
CORE = re.compile(
    r"base/.*|interop/(device|tensor|random)/.*|allocator/pool/.*|cgtree/(memory|axes|record|tree)/.*"
    r"|cgtree/(?!bare_|c_api|cgtree|communicator|context_pages|control_flow|learned_demand|loop_stream|metrics|option_table|precapture|progress|recent_events|scope|size_\w+|suggest_buckets|surroundings|torch|verification)\w+")
STAND_AROUND = re.compile(
    r"(interop/tensor|cgtree/record)/cuda/.*|interop/device/((host|cuda)/.*|conditional_api|node_contents|profiler|progress_api|virtual_memory_api)|interop/random/random\w*")
# The registry of devices names each, and kernels name their bodies in CUDA.
NAME_DEVICES = {pathlib.PurePath("interop/device/device.cc"),
                pathlib.PurePath("interop/tensor/copy.cc"),
                pathlib.PurePath("cgtree/record/gather.cc")}
# Build rules: any room may use them, and they use no room.
BUILD_RULES = "bazel"
MAY_SHARE_SUPPORT = {"examples", "tools", "benchmarks", "tests"}
# (user, used): rooms at the end where one may use the other.
MAY_USE = [("benchmarks/serve", "examples/serve"),
           ("tests/benchmarks/serve", "examples/serve"),
           ("tests/benchmarks", "python"),  # some are written in Python
           ("tests/examples/tutorials", "python"),
           ("tests/install", "examples/tutorials"),
           ("tests/install", "packaging"),
           ("tests/install", "python"),
           ("tests/install", "tools")]

BUILD_NAMES = {"BUILD", "BUILD.bazel"}
SCRIPTS = {".py", ".sh", ".bzl"}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[">]')
CUDA_HEADER = re.compile(
    r"(cuda|cublas|cudnn|cupti|nvrtc|nccl|nvToolsExt|cooperative_groups|driver_types|device_launch"
    r"|vector_types|cub/|thrust/|nvtx3/)")
# Locks of the library have a rank (base/mutex.h), so that the order in which they are taken is
# checked; but for the order of a stream of the host device, which is held while its work runs.
LOCK = re.compile(r"std::((recursive_|shared_|timed_|recursive_timed_)?mutex|condition_variable)\b")
MAY_USE_LOCKS = {"base/mutex.h", "base/spinning_mutex.h", "interop/device/host/capture.h",
                 "interop/device/host/graph.h", "interop/device/host/runtime.h"}
# Attributes that name who may use a target, which is the other direction.
VISIBILITY = {"visibility", "default_visibility", "packages"}


class Use:
    """One place where `user` (a path) names `used` (a path below the root)."""

    def __init__(self, user, line, used, text):
        self.user, self.line, self.used, self.text = user, line, pathlib.PurePath(used), text

    def violation(self, why):
        return f"{self.user}:{self.line}: {self.text}: {why}"


def room_of(path):
    """The first folder of a path; "" for a file at the root."""
    return path.parts[0] if len(path.parts) > 1 else ""


def is_support(path):
    return path.parts[:2] == ("tests", "support")


def sub_room_of(path):
    """The sub-room of a library file, or "values" or "faces"; None where a room has none."""
    room = room_of(path)
    if room not in SUB_ROOMS:
        return None
    if len(path.parts) > 2:
        return path.parts[1] if path.parts[1] in SUB_ROOMS[room] else "faces"
    return "values" if room == "cgtree" and not FACES.fullmatch(path.stem) else "faces"


def is_core(path):
    stem = path.with_suffix("").as_posix()
    return CORE.fullmatch(stem) is not None and STAND_AROUND.fullmatch(stem) is None


def may_use_in_room(user, used):
    """Returns whether `user` may include `used`, two files of one room."""
    here, there = sub_room_of(user), sub_room_of(used)
    if here == there or here in (None, "faces") or there == "values":
        return True
    if here == "values" or there == "faces":
        return False
    order = SUB_ROOMS[room_of(user)]
    return order.index(there) < order.index(here)


def name_of(path):
    """What a complaint calls the place of a file: its room, and its sub-room if it has one."""
    sub_room = sub_room_of(path)
    if sub_room in ("values", "faces"):
        return f"{room_of(path)} ({sub_room})"
    return f"{room_of(path)}/{sub_room}" if sub_room else room_of(path)


def may_use(user, used):
    """Returns whether a file at `user` may use one at `used`; both are paths below the root."""
    here, there = room_of(user), used.parts[0] if used.parts else ""
    if here == there or here == "":
        return True
    if there == BUILD_RULES:
        return True
    if there == "":
        there = "cgtree"  # targets of the root package are the library's faces
    if there in LIBRARY:
        return here in END or (here in LIBRARY and LIBRARY.index(there) < LIBRARY.index(here))
    if there == "tests":
        return here in MAY_SHARE_SUPPORT and is_support(used)
    if any(user.is_relative_to(a) and used.is_relative_to(b) for a, b in MAY_USE):
        return True
    if here != "tests":
        return False
    return user.parts[1] == there or (there == "tools" and len(user.parts) == 2)


def includes(text):
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def labels(text):
    """Yields (line, label) for each string of a BUILD file that is a label, except visibility."""
    tree = ast.parse(text)  # a BUILD file is Python as far as its grammar goes
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in VISIBILITY:
            skipped.update(ast.walk(node.value))
    for node in ast.walk(tree):
        if node not in skipped and isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith(("//", "@")):
                yield node.lineno, node.value


def is_cuda_place(path):
    """Returns whether a file may include the toolkit's headers."""
    if room_of(path) in LIBRARY:
        return "cuda" in path.parts[1:-1]
    if room_of(path) not in ("examples", "integrations", "benchmarks", "tests"):
        return False
    return path.suffix in (".cu", ".cuh") or "cuda" in "/".join(path.parts[1:])


def check_include(path, number, bracket, header):
    rooms = LIBRARY + END + [BUILD_RULES]
    use = Use(path, number, header, f"#include {header}")
    if header.startswith("spdlog/") and room_of(path) != "base":
        yield use.violation("spdlog is used through base/log.h only")
    elif CUDA_HEADER.match(header) and not is_cuda_place(path):
        yield use.violation("CUDA's headers are for the library's folders named cuda, and for "
                            "CUDA files of examples, integrations, benchmarks and tests")
    elif room_of(use.used) in rooms:
        same_room = room_of(path) == room_of(use.used)
        allowed = may_use_in_room if same_room else may_use
        if not allowed(path, use.used):
            yield use.violation(f"{name_of(path)} may not use {name_of(use.used)}")
        elif is_core(path) and not is_core(use.used) and path not in NAME_DEVICES:
            yield use.violation(f"{name_of(path)} is in the core and may not use "
                                f"{name_of(use.used)}, which stands around it")
    elif bracket == '"':
        yield use.violation("include our own files from the workspace root, others with <>")


def check_locks(path, text):
    if room_of(path) not in LIBRARY + ["python"] or str(path) in MAY_USE_LOCKS:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        match = LOCK.search(line)
        if match:
            yield (f"{path}:{number}: {match.group()}: a lock of the library is a Mutex, and is "
                   f"waited with by a Condition (base/mutex.h)")


def check_join(path, text):
    at = text.find("fmt::join(")
    if at >= 0 and "#include <fmt/ranges.h>" not in text:
        yield f"{path}:{text.count(chr(10), 0, at) + 1}: fmt::join: include <fmt/ranges.h>, where fmt 11 has it"


def check_label(path, number, label):
    room = room_of(path)
    if label == "//conditions:default":  # Bazel's own, in select()
        return
    use = Use(path, number, label.replace("@cgtree//", "//").lstrip("/").split(":")[0], label)
    if re.match(r"@spdlog\b", label) and room != "base":
        yield use.violation("spdlog is used through base/log.h only")
    elif label.startswith("@local_cuda") and room in LIBRARY and not is_cuda_place(path):
        yield use.violation("the CUDA toolkit is for the library's folders named cuda")
    elif label.startswith(("//", "@cgtree//")) and not may_use(path, use.used):
        yield use.violation(f"{room} may not use {use.used.parts[0] if use.used.parts else '//'}")


def is_source(path, text):
    return path.suffix in source_tree.CXX | SCRIPTS or (
        path.name not in BUILD_NAMES and path.suffix == "" and text.startswith("#!"))


def check_first_line(path, text):
    lines = text.splitlines() + ["", ""]
    is_script = lines[0].startswith("#!")
    first = lines[1] if is_script else lines[0]
    marks = ("// ",) if path.suffix in source_tree.CXX else ("# ", '"""', 'r"""')
    if not first.startswith(marks) or len(first.split()) < 2:
        yield (f"{path}:{2 if is_script else 1}: the first line must be a comment that says what "
               f"the file is for")


def check_file(path, text):
    if path.name in BUILD_NAMES:
        for number, label in labels(text):
            yield from check_label(path, number, label)
    if path.suffix in source_tree.CXX:
        for number, bracket, header in includes(text):
            yield from check_include(path, number, bracket, header)
        yield from check_locks(path, text)
        yield from check_join(path, text)
    if is_source(path, text):
        yield from check_first_line(path, text)


def check_room(path):
    if room_of(path) not in LIBRARY + END + [BUILD_RULES, ".ci", ""]:
        yield f"{path}: '{room_of(path)}' is no room; give it a place in tools/check_layering.py"


def violations(root):
    found = []
    for path in source_tree.files(root):
        kind = path.suffix in source_tree.CXX | SCRIPTS or path.name in BUILD_NAMES
        if not kind and path.suffix != "":
            continue
        text = pathlib.Path(root, path).read_text(encoding="utf-8", errors="replace")
        if kind:
            found += check_room(path)
        found += check_file(path, text)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parents[1])
    root = pathlib.Path(parser.parse_args().root)
    if not root.is_dir():
        parser.error(f"{root} is no folder: name the root of a checkout")
    found = violations(root)
    print("".join(line + "\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
