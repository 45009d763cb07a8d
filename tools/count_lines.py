#!/usr/bin/env python3
"""Counts the lines of the product by room, those of the core, and its named concepts: types, interfaces, options, locks
and thread-local variables.

Prints a table with a column for each tree, this tree by default; two trees show the changes between them. Lines are
those of C++ and CUDA sources and headers, comments and empty ones included, in the rooms of the library and in python/.
Files ROOM define the core's rooms; in a tree without any, no room is core, and its library is base/, interop/,
allocator/ and cgtree/. A type is a class, struct, union or enumeration that is defined; an interface is a class with a
pure virtual function. Options are the fields of public structs named ...Options or ...Limits.
"""

import argparse
import collections
import pathlib
import re
import sys

import check_comments
import check_layering
import source_tree

MOST_LINES = 600  # of a file that is read in one go
LIBRARY_BEFORE_ROOMS = ("base", "interop", "allocator", "cgtree")
TYPE = re.compile(r"^[ \t]*(?:template <[^;{]*>\s*)?(?:class|struct|union|enum class|enum)\s+(?:\[\[[\w:]+\]\]\s*)?"
                  r"(\w[\w:]*)(?:\s+final)?\s*(?::[^;{()]*)?\{", re.MULTILINE)
PURE = re.compile(r"\bvirtual\b[^;{}]*= 0;")
RANK = re.compile(r"^  X\(k\w+, ", re.MULTILINE)
OF_THREAD = re.compile(r"^(?!.*\bextern\b)[^/\n]*(?<!\")\bthread_local\b", re.MULTILINE)


def name_of(room, path):
    """The room of a file as the table names it: "cgtree/tree", "interop/device/cuda"."""
    return f"{room.name}/cuda" if "cuda" in path.parts[:-1] else room.name


def place_of(house, path):
    """Returns the name of the room of a file of the product and whether it is of the core, or null."""
    if not house.rooms:
        name = "python" if path.parts[0] == "python" else "/".join(path.parts[:-1][:2])
        return (name, False) if path.parts[0] in (*LIBRARY_BEFORE_ROOMS, "python") else None
    room = house.room_of(path)
    if room is None or not (room.part in check_layering.LIBRARY or room.name == "python"):
        return None
    return name_of(room, path), room.part == "core"


def interfaces(text):
    """Returns how many types of a text declare a pure virtual function."""
    starts = [match.start() for match in TYPE.finditer(text)] + [len(text)]
    return sum(PURE.search(text, start, end) is not None for start, end in zip(starts, starts[1:]))


def count(root):
    """Returns the rows of the table for one tree: a Counter by name, in the order of the table."""
    house = check_layering.House(root)
    rows = collections.Counter()
    for path in house.files:
        place = place_of(house, path) if path.suffix in source_tree.CXX else None
        if place is None:
            continue
        text = (house.root / path).read_text(encoding="utf-8")
        lines = len(text.splitlines())
        is_library = path.parts[0] != "python"
        rows["folder " + place[0]] += lines
        rows["all C++"] += lines
        rows["library"] += lines * is_library
        rows["core"] += lines * place[1]
        rows["library, files"] += is_library
        rows[f"library, files over {MOST_LINES} lines"] += is_library and lines > MOST_LINES
        rows["types"] += len(TYPE.findall(text))
        rows["interfaces"] += interfaces(text)
        rows["variables of threads"] += len(OF_THREAD.findall(text)) * (path.parts[0] != "simulator")
        rows["lock ranks"] += len(RANK.findall(text)) * (path.as_posix() == "base/mutex.h")
    headers = [header.read_text(encoding="utf-8") for header in check_comments.public_headers(house.root)]
    rows["types in public headers"] = sum(
        name.kind == "type" for header in headers for name in check_comments.Header(header).names)
    rows["options"] = sum(len(fields) for header in headers for _, fields in source_tree.option_structs(header))
    return rows


def table(columns):
    """Returns the lines of a table; columns: a list of (heading, rows)."""
    names = list(dict.fromkeys(name for _, rows in columns for name in rows))
    folders = sorted(name for name in names if name.startswith("folder "))
    names = folders + [name for name in names if name not in folders]
    cells = [["", *(heading for heading, _ in columns)]]
    cells += [[name.removeprefix("folder "), *(f"{rows.get(name, 0):,}" for _, rows in columns)] for name in names]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join([row[0].ljust(widths[0])] +
                      [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]).rstrip()
            for row in cells]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roots", nargs="*", default=[pathlib.Path(__file__).resolve().parents[1]])
    roots = parser.parse_args().roots
    for root in roots:
        if not pathlib.Path(root, "README.md").is_file():
            parser.error(f"{root} is no checkout: it has no README.md")
    print("\n".join(table([(pathlib.Path(root).name, count(root)) for root in roots])))


if __name__ == "__main__":
    main()
