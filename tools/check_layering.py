#!/usr/bin/env python3
"""Checks the uses between rooms, the places of other projects' headers, plain locks and
thread-local variables, and the beginnings of files.

Prints one line for each violation, and exits with 1 if there is any.

A room is a folder with a file ROOM, together with its folders that have none. ROOM describes the room, and then has
lines of these forms:

    part: core, around, program or rules
    uses: the rooms that it uses, besides itself; "library" is every room of core and around
    FILE uses: the rooms that one file uses besides (the registry of devices, for example, names each)
    plain locks: its files that may use locks without a rank, or "any"
    thread locals: its files that may define variables of threads, or "any"
    third parties: its files that may include headers of other projects, or "any"
    lines: how many lines of C++ and CUDA it may have; programs need none

The core uses the core. A room around it uses rooms of both, and programs use the rooms that they name.
No two rooms of the library use each other, directly or indirectly. Rules are for every room.
"""

import argparse
import ast
import dataclasses
import pathlib
import re
import sys

import source_tree

PARTS = ("core", "around", "program", "rules")
LIBRARY = ("core", "around")
FIELD = re.compile(r"(part|uses|lines|plain locks|thread locals|third parties|([\w.]+) uses): (.*)")

BUILD_NAMES = {"BUILD", "BUILD.bazel"}
SCRIPTS = {".py", ".sh", ".bzl"}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[">]')
CUDA_HEADER = re.compile(
    r"(cuda|cublas|cudnn|cupti|nvrtc|nccl|nvToolsExt|cooperative_groups|driver_types|device_launch"
    r"|vector_types|cub/|thrust/|nvtx3/)")
# Locks of the library have a rank (base/mutex.h), so that the order in which they are taken is checked.
LOCK = re.compile(r"std::((recursive_|shared_|timed_|recursive_timed_)?mutex|condition_variable)\b")
# Other projects' headers, which the library includes where a ROOM allows it.
THIRD_PARTY = re.compile(r"(fmt|spdlog|nlohmann)/")
# By the field of ROOM that names the allowed files: a construct, and its replacement.
RESTRICTED = {
    "plain locks": (LOCK, "a lock of the library is a Mutex, and is waited with by a Condition (base/mutex.h)"),
    "thread locals": (re.compile(r'(?<!")\bthread_local\b'),
                      "a variable of threads is a member of Frame or an object of of_thread() (base/frame.h)"),
}
# Attributes that name the users of a target, which is the other direction.
VISIBILITY = {"visibility", "default_visibility", "packages"}


class Use:
    """One place where `user` (a path) names `used` (a path below the root)."""

    def __init__(self, user, line, used, text):
        self.user, self.line, self.used, self.text = user, line, pathlib.PurePath(used), text

    def violation(self, why):
        return f"{self.user}:{self.line}: {self.text}: {why}"


@dataclasses.dataclass
class Room:
    """The contents of a file ROOM."""

    name: str
    part: str = ""
    uses: frozenset = frozenset()
    files: dict = dataclasses.field(default_factory=dict)  # a file's name -> rooms it may use besides
    allowed: dict = dataclasses.field(default_factory=dict)  # a field of RESTRICTED -> files, or "any"
    lines: int = 0
    faults: list = dataclasses.field(default_factory=list)


def read_room(root, name):
    room, purpose = Room(name), ""
    path = pathlib.Path(root, name, "ROOM")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        field = FIELD.fullmatch(line)
        if field is None:
            purpose += line
            continue
        kind, file, value = field.groups()
        rooms = frozenset(re.split(r",\s*", value))
        if file is not None:
            room.files[file] = rooms
            if not (path.parent / file).is_file():
                room.faults.append(f"{name}/ROOM:{number}: there is no file {file}")
        elif kind == "uses":
            room.uses |= rooms
        elif kind == "part":
            room.part = value
        elif kind in RESTRICTED or kind == "third parties":
            if kind == "third parties" and room.part == "core":
                room.faults.append(f"{name}/ROOM:{number}: the core includes no header of other projects")
            room.allowed[kind] = rooms
        else:
            room.lines = int(value.replace(",", ""))
    if not purpose.strip():
        room.faults.append(f"{name}/ROOM:1: say first what the room is for")
    if room.part not in PARTS:
        room.faults.append(f"{name}/ROOM:1: its part is one of {', '.join(PARTS)}")
    return room


class House:
    """The rooms of a tree."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = source_tree.files(root)
        self.rooms = {path.parent.as_posix(): read_room(root, path.parent.as_posix())
                      for path in self.files if path.name == "ROOM"}

    def room_of(self, path):
        """Returns the room of a path, or None for the root and for a folder in no room."""
        for folder in path.parents:
            if folder.as_posix() in self.rooms:
                return self.rooms[folder.as_posix()]
        return None

    def is_in(self, path, *parts):
        room = self.room_of(path)
        return room is not None and room.part in parts

    def is_library(self, path):
        return self.is_in(path, *LIBRARY)

    def allows(self, path, kind):
        """Returns whether the ROOM names the file for a kind of construct."""
        return bool(self.room_of(path).allowed.get(kind, frozenset()) & {path.name, "any"})

    def why_not(self, user, used):
        """Returns the reason why a file at `user` may not use the room of `used`, or None."""
        here, there = self.room_of(user), self.room_of(used)
        if here is None or here is there or (there is not None and there.part == "rules"):
            return None
        if there is None:  # targets of the root package are the whole library
            return f"{here.name} is in the core" if here.part == "core" else None
        if there.name in here.files.get(user.name, ()):
            return None
        if there.name in here.uses or ("library" in here.uses and there.part in LIBRARY):
            return None
        return f"{here.name} may not use {there.name} ({here.name}/ROOM)"

    def faults(self):
        """Yields the faults of the rooms themselves."""
        for room in self.rooms.values():
            yield from room.faults
            for name in sorted(room.uses.union(*room.files.values())):
                used = self.rooms.get(name)
                if name != "library" and used is None:
                    yield f"{room.name}/ROOM:1: {name} is no room"
                elif room.part == "core" and (used is None or used.part != "core") and name in room.uses:
                    yield f"{room.name}/ROOM:1: a room of the core may not use {name}"
                elif room.part == "around" and (used is None or used.part == "program"):
                    yield f"{room.name}/ROOM:1: a room of the library may not use {name}"
        yield from self.circles()
        lines = {name: 0 for name in self.rooms}
        for path in self.files:
            room = self.room_of(path)
            if path.suffix in source_tree.CXX and room is not None:
                lines[room.name] += len((self.root / path).read_text(encoding="utf-8").splitlines())
        for name, count in lines.items():
            room = self.rooms[name]
            if count > room.lines and (room.part in LIBRARY or room.lines > 0):
                yield f"{name}/ROOM:1: {count:,} lines, and {self.rooms[name].lines:,} are allowed"

    def circles(self):
        done = set()

        def visit(name, way):
            if name in way:
                yield f"{name}/ROOM:1: rooms use each other: {' -> '.join([*way[way.index(name):], name])}"
            elif name not in done and name in self.rooms and self.rooms[name].part in LIBRARY:
                for used in sorted(self.rooms[name].uses):
                    yield from visit(used, [*way, name])
                done.add(name)

        for name in sorted(self.rooms):
            yield from visit(name, [])


def includes(text):
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def labels(text):
    """Yields (line, label) for each string of a BUILD file that is a label, except visibility."""
    tree = ast.parse(text)  # a BUILD file is Python, as far as its grammar goes
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in VISIBILITY:
            skipped.update(ast.walk(node.value))
    for node in ast.walk(tree):
        if node not in skipped and isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith(("//", "@")):
                yield node.lineno, node.value


def is_cuda_place(house, path):
    """Returns whether a file may include the toolkit's headers."""
    if house.is_library(path):
        return "cuda" in path.parts[:-1]
    return path.suffix in (".cu", ".cuh") or "cuda" in "/".join(path.parts[1:])


def check_include(house, path, number, bracket, header):
    use = Use(path, number, header, f"#include {header}")
    if THIRD_PARTY.match(header) and house.is_library(path) and not house.allows(path, "third parties"):
        yield use.violation("the core composes text with base/format.h; a ROOM around it names what it includes")
    elif CUDA_HEADER.match(header) and not is_cuda_place(house, path):
        yield use.violation("CUDA's headers are for the library's folders named cuda, and for "
                            "CUDA files of examples, integrations, benchmarks and tests")
    elif house.room_of(use.used) is not None:
        why = house.why_not(path, use.used)
        if why:
            yield use.violation(why)
    elif bracket == '"':
        yield use.violation("include our own files from the workspace root, others with <>")


def check_restricted(house, path, text):
    room = house.room_of(path)
    for kind, (construct, instead) in RESTRICTED.items():
        if room is None or house.allows(path, kind):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            match = construct.search(line)
            if match:
                yield f"{path}:{number}: {match.group()}: {instead}"


def check_test_files(path, text):
    if path.parts[0] == "tests" and not path.stem.endswith("fuzz_test"):
        at = text.find("temp_directory_path()")
        if at >= 0:
            yield (f"{path}:{text.count(chr(10), 0, at) + 1}: the files of a test lie in testing::TempDir(): "
                   f"the same test may run twice at the same time")


def check_join(path, text):
    at = text.find("fmt::join(")
    if at >= 0 and "#include <fmt/ranges.h>" not in text:
        yield f"{path}:{text.count(chr(10), 0, at) + 1}: fmt::join: include <fmt/ranges.h>, where fmt 11 has it"


def check_label(house, path, number, label):
    if label == "//conditions:default":  # Bazel's own, in select()
        return
    folder = label.replace("@cgtree//", "//").lstrip("/").split(":")[0]
    use = Use(path, number, pathlib.PurePath(folder, "BUILD.bazel"), label)
    if label.startswith("@local_cuda") and house.is_library(path) and not is_cuda_place(house, path):
        yield use.violation("the CUDA toolkit is for the library's folders named cuda")
    elif label.startswith(("//", "@cgtree//")):
        why = house.why_not(path, use.used)
        if why and not is_registry(house, path, use.used):
            yield use.violation(why)


def is_registry(house, path, used):
    """Returns whether a file of the package may use the room."""
    here, there = house.room_of(path), house.room_of(used)
    return any(there.name in rooms for rooms in here.files.values())


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


def check_file(house, path, text):
    if path.name in BUILD_NAMES:
        for number, label in labels(text):
            yield from check_label(house, path, number, label)
    if path.suffix in source_tree.CXX:
        for number, bracket, header in includes(text):
            yield from check_include(house, path, number, bracket, header)
        yield from check_restricted(house, path, text)
        yield from check_join(path, text)
        yield from check_test_files(path, text)
    if is_source(path, text):
        yield from check_first_line(path, text)


def violations(root):
    house = House(root)
    found = list(house.faults())
    for path in house.files:
        kind = path.suffix in source_tree.CXX | SCRIPTS or path.name in BUILD_NAMES
        if path.name == "ROOM" or (not kind and path.suffix != ""):
            continue
        text = pathlib.Path(root, path).read_text(encoding="utf-8", errors="replace")
        if kind and len(path.parts) > 1 and path.parts[0] != ".ci" and house.room_of(path) is None:
            found.append(f"{path}: its folder is in no room: give it a file ROOM")
        found += check_file(house, path, text)
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
