#!/usr/bin/env python3
"""Converts event files to a trace that ui.perfetto.dev shows."""

import argparse
import json
import pathlib
import sys

sys.dont_write_bytecode = True  # the folder of this file may be the source tree
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "files"))

import clocks  # noqa: E402
import contexts  # noqa: E402
import files  # noqa: E402
import trace  # noqa: E402

DESCRIPTION = "Converts event files (WatchOptions::event_file) to one trace for ui.perfetto.dev."
EPILOGUE = """\
Give the files of all contexts and ranks. Times are those of the wall clocks of their hosts. How far the
clock of a rank is ahead is said on stderr, if that is a millisecond or more, and taken off with --align.

Exit status: 0 done, 1 done but something was left out or is doubtful (stderr says what), 2 bad usage, no
events at all, or a file that cannot be written."""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="trace_events", description=DESCRIPTION, epilog=EPILOGUE, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", metavar="EVENTS", type=files.user_path, nargs="+", help="an event file")
    parser.add_argument("--out", metavar="FILE", type=files.user_path, required=True,
                        help="the trace to write, JSON")
    parser.add_argument("--align", action="store_true",
                        help="shift ranks so that what they did together is at the same time")
    return parser.parse_args(arguments)


def say(text):
    print(f"trace_events: {text}", file=sys.stderr)


def main():
    options = parse(sys.argv[1:])
    processes, problems = contexts.read(options.events)
    for problem in problems:
        say(problem)
    if not processes:
        return 2
    offsets = clocks.offsets(processes)
    for index, (ahead, votes) in offsets.items():
        if abs(ahead) >= 1000:
            say(f"the clock of {processes[index].name()} is {abs(ahead) / 1000:.1f} ms "
                f"{'ahead' if ahead > 0 else 'behind'} (median of {votes} calls that the ranks made "
                f"together); {'taken off' if options.align else '--align takes that off'}")
    shifts = {index: ahead for index, (ahead, _) in offsets.items()} if options.align else {}
    result, notes = trace.make(processes, shifts)
    for note in notes:
        say(note)
    text = json.dumps(result, separators=(",", ":"), allow_nan=False) + "\n"
    try:
        files.write_all([(options.out, text)], keep=options.events)
    except files.CannotWrite as error:
        say(error)
        return 2
    return 1 if problems or notes else 0


if __name__ == "__main__":
    sys.exit(main())
