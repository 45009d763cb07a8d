"""Fuzzes trace_events with event files that are damaged at random.

The tool makes a trace, or refuses the files with a message. It reports omitted events, never ends with a traceback, and
writes JSON with finite numbers only.

As a test it runs a hundred and fifty cases. By hand, for any time:
  python3 tests/tools/trace_events/event_files_fuzz.py --seconds=600 [--seed=N]
A failure prints its case; --seed=N --case=K runs that case alone.
"""

import argparse
import contextlib
import copy
import io
import json
import os
import pathlib
import random
import runpy
import sys
import tempfile
import time
import traceback
import unittest

sys.dont_write_bytecode = True
PROGRAM = pathlib.Path("tools/trace_events/main.py").resolve()
SEED = int(os.environ.get("CGTREE_SEED", random.randrange(2**32)))
CASES = 150

KINDS = ("open", "warm_up", "record", "replay", "skip", "evict", "drop", "verify", "failure", "counters",
         "device_time")

# Replacements of values.
ODD = (None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30, -10**30, 0.5, 1e308,
       5e-324, float("inf"), float("nan"), "", "x", "\u0000", "\ud800", "'\"&<", "a" * 3000, [], {}, [[]], [0],
       {"": 0}, {"actual": 0, "padded": 0}, {"actual": 10**400, "padded": 1}, [None], "1")


def event(rng, kind, at, process, name):
    made = {"event": kind, "time_us": at, "context": name, "process": process}
    if kind == "open":
        made |= {"device": "host", "host": rng.choice(("", "a", "b")), "has_replays": True}
        if rng.random() < 0.5:
            made |= {"rank": rng.randrange(3), "ranks": 3}
    elif kind == "counters":
        made |= {"recordings": rng.randrange(9), "graph_bytes": rng.randrange(10**6), "live_outputs": 1,
                 "live_bytes": 512, "pool_bytes": {"output": 512, "scratch": 0, "eager": 2**20}}
    else:
        made |= {"function": rng.choice(("f", "g")), "us": rng.randrange(2000), "generation": 1, "node": 3,
                 "inputs": "float32 {4}", "axes": {"rows": {"actual": 3, "padded": 4}},
                 "began_us": at - rng.randrange(4000), "host_us": 1.5, "found_idle": True,
                 "reason": "capture_failed", "what": "broken", "live_outputs": 1, "live_bytes": 9,
                 "cause": {"nearest": 0, "changes": []}}
    return made


def events_of(rng):
    """The lines of an event file."""
    at, made = 1_700_000_000_000_000 + rng.randrange(10**6), []
    processes = [(rng.randrange(1, 4), rng.choice(("a", "b"))) for _ in range(rng.randrange(1, 4))]
    for process, name in processes:
        made.append(event(rng, "open", at, process, name))
    for _ in range(rng.randrange(1, 25)):
        at += rng.randrange(1, 5000)
        made.append(event(rng, rng.choice(KINDS), at, *rng.choice(processes)))
    return made


def places(value, path=()):
    """The paths of all values in a value, including nested ones."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from places(item, (*path, key))


def damage(rng, lines):
    """Changes, removes and moves a few values."""
    for _ in range(rng.randrange(1, 5)):
        paths = list(places(lines))
        if not paths:
            return
        path = rng.choice(paths)
        owner = lines
        for step in path[:-1]:
            owner = owner[step]
        what = rng.randrange(8)
        if what == 0:
            del owner[path[-1]]
        elif what == 1 and isinstance(owner, list):
            owner.append(copy.deepcopy(owner[path[-1]]))
        elif what == 2 and type(owner[path[-1]]) is int:
            value = owner[path[-1]]
            fraction = value / 3 if abs(value) < 10**300 else value
            large = value * 10.0**290 if abs(value) < 10**300 else value
            owner[path[-1]] = rng.choice((-value, value + 1, value * 2**20, fraction, large))
        else:
            owner[path[-1]] = copy.deepcopy(rng.choice(ODD))


def bytes_of(rng, lines):
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    if rng.random() < 0.2:  # damages the bytes
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        data = bytes(changed[:rng.randrange(len(changed) + 1)] if rng.random() < 0.3 else changed)
    return data


def run_tool(arguments):
    """Runs the tool in this process. Returns its status and its output."""
    said, before, path, argv = io.StringIO(), set(sys.modules), list(sys.path), sys.argv
    sys.argv = [str(PROGRAM), *map(str, arguments)]
    sys.path.insert(0, str(PROGRAM.parent))
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            runpy.run_path(str(PROGRAM), run_name="__main__")
        return 0, said.getvalue()
    except SystemExit as end:
        return end.code or 0, said.getvalue()
    finally:
        sys.argv, sys.path[:] = argv, path
        for name in set(sys.modules) - before:
            if name in ("clocks", "contexts", "events", "files", "trace"):
                del sys.modules[name]


def run_case(seed, case, folder, outcomes):
    """Raises the exceptions of the tool, and AssertionError."""
    rng = random.Random(f"{seed} {case}")
    paths = [folder / f"{i}.jsonl" for i in range(rng.randrange(1, 4))]
    for path in paths:
        lines = events_of(rng)
        if rng.random() < 0.8:
            damage(rng, lines)
        path.write_bytes(bytes_of(rng, lines))
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    status, said = run_tool([*paths, f"--out={out}"] + ["--align"] * rng.randrange(2))
    outcomes[status] = outcomes.get(status, 0) + 1
    assert status in (0, 1, 2), f"it ends with {status}: {said}"
    assert status == 0 or said, "it leaves something out without a word"
    assert out.exists() == (status != 2), f"status {status}, but the file says otherwise: {said}"
    if status == 2:
        return

    def refuse(name):
        raise AssertionError(f"the trace has {name}")
    for shown in json.loads(out.read_text(), parse_constant=refuse)["traceEvents"]:
        assert shown.get("dur", 0) >= 0, f"a slice ends before it begins: {shown}"


class EventFilesFuzzTest(unittest.TestCase):

    def test_damaged_event_files_are_shown_or_refused(self):
        outcomes = {}
        with tempfile.TemporaryDirectory() as folder:
            for case in range(CASES):
                with self.subTest(seed=SEED, case=case):
                    run_case(SEED, case, pathlib.Path(folder), outcomes)
        print(f"CGTREE_SEED={SEED}: statuses {outcomes}", file=sys.stderr)
        self.assertLessEqual({0, 1}, set(outcomes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--case", type=int, help="run this one alone")
    options = parser.parse_args()
    outcomes, kinds, end, case = {}, {}, time.monotonic() + options.seconds, options.case or 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            try:
                run_case(options.seed, case, pathlib.Path(folder), outcomes)
            except Exception as error:  # any exception is a finding
                where = traceback.extract_tb(error.__traceback__)[-1]
                kind = f"{type(error).__name__} in {where.name}() of {pathlib.Path(where.filename).name}"
                if kind not in kinds:
                    print(f"--seed={options.seed} --case={case}:")
                    traceback.print_exc()
                kinds[kind] = kinds.get(kind, 0) + 1
            case += 1
            if options.case is not None:
                break
    print(f"seed {options.seed}: {case} cases, statuses {outcomes}, failures {kinds}")
    return 1 if kinds else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main())
    unittest.main()
