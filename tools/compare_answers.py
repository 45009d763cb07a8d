#!/usr/bin/env python3
"""Compares the results of calls on two devices, and prints every difference.

A FILE is a test's output to the path in CGTREE_ANSWERS: a JSON list of rows. If it holds rows of
several devices, DEVICE selects one. Exits with 1 if anything differs or is missing on one side, and
with 2 if there is nothing to compare.
"""

import argparse
import json
import pathlib
import sys

KEY = ("call", "mode", "stream")
VALUES = ("code", "last_error", "status", "end")


def read(argument):
    """Returns the name of the device and its rows by key."""
    name, _, device = argument.partition(":")
    rows = json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
    devices = sorted({row["device"] for row in rows})
    if device:
        rows = [row for row in rows if row["device"] == device]
    elif len(devices) > 1:
        raise ValueError(f"{name} holds rows of {', '.join(devices)}; select one, such as "
                         f"{name}:{devices[0]}")
    if not rows:
        raise ValueError(f"{argument}: no rows; there are rows of "
                         f"{', '.join(devices) or 'no device'}")
    return rows[0]["device"], {tuple(row[key] for key in KEY): row for row in rows}


def differences(left, right):
    """Yields a line for each key whose rows differ."""
    for key in sorted(left.keys() | right.keys()):
        a, b = left.get(key), right.get(key)
        if a is None or b is None:
            yield f"{' '.join(key)}: only {'the second' if a is None else 'the first'} has it"
            continue
        parts = [f"{value} {a[value]} / {b[value]}" for value in VALUES if a[value] != b[value]]
        if parts:
            yield f"{' '.join(key)}: {', '.join(parts)}"


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs=2, metavar="FILE[:DEVICE]")
    try:
        (first, left), (second, right) = map(read, parser.parse_args(arguments).files)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    found = list(differences(left, right))
    print(f"{first} / {second}")
    for line in found:
        print(line)
    print(f"{len(left.keys() & right.keys())} calls compared, {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
