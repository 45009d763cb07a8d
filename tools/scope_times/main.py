#!/usr/bin/env python3
"""Adds up a profiler's times by scope."""

import argparse
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # the folder of this file may be the source tree
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "files"))

import files  # noqa: E402
import profiles  # noqa: E402
import scope_chart  # noqa: E402
import scopes  # noqa: E402

DESCRIPTION = "Adds up what a profiler has measured of each scope (docs/scopes.md)."
EPILOGUE = """\
PROFILE is what `nsys export --type=sqlite` writes, of a profile with --cuda-graph-trace=node, or the JSON of
PyTorch's profiler. SNAPSHOT is what context.snapshot_json() has returned in the process that was profiled,
after its recordings were made; it may be repeated, once for each context. The picture has an outer scope
above those inside of it, each as wide as its time.

Exit status: 0 done, 1 nothing of the profile is in a scope (stderr says why), 2 bad usage, or a file that
cannot be read or written."""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="scope_times", description=DESCRIPTION, epilog=EPILOGUE, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", metavar="PROFILE", type=files.user_path)
    parser.add_argument("--snapshot", metavar="SNAPSHOT", type=files.user_path, action="append", required=True)
    parser.add_argument("--svg", metavar="FILE", type=files.user_path, help="write a picture")
    return parser.parse_args(arguments)


def _shown(path):
    """Names come from the caller: a scope is one line of the table, and control characters must not reach the
    terminal."""
    return re.sub("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", path)


def table(times, rest):
    """Returns the lines of the table; `times`: see scopes.add_up(). `rest`: (launches, ns) outside of scopes."""
    whole = sum(own for _, own, _ in times.values()) + rest[1]
    rows = [("scope", "launches", "own ms", "with inner ms", "share")]
    for path, (launches, own, inner) in scopes.in_order(times):
        rows.append((_shown(path), f"{launches:,}", f"{own / 1e6:.3f}", f"{(own + inner) / 1e6:.3f}",
                     f"{(own + inner) / max(1, whole):.1%}"))
    rows.append(("(in no scope)", f"{rest[0]:,}", f"{rest[1] / 1e6:.3f}", f"{rest[1] / 1e6:.3f}",
                 f"{rest[1] / max(1, whole):.1%}"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0])] + [row[i].rjust(widths[i]) for i in range(1, len(row))])
            for row in rows]


def main():
    options = parse(sys.argv[1:])
    try:
        known = scopes.read(options.snapshot)
        profile = profiles.read(options.profile)
    except (scopes.BadSnapshot, profiles.BadProfile) as error:
        print(f"scope_times: {error}", file=sys.stderr)
        return 2
    times, rest = scopes.add_up(known, profile)
    if why := scopes.why_nothing(known, profile, times):
        print(f"scope_times: {why}", file=sys.stderr)
        return 1
    if options.svg is not None:
        try:
            files.write_all([(options.svg, scope_chart.render(times, rest))],
                            keep=[options.profile, *options.snapshot])
        except files.CannotWrite as error:
            print(f"scope_times: {error}", file=sys.stderr)
            return 2
    print("\n".join(table(times, rest)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
