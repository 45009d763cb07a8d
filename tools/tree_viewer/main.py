#!/usr/bin/env python3
"""Draws the snapshot of a context as a web page, and its tree as a Graphviz graph."""

import argparse
import pathlib
import sys

sys.dont_write_bytecode = True  # the folder of this file may be the source tree
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "files"))

import dot  # noqa: E402
import events  # noqa: E402
import files  # noqa: E402
import page  # noqa: E402
import profiles  # noqa: E402
import snapshot  # noqa: E402

DESCRIPTION = """\
Draws a context from its snapshot, which context.snapshot_json() returns: the tree of recordings,
maps of the pools, what functions cost, dynamic axes and foreign memory."""
EPILOGUE = """\
The page needs nothing but itself: no network, and no script to be read. For a picture of the DOT
file, run: dot -Tsvg tree.dot -o tree.svg

Exit status: 0 done, 2 bad usage, a snapshot or event file that cannot be read, or a file that cannot
be written (then neither file is). What a snapshot of an earlier library lacks, and lines of an event
file that are no events, are left out; the page says so."""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="tree_viewer", description=DESCRIPTION, epilog=EPILOGUE, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", metavar="FILE", type=files.user_path, required=True,
                        help="what to draw, JSON")
    parser.add_argument("--events", metavar="FILE", type=files.user_path, action="append", default=[],
                        help="an event file of the context, for a timeline in the page; may be repeated")
    parser.add_argument("--profile", metavar="FILE", type=files.user_path,
                        help="a profile of the process, as scope_times reads it: the page has the times of scopes")
    parser.add_argument("--compare", metavar="FILE", type=files.user_path,
                        help="an earlier snapshot: the page says what has changed since")
    parser.add_argument("--html", metavar="FILE", type=files.user_path, help="write a web page")
    parser.add_argument("--dot", metavar="FILE", type=files.user_path, help="write a Graphviz graph")
    options = parser.parse_args(arguments)
    if options.html is None and options.dot is None:
        parser.error("nothing to write: give --html=FILE, --dot=FILE or both")
    if options.html is None and (options.events or options.compare is not None or options.profile is not None):
        parser.error("--events, --profile and --compare are shown by the page: give --html=FILE")
    return options


def run(options):
    tree = snapshot.read(options.snapshot)
    before = None
    if options.compare is not None:
        before = snapshot.read(options.compare), options.compare.name
    profile = profiles.read(options.profile) if options.profile is not None else None
    event_files = [events.read(path) for path in options.events]
    texts = []
    if options.html is not None:
        texts.append((options.html, page.render(tree, options.snapshot.name, event_files,
                                                before, profile)))
    if options.dot is not None:
        texts.append((options.dot, dot.render(tree)))
    others = [options.compare, options.profile]
    files.write_all(texts, keep=[options.snapshot, *options.events, *(path for path in others if path is not None)])


def main():
    try:
        run(parse(sys.argv[1:]))
    except (snapshot.BadSnapshot, events.BadEvents, profiles.BadProfile, files.CannotWrite) as error:
        print(f"tree_viewer: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
