#!/usr/bin/env python3
"""Runs all benchmarks with their peers, and compares them with one another and with earlier results.

usage: bazel run -c opt //benchmarks/compare -- [--json=DIR] [--svg=FILE] [--only=a,b] [--rounds=3]

Each round runs every program, cgtree's and the peers' in turn. The table has the least, the median
and the 99th percentile of the samples; "above", the median excess of a sample over a bare launch of
as many kernels beside it; "noise", the spread of the rounds' medians; the ratio to the peer's row,
or to the work done by hand; and the median of the last committed results of the same kind of
machine, with "!" if noise does not explain the change.

Exit status: 0 done, 1 a program failed (the others' rows are shown), 2 bad usage.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from picture import svg_of  # noqa: E402
from programs import PROGRAMS  # noqa: E402
from rows import NANOSECONDS, STATISTICS, merge, read  # noqa: E402
from table import lines_of  # noqa: E402

PROGRAM_FOLDER = pathlib.Path.cwd() / "benchmarks"  # `bazel run` starts programs in the runfiles


def kind_of(device_name):
    """Returns the kind of machine in names of result files: "h200" of "NVIDIA H200 141GB"."""
    found = re.search(r"\b([A-Z]+\d+\w*)", device_name)
    return found.group(1).lower() if found else re.sub(r"\W+", "_", device_name.lower()).strip("_")


def run(command, options, samples, folder):
    """Returns the result file of one command; raises RuntimeError with its last words."""
    path = pathlib.Path(folder, "result.json")
    path.unlink(missing_ok=True)
    line = [str(options.bin / command), f"--json={path}", f"--samples={samples}"]
    if command.endswith(".py"):
        line.insert(0, sys.executable)
    else:
        line += [f"--device={options.device}", f"--commit={options.commit}"]
    if "allocator_bench" in command:
        line += [f"--trace={trace}" for trace in options.trace]
    elif "c10_bench" in command:
        line += [f"--build={folder}", *options.trace]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not path.exists():
        words = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{command} ended with {done.returncode}: {words[-1] if words else ''}")
    return json.loads(path.read_text(encoding="utf-8"))


def is_possible(command, options):
    """Peers in Python need a GPU and PyTorch."""
    return not command.endswith(".py") or (options.device != "host" and
                                           importlib.util.find_spec("torch") is not None)


def measure(programs, options, folder):
    """Returns {result: (context, rows)} and the failures."""
    rounds = {program.result: [] for program in programs}
    contexts, failed = {}, []
    for number in range(options.rounds):
        for program in programs:
            rows = {}
            for command in program.commands:
                if not is_possible(command, options) or command in failed:
                    continue
                if sys.stderr.isatty():
                    print(f"\r\033[Kround {number + 1} of {options.rounds}: {command}", end="",
                          file=sys.stderr)
                samples = options.samples or program.samples
                try:
                    document = run(command, options, max(1, samples // options.rounds), folder)
                except RuntimeError as error:
                    print(f"{error}", file=sys.stderr)
                    failed.append(command)
                    continue
                contexts.setdefault(program.result, document.get("context", {}))
                rows |= read(document)
            rounds[program.result].append(rows)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return {name: (contexts.get(name, {}), merge(of_program))
            for name, of_program in rounds.items()}, failed


def document_of(context, rows, options):
    """Returns rows as a result file, which read() understands."""
    unit = "us"
    factor = NANOSECONDS[unit]
    return {"context": context | {"command": "compare " + " ".join(options.line),
                                  "rounds": options.rounds},
            "benchmarks": [{"name": name, "real_time": row["median"] / factor, "time_unit": unit,
                            "medians_us": [median / factor for median in row["medians"]],
                            **{f"{key}_{unit}": row[key] / factor
                               for key in STATISTICS if key in row}}
                           for name, row in rows.items()]}


def before_of(result, kind, options):
    """Returns the rows that were committed last for the same kind of machine, or {}."""
    path = options.results / f"{result}_{kind}.json"
    if not path.exists():
        return {}
    return merge([read(json.loads(path.read_text(encoding="utf-8")))])


def parse(arguments):
    caller = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="a folder, for a result file per program")
    parser.add_argument("--svg", help="a file, for a picture of the main rows")
    parser.add_argument("--only", default="", help="programs, such as replay_bench,copy_bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=0, help="of a row, over all rounds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--all-rows", action="store_true", help="also rows without a peer")
    parser.add_argument("--trace", action="append", default=[], help="allocation logs to run")
    parser.add_argument("--commit", default="unknown", help="of the source; noted in the results")
    parser.add_argument("--bin", default=PROGRAM_FOLDER, help="the folder of the programs")
    parser.add_argument("--results", default=PROGRAM_FOLDER / "results", help="what to compare with")
    options = parser.parse_args(arguments)
    options.line = arguments
    options.bin, options.results = caller / options.bin, caller / options.results
    options.trace = [str(caller / trace) for trace in options.trace]
    options.json, options.svg = (caller / path if path else None
                                 for path in (options.json, options.svg))
    known = {program.result for program in PROGRAMS}
    options.only = [name for name in options.only.split(",") if name] or sorted(known)
    for name in options.only:
        if name not in known:
            parser.error(f"--only={name}: there are {', '.join(sorted(known))}")
    if options.rounds < 1:
        parser.error(f"--rounds={options.rounds}: at least 1")
    return options


def main(arguments):
    options = parse(arguments)
    programs = [program for program in PROGRAMS if program.result in options.only]
    with tempfile.TemporaryDirectory() as folder:
        measured, failed = measure(programs, options, folder)
    if options.json:
        options.json.mkdir(parents=True, exist_ok=True)
    for program in programs:
        context, rows = measured[program.result]
        if not rows:
            continue
        kind = kind_of(context.get("device_name", options.device))
        print("\n".join(lines_of(program, rows, before_of(program.result, kind, options),
                                 not options.all_rows)), end="\n\n")
        if options.json:
            path = options.json / f"{program.result}_{kind}.json"
            path.write_text(json.dumps(document_of(context, rows, options), indent=1) + "\n",
                            encoding="utf-8")
    if options.svg:
        names = {context.get("device_name", "") for context, _ in measured.values() if context}
        picture = svg_of({name: rows for name, (_, rows) in measured.items()},
                         f"Time per operation, less is better ({', '.join(sorted(names))})")
        if picture is None:
            print("no row of the picture was measured: no file is written", file=sys.stderr)
        else:
            options.svg.write_text(picture, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
