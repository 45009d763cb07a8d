#!/usr/bin/env python3
"""Counts the lines of the product by room and sub-room, those of the core, and what makes it hard to
read: long files, and types in public headers.

Prints a table with a column for each tree, this one if none is given: two of them show what has
changed. Lines are those of C++ and CUDA sources and headers, comments and empty ones included, in
the rooms of the library and in python/. Files ROOM say which rooms are the core; a tree without any has none.
"""

import argparse
import collections
import pathlib
import sys

import check_comments
import check_layering
import source_tree

MOST_LINES = 600  # of a file that is read in one go


def name_of(room, path):
    """The room of a file as the table names it: "cgtree/tree", "interop/device/cuda"."""
    return f"{room.name}/cuda" if "cuda" in path.parts[:-1] else room.name


def count(root):
    """Returns the rows of the table for one tree: a Counter by name, in the order of the table."""
    house = check_layering.House(root)
    rows = collections.Counter()
    for path in house.files:
        room = house.room_of(path)
        if path.suffix not in source_tree.CXX or room is None or not is_product(room):
            continue
        lines = len((house.root / path).read_text(encoding="utf-8").splitlines())
        is_library = house.is_library(path)
        rows["folder " + name_of(room, path)] += lines
        rows["library"] += lines * is_library
        rows["core"] += lines * (room.part == "core")
        rows["library, files"] += is_library
        rows[f"library, files over {MOST_LINES} lines"] += is_library and lines > MOST_LINES
    rows["types in public headers"] = sum(
        name.kind == "type" for header in check_comments.public_headers(house.root)
        for name in check_comments.Header(header.read_text(encoding="utf-8")).names)
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


def is_product(room):
    return room.part in check_layering.LIBRARY or room.name == "python"


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
